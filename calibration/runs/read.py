"""Reading run records: our own JSONL, CSV tables, and the result files of other tools.

What a file is is told by its content, never by its ending. Files are data only; each is read row by row, or refused when it is larger than its format can be. Every error is one line that names the file, the line or row, the field,
its value and the remedy.
"""

from __future__ import annotations

import hashlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibration.runs import build, foreign, table
from calibration.runs.build import Advance, Attempt, Build, Builder, Found, Given, ReadReport, Records, Source
from calibration.runs.record import RunRecord
from startup_model.errors import ConfigError, InputFileError, StartupModelError, wrong_type
from startup_model.files import is_file, is_folder, parse_json_object
from startup_model.predictor import EngineLike, HardwareLike, ModelLike, as_engine, as_hardware, as_model

Fields = Mapping[str, Any]
Format = Callable[[Source, Advance], Iterator[Attempt]]

_MAX_FILES = 10_000
_MIN_BAR_BYTES = 4 * 10**6
_MAX_SHARED = 2**14  # bytes in front of the phases of a line that are parsed once for many lines


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
    accelerator; a file that names another accelerator is refused. ``strict=False`` skips records that cannot be read:
    ``report`` says which and why, without one a warning does. ``progress``: a bar; None: on a terminal, for
    files over 4 MB. Raises InputFileError, or ConfigError for an argument.
    """
    told = ReadReport() if report is None else report
    options: dict[str, Any] = {"hardware": hardware, "model": model, "engine": engine, "progress": progress}
    runs = list(iter_runs(path, **options, strict=strict, report=told))
    if report is None and told.skipped:
        warnings.warn(f"{path}: {told}", stacklevel=2)
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
    given = Given(
        None if model is None else as_model(model),
        None if hardware is None else as_hardware(hardware),
        None if engine is None else as_engine(engine),
    )
    seen = _Seen()
    for file, kind in _files(Path(path), report):
        source = Source(file, Builder(given, file.parent), report, strict)
        with _bar(file, progress) as advance:
            for place, attempt in kind(source, advance):
                for found in _tried(place, attempt):
                    if isinstance(found, InputFileError):
                        if strict:
                            raise found
                        report.skipped += 1
                        if len(report.problems) < build.MAX_PROBLEMS:
                            report.problems.append(str(found))
                    elif seen.is_duplicate(found):
                        report.duplicates += 1
                    else:
                        report.runs += 1
                        yield found.run


def _tried(place: str, attempt: Build) -> Sequence[Found | InputFileError]:
    """What an attempt gives, or its error with the place in front."""
    try:
        found = attempt()
    except StartupModelError as error:
        return [InputFileError(f"{place}: {error}")]
    except RecursionError:  # text that is just not too deep to be parsed
        return [InputFileError(f"{place}: nested too deeply to be a run record")]
    parts = [found] if isinstance(found, Found) else found
    return [InputFileError(f"{place}, {each}") if isinstance(each, StartupModelError) else each for each in parts]


class _Seen:
    """Runs that were there already. Equal runs with digests of different logs are different runs."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[str | None, ...]] = {}

    def is_duplicate(self, found: Found) -> bool:
        """Whether this run was seen before; it is from now on."""
        run = found.run
        key = hash(
            (
                (run.model, run.hardware, run.engine, run.sums, run.wall_s, run.first_token_s, run.status),
                (frozenset(run.phases.items()), frozenset(run.unknown_phases.items()), frozenset(run.facts.items())),
                (run.dataset, run.host, run.repetitions, run.stamp_resolution_s, run.measured_from),
            )
        )
        digest = run.source_digest if found.has_own_digest else None
        known = self._digests.get(key, ())
        if known and (digest is None or None in known or digest in known):
            return True
        self._digests[key] = (*known, digest)
        return False


