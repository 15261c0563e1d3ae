"""The command that a build runs: ``gate``."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from startup_model.errors import MISSING, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from calibration.gate.compare import CompareReport
    from calibration.gate.report import GateReport

__all__ = ["register"]

_FACTOR = 1.5
_COMPARE_FACTOR = 1.1
_FLOOR_S = 0.5
_COMPARE_FLOOR_S = 0.1

InputsArgument = Annotated[
    list[str], typer.Argument(help="Files of runs or start-up logs; - for a log on standard input. With --compare: the old and the new file.")
]  # fmt: skip
ProfileOption = Annotated[str | None, typer.Option("--profile", help="Profile file or name of a reference.")]
FactorOption = Annotated[
    float | None, typer.Option("--factor", help="Measured may be so many times predicted; 1.5, with --compare 1.1.")
]
PhaseFactorOption = Annotated[
    float | None, typer.Option("--phase-factor", help="The same for single phases; default: as --factor.")
]
FloorOption = Annotated[
    float | None, typer.Option("--floor", help="Seconds below which a phase does not count; 0.5, with --compare 0.1.")
]
LevelOption = Annotated[
    float, typer.Option("--level", help="Probability of the interval that a regression is set beside.")
]
FailOnOption = Annotated[
    list[str] | None,
    typer.Option("--fail-on", help="Kind of finding that fails: failed_start, regression, drift, state (these by default), gain, domain; several times for several."),
]  # fmt: skip
HardwareOption = Annotated[
    str | None,
    typer.Option("--hardware", help="Node (preset or JSON file), where a file does not say it; of logs, the profile's host by default."),
]  # fmt: skip
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Model, where a log names none that is known here; with --compare, of the profiles."),
]
PageCacheOption = Annotated[
    str, typer.Option("--page-cache", help="State at the start, where a run or log does not say: hot, cold or unknown.")
]
CompileCacheOption = Annotated[
    str, typer.Option("--compile-cache", help="State at the start, where a run or log does not say: warm, cold or unknown.")
]  # fmt: skip
ProcessStartOption = Annotated[
    float | None,
    typer.Option("--process-start", help="Of logs: seconds from the start of the process to the first line, where measured."),
]  # fmt: skip
CompareOption = Annotated[
    bool, typer.Option("--compare", help="Compare two profiles, or two outputs of predict --json, instead.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
JunitOption = Annotated[Path | None, typer.Option("--junit", help="File to write JUnit XML to.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="File to write the JSON to as well.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("gate")(gate_command)


def gate_command(
    inputs: InputsArgument,
    profile: ProfileOption = None,
    factor: FactorOption = None,
    phase_factor: PhaseFactorOption = None,
    floor: FloorOption = None,
    level: LevelOption = 0.9,
    fail_on: FailOnOption = None,
    hardware: HardwareOption = None,
    model: ModelOption = None,
    page_cache: PageCacheOption = "unknown",
    compile_cache: CompileCacheOption = "unknown",
    process_start: ProcessStartOption = None,
    compare: CompareOption = False,
    as_json: JsonOption = False,
    junit: JunitOption = None,
    out: OutOption = None,
) -> None:
    """Measured starts against a profile, for builds: exit status 1 when one takes longer than predicted x factor."""
    for name, place in (("--junit", junit), ("--out", out)):
        _check_out(name, place)
    _check_apart(inputs, junit, out)
    if compare:
        states = {"--page-cache": page_cache, "--compile-cache": compile_cache}
        unused: dict[str, object] = {
            "--profile": profile, "--phase-factor": phase_factor, "--fail-on": fail_on, "--process-start": process_start,
        }  # fmt: skip
        unused |= {name: None if state == "unknown" else state for name, state in states.items()}
        for option, value in unused.items():
            if value is not None:
                raise ConfigError(option, value, "it does not go with --compare", "leave it out")
        moved = _compare(inputs, factor, floor, model, hardware)
        _show(moved, as_json=as_json, junit=junit, out=out)
        if not moved.passed:
            raise typer.Exit(1)
        return
    from calibration.gate.inputs import Given

    given = Given(hardware, model, page_cache, compile_cache, process_start)
    report = _gate(inputs, profile, factor, phase_factor, floor, level, fail_on, given)
    _show(report, as_json=as_json, junit=junit, out=out)
    if not report.passed:
        raise typer.Exit(1)


def _gate(
    inputs: list[str],
    profile: str | None,
    factor: float | None,
    phase_factor: float | None,
    floor: float | None,
    level: float,
    fail_on: list[str] | None,
    given: Any,
) -> GateReport:
    from calibration.gate.inputs import read_candidates
    from calibration.gate.judge import gate
    from calibration.gate.report import FAIL_ON, check_factor, check_floor, check_kinds
    from calibration.runs.read import ReadReport
    from startup_model.predictor import as_profile

    found = as_profile(profile)
    if found is None:
        raise ConfigError("--profile", MISSING, "a gate needs one", "give a file or the name of a reference")
    factor = check_factor("--factor", _FACTOR if factor is None else factor)
    if phase_factor is not None:
        check_factor("--phase-factor", phase_factor)
    notes = ReadReport()
    report = gate(
        read_candidates(inputs, found, given, notes),
        found,
        factor,
        phase_factor=phase_factor,
        floor_s=check_floor("--floor", _FLOOR_S if floor is None else floor),
        level=level,
        fail_on=check_kinds("--fail-on", fail_on or FAIL_ON),
    )
    for note in notes.notes:
        sys.stderr.write(f"startup-model: {note}\n")
    return report


def _compare(
    inputs: list[str], factor: float | None, floor: float | None, model: str | None, hardware: str | None
) -> CompareReport:
    from calibration.gate.compare import compare_files
    from calibration.gate.report import check_factor, check_floor

    if len(inputs) != 2:
        raise ConfigError("--compare", len(inputs), "it takes two files", "give the old one and the new one")
    old, new = inputs
    return compare_files(
        old,
        new,
        check_factor("--factor", _COMPARE_FACTOR if factor is None else factor),
        floor_s=check_floor("--floor", _COMPARE_FLOOR_S if floor is None else floor),
        model=model,
        hardware=hardware,
    )


# --- output -------------------------------------------------------------------------------------------------------------


def _check_out(name: str, place: Path | None) -> None:
    """Raise InputFileError before anything is read, where the file could not be written."""
    from startup_model.errors import InputFileError
    from startup_model.files import is_folder

    if place is None:
        return
    if is_folder(place):
        raise InputFileError(f"{name} = {place}: a folder; give the name of a file in it")
    if not is_folder(place.absolute().parent):
        raise InputFileError(f"{name} = {place}: no such folder; give the name of a file in a folder that is there")


def _check_apart(inputs: list[str], junit: Path | None, out: Path | None) -> None:
    """Raise InputFileError where one file would be written over another, or over what is read."""
    from startup_model.errors import InputFileError

    taken = {_place(Path(given)): given for given in inputs if given != "-"}
    for name, place in (("--junit", junit), ("--out", out)):
        if place is None:
            continue
        if (other := taken.setdefault(_place(place), name)) != name:
            raise InputFileError(f"{name} = {place}: {other} is the same file; give another one")


def _place(path: Path) -> Path:
    """Where a path leads, links followed; the path itself where that cannot be told."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def _show(report: GateReport | CompareReport, *, as_json: bool, junit: Path | None, out: Path | None) -> None:
    from calibration.gate import output
    from calibration.gate.report import GateReport
    from startup_model.files import canonical_json, write_atomically

    is_gate = isinstance(report, GateReport)
    if out is not None:
        write_atomically(out, canonical_json(report.to_dict()))
    if junit is not None:
        text = output.gate_junit(report) if isinstance(report, GateReport) else output.compare_junit(report)
        write_atomically(junit, text)
    if as_json:
        with contextlib.suppress(BrokenPipeError):  # nobody reads on: the status still tells
            sys.stdout.write(json.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return
    printer: Callable[[Console, Any], None] = output.print_gate if is_gate else output.print_compare
    printer(_console(), report)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False)
