"""Texts that fit: how wide they are, shorter names, titles and font sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from startup_model.errors import one_line
from startup_model.plots.canvas import size_in_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "longest_that_fits",
    "set_title",
    "short_label",
    "shortened",
    "small_size",
    "text_scale",
    "text_width",
    "usual_size",
]

_ORGANISATION = re.compile(r"^[\w.-]+/(?=[\w.-])")


def text_width(text: str, size: float) -> float:
    """About how many points a text takes."""
    return 0.6 * size * len(text)


def longest_that_fits(texts: Sequence[str], width: float, size: float) -> str:
    """The first text that is no wider than this, else the last."""
    return next((text for text in texts if text_width(text, size) <= width), texts[-1])


def usual_size(name: str = "medium") -> float:
    """A font size of the present style, in points."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=name).get_size_in_points())


def text_scale(width: float) -> float:
    """How much smaller text has to be in narrow axes."""
    return max(0.6, min(1.0, width / 330.0))


def small_size(ax: Axes) -> float:
    """Of small text in axes that may be one of several panels."""
    return usual_size("small") * text_scale(2.0 * size_in_points(ax)[0])


def short_label(text: object, longest: int = 36) -> str:
    """A name as one short line that matplotlib takes as it is: no dollar begins a formula."""
    return shortened(text, longest).replace("$", r"\$")


def shortened(text: object, longest: int) -> str:
    """A name as one short line: a long one loses the organisation before its slash, then its middle."""
    text = one_line(str(text), 400)
    if len(text) > longest:
        text = _ORGANISATION.sub("", text)
    return text if len(text) <= longest else f"{text[: (longest + 1) // 2 - 1]}…{text[len(text) - longest // 2 :]}"


def set_title(ax: Axes, texts: Sequence[str], width: float, whole: float = 0.0) -> None:
    """A title of one line over axes of this width in points: the first text that fits, else the last without its middle. A long one is smaller, and in the
    middle of the axes and what stands at their left (``whole``: both together)."""
    usual = float(ax.title.get_fontsize())
    room = max(width, whole)
    text = longest_that_fits(texts, room, 0.75 * usual)
    size = max(0.75 * usual, min(usual, room / text_width(text or " ", 1.0)))
    text = short_label(text, max(12, int(room / text_width(" ", size))))
    ax.set_title(text, fontsize=size, loc="center")
    ax.title.set_x(0.5 - (0.5 * (room - width) / width if text_width(text, size) > width else 0.0))
