"""Options that commands share, what they ask for, and how answers are printed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

from startup_model.errors import ConfigError
from startup_model.factors import SAFETY_FACTOR

if TYPE_CHECKING:
    from startup_model.engines.config import EngineConfig
    from startup_model.hardware import HardwareConfig
    from startup_model.prediction import Start, StartupPrediction

__all__ = [
    "CompileCacheOption",
    "EngineOption",
    "FactorOption",
    "GpusOption",
    "HardwareOption",
    "IncludeOption",
    "JsonOption",
    "LevelOption",
    "ModelOption",
    "NodesOption",
    "PageCacheOption",
    "ProfileOption",
    "Request",
    "StorageOption",
    "VersionOption",
    "block_of",
    "console_of",
    "engine_and_node",
    "predicted",
    "print_json",
    "start_of",
]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", help="Folder, config.json, catalogue name or hub:ORG/NAME; default: the model that --engine serves."
    ),
]
HardwareOption = Annotated[str, typer.Option("--hardware", help="Preset (see 'presets') or JSON file.")]
EngineOption = Annotated[str | None, typer.Option("--engine", help="Command line, such as 'vllm serve MODEL -tp 2'.")]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="Profile file or name of a reference; default: the nearest reference.")
]
GpusOption = Annotated[
    int | None, typer.Option("--gpus", help="Accelerators per node; default: as many as the engine needs.")
]
NodesOption = Annotated[int | None, typer.Option("--nodes", help="Equal nodes; default: one.")]
PageCacheOption = Annotated[str | None, typer.Option("--page-cache", help="hot, cold or unknown.")]
CompileCacheOption = Annotated[str | None, typer.Option("--compile-cache", help="warm, cold or unknown.")]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        help="Where the checkpoint lies: local_nvme, network_disk or object_store, with '=1.2 GB/s' if known.",
    ),
]
VersionOption = Annotated[str | None, typer.Option("--engine-version", help="Release of the engine, such as 0.11.0.")]
LevelOption = Annotated[float, typer.Option("--level", help="Probability of the interval.")]
FactorOption = Annotated[float, typer.Option("--safety-factor", help="Time to promise = factor x slowest prediction.")]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", help="Segment to add: provision, image_pull, container_start, first_request."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


class Request(NamedTuple):
    """What the shared options ask for."""

    hardware: str
    model: str | None = None
    engine: str | None = None
    profile: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    page_cache: str | None = None
    compile_cache: str | None = None
    storage: str | None = None
    engine_version: str | None = None
    level: float = 0.9
    safety_factor: float = SAFETY_FACTOR
    include: tuple[str, ...] = ()


# --- reading options ---


def predicted(request: Request) -> tuple[StartupPrediction, tuple[str, ...]]:
    """The prediction that the options ask for, and the flags of the command that were not used."""
    from startup_model.predictor import predict as run

    start = start_of(request)
    prediction = run(
        *start[:3],
        profile=start.profile,
        level=request.level,
        safety_factor=request.safety_factor,
        include=request.include,
    )
    return prediction, start.engine.unused_flags


def start_of(request: Request, *, grow: bool = True) -> Start:
    """The start that the options ask for; ``grow`` as in ``engine_and_node``. Raises ConfigError and its kinds."""
    from startup_model.predictor import as_start

    engine, node = engine_and_node(request, grow=grow)
    served = request.model or engine.model
    if served is None:
        raise ConfigError("--model", "", "missing", "give it, or an --engine command that names a model")
    return as_start(served, node, engine, request.profile)


def engine_and_node(request: Request, *, grow: bool = True) -> tuple[EngineConfig, HardwareConfig]:
    """The engine with its options, and the node.

    ``grow``: a node that does not say how many accelerators it has gets as many as the engine needs; else it is left to say nothing.
    """
    from startup_model.changes import with_accelerators
    from startup_model.hardware import storage_changes
    from startup_model.predictor import as_engine, as_hardware

    options = {
        "page_cache": request.page_cache,
        "compile_cache": request.compile_cache,
        "version": request.engine_version,
    }
    config = as_engine(request.engine).replace(**{name: value for name, value in options.items() if value is not None})
    node: HardwareConfig = as_hardware(request.hardware)
    if request.nodes is not None:
        node = node.replace(nodes=request.nodes)
    if request.gpus is not None:
        node = node.replace(gpus=request.gpus)
    if grow:
        node = with_accelerators(node, config)
    if request.storage is not None:
        node = node.replace(storage=node.storage.replace(**storage_changes(request.storage, "--storage")))
    return config, node


# --- output ---


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def console_of() -> Console:
    return Console(highlight=False, markup=False)


def block_of(console: Console) -> str:
    """What bars are made of: blocks where the output can show them."""
    return "█" if console.encoding.lower().startswith("utf") else "#"
