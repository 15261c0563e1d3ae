"""What runs the server on Kubernetes: a Deployment, its startup probe alone, a Knative Service, and a ConfigMap with the profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from startup_model.errors import MISSING, ConfigError
from startup_model.manifests.container import READY_TIMEOUT, Endpoint, Server, endpoint, server
from startup_model.manifests.document import Document, Place, yaml_text
from startup_model.manifests.names import check_service_label
from startup_model.manifests.reasons import budget_reason, capped, deadline_reason, head, joined, warm_reason
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.timings import Timings

__all__ = ["configmap", "deployment", "knative_service", "startup_probe"]

HEALTH_PATH = "/health"
"""Answers 200 once the engine is ready, without a key: vLLM since 0.1, SGLang."""

PROBE_TIMEOUTS_S: Mapping[str, int] = {"vllm": 5, "sglang": 20}
"""Engine -> how long one probe waits for its answer. A busy server takes longer than the second that is Kubernetes' default; SGLang generates a token for /health, for
which it gives itself 20 s (entrypoints/http_server.py, HEALTH_CHECK_TIMEOUT)."""

LARGEST_CONFIGMAP = 2**20
"""Bytes of the names and values in a ConfigMap."""

LONGEST_KNATIVE_DELAY_S = 3600
"""Largest scale-down delay and retention (pkg/apis/autoscaling/register.go, WindowMax)."""

USUAL_KNATIVE_TIMEOUT_S = 600
"""Largest timeoutSeconds that Knative accepts unless max-revision-timeout-seconds is raised (pkg/apis/config/defaults.go)."""


def deployment(request: PlanRequest, times: Timings) -> str:
    """A Deployment (apps/v1): the server with its flags, devices, probes and deadlines. terminationGracePeriodSeconds is left alone."""
    runs = server(request, times)
    labels = {"app": request.label}
    content = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(request) | {"labels": labels},
        "spec": {
            "replicas": request.replicas_min,
            "progressDeadlineSeconds": times.progress_deadline_s,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(runs, times)},
        },
    }
    notes = {
        ("spec", "replicas"): joined("leave it out where an autoscaler sets it", warm_reason(request)),
        ("spec", "progressDeadlineSeconds"): deadline_reason(request, times),
        **_container_notes(("spec", "template", "spec", "containers", 0), request, times, runs),
    }  # fmt: skip
    return yaml_text((*head(request, times), *_remarks(runs)), [Document(content, notes)])


def startup_probe(request: PlanRequest, times: Timings) -> str:
    """The startup probe of a container."""
    content = {"startupProbe": _probe(times, request.engine.engine, endpoint(request))}
    return yaml_text(
        (*head(request, times), "partial: for a container of a pod"),
        [Document(content, _probe_notes(("startupProbe",), request, times))],
    )


def knative_service(request: PlanRequest, times: Timings) -> str:
    """A Knative Service (serving.knative.dev/v1): progress deadline, scale bounds and delays, and how long a first request may wait."""
    runs = server(request, times)
    name = check_service_label("name", request.label)
    delay_s = min(LONGEST_KNATIVE_DELAY_S, times.cooldown_s)
    annotations = {
        "autoscaling.knative.dev/min-scale": str(request.replicas_min),
        "autoscaling.knative.dev/max-scale": str(request.most_replicas),
        "autoscaling.knative.dev/target": str(request.requests_each),
        "autoscaling.knative.dev/scale-down-delay": f"{delay_s}s",
        "serving.knative.dev/progress-deadline": f"{times.progress_deadline_s}s",
    }
    spec: dict[str, Any] = {}
    base: Place = ("spec", "template", "metadata", "annotations")
    notes: dict[Place, str] = {
        (*base, "autoscaling.knative.dev/target"): "requests in progress for a replica",
        (*base, "autoscaling.knative.dev/scale-down-delay"): _delay_reason(times),
        (*base, "serving.knative.dev/progress-deadline"): deadline_reason(request, times),
    }  # fmt: skip
    if request.warm_replicas is not None:
        notes[*base, "autoscaling.knative.dev/min-scale"] = warm_reason(request)
    if request.replicas_min == 0:
        annotations["autoscaling.knative.dev/scale-to-zero-pod-retention-period"] = f"{delay_s}s"
        notes[*base, "autoscaling.knative.dev/scale-to-zero-pod-retention-period"] = _delay_reason(times)
        spec = {"timeoutSeconds": times.first_answer_s, "responseStartTimeoutSeconds": times.first_answer_s}
        notes["spec", "template", "spec", "timeoutSeconds"] = "a request that arrives at zero replicas waits for a start" + (
            f"; needs max-revision-timeout-seconds of at least {times.first_answer_s} in config-defaults"
            if times.first_answer_s > USUAL_KNATIVE_TIMEOUT_S
            else ""
        )  # fmt: skip
    content = {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": metadata(request) | {"name": name},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": spec | _pod(runs, times)}},
    }
    notes |= _container_notes(("spec", "template", "spec", "containers", 0), request, times, runs)
    claim = (
        ("needs kubernetes.podspec-persistent-volume-claim and -write enabled in config-features",)
        if request.volume_claim
        else ()
    )
    return yaml_text((*head(request, times), *_remarks(runs), *claim), [Document(content, notes)])


def configmap(request: PlanRequest, times: Timings) -> str:
    """A ConfigMap (v1) that holds the profile, to be mounted where predictions are made. Raises ConfigError without one, and above 1 MiB."""
    profile = request.profile if request.profile is not None else request.prediction.context.start.profile
    if profile is None:
        raise ConfigError("profile", MISSING, "nothing to put into a ConfigMap", "give one that calibrate wrote")
    text = profile.to_json()
    size = len("profile.json") + len(text.encode())
    if size > LARGEST_CONFIGMAP:
        raise ConfigError(
            "profile", size, f"bytes, more than the {LARGEST_CONFIGMAP} of a ConfigMap", "keep it in a volume instead"
        )
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(request) | {"name": f"{request.label[:50].rstrip('-')}-profile"},
        "data": {"profile.json": text},
    }
    return yaml_text(
        (f"profile {profile.name}, {profile.engine} {profile.engine_version}: mount it and give the file as profile",),
        [Document(content)],
    )


def metadata(request: PlanRequest) -> dict[str, Any]:
    """Name and namespace."""
    return {"name": request.label} | ({"namespace": request.namespace} if request.namespace else {})


def _delay_reason(times: Timings) -> str:
    cut = times.cooldown_s > LONGEST_KNATIVE_DELAY_S
    return capped(f"a new replica takes {times.lead_time_s} s", "Knative allows an hour", cut=cut)


def _probe(times: Timings, engine: str, where: Endpoint) -> dict[str, Any]:
    get = {"path": HEALTH_PATH, "port": where.port} | ({"scheme": where.scheme} if where.scheme != "HTTP" else {})
    return {
        "httpGet": get,
        "initialDelaySeconds": times.initial_delay_s,
        "periodSeconds": times.period_s,
        "timeoutSeconds": PROBE_TIMEOUTS_S[engine],
        "failureThreshold": times.failure_threshold,
    }


def _probe_notes(base: Place, request: PlanRequest, times: Timings) -> dict[Place, str]:
    return {
        (*base, "initialDelaySeconds"): "one period: the last failure then falls behind the limit",
        (
            *base,
            "failureThreshold",
        ): f"x {times.period_s} s = {times.startup_limit_s} s >= {budget_reason(request, times)}",
    }


def _pod(runs: Server, times: Timings) -> dict[str, Any]:
    """Containers and volumes of a pod."""
    volumes = {"volumes": list(runs.volumes)} if runs.volumes else {}
    return {"containers": [_container(runs, times)]} | volumes


def _container(runs: Server, times: Timings) -> dict[str, Any]:
    """The container of a pod."""
    probe = _probe(times, runs.engine, runs.endpoint)
    container: dict[str, Any] = {
        "name": runs.engine,
        "image": runs.image,
        "command": list(runs.command),
        "args": list(runs.args),
    }
    if runs.environment:
        container["env"] = list(runs.environment)
    container["ports"] = [{"containerPort": runs.endpoint.port}]
    if runs.devices:
        container["resources"] = {"limits": dict(runs.devices)}
    container["startupProbe"] = probe
    container["readinessProbe"] = {name: probe[name] for name in ("httpGet", "periodSeconds", "timeoutSeconds")}
    if runs.mounts:
        container["volumeMounts"] = list(runs.mounts)
    return container


def _container_notes(base: Place, request: PlanRequest, times: Timings, runs: Server) -> dict[Place, str]:
    notes = _probe_notes((*base, "startupProbe"), request, times)
    for position, entry in enumerate(runs.environment):
        if entry["name"] == READY_TIMEOUT:
            notes[*base, "env", position, "value"] = (
                f"seconds that the API server waits for its engine; the startup probe allows {times.startup_limit_s}"
            )
    for resource in runs.devices:
        notes[*base, "resources", "limits", resource] = "accelerators of one server"
    if runs.mounts and runs.mounts[0]["name"] == "shared-memory":
        notes[*base, "volumeMounts"] = "workers of one server talk through shared memory"
    return notes


def _remarks(runs: Server) -> tuple[str, ...]:
    """What has to be done before the manifest is applied."""
    if not runs.secrets:
        return runs.remarks
    keys = " ".join(f"--from-literal={name}=..." for name in runs.secrets)
    return (
        *runs.remarks,
        f"what is or may be secret is not printed: kubectl create secret generic {runs.secret_name} {keys}",
    )
