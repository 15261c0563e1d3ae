"""What one flag leaves out: starts of one schedule side by side, by wall time and phase by phase.

A start with ``--enforce-eager`` leaves out torch.compile and graph capture, one with ``--load-format dummy`` the reading of weights, one without torch.compile its
tracing and compiling: base less other is what these phases take, whatever the engine logs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from calibration.runs.record import RunRecord
from startup_model.engines.config import LOAD_FORMATS, EngineConfig
from startup_model.engines.engine import CaptureCount, Resolved
from startup_model.phases import PHASES

_EVERYTHING = Resolved(
    engine="", version=(), version_text="", generation="", dtype_bytes=2.0, kv_cache_dtype_bytes=2.0, gpu_memory_utilization=0.9, max_model_len=1, max_num_batched_tokens=1,
    max_num_seqs=1, block_size=1, load_format=LOAD_FORMATS["auto"], compiles=True, captures=CaptureCount(1),
)  # fmt: skip
_UNCOMPILED: Mapping[str, Any] = {"compiles": False}
# What sets a start apart from the base: how its engine shows it, and the flags by which it leaves out phases.
_FLAGS: Mapping[str, tuple[Callable[[EngineConfig], bool | None], Mapping[str, Any]]] = {
    "eager": (lambda engine: engine.enforce_eager, {**_UNCOMPILED, "captures": CaptureCount()}),
    "dummy": (lambda engine: engine.load_format == "dummy", {"load_format": LOAD_FORMATS["dummy"]}),
    "uncompiled": (lambda engine: engine.optimization_level == 0 or engine.torch_compile is False, _UNCOMPILED),
}
Flags = frozenset[str]
_Kind = tuple[Flags, str, str]  # flags, page cache, compile cache: starts of one kind are repetitions of each other


def flags_of(engine: EngineConfig) -> Flags:
    """What an engine leaves out: eager, dummy, uncompiled."""
    return frozenset(name for name, (is_set, _) in _FLAGS.items() if is_set(engine))


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
    """What the starts of a differential schedule isolate, model by model.

    runs: records of ``profile_server``, or read from its file. Starts that were excluded as warm-up do not count; starts in different states of the page cache or the compile
    cache are not compared, as far as both read weights or compile.
    """
    groups: dict[object, dict[_Kind, list[RunRecord]]] = {}
    for run in runs:
        if run.step and run.status == "ok":
            plain = run.engine.replace(
                enforce_eager=False, load_format="auto", optimization_level=None, torch_compile=None, page_cache="unknown", compile_cache="unknown"
            )  # fmt: skip
            kinds = groups.setdefault((run.model, run.hardware, run.host, run.dataset, plain), {})
            kind = (flags_of(run.engine), run.engine.page_cache, run.engine.compile_cache)
            kinds.setdefault(kind, []).append(run)
    return tuple(entry for kinds in groups.values() for entry in _of_group(kinds))


def _of_group(kinds: Mapping[_Kind, Sequence[RunRecord]]) -> Iterator[IsolatedPhases]:
    for (other_flags, page_cache, compile_cache), others in kinds.items():
        for label in sorted(other_flags):
            # The base differs by one flag alone, as far as both read weights or compile.
            pages = {page_cache} if label != "dummy" else {"hot", "cold", "unknown"}
            graphs = compile_cache if label == "dummy" else "warm"
            flags = other_flags - {label}
            base = [run for (f, page, g), runs in kinds.items() if f == flags and page in pages and g == graphs for run in runs]  # fmt: skip
            if base:
                absent = {name for flag in flags for name in _left_out(flag)}
                yield _isolated(label, [name for name in _left_out(label) if name not in absent], base, others)


def _isolated(
    label: str, phases: Sequence[str], base: Sequence[RunRecord], others: Sequence[RunRecord]
) -> IsolatedPhases:
    mine, theirs = _seconds(base), _seconds(others)
    walls = [[run.ready_s for run in group if run.ready_s is not None] for group in (base, others)]
    logged = [seconds for names, seconds in mine.items() if set(names) <= set(phases)]
    return IsolatedPhases(
        model=base[0].model.name,
        label=label,
        phases=tuple(phases),
        by_wall_s=median(walls[0]) - median(walls[1]) if all(walls) else None,
        by_log_s=sum(logged) if logged else None,
        differences_s={
            " + ".join(names): mine.get(names, 0.0) - theirs.get(names, 0.0) for names in {**mine, **theirs}
        },
        starts=(len(base), len(others)),
    )


def _left_out(flag: str) -> list[str]:
    changed = _EVERYTHING._replace(**_FLAGS[flag][1])
    return [name for name, row in PHASES.items() if row.is_off and row.is_off(changed) and not row.is_off(_EVERYTHING)]


def _seconds(runs: Sequence[RunRecord]) -> dict[tuple[str, ...], float]:
    """Phases, alone or together as they were logged -> median seconds of the runs that give them."""
    found: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        alone = [((name,), seconds) for name, seconds in run.phases.items()]
        for names, seconds in (*alone, *((figure.phases, figure.seconds) for figure in run.sums)):
            found.setdefault(names, []).append(seconds)
    return {names: median(seconds) for names, seconds in found.items()}
