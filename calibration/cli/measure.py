"""``startup-model profile``: measure starts of a real server; what is said meanwhile, and the tables at the end."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from startup_model.cli.terminal import console_of, echo, flush_or_drop, table_of
from startup_model.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from calibration.measure.difference import IsolatedPhases
    from calibration.measure.run import ScheduleEvent
    from calibration.measure.schedule import Schedule
    from calibration.runs.record import RunRecord

_SAYS_S = 10.0  # between two lines where there is no terminal
_PLAN = "base (default), differential (also eager and dummy weights), quick (one warm start a model) or full (all that can be told apart)."
_MODEL = "Models in the place of the command's; may be repeated. Of a program that is not known here: the model that it serves."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("profile")(profile_command)


def _flag(name: str, text: str) -> Any:
    return typer.Option(name, help=text)


def profile_command(
    command: Annotated[list[str], typer.Argument(help="The server's command, after --: vllm serve MODEL ...")],
    out: Annotated[Path, _flag("--out", "JSONL file that each record is appended to.")] = Path("runs.jsonl"),
    plan: Annotated[str | None, _flag("--plan", _PLAN)] = None,
    differential: Annotated[bool, _flag("--differential", "The same as --plan differential.")] = False,
    model: Annotated[list[str] | None, _flag("--model", _MODEL)] = None,
    repetitions: Annotated[int, _flag("--repetitions", "Starts of each kind.")] = 1,
    page_cache: Annotated[str, _flag("--page-cache", "hot, cold or as_is, before each start.")] = "hot",
    compile_cache: Annotated[str, _flag("--compile-cache", "warm or fresh.")] = "warm",
    torch_compile: Annotated[str, _flag("--torch-compile", "on (as the command has it) or off.")] = "on",
    no_warm_up: Annotated[bool, _flag("--no-warm-up", "The engine was started a moment ago: count the first start.")] = False,
    drop_caches: Annotated[bool, _flag("--drop-caches", "With --page-cache cold: empty that of the whole host, as root.")] = False,
    resume: Annotated[bool, _flag("--resume", "Leave out cases whose records, of this host, are in the file already.")] = False,
    hardware: Annotated[str | None, _flag("--hardware", "Node (preset or JSON file); default: this host.")] = None,
    dataset: Annotated[str, _flag("--dataset", "Name of this session in the records.")] = "",
    profile: Annotated[str | None, _flag("--profile", "Profile to expect times by.")] = None,
    health_path: Annotated[str | None, _flag("--health-path", "Answers 200 when the server is ready; default: the engine's.")] = None,
    no_request: Annotated[bool, _flag("--no-request", "Send no first request.")] = False,
    ready_timeout: Annotated[float, _flag("--ready-timeout", "Seconds until a server must be ready.")] = 1800.0,
    grace: Annotated[float, _flag("--grace", "Seconds from SIGTERM to SIGKILL.")] = 15.0,
    dry_run: Annotated[bool, _flag("--dry-run", "Say what would be started, and how long it would take.")] = False,
    as_json: Annotated[bool, _flag("--json", "Records on standard output, one a line.")] = False,
) -> None:  # fmt: skip
    """Start a real server, measure its phases, time to ready and first token, stop it; records for calibration."""
    from calibration.measure.difference import isolated_phases
    from calibration.measure.launch import launch_of
    from calibration.measure.run import finished_cases, prepared, run_schedule
    from calibration.measure.schedule import ScheduleOptions
    from calibration.measure.start import Limits

    launch = launch_of(command)
    models = tuple(model or ())
    served = models[0] if launch.engine is None and len(models) == 1 else None
    options = ScheduleOptions(
        plan=_kind(plan, differential=differential), models=() if served else models, repetitions=repetitions,  # type: ignore[arg-type]
        page_cache=page_cache.replace("-", "_"), compile_cache=compile_cache, torch_compile=torch_compile, warm_up=not no_warm_up,  # type: ignore[arg-type]
    )  # fmt: skip
    session, schedule = prepared(
        command, options, hardware=hardware, model=served, profile=profile, health_path=health_path, resume=resume, dataset=dataset,
        request=not no_request, drop_caches=drop_caches, limits=Limits(ready_s=ready_timeout, grace_s=grace),
    )  # fmt: skip
    session.check(schedule)
    with _plain_warnings():
        announce(schedule, finished_cases(session, schedule, out) if resume else {}, launch.redacted())
        if dry_run:
            return
        with _ends_orderly(), View(as_json=as_json) as view:
            records = list(run_schedule(session, schedule, out=out, listener=view.on_event))
    if not as_json:
        print_runs(records, isolated_phases(records), out)


def _kind(plan: str | None, *, differential: bool) -> str:
    """The kind of schedule that two options ask for. Raises ConfigError when they contradict each other."""
    if not differential:
        return plan or "base"
    if plan not in (None, "differential"):
        raise ConfigError("--plan", plan, "contradicts --differential, a plan of its own", "give one of the two")
    return "differential"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        yield


@contextmanager
def _ends_orderly() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the block, as Ctrl-C does, so that nothing temporary stays behind; what is kept is said."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    handled: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for wanted in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(wanted) is signal.SIG_DFL:
                handled[wanted] = signal.signal(wanted, end)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        for note in getattr(stop, "__notes__", ()):
            say(note)
        raise
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """Say a line on standard error."""
    echo(f"startup-model: {text}", err=True)


def announce(schedule: Schedule, done: Mapping[int, RunRecord], command: str) -> None:
    """Say what will be started, and how long it will take. ``done``: places of the cases that need no start."""
    before = f", {len(done)} of them done before" if done else ""
    say(f"{len(schedule.cases)} case(s){before}, {_about(schedule.remaining_s(done))} in all, of: {command}")
    ahead = schedule.ahead(done)
    for place, case in enumerate(schedule.cases):
        *warm_ups, own = [_about(seconds) for at, seconds in ahead if at == place] or ["done before"]
        warm_up = "".join(f", and {about} for a start before it, excluded as warm-up" for about in warm_ups)
        say(f"  {case.words()}: {own}{warm_up}")
    for warning in schedule.warnings:
        say(f"warning: {warning}")


def _about(seconds: float | None) -> str:
    if seconds is None:
        return "for an unknown time"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"


class View:
    """Follows a schedule: a bar on a terminal, lines elsewhere; with ``as_json`` records on standard output, one a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._began = time.monotonic()
        self._last, self._activity = 0.0, ""
        self._progress = None
        if sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(bar_width=20), TextColumn("{task.fields[words]}", markup=False))
            self._progress = Progress(*columns, console=console_of(err=True), transient=True)
            self._task = self._progress.add_task("", total=1.0, words="")

    def __enter__(self) -> View:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def on_event(self, event: ScheduleEvent) -> None:
        """Show it."""
        if event.record is not None:
            self._ended(event, event.record)
        elif event.progress is not None:
            self._under_way(event, *event.progress)

    def _ended(self, event: ScheduleEvent, record: RunRecord) -> None:
        if self._as_json:
            echo(json.dumps(record.model_dump(mode="json"), allow_nan=False))
            flush_or_drop()
        head = " from its first line" if record.measured_from == "first_line" else ""
        wall = "" if record.wall_s is None else f"ready after {record.wall_s:.2f} s{head}"
        token = "" if record.first_token_s is None else f"first token after {record.first_token_s:.2f} s"
        note = f"{event.note}: excluded as warm-up" if event.is_warm_up else event.note
        text = f"{event.case.words()}: {', '.join(filter(None, (wall, token)))}{f' ({note})' if note else ''}"
        if self._progress is not None:
            self._progress.console.print(f"startup-model: {text}", soft_wrap=True)
        else:
            say(text)

    def _under_way(self, event: ScheduleEvent, phase: str | None, elapsed_s: float, doing: str) -> None:
        now = time.monotonic()
        activity = doing or (f"after {phase}" if phase else "waiting for a line that is known")
        left = "" if event.left_s is None else f"; {_about(event.left_s)} left"
        words = f"{event.place + 1}/{len(event.schedule.cases)} {event.case.name}: {elapsed_s:.0f} s, {activity}{left}"
        if self._progress is not None:
            spent = now - self._began
            share = 0.0 if event.left_s is None else spent / max(spent + event.left_s, 1e-9)
            self._progress.update(self._task, completed=share, words=words)
        elif activity != self._activity or now - self._last >= _SAYS_S:
            self._activity, self._last = activity, now
            say(words)


