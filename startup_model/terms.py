"""The closed-form terms: one pure function for each phase of a start-up.

Positional arguments are physical inputs, numbers or arrays that broadcast. Keyword-only arguments are the coefficients;
their annotation holds unit, bounds and a first guess, and nothing else declares a coefficient. ``predict``, ``sweep``,
``explain`` and the calibration all call these functions.

Glossary of inputs (each a number or an array)
    slowdown [1]                 single-thread time of this host relative to the profile's host
    workers [1]                  worker processes on this node, TP x PP x DP / nodes
    collectives [1]              1 when ranks talk to each other (world size > 1), else 0
    layers [1]                   decoder layers that one rank builds; the ``*_layers`` weigh layers by their kind
    tokenizer_bytes [B]          size of tokenizer.json
    storage_bytes [B]            bytes read from storage on this node (0 when all are in the page cache)
    rank_bytes [B]               bytes copied to one device
    files [1]                    files of the checkpoint
    passes [1]                   passes over the bytes in host memory on their way
    *_bandwidth [B/s]            rates of storage, of copies from the page cache, of the link and of device memory
    overlap [1]                  0: copying waits for reading; 1: both at the same time
    active_bytes [B]             weights that the forward pass of one token reads on one rank
    captures [1]                 graphs that are captured
    profile_flop [FLOP]          work of the profile run on one rank
    device_flops [FLOP/s]        dense rate of one accelerator
    pool_bytes [B]               the KV pool of one rank
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from startup_model.formula import Expression, Values, let, maximum, minimum

__all__ = ["TERMS", "Coefficient", "Term"]


@dataclass(frozen=True)
class Coefficient:
    """What an annotation says about a coefficient: its unit, a first guess, and bounds."""

    unit: str
    guess: float
    lower: float = 0.0
    upper: float = float("inf")


@dataclass(frozen=True, eq=False)
class Term:
    """A term function with the names of its inputs and the facts about its coefficients."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    coefficients: Mapping[str, Coefficient]
    set_name: str
    """Set of coefficients that it reads: its own, or that of the term whose coefficients it shares."""

    def formula(self, numbers: Mapping[str, float] | None = None) -> str:
        """The right-hand side as text, with names, or with ``numbers`` (inputs and coefficients) in their place."""
        names = (*self.inputs, *self.coefficients)
        symbols = {name: Expression(name if numbers is None else _digits(numbers[name])) for name in names}
        result = self.function(
            *(symbols[name] for name in self.inputs), **{name: symbols[name] for name in self.coefficients}
        )
        return str(result)


