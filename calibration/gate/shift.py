"""Whether several phases moved together: the common factor of a host that is in another state, told from a phase that moved alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

__all__ = ["LogRatios", "Point", "Shift", "common_shift"]

FEWEST = 3
"""Phases from which a common factor is told from a phase that moved alone."""

SMALLEST = math.log(1.1)
"""Least logarithm of a factor that counts as a shift: sessions of one host differ by 1 to 5 % in most phases."""

WIDEST = 0.3
"""A phase moved along when its logarithm lies within this of the common one: two standard deviations of single phases."""

_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

_STEP = 0.005
_FARTHEST = 10.0


class Point(NamedTuple):
    """How far one phase has moved."""

    name: str
    log_ratio: float
    """Of measured over expected seconds."""
    resolution: float
    """What the stamps resolve, on the same scale."""


class Shift(NamedTuple):
    """What several phases have in common."""

    factor: float
    """exp(median of the logarithms); 1 when there are none."""
    scatter: float
    """Standard deviation of the logarithms, from the median absolute deviation."""
    points: int
    apart: tuple[str, ...]
    """Phases that did not move along."""
    is_common: bool
    """All, or all but one in four, moved by about this factor, and it is a shift."""


def common_shift(points: Sequence[Point]) -> Shift:
    """The factor that phases have moved by together.

    L_i = ln(measured_i / expected_i); factor = exp(m), m = median(L_i); scatter = 1.4826 × median |L_i - m|

    m [1], scatter [1]. A phase moved along when |L_i - m| is at most min(|m| / 2, 0.3), or what its stamps resolve. The shift is common when |m| exceeds
    ln 1.1, there are three phases at least, and at most one in four did not move along: the median alone would call three slow phases of five a slow
    host. Source: median and MAD resist up to half of outliers (Huber, Robust Statistics, 1981, section 5.1).
    """
    if not points:
        return Shift(1.0, 0.0, 0, (), is_common=False)
    centre = median(point.log_ratio for point in points)
    scatter = _MAD * median(abs(point.log_ratio - centre) for point in points)
    width = min(abs(centre) / 2.0, WIDEST)
    apart = tuple(point.name for point in points if abs(point.log_ratio - centre) > max(width, point.resolution))
    is_common = len(points) >= FEWEST and abs(centre) > SMALLEST and len(apart) <= len(points) // 4
    return Shift(math.exp(centre), scatter, len(points), apart, is_common=is_common)


class LogRatios:
    """Logarithms of many ratios in bounded memory: counts in steps of half a per cent."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.number = 0

    def add(self, log_ratio: float) -> None:
        """Take one more; beyond exp(±10) it counts as that."""
        self._counts[round(min(_FARTHEST, max(-_FARTHEST, log_ratio)) / _STEP)] += 1
        self.number += 1

    def median(self) -> float:
        """The middle one, to a quarter of a per cent; 0 when there are none."""
        return _middle(self._counts, self.number)

    def scatter(self) -> float:
        """Standard deviation, from the median absolute deviation."""
        centre = round(self.median() / _STEP)
        deviations: Counter[int] = Counter()
        for step, count in self._counts.items():
            deviations[abs(step - centre)] += count
        return _MAD * _middle(deviations, self.number)


def _middle(counts: Counter[int], number: int) -> float:
    """The median of counted steps; of an even number, between the two in the middle."""
    passed = 0
    lower: int | None = None
    for step in sorted(counts):
        passed += counts[step]
        if lower is None and 2 * passed >= number:
            lower = step
        if 2 * passed > number:
            return (step if lower is None else (lower + step) / 2.0) * _STEP
    return 0.0
