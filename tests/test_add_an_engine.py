"""An engine is one folder, also in a package of its own: its entry point is all that is needed to predict, parse, calibrate, watch and plan with it.

This file writes such a package: ``sprinter``. Nothing in the project knows of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import command
import pytest

from calibration import RunRecord, calibrate, cross_validate, diagnose, parse_log, read_runs, write_runs
from calibration.gate import gate
from calibration.logs.watch import StartupWatch
from startup_model import EngineConfig, Profile, engines, plots, predict, sweep
from startup_model.engines.engine import Engine
from startup_model.errors import ConfigError, InputFileError
from startup_model.manifests import FORMATS, DeploymentRequest, render

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
OLD = Profile.reference("h100-nvl-epyc-9354")
NODE = {"preset": "h100-nvl", "cpu": {"model": "AMD EPYC 9354"}}
SPRINTER = {"engine": "sprinter", "page_cache": "hot"}
PROGRAM = """
from startup_model.engines.engine import CaptureCount, Deploy, Engine, Flag, Launch, Order, Span, Variable
from startup_model.engines.flags import integer, switch, when, with_value


def resolve(config, model, hardware, version):
    sizes = () if config.enforce_eager else config.capture_sizes or (1, 2, 4, 8)
    return config.with_defaults(
        model, version, "sprinter", gpu_memory_utilization=0.9, max_num_batched_tokens=2048, max_num_seqs=64, block_size=32,
        captures=CaptureCount(len(sizes), len(sizes), sizes),
    )


ENGINE = Engine(
    name="sprinter", package=__name__, default_version="1.0", resolve=resolve,
    order=lambda resolved: Order(left_out=frozenset({"graph_trace"}), moved={"tokenizer_load": "weight_load"}),
    launch=Launch(("sprinter", "serve"), "--model", "sprinter", "server.py", positional_model=True),
    flags={"--model": Flag("model", str), "--ranks": Flag("tp", integer, with_value),
           "--eager": Flag("enforce_eager", switch, when(True), Span((1, 1)))},
    variables={"SPRINTER_EAGER": Variable("enforce_eager", switch)},
    deploy=Deploy("Sprinter", "corp/sprinter", 9000, ("sprinter:running", "sprinter:waiting")),
)
"""
ENTRY = "[startup_model.engines]\nsprinter = sprinter:ENGINE\n"
TABLE = """
clock = "bracketed"
complete_arguments = true
seconds = [{phase = "weight_load", sum = ["load_weights_s"]}, {phase = "graph_capture", sum = ["graph_capture_s"]}]
rows = [
    ["server_begun", "Sprinter {=engine_version} on your marks", {mark = "begins"}],
    ["arguments", "given: ", {mark = "settings"}],
    ["spawn_begun", "workers leave the blocks", {phase = "framework_bootstrap"}],
    ["load_begun", "weights of {=model} wanted", {phase = "worker_spawn"}],
    ["weights_loaded", "weights in after {load_weights_s}, {weights_gib}", {phase = "weight_load"}],
    ["pool_laid_out", "pool of {kv_cache_tokens} tokens", {phase = "kv_cache_init"}],
    ["graphs_captured", "graphs in {graph_capture_s}", {phase = "graph_capture"}],
    ["ready", "go", {phase = "api_ready", mark = "ready", weak = true}],
]
milestones = [
    {event = "spawn_begun", ends = "framework_bootstrap"},
    {event = "load_begun", ends = "worker_spawn"},
    {event = "weights_loaded", ends = "weight_load"},
    {event = "pool_laid_out", ends = "kv_cache_init", rest = ["memory_profiling", "kv_cache_init"]},
    {event = "graphs_captured", ends = "graph_capture", rest = []},
    {event = "ready", ends = "api_ready"},
]
failures = [["pulled a muscle", "capture_failed", 5]]

[remedies]
rest = {action = "--eager", price = "slower decoding"}

