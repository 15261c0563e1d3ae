"""Reading a pasted command line that starts an engine: nothing is executed or looked up, and the only variables that
are filled in are those that the paste itself sets.

Which flags exist and which take no, one or several values comes from a table extracted from the engines' own parsers;
which of them the prediction uses, and for which field, from ``_FLAGS``. Everything else is listed by name, never by
value: values can be secrets.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

from startup_model.config.versions import parse_version
from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.units import GIB

__all__ = ["known_flags", "read_command"]

_LONGEST_COMMAND = 65536
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]{0,30}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
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
_IMAGE = re.compile(
    r"(vllm|sglang)[a-z0-9_.-]{0,60}(?::([A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}))?(?:@sha256:[0-9a-f]{1,64})?"
)
_PINNED = re.compile(r"(?:vllm|sglang)(?:\[[a-z0-9,_-]{0,60}\])?==([0-9][0-9A-Za-z.+]{0,60})")
_SCRIPT = re.compile(r"(?:vllm|sglang)/[A-Za-z_/]{0,60}(?:api_server|launch_server)\.py")
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
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|SIGNATURE|COOKIE", re.IGNORECASE)
_LOOKS_SECRET = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|eyJ)[A-Za-z0-9_-]{6,}")
_ASSIGNED_SECRET = re.compile(
    r"([A-Za-z0-9_-]{0,40}(?:token|key|secret|pass|credential|auth)[A-Za-z0-9_-]{0,40}(?:=|:\s{0,2}|\s{1,4}))(?!-)\S{1,4096}",
    re.IGNORECASE,
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]{1,500}@")
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,100})(?::?-([^{}$`]{0,300}))?\}|([A-Za-z_][A-Za-z0-9_]{0,100}))"
)
_LONGEST_VARIABLE = 300
_MOST_UNUSED = 300
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_LOOK_ALIKES = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u201a": "'", "\r": "\n"}
    | dict.fromkeys(
        "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\f\v", " "
    )
    | dict.fromkeys("\u2028\u2029\u0085", "\n")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\0")
)
"""What word processors and web pages put in the place of plain quotes, spaces and line breaks, or between letters."""


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
        "--model": _to("model", _model),
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
        "--model-path": _to("model", _model),
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
    "VLLM_CPU_KVCACHE_SPACE": _to("kv_cache_memory_bytes", lambda value: _gib(value) or _Unset()),
}
"""Environment variable -> what it fills."""


def _as_float(value: int | _Unset) -> float | _Unset:
    return value if isinstance(value, _Unset) else float(value)


# --- the command --------------------------------------------------------------------------------------------------------


class _Start(NamedTuple):
    """Where in the words the engine's own arguments begin."""

    engine: str
    position: int
    version: str | None
    positional_model: bool
    image: int | None = None
    """Position of the container image, when there is one: options of the container runtime stand before it."""


class _Shape(NamedTuple):
    """Spellings and arities of one engine's flags."""

    aliases: Mapping[str, str]
    boolean: frozenset[str]
    optional_value: frozenset[str]
    several: frozenset[str]
    names: tuple[str, ...]
    """All of them, in order."""
    known: frozenset[str]


def read_command(command: str) -> dict[str, Any]:
    """Fields of an EngineConfig from a command line, a script with one, or the container part of a manifest.

    Raises ConfigError for an empty or unbalanced command, one that starts no known engine, a flag without its value, or
    a value of the wrong kind.
    """
    if not isinstance(command, str) or not command.strip():
        raise ConfigError(
            "command", command, "empty", "paste a line such as 'vllm serve MODEL --tensor-parallel-size 2'"
        )
    if len(command) > _LONGEST_COMMAND:
        raise ConfigError(
            "command", _redacted(command), f"longer than {_LONGEST_COMMAND} characters", "paste the command only"
        )
    if not command.isascii() and any("\ud800" <= character <= "\udfff" for character in command):
        raise ConfigError("command", _redacted(command), "not UTF-8 text", "paste it again as plain text")
    text = command.replace("\r\n", "\n").translate(_LOOK_ALIKES)
    fields = _read_manifest(text) if _MANIFEST.search(text) else _read_script(text, {})
    if fields is None:
        raise ConfigError(
            "command", _redacted(command.strip()), "it starts no engine that is known here",
            "paste 'vllm serve ...', 'python -m vllm.entrypoints.openai.api_server ...' or 'python -m sglang.launch_server ...'",
        )  # fmt: skip
    return fields


