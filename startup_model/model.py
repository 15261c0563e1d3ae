"""``predict``: the one place where configurations, terms and a profile meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from startup_model.config.engine import DEFAULT_VERSIONS, EngineConfig, ResolvedEngine
from startup_model.config.hardware import HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.config.versions import parse_version
from startup_model.errors import ConfigError, InputFileError, UnknownNameError
from startup_model.factors import SAFETY_FACTOR, check_safety_factor
from startup_model.inputs import physical_inputs, skipped_phases, variant_keys
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, Phase
from startup_model.pipelines import Overlap, Pipeline, Step, find_pipeline, run_pipeline, steps_of
from startup_model.prediction import Context, PhasePrediction, StartupPrediction, TermCall
from startup_model.profile import Profile, Selection, reference_names, select_reference
from startup_model.sizes.memory import MemoryBudget, find_remedies, memory_budget
from startup_model.sizes.weights import weight_sizes
from startup_model.terms import Term
from startup_model.uncertainty import check_level, student_quantile
from startup_model.units import format_bandwidth, format_bytes, format_seconds

__all__ = ["Plan", "as_engine", "as_hardware", "as_model", "make_plan", "predict"]

ModelLike = ModelConfig | Mapping[str, Any] | str | Path
HardwareLike = HardwareConfig | Mapping[str, Any] | str | Path
EngineLike = EngineConfig | Mapping[str, Any] | str
ProfileLike = Profile | str | Path

HUB_PREFIX = "hub:"
"""In front of an id: read the model from a hub; without it nothing is ever asked of the network."""

SEGMENTS = (*BEFORE_ENGINE, *AFTER_READY)
"""Phases outside the time to ready, which are added on request."""

UNKNOWN_HOST_SPREAD = 0.25
"""Standard deviation of the logarithm of a CPU-bound phase on a processor that no reference host has: published hosts
differ by 10-45 %."""

OTHER_ENGINE_SPREAD = 0.5
"""The same for an engine that no reference profile was measured with."""

_SEGMENT_PHASES = frozenset(SEGMENTS)


class Plan(NamedTuple):
    """Everything about a start that does not depend on what is asked of the prediction. Built once for equal
    configurations."""

    pipeline: Pipeline
    overlaps: bool
    calls: tuple[tuple[Phase, tuple[TermCall, ...], float], ...]
    """Phases of the time to ready in order, with their terms (none where flags switch the phase off) and the standard
    deviation of the logarithm of their time, which all phases share."""
    cold_extra_s: float
    """What reading from storage would add where the state of the page cache is unknown; else 0."""
    common_spread: float
    """Standard deviation of the logarithm of the total, independent of the phases'."""
    degrees: int
    """Degrees of freedom of the spreads."""
    inputs: Mapping[str, float]
    resolved: ResolvedEngine
    profile: Profile
    context: Context


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
    model = as_model(model_cfg)
    hardware = as_hardware(hw_cfg)
    engine = as_engine(engine_cfg)
    if engine_options:
        engine = engine.replace(**engine_options)
    level = check_level(level)
    safety = check_safety_factor(safety_factor)
    plan = make_plan(model, hardware, engine, as_profile(profile))

    phases: dict[Phase, PhasePrediction] = {}
    total = spread = 0.0
    if plan.overlaps:
        timings = run_pipeline(plan.pipeline, _step_seconds(plan))
        for phase, calls, phase_spread in plan.calls:
            seconds, elapsed = (float(value) for value in timings.get(phase, (0.0, 0.0)))
            phases[phase] = PhasePrediction(phase, seconds, elapsed, calls)
            total += seconds
            spread += seconds * phase_spread
    else:
        for phase, calls, phase_spread in plan.calls:
            seconds = 0.0
            for function, inputs, coefficients, scale, *_ in calls:
                seconds += function(*inputs, **coefficients) * scale
            phases[phase] = PhasePrediction(phase, seconds, seconds, calls)
            total += seconds
            spread += seconds * phase_spread
    if include:
        total, spread = _add_segments(include, plan.context.segments, phases, total, spread)
    deviation = math.hypot(spread / total, plan.common_spread) if total else 0.0
    factor = math.exp(student_quantile((1.0 + level) / 2.0, plan.degrees) * deviation)
    slowest = total + plan.cold_extra_s
    return StartupPrediction(
        total, phases, (total / factor, slowest * factor), level, safety * slowest, safety, plan.context
    )