[advice]
capture_failed = ["rest"]
"""
LOG = f"""\
[2026-03-02 10:00:00] Sprinter 1.4 on your marks
[2026-03-02 10:00:01] given: model='{MODEL}', ranks=1
[2026-03-02 10:00:06] workers leave the blocks
[2026-03-02 10:00:09] weights of {MODEL} wanted
[2026-03-02 10:00:16] weights in after 6.50 s, 14.99 GiB
[2026-03-02 10:00:18] pool of 400,000 tokens
[2026-03-02 10:00:21] graphs in 2.50 s
[2026-03-02 10:00:23] go
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "sprinter"
    folder.mkdir()
    (folder / "__init__.py").write_text(PROGRAM)
    (folder / "log.toml").write_text(TABLE)
    described = tmp_path / "sprinter-1.4.dist-info"  # as pip would leave it
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: sprinter\nVersion: 1.4\n")
    (described / "entry_points.txt").write_text(ENTRY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sprinter", raising=False)
    engines.forget_installed()
    yield
    engines.unregister("sprinter")
    engines.forget_installed()
    sys.modules.pop("sprinter", None)


def test_it_is_predicted() -> None:
    found = predict(MODEL, "h100-sxm", "sprinter serve a/b --eager")
    assert (found.total_s > 0, found.context.start.engine.engine) == (True, "sprinter")


def test_its_commands_are_read_and_written() -> None:
    config = EngineConfig.from_command("SPRINTER_EAGER=1 sprinter serve a/b --ranks=2 --unknown x")
    assert (config.engine, config.model, config.tp, config.enforce_eager) == ("sprinter", "a/b", 2, True)
    assert (config.unused_flags, config.environment) == (("--unknown",), {"SPRINTER_EAGER": "1"})
    assert config.replace(unused_flags=()).to_command() == "SPRINTER_EAGER=1 sprinter serve a/b --ranks 2"
    with pytest.raises(ConfigError, match=r"sprinter 1\.0 has no --eager"):
        config.replace(unused_flags=(), environment={}, version="1.0").to_command()
    manifest = "containers:\n- image: corp/sprinter:v1.4\n  args: [--model, a/b, --ranks, 2]"
    assert EngineConfig.from_command(manifest).version == "1.4"


def test_it_has_an_order_and_defaults_of_its_own() -> None:
    found = predict("Llama-2-7b-hf", NODE, SPRINTER)
    names = [str(name) for name in found.phases]
    assert "graph_trace" not in names
    assert names.index("tokenizer_load") == names.index("weight_load") + 1
    assert found.total_s == pytest.approx(sum(entry.seconds for entry in found.phases.values()))
    assert found.context.inputs["captures"] == 4
    assert any("no profile was measured with sprinter" in warning for warning in found.warnings)
    assert predict("Llama-2-7b-hf", NODE, "sprinter serve m --eager").phases["graph_capture"].seconds == 0.0


def test_sweeps_and_plots_have_it(tmp_path: Path) -> None:
    grid = sweep("Yi-9B", NODE, SPRINTER, {"hardware.cpu.single_thread_score": [0.5, 1.0]})
    assert grid.total_s[0] > grid.total_s[1]
    plots.save(plots.timeline(predict("Yi-9B", NODE, SPRINTER)), tmp_path / "timeline.svg")


@pytest.fixture
def measured(tmp_path: Path) -> list[RunRecord]:
    """Runs in which everything takes twice as long as on the older engine; written and read again."""
    runs = []
    for model in ("Llama-2-7b-hf", "Qwen1.5-4B", "Qwen1.5-14B", "Yi-6B"):
        found = predict(model, NODE, SPRINTER, profile=OLD)
        phases = {str(name): 2 * entry.seconds for name, entry in found.phases.items() if name != "unattributed"}
        start = found.context.start
        wall = 2 * found.total_s
        runs.append(
            RunRecord(model=start.model, hardware=start.hardware, engine=start.engine, phases=phases, wall_s=wall)
        )
    write_runs(runs, tmp_path / "runs.jsonl")
    return read_runs(tmp_path / "runs.jsonl")


def test_its_runs_make_a_profile_that_is_validated_gated_and_planned_with(measured: list[RunRecord]) -> None:
    profile = calibrate(measured, OLD, held_out=False).profile
    assert (profile.engine, profile.engine_version, profile.generation) == ("sprinter", "1.0", "sprinter")
    before, after = (predict("Yi-9B", NODE, SPRINTER, profile=used) for used in (OLD, profile))
    assert after.total_s == pytest.approx(2 * before.total_s, rel=0.1)
    assert not any("no profile was measured with sprinter" in warning for warning in after.warnings)
    assert cross_validate(measured, by="model", prior=OLD).mape < 0.1
    assert gate(measured, profile).passed
    request = DeploymentRequest(prediction=predict("Yi-9B", NODE, SPRINTER, version="1.4", profile=profile))
    texts = {name: render(name, request) for name in FORMATS if name != "env"}
    assert "corp/sprinter:v1.4" in texts["kubernetes"]
    with pytest.raises(ConfigError, match="sprinter waits for its workers without a limit"):
        render("env", request)


def test_its_logs_are_parsed() -> None:
    found = parse_log(LOG)
    assert (found.engine, found.engine_version, found.model, found.status, found.wall_s) == (
        "sprinter",
        "1.4",
        MODEL,
        "ok",
        23,
    )
    assert (found.tp, found.pp, found.dp) == (1, 1, 1)
    seconds = {
        "framework_bootstrap": 6,
        "worker_spawn": 3,
        "weight_load": 6.5,
        "memory_profiling": 2,
        "graph_capture": 2.5,
        "api_ready": 2,
    }
    assert {name: found.phases[name] for name in seconds} == seconds
    assert found.joint == {"memory_profiling": ("memory_profiling", "kv_cache_init")}
    assert found.facts["weights_gib"] == 14.99
    assert diagnose(found)[0].kind == "storage_bound"


def test_its_failures_have_its_remedies() -> None:
    failed = parse_log(LOG[: LOG.index("[2026-03-02 10:00:21]")] + "[2026-03-02 10:00:20] pulled a muscle\n")
    (finding,) = diagnose(failed)
    assert (finding.kind, [remedy[:3] for remedy in finding.remedies]) == (
        "capture_failed",
        [("--eager", "slower decoding", "sprinter")],
    )


def test_its_logs_calibrate_a_host() -> None:
    record = parse_log(LOG).to_run("h100-sxm", process_start_s=1.0, page_cache="hot")
    assert (record.engine.engine, record.engine.version, record.ready_s) == ("sprinter", "1.4", 24)
    profile = calibrate([record], "h100-nvl-epyc-9354", held_out=False).profile
    found = predict(MODEL, "h100-sxm", EngineConfig(engine="sprinter", version="1.4"), profile=profile)
    assert found.phases["graph_capture"].seconds == pytest.approx(2.5, rel=0.2)


def test_its_starts_are_watched() -> None:
    watch = StartupWatch(hardware="h100-sxm")
    lines = LOG.splitlines(keepends=True)
    for line in lines[:5]:
        watch.feed(line, 0.0)
    outlook = watch.outlook(0.0)
    assert (watch.problem, outlook.status) == (None, "starting")
    assert outlook.finished[-1][0].split("+")[-1] == "weight_load"
    assert outlook.residual_delay_s is not None
    watch.feed("".join(lines[5:]), 1.0)
    assert watch.outlook(1.0).status == "ready"


def test_replicas_are_planned_with_it() -> None:
    done = command.run("plan", "--hardware", "h100-sxm", "--engine", f"sprinter serve {MODEL}", "--rate", "6/h")
    assert done.status == 0, done.err
    assert "warm" in done.out


def test_a_table_with_an_unknown_phase_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = TABLE.replace('phase = "worker_spawn"', 'phase = "worker_spawning"')
    original = Engine.text
    monkeypatch.setattr(
        Engine, "text", lambda engine, name: wrong if engine.name == "sprinter" else original(engine, name)
    )
    with (
        pytest.warns(RuntimeWarning, match=r"phase = 'worker_spawning'.*did you mean 'worker_spawn'.*left out"),
        pytest.raises(InputFileError, match="none of its"),
    ):
        parse_log(LOG)


@pytest.mark.parametrize(
    "table", ["rows = [", 'rows = [["a"]]', 'clock = "bracketed"\nrows = []\nadvice = {oom = ["nothing"]}']
)
def test_a_broken_table_breaks_nothing_else(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    original = Engine.text
    replaced = lambda engine, name: table if engine.name == "sprinter" else original(engine, name)  # noqa: E731
    monkeypatch.setattr(Engine, "text", replaced)
    with pytest.warns(RuntimeWarning, match="left out"):
        found = parse_log("INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.2\n")
    assert found.engine == "vllm"
