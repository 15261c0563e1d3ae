"""The server's HTTP side: is it ready, and how long does the first token take."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any, NamedTuple

from calibration.profiling.server import LOOPBACK

__all__ = ["FirstToken", "HealthPoll", "first_token"]

_INTERVAL_S = 0.05
_CONNECT_S = 2.0
_PATIENCE_S = 10.0
"""Seconds of 404 after which the path is wrong."""
_MOST_ANSWER = 2**20


class HealthPoll(threading.Thread):
    """Asks the health endpoint until it answers 200; a thread, so that reading the server's output never waits for it."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__(daemon=True)
        self.ready_at: float | None = None
        """When the answer was 200, by the monotonic clock."""
        self.last_answer: str = "nothing listens"
        self.is_wrong_path = False
        """Whether a server that has been up for a while does not know the path."""
        self._unknown_since: float | None = None
        self._port, self._path = port, path
        self._ends = threading.Event()

    def run(self) -> None:
        """Poll until the answer is 200 or ``end`` is called."""
        while not self._ends.wait(_INTERVAL_S):
            connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=_CONNECT_S)
            try:
                connection.request("GET", self._path)
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


def first_token(port: int, timeout_s: float) -> FirstToken:
    """Send one completion request and wait for the first token of its stream."""
    try:
        models = _ask(port, "GET", "/v1/models", None, timeout_s)
        names = [entry.get("id") for entry in json.loads(models).get("data", [])]
        if not names:
            return FirstToken(None, "the server names no model")
        body = {"model": names[0], "prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": True}
        return _first_of_stream(port, body, timeout_s)
    except (OSError, http.client.HTTPException, ValueError, AttributeError, TypeError) as error:
        return FirstToken(None, f"{type(error).__name__}: {error}"[:200])


def _ask(port: int, method: str, path: str, body: Any, timeout_s: float) -> bytes:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read(_MOST_ANSWER)
        if answer.status != http.client.OK:
            raise ValueError(f"{path} answers {answer.status}")
        return content
    finally:
        connection.close()


def _first_of_stream(port: int, body: dict[str, Any], timeout_s: float) -> FirstToken:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps(body),
            {"Content-Type": "application/json", "Accept": "text/event-stream"},
        )
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            detail = answer.read(300).decode("utf-8", "replace")
            return FirstToken(None, f"/v1/completions answers {answer.status}: {detail}")
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
