"""One measured start of a server: launched, followed through its log, asked for its first token, stopped."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from calibration.logs.startup import ParsedStartup
from calibration.measure.command import api_key, hiding, program_of
from calibration.measure.endpoint import FirstToken, HealthPoll, authorization, first_token, served_version
from calibration.measure.follower import Follower, Progress, ServerError
from calibration.measure.server import Server, status_words
from startup_model.errors import ConfigError, one_line

__all__ = ["Limits", "Measured", "Progress", "ServerError", "measure_start"]

_MOST_S = 86400.0
_VERSION_S = 10.0
_LONGEST_ENDING = 300
_LINES_OF_ENDING = 2
_FOREIGN = (
    "the answer that says ready comes from another program on port {port}: leave --port out, a free one is chosen"
)


class Limits(NamedTuple):
    """How long anything is waited for, in seconds: above 0, up to a day."""

    ready_s: float = 1800.0
    """From the start of the process to ready."""
    request_s: float = 120.0
    """For the first token."""
    grace_s: float = 15.0
    """From SIGTERM to SIGKILL."""

    def check(self) -> None:
        """Raises ConfigError for a limit that is none."""
        for name, value in self._asdict().items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and math.isfinite(value) and 0 < value <= _MOST_S):
                raise ConfigError(name, value, "it should be seconds, above 0 and up to a day", "such as 1800")


class Measured(NamedTuple):
    """What one start gave. Seconds are from the start of the process."""

    log: ParsedStartup
    wall_s: float
    """To ready: the health endpoint has answered 200, and the engine itself has said so where its log does."""
    first_line_s: float
    """To the first line that it printed."""
    first_token_s: float | None
    """To the first token of the first request; None when there is none."""
    problem: str
    """Why there is no first token; empty when there is one, or none was asked for."""
    killed: int
    """Processes that had to be killed because they were still there after the grace."""
    version: str | None
    """Of the engine: as its log says, else as the server says."""
    ending: str = ""
    """How the server ended by itself after it was ready; empty when it did not."""
    interrupt: int | None = None
    """Signal that came while the server was being stopped, to be raised once the start is kept."""


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
) -> Measured:
    """Start a server, wait until it is ready, send a request, stop it.

    words: the command; port: on the loopback interface, where it will listen; environment: all its variables; health_path: answers 200 when the server is ready;
    request: whether to ask for a first token, with the server's own API key where it has one; report: is told where the start is;
    temporary: a folder that is removed should this process be killed, see ``Server``.
    Raises ConfigError when the program cannot be run, ServerError when it ends or is not ready in time, or another program answers in its place. When this returns or raises, whatever by, no process
    of the server is left.
    """
    limits = limits or Limits()
    limits.check()
    hide = hiding(words, environment)
    headers = authorization(api_key(words, environment))
    words = [program_of(words, environment), *words[1:]]
    given = dict(environment) | ({} if "PYTHONUNBUFFERED" in environment else {"PYTHONUNBUFFERED": "1"})
    with Server(words, environment=given, grace_s=limits.grace_s, temporary=temporary) as server:
        follower = Follower(server, report, hide)
        health = HealthPoll(port, health_path, headers)
        health.start()
        try:
            follower.wait_for(health, limits.ready_s)
            assert health.ready_at is not None  # noqa: S101  that was waited for
            if server.listens(port) is False:
                raise ServerError(_FOREIGN.format(port=port), follower.journal.last_lines())
            token = FirstToken(None)
            if request:
                token = first_token(port, limits.request_s, headers, hide=hide, meanwhile=follower.step)
            follower.drain(health.ready_at)
            ending = _ending(server, follower, token, is_asked=request)
        finally:
            health.end()
            follower.close()
        log = follower.log()
        if log is None:
            raise ServerError(
                "it became ready, but no line of its log is known: no phase could be measured; let it log at level INFO (VLLM_LOGGING_LEVEL=INFO, --log-level info)",
                follower.journal.last_lines(),
            )
        version = log.engine_version or served_version(port, _VERSION_S, headers)
        server.stop(hold_interrupt=True)
    return Measured(
        log=log,
        wall_s=max(health.ready_at - server.started, follower.ready_line_s or 0.0),
        first_line_s=follower.journal.first_line_s or 0.0,
        first_token_s=None if token.at is None else token.at - server.started,
        problem=token.problem,
        killed=server.killed,
        version=version,
        ending=ending,
        interrupt=server.interrupt,
    )


def _ending(server: Server, follower: Follower, token: FirstToken, *, is_asked: bool) -> str:
    """How a server has ended that was not told to; empty when it lives. Raises ServerError where its log has never said ready: it may have been another that answered."""
    if not (follower.has_died() if is_asked and token.at is None else server.has_ended):
        return ""
    elapsed = time.monotonic() - server.started
    if follower.ready_line_s is None:
        raise ServerError(follower.obituary(elapsed), follower.journal.last_lines())
    last = " | ".join(follower.journal.last_lines()[-_LINES_OF_ENDING:])
    return one_line(f"the server ended {status_words(server.exit_status)} after it was ready: {last}", _LONGEST_ENDING)
