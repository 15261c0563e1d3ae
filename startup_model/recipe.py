"""From a start to the numbers that its times follow from: the one way that predictions, sweeps, fits, gates and schedules take.

``recipe`` turns model, node and engine into physical inputs; ``bind`` calls the terms with them and the coefficients of a
profile; ``prepare`` does both for a start, the profile chosen.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from startup_model import engines
from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import Order, Resolved
from startup_model.formula import Values, minimum
from startup_model.hardware import NODE_NUMBERS, STORAGE_DEFAULTS, UNKNOWN_CPU, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import INPUT_MEANINGS, ON_CHANGE, PHASES, SEGMENTS, Term
from startup_model.profile import Host, Profile, Selection, VersionEffect, judge_profile, same_name, select_reference
from startup_model.sizes.memory import MemoryBudget, memory_budget
from startup_model.sizes.weights import WeightSizes, weight_sizes
from startup_model.versions import Version

BYTES_PER_VOCABULARY_ENTRY = 57.0
"""Size of tokenizer.json per entry of the vocabulary where the file is not at hand: the median over 168 models of the
catalogue, of which eight in ten lie between 42 and 79."""

PARALLEL_COPY_GAIN = 1.4
"""How much faster several ranks copy from one page cache than one rank does, all together: 9.4 and 14.2 GB/s on two TP=4
start-ups in public logs (Qwen3-14B and Llama-3-8B) against 8.3 GB/s of one rank."""

PROMPT_TOKENS = 512
"""Length of the first request, in tokens."""

UNKNOWN_HOST_SPREAD = 0.25
"""Standard deviation of the logarithm of a phase on a host that no profile stands for: published hosts differ by 10-45 %."""

UNLIKE_SPREAD = 0.5
"""The same for the whole start on another engine or another kind of device than the profile's: a factor of two is usual."""

UNTESTED_SPREAD = 0.25
"""The same for the whole start where a profile holds no errors of held-out groups."""

ENOUGH_GROUPS = 9
"""Held-out groups from which their errors alone make an interval: a one-sided 90 % bound needs nine."""

MIN_REPORTED_DEVIATION = 0.05
"""Relative deviation of a phase, from coefficients that no run has touched, that the words of the interval name."""


class Start(NamedTuple):
    """Everything that a start is made of; ``predict(*start[:3], profile=start.profile)``."""

    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    profile: Profile | None = None


class Node(NamedTuple):
    """The numbers of a node, by their name in ``NODE_NUMBERS``; what it does not give is filled in."""

    numbers: Mapping[str, float]
    fixed: frozenset[str]
    """Numbers that nobody has measured on the profile's host: that host's counts, whatever the node's is."""
    host_score: float
    """Single-thread score [1] of the profile's host."""


class Recipe(NamedTuple):
    """A start as physical inputs."""

    model: ModelConfig
    hardware: HardwareConfig
    engine: EngineConfig
    resolved: Resolved
    weights: WeightSizes
    memory: MemoryBudget
    node: Node
    inputs: Mapping[str, float]
    """Every input that a term can ask for, by name; units as in ``INPUT_MEANINGS``."""
    variants: tuple[str, ...]
    """Sets of coefficients that fit the start, the most particular first; a term takes the first that its profile has."""
    phases: tuple[str, ...]
    """Phases of the time to ready, in order."""
    waits: Mapping[str, tuple[str, ...]]
    """Phase -> the phases that it waits for, where phases overlap; empty where each waits for the one before it."""
    off: frozenset[str]
    """Phases that the flags switch off."""


class Call(NamedTuple):
    """One term with the numbers that it is called with: numbers, or arrays that broadcast."""

    term: Term
    inputs: tuple[Any, ...]
    coefficients: Mapping[str, Any]
    scale: Any = 1.0
    """Factor for the engine version, and for what is peculiar to a model that the profile has measured."""
    variant: str = "given"
    source: str = "assumed"
    """fitted, fixed, borrowed, absent or assumed; several joined by +."""
    doubts: Mapping[str, Any] = MappingProxyType({})
    """Coefficient that no run of a calibrated host has touched -> its relative standard deviation."""

    def seconds(self) -> Any:
        """The time of the term [s]."""
        return self.term.function(*self.inputs, **self.coefficients) * self.scale

    def doubted_seconds(self) -> Any:
        """Seconds that coefficients in doubt may add or take: the sum of deviation x the term with that coefficient alone."""
        zero = dict.fromkeys(self.coefficients, 0.0)
        return sum(
            self.term.function(*self.inputs, **(zero | {name: self.coefficients[name]})) * deviation * self.scale
            for name, deviation in self.doubts.items()
        )

    def formula(self) -> str:
        """The formula with names."""
        return self.term.formula()

    def numbers(self) -> str:
        """The formula with the numbers in it, the factor for version and model included."""
        named = dict(zip(self.term.inputs, self.inputs, strict=True)) | dict(self.coefficients)
        text = self.term.formula(named)
        return text if self.scale == 1.0 else f"({text}) × {self.scale:.4g}"


