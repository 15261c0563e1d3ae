"""Start-up logs: every sample gives the values that a careful reader takes from it, however it is wrapped, cut or fed."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import SAMPLES, Sample

from calibration import StartupLogParser, parse_log, parse_starts
from calibration.logs.lines import template
from calibration.logs.parsed import LoggedStart
from startup_model import HardwareConfig
from startup_model.engines.logtable import common_table, log_tables
from startup_model.errors import ConfigError, InputFileError
from startup_model.phases import Phase

SECRETS = ("sk-verysecretverysecret", "secret-key-value", "hunter2hunter2", "hf_abcdefghijklmnopqrstuvwxyz")


def one_line_only(error: Exception) -> None:
    assert "\n" not in str(error)


def check(found: LoggedStart, sample: Sample) -> None:
    assert found.engine == sample.engine
    assert found.status == sample.status
    for name, value in sample.facts.items():
        assert found.facts.get(name) == pytest.approx(value, abs=1e-6), name
    for name, value in sample.phases.items():
        assert found.phases.get(name) == pytest.approx(value, abs=1e-6), name
    for name, value in sample.other.items():
        assert getattr(found, name) == value, name
    assert not [name for name in sample.absent if name in found.facts]


@pytest.mark.parametrize("name", SAMPLES)
def test_values_of_a_careful_reader(name: str) -> None:
    found = parse_log(SAMPLES[name].text)
    check(found, SAMPLES[name])
    assert list(found.phases) == [phase.value for phase in Phase if phase.value in found.phases]
    assert all(seconds >= 0 for seconds in found.phases.values())
    if found.wall_s is not None and found.first_line == 1:
        assert sum(found.phases.values()) <= found.wall_s + len(found.phases) + 1
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("name", SAMPLES)
def test_secrets_are_nowhere(name: str) -> None:
    found = parse_log(SAMPLES[name].text)
    text = json.dumps(found.to_dict()) + repr(found)
    assert not [secret for secret in SECRETS if secret in text]


# --- wrappings ----------------------------------------------------------------------------------------------------------


def _json_lines(text: str) -> str:
    return "\n".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-03-02T10:00:00.123456789Z"})
        for line in text.splitlines()
    )


def _each(prefix: str) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix + line for line in text.splitlines()) + "\n"


WRAPPINGS: dict[str, Callable[[str], str | bytes]] = {
    "windows line ends": lambda text: text.replace("\n", "\r\n"),
    "colours": lambda text: re.sub(
        r"(?m)^(\(\w+ pid=\d+\))", "\x1b[0;36m\\1\x1b[0;0m", text.replace("INFO ", "\x1b[32mINFO\x1b[0m ")
    ),
    "compose": _each("vllm-1  | "),
    "kubectl --timestamps": _each("2026-03-02T10:00:00.123456789Z "),
    "kubectl --prefix": _each("[pod/llm-0/server] "),
    "CRI": _each("2026-03-02T10:00:00.123456789+00:00 stderr F "),
    "journald": _each("Mar 02 10:00:01 host-1 vllm[2827]: "),
    "journald short-iso": _each("2026-03-02T10:00:01+0100 host-1 vllm[2827]: "),
    "syslog": _each("<30>Mar  2 10:00:01 host-1 vllm[2827]: "),
    "syslog 5424": _each("<30>1 2026-03-02T10:00:01.000Z host-1 vllm 2827 - - "),
    "shell comments": _each("# "),
    "docker json": _json_lines,
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "broken UTF-8": lambda text: text.encode().replace(b"Started server", b"\xff\xfeStarted server"),
    "noise between": lambda text: text.replace("\n", "\nsome other program speaks\n"),
    "no last line end": lambda text: text.rstrip("\n"),
}
PLAIN = [name for name in SAMPLES if not name.startswith(("three", "llama", "tensorrt"))]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", PLAIN)
def test_wrapped_logs_say_the_same(name: str, wrapping: str) -> None:
    sample = SAMPLES[name]
    found = parse_log(WRAPPINGS[wrapping](sample.text))
    check(found, sample)


def test_a_rotated_log_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    sample = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"]
    path.write_bytes(gzip.compress(sample.text.encode()))
    check(parse_log(path), sample)
    check(parse_log(str(path)), sample)


def test_lines_bytes_and_files_are_read(tmp_path: Path) -> None:
    sample = SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"]
    path = tmp_path / "server.log"
    path.write_text(sample.text, encoding="utf-8")
    check(parse_log(path), sample)
    check(parse_log(sample.text.encode()), sample)
    check(parse_log(sample.text.splitlines()), sample)
    check(parse_log(line.encode() for line in sample.text.splitlines(keepends=True)), sample)
    with path.open("rb") as file:
        check(parse_log(file), sample)
    with path.open(encoding="utf-8") as file:
        check(parse_log(file), sample)
    assert (
        parse_log(
            "INFO 07-01 20:00:48 [gpu_model_runner.py:2326] Graph capturing finished in 20 secs, took 0.47 GiB"
        ).facts["graph_capture_s"]
        == 20
    )


def test_json_formatter_of_the_engine() -> None:
    sample = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"]
    lines = []
    for line in sample.text.splitlines():
        match = re.match(r"(INFO|ERROR) 07-01 (\S+) \[\S+\] (.*)", line)
        if match:
            level, time, message = match.groups()
            lines.append(
                json.dumps({"asctime": f"2026-07-01 {time}", "levelname": level, "name": "vllm", "message": message})
            )
        else:
            lines.append(
                json.dumps(
                    {"asctime": "2026-07-01 20:00:49", "levelname": "INFO", "message": line.removeprefix("INFO:     ")}
                )
            )
    found = parse_log("\n".join(lines))
    facts = {name: value for name, value in sample.facts.items() if not name.startswith("wall_first_to_last")}
    check(found, sample._replace(facts=facts))
    assert any("container runtime or journal" in warning for warning in found.warnings)


def test_tgi_json_output_in_its_two_shapes() -> None:
    lines = []
    for line in SAMPLES["tgi 3.3"].text.splitlines():
        match = re.match(
            r"(\S+Z) +(INFO|ERROR) (?:\S+: )?(text_generation_\w+(?:::\w+)?): (?:\S+\.rs:\d+: )?(.*)", line
        )
        if match is None:
            continue
        stamp, level, target, message = match.groups()
        if target == "text_generation_launcher":
            lines.append(
                json.dumps({"timestamp": stamp, "level": level, "fields": {"message": message}, "target": target})
            )
        else:
            lines.append(json.dumps({"timestamp": stamp, "level": level, "message": message, "target": target}))
    found = parse_log("\n".join(lines))
    assert found.engine == "tgi"
    assert found.status == "ok"
    assert found.facts["shard_ready_s"] == 20.319623577
    assert found.facts["wall_first_line_to_ready_s"] == pytest.approx(31.645521, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.lists(st.integers(1, 400), min_size=1, max_size=40))
def test_any_chunking_gives_the_same(name: str, sizes: list[int]) -> None:
    raw = SAMPLES[name].text.encode()
    parser = StartupLogParser()
    position, index, events = 0, 0, []
    while position < len(raw):
        size = sizes[index % len(sizes)]
        events += parser.feed(raw[position : position + size])
        position, index = position + size, index + 1
    (found,) = parser.finish()
    (whole,) = parse_starts(raw)
    assert found.to_dict() | {"source": ""} == whole.to_dict() | {"source": ""}
    assert [event.line_number for event in events] == sorted(event.line_number for event in events)


# --- several starts, several channels -----------------------------------------------------------------------------------


def test_a_restart_loop_gives_one_record_a_start() -> None:
    failed = SAMPLES["vllm 0.19, out of memory in capture"]
    good = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"]
    starts = parse_starts(failed.text + failed.text + good.text + good.text)
    assert [start.status for start in starts] == ["oom", "oom", "ok", "ok"]
    assert [start.earlier for start in starts] == [0, 1, 2, 3]
    check(starts[0], failed)
    check(starts[2], good)
    check(starts[3], good)
    assert parse_log(failed.text + good.text).status == "ok"


def test_a_process_that_comes_up_anew_opens_the_next_start() -> None:
    """The platform line comes before the banner; the next start counts from there."""
    good = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"].text
    first, second = parse_starts(good + good.replace("07-01 20:", "07-01 21:"))
    assert first.last_stamp == "07-01 20:01:30"
    assert second.first_stamp == "07-01 21:00:00"
    assert second.wall_s == 49


def test_silent_deaths_are_told_by_the_second_banner() -> None:
    banner = "(APIServer pid=1) INFO 01-15 22:3{}:00 [api_server.py:1351] vLLM API server version 0.13.0\n(APIServer pid=1) INFO 01-15 22:3{}:01 [utils.py:253] non-default args: {{'model': 'org/m'}}\n"
    starts = parse_starts("".join(banner.format(i, i) for i in range(4)))
    assert [start.status for start in starts] == ["incomplete"] * 4


def test_pods_are_told_apart_by_their_prefix() -> None:
    a = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"].text.splitlines()
    b = SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"].text.splitlines()
    mixed = []
    for index in range(max(len(a), len(b))):
        mixed += [f"[pod/a-1/server] {a[index]}"] if index < len(a) else []
        mixed += [f"[pod/b-1/server] {b[index]}"] if index < len(b) else []
    starts = parse_starts("\n".join(mixed))
    assert {start.channel for start in starts} == {"pod/a-1/server", "pod/b-1/server"}
    by_pod = {start.channel: start for start in starts}
    check(by_pod["pod/a-1/server"], SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"])
    check(by_pod["pod/b-1/server"], SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"])


def test_the_parts_of_a_sum_are_kept() -> None:
    facts = parse_log(SAMPLES["vllm 0.25, model and drafter"].text).facts
    assert facts["load_weights_parts_s"] == [570.62, 11.07]
    assert facts["dynamo_parts_s"] == [2.07, 0.8]
    assert facts["torch_compile_parts_s"] == [3.48, 6.5]
    assert facts["profiling_warmup_parts_s"] == [629.28, 0.95]


def test_ranks_are_kept_and_the_largest_counts() -> None:
    found = parse_log(SAMPLES["vllm 0.13, tp 2, cold, download, spliced bar"].text)
    by_rank = {label.split()[0]: facts for label, facts in found.ranks.items()}
    assert by_rank["Worker_TP0"]["load_weights_s"] == 1.13
    assert by_rank["Worker_TP1"]["load_weights_s"] == 1.41
    assert found.facts["load_weights_s"] == 1.41


def test_equal_figures_without_a_prefix_are_those_of_several_ranks() -> None:
    """vLLM 0.9 printed unprefixed lines with data parallelism: times that overlap are not one after the other."""
    line = "INFO 07-01 20:00:1{} [default_loader.py:272] Loading weights took 8.5{} seconds\n"
    text = (
        "INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.0\n"
        + line.format(7, 0)
        + line.format(8, 1)
    )
    assert parse_log(text).facts["load_weights_s"] == 8.51


# --- time ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "seconds"),
    [
        ("12-31 23:59:50", "01-01 00:00:20", 30.0),
        ("06-30 23:59:59", "07-01 00:00:01", 2.0),
        ("02-28 23:59:59", "03-01 00:00:01", 2.0),
        ("02-29 23:59:59", "03-01 00:00:01", 2.0),
    ],
)
def test_midnight_and_new_year(first: str, last: str, seconds: float) -> None:
    text = f"INFO {first} [api_server.py:1395] vLLM API server version 0.9.2\nINFO {last} [core.py:172] init engine (profile, create kv cache, warmup model) took 1.00 seconds\n"
    assert parse_log(text).facts["wall_first_to_last_line_s"] == seconds


def test_stamps_with_fractions_set_the_resolution() -> None:
    text = SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"].text
    fine = re.sub(r"(11-29 19:1\d:\d\d) ", r"\1.250 ", text)
    found = parse_log(fine)
    assert found.stamp_resolution_s == pytest.approx(1e-3)
    assert found.facts["wall_first_line_to_ready_s"] == 38


def test_units_are_read() -> None:
    head = "INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.2\n"
    for figure, seconds in {
        "2.50 s": 2.5,
        "2.50 secs": 2.5,
        "2.50 seconds": 2.5,
        "2500 ms": 2.5,
        "1,002.5 seconds": 1002.5,
    }.items():
        assert parse_log(f"{head}INFO 07-01 20:00:09 [x.py:1] Loading weights took {figure}\n").facts[
            "load_weights_s"
        ] == pytest.approx(seconds)
    assert (
        parse_log(f"{head}INFO 07-01 20:00:09 [x.py:1] Loading model weights took 512 MiB\n").facts["weights_gib"]
        == 0.5
    )


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", ["", b"", "\n\n", [], ["", ""]])
def test_an_empty_log(log: object) -> None:
    with pytest.raises(InputFileError, match=r"empty|none of its"):
        parse_log(log)  # type: ignore[arg-type]


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "nginx.log"
    other.write_text('10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 612\n' * 50)
    with pytest.raises(InputFileError, match="none of its 50 line"):
        parse_log(other)
    binary = tmp_path / "core"
    binary.write_bytes(bytes(range(256)) * 400)
    with pytest.raises(InputFileError, match="not text"):
        parse_log(binary)
    with pytest.raises(InputFileError, match="a folder"):
        parse_log(tmp_path)
    with pytest.raises(InputFileError, match="no such file"):
        parse_log(str(tmp_path / "missing.log"))
    damaged = tmp_path / "cut.log.gz"
    damaged.write_bytes(gzip.compress(SAMPLES["tgi 3.3"].text.encode())[:-20])
    with pytest.raises(InputFileError, match="damaged gzip"):
        parse_log(damaged)
    with pytest.raises(ConfigError, match="must be a log"):
        parse_log(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be lines of text"):
        parse_log([1, 2])  # type: ignore[list-item]


def test_a_web_server_that_starts_is_no_inference_server() -> None:
    with pytest.raises(InputFileError, match="none of its"):
        parse_log(
            "INFO:     Started server process [1]\nINFO:     Waiting for application startup.\nINFO:     Application startup complete.\n"
        )


def test_an_event_at_the_end_of_a_line_of_ten_megabytes() -> None:
    good = SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"].text
    bar = "Capturing CUDA graph shapes:  50%|#####     | 1/2 [00:00<00:00,  1.00it/s] " * 130_000
    line = "(EngineCore pid=8) INFO 11-29 19:13:34 [gpu_model_runner.py:1] Graph capturing finished in 3 secs, took 0.50 GiB\n"
    found = parse_log(
        good.replace("(EngineCore pid=8) INFO 11-29 19:13:36", bar + line + "(EngineCore pid=8) INFO 11-29 19:13:36")
    )
    assert found.facts["graph_capture_s"] == 3
    assert found.status == "ok"


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 2**32), st.integers(1, 30))
def test_mutated_logs_are_read_or_refused(name: str, seed: int, count: int) -> None:
    rng = random.Random(seed)  # noqa: S311  not for secrets
    raw = bytearray(SAMPLES[name].text.encode())
    for _ in range(count):
        kind, place = rng.randrange(5), rng.randrange(len(raw) or 1)
        if kind == 0:
            raw[place : place + rng.randrange(40)] = b""
        elif kind == 1:
            raw[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
        elif kind == 2:
            raw[place:place] = raw[place : place + 200] * rng.randrange(4)
        elif kind == 3:
            raw[place:place] = rng.choice(
                [b"\n", b"\r", b"(", b"{", b"took 1e999 s", b"-1 GiB", b"99-99 99:99:99", b'{"log":']
            )
        elif raw:
            raw[place % len(raw)] = rng.randrange(256)
    try:
        for found in parse_starts(bytes(raw)):
            json.dumps(found.to_dict(), allow_nan=False)
            assert all(0 <= seconds < 1e9 for seconds in found.phases.values())
    except InputFileError as error:
        one_line_only(error)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000))
def test_junk_is_refused_in_one_line(raw: bytes) -> None:
    try:
        parse_starts(raw)
    except InputFileError as error:
        one_line_only(error)


# --- the tables ---------------------------------------------------------------------------------------------------------


def test_every_row_matches_its_own_wording() -> None:
    """A template with figures in its places matches the line that it describes, and reads the figures."""
    for engine in log_tables().values():
        for row in (*engine.rows, *common_table().rows):
            compiled = template(row.text)
            line = re.sub(r"\{\*\}", "x", row.text)
            if "{end}" in line:
                assert compiled.search("some words before " + line.replace("{end}", ""))
                continue
            line = re.sub(r"\{=(\w+)\}", "1.2", line)
            line = re.sub(r"\{\w+_s\}", "12.5 s", line)
            line = re.sub(r"\{\w+_gib\}", "1.5 GiB", line)
            line = re.sub(r"\{\w+\}", "42", line)
            assert compiled.search(f"some words before {line} and after"), row.text
            assert len(compiled.literal.strip()) >= 4, f"{row.text}: too little to look for"
        events = {row.event for row in engine.rows} | {"ready"}
        assert {milestone.event for milestone in engine.milestones} <= events, engine.name


def test_failures_are_no_advice() -> None:
    """Lines that only speak of memory running out are no failures: good starts print them."""
    text = SAMPLES["vllm 0.6.3, V0, pp 2"].text
    cut = text[: text.index("(VllmWorkerProcess pid=71) INFO 03-02 10:00:40")]
    assert parse_log(cut).status == "incomplete"


WORDINGS = {
    "SGLang on Ascend": (
        (
            "[2026-01-01 10:00:00] server_args=ServerArgs(model_path='m')\n[2026-01-01 10:00:10 TP0] Capture npu graph begin. This can take\n"
            "[2026-01-01 10:00:30 TP0] Capture npu graph end. Time elapsed: 19.50 s. mem usage=0.90 GB. avail mem=8.00 GB.\n"
        ),
        {"graph_capture_s": 19.5, "graph_capture_gib": 0.9},
    ),
    "llama.cpp b2000-b3900": (
        (
            "build: 3400 (97bdd26e)\nllm_load_tensors: ggml ctx size =    0.3 MiB\nllm_load_tensors:        CPU buffer size =  1024.00 MiB\n"
            "llm_load_tensors:      CUDA0 buffer size =  2048.00 MiB\nllama_new_context_with_model:  CUDA_Host  output buffer size = 0.98 MiB\n"
        ),
        {"weights_gib": 3.0},
    ),
    "vllm-ascend prints bytes": (
        "INFO 01-01 10:00:00 [__init__.py:1] Platform plugin ascend is activated\nINFO 01-01 10:00:09 [worker_v1.py:256] Available memory: 24696061952, total memory: 65464696832\n",
        {"available_kv_gib": 23.0},
    ),
    "vllm-ascend, rfork: seconds are no size": (
        "INFO 01-01 10:00:00 [x.py:1] Starting to load model m...\nINFO 01-01 10:00:09 [rfork_loader.py:390] Loading model weights took 12.34 seconds\n",
        {"load_weights_s": 12.34, "weights_gib": None},
    ),
    "vLLM 0.6.4": (
        (
            "INFO 01-01 10:00:09 gpu_worker.py:1] Memory profiling results: total_gpu_memory=39.39GiB initial_memory_usage=15.32GiB kv_cache_size=19.20GiB "
            "gpu_memory_utilization=0.90\n"
        ),
        {"kv_memory_gib": 19.2},
    ),
    "TGI before 0.9": (
        (
            "2023-06-01T10:00:00.0Z  INFO text_generation_launcher: Starting shard 0\n2023-06-01T10:01:55.0Z  INFO text_generation_launcher: Shard 0 ready in 114.998123s\n"
            "2023-06-01T10:01:56.0Z  INFO text_generation_launcher: Shard 1 ready in 115.998123s\n"
        ),
        {"shard_ready_s": 115.998123},
    ),
    "TensorRT-LLM of 2023": (
        "[TensorRT-LLM][INFO] Allocate 62847451136 bytes for k/v cache. \n[TensorRT-LLM][INFO] Using 119872 total tokens in paged KV cache, and 65 blocks per sequence\n",
        {"kv_cache_tokens": 119872, "kv_memory_gib": 58.531},
    ),
    "TensorRT-LLM 0.10": (
        "[TensorRT-LLM][INFO] Max tokens in paged KV cache: 77504. Allocating 40634417152 bytes.\n",
        {"kv_cache_tokens": 77504, "kv_memory_gib": 37.844},
    ),
    "Gaudi": (
        (
            "INFO 09-24 17:31:39 habana_model_runner.py:640] Loading model weights took in total 15.05 GiB of device memory (15.05 GiB/94.62 GiB used)\n"
            "INFO 09-24 17:31:40 habana_worker.py:177] Free device memory: 79.22 GiB, 71.3 GiB usable (gpu_memory_utilization=0.9), 7.13 GiB reserved for HPUGraphs "
            "(VLLM_GRAPH_RESERVED_MEM=0.1), 64.17 GiB reserved for KV cache\n"
            "INFO 09-24 17:32:13 habana_executor.py:91] init_cache_engine took 64.26 GiB of device memory (79.66 GiB/94.62 GiB used)\n"
        ),
        {"weights_gib": 15.05, "kv_memory_gib": 64.17},
    ),
}
"""Wordings that a first version missed: log -> facts (None: the log does not say). Formats from the engines' sources and documentation, figures made up but for Gaudi's."""


@pytest.mark.parametrize("name", WORDINGS)
def test_wordings_that_were_missed(name: str) -> None:
    text, facts = WORDINGS[name]
    found = parse_log(text).facts
    assert {key: found.get(key) for key in facts} == {
        key: None if value is None else pytest.approx(value, abs=6e-4) for key, value in facts.items()
    }


def test_a_drafter_of_sglang_moves_no_phase_of_the_model() -> None:
    start = parse_log(
        "[2025-08-05 10:00:00] server_args=ServerArgs(model_path='m')\n[2025-08-05 10:00:10] Init torch distributed begin.\n"
        "[2025-08-05 10:00:11] Load weight begin. avail mem=78.00 GB\n[2025-08-05 10:00:16] Load weight end. type=A, mem usage=15.40 GB.\n"
        "[2025-08-05 10:00:16] Memory pool end. avail mem=34.00 GB\n[2025-08-05 10:00:17] Capture cuda graph begin. \n"
        "[2025-08-05 10:00:27] Capture cuda graph end. Time elapsed: 10.10 s. mem usage=1.20 GB.\n[2025-08-05 10:00:27] Init torch distributed begin.\n"
        "[2025-08-05 10:00:27] Load weight begin. avail mem=32.30 GB\n[2025-08-05 10:00:29] Load weight end. type=B, mem usage=0.80 GB.\n"
        "[2025-08-05 10:00:29] Memory pool end. avail mem=30.70 GB\n[2025-08-05 10:00:34] Capture draft cuda graph end. Time elapsed: 5.20 s. mem\n"
        "[2025-08-05 10:00:37] Capture draft extend cuda graph end. Time elapsed: 2.80 s. mem\n[2025-08-05 10:00:42] The server is fired up and ready to roll!\n"
    )
    assert start.phases["framework_bootstrap"] == 10
    assert start.phases["weight_load"] == 5
    assert start.phases["graph_capture"] == pytest.approx(18.1)
    assert start.wall_s == 42
    assert sum(start.phases.values()) <= 42.5


def test_stamps_without_a_date_cross_midnight() -> None:
    start = parse_log(
        "[23:59:50] server_args=ServerArgs(model_path='m')\n[23:59:58 TP0] Load weight begin. avail mem=78.59 GB\n"
        "[00:00:03 TP0] Load weight end. type=A, mem usage=15.40 GB.\n[00:00:20] The server is fired up and ready to roll!\n"
    )
    assert start.wall_s == 30
    assert list(start.ranks) == ["TP0"]


def test_colours_whose_escape_character_was_lost() -> None:
    coloured = "(EngineCore_DP0 pid=20) [32mINFO[0m [90m10-20 10:00:{:02d}[0m [90m[gpu_model_runner.py:2602][0m {}\n"
    start = parse_log(
        coloured.format(1, "Starting to load model m...")
        + coloured.format(9, "Model loading took 14.9 GiB and 7.5 seconds")
    )
    assert start.facts["wall_first_to_last_line_s"] == 8
    assert start.facts["weights_gib"] == 14.9


@pytest.mark.parametrize(
    ("head", "status"), [("", "ok"), ("INFO 01-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n", "oom")]
)
def test_a_program_with_an_engine_inside_may_fail_later(head: str, status: str) -> None:
    log = (
        "INFO 01-01 10:00:01 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m'\n"
        "INFO 01-01 10:01:00 [core.py:2] init engine (profile, create kv cache, warmup model) took 40.0 seconds\n"
        "ERROR 01-01 10:05:00 [core.py:3] EngineCore encountered a fatal error.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    assert parse_log(head + log).status == status


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("torch.distributed.DistBackendError: NCCL error ... ncclUnhandledCudaError: Cuda failure 2 'out of memory'", "oom"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "oom"),
    ],
)  # fmt: skip
def test_memory_that_libraries_could_not_get(line: str, status: str) -> None:
    log = "INFO 01-01 10:00:00 [x.py:1] Starting to load model m...\nERROR 01-01 10:00:05 [x.py:2] EngineCore failed to start.\n"
    assert parse_log(log + line).status == status


def test_figures_that_overlap_are_named() -> None:
    log = (
        "INFO 01-01 10:00:00 [x.py:1] vLLM API server version 0.11.0\nINFO 01-01 10:00:05 [x.py:1] Loading weights took 300.0 seconds\n"
        "INFO 01-01 10:00:09 [x.py:1] Model loading took 1 GiB and 301.0 seconds\nINFO:     Started server process [1]\nINFO:     Application startup complete.\n"
    )
    assert any("overlap" in warning for warning in parse_log(log).warnings)


def test_lines_that_say_nothing_are_counted_at_once() -> None:
    text = SAMPLES["vllm 0.25, model and drafter"].text + "INFO 01-01 10:00:00 [loggers.py:1] nothing\n" * 5000
    whole = StartupLogParser()
    whole.feed(text)
    parser = StartupLogParser()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        parser.feed(line)
        assert (parser.lines, parser.bytes > 0) == (number, True)
    assert [start.to_dict() for start in parser.starts()] == [start.to_dict() for start in whole.starts()]
    assert [start.to_dict() for start in parser.finish()] == [start.to_dict() for start in whole.finish()]


def two_engines(version: str, coordinator: str) -> str:
    """A start of vLLM with data_parallel_size=2, in the wordings of 0.32."""

    def both(second: int, words: str) -> list[str]:
        return [f"(EngineCore_DP{rank} pid={rank + 4}) INFO 11-30 02:20:{second:02d} [{words}" for rank in range(2)]

    return "\n".join(
        [
            f"(APIServer pid=1) INFO 11-30 02:20:00 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
            "(APIServer pid=1) INFO 11-30 02:20:00 [api_utils.py:286] non-default args: {'model': '/models/m', 'data_parallel_size': 2, 'enforce_eager': True}",
            "(APIServer pid=1) INFO 11-30 02:20:01 [model.py:733] Resolved architecture: LlamaForCausalLM",
            *([f"(APIServer pid=1) INFO 11-30 02:20:12 [utils.py:1245] {coordinator}"] if coordinator else []),
            *both(23, f"core.py:133] Initializing a V1 LLM engine (v{version}) with config: model='/models/m', dtype=torch.float32, load_format=auto, tensor_parallel_size=1, data_parallel_size=2, enforce_eager=True"),
            *both(35, "cpu_model_runner.py:68] Starting to load model /models/m..."),
            *both(36, "base_loader.py:82] Initializing model took 0.120638 seconds"),
            *both(36, "default_loader.py:501] Loading weights took 0.03 seconds"),
            *both(37, "cpu_worker.py:260] Explicitly set (1.0/12.34) GiB for KV cache on node 0."),
            *both(37, "kv_cache_utils.py:2327] CPU KV cache size: 131,072 tokens, Maximum concurrency for 512 tokens per request: 256.00x"),
            *both(41, "core.py:402] init engine (profile, create kv cache, warmup model) took 4.76 s"),
            "(APIServer pid=1) INFO 11-30 02:20:42 [entry.py:140] Starting vLLM server on http://127.0.0.1:8123",
            "INFO:     Application startup complete.",
            "",
        ]
    )  # fmt: skip


COORDINATOR = "Started DP Coordinator process (PID: 3)"


@pytest.mark.parametrize(
    ("version", "coordinator", "bootstrap", "spawn"),
    [
        ("0.32.0", COORDINATOR, 12, 23),  # it is waited for, and imports as much as an engine: the engines come on top
        ("0.19.1", COORDINATOR, 12, 23),
        ("0.18.1", COORDINATOR, 23, 12),  # nobody waits for it: it comes up beside the engines
        ("0.32.0", "", 23, 12),  # another node has it
    ],
)
def test_engines_that_are_added_are_spawned(version: str, coordinator: str, bootstrap: float, spawn: float) -> None:
    """With two engines vLLM 0.32 took 13 s longer, all of it before their first lines: it counted as bootstrap, which has nothing to do with ranks."""
    found = parse_log(two_engines(version, coordinator))
    assert (found.status, found.dp, found.engine_version) == ("ok", 2, version)
    assert (found.phases["framework_bootstrap"], found.phases["worker_spawn"]) == (bootstrap, spawn)
    record = found.to_run(HardwareConfig.preset("cpu"), model="Qwen/Qwen3-0.6B", process_start_s=9.5)
    assert (record.phases["framework_bootstrap"], record.phases["worker_spawn"]) == (bootstrap + 9.5, spawn)
