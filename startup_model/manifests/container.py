"""The container that serves the model: image, command, environment, ports, devices; and what it must not print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from startup_model.engines.command import kept_variables
from startup_model.engines.config import DEFAULT_VERSIONS, EngineConfig
from startup_model.errors import MISSING, ConfigError
from startup_model.hardware import Platform
from startup_model.manifests.arguments import COMMANDS, Argument, Command, engine_arguments, pasted_arguments
from startup_model.manifests.names import check_image
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.secrets import looks_secret, names_secret, public_address
from startup_model.manifests.timings import ENGINE_TIMEOUT_S, Timings
from startup_model.versions import Version, parse_version

__all__ = ["FIRST_READY_TIMEOUT", "READY_TIMEOUT", "Endpoint", "Server", "endpoint", "server"]

READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
FIRST_READY_TIMEOUT: Version = (0, 14)
"""First vLLM release that reads ``READY_TIMEOUT``; 0.9.1 to 0.13.0 wait 600 s whatever is set."""

DEVICES: Mapping[Platform, str | None] = {
    "cuda": "nvidia.com/gpu",
    "rocm": "amd.com/gpu",
    "hpu": "habana.ai/gaudi",
    "npu": "huawei.com/Ascend910",
    "cpu": None,
}
"""Platform -> the resource that its device plugin announces."""

IMAGES: Mapping[str, str] = {"vllm": "vllm/vllm-openai", "sglang": "lmsysorg/sglang"}
"""Engine -> its published image for NVIDIA devices."""

_PORTS: Mapping[str, int] = {"vllm": 8000, "sglang": 30000}
_OLD_VLLM = ("python3", "-m", "vllm.entrypoints.openai.api_server")
_FIRST_SERVE: Version = (0, 6)
"""From here on ``vllm serve`` is there for certain."""

_OWN_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "vllm": {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"},
    "sglang": {},
}
"""Engine -> flag of a secret -> variable that the engine reads instead: it then appears in no list of processes and no log of arguments."""

_LOOPBACK = re.compile(r"127\.[0-9.]{1,11}|localhost|::1|\[::1\]")
_SHELL = re.compile(r"\$[A-Za-z_{(]|`")
_HUB_CACHE = "/root/.cache/huggingface"


class Endpoint(NamedTuple):
    """Where and as what a server answers."""

    port: int
    scheme: str
    served_name: str
    """What clients and metrics call the model."""


class Server(NamedTuple):
    """A container that serves the model."""

    engine: str
    endpoint: Endpoint
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    environment: tuple[dict[str, Any], ...]
    """Entries of ``env``."""
    secrets: tuple[str, ...]
    """Keys that the Secret has to hold."""
    secret_name: str
    devices: Mapping[str, str]
    """Resource -> how many; empty on a processor."""
    mounts: tuple[dict[str, Any], ...]
    volumes: tuple[dict[str, Any], ...]
    remarks: tuple[str, ...]
    """What a reader of the manifest has to know or to do."""


def endpoint(request: PlanRequest) -> Endpoint:
    """Port, scheme and name that the command asks for, else the engine's. Raises ConfigError for a command of another engine, and one without a port."""
    return _endpoint(request, _command(request)[0])


def server(request: PlanRequest, times: Timings) -> Server:
    """The container of a request.

    Secrets never appear: a flag or variable that holds one becomes a reference to a key of the Secret ``NAME-secrets``. Raises ConfigError for an engine that spans
    nodes, a command of another engine, a shell variable that has no value, and where no image is known.
    """
    name = request.engine.engine
    command, remarks = _command(request)
    _refuse_many_nodes(request)
    where = _endpoint(request, command)
    model = (None if request.model else command.model) or request.served_model
    if model.startswith("-"):
        raise ConfigError(
            "model",
            request.public_model,
            "the engine would take it for a flag",
            "give its id, or a path that starts with /",
        )
    shown = _shown(name, model, command)
    args = (
        *_model_words(request, shown.model),
        *shown.words,
        *_host(name, command.flags),
        "--port",
        str(where.port),
    )
    secret_name = f"{request.label[:50].rstrip('-')}-secrets"
    mounts, volumes, more = _volumes(request, model)
    return Server(
        engine=name,
        endpoint=where,
        image=_image(request, command),
        command=_OLD_VLLM if _is_old(request) else COMMANDS[name],
        args=args,
        environment=(*_plain_entries(shown, name, times), *_secret_entries(shown, secret_name)),
        secrets=shown.secrets,
        secret_name=secret_name,
        devices=_devices(request),
        mounts=mounts,
        volumes=volumes,
        remarks=(*_name_remark(request), *remarks, *more, *_version_remark(request, times)),
    )


