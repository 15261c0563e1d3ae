"""Storage: how fast weights are read, from the device and from the page cache, by one reader and by several at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import NamedTuple

from calibration.host import evict, may_be_seen, resident_fraction
from calibration.probe.budget import Budget
from calibration.probe.memory import available_memory
from calibration.probe.readers import (
    EXTENT,
    MOST_STREAMS,
    Extent,
    Reading,
    can_read_directly,
    memory_window,
    read_streams,
)
from calibration.probe.results import Found, Measurement, spread_of
from calibration.probe.sample import LEAST, Sample, default_folder, in_memory, sample_of
from startup_model.errors import StartupModelError
from startup_model.units import format_bandwidth, format_bytes

__all__ = ["BUFFERED", "STREAMS", "cold_name", "hot_name", "measure_storage"]

STREAMS = (1, 2, 4, 8)
BUFFERED = "storage_cold_buffered"
"""One reader through the page cache, its readahead included; engines that map their files read like that."""

_READ = 2**29
"""Bytes of one repetition."""
_REPETITIONS = 3
_WRITING_SHARE = 0.3
_COLD_SHARE = 0.7
_STILL_RESIDENT = 0.1
_LIKE_HOT = 0.7

_Turns = Iterator[tuple[Extent, ...]]


class _Way(NamedTuple):
    """A way of reading that is measured."""

    name: str
    streams: int
    how: str
    read: Callable[[Budget], Reading | str]
    """Words: why it could not be done."""


class _Measured(NamedTuple):
    """What the ways of one kind come to."""

    found: Found
    cut: tuple[str, ...] = ()
    """Ways for which the time was up before three repetitions were read to their end."""


def cold_name(streams: int) -> str:
    """Name of the measurement from the device."""
    return f"storage_cold_{streams}"


def hot_name(streams: int) -> str:
    """Name of the measurement from the page cache."""
    return f"storage_hot_{streams}"


def measure_storage(folder: Path | None, budget: Budget, say: Callable[[str], None], *, least: int = LEAST) -> Found:
    """Sequential read bandwidth in B/s: ``storage_cold_N`` from the device and ``storage_hot_N`` from the page cache, by N readers at once.

    Equation: bandwidth = bytes of all readers / wall seconds; the median of the repetitions. A repetition reads 512 MiB, or stops when its
    time is up; cold ones read other bytes each time, as far as there are others. A folder with less than ``least`` bytes of weights gets
    a temporary file.
    """
    if not hasattr(os, "preadv"):
        return Found((), ("storage: not measured: this platform has no preadv",))
    size = max(MOST_STREAMS * EXTENT, min(_READ, int(available_memory() / 8)))
    say("storage: preparing")
    try:
        with sample_of(folder, budget.part(_WRITING_SHARE), least) as sample, memory_window() as window:
            cold = _Measured(_NO_DISK)
            if not in_memory(folder or default_folder()):
                cold = _measured(_cold_ways(sample, size, window), sample, budget.part(_COLD_SHARE), say)
            hot = _measured(_hot_ways(sample, size, window, budget), sample, budget, say)
    except (OSError, StartupModelError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        return Found((), (f"storage: not measured: {reason}",))
    found = cold.found.joined(hot.found)
    return found.joined(Found((), (*_cut_short((*cold.cut, *hot.cut)), *_suspicions(found))))


_NO_DISK = Found(
    (), ("storage: this file system lies in memory, nothing on it is cold; predict with page_cache='hot'",)
)


def _measured(ways: list[_Way], sample: Sample, budget: Budget, say: Callable[[str], None]) -> _Measured:
    """Repetitions of each way, one at least, as long as its share of the time lasts."""
    found, warnings, cut = [], [], []
    for index, way in enumerate(ways):
        if way.streams > len(sample.extents):
            warnings.append(f"storage: {way.name}: too few bytes for {way.streams} readers at once, left out")
            continue
        say(f"storage: {way.name}")
        begin = time.monotonic()
        share = budget.part(1 / (len(ways) - index))
        try:
            readings = _repeat(way, share)
        except OSError as error:
            warnings.append(f"storage: {way.name}: {error.strerror or error}, left out")
            continue
        if isinstance(readings, str):
            warnings.append(f"storage: {way.name}: {readings}, left out")
            continue
        if len(readings) < _REPETITIONS or any(reading.is_cut_short for reading in readings):
            cut.append(way.name)
        rates = [reading.bandwidth for reading in readings]
        words = f"{way.streams} sequential reader{'s' if way.streams > 1 else ''}, {sample.words}, {way.how}"
        read = median(reading.size for reading in readings)
        taken = time.monotonic() - begin
        found.append(Measurement(way.name, median(rates), "B/s", spread_of(rates), len(rates), read, words, taken))
    return _Measured(Found(tuple(found), tuple(warnings)), tuple(cut))


def _repeat(way: _Way, budget: Budget) -> list[Reading] | str:
    """The readings, or why there are none."""
    readings: list[Reading] = []
    while len(readings) < _REPETITIONS and not (readings and budget.is_spent):
        reading = way.read(budget.part(1 / (_REPETITIONS - len(readings))))
        if isinstance(reading, str):
            return reading
        if reading.size == 0:
            return "nothing could be read"
        readings.append(reading)
    return readings


# --- ways ---------------------------------------------------------------------------------------------------------------


def _cold_ways(sample: Sample, size: int, window: memoryview) -> list[_Way]:
    """Past the page cache where the file system can do that, and one reader through it; else all of evicted files."""
    turns = sample.turns(size)
    seen = all(map(may_be_seen, {extent.path for extent in sample.extents}))
    evicted = f"through the page cache, evicted before (fadvise{'' if seen else ', unchecked: files of another user'})"
    if not can_read_directly(sample.extents[0].path):
        return [_Way(cold_name(n), n, evicted, partial(_read_evicted, turns, n, window)) for n in STREAMS]
    direct = "past the page cache (O_DIRECT)"
    ways = [_Way(cold_name(n), n, direct, partial(_read_direct, turns, n, window)) for n in STREAMS]
    return [ways[0], _Way(BUFFERED, 1, evicted, partial(_read_evicted, turns, 1, window)), *ways[1:]]


def _hot_ways(sample: Sample, size: int, window: memoryview, budget: Budget) -> list[_Way]:
    """The same bytes again and again, after they were read once."""
    extents = next(sample.turns(size))
    filled = read_streams(extents, 1, window, budget.part(0.5))
    how = f"from the page cache into memory (the same {format_bytes(filled.size)}, read before)"
    kept = _covered(extents, filled.size)
    read = partial(_read_hot, kept, filled.planned, window)
    return [_Way(hot_name(n), n, how, partial(read, n)) for n in STREAMS if n <= len(kept)]


def _covered(extents: tuple[Extent, ...], size: int) -> tuple[Extent, ...]:
    """The first pieces that ``size`` bytes hold whole; one at least."""
    ends = accumulate(extent.size for extent in extents)
    return extents[: max(1, sum(end <= size for end in ends))]


def _read_direct(turns: _Turns, streams: int, window: memoryview, budget: Budget) -> Reading:
    return read_streams(next(turns), streams, window, budget, direct=True)


def _read_evicted(turns: _Turns, streams: int, window: memoryview, budget: Budget) -> Reading | str:
    """Of files that were taken out of the page cache first; not where they are seen to stay in it."""
    extents = next(turns)
    try:
        evict(extents)
        held = resident_fraction(extents)
    except StartupModelError as error:
        return str(error)
    if held is not None and held > _STILL_RESIDENT:
        return "the files stay in the page cache (in use?)"
    return read_streams(extents, streams, window, budget)


def _read_hot(extents: tuple[Extent, ...], planned: int, window: memoryview, streams: int, budget: Budget) -> Reading:
    """``planned``: bytes that were to be in the page cache."""
    return read_streams(extents, streams, window, budget)._replace(planned=planned)


def _cut_short(names: Iterable[str]) -> Iterator[str]:
    """Which measurements ended before their three readings."""
    if names := list(names):
        yield f"storage: the time was up before all was read, fewer bytes count: {', '.join(names)}; give more seconds"


def _suspicions(found: Found) -> Iterator[str]:
    """Numbers that do not look like what they should be."""
    cold, hot = found.value(cold_name(1)), found.value(hot_name(1))
    if cold is not None and hot is not None and cold >= _LIKE_HOT * hot:
        rates = f"cold ({format_bandwidth(cold)}) is hardly slower than hot ({format_bandwidth(hot)})"
        yield f"storage: {rates}: the drives are very fast, or the host of a virtual machine caches; a first start may read slower"
