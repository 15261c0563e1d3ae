"""The processes between a profiler and the server that it measures: when the profiler is gone, for whatever reason, so is the server.

Run as a program (standard library only), it becomes two: a watcher, and its child, the supervisor, which starts the server. Both hold the reading end of a pipe of which
the profiler holds the other. The pipe closes when the profiler ends, also by SIGKILL: no signal handler is needed to notice. On Linux all descendants of the server
become children of the supervisor when their parents end, or of the watcher should the supervisor be killed (PR_SET_CHILD_SUBREAPER), whatever sessions, groups, names and
environments they have made for themselves, so that none is missed. Any two of profiler, watcher and supervisor may be killed at the same instant: the third ends the server.
It knows its processes by their descent; the profiler knows them by a marker, the hard limit on the time that a realtime process may run (RLIMIT_RTTIME). It is inherited over
everything that a process may do to itself, and means nothing to a process that is not scheduled in real time.

Not covered: all three killed at the same instant (the kernel then kills the first process of the server, PR_SET_PDEATHSIG, but not its workers); what the server has had started
by somebody else (containers, services of systemd); processes that the kernel cannot end, in a driver say, which are given up after half a minute. Without Linux, only the process
group of the server is known, and only to the supervisor.

    python supervisor.py < ORDERS

ORDERS: the fields of ``Orders`` in JSON. They come as a file so that neither a secret in the command nor its name, by which somebody may look for processes to kill, stands among the
arguments of this program. A byte in the lifeline stops the server, ``STOP`` with the grace for SIGTERM, ``KILL`` at once; its end is taken for the death of the profiler, and leaves a
grace of five seconds at most. The report gets one JSON object a line: ``{"pid": ..., "started": ...}`` (by the monotonic clock) or ``{"error": ...}``, then ``{"exit": ...}`` (negative: a
signal), then ``{"killed": ...}``, the processes that had to be killed, and its end once no process is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

STOP, KILL = b"s", b"k"  # what the profiler writes into the lifeline
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_NAME, _TITLE = b"server-watch", b"supervisor of a measured server"
_TICK_S = 0.05
_WATCH_S = 0.5
_QUICK_LOOKS = 200
KILLING_S = 30.0  # of killing, after which what still lives is given up
_ORPHANED_GRACE_S = 5.0  # between SIGTERM and SIGKILL when nobody waits for the server to end in its own way
_PATIENCE_S = 3.0  # that the watcher adds to what the supervisor may need, before it takes it for hung
_NOT_STARTED = 127


class Orders(NamedTuple):
    """What this program is to do."""

    command: list[str]  # words of the server's command; each character is a byte, as the kernel gets it
    profiler: int  # its process
    lifeline: int  # number of an open pipe, to read
    report: int  # number of an open pipe, to write
    grace_s: float  # between SIGTERM and SIGKILL
    marker: int = 0  # the limit by which processes of the server are known; 0: none
    temporary: str | None = None  # a folder to remove, once no process is left, if the profiler has died by then


class StopRequest(enum.IntEnum):
    """What is asked of the server, the most urgent last."""

    NONE = 0
    STOP = 1
    ORPHANED = 2
    KILL = 3


_REQUESTS = {STOP[0]: StopRequest.STOP, KILL[0]: StopRequest.KILL}


def descendants(root: int) -> list[int]:
    """All processes below ``root``, by the parents that /proc gives; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    dead = set()
    for pid, parent, lives in processes():
        children.setdefault(parent, []).append(pid)
        if not lives:
            dead.add(pid)
    found: list[int] = []
    pending = list(children.get(root, ()))
    while pending:
        pid = pending.pop()
        if pid not in dead:
            found.append(pid)
        pending += children.get(pid, ())
    return found


def processes() -> Iterator[tuple[int, int, bool]]:
    """All processes, their parents, and whether they live: what has ended and waits to be reaped does not, unless threads of it go on."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208  names are enough
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name of the program stands in brackets and may hold anything.
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
                yield int(name), int(fields[1]), fields[0] not in (b"Z", b"X") or int(fields[17]) > 1


class _Child:
    """A child of this process, which looks after it and all that it inherits from it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        """Of its end, negative for a signal; None while it lives."""

    def reap(self) -> bool:
        """Take leave of all children that have ended; whether any is left. On Linux, where orphans become children of this process, none means that nothing is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)

    def kill_all(self) -> int:
        """SIGKILL until nothing is left, since what is killed may have forked a moment before; how many were there at first."""
        first = None
        sent: set[int] = set()
        rest = _TICK_S / 16
        end = time.monotonic() + KILLING_S
        while True:
            found = descendants(os.getpid()) or ([self.pid] if self.status is None else [])
            first = len(found) if first is None else first
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            are_new = not sent.issuperset(found)
            sent |= _kill(found)
            for _ in range(_QUICK_LOOKS if are_new else 0):
                # What forks and ends faster than one can look at all processes is a child of this one.
                self.reap()
                sent |= _kill(pid for pid in _children() if pid not in sent)
            if not self.reap() or time.monotonic() >= end:
                return first
            time.sleep(rest)
            rest = min(2 * rest, _TICK_S)


def _children() -> list[int]:
    """Children of this process, quickly; none where the kernel has no list of them."""
    pid = os.getpid()
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    return []


def _kill(pids: Iterable[int]) -> set[int]:
    sent = set(pids)
    for pid in sent:
        _send(pid, signal.SIGKILL)
    return sent


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int | bytes) -> None:
    """A property of this process, where the platform knows it."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _rename() -> None:
    """Take another name than the program's: who kills whatever is called python, or stands in a folder of this name, means the profiler and the server."""
    _prctl(_PR_SET_NAME, _NAME)
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        begin, end = int(fields[45]), int(fields[46])  # arg_start, arg_end (proc_pid_stat(5))
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(_TITLE[: end - begin - 1].ljust(end - begin, b"\0"))


