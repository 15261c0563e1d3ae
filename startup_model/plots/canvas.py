"""Axes to draw into: those that were given or those of a new figure, their size and the colour of their text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from startup_model.errors import MISSING, ConfigError, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["axes_for", "check_matplotlib", "checked_axes", "ink_of", "size_in_points"]


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or those of a new figure of this size in inches. Raises ConfigError.

    A notebook shows what pyplot knows and closes it, so there the figure is one of pyplot's. Elsewhere it is not: it goes away with its axes.
    """
    check_matplotlib()
    if ax is not None:
        return checked_axes(ax)
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    if not _in_notebook():
        return Figure(figsize=(width, height), layout=layout).add_subplot()
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout=layout).add_subplot()


def check_matplotlib() -> None:
    """Raises ConfigError when matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        remedy = "pip install 'startup-model[notebook]'"
        raise ConfigError("matplotlib", MISSING, "it is not installed", remedy) from None


def checked_axes(ax: object) -> Axes:
    """``ax`` when it is an Axes of a figure. Raises ConfigError."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes) or ax.figure is None:
        problem = "it is no Axes of a figure of matplotlib"
        raise ConfigError("ax", shown(ax), problem, "take one of plt.subplots(), or leave it out")
    return ax


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def ink_of(ax: Axes) -> Any:
    """The colour of the text of these axes, whatever style they were made in."""
    return ax.xaxis.label.get_color()


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes."""
    dpi = ax.figure.dpi
    return ax.bbox.width * 72.0 / dpi, ax.bbox.height * 72.0 / dpi
