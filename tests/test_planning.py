"""Planning: formulas against simulations that do not know them, the figures of the engineering document, and bad input."""

from __future__ import annotations

import contextlib
import heapq
import inspect
import math
import subprocess
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from startup_model import HardwareConfig, ModelConfig, Phase, Profile, StartupPrediction, planning, predict
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError
from startup_model.hardware import CLUSTER_DEFAULTS
from startup_model.phases import BEFORE_ENGINE, PHASES
from startup_model.planning import (
    DEFAULT_QUANTILE,
    IMAGE_PULL_RATES,
    SEGMENT_RANGES,
    FirstRequestLatency,
    MeasuredArrivals,
    PoissonArrivals,
    ScalingPolicy,
    best_pool_size,
    break_even_rate,
    budget_seconds,
    cold_seconds,
    concurrent_starts,
    first_request_latency,
    forecast_horizon,
    from_zero,
    groups_needed,
    held_out_groups,
    image_pull_seconds,
    lead_time,
    miss_probability,
    moments,
    pool_size,
    rolling_update,
    scaling_budget,
    transfer_seconds,
    warm_cost,
    warm_time,
)
from startup_model.planning import latency as latency_module

LLAMA_8B = "meta-llama/Llama-3.1-8B"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"

Times = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Lognormal:
    """A cold start that is not known exactly."""

    median_s: float
    deviation: float

    def quantile(self, probability: float) -> float:
        return self.median_s * math.exp(self.deviation * NormalDist().inv_cdf(probability))


@dataclass(frozen=True)
class Odd:
    """A distribution that answers what it is told to."""

    answer: Any

    def quantile(self, probability: float) -> Any:
        return self.answer(probability) if callable(self.answer) else self.answer


@pytest.fixture(scope="module")
def prediction() -> StartupPrediction:
    return predict(LLAMA_8B, "h100-nvl", page_cache="cold", compile_cache="warm")


# --- a pool, event by event; nothing here knows a formula -----------------------------------------------------------------


def simulate(size: int, times: Sequence[float], starts: Sequence[float]) -> list[float]:
    """Waits [s] of demands that each take a warm replica and start another one; in the order of the demands."""
    events = [(time, 1, i) for i, time in enumerate(times)]
    heapq.heapify(events)
    warm, waiting, waits = size, deque[int](), [0.0] * len(times)
    while events:
        time, kind, i = heapq.heappop(events)
        if kind == 1:
            heapq.heappush(events, (time + starts[i], 0, i))
            waiting.append(i)
        else:
            warm += 1
        while warm and waiting:
            served = waiting.popleft()
            waits[served] = time - times[served]
            warm -= 1
    return waits


def simulated_under_way(times: Sequence[float], start_s: float, end_s: float) -> list[float]:
    """Seconds with 0, 1, 2 ... starts under way between the first demand and ``end_s``."""
    changes = sorted([(time, 1) for time in times] + [(time + start_s, -1) for time in times])
    lengths, under_way, before = [0.0] * (len(times) + 1), 0, times[0]
    for time, change in changes:
        now = min(time, end_s)
        lengths[under_way] += max(0.0, now - before)
        before, under_way = max(before, now), under_way + change
    lengths[under_way] += max(0.0, end_s - before)
    return lengths


def poisson_times(rate_per_s: float, demands: int, seed: int) -> list[float]:
    generator = np.random.default_rng(seed)
    return [float(time) for time in np.cumsum(generator.exponential(1.0 / rate_per_s, demands))]


def tolerance(probability: float, demands: int, under_way: float) -> float:
    """Four standard errors of a share, demands within one start of each other being alike."""
    return 4.0 * math.sqrt(probability * (1.0 - probability) * (1.0 + 2.0 * under_way) / demands) + 1e-9


DEMANDS = 20_000
START_TIMES: dict[str, Callable[[np.random.Generator], Times]] = {
    "fixed": lambda generator: np.full(DEMANDS, 60.0),
    "exponential": lambda generator: generator.exponential(60.0, DEMANDS),
    "lognormal": lambda generator: 60.0 * np.exp(generator.normal(-0.5, 1.0, DEMANDS)),
    "two kinds": lambda generator: np.where(generator.random(DEMANDS) < 0.9, 30.0, 330.0),
}
"""Start times of 60 s on average, however they scatter."""


@pytest.mark.parametrize("kind", START_TIMES)
@pytest.mark.parametrize("size", [0, 1, 3, 6])
def test_no_warm_probability_agrees_with_a_simulation_whatever_starts_scatter(kind: str, size: int) -> None:
    """Three starts under way on average. Palm's theorem: only the mean of the start time counts."""
    starts = [float(start) for start in START_TIMES[kind](np.random.default_rng(1))]
    waits = simulate(size, poisson_times(0.05, DEMANDS, seed=2), starts)
    found = miss_probability(size, 60.0, PoissonArrivals(rate_per_s=0.05))
    seen = sum(wait > 0 for wait in waits) / DEMANDS
    assert seen == pytest.approx(found, abs=tolerance(found, DEMANDS, 3.0))


def test_no_warm_probability_is_the_tail_of_the_poisson_distribution_of_scipy() -> None:
    for size in (1, 2, 7, 60):
        for rate, cold_s in ((0.001, 40.0), (0.05, 90.0), (2.0, 30.0)):
            found = miss_probability(size, cold_s, rate)
            assert found == pytest.approx(float(stats.poisson.sf(size - 1, rate * cold_s)), rel=1e-10, abs=1e-300)


def test_textbook_values_of_a_pool() -> None:
    """Poisson tables: mean 2.0, P(N >= 5) = 0.0527, P(N >= 6) = 0.0166."""
    assert miss_probability(5, 40.0, 0.05) == pytest.approx(0.0527, abs=5e-5)
    assert miss_probability(6, 40.0, 0.05) == pytest.approx(0.0166, abs=5e-5)
    assert pool_size(40.0, 0.05, 0.05) == 6
    assert pool_size(40.0, 0.05, 0.0527) == 5


def bursts(seed: int, groups: int = 300) -> list[float]:
    """Bursts of one to eight demands within seconds of each other, minutes apart; whole seconds, so that ties occur."""
    generator = np.random.default_rng(seed)
    begins = np.cumsum(generator.integers(60, 600, groups))
    spread = [begin + generator.integers(0, 4, generator.integers(1, 9)) for begin in begins]
    return sorted(float(time) for burst in spread for time in burst)


@pytest.mark.parametrize("size", [0, 1, 2, 4, 7, 9, 30])
@pytest.mark.parametrize("cold_s", [1.0, 45.0, 700.0])
def test_measured_arrivals_are_exact(size: int, cold_s: float) -> None:
    times = bursts(seed=3)
    waits = simulate(size, times, [cold_s] * len(times))
    arrivals = MeasuredArrivals(times)
    assert miss_probability(size, cold_s, arrivals) == sum(wait > 0 for wait in waits) / len(times)
    latency = first_request_latency(size, cold_s, arrivals, warm_s=0.0)
    for above in (0.0, 0.5, 3.0, 40.0, 44.0, 600.0):
        share = sum(wait > above for wait in waits) / len(times)
        assert latency.probability_above(above) == pytest.approx(share, abs=1e-12)
    for probability in (0.1, 0.5, 0.9, 0.99):
        expected = float(np.quantile(waits, probability, method="inverted_cdf"))
        assert latency.quantile(probability) == pytest.approx(expected, abs=1e-6)


def test_bursts_need_a_larger_pool_than_their_rate_lets_expect() -> None:
    arrivals = MeasuredArrivals(bursts(seed=4))
    by_rate = pool_size(45.0, PoissonArrivals(rate_per_s=arrivals.rate_per_s), 0.02)
    measured = pool_size(45.0, arrivals, 0.02)
    assert by_rate <= 4
    assert measured >= 7
    assert miss_probability(measured, 45.0, arrivals) <= 0.02 < miss_probability(measured - 1, 45.0, arrivals)


def test_measured_poisson_arrivals_give_nearly_the_pool_of_their_rate() -> None:
    arrivals = MeasuredArrivals(poisson_times(0.05, DEMANDS, seed=5))
    assert arrivals.rate_per_s == pytest.approx(0.05, rel=0.02)
    found = miss_probability(6, 60.0, 0.05)
    assert miss_probability(6, 60.0, arrivals) == pytest.approx(found, abs=tolerance(found, DEMANDS, 3.0))


