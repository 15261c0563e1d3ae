"""Calibration: from profiled runs to the coefficients of a host. ``startup_model`` never imports this package.

Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "FitReport",
    "IsolatedPhases",
    "Limits",
    "ParsedStartup",
    "Plan",
    "ProbeReport",
    "RunRecord",
    "ServerError",
    "StartupLogParser",
    "StepNews",
    "calibrate",
    "cross_validate",
    "diagnose",
    "diff_profiles",
    "fit_profile",
    "isolated_phases",
    "parse_log",
    "parse_starts",
    "probe_host",
    "profile_server",
    "read_runs",
    "write_runs",
]

if TYPE_CHECKING:
    from calibration.estimator import FitReport, calibrate, diff_profiles, fit_profile
    from calibration.logs.diagnosis import diagnose
    from calibration.logs.parser import StartupLogParser, parse_log, parse_starts
    from calibration.logs.startup import ParsedStartup
    from calibration.probe.probe import probe_host
    from calibration.probe.results import ProbeReport
    from calibration.profiling.difference import IsolatedPhases, isolated_phases
    from calibration.profiling.plan import Plan
    from calibration.profiling.run import StepNews, profile_server
    from calibration.profiling.starts import Limits, ServerError
    from calibration.readers import read_runs, write_runs
    from calibration.records import RunRecord
    from calibration.validate import cross_validate

_HOMES = {
    "calibrate": "estimator",
    "FitReport": "estimator",
    "diff_profiles": "estimator",
    "fit_profile": "estimator",
    "read_runs": "readers",
    "write_runs": "readers",
    "RunRecord": "records",
    "cross_validate": "validate",
    "diagnose": "logs.diagnosis",
    "ParsedStartup": "logs.startup",
    "StartupLogParser": "logs.parser",
    "parse_log": "logs.parser",
    "parse_starts": "logs.parser",
    "ProbeReport": "probe.results",
    "probe_host": "probe.probe",
    "IsolatedPhases": "profiling.difference",
    "isolated_phases": "profiling.difference",
    "Plan": "profiling.plan",
    "profile_server": "profiling.run",
    "StepNews": "profiling.run",
    "Limits": "profiling.starts",
    "ServerError": "profiling.starts",
}
"""Public name -> module that defines it."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
