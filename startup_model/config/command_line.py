"""Reading a pasted command line that starts an engine: nothing is executed, expanded or looked up.

Which flags exist and which take no, one or several values comes from a table extracted from the engines' own parsers;
which of them the prediction uses, and for which field, from ``_FLAGS``. Everything else is listed by name, never by
value: values can be secrets.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from startup_model.errors import ConfigError, StartupModelError, shown
from startup_model.units import GIB

__all__ = ["read_command"]

_LONGEST_COMMAND = 65536
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]{0,30}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})=(.*)", re.DOTALL)
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
_IMAGE = re.compile(r"(?:.*/)?(vllm|sglang)[a-z0-9_.-]*(?::v?([0-9][0-9A-Za-z.+_-]{0,60}))?")
_ENVIRONMENT_KEPT = (
    "VLLM_",
    "SGLANG_",
    "CUDA_",
    "NCCL_",
    "TORCH",
    "HF_HUB_",
    "HF_HOME",
    "OMP_",
    "HIP_",
    "ROCR_",
    "ASCEND_",
)
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.IGNORECASE)


class _Unset(NamedTuple):
    """A flag whose value asks for the default."""


# --- values -------------------------------------------------------------------------------------------------------------


def _text(value: str) -> str:
    return value


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


def _positive_or_default(value: str) -> int | _Unset:
    number = _integer(value)
    return number if number > 0 else _Unset()


def _float(value: str) -> float:
    try:
        return float(value[:50])
    except ValueError:
        raise StartupModelError("a number") from None


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


# --- which flags are used -----------------------------------------------------------------------------------------------

_Reader = Callable[[Any], dict[str, Any]]


def _to(field: str, convert: Callable[[Any], Any]) -> _Reader:
    """Reader of a flag that fills one field."""

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


def _compilation_config(value: str) -> dict[str, Any]:
    """``--compilation-config`` / ``-O``: a level, or JSON whose keys are those of the engine."""
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


_FLAGS: Mapping[str, Mapping[str, _Reader]] = {
    "vllm": {
        "--model": _to("model", _text),
        "--tensor-parallel-size": _to("tp", _integer),
        "--pipeline-parallel-size": _to("pp", _integer),
        "--data-parallel-size": _to("dp", _integer),
        "--enable-expert-parallel": _to("expert_parallel", _flag),
        "--dtype": _to("dtype", _text),
        "--quantization": _to("quantization", _text),
        "--kv-cache-dtype": _to("kv_cache_dtype", _text),
        "--load-format": _to("load_format", _text),
        "--gpu-memory-utilization": _to("gpu_memory_utilization", _float),
        "--max-model-len": _to("max_model_len", _human_integer),
        "--max-num-batched-tokens": _to("max_num_batched_tokens", _human_integer),
        "--max-num-seqs": _to("max_num_seqs", _human_integer),
        "--block-size": _to("block_size", _integer),
        "--swap-space": _to("swap_space", _gib),
        "--num-gpu-blocks-override": _to("num_gpu_blocks_override", _integer),
        "--kv-cache-memory-bytes": _to("kv_cache_memory_bytes", lambda value: _as_float(_human_integer(value))),
        "--enforce-eager": _to("enforce_eager", _flag),
        "--cuda-graph-sizes": _capture_sizes,
        "--cudagraph-capture-sizes": _to("capture_sizes", _sizes),
        "--max-cudagraph-capture-size": _to("max_capture_size", _integer),
        "--compilation-config": _compilation_config,
        "--optimization-level": _optimization_level,
        "--max-seq-len-to-capture": _to("max_seq_len_to_capture", _integer),
        "--max-context-len-to-capture": _to("max_seq_len_to_capture", _integer),
        "--enable-chunked-prefill": _to("chunked_prefill", _flag),
        "--enable-prefix-caching": _to("prefix_caching", _flag),
    },
    "sglang": {
        "--model-path": _to("model", _text),
        "--tp-size": _to("tp", _integer),
        "--pp-size": _to("pp", _integer),
        "--dp-size": _to("dp", _integer),
        "--ep-size": _to("expert_parallel", lambda value: _integer(value) > 1),
        "--dtype": _to("dtype", _text),
        "--quantization": _to("quantization", _text),
        "--kv-cache-dtype": _to("kv_cache_dtype", _text),
        "--load-format": _to("load_format", _text),
        "--mem-fraction-static": _to("gpu_memory_utilization", _float),
        "--context-length": _to("max_model_len", _human_integer),
        "--chunked-prefill-size": _to("max_num_batched_tokens", _positive_or_default),
        "--max-running-requests": _to("max_num_seqs", _integer),
        "--page-size": _to("block_size", _integer),
        "--disable-cuda-graph": _to("enforce_eager", _flag),
        "--cuda-graph-max-bs": _to("max_capture_size", _integer),
        "--cuda-graph-bs": _to("capture_sizes", _sizes),
        "--enable-torch-compile": _to("torch_compile", _flag),
        "--disable-radix-cache": _to("prefix_caching", _not),
    },
}
"""Engine -> flag -> what it fills. All other flags are listed in ``unused_flags``."""

_ENVIRONMENT: Mapping[str, _Reader] = {
    "VLLM_USE_V1": lambda value: {"generation": "v1" if _flag(value) else "v0"},
    "VLLM_DISABLE_COMPILE_CACHE": lambda value: {"compile_cache": "cold"} if _flag(value) else {},
    "TORCH_COMPILE_DISABLE": lambda value: {"torch_compile": False} if _flag(value) else {},
    "TORCHDYNAMO_DISABLE": lambda value: {"torch_compile": False} if _flag(value) else {},
    "VLLM_CPU_KVCACHE_SPACE": _to("kv_cache_memory_bytes", _gib),
}
"""Environment variable -> what it fills."""


def _as_float(value: int | _Unset) -> float | _Unset:
    return value if isinstance(value, _Unset) else float(value)


# --- the command --------------------------------------------------------------------------------------------------------


class _Start(NamedTuple):
    """Where in the tokens the engine's own arguments begin."""

    engine: str
    position: int
    version: str | None
    positional_model: bool


