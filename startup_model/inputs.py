"""From configurations to the physical inputs of the terms: layers, bytes, bandwidths, captures, FLOP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from startup_model.config.engine import EngineConfig, ResolvedEngine
from startup_model.config.hardware import CLUSTER_DEFAULTS, STORAGE_DEFAULTS, HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.factors import shared_bandwidth, weighted_layers
from startup_model.phases import Phase
from startup_model.sizes.memory import MemoryBudget
from startup_model.sizes.weights import WeightSizes

__all__ = ["BYTES_PER_VOCABULARY_ENTRY", "HostNumbers", "physical_inputs", "skipped_phases", "variant_keys"]

BYTES_PER_VOCABULARY_ENTRY = 54.0
"""Size of tokenizer.json per entry of the vocabulary where the file is not at hand: 41 to 134 over the models of the
catalogue, most near 54."""

PROMPT_TOKENS = 512
"""Length of the first request where none is given."""


class HostNumbers(NamedTuple):
    """Hardware numbers of a profile's host: what a node that does not give them is taken to have."""

    single_thread_score: float
    page_cache: float
    local_nvme: float | None
    network_disk: float | None
    object_store: float | None
    host_to_device: float
    device_flops: float


def physical_inputs(
    model: ModelConfig,
    hardware: HardwareConfig,
    engine: EngineConfig,
    resolved: ResolvedEngine,
    weights: WeightSizes,
    memory: MemoryBudget,
    host: HostNumbers,
    prompt_tokens: int = PROMPT_TOKENS,
) -> dict[str, float]:
    """Every input that a term can ask for, by name; units as in the glossary of ``startup_model.terms``.

    ``storage_bytes`` is 0 when the checkpoint is in the page cache (``page_cache="hot"`` or unknown, or a format that
    reads nothing).
    """
    storage = hardware.storage
    cold = getattr(storage, storage.tier) or getattr(host, storage.tier) or STORAGE_DEFAULTS[storage.tier]
    reads = resolved.load_format.reads_weights
    layers = weighted_layers(model)
    share = 1.0 / engine.pp
    world = engine.tp * engine.pp * engine.dp
    # Weights are multiplied once a token: 2 FLOP a parameter.
    flop_per_token = 2.0 * model.active_parameters / (engine.tp * engine.pp)
    score = hardware.cpu.score
    return {
        "slowdown": host.single_thread_score / score if score else 1.0,
        "workers": float(-(-world // hardware.nodes)),
        "collectives": 1.0 if world > 1 else 0.0,
        "layers": model.num_hidden_layers * share,
        "trace_layers": layers.trace * share,
        "compile_layers": layers.compile * share,
        "capture_layers": layers.capture * share,
        "profiling_layers": layers.profiling * share,
        "tokenizer_bytes": float(tokenizer_bytes(model)),
        "storage_bytes": weights.node_bytes if reads and engine.page_cache == "cold" else 0.0,
        "node_bytes": weights.node_bytes if reads else 0.0,
        "rank_bytes": weights.rank_bytes * (1.0 + resolved.load_format.copies_in_memory) if reads else 0.0,
        "files": float(weights.files) if reads else 0.0,
        "overlap": resolved.load_format.overlap,
        "storage_bandwidth": shared_bandwidth(cold, storage.concurrent_starts),
        "page_cache_bandwidth": storage.page_cache or host.page_cache,
        "host_to_device_bandwidth": hardware.host_to_device_bandwidth or host.host_to_device,
        "memory_bandwidth": hardware.gpu_memory_bandwidth,
        "device_flops": hardware.gpu_flops or host.device_flops,
        "active_bytes": weights.active_bytes,
        "captures": float(resolved.captures.total),
        "estimate_captures": float(_estimate_captures(resolved)),
        "profile_flop": flop_per_token * resolved.max_num_batched_tokens,
        "prompt_flop": flop_per_token * prompt_tokens,
        "pool_bytes": memory.kv_cache,
        "provision_seconds": _or_default(hardware.provision_s, "provision_s"),
        "image_bytes": _or_default(hardware.image_bytes, "image_bytes"),
        "image_pull_bandwidth": _or_default(hardware.image_pull_bandwidth, "image_pull_bandwidth"),
        "container_start_seconds": _or_default(hardware.container_start_s, "container_start_s"),
    }


def tokenizer_bytes(model: ModelConfig) -> float:
    """Size of tokenizer.json: known, else estimated from the vocabulary."""
    return model.tokenizer_bytes if model.tokenizer_bytes is not None else BYTES_PER_VOCABULARY_ENTRY * model.vocab_size


def variant_keys(engine: EngineConfig, resolved: ResolvedEngine, model: ModelConfig) -> tuple[str, ...]:
    """Which sets of coefficients fit a start, the most particular first; a term takes the first that its profile
    has."""
    method = engine.quantization or (model.quantization.method if model.quantization else None)
    keys = [f"load_format={engine.load_format}"]
    if method is not None:
        keys.append(f"quantization={method.removesuffix('_marlin').removesuffix('-marlin')}")
    if not resolved.compiles:
        keys.append("torch_compile=off")
    elif engine.compile_cache == "cold":
        keys.append("compile_cache=cold")
    return (*keys, "default")


def skipped_phases(resolved: ResolvedEngine) -> frozenset[Phase]:
    """Phases that the flags switch off: no compile, no capture, no reading."""
    off = set()
    if not resolved.compiles:
        off |= {Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE}
    if resolved.captures.total == 0:
        off.add(Phase.GRAPH_CAPTURE)
    if not resolved.load_format.reads_weights:
        off.add(Phase.WEIGHT_LOAD)
    return frozenset(off)


def _estimate_captures(resolved: ResolvedEngine) -> int:
    """Graphs that are captured once more to measure their memory: two of each mode from vLLM 0.18 on, the whole
    piecewise set and two full ones from 0.29 on."""
    total, full, _ = resolved.captures
    if resolved.generation != "v1" or resolved.version < (0, 18) or total == 0:
        return 0
    piecewise = total - full
    return min(2, full) + (piecewise if resolved.version >= (0, 29) else min(2, piecewise))


def _or_default(value: float | None, name: str, table: Mapping[str, float] = CLUSTER_DEFAULTS) -> float:
    return table[name] if value is None else value