TERMS: dict[str, Term] = {}
"""All terms by name; filled by the decorator below."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _term(shares: str | None = None) -> Callable[[_Function], _Function]:
    """Register a function as a term; ``shares``: it reads the coefficients of the term of that name."""

    def register(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters.values()
        hints = get_type_hints(function, include_extras=True)
        coefficients = {
            p.name: next(item for item in get_args(hints[p.name]) if isinstance(item, Coefficient))
            for p in parameters
            if p.kind is p.KEYWORD_ONLY
        }
        inputs = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        name = function.__name__
        TERMS[name] = Term(name, function, inputs, coefficients, shares or name)
        return function

    return register


def _digits(value: float) -> str:
    """A number with the digits that a reader needs to check the sum by hand."""
    magnitude = abs(value)
    if value == int(value) and magnitude < 1e7:
        return f"{int(value)}"
    return f"{value:.5g}"


_Seconds = Annotated[float, Coefficient("s", 1.0)]
_SecondsPerLayer = Annotated[float, Coefficient("s/layer", 0.1)]
_SecondsPerByte = Annotated[float, Coefficient("s/B", 1e-8)]
_SecondsPerFile = Annotated[float, Coefficient("s/file", 0.0)]
_SecondsPerWorker = Annotated[float, Coefficient("s/worker", 1.0)]
_Ratio = Annotated[float, Coefficient("1", 1.0)]


# --- segments before the engine -----------------------------------------------------------------------------------------


@_term()
def provision(provision_seconds: Values) -> Values:
    """A node is ordered and joins the cluster.

    Equation: t = provision_seconds

    provision_seconds [s]: as the cloud takes it, 45 to 410 s for GPU nodes.
    Source: public measurements of node pools; given by the user where known.
    """
    return provision_seconds


@_term()
def image_pull(image_bytes: Values, image_pull_bandwidth: Values) -> Values:
    """The container image is fetched and unpacked.

    Equation: t = image_bytes / image_pull_bandwidth

    image_bytes [B]: compressed size; image_pull_bandwidth [B/s]: pulling and unpacking together.
    Source: 0.02-0.1 GB/s plainly, 0.3-0.75 GB/s with lazy or parallel pulling (public measurements).
    """
    return image_bytes / image_pull_bandwidth


@_term()
def container_start(container_start_seconds: Values) -> Values:
    """The container runtime starts the first process.

    Equation: t = container_start_seconds

    container_start_seconds [s]: one to a few seconds.
    Source: given by the user where known.
    """
    return container_start_seconds


# --- the engine ---------------------------------------------------------------------------------------------------------


@_term()
def framework_bootstrap(slowdown: Values, *, base_seconds: _Seconds) -> Values:
    """Python imports, platform detection, inspection of the model class.

    Equation: t = base_seconds × slowdown

    slowdown [1]: single-thread time relative to the profile's host; base_seconds [s]: on that host.
    Source: constant over 11 models on each of three hosts within 1-2 % (arXiv 2606.07362).
    """
    return base_seconds * slowdown


@_term()
def worker_spawn(
    workers: Values,
    collectives: Values,
    slowdown: Values,
    *,
    base_seconds: _Seconds,
    seconds_per_worker: _SecondsPerWorker,
    collective_seconds: _Seconds,
) -> Values:
    """Worker processes start, open their device and join their process groups.

    Equation: t = (base_seconds + seconds_per_worker × (workers - 1)) × slowdown + collective_seconds × collectives

    workers [1]: TP x PP x DP processes on this node; collectives [1]: 1 when the world size exceeds 1; slowdown [1].
    base_seconds [s]: the first worker; seconds_per_worker [s/worker]: each further one; collective_seconds [s]: set-up
    of process groups.
    Source: one worker in arXiv 2606.07362; TP=2 adds about 14.7 s that no stage logs.
    """
    return (base_seconds + seconds_per_worker * (workers - 1)) * slowdown + collective_seconds * collectives


@_term()
def tokenizer_load(
    tokenizer_bytes: Values, slowdown: Values, *, base_seconds: _Seconds, seconds_per_byte: _SecondsPerByte
) -> Values:
    """The tokenizer is read and built.

    Equation: t = (base_seconds + seconds_per_byte × tokenizer_bytes) × slowdown

    tokenizer_bytes [B]: size of tokenizer.json; slowdown [1]; base_seconds [s]; seconds_per_byte [s/B].
    Source: 0.02 s + 0.035 s/MB on an EPYC 9354 (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_byte * tokenizer_bytes) * slowdown


