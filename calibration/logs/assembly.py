"""What is made of a start at its end: facts, phases, status, put together from what was read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.logs.events import Engine, Failure, Milestone
from calibration.logs.fields import Setting
from calibration.logs.secrets import without_secrets
from calibration.logs.start import Account, Start, Times
from calibration.logs.startup import Evidence, Moment, ParsedStartup
from calibration.logs.tables import ENGINES
from calibration.logs.topology import degrees, end_of_bootstrap, generation_of
from calibration.runs.record import RunStatus
from startup_model.errors import ConfigError, one_line
from startup_model.phases import Phase
from startup_model.versions import Version, parse_version

__all__ = ["assemble"]

# --- the result ---------------------------------------------------------------------------------------------------------


_LONGEST_GAP_S = 30 * 86400.0
"""Between two stamps of one start; more is a clock that was set, or a stamp that was garbled."""


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

    def of(self, times: Times, *, last: bool = True) -> float | None:
        """Seconds since the first stamp."""
        if not self.name:
            carried = times.last_carried if last else times.first_carried
            return None if carried is None else carried - self.zero
        stamp = (times.last if last else times.first).get(self.name)
        return None if stamp is None else stamp - self.zero


def assemble(start: Start, *, by_carrier: bool = False) -> ParsedStartup:
    """Everything that the lines of a start say, put together. ``by_carrier``: timed by the carrier's stamps, where it has any."""
    name = start.likely_engine() or next((name for name in start.accounts if name), "vllm")
    engine = ENGINES[name]
    own = start.accounts.get(name, Account())
    variant = max(own.variants, key=lambda key: own.variants[key], default=name)
    clock = _clock(start, engine, by_carrier=by_carrier)
    facts, derived = _facts(own)
    version = _version(start.version)
    generation = generation_of(own, version) if name == "vllm" else None
    ready_s = clock.of(start.ready_times) if clock is not None and start.ready_times is not None else None
    warnings: list[str] = []
    if clock is not None:
        facts["wall_first_to_last_line_s"] = round(max(0.0, clock.last), 6)
        if start.is_ready and ready_s is not None:
            facts["wall_first_line_to_ready_s"] = round(max(0.0, ready_s), 6)
    if not start.is_ready:
        facts["ready_line"] = False
    times = own.times
    if variant in engine.loading_from_stamps and clock is not None and {"load_begun", "model_loaded"} <= times.keys():
        begin, end = clock.of(times["load_begun"], last=False), clock.of(times["model_loaded"])
        if begin is not None and end is not None and end >= begin and "model_loading_s" not in facts:
            facts["model_loading_s"] = round(end - begin, 6)
            facts["model_loading_from"] = "stamps"
            derived.add("model_loading_s")
    _engine_facts(start, name, facts, derived)
    phases, joint = _phases(start, engine, own, clock, facts, version, derived)
    status, evidence = _status(start, warnings, serves=_serves(start, own))
    wall = _wall(engine, clock, ready_s, opened=start.opened)
    from_start = engine.clock_from_process_start and clock is not None and clock.name == engine.clock
    if wall is not None and (from_start or start.opened):
        rest = wall - sum(phases.values()) - facts.get("download_s", 0.0)
        phases[Phase.UNATTRIBUTED.value] = round(max(0.0, rest), 6)
        derived.add(Phase.UNATTRIBUTED.value)
    tp, pp, dp = degrees(start, name, own, generation)
    _warn(start, own.times, facts, clock, warnings)
    total = sum(phases.values())
    if wall is not None and total > wall * 1.01 + (clock.resolution or 1.0 if clock else 1.0) * (len(phases) + 1):
        warnings.append(
            f"its phases come to {total:.1f} s, more than the {wall:.1f} s that it took: some figures overlap"
        )
    values = {**start.settings, **start.flags}
    return ParsedStartup(
        engine=variant,
        engine_version=start.version,
        engine_generation=generation,
        model=" + ".join(start.models[:8]) if _several_engines(start) else (start.models[0] if start.models else None),
        tp=tp,
        pp=pp,
        dp=dp,
        platform=_platform(start),
        dtype=_text(start.settings.get("dtype") or values.get("dtype"), "torch."),
        quantization=_text(start.settings.get("quantization") or values.get("quantization") or _some(values.get("quantize")), ""),
        load_format=_load_format(values),
        flags=dict(start.flags),
        settings=dict(start.settings),
        phases={phase.value: phases[phase.value] for phase in Phase if phase.value in phases},
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
        compile_cache=_compile_cache(own),
        moments=tuple(_moments(start, own, clock)),
        warnings=tuple(warnings),
        channel=start.channel,
        first_line=max(1, start.first_line),
    )  # fmt: skip


