"""A grid of starts at once: one plan for each combination of what shapes a start, its numbers as arrays, the same terms as ``predict``.

An array has one dimension for each axis, of length 1 where it does not depend on the axis: most phases depend on few, so that a grid costs much less
than its points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from startup_model.changes import PARTS, apply_changes, with_accelerators
from startup_model.errors import StartupModelError
from startup_model.formula import FloatArray
from startup_model.grid.axes import Axis
from startup_model.inputs import NodeNumbers, node_inputs
from startup_model.phases import Phase
from startup_model.pipelines import Pipeline, Step, Timing, run_pipeline, steps_of
from startup_model.plan import COLD_INPUTS, SEGMENTS, Plan, make_plan
from startup_model.prediction import Start, TermCall
from startup_model.terms import Term

__all__ = [
    "Branch",
    "Grid",
    "StepArrays",
    "Times",
    "branches_of",
    "make_grid",
    "own_spread",
    "shared_spread",
    "times_of",
]

_BLOCK = 2**16
"""Elements that a term is called with at once: small enough for the caches of a processor."""


class Grid(NamedTuple):
    """The plans behind the points: one for each combination of the axes that shape a start."""

    axes: tuple[Axis, ...]
    plans: np.ndarray[Any, Any]
    """Objects: a Plan, or the message of what is wrong. One dimension an axis, of length 1 for number axes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Points by axis."""
        return tuple(axis.size for axis in self.axes)

    def gather(self, read: Callable[[Plan], Any], absent: Any = None) -> np.ndarray[Any, Any]:
        """A value of every plan; ``absent`` (None: that of the first plan) where there is none. Length 1 where an axis does not matter."""
        first = next(plan for plan in self.plans.flat if isinstance(plan, Plan))
        fill = read(first) if absent is None else absent
        values = [read(plan) if isinstance(plan, Plan) else fill for plan in self.plans.flat]
        return _compact(np.array(values).reshape(self.plans.shape))

    def plan_at(self, place: Sequence[int]) -> Plan | str:
        """The plan of a point, or what is wrong with it."""
        found: Plan | str = self.plans[tuple(0 if axis.number else i for axis, i in zip(self.axes, place, strict=True))]
        return found

    def start_at(self, plan: Plan, place: Sequence[int]) -> Start:
        """The start of a point, the numbers of its axes put in."""
        numbers = {
            axis.name: float(axis.numbers[i])
            for axis, i in zip(self.axes, place, strict=True)
            if axis.numbers is not None
        }
        start, tier = plan.start, plan.start.hardware.storage.tier
        concurrent = numbers.pop("hardware.storage.concurrent_starts", None)
        if concurrent is not None:
            start = apply_changes(start, {"hardware.storage.concurrent_starts": int(concurrent)})
        network = numbers.get("hardware.network_bandwidth", start.hardware.network_bandwidth)
        disk = next((name for name in numbers if name.rsplit(".", 1)[-1] in ("network_disk", "cold_bandwidth")), None)
        if network and disk and (tier == "network_disk" or disk.endswith("network_disk")):
            numbers[disk] = min(numbers[disk], network)
        given = start.hardware.storage.network_disk
        if network and given and given > network:
            start = apply_changes(start, {"hardware.storage.network_disk": network})
        return apply_changes(start, numbers)

    def along(self, axis: int) -> FloatArray:
        """The values of a number axis, in the dimension of the axis."""
        shape = [1] * len(self.axes)
        shape[axis] = self.axes[axis].size
        return np.asarray(self.axes[axis].numbers).reshape(shape)


class StepArrays(NamedTuple):
    """One step of a pipeline at all points."""

    term: Term
    inputs: tuple[FloatArray, ...]
    coefficients: Mapping[str, FloatArray]
    scale: FloatArray
    """0 where the step is not part of a start."""
    doubts: Mapping[str, FloatArray]

    def seconds(self) -> FloatArray:
        """Its time."""
        return _blockwise(self.term.function, self.inputs, self.coefficients, self.scale)

    def doubted_seconds(self) -> FloatArray:
        """As ``TermCall.doubted_seconds``."""
        zero = {name: np.zeros_like(value) for name, value in self.coefficients.items()}
        alone = (
            _blockwise(self.term.function, self.inputs, zero | {name: self.coefficients[name]}, self.scale * deviation)
            for name, deviation in self.doubts.items()
        )
        return sum(alone, start=np.zeros((1,) * self.scale.ndim))


class Branch(NamedTuple):
    """The steps of all starts that take one pipeline; those of other starts take no time here."""

    pipeline: Pipeline
    steps: Mapping[tuple[Phase, str], StepArrays]
    """By phase and name of the term; a step that no start has is missing."""
    cold: Mapping[str, tuple[StepArrays, StepArrays]]
    """Cache of unknown state -> its step as it is taken, and cold."""


class Times(NamedTuple):
    """Seconds of all points. Each array has a dimension for each axis and broadcasts to the shape of the grid."""

    total: FloatArray
    phases: Mapping[Phase, FloatArray]
    elapsed: Mapping[Phase, FloatArray]
    """More than in ``phases`` where a phase runs beside a longer one."""
    cold_extra: FloatArray
    """What the cold states would add where the state of a cache is unknown."""


# --- plans --------------------------------------------------------------------------------------------------------------


def make_grid(base: Start, axes: Sequence[Axis]) -> Grid:
    """A plan for each combination of the axes that shape a start; a combination that cannot be keeps its message instead.

    A node that does not say how many accelerators it has has as many as the engine needs.
    """
    plans = np.empty(tuple(1 if axis.number else axis.size for axis in axes), dtype=object)
    touching = {part: [i for i, axis in enumerate(axes) if part in axis.parts] for part in PARTS}
    known: dict[tuple[str, tuple[int, ...]], Any] = {}
    for index in np.ndindex(*plans.shape):
        chosen = [axis.changes[i] if axis.changes else {} for axis, i in zip(axes, index, strict=True)]
        parts = {}
        for part, which in touching.items():
            key = (part, tuple(index[i] for i in which))
            if key not in known:
                known[key] = _part(base, part, [chosen[i] for i in which])
            parts[part] = known[key]
        plans[index] = _plan(parts)
    return Grid(tuple(axes), plans)


def _part(base: Start, part: str, chosen: Iterable[Mapping[str, Any]]) -> Any:
    """One part of a start with the changes that concern it, or the error that they make."""
    changes = {
        name: value for one in chosen for name, value in one.items() if name == part or name.startswith(f"{part}.")
    }
    try:
        return getattr(apply_changes(base, changes), part)
    except StartupModelError as error:
        return error


def _plan(parts: Mapping[str, Any]) -> Plan | str:
    """The plan of one combination, or what is wrong with it in one line."""
    try:
        for part in parts.values():
            if isinstance(part, StartupModelError):
                raise part
        start = Start(**parts)
        return make_plan(start._replace(hardware=with_accelerators(start.hardware, start.engine)))
    except StartupModelError as error:
        return str(error)


# --- arrays -------------------------------------------------------------------------------------------------------------


def branches_of(grid: Grid, include: Sequence[Phase]) -> tuple[Branch, ...]:
    """The steps of all plans as arrays, by pipeline."""
    inputs = _inputs(grid)
    pipelines = {plan.pipeline.name: plan.pipeline for plan in grid.plans.flat if isinstance(plan, Plan)}
    return tuple(_branch(grid, pipeline, inputs, include) for pipeline in pipelines.values())


def _inputs(grid: Grid) -> dict[str, FloatArray]:
    """Every input of the terms: sizes from the plans, numbers of the node from the plans or from an axis."""
    first = next(plan for plan in grid.plans.flat if isinstance(plan, Plan))
    numbers = {
        name: grid.gather(lambda plan, i=i: plan.node[i]).astype(float)  # type: ignore[misc]
        for i, name in enumerate(NodeNumbers._fields)
    }
    for i, axis in enumerate(grid.axes):
        if axis.number is not None:
            effect = grid.gather(lambda plan, tiers=axis.tiers: plan.start.hardware.storage.tier in tiers)  # type: ignore[misc]
            values = grid.along(i)
            numbers[axis.number] = values if effect.all() else np.where(effect, values, numbers[axis.number])
    from_node = node_inputs(NodeNumbers(**numbers), grid.gather(lambda plan: plan.inputs["workers"]).astype(float))
    sizes = {
        name: grid.gather(lambda plan, name=name: plan.inputs[name]).astype(float)  # type: ignore[misc]
        for name in first.inputs
        if name not in from_node
    }
    return sizes | {name: np.asarray(value) for name, value in from_node.items()}


def _branch(grid: Grid, pipeline: Pipeline, inputs: Mapping[str, FloatArray], include: Sequence[Phase]) -> Branch:
    def calls_of(plan: Plan, step: Step) -> Iterable[TermCall]:
        calls = plan.calls.get(step.phase) or plan.segment_calls.get(step.phase, ())
        return (call for call in calls if call.term is step.term)

    steps = {}
    for step in steps_of(pipeline):
        if step.phase in SEGMENTS and step.phase not in include:
            continue
        arrays = _step(grid, pipeline, inputs, lambda plan, step=step: next(iter(calls_of(plan, step)), None))  # type: ignore[misc]
        if arrays is not None:
            steps[step.phase, step.term.name] = arrays
    cold = {}
    for name, replaced in COLD_INPUTS.items():
        taken, then = (
            _step(
                grid,
                pipeline,
                dict(inputs) | {old: inputs[new] for old, new in changed.items()},
                lambda plan, i=i: plan.cold_calls[name][i] if name in plan.cold_calls else None,  # type: ignore[misc] # noqa: B023
            )
            for i, changed in enumerate(({}, replaced))
        )
        if taken is not None and then is not None:
            cold[name] = (taken, then)
    return Branch(pipeline, steps, cold)


def _step(
    grid: Grid, pipeline: Pipeline, inputs: Mapping[str, FloatArray], call_of: Callable[[Plan], TermCall | None]
) -> StepArrays | None:
    """One step at all points; None when no start of the pipeline has it."""

    def own(plan: Plan) -> TermCall | None:
        return call_of(plan) if plan.pipeline is pipeline else None

    first = next((call for plan in grid.plans.flat if isinstance(plan, Plan) and (call := own(plan))), None)
    if first is None:
        return None

    def coefficient(name: str) -> FloatArray:
        return grid.gather(lambda plan: (own(plan) or first).coefficients[name], first.coefficients[name])

    def doubt(name: str) -> FloatArray:
        return grid.gather(lambda plan: (own(plan) or nothing).doubts.get(name, 0.0), 0.0)

    nothing = first._replace(scale=0.0, doubts={})
    return StepArrays(
        term=first.term,
        inputs=tuple(inputs[name] for name in first.term.inputs),
        coefficients={name: coefficient(name) for name in first.coefficients},
        scale=grid.gather(lambda plan: (own(plan) or nothing).scale, 0.0),
        doubts={name: array for name in first.coefficients if (array := doubt(name)).any()},
    )


# --- times --------------------------------------------------------------------------------------------------------------


def times_of(grid: Grid, branches: Sequence[Branch]) -> Times:
    """Seconds of all points: of each phase, and in all; of overlapping branches of a pipeline only the longest counts."""
    nothing = np.zeros((1,) * len(grid.axes))
    phases: dict[Phase, FloatArray] = {}
    elapsed: dict[Phase, FloatArray] = {}
    extra = nothing
    for branch in branches:
        seconds = {key: step.seconds() for key, step in branch.steps.items()}
        timings = run_pipeline(branch.pipeline, lambda step, known=seconds: known.get((step.phase, step.term.name)))  # type: ignore[misc]
        for step in steps_of(branch.pipeline):  # phases that flags switch off take no time
            if step.phase not in SEGMENTS:
                timings.setdefault(step.phase, Timing(nothing, nothing))
        for phase, timing in timings.items():
            phases[phase] = phases[phase] + timing.seconds if phase in phases else np.asarray(timing.seconds)
            elapsed[phase] = elapsed[phase] + timing.elapsed if phase in elapsed else np.asarray(timing.elapsed)
        for taken, cold in branch.cold.values():
            extra = extra + np.maximum(0.0, cold.seconds() - taken.seconds())
    total = np.zeros(grid.shape)
    for values in phases.values():
        total += values
    ordered = {phase: phases[phase] for phase in Phase if phase in phases}
    return Times(total, ordered, {phase: elapsed[phase] for phase in ordered}, extra)


def shared_spread(grid: Grid, branches: Sequence[Branch], times: Times) -> FloatArray:
    """Standard deviation of the logarithm that the phases of a start share, relative to its total: Σ seconds × deviation / total."""
    spread = np.zeros(grid.shape)
    for phase, seconds in times.phases.items():
        if phase in SEGMENTS:
            continue
        usual = grid.gather(lambda plan, phase=phase: plan.spreads.get(phase, 0.0), 0.0)  # type: ignore[misc]
        doubted = sum(
            (step.doubted_seconds() for branch in branches for key, step in branch.steps.items() if key[0] is phase),
            start=np.zeros((1,) * len(grid.axes)),
        )
        elapsed = times.elapsed[phase]
        shape = np.broadcast_shapes(doubted.shape, elapsed.shape)
        share = np.divide(doubted, elapsed, out=np.zeros(shape), where=elapsed > 0)
        spread += seconds * (usual + share)
    return np.divide(spread, times.total, out=spread, where=times.total > 0)


def own_spread(grid: Grid, times: Times) -> FloatArray:
    """Standard deviation of the logarithm that is independent of the host: of the time to ready, and of each segment that was asked for."""
    common = grid.gather(lambda plan: plan.common_spread).astype(float)
    segments = {phase: seconds for phase, seconds in times.phases.items() if phase in SEGMENTS}
    if not segments:
        return common
    ready = times.total - sum(segments.values(), start=np.zeros((1,) * len(grid.axes)))
    squares = (common * ready) ** 2
    for phase, seconds in segments.items():
        spread = _segment_spread(grid, phase)
        squares = squares + (spread * seconds) ** 2
    return np.divide(np.sqrt(squares), times.total, out=np.zeros(grid.shape), where=times.total > 0)


def _segment_spread(grid: Grid, phase: Phase) -> FloatArray:
    """As ``Plan.segment_spread``; a number that an axis gives has no scatter."""
    given = {axis.name.removeprefix("hardware.") for axis in grid.axes if axis.number is not None}
    return grid.gather(lambda plan: plan.segment_spread(phase, given)).astype(float)


def _compact(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with length 1 along every axis on which it does not depend."""
    for axis in range(values.ndim):
        first = values.take([0], axis)
        if values.shape[axis] > 1 and (values == first).all():
            values = first
    return values


