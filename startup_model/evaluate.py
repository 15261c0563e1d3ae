"""Evaluate terms: numbers give the times of a prediction, arrays those of a sweep, coefficients one by one a row of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from startup_model.errors import out_of_range
from startup_model.formula import Values, maximum
from startup_model.recipe import Call

DEFAULT_LEVEL = 0.9
"""Probability of an interval where none is asked for."""

MAX_LEVEL = 0.999
"""The spreads rest on few hosts and runs: nothing beyond can be said."""

_MAX_LOGARITHM = 709.0  # beyond it there is no floating-point number
_STEP = 2.0**-20  # of a coefficient, where a term is not a sum of what each of its coefficients gives


class Time(NamedTuple):
    """Time of one phase [s]: a number, or an array."""

    seconds: Any
    """What it adds to the total."""
    elapsed: Any
    """How long it runs; more than ``seconds`` where it runs beside a longer phase."""


new_tuple: Any = tuple.__new__  # builds a NamedTuple in a third of its constructor's time: for the request path


def times(calls: Mapping[str, Sequence[Call]], waits: Mapping[str, tuple[str, ...]]) -> dict[str, Time]:
    """Times of all phases: each is the sum of its terms, and adds to the total as far as it lies on the longest way through the start.

    end[phase] = elapsed[phase] + max(end[w] for w in waits[phase]). waits: empty where each phase waits for the one before it. The ``seconds``
    sum to the end of the last phase (element by element for arrays); of ways of equal length the first counts.
    """
    elapsed: dict[str, Any] = {}
    for name, found in calls.items():
        total: Any = 0.0
        for term, inputs, coefficients, scale, _, _, _ in found:
            total = total + term.function(*inputs, **coefficients) * scale
        elapsed[name] = total
    if not waits:
        return {name: new_tuple(Time, (value, value)) for name, value in elapsed.items()}
    begins = begins_of(elapsed, waits)
    *_, last = elapsed
    counts: dict[str, Any] = {last: True}
    for name in reversed(elapsed):
        open_way = counts[name]
        for wanted in waits[name]:
            taken = open_way
            if len(waits[name]) > 1:  # the first of the ways that end when the phase begins
                taken = open_way & (begins[wanted] + elapsed[wanted] == begins[name])
                open_way = open_way & (taken ^ True)
            counts[wanted] = counts[wanted] | taken if wanted in counts else taken
    return {name: Time(value * counts[name], value) for name, value in elapsed.items()}


def begins_of(elapsed: Mapping[str, Any], waits: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """When each phase begins [s], from how long each runs: begin[phase] = max(begin[w] + elapsed[w] for w in waits[phase]).

    A phase that ``waits`` does not say anything of waits for the one before it.
    """
    begins: dict[str, Any] = {}
    before: tuple[str, ...] = ()
    for name in elapsed:
        ends = [begins[wanted] + elapsed[wanted] for wanted in waits.get(name) or before]
        begins[name] = reduce(maximum, ends) if ends else 0.0
        before = (name,)
    return begins


def shared_spread(
    found: Mapping[str, Time], calls: Mapping[str, Sequence[Call]], spreads: Mapping[str, Any], total: Any
) -> Any:
    """Standard deviation of the logarithm that the phases share, relative to the total: Σ seconds × (spread + seconds in doubt / elapsed) / total."""
    spread: Any = 0.0
    for name, (seconds, elapsed) in found.items():
        doubted = sum(call.doubted_seconds() for call in calls.get(name, ()) if call.doubts)
        spread = spread + seconds * (spreads.get(name, 0.0) + _ratio(doubted, elapsed))
    return _ratio(spread, total)


def own_spread(common: Any, total: Any, segments: Iterable[tuple[Any, Any]]) -> Any:
    """Standard deviation of the logarithm that is independent of the host: √(Σ (deviation × seconds)²) / total over the time to ready and each segment.

    segments: (seconds, deviation) of those that the total holds.
    """
    pairs = [*segments]
    if not pairs:
        return common
    ready = total - sum(seconds for seconds, _ in pairs)
    squares = (common * ready) ** 2 + sum((spread * seconds) ** 2 for seconds, spread in pairs)
    return _ratio(squares**0.5, total)


def _ratio(above: Any, below: Any) -> Any:
    """above / below; 0 where there is nothing below."""
    if isinstance(above, np.ndarray) or isinstance(below, np.ndarray):
        shape = np.broadcast_shapes(np.shape(above), np.shape(below))
        return np.divide(above, below, out=np.zeros(shape), where=np.broadcast_to(np.asarray(below) > 0, shape))
    return above / below if below > 0 else 0.0


def design(call: Call) -> dict[str, float]:
    """Coefficient -> seconds for each unit of it: a row of the linear model that a fit solves.

    seconds = Σ factor[j] × coefficient[j]: the term called with one coefficient 1 and all others 0. Where the term is no such sum (reading
    and copying overlap), the factors are its derivatives at the call's coefficients, which sum to it as well.
    """
    zero = dict.fromkeys(call.coefficients, 0.0)
    factors = {name: call._replace(coefficients=zero | {name: 1.0}).seconds() for name in call.coefficients}
    whole = call.seconds()
    if not math.isclose(sum(factors[name] * value for name, value in call.coefficients.items()), whole, rel_tol=1e-9):
        for name, value in call.coefficients.items():
            less = call._replace(coefficients={**call.coefficients, name: value * (1.0 - _STEP)}).seconds()
            factors[name] = (whole - less) / (value * _STEP) if value else factors[name]
    return {name: float(factor) for name, factor in factors.items()}


# --- how far a time may be off ------------------------------------------------------------------------------------------


def check_level(level: float) -> float:
    """``level`` when it is a probability of an interval. Raises ConfigError unless 0 < level <= 0.999."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0.0 < level <= MAX_LEVEL:
        raise out_of_range("level", level, f"above 0 and at most {MAX_LEVEL}", "0.9 asks for a 90 % interval")
    return float(level)


def check_probability(probability: float) -> float:
    """``probability`` when a quantile can be asked for at it. Raises ConfigError unless it lies within 0.0005 to 0.9995."""
    least = round((1.0 - MAX_LEVEL) / 2.0, 12)
    if (
        isinstance(probability, bool)
        or not isinstance(probability, int | float)
        or not least <= probability <= 1.0 - least
    ):
        remedy = "0.9 asks for the time that 9 of 10 starts stay below"
        raise out_of_range("probability", probability, f"between {least:g} and {1.0 - least:g}", remedy)
    return float(probability)


@lru_cache(maxsize=256)
def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution; ``degrees`` 0 stands for infinitely many (the normal distribution).

    Exact for 1 and 2 degrees of freedom, else the expansion of Abramowitz and Stegun 26.7.5 to fourth order in 1 /
    degrees (better than 0.2 % from 3 degrees on, for probabilities up to 0.99): scipy stays out of the request path.
    """
    from statistics import NormalDist

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
    return math.exp(logarithm) if logarithm < _MAX_LOGARITHM else math.inf
