"""The process between a profiler and the server that it measures: when the profiler is gone, for whatever reason, so is the server.

Run as a program (standard library only), it holds the reading end of a pipe of which the profiler holds the other. The pipe closes when the profiler ends,
also by SIGKILL: no signal handler and no polling is needed to notice. On Linux all descendants of the server become children of this process when their
parents end (PR_SET_CHILD_SUBREAPER), whatever sessions and groups they have made for themselves, so that none is missed; and the server is killed with
this process (PR_SET_PDEATHSIG), should that be killed itself. Elsewhere the process group of the server is what is known of it.

    python supervisor.py LIFELINE REPORT GRACE COMMAND...

LIFELINE, REPORT: numbers of open pipes, to read and to write. GRACE: seconds between SIGTERM and SIGKILL. A byte in LIFELINE, or its end, stops the server.
REPORT gets one JSON object a line: ``{"pid": ..., "started": ...}`` (by the monotonic clock) or ``{"error": ...}``, then ``{"exit": ...}`` (negative: a signal), then ``{"killed": ...}``,
the processes that had to be killed, and its end once no process is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["descendants", "main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.05
_MOST_ROUNDS = 200
"""Rounds of killing, a tick apart: processes that the kernel cannot end (in a driver, say) are given up after ten seconds."""


def descendants(root: int) -> list[int]:
    """All processes below ``root``, by the parents that /proc gives; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    pending = list(children.get(root, ()))
    while pending:
        pid = pending.pop()
        found.append(pid)
        pending += children.get(pid, ())
    return found


def _processes() -> Iterator[tuple[int, int]]:
    """Process and parent of all that live; those that have ended and wait to be reaped are left out."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208  names are enough
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name of the program stands in brackets and may hold anything.
                state, parent = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    yield int(name), int(parent)


def _prctl(option: int, value: int) -> None:
    """A property of this process, where the platform knows it."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    """The server in a session of its own, which gets signals of no terminal and dies with this process."""
    supervisor = os.getpid()

    def die_with_the_supervisor() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)  # it has ended already

    return subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_the_supervisor,  # noqa: PLW1509  one thread
    )


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _left(server: subprocess.Popen[bytes]) -> list[int]:
    """Processes of the server that still live."""
    found = descendants(os.getpid())
    if not found and server.poll() is None:
        found = [server.pid]
    return found


def _kill_all(server: subprocess.Popen[bytes]) -> int:
    """SIGKILL until nothing is left, since what is killed may have forked a moment before; how many were there at first."""
    first = None
    for _ in range(_MOST_ROUNDS):
        found = _left(server)
        first = len(found) if first is None else first
        if not found:
            break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, signal.SIGKILL)
        for pid in found:
            _send(pid, signal.SIGKILL)
        _reap(server)
        time.sleep(_TICK_S)
    return first or 0


def _reap(server: subprocess.Popen[bytes]) -> None:
    """Take leave of adopted children that have ended; the status of the server itself is left to ``poll``."""
    if not hasattr(os, "waitid"):
        return
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if found.si_pid == server.pid and server.poll() is None:
                break
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.si_pid, os.WNOHANG)


def _stop(server: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM as an operator would send it, then time to end by itself."""
    if server.poll() is None:
        _send(server.pid, signal.SIGTERM)
    end = time.monotonic() + grace
    while time.monotonic() < end and _left(server):
        _reap(server)
        time.sleep(_TICK_S)


def main(arguments: list[str]) -> int:
    """Run the server until it ends or the lifeline does; leave no process behind."""
    profiler = os.getppid()
    lifeline, report, grace = int(arguments[0]), int(arguments[1]), float(arguments[2])
    os.set_inheritable(lifeline, False)
    os.set_inheritable(report, False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The end of the lifeline says when to stop. To ignore a signal would be passed on to the server, a handler is not.
        signal.signal(number, lambda *_: None)

    def tell(**fields: object) -> None:
        with contextlib.suppress(OSError):  # the profiler may be gone
            os.write(report, (json.dumps(fields) + "\n").encode())

    started = time.monotonic()
    try:
        server = _start(arguments[3:])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        tell(error=getattr(error, "strerror", None) or str(error))
        return 127
    tell(pid=server.pid, started=started)
    while server.poll() is None:
        # A copy of the other end may live on in a process that the profiler has forked: its death shows in the parent, too.
        if select.select([lifeline], [], [], _TICK_S)[0] or os.getppid() != profiler:
            _stop(server, grace)
            break
        _reap(server)
    ended = server.poll()
    if ended is not None:
        tell(exit=ended)
    killed = _kill_all(server)
    if ended is None:
        tell(exit=server.wait())
    tell(killed=killed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
