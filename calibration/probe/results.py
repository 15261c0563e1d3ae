"""What a probe finds: measurements, a node made of them, and what predictions use of it; and the time that it may take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Self

from startup_model.hardware import HardwareConfig
from startup_model.units import format_bandwidth, format_bytes, format_seconds


class Budget(NamedTuple):
    """A moment, by the monotonic clock, at which to be done."""

    until: float

    @classmethod
    def of(cls, seconds: float) -> Self:
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; never less than 0."""
        return max(0.0, self.until - time.monotonic())

    @property
    def is_spent(self) -> bool:
        return self.left <= 0.0

    def part(self, share: float, max_s: float = math.inf) -> Budget:
        """A share of what is left, at most ``max_s`` seconds."""
        return Budget.of(min(self.left * share, max_s))


class Measurement(NamedTuple):
    """One number with what it rests on."""

    name: str
    value: float
    unit: str  # B/s, s, or 1
    spread: float | None  # (largest - smallest) / median of the repetitions; None where there was one
    repetitions: int
    size_bytes: float | None  # of one repetition; None where none are moved
    command: str  # what was run, in words
    seconds: float  # wall time spent on it

    @classmethod
    def of(
        cls,
        name: str,
        values: Sequence[float],
        unit: str,
        command: str,
        seconds: float = 0.0,
        *,
        value: float | None = None,
        size: float | None = None,
    ) -> Self:
        value = median(values) if value is None else value
        return cls(name, value, unit, spread_of(values), len(values), size, command, seconds)

    @property
    def shown_value(self) -> str:
        """The value with its unit, to be read."""
        if self.unit == "B/s":
            return format_bandwidth(self.value)
        return format_seconds(self.value) if self.unit == "s" else f"{self.value:.3f}"

    @property
    def shown_spread(self) -> str:
        """The spread as a percentage; a dash for a single repetition."""
        return "-" if self.spread is None else f"{self.spread:.0%}"

    @property
    def shown_run(self) -> str:
        """What was run, how often and on how much."""
        often = "once" if self.repetitions == 1 else f"{self.repetitions} times"
        return f"{self.command}; {often}{'' if self.size_bytes is None else f', {format_bytes(self.size_bytes)} each'}"


def spread_of(values: Sequence[float]) -> float | None:
    """(largest - smallest) / median; None for fewer than two values."""
    return (max(values) - min(values)) / median(values) if len(values) > 1 else None


class Found(NamedTuple):
    """What one part of the probe comes back with."""

    measurements: tuple[Measurement, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def warn(cls, text: str) -> Self:
        return cls((), (text,))

    def value(self, name: str) -> float | None:
        return next((entry.value for entry in self.measurements if entry.name == name), None)

    def joined(self, *others: Found) -> Found:
        parts = (self, *others)
        return Found(*(tuple(entry for part in parts for entry in part[i]) for i in (0, 1)))  # type: ignore[arg-type]


class ProbeProgress(NamedTuple):
    done: int  # parts that are done
    of: int
    doing: str  # what it does now


@dataclass(frozen=True)
class ProbeReport:
    """A host, as measured."""

    hardware: HardwareConfig
    """The node, ready for ``predict``; numbers that were not measured are those of its preset."""
    measurements: tuple[Measurement, ...]
    scale_factors: Mapping[str, float]
    """What was measured and predictions of this node use without any run: ``single_thread_score`` (an EPYC 9354 has 1.0), ``slowdown`` (single-thread time
    relative to the reference's host) and, by field of the node, its numbers divided by those of that host, or by the default that stands for them."""
    reference: str
    """Name of the profile that ``scale_factors`` are relative to."""
    warnings: tuple[str, ...]
    seconds: float
    """Wall time of the whole probe."""

    def measurement(self, name: str) -> Measurement | None:
        """The measurement of that name; None where it could not be made."""
        return next((entry for entry in self.measurements if entry.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; keys as the attributes."""
        node = self.hardware.model_dump(mode="json", exclude_none=True)
        listed = {"measurements": [entry._asdict() for entry in self.measurements], "warnings": list(self.warnings)}
        return vars(self) | {"hardware": node, "scale_factors": dict(self.scale_factors)} | listed

    def closing_lines(self) -> list[str]:
        """What there is to say beside the measurements, for people."""
        return [
            f"relative to the host of profile {self.reference}, which predictions start from:",
            *(f"  {name:26s} {factor:.3g}" for name, factor in self.scale_factors.items()),
            *(f"note: {warning}" for warning in self.warnings),
            f"measured in {format_seconds(self.seconds)}",
        ]

    def text(self) -> str:
        rows = ((entry.name, entry.shown_value, entry.shown_spread, entry.shown_run) for entry in self.measurements)
        lines = (f"{name:20s} {value:>12s}  spread {spread:>4s}  {run}" for name, value, spread, run in rows)
        return "\n".join([*lines, *self.closing_lines()])
