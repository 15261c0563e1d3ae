"""The least-squares solver: the certified values of NIST StRD, and the properties that the estimator relies on.

`reference/nist_strd.json` holds observations, certified values and starts as NIST publishes them; fits in exact
rational (linear) and 60-digit (nonlinear) arithmetic reproduce every certified number to the digits printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls

from calibration.fit.solver import Problem, Solution, solve
from startup_model import StartupModelError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

NIST = json.loads((Path(__file__).parent / "reference" / "nist_strd.json").read_text(encoding="utf-8"))
LINEAR = ("Norris", "Longley")
NONLINEAR = ("Misra1a", "Thurber")
SEEDS = st.integers(0, 2**32 - 1)
quick = settings(max_examples=25, deadline=None)


class Fit(NamedTuple):
    """A least-squares problem without its start and bounds."""

    residuals: Callable[[Vector], Vector]
    jacobian: Callable[[Vector], Matrix]

    def problem(self, start: Vector, *, lower: Vector | None = None, upper: Vector | None = None) -> Problem:
        """The solver's problem, unbounded where no bound is given."""
        return Problem(
            self.residuals,
            self.jacobian,
            start,
            np.full(len(start), -np.inf) if lower is None else lower,
            np.full(len(start), np.inf) if upper is None else upper,
        )

    def gradient(self, values: Vector) -> Vector:
        """Of half the sum of squares."""
        gradient: Vector = self.jacobian(values).T @ self.residuals(values)
        return gradient

    def errors(self, values: Vector) -> Vector:
        """Standard errors: roots of the diagonal of s^2 (J'J)^-1, by a QR decomposition of columns of equal size."""
        residuals, jacobian = self.residuals(values), self.jacobian(values)
        size = np.sqrt(np.sum(jacobian**2, axis=0))
        inverse = np.linalg.inv(np.linalg.qr(jacobian / size, mode="r"))
        scatter = float(residuals @ residuals) / (len(residuals) - len(values))
        errors: Vector = np.sqrt(scatter * np.sum(inverse**2, axis=1)) / size
        return errors


def linear(design: Matrix, observed: Vector) -> Fit:
    return Fit(lambda p: design @ p - observed, lambda p: design.copy())


def exponential(x: Vector, y: Vector) -> Fit:
    """y = b1 (1 - exp(-b2 x)); a step far off may overflow, which is the solver's to reject."""

    def residuals(p: Vector) -> Vector:
        with np.errstate(over="ignore", invalid="ignore"):
            left: Vector = p[0] * -np.expm1(-p[1] * x) - y
            return left

    def jacobian(p: Vector) -> Matrix:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.column_stack([-np.expm1(-p[1] * x), p[0] * x * np.exp(-p[1] * x)])

    return Fit(residuals, jacobian)


def rational(x: Vector, y: Vector) -> Fit:
    """y = (b1 + b2 x + b3 x^2 + b4 x^3) / (1 + b5 x + b6 x^2 + b7 x^3)."""
    powers = np.vander(x, 4, increasing=True)

    def residuals(p: Vector) -> Vector:
        return (powers @ p[:4]) / (1 + powers[:, 1:] @ p[4:]) - y

    def jacobian(p: Vector) -> Matrix:
        below = 1 + powers[:, 1:] @ p[4:]
        ratio = (powers @ p[:4]) / below
        return np.hstack([powers, -ratio[:, None] * powers[:, 1:]]) / below[:, None]

    return Fit(residuals, jacobian)


def nist_fit(name: str) -> Fit:
    rows = np.array(NIST[name]["rows"], dtype=np.float64)
    if name in LINEAR:
        return linear(np.column_stack([np.ones(len(rows)), rows[:, 1:]]), rows[:, 0])
    return {"Misra1a": exponential, "Thurber": rational}[name](rows[:, 1], rows[:, 0])


def nist_starts(name: str) -> list[Vector]:
    unknowns = len(NIST[name]["certified_values"])
    if name in LINEAR:
        return [np.zeros(unknowns), np.ones(unknowns)]
    return [np.array(start, dtype=np.float64) for start in NIST[name]["starts"]]


