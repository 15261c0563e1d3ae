"""The record of a measured start: what its log and the clock say, in which states, under which names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from calibration.measure.start import MeasuredStart
from calibration.measure.states import CompileState, PageState
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig

_STAMP_S = 0.001
_EARLY = 0.99  # share of the time to ready up to which a first token came before it: the record allows for as much


class RunContext(NamedTuple):
    """What a start was measured in."""

    hardware: HardwareConfig
    model: ModelConfig | None
    """None: as the log names it."""
    engine: EngineConfig | None
    """Flags of the case; None: as the log gives them."""
    page_cache: PageState
    compile_cache: CompileState
    environment: Mapping[str, str]
    """Variables that change how the engine starts, without secrets."""
    host_notes: Mapping[str, str]
    """For the reader: processor, memory, kernel ..."""
    is_first: bool
    """The first start of a session: what it imports may have come from storage."""
    host: str
    dataset: str
    step: str
    """Key of the case that the record is the result of; empty for a warm-up."""


def record_of(measured: MeasuredStart, context: RunContext) -> tuple[RunRecord, list[str]]:
    """The record of a start, and what is missing in it, in words.

    Seconds count from the start of the process; those of the first start of a session from its first line, so that calibration leaves alone the imports that may
    have come from storage. Time spent on downloading weights is taken off. Raises ConfigError when the log names a model that is not known here.
    """
    log = measured.log
    record = log.to_run(
        context.hardware, model=context.model, engine=context.engine, page_cache=context.page_cache, compile_cache=context.compile_cache,
        process_start_s=None if context.is_first else measured.first_line_s, host=context.host, dataset=context.dataset,
    )  # fmt: skip
    download_s = float(log.facts.get("download_s", 0.0))
    head_s = measured.first_line_s if record.measured_from == "first_line" else 0.0
    wall_s = max(measured.wall_s - download_s - head_s, record.wall_s or 0.0)
    token_s = None if measured.first_token_s is None else measured.first_token_s - download_s
    problems = [f"no first token: {measured.problem}"] if measured.problem else []
    problems += [measured.ending] if measured.ending else []
    if token_s is not None and token_s < (wall_s + head_s) * _EARLY:
        token_s, problems = None, ["no first token: it came before the line that says ready"]
    notes = dict(context.host_notes)
    if measured.killed:
        notes["killed"] = f"{measured.killed} process(es) were left after the grace"
    if context.is_first:
        notes["start"] = "the first of its session, counted from its first line: imports may have come from storage"
    if download_s:
        notes["download"] = f"{download_s:.1f} s of downloading weights are taken off"
    rest = {"engine": _as_it_was(record.engine, measured, context), "surroundings": notes, "step": context.step}
    try:
        return record.replace(**rest, wall_s=wall_s, first_token_s=token_s, stamp_resolution_s=_STAMP_S), problems
    except ConfigError as error:  # a log that counts something twice: what was measured is kept all the same
        problems.append(f"recorded without its time to ready: {error.problem}")
        return record.replace(**rest, wall_s=None), problems


def _as_it_was(engine: EngineConfig, measured: MeasuredStart, context: RunContext) -> EngineConfig:
    """The engine with the version and core that ran, as far as they can be; its model's name may be a path of this machine."""
    engine = engine.replace(model=None, environment=dict(context.environment))
    told: dict[str, Any] = {} if measured.version is None else {"version": measured.version}
    for changes in (told | {"generation": measured.log.engine_generation}, told) if told else ():
        try:
            return engine.replace(**changes)
        except ConfigError:  # no version, or one that has no such core
            continue
    return engine
