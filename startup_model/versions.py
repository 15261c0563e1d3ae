"""Engine versions as tuples that compare, and tables of facts that changed from one version to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from startup_model.errors import ConfigError

__all__ = ["Version", "at_version", "parse_version"]

Version = tuple[int, ...]
_T = TypeVar("_T")
_VERSION = re.compile(
    r"[vV]?([0-9]{1,6}(?:\.[0-9]{1,6}){0,4})(?:[-._+]?[A-Za-z][A-Za-z0-9.+_-]{0,80}|\+[A-Za-z0-9.]{1,80})?"
)


def parse_version(text: str) -> Version:
    """The release numbers of a version: ``"v0.10.1.1"`` -> (0, 10, 1, 1), ``"0.28.1rc2.dev7+gabc"`` -> (0, 28, 1).

    Raises ConfigError when the text is no version.
    """
    if not isinstance(text, str):
        raise ConfigError("version", text, "not a version", "write it as a text such as '0.10.1.1'")
    return _parse_version(text)


@lru_cache(maxsize=1024)
def _parse_version(text: str) -> Version:
    match = _VERSION.fullmatch(text.strip()) if len(text) <= 200 else None
    if match is None:
        raise ConfigError("version", text, "not a version", "write it such as '0.10.1.1'")
    return tuple(int(part) for part in match.group(1).split("."))


def at_version(table: Sequence[tuple[Version, _T]], version: Version) -> _T:
    """The last entry of ``table`` (first version -> value, ascending) that begins at or before ``version``, else the
    first."""
    value = table[0][1]
    for first, candidate in table:
        if version < first:
            break
        value = candidate
    return value
