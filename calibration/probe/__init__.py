"""Measuring a host: what its storage, memory, processor and links can do, in a minute."""

from calibration.probe.probe import probe_host
from calibration.probe.results import Measurement, ProbeReport

__all__ = ["Measurement", "ProbeReport", "probe_host"]
