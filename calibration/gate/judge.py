"""``gate``: measured starts against a profile; a regression, a gain, the state of a cache and drift of the host told apart.

Bottom-up: the figures of a run, what a profile expects of them, a common factor, the states of the caches, one run (``RunCheck``), all runs (``GateRun``).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from calibration.gate.report import FAIL_ON, KINDS, TOTALS, Candidate, Finding, GateReport, GateRow, PhaseSummary, RunVerdict  # fmt: skip
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import StartupModelError, UnknownNameError, missing, one_line, wrong_type
from startup_model.frozen import FrozenModel
from startup_model.hardware import UNKNOWN_CPU, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, Phase
from startup_model.prediction import PhasePrediction, StartupPrediction
from startup_model.predictor import ProfileLike, as_profile, predict
from startup_model.profile import Profile, judge_profile
from startup_model.uncertainty import check_level
from startup_model.units import format_seconds

MAX_LISTED = 1000
"""Runs that a report lists; the others are counted."""

_OUTSIDE = frozenset(map(str, (*BEFORE_ENGINE, *AFTER_READY)))  # segments outside the time to ready
_LOAD, _UNLOGGED = str(Phase.WEIGHT_LOAD), str(Phase.UNATTRIBUTED)
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
    phase_factor: Factor
    level: float
    fail_on: tuple[str, ...]


class Cache(NamedTuple):
    """A cache whose state decides how long a phase takes."""

    field: str  # of EngineConfig
    phase: str
    fast: str
    slow: str
    fast_words: str  # what a start in the fast state did
    slow_words: str
    is_graded: bool  # may be in part in either state: the files of a checkpoint may, compiled graphs not

    def likely_state(self) -> str:
        """How to say that it was in the slow state."""
        return f"{self.field}: {self.slow}"


CACHES = (
    Cache("page_cache", _LOAD, "hot", "cold", "read its files from memory", "read files from storage", is_graded=True),
    Cache("compile_cache", str(Phase.GRAPH_COMPILE), "warm", "cold", "loaded compiled graphs", "compiled its graphs anew", is_graded=False),
)  # fmt: skip

States = tuple[str, ...]  # of each of CACHES


# --- figures of a run ---------------------------------------------------------------------------------------------------


class MeasuredValue(NamedTuple):
    """One figure of a run."""

    name: str
    kind: str  # phase, sum (of several), rest (wall time less all other figures) or total
    phases: tuple[str, ...]  # that it holds, as far as the prediction has time for them
    measured_s: float
    resolution_s: float
    is_apart: bool = True  # no other figure holds any of its time (total aside)
    is_partial: bool = False  # it holds only a part of these phases: it can be too long, never too short

    @property
    def is_whole(self) -> bool:
        """Whether it is held against the predicted total."""
        return self.name == "total" or (self.kind == "total" and self.is_partial)


def measured_values(run: RunRecord, known: Mapping[str, float]) -> list[MeasuredValue]:
    """The figures of a run that a prediction can be held against; ``known``: phase -> what it adds to the predicted total [s].

    Of a log alone, whose first line comes some seconds after its process, the bootstrap is left out, and the time from its first line to ready counts as a part of the
    total. With a wall time, what no other figure holds is the rest; without one, the phases that were measured are added up instead.
    """
    stamp = run.stamp_resolution_s
    names = [name for name in run.phases if name in known and name not in run.hidden]
    figures = [MeasuredValue(name, "phase", (name,), run.phases[name], stamp) for name in names]
    held = set(names)
    for measured in run.sums:
        inside = tuple(name for name in measured.phases if name in known)
        if inside and not {*run.hidden, *_OUTSIDE} & set(measured.phases):
            is_apart = held.isdisjoint(inside)
            name = " + ".join(measured.phases)
            figures.append(MeasuredValue(name, "sum", inside, measured.seconds, stamp, is_apart=is_apart))
            held.update(inside if is_apart else ())
    apart = [figure for figure in figures if figure.is_apart]
    together = stamp * max(1.0, 0.5 * (len(apart) + 1))  # each figure may be rounded by half of what its stamps resolve
    if run.ready_s is not None and run.status == "ok":
        left = tuple(name for name in known if name not in held)
        taken = sum(f.measured_s for f in apart if any(known[name] > 0 for name in f.phases))
        if apart and left:
            figures.append(MeasuredValue("rest", "rest", left, max(0.0, run.ready_s - taken), together))
        return [*figures, MeasuredValue("total", "total", tuple(known), run.ready_s, stamp)]
    # Without a rest, phases for which the prediction has no time are a part of what it has for time that no stage logs.
    others = known.keys() | _OUTSIDE | run.hidden
    names = [name for name, seconds in run.phases.items() if name not in others and seconds > 0]
    if names and _UNLOGGED in known and _UNLOGGED not in held:
        seconds, resolution = sum(run.phases[name] for name in names), stamp * max(1.0, 0.5 * len(names))
        name = " + ".join([*names, _UNLOGGED])
        figures.append(MeasuredValue(name, "sum", (_UNLOGGED,), seconds, resolution, is_apart=False, is_partial=True))
    if len(apart) > 1:
        phases = tuple(name for figure in apart for name in figure.phases)
        figures.append(MeasuredValue("measured phases", "total", phases, sum(f.measured_s for f in apart), together))
    if run.wall_s is not None and run.status == "ok":
        figures.append(MeasuredValue("from the first line", "total", tuple(known), run.wall_s, stamp, is_partial=True))
    return figures


def not_judged(run: RunRecord, known: Mapping[str, float], off: Collection[str]) -> Iterator[str]:
    """What of a run no prediction can be held against, in words; ``off``: phases that its flags switch off."""
    if run.hidden:
        yield f"counted from the first line of a log: {', '.join(sorted(run.hidden))} and wall time are known in part only"
    for name, seconds in run.phases.items():
        if name in run.hidden:
            continue
        if name in _OUTSIDE:
            yield f"{name} is outside the time to ready: not judged"
        elif name not in known and seconds > run.stamp_resolution_s:
            why = "the flags of the run switch it off" if name in off else "the profile has no time for it"
            yield f"{name} took {seconds:.3g} s, but {why}: it counts as time that no stage logs"


# --- what a profile expects of them -------------------------------------------------------------------------------------


class ExpectedTime(NamedTuple):
    """What is expected of some phases together; low_s and high_s with the profile's own errors, at the level that was asked for."""

    seconds: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    processor_s: float = 0.0  # of seconds, in proportion to the single-thread time of the host
    copy_s: float = 0.0  # of seconds, what is left of a load: copies within the host, which its processor makes
    storage_s: float = 0.0  # of seconds, in proportion to the time that storage needs for the bytes
    source: str = ""  # where the coefficients come from, of a single phase

    def shifted(self, processor_factor: float, storage_factor: float = 1.0) -> ExpectedTime:
        """On a host whose processor and storage take so many times longer."""
        more = (self.processor_s + self.copy_s) * (processor_factor - 1.0) + self.storage_s * (storage_factor - 1.0)
        ratio = 1.0 + more / self.seconds if self.seconds > 0 else 1.0
        return self._replace(seconds=self.seconds + more, low_s=self.low_s * ratio, high_s=self.high_s * ratio)


