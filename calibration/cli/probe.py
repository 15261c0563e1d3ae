"""The command that measures a host: ``probe``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from calibration.probe.results import ProbeReport, Step

__all__ = ["register"]

_PAGE = 4096

FolderArgument = Annotated[
    Path | None, typer.Argument(help="Folder of the model; default: a temporary file stands for it.")
]
PythonOption = Annotated[
    str | None, typer.Option("--python", help="Python of the engine's environment; default: this one.")
]
SecondsOption = Annotated[float, typer.Option("--seconds", help="Time that the whole probe may take.")]
TierOption = Annotated[
    str | None,
    typer.Option("--tier", help="What the folder's storage is: local_nvme, network_disk or object_store; default: as its file system says."),
]  # fmt: skip
OutOption = Annotated[
    Path | None, typer.Option("--out", help="JSON file to write the node to, for --hardware of other commands.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("probe")(probe_command)


def probe_command(
    folder: FolderArgument = None,
    python: PythonOption = None,
    seconds: SecondsOption = 60.0,
    tier: TierOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure this host: storage, memory, single-thread speed, imports and the link to the GPU; a node for predictions."""
    from calibration.probe.probe import probe_host
    from startup_model.files import canonical_json, write_atomically

    if out is not None:
        _check_out(out)
    with _progress() as report:
        found = probe_host(folder, python=python, seconds=seconds, tier=tier, report=report)
    if as_json:
        sys.stdout.write(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        _print(found)
    if out is not None:  # what was measured has been shown by now, whatever comes of the file
        sys.stdout.flush()
        write_atomically(out, canonical_json(found.to_dict()["hardware"]))
        if not as_json:
            typer.echo(f"written: {out}; use it with --hardware {out}")


def _check_out(out: Path) -> None:
    """Raise InputFileError before the minute is spent, where the file could not be written."""
    from startup_model.errors import InputFileError, shown
    from startup_model.files import is_file, is_folder

    if is_folder(out):
        raise InputFileError(f"--out = {out}: a folder; give the name of a file in it")
    if not is_folder(out.absolute().parent):
        raise InputFileError(f"--out = {out}: no such folder; give the name of a file in a folder that is there")
    if not is_file(out) and _is_there(out):
        raise InputFileError(f"--out = {out}: no regular file; give another name")
    try:
        with tempfile.NamedTemporaryFile(dir=out.absolute().parent, prefix=f".{out.name}.") as file:
            file.write(b" " * _PAGE)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(
            f"--out = {shown(str(out))}: it cannot be written ({reason}); give another name or folder"
        ) from None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


@contextmanager
def _progress() -> Iterator[Callable[[Step], None] | None]:
    """A bar over the parts of the probe, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda step: bar.update(task, completed=step.done, total=step.of, description=step.doing)


def _print(found: ProbeReport) -> None:
    from rich.console import Console

    from startup_model.units import format_seconds

    console = Console(highlight=False, markup=False)
    console.print(_table(found))
    console.print(f"relative to the host of profile {found.reference}, which predictions start from:", soft_wrap=True)
    for name, factor in found.scale_factors.items():
        console.print(f"  {name:26s} {factor:.3g}")
    for warning in found.warnings:
        console.print(f"note: {warning}", soft_wrap=True)
    console.print(f"measured in {format_seconds(found.seconds)}")


def _table(found: ProbeReport) -> Table:
    from rich.table import Table

    table = Table(title=found.hardware.cpu.model, title_justify="left")
    table.add_column("measurement", no_wrap=True)
    for heading in ("value", "spread"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what was run", overflow="fold")
    table.add_column("seconds", justify="right", no_wrap=True)
    for entry in found.measurements:
        table.add_row(entry.name, entry.shown_value, entry.shown_spread, entry.shown_run, f"{entry.seconds:.1f}")
    return table
