"""Run records: what was started where, and how long its phases took.

A record may be partial: only the wall time, only some phases, sums of phases that a log gives in one figure. Each says what it is: the state of
the caches is part of the engine's configuration, ``unknown`` where nobody knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_serializer, model_validator

from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, UnknownNameError, conflict, duplicate, out_of_range
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import PHASES
from startup_model.units import Seconds

RunStatus = Literal[
    "ok", "incomplete", "load_failed", "profiling_failed", "oom", "kv_cache_too_small", "capture_failed", "crashed"
]
"""How a start ended: ok, still under way where the record ends, or why it failed."""

_MILLISECONDS = (
    500.0  # a wall time above so many times its phases, or phases so much above it, was given in milliseconds
)
_TYPO = 0.79  # likeness to a known name from which an unknown one is a slip of the pen
_MAX_EXTRA = 4096  # characters of a field that this release does not know

Name = Annotated[str, Field(max_length=200)]


def phase_names() -> list[str]:
    """The phases that this release knows, in the order of a start."""
    return [*map(str, PHASES)]


def is_phase(name: str) -> bool:
    """Whether this release knows a phase of that name."""
    return name in PHASES


def _check_names(field: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise UnknownNameError for a misspelt name; one unlike all others may be of a newer release, or of a plug-in."""
    for name in names:
        if name not in known and any(SequenceMatcher(None, name.lower(), other).ratio() > _TYPO for other in known):
            raise UnknownNameError(field, name, known)


class PhaseSum(FrozenModel):
    """Seconds of several phases together, as a log gives them in one figure ("init engine took ...")."""

    phases: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    seconds: Seconds

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_names("phases", self.phases, phase_names())
        if len(set(self.phases)) != len(self.phases):
            raise duplicate("sums.phases", self.phases, "name each phase once")
        return self


class RunRecord(FrozenModel):
    """One measured start-up, or the mean of several repetitions. Seconds throughout; what was not measured is absent. A start
    that failed may have measured nothing at all. Fields of a newer release are kept and written back.

    Raises ConfigError for a misspelt field or phase, phases that sum to more than the wall time, or figures in milliseconds.
    """

    model_config = ConfigDict(extra="allow")

    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    phases: dict[str, Seconds] = Field(default_factory=dict)
    """Canonical phase -> measured seconds."""
    unknown_phases: dict[str, Seconds] = Field(default_factory=dict, exclude=True)
    """Phases that this release does not know, from a newer one or from a plug-in that is not installed. They are written back among ``phases``; their
    time counts as unattributed."""
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
    host_notes: dict[str, Annotated[str, Field(max_length=400)]] = Field(default_factory=dict)
    """What it was measured in, for the reader: processor, memory, kernel, file system, drivers. No term uses it."""
    step: Name = ""
    """Step of the plan that the run was made for; a plan that goes on after an interruption leaves such steps out."""

    @model_validator(mode="before")
    @classmethod
    def _of_any_release(cls, data: Any) -> Any:
        """Put things where they belong in this release, wherever the one that wrote the record had them."""
        if isinstance(data, dict) and "surroundings" in data:
            data = {"host_notes" if name == "surroundings" else name: value for name, value in data.items()}
        phases = data.get("phases", {}) if isinstance(data, dict) else None
        if not isinstance(phases, dict):
            return data
        unknown = data.get("unknown_phases") or {}
        if not isinstance(unknown, dict) or (not unknown and phases.keys() <= PHASES.keys()):
            return data
        every = unknown | phases
        split = {known: {n: s for n, s in every.items() if is_phase(str(n)) == known} for known in (True, False)}
        return data | {"phases": split[True], "unknown_phases": split[False]}

    @field_serializer("phases")
    def _all_phases(self, phases: dict[str, float]) -> dict[str, float]:
        return phases | self.unknown_phases if self.unknown_phases else phases

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.unknown_phases:
            _check_names("phases", self.unknown_phases, phase_names())
        for name, value in (self.model_extra or {}).items():
            _check_names("field", [name], type(self).model_fields)
            if len(json.dumps(value, default=str)) > _MAX_EXTRA:
                words = f"at most {_MAX_EXTRA} characters"
                raise out_of_range(name, value, words, "leave out a field that is not of a run record")
        wall_s, phases = self.wall_s, self._all_phases(self.phases)
        total, slack = sum(phases.values()), self.stamp_resolution_s * (len(phases) + 1)
        if self.status == "ok" and not phases and not self.sums and wall_s is None:
            raise ConfigError("phases", "{}", "the record has no measurements", "give phases, sums or wall_s")
        if wall_s is not None:
            if total > wall_s * 1.01 + slack:
                if total > _MILLISECONDS * wall_s:
                    raise ConfigError("phases", f"sum {total:.4g}", "they look like milliseconds", "give seconds")
                words = f"they come to more than wall_s = {wall_s:.4g} s"
                raise ConfigError("phases", f"sum {total:.4g} s", words, "check units and stages")
            if total > 1.0 and wall_s > _MILLISECONDS * total:
                words = f"phases come to {total:.4g} s: it looks like milliseconds"
                raise ConfigError("wall_s", wall_s, words, "give seconds")
            if wall_s == 0:
                raise out_of_range("wall_s", 0, "above 0", "give seconds, or leave it out")
            if self.first_token_s is not None and self.first_token_s < wall_s * 0.99 - slack:
                words = f"ready at wall_s = {wall_s:.4g}, which comes before it"
                raise conflict("first_token_s", self.first_token_s, words, "count from process start")
        for figure in self.sums:
            inside = sum(phases.get(name, 0.0) for name in figure.phases)
            most = wall_s if wall_s is not None else math.inf
            if inside > figure.seconds * 1.01 + slack or figure.seconds > most * 1.01 + slack:
                other = f"wall_s = {most:.4g}" if figure.seconds > most else f"its phases, which come to {inside:.4g} s"
                raise conflict("sums.seconds", figure.seconds, other, "check units and stages")
        return self

    @property
    def ready_s(self) -> float | None:
        """Seconds from process start to ready; None where they were not measured."""
        return self.wall_s if self.measured_from == "process_start" else None

    @property
    def hidden(self) -> frozenset[str]:
        """Phases of which only a part was measured."""
        return frozenset() if self.measured_from == "process_start" else frozenset({"framework_bootstrap"})

    @property
    def unattributed_s(self) -> float | None:
        """Wall time that no known phase holds; None without a wall time."""
        return None if self.ready_s is None else self.ready_s - sum(self.phases.values())
