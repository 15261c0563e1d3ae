"""Reading and writing run records: our own JSONL, CSV tables, and the result files of other tools.

What a file is is told by its content, never by its ending. Files are data only; each is read row by row, or refused when it is larger than its format can be. Every error is one line that names the file, the line or row, the field,
its value and the remedy.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from calibration.runs.published import HOSTS, PACKED
from calibration.runs.record import RunRecord, RunStatus
from startup_model.engines.config import FIRST_V1, EngineConfig
from startup_model.errors import MISSING, ConfigError, InputFileError, StartupModelError, UnknownNameError, shown
from startup_model.files import is_file, is_folder, open_regular, parse_json_object, write_atomically
from startup_model.hardware import Cpu, HardwareConfig, preset_names
from startup_model.models.config import ModelConfig
from startup_model.phases import Phase
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, as_engine, as_hardware, as_model
from startup_model.units import GIB, parse_bytes, parse_seconds
from startup_model.versions import parse_version

__all__ = ["ReadReport", "append_run", "check_appendable", "iter_runs", "read_runs", "runs_to_csv", "write_runs"]

_WHAT = "a file of run records"
_LONGEST_LINE = 2**20
"""Bytes of one JSONL line or CSV row; a run record is a few thousand."""
_LARGEST_JSON = 2**25
"""Bytes of a JSON document that is read in one piece."""
_LARGEST_YAML = 2**21
_DEEPEST_YAML = 40
_SAMPLE = 2**18
"""Bytes from which a format is told."""
_MOST_FILES = 10_000
_MOST_PROBLEMS = 100
"""Problems that a report keeps word by word; the others are only counted."""
_BAR_FROM_BYTES = 4 * 10**6
_CACHED = 4096
_LONGEST_CACHED = 2**14
_MOST_FAILURES = 1000
"""Different configurations of one file that are tried in vain before no further one is: it bounds the time on junk."""

_T = TypeVar("_T")


@dataclass
class ReadReport:
    """What became of the files, filled in while they are read."""

    runs: int = 0
    """Records given out."""
    duplicates: int = 0
    """Records left out because an identical one was there already."""
    set_aside: int = 0
    """Records that could not be read (``strict=False``)."""
    problems: list[str] = field(default_factory=list)
    """The first hundred reasons, one line each."""
    notes: list[str] = field(default_factory=list)
    """What was left out of records that were read, and files of a folder that are no run files."""

    def __str__(self) -> str:
        """One line."""
        text = f"{self.runs} run(s) read, {self.duplicates} duplicate(s) left out, {self.set_aside} set aside"
        return f"{text}; the first: {self.problems[0]}" if self.problems else text

    def note(self, text: str) -> None:
        """Keep a note, the first of each text, a hundred at most."""
        if text not in self.notes and len(self.notes) < _MOST_PROBLEMS:
            self.notes.append(text)


def read_runs(
    path: str | Path,
    *,
    hardware: HardwareLike | None = None,
    model: ModelLike | None = None,
    engine: EngineLike | None = None,
    strict: bool = True,
    progress: bool | None = None,
    report: ReadReport | None = None,
) -> list[RunRecord]:
    """All runs of a file, or of the run files in a folder and its sub-folders (one level).

    ``hardware``, ``model`` and ``engine`` stand where a file does not say (``vllm bench startup``) or names only the
    accelerator; a file that names another accelerator is refused. ``strict=False`` sets records that cannot be read
    aside: ``report`` says which and why, without one a warning does. ``progress``: a bar; None: on a terminal, for
    files over 4 MB. Raises InputFileError, or ConfigError for an argument.
    """
    tally = ReadReport() if report is None else report
    given = {"hardware": hardware, "model": model, "engine": engine}
    runs = list(iter_runs(path, **given, strict=strict, progress=progress, report=tally))  # type: ignore[arg-type]
    if report is None and tally.set_aside:
        warnings.warn(f"{path}: {tally}", stacklevel=2)
    return runs


def iter_runs(
    path: str | Path,
    *,
    hardware: HardwareLike | None = None,
    model: ModelLike | None = None,
    engine: EngineLike | None = None,
    strict: bool = True,
    progress: bool | None = None,
    report: ReadReport | None = None,
) -> Iterator[RunRecord]:
    """The runs of a file or folder one by one, as ``read_runs`` gives them; ``report`` is up to date at each step."""
    report = ReadReport() if report is None else report
    given = _Given(
        None if model is None else as_model(model),
        None if hardware is None else as_hardware(hardware),
        None if engine is None else as_engine(engine),
    )
    seen = _Seen()
    for source in _sources(Path(path), given, report, strict=strict):
        with _bar(source.path, progress) as advance:
            for found in source.format.read(source, advance):
                if isinstance(found, StartupModelError):
                    if strict:
                        raise found
                    report.set_aside += 1
                    if len(report.problems) < _MOST_PROBLEMS:
                        report.problems.append(str(found))
                elif seen.before(found):
                    report.duplicates += 1
                else:
                    report.runs += 1
                    yield found.run


# --- what readers share -------------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """What the caller says about runs whose file does not."""

    model: ModelConfig | None
    hardware: HardwareConfig | None
    engine: EngineConfig | None


class _Found(NamedTuple):
    """A record, and whether its digest stood in the file (it is then of a log, not of the file itself)."""

    run: RunRecord
    has_own_digest: bool


_Outcome = _Found | StartupModelError
_Advance = Callable[[int], None]


class _Source(NamedTuple):
    """One file to be read."""

    path: Path
    format: _Format
    builder: _Builder
    report: ReadReport
    strict: bool


class _Format(NamedTuple):
    """A kind of file: how its first bytes look, and its reader."""

    name: str
    matches: Callable[[bytes], bool]
    read: Callable[[_Source, _Advance], Iterator[_Outcome]]


class _Seen:
    """Runs that were there already. Equal runs with digests of different logs are different runs."""

    def __init__(self) -> None:
        self._digests: dict[int, str | None] = {}
        self._others: set[tuple[int, str]] = set()

    def before(self, found: _Found) -> bool:
        """Whether this run was seen before; it is from now on."""
        run = found.run
        key = hash(
            (
                (run.model, run.hardware, run.engine, run.sums, run.wall_s, run.first_token_s, run.status),
                (frozenset(run.phases.items()), frozenset(run.facts.items())),
                (run.dataset, run.host, run.repetitions, run.stamp_resolution_s, run.measured_from),
            )
        )
        digest = run.source_digest if found.has_own_digest else None
        if key not in self._digests:
            self._digests[key] = digest
            return False
        first = self._digests[key]
        if first is None or digest is None or digest == first or (key, digest) in self._others:
            return True
        self._others.add((key, digest))
        return False


class _Builder:
    """Configurations from what files call them; equal ones are built once, and fail once."""

    def __init__(self, given: _Given, folder: Path) -> None:
        self.given = given
        self._folder = folder
        self._built: dict[object, Any] = {}
        self._failures = 0

    def once(self, key: object, build: Callable[[], _T]) -> _T:
        """``build()``, remembered by ``key``."""
        found: _T | StartupModelError | None = self._built.get(key)
        if found is None:
            if self._failures >= _MOST_FAILURES:
                problem = f"not tried: {_MOST_FAILURES} different ones before it could not be read"
                raise ConfigError("configuration", MISSING, problem, "mend those first")
            if len(self._built) >= _CACHED:
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

    def model(self, value: object) -> ModelConfig:
        """A model: a name, a path, or the fields of a ModelConfig or config.json."""
        if _is_absent(value):
            if self.given.model is None:
                raise ConfigError("model", MISSING, "the record names none", "name it there, or give model=")
            return self.given.model
        if isinstance(value, str):
            return self.once(("model", value), lambda: self._named_model(value))
        if not isinstance(value, dict):
            raise ConfigError("model", value, "it is no model", "give a name, a path or the fields of a model")
        return self.once(("model", _key(value)), lambda: as_model(value))

    def _named_model(self, name: str) -> ModelConfig:
        """A model of the catalogue, or of a folder or config.json here; of a path elsewhere its last parts are looked
        up."""
        if name.startswith("hub:"):
            raise ConfigError("model", name, "a file of runs asks nothing of the network", "give its config.json")
        name = name.strip()
        parts = [part for part in name.split("/") if part]
        for place in (self._folder / name, Path(name)):
            if is_file(place / "config.json") or (name.endswith(".json") and is_file(place)):
                return ModelConfig.from_hf(place)
        try:
            return ModelConfig.from_catalogue(name)
        except UnknownNameError:
            for tail in ("/".join(parts[-2:]), *parts[-1:]):
                if tail != name:
                    with suppress(UnknownNameError):
                        return ModelConfig.from_catalogue(tail)
            raise

    def hardware(self, value: object) -> HardwareConfig:
        """A node: the fields of a HardwareConfig, or the name of a preset."""
        if _is_absent(value):
            return self.node(None)
        if isinstance(value, str):
            return self.once(("hardware", value), lambda: HardwareConfig.preset(value))
        if not isinstance(value, dict):
            raise ConfigError("hardware", value, "it is no node", "give the name of a preset or the fields of a node")
        return self.once(("hardware", _key(value)), lambda: HardwareConfig.from_mapping(value))

    def node(
        self, named: HardwareConfig | None, gpus: int | None = None, field_name: str = "hardware"
    ) -> HardwareConfig:
        """The node that the caller gave, else the one that the file names; with ``gpus`` accelerators."""
        given = self.given.hardware
        if given is None and named is None:
            raise ConfigError(field_name, MISSING, "the record does not say which accelerator", "give hardware=")
        if given is not None and named is not None and given.gpu != named.gpu:
            problem = f"the file names another accelerator, {named.gpu}"
            raise ConfigError("hardware", given.gpu, problem, "read it without hardware=, or give the right one")
        node = given or named
        assert node is not None  # noqa: S101  one of the two
        if gpus is None or gpus == node.gpus or node.nodes > 1 or node.is_cpu_only:
            return node
        return self.once(("gpus", node, gpus), lambda: node.replace(gpus=gpus))

    def engine(self, value: object) -> EngineConfig:
        """An engine: the fields of an EngineConfig, a command line, or its name."""
        if _is_absent(value):
            return self.given.engine or self.once("engine", EngineConfig)
        if not isinstance(value, str | dict):
            raise ConfigError("engine", value, "it is no engine", "give a command line or the fields of an engine")
        key = value if isinstance(value, str) else _key(value)
        return self.once(("engine", key), lambda: as_engine(value))


def _key(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _is_absent(value: object) -> bool:
    """Whether a value of a foreign file means that nothing was given."""
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "none", "null", "~"))


def _attempt(place: str, build: Callable[[], Iterable[_Outcome]]) -> Iterator[_Outcome]:
    """What ``build`` gives, or its error with the place in front."""
    try:
        yield from list(build())
    except StartupModelError as error:
        yield InputFileError(f"{place}: {error}")
    except RecursionError:  # text that is just not too deep to be parsed
        yield InputFileError(f"{place}: nested too deeply to be a run record")


def _finish(fields: Mapping[str, Any], digest: str) -> _Found:
    """A record from its fields; one without a digest of its own gets that of the file or line."""
    own = fields.get("source_digest")
    if own:
        return _Found(RunRecord.model_validate(dict(fields)), has_own_digest=True)
    return _Found(RunRecord.model_validate({**fields, "source_digest": digest}), has_own_digest=False)


_SLOWEST_READ = 1e7
"""Bytes per second below which no start is waited for; with an hour for all else, no start takes longer."""


def _foreign(fields: Mapping[str, Any], digest: str) -> _Found:
    """A record of another tool or of a table made by hand: milliseconds are told from seconds."""
    found = _finish(fields, digest)
    run = found.run
    longest = max([run.wall_s or 0.0, sum(run.phases.values()), *(part.seconds for part in run.sums)])
    weights = run.model.checkpoint_bytes or 2 * run.model.parameters
    if longest > 3600 + weights / _SLOWEST_READ:
        name = "wall_s" if run.wall_s == longest else "phases"
        problem = "longer than any start of this model: they look like milliseconds"
        raise ConfigError(name, f"{longest:.6g}", problem, "give seconds")
    return found


@contextmanager
def _bar(path: Path, wanted: bool | None) -> Iterator[_Advance]:
    """A progress bar over the bytes of a file, or nothing."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; give {_WHAT}") from None
    if wanted is False or (wanted is None and not (size > _BAR_FROM_BYTES and sys.stderr.isatty())):
        yield lambda _: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        if wanted:
            raise ConfigError("progress", True, "a bar needs rich", "pip install 'startup-model[cli]'") from None
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=size)
        yield lambda count: bar.advance(task, count)


