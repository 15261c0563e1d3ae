"""Sweeps: lines of seconds along an axis, and a fan of how far a start may be off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from startup_model.axes import NUMBERS
from startup_model.errors import UnknownNameError, conflict, missing, too_many, wrong_type
from startup_model.formula import FloatArray
from startup_model.hardware import NODE_NUMBERS
from startup_model.phases import SKY
from startup_model.plots import canvas
from startup_model.prediction import StartupPrediction
from startup_model.sweeps import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
# Seconds of a panel, a row a line, a column a place along x; and whether the server starts.
Block = tuple[FloatArray, BoolArray]

_MAX_LINES, _MAX_PANELS, _MAX_CATEGORIES = 12, 12, 40
_MAX_ALONG = 2000  # points of one line that are drawn, evenly chosen from more
_FEW = 6  # lines or panels that are drawn, evenly chosen, of an axis of numbers that has too many
_BEST = "best"  # in the place of an axis: none; the best value of each is taken
_TIMES: Mapping[str, str] = {  # what can be drawn besides phases -> its words
    "total_s": "time to ready",
    "slowest_s": "time to ready, unknown caches cold",
    "slo_bound_s": "SLO bound",
}
_BANDS = ((0.05, 0.95), (0.1, 0.9), (0.25, 0.75))  # quantiles between which a band lies, the widest first
_BAND_ALPHA = 0.3


class Side(NamedTuple):
    """The labels of one axis as they are drawn."""

    name: str
    labels: tuple[Any, ...]
    places: np.ndarray[Any, Any]  # where they stand in the sweep
    is_number: bool
    whole: int  # how many the axis has

    @property
    def word(self) -> str:
        return self.name.rsplit(".", 1)[-1]

    @property
    def unit(self) -> str:
        if self.name in NUMBERS:
            return NODE_NUMBERS[NUMBERS[self.name]].unit.removeprefix("1")
        return "B" if self.name.endswith(("_bytes", "_memory")) else ""

    @property
    def heading(self) -> str:
        return self.word + (f", {len(self.labels)} of {self.whole}" if len(self.labels) < self.whole else "")

    def text(self, i: int) -> str:
        from matplotlib.ticker import EngFormatter

        label = self.labels[i]
        if label is None or not self.is_number:
            return "default" if label is None else str(label)
        if self.unit:
            return EngFormatter(self.unit)(float(f"{label:.3g}"))
        return f"{label:,}" if isinstance(label, int) else f"{label:.3g}" if abs(label) < 1e3 else f"{label:,.0f}"

    def named(self, i: int) -> str:
        return self.text(i) if isinstance(self.labels[i], str) else f"{self.word}={self.text(i)}"


def is_numbers(labels: Sequence[Any] | FloatArray) -> bool:
    is_array = isinstance(labels, np.ndarray)
    return is_array or all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels)


def roles_of(
    result: Sweep, x: str | None = None, lines: str | None = None, panels: str | None = None
) -> tuple[str, str | None, str | None, tuple[str, ...]]:
    """Which axis is drawn as x, lines and panels, those that were not named included, and of which the best value is taken. Raises ConfigError."""
    sizes = {name: len(labels) for name, labels in result.axes.items()}
    numbers = {name for name, labels in result.axes.items() if is_numbers(labels)}
    most = {"x": _MAX_CATEGORIES, "lines": _MAX_LINES, "panels": _MAX_PANELS}
    taken: dict[str, str] = {}
    for role, name in {"x": x, "lines": lines, "panels": panels}.items():
        if name is None or (name == _BEST and name not in sizes and role != "x"):
            continue
        none = () if role == "x" else (_BEST,)
        if not isinstance(name, str) or name not in sizes:
            raise UnknownNameError(role, str(name), [*sizes, *none])
        if name in taken:
            raise conflict(role, name, f"{taken[name]}, which is this axis already", "choose another")
        if sizes[name] > most[role] and name not in numbers:
            remedy = "take fewer values" + (f", or {role}={_BEST!r}" if none else "")
            raise too_many(f"labels of {role}", sizes[name], most[role], remedy)
        taken[name] = role
    free = [name for name, size in sizes.items() if size > 1 and name not in taken]
    if x is None:
        long = [name for name in free if name in numbers and sizes[name] > 2]
        others = [name for name in free if sizes[name] <= _MAX_CATEGORIES]
        if free and not long and not others:
            least = min(sizes[name] for name in free)
            raise too_many("labels of x", least, _MAX_CATEGORIES, "take fewer values, or one label a plot")
        x = max(long or others, key=sizes.__getitem__, default=next(iter(sizes)))
        free = [name for name in free if name != x]
    fitting = [name for name in free if sizes[name] <= _MAX_LINES or name in numbers]
    fitting.sort(key=lambda name: (sizes[name] > _MAX_LINES, -sizes[name]))
    if panels is None and "model" in fitting and len(fitting) + (lines is not None) > 1:
        panels = "model"
        fitting.remove(panels)
    if lines is None and fitting:
        lines = fitting.pop(0)
    if panels is None and fitting:
        panels = fitting.pop(0)
    best = tuple(name for name, size in sizes.items() if size > 1 and name not in (x, lines, panels))
    return x, None if lines == _BEST else lines, None if panels == _BEST else panels, best


def _side_of(result: Sweep, name: str, most: int) -> Side:
    labels = result.axes[name]
    places = np.arange(len(labels))
    if numbers := is_numbers(labels):
        places = np.argsort(np.asarray(labels, dtype=float), kind="stable")
        if len(places) > max(most, _MAX_LINES):
            places = places[_evenly(len(places), most)]
    plain = tuple(label.item() if isinstance(label, np.generic) else label for label in (labels[i] for i in places))
    return Side(name, plain, places, numbers, len(labels))


def _evenly(count: int, most: int) -> np.ndarray[Any, Any]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def _blocks_of(result: Sweep, values: FloatArray, along: Side, series: Side | None, parts: Side | None) -> list[Block]:
    """Of axes that are not drawn, the least of the starts that fit; where none fits, the least of all."""
    names = list(result.axes)
    sides = [side for side in (parts, series, along) if side is not None]
    order = [names.index(side.name) for side in sides]
    rest = [i for i in range(len(names)) if i not in order]
    shape = [1 if side is None else len(side.labels) for side in (parts, series, along)]

    def drawn(array: Any) -> Any:
        moved = np.transpose(array, (*order, *rest))  # the others last, as one
        for axis, side in enumerate(sides):
            moved = np.take(moved, side.places, axis)
        return moved.reshape(*shape, -1)

    seconds, fits = drawn(values), drawn(result.feasible)
    seconds = np.where(np.isfinite(seconds), seconds, np.inf)
    possible = np.where(fits, seconds, np.inf).min(axis=-1)
    feasible = np.isfinite(possible)
    least = np.where(feasible, possible, seconds.min(axis=-1))
    least = np.where(np.isfinite(least), least, np.nan)
    return list(zip(least, feasible, strict=True))


def _common_names(result: Sweep) -> str:
    valid = np.flatnonzero(result.status.ravel() != "invalid")
    ends = [result.point(np.unravel_index(int(i), result.shape)).start for i in valid[[0, -1]]]
    both = ({end.model.name for end in ends}, {end.hardware.name for end in ends})
    names = [names.pop() for names in both if len(names) == 1]
    return f"{' on '.join(names)}: " if names else ""


def sweep_lines(
    result: Sweep,
    x: str | None = None,
    lines: str | None = None,
    panels: str | None = None,
    ax: Axes | None = None,
    y: str = "total_s",
) -> Axes:
    """Seconds of a sweep along one axis, a line for each label of another, a panel for each of a third; of all other axes the best value is taken (the
    feasible minimum).

    x, lines, panels: names of axes, or ``"best"`` for none. Left out, x is the longest axis of numbers, else the longest; panels are the models where there
    are three axes and one of them is the model; lines are the longest that is left, then panels the next. y: total_s, slowest_s, slo_bound_s or a phase.
    Over numbers there are lines, logarithmic where they span more than a decade; over other labels points side by side. What does not start is hollow and
    dashed. Panels are drawn in the place of ``ax``, which keeps title and legend; they share their scales, and are the last of ``ax.figure.axes``.

    Raises ConfigError for axes that do not exist, that are taken twice, or have more labels than one can tell apart (12 lines, 12 panels, 40 places along
    x); of too many numbers six are drawn instead (2000 along x), and a long axis that nobody named is left to its best value. The title says so.
    """
    if not isinstance(result, Sweep):
        raise wrong_type("result", result, "a sweep", "give what sweep returns")
    if not isinstance(y, str) or y not in {*_TIMES, *result.phases}:
        raise UnknownNameError("y", str(y), [*_TIMES, *map(str, result.phases)])
    values, words = (getattr(result, y), _TIMES[y]) if y in _TIMES else (result.phases[y], str(y))
    x, lines, panels, taken_best = roles_of(result, x, lines, panels)
    along = _side_of(result, x, _MAX_ALONG)
    series, parts = (None if name is None else _side_of(result, name, _FEW) for name in (lines, panels))
    blocks = _blocks_of(result, values, along, series, parts)
    known = np.concatenate([seconds[np.isfinite(seconds)] for seconds, _ in blocks])
    if not known.size:
        reason = next(iter(result.reasons), "none is finite")
        raise missing("points", f"no point of the grid is valid ({reason})", "take other values")
    columns = len(blocks) if len(blocks) <= 3 else min(4, math.ceil(math.sqrt(len(blocks))))
    panel_size = max(6.5, 1.0 + 3.6 * columns), 1.5 + 2.5 * math.ceil(len(blocks) / columns)
    ax = canvas.axes_for(ax, *((9.0, 4.8) if parts is None else panel_size))
    width = canvas.width_beside_axis(ax)
    all_feasible = all((fits | np.isnan(seconds)).all() for seconds, fits in blocks)
    handles = _handles(ax, series, all_feasible=all_feasible)
    panel_axes = [ax] if parts is None else _place_panels(ax, len(blocks), columns, handles)
    for i, (panel, block) in enumerate(zip(panel_axes, blocks, strict=True)):
        under = _draw_block(panel, along, block, (float(known.min()), float(known.max())))
        _name_axes(panel, along, words, at_left=i % columns == 0, at_bottom=i + columns >= len(blocks))
        if parts is not None:
            small = canvas.small_size(panel)
            longest = max(12, int(canvas.size_in_points(panel)[0] / canvas.text_width(" ", small)))
            panel.set_title(canvas.short_label(parts.named(i), longest), fontsize=small, loc="left")
    if parts is None and handles:
        width = canvas.set_legend(ax, handles, width, under=under)
    names = ", ".join(side.heading for side in (along, series, parts) if side is not None)
    best = f", best of {', '.join(name.rsplit('.', 1)[-1] for name in taken_best)}" if taken_best else ""
    title = f"{words} by {names}{best}"
    width -= max(0.0, 1.3 * under - 4.0 * canvas.usual_size())
    canvas.set_title(ax, [f"{_common_names(result)}{title}", title], width)
    return ax


def _handles(ax: Axes, series: Side | None, *, all_feasible: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=canvas.line_colour(i, ax), marker=canvas.MARKERS[i], label=canvas.short_label(series.named(i), 30))
        for i in range(len(series.labels))
    ] if series is not None else []  # fmt: skip
    style: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "linestyle": "--"}
    hollow = Line2D([], [], color=canvas.text_color(ax), label="does not start", **style)
    return handles if all_feasible else [*handles, hollow]


def _place_panels(ax: Axes, count: int, columns: int, handles: Sequence[Any]) -> list[Axes]:
    """``ax`` becomes a strip above the panels, with title and legend."""
    figure, spec = ax.figure, ax.get_subplotspec()
    width, high = canvas.width_beside_axis(ax), canvas.size_in_points(ax)[1]
    size = canvas.usual_size("small") * canvas.text_scale(width)
    across = canvas.legend_columns(handles, width, size)
    strip = 1.5 * size * math.ceil(len(handles) / across) + 4.0 if handles else 1.0
    rows = math.ceil(count / columns)
    if spec is None:
        box = ax.get_position()
        spec = figure.add_gridspec(1, 1, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1)[0]
    share = min(0.4, strip / high)
    grid = spec.subgridspec(rows + 1, columns, height_ratios=[share / (1.0 - share) * rows, *([1.0] * rows)])
    ax.set_subplotspec(grid[0, :])
    ax.set_axis_off()
    if handles:
        style: dict[str, Any] = {"labelcolor": canvas.text_color(ax), "fontsize": size, "frameon": False}
        ax.legend(handles=handles, loc="upper left", ncols=across, borderaxespad=0.0, borderpad=0.0, **style)
    first = figure.add_subplot(grid[1, 0])
    others = (grid[1 + i // columns, i % columns] for i in range(1, count))
    return [first, *(figure.add_subplot(place, sharex=first, sharey=first) for place in others)]


def _name_axes(ax: Axes, along: Side, words: str, *, at_left: bool, at_bottom: bool) -> None:
    size = min(canvas.usual_size(), 1.2 * canvas.small_size(ax))
    if at_left:
        across, up = canvas.size_in_points(ax)
        room = up if across > 300.0 else 0.6 * up  # a legend or slanted labels may take the rest
        ax.set_ylabel(canvas.first_that_fits((f"{words} [seconds]", "seconds"), room, size), fontsize=size)
    if at_bottom:
        unit = f" [{along.unit}]" if along.unit and along.is_number else ""
        ax.set_xlabel(f"{along.heading}{unit}", fontsize=size)
    ax.tick_params(labelleft=at_left, labelbottom=at_bottom)


def _draw_block(ax: Axes, along: Side, block: Block, limits: tuple[float, float]) -> float:
    """The lines of one panel; the height in points of what stands under it."""
    across, up = canvas.size_in_points(ax)
    wide = canvas.set_scale(ax, "y", *limits, most=up / 22.0)
    ax.set_ylim(*((limits[0] / 1.2, limits[1] * 1.2) if wide else (0.0, 1.08 * limits[1] or 1.0)))
    canvas.set_frame(ax, "y")
    size = canvas.small_size(ax)
    ax.tick_params(labelsize=size)
    count, lines = len(along.labels), len(block[0])
    texts = [canvas.short_label(along.text(i), 24) for i in range(count)] if count <= _MAX_CATEGORIES else []
    widths = [canvas.text_width(text, size) + 6.0 for text in texts]
    if along.is_number:
        numbers = np.array(along.labels, dtype=float)
        is_log = canvas.set_scale(ax, "x", numbers[0], numbers[-1], along.unit, most=across / (7.0 * size))
        scaled = np.log(numbers) if is_log else numbers
        if texts and max(widths) * np.ptp(scaled) <= across * np.diff(scaled).min(initial=np.inf):
            ax.set_xticks(numbers, texts)
            ax.set_xticks([], minor=True)
        for i in range(lines):
            _draw_line(ax, numbers, block[0][i], block[1][i], i)
        return size
    places = np.arange(count, dtype=float)
    tilt: dict[str, Any] = {"rotation": 35, "ha": "right"} if sum(widths) > across else {"rotation": 0, "ha": "center"}
    ax.set_xticks(places, texts, rotation_mode="anchor", **tilt)
    ax.set_xlim(-0.5, count - 0.5)
    for place in places[1::2]:
        ax.axvspan(place - 0.5, place + 0.5, color=canvas.text_color(ax), alpha=0.06, linewidth=0.0)
    for i in range(lines):
        beside = places + 0.7 * ((i + 0.5) / lines - 0.5)
        _draw_markers(ax, beside, block[0][i], block[1][i], i, 6.0)
    return size + (0.57 * max(widths) if tilt["rotation"] else 0.0)


def _draw_line(ax: Axes, x: FloatArray, seconds: FloatArray, fits: BoolArray, i: int) -> None:
    colour = canvas.line_colour(i, ax)
    ax.plot(x, np.where(fits, seconds, np.nan), color=colour, linewidth=1.6)
    if (lost := ~fits & np.isfinite(seconds)).any():
        near = lost | np.roll(lost, 1) | np.roll(lost, -1)
        ax.plot(x, np.where(near, seconds, np.nan), color=colour, linewidth=1.2, linestyle="--")
    at = _evenly(len(x), 12)
    _draw_markers(ax, x[at], seconds[at], fits[at], i, 5.0)


def _draw_markers(ax: Axes, x: FloatArray, seconds: FloatArray, fits: BoolArray, i: int, size: float) -> None:
    colour, size = canvas.line_colour(i, ax), size * canvas.text_scale(2.0 * canvas.size_in_points(ax)[0])
    for part, fill in ((fits, colour), (~fits, "none")):
        style: dict[str, Any] = {"color": colour, "markerfacecolor": fill, "markersize": size}
        ax.plot(x[part], seconds[part], canvas.MARKERS[i], **style)


def interval_fan(
    x: Sequence[float] | Sweep,
    predictions: Sequence[StartupPrediction] | None = None,
    ax: Axes | None = None,
    *,
    name: str = "",
) -> Axes:
    """How far a start may be off, along a number: the median, and bands between the quantiles 0.25 and 0.75, 0.1 and 0.9, 0.05 and 0.95.

    x: numbers, with a prediction for each, and ``name``, what they are; or a sweep alone, with one axis of numbers and no other of more than one value.
    Raises ConfigError for anything else, and for fewer than two numbers.
    """
    probabilities = sorted({edge for band in _BANDS for edge in band} | {0.5})
    title = unit = ""
    if isinstance(x, Sweep):
        if predictions is not None:
            raise conflict("predictions", predictions, "x, a sweep that holds its own", "omit them")
        side = _only_numbers(x)
        numbers, unit = np.array(side.labels, dtype=float), side.unit
        name = name or side.heading + (f" [{unit}]" if unit else "")
        curves = {p: x.quantile(p).ravel()[side.places] for p in probabilities}
        title = _common_names(x)
    else:
        numbers, given = _read_fan(x, predictions)
        curves = {p: np.array([one.quantile(p) for one in given]) for p in probabilities}
        models = {canvas.title_of(one) for one in given}
        title = f"{models.pop()}: " if len(models) == 1 else ""
    finite = np.concatenate([curve[np.isfinite(curve)] for curve in curves.values()])
    if len(numbers) < 2 or not finite.size:
        raise missing("x", "at least two valid points are needed", "give more, or draw a waterfall")
    ax = canvas.axes_for(ax, 8.0, 4.8)
    across, up = canvas.size_in_points(ax)
    canvas.set_scale(ax, "x", float(numbers[0]), float(numbers[-1]), unit, most=across / 55.0)
    if not canvas.set_scale(ax, "y", float(finite.min()), float(finite.max()), most=up / 22.0):
        ax.set_ylim(0.0, 1.05 * float(finite.max()))
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for depth, (low, high) in enumerate(_BANDS, 1):
        ax.fill_between(numbers, curves[low], curves[high], color=SKY, alpha=_BAND_ALPHA, linewidth=0.0)
        alpha = 1.0 - (1.0 - _BAND_ALPHA) ** depth
        handles.append(Patch(facecolor=SKY, alpha=alpha, label=f"{100 * low:g} to {100 * high:g} %"))
    handles += ax.plot(numbers, curves[0.5], color=canvas.text_color(ax), linewidth=1.8, label="median")
    width = canvas.set_legend(ax, handles[::-1], canvas.width_beside_axis(ax))
    ax.set_xlim(numbers[0], numbers[-1])
    canvas.set_frame(ax, "y")
    ax.set_xlabel(canvas.short_label(name, 60))
    ax.set_ylabel("time to ready [seconds]")
    canvas.set_title(ax, [f"{title}quantiles of the time to ready", "quantiles of the time to ready"], width)
    return ax


def _only_numbers(result: Sweep) -> Side:
    free = [name for name, labels in result.axes.items() if len(labels) > 1]
    if len(free) != 1 or not is_numbers(result.axes[free[0]]):
        raise wrong_type("axes", free, "one axis of numbers", "sweep one number alone, or draw sweep_lines")
    return _side_of(result, free[0], _MAX_ALONG)


def _read_fan(x: object, predictions: object) -> tuple[FloatArray, list[StartupPrediction]]:
    numbers, given = canvas.list_of(x, "x"), canvas.list_of(predictions, "predictions")
    if len(numbers) != len(given):
        raise conflict("number of predictions", len(given), f"{len(numbers)} numbers", "give one for each")
    for i, (number, one) in enumerate(zip(numbers, given, strict=True)):
        canvas.number_of(f"x[{i}]", number, -1e30, 1e30, "a finite number", "give the number that varies")
        canvas.prediction_of(one, f"predictions[{i}]")
    order = np.argsort(np.array(numbers, dtype=float), kind="stable")
    return np.array(numbers, dtype=float)[order], [given[i] for i in order]
