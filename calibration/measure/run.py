"""Profile a real server: run a schedule case by case, keep each record at once, tell a listener; go on where an earlier session was interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, SkipValidation, field_validator

from calibration.host import HostFacts, checkpoint_files, describe_host, facts_in_words, fingerprint, host_facts
from calibration.logs.diagnosis import is_eager
from calibration.measure import launch as launches
from calibration.measure import schedule as kinds
from calibration.measure import states
from calibration.measure.schedule import Case, Schedule, ScheduleInputs, ScheduleOptions
from calibration.measure.start import Limits, MeasuredStart, Progress, measure_start
from calibration.runs.build import ReadReport
from calibration.runs.read import read_runs
from calibration.runs.record import Name, RunRecord
from calibration.runs.write import append_run, check_appendable
from startup_model.changes import with_accelerators
from startup_model.engines import find
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, InputFileError, wrong_type
from startup_model.files import is_file, is_folder
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.predictor import HardwareLike, ModelLike, ProfileLike, as_hardware, as_model, as_profile

_STAMP_S = 0.001
_EARLY = 0.99  # share of the time to ready up to which a first token came before it: the record allows for as much


class ScheduleEvent(NamedTuple):
    """What a listener is told while a schedule runs."""

    schedule: Schedule
    """The whole of it: cases, and the time that was expected."""
    place: int
    """Of the case in the schedule, from 0."""
    progress: Progress | None = None
    """Where the start is; None when it has just ended, or was there already."""
    record: RunRecord | None = None
    """Of a start that has ended, on disk by now."""
    is_warm_up: bool = False
    """Whether it is excluded as warm-up: the first start of a session, or one that had to compile before a warm one. Another start of the case follows."""
    note: str = ""
    """Why it is a warm-up, what is missing in the record; "done before" for a case that was not started again."""
    left_s: float | None = None
    """Seconds until the schedule is done, at the pace of the starts so far; None where nothing can be said."""

    @property
    def case(self) -> Case:
        """The case of the schedule."""
        return self.schedule.cases[self.place]

    @property
    def plan(self) -> Schedule:
        """Older name of ``schedule``."""
        return self.schedule

    @property
    def step(self) -> Case:
        """Older name of ``case``."""
        return self.case

    @property
    def is_apart(self) -> bool:
        """Older name of ``is_warm_up``."""
        return self.is_warm_up


StepNews = ScheduleEvent
"""Older name."""
Listener = Callable[[ScheduleEvent], None]


class Session(FrozenModel):
    """What all starts of a schedule have in common. Raises ConfigError for what would spoil the records or never end."""

    inputs: SkipValidation[ScheduleInputs]
    facts: SkipValidation[HostFacts]  # what is known of this host, for the records
    host: Name = ""  # its fingerprint: cases that another host has done are not left out when a schedule goes on
    dataset: Name = ""  # name of this session in the records
    health_path: Annotated[str, Field(max_length=1000)] = "/health"  # answers 200 when the server is ready
    request: bool = True  # whether to ask for a first token
    drop_caches: bool = False  # whether a cold start empties the page cache of the whole host, as root
    resume: bool = False  # whether cases are left out whose records the file holds already
    limits: Limits = Limits()

    @field_validator("health_path")
    @classmethod
    def _is_path(cls, path: str) -> str:
        if not (path.startswith("/") and path.isascii() and path.isprintable()) or " " in path:
            raise wrong_type("health_path", path, "the path of a URL", "give one such as /health")
        return path

    def check(self, schedule: Schedule) -> None:
        """Raises ConfigError or InputFileError, before minutes are spent, for cases that cannot be started."""
        launch = self.inputs.launch
        if self.drop_caches and not any(case.page_cache == "cold" for case in schedule.cases):
            remedy = "give page_cache='cold' as well"
            raise ConfigError("drop_caches", True, "only a cold start empties caches", remedy)
        launches.program_of(launch.words, launch.variables)
        launch.choose_port()
        for case in schedule.cases:
            self.files(case)
            self.inputs.launch_of(case)
            if launch.engine is not None:
                model, engine = self.inputs.configuration(case)
                engine.resolve(model, self.inputs.hardware)

    def files(self, case: Case) -> list[Path]:
        """The checkpoint's files, where a case reads them and they are on this host. Raises ConfigError or InputFileError where it cannot go without them."""
        if not self.inputs.reads_weights(case):
            return []
        folder = self.inputs.launch.checkpoint(case.model)
        if folder is None and case.page_cache == "cold":
            problem = "the checkpoint is not a folder on this host, nor in the hub's cache"
            raise ConfigError("page_cache", "cold", problem, "choose as_is, or give its folder")
        return [] if folder is None else checkpoint_files(folder)


