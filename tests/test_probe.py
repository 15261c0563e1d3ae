"""The probe of a host: what it measures, what it leaves behind (nothing), and what it says when something cannot be measured."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calibration import ProbeReport as PublicReport
from calibration import calibrate
from calibration import host as host_module
from calibration.cli.probe import register
from calibration.host import (
    Gpu,
    HostFacts,
    describe_host,
    evict,
    file_system_of,
    may_be_seen,
    read_into_cache,
    resident_fraction,
)
from calibration.probe import ProbeReport, probe_host, python, storage
from calibration.probe.memory import MEMORY, cache_bytes, measure_memory
from calibration.probe.probe import bootstrap_note, make_node, scale_factors
from calibration.probe.python import (
    CHECKSUM,
    KERNEL,
    LINK,
    PLAIN_BUILD,
    PROCESSOR,
    REFERENCE_SECONDS,
    SCORE,
    Batch,
    Interpreter,
    _EndWatch,
    ask,
    interpreter,
    judge_score,
    measure_device,
    run_kernel,
    score_of,
)
from calibration.probe.results import Budget, Found, Measurement, ProbeProgress, spread_of
from calibration.probe.scripts.kernel import repetition
from calibration.probe.storage import BUFFERED, STREAMS, Extent, Reading, cold_name, hot_name, measure_storage
from calibration.runs.record import RunRecord
from startup_model import EngineConfig, HardwareConfig, ModelConfig, predict, sweep
from startup_model.errors import ConfigError, InputFileError, StartupModelError
from startup_model.hardware import STORAGE_DEFAULTS
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
def steps() -> list[ProbeProgress]:
    return []


@pytest.fixture(scope="module")
def report(weights: Path, steps: list[ProbeProgress]) -> ProbeReport:
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
    assert {KERNEL, SCORE, MEMORY, hot_name(1), python.START} <= set(names)
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


def test_the_caller_hears_of_every_part(report: ProbeReport, steps: list[ProbeProgress]) -> None:
    assert report.seconds > 0.0
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1] == ProbeProgress(7, 7, "done")
    assert f"storage: {hot_name(1)}" in [step.doing for step in steps]


def test_nothing_is_left_in_the_folder(report: ProbeReport, weights: Path) -> None:
    assert report.measurements
    assert [path.name for path in weights.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0.0}, "seconds = 0.0: must be a number of seconds from 5 to 3600"),
        ({"seconds": float("nan")}, "seconds = nan: must be a number of seconds"),
        ({"seconds": float("inf")}, "seconds = inf: must be a number of seconds"),
        ({"seconds": "fast"}, "seconds = 'fast': must be a number of seconds"),
        ({"tier": "floppy"}, "tier = 'floppy': not a known name; known: local_nvme, network_disk, object_store"),
        ({"folder": "/nowhere/at/all"}, "folder = /nowhere/at/all: No such file or directory; give the folder of a"),
        ({"folder": __file__}, "Not a directory; give the folder of a checkpoint, or none"),
        ({"folder": "a\0b"}, "null byte"),
        ({"python": "/nowhere/python"}, "python = '/nowhere/python': no such program; give the python of the engine's"),
        ({"python": "/"}, "python = '/': a folder"),
        ({"python": __file__}, "cannot be executed"),
        ({"python": 3}, "python = 3: must be a path"),
        ({"python": "a" * 300}, "no such program; give the python of the engine's"),
        ({"python": "/" + "a" * 5000}, "no such program"),
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
        storage.check_folder(tmp_path)


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a working Python interpreter \(exit status 3: what is that\?\)"):
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
    found = judge_score(python, [run_kernel(python, Budget.of(5.0))], is_engines=True)
    assert found.measurements == ()
    assert warning in found.warnings[0]


def test_what_the_score_is_worth_is_said(tmp_path: Path) -> None:
    data = {"checksum": CHECKSUM, "seconds": [0.2, 0.4], "implementation": "PyPy", "plain": True}
    path = program(tmp_path / "python", f"echo '{json.dumps(data)}'")
    python = Interpreter(path, (3, 99, 0))
    found = judge_score(python, [run_kernel(python, Budget.of(5.0))], is_engines=False)
    assert found.value(SCORE) == score_of(0.2, (3, 99), plain=True)
    for part in ("no reference for Python 3.99.0", "this is PyPy", "plain build", "the host was busy"):
        assert any(part in warning for warning in found.warnings), part
    python = Interpreter(path, (3, 6, 1))
    old = judge_score(python, [run_kernel(python, Budget.of(5.0))], is_engines=False)
    assert old.warnings == ("single-thread score: not measured: the kernel needs Python 3.9 or newer, this is 3.6.1",)


def test_a_plain_build_counts_where_the_engine_runs_in_it() -> None:
    """A start in a build that takes 1.37 times as long is as much slower; of another Python nothing is known but the processor."""
    batches = [Batch((0.2, 0.2), "", "CPython", True, 1.0)]
    engines = judge_score(Interpreter("python", (3, 11, 0)), batches, is_engines=True)
    other = judge_score(Interpreter("python", (3, 11, 0)), batches, is_engines=False)
    assert engines.value(SCORE) == score_of(0.2, (3, 11))
    assert engines.value(PROCESSOR) == other.value(SCORE) == score_of(0.2, (3, 11), plain=True)
    assert other.value(PROCESSOR) is None
    assert "the score says so" in engines.warnings[0]
    assert "give the engine's Python" in other.warnings[0]
    facts = HostFacts("some cpu", 2, 2.0**33, (), "Linux", "3.11")
    slow, quick = (predict("Qwen/Qwen3-0.6B", make_node(facts, found, "local_nvme")[0]) for found in (engines, other))
    assert slow.context.inputs["slowdown"] == pytest.approx(PLAIN_BUILD * quick.context.inputs["slowdown"])


def test_the_quickest_of_all_moments_counts() -> None:
    batches = [Batch(times, "", "CPython", False, 1.0) for times in ((0.3, 0.3), (0.25, 0.1), ())]
    found = judge_score(Interpreter("python", (3, 11, 0)), batches, is_engines=True)
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
    if storage.in_memory(weights):
        assert any("lies in memory" in warning for warning in found.warnings)
    else:
        assert {cold_name(1), cold_name(2)} <= names or found.warnings
        assert any("too few bytes for 4 readers" in warning for warning in found.warnings)


def test_a_temporary_file_stands_in_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MAX_OWN", 64 * MIB)
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


def test_files_of_another_user_are_read_cold_all_the_same(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says whether they have left the page cache: that is no reason to say that they stay in it."""
    monkeypatch.setattr(storage, "can_read_directly", lambda path: False)
    monkeypatch.setattr(storage, "may_be_seen", lambda path: False)
    monkeypatch.setattr(storage, "resident_fraction", lambda files: None)
    monkeypatch.setattr(storage, "in_memory", lambda folder: False)
    found = measure_storage(weights, Budget.of(1.0), ignore, least=32 * MIB)
    cold = next(entry for entry in found.measurements if entry.name == cold_name(1))
    assert "evicted before (fadvise, unchecked: files of another user)" in cold.command
    assert not any("stay in the page cache" in warning for warning in found.warnings)


