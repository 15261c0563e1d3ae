"""Readers and writers of run records: every format, told by content, and what becomes of files that are none."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.runs.published import HOSTS, published_runs
from calibration.runs.read import ReadReport, iter_runs, read_runs
from calibration.runs.record import PhaseSum, RunRecord
from calibration.runs.write import append_run, write_runs
from startup_model import EngineConfig, HardwareConfig, ModelConfig, predict
from startup_model.errors import ConfigError, InputFileError, StartupModelError
from startup_model.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

NODE = HardwareConfig.preset("h100-sxm")
MODEL = ModelConfig.from_catalogue("Qwen/Qwen3-8B")
RUN = RunRecord(
    model=MODEL,
    hardware=NODE,
    engine=EngineConfig(version="0.11.0", page_cache="hot"),
    phases={"weight_load": 1.9, "graph_capture": 1.25},
    sums=(PhaseSum(phases=("graph_trace", "graph_compile"), seconds=9.5),),
    wall_s=25.0,
    first_token_s=45.5,
    facts={"weights_gib": 15.27},
    host="a1b2",
)


def save(folder: Path, content: str | bytes, name: str = "runs.dat") -> Path:
    """A file with that content; its name says nothing."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def bare(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Runs without the digest of what they were read from."""
    return [run.replace(source_digest="") for run in runs]


def refusal(path: Path, **options: Any) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(StartupModelError) as caught:
        read_runs(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


# --- JSON lines ---------------------------------------------------------------------------------------------------------


def test_written_runs_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    runs = [RUN, *published_runs()[:20], RUN.replace(status="oom", phases={}, sums=(), wall_s=3.0, first_token_s=None)]
    write_runs(runs, path)
    read = read_runs(path)
    assert bare(read) == runs
    line = path.read_bytes().split(b"\n")[0]
    assert read[0].source_digest == hashlib.sha256(line).hexdigest()
    write_runs(read, path)
    assert read_runs(path) == read  # a digest stays what it was
    assert list(iter_runs(path)) == read


def test_an_array_and_pretty_json_are_read_too(tmp_path: Path) -> None:
    objects = [run.model_dump(mode="json") for run in published_runs()[:3]]
    for text in (json.dumps(objects), json.dumps(objects, indent=2), json.dumps(objects[0], indent=1)):
        read = read_runs(save(tmp_path, "\ufeff" + text))
        assert bare(read) == list(published_runs()[: len(read)])
        assert len(read) in (1, 3)


def test_lines_may_name_their_configurations(tmp_path: Path) -> None:
    line = {"model": "Qwen3-8B", "hardware": "H100 SXM", "engine": "vllm serve x --enforce-eager", "wall_s": 12.5}
    (run,) = read_runs(save(tmp_path, json.dumps(line)))
    assert (run.model.name, run.hardware.gpus, run.engine.enforce_eager, run.wall_s) == ("Qwen/Qwen3-8B", 1, True, 12.5)
    (other,) = read_runs(save(tmp_path, json.dumps({"model": "Qwen/Qwen3-8B", "wall_s": 9.0})), hardware="l40s")
    assert other.hardware == HardwareConfig.preset("l40s")
    assert "hub:" in refusal(save(tmp_path, json.dumps({"model": "hub:a/b", "hardware": "l40s", "wall_s": 9.0})))


# --- other releases -----------------------------------------------------------------------------------------------------

FILES = Path(__file__).parent / "data" / "runs"
EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_old_files_read_as_they_did_and_predict_the_same(name: str) -> None:
    """Files written by earlier releases, and of other tools; never regenerated."""
    given = {"bench_startup.json": {"model": MODEL, "hardware": NODE}, "profiler": {"hardware": NODE}}
    runs = read_runs(FILES / name, **given.get(name, {}))  # type: ignore[arg-type]
    assert len(runs) == len(EXPECTED[name])
    for run, expected in zip(runs, EXPECTED[name], strict=True):
        seconds = predict(run.model, run.hardware, run.engine).total_s
        assert seconds == pytest.approx(expected["predicted_s"], rel=1e-9)
        found = {"model": run.model.name, "gpu": run.hardware.gpu, "gpus": run.hardware.gpus, "phases": run.phases,
                 "sums": [[list(part.phases), part.seconds] for part in run.sums], "wall_s": run.wall_s,
                 "first_token_s": run.first_token_s, "facts": run.facts, "status": run.status}  # fmt: skip
        assert found | {"predicted_s": expected["predicted_s"]} == expected


def test_phases_of_a_newer_release_are_kept_and_written_back(tmp_path: Path) -> None:
    line = GOOD.replace('"weight_load":1.9', '"weight_load":1.9,"kernel_heating":3.25')
    (run,) = read_runs(save(tmp_path, line))
    assert (run.phases, run.unknown_phases) == (RUN.phases, {"kernel_heating": 3.25})
    assert run.unattributed_s == RUN.unattributed_s
    write_runs([run], tmp_path / "again")
    assert json.loads((tmp_path / "again").read_text())["phases"] == run.phases | run.unknown_phases
    assert read_runs(tmp_path / "again") == [run]
    assert run.replace(host="b").unknown_phases == run.unknown_phases
    assert run != RUN.replace(source_digest=run.source_digest)
    with pytest.raises(ConfigError, match="more than wall_s"):
        run.replace(unknown_phases={"kernel_heating": 30.0})
    newer = GOOD[:-1] + ',"power_limit_w":350.0,"surroundings":{"cpu":"EPYC"}}'
    (run,) = read_runs(save(tmp_path, newer.replace('"host_notes":{},', "")))
    assert run.host_notes == {"cpu": "EPYC"}  # what earlier releases call it
    write_runs([run.replace(host="b")], tmp_path / "again")
    assert json.loads((tmp_path / "again").read_text())["power_limit_w"] == 350.0
    part = {"phases": ["kernel_heating", "graph_capture"], "seconds": 9.0}
    assert RunRecord.model_validate(json.loads(GOOD) | {"sums": [part]}).sums[0].phases[0] == "kernel_heating"


SECONDS = st.floats(0, 1e6, allow_nan=False)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@st.composite
def records(draw: st.DrawFn) -> RunRecord:
    """Any record that can be."""
    phases = draw(st.dictionaries(st.sampled_from([phase.value for phase in Phase]), SECONDS, max_size=6))
    return RunRecord(
        model=MODEL.replace(name=draw(NAMES)),
        hardware=NODE.replace(gpus=draw(st.integers(1, 8))),
        engine=EngineConfig(tp=draw(st.integers(1, 8)), environment=draw(st.dictionaries(NAMES, NAMES, max_size=2))),
        phases=phases,
        wall_s=sum(phases.values()) + draw(st.floats(0.1, 100)),
        facts=draw(st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=3)),
        dataset=draw(NAMES),
        host=draw(NAMES),
        repetitions=draw(st.integers(1, 100)),
        source_digest=draw(st.sampled_from(["", "ab" * 32])),
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(records(), max_size=4, unique=True))
def test_whatever_is_written_is_read_back(tmp_path: Path, runs: list[RunRecord]) -> None:
    path = tmp_path / "runs"
    write_runs(runs, path)
    if not runs:
        assert "empty" in refusal(path)
        return
    by_digest = {run.replace(source_digest="") for run in runs}
    read = read_runs(path)
    if len(by_digest) == len(runs):
        assert [b if a.source_digest else b.replace(source_digest="") for a, b in zip(runs, read, strict=True)] == runs


