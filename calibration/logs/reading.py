"""One start while it is being read, line by line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from calibration.logs.fields import Setting, read_fields
from calibration.logs.lines import Found, Line, Template, figure
from startup_model.engines.logtable import Failure, LogTable, Row, common_table
from startup_model.errors import one_line
from startup_model.secrets import redact_text

MAX_KEPT = 2**11
"""Characters of a line that are kept until the start is over."""
_SURE = 3  # different events after which a log is taken for one engine's
_FRESH_S = 120.0  # between the first line of a process and the banner of its server, at most
_MAX_RANKS, _MAX_PARTS, _MAX_SETTINGS, _MAX_MODELS = 1024, 64, 300, 16
_CAUSE = re.compile(r"(?:^|[\s\]])(?:[A-Za-z_][\w.]{0,120}(?:Error|Exception): |Value error, )\S")
# What parents say when a child has failed.
_NO_CAUSE = re.compile(r"nitialization failed|failed to start|[Ss]ee root cause|[Ss]ee stack trace")
_HEADING = "ValidationError: "
_DRAFTERS = (  # events that are a drafter's, once one of the others has come
    ({"load_begun", "spawn_begun", "spawned"}, {"weights_loaded", "model_loaded"}),
    ({"weights_loaded", "memory_pool_ready"}, {"memory_pool_ready"}),
)
_SNAPSHOT = re.compile(r"models--([\w.-]{1,96}?)--([\w.-]{1,96})/snapshots/")  # a model in the cache of the hub

Stamps = Mapping[str, tuple[float, str]]
"""Clock -> the last stamp seen, and how it was printed."""
NumberedLine = tuple[int, str]


@dataclass
class Times:
    """When an event came: on every clock that ran by then, and by the carrier's stamp."""

    first: dict[str, float]
    last: dict[str, float]
    first_carried: float | None
    last_carried: float | None
    first_number: int
    last_number: int


@dataclass
class Rank:
    """The figures of one process."""

    label: str
    facts: dict[str, float] = field(default_factory=dict)
    parts: dict[str, list[float]] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, value: float, time: float | None, *, labelled: bool) -> None:
        """Add a figure to those of the same process, unless the two times overlap: then another process printed it."""
        parts = self.parts.setdefault(name, [])
        end = self.ends.get(name)
        apart = labelled or not parts
        if time is not None and end is not None:
            apart = time - value >= end - (1.0 if labelled else 0.0)
        if name.endswith("_gib") or apart:
            self.facts[name] = self.facts.get(name, 0.0) + value
            if len(parts) < _MAX_PARTS:
                parts.append(value)
        elif value > self.facts.get(name, 0.0):
            self.facts[name] = value
            self.parts[name] = [value]
        if time is not None:
            self.ends[name] = max(time, self.ends.get(name, time))


@dataclass
class EngineEvidence:
    """What was read of one engine's table."""

    times: dict[str, Times] = field(default_factory=dict)
    ranks: dict[str, Rank] = field(default_factory=dict)
    variants: Counter[str] = field(default_factory=Counter)
    cores: Counter[str] = field(default_factory=Counter)
    score: int = 0  # different events


@dataclass
class Bounds:
    """First and last stamp of one clock."""

    first: float
    first_text: str
    last: float
    last_text: str
    decimals: int = 0  # digits of its stamps behind the point


