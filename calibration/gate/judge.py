"""``gate``: measured starts against a profile; a regression, a gain, the state of a cache and drift of the host told apart."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator

from calibration.gate.figures import Expectation, log_ratio
from calibration.gate.report import (
    FAIL_ON,
    TOTALS,
    Candidate,
    Finding,
    GateReport,
    PhaseSummary,
    RunVerdict,
    check_factor,
    check_floor,
    check_kinds,
)
from calibration.gate.shift import LogRatios, Point, common_shift
from calibration.gate.trial import TELLING, Rules, Trial, processor_words
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import MISSING, ConfigError, StartupModelError, one_line
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import Phase
from startup_model.predictor import ProfileLike, as_profile
from startup_model.uncertainty import check_level

__all__ = ["MOST_LISTED", "gate"]

MOST_LISTED = 1000
"""Runs that a report lists; the others are counted."""

_MOST_EXPECTATIONS = 1024
_MOST_NAMES = 256
_LONGEST_LABEL = 150
Configuration = tuple[ModelConfig, HardwareConfig, EngineConfig]


def gate(
    runs: Iterable[RunRecord | Candidate],
    profile: ProfileLike,
    factor: float = 1.5,
    *,
    phase_factor: float | None = None,
    floor_s: float = 0.5,
    level: float = 0.9,
    fail_on: Iterable[str] = FAIL_ON,
) -> GateReport:
    """Judge measured starts by a profile.

    Every figure of a run (phases, sums, the rest of its wall time, the total) is predicted for the run's own model, node and engine. It is beyond the limit when

        measured - resolution > predicted × factor            (slower)
        measured + resolution < predicted / factor            (faster)

    resolution [s]: what the stamps of the run resolve of the figure (of a whole-second log 1 s; of the rest, half a stamp for every figure that is subtracted). ``phase_factor``: for
    figures other than the total; None: ``factor``. A phase counts when the longer of measured and predicted is at least ``floor_s`` [s] and 2 % of the predicted total. ``level``: probability of the
    interval that is quoted beside a regression; it does not decide.

    What a figure beyond the limit means, in this order:

    - **state**: the phase of a cache took what the cache's other state takes (see ``find_states``): the run says something else than it shows, and is judged as the slower of the two. So is a state that a
      run does not say; one that it says to be slow is judged as that: both are said, neither fails.
    - **drift**: the processor's part of all phases moved by about one factor s (see ``common_shift``): s = exp(median of ln(measured / predicted)) over phases of which at least half is in
      proportion to single-thread time; what s does not explain stays a regression. Or the load alone, read from storage, moved while the others stand (median within 10 %): it is in proportion to the
      bytes over a bandwidth that changed. Same software, another state of the host.
    - **regression** (slower) or **gain** (faster; the profile is stale) of that phase.

    A start that did not come up is a **failed_start**. What lies outside the profile's runs is said (**domain**). ``fail_on``: kinds that fail the gate; of drift and gain what is beyond the limit, of state a fast one that the run
    says and its times do not show. Time is linear in the runs, memory is bounded: beyond a thousand runs those that fail are listed first. Raises ConfigError for no run, an item that is none, a bad argument; what
    ``predict`` raises for a run that cannot be predicted, with its label.
    """
    found = as_profile(profile)
    if found is None:
        raise ConfigError("profile", MISSING, "a gate needs one", "give a Profile, a file or the name of a reference")
    factor = check_factor("factor", factor)
    rules = Rules(
        found,
        factor,
        factor if phase_factor is None else check_factor("phase_factor", phase_factor),
        check_floor("floor_s", floor_s),
        check_level(level),
        check_kinds("fail_on", fail_on),
    )
    if isinstance(runs, RunRecord | Candidate | str) or not isinstance(runs, Iterable):
        raise ConfigError("runs", runs, "it should be a list of run records", "read files with read_runs")
    court = _Court(rules)
    for item in runs:
        court.take(item if isinstance(item, Candidate) else Candidate(item))
    return court.report()


class _Court:
    """Takes run after run; keeps what a report lists, and sums of the rest."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._expectations: OrderedDict[Configuration, Expectation] = OrderedDict()
        self._failed: list[tuple[int, RunVerdict]] = []
        self._passed: list[tuple[int, RunVerdict]] = []
        self._number = self._failures = 0
        self._counts: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._pools: dict[str, LogRatios] = {}
        """Figure -> ratios of measured to predicted."""
        self._processor: dict[str, LogRatios] = {}
        """The same of what is in proportion to single-thread time."""
        self._storage = LogRatios()
        self._beyond: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()

    def take(self, candidate: Candidate) -> None:
        """Judge one more run."""
        run = candidate.run
        if run is not None and not isinstance(run, RunRecord):
            raise ConfigError("runs", run, "it is no run record", "read files with read_runs")
        self._number += 1
        name = run.model.name if run is not None else "unknown model"
        label = one_line(candidate.label or f"run {self._number}: {name}", _LONGEST_LABEL)
        status = run.status if run is not None else candidate.status
        self._statuses[status] += 1
        verdict = self._judge(candidate, run, label, status)
        self._counts.update({finding.kind for finding in verdict.findings})
        self._failures += not verdict.passed
        kept = self._passed if verdict.passed else self._failed
        if len(kept) < MOST_LISTED:
            kept.append((self._number, verdict))

    def _judge(self, candidate: Candidate, run: RunRecord | None, label: str, status: str) -> RunVerdict:
        failed = [] if status == "ok" else [_failed_start(label, run, status, candidate.evidence, self._rules)]
        try:
            if run is None:
                if not failed:
                    raise ConfigError("runs", MISSING, "a start that came up has no record", "give its record")
                return RunVerdict(label, "", "", "", status, "failed_start", (), tuple(failed))
            expectation = self._expectation(run)
            trial = Trial(run, label, expectation, self._rules)
        except StartupModelError as error:
            if failed and run is not None:  # that it failed counts; that it cannot be predicted may be why
                note = Finding("domain", label, "", f"it cannot be predicted: {error}")
                model, node = one_line(run.model.name, 200), one_line(run.hardware.name, 200)
                return RunVerdict(label, model, node, run.engine.engine, status, "failed_start", (), (*failed, note))
            raise StartupModelError(f"{label}: {error}") from None
        assumed = (Finding("domain", label, "", note) for note in candidate.notes)
        findings = (*failed, *trial.findings(), *assumed)
        self._pool(trial)
        for finding in findings:
            if finding.kind == "domain" and (finding.text in self._notes or len(self._notes) < _MOST_NAMES):
                self._notes[finding.text] += 1
        verdict = "failed_start" if failed else trial.verdict()
        names = (one_line(run.model.name, 200), one_line(run.hardware.name, 200), expectation.engine_name)
        return RunVerdict(label, *names, status, verdict, trial.rows, findings)

    def _expectation(self, run: RunRecord) -> Expectation:
        key = (run.model, run.hardware, run.engine)
        found = self._expectations.get(key)
        if found is None:
            if len(self._expectations) >= _MOST_EXPECTATIONS:
                self._expectations.popitem(last=False)
            found = self._expectations[key] = Expectation(*key, self._rules.profile, self._rules.level)
        return found

    def _pool(self, trial: Trial) -> None:
        for line in trial.lines:
            figure, expected = line.figure, line.seen.seconds
            if figure.is_partial or expected <= 0 or not figure.is_apart or not line.is_told:
                continue
            if figure.name in self._pools or len(self._pools) < _MOST_NAMES:
                pool = self._pools.setdefault(figure.name, LogRatios())
                pool.add(log_ratio(figure.measured_s, expected))
        for point in trial.points:
            if point.name in self._processor or len(self._processor) < _MOST_NAMES:
                self._processor.setdefault(point.name, LogRatios()).add(point.log_ratio)
        if trial.storage_factor != 1.0:
            self._storage.add(math.log(trial.storage_factor))
        for row in trial.rows:
            if row.verdict == "regression" and (row.phase in self._beyond or len(self._beyond) < _MOST_NAMES):
                self._beyond[row.phase] += 1

    # --- the end --------------------------------------------------------------------------------------------------------

    def report(self) -> GateReport:
        """What came of all runs. Raises ConfigError when there were none."""
        if not self._number:
            raise ConfigError("runs", "none", "there is nothing to judge", "give some")
        overall = tuple(self._overall()) if self._number > 1 else ()
        listed = sorted([*self._failed, *self._passed[: max(0, MOST_LISTED - len(self._failed))]])
        rules = self._rules
        order = [*(phase.value for phase in Phase), *self._pools]
        phases = {
            name: PhaseSummary(pool.number, math.exp(pool.median()), pool.scatter(), self._beyond[name])
            for name in dict.fromkeys(order)
            if (pool := self._pools.get(name)) is not None
        }
        return GateReport(
            passed=not self._failures and not any(finding.fails for finding in overall),
            profile=one_line(rules.profile.name, 200),
            factor=rules.factor,
            phase_factor=rules.phase_factor,
            floor_s=rules.floor_s,
            level=rules.level,
            fail_on=rules.fail_on,
            runs=tuple(verdict for _, verdict in listed),
            runs_total=self._number,
            runs_failed=self._failures,
            overall=overall,
            phases=phases,
            counts=dict(self._counts),
        )

    def _overall(self) -> Iterator[Finding]:
        """What all runs together show."""
        number, rules = self._number, self._rules
        bad = {status: count for status, count in self._statuses.items() if status != "ok"}
        if bad:
            words = ", ".join(f"{status} {count}" for status, count in sorted(bad.items()))
            text = f"{sum(bad.values())} of {number} starts did not come up ({words})"
            yield Finding("failed_start", "", "", text, "failed_start" in rules.fail_on)
        for name, count in self._beyond.most_common():
            if name not in TOTALS or not self._beyond.keys() - TOTALS:
                yield self._regression(name, count)
        yield from self._drift()
        yield from self._gains()
        for text, count in self._notes.most_common():
            yield Finding("domain", "", "", text if count == number else f"{text} ({count} of {number} runs)")

    def _regression(self, name: str, count: int) -> Finding:
        pool = self._pools.get(name, LogRatios())
        middle = (
            f", {math.exp(pool.median()):.2f} times the prediction in the median of {pool.number}"
            if pool.number
            else ""
        )
        together = pool.number > 2 and name in TOTALS and abs(pool.median()) > pool.scatter() * 3
        one = "; all by about one factor: if phases were measured, drift of the host could be told" if together else ""
        few = "; in few of them: look for what else ran then" if 3 * count <= pool.number else ""
        text = f"{name} is beyond its limit in {count} of {self._number} runs{middle}{few}{one}"
        return Finding("regression", "", name, text, "regression" in self._rules.fail_on)

    def _drift(self) -> Iterator[Finding]:
        enough = max(pool.number for pool in self._processor.values()) / 2 if self._processor else 0
        points = [Point(name, pool.median(), 0.0) for name, pool in self._processor.items() if pool.number >= enough]
        shift = common_shift(points)
        if shift.is_common:
            yield Finding("drift", "", "", processor_words(shift, "in the median of the runs, "))
        loads = self._storage
        if loads.number > 1:
            low = f"{loads.number} loads moved alone, to {math.exp(loads.median()):.2f} times what storage needs by the profile"
            if loads.scatter() <= TELLING:
                yield Finding(
                    "drift",
                    "",
                    Phase.WEIGHT_LOAD.value,
                    f"{low} (scatter {loads.scatter():.0%}): one bandwidth changed",
                )
            else:
                text = f"{low}, but not by one factor (scatter {loads.scatter():.0%}): no bandwidth alone explains them"
                yield Finding("regression", "", Phase.WEIGHT_LOAD.value, text, "regression" in self._rules.fail_on)

    def _gains(self) -> Iterator[Finding]:
        total = self._pools.get("total") or self._pools.get("measured phases")
        if total is not None and total.number and total.median() < -math.log(self._rules.factor):
            text = f"totals are {math.exp(total.median()):.2f} times the prediction in the median of {total.number} runs: the profile is stale, calibrate it again"
            yield Finding("gain", "", "total", text, "gain" in self._rules.fail_on)


def _failed_start(label: str, run: RunRecord | None, status: str, evidence: str, rules: Rules) -> Finding:
    reached = ""
    if run is not None and run.phases:
        last = max(run.phases, key=[phase.value for phase in Phase].index)
        reached = f"; the last phase that it measured is {last}"
    shown = f"; {one_line(evidence, 300)}" if evidence else reached
    return Finding(
        "failed_start",
        label,
        "",
        f"status {status}: the server did not come up{shown}",
        "failed_start" in rules.fail_on,
    )
