"""The command that a build runs: ``gate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibration.cli.outputs import check_output
from startup_model.cli.options import JsonOption
from startup_model.cli.terminal import console_of, echo, print_json
from startup_model.errors import InputFileError, conflict, missing, wrong_type
from startup_model.files import canonical_json, write_atomically

if TYPE_CHECKING:
    from calibration.gate.compare import CompareReport
    from calibration.gate.report import GateReport

Number = float | None
Text = str | None
PROFILE = "Profile file or name of a reference."
INPUTS = "Files of runs or start-up logs; - for a log on standard input. With --compare: the old and the new file."
FACTOR = "Measured may be so many times predicted; 1.5, with --compare 1.1."
PHASE_FACTOR = "The same for single phases; default: as --factor."
FLOOR = "Seconds below which a phase does not count; 0.5, with --compare 0.1."
LEVEL = "Probability of the interval that a regression is set beside."
FAIL_ON = "Kind of finding that fails: failed_start, regression, drift, state (these by default), gain, domain; several times for several."
HARDWARE = "Node (preset or JSON file), where a file does not say it; of logs, the profile's host by default."
MODEL = "Model, where a log names none that is known here; with --compare, of the profiles."
PAGE_CACHE = "State at the start, where a run or log does not say: hot, cold or unknown."
COMPILE_CACHE = "State at the start, where a run or log does not say: warm, cold or unknown."
PROCESS_START = "Of logs: seconds from the start of the process to the first line, where measured."
COMPARE = "Compare two profiles, or two outputs of predict --json, instead."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("gate")(gate_command)


def gate_command(
    inputs: Annotated[list[str], typer.Argument(help=INPUTS)],
    profile: Annotated[Text, typer.Option(help=PROFILE)] = None,
    factor: Annotated[Number, typer.Option(help=FACTOR)] = None,
    phase_factor: Annotated[Number, typer.Option(help=PHASE_FACTOR)] = None,
    floor: Annotated[Number, typer.Option(help=FLOOR)] = None,
    level: Annotated[float, typer.Option(help=LEVEL)] = 0.9,
    fail_on: Annotated[list[str] | None, typer.Option(help=FAIL_ON)] = None,
    hardware: Annotated[Text, typer.Option(help=HARDWARE)] = None,
    model: Annotated[Text, typer.Option(help=MODEL)] = None,
    page_cache: Annotated[str, typer.Option(help=PAGE_CACHE)] = "unknown",
    compile_cache: Annotated[str, typer.Option(help=COMPILE_CACHE)] = "unknown",
    process_start: Annotated[Number, typer.Option(help=PROCESS_START)] = None,
    compare: Annotated[bool, typer.Option("--compare", help=COMPARE)] = False,
    as_json: JsonOption = False,
    junit: Annotated[Path | None, typer.Option(help="File to write JUnit XML to.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write the JSON to as well.")] = None,
) -> None:
    """Measured starts against a profile, for builds: exit status 1 when one takes longer than predicted x factor."""
    _check_outputs(inputs, {"--junit": junit, "--out": out})
    limits: dict[str, Any] = {
        name: value for name, value in (("factor", factor), ("floor_s", floor)) if value is not None
    }
    report: GateReport | CompareReport
    if compare:
        from calibration.gate.compare import compare_files

        states = {"--page-cache": page_cache, "--compile-cache": compile_cache}
        unused = {"--profile": profile, "--phase-factor": phase_factor, "--fail-on": fail_on, "--process-start": process_start}  # fmt: skip
        for option, value in (unused | {name: state for name, state in states.items() if state != "unknown"}).items():
            if value is not None:
                raise conflict(option, value, "--compare", "omit it")
        if len(inputs) != 2:
            raise wrong_type("--compare", len(inputs), "two files", "give the old one and the new one")
        old, new = inputs
        report = compare_files(old, new, **limits, model=model, hardware=hardware)
    else:
        from calibration.gate.inputs import Given, read_candidates
        from calibration.gate.judge import gate
        from calibration.gate.report import FAIL_ON as BY_DEFAULT
        from calibration.runs.build import ReadReport
        from startup_model.predictor import as_profile

        found, notes = as_profile(profile), ReadReport()
        if found is None:
            raise missing("--profile", "a gate needs one", "give a file or the name of a reference")
        given = Given(hardware, model, page_cache, compile_cache, process_start)
        candidates = read_candidates(inputs, found, given, notes)
        report = gate(
            candidates, found, **limits, phase_factor=phase_factor, level=level, fail_on=fail_on or BY_DEFAULT
        )
        for note in notes.notes:
            echo(f"startup-model: {note}", err=True)
    _show(report, as_json=as_json, junit=junit, out=out)
    if not report.passed:
        raise typer.Exit(1)


def _check_outputs(inputs: list[str], outputs: dict[str, Path | None]) -> None:
    """Raise InputFileError before anything is read: where a file could not be written, or would replace another one or what is read."""
    taken = {_place(Path(given)): given for given in inputs if given != "-"}
    for name, path in outputs.items():
        if path is None:
            continue
        check_output(name, path)
        if (other := taken.setdefault(_place(path), name)) != name:
            raise InputFileError(f"{name} = {path}: {other} is the same file; give another one")


def _place(path: Path) -> Path:
    """Where a path leads, links followed; the path itself where that cannot be told."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path.absolute()


def _show(report: GateReport | CompareReport, *, as_json: bool, junit: Path | None, out: Path | None) -> None:
    from calibration.gate.report import GateReport, compare_junit, gate_junit, print_compare, print_gate

    if out is not None:
        write_atomically(out, canonical_json(report.to_dict()))
    if junit is not None:
        write_atomically(junit, gate_junit(report) if isinstance(report, GateReport) else compare_junit(report))
    if as_json:
        print_json(report.to_dict())
    elif isinstance(report, GateReport):
        print_gate(console_of(), report)
    else:
        print_compare(console_of(), report)