def _version_text(request: PlanRequest) -> str:
    return request.prediction.context.engine_name.partition(" ")[2]


def _is_old(request: PlanRequest) -> bool:
    """Whether the engine is a vLLM from before ``vllm serve``."""
    return request.engine.engine == "vllm" and parse_version(_version_text(request)) < _FIRST_SERVE


def _model_words(request: PlanRequest, model: str) -> tuple[str, ...]:
    if request.engine.engine == "sglang":
        return ("--model-path", model)
    return ("--model", model) if _is_old(request) else (model,)


def _endpoint(request: PlanRequest, command: Command) -> Endpoint:
    flags, engine = command.flags, request.engine.engine
    if "--uds" in flags:
        raise ConfigError("--uds", MISSING, "a server on a Unix socket answers no probe", "leave the flag out")
    names = flags["--served-model-name"].values if "--served-model-name" in flags else ()
    return Endpoint(
        port=request.port or _given_port(flags) or _PORTS[engine],
        scheme="HTTPS" if "--ssl-certfile" in flags else "HTTP",
        served_name=names[0] if names else request.public_model,
    )


def _command(request: PlanRequest) -> tuple[Command, tuple[str, ...]]:
    """The words of the command, and what could not be carried over."""
    engine = request.engine
    if request.command is not None and request.command not in DEFAULT_VERSIONS:
        given = EngineConfig.from_command(request.command)
        if given.engine != engine.engine:
            raise ConfigError(
                "command", given.engine, f"the prediction is of {engine.engine}", "predict the command that is to run"
            )
        pasted = pasted_arguments(request.command)
        if pasted is not None:
            return pasted, ()
        engine = engine.replace(unused_flags=given.unused_flags)
    lost = ", ".join(engine.unused_flags)
    remark = f"not carried over, since only their names are known: {lost}; give the command line itself"
    return engine_arguments(engine, parse_version(_version_text(request))), (remark,) if lost else ()


def _refuse_many_nodes(request: PlanRequest) -> None:
    """Raises ConfigError for an engine whose workers do not all run on one node."""
    engine, workers = request.engine, request.prediction.context.inputs["workers"]
    world = engine.tp * engine.pp * engine.dp
    if world > workers:
        raise ConfigError(
            "hardware.nodes",
            request.hardware.nodes,
            f"one server spans them ({world} ranks, {workers:.0f} on a node): a Deployment starts servers of one node",
            "use a LeaderWorkerSet with the numbers of the formats startup-probe and json",
        )


def _given_port(flags: Mapping[str, Argument]) -> int | None:
    if "--port" not in flags:
        return None
    text = flags["--port"].values[-1]
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise ConfigError("--port", text, "no port", "correct the command, or give port")
    return int(text)


def _host(engine: str, flags: Mapping[str, Argument]) -> tuple[str, ...]:
    """``--host``: probes and clients come over the pod's address. vLLM listens there by default, SGLang on the loopback interface."""
    given = flags["--host"].values[-1] if "--host" in flags else None
    if given is None:
        return ("--host", "0.0.0.0") if engine == "sglang" else ()  # noqa: S104  within a pod
    return ("--host", "0.0.0.0" if _LOOPBACK.fullmatch(given) else _escaped(given))  # noqa: S104


def _escaped(text: str) -> str:
    """``text`` as ``args`` and ``env`` of Kubernetes hold it: there ``$(NAME)`` is filled in and ``$$`` stands for ``$``."""
    return text.replace("$", "$$")


class _Shown(NamedTuple):
    """What of a command may be printed."""

    model: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    secrets: tuple[str, ...]
    """Variables that come from the Secret."""


def _shown(engine: str, model: str, command: Command) -> _Shown:
    """A command with a reference to a variable in the place of every secret. Raises ConfigError for shell variables that have no value."""
    kept = kept_variables(command.environment)
    environment = {
        name: _checked(name, value)
        for name, value in command.environment.items()
        if kept.get(name) == value and not _is_secret(name, value)
    }
    secrets = [name for name in command.environment if name not in environment]

    def shown(flag: str, variable: str, value: str, plain: Callable[[str], str]) -> str:
        if not _is_secret(flag, value):
            return plain(value)
        names = (variable, *(f"{variable}_{number}" for number in range(2, 10_000)))
        secrets.append(next(name for name in names if name not in environment and name not in secrets))
        return f"$({secrets[-1]})"

    served = shown("model", "MODEL", model, _escaped)
    words: list[str] = []
    for argument in command.arguments:
        flag, values = argument.flag, argument.values
        own = _OWN_VARIABLES[engine].get(flag)
        if flag in ("--host", "--port"):
            continue
        if own is not None and len(values) == 1:
            secrets += [own] if own not in secrets else []
            environment.pop(own, None)
            continue
        variable = re.sub(r"[^A-Z0-9]+", "_", flag.upper()).strip("_")
        printed = [shown(flag, variable, value, partial(_checked, flag)) for value in values]
        spelled, inline, _ = argument.words[0].partition("=")
        words += [f"{spelled}={printed[0]}", *printed[1:]] if inline else [spelled, *printed]
    return _Shown(served, tuple(words), environment, tuple(secrets))