@given(rate=st.floats(0.0, 5.0), cold_s=st.floats(0.1, 600.0), target=st.floats(1e-9, 0.999), more=st.floats(1.0, 3.0))
def test_the_pool_is_the_smallest_that_reaches_the_target(
    rate: float, cold_s: float, target: float, more: float
) -> None:
    arrivals = PoissonArrivals(rate_per_s=rate)
    size = pool_size(cold_s, arrivals, target)
    assert miss_probability(size, cold_s, arrivals) <= target
    assert size == 0 or miss_probability(size - 1, cold_s, arrivals) > target
    assert pool_size(cold_s * more, arrivals, target) >= size
    assert pool_size(cold_s, PoissonArrivals(rate_per_s=rate * more), target) >= size


def test_a_start_that_takes_no_time_needs_no_pool() -> None:
    assert pool_size(0.0, 5.0, 0.01) == pool_size(0.0, MeasuredArrivals([1.0, 1.0]), 0.01) == 0


@pytest.mark.parametrize("headroom_s", [0.0, 20.0, 55.0, 60.0, 90.0])
def test_the_pool_for_the_warm_time_rarely_lets_a_demand_wait_longer_than_the_headroom(headroom_s: float) -> None:
    """T_warm = max(0, T_cold - headroom) is the start time that a pool has to be sized for, exactly."""
    size = pool_size(warm_time(60.0, headroom_s), 0.05, 0.02)
    waits = simulate(size, poisson_times(0.05, DEMANDS, seed=12), [60.0] * DEMANDS)
    assert sum(wait > headroom_s for wait in waits) / DEMANDS <= 0.02 + tolerance(0.02, DEMANDS, 3.0)
    latency = first_request_latency(size, 60.0, 0.05, warm_s=0.0)
    assert latency.probability_above(headroom_s) <= 0.02
    if size:
        smaller = first_request_latency(size - 1, 60.0, 0.05, warm_s=0.0)
        assert smaller.probability_above(headroom_s) > 0.02


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40), st.integers(0, 12), st.integers(1, 200))
def test_any_measured_demands_agree_with_the_simulation(whole: list[int], size: int, cold_s: int) -> None:
    times = sorted(float(time) for time in whole)
    waits = simulate(size, times, [float(cold_s)] * len(times))
    arrivals = MeasuredArrivals(whole)
    assert miss_probability(size, float(cold_s), arrivals) == sum(wait > 0 for wait in waits) / len(times)
    latency = first_request_latency(size, float(cold_s), arrivals, warm_s=0.0)
    assert latency.quantile(0.999) == pytest.approx(max(waits), abs=1e-6)


