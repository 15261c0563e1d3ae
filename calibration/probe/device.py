"""The link to a GPU: copies from pinned memory, by torch in the engine's Python."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from calibration.probe import device_script
from calibration.probe.budget import Budget
from calibration.probe.child import Interpreter, ask
from calibration.probe.results import Found, Measurement, spread_of
from startup_model.errors import one_line

__all__ = ["LINK", "ON_DEVICE", "measure_device"]

LINK = "host_to_device"
ON_DEVICE = "device_copy"

_WORDS = {
    LINK: "torch copies from pinned memory to {device}",
    ON_DEVICE: "torch copies within the memory of {device}, reads and writes counted",
}
_KEYS = {LINK: "to_device", ON_DEVICE: "on_device"}


def measure_device(python: Interpreter, budget: Budget, *, has_gpu: bool) -> Found:
    """Bandwidth in B/s of copies to one GPU and on it, the median; nothing, with the reason, where there is none or no torch."""
    if not has_gpu:
        return Found((), ("host to device: not measured: this host has no GPU",))
    begin = time.monotonic()
    answer = ask([python.path, "-c", Path(device_script.__file__).read_text(encoding="utf-8")], max(1.0, budget.left))
    if answer.data is None or "absent" in answer.data:
        reason = answer.problem if answer.data is None else one_line(str(answer.data["absent"]), 160)
        return Found((), (f"host to device: not measured: {reason}",))
    return _parsed(answer.data, time.monotonic() - begin)


def _parsed(data: Mapping[str, Any], seconds: float) -> Found:
    """Measurements from what the script prints."""
    device, size = one_line(str(data.get("device", "the GPU")), 60), data.get("size")
    found = []
    for name, words in _WORDS.items():
        rates = data.get(_KEYS[name])
        if isinstance(rates, list) and rates and all(isinstance(rate, int | float) and rate > 0 for rate in rates):
            bytes_moved = float(size) if isinstance(size, int) else None
            shown = words.format(device=device)
            found.append(Measurement(name, median(rates), "B/s", spread_of(rates), len(rates), bytes_moved, shown, seconds if name == LINK else 0.0))  # fmt: skip
    missing = not any(entry.name == LINK for entry in found)
    return Found(tuple(found), ("host to device: not measured: the script printed something else",) if missing else ())