def prepared(
    command: str | Sequence[str] | EngineConfig,
    options: ScheduleOptions,
    *,
    hardware: HardwareLike | None = None,
    model: ModelLike | None = None,
    profile: ProfileLike | None = None,
    health_path: str | None = None,
    **session: Any,
) -> tuple[Session, Schedule]:
    """A session, and the schedule for it. session: other fields of ``Session``; arguments and errors as of ``profile_server``."""
    launch = launches.launch_of(command)
    facts = host_facts()
    deploy = find(launch.engine.engine).deploy if launch.engine is not None else None
    served = as_model(model) if model is not None else None
    inputs = ScheduleInputs(launch, node_of(hardware, launch, facts), served, as_profile(profile))
    session["health_path"] = health_path if health_path is not None else deploy.health if deploy else "/health"
    found = Session(inputs=inputs, facts=facts, host=fingerprint(facts), **session)
    if found.drop_caches:  # the first start is as cold as any other
        options = options.replace(warm_up=False)
    return found, kinds.make_schedule(inputs, options)


def profile_server(
    command: str | Sequence[str] | EngineConfig,
    *,
    hardware: HardwareLike | None = None,
    model: ModelLike | None = None,
    models: Sequence[str] = (),
    plan: kinds.ScheduleKind = "base",
    repetitions: int = 1,
    page_cache: states.PageCache = "hot",
    compile_cache: states.CompileCache = "warm",
    torch_compile: kinds.TorchCompile = "on",
    warm_up: bool = True,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    dataset: str = "",
    health_path: str | None = None,
    request: bool = True,
    drop_caches: bool = False,
    limits: Limits | None = None,
    profile: ProfileLike | None = None,
    listener: Listener = lambda event: None,
) -> list[RunRecord]:
    """Start a real server as often as a schedule asks, and return the records of its starts.

    command: ``"vllm serve MODEL ..."``, its words, or an EngineConfig with a model; no shell is involved. The port is chosen (or checked to be free), and the server
    is bound to the loopback interface; a program that takes its port as ``{port}`` binds to what it likes. hardware: the node; None: worked out from this host. model: the model, where the command names one that is not known here. models: other models
    to put in the place of the command's. plan: ``base``, ``differential``, ``quick`` or ``full``, see ``ScheduleOptions``. repetitions: starts of each kind, 1 to 100.
    page_cache: hot (the checkpoint is read before each start), cold (its files are evicted; ``drop_caches=True`` empties the whole page cache, as root) or as_is.
    compile_cache: warm (the engine's own cache) or fresh (a new one for each start, deleted afterwards). torch_compile: on (as the command has it) or off. warm_up: whether
    the first start of the session is excluded as warm-up, since what it imports may come from storage; one that had to compile before a warm start always is. Such records
    have no ``step``. out: a JSONL file to which each record is appended as soon as it is there; resume=True leaves out cases whose records it holds already, of this host.
    health_path: answers 200 when the server is ready; None: the engine's own. profile: to expect times by. listener: is told of the schedule, its progress, the time left and each record.

    Seconds: ``wall_s`` is from the start of the process until the health endpoint answers 200, and the log says ready where it does; ``first_token_s`` until the first
    token of the first request; phases are timed by the moments at which lines arrive. The first start of a session counts from its first line. Raises ConfigError for what
    cannot be run, InputFileError for a file that cannot be read or written, ServerError (with the last log lines) when a server does not come up; records made
    before that are in ``out``. No process of a server is ever left behind, except of one that
    a container runtime or another host starts (see ``Launch.external_launcher``).
    """
    options = ScheduleOptions(
        plan=plan, models=models, repetitions=repetitions, page_cache=page_cache, compile_cache=compile_cache, torch_compile=torch_compile,  # type: ignore[arg-type]
        warm_up=warm_up,
    )  # fmt: skip
    session, schedule = prepared(
        command, options, hardware=hardware, model=model, profile=profile, health_path=health_path, resume=resume, dataset=dataset, request=request,
        drop_caches=drop_caches, limits=Limits() if limits is None else limits,
    )  # fmt: skip
    return list(run_schedule(session, schedule, out=out, listener=listener))


def node_of(hardware: HardwareLike | None, launch: launches.Launch, facts: HostFacts) -> HardwareConfig:
    """The node that a command runs on; None: this host. A preset names the accelerator: it gets as many as the command has ranks."""
    node = describe_host(facts) if hardware is None else as_hardware(hardware)
    return with_accelerators(node, launch.engine) if isinstance(hardware, str) and launch.engine is not None else node


