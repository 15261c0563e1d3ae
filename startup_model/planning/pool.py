"""How many replicas to keep warm, and what they cost. Money is in whatever currency the price is in.

The pool holds n replicas. A demand takes a warm one and starts its replacement, which is ready a cold start later; where none is warm, the demand waits
for the next one that becomes ready. So the number of starts in flight, N, does not depend on n, and none is warm when N >= n.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from startup_model.errors import MISSING, ConfigError, StartupModelError, out_of_range, wrong_type
from startup_model.frozen import FrozenModel
from startup_model.planning import times as starts

MAX_ARRIVALS = 1_000_000  # a year of two demands a minute
MAX_TIME_S = 1e11  # seconds since 1970 up to the year 5138; larger numbers are milliseconds
SECONDS_PER_HOUR = 3600.0

Target = Annotated[
    float, Field(gt=0, lt=1, description="0.01: one demand in 100 may find no warm replica"), starts.Plain
]
Price = Annotated[float, Field(ge=0, le=1e9, description="in any currency"), starts.Plain]
Cost = Annotated[float, Field(ge=1e-12, le=1e9, description="a replica that costs nothing has no best number: give what it costs"), starts.Plain]  # fmt: skip
Worth = Annotated[float, Field(ge=1e-12, le=1e9, description="what one waited second is worth"), starts.Plain]


class PoissonArrivals(FrozenModel):
    """Demands for a replica that come independently of each other. Bursts are not: measure them."""

    rate_per_s: Annotated[float, Field(ge=0, le=1e6), starts.Plain]
    """Mean number of demands per second; an hourly rate / 3600."""


@dataclass(frozen=True, eq=False, init=False)
class MeasuredArrivals:
    """Demands for a replica as they came: bursts, daily cycles and all."""

    times_s: NDArray[np.float64] = field(repr=False)
    """Time of each demand [s] since any origin, in order."""
    duration_s: float
    """How long was measured [s]."""

    def __init__(self, times_s: Iterable[float], duration_s: float | None = None) -> None:
        """times_s [s]: numbers in any order; duration_s [s]: None for the time from the first demand to the last. Raises ConfigError for what is not a list
        of times, and for more than a million of them."""
        times = _times(times_s)
        span = float(times[-1] - times[0])
        duration = span if duration_s is None else starts.as_quantity("duration_s", duration_s)
        if duration < span:
            bounds = f"at least the {span:g} s that the demands span"
            raise out_of_range("duration_s", duration_s, bounds, "give the whole time measured")
        object.__setattr__(self, "times_s", times)
        object.__setattr__(self, "duration_s", duration)

    @property
    def measured_s(self) -> float:
        """The time measured [s]. Raises ConfigError where all demands came at once and no duration was given."""
        if not self.duration_s:
            raise ConfigError("duration_s", 0.0, "all demands come at once: there is no rate", "give duration_s")
        return self.duration_s

    @property
    def rate_per_s(self) -> float:
        """Demands per second. Raises ConfigError like ``measured_s``."""
        return len(self.times_s) / self.measured_s


Arrivals = PoissonArrivals | MeasuredArrivals


def as_arrivals(value: Arrivals | float) -> Arrivals:
    """Arrivals as they are; a number is a Poisson rate per second. Raises ConfigError for anything else."""
    if isinstance(value, Arrivals):
        return value
    try:
        return PoissonArrivals(rate_per_s=value)
    except ConfigError as error:
        remedy = "give PoissonArrivals(rate_per_s=...), MeasuredArrivals(times_s=[...]) or a rate"
        raise ConfigError("arrivals", value, error.problem, remedy) from None


def _times(values: object) -> NDArray[np.float64]:
    remedy = "such as [0.0, 12.5, 13.1]"
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | dict):
        raise wrong_type("times_s", values, "a list of times in seconds", remedy)
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "iuf"):
        problem = f"must be one dimension of seconds, got {values.dtype} with {values.ndim} dimensions"
        raise ConfigError("times_s", MISSING, problem, remedy)
    try:
        times = np.array(array("d", islice(values, MAX_ARRIVALS + 1)))
    except StartupModelError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise ConfigError("times_s", MISSING, "all values must be numbers", "give times in seconds") from None
    if not 0 < len(times) <= MAX_ARRIVALS:
        problem = f"must be 1 to {MAX_ARRIVALS:,} demands, got {'more' if len(times) else 0}"
        raise ConfigError("times_s", MISSING, problem, "give a shorter stretch, or the rate as PoissonArrivals")
    if len(wrong := times[~(np.abs(times) <= MAX_TIME_S)]):
        bounds = f"finite and within {MAX_TIME_S:g} s of the origin"
        raise out_of_range("times_s", float(wrong[0]), bounds, "give seconds; are these milliseconds?")
    times.sort()
    times.flags.writeable = False
    return times


class InFlight(NamedTuple):
    """How many starts are in flight."""

    at_least: Callable[[int], float]
    """n -> P(N >= n)."""
    within: Callable[[int], float]
    """n -> E[min(N, n)], the sum of P(N >= k) over k = 1 ... n."""


def _poisson(mean: float) -> InFlight:
    from scipy.special import pdtr, pdtrc  # what scipy.stats.poisson calls, without a second of imports

    return InFlight(
        lambda n: float(pdtrc(n - 1, mean)) if n > 0 else 1.0,
        lambda n: float(mean * pdtr(n - 1, mean) + n * pdtrc(n, mean)) if n > 0 else 0.0,
    )


def in_flight(arrivals: Arrivals | float, cold_s: float, *, seen: bool) -> InFlight:
    """Starts in flight when each takes ``cold_s`` [s]: as a demand sees them, or over time. For Poisson arrivals that is the same."""
    demands = as_arrivals(arrivals)
    if not isinstance(demands, MeasuredArrivals):
        return _poisson(demands.rate_per_s * cold_s)
    times = demands.times_s
    if seen:
        ready = np.searchsorted(times, times - cold_s, side="right")
        levels, weights = np.maximum(np.arange(len(times)) - ready, 0), np.full(len(times), 1.0)
    else:
        end = times[0] + demands.measured_s
        done = times + cold_s
        edges = np.concatenate((times, done[done < end]))
        order = np.argsort(edges, kind="stable")
        levels, weights = np.cumsum(np.where(order < len(times), 1, -1)), np.diff(edges[order], append=end)
    shares = np.cumsum(np.bincount(levels, weights=weights)[::-1])[::-1] / weights.sum()
    return InFlight(
        lambda n: 1.0 if n == 0 else float(shares[n]) if n < len(shares) else 0.0,
        lambda n: float(shares[1 : n + 1].sum()),
    )


@starts.checked
def miss_probability(
    size: starts.Count,
    cold_start: starts.ColdStart,
    arrivals: Arrivals | float,
    *,
    quantile: starts.Quantile = starts.DEFAULT_QUANTILE,
) -> float:
    """Probability [1] that a demand finds no warm replica.

    Equation: P = P(N >= size). Poisson arrivals: N is Poisson with mean rate × T, whatever distribution starts of mean T have (Palm's theorem for M/G/infinity;
    Poisson arrivals see time averages). Measured arrivals: the share of demands with at least ``size`` others in the T before them, exact where each
    start takes T; the pool is full at the first.
    size [1]; cold_start: T [s] from the demand to the replica that replaces the one taken (``lead_time`` where an autoscaler has to notice first), or a distribution,
    taken at ``quantile`` [1] (as the policy of ``scaling_budget`` has one); a plain prediction leaves node and image out (``predict(..., include=("provision",
    "image_pull", "container_start"))`` has them); arrivals: PoissonArrivals, MeasuredArrivals or a Poisson rate [1/s]. What a prediction does not know is common to all starts: averaged over starts it would promise a pool that is too small on a slow host, so
    T is one value, at a quantile. With size > T × rate the pool is refilled as fast as it is emptied, on average (Little's law), which says nothing of how often it is empty. Raises ConfigError.
    Source: C. Palm 1938; Feeney and Sherbrooke 1966, "The (s-1, s) inventory policy under compound Poisson demand".
    """
    return in_flight(arrivals, starts.cold_seconds(cold_start, quantile), seen=True).at_least(size)


@starts.checked
def pool_size(
    cold_start: starts.ColdStart,
    arrivals: Arrivals | float,
    target: Target,
    *,
    quantile: starts.Quantile = starts.DEFAULT_QUANTILE,
    largest: starts.Count = starts.MAX_POOL,
) -> int:
    """The smallest number [1] of replicas with which a demand finds none warm with at most a given probability.

    Equation: n = min {n: P(N >= n) <= target}, N the starts in flight as in ``miss_probability``; 0 for a start that takes no time. cold_start, arrivals, quantile as there. With
    cold_start = ``warm_time(T, headroom)`` it is the pool with which a wait exceeds the headroom with at most that probability. target [1]: between 0 and 1; with measured arrivals a target
    below one over their number means that none of them may find the pool empty, and says nothing of what is rarer. largest [1]: the size beyond
    which a pool is refused. Raises ConfigError, also where ``largest`` replicas do not reach the target.
    Source: as ``miss_probability``.
    """
    cold_s = starts.cold_seconds(cold_start, quantile)
    at_least = in_flight(arrivals, cold_s, seen=True).at_least
    if cold_s == 0.0:
        return 0
    size = bisect_left(range(largest + 1), -target, key=lambda n: -at_least(n))
    if size > largest:
        problem = f"with {largest:,} replicas still {at_least(largest):.3g} of the demands find none warm"
        remedy = "shorten the cold start, accept a larger target, or allow a larger pool"
        raise ConfigError("target", target, problem, remedy)
    return size


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


@starts.checked
def warm_cost(
    size: starts.Count,
    cold_start: starts.ColdStart,
    arrivals: Arrivals | float,
    *,
    money_per_replica_hour: Price,
    quantile: starts.Quantile = starts.DEFAULT_QUANTILE,
) -> WarmCost:
    """Cost of keeping a pool against the seconds that it saves.

    Equation: U = E[min(N, size)], seconds_saved_per_hour = 3600 × U, warm_replicas = size - U, money_per_hour = money_per_replica_hour × warm_replicas,
    money_per_second_saved = money_per_hour / seconds_saved_per_hour. N [1]: starts in flight as in ``miss_probability``, over time: Poisson, or as the
    measured demands make it. Demands wait E[(N - size)+] / rate each with a pool and E[N] / rate without (Little's law); the difference is U a second.
    So a warm replica saves at most one second of waiting per second.
    size [1]; cold_start, arrivals, quantile as in ``miss_probability``; money_per_replica_hour [money/h]. Raises ConfigError.
    Source: base-stock inventory under Poisson demand: (N - size)+ are the backorders, (size - N)+ the stock on hand.
    """
    used = in_flight(arrivals, starts.cold_seconds(cold_start, quantile), seen=False).within(size)
    unused, saved = max(0.0, size - used), SECONDS_PER_HOUR * used
    money = money_per_replica_hour * unused
    each = money / saved if saved > 0 else float("inf")
    return WarmCost(size, unused, money, money_per_replica_hour * size, saved, each)


@starts.checked
def best_pool_size(
    cold_start: starts.ColdStart,
    arrivals: Arrivals | float,
    *,
    money_per_replica_hour: Cost,
    value_per_second: Worth,
    quantile: starts.Quantile = starts.DEFAULT_QUANTILE,
    largest: starts.Count = starts.MAX_POOL,
) -> int:
    """The size [1] with the smallest cost of warm replicas and waiting together.

    Equation: n = min {n: P(N >= n + 1) <= c / (c + value_per_second)}, c = money_per_replica_hour / 3600. The next replica stands unused while N <= n and saves
    waiting while N > n. cold_start, arrivals, quantile as in ``miss_probability``; money_per_replica_hour [money/h]; value_per_second [money/s]: of one second
    that one demand waits; largest [1]: the size beyond which a pool is refused. Raises ConfigError, also for a price of 0.
    Source: the critical fraction of the newsvendor problem (Arrow, Harris and Marschak 1951).
    """
    fraction = _critical_fraction(money_per_replica_hour, value_per_second)
    at_least = in_flight(arrivals, starts.cold_seconds(cold_start, quantile), seen=False).at_least
    size = bisect_left(range(largest + 1), -fraction, key=lambda n: -at_least(n + 1))
    if size > largest:
        remedy = "give a smaller value or a higher price, or allow a larger pool"
        raise ConfigError("value_per_second", value_per_second, f"more than {largest:,} replicas would pay", remedy)
    return size


@starts.checked
def break_even_rate(
    size: starts.Positive,
    cold_start: starts.ColdStart,
    *,
    money_per_replica_hour: Cost,
    value_per_second: Worth,
    quantile: starts.Quantile = starts.DEFAULT_QUANTILE,
) -> float:
    """Rate of demands [1/s] from which a pool saves more than it costs; Poisson arrivals.

    Equation: value_per_second × U = c × (size - U), so E[min(N, size)] = size × c / (c + value_per_second) with N Poisson of mean rate × T and c =
    money_per_replica_hour / 3600, solved for the rate; for one replica rate = ln(1 + c / value_per_second) / T. size [1]; cold_start: T [s], or a distribution,
    taken at ``quantile`` [1]; money_per_replica_hour [money/h]; value_per_second [money/s]. Raises ConfigError, also for a start that takes no time and a price of 0.
    Source: as ``warm_cost``.
    """
    cold_s = starts.cold_seconds(cold_start, quantile)
    if cold_s == 0.0:
        raise ConfigError("cold_start", cold_start, "a cold start of 0 s leaves nothing to save", "give seconds")
    wanted = size * _critical_fraction(money_per_replica_hour, value_per_second)
    return smallest(lambda mean: _poisson(mean).within(size) < wanted, 1e-15) / cold_s


def smallest(is_below: Callable[[float], bool], tolerance: float) -> float:
    """The number from which on ``is_below`` is False, from above and not below 0; tolerance: relative above 1, absolute below."""
    low, high = 0.0, 1.0
    while is_below(high):
        low, high = high, 2.0 * high
    while high - low > tolerance * max(high, 1.0) and low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


def _critical_fraction(money_per_replica_hour: float, value_per_second: float) -> float:
    price = money_per_replica_hour / SECONDS_PER_HOUR
    return price / (price + value_per_second)
