"""Non-linear least squares with bounds: scipy.optimize.least_squares in equal columns, its result put on the bounds that it ends at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from startup_model.errors import StartupModelError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_MAX_EVALUATIONS = 2000
_TOLERANCE = 1e-14  # relative change of cost, values and gradient at which the search stops
_NEAR = 1e-4  # a value counts as at its bound when it is so near (relative to its own scale) and the cost falls beyond


class Problem(NamedTuple):
    """Minimise Σ r_i(p)² / 2 over lower <= p <= upper."""

    residuals: Callable[[Vector], Vector]
    """Parameters (n,) -> residuals (m,), each in units of its own standard deviation."""
    jacobian: Callable[[Vector], Matrix]
    """Parameters (n,) -> derivatives (m, n)."""
    start: Vector
    lower: Vector
    upper: Vector


class Solution(NamedTuple):
    """Where the minimum lies."""

    values: Vector
    converged: bool
    at_bound: NDArray[np.bool_]


def solve(problem: Problem) -> Solution:
    """The minimum of a problem. Raises StartupModelError when a residual is not a number at the start."""
    start = np.clip(problem.start, problem.lower, problem.upper)
    first = problem.residuals(start)
    if not np.all(np.isfinite(first)):
        bad = int(np.flatnonzero(~np.isfinite(first))[0])
        raise StartupModelError(
            f"residual {bad} = {first[bad]} at the start of the fit; check the measurement and its inputs"
        )
    size = np.sqrt(np.sum(np.square(problem.jacobian(start)), axis=0))
    result = least_squares(
        problem.residuals,
        start,
        jac=problem.jacobian,
        bounds=(problem.lower, problem.upper),
        x_scale=1.0 / np.where(size > 0, size, 1.0),  # steps in seconds and in seconds per byte count alike
        **dict.fromkeys(("ftol", "xtol", "gtol"), _TOLERANCE),
        max_nfev=_MAX_EVALUATIONS,
    )
    values, at_bound = _snapped(problem, np.asarray(result.x), np.asarray(result.grad))
    return Solution(values, bool(result.status > 0), at_bound)


def _cost(problem: Problem, values: Vector) -> float:
    return float(np.sum(np.square(problem.residuals(values))))


def _snapped(problem: Problem, values: Vector, gradient: Vector) -> tuple[Vector, NDArray[np.bool_]]:
    """Values that an interior method left just inside a bound, put on it; and which are at one."""
    reach = _NEAR * np.maximum(1.0, np.abs(values))
    low = (values - problem.lower <= reach) & (gradient > 0)
    high = (problem.upper - values <= reach) & (gradient < 0)
    snapped = np.where(low, problem.lower, np.where(high, problem.upper, values))
    if _cost(problem, snapped) > _cost(problem, values) * (1 + 1e-9) + 2e-12:
        return values, (values <= problem.lower) | (values >= problem.upper)
    return snapped, low | high
