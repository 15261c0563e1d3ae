"""What a manifest is made from: a prediction, a policy, and the names and numbers of the deployment."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Annotated, Self, TypeVar

from pydantic import Field, InstanceOf, model_validator

from startup_model.engines import find
from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import Deploy, Launch, ReadyTimeout
from startup_model.errors import ConfigError, out_of_range, wrong_type
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.planning import ScalingPolicy
from startup_model.prediction import StartupPrediction
from startup_model.predictor import HUB_PREFIX
from startup_model.profile import Profile
from startup_model.secrets import public_address
from startup_model.versions import Version, parse_version

MAX_MADE = 50  # characters of a made name: suffixes of pods, revisions and Secrets still fit into the 63 of a label
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,499}")
T = TypeVar("T")
Replicas = Annotated[int, Field(ge=0, le=100_000)]


class DeploymentRequest(FrozenModel):
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
    replicas_min: Replicas = 1
    replicas_max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """None: twice ``replicas_min``, at least 2."""
    warm_replicas: Replicas | None = None
    """Replicas to keep warm for the demands that are expected (``planning.pool_size``): said beside ``replicas_min``; None: not worked out."""
    requests_per_replica: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Requests in progress from which an autoscaler adds a replica; None: as many of full length as the KV pool holds."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """None: that of the command, else the engine's default."""
    force: bool = False
    """Print a manifest for a server that does not start, too."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field in ("name", "namespace", "volume_claim"):
            if (value := getattr(self, field)) is not None:
                check_label(field, value)
        if self.image is not None:
            check_image(self.image)
        if self.replicas_max is not None and self.replicas_max < self.replicas_min:
            bounds = f"at least replicas_min = {self.replicas_min}"
            raise out_of_range("replicas_max", self.replicas_max, bounds, "raise it, or lower that")
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
    def version_text(self) -> str:
        """Release of the engine that was predicted."""
        return self.prediction.context.engine_name.partition(" ")[2]

    @property
    def version(self) -> Version:
        """The same, to compare."""
        return parse_version(self.version_text)

    @property
    def deploy(self) -> Deploy:
        """How the engine runs in a container. Raises ConfigError where that is not known."""
        return self._known(find(self.engine.engine).deploy)

    @property
    def launch(self) -> Launch:
        """How its server is started. Raises ConfigError where that is not known."""
        return self._known(find(self.engine.engine).launch)

    def _known(self, fact: T | None) -> T:
        if fact is None:
            remedy = "take json, karpenter or a simulator"
            raise ConfigError("engine", self.engine.engine, "how it is deployed is not known", remedy)
        return fact

    @property
    def ready_timeout(self) -> ReadyTimeout | None:
        """How long the server waits for its own engine; None where it has no limit, or none is known."""
        deploy = find(self.engine.engine).deploy
        return deploy and deploy.ready_timeout

    @property
    def workers(self) -> int:
        """Worker processes of the server on one node, an accelerator each."""
        return round(self.prediction.context.inputs["workers"])

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

    def suffixed(self, suffix: str) -> str:
        """Name of what belongs to the deployment."""
        return f"{self.label[:MAX_MADE].rstrip('-')}-{suffix}"

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


def label_from(name: str) -> str:
    """A DNS label from the name of a model: the same for the same name, starting with a letter, at most 50 characters.

    The last part of the name in lower case with hyphens for everything else. Where it is cut or loses letters, a digest of the whole name keeps names apart.
    """
    last = name[:1000].rstrip("/").rsplit("/", 1)[-1]
    text = re.sub(r"[^a-z0-9]+", "-", unicodedata.normalize("NFKD", last).lower()).strip("-")
    if not text[:1].isalpha():
        text = f"model-{text}".rstrip("-")
    if len(text) > MAX_MADE or not last.isascii() or text == "model":
        digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
        text = f"{text[: MAX_MADE - 9].rstrip('-')}-{digest}"
    return text


def check_label(field: str, value: str, *, service: bool = False) -> str:
    """``value`` when it is a DNS-1123 label, or (``service``) a DNS-1035 label. Raises ConfigError with one that is."""
    if not _LABEL.fullmatch(value) or (service and not value[0].isalpha()):
        kind, first = ("1035", ", a letter first") if service else ("1123", "")
        problem = f"must be a DNS-{kind} label (a-z, 0-9 and - within{first}, at most 63)"
        raise ConfigError(field, value, problem, f"{label_from(value)!r} would do")
    return value


def check_image(value: str) -> str:
    """``value`` when it can be a container image. Raises ConfigError."""
    if not _IMAGE.fullmatch(value):
        raise wrong_type("image", value, "a reference of a container image", "such as REGISTRY/NAME:v0.11.0")
    return value
