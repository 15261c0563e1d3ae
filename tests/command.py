"""``startup-model`` called in this process: what it ends with, and what it prints."""

from __future__ import annotations

import io
import sys
import tempfile
from typing import Any, NamedTuple
from unittest.mock import patch

from startup_model.cli import main


class Done(NamedTuple):
    status: Any
    out: str
    err: str


def run(*arguments: object, stdin: bytes | None = b"") -> Done:
    """Exit status, output and error output of ``startup-model`` with these arguments; stdin None: it is closed."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  a descriptor, as standard input has; closed with the text stream around it
    file.write(stdin or b"")
    file.seek(0)
    streams: dict[str, Any] = {
        "stdin": None if stdin is None else io.TextIOWrapper(file, encoding="utf-8"),
        "stdout": io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True),
        "stderr": io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True),
    }
    status: Any = 0
    with patch.multiple(sys, **streams):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stopped:
            status = stopped.code
    file.close()
    out, err = (streams[name].buffer.getvalue().decode() for name in ("stdout", "stderr"))
    return Done(status, out, err)
