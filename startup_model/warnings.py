"""What a prediction has to say beside its numbers: what was assumed, what does not fit, what lies outside the measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from startup_model.engines.config import EngineConfig
from startup_model.errors import nearest_name, one_line
from startup_model.hardware import UNKNOWN_CPU
from startup_model.phases import PHASES
from startup_model.prediction import Context
from startup_model.profile import CHANGES_SINCE
from startup_model.recipe import Prepared
from startup_model.sizes.memory import MemoryBudget, find_remedies
from startup_model.sizes.weights import ON_THE_FLY
from startup_model.units import format_bandwidth, format_bytes, format_seconds
from startup_model.versions import parse_version

OUTSIDE = 1.1
"""An input counts as outside the profile's runs when it leaves their range by more than this factor."""

MODEL_IS_KNOWN = "this very model was measured"
"""How the words about a model that the profile has seen begin."""

PEER_CHECK_RANKS = 8
"""Ranks from which the check of direct access between all pairs of accelerators takes about a minute on a first start."""

UNMODELLED_FLAGS: Mapping[str, str] = {
    "--speculative-config": "a draft model is loaded and captured as well",
    "--speculative-model": "a draft model is loaded and captured as well",
    "--speculative-algorithm": "a draft model is loaded and captured as well",
    "--enable-lora": "graphs are captured with and without adapters",
    "--lora-modules": "adapters are loaded as well",
    "--lora-paths": "adapters are loaded as well",
    "--config": "it holds further flags, which were not read",
    "--cpu-offload-gb": "part of the weights stays in host memory",
    "--kv-transfer-config": "connectors are set up as well",
    "--performance-mode": "it changes batches and graphs",
    "--enable-sleep-mode": "it changes how memory is taken",
}
"""Flags that change a start-up in ways that no term holds -> how."""

_INPUT_WORDS = {
    "layers": "layers on one rank",
    "rank_bytes": "weights on one rank",
    "tokenizer_bytes": "tokenizer.json",
    "captures": "captured graphs",
    "workers": "workers on one node",
}


def describe(prepared: Prepared) -> Context:
    """What a start has to say beside its times: remedies, warnings, names."""
    model, hardware, engine, _ = prepared.start
    resolved, used, memory = prepared.recipe.resolved, prepared.profile, prepared.recipe.memory
    if not memory.fits:
        memory = memory._replace(remedies=find_remedies(model, hardware, engine, resolved.version_text))
    extrapolated = tuple(domain_warnings(prepared))
    node = f"{hardware.gpus} x {hardware.name}" if hardware.gpus > 1 else hardware.name
    return Context(
        start=prepared.start,
        model_name=one_line(model.name, 200),
        hardware_name=one_line(f"{hardware.nodes} nodes of {node}" if hardware.nodes > 1 else node, 200),
        engine_name=f"{resolved.engine} {resolved.version_text.removeprefix('v')}",
        pipeline_name=" ".join(dict.fromkeys((resolved.engine, resolved.generation))),
        waits=prepared.recipe.waits,
        memory=memory,
        calibrated=used.kind == "calibrated" and prepared.stands and used.engine == engine.engine,
        interval_source=prepared.spread_words,
        warnings=(
            *memory_warnings(memory),
            *model.assumptions,
            *state_warnings(prepared),
            *_host_warnings(prepared),
            *_version_warnings(prepared),
            *_flag_warnings(prepared),
            *extrapolated,
        ),
        extrapolated=extrapolated,
        segments=MappingProxyType(
            {name: sum(call.seconds() for call in found) for name, found in prepared.calls.segments.items()}
        ),
        profile_name=used.name,
        profile_reason=prepared.selection.reason,
        inputs=prepared.recipe.inputs,
    )


def memory_warnings(memory: MemoryBudget) -> Iterator[str]:
    """That the server does not start, and what would help."""
    if memory.fits:
        return
    problem = {
        "weights_do_not_fit": "the weights leave no room for a KV block",
        "kv_cache_too_small": "the KV pool is too small for one request of full length",
    }[memory.status]
    cures = [remedy.action for remedy in memory.remedies if remedy.status == "ok"][:3]
    cure = "; ".join(cures) if cures else "no single flag makes it fit: combine several, or use larger devices"
    yield f"DOES NOT START: {problem}, {format_bytes(memory.missing)} missing. What would help: {cure}"


