"""The probe of a host: what it measures, what it leaves behind (nothing), and what it says when something cannot be measured."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calibration.host import Gpu, HostFacts, file_system_of
from calibration.probe import ProbeReport, imports, probe_host, sample, storage
from calibration.probe.budget import Budget
from calibration.probe.child import Interpreter, ask, interpreter
from calibration.probe.cli import register
from calibration.probe.device import LINK, measure_device
from calibration.probe.kernel import repetition
from calibration.probe.memory import MEMORY, cache_bytes, measure_memory
from calibration.probe.node import make_node, scale_factors
from calibration.probe.readers import Extent
from calibration.probe.results import Found, Measurement, Step, spread_of
from calibration.probe.score import (
    CHECKSUM,
    KERNEL,
    PLAIN_BUILD,
    REFERENCE_SECONDS,
    SCORE,
    Batch,
    judge_score,
    run_kernel,
    score_of,
)
from calibration.probe.storage import BUFFERED, STREAMS, cold_name, hot_name, measure_storage
from startup_model import HardwareConfig, predict
from startup_model.errors import ConfigError, InputFileError, StartupModelError
from startup_model.profile import Profile

MIB = 2**20
THIS = Interpreter(sys.executable, sys.version_info[:3])


def ignore(_: str) -> None:
    """Nobody listens."""


def program(path: Path, *lines: str) -> str:
    """A program that prints some lines, whatever it is called with."""
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def measured(name: str, value: float, unit: str = "B/s") -> Measurement:
    return Measurement(name, value, unit, 0.1, 3, None, "given", 0.0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 64 MiB of weights."""
    folder = tmp_path_factory.mktemp("weights")
    (folder / "model.safetensors").write_bytes(os.urandom(MIB) * 64)
    return folder


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return []


@pytest.fixture(scope="module")
def report(weights: Path, steps: list[Step]) -> ProbeReport:
    """A whole probe of the host of the tests, as short as can be."""
    return probe_host(weights, seconds=5.0, report=steps.append)


# --- the whole ----------------------------------------------------------------------------------------------------------


def test_a_probe_gives_a_node_that_predicts(report: ProbeReport) -> None:
    prediction = predict("Qwen/Qwen3-0.6B", report.hardware)
    assert prediction.total_s > 0.0
    score = report.measurement(SCORE)
    assert score is not None
    assert report.hardware.cpu.single_thread_score == score.value
    hot = report.measurement(hot_name(1))
    assert hot is not None
    assert report.hardware.storage.page_cache == hot.value
    assert "probe of this host" in report.hardware.source


def test_every_measurement_says_what_was_run(report: ProbeReport) -> None:
    names = [entry.name for entry in report.measurements]
    assert len(names) == len(set(names))
    assert {KERNEL, SCORE, MEMORY, hot_name(1), imports.START} <= set(names)
    for entry in report.measurements:
        assert entry.value > 0.0
        assert entry.unit in ("B/s", "s", "1")
        assert entry.repetitions >= 1
        assert (entry.spread is None) == (entry.repetitions == 1)
        assert entry.command
        assert entry.seconds >= 0.0


def test_the_report_is_plain_json(report: ProbeReport) -> None:
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert HardwareConfig.from_mapping(data["hardware"]) == report.hardware
    assert data["measurements"][0]["name"] == KERNEL
    assert data["scale_factors"] == report.scale_factors
    assert set(data) == {"hardware", "measurements", "scale_factors", "reference", "warnings", "seconds"}
    for part in (KERNEL, "slowdown", report.reference, "measured in"):
        assert part in report.text()


def test_the_caller_hears_of_every_part(report: ProbeReport, steps: list[Step]) -> None:
    assert report.seconds > 0.0
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1] == Step(7, 7, "done")
    assert f"storage: {hot_name(1)}" in [step.doing for step in steps]