def test_a_platform_that_cannot_evict_says_so(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(files: object) -> None:
        raise StartupModelError("this platform cannot")

    monkeypatch.setattr(storage, "can_read_directly", lambda path: False)
    monkeypatch.setattr(storage, "evict", refuse)
    monkeypatch.setattr(storage, "in_memory", lambda folder: False)
    found = measure_storage(weights, Budget.of(1.0), ignore, least=32 * MIB)
    assert f"storage: {cold_name(1)}: this platform cannot, left out" in found.warnings


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(storage, "_fill", fail)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            measure_storage(tmp_path, Budget.of(1.0), ignore)
    else:
        found = measure_storage(tmp_path, Budget.of(1.0), ignore)
        assert found == Found((), ("storage: not measured: the temporary file could not be written (No space left on device)",))  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_with_little_in_it_is_measured_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_can_write", lambda folder: folder != tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 9 * MIB)
    assert storage.place_of(tmp_path) == (tmp_path, "")
    found = measure_storage(tmp_path, Budget.of(5.0), ignore)
    hot = next(entry for entry in found.measurements if entry.name == hot_name(1))
    assert hot.size_bytes == 9 * MIB
    assert "the folder's weights (few: 9.00 MiB, and no file can be made beside them)" in hot.command
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_read_only_folder_with_nothing_in_it_is_measured_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_can_write", lambda folder: folder != tmp_path)
    place = storage.place_of(tmp_path)
    assert place.folder == storage.default_folder()
    assert (
        f"{tmp_path} holds next to no weights and no file can be made in it: measured in {place.folder}" in place.moved
    )
    assert storage.place_of(None) == (None, "")
    facts = HostFacts("some cpu", 2, 2.0**33, (), "Linux", "3.12")
    node, _ = make_node(facts, Found((measured(cold_name(1), 3e9),)), "network_disk", "local_nvme")
    assert (node.storage.tier, node.storage.network_disk, node.storage.local_nvme) == ("network_disk", None, 3e9)


def test_a_folder_is_writable_or_not(tmp_path: Path) -> None:
    assert storage._can_write(tmp_path)
    assert not storage._can_write(tmp_path / "missing")


def test_a_disk_with_little_space_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_SHARE_OF_FREE", 2**62)
    (warning,) = measure_storage(tmp_path, Budget.of(1.0), ignore).warnings
    assert "too little space is left for a temporary file" in warning


def test_a_name_on_a_network_goes_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_MAX_OWN", 8 * MIB)
    kind = file_system_of(tmp_path)._replace(tier="network_disk")
    monkeypatch.setattr(storage, "file_system_of", lambda folder: kind)
    with storage.sample_of(tmp_path, Budget.of(1.0)) as found:
        assert [path.name[:20] for path in tmp_path.iterdir()] == [".startup-model-probe"]
        assert sum(extent.size for extent in found.extents) == 8 * MIB
    assert list(tmp_path.iterdir()) == []


def test_cold_as_fast_as_hot_is_doubted() -> None:
    found = Found((measured(cold_name(1), 8e9), measured(hot_name(1), 9e9)))
    (warning,) = storage._suspicions(found)
    assert "cold (8 GB/s) is hardly slower than hot (9 GB/s)" in warning
    assert list(storage._suspicions(Found((measured(cold_name(1), 1e9), measured(hot_name(1), 9e9))))) == []


def test_what_was_cut_short_is_named() -> None:
    whole, short = Reading(2**29, 0.1, 2**29), Reading(2**26, 0.1, 2**29)
    found = storage.Sample((Extent(Path("m"), 0, 2**25),), "the folder's weights")
    readings = {"whole": whole, "cut": short, "almost": Reading(int(0.95 * 2**29), 0.1, 2**29)}
    ways = [storage._Way(name, 1, "how", lambda left, name=name: readings[name]) for name in readings]  # type: ignore[misc]
    cut: list[str] = []
    storage._measured(ways, found, Budget.of(60.0), ignore, cut)
    assert cut == ["cut"]
    late = storage._measured(ways[:1], found, Budget.of(0.0), ignore, cut)
    assert (late.measurements[0].repetitions, cut) == (1, ["cut", "whole"])
    (warning,) = storage._cut_short(["cold_1", "cold_2"])
    assert "fewer bytes count: cold_1, cold_2; give more seconds" in warning
    assert list(storage._cut_short([])) == []


def test_a_last_piece_that_is_not_whole_is_read_too(tmp_path: Path) -> None:
    """40 MiB are a piece of 32 and one of 8: leaving that out looked as if the time had been up."""
    (tmp_path / "model.safetensors").write_bytes(b"x" * 40 * MIB)
    found = measure_storage(tmp_path, Budget.of(60.0), ignore, least=32 * MIB)
    hot = {entry.name: entry.size_bytes for entry in found.measurements if "hot" in entry.name}
    assert hot == {hot_name(1): 40 * MIB, hot_name(2): 40 * MIB}
    assert not any("time was up" in warning for warning in found.warnings)


def test_other_bytes_each_time_until_all_are_read() -> None:
    extents = tuple(Extent(Path("x"), n, 2**25) for n in range(3))
    turns = storage.Sample(extents, "").turns(2**26)
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


def test_a_child_that_prints_without_end_is_ended() -> None:
    answer = ask(["/bin/sh", "-c", "while :; do echo 0123456789012345678901234567890123456789; done"], 30.0)
    assert answer.problem == "it prints without end (more than 1048576 bytes)"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")
def test_what_a_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    """A process in a session of its own that holds the pipe: nobody waits for it, and nothing is left of it."""
    answer = ask(["/bin/sh", "-c", f"setsid sleep 600 & echo $! > {tmp_path}/pid; echo '{{}}'"], 30.0)
    assert (answer.data, answer.problem) == ({}, "")
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_bytes().rpartition(b")")[2].split()[0] == b"Z"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ends are heard of late")
def test_the_end_of_a_child_is_noted_before_its_supervisor_looks() -> None:
    """It looks every 50 ms, a start of Python takes less."""

    class Child:
        has_ended = False
        pid = 0

    process = subprocess.Popen(["sleep", "0.05"])
    begin = time.monotonic()
    child = Child()
    child.pid = process.pid
    watch = _EndWatch(child)  # type: ignore[arg-type]
    assert watch.ident is not None
    watch.join()
    process.wait()
    assert begin < watch.ended_at() == watch._at


def test_a_program_that_cannot_be_run_is_a_reason() -> None:
    answer = ask(["/nowhere/at/all"], 5.0)
    assert (answer.data, answer.seconds) == (None, 0.0)
    assert "No such file or directory" in answer.problem


def test_a_kernel_that_hangs_is_not_waited_for_beyond_the_probe(tmp_path: Path) -> None:
    path = program(tmp_path / "python", "sleep 60")
    batch = run_kernel(Interpreter(path, (3, 11, 0)), Budget.of(0.5), Budget.of(0.0))
    assert (batch.times, batch.problem) == ((), "not done after 1 s")


def test_a_sparse_file_is_looked_at_where_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(2**36)
    looked = [Extent(path, 0, MIB), Extent(path, 2**35 + 4096, MIB)]
    evict(looked)
    assert resident_fraction(looked) in (0.0, None)
    with path.open("rb") as file:
        file.read(MIB)
    assert resident_fraction(looked) in (0.5, None)


def test_reading_into_the_cache_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "_STEP", 2**24)
    (tmp_path / "m").write_bytes(b"x" * 40 * MIB)
    told: list[int] = []
    assert read_into_cache([tmp_path / "m"], told.append) == 40 * MIB
    assert told == [16 * MIB, 32 * MIB]