class Calls(NamedTuple):
    """A recipe with the coefficients of a profile."""

    phases: Mapping[str, tuple[Call, ...]]
    """Phases of the time to ready in order, with their terms; none where flags switch the phase off."""
    segments: Mapping[str, tuple[Call, ...]]
    """The same for the segments outside the time to ready."""
    cold: Mapping[str, tuple[Call, Call]]
    """Cache of unknown state -> its term as it is taken (hot, warm), and as it would be cold."""


# --- from a start to inputs ---------------------------------------------------------------------------------------------


def version_of(engine: EngineConfig, profile: Profile | None = None) -> str:
    """The version of a start: the one given, else that of the profile's runs, else the engine's default."""
    if engine.version is not None:
        return engine.version
    if profile is not None and profile.engine == engine.engine:
        return profile.runs_version or profile.engine_version
    return engines.find(engine.engine).default_version or ""


def stands_for(host: Host, hardware: HardwareConfig) -> bool:
    """Whether a profile's host stands for a node: the same accelerator, and a processor that is the same or not named."""
    same_cpu = same_name(host.cpu, hardware.cpu.model) or hardware.cpu.model == UNKNOWN_CPU
    return same_cpu and same_name(host.gpu, hardware.gpu)


@lru_cache(maxsize=8192)
def recipe(model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, host: Host, version: str) -> Recipe:
    """The physical inputs of a start.

    host: the host that coefficients are relative to; what the node does not give is taken from it, its storage only where it stands for the
    node. version: of the engine, as ``version_of`` gives it. Raises ConfigError.
    """
    resolved = engine.resolve(model, hardware, version)
    weights = weight_sizes(model, engine, hardware, resolved.dtype_bytes)
    memory = memory_budget(model, hardware, engine, resolved, weights)
    node = _node(hardware, host)
    sizes = _size_inputs(model, hardware, engine, resolved, weights, memory)
    phases, waits = order_of(engines.find(engine.engine).order(resolved), engine.engine, resolved.version)
    return Recipe(
        model,
        hardware,
        engine,
        resolved,
        weights,
        memory,
        node,
        MappingProxyType(sizes | node_inputs(node.numbers, node.host_score, sizes["workers"])),
        _variants(engine, resolved, model),
        phases,
        waits,
        frozenset(name for name, row in PHASES.items() if row.is_off is not None and row.is_off(resolved)),
    )


for _hooks in (ON_CHANGE, engines.ON_CHANGE):
    _hooks.append(recipe.cache_clear)


def order_of(order: Order, engine: str, version: Version) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    """The phases of an engine in order, and for each the phases that it waits for (empty where all run one after the other).

    A phase that no other waits for is waited for by the next one that waits for several.
    """
    names = [
        name
        for name, row in PHASES.items()
        if row.segment is None and name not in order.left_out and any(t.is_part_of(engine, version) for t in row.terms)
    ]
    for name, before in order.moved.items():
        if name in names and before in names:
            names.insert(names.index(before) + (names.index(name) > names.index(before)), names.pop(names.index(name)))
    if not any(name in names for name in order.after):
        return tuple(names), MappingProxyType({})
    waits: dict[str, tuple[str, ...]] = {}
    for i, name in enumerate(names):
        given = tuple(wanted for wanted in order.after.get(name, ()) if wanted in names[:i])
        waits[name] = given or tuple(names[i - 1 : i] if i else ())
    for i, name in enumerate(names[:-1]):
        if not any(name in found for found in waits.values()):
            joint = next((later for later in names[i + 1 :] if len(waits[later]) > 1), names[-1])
            waits[joint] = (*waits[joint], name)
    return tuple(names), MappingProxyType(waits)