def _digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path, _WHAT) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


class _Line(NamedTuple):
    """A line of a file without its end; empty when it is longer than a line may be."""

    number: int
    content: bytes
    too_long: bool


def _lines(path: Path, advance: _Advance) -> Iterator[_Line]:
    """The lines of a file, a byte order mark aside, never more than ``_LONGEST_LINE`` bytes of one at a time."""
    pending = 0
    with open_regular(path, _WHAT) as file:
        number = 0
        while content := file.readline(_LONGEST_LINE + 1):
            number += 1
            pending += len(content)
            if number == 1:
                content = content.removeprefix(b"\xef\xbb\xbf")
            too_long = len(content) > _LONGEST_LINE
            while too_long and not content.endswith(b"\n") and (content := file.readline(_LONGEST_LINE)):
                pending += len(content)
            if pending > _SAMPLE:
                advance(pending)
                pending = 0
            yield _Line(number, b"" if too_long else content.rstrip(b"\r\n"), too_long)
        advance(pending)


def _whole(path: Path, largest: int, advance: _Advance) -> bytes:
    """The content of a file of bounded size, a byte order mark aside."""
    with open_regular(path, _WHAT) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise InputFileError(
            f"{path}: more than the {largest} bytes that are read in one piece; write one JSON object per line"
        )
    advance(len(content))
    return content.removeprefix(b"\xef\xbb\xbf")


# --- which files, and what they are -------------------------------------------------------------------------------------


def _sources(path: Path, given: _Given, report: ReadReport, *, strict: bool) -> Iterator[_Source]:
    """The run files of a folder and its sub-folders (the others are noted), or the one file itself."""
    if not is_folder(path):
        yield _Source(path, _format_of(_sample(path), path), _Builder(given, path.parent), report, strict)
        return
    found = False
    for file in _files_in(path):
        sample = _sample(file)
        kind = next((kind for kind in _FORMATS if sample and kind.matches(sample)), None)
        if kind is None:
            if file.name != _PROFILER_MODELS:
                report.note(f"{file}: no run file, left out")
            continue
        found = True
        yield _Source(file, kind, _Builder(given, file.parent), report, strict)
    if not found:
        raise InputFileError(f"{path}: the folder holds no run files; give {_KNOWN_FORMATS}")


def _files_in(folder: Path) -> list[Path]:
    """Regular files of a folder and its sub-folders by name, hidden ones aside. Raises InputFileError for too many."""
    files: list[Path] = []
    try:
        for entry in sorted(folder.iterdir()):
            inner = sorted(entry.iterdir()) if is_folder(entry) and not entry.name.startswith(".") else [entry]
            files += [file for file in inner if is_file(file) and not file.name.startswith(".")]
            if len(files) > _MOST_FILES:
                raise InputFileError(f"{folder}: more than {_MOST_FILES} files; give a folder of run files")
    except OSError as error:
        raise InputFileError(f"{folder}: {error.strerror or error}; give a folder that can be read") from None
    return files


def _sample(path: Path) -> bytes:
    """The first bytes of a file, a byte order mark aside."""
    with open_regular(path, _WHAT) as file:
        return file.read(_SAMPLE).removeprefix(b"\xef\xbb\xbf")


def _format_of(sample: bytes, path: Path) -> _Format:
    """The first format that the bytes look like. Raises InputFileError for none."""
    if not sample.strip():
        raise InputFileError(f"{path}: empty; give {_KNOWN_FORMATS}")
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputFileError(f"{path}: UTF-16 text; save it as UTF-8")
    if b"\0" in sample:
        raise InputFileError(f"{path}: not a text file; give {_KNOWN_FORMATS}")
    for kind in _FORMATS:
        if kind.matches(sample):
            return kind
    if sample.lstrip()[:1] in (b"{", b"["):  # let its reader say what is wrong
        return _DOCUMENT if b"\n" not in sample.strip() or sample.lstrip()[1:2] in b"\r\n" else _JSONL
    raise InputFileError(f"{path}: none of the known formats; give {_KNOWN_FORMATS}")


