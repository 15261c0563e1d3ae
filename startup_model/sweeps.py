"""``sweep``: predictions over a grid, in one evaluation of the terms on arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from startup_model.axes import Axis, read_axes
from startup_model.changes import (
    PARTS,
    apply_changes,
    with_accelerators,
)
from startup_model.errors import MISSING, ConfigError, StartupModelError, UnknownNameError, shown
from startup_model.evaluate import (
    Time,
    check_level,
    check_probability,
    own_spread,
    shared_spread,
    spread_factor,
    student_quantile,
    times,
)
from startup_model.formula import FloatArray
from startup_model.frames import data_frame
from startup_model.hardware import NODE_NUMBERS
from startup_model.phases import PHASES, SEGMENTS, Term
from startup_model.prediction import SAFETY_FACTOR, check_safety_factor
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, ProfileLike, as_start, check_include
from startup_model.recipe import Call, Prepared, Recipe, Start, node_inputs, prepare
from startup_model.warnings import describe, domain_warnings, state_warnings

if TYPE_CHECKING:
    import pandas as pd

# --- all points at once -------------------------------------------------------------------------------------------------


class Grid(NamedTuple):
    """The starts behind the points: one for each combination of the axes that shape a start.

    An array of it has one dimension for each axis, of length 1 where it does not depend on the axis: most phases depend on few, so that a grid
    costs much less than its points.
    """

    axes: tuple[Axis, ...]
    starts: np.ndarray[Any, Any]
    """Objects: a Prepared, or the message of what is wrong. One dimension an axis, of length 1 for number axes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Points by axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def valid(self) -> list[Prepared]:
        """The starts that can be."""
        return [start for start in self.starts.flat if isinstance(start, Prepared)]

    def gather(self, read: Callable[[Prepared], Any], absent: Any = None) -> np.ndarray[Any, Any]:
        """A value of every start; ``absent`` (None: that of the first start) where there is none. Length 1 where an axis does not matter."""
        fill = read(self.valid[0]) if absent is None else absent
        values = np.array([read(start) if isinstance(start, Prepared) else fill for start in self.starts.flat])
        values = values.reshape(self.starts.shape)
        for axis in range(values.ndim):
            first = values.take([0], axis)
            if values.shape[axis] > 1 and (values == first).all():
                values = first
        return values

    def start_at(self, place: Sequence[int]) -> Prepared | str:
        """What stands behind a point, or what is wrong with it."""
        found: Prepared | str = self.starts[
            tuple(0 if axis.number else i for axis, i in zip(self.axes, place, strict=True))
        ]
        return found

    def exact_start(self, found: Prepared, place: Sequence[int]) -> Start:
        """The start of a point, the numbers of its axes put in."""
        numbers = {
            axis.name: float(axis.numbers[i])
            for axis, i in zip(self.axes, place, strict=True)
            if axis.numbers is not None
        }
        start, tier = found.start, found.start.hardware.storage.tier
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


class _Route(NamedTuple):
    """The calls, as arrays, of all starts that pass through the phases in one order; those of other starts take no time here."""

    waits: Mapping[str, tuple[str, ...]]
    calls: Mapping[str, tuple[Call, ...]]
    segments: Mapping[str, tuple[Call, ...]]
    cold: Mapping[str, tuple[Call, Call]]


class _Totals(NamedTuple):
    """Seconds of all points; each array has a dimension for each axis and broadcasts to the shape of the grid."""

    total: FloatArray
    phases: Mapping[str, FloatArray]
    cold_extra: FloatArray
    """What the cold states would add where the state of a cache is unknown."""
    routes: Sequence[tuple[_Route, Mapping[str, Time]]]


