"""A server under a supervisor: started without a shell, read as it prints, stopped for certain."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import IO, Any, Self

from calibration.measure.supervisor import KILL, KILLING_S, STOP, Orders, descendants, processes
from startup_model.errors import ConfigError, one_line

LOOPBACK = "127.0.0.1"
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_CHUNK = 2**12
_STANDARD_STREAMS = 3
_MAX_MARKER = 2**60
_SWEEPS = 40
_EMPTY_SWEEPS = 3  # looks that find nothing, after which nothing is left: what forks meanwhile can be missed by one
_LAUNCH_S = 30.0  # until the supervisor says that the server runs
_AFTER_GRACE_S = KILLING_S + 5.0  # that killing may take after the grace
_AFTER_REPORT_S = 2.0  # in which the supervisor ends once it has said that nothing is left
_END_S = 10.0  # until a supervisor that has ended, or was killed, is seen to have done so
_ATTEMPTS = 3
_TICK_S = 0.05
_LOOKS = (
    3  # a process that loses its parent meanwhile may be missed: it is looked for again before it counts as foreign
)
_LOOK_S = 0.02
_PREFERRED = (frozenset({LOOPBACK, "::ffff:127.0.0.1"}), frozenset({"0.0.0.0"}), frozenset({"::"}))  # noqa: S104  looked for, not bound to
_CLOSED = io.FileIO(os.devnull)
_CLOSED.close()


def free_port() -> int:
    """A port on the loopback interface that nobody listens on."""
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of the loopback interface."""
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