def fewest_digits(found: Vector, certified: list[float]) -> float:
    """Correct significant digits of the worst value: -log10 of its relative error, 15 at most."""
    expected = np.array(certified)
    return float(np.min(-np.log10(np.maximum(np.abs(found - expected) / np.abs(expected), 1e-15))))


def solved(problem: Problem) -> Solution:
    """The solution, with what holds of every one that converged."""
    start = problem.start.copy()
    solution = solve(problem)
    assert solution.converged
    assert solution.values.shape == solution.at_bound.shape == start.shape
    assert np.all((solution.values >= problem.lower) & (solution.values <= problem.upper))
    assert not np.any(solution.at_bound & np.isinf(problem.lower) & np.isinf(problem.upper))
    np.testing.assert_array_equal(problem.start, start, err_msg="the solver changed the caller's start")
    return solution


def random_linear(seed: int, observations: int, unknowns: int, *, scale: float = 1.0) -> tuple[Fit, Matrix, Vector]:
    """A normal, so well-conditioned, design with noise of 1 sigma around coefficients of `scale` of either sign."""
    random = np.random.default_rng(seed)
    design = random.normal(size=(observations, unknowns))
    observed = design @ random.normal(scale=scale, size=unknowns) + random.normal(size=observations)
    return linear(design, observed), design, observed


@pytest.mark.parametrize(
    ("name", "observations", "unknowns"),
    [("Norris", 36, 2), ("Longley", 16, 7), ("Misra1a", 14, 2), ("Thurber", 37, 7)],
)
def test_the_certified_data_sets_are_whole(name: str, observations: int, unknowns: int) -> None:
    data = NIST[name]
    assert np.shape(data["rows"]) == (observations, len(data["columns"]))
    assert len(data["certified_values"]) == len(data["certified_standard_deviations"]) == unknowns
    assert [len(start) for start in data["starts"]] == ([] if name in LINEAR else [unknowns, unknowns])
    residuals = nist_fit(name).residuals(np.array(data["certified_values"]))
    assert float(residuals @ residuals) == pytest.approx(data["certified_residual_sum_of_squares"], rel=1e-8)


@pytest.mark.parametrize("name", [*LINEAR, *NONLINEAR])
@pytest.mark.parametrize("start", [0, 1])
def test_certified_values_come_out(name: str, start: int) -> None:
    """Six digits of the values, four of the standard deviations; Longley in raw units, with columns from 1 to 5e5."""
    data, fit = NIST[name], nist_fit(name)
    solution = solved(fit.problem(nist_starts(name)[start]))
    assert fewest_digits(solution.values, data["certified_values"]) >= 6
    assert fewest_digits(fit.errors(solution.values), data["certified_standard_deviations"]) >= 4
    residuals = fit.residuals(solution.values)
    assert float(residuals @ residuals) == pytest.approx(data["certified_residual_sum_of_squares"], rel=1e-6)


