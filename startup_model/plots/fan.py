"""A fan: how far a start may be off, along a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from startup_model.errors import MISSING, ConfigError, shown
from startup_model.formula import FloatArray
from startup_model.grid.result import Sweep
from startup_model.plots.canvas import axes_for, ink_of, size_in_points
from startup_model.plots.legends import set_legend
from startup_model.plots.looks import SKY
from startup_model.plots.predicted import prediction_title
from startup_model.plots.scales import set_frame, set_scale, width_beside_axis
from startup_model.plots.sides import MOST_ALONG, Side, common_names, is_numbers, side_of
from startup_model.plots.texts import set_title, short_label
from startup_model.plots.values import as_list
from startup_model.prediction import StartupPrediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["interval_fan"]

_BANDS = ((0.05, 0.95), (0.1, 0.9), (0.25, 0.75))
"""Quantiles between which a band lies, the widest first."""
_BAND_ALPHA = 0.3


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
            raise ConfigError("predictions", MISSING, "a sweep holds its own", "leave them out")
        side = _only_numbers(x)
        numbers, unit = np.array(side.labels, dtype=float), side.unit
        name = name or side.heading + (f" [{unit}]" if unit else "")
        curves = {p: x.quantile(p).ravel()[side.places] for p in probabilities}
        title = common_names(x)
    else:
        numbers, given = _read_fan(x, predictions)
        curves = {p: np.array([one.quantile(p) for one in given]) for p in probabilities}
        models = {prediction_title(one) for one in given}
        title = f"{models.pop()}: " if len(models) == 1 else ""
    finite = np.concatenate([curve[np.isfinite(curve)] for curve in curves.values()])
    if len(numbers) < 2 or not finite.size:
        raise ConfigError("x", MISSING, "fewer than two points that can be", "give more, or draw a waterfall")
    ax = axes_for(ax, 8.0, 4.8)
    across, up = size_in_points(ax)
    set_scale(ax, "x", float(numbers[0]), float(numbers[-1]), unit, most=across / 55.0)
    if not set_scale(ax, "y", float(finite.min()), float(finite.max()), most=up / 22.0):
        ax.set_ylim(0.0, 1.05 * float(finite.max()))
    handles = []
    for depth, (low, high) in enumerate(_BANDS, 1):
        ax.fill_between(numbers, curves[low], curves[high], color=SKY, alpha=_BAND_ALPHA, linewidth=0.0)
        handles.append(_band_patch(1.0 - (1.0 - _BAND_ALPHA) ** depth, f"{100 * low:g} to {100 * high:g} %"))
    handles += ax.plot(numbers, curves[0.5], color=ink_of(ax), linewidth=1.8, label="median")
    width = set_legend(ax, handles[::-1], width_beside_axis(ax))
    ax.set_xlim(numbers[0], numbers[-1])
    set_frame(ax, "y")
    ax.set_xlabel(short_label(name, 60))
    ax.set_ylabel("time to ready [seconds]")
    set_title(ax, [f"{title}quantiles of the time to ready", "quantiles of the time to ready"], width)
    return ax


def _band_patch(alpha: float, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=SKY, alpha=alpha, label=label)


def _only_numbers(result: Sweep) -> Side:
    """The one axis of numbers of a sweep. Raises ConfigError."""
    free = [name for name, labels in result.axes.items() if len(labels) > 1]
    if len(free) != 1 or not is_numbers(result.axes[free[0]]):
        problem = f"it has {', '.join(free) or 'one point'}, not one axis of numbers"
        raise ConfigError("x", MISSING, problem, "sweep one number alone, or draw sweep_lines")
    return side_of(result, free[0], MOST_ALONG)


def _read_fan(x: object, predictions: object) -> tuple[FloatArray, list[StartupPrediction]]:
    """Numbers in ascending order and the prediction of each. Raises ConfigError."""
    numbers, given = as_list(x, "x"), as_list(predictions, "predictions")
    if len(numbers) != len(given):
        raise ConfigError(
            "predictions", MISSING, f"there are {len(given)} for {len(numbers)} numbers", "give one for each"
        )
    for i, (number, one) in enumerate(zip(numbers, given, strict=True)):
        plain = number.item() if isinstance(number, np.generic) else number
        if isinstance(plain, bool) or not isinstance(plain, int | float) or not abs(plain) <= 1e30:
            raise ConfigError(f"x[{i}]", shown(plain), "it is no finite number", "give the number that varies")
        if not isinstance(one, StartupPrediction):
            raise ConfigError(f"predictions[{i}]", shown(one), "it is no prediction", "give what predict returns")
    order = sorted(range(len(numbers)), key=lambda i: float(numbers[i]))
    return np.array([float(numbers[i]) for i in order]), [given[i] for i in order]
