"""What is given to the gate: files of runs and start-up logs, told apart by what they hold."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from calibration.gate.report import Candidate
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import InputFileError, StartupModelError, missing, one_line, out_of_range
from startup_model.files import is_folder, open_regular
from startup_model.hardware import HardwareConfig, preset_names
from startup_model.predictor import HardwareLike, ModelLike, as_hardware
from startup_model.profile import Profile

if TYPE_CHECKING:
    from calibration.logs.parsed import LoggedStart
    from calibration.runs.build import ReadReport

_WHAT = "a file of runs or a start-up log"
_MAX_LABEL = 100
_STATES = ("page_cache", "compile_cache")


class Given(NamedTuple):
    """What is said about starts whose file or log does not say it."""

    hardware: HardwareLike | None = None  # node; None: of a log, the host of the profile
    model: ModelLike | None = None  # model, where a log names none that is known here
    page_cache: str = "unknown"
    compile_cache: str = "unknown"
    process_start_s: float | None = None  # of logs: seconds from the start of the process to the first line


def read_candidates(
    paths: Iterable[str | Path], profile: Profile, given: Given | None = None, report: ReadReport | None = None
) -> Iterator[Candidate]:
    """The starts in files of runs (as ``read_runs`` reads them; of a folder, its run files) and in logs (as ``parse_starts`` does), one after the other; - is a log on standard
    input. ``report`` tells what was left out.

    Raises InputFileError for a file that is neither, ConfigError for a log without a node or a model that is known, each in one line.
    """
    given = Given() if given is None else given
    EngineConfig(page_cache=given.page_cache, compile_cache=given.compile_cache)  # type: ignore[arg-type]  # refuses other states
    if given.process_start_s is not None and not 0 <= given.process_start_s < 86400:
        raise out_of_range("process_start_s", given.process_start_s, "seconds from 0 to a day", "give the time before the first line")  # fmt: skip
    for path in paths:
        if str(path) == "-":
            yield from _of_starts(_piped(), "standard input", profile, given)
        else:
            yield from _read(Path(path), profile, given, report)


def _read(path: Path, profile: Profile, given: Given, report: ReadReport | None) -> Iterator[Candidate]:
    """Runs, where the first record can be read; else starts of a log."""
    from calibration.logs.parser import parse_starts
    from calibration.runs.read import iter_runs

    runs = iter_runs(path, hardware=None if given.hardware is None else as_hardware(given.hardware), report=report)
    if not is_folder(path):
        with open_regular(path, _WHAT) as file:
            if not file.read(1):
                raise InputFileError(f"{path}: empty; give {_WHAT}")
        try:
            runs = chain([next(runs)], runs)
        except StopIteration:
            raise InputFileError(f"{path}: it holds no run; give {_WHAT}") from None
        except InputFileError as no_runs:
            try:
                starts = parse_starts(path)
            except InputFileError:
                reason = str(no_runs).removeprefix(f"{path}: ")
                raise InputFileError(f"{path}: no start-up log, and no runs that can be read: {reason}") from None
            yield from _of_starts(starts, path.name, profile, given)
            return
    yield from _of_runs(runs, path.name, given)


def _piped() -> list[LoggedStart]:
    from calibration.logs.parser import parse_starts, read_chunks

    source = getattr(sys.stdin, "buffer", None)
    if source is None:
        raise InputFileError("standard input: closed; pipe a log")
    return parse_starts(read_chunks("standard input", source), chunks=True, name="standard input")


def _of_runs(runs: Iterable[RunRecord], name: str, given: Given) -> Iterator[Candidate]:
    @lru_cache(maxsize=1024)  # runs of a file share their configurations
    def told(engine: EngineConfig) -> EngineConfig:
        said = {cache: getattr(given, cache) for cache in _STATES if getattr(engine, cache) == "unknown"}
        said = {cache: state for cache, state in said.items() if state != "unknown"}
        return engine.replace(**said) if said else engine

    for number, run in enumerate(runs, 1):
        engine = told(run.engine)
        candidate = run if engine is run.engine else run.replace(engine=engine)
        yield Candidate(candidate, _label(name, number, run.model.name))


def _label(name: str, number: int, what: str) -> str:
    return f"{one_line(name, _MAX_LABEL)}{'' if number == 1 else f' #{number}'}: {what}"


def _of_starts(starts: Sequence[LoggedStart], name: str, profile: Profile, given: Given) -> Iterator[Candidate]:
    is_assumed = given.hardware is None
    notes = ("no hardware was given: the node is taken to be the host of the profile",) if is_assumed else ()
    for number, start in enumerate(starts, 1):
        evidence = "" if start.evidence is None else f"line {start.evidence.line_number}: {start.evidence.text}"
        run = None
        try:
            run = _record(start, profile, given)
        except StartupModelError as error:
            if start.is_ok:  # else it failed before it said what was started
                raise InputFileError(_label(name, number, str(error))) from None
        label = _label(name, number, one_line(start.model or "unknown model", _MAX_LABEL))
        yield Candidate(run, label, start.status, evidence, notes)


def _record(start: LoggedStart, profile: Profile, given: Given) -> RunRecord:
    node, states = given.hardware, {cache: getattr(given, cache) for cache in _STATES}
    if node is None:
        node = host_of(profile)
        ranks = (start.tp or 1) * (start.pp or 1) * (start.dp or 1)
        if not node.is_cpu_only and ranks > node.gpus:
            node = node.replace(gpus=ranks)
    if start.compile_cache != "unknown":
        states["compile_cache"] = start.compile_cache
    return start.to_run(node, model=given.model, process_start_s=given.process_start_s, **states)


def host_of(profile: Profile) -> HardwareConfig:
    """The host of a profile as a node: the preset of its accelerator, with its processor. Raises ConfigError where no preset has it."""
    for name in preset_names():
        if HardwareConfig.preset(name).gpu == profile.host.gpu:
            return HardwareConfig.preset(name, cpu={"model": profile.host.cpu})
    raise missing("hardware", f"no preset has the accelerator of the profile ({profile.host.gpu})", "give the node (--hardware, hardware=)")  # fmt: skip