def test_nothing_is_left_in_the_folder(report: ProbeReport, weights: Path) -> None:
    assert report.measurements
    assert [path.name for path in weights.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0.0}, "seconds = 0.0: too short; give 5 to 3600 seconds"),
        ({"seconds": float("nan")}, "seconds = nan: it is no number"),
        ({"seconds": float("inf")}, "seconds = inf: too long"),
        ({"seconds": "fast"}, "seconds = 'fast': it is no number"),
        ({"tier": "floppy"}, "tier = 'floppy': not a known name; known: local_nvme, network_disk, object_store"),
        ({"folder": "/nowhere/at/all"}, "folder = /nowhere/at/all: No such file or directory; give the folder of a"),
        ({"folder": __file__}, "Not a directory; give the folder of a checkpoint, or none"),
        ({"folder": "a\0b"}, "null byte"),
        ({"python": "/nowhere/python"}, "python = '/nowhere/python': no such program; give the python of the engine's"),
        ({"python": "/"}, "python = '/': it is a folder"),
        ({"python": __file__}, "it cannot be executed"),
        ({"python": 3}, "python = 3: it is no path"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(StartupModelError) as caught:
        probe_host(**arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputFileError, match="Permission denied"):
        sample.check_folder(tmp_path)


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it does not answer as a Python does \(exit status 3: what is that\?\)"):
        interpreter(program(tmp_path / "python", "echo 'what is that?' >&2", "exit 3"))


# --- single-thread score ------------------------------------------------------------------------------------------------


def test_the_kernel_is_always_the_same_work() -> None:
    assert repetition() == repetition() == CHECKSUM


def test_the_kernel_runs_without_this_package() -> None:
    path = Path(sys.modules[repetition.__module__].__file__ or "")
    done = subprocess.run([sys.executable, "-I", "-S", path, "2", "0"], capture_output=True, check=True, cwd="/")
    data = json.loads(done.stdout)
    assert data["checksum"] == CHECKSUM
    assert len(data["seconds"]) == 2
    assert data["implementation"] == sys.implementation.name.replace("cpython", "CPython")


def test_the_score_is_the_reference_over_the_time() -> None:
    reference = REFERENCE_SECONDS[3, 11]
    assert score_of(reference, (3, 11)) == 1.0
    assert score_of(2 * reference, (3, 11)) == 0.5
    assert score_of(reference, (3, 11), plain=True) == PLAIN_BUILD
    assert score_of(1.0, (3, 99)) == REFERENCE_SECONDS[max(REFERENCE_SECONDS)]
    assert score_of(1.0, (3, 4)) == REFERENCE_SECONDS[min(REFERENCE_SECONDS)]


def test_the_score_of_this_host_is_sane(report: ProbeReport) -> None:
    score, kernel = report.measurement(SCORE), report.measurement(KERNEL)
    assert score is not None
    assert kernel is not None
    assert 0.02 < score.value < 10.0
    assert kernel.repetitions >= 2


@pytest.mark.parametrize(
    ("printed", "warning"),
    [
        ('{"checksum": 1, "seconds": [0.2, 0.2]}', "the kernel printed something else"),
        ('{"checksum": %d, "seconds": "soon"}' % CHECKSUM, "the kernel printed something else"),  # noqa: UP031  braces
        ("no JSON at all", "it printed no result"),
    ],
)
def test_a_kernel_that_goes_wrong_is_a_warning(tmp_path: Path, printed: str, warning: str) -> None:
    path = program(tmp_path / "python", f"echo '{printed}'")
    python = Interpreter(path, (3, 11, 0))
    found = judge_score(python, [run_kernel(python, Budget.of(5.0))])
    assert found.measurements == ()
    assert warning in found.warnings[0]


def test_what_the_score_is_worth_is_said(tmp_path: Path) -> None:
    data = {"checksum": CHECKSUM, "seconds": [0.2, 0.4], "implementation": "PyPy", "plain": True}
    path = program(tmp_path / "python", f"echo '{json.dumps(data)}'")
    python = Interpreter(path, (3, 99, 0))
    found = judge_score(python, [run_kernel(python, Budget.of(5.0))])
    assert found.value(SCORE) == score_of(0.2, (3, 99), plain=True)
    for part in ("no reference for Python 3.99.0", "this is PyPy", "plain build", "the host was busy"):
        assert any(part in warning for warning in found.warnings), part
    python = Interpreter(path, (3, 6, 1))
    old = judge_score(python, [run_kernel(python, Budget.of(5.0))])
    assert old.warnings == ("single-thread score: not measured: the kernel needs Python 3.9 or newer, this is 3.6.1",)


def test_the_quickest_of_all_moments_counts() -> None:
    batches = [Batch(times, "", "CPython", False, 1.0) for times in ((0.3, 0.3), (0.25, 0.1), ())]
    found = judge_score(Interpreter("python", (3, 11, 0)), batches)
    assert found.value(KERNEL) == 0.1
    assert found.measurements[0].repetitions == 4
    assert found.measurements[0].seconds == 3.0
    assert "at 2 moments" in found.measurements[0].command
    assert "median 2.75 times the quickest" in found.warnings[0]


# --- storage and memory -------------------------------------------------------------------------------------------------


def test_weights_are_read_cold_and_hot(weights: Path) -> None:
    found = measure_storage(weights, Budget.of(1.5), ignore, least=32 * MIB)
    names = {entry.name for entry in found.measurements}
    assert {hot_name(1), hot_name(2)} <= names
    assert hot_name(4) not in names  # two pieces of 32 MiB are too few for four readers
    for entry in found.measurements:
        assert "the folder's weights" in entry.command
        assert entry.size_bytes is not None
        assert 0 < entry.size_bytes <= 64 * MIB
        assert entry.repetitions <= 3
    if sample.in_memory(weights):
        assert any("lies in memory" in warning for warning in found.warnings)
    else:
        assert {cold_name(1), cold_name(2)} <= names or found.warnings
        assert any("too few bytes for 4 readers" in warning for warning in found.warnings)


def test_a_temporary_file_stands_in_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_OWN", 64 * MIB)
    found = measure_storage(tmp_path, Budget.of(1.0), ignore)
    hot = next(entry for entry in found.measurements if entry.name == hot_name(1))
    assert "a temporary file (the folder holds 0 B of weights)" in hot.command
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_direct_reading(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "can_read_directly", lambda path: False)
    found = measure_storage(weights, Budget.of(1.0), ignore, least=32 * MIB)
    assert BUFFERED not in {entry.name for entry in found.measurements}
    cold = [entry for entry in found.measurements if "cold" in entry.name]
    assert all("evicted before (fadvise)" in entry.command for entry in cold)
    assert cold or any("cold" in warning for warning in found.warnings)


def test_files_that_stay_in_the_page_cache_are_not_called_cold(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "can_read_directly", lambda path: False)
    monkeypatch.setattr(storage, "resident_fraction", lambda files: 1.0)
    monkeypatch.setattr(storage, "in_memory", lambda folder: False)
    found = measure_storage(weights, Budget.of(1.0), ignore, least=32 * MIB)
    assert found.value(cold_name(1)) is None
    assert any(f"{cold_name(1)}: the files stay in the page cache" in warning for warning in found.warnings)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(sample, "_fill", fail)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            measure_storage(tmp_path, Budget.of(1.0), ignore)
    else:
        found = measure_storage(tmp_path, Budget.of(1.0), ignore)
        assert found == Found((), ("storage: not measured: the temporary file could not be written (No space left on device)",))  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_disk_with_little_space_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_SHARE_OF_FREE", 2**62)
    (warning,) = measure_storage(tmp_path, Budget.of(1.0), ignore).warnings
    assert "too little space is left for a temporary file" in warning


def test_a_name_on_a_network_goes_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_OWN", 8 * MIB)
    kind = file_system_of(tmp_path)._replace(tier="network_disk")
    monkeypatch.setattr(sample, "file_system_of", lambda folder: kind)
    with sample.sample_of(tmp_path, Budget.of(1.0)) as found:
        assert [path.name[:20] for path in tmp_path.iterdir()] == [".startup-model-probe"]
        assert sum(extent.size for extent in found.extents) == 8 * MIB
    assert list(tmp_path.iterdir()) == []


def test_cold_as_fast_as_hot_is_doubted() -> None:
    found = Found((measured(cold_name(1), 8e9), measured(hot_name(1), 9e9)))
    (warning,) = storage._suspicions(found)
    assert "cold (8 GB/s) is hardly slower than hot (9 GB/s)" in warning
    assert list(storage._suspicions(Found((measured(cold_name(1), 1e9), measured(hot_name(1), 9e9))))) == []


def test_what_was_cut_short_is_named() -> None:
    whole = measured(hot_name(1), 9e9)._replace(size_bytes=2.0**29)
    found = Found((whole, whole._replace(name=cold_name(1), size_bytes=2.0**26), whole._replace(name=cold_name(2), repetitions=1)))  # fmt: skip
    (warning,) = storage._cut_short(found, 2**29)
    assert f"fewer bytes count: {cold_name(1)}, {cold_name(2)};" in warning
    assert list(storage._cut_short(Found((whole,)), 2**29)) == []


def test_other_bytes_each_time_until_all_are_read() -> None:
    extents = tuple(Extent(Path("x"), n, 2**25) for n in range(3))
    turns = sample.Sample(extents, "").turns(2**26)
    assert [[extent.offset for extent in next(turns)] for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]
    assert STREAMS == (1, 2, 4, 8)


def test_memory_that_is_not_there_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_bytes() > 0
    facts = HostFacts("cpu", 2, 2.0**33, (), "Linux", "3.12")
    monkeypatch.setattr("calibration.probe.memory.available_memory", lambda: 1000.0)
    assert measure_memory(facts, Budget.of(1.0)).warnings == (
        "memory bandwidth: too little memory is free to measure it",
    )
    monkeypatch.setattr("calibration.probe.memory.available_memory", lambda: 2.0**24)
    small = measure_memory(facts, Budget.of(0.0))
    assert "not much larger than the caches" in small.warnings[0]
    assert small.measurements[0].size_bytes == 2**21
    assert small.measurements[0].repetitions == 2


# --- other Pythons ------------------------------------------------------------------------------------------------------


def test_a_child_that_hangs_is_ended_with_its_children() -> None:
    begin = time.monotonic()
    answer = ask(["/bin/sh", "-c", "sleep 60 & sleep 60"], 0.3)
    assert answer.data is None
    assert answer.problem == "not done after 0 s"
    assert time.monotonic() - begin < 30.0


def test_imports_are_timed_in_the_engines_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_package", lambda python, budget: "fractions")
    found = imports.measure_imports(THIS, Budget.of(10.0))
    names = [entry.name for entry in found.measurements]
    assert names == [imports.START, imports.FIRST, imports.REPEATED]
    assert "import fractions under Python" in found.measurements[1].command


def test_an_import_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "_package", lambda python, budget: "no_such_package")
    found = imports.measure_imports(THIS, Budget.of(10.0))
    (warning,) = found.warnings
    assert "import no_such_package: not measured: exit status 1: ModuleNotFoundError" in warning
    monkeypatch.setattr(imports, "_package", lambda python, budget: None)
    assert "has none of vllm, sglang, torch, numpy" in imports.measure_imports(THIS, Budget.of(1.0)).warnings[0]


