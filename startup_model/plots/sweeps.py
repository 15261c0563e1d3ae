"""Lines of a sweep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from startup_model.errors import MISSING, ConfigError, shown
from startup_model.grid.result import Sweep
from startup_model.plots.canvas import axes_for, size_in_points
from startup_model.plots.legends import set_legend
from startup_model.plots.panels import draw_block, name_axes, place_panels, sweep_handles
from startup_model.plots.roles import roles_of
from startup_model.plots.scales import width_beside_axis
from startup_model.plots.sides import MOST_ALONG, blocks_of, common_names, side_of, sweep_values
from startup_model.plots.texts import set_title, short_label, small_size, text_width, usual_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["sweep_lines"]

_FEW = 6
"""Lines or panels that are drawn, evenly chosen, of an axis of numbers that has too many."""


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
        raise ConfigError("result", shown(result), "it is no sweep", "give what sweep returns")
    values, words = sweep_values(result, y)
    roles = roles_of(result, x, lines, panels)
    along = side_of(result, roles.x, MOST_ALONG)
    series, parts = (None if name is None else side_of(result, name, _FEW) for name in (roles.lines, roles.panels))
    blocks = blocks_of(result, values, along, series, parts)
    known = np.concatenate([block.seconds[np.isfinite(block.seconds)] for block in blocks])
    if not known.size:
        reason = next(iter(result.reasons), "no point is finite")
        raise ConfigError("result", MISSING, f"no point of the {result.size} can be ({reason})", "take other values")
    limits = float(known.min()), float(known.max())
    columns = len(blocks) if len(blocks) <= 3 else min(4, math.ceil(math.sqrt(len(blocks))))
    size = (
        (9.0, 4.8) if parts is None else (max(6.5, 1.0 + 3.6 * columns), 1.5 + 2.5 * math.ceil(len(blocks) / columns))
    )
    ax = axes_for(ax, *size)
    width = width_beside_axis(ax)
    handles = sweep_handles(ax, series, all_feasible=all(block.is_feasible for block in blocks))
    panel_axes = [ax] if parts is None else place_panels(ax, len(blocks), columns, handles)
    for i, (panel, block) in enumerate(zip(panel_axes, blocks, strict=True)):
        under = draw_block(panel, along, block, limits)
        name_axes(panel, along, words, at_left=i % columns == 0, at_bottom=i + columns >= len(blocks))
        if parts is not None:
            small = small_size(panel)
            longest = max(12, int(size_in_points(panel)[0] / text_width(" ", small)))
            panel.set_title(short_label(parts.named(i), longest), fontsize=small, loc="left")
    if parts is None and handles:
        width = set_legend(ax, handles, width, under=under)
    names = ", ".join(side.heading for side in (along, series, parts) if side is not None)
    best = f", best of {', '.join(name.rsplit('.', 1)[-1] for name in roles.best)}" if roles.best else ""
    title = f"{words} by {names}{best}"
    set_title(ax, [f"{common_names(result)}{title}", title], width - max(0.0, 1.3 * under - 4.0 * usual_size()))
    return ax
