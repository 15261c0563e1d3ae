"""``startup-model watch``: run a server, or read its log from a pipe, and say how long it will be.

The server's output passes through untouched; what watch has to say goes to standard error (a bar on a terminal, lines elsewhere), or as JSON lines to
standard output, and then the server's output goes to standard error.
"""

from __future__ import annotations

import json
import math
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, Self, TypeVar
from weakref import WeakSet

import typer

from calibration.cli.logs import words_of
from startup_model.cli.terminal import console_of, printable
from startup_model.errors import ConfigError, InputFileError, StartupModelError, conflict, missing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from calibration.logs.parsed import LoggedStart
    from calibration.logs.watch import Outlook, StartupWatch
    from startup_model.hardware import HardwareConfig

_TICK_S = 0.25
_LINE_EVERY_S = 10.0
_CHUNK = 2**16
_GRACE_S = 10.0
_SETTLED_S = 1.0  # after the first line of a failure, which is seldom the one that says why
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_T = TypeVar("_T")


def watch_command(
    command: Annotated[list[str] | None, typer.Argument(help="The server's command, after --; or - to read its log from standard input.", metavar="[-- COMMAND...] | -")] = None,
    profile: Annotated[str | None, typer.Option(help="Profile file or name of a reference; default: the nearest reference.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Preset or JSON file; default: the profile's, or what nvidia-smi shows.")] = None,
    model: Annotated[str | None, typer.Option(help="Folder, config.json or catalogue name; default: as the command or the log says.")] = None,
    page_cache: Annotated[str, typer.Option(help="hot, cold or unknown.")] = "unknown",
    compile_cache: Annotated[str | None, typer.Option(help="warm, cold or unknown; default: as the log tells.")] = None,
    level: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.9,
    exit_when_ready: Annotated[bool, typer.Option("--exit-when-ready", help="With -: stop as soon as the server is ready. What writes into the pipe may end with it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output, for autoscalers.")] = False,
) -> None:  # fmt: skip
    """Seconds until a starting server is ready, from its log as it grows."""
    from calibration.logs.watch import StartupWatch
    from startup_model.engines.config import EngineConfig
    from startup_model.predictor import as_model

    words = list(command or [])
    if not words:
        remedy = "give the server's command after --, or - to read its log from standard input"
        raise missing("COMMAND", "nothing is watched", remedy)
    reads_pipe = words == ["-"]
    if exit_when_ready and not reads_pipe:
        raise conflict("--exit-when-ready", True, "a server that watch has started and would end", "use it with - only")
    # Of a command that is not known (a wrapper, say), and of a model that is served and not known here, the log tells.
    engine = None if reads_pipe else _known(EngineConfig.from_command, shlex.join(words))
    served = None if engine is None else engine.model
    if model is None and served is not None and _known(as_model, served) is not None:
        model = served
    watch = StartupWatch(
        hardware=_node(hardware, profile),
        model=model,
        engine=engine,
        profile=profile,
        page_cache=page_cache,
        compile_cache=compile_cache,
        level=level,
        began=None if reads_pipe else time.monotonic(),
    )
    view = _JsonLines() if as_json else _Bar() if sys.stderr.isatty() else _View()
    session = _Session(watch, view)
    status = session.follow(exit_when_ready=exit_when_ready) if reads_pipe else session.run(words, as_json=as_json)
    raise typer.Exit(status)


def _known(read: Callable[[str], _T], text: str) -> _T | None:
    """What a text means; None where it is not known."""
    try:
        return read(text)
    except StartupModelError:
        return None


def _node(hardware: str | None, profile: str | None) -> HardwareConfig | None:
    """The node: as given, else the one of the profile, else what the driver shows; None when nobody knows."""
    from calibration.host import accelerators
    from startup_model.hardware import HardwareConfig, preset_names
    from startup_model.predictor import as_hardware, as_profile

    if hardware is not None:
        return as_hardware(hardware)
    found = as_profile(profile)
    if found is not None:
        for node in map(HardwareConfig.preset, preset_names()):
            if node.gpu == found.host.gpu or (found.host.platform == node.platform == "cpu"):
                return node
    for device in accelerators()[:1]:
        plain = device.name.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix("GeForce ")
        names = filter(None, (plain, "-".join(plain.split()[:2]), plain.split("-")[0], plain.partition(" ")[0]))
        return next(filter(None, (_known(HardwareConfig.preset, name) for name in names)), None)
    return None


