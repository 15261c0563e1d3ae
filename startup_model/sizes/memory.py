"""Device memory of one start: a budget that adds up, and the KV pool that is left."""

from __future__ import annotations

from typing import Literal, NamedTuple

from startup_model.architecture.layers import Attention, GatedDeltaNet, LatentAttention, Mamba, Mamba2, Mixer, split
from startup_model.config.engine import EngineConfig, ResolvedEngine
from startup_model.config.hardware import HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.sizes.weights import WeightSizes
from startup_model.units import GIB

__all__ = ["MemoryBudget", "memory_budget"]

MemoryStatus = Literal["ok", "kv_cache_too_small", "weights_do_not_fit"]

BYTES_PER_LOGIT = 38.4
"""Peak of the sampler's profile run, bytes for each of max_num_seqs x vocabulary logits.

From four models on an H100 with vLLM 0.11.0, max_num_seqs = 1024: Qwen3-0.6B 5.56 GiB, Llama-3.1-8B 4.76, Qwen3-32B
5.64, gpt-oss-20b 7.38; all within 2 % of this figure, whatever their size.
"""
FORWARD_VALUES = 3
"""Tensors of the hidden size that live at the peak of a forward pass, beside the two of the feed-forward width."""
NON_TORCH_BYTES = 0.13 * GIB
"""Context and libraries outside PyTorch's allocator, one rank (H100, vLLM 0.11.0)."""
COLLECTIVE_BYTES = 0.42 * GIB
"""NCCL buffers on top, once a rank talks to others (0.55 GiB in all)."""
FIRST_GRAPH_BYTES = 0.30 * GIB
BYTES_PER_GRAPH = 6 * 2**20
"""Memory of captured graphs: the first takes the pool, each further one a few MiB (0.5-0.7 GiB for 67 graphs in
start-up logs)."""


class MemoryBudget(NamedTuple):
    """Memory of the device with the most weights, in bytes. The parts sum to ``gpu_memory`` when the status is ok."""

    gpu_memory: float
    weights: float
    activations: float
    non_torch: float
    graphs: float
    """Graph memory that is taken off before the pool is sized; 0 where the version does not."""
    kv_cache: float
    """The pool: whole blocks."""
    outside_budget: float
    """What gpu_memory_utilization leaves alone."""
    rounding: float
    """Too small for one more block, or not asked for."""
    block_bytes: float
    """One block over all layers of a rank."""
    num_gpu_blocks: int
    num_cpu_blocks: int
    kv_cache_tokens: int
    max_concurrency: float
    """Requests of max_model_len tokens that the pool holds at once."""
    status: MemoryStatus
    missing: float
    """Bytes that are missing for the status to be ok; 0.0 when it is."""

    @property
    def fits(self) -> bool:
        """True when the server starts."""
        return self.status == "ok"


