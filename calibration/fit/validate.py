"""Errors on groups that a fit has not seen, beside what simpler predictors make of the same groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.fit.calibrate import calibrate, nearest_prior
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.phases import PHASES
from startup_model.predictor import ProfileLike, as_profile, predict
from startup_model.profile import Profile
from startup_model.sizes.weights import weight_sizes

Vector = NDArray[np.float64]

MAX_FOLDS = 20
"""Groups are left out one at a time up to this number, in as many folds beyond."""

GRAPH_COUNT = "compiled_graph_count"
"""Fact of a run that the published predictor needs: compiled graphs, known after a first run only."""


class HeldOutRow(NamedTuple):
    """One run of a group that the fit had not seen."""

    group: str
    measured_s: float
    predicted_s: float
    interval: tuple[float, float]
    phases: Mapping[str, tuple[float, float]]
    """Phase -> (measured, predicted) seconds."""
    bound_s: float
    """``slo_bound_s`` of the prediction."""

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def phase_errors(self) -> Mapping[str, float]:
        """Phase -> predicted / measured - 1, for phases that take more than a tenth of a second."""
        return {
            name: predicted / measured - 1.0 for name, (measured, predicted) in self.phases.items() if measured > 0.1
        }


class PhaseErrors(NamedTuple):
    """Errors of one phase, or of the total, over all held-out runs."""

    mape: float
    max_error: float
    r2: float
    runs: int


class HeldOutReport(NamedTuple):
    """Held-out predictions, and the errors of simpler predictors on the same groups."""

    rows: tuple[HeldOutRow, ...]
    baselines: Mapping[str, float] = {}
    """Predictor -> mean absolute relative error of totals, left out the same way."""
    by_profile: bool = False
    """True: a profile was judged without refitting; it may have seen the runs."""

    @property
    def mape(self) -> float:
        """Mean absolute relative error of totals, as a fraction."""
        return float(np.mean([abs(row.error) for row in self.rows]))

    @property
    def max_error(self) -> float:
        """Largest absolute relative error of a total, as a fraction."""
        return abs(self.worst.error)

    @property
    def worst(self) -> HeldOutRow:
        """The row with the largest error."""
        return max(self.rows, key=lambda row: abs(row.error))

    @property
    def coverage(self) -> float:
        """Share of totals that lie within their interval."""
        return float(np.mean([row.interval[0] <= row.measured_s <= row.interval[1] for row in self.rows]))

    @property
    def r2(self) -> float:
        """Coefficient of determination of the totals."""
        return _errors([(row.measured_s, row.predicted_s) for row in self.rows]).r2

    @property
    def per_phase(self) -> Mapping[str, PhaseErrors]:
        """Phase -> its errors over the runs that measured it."""
        names = [str(phase) for phase in PHASES if any(phase in row.phases for row in self.rows)]
        return {name: _errors([row.phases[name] for row in self.rows if name in row.phases]) for name in names}

    def table(self) -> str:
        """The rows as text, one a line, with the mean, the worst and the baselines below."""
        lines = [f"{'model' if self.by_profile else 'left out':32s} {'measured':>10s} {'predicted':>10s} {'error':>8s}"]
        lines += [f"{r.group[:32]:32s} {r.measured_s:9.2f}s {r.predicted_s:9.2f}s {r.error:+8.2%}" for r in self.rows]
        lines.append(f"mean absolute error {self.mape:.2%}, worst {self.worst.error:+.2%} ({self.worst.group})")
        lines += [f"{name}: {error:.2%}" for name, error in self.baselines.items()]
        return "\n".join(lines)


def leave_one_out(runs: Sequence[RunRecord], profile_without: Callable[[str], Profile]) -> HeldOutReport:
    """Predict every run with a profile that was fitted without any run of its model.

    ``profile_without(model)`` fits it. Runs without wall time are passed over.
    """
    profiles = {name: profile_without(name) for name in dict.fromkeys(run.model.name for run in runs)}
    return HeldOutReport(
        tuple(_row(run, run.model.name, profiles[run.model.name]) for run in runs if run.ready_s is not None)
    )


def cross_validate(
    runs: Iterable[RunRecord],
    by: str | Callable[[RunRecord], str] = "model",
    *,
    prior: ProfileLike | Literal["none"] | None = None,
    level: float = 0.9,
) -> HeldOutReport:
    """Errors of groups that the fit has not seen: each group is left out in turn (scikit-learn's group splitters).

    by: ``"model"``, ``"host"``, ``"dataset"``, a field of EngineConfig such as ``"quantization"``, or a function that names the group of a run. prior: as in ``calibrate``; what it remembers of the models that are left
    out is not used. ``"host"`` predicts a host from the other hosts of the same processor, or from all others where there is none. Runs of unknown page-cache state
    are judged without their load. A prior that was fitted on runs of this call knows their host: quote ``"none"`` for the published runs.
    Raises UnknownNameError for an unknown column, ConfigError for fewer than two groups.
    """
    from sklearn.model_selection import GroupKFold, LeaveOneGroupOut

    group_of = by if callable(by) else _column(by)
    if prior is not None and prior != "none":
        prior = as_profile(prior)
    usable = [run for run in runs if run.status == "ok" and _wall(run) > 0]
    groups = [group_of(run) for run in usable]
    count = len(set(groups))
    if count < 2:
        raise ConfigError(
            "runs", f"{count} group(s)", "leaving one out needs two", "give runs of more models, or another 'by'"
        )
    splitter = LeaveOneGroupOut() if count <= MAX_FOLDS else GroupKFold(n_splits=MAX_FOLDS)
    rows: list[tuple[int, HeldOutRow]] = []
    simple: dict[str, list[float]] = {}
    for train, test in splitter.split(usable, groups=groups):
        kept, tried = [usable[i] for i in train], [usable[i] for i in test]
        near = _near(kept, tried) if by == "host" else kept
        start: Profile | Literal["none"] = "none"
        if prior != "none":
            known = prior if isinstance(prior, Profile) else nearest_prior(near)
            start = known.without_model_effects({run.model.structure for run in tried})
        profile = calibrate(near, start, allow_mixed_hosts=by == "host").profile
        profile = profile.without_model_effects({run.model.structure for run in tried})
        for i, run in zip(test, tried, strict=True):
            rows.append((int(i), _row(run, groups[i], profile, level)))
        for name, predicted in _simple_predictors(kept, tried).items():
            measured = np.array([_wall(run) for run in tried])
            simple.setdefault(name, []).extend(np.abs(predicted / measured - 1.0))
    ordered = tuple(row for _, row in sorted(rows, key=lambda item: item[0]))
    baselines = {name: float(np.mean(errors)) for name, errors in simple.items() if len(errors) == len(usable)}
    return HeldOutReport(ordered, baselines)


def judge(runs: Sequence[RunRecord], profile: Profile, *, level: float = 0.9) -> HeldOutReport:
    """Errors of a profile, on runs that it may or may not have been fitted on: the caller knows. What it remembers of models that it has measured is not
    used. Raises ConfigError when no run has a wall time."""
    usable = [run for run in runs if run.status == "ok" and _wall(run) > 0]
    if not usable:
        raise ConfigError("runs", "none", "no run has a wall time and status ok", "give some")
    profile = profile.without_model_effects()
    return HeldOutReport(tuple(_row(run, run.model.name, profile, level) for run in usable), by_profile=True)


def _near(kept: Sequence[RunRecord], tried: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """The runs of hosts with the processor of those that are tried, if there are any: most phases are bound by it."""
    processors = {run.hardware.cpu.model for run in tried}
    return [run for run in kept if run.hardware.cpu.model in processors] or kept


def _column(name: str) -> Callable[[RunRecord], str]:
    """The column that names the group of a run. Raises UnknownNameError."""
    named: Mapping[str, Callable[[RunRecord], str]] = {
        "model": lambda run: run.model.name,
        "host": lambda run: run.host or run.hardware.name,
        "dataset": lambda run: run.dataset,
    }
    fields = EngineConfig.model_fields
    if name in named:
        return named[name]
    if name in fields:
        return lambda run: str(getattr(run.engine, name))
    raise UnknownNameError("by", name, (*named, *fields))


def _wall(run: RunRecord) -> float:
    """Wall time of a run; less its load where nobody knows where that came from."""
    load = run.phases.get("weight_load", 0.0) if run.engine.page_cache == "unknown" else 0.0
    return (run.ready_s or 0.0) - load


def _row(run: RunRecord, group: str, profile: Profile, level: float = 0.9) -> HeldOutRow:
    found = predict(run.model, run.hardware, run.engine, profile=profile, level=level)
    unknown = run.engine.page_cache == "unknown" and "weight_load" in run.phases
    load = found.phases["weight_load"].seconds if unknown and "weight_load" in found.phases else 0.0
    measured = dict(run.phases) | {"unattributed": max(run.unattributed_s or 0.0, 0.0)}
    phases = {
        name: (seconds, found.phases[name].seconds)
        for name, seconds in measured.items()
        if name in found.phases and not (unknown and name == "weight_load")
    }
    total = found.total_s - load
    low, high = (edge * total / found.total_s for edge in found.interval)
    return HeldOutRow(group, _wall(run), total, (low, high), phases, found.slo_bound_s)


def _errors(pairs: Sequence[tuple[float, float]]) -> PhaseErrors:
    measured, predicted = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    relative = np.abs(predicted - measured) / np.maximum(measured, 1e-3)
    spread = float(np.sum(np.square(measured - measured.mean())))
    r2 = 1.0 - float(np.sum(np.square(predicted - measured))) / spread if spread > 0 else float("nan")
    return PhaseErrors(float(relative.mean()), float(relative.max()), r2, len(pairs))


# --- simpler predictors ---------------------------------------------------------------------------------------------------


def _simple_predictors(kept: Sequence[RunRecord], tried: Sequence[RunRecord]) -> dict[str, Vector]:
    """What a constant, a line in bytes, and the published method make of the runs that were left out."""
    walls = np.array([_wall(run) for run in kept])
    predicted = {
        "constant": np.full(len(tried), walls.mean()),
        "bytes / bandwidth + constant": _line(_bytes(kept), walls, _bytes(tried)),
    }
    if all(GRAPH_COUNT in run.facts for run in (*kept, *tried)):
        predicted["published method (stage by stage, needs the graph count of a first run)"] = _published(kept, tried)
    return predicted


def _published(kept: Sequence[RunRecord], tried: Sequence[RunRecord]) -> Vector:
    """The method of arXiv 2606.07362: one straight line a stage, in model size for loading and profiling, in compiled graphs for
    dynamo, graph load and capture, in tokenizer size for the tokenizer; constants for the rest."""
    measure: dict[str, Callable[[RunRecord], float]] = {
        "weight_load": lambda run: float(run.model.parameters),
        "memory_profiling": lambda run: float(run.model.parameters),
        "tokenizer_load": lambda run: float(run.model.tokenizer_bytes or 0),
        **dict.fromkeys(("graph_trace", "graph_compile", "graph_capture"), lambda run: run.facts[GRAPH_COUNT]),
    }
    total = np.zeros(len(tried))
    for name in dict.fromkeys(name for run in kept for name in (*run.phases, "unattributed")):
        if name == "weight_load" and any(run.engine.page_cache == "unknown" for run in (*kept, *tried)):
            continue
        rest = [run.unattributed_s if name == "unattributed" else 0.0 for run in kept]
        seconds = np.array([run.phases.get(name, left) or 0.0 for run, left in zip(kept, rest, strict=True)])
        size = measure.get(name)
        if size is None:
            total += seconds.mean()
        else:
            total += _line(np.array([*map(size, kept)]), seconds, np.array([*map(size, tried)]))
    return total


def _bytes(runs: Sequence[RunRecord]) -> Vector:
    return np.array([weight_sizes(run.model, run.engine, run.hardware, 2.0).node_bytes for run in runs])


def _line(x: Vector, y: Vector, at: Vector) -> Vector:
    """Least-squares line through (x, y), at other places."""
    if np.ptp(x) == 0:
        return np.full(len(at), y.mean())
    slope, constant = np.polyfit(x / x.max(), y, 1)
    return np.asarray(slope * at / x.max() + constant)