def _is_secret(name: str, value: str) -> bool:
    return names_secret(name, value) or looks_secret(value)


def _checked(field: str, value: str) -> str:
    """``value`` for a manifest. Raises ConfigError where a shell would have filled something in."""
    if _SHELL.search(value) and not value.lstrip().startswith(("{", "[")):
        raise ConfigError(
            field, value, "a shell variable or substitution that the command does not set", "put its value in its place"
        )
    return _escaped(value)


def _plain_entries(shown: _Shown, engine: str, times: Timings) -> Iterable[dict[str, Any]]:
    """Entries of ``env`` with their values, and the time that vLLM waits for its engine."""
    plain = dict(shown.environment)
    if engine == "vllm":
        given = plain.pop(READY_TIMEOUT, "")
        longer = re.fullmatch(r"[0-9]{1,9}", given) and int(given) > times.ready_timeout_s
        plain[READY_TIMEOUT] = given if longer else str(times.ready_timeout_s)
    for name, value in plain.items():
        yield {"name": name, "value": value}


def _secret_entries(shown: _Shown, secret_name: str) -> Iterable[dict[str, Any]]:
    """Entries of ``env`` that refer to the Secret."""
    for name in shown.secrets:
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": secret_name, "key": name}}}


def _image(request: PlanRequest, command: Command) -> str:
    """The image that was asked for, that of the command, or the published one of the version."""
    given = request.image or command.image
    if given is not None:
        return check_image(given)
    platform = request.hardware.platform
    if platform != "cuda":
        raise ConfigError("image", MISSING, f"no published image is known for platform {platform}", "name one")
    tag = re.sub(r"[^A-Za-z0-9_.-].*", "", _version_text(request))
    return f"{IMAGES[request.engine.engine]}:v{tag}"


def _devices(request: PlanRequest) -> dict[str, str]:
    resource = DEVICES[request.hardware.platform]
    return {} if resource is None else {resource: f"{request.prediction.context.inputs['workers']:.0f}"}


def _volumes(
    request: PlanRequest, model: str
) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Mounts, volumes and remarks: shared memory where several workers talk, and the checkpoint."""
    mounts, volumes, remarks = [], [], []
    if request.prediction.context.inputs["workers"] > 1:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108  the workers' shared memory
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}})
    local = model.startswith("/")
    if request.volume_claim is not None:
        folder = _mount_folder(request, model) if local else _HUB_CACHE
        mounts.append({"name": "checkpoint", "mountPath": folder})
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": request.volume_claim}})
    elif local:
        remarks.append(
            f"mount the volume that holds {public_address(model)} (volume_claim), else the server finds no model"
        )
    elif request.hardware.storage.tier != "object_store":
        remarks.append(
            f"no volume holds the checkpoint (volume_claim): a start downloads it first, the prediction reads it from {request.hardware.storage.tier}"
        )
    return tuple(mounts), tuple(volumes), tuple(remarks)


def _mount_folder(request: PlanRequest, model: str) -> str:
    """The folder that a local model lies in. Raises ConfigError where no volume can be mounted there, or where it looks like a secret."""
    folder = model.rstrip("/").rsplit("/", 1)[0] or model
    problem = (
        "a volume cannot be mounted in the place of the whole file system" if not folder.strip("/")
        else "Kubernetes mounts nothing at a path with a colon" if ":" in folder
        else "its folder looks like a secret, and would be printed as mountPath" if looks_secret(folder)
        else None
    )  # fmt: skip
    if problem is not None:
        raise ConfigError(
            "model", request.public_model, problem, "put the model into another folder, or leave volume_claim out"
        )
    return folder


def _version_remark(request: PlanRequest, times: Timings) -> Iterable[str]:
    old = request.engine.engine == "vllm" and parse_version(_version_text(request)) < FIRST_READY_TIMEOUT
    if old and times.startup_limit_s > ENGINE_TIMEOUT_S:
        yield f"vLLM before 0.14 does not read {READY_TIMEOUT} and may give up after {ENGINE_TIMEOUT_S} s"


def _name_remark(request: PlanRequest) -> Iterable[str]:
    if request.model is None and request.engine.model is None and "/" not in request.served_model:
        yield f"{request.served_model} is the name in the configuration: give model, the id or path that the server can load"
