"""``startup-model watch``: run a server, or read its log from a pipe, and say how long it will be.

The server's output passes through untouched; what watch has to say goes to standard error (a bar on a terminal, lines elsewhere), or as JSON lines to
standard output, and then the server's output goes to standard error.
"""

from __future__ import annotations

import json
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
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from startup_model.errors import ConfigError, InputFileError, StartupModelError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from calibration.logs.watch import Outlook, StartupWatch
    from startup_model.config.hardware import HardwareConfig

__all__ = ["watch_command"]

_TICK_S = 0.25
_LINE_EVERY_S = 10.0
_JSON_EVERY_S = 1.0
_CHUNK = 2**16
_GRACE_S = 10.0
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
        model=model or (None if reads_pipe else _served(words)),
        engine=None if reads_pipe else _engine(words),
        profile=profile,
        page_cache=page_cache,
        compile_cache=compile_cache,
        level=level,
        began=None if reads_pipe else time.monotonic(),
    )
    shown = _JsonLines() if as_json else _Bar(_task_title(words)) if sys.stderr.isatty() else _Lines()
    if reads_pipe:
        raise typer.Exit(_follow(watch, shown, exit_when_ready=exit_when_ready))
    raise typer.Exit(_run(words, watch, shown, as_json=as_json))


# --- what is started ----------------------------------------------------------------------------------------------------


def _engine(words: list[str]) -> Any:
    """The engine's configuration from its command; None for a command that is not known (a wrapper, say): then the log tells."""
    from startup_model.config.engine import EngineConfig

    try:
        return EngineConfig.from_command(shlex.join(words))
    except StartupModelError:
        return None


def _served(words: list[str]) -> str | None:
    engine = _engine(words)
    return None if engine is None else engine.model


def _node(hardware: str | None, profile: str | None) -> HardwareConfig | None:
    """The node: as given, else the one of the profile, else what the driver shows; None when nobody knows."""
    from startup_model.config.hardware import HardwareConfig
    from startup_model.model import as_hardware, as_profile

    if hardware is not None:
        return as_hardware(hardware)
    names = []
    found = as_profile(profile)
    if found is not None:
        names.append(found.host.gpu if found.host.platform != "cpu" else "cpu")
    names += _devices()
    for name in names:
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


def _task_title(words: list[str]) -> str:
    return _served(words) or "start"


# --- showing ------------------------------------------------------------------------------------------------------------


@dataclass
class _Shown:
    """What was said last, so that nothing is said twice."""

    phase: str | None = None
    start: int = 0
    finished: int = 0
    overrun: str | None = None
    problem: str | None = None
    status: str = "starting"
    last: float = -1e9


class _Lines:
    """Plain lines on standard error: each phase, each overrun, and every ten seconds."""

    def __init__(self) -> None:
        self._said = _Shown()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        said = self._said
        if outlook.start != said.start:
            self._say(f"start {outlook.start + 1} of the log")
            self._said = said = _Shown(start=outlook.start, problem=said.problem)
        if watch.problem and watch.problem != said.problem and outlook.phase is None and outlook.elapsed_s > 1:
            said.problem = watch.problem
            self._say(f"no estimate: {watch.problem}")
        for names, seconds in outlook.finished[said.finished :]:
            self._say(f"{names} took {seconds:.1f} s")
        said.finished = len(outlook.finished)
        if outlook.overrun and said.overrun != outlook.phase:
            said.overrun = outlook.phase
            self._say(_overrun(outlook))
        if outlook.status != said.status:
            said.status = outlook.status
            self._say(_end(outlook))
        if outlook.status != "starting":
            return
        if outlook.phase != said.phase or now - said.last >= _LINE_EVERY_S:
            said.phase, said.last = outlook.phase, now
            if outlook.phase is not None:
                self._say(_sentence(outlook))

    def output(self, data: bytes, target: IO[bytes] | None) -> None:
        _pass_on(data, target)

    def _say(self, text: str) -> None:
        _say(f"startup-model: {text}")


