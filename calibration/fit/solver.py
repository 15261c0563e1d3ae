"""Non-linear least squares with bounds, robust on the residuals that are measurements and plain on those that are priors.

A thin layer over scipy.optimize.least_squares: columns are scaled, the loss is chosen residual by residual, and the result has one
boolean for each way to be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from startup_model.errors import StartupModelError

__all__ = ["Problem", "Solution", "solve"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_MOST_EVALUATIONS = 2000


class Problem(NamedTuple):
    """Minimise sum rho(r_i(p)^2) / 2 over lower <= p <= upper."""

    residuals: Callable[[Vector], Vector]
    """Parameters (n,) -> residuals (m,), each in units of its own standard deviation."""
    jacobian: Callable[[Vector], Matrix] | None
    """Parameters (n,) -> derivatives (m, n); None: by differences."""
    start: Vector
    lower: Vector
    upper: Vector
    robust: NDArray[np.bool_] | None = None
    """Where True, rho is soft_l1, 2 (sqrt(1 + z) - 1); elsewhere z. None: z everywhere."""
    tolerance: float = 1e-14
    """Relative change of cost, values and gradient at which the search stops."""


class Solution(NamedTuple):
    """Where the minimum lies, and how well it is known."""

    values: Vector
    covariance: Matrix
    """s^2 (J'J)^-1 of the undamped residuals, s^2 their mean square; columns at a bound are zero."""
    cost: float
    converged: bool
    at_bound: NDArray[np.bool_]
    message: str


def solve(problem: Problem) -> Solution:
    """The minimum of a problem.

    Raises StartupModelError when a residual is not a number at the start.
    """
    start = np.clip(problem.start, problem.lower, problem.upper)
    first = np.asarray(problem.residuals(start), dtype=float)
    if not np.all(np.isfinite(first)):
        bad = int(np.flatnonzero(~np.isfinite(first))[0])
        raise StartupModelError(
            f"residual {bad} = {first[bad]} at the start of the fit; check the measurement and its inputs"
        )
    # Columns of equal size, so that steps in seconds and in seconds per byte count alike.
    slopes = problem.jacobian(start) if problem.jacobian is not None else None
    size = np.ones_like(start) if slopes is None else np.sqrt(np.sum(np.square(slopes), axis=0))
    loss: Any = "linear" if problem.robust is None else _loss(problem.robust)  # scipy takes a name or a function
    result = least_squares(
        problem.residuals,
        start,
        jac=problem.jacobian if problem.jacobian is not None else "3-point",
        bounds=(problem.lower, problem.upper),
        method="trf",
        x_scale="jac" if slopes is None else 1.0 / np.where(size > 0, size, 1.0),
        loss=loss,
        ftol=problem.tolerance,
        xtol=problem.tolerance,
        gtol=problem.tolerance,
        max_nfev=_MOST_EVALUATIONS,
    )
    values, at_bound = _snapped(problem, np.asarray(result.x), np.asarray(result.grad))
    if problem.robust is None:
        values = _refined(problem, values, ~at_bound)
    residuals = np.asarray(problem.residuals(values), dtype=float)
    final = _slopes(problem, values)
    return Solution(
        values=values,
        covariance=_covariance(final, residuals, at_bound),
        cost=_cost(problem, values),
        converged=bool(result.status > 0),
        at_bound=at_bound,
        message=str(result.message),
    )


def _loss(robust: NDArray[np.bool_]) -> Callable[[Vector], Matrix]:
    """soft_l1 on the residuals marked robust, the plain square on the others: (rho, rho', rho'') of z = r^2."""

    def rho(z: Vector) -> Matrix:
        root = np.sqrt(1.0 + z)
        value = np.where(robust, 2.0 * (root - 1.0), z)
        slope = np.where(robust, 1.0 / root, 1.0)
        curve = np.where(robust, -0.5 / root**3, 0.0)
        return np.stack([value, slope, curve])

    return rho


_NEAR = 1e-4
"""A value counts as at its bound when it is so near (relative to its own scale) and the cost falls beyond."""


def _snapped(problem: Problem, values: Vector, gradient: Vector) -> tuple[Vector, NDArray[np.bool_]]:
    """Values that an interior method left just inside a bound, put on it; and which are at one."""
    reach = _NEAR * np.maximum(1.0, np.abs(values))
    low = (values - problem.lower <= reach) & (gradient > 0)
    high = (problem.upper - values <= reach) & (gradient < 0)
    snapped = np.where(low, problem.lower, np.where(high, problem.upper, values))
    worse = _cost(problem, snapped) > _cost(problem, values) * (1 + 1e-9) + 1e-12
    return (values, (values <= problem.lower) | (values >= problem.upper)) if worse else (snapped, low | high)


def _slopes(problem: Problem, values: Vector) -> Matrix:
    """The Jacobian of the undamped residuals (scipy's own result is scaled by the loss)."""
    if problem.jacobian is not None:
        return np.asarray(problem.jacobian(values), dtype=float)
    bounds = (problem.lower, problem.upper)
    return np.asarray(
        least_squares(problem.residuals, values, jac="3-point", bounds=bounds, max_nfev=1).jac, dtype=float
    )


def _cost(problem: Problem, values: Vector) -> float:
    z = np.square(problem.residuals(values))
    return float(np.sum(z if problem.robust is None else _loss(problem.robust)(z)[0])) / 2.0


def _refined(problem: Problem, values: Vector, free: NDArray[np.bool_]) -> Vector:
    """Two Gauss-Newton steps by orthogonal factorisation: the last digits of a plain problem, where they lower the cost."""
    if problem.jacobian is None or not free.any():
        return values
    for _ in range(2):
        residuals = problem.residuals(values)
        slopes = problem.jacobian(values)[:, free]
        size = np.sqrt(np.sum(np.square(slopes), axis=0))
        size[size == 0] = 1.0
        step, *_rest = np.linalg.lstsq(slopes / size, -residuals, rcond=None)
        better = values.copy()
        better[free] += step / size
        better = np.clip(better, problem.lower, problem.upper)
        if not np.sum(np.square(problem.residuals(better))) <= np.sum(np.square(residuals)):
            break
        values = better
    return values


def _covariance(slopes: Matrix, residuals: Vector, at_bound: NDArray[np.bool_]) -> Matrix:
    covariance = np.zeros((slopes.shape[1], slopes.shape[1]))
    free = ~at_bound
    freedom = len(residuals) - int(free.sum())
    if not free.any() or freedom <= 0:
        return covariance
    x = slopes[:, free]
    size = np.sqrt(np.sum(np.square(x), axis=0))
    size[size == 0] = 1.0
    _, singular, rotation = np.linalg.svd(x / size, full_matrices=False)
    keep = singular > singular[0] * 1e-14
    inverse = (rotation[keep].T / singular[keep] ** 2) @ rotation[keep]
    variance = float(residuals @ residuals) / freedom
    covariance[np.ix_(free, free)] = variance * inverse / np.outer(size, size)
    return covariance
