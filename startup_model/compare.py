"""Questions about one start: what if something changed, and what should the money go to?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from startup_model.changes import TIER_BANDWIDTH, changed_start, check_name, field_names, label_of
from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.evaluate import DEFAULT_LEVEL
from startup_model.frames import data_frame
from startup_model.hardware import NODE_NUMBERS
from startup_model.phases import PHASES
from startup_model.prediction import SAFETY_FACTOR, StartupPrediction
from startup_model.predictor import as_start, check_include, predict
from startup_model.recipe import Prepared, Start, prepare
from startup_model.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

BASE = "base"
"""Name of the start that changes are compared with."""

MAX_STARTS = 1000
"""Starts beside each other in one comparison."""

MIN_REPORTED_S = 0.005
"""Seconds from which a change is listed."""

STEP = 0.1
"""Relative change of a number whose worth is asked for."""

BaseLike = StartupPrediction | Start | Mapping[str, Any] | Sequence[Any]


# --- what if ------------------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Starts side by side, the base first."""

    predictions: Mapping[str, StartupPrediction]
    """Label -> prediction."""
    changes: Mapping[str, Mapping[str, Any]]
    """Label -> what is changed against the base, by dotted name."""

    @property
    def phases(self) -> dict[str, dict[str, float]]:
        """Phase -> (label -> seconds); 0 where a start does not have the phase, phases that no start has left out."""
        names = [
            p for p in PHASES if any(p in one.phases and one.phases[p].elapsed_s for one in self.predictions.values())
        ]
        return {
            str(phase): {
                label: p.phases[phase].seconds if phase in p.phases else 0.0 for label, p in self.predictions.items()
            }
            for phase in names
        }

    @property
    def totals(self) -> dict[str, float]:
        """Label -> total in seconds."""
        return {label: prediction.total_s for label, prediction in self.predictions.items()}

    @property
    def saved_s(self) -> Mapping[str, float]:
        """Label -> seconds less than the base."""
        return {label: self.predictions[BASE].total_s - total for label, total in self.totals.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            label: {
                "changes": {name: label_of(value) for name, value in self.changes[label].items()},
                "total_s": prediction.total_s,
                "saved_s": self.saved_s[label],
                "interval": list(prediction.interval),
                "starts": prediction.memory.fits,
                "phases": {phase: by_label[label] for phase, by_label in self.phases.items()},
            }
            for label, prediction in self.predictions.items()
        }

    def to_pandas(self) -> pd.DataFrame:
        """Phases as rows and starts as columns, the totals last. Raises ConfigError when pandas is not installed."""
        return data_frame(self.phases | {"total": self.totals}).T

    def text(self) -> str:
        """A table: a line a phase, a column a start."""
        labels = list(self.predictions)
        width = max(12, *(len(label) for label in labels)) + 2
        lines = [" " * 22 + "".join(label.rjust(width) for label in labels)]
        for name, row in (self.phases | {"total": self.totals}).items():
            lines.append(name.ljust(22) + "".join(f"{row[label]:.2f}".rjust(width) for label in labels))
        if short := [label for label, prediction in self.predictions.items() if not prediction.memory.fits]:
            lines.append(f"does not start: {', '.join(short)}")
        return "\n".join(lines)


def what_if(
    base: BaseLike, changes: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, include: Iterable[str] = ()
) -> Comparison:
    """The same start with something changed, side by side, phase by phase.

    base: a prediction, or what ``predict`` takes: ``(model, hardware, engine)`` or a dict of ``model``, ``hardware``, ``engine``, ``profile``. changes: by
    dotted name, ``{"engine.tp": 2}``; several starts as ``{label: changes}`` or a list of changes. include: segments, where the base is no prediction. A node that does not say
    how many accelerators it has has as many as each engine needs. Raises ConfigError for a field that does not exist or a value that does not fit.
    """
    start, level, safety, segments = _read_base(base, include)
    given = _read_changes(changes)
    starts = {BASE: changed_start(start, {})} | {label: changed_start(start, change) for label, change in given.items()}
    predictions = {
        label: predict(*one[:3], profile=one.profile, level=level, safety_factor=safety, include=segments)
        for label, one in starts.items()
    }
    return Comparison(MappingProxyType(predictions), MappingProxyType({BASE: {}, **given}))


