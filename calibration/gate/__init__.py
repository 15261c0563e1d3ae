"""A gate for continuous integration: measured starts against a profile, profiles and predictions against each other.

Names are imported on first use, so that the commands start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Candidate",
    "CompareReport",
    "GateReport",
    "compare_files",
    "compare_predictions",
    "compare_profiles",
    "gate",
    "read_candidates",
]

if TYPE_CHECKING:
    from calibration.gate.compare import CompareReport, compare_files, compare_predictions, compare_profiles
    from calibration.gate.inputs import read_candidates
    from calibration.gate.judge import gate
    from calibration.gate.report import Candidate, GateReport

_HOMES = {
    "Candidate": "report",
    "CompareReport": "compare",
    "GateReport": "report",
    "compare_files": "compare",
    "compare_predictions": "compare",
    "compare_profiles": "compare",
    "gate": "judge",
    "read_candidates": "inputs",
}
"""Public name -> module that defines it."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
