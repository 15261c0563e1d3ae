"""The container that serves the model: image, command, environment, ports, devices; and what it must not print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from startup_model.engines import all_engines
from startup_model.engines.command import EngineWords, kept_variables, pasted_words
from startup_model.engines.config import EngineConfig
from startup_model.engines.engine import Deploy
from startup_model.engines.flags import check_filled_in, write_fields
from startup_model.errors import MISSING, ConfigError
from startup_model.hardware import Platform
from startup_model.manifests.request import DeploymentRequest, check_image, label_from
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
_HUB_CACHE = "/root/.cache/huggingface"


def engine_arguments(engine: EngineConfig, version: Version) -> EngineWords:
    """The flags of an engine's configuration that are not at their default, as the command line of a version spells them.

    Raises ConfigError for a field that this version has no flag for.
    """
    named = {name: (getattr(engine, name), field.default) for name, field in EngineConfig.model_fields.items()}
    fields = {name: value for name, (value, usual) in named.items() if name not in _NO_FLAGS and value != usual}
    written = write_fields(engine.engine, fields, version)
    environment = {**written.variables, **engine.environment}
    return EngineWords(engine.engine, written.words, 0, None, positional_model=False, environment=environment)


def _command(request: DeploymentRequest) -> tuple[EngineWords, list[str]]:
    """The command as it was pasted, else what says the prediction's flags; and what could not be carried over."""
    engine = request.engine
    if request.command is not None and request.command not in all_engines():
        given = EngineConfig.from_command(request.command)
        if given.engine != engine.engine:
            problem = f"the prediction is of {engine.engine}"
            raise ConfigError("command", given.engine, problem, "predict the command that is to run")
        if (pasted := pasted_words(request.command)) is not None:
            return pasted, []
        engine = engine.replace(unused_flags=given.unused_flags)
    lost = ", ".join(engine.unused_flags)
    remark = f"not carried over, since only their names are known: {lost}; give the command line itself"
    return engine_arguments(engine, request.version), [remark] if lost else []


def endpoint(request: DeploymentRequest, times: Timings) -> dict[str, Any]:
    """Where and as what a server answers, as ``startup-probe.yaml`` wants it: port, scheme and name that the command asks for, else the engine's.

    Raises ConfigError for a command of another engine, and one without a port.
    """
    deploy = request.deploy
    flags = {argument.flag: argument.values for argument in _command(request)[0].arguments}
    if "--uds" in flags:
        raise ConfigError("--uds", MISSING, "a server on a Unix socket answers no probe", "leave the flag out")
    text = str(request.port or flags.get("--port", (deploy.port,))[-1])
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise ConfigError("--port", text, "must be a port from 1 to 65535", "correct the command, or give port")
    return {
        "port": int(text),
        "scheme": "HTTPS" if "--ssl-certfile" in flags else None,
        "served_name": flags.get("--served-model-name", (request.public_model,))[0],
        "health": deploy.health,
        "probe_timeout_s": deploy.probe_timeout_s,
    }


def server(request: DeploymentRequest, times: Timings) -> dict[str, Any]:
    """The container of a request, as ``pod.yaml`` wants it.

    Secrets never appear: a flag or variable that holds one becomes a reference to a key of the Secret ``NAME-secrets``. Raises ConfigError for an engine that spans
    nodes, a command of another engine, a shell variable that has no value, and where no image is known.
    """
    deploy, launch, engine = request.deploy, request.launch, request.engine
    command, remarks = _command(request)
    if (world := engine.tp * engine.pp * engine.dp) > request.workers:
        problem = f"one server spans them ({world} ranks, {request.workers} on a node): a Deployment starts servers of one node"
        remedy = "use a LeaderWorkerSet with the numbers of the formats startup-probe and json"
        raise ConfigError("hardware.nodes", request.hardware.nodes, problem, remedy)
    where, named = endpoint(request, times), command.models()
    model = named[-1].values[-1] if named and request.model is None else request.served_model
    if model.startswith("-"):
        remedy = "give its id, or a path that starts with /"
        raise ConfigError("model", request.public_model, "the engine would take it for a flag", remedy)
    if request.model is None and engine.model is None and "/" not in request.served_model:
        name = f"{request.served_model} is the name in the configuration"
        remarks.insert(0, f"{name}: give model, the id or path that the server can load")
    older = deploy.older_serve if deploy.older_serve and request.version < deploy.older_serve.before else None
    words = older.words if older else ("python3" if launch.words[0] == "python" else launch.words[0], *launch.words[1:])
    before_model = () if launch.positional_model and not older else (launch.model_flag,)
    shown, arguments, environment, secrets = _shown(deploy, model, command)
    mounts, volumes = _volumes(request, model, remarks)
    limit_s, timeout = times.startup_limit_s, deploy.ready_timeout
    if timeout is not None:
        given = environment.pop(timeout.variable, "")
        longer = re.fullmatch(r"[0-9]{1,9}", given) and int(given) > times.ready_timeout_s
        environment[timeout.variable] = given if longer else str(times.ready_timeout_s)
        if request.version < timeout.since and limit_s > timeout.seconds:
            before = f"{deploy.title} before {timeout.since_text}"
            remarks.append(f"{before} does not read {timeout.variable} and may give up after {timeout.seconds} s")
    resource, secret_name = DEVICES[request.hardware.platform], request.suffixed("secrets")
    if secrets:
        keys = " ".join(f"--from-literal={name}=..." for name in secrets)
        remarks.append(f"what is or may be secret is not printed: kubectl create secret generic {secret_name} {keys}")
    references = [{"name": key, "valueFrom": {"secretKeyRef": {"name": secret_name, "key": key}}} for key in secrets]
    return where | {
        "engine": label_from(engine.engine),
        "image": _image(request, command),
        "command": words,
        "args": [*before_model, shown, *arguments, "--port", str(where["port"])],
        "env": [{"name": name, "value": value} for name, value in environment.items()] + references,
        "timeout": timeout and timeout.variable,
        "resources": resource and {"limits": {resource: str(request.workers)}},
        "mounts": mounts,
        "several": request.workers > 1,
        "volumes": volumes,
        "remarks": remarks,
    }


