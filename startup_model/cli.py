"""The command line: ``startup-model predict``, ``explain`` and the rest; tables for people, JSON for programs.

Bad input ends with exit status 2 and one line on standard error; a traceback is a bug.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

from startup_model import __version__
from startup_model.errors import ConfigError, StartupModelError
from startup_model.factors import SAFETY_FACTOR

if TYPE_CHECKING:
    from startup_model.config.engine import EngineConfig
    from startup_model.config.hardware import HardwareConfig
    from startup_model.prediction import StartupPrediction

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as error:  # pragma: no cover - depends on the installation
    sys.stderr.write(
        f"startup-model: {error.name} is missing; install the command line with pip install 'startup-model[cli]'\n"
    )
    raise SystemExit(2) from None

__all__ = ["app", "main"]

app = typer.Typer(
    name="startup-model",
    help="Start-up time of LLM inference servers, from a model's config.json and a node.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_BAR_WIDTH = 16

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


class _Request(NamedTuple):
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


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command()
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
    request = _Request(
        hardware, model, engine, profile, gpus, nodes, page_cache, compile_cache, storage, engine_version, level,
        safety_factor, tuple(include or ()),
    )  # fmt: skip
    prediction, unused = _predict(request)
    if as_json:
        _print_json(prediction.to_dict() | {"unused_flags": list(unused)})
        return
    console = _console()
    console.print(_phase_table(prediction, _block(console)))
    _print_summary(console, prediction, unused)


@app.command()
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
    request = _Request(
        hardware, model, engine, profile, gpus, nodes, page_cache, compile_cache, storage, engine_version, level,
        safety_factor, tuple(include or ()),
    )  # fmt: skip
    prediction, unused = _predict(request)
    if as_json:
        _print_json(prediction.to_dict() | {"unused_flags": list(unused)})
    else:
        typer.echo(prediction.explain())


@app.command()
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
    from startup_model.model import predict as run

    request = _Request(hardware, model, engine, gpus=gpus, nodes=nodes, engine_version=engine_version)
    engine_config, node = _engine_and_node(request)
    served = [*(models or ()), *([model] if model else ())] or ([engine_config.model] if engine_config.model else [])
    if not served:
        raise ConfigError("models", "", "missing", "name some, or give --model or an --engine command that names one")
    predictions = [run(name, node, engine_config) for name in served]
    if as_json:
        _print_json([{"model": p.context.model_name} | p.to_dict()["memory"] for p in predictions])
        return
    console = _console()
    if len(predictions) == 1:
        console.print(_memory_table(predictions[0], _block(console)))
    else:
        console.print(_memory_comparison(predictions))
    for prediction in predictions:
        _print_remedies(console, prediction)


@app.command()
def presets(as_json: JsonOption = False) -> None:
    """Hardware presets and reference profiles."""
    from startup_model.config.hardware import HardwareConfig, preset_names
    from startup_model.profile import Profile, reference_names
    from startup_model.units import format_bandwidth, format_bytes

    nodes = [HardwareConfig.preset(name) for name in preset_names()]
    references = [Profile.reference(name) for name in reference_names()]
    if as_json:
        _print_json(
            {"presets": [node.model_dump(mode="json") for node in nodes], "profiles": [r.name for r in references]}
        )
        return
    table = Table(title="hardware presets", title_justify="left")
    for heading in ("name", "accelerator", "memory", "bandwidth"):
        table.add_column(heading, no_wrap=heading != "accelerator")
    for node in nodes:
        table.add_row(node.name, node.gpu, format_bytes(node.gpu_memory), format_bandwidth(node.gpu_memory_bandwidth))
    console = _console()
    console.print(table)
    for reference in references:
        source = f"{reference.engine} {reference.engine_version}, {reference.provenance.citation}"
        console.print(f"reference profile {reference.name}: {source}", soft_wrap=True)


@app.command()
def models(
    contains: Annotated[str, typer.Argument(help="Part of the name.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Models of the built-in catalogue."""
    from startup_model.config.model import ModelConfig, catalogue_names

    counts = {
        name: ModelConfig.from_catalogue(name).parameters
        for name in catalogue_names()
        if contains.lower() in name.lower()
    }
    if as_json:
        _print_json(counts)
        return
    for name, parameters in counts.items():
        typer.echo(f"{parameters / 1e9:9.2f} billion parameters  {name}")


def main() -> NoReturn:
    """Entry point: runs the command and turns errors of the library into one line and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character gets a question mark
    for extension in entry_points(group="startup_model.commands"):
        extension.load()(app)
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except StartupModelError as error:
        _fail(str(error), getattr(error, "__notes__", ()))
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None
    except (typer.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: end quietly
        raise SystemExit(0) from None
    except OSError as error:
        _fail(f"output: {error.strerror or error}; write it elsewhere")
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _fail(_parser_message(error.format_message()))  # an error of the option parser
    raise SystemExit(code or 0)


def _parser_message(message: str) -> str:
    """What the option parser says, with the option that was probably meant."""
    hints = {
        "--tp": "--engine 'vllm serve MODEL -tp N'",
        "unexpected extra argument": "--model NAME",
        "--dp": "--engine",
    }
    hint = next((f"; use {use}" for word, use in hints.items() if word in message), "")
    return message.split(" (Possible options", maxsplit=1)[0].rstrip(".") + hint


def _fail(message: str, notes: Sequence[str] = ()) -> NoReturn:
    sys.stderr.write("".join(f"{line}\n" for line in (f"startup-model: {' '.join(message.split())}", *notes)))
    raise SystemExit(2)


# --- reading options ------------------------------------------------------------------------------------------------


def _predict(request: _Request) -> tuple[StartupPrediction, tuple[str, ...]]:
    """The prediction that the options ask for, and the flags of the command that were not used."""
    from startup_model.model import predict as run

    engine_config, node = _engine_and_node(request)
    served = request.model or engine_config.model
    if served is None:
        raise ConfigError("--model", "", "missing", "give it, or an --engine command that names a model")
    prediction = run(
        served,
        node,
        engine_config,
        profile=request.profile,
        level=request.level,
        safety_factor=request.safety_factor,
        include=request.include,
    )
    return prediction, engine_config.unused_flags


def _engine_and_node(request: _Request) -> tuple[EngineConfig, HardwareConfig]:
    """The engine with its options, and a node with as many accelerators as asked for, else as the engine needs."""
    from startup_model.changes import is_preset, with_accelerators
    from startup_model.config.hardware import storage_changes
    from startup_model.model import as_engine, as_hardware

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
    elif is_preset(request.hardware):
        node = with_accelerators(node, config)
    if request.storage is not None:
        node = node.replace(storage=node.storage.replace(**storage_changes(request.storage, "--storage")))
    return config, node


# --- output ---------------------------------------------------------------------------------------------------------


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _console() -> Console:
    return Console(highlight=False, markup=False)


def _block(console: Console) -> str:
    """What bars are made of: blocks where the output can show them."""
    return "█" if console.encoding.lower().startswith("utf") else "#"


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
    console.print(_memory_table(prediction, _block(console)))
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


if __name__ == "__main__":
    main()