def test_imports_are_timed_in_the_engines_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "_package", lambda python, budget: "fractions")
    found = python.measure_imports(THIS, Budget.of(10.0))
    names = [entry.name for entry in found.measurements]
    assert names == [python.START, python.FIRST, python.REPEATED]
    assert "import fractions under Python" in found.measurements[1].command


def test_an_import_that_fails_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "_package", lambda python, budget: "no_such_package")
    found = python.measure_imports(THIS, Budget.of(10.0))
    (warning,) = found.warnings
    assert "import no_such_package: not measured: exit status 1: ModuleNotFoundError" in warning
    monkeypatch.setattr(python, "_package", lambda python, budget: None)
    assert "has none of vllm, sglang, torch, numpy" in python.measure_imports(THIS, Budget.of(1.0)).warnings[0]


def test_what_is_imported_is_the_engine_or_the_nearest_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert python._package(THIS, Budget.of(20.0)) != "vllm"  # a folder of that name is no engine
    (tmp_path / "vllm" / "__init__.py").touch()
    assert python._package(THIS, Budget.of(20.0)) == "vllm"


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
    factors = scale_factors(node, found)
    host = Profile.reference(factors.reference).host
    assert factors.values["slowdown"] == pytest.approx((host.single_thread_score or 0.0) / 0.8)
    assert factors.values["storage.page_cache"] == pytest.approx(9e9 / host.page_cache_bandwidth)
    assert host.network_disk_bandwidth is None  # the reference does not say: predictions would take the default
    assert factors.values["storage.network_disk"] == 3e9 / STORAGE_DEFAULTS["network_disk"]
    assert factors.values["host_to_device_bandwidth"] == 5e10 / host.host_to_device_bandwidth
    measured_ones = {"single_thread_score", "slowdown", "storage.page_cache", "storage.network_disk"}
    assert set(factors.values) == measured_ones | {"host_to_device_bandwidth"}  # not what the preset says
    inputs = predict("Qwen/Qwen3-0.6B", node).context.inputs
    assert inputs["slowdown"] == pytest.approx(factors.values["slowdown"])


