"""The record of a measured start: what its log and the clock say, in which states, under which names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.measure.starts import Measured
from calibration.measure.states import CompileState, PageState
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig

__all__ = ["Circumstances", "record_of"]

_STAMP_S = 0.001
_EARLY = 0.99
"""Share of the time to ready up to which a first token came before it: the record allows for as much."""


class Circumstances(NamedTuple):
    """What a start was measured in."""

    hardware: HardwareConfig
    model: ModelConfig | None
    """None: as the log names it."""
    engine: EngineConfig | None
    """Flags of the step; None: as the log gives them."""
    page_cache: PageState
    compile_cache: CompileState
    environment: Mapping[str, str]
    """Variables that change how the engine starts, without secrets."""
    surroundings: Mapping[str, str]
    """For the reader: processor, memory, kernel ..."""
    is_first: bool
    """The first start of a session: what it imports may have come from storage."""
    host: str
    dataset: str
    step: str
    """Key of the step that the record is the result of; empty for a start that is kept apart."""


def record_of(measured: Measured, found: Circumstances) -> tuple[RunRecord, list[str]]:
    """The record of a start, and what is missing in it, in words.

    Seconds count from the start of the process; those of the first start of a session from its first line, so that calibration leaves alone the imports that may
    have come from storage. Time spent on downloading weights is taken off. Raises ConfigError when the log names a model that is not known here.
    """
    log = measured.log
    record = log.to_run(
        found.hardware, model=found.model, engine=found.engine, page_cache=found.page_cache, compile_cache=found.compile_cache,
        process_start_s=None if found.is_first else measured.first_line_s, host=found.host, dataset=found.dataset,
    )  # fmt: skip
    download_s = float(log.facts.get("download_s", 0.0))
    head_s = measured.first_line_s if record.measured_from == "first_line" else 0.0
    wall_s = max(measured.wall_s - download_s - head_s, record.wall_s or 0.0)
    token_s = None if measured.first_token_s is None else measured.first_token_s - download_s
    problems = [f"no first token: {measured.problem}"] if measured.problem else []
    problems += [measured.ending] if measured.ending else []
    if token_s is not None and token_s < (wall_s + head_s) * _EARLY:
        token_s, problems = None, ["no first token: it came before the line that says ready"]
    rest = {
        "engine": _as_it_was(record.engine, measured, found),
        "surroundings": _surroundings(measured, found, download_s),
        "step": found.step,
    }
    try:
        return record.replace(**rest, wall_s=wall_s, first_token_s=token_s, stamp_resolution_s=_STAMP_S), problems
    except ConfigError as error:  # a log that counts something twice: what was measured is kept all the same
        problems.append(f"recorded without its time to ready: {error.problem}")
        return record.replace(**rest, wall_s=None), problems


def _as_it_was(engine: EngineConfig, measured: Measured, found: Circumstances) -> EngineConfig:
    """The engine with the version and generation that ran, as far as they can be; its model's name may be a path of this machine."""
    engine = engine.replace(model=None, environment=dict(found.environment))
    version, generation = measured.version, measured.log.engine_generation
    told: dict[str, Any] = {} if version is None else {"version": version}
    core = {"generation": generation} if told and generation in ("v0", "v1") else {}
    for changes in (told | core, told):
        try:
            return engine.replace(**changes)
        except ConfigError:  # no version, or one that has no such core
            continue
    return engine


def _surroundings(measured: Measured, found: Circumstances, download_s: float) -> dict[str, str]:
    words = dict(found.surroundings)
    if measured.killed:
        words["killed"] = f"{measured.killed} process(es) were left after the grace"
    if found.is_first:
        words["start"] = "the first of its session, counted from its first line: imports may have come from storage"
    if download_s:
        words["download"] = f"{download_s:.1f} s of downloading weights are taken off"
    return words
