"""CSV tables of runs: the columns of published_runs.csv or of the published measurements, in any order."""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from calibration.runs import build
from calibration.runs.build import Advance, Attempt, Builder, Found, Source
from calibration.runs.published import CAPTURE_SIZES, HOSTS, MAX_NUM_SEQS
from calibration.runs.record import phase_names
from startup_model.engines import DEFAULT_ENGINE, find
from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError, duplicate, missing, wrong_type
from startup_model.files import open_regular
from startup_model.hardware import Cpu, HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.phases import PHASES
from startup_model.versions import parse_version

_HALF = "\ud800"
_SETTINGS = {
    "engine": "engine",
    "engine_version": "version",
    "quantization": "quantization",
    "load_format": "load_format",
}


def _times() -> frozenset[str]:
    """Columns of seconds: stages of other tools, and each phase."""
    own = build.names()
    groups = [own.columns[group] for group in ("seconds", "bootstrap", "compile")]
    return frozenset([*own.stages, *phase_names(), *chain(*groups)])


def _known_columns() -> dict[str, str]:
    """Column of either layout -> what it holds."""
    return {name: name for name in (*chain(*build.names().columns.values()), *_times())} | build.names().aliases


def _header(first: bytes) -> tuple[str, list[str]]:
    """Delimiter and names of the first line that is not empty: the delimiter that gives the most known names."""
    line = next((line for line in first.splitlines()[:20] if line.strip()), b"")[: build.MAX_LINE]
    text, known = line.decode("utf-8", "replace"), _known_columns().keys()
    found = {}
    for delimiter in (",", ";", "\t", "|"):
        with suppress(csv.Error):
            cells = next(csv.reader([text], delimiter=delimiter), [])
            found[delimiter] = [name.strip().lower() for name in cells]
    return max(found.items(), key=lambda item: len(set(item[1]) & known), default=(",", []))


def is_table(first: bytes) -> bool:
    """Whether the first line holds at least two column names that are known."""
    return len(set(_header(first)[1]) & _known_columns().keys()) >= 2


def read_table(source: Source, advance: Advance) -> Iterator[Attempt]:
    """The rows of a table as records."""
    path = source.path
    delimiter, found = _header(build.sample(path))
    try:
        columns = _check_header(found, source)
    except StartupModelError as error:
        yield f"{path}, line 1", build.raising(error)
        return
    with open_regular(path, "a table of runs") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    # A line that is too long or not UTF-8 is marked by half a character, which no text of a file has.
    texts = (
        _HALF if line.too_long else line.content.decode("utf-8", "surrogateescape")
        for line in build.lines(path, advance)
    )
    reader = csv.reader((text + "\n" for text in texts), delimiter=delimiter)
    header_passed, times = False, _times()
    while True:
        begin = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"{path}, row {begin}", build.raising(f"not a row of a CSV table ({error}); is a quote missing?")
            continue
        in_one_line = reader.line_num <= begin
        place = f"{path}, row {begin}" if in_one_line else f"{path}, rows {begin} to {reader.line_num}"
        if not any(cells):
            continue
        try:
            "".join(cells).encode()
        except UnicodeEncodeError:
            too_long = f"more than the {build.MAX_LINE} bytes that a row can have; is a quote missing?"
            is_long = any(_HALF in cell for cell in cells)
            yield place, build.raising(too_long if is_long else "not UTF-8 text; save the file as UTF-8")
            continue
        if not header_passed:
            header_passed = True
        elif len(cells) != len(columns):
            guess = "the row cut off" if in_one_line else "a quote missing"
            yield place, build.raising(f"{len(cells)} cells for {len(columns)} columns; is {guess}?")
        else:
            row = {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}
            yield place, lambda r=row: row_record(r, source.builder, digest, times)  # type: ignore[misc]


