"""The KV pool: bytes of a block, groups of layers that share memory, blocks of a request.

Follows vLLM's v1/core/kv_cache_utils.py and v1/kv_cache_interface.py (0.8.5 to 0.32.0) and, for V0, worker/cache_engine.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from startup_model.engines.config import EngineConfig, ResolvedEngine
from startup_model.models.config import ModelConfig
from startup_model.models.layers import Attention, LatentAttention, Mixer, split
from startup_model.versions import Version, at_version

__all__ = ["KvPool", "kv_pool", "request_blocks", "token_bytes"]

SPARSE_FP8_TOKEN_BYTES = 656.0
"""One token of DeepSeek's sparse attention in the fp8_ds_mla layout: 512 fp8 values, 4 scales, 64 values of 16 bits."""

_GROUP_SIZE_RATIO: list[tuple[Version, float]] = [((0,), 1.0), ((0, 12), 1.25), ((0, 18), 1.5)]
"""First version -> unequal kinds of layers are padded to the larger number when that is less than so many times the smaller."""

_HYBRID_SINCE: Version = (0, 9, 1)
"""First version with one pool for layers of different needs; before, windowed layers kept every token."""

_PADDED_BLOCK = 16
"""Attention blocks grow in steps of so many tokens until they are as large as a state-space layer's state."""


class KvPool(NamedTuple):
    """Shape of the pool of one rank."""

    block_size: int
    """Tokens of a block."""
    block_bytes: float
    """One block over all layers that share it; 0 for a model that caches nothing."""
    groups: int
    """Groups of layers, each with block tables of its own."""
    request_blocks: int
    """Blocks that a request of max_model_len tokens holds, over all groups."""
    counts_by_request: bool
    """The engine reports tokens as concurrency x max_model_len instead of blocks x block size / groups."""

    def tokens(self, blocks: int, max_model_len: int) -> int:
        """Tokens that ``blocks`` blocks hold, as the engine reports it."""
        if self.counts_by_request:
            return int(blocks / self.request_blocks * max_model_len) if self.request_blocks else 0
        return blocks // self.groups * self.block_size


class _Need(NamedTuple):
    """What a kind of layers needs: a page for every block of tokens, or a state for every request."""

    keeps_state: bool
    window: int | None
    chunked: bool


def token_bytes(mixer: Mixer | None, tp: int, dtype_bytes: float) -> float:
    """KV bytes of one token in one layer on one rank: numbers that the mixer caches x bytes of their type.

    2 x max(1, kv_heads / tp) x head_dim for attention; (kv_lora_rank + rope) in one copy whatever tp is for latent attention, 656 bytes
    in its sparse fp8 layout; nothing for a state space.
    """
    if mixer is None:
        return 0.0
    if isinstance(mixer, LatentAttention) and mixer.index_head_dim and dtype_bytes == 1:
        return SPARSE_FP8_TOKEN_BYTES + mixer.index_head_dim
    return mixer.token_numbers(tp) * dtype_bytes


def kv_pool(model: ModelConfig, engine: EngineConfig, resolved: ResolvedEngine) -> KvPool:
    """Block bytes, groups and blocks of a request.

    Layers of one need form one group: block bytes = sum over layers of block size x token bytes. Layers of several needs are cut into groups
    of equal size that share the same memory: block bytes = page x layers of a group, where the page is the largest of all layers and
    attention blocks are enlarged until a state fits into one.
    """
    layers = _needs(model, engine, resolved)
    kv_bytes = resolved.kv_cache_dtype_bytes
    counts_by_request = resolved.generation == "v1" and resolved.version >= (0, 20, 2)
    if not layers:
        return KvPool(resolved.block_size, 0.0, 1, 0, counts_by_request)
    states = max(
        (mixer.state_numbers(engine.tp) * resolved.dtype_bytes for kinds in layers.values() for mixer in kinds),
        default=0.0,
    )
    per_token = max(token_bytes(mixer, engine.tp, kv_bytes) for kinds in layers.values() for mixer in kinds)
    block_size = resolved.block_size
    if states and per_token:
        block_size = max(block_size, _PADDED_BLOCK * -int(-states // (_PADDED_BLOCK * per_token)))
    needs = {need: -(-sum(kinds.values()) // engine.pp) for need, kinds in layers.items()}
    if len(layers) == 1:
        ((need, kinds),) = layers.items()
        total = (
            sum(count * max(token_bytes(m, engine.tp, kv_bytes) * block_size, 0.0) for m, count in kinds.items())
            if per_token
            else 0.0
        )
        total = total or sum(count * m.state_numbers(engine.tp) * resolved.dtype_bytes for m, count in kinds.items())
        return KvPool(block_size, total / engine.pp, 1, request_blocks(need, block_size, resolved), counts_by_request)
    page = max(per_token * block_size, states)
    size, largest = min(needs.values()), max(needs.values())
    if largest < at_version(_GROUP_SIZE_RATIO, resolved.version) * size:
        size = largest
    groups = {need: -(-count // size) for need, count in needs.items()}
    blocks = sum(number * request_blocks(need, block_size, resolved) for need, number in groups.items())
    return KvPool(block_size, page * size, sum(groups.values()), blocks, counts_by_request)


def request_blocks(need: _Need, block_size: int, resolved: ResolvedEngine) -> int:
    """Blocks that one layer holds for a request of max_model_len tokens.

    All tokens: ceil(length / block). A sliding window: ceil(min(window - 1 + batched tokens, length) / block) + 1. A chunk: ceil(min(chunk +
    batched tokens, length) / block). A state: one.
    """
    if need.keeps_state:
        return 1
    length = resolved.max_model_len
    if need.window is None:
        return split(length, block_size)
    if need.chunked:
        return split(min(need.window + resolved.max_num_batched_tokens, length), block_size)
    return split(min(need.window - 1 + resolved.max_num_batched_tokens, length), block_size) + 1


def _needs(model: ModelConfig, engine: EngineConfig, resolved: ResolvedEngine) -> Mapping[_Need, Counter[Mixer]]:
    """Need -> mixers with their number of layers; mixers that cache nothing of their own are left out."""
    hybrid = resolved.generation == "v1" and resolved.version >= _HYBRID_SINCE
    needs: dict[_Need, Counter[Mixer]] = {}
    for group in model.layers:
        for mixer in group.mixers:
            state = mixer.state_numbers(engine.tp) > 0
            if not state and mixer.token_numbers(engine.tp) == 0:
                continue
            chunked = isinstance(mixer, Attention) and mixer.chunked
            need = _Need(state, mixer.window if hybrid and not state else None, chunked and hybrid)
            needs.setdefault(need, Counter())[mixer] += group.count
    return needs
