"""The phases of a start-up: for each one closed formula, and beside it all that there is to say about the phase.

The order of this file is the order of a start. A phase is a decorated function: its groups in the roll-ups, the engines that
have it, the flags that switch it off, the cache that it reads, the facts of logs that are its duration, and how it is drawn
stand in the decorator; nothing else lists phases. Positional arguments are physical inputs, numbers or arrays that
broadcast. Keyword-only arguments are the coefficients; their annotation holds the unit, and nothing else declares a
coefficient. ``predict``, ``sweep``, ``explain`` and the calibration all call these functions.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import EnumMeta, StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

from startup_model.formula import Expression, Values, let, maximum, minimum


@dataclass(frozen=True)
class Coefficient:
    """What an annotation says about a coefficient."""

    unit: str
    absent: float = 0.0
    """Value where a profile does not hold it (it is older than the coefficient): the one that changes nothing."""
    scale: str | None = None
    """Scale that it moves with when a host is calibrated; None: that of its term."""
    is_separable: bool = True
    """False: runs on one accelerator do not tell it from the other coefficients of its term; a fit without a prior leaves it at 0."""


class Groups(NamedTuple):
    """Where the seconds of a phase go in each roll-up; None: to a group of the phase's own name."""

    five_stages: str | None
    """vLLM V0 as its log lines cut it: compilation runs inside the profile run, modules are built by the loader."""
    six_steps: str | None
    measured_six: str | None
    """The steps that arXiv 2606.07362 measures; what no stage logs joins the bootstrap."""
    four_segments: str | None


class Style(NamedTuple):
    """How a phase is drawn."""

    colour: str
    hatch: str = ""


class Cache(NamedTuple):
    """A cache that shortens a phase, and whose state may be unknown."""

    name: str
    """Field of ``EngineConfig`` that tells its state."""
    taken: str
    """State that a start of unknown state is taken to have; the other one is ``cold``."""
    cold_inputs: Mapping[str, str] = MappingProxyType({})
    """Inputs of the term that differ in the cold state, and what they are then."""
    cold_variant: str | None = None
    """Set of coefficients in the cold state."""
    cold_words: str = "the cold state"
    """What a cold start does; {storage} stands for the store and its rate."""


@dataclass(frozen=True, eq=False)
class Term:
    """A formula with the names of its inputs and the facts about its coefficients."""

    name: str
    phase: str
    function: Callable[..., Any]
    inputs: tuple[str, ...]
    coefficients: Mapping[str, Coefficient]
    set_name: str
    """Set of coefficients that it reads: its own, or that of the term whose coefficients it shares."""
    runs_on: Mapping[str, tuple[int, ...]] | None = None
    """Engine -> first version that has it; None: all."""

    def formula(self, numbers: Mapping[str, float] | None = None) -> str:
        """The right-hand side as text, with names, or with ``numbers`` (inputs and coefficients) in their place."""
        names = (*self.inputs, *self.coefficients)
        symbols = {name: Expression(name if numbers is None else _digits(numbers[name])) for name in names}
        result = self.function(
            *(symbols[name] for name in self.inputs), **{name: symbols[name] for name in self.coefficients}
        )
        return str(result)

    def is_part_of(self, engine: str, version: tuple[int, ...]) -> bool:
        """Whether an engine of this version has it."""
        return self.runs_on is None or (engine in self.runs_on and version >= self.runs_on[engine])


@dataclass(frozen=True, eq=False)
class PhaseRow:
    """All that there is to say about a phase."""

    name: str
    title: str
    """What happens in it: the first line of its formula's docstring."""
    groups: Groups
    style: Style
    terms: tuple[Term, ...] = ()
    """Its formula, and further ones that add to it."""
    segment: str | None = None
    """``before``: ahead of the engine's own process; ``after``: behind ready. Segments are reported apart from the time to ready."""
    is_off: Callable[[Any], bool] | None = None
    """From the resolved flags: whether they switch the phase off."""
    cache: Cache | None = None
    log_facts: tuple[str, ...] = ()
    """Facts of logs that are its duration [s]."""
    part_of: str | None = None
    """Phase in which profiles, runs and logs that are older than it hold its time."""
    given_by: tuple[str, ...] = ()
    """Fields of the node that decide a segment: where they are given, it does not scatter."""
    spread: float = 0.0
    """Standard deviation of the logarithm of a segment whose numbers nobody gave, independent of the host."""


