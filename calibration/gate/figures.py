"""What a run measured, figure by figure; what a profile expects of each in every state of the caches; and whether several of them moved together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import NamedTuple

from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.hardware import UNKNOWN_CPU, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import PHASES
from startup_model.prediction import PhasePrediction, StartupPrediction
from startup_model.predictor import predict
from startup_model.profile import Profile, judge_profile
from startup_model.warnings import MODEL_IS_KNOWN

LOAD, _UNLOGGED = "weight_load", "unattributed"
_CACHE_WORDS = {  # field of EngineConfig -> what a start did with that cache in the fast state, and in the cold one
    "page_cache": ("read its files from memory", "read files from storage"),
    "compile_cache": ("loaded compiled graphs", "compiled its graphs anew"),
}


class Cache(NamedTuple):
    """A cache whose state decides how long a phase takes."""

    field: str  # of EngineConfig
    phase: str
    fast: str
    is_graded: bool  # may be in part in either state: the files of a checkpoint may, compiled graphs not
    fast_words: str  # what a start in the fast state did
    slow_words: str
    slow: str = "cold"


def caches() -> tuple[Cache, ...]:
    """The caches of the phases, in their order; files may be in memory in part, a set of coefficients holds or does not."""
    found = [(str(phase), row.cache) for phase, row in PHASES.items() if row.cache]
    words = {
        cache.name: (f"found its {cache.name} {cache.taken}", f"found its {cache.name} cold") for _, cache in found
    }
    words |= _CACHE_WORDS
    return tuple(Cache(c.name, phase, c.taken, bool(c.cold_inputs), *words[c.name]) for phase, c in found)


States = tuple[str, ...]  # of each of the caches


class MeasuredValue(NamedTuple):
    name: str
    kind: str  # phase, sum (of several), rest (wall time less all other figures) or total
    phases: tuple[str, ...]  # that it holds, as far as the prediction has time for them
    measured_s: float
    resolution_s: float
    is_apart: bool = True  # no other figure holds any of its time (total aside)
    is_partial: bool = False  # it holds only a part of these phases: it can be too long, never too short

    @property
    def is_single(self) -> bool:
        """Whether it holds all of its phases, and nothing else does."""
        return self.is_apart and not self.is_partial

    @property
    def is_whole(self) -> bool:
        """Whether it is held against the predicted total."""
        return self.name == "total" or (self.kind == "total" and self.is_partial)

    def beyond(self, slow_s: float, fast_s: float, factor: float) -> int:
        """1: longer than ``factor`` allows, by more than the stamps resolve; -1: shorter; 0: within."""
        if self.measured_s - self.resolution_s > slow_s * factor:
            return 1
        return -1 if self.measured_s + self.resolution_s < fast_s / factor else 0


def _outside() -> set[str]:  # segments outside the time to ready
    return {str(name) for name, row in PHASES.items() if row.segment}


def measured_values(run: RunRecord, known: Mapping[str, float]) -> list[MeasuredValue]:
    """The figures of a run that a prediction can be held against; ``known``: phase -> what it adds to the predicted total [s].

    Of a log alone, whose first line comes some seconds after its process, the bootstrap is left out, and the time from its first line to ready counts as a part of the
    total. With a wall time, what no other figure holds is the rest; without one, the phases that were measured are added up instead.
    """
    stamp, outside = run.stamp_resolution_s, _outside()
    names = [name for name in run.phases if name in known and name not in run.hidden]
    figures = [MeasuredValue(name, "phase", (name,), run.phases[name], stamp) for name in names]
    held = set(names)
    for measured in run.sums:
        inside = tuple(name for name in measured.phases if name in known)
        if inside and not {*run.hidden, *outside} & set(measured.phases):
            is_apart = held.isdisjoint(inside)
            figures.append(MeasuredValue(" + ".join(measured.phases), "sum", inside, measured.seconds, stamp, is_apart))
            held.update(inside if is_apart else ())
    apart = [figure for figure in figures if figure.is_apart]
    together = stamp * max(1.0, 0.5 * (len(apart) + 1))  # each figure may be rounded by half of what its stamps resolve
    every = tuple(known)
    if run.ready_s is not None and run.status == "ok":
        left = tuple(name for name in known if name not in held)
        taken = sum(f.measured_s for f in apart if any(known[name] > 0 for name in f.phases))
        if apart and left:
            figures.append(MeasuredValue("rest", "rest", left, max(0.0, run.ready_s - taken), together))
        return [*figures, MeasuredValue("total", "total", every, run.ready_s, stamp)]
    # Without a rest, phases for which the prediction has no time are a part of what it has for time that no stage logs.
    others = known.keys() | outside | run.hidden
    more = {name: s for name, s in (run.phases | run.unknown_phases).items() if name not in others and s > 0}
    if more and _UNLOGGED in known and _UNLOGGED not in held:
        name, resolution = " + ".join([*more, _UNLOGGED]), stamp * max(1.0, 0.5 * len(more))
        figures.append(MeasuredValue(name, "sum", (_UNLOGGED,), sum(more.values()), resolution, False, True))
    if len(apart) > 1:
        phases = tuple(name for figure in apart for name in figure.phases)
        figures.append(MeasuredValue("measured phases", "total", phases, sum(f.measured_s for f in apart), together))
    if run.wall_s is not None and run.status == "ok":
        figures.append(MeasuredValue("from the first line", "total", every, run.wall_s, stamp, is_partial=True))
    return figures


def not_judged(run: RunRecord, known: Mapping[str, float], off: Collection[str]) -> Iterator[str]:
    """What of a run no prediction can be held against, in words; ``off``: phases that its flags switch off."""
    if run.hidden:
        yield f"counted from the first line of a log: {', '.join(sorted(run.hidden))} and wall time are known in part only"
    outside = _outside()
    for name, seconds in (run.phases | run.unknown_phases).items():
        if name in outside - run.hidden:
            yield f"{name} is outside the time to ready: not judged"
        elif name not in known and name not in run.hidden and seconds > run.stamp_resolution_s:
            why = "the flags of the run switch it off" if name in off else "the profile has no time for it"
            yield f"{name} took {seconds:.3g} s, but {why}: it counts as time that no stage logs"


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


def _added_s(entry: PhasePrediction, name: str, factor: float) -> float:
    """What an input that is ``factor`` times as large adds to a phase [s]."""
    added = 0.0
    for call in entry.calls:
        if name in call.term.inputs:
            inputs = [*call.inputs]
            inputs[call.term.inputs.index(name)] *= factor
            added += max(0.0, call._replace(inputs=tuple(inputs)).seconds() - call.seconds())
    return added


def _expected(entry: PhasePrediction, low_s: float, high_s: float) -> ExpectedTime:
    """The time of one phase. What is in proportion to an input: what a doubled slowdown, or half the bandwidth, adds to it."""
    processor_s, storage_s = _added_s(entry, "slowdown", 2.0), _added_s(entry, "storage_bandwidth", 0.5)
    copy_s = max(0.0, entry.elapsed_s - storage_s) if entry.phase == LOAD else 0.0
    return ExpectedTime(entry.elapsed_s, low_s, high_s, processor_s, copy_s, storage_s, entry.source)


class Forecast:
    def __init__(self, prediction: StartupPrediction) -> None:
        self.prediction = prediction
        tail = (1.0 - prediction.level) / 2.0
        entries = {str(phase): entry for phase, entry in prediction.phases.items() if entry.elapsed_s > 0}
        self.adds = {name: entry.seconds for name, entry in entries.items()}  # less than it takes beside another phase
        ends = {name: [prediction.phase_quantile(name, p) for p in (tail, 1.0 - tail)] for name in entries}
        self.phases = {name: _expected(entry, *ends[name]) for name, entry in entries.items()}
        self._together = lru_cache(maxsize=256)(self._sum)
        low_s, high_s = prediction.interval
        self.total = self._sum(tuple(entries))._replace(seconds=prediction.total_s, low_s=low_s, high_s=high_s)

    def of(self, figure: MeasuredValue) -> ExpectedTime:
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
        self.forecast = lru_cache(maxsize=None)(self._forecast)  # by the states of the caches
        self.caches = caches()
        self.said: States = tuple(getattr(engine, cache.field) for cache in self.caches)
        found = self.forecast(tuple(cache.fast for cache in self.caches)).prediction
        self.engine_name = found.context.engine_name
        self.off = frozenset(str(phase) for phase, entry in found.phases.items() if not entry.calls)
        selection = judge_profile(profile, hardware)
        self.stands_for_host = selection.same_gpu and (selection.same_cpu or hardware.cpu.model == UNKNOWN_CPU)
        self._host = () if self.stands_for_host else (f"another host than the profile's: {selection.reason}",)

    def notes(self, states: States) -> tuple[str, ...]:
        """What there is to say beside the numbers: another host or version, sizes that the profile's runs did not have, what was assumed; not that they were of this model."""
        warnings = self.forecast(states).prediction.warnings
        return (*self._host, *(text for text in warnings if not text.startswith(MODEL_IS_KNOWN)))

    def with_state(self, cache: Cache, state: str) -> Forecast:
        """With one cache in a state, the others as the run says, else in the fast one."""
        pairs = zip(self.caches, self.said, strict=True)
        return self.forecast(tuple(state if c is cache else said if said == c.slow else c.fast for c, said in pairs))

    def _forecast(self, states: States) -> Forecast:
        model, hardware, engine, profile, level = self._start
        engine = engine.replace(**{cache.field: state for cache, state in zip(self.caches, states, strict=True)})
        return Forecast(predict(model, hardware, engine, profile=profile, level=level))


