"""What is made of logs: records for calibration, diagnosis, comparison, the remaining time, the commands."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import command
import pytest
from log_samples import CPU_STARTS, SAMPLES, CpuStart, cpu_log

from calibration import calibrate, diagnose, parse_log, read_runs
from calibration.logs.diagnosis import compare
from calibration.logs.watch import Outlook, StartupWatch
from calibration.runs.record import RunRecord
from startup_model import EngineConfig, HardwareConfig, ModelConfig, predict
from startup_model.errors import ConfigError, InputFileError

COMMAND = Path(sys.executable).with_name("startup-model")
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
WARM = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"]


def run(*arguments: object, text: str = "") -> command.Done:
    return command.run(*arguments, stdin=text.encode())


def served(text: str) -> str:
    """A sample that serves a model of the catalogue."""
    return re.sub(r"org/[\w-]+", MODEL, text)


# --- records ------------------------------------------------------------------------------------------------------------


def test_a_log_becomes_a_record() -> None:
    record = parse_log(served(WARM.text)).to_run("h100-sxm", page_cache="hot")
    assert record.model.name == MODEL
    assert record.engine.version == "0.9.2"
    assert record.engine.generation == "v1"
    assert record.engine.dtype == "float16"
    assert record.engine.max_model_len == 1536
    assert (record.engine.compile_cache, record.engine.page_cache) == ("warm", "hot")
    assert record.phases["weight_load"] == 1.08
    assert record.phases["graph_compile"] == 3.494
    assert record.facts["kv_cache_tokens"] == 545856
    assert "unattributed" not in record.phases
    assert record.stamp_resolution_s == 1.0
    assert (record.wall_s, record.measured_from, record.ready_s) == (49.0, "first_line", None)
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_the_time_before_the_first_line_makes_a_whole_record() -> None:
    found = parse_log(served(WARM.text))
    record = found.to_run("h100-sxm", process_start_s=3.5)
    assert record.ready_s == 52.5
    assert record.phases["framework_bootstrap"] == found.phases["framework_bootstrap"] + 3.5
    with pytest.raises(ConfigError, match="process_start_s"):
        found.to_run("h100-sxm", process_start_s=-1.0)


def test_a_download_is_no_part_of_a_record() -> None:
    found = parse_log(served(SAMPLES["vllm 0.13, tp 2, cold, download, spliced bar"].text))
    record = found.to_run("h100-sxm")
    assert record.wall_s == pytest.approx(73 - 28.3125)
    assert record.engine.tp == 2
    assert record.hardware.gpus == 2
    assert record.engine.capture_sizes == (1, 2, 4)
    assert record.phases["model_init"] < 2


def test_joint_times_become_sums_and_failures_keep_their_status() -> None:
    v0 = parse_log(served(SAMPLES["vllm 0.6.3, V0, pp 2"].text)).to_run(HardwareConfig.preset("l4", gpus=2))
    sums = {figure.phases: figure.seconds for figure in v0.sums}
    assert sums[("weight_load", "model_init")] == 7
    assert "weight_load" not in v0.phases
    failed = parse_log(served(SAMPLES["vllm 0.19, out of memory in capture"].text)).to_run("l4")
    assert (failed.status, failed.wall_s) == ("oom", None)


def test_what_the_log_does_not_say_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"model = 'org/model-1b'.*model=, --model"):
        parse_log(WARM.text).to_run("h100-sxm")
    assert parse_log(WARM.text).to_run("h100-sxm", model=MODEL).model.name == MODEL
    with pytest.raises(ConfigError, match="the log does not name it"):
        parse_log(SAMPLES["vllm 0.14, pool too small"].text).to_run("h100-sxm")
    with pytest.raises(ConfigError, match="not modelled"):
        parse_log(SAMPLES["tgi 3.3"].text).to_run("h100-sxm", model=MODEL)


def test_one_log_calibrates_a_host_but_for_its_bootstrap(tmp_path: Path) -> None:
    """The record of a log moves the phases that it shows; what lies before its first line stays as the prior has it."""
    record = parse_log(served(WARM.text)).to_run("h100-sxm", page_cache="hot")
    done = calibrate([record], "h100-nvl-epyc-9354")
    assert any("counted from the first line" in str(note) for note in done.report.set_aside)
    made = predict(record.model, record.hardware, record.engine, profile=done.profile)
    before = predict(record.model, record.hardware, record.engine, profile="h100-nvl-epyc-9354")
    assert made.phases["graph_capture"].seconds == pytest.approx(20, rel=0.15)
    assert made.phases["framework_bootstrap"].seconds == pytest.approx(
        before.phases["framework_bootstrap"].seconds, rel=0.2
    )


@pytest.mark.parametrize("left_out", CPU_STARTS, ids=lambda start: f"{start.layers} layers")
def test_logs_of_two_shapes_predict_a_third(left_out: CpuStart, capsys: pytest.CaptureFixture[str]) -> None:
    """A host without an accelerator, known from two logs and from how long its process takes to its first line."""
    node = HardwareConfig.preset("cpu")
    records = {}
    for start in CPU_STARTS:
        model = ModelConfig.from_hf(llama(start.layers, start.hidden))
        found = parse_log(cpu_log(start))
        assert found.wall_s is not None
        head = start.ready - found.wall_s
        records[start] = found.to_run(node, model=model, page_cache="hot", compile_cache="warm", process_start_s=head)
    record = records.pop(left_out)
    profile = calibrate(list(records.values()), name="here").profile
    made = predict(record.model, node, record.engine, profile=profile)
    with capsys.disabled():
        print(
            f"\n{left_out.layers} layers: predicted {made.total_s:.1f} s, measured {left_out.ready} s ({made.total_s / left_out.ready - 1:+.1%})"
        )
    assert made.total_s == pytest.approx(left_out.ready, rel=0.05)
    assert made.interval[0] <= left_out.ready <= made.interval[1]

    watch = StartupWatch(hardware=node, model=record.model, profile=profile, page_cache="hot", compile_cache="warm")
    text, reached = cpu_log(left_out), 0.0
    ready = parse_log(text).facts["wall_first_line_to_ready_s"]
    for line in text.splitlines(keepends=True):
        watch.feed(line, 0.0)
        if watch.elapsed(0.0) > ready / 4:
            reached = watch.elapsed(0.0)
            break
    outlook = watch.outlook(ready / 2 - reached)
    assert outlook.interval is not None
    assert outlook.interval[0] <= ready / 2 <= outlook.interval[1]
    assert outlook.interval[1] < 4 * ready / 2


def llama(layers: int, hidden: int) -> dict[str, object]:
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 64, "vocab_size": 32000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip


# --- diagnosis and comparison -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("vllm 0.14, pool too small", "kv_cache_too_small", "max seq len (16384)"),
        ("vllm 0.10, profiling fails", "profiling_failed", "RuntimeError: expected scalar type"),
        ("vllm 0.19, out of memory in capture", "oom", "CUDA error: out of memory"),
        ("vllm 0.25, model and drafter", "profiling_bound", "629.28 s"),
        (
            "vllm 0.9.2, warm: cached graphs are not in the total",
            "capture_bound",
            "Graph capturing finished in 20 secs",
        ),
        ("vllm 0.13, tp 2, cold, download, spliced bar", "download_bound", ""),
        ("vllm 0.32, CPU, [tag] lines, tp 2", "compile_bound", "saved AOT compiled function"),
        ("sglang 0.5.9, tp 2", "storage_bound", "elapsed=24.36 s"),
    ],
)
def test_the_heaviest_finding_with_its_line(name: str, kind: str, line: str) -> None:
    finding = diagnose(parse_log(SAMPLES[name].text))[0]
    assert finding.kind == kind
    assert finding.remedies
    assert all(remedy.price for remedy in finding.remedies)
    if line:
        assert finding.evidence is not None
        assert line in finding.evidence.text
        assert line in SAMPLES[name].text.splitlines()[finding.evidence.line_number - 1]


def test_a_comparison_isolates_what_a_start_leaves_out() -> None:
    base = parse_log(WARM.text)
    eager_text = re.sub(
        r"INFO 07-01 20:00:(22|26|27|48) \[(backends|monitor|gpu_model_runner.py:2326).*\n", "", WARM.text
    )
    eager_text = (
        eager_text.replace("'max_model_len': 1536", "'max_model_len': 1536, 'enforce_eager': True")
        .replace("20:00:48", "20:00:21")
        .replace("20:00:49", "20:00:22")
    )
    eager_text = eager_text.replace("20:00:28", "20:00:20")
    dummy_text = (
        WARM.text.replace("LoadFormat.AUTO", "LoadFormat.DUMMY")
        .replace("Loading weights took 1.08 seconds", "nothing")
        .replace("07-01 20:00:49", "07-01 20:00:48")
    )
    found = compare(base, [parse_log(eager_text), parse_log(dummy_text)])
    eager, dummy = found.differences
    assert eager.label == "eager"
    assert eager.isolates == ("graph_trace", "graph_compile", "graph_capture")
    assert eager.isolated_by_wall_s == 27
    assert eager.isolated_s == pytest.approx(4.41 + 3.494 + 20)
    assert (dummy.label, dummy.isolates, dummy.isolated_by_wall_s) == ("dummy", ("weight_load",), 1)
    (reverse,) = compare(parse_log(eager_text), [base]).differences
    assert (reverse.label, reverse.isolates, reverse.isolated_by_wall_s, reverse.wall_s) == (
        "not eager",
        eager.isolates,
        27,
        -27,
    )
    (both,) = compare(parse_log(eager_text), [parse_log(dummy_text)]).differences
    assert (both.label, both.isolates) == ("not eager + dummy", ())
    (other,) = compare(base, [parse_log(eager_text.replace("0.9.2", "0.10.2"))]).differences
    assert other.label.startswith("eager + engine_version")
    assert other.isolates == ()
    with pytest.raises(ConfigError, match="compare starts of one model"):
        compare(base, [parse_log(SAMPLES["vllm 0.13, tp 2, cold, download, spliced bar"].text)])
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare(base, [])


# --- watching -----------------------------------------------------------------------------------------------------------


def told(*, slow: float = 1.0, profile: str = "h100-nvl-epyc-9354") -> tuple[StartupWatch, list[tuple[float, str]]]:
    """A watch on a start of a known model, and the lines of a start that takes ``slow`` times the prediction, phase by phase."""
    engine = EngineConfig(version="0.10.1.1", page_cache="hot", compile_cache="warm")
    seconds = {
        phase.value: entry.seconds * slow
        for phase, entry in predict(MODEL, "h100-nvl", engine, profile=profile).phases.items()
    }
    between = sum(seconds.values()) / (
        sum(seconds.values()) - seconds["unattributed"]
    )  # spent here and there, not in one place
    seconds = {name: value * between for name, value in seconds.items() if name != "unattributed"}
    at, lines = 0.0, []
    for phases, line in (
        (("framework_bootstrap",), "Initializing a V1 LLM engine (v0.10.1.1) with config: model='m'"),
        (("worker_spawn",), "Starting to load model m..."),
        (("tokenizer_load", "model_init", "weight_load"), f"Loading weights took {seconds['weight_load']:.2f} seconds"),
        (("graph_trace",), f"Dynamo bytecode transform time: {seconds['graph_trace']:.2f} s"),
        (
            ("graph_compile",),
            f"Directly load the compiled graph(s) for dynamic shape from the cache, took {seconds['graph_compile']:.2f} s",
        ),
        (("memory_profiling",), "Available KV cache memory: 50.00 GiB"),
        (("kv_cache_init",), "GPU KV cache size: 400,000 tokens"),
        (("graph_capture",), f"Graph capturing finished in {seconds['graph_capture']:.0f} secs, took 0.50 GiB"),
        (("api_ready",), "Application startup complete."),
    ):
        at += sum(seconds.get(phase, 0.0) for phase in phases)
        lines.append((at, f"INFO 01-01 00:00:00 [x.py:1] {line}\n"))
    watch = StartupWatch(
        hardware="h100-nvl",
        model=MODEL,
        engine=engine,
        profile=profile,
        page_cache="hot",
        compile_cache="warm",
        began=0.0,
    )
    return watch, lines


def halfway(watch: StartupWatch, lines: list[tuple[float, str]]) -> tuple[Outlook, float]:
    """The outlook at half of the start, and what is truly left then."""
    ready = lines[-1][0]
    for at, line in lines:
        if at > ready / 2:
            break
        watch.feed(line, at)
    return watch.outlook(ready / 2), ready / 2


@pytest.mark.parametrize("slow", [0.5, 0.8, 1.0, 1.2, 2.0])
def test_the_remaining_time_at_half_time(slow: float) -> None:
    watch, lines = told(slow=slow)
    outlook, left = halfway(watch, lines)
    assert outlook.residual_delay_s == pytest.approx(left, rel=0.2, abs=1.0)
    assert outlook.interval is not None
    assert outlook.interval[0] <= left <= outlook.interval[1]
    assert outlook.interval[1] - outlook.interval[0] < 5 * left + 5  # the host is not calibrated


def test_a_start_that_was_slow_so_far_is_expected_to_go_on_so() -> None:
    watch, lines = told(slow=1.2)
    for at, line in lines[:5]:
        watch.feed(line, at)
    outlook = watch.outlook(lines[4][0])
    assert outlook.pace == pytest.approx(1.2, rel=0.08)
    assert outlook.residual_delay_s == pytest.approx(lines[-1][0] - lines[4][0], rel=0.15)


def test_remaining_seconds_never_grow_without_news_and_an_overrun_is_said() -> None:
    watch, lines = told()
    for at, line in lines[:4]:
        watch.feed(line, at)
    start = lines[3][0]
    first = [watch.outlook(start + 0.1 * step).residual_delay_s or 0.0 for step in range(10)]
    assert all(later <= earlier + 0.05 for earlier, later in pairwise(first))
    assert not watch.outlook(start + 1).overrun
    late = watch.outlook(start + 600)
    assert late.overrun
    assert late.residual_delay_s is not None
    assert late.residual_delay_s > 0


def test_ready_and_what_took_how_long() -> None:
    watch, lines = told()
    for at, line in lines:
        watch.feed(line, at)
    outlook = watch.outlook(lines[-1][0] + 100)
    assert (outlook.status, outlook.residual_delay_s) == ("ready", 0.0)
    assert outlook.elapsed_s == pytest.approx(lines[-1][0])
    assert sum(seconds for _, seconds in outlook.finished) == pytest.approx(lines[-1][0])


def test_a_load_from_storage_does_not_slow_the_rest() -> None:
    """Where the page cache's state is unknown, a long load says that it was cold, not that the processor is slow."""
    engine = EngineConfig(version="0.10.1.1", compile_cache="warm")
    watch = StartupWatch(
        hardware="h100-nvl", model=MODEL, engine=engine, profile="h100-nvl-epyc-9354", compile_cache="warm", began=0.0
    )
    seconds = {
        phase.value: entry.seconds
        for phase, entry in predict(MODEL, "h100-nvl", engine.replace(page_cache="cold")).phases.items()
    }
    at = 0.0
    for phases, line in (
        (("framework_bootstrap",), "Initializing a V1 LLM engine (v0.10.1.1) with config: model='m'"),
        (("worker_spawn",), "Starting to load model m..."),
        (("tokenizer_load", "model_init", "weight_load"), "Loading weights took 28.00 seconds"),
    ):
        at += sum(seconds.get(phase, 0.0) for phase in phases)
        watch.feed(f"INFO 01-01 00:00:00 [x.py:1] {line}\n", at)
    outlook = watch.outlook(at)
    assert outlook.pace == pytest.approx(1.0, abs=0.4)
    assert (outlook.residual_delay_s or 0.0) < 25


