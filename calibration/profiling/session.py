"""Profile a real server: prepare the state that a step asks for, measure the start, make a record of it, keep it at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from calibration.host import describe_host, fingerprint, host_facts, short_names
from calibration.profiling.caches import (
    checkpoint_files,
    drop_all_caches,
    evict,
    fresh_compile_cache,
    read_into_cache,
    resident_fraction,
)
from calibration.profiling.launch import Launch, checkpoint_folder, environment_that_matters, launch_of
from calibration.profiling.plan import CompileCache, Plan, PlanKind, Step, compiles, configuration, make_plan
from calibration.profiling.starts import Limits, Measured, PageCache, Progress, measure_start
from calibration.readers import append_run, read_runs
from calibration.records import RunRecord
from startup_model.config.engine import EngineConfig
from startup_model.config.hardware import HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.errors import ConfigError, InputFileError, StartupModelError
from startup_model.model import HardwareLike, ModelLike, as_hardware, as_model
from startup_model.phases import Phase

__all__ = ["Session", "StepNews", "profile_server", "run_plan"]

_HOT, _COLD = 0.9, 0.05
"""Share of the checkpoint in the page cache from which it counts as hot, and up to which as cold."""
_STAMP_S = 0.001
_SAME_WARM_START = 2


class StepNews(NamedTuple):
    """What a listener is told while a plan runs."""

    place: int
    """Of the step in its plan, from 0."""
    step: Step
    is_priming: bool
    """A compiling start before a warm one."""
    progress: Progress | None
    """Where the start is; None when it has just ended, or was there already."""
    record: RunRecord | None = None
    note: str = ""


Listener = Callable[[StepNews], None]


class Session(NamedTuple):
    """What all starts of a plan have in common."""

    launch: Launch
    hardware: HardwareConfig
    model: ModelConfig | None = None
    """In the place of what the command names, for a model that is not known here."""
    host: str = ""
    dataset: str = ""
    health_path: str = "/health"
    request: bool = True
    drop_caches: bool = False
    limits: Limits = Limits()


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
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    dataset: str = "",
    health_path: str = "/health",
    request: bool = True,
    drop_caches: bool = False,
    limits: Limits | None = None,
    listener: Listener = lambda news: None,
) -> list[RunRecord]:
    """Start a real server as often as a plan asks, and return the records of its starts.

    command: ``"vllm serve MODEL ..."``, its words, or an EngineConfig with a model; no shell is involved. The port is chosen (or checked to be free) and bound to the
    loopback interface. hardware: the node; None: worked out from this host. model: the model, where the command names one that is not known here. models: other models
    to put in the place of the command's. plan: ``base``, ``differential``, ``quick`` or ``full``, see ``make_plan``. page_cache: hot (the checkpoint is read
    before each start), cold (its files are evicted; ``drop_caches=True`` empties the whole page cache, as root) or as_is. compile_cache: warm (the engine's own cache; a
    start that compiled is kept apart as one) or fresh (a new one for each start, deleted afterwards). out: a JSONL file to which each record is appended
    as soon as it is there; resume=True leaves out steps whose records it holds already.

    Seconds: ``wall_s`` is from the start of the process until the health endpoint answers 200, ``first_token_s`` until the first token of the first request; phases are
    timed by the moments at which lines arrive. Raises ConfigError for what cannot be run, ServerError (with the last log lines) when a server does not come up;
    records made before that are in ``out``. No process of a server is ever left behind.
    """
    launch = launch_of(command)
    facts = host_facts()
    session = Session(
        launch=launch,
        hardware=as_hardware(hardware) if hardware is not None else describe_host(facts),
        model=as_model(model) if model is not None else None,
        host=fingerprint(facts),
        dataset=dataset,
        health_path=health_path,
        request=request,
        drop_caches=drop_caches,
        limits=limits or Limits(),
    )
    steps = make_plan(
        launch,
        session.hardware,
        kind=plan,
        models=models,
        repetitions=repetitions,
        page_cache=page_cache,
        compile_cache=compile_cache,
    )
    return list(run_plan(session, steps, out=out, resume=resume, listener=listener))


def run_plan(
    session: Session,
    plan: Plan,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    listener: Listener = lambda news: None,
) -> Iterator[RunRecord]:
    """The records of a plan, one after the other, each on disk before it is given out. Arguments and errors as of ``profile_server``."""
    path = Path(out) if out is not None else None
    done = _done(path) if resume else {}
    if path is not None:
        _check_writable(path)
    primed: set[tuple[str | None, bool]] = set()
    for index, step in enumerate(plan.steps):
        key = step.key(session.launch)
        if key in done:
            primed.add((step.model, step.eager))
            listener(StepNews(index, step, is_priming=False, progress=None, record=done[key], note="done before"))
            yield done[key]
            continue
        for record in _step(session, index, step, primed, listener):
            if path is not None:
                append_run(record, path)
            yield record


def _done(path: Path | None) -> dict[str, RunRecord]:
    """Step -> record, of a file that an earlier session wrote."""
    if path is None:
        raise ConfigError("resume", True, "there is no file to go on with", "give out= (--out)")
    if not path.exists():
        return {}
    return {record.step: record for record in read_runs(path) if record.step}


def _check_writable(path: Path) -> None:
    """Before minutes are spent. Raises InputFileError."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise InputFileError(f"{path}: cannot be written ({error.strerror or error}); choose another file") from None