def _set_marker(marker: int) -> None:
    """Mark this process, and with it all that will come of it."""
    if marker and sys.platform.startswith("linux"):
        import resource

        with contextlib.suppress(OSError, ValueError):
            soft = resource.getrlimit(resource.RLIMIT_RTTIME)[0]
            soft = marker if soft == resource.RLIM_INFINITY else min(soft, marker)
            resource.setrlimit(resource.RLIMIT_RTTIME, (soft, marker))


class _Requests:
    """Requests to stop the server: by the lifeline, and by the tether, which closes when the watcher ends or has missed the profiler."""

    def __init__(self, lifeline: int, tether: int) -> None:
        self._poll = select.poll()
        self._open = {lifeline, tether}
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

    def received(self, timeout_s: float) -> StopRequest:
        """The most urgent of what comes within the time."""
        if not self._open:
            time.sleep(timeout_s)
        found = StopRequest.NONE
        for descriptor, _ in self._poll.poll(timeout_s * 1e3) if self._open else ():
            data = os.read(descriptor, 64)
            found = max([found, *(_REQUESTS.get(byte, StopRequest.NONE) for byte in data)])
            if not data:
                self._poll.unregister(descriptor)
                self._open.discard(descriptor)
                found = max(found, StopRequest.ORPHANED)
        return found


def _start(command: list[bytes]) -> subprocess.Popen[bytes]:
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


def _supervise(orders: Orders, tether: int, tell: Callable[..., None]) -> int:
    """Run the server until it ends or is to be stopped; leave no process behind."""
    started = time.monotonic()
    try:
        server = _start([word.encode("latin-1") for word in orders.command])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        tell(error=getattr(error, "strerror", None) or str(error))
        return _NOT_STARTED
    tell(pid=server.pid, started=started)
    child = _Child(server.pid)
    _wait(child, orders, _Requests(orders.lifeline, tether))
    if has_ended := child.status is not None:
        tell(exit=child.status)
    killed = child.kill_all()
    server.returncode = child.status  # it has been waited for
    if not has_ended and child.status is not None:
        tell(exit=child.status)
    tell(killed=killed)
    if _is_hung_up(orders.lifeline):
        _remove(orders.temporary)
    return 0


def _wait(child: _Child, orders: Orders, requests: _Requests) -> None:
    """Until the first process of the server has ended by itself; or, once it is to stop, until nothing is left or the grace is over. It gets SIGTERM as an operator would send it."""
    orphaned_s = min(orders.grace_s, _ORPHANED_GRACE_S)
    graces = {StopRequest.STOP: orders.grace_s, StopRequest.ORPHANED: orphaned_s, StopRequest.KILL: 0.0}
    request, end = StopRequest.NONE, math.inf
    while child.reap() and time.monotonic() < end and (request != StopRequest.NONE or child.status is None):
        received = requests.received(_TICK_S)
        if received > request:
            if request == StopRequest.NONE and child.status is None:
                _send(child.pid, signal.SIGTERM)
            request, end = received, min(end, time.monotonic() + graces[received])


def _is_hung_up(pipe: int) -> bool:
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def _remove(folder: str | None) -> None:
    if folder is not None:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _watch(supervisor: _Child, tether: int, orders: Orders, tell: Callable[..., None]) -> int:
    """Wait for the supervisor; do its work should it be killed, and kill it should it hang when the profiler is gone."""

    def is_orphaned() -> bool:
        # A copy of the lifeline may live on in a process that the profiler has forked: its death shows in the parent, too.
        return _is_hung_up(orders.lifeline) or os.getppid() != orders.profiler

    ends = select.poll()  # of the profiler, and of the supervisor, who alone reads the tether
    ends.register(orders.lifeline, 0)
    ends.register(tether, 0)
    end = math.inf
    while supervisor.reap() and supervisor.status is None:
        if end == math.inf and is_orphaned():
            os.close(tether)
            end = time.monotonic() + min(orders.grace_s, _ORPHANED_GRACE_S) + KILLING_S + _PATIENCE_S
        if time.monotonic() > end:
            _send(supervisor.pid, signal.SIGKILL)
        if end == math.inf:
            ends.poll(_WATCH_S * 1e3)
        else:
            time.sleep(_TICK_S)
    if supervisor.status not in (0, _NOT_STARTED):
        tell(killed=supervisor.kill_all())
    if is_orphaned():
        _remove(orders.temporary)
    return supervisor.status or 0


def main() -> int:
    """Carry out the orders on standard input."""
    orders = Orders(**json.load(sys.stdin))
    os.set_inheritable(orders.lifeline, False)
    os.set_inheritable(orders.report, False)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The lifeline says when to stop. To ignore or to block a signal would be passed on to the server, a handler is not.
        signal.signal(number, lambda *_: None)
    _rename()
    _set_marker(orders.marker)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def tell(**fields: object) -> None:
        with contextlib.suppress(OSError):  # the profiler may be gone
            os.write(orders.report, (json.dumps(fields) + "\n").encode())

    tether, held = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        tell(error=error.strerror or str(error))
        return _NOT_STARTED
    if pid:
        os.close(tether)
        return _watch(_Child(pid), held, orders, tell)
    os.close(held)
    os.setsid()  # a signal to the group of the watcher is none to this process
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return _supervise(orders, tether, tell)


if __name__ == "__main__":
    sys.exit(main())
