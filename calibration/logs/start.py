"""One start as it is read, line by line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from calibration.logs.events import Failure, Row
from calibration.logs.fields import Setting, read_fields
from calibration.logs.lines import Line
from calibration.logs.patterns import Found, Template, figure
from calibration.logs.secrets import without_secrets
from calibration.logs.tables import ADDITIVE, ENGINES, SETTING_FACTS
from calibration.runs.record import RunStatus
from startup_model.errors import one_line

__all__ = ["LONGEST_KEPT", "Account", "Start", "Times"]

_SURE = 3
"""Different events after which a log is taken for one engine's."""
_FRESH_S = 120.0
"""Seconds between the first line of a process and the banner of its server, at most."""
LONGEST_KEPT = 2**11
"""Characters of a line that are kept until the start is over."""
_MOST_RANKS = 1024
_MOST_PARTS = 64
_MOST_SETTINGS = 300
_MOST_MODELS = 16
_CAUSE = re.compile(r"(?:^|[\s\]])(?:[A-Za-z_][\w.]{0,120}(?:Error|Exception): |Value error, )\S")
_NO_CAUSE = re.compile(r"nitialization failed|failed to start|[Ss]ee root cause|[Ss]ee stack trace")
"""What parents say when a child has failed."""
_ONCE = frozenset({"load_begun", "spawn_begun", "spawned"})
_LOADED = frozenset({"weights_loaded", "model_loaded"})
"""When the model is loaded, those events are a drafter's."""
_BEFORE_POOL = frozenset({"weights_loaded", "memory_pool_ready"})
"""When the memory pool is ready, these are a drafter's."""
_HEADING = "ValidationError: "
_SNAPSHOT = re.compile(r"models--([\w.-]{1,96}?)--([\w.-]{1,96})/snapshots/")
"""A model's folder in the cache of the hub."""

Stamps = Mapping[str, tuple[float, str]]
"""Clock -> the last stamp seen, and how it was printed."""


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
class _Rank:
    """The figures of one process."""

    label: str
    facts: dict[str, float] = field(default_factory=dict)
    parts: dict[str, list[float]] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)


@dataclass
class Account:
    """What was read of one engine's table."""

    times: dict[str, Times] = field(default_factory=dict)
    ranks: dict[str, _Rank] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    score: int = 0
    """Different events."""


@dataclass
class _Bounds:
    """First and last stamp of one clock."""

    first: float
    first_text: str
    last: float
    last_text: str
    decimals: int = 0
    """Digits of its stamps behind the point."""