def _add_segments(
    include: Iterable[str],
    segments: Mapping[Phase, float],
    phases: dict[Phase, PhasePrediction],
    total: float,
    spread: float,
) -> tuple[float, float]:
    """Put the segments that were asked for among the phases, in order; the new total and spread. Raises
    UnknownNameError."""
    for name in (include,) if isinstance(include, str) else include:
        if name not in _SEGMENT_PHASES:
            raise UnknownNameError("include", str(name), [phase.value for phase in SEGMENTS])
        phase = Phase(name)
        if phase not in phases:
            seconds = segments[phase]
            phases[phase] = PhasePrediction(phase, seconds, seconds, ())
            total += seconds
            spread += seconds * UNKNOWN_HOST_SPREAD
    ordered = {phase: phases[phase] for phase in Phase if phase in phases}
    phases.clear()
    phases.update(ordered)
    return total, spread


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
    if isinstance(value, str) and not _is_path(value):
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
    if isinstance(value, str) and not _is_path(value):
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


def _is_path(text: str) -> bool:
    """Whether a text means a file: it exists, or is written like one."""
    if "\0" in text or len(text) > 4096:
        raise InputFileError("the path is too long or holds a null byte; give a file or a name")
    return text.endswith(".json") or text.startswith((".", "/", "~")) or Path(text).exists()


@lru_cache(maxsize=1)
def _default_engine() -> EngineConfig:
    """vLLM with every flag at its default; one object, so that its plan is found again."""
    return EngineConfig()


# --- the plan -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def make_plan(model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, profile: Profile | None) -> Plan:
    """Sizes, inputs, coefficients and warnings of one start. Raises ConfigError."""
    resolved = engine.resolve(
        model, hardware, profile.engine_version if profile and profile.engine == engine.engine else None
    )
    selection = _select(profile, engine, resolved, hardware)
    used = selection.profile
    weights = weight_sizes(model, engine, hardware, resolved.dtype_bytes)
    memory = memory_budget(model, hardware, engine, resolved, weights)
    if not memory.fits:
        memory = memory._replace(remedies=find_remedies(model, hardware, engine, resolved.version_text))
    inputs = physical_inputs(model, hardware, engine, resolved, weights, memory, used.host.numbers)
    scales, measured_at = (
        used.version_scales(resolved.version, resolved.generation) if used.engine == engine.engine else ({}, None)
    )
    keys = variant_keys(engine, resolved, model)
    skipped = skipped_phases(resolved)
    pipeline = find_pipeline(resolved.generation, resolved.version)

    calls: dict[Phase, list[TermCall]] = {}
    for step in steps_of(pipeline):
        phase_calls = calls.setdefault(step.phase, [])
        if step.phase not in skipped:
            phase_calls.append(_call(step, used, inputs, keys, scales.get(step.phase.value, 1.0)))
    segments = {phase: sum(call.seconds() for call in calls.pop(phase)) for phase in SEGMENTS if phase in calls}

    cold_extra = 0.0
    if engine.page_cache == "unknown" and calls[Phase.WEIGHT_LOAD]:
        load = calls[Phase.WEIGHT_LOAD][0]
        cold_inputs = tuple(
            inputs["node_bytes"] if name == "storage_bytes" else inputs[name] for name in load.term.inputs
        )
        cold_extra = load._replace(inputs=cold_inputs).seconds() - load.seconds()
    compile_extra = 0.0
    if "compile_cache" not in engine.model_fields_set and calls[Phase.GRAPH_COMPILE]:
        warm = calls[Phase.GRAPH_COMPILE][0]
        cold = _call(Step(Phase.GRAPH_COMPILE, warm.term), used, inputs, ("compile_cache=cold",), warm.scale)
        compile_extra = cold.seconds() - warm.seconds()

    spreads, common, degrees, source = _spreads(used, selection, engine, resolved, measured_at, calls)
    warnings = (
        *model.assumptions,
        *_state_warnings(cold_extra, compile_extra, inputs, hardware),
        *_memory_warnings(memory),
        *_flag_warnings(model, engine, resolved),
        *_profile_warnings(used, engine, resolved, measured_at),
        *_domain_warnings(used, inputs, resolved),
    )
    return Plan(
        pipeline=pipeline,
        overlaps=any(isinstance(part, Overlap) for part in pipeline.parts),
        calls=tuple((phase, tuple(phase_calls), spreads[phase]) for phase, phase_calls in calls.items()),
        cold_extra_s=cold_extra,
        common_spread=common,
        degrees=degrees,
        inputs=inputs,
        resolved=resolved,
        profile=used,
        context=Context(
            model_name=model.name,
            hardware_name=_node_name(hardware),
            engine_name=f"{resolved.engine} {resolved.version_text}",
            memory=memory,
            calibrated=used.kind == "calibrated",
            interval_source=source,
            warnings=warnings,
            segments=segments,
            profile_name=used.name,
            profile_reason=selection.reason,
            inputs=inputs,
        ),
    )