def _parsed(text: bytes) -> object:
    """JSON, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_jsonl(sample: bytes) -> bool:
    """Whether one of the first lines is a record of its own (the others may be torn)."""
    if sample.lstrip()[:1] == b"[":
        return False
    lines = [line for line in sample.split(b"\n")[:50] if line.lstrip()[:1] == b"{"]
    values = [value for value in map(_parsed, lines) if isinstance(value, dict)]
    return any(_LINE_KINDS & set(_kinds(value)) for value in values)


def _is_document(sample: bytes) -> bool:
    """Whether it is one JSON object or array of a known kind, or a large one that names what only such a kind has."""
    if sample.lstrip()[:1] not in (b"{", b"["):
        return False
    value = _parsed(sample)
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict):
        return bool(_kinds(first))
    return len(sample) >= _SAMPLE and any(mark in sample for mark in _DOCUMENT_MARKS)


_DOCUMENT_MARKS = (b'"hardware"', b'"startup_wall_secs"', b"_startup_times", b'"wall_s"')
_YAML_MARK = re.compile(rb"^(?:- |\? )?[ \t]{0,8}[\"']?model[\"']?[ \t]{0,8}:", re.MULTILINE)
_YAML_RECORD = re.compile(
    rb"^[ \t-]{0,12}[\"']?(?:phases|startup_wall_secs|wall_s|load_format)[\"']?[ \t]{0,8}:", re.MULTILINE
)


def _is_yaml(sample: bytes) -> bool:
    return bool(_YAML_MARK.search(sample)) and bool(_YAML_RECORD.search(sample))


def _is_table(sample: bytes) -> bool:
    """Whether the first line holds at least two column names that are known."""
    names = _header(sample)[1]
    return len(set(names) & _COLUMNS.keys()) >= 2


def _header(sample: bytes) -> tuple[str, list[str]]:
    """Delimiter and names of the first line that is not empty: the delimiter that gives the most known names."""
    line = next((line for line in sample.splitlines()[:20] if line.strip()), b"")[:_LONGEST_LINE]
    text = line.decode("utf-8", "replace")
    best: tuple[str, list[str]] = (",", [])
    for delimiter in (",", ";", "\t", "|"):
        try:
            names = next(csv.reader([text], delimiter=delimiter), [])
        except csv.Error:
            continue
        names = [name.strip().lower() for name in names]
        if len(set(names) & _COLUMNS.keys()) > len(set(best[1]) & _COLUMNS.keys()):
            best = (delimiter, names)
    return best


# --- mappings: records of our own, of the five-stage document, of vllm bench startup, of vllm-startup-profiler -------------


def _kinds(value: Mapping[str, Any]) -> list[str]:
    """Names of the kinds that a mapping may be, the best first."""
    return [kind.name for kind in _KINDS if kind.matches(value)]


def _read_mapping(value: object, source: _Source, digest: str) -> list[_Outcome]:
    """The records in one mapping. Raises ConfigError when it is none of the known kinds."""
    if not isinstance(value, dict):
        raise ConfigError("record", value, "not an object with fields", f"give {_KNOWN_FORMATS}")
    value = {str(key): item for key, item in value.items()}
    for kind in _KINDS:
        if kind.matches(value):
            return kind.read(value, source, digest)
    raise ConfigError("record", value, "none of the known kinds of record", f"give {_KNOWN_FORMATS}")


def _is_run(value: Mapping[str, Any]) -> bool:
    return ("model" in value or "hardware" in value) and any(
        name in value for name in ("phases", "sums", "wall_s", "first_token_s", "stamp_resolution_s")
    )


def _read_run(value: Mapping[str, Any], source: _Source, digest: str) -> list[_Outcome]:
    """A RunRecord; its configurations may be names."""
    builder = source.builder
    return [
        _finish(
            {
                **value,
                "model": builder.model(value.get("model")),
                "hardware": builder.hardware(value.get("hardware")),
                "engine": builder.engine(value.get("engine")),
            },
            digest,
        )
    ]


_STATUS: Mapping[str, RunStatus] = {
    "正常": "ok",
    "成功": "ok",
    "ok": "ok",
    "normal": "ok",
    "success": "ok",
    "ready": "ok",
    "画像失败": "profiling_failed",
    "profiling_failed": "profiling_failed",
    "memory_profiling_failed": "profiling_failed",
    "池子不足": "kv_cache_too_small",
    "kv池不足": "kv_cache_too_small",
    "kv_cache_too_small": "kv_cache_too_small",
    "pool_too_small": "kv_cache_too_small",
    "显存不足": "oom",
    "oom": "oom",
    "out_of_memory": "oom",
    "未完成": "incomplete",
    "incomplete": "incomplete",
    "加载失败": "load_failed",
    "load_failed": "load_failed",
    "捕获失败": "capture_failed",
    "capture_failed": "capture_failed",
    "崩溃": "crashed",
    "crashed": "crashed",
}
"""What a record says about its end, folded -> our word."""


def _status(value: object) -> RunStatus:
    if _is_absent(value):
        return "ok"
    folded = re.sub(r"[\s-]+", "_", str(value)[:200].strip().lower())
    if folded not in _STATUS:
        raise UnknownNameError("status", str(value), _STATUS)
    return _STATUS[folded]


def _plain(value: object) -> object:
    return value


def _gib(value: object) -> object:
    """Bytes from a number of GiB, as the flag takes it, or from a size with a unit."""
    return value * GIB if isinstance(value, int | float) and not isinstance(value, bool) else parse_bytes(value)  # type: ignore[arg-type]


def _dtype(value: object) -> object:
    return value.removeprefix("torch.") if isinstance(value, str) else value


class _Setting(NamedTuple):
    """An engine setting of a foreign record: its field here, and how its value is read."""

    field: str
    read: Callable[[object], object] = _plain


_SETTINGS: Mapping[str, _Setting] = {
    "engine_version": _Setting("version", str),
    "version": _Setting("version", str),
    "vllm_version": _Setting("version", str),
    "dtype": _Setting("dtype", _dtype),
    "quantization": _Setting("quantization"),
    "kv_cache_dtype": _Setting("kv_cache_dtype"),
    "tensor_parallel_size": _Setting("tp"),
    "pipeline_parallel_size": _Setting("pp"),
    "data_parallel_size": _Setting("dp"),
    "enable_expert_parallel": _Setting("expert_parallel"),
    "gpu_memory_utilization": _Setting("gpu_memory_utilization"),
    "load_format": _Setting("load_format"),
    "max_model_len": _Setting("max_model_len"),
    "max_num_batched_tokens": _Setting("max_num_batched_tokens"),
    "max_num_seqs": _Setting("max_num_seqs"),
    "block_size": _Setting("block_size"),
    "swap_space": _Setting("swap_space", _gib),
    "enforce_eager": _Setting("enforce_eager"),
    "max_seq_len_to_capture": _Setting("max_seq_len_to_capture"),
    "num_gpu_blocks_override": _Setting("num_gpu_blocks_override"),
    "enable_chunked_prefill": _Setting("chunked_prefill"),
    "enable_prefix_caching": _Setting("prefix_caching"),
    "page_cache": _Setting("page_cache"),
    "compile_cache": _Setting("compile_cache"),
}
"""Field of a foreign record, named as vLLM names the flag -> setting."""

_RECORD_FIELDS = frozenset(
    {*_SETTINGS, "model", "phases", "startup_wall_secs", "device", "status", "engine", "dataset", "host", "repetitions"}
    | {"hardware", "first_token_secs", "cpu", "notes", "seed"}
)
_RECORD_FACTS: Mapping[str, str] = {
    "weights_gb": "weights_gib",
    "num_gpu_blocks": "num_gpu_blocks",
    "num_cpu_blocks": "num_cpu_blocks",
}
"""Figures of a record that are no seconds -> fact; vLLM counts GiB and prints GB."""
_RECORD_PHASES: Mapping[str, str] = {"graph_capture_secs": Phase.GRAPH_CAPTURE.value} | {
    f"{phase.value}{ending}": phase.value for phase in Phase for ending in ("", "_s", "_secs")
}


def _is_five_stage(value: Mapping[str, Any]) -> bool:
    if not any(name in value for name in ("model", "phases")):
        return False
    stages = value.get("phases")
    return "startup_wall_secs" in value or (
        isinstance(stages, dict)
        and (
            bool(stages.keys() & (_RECORD_FACTS.keys() | {"graph_capture_secs"}))
            or bool(value.keys() & {"load_format", "device"})
        )
    )


def _read_five_stage(value: Mapping[str, Any], source: _Source, digest: str) -> list[_Outcome]:
    """The cold-start record of the five-stage document: flags, log figures, wall time. Its swap space is in GiB."""
    builder = source.builder
    for name in value:
        if name not in _RECORD_FIELDS:
            raise UnknownNameError("field", name, _RECORD_FIELDS)
    stages = {} if _is_absent(value.get("phases")) else value["phases"]
    if not isinstance(stages, dict):
        raise ConfigError(
            "phases", stages, "it should be a section", "give weights_gb, num_gpu_blocks, graph_capture_secs"
        )
    seconds: dict[str, float] = {}
    facts: dict[str, float] = {}
    for key, figure in stages.items():
        name = str(key)
        if name not in _RECORD_PHASES and name not in _RECORD_FACTS:
            raise UnknownNameError("phases", name, [*_RECORD_FACTS, *_RECORD_PHASES])
        if _is_absent(figure):
            continue
        if name in _RECORD_FACTS:
            facts[_RECORD_FACTS[name]] = _figure(f"phases.{name}", figure)
        else:
            seconds[_RECORD_PHASES[name]] = _seconds(f"phases.{name}", figure)
    wall = value.get("startup_wall_secs")
    wall_s = None if _is_absent(wall) else _seconds("startup_wall_secs", wall)
    first = value.get("first_token_secs")
    times = [*seconds.values(), *([] if wall_s is None else [wall_s])]
    engine = _engine_of(value, builder, v0="num_cpu_blocks" in facts)
    model, engine = _packed(builder.model(value.get("model")), engine)
    return [
        _foreign(
            {
                "model": model,
                "hardware": _device_of(value, builder, engine.tp * engine.pp * engine.dp),
                "engine": engine,
                "phases": seconds,
                "wall_s": wall_s,
                "first_token_s": None if _is_absent(first) else _seconds("first_token_secs", first),
                "facts": facts,
                "status": _status(value.get("status")),
                "dataset": _text("dataset", value.get("dataset")),
                "host": _text("host", value.get("host")),
                "repetitions": 1 if _is_absent(value.get("repetitions")) else value["repetitions"],
                # The log prints whole seconds; a wall clock may do better, which no field tells.
                "stamp_resolution_s": 1.0 if times and all(time == int(time) for time in times) else 0.001,
            },
            digest,
        )
    ]


def _engine_of(value: Mapping[str, Any], builder: _Builder, *, v0: bool = False) -> EngineConfig:
    """The engine that the settings of a foreign record describe, over the one that the caller gave."""
    base = builder.given.engine
    changes: dict[str, Any] = {}
    if not _is_absent(value.get("engine")):
        changes["engine"] = value["engine"]
    for name, setting in _SETTINGS.items():
        if not _is_absent(value.get(name)):
            changes[setting.field] = setting.read(value[name])
    if v0 and "version" not in changes and base is None:
        changes["generation"] = "v0"  # only that core counts blocks on the host
    if base is None:
        return builder.once(("settings", _key(changes)), lambda: EngineConfig(**changes))
    return base.replace(**changes) if changes else base


def _packed(model: ModelConfig, engine: EngineConfig) -> tuple[ModelConfig, EngineConfig]:
    """The model in the packing that the engine was told; a method that the checkpoint has anyway is not a flag."""
    method = engine.quantization
    if method is None:
        return model, engine
    if model.quantization is not None and model.quantization.method == method:
        return model, engine.replace(quantization=None)
    if model.quantization is None and method in PACKED:
        return model.replace(quantization=PACKED[method]), engine
    return model, engine


_DEVICES = re.compile(r"([0-9]{1,4})\s{0,4}(?:[x×*]|卡|张|块|gpus?\b)\s{0,4}[,，、:]?(.{0,200})", re.IGNORECASE)


def _device_of(value: Mapping[str, Any], builder: _Builder, ranks: int) -> HardwareConfig:
    """The node of a record: its ``hardware``, or what ``device`` says ("8 x H100-SXM-80GB")."""
    if not _is_absent(value.get("hardware")):
        return builder.hardware(value["hardware"])
    device = value.get("device")
    if isinstance(device, dict):
        return builder.hardware(device)
    text = _text("device", device)
    named, gpus = _accelerator(text, builder), None
    match = _DEVICES.search(text)
    if named is None and match is not None:
        gpus = int(match.group(1)) or None
        named = _accelerator(match.group(2).strip(" ,，、()（）"), builder)
    if named is None and builder.given.hardware is None:
        known = f"such as '8 x {preset_names()[0]}'"
        raise ConfigError(
            "device", text or MISSING, "it names no known accelerator", f"name it ({known}) or give hardware="
        )
    own = builder.given.hardware
    return builder.node(named, gpus or (max(ranks, own.gpus) if own else ranks), "device")


def _accelerator(name: str, builder: _Builder) -> HardwareConfig | None:
    """The preset of that name, or None."""
    try:
        return builder.once(("hardware", name), lambda: HardwareConfig.preset(name)) if name else None
    except UnknownNameError:
        return None


def _text(name: str, value: object) -> str:
    """A text that may be absent; numbers are taken as they are written."""
    if _is_absent(value):
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(name, value, "it should be a text", "write one")
    return str(value)[:200]


def _figure(name: str, value: object) -> float:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(name, value, "it should be a number", "give the figure of the log, or leave it out")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ConfigError(
            name, value, "it should be a finite number from 0 on", "give the figure of the log, or leave it out"
        )
    return number


_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def _seconds(name: str, value: object) -> float:
    """Seconds from a number or a text, with a unit or without. A comma is refused: it may be a point or a thousand."""
    if isinstance(value, str) and "," in value:
        raise ConfigError(name, value, "a comma in a number", "write a decimal point and no separators")
    try:
        if isinstance(value, str) and len(value) < 60 and _NUMBER.fullmatch(value):
            return parse_seconds(float(value))
        return parse_seconds(value)  # type: ignore[arg-type]
    except StartupModelError:
        raise ConfigError(
            name, value, "not a time in seconds from 0 on", "give seconds, or leave it empty where nothing was measured"
        ) from None


# vllm bench startup: it times LLM(...) in one process, after its imports and without a server. A cold start inspects the
# class of the model anew (most of the bootstrap), a warm one finds that in the cache.
_BENCH_PHASES = (
    Phase.WORKER_SPAWN,
    Phase.TOKENIZER_LOAD,
    Phase.MODEL_INIT,
    Phase.WEIGHT_LOAD,
    Phase.GRAPH_TRACE,
    Phase.GRAPH_COMPILE,
    Phase.MEMORY_PROFILING,
    Phase.KV_CACHE_INIT,
    Phase.GRAPH_CAPTURE,
)
_BENCH_SUMS: Mapping[str, tuple[Phase, ...]] = {
    "cold": (Phase.FRAMEWORK_BOOTSTRAP, *_BENCH_PHASES),
    "warm": _BENCH_PHASES,
}
_BENCH_RESOLUTION = 1.0
"""Seconds by which it is not known what of the bootstrap lies inside the time."""
_BENCH_FIELD = re.compile(r"(?:avg_)?(cold|warm)_(?:startup|compilation|encoder_compilation)_(?:times?|percentiles)")


def _is_bench(value: Mapping[str, Any]) -> bool:
    return any(f"avg_{state}_startup_time" in value or f"{state}_startup_times" in value for state in _BENCH_SUMS)


def _read_bench(value: Mapping[str, Any], source: _Source, digest: str) -> list[_Outcome]:
    """``vllm bench startup``: one record a start, cold or warm; without the list of starts, one of their mean."""
    builder = source.builder
    for name in value:
        if not _BENCH_FIELD.fullmatch(name) and name not in ("model", "hardware", "engine"):
            source.report.note(f"{source.path}: {shown(name)} is not used")
    engine = builder.engine(value.get("engine")).replace(offline=True)
    found: list[_Outcome] = []
    for state, phases in _BENCH_SUMS.items():
        totals = _starts(value, state, "startup")
        compiles = _starts(value, state, "compilation")
        encoders = _starts(value, state, "encoder_compilation")
        for name, figures in (("compilation", compiles), ("encoder_compilation", encoders)):
            if figures and len(figures) != len(totals):
                problem = f"{len(figures)} figures for {len(totals)} starts"
                raise ConfigError(f"{state}_{name}_times", MISSING, problem, "is the file cut off? give all of them")
        for position, total in enumerate(totals):
            sums = [{"phases": [phase.value for phase in phases], "seconds": total}]
            compiled = compiles[position] if compiles else 0.0
            if compiled > total:
                raise ConfigError(
                    f"{state}_compilation_times", compiled, f"more than its start, {total}", "check the units"
                )
            if compiled:
                sums.append({"phases": [Phase.GRAPH_TRACE.value, Phase.GRAPH_COMPILE.value], "seconds": compiled})
            found.append(
                _foreign(
                    {
                        "model": builder.model(value.get("model")),
                        "hardware": builder.hardware(value.get("hardware")),
                        "engine": engine.replace(compile_cache=state),
                        "sums": sums,
                        "facts": {"encoder_compilation_s": encoders[position]} if encoders else {},
                        "dataset": "vllm bench startup",
                        "stamp_resolution_s": _BENCH_RESOLUTION,
                    },
                    # Equal starts of one file are different starts.
                    f"{digest}/{state}/{position}",
                )._replace(has_own_digest=True)
            )
    return found


def _starts(value: Mapping[str, Any], state: str, what: str) -> list[float]:
    """The figure of each start, else the mean as the only one."""
    name = f"{state}_{what}_times"
    figures = value.get(name)
    if figures is None:
        mean = value.get(f"avg_{state}_{what}_time")
        return [] if mean is None else [_seconds(f"avg_{state}_{what}_time", mean)]
    if not isinstance(figures, list):
        raise ConfigError(name, figures, "it should be a list of seconds", "give one figure a start")
    return [_seconds(f"{name}[{position}]", figure) for position, figure in enumerate(figures)]


# vllm-startup-profiler: averages by configuration, beside a file that describes the configurations.
_PROFILER_MODELS = "models_config.json"
_PROFILER_STAGES: Mapping[str, str] = {
    "detect_platform": Phase.FRAMEWORK_BOOTSTRAP,
    "platform_detection": Phase.FRAMEWORK_BOOTSTRAP,
    "import": Phase.FRAMEWORK_BOOTSTRAP,
    "imports": Phase.FRAMEWORK_BOOTSTRAP,
    "import_libraries": Phase.FRAMEWORK_BOOTSTRAP,
    "llm_imports": Phase.FRAMEWORK_BOOTSTRAP,
    "model_info": Phase.FRAMEWORK_BOOTSTRAP,
    "get_model_info": Phase.FRAMEWORK_BOOTSTRAP,
    "model_inspection": Phase.FRAMEWORK_BOOTSTRAP,
    "worker_init": Phase.WORKER_SPAWN,
    "worker_initialization": Phase.WORKER_SPAWN,
    "init_worker": Phase.WORKER_SPAWN,
    "tokenizer": Phase.TOKENIZER_LOAD,
    "tokenizer_init": Phase.TOKENIZER_LOAD,
    "tokenizer_load": Phase.TOKENIZER_LOAD,
    "model_init": Phase.MODEL_INIT,
    "model_initialization": Phase.MODEL_INIT,
    "init_model": Phase.MODEL_INIT,
    "load_weights": Phase.WEIGHT_LOAD,
    "weight_loading": Phase.WEIGHT_LOAD,
    "weights_loading": Phase.WEIGHT_LOAD,
    "loading_weights": Phase.WEIGHT_LOAD,
    "dynamo": Phase.GRAPH_TRACE,
    "dynamo_transform": Phase.GRAPH_TRACE,
    "dynamo_bytecode_transform": Phase.GRAPH_TRACE,
    "bytecode_transform": Phase.GRAPH_TRACE,
    "inductor": Phase.GRAPH_COMPILE,
    "inductor_compile": Phase.GRAPH_COMPILE,
    "inductor_compilation": Phase.GRAPH_COMPILE,
    "graph_compile": Phase.GRAPH_COMPILE,
    "compile_graph": Phase.GRAPH_COMPILE,
    "compiled_graph_load": Phase.GRAPH_COMPILE,
    "graph_compile_cached": Phase.GRAPH_COMPILE,
    "load_compiled_graph": Phase.GRAPH_COMPILE,
    "kv_cache_profiling": Phase.MEMORY_PROFILING,
    "memory_profiling": Phase.MEMORY_PROFILING,
    "kv_cache_init": Phase.KV_CACHE_INIT,
    "graph_capture": Phase.GRAPH_CAPTURE,
    "graph_capturing": Phase.GRAPH_CAPTURE,
    "cuda_graph_capture": Phase.GRAPH_CAPTURE,
    "wall": "wall_s",
    "wall_clock": "wall_s",
    "total": "wall_s",
    "total_startup": "wall_s",
    "startup": "wall_s",
}
"""Stage as the tool and its figures call it (words, unit and average aside) -> phase, or the wall time."""
_PROFILER_GROUPS = frozenset(
    ["framework_bootstrap", "model_loading", "torch_compile", "sum_of_phases", "engine_init", "tokenizer_total"]
)
"""Sums of stages that stand there by themselves too."""
_WORDS_ASIDE = re.compile(r"^(?:avg|average|mean)_|_(?:avg|average|mean|s|sec|secs|seconds|time|duration)$")
_COLD_STAGES = frozenset(["inductor", "inductor_compile", "inductor_compilation", "compile_graph"])


def _stage_name(name: object) -> str:
    """A stage by its words alone: "Load Weights (s)" -> load_weights."""
    words = re.sub(r"[^a-z0-9]+", "_", str(name)[:200].lower()).strip("_")
    for _ in range(3):
        words = _WORDS_ASIDE.sub("", words)
    return words


def _leaves(value: Mapping[str, Any], depth: int = 0) -> dict[str, object]:
    """Stage -> figure at any depth; a figure may be given as its mean among other statistics."""
    found: dict[str, object] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            mean = next((item[key] for key in ("mean", "avg", "average") if key in item), None)
            if mean is not None:
                found[_stage_name(name)] = mean
            elif depth < 4:
                found |= _leaves(item, depth + 1)
        elif isinstance(item, int | float | str) and not isinstance(item, bool):
            found[_stage_name(name)] = item
    return found


def _is_stages(value: object) -> bool:
    """Whether a mapping holds stages of the profiler: three that are known, one of them its own."""
    return isinstance(value, dict) and len(_leaves(value).keys() & _PROFILER_STAGES.keys()) >= 3


def _is_profiler(value: Mapping[str, Any]) -> bool:
    if (
        _is_stages(value)
        and "phases" not in value
        and any(name in value for name in ("model", "name", "model_name", "config"))
    ):
        return True
    return bool(value) and "phases" not in value and all(_is_stages(item) for item in value.values())


def _read_profiler(value: Mapping[str, Any], source: _Source, digest: str) -> list[_Outcome]:
    """``avg_comparison_results.json``: averages by configuration; the configurations stand in ``models_config.json``."""
    configurations = _profiler_models(source)
    own = next(
        (value[name] for name in ("name", "config", "model_name", "model") if isinstance(value.get(name), str)), None
    )
    entries = {own: value} if own is not None else value
    found: list[_Outcome] = []
    for name, stages in entries.items():
        found += _attempt(name, lambda n=name, s=stages: [_profiler_record(n, s, configurations, source, digest)])  # type: ignore[misc]
    return [InputFileError(f"{source.path}, {each}") if isinstance(each, StartupModelError) else each for each in found]


def _profiler_models(source: _Source) -> dict[str, Mapping[str, Any]]:
    """Configuration -> its fields, from the file beside the results; empty without one."""
    path = source.path.parent / _PROFILER_MODELS
    if not is_file(path):
        return {}

    def read() -> dict[str, Mapping[str, Any]]:
        value = _parse_document(_whole(path, _LARGEST_JSON, lambda _: None), path)
        if isinstance(value, dict):
            value = next(
                (value[key] for key in ("models", "configs") if isinstance(value.get(key), list | dict)), value
            )
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        table: dict[str, Mapping[str, Any]] = {}
        for name, item in items:
            entry = {"model": item} if isinstance(item, str) else item
            if isinstance(entry, dict):
                keys = (
                    [name]
                    if name is not None
                    else [entry.get(key) for key in ("name", "config", "model_name", "model")]
                )
                table |= {key: entry for key in keys if isinstance(key, str)}
        return table

    return source.builder.once(("configurations", path), read)


def _profiler_record(
    name: str, stages: Mapping[str, Any], configurations: Mapping[str, Mapping[str, Any]], source: _Source, digest: str
) -> _Found:
    builder = source.builder
    if not isinstance(stages, dict):
        raise ConfigError("stages", stages, "they should be an object", "give the seconds of each stage")
    fields = dict(configurations.get(name, {}))
    phases: dict[str, float] = {}
    cold, wall = False, None
    skipped = {"name", "config", "model_name", "model"}
    for stage, figure in _leaves({key: item for key, item in stages.items() if key not in skipped}).items():
        target = _PROFILER_STAGES.get(stage)
        if target is None:
            if stage not in _PROFILER_GROUPS:
                source.report.note(f"{source.path}: stage {shown(stage)} is not used")
        elif _is_absent(figure):
            continue
        elif target == "wall_s":
            wall = _seconds(stage, figure)
        else:
            phases[target] = round(phases.get(target, 0.0) + _seconds(stage, figure), 9)
            cold |= stage in _COLD_STAGES and phases[target] > 0
    used = _SETTINGS.keys() | {"engine"}
    settings = {key.replace("-", "_"): item for key, item in fields.items()}
    settings = {key: item for key, item in settings.items() if key in used and not isinstance(item, dict | list)}
    engine = _engine_of(settings, builder)
    if engine.compile_cache == "unknown" and Phase.GRAPH_COMPILE in phases:
        engine = engine.replace(compile_cache="cold" if cold else "warm")
    model_name = next(
        (fields[key] for key in ("model", "model_path", "path", "hf_id", "model_id") if key in fields), name
    )
    model, engine = _packed(builder.model(model_name), engine)
    gpu = next((fields[key] for key in ("gpu", "device") if isinstance(fields.get(key), str)), "")
    return _foreign(
        {
            "model": model,
            "hardware": builder.node(_accelerator(gpu, builder), engine.tp * engine.pp * engine.dp if gpu else None),
            "engine": engine,
            "phases": {str(phase): seconds for phase, seconds in phases.items()},
            "wall_s": wall,
            "dataset": _text("dataset", f"vllm-startup-profiler {source.path.parent.name}".strip()),
        },
        digest,
    )


class _Kind(NamedTuple):
    """A kind of mapping: how it is told, and its reader."""

    name: str
    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Mapping[str, Any], _Source, str], list[_Outcome]]


_KINDS = (
    _Kind("vllm bench startup", _is_bench, _read_bench),
    _Kind("five-stage record", _is_five_stage, _read_five_stage),
    _Kind("run record", _is_run, _read_run),
    _Kind("vllm-startup-profiler", _is_profiler, _read_profiler),
)
_LINE_KINDS = frozenset(["five-stage record", "run record"])
_KNOWN_FORMATS = "run records (JSONL or JSON), cold-start records (YAML or JSON), a CSV table of runs, the JSON of vllm bench startup, or avg_comparison_results.json of vllm-startup-profiler"


# --- JSON and YAML ------------------------------------------------------------------------------------------------------

_MEASURED = b',"phases":'


def _read_jsonl(source: _Source, advance: _Advance) -> Iterator[_Outcome]:
    """One object a line. What stands in front of the phases is the same for many runs: it is parsed once."""
    for number, raw, too_long in _lines(source.path, advance):
        place = f"{source.path}, line {number}"
        if too_long:
            yield InputFileError(f"{place}: more than the {_LONGEST_LINE} bytes that a run record can have; is it one?")
            continue
        line = raw.strip()
        if not line:
            continue
        digest = hashlib.sha256(line).hexdigest()
        try:
            head = line.find(_MEASURED, 0, _LONGEST_CACHED)
            shared = _shared_part(line[:head], source) if head > 0 else None
            own = line if shared is None else b"{" + line[head + 1 :]
            value = parse_json_object(own, place, "a run record on each line")
        except StartupModelError as error:
            yield InputFileError(str(error))
            continue
        if shared is not None:
            try:
                yield _finish({**value, **shared}, digest)
            except StartupModelError as error:
                yield InputFileError(f"{place}: {error}")
        else:
            yield from _attempt(place, lambda v=value, d=digest: _read_mapping(v, source, d))  # type: ignore[misc]


def _shared_part(head: bytes, source: _Source) -> Mapping[str, Any] | None:
    """The configurations in the first part of a line as our writer lays it out; None for any other layout."""

    def build() -> Mapping[str, Any]:
        value = _parsed(head + b"}")
        if not isinstance(value, dict) or value.keys() != {"model", "hardware", "engine"} or b"\\u" in head:
            return {}
        if not all(isinstance(item, dict) for item in value.values()):
            return {}
        builder = source.builder
        try:
            return {
                "model": builder.model(value["model"]),
                "hardware": builder.hardware(value["hardware"]),
                "engine": builder.engine(value["engine"]),
            }
        except StartupModelError:
            return {}  # the whole line says what is wrong

    return source.builder.once(("line", head), build) or None


def _parse_document(content: bytes, path: Path) -> Any:
    """A JSON document of any kind. Raises InputFileError."""
    if content.lstrip()[:1] == b"{":
        return parse_json_object(content, str(path), _KNOWN_FORMATS)
    # An array is read as the only field of an object, so that one function words all errors.
    return parse_json_object(b'{"": ' + content + b"}", str(path), _KNOWN_FORMATS)[""]


def _read_document(source: _Source, advance: _Advance) -> Iterator[_Outcome]:
    """One JSON object, or an array of them."""
    try:
        value = _parse_document(_whole(source.path, _LARGEST_JSON, advance), source.path)
    except StartupModelError as error:
        yield error
        return
    yield from _read_items(value, source)


def _read_items(value: object, source: _Source) -> Iterator[_Outcome]:
    """The records of a mapping or of a list of them."""
    digest = _digest(source.path)
    items = value if isinstance(value, list) else [value]
    for number, item in enumerate(items, 1):
        place = f"{source.path}, record {number}" if len(items) > 1 else str(source.path)
        yield from _attempt(place, lambda i=item: _read_mapping(i, source, digest))  # type: ignore[misc]


def _read_yaml(source: _Source, advance: _Advance) -> Iterator[_Outcome]:
    """YAML: a record, a list of them, or several documents."""
    try:
        documents = _yaml_documents(_whole(source.path, _LARGEST_YAML, advance), source.path)
    except StartupModelError as error:
        yield error
        return
    records: list[object] = []
    for document in documents:
        records += document if isinstance(document, list) else [] if document is None else [document]
    yield from _read_items(records, source)


def _yaml_documents(content: bytes, path: Path) -> list[object]:
    """The documents of a YAML file as plain data: no anchors, no tags, bounded depth. Raises InputFileError."""
    try:
        import yaml
    except ImportError:
        raise InputFileError(f"{path}: reading YAML needs PyYAML; pip install 'startup-model[cli]'") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = content.decode()
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1 if event.start_mark else 0
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
                raise InputFileError(f"{path}, line {line}: an alias or a tag; write plain values")
            if depth > _DEEPEST_YAML:
                raise InputFileError(f"{path}, line {line}: nested too deeply to be a run record")
        return list(yaml.load_all(text, Loader=loader))
    except UnicodeDecodeError:
        raise InputFileError(f"{path}: not UTF-8 text; save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        place = f"{path}, line {error.problem_mark.line + 1}" if error.problem_mark else str(path)
        raise InputFileError(f"{place}: not valid YAML ({error.problem}); is it cut off?") from None
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


# --- CSV ----------------------------------------------------------------------------------------------------------------

_STAGES: Mapping[str, tuple[str, ...]] = {
    "load_weights_s": (Phase.WEIGHT_LOAD.value,),
    "model_init_s": (Phase.MODEL_INIT.value,),
    "worker_init_s": (Phase.WORKER_SPAWN.value,),
    "tokenizer_s": (Phase.TOKENIZER_LOAD.value,),
    "dynamo_s": (Phase.GRAPH_TRACE.value,),
    "memory_profiling_s": (Phase.MEMORY_PROFILING.value,),
    "graph_capture_s": (Phase.GRAPH_CAPTURE.value,),
} | {phase.value: (phase.value,) for phase in Phase}
"""Column of seconds -> the phase that it is."""
_BOOTSTRAP_PARTS = ("detect_platform_s", "imports_s", "model_info_s")
_COMPILE_PARTS = ("inductor_compile_s", "compiled_graph_load_s")
_FACT_COLUMNS = ("compiled_graph_count", "weights_gib", "num_gpu_blocks", "kv_cache_tokens")
"""Columns of figures that are no seconds; each is the fact of that name."""
_COLUMNS: Mapping[str, str] = {
    name: name
    for name in (
        *("dataset", "host", "gpu", "cpu", "gpus", "engine", "engine_version", "model", "quantization", "load_format"),
        *("tensor_parallel", "page_cache", "compile_cache", "max_capture_size", "captures", "repetitions"),
        "max_num_seqs",
        *(
            "stamp_resolution_s",
            "wall_s",
            "first_token_s",
            "status",
            "framework_bootstrap_s",
            "sum_of_phases_s",
            "source",
        ),
        *(*_STAGES, *_BOOTSTRAP_PARTS, *_COMPILE_PARTS, *_FACT_COLUMNS),
    )
} | {
    "tp": "tensor_parallel",
    "tensor_parallel_size": "tensor_parallel",
    "torch_compile": "compile_cache",
    "n_capture_sizes": "captures",
    "runs_averaged": "repetitions",
    "stage_resolution_s": "stamp_resolution_s",
    "version": "engine_version",
}
"""Column of either layout -> what it holds."""
_ENGINE_COLUMNS = (
    "engine",
    "engine_version",
    "quantization",
    "load_format",
    "tensor_parallel",
    "page_cache",
    "compile_cache",
    "max_capture_size",
    "captures",
    "max_num_seqs",
)


class _CompileState(NamedTuple):
    """What a word says about torch.compile."""

    cache: str
    compiles: bool | None = None


_COMPILE_STATES: Mapping[str, _CompileState] = {
    "": _CompileState("unknown"),
    "unknown": _CompileState("unknown"),
    "warm": _CompileState("warm"),
    "cold": _CompileState("cold"),
    "disabled": _CompileState("cold"),
    "off": _CompileState("warm", compiles=False),
    "torch_compile_off": _CompileState("warm", compiles=False),
}
_PAGE_CACHE_STATES: Mapping[str, str] = {
    "": "unknown",
    "unknown": "unknown",
    "mixed": "unknown",
    "hot": "hot",
    "warm": "hot",
    "cold": "cold",
}
_SEQUENCES = 256
"""``max_num_seqs`` of the published starts, which have no column for it."""
_CAPTURE_SIZES = (1, 2, 4, *range(8, 513, 8))
"""Batch sizes of vLLM's V1 core before 0.11.2, of which a run captures the first ones."""


