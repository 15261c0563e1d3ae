"""Running another Python for a bounded time: what it prints, and nothing left of it afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from startup_model.errors import ConfigError, one_line
from startup_model.files import is_folder

__all__ = ["Answer", "Interpreter", "ask", "interpreter"]

_ABOUT = "import json, sys; print(json.dumps({'version': list(sys.version_info[:3])}))"
_FIRST_ANSWER_S = 30.0
_GRACE_S = 2.0
_LONGEST_REASON = 160


class Answer(NamedTuple):
    """How a child ended."""

    data: Mapping[str, Any] | None
    """The JSON object on the last line that holds one; None when there is none."""
    problem: str
    """Why there is none; empty when there is one."""
    seconds: float
    """Wall time from its start to its end."""


class Interpreter(NamedTuple):
    """The Python that the engine runs in."""

    path: str
    version: tuple[int, int, int]

    @property
    def shown_version(self) -> str:
        """Such as 3.12.4."""
        return ".".join(map(str, self.version))


def interpreter(python: str | os.PathLike[str] | None, timeout_s: float = _FIRST_ANSWER_S) -> Interpreter:
    """The Python at a path or of a name on PATH; None: this one. Raises ConfigError when it is not there or is no Python."""
    remedy = "give the python of the engine's environment, such as venv/bin/python"
    given = sys.executable if python is None else os.fspath(python) if isinstance(python, str | os.PathLike) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise ConfigError("python", python, "it is no path", remedy)
    given = os.path.expanduser(given)  # noqa: PTH111  a bare name stays one
    path = shutil.which(given)
    if path is None:
        there = "it is a folder" if is_folder(Path(given)) else "it cannot be executed"
        raise ConfigError("python", given, there if Path(given).exists() else "no such program", remedy)
    path = str(Path(path).absolute())  # links stay: an environment is found by the link
    answer = ask([path, "-c", _ABOUT], timeout_s)
    version = answer.data.get("version") if answer.data else None
    if not (isinstance(version, list) and len(version) == 3 and all(isinstance(part, int) for part in version)):
        raise ConfigError("python", given, f"it does not answer as a Python does ({answer.problem or 'no version'})", remedy)  # fmt: skip
    return Interpreter(path, (version[0], version[1], version[2]))


def ask(words: Sequence[str], timeout_s: float) -> Answer:
    """Run a program in a process group of its own; the group is killed when time is up or this one is interrupted."""
    begin = time.monotonic()
    try:
        child = subprocess.Popen(  # noqa: S603  the user's own Python, no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Answer(None, one_line(str(getattr(error, "strerror", None) or error), _LONGEST_REASON), 0.0)
    late = False
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        late = True
        out, err = _end(child)
    except BaseException:
        _end(child)
        raise
    seconds = time.monotonic() - begin
    if late:
        return Answer(None, f"not done after {timeout_s:.0f} s", seconds)
    data = _last_object(out) if child.returncode == 0 else None
    return Answer(data, "" if data is not None else _reason(child.returncode, err), seconds)


def _end(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Kill the group; what it had printed."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        return child.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:  # one of its children left the group and holds the pipe
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        return b"", b""


def _last_object(out: bytes) -> dict[str, Any] | None:
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    return value
    return None


def _reason(code: int, err: bytes) -> str:
    last = [line for line in err.decode("utf-8", "replace").splitlines() if line.strip()][-1:]
    ending = f"signal {-code}" if code < 0 else f"exit status {code}"
    return one_line(f"{ending}{': ' + last[0] if last else ''}" if code else "it printed no result", _LONGEST_REASON)
