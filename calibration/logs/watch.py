"""How much longer a start will take: a prediction, corrected by every phase that ends.

    residual = pace × (expected seconds of the phases that are left) + what is left of the phase under way
    pace     = (seconds so far + k) / (expected seconds of what is done + k),  k = 2 % of the expected total

so a start that has been 20 % slow is expected to go on so. What is left of the phase under way, after e seconds of an expected m, is the mean of
X - e over X > e for a lognormal X with median m: near m - e at first, and never negative; a phase that overruns is expected to go on in proportion to
what it has lasted. A progress bar in the log overrides it:
e × (total - done) / done. The interval is that of the prediction, as a factor, widened by 1 / sqrt(share that is left): fewer phases are left to make up
for each other's errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple

from calibration.logs.configuration import logged_engine, logged_model
from calibration.logs.parsed import LoggedStart
from calibration.logs.parser import Event, StartupLogParser
from startup_model.engines.config import EngineConfig
from startup_model.engines.logtable import common_table
from startup_model.errors import StartupModelError
from startup_model.evaluate import check_level
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, PHASES
from startup_model.prediction import StartupPrediction
from startup_model.predictor import HardwareLike, ModelLike, ProfileLike, as_model, as_profile, predict

_STEADY = 0.02  # k of the pace, as a share of the expected total: a first phase of a blink says little
_MIN_PACE, _MAX_PACE = 0.02, 50.0
_OVERRUN = 0.99  # quantile of a phase from which it is said to overrun
_MIN_BAR = 0.1  # share of a progress bar from which it is believed
_AFTER_BAR = 0.03  # what a phase still has to do when its bar is full, as a share of what it has lasted
_BAR_FACTOR = 1.5  # by which the rest of a progress bar may be wrong: shards and graphs are not all of one size
_MIN_SURVIVAL = 1e-6  # probability of lasting so long that is reckoned with
_PARETO = 1.5  # exponent of the tail of a phase that overruns: half of them end within another 0.6 of what they have lasted, 19 of 20 within 6.4
_MAX_POWER = 3.0  # a factor of an interval is raised to this power at most
_MIN_OTHERS = 0.05  # share of the expected total from which the phases other than the load set the pace
_STAMP_S = 1.0  # that stamps of whole seconds may be off
_MIN_OVERRUN_S = 2.0  # by which a phase has to exceed its expectation at least, to overrun
_UNATTRIBUTED = "unattributed"
_NOT_PLANNED = frozenset({*BEFORE_ENGINE, *AFTER_READY, _UNATTRIBUTED})
_REFINING = frozenset(
    {"arguments", "server_begun", "engine_started", "load_begun", "graphs_from_cache", "graph_to_cache", "resolved"}
)


class Expectation(NamedTuple):
    """One phase that is to come."""

    phase: str
    seconds: float
    overrun_s: float  # seconds that it stays below with 99 %


class _Bar(NamedTuple):
    phase: str
    fraction: float
    at: float


class Outlook(NamedTuple):
    """Where a start is, and how long it will go on."""

    status: str
    """starting, ready, up (the engine is, but the log ended before it said ready), or why the start failed."""
    phase: str | None
    """The phase under way; None before the first line, without a prediction, and at the end."""
    elapsed_s: float
    phase_elapsed_s: float
    phase_expected_s: float | None
    """With the pace so far."""
    residual_delay_s: float | None
    """Seconds until ready; None without a prediction, 0 when ready."""
    interval: tuple[float, float] | None
    """Around ``residual_delay_s``, at the prediction's level."""
    fraction: float
    """Of the expected total, done."""
    pace: float
    """Seconds so far over those expected for what is done."""
    overrun: bool
    """The phase under way takes longer than 99 in 100 would."""
    finished: tuple[tuple[str, float], ...]
    """Phases that ended, with their seconds; several that ended together are joined by +."""
    start: int
    """Which start of the log, from 0."""


