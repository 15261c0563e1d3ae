"""What one flag leaves out: starts of one plan side by side, by wall time and phase by phase.

A start with ``--enforce-eager`` leaves out torch.compile and graph capture, one with ``--load-format dummy`` the reading of weights, one without torch.compile its
tracing and compiling: base less other is what these phases take, whatever the engine logs of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.phases import Phase

__all__ = ["IsolatedPhases", "flags_of", "isolated_phases"]

_COMPILING = (Phase.GRAPH_TRACE.value, Phase.GRAPH_COMPILE.value)
_ISOLATES: Mapping[str, tuple[str, ...]] = {
    "eager": (*_COMPILING, Phase.GRAPH_CAPTURE.value),
    "dummy": (Phase.WEIGHT_LOAD.value,),
    "uncompiled": _COMPILING,
}
"""What sets a start apart from the base -> phases that it leaves out."""

Flags = frozenset[str]


class _Kind(NamedTuple):
    """Starts that are repetitions of each other."""

    flags: Flags
    page_cache: str
    compile_cache: str


class IsolatedPhases(NamedTuple):
    """The base less a start that leaves out some phases; seconds, of several repetitions the median."""

    model: str
    label: str
    """eager, dummy, uncompiled: what sets the other start apart from the base."""
    phases: tuple[str, ...]
    """That the other start leaves out."""
    by_wall_s: float | None
    """Their time: time to ready of the base less that of the other; None where one was not measured."""
    by_log_s: float | None
    """Their time as the log of the base gives it; None where it does not."""
    differences_s: Mapping[str, float]
    """Phase, or phases that are logged together -> base less other."""
    starts: tuple[int, int]
    """Repetitions of the base and of the other start."""


def isolated_phases(runs: Iterable[RunRecord]) -> tuple[IsolatedPhases, ...]:
    """What the starts of a differential plan isolate, model by model.

    runs: records of ``profile_server``, or read from its file. Starts that were kept apart do not count; starts in different states of the page cache or the compile
    cache are not compared, as far as both read weights or compile.
    """
    groups: dict[object, list[RunRecord]] = {}
    for run in runs:
        if run.step and run.status == "ok":
            groups.setdefault((run.model, run.hardware, run.host, run.dataset, _plain(run.engine)), []).append(run)
    return tuple(entry for group in groups.values() for entry in _of_group(group))


def _of_group(runs: Sequence[RunRecord]) -> Iterator[IsolatedPhases]:
    kinds: dict[_Kind, list[RunRecord]] = {}
    for run in runs:
        kind = _Kind(flags_of(run.engine), run.engine.page_cache, run.engine.compile_cache)
        kinds.setdefault(kind, []).append(run)
    for other, others in kinds.items():
        for label in sorted(other.flags):
            flags = other.flags - {label}
            base = [run for kind, found in kinds.items() if _is_base(kind, flags, label, other) for run in found]
            if base:
                yield _isolated(flags, label, base, others)


def _is_base(kind: _Kind, flags: Flags, label: str, other: _Kind) -> bool:
    """Whether starts of a kind differ from others by one flag alone, as far as both read weights or compile."""
    same_page = label == "dummy" or kind.page_cache == other.page_cache
    same_graphs = kind.compile_cache == (other.compile_cache if label == "dummy" else "warm")
    return kind.flags == flags and same_page and same_graphs


def _isolated(flags: Flags, label: str, base: Sequence[RunRecord], others: Sequence[RunRecord]) -> IsolatedPhases:
    mine, theirs = _seconds(base), _seconds(others)
    walls = [[run.ready_s for run in group if run.ready_s is not None] for group in (base, others)]
    absent = {phase for flag in flags for phase in _ISOLATES[flag]}
    isolated = tuple(phase for phase in _ISOLATES[label] if phase not in absent)
    logged = [seconds for names, seconds in mine.items() if set(names) <= set(isolated)]
    names = dict.fromkeys([*mine, *theirs])
    return IsolatedPhases(
        model=base[0].model.name,
        label=label,
        phases=isolated,
        by_wall_s=median(walls[0]) - median(walls[1]) if all(walls) else None,
        by_log_s=sum(logged) if logged else None,
        differences_s={" + ".join(name): mine.get(name, 0.0) - theirs.get(name, 0.0) for name in names},
        starts=(len(base), len(others)),
    )


def _seconds(runs: Sequence[RunRecord]) -> dict[tuple[str, ...], float]:
    """Phases, alone or together as they were logged -> median seconds of the runs that give them."""
    found: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        for name, seconds in run.phases.items():
            found.setdefault((name,), []).append(seconds)
        for figure in run.sums:
            found.setdefault(figure.phases, []).append(figure.seconds)
    return {names: median(seconds) for names, seconds in found.items()}


def flags_of(engine: EngineConfig) -> Flags:
    """What an engine leaves out: eager, dummy, uncompiled."""
    flags = {
        "eager": engine.enforce_eager,
        "dummy": engine.load_format == "dummy",
        "uncompiled": engine.optimization_level == 0 or engine.torch_compile is False,
    }
    return frozenset(name for name, is_set in flags.items() if is_set)


def _plain(engine: EngineConfig) -> EngineConfig:
    """An engine without what may set starts of one plan apart."""
    return engine.replace(
        enforce_eager=False, load_format="auto", optimization_level=None, torch_compile=None, page_cache="unknown", compile_cache="unknown"
    )  # fmt: skip
