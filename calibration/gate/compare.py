"""Two profiles, or two tables of predictions: what moved between them, and which phase most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calibration.gate.inputs import host_of
from calibration.gate.report import check_factor, check_floor
from startup_model.engines.config import EngineConfig
from startup_model.errors import MISSING, ConfigError, InputFileError, one_line, shown
from startup_model.files import open_regular, parse_json_object
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.predictor import (
    EngineLike,
    HardwareLike,
    ModelLike,
    ProfileLike,
    as_engine,
    as_hardware,
    as_model,
    as_profile,
    predict,
)
from startup_model.profile import Profile, reference_names
from startup_model.units import format_seconds

__all__ = ["CompareReport", "Movement", "compare_files", "compare_predictions", "compare_profiles"]

_WHAT = "a profile, or predictions (the output of predict --json, one or a list of them)"
_LARGEST_FILE = 64 * 2**20
_MOST_PREDICTIONS = 10_000
_MOST_PHASES = 100
_MOST_LINES = 200
_MOST_NOTES = 20
_LARGEST_SECONDS = 1e9
_ROUNDING = 1e-9

MODELS = ("Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B")
"""What profiles are asked about when no model is named: those of them that fit the node."""

CACHES = ({"page_cache": "hot", "compile_cache": "warm"}, {"page_cache": "cold", "compile_cache": "cold"})
"""States of the caches that profiles are asked about."""


class Movement(NamedTuple):
    """One phase of one start, before and after."""

    case: str
    """Model, node and state of the caches."""
    phase: str
    """A phase, or total."""
    old_s: float
    new_s: float
    is_beyond: bool
    """Moved by more than the factor, either way, and not too short to count."""

    @property
    def ratio(self) -> float | None:
        """new / old; None where there was nothing before."""
        return self.new_s / self.old_s if self.old_s > 0 else None

    @property
    def moved_s(self) -> float:
        """new - old."""
        return self.new_s - self.old_s

    def words(self) -> str:
        """The movement in words."""
        change = "new" if self.ratio is None else f"{self.ratio:.2f} times"
        return f"{self.phase} {format_seconds(self.old_s)} -> {format_seconds(self.new_s)} ({change}, {self.moved_s:+.2f} s), {self.case}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return self._asdict() | {"ratio": self.ratio, "moved_s": self.moved_s}


@dataclass(frozen=True, slots=True)
class CompareReport:
    """What moved. ``passed``: nothing by more than the factor, either way."""

    kind: str
    """profiles or predictions."""
    old: str
    new: str
    factor: float
    floor_s: float
    rows: tuple[Movement, ...]
    notes: tuple[str, ...]
    """What stands in one of the two only, or sets them apart beside their seconds."""

    @property
    def beyond(self) -> tuple[Movement, ...]:
        """What moved by more than the factor, the most seconds first."""
        return tuple(sorted((row for row in self.rows if row.is_beyond), key=lambda row: -abs(row.moved_s)))

    @property
    def passed(self) -> bool:
        """Whether nothing moved by more than the factor."""
        return not any(row.is_beyond for row in self.rows)

    @property
    def most(self) -> Movement | None:
        """The phase that moved most: by the most seconds of those beyond the factor, else of all; None when none moved."""
        moved = [row for row in self.rows if row.moved_s]
        phases = [row for row in moved if row.phase != "total"]
        beyond = [row for row in phases if row.is_beyond]
        return max(beyond or phases or moved, key=lambda row: abs(row.moved_s), default=None)

    def headline(self) -> str:
        """The outcome in one line."""
        outcome = "passed" if self.passed else "FAILED"
        most = self.most
        words = "nothing moved" if most is None else f"moved most: {most.words()}"
        return f"compare {outcome}: {self.kind} {self.old} -> {self.new} at factor {self.factor:g}; {words}"

    def lines(self) -> Iterator[str]:
        """The headline, what moved beyond the factor, and notes."""
        yield self.headline()
        beyond = self.beyond
        for row in beyond[:_MOST_LINES]:
            yield f"  {'slower' if row.moved_s > 0 else 'faster'}: {row.words()}"
        if len(beyond) > _MOST_LINES:
            yield f"  {len(beyond) - _MOST_LINES} more are not listed"
        yield from (f"  note: {note}" for note in self.notes)

    def text(self) -> str:
        """The report in words, one line a movement."""
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        most = self.most
        return {
            "passed": self.passed,
            "kind": self.kind,
            "old": self.old,
            "new": self.new,
            "factor": self.factor,
            "floor_s": self.floor_s,
            "most": None if most is None else most.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }


def compare_files(
    old: str | Path,
    new: str | Path,
    factor: float = 1.1,
    *,
    floor_s: float = 0.1,
    model: ModelLike | None = None,
    hardware: HardwareLike | None = None,
    engine: EngineLike | None = None,
) -> CompareReport:
    """Compare two files: two profiles (as ``compare_profiles``), or two tables of predictions (as ``compare_predictions``), told apart by what they hold.

    ``old`` and ``new`` may also be names of reference profiles. model, hardware, engine: what profiles are asked about; predictions say it themselves. Raises InputFileError for a file that is
    neither, ConfigError for one of each, or for arguments that do not go with predictions.
    """
    (kind, before), (other_kind, after) = _read(old), _read(new)
    if kind != other_kind:
        raise ConfigError(
            "--compare", str(new), f"it holds {other_kind}, {_file_name(old)} {kind}", "give two of a kind"
        )
    names = (_file_name(old), _file_name(new))
    if kind == "predictions":
        for name, value in (("model", model), ("hardware", hardware), ("engine", engine)):
            if value is not None:
                raise ConfigError(name, value, "predictions say it themselves", "leave it out")
        return compare_predictions(before, after, factor, floor_s=floor_s, names=names)
    return compare_profiles(
        Profile.from_dict(before, str(old)),
        Profile.from_dict(after, str(new)),
        factor,
        floor_s=floor_s,
        models=None if model is None else [model],
        hardware=hardware,
        engine=engine,
        names=names,
    )


# --- profiles -----------------------------------------------------------------------------------------------------------


def compare_profiles(
    old: ProfileLike,
    new: ProfileLike,
    factor: float = 1.1,
    *,
    floor_s: float = 0.1,
    models: Sequence[ModelLike] | None = None,
    hardware: HardwareLike | None = None,
    engine: EngineLike | None = None,
    names: tuple[str, str] | None = None,
) -> CompareReport:
    """What two profiles predict for the same starts, phase by phase (``diff_profiles``).

    A phase moved when max(new / old, old / new) > factor and the longer of the two is at least ``floor_s`` [s]. models: None: three sizes that the catalogue has, those that fit the node. hardware: None:
    the host of the old profile. engine: None: the engine of the profiles, each at its own version, with warm and with cold caches. Raises ConfigError for profiles of
    different engines, or a bad argument.
    """
    from calibration.fit.calibrate import diff_profiles

    factor, floor_s = check_factor("factor", factor), check_floor("floor_s", floor_s)
    first, second = (_profile(value) for value in (old, new))
    if first.engine != second.engine:
        raise ConfigError("new", second.name, f"it is a profile of {second.engine}, the old one of {first.engine}", "compare profiles of one engine")  # fmt: skip
    node = host_of(first) if hardware is None else as_hardware(hardware)
    asked = as_engine(first.engine if engine is None else engine)
    rows: list[Movement] = []
    for model in _models(models, node, asked, first):
        for states in CACHES:
            said = {name: state for name, state in states.items() if getattr(asked, name) == "unknown"}
            if not said and states is not CACHES[0]:
                continue
            start = asked.replace(**said)
            case = f"{one_line(model.name, 200)} on {one_line(node.name, 100)}, page cache {start.page_cache}, compile cache {start.compile_cache}"
            found = diff_profiles(first, second, model, node, start)
            rows += [_movement(case, phase, *seconds, factor, floor_s) for phase, seconds in found.items()]
    notes = _profile_notes(first, second)
    before, after = names or (one_line(first.name, 200), one_line(second.name, 200))
    return CompareReport("profiles", before, after, factor, floor_s, tuple(rows), tuple(notes))


def _profile(value: ProfileLike) -> Profile:
    found = as_profile(value)
    if found is None:
        raise ConfigError("profile", MISSING, "there is none", "give a Profile, a file or the name of a reference")
    return found


def _models(
    models: Sequence[ModelLike] | None, node: HardwareConfig, engine: EngineConfig, profile: Profile
) -> Iterator[ModelConfig]:
    if models is not None:
        yield from map(as_model, models)
        return
    found = [ModelConfig.from_catalogue(name) for name in ((engine.model,) if engine.model else MODELS)]
    fitting = [model for model in found if predict(model, node, engine, profile=profile).memory.fits]
    yield from fitting or found[:1]


def _profile_notes(old: Profile, new: Profile) -> Iterator[str]:
    pairs = {
        "engine version": (old.runs_version or old.engine_version, new.runs_version or new.engine_version),
        "accelerator": (old.host.gpu, new.host.gpu),
        "processor": (old.host.cpu, new.host.cpu),
        "kind": (old.kind, new.kind),
    }
    for what, (before, after) in pairs.items():
        if before != after:
            yield f"{what}: {one_line(before, 100)} -> {one_line(after, 100)}"


# --- predictions --------------------------------------------------------------------------------------------------------


class _Prediction(NamedTuple):
    """What is compared of a prediction."""

    model: str
    hardware: str
    engine: str
    seconds: Mapping[str, float]
    """Phase -> seconds; and the total."""

    @property
    def case(self) -> str:
        """What was started where."""
        return f"{self.model} on {self.hardware}"


def compare_predictions(
    old: Any,
    new: Any,
    factor: float = 1.1,
    *,
    floor_s: float = 0.1,
    names: tuple[str, str] = ("old", "new"),
) -> CompareReport:
    """Two tables of predictions, each one object as ``predict --json`` prints it (``StartupPrediction.to_dict()``), or a list of them.

    Starts are matched by model and node, several of one kind in their order; two single ones always. A phase moved when max(new / old, old / new) > factor and the longer of the two is at least ``floor_s`` [s]; one that only
    one of the two has counts from or to nothing. Raises InputFileError for what is no prediction, ConfigError for a bad factor or floor, or when no start stands in both.
    """
    factor, floor_s = check_factor("factor", factor), check_floor("floor_s", floor_s)
    notes: list[str] = []
    rows: list[Movement] = []
    for first, second in _pairs(_predictions(old, names[0]), _predictions(new, names[1]), notes):
        for field in ("model", "hardware", "engine"):
            before, after = getattr(first, field), getattr(second, field)
            if before != after:
                _note(notes, f"{field}: {before} -> {after}")
        times = [
            (phase, first.seconds.get(phase, 0.0), second.seconds.get(phase, 0.0)) for phase in _phases(first, second)
        ]
        rows += [_movement(first.case, phase, old_s, new_s, factor, floor_s) for phase, old_s, new_s in times]
    return CompareReport("predictions", names[0], names[1], factor, floor_s, tuple(rows), tuple(notes))


def _phases(first: _Prediction, second: _Prediction) -> list[str]:
    """Phases of either, the total last."""
    phases = dict.fromkeys([*first.seconds, *second.seconds])
    return [*(phase for phase in phases if phase != "total"), "total"]


def _pairs(
    before: Sequence[_Prediction], after: Sequence[_Prediction], notes: list[str]
) -> Iterator[tuple[_Prediction, _Prediction]]:
    """Starts that belong together. Raises ConfigError when there are none."""
    if len(before) == len(after) == 1:
        yield before[0], after[0]
        return
    left = dict(zip(_keys(before), before, strict=True))
    right = dict(zip(_keys(after), after, strict=True))
    if not left.keys() & right.keys():
        raise ConfigError("--compare", before[0].model, "no start stands in both tables", "compare predictions for the same models and nodes")  # fmt: skip
    for key, entry in left.items():
        if key in right:
            yield entry, right[key]
        else:
            _note(notes, f"only in the old table: {entry.case}")
    for key, entry in right.items():
        if key not in left:
            _note(notes, f"only in the new table: {entry.case}")


def _keys(entries: Iterable[_Prediction]) -> Iterator[tuple[str, str, int]]:
    """Model, node, and the how manieth of these."""
    seen: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        key = (entry.model, entry.hardware)
        yield (*key, seen[key])
        seen[key] += 1


def _note(notes: list[str], text: str) -> None:
    if text not in notes and len(notes) < _MOST_NOTES:
        notes.append(text)


def _predictions(value: Any, name: str) -> list[_Prediction]:
    """What is compared of each prediction. Raises InputFileError."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise InputFileError(f"{name}: an empty list; give {_WHAT}")
    if len(items) > _MOST_PREDICTIONS:
        raise InputFileError(
            f"{name}: {len(items)} predictions, more than the {_MOST_PREDICTIONS} that are compared; give fewer"
        )
    return [_prediction(item, f"{name}, prediction {i}" if len(items) > 1 else name) for i, item in enumerate(items, 1)]