def test_a_distribution_is_taken_at_the_quantile_that_the_caller_chooses(prediction: StartupPrediction) -> None:
    usual = prediction.quantile(DEFAULT_QUANTILE)
    assert miss_probability(3, prediction, 0.01) == miss_probability(3, usual, 0.01)
    assert miss_probability(3, prediction, 0.01, quantile=0.5) == miss_probability(3, prediction.total_s, 0.01)
    assert pool_size(prediction, 0.05, 0.01) == pool_size(usual, 0.05, 0.01)
    assert warm_cost(2, prediction, 0.05, **HOURLY) == warm_cost(2, usual, 0.05, **HOURLY)
    assert best_pool_size(prediction, 0.05, **VALUED) == best_pool_size(usual, 0.05, **VALUED)
    assert break_even_rate(2, prediction, **VALUED) == break_even_rate(2, usual, **VALUED)
    sizes = [pool_size(prediction, 0.05, 0.01, quantile=quantile) for quantile in (0.1, 0.5, 0.9, 0.99)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_a_pool_that_is_refilled_as_fast_as_it_is_emptied_may_yet_be_empty() -> None:
    """Pool size × T_reuse > T_cold × scale rate, or Little's law: at 0.05 demands a second and 60 s a start, three are in flight on average. Four places keep up, and yet a third of
    the demands finds none warm."""
    assert 3 * 1.0 <= 60.0 * 0.05 < 4 * 1.0
    assert miss_probability(4, 60.0, 0.05) == pytest.approx(0.353, abs=5e-4)
    assert pool_size(60.0, 0.05, 0.01) == 9


# --- the latency of first requests ---------------------------------------------------------------------------------------


def shares_above(waits: list[float], above: float) -> float:
    return sum(wait > above for wait in waits) / len(waits)


@pytest.mark.parametrize("size", [0, 1, 3, 6])
@pytest.mark.parametrize("scatter", [0.0, 0.2, 0.8])
def test_first_request_latency_agrees_with_a_simulation(size: int, scatter: float) -> None:
    generator = np.random.default_rng(6)
    starts = 60.0 * np.exp(generator.normal(-(scatter**2) / 2.0, scatter, DEMANDS))
    waits = simulate(size, poisson_times(0.05, DEMANDS, seed=7), [float(start) for start in starts])
    latency = first_request_latency(size, 60.0, 0.05, warm_s=0.3, first_s=2.0, scatter=scatter)
    assert latency.no_warm == pytest.approx(miss_probability(size, 60.0, 0.05), abs=1e-9)
    latencies = [wait + 2.0 if wait > 0 else 0.3 for wait in waits]
    for above in (0.2, 0.5, 1.9, 2.5, 7.0, 22.0, 42.0, 57.0, 62.5, 150.0):
        found = latency.probability_above(above)
        assert shares_above(latencies, above) == pytest.approx(found, abs=tolerance(found, DEMANDS, 3.0)), above
    for probability in (0.5, 0.9, 0.99):
        quantile = latency.quantile(probability)
        band = tolerance(probability, DEMANDS, 3.0)
        low, high = np.quantile(latencies, [max(0.0, probability - band), min(1.0, probability + band)])
        assert low - 1e-6 <= quantile <= high + 1e-6


@pytest.mark.parametrize("scatter", [0.1, 0.6])
def test_measured_demands_with_starts_that_scatter_agree_with_a_simulation(scatter: float) -> None:
    times = bursts(seed=8, groups=2000)
    generator = np.random.default_rng(9)
    starts = 45.0 * np.exp(generator.normal(-(scatter**2) / 2.0, scatter, len(times)))
    waits = simulate(3, times, [float(start) for start in starts])
    latency = first_request_latency(3, 45.0, MeasuredArrivals(times), warm_s=0.0, scatter=scatter)
    for above in (0.0, 10.0, 40.0, 60.0):
        assert latency.probability_above(above) == pytest.approx(shares_above(waits, above), abs=0.02)


def test_scale_from_zero_waits_for_the_whole_start_and_quantiles_hold_what_is_not_known() -> None:
    """Without a pool and with rare demands, latency is the cold start, as uncertain as that is, and the first request."""
    cold = Lognormal(60.0, 0.3)
    latency = first_request_latency(0, cold, 1e-6, warm_s=0.5)
    for probability in (0.1, 0.5, 0.9, 0.99):
        assert latency.quantile(probability) == pytest.approx(cold.quantile(probability) + 0.5, rel=0.01)
    fixed = first_request_latency(0, cold, 1e-6, warm_s=0.5, quantile=0.9)
    assert fixed.p50_s == pytest.approx(fixed.p99_s, rel=1e-6)
    assert fixed.p99_s == pytest.approx(cold.quantile(0.9) + 0.5, rel=1e-6)


@pytest.mark.parametrize("scatter", [0.0, 0.3])
def test_what_is_not_known_is_averaged_over(scatter: float) -> None:
    """The mixture over many cold starts, each known, one by one."""
    cold = Lognormal(60.0, 0.4)
    latency = first_request_latency(2, cold, 0.03, warm_s=0.2, scatter=scatter)
    known = [
        first_request_latency(2, cold.quantile((i + 0.5) / 400), 0.03, warm_s=0.2, scatter=scatter) for i in range(400)
    ]
    for above in (0.1, 5.0, 40.0, 80.0):
        expected = sum(one.probability_above(above) for one in known) / len(known)
        assert latency.probability_above(above) == pytest.approx(expected, abs=2e-3)


def test_starts_that_hardly_scatter_are_those_that_do_not() -> None:
    for size in (0, 1, 4):
        fixed = first_request_latency(size, 60.0, 0.05, warm_s=0.3)
        nearly = first_request_latency(size, 60.0, 0.05, warm_s=0.3, scatter=1e-4)
        for above in (0.0, 1.0, 20.0, 55.0, 61.0):
            assert nearly.probability_above(above) == pytest.approx(fixed.probability_above(above), abs=1e-6)


def test_the_mean_hides_what_the_quantiles_show(prediction: StartupPrediction) -> None:
    """A pool of two, a demand every hundred seconds: most first requests are served at once, one in a hundred waits most of a start."""
    latency = first_request_latency(2, prediction, PoissonArrivals(rate_per_s=0.01), warm_s=0.3, first_s=0.8)
    assert latency.p50_s == 0.3
    assert latency.p90_s < prediction.total_s < 2 * latency.p99_s
    assert isinstance(latency, FirstRequestLatency)
    assert isinstance(latency, planning.Distribution)
    assert "no_warm" in repr(latency)
    assert "lambda" not in repr(latency)


@pytest.mark.parametrize(("cold_s", "scatter"), [(0.0, 0.1), (1e-322, 0.0), (1e-322, 0.3)])
def test_quantiles_end_where_a_start_takes_no_time(cold_s: float, scatter: float) -> None:
    latency = first_request_latency(0, cold_s, 0.01, warm_s=1.0, scatter=scatter)
    assert latency.p50_s == pytest.approx(1.0, abs=1e-8)


def test_a_start_that_takes_no_time_does_not_scatter() -> None:
    assert first_request_latency(0, 0.0, 0.01, warm_s=1.0, scatter=0.1).no_warm == 0.0


@pytest.mark.parametrize(("rate", "above"), [(90.0, 1e8), (20.0, 6e5), (0.01, 9e8), (90.0, 1e3)])
def test_waits_far_beyond_a_start_take_no_memory(rate: float, above: float) -> None:
    tracemalloc.start()
    try:
        latency = first_request_latency(1, Lognormal(50.0, 0.01), rate, warm_s=1.0, scatter=0.5)
        assert latency.probability_above(above) < 1e-12
        assert tracemalloc.get_traced_memory()[1] < 1e8
    finally:
        tracemalloc.stop()


def test_the_longest_of_a_disordered_distribution_counts() -> None:
    disordered = SimpleNamespace(quantile=lambda probability: 1e9 if probability < 0.9 else 0.001)
    with pytest.raises(ConfigError, match=r"rate_per_s = 0\.01: 1e\+07 starts are in flight on average, too many"):
        first_request_latency(1, disordered, 0.01, warm_s=1.0, scatter=0.5)


@pytest.mark.parametrize(("plus", "minus"), [(3.0, 40.0), (3.0, 70.0), (0.0, 60.0), (50.0, 0.0), (4000.0, 4200.0)])
@pytest.mark.parametrize("least", [0, 1, 5])
def test_differences_of_counts_are_those_of_skellams_distribution(plus: float, minus: float, least: int) -> None:
    """scipy.stats.skellam (J. G. Skellam 1946), which does not take a mean of 0."""
    found = latency_module._difference_at_least(least, np.array([plus]), np.array([minus]))[0]
    expected = stats.skellam.sf(least - 1, max(plus, 1e-12), max(minus, 1e-12))
    assert found == pytest.approx(expected, abs=1e-7)


@given(
    size=st.integers(0, 6),
    cold_s=st.floats(0.0, 300.0),
    rate=st.floats(0.0, 0.2),
    scatter=st.sampled_from([0.0, 0.3]),
    probability=st.floats(0.001, 0.999),
)
@example(size=0, cold_s=2.2e-311, rate=0.0, scatter=0.3, probability=0.5)  # one second over it is no number
@settings(deadline=None)
def test_quantiles_of_latency_invert_its_probabilities(
    size: int, cold_s: float, rate: float, scatter: float, probability: float
) -> None:
    latency = first_request_latency(size, cold_s or 1.0, rate, warm_s=0.2, first_s=0.5, scatter=scatter)
    at = latency.quantile(probability)
    assert latency.probability_above(at * (1 + 1e-7) + 1e-7) <= 1.0 - probability + 1e-9
    if at > latency.warm_s:
        assert latency.probability_above(at * (1 - 1e-7) - 1e-7) >= 1.0 - probability - 1e-9
    assert latency.quantile(min(0.9995, probability * 1.1)) >= at
    larger = first_request_latency(size + 1, cold_s or 1.0, rate, warm_s=0.2, first_s=0.5, scatter=scatter)
    assert larger.quantile(probability) <= at + 1e-6


# --- cost -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 6])
def test_seconds_saved_agree_with_a_simulation(size: int) -> None:
    times = poisson_times(0.05, 40_000, seed=10)
    starts = [60.0] * len(times)
    saved = sum(simulate(0, times, starts)) - sum(simulate(size, times, starts))
    hours = (times[-1] - times[0]) / 3600.0
    found = warm_cost(size, 60.0, 0.05, money_per_replica_hour=4.0)
    assert found.seconds_saved_per_hour == pytest.approx(saved / hours, rel=0.02)
    measured = warm_cost(size, 60.0, MeasuredArrivals(times), money_per_replica_hour=4.0)
    assert measured.seconds_saved_per_hour == pytest.approx(saved / hours, rel=1e-4)
    assert measured.money_per_hour == pytest.approx(found.money_per_hour, rel=0.05)


def test_cost_of_one_warm_replica_by_hand() -> None:
    """One replica at 4 an hour, a demand every 100 s, a start of 50 s: N is Poisson of mean 0.5, so the replica is gone exp(-0.5) less than always: used 39.3 %."""
    cost = warm_cost(1, 50.0, 0.01, money_per_replica_hour=4.0)
    used = 1.0 - math.exp(-0.5)
    assert cost.warm_replicas == pytest.approx(1.0 - used)
    assert cost.money_per_hour == pytest.approx(4.0 * (1.0 - used))
    assert cost.reserved_money_per_hour == 4.0
    assert cost.seconds_saved_per_hour == pytest.approx(3600.0 * used)
    assert cost.money_per_second_saved == pytest.approx(4.0 * (1.0 - used) / (3600.0 * used))


def test_no_pool_costs_and_saves_nothing() -> None:
    for arrivals in (PoissonArrivals(rate_per_s=0.1), MeasuredArrivals([0.0, 9.0])):
        assert warm_cost(0, 50.0, arrivals, money_per_replica_hour=4.0) == (0, 0.0, 0.0, 0.0, 0.0, math.inf)
    assert warm_cost(2, 50.0, 0.0, money_per_replica_hour=4.0) == (2, 2.0, 8.0, 8.0, 0.0, math.inf)


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_at_the_break_even_rate_cost_equals_what_is_saved(size: int) -> None:
    rate = break_even_rate(size, 60.0, money_per_replica_hour=4.0, value_per_second=0.002)
    cost = warm_cost(size, 60.0, rate, money_per_replica_hour=4.0)
    assert cost.money_per_hour == pytest.approx(0.002 * cost.seconds_saved_per_hour, rel=1e-9)
    assert cost.money_per_second_saved == pytest.approx(0.002, rel=1e-9)
    assert warm_cost(size, 60.0, 1.1 * rate, money_per_replica_hour=4.0).money_per_second_saved < 0.002


def test_the_break_even_rate_of_one_replica_has_a_closed_form() -> None:
    rate = break_even_rate(1, 60.0, money_per_replica_hour=3.6, value_per_second=0.01)
    assert rate == pytest.approx(math.log1p(0.001 / 0.01) / 60.0, rel=1e-12)
    assert break_even_rate(3, 60.0, money_per_replica_hour=1e-12, value_per_second=1.0) < 1e-6
    assert math.isfinite(break_even_rate(1000, 60.0, money_per_replica_hour=1e9, value_per_second=1e-12))


@pytest.mark.parametrize("value_per_second", [0.0003, 0.001, 0.01, 1.0])
@pytest.mark.parametrize("kind", ["poisson", "measured"])
def test_the_best_pool_is_the_cheapest_of_all(value_per_second: float, kind: str) -> None:
    arrivals = PoissonArrivals(rate_per_s=0.05) if kind == "poisson" else MeasuredArrivals(bursts(seed=11))
    best = best_pool_size(60.0, arrivals, money_per_replica_hour=4.0, value_per_second=value_per_second)

    def total(size: int) -> float:
        cost = warm_cost(size, 60.0, arrivals, money_per_replica_hour=4.0)
        return cost.money_per_hour - value_per_second * cost.seconds_saved_per_hour

    assert total(best) <= min(total(size) for size in range(40)) + 1e-9


@given(st.lists(st.integers(0, 500), min_size=2, max_size=30), st.integers(1, 5), st.integers(0, 200))
def test_costs_of_measured_demands_are_those_of_the_levels_that_a_simulation_counts(
    whole: list[int], size: int, cold_s: int
) -> None:
    times = sorted(float(time) for time in whole)
    duration = times[-1] - times[0] + 50.0
    lengths = simulated_under_way(times, float(cold_s), times[0] + duration)
    used = sum(min(level, size) * length for level, length in enumerate(lengths)) / duration
    cost = warm_cost(size, float(cold_s), MeasuredArrivals(whole, duration), money_per_replica_hour=1.0)
    assert cost.warm_replicas == pytest.approx(size - used, abs=1e-9)
    assert cost.seconds_saved_per_hour == pytest.approx(3600.0 * used, abs=1e-6)


# --- lead times -----------------------------------------------------------------------------------------------------------


def test_lead_time_adds_what_follows_each_other() -> None:
    policy = ScalingPolicy(quantile=0.9, margin_factor=1.5, detection_s=30, decision_s="1 min")
    cold = Lognormal(40.0, 0.2)
    assert cold_seconds(cold, 0.5) == 40.0
    assert budget_seconds(cold, policy) == pytest.approx(1.5 * cold.quantile(0.9))
    assert lead_time(cold, policy) == pytest.approx(30.0 + 60.0 + 1.5 * cold.quantile(0.9))
    assert lead_time("40 s", policy) == pytest.approx(150.0)
    assert forecast_horizon(cold, 0.99, 60.0) == pytest.approx(cold.quantile(0.99) + 60.0)


def test_warm_time_is_what_headroom_leaves_of_a_start() -> None:
    """T_warm = max(0, T_cold - headroom)."""
    assert warm_time(40.0, 15.0) == 25.0
    assert warm_time(40.0, 40.0) == warm_time(40.0, 100.0) == 0.0


def test_a_budget_holds_the_same_numbers(prediction: StartupPrediction) -> None:
    policy = ScalingPolicy(headroom_s=20.0)
    budget = scaling_budget(prediction, policy)
    assert budget.cold_s == prediction.quantile(DEFAULT_QUANTILE)
    assert budget.budget_s == budget_seconds(prediction, policy) == pytest.approx(1.3 * budget.cold_s)
    assert budget.lead_time_s == lead_time(prediction, policy)
    assert budget.warm_time_s == pytest.approx(budget.lead_time_s - 20.0)
    assert budget.forecast_horizon_s == pytest.approx(budget.cold_s + 60.0)
    assert budget.cooldown_s == 300.0
    assert scaling_budget(600.0).cooldown_s == scaling_budget(600.0).lead_time_s == pytest.approx(810.0)
    assert scaling_budget(600.0, ScalingPolicy(cooldown_s=900)).cooldown_s == 900.0


def test_a_policy_may_be_its_fields_or_left_out(prediction: StartupPrediction) -> None:
    for function in (budget_seconds, lead_time, scaling_budget):
        assert function(prediction, {"quantile": 0.5}) == function(prediction, ScalingPolicy(quantile=0.5))
        assert (
            function(prediction, {})
            == function(prediction, None)
            == function(prediction)
            == function(prediction, ScalingPolicy())
        )


def test_one_quantile_is_the_default_everywhere_and_the_last_one_is_far_from_it_without_a_calibration() -> None:
    """Why the default is not 0.99: on a host that no profile stands for, three hosts make the spread (Student, 2 degrees)."""
    start = predicted()
    assert ScalingPolicy().quantile == DEFAULT_QUANTILE == 0.95
    assert not start.calibrated
    assert start.quantile(0.95) / start.total_s == pytest.approx(2.1, abs=0.2)
    assert start.quantile(0.99) / start.total_s == pytest.approx(6.0, abs=0.5)


@pytest.mark.parametrize(
    ("quantile", "groups"),
    [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.98, 49), (0.99, 99), (0.9995, 1999), (0.1, 9), (0.05, 19)],
)
def test_groups_that_a_quantile_needs(quantile: float, groups: int) -> None:
    """One-sided bounds from the largest of n: 9, 19 and 99 for 90, 95 and 99 %; as many for the quantiles below one half."""
    assert groups_needed(quantile) == groups


