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
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, Self

import typer

from startup_model.errors import ConfigError, InputFileError, StartupModelError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from calibration.logs.parsed import ParsedStartup
    from calibration.logs.watch import Outlook, StartupWatch
    from startup_model.engines.config import EngineConfig
    from startup_model.hardware import HardwareConfig

__all__ = ["watch_command"]

_TICK_S = 0.25
_LINE_EVERY_S = 10.0
_JSON_EVERY_S = 1.0
_CHUNK = 2**16
_GRACE_S = 10.0
_SETTLED_S = 1.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_DEVICE_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="The server's command, after --; or - to read its log from standard input.", metavar="[-- COMMAND...] | -"
    ),
]


def watch_command(
    command: CommandArgument = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="Profile file or name of a reference; default: the nearest reference."),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", help="Preset or JSON file; default: the profile's, or what nvidia-smi shows."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Folder, config.json or catalogue name; default: as the command or the log says."),
    ] = None,
    page_cache: Annotated[str, typer.Option("--page-cache", help="hot, cold or unknown.")] = "unknown",
    compile_cache: Annotated[
        str | None, typer.Option("--compile-cache", help="warm, cold or unknown; default: as the log tells.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Probability of the interval.")] = 0.9,
    exit_when_ready: Annotated[
        bool,
        typer.Option(
            "--exit-when-ready",
            help="With -: stop as soon as the server is ready. What writes into the pipe may end with it.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line on standard output, for autoscalers.")
    ] = False,
) -> None:
    """Seconds until a starting server is ready, from its log as it grows."""
    from calibration.logs.watch import StartupWatch

    words = list(command or [])
    if not words:
        raise ConfigError(
            "COMMAND", "", "missing", "give the server's command after --, or - to read its log from standard input"
        )
    reads_pipe = words == ["-"]
    if exit_when_ready and not reads_pipe:
        raise ConfigError("--exit-when-ready", True, "it would end the server that was started", "use it with - only")
    watch = StartupWatch(
        hardware=_node(hardware, profile),
        model=model if model is not None or reads_pipe else _served(words),
        engine=None if reads_pipe else _engine(words),
        profile=profile,
        page_cache=page_cache,
        compile_cache=compile_cache,
        level=level,
        began=None if reads_pipe else time.monotonic(),
    )
    shown = _JsonLines() if as_json else _Bar() if sys.stderr.isatty() else _Lines()
    if reads_pipe:
        raise typer.Exit(_follow(watch, shown, exit_when_ready=exit_when_ready))
    raise typer.Exit(_run(words, watch, shown, as_json=as_json))


# --- what is started ----------------------------------------------------------------------------------------------------


def _engine(words: list[str]) -> EngineConfig | None:
    """The engine's configuration from its command; None for a command that is not known (a wrapper, say): then the log tells."""
    from startup_model.engines.config import EngineConfig

    try:
        return EngineConfig.from_command(shlex.join(words))
    except StartupModelError:
        return None


def _served(words: list[str]) -> str | None:
    """The model that a command serves, when it is known here; a server may serve others."""
    from startup_model.predictor import as_model

    engine = _engine(words)
    if engine is None or engine.model is None:
        return None
    try:
        as_model(engine.model)
    except StartupModelError:
        return None
    return engine.model


def _node(hardware: str | None, profile: str | None) -> HardwareConfig | None:
    """The node: as given, else the one of the profile, else what the driver shows; None when nobody knows."""
    from startup_model.hardware import HardwareConfig, preset_names
    from startup_model.predictor import as_hardware, as_profile

    if hardware is not None:
        return as_hardware(hardware)
    nodes = [HardwareConfig.preset(name) for name in preset_names()]
    found = as_profile(profile)
    if found is not None:
        for node in nodes:
            if node.gpu == found.host.gpu or (found.host.platform == node.platform == "cpu"):
                return node
    for name in _devices():
        try:
            return HardwareConfig.preset(name)
        except StartupModelError:
            continue
    return None