def run_schedule(
    session: Session,
    schedule: Schedule,
    *,
    out: str | os.PathLike[str] | None = None,
    listener: Listener = lambda event: None,
) -> Iterator[RunRecord]:
    """The records of a schedule, one after the other, each on disk before anybody hears of it. Arguments and errors as of ``profile_server``."""
    session.check(schedule)
    if not callable(listener):
        remedy = "give a function of ScheduleEvent, or leave it out"
        raise wrong_type("listener", listener, "a function", remedy)
    done = finished_cases(session, schedule, out) if session.resume else {}
    path = None if out is None else _path(out)
    if path is not None:
        check_appendable(path)  # tried before minutes are spent
    remaining = kinds.RemainingTime(schedule, done, time.monotonic())
    kept: list[RunRecord] = []
    launch = session.inputs.launch

    def tell(place: int, progress: Progress | None = None, **fields: Any) -> None:
        listener(ScheduleEvent(schedule, place, progress, left_s=remaining.left_s(time.monotonic()), **fields))

    engines = None if launch.engine is None else (find(launch.engine.engine),)
    try:
        with states.CompileCaches(engines) as caches:
            folders = {case.model: launch.checkpoint(case.model) for case in schedule.cases}
            starts = _Starts(session, caches, folders, is_first=schedule.warm_up)
            for place, case in enumerate(schedule.cases):
                if place in done:
                    tell(place, record=done[place], note="done before")
                    yield done[place]
                    continue
                remaining.begin(time.monotonic())
                for start in starts.of(case, partial(tell, place)):
                    if path is not None:
                        append_run(start.record, path)
                        kept.append(start.record)
                    if start.interrupt is not None:
                        signal.raise_signal(start.interrupt)
                    remaining.end(place, time.monotonic(), is_warm_up=start.is_warm_up)
                    tell(place, record=start.record, is_warm_up=start.is_warm_up, note=start.note)
                    yield start.record
                if all(later.group != case.group for later in schedule.cases[place + 1 :]):
                    caches.forget(case.group)
    except BaseException as error:
        if kept:
            goes_on = "resume=True (--resume) goes on after them"
            error.add_note(f"{len(kept)} record(s) of this session are kept in {path}; {goes_on}")
        raise


def finished_cases(session: Session, schedule: Schedule, out: str | os.PathLike[str] | None) -> dict[int, RunRecord]:
    """Places of the cases, from 0, that an earlier session of this host has done, with their records in the file ``out``.

    A last line that was half written counts for nothing. Raises ConfigError without a file, InputFileError for one that holds something else than records.
    """
    if out is None:
        raise ConfigError("resume", True, "there is no file to go on with", "give out= (--out)")
    path = _path(out)
    if not is_file(path) or path.stat().st_size == 0:
        return {}
    check_appendable(path)
    launch = session.inputs.launch
    version = launch.engine.version if launch.engine is not None else None
    found = {
        record.step: record
        for record in read_runs(path, strict=False, report=ReadReport())
        if record.step and record.host == session.host and version in (None, record.engine.version)
    }
    keys = [case.key(launch) for case in schedule.cases]
    return {place: found[key] for place, key in enumerate(keys) if key in found}


def _path(out: str | os.PathLike[str]) -> Path:
    if not isinstance(out, str | os.PathLike) or not str(out) or "\0" in str(out):
        raise wrong_type("out", out, "the name of a file", "give one such as runs.jsonl")
    return Path(out)


class _KeptStart(NamedTuple):
    record: RunRecord
    is_warm_up: bool  # excluded; another start follows
    note: str  # why it is a warm-up, and what is missing in the record
    interrupt: int | None  # came while its server was being stopped, to be raised once the record is kept


_COMPILED = {"cold": ["it compiled"], "unknown": ["its log does not tell whether it compiled"]}