def state_warnings(prepared: Prepared) -> Iterator[str]:
    """Cache states that are unknown, and bandwidths that had to be assumed."""
    hardware, inputs, extras = prepared.start.hardware, prepared.recipe.inputs, prepared.cold_extras()
    storage = hardware.storage
    assumed = "" if storage.cold_bandwidth else ", an assumed bandwidth"
    rate = f"{storage.tier} at {format_bandwidth(inputs['storage_bandwidth'])}{assumed}"
    for row in PHASES.values():
        cache = row.cache
        if cache is not None and extras.get(cache.name):
            yield (
                f"{cache.name} is unknown: total_s takes it as {cache.taken}; {cache.cold_words.format(storage=rate)} would add "
                f"{format_seconds(extras[cache.name])}, which interval and slo_bound_s hold; say {cache.taken} or cold"
            )
    if inputs["storage_bytes"] and assumed:
        yield f"weights are read from {rate}; give storage.{storage.tier}"
    if hardware.host_memory is not None and hardware.host_memory < inputs["node_bytes"]:
        yield (
            f"the checkpoint ({format_bytes(inputs['node_bytes'])} a node) exceeds the host's memory "
            f"({format_bytes(hardware.host_memory)}): it cannot stay in the page cache"
        )


def _host_warnings(prepared: Prepared) -> Iterator[str]:
    """Where the profile's host differs from the node in kind, or the profile is of another release."""
    _, hardware, engine, _ = prepared.start
    profile = prepared.profile
    host, old = profile.host, profile.written_as_schema
    if old is not None:
        yield f"profile {profile.name} was written as schema {old}: {CHANGES_SINCE[old]}"
    effects = profile.model_effects.get(prepared.start.model.structure, {})
    if shown := [f"{phase} × {factor:.2f}" for phase, factor in effects.items() if abs(factor - 1.0) >= 0.01]:
        is_own = profile.kind == "reference"
        where = (
            f"the host of {profile.name}" if is_own else f"another host, that of the prior of profile {profile.name}"
        )
        yield (
            f"{MODEL_IS_KNOWN} on {where}: what was peculiar to it there is taken along "
            f"({', '.join(shown)}); model_effects=False (--no-model-effects) leaves it out"
        )
    calls = prepared.calls
    at_work = {call.term.name for found in (*calls.phases.values(), *calls.segments.values()) for call in found}
    if absent := [name for name in profile.absent if name.partition(".")[0] in at_work]:
        yield (
            f"profile {profile.name} is older than {', '.join(absent)}, which adds no time here: what it takes is part of other phases; "
            "fit the profile again"
        )
    if unknown := profile.unknown:
        yield f"profile {profile.name} is of a newer release: {', '.join(unknown)} are kept, but not used; upgrade startup-model"
    if hardware.platform != host.platform:
        yield (
            f"no profile was measured on {hardware.platform} ({hardware.gpu}): coefficients of {host.gpu} are borrowed, and what only "
            "this kind of device does at start-up (graph warm-up of its own, other compilers) is not modelled"
        )
    if hardware.cpu.model == UNKNOWN_CPU and hardware.cpu.single_thread_score is None:
        yield f"the processor is not named: CPU-bound phases are those of {host.cpu}; small cloud instances take longer"
    if engine.tp * engine.pp >= PEER_CHECK_RANKS and not hardware.is_cpu_only:
        yield "a first start on 8 or more accelerators checks direct access between all pairs, about 60 s, which is not included"