class _Rows:
    """The lines of a CSV file as text, for ``csv.reader``; remembers where it is and what is wrong with a line."""

    def __init__(self, path: Path, advance: _Advance) -> None:
        self._lines = _lines(path, advance)
        self.number = 0
        self.problem = ""

    def __iter__(self) -> Iterator[str]:
        for number, content, too_long in self._lines:
            self.number = number
            if too_long:
                self.problem = f"more than the {_LONGEST_LINE} bytes that a row can have; is a quote missing?"
            try:
                text = content.decode()
            except UnicodeDecodeError:
                self.problem, text = "not UTF-8 text; save the file as UTF-8", ""
            yield text + "\n"


def _read_csv(source: _Source, advance: _Advance) -> Iterator[_Outcome]:
    """A table of runs: the columns of published_runs.csv or of the published measurements, in any order."""
    path = source.path
    delimiter, names = _header(_sample(path))
    try:
        columns = _check_header(names, source)
    except StartupModelError as error:
        yield InputFileError(f"{path}, line 1: {error}")
        return
    digest = _digest(path)
    lines = _Rows(path, advance)
    reader = csv.reader(iter(lines), delimiter=delimiter)
    header_passed = False
    while True:
        begin = lines.number + 1
        place = f"{path}, row {begin}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield InputFileError(f"{place}: not a row of a CSV table ({error}); is a quote missing?")
            continue
        place = f"{path}, row {begin}" if lines.number <= begin else f"{path}, rows {begin} to {lines.number}"
        if lines.problem:
            yield InputFileError(f"{place}: {lines.problem}")
            lines.problem = ""
        elif not header_passed and any(cells):
            header_passed = True
        elif len(cells) != len(columns):
            if cells and any(cells):
                guess = "the row cut off" if lines.number <= begin else "a quote missing"
                yield InputFileError(f"{place}: {len(cells)} cells for {len(columns)} columns; is {guess}?")
        elif any(cells):
            row = {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}
            try:
                yield _row_record(row, source, digest)
            except StartupModelError as error:
                yield InputFileError(f"{place}: {error}")


