"""The container that serves the model: image, command, environment, ports, devices; and what it must not print."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from startup_model.engines import all_engines
from startup_model.engines.command import engine_words, kept_variables, pasted_words
from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import Deploy
from startup_model.engines.flags import write_fields
from startup_model.errors import MISSING, ConfigError
from startup_model.hardware import Platform
from startup_model.manifests.request import DeploymentRequest, check_image
from startup_model.manifests.times import Timings
from startup_model.secrets import holds_secret, is_secret_name, public_address
from startup_model.versions import Version

DEVICES: Mapping[Platform, str | None] = {
    "cuda": "nvidia.com/gpu",
    "rocm": "amd.com/gpu",
    "hpu": "habana.ai/gaudi",
    "npu": "huawei.com/Ascend910",
    "cpu": None,
}
"""Platform -> the resource that its device plugin announces."""

_NO_FLAGS = frozenset(  # fields that no flag of a server sets: what it is, and states that a start finds
    ["engine", "version", "model", "environment", "unused_flags", "page_cache", "compile_cache", "lazy_experts", "offline"]
)  # fmt: skip
_LOOPBACK = re.compile(r"127\.[0-9.]{1,11}|localhost|::1|\[::1\]")
_SHELL = re.compile(r"\$[A-Za-z_{(]|`")
_HUB_CACHE = "/root/.cache/huggingface"


class Argument(NamedTuple):
    """A flag with its values."""

    flag: str
    """Full name, whatever it was spelled as."""
    words: tuple[str, ...]
    """As in the command; the first is the flag, perhaps with ``=`` and its value."""

    @property
    def values(self) -> tuple[str, ...]:
        """The values alone."""
        _, has_value, inline = self.words[0].partition("=")
        return ((inline,) if has_value else ()) + self.words[1:]


class Command(NamedTuple):
    """What starts a server: the model, its flags, and what stands around them."""

    model: str | None
    arguments: tuple[Argument, ...]
    environment: Mapping[str, str]
    image: str | None = None

    @property
    def flags(self) -> Mapping[str, Argument]:
        """The last of each flag, by its full name."""
        return {argument.flag: argument for argument in self.arguments}


def pasted_arguments(command: str) -> Command | None:
    """The words of a pasted command, every flag with its values; None where it is no command line (a manifest, say).

    ``EngineConfig.from_command`` says what is wrong with a command; here it is taken as right. Raises ConfigError for a flag without its value.
    """
    found = pasted_words(command)
    return None if found is None else Command(*_split(found.words), found.environment, found.image)


def engine_arguments(engine: EngineConfig, version: Version, program: Sequence[str]) -> Command:
    """The flags of an engine's configuration that are not at their default, as the command line of a version spells them.

    Raises ConfigError for a field that this version has no flag for.
    """
    fields = {
        name: value
        for name, field in EngineConfig.model_fields.items()
        if name not in _NO_FLAGS and (value := getattr(engine, name)) != field.default
    }
    written = write_fields(engine.engine, fields, version)
    _, arguments = _split([*program, *written.words])
    return Command(engine.model, arguments, {**written.variables, **engine.environment})


def _split(words: Sequence[str]) -> tuple[str | None, tuple[Argument, ...]]:
    """The model and the flags of a command, each with its values; words that belong to no flag are left out."""
    parts = engine_words(words)
    if parts is None:
        return None, ()
    models = parts.models()
    flags = (argument for argument in parts.arguments if argument.flag and argument not in models)
    arguments = tuple(Argument(flag.flag, tuple(words[flag.begin : flag.end])) for flag in flags)
    return models[-1].values[-1] if models else None, arguments


def _command(request: DeploymentRequest) -> tuple[Command, list[str]]:
    """The words of the command, and what could not be carried over."""
    engine = request.engine
    if request.command is not None and request.command not in all_engines():
        given = EngineConfig.from_command(request.command)
        if given.engine != engine.engine:
            problem = f"the prediction is of {engine.engine}"
            raise ConfigError("command", given.engine, problem, "predict the command that is to run")
        pasted = pasted_arguments(request.command)
        if pasted is not None:
            return pasted, []
        engine = engine.replace(unused_flags=given.unused_flags)
    lost = ", ".join(engine.unused_flags)
    remark = f"not carried over, since only their names are known: {lost}; give the command line itself"
    return engine_arguments(engine, request.version, _serve(request)[0]), [remark] if lost else []


def _serve(request: DeploymentRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that start the server, and those between them and the model."""
    launch, older = request.launch, request.deploy.older_serve
    if older is not None and request.version < older.before:
        return older.words, (launch.model_flag,)
    program, *others = launch.words
    words = ("python3" if program == "python" else program, *others)  # images need not have both
    return words, () if launch.positional_model else (launch.model_flag,)