def _prediction(item: Any, place: str) -> _Prediction:
    if not _is_prediction(item):
        raise InputFileError(f"{place}: {shown(item)} is no prediction; give {_WHAT}")
    phases = item["phases"]
    if len(phases) > _MOST_PHASES:
        raise InputFileError(f"{place}: {len(phases)} phases; give {_WHAT}")
    seconds = {}
    for phase, entry in phases.items():
        value = entry.get("seconds") if isinstance(entry, Mapping) else entry
        seconds[one_line(str(phase), 100)] = _seconds(value, f"{place}: phases.{phase}")
    seconds["total"] = _seconds(item["total_s"], f"{place}: total_s")
    model, hardware, engine = (
        one_line(str(item.get(field, "unknown")), 200) for field in ("model", "hardware", "engine")
    )
    return _Prediction(model, hardware, engine, seconds)


def _seconds(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST_SECONDS:
        raise InputFileError(f"{place} = {shown(value)}: it should be seconds from 0 on; give {_WHAT}")
    return float(value)


def _movement(case: str, phase: str, old_s: float, new_s: float, factor: float, floor_s: float) -> Movement:
    longer, shorter = max(old_s, new_s), min(old_s, new_s)
    is_beyond = longer >= floor_s and longer > shorter * factor * (1.0 + _ROUNDING)
    return Movement(case, phase, old_s, new_s, is_beyond)


# --- files --------------------------------------------------------------------------------------------------------------


def _is_prediction(value: object) -> bool:
    return isinstance(value, Mapping) and "total_s" in value and isinstance(value.get("phases"), Mapping)


def _read(place: str | Path) -> tuple[str, Any]:
    """Kind and content of a file. Raises InputFileError."""
    if isinstance(place, str) and place in reference_names():
        return "a profile", Profile.reference(place).model_dump(mode="json", exclude_none=True)
    path = Path(place)
    with open_regular(path, _WHAT) as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise InputFileError(f"{path}: more than the {_LARGEST_FILE} bytes that are compared; give {_WHAT}")
    content = content.removeprefix(b"\xef\xbb\xbf")
    if (
        content.lstrip()[:1] == b"["
    ):  # an array is read as the only field of an object, so that one function words all errors
        value: Any = parse_json_object(b'{"": ' + content + b"}", str(path), _WHAT)[""]
    else:
        value = parse_json_object(content, str(path), _WHAT)
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(value, Mapping) and "coefficients" in value:
        return "a profile", value
    if _is_prediction(first):
        return "predictions", value
    raise InputFileError(f"{path}: neither a profile nor predictions; give {_WHAT}")


def _file_name(place: str | Path) -> str:
    return one_line(Path(place).name, 200)
