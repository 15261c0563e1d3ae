"""The formats by name, and the one way to print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from startup_model.errors import ConfigError, UnknownNameError
from startup_model.manifests.autoscalers import (
    horizontal_pod_autoscaler,
    karpenter_disruption,
    keda_scaled_object,
    ray_serve,
)
from startup_model.manifests.figures import environment_line, json_numbers
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.simulators import blis, dynosim, llm_d_inference_sim
from startup_model.manifests.timings import Timings, timings
from startup_model.manifests.workloads import configmap, deployment, knative_service, startup_probe

__all__ = ["FORMATS", "Format", "render"]

Kind = Literal["yaml", "json", "env"]


class Format(NamedTuple):
    """One way to print a plan."""

    function: Callable[[PlanRequest, Timings], str]
    description: str
    kind: Kind


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "kubernetes": Format(deployment, "Deployment: server, startup probe, progress deadline, devices", "yaml"),
        "startup-probe": Format(startup_probe, "startupProbe of a container, alone", "yaml"),
        "hpa": Format(horizontal_pod_autoscaler, "HorizontalPodAutoscaler with behaviour", "yaml"),
        "keda": Format(keda_scaled_object, "ScaledObject of KEDA: polling, cool-down, behaviour", "yaml"),
        "karpenter": Format(karpenter_disruption, "disruption part of a NodePool of Karpenter", "yaml"),
        "knative": Format(knative_service, "Service of Knative: deadline, scale bounds and delays", "yaml"),
        "ray-serve": Format(ray_serve, "delays of Ray Serve's autoscaler, timeout of KubeRay", "yaml"),
        "configmap": Format(configmap, "ConfigMap that holds the profile", "yaml"),
        "env": Format(environment_line, "VLLM_ENGINE_READY_TIMEOUT_S for a shell", "env"),
        "blis": Format(blis, "BLIS (inference-sim): loading_delay as mean and deviation", "yaml"),
        "llm-d-inference-sim": Format(llm_d_inference_sim, "llm-d-inference-sim: startup-duration", "yaml"),
        "dynosim": Format(dynosim, "DynoSim (Dynamo's mocker): startup_time", "json"),
        "json": Format(json_numbers, "every number, for programs", "json"),
    }
)
"""Name of a format -> how it is printed."""


def render(name: str, request: PlanRequest) -> str:
    """A plan in a format of ``FORMATS``, ready to paste; ends with a line break.

    Raises UnknownNameError for another format, ConfigError for what ``timings`` or the format refuses.
    """
    if not isinstance(name, str) or name not in FORMATS:
        raise UnknownNameError("format", str(name), FORMATS)
    if not isinstance(request, PlanRequest):
        raise ConfigError("request", request, "no PlanRequest", "PlanRequest(prediction=predict(...), ...)")
    return FORMATS[name].function(request, timings(request))
