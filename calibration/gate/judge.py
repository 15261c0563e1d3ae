"""``gate``: measured starts against a profile; a regression, a gain, the state of a cache and drift of the host told apart."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
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

MAX_LISTED = 1000  # runs that a report lists; the others are counted
_MAX_EXPECTATIONS, _MAX_NAMES, _MAX_LABEL = 1024, 256, 150
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
        return Finding(kind, run, phase, text, kind in self.fail_on, excess_s)


# --- states of the caches -----------------------------------------------------------------------------------------------


class CacheState(NamedTuple):
    cache: Cache
    judged: tuple[str, ...]  # the states to judge with, the faster first: both where it is unknown or contradicted
    seen: str  # the one state that its times are nearest to
    text: str = ""  # what there is to say about it; empty for the fast state that the run says and shows
    is_other: bool = False  # its times show another state than the run says


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
    both = (cache.fast, cache.slow)
    quick, long = (expectation.with_state(cache, state).of(own).shifted(processor_factor) for state in both)
    if long.seconds <= quick.seconds * 1.001:  # switched off, or the same either way
        state = said if said in both else cache.fast
        return CacheState(cache, (state,), state)
    is_resolved = long.seconds > max(quick.seconds * _DISTINCT, quick.seconds + own.resolution_s)
    fast_s, slow_s, took_s = map(format_seconds, (quick.seconds, long.seconds, own.measured_s))
    seen = cache.slow if is_resolved and own.measured_s > math.sqrt(quick.seconds * long.seconds) else cache.fast
    if said not in both:
        looks = f"; {own.name} of {took_s} looks {seen}" if is_resolved else ""
        times = f"{cache.slow} {slow_s}, {cache.fast} {fast_s}"
        return CacheState(
            cache, both, seen, f"{cache.field} is unknown: judged as {cache.slow}, the slower ({times}){looks}"
        )
    expected, other = (quick, long) if said == cache.fast else (long, quick)
    is_beyond = is_resolved and seen != said and own.beyond(expected.seconds, expected.seconds, factor)
    is_part = cache.is_graded and said == cache.fast
    if is_beyond and (is_part or other.low_s - own.resolution_s <= own.measured_s <= other.high_s + own.resolution_s):
        words = cache.slow_words if seen == cache.slow else cache.fast_words
        text = (
            f"the run says {cache.field}: {said}, but it seems to have {words}: {own.name} took {took_s} "
            f"({cache.fast} {fast_s}, {cache.slow} {slow_s} predicted); make sure of the state and start it again"
        )
        return CacheState(cache, both, seen, text, True)
    borrowed = f", {long.source}" if "borrowed" in long.source else ""
    judged = f"{own.name} is judged against {slow_s}{borrowed}, not the {fast_s} of a {cache.fast} one"
    text = f"the start {cache.slow_words} ({cache.field}: {cache.slow}): {judged}" if said == cache.slow else ""
    return CacheState(cache, (said,), said, text)


# --- one run ------------------------------------------------------------------------------------------------------------


class FigureCheck(NamedTuple):
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

    def points(self) -> Iterator[Point]:
        """How far the processor's part of the figure has moved; none where the stamps do not tell."""
        figure, time = self.figure, self.seen
        if figure.kind == "total" or not figure.is_single or not 0 < time.seconds <= 2.0 * time.processor_s:
            return
        shortest = max(min(figure.measured_s, time.seconds), 1e-9)
        resolution = (figure.resolution_s / math.sqrt(12.0) + _SCATTER_S) / shortest
        if resolution <= _MAX_LOG_ERROR:
            took_s = max(figure.measured_s - (time.seconds - time.processor_s), 1e-3 * time.processor_s)
            moved = max(-_MAX_LOG_RATIO, min(_MAX_LOG_RATIO, log_ratio(took_s, time.processor_s)))
            yield Point(figure.name, moved, 2.0 * resolution)


def _checks(figures: Sequence[MeasuredValue], slow: Forecast, fast: Forecast, seen: Forecast) -> list[FigureCheck]:
    checks = []
    for figure in figures:
        longer, shorter = sorted((slow.of(figure), fast.of(figure)), key=lambda time: -time.seconds)
        checks.append(FigureCheck(figure, longer, shorter, seen.of(figure)))
    return checks


