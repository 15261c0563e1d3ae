"""Speed and memory of the estimator, printed; no assertion looks at the clock."""

from __future__ import annotations

import time

import numpy as np
import pytest

from calibration.fit.calibrate import calibrate
from calibration.fit.reference import DONOR
from calibration.runs.published import HOSTS, published_runs
from startup_model import Profile

REFERENCE = Profile.reference(DONOR)
RUNS = [run for run in published_runs() if run.hardware == HOSTS[DONOR].hardware and run.engine.version == "0.10.1.1"]


def peak_mebibytes() -> float:
    """Largest resident size of this process so far."""
    resource = pytest.importorskip("resource")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def test_speed_of_fits(capsys: pytest.CaptureFixture[str]) -> None:
    times = {}
    for count in (1, len(RUNS)):
        calibrate(RUNS[:count], REFERENCE, held_out=False)
        start = time.perf_counter()
        calibrate(RUNS[:count], REFERENCE, held_out=False)
        times[count] = time.perf_counter() - start
    with capsys.disabled():
        print(
            f"\nfit of one run {times[1] * 1e3:.0f} ms (target 50); of {len(RUNS)} runs {times[len(RUNS)]:.2f} s (target 0.5)"
        )


def test_a_hundred_thousand_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The published runs of one host, each with noise of its own; linear in rows."""
    rng = np.random.default_rng(11)
    base = [run for run in RUNS if run.engine.page_cache != "unknown"]
    figures = {}
    for count in (10_000, 100_000):
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
        for count, (seconds, mebibytes) in figures.items():
            print(
                f"\nfit of {count} runs: {seconds:.1f} s (target for 100000: 10), {mebibytes:.0f} MiB more at the peak",
                end="",
            )
        print(f"; ten times the rows take {figures[100_000][0] / figures[10_000][0]:.1f} times as long")
