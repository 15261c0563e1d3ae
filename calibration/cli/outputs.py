"""Files that commands write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from startup_model.errors import InputFileError, shown
from startup_model.files import is_file, is_folder

_PAGE = 4096


def check_output(name: str, path: Path) -> None:
    """Raise InputFileError before anything is read or measured, where the file that the option ``name`` asks for could not be written."""
    if is_folder(path):
        raise InputFileError(f"{name} = {path}: a folder; give the name of a file in it")
    if not is_folder(path.absolute().parent):
        raise InputFileError(f"{name} = {path}: no such folder; give the name of a file in a folder that is there")
    try:
        if path.exists() and not is_file(path):
            raise InputFileError(f"{name} = {path}: not a regular file; give another name")
        with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}.") as file:
            file.write(b" " * _PAGE)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, ValueError) as error:
        if isinstance(error, InputFileError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"{name} = {shown(str(path))}: it cannot be written ({reason}); give another name or folder") from None  # fmt: skip
