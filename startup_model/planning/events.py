"""Scaling events on shared storage: starts that read at the same time slow each other down."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from startup_model.errors import ConfigError
from startup_model.phases import AFTER_READY, BEFORE_ENGINE
from startup_model.planning.checks import LARGEST_POOL, count
from startup_model.planning.starts import check_prediction
from startup_model.prediction import StartupPrediction
from startup_model.predictor import predict

__all__ = ["ScalingEvent", "concurrent_starts", "rolling_update"]

MOST_EVENTS = 1000
"""Numbers of starts in one call."""


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


def concurrent_starts(
    prediction: StartupPrediction, starts: int | Iterable[int] = (1, 2, 4, 8, 16)
) -> tuple[ScalingEvent, ...]:
    """Scaling events of 1, 2, 4 ... starts at once, each slower by the storage that they share.

    Equation: T(n) = the prediction with storage bandwidth / n; slowdown = T(n) / T(1); spacing_s = (T(n) - T(1)) / (n - 1); mean_ready_s = (T(1) + T(n)) / 2. Only
    what is read from storage is shared: weights in the page cache do not slow down. prediction: of one start, with the segments that it includes; starts [1]: how
    many at once, in the place of the node's ``storage.concurrent_starts``. Raises ConfigError for what is no prediction, a server that does not start, and numbers that are none.
    Source: factors.shared_bandwidth (even shares); storage that is never idle finishes the last read at the same time in whatever order it serves.
    """
    prediction = check_prediction(prediction)
    numbers = _numbers(starts)
    alone_s = _shared(prediction, 1).slowest_s
    return tuple(_event(number, alone_s, _shared(prediction, number)) for number in numbers)


def rolling_update(prediction: StartupPrediction, *, replicas: int, batch: int) -> float:
    """Time [s] until the last of some replicas is ready when they start in batches, each batch once the one before is ready.

    Equation: t = floor(replicas / batch) × T(batch) + T(replicas mod batch), T(n) as in ``concurrent_starts``, T(0) = 0. prediction: of one start; replicas, batch [1]
    (Kubernetes: maxSurge plus maxUnavailable at once). Raises what ``concurrent_starts`` raises.
    Source: the batches follow each other.
    """
    replicas = count("replicas", replicas, 1, LARGEST_POOL)
    batch = min(count("batch", batch, 1, LARGEST_POOL), replicas)
    whole, rest = divmod(replicas, batch)
    events = concurrent_starts(prediction, (batch, rest) if rest else batch)
    return whole * events[0].each_s + sum(event.each_s for event in events[1:])


def _shared(prediction: StartupPrediction, number: int) -> StartupPrediction:
    """The same start beside others, ``number`` in all."""
    model, node, engine, profile = prediction.context.start
    node = node.replace(storage=node.storage.replace(concurrent_starts=number))
    included = [phase for phase in (*BEFORE_ENGINE, *AFTER_READY) if phase in prediction.phases]
    level, safety = prediction.level, prediction.safety_factor
    return predict(model, node, engine, profile=profile, include=included, level=level, safety_factor=safety)


def _event(number: int, alone_s: float, prediction: StartupPrediction) -> ScalingEvent:
    each_s = prediction.slowest_s
    return ScalingEvent(
        starts=number,
        each_s=each_s,
        slowdown=each_s / alone_s if alone_s > 0 else 1.0,
        spacing_s=(each_s - alone_s) / (number - 1) if number > 1 else 0.0,
        mean_ready_s=(alone_s + each_s) / 2.0,
        prediction=prediction,
    )


def _numbers(starts: object) -> tuple[int, ...]:
    """The numbers of starts that were asked for. Raises ConfigError."""
    single = isinstance(starts, str) or not isinstance(starts, Iterable)
    if single or getattr(starts, "ndim", None) == 0:  # an array without a dimension cannot be iterated over
        return (count("starts", starts, 1, LARGEST_POOL),)
    given = islice(starts, MOST_EVENTS + 1)  # type: ignore[call-overload]
    numbers = tuple(count("starts", number, 1, LARGEST_POOL) for number in given)
    if not 0 < len(numbers) <= MOST_EVENTS:
        how_many = "none" if not numbers else f"more than {MOST_EVENTS:,}"
        raise ConfigError("starts", how_many, f"it should be 1 to {MOST_EVENTS:,} numbers of starts", "such as (1, 8)")
    return numbers