def status_words(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "without a status"
    return f"by signal {-status}" if status < 0 else f"with status {status}"


class Server:
    """A running server. Leaving the ``with`` block stops it and all that it has started; so does the end of this process, of whatever kind.

    words: its command; environment: all its variables, None: those of this process; grace_s: seconds between SIGTERM and SIGKILL, five at most when this process has been
    killed; temporary: a folder that this process is going to remove: should it be killed while the server runs, the folder is removed once no process of the server is left.
    ``supervisor`` tells how all this comes about, and what is not covered.

    Raises ConfigError when the program cannot be run, or ``temporary`` is not a folder with an absolute path.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        grace_s: float = 10.0,
        temporary: str | os.PathLike[str] | None = None,
    ) -> None:
        if temporary is not None and not (Path(temporary).is_absolute() and Path(temporary).is_dir()):
            raise ConfigError("temporary", str(temporary), "must be a folder with an absolute path", "make one")
        self.grace_s = grace_s
        self.exit_status: int | None = None
        """Of the server's first process, negative for a signal; None while it runs."""
        self.killed = 0
        """Processes that were still there when it had ended, or the grace was over."""
        self.interrupt: int | None = None
        """The signal that came while the server was being stopped, where ``stop`` was asked to hold it; None: none came."""
        self.pid, self.started = 0, time.monotonic()
        self._lifeline = self._report = self._output = _CLOSED
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._marker = _new_marker()
        self._report_text, self._refusal = b"", ""  # what the supervisor has said: an open line, why it did not start
        self._lock = threading.Lock()
        self._is_over = False
        self._was_told = False  # the supervisor has said that nothing is left
        self._kill_by = float("inf")  # when the supervisor is taken for hung
        held = _HeldSignals(self._kill_now)
        try:
            with held:
                self._launch(words, os.environ if environment is None else environment, temporary)
                self._wait_for_launch(words[0])
            held.deliver()
        except BaseException:
            self.stop()
            held.deliver()
            raise

    def _launch(
        self, words: Sequence[str], environment: Mapping[str, str], temporary: str | os.PathLike[str] | None
    ) -> None:
        try:
            with ExitStack() as theirs:
                lifeline, self._lifeline = _pipe()
                # Should nobody stop this server, because an exception has come between: it ends with this object.
                weakref.finalize(self, self._lifeline.close)
                theirs.enter_context(lifeline)
                self._report, report = _pipe()
                theirs.enter_context(report)
                self._output, output = _pipe()
                theirs.enter_context(output)
                for pipe in (self._report, self._output):
                    os.set_blocking(pipe.fileno(), False)
                orders = Orders(
                    command=[os.fsencode(word).decode("latin-1") for word in words],
                    profiler=self._owner,
                    lifeline=lifeline.fileno(),
                    report=report.fileno(),
                    grace_s=self.grace_s,
                    marker=self._marker,
                    temporary=None if temporary is None else os.fspath(temporary),
                )
                self._supervisor = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-I", "-S", str(_SUPERVISOR)],
                    stdin=theirs.enter_context(_order_file(json.dumps(orders._asdict()))), stdout=output, stderr=output,
                    pass_fds=(orders.lifeline, orders.report), env=dict(environment), start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as error:
            self._is_over = self._was_told = True
            reason = getattr(error, "strerror", None) or error
            remedy = "look at its variables and at the limits of this host"
            raise ConfigError("command", words[0], f"cannot be run ({reason})", remedy) from None

    def _wait_for_launch(self, program: str) -> None:
        end = time.monotonic() + _LAUNCH_S
        while time.monotonic() < end and not (self._is_over or self.pid or self._refusal):
            _readable([self._report], 0.1)
            self._hear()
        if self._refusal:
            self._was_told = True
            problem = f"cannot be run ({one_line(self._refusal, 200)})"
            raise ConfigError("command", program, problem, "give the path of the server's program")
        if not self.pid:
            remedy = "check that this Python can start processes"
            raise ConfigError("command", program, "its supervisor did not start", remedy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # What has interrupted the block goes on to do so: a second Ctrl-C has done its work when the server is killed.
        self.stop(hold_interrupt=error is not None and not isinstance(error, Exception | GeneratorExit))

    def read(self, timeout_s: float) -> bytes | None:
        """What was printed, b"" when nothing was within the time, None once everything was read and the server is gone, or has been stopped."""
        was_over = self._is_over  # processes that outlive their supervisor may keep the pipe open
        ready = _readable([self._output, self._report], timeout_s)
        with self._lock:
            if self._report in ready:
                self._hear()
            if self._output in ready:
                data = _read(self._output)
                if data:
                    return data
                if data is not None:
                    self._output.close()
            return None if was_over or (self._output.closed and self._is_over) else b""

    @property
    def has_ended(self) -> bool:
        """Whether the first process of the server has ended."""
        return self.exit_status is not None or self._is_over

    def listens(self, port: int) -> bool | None:
        """Whether it is this server that a connection to a port of the loopback interface reaches; None where that cannot be told, see ``listens_below``."""
        return None if self._supervisor is None else listens_below(port, self._supervisor.pid)

    def stop(self, *, hold_interrupt: bool = False) -> None:
        """SIGTERM, SIGKILL after the grace, and no return before nothing is left, as far as a process can be killed. Harmless when it has been called before.

        A signal that would raise an exception (Ctrl-C, or SIGTERM and SIGHUP where this process handles them) raises none in the middle: it ends the grace, and is delivered when
        nothing is left. hold_interrupt: it is not delivered but kept in ``interrupt``, for ``signal.raise_signal`` once what was measured is safe.
        """
        held = _HeldSignals(self._kill_now)
        came: BaseException | None = None
        for _ in range(_ATTEMPTS):
            try:
                with held:
                    self._end()
                break
            except BaseException as error:  # before signals were held
                came = error
                self._kill_now()
        if came is not None:
            raise came
        if hold_interrupt:
            self.interrupt = self.interrupt or held.number
        else:
            held.deliver()

    def _end(self) -> None:
        self._kill_by = min(self._kill_by, time.monotonic() + self.grace_s + _AFTER_GRACE_S)
        is_own = os.getpid() == self._owner  # a process that this one has forked has no say in it
        if is_own:
            self._order(STOP)
            while not self._is_over and time.monotonic() < self._kill_by:
                self.read(_TICK_S)
        if is_own and self._supervisor is not None:
            if not self._is_over:
                self._supervisor.kill()  # it hangs
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(_END_S)
            if not self._was_told:
                self.killed, self._was_told = self.killed + _kill_marked(self._marker), True
        with self._lock:
            self._is_over = True
            for pipe in (self._lifeline, self._output, self._report):
                pipe.close()

    def _kill_now(self) -> None:
        self._order(KILL)
        self._kill_by = min(self._kill_by, time.monotonic() + _AFTER_GRACE_S)

    def _order(self, order: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # there is nobody left to hear it
            self._lifeline.write(order)

    def _hear(self) -> None:
        data = _read(self._report)
        if data == b"":
            self._is_over = True
            self._report.close()
        *lines, self._report_text = (self._report_text + (data or b"")).split(b"\n")
        for line in map(json.loads, filter(None, lines)):
            self._refusal = str(line.get("error", self._refusal))
            self.exit_status = line.get("exit", self.exit_status)
            if "pid" in line:
                self.pid, self.started = int(line["pid"]), float(line["started"])
            if "killed" in line:
                self.killed, self._was_told = int(line["killed"]), True
                self._kill_by = min(self._kill_by, time.monotonic() + _AFTER_REPORT_S)


class _HeldSignals:
    """Signals that would raise an exception wait until the block is left; each is told at once. They raise in the main thread alone: elsewhere nothing is held."""

    def __init__(self, received: Callable[[], None]) -> None:
        self.number: int | None = None  # the first that came
        self._received = received
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(number)
                if callable(handler) and number not in self._handlers:
                    self._handlers[number] = handler
                    signal.signal(number, self._hold)

    def __exit__(self, *_: object) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _hold(self, number: int, _: FrameType | None) -> None:
        self.number = self.number or number
        self._received()

    def deliver(self) -> None:
        """Do what the signal would have done."""
        number, self.number = self.number, None
        if number is not None:
            signal.raise_signal(number)


def _pipe() -> tuple[io.FileIO, io.FileIO]:
    """Reading and writing end of a pipe, clear of the standard streams: where those are closed, a pipe gets their numbers, and a child would overwrite it."""
    import fcntl

    ends = list(os.pipe())
    try:
        for place, end in enumerate(ends):
            if end < _STANDARD_STREAMS:
                ends[place] = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _STANDARD_STREAMS)
                os.close(end)
    except OSError:
        for end in ends:
            os.close(end)
        raise
    return io.FileIO(ends[0], "rb"), io.FileIO(ends[1], "wb")


def _order_file(text: str) -> IO[bytes]:
    in_memory = hasattr(os, "memfd_create")
    file: IO[bytes] = os.fdopen(os.memfd_create("orders"), "w+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115
    file.write(text.encode())
    file.seek(0)
    return file


def _readable(pipes: Iterable[io.FileIO], timeout_s: float) -> set[io.FileIO]:
    """Those of the pipes that have something to read, or have ended, within the time; at once where all are closed."""
    poll = select.poll()
    waited_for: dict[int, io.FileIO] = {}
    for pipe in pipes:
        with contextlib.suppress(ValueError):  # it is closed
            poll.register(pipe, select.POLLIN)
            waited_for[pipe.fileno()] = pipe
    return {waited_for[number] for number, _ in poll.poll(timeout_s * 1e3)} if waited_for else set()


def _read(pipe: io.FileIO) -> bytes | None:
    """What a pipe holds, b"" at its end, None where there is nothing."""
    return None if pipe.closed else pipe.read(_CHUNK)


def _new_marker() -> int:
    """A limit on the time of realtime processes that no other process has; 0 where there is no such limit, or no room below the one that this process has."""
    if not sys.platform.startswith("linux"):
        return 0
    import resource

    hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    most = _MAX_MARKER if hard == resource.RLIM_INFINITY else min(hard, _MAX_MARKER)
    return most - 1 - secrets.randbelow(most // 8) if most >= 8 else 0


def _kill_marked(marker: int) -> int:
    """Kill every process with the marker, wherever it hangs in the tree; how many there were."""
    found: set[int] = set()
    empty = 0
    for _ in range(_SWEEPS if marker else 0):
        present = {pid for pid, _, lives in processes() if lives and _marker_of(pid) == marker}
        empty = 0 if present else empty + 1
        if empty == _EMPTY_SWEEPS:
            break
        found |= present
        for pid in present:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK_S if present else _TICK_S / 10)
    return len(found)


def _marker_of(pid: int) -> int | None:
    """None: it has ended, or belongs to somebody else, whom a signal would not reach either."""
    import resource

    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[1]
    except OSError:
        return None


def sees_listeners() -> bool:
    """Whether it can be told here who listens on a port: with psutil, of the extra ``profile``."""
    return find_spec("psutil") is not None


def listens_below(port: int, root: int) -> bool | None:
    """Whether a connection to a port of the loopback interface reaches a process below ``root``.

    False: another program listens there. None: it cannot be told, since nobody listens, ``root`` is gone, open files of its processes may not be read, or psutil is not there.
    Of several listeners, those that the kernel prefers count: an address of its own before any address, then IPv4 before IPv6 (``inet_lookup_listener``).
    """
    if not sees_listeners():
        return None
    import psutil

    for look in range(_LOOKS):
        time.sleep(_LOOK_S if look else 0.0)
        below = set(descendants(root))
        try:
            listeners = [
                (entry.laddr.ip, entry.pid)
                for entry in psutil.net_connections("tcp")
                if entry.status == psutil.CONN_LISTEN and entry.laddr.port == port
            ]
        except (psutil.Error, OSError, RuntimeError):
            return None
        wanted = _preferred(listeners)
        if not wanted or not below:
            return None
        if wanted <= below:
            return True
        if None in wanted and not all(os.access(f"/proc/{pid}/fd", os.R_OK) for pid in below):
            return None
    return False


def _preferred(listeners: Sequence[tuple[str, int | None]]) -> set[int | None]:
    """The processes that get a connection to the loopback interface; None: one whose files may not be read."""
    found = ({pid for address, pid in listeners if address in addresses} for addresses in _PREFERRED)
    return next(filter(None, found), set())
