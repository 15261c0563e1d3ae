"""Calibrate a host: from no run to many, one estimator.

A measured phase is y = term(inputs; coefficients), linear in the coefficients. With a prior profile, coefficient j of a phase is

    coefficient_j = prior_j × exp(scale + deviation_j)

where the scale is common to the phase and has a wide prior, and each deviation has a tight one. Without runs that is the prior; one run moves
the scales; with many runs the data decide. A scale that the median of the runs leaves by more than its width is centred there: the
host is of another kind than those behind the prior. The maximum a posteriori is found by least squares over all phases at once (scipy), soft_l1 on
measurements, plain squares on priors. Widths come from the spread between the reference hosts (calibration.fit.reference), not from taste.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.fit.rows import (
    ABSOLUTE_SCATTER,
    RELATIVE_SCATTER,
    Part,
    fit_host,
    observe,
    part_of,
)
from calibration.fit.solver import Problem, Solution, solve
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, ProfileError, StartupModelError
from startup_model.hardware import STORAGE_DEFAULTS, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import PHASES, SEGMENTS, TERMS, Phase
from startup_model.predictor import ProfileLike, as_profile, predict
from startup_model.profile import (
    ASSUMED_NUMBERS,
    CoefficientValue,
    HeldOut,
    Host,
    Profile,
    Provenance,
    select_reference,
)
from startup_model.recipe import ENOUGH_GROUPS, Recipe, bind, cpu_preset, recipe, version_of

__all__ = [
    "Calibration",
    "FitReport",
    "RunNote",
    "RunSuggestion",
    "calibrate",
    "diff_profiles",
    "fit_profile",
    "forget",
    "suggest_runs",
    "total_error",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
Key = tuple[str, str, str]
"""Term, variant, coefficient."""

SCALE_FLOOR = 0.25
"""Least width of a phase's scale: published hosts differ by 10-45 % in a phase."""

SMALL_SAMPLE = 1.78
"""Widening of a standard deviation that three hosts gave: 95 % quantile of Student's t with two degrees of freedom over the normal's."""

MOST_FOLDS = 12
"""Groups that are left out one at a time within a fit; more are left out in as many folds."""

DISK_DEVIATIONS = 1.645
"""A load of unknown state counts as read from storage when it is longer than from the page cache by more than so many standard deviations
of loads (one in twenty loads from the page cache is)."""

CONTRADICTION = 10.0
"""Two runs of one configuration that differ by this factor contradict each other."""

FAR_WIDTHS = 1.645
"""The median of the runs refutes the prior of a scale that it leaves by more than so many widths (one host in ten does)."""

MILLISECONDS = 300.0
"""Runs that take so many times what the prior has, phase by phase, were given in milliseconds."""

MOST_ROUNDS = 60
"""Rounds of the robust weights; a dozen is usual."""

SETTLED = 1e-7
"""Largest step in the logarithm of a coefficient after which the robust weights count as settled."""

OUTLIER = 4.0
"""A measurement counts as an outlier when it lies further from the fit than so many of its standard deviations."""

_CAUSES: Mapping[str, str] = {
    Phase.WEIGHT_LOAD.value: "; if files were read from storage, say page_cache: cold",
    Phase.GRAPH_COMPILE.value: "; if graphs were compiled anew, say compile_cache: cold",
}
"""Phase -> what makes it unlike the prior most often."""

_NOT_READY = frozenset(SEGMENTS)


class RunNote(NamedTuple):
    """What was made of one run."""

    run: int
    """Index in the runs that were given."""
    label: str
    note: str


class FitReport(NamedTuple):
    """How a fit went: one boolean for each way to be wrong, and the words to go with it."""

    runs_used: int
    groups: int
    converged: bool
    """False: the solver stopped early; look for contradictory runs."""
    at_bound: bool
    """True: a scale ran into its bound (a factor of 1000); the figures or their units are wrong."""
    not_identifiable: tuple[str, ...]
    """Coefficients that the runs do not tell apart: they stay at the prior, or move with their phase. More kinds of runs would fix them."""
    too_few_groups: bool
    """True: fewer models than an interval of held-out errors needs; profile more models."""
    page_cache_mixed: bool
    """True: loads of unknown state came from storage in part; drop the cache or read the files first, and say which."""
    outliers: tuple[RunNote, ...]
    """Measurements far from the fit; repeat them."""
    version_mismatch: bool
    """True: runs of several engine versions, or of another one than the prior's."""
    page_cache: tuple[RunNote, ...]
    """State that was inferred for each load whose state was unknown."""
    compile_cache: tuple[RunNote, ...]
    """The same for the compile cache."""
    set_aside: tuple[RunNote, ...]
    """Runs, or parts of them, that could not be used."""
    far_from_prior: tuple[str, ...]
    """Phases that take much more or less than on the prior's host; check the units and whether something else ran."""
    residual_rms: float
    """Root mean square of the residuals, in units of their standard deviations: about 1 when the widths are right."""

    def text(self) -> str:
        """The report in words, one line a finding."""
        lines = [
            f"runs: {self.runs_used}, models: {self.groups}; residuals {self.residual_rms:.2f} standard deviations"
        ]
        if not self.converged:
            lines.append("the solver did not converge: look for runs that contradict each other")
        if self.at_bound:
            lines.append("a scale ran into its bound: check the units of the runs")
        if self.too_few_groups:
            lines.append(
                f"fewer than {ENOUGH_GROUPS} models: the interval rests on the spread between reference hosts; profile more models"
            )
        if self.not_identifiable:
            names = ", ".join(self.not_identifiable)
            lines.append(
                f"not told apart by these runs, in the prior's proportions: {names}; other kinds of runs would"
            )
        if self.page_cache_mixed:
            lines.append("page-cache states are mixed: say hot or cold run by run, or make them so before the start")
        if self.version_mismatch:
            lines.append(
                "engine versions differ, or differ from the prior's: effects of versions are taken from the prior; fit one version at a time"
            )
        lines += [f"unlike the prior: {words}" for words in self.far_from_prior]
        for title, notes in (
            ("page cache", self.page_cache),
            ("compile cache", self.compile_cache),
            ("outlier, repeat it or leave it out", self.outliers),
            ("set aside", self.set_aside),
        ):
            lines += [f"{title}: run {note.run} ({note.label}): {note.note}" for note in notes]
        return "\n".join(lines)