def _read_script(text: str, environment: dict[str, str], depth: int = 0) -> dict[str, Any] | None:
    """The fields of the first command that starts an engine, or None; assignments go into ``environment``."""
    for tokens in _simple_commands(re.sub(r"\A\s*[>$%]\s+", "", text)):
        words = _take_environment(tokens, environment)
        fields = _read_words(words, environment, depth)
        if fields is not None:
            return fields
    return None


def _read_words(words: list[str], environment: dict[str, str], depth: int = 0) -> dict[str, Any] | None:
    """The fields of one command, or None when it starts no engine; scripts of ``bash -c`` are read too."""
    start = _find_engine(words)
    if start is not None:
        if start.image is not None:
            _take_container_environment(words[: start.image], environment)
        return _read_arguments(start, words[start.position :], environment)
    for option, script in pairwise(words):
        if re.fullmatch(r"-[a-z]{0,4}c", option) and depth < 2:
            return _read_script(script, environment, depth + 1)
    return None


def _redacted(command: str) -> str:
    """The beginning of a command for a message, without what may be a secret."""
    text = _ASSIGNED_SECRET.sub(r"\1***", command[:400])
    return _URL_CREDENTIALS.sub("***@", _LOOKS_SECRET.sub("***", text))


_PIECE = re.compile(
    r"""
    (?P<blank>  (?:[ \t]|[\\^`][ \t]*(?:\n|\Z)|\n[ \t\n]*(?=[-DASHES#]))+ )
  | (?P<end>    \n[ \t\n]* | &&? | \|[|&]? | ;+ )(?!>)
  | (?P<single> '[^']*' )
  | (?P<double> "(?:[^"\\]|\\.)*" )
  | (?P<escape> \\. )
  | (?P<redirection> &?(?:>>?|<<?<?)[&|]?-? )
  | (?P<bare>   [^\s'"\\|&;<>^`]+ )
  | (?P<other>  . )
    """.replace("DASHES", _DASHES),
    re.VERBOSE | re.DOTALL,
)


def _simple_commands(text: str) -> Iterator[list[str]]:  # noqa: PLR0912  one branch for each kind of piece
    """The simple commands of a script, as words: lines joined where they continue, comments and redirections left out.

    A line that begins with a dash continues the one before it, with or without a backslash. Raises ConfigError for a
    quote that is not closed.
    """
    words: list[str] = []
    word: str | None = None
    redirected = False  # the next word is the file of a redirection
    position = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:  # pragma: no cover - the last alternative takes any character
            break
        kind, content, position = piece.lastgroup, piece.group(), piece.end()
        if kind == "bare" and word is None and content.startswith("#"):
            line_end = text.find("\n", position)
            position = len(text) if line_end < 0 else line_end
        elif kind in ("bare", "single", "double", "escape", "other"):
            if kind == "other" and content in "'\"":
                raise ConfigError(
                    "command",
                    _redacted(text),
                    "unbalanced quotes (No closing quotation)",
                    "close them",
                )
            if kind == "double":
                content = re.sub(r"\\(\n|[\"\\$`])", lambda m: m.group(1).strip("\n"), content[1:-1])
            word = (word or "") + (content[1:-1] if kind == "single" else content[1:] if kind == "escape" else content)
        else:
            if kind == "redirection" and word is not None and word.isdigit():
                word = None  # 2>&1
            if word is not None and not redirected:
                words.append(word)
            if word is not None or kind == "end":
                redirected = False
            word = None
            if kind == "redirection":
                redirected = True
            elif kind == "end" and words:
                yield words
                words = []
    if word is not None and not redirected:
        words.append(word)
    if words:
        yield words


