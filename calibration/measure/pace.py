"""How long the rest of a plan takes: what was expected of its starts, times how those that are over compare with what was expected of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from calibration.measure.plan import Plan

__all__ = ["Pace"]


class _Ahead(NamedTuple):
    """A start that is to come."""

    place: int
    seconds: float | None


class Pace:
    """Keeps count of the starts of a plan. Times are seconds of one clock, given by the caller."""

    def __init__(self, plan: Plan, done: Collection[int], now: float) -> None:
        """done: places of the steps, from 0, that need no start."""
        pending = [place for place in range(len(plan.steps)) if place not in done]
        self._ahead = [
            _Ahead(place, seconds)
            for place in pending
            for seconds in plan.starts_s(place, is_first=place == pending[0])
        ]
        self._spent = self._expected = 0.0
        """Of the starts of which something was expected."""
        self._taken: list[float] = []
        self._began = now

    def begin(self, now: float) -> None:
        """A start begins."""
        self._began = now

    def end(self, place: int, now: float, *, is_apart: bool) -> None:
        """A start of the step at ``place`` is over; ``is_apart``: another one of the same step follows."""
        of_step = [start for start in self._ahead if start.place == place]
        self._ahead = [start for start in self._ahead if start.place != place]
        if not of_step:
            return
        this = of_step[0] if is_apart else of_step[-1]
        if is_apart:
            self._ahead.insert(0, of_step[-1])
        self._taken.append(now - self._began)
        if this.seconds is not None:
            self._spent += now - self._began
            self._expected += this.seconds
        self._began = now

    def left_s(self, now: float) -> float | None:
        """Seconds until the plan is done; None where nothing can be said."""
        if not self._ahead:
            return 0.0
        seconds = [self._of(start) for start in self._ahead]
        known = [value for value in seconds if value is not None]
        if len(known) < len(seconds):
            return None
        return max(0.0, known[0] - (now - self._began)) + sum(known[1:])

    def _of(self, start: _Ahead) -> float | None:
        """Seconds of a start: as expected, at the pace of those before; as long as those were on average where nothing was expected."""
        if start.seconds is None:
            return sum(self._taken) / len(self._taken) if self._taken else None
        return start.seconds * (self._spent / self._expected if self._expected > 0 else 1.0)
