"""The commands that predict one start, and what is built in: ``predict``, ``explain``, ``memory``, ``presets``, ``models``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from startup_model.cli.options import ONE_PREDICTION, JsonOption, PlotOption, StartOptions, with_options
from startup_model.cli.terminal import block_of, console_of, echo, print_json, table_of
from startup_model.errors import missing

if TYPE_CHECKING:
    from startup_model.prediction import StartupPrediction

_BAR_WIDTH = 16


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (predict, explain, memory, presets, models):
        app.command()(command)


@with_options()
def predict(start: StartOptions, plot: PlotOption = None, as_json: JsonOption = False) -> None:
    """Seconds by phase, an interval, and whether the model fits."""
    prediction, unused = start.predicted()
    if plot is not None:
        from startup_model import plots

        plots.save(plots.waterfall(prediction), plot)
    if as_json:
        print_json(prediction.to_dict() | {"unused_flags": list(unused)})
        return
    console = console_of()
    console.print(_phase_table(prediction, block_of(console)))
    _print_summary(console, prediction, unused)


@with_options()
def explain(start: StartOptions, as_json: JsonOption = False) -> None:
    """The formula of every phase with its numbers, to be checked by hand."""
    prediction, unused = start.predicted()
    if as_json:
        print_json(prediction.to_dict() | {"unused_flags": list(unused)})
    else:
        echo(prediction.explain())


@with_options("profile", "page_cache", "compile_cache", "storage", "include", *ONE_PREDICTION, hardware="h100-sxm")
def memory(
    start: StartOptions,
    models: Annotated[list[str] | None, typer.Argument(help="Folders, config.json files or catalogue names.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Memory budget and KV pool of one model, or of many side by side."""
    from startup_model.predictor import predict as run

    engine, node = start.engine_and_node()
    served = [*(models or ()), *([start.model] if start.model else ())] or ([engine.model] if engine.model else [])
    if not served:
        raise missing("models", "none is named", "name some, or give --model or an --engine command that names one")
    predictions = [run(name, node, engine) for name in served]
    if as_json:
        print_json([{"model": p.context.model_name} | p.to_dict()["memory"] for p in predictions])
        return
    console = console_of()
    one = len(predictions) == 1
    console.print(_memory_table(predictions[0], block_of(console)) if one else _memory_comparison(predictions))
    for prediction in predictions:
        _print_remedies(prediction)


def presets(as_json: JsonOption = False) -> None:
    """Hardware presets and reference profiles."""
    from startup_model.hardware import HardwareConfig, preset_names
    from startup_model.profile import Profile, reference_names
    from startup_model.units import format_bandwidth, format_bytes

    nodes = [HardwareConfig.preset(name) for name in preset_names()]
    references = [Profile.reference(name) for name in reference_names()]
    if as_json:
        profiles = [reference.name for reference in references]
        print_json({"presets": [node.model_dump(mode="json") for node in nodes], "profiles": profiles})
        return
    table = table_of("hardware presets", "|name", "accelerator", "|memory", "|bandwidth")
    for node in nodes:
        table.add_row(node.name, node.gpu, format_bytes(node.gpu_memory), format_bandwidth(node.gpu_memory_bandwidth))
    console_of().print(table)
    for reference in references:
        source = f"{reference.engine} {reference.engine_version}, {reference.provenance.citation}"
        echo(f"reference profile {reference.name}: {source}")


def models(
    contains: Annotated[str, typer.Argument(help="Part of the name.")] = "", as_json: JsonOption = False
) -> None:
    """Models of the built-in catalogue."""
    from startup_model.models.config import ModelConfig, catalogue_names

    names = [name for name in catalogue_names() if contains.lower() in name.lower()]
    counts = {name: ModelConfig.from_catalogue(name).parameters for name in names}
    if as_json:
        print_json(counts)
        return
    for name, parameters in counts.items():
        echo(f"{parameters / 1e9:9.2f} billion parameters  {name}")