class Calibration(NamedTuple):
    """A profile, how its fit went, and what to profile next."""

    profile: Profile
    report: FitReport
    next_runs: tuple[RunSuggestion, ...] = ()
    """The most useful first; empty without a prior, which would say what is not known."""


def fit_profile(
    runs: Iterable[RunRecord],
    prior: ProfileLike | Literal["none"] | None = None,
    *,
    name: str = "host",
    allow_mixed_hosts: bool = False,
    held_out: bool = True,
) -> Profile:
    """The profile of the host that the runs were made on: ``calibrate(...).profile``, with its arguments and errors."""
    return calibrate(runs, prior, name=name, allow_mixed_hosts=allow_mixed_hosts, held_out=held_out).profile


def calibrate(
    runs: Iterable[RunRecord],
    prior: ProfileLike | Literal["none"] | None = None,
    *,
    name: str = "host",
    allow_mixed_hosts: bool = False,
    held_out: bool = True,
) -> Calibration:
    """Fit the profile of a host.

    prior: a Profile, its file or name; None: the reference nearest to the runs; ``"none"``: the runs alone, by robust non-negative least squares (they
    must then tell all coefficients apart that they need). held_out: also leave every model out once, for the interval. Without runs, the
    prior itself is returned. Raises ConfigError for runs of several hosts (unless allowed), runs that contradict each other by a factor of ten, or
    no usable run; ProfileError when nothing is left to fit.
    """
    runs = _as_runs(runs)
    if prior is not None and prior != "none":
        prior = as_profile(prior)
    if not runs:
        if not isinstance(prior, Profile):
            raise ConfigError("runs", "none", "without runs a prior is needed", "give prior = a Profile, or runs")
        return Calibration(prior, _empty_report())
    _check_hosts(runs, allow_mixed_hosts)
    _check_contradictions(runs)
    base = prior if isinstance(prior, Profile) else nearest_prior(runs)
    host = host_of_runs(runs, base)
    if base.kind == "calibrated" and prior != "none" and base.provenance.records_digest == digest_of(runs):
        raise ConfigError(
            "runs",
            f"{len(runs)} runs",
            f"they are those that {base.name} was fitted on",
            "give new runs, or another prior",
        )
    state = _Fit(runs, base, host, use_prior=prior != "none")
    profile = state.profile(name, {})
    if held_out:
        found = _held_out(runs, base, host, use_prior=prior != "none", name=name)
        profile = profile.replace(held_out=found.replace(errors=dict(profile.held_out.errors) | found.errors))
    return Calibration(profile, state.report(), suggest_runs(state))


# --- what is fitted -----------------------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    """What some rows have in common: seconds = sum over parts of factor × term(inputs; coefficients)."""

    label: str
    parts: tuple[Part, ...]
    expected: float
    """Seconds as the prior has it."""
    misfit: float
    """Relative deviation that formulas leave: those of the parts, independent of each other."""


class _Rows(NamedTuple):
    """The figures of all runs, one a row."""

    shapes: tuple[_Shape, ...]
    run: Indices
    shape: Indices
    """Index in ``shapes``."""
    seconds: Vector
    sigma: Vector

    def only(self, kept: NDArray[np.bool_]) -> _Rows:
        """The rows that are marked."""
        return _Rows(self.shapes, self.run[kept], self.shape[kept], self.seconds[kept], self.sigma[kept])


class _Start(NamedTuple):
    """A configuration: the terms behind each phase, and the shapes that rows of it were given so far."""

    parts: Mapping[str, tuple[Part, ...]]
    off: frozenset[str]
    """Phases that the flags switch off."""
    shapes: dict[frozenset[str] | str, int]
    """Phases that a figure holds, or the one that it holds -> index of the shape."""
    measured: dict[tuple[object, ...], int]
    """Figures of a run -> the first run that had them."""


class _Posterior(NamedTuple):
    """What is known after the fit, in the parameters of the estimator."""

    keys: tuple[Key, ...]
    groups: tuple[str, ...]
    """Scales: the first parameters; one deviation for each of ``keys`` follows."""
    basis: Matrix
    """Parameters -> logarithms of the coefficients."""
    covariance: Matrix
    """Of the parameters."""


class RunSuggestion(NamedTuple):
    """A run that would narrow the interval, and by how much."""

    model: str
    page_cache: str
    compile_cache: str
    spread_now: float
    """Relative standard deviation of totals from what the fit does not know, on average over models that fit the node."""
    spread_then: float
    """The same once the run has been made."""


