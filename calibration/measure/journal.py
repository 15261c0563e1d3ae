"""The output of a server while it runs: every line gets the moment at which it arrived, and the last ones are kept for messages."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from calibration.logs.secrets import without_secrets
from startup_model.errors import one_line

__all__ = ["Journal"]

_PIECE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")
_LAST_LINES = 12
_LONGEST_KEPT = 300
_LONGEST_PIECE = 2**16


class Journal:
    """Stamps lines as a container runtime would: by microseconds, where engines often print whole seconds."""

    def __init__(self, started: float, hide: Callable[[str], str] = without_secrets) -> None:
        """started: when the process began, by the monotonic clock; hide: takes secrets out of a text."""
        self.started = started
        self.first_line_s: float | None = None
        """Seconds from the start of the process to its first line."""
        self._hide = hide
        self._zero = datetime.now(UTC).timestamp()
        self._at_begin = True
        self._open = b""
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)

    def stamped(self, data: bytes, now: float) -> bytes:
        """``data`` that arrived at ``now``, with a stamp in front of every line that begins in it."""
        if not data:
            return b""
        elapsed = max(0.0, now - self.started)
        stamp = datetime.fromtimestamp(self._zero + elapsed, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
        found = []
        for match in _PIECE.finditer(data):
            piece = match.group()
            if not piece:
                continue
            is_blank = not piece.strip()
            if self._at_begin and not is_blank:
                found.append(stamp)
                if self.first_line_s is None:
                    self.first_line_s = elapsed
            found.append(piece)
            self._open = (self._open + piece)[:_LONGEST_PIECE]
            self._at_begin = piece.endswith((b"\n", b"\r"))
            if self._at_begin:
                if self._open.strip():
                    self._last.append(self._open)
                self._open = b""
        return b"".join(found)

    def last_lines(self) -> list[str]:
        """The last lines, without what looks like a secret."""
        lines = [*self._last, self._open] if self._open.strip() else [*self._last]
        return [one_line(self._hide(line.decode("utf-8", "replace")), _LONGEST_KEPT) for line in lines]
