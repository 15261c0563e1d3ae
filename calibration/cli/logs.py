"""``startup-model parse``: what start-up logs say, for people, spreadsheets, programs and calibration."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from startup_model.cli.options import JsonOption, PlotOption
from startup_model.cli.terminal import block_of, console_of, echo, print_json, table_of
from startup_model.errors import ConfigError, StartupModelError, conflict, missing, one_line
from startup_model.files import is_file

if TYPE_CHECKING:
    from rich.table import Table

    from calibration.logs.diagnosis import Comparison, Diagnosis
    from calibration.logs.parsed import LoggedStart

_BAR_WIDTH = 20
_MIN_BAR_LOGS, _MIN_BAR_BYTES = 20, 20 * 10**6  # from which reading takes a while


def parse_command(
    logs: Annotated[list[Path], typer.Argument(help="Start-up logs, plain or gzip; - for standard input.")],
    against: Annotated[list[Path] | None, typer.Option(help="Log of another start of the same model (eager, dummy weights): what the difference isolates.")] = None,
    runs: Annotated[Path | None, typer.Option(help="JSONL file to append a run record of each start to; needs --hardware.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Node of the starts (preset or JSON file), for --runs.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of the starts, where the log does not name one that is known here.")] = None,
    page_cache: Annotated[str, typer.Option(help="State at the start, for --runs: hot, cold or unknown.")] = "unknown",
    process_start: Annotated[float | None, typer.Option(help="Seconds from the start of the process to the first line, for --runs, where measured.")] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table for programs, one row a start.")] = False,
) -> None:  # fmt: skip
    """Phases, figures and diagnosis from start-up logs of inference servers."""
    for_records = {"hardware": hardware, "model": model, "page_cache": page_cache, "process_start_s": process_start}
    options = {"--json": as_json, "--csv": as_csv, "--runs": runs, "--plot": plot, "--against": against}
    _check(len(logs), {name for name, value in options.items() if value}, for_records)
    if against:
        _compare(logs[0], against, as_json=as_json)
        return
    found, failed = _read(logs)
    if runs is not None and found:
        _append(found, runs, for_records)
    if plot is not None:
        from startup_model import plots

        plots.save(plots.timeline(found[-1]), plot)
    if as_json:
        print_json([_as_data(start) for start in found])
    elif as_csv:
        sys.stdout.write(to_csv(found))
    elif runs is None and len(found) == 1:
        _print_start(found[0])
    elif runs is None and found:
        console_of().print(_overview(found))
    if failed:
        raise typer.Exit(2)


def _check(logs: int, given: set[str], for_records: dict[str, Any]) -> None:
    """Raise ConfigError for options that do not go together."""
    for name, excluded in (("--against", {"--csv", "--runs", "--plot"}), ("--csv", {"--json"})):
        if name in given and (other := min(excluded & given, default=None)):
            raise ConfigError(name, True, f"does not go with {other}", "omit one")
    if "--runs" in given and for_records["hardware"] is None:
        raise missing("--hardware", "no log names the node well enough", "give it with --runs")
    unused = next((name for name, value in for_records.items() if value not in (None, "unknown")), None)
    if "--runs" not in given and unused is not None:
        option = f"--{unused.removesuffix('_s').replace('_', '-')}"
        raise ConfigError(option, for_records[unused], "is for records only", "give --runs FILE with it")
    if logs != 1 and "--against" in given:
        raise conflict("logs", logs, "a comparison, which has one base", "give one log and the others with --against")
    if logs != 1 and "--plot" in given:
        raise conflict("logs", logs, "--plot, which draws one log", "give one log")


# --- reading ------------------------------------------------------------------------------------------------------------


def _read(paths: Sequence[Path]) -> tuple[list[LoggedStart], int]:
    """All starts of all logs; a log that cannot be read costs one line on standard error, and is an error when it is the only one."""
    from rich.progress import track

    starts: list[LoggedStart] = []
    failed = 0
    takes_long = len(paths) >= _MIN_BAR_LOGS or sum(p.stat().st_size for p in paths if is_file(p)) >= _MIN_BAR_BYTES
    bar = {"console": console_of(err=True), "transient": True, "disable": not (takes_long and sys.stderr.isatty())}
    for path in track(paths, "reading logs", **bar):  # type: ignore[arg-type]
        try:
            starts += _read_one(path)
        except StartupModelError as error:
            if len(paths) == 1:
                raise
            failed += 1
            echo(f"startup-model: {error}", err=True)
    return starts, failed


def _read_one(path: Path) -> list[LoggedStart]:
    from calibration.logs.parser import parse_starts, read_chunks

    if str(path) != "-":
        return parse_starts(path)
    return parse_starts(read_chunks("standard input", sys.stdin.buffer), chunks=True, name="standard input")


def _append(starts: Sequence[LoggedStart], path: Path, options: dict[str, Any]) -> None:
    """Append records; what cannot become one is named and left out."""
    from calibration.runs.read import read_runs
    from calibration.runs.write import append_run

    is_there = is_file(path) and path.stat().st_size > 0
    known = {run.source_digest for run in read_runs(path, strict=False)} if is_there else set()
    written = 0
    for start in starts:
        try:
            run = start.to_run(**options)
        except StartupModelError as error:
            if len(starts) == 1:
                raise
            echo(f"startup-model: {_label(start)}: {error}", err=True)
            continue
        if run.source_digest in known:
            echo(f"startup-model: {_label(start)}: its record is in {path} already", err=True)
            continue
        append_run(run, path)
        known.add(run.source_digest)
        written += 1
    echo(f"{written} of {len(starts)} start(s) appended to {path}", err=True)


# --- output -------------------------------------------------------------------------------------------------------------


def _as_data(start: LoggedStart) -> dict[str, Any]:
    from calibration.logs.diagnosis import diagnose

    findings = [finding._asdict() for finding in diagnose(start)]
    for finding in findings:
        finding["evidence"] = finding["evidence"] and finding["evidence"]._asdict()
        finding["remedies"] = [remedy._asdict() for remedy in finding["remedies"]]
    return start.to_dict() | {"diagnosis": findings}


def _name(start: LoggedStart) -> str:
    """Name of the log, printable whatever it is."""
    return one_line(start.source.replace("\\", "/").rsplit("/", 1)[-1], 100) or "log"


def _label(start: LoggedStart) -> str:
    channel, place = f" [{start.channel}]" if start.channel else "", f" #{start.earlier + 1}" if start.earlier else ""
    return f"{_name(start)}{channel}{place}"


def to_csv(starts: Sequence[LoggedStart]) -> str:
    """One row a start: what was started, how it ended, seconds by phase (``phase.``) and figures (``fact.``)."""
    columns = [
        *("log", "channel", "start", "engine", "engine_version", "engine_generation", "model", "tp", "pp", "dp", "dtype", "quantization"),
        *("load_format", "status", "compile_cache", "wall_s", "from_process_start", "stamp_resolution_s"),
        *(f"phase.{name}" for name in _phases_of(starts)),
        *(f"fact.{name}" for name in sorted({name for start in starts for name in start.facts})),
    ]  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for start in starts:
        row: dict[str, object] = {name: getattr(start, name) for name in columns if hasattr(start, name)}
        row |= {"log": _name(start), "start": start.earlier + 1}
        row |= {f"phase.{name}": seconds for name, seconds in start.phases.items()}
        row |= {f"fact.{name}": " + ".join(map(str, value)) if isinstance(value, list) else value for name, value in start.facts.items()}  # fmt: skip
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _phases_of(starts: Collection[LoggedStart]) -> list[str]:
    """The phases that any of the starts has, in order."""
    from startup_model.phases import PHASES

    return [name for name in PHASES if any(name in start.phases for start in starts)]


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = one_line(value, 300)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠")) else text


def _heading(start: LoggedStart) -> str:
    version = f" {start.engine_version}" if start.engine_version else ""
    core = f" ({start.engine_generation.upper()})" if start.engine_generation else ""
    degrees = [f"{name} {count}" for name in ("tp", "pp", "dp") if (count := getattr(start, name)) not in (None, 1)]
    details = [start.model or "unknown model", *degrees, start.dtype or "", start.quantization or ""]
    return f"{_label(start)}: {start.engine}{version}{core}, {', '.join(filter(None, details))}"


def words_of(finding: Diagnosis, longest: int) -> Iterator[str]:
    """A finding in lines; of the line of the log that shows it ``longest`` characters."""
    yield f"{finding.kind}: {finding.summary}"
    if finding.evidence is not None:
        yield f"  line {finding.evidence.line_number}: {finding.evidence.text[:longest]}"
    for remedy in finding.remedies:
        yield f"  - {remedy.action} (price: {remedy.price})"


def _print_start(start: LoggedStart) -> None:
    from calibration.logs.diagnosis import diagnose

    console = console_of()
    echo(_heading(start))
    if start.phases:
        console.print(_phase_table(start, block_of(console)))
    echo(_ending(start))
    if start.evidence is not None:
        echo(f"  line {start.evidence.line_number}: {start.evidence.text}")
    for finding in diagnose(start):
        echo("\n".join(words_of(finding, 160)))
    for warning in start.warnings:
        echo(f"note: {warning}")
    if start.facts:
        facts = [f"{name} {value:g}" for name, value in start.facts.items() if isinstance(value, float)]
        console.print(f"facts: {', '.join(facts)}")
    if start.moments:
        table = table_of("timeline (seconds)", ">at", "|event", ">line")
        digits = 3 if (start.stamp_resolution_s or 1.0) < 1.0 else 0
        for moment in start.moments:
            table.add_row(f"{moment.elapsed_s:.{digits}f}", moment.event, str(moment.line_number))
        console.print(table)
    echo(f"{start.recognised} of {start.lines} lines say something about the start")


def _ending(start: LoggedStart) -> str:
    from startup_model.units import format_seconds

    if start.wall_s is not None:
        since = "process start" if start.from_process_start else "the first line of the log"
        return f"status {start.status}; ready after {format_seconds(start.wall_s)} from {since}"
    if start.is_ok and "ready_line" in start.facts:
        return "status ok; the engine is up, the log ends before the server says ready"
    return f"status {start.status}" + ("; the log ends before it is ready" if start.status == "incomplete" else "")


def _phase_table(start: LoggedStart, block: str) -> Table:
    table = table_of("phases", "phase", ">seconds", ">share", "|relative", "|from")
    table.columns[3].width = _BAR_WIDTH
    rows = [
        (" + ".join(start.joint.get(name, (name,))), seconds, "derived" if name in start.derived else "printed")
        for name, seconds in start.phases.items()
    ]
    if download := start.facts.get("download_s", 0.0):
        rows.append(("download (no phase)", download, "printed"))
    total, longest = sum(row[1] for row in rows) or 1.0, max(row[1] for row in rows) or 1.0
    digits = 3 if (start.stamp_resolution_s or 1.0) < 1.0 else 2
    for label, seconds, source in rows:
        bar = block * round(_BAR_WIDTH * seconds / longest)
        table.add_row(label, f"{seconds:.{digits}f}", f"{seconds / total:.1%}", bar, source)
    table.add_section()
    table.add_row("total", f"{total:.{digits}f}", "100.0%", "", "")
    return table


def _overview(starts: Sequence[LoggedStart]) -> Table:
    from calibration.logs.diagnosis import diagnose

    table = table_of(f"{len(starts)} starts", "log", "engine", "model", "status", ">ready s", "mostly")
    for start in starts:
        parts = [f"{it.kind.replace('_bound', '')} {it.share:.0%}" for it in diagnose(start) if it.share is not None]
        wall = "" if start.wall_s is None else f"{start.wall_s:.1f}"
        engine = f"{start.engine} {start.engine_version or ''}".strip()
        table.add_row(_label(start), engine, start.model or "", start.status, wall, ", ".join(parts[:2]))
    return table


# --- comparison ---------------------------------------------------------------------------------------------------------


def _compare(base: Path, against: Sequence[Path], *, as_json: bool) -> None:
    from calibration.logs.diagnosis import compare

    comparison = compare(_last(base), [_last(path) for path in against])
    if as_json:
        others = [other.to_dict() for other in comparison.others]
        differences = [difference._asdict() for difference in comparison.differences]
        print_json({"base": comparison.base.to_dict(), "others": others, "differences": differences})
    else:
        _print_comparison(comparison)


def _last(path: Path) -> LoggedStart:
    """The last start of a log; how many came before is said."""
    starts = _read_one(path)
    if len(starts) > 1:
        echo(f"startup-model: {_label(starts[-1])}: the last of {len(starts)} starts is compared", err=True)
    return starts[-1]


def _print_comparison(comparison: Comparison) -> None:
    starts = (comparison.base, *comparison.others)
    echo(_heading(comparison.base))
    labels = [f"~{difference.label}" for difference in comparison.differences]
    table = table_of("seconds by phase", "phase", "~base", *labels)
    for phase in _phases_of(starts):
        names = dict.fromkeys(name for start in starts for name in start.joint.get(phase, (phase,)))
        table.add_row(" + ".join(names), *(_seconds(start.phases.get(phase)) for start in starts))
    table.add_section()
    table.add_row("ready", *(_seconds(start.wall_s) for start in starts))
    console_of().print(table)
    for difference in comparison.differences:
        if difference.wall_s is None:
            text = "a log does not get to ready"
        elif difference.isolated_by_wall_s is None:
            text = f"isolates no phase; ready {-difference.wall_s + 0.0:+.2f} s against the base"
        else:
            logged = "" if difference.isolated_s is None else f"; the log gives {difference.isolated_s:.2f} s for it"
            by_wall = f"{difference.isolated_by_wall_s + 0.0:.2f} s by wall time (± {difference.resolution_s:g} s)"
            text = f"{' + '.join(difference.isolates)} = {by_wall}{logged}"
        echo(f"{difference.label}: {text}")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