def _read_base(base: BaseLike, include: Iterable[str]) -> tuple[Start, float, float, tuple[str, ...]]:
    """The start, level, safety factor and segments that a base stands for. Raises ConfigError."""
    if isinstance(base, StartupPrediction):
        segments = tuple(str(phase) for phase in base.phases if phase in base.segments)
        return base.context.start, base.level, base.safety_factor, segments
    if isinstance(base, Mapping):
        if not base.keys() <= set(Start._fields) or not {"model", "hardware"} <= base.keys():
            others = ", ".join(sorted(map(str, base.keys() - set(Start._fields))))
            problem = "must hold model and hardware, and may hold engine and profile"
            raise ConfigError("base", MISSING, problem, f"not {others}" if others else "")
        start = as_start(base["model"], base["hardware"], base.get("engine"), base.get("profile"))
    elif isinstance(base, Sequence) and not isinstance(base, str) and 2 <= len(base) <= len(Start._fields):
        start = as_start(*base)
    else:
        raise ConfigError("base", base, "must be a start", "give a prediction or (model, hardware, engine)")
    return start, DEFAULT_LEVEL, SAFETY_FACTOR, tuple(str(phase) for phase in check_include(include))


def _read_changes(changes: object) -> dict[str, Mapping[str, Any]]:
    """Label -> changes. Raises ConfigError."""
    wrong = ConfigError("changes", changes, "must map dotted names to values", "such as {'engine.tp': 2}")
    if isinstance(changes, Mapping) and changes:
        named = all(isinstance(value, Mapping) for value in changes.values()) and not set(changes) <= set(field_names())
        pairs = (
            [(str(label), dict(change)) for label, change in changes.items()]
            if named
            else [(_words(changes), dict(changes))]
        )
    elif isinstance(changes, Sequence) and not isinstance(changes, str) and changes:
        if not all(isinstance(change, Mapping) and change for change in changes):
            raise wrong
        pairs = [(_words(change), dict(change)) for change in changes[: MAX_STARTS + 1]]
    else:
        raise wrong
    given: dict[str, Mapping[str, Any]] = dict(pairs)
    if len(given) < len(pairs):
        twice = next(label for i, (label, _) in enumerate(pairs) if label in dict(pairs[:i]))
        raise ConfigError("changes", twice, "duplicate label", "give labels: {label: changes}")
    if len(given) > MAX_STARTS:
        raise ConfigError("changes", MISSING, f"more than {MAX_STARTS} starts beside each other", "use sweep")
    if BASE in given:
        raise ConfigError("changes", BASE, "'base' is reserved for the unchanged start", "choose another")
    for label, change in given.items():
        for name in change:
            check_name(name, f"changes.{label}")
    return given


