"""Decisions from predictions: lead times, warm pools, their cost, and what a first request waits.

Every function is pure: seconds (or a prediction's distribution) and a policy in, seconds, replicas or money out.
"""

from __future__ import annotations

from startup_model.planning.latency import FirstRequestLatency, first_request_latency
from startup_model.planning.pool import (
    Arrivals,
    MeasuredArrivals,
    PoissonArrivals,
    WarmCost,
    best_pool_size,
    break_even_rate,
    miss_probability,
    pool_size,
    warm_cost,
)
from startup_model.planning.times import (
    DEFAULT_QUANTILE,
    IMAGE_PULL_RATES,
    SEGMENT_RANGES,
    ColdStart,
    Distribution,
    FromZero,
    Moments,
    Range,
    ScalingBudget,
    ScalingEvent,
    ScalingPolicy,
    budget_seconds,
    cold_seconds,
    concurrent_starts,
    forecast_horizon,
    from_zero,
    groups_needed,
    held_out_groups,
    image_pull_seconds,
    lead_time,
    moments,
    rolling_update,
    scaling_budget,
    transfer_seconds,
    warm_time,
)

FromNothing, from_nothing, no_warm_probability = FromZero, from_zero, miss_probability  # earlier names

__all__ = [
    "DEFAULT_QUANTILE", "IMAGE_PULL_RATES", "SEGMENT_RANGES", "Arrivals", "ColdStart", "Distribution", "FirstRequestLatency", "FromNothing", "FromZero",
    "MeasuredArrivals", "Moments", "PoissonArrivals", "Range", "ScalingBudget", "ScalingEvent", "ScalingPolicy", "WarmCost", "best_pool_size",
    "break_even_rate", "budget_seconds", "cold_seconds", "concurrent_starts", "first_request_latency", "forecast_horizon", "from_nothing", "from_zero",
    "groups_needed", "held_out_groups", "image_pull_seconds", "lead_time", "miss_probability", "moments", "no_warm_probability", "pool_size",
    "rolling_update", "scaling_budget", "transfer_seconds", "warm_cost", "warm_time",
]  # fmt: skip
