"""What the tables of engines are made of: rows of line templates, failures, and the milestones between which time is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from calibration.runs.record import RunStatus
from startup_model.phases import Phase

__all__ = ["Engine", "Event", "Failure", "Mark", "Milestone", "Row"]

Mark = Literal["", "opens", "begins", "settings", "up", "ready", "over", "progress"]
"""What a line means for the start as a whole. opens: printed by every process as it comes up, also by the first one. begins: printed once a
start. settings: the rest of the line is the engine's configuration. up: the engine can serve, its front end may not. ready: requests are
answered. over: the server is shutting down. progress: how far a phase is."""


class Row(NamedTuple):
    """One kind of line."""

    event: str
    """What has happened; several wordings share a name."""
    text: str
    """The line, see ``patterns``."""
    phase: Phase | None = None
    """The phase that this line ends, or reports on."""
    versions: str = ""
    """Versions that print it, as far as known; for the reader, not for matching."""
    mark: Mark = ""
    variant: str = ""
    """Flavour of the engine that alone prints this line: vllm-ascend, vllm-tpu."""
    generation: str = ""
    """Generation of the engine that alone prints this line."""
    is_weak: bool = False
    """Other programs may print it as well: alone it does not make a start."""


class Failure(NamedTuple):
    """A line that says why a start failed."""

    text: str
    status: RunStatus
    """``crashed`` where the line does not say in which phase."""
    strength: int
    """Of several such lines the strongest counts, of equals the first. 0: only a hint at the phase (a line of a traceback); 1: harmless in a
    start that goes on; from 2 on the start is over."""
    names_cause: bool = False
    """The line may name the exception that a traceback or a general line before it speaks of."""
    even_when_ready: bool = False
    """It counts after the line that says ready, too: the front end binds its port late."""


class Milestone(NamedTuple):
    """A point of the start that a line marks, and what the time since the milestone before it was spent on."""

    event: str
    inside: tuple[Phase, ...] = ()
    """Phases that lie between: their printed seconds are taken off before the rest is given away."""
    rest: tuple[Phase, ...] = ()
    """Who gets what is left: one phase, or several together; nobody: it stays unattributed."""
    less: str = ""
    """Fact that lies in this stretch, but is counted with a later phase."""
    needs: str = ""
    """Event without which this milestone means nothing."""
    optional: bool = False
    """Not printed by every flavour: when it is absent, its phases are not looked for either."""


class Engine(NamedTuple):
    """All that is known of the log of one engine."""

    name: str
    clock: str
    """Layout of its stamps, see ``lines``."""
    rows: tuple[Row, ...]
    milestones: tuple[Milestone, ...]
    failures: tuple[Failure, ...] = ()
    printed: Mapping[str, Phase] = {}
    """Fact -> phase that it is the duration of."""
    ready_events: frozenset[str] = frozenset()
    """Rows of other tables that mean ready here as well."""
    clock_from_process_start: bool = False
    """Its stamps count from the start of the process."""
    loading_from_stamps: frozenset[str] = frozenset()
    """Flavours that print no figure for loading the model, only lines when it begins and ends."""


class Event(NamedTuple):
    """A line that was recognised."""

    name: str
    phase: Phase | None
    facts: Mapping[str, float]
    line_number: int
    """In what was fed so far, from 1."""
    elapsed_s: float | None
    """Since the first stamp of this start; None without stamps."""
    rank: str
    start: int
    """Which start of the log, from 0."""
    mark: Mark
    text: str
    """The line as logged, shortened."""
