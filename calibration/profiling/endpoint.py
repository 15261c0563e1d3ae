"""The server's HTTP side: is it ready, and how long does the first token take."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from calibration.logs.secrets import HIDDEN, without_secrets
from calibration.profiling.server import LOOPBACK
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
_FAULTS = (OSError, http.client.HTTPException, ValueError, AttributeError, TypeError)
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
            except (OSError, http.client.HTTPException) as error:
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


def first_token(port: int, timeout_s: float, headers: Mapping[str, str] = MappingProxyType({})) -> FirstToken:
    """Send one completion request and wait for the first token of its stream; ``headers``: those of ``authorization``."""
    try:
        models = _ask(port, "/v1/models", timeout_s, headers)
        names = [entry.get("id") for entry in json.loads(models).get("data", [])]
        if not names:
            return FirstToken(None, "the server names no model")
        body = {"model": names[0], "prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": True}
        return _first_of_stream(port, body, timeout_s, headers)
    except _FAULTS as error:
        return FirstToken(None, _problem(f"{type(error).__name__}: {error}", headers))


def _problem(text: str, headers: Mapping[str, str]) -> str:
    """A text for the record, without the key that was sent."""
    for value in headers.values():
        text = text.replace(value.removeprefix(_SCHEME), HIDDEN)
    return one_line(without_secrets(text), _LONGEST_PROBLEM)


def served_version(port: int, timeout_s: float, headers: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """The version that the engine's server gives; None where it gives none."""
    for path in _VERSION_PATHS:
        with contextlib.suppress(*_FAULTS):
            version = json.loads(_ask(port, path, timeout_s, headers)).get("version")
            if isinstance(version, str) and version:
                return version
    return None


def _ask(port: int, path: str, timeout_s: float, headers: Mapping[str, str]) -> bytes:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        content = answer.read(_MOST_ANSWER)
        if answer.status != http.client.OK:
            raise ValueError(f"{path} answers {answer.status}")
        return content
    finally:
        connection.close()


def _first_of_stream(port: int, body: dict[str, Any], timeout_s: float, headers: Mapping[str, str]) -> FirstToken:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps(body),
            {"Content-Type": "application/json", "Accept": "text/event-stream", **headers},
        )
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            detail = answer.read(300).decode("utf-8", "replace")
            return FirstToken(None, _problem(f"/v1/completions answers {answer.status}: {detail}", headers))
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            line = answer.readline(_MOST_ANSWER)
            if line.startswith(b"data:") and b"choices" in line:
                return FirstToken(time.monotonic())
            if not line:
                break
        return FirstToken(None, "the stream of /v1/completions ended without a token")
    finally:
        connection.close()