def _check_header(found: Sequence[str], source: Source) -> list[str]:
    """What each column holds; a named column that nothing is known about is refused (``strict``) or not used."""
    given, known = source.builder.given, _known_columns()
    columns: dict[str, str] = {}
    for name in found:
        if name and name not in known:
            error = UnknownNameError("column", name, known, "Otherwise take it out, or read with strict=False.")
            if source.strict:
                raise error
            source.report.note(f"{source.path}: {error}; it is not used")
        target = known.get(name, "")
        if target and target in columns:
            raise duplicate("column", name, f"{columns[target]!r} says the same: keep one of the two")
        columns[target] = name
    if "model" not in columns and given.model is None:
        raise missing("column", "there is no column 'model'", "add it, or give model=")
    if not columns.keys() & (_times() - {"first_token_s", "stamp_resolution_s", *build.names().columns["bootstrap"]}):
        raise missing("column", "there is no column of seconds", "add wall_s or phases such as weight_load")
    if not columns.keys() & {"gpu", "host"} and given.hardware is None:
        raise missing("column", "there is no column 'gpu'", "add it, or give hardware=")
    return [known.get(name, "") for name in found]


def frame_rows(frame: Any) -> list[dict[str, str]]:
    """The rows of a pandas DataFrame with the columns of a table, as cells of text. Raises UnknownNameError for another column."""
    known = _known_columns()
    columns = [str(name).strip().lower() for name in frame.columns]
    for name in columns:
        if name not in known:
            raise UnknownNameError("column", name, known)
    present = frame.notna().to_numpy()
    return [
        {known[name]: str(cell) if is_there else "" for name, cell, is_there in zip(columns, row, there, strict=True)}
        for row, there in zip(frame.itertuples(index=False, name=None), present, strict=True)
    ]


def row_start(row: Mapping[str, str], builder: Builder) -> tuple[ModelConfig, HardwareConfig, EngineConfig]:
    """What a row started, and where."""
    compiling = row.get("inductor_compile_s")
    is_cold = (
        bool(compiling) and build.as_seconds("inductor_compile_s", compiling) > 0
    )  # whatever the column of states says
    key = tuple(row.get(name, "") for name in build.names().columns["engine"])
    engine = builder.cached(("row", key, is_cold), lambda: _engine(row, builder, is_cold=is_cold))
    base = builder.part("model", row.get("model"))
    model, engine = builder.cached(("packed", base, engine), lambda: build.packed(base, engine))
    return model, _node(row, builder, engine.tp), engine


def row_record(
    row: Mapping[str, str], builder: Builder, digest: str = "", times: Collection[str] | None = None
) -> Found:
    """A row as a record; an empty cell was not measured. ``times``: columns of seconds, where many rows share them."""
    own, times = build.names(), times or _times()
    seconds = {name: build.as_seconds(name, cell) for name, cell in row.items() if cell and name in times}
    model, hardware, engine = row_start(row, builder)
    phases = {phase: seconds[name] for name, phase in own.stages.items() if name in seconds}
    phases |= {name: found for name, found in seconds.items() if name in PHASES}
    sums, status = [], row.get("status", "")
    if all(name in seconds for name in own.columns["bootstrap"]):
        phases["framework_bootstrap"] = _sum(seconds[name] for name in own.columns["bootstrap"])
    elif (both := seconds.get("framework_bootstrap_s")) and "framework_bootstrap" not in phases:  # 0: not logged
        if "worker_spawn" in phases:
            phases["framework_bootstrap"] = max(0.0, _sum([both, -phases["worker_spawn"]]))
        else:
            sums.append({"phases": ["framework_bootstrap", "worker_spawn"], "seconds": both})
    if compiled := [seconds[name] for name in own.columns["compile"] if name in seconds]:
        phases["graph_compile"] = _sum(compiled)
    record = {
        "model": model,
        "hardware": hardware,
        "engine": engine,
        "phases": phases,
        "sums": sums,
        "wall_s": seconds.get("wall_s"),
        "first_token_s": seconds.get("first_token_s"),
        "facts": {name: build.as_figure(name, row[name]) for name in own.columns["facts"] if row.get(name)},
        "status": builder.cached(("status", status), lambda: build.look_up("status", status, own.status)),
        "dataset": row.get("dataset", ""),
        "host": "" if row.get("host") in HOSTS else row.get("host", ""),
        "repetitions": _whole_number("repetitions", row.get("repetitions")) or 1,
        "stamp_resolution_s": seconds.get("stamp_resolution_s", 0.001),
    }
    return build.finish_foreign(record, digest)


