"""How wide axes will be, their frame, and scales with plain numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from startup_model.plots.canvas import size_in_points
from startup_model.plots.texts import usual_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["is_wide", "set_frame", "set_scale", "whole_width", "width_beside_axis"]


def whole_width(ax: Axes) -> float:
    """How wide the axes are with what stands beside them, in points: a layout takes back the margins that an empty figure has."""
    width = size_in_points(ax)[0]
    return width if ax.figure.get_layout_engine() is None else width / 0.775 - 12.0


def width_beside_axis(ax: Axes) -> float:
    """How wide the axes are beside a vertical axis with numbers and a name, in points."""
    return whole_width(ax) - (0.0 if ax.figure.get_layout_engine() is None else 4.0 * usual_size())


def set_frame(ax: Axes, along: str) -> None:
    """A quiet grid across the direction in which values are read, and no lines where nothing is read off."""
    ax.set_axisbelow(True)
    (ax.xaxis if along == "x" else ax.yaxis).grid(visible=True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def is_wide(low: float, high: float) -> bool:
    """Whether values span more than a decade, and so ask for a logarithmic scale."""
    return low > 0.0 and high > 10.0 * low


def set_scale(ax: Axes, which: str, low: float, high: float, unit: str = "", most: float = 8.0) -> bool:
    """A logarithmic scale with plain numbers where the values span more than a decade, else a linear one; about ``most`` ticks. Whether it is logarithmic."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    wide = is_wide(low, high)
    getattr(ax, f"set_{which}scale")("log" if wide else "linear")
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_formatter(EngFormatter(unit) if unit else FuncFormatter(lambda value, _: f"{value:,g}"))
    if not wide:
        axis.set_major_locator(MaxNLocator(max(2, int(most)), steps=[1, 2, 2.5, 5, 10]))
        return False
    decades = math.log10(high / low)
    subs = next((s for s in ((1.0, 2.0, 5.0), (1.0, 3.0)) if len(s) * decades <= most), (1.0,))
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_formatter(NullFormatter())
    return True