@given(st.floats(0.0005, 0.9995))
def test_so_many_groups_show_the_quantile_and_one_less_does_not(quantile: float) -> None:
    """The largest of n exchangeable errors is above the next with probability n / (n + 1)."""
    probability = max(quantile, 1.0 - quantile)
    needed = groups_needed(quantile)
    assert needed / (needed + 1) >= probability - 1e-9
    assert (needed - 1) / needed < probability


def test_held_out_groups_are_those_of_the_host() -> None:
    profile = Profile.reference("h100-nvl-epyc-9354")
    errors = {f"model {i}": 0.01 for i in range(12)}
    own = profile.replace(kind="calibrated", held_out=profile.held_out.replace(errors=errors))
    node = HardwareConfig.preset("h100-nvl", cpu={"model": profile.host.cpu})
    assert held_out_groups(predict(LLAMA_8B, node, profile=own)) == 12
    assert held_out_groups(predict(LLAMA_8B, "l40s", profile=own)) == 0  # another host
    assert held_out_groups(predict(LLAMA_8B, node)) == 0


@given(cold_s=st.floats(0, 1e5), more=st.floats(0, 1e4), margin=st.floats(1, 10), detection=st.floats(0, 300))
def test_a_slower_start_never_needs_a_shorter_lead(cold_s: float, more: float, margin: float, detection: float) -> None:
    policy = ScalingPolicy(margin_factor=margin, detection_s=detection)
    assert lead_time(cold_s + more, policy) >= lead_time(cold_s, policy) >= cold_s
    assert scaling_budget(cold_s, policy).warm_time_s >= 0.0


def test_moments_are_those_of_the_lognormal_distribution() -> None:
    for deviation in (0.05, 0.3, 1.0):
        found = moments(Lognormal(60.0, deviation))
        exact = stats.lognorm(s=deviation, scale=60.0)
        assert found.mean_s == pytest.approx(float(exact.mean()), rel=1e-9)
        assert found.standard_deviation_s == pytest.approx(float(exact.std()), rel=1e-9)
    assert moments(42.0) == (42.0, 0.0)


def test_moments_of_a_prediction_lie_near_it(prediction: StartupPrediction) -> None:
    found = moments(prediction)
    assert prediction.total_s < found.mean_s < prediction.quantile(0.9)
    assert 0.0 < found.standard_deviation_s < found.mean_s


# --- starts that share storage ---------------------------------------------------------------------------------------------


def test_starts_at_once_read_one_after_the_other_in_effect(prediction: StartupPrediction) -> None:
    """Reading is split evenly: each further start adds the time that one read takes alone."""
    events = concurrent_starts(prediction, (1, 2, 4, 8))
    call = prediction.phases["weight_load"].calls[0]
    inputs = dict(zip(call.term.inputs, call.inputs, strict=True))
    read_s = call.coefficients["storage_ratio"] * inputs["storage_bytes"] / inputs["storage_bandwidth"]
    for event in events:
        assert event.each_s == pytest.approx(prediction.total_s + (event.starts - 1) * read_s)
        assert event.each_s == event.prediction.total_s
        assert event.slowdown == pytest.approx(event.each_s / prediction.total_s)
    assert [event.starts for event in events] == [1, 2, 4, 8]
    assert events[0].spacing_s == 0.0
    assert events[3].spacing_s == pytest.approx(read_s)


def test_starts_begun_a_read_apart_are_ready_sooner_and_the_last_no_later(prediction: StartupPrediction) -> None:
    """A store that serves one reader after the other, step by step."""
    event = concurrent_starts(prediction, 6)[0]
    read_s, free_at, ready = event.spacing_s, 0.0, []
    before_s = 5.0  # whatever comes before the read
    after_s = prediction.total_s - before_s - read_s
    for i in range(6):
        begins_reading = max(i * event.spacing_s + before_s, free_at)
        free_at = begins_reading + read_s
        ready.append(free_at + after_s)
    assert ready[-1] == pytest.approx(event.each_s)
    assert sum(ready) / 6 == pytest.approx(event.mean_ready_s)
    assert event.mean_ready_s < event.each_s


def test_weights_in_the_page_cache_do_not_contend() -> None:
    hot = predict(LLAMA_8B, "h100-nvl", page_cache="hot", compile_cache="warm")
    assert [event.slowdown for event in concurrent_starts(hot, (1, 16))] == [1.0, 1.0]


def test_caches_of_unknown_state_count_as_cold_and_the_rest_of_the_prediction_is_kept() -> None:
    unknown = predict(LLAMA_8B, "h100-nvl", level=0.8, include=["first_request"])
    alone, eight = concurrent_starts(unknown, (1, 8))
    assert alone.each_s == pytest.approx(unknown.slowest_s)
    assert eight.each_s > 2 * alone.each_s
    assert eight.prediction.level == 0.8
    assert "first_request" in eight.prediction.phases
    assert unknown.context.start.hardware.storage.concurrent_starts == 1


