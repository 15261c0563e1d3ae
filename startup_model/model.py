"""``predict``: the one place where configurations, terms and a profile meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from startup_model.config.engine import DEFAULT_VERSIONS, EngineConfig, ResolvedEngine
from startup_model.config.hardware import UNKNOWN_CPU, HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.errors import ConfigError, InputFileError, UnknownNameError, one_line
from startup_model.factors import SAFETY_FACTOR, check_safety_factor
from startup_model.files import is_file, is_folder
from startup_model.inputs import physical_inputs, skipped_phases, variant_keys
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, Phase
from startup_model.pipelines import Overlap, Pipeline, Step, find_pipeline, run_pipeline, steps_of
from startup_model.prediction import Context, PhasePrediction, Spread, StartupPrediction, TermCall
from startup_model.profile import CoefficientValue, Profile, Selection, judge_profile, reference_names, select_reference
from startup_model.sizes.memory import find_remedies, memory_budget
from startup_model.sizes.weights import weight_sizes
from startup_model.terms import Term
from startup_model.uncertainty import check_level
from startup_model.warnings import (
    domain_warnings,
    flag_warnings,
    host_warnings,
    memory_warnings,
    state_warnings,
    version_warnings,
)

__all__ = ["Plan", "as_engine", "as_hardware", "as_model", "as_profile", "is_path", "make_plan", "predict"]

ModelLike = ModelConfig | Mapping[str, Any] | str | Path
HardwareLike = HardwareConfig | Mapping[str, Any] | str | Path
EngineLike = EngineConfig | Mapping[str, Any] | str
ProfileLike = Profile | str | Path

HUB_PREFIX = "hub:"
"""In front of an id: read the model from a hub; without it nothing is ever asked of the network."""

SEGMENTS = (*BEFORE_ENGINE, *AFTER_READY)
"""Phases outside the time to ready, which are added on request."""

UNKNOWN_HOST_SPREAD = 0.25
"""Standard deviation of the logarithm of a phase on a host that no profile stands for: published hosts differ by 10-45 %."""

UNLIKE_SPREAD = 0.5
"""The same for the whole start on another engine or another kind of device than the profile's: a factor of two is usual."""

ENOUGH_GROUPS = 9
"""Held-out groups from which their errors alone make an interval: a one-sided 90 % bound needs nine."""

WORTH_A_WORD = 0.05
"""Relative deviation of a phase, from coefficients that no run has touched, that the words of the interval name."""

UNTESTED_SPREAD = 0.25
"""The same for the whole start where a profile holds no errors of held-out groups."""

_SEGMENT_PHASES = frozenset(SEGMENTS)


class Plan(NamedTuple):
    """Everything about a start that does not depend on what is asked of the prediction. Built once for equal configurations."""

    pipeline: Pipeline
    overlaps: bool
    calls: tuple[tuple[Phase, tuple[TermCall, ...], float], ...]
    """Phases of the time to ready in order, with their terms (none where flags switch the phase off) and the standard
    deviation of the logarithm of their time, which all phases share."""
    segment_calls: Mapping[Phase, tuple[TermCall, ...]]
    """The same for the segments outside the time to ready."""
    cold_extra_s: float
    """What the cold states would add where the state of a cache is unknown; else 0."""
    common_spread: float
    """Standard deviation of the logarithm of the total, independent of the phases'."""
    degrees: int
    """Degrees of freedom of the phases' spreads."""
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
            phases[phase] = PhasePrediction(phase, seconds, elapsed, calls, phase_spread)
            total += seconds
            spread += seconds * phase_spread
    else:
        for phase, calls, phase_spread in plan.calls:
            seconds = 0.0
            for function, inputs, coefficients, scale, *_ in calls:
                seconds += function(*inputs, **coefficients) * scale
            phases[phase] = PhasePrediction(phase, seconds, seconds, calls, phase_spread)
            total += seconds
            spread += seconds * phase_spread
    if include:
        total, spread = _add_segments(include, plan, phases, total, spread)
    scatter = Spread(spread / total if total else 0.0, plan.degrees, plan.common_spread)
    factor = scatter.factor((1.0 + level) / 2.0)
    slowest = total + plan.cold_extra_s
    interval = (total / factor, slowest * factor)
    return StartupPrediction(
        total, MappingProxyType(phases), interval, level, safety * slowest, safety, slowest, scatter, plan.context
    )


def _add_segments(
    include: Iterable[str], plan: Plan, phases: dict[Phase, PhasePrediction], total: float, spread: float
) -> tuple[float, float]:
    """Put the segments that were asked for among the phases, in order; the new total and spread. Raises UnknownNameError."""
    names = (include,) if isinstance(include, str) else include
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise ConfigError("include", include, "it should be a list of names", f"known: {', '.join(SEGMENTS)}")
    for name in names:
        if name not in _SEGMENT_PHASES:
            raise UnknownNameError("include", str(name), [phase.value for phase in SEGMENTS])
        phase = Phase(name)
        if phase not in phases:
            seconds = plan.context.segments[phase]
            phases[phase] = PhasePrediction(phase, seconds, seconds, plan.segment_calls[phase], UNKNOWN_HOST_SPREAD)
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


