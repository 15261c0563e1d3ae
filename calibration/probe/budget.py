"""Time that a measurement may take."""

from __future__ import annotations

import time
from typing import NamedTuple, Self

__all__ = ["Budget"]


class Budget(NamedTuple):
    """A moment, by the monotonic clock, at which to be done."""

    until: float

    @classmethod
    def of(cls, seconds: float) -> Self:
        """From now on."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; never less than 0."""
        return max(0.0, self.until - time.monotonic())

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0.0

    def part(self, share: float, most_s: float = float("inf")) -> Budget:
        """A share of what is left, at most ``most_s`` seconds."""
        return Budget.of(min(self.left * share, most_s))
