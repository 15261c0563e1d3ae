"""The policy of an autoscaler: what it promises, how late it notices, and how much waiting is hidden."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from startup_model.base import FrozenModel
from startup_model.errors import ConfigError
from startup_model.units import Seconds

__all__ = ["ScalingPolicy"]


class ScalingPolicy(FrozenModel):
    """How an autoscaler uses a predicted start. Times are seconds; texts such as ``"5 min"`` are read.

    Raises ConfigError for values that cannot be and for those that contradict each other.
    """

    quantile: Annotated[float, Field(ge=0.001, le=0.999)] = 0.9
    """Probability with which a start is to be ready in time. A prediction without a calibration rests on three hosts: beyond 0.9 its
    quantiles grow fast (0.99 is several times the prediction); with a calibrated profile 0.99 is well within reach."""
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