def _take_environment(tokens: list[str], environment: dict[str, str]) -> list[str]:
    """Words after the assignments in front (``A=b``, ``env A=b``, ``export A=b``); the assignments go into
    ``environment``."""
    for position, word in enumerate(tokens):
        match = _ASSIGNMENT.fullmatch(word)
        if match:
            environment[match.group(1)] = match.group(2)
        elif word not in ("env", "export", "set", "$", "sudo", "nohup", "exec", "time"):
            return tokens[position:]
    return []


def _take_container_environment(words: list[str], environment: dict[str, str]) -> None:
    """Put what ``-e A=b``, ``--env A=b`` and ``--env=A=b`` of a container runtime set into ``environment``."""
    for i, word in enumerate(words):
        option, _, inline = word.partition("=")
        if option in ("-e", "--env"):
            match = _ASSIGNMENT.fullmatch(inline or (words[i + 1] if i + 1 < len(words) else ""))
            if match:
                environment[match.group(1)] = match.group(2)


def _find_engine(words: list[str]) -> _Start | None:
    """The engine that the words start, and where its arguments begin; None when they start none."""
    image: tuple[int, str, str | None] | None = None
    pinned: str | None = None
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        base = word.rsplit("/", 1)[-1].removesuffix(".exe")
        found: tuple[str, int, bool] | None = None
        if base in ("vllm", "sglang") and following == "serve":
            found = (base, i + 2, base == "vllm")
        elif word == "-m" and following.split(".")[0] in ("vllm", "sglang") and "." in following:
            found = (following.split(".")[0], i + 2, False)
        elif word.endswith("_server.py") and _SCRIPT.search(word[-200:]):
            found = ("vllm" if word.endswith("api_server.py") else "sglang", i + 1, False)
        if found:
            engine, position, positional = found
            if words[position : position + 1] == ["serve"]:  # python -m vllm.entrypoints.cli.main serve
                position, positional = position + 1, True
            version = image[2] if image else pinned
            return _Start(engine, position, version, positional, image[0] if image else None)
        pin = _PINNED.fullmatch(word.removeprefix("--with=").removeprefix("--from="))
        pinned = pin.group(1) if pin else pinned
        named = _IMAGE.fullmatch(base) if "/" in word and image is None else None
        previous = words[i - 1] if i else ""
        if named and (word.startswith("--image=") or previous == "--image" or _may_be_image(words, i)):
            image = (i, named.group(1), _release(named.group(2)))
    if image is not None:  # its own entry point starts the engine
        position = image[0] + 1
        while words[position : position + 1] in (["--"], ["serve"]):
            position += 1
        return _Start(image[1], position, image[2], positional_model=True, image=image[0])
    if words and words[0].startswith("-"):
        names = {word.split("=")[0].replace("_", "-") for word in words}
        if words[0].startswith("--") or words[0] in _shape("vllm").aliases:
            return _Start("sglang" if "--model-path" in names else "vllm", 0, None, positional_model=False)
    return None


def _may_be_image(words: list[str], position: int) -> bool:
    """Whether the word at ``position`` can be the image of a container runtime: the runtime comes before it and it is
    no value of an option, or flags of an engine follow."""
    runs = any(word.rsplit("/", 1)[-1] in ("docker", "podman", "nerdctl") for word in words[: min(position, 10)])
    previous = words[position - 1] if position else ""
    takes_value = previous.startswith("-") and "=" not in previous and previous not in _SWITCHES
    return runs and (not takes_value or previous == "--")