class _Fit:
    """The rows of some runs, the layout of the parameters, and the solution."""

    def __init__(self, runs: Sequence[RunRecord], prior: Profile, host: Host, *, use_prior: bool) -> None:
        self.runs = runs
        self.prior = prior
        self.host = host
        self.notes: list[RunNote] = []
        self.states: list[RunNote] = []
        self.duplicates: set[int] = set()
        self.far: list[str] = []
        self.compile_states: list[RunNote] = []
        self.rows = self._load_states(self._make_rows())
        if not any(shape.expected > 0 for shape in self.rows.shapes) or not len(self.rows.run):
            raise ProfileError("no run has a figure that can be fitted: give runs with phases or wall_s and status ok")
        self.solution: Solution | None = None
        self.posterior: _Posterior | None = None
        self.values = {
            (term, variant, name): value.value
            for term, variants in prior.coefficients.items()
            for variant, entries in variants.items()
            for name, value in entries.items()
        }
        self.sigmas: dict[Key, float] = {}
        self.fitted: set[Key] = set()
        self._check_units()
        if use_prior:
            self._maximise_posterior()
        else:
            self._fit_alone()

    # --- rows ---

    def _make_rows(self) -> _Rows:
        shapes: list[_Shape] = []
        starts: dict[tuple[ModelConfig, HardwareConfig, EngineConfig], _Start] = {}
        found_runs, found_shapes, found_seconds = [], [], []
        for index, run in enumerate(self.runs):
            key = (run.model, run.hardware, run.engine)
            start = starts.get(key)
            if start is None:
                start = starts[key] = self._start_of(*key)
            compiling = run.phases.get(Phase.GRAPH_COMPILE.value)
            if run.engine.compile_cache == "unknown" and compiling and Phase.GRAPH_COMPILE.value in start.parts:
                cold = (*key[:2], run.engine.replace(compile_cache="cold"))
                if cold not in starts:
                    starts[cold] = self._start_of(*cold)
                lines = [_expected(s.parts[Phase.GRAPH_COMPILE.value], self.prior) for s in (start, starts[cold])]
                if compiling > math.sqrt(lines[0] * lines[1]) and lines[1] > lines[0]:
                    start = starts[cold]
                state = "cold" if start is not starts[key] else "warm"
                self.compile_states.append(
                    RunNote(index, run.model.name, f"{state} ({compiling / lines[0]:.2f} of the warm line)")
                )
            first = start.measured.setdefault((run.status, run.wall_s, run.sums, *run.phases.items()), index)
            if first != index:
                self.duplicates.add(index)
                self.notes.append(
                    RunNote(index, run.model.name, f"every figure is that of run {first}: it counts once")
                )
                continue
            for phases, seconds in self._figures_of(index, run, start):
                shape = start.shapes.get(phases)
                if shape is None:
                    shape = start.shapes[phases] = len(shapes)
                    shapes.append(self._shape(start, phases))
                found_runs.append(index)
                found_shapes.append(shape)
                found_seconds.append(seconds)
        of_run, of_shape = np.array(found_runs, dtype=np.intp), np.array(found_shapes, dtype=np.intp)
        seconds_of = np.array(found_seconds, dtype=float)
        repetitions = np.sqrt([run.repetitions for run in self.runs])[of_run]
        resolution = np.array([run.stamp_resolution_s for run in self.runs])[of_run]
        misfit = np.array([shape.misfit for shape in shapes])[of_shape] if shapes else seconds_of
        scatter = np.hypot(RELATIVE_SCATTER / repetitions, misfit) * seconds_of
        sigma = np.hypot(np.hypot(scatter, ABSOLUTE_SCATTER), resolution / (math.sqrt(12.0) * repetitions))
        return _Rows(tuple(shapes), of_run, of_shape, seconds_of, sigma)

    def parts_of(
        self, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig
    ) -> dict[str, tuple[Part, ...]]:
        """Phase -> the terms behind it, for a start with this configuration."""
        calls = bind(self._recipe(model, hardware, engine), self.prior).phases
        return {str(phase): tuple(map(part_of, found)) for phase, found in calls.items() if found}

    def _recipe(self, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig) -> Recipe:
        return recipe(model, hardware, engine, self.host, version_of(engine, self.prior))

    def _start_of(self, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig) -> _Start:
        """A scale cannot move what the prior has at nothing: such phases are part of the unattributed time."""
        parts = self.parts_of(model, hardware, engine)
        kept = {phase: found for phase, found in parts.items() if _expected(found, self.prior) > 0}
        return _Start(kept, frozenset(map(str, PHASES)) - parts.keys(), {}, {})

    def _figures_of(self, index: int, run: RunRecord, start: _Start) -> Iterator[tuple[frozenset[str] | str, float]]:
        """The figures of a run: the phase or phases that each holds, and seconds."""
        fitted = {
            name: seconds for name, seconds in run.phases.items() if name in start.parts and name not in run.hidden
        }
        yield from fitted.items()
        if run.measured_from == "first_line":
            self.notes.append(
                RunNote(
                    index,
                    run.model.name,
                    "counted from the first line of a log: its bootstrap and wall time are not used",
                )
            )
        for name, seconds in run.phases.items():
            if name not in start.parts and seconds > run.stamp_resolution_s and name not in _NOT_READY:
                why = "switched off by the flags" if name in start.off else "without a time in the prior"
                self.notes.append(RunNote(index, run.model.name, f"{name} is {why}: its time counts as unattributed"))
        for figure in run.sums:
            if run.hidden & set(figure.phases):
                continue
            if start.parts.keys() & set(figure.phases):
                yield frozenset(figure.phases), figure.seconds
            else:
                self.notes.append(RunNote(index, run.model.name, f"no part of {'+'.join(figure.phases)} can be fitted"))
        if run.status != "ok":
            self.notes.append(
                RunNote(index, run.model.name, f"status {run.status}: only the phases that it measured are used")
            )
        elif run.ready_s is not None:
            left = max(run.ready_s - sum(fitted.values()), 0.0)
            if run.engine.page_cache == "unknown" and start.parts.keys() - run.phases.keys() >= {
                Phase.WEIGHT_LOAD.value
            }:
                self.states.append(RunNote(index, run.model.name, "hot, as its load was not measured by itself"))
            yield frozenset(start.parts.keys() - fitted.keys()), left

    def _shape(self, start: _Start, phases: frozenset[str] | str) -> _Shape:
        held = {phases} if isinstance(phases, str) else phases
        parts = [part for phase, found in start.parts.items() if phase in held for part in found]
        seconds = [_expected([part], self.prior) for part in parts]
        expected = sum(seconds)
        misfits = [
            self.prior.misfit.get(term, RELATIVE_SCATTER) * part
            for (term, _, _), part in zip(parts, seconds, strict=True)
        ]
        misfit = math.hypot(*misfits) / expected if expected > 0 else RELATIVE_SCATTER
        label = phases if isinstance(phases, str) else "+".join(phase for phase in start.parts if phase in held)
        return _Shape(label, tuple(parts), expected, misfit)

    def _load_states(self, rows: _Rows) -> _Rows:
        """Infer the state of loads of unknown state, from the lower edge of their times; leave out those read from storage."""
        is_load = np.array(
            [shape.label == Phase.WEIGHT_LOAD.value and shape.expected > 0 for shape in rows.shapes], dtype=bool
        )
        loads = np.flatnonzero(is_load[rows.shape] & (rows.seconds > 0)) if len(rows.shapes) else rows.shape
        states = np.array([self.runs[run].engine.page_cache for run in rows.run[loads]], dtype=str)
        unknown = loads[states == "unknown"]
        if not len(unknown):
            return rows
        limit = 1.0 + DISK_DEVIATIONS * self.prior.misfit.get(Phase.WEIGHT_LOAD.value, RELATIVE_SCATTER)
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
            found = f"hot ({ratio:.2f} of the hot line)"
            if not kept[row]:
                found = f"read from storage in part ({ratio:.2f} times the hot line)"
            self.states.append(RunNote(run, self.runs[run].model.name, found))
        return rows.only(kept)

    def _check_units(self) -> None:
        expected = np.array([shape.expected for shape in self.rows.shapes])[self.rows.shape]
        known = expected > 0
        factor = float(np.median(self.rows.seconds[known] / expected[known]))
        if factor > MILLISECONDS:
            first = self.runs[self.rows.run[0]]
            figure = first.wall_s if first.wall_s is not None else sum(first.phases.values())
            raise ConfigError(
                "runs",
                f"{figure:.6g} s",
                f"figures are {factor:.3g} times what {self.prior.name} has: they look like milliseconds",
                "give seconds",
            )

    # --- solving ---

    def _maximise_posterior(self) -> None:
        keys = [key for key in dict.fromkeys(_keys_of(self.rows)) if self.values[key] > 0]
        position = {key: i for i, key in enumerate(keys)}
        groups = list(dict.fromkeys(_group(key) for key in keys))
        blocks = _blocks_of(self.rows, position, self.values)
        start_values = np.array([self.values[key] for key in keys])
        membership = np.zeros((len(keys), len(groups)))
        for i, key in enumerate(keys):
            membership[i, groups.index(_group(key))] = 1.0
        basis = np.hstack([membership, np.eye(len(keys))])
        widths = np.array(
            [*(self._scale_width(group) for group in groups), *(self._deviation_width(key) for key in keys)]
        )
        n = basis.shape[1]
        bound = np.full(n, math.log(1000.0))

        def coefficients(p: Vector) -> Vector:
            return np.asarray(start_values * np.exp(basis @ p))

        centre = np.zeros(n)
        far = self._far_scales(groups)
        for group, (factor, label) in far.items():
            centre[groups.index(group)] = math.log(factor)
            cause = _CAUSES.get(label, "")
            self.far.append(f"{label}: {factor:.3g} times what {self.prior.name} has{cause}")

        # soft_l1 by iterated weights and Gauss-Newton steps; under fixed weights the rows of one pattern shrink to a
        # triangle without loss. The last round is left to the solver, which says whether it is a minimum.
        p = centre.copy()
        self.settled = False
        for _ in range(MOST_ROUNDS):
            matrix, target = _compressed(blocks, coefficients(p), len(keys))
            slopes = np.vstack([(matrix * coefficients(p)) @ basis, np.diag(1.0 / widths)])
            misses = np.concatenate([matrix @ coefficients(p) - target, (p - centre) / widths])
            step = np.linalg.lstsq(slopes, -misses, rcond=None)[0]
            p = np.clip(p + np.clip(step, -1.0, 1.0), -bound, bound)
            if float(np.max(np.abs(step))) < SETTLED:
                self.settled = True
                break

        def residuals(q: Vector) -> Vector:
            return np.concatenate([matrix @ coefficients(q) - target, (q - centre) / widths])

        def jacobian(q: Vector) -> Matrix:
            return np.vstack([(matrix * coefficients(q)) @ basis, np.diag(1.0 / widths)])

        self.solution = solve(Problem(residuals, jacobian, p, -bound, bound, tolerance=1e-10))
        values = coefficients(self.solution.values)
        slopes = jacobian(self.solution.values)
        # The posterior in its own units: residuals are standard deviations already.
        precision = slopes.T @ slopes
        self.posterior = _Posterior(tuple(keys), tuple(groups), basis, np.asarray(np.linalg.inv(precision)))
        covariance = basis @ self.posterior.covariance @ basis.T
        spread = np.sqrt(np.diag(covariance))
        before = np.sqrt(np.diag(basis @ np.diag(widths**2) @ basis.T))
        for i, key in enumerate(keys):
            self.values[key] = float(values[i])
            self.sigmas[key] = float(values[i] * spread[i])
            if spread[i] < 0.7 * before[i]:
                self.fitted.add(key)
        self._carry_scales(groups, self.solution.values[: len(groups)], set(keys))
        self.residuals = _row_residuals(blocks, values, len(self.rows.run))

    def _far_scales(self, groups: Sequence[str]) -> dict[str, tuple[float, str]]:
        """Scales whose prior the runs refute by their median: group -> (measured / expected, phase or phases).

        The prior is about hosts of the usual kind. Where a host is of another kind, its runs say where the scale lies, and the prior
        only how far it may stray from there; else a lone run would count as an outlier of the prior. Figures of several phases speak
        for the groups that no figure of their own has.
        """
        rows, values = self.rows, self.values
        single: dict[str, list[float]] = {}
        joint: dict[str, list[float]] = {}
        labels: dict[str, str] = {}
        homes = []
        for shape in rows.shapes:
            shares: Counter[str] = Counter()
            for term, variant, factors in shape.parts:
                for name, factor in factors:
                    shares[_group((term, variant, name))] += factor * values[term, variant, name]  # type: ignore[assignment]
            main, share = shares.most_common(1)[0] if shares else ("", 0.0)
            homes.append((single, (main,)) if share > 0.8 * shape.expected else (joint, tuple(shares)))
        expected = np.array([shape.expected for shape in rows.shapes])[rows.shape]
        usable = np.flatnonzero((rows.seconds > 0) & (expected > 0))
        for row in usable:
            table, members = homes[rows.shape[row]]
            for group in members:
                table.setdefault(group, []).append(float(rows.seconds[row] / expected[row]))
                labels.setdefault(group, rows.shapes[rows.shape[row]].label if table is single else group)
        found = {}
        for group in groups:
            ratios = single.get(group) or joint.get(group) or [1.0]
            factor = float(np.median(ratios))
            if abs(math.log(factor)) > max(FAR_WIDTHS * self._scale_width(group), SCALE_FLOOR):
                found[group] = (factor, labels[group])
        return found

    def _carry_scales(self, groups: Sequence[str], scales: Vector, touched: set[Key]) -> None:
        """Variants that no run had move with the scale of their phase."""
        by_group = dict(zip(groups, scales, strict=True))
        for key in self.values:
            if key not in touched and _group(key) in by_group:
                self.values[key] *= math.exp(float(by_group[_group(key)]))

    def _scale_width(self, group: str) -> float:
        if self.prior.kind == "calibrated":  # the host is known already: what is left is the difference between days
            return max(self.prior.session_spread.get(group.split(maxsplit=1)[0], 0.0), RELATIVE_SCATTER)
        between = self.prior.transfer_spread.get(group.split(maxsplit=1)[0], 0.0)
        return math.hypot(SMALL_SAMPLE * between, SCALE_FLOOR) if " " not in group else 1.0

    def _deviation_width(self, key: Key) -> float:
        term, variant, name = key
        entry = self.prior.coefficients[term][variant][name]
        own = self.prior.shape_spread.get(term, 0.1)
        if self.prior.kind == "calibrated" and entry.source == "fitted" and entry.std_error is not None:
            return max(min(own, entry.std_error / entry.value), RELATIVE_SCATTER)
        if entry.source == "fixed" and entry.std_error:
            own = max(own, entry.std_error / entry.value)
        return max(own, 0.02)

    def _fit_alone(self) -> None:
        """Robust non-negative least squares on the phases that were measured, without a prior."""
        measured = {index: run for index, run in enumerate(self.runs) if index not in self.duplicates and run.phases}
        for index, run in enumerate(self.runs):
            if run.sums or not run.phases:
                self.notes.append(RunNote(index, run.model.name, "only a prior makes use of a wall time or sums alone"))
        if not measured:
            raise ProfileError("no run has phases: without them a prior is needed; leave prior out, or give phases")
        from_storage = {note.run for note in self.states if not note.note.startswith("hot")}
        observations = []
        variants = {term: frozenset(v) - {"default"} for term, v in self.prior.coefficients.items()}
        for index, run in measured.items():
            observations += [
                observation
                for observation in observe(run, self.host, variants)
                if not (observation.term.name == "weight_load" and index in from_storage)
            ]
        fit = fit_host(observations, frozenset(run.dataset for run in measured.values()))
        for (term, variant), entry in fit.sets.items():
            for name, value in entry.values.items():
                key = (term, variant, name)
                if entry.std_errors.get(name) is None:
                    continue
                self.values[key] = value
                self.sigmas[key] = entry.std_errors[name]
                self.fitted.add(key)
        keys = list(dict.fromkeys(_keys_of(self.rows)))
        blocks = _blocks_of(self.rows, {key: i for i, key in enumerate(keys)}, self.values)
        self.residuals = _row_residuals(blocks, np.array([self.values[key] for key in keys]), len(self.rows.run))

    def knowledge_of(self, keys: Iterable[Key]) -> _Posterior:
        """The posterior, with coefficients that no run has touched at their prior width."""
        known = self.posterior
        if known is None:
            raise ProfileError("a fit without a prior does not say what it does not know")
        new = [key for key in dict.fromkeys(keys) if key not in set(known.keys) and self.values[key] > 0]
        new_groups = list(dict.fromkeys(group for key in new if (group := _group(key)) not in known.groups))
        widths = [*map(self._scale_width, new_groups), *map(self._deviation_width, new)]
        rows, columns = known.basis.shape
        basis = np.zeros((rows + len(new), columns + len(widths)))
        basis[:rows, :columns] = known.basis
        for i, key in enumerate(new):
            group = _group(key)
            scale = columns + new_groups.index(group) if group in new_groups else known.groups.index(group)
            basis[rows + i, [scale, columns + len(new_groups) + i]] = 1.0
        covariance = np.diag(np.square([*np.zeros(columns), *widths]))
        covariance[:columns, :columns] = known.covariance
        return _Posterior((*known.keys, *new), (*known.groups, *new_groups), basis, covariance)

    def sensitivity(self, parts: Mapping[str, Sequence[Part]], known: _Posterior) -> tuple[Matrix, Vector, float]:
        """Derivatives of each phase of a start in the parameters [s], the deviation its measurement would have [s], and the total."""
        position = {key: i for i, key in enumerate(known.keys)}
        rows, sigmas, total = [], [], 0.0
        for phase, found in parts.items():
            slopes = np.zeros(len(position))
            seconds = 0.0
            for term, variant, factors in found:
                for name, factor in factors:
                    share = factor * self.values[term, variant, name]
                    seconds += share
                    if (term, variant, name) in position:
                        slopes[position[term, variant, name]] += share
            total += seconds
            misfit = self.prior.misfit.get(phase, RELATIVE_SCATTER)
            rows.append(slopes @ known.basis)
            sigmas.append(math.hypot(math.hypot(RELATIVE_SCATTER, misfit) * seconds, ABSOLUTE_SCATTER))
        return np.stack(rows), np.array(sigmas), total

    # --- results ---

    def profile(self, name: str, errors: Mapping[str, float]) -> Profile:
        """The profile that the fit gives."""
        prior = self.prior
        coefficients = {
            term: {
                variant: {
                    coefficient: self._coefficient((term, variant, coefficient), entry)
                    for coefficient, entry in entries.items()
                }
                for variant, entries in variants.items()
            }
            for term, variants in prior.coefficients.items()
        }
        versions = sorted({run.engine.version or prior.engine_version for run in self.runs})
        old = prior if prior.kind == "calibrated" else None
        digest = digest_of(self.runs)
        known_runs = Counter(old.provenance.runs if old else ())
        starts = dict.fromkeys((run.model, run.hardware, run.engine) for run in self.runs)
        inputs = [self._recipe(*start).inputs for start in starts]
        domain = {}
        for key, before in prior.domain.items():
            if key in inputs[0]:
                values = [*(row[key] for row in inputs), *(before if old else ())]
                domain[key] = (min(values), max(values))
        return prior.replace(
            name=name,
            kind="calibrated",
            **self._engine(),
            runs_version=versions[0].removeprefix("v")
            if len(versions) == 1 and versions[0] != prior.engine_version
            else None,
            host=self.host,
            coefficients=coefficients,
            covariance={},
            held_out=HeldOut(by="model", errors=(dict(old.held_out.errors) if old else {}) | dict(errors)),
            domain=domain,
            layer_kinds=tuple(
                sorted({kind for model, _, _ in starts for kind in model.layers_by_kind} | set(prior.layer_kinds))
            ),
            provenance=Provenance(
                citation=f"fitted on {len(self.runs)} runs of {', '.join(versions)}; prior {prior.name}",
                runs=dict(known_runs + Counter(run.dataset or "runs" for run in self.runs)),
                records_digest=hashlib.sha256(f"{old.provenance.records_digest}{digest}".encode()).hexdigest()
                if old
                else digest,
            ),
        )

    def _coefficient(self, key: Key, entry: CoefficientValue) -> CoefficientValue:
        value, sigma = self.values[key], self.sigmas.get(key)
        if key in self.fitted:
            return CoefficientValue(
                value=_rounded(value), unit=entry.unit, std_error=_rounded(sigma or 0.0), source="fitted"
            )
        if value == entry.value:
            return entry if entry.source == "fixed" else entry.replace(source="borrowed", note=f"of {self.prior.name}")
        note = f"of {self.prior.name}, moved with its phase by {value / entry.value:.3g}" if entry.value else ""
        source: Literal["fixed", "borrowed"] = "fixed" if entry.source == "fixed" else "borrowed"
        return CoefficientValue(
            value=_rounded(value),
            unit=entry.unit,
            std_error=_rounded(sigma) if sigma else entry.std_error,
            source=source,
            note=note,
        )

    def _engine(self) -> dict[str, Any]:
        """Fields of the profile that say which engine it is of: the prior's, unless the runs are of another engine."""
        engine = self.runs[0].engine
        if engine.engine == self.prior.engine:
            return {}
        resolved = engine.resolve(self.runs[0].model, self.runs[0].hardware)
        version = resolved.version_text.removeprefix("v")
        return {
            "engine": engine.engine,
            "engine_version": version,
            "generation": resolved.generation,
            "version_effects": (),
        }

    def report(self) -> FitReport:
        """How the fit went."""
        groups = len({run.model.name for run in self.runs})
        asked = list(dict.fromkeys(_keys_of(self.rows)))
        bounds = self.solution is not None and bool(self.solution.at_bound.any())
        versions = {run.engine.version or self.prior.engine_version for run in self.runs}
        outliers = []
        for row in np.flatnonzero(np.abs(self.residuals) > OUTLIER):
            run, label = int(self.rows.run[row]), self.rows.shapes[self.rows.shape[row]].label
            seconds, off = self.rows.seconds[row], abs(self.residuals[row])
            outliers.append(
                RunNote(run, self.runs[run].model.name, f"{label} = {seconds:.3g} s, {off:.0f} standard deviations off")
            )
        return FitReport(
            runs_used=len(np.unique(self.rows.run)),
            groups=groups,
            converged=self.solution is None or (self.settled and self.solution.converged),
            at_bound=bounds,
            not_identifiable=tuple(
                f"{t}.{n}" for t, v, n in asked if (t, v, n) not in self.fitted and self.values[t, v, n] > 0
            ),
            too_few_groups=groups < ENOUGH_GROUPS,
            page_cache_mixed=len({note.note.split(maxsplit=1)[0] for note in self.states}) > 1,
            outliers=tuple(outliers),
            version_mismatch=versions != {self.prior.engine_version},
            page_cache=tuple(self.states),
            compile_cache=tuple(self.compile_states),
            set_aside=tuple(self.notes),
            far_from_prior=tuple(self.far),
            residual_rms=float(np.sqrt(np.mean(np.square(self.residuals)))),
        )


