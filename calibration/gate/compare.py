"""Two profiles, or two tables of predictions: what moved between them, and which phase most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field

from calibration.gate.figures import caches
from calibration.gate.inputs import host_of
from calibration.gate.report import Limits, plain
from startup_model import predictor
from startup_model.errors import ConfigError, InputFileError, missing, one_line, shown
from startup_model.files import open_regular, parse_json_object
from startup_model.frozen import FrozenModel
from startup_model.models.config import ModelConfig
from startup_model.prediction import StartupPrediction
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, ProfileLike, predict
from startup_model.profile import Profile, reference_names
from startup_model.units import format_seconds

_WHAT = "a profile, or predictions (the output of predict --json, one or a list of them)"
_MAX_FILE_BYTES = 64 * 2**20
_MAX_PREDICTIONS = 10_000
_MAX_PHASES = 100
_MAX_LINES = 200
_MAX_NOTES = 20
_ROUNDING = 1e-9

MODELS = ("Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B")
"""What profiles are asked about when no model is named: those of them that fit the node."""


class Movement(NamedTuple):
    case: str  # model, node and state of the caches
    phase: str  # a phase, or total
    old_s: float
    new_s: float
    is_beyond: bool  # moved by more than the factor, either way, and not too short to count

    @property
    def ratio(self) -> float | None:
        """new / old; None where there was nothing before."""
        return self.new_s / self.old_s if self.old_s > 0 else None

    @property
    def moved_s(self) -> float:
        return self.new_s - self.old_s

    @property
    def direction(self) -> str:
        """slower or faster; empty where it did not move by more than the factor."""
        return "" if not self.is_beyond else "slower" if self.moved_s > 0 else "faster"

    def words(self) -> str:
        change = "new" if self.ratio is None else f"{self.ratio:.2f} times"
        return f"{self.phase} {format_seconds(self.old_s)} -> {format_seconds(self.new_s)} ({change}, {self.moved_s:+.2f} s), {self.case}"


@dataclass(frozen=True, slots=True)
class CompareReport:
    """What moved. ``passed``: nothing by more than the factor, either way."""

    passed: bool
    kind: str
    """profiles or predictions."""
    old: str
    new: str
    factor: float
    floor_s: float
    most: Movement | None
    """The phase that moved most: by the most seconds of those beyond the factor, else of all; None when none moved."""
    rows: tuple[Movement, ...]
    notes: tuple[str, ...]
    """What stands in one of the two only, or sets them apart beside their seconds."""

    @property
    def beyond(self) -> tuple[Movement, ...]:
        """What moved by more than the factor, the most seconds first."""
        return tuple(sorted((row for row in self.rows if row.is_beyond), key=lambda row: -abs(row.moved_s)))

    def headline(self) -> str:
        """The outcome in one line."""
        outcome = "passed" if self.passed else "FAILED"
        words = "nothing moved" if self.most is None else f"moved most: {self.most.words()}"
        return f"compare {outcome}: {self.kind} {self.old} -> {self.new} at factor {self.factor:g}; {words}"

    def text(self) -> str:
        """The headline, what moved beyond the factor, and notes, one line each."""
        beyond = self.beyond
        lines = [f"{row.direction}: {row.words()}" for row in beyond[:_MAX_LINES]]
        lines += [f"{len(beyond) - _MAX_LINES} more are not listed"] if len(beyond) > _MAX_LINES else []
        return "\n  ".join([self.headline(), *lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        return plain(self)  # type: ignore[no-any-return]


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
    names = (one_line(Path(old).name, 200), one_line(Path(new).name, 200))
    if kind != other_kind:
        raise ConfigError("--compare", str(new), f"it holds {other_kind}, {names[0]} {kind}", "give two of a kind")
    if kind == "predictions":
        for name, value in (("model", model), ("hardware", hardware), ("engine", engine)):
            if value is not None:
                raise ConfigError(name, value, "predictions say it themselves", "omit it")
        return compare_predictions(before, after, factor, floor_s=floor_s, names=names)
    first, second = Profile.from_dict(before, str(old)), Profile.from_dict(after, str(new))
    models = None if model is None else [model]
    return compare_profiles(first, second, factor, floor_s=floor_s, models=models, hardware=hardware, engine=engine, names=names)  # fmt: skip


def _read(place: str | Path) -> tuple[str, Any]:
    if isinstance(place, str) and place in reference_names():
        return "a profile", Profile.reference(place).model_dump(mode="json", exclude_none=True)
    path = Path(place)
    with open_regular(path, _WHAT) as file:
        content = file.read(_MAX_FILE_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    if len(content) > _MAX_FILE_BYTES:
        raise InputFileError(f"{path}: more than the {_MAX_FILE_BYTES} bytes that are compared; give {_WHAT}")
    is_list = content.lstrip()[:1] == b"["  # read as the only field of an object, so that one function words all errors
    value: Any = parse_json_object(b'{"": ' + content + b"}" if is_list else content, str(path), _WHAT)
    value = value[""] if is_list else value
    if isinstance(value, Mapping) and "coefficients" in value:
        return "a profile", value
    if _is_prediction(value[0] if isinstance(value, list) and value else value):
        return "predictions", value
    raise InputFileError(f"{path}: neither a profile nor predictions; give {_WHAT}")


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
    """What two profiles predict for the same starts, phase by phase.

    A phase moved when max(new / old, old / new) > factor and the longer of the two is at least ``floor_s`` [s]. models: None: three sizes that the catalogue has, those that fit the node. hardware: None:
    the host of the old profile. engine: None: the engine of the profiles, each at its own version, with warm and with cold caches. Raises ConfigError for profiles of
    different engines, or a bad argument.
    """
    limits = Limits(factor=factor, floor_s=floor_s)
    first, second = predictor.as_profile(old), predictor.as_profile(new)
    if first is None or second is None:
        raise missing("profile", "two are compared", "give a Profile, a file or the name of a reference")
    if first.engine != second.engine:
        raise ConfigError("new", second.name, f"a profile of {second.engine}, the old one of {first.engine}", "compare profiles of one engine")  # fmt: skip
    node = host_of(first) if hardware is None else predictor.as_hardware(hardware)
    asked = predictor.as_engine(first.engine if engine is None else engine)
    if models is None:
        found = [ModelConfig.from_catalogue(name) for name in ((asked.model,) if asked.model else MODELS)]
        models = [model for model in found if predict(model, node, asked, profile=first).memory.fits] or found[:1]
    unsaid = [cache for cache in caches() if getattr(asked, cache.field) == "unknown"]
    starts = [asked.replace(**{cache.field: cache.fast for cache in unsaid})]
    starts += [asked.replace(**{cache.field: cache.slow for cache in unsaid})] if unsaid else []
    asked_about = [(model, node, start) for model in map(predictor.as_model, models) for start in starts]
    pairs = [[_predicted(predict(*start, profile=profile)) for profile in (first, second)] for start in asked_about]
    names = names or (one_line(first.name, 200), one_line(second.name, 200))
    sides = [
        (profile.runs_version or profile.engine_version, profile.host.gpu, profile.host.cpu, profile.kind)
        for profile in (first, second)
    ]
    columns = zip(("engine version", "accelerator", "processor", "kind"), *sides, strict=True)
    notes = [f"{what}: {one_line(a, 100)} -> {one_line(b, 100)}" for what, a, b in columns if a != b]
    return _report("profiles", names, limits, pairs, dict.fromkeys(notes))


def _predicted(found: StartupPrediction) -> _Prediction:
    model, node, engine, _ = found.context.start
    where = f"{one_line(node.name, 100)}, page cache {engine.page_cache}, compile cache {engine.compile_cache}"
    seconds = {str(phase): entry.seconds for phase, entry in found.phases.items()}
    name = one_line(model.name, 200)
    return _Prediction.model_construct(model=name, hardware=where, total_s=found.total_s, phases=seconds)


_Name = Annotated[str, BeforeValidator(lambda value: one_line(str(value), 200))]
_Seconds = Annotated[float, Field(ge=0.0, le=1e9)]
_PhaseSeconds = Annotated[_Seconds, BeforeValidator(lambda value: value.get("seconds") if isinstance(value, Mapping) else value)]  # fmt: skip


class _Prediction(FrozenModel):
    """What is compared of a prediction."""

    model_config = ConfigDict(extra="ignore")
    model: _Name = "unknown"
    hardware: _Name = "unknown"
    engine: _Name = "unknown"
    total_s: _Seconds
    phases: Annotated[dict[_Name, _PhaseSeconds], Field(max_length=_MAX_PHASES)]

    @property
    def case(self) -> str:
        return f"{self.model} on {self.hardware}"


def compare_predictions(
    old: Any, new: Any, factor: float = 1.1, *, floor_s: float = 0.1, names: tuple[str, str] = ("old", "new")
) -> CompareReport:
    """Two tables of predictions, each one object as ``predict --json`` prints it (``StartupPrediction.to_dict()``), or a list of them.

    Starts are matched by model and node, several of one kind in their order; two single ones always. A phase moved when max(new / old, old / new) > factor and the longer of the two is at least ``floor_s`` [s]; one that only
    one of the two has counts from or to nothing. Raises InputFileError for what is no prediction, ConfigError for a bad factor or floor, or when no start stands in both.
    """
    limits = Limits(factor=factor, floor_s=floor_s)
    notes: dict[str, None] = {}
    pairs = _pairs(_predictions(old, names[0]), _predictions(new, names[1]), notes)
    return _report("predictions", names, limits, pairs, notes)


def _report(
    kind: str, names: tuple[str, str], limits: Limits, pairs: Iterable[Sequence[_Prediction]], notes: dict[str, None]
) -> CompareReport:
    rows = []
    for first, second in pairs:
        for field in ("model", "hardware", "engine"):
            if getattr(first, field) != getattr(second, field):
                notes[f"{field}: {getattr(first, field)} -> {getattr(second, field)}"] = None
        before, after = (entry.phases | {"total": entry.total_s} for entry in (first, second))
        for phase in [*(phase for phase in before | after if phase != "total"), "total"]:
            shorter, longer = sorted(times := (before.get(phase, 0.0), after.get(phase, 0.0)))
            is_beyond = longer >= limits.floor_s and longer > shorter * limits.factor * (1.0 + _ROUNDING)
            rows.append(Movement(first.case, phase, *times, is_beyond))
    # Of phases beyond the factor, else of those that moved, else of totals.
    ranks = [(row.moved_s != 0, row.phase != "total", row.is_beyond, abs(row.moved_s)) for row in rows]
    most = max(zip(ranks, rows, strict=True), key=lambda pair: pair[0], default=None)
    return CompareReport(
        passed=not any(row.is_beyond for row in rows),
        kind=kind,
        old=names[0],
        new=names[1],
        **limits.model_dump(),
        most=most[1] if most and most[1].moved_s else None,
        rows=tuple(rows),
        notes=tuple(notes)[:_MAX_NOTES],
    )


def _pairs(
    before: Sequence[_Prediction], after: Sequence[_Prediction], notes: dict[str, None]
) -> Iterator[tuple[_Prediction, _Prediction]]:
    """Starts that belong together. Raises ConfigError when there are none."""
    if len(before) == len(after) == 1:
        yield before[0], after[0]
        return
    left, right = _by_start(before), _by_start(after)
    if not left.keys() & right.keys():
        raise ConfigError("--compare", before[0].model, "no start stands in both tables", "compare predictions for the same models and nodes")  # fmt: skip
    yield from ((entry, right[key]) for key, entry in left.items() if key in right)
    for which, entries, others in (("old", left, right), ("new", right, left)):
        alone = (entry.case for key, entry in entries.items() if key not in others)
        notes.update({f"only in the {which} table: {case}": None for case in alone})


def _by_start(entries: Iterable[_Prediction]) -> dict[tuple[str, str, int], _Prediction]:
    """(model, node, ordinal among these) -> prediction."""
    seen: Counter[tuple[str, str]] = Counter()
    found = {}
    for entry in entries:
        start = entry.model, entry.hardware
        found[*start, seen[start]] = entry
        seen[start] += 1
    return found


def _predictions(value: Any, name: str) -> list[_Prediction]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not 1 <= len(items) <= _MAX_PREDICTIONS:
        raise InputFileError(f"{name}: must hold 1 to {_MAX_PREDICTIONS} predictions, got {len(items)}; give {_WHAT}")
    found = []
    for number, item in enumerate(items, 1):
        place = f"{name}, prediction {number}" if len(items) > 1 else name
        if not _is_prediction(item):
            raise InputFileError(f"{place}: expected a prediction, got {shown(item)}; give {_WHAT}")
        try:
            found.append(_Prediction.model_validate(item))
        except ConfigError as error:
            raise InputFileError(f"{place}: {error}; give {_WHAT}") from None
    return found


def _is_prediction(value: object) -> bool:
    return isinstance(value, Mapping) and "total_s" in value and isinstance(value.get("phases"), Mapping)