def test_progress_bars_override_the_expectation() -> None:
    watch, lines = told()
    for at, line in lines[:2]:
        watch.feed(line, at)
    begin = lines[1][0]
    watch.feed("Loading safetensors checkpoint shards:  25% Completed | 10/40 [00:30<01:30,  3.00s/it]\r", begin + 30)
    outlook = watch.outlook(begin + 30)
    assert outlook.phase == "weight_load"
    rest = lines[-1][0] - lines[2][0]  # what follows the load
    assert outlook.residual_delay_s == pytest.approx(90 + rest * outlook.pace, rel=0.05)
    assert watch.outlook(begin + 40).residual_delay_s == pytest.approx(80 + rest * outlook.pace, rel=0.05)


def _reached(text: str) -> float:
    try:
        return parse_log(text).facts.get("wall_first_to_last_line_s", 0.0)
    except InputFileError:
        return 0.0


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, sample in SAMPLES.items()
        if "wall_first_line_to_ready_s" in sample.facts and sample.engine in ("vllm", "sglang")
    ],
)
def test_half_time_of_logs_that_were_never_seen(name: str) -> None:
    """The model and the node are not even those of the log: the interval has to be wide enough to say so."""
    text = served(SAMPLES[name].text).replace("/models/tiny", MODEL)
    ready = parse_log(text).facts["wall_first_line_to_ready_s"]
    watch = StartupWatch(hardware=HardwareConfig.preset("h100-sxm", gpus=8))
    fed = ""
    for line in text.splitlines(keepends=True):
        fed += line
        if fed.strip() and _reached(fed) > ready / 2:
            break
        watch.feed(line, 0.0)
    reached = watch.elapsed(0.0)
    outlook = watch.outlook(ready / 2 - reached)
    assert outlook.interval is not None
    assert outlook.interval[0] <= ready - ready / 2 <= outlook.interval[1]
    if name.startswith("vllm 0.25"):
        assert outlook.overrun  # ten minutes of kernel tuning inside the profile run, which no formula knows of