# --- what to profile next -------------------------------------------------------------------------------------------------

CANDIDATES = (
    "Qwen/Qwen3-0.6B",
    "meta-llama/Llama-3.2-3B",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-14B",
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.1-70B",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V2-Lite",
)
"""Models of many sizes and makes: what a next run could be of, and what predictions should be good for."""


def suggest_runs(fit: _Fit, most: int = 3) -> tuple[RunSuggestion, ...]:
    """The runs that would narrow intervals most, by what their measurement would add to the posterior.

    A run with rows J adds J'J to the precision; what counts is the mean of g' (precision + J'J)^-1 g over targets, g the derivative of the
    logarithm of a target's total.
    """
    if fit.posterior is None:
        return ()
    hardware, base = fit.runs[0].hardware, fit.runs[0].engine
    states = [(page, cache) for page in ("hot", "cold") for cache in ("warm", "cold")]
    starts = []
    for name in CANDIDATES:
        model = ModelConfig.from_catalogue(name)
        for page, cache in states:
            engine = base.replace(page_cache=page, compile_cache=cache, quantization=None, load_format="auto")
            try:
                fits = predict(model, hardware, engine).memory.fits
            except ConfigError:
                continue
            if fits:
                starts.append((name, page, cache, fit.parts_of(model, hardware, engine)))
    if not starts:
        return ()
    known = fit.knowledge_of(key for *_, parts in starts for found in parts.values() for key in _keys_of_parts(found))
    effects = [fit.sensitivity(parts, known) for *_, parts in starts]
    targets = np.stack([rows.sum(axis=0) / total for rows, _, total in effects])

    def spread(covariance: Matrix) -> float:
        return float(np.sqrt(np.mean(np.einsum("ti,ij,tj->t", targets, covariance, targets))))

    now = spread(known.covariance)
    precision = np.linalg.inv(known.covariance)
    found = []
    for (name, page, cache, _), (rows, sigmas, _) in zip(starts, effects, strict=True):
        weighted = rows / sigmas[:, None]
        then = spread(np.asarray(np.linalg.inv(precision + weighted.T @ weighted)))
        found.append(RunSuggestion(name, page, cache, now, then))
    best: dict[str, RunSuggestion] = {}
    for suggestion in sorted(found, key=lambda s: s.spread_then):
        best.setdefault(suggestion.model, suggestion)
    return tuple(best.values())[:most]


