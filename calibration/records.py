"""Run records: what was started where, and how long its phases took."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from startup_model.base import FrozenModel
from startup_model.config.engine import EngineConfig
from startup_model.config.hardware import HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.phases import Phase
from startup_model.units import Seconds

__all__ = ["RunRecord"]


class RunRecord(FrozenModel):
    """One measured start-up (or the mean of several repetitions). Seconds throughout; a phase that was not measured is
    absent.

    Raises ConfigError for an unknown phase or a sum of phases above the wall time.
    """

    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    phases: dict[str, Seconds]
    """Canonical phase -> measured seconds."""
    wall_s: Seconds | None = None
    """Process start to ready."""
    dataset: str = ""
    """Runs of one session: same host, same day, same settings."""
    repetitions: Annotated[int, Field(ge=1)] = 1
    stamp_resolution_s: Annotated[float, Field(gt=0)] = 0.001
    """What a time stamp of the source can resolve."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.phases:
            if name not in Phase.__members__.values():
                raise UnknownNameError("phases", name, [phase.value for phase in Phase])
        total = sum(self.phases.values())
        slack = self.stamp_resolution_s * (len(self.phases) + 1)
        if self.wall_s is not None and total > self.wall_s * 1.01 + slack:
            raise ConfigError(
                "phases",
                f"{total:.3f} s",
                f"they sum to more than wall_s = {self.wall_s:.3f} s",
                "check the units and the stages",
            )
        return self

    @property
    def unattributed_s(self) -> float | None:
        """Wall time that no measured phase holds; None without a wall time."""
        return None if self.wall_s is None else self.wall_s - sum(self.phases.values())