class StartupWatch:
    """Follows a log as it grows and says how much longer it will take.

    ``hardware`` and ``profile`` as in ``predict``; ``model`` and ``engine`` where they are known beforehand, else they are
    read off the log: a model that only the log names is looked up in the catalogue, never opened as a file or asked for at a hub. Raises ConfigError for a bad
    level or state of a cache. ``began``: the
    moment (on the caller's clock) at which the process was started; None: elapsed time counts from the first stamp of the log.
    """

    def __init__(
        self,
        *,
        hardware: HardwareLike | None = None,
        model: ModelLike | None = None,
        engine: EngineConfig | None = None,
        profile: ProfileLike | None = None,
        page_cache: str = "unknown",
        compile_cache: str | None = None,
        level: float = 0.9,
        began: float | None = None,
    ) -> None:
        self.problem: str | None = None
        """Why there is no prediction, in one line; None when there is one."""
        self.prediction: StartupPrediction | None = None
        self.first_line_s: float | None = None
        """Seconds from the start of the process to the first stamped line, where the process was watched from its start."""
        self._hardware, self._engine = hardware, engine
        self._profile = profile if profile is None else as_profile(profile)
        self._model = None if model is None else as_model(model)
        self._page_cache, self._compile_cache, self._level = page_cache, compile_cache, level
        self._began = began
        self._parser = StartupLogParser(progress=True)
        self._start = 0
        check_level(level)
        EngineConfig(page_cache=page_cache, compile_cache=compile_cache or "unknown")  # type: ignore[arg-type]
        self._reset()

    def _reset(self) -> None:
        self._order = {str(name): index for index, name in enumerate(PHASES)}
        self._known: object = None
        self._plan: tuple[Expectation, ...] = ()
        self._reached = -1  # place of the last phase that ended
        self._done_at = 0.0
        self._groups: list[tuple[tuple[str, ...], float]] = []
        self._bar: _Bar | None = None
        self._latest: tuple[float, float] | None = None
        self._status = "starting"
        self._ready_at: float | None = None
        self._predict(None)

    def feed(self, data: str | bytes, now: float) -> list[Event]:
        """Take what the server printed up to ``now`` (seconds on a clock that only runs forward); the events in it."""
        events = self._parser.feed(data)
        for event in events:
            self._take(event, now)
        return events

    def finish(self, now: float) -> LoggedStart | None:
        """The log has ended: the last start, or None when no line was known."""
        starts = self._parser.finish()
        for event in self._parser.feed(b""):
            self._take(event, now)
        if starts and self._status == "starting" and starts[-1].status != "incomplete":
            self._status = "up" if starts[-1].is_ok else starts[-1].status
        return starts[-1] if starts else None

    def _take(self, event: Event, now: float) -> None:
        if event.start != self._start:
            self._start = event.start
            self._began = None  # the process that was started is not this one any more
            self._reset()
        if event.mark == "progress":
            done, total = event.facts.get("done", 0.0), event.facts.get("total", 0.0)
            if event.phase is not None and total > 0:
                self._bar = _Bar(event.phase, min(1.0, done / total), self._at(event, now))
            return
        if event.elapsed_s is not None:
            self._latest = (event.elapsed_s, now)
            if self.first_line_s is None and self._began is not None:
                self.first_line_s = max(0.0, now - self._began - event.elapsed_s)
        if event.name == "failed":
            current = self._parser.current()
            self._status = current.status if current is not None and not current.is_ok else "crashed"
            return
        if event.name in _REFINING and self._status == "starting":
            self._predict(self._parser.current())
        self._end_by(event, self._at(event, now))

    def _end_by(self, event: Event, at: float) -> None:
        if event.mark == "ready":
            if self._pending():
                self._end(len(self._order), at)
            elif self._plan and at > self._done_at:
                self._groups.append(((self._last_phase,), at - self._done_at))
            self._status, self._ready_at = "ready", at
        elif event.name == "downloaded":
            self._done_at = max(self._done_at, min(at, self._done_at + event.facts.get("download_s", 0.0)))
        elif event.phase is not None and any(entry.phase == event.phase for entry in self._plan):
            self._end(self._order[event.phase], at)
        elif event.phase is not None and not self._plan and at > self._done_at:
            # As far as a log without a prediction shows; a phase may have several lines.
            is_same = bool(self._groups) and self._groups[-1][0] == (event.phase,)
            before = self._groups.pop()[1] if is_same else 0.0
            self._groups.append(((event.phase,), at - self._done_at + before))
            self._done_at = at

    def _at(self, event: Event, now: float) -> float:
        if self._began is not None:
            return max(0.0, now - self._began)
        return event.elapsed_s if event.elapsed_s is not None else self.elapsed(now)

    def _end(self, place: int, at: float) -> None:
        """The phase at ``place`` of the order ended, and with it all before it."""
        ended = tuple(entry.phase for entry in self._pending() if self._order[entry.phase] <= place)
        if not ended:
            return
        self._groups.append((ended, max(0.0, at - self._done_at)))
        self._reached, self._done_at = self._order[ended[-1]], max(at, self._done_at)
        if self._page_cache == "unknown" and not _from_page_cache().isdisjoint(ended):
            self._infer_page_cache()

    def _pending(self) -> tuple[Expectation, ...]:
        """Phases that have not ended, the one under way first."""
        return tuple(entry for entry in self._plan if self._order[entry.phase] > self._reached)

    @property
    def _last_phase(self) -> str:
        return next(name for name in reversed(self._order) if name not in _NOT_PLANNED)

    def _infer_page_cache(self) -> None:
        """Whether the weights came from memory or from storage, by which of the two the time of the load is nearer to."""
        phases, seconds = self._groups[-1]
        expected = {}
        for state in ("cold", "hot"):
            self._page_cache = state
            self._predict(self._parser.current())
            expected[state] = sum(entry.seconds for entry in self._plan if entry.phase in phases)
        if expected["cold"] > 0 and expected["hot"] > 0 and seconds > math.sqrt(expected["cold"] * expected["hot"]):
            self._page_cache = "cold"
            self._predict(self._parser.current())

    def _predict(self, start: LoggedStart | None) -> None:
        """Predict from what is known by now; phases that have ended stay so."""
        logged = (
            None
            if start is None
            else (start.engine, start.engine_version, start.engine_generation, start.flags, start.settings)
        )
        if self._hardware is None:
            self.problem = "no remaining time: the node is not known; give the hardware (a preset, say)"
            return
        if self._model is None and (start is None or start.model is None):
            self.problem = "no model was named yet"
            return
        known = (self._page_cache, repr((logged, start and start.compile_cache)))
        if known == self._known:
            return
        self._known = known
        try:
            served = self._model or logged_model(start.model if start else None, "give the model")
            engine = self._engine or EngineConfig()
            if self._engine is None and logged is not None:
                engine = logged_engine(*logged).config
            elif start is not None and engine.version is None and start.engine_version:
                engine = engine.replace(version=start.engine_version)
            state = self._compile_cache or ("unknown" if start is None else start.compile_cache)
            engine = engine.replace(page_cache=self._page_cache, compile_cache=state)
            found = predict(served, self._hardware, engine, profile=self._profile, level=self._level)
        except StartupModelError as error:
            if self.prediction is None:
                self.problem = str(error)
            return
        self.prediction, self.problem = found, None
        self._plan = tuple(_expectations(found))

    @property
    def knows_process_start(self) -> bool:
        """Whether times count from the start of the process; else from the first stamp of the log."""
        return self._began is not None

    def elapsed(self, now: float) -> float:
        """Seconds since the process was started, or since the first stamp of the log."""
        if self._ready_at is not None:
            return self._ready_at
        if self._began is not None:
            return max(0.0, now - self._began)
        return 0.0 if self._latest is None else self._latest[0] + max(0.0, now - self._latest[1])

    def outlook(self, now: float) -> Outlook:
        """Where the start is at ``now``."""
        elapsed = self.elapsed(now)
        finished = tuple(("+".join(phases), seconds) for phases, seconds in self._groups)
        total = sum(entry.seconds for entry in self._plan)
        if self._status != "starting" or total <= 0:
            left, interval, fraction = (0.0, (0.0, 0.0), 1.0) if self._status == "ready" else (None, None, 0.0)
            rest = (elapsed, 0.0, None, left, interval, fraction, 1.0, False, finished, self._start)
            return Outlook(self._status, None, *rest)
        pending, pace = self._pending(), self._pace(total)
        # What is left when every phase of the prediction is over, and the server has not said ready.
        current = pending[0] if pending else Expectation(self._last_phase, 1.0, 1.0 + _MIN_OVERRUN_S)
        since = max(0.0, elapsed - self._done_at)
        widest = math.log(max(current.overrun_s / current.seconds, 1.0)) / NormalDist().inv_cdf(_OVERRUN)
        latest = max(1.0, pace) * current.overrun_s
        remainder = _Remainder(pace * current.seconds, min(1.0, max(0.05, widest)), latest, since)
        tail = (1.0 - self._level) / 2.0
        left, shares = remainder.mean(), (remainder.quantile(tail), remainder.quantile(1.0 - tail))
        if self._bar is not None and self._bar.phase == current.phase and self._bar.fraction >= _MIN_BAR:
            at_bar = max(0.0, self._bar.at - self._done_at) * (1.0 - self._bar.fraction) / self._bar.fraction
            left = max(at_bar - max(0.0, elapsed - self._bar.at), _AFTER_BAR * since)
            shares = (left / _BAR_FACTOR, left * _BAR_FACTOR)
        following = pace * sum(entry.seconds for entry in pending[1:])
        ended = total - sum(entry.seconds for entry in pending)
        return Outlook(
            status="starting",
            phase=current.phase,
            elapsed_s=elapsed,
            phase_elapsed_s=since,
            phase_expected_s=pace * current.seconds,
            residual_delay_s=left + following,
            interval=self._interval(shares, following, ended / total, pending),
            fraction=min(0.999, (ended + min(since / pace, current.seconds)) / total),
            pace=pace,
            overrun=since > latest,
            finished=finished,
            start=self._start,
        )

    def _pace(self, total: float) -> float:
        """Seconds so far over those expected for them. The load counts only where little else has ended: how fast storage is says nothing of the rest."""
        expected = {entry.phase: entry.seconds for entry in self._plan}
        # A log begins some seconds after its process: what its first part took says nothing about the pace.
        groups = self._groups if self._began is not None else self._groups[1:]
        pairs = [(phases, seconds, sum(expected.get(phase, 0.0) for phase in phases)) for phases, seconds in groups]
        others = [pair for pair in pairs if not _from_page_cache() >= set(pair[0])]
        if sum(pair[2] for pair in others) >= _MIN_OTHERS * total:
            pairs = others
        steady = _STEADY * total
        spent, planned = sum(pair[1] for pair in pairs), sum(pair[2] for pair in pairs)
        return min(_MAX_PACE, max(_MIN_PACE, (spent + steady) / (planned + steady))) if planned > 0 else 1.0

    def _interval(
        self, shares: tuple[float, float], following: float, ended: float, pending: tuple[Expectation, ...]
    ) -> tuple[float, float]:
        prediction = self.prediction
        if prediction is None or prediction.total_s <= 0:
            return (0.0, math.inf)
        power = min(_MAX_POWER, 1.0 / math.sqrt(max(1.0 - ended, 1e-3)))
        factor = (prediction.total_s / max(prediction.interval[0], 1e-9)) ** power
        may_be_cold = any(PHASES[entry.phase].cache is not None for entry in pending)
        cold = prediction.slowest_s - prediction.total_s if may_be_cold else 0.0
        low, high = shares
        widest = max(high, pending[0].seconds * factor if pending else 0.0)
        return (max(0.0, low / factor + following / factor - _STAMP_S), widest + (following + cold) * factor + _STAMP_S)