def _version(text: str | None) -> Version | None:
    """A version as numbers; None for what is none."""
    try:
        return parse_version(text) if text else None
    except ConfigError:
        return None


def _text(value: Setting, prefix: str) -> str | None:
    return (
        one_line(value.removeprefix(prefix), 100)
        if isinstance(value, str) and value not in ("", "***", "auto")
        else None
    )


def _platform(start: Start) -> str | None:
    """What the engine runs on, as it says."""
    named = start.platform or _text(start.settings.get("device_config"), "") or _text(start.settings.get("device"), "")
    return named.lower().rstrip(".") if named is not None and named != "auto" else None


def _load_format(values: Mapping[str, Setting]) -> str | None:
    value = values.get("load_format")
    return one_line(value.removeprefix("LoadFormat.").lower(), 100) if isinstance(value, str) and value else None


def _some(value: Setting) -> Setting:
    """What an option of Rust holds: ``Some(Awq)`` -> ``awq``."""
    match = re.fullmatch(r"Some\(\s*([\w-]{1,60}),?\s*\)", value) if isinstance(value, str) else None
    return match[1].lower() if match else value


def _clock(start: Start, engine: Engine, *, by_carrier: bool) -> _Clock | None:
    name = engine.clock if engine.clock in start.bounds else "klog"  # Triton's stamps, where the engine has none
    bounds = start.bounds.get(name)
    if bounds is not None and not (by_carrier and start.carried is not None):
        resolution = 10.0**-bounds.decimals if bounds.decimals else 1.0
        zero = 0.0 if engine.clock_from_process_start and bounds.first > 3600.0 else bounds.first
        return _Clock(name, zero, bounds.first_text, bounds.last_text, bounds.last - zero, resolution)
    if start.carried is not None:
        first, last = start.carried.first, start.carried.last
        return _Clock("", first, None, None, last - first, 0.001)
    return None


def _wall(engine: Engine, clock: _Clock | None, ready_s: float | None, *, opened: bool) -> float | None:
    if clock is None or ready_s is None or ready_s < 0:
        return None
    if engine.clock_from_process_start and clock.name == engine.clock:
        return round(ready_s + clock.zero, 6)
    return round(ready_s, 6) if opened and ready_s <= _LONGEST_GAP_S else None


def _facts(own: Account) -> tuple[dict[str, Any], set[str]]:
    """Figures of the largest rank, with the parts that they add up from under names of their own, and the names of those sums."""
    facts: dict[str, Any] = {}
    sums: set[str] = set()
    for rank in own.ranks.values():
        for name, value in rank.facts.items():
            if name not in facts or value > facts[name]:
                facts[name] = value
                pieces = rank.parts.get(name, [])
                facts.pop(_parts_name(name), None)
                sums.discard(name)
                if len(pieces) > 1:
                    facts[_parts_name(name)] = list(pieces)
                    sums.add(name)
    facts.update({name: round(facts[name], 6) for name in sums})
    return facts, sums


def _parts_name(fact: str) -> str:
    return f"{fact.removesuffix('_s').removesuffix('_total')}_parts_s"


