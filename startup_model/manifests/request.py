"""What a manifest is made from: a prediction, a policy, and the names and numbers of the deployment."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, InstanceOf, model_validator

from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.manifests.names import check_image, check_label, label_from
from startup_model.manifests.secrets import public_address
from startup_model.planning import ScalingPolicy
from startup_model.prediction import StartupPrediction
from startup_model.predictor import HUB_PREFIX
from startup_model.profile import Profile

__all__ = ["PlanRequest"]


class PlanRequest(FrozenModel):
    """What ``timings`` and ``render`` need. None: derived, as each field says.

    Raises ConfigError for values that cannot be and for those that contradict each other.
    """

    prediction: InstanceOf[StartupPrediction]
    """Of ``predict``, whatever segments it includes: what lies before the container starts is told apart."""
    policy: InstanceOf[ScalingPolicy] = ScalingPolicy()
    """quantile, margin_factor: of probes and deadlines; detection_s, decision_s, cooldown_s: of autoscalers."""
    command: str | None = Field(default=None, repr=False)
    """The command line as it was pasted; None, or the name of an engine alone: the flags that the prediction used."""
    model: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """What the server is told to serve; None: the model of the command, else the name of the predicted one."""
    profile: InstanceOf[Profile] | None = None
    """For a ConfigMap; None: the profile that the prediction was made with."""
    name: str | None = None
    """Of the deployment and of what belongs to it, a DNS-1123 label; None: made from the model's name."""
    namespace: str | None = None
    image: str | None = None
    """Container image; None: that of the command, else the engine's published one of the predicted version."""
    volume_claim: str | None = None
    """PersistentVolumeClaim that holds the checkpoint (the hub's cache, or the folder that the model lies in); None: no volume."""
    period_s: Annotated[int, Field(ge=1, le=3600)] = 10
    """Period of the probes."""
    replicas_min: Annotated[int, Field(ge=0, le=100_000)] = 1
    replicas_max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """None: twice ``replicas_min``, at least 2."""
    warm_replicas: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Replicas to keep warm for the demands that are expected (``planning.pool_size``): said beside ``replicas_min``; None: not worked out."""
    requests_per_replica: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Requests in progress from which an autoscaler adds a replica; None: as many of full length as the KV pool holds."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """None: that of the command, else the engine's default."""
    force: bool = False
    """Print a manifest for a server that does not start, too."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field, value in (("name", self.name), ("namespace", self.namespace), ("volume_claim", self.volume_claim)):
            if value is not None:
                check_label(field, value)
        if self.image is not None:
            check_image(self.image)
        if self.replicas_max is not None and self.replicas_max < self.replicas_min:
            raise ConfigError(
                "replicas_max",
                self.replicas_max,
                f"below replicas_min = {self.replicas_min}",
                "raise it, or lower that",
            )
        return self

    @property
    def engine(self) -> EngineConfig:
        """The engine that the prediction is of."""
        return self.prediction.context.start.engine

    @property
    def hardware(self) -> HardwareConfig:
        """The node that the prediction is for."""
        return self.prediction.context.start.hardware

    @property
    def served_model(self) -> str:
        """What the server is told to serve."""
        name = self.model or self.engine.model or self.prediction.context.model_name
        return name.removeprefix(HUB_PREFIX)

    @property
    def public_model(self) -> str:
        """The same without user, password and query of an address."""
        return public_address(self.served_model)

    @property
    def label(self) -> str:
        """Name of the deployment."""
        return self.name if self.name is not None else label_from(self.public_model)

    @property
    def most_replicas(self) -> int:
        """Where autoscalers stop."""
        return self.replicas_max if self.replicas_max is not None else max(2, 2 * self.replicas_min)

    @property
    def requests_each(self) -> int:
        """Requests in progress for each replica."""
        if self.requests_per_replica is not None:
            return self.requests_per_replica
        return min(max(1, int(self.prediction.memory.max_concurrency)), 10**6)
