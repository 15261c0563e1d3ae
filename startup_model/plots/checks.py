"""Pictures that judge: what each change does to a start (tornado), and predictions against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from startup_model.compare import Gain, Sensitivity
from startup_model.errors import conflict, missing, out_of_range, wrong_type
from startup_model.phases import BLUE, ORANGE, SKY, VERMILLION
from startup_model.plots import canvas
from startup_model.plots.starts import draw_bar, finish_rows, row_font_size, set_rows, write_beside
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS: Mapping[str, tuple[canvas.Look, str]] = {
    "number": (canvas.Look(BLUE), "number of the node, {step:g} % better"),
    "flag": (canvas.Look(ORANGE, "///"), "another setting"),
}


def tornado(sensitivity: Sensitivity, ax: Axes | None = None, most: int = 12) -> Axes:
    """What each change does to a start, the largest first: bars to the left save seconds, bars to the right add some.

    Numbers of the node and settings differ in colour and hatch; a setting with which the server does not start is pale with a dashed edge. Only the ``most``
    largest are drawn. Raises ConfigError for what is no sensitivity, and where nothing changes the start.
    """
    if not isinstance(sensitivity, Sensitivity):
        raise wrong_type("sensitivity", sensitivity, "a sensitivity", "give what sensitivity returns")
    canvas.number_of("most", most, 1, 100, "a number of bars from 1 to 100", "12 is usual")
    gains = sensitivity.gains[:most]
    if not gains:
        raise missing("gains", "no change does anything to this start", "take a larger step")
    ax = canvas.axes_for(ax, 8.5, 1.9 + 0.3 * len(gains))
    size = max(3.0, min(row_font_size(ax, len(gains)), canvas.whole_width(ax) / 45.0))
    bars = [(-g.saved_s, f"{'−' if g.saved_s > 0.0 else '+'}{format_seconds(abs(g.saved_s))}") for g in gains]
    width = set_rows(ax, [f"{gain.name.rpartition('.')[2]}: {gain.old} → {gain.new}" for gain in gains], size)
    ax.set_xlim(*_both_edges(bars, size, width))
    for row, (gain, (end, text)) in enumerate(zip(gains, bars, strict=True)):
        draw_bar(ax, row, 0.0, end, _KINDS[gain.kind][0], 0.75, hidden=not gain.fits)
        write_beside(ax, end, row, text, size, at_left=end < 0.0)
    ax.axvline(0.0, color=canvas.text_color(ax), linewidth=1.0)
    words = ("seconds saved (left) or added (right)", "seconds saved or added", "seconds")
    canvas.set_legend(ax, _kind_handles(ax, gains, sensitivity.step), width, below=True)
    context, count = sensitivity.base.context, len(sensitivity.gains)
    title = f"{context.model_name} on {context.hardware_name}: {format_seconds(sensitivity.base.total_s)}"
    more = f", the {len(gains)} largest of {count} changes" if count > len(gains) else ""
    finish_rows(ax, words, [f"{title}{more}", title], width)
    return ax


def _both_edges(bars: Sequence[tuple[float, str]], size: float, width: float) -> tuple[float, float]:
    low, high = min(0.0, *(end for end, _ in bars)), max(0.0, *(end for end, _ in bars))
    room = {end < 0.0: canvas.text_width(text, size) + 8.0 for end, text in sorted(bars, key=lambda bar: len(bar[1]))}
    left, right = (room.get(is_left, 0.0) / width for is_left in (True, False))
    span = (high - low) / max(0.2, 1.0 - left - right) or 1.0
    return low - left * span, high + right * span


def _kind_handles(ax: Axes, gains: Sequence[Gain], step: float) -> list[Any]:
    from matplotlib.patches import Patch

    ink = canvas.text_color(ax)
    handles = [
        Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=ink, label=words.format(step=100 * step))
        for kind, (look, words) in _KINDS.items()
        if any(gain.kind == kind for gain in gains)
    ]
    pale = Patch(facecolor="none", edgecolor=ink, linestyle="--", label="does not start")
    return handles if all(gain.fits for gain in gains) else [*handles, pale]


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
    canvas.number_of("worst", worst, 0, 11, "a number of names from 0 to 11", "3 is usual")
    canvas.number_of("band", band, 1e-9, 1.0 - 1e-9, "between 0 and 1", "0.1 is 10 %")
    ax = canvas.axes_for(ax, 8.0, 5.0)
    width = canvas.width_beside_axis(ax)
    texts = [name for name, *_ in pairs]
    x, y, low, high = np.array([numbers for _, *numbers in pairs]).T
    errors = y / x - 1.0
    edges = _set_square(ax, float(min(x.min(), y.min(), low.min())), float(max(x.max(), y.max(), high.max())))
    inside = ax.fill_between(edges, edges * (1.0 - band), edges * (1.0 + band), color=SKY, alpha=0.3, linewidth=0.0)
    inside.set_label(f"within ±{100 * band:g} %")
    diagonal = ax.plot(edges, edges, color=canvas.text_color(ax), linewidth=1.0, label="predicted = measured")
    handles: list[Any] = [*diagonal, inside]
    if (high > low).any():
        bars = np.vstack([np.maximum(y - low, 0.0), np.maximum(high - y, 0.0)])
        word = _interval_word(predictions)
        handles.append(ax.errorbar(x, y, bars, fmt="none", ecolor=BLUE, elinewidth=1.2, capsize=2.0, label=word))
    style: dict[str, Any] = {"markeredgecolor": ax.get_facecolor(), "markeredgewidth": 0.6, "linestyle": "none"}
    ax.plot(x, y, "o", color=BLUE, markersize=5.0, **style)
    for i, at in enumerate(np.argsort(-np.abs(errors), kind="stable")[:worst], 1):
        label = canvas.short_label(f"{canvas.shortened(texts[at], 24)} {_percent(errors[at])}", 40)
        handles += ax.plot(x[at], y[at], canvas.MARKERS[i], color=VERMILLION, markersize=8.0, label=label, **style)
    ax.set_xlim(*edges)
    ax.set_ylim(*edges)
    canvas.set_frame(ax, "y")
    ax.xaxis.grid(visible=True, alpha=0.3)
    ax.set_xlabel("measured [seconds]")
    ax.set_ylabel("predicted [seconds]")
    width = canvas.set_legend(ax, handles, width, under=canvas.usual_size())
    title = f"mean error {100.0 * np.mean(np.abs(errors)):.1f} %, worst {_percent(max(errors, key=abs))}"
    canvas.set_title(ax, [f"{title}, {len(pairs)} start{'s' if len(pairs) > 1 else ''}", title], width)
    return ax


def _set_square(ax: Axes, bottom: float, top: float) -> Any:
    wide = canvas.is_wide(bottom, top)
    room = 0.1 * (top - bottom)
    edges = np.array([bottom / 1.15, top * 1.15] if wide else [max(0.0, bottom - room), top + (room or 0.1 * top)])
    for which, points in zip("xy", canvas.size_in_points(ax), strict=True):
        canvas.set_scale(ax, which, bottom if wide else edges[0], top if wide else edges[1], most=points / 45.0)
    return edges


def _percent(part: float) -> str:
    return f"{100.0 * part:+.1f} %".replace("-", "−")


def _interval_word(predictions: Sequence[Any]) -> str:
    levels = {one.level if isinstance(one, StartupPrediction) else None for one in predictions}
    level = levels.pop() if len(levels) == 1 else None
    return "interval" if level is None else f"{100 * level:g} % interval"


def _read_pairs(predictions: object, measured: object, names: object) -> list[tuple[Any, ...]]:
    """Name, measured and predicted seconds, low and high, point by point."""
    given = canvas.list_of(predictions, "predictions")
    if measured is None and not all(hasattr(one, "measured_s") and hasattr(one, "predicted_s") for one in given):
        raise missing("measured", "the predictions do not hold what was measured", "give the seconds")
    times = [one.measured_s for one in given] if measured is None else canvas.list_of(measured, "measured")
    texts = [_name_of(one) for one in given] if names is None else canvas.list_of(names, "names")
    for field, values in (("measured", times), ("names", texts)):
        if len(values) != len(given):
            raise conflict(f"number of {field}", len(values), f"{len(given)} predictions", "give one for each")
    pairs = []
    for i, (one, time, text) in enumerate(zip(given, times, texts, strict=True)):
        if not (seconds := canvas.seconds_of(time, f"measured[{i}]")):
            raise out_of_range(f"measured[{i}]", seconds, "above 0", "omit it")
        pairs.append((str(text), seconds, *_read_interval(one, f"predictions[{i}]")))
    return pairs


def _name_of(one: object) -> str:
    return one.context.model_name if isinstance(one, StartupPrediction) else str(getattr(one, "group", ""))


def _read_interval(one: Any, field: str) -> tuple[float, float, float]:
    if isinstance(one, StartupPrediction):
        return one.total_s, *one.interval
    try:
        predicted, low, high = (one.predicted_s, *one.interval) if hasattr(one, "predicted_s") else one
    except (TypeError, ValueError):
        raise wrong_type(field, one, "a prediction or (predicted, low, high)", "give one of them") from None
    found = canvas.seconds_of(predicted, field), canvas.seconds_of(low, field), canvas.seconds_of(high, field)
    if not found[1] <= found[0] <= found[2]:
        raise out_of_range(field, found, "in its interval", "give (predicted, low, high)")
    return found
