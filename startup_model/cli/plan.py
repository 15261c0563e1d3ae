"""The command ``plan``: budgets, replicas to keep warm and what they cost, starts side by side, and manifests to paste."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from startup_model.cli.options import ONE_PREDICTION, JsonOption, StartOptions, with_options
from startup_model.cli.terminal import console_of, echo, print_json, table_of
from startup_model.errors import missing, wrong_type

if TYPE_CHECKING:
    from startup_model.manifests import DeploymentRequest, Timings

Words = str | None
Number = float | None
Whole = int | None
FORMAT_NAMES = "text, kubernetes, startup-probe, hpa, keda, karpenter, knative, ray-serve, configmap, env, blis, llm-d-inference-sim, dynosim or json"


class PolicyOptions(NamedTuple):
    """How an autoscaler uses the start: fields of ScalingPolicy."""

    quantile: Annotated[float, Option(help="Share of starts that probes and deadlines hold.")] = 0.95
    margin_factor: Annotated[float, Option("--margin", help="Factor on top of the quantile.")] = 1.3
    detection_s: Annotated[str, Option("--detection", help="From a demand to the metric that shows it.")] = "30 s"
    decision_s: Annotated[str, Option("--decision", help="How long a demand has to hold to count.")] = "0 s"
    headroom_s: Annotated[str, Option("--headroom", help="Waiting that needs no warm replica.")] = "0 s"
    cooldown_s: Annotated[Words, Option("--cooldown", help="Before idle replicas go; default: the lead time.")] = None


class NodeOptions(NamedTuple):
    """What lies before the server's own start: fields of HardwareConfig."""

    provision_s: Annotated[Words, Option("--provision", help="Until a new node has joined; '0 s' if it is there.")] = (
        None
    )
    image_bytes: Annotated[Words, Option("--image-size", help="Compressed image, such as '9 GB'.")] = None
    image_pull_bandwidth: Annotated[Words, Option("--image-pull", help="With unpacking, such as '0.5 GB/s'.")] = None


class DeploymentOptions(NamedTuple):
    """Names and numbers of the deployment: fields of DeploymentRequest."""

    period_s: Annotated[int, Option("--period", help="Seconds between two probes.")] = 10
    port: Annotated[Whole, Option(help="Of the server; default: that of the command.")] = None
    requests_per_replica: Annotated[Whole, Option("--requests", help="In progress for each replica.")] = None
    name: Annotated[Words, Option(help="Of the deployment; default: the model's name.")] = None
    namespace: Annotated[Words, Option(help="Namespace of the deployment.")] = None
    image: Annotated[Words, Option(help="Container image; default: the engine's own.")] = None
    volume_claim: Annotated[Words, Option(help="PersistentVolumeClaim that holds the checkpoint.")] = None
    force: Annotated[bool, Option("--force", help="Also for a server that does not start.")] = False


class DecisionOptions(NamedTuple):
    """Questions beside the budgets."""

    rate: Annotated[Words, Option(help="Demands for a replica, such as 6/h: how many to keep warm.")] = None
    target: Annotated[float, Option(help="Largest share of demands that may find no warm replica.")] = 0.01
    price: Annotated[Number, Option(help="Of a replica for an hour: what the warm ones cost and save.")] = None
    value: Annotated[Number, Option(help="Of one waited second, with --price: the pool that pays best.")] = None
    warm_request: Annotated[Words, Option(help="On a warm replica, such as '0.3 s': what first requests wait.")] = None
    from_zero: Annotated[Words, Option(help="plain or lazy, how the image is pulled: from a node to an answer.")] = None
    at_once: Annotated[Words, Option(help="Starts that share a storage, such as 2,8: how long each takes.")] = None
    batch: Annotated[Whole, Option(help="Replicas replaced at a time: how long an update of all takes.")] = None


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan_command)


