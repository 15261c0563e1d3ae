"""The phases of a start-up: the one place where they are named, described and grouped.

Terms, pipelines, log parsers and roll-ups import the names from here, so that a log event and a formula cannot drift
apart. Every duration in the project is in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["AFTER_READY", "BEFORE_ENGINE", "ROLLUPS", "Phase", "roll_up"]


class Phase(StrEnum):
    """A phase of a start-up, in the order in which engines pass through them."""

    PROVISION = "provision"
    """A node is ordered and joins the cluster."""
    IMAGE_PULL = "image_pull"
    """The container image is fetched and unpacked."""
    CONTAINER_START = "container_start"
    """The container runtime starts the first process."""
    FRAMEWORK_BOOTSTRAP = "framework_bootstrap"
    """Python imports, platform detection, inspection of the model class."""
    WORKER_SPAWN = "worker_spawn"
    """Worker processes start, open their device and join their process groups."""
    TOKENIZER_LOAD = "tokenizer_load"
    """The tokenizer is read and built."""
    MODEL_INIT = "model_init"
    """The modules are built, still without weights."""
    WEIGHT_LOAD = "weight_load"
    """The checkpoint is read and copied to the devices."""
    GRAPH_TRACE = "graph_trace"
    """Dynamo traces the bytecode of the forward pass."""
    GRAPH_COMPILE = "graph_compile"
    """Inductor compiles the graphs, or the cached artefacts are loaded."""
    MEMORY_PROFILING = "memory_profiling"
    """A forward pass of the largest batch measures the peak of device memory."""
    KV_CACHE_INIT = "kv_cache_init"
    """The pool of KV blocks is allocated."""
    GRAPH_CAPTURE = "graph_capture"
    """Device graphs are captured, one per batch size."""
    API_READY = "api_ready"
    """The HTTP server binds its port and registers its routes."""
    UNATTRIBUTED = "unattributed"
    """Wall time that no stage of the engine logs (process joins, second tokenizer load, hand-shakes)."""
    FIRST_REQUEST = "first_request"
    """The first request is served."""


BEFORE_ENGINE = (Phase.PROVISION, Phase.IMAGE_PULL, Phase.CONTAINER_START)
"""Segments before the engine's own process; reported apart from the time to ready."""

AFTER_READY = (Phase.FIRST_REQUEST,)
"""Segments after the server is ready; reported apart from the time to ready."""


def _partition(groups: Mapping[str, tuple[Phase, ...]]) -> Mapping[Phase, str]:
    """Phase -> group; a phase in no group (a segment outside the engine) is a group of its own."""
    return MappingProxyType({phase: name for name, phases in groups.items() for phase in phases})


ROLLUPS: Mapping[str, Mapping[Phase, str]] = MappingProxyType(
    {
        # vLLM V0 as its log lines cut it: torch.compile runs inside the profile run, modules are built by the loader.
        "five_stages": _partition(
            {
                "engine_init": (
                    Phase.FRAMEWORK_BOOTSTRAP,
                    Phase.WORKER_SPAWN,
                    Phase.TOKENIZER_LOAD,
                    Phase.API_READY,
                    Phase.UNATTRIBUTED,
                ),
                "weight_load": (Phase.MODEL_INIT, Phase.WEIGHT_LOAD),
                "memory_profiling": (Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE, Phase.MEMORY_PROFILING),
                "kv_cache_allocation": (Phase.KV_CACHE_INIT,),
                "graph_capture_and_warmup": (Phase.GRAPH_CAPTURE,),
            }
        ),
        "six_steps": _partition(
            {
                "model_loading": (Phase.MODEL_INIT, Phase.WEIGHT_LOAD),
                "tokenizer_loading": (Phase.TOKENIZER_LOAD,),
                "memory_allocation": (Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE, Phase.MEMORY_PROFILING),
                "cache_engine_init": (Phase.KV_CACHE_INIT, Phase.GRAPH_CAPTURE),
                "worker_spawning": (Phase.FRAMEWORK_BOOTSTRAP, Phase.WORKER_SPAWN),
                "api_readiness": (Phase.API_READY, Phase.UNATTRIBUTED),
            }
        ),
        # The six steps that arXiv 2606.07362 measures; what no stage logs joins the bootstrap.
        "measured_six": _partition(
            {
                "framework_bootstrap": (
                    Phase.FRAMEWORK_BOOTSTRAP,
                    Phase.WORKER_SPAWN,
                    Phase.API_READY,
                    Phase.UNATTRIBUTED,
                ),
                "tokenizer_init": (Phase.TOKENIZER_LOAD,),
                "model_loading": (Phase.MODEL_INIT, Phase.WEIGHT_LOAD),
                "torch_compile": (Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE),
                "kv_cache_profiling": (Phase.MEMORY_PROFILING, Phase.KV_CACHE_INIT),
                "graph_capture": (Phase.GRAPH_CAPTURE,),
            }
        ),
        "four_segments": _partition(
            {
                "container_and_runtime": (*BEFORE_ENGINE, Phase.FRAMEWORK_BOOTSTRAP),
                "weight_load": (Phase.MODEL_INIT, Phase.WEIGHT_LOAD),
                "framework_init": (
                    Phase.WORKER_SPAWN,
                    Phase.TOKENIZER_LOAD,
                    Phase.GRAPH_TRACE,
                    Phase.GRAPH_COMPILE,
                    Phase.MEMORY_PROFILING,
                    Phase.KV_CACHE_INIT,
                    Phase.GRAPH_CAPTURE,
                    Phase.API_READY,
                    Phase.UNATTRIBUTED,
                ),
                "first_request": (Phase.FIRST_REQUEST,),
            }
        ),
    }
)
"""Name of a roll-up -> (phase -> its group). Each is a partition: the groups sum to the total."""


def roll_up(seconds: Mapping[Phase, float], groups: Mapping[Phase, str]) -> dict[str, float]:
    """Seconds by group: the same seconds, added up by ``groups``.

    Every group of the roll-up is present (0.0 when nothing falls into it); a segment outside the engine that the
    roll-up does not name keeps its own name, so that the values always sum to the sum of ``seconds``.
    """
    totals = dict.fromkeys(groups.values(), 0.0)
    for phase, value in seconds.items():
        group = groups.get(phase, phase.value)
        totals[group] = totals.get(group, 0.0) + value
    return totals
