"""What planners give as plain numbers, checked: each refusal is one line with the argument, its value and a remedy."""

from __future__ import annotations

from numbers import Integral, Real

from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.units import parse_seconds

__all__ = ["LARGEST_POOL", "count", "number", "open_probability", "seconds"]

LARGEST_POOL = 100_000
"""Most replicas that a pool is sized to: as many as a HardwareConfig takes nodes."""


def seconds(field: str, value: object) -> float:
    """``value`` [s] as a float; a text such as "90 s" is read. Raises ConfigError unless it is finite, not negative and below 1e9."""
    try:
        return parse_seconds(number(field, value, 0.0, 1e9) if _is_real(value) else value)  # type: ignore[arg-type]
    except ConfigError:
        raise
    except StartupModelError as error:
        raise ConfigError(field, MISSING, str(error)) from None


def number(field: str, value: object, low: float, high: float, remedy: str = "") -> float:
    """``value`` as a float when it is a number from ``low`` to ``high``. Raises ConfigError."""
    if not _is_real(value) or not low <= value <= high:  # type: ignore[operator]
        raise ConfigError(field, value, f"it should be a number from {low:g} to {high:g}", remedy)
    return float(value)  # type: ignore[arg-type]


def count(field: str, value: object, low: int, high: int, remedy: str = "") -> int:
    """``value`` as an int when it is a whole number from ``low`` to ``high``. Raises ConfigError."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise ConfigError(field, value, f"it should be a whole number from {low} to {high:,}", remedy)
    return int(value)


def open_probability(field: str, value: object, remedy: str) -> float:
    """``value`` as a float when it lies strictly between 0 and 1. Raises ConfigError."""
    if not _is_real(value) or not 0.0 < value < 1.0:  # type: ignore[operator]
        raise ConfigError(field, value, "it should lie between 0 and 1, both excluded", remedy)
    return float(value)  # type: ignore[arg-type]


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
