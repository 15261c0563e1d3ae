"""The exceptions of this project, grouped by who can mend what they report.

Every message is one line: the field, the value found there, and the remedy. A failure of any other type is a bug
of ours and keeps its traceback.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

_MAX_VALUE_SHOWN = 80
_MAX_MESSAGE = 580


class StartupModelError(ValueError):
    """Something given to the library cannot be used; the message says what, and what to do about it.

    Whatever names and paths the message quotes, it is one printable line of bounded length.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message, _MAX_MESSAGE))


class ConfigError(StartupModelError):
    """A field of a model, hardware or engine configuration is missing, impossible or contradicts another one."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field = field = one_line(str(field), 100)
        self.value = value
        self.problem = problem = one_line(problem, 240)
        self.remedy = remedy
        start = f"{field} = {shown(value)}: {problem}" if value is not MISSING else f"{field}: {problem}"
        super().__init__(f"{start}; {remedy}" if remedy else start)

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the parts: an error has to travel between processes, whatever its value is."""
        value = self.value if self.value is MISSING or isinstance(self.value, str | int | float) else shown(self.value)
        return (_rebuilt, (type(self), self.args[0], self.field, value, self.problem, self.remedy))


class UnknownNameError(ConfigError):
    """A name (model, hardware preset, phase, field, flag value) is not in the table where it was looked up."""

    def __init__(
        self, field: str, value: str, known: Iterable[str], remedy: str = "", aliases: Iterable[str] = ()
    ) -> None:
        names = sorted(known)
        nearest = nearest_name(value, [*names, *aliases])
        hint = f"did you mean {nearest!r}?" if nearest else f"known: {_listed(names)}"
        super().__init__(field, value, "not a known name", f"{hint}{' ' + remedy if remedy else ''}")


def wrong_type(field: str, value: object, expected: str, remedy: str = "") -> ConfigError:
    """``field = value: must be EXPECTED; REMEDY``."""
    return ConfigError(field, value, f"must be {expected}", remedy)


def out_of_range(field: str, value: object, bounds: str, remedy: str = "") -> ConfigError:
    """``field = value: must be BOUNDS; REMEDY``, such as "above 0" or "at most 8"."""
    return ConfigError(field, value, f"must be {bounds}", remedy)


def missing(field: str, needed_for: str, remedy: str = "") -> ConfigError:
    """``field: missing, NEEDED_FOR; REMEDY``."""
    return ConfigError(field, MISSING, f"missing, {needed_for}", remedy)


def conflict(field: str, value: object, other: str, remedy: str = "") -> ConfigError:
    """``field = value: contradicts OTHER; REMEDY``."""
    return ConfigError(field, value, f"contradicts {other}", remedy)


def duplicate(field: str, value: object, remedy: str = "give it once") -> ConfigError:
    """``field = value: duplicate; REMEDY``."""
    return ConfigError(field, value, "duplicate", remedy)


def too_many(field: str, value: object, most: float, remedy: str = "") -> ConfigError:
    """``field = value: must be at most MOST; REMEDY``."""
    return ConfigError(field, value, f"must be at most {most:g}", remedy)


class InputFileError(StartupModelError):
    """A file cannot be read as what it should be (absent, empty, too large, truncated, not JSON ...)."""


class ProfileError(StartupModelError):
    """A calibration profile is of another schema, incomplete, or does not fit what is to be predicted."""


class _Missing:
    """The value of a field that is not there."""

    def __repr__(self) -> str:
        return "missing"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = _Missing()


def _rebuilt(
    kind: type[ConfigError], message: str, field: str, value: object, problem: str, remedy: str
) -> ConfigError:
    """A ConfigError (or a subclass) as it was before it was pickled."""
    error = kind.__new__(kind, message)
    error.field, error.value, error.problem, error.remedy = field, value, problem, remedy
    return error


def one_line(text: str, longest: int) -> str:
    """``text`` without line breaks, control characters and halves of characters; what is too long loses its middle."""
    text = " ".join(_without_middle(text, longest).split())
    if not text.isprintable():
        text = _without_middle("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text), longest)
    return text


def _without_middle(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest * 2 // 3]} ... {text[5 - longest // 3 :]}"


def shown(value: object) -> str:
    """``value`` as one short, printable piece of a message: no line breaks, bounded length, whatever it is."""
    text = _piece(value, depth=2)
    return text if len(text) <= _MAX_VALUE_SHOWN else f"{text[: _MAX_VALUE_SHOWN - 3]}..."


def _piece(value: object, depth: int) -> str:
    """Like ``repr``, but never of more than a few items, levels or characters of the value."""
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return (
            repr(int(value)) if abs(value) < 10**20 else f"{'-' if value < 0 else ''}about 10^{_exponent(abs(value))}"
        )
    if isinstance(value, str | bytes):
        return repr(value[:_MAX_VALUE_SHOWN])
    if isinstance(value, dict | list | tuple | set | frozenset):
        if len(value) > 8:
            return f"a {type(value).__name__} of {len(value)} items"
        if depth == 0 and value:
            return "..."
        if isinstance(value, dict):
            pairs = [f"{_piece(key, 0)}: {_piece(item, depth - 1)}" for key, item in islice(value.items(), 8)]
            return f"{{{', '.join(pairs)}}}"
        items = ", ".join(_piece(item, depth - 1) for item in islice(value, 8))
        return f"({items})" if isinstance(value, tuple) else f"[{items}]"
    if value is None or isinstance(value, float):
        return repr(value)
    try:
        return one_line(repr(value), _MAX_VALUE_SHOWN)
    except Exception:  # whatever a foreign class does in its repr
        return f"an object of type {type(value).__name__}"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name`` (letter case aside), or None when none is close."""
    import difflib  # only on the way to an error message

    by_folded: dict[str, str] = {}
    for candidate in known:  # an id may be meant by its last part alone
        by_folded.setdefault(candidate.lower().rsplit("/", 1)[-1], candidate)
        by_folded[candidate.lower()] = candidate
    wanted = str(name)[:200].lower()
    matches = difflib.get_close_matches(wanted, by_folded, n=1, cutoff=0.6)
    matches = matches or difflib.get_close_matches(wanted.rsplit("/", 1)[-1], by_folded, n=1, cutoff=0.75)
    return by_folded[matches[0]] if matches else None


def _listed(names: list[str], most: int = 12, longest: int = 230) -> str:
    """The first names, whole ones, and how many there are in all."""
    kept = list(names[:most])
    while len(kept) > 1 and len(", ".join(kept)) > longest:
        kept.pop()
    return one_line(", ".join(kept), longest) + (f" ... ({len(names)} in all)" if len(names) > len(kept) else "")


def _exponent(value: int) -> int:
    """Decimal exponent of a positive integer, without the cost (or limit) of printing it."""
    return math.floor(math.log10(value) + 1e-12)
