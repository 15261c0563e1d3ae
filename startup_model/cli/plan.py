"""The command ``plan``: budgets, replicas to keep warm, and manifests to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from startup_model.cli.options import INTERVAL, JsonOption, StartOptions, with_options
from startup_model.cli.terminal import console_of
from startup_model.errors import ConfigError

if TYPE_CHECKING:
    from startup_model.manifests import PlanRequest

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help="text, kubernetes, startup-probe, hpa, keda, karpenter, knative, ray-serve, configmap, env, blis, llm-d-inference-sim, dynosim or json.",
    ),
]
QuantileOption = Annotated[float, typer.Option("--quantile", help="Share of starts that probes and deadlines hold.")]
MarginOption = Annotated[float, typer.Option("--margin", help="Factor on top of the quantile.")]
PeriodOption = Annotated[int, typer.Option("--period", help="Seconds between two probes.")]
DetectionOption = Annotated[str, typer.Option("--detection", help="From a demand to the metric that shows it.")]
DecisionOption = Annotated[
    str, typer.Option("--decision", help="How long a demand has to hold before replicas are added.")
]
HeadroomOption = Annotated[str, typer.Option("--headroom", help="Waiting that needs no warm replica.")]
CooldownOption = Annotated[
    str | None, typer.Option("--cooldown", help="How long a replica is kept without work; default: the lead time.")
]
ProvisionOption = Annotated[
    str | None,
    typer.Option("--provision", help="Until a new node has joined, such as '90 s'; '0 s' where it is there."),
]
ImageSizeOption = Annotated[
    str | None, typer.Option("--image-size", help="Compressed container image, such as '9 GB'.")
]
ImagePullOption = Annotated[
    str | None, typer.Option("--image-pull", help="Pulling and unpacking together, such as '0.5 GB/s'.")
]
PortOption = Annotated[int | None, typer.Option("--port", help="Of the server; default: that of the command.")]
RequestsOption = Annotated[
    int | None, typer.Option("--requests", help="Requests in progress for each replica, for autoscalers.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="Of the deployment; default: the model's name.")]
NamespaceOption = Annotated[str | None, typer.Option("--namespace", help="Namespace of the deployment.")]
ImageOption = Annotated[str | None, typer.Option("--image", help="Container image; default: the engine's own.")]
VolumeOption = Annotated[
    str | None, typer.Option("--volume-claim", help="PersistentVolumeClaim that holds the checkpoint.")
]
ReplicasOption = Annotated[
    str | None, typer.Option("--replicas", help="LEAST:MOST; default: 1:2, or what --rate needs.")
]
RateOption = Annotated[
    str | None, typer.Option("--rate", help="Demands for a replica, such as 6/h: how many to keep warm.")
]
TargetOption = Annotated[
    float, typer.Option("--target", help="Largest share of demands that may find no warm replica.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Also for a server that does not start.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan_command)


@with_options(*INTERVAL, "include")
def plan_command(
    asked: StartOptions,
    output: FormatOption = "text",
    quantile: QuantileOption = 0.95,
    margin: MarginOption = 1.3,
    period: PeriodOption = 10,
    detection: DetectionOption = "30 s",
    decision: DecisionOption = "0 s",
    headroom: HeadroomOption = "0 s",
    cooldown: CooldownOption = None,
    provision: ProvisionOption = None,
    image_size: ImageSizeOption = None,
    image_pull: ImagePullOption = None,
    port: PortOption = None,
    requests: RequestsOption = None,
    name: NameOption = None,
    namespace: NamespaceOption = None,
    image: ImageOption = None,
    volume_claim: VolumeOption = None,
    replicas: ReplicasOption = None,
    rate: RateOption = None,
    target: TargetOption = 0.01,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Budgets for autoscalers and manifests to paste: startup probes, deadlines, cool-downs, warm pools."""
    from startup_model.manifests import PlanRequest, render, timings
    from startup_model.manifests import times as reasons
    from startup_model.planning import ScalingPolicy
    from startup_model.predictor import as_profile, predict

    start = asked.start()
    around = {"provision_s": provision, "image_bytes": image_size, "image_pull_bandwidth": image_pull}
    given = {name: value for name, value in around.items() if value is not None}
    prediction = predict(start.model, start.hardware.replace(**given), start.engine, profile=start.profile)
    policy = {"quantile": quantile, "margin_factor": margin, "detection_s": detection, "decision_s": decision}
    policy |= {"headroom_s": headroom} | ({} if cooldown is None else {"cooldown_s": cooldown})
    served = start.engine.model  # what the command names is served, what --model gives is predicted
    plan = PlanRequest(
        prediction=prediction,
        policy=ScalingPolicy.model_validate(policy),
        command=asked.engine,
        model=None if served else asked.model,
        profile=as_profile(asked.profile),
        name=name,
        namespace=namespace,
        image=image,
        volume_claim=volume_claim,
        period_s=period,
        port=port,
        requests_per_replica=requests,
        force=force,
    )
    pool = None if rate is None else _pool(plan, rate, target)
    least, most = _replicas(replicas) if replicas is not None else (pool or 1, None)
    plan = plan.replace(replicas_min=least, replicas_max=most, warm_replicas=pool)
    if as_json or output != "text":
        typer.echo(render("json" if as_json else output, plan), nl=False)
        return
    console = console_of()
    console.print(_plan_table(plan, rate, target))
    for warning in (reasons.evidence_reason(plan, timings(plan)), *prediction.warnings):
        console.print(f"note: {warning}", soft_wrap=True)
    if start.engine.unused_flags:
        console.print(f"flags without effect here: {', '.join(start.engine.unused_flags)}", soft_wrap=True)


