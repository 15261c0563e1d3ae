"""Records of other tools: the five-stage document, ``vllm bench startup``, vllm-startup-profiler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from calibration.runs import build
from calibration.runs.build import Builder, Found, Records, Source
from calibration.runs.record import phase_names
from startup_model.engines.config import EngineConfig
from startup_model.errors import (
    MISSING,
    ConfigError,
    InputFileError,
    StartupModelError,
    UnknownNameError,
    conflict,
    shown,
    wrong_type,
)
from startup_model.files import is_file
from startup_model.hardware import HardwareConfig, preset_names
from startup_model.units import GIB, parse_bytes

Fields = Mapping[str, Any]

PROFILER_MODELS = "models_config.json"
"""File beside the results of vllm-startup-profiler that says what each configuration is."""

_DEVICES = re.compile(r"([0-9]{1,4})\s{0,4}(?:[x×*]|卡|张|块|gpus?\b)\s{0,4}[,，、:]?(.{0,200})", re.IGNORECASE)
_BENCH_RESOLUTION = 1.0  # seconds by which it is not known what of the bootstrap lies inside the time
_BENCH_FIELD = re.compile(r"(?:avg_)?(cold|warm)_(?:startup|compilation|encoder_compilation)_(?:times?|percentiles)")
_STATES = ("cold", "warm")
_AFFIXES = re.compile(r"^(?:avg|average|mean)_|_(?:avg|average|mean|s|sec|secs|seconds|time|duration)$")
_NAME_FIELDS = ("name", "config", "model_name", "model")


def _settings(value: Fields, builder: Builder, implied: Fields | None = None) -> EngineConfig:
    """The engine that the fields of a record describe, over the one that the caller gave; ``implied``: where neither says its version."""
    changes: dict[str, Any] = {} if build.is_absent(value.get("engine")) else {"engine": value["engine"]}
    for name, target in build.names().settings.items():
        found: Any = value.get(name)
        if build.is_absent(found):
            continue
        if target == "version":
            found = str(found)
        elif target == "dtype" and isinstance(found, str):
            found = found.removeprefix("torch.")
        elif target == "swap_space":  # a number is in GiB, as the flag takes it
            number = isinstance(found, int | float) and not isinstance(found, bool)
            found = found * GIB if number else parse_bytes(found)
        changes[target] = found
    if implied and "version" not in changes and builder.given.engine is None:
        changes |= implied
    return builder.over_given(changes)


# --- the five-stage document --------------------------------------------------------------------------------------------


def is_five_stage(value: Fields) -> bool:
    """Whether it is a cold-start record of the five-stage document."""
    stages, own = value.get("phases"), build.names()
    if "model" not in value and "phases" not in value:
        return False
    return "startup_wall_secs" in value or (
        isinstance(stages, dict)
        and bool(stages.keys() & {*own.record_facts, "graph_capture_secs"} or value.keys() & {"load_format", "device"})
    )


def read_five_stage(value: Fields, source: Source, digest: str) -> Found:
    """The cold-start record of the five-stage document: flags, log figures, wall time. Its swap space is in GiB."""
    builder, own = source.builder, build.names()
    fields = {*own.record["fields"], *own.settings}
    for name in value:
        if name not in fields:
            raise UnknownNameError("field", name, fields)
    stages = {} if build.is_absent(value.get("phases")) else value["phases"]
    if not isinstance(stages, dict):
        raise wrong_type("phases", stages, "a section", "give weights_gb, num_gpu_blocks, graph_capture_secs")
    phases = {f"{name}{unit}": name for name in phase_names() for unit in ("", "_s", "_secs")}
    seconds: dict[str, float] = {}
    facts: dict[str, float] = {}
    for name, figure in ((str(key), figure) for key, figure in stages.items()):
        if name not in phases and name not in own.record_facts:
            raise UnknownNameError("phases", name, [*own.record_facts, *phases])
        if build.is_absent(figure):
            continue
        if name in own.record_facts:
            facts[own.record_facts[name]] = build.as_figure(f"phases.{name}", figure)
        else:
            seconds[phases[name]] = build.as_seconds(f"phases.{name}", figure)
    wall_s, first_s = (
        None if build.is_absent(value.get(name)) else build.as_seconds(name, value[name])
        for name in ("startup_wall_secs", "first_token_secs")
    )
    times = [*seconds.values(), *([] if wall_s is None else [wall_s])]
    implied = {key: word for fact in facts for key, word in own.implied.get(fact, {}).items()}
    engine = _settings(value, builder, implied)
    model, engine = build.packed(builder.part("model", value.get("model")), engine)
    record = {
        "model": model,
        "hardware": _device(value, builder, engine.tp * engine.pp * engine.dp),
        "engine": engine,
        "phases": seconds,
        "wall_s": wall_s,
        "first_token_s": first_s,
        "facts": facts,
        "status": build.look_up("status", str(value.get("status")), own.status),
        "dataset": build.as_text("dataset", value.get("dataset")),
        "host": build.as_text("host", value.get("host")),
        "repetitions": 1 if build.is_absent(value.get("repetitions")) else value["repetitions"],
        # The log prints whole seconds; a wall clock may do better, which no field tells.
        "stamp_resolution_s": 1.0 if times and all(time == int(time) for time in times) else 0.001,
    }
    return build.finish_foreign(record, digest)


def _device(value: Fields, builder: Builder, ranks: int) -> HardwareConfig:
    """The node of a record: its ``hardware``, or what ``device`` says ("8 x H100-SXM-80GB")."""
    device, given = value.get("device"), builder.given.hardware
    if not build.is_absent(value.get("hardware")) or isinstance(device, dict):
        node: HardwareConfig = builder.part(
            "hardware", device if build.is_absent(value.get("hardware")) else value["hardware"]
        )
        return node
    text = build.as_text("device", device)
    named, gpus = builder.preset(text), None
    match = _DEVICES.search(text)
    if named is None and match is not None:
        gpus = int(match.group(1)) or None
        named = builder.preset(match.group(2).strip(" ,，、()（）"))
    if named is None and given is None:
        remedy = f"name it (such as '8 x {preset_names()[0]}') or give hardware="
        raise ConfigError("device", text or MISSING, "names no known accelerator", remedy)
    return builder.node(named, gpus or (max(ranks, given.gpus) if given else ranks), "device")


# --- vllm bench startup -------------------------------------------------------------------------------------------------


def is_bench(value: Fields) -> bool:
    """Whether it is what ``vllm bench startup`` writes."""
    return any(f"avg_{state}_startup_time" in value or f"{state}_startup_times" in value for state in _STATES)


def read_bench(value: Fields, source: Source, digest: str) -> list[Found]:
    """``vllm bench startup``: one record a start, cold or warm; without the list of starts, one of their mean."""
    builder = source.builder
    for name in value:
        if not _BENCH_FIELD.fullmatch(name) and name not in ("model", "hardware", "engine"):
            source.report.note(f"{source.path}: {shown(name)} is not used")
    engine = builder.part("engine", value.get("engine")).replace(offline=True)
    found: list[Found] = []
    for state in _STATES:
        totals = _starts(value, state, "startup")
        compiles, encoders = (_starts(value, state, what) for what in ("compilation", "encoder_compilation"))
        for name, figures in (("compilation", compiles), ("encoder_compilation", encoders)):
            if figures and len(figures) != len(totals):
                problem = f"{len(figures)} figures for {len(totals)} starts"
                raise ConfigError(f"{state}_{name}_times", MISSING, problem, "is the file truncated? give all of them")
        for position, total in enumerate(totals):
            sums = [{"phases": _inside(state), "seconds": total}]
            compiled = compiles[position] if compiles else 0.0
            if compiled > total:
                raise conflict(f"{state}_compilation_times", compiled, f"its start, {total}", "check the units")
            if compiled:
                sums.append({"phases": _inside("compilation"), "seconds": compiled})
            record = {
                "model": builder.part("model", value.get("model")),
                "hardware": builder.part("hardware", value.get("hardware")),
                "engine": engine.replace(compile_cache=state),
                "sums": sums,
                "facts": {"encoder_compilation_s": encoders[position]} if encoders else {},
                "dataset": "vllm bench startup",
                "stamp_resolution_s": _BENCH_RESOLUTION,
            }
            # Equal starts of one file are different starts.
            found.append(Found(build.finish_foreign(record, f"{digest}/{state}/{position}").run, has_own_digest=True))
    return found


def _inside(figure: str) -> list[str]:
    """The phases inside a figure, with those that later releases put between them."""
    order = phase_names()
    first, last = map(order.index, build.names().bench[figure])
    return order[first : last + 1]


def _starts(value: Fields, state: str, what: str) -> list[float]:
    """The figure of each start, else the mean as the only one."""
    name, mean = f"{state}_{what}_times", f"avg_{state}_{what}_time"
    figures = value.get(name)
    if figures is None:
        return [] if value.get(mean) is None else [build.as_seconds(mean, value[mean])]
    if not isinstance(figures, list):
        raise wrong_type(name, figures, "a list of seconds", "give one figure a start")
    return [build.as_seconds(f"{name}[{position}]", figure) for position, figure in enumerate(figures)]


# --- vllm-startup-profiler ----------------------------------------------------------------------------------------------


def _stage_name(name: object) -> str:
    """A stage by its words alone: "Load Weights (s)" -> load_weights."""
    words = re.sub(r"[^a-z0-9]+", "_", str(name)[:200].lower()).strip("_")
    for _ in range(3):
        words = _AFFIXES.sub("", words)
    return words


def _leaves(value: Fields, depth: int = 0) -> dict[str, object]:
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
    """Whether a mapping holds three stages of the profiler that are known."""
    return (
        isinstance(value, dict)
        and len(_leaves(value).keys() & build.by_word(build.names().profiler_stages).keys()) >= 3
    )


def is_profiler(value: Fields) -> bool:
    """Whether it is the averages of vllm-startup-profiler, of one configuration or of several."""
    if "phases" in value:
        return False
    one = any(name in value for name in _NAME_FIELDS) and _is_stages(value)
    return one or (bool(value) and all(map(_is_stages, value.values())))


def read_profiler(value: Fields, source: Source, digest: str) -> Records:
    """``avg_comparison_results.json``: averages by configuration; the configurations stand in ``models_config.json``."""
    configurations = _profiler_models(source)
    own = next((value[name] for name in _NAME_FIELDS if isinstance(value.get(name), str)), None)
    found: list[Found | StartupModelError] = []
    for name, stages in ({own: value} if own is not None else value).items():
        try:
            found.append(_profiled(name, stages, configurations, source, digest))
        except StartupModelError as error:
            found.append(InputFileError(f"{name}: {error}"))
    return found


def _profiler_models(source: Source) -> dict[str, Fields]:
    """Configuration -> its fields, from the file beside the results; empty without one."""
    path = source.path.parent / PROFILER_MODELS

    def read() -> dict[str, Fields]:
        value = build.parse_document(build.whole(path, build.MAX_JSON, lambda _: None), path)
        if isinstance(value, dict):
            value = next(
                (value[key] for key in ("models", "configs") if isinstance(value.get(key), list | dict)), value
            )
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        table: dict[str, Fields] = {}
        for name, item in items:
            entry = {"model": item} if isinstance(item, str) else item
            if isinstance(entry, dict):
                keys = [name] if name is not None else [entry.get(key) for key in _NAME_FIELDS]
                table |= {key: entry for key in keys if isinstance(key, str)}
        return table

    return source.builder.cached(("configurations", path), read) if is_file(path) else {}


def _profiled(name: str, stages: object, configurations: Mapping[str, Fields], source: Source, digest: str) -> Found:
    builder, own = source.builder, build.names().profiler
    if not isinstance(stages, dict):
        raise wrong_type("stages", stages, "an object", "give the seconds of each stage")
    fields, phases, is_cold = configurations.get(name, {}), dict[str, float](), False
    targets = build.by_word(build.names().profiler_stages)
    for stage, figure in _leaves({key: item for key, item in stages.items() if key not in _NAME_FIELDS}).items():
        target = targets.get(stage)
        if target is None and stage not in own["sums"]:
            source.report.note(f"{source.path}: stage {shown(stage)} is not used")
        if target is None or build.is_absent(figure):
            continue
        before = (
            0.0 if target == "wall_s" else phases.get(target, 0.0)
        )  # of several names of the whole, the last counts
        phases[target] = round(before + build.as_seconds(stage, figure), 9)
        is_cold |= stage in own["cold"] and phases[target] > 0
    wall_s = phases.pop("wall_s", None)
    used = {*build.names().settings, "engine"}
    settings = {key.replace("-", "_"): item for key, item in fields.items() if not isinstance(item, dict | list)}
    engine = _settings({key: item for key, item in settings.items() if key in used}, builder)
    if engine.compile_cache == "unknown" and "graph_compile" in phases:
        engine = engine.replace(compile_cache="cold" if is_cold else "warm")
    known_as = (fields[key] for key in ("model", "model_path", "path", "hf_id", "model_id") if key in fields)
    model, engine = build.packed(builder.part("model", next(known_as, name)), engine)
    gpu = next((fields[key] for key in ("gpu", "device") if isinstance(fields.get(key), str)), "")
    record = {
        "model": model,
        "hardware": builder.node(builder.preset(gpu), engine.tp * engine.pp * engine.dp if gpu else None),
        "engine": engine,
        "phases": phases,
        "wall_s": wall_s,
        "dataset": build.as_text("dataset", f"vllm-startup-profiler {source.path.parent.name}".strip()),
    }
    return build.finish_foreign(record, digest)
