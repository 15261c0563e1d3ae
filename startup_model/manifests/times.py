"""Every number that a manifest holds, worked out from a prediction and a policy before anything is printed, and the words beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from fractions import Fraction
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

from startup_model.errors import ConfigError
from startup_model.manifests.request import DeploymentRequest
from startup_model.phases import AFTER_READY, BEFORE_ENGINE
from startup_model.planning import groups_needed, held_out_groups, scaling_budget
from startup_model.planning.times import start_with
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

USUAL_READY_TIMEOUT_S = 600  # also where an engine has no limit of its own
MAX_S = 7 * 86400  # no probe or deadline waits longer than a week
MAX_STABILISATION_S = 3600  # stabilizationWindowSeconds of autoscaling/v2
MAX_POLICY_PERIOD_S = 1800  # periodSeconds of a scaling policy of autoscaling/v2


class Scattered(NamedTuple):
    """A time that scatters: a distribution."""

    seconds: float
    factor: Callable[[float], float]
    """Probability -> what the seconds are multiplied by."""

    def quantile(self, probability: float, /) -> float:
        """Seconds [s] below which it stays with this probability."""
        return self.seconds * self.factor(probability)


def segment_time(prediction: StartupPrediction, segments: Collection[str]) -> Scattered:
    """The time of segments that the prediction includes: their sum, and a lognormal factor of deviation (sum of (deviation x seconds)^2)^(1/2) / sum, since they scatter independently
    of each other, and not at all where the node gives the numbers."""
    entries = [entry for phase, entry in prediction.phases.items() if phase in segments]
    total = sum(entry.seconds for entry in entries)
    deviation = math.hypot(*(entry.spread * entry.seconds for entry in entries)) / total if total > 0 else 0.0
    return Scattered(total, lambda probability: math.exp(deviation * NormalDist().inv_cdf(probability)))


class Timings(NamedTuple):
    """The times of a deployment, in seconds; whole numbers are what manifests hold."""

    typical_s: float
    """Process start to ready: the prediction."""
    slowest_s: float
    """The same with caches of unknown state taken as cold, as on a node that is new."""
    slo_bound_s: float
    """The SLO bound: a factor on ``slowest_s``, whatever the quantile."""
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


def timings(request: DeploymentRequest) -> Timings:
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
    Source: Kubernetes (startup probes, progressDeadlineSeconds, autoscaling/v2), KEDA, Karpenter; vLLM (``Engine.deploy``).
    """
    prediction, policy, period = request.prediction, request.policy, request.period_s
    if not request.force and not prediction.memory.fits:
        actions = [remedy.action for remedy in prediction.memory.remedies[:3] if remedy.status == "ok"]
        remedy = f"change it ({'; '.join(actions) or 'a larger accelerator, or more of them'}), or force the manifest"
        raise ConfigError("prediction", prediction.context.model_name, prediction.headline(), remedy)
    quantile, margin = policy.quantile, policy.margin_factor
    ready, whole = start_with(prediction), start_with(prediction, BEFORE_ENGINE)
    before_s, ready_s = segment_time(whole, BEFORE_ENGINE).quantile(quantile), ready.quantile(quantile)
    whole_s = whole.quantile(quantile)
    if not margin * max(before_s + ready_s, whole_s) + period <= MAX_S:
        problem = f"a start of {ready_s:.3g} s, and {before_s:.3g} s before it: no deadline waits that long"
        remedy = "ask for a lower quantile, or calibrate the host: its profile narrows the spread"
        raise ConfigError("policy.quantile", quantile, problem, remedy)
    budget_s = margin * ready_s
    threshold = max(1, math.ceil(Fraction(budget_s) / period))  # a division of floats may be off by the last digit
    limit_s = period * threshold
    scaling = scaling_budget(whole_s, policy)
    lead_time_s, cooldown_s = _whole(scaling.lead_time_s), _whole(scaling.cooldown_s)
    if (longest := max(lead_time_s, cooldown_s)) > MAX_S:
        problem = "seconds of lead time or cool-down, more than a week"
        raise ConfigError("policy", longest, problem, "shorten its times")
    return Timings(
        typical_s=ready.total_s,
        slowest_s=ready.slowest_s,
        slo_bound_s=ready.slo_bound_s,
        ready_s=ready_s,
        budget_s=budget_s,
        period_s=period,
        failure_threshold=threshold,
        startup_limit_s=limit_s,
        initial_delay_s=period,
        before_s=before_s,
        whole_s=whole_s,
        progress_deadline_s=max(limit_s + math.ceil(margin * before_s), math.ceil(margin * whole_s)),
        ready_timeout_s=max(_own_timeout_s(request), limit_s),
        lead_time_s=lead_time_s,
        cooldown_s=cooldown_s,
        stabilisation_s=min(MAX_STABILISATION_S, cooldown_s),
        decision_s=min(MAX_STABILISATION_S, math.ceil(policy.decision_s)),
        scale_up_period_s=min(MAX_POLICY_PERIOD_S, _whole(whole.slowest_s)),
        polling_s=_whole(policy.detection_s),
        consolidate_after_s=_whole(scaling.budget_s),
        first_answer_s=_whole(scaling.lead_time_s + sum(prediction.segments.get(phase, 0.0) for phase in AFTER_READY)),
    )


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _own_timeout_s(request: DeploymentRequest) -> int:
    return request.ready_timeout.seconds if request.ready_timeout else USUAL_READY_TIMEOUT_S