def _make_grid(base: Start, axes: Sequence[Axis]) -> Grid:
    """A start for each combination of the axes that shape one; a combination that cannot be keeps its message instead.

    A node that does not say how many accelerators it has has as many as the engine needs.
    """
    starts = np.empty(tuple(1 if axis.number else axis.size for axis in axes), dtype=object)
    touching = {part: [i for i, axis in enumerate(axes) if part in axis.parts] for part in PARTS}
    known: dict[tuple[str, tuple[int, ...]], Any] = {}
    for index in np.ndindex(*starts.shape):
        chosen = [axis.changes[i] if axis.changes else {} for axis, i in zip(axes, index, strict=True)]
        parts = {}
        for part, which in touching.items():
            key = (part, tuple(index[i] for i in which))
            if key not in known:
                known[key] = _part(base, part, [chosen[i] for i in which])
            parts[part] = known[key]
        starts[index] = _prepared(parts)
    return Grid(tuple(axes), starts)


def _part(base: Start, part: str, chosen: Iterable[Mapping[str, Any]]) -> Any:
    """One part of a start with the changes that concern it, or the error that they make."""
    changes = {
        name: value for one in chosen for name, value in one.items() if name == part or name.startswith(f"{part}.")
    }
    try:
        return getattr(apply_changes(base, changes), part)
    except StartupModelError as error:
        return error


def _prepared(parts: Mapping[str, Any]) -> Prepared | str:
    """One combination, or what is wrong with it in one line."""
    try:
        for part in parts.values():
            if isinstance(part, StartupModelError):
                raise part
        start = Start(**parts)
        return prepare(start._replace(hardware=with_accelerators(start.hardware, start.engine)))
    except StartupModelError as error:
        return str(error)


def _inputs(grid: Grid) -> dict[str, FloatArray]:
    """Every input of the terms: sizes from the starts, numbers of the node from the starts or from an axis."""
    numbers = {
        name: grid.gather(lambda start, name=name: start.recipe.node.numbers[name]).astype(float)  # type: ignore[misc]
        for name in NODE_NUMBERS
    }
    for i, axis in enumerate(grid.axes):
        if axis.number is not None:
            effect = grid.gather(
                lambda start, axis=axis: (  # type: ignore[misc]
                    start.start.hardware.storage.tier in axis.tiers and axis.number not in start.recipe.node.fixed
                )
            )
            along = [1] * len(grid.axes)
            along[i] = axis.size
            values = np.asarray(axis.numbers).reshape(along)
            numbers[axis.number] = values if effect.all() else np.where(effect, values, numbers[axis.number])
    workers = grid.gather(lambda start: start.recipe.inputs["workers"]).astype(float)
    host_score = grid.gather(lambda start: start.recipe.node.host_score).astype(float)
    from_node = node_inputs(numbers, host_score, workers)
    sizes = {
        name: grid.gather(lambda start, name=name: start.recipe.inputs[name]).astype(float)  # type: ignore[misc]
        for name in grid.valid[0].recipe.inputs
        if name not in from_node
    }
    return sizes | {name: np.asarray(value) for name, value in from_node.items()}


def _routes(grid: Grid, include: Sequence[str]) -> list[_Route]:
    """The calls of all starts as arrays, by the order in which they pass through the phases."""
    inputs = _inputs(grid)
    orders = {(found.recipe.phases, tuple(found.recipe.waits.items())): found.recipe for found in grid.valid}
    routes = []
    for recipe in orders.values():

        def is_own(found: Prepared, recipe: Recipe = recipe) -> bool:
            return found.recipe.phases == recipe.phases and found.recipe.waits == recipe.waits

        def calls(name: str, is_own: Callable[[Prepared], bool] = is_own) -> tuple[Call, ...]:
            stacked = (
                _stack(grid, inputs, lambda found: _call_of(found, name, term) if is_own(found) else None)  # noqa: B023
                for term in PHASES[name].terms
            )
            return tuple(call for call in stacked if call is not None)

        cold = {}
        for row in PHASES.values():
            cache = row.cache
            if cache is None:
                continue
            pair = [
                _stack(
                    grid,
                    dict(inputs) | {old: inputs[new] for old, new in (cache.cold_inputs.items() if i else ())},
                    lambda found, i=i: (found.calls.cold.get(cache.name) or (None, None))[i] if is_own(found) else None,  # type: ignore[misc] # noqa: B023
                )
                for i in (0, 1)
            ]
            if pair[0] is not None and pair[1] is not None:
                cold[cache.name] = (pair[0], pair[1])
        segments = {name: calls(name) for name in include}
        routes.append(_Route(recipe.waits, {name: calls(name) for name in recipe.phases}, segments, cold))
    return routes


