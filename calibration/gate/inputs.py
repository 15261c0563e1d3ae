"""What is given to the gate: files of runs and start-up logs, told apart by what they hold."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from calibration.gate.report import Candidate
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import MISSING, ConfigError, InputFileError, StartupModelError, one_line
from startup_model.files import is_folder, open_regular
from startup_model.hardware import HardwareConfig, preset_names
from startup_model.predictor import HardwareLike, ModelLike, as_hardware
from startup_model.profile import Profile

if TYPE_CHECKING:
    from calibration.logs.startup import ParsedStartup
    from calibration.runs.read import ReadReport

__all__ = ["Given", "host_of", "read_candidates"]

_WHAT = "a file of runs or a start-up log"
_STANDARD_INPUT = "-"
_LONGEST_LABEL = 100


class Given(NamedTuple):
    """What is said about starts whose file or log does not say it."""

    hardware: HardwareLike | None = None
    """Node; None: of a log, the host of the profile."""
    model: ModelLike | None = None
    """Model, where a log names none that is known here."""
    page_cache: str = "unknown"
    compile_cache: str = "unknown"
    process_start_s: float | None = None
    """Of logs: seconds from the start of the process to the first line."""


def read_candidates(
    paths: Iterable[str | Path], profile: Profile, given: Given | None = None, report: ReadReport | None = None
) -> Iterator[Candidate]:
    """The starts in files of runs (as ``read_runs`` reads them; of a folder, its run files) and in logs (as ``parse_starts`` does), one after the other; - is a log on standard
    input. ``report`` tells what was left out.

    Raises InputFileError for a file that is neither, ConfigError for a log without a node or a model that is known, each in one line.
    """
    given = Given() if given is None else given
    _check(given)
    for path in paths:
        if str(path) == _STANDARD_INPUT:
            yield from _of_starts(_piped(), "standard input", profile, given)
        else:
            yield from _read(Path(path), profile, given, report)


def _check(given: Given) -> None:
    """Raise ConfigError for states and times that cannot be."""
    EngineConfig(page_cache=given.page_cache, compile_cache=given.compile_cache)  # type: ignore[arg-type]
    head = given.process_start_s
    if head is not None and not 0 <= head < 86400:
        raise ConfigError(
            "process_start_s", head, "it should be seconds from 0 to a day", "give the time before the first line"
        )


def _read(path: Path, profile: Profile, given: Given, report: ReadReport | None) -> Iterator[Candidate]:
    """Runs, where the first record can be read; else starts of a log."""
    from calibration.runs.read import iter_runs

    hardware = None if given.hardware is None else as_hardware(given.hardware)
    runs = iter_runs(path, hardware=hardware, report=report)
    if is_folder(path):
        yield from _of_runs(runs, path.name, given)
        return
    with open_regular(path, _WHAT) as file:
        if not file.read(1):
            raise InputFileError(f"{path}: empty; give {_WHAT}")
    try:
        first = next(runs, None)
    except InputFileError as no_runs:
        starts = _starts(path, no_runs)
    else:
        if first is None:
            raise InputFileError(f"{path}: it holds no run; give {_WHAT}")
        yield from _of_runs(chain([first], runs), path.name, given)
        return
    yield from _of_starts(starts, path.name, profile, given)


def _starts(path: Path, no_runs: InputFileError) -> list[ParsedStartup]:
    """The starts of a log. Raises InputFileError that says why it is neither."""
    from calibration.logs.parser import parse_starts

    try:
        return parse_starts(path)
    except InputFileError:
        reason = str(no_runs).removeprefix(f"{path}: ")
        raise InputFileError(f"{path}: no start-up log, and no runs that can be read: {reason}") from None


def _piped() -> list[ParsedStartup]:
    from calibration.logs.parser import parse_starts, read_chunks

    source = getattr(sys.stdin, "buffer", None)
    if source is None:
        raise InputFileError("standard input: closed; pipe a log")
    return parse_starts(read_chunks("standard input", source), chunks=True, name="standard input")


# --- runs ---------------------------------------------------------------------------------------------------------------


def _of_runs(runs: Iterable[RunRecord], name: str, given: Given) -> Iterator[Candidate]:
    said = {"page_cache": given.page_cache, "compile_cache": given.compile_cache}
    engines: dict[int, tuple[EngineConfig, EngineConfig]] = {}
    for number, run in enumerate(runs, 1):
        before = run.engine
        changes = {
            cache: state for cache, state in said.items() if state != "unknown" and getattr(before, cache) == "unknown"
        }
        if changes:  # runs of a file share their configurations: each is changed once
            if len(engines) >= 1024:
                engines.clear()
            known = engines.get(id(before))
            if known is None:
                known = engines[id(before)] = (before, before.replace(**changes))
            run = run.replace(engine=known[1])  # noqa: PLW2901
        yield Candidate(run, f"{_label(name, number)}: {run.model.name}")


def _label(name: str, number: int) -> str:
    short = one_line(name, _LONGEST_LABEL)
    return short if number == 1 else f"{short} #{number}"


# --- logs ---------------------------------------------------------------------------------------------------------------


def _of_starts(starts: Sequence[ParsedStartup], name: str, profile: Profile, given: Given) -> Iterator[Candidate]:
    notes = (
        ()
        if given.hardware is not None
        else ("no hardware was given: the node is taken to be the host of the profile",)
    )
    for number, start in enumerate(starts, 1):
        label = f"{_label(name, number)}: {one_line(start.model or 'unknown model', _LONGEST_LABEL)}"
        evidence = "" if start.evidence is None else f"line {start.evidence.line_number}: {start.evidence.text}"
        try:
            run = _record(start, profile, given)
        except StartupModelError as error:
            if start.is_ok:
                raise InputFileError(f"{_label(name, number)}: {error}") from None
            run = None  # it failed before it said what was started
        yield Candidate(run, label, start.status, evidence, notes)


def _record(start: ParsedStartup, profile: Profile, given: Given) -> RunRecord:
    node = given.hardware
    if node is None:
        node = host_of(profile)
        ranks = (start.tp or 1) * (start.pp or 1) * (start.dp or 1)
        if not node.is_cpu_only and ranks > node.gpus:
            node = node.replace(gpus=ranks)
    state = given.compile_cache if start.compile_cache == "unknown" else start.compile_cache
    return start.to_run(
        node,
        model=given.model,
        page_cache=given.page_cache,
        compile_cache=state,
        process_start_s=given.process_start_s,
    )


def host_of(profile: Profile) -> HardwareConfig:
    """The host of a profile as a node: the preset of its accelerator, with its processor. Raises ConfigError where no preset has it."""
    for name in preset_names():
        node = HardwareConfig.preset(name)
        if node.gpu == profile.host.gpu:
            return HardwareConfig.preset(name, cpu={"model": profile.host.cpu})
    raise ConfigError(
        "hardware", MISSING, f"no preset has the accelerator of the profile ({profile.host.gpu})", "give the node (--hardware, hardware=)"
    )  # fmt: skip
