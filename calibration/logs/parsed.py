"""``LoggedStart``: what a log says about one start of a server, put together from what was read of it: facts, phases, status."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from calibration.logs.configuration import degrees, logged_engine, logged_model
from calibration.logs.fields import Setting
from calibration.logs.lines import YEARLY
from calibration.logs.reading import EngineEvidence, NumberedLine, OpenStart, Times
from calibration.runs.record import PhaseSum, RunRecord, RunStatus
from startup_model.engines import DEFAULT_ENGINE
from startup_model.engines.logtable import Failure, Figure, LogTable, Milestone, common_table
from startup_model.errors import ConfigError, conflict, one_line, out_of_range
from startup_model.phases import BEFORE_ENGINE, PHASES
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, as_engine, as_hardware, as_model
from startup_model.secrets import redact_text
from startup_model.versions import Version, parse_version

_MAX_GAP_S = 30 * 86400.0  # between two stamps of one start; more is a clock that was set, or a stamp that was garbled
_GENERAL = 2  # strength up to which a failure says no more than that there was one: the exception that follows says why
_PLATFORMS = {"cuda": "cuda", "rocm": "rocm", "cpu": "cpu", "hpu": "hpu", "npu": "npu", "ascend": "npu"}
_UNATTRIBUTED = "unattributed"


class Evidence(NamedTuple):
    """The line that a statement rests on."""

    line_number: int
    """From 1, in the log."""
    text: str
    """The line as logged, shortened and without secrets."""


class Moment(NamedTuple):
    """Something that happened, and when."""

    event: str
    elapsed_s: float
    """Since the first stamp of the start."""
    line_number: int


@dataclass(frozen=True, slots=True)
class LoggedStart:
    """One start of a server, as its log tells it. Seconds and GiB; what the log does not say is None or absent."""

    engine: str
    """An engine, or the flavour of one (vllm-ascend, vllm-tpu)."""
    engine_version: str | None
    engine_generation: str | None
    """The core that ran, where the engine has several: v0 or v1 of vLLM."""
    model: str | None
    tp: int | None
    pp: int | None
    dp: int | None
    platform: str | None
    """What the engine runs on, where it says so: cuda, rocm, cpu, npu ..."""
    dtype: str | None
    quantization: str | None
    load_format: str | None
    flags: Mapping[str, Setting]
    """Arguments that the engine printed as given ("non-default args"), secrets replaced by ``***``."""
    settings: Mapping[str, Setting]
    """The engine's own configuration line, and settings that it logged one by one."""
    phases: Mapping[str, float]
    """Canonical phase -> seconds, in order."""
    derived: frozenset[str]
    """Phases and facts that no line gives: taken from the stamps of neighbouring lines, or from other figures."""
    joint: Mapping[str, tuple[str, ...]]
    """Phase -> all phases that its derived seconds hold together."""
    facts: Mapping[str, Any]
    """Figures under fixed names (weights_gib, load_weights_s, kv_cache_tokens ...); of several ranks the largest. ``<name>_parts_s`` lists the parts of a
    figure that is a sum; ``ready_line`` is False where the log does not get to the line that says ready."""
    ranks: Mapping[str, Mapping[str, float]]
    """Process as it names itself -> its own figures."""
    first_stamp: str | None
    last_stamp: str | None
    wall_s: float | None
    """First line (process start, where the stamps count from there) to ready; None when the log does not get there."""
    from_process_start: bool
    """Whether ``wall_s`` begins with the process; else with its first stamped line, some seconds later."""
    stamp_resolution_s: float | None
    status: RunStatus
    evidence: Evidence | None
    """The line that the status rests on."""
    phase_evidence: Mapping[str, Evidence]
    """Phase -> the line that gives its longest part, else the last one that speaks of it."""
    compile_cache: str
    """warm: compiled graphs were loaded; cold: everything was compiled; unknown."""
    moments: tuple[Moment, ...]
    """When what happened, by time."""
    warnings: tuple[str, ...]
    channel: str = ""
    """Container or pod, where the log names several."""
    first_line: int = 1
    lines: int = 0
    """Lines of the whole log."""
    recognised: int = 0
    """Of these, lines that say something about a start."""
    earlier: int = 0
    """Starts before this one in the same log."""
    source: str = ""
    source_digest: str = ""
    """SHA-256 of the log."""

    @property
    def unknown_lines(self) -> int:
        """Lines of the log that no table knows."""
        return max(0, self.lines - self.recognised)

    @property
    def is_ok(self) -> bool:
        """Whether the server came up."""
        return self.status == "ok"

    def __str__(self) -> str:
        """One line."""
        version = f" {self.engine_version}" if self.engine_version else ""
        end = f"ready after {self.wall_s:.1f} s" if self.wall_s is not None and self.is_ok else self.status
        longest = max(self.phases, key=lambda name: self.phases[name], default=None)
        mostly = f", mostly {longest} ({self.phases[longest]:.1f} s)" if longest is not None else ""
        return f"{self.engine}{version} {self.model or 'unknown model'}: {end}{mostly}"

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        data = {item.name: getattr(self, item.name) for item in fields(self)} | {"unknown_lines": self.unknown_lines}
        data["derived"] = sorted(self.derived)
        data["evidence"] = None if self.evidence is None else self.evidence._asdict()
        data["phase_evidence"] = {name: line._asdict() for name, line in self.phase_evidence.items()}
        data["moments"] = [moment._asdict() for moment in self.moments]
        data |= {name: dict(data[name]) for name in ("flags", "settings", "phases", "joint", "facts", "ranks")}
        data["warnings"] = list(self.warnings)
        data["source"] = self.source.replace("\\", "/").rsplit("/", 1)[-1]
        return data

    def to_run(
        self,
        hardware: HardwareLike,
        *,
        model: ModelLike | None = None,
        engine: EngineLike | None = None,
        page_cache: str = "unknown",
        compile_cache: str | None = None,
        process_start_s: float | None = None,
        host: str = "",
        dataset: str = "",
    ) -> RunRecord:
        """The start as a record for calibration.

        hardware: the node, which no log names well enough. model, engine: in the place of what the log says. page_cache: hot, cold or unknown;
        compile_cache: None: as the log tells. process_start_s: seconds from the start of the process to the first line of the log, where they were
        measured; without them the record counts from its first line, and calibration leaves its bootstrap and wall time alone. Time spent on
        downloading weights is taken off the wall time. Raises ConfigError when the model or the engine is not known here, or nothing was measured.
        """
        logged = logged_engine(self.engine, self.engine_version, self.engine_generation, self.flags, self.settings)
        ranks = {name: count for name in ("tp", "pp", "dp") if (count := getattr(self, name)) is not None}
        config = logged.config.replace(**ranks) if engine is None else as_engine(engine)
        config = config.replace(page_cache=page_cache, compile_cache=compile_cache or self.compile_cache)
        node = as_hardware(hardware)
        needed = -(-config.tp * config.pp * config.dp // node.nodes)
        if isinstance(hardware, str) and not node.is_cpu_only and needed > node.gpus:
            node = node.replace(gpus=needed)  # a preset names the accelerator, not how many there are
        platform = _PLATFORMS.get(self.platform or "", node.platform)
        if platform != node.platform:
            start = f"the log of a start on {self.platform} (the node is {node.platform})"
            raise conflict("hardware", node.name, start, "give the node of the log")
        head = 0.0 if self.from_process_start else process_start_s
        if head is not None and not (math.isfinite(head) and 0 <= head < 86400):
            what = "seconds from 0 to a day"
            raise out_of_range("process_start_s", head, what, "give the time before the first line")
        apart = self.phases.keys() - self.joint.keys() - {_UNATTRIBUTED}
        phases = {name: self.phases[name] for name in self.phases if name in apart}
        first = next(name for name in PHASES if name not in BEFORE_ENGINE)
        if head and first in phases:
            phases[first] += head
        wall = None
        if self.wall_s is not None and self.is_ok:
            wall = self.wall_s - self.facts.get("download_s", 0.0) + (head or 0.0)
        slack = (self.stamp_resolution_s or 1.0) * (len(phases) + 1)
        if wall is not None and sum(phases.values()) > wall * 1.01 + slack:
            wall = None  # the log counts something twice, or its clock was set
        return RunRecord(
            model=logged_model(self.model, "give the model (model=, --model)") if model is None else as_model(model),
            hardware=node,
            engine=config,
            phases=phases,
            sums=tuple(PhaseSum(phases=names, seconds=self.phases[name]) for name, names in self.joint.items()),
            wall_s=wall or None,
            measured_from="process_start" if head is not None else "first_line",
            facts={name: value for name, value in self.facts.items() if type(value) is float},
            status=self.status,
            dataset=dataset,
            host=host,
            stamp_resolution_s=self.stamp_resolution_s or 1.0,
            source_digest=f"{self.source_digest}:{self.earlier}" if self.earlier else self.source_digest,
        )


ParsedStartup = LoggedStart
"""The name of ``LoggedStart`` in earlier releases."""


# --- a start put together -----------------------------------------------------------------------------------------------


class _Clock(NamedTuple):
    name: str  # empty: the carrier's
    zero: float
    last: float
    resolution: float
    first_text: str | None = None
    last_text: str | None = None

    def of(self, times: Times | None, *, last: bool = True) -> float | None:
        """Seconds since the first stamp."""
        if times is None:
            return None
        if not self.name:
            stamp = times.last_carried if last else times.first_carried
        else:
            stamp = (times.last if last else times.first).get(self.name)
        return None if stamp is None else stamp - self.zero


def assemble(start: OpenStart, *, by_carrier: bool = False) -> LoggedStart:
    """Everything that the lines of a start say, put together. ``by_carrier``: timed by the carrier's stamps, where it has any."""
    table = start.tables[start.likely_engine or next((name for name in start.evidence if name), DEFAULT_ENGINE)]
    own = start.evidence.get(table.name, EngineEvidence())
    variant = max(own.variants, key=lambda key: own.variants[key], default=table.name)
    clock = _clock(start, table, by_carrier=by_carrier)
    facts, derived = _summed(own)
    version = _version(start.version)
    core = _core(table, own, version)
    ready_s = clock.of(start.ready_times) if clock is not None else None
    if clock is not None:
        facts["wall_first_to_last_line_s"] = round(max(0.0, clock.last), 6)
        if start.is_ready and ready_s is not None:
            facts["wall_first_line_to_ready_s"] = round(max(0.0, ready_s), 6)
        if variant in table.loading_from_stamps and {"load_begun", "model_loaded"} <= own.times.keys():
            begin, end = clock.of(own.times["load_begun"], last=False), clock.of(own.times["model_loaded"])
            if begin is not None and end is not None and end >= begin and "model_loading_s" not in facts:
                facts |= {"model_loading_s": round(end - begin, 6), "model_loading_from": "stamps"}
                derived.add("model_loading_s")
    if not start.is_ready:
        facts["ready_line"] = False
    _add_figures(start, table, own, facts, derived)
    phases, joint = _phases(start, table, own, clock, facts, version, derived)
    from_start = table.counts_from_process_start and clock is not None and clock.name == table.clock
    wall = None
    has_begun = from_start or (start.opened and (ready_s or 0.0) <= _MAX_GAP_S)
    if clock is not None and ready_s is not None and ready_s >= 0 and has_begun:
        wall = round(ready_s + (clock.zero if from_start else 0.0), 6)
        outside = sum(facts.get(name, 0.0) for name in common_table().inside)
        phases[_UNATTRIBUTED] = round(max(0.0, wall - sum(phases.values()) - outside), 6)
        derived.add(_UNATTRIBUTED)
    warnings: list[str] = []
    status, evidence = _status(start, warnings, serves=_serves(start, table, own))
    warnings += _warnings(start, own, facts, clock)
    total, resolution = sum(phases.values()), 1.0 if clock is None else clock.resolution
    if wall is not None and total > wall * 1.01 + resolution * (len(phases) + 1):
        came = f"its phases come to {total:.1f} s, more than the {wall:.1f} s that it took"
        warnings.append(f"{came}: some figures overlap")
    loaded = bool({"graphs_from_cache", "graphs_stale"} & own.times.keys())
    made = bool({"graph_to_cache", "graph_compiled"} & own.times.keys())
    values = {**start.settings, **start.flags}
    load_format = values.get("load_format")
    tp, pp, dp = degrees(start, table, own)
    return LoggedStart(
        engine=variant,
        engine_version=start.version,
        engine_generation=core,
        model=" + ".join(start.models[:8]) if len(start.engine_models) > 1 else next(iter(start.models), None),
        tp=tp,
        pp=pp,
        dp=dp,
        platform=_platform(start),
        dtype=_word(start.settings.get("dtype") or values.get("dtype"), "torch."),
        quantization=_word(start.settings.get("quantization") or values.get("quantization") or _some(values.get("quantize"))),
        load_format=one_line(load_format.removeprefix("LoadFormat.").lower(), 100) if isinstance(load_format, str) and load_format else None,
        flags=dict(start.flags),
        settings=dict(start.settings),
        phases={str(name): phases[name] for name in PHASES if name in phases},
        derived=frozenset(derived),
        joint=joint,
        facts=facts,
        ranks={_kept(rank.label): dict(rank.facts) for rank in own.ranks.values() if rank.facts or rank.label},
        first_stamp=None if clock is None else clock.first_text,
        last_stamp=None if clock is None else clock.last_text,
        wall_s=wall,
        from_process_start=from_start,
        stamp_resolution_s=None if clock is None else clock.resolution,
        status=status,
        evidence=evidence,
        phase_evidence=_phase_evidence(start, phases, derived),
        compile_cache="unknown" if loaded == made else "warm" if loaded else "cold",
        moments=tuple(_moments(start, own, clock)),
        warnings=tuple(warnings),
        channel=start.channel,
        first_line=max(1, start.first_line),
    )  # fmt: skip


def _version(text: str | None) -> Version | None:
    try:
        return parse_version(text) if text else None
    except ConfigError:
        return None


def _reaches(version: Version | None, first: str) -> bool:
    return version is not None and version >= parse_version(first or "0")


def _core(table: LogTable, own: EngineEvidence, version: Version | None) -> str | None:
    """The core that ran: as most lines say, else by version; None where neither tells, or there is one only."""
    if own.cores:
        return max(own.cores, key=lambda name: own.cores[name])
    before = [core for core, first in table.cores.before.items() if version and not _reaches(version, first)]
    since = [core for core, first in table.cores.since.items() if _reaches(version, first)]
    return next(iter(before + since), None)


def _word(value: Setting, prefix: str = "") -> str | None:
    is_word = isinstance(value, str) and value not in ("", "***", "auto")
    return one_line(str(value).removeprefix(prefix), 100) if is_word else None


def _platform(start: OpenStart) -> str | None:
    named = start.platform or _word(start.settings.get("device_config")) or _word(start.settings.get("device"))
    return named.lower().rstrip(".") if named is not None and named != "auto" else None


def _some(value: Setting) -> Setting:
    """What an option of Rust holds: ``Some(Awq)`` -> ``awq``."""
    match = re.fullmatch(r"Some\(\s*([\w-]{1,60}),?\s*\)", value) if isinstance(value, str) else None
    return match[1].lower() if match else value


def _clock(start: OpenStart, table: LogTable, *, by_carrier: bool) -> _Clock | None:
    # Stamps of what runs around the engine, where it has none.
    name = table.clock if table.clock in start.bounds else "klog"
    bounds = start.bounds.get(name)
    if bounds is not None and not (by_carrier and start.carried is not None):
        zero = 0.0 if table.counts_from_process_start and bounds.first > 3600.0 else bounds.first
        resolution = 10.0**-bounds.decimals if bounds.decimals else 1.0
        return _Clock(name, zero, bounds.last - zero, resolution, bounds.first_text, bounds.last_text)
    carried = start.carried
    return None if carried is None else _Clock("", carried.first, carried.last - carried.first, 0.001)


# --- facts --------------------------------------------------------------------------------------------------------------


def _summed(own: EngineEvidence) -> tuple[dict[str, Any], set[str]]:
    """Figures of the largest rank, with the parts that they add up from under names of their own, and the names of those sums."""
    facts: dict[str, Any] = {}
    sums: set[str] = set()
    for rank in own.ranks.values():
        for name, value in rank.facts.items():
            if name in facts and value <= facts[name]:
                continue
            facts[name], parts = value, rank.parts.get(name, [])
            parts_name = f"{name.removesuffix('_s').removesuffix('_total')}_parts_s"
            facts.pop(parts_name, None)
            sums.discard(name)
            if len(parts) > 1:
                facts[parts_name] = list(parts)
                sums.add(name)
    facts.update({name: round(facts[name], 6) for name in sums})
    return facts, sums


def _value(figure: Figure, values: Mapping[str, Any]) -> float | None:
    """The value of a figure that is made of others; None where they are not there."""
    if figure.needs and not any(name in values for name in figure.needs):
        return None
    if figure.product:
        found = [float(values[name]) for name in figure.product if name in values]
        return math.prod(found) if len(found) == len(figure.product) else None
    terms: list[float] = [values[name] for name in figure.sum if name in values]
    if not terms:
        return None
    return max(0.0, sum(terms) - sum(values.get(name, 0.0) for name in figure.less)) if figure.less else sum(terms)


def _add_figures(
    start: OpenStart, table: LogTable, own: EngineEvidence, facts: dict[str, Any], derived: set[str]
) -> None:
    """Figures that an engine gives in pieces or under another name."""
    for figure in table.figures:
        values = {name: value for name, value in start.settings.items() if type(value) is int} | facts
        value = _value(figure, values)
        if value is None or figure.unless_event in own.times or (figure.if_absent and figure.fact in facts):
            continue
        facts[figure.fact] = round(value, 6) if figure.moved else float(value)
        if figure.moved:
            for name in figure.sum:
                facts.pop(name, None)
        if not figure.printed:
            derived.add(figure.fact)
    if len(start.engine_models) > 1:
        facts["engines"] = float(len(start.engine_models))
        derived.add("engines")
    around, bounds = start.evidence.get("", EngineEvidence()).times.get("triton_ready"), start.bounds.get(table.clock)
    if around is not None and bounds is not None and "klog" in around.first and table.clock in YEARLY:
        facts["ready_by_triton_line_s"] = float(math.floor(around.first["klog"]) - math.floor(bounds.first))
        derived.add("ready_by_triton_line_s")


# --- phases -------------------------------------------------------------------------------------------------------------


def _phases(
    start: OpenStart, table: LogTable, own: EngineEvidence, clock: _Clock | None, facts: dict[str, Any], version: Version | None, derived: set[str],
) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:  # fmt: skip
    """Seconds by phase: what lines print, and the time between stamps for what no line prints."""
    common = common_table()
    settings = (start.flags, start.settings)
    is_dummy = any(str(values.get("load_format")).lower().endswith("dummy") for values in settings)
    made_up = set(common.leaves_out["dummy"]) if is_dummy else set()  # weights are made up instead of read
    phases = _printed(table, facts, version, derived, made_up)
    joint: dict[str, tuple[str, ...]] = {}
    if clock is None:
        return phases, joint
    printed = dict(phases)
    order = {name: index for index, name in enumerate(PHASES)}
    given = made_up if "model_loading_s" in facts else set()
    done: set[str] = set()
    before: float | None = None
    if table.counts_from_process_start and clock.name == table.clock:
        before = -clock.zero
    elif start.opened:
        before = 0.0
    rest: list[str] = []
    also: list[str] = []
    moved = {name for milestone in table.milestones for name in milestone.also}
    for milestone in table.milestones:
        at = _when(milestone, start, own, clock, version)
        is_passed = at is not None and not (before is not None and at < before)
        if is_passed or not milestone.optional:
            rest += milestone.rest if milestone.rest is not None else filter(None, [milestone.ends])
            also += milestone.also
        if at is None or not is_passed:
            continue
        last = order.get(milestone.ends or "", -1) if milestone.until is None else order[milestone.until] - 1
        ended = ({name for name, index in order.items() if index <= last and name not in moved} | set(also)) - done
        if before is not None and at - before <= _MAX_GAP_S:
            taken = sum(printed.get(name, 0.0) for name in order if name in ended) + facts.get(milestone.less, 0.0)
            taken += sum(facts.get(fact, 0.0) for fact, phase in common.inside.items() if phase in ended)
            left = [name for name in dict.fromkeys(rest) if name not in printed and name not in done | given]
            if left:
                phases[left[0]] = round(max(0.0, at - before - taken), 6)
                derived.add(left[0])
                if len(left) > 1:
                    joint[left[0]] = tuple(left)
        done |= ended
        before, rest, also = at, [], []
    _raise_to_floors(table, facts, version, phases, joint)
    return phases, joint


def _when(
    milestone: Milestone, start: OpenStart, own: EngineEvidence, clock: _Clock, version: Version | None
) -> float | None:
    """Seconds at which a milestone was passed; None when the log does not show it."""
    event = milestone.event
    if milestone.instead in own.times and _reaches(version, milestone.instead_since):
        event = milestone.instead
    times = start.ready_times if event == "ready" else own.times.get(event)
    return clock.of(times) if not milestone.needs or milestone.needs in own.times else None


def _printed(
    table: LogTable, facts: Mapping[str, Any], version: Version | None, derived: set[str], made_up: set[str]
) -> dict[str, float]:
    """Phases whose seconds stand in lines, or follow from such figures alone."""
    known = {figure.phase for figure in table.seconds}
    declared = ((name, fact) for name, row in PHASES.items() if name not in known for fact in row.log_facts)
    figures = (*table.seconds, *(Figure(phase=name, sum=(fact,)) for name, fact in declared))
    nothing = {fact: 0.0 for figure in figures if figure.phase in made_up for fact in figure.sum}
    phases: dict[str, float] = {}
    for figure in figures:
        value = _value(figure, {**nothing, **facts}) if set(figure.sum) & facts.keys() else None
        if value is not None and figure.phase not in phases:
            phases[figure.phase] = round(value, 6)
            if figure.less:
                derived.add(figure.phase)
    _raise_to_floors(table, facts, version, phases, ())
    return phases


def _raise_to_floors(
    table: LogTable, facts: Mapping[str, Any], version: Version | None, phases: dict[str, float], joint: Collection[str]
) -> None:
    for floor in table.floors:
        least = _value(floor, facts) if not floor.since or _reaches(version, floor.since) else None
        if least is not None and phases.get(floor.phase, math.inf) < least and floor.phase not in joint:
            phases[floor.phase] = round(least, 6)


def _phase_evidence(start: OpenStart, phases: Mapping[str, float], derived: set[str]) -> dict[str, Evidence]:
    """The line that shows a phase: the one with the largest figure; of a derived phase the line that ends it, unless a figure makes up half of it."""
    found = {}
    for name, (heaviest, last, figure) in start.phase_lines.items():
        line = last if name in derived and figure < 0.5 * phases.get(name, 0.0) else heaviest
        found[name] = Evidence(line[0], _kept(line[1]))
    return found


def _moments(start: OpenStart, own: EngineEvidence, clock: _Clock | None) -> Iterator[Moment]:
    if clock is None:
        return
    shown = {event: times for event, times in own.times.items() if event not in ("flavour", "ready")}
    if start.is_ready and start.ready_times is not None:
        shown["ready"] = start.ready_times
    found = []
    for event, times in shown.items():
        last = not event.endswith(("_up", "_begun"))
        at = clock.of(times, last=last)
        if at is not None:
            found.append(Moment(event, round(max(0.0, at), 6), times.last_number if last else times.first_number))
    yield from sorted(found, key=lambda moment: (moment.elapsed_s, moment.line_number))


# --- status -------------------------------------------------------------------------------------------------------------


def _serves(start: OpenStart, table: LogTable, own: EngineEvidence) -> bool:
    """Whether a server is being started; else the engine is used by a program of its own, which may fail later for reasons of its own."""
    shared = start.evidence.get("", EngineEvidence()).times
    names_server = any(rank.label.startswith(table.ranks.server) for rank in own.ranks.values())
    return bool({"server_begun", "listening"} & own.times.keys() or shared) or names_server


def _status(start: OpenStart, warnings: list[str], *, serves: bool) -> tuple[RunStatus, Evidence | None]:
    if start.is_ready:
        return "ok", _evidence(start.last_line)
    failure, line = start.failure, start.failure_line
    if failure is not None and failure.strength <= _GENERAL and start.cause_line is not None:
        line = start.cause_line
    is_late = start.is_up and line is not None and line[0] > start.up_line
    if failure is not None and failure.strength >= 2 and (serves or not is_late):
        return _staged(start, failure, line)
    if start.is_up and not (is_late and serves):
        return "ok", _evidence(start.last_line)
    if failure is not None and line is not None:
        if start.last_event_line <= line[0] or start.is_up:
            return _staged(start, failure, line)
        warnings.append("a traceback stands in the log, but the start went on after it")
    return "incomplete", _evidence(start.last_line)


def _staged(start: OpenStart, failure: Failure, line: NumberedLine | None) -> tuple[RunStatus, Evidence | None]:
    """The status of a failure whose line does not say the phase: by the lines of its traceback that do."""
    if failure.status != "crashed" or start.stage is None:
        return failure.status, _evidence(line)
    status, shows = start.stage
    return status, _evidence(start.cause_line or shows)  # type: ignore[return-value]


def _kept(text: str) -> str:
    """A line as it may be shown: secrets first, then the length."""
    return one_line(redact_text(text), 300)


def _evidence(line: NumberedLine | None) -> Evidence | None:
    return None if line is None else Evidence(line[0], _kept(line[1]))


def _warnings(start: OpenStart, own: EngineEvidence, facts: Mapping[str, Any], clock: _Clock | None) -> Iterator[str]:
    if clock is None:
        yield "no line has a stamp: phases that no line prints are missing"
    elif not clock.name and not start.bounds:
        yield "the engine's lines have no stamps: times are those of the container runtime or journal"
    if start.backward > start.forward:
        yield "its stamps run backwards: sort the log, the newest line last"
    if not start.opened:
        yield "the log begins in the middle of a start: what came before its first line is missing"
    if "graphs_stale" in own.times:
        yield "compiled graphs were there but could not be loaded: everything was compiled again"
    if start.version is None:
        yield "the log does not name the version of the engine"
    if "download_s" in facts:
        yield f"weights were downloaded for {facts['download_s']:.1f} s: no phase holds that time"
    if facts.get("graph_capture_gib", 0.0) < 0:
        yield "negative graph memory: other processes gave memory back during the capture"
