"""What a sweep holds as it is drawn: the labels of an axis, and the times of each panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from startup_model.errors import UnknownNameError
from startup_model.formula import FloatArray
from startup_model.grid.result import Sweep

__all__ = [
    "MOST_ALONG",
    "MOST_CATEGORIES",
    "MOST_LINES",
    "Block",
    "Side",
    "blocks_of",
    "common_names",
    "is_numbers",
    "side_of",
    "sweep_values",
]

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

MOST_LINES = 12
MOST_CATEGORIES = 40
MOST_ALONG = 2000
"""Points of one line that are drawn, evenly chosen from more."""

_TIMES: Mapping[str, str] = {
    "total_s": "time to ready",
    "slowest_s": "time to ready, unknown caches cold",
    "slo_bound_s": "time to promise",
}
"""What can be drawn besides phases -> its words."""

_UNITS: tuple[tuple[str, str], ...] = (
    ("_bandwidth", "B/s"),
    ("storage.page_cache", "B/s"),
    ("storage.local_nvme", "B/s"),
    ("storage.network_disk", "B/s"),
    ("storage.object_store", "B/s"),
    ("_flops", "FLOP/s"),
    ("_bytes", "B"),
    ("_memory", "B"),
    ("_s", "s"),
)
"""End of a field's name -> its unit."""


class Side(NamedTuple):
    """The labels of one axis as they are drawn."""

    name: str
    labels: tuple[Any, ...]
    places: np.ndarray[Any, Any]
    """Where they stand in the sweep."""
    is_number: bool
    whole: int
    """How many the axis has."""

    @property
    def word(self) -> str:
        return self.name.rsplit(".", 1)[-1]

    @property
    def unit(self) -> str:
        return next((unit for end, unit in _UNITS if self.name.endswith(end)), "")

    @property
    def heading(self) -> str:
        """Its name, and how many of its labels are drawn when these are not all."""
        few = f", {len(self.labels)} of {self.whole}" if len(self.labels) < self.whole else ""
        return f"{self.word}{few}"

    def text(self, i: int) -> str:
        """One label in words."""
        from matplotlib.ticker import EngFormatter

        label = self.labels[i]
        if label is None:
            return "default"
        if not self.is_number:
            return str(label)
        if self.unit:
            return EngFormatter(self.unit)(float(f"{label:.3g}"))
        return f"{label:,}" if isinstance(label, int) else f"{label:.3g}" if abs(label) < 1e3 else f"{label:,.0f}"

    def named(self, i: int) -> str:
        """One label that stands alone: a number or a flag with its name."""
        return self.text(i) if isinstance(self.labels[i], str) else f"{self.word}={self.text(i)}"


class Block(NamedTuple):
    """What one panel shows: a row a line, a column a place along x."""

    seconds: FloatArray
    feasible: BoolArray

    @property
    def is_feasible(self) -> bool:
        """Whether everything that is drawn starts."""
        return bool((self.feasible | np.isnan(self.seconds)).all())


def sweep_values(result: Sweep, y: object) -> tuple[FloatArray, str]:
    """The times that are asked for, and what they are. Raises UnknownNameError."""
    if isinstance(y, str) and y in _TIMES:
        return getattr(result, y), _TIMES[y]
    if isinstance(y, str) and y in result.phases:
        return result.phases[y], str(y)
    raise UnknownNameError("y", str(y), [*_TIMES, *map(str, result.phases)])


def is_numbers(labels: Sequence[Any] | FloatArray) -> bool:
    """Whether all labels of an axis are numbers; flags are none."""
    if isinstance(labels, np.ndarray):
        return True
    return all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels)


def side_of(result: Sweep, name: str, most: int) -> Side:
    """One axis as it is drawn: numbers in ascending order, and of too many of them some."""
    labels = result.axes[name]
    places = np.arange(len(labels))
    numbers = is_numbers(labels)
    if numbers:
        places = np.argsort(np.asarray(labels, dtype=float), kind="stable")
        if len(places) > max(most, MOST_LINES):
            places = places[np.unique(np.linspace(0, len(places) - 1, most).round().astype(int))]
    plain = tuple(label.item() if isinstance(label, np.generic) else label for label in (labels[i] for i in places))
    return Side(name, plain, places, numbers, len(labels))


def blocks_of(result: Sweep, values: FloatArray, along: Side, series: Side | None, parts: Side | None) -> list[Block]:
    """The times of each panel; where other axes are left, the least of the starts that fit, and where none fits the least of all."""
    names = list(result.axes)
    sides = [side for side in (parts, series, along) if side is not None]
    order = [names.index(side.name) for side in sides]
    rest = tuple(i for i in range(len(names)) if i not in order)
    shape = tuple(1 if side is None else len(side.labels) for side in (parts, series, along))

    def drawn(array: Any) -> Any:
        """The axes that are drawn come first, the others last, as one."""
        moved = np.transpose(array, (*order, *rest))
        for axis, side in enumerate(sides):
            moved = np.take(moved, side.places, axis)
        return moved.reshape(*shape, -1)

    seconds, fits = drawn(values), drawn(result.feasible)
    seconds = np.where(np.isfinite(seconds), seconds, np.inf)
    possible = np.where(fits, seconds, np.inf).min(axis=-1)
    feasible = np.isfinite(possible)
    least = np.where(feasible, possible, seconds.min(axis=-1))
    least = np.where(np.isfinite(least), least, np.nan)
    return [Block(least[i], feasible[i]) for i in range(shape[0])]


def common_names(result: Sweep) -> str:
    """Model and node, where they are the same at both ends of the sweep."""
    valid = np.flatnonzero(result.status.ravel() != "invalid")
    ends = [result.point(np.unravel_index(int(i), result.shape)).start for i in valid[[0, -1]]]
    names = [
        next(iter(one))
        for one in ({end.model.name for end in ends}, {end.hardware.name for end in ends})
        if len(one) == 1
    ]
    return f"{' on '.join(names)}: " if names else ""