def _expected(entry: PhasePrediction, low_s: float, high_s: float) -> ExpectedTime:
    """The time of one phase. What is in proportion to an input: what a doubled slowdown, or half the bandwidth, adds to it."""
    added = {"slowdown": 0.0, "storage_bandwidth": 0.0}
    for call in entry.calls:
        for name, factor in (("slowdown", 2.0), ("storage_bandwidth", 0.5)):
            if name in call.term.inputs:
                place = call.term.inputs.index(name)
                inputs = (*call.inputs[:place], call.inputs[place] * factor, *call.inputs[place + 1 :])
                added[name] += max(0.0, call._replace(inputs=inputs).seconds() - call.seconds())
    processor_s, storage_s = added.values()
    copy_s = max(0.0, entry.elapsed_s - storage_s) if entry.phase == _LOAD else 0.0
    return ExpectedTime(entry.elapsed_s, low_s, high_s, processor_s, copy_s, storage_s, entry.source)


class Forecast:
    """One prediction, taken to pieces."""

    def __init__(self, prediction: StartupPrediction) -> None:
        self.prediction = prediction
        tail = (1.0 - prediction.level) / 2.0
        entries = {str(phase): entry for phase, entry in prediction.phases.items() if entry.elapsed_s > 0}
        self.adds = {
            name: entry.seconds for name, entry in entries.items()
        }  # to the total: less than it takes where it runs beside another
        self.phases = {
            name: _expected(entry, *(prediction.phase_quantile(name, p) for p in (tail, 1.0 - tail)))
            for name, entry in entries.items()
        }
        low_s, high_s = prediction.interval
        self._together = lru_cache(maxsize=256)(self._sum)
        self.total = self._sum(tuple(entries))._replace(seconds=prediction.total_s, low_s=low_s, high_s=high_s)

    def of(self, figure: MeasuredValue) -> ExpectedTime:
        """What is expected of a figure."""
        if figure.is_whole:
            return self.total
        if figure.kind == "phase":
            return self.phases.get(figure.name, ExpectedTime())
        return self._together(figure.phases)

    def _sum(self, phases: tuple[str, ...]) -> ExpectedTime:
        """Phases one after the other, each by what it adds to the total; if all run beside another, by their own time."""
        times = {name: self.phases[name] for name in phases if name in self.phases}
        shares = [self.adds[name] / time.seconds for name, time in times.items()]
        shares = shares if any(shares) else [1.0] * len(shares)
        columns = zip(*(time[:6] for time in times.values()), strict=True)
        return ExpectedTime(*(sum(share * value for share, value in zip(shares, column, strict=True)) for column in columns))  # fmt: skip


