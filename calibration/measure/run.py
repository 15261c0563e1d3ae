"""Profile a real server: run a plan step by step, keep each record at once, tell a listener; go on where an earlier session was interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from calibration.host import HostFacts, describe_host, fingerprint, host_facts
from calibration.measure.launch import Launch, launch_of
from calibration.measure.measuring import Memory, starts_of
from calibration.measure.pace import Pace
from calibration.measure.plan import Plan, PlanKind, make_plan
from calibration.measure.session import Session, check_flag
from calibration.measure.starts import Limits, Progress
from calibration.measure.states import CompileCaches
from calibration.measure.steps import CompileCache, PageCache, Step, TorchCompile
from calibration.runs.read import ReadReport, read_runs
from calibration.runs.record import RunRecord
from calibration.runs.write import append_run, check_appendable
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, InputFileError, shown
from startup_model.hardware import HardwareConfig
from startup_model.predictor import HardwareLike, ModelLike, ProfileLike, as_hardware, as_model, as_profile

__all__ = ["Listener", "StepNews", "finished_steps", "node_of", "profile_server", "run_plan"]


class StepNews(NamedTuple):
    """What a listener is told while a plan runs."""

    plan: Plan
    """The whole of it: steps, and the time that was expected."""
    place: int
    """Of the step in the plan, from 0."""
    progress: Progress | None = None
    """Where the start is; None when it has just ended, or was there already."""
    record: RunRecord | None = None
    """Of a start that has ended, on disk by now."""
    is_apart: bool = False
    """Whether it is kept apart from the step: the first start of a session, or one that had to compile before a warm one. Another start of the step follows."""
    note: str = ""
    """Why it is kept apart, what is missing in the record; "done before" for a step that was not started again."""
    left_s: float | None = None
    """Seconds until the plan is done, at the pace of the starts so far; None where nothing can be said."""

    @property
    def step(self) -> Step:
        """The step of the plan."""
        return self.plan.steps[self.place]


Listener = Callable[[StepNews], None]


def profile_server(
    command: str | Sequence[str] | EngineConfig,
    *,
    hardware: HardwareLike | None = None,
    model: ModelLike | None = None,
    models: Sequence[str] = (),
    plan: PlanKind = "base",
    repetitions: int = 1,
    page_cache: PageCache = "hot",
    compile_cache: CompileCache = "warm",
    torch_compile: TorchCompile = "on",
    warm_up: bool = True,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    dataset: str = "",
    health_path: str = "/health",
    request: bool = True,
    drop_caches: bool = False,
    limits: Limits | None = None,
    profile: ProfileLike | None = None,
    listener: Listener = lambda news: None,
) -> list[RunRecord]:
    """Start a real server as often as a plan asks, and return the records of its starts.

    command: ``"vllm serve MODEL ..."``, its words, or an EngineConfig with a model; no shell is involved. The port is chosen (or checked to be free), and the server
    is bound to the loopback interface; a program that takes its port as ``{port}`` binds to what it likes. hardware: the node; None: worked out from this host. model: the model, where the command names one that is not known here. models: other models
    to put in the place of the command's. plan: ``base``, ``differential``, ``quick`` or ``full``, see ``make_plan``. page_cache: hot (the checkpoint is read
    before each start), cold (its files are evicted; ``drop_caches=True`` empties the whole page cache, as root) or as_is. compile_cache: warm (the engine's own cache) or
    fresh (a new one for each start, deleted afterwards). torch_compile: on (as the command has it) or off. warm_up: whether the first start of the session is kept
    apart, since what it imports may come from storage; one that had to compile before a warm start always is. Such records have no ``step``. out: a JSONL file to
    which each record is appended as soon as it is there; resume=True leaves out steps whose records it holds already, of this host. profile: to expect times by.
    listener: is told of the plan, its progress, the time left and each record.

    Seconds: ``wall_s`` is from the start of the process until the health endpoint answers 200, and the log says ready where it does; ``first_token_s`` until the first
    token of the first request; phases are timed by the moments at which lines arrive. The first start of a session counts from its first line. Raises ConfigError for what
    cannot be run, InputFileError for a file that cannot be read or written, ServerError (with the last log lines) when a server does not come up; records made
    before that are in ``out``. No process of a server is ever left behind, except of one that
    a container runtime or another host starts (see ``Launch.out_of_reach``).
    """
    launch = launch_of(command)
    facts = host_facts()
    session = Session(
        launch=launch,
        hardware=node_of(hardware, launch, facts),
        model=as_model(model) if model is not None else None,
        facts=facts,
        host=fingerprint(facts),
        dataset=dataset,
        health_path=health_path,
        request=request,
        drop_caches=drop_caches,
        limits=Limits() if limits is None else limits,
    )
    steps = make_plan(
        launch,
        session.hardware,
        kind=plan,
        models=models,
        repetitions=repetitions,
        page_cache=page_cache,
        compile_cache=compile_cache,
        torch_compile=torch_compile,
        warm_up=False if drop_caches is True else warm_up,
        model=session.model,
        prior=as_profile(profile),
    )
    return list(run_plan(session, steps, out=out, resume=resume, listener=listener))


def node_of(hardware: HardwareLike | None, launch: Launch, facts: HostFacts) -> HardwareConfig:
    """The node that a command runs on; None: this host. A preset names the accelerator: it gets as many as the command has ranks."""
    if hardware is None:
        return describe_host(facts)
    node = as_hardware(hardware)
    if not isinstance(hardware, str) or launch.engine is None or node.is_cpu_only:
        return node
    needed = -(-launch.engine.tp * launch.engine.pp * launch.engine.dp // node.nodes)
    return node.replace(gpus=needed) if needed > node.gpus else node


def run_plan(
    session: Session,
    plan: Plan,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    listener: Listener = lambda news: None,
) -> Iterator[RunRecord]:
    """The records of a plan, one after the other, each on disk before anybody hears of it. Arguments and errors as of ``profile_server``."""
    session.check(plan)
    check_flag("resume", resume)
    if not callable(listener):
        raise ConfigError("listener", listener, "it cannot be called", "give a function of StepNews, or leave it out")
    done = finished_steps(session, plan, out) if resume else {}
    path = None if out is None else _writable(out)
    pace = Pace(plan, done, time.monotonic())
    kept: list[RunRecord] = []
    with CompileCaches() as caches, _says_what_is_kept(kept, path):
        folders = {step.model: session.launch.checkpoint(step.model) for step in plan.steps}
        memory = Memory(session.facts or host_facts(), caches, is_first=plan.warm_up, folders=folders)
        for place, step in enumerate(plan.steps):
            news = StepNews(plan, place)
            if place in done:
                listener(news._replace(record=done[place], note="done before", left_s=pace.left_s(time.monotonic())))
                yield done[place]
                continue

            def report(progress: Progress, news: StepNews = news) -> None:
                listener(news._replace(progress=progress, left_s=pace.left_s(time.monotonic())))

            pace.begin(time.monotonic())
            for start in starts_of(session, step, memory, report):
                if path is not None:
                    append_run(start.record, path)
                    kept.append(start.record)
                if start.interrupt is not None:
                    signal.raise_signal(start.interrupt)
                now = time.monotonic()
                pace.end(place, now, is_apart=start.is_apart)
                listener(
                    news._replace(
                        record=start.record, is_apart=start.is_apart, note=start.note, left_s=pace.left_s(now)
                    )
                )
                yield start.record
            if all(later.group != step.group for later in plan.steps[place + 1 :]):
                caches.forget(step.group)


@contextmanager
def _says_what_is_kept(records: Sequence[RunRecord], path: Path | None) -> Iterator[None]:
    """Adds to whatever ends the block early how many records are in the file."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        if path is not None and records:
            error.add_note(
                f"{len(records)} record(s) of this session are kept in {path}; resume=True (--resume) goes on after them"
            )
        raise


def finished_steps(session: Session, plan: Plan, out: str | os.PathLike[str] | None) -> dict[int, RunRecord]:
    """Places of the steps, from 0, that an earlier session of this host has done, with their records in the file ``out``.

    A last line that was half written counts for nothing. Raises ConfigError without a file, InputFileError for one that holds something else than records.
    """
    if out is None:
        raise ConfigError("resume", True, "there is no file to go on with", "give out= (--out)")
    path = _path(out)
    if not path.exists():
        return {}
    check_appendable(path)
    if path.stat().st_size == 0:
        return {}
    version = session.launch.engine.version if session.launch.engine is not None else None
    found = {
        record.step: record
        for record in read_runs(path, strict=False, report=ReadReport())
        if record.step and record.host == session.host and version in (None, record.engine.version)
    }
    keys = [step.key(session.launch) for step in plan.steps]
    return {place: found[key] for place, key in enumerate(keys) if key in found}


def _path(out: str | os.PathLike[str]) -> Path:
    if not isinstance(out, str | os.PathLike) or not str(out) or "\0" in str(out):
        raise ConfigError("out", out, "it is no name of a file", "give one such as runs.jsonl")
    path = Path(out)
    try:
        path.exists()
    except OSError as error:
        raise InputFileError(f"{shown(str(path))}: {error.strerror or error}; choose another file") from None
    return path


def _writable(out: str | os.PathLike[str]) -> Path:
    """The file, which is there from now on: tried before minutes are spent. Raises InputFileError."""
    path = _path(out)
    check_appendable(path)
    return path