def _from_page_cache() -> frozenset[str]:
    return frozenset(name for name, row in PHASES.items() if row.cache is not None and row.cache.name == "page_cache")


def _expectations(prediction: StartupPrediction) -> Iterator[Expectation]:
    """The phases that a log shows the end of. What no stage logs is spread over them; what ends with another phase is part of it."""
    entries = prediction.phases.items()
    planned = {str(phase): entry for phase, entry in entries if phase not in _NOT_PLANNED and entry.seconds > 0}
    inner = sum(entry.seconds for entry in planned.values())
    stretch = sum(entry.seconds for entry in prediction.phases.values()) / inner if inner > 0 else 1.0
    hidden = {phase: last for phase, last in common_table().ends_with.items() if {phase, last} <= planned.keys()}
    for phase, entry in planned.items():
        if phase not in hidden:
            more = sum(planned[other].seconds for other, last in hidden.items() if last == phase)
            seconds = (entry.seconds + more) * stretch
            overrun = (prediction.phase_quantile(phase, _OVERRUN) + more) * stretch
            yield Expectation(phase, seconds, max(overrun, seconds + _MIN_OVERRUN_S))


class _Remainder(NamedTuple):
    """What is left of a phase after ``since`` seconds: X - since over X > since.

    X is lognormal up to ``latest``. A phase that lasts longer does something that the formula does not know (kernels are built, a disk is slow);
    then the only guide is how long it has lasted: the tail is Pareto's, P(X > x) = (since / x) ** 1.5.
    """

    median: float
    sigma: float  # standard deviation of the logarithm of X
    latest: float
    since: float

    def mean(self) -> float:
        """The expectation, on the scale of the median (the expected seconds of X itself are taken as its median); of an overrun, the median."""
        if self.since <= 0 or self.median <= 0:
            return max(self.median, 0.0)
        if self.since > self.latest:
            return self.quantile(0.5)
        z = self._position()
        survival = max(1.0 - NormalDist().cdf(z), _MIN_SURVIVAL)
        return max(0.0, self.median * (1.0 - NormalDist().cdf(z - self.sigma)) / survival - self.since)

    def quantile(self, probability: float) -> float:
        """Seconds that are left at most, with this probability."""
        if self.median <= 0:
            return 0.0
        if self.since > self.latest:
            return float(self.since * ((1.0 - probability) ** (-1.0 / _PARETO) - 1.0))
        if self.since <= 0:
            return self.median * math.exp(self.sigma * NormalDist().inv_cdf(probability))
        survival = max(1.0 - NormalDist().cdf(self._position()), _MIN_SURVIVAL)
        beyond = 1.0 - survival * (1.0 - probability)
        return max(0.0, self.median * math.exp(self.sigma * NormalDist().inv_cdf(beyond)) - self.since)

    def _position(self) -> float:
        """Standard deviations above the median."""
        return (math.log(self.since) - math.log(self.median)) / self.sigma
