"""The formats by name, and the one way to print them: templates filled with values that are quoted, and reasons that stay comments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from startup_model.errors import MISSING, ConfigError, UnknownNameError, one_line, out_of_range, wrong_type
from startup_model.files import canonical_json
from startup_model.manifests.container import endpoint, server
from startup_model.manifests.request import DeploymentRequest, check_label
from startup_model.manifests.times import MAX_POLICY_PERIOD_S, Scattered, Timings, head, reasons, segment_time, timings
from startup_model.planning import groups_needed, held_out_groups, moments
from startup_model.planning.times import start_with
from startup_model.secrets import holds_secret
from startup_model.units import format_seconds

MAX_CONFIGMAP = 2**20  # bytes of the names and values in a ConfigMap
MAX_KNATIVE_TIMEOUT_S = 600  # timeoutSeconds unless it is raised (pkg/apis/config/defaults.go)
MAX_LINE = 120
MAX_NOTE = 300

_ONLY_IF = re.compile(r"\[(!?)([a-z_]+)\? ([^]]*)\]")
_PLACE = re.compile(r"\$\{?([a-z_]+)\}?")
_PLAIN = re.compile(r"(?:--?)?[A-Za-z/][A-Za-z0-9_./@-]*(?::[A-Za-z0-9_./@-]+)*")
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])  # no texts in YAML


def quoted(value: object) -> str:
    """A number, or a text so that every parser of YAML 1.1 and 1.2 reads the same one; numbers never start with a letter."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str) and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def filled(template: Iterable[str], values: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a template with the values in place.

    ``key: $name`` takes a number, a text, or a list or mapping below the key; ``key: '${name}s'`` whole numbers within a text. A value that is nothing (None, empty) leaves its line out. A comment
    is text with places, of which ``[name? text]`` stands only where the value is something, ``[!name? text]`` where it is nothing; one that is empty is left out, one that is a list becomes as many,
    and one that makes its line longer than 120 characters moves above it. ``@name`` is another template without its comments at the top.
    """
    for line in template:
        body = line.lstrip(" ")
        indentation = line[: len(line) - len(body)]
        content, _, note = body.partition("# ")
        if content.startswith("@"):
            inner = (part for part in _template(f"{content[1:]}.yaml") if not part.startswith("#"))
            lines = list(filled(inner, values))
        elif content:
            lines = _entry(content.rstrip(), values)
            if lines and (text := _noted(note, values)):
                beside = f"{lines[0]}  # {text}"
                fits = len(lines) == 1 and len(indentation + beside) <= MAX_LINE
                lines = [beside] if fits else [f"# {text}", *lines]
        else:
            several = values.get(note[1:])
            notes = several if isinstance(several, list) else [_noted(note, values)]
            lines = [f"# {text}" for text in (one_line(note, MAX_NOTE) for note in notes) if text]
        yield from (indentation + text for text in lines)


def _entry(content: str, values: Mapping[str, Any]) -> list[str]:
    if any(values[name] in (None, [], {}, ()) for name in _PLACE.findall(content)):
        return []
    if "'" in content:
        return [_PLACE.sub(lambda place: f"{values[place[1]]:d}", content)]
    start, place, name = content.partition(" $")
    return _block(start, values[name]) if place else [content]


def _noted(note: str, values: Mapping[str, Any]) -> str:
    note = _ONLY_IF.sub(lambda found: found[3] if bool(values[found[2]]) is not bool(found[1]) else "", note)
    return one_line(_PLACE.sub(lambda place: str(values[place[1]]), note), MAX_NOTE)


def _block(start: str, value: object) -> list[str]:
    """A value behind ``start`` (a key or a dash) as lines of YAML."""
    if isinstance(value, Mapping):
        inner = [line for key, item in value.items() for line in _block(f"{quoted(key)}:", item)]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        inner = [line for item in value for line in _block("-", item)]
    elif isinstance(value, str) and value[:1] == "{" and value[-2:] == "}\n" and value.replace("\n", "").isprintable():
        return [f"{start} |", *(f"  {line}" for line in value.splitlines())]  # JSON
    else:
        return [f"{start} {quoted(value)}"]
    if start == "-":
        return [f"- {inner[0]}", *(f"  {line}" for line in inner[1:])]
    return [start, *(f"  {line}" for line in inner)]


@lru_cache(maxsize=32)
def _template(name: str) -> tuple[str, ...]:
    return tuple(files(__package__).joinpath("templates", name).read_text(encoding="utf-8").splitlines())


Values = dict[str, Any]
OwnValues = Callable[[DeploymentRequest, Timings], Values]


def _common(request: DeploymentRequest, times: Timings) -> Values:
    """What any template may name."""
    return {
        **times._asdict(),
        **{f"{name}_reason": text for name, text in reasons(request, times).items()},
        "name": request.label,
        "namespace": request.namespace,
        "head": head(request, times),
        "replicas_min": request.replicas_min,
        "replicas_max": request.most_replicas,
        "to_zero": request.replicas_min == 0,
        "requests": request.requests_each,
        "requests_given": request.requests_per_replica is not None,
        "claim": request.volume_claim,
        "cold_start": f"{times.slowest_s:.3f}s",
        "longest_period": times.scale_up_period_s == MAX_POLICY_PERIOD_S,
        "above_an_hour": times.cooldown_s > times.stabilisation_s,
    }


def _hpa(request: DeploymentRequest, times: Timings) -> Values:
    if request.replicas_min == 0:
        remedy = "take keda or knative, which go to zero"
        raise out_of_range("replicas_min", 0, "at least 1 for a HorizontalPodAutoscaler", remedy)
    return {"metric": f"{request.engine.engine}_requests_in_progress", "gauges": " + ".join(request.deploy.gauges)}


def _keda(request: DeploymentRequest, times: Timings) -> Values:
    served = endpoint(request, times)["served_name"]
    if holds_secret(served):
        problem = "the query would print it, and it looks like a secret"
        raise ConfigError("--served-model-name", MISSING, problem, "serve it under another name")
    name = json.dumps(served, ensure_ascii=False)
    return {"query": " + ".join(f"sum({gauge}{{model_name={name}}})" for gauge in request.deploy.gauges)}


def _knative(request: DeploymentRequest, times: Timings) -> Values:
    check_label("name", request.label, service=True)
    to_zero = request.replicas_min == 0
    return server(request, times) | {
        "retention_s": times.stabilisation_s if to_zero else None,
        "first_answer": times.first_answer_s if to_zero else None,
        "too_long": times.first_answer_s > MAX_KNATIVE_TIMEOUT_S,
    }


def _ray_serve(request: DeploymentRequest, times: Timings) -> Values:
    deploy, timeout = request.deploy, request.ready_timeout
    runtime_env = timeout and {"env_vars": {timeout.variable: str(times.ready_timeout_s)}}
    return {"initial_replicas": max(1, request.replicas_min), "runtime_env": runtime_env, "title": deploy.title}


def _configmap(request: DeploymentRequest, times: Timings) -> Values:
    profile = request.profile if request.profile is not None else request.prediction.context.start.profile
    if profile is None:
        raise ConfigError("profile", MISSING, "nothing to put into a ConfigMap", "give one that calibrate wrote")
    text = profile.to_json()
    if (size := len("profile.json") + len(text.encode())) > MAX_CONFIGMAP:
        problem = f"bytes, more than the {MAX_CONFIGMAP} of a ConfigMap"
        raise ConfigError("profile", size, problem, "keep it in a volume instead")
    engine = f"{profile.engine} {profile.engine_version}"
    label = request.suffixed("profile")
    return {"profile": text, "profile_name": profile.name, "profile_engine": engine, "profile_label": label}


def _blis(request: DeploymentRequest, times: Timings) -> Values:
    """From a node that is there to a server that answers, as mean and deviation [s]; caches of unknown state count as cold at every quantile, as on a new node."""
    prediction, on_node = request.prediction, ("image_pull", "container_start")
    loaded = start_with(prediction, on_node)
    loading = moments(Scattered(loaded.slowest_s, loaded.spread.factor))
    provision = moments(segment_time(start_with(prediction, ("provision",)), ("provision",)))
    return {
        "mean": round(loading.mean_s, 3),
        "deviation": round(loading.standard_deviation_s, 3),
        "provision_mean": f"{provision.mean_s:.3f}",
        "provision_deviation": f"{provision.standard_deviation_s:.3f}",
        "on_node": " + ".join(format_seconds(time) for phase, time in prediction.segments.items() if phase in on_node),
        "slowest": format_seconds(times.slowest_s),
    }


def _text(template: str, own: OwnValues | None, request: DeploymentRequest, times: Timings) -> str:
    values = _common(request, times) | (own(request, times) if own else {})
    return "".join(f"{line}\n" for line in filled(_template(template), values))


def _env(request: DeploymentRequest, times: Timings) -> str:
    """The engine's own timeout for a shell to source. Raises ConfigError for an engine that has no such variable."""
    deploy = request.deploy
    if (timeout := deploy.ready_timeout) is None:
        problem = f"{request.engine.engine} waits for its workers without a limit, no variable sets one"
        raise ConfigError("format", "env", problem, "take startup-probe or json")
    read = f"{reasons(request, times)['ready_timeout']}; read from {deploy.title} {timeout.since_text} on"
    notes = filled(["# $notes"], {"notes": [*head(request, times), read]})
    return "\n".join([*notes, f"export {timeout.variable}={times.ready_timeout_s}", ""])


