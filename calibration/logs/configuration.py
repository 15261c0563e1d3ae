"""The engine's configuration from what it printed: arguments as flags of its command line, the rest from its own configuration line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from calibration.logs.fields import Setting
from calibration.logs.reading import EngineEvidence, OpenStart
from startup_model.engines import all_engines, find
from startup_model.engines.arguments import known_flags
from startup_model.engines.config import EngineConfig
from startup_model.engines.logtable import LogTable, table_of
from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.models.config import ModelConfig

NAMES = frozenset({"model", "model_tag", "model_path", "served_model_name", "host", "port", "api_key"})
"""Arguments that name things, and change nothing in how long a start takes."""
_MAX_VALUE = 8192
_DEGREE = re.compile(r"(?<![A-Z])(TP|PP|DP)([0-9]{1,5})")
_DEGREE_SETTINGS = {
    "tp": ("tensor_parallel_size", "tp_size", "tp"),
    "pp": ("pipeline_parallel_size", "pp_size", "pp"),
    "dp": ("data_parallel_size", "dp_size", "dp"),
}
_SETTING_FIELDS = (("max_model_len", "max_seq_len"), ("max_num_batched_tokens", "max_num_batched_tokens"))
_WORD_FIELDS = (("dtype", "auto"), ("quantization", None), ("load_format", "auto"), ("kv_cache_dtype", "auto"))


class LoggedEngine(NamedTuple):
    """An engine's configuration, and what could not be taken over."""

    config: EngineConfig
    left_out: tuple[str, ...]
    """One line each."""


def logged_engine(
    engine: str, version: str | None, core: str | None, flags: Mapping[str, Setting], settings: Mapping[str, Setting]
) -> LoggedEngine:
    """The EngineConfig that a log speaks of.

    engine: an engine, or a flavour of one. A flag that cannot be read is left out and named, the others stay. Raises ConfigError for an engine whose starts
    are not modelled.
    """
    table = table_of(engine)
    launch = None if table is None else find(table.name).launch
    if table is None or launch is None:
        known = " or ".join(name for name, other in all_engines().items() if other.launch is not None)
        raise ConfigError("engine", engine, "its starts are not modelled", f"records are of {known}")
    command = [*launch.words, *([] if launch.positional_model else [launch.model_flag]), "MODEL"]
    left_out: list[str] = []
    words: list[str] = []
    for flag in _flags(table.name, flags):
        try:
            EngineConfig.from_command(shlex.join([*command, *flag]))
        except StartupModelError as error:
            left_out.append(f"{flag[0]}: {error}")
            continue
        words += flag
    config = EngineConfig.from_command(shlex.join([*command, *words])).replace(model=None)
    changes = dict(_changes(settings, config))
    if version is not None:
        changes |= {"version": version} | ({"generation": core} if core is not None else {})
    for field, value in changes.items():
        try:
            config = config.replace(**{field: value})
        except StartupModelError as error:
            left_out.append(str(error))
    return LoggedEngine(config, tuple(left_out))


def logged_model(name: str | None, remedy: str) -> ModelConfig:
    """The model of the catalogue that a log names: never opened as a file, or asked for at a hub. Raises ConfigError."""
    if name is None:
        raise ConfigError("model", MISSING, "the log does not name it", remedy)
    try:
        return ModelConfig.from_catalogue(name)
    except StartupModelError:
        remedy = f"{remedy}: its folder, config.json or catalogue name"
        raise ConfigError("model", name, "the catalogue does not have what the log names", remedy) from None


def _flags(engine: str, flags: Mapping[str, Setting]) -> Iterator[list[str]]:
    known = frozenset(known_flags(engine))
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if name in NAMES or value is None or value is False or value == "***" or not {flag, flag[2:]} & known:
            continue
        if value is True:
            yield [flag]
        elif isinstance(value, tuple):
            if value and not any(isinstance(item, dict | tuple) for item in value):
                yield [flag, *(str(item) for item in value)]
        else:
            yield [flag, (json.dumps(value, default=str) if isinstance(value, dict) else str(value))[:_MAX_VALUE]]


def _changes(settings: Mapping[str, Setting], given: EngineConfig) -> Iterator[tuple[str, Any]]:
    for field, name in (*((degree, names[0]) for degree, names in _DEGREE_SETTINGS.items()), *_SETTING_FIELDS):
        if type(settings.get(name)) is int and getattr(given, field) in (None, 1):
            yield field, settings[name]
    for field, absent in _WORD_FIELDS:
        value = settings.get(field)
        if isinstance(value, str) and getattr(given, field) == absent:
            word = value.removeprefix("torch.") if field == "dtype" else value
            yield field, word.removeprefix("LoadFormat.").lower() if field == "load_format" else word
    if settings.get("enforce_eager") is True:
        yield "enforce_eager", True
    compilation = settings.get("compilation_config")
    if isinstance(compilation, dict) and given.capture_sizes is None and not given.enforce_eager:
        sizes = compilation.get("cudagraph_capture_sizes")
        if isinstance(sizes, tuple) and sizes and all(isinstance(size, int) for size in sizes):
            yield "capture_sizes", tuple(sorted(sizes))


def degrees(start: OpenStart, table: LogTable, own: EngineEvidence) -> tuple[int | None, int | None, int | None]:
    """tp, pp and dp: as configured, else as the processes number themselves, else as many as they are."""
    values = {**start.flags, **start.settings}
    labels = [rank.label for rank in own.ranks.values()]
    seen = {"TP": 0, "PP": 0, "DP": 0}
    for match in (match for label in labels for match in _DEGREE.finditer(label)):
        seen[match[1]] = max(seen[match[1]], int(match[2]) + 1)
    found: dict[str, int | None] = {}
    for degree, keys in _DEGREE_SETTINGS.items():
        given = next((value for key in keys if type(value := values.get(key)) is int), 0)
        assert isinstance(given, int)  # noqa: S101  it was looked for by its type
        number = max(seen[degree.upper()], start.topology.get(f"{degree}_rank", -1) + 1)
        found[degree] = (given if 0 < given < 10**6 else 0) or number or None
    world = start.topology.get("world_size")
    if (table.complete_arguments and start.flags and "arguments" in own.times) or (table.complete_ranks and labels):
        found = {degree: count or 1 for degree, count in found.items()}
    if world:
        others = (found["pp"] or 1) * (found["dp"] or 1)
        if found["tp"] is None or (found["tp"] * others < world and "tensor_parallel_size" not in values):
            found["tp"] = max(1, world // others)
        found["pp"] = found["pp"] or 1
    names = table.ranks
    beside = sum(label.startswith(names.beside_driver) for label in labels) if names.beside_driver else 0
    has_engine = bool(names.engine) and any(label.startswith(names.engine) for label in labels)
    if found["tp"] is None and beside:
        found["tp"] = beside + 1  # the driver prints without a prefix
    elif found["tp"] is None and has_engine and not any(label.startswith(names.workers) for label in labels):
        found["tp"] = found["pp"] = 1
    if has_engine:
        found["dp"] = found["dp"] or 1
    return found["tp"], found["pp"], found["dp"]
