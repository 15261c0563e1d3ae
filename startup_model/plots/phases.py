"""The phases of one start: a waterfall of a prediction, a timeline of a prediction or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from startup_model.errors import MISSING, ConfigError, shown
from startup_model.phases import BEFORE_ENGINE
from startup_model.plots.canvas import axes_for, ink_of
from startup_model.plots.logged import (
    logged_rows,
    moments_of,
    optional_seconds,
    origin,
    rank_rows,
    read_stages,
    start_title,
)
from startup_model.plots.predicted import prediction_rows, prediction_title
from startup_model.plots.rows import Row, Span, draw_rows, right_edge, row_font_size, set_rows, write_beside
from startup_model.plots.scales import set_frame, whole_width
from startup_model.plots.texts import longest_that_fits, set_title, text_width, usual_size
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["timeline", "waterfall"]


def waterfall(prediction: StartupPrediction, ax: Axes | None = None) -> Axes:
    """The phases of a prediction one after the other: each bar begins where the last ended and is as long as its seconds; total and interval below.

    What runs beside a longer phase is pale, from where it begins: it takes ``elapsed_s``, and adds ``seconds`` to the total. Phases that flags switch
    off are left out. An interval that goes far beyond the total ends in an arrow. Raises ConfigError for what is no prediction.
    """
    if not isinstance(prediction, StartupPrediction):
        raise ConfigError("prediction", shown(prediction), "it is no prediction", "give what predict returns")
    total = prediction.total_s
    phases = prediction_rows(prediction)
    rows = [*phases, Row("total", (Span("total", 0.0, total, total),), format_seconds(total))]
    labels = [*(row.label for row in rows), f"{100 * prediction.level:g} % interval"]
    ax = axes_for(ax, 8.0, 1.3 + 0.27 * len(labels))
    size = row_font_size(ax, len(labels))
    width = set_rows(ax, labels, size)
    right = max(right_edge(rows, size, width), 1.03 * min(prediction.interval[1], 1.6 * total))
    ax.set_xlim(0.0, right)
    draw_rows(ax, phases, size)
    steps = np.arange(len(phases) - 1)
    ax.vlines([row.end_s for row in phases[:-1]], steps + 0.4, steps + 0.6, colors=ink_of(ax), linewidth=0.6)
    ax.barh(len(phases), total, 0.8, color=ink_of(ax), alpha=0.7)
    write_beside(ax, total, len(phases), rows[-1].text, size)
    _draw_interval(ax, len(rows), prediction.interval, size, right / width)
    set_frame(ax, "x")
    ax.set_xlabel("seconds")
    set_title(ax, [prediction_title(prediction)], width, whole_width(ax))
    return ax


def _draw_interval(ax: Axes, row: float, interval: tuple[float, float], size: float, seconds_per_point: float) -> None:
    """A line from low to high, which ends in an arrow where high lies beyond the axes, and the numbers where there is room."""
    low, high = interval
    right = ax.get_xlim()[1]
    ink, end = ink_of(ax), min(high, right)
    ax.plot([low, end], [row, row], color=ink, linewidth=2.0, solid_capstyle="butt")
    ax.plot([low], [row], marker="|", color=ink, markersize=size)
    if high <= right:
        ax.plot([end], [row], marker="|", color=ink, markersize=size)
    else:
        ax.plot([end], [row], marker=">", color=ink, markersize=0.8 * size, clip_on=False)
    text = f"{format_seconds(low).removesuffix(' s')} to {format_seconds(high)}"
    needed = (text_width(text, size) + 8.0) * seconds_per_point
    at_left = right - end < needed <= low
    write_beside(ax, end if right - end >= needed else low, row, text, size, at_left=at_left)


def timeline(start: Any, ax: Axes | None = None) -> Axes:
    """When each phase of a start ran: of a parsed log over the seconds since its first line, of a prediction since its process began.

    start: a prediction, or anything with ``phases`` (name -> seconds; several names may be joined by +), such as a ParsedStartup. A bar is as long as
    its phase took. Bars of a log keep the order of the phases and do not overlap; each lies as near as that allows to the stamp of the line that ended it,
    and what is left between them is unattributed. Without stamps they lie end to end. If the phases take longer together than the start did, each ends at
    its stamp, and they overlap. ~ before a figure: no line prints it, it is the time between two stamps. Where several processes print figures
    of their own, each has a row, from when the phase begins. Raises ConfigError for what has no phases, or times that are none.
    """
    ready: float | None
    if isinstance(start, StartupPrediction):
        rows, ready, moments = prediction_rows(start), start.total_s, {}
        since = "the start" if rows and rows[0].label in BEFORE_ENGINE else "process start"
        title, ready_word = prediction_title(start), "total"
    else:
        stages, lost_s = read_stages(start)
        rows = logged_rows(start, stages, lost_s)
        ready, moments = optional_seconds(start, "wall_s"), moments_of(start)
        rows += rank_rows(start, rows)
        since = origin(start)
        title, ready_word = start_title(start), "ready after"
    if not rows:
        raise ConfigError("phases", MISSING, "none of them took any time", "give a start with phases")
    labels = [row.label for row in rows] + (["lines that were read"] if moments else [])
    ax = axes_for(ax, 8.0, 1.3 + 0.27 * len(labels))
    size = row_font_size(ax, len(labels))
    width = set_rows(ax, labels, size)
    right = max(right_edge(rows, size, width), 1.02 * max([ready or 0.0, *moments.values()]))
    ax.set_xlim(0.0, right)
    draw_rows(ax, rows, size)
    if moments:
        ax.plot(list(moments.values()), [len(rows)] * len(moments), "|", color=ink_of(ax), markersize=size)
    if ready is not None:
        ax.axvline(ready, color=ink_of(ax), linewidth=1.0, linestyle=":")
        title = f"{title}: {ready_word} {format_seconds(ready)}"
    set_frame(ax, "x")
    derived = "; ~ from stamps" if any(row.text.startswith("~") for row in rows) else ""
    words = (f"seconds since {since}{derived}", f"seconds{derived}", "seconds")
    ax.set_xlabel(longest_that_fits(words, width, usual_size()))
    set_title(ax, [title], width, whole_width(ax))
    return ax
