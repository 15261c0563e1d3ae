"""Running another Python for a bounded time and of bounded memory: what it prints, and nothing left of it afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration.measure.server import Server, status_words
from startup_model.errors import ConfigError, StartupModelError, one_line
from startup_model.files import is_file, is_folder

__all__ = ["Answer", "Interpreter", "ask", "interpreter"]

_ABOUT = "import json, sys; print(json.dumps({'version': list(sys.version_info[:3])}))"
_FIRST_ANSWER_S = 30.0
_GRACE_S = 0.1
"""Nothing is to be saved: what is still there when the answer has come is killed."""
_TICK_S = 0.1
_AFTER_END_S = 0.5
"""Seconds in which the last of what a child has printed is read; its children may hold the pipe for ever."""
_MOST_PRINTED = 2**20
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
    path = None
    with contextlib.suppress(OSError, ValueError):  # a name that is too long
        path = shutil.which(given)
    if path is None:
        is_there = is_folder(Path(given)) or is_file(Path(given))
        there = "it is a folder" if is_folder(Path(given)) else "it cannot be executed"
        raise ConfigError("python", given, there if is_there else "no such program", remedy)
    path = str(Path(path).absolute())  # links stay: an environment is found by the link
    answer = ask([path, "-c", _ABOUT], timeout_s)
    version = answer.data.get("version") if answer.data else None
    if not (isinstance(version, list) and len(version) == 3 and all(isinstance(part, int) for part in version)):
        raise ConfigError("python", given, f"it does not answer as a Python does ({answer.problem or 'no version'})", remedy)  # fmt: skip
    return Interpreter(path, (version[0], version[1], version[2]))


def ask(words: Sequence[str], timeout_s: float) -> Answer:
    """Run a program; it and all that it has started are gone when this returns or raises, or this process is killed.

    It is killed when time is up, or when it has printed more than 1 MiB.
    """
    end = time.monotonic() + timeout_s
    printed, problem = bytearray(), ""
    try:
        with Server(words, grace_s=_GRACE_S) as child:
            watch = _EndWatch(child)
            last = end
            while time.monotonic() < last:
                data = child.read(min(_TICK_S, max(0.0, last - time.monotonic())))
                if data is None:
                    break
                printed += data
                if len(printed) > _MOST_PRINTED:
                    problem = f"it prints without end (more than {_MOST_PRINTED} bytes)"
                    break
                if child.has_ended:
                    last = min(last, time.monotonic() + _AFTER_END_S)
                    if not data:
                        break
            if not problem and not child.has_ended:
                problem = f"not done after {timeout_s:.0f} s"
            seconds = watch.ended_at() - child.started
    except StartupModelError as error:
        return Answer(None, one_line(getattr(error, "problem", "") or str(error), _LONGEST_REASON), 0.0)
    if problem:
        return Answer(None, problem, seconds)
    data_found = _last_object(bytes(printed)) if child.exit_status == 0 else None
    return Answer(data_found, "" if data_found is not None else _reason(child.exit_status, bytes(printed)), seconds)


class _EndWatch:
    """Notes the moment at which a child ends: its supervisor looks only now and then."""

    def __init__(self, child: Server) -> None:
        self._child = child
        self._at: float | None = None
        self._thread: threading.Thread | None = None
        with contextlib.suppress(OSError, AttributeError):  # it has ended, or the platform has no such thing
            descriptor = os.pidfd_open(child.pid)
            self._thread = threading.Thread(target=self._wait, args=(descriptor,), daemon=True)
            self._thread.start()

    def _wait(self, descriptor: int) -> None:
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            while not poll.poll(_TICK_S * 1e3) and not self._child.has_ended:
                pass
            self._at = time.monotonic()
        finally:
            os.close(descriptor)

    def ended_at(self) -> float:
        """When it ended, by the monotonic clock; now, where it has not."""
        if self._thread is not None and self._child.has_ended:
            self._thread.join()
        return time.monotonic() if self._at is None else self._at


def _last_object(out: bytes) -> dict[str, Any] | None:
    for line in reversed(out.decode("utf-8", "replace").splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    return value
    return None


def _reason(code: int | None, printed: bytes) -> str:
    last = [line for line in printed.decode("utf-8", "replace").splitlines() if line.strip()][-1:]
    ending = f"exit status {code}" if code is not None and code >= 0 else f"ended {status_words(code)}"
    return one_line(f"{ending}{': ' + last[0] if last else ''}" if code else "it printed no result", _LONGEST_REASON)
