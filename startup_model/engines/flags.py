"""Flags and variables of the engines that the prediction uses: which field each fills, how its value is read, and how a field is written again.

One table for both ways. Which versions have a flag was read from the engines' published source packages, vLLM 0.3.1 to 0.33.0 (engine/arg_utils.py,
config, envs.py) and SGLang 0.4.6 to 0.5.23 (srt/server_args.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from startup_model.errors import ConfigError, StartupModelError
from startup_model.units import GIB
from startup_model.versions import Version

__all__ = ["FLAGS", "KEPT_VARIABLES", "MODEL_FLAG", "VARIABLES", "Flag", "Variable", "Written", "write_fields"]

_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_HUMAN_INTEGER = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([kKmMgGtT]?)")
_HUMAN_FACTORS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]{1,500}@")
_FIRST: Version = ()
_NEVER: Version = (10**9,)


class _Unset(NamedTuple):
    """A flag whose value asks for the default."""


# --- values -------------------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return value


def _model(value: str) -> str:
    """A model's name or address, without user, password and query of a URL: they may be secrets."""
    if "://" not in value:
        return value
    return _URL_CREDENTIALS.sub("", re.split(r"[?#]", value, maxsplit=1)[0])


def _integer(value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        raise StartupModelError("a whole number")
    return int(value)


def _human_integer(value: str) -> int | _Unset:
    """vLLM's spelling of large numbers: ``8k`` is 8000 and ``8K`` 8192; ``auto`` and -1 leave the default."""
    if value.lower() == "auto" or value == "-1":
        return _Unset()
    match = _HUMAN_INTEGER.fullmatch(value)
    if match is None:
        raise StartupModelError("a whole number such as 8192, 8k or 8K")
    return int(float(match.group(1)) * _HUMAN_FACTORS[match.group(2)]) if match.group(2) else _integer(match.group(1))


def _human_bytes(value: str) -> float | _Unset:
    number = _human_integer(value)
    return number if isinstance(number, _Unset) else float(number)


def _positive_or_default(value: str) -> int | _Unset:
    number = _integer(value)
    return number if number > 0 else _Unset()


def _float(value: str) -> float:
    if not _DECIMAL.fullmatch(value):
        raise StartupModelError("a number")
    return float(value)


def _gib(value: str) -> float:
    return _float(value) * GIB


def _flag(value: str) -> bool:
    if value.lower() in ("true", "1", "yes", "on"):
        return True
    if value.lower() in ("false", "0", "no", "off"):
        return False
    raise StartupModelError("true or false")


def _not(value: str) -> bool:
    return not _flag(value)


def _sizes(values: list[str]) -> tuple[int, ...]:
    return tuple(_integer(part) for value in values for part in value.replace(",", " ").strip("[] ").split())


# --- readers ------------------------------------------------------------------------------------------------------------

_Reader = Callable[[Any], dict[str, Any]]


def _fills(field: str, convert: Callable[[Any], Any]) -> _Reader:
    """Reader that fills one field."""

    def read(value: Any) -> dict[str, Any]:
        converted = convert(value)
        return {} if isinstance(converted, _Unset) else {field: converted}

    return read


def _capture_sizes(values: list[str]) -> dict[str, Any]:
    """``--cuda-graph-sizes``: one number is the largest size, several are the list itself."""
    sizes = _sizes(values)
    return {"max_capture_size": sizes[0]} if len(sizes) == 1 else {"capture_sizes": sizes} if sizes else {}


def _optimization_level(value: str) -> dict[str, Any]:
    return {"optimization_level": _integer(value)}


def _compilation_config(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """``--compilation-config`` / ``-O``: a level, or JSON (or a dict) whose keys are those of the engine."""
    if isinstance(value, Mapping):
        return _compilation_settings(value)
    if re.fullmatch(r"[0-3]", value):
        return _optimization_level(value)
    try:
        settings = json.loads(value)
    except (ValueError, RecursionError):
        raise StartupModelError("a level 0-3 or a JSON object") from None
    if not isinstance(settings, dict):
        raise StartupModelError("a level 0-3 or a JSON object")
    return _compilation_settings(settings)


def _compilation_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    level = settings.get("level", settings.get("mode"))
    names = {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "DYNAMO_TRACE_ONCE": 2, "VLLM_COMPILE": 3}
    if isinstance(level, str):
        level = names.get(level.upper(), level)
    if level is not None:
        fields["optimization_level"] = _integer(str(level))
    sizes = settings.get("cudagraph_capture_sizes")
    if sizes is not None:
        if not isinstance(sizes, list) or not all(
            isinstance(size, int) and not isinstance(size, bool) for size in sizes
        ):
            raise StartupModelError("cudagraph_capture_sizes as a list of whole numbers")
        fields["capture_sizes"] = tuple(sizes)
    largest = settings.get("max_cudagraph_capture_size", settings.get("max_capture_size"))
    if largest is not None:
        fields["max_capture_size"] = _integer(str(largest))
    mode = settings.get("cudagraph_mode")
    if mode is not None:
        fields["cudagraph_mode"] = str(mode).lower().removeprefix("cudagraphmode.")
    if settings.get("full_cuda_graph") is True:
        fields["cudagraph_mode"] = "full"
    if settings.get("use_cudagraph") is False:
        fields["cudagraph_mode"] = "none"
    return fields


# --- writers ------------------------------------------------------------------------------------------------------------

_Writer = Callable[[str, Any, Version], tuple[str, ...] | None]
"""(flag, value, version) -> its words; none where the engine does it by itself; None where the flag cannot say it."""


def _with_value(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return (flag, *map(str, value))
    return (flag, str(int(value)) if isinstance(value, float) and value.is_integer() else str(value))


def _with_gib(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    return _with_value(flag, value / GIB, version)


def _when(meant: bool) -> _Writer:
    """Writer of a flag without a value that says one of the two; the other is what the engine does by itself."""
    return lambda flag, value, version: (flag,) if value is meant else ()


def _prefix_caching(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    """Off by itself before 0.6.5, which brought the negated form."""
    return (flag,) if value else (f"--no-{flag[2:]}",) if version >= (0, 6, 5) else ()


def _chunked_prefill(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    """Off by itself before 0.5.3; then with a value, negated from 0.8.5 on."""
    if value:
        return (flag,)
    return (f"--no-{flag[2:]}",) if version >= (0, 8, 5) else (f"{flag}=false",) if version >= (0, 5, 3) else ()


def _level(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    return (f"-O{value}",)


def _none(flag: str, value: Any, version: Version) -> None:
    return None


# --- the tables ---------------------------------------------------------------------------------------------------------


class Flag(NamedTuple):
    """What a flag fills, and how."""

    read: _Reader
    """Its value (values, of a flag that takes several) -> fields. Raises StartupModelError that says what it should be."""
    field: str | None = None
    """Field that it is written for; None: it is only read."""
    write: _Writer = _none
    since: Version = _FIRST
    """First version that has it."""
    before: Version = _NEVER
    """First version that has it no more."""


class Variable(NamedTuple):
    """What an environment variable fills, and how."""

    read: _Reader
    field: str | None = None
    values: Mapping[Any, str] = {}
    """Value of the field -> that of the variable."""
    before: Version = _NEVER
    """First version that does it by itself."""


def _to(
    field: str,
    convert: Callable[[Any], Any],
    write: _Writer = _with_value,
    since: Version = _FIRST,
    before: Version = _NEVER,
) -> Flag:
    """A flag that fills one field."""
    return Flag(_fills(field, convert), field, write, since, before)


FLAGS: Mapping[str, Mapping[str, Flag]] = {
    "vllm": {
        "--model": Flag(_fills("model", _model)),
        "--tensor-parallel-size": _to("tp", _integer),
        "--pipeline-parallel-size": _to("pp", _integer),
        "--data-parallel-size": _to("dp", _integer, since=(0, 8, 3)),
        "--enable-expert-parallel": _to("expert_parallel", _flag, _when(True), since=(0, 8)),
        "--dtype": _to("dtype", _text),
        "--quantization": _to("quantization", _text),
        "--kv-cache-dtype": _to("kv_cache_dtype", _text),
        "--load-format": _to("load_format", _text),
        "--gpu-memory-utilization": _to("gpu_memory_utilization", _float),
        "--max-model-len": _to("max_model_len", _human_integer),
        "--max-num-batched-tokens": _to("max_num_batched_tokens", _human_integer),
        "--max-num-seqs": _to("max_num_seqs", _human_integer),
        "--block-size": _to("block_size", _integer),
        "--swap-space": _to("swap_space", _gib, _with_gib, before=(0, 18)),
        "--num-gpu-blocks-override": _to("num_gpu_blocks_override", _integer, since=(0, 4, 1)),
        "--kv-cache-memory-bytes": _to("kv_cache_memory_bytes", _human_bytes, since=(0, 10, 2)),
        "--enforce-eager": _to("enforce_eager", _flag, _when(True)),
        "--max-cudagraph-capture-size": _to("max_capture_size", _integer, since=(0, 11, 1)),
        "--cuda-graph-sizes": Flag(_capture_sizes, "max_capture_size", _with_value, (0, 9), (0, 11, 1)),
        "--cudagraph-capture-sizes": Flag(_fills("capture_sizes", _sizes)),
        "--compilation-config": Flag(_compilation_config),
        "--optimization-level": Flag(_optimization_level, "optimization_level", _level, since=(0, 6, 5)),
        "--max-seq-len-to-capture": _to("max_seq_len_to_capture", _integer, since=(0, 4, 3), before=(0, 11)),
        "--max-context-len-to-capture": _to("max_seq_len_to_capture", _integer, before=(0, 4, 3)),
        "--enable-chunked-prefill": _to("chunked_prefill", _flag, _chunked_prefill),
        "--enable-prefix-caching": _to("prefix_caching", _flag, _prefix_caching),
    },
    "sglang": {
        "--model-path": Flag(_fills("model", _model)),
        "--tp-size": _to("tp", _integer),
        "--pp-size": _to("pp", _integer),
        "--dp-size": _to("dp", _integer),
        "--ep-size": Flag(_fills("expert_parallel", lambda value: _integer(value) > 1)),
        "--dtype": _to("dtype", _text),
        "--quantization": _to("quantization", _text),
        "--kv-cache-dtype": _to("kv_cache_dtype", _text),
        "--load-format": _to("load_format", _text),
        "--mem-fraction-static": _to("gpu_memory_utilization", _float),
        "--context-length": _to("max_model_len", _human_integer),
        "--chunked-prefill-size": _to("max_num_batched_tokens", _positive_or_default),
        "--max-running-requests": _to("max_num_seqs", _integer),
        "--page-size": _to("block_size", _integer),
        "--disable-cuda-graph": _to("enforce_eager", _flag, _when(True)),
        "--cuda-graph-max-bs": _to("max_capture_size", _integer),
        "--cuda-graph-bs": _to("capture_sizes", _sizes),
        "--enable-torch-compile": _to("torch_compile", _flag, _when(True)),
        "--disable-radix-cache": _to("prefix_caching", _not, _when(False)),
    },
}
"""Engine -> flag -> what it fills. All other flags are listed in ``unused_flags``."""

MODEL_FLAG: Mapping[str, str] = {"vllm": "--model", "sglang": "--model-path"}

_TORCH: Mapping[str, Variable] = {
    "TORCH_COMPILE_DISABLE": Variable(
        lambda value: {"torch_compile": False} if _flag(value) else {}, "torch_compile", {False: "1"}
    ),
    "TORCHDYNAMO_DISABLE": Variable(lambda value: {"torch_compile": False} if _flag(value) else {}),
}

VARIABLES: Mapping[str, Mapping[str, Variable]] = {
    "vllm": {
        "VLLM_USE_V1": Variable(
            lambda value: {"generation": "v1" if _flag(value) else "v0"}, "generation", {"v0": "0", "v1": "1"}, (0, 11)
        ),
        "VLLM_DISABLE_COMPILE_CACHE": Variable(
            lambda value: {"compile_cache": "cold"} if _flag(value) else {}, "compile_cache", {"cold": "1"}
        ),
        "VLLM_CPU_KVCACHE_SPACE": Variable(_fills("kv_cache_memory_bytes", lambda value: _gib(value) or _Unset())),
        **_TORCH,
    },
    "sglang": _TORCH,
}
"""Engine -> environment variable -> what it fills."""

KEPT_VARIABLES = (
    "VLLM_", "SGLANG_", "CUDA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_HUB_", "HF_HOME", "OMP_", "MKL_", "HIP_", "ROCR_",
    "ASCEND_", "LD_PRELOAD", "TOKENIZERS_",
)  # fmt: skip
"""Beginnings of the variables that change how an engine starts."""


# --- from fields to words -----------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """Fields as a command line says them."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    silent: frozenset[str]
    """Fields that need no word: the engine does so by itself."""


_STATE = "it is no flag but a state that a start finds: leave it unknown"
_REMEDIES: Mapping[str, str] = {
    "page_cache": _STATE,
    "compile_cache": _STATE,
    "lazy_experts": "leave it out",
    "offline": "leave it out: a command line starts a server",
}
_SETTINGS: Mapping[str, tuple[str, Version]] = {
    "capture_sizes": ("cudagraph_capture_sizes", (0, 6, 5)),
    "cudagraph_mode": ("cudagraph_mode", (0, 10, 1)),
}
"""Field -> its key in vLLM's ``--compilation-config`` and the first version that has it."""
_OWN_LEVEL: Version = (0, 12)
"""First vLLM release whose ``-O`` does not stand in the compilation config."""


def write_fields(engine: str, fields: Mapping[str, Any], version: Version | None) -> Written:
    """Flags and variables that set ``fields``, by the spelling of a version (None: the newest one).

    Raises ConfigError for a field that no flag or variable of the engine sets, or none that this version has.
    """
    words: list[str] = []
    variables: dict[str, str] = {}
    silent = set()
    rest = dict(fields)
    if engine == "vllm":
        words += _compilation_words(rest, version)
    if engine == "sglang" and rest.get("expert_parallel") is True and (ranks := rest.get("tp", 1)) > 1:
        words += ["--ep-size", str(ranks)]
        del rest["expert_parallel"]
    for field, value in rest.items():
        found = _flag_words(engine, field, value, version)
        setting = _assignment(engine, field, value, version) if found is None else {}
        if setting is None:
            remedy = _REMEDIES.get(field, "leave it out, or give the command line itself")
            raise ConfigError(f"engine.{field}", value, f"no flag of {engine} sets it", remedy)
        words += found or ()
        variables |= setting
        if not found and not setting:
            silent.add(field)
    return Written(tuple(words), variables, frozenset(silent))


def _flag_words(engine: str, field: str, value: Any, version: Version | None) -> tuple[str, ...] | None:
    """The words of a field; None where no flag is for it."""
    candidates = [(name, flag) for name, flag in FLAGS[engine].items() if flag.field == field]
    if not candidates:
        return None
    if version is None:
        name, flag = max(candidates, key=lambda candidate: candidate[1].before)
        return flag.write(name, value, _NEVER)
    for name, flag in candidates:
        if flag.since <= version < flag.before:
            return flag.write(name, value, version)
    raise _not_in(engine, field, value, version, [name for name, _ in candidates])


def _assignment(engine: str, field: str, value: Any, version: Version | None) -> dict[str, str] | None:
    """The variable of a field, none where the version does it by itself; None where no variable is for it."""
    for name, variable in VARIABLES[engine].items():
        if variable.field == field and value in variable.values:
            return {name: variable.values[value]} if version is None or version < variable.before else {}
    return None


def _compilation_words(fields: dict[str, Any], version: Version | None) -> list[str]:
    """``--compilation-config`` for what stands in it; these fields are taken out of ``fields``.

    An optimisation level stood there, too, before it got a flag of its own: a second flag would then have replaced the first.
    """
    settings: dict[str, Any] = {}
    for field, (key, since) in _SETTINGS.items():
        if field in fields:
            value = fields.pop(field)
            if version is not None and version < since:
                raise _not_in("vllm", field, value, version, [f"--compilation-config with {key}"])
            settings[key] = value.upper() if isinstance(value, str) else list(value)
    if settings and "optimization_level" in fields and (version is None or version < _OWN_LEVEL):
        level = fields.pop("optimization_level")
        if version is None:
            remedy = f"give version: from {'.'.join(map(str, _OWN_LEVEL))} on it has a flag of its own"
            raise ConfigError("engine.optimization_level", level, "its flag depends on the version", remedy)
        settings["level"] = level
    return ["--compilation-config", json.dumps(settings)] if settings else []


def _not_in(engine: str, field: str, value: Any, version: Version, flags: Iterable[str]) -> ConfigError:
    shown = ".".join(map(str, version))
    return ConfigError(f"engine.{field}", value, f"{engine} {shown} has no {' or '.join(flags)}", "leave it out")
