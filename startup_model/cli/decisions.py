"""The commands that turn predictions into decisions: ``sweep``, ``what-if``, ``sensitivity``."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from startup_model.cli.options import ONE_PREDICTION, JsonOption, PlotOption, StartOptions, with_options
from startup_model.cli.terminal import block_of, console_of, echo, print_json, table_of
from startup_model.errors import conflict, duplicate, missing, out_of_range, too_many, wrong_type

if TYPE_CHECKING:
    from startup_model.compare import Sensitivity
    from startup_model.sweeps import Sweep

_BAR_WIDTH = 12
_MAX_RANGE = 1_000_000
_MIN_BARE = 1e6  # a number of bytes, bytes per second or FLOP per second that can be meant as one
_MAX_PRINTED_POINTS = 200_000  # written out one by one, as JSON or CSV

AxisOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE,VALUE ... or NAME=LOW..HIGH:COUNT; several of one name are put together."),
]
TopOption = Annotated[int, typer.Option(min=1, help="Lines of the table, the fastest first.")]
CsvOption = Annotated[Path | None, typer.Option("--csv", help="File to write all points to.")]
FanOption = Annotated[
    bool, typer.Option("--fan", help="Draw how far a start may be off along the one axis, instead of lines.")
]
ChangeOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=VALUE of one start beside the base; several with ; between them."),
]
StepOption = Annotated[float, typer.Option(help="Relative change of each number; 0.1 is 10 %.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("sweep")(sweep_command)
    app.command("what-if")(what_if_command)
    app.command("sensitivity")(sensitivity_command)


@with_options(*ONE_PREDICTION)
def sweep_command(
    *,
    axis: AxisOption = None,
    start: StartOptions,
    top: TopOption = 20,
    csv_file: CsvOption = None,
    plot: PlotOption = None,
    fan: FanOption = False,
    as_json: JsonOption = False,
) -> None:
    """Seconds over a grid: any field of model, hardware and engine as an axis."""
    from startup_model.sweeps import sweep

    axes = _axes(axis or ())
    engine, node = start.engine_and_node(grow=False)
    served = start.model or engine.model or next(iter(axes.get("model", ())), None)
    if served is None:
        remedy = "give it, an --engine command that names one, or --axis model=..."
        raise missing("--model", "no model is named", remedy)
    if fan and plot is None:
        raise missing("--plot", "--fan is a picture", "give the file to write it to")
    found = sweep(served, node, engine, axes, profile=start.profile, include=start.include or ())
    if (csv_file is not None or as_json) and found.size > _MAX_PRINTED_POINTS:
        remedy = "take fewer values, or the Python function: points are written one by one"
        raise too_many("points of --axis", found.size, _MAX_PRINTED_POINTS, remedy)
    if csv_file is not None:
        _write_csv(csv_file, found)
    if plot is not None:
        _write_plot(plot, "interval_fan" if fan else "sweep_lines", found)
    if as_json:
        print_json({"axes": {name: list(labels) for name, labels in found.axes.items()}, "points": list(found.rows())})
        return
    console_of().print(_sweep_table(found, top))
    for word, points in {**found.reasons, **found.warnings}.items():
        echo(f"note: {points} of {found.size} points: {word}")


@with_options(*ONE_PREDICTION)
def what_if_command(*, change: ChangeOption = None, start: StartOptions, as_json: JsonOption = False) -> None:
    """The same start with something changed, side by side, phase by phase."""
    from startup_model.compare import what_if

    changes = {text.strip(): _changes(text) for text in change or ()}
    found = what_if(start.start(grow=False), changes, include=start.include or ())
    if as_json:
        print_json(found.to_dict())
        return
    table = table_of(str(found.predictions["base"]), "|phase", *(f"~{label}" for label in found.predictions))
    for phase, row in found.phases.items():
        table.add_row(phase, *(f"{row[label]:.2f}" for label in found.predictions))
    table.add_section()
    table.add_row("total", *(f"{total:.2f}" for total in found.totals.values()))
    table.add_row("saved", *("" if label == "base" else f"{saved:+.2f}" for label, saved in found.saved_s.items()))
    table.add_row("starts", *("yes" if p.memory.fits else p.memory.status for p in found.predictions.values()))
    console_of().print(table)


@with_options(*ONE_PREDICTION)
def sensitivity_command(
    start: StartOptions, step: StepOption = 0.1, plot: PlotOption = None, as_json: JsonOption = False
) -> None:
    """What each number of the node and each flag is worth: what should the money go to?"""
    from startup_model.compare import sensitivity

    found = sensitivity(start.start(grow=False), step=step, include=start.include or ())
    if plot is not None:
        _write_plot(plot, "tornado", found)
    if as_json:
        print_json(found.to_dict())
        return
    console = console_of()
    console.print(_gain_table(found, block_of(console)))


def _axes(texts: Sequence[str]) -> dict[str, Any]:
    """Axes as they are typed. Raises ConfigError."""
    axes: dict[str, Any] = {}
    for text in texts:
        name, values = _split("--axis", text, "NAME=VALUE,VALUE", "such as engine.tp=1,2,4")
        found = _range(name, values)
        read = [_value(value) for value in values.split(",") if value.strip()] if found is None else found
        _check_unit("--axis", name, read)
        before = axes.get(name)
        if before is not None and not (isinstance(before, list) and isinstance(read, list)):
            raise conflict("--axis", text, f"the other values of {name}: a range cannot be joined", "give one of them")
        axes[name] = read if before is None else before + read
    return axes


def _split(option: str, text: str, expected: str, example: str) -> tuple[str, str]:
    """What stands before and after ``=``. Raises ConfigError."""
    name, _, value = text.partition("=")
    if not value.strip():
        raise wrong_type(option, text, expected, example)
    return name.strip(), value


def _range(name: str, text: str) -> Any:
    """``LOW..HIGH:COUNT``: with a unit in equal ratios, without one in equal steps, whole numbers where the field holds such; None for another text.

    A unit on one side is that of both: ``0.1..10 GB/s:25``. Raises ConfigError.
    """
    import numpy as np

    from startup_model.axes import NUMBERS

    low, dots, rest = (part.strip() for part in text.partition(".."))
    high, colon, count = (part.strip() for part in rest.rpartition(":"))
    if not dots:
        return None
    if not colon or not count.isdecimal() or not 2 <= int(count) <= _MAX_RANGE:
        expected = f"LOW..HIGH:COUNT with a count from 2 to {_MAX_RANGE:,}"
        raise wrong_type("--axis", text, expected, f"such as {name}={low}..{rest}:20")
    units = [end.lstrip("0123456789.eE+-_") for end in (low, high)]
    unit = max(units, key=len)
    first, last = (_quantity(end if own else f"{end}{unit}") for end, own in zip((low, high), units, strict=True))
    if not first < last or (unit and first <= 0):
        bounds = "from a smaller to a larger quantity, above 0 where it has a unit"
        raise out_of_range("--axis", text, bounds, "swap them")
    values = np.geomspace(first, last, int(count)) if unit else np.linspace(first, last, int(count))
    is_real = name in NUMBERS and not name.endswith("concurrent_starts")
    if is_real or unit or not (low.isdecimal() and high.isdecimal()):
        return values
    return [int(value) for value in dict.fromkeys(values.round().tolist())]


def _quantity(text: str) -> float:
    """A number or a quantity with a unit, in base units. Raises ConfigError."""
    from startup_model.errors import StartupModelError
    from startup_model.units import parse_bandwidth, parse_bytes, parse_flops, parse_seconds

    for parse in (float, parse_bandwidth, parse_bytes, parse_flops, parse_seconds):
        try:
            value = float(parse(text.strip()))
        except (ValueError, StartupModelError):
            continue
        if math.isfinite(value):
            return value
    raise wrong_type("--axis", text, "a quantity", "such as 0.5 GB/s")


def _value(text: str) -> Any:
    """A value as it is typed: numbers, true, false and null as such, all else as text."""
    try:
        value = json.loads(text.strip())
    except (ValueError, RecursionError):
        return text.strip()
    return value if isinstance(value, int | float | bool) or value is None else text.strip()


def _changes(text: str) -> dict[str, Any]:
    """``NAME=VALUE; NAME=VALUE`` as changes. Raises ConfigError."""
    changes = {}
    for part in text.split(";"):
        name, value = _split("--change", part, "NAME=VALUE", "such as engine.enforce_eager=true")
        if name in changes:
            raise duplicate(f"--change {name}", text, "give it once")
        changes[name] = _value(value)
        _check_unit("--change", name, [changes[name]])
    return changes


def _check_unit(option: str, name: str, values: Iterable[Any]) -> None:
    """Refuse small bare numbers of a field whose unit decides: nobody means 6 bytes per second. Raises ConfigError."""
    from startup_model.hardware import NODE_NUMBERS, STORAGE_TIERS

    units = {row.field: row.unit for row in NODE_NUMBERS.values()} | {
        f"storage.{tier}": "B/s" for tier in STORAGE_TIERS
    }
    examples = {"B/s": "6 GB/s", "B": "80 GiB", "FLOP/s": "400 TFLOP/s"}
    example = examples.get((units | {"gpu_memory": "B", "host_memory": "B"}).get(name.removeprefix("hardware."), ""))
    bare = (v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v < _MIN_BARE)
    if example and (value := next(bare, None)) is not None:
        raise wrong_type(option, f"{name}={value:g}", "a quantity with a unit", f"such as {name}={example}")


def _sweep_table(found: Sweep, top: int) -> Table:
    """The fastest points that start."""
    import numpy as np

    from startup_model.changes import shown_number

    possible = int(found.feasible.sum())
    order = np.argsort(np.where(found.feasible, found.total_s, np.inf), axis=None, kind="stable")[: min(top, possible)]
    shown = [np.unravel_index(int(i), found.shape) for i in order]
    slowest = any(found.slowest_s[place] != found.total_s[place] for place in shown)
    title = f"{found.size} starts, {possible} of them possible" + (f"; the {top} fastest" if possible > top else "")
    axes = [name.rsplit(".", 1)[-1] for name in found.axes]
    table = table_of(title, *axes, ">seconds", *([">cold"] if slowest else []), "|mostly")
    for place in shown:
        labels = [labels[i] for labels, i in zip(found.axes.values(), place, strict=True)]
        texts = [shown_number(name, label) for name, label in zip(found.axes, labels, strict=True)]
        mark = "~" if found.extrapolated[place] else ""
        cold = [f"{found.slowest_s[place]:.1f}"] if slowest else []
        table.add_row(*texts, f"{mark}{found.total_s[place]:.1f}", *cold, str(found.bottleneck[place]))
    words = ["cold: with caches of unknown state taken as cold"] if slowest else []
    words += ["~ outside the profile's runs"] if any(found.extrapolated[place] for place in shown) else []
    table.caption = "; ".join(words)
    return table


def _gain_table(found: Sensitivity, block: str) -> Table:
    caption = f"numbers better by {found.step:.0%}, flags as another setting; negative: the start becomes shorter"
    table = table_of(str(found.base), "|change", "from", "to", ">seconds", "|relative", caption=caption)
    table.columns[-1].width = _BAR_WIDTH
    largest = max((abs(gain.saved_s) for gain in found.gains), default=1.0)
    for gain in found.gains:
        bar = block * max(1, round(_BAR_WIDTH * abs(gain.saved_s) / largest))
        new = gain.new if gain.fits else f"{gain.new} (does not start)"
        table.add_row(gain.name.partition(".")[2], gain.old, new, f"{-gain.saved_s:+.2f}", bar)
    return table


def _write_csv(path: Path, found: Sweep) -> None:
    from startup_model.files import write_atomically

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = found.columns()
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_atomically(path, text.getvalue())


def _write_plot(path: Path, name: str, found: Any) -> None:
    """Draw with a function of ``startup_model.plots``. Raises ConfigError when matplotlib is missing or the file cannot be written."""
    from startup_model import plots

    plots.save(getattr(plots, name)(found), path)