TERMS: dict[str, Term] = {}
"""All terms by name."""

PHASES: dict[str, PhaseRow] = {}
"""All phases by name, in the order in which engines pass through them."""

INPUT_MEANINGS: Mapping[str, str] = {
    "slowdown": "single-thread time relative to the profile's host",
    "workers": "worker processes on one node: tp × pp × dp / nodes",
    "collectives": "1 when ranks talk to each other",
    "layers": "decoder layers that one rank builds",
    "trace_layers": "layers weighted by what tracing one of their kind costs",
    "compile_layers": "layers weighted by what compiling one of their kind costs",
    "capture_layers": "layers weighted by what capturing one of their kind costs",
    "profiling_layers": "layers weighted by what profiling one of their kind costs",
    "tokenizer_bytes": "B, size of tokenizer.json (57 B a vocabulary entry where the file is not at hand)",
    "storage_bytes": "B read from storage on one node; 0 when the page cache holds them",
    "rank_bytes": "B of weights copied to one device",
    "files": "files of the checkpoint",
    "passes": "passes over the bytes in host memory",
    "overlap": "share of reading and copying that happens at the same time",
    "storage_bandwidth": "B/s of the tier, divided by the starts that share it",
    "page_cache_bandwidth": "B/s from the page cache to one device, its share where several ranks copy",
    "host_to_device_bandwidth": "B/s of the link to one device",
    "memory_bandwidth": "B/s of device memory",
    "device_flops": "FLOP/s, dense 16-bit",
    "active_bytes": "B of weights that one token reads on one rank",
    "captures": "graphs, by version and flags",
    "estimate_captures": "graphs that are captured once more to measure their memory",
    "profile_flop": "FLOP of the profile run: 2 × active parameters × max_num_batched_tokens / (tp × pp)",
    "prompt_flop": "FLOP of the first request's prefill (512 tokens)",
    "pool_bytes": "B of KV cache on one rank",
    "provision_seconds": "s, given or assumed",
    "image_bytes": "B, given or assumed",
    "image_pull_bandwidth": "B/s, given or assumed",
    "container_start_seconds": "s, given or assumed",
}
"""Input of a term -> unit and meaning; a phase that brings an input of its own adds a row."""

