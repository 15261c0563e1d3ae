"""``predict``: from a model and a node to start-up seconds, and how what users give is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from startup_model import engines
from startup_model.engines.config import EngineConfig
from startup_model.errors import InputFileError, UnknownNameError, wrong_type
from startup_model.evaluate import check_level, new_tuple, own_spread, times
from startup_model.files import is_file, is_folder
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, ON_CHANGE, SEGMENTS
from startup_model.prediction import (
    SAFETY_FACTOR,
    Context,
    PhasePrediction,
    Spread,
    StartupPrediction,
    check_safety_factor,
)
from startup_model.profile import Profile, reference_names
from startup_model.recipe import Call, Prepared, Start, doubt_of, prepare
from startup_model.warnings import describe

ModelLike = ModelConfig | Mapping[str, Any] | str | Path
HardwareLike = HardwareConfig | Mapping[str, Any] | str | Path
EngineLike = EngineConfig | Mapping[str, Any] | str
ProfileLike = Profile | str | Path

HUB_PREFIX = "hub:"
"""In front of an id: read the model from a hub; without it nothing is ever asked of the network."""


def predict(
    model_cfg: ModelLike,
    hw_cfg: HardwareLike,
    engine_cfg: EngineLike | None = None,
    *,
    profile: ProfileLike | None = None,
    level: float = 0.9,
    safety_factor: float = SAFETY_FACTOR,
    include: Iterable[str] = (),
    model_effects: bool = True,
    **engine_options: Any,
) -> StartupPrediction:
    """Start-up time of an inference server, phase by phase, with an interval and the memory budget.

    model_cfg: a ModelConfig, a config.json (path, folder or content as a dict), explicit numbers as a dict, or a
    catalogue name. hw_cfg: a HardwareConfig, a preset's name, a JSON file, or a dict (with ``preset`` to start from
    one). engine_cfg: an EngineConfig, a dict of its fields, or a command line such as ``"vllm serve MODEL -tp 2"``;
    None: vLLM as the profile's version. profile: a Profile, a file, or the name of a reference profile; None: the
    nearest reference, and ``calibrated`` is False. level: probability of the interval. safety_factor: ``slo_bound_s`` =
    factor x prediction. include: segments outside the time to ready that the total should hold (provision, image_pull,
    container_start, first_request). model_effects: whether a model that was itself measured on the profile's host takes what was peculiar to
    it there (a note says so); quoted accuracies leave it out. Further keywords are fields of EngineConfig: ``predict(model, node,
    page_cache="cold")``.

    total_s = sum of the phases of the engine's pipeline, the longest of those that overlap. Raises ConfigError,
    InputFileError or ProfileError with one line that names field, value and remedy; nothing else is raised for any
    input.
    """
    start = as_start(model_cfg, hw_cfg, engine_cfg, profile, engine_options)
    level = check_level(level)
    safety = check_safety_factor(safety_factor)
    if not model_effects:
        start = start._replace(profile=_cached(start).prepared.profile.without_model_effects())
    found = _cached(start)
    prepared, context = found.prepared, found.context
    total = spread = 0.0
    phases: dict[str, PhasePrediction] = {}
    timed = times(found.calls, prepared.recipe.waits)
    for phase, calls, deviation in found.rows:
        seconds, elapsed = timed[phase]
        phases[phase] = new_tuple(PhasePrediction, (phase, seconds, elapsed, calls, deviation))
        total += seconds
        spread += seconds * deviation
    own = prepared.common_spread
    if include:
        total, own = _add_segments(check_include(include), found, phases, total)
    scatter = Spread(spread / total if total else 0.0, prepared.degrees, own)
    factor = scatter.factor((1.0 + level) / 2.0)
    slowest = total + found.cold_extra_s
    interval = (total / factor, slowest * factor)
    return StartupPrediction(
        total, MappingProxyType(phases), interval, level, safety * slowest, safety, slowest, scatter, context
    )


class _Cached(NamedTuple):
    """What a call of ``predict`` starts from, built once for equal starts."""

    prepared: Prepared
    calls: Mapping[str, tuple[Call, ...]]
    rows: tuple[tuple[str, tuple[Call, ...], float], ...]
    """Phases of the time to ready in order, their terms, and the standard deviation of the logarithm of their time."""
    cold_extra_s: float
    context: Context


@lru_cache(maxsize=2048)
def _cached(start: Start) -> _Cached:
    prepared = prepare(start)
    calls = dict(prepared.calls.phases)
    rows = tuple((name, found, prepared.spreads[name] + doubt_of(found)) for name, found in calls.items())
    return _Cached(prepared, calls, rows, sum(prepared.cold_extras().values()), describe(prepared))


for _hooks in (ON_CHANGE, engines.ON_CHANGE):
    _hooks.append(_cached.cache_clear)


def check_include(include: Iterable[str]) -> tuple[str, ...]:
    """Segments to add, each once. Raises ConfigError for what is no list, UnknownNameError for a name that is no segment."""
    names = (include,) if isinstance(include, str) else tuple(include) if isinstance(include, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise wrong_type("include", include, "a list of names", f"known: {', '.join(SEGMENTS)}")
    for name in names:
        if name not in SEGMENTS:
            raise UnknownNameError("include", str(name), [str(segment) for segment in SEGMENTS])
    return tuple(segment for segment in SEGMENTS if segment in names)


def _add_segments(
    include: Iterable[str], found: _Cached, phases: dict[str, PhasePrediction], total: float
) -> tuple[float, float]:
    """Put the segments that were asked for among the phases, in order; the new total, and its own spread."""
    prepared = found.prepared
    added = []
    for name in include:
        seconds, spread = found.context.segments[name], prepared.segment_spread(name)
        phases[name] = PhasePrediction(name, seconds, seconds, prepared.calls.segments[name], spread)
        added.append((seconds, spread))
        total += seconds
    before = {name: phases.pop(name) for name in BEFORE_ENGINE if name in phases}
    after = {name: phases.pop(name) for name in AFTER_READY if name in phases}
    engine = dict(phases)
    phases.clear()
    phases.update(before | engine | after)
    return total, own_spread(prepared.common_spread, total, added)


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
    raise wrong_type("model_cfg", value, "a ModelConfig, a config.json, a dict or a catalogue name")


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
    raise wrong_type("hw_cfg", value, "a HardwareConfig, the name of a preset, a JSON file or a dict")


def as_engine(value: EngineLike | None) -> EngineConfig:
    """An EngineConfig from whatever ``predict`` accepts. Raises ConfigError."""
    if isinstance(value, EngineConfig):
        return value
    if value is None:
        return _default_engine()
    if isinstance(value, Mapping):
        return EngineConfig.model_validate(value)
    if isinstance(value, str):
        return EngineConfig(engine=value) if value in engines.all_engines() else EngineConfig.from_command(value)
    raise wrong_type("engine_cfg", value, "an EngineConfig, a dict or a command line")


def as_profile(value: ProfileLike | None) -> Profile | None:
    """A Profile from whatever ``predict`` accepts; None stays None. Raises InputFileError, ProfileError or
    ConfigError."""
    if value is None or isinstance(value, Profile):
        return value
    if isinstance(value, str) and value in reference_names():
        return Profile.reference(value)
    if isinstance(value, str | Path):
        return Profile.load(value)
    raise wrong_type("profile", value, "a Profile, a file or the name of a reference profile")


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
