"""Storage: how fast weights are read, from the device and from the page cache, by one reader and by several at once."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from calibration.host import checkpoint_files, evict, file_system_of, may_be_seen, resident_fraction
from calibration.probe.memory import available_memory
from calibration.probe.results import Budget, Found, Measurement
from startup_model.errors import InputFileError, StartupModelError
from startup_model.files import is_folder
from startup_model.units import format_bandwidth, format_bytes

STREAMS = (1, 2, 4, 8)
BUFFERED = "storage_cold_buffered"
"""One reader through the page cache, its readahead included; engines that map their files read like that."""

EXTENT = 2**25  # bytes of a piece
CHUNK = 2**23  # bytes of one read
MIN_WEIGHTS = 2**28  # below which the weights in a folder are too few to be measured with
_FEW = CHUNK  # bytes of weights that do where no temporary file can be made beside them
_MAX_OWN = 2**30
_SHARE_OF_FREE = 8  # of the free space, at most 1 / 8 is filled
_MAX_EXTENTS = 4096
_MAX_WINDOW, _MIN_WINDOW = 2**27, STREAMS[-1] * CHUNK
_MAX_READ = 2**29  # bytes of one repetition
_REPETITIONS = 3
_WRITING_SHARE, _COLD_SHARE = 0.3, 0.7
_STILL_RESIDENT, _LIKE_HOT, _NEARLY = 0.1, 0.7, 0.9
_IN_MEMORY = frozenset(["tmpfs", "ramfs", "hugetlbfs"])
_NO_DISK = "storage: this file system lies in memory, nothing on it is cold; predict with page_cache='hot'"


def cold_name(streams: int) -> str:
    return f"storage_cold_{streams}"


def hot_name(streams: int) -> str:
    return f"storage_hot_{streams}"


class Extent(NamedTuple):
    path: Path
    offset: int
    size: int


class Reading(NamedTuple):
    """What some streams have read."""

    size: int  # bytes
    seconds: float  # wall time from their common start to the end of the last one
    planned: int  # bytes that they were to read; fewer were read where the time was up

    @property
    def is_cut_short(self) -> bool:
        """Whether a tenth or more was not read."""
        return self.size < _NEARLY * self.planned

    @property
    def bandwidth(self) -> float:
        return self.size / self.seconds


@contextmanager
def memory_window() -> Iterator[memoryview]:
    """Memory to read into, whose pages are there: larger than most caches, and less where little is free."""
    size = max(_MIN_WINDOW, min(_MAX_WINDOW, int(available_memory() / 16) // _MIN_WINDOW * _MIN_WINDOW))
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
        places = [stack.enter_context(window[i * share : (i + 1) * share]) for i in range(streams)]
        parts = [extents[number * i // streams : number * (i + 1) // streams] for i in range(streams)]
        begin = time.perf_counter()
        size = sum(pool.map(lambda part, place: _read(part, place, budget, direct), parts, places))
        return Reading(size, time.perf_counter() - begin, sum(extent.size for extent in extents))


def _read(extents: Sequence[Extent], window: memoryview, budget: Budget, direct: bool) -> int:
    """One stream, a chunk at a time, so that the time is looked at between them; the bytes that it has read."""
    total = 0
    for extent in extents:
        with _opened(extent.path, direct) as descriptor:
            for offset in range(0, extent.size, CHUNK):
                place = total // CHUNK * CHUNK % len(window)
                with window[place : place + CHUNK] as part:
                    count = os.preadv(descriptor, [part], extent.offset + offset)
                total += count
                if budget.is_spent:
                    return total
                if count < CHUNK:  # the end of the file
                    break
    return total


@contextmanager
def _opened(path: Path, direct: bool) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | (getattr(os, "O_DIRECT", 0) if direct else 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def can_read_directly(path: Path) -> bool:
    """Whether the file can be read past the page cache (O_DIRECT)."""
    try:
        with _opened(path, True) as descriptor, mmap.mmap(-1, mmap.PAGESIZE) as page, memoryview(page) as view:
            return hasattr(os, "O_DIRECT") and os.preadv(descriptor, [view], 0) > 0
    except OSError:
        return False


class Sample(NamedTuple):
    """Pieces of files to read."""

    extents: tuple[Extent, ...]
    words: str  # whose bytes they are

    def turns(self, size: int) -> Iterator[tuple[Extent, ...]]:
        """About ``size`` bytes at a time, for ever: other ones each time as long as there are others, then from the start again."""
        number = max(1, min(len(self.extents), size // EXTENT))
        endless = cycle(self.extents)
        while True:
            yield tuple(islice(endless, number))


class Place(NamedTuple):
    folder: Path | None  # whose storage is measured; None: the one for temporary files
    moved: str = ""  # why it is another one than was given; empty when it is not


def check_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """The folder as a path. Raises InputFileError when it is not there, is no folder, or cannot be read."""
    if folder is None:
        return None
    try:
        path = Path(folder).expanduser()
        with os.scandir(path) as entries:
            next(entries, None)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"folder = {folder}: {reason}; give the folder of a checkpoint, or none") from None
    return path


def place_of(folder: Path | None) -> Place:
    """The folder itself, or the one for temporary files where it holds next to no weights and no file can be made in it."""
    if folder is None or _can_write(folder) or _size(_weights(folder)) >= _FEW:
        return Place(folder)
    other = default_folder()
    why = f"{folder} holds next to no weights and no file can be made in it"
    return Place(other, f"storage: {why}: measured in {other} instead, which may lie on another drive")


def default_folder() -> Path:
    """The folder for temporary files, or one on a disk where that lies in memory."""
    usual, lasting = Path(tempfile.gettempdir()), Path("/var/tmp")  # noqa: S108  a file of a new name is made in it
    on_disk = is_folder(lasting) and os.access(lasting, os.W_OK) and not in_memory(lasting)
    return lasting if in_memory(usual) and on_disk else usual


def in_memory(folder: Path) -> bool:
    return file_system_of(folder).kind in _IN_MEMORY


@contextmanager
def sample_of(folder: Path | None, budget: Budget, least: int = MIN_WEIGHTS) -> Iterator[Sample]:
    """The weights in a folder where they are ``least`` bytes or more, else a temporary file in it, which is removed; fewer weights where the folder is read-only.

    Raises InputFileError when nothing is to be had (disk full, folder read-only and as good as empty).
    """
    extents = _weights(folder) if folder is not None else ()
    size = _size(extents)
    if extents and size >= least:
        yield Sample(extents, "the folder's weights")
    elif folder is not None and size >= _FEW and not _can_write(folder):
        yield Sample(extents, f"the folder's weights (few: {format_bytes(size)}, and no file can be made beside them)")
    else:
        why = "no folder given" if folder is None else f"the folder holds {format_bytes(size)} of weights"
        with _own_file(folder or default_folder(), budget) as path:
            yield Sample(_extents([path]), f"a temporary file ({why})")


def _weights(folder: Path) -> tuple[Extent, ...]:
    try:
        return _extents(path for path in checkpoint_files(folder) if os.access(path, os.R_OK))
    except (InputFileError, OSError):
        return ()


def _size(extents: Iterable[Extent]) -> int:
    return sum(extent.size for extent in extents)


def _can_write(folder: Path) -> bool:
    """Whether a file can be made in a folder, as far as its permissions and its mount tell."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _extents(files: Iterable[Path]) -> tuple[Extent, ...]:
    """Files cut into pieces, up to a number that no probe reads to its end."""
    sizes = ((path, path.stat().st_size) for path in files)
    pieces = (Extent(path, at, min(EXTENT, size - at)) for path, size in sizes for at in range(0, size, EXTENT))
    return tuple(islice(pieces, _MAX_EXTENTS))