def test_a_restart_begins_anew() -> None:
    failed, good = served(SAMPLES["vllm 0.19, out of memory in capture"].text), served(WARM.text)
    watch = StartupWatch(hardware="h100-sxm")
    watch.feed(failed, 0.0)
    assert watch.outlook(0.0).status == "oom"
    watch.feed(good.split("INFO 07-01 20:00:28")[0], 1.0)
    outlook = watch.outlook(1.0)
    assert (outlook.status, outlook.start) == ("starting", 1)
    assert outlook.elapsed_s == pytest.approx(27, abs=1)


def test_without_a_node_there_is_no_estimate_but_a_reason() -> None:
    watch = StartupWatch()
    watch.feed(WARM.text.split("INFO 07-01 20:00:28")[0], 0.0)
    assert watch.outlook(0.0).residual_delay_s is None
    assert "give the hardware" in (watch.problem or "")


def test_nothing_that_has_ended_is_expected_again() -> None:
    watch, lines = told()
    for at, line in lines[:-1]:
        watch.feed(line, at)
    outlook = watch.outlook(lines[-2][0] + 1)
    assert outlook.phase == "api_ready"
    assert not {"graph_capture"} & {outlook.phase}
    assert (outlook.residual_delay_s or 0.0) < 3


def test_a_download_is_no_slow_load() -> None:
    text = served(SAMPLES["vllm 0.13, tp 2, cold, download, spliced bar"].text)
    watch = StartupWatch(hardware=HardwareConfig.preset("a100-80gb", gpus=2), page_cache="hot")
    watch.feed(text[: text.index("(Worker_TP0 pid=17) INFO 01-15 22:38:55")], 0.0)
    outlook = watch.outlook(0.0)
    assert dict(outlook.finished)["weight_load"] < 5
    assert outlook.pace < 3


