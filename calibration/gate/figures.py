"""What a run measured, figure by figure, beside what a profile expects of it in every state of its caches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.hardware import UNKNOWN_CPU, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import AFTER_READY, BEFORE_ENGINE, Phase
from startup_model.prediction import PhasePrediction, StartupPrediction, TermCall
from startup_model.predictor import predict
from startup_model.profile import Profile, judge_profile

__all__ = ["CACHES", "Cache", "Expectation", "Figure", "Forecast", "Piece", "figures_of", "not_judged"]

OUTSIDE = frozenset(phase.value for phase in (*BEFORE_ENGINE, *AFTER_READY))
"""Segments outside the time to ready."""

_MOST_PIECES = 256
"""Different sets of phases that are remembered for one configuration."""


class Cache(NamedTuple):
    """A cache whose state decides how long a phase takes."""

    field: str
    """Of EngineConfig."""
    phase: str
    fast: str
    slow: str
    fast_words: str
    """What a start in the fast state did."""
    slow_words: str
    is_graded: bool
    """Whether it may be in part in one state and in part in the other: the files of a checkpoint may, compiled graphs not."""


CACHES = (
    Cache(
        "page_cache",
        Phase.WEIGHT_LOAD.value,
        "hot",
        "cold",
        "read its files from memory",
        "read files from storage",
        is_graded=True,
    ),
    Cache(
        "compile_cache",
        Phase.GRAPH_COMPILE.value,
        "warm",
        "cold",
        "loaded compiled graphs",
        "compiled its graphs anew",
        is_graded=False,
    ),
)

States = tuple[str, ...]
"""The state of each of ``CACHES``."""


class Figure(NamedTuple):
    """One figure of a run."""

    name: str
    kind: str
    """phase, sum (of several), rest (wall time less all other figures) or total."""
    phases: tuple[str, ...]
    """That it holds, as far as the prediction has time for them."""
    measured_s: float
    resolution_s: float
    is_apart: bool = True
    """Whether no other figure holds any of its time (``total`` aside)."""
    is_partial: bool = False
    """Whether it holds only a part of these phases: it can be too long, never too short."""


class Piece(NamedTuple):
    """What is expected of some phases together."""

    seconds: float
    low_s: float
    high_s: float
    """With the profile's own errors, at the level that was asked for."""
    processor_s: float
    """Of ``seconds``, in proportion to the single-thread time of the host."""
    copy_s: float
    """Of ``seconds``, what is left of a load: copies within the host, which its processor makes."""
    storage_s: float
    """Of ``seconds``, in proportion to the time that storage needs for the bytes."""
    source: str = ""
    """Where the coefficients come from, of a single phase."""

    def shifted(self, processor_factor: float, storage_factor: float = 1.0) -> Piece:
        """On a host whose processor and storage take so many times longer."""
        more = (self.processor_s + self.copy_s) * (processor_factor - 1.0) + self.storage_s * (storage_factor - 1.0)
        ratio = 1.0 + more / self.seconds if self.seconds > 0 else 1.0
        return self._replace(seconds=self.seconds + more, low_s=self.low_s * ratio, high_s=self.high_s * ratio)


class Forecast:
    """One prediction, taken to pieces."""

    def __init__(self, prediction: StartupPrediction) -> None:
        self.prediction = prediction
        tail = (1.0 - prediction.level) / 2.0
        self.phases: dict[str, Piece] = {}
        self.adds: dict[str, float] = {}
        """Phase -> what it adds to the total; less than its time where it runs beside another."""
        for phase, entry in prediction.phases.items():
            if entry.elapsed_s > 0:
                low, high = (prediction.phase_quantile(phase.value, p) for p in (tail, 1.0 - tail))
                self.phases[phase.value] = _piece(entry, low, high)
                self.adds[phase.value] = entry.seconds
        whole = self._sum(tuple(self.phases))
        low, high = prediction.interval
        self.total = whole._replace(seconds=prediction.total_s, low_s=low, high_s=high)
        self._pieces: dict[tuple[str, ...], Piece] = {}

    def of(self, figure: Figure) -> Piece:
        """What is expected of a figure."""
        if figure.name == "total" or (figure.is_partial and figure.kind == "total"):
            return self.total
        if figure.kind == "phase":
            return self.phases.get(figure.name, _NOTHING)
        piece = self._pieces.get(figure.phases)
        if piece is None:
            if len(self._pieces) >= _MOST_PIECES:
                self._pieces.clear()
            piece = self._pieces[figure.phases] = self._sum(figure.phases)
        return piece

    def _sum(self, phases: tuple[str, ...]) -> Piece:
        """Phases one after the other, each by what it adds to the total; if all run beside another, by their own time."""
        known = [name for name in phases if name in self.phases]
        shares = [self.adds[name] / self.phases[name].seconds for name in known]
        if not any(shares):
            shares = [1.0] * len(known)
        columns = [
            [share * value for value in self.phases[name][:6]] for name, share in zip(known, shares, strict=True)
        ]
        if not columns:
            return _NOTHING
        seconds, low, high, processor, copy, storage = (sum(column) for column in zip(*columns, strict=True))
        return Piece(seconds, low, high, processor, copy, storage)