ON_CHANGE: list[Callable[[], None]] = []
"""Called when a phase or a term has been declared: they clear the caches that depend on it."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def phase(
    groups: Groups,
    style: Style,
    *,
    runs_on: Mapping[str, tuple[int, ...]] | None = None,
    segment: str | None = None,
    is_off: Callable[[Any], bool] | None = None,
    cache: Cache | None = None,
    log_facts: tuple[str, ...] = (),
    part_of: str | None = None,
    given_by: tuple[str, ...] = (),
    spread: float = 0.0,
    after: str | None = None,
) -> Callable[[_Function], _Function]:
    """Declare a phase by its formula. ``after``: the phase that it follows, where it is declared outside this file; the other arguments
    are the fields of ``PhaseRow`` and ``Term``."""

    def register(function: _Function) -> _Function:
        name = function.__name__
        if name in PHASES:
            raise ValueError(f"phase {name}: declared twice")
        title = (inspect.getdoc(function) or name).split("\n\n")[0]
        term = _make_term(function, name, None, runs_on)
        row = PhaseRow(
            name, title, groups, style, (term,), segment, is_off, cache, log_facts, part_of, given_by, spread
        )
        order = list(PHASES.items())
        place = len(order) if after is None else [key for key, _ in order].index(after) + 1
        order.insert(place, (name, row))
        _replace_phases(dict(order))
        return function

    return register


def term(
    of: str, *, shares: str | None = None, runs_on: Mapping[str, tuple[int, ...]] | None = None
) -> Callable[[_Function], _Function]:
    """Declare a further term of the phase ``of``; ``shares``: it reads the coefficients of the term of that name."""

    def register(function: _Function) -> _Function:
        made = _make_term(function, of, shares, runs_on)
        row = PHASES[of]
        _replace_phases({**PHASES, of: PhaseRow(**(vars(row) | {"terms": (*row.terms, made)}))})
        return function

    return register


def _make_term(
    function: Callable[..., Any], of: str, shares: str | None, runs_on: Mapping[str, tuple[int, ...]] | None
) -> Term:
    parameters = inspect.signature(function).parameters.values()
    hints = function.__annotations__
    if any(isinstance(hint, str) for hint in hints.values()):  # a module with postponed annotations
        hints = get_type_hints(function, include_extras=True)
    coefficients = {
        p.name: next(item for item in get_args(hints[p.name]) if isinstance(item, Coefficient))
        for p in parameters
        if p.kind is p.KEYWORD_ONLY
    }
    inputs = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    name = function.__name__
    TERMS[name] = Term(name, of, function, inputs, coefficients, shares or name, runs_on)
    return TERMS[name]


def _replace_phases(rows: Mapping[str, PhaseRow]) -> None:
    """Put other rows into the tables, which are live: whoever holds one sees the change."""
    PHASES.clear()
    PHASES.update(rows)
    for roll_up_name, table in _ROLLUPS.items():
        table.clear()
        for name, row in rows.items():
            if (group := getattr(row.groups, roll_up_name)) is not None:
                table[name] = group
    for clear in ON_CHANGE:
        clear()


@contextmanager
def temporary_phases() -> Iterator[None]:
    """Phases that are declared inside the block are gone behind it: to try one out."""
    phases, terms = dict(PHASES), dict(TERMS)
    try:
        yield
    finally:
        TERMS.clear()
        TERMS.update(terms)
        _replace_phases(phases)


_ROLLUPS: dict[str, dict[str, str]] = {name: {} for name in Groups._fields}

ROLLUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(_ROLLUPS)
"""Name of a roll-up -> (phase -> its group). Each is a partition: the groups sum to the total."""


def roll_up(seconds: Mapping[str, float], groups: Mapping[str, str]) -> dict[str, float]:
    """Seconds by group: the same seconds, added up by ``groups``.

    Every group of the roll-up is present (0.0 when nothing falls into it); a segment outside the engine that the
    roll-up does not name keeps its own name, so that the values always sum to the sum of ``seconds``.
    """
    totals = dict.fromkeys(groups.values(), 0.0)
    for name, value in seconds.items():
        group = groups.get(name, str(name))
        totals[group] = totals.get(group, 0.0) + value
    return totals


def _digits(value: float) -> str:
    """A number with the digits that a reader needs to check the sum by hand."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e7 else f"{value:.5g}"


# Coefficients by unit, for annotations.
Seconds = Annotated[float, Coefficient("s")]
SecondsPerLayer = Annotated[float, Coefficient("s/layer")]
SecondsPerByte = Annotated[float, Coefficient("s/B")]
SecondsPerFile = Annotated[float, Coefficient("s/file", is_separable=False)]
SecondsPerWorker = Annotated[float, Coefficient("s/worker", scale="worker_spawn of more ranks", is_separable=False)]
CollectiveSeconds = Annotated[float, Coefficient("s", scale="worker_spawn of more ranks", is_separable=False)]
Ratio = Annotated[float, Coefficient("1")]
StorageRatio = Annotated[float, Coefficient("1", scale="weight_load from storage")]

BLUE, SKY, GREEN, YELLOW, ORANGE, VERMILLION, PURPLE = (
    "#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7",
)  # fmt: skip
"""The palette of Okabe and Ito, "Color Universal Design" (2008), also in B. Wong, Nature Methods 8, 441 (2011)."""
GREY = "#808080"
"""In the place of the palette's black, which a dark notebook would swallow."""


