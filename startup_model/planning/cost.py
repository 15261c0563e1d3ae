"""What warm replicas cost against the waiting that they save, and where the two break even. Money is in whatever currency the price is in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from startup_model.errors import ConfigError
from startup_model.planning.arrivals import Arrivals, MeasuredArrivals, as_arrivals
from startup_model.planning.checks import LARGEST_POOL, count, number
from startup_model.planning.policy import DEFAULT_QUANTILE
from startup_model.planning.pool import under_way_exceeds
from startup_model.planning.starts import ColdStart, cold_seconds

__all__ = ["WarmCost", "best_pool_size", "break_even_rate", "warm_cost"]

SECONDS_PER_HOUR = 3600.0
MOST_MONEY = 1e9
"""Largest price of a replica-hour or value of a second."""
LEAST_MONEY = 1e-12
"""Least of either where one is weighed against the other: what costs nothing has no best number."""


class WarmCost(NamedTuple):
    """What a pool costs and saves, against having none."""

    size: int
    warm_replicas: float
    """Mean number of replicas that stand ready and unused."""
    money_per_hour: float
    """For these. What starting replicas cost is left out: each demand starts one replica, with a pool or without."""
    reserved_money_per_hour: float
    """For all places of the pool, where they are paid whether a replica in them is warm or starting (reserved or own machines)."""
    seconds_saved_per_hour: float
    """Waiting of all demands together that the pool saves."""
    money_per_second_saved: float
    """Break-even: the pool pays where a second that a demand waits is worth more. Infinite where nothing is saved."""


def warm_cost(
    size: int,
    cold_start: ColdStart,
    arrivals: Arrivals | float,
    *,
    money_per_replica_hour: float,
    quantile: float = DEFAULT_QUANTILE,
) -> WarmCost:
    """Cost of keeping a pool against the seconds that it saves.

    Equation: U = E[min(N, size)], seconds_saved_per_hour = 3600 × U, warm_replicas = size - U, money_per_hour = money_per_replica_hour × warm_replicas,
    money_per_second_saved = money_per_hour / seconds_saved_per_hour. N [1]: starts under way as in ``no_warm_probability``, over time: Poisson, or as the
    measured demands make it. Demands wait E[(N - size)+] / rate each with a pool and E[N] / rate without (Little's law); the difference is U a second.
    So a warm replica saves at most one second of waiting per second.
    size [1]; cold_start, arrivals, quantile as in ``no_warm_probability``; money_per_replica_hour [money/h]. Raises ConfigError.
    Source: base-stock inventory under Poisson demand: (N - size)+ are the backorders, (size - N)+ the stock on hand.
    """
    size = count("size", size, 0, LARGEST_POOL)
    price = number("money_per_replica_hour", money_per_replica_hour, 0.0, MOST_MONEY, "in any currency")
    used = _under_way(as_arrivals(arrivals), cold_seconds(cold_start, quantile)).within(size)
    unused = max(0.0, size - used)
    money, saved = price * unused, SECONDS_PER_HOUR * used
    return WarmCost(size, unused, money, price * size, saved, money / saved if saved > 0 else float("inf"))


def best_pool_size(
    cold_start: ColdStart,
    arrivals: Arrivals | float,
    *,
    money_per_replica_hour: float,
    value_per_second: float,
    quantile: float = DEFAULT_QUANTILE,
    largest: int = LARGEST_POOL,
) -> int:
    """The size [1] with the smallest cost of warm replicas and waiting together.

    Equation: n = min {n: P(N >= n + 1) <= c / (c + value_per_second)}, c = money_per_replica_hour / 3600. The next replica stands unused while N <= n and saves
    waiting while N > n. cold_start, arrivals, quantile as in ``no_warm_probability``; money_per_replica_hour [money/h]; value_per_second [money/s]: of one second
    that one demand waits; largest [1]: the size beyond which a pool is refused. Raises ConfigError, also for a price of 0.
    Source: the critical fraction of the newsvendor problem (Arrow, Harris and Marschak 1951).
    """
    largest = count("largest", largest, 0, LARGEST_POOL)
    fraction = _fraction(money_per_replica_hour, value_per_second)
    at_least = _under_way(as_arrivals(arrivals), cold_seconds(cold_start, quantile)).at_least
    size = bisect_left(range(largest + 1), -fraction, key=lambda n: -at_least(n + 1))
    if size > largest:
        raise ConfigError(
            "value_per_second",
            value_per_second,
            f"more than {largest:,} replicas would pay",
            "give a smaller value or a higher price, or allow a larger pool",
        )
    return size


def break_even_rate(
    size: int,
    cold_start: ColdStart,
    *,
    money_per_replica_hour: float,
    value_per_second: float,
    quantile: float = DEFAULT_QUANTILE,
) -> float:
    """Rate of demands [1/s] from which a pool saves more than it costs; Poisson arrivals.

    Equation: value_per_second × U = c × (size - U), so E[min(N, size)] = size × c / (c + value_per_second) with N Poisson of mean rate × T and c =
    money_per_replica_hour / 3600, solved for the rate; for one replica rate = ln(1 + c / value_per_second) / T. size [1]; cold_start: T [s], or a distribution,
    taken at ``quantile`` [1]; money_per_replica_hour [money/h]; value_per_second [money/s]. Raises ConfigError, also for a start that takes no time and a price of 0.
    Source: as ``warm_cost``.
    """
    size = count("size", size, 1, LARGEST_POOL)
    cold_s = cold_seconds(cold_start, quantile)
    if cold_s == 0.0:
        raise ConfigError("cold_start", cold_start, "a start that takes no time leaves nothing to save", "give seconds")
    wanted = size * _fraction(money_per_replica_hour, value_per_second)
    low, high = 0.0, 1.0
    while _poisson_within(size, high) < wanted:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _poisson_within(size, middle) < wanted else (low, middle)
    return high / cold_s


class _UnderWay(NamedTuple):
    """How many starts are under way, over time."""

    at_least: Callable[[int], float]
    """n -> P(N >= n)."""
    within: Callable[[int], float]
    """n -> E[min(N, n)], the sum of P(N >= k) over k = 1 ... n."""


def _under_way(arrivals: Arrivals, cold_s: float) -> _UnderWay:
    if not isinstance(arrivals, MeasuredArrivals):
        mean = arrivals.rate_per_s * cold_s
        return _UnderWay(under_way_exceeds(mean), lambda n: _poisson_within(n, mean))
    shares = _measured_shares(arrivals, cold_s)
    return _UnderWay(lambda n: float(shares[n]) if n < len(shares) else 0.0, lambda n: float(shares[1 : n + 1].sum()))


def _poisson_within(size: int, mean: float) -> float:
    """E[min(N, size)] = mean × P(N <= size - 1) + size × P(N > size), for N Poisson of that mean."""
    from scipy.special import pdtr, pdtrc

    return float(mean * pdtr(size - 1, mean) + size * pdtrc(size, mean)) if size > 0 else 0.0


def _measured_shares(arrivals: MeasuredArrivals, cold_s: float) -> NDArray[np.float64]:
    """Share of the time measured during which at least n starts are under way, n = 0 and up."""
    begin, end = arrivals.times_s[0], arrivals.times_s[0] + arrivals.measured_s
    ready = arrivals.times_s + cold_s
    edges = np.concatenate((arrivals.times_s, ready[ready < end]))
    steps = np.concatenate((np.ones(len(arrivals.times_s), dtype=int), -np.ones(len(edges) - len(ready), dtype=int)))
    order = np.argsort(edges, kind="stable")
    lengths = np.diff(edges[order], append=end)
    seconds_at = np.bincount(np.cumsum(steps[order]), weights=lengths)
    shares: NDArray[np.float64] = np.cumsum(seconds_at[::-1])[::-1] / (end - begin)
    return shares


def _fraction(money_per_replica_hour: object, value_per_second: object) -> float:
    """c / (c + value), c the price of a replica-second."""
    free = "a replica that costs nothing has no best number: give what it costs"
    price = number("money_per_replica_hour", money_per_replica_hour, LEAST_MONEY, MOST_MONEY, free) / SECONDS_PER_HOUR
    value = number("value_per_second", value_per_second, LEAST_MONEY, MOST_MONEY, "what one waited second is worth")
    return price / (price + value)