@dataclass(eq=False)
class OpenStart:
    """A start while it is being read."""

    tables: Mapping[str, LogTable]  # engine -> what its log looks like
    evidence: dict[str, EngineEvidence] = field(default_factory=dict)  # by engine; "": lines that several print
    bounds: dict[str, Bounds] = field(default_factory=dict)
    carried: Bounds | None = None
    events: int = 0  # lines that say something about a start of an engine
    first_line: int = 0
    channel: str = ""
    models: list[str] = field(default_factory=list)
    engine_models: set[str] = field(default_factory=set)  # models of the engines that printed their configuration
    version: str | None = None
    platform: str | None = None
    topology: dict[str, int] = field(default_factory=dict)  # largest world size and ranks that processes gave
    flags: dict[str, Setting] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    opened: bool = False
    is_loading: bool = False
    is_up: bool = False
    up_line: int = 0
    is_ready: bool = False
    ready_times: Times | None = None
    is_over: bool = False
    failure: Failure | None = None
    failure_line: NumberedLine | None = None
    cause_line: NumberedLine | None = None
    stage: tuple[str, NumberedLine] | None = None  # status that the last line of a traceback tells, and that line
    backward: int = 0  # stamps of known lines that were before that of the one before; ``forward``: after it
    forward: int = 0
    last_event_line: int = 0
    last_line: NumberedLine | None = None
    phase_lines: dict[str, tuple[NumberedLine, NumberedLine, float]] = field(default_factory=dict)
    """Phase -> the line with its largest figure, the last line that speaks of it, that figure."""
    sure_engine: str | None = None  # the engine, once there is no doubt
    likely_engine: str | None = None  # the engine whose lines were seen most
    _latest: float = -math.inf
    _begun: dict[tuple[str, str], int] = field(default_factory=dict)
    _pending: OpenStart | None = None
    _closed: dict[str, Bounds] | None = None
    _current: tuple[Line | None, set[str]] = (None, set())

    @property
    def has_first(self) -> bool:
        """Whether any stamp was seen."""
        return bool(self.bounds) or self.carried is not None

    def see(self, line: Line, time: float | None) -> None:
        """Take the stamps of a line, whatever it says."""
        if time is not None:
            known = self.bounds.get(line.clock)
            if known is None:
                self.bounds[line.clock] = known = Bounds(time, line.stamped, time, line.stamped, line.decimals)
            if time >= known.last or time < known.last - 60.0:
                known.last, known.last_text = time, line.stamped
        if line.carried is not None:
            self.carried = self.carried or Bounds(line.carried, "", line.carried, "")
            self.carried.last = max(self.carried.last, line.carried)
        if line.channel and not self.channel:
            self.channel = one_line(redact_text(line.channel), 200)

    def elapsed(self, time: float | None, line: Line, stamps: Stamps) -> float | None:
        """Seconds since the first stamp, by the line's own clock, else by the last stamp before it."""
        clock = line.clock
        if time is None:
            clock = self.tables[self.likely_engine].clock if self.likely_engine else next(iter(stamps), "")
            time = stamps[clock][0] if clock in stamps else None
        known = self.bounds.get(clock)
        if time is not None:
            return max(0.0, time - known.first) if known is not None else 0.0
        if line.carried is not None and self.carried is not None:
            return max(0.0, line.carried - self.carried.first)
        return None

    def ends_before(self, row: Row, line: Line, number: int) -> bool:
        """Whether a line belongs to the next start already."""
        if row.mark not in ("begins", "settings") or self._current[0] is line:
            return False
        if self.is_ready or self.is_up or self.is_over or (self.failure is not None and self.failure.strength >= 2):
            return True
        begun = self._begun.get((row.event, process_of(line.rank)))
        again = begun is not None and begun != number and row.event in ("server_begun", "arguments")
        return again or (row.mark == "begins" and (self.is_loading or self.failure is not None))

    def successor(self) -> OpenStart:
        """The start that comes next, with the stamps of processes that came up after this one had ended."""
        if self._closed is not None:
            self.bounds = self._closed
        pending, self._pending = self._pending, None
        return pending or OpenStart(self.tables)

    def _open_next(self, line: Line, time: float | None) -> None:
        """A process comes up after this start has ended, or while it loads: the next start may have begun."""
        if self._is_stale(line, time):
            self._pending = None  # it was a process of this start
        if self._pending is None:
            self._pending = OpenStart(self.tables, opened=True)
            self._closed = {clock: replace(bounds) for clock, bounds in self.bounds.items()}
        self._pending.see(line, time)

    def drop_stale(self, line: Line, time: float | None) -> None:
        """Processes that came up long before the next start begins are none of its."""
        if self._is_stale(line, time):
            self._pending = self._closed = None

    def _is_stale(self, line: Line, time: float | None) -> bool:
        known = None if self._pending is None else self._pending.bounds.get(line.clock)
        return known is not None and time is not None and time - known.first > _FRESH_S

    def take(
        self, row: Row, engine: str, line: Line, time: float | None, match: Found, compiled: Template, stamps: Stamps, number: int,
    ) -> dict[str, float] | None:  # fmt: skip
        """Note what a line says; its facts, or None when it says nothing about this start."""
        if self._current[0] is not line:
            self._current = (line, set())
        if row.event in self._current[1] and row.mark != "progress" and row.event != "pool_too_small":
            return None
        if row.mark == "opens" and (self.is_ready or self.failure is not None or self.is_over or self.is_loading):
            self._open_next(line, time)
            return None
        if row.mark == "over":
            self.is_over = self.is_over or self.is_ready or self.is_up
            return None if self.is_ready else {}
        if self.is_ready:
            return None
        self._current[1].add(row.event)
        if time is not None:
            self.forward += time > self._latest
            self.backward += time < self._latest
            self._latest = time
        facts = dict(_figures(match, compiled))
        if row.mark == "progress":
            return facts
        evidence = self.evidence.setdefault(engine, EngineEvidence())
        self._mark(evidence, row, engine, line, time, stamps, number)
        self._read_words(row, match, compiled, line)
        self._keep(evidence, engine, row, line, time, facts)
        if engine and (not row.weak or evidence.score):
            self.events += 1
            self.first_line = self.first_line or number
        self.last_event_line = number
        self._set_flags(row, engine, line, number)
        if row.phase is not None or row.mark == "up" or self.last_line is None or "download_s" in facts:
            self.last_line = (number, line.message[:MAX_KEPT])
            if phase := row.phase or ("download" if "download_s" in facts else ""):
                self._show(phase, facts, self.last_line)
        settings = common_table().settings - {"done", "total"}
        return {name: value for name, value in facts.items() if name not in settings}

    def _show(self, phase: str, facts: Mapping[str, float], line: NumberedLine) -> None:
        largest = max((value for name, value in facts.items() if name.endswith("_s")), default=0.0)
        known = self.phase_lines.get(phase)
        first, figure = (line, largest) if known is None or largest >= known[2] else (known[0], known[2])
        self.phase_lines[phase] = (first, line, figure)

    def fail(self, failure: Failure, engine: str, line: Line, number: int) -> bool:
        """Note a line that speaks of failure; in a start that is ready it is none. Whether it says more than those before."""
        if (self.is_ready and not failure.even_when_ready) or (engine and self.likely_engine not in (None, engine)):
            return False
        if failure.even_when_ready:
            self.is_ready, self.ready_times = False, None
        kept = (number, line.message[:MAX_KEPT])
        if failure.names_cause:
            self._note_cause(kept)
            return False
        if failure.strength == 0:
            self.stage = (failure.status, kept)
            return False
        if engine:
            self.events += 1
            self.first_line = self.first_line or number
            self.evidence.setdefault(engine, EngineEvidence())
        if self.failure is not None and failure.strength <= self.failure.strength:
            return False
        self.failure, self.failure_line = failure, kept
        return True

    def _note_cause(self, line: NumberedLine) -> None:
        """The exception behind a traceback: the first that a line names, a message of pydantic's before its heading."""
        head = line[1][:500]
        if self.failure is None or _CAUSE.search(head) is None or _NO_CAUSE.search(head):
            return
        if self.cause_line is None or (_HEADING in self.cause_line[1] and "Value error, " in line[1]):
            self.cause_line = line

    def _set_flags(self, row: Row, engine: str, line: Line, number: int) -> None:
        if row.mark in ("begins", "opens", "settings") or row.event in ("engine_process", "resolved"):
            self.opened = True
        if row.mark in ("begins", "settings"):
            self._begun[(row.event, process_of(line.rank))] = number
        if row.event in ("load_begun", "weights_loaded", "model_loaded", "ranks_assigned"):
            self.is_loading = True
        if row.mark == "up":
            self.is_up, self.up_line = True, number
        likely = self.likely_engine
        if likely is None or engine not in ("", likely):
            return
        if (engine and row.mark == "ready") or (not engine and row.event in self.tables[likely].ready_events):
            self.is_ready = True
            self.ready_times = self.evidence[engine].times[row.event]

    def _mark(
        self, evidence: EngineEvidence, row: Row, engine: str, line: Line, time: float | None, stamps: Stamps, number: int
    ) -> None:  # fmt: skip
        """Note when an event came, and what the line tells of the engine."""
        now = {clock: stamp for clock, (stamp, _) in stamps.items()}
        if time is not None:
            now[line.clock] = time
        known = evidence.times.get(row.event)
        if known is None:
            evidence.times[row.event] = Times(now, now, line.carried, line.carried, number, number)
            evidence.score += row.mark != "opens" and not row.weak
            self._weigh()
        elif not any(row.event in events and ends & evidence.times.keys() for events, ends in _DRAFTERS):
            known.last, known.last_number = now, number
            known.last_carried = line.carried if line.carried is not None else known.last_carried
        if row.variant:
            evidence.variants[row.variant] += 1
        if row.core:
            evidence.cores[row.core] += 1
        if engine and line.rank:
            names = self.tables[engine].cores.ranks
            evidence.cores.update(core for core, beginnings in names.items() if line.rank.startswith(beginnings))

    def _weigh(self) -> None:
        scores = sorted(((found.score, name) for name, found in self.evidence.items() if name), reverse=True)
        self.likely_engine = scores[0][1] if scores and scores[0][0] else None
        is_unsure = not scores or scores[0][0] < _SURE or (len(scores) > 1 and scores[1][0] * 2 > scores[0][0])
        self.sure_engine = None if is_unsure else scores[0][1]

    def _read_words(self, row: Row, match: Found, compiled: Template, line: Line) -> None:
        for name in compiled.words:
            word = match.values[name].rstrip(".)")
            if name == "engine_version" and word[:1].isdigit():
                self.version = self.version or one_line(redact_text(word), 60)
            elif name == "platform" and word:
                self.platform = self.platform or one_line(word, 40)
            elif name == "model" and word:
                self._note_model(word)
        if row.mark == "settings":
            found = read_fields(line.message[match.end - (1 if compiled.literal.endswith("{") else 0) :])
            is_own = row.event == "engine_started"
            target = self.settings if is_own else self.flags
            for key, value in found.items():
                if len(target) < _MAX_SETTINGS:
                    target.setdefault(key, value)
            if is_own and isinstance(found.get("model"), str):
                self.engine_models.add(str(found["model"]))
            model = next(filter(None, map(found.get, ("model", "model_path", "model_id", "model_tag"))), None)
            if isinstance(model, str):
                self._note_model(model)

    def _note_model(self, name: str) -> None:
        snapshot = _SNAPSHOT.search(name)
        name = f"{snapshot[1]}/{snapshot[2]}" if snapshot else one_line(redact_text(name), 300)
        if name not in self.models and len(self.models) < _MAX_MODELS:
            self.models.append(name)

    def _keep(
        self, evidence: EngineEvidence, engine: str, row: Row, line: Line, time: float | None, facts: dict[str, float]
    ) -> None:
        if row.event == "blocks_overridden" and facts.get("overridden_blocks") == 0:
            facts.clear()  # the trial allocation of the graph memory estimate, not the pool
        key = process_of(line.rank)
        is_full = key not in evidence.ranks and len(evidence.ranks) >= _MAX_RANKS
        if is_full or (not facts and not (line.rank and row.phase is not None)):
            return
        rank = evidence.ranks.setdefault(key, Rank(line.rank))
        rank.label = line.rank or rank.label
        common = common_table()
        for name, value in facts.items():
            if name in common.additive:
                labelled = bool(line.rank) or not engine or self.tables[engine].names_every_rank
                rank.add(name, value, time, labelled=labelled)
            elif name in ("tp_rank", "pp_rank", "dp_rank", "world_size"):
                self.topology[name] = max(int(value), self.topology.get(name, 0))
            elif name in common.settings and not name.endswith("_gib"):
                self.settings.setdefault(name, int(value))
            elif value > rank.facts.get(name, -math.inf):
                rank.facts[name] = value


def _figures(match: Found, compiled: Template) -> Iterator[tuple[str, float]]:
    for name in compiled.facts:
        value = figure(name, match.values[name], match.values.get(f"{name}_unit"))
        if value is not None:
            yield name, value


def process_of(rank: str) -> str:
    """What tells processes apart: the pid (and address) where there is one, since the name may change while a worker comes up."""
    pids = [part for part in rank.split() if part.startswith(("pid=", "ip="))]
    return " ".join(pids) or rank
