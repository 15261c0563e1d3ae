"""The commands that read logs: ``parse`` for what was, ``watch`` for what is under way."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from startup_model.errors import MISSING, ConfigError, InputFileError, StartupModelError, one_line
from startup_model.files import is_file

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from calibration.logs.diagnosis import Comparison
    from calibration.logs.parsed import ParsedStartup

__all__ = ["register"]

_BAR_WIDTH = 20
_BAR_FROM_BYTES = 20 * 10**6

LogsArgument = Annotated[list[Path], typer.Argument(help="Start-up logs, plain or gzip; - for standard input.")]
AgainstOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--against", help="Log of another start of the same model (eager, dummy weights): what the difference isolates."
    ),
]
RunsOption = Annotated[
    Path | None, typer.Option("--runs", help="JSONL file to append a run record of each start to; needs --hardware.")
]
HardwareOption = Annotated[
    str | None, typer.Option("--hardware", help="Node of the starts (preset or JSON file), for --runs.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Model of the starts, where the log does not name one that is known here.")
]
PageCacheOption = Annotated[
    str, typer.Option("--page-cache", help="State at the start, for --runs: hot, cold or unknown.")
]
ProcessStartOption = Annotated[
    float | None,
    typer.Option(
        "--process-start", help="Seconds from the start of the process to the first line, for --runs, where measured."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs: a list, one item a start.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="A table for programs, one row a start.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    from calibration.cli.watch import watch_command

    app.command("parse")(parse_command)
    app.command("watch")(watch_command)


def parse_command(
    logs: LogsArgument,
    against: AgainstOption = None,
    runs: RunsOption = None,
    hardware: HardwareOption = None,
    model: ModelOption = None,
    page_cache: PageCacheOption = "unknown",
    process_start: ProcessStartOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Phases, figures and diagnosis from start-up logs of inference servers."""
    if as_json and as_csv:
        raise ConfigError("--csv", MISSING, "it does not go with --json", "leave one out")
    if against and (as_csv or runs is not None):
        raise ConfigError("--against", MISSING, "it does not go with --csv or --runs", "leave one out")
    if runs is not None and hardware is None:
        raise ConfigError("--hardware", MISSING, "no log names the node well enough", "give it with --runs")
    for_records = {"--hardware": hardware, "--model": model, "--process-start": process_start}
    for_records["--page-cache"] = None if page_cache == "unknown" else page_cache
    if runs is None and (unused := [name for name, value in for_records.items() if value is not None]):
        raise ConfigError(unused[0], for_records[unused[0]], "it is for records", "give --runs FILE with it")
    if against:
        if len(logs) != 1:
            raise ConfigError(
                "logs", len(logs), "a comparison has one base", "give one log, and the others with --against"
            )
        _compare(logs[0], against, as_json=as_json)
        return
    found, failed = _read(logs)
    if runs is not None and found:
        _append(found, runs, hardware, model, page_cache, process_start)
    if as_json:
        _print_json([_as_data(start) for start in found])
    elif as_csv:
        sys.stdout.write(to_csv(found))
    elif runs is None and len(found) == 1:
        _print_start(_console(), found[0])
    elif runs is None and found:
        _console().print(_overview(found))
    if failed:
        raise typer.Exit(2)


# --- reading ------------------------------------------------------------------------------------------------------------


def _read(paths: Sequence[Path]) -> tuple[list[ParsedStartup], int]:
    """All starts of all logs; a log that cannot be read costs one line on standard error, and is an error when it is the only one."""
    starts: list[ParsedStartup] = []
    failed = 0
    with _progress(paths) as advance:
        for path in paths:
            try:
                starts += _read_one(path)
            except StartupModelError as error:
                if len(paths) == 1:
                    raise
                failed += 1
                sys.stderr.write(f"startup-model: {error}\n")
            advance()
    return starts, failed