@with_options(*ONE_PREDICTION, "include")
def plan_command(
    asked: StartOptions,
    policy: PolicyOptions,
    around: NodeOptions,
    deployment: DeploymentOptions,
    decisions: DecisionOptions,
    output: Annotated[str, Option("--format", help=f"{FORMAT_NAMES}.")] = "text",
    replicas: Annotated[Words, Option(help="LEAST:MOST; default: 1:2, or what --rate needs.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Budgets for autoscalers and manifests to paste: startup probes, deadlines, cool-downs, warm pools."""
    from startup_model.manifests import DeploymentRequest, evidence_reason, render, timings
    from startup_model.planning import ScalingPolicy, pool_size, warm_time
    from startup_model.predictor import as_profile, predict

    start = asked.start()
    node = start.hardware.replace(**_given(around))
    request = DeploymentRequest(
        prediction=predict(start.model, node, start.engine, profile=start.profile),
        policy=ScalingPolicy.model_validate(_given(policy)),
        command=asked.engine,
        model=None if start.engine.model else asked.model,  # what the command names is served, what --model gives is predicted
        profile=as_profile(asked.profile),
        **deployment._asdict(),
    )  # fmt: skip
    found = timings(request)
    bridged_s = warm_time(float(found.lead_time_s), request.policy.headroom_s)
    rate = None if decisions.rate is None else _rate(decisions.rate)
    pool = None if rate is None else pool_size(bridged_s, rate, decisions.target)
    least, most = _replicas(replicas) if replicas is not None else (pool or 1, None)
    request = request.replace(replicas_min=least, replicas_max=most, warm_replicas=pool)
    answers = list(_answers(request, found, decisions, rate, bridged_s))
    if as_json or output == "json":
        data = {key: value for answer in answers for key, value in answer[3].items()}
        print_json(json.loads(render("json", request)) | ({"decisions": data} if data else {}))
    elif output != "text":
        typer.echo(render(output, request), nl=False)
    else:
        table = table_of(request.prediction.headline(), "|what", ">value", "from")
        for row in (*_times(request, found), *(answer[:3] for answer in answers)):
            table.add_row(*row)
        console_of().print(table)
        for warning in (evidence_reason(request, found), *request.prediction.warnings):
            echo(f"note: {warning}")
        if start.engine.unused_flags:
            echo(f"flags without effect here: {', '.join(start.engine.unused_flags)}")


def _given(options: PolicyOptions | NodeOptions) -> dict[str, Any]:
    return {name: value for name, value in options._asdict().items() if value is not None}


def _replicas(text: str) -> tuple[int, int]:
    """``LEAST:MOST``, or one number for both. Raises ConfigError."""
    least, given, most = (part.strip() for part in text.partition(":"))
    if not least.isdecimal() or (given and not most.isdecimal()) or len(text) > 20:
        raise wrong_type("--replicas", text, "LEAST:MOST", "such as 1:4")
    return int(least), int(most) if given else max(1, int(least))


def _rate(text: str) -> float:
    """Demands for a replica per second: ``6/h`` or ``0.1/min``. Raises ConfigError."""
    number, _, unit = text.strip().partition("/")
    per = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}.get(unit.strip())
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if per is None or not 0.0 < value < 1e9:
        raise wrong_type("--rate", text, "demands for a replica per time", "such as 6/h or 0.1/min")
    return value / per


def _times(request: DeploymentRequest, found: Timings) -> Iterator[tuple[str, str, str]]:
    """The times of a plan with what each comes from."""
    from startup_model.manifests.times import reasons
    from startup_model.units import format_seconds

    why = reasons(request, found)
    yield "time to ready", format_seconds(found.typical_s), "prediction"
    if found.slowest_s > found.typical_s:
        yield "with cold caches", format_seconds(found.slowest_s), "caches of unknown state taken as cold"
    yield "startup probe", f"{found.failure_threshold} x {found.period_s} s", why["budget"]
    yield "progress deadline", f"{found.progress_deadline_s} s", why["deadline"]
    if request.ready_timeout is not None:
        yield "engine's own timeout", f"{found.ready_timeout_s} s", why["ready_timeout"]
    yield "scale-up lead time", f"{found.lead_time_s} s", why["lead"]
    yield "cool-down", f"{found.cooldown_s} s", why["cooldown"]


def _answers(
    request: DeploymentRequest, found: Timings, asked: DecisionOptions, rate: Number, bridged_s: float
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """What the options ask beside the budgets, in words and as data. bridged_s: what warm replicas have to bridge, each start being taken to last the lead time. Raises ConfigError."""
    from startup_model import planning

    prediction, size = request.prediction, request.warm_replicas
    for option, needed, example in (("price", "rate", "6/h"), ("value", "price", "4"), ("warm_request", "rate", "6/h")):
        if getattr(asked, option) is not None and getattr(asked, needed) is None:
            raise missing(f"--{needed}", f"--{option.replace('_', '-')} needs it", f"such as --{needed} {example}")
    if rate is not None and size is not None:
        missed = planning.miss_probability(size, bridged_s, rate)
        words = f"at {asked.rate}, each start taking {bridged_s:.0f} s, {missed:.2%} of demands find none warm (at most {asked.target:.2%})"
        yield "warm replicas", str(size), words, {}
        if asked.price is not None:
            cost = planning.warm_cost(size, bridged_s, rate, money_per_replica_hour=asked.price)
            words = f"for {cost.warm_replicas:.2f} that stand unused ({cost.reserved_money_per_hour:.2f} for all {size}); saves {cost.seconds_saved_per_hour:.0f} s of waiting an hour, {cost.money_per_second_saved:.3g} a second"
            yield "cost of an hour", f"{cost.money_per_hour:.2f}", words, {"warm_cost": cost._asdict()}
            if asked.value is not None:
                worth: dict[str, Any] = {"money_per_replica_hour": asked.price, "value_per_second": asked.value}
                best = planning.best_pool_size(bridged_s, rate, **worth)
                even = planning.break_even_rate(max(1, size), bridged_s, **worth)
                words = f"cheapest where a waited second is worth {asked.value:g}; {max(1, size)} warm pay from {3600.0 * even:.3g} demands an hour on"
                yield "best pool", str(best), words, {"best_pool_size": best, "break_even_rate_per_s": even}
        if asked.warm_request is not None:
            latency = planning.first_request_latency(size, float(found.lead_time_s), rate, warm_s=asked.warm_request)  # type: ignore[arg-type]
            shares = {f"{name}_s": getattr(latency, f"{name}_s") for name in ("p50", "p90", "p99")}
            words = f"of 99 in 100 first requests (90 in 100: {latency.p90_s:.1f} s, half: {latency.p50_s:.1f} s); {latency.no_warm:.2%} wait for a start"
            yield "first request", f"{latency.p99_s:.1f} s", words, {"first_request_latency": shares}
    if asked.from_zero is not None:
        whole = planning.from_zero(prediction, asked.from_zero)  # type: ignore[arg-type]
        parts = {name: part._asdict() for name, part in whole.parts.items()}
        ranges = ", ".join(f"{name} {part.low:.0f} to {part.high:.0f}" for name, part in whole.parts.items())
        words = f"from an ordered node to an answer, {whole.low_s:.0f} to {whole.high_s:.0f} s: {ranges}"
        yield "from zero", f"{whole.typical_s:.0f} s", words, {"from_zero": whole._asdict() | {"parts": parts}}
    if asked.at_once is not None:
        if not all(number.strip().isdecimal() and len(number) < 10 for number in asked.at_once.split(",")):
            raise wrong_type("--at-once", asked.at_once, "numbers of starts", "such as 2,8")
        events = planning.concurrent_starts(prediction, map(int, asked.at_once.split(",")))
        data = {"concurrent_starts": [dict(zip(event._fields[:-1], event[:-1], strict=True)) for event in events]}
        for event in events:
            words = f"each, {event.slowdown:.1f} times one alone; begun {event.spacing_s:.0f} s apart they are ready after {event.mean_ready_s:.0f} s on average"
            yield f"{event.starts} at once", f"{event.each_s:.1f} s", words, data
    if asked.batch is not None:
        replicas = request.most_replicas
        update_s = planning.rolling_update(prediction, replicas=replicas, batch=asked.batch)
        words = f"until the last of {replicas} replicas is ready, {asked.batch} replaced at a time"
        yield "update", f"{update_s:.0f} s", words, {"rolling_update_s": update_s}