def _shown(deploy: Deploy, model: str, command: EngineWords) -> tuple[str, list[str], dict[str, str], list[str]]:
    """Model, flags and variables that may be printed, and the variables that come from the Secret: a flag refers to one in the place of each of its secrets.

    Raises ConfigError for shell variables that have no value.
    """
    given, kept = command.environment, kept_variables(command.environment)  # kept as it is: what holds no secret
    environment = {name: _plain(name, value) for name, value in given.items() if kept.get(name) == value}
    secrets = [name for name in given if name not in environment]

    def shown(flag: str, value: str) -> str:
        if not is_secret_name(flag, value) and not holds_secret(value):
            return _plain(flag, value)
        variable = re.sub(r"[^A-Z0-9]+", "_", flag.upper()).strip("_")
        names = (variable, *(f"{variable}_{number}" for number in range(2, 10_000)))
        secrets.append(next(name for name in names if name not in environment and name not in secrets))
        return f"$({secrets[-1]})"

    served, words, models = shown("model", model), list[str](), command.models()
    for argument in command.arguments:
        flag, (first, *more) = argument.flag, command.words[argument.begin : argument.end]
        spelled, inline, value = first.partition("=")
        if not flag or flag in ("--host", "--port") or argument in models:
            continue
        if (own := deploy.secret_variables.get(flag)) is not None and len(more) + bool(inline) == 1:
            secrets += [own] if own not in secrets else []
            environment.pop(own, None)
            continue
        words += [f"{spelled}={shown(flag, value)}" if inline else spelled, *map(partial(shown, flag), more)]
    hosts = command.of("--host")
    if hosts or not deploy.listens_everywhere:  # probes and clients come over the pod's address
        host = hosts[-1].values[-1] if hosts else "localhost"
        words += ["--host", "0.0.0.0" if _LOOPBACK.fullmatch(host) else host.replace("$", "$$")]  # noqa: S104  within a pod
    return served, words, environment, secrets


def _plain(field: str, value: str) -> str:
    """``value`` for ``args`` and ``env`` of Kubernetes, where ``$$`` stands for ``$``. Raises ConfigError where a shell would have filled something in."""
    if field != "model":  # its name has been read as it stands
        check_filled_in(field, value)
    return value.replace("$", "$$")


def _image(request: DeploymentRequest, command: EngineWords) -> str:
    """The image that was asked for, that of the command, or the published one of the version."""
    if (given := request.image or command.image) is not None:
        return check_image(given)
    if (platform := request.hardware.platform) != "cuda":
        raise ConfigError("image", MISSING, f"no published image is known for platform {platform}", "name one")
    tag = re.sub(r"[^A-Za-z0-9_.-].*", "", request.version_text)
    return f"{request.deploy.image}:v{tag}"


def _volumes(
    request: DeploymentRequest, model: str, remarks: list[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes: shared memory where several workers talk, and the checkpoint. Raises ConfigError for a folder that no volume can be mounted at."""
    mounts, volumes = [], []
    if request.workers > 1:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108  the workers' shared memory
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}})
    local, tier = model.startswith("/"), request.hardware.storage.tier
    if request.volume_claim is not None:
        folder = (model.rstrip("/").rsplit("/", 1)[0] or model) if local else _HUB_CACHE
        problem = (
            "a volume cannot be mounted in the place of the whole file system" if not folder.strip("/")
            else "Kubernetes mounts nothing at a path with a colon" if ":" in folder
            else "its folder looks like a secret, and would be printed as mountPath" if holds_secret(folder)
            else None
        )  # fmt: skip
        if problem is not None:
            remedy = "put the model into another folder, or leave volume_claim out"
            raise ConfigError("model", request.public_model, problem, remedy)
        mounts.append({"name": "checkpoint", "mountPath": folder})
        volumes.append({"name": "checkpoint", "persistentVolumeClaim": {"claimName": request.volume_claim}})
    elif local:
        held = f"the volume that holds {public_address(model)} (volume_claim)"
        remarks.append(f"mount {held}, else the server finds no model")
    elif tier != "object_store":
        downloads = "a start downloads it first, the prediction reads it from"
        remarks.append(f"no volume holds the checkpoint (volume_claim): {downloads} {tier}")
    return mounts, volumes
