"""Coefficients of one host from its runs alone, phase by phase, by robust non-negative least squares.

Model of a measured phase: y = session × term(inputs; coefficients), with one factor a phase for every session (a data
set measured on another day) and 1 for the main one. Terms are linear in their coefficients, so the design matrix is the
term itself, called with unit vectors: there is no second copy of a formula here. Weights are the inverse of what a
stamp resolves and of the scatter between repetitions, and residuals are damped by soft_l1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibration.fit.posterior import Fitted, Matrix, prior_values, residuals_of
from calibration.fit.rows import ABSOLUTE_SCATTER, RELATIVE_SCATTER, Figures, Key, recipe_of
from calibration.runs.record import RunRecord
from startup_model.errors import ProfileError
from startup_model.phases import PHASES, TERMS, Term
from startup_model.profile import CoefficientValue, Host, Profile

_MAX_ITERATIONS = 60


class Observation(NamedTuple):
    """One measured phase of one run, with everything that its term needs."""

    term: Term
    variant: str
    session: str
    model: str
    inputs: tuple[float, ...]
    seconds: float
    weight: float

    def predicted(self, coefficients: Mapping[str, float]) -> float:
        """The term with these coefficients."""
        return float(self.term.function(*self.inputs, **coefficients))


class FittedSet(NamedTuple):
    """Coefficients of one term in one variant."""

    values: Mapping[str, float]
    std_errors: Mapping[str, float]


class HostFit(NamedTuple):
    """The coefficients of a host and the factors of its sessions."""

    sets: Mapping[tuple[str, str], FittedSet]
    """(term, variant) -> coefficients."""
    sessions: Mapping[tuple[str, str], float]
    """(term, session) -> factor relative to the main session."""


def observe(
    run: RunRecord, host: Host, variants: Mapping[str, frozenset[str]], prior: Profile | None = None
) -> list[Observation]:
    """The measured phases of a run. ``variants``: term -> variants that get coefficients of their own beside
    ``default``. ``prior``: says the version of a run that names none."""
    start = recipe_of(run, host, prior)
    measured = dict(run.phases)
    if run.unattributed_s is not None:
        measured.setdefault("unattributed", max(run.unattributed_s, 0.0))
    observations = []
    for name, seconds in measured.items():
        if name in start.off or name not in PHASES:
            continue
        term = TERMS[name]
        own = variants.get(name, frozenset())
        variant = next((key for key in start.variants if key in own), "default")
        scatter = float(np.hypot(RELATIVE_SCATTER * seconds, ABSOLUTE_SCATTER))
        resolution = run.stamp_resolution_s / np.sqrt(12.0 * run.repetitions)
        weight = 1.0 / float(np.hypot(scatter, resolution))
        arguments = tuple(start.inputs[argument] for argument in term.inputs)
        observations.append(Observation(term, variant, run.dataset, run.model.name, arguments, seconds, weight))
    return observations


def fit_alone(figures: Figures) -> Fitted:
    """The coefficients that the phases of these runs give without a prior; the others stay as the profile has them.

    Raises ProfileError where no run has phases.
    """
    runs, prior = figures.runs, figures.prior
    measured = {index: run for index, run in enumerate(runs) if index not in figures.duplicates and run.phases}
    for index, run in enumerate(runs):
        if run.sums or not run.phases:
            figures.note(index, "only a prior makes use of a wall time or sums alone")
    if not measured:
        raise ProfileError("no run has phases: without them a prior is needed; leave prior out, or give phases")
    from_storage = {note.run for note in figures.load_states if not note.note.startswith("hot")}
    variants = {term: frozenset(found) - {"default"} for term, found in prior.coefficients.items()}
    observations = [
        observation
        for index, run in measured.items()
        for observation in observe(run, figures.host, variants, prior)
        if not (observation.term.name == "weight_load" and index in from_storage)
    ]
    fit = fit_host(observations, frozenset(run.dataset for run in measured.values()))
    values, sigmas = prior_values(prior), dict[Key, float]()
    for (term, variant), entry in fit.sets.items():
        for name, error in entry.std_errors.items():
            values[term, variant, name] = entry.values[name]
            sigmas[term, variant, name] = error
    return Fitted(values, sigmas, frozenset(sigmas), residuals_of(figures.rows, values))


def with_new_terms(prior: Profile, runs: Sequence[RunRecord], host: Host) -> Profile:
    """A profile with the phases that it is older than and that these runs have measured: what their figures give alone."""
    new = {name for name in prior.absent if name in TERMS}
    found = [o for run in runs if new & run.phases.keys() for o in observe(run, host, {}, prior) if o.term.name in new]
    if not found:
        return prior
    sets = fit_host(found, frozenset(o.session for o in found)).sets
    made = {
        term: {
            variant: {
                name: CoefficientValue(
                    value=value, unit=TERMS[term].coefficients[name].unit, source="fitted", std_error=None
                )
                for name, value in entry.values.items()
            }
        }
        for (term, variant), entry in sets.items()
    }
    return prior.replace(coefficients=prior.coefficients | made)


def fit_host(
    observations: Sequence[Observation],
    main_sessions: frozenset[str],
    scaled: Mapping[str, frozenset[str]] | None = None,
) -> HostFit:
    """Coefficients for every (term, variant) that was observed, and the factors of the sessions.

    ``scaled``: term -> variants that are one factor times the default set (too few runs for coefficients of their own).
    A session's factor is fitted where it shares the default set with a main session, else it is 1. A coefficient that
    the observations cannot tell from the others comes out as non-negative least squares leaves it.
    """
    scaled = scaled or {}
    groups: dict[tuple[str, str], list[Observation]] = {}
    for observation in observations:
        groups.setdefault((observation.term.name, observation.variant), []).append(observation)
    sets: dict[tuple[str, str], FittedSet] = {}
    sessions: dict[tuple[str, str], float] = {}
    # The default first: it gives the sessions the factors, and the scaled variants the set, that the others use.
    for (term, variant), members in sorted(
        groups.items(), key=lambda item: (item[0][0], item[0][1] != "default", item[0][1])
    ):
        factors = {o.session: sessions.get((term, o.session), 1.0) for o in members}
        if variant in scaled.get(term, ()) and (term, "default") in sets:
            sets[term, variant] = _scale_set(members, factors, sets[term, "default"])
            continue
        anchored = {o.session for o in members} & main_sessions
        free = frozenset({o.session for o in members} - main_sessions if anchored else ())
        sets[term, variant], fitted = _fit_set(members, factors, free)
        sessions |= {(term, session): factor for session, factor in fitted.items()}
    return HostFit(sets, sessions)


def _scale_set(members: Sequence[Observation], factors: Mapping[str, float], default: FittedSet) -> FittedSet:
    """The default set times one factor: the weighted mean of measured over predicted."""
    predicted = np.array([factors[o.session] * o.predicted(default.values) for o in members])
    seconds, weights = (np.array([getattr(o, name) for o in members]) for name in ("seconds", "weight"))
    factor = float(np.sum(weights**2 * predicted * seconds) / np.sum(weights**2 * predicted**2))
    return FittedSet(
        values={name: value * factor for name, value in default.values.items()},
        std_errors={name: error * factor for name, error in default.std_errors.items()},
    )


def _fit_set(
    members: Sequence[Observation], factors: dict[str, float], free: frozenset[str]
) -> tuple[FittedSet, dict[str, float]]:
    """Alternate between coefficients (robust NNLS) and session factors (weighted means) until neither moves."""
    term = members[0].term
    fixed = {name for name, meta in term.coefficients.items() if not meta.is_separable}
    names = [name for name in term.coefficients if name not in fixed]
    design = _design(term, members, names)
    seconds = np.array([o.seconds for o in members])
    weights = np.array([o.weight for o in members])
    of_session = {session: np.array([o.session == session for o in members]) for session in factors}
    robust, scale = np.ones_like(weights), np.array([factors[o.session] for o in members])
    values = np.zeros(len(names))
    for _ in range(_MAX_ITERATIONS):
        effective = weights * np.sqrt(robust)
        before = values
        values = _nnls(design * (scale * effective)[:, None], seconds * effective)
        predicted = design @ values
        for session in free:
            mask = of_session[session]
            w = effective[mask] ** 2
            denominator = float(np.sum(w * predicted[mask] ** 2))
            if denominator > 0:
                factors[session] = float(np.sum(w * predicted[mask] * seconds[mask])) / denominator
                scale[mask] = factors[session]
        residuals = (seconds - scale * predicted) * weights
        robust = 1.0 / np.sqrt(1.0 + residuals**2)  # the derivative of soft_l1
        if (np.abs(values - before) <= 1e-12 * np.abs(before)).all():
            break
    errors = _errors(design * (scale * weights * np.sqrt(robust))[:, None], residuals * np.sqrt(robust), values)
    return (
        FittedSet(
            values=dict(zip(names, map(float, values), strict=True)) | dict.fromkeys(fixed, 0.0),
            std_errors=dict(zip(names, map(float, errors), strict=True)),
        ),
        {session: factors[session] for session in free},
    )


def _design(term: Term, members: Sequence[Observation], names: Sequence[str]) -> Matrix:
    """Columns of the linear model: the term called with one coefficient 1 and all others 0."""
    inputs = [np.array(column, dtype=float) for column in zip(*(o.inputs for o in members), strict=True)]
    columns = []
    for name in names:
        unit = dict.fromkeys(term.coefficients, 0.0) | {name: 1.0}
        columns.append(np.broadcast_to(term.function(*inputs, **unit), (len(members),)))
    return np.stack(columns, axis=1) if columns else np.zeros((len(members), 0))


def _nnls(design: Matrix, target: Matrix) -> Matrix:
    """Non-negative least squares on columns of equal size, so that bytes and layers weigh alike."""
    size = np.sqrt(np.sum(design**2, axis=0))
    size[size == 0] = 1.0
    solution, _ = nnls(design / size, target)
    return np.asarray(solution / size)


def _errors(design: Matrix, residuals: Matrix, values: Matrix) -> Matrix:
    """Standard errors of the coefficients that are not at their bound: roots of the diagonal of s^2 (X'X)^-1; zero for the others."""
    errors, active = np.zeros(len(values)), values > 0
    freedom = len(residuals) - int(active.sum())
    if active.any() and freedom > 0:
        x = design[:, active]
        errors[active] = np.sqrt(float(residuals @ residuals) / freedom * np.diag(np.linalg.pinv(x.T @ x)))
    return errors