@contextmanager
def _bar(path: Path, wanted: bool | None) -> Iterator[Advance]:
    """A progress bar over the bytes of a file, or nothing."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; give {build.WHAT}") from None
    if wanted is False or (wanted is None and not (size > _MIN_BAR_BYTES and sys.stderr.isatty())):
        yield lambda _: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        if wanted:
            raise ConfigError("progress", True, "a bar needs rich", "pip install 'startup-model[cli]'") from None
        yield lambda _: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=size)
        yield lambda count: bar.advance(task, count)


# --- kinds of record ----------------------------------------------------------------------------------------------------


def _is_run(value: Fields) -> bool:
    figures = ("phases", "sums", "wall_s", "first_token_s", "stamp_resolution_s")
    return ("model" in value or "hardware" in value) and any(name in value for name in figures)


def _read_run(value: Fields, source: Source, digest: str) -> Found:
    """A RunRecord; its configurations may be names."""
    parts = {name: source.builder.part(name, value.get(name)) for name in ("model", "hardware", "engine")}
    return build.finish({**value, **parts}, digest)


_KINDS = (  # how a mapping is told and its reader, in the order in which they are tried
    (foreign.is_bench, foreign.read_bench),
    (foreign.is_five_stage, foreign.read_five_stage),
    (_is_run, _read_run),
    (foreign.is_profiler, foreign.read_profiler),
)


def _read_mapping(value: object, source: Source, digest: str) -> Found | Records:
    """The records in one mapping. Raises ConfigError when it is none of the known kinds."""
    if not isinstance(value, dict):
        raise wrong_type("record", value, "an object with fields", f"give {build.KNOWN_FORMATS}")
    value = {str(key): item for key, item in value.items()}
    for matches, read in _KINDS:
        if matches(value):
            return read(value, source, digest)
    raise ConfigError("record", value, "none of the known kinds of record", f"give {build.KNOWN_FORMATS}")


# --- formats of files ---------------------------------------------------------------------------------------------------


def _is_jsonl(first: bytes) -> bool:
    """Whether one of the first lines is a record of its own (the others may be torn)."""
    if first.lstrip()[:1] == b"[":
        return False
    values = [build.parsed(line) for line in first.split(b"\n")[:50] if line.lstrip()[:1] == b"{"]
    return any(foreign.is_five_stage(value) or _is_run(value) for value in values if isinstance(value, dict))


def _read_jsonl(source: Source, advance: Advance) -> Iterator[Attempt]:
    """One object a line."""
    for number, raw, too_long in build.lines(source.path, advance):
        place = f"{source.path}, line {number}"
        if too_long:
            yield place, build.raising(f"more than the {build.MAX_LINE} bytes that a run record can have; is it one?")
        elif line := raw.strip():
            yield place, lambda place=place, line=line: _read_line(line, place, source)  # type: ignore[misc]


def _read_line(line: bytes, place: str, source: Source) -> Found | Records:
    """What stands in front of the phases is the same for many runs: it is parsed once."""
    head = line.find(b',"phases":', 0, _MAX_SHARED)
    shared = _shared_part(line[:head], source) if head > 0 else None
    own = line if shared is None else b"{" + line[head + 1 :]
    value = parse_json_object(own, "", "a run record on each line")
    digest = hashlib.sha256(line).hexdigest()
    return _read_mapping(value, source, digest) if shared is None else build.finish({**value, **shared}, digest)


def _shared_part(head: bytes, source: Source) -> Mapping[str, Any] | None:
    """The configurations in the first part of a line as our writer lays it out; None for any other layout."""

    def make() -> Mapping[str, Any]:
        value = build.parsed(head + b"}")
        if not isinstance(value, dict) or value.keys() != {"model", "hardware", "engine"} or b"\\u" in head:
            return {}
        if not all(isinstance(item, dict) for item in value.values()):
            return {}
        try:
            return {name: source.builder.part(name, item) for name, item in value.items()}
        except StartupModelError:
            return {}  # the whole line says what is wrong

    return source.builder.cached(("line", head), make) or None


def _is_document(first: bytes) -> bool:
    """Whether it is one JSON object or array of a known kind, or a large one that names what only such a kind has."""
    if first.lstrip()[:1] not in (b"{", b"["):
        return False
    value = build.parsed(first)
    item = value[0] if isinstance(value, list) and value else value
    if isinstance(item, dict):
        return any(matches(item) for matches, _ in _KINDS)
    marks = (b'"hardware"', b'"startup_wall_secs"', b"_startup_times", b'"wall_s"')
    return len(first) >= build.SAMPLE and any(mark in first for mark in marks)


_YAML_MARK = re.compile(rb"^(?:- |\? )?[ \t]{0,8}[\"']?model[\"']?[ \t]{0,8}:", re.MULTILINE)
_YAML_RECORD = re.compile(
    rb"^[ \t-]{0,12}[\"']?(?:phases|startup_wall_secs|wall_s|load_format)[\"']?[ \t]{0,8}:", re.MULTILINE
)


def _is_yaml(first: bytes) -> bool:
    return bool(_YAML_MARK.search(first)) and bool(_YAML_RECORD.search(first))


def _read_document(source: Source, advance: Advance) -> Iterator[Attempt]:
    """One JSON object, or an array of them."""
    return _read_items(source, advance, build.MAX_JSON, lambda content, path: [build.parse_document(content, path)])


def _read_yaml(source: Source, advance: Advance) -> Iterator[Attempt]:
    """YAML: a record, a list of them, or several documents."""
    return _read_items(source, advance, build.MAX_YAML, build.parse_yaml)


def _read_items(
    source: Source, advance: Advance, largest: int, parse: Callable[[bytes, Path], list[object]]
) -> Iterator[Attempt]:
    """The records of some documents, each a mapping or a list of them."""
    try:
        content = build.whole(source.path, largest, advance)
        documents = [document for document in parse(content, source.path) if document is not None]
    except StartupModelError as error:
        yield "", build.raising(error)
        return
    found = [item for one in documents for item in (one if isinstance(one, list) else [one])]
    digest = hashlib.sha256(content).hexdigest()
    for number, item in enumerate(found, 1):
        place = f"{source.path}, record {number}" if len(found) > 1 else str(source.path)
        yield place, lambda item=item: _read_mapping(item, source, digest)  # type: ignore[misc]


_FORMATS: Mapping[
    Format, Callable[[bytes], bool]
] = {  # reader -> how the first bytes of its files look, in the order in which they are tried
    _read_jsonl: _is_jsonl,
    _read_document: _is_document,
    table.read_table: table.is_table,
    _read_yaml: _is_yaml,
}


def _files(path: Path, report: ReadReport) -> Iterator[tuple[Path, Format]]:
    """The run files of a folder and its sub-folders (the others are noted), or the one file itself."""
    if not is_folder(path):
        yield path, _format_of(build.sample(path), path)
        return
    found = False
    for file in _files_in(path):
        first = build.sample(file)
        kind = next((kind for kind, matches in _FORMATS.items() if first and matches(first)), None)
        if kind is not None:
            found = True
            yield file, kind
        elif file.name != foreign.PROFILER_MODELS:
            report.note(f"{file}: not a run file, left out")
    if not found:
        raise InputFileError(f"{path}: the folder holds no run files; give {build.KNOWN_FORMATS}")


def _files_in(folder: Path) -> list[Path]:
    """Regular files of a folder and its sub-folders by name, hidden ones aside. Raises InputFileError for too many."""
    files: list[Path] = []
    try:
        for entry in sorted(folder.iterdir()):
            inner = sorted(entry.iterdir()) if is_folder(entry) and not entry.name.startswith(".") else [entry]
            files += [file for file in inner if is_file(file) and not file.name.startswith(".")]
            if len(files) > _MAX_FILES:
                raise InputFileError(f"{folder}: more than {_MAX_FILES} files; give a folder of run files")
    except OSError as error:
        raise InputFileError(f"{folder}: {error.strerror or error}; give a folder that can be read") from None
    return files


def _format_of(first: bytes, path: Path) -> Format:
    """The first format that the bytes look like. Raises InputFileError for none."""
    if not first.strip():
        raise InputFileError(f"{path}: empty; give {build.KNOWN_FORMATS}")
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputFileError(f"{path}: UTF-16 text; save it as UTF-8")
    if b"\0" in first:
        raise InputFileError(f"{path}: not a text file; give {build.KNOWN_FORMATS}")
    for kind, matches in _FORMATS.items():
        if matches(first):
            return kind
    if first.lstrip()[:1] in (b"{", b"["):  # let its reader say what is wrong
        return _read_document if b"\n" not in first.strip() or first.lstrip()[1:2] in b"\r\n" else _read_jsonl
    raise InputFileError(f"{path}: none of the known formats; give {build.KNOWN_FORMATS}")