# --- showing ------------------------------------------------------------------------------------------------------------


@dataclass
class _Said:
    """What was said last, so that nothing is said twice."""

    phase: str | None = None
    start: int = 0
    finished: int = 0
    overrun: str | None = None
    status: str = "starting"
    failing_since: float = math.inf
    problem: str | None = None
    last: float = -1e9


class _View:
    """What is new in each outlook, said once, in the order in which it happened: each phase, each overrun, and every ten seconds, as plain
    lines on standard error; other views differ in how they say it."""

    every_s = _LINE_EVERY_S

    def __init__(self) -> None:
        self._said = _Said()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        """Say what has changed at ``now``; infinity: nothing more comes."""
        for kind in self._news(watch, outlook, now):
            self.tell(kind, watch, outlook)

    def _news(self, watch: StartupWatch, outlook: Outlook, now: float) -> Iterator[str]:
        said = self._said
        if outlook.start != said.start:
            said = self._said = _Said(start=outlook.start, problem=said.problem)
            yield "restart"
        if watch.problem and watch.problem != said.problem and outlook.phase is None and outlook.elapsed_s > 1:
            said.problem = watch.problem
            yield "problem"
        if len(outlook.finished) > said.finished:
            yield "done"
            said.finished = len(outlook.finished)
        if outlook.overrun and said.overrun != outlook.phase:
            said.overrun = outlook.phase
            yield "overrun"
        if outlook.status != said.status:
            is_up = outlook.status in ("ready", "up")
            said.failing_since = math.inf if is_up else min(now, said.failing_since)
            if is_up or now - said.failing_since >= _SETTLED_S or now == math.inf:
                said.status = outlook.status
                yield outlook.status if is_up else "failed"
        is_new = outlook.phase != said.phase
        if outlook.status == "starting" and outlook.phase is not None and (is_new or now - said.last >= self.every_s):
            said.phase, said.last = outlook.phase, now
            yield "phase" if is_new else "progress"

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        """Say one thing: restart, problem, done, overrun, ready, up, failed, phase or progress."""
        for text in _words(kind, watch, outlook, self._said.finished):
            _say(text)

    def ended(self, code: int) -> None:
        """The command ended before its server was ready."""
        _say(f"the command ended with status {code} before its server was ready")

    def output(self, data: bytes, target: IO[bytes]) -> None:
        """Pass on what the server printed."""
        _pass_on(data, target)


class _JsonLines(_View):
    """Events for programs, one object a line."""

    every_s = 1.0

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        if kind in ("problem", "done"):
            return  # in the fields of the events that follow
        data: dict[str, Any] = {"event": kind} | outlook._asdict() | {"problem": watch.problem}
        data = {name: round(value, 3) if isinstance(value, float) else value for name, value in data.items()}
        data["interval"] = outlook.interval and [round(bound, 3) for bound in outlook.interval]
        data["finished"] = [{"phases": names.split("+"), "seconds": round(seconds, 3)} for names, seconds in outlook.finished]  # fmt: skip
        self._emit(data)

    def ended(self, code: int) -> None:
        self._emit({"event": "ended", "exit_status": code})

    def _emit(self, data: dict[str, Any]) -> None:
        _pass_on((json.dumps(data, allow_nan=False) + "\n").encode(), sys.stdout.buffer)


