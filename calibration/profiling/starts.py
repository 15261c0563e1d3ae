"""One measured start of a server: launched, followed through its log, asked for its first token, stopped."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from calibration.logs.parser import StartupLogParser
from calibration.logs.startup import ParsedStartup
from calibration.profiling.endpoint import HealthPoll, first_token
from calibration.profiling.journal import Journal
from calibration.profiling.launch import program_of
from calibration.profiling.server import Server, status_words
from startup_model.errors import ConfigError, StartupModelError
from startup_model.phases import Phase

__all__ = ["Limits", "Measured", "PageCache", "Progress", "ServerError", "measure_start"]

PageCache = Literal["hot", "cold", "as_is"]
_TICK_S = 0.1
_DRAIN_S = 2.0
"""Seconds after ready in which the line that says so is waited for."""


class ServerError(StartupModelError):
    """The server that was to be measured did not come up. ``last_lines``: what it printed last; they are notes of the exception as well."""

    def __init__(self, message: str, last_lines: list[str]) -> None:
        super().__init__(message)
        self.last_lines = last_lines
        for line in last_lines:
            self.add_note(f"  | {line}")


class Limits(NamedTuple):
    """How long anything is waited for, in seconds."""

    ready_s: float = 1800.0
    """From the start of the process to ready."""
    request_s: float = 120.0
    """For the first token."""
    grace_s: float = 15.0
    """From SIGTERM to SIGKILL."""

    def check(self) -> None:
        """Raises ConfigError for a limit that is none."""
        for name, value in self._asdict().items():
            if not (math.isfinite(value) and 0 < value <= 86400):
                raise ConfigError(name, value, "it should be seconds, above 0 and up to a day", "such as 1800")


class Progress(NamedTuple):
    """Where a start is."""

    phase: str | None
    """The phase that was heard of last."""
    elapsed_s: float


class Measured(NamedTuple):
    """What one start gave."""

    log: ParsedStartup
    wall_s: float
    """From the start of the process until the health endpoint answered 200."""
    first_line_s: float
    """From the start of the process to the first line that it printed."""
    first_token_s: float | None
    problem: str
    """Why there is no first token; empty when there is."""
    killed: int
    """Processes that had to be killed because they were still there after the grace."""


def measure_start(
    words: list[str],
    *,
    port: int,
    environment: Mapping[str, str],
    health_path: str = "/health",
    request: bool = True,
    limits: Limits | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Measured:
    """Start a server, wait until it is ready, send a request, stop it.

    words: the command; port: on the loopback interface, where it will listen; environment: all its variables; report: is told as phases end.
    Raises ConfigError when the program cannot be run, ServerError when it ends or is not ready in time. When this returns or raises, whatever by, no process
    of the server is left.
    """
    limits = limits or Limits()
    limits.check()
    words = [program_of(words), *words[1:]]
    given = dict(environment) | ({} if "PYTHONUNBUFFERED" in environment else {"PYTHONUNBUFFERED": "1"})
    with Server(words, environment=given, grace_s=limits.grace_s) as server:
        follower = _Follower(server, report)
        health = HealthPoll(port, health_path)
        health.start()
        try:
            follower.wait_for(health, limits.ready_s)
        except BaseException:
            follower.close()
            raise
        finally:
            health.end()
        assert health.ready_at is not None  # noqa: S101  that was waited for
        token, problem = None, "" if request else "not asked for"
        if request:
            found = first_token(port, limits.request_s)
            token, problem = found.at, found.problem
        follower.drain()
        follower.close()
        log = follower.log()
    if log is None:
        raise ServerError(
            "it became ready, but no line of its log is known: no phase could be measured",
            follower.journal.last_lines(),
        )
    started = server.started
    return Measured(
        log=log,
        wall_s=health.ready_at - started,
        first_line_s=follower.journal.first_line_s or 0.0,
        first_token_s=None if token is None else token - started,
        problem=problem,
        killed=server.killed,
    )


class _Follower:
    """Reads what a server prints. A thread notes the moment at which it arrives: what is done with it meanwhile changes no time."""

    def __init__(self, server: Server, report: Callable[[Progress], None]) -> None:
        self.journal = Journal(server.started)
        self._server = server
        self._parser = StartupLogParser(by_carrier=True)
        self._report = report
        self._phase: str | None = None
        self._is_ready = False
        self._items: queue.Queue[tuple[bytes | None, float]] = queue.Queue()
        self._ends = threading.Event()
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def _read(self) -> None:
        while not self._ends.is_set():
            data = self._server.read(_TICK_S)
            if data != b"":
                self._items.put((data, time.monotonic()))
            if data is None:
                return

    def close(self) -> None:
        """Read no more."""
        self._ends.set()
        self._pump.join()

    def step(self) -> bool:
        """Take what has arrived within a tick; False once the server is gone."""
        try:
            data, now = self._items.get(timeout=_TICK_S)
        except queue.Empty:
            data, now = b"", time.monotonic()
        for event in self._parser.feed(self.journal.stamped(data or b"", now)):
            self._is_ready = self._is_ready or event.mark == "ready"
            if event.phase is not None and event.mark != "progress":
                self._phase = Phase(event.phase).value
        self._report(Progress(self._phase, now - self._server.started))
        return data is not None

    def wait_for(self, health: HealthPoll, limit_s: float) -> None:
        """Read on until the server is ready. Raises ServerError."""
        while health.ready_at is None:
            is_there = self.step()
            elapsed = time.monotonic() - self._server.started
            if not is_there or self._server.has_ended:
                end = time.monotonic() + _DRAIN_S
                while is_there and time.monotonic() < end:
                    is_there = self.step()
                raise ServerError(self._obituary(elapsed), self.journal.last_lines())
            if health.is_wrong_path:
                raise ServerError(
                    f"the server is up, but {health.last_answer}: give the path that says ready (health_path, --health-path)",
                    self.journal.last_lines(),
                )
            if elapsed > limit_s:
                raise ServerError(
                    f"not ready after {limit_s:.0f} s ({health.last_answer}{self._where()}): give it more time (ready_s, --ready-timeout), or look at its last lines",
                    self.journal.last_lines(),
                )

    def drain(self) -> None:
        """The line that says ready may come after the endpoint has said so."""
        end = time.monotonic() + _DRAIN_S
        while not self._is_ready and time.monotonic() < end and self.step():
            pass

    def log(self) -> ParsedStartup | None:
        """What the log says of the start."""
        starts = self._parser.finish()
        return starts[-1] if starts else None

    def _where(self) -> str:
        return f", last heard of {self._phase}" if self._phase else ", no known line yet"

    def _obituary(self, elapsed: float) -> str:
        log = self.log()
        why = ""
        if log is not None and log.status not in ("ok", "incomplete"):
            text = log.evidence.text if log.evidence is not None else ""
            why = f": {log.status}" + (f", {text}" if text else "")
        silent = " without a word" if self.journal.first_line_s is None else ""
        return f"the server ended {status_words(self._server.exit_status)}{silent} after {elapsed:.1f} s, before it was ready{why}"


def full_environment(*changes: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process with some changed."""
    found = dict(os.environ)
    for change in changes:
        found.update(change)
    return found
