"""The command line: ``startup-model predict``, ``explain`` and the rest; tables for people, JSON for programs.

Bad input ends with exit status 2 and one line on standard error; a traceback is a bug.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from startup_model.errors import ConfigError, StartupModelError

if TYPE_CHECKING:
    from startup_model.config.engine import EngineConfig
    from startup_model.config.hardware import HardwareConfig
    from startup_model.prediction import StartupPrediction

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ModuleNotFoundError as error:  # pragma: no cover - depends on the installation
    sys.stderr.write(
        f"startup-model: {error.name} is missing; install the command line with pip install 'startup-model[cli]'\n"
    )
    raise SystemExit(2) from None

__all__ = ["app", "main"]

app = typer.Typer(
    name="startup-model",
    help="Start-up time of LLM inference servers, from a model's config.json and a node.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_BAR_WIDTH = 16

ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Folder, config.json or catalogue name; default: the model that --engine serves."),
]
HardwareOption = Annotated[str, typer.Option("--hardware", help="Preset (see 'presets') or JSON file.")]
EngineOption = Annotated[str | None, typer.Option("--engine", help="Command line, such as 'vllm serve MODEL -tp 2'.")]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", help="Profile file or name of a reference; default: the nearest reference.")
]
GpusOption = Annotated[
    int | None, typer.Option("--gpus", help="Accelerators per node; default: as many as the engine needs.")
]
PageCacheOption = Annotated[str | None, typer.Option("--page-cache", help="hot, cold or unknown.")]
CompileCacheOption = Annotated[str | None, typer.Option("--compile-cache", help="warm or cold.")]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        help="Where the checkpoint lies: local_nvme, network_disk or object_store, with '=1.2 GB/s' if known.",
    ),
]
VersionOption = Annotated[str | None, typer.Option("--engine-version", help="Release of the engine, such as 0.11.0.")]
LevelOption = Annotated[float, typer.Option("--level", help="Probability of the interval.")]
FactorOption = Annotated[float, typer.Option("--safety-factor", help="Time to promise = factor x prediction.")]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", help="Segment to add: provision, image_pull, container_start, first_request."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


@app.command()
def predict(
    hardware: HardwareOption,
    model: ModelOption = None,
    engine: EngineOption = None,
    profile: ProfileOption = None,
    gpus: GpusOption = None,
    page_cache: PageCacheOption = None,
    compile_cache: CompileCacheOption = None,
    storage: StorageOption = None,
    engine_version: VersionOption = None,
    level: LevelOption = 0.9,
    safety_factor: FactorOption = 1.5,
    include: IncludeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Seconds by phase, an interval, and whether the model fits."""
    prediction, unused = _predict(**{name: value for name, value in locals().items() if name != "as_json"})
    if as_json:
        _print_json(prediction.to_dict() | {"unused_flags": list(unused)})
        return
    console = Console(highlight=False)
    console.print(_phase_table(prediction))
    _print_summary(console, prediction, unused)


@app.command()
def explain(
    hardware: HardwareOption,
    model: ModelOption = None,
    engine: EngineOption = None,
    profile: ProfileOption = None,
    gpus: GpusOption = None,
    page_cache: PageCacheOption = None,
    compile_cache: CompileCacheOption = None,
    storage: StorageOption = None,
    engine_version: VersionOption = None,
    level: LevelOption = 0.9,
    safety_factor: FactorOption = 1.5,
    include: IncludeOption = None,
) -> None:
    """The formula of every phase with its numbers, to be checked by hand."""
    prediction, _ = _predict(**locals())
    typer.echo(prediction.explain())