# --- segments before the engine -----------------------------------------------------------------------------------------


@phase(
    Groups(None, None, None, "container_and_runtime"),
    Style(BLUE, "///"),
    segment="before",
    given_by=("provision_s",),
    spread=0.65,
)
def provision(provision_seconds: Values) -> Values:
    """A node is ordered and joins the cluster.

    Equation: t = provision_seconds

    provision_seconds [s]: as the cloud takes it, 45 to 410 s for GPU nodes.
    Source: public measurements of node pools; given by the user where known.
    """
    return provision_seconds


@phase(
    Groups(None, None, None, "container_and_runtime"),
    Style(ORANGE, "///"),
    segment="before",
    given_by=("image_pull_bandwidth",),
    spread=0.65,
)
def image_pull(image_bytes: Values, image_pull_bandwidth: Values) -> Values:
    """The container image is fetched and unpacked.

    Equation: t = image_bytes / image_pull_bandwidth

    image_bytes [B]: compressed size; image_pull_bandwidth [B/s]: pulling and unpacking together.
    Source: 0.02-0.1 GB/s plainly, 0.3-0.75 GB/s with lazy or parallel pulling (public measurements).
    """
    return image_bytes / image_pull_bandwidth


@phase(
    Groups(None, None, None, "container_and_runtime"),
    Style(GREEN, "///"),
    segment="before",
    given_by=("container_start_s",),
    spread=0.5,
)
def container_start(container_start_seconds: Values) -> Values:
    """The container runtime starts the first process.

    Equation: t = container_start_seconds

    container_start_seconds [s]: one to a few seconds.
    Source: given by the user where known.
    """
    return container_start_seconds


# --- the engine ---------------------------------------------------------------------------------------------------------


@phase(Groups("engine_init", "worker_spawning", "framework_bootstrap", "container_and_runtime"), Style(BLUE))
def framework_bootstrap(slowdown: Values, *, base_seconds: Seconds) -> Values:
    """Python imports, platform detection, inspection of the model class.

    Equation: t = base_seconds × slowdown

    slowdown [1]: single-thread time relative to the profile's host; base_seconds [s]: on that host.
    Source: constant over 11 models on each of three hosts within 1-2 % (arXiv 2606.07362).
    """
    return base_seconds * slowdown


@phase(Groups("engine_init", "worker_spawning", "framework_bootstrap", "framework_init"), Style(SKY))
def worker_spawn(
    workers: Values,
    collectives: Values,
    slowdown: Values,
    *,
    base_seconds: Seconds,
    seconds_per_worker: SecondsPerWorker,
    collective_seconds: CollectiveSeconds,
) -> Values:
    """Worker processes start, open their device and join their process groups.

    Equation: t = (base_seconds + seconds_per_worker × (workers - 1)) × slowdown + collective_seconds × collectives

    workers [1]: TP x PP x DP processes on this node; collectives [1]: 1 when the world size exceeds 1; slowdown [1].
    base_seconds [s]: the first worker; seconds_per_worker [s/worker]: each further one; collective_seconds [s]: set-up
    of process groups.
    Source: one worker in arXiv 2606.07362; TP=2 adds about 14.7 s that no stage logs.
    """
    return (base_seconds + seconds_per_worker * (workers - 1)) * slowdown + collective_seconds * collectives


@phase(Groups("engine_init", "tokenizer_loading", "tokenizer_init", "framework_init"), Style(PURPLE, "///"))
def tokenizer_load(
    tokenizer_bytes: Values, slowdown: Values, *, base_seconds: Seconds, seconds_per_byte: SecondsPerByte
) -> Values:
    """The tokenizer is read and built.

    Equation: t = (base_seconds + seconds_per_byte × tokenizer_bytes) × slowdown

    tokenizer_bytes [B]: size of tokenizer.json; slowdown [1]; base_seconds [s]; seconds_per_byte [s/B].
    Source: 0.02 s + 0.035 s/MB on an EPYC 9354 (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_byte * tokenizer_bytes) * slowdown


@phase(Groups("weight_load", "model_loading", "model_loading", "weight_load"), Style(YELLOW, "///"))
def model_init(
    layers: Values, slowdown: Values, *, base_seconds: Seconds, seconds_per_layer: SecondsPerLayer
) -> Values:
    """The modules are built, still without weights.

    Equation: t = (base_seconds + seconds_per_layer × layers) × slowdown

    layers [1]: layers on one rank; slowdown [1]; base_seconds [s]; seconds_per_layer [s/layer].
    Source: 0.1-0.15 s for 24-48 layers (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * layers) * slowdown


