"""Measure a host in a minute: storage, memory, single-thread speed, start and import of the engine's Python, link to the GPU."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from calibration.host import host_facts
from calibration.probe.budget import Budget
from calibration.probe.child import interpreter
from calibration.probe.device import measure_device
from calibration.probe.imports import ENGINES, imported, measure_imports
from calibration.probe.memory import measure_memory
from calibration.probe.node import bootstrap_note, check_tier, make_node, scale_factors, tier_of
from calibration.probe.results import Found, ProbeReport, Step
from calibration.probe.sample import check_folder, place_of
from calibration.probe.score import Batch, judge_score, run_kernel
from calibration.probe.storage import measure_storage
from startup_model.errors import ConfigError
from startup_model.units import format_seconds

__all__ = ["DEFAULT_SECONDS", "probe_host"]

DEFAULT_SECONDS = 60.0
_LEAST_SECONDS, _MOST_SECONDS = 5.0, 3600.0
_LEAST_BATCH_S = 1.0


class _Part(NamedTuple):
    """One part of the probe."""

    name: str
    share: float
    """Of the time that is left when it begins."""
    most_s: float
    run: Callable[[Budget], Found]


def probe_host(
    folder: str | os.PathLike[str] | None = None,
    *,
    python: str | os.PathLike[str] | None = None,
    seconds: float = DEFAULT_SECONDS,
    tier: str | None = None,
    report: Callable[[Step], None] | None = None,
) -> ProbeReport:
    """Measure this host within ``seconds`` of wall time and return a node for ``predict``, the measurements, and what to know about them.

    folder: of the model's checkpoint, whose storage is measured with its own weights; where it holds few, or none is given, with a temporary
    file of at most 1 GiB, which is removed; where it is read-only, with the few, or in the folder for temporary files. python: that of the engine's environment, whose
    build and imports count; None: this one. tier: which storage of the node the
    folder is (local_nvme, network_disk, object_store); None: as its file system says. report: called with each step.

    Weights that are read are taken out of the page cache in between. Raises InputFileError or ConfigError for arguments that cannot be; what
    cannot be measured becomes a warning.
    """
    begin = time.monotonic()
    budget = Budget.of(_checked(seconds))
    path, given = check_folder(folder), check_tier(tier)
    place = place_of(path)
    engine = interpreter(python, min(30.0, budget.left))
    facts = host_facts()
    say = _Announcer(report)
    batches: list[Batch] = []

    def kernel(left: Budget) -> Found:
        has_failed = bool(batches) and not batches[-1].times
        if not batches or (left.left > _LEAST_BATCH_S and not has_failed):
            batches.append(run_kernel(engine, left, budget))
        return Found()

    score = _Part("single-thread score", 0.1, 4.0, kernel)  # at three moments
    parts = (
        score,
        _Part("memory bandwidth", 0.1, 3.0, lambda left: measure_memory(facts, left)),
        _Part("storage", 0.45, 120.0, lambda left: measure_storage(place.folder, left, say)),
        score,
        _Part("start and import", 0.7 if facts.gpus else 0.85, 300.0, lambda left: measure_imports(engine, left)),
        _Part("host to device", 0.85, 60.0, lambda left: measure_device(engine, left, has_gpu=bool(facts.gpus))),
        score,
    )
    measured = _run(parts, budget, say)
    is_engines = python is not None or imported(measured) in ENGINES
    found = judge_score(engine, batches, is_engines=is_engines).joined(measured)
    lies_on = given or tier_of(path)
    node, notes = make_node(facts, found, lies_on, tier_of(place.folder) if place.moved else lies_on)
    factors = scale_factors(node, found)
    took = time.monotonic() - begin
    late = (
        (f"the probe took {format_seconds(took)}, more than the {format_seconds(seconds)} given",)
        if took > seconds
        else ()
    )
    warnings = (*filter(None, [place.moved]), *found.warnings, *notes, *bootstrap_note(node, found), *late)
    return ProbeReport(node, found.measurements, factors.values, factors.reference, warnings, took)


def _checked(seconds: object) -> float:
    """Seconds, when they are a number that makes sense. Raises ConfigError."""
    remedy = f"give {_LEAST_SECONDS:g} to {_MOST_SECONDS:g} seconds"
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise ConfigError("seconds", seconds, "it is no number", remedy)
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise ConfigError("seconds", seconds, "too short" if seconds < _LEAST_SECONDS else "too long", remedy)
    return float(seconds)


class _Announcer:
    """Passes on how far the probe has come."""

    def __init__(self, report: Callable[[Step], None] | None) -> None:
        self._report = report
        self.done = self.of = 0

    def __call__(self, doing: str) -> None:
        if self._report is not None:
            self._report(Step(self.done, self.of, doing))


def _run(parts: tuple[_Part, ...], budget: Budget, say: _Announcer) -> Found:
    """All parts one after the other; time that one leaves over is the next one's."""
    found = Found()
    say.of = len(parts)
    for part in parts:
        say(part.name)
        found = found.joined(part.run(budget.part(part.share, part.most_s)))
        say.done += 1
    say("done")
    return found