def _sum(parts: Iterable[float]) -> float:
    """A sum without the noise of binary fractions."""
    return round(math.fsum(parts), 9)


def _whole_number(name: str, text: str | None) -> int | None:
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,12}(?:\.0{1,6})?", text):
        raise wrong_type(name, text, "a whole number", "write digits only")
    return int(text.split(".")[0])


def _engine(row: Mapping[str, str], builder: Builder, *, is_cold: bool) -> EngineConfig:
    own, base = build.names(), builder.given.engine
    compile_cache = build.look_up("compile_cache", row.get("compile_cache", ""), own.compile_cache)
    is_off = compile_cache == "off"
    changes: dict[str, Any] = {
        "page_cache": build.look_up("page_cache", row.get("page_cache", ""), own.page_cache),
        "torch_compile": False if is_off else None,
        "compile_cache": "cold" if is_cold else "warm" if is_off else compile_cache,
    }
    changes |= {name: row[column] for column, name in _SETTINGS.items() if not build.is_absent(row.get(column))}
    sequences = row.get("max_num_seqs", str(MAX_NUM_SEQS) if base is None else "")
    numbers = {
        "tp": _whole_number("tensor_parallel", row.get("tensor_parallel")),
        "max_num_seqs": _whole_number("max_num_seqs", sequences),
    }
    changes |= {name: number for name, number in numbers.items() if number is not None}
    captures, largest = (_whole_number(name, row.get(name)) for name in ("captures", "max_capture_size"))
    engine = find(changes.get("engine", DEFAULT_ENGINE if base is None else base.engine))
    version = parse_version(changes.get("version") or engine.default_version or "0")
    if version in engine.listed_by_count:  # others have a list of their own, whatever a table of several says
        changes |= _captures(captures, largest)
    return EngineConfig(**changes) if base is None else base.replace(**changes)


def _captures(captures: int | None, largest: int | None) -> dict[str, Any]:
    """The batch sizes that were captured, from their number, else from the largest."""
    if captures == 0:
        return {"enforce_eager": True}
    if captures is None:
        return {} if not largest else {"max_capture_size": largest}
    sizes = CAPTURE_SIZES[:captures]
    if captures > len(CAPTURE_SIZES) or (largest is not None and largest != sizes[-1]):
        problem = f"the list 1, 2, 4, 8, 16 ... does not have {captures} sizes up to {largest or sizes[-1]}"
        raise ConfigError("captures", captures, problem, "leave it empty")
    return {"capture_sizes": sizes}


def _node(row: Mapping[str, str], builder: Builder, tp: int) -> HardwareConfig:
    """The node of a row: a published host by its name, else the preset of its accelerator with its processor."""
    host, gpu, cpu = row.get("host", ""), row.get("gpu", ""), row.get("cpu", "")
    gpus = _whole_number("gpus", row.get("gpus"))
    if not gpu and host in HOSTS:
        return builder.node(HOSTS[host].hardware, gpus or tp)
    if not gpu:
        own = builder.given.hardware
        return builder.node(None, gpus or (max(tp, own.gpus) if own else tp), "gpu")

    def make() -> HardwareConfig:
        try:
            return HardwareConfig.preset(gpu, **({} if not cpu else {"cpu": Cpu(model=cpu)}))
        except UnknownNameError as error:
            raise ConfigError("gpu", gpu, error.problem, error.remedy) from None

    return builder.node(builder.cached(("node", gpu, cpu), make), gpus or tp)
