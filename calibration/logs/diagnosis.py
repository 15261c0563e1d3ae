"""What a start suffered from, and what helps: the phase that failed or dominates, the line that shows it, remedies with their price.

The remedies are those of the five-stage description of a vLLM start (engine initialisation, weights, memory profiling, KV pool, graph capture), and
what newer versions and other engines add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
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
    engine: str = ""
    """Engine that has the flag; empty: any."""
    generation: str = ""
    several_ranks: bool = False
    """Only where more than one rank was started."""


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
    Remedy("raise --gpu-memory-utilization", "profiles anew; leave room for peaks of activation", "vllm"),
    Remedy("raise --tensor-parallel-size", "more devices; profiles anew", "vllm"),
    Remedy("lower --max-model-len", "shorter requests only", "vllm"),
    Remedy("--kv-cache-dtype fp8", "half the bytes a token; check the quality", "vllm"),
    Remedy("raise --mem-fraction-static", "less room for activations and graphs", "sglang"),
    Remedy("raise --tp-size, or lower --context-length", "more devices, or shorter requests only", "sglang"),
    Remedy("lower --max-total-tokens or --max-batch-prefill-tokens", "smaller batches", "tgi"),
    Remedy("lower --ctx-size, or --cache-type-k/-v q8_0", "shorter requests, or a coarser cache", "llama.cpp"),
)
_LOWER_PEAK = (
    Remedy("lower --max-num-batched-tokens", "smaller steps, less throughput", "vllm"),
    Remedy("lower --max-num-seqs", "fewer requests in a step, less throughput", "vllm"),
    Remedy("lower --chunked-prefill-size or --max-running-requests", "smaller steps, less throughput", "sglang"),
    Remedy("lower --max-batch-prefill-tokens", "smaller steps, less throughput", "tgi"),
)
_SMALLER_GRAPHS = (
    Remedy(
        "capture fewer batch sizes (--cuda-graph-sizes, --max-cudagraph-capture-size)",
        "larger batches run without a graph",
        "vllm",
        "v1",
    ),
    Remedy("lower --max-seq-len-to-capture", "longer contexts fall back to eager execution", "vllm", "v0"),
    Remedy("--enforce-eager", "no capture at all; decoding and the first token become slower", "vllm"),
    Remedy("lower --cuda-graph-max-bs", "larger batches run without a graph", "sglang"),
    Remedy("--disable-cuda-graph", "no capture at all; decoding becomes slower", "sglang"),
    Remedy("--cuda-graphs with fewer sizes, or 0", "other sizes run without a graph", "tgi"),
)
_FASTER_STORAGE = (
    Remedy(
        "faster storage for the checkpoint: local NVMe, or a copy in memory (tmpfs, page cache)",
        "another start to verify it",
    ),
    Remedy(
        "a loader that reads while it copies: --load-format runai_streamer or fastsafetensors",
        "another start to verify it; a package more",
        "vllm",
        "v1",
    ),
    Remedy("a smaller checkpoint (quantised)", "another model; check the quality"),
)

_REPRODUCIBLE = Remedy(
    "fix --seed and every flag that touches memory, to compare starts", "the record has to name them all", "vllm"
)
_RIGHT_SIZE = Remedy(
    "see that the GiB loaded are those meant: parameters × bytes of the dtype or quantisation", "nothing"
)

_FAILURES: Mapping[str, tuple[str, tuple[Remedy, ...]]] = {
    "profiling_failed": (
        "the profile run did not finish: this is not a pool that is too small",
        (
            Remedy("see that nothing else takes or frees memory of the device while the engine starts", "a device of its own"),
            *_LOWER_PEAK,
            Remedy("--num-gpu-blocks-override N to tell apart", "another start; if it comes up, the measured number of blocks was the cause", "vllm"),
        ),
    ),
    "kv_cache_too_small": (
        "the profile run finished, but what it left is too small for the KV pool",
        (
            *_MORE_MEMORY,
            *_LOWER_PEAK,
            *_SMALLER_GRAPHS,
            Remedy("--num-gpu-blocks-override N to tell apart", "another start; if it fails all the same, the number of blocks is not the cause", "vllm"),
            _REPRODUCIBLE,
        ),
    ),
    "oom": ("the device ran out of memory", (*_LOWER_PEAK, *_SMALLER_GRAPHS, *_MORE_MEMORY[1:3], *_MORE_MEMORY[5:])),
    "load_failed": (
        "the weights could not be loaded",
        (
            Remedy("check the path or name of the model, the token for gated ones, and that the download is whole", "nothing"),
            Remedy("--load-format dummy to tell apart", "another start; if it comes up, the checkpoint is the cause", "vllm"),
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


_NOT_TOLD_APART = "not_told_apart"
_BOUNDS = (
    _Bound("storage_bound", (Phase.WEIGHT_LOAD,), "reading the weights", (*_FASTER_STORAGE, _RIGHT_SIZE)),
    _Bound(
        "model_init_bound", (Phase.MODEL_INIT,), "building the model, or fetching files that no line times",
        (Remedy("look at the stamps between the lines before and after the shards: downloads, kernels that are built", "nothing"),),
    ),
    _Bound(
        "compile_bound",
        (Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE),
        "compilation",
        (
            Remedy("keep the compile cache between starts (mount VLLM_CACHE_ROOT, default ~/.cache/vllm)", "a volume; a new cache for each version and flag", "vllm"),
            Remedy("-O0, or --enforce-eager which also leaves out the capture", "slower decoding", "vllm"),
        ),
    ),
    _Bound("capture_bound", (Phase.GRAPH_CAPTURE,), "graph capture", _SMALLER_GRAPHS),
    _Bound(
        "profiling_bound",
        (Phase.MEMORY_PROFILING, Phase.KV_CACHE_INIT),
        "the profile run and the pool",
        (
            *_LOWER_PEAK,
            Remedy("--kv-cache-memory-bytes N, which needs no profile run", "the size has to be known and kept up to date", "vllm", "v1"),
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
            Remedy("fewer ranks on the node, or VLLM_SKIP_P2P_CHECK=1 where the links are known", "a wrong answer about the links shows later", "vllm", several_ranks=True),
            Remedy("start the Ray cluster before the server", "another thing to run", "vllm", several_ranks=True),
            Remedy("a processor with a faster single thread: each worker imports the framework anew", "another node"),
        ),
    ),
    _Bound(
        "front_end_bound", (Phase.API_READY,), "the front end, once the engine is up",
        (Remedy("look at its lines: warm-ups of chat templates and processors, adapters, a second tokenizer", "nothing"),),
    ),
    _Bound(
        "unlogged", (Phase.UNATTRIBUTED,), "what no stage of the engine logs",
        (Remedy("look at the stamps around the longest gap: kernels that are tuned or built, warm-ups, joins of processes", "nothing"),),
    ),
    _Bound(
        _NOT_TOLD_APART, (), "phases that no line parts",
        (Remedy("start once with --load-format dummy and once with --enforce-eager, and compare (parse --against)", "two starts", "vllm"),
         Remedy("a newer version logs more of its phases", "an update")),
    ),
)  # fmt: skip


def diagnose(start: ParsedStartup) -> tuple[Diagnosis, ...]:
    """What a start failed of, or is bound by, heaviest first; empty only when the log gives no time at all.

    Of a start that failed, the failure. Else each part of at least a quarter of the start, or of what the log shows of it; where none is so large, the
    largest.
    """
    if start.status in _FAILURES:
        summary, remedies = _FAILURES[start.status]
        return (
            Diagnosis(
                start.status, _with_figures(start, summary), None, None, start.evidence, _fitting(start, remedies)
            ),
        )
    total = sum(start.phases.values()) + start.facts.get("download_s", 0.0)
    bounds = sorted(_bounds(start, total), key=lambda entry: -(entry.seconds or 0.0))
    found = [entry for entry in bounds if (entry.share or 0.0) >= DOMINANT_SHARE] or bounds[:1]
    concurrency = start.facts.get("max_concurrency_x")
    if start.is_ok and concurrency is not None and concurrency < _FEW_REQUESTS:
        line = start.phase_evidence.get(Phase.KV_CACHE_INIT.value)
        summary = (
            f"the KV pool holds {concurrency:g} request(s) of full length: more at once are preempted and computed anew"
        )
        remedies = _fitting(start, (*_MORE_MEMORY, *_SMALLER_GRAPHS, *_LOWER_PEAK))
        found.append(Diagnosis("kv_cache_small", summary, None, None, line, remedies))
    return tuple(found)


def _fitting(start: ParsedStartup, remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """The remedies that this engine has, for its generation and its ranks."""
    engine = (
        "vllm"
        if start.engine == "vllm"
        else start.engine.removeprefix("vllm-")
        if start.engine != "vllm-ascend"
        else "vllm"
    )
    ranks = (start.tp or 1) * (start.pp or 1) * (start.dp or 1)
    return tuple(
        remedy
        for remedy in remedies
        if remedy.engine in ("", engine)
        and remedy.generation in ("", start.engine_generation or remedy.generation)
        and (ranks > 1 or not remedy.several_ranks)
    )


def _bounds(start: ParsedStartup, total: float) -> list[Diagnosis]:
    """Every part of the start, with its share."""
    if total <= 0:
        return []
    whole = "the start" if start.wall_s is not None else "what the log shows of the start"
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
        summary = f"downloading the weights: {download / total:.0%} of {whole}"
        entries.append(Diagnosis("download_bound", summary, download, download / total, start.phase_evidence.get("download"), remedies))  # fmt: skip
    apart = {name: seconds for name, seconds in start.phases.items() if not _is_mixed(start, name)}
    mixed = {name: seconds for name, seconds in start.phases.items() if name not in apart}
    for bound in _BOUNDS:
        parts = (
            mixed
            if bound.kind == _NOT_TOLD_APART
            else {phase: apart[phase] for phase in bound.phases if phase in apart}
        )
        seconds = sum(parts.values())
        if seconds > 0:
            names = [name for part in parts for name in start.joint.get(part, (part,))]
            shown = sorted(names, key=lambda name: -start.phases.get(name, 0.0))
            line = next((start.phase_evidence[name] for name in shown if name in start.phase_evidence), None)
            what = " + ".join(names) if bound.kind == _NOT_TOLD_APART else bound.summary
            summary = f"{what}: {seconds / total:.0%} of {whole}{_detail(start, bound.kind)}"
            entries.append(
                Diagnosis(bound.kind, summary, seconds, seconds / total, line, _fitting(start, bound.remedies))
            )
    return entries


def _is_mixed(start: ParsedStartup, name: str) -> bool:
    """Whether the seconds of a phase hold others that are bound by something else."""
    together = start.joint.get(name, ())
    if {"weight_load", "model_init", "kv_cache_init"} >= set(together):
        return False
    return len({bound.kind for bound in _BOUNDS for phase in together if phase in bound.phases}) > 1 and not (
        {"framework_bootstrap", "worker_spawn", "tokenizer_load", "api_ready"} >= set(together)
    )


def _detail(start: ParsedStartup, kind: str) -> str:
    if kind == "storage_bound":
        return _bandwidth(start)
    if kind == "compile_bound" and start.compile_cache == "cold":
        return "; nothing came from the compile cache"
    if kind == "unlogged":
        return _longest_gap(start)
    return ""


def _bandwidth(start: ParsedStartup) -> str:
    load, weights = start.phases.get(Phase.WEIGHT_LOAD.value, 0.0), start.facts.get("weights_gib", 0.0)
    if load <= 0.1 or weights <= 0 or Phase.WEIGHT_LOAD.value in start.joint:
        return ""
    parts = len(start.facts.get("load_weights_parts_s", ())) or 1
    return f", {weights:.1f} GiB a rank in {load:.1f} s{f' ({parts} models)' if parts > 1 else ''}, {weights / load:.2f} GiB/s"


def _longest_gap(start: ParsedStartup) -> str:
    """Between which events most of it lies."""
    gaps = [(later.elapsed_s - earlier.elapsed_s, earlier, later) for earlier, later in pairwise(start.moments)]
    if not gaps:
        return ""
    seconds, earlier, later = max(gaps, key=lambda gap: gap[0])
    return f"; the longest gap, {seconds:.0f} s, lies between {earlier.event} (line {earlier.line_number}) and {later.event} (line {later.line_number})"


def _with_figures(start: ParsedStartup, summary: str) -> str:
    needed, available = start.facts.get("kv_needed_gib"), start.facts.get("available_kv_gib")
    if start.status == "kv_cache_too_small" and needed is not None and available is not None:
        summary += f": {needed:g} GiB needed, {available:g} GiB there"
        if "max_model_len_fit" in start.facts:
            summary += f"; {start.facts['max_model_len_fit']:.0f} tokens would fit"
    return summary