class _Shape(NamedTuple):
    """Spellings and arities of one engine's flags."""

    aliases: Mapping[str, str]
    boolean: frozenset[str]
    optional_value: frozenset[str]
    several: frozenset[str]
    names: tuple[str, ...]


def read_command(command: str) -> dict[str, Any]:
    """Fields of an EngineConfig from a command line.

    Raises ConfigError for an empty or unbalanced command, one that starts no known engine, a flag without its value, or
    a value of the wrong kind.
    """
    if not isinstance(command, str) or not command.strip():
        raise ConfigError(
            "command", command, "empty", "paste a line such as 'vllm serve MODEL --tensor-parallel-size 2'"
        )
    if len(command) > _LONGEST_COMMAND:
        raise ConfigError("command", command, f"longer than {_LONGEST_COMMAND} characters", "paste the command only")
    environment: dict[str, str] = {}
    for tokens in _simple_commands(command):
        words = _take_environment(tokens, environment)
        start = _find_engine(words)
        if start is not None:
            return _read_arguments(start, words[start.position :], environment)
    raise ConfigError(
        "command", command.strip(), "it starts no engine that is known here",
        "paste 'vllm serve ...', 'python -m vllm.entrypoints.openai.api_server ...' or 'python -m sglang.launch_server ...'",
    )  # fmt: skip


def _simple_commands(command: str) -> Iterator[list[str]]:
    """The simple commands of a script, as words: lines joined where they continue, pipes and redirections cut off."""
    text = re.sub(r"[ \t]*[\\^`][ \t]*\r?\n[ \t]*", " ", command.replace("\u00a0", " "))
    text = re.sub(r"\r?\n[ \t]*(?=-)", " ", text)  # flags on lines of their own
    text = re.sub(r"\\\s*$", "", text)
    for line in text.splitlines():
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ConfigError("command", line.strip(), f"unbalanced quotes ({error})", "close them") from None
        current: list[str] = []
        skip = False
        for word in words:
            if skip:
                skip = False
            elif word in ("|", "||", "&&", "&", ";", "|&"):
                yield current
                current = []
            elif re.fullmatch(r"[0-9&]?>{1,2}|<", word):
                skip = True
            elif re.match(r"[0-9&]?>{1,2}[^=]|<", word):
                continue
            elif word.startswith("#"):
                break
            elif word.endswith(";") and len(word) > 1:
                yield [*current, word[:-1]]
                current = []
            else:
                current.append(word)
        if current:
            yield current


def _take_environment(tokens: list[str], environment: dict[str, str]) -> list[str]:
    """Words after the assignments in front (``A=b``, ``env A=b``, ``export A=b``); the assignments go into
    ``environment``."""
    words = list(tokens)
    while words:
        match = _ASSIGNMENT.fullmatch(words[0])
        if match:
            environment[match.group(1)] = match.group(2)
        elif words[0] not in ("env", "export", "set", "$", "sudo", "nohup", "exec", "time"):
            break
        del words[0]
    return words


def _find_engine(words: list[str]) -> _Start | None:
    """The engine that the words start, and where its arguments begin; None when they start none."""
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        base = word.rsplit("/", 1)[-1]
        if base in ("vllm", "sglang") and following == "serve":
            return _Start(base, i + 2, None, base == "vllm")
        if word == "-m" and following.split(".")[0] in ("vllm", "sglang") and "." in following:
            return _Start(following.split(".")[0], i + 2, None, positional_model=False)
        if re.search(r"(vllm|sglang)/[A-Za-z_/]{0,60}(api_server|launch_server)\.py$", word):
            return _Start("vllm" if "api_server" in word else "sglang", i + 1, None, positional_model=False)
        image = _IMAGE.fullmatch(word)
        if image and "/" in word and i > 0 and not words[i - 1].startswith("-"):
            # An image: its own entry point starts the engine, unless a command follows.
            inner = _find_engine(words[i + 1 :])
            if inner is not None:
                return inner._replace(position=inner.position + i + 1, version=inner.version or image.group(2))
            if any(flag.startswith("--") for flag in words[i + 1 :]):
                return _Start(image.group(1), i + 1, image.group(2), positional_model=True)
    if words and words[0].startswith("--"):
        names = {word.split("=")[0].replace("_", "-") for word in words}
        return _Start("sglang" if "--model-path" in names else "vllm", 0, None, positional_model=False)
    return None


