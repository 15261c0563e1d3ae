"""Every number that a manifest holds, worked out from a prediction and a policy before anything is printed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from startup_model.errors import ConfigError
from startup_model.manifests.request import PlanRequest
from startup_model.phases import BEFORE_ENGINE, Phase
from startup_model.planning import scaling_budget
from startup_model.prediction import Spread, StartupPrediction
from startup_model.predictor import predict

__all__ = ["ENGINE_TIMEOUT_S", "LONGEST_S", "SegmentTime", "Timings", "segment_time", "start_with", "timings"]

ENGINE_TIMEOUT_S = 600
"""How long vLLM's API server waits for its engine by default: ``VLLM_ENGINE_READY_TIMEOUT_S`` in vllm/envs.py from 0.14.0 on, the same as a fixed
number in v1/engine/core_client.py from 0.9.1 to 0.13.0."""

LONGEST_S = 7 * 86400
"""No probe or deadline waits longer than a week."""

LONGEST_STABILISATION_S = 3600
"""Largest stabilizationWindowSeconds of autoscaling/v2."""

LONGEST_POLICY_PERIOD_S = 1800
"""Largest periodSeconds of a scaling policy of autoscaling/v2."""


class SegmentTime(NamedTuple):
    """Segments around the engine, one after the other: a distribution."""

    seconds: float
    deviation: float
    """Standard deviation of its logarithm; 0 where the node gives the numbers."""

    def quantile(self, probability: float, /) -> float:
        """Seconds [s] below which they stay with this probability."""
        return self.seconds * Spread(0.0, 0, self.deviation).factor(probability)


def start_with(prediction: StartupPrediction, segments: Iterable[Phase] = ()) -> StartupPrediction:
    """The same start with these segments and no others, whatever the prediction includes."""
    start = prediction.context.start
    return predict(
        *start[:3],
        profile=start.profile,
        level=prediction.level,
        safety_factor=prediction.safety_factor,
        include=segments,
    )


def segment_time(prediction: StartupPrediction, segments: Iterable[Phase]) -> SegmentTime:
    """The time of segments that the prediction includes: their sum, and (sum of (deviation x seconds)^2)^(1/2) / sum, since they scatter independently of each other."""
    entries = [prediction.phases[phase] for phase in segments]
    total = sum(entry.seconds for entry in entries)
    scatter = math.hypot(*(entry.spread * entry.seconds for entry in entries))
    return SegmentTime(total, scatter / total if total > 0 else 0.0)


class Timings(NamedTuple):
    """The times of a deployment, in seconds; whole numbers are what manifests hold."""

    typical_s: float
    """Process start to ready: the prediction."""
    slowest_s: float
    """The same with caches of unknown state taken as cold, as on a node that is new."""
    slo_bound_s: float
    """The time to promise: a factor on ``slowest_s``, whatever the quantile."""
    ready_s: float
    """The time to ready at the policy's quantile."""
    budget_s: float
    """With the margin: how long a start may take."""
    period_s: int
    """Between two probes."""
    failure_threshold: int
    """Probes that may fail."""
    startup_limit_s: int
    """period_s x failure_threshold."""
    initial_delay_s: int
    """Before the first probe: one period, so that the last failure that is allowed falls behind the budget."""
    before_s: float
    """Provision, image pull and container start at the quantile."""
    whole_s: float
    """Provision, image pull, container start and the start, together at the quantile."""
    progress_deadline_s: int
    """From a pod that is asked for to the ready one."""
    ready_timeout_s: int
    """How long the engine's API server waits for the engine."""
    lead_time_s: int
    """From the demand to the replica that serves it, on a node that is ordered for it."""
    cooldown_s: int
    """How long a replica is kept without work."""
    stabilisation_s: int
    """The same as far as an HPA allows."""
    decision_s: int
    """How long a demand has to hold before replicas are added."""
    scale_up_period_s: int
    """One start, as it usually takes: replicas that are on the way count before more are ordered."""
    polling_s: int
    """Between two looks at a metric."""
    consolidate_after_s: int
    """How long an empty node is kept: what it takes to have one again with a ready server."""
    first_answer_s: int
    """What a request may wait that arrives while there is no replica: the lead time and its own answer."""


