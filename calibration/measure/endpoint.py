"""The server's HTTP side: is it ready, and how long does the first token take."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from calibration.logs.secrets import HIDDEN, without_secrets
from calibration.measure.server import LOOPBACK
from startup_model.errors import one_line

__all__ = ["FirstToken", "HealthPoll", "authorization", "first_token", "served_version"]

_INTERVAL_S = 0.05
_CONNECT_S = 2.0
_PATIENCE_S = 10.0
"""Seconds of 404 after which the path is wrong."""
_MOST_ANSWER = 2**20
_LONGEST_PROBLEM = 300
_VERSION_PATHS = ("/version", "/server_info", "/get_server_info")
"""Of vLLM, of SGLang, of SGLang before 0.5.6."""
_SCHEME = "Bearer "
_TICK_S = 0.05
_AFTER_CLOSING_S = 1.0
"""Seconds in which a request ends whose socket was closed."""
T = TypeVar("T")
_FAULTS = (OSError, http.client.HTTPException, ValueError, AttributeError, TypeError, RecursionError)
"""What comes of a server that answers otherwise than expected, or not at all."""


class HealthPoll(threading.Thread):
    """Asks the health endpoint until it answers 200; a thread, so that reading the server's output never waits for it."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(daemon=True)
        self.ready_at: float | None = None
        """When the answer was 200, by the monotonic clock."""
        self.last_answer: str = "nothing listens"
        self.is_wrong_path = False
        """Whether a server that has been up for a while does not know the path."""
        self._unknown_since: float | None = None
        self._port, self._path, self._headers = port, path, dict(headers)
        self._ends = threading.Event()

    def run(self) -> None:
        """Poll until the answer is 200 or ``end`` is called."""
        while not self._ends.wait(_INTERVAL_S):
            connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=_CONNECT_S)
            try:
                connection.request("GET", self._path, headers=self._headers)
                status = connection.getresponse().status
                if status == http.client.OK:
                    self.ready_at = time.monotonic()
                    return
                self.last_answer = f"{self._path} answers {status}"
                now = time.monotonic()
                self._unknown_since = (self._unknown_since or now) if status == http.client.NOT_FOUND else None
                self.is_wrong_path = self._unknown_since is not None and now - self._unknown_since > _PATIENCE_S
            except _FAULTS as error:
                if not isinstance(error, ConnectionRefusedError):
                    self.last_answer = f"{type(error).__name__} at {self._path}"
            finally:
                connection.close()

    def end(self) -> None:
        """Stop polling."""
        self._ends.set()


class FirstToken(NamedTuple):
    """The first request."""

    at: float | None
    """When its first token came, by the monotonic clock; None when none came."""
    problem: str = ""


def authorization(key: str | None) -> dict[str, str]:
    """The header that a server asks for which was started with an API key. It is sent to that server, and kept nowhere."""
    is_sendable = key is not None and key != "" and key.isascii() and key.isprintable()
    return {"Authorization": f"{_SCHEME}{key}"} if is_sendable else {}


def first_token(
    port: int,
    timeout_s: float,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    hide: Callable[[str], str] = without_secrets,
    meanwhile: Callable[[], object] | None = None,
) -> FirstToken:
    """Send one completion request and wait for the first token of its stream, ``timeout_s`` for all of it.

    headers: those of ``authorization``; hide: takes secrets out of a text; meanwhile: is called again and again while the answer is waited for, None: nothing is done.
    """

    def ask(requests: _Requests) -> FirstToken:
        names = [entry.get("id") for entry in json.loads(requests.get("/v1/models")).get("data", [])]
        if not names:
            return FirstToken(None, "the server names no model")
        body = {"model": names[0], "prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": True}
        return _first_of_stream(requests, body)

    def say(error: Exception) -> FirstToken:
        return FirstToken(None, f"{type(error).__name__}: {error}")

    late = FirstToken(None, f"no token came within {timeout_s:g} s")
    found = _Call(_Requests(port, timeout_s, headers), ask, say).result(late, meanwhile)
    return found._replace(problem=_problem(found.problem, headers, hide))