def test_duplicates_are_kept_once_but_equal_figures_of_two_logs_are_two_runs(tmp_path: Path) -> None:
    report = ReadReport()
    path = tmp_path / "runs"
    logs = [RUN.replace(source_digest=digest) for digest in ("a", "b", "a")]
    write_runs([RUN, RUN], path)
    assert len(read_runs(path, report=report)) == 1
    assert (report.runs, report.duplicates, report.skipped) == (1, 1, 0)
    write_runs(logs, path)
    assert [run.source_digest for run in read_runs(path, report=report)] == ["a", "b"]
    write_runs([*logs, RUN], path)
    assert len(read_runs(path)) == 2


# --- bad lines ----------------------------------------------------------------------------------------------------------

GOOD = RUN.model_dump_json()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (GOOD[:-40], ["line 2", "truncated"]),
        (GOOD[:300], ["line 2", "truncated"]),
        ('{"model":' * 5000, ["line 2", "nested too deeply"]),
        ("[1, 2]", ["line 2", "not an object"]),
        ("junk", ["line 2", "not valid JSON"]),
        (GOOD.replace('"weight_load":1.9', '"weight_laod":1.9'), ["line 2", "weight_laod", "weight_load"]),
        (GOOD.replace('"weight_load":1.9', '"weight_load":-1.9'), ["line 2", "-1.9"]),
        (GOOD.replace('"weight_load":1.9', '"weight_load":NaN'), ["line 2", "weight_load"]),
        (GOOD.replace('"weight_load":1.9', '"weight_load":19000'), ["line 2", "milliseconds", "give seconds"]),
        (GOOD.replace('"wall_s":25.0', '"wall_s":25000.0'), ["line 2", "milliseconds"]),
        (GOOD.replace('"wall_s":25.0', '"wall":25.0'), ["line 2", "wall_s"]),
        (GOOD.replace('"hidden_size":4096', '"hidden_size":0'), ["line 2", "hidden_size"]),
        (GOOD.replace('"host":"a1b2"', '"host":"\\ud800"'), ["line 2", "an unpaired surrogate"]),
        (GOOD.replace('"weight_load":1.9', '"weight_load":' + "9" * 5000), ["line 2"]),
        ('{"x": "' + "y" * 10_000_000 + '"}', ["line 2", "bytes"]),
        ("\xff\xfe".encode("latin-1").decode("latin-1"), ["line 2"]),
    ],
)
def test_a_bad_line_is_named_and_can_be_skipped(tmp_path: Path, line: str, words: list[str]) -> None:
    path = save(tmp_path, f"{GOOD}\n{line}\n\n{GOOD.replace('25.0', '26.0')}\n")
    message = refusal(path)
    assert all(word in message for word in [str(path), *words]), message
    report = ReadReport()
    assert [run.wall_s for run in read_runs(path, strict=False, report=report)] == [25.0, 26.0]
    assert (report.skipped, report.problems) == (1, [message])
    with pytest.warns(UserWarning, match="1 skipped"):
        read_runs(path, strict=False)