def test_an_engine_that_is_up_is_not_ready() -> None:
    cut = served(WARM.text[: WARM.text.index("INFO:     Application startup complete.")])
    done = run("watch", "-", "--hardware", "h100-sxm", text=cut)
    assert done.status == 1
    assert "the engine is up; the log ended before the server said ready" in done.err


def test_a_profile_knows_its_node(tmp_path: Path) -> None:
    """No --hardware: the profile says what its host has."""
    runs = tmp_path / "runs.jsonl"
    log = log_file(tmp_path, served(WARM.text))
    assert (
        run(
            "parse", log, "--runs", str(runs), "--hardware", "h100-sxm", "--page-cache", "hot", "--process-start", "3"
        ).status
        == 0
    )
    profile = tmp_path / "host.json"
    assert run("calibrate", str(runs), "--out", str(profile)).status == 0
    for name in (str(profile), "h100-nvl-epyc-9354"):
        done = run("watch", "--profile", name, "--", sys.executable, server(tmp_path, served(WARM.text), 0))
        assert "ready in about" in done.err, name


# --- commands -----------------------------------------------------------------------------------------------------------


def log_file(folder: Path, text: str, name: str = "server.log") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_parse_prints_phases_timeline_and_remedies(tmp_path: Path) -> None:
    done = run("parse", log_file(tmp_path, WARM.text))
    assert done.status == 0, done.err
    assert "server.log: vllm 0.9.2 (V1), org/model-1b, float16" in done.out
    assert re.search(r"graph_capture\s*│\s*20\.00", done.out)
    assert "ready after 49.0 s from the first line" in done.out
    assert "capture_bound: graph capture: 41% of the start" in done.out
    assert "--enforce-eager (price:" in done.out