def _check_header(names: Sequence[str], source: _Source) -> list[str]:
    """What each column holds; a named column that nothing is known about is refused (``strict``) or not used."""
    columns: dict[str, str] = {}
    for name in names:
        if name and name not in _COLUMNS:
            error = UnknownNameError("column", name, _COLUMNS, "Otherwise take it out, or read with strict=False.")
            if source.strict:
                raise error
            source.report.note(f"{source.path}: {error}; it is not used")
        target = _COLUMNS.get(name, "")
        if target and target in columns:
            raise ConfigError("column", name, f"{columns[target]!r} says the same", "keep one of the two")
        columns[target] = name
    if "model" not in columns and source.builder.given.model is None:
        raise ConfigError("column", MISSING, "no column 'model'", "add it, or give model=")
    if not columns.keys() & {*_STAGES, *_COMPILE_PARTS, "wall_s", "framework_bootstrap_s"}:
        raise ConfigError("column", MISSING, "no column of seconds", "add wall_s or phases such as weight_load")
    if not columns.keys() & {"gpu", "host"} and source.builder.given.hardware is None:
        raise ConfigError("column", MISSING, "no column 'gpu'", "add it, or give hardware=")
    return [_COLUMNS.get(name, "") for name in names]


def _row_record(row: Mapping[str, str], source: _Source, digest: str) -> _Found:
    """A row as a record; an empty cell was not measured."""
    builder = source.builder
    seconds = {name: _seconds(name, cell) for name, cell in row.items() if cell and name in _SECONDS_COLUMNS}
    cold = seconds.get("inductor_compile_s", 0.0) > 0
    key = tuple(row.get(name, "") for name in _ENGINE_COLUMNS)
    engine = builder.once(("row", key, cold), lambda: _row_engine(row, builder, cold=cold))
    base = builder.model(row.get("model"))
    model, engine = builder.once(("packed", base, engine), lambda: _packed(base, engine))
    phases = {phase: seconds[name] for name, (phase,) in _STAGES.items() if name in seconds}
    sums = []
    parts = [seconds[name] for name in _BOOTSTRAP_PARTS if name in seconds]
    if len(parts) == len(_BOOTSTRAP_PARTS):
        phases[Phase.FRAMEWORK_BOOTSTRAP.value] = _sum(parts)
    elif "framework_bootstrap_s" in seconds and Phase.FRAMEWORK_BOOTSTRAP.value not in phases:
        both = seconds["framework_bootstrap_s"]  # with the workers; 0 where neither was logged
        if both and Phase.WORKER_SPAWN.value in phases:
            phases[Phase.FRAMEWORK_BOOTSTRAP.value] = max(0.0, _sum([both, -phases[Phase.WORKER_SPAWN.value]]))
        elif both:
            sums.append({"phases": [Phase.FRAMEWORK_BOOTSTRAP.value, Phase.WORKER_SPAWN.value], "seconds": both})
    compiled = [seconds[name] for name in _COMPILE_PARTS if name in seconds]
    if compiled:
        phases[Phase.GRAPH_COMPILE.value] = _sum(compiled)
    return _foreign(
        {
            "model": model,
            "hardware": _row_node(row, builder, engine.tp),
            "engine": engine,
            "phases": phases,
            "sums": sums,
            "wall_s": seconds.get("wall_s"),
            "first_token_s": seconds.get("first_token_s"),
            "facts": {name: _count(name, row[name]) for name in _FACT_COLUMNS if row.get(name)},
            "status": _status(row.get("status")),
            "dataset": row.get("dataset", ""),
            "host": "" if row.get("host") in HOSTS else row.get("host", ""),
            "repetitions": _whole_number("repetitions", row.get("repetitions")) or 1,
            "stamp_resolution_s": seconds.get("stamp_resolution_s", 0.001),
        },
        digest,
    )


