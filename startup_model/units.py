"""Quantities as people type them, turned into base units: bytes, bytes per second, seconds, FLOP per second.

``"900 GB/s"``, ``"10 Gbps"``, ``"80GiB"`` and ``"1.5 min"`` are read; plain numbers are taken as base units already.
Upper-case ``B`` is bytes and lower-case ``b`` is bits; ``k M G T P`` are powers of 10^3 and ``Ki Mi Gi Ti Pi`` of 2^10.
A spelling that could mean both (``"80 gb"``) is refused rather than guessed.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from startup_model.errors import StartupModelError, shown

GIB = 2**30
_MAX_BYTES = 2.0**63
_MAX_SECONDS = 1e9
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18} | {
    f"{prefix}i": 2 ** (10 * power) for power, prefix in enumerate("KMGTPE", start=1)
}
_QUANTITY = re.compile(
    r"([0-9]{1,3}(?:,[0-9]{3}){1,6}(?:\.[0-9]{0,30})?|[0-9]{1,40}(?:_[0-9]{1,40}){0,9}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})"
    r"(?:[eE]([+-]?[0-9]{1,3}))?\s{0,4}([A-Za-zµμ]{0,12}(?:\s?/\s?[A-Za-z]{1,8})?)"
)
_BYTE_UNIT = re.compile(r"([kKMGTPE]?i?)(B|[Bb]ytes?|b|bits?)")
_SECONDS = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0), "ms": 1e-3, **dict.fromkeys(("us", "µs", "μs"), 1e-6),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0), **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}  # fmt: skip


def parse_bytes(value: float | str) -> float:
    """Bytes from a number of bytes or a text such as ``"80GiB"``, ``"13.5 GB"`` or ``"2 Gb"`` (bits).

    Raises StartupModelError for anything else, for NaN, for infinities and for negative or absurd sizes (over 8 EiB).
    """
    number, unit = _split(value, "a size", "such as '80 GiB' or '13.5 GB'")
    return _bounded(number * _byte_factor(unit, value, "B"), value, "a size in bytes", _MAX_BYTES)


def parse_bandwidth(value: float | str) -> float:
    """Bytes per second from a number or a text such as ``"900 GB/s"``, ``"3.5GiB/s"`` or ``"10 Gbps"`` (bits).

    Raises StartupModelError for anything else, for NaN, for infinities and for negative or absurd values.
    """
    number, unit = _split(value, "a bandwidth", "such as '900 GB/s' or '10 Gbps'")
    stripped = re.sub(r"(?:/s|/sec|/second|(?<=[Bb])ps)$", "", unit)
    if unit and (stripped == unit or not stripped):
        raise StartupModelError(
            f"{shown(value)} has no unit of bytes or bits per second; write a bandwidth such as '900 GB/s' or '10 Gbps'"
        )
    return _bounded(number * _byte_factor(stripped, value, "B/s"), value, "a bandwidth in bytes per second", _MAX_BYTES)


def parse_flops(value: float | str) -> float:
    """FLOP per second from a number or a text such as ``"989 TFLOPS"`` or ``"1 PFLOP/s"``.

    Raises StartupModelError for anything else, for NaN, for infinities and for negative values.
    """
    number, unit = _split(value, "a rate", "such as '989 TFLOPS'")
    prefix = re.sub(r"FLOP(?:S|/s|s)?$", "", unit)
    if prefix not in _PREFIXES or (unit and prefix == unit):
        raise StartupModelError(f"{shown(value)} is not a floating-point rate; write it such as '989 TFLOPS'")
    return _bounded(number * _PREFIXES[prefix], value, "a rate in FLOP per second", 1e24)


def parse_seconds(value: float | str) -> float:
    """Seconds from a number or a text such as ``"250 ms"``, ``"90 s"`` or ``"1.5 min"``.

    Raises StartupModelError for anything else, for NaN, for infinities and for negative values.
    """
    number, unit = _split(value, "a time", "such as '90 s', '250 ms' or '1.5 min'")
    if unit not in _SECONDS:
        raise StartupModelError(f"{shown(value)} has the unknown unit of time {unit!r}; write s, ms, min or h")
    return _bounded(number * _SECONDS[unit], value, "a time in seconds", _MAX_SECONDS)


Bytes = Annotated[float, BeforeValidator(parse_bytes), Field(ge=0)]
BytesPerSecond = Annotated[float, BeforeValidator(parse_bandwidth), Field(gt=0)]
FlopPerSecond = Annotated[float, BeforeValidator(parse_flops), Field(gt=0)]
Seconds = Annotated[float, BeforeValidator(parse_seconds), Field(ge=0)]


def format_bytes(size: float) -> str:
    """``size`` in the largest binary unit that keeps it at or above one: ``"12.55 GiB"``."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(size) >= 2 ** (10 * power):
            return f"{size / 2 ** (10 * power):.2f} {unit}"
    return f"{size:.0f} B"


def format_bandwidth(bytes_per_second: float) -> str:
    """``bytes_per_second`` in the largest decimal unit that keeps it at or above one: ``"8.30 GB/s"``."""
    for power, unit in ((12, "TB/s"), (9, "GB/s"), (6, "MB/s"), (3, "kB/s")):
        if bytes_per_second >= 10**power:
            return f"{bytes_per_second / 10**power:.3g} {unit}"
    return f"{bytes_per_second:.3g} B/s"


def format_seconds(seconds: float) -> str:
    """``seconds`` with the digits that matter for a start-up: ``"0.123 s"``, ``"24.5 s"``, ``"312 s"``."""
    digits = 3 if abs(seconds) < 1 else 2 if abs(seconds) < 10 else 1 if abs(seconds) < 1000 else 0
    return f"{seconds:.{digits}f} s"


def _split(value: object, what: str, example: str) -> tuple[float, str]:
    """The number and the unit of ``value``; a bare number has the unit ``""`` (base units)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise StartupModelError(f"{shown(value)} is not {what}; give a number in base units or a text {example}")
    if not isinstance(value, str):
        try:
            return float(value), ""
        except OverflowError:
            raise StartupModelError(f"{shown(value)} is too large for {what}") from None
    match = _QUANTITY.fullmatch(value.strip()) if len(value) <= 100 else None
    if match is None:
        raise StartupModelError(f"{shown(value)} is not {what}; write it {example}")
    digits, exponent, unit = match.groups()
    number = float(digits.replace("_", "").replace(",", "") + (f"e{exponent}" if exponent else ""))
    return number, "".join(unit.split())


def _byte_factor(unit: str, value: object, example_suffix: str) -> float:
    """Bytes per unit: ``GB`` 10^9, ``GiB`` 2^30, ``Gb`` and ``Gbit`` 10^9 / 8."""
    if not unit:
        return 1.0
    match = _BYTE_UNIT.fullmatch(unit)
    if match and match.group(1) in _PREFIXES:
        size = float(_PREFIXES[match.group(1)])
        return size / 8 if match.group(2) in ("b", "bit", "bits") else size
    raise StartupModelError(
        f"{shown(value)} has the unknown or ambiguous unit {unit!r}; write bytes as G{example_suffix} (10^9) or "
        f"Gi{example_suffix} (2^30), bits as Gb{example_suffix[1:]}"
    )


def _bounded(number: float, value: object, what: str, largest: float) -> float:
    if math.isnan(number) or number < 0 or number > largest:
        raise StartupModelError(f"{shown(value)} is not {what} between 0 and {largest:.3g}")
    return number + 0.0  # -0.0 becomes 0.0
