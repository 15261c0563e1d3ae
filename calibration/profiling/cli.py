"""``startup-model profile``: measure starts of a real server."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from startup_model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from calibration.profiling.plan import Plan
    from calibration.profiling.session import StepNews
    from calibration.records import RunRecord

__all__ = ["register"]

_SAYS_S = 10.0
"""Between two lines where there is no terminal."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("profile")(profile_command)


def profile_command(
    command: Annotated[list[str], typer.Argument(help="The server's command, after --: vllm serve MODEL ...")],
    out: Annotated[Path, typer.Option("--out", help="JSONL file that each record is appended to.")] = Path(
        "runs.jsonl"
    ),
    plan: Annotated[
        str,
        typer.Option(
            "--plan", help="base, differential, quick (one warm start a model) or full (all that can be told apart)."
        ),
    ] = "base",
    differential: Annotated[
        bool, typer.Option("--differential", help="Base, eager and dummy weights: the same as --plan differential.")
    ] = False,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Models to put in the place of the command's; may be repeated.")
    ] = None,
    repetitions: Annotated[int, typer.Option("--repetitions", help="Starts of each kind.")] = 1,
    page_cache: Annotated[str, typer.Option("--page-cache", help="hot, cold or as_is, before each start.")] = "hot",
    compile_cache: Annotated[str, typer.Option("--compile-cache", help="warm or fresh.")] = "warm",
    drop_caches: Annotated[
        bool,
        typer.Option("--drop-caches", help="With --page-cache cold: empty the page cache of the whole host, as root."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out steps whose records are in the file already.")
    ] = False,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="Node (preset or JSON file); worked out from this host otherwise.")
    ] = None,
    dataset: Annotated[str, typer.Option("--dataset", help="Name of this session in the records.")] = "",
    profile: Annotated[str | None, typer.Option("--profile", help="Profile to expect times by.")] = None,
    health_path: Annotated[
        str, typer.Option("--health-path", help="Path that answers 200 when the server is ready.")
    ] = "/health",
    no_request: Annotated[bool, typer.Option("--no-request", help="Send no first request.")] = False,
    ready_timeout: Annotated[
        float, typer.Option("--ready-timeout", help="Seconds until a server must be ready.")
    ] = 1800.0,
    grace: Annotated[float, typer.Option("--grace", help="Seconds from SIGTERM to SIGKILL.")] = 15.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be started, and how long it would take.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Records on standard output, one a line.")] = False,
) -> None:
    """Start a real server, measure its phases, time to ready and first token, stop it; records for calibration."""
    from calibration.host import describe_host, fingerprint, host_facts
    from calibration.profiling.launch import launch_of
    from calibration.profiling.plan import make_plan
    from calibration.profiling.session import Session, run_plan
    from calibration.profiling.starts import Limits
    from startup_model.model import as_hardware, as_profile

    launch = launch_of(command)
    facts = host_facts()
    node = as_hardware(hardware) if hardware is not None else describe_host(facts)
    steps = make_plan(
        launch,
        node,
        kind=_choice("--plan", "differential" if differential else plan, ("base", "differential", "quick", "full")),  # type: ignore[arg-type]
        models=model or [],
        repetitions=repetitions,
        page_cache=_choice("--page-cache", page_cache, ("hot", "cold", "as_is")),  # type: ignore[arg-type]
        compile_cache=_choice("--compile-cache", compile_cache, ("warm", "fresh")),  # type: ignore[arg-type]
        prior=as_profile(profile) if profile is not None else None,
    )
    limits = Limits(ready_s=ready_timeout, grace_s=grace)
    limits.check()
    session = Session(
        launch, node, host=fingerprint(facts), dataset=dataset, health_path=health_path, request=not no_request, drop_caches=drop_caches, limits=limits,
    )  # fmt: skip
    _announce(steps, launch.label())
    if dry_run:
        return
    view = _View(steps, as_json=as_json)
    with view:
        records = _collect(run_plan(session, steps, out=out, resume=resume, listener=view.hear))
    _print(records, out, as_json=as_json)


def _choice(flag: str, value: str, known: Sequence[str]) -> str:
    value = value.replace("-", "_")
    if value not in known:
        raise ConfigError(flag, value, "not one of its words", f"give {', '.join(known)}")
    return value


def _collect(records: Iterator[RunRecord]) -> list[RunRecord]:
    return list(records)


def _say(text: str) -> None:
    sys.stderr.write(f"startup-model: {text}\n")
    sys.stderr.flush()