def _dynosim(request: DeploymentRequest, times: Timings) -> str:
    """For --extra-engine-args of Dynamo's mocker (DynoSim), as usual on a new node; the same as its flag --startup-time [s]."""
    return json.dumps({"startup_time": round(times.slowest_s, 3)}) + "\n"


def _json(request: DeploymentRequest, times: Timings) -> str:
    """Every number, with what it was worked out from."""
    prediction = request.prediction
    return canonical_json(
        {
            "name": request.label,
            "model": request.public_model,
            "hardware": prediction.context.hardware_name,
            "engine": prediction.context.engine_name,
            "calibrated": prediction.calibrated,
            "starts": prediction.memory.fits,
            "policy": request.policy.model_dump(mode="json"),
            "quantile_evidence": {
                "held_out_groups": held_out_groups(prediction),
                "groups_needed": groups_needed(request.policy.quantile),
                "note": reasons(request, times)["evidence"],
            },
            "timings": times._asdict(),
            "segments": {str(phase): seconds for phase, seconds in prediction.segments.items()},
            "replicas_min": request.replicas_min,
            "replicas_max": request.most_replicas,
            "warm_replicas": request.warm_replicas,
            "requests_per_replica": request.requests_each,
            "warnings": list(prediction.warnings),
        }
    )