def test_a_rolling_update_is_the_sum_of_its_batches(prediction: StartupPrediction) -> None:
    alone, two, five = (event.each_s for event in concurrent_starts(prediction, (1, 2, 5)))
    assert rolling_update(prediction, replicas=5, batch=2) == pytest.approx(2 * two + alone)
    assert rolling_update(prediction, replicas=4, batch=2) == pytest.approx(2 * two)
    assert rolling_update(prediction, replicas=5, batch=1) == pytest.approx(5 * alone)
    assert rolling_update(prediction, replicas=5, batch=5) == pytest.approx(five)
    assert rolling_update(prediction, replicas=5, batch=100) == pytest.approx(five)


# --- segments around the engine, and the figures of the engineering document -------------------------------------------------

GBPS = 1e9 / 8

TIERS = [
    # GB, tier, seconds, GB/s, Gbps: the seconds are the document's, the rates follow from them
    (5, "hot", 2, 2.5, 20.0),
    (5, "cold", 9, 0.556, 4.44),
    (5, "before", 24, 0.208, 1.67),
    (24, "hot", 8, 3.0, 24.0),
    (24, "cold", 35, 0.686, 5.49),
    (24, "before", 50, 0.48, 3.84),
]


@pytest.mark.parametrize(("gigabytes", "tier", "measured_s", "gigabytes_per_s", "gigabits_per_s"), TIERS)
def test_the_documents_tiered_cache_gives_rates_in_bytes(
    gigabytes: int, tier: str, measured_s: int, gigabytes_per_s: float, gigabits_per_s: float
) -> None:
    """Engineering document on cold starts, cache in front of cloud storage: "about 2 Gbps at best, 200 Mbps before, ten times as much"; 5 GB: 2 s hot, 9 s cold, 24 s
    before; 24 GB: 8 / 35 / 50 s.

    In bits, none of the six agrees: 2 Gbps moves 5 GB in 20 s and 24 GB in 96 s, 200 Mbps takes 200 s and 960 s; even the cold reads are two to three times faster than
    the "peak". In bytes, 5 GB at 200 MB/s takes 25 s (the document: 24 s), and 5 GB at 2 GB/s takes 2.5 s (2 s), 24 GB 12 s (8 s): hot reads are 25 to 50 % above a peak of
    2 GB/s, so that is rounded down or not the same measurement. The 50 s of 24 GB are another baseline than 200 MB/s (120 s).
    """
    size = f"{gigabytes} GB"
    assert transfer_seconds(size, f"{gigabytes_per_s} GB/s") == pytest.approx(measured_s, rel=0.002)
    assert transfer_seconds(size, f"{gigabits_per_s} Gbps") == pytest.approx(measured_s, rel=0.003)
    bits = transfer_seconds(size, "200 Mbps" if tier == "before" else "2 Gbps")
    assert bits > 1.9 * measured_s
    if tier == "hot":
        assert measured_s < transfer_seconds(size, "2 GB/s") <= 1.5 * measured_s


def test_the_documents_one_figure_before_the_cache_agrees_in_bytes() -> None:
    assert transfer_seconds("5 GB", "200 MB/s") == pytest.approx(24.0, rel=0.05)
    assert transfer_seconds("5 GB", "200 Mbps") == pytest.approx(200.0)


def test_the_documents_lower_bound_of_140_seconds_agrees_in_bits() -> None:
    """35 GB over 2 Gbps takes 140 s: here the document means bits; the same words in bytes would be 17.5 s."""
    assert transfer_seconds("35 GB", "2 Gbps") == 140.0
    assert transfer_seconds("35 GB", "2 GB/s") == 17.5
    assert transfer_seconds(35e9, 2 * GBPS) == 140.0


def test_the_documents_gains_are_six_to_twelve_times() -> None:
    """Before / hot of both models: 24 s / 2 s and 50 s / 8 s; whatever the unit."""
    rates = {(gigabytes, tier): rate for gigabytes, tier, _, rate, _ in TIERS}
    assert rates[5, "hot"] / rates[5, "before"] == pytest.approx(12, rel=0.01)
    assert rates[24, "hot"] / rates[24, "before"] == pytest.approx(6.25, rel=0.01)


def loaded(gigabytes: int, **storage: Any) -> float:
    """Seconds of weight_load for a checkpoint of this size on a node whose storage is given."""
    model = ModelConfig(
        name="a checkpoint",
        num_hidden_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        intermediate_size=11008,
        vocab_size=32000,
        checkpoint_bytes=gigabytes * 10**9,
    )
    node = HardwareConfig.preset("h100-nvl", storage=storage)
    state = "cold" if "tier" in storage else "hot"
    return predict(model, node, page_cache=state).phases["weight_load"].seconds


@pytest.mark.parametrize(
    ("gigabytes", "bandwidth", "measured_s"),
    [(5, "0.556 GB/s", 9), (5, "1.67 Gbps", 24), (24, "0.686 GB/s", 35), (24, "3.84 Gbps", 50), (35, "2 Gbps", 140)],
)
def test_predicted_loads_over_such_links_take_the_documents_seconds(
    gigabytes: int, bandwidth: str, measured_s: int
) -> None:
    """Through predict: the bytes over the link, and the copy to the device after it (8.3 GB/s); 1.026 is the reference host's time relative to a stated bandwidth."""
    seconds = loaded(gigabytes, object_store=bandwidth, tier="object_store")
    assert seconds == pytest.approx(1.026 * measured_s + gigabytes / 8.3, rel=0.01)
    assert seconds > measured_s


@pytest.mark.parametrize(("gigabytes", "bandwidth", "measured_s"), [(5, "2.5 GB/s", 2), (24, "24 Gbps", 8)])
def test_predicted_loads_from_memory_at_the_documents_hot_rate(gigabytes: int, bandwidth: str, measured_s: int) -> None:
    assert loaded(gigabytes, page_cache=bandwidth) == pytest.approx(measured_s, rel=0.02)


def test_segment_ranges_hold_the_defaults_and_name_their_source() -> None:
    assert list(SEGMENT_RANGES) == ["provision", "image_pull", "container_start", "first_request"]
    for entry in (*SEGMENT_RANGES.values(), *IMAGE_PULL_RATES.values()):
        assert 0 < entry.low < entry.typical < entry.high
        assert entry.source
    assert SEGMENT_RANGES["provision"].typical == CLUSTER_DEFAULTS["provision_s"]
    assert SEGMENT_RANGES["container_start"].typical == CLUSTER_DEFAULTS["container_start_s"]
    assert (
        SEGMENT_RANGES["image_pull"].low <= CLUSTER_DEFAULTS["image_bytes"] / CLUSTER_DEFAULTS["image_pull_bandwidth"]
    )


@pytest.mark.parametrize("phase", BEFORE_ENGINE)
def test_the_spread_of_a_segment_is_that_of_its_range(phase: Phase) -> None:
    """Two sides of one fact: where nobody gave the number, a segment scatters about as far as its range is wide, 80 to 98 % of it between the ends."""
    entry, deviation = SEGMENT_RANGES[phase.value], PHASES[phase].spread
    ends = math.log(entry.high / entry.low) / 2.0 / deviation
    assert NormalDist().inv_cdf(0.88) < ends < NormalDist().inv_cdf(0.99)


def test_the_quantile_of_a_start_from_nothing_stays_within_the_ranges() -> None:
    """Node, image and container at 0.99 beside the most that each was seen to take; before, a start of 222 s became 1266 s."""
    alone = predict(LLAMA_8B, "h100-nvl", page_cache="cold", compile_cache="warm")
    whole = predict(LLAMA_8B, "h100-nvl", page_cache="cold", compile_cache="warm", include=BEFORE_ENGINE)
    high = sum(SEGMENT_RANGES[phase.value].high for phase in BEFORE_ENGINE)
    assert whole.quantile(0.99) < alone.quantile(0.99) + high
    node = HardwareConfig.preset(
        "h100-nvl", provision_s=120, image_bytes=10e9, image_pull_bandwidth=0.1e9, container_start_s=2
    )
    given_by_node = predict(LLAMA_8B, node, page_cache="cold", compile_cache="warm", include=BEFORE_ENGINE)
    assert given_by_node.quantile(0.95) == pytest.approx(222.0 + alone.quantile(0.95), rel=0.1)
    assert given_by_node.quantile(0.95) < whole.quantile(0.95)


def test_an_image_is_pulled_plainly_or_lazily() -> None:
    """10 GB at 0.02-0.1 GB/s and at 0.3-0.75 GB/s."""
    assert image_pull_seconds()[:3] == pytest.approx((100.0, 200.0, 500.0))
    assert image_pull_seconds("10 GB", "lazy")[:3] == pytest.approx((13.33, 20.0, 33.33), rel=1e-3)
    assert image_pull_seconds(5e9)[:3] == pytest.approx((50.0, 100.0, 250.0))


