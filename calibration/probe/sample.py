"""What a storage measurement reads: the weights in a folder, or a file of its own that is removed afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from calibration.host import checkpoint_files, evict, file_system_of
from calibration.probe.budget import Budget
from calibration.probe.memory import available_memory
from calibration.probe.readers import CHUNK, EXTENT, Extent
from startup_model.errors import InputFileError
from startup_model.files import is_folder
from startup_model.units import format_bytes

__all__ = ["LEAST", "Place", "Sample", "check_folder", "default_folder", "in_memory", "place_of", "sample_of"]

LEAST = 2**28
"""Bytes below which the weights in a folder are too few to be measured with."""
_FEW = CHUNK
"""Bytes of weights that do where no temporary file can be made beside them."""
_OWN = 2**30
_SHARE_OF_FREE = 8
"""Of the free space, at most 1 / 8 is filled."""
_MOST_EXTENTS = 4096
_IN_MEMORY = frozenset(["tmpfs", "ramfs", "hugetlbfs"])


class Sample(NamedTuple):
    """Pieces of files to read."""

    extents: tuple[Extent, ...]
    words: str
    """Whose bytes they are."""

    def turns(self, size: int) -> Iterator[tuple[Extent, ...]]:
        """About ``size`` bytes at a time, for ever: other ones each time as long as there are others, then from the start again."""
        number = max(1, min(len(self.extents), size // EXTENT))
        endless = cycle(self.extents)
        while True:
            yield tuple(islice(endless, number))


def check_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """The folder as a path. Raises InputFileError when it is not there, is no folder, or cannot be read."""
    if folder is None:
        return None
    remedy = "give the folder of a checkpoint, or none"
    try:
        path = Path(folder).expanduser()
        with os.scandir(path) as entries:
            next(entries, None)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"folder = {folder}: {reason}; {remedy}") from None
    return path


class Place(NamedTuple):
    """The folder whose storage is measured."""

    folder: Path | None
    """None: the one for temporary files."""
    moved: str
    """Why it is another one than was given; empty when it is not."""


def place_of(folder: Path | None) -> Place:
    """The folder itself, or the one for temporary files where it holds next to no weights and no file can be made in it."""
    if folder is None or _can_write(folder) or _size(_weights(folder)) >= _FEW:
        return Place(folder, "")
    other = default_folder()
    return Place(
        other,
        f"storage: {folder} holds next to no weights and no file can be made in it: measured in {other} instead, which may lie on another drive",
    )


def default_folder() -> Path:
    """The folder for temporary files, or one on a disk where that lies in memory."""
    usual, lasting = Path(tempfile.gettempdir()), Path("/var/tmp")  # noqa: S108  a file of a new name is made in it
    on_disk = is_folder(lasting) and os.access(lasting, os.W_OK) and not in_memory(lasting)
    return lasting if in_memory(usual) and on_disk else usual


def in_memory(folder: Path) -> bool:
    """Whether the file system of a folder lies in memory."""
    return file_system_of(folder).kind in _IN_MEMORY


@contextmanager
def sample_of(folder: Path | None, budget: Budget, least: int = LEAST) -> Iterator[Sample]:
    """The weights in a folder where they are ``least`` bytes or more, else a temporary file in it, which is removed; fewer weights where the folder is read-only.

    Raises InputFileError when nothing is to be had (disk full, folder read-only and as good as empty).
    """
    extents = _weights(folder) if folder is not None else ()
    size = _size(extents)
    if extents and size >= least:
        yield Sample(extents, "the folder's weights")
        return
    if folder is not None and size >= _FEW and not _can_write(folder):
        yield Sample(extents, f"the folder's weights (few: {format_bytes(size)}, and no file can be made beside them)")
        return
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
    pieces = (
        Extent(path, offset, min(EXTENT, size - offset))
        for path in files
        for size in (path.stat().st_size,)
        for offset in range(0, size, EXTENT)
    )
    return tuple(islice(pieces, _MOST_EXTENTS))


# --- a file of its own --------------------------------------------------------------------------------------------------


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
    size = min(_OWN, space.f_bavail * space.f_frsize // _SHARE_OF_FREE)
    if in_memory(folder):
        size = min(size, int(available_memory() / _SHARE_OF_FREE))
    if size < CHUNK:
        raise InputFileError(f"{folder}: too little space is left for a temporary file")
    return size // CHUNK * CHUNK


def _unlinked(descriptor: int, path: Path) -> Path:
    """Another way to an open file, whose name is removed at once: then nothing is left of it however this process ends.

    On local file systems of Linux; elsewhere the name stays until the end.
    """
    opened = Path(f"/proc/self/fd/{descriptor}")
    if file_system_of(path.parent).tier != "local_nvme":
        return path
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
