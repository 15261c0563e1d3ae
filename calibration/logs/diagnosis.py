"""What a start suffered from, and what helps: the phase that failed or dominates, the line that shows it, remedies with their price; and starts
side by side, where the difference isolates what one of them leaves out.

What is found follows the five-stage description of a vLLM start (engine initialisation, weights, memory profiling, KV pool, graph capture); the
remedies are those that each engine's table names. A start with ``--enforce-eager`` leaves out compilation and graph capture, one with
``--load-format dummy`` the reading of weights: the wall times' differences are those phases, whatever the engine logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from calibration.logs.configuration import NAMES
from calibration.logs.parsed import Evidence, LoggedStart
from startup_model.engines.logtable import Bound, Remedy, common_table, table_of
from startup_model.errors import ConfigError, conflict
from startup_model.phases import PHASES

DOMINANT_SHARE = 0.25
"""Share of the start from which a phase is named."""
_FEW_REQUESTS = 2.0  # of full length that fit at once, below which a pool is called small
_NOT_TOLD_APART = "not_told_apart"


class Diagnosis(NamedTuple):
    """One finding."""

    kind: str
    """A status other than ok, or what the start is bound by: storage_bound, compile_bound ..."""
    summary: str
    seconds: float | None
    share: float | None
    """Of the start, where a part of it is meant."""
    evidence: Evidence | None
    remedies: tuple[Remedy, ...]


def diagnose(start: LoggedStart) -> tuple[Diagnosis, ...]:
    """What a start failed of, or is bound by, heaviest first; empty only when the log gives no time at all.

    Of a start that failed, the failure. Else each part of at least a quarter of the start, or of what the log shows of it; where none is so large, the
    largest.
    """
    failed: Mapping[str, str] = dict(common_table().statuses.items())
    if start.status in failed:
        summary = failed[start.status] + _pool_figures(start)
        return (Diagnosis(start.status, summary, None, None, start.evidence, _remedies(start, start.status)),)
    bounds = sorted(_parts(start), key=lambda entry: -(entry.seconds or 0.0))
    found = [entry for entry in bounds if (entry.share or 0.0) >= DOMINANT_SHARE] or bounds[:1]
    concurrency = start.facts.get("max_concurrency_x")
    if start.is_ok and concurrency is not None and concurrency < _FEW_REQUESTS:
        line = start.phase_evidence.get("kv_cache_init")
        holds = f"the KV pool holds {concurrency:g} request(s) of full length"
        summary = f"{holds}: more at once are preempted and computed anew"
        found.append(Diagnosis("kv_cache_small", summary, None, None, line, _remedies(start, "kv_cache_small")))
    return tuple(found)


def _remedies(start: LoggedStart, kind: str) -> tuple[Remedy, ...]:
    common, table = common_table(), table_of(start.engine)
    own = {} if table is None or start.engine in table.advice_not_for else table.remedies
    names = table.advice.get(kind) if table is not None and own else None
    ranks = (start.tp or 1) * (start.pp or 1) * (start.dp or 1)
    known = {**common.remedies, **own}
    found = [known[name] for name in (common.advice.get(kind, ()) if names is None else names)]
    core = start.engine_generation
    return tuple(it for it in found if it.core in ("", core or it.core) and (ranks > 1 or not it.several_ranks))


def _parts(start: LoggedStart) -> list[Diagnosis]:
    spent = {"download": start.facts.get("download_s", 0.0), **start.phases}
    total = sum(start.phases.values()) + spent["download"]
    whole = "the start" if start.wall_s is not None else "what the log shows of the start"
    bounds = dict(common_table().bounds)
    named = {phase for bound in bounds.values() for phase in bound.phases}
    bounds |= {f"{name}_bound": Bound((name,), name.replace("_", " ")) for name in start.phases if name not in named}
    mixed = tuple(name for name in start.phases if _is_mixed(start, name))
    bounds[_NOT_TOLD_APART] = Bound(mixed, " + ".join(name for part in mixed for name in start.joint[part]))
    entries = []
    for kind, bound in bounds.items():
        parts = [name for name in bound.phases if name in spent and (name not in mixed or kind == _NOT_TOLD_APART)]
        seconds = sum(spent[name] for name in parts)
        if seconds > 0:
            names = [name for part in parts for name in start.joint.get(part, (part,))]
            heaviest_first = sorted(names, key=lambda name: -start.phases.get(name, 0.0))
            line = next((start.phase_evidence[name] for name in heaviest_first if name in start.phase_evidence), None)
            summary = f"{bound.summary}: {seconds / total:.0%} of {whole}{_detail(start, bound.detail)}"
            entries.append(Diagnosis(kind, summary, seconds, seconds / total, line, _remedies(start, kind)))
    return entries


def _is_mixed(start: LoggedStart, name: str) -> bool:
    """Whether the seconds of a phase hold others that are bound by something else."""
    together = start.joint.get(name, ())
    kinds = {kind for kind, bound in common_table().bounds.items() if set(together) & set(bound.phases)}
    return len(kinds) > 1 and not any(group >= set(together) for group in common_table().alike)


def _detail(start: LoggedStart, detail: str) -> str:
    if detail == "compile_cache" and start.compile_cache == "cold":
        return "; nothing came from the compile cache"
    load, weights = start.phases.get("weight_load", 0.0), start.facts.get("weights_gib", 0.0)
    if detail == "bandwidth" and load > 0.1 and weights > 0 and "weight_load" not in start.joint:
        models = len(start.facts.get("load_weights_parts_s", ())) or 1
        several = f" ({models} models)" if models > 1 else ""
        return f", {weights:.1f} GiB a rank in {load:.1f} s{several}, {weights / load:.2f} GiB/s"
    if detail == "longest_gap" and len(start.moments) > 1:
        earlier, later = max(pairwise(start.moments), key=lambda pair: pair[1].elapsed_s - pair[0].elapsed_s)
        between = f"{earlier.event} (line {earlier.line_number}) and {later.event} (line {later.line_number})"
        return f"; the longest gap, {later.elapsed_s - earlier.elapsed_s:.0f} s, lies between {between}"
    return ""


def _pool_figures(start: LoggedStart) -> str:
    needed, available = start.facts.get("kv_needed_gib"), start.facts.get("available_kv_gib")
    if start.status != "kv_cache_too_small" or needed is None or available is None:
        return ""
    fitting = start.facts.get("max_model_len_fit")
    tokens = "" if fitting is None else f"; {fitting:.0f} tokens would fit"
    return f": {needed:g} GiB needed, {available:g} GiB there{tokens}"


class Difference(NamedTuple):
    """One start against the base."""

    label: str
    """eager, dummy, or what else differs."""
    isolates: tuple[str, ...]
    """Phases that one of the two leaves out; empty when they differ in anything else as well."""
    isolated_by_wall_s: float | None
    """Seconds of these phases: the difference of the wall times of the start that has them and the one that has not."""
    isolated_s: float | None
    """The same seconds as the log gives them that has them."""
    wall_s: float | None
    """Base less this start, first line to ready; the two stamps resolve it to ``resolution_s``."""
    resolution_s: float
    phases: dict[str, float]
    """Phase -> base less this start."""


class Comparison(NamedTuple):
    """A base and the starts against it."""

    base: LoggedStart
    others: tuple[LoggedStart, ...]
    differences: tuple[Difference, ...]


def compare(base: LoggedStart, others: Sequence[LoggedStart]) -> Comparison:
    """Differences of starts of one model to a base. Raises ConfigError for starts of different engines or models, and without any other start."""
    if not others:
        raise ConfigError("against", "none", "nothing to compare with", "give the log of another start")
    for other in others:
        for field in ("engine", "model"):
            mine, theirs = getattr(base, field), getattr(other, field)
            if None not in (mine, theirs) and _last_part(mine) != _last_part(theirs):
                raise conflict(field, theirs, f"the base ({mine})", "compare starts of one model and engine")
    return Comparison(base, tuple(others), tuple(_difference(base, other) for other in others))


def _last_part(text: str) -> str:
    return text.rstrip("/").rsplit("/", 1)[-1].lower()


def _difference(base: LoggedStart, other: LoggedStart) -> Difference:
    """What sets two starts apart. The base has the phases, or the other one has them: then the differences are negative."""
    signs = {"eager": is_eager(other) - is_eager(base)}
    signs["dummy"] = (other.load_format == "dummy") - (base.load_format == "dummy")
    signs = {label: sign for label, sign in signs.items() if sign}
    changed = _changed(base, other)
    isolates: list[str] = []
    if len(set(signs.values())) == 1 and not changed:
        isolates = [phase for label in signs for phase in common_table().leaves_out[label]]
    labels = [f"{'' if sign > 0 else 'not '}{label}" for label, sign in signs.items()] + changed[:3]
    wall = None if base.wall_s is None or other.wall_s is None else base.wall_s - other.wall_s
    sign, has_them = (1, base) if set(signs.values()) == {1} else (-1, other)
    known = [has_them.phases[name] for name in isolates if name in has_them.phases]
    names = [str(name) for name in PHASES if name in base.phases or name in other.phases]
    return Difference(
        label=" + ".join(labels) or "same settings",
        isolates=tuple(isolates),
        isolated_by_wall_s=None if wall is None or not isolates else wall * sign,
        wall_s=wall,
        isolated_s=sum(known) if known else None,
        resolution_s=max(base.stamp_resolution_s or 1.0, other.stamp_resolution_s or 1.0),
        phases={name: base.phases.get(name, 0.0) - other.phases.get(name, 0.0) for name in names},
    )


def is_eager(start: LoggedStart) -> bool:
    """Whether a start ran without torch.compile and graphs."""
    return start.flags.get("enforce_eager") is True or start.settings.get("enforce_eager") is True


def _changed(base: LoggedStart, other: LoggedStart) -> list[str]:
    """What else differs: arguments, version, ranks, number formats; names and ports aside."""
    names = (base.flags.keys() | other.flags.keys()) - NAMES - {"enforce_eager", "load_format"}
    flags = sorted(name for name in names if base.flags.get(name) != other.flags.get(name))
    fields = ("engine_version", "tp", "pp", "dp", "dtype", "quantization")
    pairs = {name: (getattr(base, name), getattr(other, name)) for name in fields}
    return [name for name, (mine, theirs) in pairs.items() if None not in (mine, theirs) and mine != theirs] + flags
