"""Writing run records as JSON lines: a whole file at once, or one line more, safely beside other processes."""

from __future__ import annotations

import os
import stat
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from calibration.runs.build import MAX_LINE, parsed
from calibration.runs.record import RunRecord
from startup_model.errors import InputFileError, shown
from startup_model.files import write_atomically

_LOCK_S = 30.0  # seconds in which another process gives a file free: writing a record takes a fraction of one
_LOCK_TICK_S = 0.02


def _line_of(run: RunRecord) -> bytes:
    """A record as one line of JSON. Raises InputFileError for text that is no UTF-8."""
    try:
        return run.model_dump_json().encode() + b"\n"
    except (UnicodeEncodeError, ValueError) as error:
        name = shown(run.model.name)
        raise InputFileError(f"a run of {name} cannot be written as UTF-8 ({error}); correct its names") from None


def write_runs(runs: Iterable[RunRecord], path: str | Path) -> None:
    """Write JSON lines, one run each: the file is the old one or the whole new one. Raises InputFileError."""
    write_atomically(Path(path), map(_line_of, runs))


def append_run(run: RunRecord, path: str | Path) -> None:
    """Add one line to a file of runs, on disk when this returns; processes that append at the same time take turns.

    A last line that a killed process left half written is moved to the file ``PATH.torn``, with a warning. Raises
    InputFileError for a file that holds something else or cannot be written.
    """
    target, line = Path(path), _line_of(run)
    if len(line) > MAX_LINE:
        raise InputFileError(f"{target}: a record of {len(line)} bytes, more than the {MAX_LINE} that are read back")
    with _opened(target, "make room, or choose another file") as file, _locked(file.fileno(), target):
        is_new = os.fstat(file.fileno()).st_size == 0
        _write_all(file, line, _mend_end(file, target))
        if is_new:
            _sync_folder(target.parent)


def check_appendable(path: str | Path) -> None:
    """Raise InputFileError where ``append_run`` would, as far as that is known before there is a run. A file that is not there is made, and is never removed."""
    with _opened(Path(path), "choose another file") as file:
        _check_begin(file, Path(path))


@contextmanager
def _opened(target: Path, remedy: str) -> Iterator[BinaryIO]:
    """A regular file, made where there is none; pipes and devices are not waited for. Raises InputFileError, also for errors later on."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(target, flags, 0o644)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"{shown(str(target))}: cannot be written ({reason}); choose another file") from None
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputFileError(f"{target}: not a regular file; choose another one")
        try:
            yield file
        except OSError as error:
            raise InputFileError(f"{target}: cannot be written ({error.strerror or error}); {remedy}") from None


@contextmanager
def _locked(descriptor: int, target: Path) -> Iterator[None]:
    """Hold the file for this process alone, where the system can. Raises InputFileError when another one keeps it."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        yield
        return
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                remedy = "end that one, or choose another file"
                raise InputFileError(f"{target}: another process has locked it for {_LOCK_S:.0f} s; {remedy}") from None
            time.sleep(_LOCK_TICK_S)
        except OSError as error:
            words = f"cannot be locked ({error.strerror or error}); choose a file on another file system"
            raise InputFileError(f"{target}: {words}") from None
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _write_all(file: Any, line: bytes, start: int) -> None:
    """Write and sync one line; what was written of it is taken back when the disk is full."""
    try:
        written = 0
        while written < len(line):
            written += file.write(line[written:])
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(start)
        raise


def _sync_folder(folder: Path) -> None:
    """Put a new name on disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _mend_end(file: BinaryIO, path: Path) -> int:
    """Where the next line begins: behind the last whole one, a torn one moved away. Raises InputFileError for a file
    that is not one of runs."""
    size = _check_begin(file, path)
    file.seek(max(0, size - MAX_LINE - 1))
    _, newline, tail = file.read().rpartition(b"\n")
    if not tail:
        return size
    if not newline and size > MAX_LINE:
        raise InputFileError(f"{path}: its last line is longer than any run record; choose another file")
    if isinstance(parsed(tail), dict):  # whole, only the line break is missing
        file.write(b"\n")
        return size + 1
    aside = path.with_name(path.name + ".torn")
    with aside.open("ab") as torn:
        torn.write(tail + b"\n")
        torn.flush()
        os.fsync(torn.fileno())
    file.truncate(size - len(tail))
    warnings.warn(f"{path}: its last line was half written ({len(tail)} bytes) and now stands in {aside}", stacklevel=5)
    return size - len(tail)


def _check_begin(file: BinaryIO, path: Path) -> int:
    """Bytes of a file. Raises InputFileError where its first line is not of a file of runs."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first, ended, _ = file.read(MAX_LINE + 1).removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if first.lstrip()[:1] not in (b"{", b"") or (ended and first.strip() and not isinstance(parsed(first), dict)):
        raise InputFileError(f"{path}: it holds no JSON lines, so no run is added; choose another file")
    return size