@contextmanager
def _own_file(folder: Path, budget: Budget) -> Iterator[Path]:
    """A file of bytes that do not compress, written to the disk and taken out of the page cache."""
    try:
        size = _own_size(folder)
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".startup-model-probe-")
    except OSError as error:
        raise InputFileError(f"no temporary file can be made in {folder} ({error.strerror or error})") from None
    try:
        path = _unlinked(descriptor, Path(name))
        try:
            _fill(descriptor, size, budget)
        except OSError as error:
            raise InputFileError(f"the temporary file could not be written ({error.strerror or error})") from None
        if hasattr(os, "posix_fadvise"):
            evict([path])
        yield path
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)


def _own_size(folder: Path) -> int:
    """Bytes of the file: a share of the free space at most, and of the memory where the folder lies in it."""
    space = os.statvfs(folder)
    free = min(space.f_bavail * space.f_frsize, available_memory() if in_memory(folder) else math.inf)
    if size := min(_MAX_OWN, int(free / _SHARE_OF_FREE)) // CHUNK * CHUNK:
        return size
    raise InputFileError(f"{folder}: too little space is left for a temporary file")


def _unlinked(descriptor: int, path: Path) -> Path:
    """Another way to an open file, whose name is removed at once, so that nothing is left however this process ends; on local file systems of Linux."""
    opened = Path(f"/proc/self/fd/{descriptor}")
    if file_system_of(path.parent).tier == "local_nvme":
        with contextlib.suppress(OSError):
            if opened.exists():
                path.unlink()
                return opened
    return path


