"""Profiling a server: a fake engine that is as quick as it is badly behaved, started, measured and ended for real."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import run as command
from hypothesis import given
from hypothesis import strategies as st

from calibration import (
    Limits,
    ServerError,
    StepNews,
    calibrate,
    isolated_phases,
    parse_log,
    profile_server,
    read_runs,
    write_runs,
)
from calibration.cli.measure import View, _ends_orderly, _kind, _plain_warnings, announce, print_runs
from calibration.host import (
    Gpu,
    HostFacts,
    accelerators,
    checkpoint_files,
    describe_host,
    evict,
    file_system_of,
    fingerprint,
    host_facts,
    read_into_cache,
    resident_fraction,
)
from calibration.logs.parser import StartupLogParser
from calibration.measure import endpoint as endpoint_module
from calibration.measure import start as start_module
from calibration.measure.endpoint import authorization, first_token, served_version
from calibration.measure.launch import Launch, environment_that_matters, launch_of, program_of
from calibration.measure.run import Session, finished_cases, node_of, prepared, record_of
from calibration.measure.schedule import (
    Case,
    RemainingTime,
    Schedule,
    ScheduleInputs,
    ScheduleOptions,
    make_schedule,
)
from calibration.measure.server import Server, free_port, is_free
from calibration.measure.start import Follower, Journal, MeasuredStart, Progress
from calibration.measure.states import (
    CompileCaches,
    compile_state,
    home_folder,
    prepare_page_cache,
)
from calibration.runs.record import PhaseSum, RunRecord
from calibration.runs.write import append_run, check_appendable
from startup_model import EngineConfig, HardwareConfig, ModelConfig
from startup_model.engines import find
from startup_model.engines.engine import CacheNotes, Caches, Engine
from startup_model.errors import ConfigError, InputFileError, StartupModelError
from startup_model.secrets import redactor, secret_values

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")

ENGINE = Path(__file__).with_name("fake_engine.py")
NODE = HardwareConfig.preset("cpu")
QUICK = Limits(ready_s=20.0, request_s=10.0, grace_s=0.05)


def set_up(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """The command ``vllm serve FOLDER`` of a fake engine, with a checkpoint of a small model."""
    (folder / "bin").mkdir()
    for name in ("vllm", "python"):
        program = folder / "bin" / name
        # As a Python it tells no version.
        program.write_text(f"#!/bin/sh\n[ \"$1\" = -c ] && exit 1\nexec '{sys.executable}' -I -S '{ENGINE}' \"$@\"\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    patch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    patch.setenv("FAKE_PIDS", str(folder / "pids"))
    patch.setenv("FAKE_CACHE", str(folder / "cache"))
    patch.setenv("FAKE_STARTS", str(folder / "starts"))
    for name, seconds in (("_LAST_WORDS_S", 0.3), ("_SILENT_S", 0.3), ("_TICK_S", 0.01)):
        patch.setattr(start_module, name, seconds)
    patch.setattr(endpoint_module, "_INTERVAL_S", 0.01)
    (folder / "cache").mkdir()
    return f"vllm serve {checkpoint(folder / 'model')}"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The command of a fake engine; whatever it leaves behind fails the test."""
    yield set_up(tmp_path, monkeypatch)
    pids = tmp_path / "pids"
    if pids.exists():
        assert [pid for pid in json.loads(pids.read_text()) if lives(pid)] == []


class Scene(NamedTuple):
    """A differential schedule that was run, for tests that only look at it."""

    folder: Path
    command: str
    runs: list[RunRecord]
    heard: list[StepNews]
    host_was_asked: int

    @property
    def out(self) -> Path:
        return self.folder / "runs.jsonl"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("differential")
    asked: list[int] = []
    heard: list[StepNews] = []
    with pytest.MonkeyPatch.context() as patch:
        engine = set_up(folder, patch)
        patch.setattr("calibration.measure.run.host_facts", lambda: asked.append(1) or host_facts())
        command = f"HF_TOKEN=hf_abcdefgh12345678 VLLM_LOGGING_LEVEL=INFO {engine} --max-model-len 1024 --api-key sk-abcdefgh12345678"
        runs = profile_server(
            command, plan="differential", hardware=NODE, out=folder / "runs.jsonl", dataset="test", listener=heard.append,
            limits=QUICK.replace(grace_s=0.3),
        )  # fmt: skip
    return Scene(folder, command, runs, heard, len(asked))


def checkpoint(folder: Path, layers: int = 4) -> Path:
    folder.mkdir(exist_ok=True)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [500_000], "data_offsets": [0, 1_000_000]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1_000_000))
    return folder


def measured(command: Any, **options: Any) -> list[RunRecord]:
    """Records of a session, without the first start that is excluded as warm-up."""
    return profile_server(command, **({"hardware": NODE, "limits": QUICK, "warm_up": False} | options))


def starts_of(tmp_path: Path) -> list[str]:
    """The words of each start that was made."""
    path = tmp_path / "starts"
    return path.read_text().splitlines() if path.exists() else []


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_for(path: Path, seconds: float = 20.0) -> list[int]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and path.read_text().endswith("]"):
            return list(json.loads(path.read_text()))
        time.sleep(0.05)
    raise AssertionError(f"{path.name} was not written")


