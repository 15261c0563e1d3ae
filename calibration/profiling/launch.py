"""From what a user would type to what is run: words without a shell, an address of ours, the variables of a run, and the flags of its variants."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from calibration.logs.secrets import is_secret, without_secrets
from calibration.profiling.server import LOOPBACK, free_port, is_free
from startup_model.config.engine import EngineConfig
from startup_model.errors import ConfigError, one_line
from startup_model.files import is_folder

__all__ = ["Launch", "checkpoint_folder", "command_of", "environment_that_matters", "launch_of"]

PORT = "{port}"
"""Stands in the command of an unknown program where its port belongs."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_MATTERS = (
    "VLLM_", "SGLANG_", "CUDA_", "NCCL_", "TORCH", "HF_HUB_", "OMP_", "MKL_", "HIP_", "ROCR_", "ASCEND_", "PYTORCH_", "LD_PRELOAD", "TOKENIZERS_",
)  # fmt: skip
"""Beginnings of the variables that change how an engine starts."""
_LONGEST_VALUE = 200
_EAGER: Mapping[str, tuple[str, ...]] = {"vllm": ("--enforce-eager",), "sglang": ("--disable-cuda-graph",)}
_DUMMY: Mapping[str, tuple[str, ...]] = {"vllm": ("--load-format", "dummy"), "sglang": ("--load-format", "dummy")}
_WRAPPERS = frozenset({"sh", "bash", "dash", "zsh", "docker", "podman", "nerdctl", "kubectl", "ssh", "sudo", "srun"})
_MODEL_FLAGS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset({"--model"}),
    "sglang": frozenset({"--model-path", "--model"}),
}


class Launch(NamedTuple):
    """What is to be run."""

    words: tuple[str, ...]
    """The program and its arguments, the port and variants still to be added."""
    environment: Mapping[str, str]
    """Variables that stood in front of the command."""
    engine: EngineConfig | None
    """What the command says, where it starts an engine that is known."""
    port: int | None
    """The port that the command names."""

    def command(self, port: int, *, model: str | None = None, eager: bool = False, dummy: bool = False) -> list[str]:
        """The words for one start."""
        if self.engine is None:
            return [word.replace(PORT, str(port)) for word in self.words]
        name = self.engine.engine
        words = list(self.words)
        if model is not None:
            words = _with_model(words, name, model)
        words = _without(words, ("--port", "--host"))
        extra = [*(_EAGER[name] if eager else ()), *(_DUMMY[name] if dummy else ())]
        if dummy:
            words = _without(words, ("--load-format",))
        return [*words, *extra, "--host", LOOPBACK, "--port", str(port)]

    def choose_port(self) -> int:
        """The port that the command names, when it is free, else a free one. Raises ConfigError for a taken one."""
        if self.port is None:
            return free_port()
        if not is_free(self.port):
            raise ConfigError(
                "--port", self.port, "another program listens there", "leave it out: a free port is chosen"
            )
        return self.port

    def label(self) -> str:
        """The command as it may be shown: without values of secrets."""
        shown = list(self.words)
        for index, word in enumerate(shown[:-1]):
            if word.startswith("-") and is_secret(word.lstrip("-"), shown[index + 1]):
                shown[index + 1] = "***"
        return one_line(without_secrets(shlex.join(shown)), 400)


def launch_of(command: str | Sequence[str] | EngineConfig) -> Launch:
    """What a command line, its words, or a configuration asks to be run. Variables in front of the command are read; no shell is involved.

    Raises ConfigError for an empty or unbalanced command, or an unknown program without ``{port}`` in its command.
    """
    if isinstance(command, EngineConfig):
        words: list[str] = command_of(command)
    elif isinstance(command, str):
        try:
            words = shlex.split(command.replace("\\\n", " "))
        except ValueError as error:
            raise ConfigError(
                "command", command, f"it cannot be split into words ({error})", "check its quotes"
            ) from None
    else:
        words = [str(word) for word in command]
    variables: dict[str, str] = {}
    while words and (match := _ASSIGNMENT.fullmatch(words[0])) is not None:
        variables[match.group(1)] = match.group(2)
        words.pop(0)
    if not words or any("\0" in word for word in words):
        raise ConfigError("command", command, "there is no program in it", "give a command such as: vllm serve MODEL")
    if Path(words[0]).name in _WRAPPERS and not any(PORT in word for word in words):
        raise ConfigError(
            "command", one_line(shlex.join(words), 200), f"{words[0]} starts the server, its flags and its end are out of reach",
            f"give the server's own words, or write {PORT} where its port belongs",
        )  # fmt: skip
    engine = _engine_of(words, variables)
    port = _port_of(words)
    if engine is None and not any(PORT in word for word in words):
        raise ConfigError(
            "command", one_line(shlex.join(words), 200), "it starts no engine that is known here",
            f"write {PORT} where the server's port belongs, or start vllm or sglang",
        )  # fmt: skip
    return Launch(tuple(words), variables, engine, port)


def _engine_of(words: Sequence[str], variables: Mapping[str, str]) -> EngineConfig | None:
    head = [f"{name}={value}" for name, value in variables.items()]
    text = (
        shlex.join([*head, *words])
        if not head
        else f"{' '.join(f'{n}={shlex.quote(v)}' for n, v in variables.items())} {shlex.join(words)}"
    )
    try:
        return EngineConfig.from_command(text)
    except ConfigError as error:
        if any(PORT in word for word in words) or "starts no engine" in error.problem:
            return None
        raise error from None