def test_from_nothing_adds_the_segments_as_ranges(prediction: StartupPrediction) -> None:
    whole = from_zero(prediction)
    assert list(whole.parts) == ["provision", "image_pull", "container_start", "ready", "first_request"]
    assert whole.typical_s == pytest.approx(prediction.total_s + 120 + 200 + 2 + prediction.segments["first_request"])
    assert whole.low_s == pytest.approx(45 + 100 + 1 + prediction.interval[0] + prediction.segments["first_request"])
    assert whole.high_s == pytest.approx(410 + 500 + 5 + prediction.interval[1] + prediction.segments["first_request"])
    lazy = from_zero(prediction, "lazy")
    assert lazy.typical_s == pytest.approx(whole.typical_s - 180.0)


def test_from_nothing_takes_what_the_node_gives_and_counts_nothing_twice() -> None:
    node = HardwareConfig.preset("h100-nvl", provision_s=120.0, image_pull_bandwidth="1 GB/s", container_start_s=3.0)
    plain = predict(LLAMA_8B, node, page_cache="cold")
    everything = predict(
        LLAMA_8B, node, page_cache="cold", include=["provision", "image_pull", "container_start", "first_request"]
    )
    whole = from_zero(plain)
    assert whole.parts["provision"][:3] == (120.0, 120.0, 120.0)
    assert whole.parts["image_pull"][:3] == (10.0, 10.0, 10.0)
    assert whole.parts["container_start"][:3] == (3.0, 3.0, 3.0)
    assert from_zero(everything).typical_s == pytest.approx(whole.typical_s)
    assert from_zero(everything).parts["ready"][:3] == from_zero(plain).parts["ready"][:3]
    assert from_zero(plain).parts["ready"][:3] == (plain.interval[0], plain.total_s, plain.interval[1])


# --- bad input ------------------------------------------------------------------------------------------------------------


def endless() -> Iterator[float]:
    return repeat(1.0)