def _engine_facts(start: Start, name: str, facts: dict[str, Any], derived: set[str]) -> None:
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
        facts["engines"] = float(len(start.engine_models))
        derived.add("engines")
    triton = start.accounts.get("", Account()).times.get("triton_ready")
    own = start.bounds.get(ENGINES[name].clock)
    if triton is not None and own is not None and "klog" in triton.first and ENGINES[name].clock == "vllm":
        facts["ready_by_triton_line_s"] = float(math.floor(triton.first["klog"]) - math.floor(own.first))
        derived.add("ready_by_triton_line_s")
    if name == "tgi" and "kv_cache_tokens" not in facts and "limit_as_configured" not in start.accounts["tgi"].times:
        tokens = start.settings.get("max_num_batched_tokens")
        if isinstance(tokens, int):
            facts["kv_cache_tokens"] = float(tokens)  # the router takes what the pool holds
            derived.add("kv_cache_tokens")
    if name == "tgi" and {"num_gpu_blocks"} <= facts.keys() and isinstance(start.settings.get("block_tokens"), int):
        facts["kv_cache_tokens"] = facts["num_gpu_blocks"] * float(start.settings["block_tokens"])  # type: ignore[arg-type]
        derived.add("kv_cache_tokens")


def _several_engines(start: Start) -> bool:
    """Whether different models came up side by side (as under Triton); a drafter is named in the settings instead."""
    return len(start.engine_models) > 1


# --- phases -------------------------------------------------------------------------------------------------------------


def _phases(
    start: Start, engine: Engine, own: Account, clock: _Clock | None, facts: dict[str, Any], version: Version | None, derived: set[str],
) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:  # fmt: skip
    """Seconds by phase: what lines print, and the time between stamps for what no line prints."""
    made_up = {Phase.WEIGHT_LOAD} if _is_dummy(start) else set()
    phases = _printed(engine, facts, version, derived, is_dummy=bool(made_up))
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
        at = _when(milestone, start, own, clock, version)
        if at is None or (before is not None and at < before):
            if not milestone.optional:
                inside += milestone.inside
                rest += milestone.rest
            continue
        inside += milestone.inside
        rest += milestone.rest
        if before is not None and at - before <= _LONGEST_GAP_S:
            taken = sum(printed.get(phase.value, 0.0) for phase in dict.fromkeys(inside) if phase not in done)
            if Phase.WEIGHT_LOAD in inside and Phase.WEIGHT_LOAD not in done:
                taken += facts.get("download_s", 0.0)
            taken += facts.get(milestone.less, 0.0)
            given = done | (made_up if "model_loading_s" in facts else set())
            left = [phase.value for phase in dict.fromkeys(rest) if phase.value not in printed and phase not in given]
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


def _when(milestone: Milestone, start: Start, own: Account, clock: _Clock, version: Version | None) -> float | None:
    """Seconds at which a milestone was passed; None when the log does not show it."""
    event = end_of_bootstrap(own, version) if milestone.event == "engine_started" else milestone.event
    times = start.ready_times if event == "ready" else own.times.get(event)
    is_meant = not milestone.needs or milestone.needs in own.times
    return clock.of(times) if times is not None and is_meant else None


def _is_dummy(start: Start) -> bool:
    """Whether weights are made up instead of read."""
    return any(str(values.get("load_format")).lower().endswith("dummy") for values in (start.flags, start.settings))


def _printed(
    engine: Engine, facts: dict[str, Any], version: Version | None, derived: set[str], *, is_dummy: bool
) -> dict[str, float]:
    """Phases whose seconds stand in lines, or follow from such figures alone."""
    phases = {phase.value: facts[fact] for fact, phase in engine.printed.items() if fact in facts}
    if engine.name == "sglang":  # graphs of the drafter and of pieces are captured after the others
        captures = ("graph_capture_s", "draft_graph_capture_s", "piecewise_graph_capture_s")
        if any(name in facts for name in captures):
            phases["graph_capture"] = round(sum(facts.get(name, 0.0) for name in captures), 6)
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
    if "model_init" not in phases and "model_loading_s" in facts and ("load_weights_s" in facts or is_dummy):
        other = facts.get("load_weights_s", 0.0) + facts.get("download_s", 0.0)
        phases["model_init"] = max(0.0, facts["model_loading_s"] - other)
        derived.add("model_init")
    return {name: round(seconds, 6) for name, seconds in phases.items()}


