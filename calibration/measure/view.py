"""What is said while a plan runs, and the tables at its end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from calibration.measure.difference import IsolatedPhases
    from calibration.measure.plan import Plan
    from calibration.measure.run import StepNews
    from calibration.runs.record import RunRecord

__all__ = ["View", "announce", "print_runs", "say"]

_SAYS_S = 10.0
"""Between two lines where there is no terminal."""


def say(text: str) -> None:
    """Say a line on standard error."""
    sys.stderr.write(f"startup-model: {text}\n")
    sys.stderr.flush()


def announce(plan: Plan, done: Mapping[int, RunRecord], label: str) -> None:
    """Say what will be started, and how long it will take. ``done``: places of the steps that need no start; label: the command."""
    before = f", {len(done)} of them done before" if done else ""
    say(f"{len(plan.steps)} step(s){before}, {_about(plan.remaining_s(done))} in all, of: {label}")
    is_first = True
    for place, step in enumerate(plan.steps):
        if place in done:
            say(f"  {step.words()}: done before")
            continue
        starts = plan.starts_s(place, is_first=is_first)
        is_first = False
        apart = f", and {_about(starts[0])} for a start before it that is kept apart" if len(starts) > 1 else ""
        say(f"  {step.words()}: {_about(starts[-1])}{apart}")
    for warning in plan.warnings:
        say(f"warning: {warning}")


def _about(seconds: float | None) -> str:
    if seconds is None:
        return "for a time that cannot be said"
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"


class View:
    """Hears the news of a plan: a bar on a terminal, lines elsewhere; with ``as_json`` records on standard output, one a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._began = time.monotonic()
        self._last = 0.0
        self._activity = ""
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(bar_width=20), TextColumn("{task.fields[words]}", markup=False))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=1.0, words="")

    def __enter__(self) -> View:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def hear(self, news: StepNews) -> None:
        """Take a piece of news."""
        if news.record is not None:
            self._ended(news, news.record)
        else:
            self._under_way(news)

    def _ended(self, news: StepNews, record: RunRecord) -> None:
        if self._as_json:
            sys.stdout.write(json.dumps(record.model_dump(mode="json"), allow_nan=False) + "\n")
            sys.stdout.flush()
        wall = "" if record.wall_s is None else f"ready after {record.wall_s:.2f} s"
        if wall and record.measured_from == "first_line":
            wall += " from its first line"
        token = "" if record.first_token_s is None else f"first token after {record.first_token_s:.2f} s"
        note = f"{news.note}: kept apart" if news.is_apart else news.note
        said = ", ".join(part for part in (wall, token) if part)
        self._line(f"{news.step.words()}: {said}{f' ({note})' if note else ''}")

    def _under_way(self, news: StepNews) -> None:
        progress = news.progress
        if progress is None:
            return
        now = time.monotonic()
        heard = f"after {progress.phase}" if progress.phase else "waiting for a line that is known"
        activity = progress.doing or heard
        left = "" if news.left_s is None else f"; {_about(news.left_s)} left"
        words = (
            f"{news.place + 1}/{len(news.plan.steps)} {news.step.name}: {progress.elapsed_s:.0f} s, {activity}{left}"
        )
        if self._progress is not None:
            spent = now - self._began
            share = 0.0 if news.left_s is None else spent / max(spent + news.left_s, 1e-9)
            self._progress.update(self._task, completed=share, words=words)
        elif activity != self._activity or now - self._last >= _SAYS_S:
            self._activity, self._last = activity, now
            say(words)

    def _line(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(f"startup-model: {text}", markup=False, highlight=False, soft_wrap=True)
        else:
            say(text)


# --- tables -------------------------------------------------------------------------------------------------------------


def print_runs(records: Sequence[RunRecord], isolated: Sequence[IsolatedPhases], out: Path) -> None:
    """The starts side by side, what their differences isolate, and what to do next."""
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    _print_starts(console, records)
    if isolated:
        _print_isolated(console, isolated)
    console.print(f"written: {out}; next: startup-model calibrate {out} --out host.json", soft_wrap=True)


def _print_starts(console: Console, records: Sequence[RunRecord]) -> None:
    from rich.table import Table

    table = Table(title="measured starts (seconds)", title_justify="left")
    table.add_column("phase")
    for record in records:
        table.add_column(f"{record.model.name}\n{_state(record)}", justify="right", overflow="fold")
    for name in dict.fromkeys(name for record in records for name in _seconds(record)):
        table.add_row(name, *(_figure(_seconds(record).get(name)) for record in records))
    table.add_section()
    table.add_row("time to ready", *(_figure(record.wall_s) for record in records))
    table.add_row("first token", *(_figure(record.first_token_s) for record in records))
    console.print(table)


def _print_isolated(console: Console, isolated: Sequence[IsolatedPhases]) -> None:
    from rich.table import Table

    table = Table(title="base less other start (seconds)", title_justify="left")
    table.add_column("phase")
    for entry in isolated:
        table.add_column(f"{entry.model}\nbase less {entry.label}", justify="right", overflow="fold")
    for name in dict.fromkeys(name for entry in isolated for name in entry.differences_s):
        table.add_row(name, *(_figure(entry.differences_s.get(name)) for entry in isolated))
    table.add_section()
    table.add_row("time to ready", *(_figure(entry.by_wall_s) for entry in isolated))
    console.print(table)
    for entry in isolated:
        by_log = "" if entry.by_log_s is None else f", {entry.by_log_s:.2f} s by its log"
        by_wall = "unknown" if entry.by_wall_s is None else f"{entry.by_wall_s:.2f} s by the time to ready"
        console.print(f"{entry.model}: {' + '.join(entry.phases)} = {by_wall}{by_log}", soft_wrap=True)


def _seconds(record: RunRecord) -> dict[str, float]:
    return dict(record.phases) | {" + ".join(figure.phases): figure.seconds for figure in record.sums}


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _state(record: RunRecord) -> str:
    from calibration.measure.difference import flags_of

    flags = sorted(flags_of(record.engine))
    compiles = not {"eager", "uncompiled"} & set(flags)
    words = [
        "" if record.step else "kept apart",
        f"page {record.engine.page_cache}",
        f"compile {record.engine.compile_cache}" if compiles else "",
        *flags,
    ]
    return ", ".join(word for word in words if word)
