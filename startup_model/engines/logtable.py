"""What the log of an engine looks like: its lines, failures and milestones, and what helps. Each engine keeps it as ``log.toml`` in its folder.

A file is read when a log is. In it a row is ``[event, text, {further fields}]``, a failure ``[text, status, strength, {further fields}]``.
"""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from startup_model.engines import DEFAULT_ENGINE, all_engines
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.files import package_text
from startup_model.frozen import FrozenModel

Mark = Literal["", "opens", "begins", "settings", "up", "ready", "over", "progress"]
"""What a line means for the start as a whole. opens: printed by every process as it comes up, also by the first one. begins: printed once a
start. settings: the rest of the line is the engine's configuration. up: the engine can serve, its front end may not. ready: requests are
answered. over: the server is shutting down. progress: how far a phase is."""
Status = Literal["profiling_failed", "kv_cache_too_small", "oom", "load_failed", "capture_failed", "crashed"]
_MAX_TEXT = 10**6


class Row(NamedTuple):
    """One kind of line."""

    event: str
    """What has happened; several wordings share a name."""
    text: str
    """The line, see ``calibration.logs.lines.template``."""
    phase: str | None = None
    """The phase that this line ends, or reports on."""
    mark: Mark = ""
    versions: str = ""
    """Versions that print it, as far as known; for the reader, not for matching."""
    variant: str = ""
    """Flavour of the engine that alone prints this line."""
    core: str = ""
    """Core of the engine that alone prints this line."""
    weak: bool = False
    """Other programs may print it as well: alone it does not make a start."""


class Failure(NamedTuple):
    """A line that says why a start failed."""

    text: str
    status: Status
    """``crashed`` where the line does not say in which phase."""
    strength: Annotated[int, Field(ge=0, le=9)]
    """Of several such lines the strongest counts, of equals the first. 0: only a hint at the phase (a line of a traceback); 1: harmless in a
    start that goes on; from 2 on the start is over."""
    names_cause: bool = False
    """The line may name the exception that a traceback or a general line before it speaks of."""
    even_when_ready: bool = False
    """It counts after the line that says ready, too: the front end binds its port late."""


class Milestone(NamedTuple):
    """A point of the start that a line marks. The phases since the milestone before it, by the order of the phases, lie in the stretch between
    the two: their printed seconds are taken off before the rest is given away."""

    event: str
    ends: str | None = None
    """The last phase that it ends; None: the phases of this stretch go on."""
    until: str | None = None
    """In the place of ``ends``: it ends all phases before this one."""
    also: tuple[str, ...] = ()
    """Phases that lie in this stretch, against their order."""
    rest: tuple[str, ...] | None = None
    """Who gets what is left: one phase, or several together; nobody: it stays unattributed. Left out: the phase that it ends."""
    less: str = ""
    """Fact that lies in this stretch, but is counted with a later phase."""
    needs: str = ""
    """Event without which this milestone means nothing."""
    optional: bool = False
    """Not printed by every flavour: when it is absent, nothing is left for its phases either."""
    instead: str = ""
    """Event that marks the point in its place, where the log has it and the engine is of version ``instead_since`` or later."""
    instead_since: str = ""


class Figure(NamedTuple):
    """A figure that follows from others: their sum or product. It is there as soon as one of them is (of a product, all)."""

    fact: str = ""
    phase: str = ""
    sum: tuple[str, ...] = ()
    product: tuple[str, ...] = ()
    less: tuple[str, ...] = ()
    """Taken off the sum, where they are there."""
    needs: tuple[str, ...] = ()
    """One of these has to be there as well."""
    since: str = ""
    """First version for which it holds."""
    moved: bool = False
    """The figures that it is made of are dropped."""
    printed: bool = False
    """It counts as printed by the log, not as derived."""
    if_absent: bool = False
    """Only where the log does not give it."""
    unless_event: str = ""
    """Not in a log with this event."""


class Remedy(NamedTuple):
    """Something to do."""

    action: str
    price: str
    """What it costs or presupposes."""
    engine: str = ""
    """Engine that has the flag; empty: any."""
    core: str = ""
    several_ranks: bool = False
    """Only where more than one rank was started."""


class Bound(NamedTuple):
    """What a start may spend its time on."""

    phases: tuple[str, ...]
    summary: str
    detail: Literal["", "bandwidth", "compile_cache", "longest_gap"] = ""


class Cores(FrozenModel):
    """Which core of the engine runs: what most lines and names of processes say, else the version."""

    before: Mapping[str, str] = {}
    """Core -> first version that does not run it as a matter of course."""
    since: Mapping[str, str] = {}
    """Core -> first version that runs it always."""
    ranks: Mapping[str, tuple[str, ...]] = {}
    """Core -> beginnings of the names of its processes."""


class RankNames(FrozenModel):
    """How the processes of an engine name themselves, where that tells how many there are: beginnings of names."""

    server: tuple[str, ...] = ()
    engine: str = ""
    """Alone, without any of the workers, it is one rank."""
    workers: tuple[str, ...] = ()
    beside_driver: str = ""
    """Workers beside a rank that has no name."""


def _listed(*names: str) -> BeforeValidator:
    """``["event", "text", {...}]`` as one table, by the names of what stands in the list."""

    def table(data: Any) -> Any:
        if not isinstance(data, list):
            return data
        further = data[len(names) :]
        more = further[0] if len(further) == 1 and isinstance(further[0], dict) else {}
        return dict(zip(names, data, strict=False)) | more

    return BeforeValidator(table)