def _step(
    session: Session, index: int, step: Step, primed: set[tuple[str | None, bool]], listener: Listener
) -> Iterator[RunRecord]:
    """The record of a step; before it that of a start that had to compile first."""
    group = (step.model, step.eager)
    may_compile = (
        step.compile_cache == "warm" and group not in primed and compiles(session.launch, session.hardware, step)
    )
    for attempt in range(_SAME_WARM_START if may_compile else 1):
        is_priming = may_compile and attempt == 0

        def tell(progress: Progress, priming: bool = is_priming) -> None:
            listener(StepNews(index, step, priming, progress))

        measured, page_cache, environment = _measure(session, step, tell)
        state = "cold" if step.compile_cache == "fresh" else "warm"
        compiled = Phase.GRAPH_COMPILE.value in measured.log.phases
        is_last = not is_priming or not compiled or measured.log.compile_cache == "warm"
        if not is_last:
            state = measured.log.compile_cache
        record = _record(session, step, measured, page_cache, state, environment)
        if not is_last:
            record = record.replace(step="")
        primed.add(group)
        listener(StepNews(index, step, is_priming and not is_last, None, record, measured.problem))
        yield record
        if is_last:
            return


def _measure(session: Session, step: Step, tell: Callable[[Progress], None]) -> tuple[Measured, str, dict[str, str]]:
    """One start in the state that the step asks for; also the state of the page cache, and the variables that matter."""
    launch = session.launch
    environment = dict(os.environ) | dict(launch.environment)
    name = step.model or (launch.engine.model if launch.engine else None)
    with ExitStack() as stack:
        if step.compile_cache == "fresh":
            environment |= stack.enter_context(fresh_compile_cache(environment))
        page_cache = _prepare_page_cache(checkpoint_folder(name), step, drop=session.drop_caches)
        port = launch.choose_port()
        measured = measure_start(
            launch.command(port, model=step.model, eager=step.eager, dummy=step.dummy),
            port=port,
            environment=environment,
            health_path=session.health_path,
            request=session.request,
            limits=session.limits,
            report=tell,
        )
    return measured, page_cache, environment_that_matters(dict(os.environ) | dict(launch.environment))


def _prepare_page_cache(folder: Path | None, step: Step, *, drop: bool) -> str:
    """Make the checkpoint hot or cold; the state that it is in then: hot, cold or unknown."""
    if step.dummy:
        return "hot"  # nothing is read
    if folder is None:
        if step.page_cache == "cold":
            raise ConfigError(
                "page_cache", "cold", "the checkpoint is not a folder on this host, nor in the hub's cache", "choose as_is, or give its folder"
            )  # fmt: skip
        return "unknown"
    files = checkpoint_files(folder)
    if step.page_cache == "hot":
        read_into_cache(files)
    elif step.page_cache == "cold":
        evict(files)
        if drop:
            drop_all_caches()
    held = None
    with contextlib.suppress(StartupModelError, OSError, ValueError):
        held = resident_fraction(files)
    if held is None:
        return step.page_cache if step.page_cache != "as_is" else "unknown"
    return "hot" if held >= _HOT else "cold" if held <= _COLD else "unknown"


def _record(
    session: Session, step: Step, measured: Measured, page_cache: str, compile_cache: str, environment: dict[str, str]
) -> RunRecord:
    log, launch = measured.log, session.launch
    folder = checkpoint_folder(step.model or (launch.engine.model if launch.engine else None))
    model: ModelLike | None = session.model
    engine: EngineConfig | None = None
    if launch.engine is not None:
        found, engine = configuration(launch, step) if model is None else (model, _engine(launch, step))
        model = found
        changes: dict[str, Any] = {"model": None, "environment": environment, "unused_flags": ()}
        if log.engine_version is not None:
            changes["version"] = log.engine_version
            if log.engine_generation in ("v0", "v1"):
                changes["generation"] = log.engine_generation
        engine = engine.replace(**changes)
    record = log.to_run(
        session.hardware, model=model, engine=engine, page_cache=page_cache, compile_cache=compile_cache,
        process_start_s=measured.first_line_s, host=session.host, dataset=session.dataset,
    )  # fmt: skip
    surroundings = short_names(host_facts(), folder)
    if measured.killed:
        surroundings["killed"] = f"{measured.killed} process(es) were left after the grace"
    return record.replace(
        wall_s=max(measured.wall_s, record.wall_s or 0.0),  # the line that says so may come last
        first_token_s=measured.first_token_s, stamp_resolution_s=_STAMP_S, surroundings=surroundings,
        step=step.key(launch),
    )  # fmt: skip


def _engine(launch: Launch, step: Step) -> EngineConfig:
    assert launch.engine is not None  # noqa: S101  the caller has looked
    return launch.engine.replace(
        **({"enforce_eager": True} if step.eager else {}), **({"load_format": "dummy"} if step.dummy else {})
    )
