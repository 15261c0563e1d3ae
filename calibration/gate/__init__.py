"""A gate for continuous integration: measured starts against a profile, profiles and predictions against each other."""

from calibration.gate.compare import CompareReport, compare_files, compare_predictions, compare_profiles
from calibration.gate.inputs import read_candidates
from calibration.gate.judge import gate
from calibration.gate.report import Candidate, GateReport

__all__ = ["Candidate", "CompareReport", "GateReport", "compare_files", "compare_predictions", "compare_profiles", "gate", "read_candidates"]  # fmt: skip
