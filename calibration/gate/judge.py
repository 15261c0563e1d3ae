"""``gate``: measured starts against a profile; a regression, a gain, the state of a cache and drift of the host told apart.

The state of a cache (``find_state``), one run (``RunCheck``), all runs (``GateRun``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from calibration.gate.figures import (
    LOAD,
    MIN_SHIFT,
    Cache,
    Expectation,
    ExpectedTime,
    Forecast,
    LogRatios,
    MeasuredValue,
    Point,
    common_shift,
    log_ratio,
    measured_values,
    not_judged,
)
from calibration.gate.report import (
    FAIL_ON,
    KINDS,
    TOTALS,
    Candidate,
    Factor,
    Finding,
    GateReport,
    GateRow,
    Limits,
    PhaseSummary,
    RunVerdict,
)
from calibration.runs.record import RunRecord
from startup_model.errors import StartupModelError, UnknownNameError, missing, one_line, wrong_type
from startup_model.evaluate import check_level
from startup_model.phases import PHASES
from startup_model.predictor import ProfileLike, as_profile
from startup_model.profile import Profile
from startup_model.units import format_seconds

MAX_LISTED = 1000
"""Runs that a report lists; the others are counted."""

_MAX_EXPECTATIONS = 1024
_MAX_NAMES = 256
_MAX_LABEL = 150
_MIN_SHARE = 0.02  # of the predicted total: what is shorter does not count
_MAX_LOG_ERROR = 0.2  # a figure tells a common factor when the logarithm of its seconds is known to this
_SCATTER_S = 0.02  # of a short phase between repeated starts
_MAX_LOG_RATIO = 6.0  # that a common factor is made of
_DISTINCT = 1.25  # two states can be told apart by a figure that takes so many times longer in one than in the other
_STALE = "the profile is stale, calibrate it again"


class Rules(Limits):
    """What counts as beyond, and what fails the gate."""

    profile: Profile
    phase_factor: Factor | None
    level: float
    fail_on: tuple[str, ...]

    def factor_of(self, figure: MeasuredValue) -> float:
        """Totals have a factor of their own."""
        return self.factor if figure.kind == "total" or self.phase_factor is None else self.phase_factor

    def finding(self, kind: str, run: str, phase: str, text: str, excess_s: float = 0.0) -> Finding:
        """A finding that fails where its kind does."""
        return Finding(kind, run, phase, text, kind in self.fail_on, excess_s)


# --- states of the caches -----------------------------------------------------------------------------------------------


class CacheState(NamedTuple):
    """The state of one cache in one start."""

    cache: Cache
    judged: tuple[str, ...]  # the states to judge with, the faster first: both where it is unknown or contradicted
    seen: str  # the one state that its times are nearest to
    is_other: bool = False  # its times show another state than the run says
    text: str = ""  # what there is to say about it; empty for the fast state that the run says and shows


def find_state(
    cache: Cache,
    said: str,
    figures: Sequence[MeasuredValue],
    expectation: Expectation,
    factor: float,
    processor_factor: float,
) -> CacheState:
    """The state of a cache; ``processor_factor``: what the phases that no cache touches have moved by together, if they have.

    A state that the run says stands, unless the time of its own phase, t, is beyond ``factor`` of what that state takes and is what the other state takes:

        t > sqrt(fast × slow), the geometric mean of the two predictions [s], for the slow one; t <= sqrt(fast × slow) for the fast one

    and, as compiled graphs are either loaded or made, t within the interval of the prediction for a compile cache. The files of a checkpoint may be in memory in part: any load above
    the geometric mean came from storage in part. A state that the run does not say, or that its times contradict, is judged as the slower one; what is faster than the faster one is a gain.
    """
    holders = [f for f in figures if f.kind in ("phase", "sum") and cache.phase in f.phases and not f.is_partial]
    stand_in = MeasuredValue(cache.phase, "phase", (cache.phase,), 0.0, math.inf)  # not measured: it tells nothing
    own = min(holders, key=lambda figure: len(figure.phases), default=stand_in)

    def expected(state: str) -> ExpectedTime:
        pairs = zip(expectation.caches, expectation.known, strict=True)
        states = tuple(state if other is cache else known for other, known in pairs)
        return expectation.forecast(states).of(own).shifted(processor_factor)

    quick, long = expected(cache.fast), expected(cache.slow)
    is_known = said in (cache.fast, cache.slow)
    if long.seconds <= quick.seconds * 1.001:  # switched off, or the same either way
        state = said if is_known else cache.fast
        return CacheState(cache, (state,), state)
    is_resolved = long.seconds > max(quick.seconds * _DISTINCT, quick.seconds + own.resolution_s)
    fast_s, slow_s, took_s = (format_seconds(seconds) for seconds in (quick.seconds, long.seconds, own.measured_s))
    seen = cache.slow if own.measured_s > math.sqrt(quick.seconds * long.seconds) else cache.fast
    if not is_known:
        seen = seen if is_resolved else cache.fast
        looks = f"; {own.name} of {took_s} looks {seen}" if is_resolved else ""
        text = f"{cache.field} is unknown: judged as {cache.slow}, the slower ({cache.slow} {slow_s}, {cache.fast} {fast_s}){looks}"
        return CacheState(cache, (cache.fast, cache.slow), seen, text=text)
    if is_resolved and seen != said and _contradicts(cache, said, own, quick, long, factor):
        words = cache.slow_words if seen == cache.slow else cache.fast_words
        text = (
            f"the run says {cache.field}: {said}, but it seems to have {words}: {own.name} took {took_s} "
            f"({cache.fast} {fast_s}, {cache.slow} {slow_s} predicted); make sure of the state and start it again"
        )
        return CacheState(cache, (cache.fast, cache.slow), seen, True, text)
    text = ""
    if said == cache.slow:
        borrowed = f", {long.source}" if "borrowed" in long.source else ""
        text = (
            f"the start {cache.slow_words} ({cache.field}: {cache.slow}): {own.name} is judged against {slow_s}{borrowed}, "
            f"not the {fast_s} of a {cache.fast} one"
        )
    return CacheState(cache, (said,), said, text=text)


def _contradicts(cache: Cache, said: str, own: MeasuredValue, quick: ExpectedTime, long: ExpectedTime, factor: float) -> bool:  # fmt: skip
    """Whether a figure is beyond the state that the run says, and is what the other one takes."""
    seconds, resolution = own.measured_s, own.resolution_s
    if said == cache.fast:
        is_beyond, other = seconds - resolution > quick.seconds * factor, long
    else:
        is_beyond, other = seconds + resolution < long.seconds / factor, quick
    is_part = said == cache.fast and cache.is_graded
    return is_beyond and (is_part or other.low_s - resolution <= seconds <= other.high_s + resolution)


# --- one run ------------------------------------------------------------------------------------------------------------


class FigureCheck(NamedTuple):
    """One figure beside what is expected of it."""

    figure: MeasuredValue
    slow: ExpectedTime  # with the slower of the states that are judged
    fast: ExpectedTime
    seen: ExpectedTime  # with the states that the run shows

    @property
    def is_untouched(self) -> bool:
        """Whether it is the same in all states of the caches that are judged."""
        return self.slow.seconds <= 1.1 * self.fast.seconds

    @property
    def is_resolved(self) -> bool:
        """Whether it is known what to expect of it: it is the one that tells the state of a cache, or no cache touches it."""
        return self.figure.kind in ("phase", "sum") or self.is_untouched

    def point(self) -> Point | None:
        """How far the processor's part of the figure has moved; None where the stamps do not tell."""
        figure, time = self.figure, self.seen
        if figure.kind == "total" or not figure.is_apart or figure.is_partial:
            return None
        if time.seconds <= 0 or time.processor_s < 0.5 * time.seconds:
            return None
        shortest = min(figure.measured_s, time.seconds)
        resolution = (figure.resolution_s / math.sqrt(12.0) + _SCATTER_S) / max(shortest, 1e-9)
        if resolution > _MAX_LOG_ERROR:
            return None
        processor_s = max(figure.measured_s - (time.seconds - time.processor_s), 1e-3 * time.processor_s)
        moved = log_ratio(processor_s, time.processor_s)
        return Point(figure.name, max(-_MAX_LOG_RATIO, min(_MAX_LOG_RATIO, moved)), 2.0 * resolution)