@app.command()
def memory(
    models: Annotated[list[str] | None, typer.Argument(help="Folders, config.json files or catalogue names.")] = None,
    hardware: HardwareOption = "h100-sxm",
    model: ModelOption = None,
    engine: EngineOption = None,
    gpus: GpusOption = None,
    engine_version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Memory budget and KV pool of one model, or of many side by side."""
    from startup_model.model import predict as run

    engine_config, node = _engine_and_node(hardware, engine, gpus, {"version": engine_version})
    served = [*(models or ()), *([model] if model else ())] or ([engine_config.model] if engine_config.model else [])
    if not served:
        raise ConfigError("models", "", "missing", "name some, or give --model or an --engine command that names one")
    predictions = [run(name, node, engine_config) for name in served]
    if as_json:
        _print_json([{"model": p.context.model_name} | p.to_dict()["memory"] for p in predictions])
        return
    console = Console(highlight=False)
    if len(predictions) == 1:
        console.print(_memory_table(predictions[0]))
        _print_remedies(console, predictions[0])
        return
    console.print(_memory_comparison(predictions))
    for prediction in predictions:
        _print_remedies(console, prediction)


@app.command()
def presets() -> None:
    """Hardware presets and reference profiles."""
    from startup_model.config.hardware import HardwareConfig, preset_names
    from startup_model.profile import Profile, reference_names
    from startup_model.units import format_bandwidth, format_bytes

    table = Table(title="hardware presets", title_justify="left")
    for heading in ("name", "accelerator", "memory", "bandwidth"):
        table.add_column(heading)
    for name in preset_names():
        node = HardwareConfig.preset(name)
        table.add_row(name, node.gpu, format_bytes(node.gpu_memory), format_bandwidth(node.gpu_memory_bandwidth))
    console = Console(highlight=False)
    console.print(table)
    for name in reference_names():
        reference = Profile.reference(name)
        console.print(
            f"reference profile {name}: {reference.engine} {reference.engine_version}, {reference.provenance.citation}"
        )


@app.command()
def models() -> None:
    """Models of the built-in catalogue."""
    from startup_model.config.model import ModelConfig, catalogue_names

    for name in catalogue_names():
        typer.echo(f"{name}  {ModelConfig.from_catalogue(name).parameters / 1e9:.2f} billion parameters")


def main() -> NoReturn:
    """Entry point: runs the command and turns errors of the library into one line and exit status 2."""
    try:
        app(standalone_mode=False)
    except StartupModelError as error:
        _fail(str(error))
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except typer.Abort:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    except Exception as error:
        message = getattr(error, "format_message", None)  # errors of the option parser itself
        if message is None:
            raise
        _fail(message())
    raise SystemExit(0)


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"startup-model: {' '.join(message.split())}\n")
    raise SystemExit(2)


# --- reading options ------------------------------------------------------------------------------------------------


def _predict(
    *,
    hardware: str,
    model: str | None,
    engine: str | None,
    profile: str | None,
    gpus: int | None,
    page_cache: str | None,
    compile_cache: str | None,
    storage: str | None,
    engine_version: str | None,
    level: float,
    safety_factor: float,
    include: list[str] | None,
) -> tuple[StartupPrediction, tuple[str, ...]]:
    """The prediction that the options ask for, and the flags of the command that were not used."""
    from startup_model.model import predict as run

    options = {"page_cache": page_cache, "compile_cache": compile_cache, "version": engine_version}
    engine_config, node = _engine_and_node(hardware, engine, gpus, options)
    served = model or engine_config.model
    if served is None:
        raise ConfigError("--model", "", "missing", "give it, or an --engine command that names a model")
    if storage is not None:
        node = node.replace(storage=node.storage.replace(**_storage_changes(storage)))
    prediction = run(
        served,
        node,
        engine_config,
        profile=profile,
        level=level,
        safety_factor=safety_factor,
        include=tuple(include or ()),
    )
    return prediction, engine_config.unused_flags


def _engine_and_node(
    hardware: str, engine: str | None, gpus: int | None, options: dict[str, str | None]
) -> tuple[EngineConfig, HardwareConfig]:
    """The engine with its options, and a node with as many accelerators as asked for, else as the engine needs."""
    from startup_model.model import as_engine, as_hardware

    config = as_engine(engine)
    given = {name: value for name, value in options.items() if value is not None}
    if given:
        config = config.replace(**given)
    node = as_hardware(hardware)
    needed = config.tp * config.pp * config.dp
    if gpus is not None:
        node = node.replace(gpus=gpus)
    elif not Path(hardware).is_file() and not node.is_cpu_only and needed > node.gpus * node.nodes:
        node = node.replace(gpus=needed)  # a preset names the accelerator, not how many there are
    return config, node


def _storage_changes(text: str) -> dict[str, Any]:
    """``network_disk`` or ``network_disk=1.2 GB/s`` as fields of Storage."""
    tier, _, bandwidth = text.partition("=")
    fields: dict[str, Any] = {"tier": tier.strip()}
    if bandwidth:
        fields[tier.strip()] = bandwidth.strip()
    return fields


# --- output ---------------------------------------------------------------------------------------------------------


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _phase_table(prediction: StartupPrediction) -> Table:
    context = prediction.context
    table = Table(
        title=f"{context.model_name} on {context.hardware_name} with {context.engine_name}", title_justify="left"
    )
    table.add_column("phase", no_wrap=True)
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    table.add_column("", min_width=_BAR_WIDTH, no_wrap=True)
    table.add_column("coefficients", overflow="fold")
    longest = max((entry.seconds for entry in prediction.phases.values()), default=0.0) or 1.0
    for entry in prediction.phases.values():
        share = entry.seconds / prediction.total_s if prediction.total_s else 0.0
        source = entry.source if entry.variant in ("default", "off", "given") else f"{entry.source}, {entry.variant}"
        bar = "█" * round(_BAR_WIDTH * entry.seconds / longest)
        table.add_row(entry.phase.value, f"{entry.seconds:.2f}", f"{share:.1%}", bar, source)
    table.add_section()
    table.add_row("total", f"{prediction.total_s:.2f}", "100.0%", "", "")
    return table


def _print_summary(console: Console, prediction: StartupPrediction, unused: tuple[str, ...]) -> None:
    from startup_model.units import format_seconds

    context = prediction.context
    low, high = prediction.interval
    console.print(
        f"ready after {format_seconds(prediction.total_s)}; {prediction.level:.0%} interval {format_seconds(low)} to "
        f"{format_seconds(high)} ({context.interval_source})",
        soft_wrap=True,
    )
    console.print(
        f"time to promise {format_seconds(prediction.slo_bound_s)} = {prediction.safety_factor:g} × prediction; mostly {prediction.bottleneck}",
        soft_wrap=True,
    )
    console.print(f"profile {context.profile_name}: {context.profile_reason}", soft_wrap=True)
    console.print(_memory_table(prediction))
    if unused:
        console.print(f"flags not used: {', '.join(unused)}", soft_wrap=True, markup=False)
    for warning in prediction.warnings:
        console.print(f"note: {warning}", soft_wrap=True, markup=False)


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


def _memory_table(prediction: StartupPrediction) -> Table:
    from startup_model.units import format_bytes

    budget = prediction.memory
    table = Table(title=f"memory of one device, {prediction.context.model_name}: {budget.status}", title_justify="left")
    table.add_column("part", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("share", justify="right")
    table.add_column("", min_width=_BAR_WIDTH, no_wrap=True)
    for field, label in _BUDGET_PARTS.items():
        size = getattr(budget, field)
        if size:
            share = size / budget.gpu_memory
            table.add_row(label, format_bytes(size), f"{share:.1%}", "█" * max(0, round(_BAR_WIDTH * min(share, 1.0))))
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

    table = Table(title=f"memory of one device, {predictions[0].context.hardware_name}", title_justify="left")
    table.add_column("model", overflow="fold", min_width=18)
    for heading in ("weights", "KV cache", "blocks", "tokens", "requests"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status", overflow="fold")
    for prediction in predictions:
        budget = prediction.memory
        numbers = (str(budget.num_gpu_blocks), str(budget.kv_cache_tokens), f"{budget.max_concurrency:.2f}")
        sizes = (format_bytes(budget.weights), format_bytes(budget.kv_cache))
        table.add_row(prediction.context.model_name, *sizes, *numbers, budget.status)
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
        console.print(f"  {remedy.action} -> {remedy.status}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main()
