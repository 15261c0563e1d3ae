"""The words beside the numbers: where each comes from."""

from __future__ import annotations

import math

from startup_model.manifests.request import PlanRequest
from startup_model.manifests.timings import ENGINE_TIMEOUT_S, Timings
from startup_model.phases import BEFORE_ENGINE
from startup_model.planning import groups_needed, held_out_groups
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

__all__ = [
    "budget_reason",
    "capped",
    "cooldown_reason",
    "deadline_reason",
    "evidence_reason",
    "head",
    "joined",
    "lead_reason",
    "ready_timeout_reason",
    "warm_reason",
    "whole_reason",
]


def head(request: PlanRequest, times: Timings) -> tuple[str, ...]:
    """What the manifest is of, how sure the prediction is, and what it assumes."""
    prediction = request.prediction
    context, engine = prediction.context, request.engine
    of = f"{context.model_name} on {context.hardware_name} with {context.engine_name}"
    quantile = f"{request.policy.quantile:g} quantile {format_seconds(times.ready_s)}"
    lines = [f"{of}: ready after {format_seconds(times.typical_s)}, {quantile}"]
    if not prediction.memory.fits:
        lines.append(f"THE SERVER {prediction.headline().upper().split(';', maxsplit=1)[0]}: forced")
    if not prediction.calibrated:
        lines.append("not calibrated: the quantile rests on few reference hosts; a profile of the host narrows it")
    if evidence := evidence_reason(request, times):
        lines.append(evidence)
    if unknown := [name for name in ("page_cache", "compile_cache") if getattr(engine, name) == "unknown"]:
        lines.append(f"{' and '.join(unknown)} unknown: counted as cold in the quantile; say so where it is known")
    return tuple(lines)


def evidence_reason(request: PlanRequest, times: Timings) -> str:
    """What a profile with too few runs for the quantile says of it, and the bound to take instead; empty where it has enough."""
    prediction, quantile = request.prediction, request.policy.quantile
    needed, there = groups_needed(quantile), held_out_groups(prediction)
    if there >= needed:
        return ""
    cold = "" if times.slowest_s == times.typical_s else " with cold caches"
    return (
        f"{quantile:g} needs {needed} held-out groups, {_groups_words(prediction, there)}: the quantile rests on an assumed distribution; the time to promise is "
        f"{format_seconds(times.slo_bound_s)} ({prediction.safety_factor:g} x {format_seconds(times.slowest_s)}{cold})"
    )


def _groups_words(prediction: StartupPrediction, there: int) -> str:
    return f"the profile has {there}" if prediction.calibrated else "there is no profile of the host"


def budget_reason(request: PlanRequest, times: Timings) -> str:
    """The quantile and the margin."""
    return f"{request.policy.quantile:g} quantile {times.ready_s:.1f} s x {request.policy.margin_factor:g}"


def whole_reason(request: PlanRequest, times: Timings) -> str:
    """Everything before ready, at the quantile, and the margin."""
    policy = request.policy
    return f"{_before(request)} + start: {policy.quantile:g} quantile {times.whole_s:.1f} s x {policy.margin_factor:g}"


def deadline_reason(request: PlanRequest, times: Timings) -> str:
    """What the progress deadline follows from: the larger of everything at once, and the probe's limit behind the segments."""
    policy = request.policy
    if times.progress_deadline_s > times.startup_limit_s + math.ceil(policy.margin_factor * times.before_s):
        return whole_reason(request, times)
    before = f"{_before(request)}: {policy.quantile:g} quantile {times.before_s:.1f} s"
    return f"startup probe {times.startup_limit_s} s + ({before}) x {policy.margin_factor:g}"


def lead_reason(request: PlanRequest, times: Timings) -> str:
    """What the lead time adds up."""
    policy = request.policy
    decision = f" + decision {format_seconds(policy.decision_s)}" if policy.decision_s else ""
    return f"detection {format_seconds(policy.detection_s)}{decision} + ({whole_reason(request, times)})"


def cooldown_reason(request: PlanRequest, times: Timings) -> str:
    """What the cool-down follows from."""
    if request.policy.cooldown_s is not None:
        return "as given"
    return f"not let go sooner than it can be had back: a new replica takes {times.lead_time_s} s"


def ready_timeout_reason(times: Timings) -> str:
    """What the engine's own timeout follows from."""
    return f"the startup limit {times.startup_limit_s} s, and not below the engine's own {ENGINE_TIMEOUT_S} s"


def warm_reason(request: PlanRequest) -> str:
    """How many replicas to keep warm, beside the least number of them; empty where that was not worked out."""
    if request.warm_replicas is None:
        return ""
    more = "; raise it to keep them" if request.warm_replicas > request.replicas_min else ""
    return f"the demands expected need {request.warm_replicas} warm{more}"


def joined(*reasons: str) -> str:
    """Reasons of one value, those that there are."""
    return "; ".join(filter(None, reasons))


def _before(request: PlanRequest) -> str:
    return " + ".join(f"{phase.value} {format_seconds(request.prediction.segments[phase])}" for phase in BEFORE_ENGINE)


def capped(reason: str, limit: str, *, cut: bool) -> str:
    """The reason, and the limit where a value was cut to it."""
    return f"{reason}; {limit}" if cut else reason
