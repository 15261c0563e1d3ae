"""The engine's configuration from what it printed: arguments as flags of its command line, the rest from its own configuration line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from calibration.logs.fields import Setting
from startup_model.engines.arguments import known_flags
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, StartupModelError

__all__ = ["NAMES", "LoggedEngine", "logged_engine"]

_LAUNCH: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve", "MODEL"),
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path", "MODEL"),
}
NAMES = frozenset({"model", "model_tag", "model_path", "served_model_name", "host", "port", "api_key"})
"""Arguments that name things, and change nothing in how long a start takes."""
_LONGEST_VALUE = 8192


class LoggedEngine(NamedTuple):
    """An engine's configuration, and what could not be taken over."""

    config: EngineConfig
    left_out: tuple[str, ...]
    """One line each."""


def logged_engine(
    engine: str,
    version: str | None,
    generation: str | None,
    flags: Mapping[str, Setting],
    settings: Mapping[str, Setting],
) -> LoggedEngine:
    """The EngineConfig that a log speaks of.

    engine: a flavour of vLLM or SGLang. A flag that cannot be read is left out and named, the others stay. Raises ConfigError for an engine whose starts
    are not modelled.
    """
    name = "vllm" if engine.startswith("vllm") else engine
    if name not in _LAUNCH:
        raise ConfigError("engine", engine, "its starts are not modelled", f"records are of {' or '.join(_LAUNCH)}")
    left_out: list[str] = []
    words: list[str] = []
    for flag in _flags(name, flags):
        try:
            EngineConfig.from_command(shlex.join([*_LAUNCH[name], *flag]))
        except StartupModelError as error:
            left_out.append(f"{flag[0]}: {error}")
            continue
        words += flag
    config = EngineConfig.from_command(shlex.join([*_LAUNCH[name], *words])).replace(model=None)
    changes = dict(_changes(settings, config, version))
    if version is not None:
        changes["version"] = version
    if generation in ("v0", "v1") and version is not None:
        changes["generation"] = generation
    for field, value in changes.items():
        try:
            config = config.replace(**{field: value})
        except StartupModelError as error:
            left_out.append(str(error))
    return LoggedEngine(config, tuple(left_out))


def _flags(engine: str, flags: Mapping[str, Setting]) -> Iterator[list[str]]:
    """Every argument that the engine's command line knows, as words."""
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
        elif isinstance(value, dict):
            yield [flag, json.dumps(value, default=str)[:_LONGEST_VALUE]]
        else:
            yield [flag, str(value)[:_LONGEST_VALUE]]


def _changes(settings: Mapping[str, Setting], given: EngineConfig, version: str | None) -> Iterator[tuple[str, Any]]:
    """Fields of the configuration line that no flag gave."""
    for field, name in (
        ("tp", "tensor_parallel_size"),
        ("pp", "pipeline_parallel_size"),
        ("dp", "data_parallel_size"),
        ("max_model_len", "max_seq_len"),
        ("max_num_batched_tokens", "max_num_batched_tokens"),
    ):
        value = settings.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and getattr(given, field) in (None, 1):
            yield field, value
    dtype = settings.get("dtype")
    if isinstance(dtype, str) and given.dtype == "auto":
        yield "dtype", dtype.removeprefix("torch.")
    quantization = settings.get("quantization")
    if isinstance(quantization, str) and given.quantization is None:
        yield "quantization", quantization
    load_format = settings.get("load_format")
    if isinstance(load_format, str) and given.load_format == "auto":
        yield "load_format", load_format.removeprefix("LoadFormat.").lower()
    kv_cache_dtype = settings.get("kv_cache_dtype")
    if isinstance(kv_cache_dtype, str) and given.kv_cache_dtype == "auto":
        yield "kv_cache_dtype", kv_cache_dtype
    if settings.get("enforce_eager") is True:
        yield "enforce_eager", True
    compilation = settings.get("compilation_config")
    if isinstance(compilation, dict) and given.capture_sizes is None and not given.enforce_eager:
        sizes = compilation.get("cudagraph_capture_sizes")
        if isinstance(sizes, tuple) and sizes and all(isinstance(size, int) for size in sizes):
            yield "capture_sizes", tuple(sorted(sizes))