def memory_budget(
    model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, resolved: ResolvedEngine, weights: WeightSizes
) -> MemoryBudget:
    """The memory budget of one start.

    available = gpu_memory x gpu_memory_utilization - weights - activation peak - non-torch (- graphs from vLLM 0.20);
    num_gpu_blocks = floor(available / block bytes); num_cpu_blocks = floor(swap_space / block bytes).
    """
    budget = hardware.gpu_memory * resolved.gpu_memory_utilization
    activations = activation_peak(model, engine, resolved)
    non_torch = NON_TORCH_BYTES + (COLLECTIVE_BYTES if engine.tp * engine.pp > 1 else 0.0)
    graphs = graph_memory(resolved) if resolved.generation == "v1" and resolved.version >= (0, 20) else 0.0
    available = budget - weights.resident_bytes - activations - non_torch - graphs
    if hardware.is_cpu_only and engine.kv_cache_memory_bytes is None and resolved.version < (0, 20):
        available = min(available, 4.0 * GIB)
    if engine.kv_cache_memory_bytes is not None:
        available = engine.kv_cache_memory_bytes
    pool = _pool(model, engine, resolved)
    blocks = max(0, int(available // pool.block_bytes)) if pool.block_bytes else 0
    if engine.num_gpu_blocks_override is not None:
        blocks = engine.num_gpu_blocks_override
    tokens = blocks // pool.groups * resolved.block_size
    needed_blocks = pool.blocks_per_request
    kv_cache = blocks * pool.block_bytes
    status: MemoryStatus = "ok"
    missing = 0.0
    room = hardware.gpu_memory - weights.resident_bytes - non_torch
    if room < 0 or (available <= 0 and engine.num_gpu_blocks_override is None):
        status, missing = "weights_do_not_fit", max(-room, -available)
    elif pool.block_bytes and blocks < needed_blocks:
        status, missing = "kv_cache_too_small", (needed_blocks - blocks) * pool.block_bytes
    outside = hardware.gpu_memory - budget
    used = weights.resident_bytes + activations + non_torch + graphs + kv_cache + outside
    return MemoryBudget(
        gpu_memory=hardware.gpu_memory,
        weights=weights.resident_bytes,
        activations=activations,
        non_torch=non_torch,
        graphs=graphs,
        kv_cache=kv_cache,
        outside_budget=outside,
        rounding=hardware.gpu_memory - used,
        block_bytes=pool.block_bytes,
        num_gpu_blocks=blocks,
        num_cpu_blocks=int(resolved.swap_space // pool.block_bytes) if pool.block_bytes else 0,
        kv_cache_tokens=tokens,
        max_concurrency=blocks / needed_blocks if needed_blocks else 0.0,
        status=status,
        missing=missing,
    )


def activation_peak(model: ModelConfig, engine: EngineConfig, resolved: ResolvedEngine) -> float:
    """Bytes at the peak of the profile run: the larger of the sampler's logits and the widest layer of the forward
    pass."""
    if resolved.generation == "sglang":
        return 0.0  # no profile run: the reserve is what mem_fraction_static leaves
    logits = BYTES_PER_LOGIT * min(resolved.max_num_seqs, resolved.max_num_batched_tokens) * model.vocab_size
    moe = model.moe
    width = moe.intermediate_size * moe.num_experts_per_token if moe else model.intermediate_size or 0
    forward = resolved.max_num_batched_tokens * resolved.dtype_bytes * (
        FORWARD_VALUES * model.hidden_size + 2 * split(width, engine.tp)
    )  # fmt: skip
    return max(logits, forward)


def graph_memory(resolved: ResolvedEngine) -> float:
    """Bytes of captured graphs: first + (n - 1) x each."""
    captures = resolved.captures.total
    return FIRST_GRAPH_BYTES + (captures - 1) * BYTES_PER_GRAPH if captures else 0.0


class _Pool(NamedTuple):
    """Shape of the KV pool of one rank."""

    block_bytes: float
    groups: int
    """Groups of layers, each with block tables of its own."""
    blocks_per_request: int
    """Blocks that a request of max_model_len holds, over all groups."""


def token_bytes(mixer: Mixer | None, tp: int, dtype_bytes: float) -> float:
    """KV bytes of one token in one layer, on one rank: 2 x max(1, kv_heads / tp) x head_dim x type; latent attention
    one copy of (kv_lora_rank + rope) x type; state-space layers keep a state a request and nothing a token."""
    if isinstance(mixer, Attention):
        return (
            0.0
            if mixer.shares_kv_of_another_layer
            else 2 * max(1, mixer.num_kv_heads // tp) * mixer.head_dim * dtype_bytes
        )
    if isinstance(mixer, LatentAttention):
        if dtype_bytes == 1:
            return (
                656.0
                if mixer.kv_lora_rank == 512 and mixer.qk_rope_head_dim == 64
                else mixer.kv_lora_rank + mixer.qk_rope_head_dim
            )
        return (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * dtype_bytes
    return 0.0


def state_bytes(mixer: Mixer | None, tp: int, dtype_bytes: float) -> float:
    """Bytes of the state that a request keeps in one state-space layer, on one rank: convolution window + state."""
    if isinstance(mixer, Mamba):
        inner = split(mixer.inner_size, tp)
        return inner * ((mixer.conv_kernel - 1) * dtype_bytes + mixer.state_size * dtype_bytes)
    if isinstance(mixer, Mamba2):
        heads = split(mixer.num_heads, tp)
        convolution = heads * mixer.head_dim + 2 * split(mixer.num_groups, tp) * mixer.state_size
        return (convolution * (mixer.conv_kernel - 1) + heads * mixer.head_dim * mixer.state_size) * dtype_bytes
    if isinstance(mixer, GatedDeltaNet):
        heads = split(mixer.num_value_heads, tp)
        state = heads * mixer.key_head_dim * mixer.value_head_dim
        return (split(mixer.conv_size, tp) * (mixer.conv_kernel - 1) + state) * dtype_bytes
    return 0.0


def _pool(model: ModelConfig, engine: EngineConfig, resolved: ResolvedEngine) -> _Pool:
    """Block bytes and groups: layers with the same need form groups of equal size that share the same memory."""
    kinds: dict[tuple[str, int | None], list[tuple[int, Mixer]]] = {}
    hybrid = resolved.generation == "v1" and resolved.version >= (0, 9)
    for group in model.layers:
        mixer = group.mixer
        if mixer is None or (isinstance(mixer, Attention) and mixer.shares_kv_of_another_layer):
            continue
        window = mixer.window if hybrid else None
        state = "state" if isinstance(mixer, Mamba | Mamba2 | GatedDeltaNet) else "tokens"
        kinds.setdefault((state, window), []).append((group.count, mixer))
    if not kinds:
        return _Pool(0.0, 1, 0)
    counts = {key: -(-sum(count for count, _ in members) // engine.pp) for key, members in kinds.items()}
    page = 0.0
    for members in kinds.values():
        for _, mixer in members:
            page = max(page, token_bytes(mixer, engine.tp, resolved.kv_cache_dtype_bytes) * resolved.block_size)
    if page == 0:  # no attention: one block is the state of one request
        page = max(
            state_bytes(mixer, engine.tp, resolved.dtype_bytes) for members in kinds.values() for _, mixer in members
        )
    smallest, largest = min(counts.values()), max(counts.values())
    size = largest if largest < 1.25 * smallest else smallest
    groups = {key: -(-count // size) for key, count in counts.items()}
    return _Pool(
        page * size, sum(groups.values()), sum(groups[key] * _blocks_of_request(key, resolved) for key in kinds)
    )


def _blocks_of_request(key: tuple[str, int | None], resolved: ResolvedEngine) -> int:
    """Blocks that one layer group holds for a request of max_model_len tokens."""
    state, window = key
    if state == "state":
        return 1
    if window is None:
        return split(resolved.max_model_len, resolved.block_size)
    held = min(window - 1 + resolved.max_num_batched_tokens, resolved.max_model_len)
    return split(held, resolved.block_size) + 1
