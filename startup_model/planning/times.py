"""The time of a start as autoscalers need it: at a quantile, with detection and decision, from zero, and beside other starts on one storage."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from itertools import islice
from numbers import Integral, Real
from statistics import NormalDist
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self, TypeVar, cast, get_type_hints, runtime_checkable

from pydantic import BeforeValidator, Field, create_model, model_validator

from startup_model.errors import MISSING, ConfigError, StartupModelError, UnknownNameError, out_of_range, wrong_type
from startup_model.frozen import FrozenModel
from startup_model.hardware import CLUSTER_DEFAULTS
from startup_model.phases import AFTER_READY, BEFORE_ENGINE
from startup_model.prediction import StartupPrediction
from startup_model.predictor import predict
from startup_model.units import Seconds, parse_bandwidth, parse_bytes, parse_seconds

DEFAULT_QUANTILE = 0.95
"""Probability at which a start is planned for unless another one is asked for: probes, deadlines, lead times and pools. On a host that was not calibrated it is about
twice the prediction; 0.99 there is six times, since it rests on three hosts. A calibrated host may ask for 0.99."""

MAX_POOL = 100_000  # as many as a HardwareConfig takes nodes
MAX_EVENTS = 1000  # numbers of starts in one call
MAX_SPREAD = 1e4  # largest ratio of the quantiles at 0.9 and 0.1 whose moments mean anything
USUAL_COOLDOWN_S = 300.0  # the default of Kubernetes' scale-down stabilisation and of KEDA's cooldownPeriod

F = TypeVar("F", bound=Callable[..., Any])


def _plain(value: object) -> object:
    """Numbers of other libraries as those of Python."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


Plain = BeforeValidator(_plain)
Time = Annotated[Seconds, Plain]
Count = Annotated[int, Field(ge=0, le=MAX_POOL), Plain]
Positive = Annotated[int, Field(ge=1, le=MAX_POOL), Plain]
Quantile = Annotated[float, Field(ge=0.0005, le=0.9995, description="0.9: what 9 of 10 starts stay below"), Plain]


def checked(function: F) -> F:
    """``function`` with its ``Annotated`` arguments checked like the fields of a FrozenModel; bad ones raise ConfigError, with the description of a field as the remedy."""
    signature = inspect.signature(function)

    @lru_cache(maxsize=1)
    def model() -> type[FrozenModel]:
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {name: (hint, ...) for name, hint in hints.items() if hasattr(hint, "__metadata__")}
        return create_model(function.__name__, __base__=FrozenModel, **fields)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        fields = model().model_fields
        try:
            values = model()(**{name: bound.arguments[name] for name in fields})
        except ConfigError as error:
            remedy = error.remedy or getattr(fields.get(error.field), "description", None) or ""
            raise ConfigError(error.field, error.value, error.problem, remedy) from None
        bound.arguments |= {name: getattr(values, name) for name in fields}
        return function(*bound.args, **bound.kwargs)

    return cast(F, call)


def as_quantity(field: str, value: Any, read: Callable[[Any], float] = parse_seconds) -> float:
    """``value`` in base units; a text such as "90 s" is read. Raises ConfigError unless it is a quantity of this kind."""
    try:
        return read(_plain(value))
    except StartupModelError as error:
        raise ConfigError(field, MISSING, str(error)) from None