def _checks(figures: Sequence[MeasuredValue], slow: Forecast, fast: Forecast, seen: Forecast) -> list[FigureCheck]:
    checks = []
    for figure in figures:
        pair = slow.of(figure), fast.of(figure)
        longer, shorter = pair if pair[0].seconds >= pair[1].seconds else pair[::-1]
        checks.append(FigureCheck(figure, longer, shorter, seen.of(figure)))
    return checks


class RunCheck:
    """One run, its figures, and what those beyond the limit mean."""

    def __init__(self, run: RunRecord, label: str, expectation: Expectation, rules: Rules) -> None:
        self.run, self.label, self._expectation, self._rules = run, label, expectation, rules
        slowest, fastest = (expectation.forecast(states) for states in zip(*((c.slow, c.fast) for c in expectation.caches), strict=True))  # fmt: skip
        self._known = slowest.adds
        figures = measured_values(run, slowest.adds)
        untouched = [check for check in _checks(figures, slowest, fastest, fastest) if check.is_untouched]
        before = common_shift([point for check in untouched if (point := check.point())])
        factors = rules.phase_factor or rules.factor, before.factor if before.is_common else 1.0
        said = zip(expectation.caches, expectation.said, strict=True)
        self.states = [find_state(cache, state, figures, expectation, *factors) for cache, state in said]
        self._seen = tuple(state.seen for state in self.states)
        slow, fast = (expectation.forecast(tuple(state.judged[i] for state in self.states)) for i in (-1, 0))
        self.checks = _checks(figures, slow, fast, expectation.forecast(self._seen))
        self._least_s = max(rules.floor_s, _MIN_SHARE * slow.total.seconds)
        self.points = [point for check in self.checks if check.is_resolved and (point := check.point())]
        self.shift = common_shift(self.points)
        self._factors = (self.shift.factor if self.shift.is_common else 1.0, 1.0)  # of processor and storage
        self.storage_factor = self._find_storage_factor()
        self._factors = (self._factors[0], self.storage_factor)
        self._said: Forecast | None = None  # with the states that the run says, where its times show others
        if any(state.is_other for state in self.states):
            pairs = zip(expectation.said, self.states, strict=True)
            self._said = expectation.forecast(tuple(s if state.is_other else state.judged[-1] for s, state in pairs))
        self.rows = tuple(map(self._row, self.checks))

    def _find_storage_factor(self) -> float:
        """How much longer storage took for the bytes, where the load alone is beyond its limit; else 1."""
        parts = [check for check in self.checks if check.figure.kind != "total"]
        loads = [check for check in parts if LOAD in check.figure.phases and check.figure.kind != "rest"]
        if len(loads) != 1 or len(self.points) < 2 or loads[0].slow.storage_s < 0.5 * loads[0].slow.seconds:
            return 1.0
        (load,) = loads
        is_steady = self.shift.is_common or abs(math.log(self.shift.factor)) <= MIN_SHIFT
        if not is_steady or not self._beyond(load) or any(self._beyond(check) for check in parts if check is not load):
            return 1.0
        others_s = load.slow.shifted(self._factors[0]).seconds - load.slow.storage_s
        return max(0.01, (load.figure.measured_s - others_s) / load.slow.storage_s)

    def _counts(self, check: FigureCheck) -> bool:
        figure = check.figure
        least_s = self._rules.floor_s if figure.kind == "total" else self._least_s
        return figure.is_whole or max(figure.measured_s, check.slow.seconds) >= least_s

    def _beyond(self, check: FigureCheck, *, as_drifted: bool = True) -> int:
        """1: slower than the limit; -1: faster; 0: within, or too short to count. ``as_drifted``: beyond what the host in the state that it shows would take as well."""
        if not self._counts(check):
            return 0
        figure, slow_s, fast_s = check.figure, check.slow.seconds, check.fast.seconds
        if as_drifted and self._factors != (1.0, 1.0):
            slow_s = max(slow_s, check.slow.shifted(*self._factors).seconds)
            fast_s = min(fast_s, check.fast.shifted(*self._factors).seconds)
        if figure.measured_s - figure.resolution_s > slow_s * self._rules.factor_of(figure):
            return 1
        is_faster = figure.measured_s + figure.resolution_s < fast_s / self._rules.factor_of(figure)
        return -1 if is_faster and self.run.status == "ok" and not figure.is_partial else 0

    def _row(self, check: FigureCheck) -> GateRow:
        figure, slow, fast, _ = check
        limit_s, interval_s = slow.seconds * self._rules.factor_of(figure), (fast.low_s, slow.high_s)
        times = figure.measured_s, slow.seconds, fast.seconds, limit_s, interval_s, figure.resolution_s
        return GateRow(self.label, figure.name, *times, self._row_verdict(check))

    def _row_verdict(self, check: FigureCheck) -> str:
        if left := self._beyond(check):
            return "regression" if left > 0 else "gain"
        if self._beyond(check, as_drifted=False):
            return "drift"
        figure, factor, counts = check.figure, self._rules.factor_of(check.figure), self._counts(check)
        if self._said is not None and counts:
            said_s, seen_s = self._said.of(figure).seconds, check.seen.seconds
            is_slower = figure.measured_s - figure.resolution_s > said_s * factor
            is_faster = figure.measured_s + figure.resolution_s < said_s / factor
            if abs(said_s - seen_s) > 0.01 * seen_s and (is_slower or is_faster):
                return "state"
        if figure.measured_s <= check.slow.seconds * factor:
            return "ok"
        return "unresolved" if counts else "minor"

    def verdict(self) -> str:
        """The most severe of what the rows say."""
        found = {row.verdict for row in self.rows} | {"state" for state in self.states if state.is_other}
        return next((kind for kind in ("regression", "drift", "state", "gain") if kind in found), "ok")

    # --- words ----------------------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[Finding]:
        """What there is to say, the most severe first."""
        by_excess = sorted(self.rows, key=lambda row: row.predicted_s - row.measured_s)
        for row in by_excess:
            if row.verdict == "regression":
                yield self._finding("regression", row, self._regression_words(row))
        yield from self._drift()
        for state in self.states:
            if state.text:
                fails = "state" in self._rules.fail_on and state.is_other and state.seen == state.cache.slow
                yield Finding("state", self.label, state.cache.field, state.text, fails)
        for row in reversed(by_excess):
            if row.verdict == "gain":
                ratio = row.measured_s / row.fastest_s if row.fastest_s > 0 else 0.0
                text = f"{row.phase} took {format_seconds(row.measured_s)}, {ratio:.2f} times the predicted {format_seconds(row.fastest_s)}: {_STALE}"
                yield self._finding("gain", row, text)
        unjudged = not_judged(self.run, self._known, self._expectation.off)
        for text in (*self._expectation.notes(self._seen), *unjudged):
            yield Finding("domain", self.label, "", text)

    def _finding(self, kind: str, row: GateRow, text: str) -> Finding:
        return self._rules.finding(kind, self.label, row.phase, text, row.measured_s - row.predicted_s)

    def _regression_words(self, row: GateRow) -> str:
        times = f", {row.ratio:.2f} times the predicted {format_seconds(row.predicted_s)}" if row.ratio else ""
        high = row.interval_s[1]
        name = f"the {self._rules.level:.0%} interval of the profile (to {format_seconds(high)})"
        interval = (
            f"{format_seconds(row.measured_s - high)} beyond {name}"
            if row.measured_s > high
            else f"within {name}: its own error may be as large, more runs would narrow it"
        )
        cause = self._main_cause() if row.phase in TOTALS else self._likely_state(row.phase)
        return f"{row.phase} took {format_seconds(row.measured_s)}{times} (limit {format_seconds(row.limit_s)}), {interval}{cause}"

    def _main_cause(self) -> str:
        """The phase that adds most to a total."""
        parts = [row for row in self.rows if row.phase not in TOTALS]
        worst = max(parts, key=lambda row: row.measured_s - row.predicted_s, default=None)
        if worst is not None and worst.measured_s > worst.predicted_s:
            return f"; mostly {worst.phase} ({worst.measured_s - worst.predicted_s:+.2f} s)"
        slower = [cache.likely_state() for cache in self._fast_caches() if cache.phase in self._known]
        return "; no phase tells which" + (f". If {' or '.join(slower)} was so, say it" if slower else "")

    def _likely_state(self, name: str) -> str:
        """What state of a cache might be behind a phase."""
        slower = [cache for cache in self._fast_caches() if cache.phase in name.split(" + ")]
        return f"; if the start {slower[0].slow_words}, say {slower[0].likely_state()}" if slower else ""

    def _fast_caches(self) -> list[Cache]:
        """Caches that are judged as fast only."""
        return [state.cache for state in self.states if state.judged == (state.cache.fast,)]

    def _drift(self) -> Iterator[Finding]:
        moved = [row for row in self.rows if row.verdict == "drift"]
        fails = "drift" in self._rules.fail_on and any(row.measured_s > row.limit_s for row in moved)
        if self.shift.is_common:
            excess_s = max((row.measured_s - row.predicted_s for row in moved if row.phase == "total"), default=0.0)
            other = "" if self._expectation.stands_for_host else "; the node is not the profile's host"
            text = self.shift.words() + other + ("" if moved else "; within the factor")
            yield Finding("drift", self.label, "", text, fails, excess_s)
        if self.storage_factor != 1.0:
            row = next(row for row in self.rows if LOAD in row.phase.split(" + "))
            text = (
                f"the load alone moved: {row.phase} took {format_seconds(row.measured_s)}, predicted {format_seconds(row.predicted_s)}, as if storage gave "
                f"{1.0 / self.storage_factor:.2f} times its bandwidth; all else is as predicted: same software, another state of the storage"
            )
            yield Finding("drift", self.label, row.phase, text, fails, row.measured_s - row.predicted_s)