def test_what_is_imported_is_the_engine_or_the_nearest_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert imports._package(THIS, Budget.of(20.0)) != "vllm"  # a folder of that name is no engine
    (tmp_path / "vllm" / "__init__.py").touch()
    assert imports._package(THIS, Budget.of(20.0)) == "vllm"


def test_the_link_to_a_gpu_is_read_from_what_torch_printed(tmp_path: Path) -> None:
    data = {"device": "NVIDIA H100", "size": 2**28, "to_device": [5e10, 5.5e10, 5.4e10], "on_device": [3e12, 3.1e12]}
    path = program(tmp_path / "python", "echo noise", f"echo '{json.dumps(data)}'")
    found = measure_device(Interpreter(path, (3, 12, 0)), Budget.of(5.0), has_gpu=True)
    assert found.value(LINK) == 5.4e10
    assert found.measurements[0].command == "torch copies from pinned memory to NVIDIA H100"
    assert found.measurements[0].size_bytes == 2**28
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (['echo \'{"absent": "no torch"}\''], "host to device: not measured: no torch"),
        (["echo '{\"to_device\": [0, -1]}'"], "host to device: not measured: the script printed something else"),
        (["echo CUDA error >&2", "exit 1"], "host to device: not measured: exit status 1: CUDA error"),
        (["sleep 60"], "host to device: not measured: not done after 1 s"),
    ],
)
def test_a_link_that_cannot_be_measured_says_why(tmp_path: Path, lines: list[str], warning: str) -> None:
    path = program(tmp_path / "python", *lines)
    budget = Budget.of(0.0 if "sleep 60" in lines else 5.0)
    assert measure_device(Interpreter(path, (3, 12, 0)), budget, has_gpu=True) == Found((), (warning,))
    without = measure_device(Interpreter(path, (3, 12, 0)), budget, has_gpu=False)
    assert without.warnings == ("host to device: not measured: this host has no GPU",)