def _blockwise(
    function: Callable[..., Any],
    inputs: Sequence[FloatArray],
    coefficients: Mapping[str, FloatArray],
    scale: FloatArray,
) -> FloatArray:
    """``function(*inputs, **coefficients) * scale``, in pieces that a processor's caches hold."""
    shape = np.broadcast_shapes(scale.shape, *(a.shape for a in inputs), *(a.shape for a in coefficients.values()))
    if math.prod(shape) <= _BLOCK:
        return np.broadcast_to(function(*inputs, **coefficients) * scale, shape)
    result = np.empty(shape)
    for block in _blocks(shape):
        here = {name: _cut(array, block) for name, array in coefficients.items()}
        result[block] = function(*(_cut(array, block) for array in inputs), **here) * _cut(scale, block)
    return result


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The array in pieces of at most ``_BLOCK`` elements, in the order of memory."""
    split, inner = len(shape), 1
    while split and inner * shape[split - 1] <= _BLOCK:
        split -= 1
        inner *= shape[split]
    step = max(1, _BLOCK // inner)
    rest = (slice(None),) * (len(shape) - split)
    for lead in itertools.product(*(range(length) for length in shape[: split - 1])):
        for begin in range(0, shape[split - 1], step):
            yield (*(slice(i, i + 1) for i in lead), slice(begin, begin + step), *rest)


def _cut(array: FloatArray, block: tuple[slice, ...]) -> FloatArray:
    """The part of an array that belongs to a block; along an axis of length 1 all of it."""
    return array[tuple(one if length > 1 else slice(None) for one, length in zip(block, array.shape, strict=True))]