def _port_of(words: Sequence[str]) -> int | None:
    for index, word in enumerate(words):
        value = (
            word.partition("=")[2]
            if word.startswith("--port=")
            else words[index + 1]
            if word == "--port" and index + 1 < len(words)
            else None
        )
        if value is not None and value.isdigit() and 0 < int(value) < 65536:
            return int(value)
    return None


def _without(words: Iterable[str], flags: tuple[str, ...]) -> list[str]:
    """The words less some flags and their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in flags:
            skip = True
        elif not word.startswith(tuple(f"{flag}=" for flag in flags)):
            kept.append(word)
    return kept


def _with_model(words: list[str], engine: str, model: str) -> list[str]:
    """The same command for another model."""
    for index, word in enumerate(words):
        flag, sign, _ = word.partition("=")
        if flag in _MODEL_FLAGS[engine]:
            return (
                [*words[:index], f"{flag}={model}", *words[index + 1 :]]
                if sign
                else [*words[: index + 1], model, *words[index + 2 :]]
            )
    if "serve" in words:
        place = words.index("serve") + 1
        return [*words[:place], model, *words[place + 1 :]]
    raise ConfigError("--model", model, "the command has no model to put it in the place of", "name one in the command")


def command_of(engine: EngineConfig) -> list[str]:
    """The command line that starts an engine with a configuration: ``vllm serve MODEL ...`` or SGLang's launcher.

    Raises ConfigError without a model, and for fields that no flag sets.
    """
    if engine.model is None:
        raise ConfigError("engine.model", "missing", "a server serves a model", "give EngineConfig(model=...)")
    is_vllm = engine.engine == "vllm"
    words = (
        ["vllm", "serve", engine.model]
        if is_vllm
        else ["python", "-m", "sglang.launch_server", "--model-path", engine.model]
    )
    flags = _VLLM if is_vllm else _SGLANG
    for field in type(engine).model_fields:
        value = getattr(engine, field)
        if (
            field in _NO_FLAGS
            or value == type(engine).model_fields[field].default
            or field not in engine.model_fields_set
        ):
            continue
        if field not in flags:
            raise ConfigError(
                f"engine.{field}", value, f"no flag of {engine.engine} sets it", "give the command line itself"
            )
        words += _flag(flags[field], value)
    return words


_NO_FLAGS = frozenset(
    {
        "engine",
        "version",
        "generation",
        "model",
        "compile_cache",
        "page_cache",
        "environment",
        "unused_flags",
        "lazy_experts",
        "offline",
    }
)
_VLLM: Mapping[str, str] = {
    "tp": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "dp": "--data-parallel-size",
    "expert_parallel": "--enable-expert-parallel",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "load_format": "--load-format",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "max_model_len": "--max-model-len",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_num_seqs": "--max-num-seqs",
    "block_size": "--block-size",
    "num_gpu_blocks_override": "--num-gpu-blocks-override",
    "enforce_eager": "--enforce-eager",
    "chunked_prefill": "--enable-chunked-prefill",
    "prefix_caching": "--enable-prefix-caching",
    "capture_sizes": "--cudagraph-capture-sizes",
    "max_capture_size": "--max-cudagraph-capture-size",
    "optimization_level": "-O",
}
_SGLANG: Mapping[str, str] = {
    "tp": "--tp-size",
    "pp": "--pp-size",
    "dp": "--dp-size",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "load_format": "--load-format",
    "gpu_memory_utilization": "--mem-fraction-static",
    "max_model_len": "--context-length",
    "max_num_batched_tokens": "--chunked-prefill-size",
    "max_num_seqs": "--max-running-requests",
    "block_size": "--page-size",
    "enforce_eager": "--disable-cuda-graph",
    "max_capture_size": "--cuda-graph-max-bs",
    "capture_sizes": "--cuda-graph-bs",
    "torch_compile": "--enable-torch-compile",
}


def _flag(flag: str, value: object) -> list[str]:
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag.removeprefix('--')}"]
    if isinstance(value, tuple):
        return [flag, *(str(item) for item in value)]
    if flag == "-O":
        return [f"-O{value}"]
    return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]


def environment_that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how an engine starts, for the record: no secrets, and no paths of this machine."""
    found = {}
    for name, value in sorted(environment.items()):
        if (
            name.startswith(_MATTERS)
            and not is_secret(name, value)
            and len(value) <= _LONGEST_VALUE
            and value.isprintable()
        ):
            found[name] = "(a path)" if os.sep in value else value
    return found


def checkpoint_folder(model: str | None) -> Path | None:
    """The folder that holds a model's weights: the one named, or the snapshot in the hub's cache; None when it is not on this host."""
    if not model:
        return None
    if is_folder(Path(model)):
        return Path(model)
    home = (
        os.environ.get("HF_HUB_CACHE")
        or Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "hub"
    )
    snapshots = Path(home) / f"models--{model.replace('/', '--')}" / "snapshots"
    try:
        found = sorted((path for path in snapshots.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    except (OSError, ValueError):
        return None
    return found[-1] if found else None


def program_of(words: Sequence[str]) -> str:
    """The program, found on PATH. Raises ConfigError."""
    found = shutil.which(words[0])
    if found is None:
        raise ConfigError("command", words[0], "no such program", "give its path, or install it")
    return found
