"""What all starts of a plan have in common, checked before the first of them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from calibration.host import HostFacts
from calibration.measure.command import program_of
from calibration.measure.launch import Launch
from calibration.measure.plan import Plan
from calibration.measure.starts import Limits
from calibration.measure.states import files_to_prepare
from calibration.measure.steps import Step, configuration, launch_of_step, reads_weights
from startup_model.errors import ConfigError
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig

__all__ = ["Session", "check_flag"]

_LONGEST_NAME = 200


class Session(NamedTuple):
    """What all starts of a plan have in common."""

    launch: Launch
    """The command."""
    hardware: HardwareConfig
    """The node that it runs on, for the records."""
    model: ModelConfig | None = None
    """What the command's model is, where its name is not known here."""
    facts: HostFacts | None = None
    """What is known of this host, for the records; None: looked up once."""
    host: str = ""
    """Fingerprint of this host; steps that another host has done are not left out when a plan goes on."""
    dataset: str = ""
    """Name of this session in the records."""
    health_path: str = "/health"
    """Answers 200 when the server is ready."""
    request: bool = True
    """Whether to ask for a first token."""
    drop_caches: bool = False
    """Whether a cold start empties the page cache of the whole host, as root."""
    limits: Limits = Limits()
    """How long anything is waited for [s]."""

    def check(self, plan: Plan) -> None:
        """Raises ConfigError or InputFileError, before minutes are spent, for what would spoil the records or never end."""
        self.limits.check()
        for name in ("request", "drop_caches"):
            check_flag(name, getattr(self, name))
        for name in ("dataset", "host"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) > _LONGEST_NAME:
                raise ConfigError(name, value, f"it should be a text of up to {_LONGEST_NAME} characters", "shorten it")
        path = self.health_path
        if (
            not (isinstance(path, str) and path.startswith("/") and path.isascii() and path.isprintable())
            or " " in path
        ):
            raise ConfigError("health_path", path, "it is no path of a URL", "give one such as /health")
        if self.drop_caches and not any(step.page_cache == "cold" for step in plan.steps):
            raise ConfigError("drop_caches", True, "only a cold start empties caches", "give page_cache='cold' as well")
        program_of(self.launch.words, self.launch.variables)
        self.launch.choose_port()
        for step in plan.steps:
            self.files(step)
            launch_of_step(self.launch, step)
            if self.launch.engine is not None:
                model, engine = configuration(self.launch, step, self.model)
                engine.resolve(model, self.hardware)

    def files(self, step: Step) -> list[Path]:
        """The checkpoint's files, where a step reads them and they are on this host. Raises ConfigError or InputFileError where it cannot go without them."""
        folder = self.launch.checkpoint(step.model)
        return files_to_prepare(folder, step, reads_weights=reads_weights(self.launch, step))


def check_flag(name: str, value: object) -> None:
    """Raises ConfigError for what is neither True nor False."""
    if not isinstance(value, bool):
        raise ConfigError(name, value, "it should be True or False", "leave it out")