def _node_name(hardware: HardwareConfig) -> str:
    """The node in words: how many of which."""
    each = f"{hardware.gpus} x {hardware.name}" if hardware.gpus > 1 else hardware.name
    return f"{hardware.nodes} nodes of {each}" if hardware.nodes > 1 else each


def _select(
    profile: Profile | None, engine: EngineConfig, resolved: ResolvedEngine, hardware: HardwareConfig
) -> Selection:
    if profile is None:
        return select_reference(engine.engine, resolved.generation, resolved.version, hardware)
    return Selection(profile, "given", same_host=True)


def _call(step: Step, profile: Profile, inputs: Mapping[str, float], keys: tuple[str, ...], scale: float) -> TermCall:
    """The call of one step: inputs by name, coefficients of the first variant that the profile has."""
    term = step.term
    arguments = tuple(inputs[name] for name in term.inputs)
    if not term.coefficients:
        return TermCall(term.function, arguments, {}, scale, term, "given", "fixed")
    variant = profile.variant(term.set_name, keys)
    values = profile.values[term.set_name][variant]
    coefficients = {name: values[name] for name in term.coefficients}
    return TermCall(
        term.function,
        arguments,
        coefficients,
        scale,
        term,
        variant,
        _source(term, arguments, coefficients, profile, variant),
    )


def _source(
    term: Term, arguments: tuple[float, ...], coefficients: Mapping[str, float], profile: Profile, variant: str
) -> str:
    """Where the coefficients come from that matter here: those without which the term gives something else."""
    entries = profile.coefficients[term.set_name][variant]
    whole = term.function(*arguments, **coefficients)
    matter = [
        name
        for name, value in coefficients.items()
        if value and term.function(*arguments, **{**coefficients, name: 0.0}) != whole
    ]
    return " + ".join(dict.fromkeys(entries[name].source for name in matter or coefficients))


def _step_seconds(plan: Plan) -> Callable[[Step], float | None]:
    """Time of the steps of a plan by step; None for those that flags or the request leave out."""
    by_step = {(phase, call.term.name): call.seconds() for phase, calls, _ in plan.calls for call in calls}
    return lambda step: by_step.get((step.phase, step.term.name))


def _spreads(
    profile: Profile,
    selection: Selection,
    engine: EngineConfig,
    resolved: ResolvedEngine,
    measured_at: str | None,
    phases: Iterable[Phase],
) -> tuple[dict[Phase, float], float, int, str]:
    """Standard deviations of the logarithm: by phase (common to all), of the total (independent), degrees of freedom,
    and the words."""
    errors = [math.log1p(error) for error in profile.held_out.errors.values()]
    own = math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else 0.0
    if profile.kind == "calibrated":
        return (
            dict.fromkeys(phases, 0.0),
            own,
            len(errors),
            f"errors of {len(errors)} held-out groups (by {profile.held_out.by})",
        )
    floor = 0.0 if selection.same_host else UNKNOWN_HOST_SPREAD
    spreads = {phase: max(profile.transfer_spread.get(phase.value, floor), floor) for phase in phases}
    common = own
    words = [f"not calibrated: spread between {profile.transfer_hosts} reference hosts"]
    if resolved.version != profile.parsed_version:
        common = math.hypot(common, profile.version_spread)
        words.append("between engine versions" if measured_at else "and of versions that were not measured")
    if profile.engine != engine.engine:
        common = math.hypot(common, OTHER_ENGINE_SPREAD)
        words.append("and between engines")
    return spreads, common, max(profile.transfer_hosts - 1, 1), " ".join(words)


