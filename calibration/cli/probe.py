"""The command that measures a host: ``probe``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibration.cli.outputs import check_output
from startup_model.cli.options import JsonOption
from startup_model.cli.terminal import console_of, echo, print_json, table_of
from startup_model.files import canonical_json, write_atomically

if TYPE_CHECKING:
    from calibration.probe.results import ProbeProgress, ProbeReport

FOLDER = "Folder of the model; default: a temporary file stands for it."
PYTHON = "Python of the engine's environment; default: this one."
SECONDS = "Time that the whole probe may take."
TIER = "What the folder's storage is: local_nvme, network_disk or object_store; default: as its file system says."
OUT = "JSON file to write the node to, for --hardware of other commands."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("probe")(probe_command)


def probe_command(
    folder: Annotated[Path | None, typer.Argument(help=FOLDER)] = None,
    python: Annotated[str | None, typer.Option(help=PYTHON)] = None,
    seconds: Annotated[float, typer.Option(help=SECONDS)] = 60.0,
    tier: Annotated[str | None, typer.Option(help=TIER)] = None,
    out: Annotated[Path | None, typer.Option(help=OUT)] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure this host: storage, memory, single-thread speed, imports and the link to the GPU; a node for predictions."""
    from calibration.probe.probe import probe_host

    if out is not None:
        check_output("--out", out)
    with _progress() as report:
        found = probe_host(folder, python=python, seconds=seconds, tier=tier, report=report)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if out is not None:  # what was measured has been shown by now, whatever comes of the file
        sys.stdout.flush()
        write_atomically(out, canonical_json(found.to_dict()["hardware"]))
        if not as_json:
            echo(f"written: {out}; use it with --hardware {out}")


@contextmanager
def _progress() -> Iterator[Callable[[ProbeProgress], None] | None]:
    """A bar over the parts of the probe, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console_of(err=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda step: bar.update(task, completed=step.done, total=step.of, description=step.doing)


def _print(found: ProbeReport) -> None:
    console = console_of()
    table = table_of(found.hardware.cpu.model, "|measurement", ">value", ">spread", "what was run", ">seconds")
    for entry in found.measurements:
        table.add_row(entry.name, entry.shown_value, entry.shown_spread, entry.shown_run, f"{entry.seconds:.1f}")
    console.print(table)
    for line in found.closing_lines():
        console.print(line, soft_wrap=True)
