"""The server's HTTP side: is it ready, and how long does the first token take. Each request is read by one loop against one deadline."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from calibration.measure.server import LOOPBACK
from startup_model.errors import one_line
from startup_model.secrets import HIDDEN, redact_text

_INTERVAL_S = 0.05  # between two looks at the health endpoint
_HEALTH_S = 2.0
_PATIENCE_S = 10.0  # of 404, after which the path is wrong
_MAX_ANSWER = 2**20
_MAX_PROBLEM = 300
_SCHEME = "Bearer "
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
# What comes of a server that answers otherwise than expected, or not at all.
_FAULTS = (OSError, http.client.HTTPException, ValueError, AttributeError, TypeError, RecursionError)


class _UntilThen(socket.socket):
    """A socket whose limit is a moment: an ordinary limit begins anew with every byte that arrives."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self._end = end

    def limit(self) -> None:
        """Set what is left as the limit of the next call. Raises TimeoutError when nothing is."""
        if (left_s := self._end - time.monotonic()) <= 0:
            raise TimeoutError("the time is up")
        self.settimeout(left_s)

    def recv_into(self, *arguments: Any) -> int:
        self.limit()
        return super().recv_into(*arguments)


@contextmanager
def _answer(
    method: str, port: int, path: str, end: float, headers: Mapping[str, str], body: object = None
) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request, to be read within the block and by ``end``. Raises one of ``_FAULTS``."""
    content = None if body is None else json.dumps(body).encode()
    with closing(http.client.HTTPConnection(LOOPBACK, port)) as connection, _UntilThen(end) as connected:
        connected.limit()
        connected.connect((LOOPBACK, port))
        connection.sock = connected
        connection.request(method, path, content, {"Connection": "close", **headers})
        with connection.getresponse() as answer:
            yield answer


class HealthPoll(threading.Thread):
    """Asks the health endpoint until it answers 200; a thread, so that neither the server's output nor a listener changes the moment."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        super().__init__(daemon=True)
        self.ready_at: float | None = None  # when the answer was 200, by the monotonic clock
        self.last_answer: str = "nothing listens"
        self.is_wrong_path = False  # a server that has been up for a while does not know it
        self._port, self._path, self._headers = port, path, headers
        self._ends = threading.Event()

    def run(self) -> None:
        """Poll until the answer is 200 or ``end`` is called."""
        unknown_since: float | None = None
        while not self._ends.wait(_INTERVAL_S):
            try:
                with _answer("GET", self._port, self._path, time.monotonic() + _HEALTH_S, self._headers) as answer:
                    status, now = answer.status, time.monotonic()
            except _FAULTS as error:
                if not isinstance(error, ConnectionRefusedError):
                    self.last_answer = f"{type(error).__name__} at {self._path}"
                continue
            if status == http.client.OK:
                self.ready_at = now
                return
            self.last_answer = f"{self._path} answers {status}"
            unknown_since = (unknown_since or now) if status == http.client.NOT_FOUND else None
            self.is_wrong_path = unknown_since is not None and now - unknown_since > _PATIENCE_S

    def end(self) -> None:
        """Stop polling."""
        self._ends.set()


class FirstToken(NamedTuple):
    """The first request."""

    at: float | None  # when its first token came, by the monotonic clock; None when none came
    problem: str = ""


def authorization(key: str | None) -> dict[str, str]:
    """The header that a server asks for which was started with an API key. It is sent to that server, and kept nowhere."""
    is_sendable = key is not None and key != "" and key.isascii() and key.isprintable()
    return {"Authorization": f"{_SCHEME}{key}"} if is_sendable else {}


def first_token(
    port: int,
    timeout_s: float,
    headers: Mapping[str, str] = _NO_HEADERS,
    hide: Callable[[str], str] = redact_text,
) -> FirstToken:
    """Send one completion request and wait for the first token of its stream, ``timeout_s`` for all of it.

    headers: those of ``authorization``; hide: takes secrets out of a text, which the record may hold.
    """
    end = time.monotonic() + timeout_s
    try:
        found = _ask_for_token(port, end, headers)
    except _FAULTS as error:
        is_late = isinstance(error, TimeoutError) or time.monotonic() >= end
        problem = f"no token came within {timeout_s:g} s" if is_late else f"{type(error).__name__}: {error}"
        found = FirstToken(None, problem)
    text = found.problem
    for value in headers.values():
        text = text.replace(value.removeprefix(_SCHEME), HIDDEN)
    return found._replace(problem=one_line(hide(text), _MAX_PROBLEM))


def _ask_for_token(port: int, end: float, headers: Mapping[str, str]) -> FirstToken:
    names = [entry.get("id") for entry in _json(port, "/v1/models", end, headers).get("data", [])]
    if not names:
        return FirstToken(None, "the server names no model")
    body = {"model": names[0], "prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": True}
    kinds = {"Content-Type": "application/json", "Accept": "text/event-stream", **headers}
    with _answer("POST", port, "/v1/completions", end, kinds, body) as answer:
        if answer.status != http.client.OK:
            detail = answer.read(300).decode("utf-8", "replace")
            return FirstToken(None, f"/v1/completions answers {answer.status}: {detail}")
        while line := answer.readline(_MAX_ANSWER):
            if line.startswith(b"data:") and b"choices" in line:
                return FirstToken(time.monotonic())
    return FirstToken(None, "the stream of /v1/completions ended without a token")


def _json(port: int, path: str, end: float, headers: Mapping[str, str]) -> Any:
    with _answer("GET", port, path, end, headers) as answer:
        content = answer.read(_MAX_ANSWER)
        if answer.status != http.client.OK:
            raise ValueError(f"{path} answers {answer.status}")
        return json.loads(content)


def served_version(
    port: int, timeout_s: float, paths: Sequence[str], headers: Mapping[str, str] = _NO_HEADERS
) -> str | None:
    """The version that the engine's server gives at the first of the paths that has one; None where none gives it within the time."""
    end = time.monotonic() + timeout_s
    for path in paths:
        with suppress(*_FAULTS):
            version = _json(port, path, end, headers).get("version")
            if isinstance(version, str) and version:
                return version
    return None
