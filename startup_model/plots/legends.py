"""Legends beside the axes or below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from startup_model.plots.canvas import ink_of
from startup_model.plots.texts import text_scale, text_width, usual_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["legend_columns", "set_legend"]


def set_legend(ax: Axes, handles: Sequence[Any], width: float, *, below: bool = False, under: float = 0.0) -> float:
    """A legend of a figure whose layout makes room for it: at the right of wide axes, else below, with ``under`` points for tick labels; in other figures
    where there is most room inside. The width that is left for the axes, in points."""
    size = usual_size("small") * text_scale(width)
    style: dict[str, Any] = {
        "handles": handles,
        "labelcolor": ink_of(ax),
        "facecolor": ax.get_facecolor(),
        "fontsize": size,
    }
    if ax.figure.get_layout_engine() is None:
        ax.legend(loc="best", framealpha=0.8, **style)
        return width
    if below or width < 360.0:
        away = (max(under, usual_size()) + 1.6 * usual_size() + 10.0) / size
        columns = legend_columns(handles, width, size)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=away, ncols=columns, frameon=False, **style
        )
        return width
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, **style)
    return width - _legend_width(handles, size) - 12.0


def _legend_width(handles: Sequence[Any], size: float) -> float:
    return max(text_width(str(handle.get_label()), size) for handle in handles) + 4.5 * size


def legend_columns(handles: Sequence[Any], width: float, size: float) -> int:
    """How many columns of a legend fit into this width."""
    return max(1, min(len(handles), int(width / _legend_width(handles, size)))) if handles else 1
