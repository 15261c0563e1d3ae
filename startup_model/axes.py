"""The axes of a sweep: what varies, over which values, and whether a value is a number that terms take as an array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np

from startup_model.changes import TIER_BANDWIDTH, apply_changes, check_name, field_names, label_of
from startup_model.errors import MISSING, ConfigError
from startup_model.formula import FloatArray
from startup_model.hardware import NODE_NUMBERS, STORAGE_TIERS
from startup_model.recipe import Start

MAX_POINTS = 10_000_000
"""Points of one sweep: the total of so many takes 80 MB, everything that can be asked of them at most about 3 GB."""

MAX_COMBINATIONS = 50_000
"""Combinations of axes that are no plain numbers, each of which takes up to a millisecond."""

_STORAGE = "hardware.storage."
NUMBERS: Mapping[str, str] = {
    **{f"hardware.{row.field}": name for name, row in NODE_NUMBERS.items()},
    **{_STORAGE + tier: "storage_bandwidth" for tier in STORAGE_TIERS},
}
"""Field -> number of the node that it sets. Nothing else of a start depends on these, so that terms take them as arrays."""

_MAX_CHECKED_ONE_BY_ONE = 1000
"""Values of a number axis that are each read through the configuration; of more, which are numbers, the smallest and the largest."""


class Axis(NamedTuple):
    """One axis of a sweep."""

    name: str
    labels: tuple[Any, ...] | FloatArray
    """What stands for the values: texts and numbers; numbers with a unit in base units."""
    changes: tuple[Mapping[str, Any], ...]
    """For each value the fields that it changes; empty for a number axis."""
    number: str | None = None
    """Number of the node that the values are, for a number axis."""
    tiers: frozenset[str] = frozenset(STORAGE_TIERS)
    """Tiers of storage with which a number axis has an effect."""
    numbers: FloatArray | None = None
    """The values of a number axis, in base units."""

    @property
    def size(self) -> int:
        """How many values it has."""
        return len(self.labels)

    @property
    def parts(self) -> frozenset[str]:
        """The parts of a start that its values change; none for a number axis."""
        return frozenset(field.partition(".")[0] for changes in self.changes for field in changes)


def read_axes(axes: object, base: Start) -> tuple[Axis, ...]:
    """The axes as ``sweep`` is given them: dotted name -> values, or a name of your own -> (label -> changes by dotted name).

    Raises ConfigError, with the nearest name, for an axis that does not exist, that has no values or twice the same, whose values do not fit, and
    for a grid of more than ``MAX_POINTS`` points or ``MAX_COMBINATIONS`` combinations of what is no plain number; nothing is allocated before.
    """
    if not isinstance(axes, Mapping) or not axes:
        raise ConfigError("axes", axes, "must map names to values", "such as {'engine.tp': [1, 2, 4]}")
    if (wrong := next((name for name in axes if not isinstance(name, str)), None)) is not None:
        raise ConfigError("axes", wrong, "must be a dotted name", "such as 'engine.tp'")
    sizes = {name: _size(name, values) for name, values in axes.items()}
    points = math.prod(sizes.values())
    if points > MAX_POINTS:
        shape = " x ".join(map(str, sizes.values()))
        problem = f"the grid has {shape} = {points:.3g} points, more than {MAX_POINTS:,}"
        raise ConfigError("axes", MISSING, problem, "take fewer values, or several sweeps")
    if clash := _clash(axes):
        raise ConfigError("axes", clash, "duplicate: two axes change this field", "drop one of them")
    pinned = base.profile is not None and "profile" not in {field for n, v in axes.items() for field in _fields(n, v)}
    numbers = {name for name in axes if name in NUMBERS and (pinned or name != "hardware.gpu_memory_bandwidth")}
    shapes = {name: size for name, size in sizes.items() if name not in numbers}
    if math.prod(shapes.values()) > MAX_COMBINATIONS:
        problem = f"{math.prod(shapes.values()):,} combinations of {', '.join(shapes)}, more than {MAX_COMBINATIONS:,}"
        remedy = f"take fewer values of them; numbers such as {TIER_BANDWIDTH} are free"
        raise ConfigError("axes", MISSING, problem, remedy)
    return tuple(
        _number_axis(name, values, base) if name in numbers else _shape_axis(name, values)
        for name, values in axes.items()
    )


def _size(name: str, values: object) -> int:
    """How many values an axis has, before any of them is looked at."""
    problem, remedy = "must be a list of values", "or a dict of labels and values"
    flat = not isinstance(values, np.ndarray) or values.ndim == 1
    if isinstance(values, str | bytes) or not isinstance(values, Sized) or not isinstance(values, Iterable) or not flat:
        raise ConfigError(f"axes.{name}", values, problem, remedy)
    try:
        size = len(values)
    except Exception:  # too long to be counted, or whatever a foreign class does
        raise ConfigError(
            f"axes.{name}", MISSING, "must be a list of values of countable length", "give a list of values"
        ) from None
    if size == 0:
        raise ConfigError(f"axes.{name}", values, "must have at least one value", "omit the axis, or give values")
    return size


def _fields(name: str, values: Any) -> set[str]:
    """The fields that an axis changes: its own, or those of a scenario."""
    scenario = name not in field_names() and isinstance(values, Mapping)
    return {str(f) for v in values.values() if isinstance(v, Mapping) for f in v} if scenario else {name}


def _clash(axes: Mapping[str, Any]) -> str | None:
    """A field that two axes change, if there is one: the same name, or one bandwidth by two names."""
    tiers = {_STORAGE + tier for tier in STORAGE_TIERS}
    seen: set[str] = set()
    for name, values in axes.items():
        fields = _fields(name, values)
        alike = tiers if TIER_BANDWIDTH in fields else {TIER_BANDWIDTH} if fields & tiers else set()
        if twice := next((field for field in sorted(fields | alike) if field in seen), None):
            return twice
        seen |= fields
    return None


def _shape_axis(name: str, values: Any) -> Axis:
    """An axis of values that shape a start: each is one change, or a scenario of several."""
    if isinstance(values, Mapping) and name not in field_names() and all(isinstance(v, Mapping) for v in values.values()):  # fmt: skip
        return _scenario_axis(name, values)
    field = check_name(name, "axes")
    labels, given = _labelled(name, values)
    return Axis(field, _unique(field, labels), tuple({field: value} for value in given))


def _labelled(name: str, values: Any) -> tuple[list[Any], list[Any]]:
    """Labels and values; the labels of a list are what its values are called."""
    try:
        given = [_plain(value) for value in (values.values() if isinstance(values, Mapping) else values)]
        labels = list(values) if isinstance(values, Mapping) else [label_of(value) for value in given]
    except Exception:  # whatever a foreign class does when it is walked through
        raise ConfigError(f"axes.{name}", MISSING, "must be a list of values", "give a list of values") from None
    return labels, given


def _scenario_axis(name: str, values: Mapping[Any, Mapping[Any, Any]]) -> Axis:
    """An axis of named changes to several fields at once."""
    for label, changes in values.items():
        for field in changes:
            check_name(field, f"axes.{name}.{label_of(label)}")
    return Axis(name, _unique(name, list(values)), tuple(dict(changes) for changes in values.values()))


def _number_axis(name: str, values: Any, base: Start) -> Axis:
    """An axis of numbers in base units. All are read through the configuration, or of very many plain numbers the least and the largest."""
    base = _unbounded(base)
    whole = name.endswith("concurrent_starts")
    labels: Any = None
    plain = isinstance(values, np.ndarray | range) and np.asarray(values[:1]).dtype.kind in "fiu"
    if plain and len(values) > _MAX_CHECKED_ONE_BY_ONE:
        numbers = np.array(values, dtype=float)
        if not np.isfinite(numbers).all():
            raise ConfigError(f"axes.{name}", float("nan"), "all values must be finite", "leave it out")
        if whole and (numbers != np.floor(numbers)).any():
            raise ConfigError(f"axes.{name}", MISSING, "all values must be whole numbers", "round them")
        for extreme in (numbers.min(), numbers.max()):
            _read_number(name, int(extreme) if whole else float(extreme), base)
        if len(np.unique(numbers)) < len(numbers):
            raise ConfigError(f"axes.{name}", MISSING, "duplicate value", "leave out the repetition")
    else:
        if len(values) > MAX_COMBINATIONS:
            raise ConfigError(
                f"axes.{name}", MISSING, f"{len(values):,} values that are no array", "give a numpy array"
            )
        names, given = _labelled(name, values)
        numbers = np.array([_read_number(name, value, base) for value in given])
        labels = _unique(name, names) if isinstance(values, Mapping) else None
        _unique(name, numbers.tolist())
    numbers.setflags(write=False)
    tier = name.removeprefix(_STORAGE)
    tiers = frozenset({tier}) if tier in STORAGE_TIERS else NODE_NUMBERS[NUMBERS[name]].tiers
    return Axis(name, numbers if labels is None else labels, (), NUMBERS[name], tiers, numbers)


def _read_number(name: str, value: Any, base: Start) -> float:
    """One value in base units, checked by the configuration that it belongs to. Raises ConfigError."""
    if value is None:
        raise ConfigError(f"axes.{name}", value, "must be a number", "omit it")
    try:
        found: Any = apply_changes(base, {name: value})
    except ConfigError as error:
        raise ConfigError(f"axes.{name}", value, error.problem, error.remedy) from None
    for part in name.split("."):
        found = getattr(found, part)
    return float(found)


def _unbounded(base: Start) -> Start:
    """The start without what a bandwidth is checked against: in a grid the network bounds a network disk instead of contradicting it."""
    storage = base.hardware.storage.replace(network_disk=None)
    return base._replace(hardware=base.hardware.replace(network_bandwidth=None, storage=storage))


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _unique(name: str, labels: Sequence[Any]) -> tuple[Any, ...]:
    """The labels when no two are equal. Raises ConfigError."""
    seen = set()
    for label in labels:
        try:
            twice = label in seen
        except TypeError:
            raise ConfigError(
                f"axes.{name}", label, "must be a text or a number", "give labels that are texts or numbers"
            ) from None
        if twice:
            problem, remedy = "duplicate", "leave out the repetition, or give labels: {label: value}"
            raise ConfigError(f"axes.{name}", label, problem, remedy)
        seen.add(label)
    return tuple(labels)
