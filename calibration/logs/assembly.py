"""One start as it is read, line by line, and what is made of it at the end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from calibration.logs.events import Engine, Failure, LogStatus, Row
from calibration.logs.fields import Setting, read_fields, without_secrets
from calibration.logs.lines import Line
from calibration.logs.patterns import Template, figure
from calibration.logs.startup import Evidence, Moment, ParsedStartup
from calibration.logs.tables import ADDITIVE, ENGINES, SETTING_FACTS
from startup_model.config.versions import Version, parse_version
from startup_model.errors import ConfigError, one_line
from startup_model.phases import Phase

__all__ = ["Start", "assemble"]

_SURE = 3
"""Different events after which a log is taken for one engine's."""
_MOST_RANKS = 4096
_MOST_PARTS = 64
_MOST_SETTINGS = 400
_MOST_MODELS = 16
_SNAPSHOT = re.compile(r"models--([\w.-]{1,96}?)--([\w.-]{1,96})/snapshots/")
"""A model's folder in the cache of the hub."""

Stamps = Mapping[str, tuple[float, str]]
"""Clock -> the last stamp seen, and how it was printed."""


@dataclass
class _Times:
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
class _Account:
    """What was read of one engine's table."""

    times: dict[str, _Times] = field(default_factory=dict)
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


