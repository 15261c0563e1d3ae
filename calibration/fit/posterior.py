"""The maximum a posteriori of all coefficients of a host, and how well it is known.

    coefficient_j = prior_j × exp(scale + deviation_j)

where the scale is common to a phase and has a wide prior, and each deviation has a tight one; soft_l1 on measurements, plain squares on
priors. Widths come from the spread between the reference hosts (calibration.fit.reference), not from taste.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.fit.rows import RELATIVE_SCATTER, Indices, Key, Rows, Vector
from calibration.fit.solver import Problem, solve
from startup_model.phases import TERMS
from startup_model.profile import Profile

Matrix = NDArray[np.float64]

SCALE_FLOOR = 0.25
"""Least width of a phase's scale: published hosts differ by 10-45 % in a phase."""
SMALL_SAMPLE = 1.78
"""Widening of a standard deviation that three hosts gave: 95 % quantile of Student's t with two degrees of freedom over the normal's."""
PRIOR_REJECTION_SIGMAS = 1.645
"""The median of the runs refutes the prior of a scale that it leaves by more than so many widths (one host in ten does)."""
MAX_ITERATIONS = 60
"""Rounds of the robust weights; a dozen is usual."""
TOLERANCE = 1e-7
"""Largest step in the logarithm of a coefficient after which the robust weights count as settled."""
MAX_SCALE = math.log(1000.0)
"""Bound of scales and deviations."""

_CAUSES: Mapping[str, str] = {
    "weight_load": "; if files were read from storage, say page_cache: cold",
    "graph_compile": "; if graphs were compiled anew, say compile_cache: cold",
}  # phase -> what makes it unlike the prior most often


class Posterior(NamedTuple):
    """What is known after the fit, in the parameters of the estimator."""

    keys: tuple[Key, ...]
    groups: tuple[str, ...]
    """Scales: the first parameters; one deviation for each of ``keys`` follows."""
    basis: Matrix
    """Parameters -> logarithms of the coefficients."""
    covariance: Matrix
    """Of the parameters."""


class Fitted(NamedTuple):
    """What a fit found."""

    values: Mapping[Key, float]
    """Every coefficient of the profile; those that no run has touched moved with their phase, or stay at the prior."""
    sigmas: Mapping[Key, float]
    fitted: frozenset[Key]
    """Coefficients that the runs have narrowed, or gave alone."""
    residuals: Vector
    """(fitted - measured) / standard deviation of every row."""
    converged: bool = True
    at_bound: bool = False
    far_from_prior: tuple[str, ...] = ()
    posterior: Posterior | None = None
    """None without a prior."""


def prior_values(prior: Profile) -> dict[Key, float]:
    """Every coefficient of a profile."""
    return {
        (term, variant, name): value
        for term, variants in prior.values.items()
        for variant, entries in variants.items()
        for name, value in entries.items()
    }


def group_of(key: Key) -> str:
    """The scale that a coefficient moves with."""
    term, _, name = key
    meta = TERMS[term].coefficients.get(name) if term in TERMS else None
    return (meta.scale if meta else None) or term


def scale_width(prior: Profile, group: str) -> float:
    """Standard deviation of the logarithm of a scale before any run."""
    phase, _, part = group.partition(" ")
    if prior.kind == "calibrated":  # the host is known already: what is left is the difference between days
        return max(prior.session_spread.get(phase, 0.0), RELATIVE_SCATTER)
    between = prior.transfer_spread.get(phase, 0.0)
    return 1.0 if part else math.hypot(SMALL_SAMPLE * between, SCALE_FLOOR)


def deviation_width(prior: Profile, key: Key) -> float:
    """Standard deviation of the logarithm of a coefficient over its scale before any run."""
    term, variant, name = key
    entry = prior.coefficients[term][variant][name]
    own = prior.shape_spread.get(term, 0.1)
    if prior.kind == "calibrated" and entry.source == "fitted" and entry.std_error is not None:
        return max(min(own, entry.std_error / entry.value), RELATIVE_SCATTER)
    if entry.source == "fixed" and entry.std_error:
        own = max(own, entry.std_error / entry.value)
    return max(own, 0.02)


