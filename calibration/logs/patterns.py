"""Templates of log lines: a line as the engine prints it, with the names of facts in the place of the figures.

``"Model loading took {weights_gib} and {model_loading_s}"`` reads two numbers with their units. The ending of a name says what it
is: ``_s`` seconds (printed with or without a unit of time), ``_gib`` GiB (engines write GB and mean GiB), ``_x`` a factor; anything else
is a whole number, which may have thousands separators. ``{*}`` skips text, ``{=name}`` takes a word, ``{end}`` is the end of the line. Everything else is literal.

No template can backtrack beyond a constant: gaps and words are bounded, and nothing that repeats stands inside something that
repeats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

__all__ = ["SECONDS_PER_UNIT", "Template", "figure", "template"]

SECONDS_PER_UNIT: Mapping[str, float] = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0,
}  # fmt: skip
"""Word after a figure -> seconds."""

_GIB_PER_UNIT: Mapping[str, float] = {
    "b": 2.0**-30, "bytes": 2.0**-30, "kb": 2.0**-20, "kib": 2.0**-20, "mb": 2.0**-10, "mib": 2.0**-10,
    "gb": 1.0, "gib": 1.0, "tb": 1024.0, "tib": 1024.0,
}  # fmt: skip
"""Engines divide by 2^30 whatever they print."""

_LARGEST = 1e15
_LONGEST_SECONDS = 1e7

_TIME_UNIT = r"(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours|[nuµμm]s|[smh])"
_SIZE_UNIT = r"(?:[KkMGT]i?B|[Bb]ytes|B)"
_NUMBER = r"[-+]?[0-9][0-9,]{0,20}(?:\.[0-9]{1,12})?(?:[eE][-+]?[0-9]{1,2})?"
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Text that is the same inside a JSON string: no quotes, no backslashes, nothing beyond ASCII."""
_PLACE = re.compile(r"\{(\*|=?[a-z_]+)\}")


class Template(NamedTuple):
    """A compiled template."""

    literal: str
    """Its longest plain piece: a line without it cannot match, a JSON record of the line has it too."""
    pattern: re.Pattern[str]
    facts: tuple[str, ...]
    """Names of the figures in it."""
    words: tuple[str, ...]
    """Names of the words in it."""


@lru_cache(maxsize=1024)
def template(text: str) -> Template:
    """The compiled form of a template."""
    pieces = _PLACE.split(text)
    pattern, facts, words = [], [], []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            pattern.append(re.escape(piece).replace(r"\ ", " "))
        elif piece == "end":
            pattern.append(r" {0,8}\Z")
        elif piece == "*":
            pattern.append(r".{0,400}?")
        elif piece.startswith("="):
            words.append(piece[1:])
            pattern.append(rf"(?P<{piece[1:]}>[^\s,'\"\x1b]{{1,300}})")
        else:
            facts.append(piece)
            pattern.append(_place(piece))
    runs = [run for piece in pieces[::2] for run in _PLAIN.findall(piece)]
    literal = max(runs, key=lambda run: len(run.strip()))
    return Template(literal, re.compile("".join(pattern)), tuple(facts), tuple(words))


def _place(name: str) -> str:
    if name.endswith("_s"):
        return rf"(?P<{name}>{_NUMBER}) ?\[?(?P<{name}_unit>{_TIME_UNIT}\b)?"
    if name.endswith("_gib"):
        return rf"(?P<{name}>{_NUMBER}) ?(?P<{name}_unit>{_SIZE_UNIT}\b)?"
    if name.endswith("_x"):
        return rf"(?P<{name}>{_NUMBER})"
    return rf"(?P<{name}>[0-9][0-9,]{{0,20}})"


def figure(name: str, number: str, unit: str | None) -> float | None:
    """The value of a fact in the unit of its name: seconds, GiB, a factor, a count. None for a figure that cannot be."""
    try:
        value = float(number.replace(",", ""))
    except ValueError:
        return None
    if name.endswith("_s"):
        value *= SECONDS_PER_UNIT.get(unit or "s", 1.0)
        return value if 0 <= value <= _LONGEST_SECONDS else None
    if name.endswith("_gib"):
        value *= _GIB_PER_UNIT.get((unit or "GiB").lower(), 1.0)
        return value if abs(value) <= _LARGEST / 2**30 else None
    return value if abs(value) <= _LARGEST else None