class ScalingPolicy(FrozenModel):
    """How an autoscaler uses a predicted start. Times are seconds; texts such as ``"5 min"`` are read.

    Raises ConfigError for values that cannot be and for those that contradict each other.
    """

    quantile: Annotated[float, Field(ge=0.001, le=0.999)] = DEFAULT_QUANTILE
    """Probability with which a start is to be ready in time; see ``DEFAULT_QUANTILE``, and ``groups_needed`` for the runs that a quantile asks for."""
    margin_factor: Annotated[float, Field(ge=1, le=10)] = 1.3
    """On top of the quantile, for what no prediction covers (throttled processors, other users of the host); 1.3 to 1.5 is usual."""
    detection_s: Seconds = 30.0
    """From the demand to a metric that shows it. Kubernetes: a scrape and an autoscaler sync, 15 s each by default; KEDA polls every 30 s."""
    decision_s: Seconds = 0.0
    """Window over which the metric has to hold before replicas are added; 0, the default of Kubernetes' autoscaler, decides at once."""
    headroom_s: Seconds = 0.0
    """Waiting that needs no warm replica: queues that hold requests, running replicas with room, a limit that users accept."""
    forecast_margin_s: Seconds = 60.0
    """Added to the start where demand is forecast: a forecast's own step and delay."""
    cooldown_s: Seconds | None = None
    """How long a replica is kept without work; None: 300 s (the default of Kubernetes and KEDA), or the lead time where that is longer."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 0 < self.decision_s < self.detection_s:
            bounds = f"at least detection_s = {self.detection_s:g}, to see a second measurement"
            raise out_of_range("decision_s", self.decision_s, bounds, "lengthen it, or give 0 to decide at once")
        return self


PolicyLike = ScalingPolicy | Mapping[str, Any]
"""A policy, or its fields."""


def as_policy(value: PolicyLike | None) -> ScalingPolicy:
    """A policy as it is, or from its fields; None: the defaults. Raises ConfigError for anything else, and for fields that cannot be."""
    if value is not None and not isinstance(value, ScalingPolicy | Mapping):
        raise wrong_type("policy", value, "a ScalingPolicy or its fields", "such as {'quantile': 0.9}")
    return ScalingPolicy.model_validate(value or {})


@runtime_checkable
class Distribution(Protocol):
    """A time that is not known exactly, such as a StartupPrediction."""

    def quantile(self, probability: float, /) -> float:
        """Seconds [s] below which it stays with this probability."""
        ...


ColdStart = float | str | Distribution
"""A cold start: seconds (or a text such as "90 s"), or a distribution. The spread of a prediction is mostly what is not known about the
host, common to all starts there; it is not scatter from one start to the next. So a time is taken from it at a quantile."""


@checked
def cold_seconds(cold_start: ColdStart, probability: Quantile) -> float:
    """Seconds [s] of a cold start that are not exceeded with a probability.

    Equation: T = the quantile of ``cold_start`` at ``probability`` [1]; plain seconds are the same at every probability. Raises ConfigError for
    a probability outside 0.0005 to 0.9995, for a time that is none, and for a prediction of a server that does not start.
    Source: StartupPrediction.quantile.
    """
    if not isinstance(cold_start, Distribution):
        return as_quantity("cold_start", cold_start)
    if isinstance(cold_start, StartupPrediction):
        check_prediction(cold_start, "cold_start")
    return as_quantity(f"cold_start.quantile({probability:g})", quantile_of(cold_start, probability))


def quantile_of(cold_start: Distribution, probability: float) -> float:
    """What a distribution answers at a probability [1], unchecked. Raises ConfigError in the place of what the distribution raises, but for errors of this project."""
    try:
        return cold_start.quantile(probability)
    except StartupModelError:
        raise
    except Exception as error:
        field, problem = f"cold_start.quantile({probability:g})", f"it raises {type(error).__name__}"
        remedy = "give seconds, or an object whose quantile(probability) gives them"
        raise ConfigError(field, MISSING, problem, remedy) from error


def check_prediction(value: object, field: str = "prediction", *, starts: bool = True) -> StartupPrediction:
    """A prediction as it is, of a server that starts unless ``starts`` is False. Raises ConfigError for anything else."""
    if not isinstance(value, StartupPrediction):
        raise wrong_type(field, value, "a prediction", "give what predict(...) returns")
    if starts and not value.memory.fits:
        raise ConfigError(field, str(value), "the model does not fit", "see prediction.memory.remedies")
    return value


@checked
def groups_needed(quantile: Quantile) -> int:
    """Held-out groups [1] from which their errors alone show a quantile; with fewer it rests on an assumed distribution.

    Equation: n = ceil(p / (1 - p)), p = max(quantile, 1 - quantile): the largest of n errors is above the next one with probability n / (n + 1). quantile [1]. 0.9 needs 9, 0.95
    19, 0.99 99. Raises ConfigError for a quantile outside 0.0005 to 0.9995.
    Source: one-sided tolerance bound from the largest of a sample; exchangeable errors have equal ranks.
    """
    odds = max(quantile, 1.0 - quantile) / min(quantile, 1.0 - quantile)
    return math.ceil(odds * (1.0 - 1e-12))  # 0.9 / 0.1 is a little above 9


def held_out_groups(prediction: StartupPrediction) -> int:
    """Held-out groups [1] of its own host that a prediction rests on.

    Equation: n = number of errors of the calibrated profile; 0 on a host that no profile stands for, whose spread is that between a few hosts. prediction: of ``predict``.
    Raises ConfigError for anything else.
    Source: the profile's held-out errors, one a group.
    """
    profile = check_prediction(prediction, starts=False).context.start.profile
    return len(profile.held_out.errors) if profile is not None and prediction.calibrated else 0


def budget_seconds(cold_start: ColdStart, policy: PolicyLike | None = None) -> float:
    """Time [s] after which a start that is not ready has failed: what startup probes and deadlines allow.

    Equation: t = T(quantile) × margin_factor, both of the policy. cold_start: T [s], or a distribution; policy: or its fields, None for the defaults. Raises ConfigError like
    ``cold_seconds``, and for what is no policy. It is not the SLO bound ``slo_bound_s``: that is a factor on the prediction itself, whatever its spread.
    Source: formula × 1.3 to 1.5 as a bound is usual in operation; here on the quantile, so that margin and spread stay apart.
    """
    policy = as_policy(policy)
    return cold_seconds(cold_start, policy.quantile) * policy.margin_factor


def lead_time(cold_start: ColdStart, policy: PolicyLike | None = None) -> float:
    """Time [s] from a demand to the replica that serves it: how early an autoscaler has to act.

    Equation: t = detection_s + decision_s + T(quantile) × margin_factor, all of the policy. cold_start, policy as in ``budget_seconds``; a plain prediction leaves node and image
    out: ``predict(..., include=("provision", "image_pull", "container_start"))`` has them. Raises ConfigError like ``budget_seconds``.
    Source: the parts follow each other: a metric shows the demand, the window passes, the replica starts.
    """
    policy = as_policy(policy)
    return policy.detection_s + policy.decision_s + budget_seconds(cold_start, policy)


@checked
def warm_time(cold_s: Time, headroom_s: Time) -> float:
    """Part of a cold start [s] that warm replicas have to bridge; 0: none are needed.

    Equation: T_warm = max(0, T_cold - headroom). cold_s [s]: the cold start; headroom_s [s]: waiting that is hidden anyway. The pool
    that rarely lets a demand wait longer than the headroom is ``pool_size(warm_time(...), ...)``. Raises ConfigError for times that are none.
    Source: the budget of warm pools in engineering notes on arXiv 2606.07362.
    """
    return max(0.0, cold_s - headroom_s)


@checked
def forecast_horizon(cold_start: ColdStart, probability: Quantile, margin_s: Time = 0.0) -> float:
    """How far ahead [s] demand has to be forecast, so that a replica started on the forecast is ready for it.

    Equation: h = T(probability) + margin_s. cold_start: T [s], or a distribution; probability [1]; margin_s [s]: step and delay of the forecast. Raises ConfigError like ``cold_seconds``.
    Source: a forecast that reaches less far than a start takes comes too late for it.
    """
    return cold_seconds(cold_start, probability) + margin_s


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
    max(300 s, lead time). cold_start: T [s], policy as in ``lead_time``. Raises ConfigError like ``lead_time``, and for a cool-down shorter than the cold start.
    Source: a replica that is let go sooner than it can be replaced makes the number of replicas swing.
    """
    policy = as_policy(policy)
    cold_s = cold_seconds(cold_start, policy.quantile)
    if policy.cooldown_s is not None and policy.cooldown_s < cold_s:
        bounds = f"at least the cold start of {cold_s:.0f} s"
        raise out_of_range("cooldown_s", policy.cooldown_s, bounds, "lengthen it, or leave it out")
    lead_s = lead_time(cold_s, policy)
    return ScalingBudget(
        cold_s=cold_s,
        budget_s=budget_seconds(cold_s, policy),
        lead_time_s=lead_s,
        warm_time_s=warm_time(lead_s, policy.headroom_s),
        forecast_horizon_s=forecast_horizon(cold_s, policy.quantile, policy.forecast_margin_s),
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
    if not low < high <= low * MAX_SPREAD:
        problem = f"its quantiles at 0.1 and 0.9 are {low:g} s and {high:g} s: no lognormal distribution to draw from"
        raise ConfigError("cold_start", MISSING, problem, "give mean and deviation to the simulator yourself")
    deviation = math.log(high / low) / (2.0 * NormalDist().inv_cdf(0.9))
    mean_s = math.exp((math.log(low) + math.log(high)) / 2.0 + deviation**2 / 2.0)
    return Moments(mean_s, mean_s * math.sqrt(math.expm1(deviation**2)))


Pull = Literal["plain", "lazy"]


class Range(NamedTuple):
    """A number that is known as a range."""

    low: float
    typical: float
    high: float
    source: str


IMAGE_PULL_RATES: Mapping[str, Range] = MappingProxyType(
    {
        "plain": Range(0.02e9, 0.05e9, 0.1e9, "one container runtime that pulls, then unpacks, layer by layer"),
        "lazy": Range(0.3e9, 0.5e9, 0.75e9, "files that are fetched as they are read, or layers that are pulled and unpacked side by side"),
    }
)  # fmt: skip
"""How an image is pulled -> rate of pulling and unpacking together, bytes of the compressed image per second.

Source: ends of a collection of public measurements of engine images, 0.02-0.1 and 0.3-0.75 GB/s, which names no single one; typical is near the geometric mean of the ends.
"""


def transfer_seconds(size: float | str, bandwidth: float | str) -> float:
    """Least time [s] that bytes take over a link.

    Equation: t = size / bandwidth. size [B], bandwidth [B/s]; texts carry their unit, so that bits and bytes cannot be mixed up: "2 Gbps" is 0.25e9 B/s, "2 GB/s"
    eight times that. Raises ConfigError for what is none, and for a bandwidth of zero.
    Source: definition.
    """
    size_bytes = as_quantity("transfer", size, parse_bytes)
    rate = as_quantity("transfer", bandwidth, parse_bandwidth)
    if rate <= 0.0:
        raise out_of_range("bandwidth", bandwidth, "above 0", "give bytes per second, or a text such as '2 Gbps'")
    return size_bytes / rate


def image_pull_seconds(image_bytes: float | str = CLUSTER_DEFAULTS["image_bytes"], pull: Pull = "plain") -> Range:
    """Time [s] to pull and unpack an image: the least, a typical and the most.

    Equation: t = image_bytes / rate. image_bytes [B]: compressed; pull: plain or lazy, the row of ``IMAGE_PULL_RATES``. Raises ConfigError, UnknownNameError.
    Source: as the rates.
    """
    if not isinstance(pull, str) or pull not in IMAGE_PULL_RATES:
        raise UnknownNameError("pull", str(pull), IMAGE_PULL_RATES)
    rates = IMAGE_PULL_RATES[pull]
    low, typical, high = (transfer_seconds(image_bytes, rate) for rate in (rates.high, rates.typical, rates.low))
    return Range(low, typical, high, rates.source)


SEGMENT_RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "provision": Range(45.0, CLUSTER_DEFAULTS["provision_s"], 410.0, "GPU nodes of public clouds, from the order to the cluster; collected, single measurements are not named"),
        "image_pull": image_pull_seconds(),
        "container_start": Range(1.0, CLUSTER_DEFAULTS["container_start_s"], 5.0, "high: Kubernetes' service-level objective for the start of a pod whose image is there (99 % within 5 s)"),
        "first_request": Range(0.1, 0.3, 202.0, "tenths of a second in public logs; high: a first start that builds FP8 MoE kernels (vLLM 0.24: DeepGEMM 82 s + FlashInfer 120 s), none with a prebuilt cache"),
    }
)  # fmt: skip
"""Segment around the engine -> seconds: low, typical, high. The image of 10 GB is pulled plainly; ``image_pull_seconds`` has the lazy way and other sizes."""


