"""From the figures of runs to the rows of a fit: seconds = Σ factor × coefficient, and how far each row may lie from its line.

Terms are linear in their coefficients, so a row is the term itself, called with unit vectors: there is no second copy of a formula here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.runs.record import RunRecord, is_phase
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, ProfileError
from startup_model.evaluate import design
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import PHASES, SEGMENTS, TERMS
from startup_model.profile import Host, Profile
from startup_model.recipe import Call, Recipe, bind, recipe, version_of

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]
Key = tuple[str, str, str]  # term, variant, coefficient
Part = tuple[str, str, tuple[tuple[str, float], ...]]  # term, variant, and the factor of each coefficient

RELATIVE_SCATTER = 0.02
"""Scatter of one phase between repeated starts, relative to its duration."""
ABSOLUTE_SCATTER = 0.02
"""The same in seconds, for short phases."""
DISK_DEVIATIONS = 1.645
"""A load of unknown state counts as read from storage when it is longer than from the page cache by more than so many standard deviations
of loads (one in twenty loads from the page cache is)."""
MILLISECONDS = 300.0
"""Runs that take so many times what the prior has, phase by phase, were given in milliseconds."""


class RunNote(NamedTuple):
    """What was made of one run."""

    run: int
    """Index in the runs that were given."""
    label: str
    note: str


class Shape(NamedTuple):
    """What some rows have in common: seconds = sum over parts of factor × term(inputs; coefficients)."""

    label: str
    parts: tuple[Part, ...]
    expected: float
    """Seconds as the prior has it."""
    misfit: float
    """Relative deviation that formulas leave: those of the parts, independent of each other."""


class Rows(NamedTuple):
    """The figures of all runs, one a row."""

    shapes: tuple[Shape, ...]
    run: Indices
    shape: Indices
    """Index in ``shapes``."""
    seconds: Vector
    sigma: Vector

    def only(self, kept: NDArray[np.bool_]) -> Rows:
        """The rows that are marked."""
        return Rows(self.shapes, self.run[kept], self.shape[kept], self.seconds[kept], self.sigma[kept])

    def expected(self) -> Vector:
        """Seconds of each row as the prior has it."""
        return np.array([shape.expected for shape in self.shapes])[self.shape]

    def keys(self) -> list[Key]:
        """The coefficients behind the rows."""
        return list(dict.fromkeys(key for i in np.unique(self.shape) for key in keys_of(self.shapes[i].parts)))


# --- a start as parts ---------------------------------------------------------------------------------------------------


def recipe_of(run: RunRecord, host: Host, prior: Profile | None = None) -> Recipe:
    """The start of a run, on a host of these numbers."""
    return recipe(run.model, run.hardware, run.engine, host, version_of(run.engine, prior))


def part_of(call: Call) -> Part:
    """A call as a linear form in its coefficients."""
    return call.term.set_name, call.variant, tuple((name, factor) for name, factor in design(call).items() if factor)


def parts_of(
    model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig, prior: Profile, host: Host
) -> dict[str, tuple[Part, ...]]:
    """Phase -> the terms behind it, for a start with this configuration on a host of these numbers."""
    calls = bind(recipe(model, hardware, engine, host, version_of(engine, prior)), prior).phases
    return {str(phase): tuple(map(part_of, found)) for phase, found in calls.items() if found}


def value_of(prior: Profile, key: Key) -> float:
    """A coefficient of a profile; where the profile is older than it, the value that changes nothing."""
    term, variant, name = key
    entries = prior.values.get(term, {}).get(variant, {})
    return entries[name] if name in entries else TERMS[term].coefficients[name].absent


def expected_seconds(parts: Iterable[Part], prior: Profile) -> float:
    """Seconds of some parts as a profile has them."""
    return sum(
        factor * value_of(prior, (term, variant, name)) for term, variant, factors in parts for name, factor in factors
    )


def keys_of(parts: Iterable[Part]) -> Iterator[Key]:
    """The coefficients of some parts."""
    return ((term, variant, name) for term, variant, factors in parts for name, _ in factors)


# --- runs as rows -------------------------------------------------------------------------------------------------------


class _Start(NamedTuple):
    """A configuration: the terms behind each phase, and the shapes that rows of it were given so far."""

    parts: Mapping[str, tuple[Part, ...]]
    off: frozenset[str]
    """Phases that the flags switch off."""
    shapes: dict[frozenset[str] | str, int]
    """Phases that a figure holds, or the one that it holds -> index of the shape."""
    measured: dict[tuple[object, ...], int]
    """Figures of a run -> the first run that had them."""


_PartsByStart = dict[tuple[ModelConfig, HardwareConfig, EngineConfig, bool], dict[str, tuple[Part, ...]]]


class Figures:
    """The rows of some runs, and what was made of each run on the way. Raises ProfileError where no figure can be fitted, ConfigError for milliseconds.

    parts: those of figures with the same host and prior, but for what the prior remembers of models; they need not be worked out again.
    """

    def __init__(
        self, runs: Sequence[RunRecord], prior: Profile, host: Host, parts: _PartsByStart | None = None
    ) -> None:
        self.runs = runs
        self.prior = prior
        self.host = host
        self.notes: list[RunNote] = []
        self.load_states: list[RunNote] = []
        self.compile_states: list[RunNote] = []
        self.duplicates: set[int] = set()
        self.parts: _PartsByStart = {} if parts is None else parts
        self._starts: dict[tuple[ModelConfig, HardwareConfig, EngineConfig], _Start] = {}
        self.rows = self._of_known_load(self._all_rows())
        if not any(shape.expected > 0 for shape in self.rows.shapes) or not len(self.rows.run):
            raise ProfileError("no run has a figure that can be fitted: give runs with phases or wall_s and status ok")
        self._check_units()

    def note(self, index: int, text: str) -> None:
        """Say what was made of a run."""
        self.notes.append(RunNote(index, self.runs[index].model.name, text))

    def _all_rows(self) -> Rows:
        shapes: list[Shape] = []
        found: list[tuple[int, int, float]] = []
        for index, run in enumerate(self.runs):
            start = self._start_of_run(index, run)
            first = start.measured.setdefault((run.status, run.wall_s, run.sums, *run.phases.items()), index)
            if first != index:
                self.duplicates.add(index)
                self.note(index, f"every figure is that of run {first}: it counts once")
                continue
            for phases, seconds in self._figures_of(index, run, start):
                shape = start.shapes.get(phases)
                if shape is None:
                    shape = start.shapes[phases] = len(shapes)
                    shapes.append(self._shape(start, phases))
                found.append((index, shape, seconds))
        of_run, of_shape = (np.array([row[i] for row in found], dtype=np.intp) for i in (0, 1))
        seconds_of = np.array([row[2] for row in found], dtype=float)
        repetitions = np.sqrt([run.repetitions for run in self.runs])[of_run]
        resolution = np.array([run.stamp_resolution_s for run in self.runs])[of_run]
        misfit = np.array([shape.misfit for shape in shapes])[of_shape] if shapes else seconds_of
        scatter = np.hypot(RELATIVE_SCATTER / repetitions, misfit) * seconds_of
        sigma = np.hypot(np.hypot(scatter, ABSOLUTE_SCATTER), resolution / (math.sqrt(12.0) * repetitions))
        return Rows(tuple(shapes), of_run, of_shape, seconds_of, sigma)

    def _start_of(self, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig) -> _Start:
        """A scale cannot move what the prior has at nothing: such phases are part of the unattributed time."""
        key = (model, hardware, engine)
        if key not in self._starts:
            own = (*key, model.structure in self.prior.model_effects)
            parts = self.parts.get(own)
            if parts is None:
                parts = self.parts[own] = parts_of(*key, self.prior, self.host)
            kept = {phase: found for phase, found in parts.items() if expected_seconds(found, self.prior) > 0}
            self._starts[key] = _Start(kept, frozenset(map(str, PHASES)) - parts.keys(), {}, {})
        return self._starts[key]

    def _start_of_run(self, index: int, run: RunRecord) -> _Start:
        """The start of a run; where nobody knows whether it compiled, its compile says so."""
        warm = self._start_of(run.model, run.hardware, run.engine)
        compiling = run.phases.get("graph_compile")
        if run.engine.compile_cache != "unknown" or not compiling or "graph_compile" not in warm.parts:
            return warm
        cold = self._start_of(run.model, run.hardware, run.engine.replace(compile_cache="cold"))
        lines = [expected_seconds(start.parts["graph_compile"], self.prior) for start in (warm, cold)]
        is_cold = compiling > math.sqrt(lines[0] * lines[1]) and lines[1] > lines[0]
        note = f"{'cold' if is_cold else 'warm'} ({compiling / lines[0]:.2f} of the warm line)"
        self.compile_states.append(RunNote(index, run.model.name, note))
        return cold if is_cold else warm

    def _figures_of(self, index: int, run: RunRecord, start: _Start) -> Iterator[tuple[frozenset[str] | str, float]]:
        """The figures of a run: the phase or phases that each holds, and seconds."""
        fitted = {name: s for name, s in run.phases.items() if name in start.parts and name not in run.hidden}
        yield from fitted.items()
        if run.measured_from == "first_line":
            self.note(index, "counted from the first line of a log: its bootstrap and wall time are not used")
        for name, seconds in (run.phases | run.unknown_phases).items():
            if name not in start.parts and seconds > run.stamp_resolution_s and name not in SEGMENTS:
                known = "switched off by the flags" if name in start.off else "without a time in the prior"
                why = "unknown to this release" if name in run.unknown_phases else known
                self.note(index, f"{name} is {why}: its time counts as unattributed")
        for figure in run.sums:
            if run.hidden & set(figure.phases):
                continue
            if not all(map(is_phase, figure.phases)) or not start.parts.keys() & set(figure.phases):
                self.note(index, f"no part of {'+'.join(figure.phases)} can be fitted")
            else:
                yield frozenset(figure.phases), figure.seconds
        if run.status != "ok":
            self.note(index, f"status {run.status}: only the phases that it measured are used")
        elif run.ready_s is not None:
            left = max(run.ready_s - sum(fitted.values()), 0.0)
            if run.engine.page_cache == "unknown" and "weight_load" in start.parts.keys() - run.phases.keys():
                words = "hot, as its load was not measured by itself"
                self.load_states.append(RunNote(index, run.model.name, words))
            yield frozenset(start.parts.keys() - fitted.keys()), left

    def _shape(self, start: _Start, phases: frozenset[str] | str) -> Shape:
        held = {phases} if isinstance(phases, str) else phases
        parts = [part for phase, found in start.parts.items() if phase in held for part in found]
        seconds = [expected_seconds([part], self.prior) for part in parts]
        misfits = [self.prior.misfit.get(part[0], RELATIVE_SCATTER) * s for part, s in zip(parts, seconds, strict=True)]
        expected = sum(seconds)
        misfit = math.hypot(*misfits) / expected if expected > 0 else RELATIVE_SCATTER
        label = phases if isinstance(phases, str) else "+".join(phase for phase in start.parts if phase in held)
        return Shape(label, tuple(parts), expected, misfit)

    def _of_known_load(self, rows: Rows) -> Rows:
        """Infer the state of loads of unknown state, from the lower edge of their times; leave out those read from storage."""
        is_load = np.array([shape.label == "weight_load" and shape.expected > 0 for shape in rows.shapes], dtype=bool)
        loads = np.flatnonzero(is_load[rows.shape] & (rows.seconds > 0)) if len(rows.shapes) else rows.shape
        states = np.array([self.runs[run].engine.page_cache for run in rows.run[loads]], dtype=str)
        unknown = loads[states == "unknown"]
        if not len(unknown):
            return rows
        limit = 1.0 + DISK_DEVIATIONS * self.prior.misfit.get("weight_load", RELATIVE_SCATTER)
        ratios = rows.seconds / np.array([shape.expected or 1.0 for shape in rows.shapes])[rows.shape]
        if (states == "hot").any():
            edge = float(np.median(ratios[loads[states == "hot"]]))
        else:
            ordered = np.sort(ratios[unknown])
            lowest = float(ordered[max(0, math.ceil(0.1 * len(ordered)) - 1)])
            edge = float(np.median(ordered[ordered <= lowest * limit]))
        kept = np.ones(len(rows.run), dtype=bool)
        for row in unknown:
            run, ratio = int(rows.run[row]), float(ratios[row]) / edge
            kept[row] = ratio <= limit
            from_storage = f"read from storage in part ({ratio:.2f} times the hot line)"
            words = f"hot ({ratio:.2f} of the hot line)" if kept[row] else from_storage
            self.load_states.append(RunNote(run, self.runs[run].model.name, words))
        return rows.only(kept)

    def _check_units(self) -> None:
        expected = self.rows.expected()
        known = expected > 0
        factor = float(np.median(self.rows.seconds[known] / expected[known]))
        if factor > MILLISECONDS:
            first = self.runs[self.rows.run[0]]
            figure = first.wall_s if first.wall_s is not None else sum(first.phases.values())
            problem = f"figures are {factor:.3g} times what {self.prior.name} has: they look like milliseconds"
            raise ConfigError("runs", f"{figure:.6g} s", problem, "give seconds")
