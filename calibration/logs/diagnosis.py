"""What a start suffered from, and what helps: the phase that failed or dominates, the line that shows it, remedies with their price.

The remedies are those of the five-stage description of a vLLM start (engine initialisation, weights, memory profiling, KV pool, graph capture), and
what newer versions add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from calibration.logs.startup import Evidence, ParsedStartup
from startup_model.phases import Phase

__all__ = ["DOMINANT_SHARE", "Diagnosis", "Remedy", "diagnose"]

DOMINANT_SHARE = 0.25
"""Share of the start from which a phase is named."""
_FEW_REQUESTS = 2.0
"""Requests of full length that fit at once, below which a pool is called small."""


class Remedy(NamedTuple):
    """Something to do."""

    action: str
    price: str
    """What it costs or presupposes."""


class Diagnosis(NamedTuple):
    """One finding."""

    kind: str
    """A status other than ok, or what the start is bound by: storage_bound, compile_bound ..."""
    summary: str
    seconds: float | None
    share: float | None
    """Of the start, where a part of it is meant."""
    evidence: Evidence | None
    remedies: tuple[Remedy, ...]


_MORE_MEMORY = (
    Remedy("raise --gpu-memory-utilization", "profiles anew; leave room for peaks of activation"),
    Remedy("raise --tensor-parallel-size", "more devices; profiles anew"),
    Remedy("lower --max-model-len", "shorter requests only"),
    Remedy("--kv-cache-dtype fp8", "half the bytes a token; check the quality"),
)
_LOWER_PEAK = (
    Remedy("lower --max-num-batched-tokens", "smaller steps, less throughput"),
    Remedy("lower --max-num-seqs", "fewer requests in a step, less throughput"),
)
_SMALLER_GRAPHS = (
    Remedy(
        "capture fewer batch sizes (--cuda-graph-sizes, --max-cudagraph-capture-size)",
        "larger batches run without a graph",
    ),
    Remedy("lower --max-seq-len-to-capture (V0)", "longer contexts fall back to eager execution"),
    Remedy("--enforce-eager", "no capture at all; decoding and the first token become slower"),
)
_FASTER_STORAGE = (
    Remedy(
        "faster storage for the checkpoint: local NVMe, or a copy in memory (tmpfs, page cache)",
        "another start to verify it",
    ),
    Remedy(
        "a loader that reads while it copies: --load-format runai_streamer or fastsafetensors",
        "another start to verify it; a package more",
    ),
    Remedy("a smaller checkpoint (quantised)", "another model; check the quality"),
)

_FAILURES: Mapping[str, tuple[str, tuple[Remedy, ...]]] = {
    "profiling_failed": (
        "the profile run did not finish: this is not a pool that is too small",
        (
            Remedy("see that nothing else takes or frees memory of the device while the engine starts", "a device of its own"),
            *_LOWER_PEAK,
            Remedy("--num-gpu-blocks-override N to tell apart", "if it starts then, the measured number of blocks was the cause"),
        ),
    ),
    "kv_cache_too_small": ("the profile run finished, but what it left is too small for the KV pool", _MORE_MEMORY),
    "oom": ("the device ran out of memory", (*_LOWER_PEAK, *_SMALLER_GRAPHS[:1], *_MORE_MEMORY[1:3])),
    "load_failed": (
        "the weights could not be loaded",
        (
            Remedy("check the path or name of the model, the token for gated ones, and that the download is whole", "nothing"),
            Remedy("--load-format dummy to tell apart", "if it starts then, the checkpoint is the cause"),
        ),
    ),
    "capture_failed": ("the capture of graphs failed", _SMALLER_GRAPHS),
    "crashed": (
        "the engine ended before it was ready",
        (Remedy("read the first error above the one quoted", "the quoted one may be only its consequence"),),
    ),
}  # fmt: skip
"""Status -> what it means, and remedies."""


class _Bound(NamedTuple):
    kind: str
    phases: tuple[Phase, ...]
    summary: str
    """What takes the time."""
    remedies: tuple[Remedy, ...]


_BOUNDS = (
    _Bound("storage_bound", (Phase.WEIGHT_LOAD,), "reading the weights", _FASTER_STORAGE),
    _Bound(
        "model_init_bound", (Phase.MODEL_INIT,), "building the model, or fetching files that no line times",
        (Remedy("look at the stamps between the lines before and after the shards: downloads, kernels that are built", "nothing"),),
    ),
    _Bound(
        "compile_bound",
        (Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE),
        "torch.compile",
        (
            Remedy("keep the compile cache between starts (mount VLLM_CACHE_ROOT, default ~/.cache/vllm)", "a volume; a new cache for each version and flag"),
            Remedy("-O0, or --enforce-eager which also leaves out the capture", "slower decoding"),
        ),
    ),
    _Bound("capture_bound", (Phase.GRAPH_CAPTURE,), "graph capture", _SMALLER_GRAPHS),
    _Bound(
        "profiling_bound",
        (Phase.MEMORY_PROFILING,),
        "the profile run",
        (
            *_LOWER_PEAK,
            Remedy("--kv-cache-memory-bytes N, which needs no profile run", "the size has to be known and kept up to date"),
            Remedy("ship the kernels' caches (FlashInfer, DeepGEMM, Triton) with the image", "a larger image"),
        ),
    ),
    _Bound(
        "bootstrap_bound",
        (Phase.FRAMEWORK_BOOTSTRAP, Phase.TOKENIZER_LOAD),
        "imports and model inspection",
        (
            Remedy("keep the Python environment on local storage and its byte code compiled", "a larger image layer on each node"),
            Remedy("a processor with a faster single thread", "another node"),
        ),
    ),
    _Bound(
        "spawn_bound",
        (Phase.WORKER_SPAWN,),
        "starting the workers",
        (
            Remedy("fewer ranks on the node, or VLLM_SKIP_P2P_CHECK=1 where the links are known", "a wrong answer about the links shows later"),
            Remedy("start the Ray cluster before the server", "another thing to run"),
        ),
    ),
    _Bound(
        "front_end_bound", (Phase.API_READY, Phase.UNATTRIBUTED), "what no stage of the engine logs",
        (Remedy("look at the stamps around the gap: warm-ups, tokenizer of the front end, health checks", "nothing"),),
    ),
)  # fmt: skip


def diagnose(start: ParsedStartup) -> tuple[Diagnosis, ...]:
    """What a start failed of, or is bound by, heaviest first; never empty for a start with phases.

    A part of at least a quarter of the start is named; where none is, the largest.
    """
    found: list[Diagnosis] = []
    if start.status in _FAILURES:
        summary, remedies = _FAILURES[start.status]
        found.append(Diagnosis(start.status, _with_figures(start, summary), None, None, start.evidence, remedies))
    total = sum(start.phases.values()) + start.facts.get("download_s", 0.0)
    bounds = sorted(_bounds(start, total), key=lambda entry: -(entry.seconds or 0.0))
    heavy = [entry for entry in bounds if (entry.share or 0.0) >= DOMINANT_SHARE]
    found += heavy or bounds[:1]
    concurrency = start.facts.get("max_concurrency_x")
    if start.is_ok and concurrency is not None and concurrency < _FEW_REQUESTS:
        line = start.phase_evidence.get(Phase.KV_CACHE_INIT.value)
        summary = (
            f"the KV pool holds {concurrency:g} requests of full length: more at once are preempted and computed anew"
        )
        found.append(Diagnosis("kv_cache_small", summary, None, None, line, _MORE_MEMORY))
    return tuple(found)


def _bounds(start: ParsedStartup, total: float) -> list[Diagnosis]:
    if total <= 0:
        return []
    entries = []
    download = start.facts.get("download_s", 0.0)
    if download:
        remedies = (
            Remedy(
                "put the weights on a volume or into the image before the start",
                "storage; an update with each new model",
            ),
            Remedy("a mirror of the hub nearby", "another service"),
        )
        entries.append(Diagnosis("download_bound", f"downloading the weights: {download / total:.0%} of the start", download, download / total, None, remedies))  # fmt: skip
    for bound in _BOUNDS:
        seconds = sum(start.phases.get(phase.value, 0.0) for phase in bound.phases)
        if seconds > 0:
            line = next((start.phase_evidence[p.value] for p in bound.phases if p.value in start.phase_evidence), None)
            summary = f"{bound.summary}: {seconds / total:.0%} of the start"
            if bound.kind == "storage_bound":
                summary += _bandwidth(start)
            if bound.kind == "compile_bound" and start.compile_cache == "cold":
                summary += "; nothing came from the compile cache"
            entries.append(Diagnosis(bound.kind, summary, seconds, seconds / total, line, bound.remedies))
    return entries


def _bandwidth(start: ParsedStartup) -> str:
    load, weights = start.phases.get(Phase.WEIGHT_LOAD.value, 0.0), start.facts.get("weights_gib", 0.0)
    if load <= 0.1 or weights <= 0:
        return ""
    return f", {weights:.1f} GiB a rank in {load:.1f} s, {weights / load:.2f} GiB/s"


def _with_figures(start: ParsedStartup, summary: str) -> str:
    needed, available = start.facts.get("kv_needed_gib"), start.facts.get("available_kv_gib")
    if start.status == "kv_cache_too_small" and needed is not None and available is not None:
        summary += f": {needed:g} GiB needed, {available:g} GiB there"
        if "max_model_len_fit" in start.facts:
            summary += f"; {start.facts['max_model_len_fit']:.0f} tokens would fit"
    return summary
