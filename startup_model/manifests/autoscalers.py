"""What scales the server: an HPA, KEDA, Karpenter's disruption of nodes, and Ray Serve."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from startup_model.errors import MISSING, ConfigError
from startup_model.manifests.container import READY_TIMEOUT, endpoint
from startup_model.manifests.document import Document, Place, yaml_text
from startup_model.manifests.reasons import capped, deadline_reason, head, warm_reason, whole_reason
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.secrets import looks_secret
from startup_model.manifests.timings import LONGEST_POLICY_PERIOD_S, LONGEST_STABILISATION_S, Timings
from startup_model.manifests.workloads import metadata

__all__ = ["horizontal_pod_autoscaler", "karpenter_disruption", "keda_scaled_object", "ray_serve"]

GAUGES: Mapping[str, tuple[str, str]] = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
"""Engine -> its gauges of requests in progress and in the queue; SGLang exports them with --enable-metrics."""

PROMETHEUS = "http://prometheus-server.monitoring.svc:9090"


def horizontal_pod_autoscaler(request: PlanRequest, times: Timings) -> str:
    """A HorizontalPodAutoscaler (autoscaling/v2): not more than one step within a start, and nothing let go sooner than it can be had back.

    Raises ConfigError for ``replicas_min`` 0.
    """
    if request.replicas_min == 0:
        raise ConfigError(
            "replicas_min", 0, "a HorizontalPodAutoscaler keeps at least 1", "take keda or knative, which go to zero"
        )
    gauge = f"{request.engine.engine}_requests_in_progress"
    content = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(request),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": request.label},
            "minReplicas": request.replicas_min,
            "maxReplicas": request.most_replicas,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": gauge},
                        "target": {"type": "AverageValue", "averageValue": str(request.requests_each)},
                    },
                }
            ],
            "behavior": _behavior(times),
        },
    }
    pods: Place = ("spec", "metrics", 0, "pods")
    notes = {
        (*pods, "metric", "name"): f"to be served by the metrics adapter: {' + '.join(GAUGES[request.engine.engine])} of a pod",
        (*pods, "target", "averageValue"): _requests_reason(request),
        **_behavior_notes(("spec", "behavior"), times),
        **_warm_note(("spec", "minReplicas"), request),
    }  # fmt: skip
    return yaml_text(head(request, times), [Document(content, notes)])


def keda_scaled_object(request: PlanRequest, times: Timings) -> str:
    """A ScaledObject (keda.sh/v1alpha1): polling, cool-down before zero, and the behaviour of the HPA that KEDA makes."""
    served = endpoint(request).served_name
    if looks_secret(served):
        raise ConfigError(
            "--served-model-name",
            MISSING,
            "the query would print it, and it looks like a secret",
            "serve it under another name",
        )
    name = json.dumps(served, ensure_ascii=False)
    query = " + ".join(f"sum({gauge}{{model_name={name}}})" for gauge in GAUGES[request.engine.engine])
    content = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(request),
        "spec": {
            "scaleTargetRef": {"name": request.label},
            "pollingInterval": times.polling_s,
            "initialCooldownPeriod": times.progress_deadline_s,
            "cooldownPeriod": times.cooldown_s,
            "minReplicaCount": request.replicas_min,
            "maxReplicaCount": request.most_replicas,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(times)}},
            "triggers": [
                {
                    "type": "prometheus",
                    "metadata": {
                        "serverAddress": PROMETHEUS,
                        "query": query,
                        "threshold": str(request.requests_each),
                    },
                }
            ],
        },
    }
    trigger: Place = ("spec", "triggers", 0, "metadata")
    notes = {
        ("spec", "pollingInterval"): "the lead time counts on seeing a demand within this",
        ("spec", "initialCooldownPeriod"): "the first replica is left to start, from nothing",
        ("spec", "cooldownPeriod"): f"only before zero: a new replica takes {times.lead_time_s} s",
        (*trigger, "serverAddress"): "put yours in its place",
        (*trigger, "threshold"): _requests_reason(request),
        **_behavior_notes(("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior"), times),
        **_warm_note(("spec", "minReplicaCount"), request),
    }
    zero = ("at zero replicas the engine reports no metric: query one of the gateway in front",)
    return yaml_text((*head(request, times), *(zero if request.replicas_min == 0 else ())), [Document(content, notes)])


def karpenter_disruption(request: PlanRequest, times: Timings) -> str:
    """The disruption part of a NodePool (karpenter.sh/v1): nodes are kept while it pays, and emptied one at a time."""
    content = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": f"{times.consolidate_after_s}s",
                "budgets": [
                    {"nodes": "1", "reasons": ["Underutilized", "Drifted"]},
                    {"nodes": "100%", "reasons": ["Empty"]},
                ],
            }
        },
    }
    base: Place = ("spec", "disruption")
    notes = {
        (*base, "consolidationPolicy"): f"a server that is moved starts anew: {times.startup_limit_s} s",
        (*base, "consolidateAfter"): f"another one with a ready server takes as long: {whole_reason(request, times)}",
        (*base, "budgets", 0, "nodes"): "the next node goes when what ran on the last is ready elsewhere",
    }  # fmt: skip
    partial = "partial: kubectl patch nodepool NAME --type merge --patch-file THIS_FILE"
    return yaml_text((*head(request, times), partial), [Document(content, notes)])


def ray_serve(request: PlanRequest, times: Timings) -> str:
    """Delays of a Ray Serve deployment's autoscaler, and how long KubeRay lets a RayService initialise."""
    scaling: dict[str, Any] = {
        "min_replicas": request.replicas_min,
        "initial_replicas": max(1, request.replicas_min),
        "max_replicas": request.most_replicas,
        "target_ongoing_requests": request.requests_each,
        "upscale_delay_s": times.decision_s,
        "downscale_delay_s": times.cooldown_s,
        "downscale_to_zero_delay_s": times.cooldown_s,
    }
    serve: dict[str, Any] = {"deployment_config": {"autoscaling_config": scaling}}
    base: Place = ("deployment_config", "autoscaling_config")
    notes: dict[Place, str] = {
        (*base, "target_ongoing_requests"): _requests_reason(request),
        (*base, "upscale_delay_s"): f"every second here adds to the {times.lead_time_s} s of a new replica",
        (*base, "downscale_delay_s"): f"a new replica takes {times.lead_time_s} s",
        **_warm_note((*base, "min_replicas"), request),
    }
    if request.engine.engine == "vllm":
        serve["runtime_env"] = {"env_vars": {READY_TIMEOUT: str(times.ready_timeout_s)}}
        notes["runtime_env", "env_vars", READY_TIMEOUT] = "seconds that vLLM waits for its engine"
    service = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"annotations": {"ray.io/initializing-timeout": f"{times.progress_deadline_s}s"}},
    }
    deadline: Place = ("metadata", "annotations", "ray.io/initializing-timeout")
    lines = (
        *head(request, times),
        "two partial documents: settings of an LLMConfig (ray.serve.llm) or of a deployment, and an annotation of the RayService",
    )
    return yaml_text(
        lines,
        [
            Document(serve, notes),
            Document(
                service,
                {deadline: f"KubeRay 1.5 on: {deadline_reason(request, times)}"},
            ),
        ],
    )


