"""Predictions against what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from startup_model.errors import MISSING, ConfigError, shown
from startup_model.plots.canvas import axes_for, ink_of, size_in_points
from startup_model.plots.legends import set_legend
from startup_model.plots.looks import BLUE, SKY, VERMILLION, marker_of
from startup_model.plots.scales import is_wide, set_frame, set_scale, width_beside_axis
from startup_model.plots.texts import set_title, short_label, shortened, usual_size
from startup_model.plots.values import as_list, seconds_of
from startup_model.prediction import StartupPrediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["predicted_against_measured"]


class _Pair(NamedTuple):
    name: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1.0


def predicted_against_measured(
    predictions: Sequence[Any],
    measured: Sequence[float] | None = None,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    worst: int = 3,
    band: float = 0.1,
) -> Axes:
    """Points with interval bars about the diagonal, and a band of ± ``band``; the ``worst`` few, by |predicted / measured - 1|, are named.

    predictions: predictions, ``(predicted, low, high)`` in seconds, or rows that hold what was measured too, such as those of ``cross_validate(runs)``.
    measured: seconds, one for each. names: in the place of the models' names. The axes are logarithmic where the times span more than a decade.
    Raises ConfigError for lists of different lengths, none or more than 10 000 points, and times that are none.
    """
    pairs = _read_pairs(predictions, measured, names)
    if isinstance(worst, bool) or not isinstance(worst, int) or not 0 <= worst <= 11:
        raise ConfigError("worst", shown(worst), "it should be a number of names from 0 to 11", "3 is usual")
    if isinstance(band, bool) or not isinstance(band, int | float) or not 0.0 < band < 1.0:
        raise ConfigError("band", shown(band), "it should lie between 0 and 1", "0.1 is 10 %")
    ax = axes_for(ax, 8.0, 5.0)
    width, ink = width_beside_axis(ax), ink_of(ax)
    x, y, low, high = (np.array([pair[i] for pair in pairs]) for i in (1, 2, 3, 4))
    bottom, top = float(min(x.min(), y.min(), low.min())), float(max(x.max(), y.max(), high.max()))
    if wide := is_wide(bottom, top):
        edges = np.array([bottom / 1.15, top * 1.15])
    else:
        edges = np.array([max(0.0, bottom - 0.1 * (top - bottom)), top + 0.1 * (top - bottom or top)])
    least, most = (bottom, top) if wide else edges
    for which, room in zip("xy", size_in_points(ax), strict=True):
        set_scale(ax, which, least, most, most=room / 45.0)
    parts = 1.0 - band, 1.0 + band
    inside = ax.fill_between(edges, edges * parts[0], edges * parts[1], color=SKY, alpha=0.3, linewidth=0.0)
    inside.set_label(f"within ±{100 * band:g} %")
    handles: list[Any] = [*ax.plot(edges, edges, color=ink, linewidth=1.0, label="predicted = measured"), inside]
    if (high > low).any():
        bars = np.vstack([np.maximum(y - low, 0.0), np.maximum(high - y, 0.0)])
        word = _interval_word(predictions)
        handles.append(ax.errorbar(x, y, bars, fmt="none", ecolor=BLUE, elinewidth=1.2, capsize=2.0, label=word))
    style: dict[str, Any] = {"markeredgecolor": ax.get_facecolor(), "markeredgewidth": 0.6, "linestyle": "none"}
    ax.plot(x, y, "o", color=BLUE, markersize=5.0, **style)
    for i, pair in enumerate(sorted(pairs, key=lambda pair: -abs(pair.error))[:worst], 1):
        label = short_label(f"{shortened(pair.name, 24)} {_percent(pair.error)}", 40)
        at = [pair.measured_s], [pair.predicted_s]
        handles += ax.plot(*at, marker_of(i), color=VERMILLION, markersize=8.0, label=label, **style)
    ax.set_xlim(*edges)
    ax.set_ylim(*edges)
    set_frame(ax, "y")
    ax.xaxis.grid(visible=True, alpha=0.3)
    ax.set_xlabel("measured [seconds]")
    ax.set_ylabel("predicted [seconds]")
    width = set_legend(ax, handles, width, under=usual_size())
    errors = [pair.error for pair in pairs]
    title = f"mean error {100.0 * float(np.mean(np.abs(errors))):.1f} %, worst {_percent(max(errors, key=abs))}"
    set_title(ax, [f"{title}, {len(pairs)} start{'s' if len(pairs) > 1 else ''}", title], width)
    return ax


def _percent(part: float) -> str:
    return f"{100.0 * part:+.1f} %".replace("-", "−")


def _interval_word(predictions: Sequence[Any]) -> str:
    levels = {one.level if isinstance(one, StartupPrediction) else None for one in predictions}
    level = levels.pop() if len(levels) == 1 else None
    return "interval" if level is None else f"{100 * level:g} % interval"


def _read_pairs(predictions: object, measured: object, names: object) -> list[_Pair]:
    """What is to be drawn, point by point. Raises ConfigError."""
    given = as_list(predictions, "predictions")
    rows = [hasattr(one, "measured_s") and hasattr(one, "predicted_s") for one in given]
    if measured is None and not all(rows):
        raise ConfigError("measured", MISSING, "the predictions do not hold what was measured", "give the seconds")
    times = [one.measured_s for one in given] if measured is None else as_list(measured, "measured")
    texts = [_name_of(one) for one in given] if names is None else as_list(names, "names")
    for field, values in (("measured", times), ("names", texts)):
        if len(values) != len(given):
            problem = f"there are {len(values)} for {len(given)} predictions"
            raise ConfigError(field, MISSING, problem, "give one for each")
    pairs = []
    for i, (one, time, text) in enumerate(zip(given, times, texts, strict=True)):
        seconds = seconds_of(time, f"measured[{i}]")
        if not seconds > 0.0:
            raise ConfigError(f"measured[{i}]", seconds, "no start takes no time", "leave it out")
        pairs.append(_Pair(str(text), seconds, *_read_interval(one, f"predictions[{i}]")))
    return pairs


def _name_of(one: object) -> str:
    return one.context.model_name if isinstance(one, StartupPrediction) else str(getattr(one, "group", ""))


def _read_interval(one: Any, field: str) -> tuple[float, float, float]:
    """Predicted, low and high seconds. Raises ConfigError."""
    if isinstance(one, StartupPrediction):
        return one.total_s, *one.interval
    try:
        predicted, low, high = (one.predicted_s, *one.interval) if hasattr(one, "predicted_s") else one
    except (TypeError, ValueError):
        problem = "it is neither a prediction nor (predicted, low, high)"
        raise ConfigError(field, shown(one), problem, "give one of them") from None
    found = seconds_of(predicted, field), seconds_of(low, field), seconds_of(high, field)
    if not found[1] <= found[0] <= found[2]:
        raise ConfigError(field, found, "the prediction does not lie in its interval", "give (predicted, low, high)")
    return found