_Rows = Annotated[tuple[Annotated[Row, _listed("event", "text")], ...], Field(max_length=10_000)]


class _Table(FrozenModel):
    failures: Annotated[tuple[Annotated[Failure, _listed("text", "status", "strength")], ...], Field(max_length=10_000)] = ()  # fmt: skip
    remedies: Mapping[str, Remedy] = {}
    advice: Mapping[str, tuple[str, ...]] = {}
    """Finding -> names of its remedies, those of the engine and the common ones, the first one first; left out: the common advice."""


class CommonTable(_Table):
    """What the logs of all engines have in common."""

    rows: _Rows = ()
    additive: frozenset[str] = frozenset()
    """Facts that one process may print several times, for parts of one start: they add up, and the parts are kept under ``<name>_parts_s``."""
    settings: frozenset[str] = frozenset()
    """Figures of log lines that are settings or parts of something, no facts of their own."""
    inside: Mapping[str, str] = {}
    """Fact -> phase in whose stretch it lies, without being of its time."""
    leaves_out: Mapping[str, tuple[str, ...]] = {}
    """Kind of start (eager, dummy) -> phases that it does not have."""
    ends_with: Mapping[str, str] = {}
    """Phase -> the later one that it ends with, as far as most logs show."""
    statuses: Mapping[Status, str] = {}
    """Status of a failed start -> what it means."""
    bounds: Mapping[str, Bound] = {}
    alike: tuple[frozenset[str], ...] = ()
    """Phases that lines may join without holding what is bound by different things."""


class LogTable(_Table):
    """All that is known of the log of one engine."""

    name: str
    clock: str
    """Layout of its stamps, one of ``calibration.logs.lines.LAYOUTS``; lines without one are timed by what carries them."""
    rows: _Rows
    milestones: Annotated[tuple[Milestone, ...], Field(max_length=100)] = ()
    seconds: tuple[Figure, ...] = ()
    """Seconds of phases as lines print them; of several figures for one phase the first that is there counts."""
    floors: tuple[Figure, ...] = ()
    """Seconds that a phase has at least."""
    figures: tuple[Figure, ...] = ()
    """Facts that follow from others."""
    ready_events: frozenset[str] = frozenset()
    """Common rows that mean ready here as well."""
    counts_from_process_start: bool = False
    """Its stamps count from the start of the process."""
    names_every_rank: bool = True
    """A line without the name of a process is of the one process that there is."""
    complete_ranks: bool = False
    """Its processes name every degree of parallelism above 1."""
    complete_arguments: bool = False
    """It prints every argument that was given: what is not there has its default."""
    loading_from_stamps: frozenset[str] = frozenset()
    """Flavours that print no figure for loading the model, only lines when it begins and ends."""
    cores: Cores = Cores()
    ranks: RankNames = RankNames()
    advice_not_for: frozenset[str] = frozenset()
    """Flavours that do not have the flags of the remedies."""

    @property
    def variants(self) -> frozenset[str]:
        """Flavours of the engine, by the names that their starts have."""
        return frozenset(row.variant for row in self.rows if row.variant)

    def phases(self) -> frozenset[str]:
        """All phases that it speaks of."""
        named = [row.phase for row in self.rows] + [figure.phase for figure in (*self.seconds, *self.floors)]
        for milestone in self.milestones:
            named += [milestone.ends, milestone.until, *milestone.also, *(milestone.rest or ())]
        return frozenset(filter(None, named))


@lru_cache(maxsize=64)
def read_table(name: str, text: str) -> LogTable:
    """The table of an engine from its ``log.toml``. Raises ConfigError for what is no such table."""
    table = LogTable.model_validate_json(json.dumps({"name": name} | _toml(name, text)))
    own = {key: remedy._replace(engine=name) for key, remedy in table.remedies.items()}
    table = table.model_copy(update={"remedies": own})
    remedies = common_table().remedies.keys() | table.remedies.keys()
    if absent := [entry for names in table.advice.values() for entry in names if entry not in remedies]:
        raise UnknownNameError(f"{name}/log.toml: advice", absent[0], remedies)
    return table


@lru_cache(maxsize=1)
def common_table() -> CommonTable:
    """The lines and findings that all engines share."""
    text = package_text("log.toml", "startup_model.engines")
    return CommonTable.model_validate_json(json.dumps(_toml("engines", text)))


def _toml(name: str, text: str) -> dict[str, Any]:
    if len(text) > _MAX_TEXT:
        problem = f"must be at most {_MAX_TEXT} characters"
        raise ConfigError(f"{name}/log.toml", len(text), problem, "keep to the lines of a start")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}/log.toml", str(error), "must be TOML", "correct it") from None


def log_tables() -> Mapping[str, LogTable]:
    """Engine -> table of its log, for all engines that have one; of two wordings for one line that of the former engine counts.

    A table that cannot be read is left out, with a warning: it may be of another package.
    """
    tables: dict[str, LogTable] = {}
    for engine in sorted(all_engines().values(), key=lambda one: (one.name != DEFAULT_ENGINE, not one.is_predicted)):
        try:
            if (table := engine.log) is not None:
                tables[engine.name] = table
        except ConfigError as error:
            warnings.warn(f"{error} (its logs are left out)", RuntimeWarning, stacklevel=2)
    return tables


def table_of(name: str) -> LogTable | None:
    """The table for a start's engine, which may be a flavour of one."""
    return next((table for table in log_tables().values() if name == table.name or name in table.variants), None)