@_term()
def model_init(
    layers: Values, slowdown: Values, *, base_seconds: _Seconds, seconds_per_layer: _SecondsPerLayer
) -> Values:
    """The modules are built, still without weights.

    Equation: t = (base_seconds + seconds_per_layer × layers) × slowdown

    layers [1]: layers on one rank; slowdown [1]; base_seconds [s]; seconds_per_layer [s/layer].
    Source: 0.1-0.15 s for 24-48 layers (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * layers) * slowdown


@_term()
def weight_load(
    storage_bytes: Values,
    rank_bytes: Values,
    files: Values,
    passes: Values,
    overlap: Values,
    storage_bandwidth: Values,
    page_cache_bandwidth: Values,
    host_to_device_bandwidth: Values,
    *,
    base_seconds: _Seconds,
    storage_ratio: _Ratio,
    copy_ratio: _Ratio,
    seconds_per_file: _SecondsPerFile,
) -> Values:
    """The checkpoint is read and copied to the devices.

    Equation: t = base_seconds + seconds_per_file × files + read + copy - overlap × min(read, copy), with
    read = storage_ratio × storage_bytes / storage_bandwidth, copy = copy_ratio × passes × rank_bytes / min(page_cache_bandwidth,
    host_to_device_bandwidth)

    storage_bytes [B]: read from storage on this node, 0 when all are in the page cache; rank_bytes [B]: copied to one
    device; files [1]; passes [1]: over the bytes in host memory;
    overlap [1]: 0 one after the other, 1 at the same time; storage_bandwidth, page_cache_bandwidth,
    host_to_device_bandwidth [B/s].
    base_seconds [s]; storage_ratio, copy_ratio [1]: time relative to the stated bandwidths; seconds_per_file [s/file].
    Source: a line in exact checkpoint bytes with R2 0.9997, 0.545 GB/s from a cold SSD and 8.3 GB/s from the page cache
    (arXiv 2606.07362).
    """
    read = let("read", storage_ratio * storage_bytes / storage_bandwidth)
    copy = let("copy", copy_ratio * passes * rank_bytes / minimum(page_cache_bandwidth, host_to_device_bandwidth))
    return base_seconds + seconds_per_file * files + read + copy - overlap * minimum(read, copy)


@_term()
def graph_trace(
    trace_layers: Values, slowdown: Values, *, base_seconds: _Seconds, seconds_per_layer: _SecondsPerLayer
) -> Values:
    """Dynamo traces the bytecode of the forward pass.

    Equation: t = (base_seconds + seconds_per_layer × trace_layers) × slowdown

    trace_layers [1]: layers weighted by kind; slowdown [1]; base_seconds [s]; seconds_per_layer [s/layer].
    Source: 0.18 s + 0.146 s/layer on an EPYC 9354 (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * trace_layers) * slowdown


@_term()
def graph_compile(
    compile_layers: Values, slowdown: Values, *, base_seconds: _Seconds, seconds_per_layer: _SecondsPerLayer
) -> Values:
    """Inductor compiles the graphs (cold cache), or loads the artefacts of an earlier start (warm cache).

    Equation: t = (base_seconds + seconds_per_layer × compile_layers) × slowdown

    compile_layers [1]: layers weighted by kind; slowdown [1]; base_seconds [s]; seconds_per_layer [s/layer]: a set of
    its own for each cache state.
    Source: 0.12 s/layer cached, 0.9 s + 0.41 s/layer cold, on an EPYC 9354 (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * compile_layers) * slowdown


@_term()
def memory_profiling(
    profiling_layers: Values,
    profile_flop: Values,
    device_flops: Values,
    slowdown: Values,
    *,
    base_seconds: _Seconds,
    seconds_per_layer: _SecondsPerLayer,
    flop_ratio: _Ratio,
) -> Values:
    """A forward pass of the largest batch measures the peak of device memory.

    Equation: t = (base_seconds + seconds_per_layer × profiling_layers) × slowdown + flop_ratio × profile_flop /
    device_flops

    profiling_layers [1]: layers weighted by kind; profile_flop [FLOP]: 2 x active parameters x batched tokens of one
    rank; device_flops [FLOP/s]; slowdown [1]. base_seconds [s]; seconds_per_layer [s/layer]; flop_ratio [1]: time
    relative to the dense peak.
    Source: 1.2-2.7 s for 24-48 layers (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * profiling_layers) * slowdown + flop_ratio * profile_flop / device_flops


@_term(shares="graph_capture")
def graph_memory_estimate(
    estimate_captures: Values,
    capture_layers: Values,
    active_bytes: Values,
    memory_bandwidth: Values,
    slowdown: Values,
    *,
    seconds_per_layer: _SecondsPerLayer,
    weight_ratio: _Ratio,
) -> Values:
    """A few graphs are captured and thrown away to learn how much memory they take (vLLM from 0.18 on).

    Equation: t = estimate_captures × (seconds_per_layer × capture_layers × slowdown + weight_ratio × active_bytes /
    memory_bandwidth)

    estimate_captures [1]; capture_layers [1]; active_bytes [B]; memory_bandwidth [B/s]; slowdown [1]; seconds_per_layer
    [s/layer] and
    weight_ratio [1] are those of graph_capture.
    Source: vLLM's gpu_worker.py (profile_cudagraph_memory): two graphs of each mode; from 0.29 the whole piecewise set
    and two full graphs.
    """
    return estimate_captures * (
        seconds_per_layer * capture_layers * slowdown + weight_ratio * active_bytes / memory_bandwidth
    )


