"""The plan of a start: sizes, terms with their numbers, and how far each may be off; what ``predict`` and ``sweep`` evaluate."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from startup_model.engines.config import EngineConfig, ResolvedEngine
from startup_model.errors import one_line
from startup_model.hardware import UNKNOWN_CPU, HardwareConfig
from startup_model.inputs import NodeNumbers, node_inputs, node_numbers, size_inputs, skipped_phases, variant_keys
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, Phase
from startup_model.pipelines import Pipeline, Step, find_pipeline, steps_of
from startup_model.prediction import Context, Start, TermCall
from startup_model.profile import Profile, Selection, VersionEffect, judge_profile, select_reference
from startup_model.sizes.memory import MemoryBudget, find_remedies, memory_budget
from startup_model.sizes.weights import weight_sizes
from startup_model.terms import Term
from startup_model.warnings import (
    domain_warnings,
    flag_warnings,
    host_warnings,
    memory_warnings,
    state_warnings,
    version_warnings,
)

__all__ = ["COLD_INPUTS", "ENOUGH_GROUPS", "GIVEN_BY", "SEGMENTS", "SEGMENT_SPREADS", "Plan", "describe", "make_plan"]

SEGMENTS = (*BEFORE_ENGINE, *AFTER_READY)
"""Phases outside the time to ready, which are added on request."""

UNKNOWN_HOST_SPREAD = 0.25
"""Standard deviation of the logarithm of a phase on a host that no profile stands for: published hosts differ by 10-45 %."""

SEGMENT_SPREADS: Mapping[Phase, float] = MappingProxyType(
    {
        Phase.PROVISION: 0.65,
        Phase.IMAGE_PULL: 0.65,
        Phase.CONTAINER_START: 0.5,
        Phase.FIRST_REQUEST: UNKNOWN_HOST_SPREAD,
    }
)
"""Segment whose number nobody gave -> standard deviation of its logarithm, independent of the host: 45 to 410 s for a node and 0.02 to 0.1 GB/s for an
image span a factor of five to nine."""

GIVEN_BY: Mapping[Phase, tuple[str, ...]] = MappingProxyType(
    {
        Phase.PROVISION: ("provision_s",),
        Phase.IMAGE_PULL: ("image_pull_bandwidth",),
        Phase.CONTAINER_START: ("container_start_s",),
    }
)
"""Segment -> the fields of the node that decide it (engine images are of much the same size, their rates differ): given, no scatter."""

UNLIKE_SPREAD = 0.5
"""The same for the whole start on another engine or another kind of device than the profile's: a factor of two is usual."""

ENOUGH_GROUPS = 9
"""Held-out groups from which their errors alone make an interval: a one-sided 90 % bound needs nine."""

WORTH_A_WORD = 0.05
"""Relative deviation of a phase, from coefficients that no run has touched, that the words of the interval name."""

UNTESTED_SPREAD = 0.25
"""The same for the whole start where a profile holds no errors of held-out groups."""

COLD_INPUTS: Mapping[str, Mapping[str, str]] = {"page_cache": {"storage_bytes": "node_bytes"}, "compile_cache": {}}
"""Cache whose state may be unknown -> inputs of its term in the cold state that differ, and what they are then."""


class Plan(NamedTuple):
    """Everything about a start that its times follow from."""

    start: Start
    pipeline: Pipeline
    calls: Mapping[Phase, tuple[TermCall, ...]]
    """Phases of the time to ready in order, with their terms; none where flags switch the phase off."""
    segment_calls: Mapping[Phase, tuple[TermCall, ...]]
    """The same for the segments outside the time to ready."""
    cold_calls: Mapping[str, tuple[TermCall, TermCall]]
    """Cache of unknown state -> its term as it is taken (hot, warm), and as it would be cold."""
    spreads: Mapping[Phase, float]
    """Standard deviation of the logarithm of each phase that all phases share, beside what the calls leave in doubt."""
    common_spread: float
    """Standard deviation of the logarithm of the total, independent of the phases'."""
    degrees: int
    """Degrees of freedom of the phases' spreads."""
    spread_words: str
    """Where the spreads come from."""
    inputs: Mapping[str, float]
    node: NodeNumbers
    skipped: frozenset[Phase]
    resolved: ResolvedEngine
    memory: MemoryBudget
    selection: Selection
    effect: VersionEffect | None
    stands: bool
    """Whether the profile's host stands for the node."""

    @property
    def profile(self) -> Profile:
        """The profile in use."""
        return self.selection.profile

    def cold_extras(self) -> dict[str, float]:
        """Cache of unknown state -> seconds [s] that its cold state would add: max(0, cold - taken)."""
        return {name: max(0.0, cold.seconds() - taken.seconds()) for name, (taken, cold) in self.cold_calls.items()}

    def segment_spread(self, phase: Phase, given: Container[str] = ()) -> float:
        """Standard deviation of the logarithm of a segment, independent of the host; 0 where the node (or ``given``, fields of a sweep) gives its numbers."""
        fields = GIVEN_BY.get(phase, ())
        known = (name in given or getattr(self.start.hardware, name) is not None for name in fields)
        return 0.0 if fields and all(known) else SEGMENT_SPREADS[phase]

    def spread_of(self, phase: Phase) -> float:
        """Standard deviation of the logarithm of one phase: what all share + (seconds in doubt) / seconds."""
        return self.spreads[phase] + _doubt(self.calls[phase])


