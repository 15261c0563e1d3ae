"""The state of a host before a start: what of the checkpoint is in the page cache, and where compiled graphs are kept."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from startup_model.errors import InputFileError, StartupModelError

__all__ = [
    "checkpoint_files",
    "drop_all_caches",
    "evict",
    "fresh_compile_cache",
    "read_into_cache",
    "resident_fraction",
]

_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
_CHUNK = 2**23
_MOST_FILES = 10_000
_STEP = 2**30
"""Bytes of a file that are mapped at a time."""


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


def read_into_cache(files: Iterable[Path]) -> int:
    """Read every file to its end, so that the page cache holds what it can; the bytes read."""
    total = 0
    buffer = bytearray(_CHUNK)
    for path in files:
        with _opened(path) as descriptor:
            while count := os.readv(descriptor, [buffer]):
                total += count
    return total


def evict(files: Iterable[Path]) -> None:
    """Take files out of the page cache (``posix_fadvise`` DONTNEED, no privilege needed; pages that others map stay)."""
    if not hasattr(os, "posix_fadvise"):
        raise StartupModelError(
            "this platform cannot take files out of the page cache: choose page_cache='hot' or 'as_is'"
        )
    for path in files:
        with _opened(path) as descriptor:
            with contextlib.suppress(OSError):
                os.fdatasync(descriptor)  # dirty pages would stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def drop_all_caches() -> None:
    """Empty the page cache of the whole host. Raises StartupModelError without the privilege."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    except OSError as error:
        raise StartupModelError(
            f"drop_caches: {error.strerror or error}: root is needed; leave it out, the checkpoint's own files are evicted without it"
        ) from None


def resident_fraction(files: Iterable[Path]) -> float | None:
    """Share of the bytes of some files that the page cache holds (``mincore``); None where the platform does not say."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "mincore"):
        return None
    page = mmap.PAGESIZE
    held = total = 0
    for path in files:
        with _opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            for offset in range(0, size, _STEP):
                length = min(_STEP, size - offset)
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
                held += sum(byte & 1 for byte in present)
                total += pages
    return held / total if total else None


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


@contextmanager
def fresh_compile_cache(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Variables that send compiled graphs to a new folder, which is deleted afterwards.

    What the engine has noted about model classes is copied into it: that is no compiled graph, and working it out anew would add seconds to the bootstrap.
    """
    folder = Path(tempfile.mkdtemp(prefix="startup-model-compile-"))
    try:
        notes = Path(environment.get("VLLM_CACHE_ROOT") or Path.home() / ".cache" / "vllm") / "modelinfos"
        if notes.is_dir():
            shutil.copytree(notes, folder / "vllm" / "modelinfos", dirs_exist_ok=True)
        yield {
            "VLLM_CACHE_ROOT": str(folder / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
