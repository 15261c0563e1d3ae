"""Device memory of one start: a budget that adds up, the KV pool that is left, and what would make more room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import Resolved
from startup_model.errors import ConfigError
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.models.layers import split
from startup_model.sizes.kv_cache import kv_pool
from startup_model.sizes.weights import WeightSizes, weight_sizes
from startup_model.units import GIB, format_bytes

MemoryStatus = Literal["ok", "kv_cache_too_small", "weights_do_not_fit"]

BYTES_PER_LOGIT = 38.4
"""Peak of the sampler's profile run [B], for each of max_num_seqs x vocabulary logits. From four models on an H100 with vLLM 0.11.0 and 1024 sequences:
Qwen3-0.6B 5.56 GiB, Llama-3.1-8B 4.76, Qwen3-32B 5.64, gpt-oss-20b 7.38; all within 2 %, whatever their size."""
HIDDEN_TENSORS = 3.0
"""Tensors of the hidden size that live at the peak of a forward pass, beside two of the feed-forward width."""
NON_TORCH_BYTES = 0.13 * GIB
"""Context and libraries outside PyTorch's allocator on one rank (H100, vLLM 0.11.0)."""
COLLECTIVE_BYTES = 0.42 * GIB
"""NCCL buffers on top, once a rank talks to others (0.55 GiB in all)."""
FIRST_GRAPH_BYTES, BYTES_PER_GRAPH = 0.30 * GIB, 6.0 * 2**20
"""Captured graphs: the first takes the pool, each further one a few MiB (0.5-0.7 GiB for 67 graphs in start-up logs)."""


class Remedy(NamedTuple):
    """A change that makes room for the KV pool, and how much."""

    action: str
    """In words, with the flag."""
    changes: Mapping[str, Any]
    """Fields of EngineConfig (or ``gpus``) and their new values."""
    frees_bytes: float
    """By how much more than one request of full length would fit, against now."""
    status: MemoryStatus
    """Afterwards."""


class MemoryBudget(NamedTuple):
    """Memory of the device with the most weights, in bytes. The parts sum to ``gpu_memory``."""

    gpu_memory: float
    weights: float
    """As loaded: the weights, and the buffers that are allocated with them."""
    activations: float
    non_torch: float
    graphs: float
    """Graph memory that is taken off before the pool is sized; 0 where the version does not."""
    kv_cache: float
    """The pool: whole blocks."""
    outside_budget: float
    """What gpu_memory_utilization leaves alone."""
    rounding: float
    """Too small for one more block, not asked for, or (negative) missing."""
    block_size: int
    """Tokens of a block; hybrids enlarge it until a state fits."""
    block_bytes: float
    """One block over all layers of a rank."""
    available: float
    """Bytes for the pool before they are cut into blocks."""
    needed: float
    """Bytes of one request of max_model_len tokens."""
    num_gpu_blocks: int
    num_cpu_blocks: int
    kv_cache_tokens: int
    max_concurrency: float
    """Requests of max_model_len tokens that the pool holds at once."""
    status: MemoryStatus
    missing: float
    """Bytes that are missing for the status to be ok; 0.0 when it is."""
    remedies: tuple[Remedy, ...] = ()
    """What would make room, the most effective first; empty when the status is ok."""

    @property
    def fits(self) -> bool:
        """True when the server starts."""
        return self.status == "ok"