class Expectation:
    """What a profile expects of one configuration. Built once for equal configurations; forecasts are made when they are first asked for. Raises ConfigError."""

    def __init__(self, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, profile: Profile, level: float) -> None:  # fmt: skip
        self._start = (model, hardware, engine, profile, level)
        self._forecasts: dict[States, Forecast] = {}
        self.said: States = tuple(getattr(engine, cache.field) for cache in CACHES)
        self.known = tuple(
            said if said in (cache.fast, cache.slow) else cache.fast
            for cache, said in zip(CACHES, self.said, strict=True)
        )  # as said, else the fast one
        found = self.forecast(tuple(cache.fast for cache in CACHES)).prediction
        self.engine_name = found.context.engine_name
        self.off = frozenset(str(phase) for phase, entry in found.phases.items() if not entry.calls)
        selection = judge_profile(profile, hardware)
        self.stands_for_host = selection.same_gpu and (selection.same_cpu or hardware.cpu.model == UNKNOWN_CPU)
        self._host = () if self.stands_for_host else (f"another host than the profile's: {selection.reason}",)

    def notes(self, states: States) -> tuple[str, ...]:
        """What there is to say beside the numbers: another host or version, sizes that the profile's runs did not have, what was assumed."""
        return (*self._host, *self.forecast(states).prediction.warnings)

    def forecast(self, states: States) -> Forecast:
        """The prediction with the caches in these states."""
        found = self._forecasts.get(states)
        if found is None:
            model, hardware, engine, profile, level = self._start
            fields = {cache.field: state for cache, state in zip(CACHES, states, strict=True)}
            found = Forecast(predict(model, hardware, engine.replace(**fields), profile=profile, level=level))
            self._forecasts[states] = found
        return found


# --- a common factor ----------------------------------------------------------------------------------------------------

_MIN_POINTS = 3  # phases from which a common factor is told from a phase that moved alone
_MIN_SHIFT = math.log(1.1)  # sessions of one host differ by 1 to 5 % in most phases
_MAX_DEVIATION = 0.3  # of the logarithm of a phase that moved along: two standard deviations of single phases
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_STEP = 0.005


class Point(NamedTuple):
    """How far one phase has moved."""

    name: str
    log_ratio: float
    """Of measured over expected seconds."""
    resolution: float
    """What the stamps resolve, on the same scale."""


class Shift(NamedTuple):
    """What several phases have in common."""

    factor: float
    """exp(median of the logarithms); 1 when there are none."""
    scatter: float
    """Standard deviation of the logarithms, from the median absolute deviation."""
    points: int
    outliers: tuple[str, ...]
    """Phases that did not move along."""
    is_common: bool
    """All, or all but one in four, moved by about this factor, and it is a shift."""

    def words(self, where: str = "") -> str:
        """The factor in words; ``where``: in front of it."""
        outliers = f" (not {', '.join(self.outliers)})" if self.outliers else ""
        which = f"{self.points - len(self.outliers)} of {self.points}" if self.outliers else f"all {self.points}"
        cause = (
            "another state of the host (clock, neighbours, power), or another host"
            if self.factor > 1.0
            else "the host is faster than the profile's, calibrate it again"
        )
        return (
            f"{where}{which} processor-bound figures{outliers} took about {self.factor:.2f} times the predicted seconds (scatter {self.scatter:.0%}): "
            f"same software, {cause}"
        )


