"""From configurations to the physical inputs of the terms: layers, bytes, bandwidths, captures, FLOP."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from startup_model.engines.config import EngineConfig, ResolvedEngine
from startup_model.factors import moe_sparsity, shared_bandwidth, weighted_layers
from startup_model.formula import Values, minimum
from startup_model.hardware import CLUSTER_DEFAULTS, STORAGE_DEFAULTS, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import Phase
from startup_model.sizes.memory import MemoryBudget
from startup_model.sizes.weights import WeightSizes

__all__ = [
    "BYTES_PER_VOCABULARY_ENTRY",
    "INPUT_MEANINGS",
    "HostNumbers",
    "NodeNumbers",
    "cpu_preset",
    "node_inputs",
    "node_numbers",
    "physical_inputs",
    "size_inputs",
    "skipped_phases",
    "variant_keys",
]

BYTES_PER_VOCABULARY_ENTRY = 57.0
"""Size of tokenizer.json per entry of the vocabulary where the file is not at hand: the median over 168 models of the
catalogue, of which eight in ten lie between 42 and 79."""

PARALLEL_COPY_GAIN = 1.4
"""How much faster several ranks copy from one page cache than one rank does, all together: 9.4 and 14.2 GB/s on two TP=4
start-ups in public logs (Qwen3-14B and Llama-3-8B) against 8.3 GB/s of one rank."""

PROMPT_TOKENS = 512
"""Length of the first request, in tokens."""


INPUT_MEANINGS: Mapping[str, str] = {
    "slowdown": "single-thread time relative to the profile's host",
    "workers": "worker processes on one node: tp × pp × dp / nodes",
    "collectives": "1 when ranks talk to each other",
    "layers": "decoder layers on one rank",
    "trace_layers": "layers weighted by what tracing one of their kind costs",
    "compile_layers": "layers weighted by what compiling one of their kind costs",
    "capture_layers": "layers weighted by what capturing one of their kind costs",
    "profiling_layers": "layers weighted by what profiling one of their kind costs",
    "tokenizer_bytes": "B, size of tokenizer.json (57 B a vocabulary entry where the file is not at hand)",
    "storage_bytes": "B read from storage on one node; 0 when the page cache holds them",
    "rank_bytes": "B of weights copied to one device",
    "files": "files of the checkpoint",
    "passes": "passes over the bytes in host memory",
    "overlap": "share of reading and copying that happens at the same time",
    "storage_bandwidth": "B/s of the tier, divided by the starts that share it",
    "page_cache_bandwidth": "B/s from the page cache to one device, its share where several ranks copy",
    "host_to_device_bandwidth": "B/s of the link to one device",
    "memory_bandwidth": "B/s of device memory",
    "device_flops": "FLOP/s, dense 16-bit",
    "active_bytes": "B of weights that one token reads on one rank",
    "captures": "graphs, by version and flags",
    "estimate_captures": "graphs that are captured once more to measure their memory",
    "profile_flop": "FLOP of the profile run: 2 × active parameters × max_num_batched_tokens / (tp × pp)",
    "prompt_flop": "FLOP of the first request's prefill (512 tokens)",
    "pool_bytes": "B of KV cache on one rank",
    "provision_seconds": "s, given or assumed",
    "image_bytes": "B, given or assumed",
    "image_pull_bandwidth": "B/s, given or assumed",
    "container_start_seconds": "s, given or assumed",
}
"""Input of a term -> unit and meaning, for ``explain()``."""


class HostNumbers(NamedTuple):
    """Hardware numbers of a profile's host: what a node that does not give them is taken to have."""

    single_thread_score: float | None
    """None: not known."""
    is_cpu_only: bool
    assumed: frozenset[str]
    """Those that nobody has measured, by their field of the profile's host."""
    memory_bandwidth: float
    page_cache: float
    local_nvme: float | None
    network_disk: float | None
    object_store: float | None
    host_to_device: float
    device_flops: float


