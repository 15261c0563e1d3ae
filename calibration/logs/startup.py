"""``ParsedStartup``: what a log says about one start of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from calibration.logs.events import LogStatus
from calibration.logs.fields import Setting

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
    facts: Mapping[str, float]
    """Figures under fixed names (weights_gib, load_weights_s, kv_cache_tokens ...); of several ranks the largest."""
    parts: Mapping[str, tuple[float, ...]]
    """``<fact>_parts_s`` -> the figures that add up to the fact, where there are several."""
    ranks: Mapping[str, Mapping[str, float]]
    """Process as it names itself -> its own figures."""
    first_stamp: str | None
    last_stamp: str | None
    wall_s: float | None
    """First line (process start, where the stamps count from there) to ready; None when the log does not get there."""
    from_process_start: bool
    """Whether ``wall_s`` begins with the process; else with its first stamped line, some seconds later."""
    stamp_resolution_s: float | None
    status: LogStatus
    evidence: Evidence | None
    """The line that the status rests on."""
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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        data = asdict(self) | {"unknown_lines": self.unknown_lines}
        data["derived"] = sorted(self.derived)
        data["evidence"] = None if self.evidence is None else self.evidence._asdict()
        data["moments"] = [moment._asdict() for moment in self.moments]
        data["source"] = self.source.rsplit("/", 1)[-1]
        return data
