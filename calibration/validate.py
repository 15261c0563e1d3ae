"""Errors on groups that a fit has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from calibration.records import RunRecord
from startup_model.model import predict
from startup_model.profile import Profile

__all__ = ["HeldOutReport", "HeldOutRow", "leave_one_out"]


class HeldOutRow(NamedTuple):
    """One run of a group that the fit had not seen."""

    group: str
    measured_s: float
    predicted_s: float
    interval: tuple[float, float]

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1.0


class HeldOutReport(NamedTuple):
    """Held-out predictions of total start-up times."""

    rows: tuple[HeldOutRow, ...]

    @property
    def mape(self) -> float:
        """Mean absolute relative error, as a fraction."""
        return float(np.mean([abs(row.error) for row in self.rows]))

    @property
    def worst(self) -> HeldOutRow:
        """The row with the largest error."""
        return max(self.rows, key=lambda row: abs(row.error))

    def table(self) -> str:
        """The rows as text, one a line, with the mean and the worst below."""
        lines = [f"{'model left out':32s} {'measured':>10s} {'predicted':>10s} {'error':>8s}"]
        lines += [f"{r.group[:32]:32s} {r.measured_s:9.2f}s {r.predicted_s:9.2f}s {r.error:+8.2%}" for r in self.rows]
        lines.append(f"mean absolute error {self.mape:.2%}, worst {self.worst.error:+.2%} ({self.worst.group})")
        return "\n".join(lines)


def leave_one_out(runs: Sequence[RunRecord], profile_without: Callable[[str], Profile]) -> HeldOutReport:
    """Predict every run with a profile that was fitted without any run of its model.

    ``profile_without(model)`` fits it. Runs without wall time are passed over.
    """
    profiles = {name: profile_without(name) for name in dict.fromkeys(run.model.name for run in runs)}
    rows = []
    for run in runs:
        if run.wall_s is not None:
            prediction = predict(run.model, run.hardware, run.engine, profile=profiles[run.model.name])
            rows.append(HeldOutRow(run.model.name, run.wall_s, prediction.total_s, prediction.interval))
    return HeldOutReport(tuple(rows))