def common_shift(points: Sequence[Point]) -> Shift:
    """The factor that phases have moved by together.

    L_i = ln(measured_i / expected_i); factor = exp(m), m = median(L_i); scatter = 1.4826 × median |L_i - m|

    m [1], scatter [1]. A phase moved along when |L_i - m| is at most min(|m| / 2, 0.3), or what its stamps resolve. The shift is common when |m| exceeds
    ln 1.1, there are three phases at least, and at most one in four did not move along: the median alone would call three slow phases of five a slow
    host. Source: median and MAD resist up to half of outliers (Huber, Robust Statistics, 1981, section 5.1).
    """
    if not points:
        return Shift(1.0, 0.0, 0, (), is_common=False)
    centre = median(point.log_ratio for point in points)
    scatter = _MAD * median(abs(point.log_ratio - centre) for point in points)
    width = min(abs(centre) / 2.0, _MAX_DEVIATION)
    outliers = tuple(p.name for p in points if abs(p.log_ratio - centre) > max(width, p.resolution))
    is_common = len(points) >= _MIN_POINTS and abs(centre) > _MIN_SHIFT and len(outliers) <= len(points) // 4
    return Shift(math.exp(centre), scatter, len(points), outliers, is_common=is_common)


class LogRatios:
    """Logarithms of many ratios in bounded memory: counts in steps of half a per cent, up to exp(±10)."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.number = 0

    def add(self, log_ratio: float) -> None:
        """Take one more."""
        self._counts[round(min(10.0, max(-10.0, log_ratio)) / _STEP)] += 1
        self.number += 1

    def median(self) -> float:
        """The middle one, to a quarter of a per cent; 0 when there are none."""
        return _STEP * _middle(self._counts)

    def scatter(self) -> float:
        """Standard deviation, from the median absolute deviation."""
        centre = round(_middle(self._counts))
        deviations: Counter[int] = Counter()
        for step, count in self._counts.items():
            deviations[abs(step - centre)] += count
        return _MAD * _STEP * _middle(deviations)


def _middle(counts: Counter[int]) -> float:
    """The median of counted steps; of an even number, between the two in the middle."""
    if not counts:
        return 0.0
    steps = sorted(counts)
    passed = [*accumulate(counts[step] for step in steps)]
    half = passed[-1] / 2
    return (steps[bisect_left(passed, half)] + steps[bisect_right(passed, half)]) / 2


# --- states of the caches -----------------------------------------------------------------------------------------------


class CacheState(NamedTuple):
    """The state of one cache in one start."""

    cache: Cache
    judged: tuple[
        str, ...
    ]  # states that the start is judged with, the faster first: one, or both where it is not known or contradicts its times
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
    """  # fmt: skip
    holders = [f for f in figures if f.kind in ("phase", "sum") and cache.phase in f.phases and not f.is_partial]
    stand_in = MeasuredValue(cache.phase, "phase", (cache.phase,), 0.0, math.inf)  # not measured: it tells nothing
    own = min(holders, key=lambda figure: len(figure.phases), default=stand_in)
    pairs = [*zip(CACHES, expectation.known, strict=True)]
    quick, long = (
        expectation.forecast(tuple(state if other is cache else known for other, known in pairs))
        .of(own)
        .shifted(processor_factor)
        for state in (cache.fast, cache.slow)
    )
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


def log_ratio(measured_s: float, expected_s: float) -> float:
    """ln(measured / expected), bounded where one of them is nothing."""
    return math.log(max(measured_s, 1e-6) / max(expected_s, 1e-6))


def _checks(figures: Sequence[MeasuredValue], slow: Forecast, fast: Forecast, seen: Forecast) -> list[FigureCheck]:
    checks = []
    for figure in figures:
        shorter, longer = sorted((fast.of(figure), slow.of(figure)), key=lambda time: time.seconds)
        checks.append(FigureCheck(figure, longer, shorter, seen.of(figure)))
    return checks


