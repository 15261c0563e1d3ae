"""The commands that predict one start, and what is built in: ``predict``, ``explain``, ``memory``, ``presets``, ``models``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from startup_model.cli.options import (
    CompileCacheOption,
    EngineOption,
    FactorOption,
    GpusOption,
    HardwareOption,
    IncludeOption,
    JsonOption,
    LevelOption,
    ModelOption,
    NodesOption,
    PageCacheOption,
    ProfileOption,
    Request,
    StorageOption,
    VersionOption,
    block_of,
    console_of,
    engine_and_node,
    predicted,
    print_json,
)
from startup_model.errors import ConfigError
from startup_model.factors import SAFETY_FACTOR

if TYPE_CHECKING:
    from startup_model.prediction import StartupPrediction

__all__ = ["register"]

_BAR_WIDTH = 16


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (predict, explain, memory, presets, models):
        app.command()(command)


def predict(
    hardware: HardwareOption,
    model: ModelOption = None,
    engine: EngineOption = None,
    profile: ProfileOption = None,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    page_cache: PageCacheOption = None,
    compile_cache: CompileCacheOption = None,
    storage: StorageOption = None,
    engine_version: VersionOption = None,
    level: LevelOption = 0.9,
    safety_factor: FactorOption = SAFETY_FACTOR,
    include: IncludeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Seconds by phase, an interval, and whether the model fits."""
    request = Request(
        hardware, model, engine, profile, gpus, nodes, page_cache, compile_cache, storage, engine_version, level,
        safety_factor, tuple(include or ()),
    )  # fmt: skip
    prediction, unused = predicted(request)
    if as_json:
        print_json(prediction.to_dict() | {"unused_flags": list(unused)})
        return
    console = console_of()
    console.print(_phase_table(prediction, block_of(console)))
    _print_summary(console, prediction, unused)


def explain(
    hardware: HardwareOption,
    model: ModelOption = None,
    engine: EngineOption = None,
    profile: ProfileOption = None,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    page_cache: PageCacheOption = None,
    compile_cache: CompileCacheOption = None,
    storage: StorageOption = None,
    engine_version: VersionOption = None,
    level: LevelOption = 0.9,
    safety_factor: FactorOption = SAFETY_FACTOR,
    include: IncludeOption = None,
    as_json: JsonOption = False,
) -> None:
    """The formula of every phase with its numbers, to be checked by hand."""
    request = Request(
        hardware, model, engine, profile, gpus, nodes, page_cache, compile_cache, storage, engine_version, level,
        safety_factor, tuple(include or ()),
    )  # fmt: skip
    prediction, unused = predicted(request)
    if as_json:
        print_json(prediction.to_dict() | {"unused_flags": list(unused)})
    else:
        typer.echo(prediction.explain())


