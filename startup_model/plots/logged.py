"""The rows of a parsed log: when each phase ran, as near to its stamps as the order of the phases allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from startup_model.errors import MISSING, ConfigError, shown
from startup_model.formula import FloatArray
from startup_model.phases import Phase
from startup_model.plots.rows import Row, Span
from startup_model.plots.values import seconds_of
from startup_model.units import format_seconds

__all__ = [
    "Stage",
    "logged_rows",
    "moments_of",
    "optional_seconds",
    "origin",
    "rank_rows",
    "read_stages",
    "start_title",
]

_MOST_PHASES = 64
_MOST_RANKS = 16
"""Processes with a row of their own; of more the slowest."""
_MOST_MOMENTS = 10_000

_RANK_FIGURES: Mapping[str, Phase] = {
    "dist_init_s": Phase.WORKER_SPAWN,
    "tokenizer_init_s": Phase.TOKENIZER_LOAD,
    "model_init_s": Phase.MODEL_INIT,
    "load_weights_s": Phase.WEIGHT_LOAD,
    "dynamo_s": Phase.GRAPH_TRACE,
    "compile_s": Phase.GRAPH_COMPILE,
    "compiled_graph_load_s": Phase.GRAPH_COMPILE,
    "memory_profiling_s": Phase.MEMORY_PROFILING,
    "graph_capture_s": Phase.GRAPH_CAPTURE,
}
"""Figure that a process prints about itself -> the phase that it is the duration of."""


class Stage(NamedTuple):
    """A phase of a log: how long it took, and when the line that ended it was stamped."""

    label: str
    seconds: float
    stamp_s: float | None
    is_derived: bool


def start_title(start: Any) -> str:
    """Model, engine and version, and the status of a start that did not end well."""
    parts = [getattr(start, name, None) for name in ("model", "engine", "engine_version")]
    names = [part if isinstance(part, str) else getattr(part, "name", getattr(part, "engine", None)) for part in parts]
    status = getattr(start, "status", "ok")
    return " ".join(str(name) for name in names if name) + ("" if status == "ok" else f", {status}") or "start"


def origin(start: Any) -> str:
    """What the seconds of a log or a record count from."""
    measured_from = getattr(start, "measured_from", "first_line")
    from_process = getattr(start, "from_process_start", measured_from == "process_start")
    return "process start" if from_process is True else "the first line"


def optional_seconds(start: Any, name: str) -> float | None:
    """An attribute in seconds, where there is one. Raises ConfigError."""
    value = getattr(start, name, None)
    return None if value is None else seconds_of(value, name)


def _part(start: Any, name: str, kind: type[Any]) -> Any:
    """An attribute of a parsed log, empty where it has none. Raises ConfigError when it is of another kind."""
    value = getattr(start, name, None)
    if value is not None and (not isinstance(value, kind) or isinstance(value, str | bytes)):
        raise ConfigError(name, shown(value), "it is not what a parsed log has there", "give what parse_log returns")
    return value or ()


def moments_of(start: Any) -> dict[int, float]:
    """Line number -> its stamp, of the lines that say something."""
    moments = list(_part(start, "moments", Sequence))[:_MOST_MOMENTS]
    pairs = ((getattr(moment, "line_number", None), getattr(moment, "elapsed_s", None)) for moment in moments)
    return {line: seconds_of(stamp, "moments") for line, stamp in pairs if isinstance(line, int)}


def read_stages(start: Any) -> tuple[list[Stage], float]:
    """The phases of a log in order, and the seconds that none of them holds. Raises ConfigError."""
    phases = getattr(start, "phases", None)
    if not isinstance(phases, Mapping):
        raise ConfigError("start", shown(start), "it has no phases", "give a prediction or what parse_log returns")
    if not 1 <= len(phases) <= _MOST_PHASES:
        problem = f"there are {len(phases)} of them" if phases else "the log gives none"
        raise ConfigError("phases", MISSING, problem, f"give a start with 1 to {_MOST_PHASES} phases")
    seconds = {str(name): seconds_of(value, f"phases.{name}") for name, value in phases.items()}
    lost = seconds.pop(Phase.UNATTRIBUTED.value, 0.0)
    stamps, derived = moments_of(start), _part(start, "derived", Collection)
    lines, joint, facts = (dict(_part(start, name, Mapping)) for name in ("phase_evidence", "joint", "facts"))
    stages = [
        Stage(
            "+".join(map(str, joint[name])) if isinstance(joint.get(name), list | tuple) else name,
            value,
            stamps.get(getattr(lines.get(name), "line_number", -1)),
            name in derived,
        )
        for name, value in seconds.items()
    ]
    download = seconds_of(facts.get("download_s", 0.0), "facts.download_s")
    if download:
        before = next((i for i, stage in enumerate(stages) if stage.label == Phase.WEIGHT_LOAD), len(stages))
        stages.insert(before, Stage("download", download, None, is_derived=False))
    return stages, lost


def logged_rows(start: Any, stages: Sequence[Stage], lost_s: float) -> list[Row]:
    """A row for each phase that took time, and one for the time between them that nothing is known of."""
    taken = sum(stage.seconds for stage in stages)
    stamps = [stage.stamp_s for stage in stages if stage.stamp_s is not None]
    wall = optional_seconds(start, "wall_s")
    whole = taken + lost_s if wall is None else wall
    slack = (optional_seconds(start, "stamp_resolution_s") or 1.0) * (len(stages) + 1)
    if stamps and wall is not None and taken > 1.01 * wall + slack:
        begins = [max(0.0, (wall if stage.stamp_s is None else stage.stamp_s) - stage.seconds) for stage in stages]
    else:
        gaps = _gaps(stages, max(0.0, (whole if wall is not None else max([whole, *stamps])) - taken))
        ends = np.cumsum([stage.seconds for stage in stages]) + gaps
        begins = [float(end) - stage.seconds for end, stage in zip(ends, stages, strict=True)]
    spans = [
        Span(stage.label, begin, stage.seconds, stage.seconds) for begin, stage in zip(begins, stages, strict=True)
    ]
    rows = [
        Row(
            stage.label.replace("+", " + "),
            (span,),
            ("~" if stage.is_derived else "") + format_seconds(stage.seconds),
        )
        for stage, span in zip(stages, spans, strict=True)
        if stage.seconds
    ]
    if lost_s:
        rows.append(Row(Phase.UNATTRIBUTED.value, _holes(spans, whole), format_seconds(lost_s)))
    return rows


def _gaps(stages: Sequence[Stage], most_s: float) -> FloatArray:
    """Seconds in which nothing is known to run, before the end of each stage: never less than before the stage before it, from 0 to ``most_s``, and as
    near to what the stamps say as that allows (least squares; the pool-adjacent-violators algorithm, Barlow et al. 1972)."""
    pools: list[tuple[float, int, int]] = []  # mean, stamps, stages
    elapsed = 0.0
    for stage in stages:
        elapsed += stage.seconds
        if stage.stamp_s is None:
            pools.append((pools[-1][0] if pools else 0.0, 0, 1))
        else:
            pools.append((stage.stamp_s - elapsed, 1, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (last, m, j), (before, n, i) = pools.pop(), pools.pop()
            pools.append(((before * n + last * m) / (n + m) if n + m else before, n + m, i + j))
    gaps: FloatArray = np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])
    return np.clip(gaps, 0.0, most_s)


def _holes(spans: Sequence[Span], whole: float) -> tuple[Span, ...]:
    """Where nothing runs."""
    begins = [span.begin_s for span in spans] + [whole]
    ends = [0.0, *(span.end_s for span in spans)]
    holes = ((end, begin - end) for end, begin in zip(ends, begins, strict=True))
    return tuple(Span(Phase.UNATTRIBUTED.value, at, length, length) for at, length in holes if length > 1e-6)


def rank_rows(start: Any, rows: Sequence[Row]) -> list[Row]:
    """A row for each process that printed figures of its own, where there are several."""
    begins = {span.name.partition("+")[0]: span.begin_s for row in rows for span in row.spans[:1]}
    found = []
    for name, figures in dict(_part(start, "ranks", Mapping)).items():
        spans: list[Span] = []
        for figure, phase in _RANK_FIGURES.items():
            if isinstance(figures, Mapping) and figure in figures and phase in begins:
                seconds = seconds_of(figures[figure], f"ranks.{figure}")
                begin = max([begins[phase], *(span.end_s for span in spans if span.name == phase)])
                spans.append(Span(phase.value, begin, seconds, seconds))
        if spans:
            found.append(Row(str(name) or "main process", tuple(spans), height=0.5))
    if len(found) <= 1:
        return []
    if len(found) <= _MOST_RANKS:
        return found
    slowest = sorted(found, key=lambda row: -sum(span.elapsed_s for span in row.spans))[:_MOST_RANKS]
    return [Row(f"slowest of {len(found)} processes:", ()), *(row for row in found if row in slowest)]
