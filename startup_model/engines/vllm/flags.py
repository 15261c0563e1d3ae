"""Flags and variables of vLLM that the prediction uses. Which versions have a flag was read from vLLM 0.3.1 to 0.33.0: engine/arg_utils.py, config, envs.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from startup_model.engines import flags
from startup_model.engines.engine import NOTHING, Flag, Span, Variable
from startup_model.errors import ConfigError, StartupModelError
from startup_model.versions import Version

SETTINGS_FLAG = "--compilation-config"
_LEVELS = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}
# Field -> its key in the settings flag and the first version that has it.
_SETTINGS: Mapping[str, tuple[str, Version]] = {
    "capture_sizes": ("cudagraph_capture_sizes", (0, 6, 5)),
    "cudagraph_mode": ("cudagraph_mode", (0, 10, 1)),
}
_OWN_LEVEL: Version = (0, 12)  # first release whose -O does not stand in the settings


def compose(fields: dict[str, Any], version: Version | None) -> list[str]:
    """``--compilation-config``; an optimisation level stood there, too, before its own flag: a second one would have replaced the first."""
    settings: dict[str, Any] = {}
    for field, (key, since) in _SETTINGS.items():
        if field in fields:
            value = fields.pop(field)
            if version is not None and version < since:
                raise flags.not_in("vllm", field, value, version, [f"{SETTINGS_FLAG} with {key}"])
            settings[key] = value.upper() if isinstance(value, str) else list(value)
    if settings and "optimization_level" in fields and (version is None or version < _OWN_LEVEL):
        level = fields.pop("optimization_level")
        if version is None:
            remedy = f"give version: from {'.'.join(map(str, _OWN_LEVEL))} on it has a flag of its own"
            raise ConfigError("engine.optimization_level", level, "its flag depends on the version", remedy)
        settings["level"] = level
    return [SETTINGS_FLAG, json.dumps(settings)] if settings else []


def _settings(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """``--compilation-config`` / ``-O``: a level, or JSON (or a dict) whose keys are those of the engine."""
    settings: Any = value
    if isinstance(value, str):
        if re.fullmatch(r"[0-3]", value):
            return {"optimization_level": int(value)}
        try:
            settings = json.loads(value)
        except (ValueError, RecursionError):
            settings = None
    if not isinstance(settings, Mapping):
        raise StartupModelError("a level 0-3 or a JSON object")
    fields: dict[str, Any] = {}
    if (level := settings.get("level", settings.get("mode"))) is not None:
        level = _LEVELS.get(level.upper(), level) if isinstance(level, str) else level
        fields["optimization_level"] = flags.integer(str(level))
    if (sizes := settings.get("cudagraph_capture_sizes")) is not None:
        if not isinstance(sizes, list) or any(type(size) is not int for size in sizes):
            raise StartupModelError("cudagraph_capture_sizes as a list of whole numbers")
        fields["capture_sizes"] = tuple(sizes)
    if (largest := settings.get("max_cudagraph_capture_size", settings.get("max_capture_size"))) is not None:
        fields["max_capture_size"] = flags.integer(str(largest))
    if (mode := settings.get("cudagraph_mode")) is not None:
        fields["cudagraph_mode"] = str(mode).lower().removeprefix("cudagraphmode.")
    if settings.get("full_cuda_graph") is True:
        fields["cudagraph_mode"] = "full"
    if settings.get("use_cudagraph") is False:
        fields["cudagraph_mode"] = "none"
    return fields


def _graph_sizes(values: list[str]) -> dict[str, Any]:
    sizes = flags.sizes(values)  # one number is the largest size, several are the list itself
    return {"max_capture_size": sizes[0]} if len(sizes) == 1 else {"capture_sizes": sizes} if sizes else {}


def _prefix_caching(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    """Off by itself before 0.6.5, which brought the negated form."""
    return (flag,) if value else (f"--no-{flag[2:]}",) if version >= (0, 6, 5) else ()


def _chunked_prefill(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    """Off by itself before 0.5.3; then with a value, negated from 0.8.5 on."""
    if value:
        return (flag,)
    return (f"--no-{flag[2:]}",) if version >= (0, 8, 5) else (f"{flag}=false",) if version >= (0, 5, 3) else ()


_WITH = flags.with_value
FLAGS: Mapping[str, Flag] = {
    "--model": Flag("model", flags.model),
    "--tensor-parallel-size": Flag("tp", flags.integer, _WITH),
    "--pipeline-parallel-size": Flag("pp", flags.integer, _WITH),
    "--data-parallel-size": Flag("dp", flags.integer, _WITH, Span((0, 8, 3))),
    "--enable-expert-parallel": Flag("expert_parallel", flags.switch, flags.when(True), Span((0, 8))),
    "--dtype": Flag("dtype", str, _WITH),
    "--quantization": Flag("quantization", str, _WITH),
    "--kv-cache-dtype": Flag("kv_cache_dtype", str, _WITH),
    "--load-format": Flag("load_format", str, _WITH),
    "--gpu-memory-utilization": Flag("gpu_memory_utilization", flags.number, _WITH),
    "--max-model-len": Flag("max_model_len", flags.human_integer, _WITH),
    "--max-num-batched-tokens": Flag("max_num_batched_tokens", flags.human_integer, _WITH),
    "--max-num-seqs": Flag("max_num_seqs", flags.human_integer, _WITH),
    "--block-size": Flag("block_size", flags.integer, _WITH),
    "--swap-space": Flag("swap_space", flags.gib, flags.with_gib, Span(before=(0, 18))),
    "--num-gpu-blocks-override": Flag("num_gpu_blocks_override", flags.integer, _WITH, Span((0, 4, 1))),
    "--kv-cache-memory-bytes": Flag("kv_cache_memory_bytes", flags.human_bytes, _WITH, Span((0, 10, 2))),
    "--enforce-eager": Flag("enforce_eager", flags.switch, flags.when(True)),
    "--max-cudagraph-capture-size": Flag("max_capture_size", flags.integer, _WITH, Span((0, 11, 1))),
    "--cuda-graph-sizes": Flag("max_capture_size", _graph_sizes, _WITH, Span((0, 9), (0, 11, 1))),
    "--cudagraph-capture-sizes": Flag("capture_sizes", flags.sizes),
    SETTINGS_FLAG: Flag(None, _settings, has_keys=True),
    "--optimization-level": Flag(
        "optimization_level", flags.integer, lambda *given: (f"-O{given[1]}",), Span((0, 6, 5))
    ),
    "--max-seq-len-to-capture": Flag("max_seq_len_to_capture", flags.integer, _WITH, Span((0, 4, 3), (0, 11))),
    "--max-context-len-to-capture": Flag("max_seq_len_to_capture", flags.integer, _WITH, Span(before=(0, 4, 3))),
    "--enable-chunked-prefill": Flag("chunked_prefill", flags.switch, _chunked_prefill),
    "--enable-prefix-caching": Flag("prefix_caching", flags.switch, _prefix_caching),
}

VARIABLES: Mapping[str, Variable] = {
    "VLLM_USE_V1": Variable(
        "generation", lambda value: f"v{flags.switch(value):d}", {"v0": "0", "v1": "1"}, Span(before=(0, 11))
    ),
    "VLLM_DISABLE_COMPILE_CACHE": Variable("compile_cache", flags.when_set("cold"), {"cold": "1"}),
    "VLLM_CPU_KVCACHE_SPACE": Variable("kv_cache_memory_bytes", lambda value: flags.gib(value) or NOTHING),
    **flags.TORCH_VARIABLES,
}