def reasons(request: DeploymentRequest, times: Timings) -> dict[str, str]:
    """Why the numbers are what they are, by name; empty where there is nothing to say."""
    prediction, policy = request.prediction, request.policy
    share, margin = f"{policy.quantile:g}", f"x {policy.margin_factor:g}"
    before = " + ".join(f"{phase!s} {format_seconds(prediction.segments[phase])}" for phase in BEFORE_ENGINE)
    whole = f"{before} + start: {share} quantile {times.whole_s:.1f} s {margin}"
    probe = f"startup probe {times.startup_limit_s} s + ({before}: {share} quantile {times.before_s:.1f} s) {margin}"
    all_at_once = times.progress_deadline_s > times.startup_limit_s + math.ceil(policy.margin_factor * times.before_s)
    decision = f" + decision {format_seconds(policy.decision_s)}" if policy.decision_s else ""
    new = f"not let go sooner than it can be had back: a new replica takes {times.lead_time_s} s"
    return {
        "budget": f"{share} quantile {times.ready_s:.1f} s {margin}",
        "whole": whole,
        "deadline": whole if all_at_once else probe,
        "lead": f"detection {format_seconds(policy.detection_s)}{decision} + ({whole})",
        "cooldown": new if policy.cooldown_s is None else "as given",
        "evidence": _evidence(request, times),
        "ready_timeout": ready_timeout_reason(times, _own_timeout_s(request)),
        "warm": warm_reason(request),
    }


def _evidence(request: DeploymentRequest, times: Timings) -> str:
    """What a profile with too few runs for the quantile says of it, and the bound to take instead."""
    prediction, quantile = request.prediction, request.policy.quantile
    needed, there = groups_needed(quantile), held_out_groups(prediction)
    if there >= needed:
        return ""
    groups = f"the profile has {there}" if prediction.calibrated else "there is no profile of the host"
    cold = "" if times.slowest_s == times.typical_s else " with cold caches"
    return (
        f"{quantile:g} needs {needed} held-out groups, {groups}: the quantile rests on an assumed distribution; the SLO bound is "
        f"{format_seconds(times.slo_bound_s)} ({prediction.safety_factor:g} x {format_seconds(times.slowest_s)}{cold})"
    )


def _reason(name: str, request: DeploymentRequest, times: Timings) -> str:
    return reasons(request, times)[name]


budget_reason, whole_reason, deadline_reason, lead_reason, cooldown_reason, evidence_reason = (
    partial(_reason, name) for name in ("budget", "whole", "deadline", "lead", "cooldown", "evidence")
)


def ready_timeout_reason(times: Timings, own_s: int = USUAL_READY_TIMEOUT_S) -> str:
    """What the engine's own timeout follows from."""
    return f"the startup limit {times.startup_limit_s} s, and not below the engine's own {own_s} s"


def warm_reason(request: DeploymentRequest) -> str:
    """How many replicas to keep warm, beside the least number of them; empty where that was not worked out."""
    if (warm := request.warm_replicas) is None:
        return ""
    return f"the demands expected need {warm} warm{'; raise it to keep them' if warm > request.replicas_min else ''}"


def head(request: DeploymentRequest, times: Timings) -> list[str]:
    """What the manifest is of, how sure the prediction is, and what it assumes."""
    prediction, context = request.prediction, request.prediction.context
    of = f"{context.model_name} on {context.hardware_name} with {context.engine_name}"
    quantile = f"{request.policy.quantile:g} quantile {format_seconds(times.ready_s)}"
    unknown = [name for name in ("page_cache", "compile_cache") if getattr(request.engine, name) == "unknown"]
    few, evidence = (
        "the quantile rests on few reference hosts; a profile of the host narrows it",
        _evidence(request, times),
    )
    lines = (
        (True, f"{of}: ready after {format_seconds(times.typical_s)}, {quantile}"),
        (not prediction.memory.fits, f"THE SERVER {prediction.headline().upper().partition(';')[0]}: forced"),
        (not prediction.calibrated, f"not calibrated: {few}"),
        (evidence, evidence),
        (unknown, f"{' and '.join(unknown)} unknown: counted as cold in the quantile; say so where it is known"),
    )
    return [line for holds, line in lines if holds]
