"""The starts of one step: the state is made, the start measured, and told apart from those that only prepare it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from calibration.host import HostFacts, facts_in_words
from calibration.logs.compare import is_eager
from calibration.measure.environment import environment_that_matters
from calibration.measure.record import Circumstances, record_of
from calibration.measure.session import Session
from calibration.measure.starts import Measured, Progress, measure_start
from calibration.measure.states import CompileCaches, CompileState, PageState, compile_state, prepare_page_cache
from calibration.measure.steps import (
    Basis,
    Group,
    Step,
    configuration,
    engine_of,
    keeps_graphs,
    launch_of_step,
    reads_weights,
    runs_torch_compile,
)
from calibration.measure.versions import server_versions
from calibration.runs.record import RunRecord
from startup_model.errors import InputFileError
from startup_model.files import is_folder

__all__ = ["Memory", "Start", "starts_of"]


@dataclass
class Memory:
    """What the starts of a session have left on the host."""

    facts: HostFacts
    """What is known of the host, looked up once."""
    caches: CompileCaches
    """The compile caches of the plan."""
    is_first: bool
    """Whether the next start is the first of the session, to be kept apart."""
    filled: set[Group] = field(default_factory=set)
    """Groups of which a start was made: their graphs are compiled."""
    folders: Mapping[str | None, Path | None] = field(default_factory=dict)
    """Where the checkpoint of each model was when the plan began."""


class Start(NamedTuple):
    """A start that was measured."""

    record: RunRecord
    is_apart: bool
    """Whether it is kept apart from the step; another start follows."""
    note: str
    """Why it is kept apart, and what is missing in the record."""
    interrupt: int | None = None
    """Signal that came while its server was being stopped, to be raised once the record is kept."""


class _Made(NamedTuple):
    """A start, and the state in which it was made."""

    measured: Measured
    page_cache: PageState
    compile_cache: CompileState


def starts_of(session: Session, step: Step, memory: Memory, report: Callable[[Progress], None]) -> Iterator[Start]:
    """The start of a step; before it one that is kept apart, where the session begins or graphs had to be compiled first."""
    made = _measure(session, step, memory, report)
    reasons = _reasons(session, step, memory, made)
    yield _kept(session, step, memory, made, reasons)
    if reasons:
        memory.is_first = False
        memory.filled.add(step.group)
        yield _kept(session, step, memory, _measure(session, step, memory, report), [])
    memory.filled.add(step.group)


def _reasons(session: Session, step: Step, memory: Memory, made: _Made) -> list[str]:
    """Why a start is kept apart from its step; nothing: it is the one that was asked for."""
    reasons = ["the first start of the session"] if memory.is_first else []
    if step.compile_cache == "warm" and keeps_graphs(session.launch) and step.group not in memory.filled:
        if made.compile_cache == "cold":
            reasons.append("it compiled")
        elif made.compile_cache == "unknown":
            reasons.append("its log does not tell whether it compiled")
    return reasons


def _measure(session: Session, step: Step, memory: Memory, report: Callable[[Progress], None]) -> _Made:
    """One start in the state that the step asks for."""
    launch = launch_of_step(session.launch, step)
    began = time.monotonic()

    def tell(doing: str) -> None:
        report(Progress(None, time.monotonic() - began, doing))

    tell("preparing")
    environment = launch.variables
    environment |= memory.caches.variables(step, environment)
    page_cache: PageState = "hot"  # where nothing is read
    if reads_weights(session.launch, step):
        folder = memory.folders.get(step.model)
        if folder is not None and not is_folder(folder):
            raise InputFileError(f"{folder}: it was there when the plan began, and is gone; put the model back")
        files = session.files(step)
        page_cache = (
            prepare_page_cache(files, step.page_cache, drop=session.drop_caches, tell=tell) if files else "unknown"
        )
    port = launch.choose_port()
    measured = measure_start(
        launch.command(port, model=step.model),
        port=port,
        environment=environment,
        health_path=session.health_path,
        request=session.request,
        limits=session.limits,
        report=report,
        temporary=memory.caches.folder,
    )
    basis = Basis(session.launch, session.hardware, session.model)
    state = compile_state(
        step.compile_cache,
        measured.log.compile_cache,
        compiles=runs_torch_compile(basis, step) and not is_eager(measured.log),
        is_filled=step.group in memory.filled,
    )
    return _Made(measured, page_cache, state)


def _kept(session: Session, step: Step, memory: Memory, made: _Made, reasons: list[str]) -> Start:
    """The record of a start; ``reasons``: why it is kept apart."""
    launch = launch_of_step(session.launch, step)
    model = session.model
    if session.launch.engine is not None:
        model, _ = configuration(session.launch, step, session.model)
    record, problems = record_of(
        made.measured,
        Circumstances(
            hardware=session.hardware,
            model=model,
            engine=engine_of(session.launch, step),
            page_cache=made.page_cache,
            compile_cache=made.compile_cache,
            environment=environment_that_matters(launch.variables),
            surroundings=facts_in_words(memory.facts, session.launch.checkpoint(step.model))
            | server_versions(launch.words, launch.variables),
            is_first=memory.is_first,
            host=session.host,
            dataset=session.dataset,
            step="" if reasons else step.key(session.launch),
        ),
    )
    notes = [", ".join(reasons)] if reasons else []
    if not reasons and step.compile_cache == "warm" and made.compile_cache == "cold":
        notes.append("it compiled again: the compile cache keeps nothing")
    if not reasons and step.page_cache in ("hot", "cold") and made.page_cache != step.page_cache:
        notes.append(f"page cache {made.page_cache}, not {step.page_cache}: the checkpoint could not be made so")
    return Start(record, bool(reasons), "; ".join([*notes, *problems]), made.measured.interrupt)
