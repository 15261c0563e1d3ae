"""From nothing to the first answer: the segments around the engine, their ranges, and what bytes take over a link."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from startup_model.errors import MISSING, ConfigError, StartupModelError, UnknownNameError
from startup_model.hardware import CLUSTER_DEFAULTS
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, Phase
from startup_model.plan import GIVEN_BY
from startup_model.planning.starts import check_prediction
from startup_model.prediction import StartupPrediction
from startup_model.predictor import predict
from startup_model.units import parse_bandwidth, parse_bytes

__all__ = [
    "IMAGE_PULL_RATES",
    "SEGMENT_RANGES",
    "FromNothing",
    "Pull",
    "Range",
    "from_nothing",
    "image_pull_seconds",
    "transfer_seconds",
]

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
        "lazy": Range(
            0.3e9,
            0.5e9,
            0.75e9,
            "files that are fetched as they are read, or layers that are pulled and unpacked side by side",
        ),
    }
)
"""How an image is pulled -> rate of pulling and unpacking together, bytes of the compressed image per second.

Source: ends of a collection of public measurements of engine images, 0.02-0.1 and 0.3-0.75 GB/s, which names no single one; typical is near the geometric mean of the ends.
"""


def transfer_seconds(size: float | str, bandwidth: float | str) -> float:
    """Least time [s] that bytes take over a link.

    Equation: t = size / bandwidth. size [B], bandwidth [B/s]; texts carry their unit, so that bits and bytes cannot be mixed up: "2 Gbps" is 0.25e9 B/s, "2 GB/s"
    eight times that. Raises ConfigError for what is none, and for a bandwidth of zero.
    Source: definition.
    """
    try:
        size_bytes, rate = parse_bytes(size), parse_bandwidth(bandwidth)
    except StartupModelError as error:
        raise ConfigError("transfer", MISSING, str(error)) from None
    if rate <= 0.0:
        raise ConfigError(
            "bandwidth", bandwidth, "nothing arrives", "give bytes per second, or a text such as '2 Gbps'"
        )
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
        Phase.PROVISION.value: Range(
            45.0,
            CLUSTER_DEFAULTS["provision_s"],
            410.0,
            "GPU nodes of public clouds, from the order to the cluster; collected, single measurements are not named",
        ),
        Phase.IMAGE_PULL.value: image_pull_seconds(),
        Phase.CONTAINER_START.value: Range(
            1.0,
            CLUSTER_DEFAULTS["container_start_s"],
            5.0,
            "high: Kubernetes' service-level objective for the start of a pod whose image is there (99 % within 5 s)",
        ),
        Phase.FIRST_REQUEST.value: Range(
            0.1,
            0.3,
            202.0,
            "tenths of a second in public logs; high: a first start that builds FP8 MoE kernels (vLLM 0.24: DeepGEMM 82 s + FlashInfer 120 s), none with a prebuilt cache",
        ),
    }
)
"""Segment around the engine -> seconds: low, typical, high. The image of 10 GB is pulled plainly; ``image_pull_seconds`` has the lazy way and other sizes."""


class FromNothing(NamedTuple):
    """Time from the order of a node to the first answer [s], and its parts."""

    low_s: float
    typical_s: float
    high_s: float
    """The parts at their least and at their most, added up: wider than an interval of the sum."""
    parts: Mapping[str, Range]
    """provision, image_pull, container_start, ready, first_request, in order."""


def from_nothing(prediction: StartupPrediction, pull: Pull = "plain") -> FromNothing:
    """From a node that is ordered to the first request that is served [s], each part as a range.

    Equation: t = provision + image_pull + container_start + ready + first_request. A segment whose number the node gives has no range; one that is
    assumed has that of ``SEGMENT_RANGES`` (image: its bytes over the rates of ``pull``). ready: the prediction without segments, and its interval. first_request: as
    predicted. prediction: of ``predict``, whatever it includes; pull: plain or lazy. Raises ConfigError for what is no prediction and a server that does not start, UnknownNameError for another pull.
    Source: the parts follow each other; the four segments of the cold start.
    """
    prediction = check_prediction(prediction)
    image = image_pull_seconds(prediction.context.inputs["image_bytes"], pull)
    assumed = dict(SEGMENT_RANGES) | {Phase.IMAGE_PULL.value: image}
    parts = {phase.value: _segment(phase, prediction, assumed[phase.value]) for phase in BEFORE_ENGINE}
    parts["ready"] = _ready(prediction)
    parts |= {phase.value: _exactly(prediction.segments[phase], "predicted") for phase in AFTER_READY}
    low, typical, high = (sum(column) for column in zip(*(part[:3] for part in parts.values()), strict=True))
    return FromNothing(low, typical, high, MappingProxyType(parts))


def _segment(phase: Phase, prediction: StartupPrediction, assumed: Range) -> Range:
    given = all(getattr(prediction.context.start.hardware, name) is not None for name in GIVEN_BY[phase])
    return _exactly(prediction.segments[phase], "given by the node") if given else assumed


def _ready(prediction: StartupPrediction) -> Range:
    """The start without segments, with its interval."""
    start = prediction.context.start
    ready = predict(*start[:3], profile=start.profile, level=prediction.level)
    return Range(ready.interval[0], ready.total_s, ready.interval[1], f"predicted, interval at {ready.level:g}")


def _exactly(value: float, source: str) -> Range:
    return Range(value, value, value, source)