def test_a_host_of_which_nothing_could_be_measured_has_its_preset() -> None:
    node, (warning,) = make_node(HostFacts("some cpu", 2, 2.0**33, (), "Linux", "3.12"), Found(), "local_nvme")
    assert node.storage.page_cache is None
    assert node.cpu.score is None
    assert "gpu_flops is that of the preset" in warning
    assert scale_factors(node, Found()).values == {}


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


# --- a probe of a host that has a profile --------------------------------------------------------------------------------


def runs_of(node: HardwareConfig) -> list[RunRecord]:
    """Starts of three small models on a host without accelerators."""
    engine = EngineConfig(version="0.32.0", generation="v1", page_cache="hot", compile_cache="warm", max_model_len=512)
    models = [ModelConfig.from_catalogue(name) for name in ("Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B")]  # fmt: skip
    phases = {"framework_bootstrap": 21.0, "worker_spawn": 12.0, "memory_profiling": 2.0, "kv_cache_init": 0.01}
    return [
        RunRecord(
            model=model,
            hardware=node,
            engine=engine,
            phases={**phases, "weight_load": seconds, "model_init": 0.2},
            sums=({"phases": ("graph_trace", "graph_compile"), "seconds": 20.0},),  # type: ignore[arg-type]
            wall_s=35.21 + seconds + 23.0,
        )
        for model, seconds in zip(models, (0.3, 0.5, 1.3), strict=True)
    ]