# --- warnings -----------------------------------------------------------------------------------------------------------


def _state_warnings(
    cold_extra: float, compile_extra: float, inputs: Mapping[str, float], hardware: HardwareConfig
) -> Iterable[str]:
    if cold_extra:
        own = "" if hardware.storage.cold_bandwidth else " (not given: the profile's host or a default)"
        yield (
            f"the state of the page cache is unknown: total_s takes it as hot; reading from {hardware.storage.tier} at "
            f"{format_bandwidth(inputs['storage_bandwidth'])}{own} would add {format_seconds(cold_extra)} (the interval and slo_bound_s "
            "hold that); give page_cache='hot' or 'cold'"
        )
    if hardware.host_memory is not None and hardware.host_memory < inputs["node_bytes"]:
        yield (
            f"the checkpoint ({format_bytes(inputs['node_bytes'])} a node) exceeds the host's memory ({format_bytes(hardware.host_memory)}): "
            "it cannot stay in the page cache"
        )
    if compile_extra > 0:
        yield f"a warm compile cache is assumed: a first start, which compiles, takes {format_seconds(compile_extra)} more"


def _memory_warnings(memory: MemoryBudget) -> Iterable[str]:
    if memory.fits:
        return
    problem = {
        "weights_do_not_fit": "the weights leave no room for a KV block",
        "kv_cache_too_small": "the KV pool is too small for one request of full length",
    }[memory.status]
    cures = [remedy.action for remedy in memory.remedies if remedy.status == "ok"][:3]
    cure = "; ".join(cures) if cures else "no single flag makes it fit: combine several, or use larger devices"
    yield f"{problem}: {format_bytes(memory.missing)} missing, the server does not start; {cure}"


def _flag_warnings(model: ModelConfig, engine: EngineConfig, resolved: ResolvedEngine) -> Iterable[str]:
    if resolved.max_model_len > model.max_position_embeddings:
        yield (
            f"max_model_len = {resolved.max_model_len} exceeds the model's {model.max_position_embeddings}: the engine refuses it unless "
            "the model is told to extend its positions"
        )
    if (
        engine.quantization is not None
        and model.quantization is None
        and engine.quantization in ("awq", "gptq", "awq_marlin", "gptq_marlin")
    ):
        yield f"quantization = {engine.quantization!r} needs a checkpoint of that kind, but {model.name} is unquantised: its full bytes are assumed"


def _profile_warnings(
    profile: Profile, engine: EngineConfig, resolved: ResolvedEngine, measured_at: str | None
) -> Iterable[str]:
    if profile.engine != engine.engine:
        yield f"no profile was measured with {engine.engine}: the coefficients of {profile.engine} {profile.engine_version} are borrowed"
    elif measured_at is not None and parse_version(measured_at) != resolved.version:
        yield f"{engine.engine} {resolved.version_text} was not measured: phases are scaled as measured at {measured_at}"
    elif measured_at is None and resolved.version != profile.parsed_version:
        yield f"{engine.engine} {resolved.version_text} was not measured: coefficients of {profile.engine_version} are used as they are"


def _domain_warnings(profile: Profile, inputs: Mapping[str, float], resolved: ResolvedEngine) -> Iterable[str]:
    for name, (low, high) in profile.domain.items():
        value = inputs.get(name)
        if (
            value is None
            or (name == "captures" and value == 0)
            or (name in ("rank_bytes",) and not resolved.load_format.reads_weights)
        ):
            continue
        if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            yield f"{name} = {value:.4g} lies outside the profile's runs ({low:.4g} to {high:.4g}): extrapolated"