# --- the node -----------------------------------------------------------------------------------------------------------


def test_measured_numbers_replace_those_of_the_preset() -> None:
    h100 = Gpu("NVIDIA H100 NVL", 2, 99986964480.0, "9.0", "550")
    facts = HostFacts("AMD EPYC 9354", 32, 2.0**38, (h100,), "Linux", "3.12")
    found = Found((measured(cold_name(1), 3e9), measured(hot_name(1), 9e9), measured(SCORE, 0.8, "1"), measured(LINK, 5e10), measured(MEMORY, 3e11)))  # fmt: skip
    node, warnings = make_node(facts, found, "network_disk")
    assert warnings == ()
    assert (node.gpus, node.gpu_memory_bandwidth) == (2, 3.9e12)  # of the device, not of the host
    assert node.storage.cold_bandwidth == node.storage.network_disk == 3e9
    assert node.host_to_device_bandwidth == 5e10
    factors = scale_factors(node)
    host = Profile.reference(factors.reference).host
    assert factors.values["slowdown"] == pytest.approx(host.single_thread_score / 0.8)
    assert factors.values["storage.page_cache"] == pytest.approx(9e9 / host.page_cache_bandwidth)
    assert "storage.network_disk" not in factors.values  # the reference does not say
    inputs = predict("Qwen/Qwen3-0.6B", node).context.inputs
    assert inputs["slowdown"] == pytest.approx(factors.values["slowdown"])