def print_runs(records: Sequence[RunRecord], isolated: Sequence[IsolatedPhases], out: Path) -> None:
    """The starts side by side, what their differences isolate, and what to do next."""
    starts = [
        (f"{run.model.name}\n{_state(run)}", _seconds(run), {"time to ready": run.wall_s, "first token": run.first_token_s})
        for run in records
    ]  # fmt: skip
    console = console_of()
    console.print(_table("measured starts (seconds)", starts))
    if isolated:
        columns = [
            (f"{entry.model}\nbase less {entry.label}", entry.differences_s, {"time to ready": entry.by_wall_s})
            for entry in isolated
        ]
        console.print(_table("base less other start (seconds)", columns))
    for entry in isolated:
        by_log = "" if entry.by_log_s is None else f", {entry.by_log_s:.2f} s by its log"
        by_wall = "unknown" if entry.by_wall_s is None else f"{entry.by_wall_s:.2f} s by the time to ready"
        echo(f"{entry.model}: {' + '.join(entry.phases)} = {by_wall}{by_log}")
    echo(f"written: {out}; next: startup-model calibrate {out} --out host.json")


def _table(title: str, columns: Iterable[tuple[str, Mapping[str, float], Mapping[str, float | None]]]) -> Table:
    """Columns: head, seconds of the phases, seconds of the whole."""
    heads, *sections = zip(*columns, strict=True)
    table = table_of(title, "phase", *(f"~{head}" for head in heads))
    for section in sections:
        for name in dict.fromkeys(name for column in section for name in column):
            values = (column.get(name) for column in section)
            table.add_row(name, *("" if value is None else f"{value:.2f}" for value in values))
        table.add_section()
    return table


def _seconds(record: RunRecord) -> dict[str, float]:
    return dict(record.phases) | {" + ".join(figure.phases): figure.seconds for figure in record.sums}


def _state(record: RunRecord) -> str:
    from calibration.measure.difference import flags_of

    flags = sorted(flags_of(record.engine))
    words = (
        "" if record.step else "warm-up",
        f"page {record.engine.page_cache}",
        "" if {"eager", "uncompiled"} & set(flags) else f"compile {record.engine.compile_cache}",
        *flags,
    )
    return ", ".join(filter(None, words))