HOURLY: dict[str, Any] = {"money_per_replica_hour": 4.0}
VALUED = HOURLY | {"value_per_second": 0.01}
RATE = PoissonArrivals(rate_per_s=0.1)

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    # policies
    "a quantile of one": (
        lambda: ScalingPolicy(quantile=1.0),
        r"quantile = 1\.0: must be less than or equal to 0\.999",
    ),
    "a quantile of zero": (lambda: ScalingPolicy(quantile=0), r"quantile = 0: must be greater"),
    "a margin below one": (
        lambda: ScalingPolicy(margin_factor=0.9),
        r"margin_factor = 0\.9: .*greater than or equal to 1",
    ),
    "a margin above ten": (lambda: ScalingPolicy(margin_factor=11), r"margin_factor = 11: .*less than or equal to 10"),
    "a negative delay": (lambda: ScalingPolicy(detection_s=-1), r"detection_s: -1 is not a time"),
    "an unknown field": (
        lambda: ScalingPolicy(quantil=0.9),
        r"quantil: unknown field of ScalingPolicy .*did you mean 'quantile'",
    ),
    "a window that sees one sample": (
        lambda: ScalingPolicy(detection_s=30, decision_s=10),
        r"decision_s = 10\.0: must be at least detection_s = 30, to see a second measurement; lengthen it, or give 0",
    ),
    "a cool-down shorter than a start": (
        lambda: scaling_budget(120.0, ScalingPolicy(cooldown_s=60)),
        r"cooldown_s = 60\.0: must be at least the cold start of 120 s; lengthen it, or leave it out",
    ),
    "a policy in words": (
        lambda: scaling_budget(120.0, "x"),  # type: ignore[arg-type]
        r"policy = 'x': must be a ScalingPolicy or its fields; such as \{'quantile': 0\.9\}",
    ),
    "a policy of one number": (lambda: lead_time(120.0, 0.9), r"policy = 0\.9: must be a ScalingPolicy"),  # type: ignore[arg-type]
    "a list as policy": (lambda: budget_seconds(120.0, []), r"policy = \[\]: must be a ScalingPolicy"),  # type: ignore[arg-type]
    "a field that no policy has": (
        lambda: budget_seconds(120.0, {"quantil": 0.9}),
        r"quantil: unknown field of ScalingPolicy .*did you mean 'quantile'",
    ),
    "a field that is no name": (lambda: lead_time(120.0, {3: 4}), r"3 = 3: keys should be strings"),  # type: ignore[dict-item]
    "a policy with a quantile of two": (lambda: lead_time(120.0, {"quantile": 2}), r"quantile = 2: must be less"),
    "groups for certain": (
        lambda: groups_needed(1.0),
        r"quantile = 1\.0: .* less than or equal to 0\.9995; 0\.9: what 9 of 10 starts stay below",
    ),
    "groups of no prediction": (
        lambda: held_out_groups(3),  # type: ignore[arg-type]
        r"prediction = 3: must be a prediction; give what predict\(\.\.\.\) returns",
    ),
    # starts
    "a probability of zero": (
        lambda: cold_seconds(10.0, 0.0),
        r"probability = 0\.0: .* greater than or equal to 0\.0005; 0\.9: what 9 of 10",
    ),
    "a probability of one": (
        lambda: cold_seconds(Lognormal(1, 1), 1),
        r"probability = 1: .* less than or equal to 0\.9995",
    ),
    "a probability that is none": (
        lambda: forecast_horizon(10.0, float("nan")),
        r"probability = nan: .* finite number",
    ),
    "a probability in words": (lambda: cold_seconds(10.0, "p99"), r"probability = 'p99': .* valid number"),  # type: ignore[arg-type]
    "a start of NaN": (
        lambda: cold_seconds(float("nan"), 0.5),
        r"cold_start: nan is not a time in seconds between 0 and 1e\+09",
    ),
    "a start of minus one": (lambda: moments(-1.0), r"cold_start: -1\.0 is not a time in seconds"),
    "a start without end": (lambda: lead_time(math.inf, ScalingPolicy()), r"cold_start: inf is not a time in seconds"),
    "a start in words": (
        lambda: cold_seconds("soon", 0.5),
        r"cold_start: 'soon' is not a time; write it such as '90 s'",
    ),
    "a start of True": (lambda: cold_seconds(True, 0.5), r"cold_start: True is not a time"),
    "a start that is a list": (lambda: cold_seconds([1], 0.5), r"cold_start: \[1\] is not a time"),  # type: ignore[arg-type]
    "a huge start": (lambda: cold_seconds(10**400, 0.5), r"cold_start: about 10\^400 is too large for a time"),
    "a distribution of NaN": (
        lambda: cold_seconds(Odd(math.nan), 0.9),
        r"cold_start\.quantile\(0\.9\): nan is not a time",
    ),
    "a distribution of words": (
        lambda: cold_seconds(Odd([]), 0.9),
        r"cold_start\.quantile\(0\.9\): \[\] is not a time",
    ),
    "a distribution that shrinks": (
        lambda: moments(Odd(lambda p: 10.0 - p)),
        r"cold_start: its quantiles at 0\.1 and 0\.9 are 9\.9 s and 9\.1 s: no lognormal distribution .*give mean and deviation",
    ),
    "a distribution from zero": (
        lambda: moments(Odd(lambda p: 0.0 if p < 0.5 else 9.0)),
        r"are 0 s and 9 s: no lognormal",
    ),
    "a distribution of all sizes": (lambda: moments(Lognormal(1.0, 8.0)), r"no lognormal distribution to draw from"),
    "a distribution that goes wrong": (
        lambda: first_request_latency(1, Odd(lambda p: 9.0 if p < 0.9 else "x"), 0.1, warm_s=1.0),
        r"cold_start = 'x': must be seconds at every quantile",
    ),
    "a negative headroom": (lambda: warm_time(40.0, -1.0), r"headroom_s: -1\.0 is not a time"),
    "a negative margin": (lambda: forecast_horizon(40.0, 0.9, -1.0), r"margin_s: -1\.0 is not a time"),
    # arrivals
    "a negative rate": (lambda: PoissonArrivals(rate_per_s=-0.1), r"rate_per_s = -0\.1: .*greater than or equal to 0"),
    "a rate of NaN": (lambda: PoissonArrivals(rate_per_s=math.nan), r"rate_per_s = nan: must be a finite number"),
    "a rate of 1e18": (
        lambda: PoissonArrivals(rate_per_s=1e18),
        r"rate_per_s = 1e\+18: .*less than or equal to 1000000",
    ),
    "a bare negative rate": (
        lambda: pool_size(40.0, -0.1, 0.01),
        r"arrivals = -0\.1: .*give PoissonArrivals\(rate_per_s=\.\.\.\)",
    ),
    "arrivals in words": (
        lambda: miss_probability(1, 40.0, "many"),
        r"arrivals = 'many': .* valid number; give PoissonArrivals",
    ),  # type: ignore[arg-type]
    "10^9 arrivals": (
        lambda: MeasuredArrivals(range(10**9)),
        r"times_s: must be 1 to 1,000,000 demands, got more; .*or the rate as PoissonArrivals",
    ),  # type: ignore[arg-type]
    "10^9 arrivals of an array": (
        lambda: MeasuredArrivals(np.broadcast_to(np.float64(1.0), 10**9)),
        r"times_s: must be 1 to 1,000,000 demands, got more",
    ),
    "arrivals without end": (lambda: MeasuredArrivals(endless()), r"times_s: must be 1 to 1,000,000 demands, got more"),
    "no arrivals": (lambda: MeasuredArrivals([]), r"times_s: must be 1 to 1,000,000 demands, got 0"),
    "arrivals in milliseconds": (
        lambda: MeasuredArrivals([1.7e12]),
        r"times_s = 1700000000000\.0: .*are these milliseconds",
    ),  # type: ignore[arg-type]
    "an arrival of NaN": (
        lambda: MeasuredArrivals([1.0, math.nan]),
        r"times_s = nan: must be finite and within 1e\+11 s of the origin; give seconds; are these milliseconds",
    ),
    "arrivals of words": (
        lambda: MeasuredArrivals(["1"]),
        r"times_s: all values must be numbers; give times in seconds",
    ),  # type: ignore[arg-type]
    "a huge arrival": (lambda: MeasuredArrivals([10**400]), r"times_s: all values must be numbers"),
    "a text of arrivals": (
        lambda: MeasuredArrivals("1 2 3"),
        r"times_s = '1 2 3': must be a list of times in seconds; such as \[0\.0",
    ),  # type: ignore[arg-type]
    "one number": (lambda: MeasuredArrivals(3.0), r"times_s = 3\.0: must be a list of times"),  # type: ignore[arg-type]
    "dates": (
        lambda: MeasuredArrivals(np.array(["2026-01-01"], dtype="datetime64[s]")),
        r"times_s: must be one dimension of seconds, got datetime64\[s\] with 1 dimensions",
    ),
    "a table": (
        lambda: MeasuredArrivals(np.zeros((2, 2))),
        r"times_s: must be one dimension of seconds, got float64 with 2 dimensions",
    ),
    "a duration too short": (
        lambda: MeasuredArrivals([0.0, 9.0], 5.0),
        r"duration_s = 5\.0: must be at least the 9 s that the demands span; give the whole time measured",
    ),
    "a rate of one moment": (lambda: MeasuredArrivals([3.0, 3.0]).rate_per_s, r"duration_s = 0\.0: .*give duration_s"),
    "a cost of one moment": (
        lambda: warm_cost(1, 9.0, MeasuredArrivals([3.0]), **HOURLY),
        r"duration_s = 0\.0: all demands come at once: there is no rate; give duration_s",
    ),
    # pools
    "a target of zero": (
        lambda: pool_size(40.0, RATE, 0.0),
        r"target = 0\.0: .* greater than 0; 0\.01: one demand",
    ),
    "a target of one": (lambda: pool_size(40.0, RATE, 1), r"target = 1: .* less than 1; 0\.01: one demand"),
    "a target of NaN": (lambda: pool_size(40.0, RATE, math.nan), r"target = nan: .* finite number"),
    "a negative pool": (
        lambda: miss_probability(-1, 40.0, RATE),
        r"size = -1: .* greater than or equal to 0",
    ),
    "half a replica": (lambda: miss_probability(0.5, 40.0, RATE), r"size = 0\.5: .* valid integer"),  # type: ignore[arg-type]
    "a pool of True": (lambda: miss_probability(True, 40.0, RATE), r"size = True: .* valid integer"),
    "a pool of 10^18": (
        lambda: warm_cost(10**18, 40.0, RATE, **HOURLY),
        r"size = 1000000000000000000: .* less than or equal to 100000",
    ),
    "an absurd pool": (
        lambda: pool_size(600.0, 1e5, 0.01),
        r"target = 0\.01: with 100,000 replicas still 1 of the demands find none warm; shorten the cold start, accept a larger target",
    ),
    "a pool that may not be as large as it must": (
        lambda: pool_size(60.0, 0.05, 0.01, largest=5),
        r"target = 0\.01: with 5 replicas still 0\.185 of the demands find none warm",
    ),
    "a start at a quantile of one": (
        lambda: miss_probability(1, 40.0, RATE, quantile=1.0),
        r"quantile = 1\.0: .* less than or equal to 0\.9995",
    ),
    # cost
    "a negative price": (
        lambda: warm_cost(1, 40.0, RATE, money_per_replica_hour=-1.0),
        r"money_per_replica_hour = -1\.0: .*in any currency",
    ),
    "a price of NaN": (
        lambda: warm_cost(1, 40.0, RATE, money_per_replica_hour=math.nan),
        r"money_per_replica_hour = nan",
    ),
    "a pool for nothing": (
        lambda: best_pool_size(40.0, RATE, money_per_replica_hour=0, value_per_second=1.0),
        r"money_per_replica_hour = 0: .*; a replica that costs nothing has no best number",
    ),
    "a break-even for nothing": (
        lambda: break_even_rate(1, 40.0, money_per_replica_hour=0.0, value_per_second=1.0),
        r"money_per_replica_hour = 0\.0: .*: give what it costs",
    ),
    "a second that is worth nothing": (
        lambda: best_pool_size(40.0, RATE, money_per_replica_hour=1.0, value_per_second=0.0),
        r"value_per_second = 0\.0: .*; what one waited second is worth",
    ),
    "a pool that pays beyond its limit": (
        lambda: best_pool_size(60.0, 0.05, largest=2, **VALUED),
        r"value_per_second = 0\.01: more than 2 replicas would pay; give a smaller value or a higher price, or allow a larger pool",
    ),
    "a break-even without a pool": (
        lambda: break_even_rate(0, 40.0, **VALUED),
        r"size = 0: .* greater than or equal to 1",
    ),
    "a break-even without a start": (
        lambda: break_even_rate(1, 0.0, **VALUED),
        r"cold_start = 0\.0: a cold start of 0 s leaves nothing to save",
    ),
    # latency
    "a first request faster than a warm one": (
        lambda: first_request_latency(1, 40.0, RATE, warm_s=1.0, first_s=0.5),
        r"first_s = 0\.5: must be at least warm_s = 1: .*; swap them or omit it",
    ),
    "a negative scatter": (
        lambda: first_request_latency(1, 40.0, RATE, warm_s=1, scatter=-1),
        r"scatter = -1: .* greater than or equal to 0; 0\.01 for starts repeated on one host",
    ),
    "a scatter of ten": (
        lambda: first_request_latency(1, 40.0, RATE, warm_s=1, scatter=10),
        r"scatter = 10: .* less than or equal to 2",
    ),
    "a quantile of latency of one": (
        lambda: first_request_latency(1, 40.0, RATE, warm_s=1).quantile(1.0),
        r"probability = 1\.0: .* less than 1; 0\.99 asks for",
    ),
    "a negative latency": (
        lambda: first_request_latency(1, 40.0, RATE, warm_s=1).probability_above(-1),
        r"latency_s: -1 is not a time",
    ),
    "too much that scatters": (
        lambda: first_request_latency(1, 1e6, 10.0, warm_s=1, scatter=0.1),
        r"rate_per_s = 10\.0: 1e\+07 starts are in flight on average, too many for starts that scatter; give scatter=0",
    ),
    "too many that scatter": (
        lambda: first_request_latency(1, 1.0, MeasuredArrivals(np.arange(100_001.0)), warm_s=1, scatter=0.1),
        r"times_s: 100,001 demands are too many to replay with starts that scatter; give scatter=0",
    ),
    # events and segments
    "starts of sixty seconds": (
        lambda: concurrent_starts(60),  # type: ignore[arg-type]
        r"prediction = 60: must be a prediction; give what predict\(\.\.\.\) returns",
    ),
    "an update of nothing": (
        lambda: rolling_update(None, replicas=2, batch=1),  # type: ignore[arg-type]
        r"prediction = None: must be a prediction; give what",
    ),
    "nothing, from nothing": (lambda: from_zero("x"), r"prediction = 'x': must be a prediction; give what predict"),  # type: ignore[arg-type]
    "starts of a server that does not start": (
        lambda: concurrent_starts(predict(LLAMA_70B, "h100-nvl"), 2),
        r"prediction = '.*does not start .*: the model does not fit; see prediction\.memory\.remedies",
    ),
    "no starts": (
        lambda: concurrent_starts(predicted(), ()),
        r"starts: at least one number of starts is needed; such as \(1, 8\)",
    ),
    "zero starts": (
        lambda: concurrent_starts(predicted(), 0),
        r"starts\.0 = 0: .* greater than or equal to 1$",
    ),
    "starts in words": (lambda: concurrent_starts(predicted(), "12"), r"starts\.0 = '12': .* valid integer"),  # type: ignore[arg-type]
    "starts without end": (
        lambda: concurrent_starts(predicted(), repeat(1)),
        r"starts = a tuple of 1001 items: .* at most 1000 items",
    ),
    "no replicas": (
        lambda: rolling_update(predicted(), replicas=0, batch=1),
        r"replicas = 0: .* greater than or equal to 1",
    ),
    "empty batches": (
        lambda: rolling_update(predicted(), replicas=2, batch=0),
        r"batch = 0: .* greater than or equal to 1",
    ),
    "a link of zero": (lambda: transfer_seconds(5e9, 0.0), r"bandwidth = 0\.0: must be above 0; give bytes per second"),
    "an ambiguous link": (
        lambda: transfer_seconds(5e9, "2 gbps"),
        r"transfer: '2 gbps' has the unknown or ambiguous unit",
    ),
    "a size of NaN": (lambda: transfer_seconds(math.nan, 1.0), r"transfer: nan is not a size in bytes"),
    "an unknown pull": (
        lambda: image_pull_seconds(1e9, "lasy"),
        r"pull = 'lasy': not a known name; did you mean 'lazy'\?",
    ),  # type: ignore[arg-type]
    "a server that does not start": (
        lambda: pool_size(predict(LLAMA_70B, "h100-nvl"), RATE, 0.01),
        r"cold_start = '.*does not start .*: the model does not fit; see prediction\.memory\.remedies",
    ),
    "a distribution that raises": (
        lambda: cold_seconds(SimpleNamespace(quantile=lambda p: {}[p]), 0.5),
        r"cold_start\.quantile\(0\.5\): it raises KeyError; give seconds, or an object whose quantile",
    ),
    "a distribution that raises when asked for all of it": (
        lambda: first_request_latency(
            1, SimpleNamespace(quantile=lambda p: 1.0 if p == 0.5 else {}[p]), RATE, warm_s=1
        ),
        r"cold_start\.quantile\(0\.000625\): it raises KeyError; give seconds",
    ),
    "the class of a distribution": (
        lambda: scaling_budget(Lognormal),  # type: ignore[arg-type]
        r"cold_start\.quantile\(0\.95\): it raises TypeError; give seconds",
    ),
    "an array without a dimension as times": (
        lambda: MeasuredArrivals(np.array(3.0)),
        r"times_s: must be one dimension of seconds, got float64 with 0 dimensions",
    ),
    "an array without a dimension as starts": (
        lambda: concurrent_starts(predicted(), np.array(3)),  # type: ignore[arg-type]
        r"starts\.0 = .*: .* valid integer",
    ),
    "a server that does not start, from nothing": (
        lambda: from_zero(predict(LLAMA_70B, "h100-nvl")),
        r"prediction = '.*does not start .*: the model does not fit",
    ),
}


