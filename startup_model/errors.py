"""The exceptions of this project, grouped by who can mend what they report.

Every message is one line: the field, the value found there, and the remedy. A failure of any other type is a bug
of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "InputFileError",
    "ProfileError",
    "StartupModelError",
    "UnknownNameError",
    "nearest_name",
    "shown",
]

_LONGEST_VALUE_SHOWN = 80


class StartupModelError(ValueError):
    """Something given to the library cannot be used; the message says what, and what to do about it."""


class ConfigError(StartupModelError):
    """A field of a model, hardware or engine configuration is missing, impossible or contradicts another one."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field = field
        self.value = value
        self.problem = problem
        self.remedy = remedy
        parts = [f"{field} = {shown(value)}: {problem}" if value is not MISSING else f"{field}: {problem}"]
        if remedy:
            parts.append(remedy)
        super().__init__("; ".join(parts))


class UnknownNameError(ConfigError):
    """A name (model, hardware preset, phase, field, flag value) is not in the table where it was looked up."""

    def __init__(self, field: str, value: str, known: Iterable[str], remedy: str = "", aliases: Iterable[str] = ()) -> None:
        names = sorted(known)
        nearest = nearest_name(value, [*names, *aliases])
        hint = f"did you mean {nearest!r}?" if nearest else f"known: {_listed(names)}"
        super().__init__(field, value, "not a known name", f"{hint}{' ' + remedy if remedy else ''}")


class InputFileError(StartupModelError):
    """A file cannot be read as what it should be (absent, empty, too large, truncated, not JSON ...)."""


class ProfileError(StartupModelError):
    """A calibration profile is of another schema, incomplete, or does not fit what is to be predicted."""


class _Missing:
    """The value of a field that is not there."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def shown(value: object) -> str:
    """``value`` as one short, printable piece of a message: no line breaks, bounded length."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return f"{'-' if value < 0 else ''}about 10^{_decimal_digits(abs(value)) - 1}"
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)} items"
    text = repr(value[: 4 * _LONGEST_VALUE_SHOWN] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _LONGEST_VALUE_SHOWN else f"{text[: _LONGEST_VALUE_SHOWN - 3]}..."


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name`` (letter case aside), or None when none is close."""
    import difflib  # noqa: PLC0415  only on the way to an error message

    by_folded: dict[str, str] = {}
    for candidate in known:  # an id may be meant by its last part alone
        by_folded.setdefault(candidate.lower().rsplit("/", 1)[-1], candidate)
        by_folded[candidate.lower()] = candidate
    wanted = name[:200].lower()
    matches = difflib.get_close_matches(wanted, by_folded, n=1, cutoff=0.6)
    matches = matches or difflib.get_close_matches(wanted.rsplit("/", 1)[-1], by_folded, n=1, cutoff=0.75)
    return by_folded[matches[0]] if matches else None


def _listed(names: list[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" ... ({len(names)} in all)" if len(names) > most else "")


def _decimal_digits(value: int) -> int:
    """Number of decimal digits of a positive integer, without the cost (or limit) of printing it."""
    digits = int(value.bit_length() * 0.30102999566398120)
    return digits + 1 if value >= 10**digits else digits
