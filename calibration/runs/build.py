"""What readers of all formats share: configurations and records from what files call their parts, read once and told of in a report."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from calibration.runs.published import PACKED
from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.errors import (
    MISSING,
    ConfigError,
    InputFileError,
    StartupModelError,
    UnknownNameError,
    conflict,
    missing,
    out_of_range,
    wrong_type,
)
from startup_model.files import is_file, open_regular, parse_json_object
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.predictor import as_engine, as_hardware, as_model
from startup_model.units import parse_seconds

WHAT = "a file of run records"
MAX_LINE = 2**20  # bytes of one JSONL line or CSV row; a run record is a few thousand
MAX_JSON, MAX_YAML = 2**25, 2**21  # bytes of a document, which is read in one piece
_MAX_DEPTH = 40
SAMPLE = 2**18  # bytes from which a format is told
KNOWN_FORMATS = (
    "run records (JSONL or JSON), cold-start records (YAML or JSON), a CSV table of runs, the JSON of vllm bench startup, or "
    "avg_comparison_results.json of vllm-startup-profiler"
)
_BOM = b"\xef\xbb\xbf"
MAX_PROBLEMS = 100  # problems that a report keeps word by word; the others are only counted
_MAX_CACHED = 4096
_MAX_FAILURES = 1000  # configurations of one file that are tried in vain before no other is: bounds the time on junk
_MIN_READ_RATE = 1e7  # bytes per second below which no start is waited for; with an hour for all else, none is longer
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

_T = TypeVar("_T")


@dataclass
class ReadReport:
    """What became of the files, filled in while they are read."""

    runs: int = 0
    """Records given out."""
    duplicates: int = 0
    """Records left out because an identical one was there already."""
    skipped: int = 0
    """Records that could not be read (``strict=False``)."""
    problems: list[str] = field(default_factory=list)
    """The first hundred reasons, one line each."""
    notes: list[str] = field(default_factory=list)
    """What was left out of records that were read, and files of a folder that are no run files."""

    def __str__(self) -> str:
        """One line."""
        text = f"{self.runs} run(s) read, {self.duplicates} duplicate(s) left out, {self.skipped} skipped"
        return f"{text}; the first: {self.problems[0]}" if self.problems else text

    def note(self, text: str) -> None:
        """Keep a note, the first of each text, a hundred at most."""
        if text not in self.notes and len(self.notes) < MAX_PROBLEMS:
            self.notes.append(text)


class Given(NamedTuple):
    """What the caller says about runs whose file does not."""

    model: ModelConfig | None
    hardware: HardwareConfig | None
    engine: EngineConfig | None


class Found(NamedTuple):
    """A record, and whether its digest stood in the file (it is then of a log, not of the file itself)."""

    run: RunRecord
    has_own_digest: bool


Records = Sequence[Found | StartupModelError]
Build = Callable[[], Found | Records]  # gives the records of a place, or raises
Attempt = tuple[str, Build]  # the place in a file, and what reads it
Advance = Callable[[int], None]


class Source(NamedTuple):
    """One file to be read."""

    path: Path
    builder: Builder
    report: ReadReport
    strict: bool


# --- configurations -----------------------------------------------------------------------------------------------------


class Builder:
    """Configurations from what files call them; equal ones are built once, and fail once."""

    def __init__(self, given: Given, folder: Path) -> None:
        self.given = given
        self._folder = folder
        self._built: dict[object, Any] = {}
        self._failures = 0

    def cached(self, key: object, build: Callable[[], _T]) -> _T:
        """``build()``, remembered by ``key``."""
        found: _T | StartupModelError | None = self._built.get(key)
        if found is None:
            if self._failures >= _MAX_FAILURES:
                problem = f"not tried: {_MAX_FAILURES} different ones before it could not be read"
                raise ConfigError("configuration", MISSING, problem, "correct those first")
            if len(self._built) >= _MAX_CACHED:
                self._built.clear()
            try:
                found = build()
            except StartupModelError as error:
                self._failures += 1
                found = error
            self._built[key] = found
        if isinstance(found, StartupModelError):
            raise found.with_traceback(None)
        return found

    def part(self, name: str, value: object) -> Any:
        """The model, hardware or engine of a record: its fields or a name (of an engine also a command line), else what the caller gave."""
        if is_absent(value):
            given = getattr(self.given, name)
            if given is None and name == "model":
                raise missing("model", "the record names none", "name it there, or give model=")
            return self.node(None) if name == "hardware" else given or self.cached("engine", EngineConfig)
        if not isinstance(value, str | dict):
            raise wrong_type(name, value, "a name or an object with its fields")
        read: Mapping[str, Callable[[Any], Any]] = {
            "model": lambda value: self._named_model(value) if isinstance(value, str) else as_model(value),
            "hardware": lambda value: (HardwareConfig.preset if isinstance(value, str) else as_hardware)(value),
            "engine": as_engine,
        }
        return self.cached((name, value if isinstance(value, str) else _key(value)), lambda: read[name](value))

    def _named_model(self, name: str) -> ModelConfig:
        """A model of the catalogue, or of a folder or config.json here; of a path elsewhere its last parts count."""
        if name.startswith("hub:"):
            raise ConfigError("model", name, "a file of runs asks nothing of the network", "give its config.json")
        name = name.strip()
        for place in (self._folder / name, Path(name)):
            if is_file(place / "config.json") or (name.endswith(".json") and is_file(place)):
                return ModelConfig.from_hf(place)
        parts = [part for part in name.split("/") if part]
        try:
            return ModelConfig.from_catalogue(name)
        except UnknownNameError:
            for tail in ("/".join(parts[-2:]), *parts[-1:]):
                if tail != name:
                    with suppress(UnknownNameError):
                        return ModelConfig.from_catalogue(tail)
            raise

    def node(self, named: HardwareConfig | None, gpus: int | None = None, name: str = "hardware") -> HardwareConfig:
        """The node that the caller gave, else the one that the file names; with ``gpus`` accelerators."""
        given = self.given.hardware
        node = given or named
        if node is None:
            raise missing(name, "the record does not say which accelerator", "give hardware=")
        if given is not None and named is not None and given.gpu != named.gpu:
            words = f"the file, which names another accelerator, {named.gpu}"
            raise conflict("hardware", given.gpu, words, "read it without hardware=, or give the right one")
        if gpus is None or gpus == node.gpus or node.nodes > 1 or node.is_cpu_only:
            return node
        return self.cached(("gpus", node, gpus), lambda: node.replace(gpus=gpus))

    def preset(self, name: str) -> HardwareConfig | None:
        """The preset of that name, or None."""
        try:
            return cast("HardwareConfig", self.part("hardware", name)) if name else None
        except UnknownNameError:
            return None

    def over_given(self, changes: Mapping[str, Any]) -> EngineConfig:
        """The engine that the caller gave, with these fields changed."""
        base = self.given.engine
        if base is None:
            return self.cached(("settings", _key(changes)), lambda: EngineConfig(**changes))
        return base.replace(**changes) if changes else base


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def packed(model: ModelConfig, engine: EngineConfig) -> tuple[ModelConfig, EngineConfig]:
    """The model in the packing that the engine was told; a method that the checkpoint has anyway is not a flag."""
    method = engine.quantization
    if method is not None and model.quantization is not None and model.quantization.method == method:
        return model, engine.replace(quantization=None)
    if method in PACKED and model.quantization is None:
        return model.replace(quantization=PACKED[method]), engine
    return model, engine


# --- records ------------------------------------------------------------------------------------------------------------


def raising(error: str | StartupModelError) -> Build:
    """An attempt that fails."""

    def fail() -> Records:
        raise InputFileError(error) if isinstance(error, str) else error

    return fail


def finish(fields: Mapping[str, Any], digest: str) -> Found:
    """A record from its fields; one without a digest of its own gets that of the file or line."""
    own = bool(fields.get("source_digest"))
    return Found(RunRecord.model_validate(dict(fields) if own else {**fields, "source_digest": digest}), own)


def finish_foreign(fields: Mapping[str, Any], digest: str) -> Found:
    """A record of another tool or of a table made by hand: milliseconds are told from seconds."""
    found = finish(fields, digest)
    run = found.run
    longest = max([run.wall_s or 0.0, sum(run.phases.values()), *(part.seconds for part in run.sums)])
    weights = run.model.checkpoint_bytes or 2 * run.model.parameters
    if longest > 3600 + weights / _MIN_READ_RATE:
        problem = "longer than any start of this model: they look like milliseconds"
        raise ConfigError("wall_s" if run.wall_s == longest else "phases", f"{longest:.6g}", problem, "give seconds")
    return found


# --- values -------------------------------------------------------------------------------------------------------------


def is_absent(value: object) -> bool:
    """Whether a value of a foreign file means that nothing was given."""
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "none", "null", "~"))


def as_text(name: str, value: object) -> str:
    """A text that may be absent; numbers are taken as they are written."""
    if is_absent(value):
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong_type(name, value, "a text")
    return str(value)[:200]


def as_figure(name: str, value: object) -> float:
    """A finite number that is not negative, also as a text."""
    if isinstance(value, str) and len(value) < 60 and _NUMBER.fullmatch(value):
        value = float(value)
    remedy = "give the figure of the log, or leave it out"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, value, "a number", remedy)
    with suppress(OverflowError):
        if math.isfinite(number := float(value)) and number >= 0:
            return number
    raise out_of_range(name, value, "a finite number from 0 on", remedy)


def as_seconds(name: str, value: object) -> float:
    """Seconds from a number or a text, with a unit or without. A comma is refused: it may be a point or a thousand."""
    if isinstance(value, str) and "," in value:
        raise ConfigError(name, value, "a comma in a number", "write a decimal point and no separators")
    try:
        if isinstance(value, str) and len(value) < 60 and _NUMBER.fullmatch(value):
            return parse_seconds(float(value))
        return parse_seconds(value)  # type: ignore[arg-type]
    except StartupModelError:
        remedy = "give seconds, or leave it empty where nothing was measured"
        raise ConfigError(name, value, "must be a time in seconds from 0 on", remedy) from None


# --- what files of other tools call things ------------------------------------------------------------------------------

Words = dict[str, list[str]]  # our name -> what files call it


class Names(FrozenModel):
    """``data/run_files.toml``, whose comments say what each table is."""

    status: Words
    settings: dict[str, str]
    record: Words
    record_facts: dict[str, str]
    implied: dict[str, dict[str, str]]
    bench: dict[str, list[str]]
    profiler: Words
    profiler_stages: Words
    columns: Words
    stages: dict[str, str]
    aliases: dict[str, str]
    page_cache: Words
    compile_cache: Words


@lru_cache(maxsize=1)
def names() -> Names:
    """The tables, read once."""
    return Names.model_validate(tomllib.loads(files("calibration").joinpath("data/run_files.toml").read_text("utf-8")))


def by_word(words: Words) -> dict[str, str]:
    """Each word -> our name."""
    return {word: name for name, found in words.items() for word in found}


def look_up(name: str, text: str, words: Words) -> str:
    """Our name for a word. Raises UnknownNameError."""
    table = by_word(words)
    folded = "" if is_absent(text) else re.sub(r"[\s-]+", "_", text[:200].strip().lower())
    if folded not in table:
        raise UnknownNameError(name, text, filter(None, table))
    return table[folded]


# --- text of files: bounded, as plain data, one line for each error -------------------------------------------------------


class Line(NamedTuple):
    """A line of a file without its end; empty when it is longer than a line may be."""

    number: int
    content: bytes
    too_long: bool


def lines(path: Path, advance: Advance) -> Iterator[Line]:
    """The lines of a file, a byte order mark aside, never more than ``MAX_LINE`` bytes of one at a time."""
    pending = number = 0
    with open_regular(path, WHAT) as file:
        while content := file.readline(MAX_LINE + 1):
            number += 1
            pending += len(content)
            if number == 1:
                content = content.removeprefix(_BOM)
            too_long = len(content) > MAX_LINE
            while too_long and not content.endswith(b"\n") and (content := file.readline(MAX_LINE)):
                pending += len(content)
            if pending > SAMPLE:
                advance(pending)
                pending = 0
            yield Line(number, b"" if too_long else content.rstrip(b"\r\n"), too_long)
        advance(pending)


def sample(path: Path) -> bytes:
    """The first bytes of a file, a byte order mark aside."""
    with open_regular(path, WHAT) as file:
        return file.read(SAMPLE).removeprefix(_BOM)


def whole(path: Path, largest: int, advance: Advance) -> bytes:
    """The content of a file of bounded size, a byte order mark aside."""
    with open_regular(path, WHAT) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise InputFileError(
            f"{path}: more than the {largest} bytes that are read in one piece; write one JSON object per line"
        )
    advance(len(content))
    return content.removeprefix(_BOM)


def parsed(text: bytes) -> object:
    """JSON, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_document(content: bytes, path: Path) -> Any:
    """A JSON document of any kind. Raises InputFileError."""
    if content.lstrip()[:1] == b"{":
        return parse_json_object(content, str(path), KNOWN_FORMATS)
    # An array is read as the only field of an object, so that one function words all errors.
    return parse_json_object(b'{"": ' + content + b"}", str(path), KNOWN_FORMATS)[""]


def parse_yaml(content: bytes, path: Path) -> list[object]:
    """The documents of a YAML file as plain data: no anchors, no tags, bounded depth. Raises InputFileError."""
    try:
        import yaml
    except ImportError:
        raise InputFileError(f"{path}: reading YAML needs PyYAML; pip install 'startup-model[cli]'") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text, depth = content.decode(), 0
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1 if event.start_mark else 0
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
                raise InputFileError(f"{path}, line {line}: an alias or a tag; write plain values")
            if depth > _MAX_DEPTH:
                raise InputFileError(f"{path}, line {line}: nested too deeply to be a run record")
        return list(yaml.load_all(text, Loader=loader))
    except UnicodeDecodeError:
        raise InputFileError(f"{path}: not UTF-8 text; save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        place = f"{path}, line {error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise InputFileError(f"{place}: not valid YAML ({error.problem}); is the file truncated?") from None
    except StartupModelError:
        raise
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise InputFileError(
            f"{path}: not valid YAML ({error}); write plain values"
        ) from None  # a date that is none, say