class Format(NamedTuple):
    """One way to print a plan."""

    function: Callable[[DeploymentRequest, Timings], str]
    description: str
    kind: Literal["yaml", "json", "env"] = "yaml"


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "kubernetes": Format(partial(_text, "kubernetes.yaml", server), "Deployment: server, startup probe, progress deadline, devices"),
        "startup-probe": Format(partial(_text, "startup-probe.yaml", endpoint), "startupProbe of a container, alone"),
        "hpa": Format(partial(_text, "hpa.yaml", _hpa), "HorizontalPodAutoscaler with behaviour"),
        "keda": Format(partial(_text, "keda.yaml", _keda), "ScaledObject of KEDA: polling, cool-down, behaviour"),
        "karpenter": Format(partial(_text, "karpenter.yaml", None), "disruption part of a NodePool of Karpenter"),
        "knative": Format(partial(_text, "knative.yaml", _knative), "Service of Knative: deadline, scale bounds and delays"),
        "ray-serve": Format(partial(_text, "ray-serve.yaml", _ray_serve), "delays of Ray Serve's autoscaler, timeout of KubeRay"),
        "configmap": Format(partial(_text, "configmap.yaml", _configmap), "ConfigMap that holds the profile"),
        "env": Format(_env, "the variable of the engine's own timeout, for a shell", "env"),
        "blis": Format(partial(_text, "blis.yaml", _blis), "BLIS (inference-sim): loading_delay as mean and deviation"),
        "llm-d-inference-sim": Format(partial(_text, "llm-d-inference-sim.yaml", None), "llm-d-inference-sim: startup-duration"),
        "dynosim": Format(_dynosim, "DynoSim (Dynamo's mocker): startup_time", "json"),
        "json": Format(_json, "every number, for programs", "json"),
    }
)  # fmt: skip
"""Name of a format -> how it is printed."""


def render(name: str, request: DeploymentRequest) -> str:
    """A plan in a format of ``FORMATS``, ready to paste; ends with a line break.

    Raises UnknownNameError for another format, ConfigError for what ``timings`` or the format refuses.
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise UnknownNameError("format", str(name), FORMATS)
    if not isinstance(request, DeploymentRequest):
        raise wrong_type("request", request, "a DeploymentRequest", "DeploymentRequest(prediction=predict(...), ...)")
    return FORMATS[name].function(request, timings(request))