class Start:
    """A start while it is being read."""

    def __init__(self) -> None:
        self.accounts: dict[str, _Account] = {}
        self.bounds: dict[str, _Bounds] = {}
        self.carried: _Bounds | None = None
        self.decimals = 0
        self.events = 0
        """Lines that say something about a start of an engine."""
        self.first_line = 0
        self.channel = ""
        self.models: list[str] = []
        self.version: str | None = None
        self.flags: dict[str, Setting] = {}
        self.settings: dict[str, Setting] = {}
        self.is_ready = False
        self.ready_times: _Times | None = None
        self.is_up = False
        self.is_loading = False
        self.is_over = False
        self.opened = False
        self.failure: Failure | None = None
        self.failure_line: tuple[int, str] | None = None
        self.stage: LogStatus | None = None
        self.last_event_line = 0
        self.last_line: tuple[int, str] | None = None
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
        scores = sorted(((account.score, name) for name, account in self.accounts.items() if name), reverse=True)
        if not scores or scores[0][0] < _SURE or (len(scores) > 1 and scores[1][0] * 2 > scores[0][0]):
            return None
        return scores[0][1]

    def likely_engine(self) -> str | None:
        """The engine whose lines were seen most."""
        scores = [(account.score, name) for name, account in self.accounts.items() if name and account.score]
        return max(scores)[1] if scores else None

    def see(self, line: Line, time: float | None) -> None:
        """Take the stamps of a line, whatever it says."""
        if time is not None:
            known = self.bounds.get(line.clock)
            if known is None:
                self.bounds[line.clock] = _Bounds(time, line.stamped, time, line.stamped)
                if not self.accounts:
                    self.decimals = line.decimals
            elif time >= known.last or time < known.last - 60.0:
                known.last, known.last_text = time, line.stamped
        if line.carried is not None:
            if self.carried is None:
                self.carried = _Bounds(line.carried, "", line.carried, "")
            else:
                self.carried.last = max(self.carried.last, line.carried)
        self.channel = line.channel or self.channel

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

    def ends_before(self, row: Row, line: Line) -> bool:
        """Whether a line belongs to the next start already."""
        if row.mark not in ("begins", "settings"):
            return False
        ended = self.is_ready or self.is_up or self.is_over or (self.failure is not None and self.failure.strength >= 2)
        if ended:
            return self._current[0] is not line
        again = (row.event, _process(line.rank)) in self._begun and row.event in ("server_begun", "arguments")
        hurt = self.failure is not None
        if row.mark == "begins" or again:
            return (self.is_loading or hurt or again) and self._current[0] is not line
        return False

    def successor(self) -> Start:
        """The start that comes next, with the stamps of processes that came up after this one had ended."""
        if self._closed is not None:
            self.bounds = self._closed
        return self._pending or Start()

    def take(
        self, row: Row, engine: str, line: Line, time: float | None, match: re.Match[str], compiled: Template, stamps: Stamps, number: int,
    ) -> dict[str, float] | None:  # fmt: skip
        """Note what a line says; its facts, or None when it says nothing about this start."""
        if self._current[0] is not line:
            self._current = (line, set())
        if row.event in self._current[1] and row.mark != "progress" and row.event != "pool_too_small":
            return None
        if row.mark == "opens" and (self.is_ready or self.failure is not None or self.is_over):
            self._open_next(line, time, number)
            return None
        if row.mark == "over":
            self.is_over = self.is_over or self.is_ready or self.is_up
            return None if self.is_ready else {}
        if self.is_ready:
            return None
        self._current[1].add(row.event)
        facts = dict(self._figures(match, compiled))
        if row.mark == "progress":
            return facts
        account = self.accounts.setdefault(engine, _Account())
        self._mark(account, row, engine, line, time, stamps, number)
        self._words(row, match, compiled, line)
        self._keep(account, row, line, time, stamps, facts)
        if engine and row.mark != "opens" and row.event != "flavour":
            self.events += 1
            self.first_line = self.first_line or number
        self.last_event_line = number
        self._flags(row, engine, line, number)
        if row.phase is not None or row.mark == "up" or self.last_line is None:
            self.last_line = (number, line.message)
        return {name: value for name, value in facts.items() if name not in SETTING_FACTS or name in ("done", "total")}

    def fail(self, failure: Failure, engine: str, line: Line, number: int) -> None:
        """Note a line that speaks of failure; in a start that is ready it is none."""
        if self.is_ready or (engine and self.likely_engine() not in (None, engine)):
            return
        if failure.strength == 0:
            self.stage = failure.status
            return
        if engine:
            self.events += 1
            self.first_line = self.first_line or number
            self.accounts.setdefault(engine, _Account())
        if self.failure is None or failure.strength > self.failure.strength:
            self.failure = failure
            self.failure_line = (number, line.message)

    def _flags(self, row: Row, engine: str, line: Line, number: int) -> None:
        if row.mark in ("begins", "opens", "settings") or row.event in ("engine_process", "resolved"):
            self.opened = True
        if row.mark in ("begins", "settings"):
            self._begun[(row.event, _process(line.rank))] = number
        if row.event in ("load_begun", "weights_loaded", "model_loaded", "ranks_assigned"):
            self.is_loading = True
        if row.mark == "up":
            self.is_up = True
        if row.mark == "ready" or row.event == "triton_ready":
            likely = self.likely_engine()
            owner = engine or likely
            if owner is not None and owner == likely and (engine or row.event in ENGINES[owner].ready_events):
                self.is_ready = True
                self.ready_times = self.accounts[engine].times[row.event]

    def _open_next(self, line: Line, time: float | None, number: int) -> None:
        """A process comes up after this start has ended: the next start may have begun."""
        if self._pending is None:
            self._pending = Start()
            self._pending.opened = True
            self._closed = {clock: _Bounds(b.first, b.first_text, b.last, b.last_text) for clock, b in self.bounds.items()}
        self._pending.see(line, time)

    def _figures(self, match: re.Match[str], compiled: Template) -> Iterator[tuple[str, float]]:
        for name in compiled.facts:
            number = match.group(name)
            has_unit = name.endswith(("_s", "_gib"))
            value = figure(name, number, match.group(f"{name}_unit") if has_unit else None)
            if value is not None:
                yield name, value

    def _mark(
        self, account: _Account, row: Row, engine: str, line: Line, time: float | None, stamps: Stamps, number: int
    ) -> None:
        if time is not None and len(stamps) == 1:
            now = {line.clock: time}
        else:
            now = {clock: stamp for clock, (stamp, _) in stamps.items()}
            if time is not None:
                now[line.clock] = time
        known = account.times.get(row.event)
        if known is None:
            account.times[row.event] = _Times(now, now, line.carried, line.carried, number, number)
            account.score += row.mark != "opens"
        else:
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

    def _words(self, row: Row, match: re.Match[str], compiled: Template, line: Line) -> None:
        for name in compiled.words:
            word = match.group(name).rstrip(".)")
            if name == "engine_version" and word[:1].isdigit():
                self.version = self.version or word[:60]
            elif name == "model" and word:
                self._model(word)
        if row.mark == "settings":
            found = read_fields(line.message[match.end() - (1 if compiled.literal.endswith("{") else 0) :])
            target = self.settings if row.event == "engine_started" else self.flags
            for key, value in found.items():
                if len(target) < _MOST_SETTINGS:
                    target.setdefault(key, value)
            model = found.get("model") or found.get("model_path") or found.get("model_id") or found.get("model_tag")
            if isinstance(model, str):
                self._model(model)

    def _model(self, name: str) -> None:
        snapshot = _SNAPSHOT.search(name)
        name = f"{snapshot[1]}/{snapshot[2]}" if snapshot else one_line(without_secrets(name), 300)
        if name not in self.models and len(self.models) < _MOST_MODELS:
            self.models.append(name)

    def _keep(
        self, account: _Account, row: Row, line: Line, time: float | None, stamps: Stamps, facts: dict[str, float]
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
                self._add(rank, name, value, time, labelled=bool(line.rank))
            elif name in ("tp_rank", "pp_rank", "dp_rank", "world_size"):
                self.settings[name] = max(int(value), int(self.settings.get(name) or 0))  # type: ignore[arg-type]
            elif name in SETTING_FACTS and not name.endswith("_gib"):
                self.settings.setdefault(name, int(value))
            else:
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


# --- the result ---------------------------------------------------------------------------------------------------------


@dataclass
class _Clock:
    """The clock that a start is timed by."""

    name: str
    """Empty: the carrier's."""
    zero: float
    first_text: str | None
    last_text: str | None
    last: float
    resolution: float | None

    def of(self, times: _Times, *, last: bool = True) -> float | None:
        """Seconds since the first stamp."""
        if not self.name:
            carried = times.last_carried if last else times.first_carried
            return None if carried is None else carried - self.zero
        stamp = (times.last if last else times.first).get(self.name)
        return None if stamp is None else stamp - self.zero


def assemble(start: Start) -> ParsedStartup:
    """Everything that the lines of a start say, put together."""
    name = start.likely_engine() or next((name for name in start.accounts if name), "vllm")
    engine = ENGINES[name]
    own = start.accounts.get(name, _Account())
    variant = max(own.variants, key=lambda key: own.variants[key], default=name)
    clock = _clock(start, engine)
    facts, parts, derived = _facts(own, variant)
    version = parse_quietly(start.version)
    generation = _generation(own, version) if name == "vllm" else None
    ready_s = clock.of(start.ready_times) if clock is not None and start.ready_times is not None else None
    warnings: list[str] = []
    if clock is not None:
        facts["wall_first_to_last_line_s"] = round(max(0.0, clock.last), 6)
        if start.is_ready and ready_s is not None:
            facts["wall_first_line_to_ready_s"] = round(max(0.0, ready_s), 6)
    if not start.is_ready:
        facts["ready_line"] = 0.0
    times = own.times
    if variant in engine.loading_from_stamps and clock is not None and {"load_begun", "model_loaded"} <= times.keys():
        begin, end = clock.of(times["load_begun"], last=False), clock.of(times["model_loaded"])
        if begin is not None and end is not None and end >= begin and "model_loading_s" not in facts:
            facts["model_loading_s"] = round(end - begin, 6)
            derived.add("model_loading_s")
    _engine_facts(start, name, facts, derived)
    phases, joint = _phases(start, engine, own, clock, facts, version, derived)
    status, evidence = _status(start, warnings)
    wall = _wall(engine, clock, ready_s)
    from_start = engine.clock_from_process_start and clock is not None and clock.name == engine.clock
    if wall is not None and (from_start or start.opened):
        rest = wall - sum(phases.values()) - facts.get("download_s", 0.0)
        phases[Phase.UNATTRIBUTED.value] = round(max(0.0, rest), 6)
        derived.add(Phase.UNATTRIBUTED.value)
    tp, pp, dp = _degrees(start, name, own, generation)
    _warn(start, phases, facts, clock, warnings)
    values = {**start.settings, **start.flags}
    return ParsedStartup(
        engine=variant,
        engine_version=start.version,
        engine_generation=generation,
        model=" + ".join(start.models[:8]) if _several_engines(start) else (start.models[0] if start.models else None),
        tp=tp,
        pp=pp,
        dp=dp,
        dtype=_text(start.settings.get("dtype") or values.get("dtype"), "torch."),
        quantization=_text(values.get("quantization") or start.settings.get("quantization"), ""),
        load_format=(_text(start.settings.get("load_format") or values.get("load_format"), "LoadFormat.") or "").lower() or None,
        flags=dict(start.flags),
        settings=dict(start.settings),
        phases={phase.value: phases[phase.value] for phase in Phase if phase.value in phases},
        derived=frozenset(derived),
        joint=joint,
        facts=facts,
        parts=parts,
        ranks={rank.label: dict(rank.facts) for rank in own.ranks.values() if rank.facts or rank.label},
        first_stamp=None if clock is None else clock.first_text,
        last_stamp=None if clock is None else clock.last_text,
        wall_s=wall,
        from_process_start=from_start,
        stamp_resolution_s=None if clock is None else clock.resolution,
        status=status,
        evidence=evidence,
        compile_cache=_compile_cache(own),
        moments=tuple(_moments(start, own, clock)),
        warnings=tuple(warnings),
        channel=start.channel,
        first_line=max(1, start.first_line),
    )  # fmt: skip


def parse_quietly(text: str | None) -> Version | None:
    """A version as numbers; None for what is none."""
    try:
        return parse_version(text) if text else None
    except ConfigError:
        return None


def _text(value: Setting, prefix: str) -> str | None:
    return value.removeprefix(prefix) if isinstance(value, str) and value not in ("", "***") else None


def _clock(start: Start, engine: Engine) -> _Clock | None:
    bounds = start.bounds.get(engine.clock)
    if bounds is not None:
        resolution = 10.0**-start.decimals if start.decimals else 1.0
        zero = 0.0 if engine.clock_from_process_start and bounds.first > 3600.0 else bounds.first
        return _Clock(engine.clock, zero, bounds.first_text, bounds.last_text, bounds.last - zero, resolution)
    if start.carried is not None:
        first, last = start.carried.first, start.carried.last
        return _Clock("", first, None, None, last - first, 0.001)
    return None


def _wall(engine: Engine, clock: _Clock | None, ready_s: float | None) -> float | None:
    if clock is None or ready_s is None or ready_s < 0:
        return None
    if engine.clock_from_process_start and clock.name == engine.clock:
        return round(ready_s + clock.zero, 6)
    return round(ready_s, 6)


def _facts(own: _Account, variant: str) -> tuple[dict[str, float], dict[str, tuple[float, ...]], set[str]]:
    """Figures of the largest rank, and the parts that they add up from."""
    facts: dict[str, float] = {}
    parts: dict[str, tuple[float, ...]] = {}
    derived: set[str] = set()
    for rank in own.ranks.values():
        for name, value in rank.facts.items():
            if name not in facts or value > facts[name]:
                facts[name] = value
                pieces = tuple(rank.parts.get(name, ()))
                parts.pop(_parts_name(name), None)
                derived.discard(name)
                if len(pieces) > 1:
                    parts[_parts_name(name)] = pieces
                    derived.add(name)
    facts.update({name: round(facts[name], 6) for name in derived})
    return facts, parts, derived


def _parts_name(fact: str) -> str:
    return f"{fact.removesuffix('_s').removesuffix('_total')}_parts_s"


def _engine_facts(start: Start, name: str, facts: dict[str, float], derived: set[str]) -> None:
    """Figures that an engine gives in pieces or under another name."""
    if "k_gib" in facts and "v_gib" in facts:
        facts["kv_memory_gib"] = round(facts.pop("k_gib") + facts.pop("v_gib"), 6)
        derived.add("kv_memory_gib")
    if "graph_capture_part_s" in facts:
        facts["graph_capture_s"] = facts.pop("graph_capture_part_s")
    if "shard_ready_s" in facts:
        facts["model_loading_s"] = facts["shard_ready_s"]
        derived.add("model_loading_s")
    if "model_buffer_gib" in facts:
        facts["weights_gib"] = round(facts.pop("model_buffer_gib"), 6)
        derived.add("weights_gib")
    if _several_engines(start):
        facts["engines"] = float(len(start.models))
        derived.add("engines")
    triton = start.accounts.get("", _Account()).times.get("triton_ready")
    own = start.bounds.get(ENGINES[name].clock)
    if triton is not None and own is not None and "klog" in triton.first and ENGINES[name].clock == "vllm":
        facts["ready_by_triton_line_s"] = float(math.floor(triton.first["klog"]) - math.floor(own.first))
        derived.add("ready_by_triton_line_s")
    if name == "tgi" and {"num_gpu_blocks"} <= facts.keys() and isinstance(start.settings.get("block_tokens"), int):
        facts["kv_cache_tokens"] = facts["num_gpu_blocks"] * float(start.settings["block_tokens"])  # type: ignore[arg-type]
        derived.add("kv_cache_tokens")


def _several_engines(start: Start) -> bool:
    """Whether different models came up side by side (as under Triton); a drafter is named in the settings instead."""
    started = start.accounts.get("vllm", _Account()).times.get("engine_started")
    return len(start.models) > 1 and started is not None and "non-default args" not in start.flags and not start.flags


# --- phases -------------------------------------------------------------------------------------------------------------


def _phases(
    start: Start, engine: Engine, own: _Account, clock: _Clock | None, facts: dict[str, float], version: Version | None, derived: set[str],
) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:  # fmt: skip
    """Seconds by phase: what lines print, and the time between stamps for what no line prints."""
    phases = _printed(engine, facts, version, derived)
    joint: dict[str, tuple[str, ...]] = {}
    if clock is None:
        return phases, joint
    printed = dict(phases)
    done: set[Phase] = set()
    before: float | None = None
    if engine.clock_from_process_start and clock.name == engine.clock:
        before = -clock.zero
    elif start.opened:
        before = 0.0
    inside: list[Phase] = []
    rest: list[Phase] = []
    for milestone in engine.milestones:
        times = own.times.get(milestone.event)
        if milestone.event == "ready":
            times = start.ready_times
        at = clock.of(times) if times is not None else None
        if at is None or (before is not None and at < before):
            if not milestone.optional:
                inside += milestone.inside
                rest += milestone.rest
            continue
        inside += milestone.inside
        rest += milestone.rest
        if before is not None:
            taken = sum(printed.get(phase.value, 0.0) for phase in dict.fromkeys(inside) if phase not in done)
            if Phase.WEIGHT_LOAD in inside and Phase.WEIGHT_LOAD not in done:
                taken += facts.get("download_s", 0.0)
            left = [phase.value for phase in dict.fromkeys(rest) if phase.value not in printed and phase not in done]
            if left:
                phases[left[0]] = round(max(0.0, at - before - taken), 6)
                derived.update(left[:1])
                if len(left) > 1:
                    joint[left[0]] = tuple(left)
            done.update(inside)
        before = at
        inside, rest = [], []
    warmup = facts.get("profiling_warmup_s", 0.0)
    if "memory_profiling" in phases and phases["memory_profiling"] < warmup and "memory_profiling" not in joint:
        phases["memory_profiling"] = warmup
    return phases, joint


def _printed(engine: Engine, facts: dict[str, float], version: Version | None, derived: set[str]) -> dict[str, float]:
    """Phases whose seconds stand in lines, or follow from such figures alone."""
    phases = {phase.value: facts[fact] for fact, phase in engine.printed.items() if fact in facts}
    if engine.name != "vllm":
        return phases
    explicit = [facts[name] for name in ("compile_s", "compiled_graph_load_s") if name in facts]
    total = facts.get("torch_compile_total_s")
    beyond = None if total is None else max(0.0, total - facts.get("dynamo_s", 0.0))
    if explicit:
        # From 0.18 on the total holds the compilation alone, with what no other line gives (saving, loading of artefacts); before, it leaves
        # out cached graphs (0.8.5-0.9.2) or holds a forward pass too (0.17).
        whole = beyond is not None and version is not None and version >= (0, 18)
        phases["graph_compile"] = max(sum(explicit), beyond or 0.0) if whole else sum(explicit)
    elif beyond is not None and total is not None and "precompile_s" not in facts:
        phases["graph_compile"] = beyond
        derived.add("graph_compile")
    if "model_init" not in phases and "model_loading_s" in facts and "load_weights_s" in facts:
        other = facts["load_weights_s"] + facts.get("download_s", 0.0)
        phases["model_init"] = max(0.0, facts["model_loading_s"] - other)
        derived.add("model_init")
    return {name: round(seconds, 6) for name, seconds in phases.items()}


def _compile_cache(own: _Account) -> str:
    loaded, made = "graphs_from_cache" in own.times, bool({"graph_to_cache", "graph_compiled"} & own.times.keys())
    return "unknown" if loaded == made else "warm" if loaded else "cold"


def _moments(start: Start, own: _Account, clock: _Clock | None) -> Iterator[Moment]:
    if clock is None:
        return
    found = []
    for event, times in own.times.items():
        at = clock.of(times, last=event not in ("process_up", "load_begun", "capture_begun", "compile_begun"))
        if at is not None and event not in ("flavour", "ready"):
            found.append(Moment(event, round(max(0.0, at), 6), times.last_number))
    if start.is_ready and start.ready_times is not None:
        at = clock.of(start.ready_times)
        if at is not None:
            found.append(Moment("ready", round(max(0.0, at), 6), start.ready_times.last_number))
    yield from sorted(found, key=lambda moment: (moment.elapsed_s, moment.line_number))


# --- status and topology ------------------------------------------------------------------------------------------------


def _status(start: Start, warnings: list[str]) -> tuple[LogStatus, Evidence | None]:
    if start.is_ready:
        return "ok", _evidence(start.last_line)
    failure, line = start.failure, start.failure_line
    if failure is not None and failure.strength >= 2:
        return start.stage if failure.status == "crashed" and start.stage else failure.status, _evidence(line)
    if start.is_up:
        return "ok", _evidence(start.last_line)
    if failure is not None and line is not None:
        if start.last_event_line <= line[0]:
            return start.stage or failure.status, _evidence(line)
        warnings.append("a traceback stands in the log, but the start went on after it")
    return "incomplete", _evidence(start.last_line)


def _evidence(line: tuple[int, str] | None) -> Evidence | None:
    return None if line is None else Evidence(line[0], without_secrets(one_line(line[1], 300)))


def _generation(own: _Account, version: Version | None) -> str | None:
    if own.generations:
        return max(own.generations, key=lambda name: own.generations[name])
    if version is None:
        return None
    return "v0" if version < (0, 8) else "v1" if version >= (0, 11) else None


_DEGREE = re.compile(r"(?<![A-Z])(TP|PP|DP)([0-9]{1,5})")
_DEGREE_SETTINGS = {
    "tp": ("tensor_parallel_size", "tp_size"),
    "pp": ("pipeline_parallel_size", "pp_size"),
    "dp": ("data_parallel_size", "dp_size"),
}


def _degrees(start: Start, name: str, own: _Account, generation: str | None) -> tuple[int | None, int | None, int | None]:
    """tp, pp and dp: as configured, else as the processes number themselves."""
    values = {**start.flags, **start.settings}
    found: dict[str, int | None] = {}
    for degree, keys in _DEGREE_SETTINGS.items():
        given = next((values[key] for key in keys if isinstance(values.get(key), int) and not isinstance(values[key], bool)), None)
        found[degree] = given if isinstance(given, int) and 0 < given < 10**6 else None
    seen = {"TP": 0, "PP": 0, "DP": 0}
    labels = [rank.label for rank in own.ranks.values()]
    for label in labels:
        for match in _DEGREE.finditer(label):
            seen[match.group(1)] = max(seen[match.group(1)], int(match.group(2)) + 1)
    for degree, key in (("tp", "tp_rank"), ("pp", "pp_rank"), ("dp", "dp_rank")):
        rank = values.get(key)
        if isinstance(rank, int):
            seen[degree.upper()] = max(seen[degree.upper()], rank + 1)
    world = values.get("world_size")
    for degree in found:
        if found[degree] is None and seen[degree.upper()]:
            found[degree] = seen[degree.upper()]
    if name == "vllm" and start.flags and "arguments" in own.times:
        found = {degree: count or 1 for degree, count in found.items()}
    if isinstance(world, int) and world >= 1:
        others = (found["pp"] or 1) * (found["dp"] or 1)
        if found["tp"] is None or (found["tp"] * others < world and "tensor_parallel_size" not in values):
            found["tp"] = max(1, world // others)
        found["pp"] = found["pp"] or 1
    _count_processes(found, name, labels, generation)
    return found["tp"], found["pp"], found["dp"]


def _count_processes(found: dict[str, int | None], name: str, labels: list[str], generation: str | None) -> None:
    """Degrees that only the number of processes tells."""
    if name == "vllm" and found["tp"] is None:
        workers = sum(label.startswith("VllmWorkerProcess") for label in labels)
        if workers:  # the driver prints without a prefix
            found["tp"] = workers + 1
        elif generation == "v1" and any(label.startswith("EngineCore") for label in labels):
            if not any(label.startswith(("Worker", "VllmWorker", "RayWorker")) for label in labels):
                found["tp"] = found["pp"] = 1
    if name == "vllm" and generation == "v1" and found["dp"] is None:
        if any(label.startswith("EngineCore") for label in labels):
            found["dp"] = 1
    if name == "sglang" and labels:
        found.update({degree: count or 1 for degree, count in found.items()})


def _warn(
    start: Start, phases: Mapping[str, float], facts: Mapping[str, float], clock: _Clock | None, warnings: list[str]
) -> None:
    if clock is None:
        warnings.append("no line has a stamp: phases that no line prints are missing")
    elif not clock.name:
        warnings.append("the engine's lines have no stamps: times are those of the container runtime or journal")
    if not start.opened:
        warnings.append("the log begins in the middle of a start: what came before its first line is missing")
    if "download_s" in facts:
        warnings.append(f"weights were downloaded for {facts['download_s']:.1f} s: no phase holds that time")
    if facts.get("graph_capture_gib", 0.0) < 0:
        warnings.append("negative graph memory: other processes gave memory back during the capture")