def _fill(descriptor: int, size: int, budget: Budget) -> None:
    """Write until the size is reached or the time is up, one chunk at least, and wait for the disk."""
    block = random.Random(0).randbytes(CHUNK)  # noqa: S311  nothing secret
    for written in range(0, size, CHUNK):
        if written and budget.is_spent:
            break
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if written % EXTENT == 0:
            os.fdatasync(descriptor)
    os.fdatasync(descriptor)


class _Way(NamedTuple):
    """A way of reading that is measured."""

    name: str
    streams: int
    how: str
    read: Callable[[Budget], Reading]


def measure_storage(folder: Path | None, budget: Budget, say: Callable[[str], None], *, least: int = MIN_WEIGHTS) -> Found:  # fmt: skip
    """Sequential read bandwidth in B/s: ``storage_cold_N`` from the device and ``storage_hot_N`` from the page cache, by N readers at once.

    Equation: bandwidth = bytes of all readers / wall seconds; the median of the repetitions. A repetition reads 512 MiB, or stops when its
    time is up; cold ones read other bytes each time, as far as there are others. A folder with less than ``least`` bytes of weights gets
    a temporary file.
    """
    if not hasattr(os, "preadv"):
        return Found.warn("storage: not measured: this platform has no preadv")
    size = max(STREAMS[-1] * EXTENT, min(_MAX_READ, int(available_memory() / 8)))
    cut: list[str] = []
    say("storage: preparing")
    try:
        with sample_of(folder, budget.part(_WRITING_SHARE), least) as sample, memory_window() as window:
            found = Found.warn(_NO_DISK)
            if not in_memory(folder or default_folder()):
                found = _measured(_cold_ways(sample, size, window), sample, budget.part(_COLD_SHARE), say, cut)
            found = found.joined(_measured(_hot_ways(sample, size, window, budget), sample, budget, say, cut))
    except (OSError, StartupModelError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        return Found.warn(f"storage: not measured: {reason}")
    return found.joined(Found((), (*_cut_short(cut), *_suspicions(found))))


def _measured(ways: list[_Way], sample: Sample, budget: Budget, say: Callable[[str], None], cut: list[str]) -> Found:
    """Repetitions of each way, one at least, as long as its share of the time lasts; ``cut`` gets the ways for which that was not enough."""
    found, warnings = [], []
    for index, way in enumerate(ways):
        begin = time.monotonic()
        try:
            if way.streams > len(sample.extents):
                raise StartupModelError(f"too few bytes for {way.streams} readers at once")
            say(f"storage: {way.name}")
            readings = _repeat(way, budget.part(1 / (len(ways) - index)))
        except (OSError, StartupModelError) as error:
            warnings.append(f"storage: {way.name}: {getattr(error, 'strerror', None) or error}, left out")
            continue
        if len(readings) < _REPETITIONS or any(reading.is_cut_short for reading in readings):
            cut.append(way.name)
        rates = [reading.bandwidth for reading in readings]
        words = f"{way.streams} sequential reader{'s' if way.streams > 1 else ''}, {sample.words}, {way.how}"
        size = median(reading.size for reading in readings)
        found.append(Measurement.of(way.name, rates, "B/s", words, time.monotonic() - begin, size=size))
    return Found(tuple(found), tuple(warnings))


def _repeat(way: _Way, budget: Budget) -> list[Reading]:
    """One reading at least. Raises OSError, or StartupModelError where there is none."""
    readings: list[Reading] = []
    while len(readings) < _REPETITIONS and not (readings and budget.is_spent):
        readings.append(way.read(budget.part(1 / (_REPETITIONS - len(readings)))))
        if not readings[-1].size:
            raise StartupModelError("nothing could be read")
    return readings


def _cold_ways(sample: Sample, size: int, window: memoryview) -> list[_Way]:
    """Past the page cache where the file system can do that, and one reader through it; else all of evicted files."""
    turns = sample.turns(size)
    seen = all(map(may_be_seen, {extent.path for extent in sample.extents}))
    evicted = f"through the page cache, evicted before (fadvise{'' if seen else ', unchecked: files of another user'})"
    if not can_read_directly(sample.extents[0].path):
        return [_Way(cold_name(n), n, evicted, partial(_read_evicted, turns, n, window)) for n in STREAMS]

    def read(streams: int, left: Budget) -> Reading:
        return read_streams(next(turns), streams, window, left, direct=True)

    ways = [_Way(cold_name(n), n, "past the page cache (O_DIRECT)", partial(read, n)) for n in STREAMS]
    return [ways[0], _Way(BUFFERED, 1, evicted, partial(_read_evicted, turns, 1, window)), *ways[1:]]


def _hot_ways(sample: Sample, size: int, window: memoryview, budget: Budget) -> list[_Way]:
    """The same bytes again and again, after they were read once."""
    extents = next(sample.turns(size))
    filled = read_streams(extents, 1, window, budget.part(0.5))
    how = f"from the page cache into memory (the same {format_bytes(filled.size)}, read before)"
    ends = accumulate(extent.size for extent in extents)
    kept = extents[: max(1, sum(end <= filled.size for end in ends))]  # that were read whole; one at least

    def read(streams: int, left: Budget) -> Reading:
        return read_streams(kept, streams, window, left)._replace(planned=filled.planned)

    return [_Way(hot_name(n), n, how, partial(read, n)) for n in STREAMS if n <= len(kept)]


def _read_evicted(turns: Iterator[tuple[Extent, ...]], streams: int, window: memoryview, budget: Budget) -> Reading:
    """Of files that were taken out of the page cache first. Raises StartupModelError where they cannot be, or are seen to stay in it."""
    extents = next(turns)
    evict(extents)
    if (resident_fraction(extents) or 0.0) > _STILL_RESIDENT:
        raise StartupModelError("the files stay in the page cache (in use?)")
    return read_streams(extents, streams, window, budget)


def _cut_short(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"storage: the time was up before all was read, fewer bytes count: {', '.join(names)}; give more seconds"


def _suspicions(found: Found) -> Iterator[str]:
    """Numbers that do not look like what they should be."""
    cold, hot = found.value(cold_name(1)), found.value(hot_name(1))
    if cold is not None and hot is not None and cold >= _LIKE_HOT * hot:
        rates = f"cold ({format_bandwidth(cold)}) is hardly slower than hot ({format_bandwidth(hot)})"
        yield f"storage: {rates}: the drives are very fast, or the host of a virtual machine caches; a first start may read slower"