# --- the linear model -----------------------------------------------------------------------------------------------------


def _expected(parts: Iterable[Part], prior: Profile) -> float:
    """Seconds of some parts as a profile has them."""
    return sum(
        factor * prior.values[term][variant][name] for term, variant, factors in parts for name, factor in factors
    )


def _keys_of(rows: _Rows) -> Iterator[Key]:
    for index in np.unique(rows.shape):
        yield from _keys_of_parts(rows.shapes[index].parts)


def _keys_of_parts(parts: Iterable[Part]) -> Iterator[Key]:
    for term, variant, factors in parts:
        for name, _ in factors:
            yield term, variant, name


def _group(key: Key) -> str:
    """The scale that a coefficient moves with."""
    term, _, name = key
    meta = TERMS[term].coefficients[name] if term in TERMS else None
    return (meta.scale if meta is not None else None) or term


class _Block(NamedTuple):
    """Rows that involve the same coefficients."""

    columns: Indices
    rows: Indices
    matrix: Matrix
    """Factors over standard deviations."""
    target: Vector


def _blocks_of(rows: _Rows, position: Mapping[Key, int], values: Mapping[Key, float]) -> list[_Block]:
    """The rows by pattern; coefficients without a position are constants at their value."""
    patterns: dict[tuple[int, ...], list[int]] = {}
    factors_of: list[dict[int, float]] = []
    constants = np.zeros(len(rows.shapes))
    for index, shape in enumerate(rows.shapes):
        factors: dict[int, float] = {}
        for term, variant, entries in shape.parts:
            for name, factor in entries:
                column = position.get((term, variant, name))
                if column is None:
                    constants[index] += factor * values[term, variant, name]
                else:
                    factors[column] = factors.get(column, 0.0) + factor
        factors_of.append(factors)
        patterns.setdefault(tuple(sorted(factors)), []).append(index)
    pattern_of = np.zeros(len(rows.shapes), dtype=np.intp)
    for number, members in enumerate(patterns.values()):
        pattern_of[members] = number
    order = np.argsort(pattern_of[rows.shape], kind="stable")
    ends = np.cumsum(np.bincount(pattern_of[rows.shape], minlength=len(patterns)))
    blocks = []
    for columns, members, indices in zip(patterns, patterns.values(), np.split(order, ends[:-1]), strict=True):
        table = np.zeros((len(rows.shapes), len(columns)))
        table[members] = np.reshape(
            [[factors_of[m][c] for c in columns] for m in members], (len(members), len(columns))
        )
        of, sigma = rows.shape[indices], rows.sigma[indices]
        blocks.append(
            _Block(
                np.array(columns, dtype=np.intp),
                indices,
                table[of] / sigma[:, None],
                (rows.seconds[indices] - constants[of]) / sigma,
            )
        )
    return blocks