@phase(
    Groups("weight_load", "model_loading", "model_loading", "weight_load"),
    Style(ORANGE),
    is_off=lambda resolved: not resolved.load_format.reads_weights,
    cache=Cache("page_cache", "hot", cold_inputs={"storage_bytes": "node_bytes"}, cold_words="reading from {storage}"),
)
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
    base_seconds: Seconds,
    storage_ratio: StorageRatio,
    copy_ratio: Ratio,
    seconds_per_file: SecondsPerFile,
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


@phase(
    Groups("memory_profiling", "memory_allocation", "torch_compile", "framework_init"),
    Style(GREEN),
    is_off=lambda resolved: not resolved.compiles,
)
def graph_trace(
    trace_layers: Values, slowdown: Values, *, base_seconds: Seconds, seconds_per_layer: SecondsPerLayer
) -> Values:
    """Dynamo traces the bytecode of the forward pass.

    Equation: t = (base_seconds + seconds_per_layer × trace_layers) × slowdown

    trace_layers [1]: layers weighted by kind; slowdown [1]; base_seconds [s]; seconds_per_layer [s/layer].
    Source: 0.18 s + 0.146 s/layer on an EPYC 9354 (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * trace_layers) * slowdown


@phase(
    Groups("memory_profiling", "memory_allocation", "torch_compile", "framework_init"),
    Style(YELLOW),
    is_off=lambda resolved: not resolved.compiles,
    cache=Cache("compile_cache", "warm", cold_variant="compile_cache=cold", cold_words="compiling"),
)
def graph_compile(
    compile_layers: Values, slowdown: Values, *, base_seconds: Seconds, seconds_per_layer: SecondsPerLayer
) -> Values:
    """Inductor compiles the graphs (cold cache), or loads the artefacts of an earlier start (warm cache).

    Equation: t = (base_seconds + seconds_per_layer × compile_layers) × slowdown

    compile_layers [1]: layers weighted by kind; slowdown [1]; base_seconds [s]; seconds_per_layer [s/layer]: a set of
    its own for each cache state.
    Source: 0.12 s/layer cached, 0.9 s + 0.41 s/layer cold, on an EPYC 9354 (arXiv 2606.07362).
    """
    return (base_seconds + seconds_per_layer * compile_layers) * slowdown


@phase(Groups("memory_profiling", "memory_allocation", "kv_cache_profiling", "framework_init"), Style(VERMILLION))
def memory_profiling(
    profiling_layers: Values,
    profile_flop: Values,
    device_flops: Values,
    slowdown: Values,
    *,
    base_seconds: Seconds,
    seconds_per_layer: SecondsPerLayer,
    flop_ratio: Ratio,
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


@term(of="memory_profiling", shares="graph_capture", runs_on={"vllm": (0, 18)})
def graph_memory_estimate(
    estimate_captures: Values,
    capture_layers: Values,
    active_bytes: Values,
    memory_bandwidth: Values,
    slowdown: Values,
    *,
    seconds_per_layer: SecondsPerLayer,
    weight_ratio: Ratio,
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


@phase(Groups("kv_cache_allocation", "cache_engine_init", "kv_cache_profiling", "framework_init"), Style(SKY, "///"))
def kv_cache_init(
    pool_bytes: Values, memory_bandwidth: Values, slowdown: Values, *, base_seconds: Seconds, fill_ratio: Ratio
) -> Values:
    """The pool of KV blocks is allocated and zeroed.

    Equation: t = base_seconds × slowdown + fill_ratio × pool_bytes / memory_bandwidth

    pool_bytes [B]: of one rank; memory_bandwidth [B/s]; slowdown [1]; base_seconds [s]; fill_ratio [1]: passes over the
    pool.
    Source: one pass of zeros at memory bandwidth; engines log no stage of their own for it.
    """
    return base_seconds * slowdown + fill_ratio * pool_bytes / memory_bandwidth


@phase(
    Groups("graph_capture_and_warmup", "cache_engine_init", "graph_capture", "framework_init"),
    Style(PURPLE),
    is_off=lambda resolved: resolved.captures.total == 0,
)
def graph_capture(
    captures: Values,
    capture_layers: Values,
    active_bytes: Values,
    memory_bandwidth: Values,
    slowdown: Values,
    *,
    base_seconds: Seconds,
    seconds_per_layer: SecondsPerLayer,
    weight_ratio: Ratio,
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


@phase(Groups("engine_init", "api_readiness", "framework_bootstrap", "framework_init"), Style(VERMILLION, "///"))
def api_ready(slowdown: Values, *, base_seconds: Seconds) -> Values:
    """The HTTP server binds its port and registers its routes.

    Equation: t = base_seconds × slowdown

    slowdown [1]; base_seconds [s].
    Source: tenths of a second in start-up logs (first route line to "Application startup complete").
    """
    return base_seconds * slowdown


@phase(Groups("engine_init", "api_readiness", "framework_bootstrap", "framework_init"), Style(GREY))
def unattributed(
    tokenizer_bytes: Values, slowdown: Values, *, base_seconds: Seconds, seconds_per_byte: SecondsPerByte
) -> Values:
    """Wall time that no stage logs: process joins, hand-shakes, and the tokenizer, which the front end loads once more.

    Equation: t = (base_seconds + seconds_per_byte × tokenizer_bytes) × slowdown

    tokenizer_bytes [B]; slowdown [1]; base_seconds [s]; seconds_per_byte [s/B].
    Source: wall time minus the sum of stages is 0.9 s for a 1.8 MB and 1.5 s for a 17.5 MB tokenizer (arXiv
    2606.07362).
    """
    return (base_seconds + seconds_per_byte * tokenizer_bytes) * slowdown


@phase(Groups(None, None, None, "first_request"), Style(GREY, "///"), segment="after", spread=0.25)
def first_request(
    prompt_flop: Values,
    device_flops: Values,
    active_bytes: Values,
    memory_bandwidth: Values,
    slowdown: Values,
    *,
    base_seconds: Seconds,
    flop_ratio: Ratio,
    weight_ratio: Ratio,
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


# --- names --------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:

    class _Members(EnumMeta):
        def __getattr__(cls, name: str) -> "Phase": ...

    class Phase(StrEnum, metaclass=_Members):
        """The phases of this file by name, for those who like an enum: a member equals its plain name."""

else:
    Phase = StrEnum("Phase", {name.upper(): name for name in PHASES})
    Phase.__doc__ = "The phases of this file by name, for those who like an enum: a member equals its plain name."

_replace_phases({Phase(name): row for name, row in PHASES.items()})


class _Segments(Sequence[str]):
    """Names of the phases of some segments, in order: as live as ``PHASES``."""

    def __init__(self, *segments: str) -> None:
        self._segments = segments

    def _names(self) -> tuple[str, ...]:
        return tuple(name for segment in self._segments for name, row in PHASES.items() if row.segment == segment)

    def __getitem__(self, place: Any) -> Any:
        return self._names()[place]

    def __len__(self) -> int:
        return len(self._names())


BEFORE_ENGINE = _Segments("before")
"""Segments before the engine's own process; reported apart from the time to ready."""

AFTER_READY = _Segments("after")
"""Segments after the server is ready; reported apart from the time to ready."""

SEGMENTS = _Segments("before", "after")
"""Phases outside the time to ready, which are added on request. 45 to 410 s for a node and 0.02 to 0.1 GB/s for an image span a factor of
five to nine, which is what their spreads say."""
