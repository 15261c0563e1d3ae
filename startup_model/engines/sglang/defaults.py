"""What SGLang's versions make of flags that are not given, and how many graphs they capture.

Read from the published source packages, SGLang 0.4.6 to 0.5.23: srt/server_args.py, cuda_graph_runner.py. ``tests/reference/captures.json`` holds lists of graphs
obtained by running that code.
"""

from __future__ import annotations

import math

from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import CaptureCount, Resolved
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.units import GIB
from startup_model.versions import Version, at_version

# First version -> (GPU memory below, in GiB; largest batch with tp < 4; with tp >= 4).
_MAX_BATCH: list[tuple[Version, tuple[tuple[int, int, int], ...]]] = [
    ((0,), ((24, 8, 80),)),
    ((0, 4, 9), ((35, 8, 80),)),
    ((0, 5, 4), ((20, 8, 8), (35, 16, 80), (60, 32, 160), (160, 256, 512), (10**6, 512, 512))),
    ((0, 5, 6), ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512), (10**6, 512, 512))),
    ((0, 5, 16), ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512), (10**6, 512, 512))),
]


def resolve(config: EngineConfig, model: ModelConfig, hardware: HardwareConfig, version: Version) -> Resolved:
    """Every flag with a value."""
    gib = hardware.gpu_memory / GIB
    rows = ((20 if version >= (0, 5, 16) else 35, 2048), (60, 4096), (160, 8192), (math.inf, 16384))
    usual_chunk = next(tokens for below, tokens in rows if gib < below)
    chunk = config.max_num_batched_tokens or usual_chunk
    captures = CaptureCount()
    if not config.enforce_eager and not hardware.is_cpu_only and config.cudagraph_mode != "none":
        sizes = _decode_sizes(config, gib, version)
        prefill = _prefill_graphs(chunk) if version >= (0, 5, 10) and config.pp == 1 else 0
        captures = CaptureCount(len(sizes) + prefill, len(sizes), sizes)
    return config.with_defaults(
        model,
        version,
        config.engine,
        gpu_memory_utilization=_static_share(config, hardware, usual_chunk),
        max_num_batched_tokens=chunk,
        max_num_seqs=256,
        block_size=16 if hardware.is_cpu_only else 1,
        compiles=bool(config.torch_compile) and not config.enforce_eager,
        captures=captures,
        profiles_memory=False,  # the reserve is what mem_fraction_static leaves
        max_pool_bytes=4.0 * GIB if hardware.is_cpu_only else math.inf,
    )


def _static_share(config: EngineConfig, hardware: HardwareConfig, chunk: int) -> float:
    """mem_fraction_static: the share that a reserve for activations and graphs leaves."""
    largest_batch = 256 if hardware.gpu_memory >= 60 * GIB else 32
    reserved_mib = 512 + 1.5 * max(chunk, 2048) + 2 * largest_batch + 128 * config.tp * config.pp
    if hardware.gpu_memory > 60 * GIB:
        reserved_mib = max(reserved_mib, 10240)
    return max(0.05, round(1 - reserved_mib * 2**20 / hardware.gpu_memory, 3))


def _decode_sizes(config: EngineConfig, gib: float, version: Version) -> tuple[int, ...]:
    """Batch sizes of decode graphs: those given, else by version up to the given or usual largest one, or as far as the list goes."""
    if config.capture_sizes is not None:
        return tuple(sorted(set(config.capture_sizes)))
    rows = at_version(_MAX_BATCH, version)
    usual = next((small if config.tp < 4 else large for below, small, large in rows if gib < below), None)
    most = config.max_capture_size or usual
    if version >= (0, 5, 4):
        most = most or 512
        sizes = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 497, 16), *range(512, most + 1, 32)}
        sizes = {size for size in sizes if size <= most} | ({most} if version >= (0, 5, 10) else set())
        return tuple(sorted(sizes))
    sizes = {1, 2, 4, 8, *range(16, 161, 8)}
    if gib > (96 if version < (0, 4, 9) else 90):
        sizes |= set(range(160, 257, 8))
    if gib > 156 and version >= (0, 4, 9):
        sizes |= set(range(256, 513, 16))
    if most is not None:
        sizes = {size for size in sizes if size <= most} | set(range(max(sizes) + 16, most + 1, 16))
    return tuple(sorted(sizes))


def _prefill_graphs(chunk: int) -> int:
    """Piecewise prefill graphs up to ``chunk`` tokens: so many tokens apart, from each of these on."""
    steps = ((4, 4), (48, 16), (288, 32), (576, 64), (1280, 256), (4608, 512))
    ends = (33, 257, 513, 1025, 4097, chunk + 1)
    return sum(len(range(first, min(end, chunk + 1), step)) for (first, step), end in zip(steps, ends, strict=True))