_NOTHING = Piece(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _piece(entry: PhasePrediction, low_s: float, high_s: float) -> Piece:
    processor = sum(_more(call, "slowdown", 2.0) for call in entry.calls)
    storage = sum(_more(call, "storage_bandwidth", 0.5) for call in entry.calls)
    copy = entry.elapsed_s - storage if entry.phase == Phase.WEIGHT_LOAD else 0.0
    return Piece(entry.elapsed_s, low_s, high_s, processor, max(0.0, copy), storage, entry.source)


def _more(call: TermCall, name: str, factor: float) -> float:
    """Seconds that a step takes longer when one of its inputs is multiplied: with a doubled slowdown, or half the bandwidth, the part that is in proportion to it."""
    if name not in call.term.inputs:
        return 0.0
    place = call.term.inputs.index(name)
    inputs = (*call.inputs[:place], call.inputs[place] * factor, *call.inputs[place + 1 :])
    return max(0.0, call._replace(inputs=inputs).seconds() - call.seconds())


class Expectation:
    """What a profile expects of one configuration. Built once for equal configurations; forecasts are made when they are first asked for. Raises ConfigError."""

    def __init__(
        self, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, profile: Profile, level: float
    ) -> None:
        self._start = (model, hardware, engine, profile, level)
        self._forecasts: dict[States, Forecast] = {}
        self.said: States = tuple(getattr(engine, cache.field) for cache in CACHES)
        found = self.forecast(tuple(cache.fast for cache in CACHES)).prediction
        self.engine_name = found.context.engine_name
        self.off = frozenset(phase.value for phase, entry in found.phases.items() if not entry.calls)
        """Phases that the flags switch off."""
        selection = judge_profile(profile, hardware)
        self.stands_for_host = selection.same_gpu and (selection.same_cpu or hardware.cpu.model == UNKNOWN_CPU)
        self._host = () if self.stands_for_host else (f"another host than the profile's: {selection.reason}",)

    def notes(self, states: States) -> tuple[str, ...]:
        """What there is to say beside the numbers: another host or version, sizes that the profile's runs did not have, what was assumed."""
        return (*self._host, *self.forecast(states).prediction.warnings)

    def forecast(self, states: States) -> Forecast:
        """With every cache in a known state."""
        found = self._forecasts.get(states)
        if found is None:
            model, hardware, engine, profile, level = self._start
            fields = {cache.field: state for cache, state in zip(CACHES, states, strict=True)}
            found = Forecast(predict(model, hardware, engine.replace(**fields), profile=profile, level=level))
            self._forecasts[states] = found
        return found


# --- figures of a run ---------------------------------------------------------------------------------------------------


def figures_of(run: RunRecord, known: Mapping[str, float]) -> list[Figure]:
    """The figures of a run that a prediction can be held against; ``known``: phase -> what it adds to the predicted total [s].

    Of a log alone, whose first line comes some seconds after its process, the bootstrap is left out, and the time from its first line to ready counts as a part of the
    total. With a wall time, what no other figure holds is the rest; without one, the phases that were measured are added up instead.
    """
    stamp = run.stamp_resolution_s
    figures = [
        Figure(name, "phase", (name,), seconds, stamp)
        for name, seconds in run.phases.items()
        if name in known and name not in run.hidden
    ]
    held = {figure.name for figure in figures}
    for measured in run.sums:
        inside = tuple(name for name in measured.phases if name in known)
        if not inside or {*run.hidden, *OUTSIDE} & set(measured.phases):
            continue
        is_apart = held.isdisjoint(inside)
        figures.append(Figure(" + ".join(measured.phases), "sum", inside, measured.seconds, stamp, is_apart=is_apart))
        held.update(inside if is_apart else ())
    apart = [figure for figure in figures if figure.is_apart]
    # Each figure may be rounded by half of what its stamps resolve.
    together = stamp * max(1.0, 0.5 * (len(apart) + 1))
    left = tuple(name for name in known if name not in held)
    if run.ready_s is not None and run.status == "ok":
        taken = sum(f.measured_s for f in apart if any(known[name] > 0 for name in f.phases))
        if apart and left:
            figures.append(Figure("rest", "rest", left, max(0.0, run.ready_s - taken), together))
        figures.append(Figure("total", "total", tuple(known), run.ready_s, stamp))
        return figures
    figures += _unplanned(run, known, held)
    if len(apart) > 1:
        phases = tuple(name for figure in apart for name in figure.phases)
        seconds = sum(figure.measured_s for figure in apart)
        figures.append(Figure("measured phases", "total", phases, seconds, together))
    if run.wall_s is not None and run.status == "ok":
        figures.append(Figure("from the first line", "total", tuple(known), run.wall_s, stamp, is_partial=True))
    return figures


def _unplanned(run: RunRecord, known: Mapping[str, float], held: set[str]) -> Iterator[Figure]:
    """Phases for which the prediction has no time, where no rest holds them: a part of what it has for time that no stage logs."""
    others = known.keys() | OUTSIDE | run.hidden
    names = [name for name, seconds in run.phases.items() if name not in others and seconds > 0]
    rest = Phase.UNATTRIBUTED.value
    if names and rest in known and rest not in held:
        seconds = sum(run.phases[name] for name in names)
        resolution = run.stamp_resolution_s * max(1.0, 0.5 * len(names))
        yield Figure(" + ".join([*names, rest]), "sum", (rest,), seconds, resolution, is_apart=False, is_partial=True)


def not_judged(run: RunRecord, known: Mapping[str, float], off: Collection[str]) -> Iterator[str]:
    """What of a run no prediction can be held against, in words."""
    if run.hidden:
        yield f"counted from the first line of a log: {', '.join(sorted(run.hidden))} and wall time are known in part only"
    for name, seconds in run.phases.items():
        if name in run.hidden:
            continue
        if name in OUTSIDE:
            yield f"{name} is outside the time to ready: not judged"
        elif name not in known and seconds > run.stamp_resolution_s:
            why = "the flags of the run switch it off" if name in off else "the profile has no time for it"
            yield f"{name} took {seconds:.3g} s, but {why}: it counts as time that no stage logs"


def log_ratio(measured_s: float, expected_s: float) -> float:
    """ln(measured / expected), bounded where one of them is nothing."""
    return math.log(max(measured_s, 1e-6) / max(expected_s, 1e-6))
