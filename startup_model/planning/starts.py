"""The time of a start as autoscalers need it: at a quantile, with detection and decision, as a horizon, as moments."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple, Protocol, runtime_checkable

from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.planning.checks import seconds
from startup_model.planning.policy import PolicyLike, as_policy
from startup_model.prediction import StartupPrediction
from startup_model.uncertainty import check_probability

__all__ = [
    "ColdStart",
    "Distribution",
    "Moments",
    "ScalingBudget",
    "budget_seconds",
    "check_prediction",
    "cold_seconds",
    "forecast_horizon",
    "groups_needed",
    "held_out_groups",
    "lead_time",
    "moments",
    "quantile_of",
    "scaling_budget",
    "warm_time",
]

USUAL_COOLDOWN_S = 300.0
"""Scale-down stabilisation of Kubernetes' autoscaler and cooldownPeriod of KEDA, both by default."""

WIDEST_SPREAD = 1e4
"""Largest ratio of the quantiles at 0.9 and 0.1 whose moments mean anything."""


@runtime_checkable
class Distribution(Protocol):
    """A time that is not known exactly, such as a StartupPrediction."""

    def quantile(self, probability: float, /) -> float:
        """Seconds [s] below which it stays with this probability."""
        ...


ColdStart = float | str | Distribution
"""A cold start: seconds (or a text such as "90 s"), or a distribution. The spread of a prediction is mostly what is not known about the
host, common to all starts there; it is not scatter from one start to the next. So a time is taken from it at a quantile."""


def cold_seconds(cold_start: ColdStart, probability: float) -> float:
    """Seconds [s] of a cold start that are not exceeded with a probability.

    Equation: T = the quantile of ``cold_start`` at ``probability`` [1]; plain seconds are the same at every probability. Raises ConfigError for
    a probability outside 0.0005 to 0.9995, for a time that is none, and for a prediction of a server that does not start.
    Source: StartupPrediction.quantile.
    """
    probability = check_probability(probability)
    if not isinstance(cold_start, Distribution):
        return seconds("cold_start", cold_start)
    if isinstance(cold_start, StartupPrediction):
        _refuse_what_does_not_start("cold_start", cold_start)
    return seconds(f"cold_start.quantile({probability:g})", quantile_of(cold_start, probability))


def quantile_of(cold_start: Distribution, probability: float) -> float:
    """What a distribution answers at a probability [1], unchecked. Raises ConfigError in the place of what the distribution raises, but for errors of this project."""
    try:
        return cold_start.quantile(probability)
    except StartupModelError:
        raise
    except Exception as error:
        raise ConfigError(
            f"cold_start.quantile({probability:g})",
            MISSING,
            f"it raises {type(error).__name__}",
            "give seconds, or an object whose quantile(probability) gives them",
        ) from error


def check_prediction(value: object) -> StartupPrediction:
    """A prediction of a server that starts, as it is. Raises ConfigError for anything else."""
    if not isinstance(value, StartupPrediction):
        raise _no_prediction(value)
    _refuse_what_does_not_start("prediction", value)
    return value


def _no_prediction(value: object) -> ConfigError:
    return ConfigError("prediction", value, "it is no prediction", "give what predict(...) returns")


def _refuse_what_does_not_start(field: str, prediction: StartupPrediction) -> None:
    if not prediction.memory.fits:
        problem = "a server that does not start cannot be planned with"
        raise ConfigError(field, str(prediction), problem, "see prediction.memory.remedies")


def groups_needed(quantile: float) -> int:
    """Held-out groups [1] from which their errors alone show a quantile; with fewer it rests on an assumed distribution.

    Equation: n = ceil(p / (1 - p)), p = max(quantile, 1 - quantile): the largest of n errors is above the next one with probability n / (n + 1). quantile [1]. 0.9 needs 9, 0.95
    19, 0.99 99. Raises ConfigError for a quantile outside 0.0005 to 0.9995.
    Source: one-sided tolerance bound from the largest of a sample; exchangeable errors have equal ranks.
    """
    probability = check_probability(quantile)
    odds = max(probability, 1.0 - probability) / min(probability, 1.0 - probability)
    return math.ceil(odds * (1.0 - 1e-12))  # 0.9 / 0.1 is a little above 9


def held_out_groups(prediction: StartupPrediction) -> int:
    """Held-out groups [1] of its own host that a prediction rests on.

    Equation: n = number of errors of the calibrated profile; 0 on a host that no profile stands for, whose spread is that between a few hosts. prediction: of ``predict``.
    Raises ConfigError for anything else.
    Source: the profile's held-out errors, one a group.
    """
    if not isinstance(prediction, StartupPrediction):
        raise _no_prediction(prediction)
    profile = prediction.context.start.profile
    return len(profile.held_out.errors) if profile is not None and prediction.calibrated else 0


def budget_seconds(cold_start: ColdStart, policy: PolicyLike | None = None) -> float:
    """Time [s] after which a start that is not ready has failed: what startup probes and deadlines allow.

    Equation: t = T(quantile) × margin_factor, both of the policy. cold_start: T [s], or a distribution; policy: or its fields, None for the defaults. Raises ConfigError like
    ``cold_seconds``, and for what is no policy. It is no ``slo_bound_s``, the time to promise: that is a factor on the prediction itself, whatever its spread.
    Source: formula × 1.3 to 1.5 as a bound is usual in operation; here on the quantile, so that margin and spread stay apart.
    """
    policy = as_policy(policy)
    return cold_seconds(cold_start, policy.quantile) * policy.margin_factor


