"""``predict``: the one place where configurations, terms and a profile meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from startup_model.engines.config import DEFAULT_VERSIONS, EngineConfig
from startup_model.errors import ConfigError, InputFileError, UnknownNameError
from startup_model.factors import SAFETY_FACTOR, check_safety_factor
from startup_model.files import is_file, is_folder
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import Phase
from startup_model.pipelines import Overlap, Step, run_pipeline
from startup_model.plan import SEGMENTS, Plan, describe, make_plan
from startup_model.prediction import Context, PhasePrediction, Spread, Start, StartupPrediction, TermCall
from startup_model.profile import Profile, reference_names
from startup_model.uncertainty import check_level

__all__ = [
    "EngineLike",
    "HardwareLike",
    "ModelLike",
    "ProfileLike",
    "as_engine",
    "as_hardware",
    "as_model",
    "as_profile",
    "as_start",
    "check_include",
    "is_path",
    "predict",
]

ModelLike = ModelConfig | Mapping[str, Any] | str | Path
HardwareLike = HardwareConfig | Mapping[str, Any] | str | Path
EngineLike = EngineConfig | Mapping[str, Any] | str
ProfileLike = Profile | str | Path

HUB_PREFIX = "hub:"
"""In front of an id: read the model from a hub; without it nothing is ever asked of the network."""

_SEGMENT_PHASES = frozenset(SEGMENTS)


def predict(
    model_cfg: ModelLike,
    hw_cfg: HardwareLike,
    engine_cfg: EngineLike | None = None,
    *,
    profile: ProfileLike | None = None,
    level: float = 0.9,
    safety_factor: float = SAFETY_FACTOR,
    include: Iterable[str] = (),
    **engine_options: Any,
) -> StartupPrediction:
    """Start-up time of an inference server, phase by phase, with an interval and the memory budget.

    model_cfg: a ModelConfig, a config.json (path, folder or content as a dict), explicit numbers as a dict, or a
    catalogue name. hw_cfg: a HardwareConfig, a preset's name, a JSON file, or a dict (with ``preset`` to start from
    one). engine_cfg: an EngineConfig, a dict of its fields, or a command line such as ``"vllm serve MODEL -tp 2"``;
    None: vLLM as the profile's version. profile: a Profile, a file, or the name of a reference profile; None: the
    nearest reference, and ``calibrated`` is False. level: probability of the interval. safety_factor: ``slo_bound_s`` =
    factor x prediction. include: segments outside the time to ready that the total should hold (provision, image_pull,
    container_start, first_request). Further keywords are fields of EngineConfig: ``predict(model, node,
    page_cache="cold")``.

    total_s = sum of the phases of the engine's pipeline, the longest of those that overlap. Raises ConfigError,
    InputFileError or ProfileError with one line that names field, value and remedy; nothing else is raised for any
    input.
    """
    start = as_start(model_cfg, hw_cfg, engine_cfg, profile, engine_options)
    level = check_level(level)
    safety = check_safety_factor(safety_factor)
    prepared = _prepare(start)
    plan = prepared.plan

    phases: dict[Phase, PhasePrediction] = {}
    total = spread = 0.0
    if prepared.overlaps:
        timings = run_pipeline(plan.pipeline, _step_seconds(plan))
        for phase, calls, phase_spread in prepared.rows:
            seconds, elapsed = (float(value) for value in timings.get(phase, (0.0, 0.0)))
            phases[phase] = PhasePrediction(phase, seconds, elapsed, calls, phase_spread)
            total += seconds
            spread += seconds * phase_spread
    else:
        for phase, calls, phase_spread in prepared.rows:
            seconds = 0.0
            for function, inputs, coefficients, scale, *_ in calls:
                seconds += function(*inputs, **coefficients) * scale
            phases[phase] = PhasePrediction(phase, seconds, seconds, calls, phase_spread)
            total += seconds
            spread += seconds * phase_spread
    own = plan.common_spread
    if include:
        total, own = _add_segments(check_include(include), prepared, phases, total)
    scatter = Spread(spread / total if total else 0.0, plan.degrees, own)
    factor = scatter.factor((1.0 + level) / 2.0)
    slowest = total + prepared.cold_extra_s
    interval = (total / factor, slowest * factor)
    return StartupPrediction(
        total, MappingProxyType(phases), interval, level, safety * slowest, safety, slowest, scatter, prepared.context
    )


class _Prepared(NamedTuple):
    """What a call of ``predict`` starts from, built once for equal starts."""

    plan: Plan
    rows: tuple[tuple[Phase, tuple[TermCall, ...], float], ...]
    """Phases of the time to ready in order, their terms, and the standard deviation of the logarithm of their time."""
    overlaps: bool
    cold_extra_s: float
    context: Context


@lru_cache(maxsize=2048)
def _prepare(start: Start) -> _Prepared:
    plan = make_plan(start)
    return _Prepared(
        plan=plan,
        rows=tuple((phase, calls, plan.spread_of(phase)) for phase, calls in plan.calls.items()),
        overlaps=any(isinstance(part, Overlap) for part in plan.pipeline.parts),
        cold_extra_s=sum(plan.cold_extras().values()),
        context=describe(plan),
    )


def _step_seconds(plan: Plan) -> Callable[[Step], float | None]:
    """Time of the steps of a plan by step; None for those that flags or the request leave out."""
    by_step = {(phase, call.term.name): call.seconds() for phase, calls in plan.calls.items() for call in calls}
    return lambda step: by_step.get((step.phase, step.term.name))


def check_include(include: Iterable[str]) -> tuple[Phase, ...]:
    """Segments to add, each once. Raises ConfigError for what is no list, UnknownNameError for a name that is no segment."""
    names = (include,) if isinstance(include, str) else tuple(include) if isinstance(include, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError("include", include, "it should be a list of names", f"known: {', '.join(SEGMENTS)}")
    for name in names:
        if name not in _SEGMENT_PHASES:
            raise UnknownNameError("include", str(name), [phase.value for phase in SEGMENTS])
    return tuple(dict.fromkeys(Phase(name) for name in names))


def _add_segments(
    include: Iterable[Phase], prepared: _Prepared, phases: dict[Phase, PhasePrediction], total: float
) -> tuple[float, float]:
    """Put the segments that were asked for among the phases, in order; the new total, and the standard deviation of its logarithm that is independent of the
    host: √(Σ (deviation × seconds)²) / total over the time to ready and each segment."""
    scatter = [prepared.plan.common_spread * total]
    for phase in include:
        seconds, spread = prepared.context.segments[phase], prepared.plan.segment_spread(phase)
        phases[phase] = PhasePrediction(phase, seconds, seconds, prepared.plan.segment_calls[phase], spread)
        total += seconds
        scatter.append(spread * seconds)
    ordered = {phase: phases[phase] for phase in Phase if phase in phases}
    phases.clear()
    phases.update(ordered)
    return total, math.hypot(*scatter) / total if total else 0.0


# --- reading what users give --------------------------------------------------------------------------------------------


def as_model(value: ModelLike) -> ModelConfig:
    """A ModelConfig from whatever ``predict`` accepts. Raises ConfigError or InputFileError."""
    if isinstance(value, ModelConfig):
        return value
    if isinstance(value, Mapping):
        hugging_face = any(key in value for key in ("model_type", "architectures", "text_config"))
        return ModelConfig.from_hf(value) if hugging_face else ModelConfig.model_validate(value)
    if isinstance(value, str) and value.startswith(HUB_PREFIX):
        return ModelConfig.from_hub(value.removeprefix(HUB_PREFIX))
    if isinstance(value, str) and not is_path(value):
        return ModelConfig.from_catalogue(value)
    if isinstance(value, str | Path):
        return ModelConfig.from_hf(value)
    raise ConfigError(
        "model_cfg", value, "it is no model", "give a ModelConfig, a config.json, a dict or a catalogue name"
    )


def as_hardware(value: HardwareLike) -> HardwareConfig:
    """A HardwareConfig from whatever ``predict`` accepts. Raises ConfigError or InputFileError."""
    if isinstance(value, HardwareConfig):
        return value
    if isinstance(value, Mapping):
        return HardwareConfig.from_mapping(value)
    if isinstance(value, str) and not is_path(value):
        return HardwareConfig.preset(value)
    if isinstance(value, str | Path):
        return HardwareConfig.from_file(value)
    raise ConfigError(
        "hw_cfg", value, "it is no hardware", "give a HardwareConfig, a preset's name, a JSON file or a dict"
    )


def as_engine(value: EngineLike | None) -> EngineConfig:
    """An EngineConfig from whatever ``predict`` accepts. Raises ConfigError."""
    if isinstance(value, EngineConfig):
        return value
    if value is None:
        return _default_engine()
    if isinstance(value, Mapping):
        return EngineConfig.model_validate(value)
    if isinstance(value, str):
        return EngineConfig(engine=value) if value in DEFAULT_VERSIONS else EngineConfig.from_command(value)  # type: ignore[arg-type]
    raise ConfigError("engine_cfg", value, "it is no engine", "give an EngineConfig, a dict or a command line")


def as_profile(value: ProfileLike | None) -> Profile | None:
    """A Profile from whatever ``predict`` accepts; None stays None. Raises InputFileError, ProfileError or
    ConfigError."""
    if value is None or isinstance(value, Profile):
        return value
    if isinstance(value, str) and value in reference_names():
        return Profile.reference(value)
    if isinstance(value, str | Path):
        return Profile.load(value)
    raise ConfigError("profile", value, "it is no profile", "give a Profile, a file or the name of a reference profile")


def is_path(text: str) -> bool:
    """Whether a text means a file: it exists, or is written like one."""
    if "\0" in text or len(text) > 4096:
        raise InputFileError("the path is too long or holds a null byte; give a file or a name")
    return text.endswith(".json") or text.startswith((".", "/", "~")) or is_file(Path(text)) or is_folder(Path(text))


@lru_cache(maxsize=1)
def _default_engine() -> EngineConfig:
    """vLLM with every flag at its default; one object, so that its plan is found again."""
    return EngineConfig()


def as_start(
    model_cfg: ModelLike,
    hw_cfg: HardwareLike,
    engine_cfg: EngineLike | None = None,
    profile: ProfileLike | None = None,
    engine_options: Mapping[str, Any] | None = None,
) -> Start:
    """The parts of a start from whatever ``predict`` accepts. Raises ConfigError, InputFileError or ProfileError."""
    engine = as_engine(engine_cfg)
    if engine_options:
        engine = engine.replace(**engine_options)
    return Start(as_model(model_cfg), as_hardware(hw_cfg), engine, as_profile(profile))
