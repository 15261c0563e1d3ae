"""A tornado: what each change does to a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from startup_model.comparison import Gain, Sensitivity
from startup_model.errors import MISSING, ConfigError, shown
from startup_model.plots.canvas import axes_for, ink_of
from startup_model.plots.legends import set_legend
from startup_model.plots.looks import BLUE, ORANGE, Look
from startup_model.plots.rows import draw_bar, row_font_size, set_rows, write_beside
from startup_model.plots.scales import set_frame, whole_width
from startup_model.plots.texts import longest_that_fits, set_title, text_width, usual_size
from startup_model.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["tornado"]

_KINDS: Mapping[str, tuple[Look, str]] = {
    "number": (Look(BLUE), "number of the node, {step:g} % better"),
    "flag": (Look(ORANGE, "///"), "another setting"),
}


def tornado(sensitivity: Sensitivity, ax: Axes | None = None, most: int = 12) -> Axes:
    """What each change does to a start, the largest first: bars to the left save seconds, bars to the right add some.

    Numbers of the node and settings differ in colour and hatch; a setting with which the server does not start is pale with a dashed edge. Only the ``most``
    largest are drawn. Raises ConfigError for what is no sensitivity, and where nothing changes the start.
    """
    if not isinstance(sensitivity, Sensitivity):
        raise ConfigError("sensitivity", shown(sensitivity), "it is none", "give what sensitivity returns")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 100:
        raise ConfigError("most", shown(most), "it should be a number of bars from 1 to 100", "12 is usual")
    gains = sensitivity.gains[:most]
    if not gains:
        raise ConfigError("sensitivity", MISSING, "no change does anything to this start", "take a larger step")
    ax = axes_for(ax, 8.5, 1.9 + 0.3 * len(gains))
    size = max(3.0, min(row_font_size(ax, len(gains)), whole_width(ax) / 45.0))
    bars = [
        (-gain.saved_s, f"{'−' if gain.saved_s > 0.0 else '+'}{format_seconds(abs(gain.saved_s))}") for gain in gains
    ]
    width = set_rows(ax, [_gain_label(gain) for gain in gains], size)
    ax.set_xlim(*_both_edges(bars, size, width))
    for row, (gain, (end, text)) in enumerate(zip(gains, bars, strict=True)):
        draw_bar(ax, row, 0.0, end, _KINDS[gain.kind][0], 0.75, hidden=not gain.fits)
        write_beside(ax, end, row, text, size, at_left=end < 0.0)
    ax.axvline(0.0, color=ink_of(ax), linewidth=1.0)
    set_frame(ax, "x")
    words = ("seconds saved (left) or added (right)", "seconds saved or added", "seconds")
    ax.set_xlabel(longest_that_fits(words, width, usual_size()))
    _set_kind_legend(ax, gains, sensitivity.step, width)
    context, count = sensitivity.base.context, len(sensitivity.gains)
    title = f"{context.model_name} on {context.hardware_name}: {format_seconds(sensitivity.base.total_s)}"
    more = f", the {len(gains)} largest of {count} changes" if count > len(gains) else ""
    set_title(ax, [f"{title}{more}", title], width, whole_width(ax))
    return ax


def _gain_label(gain: Gain) -> str:
    return f"{gain.name.rpartition('.')[2]}: {gain.old} → {gain.new}"


def _both_edges(bars: Sequence[tuple[float, str]], size: float, width: float) -> tuple[float, float]:
    """The ends of the axes, so that the text at the end of each bar has room."""
    low, high = min(0.0, *(end for end, _ in bars)), max(0.0, *(end for end, _ in bars))
    left = max([text_width(text, size) + 8.0 for end, text in bars if end < 0.0], default=0.0) / width
    right = max([text_width(text, size) + 8.0 for end, text in bars if end >= 0.0], default=0.0) / width
    span = (high - low) / max(0.2, 1.0 - left - right) or 1.0
    return low - left * span, high + right * span


def _set_kind_legend(ax: Axes, gains: Sequence[Gain], step: float, width: float) -> None:
    """What the bars are."""
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=ink_of(ax), label=words.format(step=100 * step))
        for kind, (look, words) in _KINDS.items()
        if any(gain.kind == kind for gain in gains)
    ]
    if not all(gain.fits for gain in gains):
        handles.append(Patch(facecolor="none", edgecolor=ink_of(ax), linestyle="--", label="does not start"))
    set_legend(ax, handles, width, below=True)