def _behavior(times: Timings) -> dict[str, Any]:
    """``behavior`` of an HPA: the default step sizes, but one start apart."""
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": times.decision_s,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": times.scale_up_period_s},
                {"type": "Percent", "value": 100, "periodSeconds": times.scale_up_period_s},
            ],
        },
        "scaleDown": {"stabilizationWindowSeconds": times.stabilisation_s},
    }


def _behavior_notes(base: Place, times: Timings) -> dict[Place, str]:
    up, down = (
        "one start, node and all: replicas on their way count first",
        f"a new replica takes {times.lead_time_s} s",
    )
    return {
        (*base, "scaleUp", "policies", 0, "periodSeconds"): capped(
            up, "an HPA allows half an hour", cut=times.scale_up_period_s == LONGEST_POLICY_PERIOD_S
        ),
        (*base, "scaleDown", "stabilizationWindowSeconds"): capped(
            down, "an HPA allows an hour", cut=times.cooldown_s > LONGEST_STABILISATION_S
        ),
    }


def _warm_note(place: Place, request: PlanRequest) -> dict[Place, str]:
    return {place: warm_reason(request)} if request.warm_replicas is not None else {}


def _requests_reason(request: PlanRequest) -> str:
    if request.requests_per_replica is not None:
        return "requests in progress for a replica, as given"
    return "requests of full length that the KV pool holds; more when yours are shorter"
