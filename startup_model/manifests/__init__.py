"""Manifests: the times of a predicted start as what Kubernetes, autoscalers and simulators take, ready to paste.

``timings`` works out every number first, with a formula; the formats only print them, each with its reason beside it.
"""

from __future__ import annotations

from startup_model.manifests.formats import FORMATS, Format, render
from startup_model.manifests.reasons import (
    budget_reason,
    cooldown_reason,
    deadline_reason,
    evidence_reason,
    lead_reason,
    ready_timeout_reason,
    warm_reason,
    whole_reason,
)
from startup_model.manifests.request import PlanRequest
from startup_model.manifests.timings import Timings, timings

__all__ = [
    "FORMATS",
    "Format",
    "PlanRequest",
    "Timings",
    "budget_reason",
    "cooldown_reason",
    "deadline_reason",
    "evidence_reason",
    "lead_reason",
    "ready_timeout_reason",
    "render",
    "timings",
    "warm_reason",
    "whole_reason",
]
