"""Calibration: from profiled runs to the coefficients of a host. ``startup_model`` never imports this package."""

from __future__ import annotations

__all__ = ["RunRecord", "fit_host", "leave_one_out"]

from calibration.fit import fit_host
from calibration.records import RunRecord
from calibration.validate import leave_one_out
