"""Logs as attackers and accidents make them, and every bug that they have shown."""

from __future__ import annotations

import gzip
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import command
import pytest
from log_samples import SAMPLES
from test_secrets import LEAKS, SECRET

from calibration import StartupLogParser, parse_log, parse_starts
from calibration.logs import parser as parsing
from calibration.logs import watch as watching
from calibration.logs.fields import read_fields
from calibration.logs.parsed import LoggedStart
from calibration.logs.watch import StartupWatch
from startup_model.errors import ConfigError, InputFileError
from startup_model.models.config import ModelConfig

COMMAND = Path(sys.executable).with_name("startup-model")
WARM = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"].text
V1 = SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"].text
REQUESTS = 'INFO:     10.1.2.3:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 1500
"""More than one stretch of scanning."""
LINE = "INFO 01-02 03:04:05 [a.py:1] "


# --- starts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [97, 4096, 10**9])
@pytest.mark.parametrize(
    "log", [WARM, V1, SAMPLES["sglang 0.5.9, tp 2"].text, SAMPLES["tgi 3.3"].text], ids=["0.9", "0.32", "sglang", "tgi"]
)
def test_a_start_after_long_serving_is_one_start(log: str, size: int) -> None:
    raw = (log + REQUESTS + log).encode()
    parser = StartupLogParser()
    for place in range(0, len(raw), size):
        parser.feed(raw[place : place + size])
    first, second = parser.finish()
    assert first.phases == second.phases
    assert first.wall_s == second.wall_s
    assert first.facts["wall_first_line_to_ready_s"] == second.facts["wall_first_line_to_ready_s"]


def test_engines_may_follow_each_other() -> None:
    starts = parse_starts(SAMPLES["sglang 0.5.9, tp 2"].text + WARM)
    assert [start.engine for start in starts] == ["sglang", "vllm"]


def test_argument_errors_are_starts_of_their_own() -> None:
    wrong = "INFO 07-01 19:5{}:00 [__init__.py:244] Automatically detected platform cuda.\nusage: vllm serve [model_tag] [options]\nvllm serve: error: unrecognized arguments: --max-model-length 4096\n"
    starts = parse_starts(wrong.format(1) + wrong.format(3) + WARM)
    assert starts[-1].wall_s == 49
    assert starts[0].status == "crashed"
    assert starts[0].evidence is not None
    assert "unrecognized arguments" in starts[0].evidence.text
    assert (
        parse_log("usage: api_server.py [-h]\napi_server.py: error: argument --dtype: invalid choice: 'fp4'\n").status
        == "crashed"
    )


def test_a_silent_kill_does_not_lengthen_what_follows() -> None:
    killed = WARM[: WARM.index("INFO 07-01 20:00:22")]
    first, second = parse_starts(killed + WARM.replace("07-01 20:", "07-01 21:"))
    assert (first.status, second.status) == ("incomplete", "ok")
    assert first.facts["wall_first_to_last_line_s"] == 17
    assert second.wall_s == 49


def test_a_failure_between_up_and_ready() -> None:
    cut = WARM[: WARM.index("INFO:     Application startup complete.")]
    assert parse_log(cut).status == "ok"
    broken = parse_log(
        cut
        + 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: Failed to load the adapter\n'
    )
    assert broken.status == "crashed"
    assert broken.evidence is not None
    assert broken.evidence.text == "ValueError: Failed to load the adapter"


def test_a_port_that_is_taken_is_found_out_late() -> None:
    text = cut_after_ready = WARM[: WARM.index("INFO:     127.0.0.1")]
    assert parse_log(cut_after_ready).status == "ok"
    text += "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use\n"
    assert parse_log(text).status == "crashed"


