"""In which state the caches of a start were: as it says, as its times show, and the slower one where neither does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from calibration.gate.figures import CACHES, Cache, Expectation, Figure, Forecast, Piece
from startup_model.units import format_seconds

__all__ = ["CacheState", "find_states"]

_DISTINCT = 1.25
"""Two states can be told apart by a figure that takes so many times longer in one than in the other."""


class CacheState(NamedTuple):
    """The state of one cache in one start."""

    cache: Cache
    judged: tuple[str, ...]
    """States that the start is judged with, the faster first: one, or both where it is not known or contradicts its times."""
    seen: str
    """The one state that its times are nearest to."""
    is_other: bool
    """Whether the times show another state than the run says."""
    text: str
    """What there is to say about it; empty for the fast state that the run says and shows."""


def find_states(
    figures: Sequence[Figure], expectation: Expectation, factor: float, processor_factor: float = 1.0
) -> tuple[CacheState, ...]:
    """The state of every cache; ``processor_factor``: what the phases that no cache touches have moved by together, if they have.

    A state that the run says stands, unless the time of its own phase, t, is beyond ``factor`` of what that state takes and is what the other state takes:

        t > sqrt(fast × slow), the geometric mean of the two predictions [s], for the slow one; t <= sqrt(fast × slow) for the fast one

    and, as compiled graphs are either loaded or made, t within the interval of the prediction for a compile cache. The files of a checkpoint may be in memory in part: any load above
    the geometric mean came from storage in part. A state that the run does not say, or that its times contradict, is judged as the slower one; what is faster than the faster one is a gain.
    """
    return tuple(
        _state(cache, said, figures, expectation, factor, processor_factor)
        for cache, said in zip(CACHES, expectation.said, strict=True)
    )


def _state(
    cache: Cache,
    said: str,
    figures: Sequence[Figure],
    expectation: Expectation,
    factor: float,
    processor_factor: float,
) -> CacheState:
    fast, slow = (_forecast(expectation, cache, state) for state in (cache.fast, cache.slow))
    own = min(_own(cache, figures), key=lambda figure: len(figure.phases), default=None)
    stand_in = Figure(cache.phase, "phase", (cache.phase,), 0.0, 0.0) if own is None else own
    quick, long = (forecast.of(stand_in).shifted(processor_factor) for forecast in (fast, slow))
    if long.seconds <= quick.seconds * 1.001:  # switched off, or the same either way
        state = said if said in (cache.fast, cache.slow) else cache.fast
        return CacheState(cache, (state,), state, False, "")
    is_told = own is not None and long.seconds > max(quick.seconds * _DISTINCT, quick.seconds + own.resolution_s)
    if said not in (cache.fast, cache.slow):
        return _unknown(cache, own if is_told else None, quick, long)
    if own is not None and is_told:
        other = _shown(cache, said, own, quick, long, factor)
        if other is not None:
            return other
    text = ""
    if said == cache.slow:
        borrowed = f", {long.source}" if "borrowed" in long.source else ""
        text = (
            f"the start {cache.slow_words} ({cache.field}: {cache.slow}): {stand_in.name} is judged against {format_seconds(long.seconds)}{borrowed}, "
            f"not the {format_seconds(quick.seconds)} of a {cache.fast} one"
        )
    return CacheState(cache, (said,), said, False, text)


def _forecast(expectation: Expectation, cache: Cache, state: str) -> Forecast:
    """With this cache in a state, and the others as the run says, else in the fast one."""
    states = []
    for other, said in zip(CACHES, expectation.said, strict=True):
        known = said if said in (other.fast, other.slow) else other.fast
        states.append(state if other is cache else known)
    return expectation.forecast(tuple(states))


def _own(cache: Cache, figures: Sequence[Figure]) -> Iterator[Figure]:
    """Figures that hold the phase of a cache, beside few others."""
    return (f for f in figures if f.kind in ("phase", "sum") and cache.phase in f.phases and not f.is_partial)


def _unknown(cache: Cache, own: Figure | None, quick: Piece, long: Piece) -> CacheState:
    """The slower state is judged; which one it looks like is said where it can be told."""
    seen = cache.fast
    looks = ""
    if own is not None:
        seen = cache.slow if own.measured_s > _middle(quick, long) else cache.fast
        looks = f"; {own.name} of {format_seconds(own.measured_s)} looks {seen}"
    text = (
        f"{cache.field} is unknown: judged as {cache.slow}, the slower ({cache.slow} {format_seconds(long.seconds)}, {cache.fast} "
        f"{format_seconds(quick.seconds)}){looks}"
    )
    return CacheState(cache, (cache.fast, cache.slow), seen, False, text)


def _shown(cache: Cache, said: str, own: Figure, quick: Piece, long: Piece, factor: float) -> CacheState | None:
    """The other state than the run says, where only that explains its time."""
    seconds, resolution = own.measured_s, own.resolution_s
    is_slow = seconds > _middle(quick, long)
    if said == cache.fast:
        other, words = cache.slow, cache.slow_words
        is_beyond = seconds - resolution > quick.seconds * factor
        fits = is_slow and (cache.is_graded or long.low_s - resolution <= seconds <= long.high_s + resolution)
    else:
        other, words = cache.fast, cache.fast_words
        is_beyond = seconds + resolution < long.seconds / factor
        fits = not is_slow and quick.low_s - resolution <= seconds <= quick.high_s + resolution
    if not (is_beyond and fits):
        return None
    text = (
        f"the run says {cache.field}: {said}, but it seems to have {words}: {own.name} took {format_seconds(seconds)} "
        f"({cache.fast} {format_seconds(quick.seconds)}, {cache.slow} {format_seconds(long.seconds)} predicted); "
        "make sure of the state and start it again"
    )
    return CacheState(cache, (cache.fast, cache.slow), other, True, text)


def _middle(quick: Piece, long: Piece) -> float:
    return math.sqrt(quick.seconds * long.seconds)