class NodeNumbers(NamedTuple):
    """The numbers of a node, what it does not give filled in: numbers, or arrays that broadcast."""

    host_score: Values
    """Single-thread score [1] of the profile's host."""
    single_thread_score: Values
    fixed_score: Values
    """The score [1] that counts whatever the node's is; 0: the node's counts. So also for ``fixed_*`` below."""
    storage_bandwidth: Values
    """Of the tier where the checkpoint lies [B/s]."""
    network_bandwidth: Values
    """What bounds that tier [B/s]; infinite for a local drive or where it is not given."""
    concurrent_starts: Values
    page_cache_bandwidth: Values
    """To one device, by one process [B/s]."""
    host_to_device_bandwidth: Values
    memory_bandwidth: Values
    device_flops: Values
    fixed_page_cache_bandwidth: Values
    fixed_memory_bandwidth: Values
    fixed_device_flops: Values
    provision_seconds: Values
    image_bytes: Values
    image_pull_bandwidth: Values
    container_start_seconds: Values


def physical_inputs(
    model: ModelConfig,
    hardware: HardwareConfig,
    engine: EngineConfig,
    resolved: ResolvedEngine,
    weights: WeightSizes,
    memory: MemoryBudget,
    host: HostNumbers,
    *,
    same_host: bool = True,
) -> dict[str, float]:
    """Every input that a term can ask for, by name; units as in the glossary of ``startup_model.terms``.

    ``same_host``: whether the storage of the profile's host may stand for what the node does not give.
    """
    sizes = size_inputs(model, hardware, engine, resolved, weights, memory)
    return sizes | node_inputs(node_numbers(hardware, host, same_host=same_host), sizes["workers"])