def _size_inputs(
    model: ModelConfig,
    hardware: HardwareConfig,
    engine: EngineConfig,
    resolved: Resolved,
    weights: WeightSizes,
    memory: MemoryBudget,
) -> dict[str, float]:
    """The inputs that model, engine and memory decide: layers, bytes, captures, FLOP.

    ``storage_bytes`` is 0 when the checkpoint is in the page cache (``page_cache="hot"`` or unknown, or a format that reads nothing).
    """
    reads = resolved.load_format.reads_weights
    loaded = moe_sparsity(model) if engine.lazy_experts else 1.0
    layers = weighted_layers(model)
    share = -(-model.num_hidden_layers // engine.pp) / model.num_hidden_layers
    world = engine.tp * engine.pp * engine.dp
    flop_per_token = 2.0 * model.active_parameters / (engine.tp * engine.pp)  # weights are multiplied once a token
    known = model.tokenizer_bytes
    return {
        "workers": float(-(-world // hardware.nodes)),
        "collectives": 1.0 if world > 1 else 0.0,
        "layers": model.num_hidden_layers * share,
        "trace_layers": layers.trace * share,
        "compile_layers": layers.compile * share,
        "capture_layers": layers.capture * share,
        "profiling_layers": layers.profiling * share,
        "tokenizer_bytes": float(BYTES_PER_VOCABULARY_ENTRY * model.vocab_size if known is None else known),
        "storage_bytes": weights.node_bytes * loaded if reads and engine.page_cache == "cold" else 0.0,
        "node_bytes": weights.node_bytes * loaded if reads else 0.0,
        "rank_bytes": weights.rank_bytes * loaded if reads else 0.0,
        "passes": resolved.load_format.passes,
        "files": float(weights.files) if reads else 0.0,
        "overlap": resolved.load_format.overlap,
        "active_bytes": weights.active_bytes,
        "captures": float(resolved.captures.total),
        "estimate_captures": float(resolved.estimate_captures),
        "profile_flop": flop_per_token * resolved.max_num_batched_tokens,
        "prompt_flop": flop_per_token * PROMPT_TOKENS,
        "pool_bytes": memory.kv_cache,
    }


@lru_cache(maxsize=1)
def cpu_preset() -> HardwareConfig:
    """The node without accelerators that nothing is known of: its bandwidth and FLOP/s are of a data sheet, not of any host at hand."""
    return HardwareConfig.preset("cpu")


def _node(hardware: HardwareConfig, host: Host) -> Node:
    """The numbers of a node; what it does not give is taken from the profile's host, or from tables of defaults.

    A number that nobody has measured on the profile's host is not compared with the node's: the coefficients hold what that host really does,
    and the number in them is one that counts on both sides. For nodes without accelerators that is what the preset ``cpu`` says, too.
    """
    storage = hardware.storage
    alike = hardware.is_cpu_only and host.platform == "cpu"
    assumed = host.assumed if alike else ()
    memory, flops = hardware.gpu_memory_bandwidth, hardware.gpu_flops
    if alike:
        preset = cpu_preset()
        memory = host.gpu_memory_bandwidth if memory == preset.gpu_memory_bandwidth else memory
        flops = host.device_flops if flops == preset.gpu_flops else flops
    theirs = getattr(host, f"{storage.tier}_bandwidth") if stands_for(host, hardware) else None
    given = {
        "single_thread_score": hardware.cpu.score,
        "storage_bandwidth": storage.cold_bandwidth or theirs or STORAGE_DEFAULTS[storage.tier],
        "concurrent_starts": float(storage.concurrent_starts),
        "page_cache_bandwidth": storage.page_cache,
        "memory_bandwidth": memory,
        "device_flops": flops,
    }
    numbers: dict[str, float] = {}
    fixed: set[str] = set()
    for name, row in NODE_NUMBERS.items():
        value = given[name] if name in given else getattr(hardware, row.field) if storage.tier in row.tiers else None
        value = getattr(host, row.host_field) if value is None and row.host_field is not None else value
        numbers[name] = float(row.default or 0.0) if value is None else float(value)
        if row.may_be_assumed and row.host_field in assumed:
            numbers[name] = getattr(host, row.host_field or "")
            fixed.add(name)
    if host.single_thread_score is None:
        numbers["single_thread_score"] = 1.0
        fixed.add("single_thread_score")
    return Node(numbers, frozenset(fixed), host.single_thread_score or 1.0)


def node_inputs(numbers: Mapping[str, Any], host_score: Values, workers: Values) -> dict[str, Any]:
    """The inputs that the numbers of a node decide: numbers, or arrays where the numbers are arrays.

    slowdown = score of the profile's host / score, 1 where that host has none; storage bandwidth = min(tier, network) / starts that share it; page-cache
    bandwidth = that of one process x min(workers, 1.4) / workers; the others as they are.
    """
    inputs = {name: numbers[name] for name in INPUT_MEANINGS if name in numbers}
    return inputs | {
        "slowdown": host_score / numbers["single_thread_score"],
        "storage_bandwidth": minimum(numbers["storage_bandwidth"], numbers["network_bandwidth"])
        / numbers["concurrent_starts"],
        "page_cache_bandwidth": numbers["page_cache_bandwidth"] * minimum(workers, PARALLEL_COPY_GAIN) / workers,
    }


def _variants(engine: EngineConfig, resolved: Resolved, model: ModelConfig) -> tuple[str, ...]:
    method = engine.packing or (model.quantization.method if model.quantization else None)
    keys = [f"load_format={engine.load_format}"]
    if method is not None:
        keys.append(f"quantization={method.removesuffix('-marlin')}")
    if not resolved.compiles:
        keys.append("torch_compile=off")
    caches = (row.cache for row in PHASES.values() if row.cache is not None and row.cache.cold_variant)
    keys += [cache.cold_variant for cache in caches if cache.cold_variant and _state(engine, cache.name) == "cold"]
    return (*keys, "default")


def _state(engine: EngineConfig, cache: str) -> str:
    """State of a cache; one that EngineConfig has no field for is taken as the phase's declaration says."""
    return str(getattr(engine, cache, "taken"))


# --- layers by kind -----------------------------------------------------------------------------------------------------


class LayerCost(NamedTuple):
    """Cost of one layer relative to a dense attention layer with a gated feed-forward part, by what is done with it."""

    trace: float
    compile: float
    capture: float
    profiling: float


_SAME = LayerCost(1.0, 1.0, 1.0, 1.0)
_RECURRENT = LayerCost(0.3, 0.45, 1.5, 0.5)

LAYER_COSTS: Mapping[str, LayerCost] = {
    "attention": _SAME,
    "dense": _SAME,
    "moe": LayerCost(1.1, 1.1, 2.0, 1.2),
    "latent_attention": LayerCost(0.82, 0.91, 1.75, 1.75),
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "linear_attention": _RECURRENT,
    "kimi_delta_attention": _RECURRENT,
    "lightning_attention": _RECURRENT,
    "short_convolution": LayerCost(0.3, 0.45, 1.0, 0.5),
    "gated_linear_recurrence": _RECURRENT,
    "time_mix": _RECURRENT,
    "parallel": LayerCost(0.8, 0.9, 1.0, 1.0),
}
"""Part of a layer -> its factor; the factors of mixer, feed-forward part and wiring multiply.

From one H100 NVL host with vLLM 0.10.1.1 (arXiv 2606.07362: Qwen1.5-MoE, gpt-oss, DeepSeek-V2-Lite, Granite 4 hybrids,
Falcon): few models each, to be read as priors. Recurrent mixers that were not measured are taken to behave like a
state space.
"""


def weighted_layers(model: ModelConfig) -> LayerCost:
    """Layers of a model in units of a dense attention layer, for tracing, compiling, capturing and profiling."""
    totals = [0.0, 0.0, 0.0, 0.0]
    for group in model.layers:
        wiring = LAYER_COSTS["parallel"] if group.parallel else _SAME
        # Mixers beside each other in one layer are each traced and captured; the layer as a whole counts once.
        mixers = [LAYER_COSTS.get(mixer.kind, _SAME) for mixer in group.mixers] or [_SAME]
        feed_forwards = [LAYER_COSTS.get(part.kind, _SAME) for part in group.feed_forwards] or [_SAME]
        for i in range(4):
            cost = wiring[i] * max(mixer[i] for mixer in mixers) * max(part[i] for part in feed_forwards)
            totals[i] += group.count * cost
    return LayerCost(*totals)


def moe_sparsity(model: ModelConfig) -> float:
    """Share of the parameters that one token uses, in (0, 1]; 1.0 for a dense model.

    It acts on compute (profiling, capture). It acts on bytes only where the user says that experts are loaded lazily or
    are spread over ranks: an engine loads ALL experts before it is ready.
    """
    return 1.0 - model.idle_expert_parameters / model.parameters


# --- calls --------------------------------------------------------------------------------------------------------------


def bind(found: Recipe, profile: Profile, *, is_calibrated: bool = False) -> Calls:
    """The terms of a recipe with the coefficients of a profile.

    is_calibrated: on the profile's own host, where coefficients that no run has touched are in doubt.
    """
    resolved, effect = found.resolved, effect_of(found, profile)
    scales = dict(effect.scales) if effect is not None else {}
    for name, factor in profile.model_effects.get(found.model.structure, {}).items():
        scales[name] = scales.get(name, 1.0) * factor

    def call(term: Term, keys: tuple[str, ...]) -> Call:
        return _call(term, found, profile, keys, scales.get(term.phase, 1.0), in_doubt=is_calibrated)

    def calls(name: str) -> tuple[Call, ...]:
        terms = () if name in found.off else PHASES[name].terms
        return tuple(
            call(term, found.variants) for term in terms if term.is_part_of(found.engine.engine, resolved.version)
        )

    phases = {name: calls(name) for name in found.phases}
    cold = {}
    for name, row in PHASES.items():
        cache = row.cache
        if cache is not None and _state(found.engine, cache.name) == "unknown" and phases.get(name):
            taken, keys = phases[name][0], found.variants
            other = call(taken.term, (cache.cold_variant, *keys)) if cache.cold_variant else taken
            inputs = tuple(found.inputs[cache.cold_inputs.get(i, i)] for i in taken.term.inputs)
            cold[cache.name] = (taken, other._replace(inputs=inputs, doubts={}))
    return Calls(MappingProxyType(phases), MappingProxyType({name: calls(name) for name in SEGMENTS}), cold)


def effect_of(found: Recipe, profile: Profile) -> VersionEffect | None:
    """What the version of a start does to the phases, relative to the profile's; None where nothing is known of it, or it is the same."""
    same = profile.engine == found.engine.engine
    return profile.effect_of(found.resolved.version, found.resolved.generation) if same else None


def _call(
    term: Term, found: Recipe, profile: Profile, keys: tuple[str, ...], scale: float, *, in_doubt: bool = False
) -> Call:
    """The call of one term: inputs by name, coefficients of the first variant that the profile has."""
    arguments = tuple(found.inputs[name] for name in term.inputs)
    if not term.coefficients:
        return Call(term, arguments, {}, scale)
    variant, entries = profile.entries(term, keys)
    coefficients = {name: entry.value for name, entry in entries.items()}
    # The source is that of the coefficients that matter here: those without which the term gives something else. What was fitted on
    # runs of another engine, another kind of device or another term is borrowed.
    whole = term.function(*arguments, **coefficients)
    matter = [
        name
        for name, value in coefficients.items()
        if value and term.function(*arguments, **{**coefficients, name: 0.0}) != whole
    ]
    is_own = (term.set_name, profile.engine, profile.host.platform) == (
        term.name, found.engine.engine, found.hardware.platform,
    )  # fmt: skip
    names = (entries[name].source for name in matter or coefficients)
    source = " + ".join(dict.fromkeys(name if is_own or name != "fitted" else "borrowed" for name in names))
    usual = max(profile.transfer_spread.get(term.phase, 0.0), UNKNOWN_HOST_SPREAD)
    doubts = {
        name: max(usual, (entry.std_error or 0.0) / entry.value)
        for name, entry in entries.items()
        if in_doubt and entry.source != "fitted" and entry.value > 0
    }
    return Call(term, arguments, coefficients, scale, variant, source, doubts)


# --- a start with its profile -------------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """Everything about a start that its times follow from: the profile chosen, the terms called, and how far each may be off."""

    start: Start
    recipe: Recipe
    calls: Calls
    selection: Selection
    effect: VersionEffect | None
    stands: bool
    """Whether the profile's host stands for the node."""
    spreads: Mapping[str, float]
    """Phase -> standard deviation of the logarithm that all phases share, beside what the calls leave in doubt."""
    common_spread: float
    """Standard deviation of the logarithm of the total, independent of the phases'."""
    degrees: int
    """Degrees of freedom of the phases' spreads."""
    spread_words: str
    """Where the spreads come from."""

    @property
    def profile(self) -> Profile:
        """The profile in use."""
        return self.selection.profile

    def cold_extras(self) -> dict[str, float]:
        """Cache of unknown state -> seconds [s] that its cold state would add: max(0, cold - taken)."""
        return {name: max(0.0, cold.seconds() - taken.seconds()) for name, (taken, cold) in self.calls.cold.items()}

    def segment_spread(self, name: str, given: Container[str] = ()) -> float:
        """Standard deviation of the logarithm of a segment; 0 where the node (or ``given``, fields of a sweep) gives its numbers."""
        fields = PHASES[name].given_by
        known = (field in given or getattr(self.start.hardware, field) is not None for field in fields)
        return 0.0 if fields and all(known) else PHASES[name].spread


def prepare(start: Start) -> Prepared:
    """Choose the profile of a start, and call the terms. Raises ConfigError."""
    model, hardware, engine, profile = start
    version = version_of(engine, profile)
    if profile is None:
        resolved = engine.resolve(model, hardware, version)
        selection = select_reference(engine.engine, resolved.generation, resolved.version, hardware)
    else:
        selection = judge_profile(profile, hardware)
    used = selection.profile
    found = recipe(model, hardware, engine, used.host, version)
    stands = stands_for(used.host, hardware)
    calibrated = used.kind == "calibrated" and stands
    calls = bind(found, used, is_calibrated=calibrated)
    spreads, common, degrees, words = _spreads(selection, found, calls.phases, is_calibrated=calibrated)
    return Prepared(
        start, found, calls, selection, effect_of(found, used), stands, spreads, common, max(degrees, 1), words
    )


def _spreads(
    selection: Selection, found: Recipe, phases: Mapping[str, Iterable[Call]], *, is_calibrated: bool
) -> tuple[Mapping[str, float], float, int, str]:
    """Standard deviations of the logarithm: by phase (common to all) and of the total (independent); degrees of freedom; words."""
    profile, resolved = selection.profile, found.resolved
    errors = [math.log1p(error) for error in profile.held_out.errors.values()]
    common = math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else UNTESTED_SPREAD
    words = [f"errors of {len(errors)} held-out groups (by {profile.held_out.by})" if errors else "no held-out groups"]
    by_phase = dict.fromkeys(phases, 0.0)
    degrees = profile.transfer_hosts - 1
    if is_calibrated:
        if len(errors) < ENOUGH_GROUPS and profile.one_run_spread:
            common = max(common if errors else 0.0, profile.one_run_spread / math.sqrt(max(len(errors), 1)))
            words = [f"error of hosts that few runs calibrated, {max(len(errors), 1)} model(s) here"]
        if borrowed := [name for name, calls in phases.items() if doubt_of(calls) > MIN_REPORTED_DEVIATION]:
            words.append(f"no run of the host shows {', '.join(borrowed)} as asked")
    elif selection.same_host:
        by_phase = {name: profile.session_spread.get(name, 0.0) for name in phases}
        degrees = profile.sessions - 1
        words.append(f"spread between {profile.sessions} sessions on the host")
    else:
        by_phase = {name: max(profile.transfer_spread.get(name, 0.0), UNKNOWN_HOST_SPREAD) for name in phases}
        words.append(f"spread between {profile.transfer_hosts} reference hosts")
    if profile.engine != found.engine.engine:
        common = math.hypot(common, UNLIKE_SPREAD)
        words.append("spread between engines")
    elif not profile.was_measured_at(resolved.version, resolved.generation):
        common = math.hypot(common, profile.version_spread)
        words.append("spread between engine versions")
    if found.hardware.platform != profile.host.platform:
        common = math.hypot(common, UNLIKE_SPREAD)
        words.append("spread between kinds of devices")
    calibration = "calibrated" if is_calibrated else "not calibrated"
    return MappingProxyType(by_phase), common, degrees, f"{calibration}: {', '.join(words)}"


def doubt_of(calls: Iterable[Call]) -> float:
    """Relative deviation of a phase from coefficients that no run of a calibrated host has touched."""
    calls = tuple(calls)
    total = sum(call.seconds() for call in calls)
    return float(sum(call.doubted_seconds() for call in calls) / total) if total > 0 else 0.0