def _words(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={label_of(value)}" for name, value in changes.items())


# --- sensitivity --------------------------------------------------------------------------------------------------------


class Gain(NamedTuple):
    """What one change is worth."""

    name: str
    """Dotted name of the field, or of the number of the node."""
    kind: str
    """number: better by the step; flag: another setting."""
    old: str
    new: str
    saved_s: float
    """Seconds that the start becomes shorter; negative: longer."""
    fits: bool
    """Whether the server still starts."""


class Sensitivity(NamedTuple):
    """Gains by size, for a tornado."""

    base: StartupPrediction
    step: float
    gains: tuple[Gain, ...]
    """The largest change first, in either direction."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"total_s": self.base.total_s, "step": self.step, "gains": [gain._asdict() for gain in self.gains]}

    def text(self) -> str:
        """A line a change, what it adds to the start (negative: saves), the largest first."""
        return "\n".join(
            [
                f"{self.base.context.model_name} on {self.base.context.hardware_name}: {format_seconds(self.base.total_s)}"
            ]
            + [
                f"{-gain.saved_s:+9.2f} s  {gain.name}: {gain.old} -> {gain.new}"
                + ("" if gain.fits else "  (does not start)")
                for gain in self.gains
            ]
        )


_SHOWN_UNITS: Mapping[str, Callable[[float], str]] = {
    "1": "{:.3g}".format,
    "B/s": format_bandwidth,
    "FLOP/s": "{:.3g} FLOP/s".format,
    "s": format_seconds,
    "B": format_bytes,
}
_NETWORK = "hardware.network_bandwidth"

_FLAGS: Mapping[str, tuple[Any, ...]] = {
    "engine.enforce_eager": (False, True),
    "engine.torch_compile": (False, True),
    "engine.page_cache": ("hot", "cold"),
    "engine.compile_cache": ("warm", "cold"),
    "engine.load_format": ("auto", "runai_streamer"),
    "engine.max_num_seqs": (64, 256),
    "engine.tp": (1, 2, 4, 8),
    "engine.quantization": ("fp8",),
    "engine.lazy_experts": (False, True),
    "hardware.storage.tier": ("local_nvme", "network_disk", "object_store"),
    "hardware.storage.concurrent_starts": (1, 8),
}
"""Flag -> settings worth trying."""


def sensitivity(base: BaseLike, *, step: float = STEP, include: Iterable[str] = ()) -> Sensitivity:
    """Seconds that each number of the node is worth when it is better by ``step`` (0.1: bandwidths and speeds x 1.1, times and sizes / 1.1), and
    what each flag would save: total_s of the base - total_s with the change. The largest come first.

    base, include: as for ``what_if``. ``saved_s`` is positive where the start becomes shorter. Changes that nothing depends on are left out. Raises ConfigError unless 0 < step <= 10.
    """
    if isinstance(step, bool) or not isinstance(step, int | float) or not 0.0 < step <= 10.0:
        raise ConfigError("step", step, "must be above 0 and at most 10", "0.1 asks for 10 %")
    start, level, safety, segments = _read_base(base, include)

    def at(changed: Start) -> StartupPrediction:
        return predict(*changed[:3], profile=changed.profile, level=level, safety_factor=safety, include=segments)

    now = at(changed_start(start, {}))
    found = prepare(now.context.start)
    gains = []
    for name, kind, old, new, changes in (*_better_numbers(found, step), *_other_flags(start)):
        try:
            changed = changed_start(start._replace(profile=found.profile) if kind == "number" else start, changes)
            then = at(changed)
        except StartupModelError:  # the engine does not have this setting for this start
            if kind == "number":
                raise
            continue
        saved = now.total_s - then.total_s
        if abs(saved) >= MIN_REPORTED_S:
            gains.append(Gain(name, kind, old, new, saved, then.memory.fits))
    return Sensitivity(now, float(step), tuple(sorted(gains, key=lambda gain: -abs(gain.saved_s))))


def _better_numbers(found: Prepared, step: float) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """Field, kind, old and new value in words, and the changes, for each number of the node.

    A disk behind a network gets no faster than the network; where both bind, they are asked about together, too.
    """
    better: dict[str, float] = {}
    node = found.recipe.node
    for name, row in NODE_NUMBERS.items():
        field, old, shown = f"hardware.{row.field}", float(node.numbers[name]), _SHOWN_UNITS[row.unit]
        if not row.better or name in node.fixed or not 0.0 < old < float("inf"):
            continue
        better[field] = new = old * (1.0 + step) if row.better > 0 else old / (1.0 + step)
        if field == TIER_BANDWIDTH:
            new = max(old, min(new, float(node.numbers["network_bandwidth"])))
        if new != old:
            yield field, "number", shown(old), shown(new), {field: new}
    disk, network = better.get(TIER_BANDWIDTH), better.get(_NETWORK)
    if disk is not None and network is not None and disk > node.numbers["network_bandwidth"]:
        now = (node.numbers["storage_bandwidth"], node.numbers["network_bandwidth"])
        old_words = " and ".join(map(format_bandwidth, now))
        new_words = f"{format_bandwidth(min(disk, network))} and {format_bandwidth(network)}"
        changes = {TIER_BANDWIDTH: min(disk, network), _NETWORK: network}
        yield f"{TIER_BANDWIDTH} and {_NETWORK}", "number", old_words, new_words, changes


def _other_flags(start: Start) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """The same for each setting of a flag that is not the present one."""
    for name, settings in _FLAGS.items():
        now: Any = start
        for part in name.split("."):
            now = getattr(now, part)
        for setting in settings:
            if setting != now:
                yield name, "flag", "default" if now is None else str(now), str(setting), {name: setting}
