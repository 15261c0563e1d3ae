"""Values that a caller gives, checked: times and lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

import numpy as np

from startup_model.errors import MISSING, ConfigError, shown

__all__ = ["as_list", "seconds_of"]

_LONGEST_TIME_S = 1e9
_MOST_POINTS = 10_000


def seconds_of(value: object, field: str) -> float:
    """A time as a plain number. Raises ConfigError."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0.0 <= plain <= _LONGEST_TIME_S:
        raise ConfigError(field, shown(plain), "it should be seconds from 0 to 1e9", "leave it out, or mend it")
    return float(plain)


def as_list(values: object, field: str) -> list[Any]:
    """1 to ``_MOST_POINTS`` values: a list, an array, a column. Raises ConfigError."""
    if not isinstance(values, Collection | np.ndarray) or isinstance(values, str | bytes | Mapping | Set):
        raise ConfigError(field, shown(values), "it should be a list", "give one value for each start")
    if not 1 <= len(values) <= _MOST_POINTS:
        raise ConfigError(field, MISSING, f"{len(values)} values", f"give 1 to {_MOST_POINTS}")
    return list(values)