class _Bar(_View):
    """A bar on the terminal, below what the server prints."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        super().__init__()
        self._console = console_of(err=True)
        columns = (BarColumn(bar_width=16), TextColumn("{task.fields[words]}", markup=False))
        self._progress: Progress = Progress(*columns, console=self._console, transient=True)
        self._task: TaskID = self._progress.add_task("", total=1.0, words="waiting for the first line")
        self._pending: dict[int, bytes] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        for stream in (sys.stdout.buffer, sys.stderr.buffer):
            _pass_on(self._pending.pop(id(stream), b""), stream)

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        super().update(watch, outlook, now)
        words = f"{outlook.elapsed_s:.0f} s; {watch.problem or 'waiting'}"[:60]
        if outlook.phase is not None:  # what fits on a narrow terminal
            residual, (low, high) = outlook.residual_delay_s or 0.0, outlook.interval or (0.0, 0.0)
            words = f"{outlook.phase} {outlook.phase_elapsed_s:.0f} s; ready in {residual:.0f} s ({low:.0f}-{high:.0f})"
        self._progress.update(self._task, completed=outlook.fraction, words=printable(words))

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        if kind in ("ready", "up", "failed"):
            self._progress.stop()
        if kind not in ("phase", "progress", "problem"):  # the bar says these
            for text in _words(kind, watch, outlook, self._said.finished):
                self._console.print(f"startup-model: {text}", soft_wrap=True)

    def output(self, data: bytes, target: IO[bytes]) -> None:
        """Whole lines above the bar; what has no line end yet waits for it."""
        if not os.isatty(target.fileno()):
            _pass_on(data, target)
            return
        pending = self._pending.pop(id(target), b"") + data
        if self._said.status != "starting":
            _pass_on(pending, target)
            return
        cut = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
        self._pending[id(target)] = pending[cut:]
        if cut:
            from rich.text import Text

            text = pending[:cut].decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
            self._console.print(Text.from_ansi(text), soft_wrap=True)


def _words(kind: str, watch: StartupWatch, outlook: Outlook, said: int) -> list[str]:
    """What is told, in words; ``said``: phases that ended and were told."""
    if kind == "done":
        return [f"{names} done (+{seconds:.1f} s)" for names, seconds in outlook.finished[said:]]
    expected_s, left_s, bounds = outlook.phase_expected_s, outlook.residual_delay_s, outlook.interval
    if kind == "restart":
        text = f"start {outlook.start + 1} of the log"
    elif kind == "problem":
        text = f"{watch.problem}"
    elif kind == "overrun":
        expected = f"longer than 99 of 100 would take ({expected_s or 0.0:.0f} s expected)"
        text = f"{outlook.phase} overruns: {outlook.phase_elapsed_s:.0f} s, {expected}"
    elif kind in ("phase", "progress"):
        expected = "" if expected_s is None else f" of {expected_s:.1f}"
        text = f"{outlook.phase} {outlook.phase_elapsed_s:.1f}{expected} s, {outlook.elapsed_s:.0f} s in all"
        if left_s is not None and bounds is not None:
            text += f"; ready in about {left_s:.0f} s ({bounds[0]:.0f} to {bounds[1]:.0f} s)"
    elif kind == "up":
        text = "the engine is up; the log ended before the server said ready"
    elif kind == "failed":
        text = f"the start failed: {outlook.status}"
    elif not watch.knows_process_start:
        text = f"ready after {outlook.elapsed_s:.1f} s, by the stamps of the log"
    else:
        text = f"ready {outlook.elapsed_s:.1f} s after the command was started"
        if (head := watch.first_line_s) is not None:
            text += f"; its first stamped line came after {head:.1f} s (parse --process-start {head:.1f})"
    return [text]


_closed: WeakSet[IO[bytes]] = WeakSet()  # outputs that nobody reads any more


def _pass_on(data: bytes, target: IO[bytes]) -> None:
    """Write through. When the reader has gone, the rest is dropped: the server is not made to end by it."""
    if target in _closed:
        return
    try:
        target.write(data)
        target.flush()
    except (BrokenPipeError, ValueError):
        _closed.add(target)


def _say(text: str) -> None:
    """One line on standard error, if anybody reads it."""
    _pass_on(f"startup-model: {printable(text)}\n".encode("utf-8", "replace"), sys.stderr.buffer)


# --- running ------------------------------------------------------------------------------------------------------------


class _Session:
    """One watch, and how what it finds is shown. Whatever goes wrong in that, the server and its output go on."""

    def __init__(self, watch: StartupWatch, view: _View) -> None:
        self._watch, self._view = watch, view
        self._is_broken = False
        # Bounded: a server that prints faster than it is read has to wait, as with any pipe. No data: the end of a pipe.
        self._items: queue.Queue[tuple[bytes | None, IO[bytes] | None]] = queue.Queue(maxsize=64)

    @property
    def _status(self) -> str:
        return self._watch.outlook(time.monotonic()).status

    def follow(self, *, exit_when_ready: bool) -> int:
        """Read standard input to its end; 0 when the last start became ready, 1 when it did not."""
        self._pump(sys.stdin.buffer, None)
        with self._view:
            while not (self._step() or (exit_when_ready and self._status == "ready")):
                pass
            last = self._finish()
        if last is None:
            raise InputFileError("standard input: no line is known from the start of an inference server; pipe its log")
        _explain(last)
        return 0 if self._status == "ready" else 1

    def run(self, words: list[str], *, as_json: bool) -> int:
        """Run the command to its end, whatever the start does; its exit status."""
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            process = subprocess.Popen(words, env={"PYTHONUNBUFFERED": "1"} | os.environ, **pipes)  # noqa: S603
        except FileNotFoundError:
            raise ConfigError("COMMAND", words[0], "not found", "give the path of the server's program") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError("COMMAND", words[0], f"cannot be run ({reason})", "check it") from None
        open_pipes, exited_at = 2, 0.0
        with _supervised(process), self._view:
            self._pump(process.stdout, (sys.stderr if as_json else sys.stdout).buffer)
            self._pump(process.stderr, sys.stderr.buffer)
            # A grandchild may hold a pipe open after the server itself has ended: it is not waited for.
            while open_pipes and not (exited_at and time.monotonic() > exited_at + 2.0):
                open_pipes -= self._step()
                if not exited_at and process.poll() is not None:
                    exited_at = time.monotonic()
            code = process.wait()
            last = self._finish()
        code = code if code >= 0 else 128 - code
        if self._status in ("starting", "up"):
            self._view.ended(code)
        if last is not None:
            _explain(last)
        return code

    def _pump(self, source: IO[bytes] | None, target: IO[bytes] | None) -> None:
        """Read a pipe as it fills, for ``target``; None: standard input, which is not passed on."""
        assert source is not None  # noqa: S101  a pipe was asked for
        descriptor = source.fileno()

        def pump() -> None:
            data = b"-"
            while data:
                try:
                    data = os.read(descriptor, _CHUNK)
                except OSError:
                    data = b""
                self._items.put((data or None, target))
            if target is not None:
                source.close()

        threading.Thread(target=pump, daemon=True).start()

    def _step(self) -> bool:
        """Take what has arrived, or wait a tick; True at the end of a pipe."""
        try:
            data, target = self._items.get(timeout=_TICK_S)
        except queue.Empty:
            data, target = b"", None
        now = time.monotonic()
        if data and target is not None:
            self._view.output(data, target)
        if not self._is_broken:
            try:
                if data:
                    self._watch.feed(data, now)
                self._view.update(self._watch, self._watch.outlook(now), now)
            except Exception as error:
                self._is_broken = True
                _say(f"watching ended by an error of its own, the server goes on: {type(error).__name__}: {error}")
        return data is None

    def _finish(self) -> LoggedStart | None:
        """The end of the log: what is known is final."""
        last = self._watch.finish(time.monotonic())
        if not self._is_broken:
            self._view.update(self._watch, self._watch.outlook(time.monotonic()), math.inf)
        return last


@contextmanager
def _supervised(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals are passed on to the server, and watching goes on until it ends by itself; when watch itself has to end, no server is left behind.

    A terminal sends an interrupt to both: that one is not sent twice.
    """

    def forward(number: int, _: object) -> None:
        if process.poll() is None and not (number == signal.SIGINT and sys.stdin.isatty()):
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, forward) for number in numbers} if is_main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _explain(start: LoggedStart) -> None:
    """Why a start failed, and what helps, on standard error."""
    from calibration.logs.diagnosis import diagnose

    if start.is_ok:
        return
    if start.status == "incomplete":
        last = start.moments[-1].event if start.moments else "its first lines"
        hint = "look for the kernel's or the container's word (out of memory, exit status 137)"
        _say(f"the log ends after {last}, without a line that says why: {hint}")
        return
    for finding in diagnose(start)[:1]:
        for text in words_of(finding, 200):
            _say(text)