class FromZero(NamedTuple):
    """Time from the order of a node to the first answer [s], and its parts."""

    low_s: float
    typical_s: float
    high_s: float
    """The parts at their least and at their most, added up: wider than an interval of the sum."""
    parts: Mapping[str, Range]
    """provision, image_pull, container_start, ready, first_request, in order."""


def from_zero(prediction: StartupPrediction, pull: Pull = "plain") -> FromZero:
    """From a node that is ordered to the first request that is served [s], each part as a range.

    Equation: t = provision + image_pull + container_start + ready + first_request. A segment whose number the node gives has no range; one that is
    assumed has that of ``SEGMENT_RANGES`` (image: its bytes over the rates of ``pull``). ready: the prediction without segments, and its interval. first_request: as
    predicted. prediction: of ``predict``, whatever it includes; pull: plain or lazy. Raises ConfigError for what is no prediction and a server that does not start, UnknownNameError for another pull.
    Source: the parts follow each other; the four segments of the cold start.
    """
    image_bytes = check_prediction(prediction).context.start.hardware.image_bytes
    image = image_pull_seconds(CLUSTER_DEFAULTS["image_bytes"] if image_bytes is None else image_bytes, pull)
    assumed = {**SEGMENT_RANGES, "image_pull": image}
    ready, whole = start_with(prediction), start_with(prediction, BEFORE_ENGINE)
    parts: dict[str, Range] = {}
    for phase in BEFORE_ENGINE:
        number, is_assumed = whole.phases[phase].seconds, whole.phases[phase].spread
        parts[str(phase)] = assumed[phase] if is_assumed else Range(number, number, number, "given by the node")
    low_s, high_s = ready.interval
    parts["ready"] = Range(low_s, ready.total_s, high_s, f"predicted, interval at {ready.level:g}")
    for phase in AFTER_READY:
        number = prediction.segments[phase]
        parts[str(phase)] = Range(number, number, number, "predicted")
    low, typical, high = (sum(column) for column in zip(*(part[:3] for part in parts.values()), strict=True))
    return FromZero(low, typical, high, MappingProxyType(parts))