def make_plan(start: Start) -> Plan:
    """Sizes, inputs and coefficients of one start. Raises ConfigError."""
    model, hardware, engine, profile = start
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
    node = node_numbers(hardware, used.host.numbers, same_host=stands)
    sizes = size_inputs(model, hardware, engine, resolved, weights, memory)
    inputs = sizes | node_inputs(node, sizes["workers"])
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
    calibrated = used.kind == "calibrated" and stands

    calls: dict[Phase, tuple[TermCall, ...]] = {}
    for step in steps_of(pipeline):
        found = calls.setdefault(step.phase, ())
        if step.phase not in skipped:
            call = _call(step, used, inputs, keys, scales.get(step.phase.value, 1.0), in_doubt=calibrated)
            calls[step.phase] = (*found, call)
    segment_calls = {phase: calls.pop(phase) for phase in SEGMENTS if phase in calls}
    spreads, common, degrees, words = _spreads(selection, engine, resolved, hardware, calls, stands=stands)
    return Plan(
        start=start,
        pipeline=pipeline,
        calls=MappingProxyType(calls),
        segment_calls=MappingProxyType(segment_calls),
        cold_calls=MappingProxyType(_cold_calls(engine, used, calls, inputs, keys)),
        spreads=spreads,
        common_spread=common,
        degrees=degrees,
        spread_words=words,
        inputs=MappingProxyType(inputs),
        node=node,
        skipped=skipped,
        resolved=resolved,
        memory=memory,
        selection=selection,
        effect=effect,
        stands=stands,
    )


def describe(plan: Plan) -> Context:
    """What a plan has to say beside its numbers: remedies, warnings, names."""
    model, hardware, engine, _ = plan.start
    resolved, used, memory = plan.resolved, plan.profile, plan.memory
    if not memory.fits:
        memory = memory._replace(remedies=find_remedies(model, hardware, engine, resolved.version_text))
    extrapolated = tuple(domain_warnings(used, model, plan.inputs, plan.skipped))
    return Context(
        start=plan.start,
        model_name=one_line(model.name, 200),
        hardware_name=_node_name(hardware),
        engine_name=f"{resolved.engine} {resolved.version_text.removeprefix('v')}",
        pipeline_name=plan.pipeline.name,
        memory=memory,
        calibrated=used.kind == "calibrated" and plan.stands and used.engine == engine.engine,
        interval_source=plan.spread_words,
        warnings=(
            *memory_warnings(memory),
            *model.assumptions,
            *state_warnings(plan.cold_extras(), plan.inputs, hardware),
            *host_warnings(plan.selection, hardware, engine),
            *version_warnings(used, engine, resolved, plan.effect),
            *flag_warnings(model, engine, resolved, hardware),
            *extrapolated,
        ),
        extrapolated=extrapolated,
        segments=MappingProxyType(
            {phase: sum(call.seconds() for call in found) for phase, found in plan.segment_calls.items()}
        ),
        profile_name=used.name,
        profile_reason=plan.selection.reason,
        inputs=plan.inputs,
    )


def _stands_for(selection: Selection, hardware: HardwareConfig) -> bool:
    """Whether the profile's host stands for the node: the same accelerator, and a processor that is the same or not named."""
    return selection.same_gpu and (selection.same_cpu or hardware.cpu.model == UNKNOWN_CPU)


def _node_name(hardware: HardwareConfig) -> str:
    """The node in words: how many of which."""
    each = f"{hardware.gpus} x {hardware.name}" if hardware.gpus > 1 else hardware.name
    return one_line(f"{hardware.nodes} nodes of {each}" if hardware.nodes > 1 else each, 200)