def test_junk_is_only_counted(tmp_path: Path) -> None:
    """Different names that nothing knows are not looked up for ever."""
    report = ReadReport()
    assert len(read_runs(save(tmp_path, GOOD + "\n" + "junk\n" * 20_000), strict=False, report=report)) == 1
    assert (report.skipped, len(report.problems)) == (20_000, 100)
    names = "\n".join(json.dumps({"model": f"q{i}x", "hardware": "l40s", "wall_s": 9.0}) for i in range(2_000))
    with pytest.warns(UserWarning, match="2000 skipped"):
        assert read_runs(save(tmp_path, names), strict=False) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "not a text file"),
        ("model,wall_s\n".encode("utf-16"), "UTF-16"),
        (b"hello world\n", "none of the known formats"),
        (b'{"a": 1}', "none of the known kinds"),
        (b"{\n", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[[1]]", "must be an object"),
        (b"3", "none of the known formats"),
    ],
)
def test_what_is_no_run_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    message = refusal(save(tmp_path, content))
    assert words in message
    assert "runs.dat" in message


@pytest.mark.parametrize("depth", [100, 400, 700, *range(940, 1000, 6)])
@pytest.mark.parametrize("field", ["model", "hardware", "engine", "phases", "device"])
def test_nesting_that_is_just_parsed_is_refused(tmp_path: Path, depth: int, field: str) -> None:
    deep = '{"x":' * depth + "1" + "}" * depth
    wall = "startup_wall_secs" if field == "device" else "wall_s"
    text = json.dumps({"model": "Qwen3-8B", wall: 9.0}).replace(f'"{wall}"', f'"{field}": {deep}, "{wall}"')
    assert "runs.dat" in refusal(save(tmp_path, text))


def test_no_file_a_pipe_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert "no run files" in refusal(tmp_path / "folder")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=300),
        st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.builds(
            lambda text, at, junk: text[:at] + junk + text[at:],
            st.sampled_from([GOOD.encode()[:900], b"model: Qwen3-8B\nphases: {weights_gb: 3}\nstartup_wall_secs: 3\ndevice: l40s\n",
                             b"model,gpu,wall_s,weight_load\nQwen3-8B,l40s,9,1\n", b'{"cold_startup_times": [3.0, 4.0]}']),
            st.integers(0, 900),
            st.binary(max_size=20),
        ),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["model", "phases", "wall_s", "startup_wall_secs", "device", "hardware", "engine", "status",
                                 "cold_startup_times", "avg_warm_startup_time", "dynamo", "load_weights", "worker_init", "sums"]),
                inner, max_size=5),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    )
)  # fmt: skip
def test_any_bytes_give_runs_or_one_line(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path, content)
    for options in ({}, {"model": MODEL, "hardware": NODE, "strict": False, "report": ReadReport()}):
        try:
            runs = read_runs(path, **options)  # type: ignore[arg-type]
        except StartupModelError:  # always one line: the class sees to it
            continue
        assert all(isinstance(run, RunRecord) for run in runs)


# --- the record of the five-stage document ------------------------------------------------------------------------------