def test_parse_json_csv_and_runs(tmp_path: Path) -> None:
    path = log_file(tmp_path, served(WARM.text))
    (data,) = json.loads(run("parse", path, "--json").out)
    assert data["facts"]["dynamo_s"] == 4.41
    assert data["diagnosis"][0]["kind"] == "capture_bound"
    assert data["source"] == "server.log"
    (row,) = csv.DictReader(io.StringIO(run("parse", path, "--csv").out))
    assert (row["engine_version"], row["phase.graph_trace"], row["fact.num_gpu_blocks"]) == ("0.9.2", "4.41", "34116.0")
    runs = tmp_path / "runs.jsonl"
    done = run(
        "parse", path, "--runs", str(runs), "--hardware", "h100-sxm", "--page-cache", "hot", "--process-start", "3"
    )
    assert "1 of 1 start(s) appended" in done.err
    (record,) = read_runs(runs)
    assert record.ready_s == 52
    assert str(tmp_path) not in runs.read_text()


def test_parse_draws_a_start(tmp_path: Path) -> None:
    picture = tmp_path / "start.svg"
    done = run("parse", log_file(tmp_path, WARM.text), "--plot", picture)
    assert done.status == 0, done.err
    assert "graph_capture" in done.out
    assert picture.read_text().startswith("<?xml")
    assert run("parse", "x.log", "y.log", "--plot", picture).err.startswith(
        "startup-model: logs = 2: contradicts --plot"
    )