def _read_arguments(start: _Start, words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    shape, readers = _shape(start.engine), _FLAGS[start.engine]
    fields: dict[str, Any] = {"engine": start.engine}
    unused: list[str] = []
    for name, value in environment.items():
        if name in _ENVIRONMENT:
            fields |= _converted(name, _ENVIRONMENT[name], value)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            if start.positional_model and "model" not in fields:
                fields["model"] = word
            else:
                unused.append(word[:80])
            continue
        spelled, has_value, inline = word.partition("=")
        if not has_value and re.fullmatch(r"-O[0-3]", word):
            spelled, has_value, inline = "-O", "=", word[2:]
        flag, dotted = _canonical(spelled, shape)
        negated = (
            flag.startswith("--no-")
            and flag not in shape.names
            and "--" + flag[5:] in shape.boolean | shape.optional_value
        )
        if negated:
            flag = "--" + flag[5:]
        values, position = _values(flag, inline if has_value else None, words, position, shape, negated=negated)
        if dotted and flag == "--compilation-config":
            fields |= _converted(spelled, _compilation_settings, {dotted: _json_or_text(values[0])})
        elif flag in readers and not dotted:
            fields |= _converted(spelled, readers[flag], values if flag in shape.several else values[0])
        elif spelled not in unused:
            unused.append(spelled[:80])
    kept = {
        name: value
        for name, value in environment.items()
        if name.startswith(_ENVIRONMENT_KEPT) and not _SECRET.search(name)
    }
    return fields | {
        "version": start.version,
        "environment": {name: value[:200] for name, value in list(kept.items())[:100]},
        "unused_flags": tuple(unused),
    }


def _canonical(spelled: str, shape: _Shape) -> tuple[str, str]:
    """The full name of a flag and the key after its dot, for instance ``-O.level`` -> (``--compilation-config``,
    ``level``)."""
    stem, _, dotted = spelled.partition(".")
    if stem.startswith("--"):
        stem = stem.replace("_", "-")
    stem = shape.aliases.get(stem, stem)
    if stem not in shape.names and stem.startswith("--"):
        candidates = [name for name in shape.names if name.startswith(stem)]
        if len(candidates) == 1 and not stem.startswith("--no-"):
            stem = candidates[0]
        elif stem.removeprefix("-") in shape.aliases:  # --tp for -tp
            stem = shape.aliases[stem.removeprefix("-")]
        elif f"{stem}-size" in shape.names:  # SGLang's --tp for --tp-size, short of unique
            stem = f"{stem}-size"
    return stem, dotted


def _values(
    flag: str, inline: str | None, words: list[str], position: int, shape: _Shape, *, negated: bool
) -> tuple[list[str], int]:
    """The values of a flag and the position after them. Raises ConfigError when one is missing."""
    if negated:
        return ["false"], position
    takes_no_value = flag in shape.boolean
    follows = position < len(words) and (
        not words[position].startswith("-") or bool(_NUMBER.fullmatch(words[position]))
    )
    if takes_no_value or flag in shape.optional_value:
        if inline is not None:
            return [inline], position
        if follows and words[position].lower() in ("true", "false"):
            return [words[position]], position + 1
        return ["true"], position
    values = [] if inline is None else [inline]
    if flag in shape.several:
        while position < len(words) and (not words[position].startswith("-") or _NUMBER.fullmatch(words[position])):
            values.append(words[position])
            position += 1
    elif inline is None and follows:
        values, position = [words[position]], position + 1
    if not values:
        if flag in shape.names:
            raise ConfigError(flag, "", "the flag needs a value", "give it, or leave the flag out")
        values = ["true"]
    return values, position


def _converted(name: str, reader: _Reader, value: Any) -> dict[str, Any]:
    try:
        return reader(value)
    except ConfigError:
        raise
    except StartupModelError as expected:
        given = " ".join(value) if isinstance(value, list) else value
        raise ConfigError(name, given, f"it should be {expected}", "correct the command") from None


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return shown(value).strip("'\"")


@lru_cache(maxsize=4)
def _shape(engine: str) -> _Shape:
    """The flags of one engine, from the table that comes with the package."""
    table = json.loads(files("startup_model").joinpath("data/flags.json").read_text(encoding="utf-8"))[engine]
    several, boolean, optional = (frozenset(table[kind]) for kind in ("list", "boolean", "optional_value"))
    return _Shape(table["aliases"], boolean, optional, several, (*several, *boolean, *optional, *table["value"]))
