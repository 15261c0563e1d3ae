"""Speed and memory of the estimator, printed; no assertion looks at the clock."""

from __future__ import annotations

import time

import numpy as np
import pytest

from calibration.fit.calibrate import calibrate
from calibration.fit.reference import DONOR
from calibration.runs.published import HOSTS, published_runs
from startup_model import Profile, predict

REFERENCE = Profile.reference(DONOR)
RUNS = [run for run in published_runs() if run.hardware == HOSTS[DONOR].hardware and run.engine.version == "0.10.1.1"]


def peak_mebibytes() -> float:
    """Largest resident size of this process so far."""
    resource = pytest.importorskip("resource")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


@pytest.mark.speed
def test_speed_of_fits(capsys: pytest.CaptureFixture[str]) -> None:
    times = {}
    for count in (1, len(RUNS)):
        calibrate(RUNS[:count], REFERENCE, held_out=False)
        start = time.perf_counter()
        calibrate(RUNS[:count], REFERENCE, held_out=False)
        times[count] = time.perf_counter() - start
    start = time.perf_counter()
    for run in RUNS:
        predict(run.model, run.hardware, run.engine, profile=REFERENCE)
    predicted = (time.perf_counter() - start) / len(RUNS)
    with capsys.disabled():
        shares = ", ".join(f"of {count} runs {seconds / predicted:,.0f}" for count, seconds in times.items())
        print(f"\nfit, in predictions of one start: {shares}")


@pytest.mark.parametrize("most", [1_000, pytest.param(100_000, marks=pytest.mark.speed)])
def test_many_runs(most: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The published runs of one host, each with noise of its own; linear in rows."""
    rng = np.random.default_rng(11)
    base = [run for run in RUNS if run.engine.page_cache != "unknown"]
    figures = {}
    for count in (most // 10, most):
        runs = []
        for i in range(count):
            run, factor = base[i % len(base)], float(rng.normal(1.0, 0.02))
            phases = {name: seconds * factor for name, seconds in run.phases.items()}
            # Copies of valid records: the check of each would only measure pydantic.
            runs.append(run.model_construct(**(dict(run) | {"phases": phases, "wall_s": (run.wall_s or 0.0) * factor})))
        before = peak_mebibytes()
        start = time.perf_counter()
        done = calibrate(runs, REFERENCE, held_out=False)
        figures[count] = (time.perf_counter() - start, peak_mebibytes() - before)
        assert done.report.runs_used == count
        assert figures[count][1] < 1024
    with capsys.disabled():
        for count, (_, mebibytes) in figures.items():
            print(f"\nfit of {count} runs: {mebibytes:.0f} MiB more at the peak", end="")
        print(f"; ten times the rows take {figures[most][0] / figures[most // 10][0]:.1f} times as long")
