"""Templates of log lines: a line as the engine prints it, with the names of facts in the place of the figures.

``"Model loading took {weights_gib} and {model_loading_s}"`` reads two numbers with their units. The ending of a name says what it
is: ``_s`` seconds (printed with or without a unit of time), ``_gib`` GiB (engines write GB and mean GiB), ``_x`` a factor; anything else
is a whole number, which may have thousands separators. ``{*}`` skips text, ``{=name}`` takes a word, ``{end}`` is the end of the line. Everything
else is literal.

What stands between two gaps is a regular expression in which nothing repeats inside something that repeats; the gaps themselves are looked up one
after the other, without going back, from the first few places in a line where the template may begin. So no line can take long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

__all__ = ["SECONDS_PER_UNIT", "Found", "Template", "figure", "template"]

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
_BYTES = 2.0**20
"""A size without a unit from here on was printed in bytes: nobody has a million GiB."""
_LONGEST_SECONDS = 1e7
_LONGEST_GAP = 400
_MOST_BEGINNINGS = 4
"""Places in a line where a template is tried."""

_TIME_UNIT = r"(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours|[nuµμm]s|[smh])"
_SIZE_UNIT = r"(?:[KkMGT]i?B|[Bb]ytes|B)"
_NO_TIME = r"(?![0-9]|\.[0-9]| ?(?:s|ms|secs?|seconds?)\b)"
_NUMBER = r"[-+]?[0-9][0-9,]{0,20}(?:\.[0-9]{1,12})?(?:[eE][-+]?[0-9]{1,2})?"
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Text that is the same inside a JSON string: no quotes, no backslashes, nothing beyond ASCII."""
_PLACE = re.compile(r"\{(\*|=?[a-z_]+)\}")


class Found(NamedTuple):
    """A line that fits a template."""

    values: Mapping[str, str]
    """Name -> what stands in its place; ``<name>_unit`` -> the unit behind a figure, where there is one."""
    end: int
    """Where the template ends in the line."""


class Template(NamedTuple):
    """A compiled template."""

    literal: str
    """Its longest plain piece: a line without it cannot match, a JSON record of the line has it too."""
    parts: tuple[re.Pattern[str], ...]
    """What stands between the gaps."""
    facts: tuple[str, ...]
    """Names of the figures in it."""
    words: tuple[str, ...]
    """Names of the words in it."""

    def search(self, text: str) -> Found | None:
        """The first place in ``text`` that fits, or None."""
        first = self.parts[0]
        match = first.search(text)
        for _ in range(_MOST_BEGINNINGS):
            if match is None:
                return None
            found = self._follow(match, text)
            if found is not None:
                return found
            match = first.search(text, match.end())
        return None

    def _follow(self, match: re.Match[str], text: str) -> Found | None:
        """The rest of the template after its first part, each part within reach of the one before."""
        values = match.groupdict()
        end = match.end()
        for part in self.parts[1:]:
            following = part.search(text, end, end + _LONGEST_GAP)
            if following is None:
                return None
            values |= following.groupdict()
            end = following.end()
        return Found(values, end)


@lru_cache(maxsize=1024)
def template(text: str) -> Template:
    """The compiled form of a template."""
    pieces = _PLACE.split(text)
    parts: list[list[str]] = [[]]
    facts, words = [], []
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            parts[-1].append(re.escape(piece).replace(r"\ ", " "))
        elif piece == "end":
            parts[-1].append(r" {0,8}\Z")
        elif piece == "*":
            parts.append([])
        elif piece.startswith("="):
            words.append(piece[1:])
            parts[-1].append(rf"(?P<{piece[1:]}>[^\s,'\"\x1b]{{1,300}})")
        else:
            facts.append(piece)
            parts[-1].append(_place(piece))
    runs = [run for piece in pieces[::2] for run in _PLAIN.findall(piece)]
    literal = max(runs, key=lambda run: len(run.strip()))
    compiled = tuple(re.compile("".join(part)) for part in parts if part != [""])
    return Template(literal, compiled, tuple(facts), tuple(words))


def _place(name: str) -> str:
    if name.endswith("_s"):
        return rf"(?P<{name}>{_NUMBER}) ?\[?(?P<{name}_unit>{_TIME_UNIT}\b)?"
    if name.endswith("_gib"):
        return rf"(?P<{name}>{_NUMBER}) ?(?P<{name}_unit>{_SIZE_UNIT}\b)?{_NO_TIME}"
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
        unit = unit or ("bytes" if abs(value) >= _BYTES else "GiB")
        value *= _GIB_PER_UNIT.get(unit.lower(), 1.0)
        return value if abs(value) <= _LARGEST / 2**30 else None
    return value if abs(value) <= _LARGEST else None