def _version_warnings(prepared: Prepared) -> Iterator[str]:
    """Engines and versions that were not measured."""
    profile, engine, resolved, effect = (
        prepared.profile, prepared.start.engine, prepared.recipe.resolved, prepared.effect,
    )  # fmt: skip
    asked = f"{engine.engine} {resolved.version_text.removeprefix('v')} ({resolved.generation})"
    if profile.engine != engine.engine:
        yield f"no profile was measured with {engine.engine}: the coefficients of {profile.engine} {profile.engine_version} are borrowed"
    elif profile.was_measured_at(resolved.version, resolved.generation):
        return
    elif effect is not None and parse_version(effect.version) != resolved.version:
        yield f"{asked} was not measured: phases are scaled as measured at {effect.version}"
    else:
        yield f"{asked} was not measured: coefficients of {profile.engine_version} are used as they are"


def _flag_warnings(prepared: Prepared) -> Iterator[str]:
    """Flags that the engine would refuse, that contradict the model, or that no term holds."""
    model, hardware, engine, _ = prepared.start
    resolved = prepared.recipe.resolved
    if resolved.max_model_len > model.max_position_embeddings:
        yield (
            f"max_model_len = {resolved.max_model_len} exceeds the model's {model.max_position_embeddings}: the engine refuses it "
            "unless the model is told to extend its positions"
        )
    method = engine.packing
    packed = model.quantization.method if model.quantization else None
    if method is not None and packed is None and method not in ON_THE_FLY:
        yield f"quantization = {method!r} needs a checkpoint of that kind, but {model.name} is unquantised: its full bytes are taken"
    elif method is not None and packed is not None and method.replace("_", "-") != packed:
        yield f"quantization = {method!r} does not go with the checkpoint of {model.name}, which is {packed}: that is taken"
    if engine.load_format == "gguf" and model.checkpoint_bytes is None:
        yield "load_format = 'gguf': the bits per weight are not known, full bytes are taken; give checkpoint_bytes (the file's size)"
    capability = hardware.compute_capability
    if (
        capability is not None
        and parse_version(capability) < (8,)
        and model.dtype == "bfloat16"
        and engine.dtype == "auto"
    ):
        yield f"{hardware.gpu} has no bfloat16: the engine refuses the model's own type; give dtype = 'float16'"
    if engine.unused_flags:
        yield from _unused_flags(engine)


def _unused_flags(engine: EngineConfig) -> Iterator[str]:
    from startup_model.engines.arguments import known_flags  # only a pasted command has such flags

    known = known_flags(engine.engine)
    for flag in engine.unused_flags:
        if flag in UNMODELLED_FLAGS:
            yield f"{flag} is not modelled: {UNMODELLED_FLAGS[flag]}, the start takes longer"
        elif flag.startswith("--") and not _is_known_flag(flag, known):
            nearest = nearest_name(flag, known)
            yield f"{flag} is no flag of {engine.engine} that is known here" + (
                f"; did you mean {nearest}?" if nearest else ""
            )


def _is_known_flag(flag: str, known: Iterable[str]) -> bool:
    """Whether the engine's parser has the flag, in either spelling, negated or shortened to a unique beginning."""
    name = flag.split(".", maxsplit=1)[0].replace("_", "-")
    positive = f"--{name[5:]}" if name.startswith("--no-") else name
    return any(candidate in (name, positive) or candidate.startswith(name) for candidate in known)


def domain_warnings(prepared: Prepared) -> Iterator[str]:
    """Inputs and kinds of layers that the profile's runs did not have."""
    profile, calls = prepared.profile, prepared.calls.phases
    at_work = {name for found in calls.values() for call in found for name in call.term.inputs}
    for name, (low, high) in profile.domain.items():
        value = prepared.recipe.inputs.get(name)
        if value is None or name not in at_work or low / OUTSIDE <= value <= high * OUTSIDE:
            continue
        shown = format_bytes if name.endswith("bytes") else "{:g}".format
        yield f"{_INPUT_WORDS.get(name, name)}: {shown(value)}, the profile's runs had {shown(low)} to {shown(high)}: extrapolated"
    unseen = [kind for kind in prepared.start.model.layers_by_kind if kind not in profile.layer_kinds]
    if unseen:
        yield f"layers of kind {', '.join(unseen)} were not among the profile's runs: their cost relative to dense layers is a prior"
