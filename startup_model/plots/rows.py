"""Rows of bars over time, with a name at the left and a text behind the last bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from startup_model.plots.canvas import ink_of, size_in_points
from startup_model.plots.looks import Look, look_of
from startup_model.plots.scales import whole_width
from startup_model.plots.texts import short_label, text_width, usual_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Row", "Span", "draw_bar", "draw_rows", "right_edge", "row_font_size", "set_rows", "write_beside"]


class Span(NamedTuple):
    """One bar over time."""

    name: str
    begin_s: float
    counted_s: float
    """What it adds to the total."""
    elapsed_s: float
    """How long it runs; more than ``counted_s`` where it runs beside something longer."""

    @property
    def end_s(self) -> float:
        return self.begin_s + max(self.counted_s, self.elapsed_s)


class Row(NamedTuple):
    """A row of bars with a name at the left and a text behind the last bar."""

    label: str
    spans: tuple[Span, ...]
    text: str = ""
    height: float = 0.8

    @property
    def end_s(self) -> float:
        return max((span.end_s for span in self.spans), default=0.0)


def draw_rows(ax: Axes, rows: Sequence[Row], size: float) -> None:
    """The rows from the top."""
    for place, row in enumerate(rows):
        for span in row.spans:
            if span.counted_s:
                draw_bar(ax, place, span.begin_s, span.counted_s, look_of(span.name), row.height)
            if span.elapsed_s > span.counted_s:
                rest = span.elapsed_s - span.counted_s
                draw_bar(ax, place, span.begin_s + span.counted_s, rest, look_of(span.name), row.height, hidden=True)
        write_beside(ax, row.end_s, place, row.text, size)


def draw_bar(
    ax: Axes, row: float, begin: float, length: float, look: Look, height: float, *, hidden: bool = False
) -> None:
    """One bar in the look of its phase; a hidden one is pale with a dashed edge. The edge of a very short one does not cover its colour."""
    style: dict[str, Any] = {"alpha": 0.4, "linestyle": "--"} if hidden else {}
    low, high = ax.get_xlim()
    is_short = abs(length) / (high - low) * size_in_points(ax)[0] < 3.0
    edge = look.colour if is_short else ink_of(ax)
    ax.barh(row, length, height, begin, color=look.colour, hatch=look.hatch, edgecolor=edge, linewidth=0.6, **style)


def write_beside(ax: Axes, x: float, row: float, text: str, size: float, *, at_left: bool = False) -> None:
    """A text behind the end of a bar, or before it."""
    ax.annotate(
        text, (x, row), (-4 if at_left else 4, 0), textcoords="offset points", ha="right" if at_left else "left",
        va="center", fontsize=size, color=ink_of(ax), bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def set_rows(ax: Axes, labels: Sequence[str], size: float) -> float:
    """The names of the rows, the first at the top, in at most half the width; how wide the axes will be beside them, in points."""
    whole = whole_width(ax)
    texts = [short_label(label, max(12, min(46, int(0.5 * whole / (0.6 * size))))) for label in labels]
    ax.set_yticks(range(len(labels)), texts, fontsize=size)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    if ax.figure.get_layout_engine() is None:
        return whole
    return max(0.3 * whole, whole - max(text_width(text, size) for text in texts) - 6.0)


def row_font_size(ax: Axes, rows: int) -> float:
    """Of the text beside rows, so that lines do not touch."""
    return max(3.0, min(usual_size(), 0.72 * size_in_points(ax)[1] / max(rows, 1)))


def right_edge(rows: Iterable[Row], size: float, width: float) -> float:
    """The end of the axes, so that the text behind each row has room."""
    ends = [row.end_s / (1.0 - min(0.6, (text_width(row.text, size) + 8.0) / width)) for row in rows]
    return max(ends, default=0.0) or 1.0
