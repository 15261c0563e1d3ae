"""A gate for continuous integration: measured starts against a profile, profiles and predictions against each other.

Names are imported on first use, so that the commands start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.gate.compare import CompareReport, compare_files, compare_predictions, compare_profiles
    from calibration.gate.inputs import read_candidates
    from calibration.gate.judge import gate
    from calibration.gate.report import Candidate, GateReport

_HOMES = {
    "compare": ("CompareReport", "compare_files", "compare_predictions", "compare_profiles"),
    "inputs": ("read_candidates",),
    "judge": ("gate",),
    "report": ("Candidate", "GateReport"),
}

__all__ = ["Candidate", "CompareReport", "GateReport", "compare_files", "compare_predictions", "compare_profiles", "gate", "read_candidates"]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