class _JsonLines:
    """Events for programs: phase, progress (once a second), overrun, restart, ready, failed."""

    def __init__(self) -> None:
        self._said = _Shown()

    def __enter__(self) -> _JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        said = self._said
        if outlook.start != said.start:
            self._said = said = _Shown(start=outlook.start)
            self._emit("restart", watch, outlook)
        if len(outlook.finished) > said.finished or outlook.phase != said.phase:
            said.finished, said.phase, said.last = len(outlook.finished), outlook.phase, now
            self._emit("phase", watch, outlook)
        if outlook.overrun and said.overrun != outlook.phase:
            said.overrun = outlook.phase
            self._emit("overrun", watch, outlook)
        if outlook.status != said.status:
            said.status = outlook.status
            self._emit("ready" if outlook.status == "ready" else "failed", watch, outlook)
        if outlook.status == "starting" and now - said.last >= _JSON_EVERY_S:
            said.last = now
            self._emit("progress", watch, outlook)

    def output(self, data: bytes, target: IO[bytes] | None) -> None:
        _pass_on(data, target)

    def _emit(self, event: str, watch: StartupWatch, outlook: Outlook) -> None:
        data: dict[str, Any] = {"event": event} | outlook._asdict()
        data["interval"] = None if outlook.interval is None else list(outlook.interval)
        data["finished"] = [{"phases": names.split("+"), "seconds": seconds} for names, seconds in outlook.finished]
        data["problem"] = watch.problem
        _pass_on((json.dumps(data, allow_nan=False) + "\n").encode(), _binary(sys.stdout))


