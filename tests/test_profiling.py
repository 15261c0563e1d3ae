"""Profiling a server: a fake engine that is as quick as it is badly behaved, started, measured and ended for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration import calibrate, profile_server, read_runs
from calibration.host import HostFacts, describe_host, file_system_of, fingerprint, host_facts
from calibration.logs.parser import StartupLogParser
from calibration.profiling.caches import checkpoint_files, evict, read_into_cache, resident_fraction
from calibration.profiling.journal import Journal
from calibration.profiling.launch import environment_that_matters, launch_of
from calibration.profiling.plan import make_plan
from calibration.profiling.server import Server, free_port, is_free
from calibration.profiling.starts import Limits, ServerError
from startup_model import EngineConfig, HardwareConfig, ModelConfig
from startup_model.errors import ConfigError, InputFileError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")

ENGINE = Path(__file__).with_name("fake_engine.py")
NODE = HardwareConfig.preset("cpu")
QUICK = Limits(ready_s=20.0, request_s=10.0, grace_s=0.5)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The command ``vllm serve FOLDER`` of a fake engine, with a checkpoint of a small model; whatever it leaves behind fails the test."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{ENGINE}' \"$@\"\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    pids = tmp_path / "pids"
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_PIDS", str(pids))
    monkeypatch.setenv("FAKE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    yield f"vllm serve {checkpoint(tmp_path / 'model')}"
    if pids.exists():
        assert [pid for pid in json.loads(pids.read_text()) if lives(pid)] == []


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


def run_cli(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "startup_model", "profile", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | variables)


# --- what is measured ---------------------------------------------------------------------------------------------------


def test_a_compiling_start_is_kept_apart_from_warm_ones(engine: str, tmp_path: Path) -> None:
    heard = []
    first, *warm = profile_server(
        f"HF_TOKEN=hf_abcdefgh12345678 VLLM_LOGGING_LEVEL=INFO {engine} --max-model-len 1024 --api-key sk-abcdefgh12345678",
        hardware=NODE, repetitions=2, out=tmp_path / "runs.jsonl", dataset="test", limits=QUICK, listener=heard.append,
    )  # fmt: skip
    assert [run.engine.compile_cache for run in (first, *warm)] == ["cold", "warm", "warm"]
    assert (first.step, len({run.step for run in warm})) == ("", 2)
    for run in (first, *warm):
        assert run.status == "ok"
        assert run.engine.version == "0.11.0"
        assert run.engine.max_model_len == 1024
        assert run.engine.page_cache == "hot"
        assert run.phases["weight_load"] == 0.04
        assert run.wall_s is not None
        assert run.first_token_s is not None
        assert 0 < sum(run.phases.values()) <= run.wall_s <= run.first_token_s < 30
        assert run.stamp_resolution_s == 0.001
        assert run.surroundings["cpu"]
        assert run.surroundings["killed"].startswith("2 ")
        assert (run.host, run.dataset, run.hardware) == (fingerprint(host_facts()), "test", NODE)
        assert run.engine.environment["VLLM_LOGGING_LEVEL"] == "INFO"
    assert "compile" not in {news.progress.phase for news in heard if news.progress}
    assert sum(news.record is not None for news in heard) == 3
    written = (tmp_path / "runs.jsonl").read_text()
    assert "12345678" not in written
    assert str(tmp_path) not in written
    assert read_runs(tmp_path / "runs.jsonl") == [first, *warm]
    assert calibrate(warm).report.runs_used > 0


def test_states_of_the_caches_are_made_and_recorded(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (cold,) = profile_server(engine, hardware=NODE, page_cache="cold", compile_cache="fresh", limits=QUICK)
    assert cold.engine.compile_cache == "cold"
    assert cold.engine.page_cache == ("cold" if resident_after_eviction(tmp_path) else "hot")
    assert not (tmp_path / "cache" / "graphs").exists()
    eager = profile_server(f"{engine} --enforce-eager", hardware=NODE, page_cache="as_is", request=False, limits=QUICK)
    assert len(eager) == 1
    assert eager[0].first_token_s is None
    assert not list(tmp_path.glob("startup-model-compile-*"))


def resident_after_eviction(tmp_path: Path) -> bool:
    files = checkpoint_files(tmp_path / "model")
    evict(files)
    return (resident_fraction(files) or 0.0) < 0.05


def test_differential_runs_isolate_phases(engine: str) -> None:
    runs = profile_server(engine, hardware=NODE, plan="differential", limits=QUICK)
    kinds = [(run.engine.enforce_eager, run.engine.load_format, run.engine.compile_cache) for run in runs]
    assert kinds == [(False, "auto", "cold"), (False, "auto", "warm"), (True, "auto", "warm"), (False, "dummy", "warm")]


def test_a_configuration_is_started_too(engine: str, tmp_path: Path) -> None:
    config = EngineConfig(model=str(tmp_path / "model"), enforce_eager=True, max_model_len=512)
    (run,) = profile_server(config, hardware=NODE, limits=QUICK)
    assert run.engine.enforce_eager
    assert run.engine.max_model_len == 512


def test_a_server_without_completions_is_measured_all_the_same(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", "no_completions")
    heard = []
    (run,) = profile_server(f"{engine} --enforce-eager", hardware=NODE, limits=QUICK, listener=heard.append)
    assert run.first_token_s is None
    assert "404" in heard[-1].note


def test_a_program_of_its_own_gets_the_port_where_it_wants_it(engine: str, tmp_path: Path) -> None:
    words = [*engine.split(), "--enforce-eager", "--host", "127.0.0.1", "--port", "{port}"]
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nexec vllm serve " + " ".join(words[2:-1]) + ' "$1"\n')
    script.chmod(0o755)
    (run,) = profile_server([str(script), "{port}"], hardware=NODE, model=tmp_path / "model", limits=QUICK)
    assert run.engine.version == "0.11.0"
    with pytest.raises(ConfigError, match=r"write \{port\} where"):
        profile_server([str(script)], hardware=NODE, limits=QUICK)


# --- plans --------------------------------------------------------------------------------------------------------------


def test_a_full_plan_holds_what_can_be_told_apart_and_no_more(engine: str, tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "other", layers=12)
    launch = launch_of(engine)
    one = make_plan(launch, NODE, kind="full")
    two = make_plan(launch, NODE, kind="full", models=[str(tmp_path / "model"), str(other)])
    names = [step.name for step in one.steps]
    assert names[0] == "base"
    assert any("compiling" in name for name in names)
    assert any("storage" in name for name in names)
    assert len(one.steps) < len(two.steps) <= 10
    assert len(make_plan(launch, NODE, kind="quick", models=[str(tmp_path / "model"), str(other)]).steps) == 2
    assert two.total_s == pytest.approx(sum(two.seconds))
    assert min(two.seconds) > 0


def test_a_plan_goes_on_after_an_interruption(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    started = []

    def interrupt(news: object) -> None:
        if getattr(news, "record", None) is not None:
            started.append(news)
            if len(started) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile_server(engine, hardware=NODE, plan="differential", out=out, limits=QUICK, listener=interrupt)
    kept = read_runs(out)
    assert len(kept) >= 1
    heard = []
    runs = profile_server(
        engine, hardware=NODE, plan="differential", out=out, resume=True, limits=QUICK, listener=heard.append
    )
    assert [run.step for run in read_runs(out) if run.step] == [run.step for run in runs]
    assert len({run.step for run in runs}) == 3


def test_the_command_says_what_it_will_do_and_shows_what_it_found(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    dry = run_cli("--dry-run", "--differential", "--hardware", "cpu", "--out", str(out), "--", *engine.split())
    assert dry.returncode == 0, dry.stderr
    assert "3 step(s), about" in dry.stderr
    assert not out.exists()
    done = run_cli("--hardware", "cpu", "--grace", "0.5", "--out", str(out), "--", *engine.split(), "--enforce-eager")
    assert done.returncode == 0, done.stderr
    assert "time to ready" in done.stdout
    assert "weight_load" in done.stdout
    again = run_cli(
        "--hardware",
        "cpu",
        "--grace",
        "0.5",
        "--resume",
        "--json",
        "--out",
        str(out),
        "--",
        *engine.split(),
        "--enforce-eager",
    )
    assert "done before" in again.stderr
    assert json.loads(again.stdout)["status"] == "ok"
    assert len(read_runs(out)) == 1


# --- nothing outlives the profiler --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("behaviour", ["unhealthy", "stubborn"])
def test_no_process_of_the_server_outlives_the_profiler(
    engine: str, tmp_path: Path, number: signal.Signals, behaviour: str
) -> None:
    if behaviour == "stubborn":
        # It is ready at once: hold it in its request by never answering health.
        behaviour = "unhealthy"
    command = [
        sys.executable,
        "-m",
        "startup_model",
        "profile",
        "--hardware",
        "cpu",
        "--grace",
        "0.5",
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
    (run,) = profile_server(f"{engine} --enforce-eager", hardware=NODE, limits=QUICK)
    assert run.surroundings["killed"].startswith("3 ")
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
        ("silent", r"not ready after 3 s \(nothing listens, no known line yet\): give it more time"),
        ("unhealthy", r"not ready after 3 s \(/health answers 503, last heard of \w+\)"),
    ],
)
def test_servers_that_do_not_come_up(
    engine: str, monkeypatch: pytest.MonkeyPatch, behaviour: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", behaviour)
    with pytest.raises(ServerError, match=message) as caught:
        profile_server(engine, hardware=NODE, limits=QUICK._replace(ready_s=3.0))
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
    monkeypatch.setattr("calibration.profiling.endpoint._PATIENCE_S", 0.3)
    monkeypatch.setenv("FAKE_ENGINE", "no_health")
    with pytest.raises(ServerError, match=r"/health answers 404: give the path that says ready"):
        profile_server(f"{engine} --enforce-eager", hardware=NODE, limits=QUICK)


def test_what_was_measured_before_a_failure_is_kept(engine: str, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"

    def break_it(news: object) -> None:
        if getattr(news, "record", None) is not None and not getattr(news, "is_priming", False):
            os.environ["FAKE_ENGINE"] = "exit"

    try:
        with pytest.raises(ServerError):
            profile_server(engine, hardware=NODE, plan="differential", out=out, limits=QUICK, listener=break_it)
    finally:
        os.environ.pop("FAKE_ENGINE", None)
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
        ("bash -c 'vllm serve m'", "bash starts the server"),
    ],
)
def test_commands_that_cannot_be_run(command: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile_server(command, hardware=NODE, model="Qwen/Qwen3-0.6B", limits=Limits(ready_s=2.0))


def test_arguments_are_checked(engine: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ready_s"):
        profile_server(engine, hardware=NODE, limits=Limits(ready_s=float("nan")))
    with pytest.raises(ConfigError, match="repetitions"):
        profile_server(engine, hardware=NODE, repetitions=0)
    with pytest.raises(ConfigError, match="resume"):
        profile_server(engine, hardware=NODE, resume=True)
    with pytest.raises(InputFileError, match="cannot be written"):
        profile_server(engine, hardware=NODE, out=tmp_path / "nowhere" / "runs.jsonl")
    bad = run_cli("--plan", "everything", "--", *engine.split())
    assert bad.returncode == 2
    assert "base, differential, quick, full" in bad.stderr.replace("\n", " ")


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


def test_a_command_gets_our_port_and_no_shell() -> None:
    launch = launch_of("A=1 vllm serve m --host 0.0.0.0 --port=80 --load-format safetensors ; rm -rf x")
    assert launch.environment == {"A": "1"}
    assert launch.port == 80
    words = launch.command(1234, model="n", eager=True, dummy=True)
    assert words[:3] == ["vllm", "serve", "n"]
    assert words[-6:] == ["--load-format", "dummy", "--host", "127.0.0.1", "--port", "1234"]
    assert ";" in words  # a word like any other
    assert words.count("--host") == 1
    assert "--port=80" not in words


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


def test_files_are_read_and_evicted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m")
    files = checkpoint_files(folder)
    assert [path.name for path in files] == ["model.safetensors"]
    assert read_into_cache(files) == files[0].stat().st_size
    assert resident_fraction(files) in (None, 1.0)
    with pytest.raises(InputFileError, match="no weights"):
        checkpoint_files(tmp_path)
    assert ModelConfig.from_hf(folder).num_hidden_layers == 4