def _read_one(path: Path) -> list[ParsedStartup]:
    from calibration.logs.parser import parse_starts, read_chunks

    if str(path) == "-":
        source = getattr(sys.stdin, "buffer", None)
        if source is None:
            raise InputFileError("standard input: closed; pipe a log")
        return parse_starts(read_chunks("standard input", source), chunks=True, name="standard input")
    return parse_starts(path)


@contextmanager
def _progress(paths: Sequence[Path]) -> Iterator[Any]:
    """A bar over the logs, on a terminal, where it takes a while."""
    total = sum(path.stat().st_size for path in paths if is_file(path))
    if not sys.stderr.isatty() or (len(paths) < 20 and total < _BAR_FROM_BYTES):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading logs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(paths))
        yield lambda: bar.advance(task)


def _append(
    starts: Sequence[ParsedStartup],
    path: Path,
    hardware: str | None,
    model: str | None,
    page_cache: str,
    process_start: float | None,
) -> None:
    """Append records; what cannot become one is named and left out."""
    from calibration.runs.write import append_run

    known = _digests(path)
    written = 0
    for start in starts:
        try:
            run = start.to_run(hardware or "", model=model, page_cache=page_cache, process_start_s=process_start)
        except StartupModelError as error:
            if len(starts) == 1:
                raise
            sys.stderr.write(f"startup-model: {_label(start)}: {error}\n")
            continue
        if run.source_digest in known:
            sys.stderr.write(f"startup-model: {_label(start)}: its record is in {path} already\n")
            continue
        append_run(run, path)
        known.add(run.source_digest)
        written += 1
    sys.stderr.write(f"{written} of {len(starts)} start(s) appended to {path}\n")


def _digests(path: Path) -> set[str]:
    """Digests of the logs that a file of records has already."""
    from calibration.runs.read import read_runs

    return (
        {run.source_digest for run in read_runs(path, strict=False)} if is_file(path) and path.stat().st_size else set()
    )


# --- output -------------------------------------------------------------------------------------------------------------


def _console() -> Console:
    from startup_model.cli.terminal import console_of

    return console_of()


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, default=str, allow_nan=False) + "\n")


def _as_data(start: ParsedStartup) -> dict[str, Any]:
    from calibration.logs.diagnosis import diagnose

    findings = []
    for entry in diagnose(start):
        item = entry._asdict()
        item["evidence"] = None if entry.evidence is None else entry.evidence._asdict()
        item["remedies"] = [remedy._asdict() for remedy in entry.remedies]
        findings.append(item)
    return start.to_dict() | {"diagnosis": findings}


def _name(start: ParsedStartup) -> str:
    """Name of the log, printable whatever it is."""
    return one_line(start.source.replace("\\", "/").rsplit("/", 1)[-1], 100) or "log"


def _label(start: ParsedStartup) -> str:
    name = _name(start)
    parts = [name, f"[{start.channel}]" if start.channel else "", f"#{start.earlier + 1}" if start.earlier else ""]
    return " ".join(filter(None, parts))


def to_csv(starts: Sequence[ParsedStartup]) -> str:
    """One row a start: what was started, how it ended, seconds by phase (``phase.``) and figures (``fact.``)."""
    from startup_model.phases import Phase

    phases = [phase.value for phase in Phase if any(phase.value in start.phases for start in starts)]
    facts = sorted({name for start in starts for name in start.facts})
    columns = [
        *("log", "channel", "start", "engine", "engine_version", "engine_generation", "model", "tp", "pp", "dp", "dtype", "quantization"),
        *("load_format", "status", "compile_cache", "wall_s", "from_process_start", "stamp_resolution_s"),
        *(f"phase.{name}" for name in phases),
        *(f"fact.{name}" for name in facts),
    ]  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for start in starts:
        row: dict[str, object] = {name: getattr(start, name) for name in columns if hasattr(start, name)}
        row |= {"log": _name(start), "start": start.earlier + 1}
        row |= {f"phase.{name}": seconds for name, seconds in start.phases.items()}
        row |= {f"fact.{name}": _joined(value) for name, value in start.facts.items()}
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _joined(value: object) -> object:
    return " + ".join(map(str, value)) if isinstance(value, list) else value


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = one_line(value, 300)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) else text