def test_the_exception_is_the_evidence_not_its_heading() -> None:
    head = "INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.2\n"
    text = head + (
        'Traceback (most recent call last):\n  File "x.py", line 3, in create_model_config\n'
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, User-specified max_model_len (200000) is greater than the derived max_model_len\n"
    )
    found = parse_log(text)
    assert found.status == "crashed"
    assert found.evidence is not None
    assert found.evidence.text.startswith("Value error, User-specified")
    assert found.evidence.line_number == 5


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the file", "load_failed"),
        (
            "ValueError: The checkpoint has model type `x` but Transformers does not recognize this architecture.",
            "load_failed",
        ),
        ("/bin/bash: line 1:     7 Killed                  vllm serve org/m", "crashed"),
        ("!!!!!!! Segfault encountered !!!!!!!", "crashed"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "oom"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "crashed"),
    ],
)
def test_how_starts_end(line: str, status: str) -> None:
    assert (
        parse_log(f"INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.2\n{line}\n").status == status
    )


@pytest.mark.parametrize(
    "line",
    [
        "node: listening on http://localhost:3000",
        "redis: Connected",
        "Using attention span",
        "build: 5 (",
        "Starting Webserver",
    ],
)
def test_one_general_line_is_no_start(line: str) -> None:
    with pytest.raises(InputFileError, match="none of its"):
        parse_log(line + "\n")


def test_the_largest_figure_of_processes_without_a_name() -> None:
    """Data parallelism in vLLM 0.9: two engines, no prefix."""
    text = "INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.2\n" + "".join(
        f"INFO 07-01 20:01:1{i} [core.py:172] init engine (profile, create kv cache, warmup model) took {seconds} seconds\n"
        for i, seconds in enumerate(("67.12", "40.33"))
    )
    assert parse_log(text).facts["init_engine_s"] == 67.12


def test_a_log_with_the_newest_line_first_is_said_to_be_so() -> None:
    found = parse_starts("\n".join(reversed(V1.splitlines())))
    assert any("run backwards" in warning for start in found for warning in start.warnings)


# --- secrets ------------------------------------------------------------------------------------------------------------

PLACES = [
    LINE + "non-default args: {{'model': 'x/y', {}}}", LINE + "Initializing a V1 LLM engine (v0.9.2) with config: model='x/y', dtype=auto, {}",
    LINE + "args: Namespace(model='x/y', deep=[{{'a': {{'b': {{'c': {{'d': {{'e': '{}'}}}}}}}}}}])", LINE + "Starting to load model {}...",
    "RepositoryNotFoundError: 401 for {}", "Traceback (most recent call last): " + "x" * 290 + " {}", "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='m', {})",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_secrets_are_taken_out_wherever_they_stand(place: str) -> None:
    for form in LEAKS:
        leak = form.replace("{}", SECRET).replace("{{", "{").replace("}}", "}")
        text = LINE + "vLLM API server version 0.9.2\n" + place.format(leak) + "\n"
        parser = StartupLogParser()
        events = parser.feed(text)
        kept = repr(events) + "".join(json.dumps(start.to_dict()) for start in parser.finish())
        assert SECRET not in kept, form


# --- robustness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        LINE + "Initializing a V1 LLM engine (v0.9.2) with config: model='x/y', world_size={}, block_tokens=abc\n"
        + LINE + "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, TP rank 1",
        LINE + "non-default args: {{'model': 'x/y', 'max_num_seqs': {}}}",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", ["abc", "[1,2]", "{'a': 1}", "1e400", "1e999", "-1e400", "9" * 400, "None", "nan", "''"]
)
def test_absurd_settings(text: str, value: str) -> None:
    found = parse_log(text.format(value))
    json.dumps(found.to_dict(), allow_nan=False)


def test_settings_are_read_as_written() -> None:
    assert read_fields("{'a': 1, 'b': [1, 'x, y'], 'c': {'d': None}, \"e\": 'it\\'s'}") == {
        "a": 1, "b": (1, "x, y"), "c": {"d": None}, "e": "it\\'s",
    }  # fmt: skip
    assert read_fields("model='m', dtype=torch.bfloat16, x=LoadFormat.AUTO y=True,  z=5, w=Foo(a=1, b=[2]))") == {
        "model": "m", "dtype": "torch.bfloat16", "x": "LoadFormat.AUTO", "y": True, "z": 5, "w": "Foo(a=1, b=[2])",
    }  # fmt: skip


