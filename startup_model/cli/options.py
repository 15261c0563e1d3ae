"""The options that say what start is asked about, declared once, and how a command takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from startup_model.errors import missing
from startup_model.prediction import SAFETY_FACTOR

if TYPE_CHECKING:
    from startup_model.engines.config import EngineConfig
    from startup_model.hardware import HardwareConfig
    from startup_model.prediction import StartupPrediction
    from startup_model.recipe import Start

JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Picture to write (PNG, SVG or PDF).")]
ONE_PREDICTION = ("level", "safety_factor", "model_effects")
"""Options of a start that only the commands about one prediction take."""


class StartOptions(NamedTuple):
    """What start is asked about, as it is typed."""

    hardware: Annotated[str, typer.Option(help="Preset (see 'presets') or JSON file.")]
    model: Annotated[
        str | None,
        typer.Option(
            help="Folder, config.json, catalogue name or hub:ORG/NAME; default: the model that --engine serves."
        ),
    ] = None
    engine: Annotated[str | None, typer.Option(help="Command line, such as 'vllm serve MODEL -tp 2'.")] = None
    profile: Annotated[
        str | None, typer.Option(help="Profile file or name of a reference; default: the nearest reference.")
    ] = None
    gpus: Annotated[int | None, typer.Option(help="Accelerators per node; default: as many as the engine needs.")] = (
        None
    )
    nodes: Annotated[int | None, typer.Option(help="Equal nodes; default: one.")] = None
    page_cache: Annotated[str | None, typer.Option(help="hot, cold or unknown.")] = None
    compile_cache: Annotated[str | None, typer.Option(help="warm, cold or unknown.")] = None
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where the checkpoint lies: local_nvme, network_disk or object_store, with '=1.2 GB/s' if known."
        ),
    ] = None
    engine_version: Annotated[str | None, typer.Option(help="Release of the engine, such as 0.11.0.")] = None
    level: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.9
    safety_factor: Annotated[float, typer.Option(help="SLO bound = factor x slowest prediction.")] = SAFETY_FACTOR
    include: Annotated[
        list[str] | None,
        typer.Option(help="Segment to add: provision, image_pull, container_start, first_request."),
    ] = None

    model_effects: Annotated[
        bool,
        typer.Option(help="Take along what was peculiar to this very model where the profile's host was measured."),
    ] = True

    def predicted(self) -> tuple[StartupPrediction, tuple[str, ...]]:
        """The prediction, and the flags of the command that were not used."""
        from startup_model.predictor import predict

        start = self.start()
        prediction = predict(
            *start[:3],
            profile=start.profile,
            level=self.level,
            safety_factor=self.safety_factor,
            include=tuple(self.include or ()),
            model_effects=self.model_effects,
        )
        return prediction, start.engine.unused_flags

    def start(self, *, grow: bool = True) -> Start:
        """The start; ``grow`` as in ``engine_and_node``. Raises ConfigError and its kinds."""
        from startup_model.predictor import as_start

        engine, node = self.engine_and_node(grow=grow)
        served = self.model or engine.model
        if served is None:
            raise missing("--model", "no model is named", "give it, or an --engine command that names one")
        return as_start(served, node, engine, self.profile)

    def engine_and_node(self, *, grow: bool = True) -> tuple[EngineConfig, HardwareConfig]:
        """The engine with its options, and the node.

        ``grow``: a node that does not say how many accelerators it has gets as many as the engine needs; else it is left to say nothing.
        """
        from startup_model.changes import with_accelerators
        from startup_model.hardware import storage_changes
        from startup_model.predictor import as_engine, as_hardware

        states = {
            "page_cache": self.page_cache,
            "compile_cache": self.compile_cache,
            "version": self.engine_version,
        }
        engine = as_engine(self.engine).replace(**{name: value for name, value in states.items() if value is not None})
        numbers = {"nodes": self.nodes, "gpus": self.gpus}
        node: HardwareConfig = as_hardware(self.hardware)
        node = node.replace(**{name: value for name, value in numbers.items() if value is not None})
        if grow:
            node = with_accelerators(node, engine)
        if self.storage is not None:
            node = node.replace(storage=node.storage.replace(**storage_changes(self.storage, "--storage")))
        return engine, node


def with_options(*without: str, **defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command as the option parser takes it: each parameter that is a NamedTuple of options becomes these options.

    without: options of them that the command does not have. defaults: other defaults than theirs.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Any, list[str]]] = {}
        hints = get_type_hints(command, include_extras=True)
        for name, own in inspect.signature(command).parameters.items():
            group = hints[name]
            if not hasattr(group, "_fields"):
                parameters.append(own.replace(annotation=group, kind=own.KEYWORD_ONLY))
                continue
            fields = [field for field in group._fields if field not in without]
            groups[name] = group, fields
            for field, hint in get_type_hints(group, include_extras=True).items():
                if field in fields:
                    default = defaults.get(field, group._field_defaults.get(field, own.empty))
                    parameters.append(inspect.Parameter(field, own.KEYWORD_ONLY, default=default, annotation=hint))

        def called(**given: Any) -> None:
            options = {
                name: group(**{field: given.pop(field) for field in fields}) for name, (group, fields) in groups.items()
            }
            command(**options, **given)

        called.__name__, called.__doc__ = command.__name__, command.__doc__
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return called

    return decorate