_SWITCHES = frozenset({"--rm", "-it", "-ti", "-i", "-t", "-d", "-dit", "-itd", "-td", "--detach", "--interactive", "--tty", "--privileged", "--init", "--no-healthcheck", "--read-only"})  # fmt: skip
"""Options of container runtimes that take no value."""


def _release(tag: str | None) -> str | None:
    """The engine's release that an image tag names, or None: ``latest`` and tags made of dates name none."""
    if tag is None:
        return None
    inner = re.search(r"(?:vllm|sglang)[_-]v?([0-9]{1,3}(?:\.[0-9]{1,4}){1,3})", tag)  # rocm6.4_vllm_0.9.1_...
    text = inner.group(1) if inner else tag.removeprefix("v")
    try:
        return text if parse_version(text) < (20,) else None
    except ConfigError:
        return None


# --- manifests ----------------------------------------------------------------------------------------------------------

_MANIFEST = re.compile(
    r"\A\s*\[|\A[ \t\n]*-[ \t]|^[ \t]*(?:-[ \t]+)?\"?(?:args|command|entrypoint|image|containers|services)\"?:(?:\s|$)",
    re.MULTILINE,
)
_ENTRY = re.compile(r"(?:-[ \t]+)?[\"']?([A-Za-z_][A-Za-z0-9_.-]{0,100})[\"']?:(?:[ \t]+(.*))?")
_ITEM = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s,\[\]\"'][^,\[\]]*)")


def _read_manifest(text: str) -> dict[str, Any] | None:  # noqa: PLR0912, PLR0915  one branch for each kind of line
    """The fields from ``image``, ``command``, ``args`` and ``env`` of a container in YAML or JSON (Kubernetes,
    Compose), or from a bare list of arguments. The lists and texts that such parts hold are read, not all of YAML."""
    lists: dict[str, list[str]] = {"entrypoint": [], "command": [], "args": []}
    environment: dict[str, str] = {}
    image = variable = ""
    key = "args" if re.match(r"\s*(?:\[|-[ \t])", text) else ""
    flow = block = False
    lines: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        entry = None if flow else _ENTRY.fullmatch(stripped)
        if entry and not (block and entry.group(1) not in (*lists, "image", "env", "resources", "ports", "name")):
            if key == "environment" and entry.group(1).isupper():
                environment[entry.group(1)] = _unquoted(entry.group(2) or "")
                continue
            if block:
                lists[key].append("\n".join(lines))
            key, value, block = entry.group(1), entry.group(2) or "", False
            if key == "image":
                image = _unquoted(value)
            elif key == "name":
                variable = _unquoted(value)
            elif key == "value" and _ASSIGNMENT.fullmatch(f"{variable}="):
                environment[variable] = _unquoted(value)
            stripped = value
            if key in lists and value and not value.startswith(("[", "|", ">", "&", "*")):
                lists[key] += [word for words in _simple_commands(value) for word in words]
        if key not in (*lists, "environment") or not stripped:
            continue
        if block:
            lines.append(stripped)
        elif flow or stripped.startswith("["):
            if key in lists:
                lists[key] += [_item(match) for match in _ITEM.finditer(stripped)]
            flow = not re.search(r"\][ \t]*,?$", stripped)
        elif re.fullmatch(r"(?:-[ \t]+)?[|>][-+0-9]{0,2}", stripped):
            block, lines = True, []
        elif stripped.startswith("-") and stripped[1:2] in (" ", "\t"):
            item = _unquoted(stripped[1:])
            match = _ASSIGNMENT.fullmatch(item)
            if key in lists:
                lists[key].append(item)
            elif match:
                environment[match.group(1)] = match.group(2)
    if block and key in lists:
        lists[key].append("\n".join(lines))
    words = [*lists["entrypoint"], *lists["command"], *lists["args"]]
    if image and _find_engine(words) is None and not any(re.fullmatch(r"-[a-z]{0,4}c", word) for word in words):
        words = ["docker", image, *words]
    elif image:
        named = _IMAGE.fullmatch(image.rsplit("/", 1)[-1])
        fields = _read_first(words, environment)
        return fields and fields | {"version": fields["version"] or (_release(named.group(2)) if named else None)}
    return _read_first(words, environment)