def _heading(start: ParsedStartup) -> str:
    version = f" {start.engine_version}" if start.engine_version else ""
    generation = f" ({start.engine_generation.upper()})" if start.engine_generation else ""
    degrees = [f"{name} {count}" for name in ("tp", "pp", "dp") if (count := getattr(start, name)) not in (None, 1)]
    details = [start.model or "unknown model", *degrees, start.dtype or "", start.quantization or ""]
    return f"{_label(start)}: {start.engine}{version}{generation}, {', '.join(filter(None, details))}"


def _print_start(console: Console, start: ParsedStartup) -> None:
    from calibration.logs.diagnosis import diagnose

    console.print(_heading(start), soft_wrap=True)
    if start.phases:
        console.print(_phase_table(console, start))
    console.print(_ending(start), soft_wrap=True)
    if start.evidence is not None:
        console.print(f"  line {start.evidence.line_number}: {start.evidence.text}", soft_wrap=True)
    for finding in diagnose(start):
        console.print(f"{finding.kind}: {finding.summary}", soft_wrap=True)
        if finding.evidence is not None:
            console.print(f"  line {finding.evidence.line_number}: {finding.evidence.text[:160]}", soft_wrap=True)
        for remedy in finding.remedies:
            console.print(f"  - {remedy.action} (price: {remedy.price})", soft_wrap=True)
    for warning in start.warnings:
        console.print(f"note: {warning}", soft_wrap=True)
    if start.facts:
        facts = [f"{name} {value:g}" for name, value in start.facts.items() if isinstance(value, float)]
        console.print(f"facts: {', '.join(facts)}")
    if start.moments:
        console.print(_timeline(start))
    console.print(f"{start.recognised} of {start.lines} lines say something about the start", soft_wrap=True)


def _ending(start: ParsedStartup) -> str:
    """How the start ended, in a sentence."""
    from startup_model.units import format_seconds

    if start.wall_s is not None:
        since = "process start" if start.from_process_start else "the first line of the log"
        return f"status {start.status}; ready after {format_seconds(start.wall_s)} from {since}"
    if start.is_ok and "ready_line" in start.facts:
        return "status ok; the engine is up, the log ends before the server says ready"
    return f"status {start.status}" + ("; the log ends before it is ready" if start.status == "incomplete" else "")