def test_parse_many_logs(tmp_path: Path) -> None:
    paths = [log_file(tmp_path, sample.text, f"{index}.log") for index, sample in enumerate(SAMPLES.values())]
    done = run("parse", *paths)
    assert done.status == 0
    assert f"{len(SAMPLES)} starts" in done.out
    bad = run("parse", *paths, log_file(tmp_path, "hello\n", "other.log"))
    assert bad.status == 2
    assert bad.err.count("\n") == 1
    assert f"{len(SAMPLES)} starts" in bad.out


def test_parse_reads_standard_input() -> None:
    done = run("parse", "-", "--json", text=WARM.text)
    assert json.loads(done.out)[0]["status"] == "ok"


def test_parse_against_other_starts(tmp_path: Path) -> None:
    base = log_file(tmp_path, WARM.text)
    eager = log_file(
        tmp_path,
        WARM.text.replace("'max_model_len': 1536", "'max_model_len': 1536, 'enforce_eager': True").replace(
            "20:00:49", "20:00:48"
        ),
        "eager.log",
    )
    done = run("parse", base, "--against", eager)
    assert (
        "eager: graph_trace + graph_compile + graph_capture = 1.00 s by wall time (± 1 s); the log gives 27.90 s for it"
        in done.out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("parse", "missing.log"), "no such file"),
        (("parse", "."), "a folder"),
        (("parse", "x", "--json", "--csv"), "does not go with --json"),
        (("parse", "x", "--against", "y", "--csv"), "does not go with"),
        (("parse", "x", "--page-cache", "hot"), "give --runs FILE"),
        (("parse", "x", "--process-start", "3"), "give --runs FILE"),
        (("watch", "--model", "nosuch/model", "--", "true"), "nosuch/model"),
        (("parse", "x", "--runs", "y"), "--hardware"),
        (("parse", "x", "y", "--against", "z"), "one base"),
        (("watch",), "give the server's command after --"),
        (("watch", "--", "no-such-program-here"), "not found"),
        (("watch", "--exit-when-ready", "--", "true"), "with - only"),
        (("watch", "--hardware", "h1000", "-"), "h1000"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments, text="")
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1