def all_gone(pids: list[int], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while any(map(lives, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(lives, pids))


def schedule_of(
    launch: Launch, node: HardwareConfig = NODE, model: ModelConfig | None = None, **options: Any
) -> Schedule:
    return make_schedule(ScheduleInputs(launch, node, model), ScheduleOptions(**options))


def session_of(launch: Launch, **fields: Any) -> Session:
    return Session(inputs=ScheduleInputs(launch, NODE), facts=host_facts(), **fields)


# --- what is measured ---------------------------------------------------------------------------------------------------


def test_a_compiling_start_is_excluded_as_warm_up(scene: Scene) -> None:
    first, *others = scene.runs
    assert [run.engine.compile_cache for run in scene.runs] == ["cold", "warm", "warm", "warm"]
    assert (first.step, len({run.step for run in others})) == ("", 3)
    for run in scene.runs:
        assert run.status == "ok"
        assert run.engine.version == "0.11.0"
        assert run.engine.max_model_len == 1024
        assert run.engine.page_cache == "hot"
        assert run.phases["weight_load"] == 0.04
        assert run.wall_s is not None
        assert run.first_token_s is not None  # the server's key was sent
        assert 0 < sum(run.phases.values()) <= run.wall_s + 1e-6 <= run.first_token_s < 30
        assert run.stamp_resolution_s == 0.001
        assert run.host_notes["cpu"]
        assert run.host_notes["killed"].startswith("2 ")
        assert (run.host, run.dataset, run.hardware) == (fingerprint(host_facts()), "test", NODE)
        assert run.engine.environment["VLLM_LOGGING_LEVEL"] == "INFO"
    assert "compile" not in {news.progress.phase for news in scene.heard if news.progress}
    assert sum(news.record is not None for news in scene.heard) == 4
    assert scene.host_was_asked == 1
    written = scene.out.read_text()
    assert "12345678" not in written
    assert str(scene.folder) not in written
    assert read_runs(scene.out) == scene.runs
    assert calibrate(others).report.runs_used > 0


def test_what_a_listener_is_told(scene: Scene) -> None:
    """Under the names of earlier releases, too."""
    news = next(news for news in scene.heard if news.record is not None)
    assert (news.is_warm_up, news.is_apart) == (True, True)
    assert news.plan is news.schedule
    assert news.plan.steps[news.place] == news.step == news.case == Case()
    assert scene.heard[-1].left_s == 0.0


def test_the_first_start_of_a_session_is_excluded_whatever_it_is(engine: str, tmp_path: Path) -> None:
    heard: list[StepNews] = []
    first, base = measured(f"{engine} --enforce-eager", warm_up=True, request=False, listener=heard.append)
    assert (first.step, first.measured_from, first.ready_s) == ("", "first_line", None)
    assert first.hidden == {"framework_bootstrap"}  # calibration leaves its imports alone
    assert "first of its session" in first.host_notes["start"]
    assert (base.step[:4], base.measured_from, base.first_token_s) == ("base", "process_start", None)
    assert [news.note for news in heard if news.record] == ["the first start of the session", ""]
    assert [news.is_warm_up for news in heard if news.record] == [True, False]
    assert len(starts_of(tmp_path)) == 2


@pytest.mark.parametrize("in_front", ["", "VLLM_DISABLE_COMPILE_CACHE=1 "])
def test_a_start_that_compiled_is_never_recorded_as_warm(
    engine: str, monkeypatch: pytest.MonkeyPatch, in_front: str
) -> None:
    monkeypatch.setenv("VLLM_DISABLE_COMPILE_CACHE", "1")
    heard: list[StepNews] = []
    runs = measured(f"{in_front}{engine}", repetitions=2, request=False, listener=heard.append)
    assert {run.engine.compile_cache for run in runs} == {"cold"}
    assert [bool(run.step) for run in runs] == ([True, True] if in_front else [False, True, True])
    notes = [news.note for news in heard if news.record]
    assert notes[-1] == "it compiled again: the compile cache keeps nothing"
    assert in_front or notes[0] == "it compiled"


def test_a_compile_cache_that_is_gone_when_a_plan_goes_on(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    measured(engine, request=False, out=out)
    (tmp_path / "cache" / "graphs").unlink()
    done, compiled, second = measured(engine, request=False, out=out, repetitions=2, resume=True)
    assert [run.engine.compile_cache for run in (done, compiled, second)] == ["warm", "cold", "warm"]
    assert [bool(run.step) for run in (done, compiled, second)] == [True, False, True]


def test_a_log_that_does_not_tell_whether_it_compiled(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "quiet_compile")
    heard: list[StepNews] = []
    first, base = measured(engine, request=False, listener=heard.append)
    assert [first.engine.compile_cache, base.engine.compile_cache] == ["unknown", "warm"]
    assert [news.note for news in heard if news.record] == ["its log does not tell whether it compiled", ""]


def test_states_of_the_caches_are_made_and_recorded(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    heard: list[StepNews] = []
    (cold,) = measured(engine, page_cache="cold", compile_cache="fresh", listener=heard.append)
    assert cold.engine.compile_cache == "cold"
    assert cold.engine.page_cache == ("cold" if resident_after_eviction(tmp_path) else "hot")
    assert not (tmp_path / "cache" / "graphs").exists()
    assert "evicting the checkpoint" in {news.progress.doing for news in heard if news.progress}
    (eager,) = measured(f"{engine} --enforce-eager", page_cache="as_is", request=False)
    assert eager.first_token_s is None
    assert not list(tmp_path.glob("startup-model-compile-*"))


def resident_after_eviction(tmp_path: Path) -> bool:
    files = checkpoint_files(tmp_path / "model")
    evict(files)
    return (resident_fraction(files) or 0.0) < 0.05


def test_a_start_without_torch_compile(engine: str, tmp_path: Path) -> None:
    (run,) = measured(engine, torch_compile="off", request=False)
    assert "-O0" in starts_of(tmp_path)[0].split()
    assert run.engine.optimization_level == 0
    assert "graph_compile" not in run.phases
    sglang = launch_of("python -m sglang.launch_server --model-path m --enable-torch-compile")
    inputs, case = ScheduleInputs(sglang, NODE), Case(torch_compile="off")
    assert "--enable-torch-compile" not in inputs.launch_of(case).command(1234)
    assert inputs.engine(case).torch_compile is False
    assert case.name == "uncompiled"


def test_dummy_weights_need_no_checkpoint(engine: str, tmp_path: Path) -> None:
    (tmp_path / "model" / "model.safetensors").unlink()
    (run,) = measured(f"{engine} --load-format dummy --enforce-eager", request=False)
    assert (run.engine.load_format, run.engine.page_cache) == ("dummy", "hot")


def test_a_configuration_is_started_too(engine: str, tmp_path: Path) -> None:
    config = EngineConfig(model=str(tmp_path / "model"), enforce_eager=True, max_model_len=512)
    (run,) = measured(config)
    assert run.engine.enforce_eager
    assert run.engine.max_model_len == 512


def test_a_server_without_completions_is_measured_all_the_same(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "no_completions")
    heard: list[StepNews] = []
    (run,) = measured(f"{engine} --enforce-eager", listener=heard.append)
    assert run.first_token_s is None
    assert heard[-1].note == "no first token: /v1/completions answers 404: no such path"


def test_a_web_server_that_prints_nothing(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's --uvicorn-log-level warning: the endpoint alone says ready."""
    monkeypatch.setenv("FAKE_ENGINE", "never_ready")
    (run,) = measured(f"{engine} --enforce-eager")
    assert run.status == "ok"
    assert run.wall_s is not None
    assert run.first_token_s is not None
    assert sum(run.phases.values()) <= run.wall_s + 1e-6
    assert run.wall_s <= run.first_token_s


def test_a_program_of_its_own_gets_the_port_where_it_wants_it(engine: str, tmp_path: Path) -> None:
    words = [*engine.split(), "--enforce-eager", "--host", "127.0.0.1", "--port", "{port}"]
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nexec vllm serve " + " ".join(words[2:-1]) + ' "$1"\n')
    script.chmod(0o755)
    (found,) = measured([str(script), "{port}"], model=tmp_path / "model")
    assert found.engine.version == "0.11.0"
    with pytest.raises(ConfigError, match=r"write \{port\} where"):
        measured([str(script)])
    with pytest.raises(ConfigError, match="flags can only be added to the command of a known engine"):
        measured([str(script), "{port}"], torch_compile="off")
    out = tmp_path / "runs.jsonl"
    done = command(
        *(
            "profile",
            "--hardware",
            "cpu",
            "--grace",
            "0.05",
            "--no-warm-up",
            "--model",
            tmp_path / "model",
            "--out",
            out,
        ),
        *("--", script, "{port}"),
    )
    assert done.status == 0, done.err
    assert read_runs(out)[0].model == found.model


# --- SGLang -------------------------------------------------------------------------------------------------------------


def sglang(tmp_path: Path, *flags: str) -> str:
    return shlex.join(["python", "-m", "sglang.launch_server", "--model-path", str(tmp_path / "model"), *flags])


def test_sglang_is_ready_when_its_own_line_says_so(engine: str, tmp_path: Path) -> None:
    """Its older releases answer /health as soon as they listen: the warm-up comes after it, and the line of its web server."""
    heard: list[StepNews] = []
    (run,) = measured(sglang(tmp_path, "--api-key", "hunter2hunter2"), out=tmp_path / "r.jsonl", listener=heard.append)
    assert heard[-1].note == ""
    assert (run.engine.engine, run.engine.version, run.status) == ("sglang", "0.5.4", "ok")
    assert run.phases["api_ready"] >= 0.3  # of the 0.4 s that the warm-up sleeps
    assert run.wall_s is not None
    assert run.first_token_s is not None
    assert sum(run.phases.values()) <= run.wall_s + 1e-6
    assert run.wall_s <= run.first_token_s
    assert "hunter2" not in (tmp_path / "r.jsonl").read_text()
    assert {"worker_spawn", "weight_load", "kv_cache_init"} <= run.phases.keys()


def test_sglang_that_never_says_ready(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "never_ready")
    with pytest.raises(ServerError, match=r"not ready after 2 s \(the log has not reported ready, last phase"):
        measured(sglang(tmp_path), limits=QUICK.replace(ready_s=1.5))


SGLANG_LOG = """\
2025-05-20T09:00:01.000Z [2025-05-20 09:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-0.6B', dtype='auto', tp_size=1)
2025-05-20T09:00:05.000Z [2025-05-20 09:00:05] Init torch distributed begin.
2025-05-20T09:00:06.000Z [2025-05-20 09:00:06] Load weight begin. avail mem=78.12 GB
2025-05-20T09:00:08.000Z [2025-05-20 09:00:08] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=77.0 GB, mem usage=1.10 GB.
2025-05-20T09:00:09.000Z [2025-05-20 09:00:09] Memory pool end. avail mem=9.93 GB
2025-05-20T09:00:10.000Z [2025-05-20 09:00:10] max_total_num_tokens=1024, chunked_prefill_size=8192, max_running_requests=2049
2025-05-20T09:00:21.000Z [2025-05-20 09:00:21] The server is fired up and ready to roll!
"""


def recorded(measured: MeasuredStart) -> tuple[RunRecord, list[str]]:
    return record_of(
        measured, HardwareConfig.preset("h100-sxm"), page_cache="hot", compile_cache="warm", environment={}, host_notes={}, is_first=False,
        host="h", dataset="d", step="base 1",
    )  # fmt: skip


def test_a_measured_start_is_never_lost_over_its_record() -> None:
    log = parse_log(SGLANG_LOG)
    late = MeasuredStart(
        log, wall_s=12.0, first_line_s=1.0, first_token_s=13.0, problem="", killed=0, version="not a version"
    )
    run, problems = recorded(late)
    assert run.wall_s == 22.0  # the log's 21 s from its first line, and 1 s before it
    assert (run.first_token_s, run.engine.version) == (None, None)
    assert problems == ["no first token: it came before the line that says ready"]
    odd = late._replace(
        log=replace(log, phases=dict(log.phases) | {"weight_load": 500.0}), first_token_s=40.0, version="0.4.6"
    )
    run, problems = recorded(odd)
    assert (run.wall_s, run.phases["weight_load"], run.engine.version) == (None, 500.0, "0.4.6")
    assert problems[0].startswith("recorded without its time to ready: they come to more than wall_s")


def test_downloading_weights_is_no_part_of_a_start() -> None:
    log = parse_log(SGLANG_LOG)
    log = replace(log, facts=dict(log.facts) | {"download_s": 5.0}, phases=dict(log.phases) | {"api_ready": 6.0})
    start = MeasuredStart(log, wall_s=23.0, first_line_s=1.0, first_token_s=24.0, problem="", killed=0, version="0.4.6")
    run, problems = recorded(start)
    assert (run.wall_s, run.first_token_s, problems) == (18.0, 19.0, [])
    assert run.host_notes["download"].startswith("5.0 s")


# --- plans --------------------------------------------------------------------------------------------------------------


def test_a_full_plan_holds_what_can_be_told_apart_and_no_more(engine: str, tmp_path: Path) -> None:
    models = [str(tmp_path / "model"), str(checkpoint(tmp_path / "other", layers=12))]
    launch = launch_of(engine)
    one = schedule_of(launch, NODE, plan="full")
    two = schedule_of(launch, NODE, plan="full", models=models)
    assert Case() in one.cases
    assert any(step.compile_cache == "fresh" for step in one.cases)
    assert any(step.page_cache == "cold" for step in one.cases)
    assert len(one.cases) < len(two.cases) <= 10
    assert len(schedule_of(launch, NODE, plan="quick", models=models).cases) == 2
    assert two.total_s is not None
    assert two.total_s == pytest.approx(sum(seconds or 0.0 for seconds in (*two.seconds, two.seconds[0])))
    assert min(seconds or 0.0 for seconds in two.seconds) > 0


def test_the_start_that_compiles_is_one_of_a_full_plan(engine: str, tmp_path: Path) -> None:
    """It fills a fresh cache, in which the warm start finds its graphs: neither is made twice."""
    plan = schedule_of(launch_of(engine), NODE, plan="full")
    fresh = Case(compile_cache="fresh")
    assert [step for step in plan.cases if step.compile_cache == "fresh"] == [fresh]
    assert plan.cases.index(fresh) < plan.cases.index(Case())
    assert set(plan.compiling_s) == {0.0}
    heard: list[StepNews] = []
    runs = measured(engine, plan="full", request=False, listener=heard.append)
    assert len(starts_of(tmp_path)) == len(runs) == len(plan.cases)
    assert all(run.step for run in runs)
    assert [run.engine.compile_cache for run in runs if not run.engine.enforce_eager][:2] == ["cold", "warm"]
    assert not (tmp_path / "cache" / "graphs").exists()
    assert heard[0].plan.steps == plan.cases


@pytest.mark.parametrize(
    ("page", "cache"), [("cold", "warm"), ("as_is", "warm"), ("hot", "fresh"), ("as_is", "fresh"), ("cold", "fresh")]
)
def test_a_full_plan_holds_the_base_in_the_state_that_was_asked_for(engine: str, page: Any, cache: Any) -> None:
    plan = schedule_of(launch_of(engine), NODE, plan="full", page_cache=page, compile_cache=cache)
    assert Case(page_cache=page, compile_cache=cache) in plan.cases
    assert Case(page_cache=page, compile_cache="fresh") in plan.cases  # the start that has to compile anyway
    assert len(plan.cases) == len(set(plan.cases))


def test_no_start_is_made_twice(engine: str) -> None:
    eager = schedule_of(launch_of(f"{engine} --enforce-eager"), NODE, plan="differential")
    assert [step.name for step in eager.cases] == ["base", "dummy"]
    dummy = schedule_of(launch_of(f"{engine} --load-format dummy"), NODE, plan="differential")
    assert [step.name for step in dummy.cases] == ["base", "eager"]
    assert [step.name for step in schedule_of(launch_of(engine), NODE, plan="differential").cases] == [
        "base", "eager", "dummy",
    ]  # fmt: skip


def test_what_a_plan_will_take(engine: str) -> None:
    plan = schedule_of(launch_of(engine), NODE, plan="differential", repetitions=2)
    base, again, eager, _, dummy, _ = plan.seconds
    assert base == again
    assert base is not None
    assert plan.starts_s(0, is_first=True) == (plan.compiling_s[0], base)
    assert (plan.compiling_s[0] or 0.0) > base
    assert plan.starts_s(1, is_first=False) == (base,)
    assert plan.starts_s(2, is_first=True) == (eager, eager)
    assert plan._replace(warm_up=False).starts_s(2, is_first=True) == (eager,)
    assert plan.remaining_s(range(6)) == 0.0
    assert plan.remaining_s(range(5)) == pytest.approx(2 * (dummy or 0.0))


def test_a_time_that_cannot_be_said_is_not_made_up(tmp_path: Path) -> None:
    unknown = schedule_of(launch_of("vllm serve nobody/knows-this"), NODE)
    assert (unknown.seconds, unknown.total_s) == ((None,), None)
    assert "the start-up time cannot be estimated: " in unknown.warnings[0]
    full = schedule_of(launch_of("vllm serve nobody/knows-this"), NODE, plan="full")
    assert "only the base is measured" in full.warnings[0]
    wide = launch_of("vllm serve Qwen/Qwen3-0.6B -tp 8")
    one = HardwareConfig.preset("h100-sxm")
    assert schedule_of(wide, one).total_s is None
    node = node_of("h100-sxm", wide, host_facts())
    assert node.gpus == 8
    assert schedule_of(wide, node).total_s is not None
    known = ModelConfig.from_catalogue("Qwen/Qwen3-0.6B")
    assert schedule_of(launch_of("vllm serve nobody/knows-this"), NODE, model=known).total_s is not None


def test_the_remaining_time_of_a_schedule() -> None:
    steps = (Case(), Case(eager=True), Case(dummy=True))
    pace = RemainingTime(Schedule(steps, (10.0, 8.0, 6.0), (20.0, 0.0, 0.0)), {2: 0}, now=100.0)
    assert pace.left_s(100.0) == 38.0
    assert pace.left_s(105.0) == 33.0
    pace.end(0, 140.0, is_warm_up=True)  # twice as long as expected
    assert pace.left_s(140.0) == 36.0
    pace.begin(150.0)  # reading the checkpoint counts with the start
    pace.end(0, 170.0, is_warm_up=False)
    assert pace.left_s(171.0) == 15.0
    pace.end(1, 190.0, is_warm_up=False)
    assert pace.left_s(500.0) == 0.0
    # The compiling start turns out not to be needed: what it would have taken is not counted.
    warm = RemainingTime(Schedule(steps[:2], (10.0, 8.0), (20.0, 0.0)), (), now=0.0)
    warm.end(0, 10.0, is_warm_up=False)
    assert warm.left_s(10.0) == 8.0
    unknown = RemainingTime(Schedule(steps[:2], (None, None), (0.0, 0.0), warm_up=False), (), now=0.0)
    assert unknown.left_s(0.0) is None
    unknown.end(0, 12.0, is_warm_up=False)
    assert unknown.left_s(12.0) == 12.0


def test_a_plan_goes_on_after_an_interruption(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    started = []

    def interrupt(news: StepNews) -> None:
        if news.record is not None:
            assert read_runs(out)[-1] == news.record  # on disk before anybody hears of it
            started.append(news)
            if len(started) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(engine, plan="differential", out=out, listener=interrupt)
    assert len(read_runs(out)) == 2
    with out.open("a") as file:
        file.write('{"model": {"name": "torn')
    heard: list[StepNews] = []
    with pytest.warns(UserWarning, match="half written"):
        runs = measured(engine, plan="differential", out=out, resume=True, listener=heard.append)
    assert [run.step for run in read_runs(out) if run.step] == [run.step for run in runs]
    assert len({run.step for run in runs}) == 3
    assert heard[0].note == "done before"
    assert heard[-1].left_s == 0.0
    assert len(starts_of(tmp_path)) == 4


def test_what_another_host_or_version_has_measured_is_measured_again(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    (run,) = measured(f"{engine} --enforce-eager", out=out, request=False)
    launch = launch_of(f"{engine} --enforce-eager")
    plan = schedule_of(launch, NODE)
    assert finished_cases(session_of(launch, host=run.host), plan, out) == {0: run}
    assert finished_cases(session_of(launch, host="another"), plan, out) == {}
    assert launch.engine is not None
    newer = launch._replace(engine=launch.engine.replace(version="0.12.0"))
    assert finished_cases(session_of(newer, host=run.host), plan, out) == {}
    write_runs([run.replace(host="another")], out)
    assert len(measured(f"{engine} --enforce-eager", out=out, request=False, resume=True)) == 1
    assert len(read_runs(out)) == 2
    (tmp_path / "empty").touch()
    assert finished_cases(session_of(launch), plan, tmp_path / "empty") == {}


def test_the_command_says_what_it_will_do_and_what_it_has_done(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    node = ("profile", "--hardware", "cpu", "--grace", "0.05", "--no-warm-up", "--out", out)
    dry = command(*node, "--dry-run", "--differential", "--", *engine.split())
    assert dry.status == 0, dry.err
    assert "3 case(s), about" in dry.err
    assert "for a start before it, excluded as warm-up" in dry.err
    assert not out.exists()
    eager = ("--", *engine.split(), "--enforce-eager")
    done = command(*node, *eager)
    assert done.status == 0, done.err
    assert "time to ready" in done.out
    assert "reading the checkpoint, file 1 of 1" in done.err
    again = command(*node, "--resume", "--json", *eager)
    assert "1 case(s), 1 of them done before, about 0 s in all" in again.err
    assert [json.loads(line)["status"] for line in again.out.splitlines()] == ["ok"]
    assert len(read_runs(out)) == 1


def test_starts_are_shown_side_by_side(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    print_runs(scene.runs, isolated_phases(scene.runs), scene.out)
    shown = capsys.readouterr().out
    for text in (
        "time to ready",
        "first token",
        "kv_cache_init",
        "warm-up",
        "base less",
        "weight_load = ",
        "0.04 s by its log",
    ):
        assert text in shown


def test_what_is_said_of_a_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Schedule((Case(), Case(eager=True)), (10.0, None), (300.0, 0.0), warnings=("something",))
    announce(plan, {}, "vllm serve m")
    told = capsys.readouterr().err.replace("startup-model: ", "")
    assert "2 case(s), for an unknown time in all, of: vllm serve m\n" in told
    assert "compile cache warm: about 10 s, and about 5 min for a start before it, excluded as warm-up\n" in told
    assert "warning: something\n" in told
    announce(plan, {1: run_of(5.0, {})}, "vllm serve m")
    told = capsys.readouterr().err
    assert "2 case(s), 1 of them done before, about 5 min in all" in told
    assert "eager, page cache hot: done before" in told
    with View(as_json=False) as view:
        record = run_of(5.0, {"weight_load": 1.0}).replace(measured_from="first_line", first_token_s=8.0)
        view.on_event(StepNews(plan, 0, progress=Progress(None, 1.0, "preparing"), left_s=310.0))
        view.on_event(StepNews(plan, 0, progress=Progress("weight_load", 3.0)))
        view.on_event(
            StepNews(plan, 0, record=record, is_warm_up=True, note="the first start of the session, it compiled")
        )
        view.on_event(StepNews(plan, 1, record=record.replace(wall_s=None), note="done before"))
    said = capsys.readouterr().err.replace("startup-model: ", "").splitlines()
    assert said == [
        "1/2 base: 1 s, preparing; about 5 min left",
        "1/2 base: 3 s, after weight_load",
        "base, page cache hot, compile cache warm: ready after 5.00 s from its first line, first token after 8.00 s (the first start of the session, it compiled: excluded as warm-up)",
        "eager, page cache hot: first token after 8.00 s (done before)",
    ]


# --- differences --------------------------------------------------------------------------------------------------------


def test_differential_runs_isolate_phases(scene: Scene) -> None:
    kinds = [(run.engine.enforce_eager, run.engine.load_format, run.engine.compile_cache) for run in scene.runs]
    assert kinds == [(False, "auto", "cold"), (False, "auto", "warm"), (True, "auto", "warm"), (False, "dummy", "warm")]
    eager, dummy = isolated_phases(scene.runs)
    assert (eager.label, eager.by_log_s) == ("eager", 0.01)
    assert (dummy.label, dummy.phases, dummy.by_log_s) == ("dummy", ("weight_load",), 0.04)


def run_of(wall_s: float, phases: dict[str, float], **engine: Any) -> RunRecord:
    config = {"page_cache": "hot", "compile_cache": "warm"} | engine
    return RunRecord(
        model=ModelConfig.from_catalogue("Qwen/Qwen3-0.6B"), hardware=NODE, engine=EngineConfig(**config), phases=phases, wall_s=wall_s, step="s",
        sums=() if "enforce_eager" in engine else (PhaseSum(phases=("graph_compile", "graph_trace"), seconds=2.0),),
    )  # fmt: skip


def test_differences_by_wall_time_and_by_phases() -> None:
    """Figures made up: medians of three bases 10, 10 and 30 s."""
    load = {"weight_load": 1.5, "graph_capture": 0.5}
    runs = [
        run_of(30.0, load),
        run_of(10.0, load),
        run_of(10.0, load),
        run_of(7.0, {"weight_load": 1.4}, enforce_eager=True),
        run_of(8.0, {"graph_capture": 0.5}, load_format="dummy"),
        run_of(7.5, load, optimization_level=0).replace(sums=()),
        run_of(40.0, load, compile_cache="cold"),
        run_of(99.0, load).replace(step=""),
        run_of(5.0, load, enforce_eager=True, page_cache="cold"),
    ]
    eager, dummy, uncompiled = isolated_phases(runs)
    assert (eager.label, eager.by_wall_s, eager.by_log_s, eager.starts) == ("eager", 3.0, 2.5, (3, 1))
    assert eager.phases == ("graph_trace", "graph_compile", "graph_capture")
    assert eager.differences_s["weight_load"] == pytest.approx(0.1)
    assert eager.differences_s["graph_compile + graph_trace"] == 2.0
    assert (dummy.by_wall_s, dummy.by_log_s, dummy.differences_s["weight_load"]) == (2.0, 1.5, 1.5)
    assert (uncompiled.by_wall_s, uncompiled.by_log_s) == (2.5, 2.0)
    assert isolated_phases(runs[:3]) == ()
    both = run_of(5.0, {}, enforce_eager=True, load_format="dummy")
    (of_eager,) = isolated_phases([runs[3], both])
    assert (of_eager.label, of_eager.by_wall_s, of_eager.by_log_s) == ("dummy", 2.0, 1.4)
    capturing = run_of(7.0, {"graph_capture": 0.5}, optimization_level=0).replace(sums=())
    (of_uncompiled,) = isolated_phases([capturing, run_of(6.0, {}, optimization_level=0, enforce_eager=True)])
    assert (of_uncompiled.phases, of_uncompiled.by_log_s) == (("graph_capture",), 0.5)


# --- nothing outlives the profiler --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "number"),
    [
        *(("unhealthy", signal.SIGKILL), ("unhealthy", signal.SIGINT)),
        *(("stubborn", signal.SIGKILL), ("stubborn", signal.SIGTERM)),
    ],
)
def test_no_process_of_the_server_outlives_the_profiler(
    engine: str, tmp_path: Path, number: signal.Signals, behaviour: str
) -> None:
    # A stubborn one is ready at once: it is asked for a path that it never says ready on, and meets the signal with its own ignored.
    command = [
        sys.executable,
        "-m",
        "startup_model",
        "profile",
        "--hardware",
        "cpu",
        "--grace",
        "0.5",
        "--health-path",
        "/health" if behaviour == "unhealthy" else "/nowhere",
        "--out",
        str(tmp_path / "r.jsonl"),
        "--",
        *engine.split(),
    ]
    with subprocess.Popen(command, env=os.environ | {"FAKE_ENGINE": behaviour}, stderr=subprocess.DEVNULL) as profiler:
        pids = wait_for(tmp_path / "pids")
        assert all(map(lives, pids))
        profiler.send_signal(number)
        profiler.wait(30)
    assert all_gone(pids)


def test_a_server_that_ignores_sigterm_is_killed(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "stubborn")
    (run,) = measured(f"{engine} --enforce-eager")
    assert run.host_notes["killed"].startswith("3 ")
    assert not any(map(lives, wait_for(tmp_path / "pids")))


def test_nothing_is_left_when_the_supervisor_is_killed(engine: str, tmp_path: Path) -> None:
    port = free_port()
    words = launch_of(engine).command(port)
    with Server([str(tmp_path / "bin" / "vllm"), *words[1:]], grace_s=0.5) as server:
        pids = wait_for(tmp_path / "pids")
        os.kill(server._supervisor.pid, signal.SIGKILL)
    assert server.killed >= 1
    assert all_gone(pids)


def test_an_exception_in_the_listener_ends_the_server(engine: str, tmp_path: Path) -> None:
    def fail(news: object) -> None:
        if (tmp_path / "pids").exists():
            raise RuntimeError("listener")

    with pytest.raises(RuntimeError, match="listener"):
        profile_server(engine, hardware=NODE, limits=QUICK, listener=fail)
    assert all_gone(wait_for(tmp_path / "pids"))


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (
            "exit",
            r"the server ended with status 3 after .* before it was ready",
        ),
        ("oom", r"the server ended with status 1 after .*: oom, .*CUDA out of memory"),
        ("silent", r"not ready after 1 s \(nothing listens, no known line yet\): give it more time"),
        ("unhealthy", r"not ready after 2 s \(/health answers 503, last phase in the log: \w+\)"),
    ],
)
def test_servers_that_do_not_come_up(
    engine: str, monkeypatch: pytest.MonkeyPatch, behaviour: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", behaviour)
    with pytest.raises(ServerError, match=message) as caught:
        profile_server(engine, hardware=NODE, limits=QUICK.replace(ready_s=0.6 if behaviour == "silent" else 1.5))
    assert ("verysecret" not in str(caught.value.last_lines), bool(caught.value.last_lines)) == (
        True,
        behaviour != "silent",
    )
    if behaviour == "exit":
        assert caught.value.last_lines == ["error: api_key=*** is of no use"]
    assert (
        caught.value.__notes__ == [f"  | {line}" for line in caught.value.last_lines]
        if caught.value.last_lines
        else True
    )


def test_a_wrong_health_path_is_told_soon(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.measure.endpoint._PATIENCE_S", 0.3)
    monkeypatch.setenv("FAKE_ENGINE", "no_health")
    with pytest.raises(ServerError, match=r"/health answers 404: give the path that says ready"):
        profile_server(f"{engine} --enforce-eager", hardware=NODE, limits=QUICK)


def test_what_was_measured_before_a_failure_is_kept(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "runs.jsonl"

    def break_it(news: StepNews) -> None:
        if news.record is not None and not news.is_warm_up:
            monkeypatch.setenv("FAKE_ENGINE", "exit")

    with pytest.raises(ServerError):
        measured(engine, plan="differential", out=out, listener=break_it)
    assert [run.status for run in read_runs(out)] == ["ok", "ok"]


def test_a_taken_port_is_named(engine: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(ConfigError, match=rf"--port.*{port}.*another program listens there"):
            profile_server(f"{engine} --port {port}", hardware=NODE, limits=QUICK)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "there is no program in it"),
        ("vllm serve 'm", "cannot be split into words"),
        ("nosuchprogram --port {port}", "nosuchprogram.*no such program"),
        ("bash -c 'vllm serve m'", "bash starts the server: flags cannot be added"),
        ("/ --port {port}", "it is a folder"),
        ("/etc/passwd --port {port}", "it cannot be executed"),
    ],
)
def test_commands_that_cannot_be_run(command: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile_server(command, hardware=NODE, model="Qwen/Qwen3-0.6B", limits=Limits(ready_s=2.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "ful"}, r"plan = 'ful': must be 'base', .*did you mean 'full'\?"),
        ({"plan": 3}, "plan = 3: must be 'base', 'differential', 'quick' or 'full'"),
        ({"page_cache": "warm"}, "page_cache = 'warm': must be 'hot', 'cold' or 'as_is'"),
        ({"compile_cache": "cold"}, "compile_cache = 'cold': must be 'warm' or 'fresh'"),
        ({"torch_compile": "no"}, "torch_compile = 'no'"),
        ({"repetitions": 0}, "repetitions = 0: must be greater than or equal to 1"),
        ({"repetitions": "3"}, "repetitions = '3'"),
        ({"repetitions": 1.5}, "repetitions = 1.5"),
        ({"repetitions": True}, "repetitions = True"),
        ({"models": "path"}, "models = 'path': must be a valid tuple"),
        ({"models": 7}, "models = 7"),
        ({"models": [""]}, "models.0 = '': "),
        ({"models": ["--x"]}, "models.0 = '--x'"),
        ({"warm_up": "no"}, "warm_up = 'no': must be a valid boolean"),
        ({"request": 1}, "request = 1: must be a valid boolean"),
        ({"resume": "x"}, "resume = 'x': must be a valid boolean"),
        ({"resume": True}, "resume = True: there is no file to go on with"),
        ({"drop_caches": True}, "drop_caches = True: only a cold start empties caches"),
        ({"health_path": "health"}, "health_path = 'health': must be the path of a URL; give one such as /health"),
        ({"health_path": "/a b"}, "health_path"),
        ({"health_path": "/ü"}, "health_path"),
        ({"health_path": 5}, "health_path = 5"),
        ({"dataset": "x" * 300}, "dataset = .*at most 200 characters"),
        ({"limits": {"ready_s": float("nan")}}, "ready_s = nan"),
        ({"limits": {"ready_s": "5"}}, "ready_s = '5': must be a valid number"),
        ({"limits": {"grace_s": 0}}, "grace_s = 0: must be greater than 0"),
        ({"limits": 5}, "limits = 5"),
        ({"listener": 5}, "listener = 5: must be a function"),
        ({"out": 42}, "out = 42: must be the name of a file"),
        ({"model": 42}, "model_cfg = 42"),
        ({"profile": 42}, "profile = 42"),
        ({"hardware": 42}, "hw_cfg = 42"),
    ],
)
def test_arguments_are_checked_before_anything_starts(
    engine: str, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(StartupModelError, match=message):
        measured(engine, **options)
    assert starts_of(tmp_path) == []


def test_the_engine_says_where_its_health_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ScheduleOptions()
    assert prepared("vllm serve Qwen/Qwen3-0.6B", options, hardware="cpu")[0].health_path == "/health"
    assert prepared("./own {port}", options, hardware="cpu")[0].health_path == "/health"
    own = find("vllm")
    assert own.deploy is not None
    monkeypatch.setattr(
        "calibration.measure.run.find", lambda _: own._replace(deploy=own.deploy._replace(health="/up"))
    )
    assert prepared("vllm serve Qwen/Qwen3-0.6B", options, hardware="cpu")[0].health_path == "/up"
    given = prepared("vllm serve Qwen/Qwen3-0.6B", options, hardware="cpu", health_path="/x")
    assert given[0].health_path == "/x"


def test_what_could_not_be_recorded_is_not_started(engine: str, tmp_path: Path) -> None:
    (checkpoint(tmp_path / "unknown") / "config.json").unlink()
    with pytest.raises(StartupModelError, match=r"config\.json"):
        measured(f"vllm serve {tmp_path / 'unknown'}")
    with pytest.raises(ConfigError, match=r"nobody/knows-this.*not on this host.*download it first"):
        measured("vllm serve nobody/knows-this")
    with pytest.raises(ConfigError, match="more ranks than accelerators"):
        measured(f"{engine} -tp 4", hardware=HardwareConfig.preset("h100-sxm"))
    with pytest.raises(ConfigError, match="the checkpoint is not a folder on this host"):
        measured("vllm serve Qwen/Qwen3-0.6B", page_cache="cold", model="Qwen/Qwen3-0.6B")
    with pytest.raises(InputFileError, match="cannot be written"):
        measured(engine, out=tmp_path / "nowhere" / "runs.jsonl")
    assert starts_of(tmp_path) == []


def test_options_are_checked(engine: str) -> None:
    bad = command("profile", "--plan", "everything", "--", *engine.split())
    assert bad.status == 2
    assert "plan = 'everything': must be 'base'" in bad.err.replace("\n", " ")
    with pytest.raises(
        ConfigError, match=r"--plan = 'full': contradicts --differential, a plan of its own; give one of the two"
    ):
        _kind("full", differential=True)
    assert [_kind(None, differential=False), _kind("quick", differential=False)] == ["base", "quick"]
    assert _kind(None, differential=True) == _kind("differential", differential=True) == "differential"


def test_errors_of_servers_travel_between_processes() -> None:
    error = ServerError("not ready", ["one", "two"])
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own
    assert (str(copy), copy.last_lines, copy.__notes__) == (str(error), ["one", "two"], error.__notes__)


def test_a_checkpoint_that_vanishes(engine: str, tmp_path: Path) -> None:
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(InputFileError, match="no weights in it"):
        profile_server(engine, hardware=NODE, limits=QUICK)


def test_a_full_disk_keeps_what_is_whole(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    limited = (
        "import resource, sys; from startup_model.cli import main; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
        f"sys.argv = ['startup-model', 'profile', '--hardware', 'cpu', '--grace', '0.5', '--out', {str(out)!r}, '--', *{engine.split()!r}, '--enforce-eager']; main()"
    )
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "cannot be written" in done.stderr
    assert read_runs(out) == [] if out.exists() and out.stat().st_size else True


def test_what_ends_a_plan_says_what_is_kept(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "runs.jsonl"

    def vanish(news: StepNews) -> None:
        if news.record is not None:
            (tmp_path / "model").rename(tmp_path / "gone")

    with pytest.raises(
        InputFileError, match="it was there when the schedule began, and is gone; put the model"
    ) as caught:
        measured(f"{engine} --enforce-eager", repetitions=2, out=out, listener=vanish, request=False)
    assert caught.value.__notes__ == [
        f"1 record(s) of this session are kept in {out}; resume=True (--resume) goes on after them"
    ]
    assert len(starts_of(tmp_path)) == 1


def test_a_file_for_records_is_tried_before_anything_starts(engine: str, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("hello\n")
    os.mkfifo(tmp_path / "fifo")
    for out, message in (
        (tmp_path / "fifo", "not a regular file"),
        ("/dev/null", "not a regular file"),
        ("/dev/full", "not a regular file"),
        (tmp_path, "cannot be written"),
        (other, "it holds no JSON lines"),
        (tmp_path / ("x" * 300), "File name too long"),
        ("a\0b", "must be the name of a file"),
        ("", "must be the name of a file"),
    ):
        for resume in (False, True):
            with pytest.raises(StartupModelError, match=message):
                measured(engine, out=out, resume=resume)
    assert starts_of(tmp_path) == []
    assert other.read_text() == "hello\n"


def test_a_link_to_a_file_that_is_not_there_stays_a_link(engine: str, tmp_path: Path) -> None:
    link, target = tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    link.symlink_to(target)
    measured(f"{engine} --enforce-eager", out=link, request=False)
    assert link.is_symlink()
    assert len(read_runs(target)) == 1


def test_a_file_of_another_profiler_is_never_removed(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    check_appendable(out)
    append_run(run_of(5.0, {}), out)
    check_appendable(out)
    assert len(read_runs(out)) == 1


def test_a_file_that_another_process_has_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.runs.write._LOCK_S", 0.1)
    out = tmp_path / "runs.jsonl"
    append_run(run_of(5.0, {}), out)
    with out.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputFileError, match=r"runs\.jsonl: another process has locked it for 0 s; end that one"):
            append_run(run_of(6.0, {}), out)
    append_run(run_of(7.0, {}), out)
    assert len(read_runs(out)) == 2


def test_what_can_be_known_is_known_before_the_checkpoint_is_read(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibration.measure.states.read_into_cache", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ConfigError, match="no such program"):
        measured(engine.replace("vllm", "/nowhere/vllm", 1))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match="another program listens there"):
            measured(f"{engine} --port {port}")
        dry = command("profile", "--dry-run", "--hardware", "cpu", "--", *engine.split(), "--port", port)
    assert (dry.status, "another program listens there" in dry.err) == (2, True)
    assert starts_of(tmp_path) == []


# --- secrets ------------------------------------------------------------------------------------------------------------


def test_values_of_secret_flags_and_variables_are_hidden_wherever_they_stand() -> None:
    words = ["vllm", "serve", "m", "--api-key", "first", "second", "--port", "80", "--hf-token=plainword"]
    environment = {"VLLM_S3_CRED": "alpha", "HF_TOKEN": "beta/gamma", "SSH_AUTH_SOCK": "/etc", "SOME_AUTH": "1", "HOME": "/home/me"}  # fmt: skip
    assert set(secret_values(words, environment)) == {"first", "second", "plainword", "alpha", "beta/gamma"}
    hide = redactor(words, environment)
    assert hide("key first, second; plainword alpha beta/gamma 80") == "key ***, ***; *** *** *** 80"
    assert redactor(["vllm", "serve", "m"], {})("api_key=abc of m") == "api_key=*** of m"
    assert launch_of("vllm serve m --api-key mykey --served-model-name mykey").redacted().count("mykey") == 0


def test_no_secret_of_the_command_is_in_what_is_said(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_S3_CRED", "opensesame")
    command = f"{engine} --enforce-eager --api-key plainword"
    heard: list[StepNews] = []
    monkeypatch.setenv("FAKE_ENGINE", "secret")
    measured(command, out=tmp_path / "r.jsonl", listener=heard.append)
    assert heard[-1].note == r"no first token: /v1/completions answers 400: \x1b[31mno *** for you"
    written = (tmp_path / "r.jsonl").read_text()
    assert ("plainword" in written, "opensesame" in written) == (False, False)
    monkeypatch.setenv("FAKE_ENGINE", "secret_end")
    with pytest.raises(ServerError) as caught:
        measured(command)
    assert "plainword" not in f"{caught.value} {caught.value.last_lines}"
    assert "***" in caught.value.last_lines[-1]


def test_variables_are_secret_by_short_names_too() -> None:
    names = ("VLLM_AUTH", "VLLM_PASS", "VLLM_KEY", "SGLANG_PWD", "TORCH_AUTH", "VLLM_S3_CRED")
    assert environment_that_matters(dict.fromkeys(names, "abc")) == {}
    assert environment_that_matters({"VLLM_X": "hf_abcdefghijkl", "VLLM_EXTRA": "password=abc"}) == {}
    assert environment_that_matters({"VLLM_USE_AUTH": "1"}) == {"VLLM_USE_AUTH": "1"}


# --- servers that answer oddly --------------------------------------------------------------------------------------------


def test_an_engine_that_dies_on_the_first_request(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "crash")
    heard: list[StepNews] = []
    (run,) = measured(f"{engine} --enforce-eager", listener=heard.append)
    assert run.first_token_s is None
    assert "the server ended with status 7 after it was ready: " in heard[-1].note
    assert heard[-1].note.endswith("FATAL: segmentation fault of the kernel")


@pytest.mark.parametrize(
    ("behaviour", "note"), [("drip", "no token came within 0.5 s"), ("nested", "RecursionError: ")]
)
def test_answers_without_an_end(engine: str, monkeypatch: pytest.MonkeyPatch, behaviour: str, note: str) -> None:
    monkeypatch.setenv("FAKE_ENGINE", behaviour)
    heard: list[StepNews] = []
    limits = QUICK.replace(request_s=0.5 if behaviour == "drip" else 10.0)
    (run,) = measured(f"{engine} --enforce-eager", listener=heard.append, limits=limits)
    assert run.status == "ok"
    assert heard[-1].note.startswith(f"no first token: {note}")


def test_one_deadline_for_all_that_a_server_is_asked() -> None:
    """It takes the connection and sends a byte now and then: no receive of its own is ever late."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = threading.Event()

        def drip() -> None:
            connected, _ = listener.accept()
            with connected:
                while not ends.wait(0.02):
                    try:
                        connected.sendall(b"H")
                    except OSError:
                        return

        for ask, late in (
            (first_token, "no token came within 0.2 s"),
            (lambda port, limit: served_version(port, limit, ["/version"]), None),
        ):
            thread = threading.Thread(target=drip)
            thread.start()
            found = ask(listener.getsockname()[1], 0.2)
            ends.set()
            thread.join()
            ends.clear()
            assert (found if late is None else getattr(found, "problem", "")) == late


def test_a_stream_without_end_and_without_a_pause() -> None:
    """There is always something to read: the deadline counts all the same."""
    models = b'{"data": [{"id": "m"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(models), models), head]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for text in answers:
                connected, _ = listener.accept()
                with connected, suppress(OSError):
                    connected.recv(4096)
                    connected.sendall(text)
                    while text is head:
                        connected.sendall(b": ping\n" * 1000)

        thread = threading.Thread(target=answer)
        thread.start()
        began = time.monotonic()
        assert first_token(listener.getsockname()[1], 0.5).problem == "no token came within 0.5 s"
        thread.join()
    assert time.monotonic() - began < 10


def test_another_program_that_answers_in_the_place_of_the_server(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came to listen between the look at the port and the server's own."""
    monkeypatch.setenv("FAKE_ENGINE", "elsewhere")
    ready = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        taken: list[int] = []

        def take_the_port(news: StepNews) -> None:
            words = " ".join(starts_of(tmp_path)).split()
            if taken or not words:
                return
            taken.append(int(words[words.index("--port") + 1]))
            foreign = stack.enter_context(socket.create_server(("127.0.0.1", taken[0])))
            threading.Thread(target=answer_all, args=(foreign,), daemon=True).start()

        def answer_all(foreign: socket.socket) -> None:
            while True:
                try:
                    connected, _ = foreign.accept()
                except OSError:
                    return
                with connected, suppress(OSError):
                    connected.recv(4096)
                    connected.sendall(ready)

        with pytest.raises(ServerError, match=r"comes from another program on port \d+: leave --port out"):
            measured(f"{engine} --enforce-eager", listener=take_the_port)
        stack.callback(lambda: socket.create_connection(("127.0.0.1", taken[0])).close())  # wakes it
    assert len(starts_of(tmp_path)) == 1


def test_an_external_launcher_is_said() -> None:
    launch = launch_of("docker run -p {port}:8000 vllm/vllm-openai --model m")
    assert launch.external_launcher == "docker"
    plan = schedule_of(launch, NODE, model=ModelConfig.from_catalogue("Qwen/Qwen3-0.6B"))
    assert "docker starts the server elsewhere: it ends only as far as docker ends it" in plan.warnings[0]
    assert launch_of("vllm serve m").external_launcher is None


def test_a_check_that_cannot_be_made_is_said(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert schedule_of(launch_of(engine)).warnings == ()
    monkeypatch.setattr("calibration.measure.schedule.sees_listeners", lambda: False)
    (warning,) = schedule_of(launch_of(engine)).warnings
    assert warning.endswith("in the place of the server is not checked; pip install 'startup-model[profile]'")


class Talker:
    """A server that prints without end."""

    started = 0.0

    def __init__(self, pieces: int) -> None:
        self.said, self.pieces = 0, pieces

    def read(self, _: float) -> bytes | None:
        self.said += 1
        return b"x" * 4096 if self.said <= self.pieces else None


def test_output_that_is_not_read_yet_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "_MAX_WAITING", 50)
    talker = Talker(200)
    follower = Follower(talker, lambda _: None)  # type: ignore[arg-type]
    end = time.monotonic() + 20
    while talker.said < 51 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    assert talker.said == 51  # one more is held
    while follower.step():
        pass
    assert talker.said == 201
    assert not follower.step()
    blocked = Follower(Talker(10**9), lambda _: None)  # type: ignore[arg-type]
    blocked.close()


def test_a_server_that_prints_much_loses_nothing_of_its_log(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "flood")
    monkeypatch.setattr(start_module, "_MAX_WAITING", 64)
    (run,) = measured(f"{engine} --enforce-eager", limits=QUICK.replace(ready_s=60.0, request_s=60.0))
    assert run.first_token_s is not None
    assert {"weight_load", "kv_cache_init"} <= run.phases.keys()


# --- parts --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_stamps_add_nothing_but_stamps(pieces: list[bytes]) -> None:
    journal = Journal(0.0)
    stamped = b"".join(journal.stamped(piece, float(i)) for i, piece in enumerate(pieces))
    assert len(stamped) >= len(b"".join(pieces))
    parser = StartupLogParser(by_carrier=True)
    parser.feed(stamped)
    parser.finish()
    assert len(journal.last_lines()) <= 13


def test_stamps_time_lines_by_their_arrival() -> None:
    journal = Journal(100.0)
    parser = StartupLogParser(by_carrier=True)
    for at, text in (
        (101.5, "INFO 01-01 10:00:00 [x.py:1] vLLM API server version 0.11.0\n"),
        (103.25, "INFO 01-01 10:00:02 [x.py:1] Starting to load model m...\nLoad"),
        (103.5, "ing\n"),
    ):
        parser.feed(journal.stamped(text.encode(), at))
    (start,) = parser.finish()
    assert journal.first_line_s == 1.5
    assert start.stamp_resolution_s == 0.001
    assert {moment.event: moment.elapsed_s for moment in start.moments}["load_begun"] == pytest.approx(1.75, abs=1e-5)
    assert journal.last_lines()[-1] == "Loading"


def test_the_state_of_the_compile_cache_is_what_the_log_says() -> None:
    def state(asked: Any, logged: str, *, compiles: bool = True, is_filled: bool = False) -> str:
        return compile_state(asked, logged, compiles=compiles, is_filled=is_filled)

    assert state("warm", "cold", is_filled=True) == "cold"
    assert state("fresh", "warm") == "warm"
    assert state("fresh", "unknown") == "cold"
    assert state("warm", "unknown") == "unknown"
    assert state("warm", "unknown", is_filled=True) == "warm"
    assert state("warm", "unknown", compiles=False) == "warm"


def test_warm_starts_find_the_graphs_of_the_fresh_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fresh, warm, other = Case(compile_cache="fresh"), Case(dummy=True), Case("another")
    with CompileCaches() as caches:
        assert caches.variables(warm.group, "warm", {}) == {}
        first = dict(caches.variables(fresh.group, "fresh", {}))
        assert dict(caches.variables(warm.group, "warm", {})) == first
        assert caches.variables(other.group, "warm", {}) == {}
        second = dict(caches.variables(fresh.group, "fresh", {}))
        assert second != first
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with CompileCaches() as caches, pytest.raises(StartupModelError, match="no folder can be made"):
        caches.variables(fresh.group, "fresh", {})


def test_the_folder_of_compile_caches_goes_with_the_profiler(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    given = []
    real = start_module.Server

    def note(*words: Any, **options: Any) -> Server:
        given.append(options["temporary"])
        return real(*words, **options)

    monkeypatch.setattr(start_module, "Server", note)
    measured(engine, compile_cache="fresh", request=False)
    assert [path.parent for path in given] == [tmp_path]
    assert not given[0].exists()


def test_signals_unwind_what_is_temporary(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    for number in (
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # whoever started the tests may ignore them (nohup), which is respected
        inherited = signal.signal(number, signal.SIG_DFL)
        request.addfinalizer(lambda number=number, inherited=inherited: signal.signal(number, inherited))  # type: ignore[misc]
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    left = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        with ExitStack() as stack:
            stack.enter_context(pytest.raises(SystemExit, match=str(128 + number)))
            stack.enter_context(_ends_orderly())
            stack.callback(left.append, number)
            signal.raise_signal(number)
    assert left == [signal.SIGTERM, signal.SIGHUP]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)) == before
    stop = KeyboardInterrupt()
    stop.add_note("2 records are kept")
    with pytest.raises(KeyboardInterrupt), _ends_orderly():
        raise stop
    assert "startup-model: 2 records are kept\n" in capsys.readouterr().err


def test_warnings_are_lines_like_others(capsys: pytest.CaptureFixture[str]) -> None:
    with _plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("the last line was half written", stacklevel=1)
    assert capsys.readouterr().err == "startup-model: warning: the last line was half written\n"


def test_notes_about_models_that_cannot_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "cache" / "modelinfos"
    notes.mkdir(parents=True)
    (notes / "whole.json").write_text("{}")
    (notes / "broken.json").symlink_to(tmp_path / "nowhere")
    variables = {"VLLM_CACHE_ROOT": str(tmp_path / "cache")}
    with CompileCaches() as caches:
        found = caches.variables(Case().group, "fresh", variables)
        copied = Path(found["VLLM_CACHE_ROOT"]) / "modelinfos"
        assert [path.name for path in copied.iterdir()] == ["whole.json"]

    def fill_the_disk(source: Path, target: Path, **_: object) -> None:
        target.mkdir(parents=True)
        raise shutil.Error([(str(source), str(target), "No space left on device")])

    monkeypatch.setattr("calibration.measure.states.shutil.copytree", fill_the_disk)
    with CompileCaches() as caches:
        found = caches.variables(Case().group, "fresh", variables)
        assert Path(found["VLLM_CACHE_ROOT"]).parent.is_dir()
        assert not (Path(found["VLLM_CACHE_ROOT"]) / "modelinfos").exists()


def test_an_engine_says_where_it_keeps_what_it_compiled(tmp_path: Path) -> None:
    (tmp_path / "home" / "notes").mkdir(parents=True)
    (tmp_path / "home" / "notes" / "one").touch()
    tiny = Engine("tiny", caches=Caches({"TINY_CACHE": "tiny"}, (CacheNotes("TINY_CACHE", ".cache/tiny", "notes"),)))
    with CompileCaches((tiny,)) as caches:
        found = caches.variables(Case().group, "fresh", {"TINY_CACHE": str(tmp_path / "home")})
        assert list(found) == ["TINY_CACHE"]
        assert [path.name for path in Path(found["TINY_CACHE"]).rglob("*")] == ["notes", "one"]
        caches.forget(Case().group)
        assert not Path(found["TINY_CACHE"]).exists()


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert home_folder({}) == Path("/")
    assert home_folder({"HOME": "/there"}) == Path("/there")
    assert launch_of("vllm serve nobody/knows-this").checkpoint() is None
    with CompileCaches() as caches:
        assert Path(caches.variables(Case().group, "fresh", {})["VLLM_CACHE_ROOT"]).parent.exists()


def test_a_checkpoint_larger_than_the_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = checkpoint_files(checkpoint(tmp_path / "m"))
    told: list[str] = []
    prepare_page_cache(files, "hot", tell=told.append)
    assert told == ["reading the checkpoint, file 1 of 1"]
    monkeypatch.setattr("calibration.measure.states.usable_memory", lambda _: 1000.0)
    monkeypatch.setattr("calibration.measure.states.read_into_cache", lambda *_: pytest.fail("it was read"))
    prepare_page_cache(files, "hot", tell=told.append)
    assert told[1:] == ["the checkpoint is larger than the memory: it cannot be hot, and is not read"]


def test_a_state_that_could_not_be_made_is_said(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.measure.states.resident_fraction", lambda files: 0.5)
    heard: list[StepNews] = []
    (run,) = measured(f"{engine} --enforce-eager", request=False, listener=heard.append)
    assert run.engine.page_cache == "unknown"
    assert heard[-1].note == "page cache unknown, not hot: the checkpoint could not be made so"


def test_programs_of_odd_names() -> None:
    for word in ("x" * 300, "x" * 5000):
        with pytest.raises(ConfigError, match="no such program"):
            program_of([word])


def test_keys_are_sent_as_headers() -> None:
    assert authorization("k") == {"Authorization": "Bearer k"}
    assert authorization(None) == authorization("") == authorization("a\nb") == {}


def test_cases_in_words() -> None:
    launch = launch_of("vllm serve Qwen/Qwen3-0.6B")
    assert Case().words() == "base, page cache hot, compile cache warm"
    assert Case("m", "as_is", eager=True, repetition=2).words() == "eager, m, page cache as is, repetition 2"
    assert Case(dummy=True, compile_cache="fresh").words() == "dummy, compile cache fresh"
    assert Case(dummy=True).key(launch).startswith("dummy ")
    assert len({case.key(launch) for case in (Case(), Case("m"), Case(torch_compile="off"), Case(repetition=2))}) == 4
    model, engine = ScheduleInputs(launch, NODE).configuration(Case(page_cache="cold", compile_cache="fresh"))
    assert model.name == "Qwen/Qwen3-0.6B"
    assert (engine.page_cache, engine.compile_cache) == ("cold", "cold")


def test_variables_for_the_record_hold_no_secret_and_no_path() -> None:
    found = environment_that_matters(
        {
            "VLLM_API_KEY": "abc",
            "VLLM_CACHE_ROOT": "/somewhere",
            "CUDA_VISIBLE_DEVICES": "0",
            "HOME": "/root",
            "HF_HUB_TOKEN": "hf_x",
            "OMP_NUM_THREADS": "4",
        }
    )
    assert found == {"VLLM_CACHE_ROOT": "(a path)", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "4"}


def test_the_host_is_described() -> None:
    facts = host_facts()
    assert facts.cores >= 1
    assert facts.memory_bytes > 2**28
    gpus = (facts.gpus[:0], 0)
    plain = HostFacts("AMD EPYC 9354", 8, 64.0 * 2**30, gpus[0], "Linux", "3.11")
    node = describe_host(plain)
    assert (node.is_cpu_only, node.gpu_memory, node.cpu.cores) == (True, 64.0 * 2**30, 8)
    assert fingerprint(plain) != fingerprint(plain._replace(cores=9))
    assert file_system_of(Path("/proc/self")).kind == "proc"


def test_accelerators_are_what_the_driver_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query; equal ones together; lines that say something else count for nothing."""
    lines = [
        "NVIDIA H100 NVL, 95830, 9.0, 550.54",
        "NVIDIA H100 NVL, 95830, 9.0, 550.54",
        "Tesla K80, 11441, [N/A], 470",
        "odd, x",
        "",
    ]
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    gib = 95830 * 2.0**20
    assert accelerators() == (
        Gpu("NVIDIA H100 NVL", 2, gib, "9.0", "550.54"),
        Gpu("Tesla K80", 1, 11441 * 2.0**20, None, "470"),
    )
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    assert accelerators(timeout_s=0.1) == ()
    monkeypatch.setenv("PATH", "")
    assert accelerators() == ()


def test_files_are_read_and_evicted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    files = checkpoint_files(folder)
    assert [path.name for path in files] == ["model.safetensors"]
    assert read_into_cache(files) == files[0].stat().st_size
    assert resident_fraction(files) in (None, 1.0)
    with pytest.raises(InputFileError, match="no weights"):
        checkpoint_files(tmp_path)
    assert ModelConfig.from_hf(folder).num_hidden_layers == 4


def test_an_interrupt_while_the_server_is_stopped_loses_no_start(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C that falls into the stopping once threw away the start that had just been measured."""
    from calibration.measure.server import Server

    plain, out = Server.stop, tmp_path / "runs.jsonl"

    def stop(self: Server, *, hold_interrupt: bool = False) -> None:
        plain(self, hold_interrupt=hold_interrupt)
        if hold_interrupt:
            self.interrupt = signal.SIGINT

    monkeypatch.setattr(Server, "stop", stop)
    with pytest.raises(KeyboardInterrupt):
        measured(f"{engine} --enforce-eager", out=out)
    assert len(out.read_text().splitlines()) == 1