def memory(
    models: Annotated[list[str] | None, typer.Argument(help="Folders, config.json files or catalogue names.")] = None,
    hardware: HardwareOption = "h100-sxm",
    model: ModelOption = None,
    engine: EngineOption = None,
    gpus: GpusOption = None,
    nodes: NodesOption = None,
    engine_version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Memory budget and KV pool of one model, or of many side by side."""
    from startup_model.predictor import predict as run

    request = Request(hardware, model, engine, gpus=gpus, nodes=nodes, engine_version=engine_version)
    engine_config, node = engine_and_node(request)
    served = [*(models or ()), *([model] if model else ())] or ([engine_config.model] if engine_config.model else [])
    if not served:
        raise ConfigError("models", "", "missing", "name some, or give --model or an --engine command that names one")
    predictions = [run(name, node, engine_config) for name in served]
    if as_json:
        print_json([{"model": p.context.model_name} | p.to_dict()["memory"] for p in predictions])
        return
    console = console_of()
    if len(predictions) == 1:
        console.print(_memory_table(predictions[0], block_of(console)))
    else:
        console.print(_memory_comparison(predictions))
    for prediction in predictions:
        _print_remedies(console, prediction)


def presets(as_json: JsonOption = False) -> None:
    """Hardware presets and reference profiles."""
    from startup_model.hardware import HardwareConfig, preset_names
    from startup_model.profile import Profile, reference_names
    from startup_model.units import format_bandwidth, format_bytes

    nodes = [HardwareConfig.preset(name) for name in preset_names()]
    references = [Profile.reference(name) for name in reference_names()]
    if as_json:
        print_json(
            {"presets": [node.model_dump(mode="json") for node in nodes], "profiles": [r.name for r in references]}
        )
        return
    table = Table(title="hardware presets", title_justify="left")
    for heading in ("name", "accelerator", "memory", "bandwidth"):
        table.add_column(heading, no_wrap=heading != "accelerator")
    for node in nodes:
        table.add_row(node.name, node.gpu, format_bytes(node.gpu_memory), format_bandwidth(node.gpu_memory_bandwidth))
    console = console_of()
    console.print(table)
    for reference in references:
        source = f"{reference.engine} {reference.engine_version}, {reference.provenance.citation}"
        console.print(f"reference profile {reference.name}: {source}", soft_wrap=True)


def models(
    contains: Annotated[str, typer.Argument(help="Part of the name.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Models of the built-in catalogue."""
    from startup_model.models.config import ModelConfig, catalogue_names

    counts = {
        name: ModelConfig.from_catalogue(name).parameters
        for name in catalogue_names()
        if contains.lower() in name.lower()
    }
    if as_json:
        print_json(counts)
        return
    for name, parameters in counts.items():
        typer.echo(f"{parameters / 1e9:9.2f} billion parameters  {name}")


def _phase_table(prediction: StartupPrediction, block: str) -> Table:
    context = prediction.context
    table = Table(
        title=Text(f"{context.model_name} on {context.hardware_name} with {context.engine_name}"), title_justify="left"
    )
    table.add_column("phase", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("relative", width=_BAR_WIDTH, no_wrap=True)
    table.add_column("coefficients", overflow="fold")
    longest = max((entry.seconds for entry in prediction.phases.values()), default=0.0) or 1.0
    for entry in prediction.phases.values():
        share = entry.seconds / prediction.total_s if prediction.total_s else 0.0
        variant = "" if entry.variant in ("default", "off", "given") else f" {entry.variant.replace('=', ' ')}"
        bar = block * round(_BAR_WIDTH * entry.seconds / longest)
        table.add_row(entry.phase.value, f"{entry.seconds:.2f}", f"{share:.1%}", bar, entry.source + variant)
    table.add_section()
    table.add_row("total", f"{prediction.total_s:.2f}", "100.0%", "", "")
    return table


def _print_summary(console: Console, prediction: StartupPrediction, unused: tuple[str, ...]) -> None:
    from startup_model.units import format_seconds

    context = prediction.context
    low, high = prediction.interval
    lines = [
        prediction.headline(),
        f"{prediction.level:.0%} interval {format_seconds(low)} to {format_seconds(high)} ({context.interval_source})",
        prediction.promise(),
        f"profile {context.profile_name}: {context.profile_reason}",
    ]
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print(_memory_table(prediction, block_of(console)))
    if unused:
        console.print(f"flags without effect here: {', '.join(unused)}", soft_wrap=True)
    for warning in prediction.warnings:
        console.print(f"note: {warning}", soft_wrap=True)


_BUDGET_PARTS = {
    "weights": "weights",
    "activations": "activations",
    "non_torch": "context and libraries",
    "graphs": "device graphs",
    "kv_cache": "KV cache",
    "rounding": "left over",
    "outside_budget": "beyond gpu_memory_utilization",
}
"""Field of a MemoryBudget -> what it is called in a table."""


def _memory_table(prediction: StartupPrediction, block: str) -> Table:
    from startup_model.units import format_bytes

    budget = prediction.memory
    table = Table(
        title=Text(f"memory of one device, {prediction.context.model_name}: {budget.status}"), title_justify="left"
    )
    table.add_column("part", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("share", justify="right")
    table.add_column("relative", width=_BAR_WIDTH, no_wrap=True)
    for field, label in _BUDGET_PARTS.items():
        size = getattr(budget, field)
        if size:
            share = size / budget.gpu_memory
            table.add_row(
                label, format_bytes(size), f"{share:.1%}", block * max(0, round(_BAR_WIDTH * min(share, 1.0)))
            )
    table.add_section()
    table.add_row("device", format_bytes(budget.gpu_memory), "100.0%", "")
    table.caption = (
        f"{budget.num_gpu_blocks} blocks of {budget.block_size} tokens and {format_bytes(budget.block_bytes)}; {budget.kv_cache_tokens} tokens, "
        f"{budget.max_concurrency:.2f} requests of full length at once"
    )
    table.caption_justify = "left"
    return table


def _memory_comparison(predictions: list[StartupPrediction]) -> Table:
    from startup_model.units import format_bytes

    table = Table(title=Text(f"memory of one device, {predictions[0].context.hardware_name}"), title_justify="left")
    table.add_column("model", overflow="fold", min_width=18)
    for heading in ("weights", "KV cache", "blocks", "tokens", "requests"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status", overflow="fold")
    for prediction in predictions:
        budget = prediction.memory
        numbers = (str(budget.num_gpu_blocks), str(budget.kv_cache_tokens), f"{budget.max_concurrency:.2f}")
        sizes = (format_bytes(budget.weights), format_bytes(budget.kv_cache))
        table.add_row(Text(prediction.context.model_name), *sizes, *numbers, budget.status)
    return table


def _print_remedies(console: Console, prediction: StartupPrediction) -> None:
    from startup_model.units import format_bytes

    budget = prediction.memory
    if budget.fits:
        return
    console.print(
        f"{prediction.context.model_name}: {budget.status}, {format_bytes(budget.missing)} missing; what would help:",
        soft_wrap=True,
    )
    for remedy in budget.remedies:
        console.print(f"  {remedy.action} -> {remedy.status}", soft_wrap=True)
