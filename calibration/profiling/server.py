"""A server under a supervisor: started without a shell, read as it prints, stopped for certain."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from startup_model.errors import ConfigError, one_line

__all__ = ["LOOPBACK", "Server", "free_port", "is_free", "status_words"]

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_CHUNK = 2**16
_MARK = "STARTUP_MODEL_SERVER"
"""Variable by which the processes of a server are found, should the supervisor be killed."""
_SWEEPS = 40
_LAUNCH_S = 30.0
"""Until the supervisor says that the server runs."""
_AFTER_GRACE_S = 15.0
"""Seconds that killing may take after the grace."""
LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port on the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class Server:
    """A running server. Leaving the ``with`` block stops it and all that it has started; so does the end of this process, of whatever kind.

    Raises ConfigError when the program cannot be run.
    """

    def __init__(
        self, words: Sequence[str], *, environment: Mapping[str, str] | None = None, grace_s: float = 10.0
    ) -> None:
        self.grace_s = grace_s
        self.exit_status: int | None = None
        """Of the server's first process, negative for a signal; None while it runs."""
        self.killed = 0
        """Processes that were still there when it had ended, or the grace was over."""
        self._report_text = b""
        self._mark = uuid.uuid4().hex
        self._is_over = False
        self._was_told = False
        """Whether the supervisor has said that nothing is left."""
        lifeline_end, self._lifeline = os.pipe()
        self._report, report_end = os.pipe()
        self._output, output_end = os.pipe()
        theirs = (lifeline_end, report_end, output_end)
        numbers = (str(lifeline_end), str(report_end), str(grace_s))
        variables = dict(os.environ if environment is None else environment) | {_MARK: self._mark}
        try:
            self._supervisor = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", str(_SUPERVISOR), *numbers, *words],
                stdin=subprocess.DEVNULL, stdout=output_end, stderr=output_end, pass_fds=theirs[:2],
                env=variables, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._close(self._lifeline, self._report, self._output)
            reason = getattr(error, "strerror", None) or error
            raise ConfigError("command", words[0], f"cannot be run ({reason})", "check it") from None
        finally:
            self._close(*theirs)
        self.pid, self.started = 0, time.monotonic()
        try:
            self._wait_for_launch(words[0])
        except BaseException:
            self.stop()
            raise

    def _wait_for_launch(self, program: str) -> None:
        end = time.monotonic() + _LAUNCH_S
        while time.monotonic() < end and not self._is_over and not self.pid:
            for line in self._told(0.1):
                if "error" in line:
                    self._was_told = True
                    reason = one_line(str(line["error"]), 200)
                    raise ConfigError(
                        "command", program, f"cannot be run ({reason})", "give the path of the server's program"
                    )
                self.pid, self.started = int(line.get("pid", 0)), float(line.get("started", self.started))
        if not self.pid:
            raise ConfigError(
                "command", program, "its supervisor did not start", "check that this Python can start processes"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def read(self, timeout_s: float) -> bytes | None:
        """What was printed, b"" when nothing was within the time, None once everything was read and the server is gone."""
        waiting = [fd for fd in (self._output, self._report) if fd >= 0]
        ready = select.select(waiting, [], [], timeout_s)[0] if waiting else []
        if self._report in ready:
            self._take(self._told(0.0))
        if self._output in ready:
            data = os.read(self._output, _CHUNK)
            if data:
                return data
            self._output = self._close(self._output)
        return None if self._output < 0 and self._is_over else b""

    @property
    def has_ended(self) -> bool:
        """Whether the first process of the server has ended."""
        return self.exit_status is not None or self._is_over

    def stop(self) -> None:
        """SIGTERM, SIGKILL after the grace, and no return before nothing is left. Harmless when it has been called before."""
        self._lifeline = self._close(self._lifeline)
        end = time.monotonic() + self.grace_s + _AFTER_GRACE_S
        while not self._is_over and time.monotonic() < end:
            if self.read(0.05) is None:
                break
        if not self._is_over:
            self._supervisor.kill()  # it hangs
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_AFTER_GRACE_S)
        self._output, self._report = self._close(self._output), self._close(self._report)
        if not self._was_told:
            self.killed = _kill_marked(self._mark)  # the supervisor was killed before its work was done

    def _take(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            if "exit" in line:
                self.exit_status = int(line["exit"])
            if "killed" in line:
                self.killed, self._was_told = int(line["killed"]), True

    def _told(self, timeout_s: float) -> list[dict[str, Any]]:
        """What the supervisor has said by now."""
        if self._report < 0 or not select.select([self._report], [], [], timeout_s)[0]:
            return []
        data = os.read(self._report, _CHUNK)
        if not data:
            self._is_over = True
            self._report = self._close(self._report)
        *lines, self._report_text = (self._report_text + data).split(b"\n")
        return [json.loads(line) for line in lines if line]

    @staticmethod
    def _close(*descriptors: int) -> int:
        for descriptor in descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        return -1


def _kill_marked(mark: str) -> int:
    """Kill every process that inherited the mark, wherever it hangs in the tree; how many there were."""
    found: set[int] = set()
    for _ in range(_SWEEPS):
        present = set(_marked(mark.encode()))
        if not present:
            break
        found |= present
        for pid in present:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    return len(found)


def _marked(mark: bytes) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state != b"Z" and mark in (folder / "environ").read_bytes():
                yield int(folder.name)


def status_words(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "without a status"
    return f"by signal {-status}" if status < 0 else f"with status {status}"
