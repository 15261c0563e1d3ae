"""Single-thread speed: a fixed piece of Python work, timed in the engine's own Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from calibration.probe import kernel
from calibration.probe.budget import Budget
from calibration.probe.child import Interpreter, ask
from calibration.probe.results import Found, Measurement, spread_of
from startup_model.errors import one_line

__all__ = [
    "CHECKSUM",
    "KERNEL",
    "PLAIN_BUILD",
    "PROCESSOR",
    "REFERENCE_SECONDS",
    "SCORE",
    "Batch",
    "judge_score",
    "run_kernel",
    "score_of",
]

KERNEL = "python_kernel"
SCORE = "single_thread_score"
PROCESSOR = "processor_score"
"""Measured beside ``SCORE`` where the two differ: what an optimised build would have."""

CHECKSUM = 250717113
"""Of one repetition of the kernel, in every Python."""

REFERENCE_SECONDS: Mapping[tuple[int, int], float] = {
    (3, 9): 0.109,
    (3, 10): 0.106,
    (3, 11): 0.102,
    (3, 12): 0.113,
    (3, 13): 0.106,
}
"""CPU seconds of one repetition on an AMD EPYC 9354 (score 1.0), by version of Python, for optimised builds.

Anchor: no such machine was at hand. A Zen 3 server processor (EPYC Milan, 2.45 GHz base, a virtual machine) took 0.117 s in its quietest
moments with Debian's build of Python 3.11. Processors of that line score 0.85 to 0.9 in the table of this project; 0.87 was taken, so that the
reference is 0.87 x 0.117 s. Allow 10 % for that anchor. The other versions stand in the proportion of builds of one kind, measured side by
side there.
"""

PLAIN_BUILD = 1.37
"""Times as long as an optimised build a plain one takes (a shared library that was configured without ``--enable-optimizations``, as pyenv
makes it on request): Python 3.11 on one machine. An engine that runs in such a build starts slower: its score holds the factor, that of the
processor does not."""

_MOST = 20
_LEAST_TIMEOUT_S = 10.0
_LEAST_WAIT_S = 1.0
_LEAST_VERSION = (3, 9)
_START_S = 0.5
_BUSY = 1.15


def score_of(seconds: float, version: tuple[int, int], *, plain: bool = False) -> float:
    """Single-thread score from the CPU seconds of one repetition.

    Equation: score = reference seconds of the version × (1.37 for a plain build) / seconds; an EPYC 9354 has 1.0.
    A version without a reference has that of the nearest one.
    """
    nearest = min(max(version, min(REFERENCE_SECONDS)), max(REFERENCE_SECONDS))
    return REFERENCE_SECONDS[nearest] * (PLAIN_BUILD if plain else 1.0) / seconds


class Batch(NamedTuple):
    """Repetitions of the kernel, one right after the other."""

    times: tuple[float, ...]
    """CPU seconds of each; none when something went wrong."""
    problem: str
    implementation: str
    """CPython, say."""
    plain: bool
    """Whether this Python is a plain build."""
    seconds: float
    """Wall time spent."""


def run_kernel(python: Interpreter, budget: Budget, whole: Budget | None = None) -> Batch:
    """Repeat the kernel in a Python as long as the time lasts, twice at least. ``whole``: after which it is not waited for any more, whatever it does."""
    if python.version[:2] < _LEAST_VERSION:
        return Batch((), f"the kernel needs Python 3.9 or newer, this is {python.shown_version}", "", False, 0.0)
    seconds = max(0.3, budget.left - _START_S)
    words = [python.path, "-I", "-S", str(Path(kernel.__file__)), str(_MOST), f"{seconds:.1f}"]
    patience = max(_LEAST_TIMEOUT_S, 3 * seconds)
    answer = ask(words, patience if whole is None else min(patience, max(_LEAST_WAIT_S, whole.left)))
    data = answer.data or {}
    times = _times(data)
    problem = "" if times else answer.problem or "the kernel printed something else"
    implementation = one_line(str(data.get("implementation")), 40)
    return Batch(times, problem, implementation, bool(data.get("plain")), answer.seconds)


def judge_score(python: Interpreter, batches: Sequence[Batch], *, is_engines: bool) -> Found:
    """Seconds of the kernel and the score: the smallest CPU time of all repetitions in all batches.

    is_engines: whether the engine runs in this Python. Then a plain build counts, because starts are as slow as that: ``single_thread_score`` is 1 / 1.37 of
    ``processor_score``. Else nothing is known of the engine's build, and the score is the processor's.

    CPU time, so that waiting for a core does not count; the smallest, because whatever else happens on the machine (a busy sibling thread, shared
    caches, a lower clock) only lengthens a repetition: the median of a busy host says how busy it was. Batches at several moments, because such
    a disturbance lasts for seconds.
    """
    times = [seconds for batch in batches for seconds in batch.times]
    if not times:
        return Found((), (f"single-thread score: not measured: {batches[0].problem if batches else 'no time'}",))
    plain = any(batch.plain for batch in batches)
    moments = sum(bool(batch.times) for batch in batches)
    words = f"kernel.py under Python {python.shown_version} at {moments} moment{'s' if moments > 1 else ''}, CPU seconds of the quickest"
    against = "a plain build" if plain else "an optimised build"
    processor = score_of(min(times), python.version[:2], plain=plain)
    counts = plain and is_engines
    spread, took = spread_of(times), sum(batch.seconds for batch in batches)

    def score(name: str, value: float, words: str) -> Measurement:
        return Measurement(name, value, "1", spread, len(times), None, words, 0.0)

    ratio = f"reference seconds of {against} / the above"
    measured = [Measurement(KERNEL, min(times), "s", spread, len(times), None, words, took)]
    if counts:
        measured.append(score(PROCESSOR, processor, ratio))
        measured.append(score(SCORE, processor / PLAIN_BUILD, "reference seconds of an optimised build / the same"))
    else:
        measured.append(score(SCORE, processor, ratio))
    implementation = next(batch.implementation for batch in batches if batch.times)
    return Found(tuple(measured), tuple(_warnings(python, implementation, times, plain=plain, counts=counts)))


def _times(data: Mapping[str, Any]) -> tuple[float, ...]:
    """CPU seconds of the repetitions; none when the checksum is not right."""
    if data.get("checksum") != CHECKSUM or not isinstance(data.get("seconds"), list):
        return ()
    times = tuple(float(value) for value in data["seconds"] if isinstance(value, int | float))
    return times if times and min(times) > 0 else ()


def _warnings(
    python: Interpreter, implementation: str, times: Sequence[float], *, plain: bool, counts: bool
) -> Iterator[str]:
    if python.version[:2] not in REFERENCE_SECONDS:
        yield f"single-thread score: no reference for Python {python.shown_version}; that of the nearest version was taken"
    if implementation != "CPython":
        yield f"single-thread score: the reference is CPython's, this is {implementation}"
    if plain:
        means = (
            "an engine in it starts as much slower, and the score says so"
            if counts
            else "the score is the processor's; give the engine's Python (python=, --python), whose build counts"
        )
        yield f"this Python is a plain build and takes about {PLAIN_BUILD:.2f} times as long as an optimised one: {means}"
    if median(times) > _BUSY * min(times):
        yield (
            f"single-thread score: the host was busy (median {median(times) / min(times):.2f} times the quickest), the score may be too low; "
            "probe again when it is quiet"
        )
