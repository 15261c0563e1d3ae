"""``startup-model profile``: measure starts of a real server."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from startup_model.errors import ConfigError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("profile")(profile_command)


def profile_command(
    command: Annotated[list[str], typer.Argument(help="The server's command, after --: vllm serve MODEL ...")],
    out: Annotated[Path, typer.Option("--out", help="JSONL file that each record is appended to.")] = Path(
        "runs.jsonl"
    ),
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            help="base (default), differential, quick (one warm start a model) or full (all that can be told apart).",
        ),
    ] = None,
    differential: Annotated[
        bool, typer.Option("--differential", help="Base, eager and dummy weights: the same as --plan differential.")
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="Models to put in the place of the command's; may be repeated. Of a program that is not known here: the model that it serves.",
        ),
    ] = None,
    repetitions: Annotated[int, typer.Option("--repetitions", help="Starts of each kind.")] = 1,
    page_cache: Annotated[str, typer.Option("--page-cache", help="hot, cold or as_is, before each start.")] = "hot",
    compile_cache: Annotated[str, typer.Option("--compile-cache", help="warm or fresh.")] = "warm",
    torch_compile: Annotated[
        str, typer.Option("--torch-compile", help="on (as the command has it) or off (-O0 for vLLM).")
    ] = "on",
    no_warm_up: Annotated[
        bool,
        typer.Option("--no-warm-up", help="Do not keep the first start apart: the engine was started a moment ago."),
    ] = False,
    drop_caches: Annotated[
        bool,
        typer.Option("--drop-caches", help="With --page-cache cold: empty the page cache of the whole host, as root."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out steps whose records, of this host, are in the file already.")
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
    from calibration.host import fingerprint, host_facts
    from calibration.measure.difference import isolated_phases
    from calibration.measure.launch import launch_of
    from calibration.measure.plan import make_plan
    from calibration.measure.run import finished_steps, node_of, run_plan
    from calibration.measure.session import Session
    from calibration.measure.starts import Limits
    from calibration.measure.view import View, announce, print_runs
    from startup_model.predictor import as_model, as_profile

    launch = launch_of(command)
    facts = host_facts()
    names = model or []
    is_served = launch.engine is None and len(names) == 1
    session = Session(
        launch,
        node_of(hardware, launch, facts),
        model=as_model(names[0]) if is_served else None,
        facts=facts,
        host=fingerprint(facts),
        dataset=dataset,
        health_path=health_path,
        request=not no_request,
        drop_caches=drop_caches,
        limits=Limits(ready_s=ready_timeout, grace_s=grace),
    )
    steps = make_plan(
        launch,
        session.hardware,
        kind=_kind(plan, differential=differential),  # type: ignore[arg-type]
        models=[] if is_served else names,
        repetitions=repetitions,
        page_cache=page_cache.replace("-", "_"),  # type: ignore[arg-type]
        compile_cache=compile_cache,  # type: ignore[arg-type]
        torch_compile=torch_compile,  # type: ignore[arg-type]
        warm_up=not (no_warm_up or drop_caches),
        model=session.model,
        prior=as_profile(profile),
    )
    session.check(steps)
    with _plain_warnings():
        announce(steps, finished_steps(session, steps, out) if resume else {}, launch.label())
        if dry_run:
            return
        with _ends_orderly(), View(as_json=as_json) as view:
            records = list(run_plan(session, steps, out=out, resume=resume, listener=view.hear))
    if not as_json:
        print_runs(records, isolated_phases(records), out)


def _kind(plan: str | None, *, differential: bool) -> str:
    """The kind of plan that two options ask for. Raises ConfigError when they contradict each other."""
    if not differential:
        return plan or "base"
    if plan not in (None, "differential"):
        raise ConfigError("--plan", plan, "--differential is a plan of its own", "give one of the two")
    return "differential"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings are lines like all others, without the place in the program that they come from."""
    from calibration.measure.view import say

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def _ends_orderly() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the block, as Ctrl-C does, so that nothing temporary stays behind; what is kept is said."""
    from calibration.measure.view import say

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