def predicted() -> StartupPrediction:
    return predict(LLAMA_8B, "h100-nvl", page_cache="cold", compile_cache="warm")


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_line_with_field_value_and_remedy(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message) as refused:
        call()
    text = str(refused.value)
    assert text.isprintable()
    assert len(text) <= 600


def test_an_unknown_pull_is_of_the_kind_for_names(prediction: StartupPrediction) -> None:
    with pytest.raises(UnknownNameError, match="known: lazy, plain"):
        from_zero(prediction, None)  # type: ignore[arg-type]


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.decimals(), st.lists(st.floats())
)


@given(odd=st.tuples(ODD, ODD, ODD, ODD))
@settings(deadline=None)
def test_nothing_but_the_errors_of_the_project_is_raised(odd: tuple[Any, Any, Any, Any]) -> None:
    a, b, c, d = odd
    calls: list[Callable[[], object]] = [
        lambda: ScalingPolicy(quantile=a, margin_factor=b, detection_s=c, decision_s=d),
        lambda: scaling_budget(a),
        lambda: scaling_budget(a, b),
        lambda: lead_time(a, {"quantile": b, "detection_s": c}),
        lambda: budget_seconds(a, {str(b)[:9]: c}),
        lambda: groups_needed(a),
        lambda: held_out_groups(a),
        lambda: concurrent_starts(a, b),
        lambda: rolling_update(a, replicas=b, batch=c),
        lambda: from_zero(a, b),
        lambda: cold_seconds(Odd(a), b),
        lambda: moments(Odd(a)),
        lambda: warm_time(a, b),
        lambda: forecast_horizon(a, b, c),
        lambda: PoissonArrivals(rate_per_s=a),
        lambda: MeasuredArrivals(a, b),
        lambda: miss_probability(a, b, c, quantile=d),
        lambda: pool_size(a, b, c, largest=d),
        lambda: warm_cost(a, b, c, money_per_replica_hour=d),
        lambda: best_pool_size(a, b, money_per_replica_hour=c, value_per_second=d),
        lambda: break_even_rate(a, b, money_per_replica_hour=c, value_per_second=d),
        lambda: first_request_latency(a, b, c, warm_s=d),
        lambda: first_request_latency(1, 5.0, 0.1, warm_s=a, first_s=b, quantile=c, scatter=d),
        lambda: first_request_latency(1, Odd(a), 0.1, warm_s=1.0),
        lambda: transfer_seconds(a, b),
        lambda: image_pull_seconds(a, b),
    ]
    for call in calls:
        with contextlib.suppress(StartupModelError):
            call()


def test_numbers_of_other_libraries_are_numbers() -> None:
    assert cold_seconds(np.float32(40.0), 0.5) == 40.0  # type: ignore[arg-type]
    assert miss_probability(np.int64(2), 40.0, np.float32(0.05)) == pytest.approx(0.594, abs=1e-3)  # type: ignore[arg-type]
    assert list(MeasuredArrivals(np.array([3, 1, 2])).times_s) == [1.0, 2.0, 3.0]
    assert list(MeasuredArrivals([Decimal("2"), 1]).times_s) == [1.0, 2.0]  # type: ignore[arg-type]


def test_what_is_given_is_neither_kept_nor_changed() -> None:
    given_times = np.array([3.0, 1.0, 2.0])
    arrivals = MeasuredArrivals(given_times)
    assert list(given_times) == [3.0, 1.0, 2.0]
    given_times[:] = 0.0
    assert list(arrivals.times_s) == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        arrivals.times_s[0] = 5.0


def test_uncertainty_without_bound_still_has_quantiles() -> None:
    """With one degree of freedom the last quantiles of a prediction exceed any number: they count as 1e9 s."""
    wild = Odd(lambda p: 40.0 if p < 0.9 else math.inf)
    latency = first_request_latency(0, wild, 1e-6, warm_s=0.0)
    assert latency.p50_s == pytest.approx(40.0)
    assert latency.p99_s == pytest.approx(1e9)


# --- the package ------------------------------------------------------------------------------------------------------------


def test_importing_planning_imports_no_scipy() -> None:
    code = "import sys, startup_model.planning; sys.exit(any(m.split('.')[0] in ('scipy', 'pandas', 'yaml') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FUNCTIONS = list(
    dict.fromkeys(value for name in planning.__all__ if inspect.isfunction(value := getattr(planning, name)))
)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_function_has_an_equation_a_source_its_errors_and_its_arguments_in_the_docstring(
    function: Callable[..., object],
) -> None:
    text = inspect.getdoc(function) or ""
    for part in ("Equation: ", "Source: ", "Raises "):
        assert part in text, part
    inherited = str(miss_probability.__doc__)
    for name in inspect.signature(function).parameters:
        assert name in text or (name in inherited and "``miss_probability``" in text), name
    assert "[" in text  # units


def test_public_names_are_there() -> None:
    assert len(set(planning.__all__)) == len(planning.__all__)
    assert all(hasattr(planning, name) for name in planning.__all__)
    earlier = (planning.FromNothing, planning.from_nothing, planning.no_warm_probability)
    assert earlier == (planning.FromZero, from_zero, miss_probability)
