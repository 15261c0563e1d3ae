"""One measured start of a server: launched, followed through its log, asked for its first token, stopped."""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from calibration.logs.parsed import LoggedStart
from calibration.logs.parser import StartupLogParser
from calibration.measure.endpoint import FirstToken, HealthPoll, authorization, first_token, served_version
from calibration.measure.launch import api_key, program_of
from calibration.measure.server import Server, status_words
from startup_model.engines import all_engines
from startup_model.engines.logtable import table_of
from startup_model.errors import StartupModelError, one_line
from startup_model.frozen import FrozenModel
from startup_model.secrets import redact_text, redactor

_TICK_S = 0.1
_MAX_WAITING = 2**12  # pieces of 4 KiB that wait to be read. More stay in the pipe, which holds the server back
_SILENT_S = 0.5  # in which the end of a server is noticed, after a request that failed
_LAST_WORDS_S = 2.0  # for a line that may never come: the one that says ready, the last ones of a server that has ended
_VERSION_S = 10.0
_PIECE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")
_LAST_LINES, _MAX_LINE, _MAX_PIECE, _LINES_OF_ENDING = 12, 300, 2**16, 2

LimitS = Annotated[float, Field(gt=0, le=86400)]


class Limits(FrozenModel):
    """How long anything is waited for [s]: above 0, up to a day."""

    ready_s: LimitS = 1800.0
    """From the start of the process to ready."""
    request_s: LimitS = 120.0
    """For the first token."""
    grace_s: LimitS = 15.0
    """From SIGTERM to SIGKILL."""


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

    phase: str | None  # that the log spoke of last
    elapsed_s: float  # since the start of the process, or of what is done before it
    doing: str = ""  # before the process starts, in words


class MeasuredStart(NamedTuple):
    """What one start gave. Seconds are from the start of the process."""

    log: LoggedStart
    wall_s: float  # until the health endpoint has answered 200, and the engine itself has said so where its log does
    first_line_s: float  # to the first line that it printed
    first_token_s: float | None  # to the first token of the first request; None when there is none
    problem: str  # why there is no first token; empty when there is one, or none was asked for
    killed: int  # processes that had to be killed because they were still there after the grace
    version: str | None  # of the engine: as its log says, else as the server says
    ending: str = ""  # how the server ended by itself after it was ready; empty when it did not
    interrupt: int | None = None  # came while the server was being stopped, to be raised once the start is kept