@quick
@given(seed=SEEDS, exponents=st.lists(st.integers(-6, 6), min_size=3, max_size=3))
def test_units_of_the_parameters_do_not_matter(seed: int, exponents: list[int]) -> None:
    """The same fit with its columns in other units gives the same values in those units."""
    fit, design, observed = random_linear(seed, 20, 3)
    units = 10.0 ** np.array(exponents)
    plain = solved(fit.problem(np.zeros(3)))
    other = linear(design * units, observed)
    scaled = solved(other.problem(np.zeros(3)))
    np.testing.assert_allclose(scaled.values * units, plain.values, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(other.errors(scaled.values) * units, fit.errors(plain.values), rtol=1e-6)


@quick
@given(seed=SEEDS)
def test_non_negative_bounds_are_respected(seed: int) -> None:
    """As non-negative least squares has it; nothing outside the bounds is even tried."""
    fit, design, observed = random_linear(seed, 15, 4)
    tried: list[Vector] = []

    def residuals(p: Vector) -> Vector:
        tried.append(p.copy())
        return fit.residuals(p)

    problem = fit._replace(residuals=residuals).problem(np.ones(4), lower=np.zeros(4))
    solution = solved(problem)
    expected, norm = nnls(design, observed)
    assert np.all(np.array(tried) >= 0)
    assert np.all(solution.values >= 0)
    np.testing.assert_allclose(solution.values, expected, atol=1e-5)
    assert float(np.sum(fit.residuals(solution.values) ** 2)) == pytest.approx(norm**2, rel=1e-6)
    gradient = fit.gradient(expected)
    assert np.all(solution.at_bound[(expected == 0) & (gradient > 1e-2)])
    assert not np.any(solution.at_bound[expected > 1e-2])


@quick
@given(seed=SEEDS, on_bound=st.booleans())
def test_a_box_is_respected_from_inside_and_from_its_corner(seed: int, on_bound: bool) -> None:
    """The gradient vanishes along free parameters and points out of the box along the others."""
    fit, _, _ = random_linear(seed, 20, 4, scale=2.0)
    lower, upper = np.array([0.5, -1.0, -np.inf, -0.25]), np.array([1.5, np.inf, 1.0, 0.75])
    start = np.array([0.5, -1.0, 1.0, 0.75]) if on_bound else np.array([1.0, 0.0, 0.0, 0.5])
    solution = solved(fit.problem(start, lower=lower, upper=upper))
    gradient = fit.gradient(solution.values)
    np.testing.assert_allclose(gradient[~solution.at_bound], 0, atol=1e-4)
    at_lower = np.isclose(solution.values, lower, rtol=0, atol=1e-8)
    at_upper = np.isclose(solution.values, upper, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(solution.at_bound & ~(at_lower | at_upper), False)
    assert np.all(gradient[solution.at_bound & at_lower] >= -1e-4)
    assert np.all(gradient[solution.at_bound & at_upper] <= 1e-4)


def test_a_bound_at_either_side_is_reported() -> None:
    fit = linear(np.eye(3)[[0, 1, 2, 2]], np.array([-1.0, 5.0, 0.4, 0.6]))
    solution = solved(fit.problem(np.full(3, 0.5), lower=np.zeros(3), upper=np.ones(3)))
    np.testing.assert_allclose(solution.values, [0, 1, 0.5], atol=1e-7)
    assert solution.at_bound.tolist() == [True, True, False]


@quick
@given(
    seed=SEEDS,
    weights=st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
    prior=st.lists(st.floats(-10, 10), min_size=3, max_size=3),
)
def test_prior_rows_shrink_as_the_ridge_formula_says(seed: int, weights: list[float], prior: list[float]) -> None:
    """(A'A + W^2) p = A'y + W^2 p0."""
    _, design, observed = random_linear(seed, 20, 3)
    weight, centre = np.array(weights), np.array(prior)
    fit = linear(np.vstack([design, np.diag(weight)]), np.concatenate([observed, weight * centre]))
    solution = solved(fit.problem(np.zeros(3)))
    expected = np.linalg.solve(design.T @ design + np.diag(weight**2), design.T @ observed + weight**2 * centre)
    np.testing.assert_allclose(solution.values, expected, rtol=1e-7, atol=1e-7)


def test_a_perfect_fit_comes_out() -> None:
    x = np.linspace(0.1, 4, 25)
    solution = solved(exponential(x, 5 * -np.expm1(-0.7 * x)).problem(np.array([3.0, 1.0])))
    np.testing.assert_allclose(solution.values, [5, 0.7], rtol=1e-7)


@pytest.mark.parametrize("which", [slice(None), slice(7, 8)])
def test_nan_from_the_residuals_is_refused(which: slice) -> None:
    fit, _, observed = random_linear(1, 30, 3)
    observed[which] = np.nan
    with pytest.raises(StartupModelError, match=r"(?i)\bnan\b|finite"):
        solve(fit.problem(np.zeros(3)))
