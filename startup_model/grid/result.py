"""The result of a sweep: named axes, seconds by phase, what fits, what is extrapolated, and the best of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from startup_model.errors import MISSING, ConfigError, UnknownNameError, shown
from startup_model.formula import FloatArray
from startup_model.frames import data_frame
from startup_model.grid.evaluate import Branch, Grid, Times, own_spread, shared_spread
from startup_model.phases import Phase
from startup_model.plan import Plan, describe
from startup_model.prediction import Start
from startup_model.uncertainty import check_probability, spread_factor, student_quantile
from startup_model.warnings import domain_warnings, state_warnings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Point", "Sweep"]

_MOST_DESCRIBED = 1000
"""Combinations whose warnings are put into words."""

_MOST_REASONS = 20
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

    def __init__(
        self, grid: Grid, branches: tuple[Branch, ...], times: Times, level: float, safety_factor: float
    ) -> None:
        self._grid = grid
        self._branches = branches
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
        """The time to promise: safety factor x slowest prediction."""
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
            [plan.memory.status if isinstance(plan, Plan) else "invalid" for plan in self._grid.plans.flat]
        )

    @cached_property
    def feasible(self) -> np.ndarray[Any, Any]:
        """Whether the server starts."""
        return self._wide([isinstance(plan, Plan) and plan.memory.fits for plan in self._grid.plans.flat])

    @cached_property
    def extrapolated(self) -> np.ndarray[Any, Any]:
        """Whether a model or a flag lies outside the runs of the profile."""
        return self._wide([bool(_domain(plan)) for plan in self._grid.plans.flat])

    @cached_property
    def bottleneck(self) -> np.ndarray[Any, Any]:
        """Name of the phase that adds most."""
        names = np.array([phase.value for phase in self._times.phases], dtype=object)
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
        each = self.size // self._grid.plans.size
        for plan in self._grid.plans.flat:
            if isinstance(plan, str):
                counts[0][plan] += each
                continue
            if not plan.memory.fits:
                counts[1][f"{plan.start.model.name} on {plan.start.hardware.name}: {plan.memory.status}"] += each
            for word in _domain(plan):
                counts[2][word] += each
        ranked = [item for kind in counts for item in kind.most_common()]
        shown, rest = dict(ranked[:_MOST_REASONS]), ranked[_MOST_REASONS:]
        return MappingProxyType(
            shown | ({f"{len(rest)} further reasons": sum(count for _, count in rest)} if rest else {})
        )

    @cached_property
    def warnings(self) -> Mapping[str, int]:
        """What ``predict`` warns of -> number of points, the most frequent first; of very many combinations some are asked."""
        counts: Counter[str] = Counter()
        each = self.size // self._grid.plans.size
        plans = [plan for plan in self._grid.plans.flat if isinstance(plan, Plan)]
        step = -(-len(plans) // _MOST_DESCRIBED)
        varies = any(axis.number == "storage_bandwidth" for axis in self._grid.axes)
        for plan in plans[::step]:
            words = dict.fromkeys(describe(plan).warnings, each * step)
            if varies:  # each point has a bandwidth of its own
                hardware = plan.start.hardware
                words = {
                    w: n
                    for w, n in words.items()
                    if w not in set(state_warnings(plan.cold_extras(), plan.inputs, hardware))
                }
            counts.update(words)
        return MappingProxyType({word: min(count, self.size) for word, count in counts.most_common(_MOST_REASONS)})

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
                raise ConfigError("axes", MISSING, f"no point of the {self.size} starts ({why})", "take other values")
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
        plan = self._grid.plan_at(place)
        if isinstance(plan, str):
            raise ConfigError("index", place, f"this point cannot be: {plan}", "choose another")
        return Point(
            coordinates=MappingProxyType(
                {axis.name: _plain(axis.labels[i]) for axis, i in zip(self._grid.axes, place, strict=True)}
            ),
            total_s=float(self.total_s[place]),
            phases=MappingProxyType({str(phase): float(values[place]) for phase, values in self.phases.items()}),
            status=str(self.status[place]),
            extrapolated=bool(self.extrapolated[place]),
            place=place,
            start=self._grid.start_at(plan, place),
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
                raise ConfigError(name, wanted, "no value of the axis", f"such as {shown(values[0])}")
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
        degrees = self._grid.gather(lambda plan: plan.degrees)
        student = np.vectorize(lambda n: student_quantile(probability, int(n)), otypes=[float])(degrees)
        own = own_spread(self._grid, self._times) * student_quantile(probability, 0)
        return np.asarray(spread_factor(self._shared_spread * student, own, probability))

    @cached_property
    def _shared_spread(self) -> FloatArray:
        return shared_spread(self._grid, self._branches, self._times)

    def _wide(self, values: list[Any]) -> np.ndarray[Any, Any]:
        """A value of each combination, for each point."""
        kind = object if isinstance(values[0], str) else None
        return np.broadcast_to(np.array(values, dtype=kind).reshape(self._grid.plans.shape), self.shape)

    @cached_property
    def _valid(self) -> np.ndarray[Any, Any]:
        return self._wide([isinstance(plan, Plan) for plan in self._grid.plans.flat])

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
                problem = f"it does not go with the grid's shape {self.shape}"
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

    def __init__(self, values: Mapping[Phase, FloatArray], widen: Callable[[FloatArray], FloatArray]) -> None:
        self._values = values
        self._widen = widen

    def __getitem__(self, name: str) -> FloatArray:
        found = self._values.get(name) if isinstance(name, str) else None  # type: ignore[call-overload]
        if found is None:
            raise UnknownNameError(
                "phase", name if isinstance(name, str) else shown(name), [p.value for p in self._values]
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


def _domain(plan: object) -> tuple[str, ...]:
    if not isinstance(plan, Plan):
        return ()
    return tuple(domain_warnings(plan.profile, plan.start.model, plan.inputs, plan.skipped))


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
