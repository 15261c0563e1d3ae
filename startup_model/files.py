"""Reading files of unknown origin and writing our own: bounded, as data only, whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from startup_model.errors import InputFileError, shown

__all__ = ["read_json_object", "write_atomically"]


def read_json_object(path: Path, largest: int, what: str) -> dict[str, Any]:
    """The JSON object that the file holds.

    Raises InputFileError, in one line, when the file is absent, not a regular file, empty, larger than ``largest``
    bytes, not UTF-8, not JSON (cut off, say), nested beyond reason, or JSON of another kind than an object.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not path.is_file():
                raise InputFileError(f"{path}: not a regular file; give {what}")
            if size > largest:
                raise InputFileError(
                    f"{path}: {size} bytes, more than the {largest} that {what} can have; give the right file"
                )
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file; give {what}") from None
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; give {what}") from None
    return parse_json_object(content, str(path), what)


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
            f"{name}: not valid JSON ({error.msg} at line {error.lineno}, column {error.colno}); is it cut off? give {what}"
        ) from None
    except RecursionError:
        raise InputFileError(f"{name}: nested too deeply to be {what}") from None
    except ValueError as error:
        raise InputFileError(f"{name}: not valid JSON ({error}); give {what}") from None
    if not isinstance(value, dict):
        raise InputFileError(f"{name}: a JSON {type(value).__name__} ({shown(value)}), not an object; give {what}")
    return value


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that the file is either the old one or the whole new one, whatever happens on the way.

    Raises InputFileError when the folder is missing or cannot be written.
    """
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise InputFileError(f"{path}: cannot be written ({error.strerror or error}); choose another folder") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise InputFileError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def canonical_json(value: Mapping[str, Any]) -> str:
    """JSON text that is the same for the same content: stable key order as given, two spaces, one final line break."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