SERVER = """\
import sys, time
for line in {lines!r}:
    sys.stdout.buffer.write(line); sys.stdout.flush(); time.sleep(0.02)
sys.stderr.write("to standard error\\n")
sys.exit({code})
"""


def server(folder: Path, text: str, code: int) -> str:
    path = folder / "server.py"
    path.write_text(SERVER.format(lines=text.encode().splitlines(keepends=True), code=code))
    return str(path)


def test_watch_passes_output_and_exit_status_through(tmp_path: Path) -> None:
    text = served(WARM.text).split("INFO:     127.0.0.1")[0] + "bytes: \udcff\n".encode(
        "utf-8", "surrogateescape"
    ).decode("latin-1")
    done = run("watch", "--hardware", "h100-sxm", "--", sys.executable, server(tmp_path, text, 7))
    assert done.status == 7
    assert done.out == text
    assert "to standard error" in done.err
    assert "after the command was started" in done.err
    assert "ready in about" in done.err


def test_watch_json_is_for_autoscalers(tmp_path: Path) -> None:
    text = served(WARM.text)
    done = run("watch", "--json", "--hardware", "h100-sxm", "--", sys.executable, server(tmp_path, text, 0))
    events = [json.loads(line) for line in done.out.splitlines()]
    assert events[-1]["event"] == "ready"
    assert events[-1]["residual_delay_s"] == 0
    estimates = [event["residual_delay_s"] for event in events if event["status"] == "starting" and event["phase"]]
    assert estimates
    assert all(isinstance(estimate, float) and estimate >= 0 for estimate in estimates)
    assert WARM.text.splitlines()[0] in done.err


def test_watch_reads_a_pipe_and_says_why_a_start_failed() -> None:
    done = run("watch", "-", "--hardware", "h100-sxm", text=served(SAMPLES["vllm 0.14, pool too small"].text))
    assert done.status == 1
    assert "kv_cache_too_small" in done.err
    assert "raise --gpu-memory-utilization" in done.err
    assert run("watch", "-", text=WARM.text).status == 0
    assert run("watch", "-", text="hello\n").status == 2