YAML = """\
# 一条冷启动记录
model: /data/models/Qwen/Qwen1.5-14B   # 模型标识
dtype: bfloat16
quantization: None
tensor_parallel_size: 8
gpu_memory_utilization: 0.90
load_format: auto
max_model_len:
max_num_batched_tokens: 32768
max_num_seqs: 256
block_size: 16
swap_space: 4
enforce_eager: false
max_seq_len_to_capture: 8192
num_gpu_blocks_override:
phases:
    weights_gb: 3.4
    num_gpu_blocks: 27000
    num_cpu_blocks: 13107
    graph_capture_secs: 23
startup_wall_secs: 181
device: 8 x A100-SXM-80GB
status: 正常
---
- {model: Qwen/Qwen1.5-7B, load_format: dummy, phases: {weights_gb: 14.4}, startup_wall_secs: 31.5, device: 1 卡 L40S, status: 池子不足}
- {model: Qwen/Qwen1.5-7B, enforce_eager: yes, phases: {weights_gb: 14.4, weight_load: 9.5}, device: {preset: l40s, gpus: 2}, status: profiling failed}
"""


def test_cold_start_records_in_yaml(tmp_path: Path) -> None:
    first, second, third = read_runs(save(tmp_path, YAML))
    assert first.model.name == "Qwen/Qwen1.5-14B"
    assert (first.hardware.gpu, first.hardware.gpus) == (HardwareConfig.preset("a100-80gb").gpu, 8)
    assert first.phases == {"graph_capture": 23.0}
    assert first.facts == {"weights_gib": 3.4, "num_gpu_blocks": 27000.0, "num_cpu_blocks": 13107.0}
    assert (first.wall_s, first.status, first.stamp_resolution_s) == (181.0, "ok", 1.0)
    engine = first.engine
    assert (engine.tp, engine.swap_space, engine.generation, engine.quantization) == (8, 4 * 2**30, "v0", None)
    assert (engine.max_model_len, engine.max_num_batched_tokens, engine.enforce_eager) == (None, 32768, False)
    assert (second.engine.load_format, second.status, second.hardware.gpus) == ("dummy", "kv_cache_too_small", 1)
    assert (third.phases, third.status, third.hardware.gpus) == ({"weight_load": 9.5}, "profiling_failed", 2)
    assert third.engine.enforce_eager
    assert first.source_digest == hashlib.sha256(YAML.encode()).hexdigest()