def _devices() -> list[str]:
    """Names of the accelerators, as presets may know them."""
    try:
        answer = subprocess.run(  # noqa: S603  a fixed command
            _DEVICE_QUERY, capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    first = answer.stdout.splitlines()[0].split(",")[0].strip() if answer.returncode == 0 and answer.stdout else ""
    plain = first.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix("GeForce ")
    return [
        name
        for name in (plain, "-".join(plain.split()[:2]), plain.split("-")[0], plain.split()[0] if plain else "")
        if name
    ]


# --- showing ------------------------------------------------------------------------------------------------------------


@dataclass
class _Shown:
    """What was said last, so that nothing is said twice."""

    phase: str | None = None
    start: int = 0
    finished: int = 0
    overrun: str | None = None
    status: str = "starting"
    failing_since: float | None = None
    problem: str | None = None
    last: float = -1e9


class _View:
    """What is new in each outlook, said once, in the order in which it happened; the kinds of views differ in how they say it."""

    every_s = _LINE_EVERY_S

    def __init__(self) -> None:
        self._said = _Shown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        """Say what has changed at ``now``; infinity: nothing more comes."""
        if outlook.start != self._said.start:
            self._said = _Shown(start=outlook.start, problem=self._said.problem)
            self.tell("restart", watch, outlook)
        said = self._said
        if watch.problem and watch.problem != said.problem and outlook.phase is None and outlook.elapsed_s > 1:
            said.problem = watch.problem
            self.tell("problem", watch, outlook)
        if len(outlook.finished) > said.finished:
            self.tell("done", watch, outlook)
            said.finished = len(outlook.finished)
        if outlook.overrun and said.overrun != outlook.phase:
            said.overrun = outlook.phase
            self.tell("overrun", watch, outlook)
        if outlook.status != said.status and self._is_settled(outlook, now):
            said.status = outlook.status
            self.tell(outlook.status if outlook.status in ("ready", "up") else "failed", watch, outlook)
        is_new = outlook.phase != said.phase
        if outlook.status == "starting" and outlook.phase is not None and (is_new or now - said.last >= self.every_s):
            said.phase, said.last = outlook.phase, now
            self.tell("phase" if is_new else "progress", watch, outlook)

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        """Say one thing: restart, problem, done, overrun, ready, up, failed, phase or progress."""
        raise NotImplementedError

    def ended(self, code: int) -> None:
        """The command ended before its server was ready."""
        _say(f"startup-model: the command ended with status {code} before its server was ready")

    def output(self, data: bytes, target: IO[bytes] | None) -> None:
        """Pass on what the server printed."""
        _pass_on(data, target)

    def _is_settled(self, outlook: Outlook, now: float) -> bool:
        """Whether a failure is told by now: the first line of one is seldom the one that says why."""
        if outlook.status in ("ready", "up"):
            return True
        if self._said.failing_since is None:
            self._said.failing_since = now
        return now - self._said.failing_since >= _SETTLED_S or now == math.inf


class _Lines(_View):
    """Plain lines on standard error: each phase, each overrun, and every ten seconds."""

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        for text in _words(kind, watch, outlook, self._said.finished):
            _say(f"startup-model: {text}")


class _JsonLines(_View):
    """Events for programs, one object a line."""

    every_s = 1.0

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        if kind in ("problem", "done"):
            return  # in the fields of the events that follow
        data: dict[str, Any] = {"event": kind} | {
            name: round(value, 3) if isinstance(value, float) else value for name, value in outlook._asdict().items()
        }
        data["interval"] = None if outlook.interval is None else [round(bound, 3) for bound in outlook.interval]
        data["finished"] = [
            {"phases": names.split("+"), "seconds": round(seconds, 3)} for names, seconds in outlook.finished
        ]
        data["problem"] = watch.problem
        self._emit(data)

    def ended(self, code: int) -> None:
        self._emit({"event": "ended", "exit_status": code})

    def _emit(self, data: dict[str, Any]) -> None:
        _pass_on((json.dumps(data, allow_nan=False) + "\n").encode(), _binary(sys.stdout))


class _Bar(_View):
    """A bar on the terminal, below what the server prints."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from startup_model.cli.terminal import console_of

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
        for stream in (_binary(sys.stdout), _binary(sys.stderr)):
            if stream is not None:
                _pass_on(self._pending.pop(id(stream), b""), stream)

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        super().update(watch, outlook, now)
        waiting = f"{outlook.elapsed_s:.0f} s; {watch.problem or 'waiting'}"[:60]
        words = _short(outlook) if outlook.phase is not None else waiting
        self._progress.update(self._task, completed=outlook.fraction, words=words)

    def tell(self, kind: str, watch: StartupWatch, outlook: Outlook) -> None:
        if kind in ("ready", "up", "failed"):
            self._progress.stop()
        if kind not in ("phase", "progress", "problem"):  # the bar says these
            for text in _words(kind, watch, outlook, self._said.finished):
                self._console.print(f"startup-model: {text}", soft_wrap=True)

    def output(self, data: bytes, target: IO[bytes] | None) -> None:
        """Whole lines above the bar; what has no line end yet waits for it."""
        if target is None or not os.isatty(target.fileno()):
            _pass_on(data, target)
            return
        pending = self._pending.get(id(target), b"") + data
        if self._said.status != "starting":
            self._pending[id(target)] = b""
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
    words: dict[str, Callable[[], str]] = {
        "restart": lambda: f"start {outlook.start + 1} of the log",
        "problem": lambda: f"{watch.problem}",
        "overrun": lambda: _overrun(outlook),
        "phase": lambda: _sentence(outlook),
        "progress": lambda: _sentence(outlook),
    }
    return [words.get(kind, lambda: _end(outlook, watch))()]


def _sentence(outlook: Outlook) -> str:
    expected = "" if outlook.phase_expected_s is None else f" of {outlook.phase_expected_s:.1f}"
    text = f"{outlook.phase} {outlook.phase_elapsed_s:.1f}{expected} s, {outlook.elapsed_s:.0f} s in all"
    if outlook.residual_delay_s is not None and outlook.interval is not None:
        low, high = outlook.interval
        text += f"; ready in about {outlook.residual_delay_s:.0f} s ({low:.0f} to {high:.0f} s)"
    return text


def _short(outlook: Outlook) -> str:
    """What fits beside a bar on a narrow terminal."""
    residual, (low, high) = outlook.residual_delay_s or 0.0, outlook.interval or (0.0, 0.0)
    return f"{outlook.phase} {outlook.phase_elapsed_s:.0f} s; ready in {residual:.0f} s ({low:.0f}-{high:.0f})"


def _overrun(outlook: Outlook) -> str:
    return f"{outlook.phase} overruns: {outlook.phase_elapsed_s:.0f} s, longer than 99 of 100 would take ({outlook.phase_expected_s or 0.0:.0f} s expected)"


def _end(outlook: Outlook, watch: StartupWatch) -> str:
    if outlook.status == "up":
        return "the engine is up; the log ended before the server said ready"
    if outlook.status != "ready":
        return f"the start failed: {outlook.status}"
    if not watch.knows_process_start:
        return f"ready after {outlook.elapsed_s:.1f} s, by the stamps of the log"
    head = watch.first_line_s
    first = (
        "" if head is None else f"; its first stamped line came after {head:.1f} s (parse --process-start {head:.1f})"
    )
    return f"ready {outlook.elapsed_s:.1f} s after the command was started{first}"


_closed: set[int] = set()
"""Outputs that nobody reads any more."""


def _pass_on(data: bytes, target: IO[bytes] | None) -> None:
    """Write through. When the reader has gone, the rest is dropped: the server is not made to end by it."""
    if target is None or id(target) in _closed:
        return
    try:
        target.write(data)
        target.flush()
    except (BrokenPipeError, ValueError):
        _closed.add(id(target))


def _say(text: str) -> None:
    """One line on standard error, if anybody reads it."""
    _pass_on(f"{text}\n".encode("utf-8", "replace"), _binary(sys.stderr))


def _binary(stream: Any) -> IO[bytes] | None:
    """The bytes below a text stream; None for a stream that was closed."""
    return getattr(stream, "buffer", None)


# --- running ------------------------------------------------------------------------------------------------------------

_Item = tuple[bytes | None, IO[bytes] | None]


def _pump(descriptor: int, target: IO[bytes] | None, items: queue.Queue[_Item]) -> None:
    """Read a pipe as it fills; None at its end. The queue is bounded: a server that prints faster than it is read has to wait, as with any pipe."""
    while True:
        try:
            data = os.read(descriptor, _CHUNK)
        except OSError:
            data = b""
        items.put((data or None, target))
        if not data:
            return


def _follow(watch: StartupWatch, view: _View, *, exit_when_ready: bool) -> int:
    """Read standard input to its end; 0 when the last start became ready, 1 when it did not."""
    source = _binary(sys.stdin)
    if source is None:
        raise InputFileError("standard input: closed; pipe the log of a server")
    items: queue.Queue[_Item] = queue.Queue(maxsize=64)
    threading.Thread(target=_pump, args=(source.fileno(), None, items), daemon=True).start()
    with view:
        ended = False
        while not ended:
            ended = _step(watch, view, items, echo=False)
            if exit_when_ready and watch.outlook(time.monotonic()).status == "ready":
                break
        last = _finish(watch, view)
    if last is None:
        raise InputFileError("standard input: no line is known from the start of an inference server; pipe its log")
    if not last.is_ok:
        _explain(last)
    return 0 if watch.outlook(time.monotonic()).status == "ready" else 1


def _step(watch: StartupWatch, view: _View, items: queue.Queue[_Item], *, echo: bool) -> bool:
    """Take what has arrived, or wait a tick; True at the end of a pipe."""
    ended = False
    try:
        data, target = items.get(timeout=_TICK_S)
    except queue.Empty:
        data, target = b"", None
    now = time.monotonic()
    if data is None:
        ended = True
    elif data and echo:
        view.output(data, target)
    _look(watch, view, data or b"", now)
    return ended


def _look(watch: StartupWatch, view: _View, data: bytes, now: float) -> None:
    """Read on and say where the start is. Whatever goes wrong in that, the server and its output go on."""
    if _broken:
        return
    try:
        if data:
            watch.feed(data, now)
        view.update(watch, watch.outlook(now), now)
    except Exception as error:
        _broken.append(error)
        _say(
            f"startup-model: watching ended by an error of its own, the server goes on: {type(error).__name__}: {error}"
        )


def _finish(watch: StartupWatch, view: _View) -> ParsedStartup | None:
    """The end of the log: what is known is final."""
    last = watch.finish(time.monotonic())
    if not _broken:
        view.update(watch, watch.outlook(time.monotonic()), math.inf)
    return last


_broken: list[Exception] = []


def _run(words: list[str], watch: StartupWatch, view: _View, *, as_json: bool) -> int:
    """Run the command to its end, whatever the start does; its exit status."""
    environment = os.environ | ({} if "PYTHONUNBUFFERED" in os.environ else {"PYTHONUNBUFFERED": "1"})
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)  # noqa: S603
    except FileNotFoundError:
        raise ConfigError("COMMAND", words[0], "not found", "give the path of the server's program") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            "COMMAND", words[0], f"cannot be run ({getattr(error, 'strerror', None) or error})", "check it"
        ) from None
    restore = _forward_signals(process)
    items: queue.Queue[_Item] = queue.Queue(maxsize=64)
    targets = (_binary(sys.stderr if as_json else sys.stdout), _binary(sys.stderr))
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    for pipe, target in zip(pipes, targets, strict=True):
        threading.Thread(target=_pump, args=(pipe.fileno(), target, items), daemon=True).start()
    open_pipes, exited_at = len(pipes), 0.0
    try:
        with view:
            # A grandchild may hold a pipe open after the server itself has ended: it is not waited for.
            while open_pipes and not (exited_at and time.monotonic() > exited_at + 2.0):
                open_pipes -= _step(watch, view, items, echo=True)
                if not exited_at and process.poll() is not None:
                    exited_at = time.monotonic()
            code = process.wait()
            last = _finish(watch, view)
    finally:
        restore()
        _end_server(process)
    code = code if code >= 0 else 128 - code
    if watch.outlook(time.monotonic()).status in ("starting", "up"):
        view.ended(code)
    if last is not None and not last.is_ok:
        _explain(last)
    return code


def _end_server(process: subprocess.Popen[bytes]) -> None:
    """Leave no server behind when watch itself has to end."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _forward_signals(process: subprocess.Popen[bytes]) -> Callable[[], None]:
    """Pass signals on to the server, and go on until it ends by itself. A terminal sends an interrupt to both: that one is not sent twice."""
    before: dict[int, Any] = {}

    def forward(number: int, _: object) -> None:
        if process.poll() is None and not (number == signal.SIGINT and sys.stdin.isatty()):
            process.send_signal(number)

    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and threading.current_thread() is threading.main_thread():
            before[number] = signal.signal(number, forward)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


def _explain(start: ParsedStartup) -> None:
    """Why a start failed, and what helps, on standard error."""
    from calibration.logs.diagnosis import diagnose

    if start.status == "incomplete":
        last = start.moments[-1].event if start.moments else "its first lines"
        _say(
            f"startup-model: the log ends after {last}, without a line that says why: look for the kernel's or the container's word (out of memory, exit status 137)"
        )
        return
    for finding in diagnose(start)[:1]:
        _say(f"startup-model: {finding.kind}: {finding.summary}")
        if finding.evidence is not None:
            _say(f"startup-model:   line {finding.evidence.line_number}: {finding.evidence.text[:200]}")
        for remedy in finding.remedies:
            _say(f"startup-model:   - {remedy.action} (price: {remedy.price})")