def test_a_host_of_which_nothing_could_be_measured_has_its_preset() -> None:
    node, (warning,) = make_node(HostFacts("some cpu", 2, 2.0**33, (), "Linux", "3.12"), Found(), "local_nvme")
    assert node.storage.page_cache is None
    assert node.cpu.score is None
    assert "gpu_flops is that of the preset" in warning
    assert "slowdown" not in scale_factors(node).values


def test_an_accelerator_without_a_preset() -> None:
    gpu = Gpu("NVIDIA Abacus 9", 1, 2.0**34, "9.9", "999")
    facts = HostFacts("some cpu", 2, 2.0**33, (gpu,), "Linux", "3.12")
    node, (warning,) = make_node(facts, Found((measured("device_copy", 1e12),)), "local_nvme")
    assert (node.gpu, node.gpu_memory_bandwidth, node.platform) == ("NVIDIA Abacus 9", 1e12, "cuda")
    assert "no preset has this accelerator" in warning
    node, (warning, *_) = make_node(facts, Found(), "local_nvme")
    assert node.is_cpu_only
    assert "the node has the processor alone" in warning


def test_the_spread_is_relative() -> None:
    assert spread_of([1.0, 2.0, 4.0]) == 1.5
    assert spread_of([1.0]) is None


# --- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def app() -> typer.Typer:
    found = typer.Typer()
    found.callback()(lambda: None)
    register(found)
    return found


def test_the_command_writes_a_node(
    app: typer.Typer, report: ProbeReport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("calibration.probe.probe.probe_host", lambda *args, **kwargs: report)
    out = tmp_path / "host.json"
    result = CliRunner().invoke(app, ["probe", str(tmp_path), "--out", str(out)], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    for part in (KERNEL, hot_name(1), "spread", "slowdown", "note: ", f"use it with --hardware {out}"):
        assert part in result.output
    assert predict("Qwen/Qwen3-0.6B", str(out)).total_s == predict("Qwen/Qwen3-0.6B", report.hardware).total_s
    result = CliRunner().invoke(app, ["probe", "--json"])
    assert json.loads(result.stdout) == json.loads(json.dumps(report.to_dict()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "/"], "--out = /: a folder"),
        (["--out", "/nowhere/at/all/host.json"], "--out = /nowhere/at/all/host.json: no such folder"),
        (["/nowhere/at/all"], "folder = /nowhere/at/all: No such file"),
        (["--seconds", "nan"], "seconds = nan: it is no number"),
        (["--tier", "tape"], "tier = 'tape': not a known name"),
    ],
)
def test_the_command_refuses_before_it_measures(app: typer.Typer, words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["probe", *words])
    assert isinstance(result.exception, StartupModelError)
    assert message in str(result.exception)