def size_inputs(
    model: ModelConfig,
    hardware: HardwareConfig,
    engine: EngineConfig,
    resolved: ResolvedEngine,
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
    # Weights are multiplied once a token: 2 FLOP a parameter.
    flop_per_token = 2.0 * model.active_parameters / (engine.tp * engine.pp)
    return {
        "workers": float(-(-world // hardware.nodes)),
        "collectives": 1.0 if world > 1 else 0.0,
        "layers": model.num_hidden_layers * share,
        "trace_layers": layers.trace * share,
        "compile_layers": layers.compile * share,
        "capture_layers": layers.capture * share,
        "profiling_layers": layers.profiling * share,
        "tokenizer_bytes": float(tokenizer_bytes(model)),
        "storage_bytes": weights.node_bytes * loaded if reads and engine.page_cache == "cold" else 0.0,
        "node_bytes": weights.node_bytes * loaded if reads else 0.0,
        "rank_bytes": weights.rank_bytes * loaded if reads else 0.0,
        "passes": resolved.load_format.passes,
        "files": float(weights.files) if reads else 0.0,
        "overlap": resolved.load_format.overlap,
        "active_bytes": weights.active_bytes,
        "captures": float(resolved.captures.total),
        "estimate_captures": float(_estimate_captures(resolved)),
        "profile_flop": flop_per_token * resolved.max_num_batched_tokens,
        "prompt_flop": flop_per_token * PROMPT_TOKENS,
        "pool_bytes": memory.kv_cache,
    }


def node_numbers(hardware: HardwareConfig, host: HostNumbers, *, same_host: bool = True) -> NodeNumbers:
    """The numbers of a node; what it does not give is taken from the profile's host, or from tables of defaults.

    ``same_host``: whether the storage of the profile's host may stand for what the node does not give. A number that nobody has measured on the profile's host is
    not compared with the node's: the coefficients hold what that host really does, and the number in them is one that counts on both sides. For nodes without
    accelerators that is what the preset ``cpu`` says, too.
    """
    storage = hardware.storage
    alike = hardware.is_cpu_only and host.is_cpu_only
    fixed = host.assumed if alike else frozenset()
    memory, flops = hardware.gpu_memory_bandwidth, hardware.gpu_flops
    if alike:
        preset = cpu_preset()
        memory = host.memory_bandwidth if memory == preset.gpu_memory_bandwidth else memory
        flops = host.device_flops if flops == preset.gpu_flops else flops
    cold = (
        storage.cold_bandwidth or (getattr(host, storage.tier) if same_host else None) or STORAGE_DEFAULTS[storage.tier]
    )
    network = hardware.network_bandwidth if storage.tier != "local_nvme" else None
    return NodeNumbers(
        host_score=host.single_thread_score or 1.0,
        single_thread_score=hardware.cpu.score or host.single_thread_score or 1.0,
        fixed_score=1.0 if host.single_thread_score is None else 0.0,
        storage_bandwidth=cold,
        network_bandwidth=network or math.inf,
        concurrent_starts=float(storage.concurrent_starts),
        page_cache_bandwidth=storage.page_cache or host.page_cache,
        host_to_device_bandwidth=hardware.host_to_device_bandwidth or host.host_to_device,
        memory_bandwidth=memory,
        device_flops=flops or host.device_flops,
        fixed_page_cache_bandwidth=host.page_cache if "page_cache_bandwidth" in fixed else 0.0,
        fixed_memory_bandwidth=host.memory_bandwidth if "gpu_memory_bandwidth" in fixed else 0.0,
        fixed_device_flops=host.device_flops if "device_flops" in fixed else 0.0,
        provision_seconds=_cluster(hardware, "provision_s"),
        image_bytes=_cluster(hardware, "image_bytes"),
        image_pull_bandwidth=_cluster(hardware, "image_pull_bandwidth"),
        container_start_seconds=_cluster(hardware, "container_start_s"),
    )


@lru_cache(maxsize=1)
def cpu_preset() -> HardwareConfig:
    """The node without accelerators that nothing is known of: its bandwidth and FLOP/s are of a data sheet, not of any host at hand."""
    return HardwareConfig.preset("cpu")


def node_inputs(node: NodeNumbers, workers: Values) -> dict[str, Any]:
    """The inputs that the numbers of a node decide: numbers, or arrays where the numbers are arrays.

    slowdown = score of the profile's host / score, 1 where that host has none; storage bandwidth = min(tier, network) / starts that share it; page-cache bandwidth = that of one
    process x min(workers, 1.4) / workers.
    """
    return {
        "slowdown": node.host_score / _counting(node.single_thread_score, node.fixed_score),
        "storage_bandwidth": shared_bandwidth(
            minimum(node.storage_bandwidth, node.network_bandwidth), node.concurrent_starts
        ),
        "page_cache_bandwidth": _counting(node.page_cache_bandwidth, node.fixed_page_cache_bandwidth)
        * minimum(workers, PARALLEL_COPY_GAIN)
        / workers,
        "host_to_device_bandwidth": node.host_to_device_bandwidth,
        "memory_bandwidth": _counting(node.memory_bandwidth, node.fixed_memory_bandwidth),
        "device_flops": _counting(node.device_flops, node.fixed_device_flops),
        "provision_seconds": node.provision_seconds,
        "image_bytes": node.image_bytes,
        "image_pull_bandwidth": node.image_pull_bandwidth,
        "container_start_seconds": node.container_start_seconds,
    }


def _counting(own: Any, fixed: Any) -> Any:
    """The node's own number, or where there is one the number that counts in its place."""
    return fixed + own * (fixed == 0.0)


def tokenizer_bytes(model: ModelConfig) -> float:
    """Size of tokenizer.json: known, else estimated from the vocabulary."""
    return model.tokenizer_bytes if model.tokenizer_bytes is not None else BYTES_PER_VOCABULARY_ENTRY * model.vocab_size


def variant_keys(engine: EngineConfig, resolved: ResolvedEngine, model: ModelConfig) -> tuple[str, ...]:
    """Which sets of coefficients fit a start, the most particular first; a term takes the first that its profile
    has."""
    method = engine.packing or (model.quantization.method if model.quantization else None)
    keys = [f"load_format={engine.load_format}"]
    if method is not None:
        keys.append(f"quantization={method.removesuffix('-marlin')}")
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


def _cluster(hardware: HardwareConfig, name: str) -> float:
    """A number of the cluster around the engine: the node's own, else the default."""
    value: float | None = getattr(hardware, name)
    return CLUSTER_DEFAULTS[name] if value is None else value
