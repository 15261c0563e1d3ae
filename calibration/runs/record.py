"""Run records: what was started where, and how long its phases took.

A record may be partial: only the wall time, only some phases, sums of phases that a log gives in one figure. Each says what it is: the state of
the caches is part of the engine's configuration, ``unknown`` where nobody knows.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import Phase
from startup_model.units import Seconds

__all__ = ["PhaseSum", "RunRecord", "RunStatus"]

RunStatus = Literal[
    "ok", "incomplete", "load_failed", "profiling_failed", "oom", "kv_cache_too_small", "capture_failed", "crashed"
]
"""How a start ended: ok, still under way where the record ends, or why it failed."""

_MILLISECONDS = 500.0
"""A wall time above so many times the sum of its phases, or phases so much above it, was given in milliseconds."""

Name = Annotated[str, Field(max_length=200)]


class PhaseSum(FrozenModel):
    """Seconds of several phases together, as a log gives them in one figure ("init engine took ...")."""

    phases: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    seconds: Seconds

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.phases:
            _known_phase(name)
        if len(set(self.phases)) != len(self.phases):
            raise ConfigError("sums.phases", self.phases, "a phase stands there twice", "name each phase once")
        return self


class RunRecord(FrozenModel):
    """One measured start-up, or the mean of several repetitions. Seconds throughout; what was not measured is absent. A start
    that failed may have measured nothing at all.

    Raises ConfigError for an unknown phase, phases that sum to more than the wall time, or figures in milliseconds.
    """

    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    phases: dict[str, Seconds] = Field(default_factory=dict)
    """Canonical phase -> measured seconds."""
    sums: Annotated[tuple[PhaseSum, ...], Field(strict=False)] = ()
    """Figures that hold several phases together."""
    wall_s: Seconds | None = None
    """Process start to ready; from the first line of a log where ``measured_from`` says so."""
    measured_from: Literal["process_start", "first_line"] = "process_start"
    """What ``wall_s`` and ``framework_bootstrap`` count from. A log begins some seconds after its process, when the imports that come before its first line
    are done; such a record tells nothing about the bootstrap."""
    first_token_s: Seconds | None = None
    """Process start to the first token of the first request."""
    facts: dict[str, float] = Field(default_factory=dict)
    """What else a log says, under the names of the log parser: num_gpu_blocks, weights_gib, kv_cache_tokens ..."""
    status: RunStatus = "ok"
    dataset: Name = ""
    """Session: runs of the same host, day and settings."""
    host: Name = ""
    """Fingerprint of the host; empty: told apart by hardware alone."""
    repetitions: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Starts that the figures are the mean of."""
    stamp_resolution_s: Annotated[float, Field(gt=0, le=60)] = 0.001
    """What a time stamp of the source can resolve."""
    source_digest: Name = ""
    """SHA-256 of the file or log that the record was read from."""
    surroundings: dict[str, Annotated[str, Field(max_length=400)]] = Field(default_factory=dict)
    """What it was measured in, for the reader: processor, memory, kernel, file system, drivers. No term uses it."""
    step: Name = ""
    """Step of the plan that the run was made for; a plan that goes on after an interruption leaves such steps out."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.phases:
            _known_phase(name)
        if self.status == "ok" and not self.phases and not self.sums and self.wall_s is None:
            raise ConfigError("phases", "{}", "the record measures nothing", "give phases, sums or wall_s")
        total = sum(self.phases.values())
        slack = self.stamp_resolution_s * (len(self.phases) + 1)
        if self.wall_s is not None and total > self.wall_s * 1.01 + slack:
            if total > _MILLISECONDS * self.wall_s:
                raise ConfigError("phases", f"sum {total:.4g}", "they look like milliseconds", "give seconds")
            raise ConfigError(
                "phases",
                f"sum {total:.4g} s",
                f"they come to more than wall_s = {self.wall_s:.4g} s",
                "check units and stages",
            )
        if self.wall_s is not None and total > 1.0 and self.wall_s > _MILLISECONDS * total:
            raise ConfigError(
                "wall_s", self.wall_s, f"phases come to {total:.4g} s: it looks like milliseconds", "give seconds"
            )
        if self.wall_s == 0:
            raise ConfigError("wall_s", 0, "a start takes time", "give seconds, or leave it out")
        if (
            self.wall_s is not None
            and self.first_token_s is not None
            and self.first_token_s < self.wall_s * 0.99 - slack
        ):
            raise ConfigError(
                "first_token_s",
                self.first_token_s,
                f"it is before ready, wall_s = {self.wall_s:.4g}",
                "count from process start",
            )
        for figure in self.sums:
            inside = sum(self.phases.get(name, 0.0) for name in figure.phases)
            most = self.wall_s if self.wall_s is not None else math.inf
            if inside > figure.seconds * 1.01 + slack or figure.seconds > most * 1.01 + slack:
                other = f"wall_s = {most:.4g}" if figure.seconds > most else f"its phases come to {inside:.4g} s"
                raise ConfigError("sums.seconds", figure.seconds, f"it contradicts {other}", "check units and stages")
        return self

    @property
    def ready_s(self) -> float | None:
        """Seconds from process start to ready; None where they were not measured."""
        return self.wall_s if self.measured_from == "process_start" else None

    @property
    def hidden(self) -> frozenset[str]:
        """Phases of which only a part was measured."""
        return frozenset() if self.measured_from == "process_start" else frozenset({Phase.FRAMEWORK_BOOTSTRAP.value})

    @property
    def unattributed_s(self) -> float | None:
        """Wall time that no measured phase holds; None without a wall time."""
        return None if self.ready_s is None else self.ready_s - sum(self.phases.values())


def _known_phase(name: str) -> None:
    if name not in Phase.__members__.values():
        raise UnknownNameError("phases", name, [phase.value for phase in Phase])