def _problem(text: str, headers: Mapping[str, str], hide: Callable[[str], str]) -> str:
    """A text for the record, without the key that was sent."""
    for value in headers.values():
        text = text.replace(value.removeprefix(_SCHEME), HIDDEN)
    return one_line(hide(text), _LONGEST_PROBLEM)


def served_version(port: int, timeout_s: float, headers: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """The version that the engine's server gives; None where it gives none within the time."""

    def ask(requests: _Requests) -> str | None:
        for path in _VERSION_PATHS:
            with contextlib.suppress(*_FAULTS):
                version = json.loads(requests.get(path)).get("version")
                if isinstance(version, str) and version:
                    return version
        return None

    return _Call(_Requests(port, timeout_s, headers), ask, lambda error: None).result(None)


def _first_of_stream(requests: _Requests, body: dict[str, Any]) -> FirstToken:
    kinds = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    with requests.answer("POST", "/v1/completions", json.dumps(body), kinds) as answer:
        if answer.status != http.client.OK:
            detail = answer.read(300).decode("utf-8", "replace")
            return FirstToken(None, f"/v1/completions answers {answer.status}: {detail}")
        while line := answer.readline(_MOST_ANSWER):
            if line.startswith(b"data:") and b"choices" in line:
                return FirstToken(time.monotonic())
        return FirstToken(None, "the stream of /v1/completions ended without a token")


class _Requests:
    """Requests, one after the other, to be done by one moment."""

    def __init__(self, port: int, timeout_s: float, headers: Mapping[str, str]) -> None:
        self._port, self._headers = port, dict(headers)
        self._end = time.monotonic() + timeout_s
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def left_s(self) -> float:
        """Seconds until then."""
        return max(0.0, self._end - time.monotonic())

    def close(self) -> None:
        """Close the connection: what reads from it comes to an end."""
        with self._lock:
            self._is_over = True
            for connected in self._sockets:
                with contextlib.suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)

    def get(self, path: str) -> bytes:
        """What a path answers, when it is 200. Raises one of ``_FAULTS``."""
        with self.answer("GET", path) as answer:
            content = answer.read(_MOST_ANSWER)
            if answer.status != http.client.OK:
                raise ValueError(f"{path} answers {answer.status}")
            return content

    @contextlib.contextmanager
    def answer(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request, to be read within the block. Raises one of ``_FAULTS``."""
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=max(self.left_s, 0.001))
        try:
            connection.connect()
            with self._lock:
                if self._is_over:
                    raise TimeoutError("the time is up")
                self._sockets = [connection.sock]  # the connection itself forgets it when the server announces its end
            connection.request(method, path, body, {**self._headers, **headers})
            with connection.getresponse() as answer:
                yield answer
        finally:
            with self._lock:
                self._sockets = []
            connection.close()


class _Call(threading.Thread, Generic[T]):
    """Asks a server in a thread, so that a time limit holds whatever it sends: the limit of a socket begins anew with every byte that arrives."""

    def __init__(self, requests: _Requests, ask: Callable[[_Requests], T], say: Callable[[Exception], T]) -> None:
        """say: makes a result of an error."""
        super().__init__(daemon=True)
        self._requests, self._ask, self._say = requests, ask, say
        self._found: list[T] = []
        self.start()

    def run(self) -> None:
        """Ask."""
        try:
            self._found.append(self._ask(self._requests))
        except _FAULTS as error:
            self._found.append(self._say(error))

    def result(self, late: T, meanwhile: Callable[[], object] | None = None) -> T:
        """What was found; ``late`` when the time is up."""
        try:
            while self.is_alive() and self._requests.left_s > 0:
                if meanwhile is not None:
                    meanwhile()
                self.join(min(self._requests.left_s, _TICK_S if meanwhile is None else 0.0))
            is_late = self.is_alive()
        finally:
            self._requests.close()
            self.join(_AFTER_CLOSING_S)
        return late if is_late or not self._found else self._found[0]