def lead_time(cold_start: ColdStart, policy: PolicyLike | None = None) -> float:
    """Time [s] from a demand to the replica that serves it: how early an autoscaler has to act.

    Equation: t = detection_s + decision_s + T(quantile) × margin_factor, all of the policy. cold_start: T [s], or a distribution; policy: or its fields, None for the defaults. A
    plain prediction leaves node and image out: ``predict(..., include=("provision", "image_pull", "container_start"))`` has them. Raises ConfigError like ``cold_seconds``, and for what
    is no policy.
    Source: the parts follow each other: a metric shows the demand, the window passes, the replica starts.
    """
    policy = as_policy(policy)
    return policy.detection_s + policy.decision_s + budget_seconds(cold_start, policy)


def warm_time(cold_s: float, headroom_s: float) -> float:
    """Part of a cold start [s] that warm replicas have to bridge; 0: none are needed.

    Equation: T_warm = max(0, T_cold - headroom). cold_s [s]: the cold start; headroom_s [s]: waiting that is hidden anyway. The pool
    that rarely lets a demand wait longer than the headroom is ``pool_size(warm_time(...), ...)``. Raises ConfigError for times that are none.
    Source: the budget of warm pools in engineering notes on arXiv 2606.07362.
    """
    return max(0.0, seconds("cold_s", cold_s) - seconds("headroom_s", headroom_s))


def forecast_horizon(cold_start: ColdStart, probability: float, margin_s: float = 0.0) -> float:
    """How far ahead [s] demand has to be forecast, so that a replica started on the forecast is ready for it.

    Equation: h = T(probability) + margin_s. cold_start: T [s], or a distribution; probability [1]; margin_s [s]: step and delay of the forecast. Raises ConfigError like ``cold_seconds``.
    Source: a forecast that reaches less far than a start takes comes too late for it.
    """
    return cold_seconds(cold_start, probability) + seconds("margin_s", margin_s)


class ScalingBudget(NamedTuple):
    """The times of one start under one policy, all in seconds."""

    cold_s: float
    """The cold start at the policy's quantile."""
    budget_s: float
    """The same with the margin: what probes and deadlines allow."""
    lead_time_s: float
    """From the demand to the ready replica."""
    warm_time_s: float
    """What warm replicas have to bridge of it."""
    forecast_horizon_s: float
    cooldown_s: float
    """How long a replica is kept without work."""


def scaling_budget(cold_start: ColdStart, policy: PolicyLike | None = None) -> ScalingBudget:
    """Every time that an autoscaler needs, from a cold start and a policy.

    Equation: those of ``budget_seconds``, ``lead_time``, ``warm_time`` (of the lead time) and ``forecast_horizon``; the cool-down is the policy's, else
    max(300 s, lead time). cold_start: T [s], or a distribution; policy: or its fields, None for the defaults. A plain prediction leaves node and image out: ``predict(...,
    include=("provision", "image_pull", "container_start"))`` has them. Raises ConfigError like ``cold_seconds``, for what is no policy, and for a cool-down shorter than the cold start.
    Source: a replica that is let go sooner than it can be replaced makes the number of replicas swing.
    """
    policy = as_policy(policy)
    cold_s = cold_seconds(cold_start, policy.quantile)
    if policy.cooldown_s is not None and policy.cooldown_s < cold_s:
        raise ConfigError(
            "cooldown_s",
            policy.cooldown_s,
            f"replicas would be let go sooner than the {cold_s:.0f} s that a new one takes",
            "lengthen it, or leave it out",
        )
    lead_s = lead_time(cold_start, policy)
    return ScalingBudget(
        cold_s=cold_s,
        budget_s=budget_seconds(cold_start, policy),
        lead_time_s=lead_s,
        warm_time_s=warm_time(lead_s, policy.headroom_s),
        forecast_horizon_s=forecast_horizon(cold_start, policy.quantile, policy.forecast_margin_s),
        cooldown_s=policy.cooldown_s if policy.cooldown_s is not None else max(USUAL_COOLDOWN_S, lead_s),
    )


class Moments(NamedTuple):
    """A time as simulators take it."""

    mean_s: float
    standard_deviation_s: float


def moments(cold_start: ColdStart) -> Moments:
    """Mean [s] and standard deviation [s] of a cold start, for simulators that draw start times from a distribution.

    Equation: a lognormal distribution through the quantiles q10 and q90 [s]: m = ln(q10 × q90) / 2, s = ln(q90 / q10) / (2 × 1.2816), mean =
    exp(m + s² / 2), standard deviation = mean × (exp(s²) - 1)^(1/2). cold_start: T [s], which has no deviation, or a distribution. Raises ConfigError like ``cold_seconds``.
    The spread of a prediction is common to all starts of a host: draw once for a run of the simulator, not once for a start. Where the state of
    a cache is unknown, q10 has it hot and q90 cold.
    Source: moments of the lognormal distribution; predictions scatter by factors.
    """
    low, high = cold_seconds(cold_start, 0.1), cold_seconds(cold_start, 0.9)
    if low == high:
        return Moments(high, 0.0)
    if not low < high <= low * WIDEST_SPREAD:
        raise ConfigError(
            "cold_start",
            MISSING,
            f"its quantiles at 0.1 and 0.9 are {low:g} s and {high:g} s: no lognormal distribution to draw from",
            "give mean and deviation to the simulator yourself",
        )
    logarithms = math.log(low), math.log(high)
    deviation = (logarithms[1] - logarithms[0]) / (2.0 * NormalDist().inv_cdf(0.9))
    mean_s = math.exp(sum(logarithms) / 2.0 + deviation**2 / 2.0)
    return Moments(mean_s, mean_s * math.sqrt(math.expm1(deviation**2)))
