"""How many device graphs an engine captures: its list of batch sizes, by version and flags.

The rules were read from the engines' published source packages (vLLM 0.3.1 to 0.33.0: worker/model_runner.py, config,
v1/worker/gpu_model_runner.py, v1/cudagraph_dispatcher.py; SGLang 0.4.6 to 0.5.23: cuda_graph_runner.py,
server_args.py). ``tests/reference/captures.json`` holds lists obtained by running that code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from startup_model.engines.engine import CaptureCount
from startup_model.units import GIB
from startup_model.versions import Version, at_version

NO_CAPTURES = CaptureCount()


class CaptureRequest(NamedTuple):
    """What the number of graphs depends on."""

    engine: str
    generation: str
    version: Version
    max_num_seqs: int
    max_num_batched_tokens: int
    tp: int
    pp: int
    gpu_memory: float
    compute_capability: str | None
    capture_sizes: tuple[int, ...] | None
    max_capture_size: int | None
    mode: str | None


def count_captures(request: CaptureRequest) -> CaptureCount:
    """Graphs that a start captures with these flags, eager execution aside."""
    if request.mode == "none":
        return CaptureCount(0, 0, ())
    if request.generation == "sglang":
        return _sglang(request)
    if request.generation == "v0":
        sizes = _v0_sizes(request)
        total = len(sizes) * (request.pp if request.version >= (0, 5, 1) else 1)  # once per virtual engine
        return CaptureCount(total, total, sizes)
    sizes = _v1_sizes(request)
    decode = sum(1 for size in sizes if size <= request.max_num_seqs)
    default_mode = "full_and_piecewise" if request.version >= (0, 11) else "piecewise"
    full, piecewise = {
        "full_and_piecewise": (decode, len(sizes)),
        "piecewise": (0, len(sizes)),
        "full": (len(sizes), 0),
        "full_decode_only": (decode, 0),
    }[request.mode or default_mode]
    return CaptureCount(full + piecewise, full, sizes)


# --- vLLM ---------------------------------------------------------------------------------------------------------------


def _v0_sizes(request: CaptureRequest) -> tuple[int, ...]:
    """1, 2, 4 and multiples of 8 up to max_num_seqs, rounded up; at most 256 before 0.6.0."""
    if request.capture_sizes is not None:
        return _sorted(request.capture_sizes)
    largest = 256 if request.version < (0, 6) else 8192
    seqs = request.max_num_seqs
    cap = min(seqs if seqs <= 2 else 4 if seqs <= 4 else -(-seqs // 8) * 8, largest)
    return tuple(size for size in (1, 2, 4, *range(8, cap + 1, 8)) if size <= cap)


def _v1_sizes(request: CaptureRequest) -> tuple[int, ...]:
    version, tokens, seqs = request.version, request.max_num_batched_tokens, request.max_num_seqs
    drops_large = version >= (0, 11, 1)
    if request.capture_sizes is not None:
        return tuple(size for size in _sorted(request.capture_sizes) if size <= tokens or not drops_large)
    if version < (0, 11, 1):
        cap = request.max_capture_size or (min(2 * seqs, 512) if version >= (0, 10) else 512)
        sizes: Iterable[int] = (1, 2, 4, *range(8, cap + 1, 8))
        return tuple(size for size in sizes if size <= tokens or version < (0, 8, 5))
    blackwell = (request.compute_capability or "").startswith("10.") and version >= (0, 28)
    cap = min(tokens, request.max_capture_size or min(2 * seqs, 1024 if blackwell else 512))
    chosen = {*(size for size in (1, 2, 4) if size <= cap), *range(8, min(cap + 1, 256), 8), *range(256, cap + 1, 16)}
    if version >= (0, 21) and tokens <= cap:
        chosen.add(tokens)
    if version >= (0, 31) and seqs <= cap:
        chosen.add(seqs)
    return _sorted(chosen)


# --- SGLang -------------------------------------------------------------------------------------------------------------

_SGLANG_MAX_BATCH: list[tuple[Version, tuple[tuple[int, int, int], ...]]] = [
    ((0,), ((24, 8, 80),)),
    ((0, 4, 9), ((35, 8, 80),)),
    ((0, 5, 4), ((20, 8, 8), (35, 16, 80), (60, 32, 160), (160, 256, 512), (10**6, 512, 512))),
    ((0, 5, 6), ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512), (10**6, 512, 512))),
    ((0, 5, 16), ((20, 8, 8), (35, 48, 160), (60, 32, 160), (160, 256, 512), (10**6, 512, 512))),
]
"""First version -> (GPU memory below, in GiB; largest batch with tp < 4; with tp >= 4)."""


def _sglang(request: CaptureRequest) -> CaptureCount:
    version, gib = request.version, request.gpu_memory / GIB
    if request.capture_sizes is not None:
        sizes = _sorted(request.capture_sizes)
    else:
        rows = at_version(_SGLANG_MAX_BATCH, version)
        by_memory = next((small if request.tp < 4 else large for below, small, large in rows if gib < below), None)
        cap = request.max_capture_size or by_memory
        sizes = _sglang_sizes(version, gib, cap)
    prefill = _sglang_prefill_graphs(request.max_num_batched_tokens) if version >= (0, 5, 10) and request.pp == 1 else 0
    return CaptureCount(len(sizes) + prefill, len(sizes), sizes)


def _sglang_sizes(version: Version, gib: float, cap: int | None) -> tuple[int, ...]:
    """Decode batch sizes; ``cap`` None: as far as the list goes."""
    if version >= (0, 5, 4):
        largest = cap or 512
        sizes = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 497, 16), *range(512, largest + 1, 32)}
        kept = {size for size in sizes if size <= largest}
        return _sorted(kept | ({largest} if version >= (0, 5, 10) else set()))
    sizes = {1, 2, 4, 8, *range(16, 161, 8)}
    if gib > (96 if version < (0, 4, 9) else 90):
        sizes |= set(range(160, 257, 8))
    if gib > 156 and version >= (0, 4, 9):
        sizes |= set(range(256, 513, 16))
    if cap is not None:
        sizes = {size for size in sizes if size <= cap} | set(range(max(sizes) + 16, cap + 1, 16))
    return _sorted(sizes)


def _sglang_prefill_graphs(chunk: int) -> int:
    """Piecewise prefill graphs up to ``chunk`` tokens."""
    steps = (
        range(4, 33, 4),
        range(48, 257, 16),
        range(288, 513, 32),
        range(576, 1025, 64),
        range(1280, 4097, 256),
        range(4608, chunk + 1, 512),
    )
    return sum(1 for row in steps for size in row if size <= chunk)


def _sorted(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(sizes)))