def _pool(plan: PlanRequest, rate: str, target: float) -> int:
    """Replicas to keep warm, each start being taken to last the lead time. Raises ConfigError."""
    from startup_model.manifests import timings
    from startup_model.planning import pool_size, warm_time

    return pool_size(warm_time(float(timings(plan).lead_time_s), plan.policy.headroom_s), _rate(rate), target)


def _replicas(text: str) -> tuple[int, int]:
    """``LEAST:MOST``, or one number for both. Raises ConfigError."""
    least, given, most = (part.strip() for part in text.partition(":"))
    if not least.isdecimal() or (given and not most.isdecimal()) or len(text) > 20:
        raise ConfigError("--replicas", text, "it should be LEAST:MOST", "such as 1:4")
    return int(least), int(most) if given else max(1, int(least))


_PER = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _rate(text: str) -> float:
    """Demands for a replica per second: ``6/h``, ``0.1/min``, or a number per second. Raises ConfigError."""
    number, _, unit = text.strip().partition("/")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if unit.strip() not in _PER or not 0.0 < value < 1e9:
        raise ConfigError("--rate", text, "it should be demands for a replica per time", "such as 6/h or 0.1/min")
    return value / _PER[unit.strip()]


def _plan_table(request: PlanRequest, rate: str | None, target: float) -> Table:
    """The times of a plan with what each comes from, and how many replicas to keep warm where a rate of demands is given."""
    from startup_model.manifests import times as reasons
    from startup_model.manifests import timings
    from startup_model.planning import miss_probability, warm_time
    from startup_model.units import format_seconds

    found = timings(request)
    table = Table(title=Text(request.prediction.headline()), title_justify="left")
    table.add_column("what", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("from", overflow="fold")
    table.add_row("time to ready", format_seconds(found.typical_s), "prediction")
    if found.slowest_s > found.typical_s:
        table.add_row("with cold caches", format_seconds(found.slowest_s), "caches of unknown state taken as cold")
    probes = f"{found.failure_threshold} x {found.period_s} s"
    table.add_row("startup probe", probes, Text(reasons.budget_reason(request, found)))
    table.add_row("progress deadline", f"{found.progress_deadline_s} s", Text(reasons.deadline_reason(request, found)))
    table.add_row("engine's own timeout", f"{found.ready_timeout_s} s", Text(reasons.ready_timeout_reason(found)))
    table.add_row("scale-up lead time", f"{found.lead_time_s} s", Text(reasons.lead_reason(request, found)))
    table.add_row("cool-down", f"{found.cooldown_s} s", Text(reasons.cooldown_reason(request, found)))
    if rate is not None and request.warm_replicas is not None:
        bridged_s = warm_time(float(found.lead_time_s), request.policy.headroom_s)
        without = miss_probability(request.warm_replicas, bridged_s, _rate(rate))
        words = f"at {rate}, each start taking {bridged_s:.0f} s, {without:.2%} of demands find none warm (at most {target:.2%})"
        table.add_row("warm replicas", str(request.warm_replicas), Text(words))
    return table