class RunCheck:
    """One run, its figures, and what those beyond the limit mean."""

    def __init__(self, run: RunRecord, label: str, expectation: Expectation, rules: Rules) -> None:
        self.run, self.label, self._expectation, self._rules = run, label, expectation, rules
        slowest, fastest = (expectation.forecast(states) for states in zip(*((c.slow, c.fast) for c in CACHES), strict=True))  # fmt: skip
        self._known = slowest.adds
        figures = measured_values(run, slowest.adds)
        untouched = [check for check in _checks(figures, slowest, fastest, fastest) if check.is_untouched]
        before = common_shift([point for check in untouched if (point := check.point())])
        factors = rules.phase_factor, before.factor if before.is_common else 1.0
        pairs = [*zip(CACHES, expectation.said, strict=True)]
        self.states = [find_state(cache, said, figures, expectation, *factors) for cache, said in pairs]
        self._seen = tuple(state.seen for state in self.states)
        slow, fast = (expectation.forecast(tuple(state.judged[i] for state in self.states)) for i in (-1, 0))
        self.checks = _checks(figures, slow, fast, expectation.forecast(self._seen))
        self._least_s = max(rules.floor_s, _MIN_SHARE * slow.total.seconds)
        self.points = [point for check in self.checks if check.is_resolved and (point := check.point())]
        self.shift = common_shift(self.points)
        self._factors = (self.shift.factor if self.shift.is_common else 1.0, 1.0)  # of processor and storage
        self.storage_factor = self._find_storage_factor()
        self._factors = (self._factors[0], self.storage_factor)
        self._said: Forecast | None = (
            None  # the prediction with the states that the run says, where its times show others
        )
        if any(state.is_other for state in self.states):
            said = (s if state.is_other else state.judged[-1] for s, state in zip(expectation.said, self.states, strict=True))  # fmt: skip
            self._said = expectation.forecast(tuple(said))
        self.rows = tuple(map(self._row, self.checks))

    def _find_storage_factor(self) -> float:
        """How much longer storage took for the bytes, where the load alone is beyond its limit; else 1."""
        parts = [check for check in self.checks if check.figure.kind != "total"]
        loads = [check for check in parts if _LOAD in check.figure.phases and check.figure.kind != "rest"]
        if len(loads) != 1 or len(self.points) < 2 or loads[0].slow.storage_s < 0.5 * loads[0].slow.seconds:
            return 1.0
        (load,) = loads
        is_steady = self.shift.is_common or abs(math.log(self.shift.factor)) <= _MIN_SHIFT
        if not is_steady or not self._beyond(load) or any(self._beyond(check) for check in parts if check is not load):
            return 1.0
        others_s = load.slow.shifted(self._factors[0]).seconds - load.slow.storage_s
        return max(0.01, (load.figure.measured_s - others_s) / load.slow.storage_s)

    def _factor(self, figure: MeasuredValue) -> float:
        return self._rules.factor if figure.kind == "total" else self._rules.phase_factor

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
        if figure.measured_s - figure.resolution_s > slow_s * self._factor(figure):
            return 1
        may_gain = self.run.status == "ok" and not figure.is_partial
        return -1 if may_gain and figure.measured_s + figure.resolution_s < fast_s / self._factor(figure) else 0

    def _row(self, check: FigureCheck) -> GateRow:
        figure, slow, fast, _ = check
        return GateRow(
            run=self.label,
            phase=figure.name,
            measured_s=figure.measured_s,
            predicted_s=slow.seconds,
            fastest_s=fast.seconds,
            limit_s=slow.seconds * self._factor(figure),
            interval_s=(fast.low_s, slow.high_s),
            resolution_s=figure.resolution_s,
            verdict=self._row_verdict(check),
        )

    def _row_verdict(self, check: FigureCheck) -> str:
        if left := self._beyond(check):
            return "regression" if left > 0 else "gain"
        if self._beyond(check, as_drifted=False):
            return "drift"
        figure, factor, counts = check.figure, self._factor(check.figure), self._counts(check)
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
        return Finding(kind, self.label, row.phase, text, kind in self._rules.fail_on, row.measured_s - row.predicted_s)

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
            row = next(row for row in self.rows if _LOAD in row.phase.split(" + "))
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
    phase_factor = factor if phase_factor is None else phase_factor
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
                raise StartupModelError(f"{label}: {missing('run', 'a start that came up has no record', 'give its record')}")  # fmt: skip
            return RunVerdict(label, "", "", "", status, "failed_start", (), tuple(failed))
        names = one_line(run.model.name, 200), one_line(run.hardware.name, 200)
        try:
            expectation = self._expectation(run.model, run.hardware, run.engine, rules.profile, rules.level)
            check = RunCheck(run, label, expectation, rules)
        except StartupModelError as error:
            if not failed:
                raise StartupModelError(f"{label}: {error}") from None
            note = Finding(
                "domain", label, "", f"it cannot be predicted: {error}"
            )  # that it failed counts; this may be why
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
            last = max(run.phases, key=[*map(str, Phase)].index)
            shown = f"; the last phase that it measured is {last}"
        text = f"status {status}: the server did not come up{shown}"
        return Finding("failed_start", label, "", text, "failed_start" in self._rules.fail_on)

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
        order = dict.fromkeys([*map(str, Phase), *self._pools])
        pools = {name: self._pools[name] for name in order if name in self._pools}
        return GateReport(
            passed=not self._failures and not any(finding.fails for finding in overall),
            profile=one_line(rules.profile.name, 200),
            factor=rules.factor,
            phase_factor=rules.phase_factor,
            floor_s=rules.floor_s,
            level=rules.level,
            fail_on=rules.fail_on,
            runs_total=self._number,
            runs_failed=self._failures,
            counts=dict(self._counts),
            phases={
                name: PhaseSummary(pool.number, math.exp(pool.median()), pool.scatter(), self._beyond[name])
                for name, pool in pools.items()
            },
            overall=overall,
            runs=tuple(verdict for _, verdict in listed),
        )

    def _finding(self, kind: str, phase: str, text: str) -> Finding:
        return Finding(kind, "", phase, text, kind in self._rules.fail_on)

    def _overall(self) -> Iterator[Finding]:
        """What all runs together show."""
        number = self._number
        bad = {status: count for status, count in self._statuses.items() if status != "ok"}
        if bad:
            words = ", ".join(f"{status} {count}" for status, count in sorted(bad.items()))
            yield self._finding("failed_start", "", f"{sum(bad.values())} of {number} starts did not come up ({words})")
        for name, count in self._beyond.most_common():
            if name not in TOTALS or not self._beyond.keys() - TOTALS:
                yield self._regression(name, count)
        yield from self._drift()
        total = self._pools.get("total") or self._pools.get("measured phases")
        if total is not None and total.number and total.median() < -math.log(self._rules.factor):
            times = f"{math.exp(total.median()):.2f} times the prediction in the median of {total.number} runs"
            yield self._finding("gain", "total", f"totals are {times}: {_STALE}")
        for text, count in self._notes.most_common():
            yield Finding("domain", "", "", text if count == number else f"{text} ({count} of {number} runs)")

    def _regression(self, name: str, count: int) -> Finding:
        pool = self._pools.get(name, LogRatios())
        middle = f", {math.exp(pool.median()):.2f} times the prediction in the median of {pool.number}" if pool.number else ""  # fmt: skip
        together = pool.number > 2 and name in TOTALS and abs(pool.median()) > pool.scatter() * 3
        one = "; all by about one factor: if phases were measured, drift of the host could be told" if together else ""
        few = "; in few of them: look for what else ran then" if 3 * count <= pool.number else ""
        return self._finding("regression", name, f"{name} is beyond its limit in {count} of {self._number} runs{middle}{few}{one}")  # fmt: skip

    def _drift(self) -> Iterator[Finding]:
        enough = max((pool.number for pool in self._processor.values()), default=0) / 2
        shift = common_shift([Point(name, pool.median(), 0.0) for name, pool in self._processor.items() if pool.number >= enough])  # fmt: skip
        if shift.is_common:
            yield Finding("drift", "", "", shift.words("in the median of the runs, "))
        loads = self._storage
        if loads.number > 1:
            low = f"{loads.number} loads moved alone, to {math.exp(loads.median()):.2f} times what storage needs by the profile"
            scatter = f"(scatter {loads.scatter():.0%})"
            if loads.scatter() <= _MAX_LOG_ERROR:
                yield Finding("drift", "", _LOAD, f"{low} {scatter}: one bandwidth changed")
            else:
                text = f"{low}, but not by one factor {scatter}: no bandwidth alone explains them"
                yield self._finding("regression", _LOAD, text)


def _add(pools: dict[str, LogRatios], name: str, value: float) -> None:
    if name in pools or len(pools) < _MAX_NAMES:
        pools.setdefault(name, LogRatios()).add(value)


def _count(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        if name in counter or len(counter) < _MAX_NAMES:
            counter[name] += 1
