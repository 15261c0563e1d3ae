"""Measure a host in a minute, make a node for predictions of it, and say by which factors it differs from the host of the reference."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from calibration.host import HostFacts, describe_host, file_system_of, host_facts
from calibration.probe.memory import MEMORY, measure_memory
from calibration.probe.python import (
    LINK,
    ON_DEVICE,
    REPEATED,
    SCORE,
    Batch,
    engine_packages,
    imported,
    interpreter,
    judge_score,
    measure_device,
    measure_imports,
    run_kernel,
)
from calibration.probe.results import Budget, Found, ProbeProgress, ProbeReport
from calibration.probe.storage import check_folder, cold_name, default_folder, hot_name, measure_storage, place_of
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, UnknownNameError, out_of_range
from startup_model.hardware import STORAGE_DEFAULTS, STORAGE_TIERS, Cpu, HardwareConfig, Storage, StorageTier
from startup_model.phases import Phase
from startup_model.prediction import StartupPrediction
from startup_model.predictor import predict
from startup_model.profile import Profile
from startup_model.units import format_seconds

DEFAULT_SECONDS = 60.0
_MIN_SECONDS, _MAX_SECONDS = 5.0, 3600.0
_MIN_BATCH_S = 1.0
_MAX_SCORE = 100.0
_FAR = 1.15
_ANY_MODEL = "Qwen/Qwen3-0.6B"  # neither the bootstrap nor the choice of a reference depends on it
_Part = tuple[
    str, float, float, Callable[[Budget], Found]
]  # name, share of the time that is left, most seconds, measurement


def probe_host(
    folder: str | os.PathLike[str] | None = None,
    *,
    python: str | os.PathLike[str] | None = None,
    seconds: float = DEFAULT_SECONDS,
    tier: str | None = None,
    report: Callable[[ProbeProgress], None] | None = None,
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
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise out_of_range("seconds", seconds, f"a number of seconds from {_MIN_SECONDS:g} to {_MAX_SECONDS:g}")
    budget = Budget.of(seconds)
    path, given = check_folder(folder), check_tier(tier)
    place = place_of(path)
    engine = interpreter(python, min(30.0, budget.left))
    facts = host_facts()
    has_gpu = bool(facts.gpus)
    batches: list[Batch] = []

    def kernel(left: Budget) -> Found:
        if not batches or (left.left > _MIN_BATCH_S and batches[-1].times):
            batches.append(run_kernel(engine, left, budget))
        return Found()

    def say(doing: str) -> None:
        if report is not None:
            report(ProbeProgress(len(finished), len(parts), doing))

    score: _Part = ("single-thread score", 0.1, 4.0, kernel)  # at three moments
    parts: tuple[_Part, ...] = (
        score,
        ("memory bandwidth", 0.1, 3.0, lambda left: measure_memory(facts, left)),
        ("storage", 0.45, 120.0, lambda left: measure_storage(place.folder, left, say)),
        score,
        ("start and import", 0.7 if has_gpu else 0.85, 300.0, lambda left: measure_imports(engine, left)),
        ("host to device", 0.85, 60.0, lambda left: measure_device(engine, left, has_gpu=has_gpu)),
        score,
    )
    finished: list[Found] = []
    for name, share, max_s, measure in parts:  # time that one leaves over is the next one's
        say(name)
        finished.append(measure(budget.part(share, max_s)))
    say("done")
    measured = Found().joined(*finished)
    is_engines = python is not None or imported(measured) in engine_packages()
    found = judge_score(engine, batches, is_engines=is_engines).joined(measured)
    lies_on = given or tier_of(path)
    node, notes = make_node(facts, found, lies_on, tier_of(place.folder) if place.moved else lies_on)
    factors = scale_factors(node, found)
    took = time.monotonic() - begin
    late = f"the probe took {format_seconds(took)}, more than the {format_seconds(seconds)} given"
    warnings = (place.moved, *found.warnings, *notes, *bootstrap_note(node, found), late if took > seconds else "")
    return ProbeReport(node, found.measurements, factors.values, factors.reference, tuple(filter(None, warnings)), took)


class Factors(NamedTuple):
    """What predictions of a node use without any run."""

    values: dict[str, float]
    reference: str  # name of the profile whose host they are relative to


def check_tier(tier: str | None) -> StorageTier | None:
    """The tier, when it is one. Raises UnknownNameError."""
    found = next((known for known in STORAGE_TIERS if known == tier), None)
    if tier is not None and found is None:
        raise UnknownNameError("tier", str(tier), STORAGE_TIERS)
    return found


def tier_of(folder: Path | None) -> StorageTier:
    """Which storage of a node the file system of a folder is (of the temporary files', where there is none)."""
    found = file_system_of(folder or default_folder()).tier
    return next((known for known in STORAGE_TIERS if known == found), "local_nvme")


def make_node(
    facts: HostFacts, found: Found, tier: StorageTier, measured: StorageTier | None = None
) -> tuple[HardwareConfig, tuple[str, ...]]:
    """The node with every number that was measured, the rest from its preset; and what to know about it.

    ``storage.<measured>`` (default: that of ``tier``, where the checkpoint lies) is one cold reader, ``storage.page_cache`` one hot reader; ``gpu_memory_bandwidth``
    of a node without accelerators is that of its memory.
    """
    node, warnings = _base(facts, found)
    cold, hot, score, link, memory = (found.value(name) for name in (cold_name(1), hot_name(1), SCORE, LINK, MEMORY))
    rates = {measured or tier: cold, "page_cache": hot}
    changes: dict[str, object] = {
        "storage": Storage.model_validate({"tier": tier} | {name: rate for name, rate in rates.items() if rate}),
        "source": f"probe of this host; not measured: {node.source}"[:1000],
        "cpu": score and Cpu(model=facts.cpu, cores=facts.cores, single_thread_score=min(_MAX_SCORE, score)),
        "host_to_device_bandwidth": link,
    }
    if node.is_cpu_only:
        changes["gpu_memory_bandwidth"] = memory
        note = "gpu_flops is that of the preset 'cpu', not measured: the profile run of a large model may take longer"
        warnings = (*warnings, note)
    return node.replace(**{name: value for name, value in changes.items() if value}), warnings


def _base(facts: HostFacts, found: Found) -> tuple[HardwareConfig, tuple[str, ...]]:
    """The node as its preset has it; where no preset has its accelerator, with the bandwidth of device memory that was measured."""
    try:
        return describe_host(facts), ()
    except ConfigError as error:
        gpu = max(facts.gpus, key=lambda entry: entry.memory_bytes)
        problem = f"{error.field} = {gpu.name}: {error.problem}"
    bandwidth = found.value(ON_DEVICE)
    if bandwidth is None:
        advice = "nothing was measured on it: the node has the processor alone; add the accelerator's numbers"
        return describe_host(facts._replace(gpus=())), (f"{problem}, and {advice}",)
    node = HardwareConfig(
        name="host",
        gpu=gpu.name,
        gpus=gpu.number,
        gpu_memory=gpu.memory_bytes,
        gpu_memory_bandwidth=bandwidth,
        compute_capability=gpu.compute_capability,
        host_memory=facts.memory_bytes,
        cpu=Cpu(model=facts.cpu, cores=facts.cores),
        source="this host",
    )
    return node, (f"{problem}; its numbers are as measured",)


def scale_factors(node: HardwareConfig, found: Found) -> Factors:
    """Single-thread time and bandwidths that were measured on a node, relative to the host of the reference that is nearest to it.

    Equation: slowdown = score of the reference's host / score of the node; else number of the node / number of that host, or of the table of defaults where it
    has none. Numbers that were not measured are left out.
    """
    profile = Profile.reference(_prediction(node).context.profile_name)
    host, storage = profile.host, node.storage
    values = {}
    if found.value(SCORE) is not None and (score := node.cpu.score):
        values = {"single_thread_score": score, "slowdown": (host.single_thread_score or score) / score}
    pairs = {"storage.page_cache": (storage.page_cache, host.page_cache_bandwidth)}
    for tier in STORAGE_TIERS:
        theirs = getattr(host, f"{tier}_bandwidth") or STORAGE_DEFAULTS[tier]
        pairs[f"storage.{tier}"] = (getattr(storage, tier), theirs)
    if found.value(LINK) is not None:
        pairs["host_to_device_bandwidth"] = (node.host_to_device_bandwidth, host.host_to_device_bandwidth)
    if found.value(MEMORY if node.is_cpu_only else ON_DEVICE) == node.gpu_memory_bandwidth:
        pairs["gpu_memory_bandwidth"] = (node.gpu_memory_bandwidth, host.gpu_memory_bandwidth)
    ratios = {name: own / other for name, (own, other) in pairs.items() if own and other}
    return Factors(values | {name: ratio for name, ratio in ratios.items() if math.isfinite(ratio)}, profile.name)


def bootstrap_note(node: HardwareConfig, found: Found) -> tuple[str, ...]:
    """What the measured import says of predictions for the node: that their bootstrap is too short to hold the imports of a start.

    A start imports its engine n times in a row (the server, then the process of the engine), so that ``framework_bootstrap`` takes n × the import at least. No term takes
    that number: the reference's hosts were not probed, so nothing relates their bootstrap to it.
    """
    seconds, package = found.value(REPEATED), imported(found) or ""
    engine = engine_packages().get(package)
    if seconds is None or engine is None or not engine.imports_in_a_row:
        return ()
    times = engine.imports_in_a_row
    predicted = _prediction(node, EngineConfig(engine=engine.name)).phases[Phase.FRAMEWORK_BOOTSTRAP].seconds
    if times * seconds <= _FAR * predicted:
        return ()
    often = {1: "once", 2: "twice in a row"}.get(times, f"{times} times in a row")
    once, least, expected = map(format_seconds, (seconds, times * seconds, predicted))
    words = f"import of {package}: {once}, {often} in a start: framework_bootstrap takes {least} at least, predictions of this node"
    return (f"{words} without a profile have {expected}; profile one start (startup-model profile)",)


def _prediction(node: HardwareConfig, engine: EngineConfig | None = None) -> StartupPrediction:
    return predict(_ANY_MODEL, node, engine)
