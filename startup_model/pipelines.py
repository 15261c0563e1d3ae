"""Pipelines: which phases an engine passes through, in which order, and which of them run at the same time.

A pipeline is a tuple of steps. Steps in a row add up; the branches of an ``Overlap`` run side by side and take as long
as the longest. A new engine or version is a new row of ``PIPELINES``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from startup_model.formula import Values, maximum
from startup_model.phases import Phase
from startup_model.terms import TERMS, Term
from startup_model.versions import Version

__all__ = ["PIPELINES", "Overlap", "Pipeline", "Step", "Timing", "find_pipeline", "run_pipeline", "steps_of"]


class Step(NamedTuple):
    """One term in its place; several steps may belong to one phase."""

    phase: Phase
    term: Term


class Overlap(NamedTuple):
    """Branches that run at the same time."""

    branches: tuple[tuple[Step, ...], ...]


class Pipeline(NamedTuple):
    """The way of one engine through a start-up."""

    name: str
    engine: str
    generation: str
    first_version: Version
    """The pipeline holds from this version on, until the next row of the same generation."""
    parts: tuple[Step | Overlap, ...]


class Timing(NamedTuple):
    """Time of one phase."""

    seconds: Values
    """What it adds to the total."""
    elapsed: Values
    """How long it runs; more than ``seconds`` where it hides behind another branch."""


def _steps(*names: str) -> tuple[Step, ...]:
    """Steps of terms that are named like their phase."""
    return tuple(Step(Phase(name), TERMS[name]) for name in names)


_BEFORE = _steps("provision", "image_pull", "container_start")
_READY = _steps("api_ready", "unattributed")
_AFTER = _steps("first_request")
_V1_LOAD = _steps("framework_bootstrap", "worker_spawn", "tokenizer_load", "model_init", "weight_load")
_COMPILE = _steps("graph_trace", "graph_compile")
_GRAPH_ESTIMATE = Step(Phase.MEMORY_PROFILING, TERMS["graph_memory_estimate"])

_V0 = (
    *_BEFORE,
    *_steps("framework_bootstrap", "tokenizer_load", "worker_spawn", "model_init", "weight_load"),
    *_COMPILE,  # only with -O3
    *_steps("memory_profiling", "kv_cache_init", "graph_capture"),
    *_READY,
    *_AFTER,
)
_V1 = (*_BEFORE, *_V1_LOAD, *_COMPILE, *_steps("memory_profiling", "kv_cache_init", "graph_capture"), *_READY, *_AFTER)
_V1_GRAPH_ESTIMATE = (
    *_BEFORE,
    *_V1_LOAD,
    *_COMPILE,
    *_steps("memory_profiling"),
    _GRAPH_ESTIMATE,
    *_steps("kv_cache_init", "graph_capture"),
    *_READY,
    *_AFTER,
)
_SGLANG: tuple[Step | Overlap, ...] = (
    *_BEFORE,
    *_steps("framework_bootstrap", "worker_spawn"),
    # The main process builds the tokenizer while the scheduler processes load the model; there is no profile run.
    Overlap(
        (
            _steps("tokenizer_load"),
            _steps("model_init", "weight_load", "kv_cache_init", "graph_trace", "graph_compile", "graph_capture"),
        )
    ),
    *_READY,
    *_AFTER,
)

PIPELINES: tuple[Pipeline, ...] = (
    Pipeline("vLLM V0, five stages", "vllm", "v0", (0,), _V0),
    Pipeline("vLLM V1", "vllm", "v1", (0,), _V1),
    Pipeline("vLLM V1, full and piecewise graphs", "vllm", "v1", (0, 11), _V1),
    Pipeline("vLLM V1, graph memory estimated in profiling", "vllm", "v1", (0, 18), _V1_GRAPH_ESTIMATE),
    Pipeline("SGLang", "sglang", "sglang", (0,), _SGLANG),
)
"""All pipelines, ascending by version within an engine. The number of graphs, default batches and the memory formula
change with the version as well; they reach the terms as inputs."""


def find_pipeline(generation: str, version: Version) -> Pipeline:
    """The pipeline of a generation at a version: the last row that begins at or before it."""
    rows = [row for row in PIPELINES if row.generation == generation]
    return max(
        (row for row in rows if row.first_version <= version), key=lambda row: row.first_version, default=rows[0]
    )


def steps_of(pipeline: Pipeline) -> tuple[Step, ...]:
    """All steps in order, those of overlapping branches one after the other."""
    steps: list[Step] = []
    for part in pipeline.parts:
        if isinstance(part, Overlap):
            for branch in part.branches:
                steps += branch
        else:
            steps.append(part)
    return tuple(steps)


def run_pipeline(pipeline: Pipeline, seconds: Callable[[Step], Values | None]) -> dict[Phase, Timing]:
    """Times of all phases from the time of every step (None: the step is left out).

    The ``seconds`` of the phases sum to the time that the whole takes; of overlapping branches only the longest counts
    (element by element for arrays).
    """
    timings: dict[Phase, Timing] = {}
    for part in pipeline.parts:
        if isinstance(part, Overlap):
            _run_overlap(part, seconds, timings)
        else:
            value = seconds(part)
            if value is not None:
                before = timings.get(part.phase)
                timings[part.phase] = (
                    Timing(value, value) if before is None else Timing(before[0] + value, before[1] + value)
                )
    return timings


def _run_overlap(overlap: Overlap, seconds: Callable[[Step], Values | None], timings: dict[Phase, Timing]) -> None:
    branches = []
    longest: Values = 0.0
    for branch in overlap.branches:
        times = [(step.phase, value) for step in branch if (value := seconds(step)) is not None]
        total: Values = 0.0
        for _, value in times:
            total = total + value
        branches.append((times, total))
        longest = maximum(longest, total)
    taken: Any = False
    for times, total in branches:
        # Of equal branches the first counts.
        counts = np.logical_and(total == longest, np.logical_not(taken))
        taken = np.logical_or(taken, counts)
        for phase, value in times:
            shown = np.where(counts, value, 0.0) if isinstance(longest, np.ndarray) else value if counts else 0.0
            before = timings.get(phase, Timing(0.0, 0.0))
            timings[phase] = Timing(before.seconds + shown, before.elapsed + value)