def maximise(rows: Rows, prior: Profile) -> Fitted:
    """The most probable coefficients. A scale that the median of the runs leaves by more than its width is centred there."""
    values = prior_values(prior)
    keys = [key for key in rows.keys() if values[key] > 0]  # noqa: SIM118  a method of rows
    groups = list(dict.fromkeys(map(group_of, keys)))
    blocks = _blocks_of(rows, {key: i for i, key in enumerate(keys)}, values)
    before = np.array([values[key] for key in keys])
    membership = np.zeros((len(keys), len(groups)))
    membership[np.arange(len(keys)), [groups.index(group_of(key)) for key in keys]] = 1.0
    basis = np.hstack([membership, np.eye(len(keys))])
    widths = np.array([*(scale_width(prior, g) for g in groups), *(deviation_width(prior, key) for key in keys)])
    centre = np.zeros(len(widths))
    far = _far_scales(rows, values, prior, groups)
    for group, (factor, _) in far.items():
        centre[groups.index(group)] = math.log(factor)

    def coefficients(p: Vector) -> Vector:
        return np.asarray(before * np.exp(basis @ p))

    def residuals(p: Vector) -> Vector:
        return np.concatenate([matrix @ coefficients(p) - target, (p - centre) / widths])

    def jacobian(p: Vector) -> Matrix:
        return np.vstack([(matrix * coefficients(p)) @ basis, np.diag(1.0 / widths)])

    # soft_l1 by iterated weights and Gauss-Newton steps; under fixed weights the rows of one pattern shrink to a
    # triangle without loss. The last round is left to the solver, which says whether it is a minimum.
    p, settled = centre.copy(), False
    for _ in range(MAX_ITERATIONS):
        matrix, target = _compressed(blocks, coefficients(p), len(keys))
        step = np.linalg.lstsq(jacobian(p), -residuals(p), rcond=None)[0]
        p = np.clip(p + np.clip(step, -1.0, 1.0), -MAX_SCALE, MAX_SCALE)
        if settled := float(np.max(np.abs(step))) < TOLERANCE:
            break
    bound = np.full(len(p), MAX_SCALE)
    solution = solve(Problem(residuals, jacobian, p, -bound, bound))
    found, slopes = coefficients(solution.values), jacobian(solution.values)
    # The posterior in its own units: residuals are standard deviations already.
    posterior = Posterior(tuple(keys), tuple(groups), basis, np.asarray(np.linalg.inv(slopes.T @ slopes)))
    spread = np.sqrt(np.diag(basis @ posterior.covariance @ basis.T))
    narrowed = spread < 0.7 * np.sqrt(np.diag(basis @ np.diag(widths**2) @ basis.T))
    scales = dict(
        zip(groups, solution.values, strict=False)
    )  # variants that no run had move with the scale of their phase
    moved = {key: v * math.exp(float(scales[g])) if (g := group_of(key)) in scales else v for key, v in values.items()}
    return Fitted(
        values=moved | {key: float(value) for key, value in zip(keys, found, strict=True)},
        sigmas={key: float(sigma) for key, sigma in zip(keys, found * spread, strict=True)},
        fitted=frozenset(key for key, is_narrowed in zip(keys, narrowed, strict=True) if is_narrowed),
        residuals=_row_residuals(blocks, found, len(rows.run)),
        converged=settled and solution.converged,
        at_bound=bool(solution.at_bound.any()),
        far_from_prior=tuple(
            f"{label}: {factor:.3g} times what {prior.name} has{_CAUSES.get(label, '')}"
            for factor, label in far.values()
        ),
        posterior=posterior,
    )


def _far_scales(
    rows: Rows, values: Mapping[Key, float], prior: Profile, groups: Sequence[str]
) -> dict[str, tuple[float, str]]:
    """Scales whose prior the runs refute by their median: group -> (measured / expected, phase or phases).

    The prior is about hosts of the usual kind. Where a host is of another kind, its runs say where the scale lies, and the prior
    only how far it may stray from there; else a lone run would count as an outlier of the prior. Figures of several phases speak
    for the groups that no figure of their own has.
    """
    single: dict[str, list[float]] = {}
    combined: dict[str, list[float]] = {}
    labels: dict[str, str] = {}
    homes = []
    for shape in rows.shapes:
        shares: Counter[str] = Counter()
        for term, variant, factors in shape.parts:
            for name, factor in factors:
                shares[group_of((term, variant, name))] += factor * values[term, variant, name]  # type: ignore[assignment]
        main, share = shares.most_common(1)[0] if shares else ("", 0.0)
        homes.append((single, (main,)) if share > 0.8 * shape.expected else (combined, tuple(shares)))
    expected = rows.expected()
    for row in np.flatnonzero((rows.seconds > 0) & (expected > 0)):
        table, members = homes[rows.shape[row]]
        for group in members:
            table.setdefault(group, []).append(float(rows.seconds[row] / expected[row]))
            labels.setdefault(group, rows.shapes[rows.shape[row]].label if table is single else group)
    found = {}
    for group in groups:
        factor = float(np.median(single.get(group) or combined.get(group) or [1.0]))
        if abs(math.log(factor)) > max(PRIOR_REJECTION_SIGMAS * scale_width(prior, group), SCALE_FLOOR):
            found[group] = (factor, labels[group])
    return found


# --- the linear model ---------------------------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Rows that involve the same coefficients."""

    columns: Indices
    rows: Indices
    matrix: Matrix
    """Factors over standard deviations."""
    target: Vector


def _blocks_of(rows: Rows, position: Mapping[Key, int], values: Mapping[Key, float]) -> list[_Block]:
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
        entries_of = [[factors_of[member][column] for column in columns] for member in members]
        table[members] = np.reshape(entries_of, (len(members), len(columns)))
        of, sigma = rows.shape[indices], rows.sigma[indices]
        target = (rows.seconds[indices] - constants[of]) / sigma
        blocks.append(_Block(np.array(columns, dtype=np.intp), indices, table[of] / sigma[:, None], target))
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
    residuals = np.zeros(count)
    for block in blocks:
        residuals[block.rows] = block.matrix @ values[block.columns] - block.target
    return residuals


def residuals_of(rows: Rows, values: Mapping[Key, float]) -> Vector:
    """(expected by these coefficients - measured) / standard deviation of every row."""
    keys = rows.keys()
    blocks = _blocks_of(rows, {key: i for i, key in enumerate(keys)}, values)
    return _row_residuals(blocks, np.array([values[key] for key in keys]), len(rows.run))
