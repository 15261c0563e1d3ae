"""What vLLM's versions make of flags that are not given, and how many graphs they capture.

Read from the published source packages, vLLM 0.3.1 to 0.33.0: config, engine/arg_utils.py (_set_default_args*, get_batch_defaults), platforms/cpu.py,
worker/model_runner.py, v1/worker/gpu_model_runner.py, v1/worker/gpu_worker.py, v1/cudagraph_dispatcher.py, v1/core/kv_cache_utils.py.
``tests/reference/captures.json`` holds lists of graphs obtained by running that code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import CaptureCount, Resolved, Span
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.models.layers import Attention, LatentAttention
from startup_model.units import GIB
from startup_model.versions import Version, at_version, parse_version

CORES: Mapping[str, Span] = {"v0": Span(before=(0, 10, 100)), "v1": Span(since=(0, 6))}
"""Core -> the releases that have it."""
FIRST_V1: Version = (0, 8)
"""First release whose default core is V1."""

_GROUP_SIZE_RATIO: list[tuple[Version, float]] = [((0,), 1.0), ((0, 12), 1.25), ((0, 18), 1.5)]
_BIG_GPU, _HUGE_GPU = 70 * GIB, 160 * GIB
_MIB = 2.0**20
# Compute capability -> tensor-parallel ranks -> symmetric-memory buffer of one rank (distributed/device_communicators/all_reduce_utils.py).
# The engine counts it with the weights: Qwen3-32B TP2 30.59 GiB.
_ALL_REDUCE_BUFFERS: Mapping[str, Mapping[int, float]] = {
    "9.0": {2: 64 * _MIB, 4: 32 * _MIB, 6: 64 * _MIB, 8: 64 * _MIB},
    "10.0": {2: 8 * _MIB, 4: 32 * _MIB, 6: 128 * _MIB, 8: 128 * _MIB},
}


def resolve(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> Resolved:
    """Every flag with a value; V1 from 0.8 on, but V0 on GPUs below compute capability 8.0 as long as it existed."""
    capability = hardware.compute_capability
    is_old = capability is not None and parse_version(capability) < (8,) and version in CORES["v0"]
    core = config.generation or ("v1" if version >= FIRST_V1 and not is_old else "v0")
    return config.with_defaults(
        model,
        version,
        core,
        gpu_memory_utilization=0.92 if version >= (0, 20) else 0.90,
        block_size=_block_size(model, hardware, version),
        max_pool_bytes=4.0 * GIB if hardware.is_cpu_only and version < (0, 20) else math.inf,  # VLLM_CPU_KVCACHE_SPACE
        group_size_ratio=at_version(_GROUP_SIZE_RATIO, version),
        **(_v0 if core == "v0" else _v1)(config, model, hardware, version),
    )


def _v0(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> dict[str, Any]:
    length = config.max_model_len or model.max_position_embeddings
    # Chunked by itself from 0.5.3 on, for long contexts of models without a sliding window or latent attention.
    attention, chunked = model.attention, config.chunked_prefill
    if chunked is None:
        plain = isinstance(attention, Attention) and attention.window is None
        chunked = version >= (0, 5, 3) and length > 32768 and plain and not hardware.is_cpu_only
    seqs = config.max_num_seqs or 256
    captures = CaptureCount()
    if _captures_graphs(config, hardware, config.cudagraph_mode):
        sizes = _sorted(config.capture_sizes) if config.capture_sizes is not None else _v0_sizes(version, seqs)
        total = len(sizes) * (config.pp if version >= (0, 5, 1) else 1)  # once per virtual engine
        captures = CaptureCount(total, total, sizes)
    compiles = config.optimization_level == 3 if config.torch_compile is None else config.torch_compile
    return {
        "max_num_batched_tokens": (2048 if version >= (0, 6, 5) else 512) if chunked else max(length, 2048),
        "max_num_seqs": seqs,
        "swap_space": 4 * GIB if config.swap_space is None else config.swap_space,
        "compiles": compiles and not config.enforce_eager,
        "captures": captures,
    }


def _v1(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> dict[str, Any]:
    tokens, seqs = _batches(config, model, hardware, version)
    compiles, mode = _compilation(config, version)
    captures = CaptureCount()
    if _captures_graphs(config, hardware, mode):
        sizes = _v1_sizes(config, hardware, version, tokens, seqs)
        captures = _of_mode(mode or ("full_and_piecewise" if version >= (0, 11) else "piecewise"), sizes, seqs)
    buffers = _ALL_REDUCE_BUFFERS.get(hardware.compute_capability or "", {}) if version >= (0, 11) else {}
    return {
        "max_num_batched_tokens": tokens,
        "max_num_seqs": seqs,
        "compiles": compiles and not config.enforce_eager,
        "captures": captures,
        "estimate_captures": _estimate_captures(captures, version),
        "takes_off_graphs": version >= (0, 20),
        "buffer_bytes": buffers.get(config.tp, 0.0),
        "is_hybrid": version >= (0, 9, 1),
        "counts_by_request": version >= (0, 20, 2),
    }


def _block_size(model: ModelConfig, hardware: HardwareConfig, version: Version) -> int:
    """Tokens of a block: 16; 64 under latent attention (FlashMLA) and 128 on data-centre Blackwell (CUTLASS)."""
    if hardware.is_cpu_only:
        return 128 if version >= (0, 13) else 16
    if isinstance(model.attention, LatentAttention) and version >= (0, 8):
        return 128 if _is_blackwell(hardware) else 64
    return 16


def _batches(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> tuple[int, int]:
    """Tokens and sequences of a step; from 0.10.1 on a defaulted value never exceeds what the other one allows."""
    length = config.max_model_len or model.max_position_embeddings
    if hardware.is_cpu_only:
        ranks = config.tp * config.pp if version >= (0, 10) else 1
        seqs = (128 if version >= (0, 10) else 32) * ranks * (2 if config.offline else 1)
        tokens = 4096 if config.offline else 2048
    else:
        is_big = _is_big(hardware, version)
        seqs = 1024 if is_big or version < (0, 8, 4) else 256
        tokens = (16384 if config.offline else 8192) if is_big else 8192 if config.offline else 2048
        if version >= (0, 28) and hardware.gpu_memory >= _HUGE_GPU:
            tokens = 16384
    if config.chunked_prefill is False:
        tokens = max(length, tokens)
    tokens, seqs = config.max_num_batched_tokens or tokens, config.max_num_seqs or seqs
    if version >= (0, 11, 1) and not config.max_num_batched_tokens:
        tokens = min(seqs * length, tokens)
    if version >= (0, 10, 1) and not config.max_num_seqs:
        seqs = min(seqs, tokens)
    return tokens, seqs


def _is_big(hardware: HardwareConfig, version: Version) -> bool:
    """Whether the version counts the accelerator among the large ones, which get larger default batches."""
    gpu = hardware.gpu.lower()
    if version < (0, 8, 5):
        return "h100" in gpu or "h200" in gpu
    return hardware.gpu_memory >= _BIG_GPU and ("a100" not in gpu or version < (0, 9))


def _is_blackwell(hardware: HardwareConfig) -> bool:
    return (hardware.compute_capability or "").startswith("10.")


def _compilation(config: EngineConfig, version: Version) -> tuple[bool, str | None]:
    """Whether torch.compile runs, and the graph mode where flags or the optimisation level fix one; before 0.10.1 the core overwrites the level."""
    compiles, mode, level = True, config.cudagraph_mode, config.optimization_level
    if level is not None and version >= (0, 10, 1):
        compiles = level > 0
        usual: Any = {0: "none", 1: "piecewise"} if version >= (0, 12) else dict.fromkeys((0, 1, 2), "none")
        mode = mode or usual.get(level)
    return (compiles if config.torch_compile is None else config.torch_compile), mode


# --- graphs -------------------------------------------------------------------------------------------------------------


def _captures_graphs(config: EngineConfig, hardware: HardwareConfig, mode: str | None) -> bool:
    return not config.enforce_eager and not hardware.is_cpu_only and mode != "none"


def _of_mode(mode: str, sizes: tuple[int, ...], seqs: int) -> CaptureCount:
    decode = sum(1 for size in sizes if size <= seqs)
    full = {"full": len(sizes), "piecewise": 0}.get(mode, decode)
    piecewise = len(sizes) if "piecewise" in mode else 0
    return CaptureCount(full + piecewise, full, sizes)


def _estimate_captures(captures: CaptureCount, version: Version) -> int:
    """Two graphs of each mode from 0.18 on, the whole piecewise set and two full ones from 0.29 on."""
    if version < (0, 18) or captures.total == 0:
        return 0
    piecewise = captures.total - captures.full
    return min(2, captures.full) + (piecewise if version >= (0, 29) else min(2, piecewise))


def _v0_sizes(version: Version, seqs: int) -> tuple[int, ...]:
    """1, 2, 4 and multiples of 8 up to max_num_seqs, rounded up; at most 256 before 0.6.0."""
    most = min(seqs if seqs <= 2 else 4 if seqs <= 4 else -(-seqs // 8) * 8, 256 if version < (0, 6) else 8192)
    return tuple(size for size in (1, 2, 4, *range(8, most + 1, 8)) if size <= most)


def _v1_sizes(
    config: EngineConfig, hardware: HardwareConfig, version: Version, tokens: int, seqs: int
) -> tuple[int, ...]:
    if config.capture_sizes is not None:
        return tuple(size for size in _sorted(config.capture_sizes) if size <= tokens or version < (0, 11, 1))
    if version < (0, 11, 1):
        most = config.max_capture_size or (min(2 * seqs, 512) if version >= (0, 10) else 512)
        return tuple(size for size in (1, 2, 4, *range(8, most + 1, 8)) if size <= tokens or version < (0, 8, 5))
    usual = 1024 if _is_blackwell(hardware) and version >= (0, 28) else 512
    most = min(tokens, config.max_capture_size or min(2 * seqs, usual))
    chosen = {size for size in (1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)) if size <= most}
    if version >= (0, 21) and tokens <= most:
        chosen.add(tokens)
    if version >= (0, 31) and seqs <= most:
        chosen.add(seqs)
    return _sorted(chosen)


def _sorted(sizes: set[int] | tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(sizes)))
