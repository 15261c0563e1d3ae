"""Inputs of simulators: BLIS (inference-sim), llm-d-inference-sim, DynoSim (the mocker of Dynamo)."""

from __future__ import annotations

import json
from typing import NamedTuple

from startup_model.manifests.document import Document, yaml_text
from startup_model.manifests.reasons import head
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.timings import Timings, segment_time, start_with
from startup_model.phases import Phase
from startup_model.planning import moments
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

__all__ = ["blis", "dynosim", "llm_d_inference_sim"]


class _ColdCaches(NamedTuple):
    """A start with caches of unknown state taken as cold at every quantile, as on a new node; whether it starts or not."""

    prediction: StartupPrediction

    def quantile(self, probability: float, /) -> float:
        return self.prediction.slowest_s * self.prediction.spread.factor(probability)


def blis(request: PlanRequest, times: Timings) -> str:
    """A policy bundle of BLIS with ``loading_delay``: from a node that is there to a server that answers, as mean and deviation [s]."""
    prediction = request.prediction
    on_node = (Phase.IMAGE_PULL, Phase.CONTAINER_START)
    loading = moments(_ColdCaches(start_with(prediction, on_node)))
    provision = moments(segment_time(start_with(prediction, (Phase.PROVISION,)), (Phase.PROVISION,)))
    content = {
        "instance_lifecycle": {
            "loading_delay": {"mean": round(loading.mean_s, 3), "stddev": round(loading.standard_deviation_s, 3)}
        }
    }
    parts = " + ".join(format_seconds(prediction.segments[phase]) for phase in on_node)
    lines = (
        *head(request, times),
        "for --policy-config of BLIS (inference-sim); seconds",
        f"provisioning_delay of a node pool: mean {provision.mean_s:.3f}, stddev {provision.standard_deviation_s:.3f}",
    )
    place = ("instance_lifecycle", "loading_delay", "mean")
    return yaml_text(lines, [Document(content, {place: f"image and container {parts} + ready {format_seconds(times.slowest_s)}, and their spread"})])  # fmt: skip


def llm_d_inference_sim(request: PlanRequest, times: Timings) -> str:
    """``startup-duration`` of a configuration file of llm-d-inference-sim: until /health/ready answers 200."""
    content = {"startup-duration": f"{times.slowest_s:.3f}s"}
    return yaml_text(
        (*head(request, times), "for --config of llm-d-inference-sim (0.9 on)"),
        [Document(content, {("startup-duration",): "as usual on a new node; the simulator draws none"})],
    )


def dynosim(request: PlanRequest, times: Timings) -> str:
    """``startup_time`` [s] for --extra-engine-args of Dynamo's mocker (DynoSim), as usual on a new node; the same as its flag --startup-time."""
    return json.dumps({"startup_time": round(times.slowest_s, 3)}) + "\n"
