"""The panels of a sweep: their places, names and lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from startup_model.formula import FloatArray
from startup_model.plots.canvas import ink_of, size_in_points
from startup_model.plots.legends import legend_columns
from startup_model.plots.looks import LINES, marker_of
from startup_model.plots.scales import set_frame, set_scale, width_beside_axis
from startup_model.plots.sides import MOST_CATEGORIES, Block, Side
from startup_model.plots.texts import longest_that_fits, short_label, small_size, text_scale, text_width, usual_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_block", "name_axes", "place_panels", "sweep_handles"]


def sweep_handles(ax: Axes, series: Side | None, *, all_feasible: bool) -> list[Any]:
    """What a legend says of the lines."""
    from matplotlib.lines import Line2D

    texts = [] if series is None else [short_label(series.named(i), 30) for i in range(len(series.labels))]
    handles = [
        Line2D([], [], color=_line_colour(i, ax), marker=marker_of(i), label=text) for i, text in enumerate(texts)
    ]
    if not all_feasible:
        style: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "linestyle": "--"}
        handles.append(Line2D([], [], color=ink_of(ax), label="does not start", **style))
    return handles


def place_panels(ax: Axes, count: int, columns: int, handles: Sequence[Any]) -> list[Axes]:
    """Axes for panels in the place of ``ax``, which becomes a strip above them with title and legend."""
    figure, spec = ax.figure, ax.get_subplotspec()
    width, high = width_beside_axis(ax), size_in_points(ax)[1]
    size = usual_size("small") * text_scale(width)
    across = legend_columns(handles, width, size)
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
        style: dict[str, Any] = {"frameon": False, "labelcolor": ink_of(ax), "borderaxespad": 0.0, "borderpad": 0.0}
        ax.legend(handles=handles, loc="upper left", ncols=across, fontsize=size, **style)
    first = figure.add_subplot(grid[1, 0])
    others = [(1 + i // columns, i % columns) for i in range(1, count)]
    return [first, *(figure.add_subplot(grid[row, column], sharex=first, sharey=first) for row, column in others)]


def name_axes(ax: Axes, along: Side, words: str, *, at_left: bool, at_bottom: bool) -> None:
    """What the axes of a panel are, where no other panel lies between them and the edge."""
    size = min(usual_size(), 1.2 * small_size(ax))
    if at_left:
        across, up = size_in_points(ax)
        room = up if across > 300.0 else 0.6 * up  # a legend or slanted labels may take the rest
        ax.set_ylabel(longest_that_fits((f"{words} [seconds]", "seconds"), room, size), fontsize=size)
    if at_bottom:
        unit = f" [{along.unit}]" if along.unit and along.is_number else ""
        ax.set_xlabel(f"{along.heading}{unit}", fontsize=size)
    ax.tick_params(labelleft=at_left, labelbottom=at_bottom)


def draw_block(ax: Axes, along: Side, block: Block, limits: tuple[float, float]) -> float:
    """The lines of one panel: over numbers joined, over other labels side by side; the height in points of what stands under it."""
    across, up = size_in_points(ax)
    if set_scale(ax, "y", *limits, most=up / 22.0):
        ax.set_ylim(limits[0] / 1.2, limits[1] * 1.2)
    else:
        ax.set_ylim(0.0, 1.08 * limits[1] or 1.0)
    set_frame(ax, "y")
    size = small_size(ax)
    ax.tick_params(labelsize=size)
    count = len(along.labels)
    texts = [short_label(along.text(i), 24) for i in range(count)] if count <= MOST_CATEGORIES else []
    widths = [text_width(text, size) + 6.0 for text in texts]
    if along.is_number:
        numbers = np.array(along.labels, dtype=float)
        is_log = set_scale(ax, "x", numbers[0], numbers[-1], along.unit, most=across / (7.0 * size))
        scaled = np.log(numbers) if is_log else numbers
        if texts and max(widths) * np.ptp(scaled) <= across * np.diff(scaled).min(initial=np.inf):
            ax.set_xticks(numbers, texts)
            ax.set_xticks([], minor=True)
        for i in range(len(block.seconds)):
            _draw_line(ax, numbers, block, i)
        return size
    places = np.arange(count, dtype=float)
    tilt: dict[str, Any] = {"rotation": 35, "ha": "right"} if sum(widths) > across else {"rotation": 0, "ha": "center"}
    ax.set_xticks(places, texts, rotation_mode="anchor", **tilt)
    ax.set_xlim(-0.5, count - 0.5)
    for place in places[1::2]:
        ax.axvspan(place - 0.5, place + 0.5, color=ink_of(ax), alpha=0.06, linewidth=0.0)
    lines = len(block.seconds)
    for i in range(lines):
        _draw_points(ax, places + 0.7 * ((i + 0.5) / lines - 0.5), block, i)
    return size + (0.57 * max(widths) if tilt["rotation"] else 0.0)


def _draw_line(ax: Axes, x: FloatArray, block: Block, i: int) -> None:
    """One line over numbers: dashed and hollow where nothing starts."""
    colour, marker, size = _line_colour(i, ax), marker_of(i), 5.0 * text_scale(2.0 * size_in_points(ax)[0])
    seconds, fits = block.seconds[i], block.feasible[i]
    shown_at = np.zeros(len(x), dtype=bool)
    shown_at[np.unique(np.linspace(0, len(x) - 1, min(len(x), 12)).round().astype(int))] = True
    ax.plot(x, np.where(fits, seconds, np.nan), color=colour, linewidth=1.6)
    if (missing := ~fits & np.isfinite(seconds)).any():
        near = missing | np.roll(missing, 1) | np.roll(missing, -1)
        ax.plot(x, np.where(near, seconds, np.nan), color=colour, linewidth=1.2, linestyle="--")
    for part, fill in ((fits, colour), (missing, "none")):
        at = part & shown_at
        ax.plot(x[at], seconds[at], marker, color=colour, markerfacecolor=fill, markersize=size)


def _draw_points(ax: Axes, x: FloatArray, block: Block, i: int) -> None:
    """One point for each label: hollow where nothing starts."""
    colour, marker, size = _line_colour(i, ax), marker_of(i), 6.0 * text_scale(2.0 * size_in_points(ax)[0])
    for part, fill in ((block.feasible[i], colour), (~block.feasible[i], "none")):
        ax.plot(x[part], block.seconds[i][part], marker, color=colour, markerfacecolor=fill, markersize=size)


def _line_colour(i: int, ax: Axes) -> Any:
    colours = (*LINES, ink_of(ax))
    return colours[i % len(colours)]
