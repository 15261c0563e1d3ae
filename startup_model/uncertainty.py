"""How far a prediction may be off: quantiles and the spread of a total, without scipy in the request path."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from startup_model.errors import ConfigError
from startup_model.formula import Values

__all__ = ["DEFAULT_LEVEL", "check_level", "check_probability", "spread_factor", "student_quantile"]


_LARGEST_LOGARITHM = 709.0
"""Beyond it there is no floating-point number."""

DEFAULT_LEVEL = 0.9
"""Probability of an interval where none is asked for."""

LARGEST_LEVEL = 0.999
"""The spreads rest on few hosts and runs: nothing beyond can be said."""


def check_level(level: float) -> float:
    """``level`` when it is a probability of an interval. Raises ConfigError unless 0 < level <= 0.999."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0.0 < level <= LARGEST_LEVEL:
        raise ConfigError(
            "level", level, f"it should lie between 0 and {LARGEST_LEVEL}", "0.9 asks for a 90 % interval"
        )
    return float(level)


def check_probability(probability: float) -> float:
    """``probability`` when a quantile can be asked for at it. Raises ConfigError unless it lies within 0.0005 to 0.9995."""
    least = round((1.0 - LARGEST_LEVEL) / 2.0, 12)
    if (
        isinstance(probability, bool)
        or not isinstance(probability, int | float)
        or not least <= probability <= 1.0 - least
    ):
        raise ConfigError(
            "probability",
            probability,
            f"it should lie between {least:g} and {1.0 - least:g}",
            "0.9 asks for the time that 9 of 10 starts stay below",
        )
    return float(probability)


@lru_cache(maxsize=256)
def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution; ``degrees`` 0 stands for infinitely many (the normal distribution).

    Exact for 1 and 2 degrees of freedom, else the expansion of Abramowitz and Stegun 26.7.5 to fourth order in 1 /
    degrees (better than 0.2 % from 3 degrees on, for probabilities up to 0.99).
    """
    normal = NormalDist().inv_cdf(probability)
    if degrees <= 0:
        return normal
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z, n = normal, float(degrees)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4


def spread_factor(shared: Values, own: Values, probability: float) -> Values:
    """exp(± √(shared² + own²)): the factor on a time at a probability, + above one half.

    shared, own [1]: quantiles, at that probability, of the two independent parts of its logarithm; numbers or arrays.
    """
    if isinstance(shared, np.ndarray) or isinstance(own, np.ndarray):
        factor: Values = np.exp(np.copysign(np.hypot(shared, own), probability - 0.5))
        return factor
    logarithm = math.copysign(math.hypot(shared, own), probability - 0.5)
    return math.exp(logarithm) if logarithm < _LARGEST_LOGARITHM else math.inf
