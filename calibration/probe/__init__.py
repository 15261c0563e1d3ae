"""Measuring a host: what its storage, memory, processor and links can do, in a minute.

Names are imported on first use, so that the commands start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.probe.probe import probe_host
    from calibration.probe.results import Measurement, ProbeReport

__all__ = ["Measurement", "ProbeReport", "probe_host"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'probe' if name == 'probe_host' else 'results'}"), name)