class Endpoint(NamedTuple):
    """Where and as what a server answers."""

    port: int
    scheme: str | None
    """None: HTTP."""
    served_name: str
    """What clients and metrics call the model."""


def endpoint(request: DeploymentRequest) -> Endpoint:
    """Port, scheme and name that the command asks for, else the engine's. Raises ConfigError for a command of another engine, and one without a port."""
    flags = _command(request)[0].flags
    if "--uds" in flags:
        raise ConfigError("--uds", MISSING, "a server on a Unix socket answers no probe", "leave the flag out")
    text = str(request.port or (flags["--port"].values[-1] if "--port" in flags else request.deploy.port))
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise ConfigError("--port", text, "must be a port from 1 to 65535", "correct the command, or give port")
    names = flags["--served-model-name"].values if "--served-model-name" in flags else ()
    scheme = "HTTPS" if "--ssl-certfile" in flags else None
    return Endpoint(int(text), scheme, names[0] if names else request.public_model)


def server(request: DeploymentRequest, times: Timings) -> dict[str, Any]:
    """The container of a request, as ``pod.yaml`` wants it.

    Secrets never appear: a flag or variable that holds one becomes a reference to a key of the Secret ``NAME-secrets``. Raises ConfigError for an engine that spans
    nodes, a command of another engine, a shell variable that has no value, and where no image is known.
    """
    deploy, engine = request.deploy, request.engine
    command, remarks = _command(request)
    if (world := engine.tp * engine.pp * engine.dp) > request.workers:
        problem = f"one server spans them ({world} ranks, {request.workers} on a node): a Deployment starts servers of one node"
        remedy = "use a LeaderWorkerSet with the numbers of the formats startup-probe and json"
        raise ConfigError("hardware.nodes", request.hardware.nodes, problem, remedy)
    where = endpoint(request)
    model = (None if request.model else command.model) or request.served_model
    if model.startswith("-"):
        remedy = "give its id, or a path that starts with /"
        raise ConfigError("model", request.public_model, "the engine would take it for a flag", remedy)
    shown = _shown(deploy, model, command)
    (program, before_model), secret_name = _serve(request), request.suffixed("secrets")
    environment = _environment(shown.environment, deploy, times)
    secret = [{"name": key, "valueFrom": {"secretKeyRef": {"name": secret_name, "key": key}}} for key in shown.secrets]
    mounts, volumes, more = _volumes(request, model)
    resource = DEVICES[request.hardware.platform]
    limit_s, timeout = times.startup_limit_s, deploy.ready_timeout
    remarks += more
    if request.model is None and engine.model is None and "/" not in request.served_model:
        name = f"{request.served_model} is the name in the configuration"
        remarks.insert(0, f"{name}: give model, the id or path that the server can load")
    if timeout and request.version < timeout.since and limit_s > timeout.seconds:
        before = f"{deploy.title} before {timeout.since_text}"
        remarks.append(f"{before} does not read {timeout.variable} and may give up after {timeout.seconds} s")
    if shown.secrets:
        keys = " ".join(f"--from-literal={name}=..." for name in shown.secrets)
        remarks.append(f"what is or may be secret is not printed: kubectl create secret generic {secret_name} {keys}")
    return {
        "image": _image(request, command),
        "command": program,
        "args": [*before_model, shown.model, *shown.words, *_host(deploy, command.flags), "--port", str(where.port)],
        "env": [{"name": name, "value": value} for name, value in environment.items()] + secret,
        "env_reason": f"{timeout.variable}: seconds that the API server waits for its engine; the startup probe allows {limit_s}" if timeout else "",
        "resources": resource and {"limits": {resource: str(request.workers)}},
        "mounts": mounts,
        "mounts_reason": "workers of one server talk through shared memory" if request.workers > 1 else "",
        "volumes": volumes,
        "remarks": remarks,
    }  # fmt: skip