_SECONDS_COLUMNS = frozenset(
    [
        *_STAGES,
        *_BOOTSTRAP_PARTS,
        *_COMPILE_PARTS,
        "framework_bootstrap_s",
        "wall_s",
        "first_token_s",
        "stamp_resolution_s",
    ]
)


def _sum(parts: Iterable[float]) -> float:
    """A sum without the noise of binary fractions."""
    return round(math.fsum(parts), 9)


def _count(name: str, text: str) -> float:
    """A figure of a cell."""
    return _figure(name, float(text) if len(text) < 60 and _NUMBER.fullmatch(text) else text)


def _whole_number(name: str, text: str | None) -> int | None:
    """A whole number of a cell; None for an empty one."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,12}(?:\.0{1,6})?", text):
        raise ConfigError(name, text, "it should be a whole number", "write digits only")
    return int(text.split(".")[0])


def _state(name: str, text: str, table: Mapping[str, _T]) -> _T:
    if text.lower() not in table:
        raise UnknownNameError(name, text, [word for word in table if word])
    return table[text.lower()]


def _row_engine(row: Mapping[str, str], builder: _Builder, *, cold: bool) -> EngineConfig:
    """The engine of a row. ``cold``: it compiled, whatever the column says."""
    compile_state = _state("compile_cache", row.get("compile_cache", ""), _COMPILE_STATES)
    changes: dict[str, Any] = {
        "page_cache": _state("page_cache", row.get("page_cache", ""), _PAGE_CACHE_STATES),
        "torch_compile": compile_state.compiles,
        "compile_cache": "cold" if cold else compile_state.cache,
    }
    for column, name in (
        ("engine", "engine"),
        ("engine_version", "version"),
        ("quantization", "quantization"),
        ("load_format", "load_format"),
    ):
        if not _is_absent(row.get(column)):
            changes[name] = row[column]
    base = builder.given.engine
    numbers = {
        "tp": _whole_number("tensor_parallel", row.get("tensor_parallel")),
        "max_num_seqs": _whole_number("max_num_seqs", row.get("max_num_seqs", str(_SEQUENCES) if base is None else "")),
    }
    changes |= {name: number for name, number in numbers.items() if number is not None}
    captures = _whole_number("captures", row.get("captures"))
    largest = _whole_number("max_capture_size", row.get("max_capture_size"))
    version = changes.get("version")
    # The older core has a list of its own, whatever a table of both says.
    if changes.get("engine", "vllm") == "vllm" and (version is None or parse_version(version) >= FIRST_V1):
        changes |= _row_captures(captures, largest)
    return EngineConfig(**changes) if base is None else base.replace(**changes)


def _row_captures(captures: int | None, largest: int | None) -> dict[str, Any]:
    """The batch sizes that were captured, from their number, else from the largest."""
    if captures == 0:
        return {"enforce_eager": True}
    if captures is None:
        return {} if not largest else {"max_capture_size": largest}
    sizes = _CAPTURE_SIZES[:captures]
    if captures > len(_CAPTURE_SIZES) or (largest is not None and largest != sizes[-1]):
        problem = f"the list 1, 2, 4, 8, 16 ... does not have {captures} sizes up to {largest or sizes[-1]}"
        raise ConfigError("captures", captures, problem, "leave it empty")
    return {"capture_sizes": sizes}


def _row_node(row: Mapping[str, str], builder: _Builder, tp: int) -> HardwareConfig:
    """The node of a row: a published host by its name, else the preset of its accelerator with its processor."""
    host, gpu, cpu = row.get("host", ""), row.get("gpu", ""), row.get("cpu", "")
    gpus = _whole_number("gpus", row.get("gpus"))
    if not gpu and host in HOSTS:
        return builder.node(HOSTS[host].hardware, gpus or tp)
    if not gpu:
        own = builder.given.hardware
        return builder.node(None, gpus or (max(tp, own.gpus) if own else tp), "gpu")

    def build() -> HardwareConfig:
        try:
            return HardwareConfig.preset(gpu, **({} if not cpu else {"cpu": Cpu(model=cpu)}))
        except UnknownNameError as error:
            raise ConfigError("gpu", gpu, error.problem, error.remedy) from None

    return builder.node(builder.once(("node", gpu, cpu), build), gpus or tp)


# --- the formats, in the order in which they are tried --------------------------------------------------------------------

_JSONL = _Format("JSON lines", _is_jsonl, _read_jsonl)
_DOCUMENT = _Format("JSON", _is_document, _read_document)
_FORMATS = (
    _JSONL,
    _DOCUMENT,
    _Format("CSV", _is_table, _read_csv),
    _Format("YAML", _is_yaml, _read_yaml),
)


# --- writing ------------------------------------------------------------------------------------------------------------


def _line_of(run: RunRecord) -> bytes:
    """A record as one line of JSON. Raises InputFileError for text that is no UTF-8."""
    try:
        return run.model_dump_json().encode() + b"\n"
    except (UnicodeEncodeError, ValueError) as error:
        raise InputFileError(
            f"a run of {shown(run.model.name)} cannot be written as UTF-8 ({error}); mend its names"
        ) from None


def write_runs(runs: Iterable[RunRecord], path: str | Path) -> None:
    """Write JSON lines, one run each: the file is the old one or the whole new one. Raises InputFileError."""
    write_atomically(Path(path), map(_line_of, runs))


def append_run(run: RunRecord, path: str | Path) -> None:
    """Add one line to a file of runs, on disk when this returns; processes that append at the same time take turns.

    A last line that a killed process left half written is moved to the file ``PATH.torn``, with a warning. Raises
    InputFileError for a file that holds something else or cannot be written.
    """
    target = Path(path)
    line = _line_of(run)
    if len(line) > _LONGEST_LINE:
        raise InputFileError(
            f"{target}: a record of {len(line)} bytes, more than the {_LONGEST_LINE} that are read back"
        )
    with _opened_to_append(target) as file, _locked(file.fileno(), target):
        try:
            is_new = os.fstat(file.fileno()).st_size == 0
            start = _mend_end(file, target)
            _write_all(file, line, start)
            if is_new:
                _sync_folder(target.parent)
        except OSError as error:
            raise InputFileError(
                f"{target}: cannot be written ({error.strerror or error}); make room, or choose another file"
            ) from None


def check_appendable(path: str | Path) -> None:
    """Raise InputFileError where ``append_run`` would, as far as that is known before there is a run. A file that is not there is made, and is never removed."""
    target = Path(path)
    with _opened_to_append(target) as file:
        try:
            _check_begin(file, target)
        except OSError as error:
            raise InputFileError(f"{target}: cannot be read ({error.strerror or error}); choose another file") from None


@contextmanager
def _opened_to_append(target: Path) -> Iterator[BinaryIO]:
    """A regular file, made where there is none; pipes and devices are not waited for."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(target, flags, 0o644)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(f"{shown(str(target))}: cannot be written ({reason}); choose another file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputFileError(f"{target}: not a regular file; choose another one")
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        yield file


