"""Decisions from predictions: lead times, warm pools, their cost, and what a first request waits.

Every function is pure: seconds (or a prediction's distribution) and a policy in, seconds, replicas or money out.
"""

from __future__ import annotations

from startup_model.planning.arrivals import Arrivals, MeasuredArrivals, PoissonArrivals
from startup_model.planning.cost import WarmCost, best_pool_size, break_even_rate, warm_cost
from startup_model.planning.events import ScalingEvent, concurrent_starts, rolling_update
from startup_model.planning.latency import FirstRequestLatency, first_request_latency
from startup_model.planning.policy import DEFAULT_QUANTILE, ScalingPolicy
from startup_model.planning.pool import no_warm_probability, pool_holds, pool_size, smallest_pool
from startup_model.planning.segments import (
    IMAGE_PULL_RATES,
    SEGMENT_RANGES,
    FromNothing,
    Range,
    from_nothing,
    image_pull_seconds,
    transfer_seconds,
)
from startup_model.planning.starts import (
    ColdStart,
    Distribution,
    Moments,
    ScalingBudget,
    budget_seconds,
    cold_seconds,
    forecast_horizon,
    groups_needed,
    held_out_groups,
    lead_time,
    moments,
    scaling_budget,
    warm_time,
)

__all__ = [
    "DEFAULT_QUANTILE",
    "IMAGE_PULL_RATES",
    "SEGMENT_RANGES",
    "Arrivals",
    "ColdStart",
    "Distribution",
    "FirstRequestLatency",
    "FromNothing",
    "MeasuredArrivals",
    "Moments",
    "PoissonArrivals",
    "Range",
    "ScalingBudget",
    "ScalingEvent",
    "ScalingPolicy",
    "WarmCost",
    "best_pool_size",
    "break_even_rate",
    "budget_seconds",
    "cold_seconds",
    "concurrent_starts",
    "first_request_latency",
    "forecast_horizon",
    "from_nothing",
    "groups_needed",
    "held_out_groups",
    "image_pull_seconds",
    "lead_time",
    "moments",
    "no_warm_probability",
    "pool_holds",
    "pool_size",
    "rolling_update",
    "scaling_budget",
    "smallest_pool",
    "transfer_seconds",
    "warm_cost",
    "warm_time",
]