FACTS = HostFacts("AMD EPYC", 2, 2.0**35, (), "Linux", "3.11")
PROBED, _ = make_node(FACTS, Found((measured(SCORE, 0.8, "1"), measured(MEMORY, 11.4e9), measured(hot_name(1), 5e9))), "local_nvme")  # fmt: skip


def predicted(node: HardwareConfig, profile: Profile) -> dict[str, float]:
    found = predict("meta-llama/Llama-3.2-1B", node, page_cache="hot", compile_cache="warm", version="0.32.0", max_model_len=512, profile=profile)  # fmt: skip
    return {phase.value: entry.seconds for phase, entry in found.phases.items()}


def test_a_probe_does_not_contradict_a_profile_of_the_same_host() -> None:
    """The host was profiled before anybody had measured it: its coefficients hold what it does, whatever the probe says later."""
    plain = describe_host(FACTS)
    profile = calibrate(runs_of(plain), held_out=False).profile
    assert profile.host.single_thread_score is None
    assert set(profile.host.assumed) == {"gpu_memory_bandwidth", "page_cache_bandwidth", "device_flops"}
    assert predicted(PROBED, profile) == predicted(plain, profile)
    assert Profile.from_dict(json.loads(profile.to_json())) == profile


def test_a_profile_of_a_probed_host_does_not_contradict_a_node_that_was_not() -> None:
    """``gpu_memory_bandwidth`` of the preset ``cpu`` is of a data sheet: it does not make the host forty times faster than measured."""
    profile = calibrate(runs_of(PROBED), held_out=False).profile
    assert (profile.host.single_thread_score, profile.host.gpu_memory_bandwidth) == (0.8, 11.4e9)
    assert profile.host.assumed == ("device_flops",)
    assert predicted(describe_host(FACTS), profile) == predicted(PROBED, profile)
    quicker = PROBED.replace(cpu=PROBED.cpu.replace(single_thread_score=1.6), gpu_memory_bandwidth=22.8e9)
    there, here = predicted(quicker, profile), predicted(PROBED, profile)
    assert there["framework_bootstrap"] == pytest.approx(here["framework_bootstrap"] / 2)
    assert there["kv_cache_init"] < here["kv_cache_init"]


