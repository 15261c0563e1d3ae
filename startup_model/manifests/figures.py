"""The numbers alone: as JSON for programs, and as a line for a shell."""

from __future__ import annotations

from startup_model.errors import ConfigError
from startup_model.files import canonical_json
from startup_model.manifests.container import READY_TIMEOUT
from startup_model.manifests.reasons import evidence_reason, head, ready_timeout_reason
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.timings import Timings
from startup_model.planning import groups_needed, held_out_groups

__all__ = ["environment_line", "json_numbers"]


def json_numbers(request: PlanRequest, times: Timings) -> str:
    """Every number, with what it was worked out from."""
    prediction = request.prediction
    context = prediction.context
    return canonical_json(
        {
            "name": request.label,
            "model": request.public_model,
            "hardware": context.hardware_name,
            "engine": context.engine_name,
            "calibrated": prediction.calibrated,
            "starts": prediction.memory.fits,
            "policy": request.policy.model_dump(mode="json"),
            "quantile_evidence": {
                "held_out_groups": held_out_groups(prediction),
                "groups_needed": groups_needed(request.policy.quantile),
                "note": evidence_reason(request, times),
            },
            "timings": times._asdict(),
            "segments": {phase.value: seconds for phase, seconds in prediction.segments.items()},
            "replicas_min": request.replicas_min,
            "replicas_max": request.most_replicas,
            "warm_replicas": request.warm_replicas,
            "requests_per_replica": request.requests_each,
            "warnings": list(prediction.warnings),
        }
    )


def environment_line(request: PlanRequest, times: Timings) -> str:
    """``VLLM_ENGINE_READY_TIMEOUT_S`` for a shell to source. Raises ConfigError for another engine, which has no such variable."""
    engine = request.engine.engine
    if engine != "vllm":
        raise ConfigError(
            "format", "env", f"{engine} waits for its workers without a limit, no variable sets one", "take startup-probe or json"
        )  # fmt: skip
    lines = [
        *(f"# {line}" for line in head(request, times)),
        f"# {ready_timeout_reason(times)}; read from vLLM 0.14 on",
    ]
    return "\n".join([*lines, f"export {READY_TIMEOUT}={times.ready_timeout_s}", ""])