_LOCK_S = 30.0
"""Seconds in which another process gives a file free: writing a record takes a fraction of one."""
_LOCK_TICK_S = 0.02


@contextmanager
def _locked(descriptor: int, target: Path) -> Iterator[None]:
    """Hold the file for this process alone, where the system can. Raises InputFileError when another one keeps it."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        yield
        return
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                raise InputFileError(
                    f"{target}: another process has locked it for {_LOCK_S:.0f} s; end that one, or choose another file"
                ) from None
            time.sleep(_LOCK_TICK_S)
        except OSError as error:
            raise InputFileError(
                f"{target}: it cannot be locked ({error.strerror or error}); choose a file on another file system"
            ) from None
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _write_all(file: Any, line: bytes, start: int) -> None:
    """Write and sync one line; what was written of it is taken back when the disk is full."""
    try:
        written = 0
        while written < len(line):
            written += file.write(line[written:])
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(start)
        raise


def _sync_folder(folder: Path) -> None:
    """Put a new name on disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _mend_end(file: BinaryIO, path: Path) -> int:
    """Where the next line begins: behind the last whole one, a torn one set aside. Raises InputFileError for a file
    that is not one of runs."""
    size = _check_begin(file, path)
    if size == 0:
        return 0
    file.seek(max(0, size - _LONGEST_LINE - 1))
    before, newline, tail = file.read().rpartition(b"\n")
    del before
    if not tail:
        return size
    if not newline and size > _LONGEST_LINE:
        raise InputFileError(f"{path}: its last line is longer than any run record; choose another file")
    if isinstance(_parsed(tail), dict):  # whole, only the line break is missing
        file.write(b"\n")
        return size + 1
    aside = path.with_name(path.name + ".torn")
    with aside.open("ab") as torn:
        torn.write(tail + b"\n")
        torn.flush()
        os.fsync(torn.fileno())
    file.truncate(size - len(tail))
    warnings.warn(f"{path}: its last line was half written ({len(tail)} bytes) and now stands in {aside}", stacklevel=4)
    return size - len(tail)