def test_further_runs_keep_what_the_prior_assumed_or_measured() -> None:
    plain = describe_host(FACTS)
    first = calibrate(runs_of(plain), held_out=False).profile
    again = [run.replace(wall_s=(run.wall_s or 0.0) + 0.1) for run in runs_of(PROBED)]
    second = calibrate(again, first, held_out=False).profile
    assert second.host.assumed == first.host.assumed
    assert second.host.gpu_memory_bandwidth == first.host.gpu_memory_bandwidth
    assert predicted(PROBED, second)["kv_cache_init"] == pytest.approx(
        predicted(PROBED, first)["kv_cache_init"], rel=0.05
    )
    probed = calibrate(runs_of(PROBED), held_out=False).profile
    third = calibrate([run.replace(hardware=plain) for run in again], probed, held_out=False).profile
    assert (third.host.gpu_memory_bandwidth, third.host.assumed) == (11.4e9, ("device_flops",))


def test_accelerators_are_compared_whatever_the_profile_assumed() -> None:
    profile = calibrate(runs_of(describe_host(FACTS)), held_out=False).profile
    slow, fast = (HardwareConfig.preset("l40s", gpu_memory_bandwidth=rate) for rate in (4e11, 8e11))
    assert predicted(fast, profile)["kv_cache_init"] < predicted(slow, profile)["kv_cache_init"]


@pytest.mark.parametrize("probed", [False, True])
@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("hardware.cpu.single_thread_score", [0.4, 0.8, 1.6]),
        ("hardware.gpu_memory_bandwidth", [5e9, 11.4e9, 5e10]),
        ("hardware.storage.page_cache", [2e9, 8e9]),
        ("hardware.gpu_flops", [1e12, 1e13]),
    ],
)
def test_a_sweep_says_what_predictions_say(axis: str, values: list[float], probed: bool) -> None:
    node = PROBED if probed else describe_host(FACTS)
    profile = calibrate(runs_of(node), held_out=False).profile
    engine = {"page_cache": "hot", "compile_cache": "warm", "version": "0.32.0", "max_model_len": 512}
    grid = sweep("meta-llama/Llama-3.2-1B", node, None, {axis: values}, profile=profile, **engine)
    fields = axis.removeprefix("hardware.").split(".")
    for value, total in zip(values, grid.total_s, strict=True):
        changes = {fields[0]: getattr(node, fields[0]).replace(**{fields[1]: value})} if fields[1:] else {fields[0]: value}  # fmt: skip
        there = predict("meta-llama/Llama-3.2-1B", node.replace(**changes), profile=profile, **engine)
        assert total == pytest.approx(there.total_s, rel=1e-12)


def test_an_import_that_is_longer_than_the_bootstrap_is_said() -> None:
    shown = Measurement(python.REPEATED, 10.4, "s", 0.1, 2, None, "import vllm under Python 3.11.7, again", 20.0)
    (note,) = bootstrap_note(PROBED, Found((shown,)))
    seconds = predict("Qwen/Qwen3-0.6B", PROBED).phases["framework_bootstrap"].seconds  # type: ignore[index]
    assert "import of vllm: 10.4 s, twice in a row in a start: framework_bootstrap takes 20.8 s at least" in note
    assert f"predictions of this node without a profile have {seconds:.2f} s" in note
    assert bootstrap_note(PROBED, Found((shown._replace(value=seconds / 2),))) == ()
    assert bootstrap_note(PROBED, Found((shown._replace(command="import torch under Python 3.11.7, again"),))) == ()
    assert bootstrap_note(PROBED, Found()) == ()
    assert python.imported(Found((shown,))) == "vllm"
    assert python.imported(Found()) is None