# --- the plan -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def make_plan(model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, profile: Profile | None) -> Plan:
    """Sizes, inputs, coefficients and warnings of one start. Raises ConfigError."""
    resolved = engine.resolve(
        model,
        hardware,
        (profile.runs_version or profile.engine_version) if profile and profile.engine == engine.engine else None,
    )
    selection = (
        judge_profile(profile, hardware)
        if profile is not None
        else select_reference(engine.engine, resolved.generation, resolved.version, hardware)
    )
    used = selection.profile
    stands = _stands_for(selection, hardware)
    weights = weight_sizes(model, engine, hardware, resolved.dtype_bytes)
    memory = memory_budget(model, hardware, engine, resolved, weights)
    if not memory.fits:
        memory = memory._replace(remedies=find_remedies(model, hardware, engine, resolved.version_text))
    inputs = physical_inputs(model, hardware, engine, resolved, weights, memory, used.host.numbers, same_host=stands)
    effect = used.effect_of(resolved.version, resolved.generation) if used.engine == engine.engine else None
    known = used.model_effects.get(model.structure, {})
    scales = (
        dict(known)
        if effect is None
        else {phase: effect.scales.get(phase, 1.0) * known.get(phase, 1.0) for phase in {**effect.scales, **known}}
    )
    keys = variant_keys(engine, resolved, model)
    skipped = skipped_phases(resolved)
    pipeline = find_pipeline(resolved.generation, resolved.version)

    calls: dict[Phase, tuple[TermCall, ...]] = {}
    for step in steps_of(pipeline):
        call = () if step.phase in skipped else (_call(step, used, inputs, keys, scales.get(step.phase.value, 1.0)),)
        calls[step.phase] = (*calls.get(step.phase, ()), *call)
    segment_calls = {phase: calls.pop(phase) for phase in SEGMENTS if phase in calls}
    extras = _cold_extras(engine, used, calls, inputs, keys)
    spreads, common, degrees, source = _spreads(selection, engine, resolved, hardware, calls, stands=stands)
    return Plan(
        pipeline=pipeline,
        overlaps=any(isinstance(part, Overlap) for part in pipeline.parts),
        calls=tuple((phase, phase_calls, spreads[phase]) for phase, phase_calls in calls.items()),
        segment_calls=MappingProxyType(segment_calls),
        cold_extra_s=sum(extras.values()),
        common_spread=common,
        degrees=degrees,
        inputs=MappingProxyType(inputs),
        resolved=resolved,
        profile=used,
        context=Context(
            model_name=one_line(model.name, 200),
            hardware_name=_node_name(hardware),
            engine_name=f"{resolved.engine} {resolved.version_text.removeprefix('v')}",
            pipeline_name=pipeline.name,
            memory=memory,
            calibrated=used.kind == "calibrated" and stands and used.engine == engine.engine,
            interval_source=source,
            warnings=(
                *memory_warnings(memory),
                *model.assumptions,
                *state_warnings(extras, inputs, hardware),
                *host_warnings(selection, hardware, engine),
                *version_warnings(used, engine, resolved, effect),
                *flag_warnings(model, engine, resolved, hardware),
                *domain_warnings(used, model, inputs, skipped),
            ),
            segments=MappingProxyType(
                {phase: sum(c.seconds() for c in found) for phase, found in segment_calls.items()}
            ),
            profile_name=used.name,
            profile_reason=selection.reason,
            inputs=MappingProxyType(inputs),
        ),
    )


def _stands_for(selection: Selection, hardware: HardwareConfig) -> bool:
    """Whether the profile's host stands for the node: the same accelerator, and a processor that is the same or not named."""
    return selection.same_gpu and (selection.same_cpu or hardware.cpu.model == UNKNOWN_CPU)


def _node_name(hardware: HardwareConfig) -> str:
    """The node in words: how many of which."""
    each = f"{hardware.gpus} x {hardware.name}" if hardware.gpus > 1 else hardware.name
    return one_line(f"{hardware.nodes} nodes of {each}" if hardware.nodes > 1 else each, 200)


def _call(step: Step, profile: Profile, inputs: Mapping[str, float], keys: tuple[str, ...], scale: float) -> TermCall:
    """The call of one step: inputs by name, coefficients of the first variant that the profile has."""
    term = step.term
    arguments = tuple(inputs[name] for name in term.inputs)
    if not term.coefficients:
        return TermCall(term.function, arguments, {}, scale, term, "given", "assumed")
    variant = profile.variant(term.set_name, keys)
    values = profile.values[term.set_name][variant]
    coefficients = {name: values[name] for name in term.coefficients}
    source = _source(term, arguments, coefficients, profile.coefficients[term.set_name][variant])
    return TermCall(term.function, arguments, coefficients, scale, term, variant, source)