@pytest.mark.parametrize("stamp", ["99-99 99:99:99", "00-00 00:00:00", "02-31 24:60:61", "13-01 00:00:00"])
def test_stamps_that_cannot_be(stamp: str) -> None:
    found = parse_log(WARM.replace("07-01 20:00:17", stamp))
    assert found.wall_s == 49


def test_terminal_codes_and_half_characters_are_not_kept() -> None:
    hostile = "\x1b\x1b[0m[2J\x9b2J"
    text = f"{LINE}Initializing a V1 LLM engine (v0.9.2) with config: model='x/y{hostile}', dtype='{hostile}', quantization='{hostile}'\n"
    record = json.dumps(
        {"log": "INFO 01-02 03:04:05 [a.py:1] args: Namespace(dtype='\udc00')", "pod": f"p\ud800{hostile}"}
    )
    for found in (*parse_starts(text), *parse_starts(record)):
        kept = json.dumps(found.to_dict(), ensure_ascii=False)
        kept.encode()
        assert "\x1b" not in kept
        assert "\x9b" not in kept


def test_a_name_in_a_log_is_never_opened_or_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was opened")

    monkeypatch.setattr(ModelConfig, "from_hub", forbidden)
    monkeypatch.setattr(ModelConfig, "from_hf", forbidden)
    for name in ("hub:org/evil", "/etc/passwd", "./config.json"):
        found = parse_log(WARM.replace("org/model-1b", name))
        with pytest.raises(ConfigError, match="the catalogue does not have"):
            found.to_run("h100-sxm")
        watch = StartupWatch(hardware="h100-sxm")
        watch.feed(WARM.replace("org/model-1b", name), 0.0)
        assert watch.problem


def test_a_log_that_was_emptied_while_it_was_written() -> None:
    """copytruncate leaves zeros where the file had been."""
    assert parse_log(b"\0" * 300 + b"\n" + WARM.encode()).status == "ok"
    assert parse_log(WARM.encode("utf-16-be")).status == "ok"


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(random.Random(1).randbytes(4000) + WARM.encode()))  # noqa: S311  not for secrets
    whole[500:504] = b"\0\0\0\0"
    path = tmp_path / "x.gz"
    path.write_bytes(whole)
    with pytest.raises(InputFileError, match="damaged gzip"):
        parse_log(path)


def test_caps_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"svc{i}  | {LINE}vLLM API server version 0.9.2" for i in range(100)]
    starts = parse_starts("\n".join(lines))
    assert len(starts) <= 101
    assert any("containers beyond 64" in warning for warning in starts[0].warnings)
    banner = f"{LINE}vLLM API server version 0.9.2\n"
    many = parse_starts(banner * 1500)
    assert len(many) == 1001
    assert many[-1].earlier == 1499
    assert any("earlier starts are not kept" in warning for warning in many[-1].warnings)