# --- the page cache -----------------------------------------------------------------------------------------------------


@pytest.fixture
def foreign() -> Iterator[Callable[[], Path]]:
    """A file that this process neither owns nor may write: of root, seen by nobody; or any of root's where the tests are not root."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    path = folder / "model.safetensors"
    path.write_bytes(b"x" * 4 * MIB)
    path.chmod(0o444)

    def become_nobody() -> Path:
        if os.geteuid() == 0:
            os.seteuid(65534)
            return path
        return Path("/etc/passwd")

    before = os.geteuid()
    yield become_nobody
    if before == 0:
        os.seteuid(0)
    shutil.rmtree(folder)


def test_nothing_is_said_of_files_that_linux_hides(foreign: Callable[[], Path]) -> None:
    """After an eviction ``mincore`` calls them resident, as it does for everybody but owners and writers: a cold start was recorded as hot."""
    path = foreign()
    assert not may_be_seen(path)
    evict([path])
    assert resident_fraction([path]) is None


def test_files_of_ones_own_are_seen(weights: Path) -> None:
    path = weights / "model.safetensors"
    assert may_be_seen(path)
    assert read_into_cache([path]) == 64 * MIB
    assert resident_fraction([path]) == 1.0
    assert resident_fraction([]) is None
    assert not may_be_seen(weights / "missing")


@pytest.mark.parametrize(
    ("owner", "writable", "seen"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_owners_and_writers_see(
    weights: Path, monkeypatch: pytest.MonkeyPatch, owner: bool, writable: bool, seen: bool
) -> None:
    path = weights / "model.safetensors"
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + (0 if owner else 1))
    monkeypatch.setattr(host_module.os, "access", lambda *_, **__: writable)
    assert may_be_seen(path) is seen
    assert (resident_fraction([path]) is not None) is seen


@pytest.mark.parametrize("function", [evict, read_into_cache, resident_fraction])
def test_a_file_that_is_gone_is_one_line(tmp_path: Path, function: Callable[[list[Path]], object]) -> None:
    with pytest.raises(InputFileError, match="No such file or directory; is the checkpoint still there"):
        function([tmp_path / "model.safetensors"])


def test_names_are_where_they_were() -> None:
    assert PublicReport is ProbeReport


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
    full = CliRunner().invoke(app, ["probe", "--out", str(out)], env={"COLUMNS": "140"})
    assert full.exit_code == 0

    def fill_the_disk(*_: object) -> None:
        raise InputFileError("no space")

    monkeypatch.setattr("calibration.cli.probe.write_atomically", fill_the_disk)
    full = CliRunner().invoke(app, ["probe", "--out", str(out)], env={"COLUMNS": "140"})
    assert (str(full.exception), KERNEL in full.output, "written" in full.output) == ("no space", True, False)
    result = CliRunner().invoke(app, ["probe", "--json"])
    assert json.loads(result.stdout) == json.loads(json.dumps(report.to_dict()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "/"], "--out = /: a folder"),
        (["--out", "/dev/null"], "--out = /dev/null: not a regular file"),
        (["--out", "x" * 300], "it cannot be written (File name too long); give another name or folder"),
        (["--out", "/proc/host.json"], "it cannot be written ("),
        (["--out", "/nowhere/at/all/host.json"], "--out = /nowhere/at/all/host.json: no such folder"),
        (["/nowhere/at/all"], "folder = /nowhere/at/all: No such file"),
        (["--seconds", "nan"], "seconds = nan: must be a number of seconds"),
        (["--tier", "tape"], "tier = 'tape': not a known name"),
    ],
)
def test_the_command_refuses_before_it_measures(app: typer.Typer, words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["probe", *words])
    assert isinstance(result.exception, StartupModelError)
    assert message in str(result.exception)