def _check_begin(file: BinaryIO, path: Path) -> int:
    """Bytes of a file. Raises InputFileError where its first line is of no file of runs."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first, ended, _ = file.read(_LONGEST_LINE + 1).lstrip(b"\xef\xbb\xbf").partition(b"\n")
    if first.lstrip()[:1] not in (b"{", b"") or (ended and first.strip() and not isinstance(_parsed(first), dict)):
        raise InputFileError(f"{path}: it holds no JSON lines, so no run is added; choose another file")
    return size


_CSV_COLUMNS = (
    *("dataset", "host", "model", "engine_version", "quantization", "load_format", "page_cache", "torch_compile"),
    *("captures", "repetitions", "stamp_resolution_s"),
)
_CSV_PHASES = (
    Phase.FRAMEWORK_BOOTSTRAP,
    Phase.WORKER_SPAWN,
    Phase.TOKENIZER_LOAD,
    Phase.MODEL_INIT,
    Phase.WEIGHT_LOAD,
    Phase.GRAPH_TRACE,
    Phase.GRAPH_COMPILE,
    Phase.MEMORY_PROFILING,
    Phase.GRAPH_CAPTURE,
)


def runs_to_csv(runs: Iterable[RunRecord]) -> str:
    """The runs as a table in the layout of published_runs.csv; a host that is not published adds its accelerator.

    A table holds names, seconds by phase and a few facts: sums, other facts, settings that have no column, and what was counted from the first line
    of a log instead of the start of its process are left out.
    """
    rows = list(runs)
    extra = [phase for phase in Phase if phase not in _CSV_PHASES and any(phase.value in run.phases for run in rows)]
    own_hosts = any(_published_host(run) is None or run.engine.tp > 1 for run in rows)
    columns = [
        *_CSV_COLUMNS,
        *(name for name in _FACT_COLUMNS if any(name in run.facts for run in rows)),
        *(phase.value for phase in (*_CSV_PHASES, *extra)),
        *(["first_token_s"] if any(run.first_token_s is not None for run in rows) else []),
        *(["status"] if any(run.status != "ok" for run in rows) else []),
        *(["max_num_seqs"] if any(run.engine.max_num_seqs != _SEQUENCES for run in rows) else []),
        *(["engine", "gpu", "cpu", "gpus", "tensor_parallel"] if own_hosts else []),
        "wall_s",
    ]
    text = StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_csv_row(run) for run in rows)
    return text.getvalue()


def _published_host(run: RunRecord) -> str | None:
    """Name of the published host that a run is of."""
    return next((name for name, host in HOSTS.items() if host.hardware == run.hardware), None)


def _csv_row(run: RunRecord) -> dict[str, object]:
    """The cells of one run."""
    engine, node = run.engine, run.hardware
    host = _published_host(run)
    sizes = engine.capture_sizes
    own = {} if host else {"gpu": node.name if node.name in preset_names() else node.gpu, "cpu": node.cpu.model}
    return {
        "dataset": run.dataset,
        "host": host or run.host,
        "model": run.model.name,
        "engine": engine.engine,
        "engine_version": engine.version or "",
        "quantization": engine.quantization or "",
        "load_format": engine.load_format,
        "page_cache": engine.page_cache,
        "torch_compile": "off" if engine.torch_compile is False else engine.compile_cache,
        "captures": len(sizes)
        if sizes and sizes == _CAPTURE_SIZES[: len(sizes)]
        else 0
        if engine.enforce_eager
        else "",
        "repetitions": run.repetitions,
        "stamp_resolution_s": f"{run.stamp_resolution_s:.12g}",
        "wall_s": "" if run.ready_s is None else run.ready_s,
        "first_token_s": "" if run.first_token_s is None else run.first_token_s,
        "status": run.status,
        "max_num_seqs": engine.max_num_seqs or "",
        "gpus": node.gpus,
        "tensor_parallel": engine.tp,
        **own,
        **{name: run.facts[name] for name in _FACT_COLUMNS if name in run.facts},
        **{name: seconds for name, seconds in run.phases.items() if name not in run.hidden},
    }
