"""Memory bandwidth: copies of buffers far larger than the caches, by all cores that this process may use."""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.host import HostFacts
from calibration.probe.budget import Budget
from calibration.probe.results import Found, Measurement, spread_of
from startup_model.units import format_bytes

__all__ = ["available_memory", "cache_bytes", "measure_memory"]

MEMORY = "memory_copy"

_TIMES_CACHE = 4
_LEAST, _MOST = 2**28, 2**32
"""Bytes of both buffers together."""
_REPETITIONS = 12
_FALLBACK_CACHE = 32 * 2**20
_CPUS = Path("/sys/devices/system/cpu")

_Buffers = tuple[NDArray[np.float64], NDArray[np.float64]]
"""A source and a destination."""


def measure_memory(facts: HostFacts, budget: Budget) -> Found:
    """Bandwidth of copies, in B/s: the best repetition, since other jobs only ever slow one down.

    Equation: bandwidth = 2 × bytes copied / seconds; a copy reads and writes each byte.
    """
    begin = time.monotonic()
    caches = cache_bytes()
    total = min(max(2 * _TIMES_CACHE * caches, _LEAST), _MOST, int(available_memory() / 4))
    slices = _slices(total, facts.cores)
    if not slices:
        return Found((), ("memory bandwidth: too little memory is free to measure it",))
    moved = float(sum(source.nbytes for source, _ in slices) * 2)
    rates = _copy_rates(slices, budget)
    words = f"numpy copies, {len(slices)} at once, buffers {moved / caches:.0f} times the caches, best repetition"
    measured = Measurement(
        MEMORY, max(rates), "B/s", spread_of(rates), len(rates), moved / 2, words, time.monotonic() - begin
    )
    small = moved < 2 * _TIMES_CACHE * caches * 0.9
    warning = f"memory bandwidth: the buffers ({format_bytes(moved)}) are not much larger than the caches ({format_bytes(caches)})"
    return Found((measured,), (warning,) if small else ())


def _slices(total: int, threads: int) -> list[_Buffers]:
    """A source and a destination for each thread; empty when the memory is not to be had."""
    words = total // 2 // threads // 8
    if words < 2**10:
        return []
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_touched, words) for _ in range(threads)]
        try:
            return [job.result() for job in jobs]
        except MemoryError:
            return []


def _touched(words: int) -> _Buffers:
    """Buffers that are written to once, so that their pages are there."""
    return np.ones(words), np.zeros(words) + 1.0


def _copy_rates(slices: list[_Buffers], budget: Budget) -> list[float]:
    """Bytes read and written per second in each repetition; two at least, the first, which is not counted, aside."""
    moved = sum(source.nbytes for source, _ in slices) * 2

    def copy(pair: _Buffers) -> None:
        np.copyto(pair[1], pair[0])

    rates: list[float] = []
    with ThreadPoolExecutor(len(slices)) as pool:
        list(pool.map(copy, slices))
        while len(rates) < _REPETITIONS and (len(rates) < 2 or not budget.is_spent):
            before = time.perf_counter()
            list(pool.map(copy, slices))
            rates.append(moved / (time.perf_counter() - before))
    return rates


def cache_bytes() -> int:
    """Bytes of all last-level caches of the processors that this process may use; 32 MiB where the kernel does not say."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    sizes: dict[str, int] = {}
    for cpu in allowed:
        with contextlib.suppress(OSError, ValueError):
            levels = sorted((_CPUS / f"cpu{cpu}" / "cache").glob("index*"), key=lambda path: int(path.name[5:]))
            last = levels[-1]
            shared = (last / "shared_cpu_list").read_text(encoding="ascii").strip()
            sizes[shared] = _kib((last / "size").read_text(encoding="ascii"))
    return sum(sizes.values()) or _FALLBACK_CACHE


def _kib(text: str) -> int:
    """Bytes from the kernel's ``32768K``."""
    text = text.strip()
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def available_memory() -> float:
    """Bytes that can be had without swapping: the kernel's own estimate, less where a container is limited."""
    found = [2.0**31]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")] or found
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            most = float(Path(limit).read_text(encoding="ascii"))
            found.append(max(0.0, most - float(Path(usage).read_text(encoding="ascii"))))
    return min(found)
