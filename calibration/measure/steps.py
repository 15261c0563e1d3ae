"""Steps: the kinds of start that a plan is made of, and what each of them means for the command, the model and the engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from calibration.measure.launch import Launch
from startup_model.engines.config import LOAD_FORMATS, EngineConfig
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.predictor import as_model, predict
from startup_model.profile import Profile

__all__ = [
    "Basis",
    "CompileCache",
    "Group",
    "PageCache",
    "Step",
    "TorchCompile",
    "configuration",
    "engine_of",
    "expected_s",
    "keeps_graphs",
    "launch_of_step",
    "reads_weights",
    "runs_torch_compile",
]

PageCache = Literal["hot", "cold", "as_is"]
"""hot: the checkpoint is read before the start; cold: its files are evicted; as_is: it is left as it is."""
CompileCache = Literal["warm", "fresh"]
"""warm: an earlier start has compiled the graphs; fresh: the cache is a new folder."""
TorchCompile = Literal["on", "off"]
"""on: as the command has it."""

Group = tuple[str | None, bool, str]
"""What compiled graphs depend on: model, eager, torch.compile. Starts of one group share them."""


class Step(NamedTuple):
    """One kind of start that is to be measured."""

    model: str | None = None
    """Name or folder in the place of the command's own; None: that one."""
    page_cache: PageCache = "hot"
    """Where the checkpoint is when the server starts."""
    compile_cache: CompileCache = "warm"
    """Whether compiled graphs are there when the server starts."""
    eager: bool = False
    """With the engine's flag for eager execution: no torch.compile, no graphs."""
    dummy: bool = False
    """With weights that are made up: nothing is read."""
    torch_compile: TorchCompile = "on"
    """off: with the flag that turns torch.compile off, where the engine would run it."""
    repetition: int = 1
    """Of this kind of start, from 1."""

    @property
    def name(self) -> str:
        """base, or what sets the step apart from the command as it is: eager, dummy, uncompiled."""
        flags = {"eager": self.eager, "dummy": self.dummy, "uncompiled": self.torch_compile == "off"}
        return " ".join(name for name, is_set in flags.items() if is_set) or "base"

    @property
    def group(self) -> Group:
        """Steps of one group share compiled graphs."""
        return (self.model, self.eager, self.torch_compile)

    def key(self, launch: Launch) -> str:
        """What tells steps apart when a plan goes on: the command, and all of the above."""
        digest = hashlib.sha256(repr((launch.words, sorted(launch.environment.items()), *self)).encode()).hexdigest()
        return f"{self.name} {digest[:12]}"

    def words(self) -> str:
        """The step in words."""
        compiles = not self.eager and self.torch_compile == "on"
        parts = [
            self.name,
            self.model or "",
            "" if self.dummy else f"page cache {self.page_cache.replace('_', ' ')}",
            f"compile cache {self.compile_cache}" if compiles else "",
            f"repetition {self.repetition}" if self.repetition > 1 else "",
        ]
        return ", ".join(part for part in parts if part)


class Basis(NamedTuple):
    """What a plan is worked out from."""

    launch: Launch
    """The command."""
    hardware: HardwareConfig
    """The node that it runs on."""
    model: ModelConfig | None = None
    """What the command's model is, where its name is not known here."""
    prior: Profile | None = None
    """The profile to expect times by; None: the nearest reference."""


_UNCOMPILED: Mapping[str, Mapping[str, Any]] = {"vllm": {"optimization_level": 0}, "sglang": {"torch_compile": False}}
"""Engine -> what its configuration says when torch.compile is off. vLLM's V1 core ignores the level before 0.10.1."""


def launch_of_step(launch: Launch, step: Step) -> Launch:
    """The command with the flags of a step; its model is still the command's own. Raises ConfigError where they cannot be added."""
    return launch.changed(**_flags(launch, step))


def engine_of(launch: Launch, step: Step) -> EngineConfig | None:
    """The engine that a step starts; None for a program that is not known here."""
    if launch.engine is None:
        return None
    has_graphs = step.compile_cache == "warm" and keeps_graphs(launch)
    return launch.engine.replace(
        page_cache="unknown" if step.page_cache == "as_is" else step.page_cache,
        compile_cache="warm" if has_graphs else "cold",
        **_flags(launch, step),
    )


def _flags(launch: Launch, step: Step) -> dict[str, Any]:
    """Fields of the engine that a step sets."""
    fields: dict[str, Any] = {"enforce_eager": True} if step.eager else {}
    if step.dummy:
        fields["load_format"] = "dummy"
    if step.torch_compile == "off" and launch.engine is not None:
        fields |= _UNCOMPILED[launch.engine.engine]
    return fields


def keeps_graphs(launch: Launch) -> bool:
    """Whether the server keeps compiled graphs for the next start: a variable may say that it does not."""
    return launch.engine is None or launch.engine.compile_cache != "cold"


def reads_weights(launch: Launch, step: Step) -> bool:
    """Whether a start of a step reads the checkpoint: with dummy weights none does."""
    engine = engine_of(launch, step)
    return engine is None or LOAD_FORMATS[engine.load_format].reads_weights


def configuration(launch: Launch, step: Step, model: ModelConfig | None = None) -> tuple[ModelConfig, EngineConfig]:
    """The model and the engine of a step; ``model``: in the place of what the command names.

    Raises ConfigError or InputFileError when one of them is not known here.
    """
    engine = engine_of(launch, step)
    if engine is None:
        raise ConfigError("command", launch.label(), "it starts no engine that is known here", "start vllm or sglang")
    if model is not None:
        return model, engine
    name = step.model or engine.model
    if name is None:
        raise ConfigError("command", launch.label(), "it names no model", "name one in it, or give model=")
    folder = launch.checkpoint(step.model)
    try:
        return as_model(str(folder) if folder is not None else name), engine
    except UnknownNameError:
        raise ConfigError(
            "model", name, "it is not in the catalogue, and not on this host: a record has to know its shape",
            "download it first, or name its folder (in Python: model=)",
        ) from None  # fmt: skip


def expected_s(basis: Basis, step: Step) -> float:
    """Seconds from the start of the process to ready. Raises StartupModelError where nothing can be said."""
    model, engine = configuration(basis.launch, step, basis.model)
    return predict(model, basis.hardware, engine, profile=basis.prior).total_s


def runs_torch_compile(basis: Basis, step: Step) -> bool:
    """Whether a start of a step runs torch.compile; True where nothing can be said."""
    try:
        model, engine = configuration(basis.launch, step, basis.model)
        return engine.resolve(model, basis.hardware).compiles
    except StartupModelError:
        return True
