"""Manifests: the times of a predicted start as what Kubernetes, autoscalers and simulators take, ready to paste.

``timings`` works out every number first, with a formula; the formats only print them, each with its reason beside it.
"""

from __future__ import annotations

from startup_model.manifests.render import FORMATS, Format, render
from startup_model.manifests.request import DeploymentRequest
from startup_model.manifests.times import (
    Timings,
    budget_reason,
    cooldown_reason,
    deadline_reason,
    evidence_reason,
    lead_reason,
    ready_timeout_reason,
    timings,
    warm_reason,
    whole_reason,
)

PlanRequest = DeploymentRequest  # earlier name

__all__ = [
    "FORMATS", "DeploymentRequest", "Format", "PlanRequest", "Timings", "budget_reason", "cooldown_reason", "deadline_reason", "evidence_reason",
    "lead_reason", "ready_timeout_reason", "render", "timings", "warm_reason", "whole_reason",
]  # fmt: skip
