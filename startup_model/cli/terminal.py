"""What reaches the terminal: text without control characters, tables that fit 80 columns, JSON. Whatever a file holds passes through here."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from startup_model.files import canonical_json


def printable(text: str) -> str:
    """The text without what a terminal would act upon: control characters, marks that turn the direction of writing, halves of characters."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def echo(text: str, *, err: bool = False) -> None:
    """Print lines as they are, however long."""
    _write(f"{printable(text)}\n", sys.stderr if err else sys.stdout)


def flush_or_drop(stream: TextIO | None = None) -> None:
    """Print what is left, or put the null device in the place of an output that nobody reads."""
    stream = stream or sys.stdout
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def go_quiet(console: Console) -> None:
    """What a console does when nobody reads on: it prints no more, and the command goes on to its own exit status."""
    console.quiet = True
    flush_or_drop()


def _write(text: str, stream: TextIO) -> None:
    try:
        stream.write(text)
    except BrokenPipeError:
        flush_or_drop(stream)


def print_json(data: Any) -> None:
    """Print what programs read: null for what is no finite number."""
    try:
        text = canonical_json(data)
    except (TypeError, ValueError):  # an array, or a number that JSON does not have
        text = canonical_json(_finite(data))
    _write(text, sys.stdout)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, Collection) and not isinstance(data, str):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


class _PlainConsole(Console):
    """A console that takes every text as it is: no markup, no emoji codes, nothing that a terminal would act upon."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def console_of(*, err: bool = False) -> Console:
    """A console on the present standard output or error output."""
    return _PlainConsole(stderr=err, highlight=False, markup=False, emoji=False)


def block_of(console: Console) -> str:
    """What bars are made of: blocks where the output can show them."""
    return "█" if console.encoding.lower().startswith("utf") else "#"


def table_of(title: str, *columns: str, caption: str = "") -> Table:
    """A table with a title at its left; long texts are folded, not cut.

    A heading begins with what its column is: ``|`` never folded, ``>`` at the right and never folded, ``~`` at the right; nothing: folded.
    """
    table = Table(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    for column in columns:
        mark = column[:1] if column[:1] in "|>~" else ""
        table.add_column(
            column[len(mark) :],
            justify="right" if mark in (">", "~") else "left",
            no_wrap=mark in ("|", ">"),
            overflow="ellipsis" if mark in ("|", ">") else "fold",
        )
    return table