def _phase_table(prediction: StartupPrediction, block: str) -> Table:
    context = prediction.context
    title = f"{context.model_name} on {context.hardware_name} with {context.engine_name}"
    table = table_of(title, "|phase", ">seconds", ">share", "|relative", "coefficients")
    table.columns[3].width = _BAR_WIDTH
    longest = max((entry.seconds for entry in prediction.phases.values()), default=0.0) or 1.0
    for entry in prediction.phases.values():
        share = entry.seconds / prediction.total_s if prediction.total_s else 0.0
        variant = "" if entry.variant in ("default", "off", "given") else f" {entry.variant.replace('=', ' ')}"
        bar = block * round(_BAR_WIDTH * entry.seconds / longest)
        table.add_row(str(entry.phase), f"{entry.seconds:.2f}", f"{share:.1%}", bar, entry.source + variant)
    table.add_section()
    table.add_row("total", f"{prediction.total_s:.2f}", "100.0%", "", "")
    return table


def _print_summary(console: Console, prediction: StartupPrediction, unused: tuple[str, ...]) -> None:
    from startup_model.units import format_seconds

    context = prediction.context
    low, high = map(format_seconds, prediction.interval)
    echo(prediction.headline())
    echo(f"{prediction.level:.0%} interval {low} to {high} ({context.interval_source})")
    echo(prediction.slo_text())
    echo(f"profile {context.profile_name}: {context.profile_reason}")
    console.print(_memory_table(prediction, block_of(console)))
    if unused:
        echo(f"flags without effect here: {', '.join(unused)}")
    for warning in prediction.warnings:
        echo(f"note: {warning}")


_BUDGET_PARTS = {  # field of a MemoryBudget -> what it is called in a table
    "weights": "weights",
    "activations": "activations",
    "non_torch": "context and libraries",
    "graphs": "device graphs",
    "kv_cache": "KV cache",
    "rounding": "left over",
    "outside_budget": "beyond gpu_memory_utilization",
}


def _memory_table(prediction: StartupPrediction, block: str) -> Table:
    from startup_model.units import format_bytes

    budget = prediction.memory
    title = f"memory of one device, {prediction.context.model_name}: {budget.status}"
    caption = (
        f"{budget.num_gpu_blocks} blocks of {budget.block_size} tokens and {format_bytes(budget.block_bytes)}; "
        f"{budget.kv_cache_tokens} tokens, {budget.max_concurrency:.2f} requests of full length at once"
    )
    table = table_of(title, "|part", ">size", ">share", "|relative", caption=caption)
    table.columns[3].width = _BAR_WIDTH
    for field, label in _BUDGET_PARTS.items():
        if size := getattr(budget, field):
            share = size / budget.gpu_memory
            bar = block * max(0, round(_BAR_WIDTH * min(share, 1.0)))
            table.add_row(label, format_bytes(size), f"{share:.1%}", bar)
    table.add_section()
    table.add_row("device", format_bytes(budget.gpu_memory), "100.0%", "")
    return table


def _memory_comparison(predictions: list[StartupPrediction]) -> Table:
    from startup_model.units import GIB

    title = f"memory of one device in GiB, {predictions[0].context.hardware_name}"
    table = table_of(title, "model", ">weights", ">KV cache", ">blocks", ">tokens", ">requests", "fits")
    table.columns[0].min_width = 18
    for prediction in predictions:
        budget = prediction.memory
        sizes = (f"{budget.weights / GIB:.2f}", f"{budget.kv_cache / GIB:.2f}")
        numbers = (str(budget.num_gpu_blocks), str(budget.kv_cache_tokens), f"{budget.max_concurrency:.2f}")
        table.add_row(prediction.context.model_name, *sizes, *numbers, "yes" if budget.fits else "no")
    return table


def _print_remedies(prediction: StartupPrediction) -> None:
    from startup_model.units import format_bytes

    budget = prediction.memory
    if not budget.fits:
        lacking = f"{budget.status}, {format_bytes(budget.missing)} missing"
        echo(f"{prediction.context.model_name}: {lacking}; what would help:")
        for remedy in budget.remedies:
            echo(f"  {remedy.action} -> {remedy.status}")