def _read_first(words: list[str], environment: dict[str, str]) -> dict[str, Any] | None:
    """The fields of the words as one command, else of a script among them."""
    fields = _read_words(words, environment)
    if fields is None:
        scripts = (word for word in words[:50] if len(word.split()) > 1)
        fields = next(filter(None, (_read_script(script, environment) for script in scripts)), None)
    return fields


def _item(match: re.Match[str]) -> str:
    """One entry of a list in brackets."""
    double, single, plain = match.groups()
    if double is not None:
        return _unquoted(f'"{double}"')
    return single if single is not None else plain.strip()


def _unquoted(value: str) -> str:
    """A scalar of YAML or JSON without its quotes."""
    value = value.strip().removesuffix(",").rstrip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value, strict=False))
        except (ValueError, RecursionError):
            return value[1:-1]
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return re.sub(r"[ \t]#.*", "", value).rstrip()


# --- the arguments ------------------------------------------------------------------------------------------------------


def _read_arguments(start: _Start, words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    shape, readers = _shape(start.engine), _FLAGS[start.engine]
    words = [_plain_dashes(_filled_in(word, environment)) for word in words]
    fields: dict[str, Any] = {"engine": start.engine}
    unused: dict[str, None] = {}
    for name, value in environment.items():
        if name in _ENVIRONMENT and value:
            fields |= _converted(name, _ENVIRONMENT[name], value)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("-") or _NUMBER.fullmatch(word) or word in ("-", "--"):
            if start.positional_model and "model" not in fields and not word.startswith("-"):
                fields |= _converted("model", readers[_MODEL_FLAG[start.engine]], word)
            elif word not in ("-", "--"):
                unused["(a word that belongs to no flag)"] = None
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
        else:
            unused[_name_only(spelled, flag, shape)] = None
    kept = {
        name: _URL_CREDENTIALS.sub("", value)[:200]
        for name, value in environment.items()
        if name.startswith(_ENVIRONMENT_KEPT) and not _SECRET.search(name) and not _LOOKS_SECRET.search(value)
    }
    return fields | {
        "version": start.version,
        "environment": dict(list(kept.items())[:100]),
        "unused_flags": tuple(unused)[:_MOST_UNUSED],
    }


_MODEL_FLAG: Mapping[str, str] = {"vllm": "--model", "sglang": "--model-path"}


def _filled_in(word: str, environment: Mapping[str, str]) -> str:
    """``word`` with the variables that the paste itself sets, and the defaults that it gives, in their places."""

    def value(match: re.Match[str]) -> str:
        braced, default, plain = match.groups()
        given = environment.get(braced or plain, default)
        return match.group() if given is None or len(given) > _LONGEST_VARIABLE else given

    return _VARIABLE.sub(value, word) if "$" in word else word


def _plain_dashes(word: str) -> str:
    """``word`` with ``--`` in the place of the dashes that word processors put in front of a flag."""
    bare = word.lstrip("-" + _DASHES)
    front = word[: len(word) - len(bare)]
    return word if front.strip("-") == "" else f"--{bare}"


def _name_only(spelled: str, flag: str, shape: _Shape) -> str:
    """How an unused flag is listed: as it was spelled when it is a flag, since anything else may be a secret."""
    known = flag in shape.names or (flag.startswith("--no-") and f"--{flag[5:]}" in shape.names)
    looks_like_one = re.fullmatch(r"--?[A-Za-z][A-Za-z0-9_.-]{0,79}|-[A-Za-z]{1,4}", spelled)
    if (known and len(spelled) <= 80) or (
        looks_like_one and spelled.startswith("--") and not _LOOKS_SECRET.search(spelled)
    ):
        return spelled.split(".", 1)[0] if not known else spelled
    return spelled if re.fullmatch(r"-[A-Za-z]{1,4}", spelled) else "(an unknown flag)"


def _canonical(spelled: str, shape: _Shape) -> tuple[str, str]:
    """The full name of a flag and the key after its dot, for instance ``-O.level`` -> (``--compilation-config``,
    ``level``)."""
    stem, _, dotted = spelled.partition(".")
    if stem.startswith("--"):
        stem = stem.replace("_", "-")
    stem = shape.aliases.get(stem, stem)
    if stem not in shape.known and stem.startswith("--"):
        first = bisect_left(shape.names, stem)
        candidates = [name for name in shape.names[first : first + 2] if name.startswith(stem)]
        if len(candidates) == 1 and len(stem) > 2 and not stem.startswith("--no-"):
            stem = candidates[0]
        elif stem.removeprefix("-") in shape.aliases:  # --tp for -tp
            stem = shape.aliases[stem.removeprefix("-")]
        elif f"{stem}-size" in shape.known:  # SGLang's --tp for --tp-size, short of unique
            stem = f"{stem}-size"
    return stem, dotted


def _values(
    flag: str, inline: str | None, words: Sequence[str], position: int, shape: _Shape, *, negated: bool
) -> tuple[list[str], int]:
    """The values of a flag and the position after them. Raises ConfigError when one is missing."""
    if negated:
        return ["false"], position

    def is_value(index: int) -> bool:
        if index >= len(words):
            return False
        if not words[index].startswith("-") or _NUMBER.fullmatch(words[index]):
            return True
        # Keys and passwords may begin with a dash: the word behind their flag is not taken for another flag.
        is_flag = words[index].startswith("--") or words[index].partition("=")[0] in shape.aliases
        return bool(_SECRET.search(flag)) and flag not in shape.boolean and not is_flag

    if flag in shape.boolean or (flag in shape.optional_value and re.match(r"--(?:enable|disable|multi)-", flag)):
        if inline is not None:
            return [inline], position
        if is_value(position) and words[position].lower() in ("true", "false"):
            return [words[position]], position + 1
        return ["true"], position
    values = [] if inline is None else [inline]
    if flag in shape.several:
        while is_value(position):
            values.append(words[position])
            position += 1
    elif inline is None and is_value(position):
        values, position = [words[position]], position + 1
    if not values:
        if flag in shape.known and flag not in shape.optional_value:
            raise ConfigError(flag, MISSING, "the flag needs a value", "give it, or leave the flag out")
        values = ["true"]
    return values, position


def _converted(name: str, reader: _Reader, value: Any) -> dict[str, Any]:
    given = " ".join(value) if isinstance(value, list) else value
    if isinstance(given, str) and re.search(r"\$[A-Za-z_{(]|`", given) and not given.lstrip().startswith("{"):
        raise ConfigError(
            name, given, "a shell variable or substitution that the command does not set", "put its value in its place"
        )
    try:
        return reader(value)
    except ConfigError:
        raise
    except StartupModelError as expected:
        raise ConfigError(name, given, f"it should be {expected}", "correct the command") from None


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value[:200].strip("'\"")


def known_flags(engine: str) -> tuple[str, ...]:
    """All flags of an engine's server, over the versions that were read."""
    shape = _shape(engine)
    return (*shape.names, *shape.aliases)


@lru_cache(maxsize=4)
def _shape(engine: str) -> _Shape:
    """The flags of one engine, from the table that comes with the package."""
    table = json.loads(files("startup_model").joinpath("data/flags.json").read_text(encoding="utf-8"))[engine]
    several, boolean, optional = (frozenset(table[kind]) for kind in ("list", "boolean", "optional_value"))
    names = sorted({*several, *boolean, *optional, *table["value"]})
    return _Shape(table["aliases"], boolean, optional, several, tuple(names), frozenset(names))