class _Bar:
    """A bar on the terminal, below what the server prints."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._title = title[:40]
        self._console = Console(stderr=True, highlight=False, markup=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}", markup=False),
        )
        self._progress: Progress = Progress(*columns, console=self._console, transient=True)
        self._task: TaskID = self._progress.add_task(self._title, total=1.0, words="waiting for the first line")
        self._said = _Shown()
        self._pending: dict[int, bytes] = {}

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        for stream in (_binary(sys.stdout), _binary(sys.stderr)):
            if stream is not None:
                _pass_on(self._pending.pop(id(stream), b""), stream)

    def update(self, watch: StartupWatch, outlook: Outlook, now: float) -> None:
        said = self._said
        if outlook.start != said.start:
            self._console.print(f"startup-model: start {outlook.start + 1} of the log")
            self._said = said = _Shown(start=outlook.start)
        for names, seconds in outlook.finished[said.finished :]:
            self._console.print(f"startup-model: {names} took {seconds:.1f} s", soft_wrap=True)
        said.finished = len(outlook.finished)
        if outlook.overrun and said.overrun != outlook.phase:
            said.overrun = outlook.phase
            self._console.print(f"startup-model: {_overrun(outlook)}", soft_wrap=True)
        if outlook.status != said.status:
            said.status = outlook.status
            self._progress.stop()
            self._console.print(f"startup-model: {_end(outlook)}", soft_wrap=True)
        if outlook.status != "starting":
            return
        words = (
            _sentence(outlook)
            if outlook.phase is not None
            else f"{outlook.elapsed_s:.0f} s; {watch.problem or 'waiting'}"[:120]
        )
        self._progress.update(self._task, completed=outlook.fraction, words=words)

    def output(self, data: bytes, target: IO[bytes] | None) -> None:
        """Whole lines above the bar; what has no line end yet waits for it."""
        if target is None or not os.isatty(target.fileno()):
            _pass_on(data, target)
            return
        pending = self._pending.get(id(target), b"") + data
        if self._said.status != "starting":
            whole, rest = pending, b""
        else:
            cut = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
            whole, rest = pending[:cut], pending[cut:]
        self._pending[id(target)] = rest
        if whole and self._said.status != "starting":
            _pass_on(whole, target)
        elif whole:
            from rich.text import Text

            text = whole.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
            self._console.print(Text.from_ansi(text), soft_wrap=True)


_View = _Lines | _JsonLines | _Bar


def _sentence(outlook: Outlook) -> str:
    expected = "" if outlook.phase_expected_s is None else f" of {outlook.phase_expected_s:.1f}"
    text = f"{outlook.phase} {outlook.phase_elapsed_s:.1f}{expected} s, {outlook.elapsed_s:.0f} s in all"
    if outlook.residual_delay_s is not None and outlook.interval is not None:
        low, high = outlook.interval
        text += f"; ready in about {outlook.residual_delay_s:.0f} s ({low:.0f} to {high:.0f} s)"
    return text


def _overrun(outlook: Outlook) -> str:
    return f"{outlook.phase} overruns: {outlook.phase_elapsed_s:.0f} s, longer than 99 of 100 would take ({outlook.phase_expected_s or 0.0:.0f} s expected)"


def _end(outlook: Outlook) -> str:
    return (
        f"ready after {outlook.elapsed_s:.1f} s" if outlook.status == "ready" else f"the start failed: {outlook.status}"
    )


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


def _pump(source: IO[bytes], target: IO[bytes] | None, items: queue.Queue[_Item]) -> None:
    """Read a pipe as it fills; None at its end. The queue is bounded: a server that prints faster than it is read has to wait, as with any pipe."""
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    while True:
        try:
            data = read(_CHUNK)
        except (OSError, ValueError):
            data = b""
        items.put((data or None, target))
        if not data:
            return


def _follow(watch: StartupWatch, view: _View, *, exit_when_ready: bool) -> int:
    """Read standard input to its end; 0 when a start was ready in the end, 1 when it was not, 2 when nothing was known."""
    source = _binary(sys.stdin)
    if source is None:
        raise InputFileError("standard input: closed; pipe the log of a server")
    items: queue.Queue[_Item] = queue.Queue(maxsize=64)
    threading.Thread(target=_pump, args=(source, None, items), daemon=True).start()
    with view:
        ended = False
        while not ended:
            ended = _step(watch, view, items, echo=False)
            if exit_when_ready and watch.outlook(time.monotonic()).status == "ready":
                break
        last = watch.finish(time.monotonic())
        _look(watch, view, b"", time.monotonic())
    if last is None:
        raise InputFileError("standard input: no line is known from the start of an inference server; pipe its log")
    if not last.is_ok:
        _explain(last)
    return 0 if last.is_ok else 1


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
        threading.Thread(target=_pump, args=(pipe, target, items), daemon=True).start()
    open_pipes, exited_at = len(pipes), 0.0
    try:
        with view:
            # A grandchild may hold a pipe open after the server itself has ended: it is not waited for.
            while open_pipes and not (exited_at and time.monotonic() > exited_at + 2.0):
                open_pipes -= _step(watch, view, items, echo=True)
                if not exited_at and process.poll() is not None:
                    exited_at = time.monotonic()
            code = process.wait()
            last = watch.finish(time.monotonic())
            _look(watch, view, b"", time.monotonic())
    finally:
        restore()
        _end_server(process)
    if last is not None and not last.is_ok and code != 0:
        _explain(last)
    return code if code >= 0 else 128 - code


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


def _explain(start: Any) -> None:
    """Why a start failed, and what helps, on standard error."""
    from calibration.logs.diagnosis import diagnose

    for finding in diagnose(start)[:1]:
        _say(f"startup-model: {finding.kind}: {finding.summary}")
        if finding.evidence is not None:
            _say(f"startup-model:   line {finding.evidence.line_number}: {finding.evidence.text[:200]}")
        for remedy in finding.remedies:
            _say(f"startup-model:   - {remedy.action} (price: {remedy.price})")