def _source(
    term: Term, arguments: tuple[float, ...], coefficients: Mapping[str, float], entries: Mapping[str, CoefficientValue]
) -> str:
    """Where the coefficients come from that matter here: those without which the term gives something else."""
    whole = term.function(*arguments, **coefficients)
    matter = [
        name
        for name, value in coefficients.items()
        if value and term.function(*arguments, **{**coefficients, name: 0.0}) != whole
    ]
    return " + ".join(dict.fromkeys(entries[name].source for name in matter or coefficients))


def _cold_extras(
    engine: EngineConfig,
    profile: Profile,
    calls: Mapping[Phase, tuple[TermCall, ...]],
    inputs: Mapping[str, float],
    keys: tuple[str, ...],
) -> dict[str, float]:
    """Cache of unknown state -> seconds that its cold state would add."""
    extras = {}
    if engine.page_cache == "unknown" and calls.get(Phase.WEIGHT_LOAD):
        load = calls[Phase.WEIGHT_LOAD][0]
        cold_inputs = tuple(inputs["node_bytes" if name == "storage_bytes" else name] for name in load.term.inputs)
        extras["page_cache"] = load._replace(inputs=cold_inputs).seconds() - load.seconds()
    if engine.compile_cache == "unknown" and calls.get(Phase.GRAPH_COMPILE):
        warm = calls[Phase.GRAPH_COMPILE][0]
        cold = _call(Step(Phase.GRAPH_COMPILE, warm.term), profile, inputs, ("compile_cache=cold", *keys), warm.scale)
        extras["compile_cache"] = max(0.0, cold.seconds() - warm.seconds())
    return extras


def _step_seconds(plan: Plan) -> Callable[[Step], float | None]:
    """Time of the steps of a plan by step; None for those that flags or the request leave out."""
    by_step = {(phase, call.term.name): call.seconds() for phase, calls, _ in plan.calls for call in calls}
    return lambda step: by_step.get((step.phase, step.term.name))


def _untouched(phase: Phase, calls: Iterable[TermCall], profile: Profile) -> float:
    """Relative deviation of a phase from coefficients that no run of a calibrated host has touched: share × deviation of each."""
    usual = max(profile.transfer_spread.get(phase.value, 0.0), UNKNOWN_HOST_SPREAD)
    total = unknown = 0.0
    for call in calls:
        total += call.seconds()
        entries = profile.coefficients.get(call.term.set_name, {}).get(call.variant, {})
        for name, entry in entries.items():
            if entry.source != "fitted" and entry.value > 0 and name in call.coefficients:
                alone = dict.fromkeys(call.coefficients, 0.0) | {name: call.coefficients[name]}
                share = call.function(*call.inputs, **alone) * call.scale
                unknown += share * max(usual, (entry.std_error or 0.0) / entry.value)
    return unknown / total if total > 0 else 0.0


def _spreads(
    selection: Selection,
    engine: EngineConfig,
    resolved: ResolvedEngine,
    hardware: HardwareConfig,
    phases: Mapping[Phase, Sequence[TermCall]],
    *,
    stands: bool,
) -> tuple[dict[Phase, float], float, int, str]:
    """Standard deviations of the logarithm: by phase (common to all) and of the total (independent); degrees of freedom; words."""
    profile = selection.profile
    errors = [math.log1p(error) for error in profile.held_out.errors.values()]
    common = math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else UNTESTED_SPREAD
    words = [f"errors of {len(errors)} held-out groups (by {profile.held_out.by})" if errors else "no held-out groups"]
    if profile.kind == "calibrated" and stands:
        by_phase = {phase: _untouched(phase, calls, profile) for phase, calls in phases.items()}
        degrees = profile.transfer_hosts - 1
        if len(errors) < ENOUGH_GROUPS and profile.one_run_spread:
            common = max(common if errors else 0.0, profile.one_run_spread / math.sqrt(max(len(errors), 1)))
            words = [f"error of hosts that few runs calibrated, {max(len(errors), 1)} model(s) here"]
        if borrowed := [phase.value for phase, spread in by_phase.items() if spread > WORTH_A_WORD]:
            words.append(f"no run of the host shows {', '.join(borrowed)} as asked")
    elif selection.same_host:
        by_phase, degrees = (
            {phase: profile.session_spread.get(phase.value, 0.0) for phase in phases},
            profile.sessions - 1,
        )
        words.append(f"spread between {profile.sessions} sessions on the host")
    else:
        by_phase = {phase: max(profile.transfer_spread.get(phase.value, 0.0), UNKNOWN_HOST_SPREAD) for phase in phases}
        degrees = profile.transfer_hosts - 1
        words.append(f"spread between {profile.transfer_hosts} reference hosts")
    if profile.engine != engine.engine:
        common = math.hypot(common, UNLIKE_SPREAD)
        words.append("spread between engines")
    elif not profile.was_measured_at(resolved.version, resolved.generation):
        common = math.hypot(common, profile.version_spread)
        words.append("spread between engine versions")
    if hardware.platform != profile.host.platform:
        common = math.hypot(common, UNLIKE_SPREAD)
        words.append("spread between kinds of devices")
    calibration = "calibrated" if profile.kind == "calibrated" and stands else "not calibrated"
    return by_phase, common, max(degrees, 1), f"{calibration}: {', '.join(words)}"