def _phase_evidence(start: Start, phases: Mapping[str, float], derived: set[str]) -> dict[str, Evidence]:
    """The line that shows a phase: the one with the largest figure; of a derived phase the line that ends it, unless a figure makes up half of it."""
    found = {}
    for name, (heaviest, last, figure) in start.phase_lines.items():
        line = last if name in derived and figure < 0.5 * phases.get(name, 0.0) else heaviest
        found[name] = Evidence(line[0], _kept(line[1]))
    return found


def _compile_cache(own: Account) -> str:
    loaded = bool({"graphs_from_cache", "graphs_stale"} & own.times.keys())
    made = bool({"graph_to_cache", "graph_compiled"} & own.times.keys())
    return "unknown" if loaded == made else "warm" if loaded else "cold"


def _moments(start: Start, own: Account, clock: _Clock | None) -> Iterator[Moment]:
    if clock is None:
        return
    found = []
    for event, times in own.times.items():
        last = not event.endswith(("_up", "_begun"))
        at = clock.of(times, last=last)
        if at is not None and event not in ("flavour", "ready"):
            found.append(Moment(event, round(max(0.0, at), 6), times.last_number if last else times.first_number))
    if start.is_ready and start.ready_times is not None:
        at = clock.of(start.ready_times)
        if at is not None:
            found.append(Moment("ready", round(max(0.0, at), 6), start.ready_times.last_number))
    yield from sorted(found, key=lambda moment: (moment.elapsed_s, moment.line_number))


# --- status and topology ------------------------------------------------------------------------------------------------


def _serves(start: Start, own: Account) -> bool:
    """Whether a server is being started; else the engine is used by a program of its own, which may fail later for reasons of its own."""
    shared = start.accounts.get("", Account()).times.keys()
    names = (rank.label for rank in own.ranks.values())
    return bool({"server_begun", "listening"} & own.times.keys() or shared) or any(
        name.startswith("APIServer") for name in names
    )


def _status(start: Start, warnings: list[str], *, serves: bool) -> tuple[RunStatus, Evidence | None]:
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


def _staged(start: Start, failure: Failure, line: tuple[int, str] | None) -> tuple[RunStatus, Evidence | None]:
    """The status of a failure whose line does not say the phase: by the lines of its traceback that do."""
    if failure.status != "crashed" or start.stage is None:
        return failure.status, _evidence(line)
    status, shows = start.stage
    return status, _evidence(start.cause_line or shows)


def _kept(text: str) -> str:
    """A line as it may be shown: secrets first, then the length."""
    return one_line(without_secrets(text), 300)


_GENERAL = 2
"""Strength up to which a line of failure says no more than that there was one: the exception that follows says why."""


def _evidence(line: tuple[int, str] | None) -> Evidence | None:
    return None if line is None else Evidence(line[0], _kept(line[1]))


def _warn(
    start: Start, times: Mapping[str, Times], facts: Mapping[str, Any], clock: _Clock | None, warnings: list[str]
) -> None:
    if clock is None:
        warnings.append("no line has a stamp: phases that no line prints are missing")
    elif not clock.name and not start.bounds:
        warnings.append("the engine's lines have no stamps: times are those of the container runtime or journal")
    if start.backward > start.forward:
        warnings.append("its stamps run backwards: sort the log, the newest line last")
    if not start.opened:
        warnings.append("the log begins in the middle of a start: what came before its first line is missing")
    if "graphs_stale" in times:
        warnings.append("compiled graphs were there but could not be loaded: everything was compiled again")
    if start.version is None:
        warnings.append("the log does not name the version of the engine")
    if "download_s" in facts:
        warnings.append(f"weights were downloaded for {facts['download_s']:.1f} s: no phase holds that time")
    if facts.get("graph_capture_gib", 0.0) < 0:
        warnings.append("negative graph memory: other processes gave memory back during the capture")
