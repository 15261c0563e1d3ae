"""Follows what a server prints until it is ready: where the start is, when the log says ready, and why a server did not come up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from calibration.logs.parser import StartupLogParser
from calibration.logs.secrets import without_secrets
from calibration.logs.startup import ParsedStartup
from calibration.logs.tables import ENGINES
from calibration.measure.endpoint import HealthPoll
from calibration.measure.journal import Journal
from calibration.measure.server import Server, status_words
from startup_model.errors import StartupModelError
from startup_model.phases import Phase

__all__ = ["Follower", "Progress", "ServerError"]

_TICK_S = 0.1
_MOST_WAITING = 2**24
"""Bytes that wait to be read. More stay in the pipe, which holds the server back."""
_ITEM = 256
"""Bytes that keeping a piece takes beside its own."""
_SILENT_S = 0.5
"""Seconds in which the end of a server is heard of, after a request that failed."""
_LAST_WORDS_S = 2.0
"""Seconds in which a line is waited for that may never come: the one that says ready, the last ones of a server that has ended."""


_NO_REASON = ": run the command by itself to see what it does"


class ServerError(StartupModelError):
    """The server that was to be measured did not come up. ``last_lines``: what it printed last; they are notes of the exception as well."""

    def __init__(self, message: str, last_lines: list[str]) -> None:
        super().__init__(message)
        self.last_lines = last_lines
        for line in last_lines:
            self.add_note(f"  | {line}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the parts: an error has to travel between processes."""
        return (type(self), (self.args[0], self.last_lines))


class Progress(NamedTuple):
    """Where a start is."""

    phase: str | None
    """The phase that the log spoke of last."""
    elapsed_s: float
    """Since the start of the process, or of what is done before it."""
    doing: str = ""
    """What is done before the process starts, in words."""


class _Arrivals:
    """What has arrived and was not taken yet: no more than ``_MOST_WAITING`` bytes, or one piece."""

    def __init__(self) -> None:
        self._items: deque[tuple[bytes | None, float]] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, data: bytes | None, at: float) -> None:
        """Add what arrived at a moment; waits for room."""
        with self._changed:
            self._changed.wait_for(lambda: self._size < _MOST_WAITING or self._is_closed)
            self._items.append((data, at))
            self._size += len(data or b"") + _ITEM
            self._changed.notify_all()

    def take(self, timeout_s: float) -> tuple[bytes | None, float]:
        """The oldest piece and its moment; b"" and now where none comes within the time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout_s):
                return b"", time.monotonic()
            data, at = self._items.popleft()
            self._size -= len(data or b"") + _ITEM
            self._changed.notify_all()
            return data, at

    def close(self) -> None:
        """Let nobody wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class Follower:
    """Reads what a server prints. A thread notes the moment at which it arrives: what is done with it meanwhile changes no time."""

    def __init__(
        self, server: Server, report: Callable[[Progress], None], hide: Callable[[str], str] = without_secrets
    ) -> None:
        """hide: takes secrets out of a text."""
        self.journal = Journal(server.started, hide)
        self.ready_line_s: float | None = None
        """Seconds from the start of the process to the line by which the engine itself says ready; None until it comes."""
        self._server = server
        self._hide = hide
        self._seen_at = server.started
        """When what was taken last had arrived."""
        self._parser = StartupLogParser(by_carrier=True)
        self._report = report
        self._phase: str | None = None
        self._is_up = False
        self._arrivals = _Arrivals()
        self._ends = threading.Event()
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def _read(self) -> None:
        while not self._ends.is_set():
            data = self._server.read(_TICK_S)
            if data != b"":
                self._arrivals.put(data, time.monotonic())
            if data is None:
                return

    def close(self) -> None:
        """Read no more."""
        self._ends.set()
        self._arrivals.close()
        self._pump.join()

    def step(self) -> bool:
        """Take what has arrived within a tick; False once the server is gone."""
        data, now = self._arrivals.take(_TICK_S)
        self._seen_at = now
        may_be_ready = False
        for event in self._parser.feed(self.journal.stamped(data or b"", now)):
            may_be_ready = may_be_ready or event.mark == "ready"
            self._is_up = self._is_up or event.mark == "up"
            if event.phase is not None and event.mark != "progress":
                self._phase = Phase(event.phase).value
        elapsed = now - self._server.started
        if may_be_ready and self.ready_line_s is None and self._says_ready():
            self.ready_line_s = elapsed
        self._report(Progress(self._phase, elapsed))
        return data is not None

    def wait_for(self, health: HealthPoll, limit_s: float) -> None:
        """Read on until the server is ready: its endpoint says so, and its log. Raises ServerError.

        The line that says ready comes for certain where the engine's own logger prints it, and has said that the engine is up; it is waited for then. vLLM's comes
        from its web server, which may be told to be silent: the endpoint alone counts when it does not come.
        """
        while health.ready_at is None or (self.ready_line_s is None and self._will_say_ready()):
            is_there = self.step()
            elapsed = time.monotonic() - self._server.started
            if not is_there or self._server.has_ended:
                self.drain(time.monotonic())
                raise ServerError(self.obituary(elapsed), self.journal.last_lines())
            if health.is_wrong_path:
                raise ServerError(
                    f"the server is up, but {health.last_answer}: give the path that says ready (health_path, --health-path)",
                    self.journal.last_lines(),
                )
            if elapsed > limit_s:
                answer = health.last_answer if health.ready_at is None else "the line that says ready has not come"
                raise ServerError(
                    f"not ready after {limit_s:.0f} s ({answer}{self._where()}): give it more time (ready_s, --ready-timeout), or look at its last lines",
                    self.journal.last_lines(),
                )

    def drain(self, until: float) -> None:
        """Read all that had arrived until a moment; then for a little longer, unless the log has said ready: that line may come after the endpoint has answered."""
        end = time.monotonic() + _LAST_WORDS_S
        while (self._seen_at < until or (self.ready_line_s is None and time.monotonic() < end)) and self.step():
            pass

    def has_died(self) -> bool:
        """Whether the server has ended; looked at for a moment, since that is heard of later than of a connection that breaks."""
        end = time.monotonic() + _SILENT_S
        while not self._server.has_ended and time.monotonic() < end and self.step():
            pass
        return self._server.has_ended

    def log(self) -> ParsedStartup | None:
        """What the log says of the start."""
        starts = self._parser.finish()
        return starts[-1] if starts else None

    def _says_ready(self) -> bool:
        """Whether a line that was just read is the one by which this engine says ready: uvicorn's is none in SGLang."""
        starts = self._parser.starts()
        return bool(starts) and starts[-1].facts.get("ready_line") is not False

    def _will_say_ready(self) -> bool:
        if not self._is_up:
            return False
        starts = self._parser.starts()
        engine = ENGINES.get(starts[-1].engine) if starts else None
        return engine is not None and not engine.ready_events

    def _where(self) -> str:
        return f", last heard of {self._phase}" if self._phase else ", no known line yet"

    def obituary(self, elapsed: float) -> str:
        """How a server has ended that was not ready."""
        log = self.log()
        why = ""
        if log is not None and log.status not in ("ok", "incomplete"):
            text = self._hide(log.evidence.text) if log.evidence is not None else ""
            why = f": {log.status}" + (f", {text}" if text else "")
        silent = " without a word" if self.journal.first_line_s is None else ""
        return f"the server ended {status_words(self._server.exit_status)}{silent} after {elapsed:.1f} s, before it was ready{why or _NO_REASON}"