def _call(
    step: Step,
    profile: Profile,
    inputs: Mapping[str, float],
    keys: tuple[str, ...],
    scale: float,
    *,
    in_doubt: bool = False,
) -> TermCall:
    """The call of one step: inputs by name, coefficients of the first variant that the profile has.

    ``in_doubt``: a calibrated host, where coefficients that no run has touched are doubted.
    """
    term = step.term
    arguments = tuple(inputs[name] for name in term.inputs)
    if not term.coefficients:
        return TermCall(term.function, arguments, {}, scale, term, "given", "assumed")
    variant = profile.variant(term.set_name, keys)
    values = profile.values[term.set_name][variant]
    coefficients = {name: values[name] for name in term.coefficients}
    source = _source(term, arguments, coefficients, profile, variant)
    doubts = _doubts(step.phase, profile, term, variant) if in_doubt else {}
    return TermCall(term.function, arguments, coefficients, scale, term, variant, source, doubts)


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


def _doubts(phase: Phase, profile: Profile, term: Term, variant: str) -> dict[str, float]:
    """Coefficient that no run of the host has touched -> its relative deviation: its own error, at least what hosts have apart."""
    usual = max(profile.transfer_spread.get(phase.value, 0.0), UNKNOWN_HOST_SPREAD)
    entries = profile.coefficients[term.set_name][variant]
    return {
        name: max(usual, (entry.std_error or 0.0) / entry.value)
        for name, entry in entries.items()
        if entry.source != "fitted" and entry.value > 0 and name in term.coefficients
    }


def _cold_calls(
    engine: EngineConfig,
    profile: Profile,
    calls: Mapping[Phase, tuple[TermCall, ...]],
    inputs: Mapping[str, float],
    keys: tuple[str, ...],
) -> dict[str, tuple[TermCall, TermCall]]:
    """Cache of unknown state -> its term as it is taken, and as it would be cold."""
    found = {}
    if engine.page_cache == "unknown" and calls.get(Phase.WEIGHT_LOAD):
        load = calls[Phase.WEIGHT_LOAD][0]
        changed = COLD_INPUTS["page_cache"]
        cold_inputs = tuple(inputs[changed.get(name, name)] for name in load.term.inputs)
        found["page_cache"] = (load, load._replace(inputs=cold_inputs))
    if engine.compile_cache == "unknown" and calls.get(Phase.GRAPH_COMPILE):
        warm = calls[Phase.GRAPH_COMPILE][0]
        step = Step(Phase.GRAPH_COMPILE, warm.term)
        found["compile_cache"] = (warm, _call(step, profile, inputs, ("compile_cache=cold", *keys), warm.scale))
    return found


def _spreads(
    selection: Selection,
    engine: EngineConfig,
    resolved: ResolvedEngine,
    hardware: HardwareConfig,
    phases: Mapping[Phase, Sequence[TermCall]],
    *,
    stands: bool,
) -> tuple[Mapping[Phase, float], float, int, str]:
    """Standard deviations of the logarithm: by phase (common to all) and of the total (independent); degrees of freedom; words."""
    profile = selection.profile
    errors = [math.log1p(error) for error in profile.held_out.errors.values()]
    common = math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else UNTESTED_SPREAD
    words = [f"errors of {len(errors)} held-out groups (by {profile.held_out.by})" if errors else "no held-out groups"]
    if profile.kind == "calibrated" and stands:
        by_phase = dict.fromkeys(phases, 0.0)
        degrees = profile.transfer_hosts - 1
        if len(errors) < ENOUGH_GROUPS and profile.one_run_spread:
            common = max(common if errors else 0.0, profile.one_run_spread / math.sqrt(max(len(errors), 1)))
            words = [f"error of hosts that few runs calibrated, {max(len(errors), 1)} model(s) here"]
        if borrowed := [phase.value for phase, calls in phases.items() if _doubt(calls) > WORTH_A_WORD]:
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
    return MappingProxyType(by_phase), common, max(degrees, 1), f"{calibration}: {', '.join(words)}"


def _doubt(calls: Iterable[TermCall]) -> float:
    """Relative deviation of a phase from coefficients that no run of a calibrated host has touched."""
    total = sum(call.seconds() for call in calls)
    return sum(call.doubted_seconds() for call in calls) / total if total > 0 else 0.0