def test_a_device_without_a_name_takes_the_node_that_is_given(tmp_path: Path) -> None:
    text = "model: Qwen/Qwen1.5-7B\nphases:\n  weights_gb: 14.4\nstartup_wall_secs: 31\ndevice: 8 卡，单卡 64GB\n"
    path = save(tmp_path, text)
    assert "hardware=" in refusal(path)
    (run,) = read_runs(path, hardware=HardwareConfig.preset("ascend-910b"))
    assert (run.hardware.gpus, run.hardware.platform) == (8, "npu")
    assert "another accelerator" in refusal(
        save(tmp_path, text.replace("8 卡，单卡 64GB", "8 x L40S")), hardware="h100"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("startup_wall_secs: 181", "startup_wall_secs: 181000", ["milliseconds"]),
        ("startup_wall_secs: 181", "startup_wall_secs: .nan", ["startup_wall_secs", "nan"]),
        ("startup_wall_secs: 181", "startup_wall_secs: -1", ["startup_wall_secs", "-1"]),
        ("startup_wall_secs: 181", "startup_wall_sec: 181", ["did you mean 'startup_wall_secs'"]),
        ("graph_capture_secs", "graph_capture_sec", ["did you mean 'graph_capture_secs'"]),
        ("status: 正常", "status: 好", ["status", "好"]),
        ("load_format: auto", "load_format: safetensor", ["load_format", "safetensors"]),
        ("model: /data/models/Qwen/Qwen1.5-14B", "model: Qwen/Qwen1.5-14", ["record 1", "model", "Qwen1.5-14B"]),
        ("dtype: bfloat16", "dtype: &x bfloat16\nseed: *x", ["line 4", "alias"]),
        ("dtype: bfloat16", "dtype: !!python/object:os.system {}", ["line 3", "tag"]),
        ("dtype: bfloat16", "dtype: 2001-99-99", ["not valid YAML"]),
        ("dtype: bfloat16", "dtype: " + "[" * 60 + "]" * 60, ["nested too deeply"]),
        ("dtype: bfloat16", "dtype: [bfloat16", ["not valid YAML"]),
        ("status: 正常\n", "status: 正常\n" + "x" * 3_000_000, ["bytes"]),
    ],
)
def test_bad_yaml_is_one_line(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    message = refusal(save(tmp_path, YAML.replace(old, new, 1)))
    assert all(word in message for word in ["runs.dat", *words]), message


def test_the_same_record_in_json(tmp_path: Path) -> None:
    import yaml

    values = next(iter(yaml.safe_load_all(YAML)))
    assert bare(read_runs(save(tmp_path, json.dumps(values, indent=2)))) == bare(read_runs(save(tmp_path, YAML)))[:1]
    assert bare(read_runs(save(tmp_path, json.dumps(values) + "\n"))) == bare(read_runs(save(tmp_path, YAML)))[:1]


# --- tables -------------------------------------------------------------------------------------------------------------

HEADER = (
    "dataset,host,gpu,cpu,engine,engine_version,model,quantization,load_format,tensor_parallel,page_cache,compile_cache,"
    "max_capture_size,n_capture_sizes,runs_averaged,stage_resolution_s,detect_platform_s,imports_s,model_info_s,worker_init_s,"
    "framework_bootstrap_s,load_weights_s,model_init_s,dynamo_s,inductor_compile_s,compiled_graph_load_s,memory_profiling_s,"
    "graph_capture_s,tokenizer_s,sum_of_phases_s,wall_s,source"
)
# Rows of the published measurements (arXiv 2606.07362).
HOT = "h100nvl_hot,node7,H100-NVL-94GB,AMD EPYC 9354,vllm,0.10.1.1,falcon-7b,none,safetensors,1,hot,warm,512,67,5,0.001,0.034,1.4772,5.399,1.753,8.6632,1.722,0.12,4.772,,4.2792,2.4448,1.172,0.12,23.2932,25.0454,a"
MIXED = "u,node7,H100-NVL-94GB,AMD EPYC 9354,vllm,0.10.1.1,gpt-oss-20b,mxfp4,safetensors,1,mixed,disabled,512,67,5,0.001,0.034,1.3772,5.0,1.5,7.9112,4.722,0.12,4.772,30.2,,2.4448,1.172,0.12,51.2,52.5,b"
OLD = "v,node7,H100-NVL-94GB,AMD EPYC 9354,vllm,0.8.0,opt-6.7b,none,safetensors,1,hot,warm,512,67,5,1,0.0,,,,0.0,2.522,,2.86,9.45,0.0,,15.6,,30.432,39.59,c"
OLDEST = "v,node7,H100-NVL-94GB,AMD EPYC 9354,vllm,0.3.1,opt-6.7b,none,safetensors,1,hot,warm,512,67,5,1,,,,,0.0,,,,,,,2.0,,2.0,10.0,d"
SWEEP = "s,node7,H100-NVL-94GB,AMD EPYC 9354,vllm,0.10.1.1,llama2-7b-hf,awq,safetensors,2,cold,torch_compile_off,136,20,5,0.001,,,,,7.9,1.8,,,,,0.7,0.7,,,22.4,e"
TABLE = "\n".join([HEADER, HOT, MIXED, OLD, OLDEST, SWEEP]) + "\n"


def test_the_layout_of_the_published_measurements(tmp_path: Path) -> None:
    hot, mixed, old, oldest, sweep = read_runs(save(tmp_path, TABLE))
    published = published_runs()[0]
    assert hot.replace(source_digest="", host="", hardware=published.hardware) == published.replace(facts={})
    assert (hot.host, hot.hardware.cpu.model) == ("node7", "AMD EPYC 9354")
    assert (mixed.model.name, mixed.engine.quantization) == ("openai/gpt-oss-20b", None)
    assert (mixed.engine.page_cache, mixed.engine.compile_cache) == ("unknown", "cold")
    assert mixed.phases["graph_compile"] == 30.2
    assert old.phases == {"weight_load": 2.522, "graph_trace": 2.86, "graph_compile": 9.45, "graph_capture": 15.6}
    assert (old.engine.compile_cache, old.stamp_resolution_s) == ("cold", 1.0)
    assert (oldest.phases, oldest.wall_s, oldest.engine.capture_sizes) == ({"graph_capture": 2.0}, 10.0, None)
    assert sweep.engine.capture_sizes is not None
    assert (len(sweep.engine.capture_sizes), sweep.engine.torch_compile, sweep.hardware.gpus) == (20, False, 2)
    assert sweep.model.quantization is not None
    assert sweep.sums == (PhaseSum(phases=("framework_bootstrap", "worker_spawn"), seconds=7.9),)


def test_our_own_table_is_read_as_it_stands(tmp_path: Path) -> None:
    from importlib.resources import files

    text = files("calibration").joinpath("data/published_runs.csv").read_text(encoding="utf-8")
    runs = read_runs(save(tmp_path, text))
    # Two data sets are labelled hot there, which their load times contradict.
    as_labelled = [
        run.replace(facts={}, engine=run.engine.replace(page_cache="hot"))
        if run.dataset in ("h100nvl_no_torch_compile", "h100nvl_quantization")
        else run.replace(facts={})
        for run in published_runs()
    ]
    assert bare(runs) == as_labelled


def test_a_table_of_other_hosts_says_which(tmp_path: Path) -> None:
    text = (
        "model,engine_version,gpu,gpus,tensor_parallel,page_cache,kv_cache_init,first_token_s,wall_s,num_gpu_blocks\n"
        "Qwen/Qwen3-8B,0.11.0,h100-sxm,2,,hot,0.5,45.5,25,27000\n"
    )
    (read,) = read_runs(save(tmp_path, text))
    assert (read.hardware.gpu, read.hardware.gpus, read.phases) == (NODE.gpu, 2, {"kv_cache_init": 0.5})
    assert (read.model, read.engine.version, read.wall_s, read.first_token_s) == (MODEL, "0.11.0", 25.0, 45.5)
    assert read.facts == {"num_gpu_blocks": 27000.0}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_delimiters_line_ends_and_quotes(tmp_path: Path, delimiter: str, ending: str) -> None:
    rows = [line.split(",") for line in (HEADER, HOT)]
    rows[1][0] = 'hot, quiet; "x"'
    quoted = [delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    (run,) = read_runs(save(tmp_path, "\ufeff" + ending.join(quoted)))
    assert (run.dataset, run.wall_s) == ('hot, quiet; "x"', 25.0454)


def test_models_of_files_and_columns_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000, "torch_dtype": "float16"}  # fmt: skip
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config))
    text = "wall_s,model,gpu\n5.5,mine,l40s\n6.5,./mine/config.json,l40s\n7 s,Qwen3-8B,NVIDIA L40S\n"
    first, second, third = read_runs(save(tmp_path, text))
    assert first.model == second.model
    assert (first.model.num_hidden_layers, third.wall_s) == (2, 7.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (HOT, HOT.replace("25.0454", "25045.4"), ["row 2", "milliseconds", "give seconds"]),
        (HOT, HOT.replace("25.0454", "nan"), ["row 2", "wall_s", "nan"]),
        (HOT, HOT.replace("25.0454", "-3"), ["row 2", "wall_s", "-3"]),
        (HOT, HOT.replace("1.722", "soon"), ["row 2", "load_weights_s", "soon"]),
        (HOT, HOT.replace("1.722", '"1,722"'), ["row 2", "load_weights_s", "comma"]),
        (HOT, HOT.replace("1.722", "99.5"), ["row 2", "more than wall_s"]),
        (HOT, HOT.replace("falcon-7b", "falcon-7"), ["row 2", "model", "falcon-7b"]),
        (HOT, HOT.replace("H100-NVL-94GB", "H100-NVL-49GB"), ["row 2", "gpu", "h100-nvl"]),
        (HOT, HOT.replace("512,67", "512,66"), ["row 2", "captures"]),
        (HOT, HOT.replace("hot,warm", "hot,wram"), ["row 2", "compile_cache", "warm"]),
        (HOT, HOT[:120], ["row 2", "cells", "cut off"]),
        (HOT, HOT + ",1", ["row 2", "33 cells for 32"]),
        (HOT, HOT.replace("falcon-7b", '"falcon-7b'), ["quote"]),
        (HEADER, HEADER.replace("source", "num_gpu_blocks"), ["row 2", "num_gpu_blocks", "'a'"]),
        (HEADER, HEADER.replace("wall_s", "wal_s"), ["line 1", "did you mean 'wall_s'"]),
        (HEADER, HEADER.replace(",source", ",dynamo_ms"), ["line 1", "did you mean 'dynamo_s'"]),
        (HEADER, HEADER.replace("dataset", "wall_s"), ["line 1", "wall_s"]),
        (HEADER, HEADER.replace(",model,", ",,"), ["line 1", "no column 'model'"]),
        (HEADER, HEADER.replace(",host,gpu", ",,"), ["line 1", "no column 'gpu'"]),
        ("5.399", "\ufffd", ["row 2", "model_info_s"]),
    ],
)
def test_bad_tables_are_one_line(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    message = refusal(save(tmp_path, TABLE.replace(old, new, 1)))
    assert all(word in message for word in ["runs.dat", *words]), message


def test_milliseconds_all_over_a_row_are_recognised(tmp_path: Path) -> None:
    cells = HOT.split(",")
    text = "\n".join(
        [HEADER, ",".join(cells[:16] + [str(float(c) * 1000) if c else c for c in cells[16:-1]] + cells[-1:])]
    )
    assert "milliseconds" in refusal(save(tmp_path, text))
    assert "milliseconds" in refusal(save(tmp_path, "model,gpu,wall_s\nQwen3-8B,h100,31000\n"))


def test_bad_rows_and_unknown_columns_can_be_skipped(tmp_path: Path) -> None:
    rows = [HEADER + ",remark", HOT + ",x", HOT[:50], SWEEP.replace("22.4", "-1") + ",y", "", OLD + ",z"]
    report = ReadReport()
    content = "\n".join(rows).encode() + b"\n" + HOT.encode() + b",\xff\xfe\n"
    runs = read_runs(save(tmp_path, content), strict=False, report=report)
    assert [run.wall_s for run in runs] == [25.0454, 39.59]
    assert [problem.split(":")[0].rsplit(" ", 1)[1] for problem in report.problems] == ["3", "4", "7"]
    assert "remark" in report.notes[0]


# --- other tools --------------------------------------------------------------------------------------------------------

BENCH = {
    "avg_cold_startup_time": 41.0,
    "cold_startup_times": [42.0, 40.0],
    "cold_startup_percentiles": {"10": 40.2, "50": 41.0},
    "avg_cold_compilation_time": 15.0,
    "cold_compilation_times": [15.5, 14.5],
    "cold_compilation_percentiles": {"10": 14.6},
    "avg_warm_startup_time": 21.0,
    "warm_startup_times": [21.0, 21.0, 21.0],
    "warm_startup_percentiles": {"10": 21.0},
    "avg_warm_compilation_time": 5.0,
    "warm_compilation_times": [5.0, 5.0, 5.0],
    "warm_compilation_percentiles": {"10": 5.0},
}


def test_vllm_bench_startup(tmp_path: Path) -> None:
    path = save(tmp_path, json.dumps(BENCH, indent=4))
    assert "model=" in refusal(path)
    assert "hardware=" in refusal(path, model="Qwen/Qwen3-8B")
    runs = read_runs(path, model="Qwen/Qwen3-8B", hardware="h100", engine="vllm serve Qwen/Qwen3-8B -tp 1")
    assert [run.engine.compile_cache for run in runs] == ["cold"] * 2 + ["warm"] * 3
    assert all(run.engine.offline and run.wall_s is None and not run.phases for run in runs)
    assert [part.seconds for part in runs[0].sums] == [42.0, 15.5]
    assert runs[0].sums[1].phases == ("graph_trace", "graph_compile")
    assert "framework_bootstrap" in runs[0].sums[0].phases
    assert "framework_bootstrap" not in runs[2].sums[0].phases
    means = {key: value for key, value in BENCH.items() if key.startswith("avg")}
    assert [
        run.sums[0].seconds for run in read_runs(save(tmp_path, json.dumps(means)), model=MODEL, hardware=NODE)
    ] == [41.0, 21.0]
    torn = BENCH | {"cold_compilation_times": [15.5]}
    assert "2 starts" in refusal(save(tmp_path, json.dumps(torn)), model=MODEL, hardware=NODE)
    milliseconds = BENCH | {"cold_startup_times": [42000.0, 40000.0]}
    assert "milliseconds" in refusal(save(tmp_path, json.dumps(milliseconds)), model=MODEL, hardware=NODE)


PROFILED = {
    "yi-6b": {
        "detect_platform": 0.034,
        "imports": 1.4772,
        "model_info": 5.399,
        "worker_init": 1.753,
        "Framework Bootstrap (s)": 8.6632,
        "load_weights_time": {"mean": 1.722, "std": 0.01},
        "model_init": 0.12,
        "torch_compile": {"dynamo": 4.772, "compiled_graph_load": 4.2792},
        "kv_cache_profiling": 2.4448,
        "graph_capture": 1.172,
        "tokenizer": 0.12,
        "total_time": 25.0454,
    },
    "mistral-awq": {"load_weights": 0.6, "dynamo": 5.9, "inductor_compile": 21.0, "graph_capture": 2.2, "total": 43.0},
}
CONFIGURATIONS = {
    "yi-6b": {"model": "01-ai/Yi-6B", "load_format": "safetensors", "max_num_seqs": 256},
    "mistral-awq": {
        "model": "/models/Mistral-7B-v0.1",
        "quantization": "awq",
        "tensor_parallel_size": 1,
        "iterations": 5,
    },
}


def test_results_of_vllm_startup_profiler(tmp_path: Path) -> None:
    save(tmp_path, json.dumps(CONFIGURATIONS), "models_config.json")
    save(tmp_path, json.dumps(PROFILED, indent=2), "avg_comparison_results.json")
    save(tmp_path, "notes of a person", "README.md")
    report = ReadReport()
    first, second = read_runs(tmp_path, hardware=NODE, report=report)
    assert first.phases == {
        "framework_bootstrap": 6.9102,
        "worker_spawn": 1.753,
        "weight_load": 1.722,
        "model_init": 0.12,
        "graph_trace": 4.772,
        "graph_compile": 4.2792,
        "memory_profiling": 2.4448,
        "graph_capture": 1.172,
        "tokenizer_load": 0.12,
    }
    assert (first.wall_s, first.engine.compile_cache, first.engine.load_format) == (25.0454, "warm", "safetensors")
    assert (second.model.quantization is not None, second.engine.compile_cache) == (True, "cold")
    assert "README.md" in report.notes[0]
    (tmp_path / "models_config.json").write_text(
        json.dumps([{"name": key, **value} for key, value in CONFIGURATIONS.items()])
    )
    assert bare(read_runs(tmp_path, hardware=NODE)) == bare([first, second])


def test_a_folder_is_read_one_level_deep(tmp_path: Path) -> None:
    for depth, name in enumerate(("", "a", "a/b")):
        (tmp_path / name).mkdir(exist_ok=True)
        write_runs([RUN.replace(wall_s=30.0 + depth)], tmp_path / name / "runs")
    save(tmp_path, YAML, "z.txt")
    save(tmp_path, HEADER + "\n" + HOT, ".hidden")
    assert [run.wall_s for run in read_runs(tmp_path)] == [31.0, 30.0, 181.0, 31.5, None]


# --- writing ------------------------------------------------------------------------------------------------------------


def test_appended_runs_are_read_back_and_a_torn_line_is_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    append_run(RUN, path)
    append_run(RUN.replace(wall_s=26.0), path)
    with path.open("ab") as file:
        file.write(GOOD.encode()[:200])
    with pytest.warns(UserWarning, match="half written"):
        append_run(RUN.replace(wall_s=27.0), path)
    assert [run.wall_s for run in read_runs(path)] == [25.0, 26.0, 27.0]
    assert (tmp_path / "runs.torn").read_bytes() == GOOD.encode()[:200] + b"\n"
    path.write_text(GOOD)  # whole, only the line break is missing
    append_run(RUN.replace(wall_s=28.0), path)
    assert [run.wall_s for run in read_runs(path)] == [25.0, 28.0]


def test_nothing_is_appended_to_what_holds_no_runs(tmp_path: Path) -> None:
    path = save(tmp_path, TABLE)
    for content in (TABLE, json.dumps(BENCH, indent=2), YAML):
        path.write_text(content)
        with pytest.raises(InputFileError, match="no JSON lines"):
            append_run(RUN, path)
        assert path.read_text() == content
    with pytest.raises(InputFileError, match="cannot be written"):
        append_run(RUN, tmp_path / "no" / "folder")
    with pytest.raises(InputFileError, match="cannot be written"):
        append_run(RUN, tmp_path)
    with pytest.raises(InputFileError, match="cannot be written"):
        write_runs([RUN], tmp_path / "no" / "folder")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    write_runs([RUN], path)
    before = path.read_bytes()

    def broken() -> Iterable[RunRecord]:
        yield RUN
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_runs(broken(), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["runs"]


def test_a_killed_writer_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    code = "import sys; from calibration.runs.write import append_run; from calibration.runs.published import published_runs\nwhile True:\n for run in published_runs(): append_run(run, sys.argv[1])"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    deadline = time.monotonic() + 60
    while (not path.exists() or path.stat().st_size < 60_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    append_run(RUN, path)
    report = ReadReport()
    runs = read_runs(path, report=report)
    assert bare(runs[-1:]) == [RUN]
    assert report.runs + report.duplicates == path.read_bytes().count(b"\n")


def test_a_bar_is_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs"
    write_runs([RUN], path)
    read_runs(path)
    assert capsys.readouterr().err == ""
    assert len(read_runs(path, progress=True)) == 1


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hardware"):
        read_runs(save(tmp_path, TABLE), hardware="h1000")
    assert all(host.hardware.gpu for host in HOSTS.values())
