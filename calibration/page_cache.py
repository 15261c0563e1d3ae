"""The page cache and the files of a checkpoint: read them into it, take them out of it, see what it holds of them."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from startup_model.errors import InputFileError, StartupModelError

__all__ = [
    "Part",
    "checkpoint_files",
    "drop_all_caches",
    "evict",
    "may_be_seen",
    "read_into_cache",
    "resident_fraction",
]

_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
_CHUNK = 2**23
_MOST_FILES = 10_000
_STEP = 2**30
"""Bytes of a file that are mapped at a time."""

Part = tuple[Path, int, int]
"""A piece of a file: its path, where the piece begins [B], its length [B]."""


def checkpoint_files(folder: Path) -> list[Path]:
    """Files of a checkpoint: all weights in its folder, safetensors alone where there are any, as engines load them.

    Raises InputFileError when the folder is not there, or holds none.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())[:_MOST_FILES]
    except OSError as error:
        raise InputFileError(f"{folder}: {error.strerror or error}; give the folder of a checkpoint") from None
    tensors = [path for path in files if path.suffix == ".safetensors"]
    if not files:
        raise InputFileError(f"{folder}: no weights in it; give the folder of a checkpoint")
    return tensors or files


def read_into_cache(files: Iterable[Path], tell: Callable[[int], object] = lambda done: None) -> int:
    """Read every file to its end, so that the page cache holds what it can; returns the bytes read [B]. ``tell`` hears how many, once in a GiB.

    Files larger than the free memory push each other out: see ``resident_fraction``. Raises InputFileError for a file that is not there or cannot be read.
    """
    total = 0
    buffer = bytearray(_CHUNK)
    for path in files:
        with _opened(path) as descriptor:
            while count := os.readv(descriptor, [buffer]):
                if total // _STEP != (total + count) // _STEP:
                    tell(total + count)
                total += count
    return total


def evict(files: Iterable[Path | Part]) -> None:
    """Take files, or pieces of them, out of the page cache (``posix_fadvise`` DONTNEED), what was written to them on disk first.

    It needs no privilege beyond reading them. It is advice: pages that another process maps or reads at the moment stay, and nothing says so; see ``resident_fraction``.
    Raises StartupModelError on a platform without ``posix_fadvise``, InputFileError for a file that is not there or cannot be read.
    """
    if not hasattr(os, "posix_fadvise"):
        raise StartupModelError(
            "this platform cannot take files out of the page cache: choose page_cache='hot' or 'as_is'"
        )
    for path, begin, length in map(_part, files):
        with _opened(path) as descriptor:
            with contextlib.suppress(OSError):
                os.fdatasync(descriptor)  # dirty pages would stay
            os.posix_fadvise(descriptor, begin, length or 0, os.POSIX_FADV_DONTNEED)


def drop_all_caches() -> None:
    """Empty the page cache of the whole host. Raises StartupModelError without the privilege."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    except OSError as error:
        raise StartupModelError(
            f"drop_caches: {error.strerror or error}: root is needed; leave it out, the checkpoint's own files are evicted without it"
        ) from None


def may_be_seen(path: Path) -> bool:
    """Whether the kernel tells this process which pages of a file are in memory: it owns the file, or may write it.

    For other files Linux (since 5.2) says that all of them are, so that nobody can watch what others read. False for a file that is not there.
    """
    try:
        owner = path.stat().st_uid
    except OSError:
        return False
    effective = os.access in os.supports_effective_ids
    return owner == os.geteuid() or os.access(path, os.W_OK, effective_ids=effective)


def resident_fraction(files: Iterable[Path | Part]) -> float | None:
    """Share [1] of the pages of some files, or pieces of them, that the page cache holds (``mincore``): 0 none, 1 all.

    None where nothing says so: a platform without ``mincore``, a file that this process neither owns nor may write (see ``may_be_seen``), or files without a byte.
    Raises InputFileError for a file that is not there or cannot be read.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "mincore"):
        return None
    page = mmap.PAGESIZE
    held = total = 0
    for path, begin, piece in map(_part, files):
        with _opened(path) as descriptor:
            if not may_be_seen(path):
                return None
            size = os.fstat(descriptor).st_size
            end = size if piece is None else min(size, begin + piece)
            for offset in range(begin // page * page, end, _STEP):
                length = min(_STEP, end - offset)
                pages = -(-length // page)
                # A private writable mapping is never written to: only such a one gives ctypes its address.
                with mmap.mmap(
                    descriptor, length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=offset
                ) as mapped:
                    present = (ctypes.c_ubyte * pages)()
                    view = ctypes.c_char.from_buffer(mapped)
                    failed = library.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(length), present)
                    del view
                if failed:
                    return None
                held += _count(present)
                total += pages
    return held / total if total else None


def _part(entry: Path | Part) -> tuple[Path, int, int | None]:
    """Path, begin and length [B]; None: to the end of the file."""
    return (entry[0], entry[1], entry[2]) if isinstance(entry, tuple) else (entry, 0, None)


def _count(present: Any) -> int:
    """How many bytes have their lowest bit set."""
    import numpy as np

    return int(np.count_nonzero(np.frombuffer(present, dtype=np.uint8) & 1))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; is the checkpoint still there?") from None
    try:
        yield descriptor
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; is the checkpoint still there?") from None
    finally:
        os.close(descriptor)