def _host(deploy: Deploy, flags: Mapping[str, Argument]) -> tuple[str, ...]:
    """``--host``: probes and clients come over the pod's address."""
    given = flags["--host"].values[-1] if "--host" in flags else None
    if given is None and deploy.listens_everywhere:
        return ()
    everywhere = given is None or _LOOPBACK.fullmatch(given)
    return ("--host", "0.0.0.0" if everywhere else _escaped(str(given)))  # noqa: S104  within a pod


def _escaped(text: str) -> str:
    """``text`` as ``args`` and ``env`` of Kubernetes hold it: there ``$(NAME)`` is filled in and ``$$`` stands for ``$``."""
    return text.replace("$", "$$")


class _Shown(NamedTuple):
    """What of a command may be printed."""

    model: str
    words: list[str]
    environment: Mapping[str, str]
    secrets: list[str]
    """Variables that come from the Secret."""


def _shown(deploy: Deploy, model: str, command: Command) -> _Shown:
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
        own = deploy.secret_variables.get(flag)
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
    return _Shown(served, words, environment, secrets)


def _is_secret(name: str, value: str) -> bool:
    return is_secret_name(name, value) or holds_secret(value)


def _checked(field: str, value: str) -> str:
    """``value`` for a manifest. Raises ConfigError where a shell would have filled something in."""
    if _SHELL.search(value) and not value.lstrip().startswith(("{", "[")):
        problem = "a shell variable or substitution that the command does not set"
        raise ConfigError(field, value, problem, "replace it with its value")
    return _escaped(value)


def _environment(plain: Mapping[str, str], deploy: Deploy, times: Timings) -> dict[str, str]:
    """Variables with their values, the time that a server waits for its engine last."""
    if deploy.ready_timeout is None:
        return dict(plain)
    variable = deploy.ready_timeout.variable
    given = plain.get(variable, "")
    longer = re.fullmatch(r"[0-9]{1,9}", given) and int(given) > times.ready_timeout_s
    others = {name: value for name, value in plain.items() if name != variable}
    return others | {variable: given if longer else str(times.ready_timeout_s)}


def _image(request: DeploymentRequest, command: Command) -> str:
    """The image that was asked for, that of the command, or the published one of the version."""
    if (given := request.image or command.image) is not None:
        return check_image(given)
    if (platform := request.hardware.platform) != "cuda":
        raise ConfigError("image", MISSING, f"no published image is known for platform {platform}", "name one")
    tag = re.sub(r"[^A-Za-z0-9_.-].*", "", request.version_text)
    return f"{request.deploy.image}:v{tag}"


def _volumes(request: DeploymentRequest, model: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Mounts, volumes and remarks: shared memory where several workers talk, and the checkpoint."""
    mounts, volumes, remarks = [], [], []
    if request.workers > 1:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108  the workers' shared memory
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}})
    local, tier = model.startswith("/"), request.hardware.storage.tier
    if request.volume_claim is not None:
        mounts.append({"name": "checkpoint", "mountPath": _mount_folder(request, model) if local else _HUB_CACHE})
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": request.volume_claim}})
    elif local:
        held = f"the volume that holds {public_address(model)} (volume_claim)"
        remarks.append(f"mount {held}, else the server finds no model")
    elif tier != "object_store":
        downloads = "a start downloads it first, the prediction reads it from"
        remarks.append(f"no volume holds the checkpoint (volume_claim): {downloads} {tier}")
    return mounts, volumes, remarks


def _mount_folder(request: DeploymentRequest, model: str) -> str:
    """The folder that a local model lies in. Raises ConfigError where no volume can be mounted there, or where it looks like a secret."""
    folder = model.rstrip("/").rsplit("/", 1)[0] or model
    problem = (
        "a volume cannot be mounted in the place of the whole file system" if not folder.strip("/")
        else "Kubernetes mounts nothing at a path with a colon" if ":" in folder
        else "its folder looks like a secret, and would be printed as mountPath" if holds_secret(folder)
        else None
    )  # fmt: skip
    if problem is not None:
        remedy = "put the model into another folder, or leave volume_claim out"
        raise ConfigError("model", request.public_model, problem, remedy)
    return folder
