"""``ParsedStartup``: what a log says about one start of a server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from calibration.logs.configuration import logged_engine
from calibration.logs.fields import Setting
from calibration.runs.record import PhaseSum, RunRecord, RunStatus
from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.models.config import ModelConfig
from startup_model.phases import Phase
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, as_engine, as_hardware, as_model

__all__ = ["Evidence", "Moment", "ParsedStartup"]


class Evidence(NamedTuple):
    """The line that a statement rests on."""

    line_number: int
    """From 1, in the log."""
    text: str
    """The line as logged, shortened and without secrets."""


class Moment(NamedTuple):
    """Something that happened, and when."""

    event: str
    elapsed_s: float
    """Since the first stamp of the start."""
    line_number: int


@dataclass(frozen=True, slots=True)
class ParsedStartup:
    """One start of a server, as its log tells it. Seconds and GiB; what the log does not say is None or absent."""

    engine: str
    """vllm, vllm-ascend, vllm-tpu, sglang, tgi, llama.cpp, tensorrt-llm or lmdeploy."""
    engine_version: str | None
    engine_generation: str | None
    """Of vLLM: v0 or v1."""
    model: str | None
    tp: int | None
    pp: int | None
    dp: int | None
    platform: str | None
    """What the engine runs on, where it says so: cuda, rocm, cpu, npu ..."""
    dtype: str | None
    quantization: str | None
    load_format: str | None
    flags: Mapping[str, Setting]
    """Arguments that the engine printed as given ("non-default args"), secrets replaced by ``***``."""
    settings: Mapping[str, Setting]
    """The engine's own configuration line, and settings that it logged one by one."""
    phases: Mapping[str, float]
    """Canonical phase -> seconds, in order."""
    derived: frozenset[str]
    """Phases and facts that no line gives: taken from the stamps of neighbouring lines, or from other figures."""
    joint: Mapping[str, tuple[str, ...]]
    """Phase -> all phases that its derived seconds hold together."""
    facts: Mapping[str, Any]
    """Figures under fixed names (weights_gib, load_weights_s, kv_cache_tokens ...); of several ranks the largest. ``<name>_parts_s`` lists the parts of a
    figure that is a sum; ``ready_line`` is False where the log does not get to the line that says ready."""
    ranks: Mapping[str, Mapping[str, float]]
    """Process as it names itself -> its own figures."""
    first_stamp: str | None
    last_stamp: str | None
    wall_s: float | None
    """First line (process start, where the stamps count from there) to ready; None when the log does not get there."""
    from_process_start: bool
    """Whether ``wall_s`` begins with the process; else with its first stamped line, some seconds later."""
    stamp_resolution_s: float | None
    status: RunStatus
    evidence: Evidence | None
    """The line that the status rests on."""
    phase_evidence: Mapping[str, Evidence]
    """Phase -> the line that gives its longest part, else the last one that speaks of it."""
    compile_cache: str
    """warm: compiled graphs were loaded; cold: everything was compiled; unknown."""
    moments: tuple[Moment, ...]
    """When what happened, by time."""
    warnings: tuple[str, ...]
    channel: str = ""
    """Container or pod, where the log names several."""
    first_line: int = 1
    lines: int = 0
    """Lines of the whole log."""
    recognised: int = 0
    """Of these, lines that say something about a start."""
    earlier: int = 0
    """Starts before this one in the same log."""
    source: str = ""
    source_digest: str = ""
    """SHA-256 of the log."""

    @property
    def unknown_lines(self) -> int:
        """Lines of the log that no table knows."""
        return max(0, self.lines - self.recognised)

    @property
    def is_ok(self) -> bool:
        """Whether the server came up."""
        return self.status == "ok"

    def __str__(self) -> str:
        """One line."""
        version = f" {self.engine_version}" if self.engine_version else ""
        end = f"ready after {self.wall_s:.1f} s" if self.wall_s is not None and self.is_ok else self.status
        longest = max(self.phases, key=lambda name: self.phases[name], default=None)
        mostly = f", mostly {longest} ({self.phases[longest]:.1f} s)" if longest is not None else ""
        return f"{self.engine}{version} {self.model or 'unknown model'}: {end}{mostly}"

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        data = {item.name: getattr(self, item.name) for item in fields(self)} | {"unknown_lines": self.unknown_lines}
        data["derived"] = sorted(self.derived)
        data["evidence"] = None if self.evidence is None else self.evidence._asdict()
        data["phase_evidence"] = {name: line._asdict() for name, line in self.phase_evidence.items()}
        data["moments"] = [moment._asdict() for moment in self.moments]
        data |= {name: dict(data[name]) for name in ("flags", "settings", "phases", "joint", "facts", "ranks")}
        data["warnings"] = list(self.warnings)
        data["source"] = self.source.replace("\\", "/").rsplit("/", 1)[-1]
        return data

    def to_run(
        self,
        hardware: HardwareLike,
        *,
        model: ModelLike | None = None,
        engine: EngineLike | None = None,
        page_cache: str = "unknown",
        compile_cache: str | None = None,
        process_start_s: float | None = None,
        host: str = "",
        dataset: str = "",
    ) -> RunRecord:
        """The start as a record for calibration.

        hardware: the node, which no log names well enough. model, engine: in the place of what the log says. page_cache: hot, cold or unknown;
        compile_cache: None: as the log tells. process_start_s: seconds from the start of the process to the first line of the log, where they were
        measured; without them the record counts from its first line, and calibration leaves its bootstrap and wall time alone. Time spent on
        downloading weights is taken off the wall time. Raises ConfigError when the model or the engine is not known here, or nothing was measured.
        """
        logged = logged_engine(self.engine, self.engine_version, self.engine_generation, self.flags, self.settings)
        degrees = {name: count for name in ("tp", "pp", "dp") if (count := getattr(self, name)) is not None}
        config = logged.config.replace(**degrees) if engine is None else as_engine(engine)
        config = config.replace(page_cache=page_cache, compile_cache=compile_cache or self.compile_cache)
        node = as_hardware(hardware)
        needed = -(-config.tp * config.pp * config.dp // node.nodes)
        if isinstance(hardware, str) and not node.is_cpu_only and needed > node.gpus:
            node = node.replace(gpus=needed)  # a preset names the accelerator, not how many there are
        if self.platform in _PLATFORMS and _PLATFORMS[self.platform] != node.platform:
            raise ConfigError(
                "hardware",
                node.name,
                f"it is {node.platform}, the log is of a start on {self.platform}",
                "give the node of the log",
            )
        head = 0.0 if self.from_process_start else process_start_s
        if head is not None and not (math.isfinite(head) and 0 <= head < 86400):
            raise ConfigError(
                "process_start_s", head, "it should be seconds from 0 on", "give the time before the first line"
            )
        phases = {
            name: seconds
            for name, seconds in self.phases.items()
            if name not in self.joint and name != Phase.UNATTRIBUTED.value
        }
        sums = [PhaseSum(phases=names, seconds=self.phases[name]) for name, names in self.joint.items()]
        wall = (
            None
            if self.wall_s is None or not self.is_ok
            else self.wall_s - self.facts.get("download_s", 0.0) + (head or 0.0)
        )
        boot = Phase.FRAMEWORK_BOOTSTRAP.value
        if head and boot in phases:
            phases[boot] += head
        slack = (self.stamp_resolution_s or 1.0) * (len(phases) + 1)
        if wall is not None and sum(phases.values()) > wall * 1.01 + slack:
            wall = None  # the log counts something twice, or its clock was set
        return RunRecord(
            model=_model(model, self.model),
            hardware=node,
            engine=config,
            phases=phases,
            sums=tuple(sums),
            wall_s=wall or None,
            measured_from="process_start" if head is not None else "first_line",
            facts={name: value for name, value in self.facts.items() if type(value) is float},
            status=self.status,
            dataset=dataset,
            host=host,
            stamp_resolution_s=self.stamp_resolution_s or 1.0,
            source_digest=f"{self.source_digest}:{self.earlier}" if self.earlier else self.source_digest,
        )  # fmt: skip


_PLATFORMS = {"cuda": "cuda", "rocm": "rocm", "cpu": "cpu", "hpu": "hpu", "npu": "npu", "ascend": "npu"}
"""What an engine calls its platform -> what a node calls it."""


def _model(given: ModelLike | None, logged: str | None) -> ModelConfig:
    if given is not None:
        return as_model(given)
    if logged is None:
        raise ConfigError("model", MISSING, "the log does not name it", "give the model (model=, --model)")
    try:
        return ModelConfig.from_catalogue(logged)  # a name in a log is never opened as a file, or asked for at a hub
    except StartupModelError:
        raise ConfigError(
            "model",
            logged,
            "the catalogue does not have what the log names",
            "give the model (model=, --model): its folder, config.json or catalogue name",
        ) from None