_MIN_POINTS = 3  # phases from which a common factor is told from a phase that moved alone
MIN_SHIFT = math.log(1.1)  # sessions of one host differ by 1 to 5 % in most phases
_MAX_DEVIATION = 0.3  # of the logarithm of a phase that moved along: two standard deviations of single phases
_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_STEP = 0.005


class Point(NamedTuple):
    name: str
    log_ratio: float  # of measured over expected seconds
    resolution: float  # what the stamps resolve, on the same scale


class Shift(NamedTuple):
    """What several phases have in common."""

    factor: float  # exp(median of the logarithms); 1 when there are none
    scatter: float  # standard deviation of the logarithms, from the median absolute deviation
    points: int
    outliers: tuple[str, ...]  # phases that did not move along
    is_common: bool  # all, or all but one in four, moved by about this factor, and it is a shift

    def words(self, where: str = "") -> str:
        which, outliers = f"all {self.points}", ""
        if self.outliers:
            which, outliers = (
                f"{self.points - len(self.outliers)} of {self.points}",
                f" (not {', '.join(self.outliers)})",
            )
        cause = "the host is faster than the profile's, calibrate it again"
        if self.factor > 1.0:
            cause = "another state of the host (clock, neighbours, power), or another host"
        moved = f"took about {self.factor:.2f} times the predicted seconds (scatter {self.scatter:.0%})"
        return f"{where}{which} processor-bound figures{outliers} {moved}: same software, {cause}"


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
    is_common = len(points) >= _MIN_POINTS and abs(centre) > MIN_SHIFT and len(outliers) <= len(points) // 4
    return Shift(math.exp(centre), scatter, len(points), outliers, is_common=is_common)


def log_ratio(measured_s: float, expected_s: float) -> float:
    """ln(measured / expected), bounded where one of them is nothing."""
    return math.log(max(measured_s, 1e-6) / max(expected_s, 1e-6))


class LogRatios(Counter[int]):
    """Logarithms of many ratios in bounded memory: counts in steps of half a per cent, up to exp(±10)."""

    def add(self, log_ratio: float) -> None:
        self[round(min(10.0, max(-10.0, log_ratio)) / _STEP)] += 1

    def median(self) -> float:
        """The middle one, to a quarter of a per cent; 0 when there are none."""
        return _STEP * median(self.elements()) if self else 0.0

    def scatter(self) -> float:
        """Standard deviation, from the median absolute deviation."""
        centre = round(self.median() / _STEP)
        return _MAD * (_STEP * median(abs(step - centre) for step in self.elements())) if self else 0.0