def start_with(start: StartupPrediction, segments: Iterable[str] = (), beside: int | None = None) -> StartupPrediction:
    """The same start with these segments and no others, whatever the prediction includes; ``beside``: one of so many on one storage."""
    model, node, engine, profile = start.context.start
    if beside is not None:
        node = node.replace(storage=node.storage.replace(concurrent_starts=beside))
    level, factor = start.level, start.safety_factor
    return predict(model, node, engine, profile=profile, level=level, safety_factor=factor, include=tuple(segments))


class ScalingEvent(NamedTuple):
    """Some starts at once, each on a node of its own, that read their weights from one storage."""

    starts: int
    each_s: float
    """How long each takes, and so when the last is ready; caches of unknown state count as cold, as on nodes that are new."""
    slowdown: float
    """``each_s`` relative to a start alone."""
    spacing_s: float
    """Begun this far apart, each start reads (nearly) alone; the last is ready at ``each_s`` all the same, the first after a start alone."""
    mean_ready_s: float
    """Mean time to ready when they are begun ``spacing_s`` apart; it is ``each_s`` when all begin at once."""
    prediction: StartupPrediction
    """Of each start when all begin at once; its quantiles."""


class _Numbers(FrozenModel):
    starts: Annotated[tuple[Positive, ...], Field(max_length=MAX_EVENTS)]