def _announce(plan: Plan, label: str) -> None:
    _say(f"{len(plan.steps)} step(s), about {_minutes(plan.total_s)} in all, of: {label}")
    for step, seconds in zip(plan.steps, plan.seconds, strict=True):
        _say(f"  {step.words()}: about {seconds:.0f} s")
    for warning in plan.warnings:
        _say(f"warning: {warning}")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class _View:
    """What is said while a plan runs: a bar on a terminal, lines elsewhere. Expectations are scaled by what the steps so far have taken."""

    def __init__(self, plan: Plan, *, as_json: bool) -> None:
        self._plan = plan
        self._as_json = as_json
        self._began = time.monotonic()
        self._spent = self._expected = 0.0
        self._step_began = self._began
        self._last = 0.0
        self._phase: str | None = None
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(bar_width=20), TextColumn("{task.fields[words]}", markup=False))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=1.0, words="")

    def __enter__(self) -> _View:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def hear(self, news: StepNews) -> None:
        """Take a piece of news."""
        now = time.monotonic()
        if news.record is not None:
            self._ended(news, now)
        elif news.progress is not None:
            self._under_way(news, now)

    def _ended(self, news: StepNews, now: float) -> None:
        record = news.record
        assert record is not None  # noqa: S101  the caller has looked
        if self._as_json:
            sys.stdout.write(json.dumps(record.model_dump(mode="json"), allow_nan=False) + "\n")
            sys.stdout.flush()
        if not news.is_priming:
            if news.note != "done before":
                self._spent += now - self._step_began
                self._expected += self._plan.seconds[news.place]
            self._step_began = now
        token = "" if record.first_token_s is None else f", first token after {record.first_token_s:.2f} s"
        kind = " (it compiled: kept apart)" if news.is_priming else ""
        note = (
            f"; no first token: {news.note}"
            if news.note not in ("", "done before", "not asked for")
            else f"; {news.note}"
            if news.note == "done before"
            else ""
        )
        self._line(f"{news.step.words()}: ready after {record.wall_s:.2f} s{token}{kind}{note}")

    def _under_way(self, news: StepNews, now: float) -> None:
        assert news.progress is not None  # noqa: S101  the caller has looked
        left = self._left(news.place, now)
        phase = f"after {news.progress.phase}" if news.progress.phase else "waiting for a line that is known"
        words = f"{news.place + 1}/{len(self._plan.steps)} {news.step.name}: {news.progress.elapsed_s:.0f} s, {phase}; about {_minutes(left)} left"
        if self._progress is not None:
            total = max(now - self._began + left, 1e-9)
            self._progress.update(self._task, completed=(now - self._began) / total, words=words)
        elif phase != self._phase or now - self._last >= _SAYS_S:
            self._phase, self._last = phase, now
            _say(words)

    def _left(self, place: int, now: float) -> float:
        pace = self._spent / self._expected if self._expected > 0 else 1.0
        current = max(0.0, pace * self._plan.seconds[place] - (now - self._step_began))
        return current + pace * sum(self._plan.seconds[place + 1 :])

    def _line(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(f"startup-model: {text}", markup=False, highlight=False, soft_wrap=True)
        else:
            _say(text)


def _print(records: Sequence[RunRecord], out: Path, *, as_json: bool) -> None:
    if as_json:
        return
    from rich.console import Console
    from rich.table import Table

    phases = list(dict.fromkeys(name for record in records for name in _seconds(record)))
    table = Table(title="measured starts (seconds)", title_justify="left")
    table.add_column("phase")
    for record in records:
        table.add_column(f"{record.model.name}\n{_state(record)}", justify="right", overflow="fold")
    for name in phases:
        table.add_row(name, *(_figure(_seconds(record).get(name)) for record in records))
    table.add_section()
    table.add_row("time to ready", *(_figure(record.wall_s) for record in records))
    table.add_row("first token", *(_figure(record.first_token_s) for record in records))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(f"written: {out}; next: startup-model calibrate {out} --out host.json", soft_wrap=True)


def _seconds(record: RunRecord) -> dict[str, float]:
    return dict(record.phases) | {" + ".join(figure.phases): figure.seconds for figure in record.sums}


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _state(record: RunRecord) -> str:
    engine = record.engine
    words = [f"page {engine.page_cache}", "eager" if engine.enforce_eager else f"compile {engine.compile_cache}"]
    return ", ".join([*words, *(["dummy"] if engine.load_format == "dummy" else [])])