def _compressed(blocks: Iterable[_Block], values: Vector, width: int) -> tuple[Matrix, Vector]:
    """A small system with the same normal equations as all rows, each damped as soft_l1 does at ``values``."""
    rows, targets = [], []
    for block in blocks:
        residuals = block.matrix @ values[block.columns] - block.target
        damping = (1.0 + np.square(residuals)) ** -0.25
        joined = np.column_stack([block.matrix, block.target]) * damping[:, None]
        if len(joined) > joined.shape[1]:
            joined = np.asarray(np.linalg.qr(joined, mode="r"))
        full = np.zeros((len(joined), width))
        full[:, block.columns] = joined[:, :-1]
        rows.append(full)
        targets.append(joined[:, -1])
    return np.vstack(rows), np.concatenate(targets)


def _row_residuals(blocks: Iterable[_Block], values: Vector, count: int) -> Vector:
    """(fitted - measured) / standard deviation of every row."""
    residuals = np.zeros(count)
    for block in blocks:
        residuals[block.rows] = block.matrix @ values[block.columns] - block.target
    return residuals


# --- hosts and checks -----------------------------------------------------------------------------------------------------


def host_of_runs(runs: Sequence[RunRecord], prior: Profile) -> Host:
    """The host of the runs: its own numbers where they are given, else those of the prior's host, else defaults.

    Coefficients are relative to these numbers, whatever they are; what counts is that predictions use the same. A score that the node of the runs does not have stays
    unknown, and numbers that nobody has measured are marked as assumed: a later probe of the same host then changes no prediction.
    """
    hardware, theirs = runs[0].hardware, prior.host
    storage = hardware.storage
    numbers = {
        "gpu_memory_bandwidth": hardware.gpu_memory_bandwidth,
        "page_cache_bandwidth": storage.page_cache or theirs.page_cache_bandwidth,
        "device_flops": hardware.gpu_flops or theirs.device_flops,
    }
    return Host(
        cpu=hardware.cpu.model,
        gpu=hardware.gpu,
        platform=hardware.platform,
        single_thread_score=hardware.cpu.score,
        local_nvme_bandwidth=storage.local_nvme or STORAGE_DEFAULTS["local_nvme"],
        network_disk_bandwidth=storage.network_disk or STORAGE_DEFAULTS["network_disk"],
        object_store_bandwidth=storage.object_store or STORAGE_DEFAULTS["object_store"],
        host_to_device_bandwidth=hardware.host_to_device_bandwidth or theirs.host_to_device_bandwidth,
        **(numbers if not hardware.is_cpu_only else _numbers_of_processor(hardware, numbers, theirs)),
    )