def _call_of(found: Prepared, name: str, term: Term) -> Call | None:
    calls = found.calls.phases.get(name) or found.calls.segments.get(name, ())
    return next((call for call in calls if call.term is term), None)


def _stack(grid: Grid, inputs: Mapping[str, FloatArray], call_of: Callable[[Prepared], Call | None]) -> Call | None:
    """One call at all points, its scale 0 where a start does not have it; None when no start has it."""
    first = next((call for found in grid.valid if (call := call_of(found)) is not None), None)
    if first is None:
        return None
    nothing = first._replace(scale=0.0, doubts={})

    def gathered(read: Callable[[Call], float], absent: float) -> FloatArray:
        return grid.gather(lambda found: read(call_of(found) or nothing), absent)

    doubts = {name: gathered(lambda call, name=name: call.doubts.get(name, 0.0), 0.0) for name in first.coefficients}  # type: ignore[misc]
    return first._replace(
        inputs=tuple(inputs[name] for name in first.term.inputs),
        coefficients={
            name: gathered(lambda call, name=name: call.coefficients[name], value)  # type: ignore[misc]
            for name, value in first.coefficients.items()
        },
        scale=gathered(lambda call: call.scale, 0.0),
        doubts={name: array for name, array in doubts.items() if array.any()},
    )


def _evaluate(grid: Grid, include: Sequence[str]) -> _Totals:
    """Seconds of all points: the routes beside each other, each by the same lines as one prediction."""
    nothing = np.zeros((1,) * len(grid.axes))
    phases: dict[str, Any] = {}
    extra: Any = nothing
    found = [(route, times(route.calls, route.waits)) for route in _routes(grid, include)]
    for route, by_phase in found:
        for name, (seconds, _) in (by_phase | times(route.segments, {})).items():
            phases[name] = phases[name] + seconds if name in phases else seconds
        for taken, cold in route.cold.values():
            extra = extra + np.maximum(0.0, cold.seconds() - taken.seconds())
    total = np.zeros(grid.shape)
    for values in phases.values():
        total += values
    order = [*(name for name in PHASES if name in include and PHASES[name].segment == "before")]
    order += [name for name in PHASES if name in phases and name not in order]
    return _Totals(total, {name: np.asarray(phases[name]) for name in order}, extra, found)


def _shared(grid: Grid, times_found: _Totals) -> FloatArray:
    """Standard deviation of the logarithm that the phases of a start share."""
    shared: Any = 0.0
    for route, by_phase in times_found.routes:
        spreads = {
            name: grid.gather(lambda start, name=name: start.spreads.get(name, 0.0), 0.0)  # type: ignore[misc]
            for name in by_phase
        }
        shared = shared + shared_spread(by_phase, route.calls, spreads, np.ones(()))
    total = times_found.total
    return np.asarray(np.divide(shared, total, out=np.zeros(grid.shape), where=total > 0))


def _own(grid: Grid, found: _Totals) -> FloatArray:
    """The same of what is independent of the host; a number that an axis gives has no scatter."""
    given = {axis.name.removeprefix("hardware.") for axis in grid.axes if axis.number is not None}
    segments = [
        (found.phases[name], grid.gather(lambda start, name=name: start.segment_spread(name, given)).astype(float))  # type: ignore[misc]
        for name in SEGMENTS
        if name in found.phases
    ]
    return np.asarray(own_spread(grid.gather(lambda start: start.common_spread).astype(float), found.total, segments))