def _phase_table(console: Console, start: ParsedStartup) -> Table:
    from rich.table import Table

    block = "█" if console.encoding.lower().startswith("utf") else "#"
    table = Table(title="phases", title_justify="left")
    table.add_column("phase", overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("relative", width=_BAR_WIDTH, no_wrap=True)
    table.add_column("from", no_wrap=True)
    download = start.facts.get("download_s", 0.0)
    total = sum(start.phases.values()) + download or 1.0
    longest = max(*start.phases.values(), download) or 1.0
    digits = 3 if (start.stamp_resolution_s or 1.0) < 1.0 else 2
    for name, seconds in start.phases.items():
        label = " + ".join(start.joint.get(name, (name,)))
        bar = block * round(_BAR_WIDTH * seconds / longest)
        source = "derived" if name in start.derived else "printed"
        table.add_row(label, f"{seconds:.{digits}f}", f"{seconds / total:.1%}", bar, source)
    if download:
        bar = block * round(_BAR_WIDTH * download / longest)
        table.add_row("download (no phase)", f"{download:.{digits}f}", f"{download / total:.1%}", bar, "printed")
    table.add_section()
    table.add_row("total", f"{total:.{digits}f}", "100.0%", "", "")
    return table


def _timeline(start: ParsedStartup) -> Table:
    from rich.table import Table

    table = Table(title="timeline (seconds)", title_justify="left")
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("event", no_wrap=True)
    table.add_column("line", justify="right", no_wrap=True)
    digits = 3 if (start.stamp_resolution_s or 1.0) < 1.0 else 0
    for moment in start.moments:
        table.add_row(f"{moment.elapsed_s:.{digits}f}", moment.event, str(moment.line_number))
    return table


def _overview(starts: Sequence[ParsedStartup]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from calibration.logs.diagnosis import diagnose

    table = Table(title=f"{len(starts)} starts", title_justify="left")
    for heading in ("log", "engine", "model", "status"):
        table.add_column(heading, overflow="fold")
    table.add_column("ready s", justify="right", no_wrap=True)
    table.add_column("mostly", overflow="fold")
    for start in starts:
        parts = [
            f"{entry.kind.replace('_bound', '')} {entry.share:.0%}"
            for entry in diagnose(start)
            if entry.share is not None
        ]
        wall = "" if start.wall_s is None else f"{start.wall_s:.1f}"
        engine = f"{start.engine} {start.engine_version or ''}".strip()
        table.add_row(Text(_label(start)), engine, Text(start.model or ""), start.status, wall, ", ".join(parts[:2]))
    return table


# --- comparison ---------------------------------------------------------------------------------------------------------


def _compare(base: Path, against: Sequence[Path], *, as_json: bool) -> None:
    from calibration.logs.diagnosis import compare

    comparison = compare(_last(base), [_last(path) for path in against])
    if as_json:
        _print_json(
            {
                "base": comparison.base.to_dict(),
                "others": [other.to_dict() for other in comparison.others],
                "differences": [difference._asdict() for difference in comparison.differences],
            }
        )
        return
    _print_comparison(_console(), comparison)


def _last(path: Path) -> ParsedStartup:
    """The last start of a log; how many came before is said."""
    starts = _read_one(path)
    if len(starts) > 1:
        sys.stderr.write(f"startup-model: {_label(starts[-1])}: the last of {len(starts)} starts is compared\n")
    return starts[-1]


def _print_comparison(console: Console, comparison: Comparison) -> None:
    from rich.table import Table

    from startup_model.phases import Phase

    starts = (comparison.base, *comparison.others)
    labels = ("base", *(difference.label for difference in comparison.differences))
    console.print(_heading(comparison.base), soft_wrap=True)
    table = Table(title="seconds by phase", title_justify="left")
    table.add_column("phase", overflow="fold")
    for label in labels:
        table.add_column(label, justify="right", overflow="fold")
    for phase in Phase:
        if any(phase.value in start.phases for start in starts):
            names = dict.fromkeys(name for start in starts for name in start.joint.get(phase.value, (phase.value,)))
            cells = [f"{start.phases[phase.value]:.2f}" if phase.value in start.phases else "-" for start in starts]
            table.add_row(" + ".join(names), *cells)
    table.add_section()
    table.add_row("ready", *("-" if start.wall_s is None else f"{start.wall_s:.2f}" for start in starts))
    console.print(table)
    for difference in comparison.differences:
        if difference.wall_s is None:
            console.print(f"{difference.label}: a log does not get to ready", soft_wrap=True)
        elif difference.isolated_by_wall_s is None:
            slower = -difference.wall_s + 0.0
            console.print(
                f"{difference.label}: isolates no phase; ready {slower:+.2f} s against the base", soft_wrap=True
            )
        else:
            logged = "" if difference.isolated_s is None else f"; the log gives {difference.isolated_s:.2f} s for it"
            console.print(
                f"{difference.label}: {' + '.join(difference.isolates)} = {difference.isolated_by_wall_s + 0.0:.2f} s by wall time "
                f"(± {difference.resolution_s:g} s){logged}",
                soft_wrap=True,
            )