def _numbers_of_processor(hardware: HardwareConfig, numbers: Mapping[str, float], theirs: Host) -> dict[str, Any]:
    """``numbers`` of a host without accelerators, and which of them nobody has measured.

    Where the prior is of such a host, its coefficients are relative to what it assumed, and to what it measured where this node has nothing.
    """
    preset = cpu_preset()
    is_own = {
        "gpu_memory_bandwidth": hardware.gpu_memory_bandwidth != preset.gpu_memory_bandwidth,
        "page_cache_bandwidth": hardware.storage.page_cache is not None,
        "device_flops": hardware.gpu_flops not in (None, preset.gpu_flops),
    }
    if theirs.platform != "cpu":
        return {**numbers, "assumed": tuple(name for name in ASSUMED_NUMBERS if not is_own[name])}
    kept: dict[str, Any] = {
        name: getattr(theirs, name) for name in ASSUMED_NUMBERS if name in theirs.assumed or not is_own[name]
    }
    return {**numbers, **kept, "assumed": theirs.assumed}


def nearest_prior(runs: Sequence[RunRecord]) -> Profile:
    """The reference profile nearest to most of the runs."""
    names: Counter[str] = Counter()
    for run in runs:
        resolved = run.engine.resolve(run.model, run.hardware)
        names[
            select_reference(run.engine.engine, resolved.generation, resolved.version, run.hardware).profile.name
        ] += 1
    return Profile.reference(names.most_common(1)[0][0])


