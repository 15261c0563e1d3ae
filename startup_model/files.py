"""Reading files of unknown origin and writing our own: bounded, as data only, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from startup_model.errors import InputFileError, shown

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_DIGITS = 4300  # Python itself reads no longer whole number (CVE-2020-10735)


def read_json_object(path: Path, largest: int, what: str) -> dict[str, Any]:
    """The JSON object that the file holds.

    Raises InputFileError, in one line, when the file is absent, not a regular file, empty, larger than ``largest``
    bytes, not UTF-8, not JSON (truncated, say), nested beyond reason, or JSON of another kind than an object.
    """
    with open_regular(path, what) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise InputFileError(
                f"{path}: {size} bytes, more than the {largest} that {what} can have; give the right file"
            )
        content = file.read(largest + 1) or b""
    if len(content) > largest:  # it grew, or is of a file system that does not know sizes
        raise InputFileError(f"{path}: more than the {largest} bytes that {what} can have; give the right file")
    return parse_json_object(content, str(path), what)


@contextmanager
def open_regular(path: Path, what: str) -> Iterator[BinaryIO]:
    """``path`` open for reading, when it is a regular file; pipes and devices are neither waited for nor read.

    Raises InputFileError in one line for anything else, and for errors while it is read.
    """
    try:
        # Without blocking: opening a named pipe would otherwise wait until somebody writes into it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file; give {what}") from None
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; give {what}") from None
    except ValueError as error:  # a null byte or an unpaired surrogate in the name
        raise InputFileError(f"{shown(str(path))}: not the name of a file ({error}); give {what}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise InputFileError(f"{path}: {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}; give {what}")
    try:
        with os.fdopen(descriptor, "rb") as file:
            yield file
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; give {what}") from None


def is_file(path: Path) -> bool:
    """Whether ``path`` leads to a regular file that can be seen; never an exception, whatever the name is."""
    return _says(path.is_file)


def is_folder(path: Path) -> bool:
    """Whether ``path`` leads to a folder that can be seen; never an exception, whatever the name is."""
    return _says(path.is_dir)


def _says(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except (OSError, ValueError):
        return False


def parse_json_object(content: bytes, name: str, what: str) -> dict[str, Any]:
    """The JSON object in ``content``; ``name`` and ``what`` are for the message. Raises InputFileError."""
    if not content.strip():
        raise InputFileError(f"{name}: empty; give {what}")
    try:
        value = json.loads(content)
    except UnicodeDecodeError:
        raise InputFileError(f"{name}: not UTF-8 text; give {what}") from None
    except json.JSONDecodeError as error:
        raise InputFileError(
            f"{name}: not valid JSON ({error.msg} at line {error.lineno}, column {error.colno}); is the file truncated? give {what}"
        ) from None
    except RecursionError:
        raise InputFileError(f"{name}: nested too deeply to be {what}") from None
    except ValueError:  # the only one that is left
        raise InputFileError(f"{name}: holds a number of more than {_MAX_DIGITS} digits; give {what}") from None
    if _SURROGATE.search(content) and not _is_text(value):
        raise InputFileError(f"{name}: contains an unpaired surrogate (\\ud800 to \\udfff); give {what}")
    if not isinstance(value, dict):
        raise InputFileError(f"{name}: a JSON {type(value).__name__} ({shown(value)}), not an object; give {what}")
    return value


def _is_text(value: object) -> bool:
    """Whether every text in a JSON value can be written as UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def write_atomically(path: Path, content: str | Iterable[bytes]) -> None:
    """Write ``content``, a text or pieces of bytes, so that the file is either the old one or the whole new one, whatever happens.

    Raises InputFileError when the folder is missing or cannot be written, or ``path`` is a folder or a device; what the pieces raise
    passes through, and leaves the old file.
    """
    if _says(path.exists) and not is_file(path):  # a folder, a device or a pipe must not be replaced
        raise InputFileError(f"{path}: not a regular file; choose the name of a file")
    try:
        import tempfile  # only where something is written: it costs an import

        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"{path}: cannot be written ({reason}); choose another folder") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in (content.encode(),) if isinstance(content, str) else content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except (OSError, UnicodeEncodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"{path}: cannot be written ({reason})") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def canonical_json(value: Any) -> str:
    """JSON text that is the same for the same content: key order as given, two spaces, escapes for what is not printable, one final line break."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if not text.isascii() or "\x7f" in text:
        text = re.sub(r"[^\n -~]", lambda found: _escaped(found[0]), text)
    return f"{text}\n"


def _escaped(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1].replace("\x7f", "\\u007f")


def package_text(name: str, package: str = "startup_model") -> str:
    """The text of a data file that comes with a package, such as ``data/models.json``."""
    from importlib.resources import files

    return files(package).joinpath(name).read_text(encoding="utf-8")