# --- the result ---------------------------------------------------------------------------------------------------------

_MAX_DESCRIBED = 1000
"""Combinations whose warnings are put into words."""

_MAX_REASONS = 20
"""Different reasons that a result lists; of more it says how many there are."""


class Point(NamedTuple):
    """One point of a sweep."""

    coordinates: Mapping[str, Any]
    """Axis -> label."""
    total_s: float
    phases: Mapping[str, float]
    """Phase -> seconds; they sum to the total."""
    status: str
    extrapolated: bool
    place: tuple[int, ...]
    """Index in the arrays of the sweep."""
    start: Start
    """For ``predict(*point.start[:3], profile=point.start.profile)``: interval, words and formulas of this point, number axes included."""


class Sweep:
    """What ``sweep`` returns. Arrays have one dimension for each axis, in the order of the axes; times are seconds.

    A point that cannot be (more ranks than accelerators, say) has NaN everywhere and the status ``invalid``; one that does not fit into memory has
    the times that it would take, and is not ``feasible``.
    """

    def __init__(self, grid: Grid, times: _Totals, level: float, safety_factor: float) -> None:
        self._grid = grid
        self._times = times
        self.level = level
        self.safety_factor = safety_factor
        self.axes: Mapping[str, Any] = MappingProxyType({axis.name: axis.labels for axis in grid.axes})
        """Axis -> labels: texts, or numbers in base units."""
        self.total_s: FloatArray = self._shown(times.total)
        """Process start to ready, and the segments that were asked for."""
        self.phases: Mapping[str, FloatArray] = _Shown(times.phases, self._shown)
        """By phase (keys may be plain strings); they sum to ``total_s``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Points by axis."""
        return self._grid.shape

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}: {len(labels)}" for name, labels in self.axes.items())
        return f"<Sweep of {self.size} points ({axes}), {int(self.feasible.sum())} feasible>"

    # --- arrays ---

    @cached_property
    def slowest_s(self) -> FloatArray:
        """``total_s`` with caches of unknown state taken as cold."""
        return _frozen(self.total_s + self._times.cold_extra)

    @property
    def slo_bound_s(self) -> FloatArray:
        """SLO bound: safety factor x slowest prediction."""
        return self.safety_factor * self.slowest_s

    @cached_property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """(low, high) at ``level``."""
        factor = self._factor((1.0 + self.level) / 2.0)
        return _frozen(self.total_s / factor), _frozen(self.slowest_s * factor)

    def quantile(self, probability: float) -> FloatArray:
        """Seconds below which each start stays with this probability, as ``StartupPrediction.quantile``. Raises ConfigError."""
        check_probability(probability)
        return (self.slowest_s if probability > 0.5 else self.total_s) * self._factor(probability)

    @cached_property
    def status(self) -> np.ndarray[Any, Any]:
        """ok, kv_cache_too_small, weights_do_not_fit, or invalid."""
        return self._wide(
            [
                found.recipe.memory.status if isinstance(found, Prepared) else "invalid"
                for found in self._grid.starts.flat
            ]
        )

    @cached_property
    def feasible(self) -> np.ndarray[Any, Any]:
        """Whether the server starts."""
        return self._wide(
            [isinstance(found, Prepared) and found.recipe.memory.fits for found in self._grid.starts.flat]
        )

    @cached_property
    def extrapolated(self) -> np.ndarray[Any, Any]:
        """Whether a model or a flag lies outside the runs of the profile."""
        return self._wide([bool(_domain(found)) for found in self._grid.starts.flat])

    @cached_property
    def bottleneck(self) -> np.ndarray[Any, Any]:
        """Name of the phase that adds most."""
        names = np.array([str(phase) for phase in self._times.phases], dtype=object)
        best, most = np.zeros(self.shape, dtype=np.int8), np.full(self.shape, -1.0)
        for i, seconds in enumerate(self._times.phases.values()):
            larger = seconds > most
            best[larger] = i
            np.maximum(most, seconds, out=most)
        return _frozen(names[best])

    @cached_property
    def reasons(self) -> Mapping[str, int]:
        """Why points cannot be, are not feasible, or are extrapolated, in this order -> number of points."""
        counts: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
        each = self.size // self._grid.starts.size
        for found in self._grid.starts.flat:
            if isinstance(found, str):
                counts[0][found] += each
                continue
            if not found.recipe.memory.fits:
                counts[1][f"{found.start.model.name} on {found.start.hardware.name}: {found.recipe.memory.status}"] += (
                    each
                )
            for word in _domain(found):
                counts[2][word] += each
        ranked = [item for kind in counts for item in kind.most_common()]
        shown, rest = dict(ranked[:_MAX_REASONS]), ranked[_MAX_REASONS:]
        return MappingProxyType(
            shown | ({f"{len(rest)} further reasons": sum(count for _, count in rest)} if rest else {})
        )

    @cached_property
    def warnings(self) -> Mapping[str, int]:
        """What ``predict`` warns of -> number of points, the most frequent first; of very many combinations some are asked."""
        counts: Counter[str] = Counter()
        each = self.size // self._grid.starts.size
        valid = [found for found in self._grid.starts.flat if isinstance(found, Prepared)]
        step = -(-len(valid) // _MAX_DESCRIBED)
        varies = any(axis.number == "storage_bandwidth" for axis in self._grid.axes)
        for found in valid[::step]:
            words = dict.fromkeys(describe(found).warnings, each * step)
            if varies:  # each point has a bandwidth of its own
                words = {w: n for w, n in words.items() if w not in set(state_warnings(found))}
            counts.update(words)
        return MappingProxyType({word: min(count, self.size) for word, count in counts.most_common(_MAX_REASONS)})

    # --- points ---

    def best(self, by: str | FloatArray = "total_s", *, per: str | None = None) -> Any:
        """The feasible point with the least of ``by``: a Point, or for each label of the axis ``per`` one (None where no point is feasible).

        ``by``: total_s, slowest_s, slo_bound_s, a phase, or an array of the grid's shape, such as a price. Raises ConfigError when no point is
        feasible, UnknownNameError for a name that does not exist.
        """
        wanted = self._values(by)
        values = np.where(self.feasible & np.isfinite(wanted), wanted, np.inf)
        if per is None:
            if not np.isfinite(values).any():
                why = next(iter(self.reasons), "no point is finite")
                raise ConfigError("axes", MISSING, f"no feasible point of {self.size} ({why})", "take other values")
            return self.point(np.unravel_index(int(values.argmin()), self.shape))
        names = list(self.axes)
        if not isinstance(per, str) or per not in names:
            raise UnknownNameError("per", per if isinstance(per, str) else shown(per), names)
        axis = names.index(per)
        found = {}
        for i, label in enumerate(self.axes[per]):
            part = values.take([i], axis)
            place = [int(one) for one in np.unravel_index(int(part.argmin()), part.shape)]
            place[axis] = i
            found[_plain(label)] = self.point(place) if np.isfinite(part).any() else None
        return found

    def point(self, index: Any) -> Point:
        """The point at an index: one place along each axis. Raises ConfigError for a place that does not exist."""
        place = _place(index, self.shape)
        found = self._grid.start_at(place)
        if isinstance(found, str):
            raise ConfigError("index", place, f"this point is not valid: {found}", "choose another")
        return Point(
            coordinates=MappingProxyType(
                {axis.name: _plain(axis.labels[i]) for axis, i in zip(self._grid.axes, place, strict=True)}
            ),
            total_s=float(self.total_s[place]),
            phases=MappingProxyType({str(phase): float(values[place]) for phase, values in self.phases.items()}),
            status=str(self.status[place]),
            extrapolated=bool(self.extrapolated[place]),
            place=place,
            start=self._grid.exact_start(found, place),
        )

    def select(self, **labels: Any) -> Point:
        """The point with these labels, ``sweep.select(**{"engine.tp": 4})``; axes of one value may be left out. Raises ConfigError."""
        unknown = next((name for name in labels if name not in self.axes), None)
        if unknown is not None:
            raise UnknownNameError("axis", unknown, list(self.axes))
        place = []
        for name, known in self.axes.items():
            if name not in labels and len(known) > 1:
                raise ConfigError(name, MISSING, "the axis has several values", "say which")
            values = [_plain(value) for value in known]
            wanted = labels.get(name, values[0])
            found = [i for i, value in enumerate(values) if isinstance(wanted, str | int | float) and value == wanted]
            if not found:
                raise ConfigError(name, wanted, "must be a value of the axis", f"such as {shown(values[0])}")
            place.append(found[0])
        return self.point(place)

    # --- tables ---

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """The grid as a table: a flat array for each axis, the total, each phase, ``slowest_s``, ``status`` and ``extrapolated``; a row a point."""
        table: dict[str, np.ndarray[Any, Any]] = {}
        for i, axis in enumerate(self._grid.axes):
            labels = np.empty(axis.size, dtype=object if isinstance(axis.labels, tuple) else float)
            labels[:] = axis.labels
            along = [1] * len(self.shape)
            along[i] = axis.size
            table[axis.name] = np.broadcast_to(labels.reshape(along), self.shape).ravel()
        table["total_s"] = self.total_s.ravel()
        table |= {str(phase): values.ravel() for phase, values in self.phases.items()}
        table["slowest_s"] = np.broadcast_to(self.slowest_s, self.shape).ravel()
        return table | {"status": self.status.ravel(), "extrapolated": self.extrapolated.ravel()}

    def to_pandas(self) -> pd.DataFrame:
        """``columns`` as a DataFrame. Raises ConfigError when pandas is not installed."""
        return data_frame(self.columns())

    def rows(self) -> Iterator[dict[str, Any]]:
        """The points one after the other, as plain data; times of a point that cannot be are None."""
        table = self.columns()
        for i in range(self.size):
            yield {name: _json(values[i]) for name, values in table.items()}

    # --- inside ---

    def _factor(self, probability: float) -> FloatArray:
        degrees = self._grid.gather(lambda found: found.degrees)
        student = np.vectorize(lambda n: student_quantile(probability, int(n)), otypes=[float])(degrees)
        shared, own = self._spreads
        return np.asarray(spread_factor(shared * student, own * student_quantile(probability, 0), probability))

    @cached_property
    def _spreads(self) -> tuple[FloatArray, FloatArray]:
        return _shared(self._grid, self._times), _own(self._grid, self._times)

    def _wide(self, values: list[Any]) -> np.ndarray[Any, Any]:
        """A value of each combination, for each point."""
        kind = object if isinstance(values[0], str) else None
        return np.broadcast_to(np.array(values, dtype=kind).reshape(self._grid.starts.shape), self.shape)

    @cached_property
    def _valid(self) -> np.ndarray[Any, Any]:
        return self._wide([isinstance(found, Prepared) for found in self._grid.starts.flat])

    def _shown(self, values: FloatArray) -> FloatArray:
        """Values for each point, NaN for those that cannot be."""
        wide = np.broadcast_to(values, self.shape)
        return wide if self._valid.all() else _frozen(np.where(self._valid, wide, np.nan))

    def _values(self, by: str | FloatArray) -> FloatArray:
        if not isinstance(by, str):
            try:
                if np.iscomplexobj(by):
                    raise TypeError
                return np.broadcast_to(np.asarray(by, dtype=float), self.shape)
            except (TypeError, ValueError, OverflowError):
                problem = f"must have the grid's shape {self.shape}"
                raise ConfigError("by", shown(by), problem, "give a name or an array of that shape") from None
        totals = {"total_s": "total_s", "slowest_s": "slowest_s", "slo_bound_s": "slo_bound_s"}
        if by in totals:
            found: FloatArray = getattr(self, by)
            return found
        if by in self.phases:
            return self.phases[by]
        raise UnknownNameError("by", by, [*totals, *map(str, self.phases)])


class _Shown(Mapping[str, FloatArray]):
    """Phases by name, each widened to the grid when it is looked at."""

    def __init__(self, values: Mapping[str, FloatArray], widen: Callable[[FloatArray], FloatArray]) -> None:
        self._values = values
        self._widen = widen

    def __getitem__(self, name: str) -> FloatArray:
        found = self._values.get(name) if isinstance(name, str) else None
        if found is None:
            raise UnknownNameError(
                "phase", name if isinstance(name, str) else shown(name), [str(p) for p in self._values]
            )
        return self._widen(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._values


def _frozen(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that nobody writes into: it is kept, and shown again."""
    values.setflags(write=False)
    return values


def _domain(found: object) -> tuple[str, ...]:
    if not isinstance(found, Prepared):
        return ()
    return tuple(domain_warnings(found))


def _place(index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """An index as whole numbers within the grid."""
    try:
        place = tuple(int(i) for i in index)
    except (TypeError, ValueError, OverflowError):
        place = ()
    if len(place) != len(shape) or not all(0 <= i < length for i, length in zip(place, shape, strict=True)):
        raise ConfigError(
            "index", shown(index), f"no place in a grid of shape {shape}", "give one number for each axis"
        )
    return place


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _json(value: Any) -> Any:
    """A value of a table as plain data: numbers of numpy as Python's, NaN as None."""
    plain = _plain(value)
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def sweep(
    model_cfg: ModelLike,
    hw_cfg: HardwareLike,
    engine_cfg: EngineLike | None = None,
    axes: Mapping[str, Any] | None = None,
    *,
    profile: ProfileLike | None = None,
    level: float = 0.9,
    safety_factor: float = SAFETY_FACTOR,
    include: Iterable[str] = (),
    **engine_options: Any,
) -> Sweep:
    """``predict`` over a grid: total_s[i, j, ...] = sum of the phases of the start with the i-th value of the first axis, the j-th of the second ...

    axes: dotted field -> values, ``{"model": [...], "hardware": ["h100-sxm", "l40s"], "engine.tp": [1, 2, 4],
    "hardware.storage.cold_bandwidth": numpy.geomspace(2e8, 1e10, 50)}``. Any field of the three configurations, the parts ``model``, ``hardware``,
    ``engine`` and ``profile`` as wholes, and ``hardware.storage.cold_bandwidth`` for the tier in use. Values may have labels: ``{label: value}``. Under a
    name of your own, each label stands for several changes: ``{"store": {"NFS": {"hardware.storage.tier": "network_disk", "engine.page_cache":
    "cold"}, ...}}``. The other arguments are those of ``predict``, and the base on which the axes act. A node that does not say how many accelerators
    it has (``gpus``) has as many as the engine needs.

    Bandwidths [B/s], single-thread scores [1], times [s] and sizes [B] of a node are taken as arrays by the terms and cost next to nothing; every combination of
    other fields (flags, models, memory sizes; the bandwidth of device memory where no profile is given, since it chooses the reference) is planned once, which
    takes up to a millisecond. A network disk faster than ``network_bandwidth`` is bounded by it. Raises ConfigError, InputFileError or ProfileError with one line;
    a single combination that cannot be is a point of status ``invalid``, unless none can be.
    """
    base = as_start(model_cfg, hw_cfg, engine_cfg, profile, engine_options)
    level, safety = check_level(level), check_safety_factor(safety_factor)
    grid = _make_grid(base, read_axes(axes, base))
    if not grid.valid:
        first = grid.starts.flat[0]
        problem = f"no point of the grid is valid: {first}"
        raise ConfigError("axes", MISSING, problem)
    return Sweep(grid, _evaluate(grid, check_include(include)), level, safety)