def test_watch_ends_when_ready_if_asked_to() -> None:
    process = subprocess.Popen(
        [COMMAND, "watch", "-", "--exit-when-ready", "--hardware", "h100-sxm"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(served(WARM.text))
    process.stdin.flush()  # the pipe stays open
    assert process.wait(timeout=60) == 0
    errors = process.stderr.read()
    assert "ready after 49.0 s, by the stamps of the log" in errors
    assert "Fatal" not in errors
    process.stdin.close()
    process.stderr.close()


def test_an_interrupt_ends_reading_a_pipe() -> None:
    process = subprocess.Popen(
        [COMMAND, "watch", "-", "--hardware", "h100-sxm"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(served(WARM.text)[:2000])
    process.stdin.flush()
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "Fatal" not in process.stderr.read()
    process.stdin.close()
    process.stderr.close()


def test_a_server_that_dies_silently(tmp_path: Path) -> None:
    text = served(WARM.text[: WARM.text.index("INFO 07-01 20:00:22")])
    done = run("watch", "--hardware", "h100-sxm", "--", sys.executable, server(tmp_path, text, 1))
    assert done.status == 1
    assert "the command ended with status 1 before its server was ready" in done.err
    assert "out of memory, exit status 137" in done.err
    done = run("watch", "--json", "--", sys.executable, server(tmp_path, text, 1))
    assert json.loads(done.out.splitlines()[-1]) == {"event": "ended", "exit_status": 1}


def test_a_failure_is_said_once_and_for_its_cause(tmp_path: Path) -> None:
    text = served(SAMPLES["vllm 0.19, out of memory in capture"].text)
    for arguments in ([], ["--json"]):
        done = run("watch", *arguments, "--hardware", "l4", "--", sys.executable, server(tmp_path, text, 1))
        told = done.out if arguments else done.err
        assert "crashed" not in told
        assert "oom" in told


def test_the_bar_fits_a_narrow_terminal(tmp_path: Path) -> None:
    """The remaining seconds are the last thing to be cut."""
    script = server(tmp_path, served(WARM.text).split("INFO:     127.0.0.1")[0], 0)
    command = f"stty cols 80; {COMMAND} watch --hardware h100-sxm -- {sys.executable} {script}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == 127:
        pytest.fail("script(1) is not there to make a terminal")
    frames = [frame for frame in re.split(r"\r|\x1b\[2K", done.stdout) if "; ready in" in frame]
    assert frames
    assert all(re.search(r"━.*; ready in \d+ s \(\d+-\d+\)", frame) for frame in frames)
    assert "Application startup complete." in done.stdout


def test_the_overview_loses_nothing_on_a_narrow_terminal(tmp_path: Path) -> None:
    paths = [
        log_file(tmp_path, sample.text, f"a-long-name-of-a-log-{index}.log")
        for index, sample in enumerate(SAMPLES.values())
    ]
    with patch.dict(os.environ, {"COLUMNS": "80"}):
        done = run("parse", *paths)
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert {line[-1:] for line in done.out.splitlines()[1:]} <= set("┓┩┃│┘")


def test_a_log_is_appended_once(tmp_path: Path) -> None:
    log, runs = log_file(tmp_path, served(WARM.text)), str(tmp_path / "runs.jsonl")
    for expected in ("1 of 1", "0 of 1"):
        assert f"{expected} start(s) appended" in run("parse", log, "--runs", runs, "--hardware", "h100-sxm").err
    wrong = run(
        "parse", log_file(tmp_path, cpu_log(CPU_STARTS[0])), "--runs", runs, "--hardware", "h100-sxm", "--model", MODEL
    )
    assert wrong.status == 0  # this log does not say what it ran on
    rocm = (
        "INFO 07-01 20:00:00 [__init__.py:244] Automatically detected platform rocm.\n"
        + served(WARM.text).split("\n", 1)[1]
    )
    wrong = run("parse", log_file(tmp_path, rocm), "--runs", runs, "--hardware", "h100-sxm")
    assert wrong.status == 2
    assert "the log of a start on rocm (the node is cuda)" in wrong.err


def test_watch_forwards_signals(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import signal, sys, time\n"
        "def stop(*_):\n    print('stopped', flush=True); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [COMMAND, "watch", "--", sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (5, "stopped\n")


def test_unknown_models_do_not_stop_a_watch() -> None:
    watch = StartupWatch(hardware="h100-sxm")
    watch.feed(WARM.text, 0.0)
    assert watch.outlook(0.0).status == "ready"
    assert watch.problem is not None