@dataclass
class _Starts:
    """The starts of a session, and what they have left on the host."""

    session: Session
    caches: states.CompileCaches
    folders: Mapping[str | None, Path | None]  # of the checkpoints when the schedule began
    is_first: bool  # the next start is the first of the session, excluded as warm-up
    filled: set[states.Group] = field(default_factory=set)  # a start of theirs was made: their graphs are compiled

    def of(self, case: Case, report: Callable[[Progress], None]) -> Iterator[_KeptStart]:
        """The start of a case; before it a warm-up, where the session begins or graphs had to be compiled first."""
        is_warm_up = True
        while is_warm_up:
            start = self._made(case, report)
            is_warm_up, self.is_first = start.is_warm_up, False
            self.filled.add(case.group)
            yield start

    def _made(self, case: Case, report: Callable[[Progress], None]) -> _KeptStart:
        """One start in the state that the case asks for, and its record."""
        session, inputs = self.session, self.session.inputs
        launch = inputs.launch_of(case)
        began = time.monotonic()

        def tell(doing: str) -> None:
            report(Progress(None, time.monotonic() - began, doing))

        tell("preparing")
        environment = launch.variables
        environment |= self.caches.variables(case.group, case.compile_cache, environment)
        page_cache: states.PageState = "hot"  # where nothing is read
        if inputs.reads_weights(case):
            folder = self.folders.get(case.model)
            if folder is not None and not is_folder(folder):
                raise InputFileError(f"{folder}: it was there when the schedule began, and is gone; put the model back")
            page_cache = "unknown"
            if files := session.files(case):
                page_cache = states.prepare_page_cache(files, case.page_cache, drop=session.drop_caches, tell=tell)
        port = launch.choose_port()
        measured = measure_start(
            launch.command(port, model=case.model), port=port, environment=environment, health_path=session.health_path, request=session.request,
            limits=session.limits, report=report, temporary=self.caches.folder,
        )  # fmt: skip
        compiles, is_filled = inputs.compiles(case) and not is_eager(measured.log), case.group in self.filled
        logged = measured.log.compile_cache
        graphs = states.compile_state(case.compile_cache, logged, compiles=compiles, is_filled=is_filled)
        reasons = ["the first start of the session"] if self.is_first else []
        if case.compile_cache == "warm" and inputs.keeps_graphs and not is_filled:
            reasons += _COMPILED.get(graphs, [])
        facts = facts_in_words(session.facts, inputs.launch.checkpoint(case.model))
        record, problems = record_of(
            measured,
            inputs.hardware,
            model=inputs.model if inputs.launch.engine is None else inputs.configuration(case)[0],
            engine=inputs.engine(case),
            page_cache=page_cache,
            compile_cache=graphs,
            host=session.host,
            dataset=session.dataset,
            environment=launches.environment_that_matters(launch.variables),
            host_notes=facts | launches.server_versions(launch.words, launch.variables),
            is_first=self.is_first,
            step="" if reasons else case.key(inputs.launch),
        )
        notes = [", ".join(reasons)] if reasons else []
        if not reasons and case.compile_cache == "warm" and graphs == "cold":
            notes.append("it compiled again: the compile cache keeps nothing")
        if not reasons and case.page_cache in ("hot", "cold") and page_cache != case.page_cache:
            notes.append(f"page cache {page_cache}, not {case.page_cache}: the checkpoint could not be made so")
        return _KeptStart(record, bool(reasons), "; ".join([*notes, *problems]), measured.interrupt)


def record_of(
    measured: MeasuredStart,
    hardware: HardwareConfig,
    *,
    environment: Mapping[str, str],
    host_notes: Mapping[str, str],
    is_first: bool,
    step: str,
    **context: Any,
) -> tuple[RunRecord, list[str]]:
    """The record of a start, and what is missing in it, in words.

    environment: variables that change how the engine starts, without secrets. host_notes: for the reader: processor, memory, kernel ... is_first: of its session: what it
    imports may have come from storage. step: key of the case that it is the result of; empty for a warm-up. context: other arguments of ``ParsedStartup.to_run``.

    Seconds count from the start of the process; those of the first start of a session from its first line, so that calibration leaves alone the imports that may
    have come from storage. Time spent on downloading weights is taken off. Raises ConfigError when the log names a model that is not known here.
    """
    log = measured.log
    record = log.to_run(hardware, process_start_s=None if is_first else measured.first_line_s, **context)
    download_s = float(log.facts.get("download_s", 0.0))
    head_s = measured.first_line_s if record.measured_from == "first_line" else 0.0
    wall_s = max(measured.wall_s - download_s - head_s, record.wall_s or 0.0)
    token_s = None if measured.first_token_s is None else measured.first_token_s - download_s
    problems = [*filter(None, (measured.problem and f"no first token: {measured.problem}", measured.ending))]
    if token_s is not None and token_s < (wall_s + head_s) * _EARLY:
        token_s, problems = None, ["no first token: it came before the line that says ready"]
    notes = dict(host_notes)
    if measured.killed:
        notes["killed"] = f"{measured.killed} process(es) were left after the grace"
    if is_first:
        notes["start"] = "the first of its session, counted from its first line: imports may have come from storage"
    if download_s:
        notes["download"] = f"{download_s:.1f} s of downloading weights are taken off"
    engine = record.engine.replace(model=None, environment=dict(environment))
    if measured.version is not None:
        told = {"version": measured.version}
        for changes in (told, told | {"generation": log.engine_generation}):
            with suppress(ConfigError):  # no version, or one that has no such core
                engine = engine.replace(**changes)
    record = record.replace(engine=engine, host_notes=notes, step=step)
    try:
        return record.replace(wall_s=wall_s, first_token_s=token_s, stamp_resolution_s=_STAMP_S), problems
    except ConfigError as error:  # a log that counts something twice: what was measured is kept all the same
        return record.replace(wall_s=None), [*problems, f"recorded without its time to ready: {error.problem}"]