def memory_budget(
    model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, resolved: Resolved, weights: WeightSizes
) -> MemoryBudget:
    """The memory budget of one start.

    available = gpu_memory x gpu_memory_utilization - weights - activation peak - non-torch (- graphs where the version takes them off), or
    kv_cache_memory_bytes; num_gpu_blocks = floor(available / block bytes), or num_gpu_blocks_override; num_cpu_blocks = floor(swap_space / block
    bytes). The status is weights_do_not_fit when nothing is left for a block, kv_cache_too_small when one request of max_model_len does not fit.
    """
    total, override = hardware.gpu_memory, engine.num_gpu_blocks_override
    budget = total * resolved.gpu_memory_utilization
    activations = activation_peak(model, engine, resolved) if resolved.profiles_memory else 0.0
    non_torch = NON_TORCH_BYTES + (COLLECTIVE_BYTES if engine.tp * engine.pp > 1 else 0.0)
    graphs = graph_memory(resolved) if resolved.takes_off_graphs else 0.0
    as_loaded = weights.resident_bytes + resolved.buffer_bytes
    available = min(budget - as_loaded - activations - non_torch - graphs, resolved.max_pool_bytes)
    if engine.kv_cache_memory_bytes is not None:
        available = engine.kv_cache_memory_bytes
    pool = kv_pool(model, engine, resolved)
    size, needed = pool.block_bytes, pool.request_blocks * pool.block_bytes
    blocks = (max(0, int(available // size)) if size else 0) if override is None else override
    kv_cache, room = blocks * size, total - (as_loaded + non_torch)
    status: MemoryStatus = "ok"
    missing = 0.0
    if room < 0 or (available <= 0 and override is None):
        status, missing = "weights_do_not_fit", max(-room, -available) + needed
    elif blocks < pool.request_blocks:
        status, missing = "kv_cache_too_small", (pool.request_blocks - blocks) * size
    elif kv_cache > room:
        status, missing = "weights_do_not_fit", kv_cache - room
    outside = total - budget
    return MemoryBudget(
        gpu_memory=total,
        weights=as_loaded,
        activations=activations,
        non_torch=non_torch,
        graphs=graphs,
        kv_cache=kv_cache,
        outside_budget=outside,
        rounding=total - (as_loaded + activations + non_torch + graphs + kv_cache + outside),
        block_size=pool.block_size,
        block_bytes=size,
        available=available,
        needed=needed,
        num_gpu_blocks=blocks,
        num_cpu_blocks=int(resolved.swap_space // size) if size else 0,
        kv_cache_tokens=pool.tokens(blocks, resolved.max_model_len),
        max_concurrency=blocks / pool.request_blocks if pool.request_blocks else 0.0,
        status=status,
        missing=missing,
    )


def activation_peak(model: ModelConfig, engine: EngineConfig, resolved: Resolved) -> float:
    """Bytes at the peak of the profile run: the larger of the sampler's logits and the widest layer of the forward pass.

    logits = bytes per logit x max_num_seqs x vocabulary; forward = batched tokens x type x (hidden tensors x hidden size + 2 x width / tp).
    """
    logits = BYTES_PER_LOGIT * min(resolved.max_num_seqs, resolved.max_num_batched_tokens) * model.vocab_size
    moe = model.moe
    width = moe.intermediate_size * moe.num_experts_per_token if moe else model.intermediate_size or 0
    values = HIDDEN_TENSORS * model.hidden_size + 2 * split(width, engine.tp)
    return max(logits, resolved.max_num_batched_tokens * resolved.dtype_bytes * values)


def graph_memory(resolved: Resolved) -> float:
    """Bytes of captured graphs: that of the first one, which the modes share, + sum over modes of (n - 1) x bytes per graph.

    vLLM's estimate (v1/worker/gpu_worker.py, 0.18 on): the largest first capture, and (n - 1) x max(second, 1 MiB) for each mode.
    """
    total, full, _ = resolved.captures
    return FIRST_GRAPH_BYTES + sum(max(n - 1, 0) for n in (full, total - full)) * BYTES_PER_GRAPH if total else 0.0


# --- remedies -----------------------------------------------------------------------------------------------------------


def find_remedies(
    model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, default_version: str | None = None
) -> tuple[Remedy, ...]:
    """Changes that would make room for the KV pool, those that free most first.

    Each is tried: the budget is worked out again with the change, and what it frees is the difference in (available - one request of full length).
    """

    def work_out(node: HardwareConfig, config: EngineConfig) -> tuple[Resolved, MemoryBudget]:
        resolved = config.resolve(model, node, default_version)
        weights = weight_sizes(model, config, node, resolved.dtype_bytes)
        return resolved, memory_budget(model, node, config, resolved, weights)

    own, now = work_out(hardware, engine)
    remedies = []
    for action, changes in _candidates(model, hardware, engine, now, own):
        fields = dict(changes)
        node = hardware.replace(gpus=fields.pop("gpus")) if "gpus" in fields else hardware
        try:
            _, then = work_out(node, engine.replace(**fields))
        except ConfigError:
            continue
        frees = (then.available - then.needed) - (now.available - now.needed)
        if frees > 0:
            remedies.append(Remedy(f"{action}: {format_bytes(frees)} more room", changes, frees, then.status))
    return tuple(sorted(remedies, key=lambda remedy: (remedy.status != "ok", -remedy.frees_bytes)))


def longest_request(model: ModelConfig, engine: EngineConfig, resolved: Resolved, budget: MemoryBudget) -> int:
    """Tokens of the longest request that the pool holds, in whole blocks; 0 when it holds none."""
    low, high = 0, resolved.max_model_len // budget.block_size
    while low < high:
        middle = (low + high + 1) // 2
        pool = kv_pool(model, engine, resolved._replace(max_model_len=middle * budget.block_size))
        low, high = (middle, high) if pool.request_blocks <= budget.num_gpu_blocks else (low, middle - 1)
    return low * budget.block_size


def _candidates(
    model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, now: MemoryBudget, resolved: Resolved
) -> Iterator[tuple[str, dict[str, Any]]]:
    heads = model.num_attention_heads
    for tp in (2 * engine.tp, 4 * engine.tp, 8 * engine.tp):
        needed = tp * engine.pp * engine.dp
        if heads is not None and heads % tp == 0 and not hardware.is_cpu_only:
            more = {} if needed <= hardware.gpus * hardware.nodes else {"gpus": -(-needed // hardware.nodes)}
            yield f"tensor parallelism {tp}" + (f" on {more['gpus']} accelerators" if more else ""), {"tp": tp, **more}
    if resolved.gpu_memory_utilization < 0.95 and engine.kv_cache_memory_bytes is None:
        yield "raise gpu_memory_utilization to 0.95", {"gpu_memory_utilization": 0.95}
    shorter = longest_request(model, engine, resolved, now)
    if 0 < shorter < resolved.max_model_len:
        yield f"shorten max_model_len to {shorter}", {"max_model_len": shorter}
    for field, lower in (("max_num_seqs", 256), ("max_num_seqs", 64), ("max_num_batched_tokens", 2048)):
        if getattr(resolved, field) > lower:
            yield f"lower {field} to {lower}", {field: lower}
    if not engine.enforce_eager:
        yield "enforce_eager, without graphs", {"enforce_eager": True}
    if resolved.kv_cache_dtype_bytes > 1:
        yield "an fp8 KV cache", {"kv_cache_dtype": "fp8"}
    if model.quantization is None and engine.quantization is None:
        yield "quantization fp8 on the way", {"quantization": "fp8"}
