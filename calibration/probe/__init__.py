"""Measuring a host: what its storage, memory, processor and links can do, in a minute.

Names are imported on first use, so that the commands start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Measurement", "ProbeReport", "probe_host"]

if TYPE_CHECKING:
    from calibration.probe.probe import probe_host
    from calibration.probe.results import Measurement, ProbeReport

_HOMES = {"probe_host": "probe", "Measurement": "results", "ProbeReport": "results"}
"""Public name -> module that defines it."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