def _as_runs(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """A list of records from any iterable of them. Raises ConfigError."""
    found = (
        list(runs) if isinstance(runs, Iterable) and not isinstance(runs, RunRecord | str | bytes | Mapping) else [runs]
    )
    for index, run in enumerate(found):
        if not isinstance(run, RunRecord):
            raise ConfigError(
                f"runs[{index}]", run, "it is no RunRecord", "give records, as read_runs(path) returns them"
            )
    if runs is not found and isinstance(runs, RunRecord):
        raise ConfigError("runs", "one RunRecord", "a list is needed", "give [run]")
    return found  # type: ignore[return-value]


def _check_hosts(runs: Sequence[RunRecord], allow_mixed_hosts: bool) -> None:
    engines = sorted({run.engine.engine for run in runs})
    if len(engines) > 1:
        raise ConfigError(
            "runs",
            f"{len(engines)} engines",
            f"one profile is of one engine, these are of: {', '.join(engines)}",
            "fit each by itself",
        )
    hosts = dict.fromkeys((run.host, run.hardware.gpu, run.hardware.cpu.model) for run in runs)
    if len(hosts) > 1 and not allow_mixed_hosts:
        shown = "; ".join(" ".join(part for part in host if part) for host in hosts)
        raise ConfigError(
            "runs",
            f"{len(hosts)} hosts",
            f"one profile is of one host, these are of: {shown}",
            "fit each by itself, or allow mixed hosts",
        )


def _check_contradictions(runs: Sequence[RunRecord]) -> None:
    """Refuse two runs of one configuration whose times differ by a factor of ten: wall times, or the sums of the same phases."""
    seen: dict[tuple[object, ...], tuple[int, float]] = {}
    for index, run in enumerate(runs):
        if run.status != "ok" or (run.wall_s is None and not run.phases):
            continue
        field = "phases" if run.wall_s is None else "wall_s"
        seconds = sum(run.phases.values()) if run.wall_s is None else run.wall_s
        key = (run.model, run.hardware, run.engine, *(run.phases if run.wall_s is None else ()))
        first, wall = seen.setdefault(key, (index, seconds))
        if max(wall, seconds) > CONTRADICTION * max(min(wall, seconds), 1e-9):
            raise ConfigError(
                field,
                seconds,
                f"run {first} of the same configuration took {wall:.4g} s",
                "check the units, or leave one out",
            )


def _held_out(runs: Sequence[RunRecord], prior: Profile, host: Host, *, use_prior: bool, name: str) -> HeldOut:
    """Relative errors of totals of models that a fit has not seen: each left out once, or in at most a dozen folds."""
    models = list(dict.fromkeys(run.model.name for run in runs))
    if len(models) < 2:
        return HeldOut(by="model", errors={})
    folds = [models[i :: min(len(models), MOST_FOLDS)] for i in range(min(len(models), MOST_FOLDS))]
    errors: dict[str, float] = {}
    for fold in folds:
        kept = [run for run in runs if run.model.name not in fold]
        left_out = {run.model.structure for run in runs if run.model.name in fold}
        try:
            profile = _Fit(kept, forget(prior, left_out), host, use_prior=use_prior).profile(name, {})
        except StartupModelError:
            continue
        for model in fold:
            found = [
                error for run in runs if run.model.name == model and (error := total_error(run, profile)) is not None
            ]
            if found:
                errors[model] = max(found, key=abs)
    return HeldOut(by="model", errors={model: _rounded(error) for model, error in errors.items()})


def forget(profile: Profile, structures: Collection[str]) -> Profile:
    """A profile without what is peculiar to some models: as if it had never met them."""
    effects = {key: value for key, value in profile.model_effects.items() if key not in structures}
    return profile if len(effects) == len(profile.model_effects) else profile.replace(model_effects=effects)


def total_error(run: RunRecord, profile: Profile) -> float | None:
    """Predicted / measured - 1 of the wall time of a run whose cache states are known; None for other runs."""
    if run.ready_s is None or run.status != "ok" or run.ready_s <= 0:
        return None
    if run.engine.page_cache == "unknown" and run.engine.load_format != "dummy":
        return None
    return predict(run.model, run.hardware, run.engine, profile=profile).total_s / run.ready_s - 1.0


def diff_profiles(
    old: Profile, new: Profile, model: ModelConfig, hardware: HardwareConfig, engine: EngineConfig | None = None
) -> dict[str, tuple[float, float]]:
    """Phase -> seconds by the old and by the new profile, for one start; ``total`` is the last entry. Raises ConfigError."""
    found = [predict(model, hardware, engine, profile=profile) for profile in (old, new)]
    seconds = {str(phase): (entry.seconds, found[1].phases[phase].seconds) for phase, entry in found[0].phases.items()}
    return seconds | {"total": (found[0].total_s, found[1].total_s)}


def digest_of(runs: Iterable[RunRecord]) -> str:
    """SHA-256 of the records, in order."""
    digest = hashlib.sha256()
    written: dict[tuple[ModelConfig, HardwareConfig, EngineConfig], bytes] = {}
    for run in runs:
        key = (run.model, run.hardware, run.engine)
        if key not in written:
            written[key] = hashlib.sha256("\n".join(part.model_dump_json() for part in key).encode()).digest()
        digest.update(written[key])
        digest.update(run.model_dump_json(exclude={"model", "hardware", "engine"}).encode())
    return digest.hexdigest()


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _empty_report() -> FitReport:
    return FitReport(0, 0, True, False, (), True, False, (), False, (), (), (), (), 0.0)
