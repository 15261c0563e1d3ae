"""How many replicas to keep warm: the refill inequality, and the size at which a demand rarely finds none.

The pool holds n replicas. A demand takes a warm one and starts its replacement, which is ready a cold start later; where none is warm, the demand waits
for the next one that becomes ready. So the number of starts under way, N, does not depend on n, and none is warm when N >= n.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from startup_model.errors import ConfigError
from startup_model.planning.arrivals import Arrivals, MeasuredArrivals, as_arrivals
from startup_model.planning.checks import LARGEST_POOL, count, number, open_probability, seconds
from startup_model.planning.policy import DEFAULT_QUANTILE
from startup_model.planning.starts import ColdStart, cold_seconds

__all__ = ["no_warm_probability", "pool_holds", "pool_size", "seen_under_way", "smallest_pool", "under_way_exceeds"]

MOST_DEMANDS = 1e9
"""Largest number of demands within one reuse time."""


def pool_holds(size: int, reuse_s: float, cold_s: float, demands_per_reuse: float) -> bool:
    """Whether a pool is refilled as fast as it is emptied, on average.

    Equation: size × reuse_s > cold_s × demands_per_reuse. size [1]: replicas of the pool; reuse_s [s]: time between two uses of the pool; cold_s [s]: a cold
    start; demands_per_reuse [1]: replicas that each use takes (the scale rate, counted per reuse time: with a rate per second the two sides would not
    have one unit). With reuse_s = 1 it is a rate per second and the inequality is size > cold_s × rate: more places than starts under way on
    average (Little's law). It says nothing of how often the pool is empty: see ``no_warm_probability``. Raises ConfigError.
    Source: pool size × T_reuse > T_cold × scale rate, engineering notes on arXiv 2606.07362.
    """
    size = count("size", size, 0, LARGEST_POOL)
    return size * _reuse(reuse_s) > seconds("cold_s", cold_s) * _demands(demands_per_reuse)


def smallest_pool(reuse_s: float, cold_s: float, demands_per_reuse: float, *, largest: int = LARGEST_POOL) -> int:
    """The smallest size [1] for which ``pool_holds``.

    Equation: size = floor(cold_s × demands_per_reuse / reuse_s) + 1, with reuse_s, cold_s [s] and demands_per_reuse [1] as there; largest [1]: more are
    refused. Raises ConfigError.
    Source: the inequality of ``pool_holds``, solved for the size.
    """
    largest = count("largest", largest, 1, LARGEST_POOL)
    under_way = seconds("cold_s", cold_s) * _demands(demands_per_reuse) / _reuse(reuse_s)
    if under_way >= largest:
        raise _absurd("demands_per_reuse", demands_per_reuse, under_way, largest)
    near = range(max(0, math.floor(under_way) - 1), math.floor(under_way) + 3)  # whichever way the division was rounded
    return next(size for size in near if pool_holds(size, reuse_s, cold_s, demands_per_reuse))


def no_warm_probability(
    size: int, cold_start: ColdStart, arrivals: Arrivals | float, *, quantile: float = DEFAULT_QUANTILE
) -> float:
    """Probability [1] that a demand finds no warm replica.

    Equation: P = P(N >= size). Poisson arrivals: N is Poisson with mean rate × T, whatever distribution starts of mean T have (Palm's theorem for M/G/infinity;
    Poisson arrivals see time averages). Measured arrivals: the share of demands with at least ``size`` others in the T before them, exact where each
    start takes T; the pool is full at the first.
    size [1]; cold_start: T [s] from the demand to the replica that replaces the one taken (``lead_time`` where an autoscaler has to notice first), or a distribution,
    taken at ``quantile`` [1] (as the policy of ``scaling_budget`` has one); a plain prediction leaves node and image out (``predict(..., include=("provision",
    "image_pull", "container_start"))`` has them); arrivals: PoissonArrivals, MeasuredArrivals or a Poisson rate [1/s]. What a prediction does not know is common to all starts: averaged over starts it would promise a pool that is too small on a slow host, so
    T is one value, at a quantile. Raises ConfigError.
    Source: C. Palm 1938; Feeney and Sherbrooke 1966, "The (s-1, s) inventory policy under compound Poisson demand".
    """
    size = count("size", size, 0, LARGEST_POOL)
    return seen_under_way(as_arrivals(arrivals), cold_seconds(cold_start, quantile))(size)


def pool_size(
    cold_start: ColdStart,
    arrivals: Arrivals | float,
    target: float,
    *,
    quantile: float = DEFAULT_QUANTILE,
    largest: int = LARGEST_POOL,
) -> int:
    """The smallest number [1] of replicas with which a demand finds none warm with at most a given probability.

    Equation: n = min {n: P(N >= n) <= target}, N the starts under way as in ``no_warm_probability``; 0 for a start that takes no time. cold_start, arrivals, quantile as there; a
    plain prediction leaves node and image out (``predict(..., include=("provision", "image_pull", "container_start"))`` has them). With cold_start =
    ``warm_time(T, headroom)`` it is the pool with which a wait exceeds the headroom with at most that probability. target [1]: between 0 and 1; with measured arrivals a target
    below one over their number means that none of them may find the pool empty, and says nothing of what is rarer. largest [1]: the size beyond
    which a pool is refused. Raises ConfigError, also where ``largest`` replicas do not reach the target.
    Source: as ``no_warm_probability``.
    """
    target = open_probability("target", target, "0.01: one demand in a hundred may find no warm replica")
    largest = count("largest", largest, 0, LARGEST_POOL)
    cold_s = cold_seconds(cold_start, quantile)
    probability = seen_under_way(as_arrivals(arrivals), cold_s)
    if cold_s == 0.0:
        return 0
    size = bisect_left(range(largest + 1), -target, key=lambda n: -probability(n))
    if size > largest:
        raise ConfigError(
            "target",
            target,
            f"with {largest:,} replicas still {probability(largest):.3g} of the demands find none warm",
            "shorten the cold start, accept a larger target, or allow a larger pool",
        )
    return size


def seen_under_way(arrivals: Arrivals, cold_s: float) -> Callable[[int], float]:
    """n -> probability that an arrival sees at least n starts under way."""
    if not isinstance(arrivals, MeasuredArrivals):
        return under_way_exceeds(arrivals.rate_per_s * cold_s)
    times = arrivals.times_s
    ready = np.searchsorted(times, times - cold_s, side="right")
    seen = np.sort(np.maximum(np.arange(len(times)) - ready, 0))
    return lambda n: 1.0 if n == 0 else float(len(seen) - np.searchsorted(seen, n)) / len(seen)


def under_way_exceeds(mean: float) -> Callable[[int], float]:
    """n -> P(N >= n) for N Poisson of that mean. scipy.special has what scipy.stats.poisson.sf calls, without a second of imports."""
    from scipy.special import pdtrc

    return lambda n: 1.0 if n == 0 else float(pdtrc(n - 1, mean))


def _reuse(value: object) -> float:
    time = seconds("reuse_s", value)
    if time == 0.0:
        raise ConfigError("reuse_s", value, "a pool that is used again at once is never refilled", "give the seconds")
    return time


def _demands(value: object) -> float:
    return number("demands_per_reuse", value, 0.0, MOST_DEMANDS)


def _absurd(field: str, value: object, under_way: float, largest: int) -> ConfigError:
    problem = f"it keeps {under_way:.3g} starts under way on average, the pool may have {largest:,} replicas"
    return ConfigError(field, value, problem, "shorten the cold start, or allow a larger pool")
