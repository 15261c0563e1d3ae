"""Pictures as files with the same bytes each time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from startup_model.errors import ConfigError, shown
from startup_model.files import write_atomically
from startup_model.plots.canvas import check_matplotlib, checked_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save"]

_FORMATS: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Suffix -> what is left out of the file's own description, so that the same picture has the same bytes."""
_LAYOUT_ROUNDS = 2


def save(ax: Axes, path: str | Path, *, dpi: int = 150) -> None:
    """Write the figure of these axes as PNG (``dpi`` dots an inch), SVG or PDF, by the suffix: whole or not at all, the same picture with the same bytes.

    Raises ConfigError for another suffix, InputFileError where the file cannot be written.
    """
    if not isinstance(path, str | Path):
        raise ConfigError("path", shown(path), "it should be the name of a file", "such as sweep.png")
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(
            "path", str(path), "its suffix names no kind of picture", f"take one of {', '.join(_FORMATS)}"
        )
    if isinstance(dpi, bool) or not isinstance(dpi, int) or not 10 <= dpi <= 1200:
        raise ConfigError("dpi", shown(dpi), "it should be dots per inch from 10 to 1200", "150 is usual")
    check_matplotlib()
    figure = checked_axes(ax).figure.figure
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "startup_model"}), _settled(figure):
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=dict(_FORMATS[suffix]))
    write_atomically(Path(path), [content.getvalue()])


@contextmanager
def _settled(figure: Figure) -> Iterator[None]:
    """The figure with its layout worked out to a ten-thousandth and held: what a layout engine finds depends a little on where it starts."""
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    before = [(ax, ax.get_position(original=True), ax.get_position(), ax.get_in_layout()) for ax in figure.axes]
    try:
        for _ in range(_LAYOUT_ROUNDS):
            engine.execute(figure)
        for ax in figure.axes:
            left, bottom, width, height = (round(edge, 4) for edge in ax.get_position().bounds)
            ax.set_position((left, bottom, width, height))
        figure.set_layout_engine("none")
        yield
    finally:
        figure.set_layout_engine(engine)
        for ax, original, active, is_in_layout in before:
            ax.set_position(original, which="original")
            ax.set_position(active, which="active")
            ax.set_in_layout(is_in_layout)