class Start:
    """A start while it is being read."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.bounds: dict[str, _Bounds] = {}
        self.carried: _Bounds | None = None
        self.events = 0
        """Lines that say something about a start of an engine."""
        self.first_line = 0
        self.channel = ""
        self.models: list[str] = []
        self.engine_models: set[str] = set()
        """Models of the engines that printed their configuration."""
        self.version: str | None = None
        self.topology: dict[str, int] = {}
        """Largest world size and ranks that processes gave."""
        self.flags: dict[str, Setting] = {}
        self.settings: dict[str, Setting] = {}
        self.is_ready = False
        self.ready_times: Times | None = None
        self.is_up = False
        self.up_line = 0
        self.is_loading = False
        self.is_over = False
        self.opened = False
        self.failure: Failure | None = None
        self.failure_line: tuple[int, str] | None = None
        self.cause_line: tuple[int, str] | None = None
        self.backward = self.forward = 0
        """Stamps of known lines that were before, and after, that of the one before."""
        self._latest = -math.inf
        self.stage: tuple[RunStatus, tuple[int, str]] | None = None
        """Phase that the last line of a traceback tells, and that line."""
        self.last_event_line = 0
        self.last_line: tuple[int, str] | None = None
        self.phase_lines: dict[str, tuple[tuple[int, str], tuple[int, str], float]] = {}
        """Phase -> the line with its largest figure, the last line that speaks of it, that figure."""
        self.platform: str | None = None
        self._sure: str | None = None
        self._likely: str | None = None
        self._begun: dict[tuple[str, str], int] = {}
        self._pending: Start | None = None
        self._closed: dict[str, _Bounds] | None = None
        self._current: tuple[Line | None, set[str]] = (None, set())

    # --- reading --------------------------------------------------------------------------------------------------------

    @property
    def has_first(self) -> bool:
        """Whether any stamp was seen."""
        return bool(self.bounds) or self.carried is not None

    def sure_engine(self) -> str | None:
        """The engine, once there is no doubt."""
        return self._sure

    def likely_engine(self) -> str | None:
        """The engine whose lines were seen most."""
        return self._likely

    def _weigh(self) -> None:
        """Look at the scores again: another event was seen."""
        scores = sorted(((account.score, name) for name, account in self.accounts.items() if name), reverse=True)
        self._likely = scores[0][1] if scores and scores[0][0] else None
        unsure = not scores or scores[0][0] < _SURE or (len(scores) > 1 and scores[1][0] * 2 > scores[0][0])
        self._sure = None if unsure else scores[0][1]

    def see(self, line: Line, time: float | None) -> None:
        """Take the stamps of a line, whatever it says."""
        if time is not None:
            known = self.bounds.get(line.clock)
            if known is None:
                self.bounds[line.clock] = known = _Bounds(time, line.stamped, time, line.stamped, line.decimals)
            if time >= known.last or time < known.last - 60.0:
                known.last, known.last_text = time, line.stamped
        if line.carried is not None:
            if self.carried is None:
                self.carried = _Bounds(line.carried, "", line.carried, "")
            else:
                self.carried.last = max(self.carried.last, line.carried)
        if line.channel and not self.channel:
            self.channel = one_line(without_secrets(line.channel), 200)

    def elapsed(self, time: float | None, line: Line, stamps: Stamps) -> float | None:
        """Seconds since the first stamp, by the line's own clock, else by the last stamp before it."""
        clock = line.clock
        if time is None:
            engine = self.likely_engine()
            clock = ENGINES[engine].clock if engine else next(iter(stamps), "")
            time = stamps[clock][0] if clock in stamps else None
        known = self.bounds.get(clock)
        if time is not None:
            return max(0.0, time - known.first) if known is not None else 0.0
        if line.carried is not None and self.carried is not None:
            return max(0.0, line.carried - self.carried.first)
        return None

    def ends_before(self, row: Row, line: Line, number: int) -> bool:
        """Whether a line belongs to the next start already."""
        if row.mark not in ("begins", "settings"):
            return False
        ended = self.is_ready or self.is_up or self.is_over or (self.failure is not None and self.failure.strength >= 2)
        if ended:
            return self._current[0] is not line
        begun = self._begun.get((row.event, _process(line.rank)))
        again = begun is not None and begun != number and row.event in ("server_begun", "arguments")
        hurt = self.failure is not None
        if row.mark == "begins" or again:
            return (self.is_loading or hurt or again) and self._current[0] is not line
        return False

    def successor(self) -> Start:
        """The start that comes next, with the stamps of processes that came up after this one had ended."""
        if self._closed is not None:
            self.bounds = self._closed
        pending, self._pending = self._pending, None
        return pending or Start()

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
        facts = dict(self._figures(match, compiled))
        if row.mark == "progress":
            return facts
        account = self.accounts.setdefault(engine, Account())
        self._mark(account, row, engine, line, time, stamps, number)
        self._words(row, match, compiled, line)
        self._keep(account, engine, row, line, time, facts)
        if engine and (not row.is_weak or account.score):
            self.events += 1
            self.first_line = self.first_line or number
        self.last_event_line = number
        self._flags(row, engine, line, number)
        if row.phase is not None or row.mark == "up" or self.last_line is None or "download_s" in facts:
            self.last_line = (number, line.message[:LONGEST_KEPT])
            if row.phase is not None:
                self._show(row.phase.value, facts)
            elif "download_s" in facts:
                self._show("download", facts)
        return {name: value for name, value in facts.items() if name not in SETTING_FACTS or name in ("done", "total")}

    def _show(self, phase: str, facts: Mapping[str, float]) -> None:
        """Keep the line that was just read as one that shows a phase."""
        assert self.last_line is not None  # noqa: S101  it is the line that was just read
        figure = max((value for name, value in facts.items() if name.endswith("_s")), default=0.0)
        known = self.phase_lines.get(phase)
        heaviest = known is None or figure >= known[2]
        self.phase_lines[phase] = (
            self.last_line if known is None or heaviest else known[0],
            self.last_line,
            figure if known is None or heaviest else known[2],
        )

    def fail(self, failure: Failure, engine: str, line: Line, number: int) -> bool:
        """Note a line that speaks of failure; in a start that is ready it is none. Whether it says more than those before."""
        if self.is_ready and not failure.even_when_ready:
            return False
        if engine and self.likely_engine() not in (None, engine):
            return False
        if failure.even_when_ready:
            self.is_ready, self.ready_times = False, None
        if failure.names_cause:
            self._cause(line, number)
            return False
        if failure.strength == 0:
            self.stage = (failure.status, (number, line.message[:LONGEST_KEPT]))
            return False
        if engine:
            self.events += 1
            self.first_line = self.first_line or number
            self.accounts.setdefault(engine, Account())
        if self.failure is not None and failure.strength <= self.failure.strength:
            return False
        self.failure = failure
        self.failure_line = (number, line.message[:LONGEST_KEPT])
        return True

    def _cause(self, line: Line, number: int) -> None:
        """The exception behind a traceback: the first that a line names, a message of pydantic's before its heading."""
        if self.failure is None or _CAUSE.search(line.message[:500]) is None or _NO_CAUSE.search(line.message[:500]):
            return
        known = self.cause_line
        if known is None or (_HEADING in known[1] and "Value error, " in line.message):
            self.cause_line = (number, line.message[:LONGEST_KEPT])

    def _flags(self, row: Row, engine: str, line: Line, number: int) -> None:
        if row.mark in ("begins", "opens", "settings") or row.event in ("engine_process", "resolved"):
            self.opened = True
        if row.mark in ("begins", "settings"):
            self._begun[(row.event, _process(line.rank))] = number
        if row.event in ("load_begun", "weights_loaded", "model_loaded", "ranks_assigned"):
            self.is_loading = True
        if row.mark == "up":
            self.is_up, self.up_line = True, number
        if row.mark == "ready" or row.event == "triton_ready":
            likely = self.likely_engine()
            owner = engine or likely
            if owner is not None and owner == likely and (engine or row.event in ENGINES[owner].ready_events):
                self.is_ready = True
                self.ready_times = self.accounts[engine].times[row.event]

    def _open_next(self, line: Line, time: float | None) -> None:
        """A process comes up after this start has ended, or while it loads: the next start may have begun."""
        known = None if self._pending is None else self._pending.bounds.get(line.clock)
        if known is not None and time is not None and time - known.first > _FRESH_S:
            self._pending = None  # it was a process of this start
        if self._pending is None:
            self._pending = Start()
            self._pending.opened = True
            self._closed = {clock: replace(b) for clock, b in self.bounds.items()}
        self._pending.see(line, time)

    def forget_stale(self, line: Line, time: float | None) -> None:
        """Processes that came up long before the next start begins are none of its."""
        known = None if self._pending is None else self._pending.bounds.get(line.clock)
        if known is not None and time is not None and time - known.first > _FRESH_S:
            self._pending = self._closed = None

    def _figures(self, match: Found, compiled: Template) -> Iterator[tuple[str, float]]:
        for name in compiled.facts:
            value = figure(name, match.values[name], match.values.get(f"{name}_unit"))
            if value is not None:
                yield name, value

    def _mark(
        self, account: Account, row: Row, engine: str, line: Line, time: float | None, stamps: Stamps, number: int
    ) -> None:
        if time is not None and len(stamps) == 1:
            now = {line.clock: time}
        else:
            now = {clock: stamp for clock, (stamp, _) in stamps.items()}
            if time is not None:
                now[line.clock] = time
        known = account.times.get(row.event)
        if known is None:
            account.times[row.event] = Times(now, now, line.carried, line.carried, number, number)
            account.score += row.mark != "opens" and not row.is_weak
            self._weigh()
        elif not (row.event in _ONCE and _LOADED & account.times.keys()) and not (
            row.event in _BEFORE_POOL and "memory_pool_ready" in account.times
        ):
            known.last, known.last_number = now, number
            known.last_carried = line.carried if line.carried is not None else known.last_carried
        if row.variant:
            account.variants[row.variant] = account.variants.get(row.variant, 0) + 1
        if row.generation:
            account.generations[row.generation] = account.generations.get(row.generation, 0) + 1
        if line.rank.startswith(("EngineCore", "Worker", "VllmWorker rank", "DPEngineCore")):
            account.generations["v1"] = account.generations.get("v1", 0) + 1
        elif line.rank.startswith("VllmWorkerProcess"):
            account.generations["v0"] = account.generations.get("v0", 0) + 1

    def _words(self, row: Row, match: Found, compiled: Template, line: Line) -> None:
        for name in compiled.words:
            word = match.values[name].rstrip(".)")
            if name == "engine_version" and word[:1].isdigit():
                self.version = self.version or one_line(without_secrets(word), 60)
            elif name == "platform" and word:
                self.platform = self.platform or one_line(word, 40)
            elif name == "model" and word:
                self._model(word)
        if row.mark == "settings":
            found = read_fields(line.message[match.end - (1 if compiled.literal.endswith("{") else 0) :])
            target = self.settings if row.event == "engine_started" else self.flags
            for key, value in found.items():
                if len(target) < _MOST_SETTINGS:
                    target.setdefault(key, value)
            if row.event == "engine_started" and isinstance(found.get("model"), str):
                self.engine_models.add(str(found["model"]))
            model = found.get("model") or found.get("model_path") or found.get("model_id") or found.get("model_tag")
            if isinstance(model, str):
                self._model(model)

    def _model(self, name: str) -> None:
        snapshot = _SNAPSHOT.search(name)
        name = f"{snapshot[1]}/{snapshot[2]}" if snapshot else one_line(without_secrets(name), 300)
        if name not in self.models and len(self.models) < _MOST_MODELS:
            self.models.append(name)

    def _keep(
        self, account: Account, engine: str, row: Row, line: Line, time: float | None, facts: dict[str, float]
    ) -> None:
        if row.event == "blocks_overridden" and facts.get("overridden_blocks") == 0:
            facts.clear()  # the trial allocation of the graph memory estimate, not the pool
        key = _process(line.rank)
        if key not in account.ranks and len(account.ranks) >= _MOST_RANKS:
            return
        if not facts and not (line.rank and row.phase is not None):
            return
        rank = account.ranks.setdefault(key, _Rank(line.rank))
        if line.rank:
            rank.label = line.rank
        for name, value in facts.items():
            if name in ADDITIVE:
                self._add(
                    rank, name, value, time, labelled=bool(line.rank) or engine != "vllm"
                )  # others name every rank
            elif name in ("tp_rank", "pp_rank", "dp_rank", "world_size"):
                known = self.topology.get(name, 0)
                self.topology[name] = max(int(value), known)
            elif name in SETTING_FACTS and not name.endswith("_gib"):
                self.settings.setdefault(name, int(value))
            elif value > rank.facts.get(name, -math.inf):
                rank.facts[name] = value

    def _add(self, rank: _Rank, name: str, value: float, time: float | None, *, labelled: bool) -> None:
        """Add a figure to those of the same process, unless the two times overlap: then another process printed it."""
        parts = rank.parts.setdefault(name, [])
        end = rank.ends.get(name)
        if time is None or end is None:
            apart = labelled or not parts
        else:
            slack = 1.0 if labelled else 0.0
            apart = time - value >= end - slack
        if name.endswith("_gib") or apart:
            rank.facts[name] = rank.facts.get(name, 0.0) + value
            if len(parts) < _MOST_PARTS:
                parts.append(value)
        elif value > rank.facts.get(name, 0.0):
            rank.facts[name] = value
            rank.parts[name] = [value]
        if time is not None:
            rank.ends[name] = max(time, rank.ends.get(name, time))


def _process(rank: str) -> str:
    """What tells processes apart: the pid (and address) where there is one, since the name may change while a worker comes up."""
    pids = [part for part in rank.split() if part.startswith(("pid=", "ip="))]
    return " ".join(pids) or rank
