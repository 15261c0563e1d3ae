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
    "LoggedStart",
    "ParsedStartup",
    "Plan",
    "ProbeReport",
    "RunRecord",
    "ServerError",
    "StartupLogParser",
    "StartupRegressor",
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
    from calibration.fit.calibrate import FitReport, calibrate, diff_profiles, fit_profile
    from calibration.fit.regressor import StartupRegressor
    from calibration.fit.validate import cross_validate
    from calibration.logs.diagnosis import diagnose
    from calibration.logs.parsed import LoggedStart, ParsedStartup
    from calibration.logs.parser import StartupLogParser, parse_log, parse_starts
    from calibration.measure.difference import IsolatedPhases, isolated_phases
    from calibration.measure.run import StepNews, profile_server
    from calibration.measure.schedule import Plan
    from calibration.measure.start import Limits, ServerError
    from calibration.probe.probe import probe_host
    from calibration.probe.results import ProbeReport
    from calibration.runs.read import read_runs
    from calibration.runs.record import RunRecord
    from calibration.runs.write import write_runs

_NAMES = {  # module -> the public names that it defines
    "fit.calibrate": ("FitReport", "calibrate", "diff_profiles", "fit_profile"),
    "fit.regressor": ("StartupRegressor",),
    "fit.validate": ("cross_validate",),
    "logs.diagnosis": ("diagnose",),
    "logs.parsed": ("LoggedStart", "ParsedStartup"),
    "logs.parser": ("StartupLogParser", "parse_log", "parse_starts"),
    "measure.difference": ("IsolatedPhases", "isolated_phases"),
    "measure.run": ("StepNews", "profile_server"),
    "measure.schedule": ("Plan",),
    "measure.start": ("Limits", "ServerError"),
    "probe.probe": ("probe_host",),
    "probe.results": ("ProbeReport",),
    "runs.read": ("read_runs",),
    "runs.record": ("RunRecord",),
    "runs.write": ("write_runs",),
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
