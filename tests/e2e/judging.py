"""Predictions of real starts beside what was measured, on a host whose speed scatters."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from calibration.runs.record import RunRecord
from startup_model import Profile, StartupPrediction, predict
from startup_model.phases import Phase

__all__ = ["QUIET", "RESTLESS", "SAME_WORK", "Judged", "judge", "scatter", "seconds_of", "with_one_rank"]

SAME_WORK = (Phase.FRAMEWORK_BOOTSTRAP, Phase.WORKER_SPAWN)
"""Phases that do the same in every start with one rank, whatever the model and the flags: processes come up and import the engine. With more ranks only the first does."""

QUIET = 0.02
"""Scatter of that work up to which a host is quiet enough to compare wall times as they are."""

RESTLESS = 0.05
"""Scatter beyond which a host judges no prediction: the phases that depend on the model scatter with it."""


class Judged(NamedTuple):
    """One configuration: predicted, and measured by one start or the median of several."""

    name: str
    prediction: StartupPrediction
    starts: int
    measured_s: float
    """Process start to ready."""
    same: tuple[Phase, ...]
    """Phases that do the same as in all other starts."""
    apart_s: float
    """Measured without them."""
    usual_s: float
    """What they take in the median of all starts."""

    @property
    def raw(self) -> float:
        """Predicted / measured - 1, as they are."""
        return self.prediction.total_s / self.measured_s - 1.0

    @property
    def steadied(self) -> float:
        """The same with ``same`` as usual on both sides: what the host did while it was loading modules then cancels, what depends on the model stays."""
        predicted = self.prediction.total_s - sum(self.prediction.phases[name].seconds for name in self.same)
        return (predicted + self.usual_s) / (self.apart_s + self.usual_s) - 1.0

    def text(self) -> str:
        """One line."""
        low, high = self.prediction.interval
        often = f"median of {self.starts}" if self.starts > 1 else "one start"
        return (
            f"{self.name:22s} predicted {self.prediction.total_s:6.2f} s ({low:.1f} to {high:.1f})  measured {self.measured_s:6.2f} s ({often})  raw {self.raw:+6.1%}  "
            f"steadied {self.steadied:+6.1%}"
        )


def with_one_rank(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Those of one rank, without the very first start, which reads the engine from the disk."""
    return [run for run in runs[1:] if run.engine.tp * run.engine.pp * run.engine.dp == 1]


def seconds_of(run: RunRecord, phases: Iterable[Phase]) -> float:
    """Sum of some phases of a run."""
    return sum(run.phases[name] for name in phases)


def scatter(runs: Sequence[RunRecord]) -> float:
    """Relative standard deviation of ``SAME_WORK`` over all starts with one rank but the first; infinite for fewer than two."""
    times = [seconds_of(run, SAME_WORK) for run in with_one_rank(runs)]
    return statistics.stdev(times) / statistics.mean(times) if len(times) > 1 else math.inf


def judge(measured: Iterable[RunRecord], profile: Profile, runs: Sequence[RunRecord]) -> Judged:
    """Starts of one configuration beside the prediction. ``runs``: all starts in order, which say what is usual."""
    found = list(measured)
    first = found[0]
    ranks = first.engine.tp * first.engine.pp * first.engine.dp
    flags = ["eager" if first.engine.enforce_eager else "compiled", *([f"{ranks} ranks"] if ranks > 1 else [])]
    same = SAME_WORK if ranks == 1 else SAME_WORK[:1]
    walls = [run.wall_s or math.nan for run in found]
    return Judged(
        name=f"{first.model.name} {' '.join(flags)}",
        prediction=predict(first.model, first.hardware, first.engine, profile=profile),
        starts=len(found),
        measured_s=statistics.median(walls),
        same=same,
        apart_s=statistics.median(wall - seconds_of(run, same) for wall, run in zip(walls, found, strict=True)),
        usual_s=statistics.median(seconds_of(run, same) for run in with_one_rank(runs)),
    )
