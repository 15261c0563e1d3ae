"""Reading pieces of files with several threads, past the page cache or through it."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from calibration.probe.budget import Budget
from calibration.probe.memory import available_memory

__all__ = ["CHUNK", "EXTENT", "MOST_STREAMS", "Extent", "Reading", "can_read_directly", "memory_window", "read_streams"]

EXTENT = 2**25
"""Bytes of a piece."""
CHUNK = 2**23
"""Bytes of one read."""
MOST_STREAMS = 8
_NEARLY = 0.9
_WINDOW = 2**27
_LEAST_WINDOW = MOST_STREAMS * CHUNK


class Extent(NamedTuple):
    """A piece of a file."""

    path: Path
    offset: int
    size: int


class Reading(NamedTuple):
    """What some streams have read."""

    size: int
    """Bytes."""
    seconds: float
    """Wall time from their common start to the end of the last one."""
    planned: int
    """Bytes that they were to read; fewer were read where the time was up."""

    @property
    def is_cut_short(self) -> bool:
        """Whether a tenth or more was not read."""
        return self.size < _NEARLY * self.planned

    @property
    def bandwidth(self) -> float:
        """B/s of all streams together."""
        return self.size / self.seconds


@contextmanager
def memory_window() -> Iterator[memoryview]:
    """Memory to read into, whose pages are there: larger than most caches, and less where little is free."""
    size = max(_LEAST_WINDOW, min(_WINDOW, int(available_memory() / 16) // _LEAST_WINDOW * _LEAST_WINDOW))
    with mmap.mmap(-1, size) as buffer, memoryview(buffer) as view:
        for page in range(0, size, mmap.PAGESIZE):
            view[page] = 1
        yield view


def read_streams(
    extents: Sequence[Extent], streams: int, window: memoryview, budget: Budget, *, direct: bool = False
) -> Reading:
    """Read pieces with several threads, each its own run of them one after the other; ends early when the time is up.

    Each thread fills its share of the window again and again. Raises OSError.
    """
    number, share = len(extents), len(window) // streams // CHUNK * CHUNK
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(streams) as pool:
        jobs = []
        begin = time.perf_counter()
        for i in range(streams):
            part = extents[number * i // streams : number * (i + 1) // streams]
            place = stack.enter_context(window[i * share : (i + 1) * share])
            jobs.append(pool.submit(_read, part, place, budget, direct))
        size = sum(job.result() for job in jobs)
        return Reading(size, time.perf_counter() - begin, sum(extent.size for extent in extents))


def _read(extents: Sequence[Extent], window: memoryview, budget: Budget, direct: bool) -> int:
    """One stream; the bytes that it has read."""
    total = 0
    for extent in extents:
        descriptor = _open(extent.path, direct)
        try:
            total += _read_extent(descriptor, extent, window, total, budget)
        finally:
            os.close(descriptor)
        if budget.is_spent:
            break
    return total


def _read_extent(descriptor: int, extent: Extent, window: memoryview, begin: int, budget: Budget) -> int:
    """Read one piece, a chunk at a time, so that the time is looked at between them."""
    done = 0
    while done < extent.size:
        place = (begin + done) // CHUNK * CHUNK % len(window)
        with window[place : place + CHUNK] as part:
            count = os.preadv(descriptor, [part], extent.offset + done)
        done += count
        if count < CHUNK or budget.is_spent:  # the end of the file, or of the time
            break
    return done


def _open(path: Path, direct: bool) -> int:
    return os.open(path, os.O_RDONLY | (getattr(os, "O_DIRECT", 0) if direct else 0))


def can_read_directly(path: Path) -> bool:
    """Whether the file can be read past the page cache (O_DIRECT)."""
    if not hasattr(os, "O_DIRECT"):
        return False
    with contextlib.suppress(OSError):
        descriptor = _open(path, direct=True)
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as buffer, memoryview(buffer) as view:
                return os.preadv(descriptor, [view], 0) > 0
        finally:
            os.close(descriptor)
    return False