def timings(request: PlanRequest) -> Timings:
    """The times of a deployment.

    Equation: with T(q) the time to ready [s] at the policy's quantile q, m its margin_factor, p the period of the probes,
    budget = m T(q); failure_threshold = ceil(budget / p); startup_limit = p x failure_threshold, so that budget <= startup_limit < budget + p.
    initial_delay = p: the kubelet's first probe comes up to one period after the container starts, the last of n failures at least (n - 1) p later; with a delay of p it is never
    before n p.
    progress_deadline = max(startup_limit + m S(q), m W(q)), S the segments before the engine (provision, image pull, container start; each scatters by itself), W they and T together: one try, all of it.
    ready_timeout = max(600, startup_limit): the engine's own default, and never less than what the probe allows; the probe decides.
    lead_time = detection + decision + m W(q); cooldown = that of the policy, else max(300, lead_time) (``planning.scaling_budget``);
    stabilisation = min(3600, cooldown); scale_up_period = min(1800, W with cold caches); polling = detection, at least 1; consolidate_after = m W(q);
    first_answer = lead_time + the first request.
    Whole numbers are rounded up and at least 1 (decision: 0). Raises ConfigError for a server that does not start (unless ``force``) and for a quantile beyond a week.
    Source: Kubernetes (startup probes, progressDeadlineSeconds, autoscaling/v2), KEDA, Karpenter; vLLM (``ENGINE_TIMEOUT_S``).
    """
    prediction, policy, period = request.prediction, request.policy, request.period_s
    if not request.force:
        _refuse_what_does_not_start(prediction)
    quantile, margin = policy.quantile, policy.margin_factor
    ready, whole = start_with(prediction), start_with(prediction, BEFORE_ENGINE)
    before_s = segment_time(whole, BEFORE_ENGINE).quantile(quantile)
    ready_s = ready.quantile(quantile)
    whole_s = whole.quantile(quantile)
    if not margin * max(before_s + ready_s, whole_s) + period <= LONGEST_S:
        raise ConfigError(
            "policy.quantile",
            quantile,
            f"a start of {ready_s:.3g} s, and {before_s:.3g} s before it: no deadline waits that long",
            "ask for a lower quantile, or calibrate the host: its profile narrows the spread",
        )
    budget_s = margin * ready_s
    threshold = _periods(budget_s, period)
    scaling = scaling_budget(whole_s, policy)
    lead_time_s = _whole(scaling.lead_time_s)
    cooldown_s = _whole(scaling.cooldown_s)
    if max(lead_time_s, cooldown_s) > LONGEST_S:
        raise ConfigError(
            "policy",
            max(lead_time_s, cooldown_s),
            "seconds of lead time or cool-down, more than a week",
            "shorten its times",
        )
    return Timings(
        typical_s=ready.total_s,
        slowest_s=ready.slowest_s,
        slo_bound_s=ready.slo_bound_s,
        ready_s=ready_s,
        budget_s=budget_s,
        period_s=period,
        failure_threshold=threshold,
        startup_limit_s=period * threshold,
        initial_delay_s=period,
        before_s=before_s,
        whole_s=whole_s,
        progress_deadline_s=max(period * threshold + math.ceil(margin * before_s), math.ceil(margin * whole_s)),
        ready_timeout_s=max(ENGINE_TIMEOUT_S, period * threshold),
        lead_time_s=lead_time_s,
        cooldown_s=cooldown_s,
        stabilisation_s=min(LONGEST_STABILISATION_S, cooldown_s),
        decision_s=min(LONGEST_STABILISATION_S, math.ceil(policy.decision_s)),
        scale_up_period_s=min(LONGEST_POLICY_PERIOD_S, _whole(whole.slowest_s)),
        polling_s=_whole(policy.detection_s),
        consolidate_after_s=_whole(scaling.budget_s),
        first_answer_s=_whole(scaling.lead_time_s + prediction.segments.get(Phase.FIRST_REQUEST, 0.0)),
    )


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _periods(budget_s: float, period_s: int) -> int:
    """The fewest periods that are no shorter than the budget; the division alone may be off by the last digit."""
    count = max(1, math.ceil(budget_s / period_s))
    if count * period_s < budget_s:
        return count + 1
    return count - 1 if count > 1 and (count - 1) * period_s >= budget_s else count


def _refuse_what_does_not_start(prediction: StartupPrediction) -> None:
    """Raises ConfigError, with what would make it start, for a model that does not fit."""
    memory = prediction.memory
    if memory.fits:
        return
    remedies = "; ".join(remedy.action for remedy in memory.remedies[:3] if remedy.status == "ok")
    raise ConfigError(
        "prediction",
        prediction.context.model_name,
        prediction.headline(),
        f"change it ({remedies or 'a larger accelerator, or more of them'}), or force the manifest",
    )