@_term()
def kv_cache_init(
    pool_bytes: Values, memory_bandwidth: Values, slowdown: Values, *, base_seconds: _Seconds, fill_ratio: _Ratio
) -> Values:
    """The pool of KV blocks is allocated and zeroed.

    Equation: t = base_seconds × slowdown + fill_ratio × pool_bytes / memory_bandwidth

    pool_bytes [B]: of one rank; memory_bandwidth [B/s]; slowdown [1]; base_seconds [s]; fill_ratio [1]: passes over the
    pool.
    Source: one pass of zeros at memory bandwidth; engines log no stage of their own for it.
    """
    return base_seconds * slowdown + fill_ratio * pool_bytes / memory_bandwidth


@_term()
def graph_capture(
    captures: Values,
    capture_layers: Values,
    active_bytes: Values,
    memory_bandwidth: Values,
    slowdown: Values,
    *,
    base_seconds: _Seconds,
    seconds_per_layer: _SecondsPerLayer,
    weight_ratio: _Ratio,
) -> Values:
    """Device graphs are captured, one per batch size and mode.

    Equation: t = base_seconds × slowdown + captures × (seconds_per_layer × capture_layers × slowdown + weight_ratio ×
    active_bytes / memory_bandwidth)

    captures [1]: known from version and flags; capture_layers [1]: layers weighted by kind; active_bytes [B];
    memory_bandwidth [B/s]; slowdown [1].
    base_seconds [s]; seconds_per_layer [s/layer]: of one graph; weight_ratio [1]: passes over the weights for one
    graph.
    Source: linear in captures over a sweep of 1 to 60 (arXiv 2606.07362).
    """
    one = seconds_per_layer * capture_layers * slowdown + weight_ratio * active_bytes / memory_bandwidth
    return base_seconds * slowdown + captures * one


@_term()
def api_ready(slowdown: Values, *, base_seconds: _Seconds) -> Values:
    """The HTTP server binds its port and registers its routes.

    Equation: t = base_seconds × slowdown

    slowdown [1]; base_seconds [s].
    Source: tenths of a second in start-up logs (first route line to "Application startup complete").
    """
    return base_seconds * slowdown


@_term()
def unattributed(
    tokenizer_bytes: Values, slowdown: Values, *, base_seconds: _Seconds, seconds_per_byte: _SecondsPerByte
) -> Values:
    """Wall time that no stage logs: process joins, hand-shakes, and the tokenizer, which the front end loads once more.

    Equation: t = (base_seconds + seconds_per_byte × tokenizer_bytes) × slowdown

    tokenizer_bytes [B]; slowdown [1]; base_seconds [s]; seconds_per_byte [s/B].
    Source: wall time minus the sum of stages is 0.9 s for a 1.8 MB and 1.5 s for a 17.5 MB tokenizer (arXiv
    2606.07362).
    """
    return (base_seconds + seconds_per_byte * tokenizer_bytes) * slowdown


@_term()
def first_request(
    prompt_flop: Values,
    device_flops: Values,
    active_bytes: Values,
    memory_bandwidth: Values,
    slowdown: Values,
    *,
    base_seconds: _Seconds,
    flop_ratio: _Ratio,
    weight_ratio: _Ratio,
) -> Values:
    """The first request is served: prefill of its prompt and one decode step.

    Equation: t = base_seconds × slowdown + maximum(flop_ratio × prompt_flop / device_flops, weight_ratio × active_bytes
    / memory_bandwidth)

    prompt_flop [FLOP]: 2 x active parameters x prompt tokens of one rank; device_flops [FLOP/s]; active_bytes [B];
    memory_bandwidth [B/s]; slowdown [1]. base_seconds [s]: lazy initialisation; flop_ratio, weight_ratio [1]: time
    relative to the peaks.
    Source: roofline of one forward pass.
    """
    compute = flop_ratio * prompt_flop / device_flops
    return base_seconds * slowdown + maximum(compute, weight_ratio * active_bytes / memory_bandwidth)