class Journal:
    """The output of a server while it runs: lines get the moment at which they arrived, as a container runtime would stamp them, and the last ones are kept for messages."""

    def __init__(self, started: float, hide: Callable[[str], str] = redact_text) -> None:
        """started: when the process began, by the monotonic clock; hide: takes secrets out of a text."""
        self.first_line_s: float | None = None
        """Seconds from the start of the process to its first line."""
        self._started, self._hide = started, hide
        self._zero = datetime.now(UTC).timestamp()
        self._at_begin, self._open = True, b""
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)

    def stamped(self, data: bytes, now: float) -> bytes:
        """``data`` that arrived at ``now``, with a stamp in front of every line that begins in it."""
        elapsed = max(0.0, now - self._started)
        stamp = datetime.fromtimestamp(self._zero + elapsed, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
        found = []
        for piece in filter(None, _PIECE.findall(data)):
            if self._at_begin and piece.strip():
                found.append(stamp)
                self.first_line_s = elapsed if self.first_line_s is None else self.first_line_s
            found.append(piece)
            self._open = (self._open + piece)[:_MAX_PIECE]
            self._at_begin = piece.endswith((b"\n", b"\r"))
            if self._at_begin:
                self._last.extend([self._open] if self._open.strip() else [])
                self._open = b""
        return b"".join(found)

    def last_lines(self) -> list[str]:
        """The last lines, without what looks like a secret."""
        lines = [*self._last, self._open] if self._open.strip() else [*self._last]
        return [one_line(self._hide(line.decode("utf-8", "replace")), _MAX_LINE) for line in lines]


class Follower:
    """Reads what a server prints until it is ready. A thread notes the moment at which it arrives: what is done with it meanwhile changes no time."""

    def __init__(
        self, server: Server, report: Callable[[Progress], None], hide: Callable[[str], str] = redact_text
    ) -> None:
        """hide: takes secrets out of a text."""
        self.journal = Journal(server.started, hide)
        self.ready_line_s: float | None = None
        """Seconds from the start of the process to the line by which the engine itself says ready; None until it comes."""
        self._server, self._report, self._hide = server, report, hide
        self._seen_at = server.started  # when what was taken last had arrived
        self._parser = StartupLogParser(by_carrier=True)
        self._phase: str | None = None
        self._is_up = self._is_gone = False
        self._arrivals: queue.Queue[tuple[bytes | None, float]] = queue.Queue(_MAX_WAITING)
        self._ends = threading.Event()
        self._pump = threading.Thread(target=self._read, daemon=True)
        self._pump.start()

    def _read(self) -> None:
        data: bytes | None = b""
        while data is not None and not self._ends.is_set():
            data = self._server.read(_TICK_S)
            now = time.monotonic()
            while data != b"" and not self._ends.is_set():
                with suppress(queue.Full):
                    self._arrivals.put((data, now), timeout=_TICK_S)
                    break

    def close(self) -> None:
        """Read no more."""
        self._ends.set()
        self._pump.join()

    def step(self) -> bool:
        """Take what has arrived within a tick; False once the server is gone."""
        try:
            data, now = self._arrivals.get(timeout=_TICK_S)
        except queue.Empty:
            data, now = b"", time.monotonic()
        self._seen_at, self._is_gone = now, self._is_gone or data is None
        events = self._parser.feed(self.journal.stamped(data or b"", now))
        elapsed, marks = now - self._server.started, {event.mark for event in events}
        self._is_up = self._is_up or "up" in marks
        for event in events:
            if event.phase is not None and event.mark != "progress":
                self._phase = str(event.phase)
        if "ready" in marks and self.ready_line_s is None:
            starts = self._parser.starts()
            if starts and starts[-1].facts.get("ready_line") is not False:  # as that of SGLang's web server
                self.ready_line_s = elapsed
        self._report(Progress(self._phase, elapsed))
        return not self._is_gone

    def wait_for(self, health: HealthPoll, limit_s: float) -> float:
        """Read on until the server is ready: its endpoint says so, and its log. The moment at which the endpoint did. Raises ServerError.

        The line that says ready comes for certain where the engine's own logger prints it, and has said that the engine is up; it is waited for then. vLLM's comes
        from its web server, which may be told to be silent: the endpoint alone counts when it does not come.
        """
        while health.ready_at is None or (self.ready_line_s is None and self._will_say_ready()):
            is_there = self.step()
            elapsed = time.monotonic() - self._server.started
            if not is_there or self._server.has_ended:
                self.drain(time.monotonic())
                raise self._failure(elapsed)
            if health.is_wrong_path:
                remedy = "give the path that says ready (health_path, --health-path)"
                raise self.error(f"the server is up, but {health.last_answer}: {remedy}")
            if elapsed > limit_s:
                answer = health.last_answer if health.ready_at is None else "the log has not reported ready"
                where = f"last phase in the log: {self._phase}" if self._phase else "no known line yet"
                remedy = "give it more time (ready_s, --ready-timeout), or look at its last lines"
                raise self.error(f"not ready after {limit_s:.0f} s ({answer}, {where}): {remedy}")
        return health.ready_at

    def drain(self, until: float) -> None:
        """Read all that had arrived until a moment; then for a little longer, unless the log has said ready: that line may come after the endpoint has answered."""
        end = time.monotonic() + _LAST_WORDS_S
        while (self._seen_at < until or (self.ready_line_s is None and time.monotonic() < end)) and self.step():
            pass

    def ending(self, *, is_likely: bool) -> str:
        """How a server has ended that was not told to; empty when it lives. is_likely: its end, which is noticed later than a connection that breaks, is looked for.

        Raises ServerError where its log has never said ready: it may have been another that answered.
        """
        end = time.monotonic() + (_SILENT_S if is_likely else 0.0)
        while not self._server.has_ended and time.monotonic() < end and self.step():
            pass
        if not self._server.has_ended:
            return ""
        if self.ready_line_s is None:
            raise self._failure(time.monotonic() - self._server.started)
        last = " | ".join(self.journal.last_lines()[-_LINES_OF_ENDING:])
        return one_line(
            f"the server ended {status_words(self._server.exit_status)} after it was ready: {last}", _MAX_LINE
        )

    def log(self) -> LoggedStart | None:
        """What the log says of the start."""
        return next(reversed(self._parser.finish()), None)

    def error(self, message: str) -> ServerError:
        """An error with the last lines."""
        return ServerError(message, self.journal.last_lines())

    def _will_say_ready(self) -> bool:
        starts = self._parser.starts() if self._is_up else ()
        table = table_of(starts[-1].engine) if starts else None
        return table is not None and not table.ready_events

    def _failure(self, elapsed: float) -> ServerError:
        log, why = self.log(), "run the command by itself to see what it does"
        if log is not None and log.status not in ("ok", "incomplete"):
            why = ", ".join(filter(None, (log.status, self._hide(log.evidence.text) if log.evidence else "")))
        silent = " without a word" if self.journal.first_line_s is None else ""
        status = status_words(self._server.exit_status)
        return self.error(f"the server ended {status}{silent} after {elapsed:.1f} s, before it was ready: {why}")


def measure_start(
    words: list[str],
    *,
    port: int,
    environment: Mapping[str, str],
    health_path: str = "/health",
    request: bool = True,
    limits: Limits | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    temporary: str | os.PathLike[str] | None = None,
) -> MeasuredStart:
    """Start a server, wait until it is ready, send a request, stop it.

    words: the command; port: on the loopback interface, where it will listen; environment: all its variables; health_path: answers 200 when the server is ready;
    request: whether to ask for a first token, with the server's own API key where it has one; report: is told where the start is;
    temporary: a folder that is removed should this process be killed, see ``Server``.
    Raises ConfigError when the program cannot be run, ServerError when it ends or is not ready in time, or another program answers in its place. When this returns or raises, whatever by, no process
    of the server is left.
    """
    limits = limits or Limits()
    hide = redactor(words, environment)
    headers = authorization(api_key(words, environment))
    words = [program_of(words, environment), *words[1:]]
    given = {"PYTHONUNBUFFERED": "1", **environment}
    with Server(words, environment=given, grace_s=limits.grace_s, temporary=temporary) as server:
        follower = Follower(server, report, hide)
        health = HealthPoll(port, health_path, headers)
        health.start()
        try:
            ready_at = follower.wait_for(health, limits.ready_s)
            if server.listens(port) is False:
                remedy = "leave --port out, a free one is chosen"
                problem = f"the answer that says ready comes from another program on port {port}"
                raise follower.error(f"{problem}: {remedy}")
            tokens = [FirstToken(None, "the request broke off" if request else "")]
            if request:

                def ask() -> None:
                    tokens.append(first_token(port, limits.request_s, headers, hide))

                asking = threading.Thread(target=ask, daemon=True)
                asking.start()
                while asking.is_alive():
                    follower.step()
            token = tokens[-1]
            follower.drain(ready_at)
            ending = follower.ending(is_likely=request and token.at is None)
        finally:
            health.end()
            follower.close()
        log = follower.log()
        if log is None:
            remedy = "let it log at level INFO (VLLM_LOGGING_LEVEL=INFO, --log-level info)"
            raise follower.error(
                f"it became ready, but no line of its log is known: no phase could be measured; {remedy}"
            )
        paths = [path for engine in all_engines().values() for path in engine.http.version_paths]
        version = log.engine_version or served_version(port, _VERSION_S, list(dict.fromkeys(paths)), headers)
        server.stop(hold_interrupt=True)
    return MeasuredStart(
        log=log,
        wall_s=max(ready_at - server.started, follower.ready_line_s or 0.0),
        first_line_s=follower.journal.first_line_s or 0.0,
        first_token_s=None if token.at is None else token.at - server.started,
        problem=token.problem,
        killed=server.killed,
        version=version,
        ending=ending,
        interrupt=server.interrupt,
    )