def concurrent_starts(
    prediction: StartupPrediction, starts: int | Iterable[int] = (1, 2, 4, 8, 16)
) -> tuple[ScalingEvent, ...]:
    """Scaling events of 1, 2, 4 ... starts at once, each slower by the storage that they share.

    Equation: T(n) = the prediction with storage bandwidth / n; slowdown = T(n) / T(1); spacing_s = (T(n) - T(1)) / (n - 1); mean_ready_s = (T(1) + T(n)) / 2. Only
    what is read from storage is shared: weights in the page cache do not slow down. prediction: of one start, with the segments that it includes; starts [1]: how
    many at once, in the place of the node's ``storage.concurrent_starts``. Raises ConfigError for what is no prediction, a server that does not start, and numbers that are none.
    Source: factors.shared_bandwidth (even shares); storage that is never idle finishes the last read at the same time in whatever order it serves.
    """
    included = [phase for phase in (*BEFORE_ENGINE, *AFTER_READY) if phase in check_prediction(prediction).phases]
    several = isinstance(starts, Iterable) and not isinstance(starts, str) and getattr(starts, "ndim", 1) > 0
    numbers = _Numbers(starts=tuple(islice(starts, MAX_EVENTS + 1)) if several else (starts,)).starts  # type: ignore[arg-type]
    if not numbers:
        raise ConfigError("starts", MISSING, "at least one number of starts is needed", "such as (1, 8)")
    alone_s = start_with(prediction, included, 1).slowest_s

    events = []
    for number, beside in ((number, start_with(prediction, included, number)) for number in numbers):
        each_s = beside.slowest_s
        slowdown, spacing_s = each_s / alone_s if alone_s > 0 else 1.0, (each_s - alone_s) / max(1, number - 1)
        events.append(ScalingEvent(number, each_s, slowdown, spacing_s, (alone_s + each_s) / 2.0, beside))
    return tuple(events)


@checked
def rolling_update(prediction: StartupPrediction, *, replicas: Positive, batch: Positive) -> float:
    """Time [s] until the last of some replicas is ready when they start in batches, each batch once the one before is ready.

    Equation: t = floor(replicas / batch) × T(batch) + T(replicas mod batch), T(n) as in ``concurrent_starts``, T(0) = 0. prediction: of one start; replicas, batch [1]
    (Kubernetes: maxSurge plus maxUnavailable at once). Raises ConfigError like ``concurrent_starts``.
    Source: the batches follow each other.
    """
    batch = min(batch, replicas)
    whole, rest = divmod(replicas, batch)
    events = concurrent_starts(prediction, (batch, rest) if rest else batch)
    return whole * events[0].each_s + sum(event.each_s for event in events[1:])
