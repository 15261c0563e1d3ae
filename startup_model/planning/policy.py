"""The policy of an autoscaler: which quantile it plans for, how late it notices, and how much waiting is hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from startup_model.errors import ConfigError
from startup_model.frozen import FrozenModel
from startup_model.units import Seconds

__all__ = ["DEFAULT_QUANTILE", "PolicyLike", "ScalingPolicy", "as_policy"]

DEFAULT_QUANTILE = 0.95
"""Probability at which a start is planned for unless another one is asked for: probes, deadlines, lead times and pools. On a host that was not calibrated it is about
twice the prediction; 0.99 there is six times, since it rests on three hosts. A calibrated host may ask for 0.99."""


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
            raise ConfigError(
                "decision_s",
                self.decision_s,
                f"a window shorter than detection_s = {self.detection_s:g} never sees a second measurement",
                "lengthen it, or give 0 to decide at once",
            )
        return self


PolicyLike = ScalingPolicy | Mapping[str, Any]
"""A policy, or its fields."""


def as_policy(value: PolicyLike | None) -> ScalingPolicy:
    """A policy as it is, or from its fields; None: the defaults. Raises ConfigError for anything else, and for fields that cannot be."""
    if value is None:
        return ScalingPolicy()
    if isinstance(value, ScalingPolicy):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(
            "policy", value, "it is no policy", "give a ScalingPolicy or its fields, such as {'quantile': 0.9}"
        )
    return ScalingPolicy.model_validate(value)
