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
from calibration.probe.results import Budget, Found, Measurement
from startup_model.units import format_bytes

MEMORY = "memory_copy"
_TIMES_CACHE, _REPETITIONS = 4, 12
_MIN_BYTES, _MAX_BYTES = 2**28, 2**32  # of both buffers together
_FALLBACK_CACHE = 32 * 2**20
_CPUS = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}

_Buffers = tuple[NDArray[np.float64], NDArray[np.float64]]  # a source and a destination


def measure_memory(facts: HostFacts, budget: Budget) -> Found:
    """Bandwidth of copies, in B/s: the best repetition, since other jobs only ever slow one down.

    Equation: bandwidth = 2 × bytes copied / seconds; a copy reads and writes each byte.
    """
    begin = time.monotonic()
    caches = cache_bytes()
    total = min(max(2 * _TIMES_CACHE * caches, _MIN_BYTES), _MAX_BYTES, int(available_memory() / 4))
    slices = _slices(total, facts.cores)
    if not slices:
        return Found.warn("memory bandwidth: too little memory is free to measure it")
    moved = float(sum(source.nbytes for source, _ in slices) * 2)
    rates: list[float] = []
    with ThreadPoolExecutor(len(slices)) as pool:
        while len(rates) < _REPETITIONS + 1 and (len(rates) < 3 or not budget.is_spent):
            before = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), slices))
            rates.append(moved / (time.perf_counter() - before))
    del rates[0]  # it warms up
    words = f"numpy copies, {len(slices)} at once, buffers {moved / caches:.0f} times the caches, best repetition"
    took = time.monotonic() - begin
    found = Found((Measurement.of(MEMORY, rates, "B/s", words, took, value=max(rates), size=moved / 2),))
    if moved >= 2 * _TIMES_CACHE * caches * 0.9:
        return found
    sizes = f"the buffers ({format_bytes(moved)}) are not much larger than the caches ({format_bytes(caches)})"
    return found._replace(warnings=(f"memory bandwidth: {sizes}",))


def _slices(total: int, threads: int) -> list[_Buffers]:
    """Buffers for each thread, written to once, so that their pages are there; none when the memory is not to be had."""
    words = total // 2 // threads // 8
    if words < 2**10:
        return []
    with ThreadPoolExecutor(threads) as pool:
        try:
            return list(pool.map(lambda _: (np.ones(words), np.zeros(words) + 1.0), range(threads)))
        except MemoryError:
            return []


def cache_bytes() -> int:
    """Bytes of all last-level caches of the processors that this process may use; 32 MiB where the kernel does not say."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    sizes: dict[str, int] = {}
    for cpu in allowed:
        with contextlib.suppress(OSError, ValueError, IndexError):
            last = max((_CPUS / f"cpu{cpu}" / "cache").glob("index*"), key=lambda path: int(path.name[5:]))
            shared, size = ((last / name).read_text(encoding="ascii").strip() for name in ("shared_cpu_list", "size"))
            sizes[shared] = int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
    return sum(sizes.values()) or _FALLBACK_CACHE


def available_memory() -> float:
    """Bytes that can be had without swapping: the kernel's own estimate, less where a container is limited."""
    found = [2.0**31]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")] or found
    for names in _LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limit, used = (float((_CGROUPS / name).read_text(encoding="ascii")) for name in names)
            found.append(max(0.0, limit - used))
    return min(found)