def test_keeping_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ranks in each of several starts, settings of a megabyte, messages of many pages."""
    monkeypatch.setattr(parsing, "_MAX_RANKS_KEPT", 2000)
    ranks = "".join(f"(Worker_TP{i} pid={i}) {LINE}Loading weights took 1.00 seconds\n" for i in range(1030))
    text = f"{LINE}vLLM API server version 0.9.2\n{ranks}{LINE}non-default args: {{'a': '{'x' * 10**6}'}}\n{LINE}EngineCore failed to start. {'y' * 10**5}\n"
    starts = parse_starts(text * 4)
    assert 2000 < sum(len(start.ranks) for start in starts) <= 2000 + 1024
    assert max(len(json.dumps(start.to_dict()["flags"])) for start in starts) < 10_000
    assert starts[-1].evidence is not None
    assert len(starts[-1].evidence.text) <= 320


# --- watching -----------------------------------------------------------------------------------------------------------


def test_watching_predicts_only_when_something_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"predict": 0}
    original = watching.predict

    def counted(*arguments: Any, **options: Any) -> Any:
        calls["predict"] += 1
        return original(*arguments, **options)

    monkeypatch.setattr(watching, "predict", counted)
    watch = StartupWatch(hardware="h100-sxm", model="meta-llama/Llama-3.1-8B-Instruct")
    watch.feed(V1[: V1.index("(Worker_TP0 pid=9) INFO 11-29 19:13:31")], 0.0)
    before = calls["predict"]
    watch.feed(
        "(Worker_TP0 pid=9) INFO 11-29 19:13:20 [backends.py:1] Cache the graph of compile range (1, 2048) for later use\n"
        * 500,
        0.0,
    )
    assert calls["predict"] - before <= 2


def test_watching_assembles_a_failing_start_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = StartupWatch(hardware="h100-sxm")
    counted = {"starts": 0}
    original = StartupLogParser.current

    def current(self: StartupLogParser) -> LoggedStart | None:
        counted["starts"] += 1
        return original(self)

    monkeypatch.setattr(StartupLogParser, "current", current)
    watch.feed(
        WARM[: WARM.index("INFO 07-01 20:00:28")] + f"{LINE}torch.OutOfMemoryError: CUDA out of memory\n" * 2000, 0.0
    )
    assert watch.outlook(0.0).status == "oom"
    assert counted["starts"] < 20


@pytest.mark.parametrize(("option", "value"), [("level", 5.0), ("page_cache", "foo"), ("compile_cache", "foo")])
def test_bad_options_are_told_before_anything_starts(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"foo|level"):
        StartupWatch(**{option: value})
    done = command.run("watch", f"--{option.replace('_', '-')}", value, "--", "echo", "started")
    assert done.status == 2
    assert "started" not in done.out


def test_an_error_of_its_own_does_not_end_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("inside")

    monkeypatch.setattr(StartupWatch, "feed", broken)
    server = "import time; print(1, flush=True); time.sleep(0.3); print(2); raise SystemExit(4)"
    done = command.run("watch", "--", sys.executable, "-c", server)
    assert (done.status, done.out) == (4, "1\n2\n")
    assert "the server goes on: RuntimeError: inside" in done.err


def test_a_reader_that_goes_away_does_not_end_the_server(tmp_path: Path) -> None:
    mark = tmp_path / "done"
    script = f"import time, pathlib\nfor i in range(20): print(i, flush=True); time.sleep(0.05)\npathlib.Path({str(mark)!r}).touch()"
    process = subprocess.Popen(
        [COMMAND, "watch", "--", sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert mark.exists()


def test_signals_go_to_the_server() -> None:
    names = ("SIGQUIT", "SIGUSR1", "SIGHUP")
    script = (
        "import signal, sys, time\n"
        f"for name in {names}: signal.signal(getattr(signal, name), lambda number, _: print(signal.Signals(number).name, flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('up', flush=True)\nwhile True: time.sleep(0.05)"
    )
    arguments = [COMMAND, "watch", "--", sys.executable, "-c", script]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        for name in names:
            process.send_signal(getattr(signal, name))
            assert process.stdout.readline() == f"{name}\n"
        process.terminate()
        assert process.wait(timeout=60) == 9


def test_a_server_that_is_killed_gives_its_signal() -> None:
    done = command.run("watch", "--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert done.status == 137


def test_a_closed_standard_input() -> None:
    for name in ("parse", "watch"):
        done = command.run(name, "-", stdin=None)
        assert done.status == 2
        assert done.err.count("\n") == 1
        assert "standard input: " in done.err


def test_long_names_and_empty_ones(tmp_path: Path) -> None:
    for name in ("x" * 5000, "", tmp_path / ("y" * 300)):
        done = command.run("parse", name)
        assert done.status == 2
        assert done.err.count("\n") == 1


def test_tables_cannot_carry_formulas_or_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "my log\x1b[31m.log"
    path.write_text(
        f"{LINE}Initializing a V1 LLM engine (v0.9.2) with config: model='=cmd()', dtype='\t+1', quantization='＝1'\n"
    )
    outputs = {option: command.run("parse", path, *option.split()).out for option in ("", "--csv", "--json")}
    assert not [option for option, out in outputs.items() if "\x1b" in out or not out]
    row = outputs["--csv"].splitlines()[1]
    assert "'=cmd()" in row
    assert "'+1" in row
    assert row.startswith("my log")