# --- all runs -----------------------------------------------------------------------------------------------------------


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

    - **state**: the phase of a cache took what the cache's other state takes (see ``find_state``): the run says something else than it shows, and is judged as the slower of the two. So is a state that a
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
        raise missing("profile", "a gate needs one", "give a Profile, a file or the name of a reference")
    rules = Rules(profile=found, factor=factor, phase_factor=phase_factor, floor_s=floor_s, level=check_level(level), fail_on=_kinds(fail_on))  # fmt: skip
    if isinstance(runs, RunRecord | Candidate | str) or not isinstance(runs, Iterable):
        raise wrong_type("runs", runs, "a list of run records", "read files with read_runs")
    gate_run = GateRun(rules)
    for item in runs:
        gate_run.take(item if isinstance(item, Candidate) else Candidate(item))
    return gate_run.report()


def _kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Kinds of findings in their order. Raises UnknownNameError or ConfigError."""
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise wrong_type("fail_on", kinds, "a list of kinds", f"known: {', '.join(KINDS)}")
    given = [*kinds]
    for kind in given:
        if not isinstance(kind, str) or kind not in KINDS:
            raise UnknownNameError("fail_on", str(kind), KINDS)
    return tuple(kind for kind in KINDS if kind in given)


class GateRun:
    """Takes run after run; keeps what a report lists, and sums of the rest."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._expectation = lru_cache(maxsize=_MAX_EXPECTATIONS)(Expectation)
        self._listed: dict[bool, list[tuple[int, RunVerdict]]] = {True: [], False: []}  # passed -> ordinal and verdict
        self._number = self._failures = 0
        self._counts: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._pools: dict[str, LogRatios] = {}  # figure -> measured over predicted
        self._processor: dict[str, LogRatios] = {}  # the same of what is in proportion to single-thread time
        self._storage = LogRatios()
        self._beyond: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()

    def take(self, candidate: Candidate) -> None:
        """Judge one more run."""
        run = candidate.run
        if run is not None and not isinstance(run, RunRecord):
            raise wrong_type("runs", run, "a run record", "read files with read_runs")
        self._number += 1
        name = run.model.name if run is not None else "unknown model"
        label = one_line(candidate.label or f"run {self._number}: {name}", _MAX_LABEL)
        status = run.status if run is not None else candidate.status
        verdict = self._judge(candidate, label, status)
        self._statuses[status] += 1
        self._counts.update({finding.kind for finding in verdict.findings})
        self._failures += not verdict.passed
        listed = self._listed[verdict.passed]
        if len(listed) < MAX_LISTED:
            listed.append((self._number, verdict))

    def _judge(self, candidate: Candidate, label: str, status: str) -> RunVerdict:
        run, rules = candidate.run, self._rules
        failed = [] if status == "ok" else [self._failed_start(candidate, label, status)]
        if run is None:
            if not failed:
                error = missing("run", "a start that came up has no record", "give its record")
                raise StartupModelError(f"{label}: {error}")
            return RunVerdict(label, "", "", "", status, "failed_start", (), tuple(failed))
        names = one_line(run.model.name, 200), one_line(run.hardware.name, 200)
        try:
            expectation = self._expectation(run.model, run.hardware, run.engine, rules.profile, rules.level)
            check = RunCheck(run, label, expectation, rules)
        except StartupModelError as reason:
            if not failed:
                raise StartupModelError(f"{label}: {reason}") from None
            # that it failed counts; that it cannot be predicted may be why
            note = Finding("domain", label, "", f"it cannot be predicted: {reason}")
            return RunVerdict(label, *names, run.engine.engine, status, "failed_start", (), (*failed, note))
        assumed = (Finding("domain", label, "", note) for note in candidate.notes)
        findings = (*failed, *check.findings(), *assumed)
        self._pool(check, findings)
        verdict = "failed_start" if failed else check.verdict()
        return RunVerdict(label, *names, expectation.engine_name, status, verdict, check.rows, findings)

    def _failed_start(self, candidate: Candidate, label: str, status: str) -> Finding:
        run, evidence = candidate.run, candidate.evidence
        shown = f"; {one_line(evidence, 300)}" if evidence else ""
        if run is not None and run.phases and not evidence:
            last = max(run.phases, key=[*map(str, PHASES)].index)
            shown = f"; the last phase that it measured is {last}"
        return self._rules.finding("failed_start", label, "", f"status {status}: the server did not come up{shown}")

    def _pool(self, check: RunCheck, findings: Iterable[Finding]) -> None:
        """Add a run to what is kept of all."""
        for figure, _, _, seen in (line for line in check.checks if line.is_resolved):
            if seen.seconds > 0 and figure.is_apart and not figure.is_partial:
                _add(self._pools, figure.name, log_ratio(figure.measured_s, seen.seconds))
        for point in check.points:
            _add(self._processor, point.name, point.log_ratio)
        if check.storage_factor != 1.0:
            self._storage.add(math.log(check.storage_factor))
        _count(self._beyond, (row.phase for row in check.rows if row.verdict == "regression"))
        _count(self._notes, (finding.text for finding in findings if finding.kind == "domain"))

    def report(self) -> GateReport:
        """What came of all runs. Raises ConfigError when there were none."""
        if not self._number:
            raise missing("runs", "there is nothing to judge", "give some")
        overall = tuple(self._overall()) if self._number > 1 else ()
        failed, passed = self._listed[False], self._listed[True]
        listed = sorted([*failed, *passed[: max(0, MAX_LISTED - len(failed))]])
        rules = self._rules
        order = dict.fromkeys([*map(str, PHASES), *self._pools])
        pools = {name: self._pools[name] for name in order if name in self._pools}
        return GateReport(
            passed=not self._failures and not any(finding.fails for finding in overall),
            profile=one_line(rules.profile.name, 200),
            phase_factor=rules.phase_factor or rules.factor,
            **rules.model_dump(include={"factor", "floor_s", "level", "fail_on"}),
            runs_total=self._number,
            runs_failed=self._failures,
            counts={kind: self._counts[kind] for kind in KINDS if kind in self._counts},
            phases={
                name: PhaseSummary(pool.total(), math.exp(pool.median()), pool.scatter(), self._beyond[name])
                for name, pool in pools.items()
            },
            overall=overall,
            runs=tuple(verdict for _, verdict in listed),
        )

    def _overall(self) -> Iterator[Finding]:
        """What all runs together show."""
        number = self._number
        bad = {status: count for status, count in self._statuses.items() if status != "ok"}
        if bad:
            words = ", ".join(f"{status} {count}" for status, count in sorted(bad.items()))
            text = f"{sum(bad.values())} of {number} starts did not come up ({words})"
            yield self._rules.finding("failed_start", "", "", text)
        for name, count in self._beyond.most_common():
            if name not in TOTALS or not self._beyond.keys() - TOTALS:
                yield self._regression(name, count)
        yield from self._drift()
        total = self._pools.get("total") or self._pools.get("measured phases")
        if total and total.median() < -math.log(self._rules.factor):
            times = f"{math.exp(total.median()):.2f} times the prediction in the median of {total.total()} runs"
            yield self._rules.finding("gain", "", "total", f"totals are {times}: {_STALE}")
        for text, count in self._notes.most_common():
            yield Finding("domain", "", "", text if count == number else f"{text} ({count} of {number} runs)")

    def _regression(self, name: str, count: int) -> Finding:
        pool = self._pools.get(name, LogRatios())
        text = f"{name} is beyond its limit in {count} of {self._number} runs"
        if pool:
            text += f", {math.exp(pool.median()):.2f} times the prediction in the median of {pool.total()}"
        if 3 * count <= pool.total():
            text += "; in few of them: look for what else ran then"
        if pool.total() > 2 and name in TOTALS and abs(pool.median()) > pool.scatter() * 3:
            text += "; all by about one factor: if phases were measured, drift of the host could be told"
        return self._rules.finding("regression", "", name, text)

    def _drift(self) -> Iterator[Finding]:
        enough = max((pool.total() for pool in self._processor.values()), default=0) / 2
        pools = {name: pool for name, pool in self._processor.items() if pool.total() >= enough}
        shift = common_shift([Point(name, pool.median(), 0.0) for name, pool in pools.items()])
        if shift.is_common:
            yield Finding("drift", "", "", shift.words("in the median of the runs, "))
        loads = self._storage
        if loads.total() > 1:
            low = f"{loads.total()} loads moved alone, to {math.exp(loads.median()):.2f} times what storage needs by the profile"
            scatter = f"(scatter {loads.scatter():.0%})"
            if loads.scatter() <= _MAX_LOG_ERROR:
                yield Finding("drift", "", LOAD, f"{low} {scatter}: one bandwidth changed")
            else:
                text = f"{low}, but not by one factor {scatter}: no bandwidth alone explains them"
                yield self._rules.finding("regression", "", LOAD, text)


def _add(pools: dict[str, LogRatios], name: str, value: float) -> None:
    if name not in pools and len(pools) < _MAX_NAMES:
        pools[name] = LogRatios()
    if name in pools:
        pools[name].add(value)


def _count(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        if name in counter or len(counter) < _MAX_NAMES:
            counter[name] += 1
