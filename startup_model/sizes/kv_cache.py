"""The KV pool: bytes of a block, groups of layers that share memory, blocks of a request.

Follows vLLM's v1/core/kv_cache_utils.py and v1/kv_cache_interface.py (0.8.5 to 0.32.0) and, for V0, worker/cache_engine.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import Resolved
from startup_model.models.config import ModelConfig
from startup_model.models.layers import Attention, LatentAttention, Mixer, split

SPARSE_FP8_TOKEN_BYTES = 656.0
"""One token of DeepSeek's sparse attention in the fp8_ds_mla layout: 512 fp8 values, 4 scales, 64 values of 16 bits."""
_PADDED_BLOCK = 16  # attention blocks grow in steps of so many tokens until a state of a state-space layer fits


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


def kv_pool(model: ModelConfig, engine: EngineConfig, resolved: Resolved) -> KvPool:
    """Block bytes, groups and blocks of a request.

    Layers of one need form one group: block bytes = sum over layers of block size x token bytes. Layers of several needs are cut into groups
    of equal size that share the same memory: block bytes = page x layers of a group, where the page is the largest of all layers and
    attention blocks are enlarged until a state fits into one.
    """
    tp, kv_bytes, block_size = engine.tp, resolved.kv_cache_dtype_bytes, resolved.block_size
    layers = _needs(model, engine, resolved)
    if not layers:
        return KvPool(block_size, 0.0, 1, 0, resolved.counts_by_request)
    kinds = {mixer for counted in layers.values() for mixer in counted}
    states = max(mixer.state_numbers(tp) * resolved.dtype_bytes for mixer in kinds)
    per_token = max(token_bytes(mixer, tp, kv_bytes) for mixer in kinds)
    if states and per_token:
        block_size = max(block_size, _PADDED_BLOCK * -int(-states // (_PADDED_BLOCK * per_token)))
    if len(layers) == 1:
        ((need, counted),) = layers.items()
        total = sum(count * token_bytes(mixer, tp, kv_bytes) * block_size for mixer, count in counted.items())
        total = total or sum(count * mixer.state_numbers(tp) * resolved.dtype_bytes for mixer, count in counted.items())
        blocks = request_blocks(need, block_size, resolved)
        return KvPool(block_size, total / engine.pp, 1, blocks, resolved.counts_by_request)
    numbers = {need: -(-counted.total() // engine.pp) for need, counted in layers.items()}
    size, largest = min(numbers.values()), max(numbers.values())
    if largest < resolved.group_size_ratio * size:
        size = largest
    groups = {need: -(-count // size) for need, count in numbers.items()}
    blocks = sum(number * request_blocks(need, block_size, resolved) for need, number in groups.items())
    page = max(per_token * block_size, states)
    return KvPool(block_size, page * size, sum(groups.values()), blocks, resolved.counts_by_request)


def request_blocks(need: _Need, block_size: int, resolved: Resolved) -> int:
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


def _needs(model: ModelConfig, engine: EngineConfig, resolved: Resolved) -> Mapping[_Need, Counter[Mixer]]:
    """Need -> mixers with their number of layers; mixers that cache nothing of their own are left out."""
    needs: dict[_Need, Counter[Mixer]] = {}
    for group in model.layers:
        for mixer in group.mixers:
            state = mixer.state_numbers(engine.tp) > 0
            if not state and mixer.token_numbers(engine.tp) == 0:
                continue
            chunked = isinstance(mixer, Attention) and mixer.chunked
            window = mixer.window if resolved.is_hybrid and not state else None
            need = _Need(state, window, chunked and resolved.is_hybrid)
            needs.setdefault(need, Counter())[mixer] += group.count
    return needs