class RunCheck:
    """One run, its figures, and what those beyond the limit mean."""

    def __init__(self, run: RunRecord, label: str, expectation: Expectation, rules: Rules) -> None:
        self.run, self.label, self._expectation, self._rules = run, label, expectation, rules
        ends = [tuple(getattr(cache, end) for cache in expectation.caches) for end in ("slow", "fast")]
        slowest, fastest = map(expectation.forecast, ends)
        self._known = slowest.adds
        figures = measured_values(run, slowest.adds)
        untouched = [check for check in _checks(figures, slowest, fastest, fastest) if check.is_untouched]
        before = common_shift([point for check in untouched for point in check.points()])
        factors = rules.phase_factor or rules.factor, before.factor if before.is_common else 1.0
        said = zip(expectation.caches, expectation.said, strict=True)
        self.states = [find_state(cache, state, figures, expectation, *factors) for cache, state in said]
        self._seen = tuple(state.seen for state in self.states)
        slow, fast = (expectation.forecast(tuple(state.judged[i] for state in self.states)) for i in (-1, 0))
        self.checks = _checks(figures, slow, fast, expectation.forecast(self._seen))
        self._least_s = max(rules.floor_s, _MIN_SHARE * slow.total.seconds)
        self.points = [point for check in self.checks if check.is_resolved for point in check.points()]
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
        is_steady = self.shift.is_common or abs(math.log(self.shift.factor)) <= MIN_SHIFT
        if len(loads) != 1 or len(self.points) < 2 or not is_steady:
            return 1.0
        (load,), time = loads, loads[0].slow
        if time.storage_s < 0.5 * time.seconds or [check for check in parts if self._beyond(check)] != loads:
            return 1.0
        others_s = time.shifted(self._factors[0]).seconds - time.storage_s
        return max(0.01, (load.figure.measured_s - others_s) / time.storage_s)

    def _counts(self, check: FigureCheck) -> bool:
        figure = check.figure
        least_s = self._rules.floor_s if figure.kind == "total" else self._least_s
        return figure.is_whole or max(figure.measured_s, check.slow.seconds) >= least_s

    def _beyond(self, check: FigureCheck, *, as_drifted: bool = True) -> int:
        """1: slower than the limit; -1: faster; 0: within, or too short to count. ``as_drifted``: beyond what the host in the state that it shows would take as well."""
        figure, slow_s, fast_s = check.figure, check.slow.seconds, check.fast.seconds
        if as_drifted and self._factors != (1.0, 1.0):
            slow_s = max(slow_s, check.slow.shifted(*self._factors).seconds)
            fast_s = min(fast_s, check.fast.shifted(*self._factors).seconds)
        side = figure.beyond(slow_s, fast_s, self._rules.factor_of(figure))
        can_be_gain = self.run.status == "ok" and not figure.is_partial
        return side if self._counts(check) and (side > 0 or can_be_gain) else 0

    def _row(self, check: FigureCheck) -> GateRow:
        figure, slow, fast, seen = check
        factor, counts, side = self._rules.factor_of(figure), self._counts(check), self._beyond(check)
        limit_s, said_s = slow.seconds * factor, self._said.of(figure).seconds if self._said else seen.seconds
        if side:
            verdict = "regression" if side > 0 else "gain"
        elif self._beyond(check, as_drifted=False):
            verdict = "drift"
        elif counts and abs(said_s - seen.seconds) > 0.01 * seen.seconds and figure.beyond(said_s, said_s, factor):
            verdict = "state"
        else:
            verdict = "ok" if figure.measured_s <= limit_s else "unresolved" if counts else "minor"
        times = figure.measured_s, slow.seconds, fast.seconds, limit_s, (fast.low_s, slow.high_s), figure.resolution_s
        return GateRow(self.label, figure.name, *times, verdict)

    def verdict(self) -> str:
        found = {row.verdict for row in self.rows} | {"state" for state in self.states if state.is_other}
        return next((kind for kind in KINDS if kind in found), "ok")

    def findings(self) -> Iterator[Finding]:
        """What there is to say, the most severe first."""
        by_excess = sorted(self.rows, key=lambda row: -row.excess_s)
        yield from (self._finding(row, self._regression_words(row)) for row in by_excess if row.verdict == "regression")
        yield from self._drift()
        for state in self.states:
            if state.text:
                fails = "state" in self._rules.fail_on and state.is_other and state.seen == state.cache.slow
                yield Finding("state", self.label, state.cache.field, state.text, fails)
        for row in reversed(by_excess):
            if row.verdict == "gain":
                ratio = row.measured_s / row.fastest_s if row.fastest_s > 0 else 0.0
                times = f"{ratio:.2f} times the predicted {format_seconds(row.fastest_s)}"
                yield self._finding(row, f"{row.phase} took {format_seconds(row.measured_s)}, {times}: {_STALE}")
        unjudged = not_judged(self.run, self._known, self._expectation.off)
        for text in (*self._expectation.notes(self._seen), *unjudged):
            yield Finding("domain", self.label, "", text)

    def _finding(self, row: GateRow, text: str) -> Finding:
        return self._rules.finding(row.verdict, self.label, row.phase, text, row.excess_s)

    def _regression_words(self, row: GateRow) -> str:
        times = f", {row.ratio:.2f} times the predicted {format_seconds(row.predicted_s)}" if row.ratio else ""
        high = row.interval_s[1]
        interval = f"the {self._rules.level:.0%} interval of the profile (to {format_seconds(high)})"
        if row.measured_s > high:
            interval = f"{format_seconds(row.measured_s - high)} beyond {interval}"
        else:
            interval = f"within {interval}: its own error may be as large, more runs would narrow it"
        took = f"{row.phase} took {format_seconds(row.measured_s)}{times} (limit {format_seconds(row.limit_s)})"
        return f"{took}, {interval}{self._cause(row)}"

    def _cause(self, row: GateRow) -> str:
        """Of a total, the phase that adds most to it; of a phase, the state of a cache that might be behind it."""
        fast = [state.cache for state in self.states if state.judged == (state.cache.fast,)]
        if row.phase not in TOTALS:
            parts = row.phase.split(" + ")
            slower = [f"{c.slow_words}, say {c.field}: {c.slow}" for c in fast if c.phase in parts]
            return f"; if the start {slower[0]}" if slower else ""
        worst = max((row for row in self.rows if row.phase not in TOTALS), key=lambda row: row.excess_s, default=None)
        if worst is not None and worst.excess_s > 0:
            return f"; mostly {worst.phase} ({worst.excess_s:+.2f} s)"
        slower = [f"{cache.field}: {cache.slow}" for cache in fast if cache.phase in self._known]
        return "; no phase tells which" + (f". If {' or '.join(slower)} was so, say it" if slower else "")

    def _drift(self) -> Iterator[Finding]:
        moved = [row for row in self.rows if row.verdict == "drift"]
        fails = "drift" in self._rules.fail_on and any(row.measured_s > row.limit_s for row in moved)
        if self.shift.is_common:
            excess_s = max((row.excess_s for row in moved if row.phase == "total"), default=0.0)
            other = "" if self._expectation.stands_for_host else "; the node is not the profile's host"
            text = self.shift.words() + other + ("" if moved else "; within the factor")
            yield Finding("drift", self.label, "", text, fails, excess_s)
        if self.storage_factor != 1.0:
            row = next(row for row in self.rows if LOAD in row.phase.split(" + "))
            times = f"took {format_seconds(row.measured_s)}, predicted {format_seconds(row.predicted_s)}"
            rate = f"as if storage gave {1.0 / self.storage_factor:.2f} times its bandwidth; all else is as predicted"
            text = f"the load alone moved: {row.phase} {times}, {rate}: same software, another state of the storage"
            yield Finding("drift", self.label, row.phase, text, fails, row.excess_s)


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
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise wrong_type("fail_on", kinds, "a list of kinds", f"known: {', '.join(KINDS)}")
    given = [*kinds]
    if unknown := [kind for kind in given if kind not in [*KINDS]]:
        raise UnknownNameError("fail_on", str(unknown[0]), KINDS)
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
        self._pools: dict[str, LogRatios] = defaultdict(LogRatios)  # figure -> measured over predicted
        self._processor: dict[str, LogRatios] = defaultdict(LogRatios)  # of what is in proportion to single-thread time
        self._storage = LogRatios()
        self._beyond: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()

    def take(self, candidate: Candidate) -> None:
        run = candidate.run
        if run is not None and not isinstance(run, RunRecord):
            raise wrong_type("runs", run, "a run record", "read files with read_runs")
        self._number += 1
        name, status = ("unknown model", candidate.status) if run is None else (run.model.name, run.status)
        label = one_line(candidate.label or f"run {self._number}: {name}", _MAX_LABEL)
        try:
            verdict = self._judge(candidate, label, status)
        except StartupModelError as error:
            raise StartupModelError(f"{label}: {error}") from None
        self._statuses[status] += 1
        self._counts.update({finding.kind for finding in verdict.findings})
        self._failures += not verdict.passed
        listed = self._listed[verdict.passed]
        if len(listed) < MAX_LISTED:
            listed.append((self._number, verdict))

    def _judge(self, candidate: Candidate, label: str, status: str) -> RunVerdict:
        run, rules, evidence = candidate.run, self._rules, candidate.evidence
        findings: list[Finding] = []
        if status != "ok":
            shown = f"; {one_line(evidence, 300)}" if evidence else ""
            if run is not None and run.phases and not evidence:
                last = max(run.phases, key=[*map(str, PHASES)].index)
                shown = f"; the last phase that it measured is {last}"
            text = f"status {status}: the server did not come up{shown}"
            findings.append(rules.finding("failed_start", label, "", text))
        rows: tuple[GateRow, ...] = ()
        names, verdict = ("", "", ""), "failed_start"
        if run is None and not findings:
            raise missing("run", "a start that came up has no record", "give its record")
        if run is not None:
            engine = run.engine.engine
            try:
                expectation = self._expectation(run.model, run.hardware, run.engine, rules.profile, rules.level)
                check = RunCheck(run, label, expectation, rules)
            except StartupModelError as reason:
                if not findings:
                    raise
                # that it failed counts; that it cannot be predicted may be why
                findings.append(Finding("domain", label, "", f"it cannot be predicted: {reason}"))
            else:
                rows, engine, verdict = check.rows, expectation.engine_name, verdict if findings else check.verdict()
                findings += check.findings()
                findings += (Finding("domain", label, "", note) for note in candidate.notes)
                self._pool(check, findings)
            names = one_line(run.model.name, 200), one_line(run.hardware.name, 200), engine
        return RunVerdict(label, *names, status, verdict, rows, tuple(findings))

    def _pool(self, check: RunCheck, findings: Iterable[Finding]) -> None:
        for figure, _, _, seen in (line for line in check.checks if line.is_resolved):
            if seen.seconds > 0 and figure.is_single and _has_room(self._pools, figure.name):
                self._pools[figure.name].add(log_ratio(figure.measured_s, seen.seconds))
        for point in check.points:
            if _has_room(self._processor, point.name):
                self._processor[point.name].add(point.log_ratio)
        if check.storage_factor != 1.0:
            self._storage.add(math.log(check.storage_factor))
        beyond = (row.phase for row in check.rows if row.verdict == "regression")
        self._beyond.update(name for name in beyond if _has_room(self._beyond, name))
        notes = (finding.text for finding in findings if finding.kind == "domain")
        self._notes.update(text for text in notes if _has_room(self._notes, text))

    def report(self) -> GateReport:
        """What came of all runs. Raises ConfigError when there were none."""
        if not self._number:
            raise missing("runs", "there is nothing to judge", "give some")
        overall = tuple(self._overall()) if self._number > 1 else ()
        failed, passed = self._listed[False], self._listed[True]
        listed = sorted([*failed, *passed[: max(0, MAX_LISTED - len(failed))]])
        rules = self._rules
        pools = {name: self._pools[name] for name in [*map(str, PHASES), *self._pools] if name in self._pools}
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
        number, say = self._number, partial(self._rules.finding, run="")
        if bad := sorted((status, count) for status, count in self._statuses.items() if status != "ok"):
            words = ", ".join(f"{status} {count}" for status, count in bad)
            text = f"{sum(count for _, count in bad)} of {number} starts did not come up ({words})"
            yield say("failed_start", phase="", text=text)
        for name, count in self._beyond.most_common():
            if name not in TOTALS or not self._beyond.keys() - TOTALS:
                yield say("regression", phase=name, text=self._regression_words(name, count))
        enough = max((pool.total() for pool in self._processor.values()), default=0) / 2
        points = [Point(name, pool.median(), 0.0) for name, pool in self._processor.items() if pool.total() >= enough]
        if (shift := common_shift(points)).is_common:
            yield Finding("drift", "", "", shift.words("in the median of the runs, "))
        if (loads := self._storage).total() > 1:
            text = f"{loads.total()} loads moved alone, to {math.exp(loads.median()):.2f} times what storage needs by the profile"
            scatter = f"(scatter {loads.scatter():.0%})"
            if loads.scatter() <= _MAX_LOG_ERROR:
                yield Finding("drift", "", LOAD, f"{text} {scatter}: one bandwidth changed")
            else:
                text += f", but not by one factor {scatter}: no bandwidth alone explains them"
                yield say("regression", phase=LOAD, text=text)
        total = self._pools.get("total") or self._pools.get("measured phases")
        if total and total.median() < -math.log(self._rules.factor):
            times = f"{math.exp(total.median()):.2f} times the prediction in the median of {total.total()} runs"
            yield say("gain", phase="total", text=f"totals are {times}: {_STALE}")
        for text, count in self._notes.most_common():
            yield Finding("domain", "", "", text if count == number else f"{text} ({count} of {number} runs)")

    def _regression_words(self, name: str, count: int) -> str:
        pool = self._pools.get(name, LogRatios())
        text = f"{name} is beyond its limit in {count} of {self._number} runs"
        if pool:
            text += f", {math.exp(pool.median()):.2f} times the prediction in the median of {pool.total()}"
        if 3 * count <= pool.total():
            text += "; in few of them: look for what else ran then"
        if pool.total() > 2 and name in TOTALS and abs(pool.median()) > pool.scatter() * 3:
            text += "; all by about one factor: if phases were measured, drift of the host could be told"
        return text


def _has_room(kept: Collection[str], name: str) -> bool:
    return name in kept or len(kept) < _MAX_NAMES
