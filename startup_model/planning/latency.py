"""What a first request waits, as a distribution: at once on a warm replica, or for a start in flight or all its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from startup_model.errors import MISSING, ConfigError, out_of_range, wrong_type
from startup_model.planning import times as starts
from startup_model.planning.pool import Arrivals, MeasuredArrivals, as_arrivals, smallest

BELIEFS = 800  # cold starts that stand for a distribution: its quantiles from 0.06 % to 99.94 %, evenly
SCATTERED_BELIEFS = 200  # the same where starts scatter as well, which blurs them
MAX_SCATTER = 2.0  # of the logarithm from start to start: one start in twenty takes 27 times the median
MAX_START_S = 1e9  # for longer starts: with few reference hosts the last quantiles of a prediction have no bound
NEGLIGIBLE_EXPONENT = 40.0  # probabilities below exp of its negative, 4e-18, count as 0
MAX_SCATTERED = 5_000  # starts in flight for which the scatter from start to start is worked out
MAX_REPLAYED = 100_000  # measured demands that are replayed with starts that scatter
DRAWS = 4_000_000  # start times drawn in all where measured demands meet starts that scatter
NO_SCATTER = "give scatter=0, which tells nearly the same with many demands, or a quantile"

Times = NDArray[np.float64]
Waits = Callable[[float], float]  # w -> probability that a demand waits longer than w [s] for a replica

Probability = Annotated[
    float, Field(gt=0, lt=1, description="0.99 asks for what 99 of 100 first requests get"), starts.Plain
]
Scatter = Annotated[
    float, Field(ge=0, le=MAX_SCATTER, description="0.01 for starts repeated on one host"), starts.Plain
]


@dataclass(frozen=True, eq=False)
class FirstRequestLatency:
    """Distribution of the time to the first answer of a demand for a replica. A Distribution itself."""

    warm_s: float
    """First request on a replica that is warm [s]."""
    first_s: float
    """First request on a replica that has just become ready [s]."""
    no_warm: float
    """Probability [1] that a demand has to wait for a start."""
    _waits_longer: Waits = field(repr=False)

    @starts.checked
    def probability_above(self, latency_s: starts.Time) -> float:
        """Probability [1] of a latency above ``latency_s`` [s]: the mixture of both kinds. Raises ConfigError."""
        waited = self._waits_longer(latency_s - self.first_s) if latency_s >= self.first_s else self.no_warm
        return waited + (1.0 - self.no_warm if latency_s < self.warm_s else 0.0)

    @starts.checked
    def quantile(self, probability: Probability) -> float:
        """Latency [s] that is not exceeded with this probability [1]. Raises ConfigError unless 0 < probability < 1."""
        if self.no_warm <= 1.0 - probability:
            return self.warm_s
        return self.first_s + smallest(lambda wait_s: self._waits_longer(wait_s) > 1.0 - probability, 1e-9)

    @property
    def p50_s(self) -> float:
        """The median [s]."""
        return self.quantile(0.5)

    @property
    def p90_s(self) -> float:
        """What nine first requests of ten stay below [s]."""
        return self.quantile(0.9)

    @property
    def p99_s(self) -> float:
        """What 99 first requests of 100 stay below [s]."""
        return self.quantile(0.99)


@starts.checked
def first_request_latency(
    size: starts.Count,
    cold_start: starts.ColdStart,
    arrivals: Arrivals | float,
    *,
    warm_s: starts.Time,
    first_s: float | None = None,
    quantile: float | None = None,
    scatter: Scatter = 0.0,
) -> FirstRequestLatency:
    """Distribution of the latency of first requests with a pool of ``size`` warm replicas.

    Equation: L = warm_s where a replica is warm, else W + first_s, with W the wait for the next replica that becomes ready and is not promised to an earlier
    demand. Each start takes T: P(W > w) = P(at least size demands in the last T - w), Poisson or counted. Starts scatter (lognormal, mean T): P(W > w) = S(w) × P(A - B >=
    size) + (1 - S(w)) × P(A - B >= size + 1), with S(w) = P(start > w), A and B Poisson, A of mean rate × (integral of S over w and beyond) the earlier starts still
    in flight after w, B of mean rate × (integral of 1 - S from 0 to w) the later ones that are ready by then; measured demands are replayed with drawn starts (a
    fixed seed).
    size [1]: 0 is scale from zero; cold_start: T [s], or a distribution; arrivals as in ``miss_probability``; warm_s [s]: first request on a warm
    replica; first_s [s]: on one that has just become ready (lazy initialisation), None: the same; quantile [1]: at which a distribution is taken, None: P is
    averaged over what is not known of T, so that the latency's quantiles hold that as well (beyond 0.999 of T nothing is told apart); scatter [1]: standard
    deviation of the logarithm from start to start, 0.01 for starts repeated on one host, 0.5 where nodes are provisioned. Raises ConfigError.
    Source: the backorder delays of base-stock inventory (Palm 1938; Sherbrooke 1968, "METRIC").
    """
    first_s = warm_s if first_s is None else starts.as_quantity("first_s", first_s)
    if first_s < warm_s:
        bounds = f"at least warm_s = {warm_s:g}: a replica that has just become ready is not faster than a warm one"
        raise out_of_range("first_s", first_s, bounds, "swap them or omit it")
    demands = as_arrivals(arrivals)
    cold = _cold_times(cold_start, quantile, SCATTERED_BELIEFS if scatter else BELIEFS)
    if isinstance(demands, MeasuredArrivals):
        waits = _replayed(size, demands.times_s, cold, scatter) if scatter else _counted(size, demands.times_s, cold)
    else:
        rate = demands.rate_per_s
        waits = _poisson_scattered(size, rate, cold, scatter) if scatter else _poisson(size, rate, cold)
    return FirstRequestLatency(warm_s, first_s, waits(0.0), waits)


def _cold_times(cold_start: starts.ColdStart, quantile: float | None, beliefs: int) -> Times:
    """Cold starts [s] that are equally likely: one, or what stands for a distribution."""
    if quantile is not None or not isinstance(cold_start, starts.Distribution):
        return np.array([starts.cold_seconds(cold_start, 0.5 if quantile is None else quantile)])
    starts.cold_seconds(cold_start, 0.5)  # refuses what cannot be planned with
    probabilities = (np.arange(beliefs) + 0.5) / beliefs
    times = [starts.quantile_of(cold_start, float(probability)) for probability in probabilities]
    if wrong := [time for time in times if not isinstance(time, Real) or not time >= 0]:
        raise wrong_type("cold_start", wrong[0], "seconds at every quantile")
    return np.array([float(min(time, MAX_START_S)) for time in times])


def _poisson(size: int, rate_per_s: float, cold: Times) -> Waits:
    """w -> P(W > w), each start taking one of ``cold``."""
    from scipy.special import pdtrc

    def waits_longer(wait_s: float) -> float:
        left = cold[cold > wait_s] - wait_s
        return float((pdtrc(size - 1, rate_per_s * left) if size else np.ones(len(left))).sum()) / len(cold)

    return waits_longer


def _counted(size: int, times: Times, cold: Times) -> Waits:
    """The same for measured demands: one waits longer than w where the one ``size`` before it came less than T - w ago."""
    gaps = np.sort(times[size:] - times[: len(times) - size]) if size < len(times) else times[:0]
    return lambda wait_s: float(np.searchsorted(gaps, cold - wait_s).sum()) / (len(times) * len(cold))


def _poisson_scattered(size: int, rate_per_s: float, cold: Times, scatter: float) -> Waits:
    """The same, starts being lognormal about a mean that is one of ``cold``."""
    from scipy.special import ndtr

    if (mean := rate_per_s * cold.max()) > MAX_SCATTERED:
        problem = f"{mean:.3g} starts are in flight on average, too many for starts that scatter"
        raise ConfigError("rate_per_s", rate_per_s, problem, NO_SCATTER)
    medians = cold * np.exp(-(scatter**2) / 2.0)

    def waits_longer(wait_s: float) -> float:
        with np.errstate(divide="ignore", over="ignore"):
            position = np.log(wait_s / medians) / scatter if wait_s > 0 else np.where(cold > 0.0, -np.inf, np.inf)
        longer = ndtr(-position)
        still = cold * ndtr(scatter - position) - wait_s * longer
        older, newer = rate_per_s * np.maximum(still, 0.0), rate_per_s * np.maximum(wait_s - cold + still, 0.0)
        waiting = longer * _difference_at_least(size, older, newer)
        waiting += (1.0 - longer) * _difference_at_least(size + 1, older, newer)
        return float(waiting.mean())

    return waits_longer


def _difference_at_least(least: int, plus: Times, minus: Times) -> Times:
    """P(A - B >= least) for A and B Poisson of the means ``plus`` and ``minus``: the sum of P(B = k) × P(A >= least + k), k within ten deviations of its mean.
    At most exp(-(sqrt(minus) - sqrt(plus))^2) where minus > plus and least >= 0 (Chernoff): what is negligible by that is left out, which bounds the terms."""
    from scipy.special import gammaln, pdtrc, xlogy

    total = np.zeros(len(plus))
    counts = np.sqrt(minus) - np.sqrt(plus) < NEGLIGIBLE_EXPONENT**0.5
    if not counts.any():
        return total
    plus, minus = plus[counts], minus[counts]
    reach = 10.0 * np.sqrt(minus) + 20.0
    first = np.maximum(0.0, np.floor(minus - reach))
    k = first[:, None] + np.arange(int(2.0 * reach.max()) + 2)
    weights = np.exp(xlogy(k, minus[:, None]) - minus[:, None] - gammaln(k + 1.0))
    at_least = np.where(least + k > 0, pdtrc(np.maximum(least + k - 1.0, 0.0), plus[:, None]), 1.0)
    total[counts] = (weights * at_least).sum(axis=1)
    return total


def _replayed(size: int, times: Times, cold: Times, scatter: float) -> Waits:
    """w -> share of the measured demands that wait longer, over repeated replays with drawn starts: the i-th demand is served by the (i - size)-th start that is
    ready."""
    if len(times) > MAX_REPLAYED:
        problem = f"{len(times):,} demands are too many to replay with starts that scatter"
        raise ConfigError("times_s", MISSING, problem, NO_SCATTER)
    if size >= len(times):
        return lambda wait_s: 0.0
    repeats = max(1, min(SCATTERED_BELIEFS, DRAWS // len(times)))
    generator = np.random.default_rng(0)
    means = np.quantile(cold, (np.arange(repeats) + 0.5) / repeats) * np.exp(-(scatter**2) / 2.0)
    waits = np.empty((repeats, len(times) - size))
    for row, mean in zip(waits, means, strict=True):
        ready = times + mean * np.exp(scatter * generator.standard_normal(len(times)))
        row[:] = np.sort(ready)[: len(times) - size] - times[size:]
    ordered = np.sort(waits, axis=None)
    demands = repeats * len(times)
    return lambda wait_s: float(len(ordered) - np.searchsorted(ordered, wait_s, side="right")) / demands
