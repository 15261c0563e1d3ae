"""The rows and the title of a prediction."""

from __future__ import annotations

from startup_model.phases import Phase
from startup_model.pipelines import PIPELINES, Overlap
from startup_model.plots.rows import Row, Span
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

__all__ = ["prediction_rows", "prediction_title"]


def prediction_title(prediction: StartupPrediction) -> str:
    """Model, node and engine, and why it does not start."""
    context = prediction.context
    end = "" if prediction.memory.fits else f", does not start ({prediction.memory.status})"
    return f"{context.model_name} on {context.hardware_name}, {context.engine_name}{end}"


def prediction_rows(prediction: StartupPrediction) -> list[Row]:
    """A row for each phase that takes time; branches that run at the same time begin together."""
    branch_of = _branches(prediction.context.pipeline_name)
    rows: list[Row] = []
    counted = 0.0
    began: dict[int, float] = {}
    inside: dict[tuple[int, int], float] = {}
    for phase, entry in prediction.phases.items():
        branch = branch_of.get(phase)
        begin = counted
        if branch is not None:
            begin = began.setdefault(branch[0], counted) + inside.get(branch, 0.0)
            inside[branch] = inside.get(branch, 0.0) + entry.elapsed_s
        counted += entry.seconds
        if entry.elapsed_s > 0.0:
            span = Span(phase.value, begin, entry.seconds, entry.elapsed_s)
            rows.append(Row(phase.value, (span,), _seconds_text(span)))
    return rows


def _seconds_text(span: Span) -> str:
    if span.counted_s >= span.elapsed_s:
        return format_seconds(span.counted_s)
    counted = f"{format_seconds(span.counted_s)} of " if span.counted_s else ""
    return f"{counted}{format_seconds(span.elapsed_s)}{'' if counted else ', hidden'}"


def _branches(pipeline_name: str) -> dict[Phase, tuple[int, int]]:
    """Phase -> which overlap of the pipeline it belongs to, and which branch of it."""
    pipeline = next((pipeline for pipeline in PIPELINES if pipeline.name == pipeline_name), None)
    return {
        step.phase: (i, j)
        for i, part in enumerate(pipeline.parts if pipeline is not None else ())
        if isinstance(part, Overlap)
        for j, branch in enumerate(part.branches)
        for step in branch
    }
