"""The gate: measured starts against a profile, profiles and predictions against each other, and what a build server gets."""

from __future__ import annotations

import io
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from command import Done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from calibration import fit_profile, parse_log, read_runs, write_runs
from calibration.cli import gate as cli
from calibration.gate import (
    Candidate,
    compare_files,
    compare_predictions,
    compare_profiles,
    gate,
    judge,
    read_candidates,
)
from calibration.gate.figures import LogRatios, Point, common_shift
from calibration.gate.inputs import Given, host_of
from calibration.gate.report import (
    FAIL_ON,
    KINDS,
    NOT_COUNTED,
    GateReport,
    RunVerdict,
    compare_junit,
    gate_junit,
    print_gate,
)
from calibration.runs.published import published_runs
from calibration.runs.record import PhaseSum, RunRecord
from startup_model import EngineConfig, HardwareConfig, Phase, Profile, StartupPrediction, predict
from startup_model.errors import ConfigError, InputFileError, ProfileError, StartupModelError, UnknownNameError

EXAMPLES = Path(__file__).parent.parent / "examples"
L40S_RUN = EXAMPLES / "runs" / "l40s.yaml"
LOGS = EXAMPLES / "logs"
L40S, NVL, XEON = "l40s-epyc-9354", "h100-nvl-epyc-9354", "h100-sxm-xeon-8568y"
HOSTS = {
    L40S: ("l40s", "AMD EPYC 9354"),
    NVL: ("h100-nvl", "AMD EPYC 9354"),
    XEON: ("h100-sxm", "Intel Xeon Platinum 8568Y+"),
}
MODELS = ("Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen1.5-14B")
CACHED = {"page_cache": "hot", "compile_cache": "warm"}
UNLOGGED = frozenset({"api_ready", "unattributed", "kv_cache_init"})
"""Phases that no stage of an engine logs: they are the rest of a wall time."""


def predicted(profile: str = NVL, model: str = MODELS[2], **engine: Any) -> StartupPrediction:
    """What a reference profile expects of its own host."""
    preset, cpu = HOSTS[profile]
    node = HardwareConfig.preset(preset, cpu={"model": cpu}, storage={"local_nvme": "545 MB/s"})
    return predict(model, node, EngineConfig(**(CACHED | engine)), profile=profile)


def run_of(
    found: StartupPrediction, factors: Mapping[str, float] | None = None, everything: float = 1.0, **fields: Any
) -> RunRecord:
    """A run that took what was predicted, times a factor for some phases or for all. ``says``: fields of its engine that are not those of the prediction."""
    start = found.context.start
    times = {phase.value: entry.elapsed_s * everything for phase, entry in found.phases.items() if entry.elapsed_s > 0}
    times = {name: seconds * (factors or {}).get(name, 1.0) for name, seconds in times.items()}
    engine = start.engine.replace(**fields.pop("says", {}))
    values: dict[str, Any] = {
        "model": start.model,
        "hardware": start.hardware,
        "engine": engine,
        "phases": {name: seconds for name, seconds in times.items() if name not in UNLOGGED},
        "wall_s": sum(times.values()),
    }
    return RunRecord(**(values | fields))


def only(report: GateReport) -> RunVerdict:
    assert len(report.runs) == 1
    return report.runs[0]


def verdicts(report: GateReport) -> dict[str, str]:
    """Phase -> verdict, of those that are not ok."""
    return {row.phase: row.verdict for row in report.rows if row.verdict != "ok" and row.verdict not in NOT_COUNTED}


def kinds(report: GateReport) -> list[str]:
    return [finding.kind for finding in only(report).findings if finding.kind != "domain"]


def command(*arguments: object, text: str = "") -> Done:
    return run("gate", *arguments, stdin=text.encode())


def xml(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  our own


def message(arguments: Sequence[str]) -> str:
    """The one line of a run of the command that cannot do what it is asked to."""
    done = command(*arguments)
    assert done.status == 2, done.out
    assert len(done.err.strip().splitlines()) == 1
    return done.err


# --- runs that are as predicted -----------------------------------------------------------------------------------------

ENGINES = st.fixed_dictionaries(
    {
        "page_cache": st.sampled_from(["hot", "cold"]),
        "compile_cache": st.sampled_from(["warm", "cold"]),
        "enforce_eager": st.booleans(),
        "load_format": st.sampled_from(["auto", "dummy", "runai_streamer"]),
        "version": st.sampled_from(["0.10.1.1", "0.8.5", "0.12.0"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(profile=st.sampled_from([*HOSTS]), model=st.sampled_from(MODELS[:3]), engine=ENGINES, data=st.data())
def test_a_run_that_equals_its_prediction_passes(
    profile: str, model: str, engine: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever it reports: all of it, some phases, sums, the wall time alone, times rounded to what its stamps resolve, states of its caches kept to itself."""
    found = predicted(profile, model, **engine)
    run = run_of(found)
    kept = data.draw(st.sets(st.sampled_from(sorted(run.phases))))
    stamp = data.draw(st.sampled_from([0.001, 0.1, 1.0]))
    phases = {name: round(run.phases[name] / stamp) * stamp for name in run.phases if name in kept}
    wall = run.wall_s if not phases or data.draw(st.booleans()) else None
    if wall is not None and sum(phases.values()) > wall:
        wall = sum(phases.values())
    states = data.draw(
        st.sampled_from([{}, {"page_cache": "unknown"}, {"page_cache": "unknown", "compile_cache": "unknown"}])
    )
    told = run.replace(phases=phases, wall_s=wall, stamp_resolution_s=stamp, engine=run.engine.replace(**states))
    factor = data.draw(st.floats(1.01, 3.0))
    if sum(phases.values()) <= (wall or math.inf):
        report = gate([told], profile, factor)
        assert report.passed, report.text()
        assert not {"regression", "drift"} & set(verdicts(report).values())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    profile=st.sampled_from([*HOSTS]),
    model=st.sampled_from(MODELS),
    factor=st.floats(1.1, 3.0),
    beyond=st.floats(1.01, 20.0),
    data=st.data(),
)
def test_a_phase_slowed_beyond_the_factor_fails_and_is_named(
    profile: str, model: str, factor: float, beyond: float, data: st.DataObject
) -> None:
    found = predicted(profile, model)
    slowed = data.draw(
        st.sampled_from(
            [name.value for name, entry in found.phases.items() if entry.seconds > 0 and name.value not in UNLOGGED]
        )
    )
    run = run_of(found, {slowed: factor * beyond})
    report = gate([run], profile, factor, floor_s=0.0)
    row = next(row for row in report.rows if row.phase == slowed)
    if row.measured_s < 0.02 * found.total_s or row.measured_s - 0.001 <= factor * found.phases[Phase(slowed)].seconds:
        return  # too short to count, or within what a millisecond resolves
    assert not report.passed
    named = [finding for finding in only(report).findings if finding.fails and slowed in finding.text]
    assert named, report.text()
    if slowed not in ("weight_load", "graph_compile"):  # these may look like a cold cache instead
        assert row.verdict == "regression"
        assert any(finding.phase == slowed and finding.kind == "regression" for finding in named)
    assert row.verdict in ("regression", "state", "drift")


@pytest.mark.parametrize(
    ("dataset", "profile"),
    [
        ("h100nvl_hot", NVL), ("h100nvl_cold_ssd", NVL), ("h100nvl_quantization", NVL), ("h100nvl_uncompiled", NVL),
        ("h100nvl_no_torch_compile", NVL), ("l40s_hot", L40S), ("h100sxm_hot", XEON), ("h100nvl_noisy_storage", NVL),
    ],
)  # fmt: skip
def test_published_runs_of_a_host_raise_no_false_alarm(dataset: str, profile: str) -> None:
    """Measurements of arXiv 2606.07362, 8 to 17 starts of a kind, at a factor that is stricter than the usual one."""
    runs = [run for run in published_runs() if run.dataset == dataset]
    report = gate(runs, profile, 1.3)
    assert report.passed, report.text()
    assert report.runs_total == len(runs) >= 8


def test_a_load_from_noisy_storage_is_drift() -> None:
    """One of the published loads on the L40S host took far longer than any of the others, while the rest of that start was as usual."""
    runs = [run for run in published_runs() if run.dataset == "l40s_noisy_storage"]
    report = gate(runs, L40S)
    assert report.runs_failed == 1
    assert verdicts(report) == {"weight_load": "drift"}


# --- regressions and gains ----------------------------------------------------------------------------------------------


def test_a_regression_says_by_how_much_and_what_the_interval_allows() -> None:
    found = predicted()
    report = gate([run_of(found, {"graph_trace": 2.0})], NVL)
    (finding,) = (finding for finding in only(report).findings if finding.fails)
    expected = found.phases[Phase.GRAPH_TRACE].seconds
    assert finding.kind == "regression"
    assert finding.phase == "graph_trace"
    assert finding.excess_s == pytest.approx(expected)
    assert (
        f"{2 * expected:.1f} s, 2.00 times the predicted {expected:.2f} s (limit {1.5 * expected:.2f} s)"
        in finding.text
    )
    assert "beyond the 90% interval of the profile" in finding.text
    assert only(report).verdict == "regression"
    assert verdicts(report) == {"graph_trace": "regression"}
    assert "gate FAILED: 1 run against profile h100-nvl-epyc-9354 at factor 1.5; 1 did not pass" in report.text()


def test_a_profile_with_a_wide_interval_is_said_to_be_as_wrong() -> None:
    node = HardwareConfig.preset("a100-80gb", cpu={"model": "Other CPU"})
    found = predict(MODELS[2], node, EngineConfig(**CACHED), profile=NVL)
    (finding,) = (f for f in only(gate([run_of(found, {"graph_trace": 1.7})], NVL)).findings if f.fails)
    assert "within the 90% interval of the profile" in finding.text
    assert "its own error may be as large" in finding.text


def test_a_total_beyond_the_factor_names_the_phase_behind_it() -> None:
    report = gate([run_of(predicted(), {"framework_bootstrap": 5.0})], NVL)
    total = next(finding for finding in only(report).findings if finding.phase == "total")
    assert "mostly framework_bootstrap (+" in total.text
    assert verdicts(report) == {"framework_bootstrap": "regression", "total": "regression"}


def test_time_that_no_stage_logs_is_judged_as_the_rest() -> None:
    found = predicted()
    run = run_of(found)
    assert run.wall_s is not None
    report = gate([run.replace(wall_s=run.wall_s + 5.0)], NVL)
    assert verdicts(report) == {"rest": "regression"}
    row = next(row for row in report.rows if row.phase == "rest")
    assert row.predicted_s == pytest.approx(sum(found.phases[Phase(name)].seconds for name in UNLOGGED))
    assert row.measured_s == pytest.approx(row.predicted_s + 5.0)


def test_a_gain_passes_and_says_that_the_profile_is_stale() -> None:
    report = gate([run_of(predicted(), {"graph_compile": 0.3})], NVL)
    assert report.passed
    assert verdicts(report) == {"graph_compile": "gain"}
    (finding,) = (finding for finding in only(report).findings if finding.kind == "gain")
    assert "0.30 times the predicted" in finding.text
    assert "the profile is stale, calibrate it again" in finding.text
    assert not gate([run_of(predicted(), {"graph_compile": 0.3})], NVL, fail_on=["gain"]).passed


def test_short_phases_do_not_count() -> None:
    found = predicted()
    assert found.phases[Phase.MODEL_INIT].seconds < 0.2
    run = run_of(found, {"model_init": 2.0})
    report = gate([run], NVL)
    assert report.passed
    assert next(row.verdict for row in report.rows if row.phase == "model_init") == "minor"
    longer = run_of(found, {"model_init": 6.0})
    assert verdicts(gate([longer], NVL)) == {"model_init": "regression"}
    assert gate([longer], NVL, floor_s=2.0).passed
    # 2 % of a total of about 25 s is 0.5 s, whatever the floor
    assert gate([run_of(found, {"model_init": 3.0})], NVL, floor_s=0.0).passed


def test_what_stamps_do_not_resolve_does_not_count() -> None:
    """Whole seconds: a capture of 1.3 s that is logged as 2 s is no regression, one of 3 s is."""
    found = predicted()
    expected = found.phases[Phase.GRAPH_CAPTURE].seconds
    assert 1.1 < expected < 1.34
    run = run_of(found).replace(wall_s=None, stamp_resolution_s=1.0)
    within = gate([run.replace(phases=run.phases | {"graph_capture": 2.0})], NVL)
    assert within.passed
    (row,) = (row for row in within.rows if row.phase == "graph_capture")
    assert (row.verdict, row.measured_s > row.limit_s) == ("unresolved", True)
    (case,) = (case for case in xml(gate_junit(within)).iter("testcase") if case.attrib["name"] == "graph_capture")
    skipped = case.find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith(
        "beyond the limit by less than the stamps of the run resolve: measured 2.000 s"
    )
    report = gate([run.replace(phases=run.phases | {"graph_capture": 3.1})], NVL)
    assert verdicts(report) == {"graph_capture": "regression"}


def test_tables_explain_what_is_above_the_limit_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """A captured log of whole seconds: model_init is short, memory_profiling not resolved; a run without either needs no legend."""
    report = gate(read_candidates([LOGS / "base.log"], Profile.reference(NVL), Given(**CACHED)), NVL)
    verdict_of = {row.phase: row.verdict for row in report.rows}
    assert (verdict_of["model_init"], verdict_of["memory_profiling"]) == ("minor", "unresolved")
    print_gate(Console(width=80, markup=False), report)
    lines = capsys.readouterr().out.splitlines()
    assert "minor: beyond the limit, but too short to count" in lines
    assert "unresolved: beyond the limit by less than the stamps of the run resolve" in lines
    print_gate(Console(width=80, markup=False), gate([run_of(predicted())], NVL))
    assert "beyond the limit" not in capsys.readouterr().out


def test_phases_may_have_a_factor_of_their_own() -> None:
    run = run_of(predicted(), {"graph_trace": 1.8})
    assert not gate([run], NVL).passed
    report = gate([run], NVL, phase_factor=2.0)
    assert report.passed
    assert "at factor 1.5 (phases 2)" in report.headline()
    assert gate([run_of(predicted(), everything=1.3)], NVL, 1.2, phase_factor=1.5).runs[0].rows[-1].verdict == "drift"


# --- the host -----------------------------------------------------------------------------------------------------------


def test_a_slow_host_is_drift_not_regression() -> None:
    report = gate([run_of(predicted(), {"weight_load": 0.5}, everything=2.0)], NVL)
    assert not report.passed
    assert set(verdicts(report).values()) == {"drift"}
    assert kinds(report) == ["drift"]
    (finding,) = (finding for finding in only(report).findings if finding.fails)
    assert "processor-bound figures took about 2.00 times the predicted seconds" in finding.text
    assert "same software" in finding.text
    assert gate([run_of(predicted(), everything=2.0)], NVL, fail_on=["regression"]).passed


def test_a_regression_on_a_slow_host_is_told_apart() -> None:
    report = gate([run_of(predicted(), {"graph_capture": 6.0}, everything=1.8)], NVL)
    assert verdicts(report).pop("graph_capture") == "regression"
    assert only(report).verdict == "regression"
    assert kinds(report).count("regression") == 1 + (verdicts(report)["total"] == "regression")
    drift = next(finding for finding in only(report).findings if finding.kind == "drift")
    assert "(not graph_capture)" in drift.text


def test_a_faster_host_passes_as_drift() -> None:
    report = gate([run_of(predicted(), everything=0.5)], NVL)
    assert report.passed
    assert "the host is faster than the profile's, calibrate it again" in report.text()
    assert "gain" not in kinds(report)


def test_a_little_drift_is_said_and_passes() -> None:
    report = gate([run_of(predicted(), everything=1.25)], NVL)
    assert report.passed
    assert "within the factor" in report.text()


def test_phases_that_moved_by_different_factors_are_no_drift() -> None:
    slowed = {"graph_trace": 2.0, "graph_compile": 1.6, "memory_profiling": 3.0}
    report = gate([run_of(predicted(), slowed)], NVL)
    assert "drift" not in kinds(report)
    assert {name for name, verdict in verdicts(report).items() if verdict == "regression"} >= {
        "graph_trace",
        "memory_profiling",
    }


def test_storage_at_half_its_bandwidth_is_drift() -> None:
    found = predicted(page_cache="cold")
    report = gate([run_of(found, {"weight_load": 2.0})], NVL)
    assert not report.passed
    assert "regression" not in kinds(report)
    drift = next(finding for finding in only(report).findings if finding.fails)
    assert drift.kind == "drift"
    assert "the load alone moved" in drift.text
    # of the load 15 GB / 545 MB/s is reading and the rest copying, which did not change
    assert "as if storage gave 0.4" in drift.text


def test_a_slow_load_beside_another_slow_phase_is_a_regression() -> None:
    report = gate([run_of(predicted(page_cache="cold"), {"weight_load": 2.0, "graph_trace": 2.0})], NVL)
    assert {"weight_load", "graph_trace"} <= {
        name for name, verdict in verdicts(report).items() if verdict == "regression"
    }


def test_a_load_that_is_all_that_was_measured_is_a_regression() -> None:
    found = predicted(page_cache="cold")
    run = run_of(found)
    alone = run.replace(phases={"weight_load": 2.0 * run.phases["weight_load"]}, wall_s=None)
    assert verdicts(gate([alone], NVL)) == {"weight_load": "regression"}


def test_the_common_factor_by_hand() -> None:
    """Logarithms 0.6, 0.7, 0.8: median 0.7, deviations 0.1, 0, 0.1, so that MAD = 0.1 and the scatter 0.14826."""
    shift = common_shift([Point("a", 0.6, 0.0), Point("b", 0.7, 0.0), Point("c", 0.8, 0.0)])
    assert shift.factor == pytest.approx(math.exp(0.7))
    assert shift.scatter == pytest.approx(0.14826)
    assert shift.is_common
    assert not common_shift([Point("a", 0.7, 0.0), Point("b", 0.7, 0.0)]).is_common  # two phases are too few
    assert not common_shift([Point(str(i), 0.05, 0.0) for i in range(5)]).is_common  # 5 % is no shift
    four = [Point(str(i), 0.7, 0.0) for i in range(3)] + [Point("apart", 0.0, 0.0)]
    assert common_shift(four).outliers == ("apart",)
    assert common_shift(four).is_common
    assert not common_shift([*four, Point("too", 0.0, 0.0)]).is_common
    assert not common_shift([]).is_common


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=50))
def test_counted_ratios_have_the_median_of_the_ratios(values: list[float]) -> None:
    counted = LogRatios()
    for value in values:
        counted.add(value)
    assert counted.median() == pytest.approx(statistics.median(values), abs=0.003)
    assert counted.scatter() == pytest.approx(
        1.4826 * statistics.median(abs(value - statistics.median(values)) for value in values), abs=0.02
    )


# --- states of the caches -----------------------------------------------------------------------------------------------


def test_cold_caches_that_a_run_says_are_judged_as_cold() -> None:
    found = predicted(page_cache="cold", compile_cache="cold")
    report = gate([run_of(found)], NVL)
    assert report.passed
    assert kinds(report) == ["state", "state"]
    text = report.text()
    assert "the start read files from storage (page_cache: cold): weight_load is judged against" in text
    assert "the start compiled its graphs anew (compile_cache: cold): graph_compile is judged against" in text


@pytest.mark.parametrize(
    ("state", "phase", "words"),
    [
        ({"compile_cache": "cold"}, "graph_compile", "the run says compile_cache: warm, but it seems to have compiled its graphs anew"),
        ({"page_cache": "cold"}, "weight_load", "the run says page_cache: hot, but it seems to have read files from storage"),
    ],
)  # fmt: skip
def test_a_cold_cache_that_a_run_does_not_say_is_no_regression(state: dict[str, str], phase: str, words: str) -> None:
    """It fails, as it took longer than the state that it says, but as what it is; judged by the state that it shows all else passes."""
    run = run_of(predicted(**state), says=CACHED)
    report = gate([run], NVL)
    assert not report.passed
    assert kinds(report) == ["state"]
    assert only(report).verdict == "state"
    assert verdicts(report)[phase] == "state"
    assert words in report.text()
    assert gate([run], NVL, fail_on=set(FAIL_ON) - {"state"}).passed


def test_a_warm_cache_that_a_run_calls_cold_is_no_gain() -> None:
    run = run_of(predicted(), says={"page_cache": "cold", "compile_cache": "cold"})
    report = gate([run], NVL)
    assert report.passed
    assert kinds(report) == ["state", "state"]
    assert "the run says page_cache: cold, but it seems to have read its files from memory" in report.text()


def test_unknown_states_are_judged_as_the_slower_one() -> None:
    unknown = {"page_cache": "unknown", "compile_cache": "unknown"}
    found, slow = predicted(), predicted(page_cache="cold", compile_cache="cold")
    for measured, looks in ((found, "hot"), (slow, "cold")):
        report = gate([run_of(measured, says=unknown)], NVL)
        assert report.passed
        total = next(row for row in report.rows if row.phase == "total")
        assert total.predicted_s == pytest.approx(slow.total_s)
        assert total.fastest_s == pytest.approx(found.total_s)
        assert "page_cache is unknown: judged as cold, the slower" in report.text()
        assert f"looks {looks}" in report.text()
    wall = run_of(found, says=unknown).replace(phases={})
    assert gate([wall], NVL).passed
    assert not gate([wall.replace(wall_s=1.6 * slow.total_s)], NVL).passed


def test_a_slow_host_does_not_look_like_a_cold_cache() -> None:
    """A compile of twice the time lies nearer to compiling anew than to loading; with all else at twice the time it is drift."""
    assert kinds(gate([run_of(predicted(), everything=2.6)], NVL)) == ["drift"]
    assert kinds(gate([run_of(predicted(), {"graph_compile": 2.6})], NVL)) == ["state"]


def test_a_compile_that_takes_longer_than_compiling_anew_is_a_regression() -> None:
    """Compiled graphs are loaded or made; nothing of a compile cache explains eight times the time."""
    report = gate([run_of(predicted(), {"graph_compile": 8.0})], NVL)
    assert verdicts(report)["graph_compile"] == "regression"
    assert "state" not in kinds(report)


def test_a_wall_time_alone_names_the_states_that_might_explain_it() -> None:
    run = run_of(predicted()).replace(phases={}, wall_s=60.0)
    report = gate([run], NVL)
    assert verdicts(report) == {"total": "regression"}
    assert "no phase tells which. If page_cache: cold or compile_cache: cold was so, say it" in report.text()


# --- partial runs, logs, failed starts ----------------------------------------------------------------------------------


def test_sums_of_phases_are_judged_together() -> None:
    found = predicted()
    run = run_of(found)
    both = run.phases["graph_trace"] + run.phases["graph_compile"]
    rest = {name: seconds for name, seconds in run.phases.items() if name not in ("graph_trace", "graph_compile")}

    def summed(factor: float) -> RunRecord:
        figure = PhaseSum(phases=("graph_trace", "graph_compile"), seconds=both * factor)
        assert run.wall_s is not None
        return run.replace(phases=rest, sums=(figure,), wall_s=run.wall_s + both * (factor - 1.0))

    assert gate([summed(1.0)], NVL).passed
    report = gate([summed(3.5)], NVL)
    assert verdicts(report)["graph_trace + graph_compile"] == "regression"
    assert next(row for row in report.rows if row.phase == "rest").verdict == "ok"


def test_phases_without_a_wall_time_are_added_up() -> None:
    run = run_of(predicted()).replace(wall_s=None)
    report = gate([run], NVL)
    row = next(row for row in report.rows if row.phase == "measured phases")
    assert row.measured_s == pytest.approx(sum(run.phases.values()))
    assert row.ratio == pytest.approx(1.0)
    assert "measured phases" in report.text()


def test_a_profile_from_a_log_lets_the_log_pass_and_an_older_one_does_not() -> None:
    runs = [parse_log(LOGS / f"{name}.log").to_run("h100-sxm", page_cache="hot") for name in ("base", "eager", "dummy")]
    own = fit_profile(runs, name="from logs")
    report = gate(runs, own)
    assert report.passed, report.text()
    assert not {"framework_bootstrap", "total"} & {row.phase for row in report.rows}  # a log alone has neither
    assert (
        "counted from the first line of a log: framework_bootstrap and wall time are known in part only"
        in report.text()
    )
    whole = parse_log(LOGS / "base.log").to_run("h100-sxm", page_cache="hot", process_start_s=3.0)
    assert {"framework_bootstrap", "total", "rest"} <= {row.phase for row in gate([whole], own).rows}


def test_a_log_that_takes_longer_from_its_first_line_than_the_whole_start_may_fails() -> None:
    run = run_of(predicted())
    assert run.wall_s is not None
    late = run.replace(
        phases={"graph_trace": run.phases["graph_trace"]}, wall_s=2.0 * run.wall_s, measured_from="first_line"
    )
    assert verdicts(gate([late], NVL)) == {"from the first line": "regression"}
    assert gate([late.replace(wall_s=0.5 * run.wall_s)], NVL).passed  # a part of a start is no gain


def test_phases_that_a_profile_has_no_time_for_are_not_lost() -> None:
    run = run_of(predicted())
    assert run.wall_s is not None
    slow = run.replace(phases=run.phases | {"api_ready": 9.0}, wall_s=run.wall_s + 9.0)
    assert verdicts(gate([slow], NVL)) == {"rest": "regression"}
    report = gate([slow.replace(wall_s=None)], NVL)
    assert verdicts(report) == {"api_ready + unattributed": "regression"}
    assert "api_ready took 9 s, but the profile has no time for it" in report.text()
    eager = run_of(predicted(enforce_eager=True))
    captured = eager.replace(phases=eager.phases | {"graph_capture": 9.0}, wall_s=None)
    assert "graph_capture took 9 s, but the flags of the run switch it off" in gate([captured], NVL).text()


def test_phases_of_a_newer_release_are_a_part_of_what_no_stage_logs() -> None:
    run = run_of(predicted()).replace(wall_s=None)
    found = gate([run.replace(unknown_phases={"kernel_build": 9.0})], NVL)
    assert verdicts(found) == {"kernel_build + unattributed": "regression"}
    assert "kernel_build took 9 s, but the profile has no time for it" in found.text()


def test_segments_outside_the_time_to_ready_are_not_judged() -> None:
    run = run_of(predicted()).replace(wall_s=None)
    report = gate([run.replace(phases=run.phases | {"image_pull": 90.0})], NVL)
    assert report.passed
    assert "image_pull is outside the time to ready" in report.text()


@pytest.mark.parametrize("status", ["oom", "crashed", "incomplete", "kv_cache_too_small"])
def test_a_start_that_did_not_come_up_fails(status: str) -> None:
    run = run_of(predicted())
    failed = run.replace(
        status=status,
        wall_s=None,
        phases={"framework_bootstrap": run.phases["framework_bootstrap"], "weight_load": 0.001},
    )
    report = gate([failed], NVL)
    assert not report.passed
    assert only(report).verdict == "failed_start"
    assert (
        f"failed start: status {status}: the server did not come up; the last phase that it measured is weight_load"
        in report.text()
    )
    assert "gain" not in verdicts(report).values()
    assert gate([failed], NVL, fail_on=["regression"]).passed
    bare = failed.replace(phases={})
    assert not gate([bare], NVL).passed


def test_a_failed_start_shows_its_evidence(tmp_path: Path) -> None:
    lines = (LOGS / "base.log").read_text(encoding="utf-8").splitlines()[:11]
    lines.append(
        "(EngineCore_DP0 pid=71) ERROR 07-01 20:00:16 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    path = tmp_path / "oom.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    report = gate(read_candidates([path], Profile.reference(XEON)), XEON)
    assert not report.passed
    assert only(report).status == "oom"
    assert "status oom: the server did not come up; line 12:" in report.text()
    assert "CUDA out of memory" in report.text()


def test_a_start_that_failed_before_it_said_what_it_is_fails_too(tmp_path: Path) -> None:
    report = gate([Candidate(None, "early.log", "crashed", "line 3: ImportError")], NVL)
    assert not report.passed
    assert "early.log: status crashed" in report.text()
    assert "line 3: ImportError" in report.text()
    assert xml(gate_junit(report)).attrib["failures"] == "1"


def test_a_failed_start_that_cannot_be_predicted_still_fails() -> None:
    run = run_of(predicted())
    impossible = run.replace(status="crashed", wall_s=None, phases={}, engine=run.engine.replace(tp=64))
    report = gate([impossible], NVL)
    assert not report.passed
    assert "it cannot be predicted" in report.text()
    with pytest.raises(StartupModelError, match=r"^run 1: .*tp"):
        gate([run.replace(engine=run.engine.replace(tp=64))], NVL)


# --- what a profile does not cover --------------------------------------------------------------------------------------


def test_runs_outside_the_profile_are_said() -> None:
    node = HardwareConfig.preset("a100-80gb", gpus=2, cpu={"model": "Other CPU"})
    found = predict("Qwen/Qwen3-32B", node, EngineConfig(**CACHED, version="0.12.0", tp=2), profile=NVL)
    report = gate([run_of(found)], NVL)
    assert report.passed
    text = report.text()
    assert "another host than the profile's" in text
    assert "vllm 0.12.0 (v1) was not measured" in text
    assert "extrapolated" in text
    assert not gate([run_of(found)], NVL, fail_on=["domain"]).counts.get("regression")


def test_another_engine_is_said() -> None:
    node = HardwareConfig.preset("h100-nvl")
    found = predict(MODELS[0], node, EngineConfig(engine="sglang", page_cache="hot"), profile=NVL)
    report = gate([run_of(found)], NVL)
    assert report.passed, report.text()
    assert "no profile was measured with sglang" in report.text()


# --- many runs ----------------------------------------------------------------------------------------------------------


def test_runs_are_judged_one_by_one_and_together() -> None:
    found = [predicted(model=model) for model in MODELS]
    runs = [run_of(one, {"graph_trace": 2.0}) for one in found] + [run_of(found[0], {"worker_spawn": 3.0})]
    report = gate(runs, NVL)
    assert report.runs_failed == 5
    texts = [finding.text for finding in report.overall]
    assert "graph_trace is beyond its limit in 4 of 5 runs, 2.00 times the prediction in the median of 5" in texts
    assert any("worker_spawn is beyond its limit in 1 of 5 runs" in text and "in few of them" in text for text in texts)
    assert report.phases["graph_trace"].beyond == 4
    assert report.phases["graph_trace"].median_ratio == pytest.approx(2.0, rel=0.01)
    assert report.phases["framework_bootstrap"].median_ratio == pytest.approx(1.0, abs=0.01)
    assert report.counts["regression"] == 5


def test_a_host_that_drifted_is_said_over_all_runs() -> None:
    report = gate([run_of(predicted(model=model), everything=1.8) for model in MODELS], NVL)
    (drift,) = report.overall
    assert drift.kind == "drift"
    assert "in the median of the runs, all" in drift.text
    assert {run.verdict for run in report.runs} == {"drift"}


def test_storage_that_drifted_has_one_factor_over_all_runs() -> None:
    def slow(model: str, factor: float) -> RunRecord:
        found = predicted(model=model, page_cache="cold")
        return run_of(found, {"weight_load": factor})

    report = gate([slow(model, 2.5) for model in MODELS], NVL)
    assert any("4 loads moved alone" in f.text and "one bandwidth changed" in f.text for f in report.overall)
    mixed = gate([slow(MODELS[0], 2.0), slow(MODELS[1], 4.0), slow(MODELS[2], 9.0), slow(MODELS[3], 20.0)], NVL)
    assert any(f.kind == "regression" and "not by one factor" in f.text and f.fails for f in mixed.overall)


def test_stale_profiles_and_failed_starts_are_counted() -> None:
    gains = [run_of(predicted(model=model)).replace(phases={}, wall_s=8.0) for model in MODELS[1:]]
    report = gate([*gains, run_of(predicted()).replace(status="oom", wall_s=None)], NVL)
    texts = [finding.text for finding in report.overall]
    assert any("1 of 4 starts did not come up (oom 1)" in text for text in texts)
    assert any("the profile is stale" in text for text in texts)
    slow = gate([run_of(predicted(model=m), everything=1.9).replace(phases={}) for m in MODELS], NVL)
    assert any("all by about one factor" in finding.text for finding in slow.overall)


def test_many_runs_are_read_one_by_one_and_listed_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MAX_LISTED", 40)
    run, slow = run_of(predicted()), run_of(predicted(), {"graph_trace": 2.0})
    number = 240

    def stream() -> Iterator[RunRecord]:
        for i in range(number):
            yield slow if i % 10 == 9 else run

    report = gate(stream(), NVL)
    assert report.runs_total == number
    assert report.runs_failed == 24
    assert len(report.runs) == 40
    assert sum(not run.passed for run in report.runs) == 24
    assert len(gate([slow] * 50, NVL).runs) == 40
    assert "200 more runs are not listed" in report.text()
    assert xml(gate_junit(report)).find(".//testcase[@name='gate']/failure") is not None


# --- output -------------------------------------------------------------------------------------------------------------


def test_a_report_is_plain_data_and_frozen() -> None:
    report = gate([run_of(predicted(), {"graph_trace": 2.0})], NVL, 1.4)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["passed"] is False
    assert data["factor"] == 1.4
    row = next(row for row in data["runs"][0]["rows"] if row["phase"] == "graph_trace")
    assert row["ratio"] == pytest.approx(2.0)
    assert row["verdict"] == "regression"
    assert len(row["interval_s"]) == 2
    assert data["runs"][0]["findings"][0]["kind"] == "regression"
    assert report.findings == only(report).findings
    with pytest.raises(AttributeError):
        report.passed = True  # type: ignore[misc]


HOSTILE = 'a<b>&"\x00\x1b[31m\ud800\ufffe]]> \U0001f600\nx'


def test_junit_is_valid_whatever_things_are_called() -> None:
    run = run_of(predicted(), {"graph_trace": 2.0})
    named = run.replace(model=run.model.replace(name="<&> \x07 model"), status="oom", wall_s=None)
    report = gate([Candidate(run, HOSTILE), Candidate(named, evidence=HOSTILE, label="]]>")], NVL)
    text = gate_junit(report)
    assert "\x1b" not in text
    root = xml(text)
    assert root.tag == "testsuites"
    (suite,) = root
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == len(report.rows) + 3  # the figures, two starts, all runs
    failures = suite.findall("testcase/failure")
    assert int(suite.attrib["failures"]) == len(failures) == 3 + 1
    assert {case.attrib["name"] for case in cases if case.find("failure") is not None} == {
        "graph_trace",
        "start",
        "gate",
    }
    assert "2.00 times the predicted" in (failures[0].attrib["message"])
    assert cases[0].attrib["classname"] == r'a<b>&"\x00\x1b[31m\ud800\ufffe]]> ' + "\U0001f600 x"
    assert {p.attrib["name"]: p.attrib["value"] for p in suite.findall("properties/property")}["factor"] == "1.5"


def test_what_xml_cannot_hold_is_left_out() -> None:
    report = replace(gate([run_of(predicted())], NVL), profile="a\x00b\x0b\ud800\ufffe&c\td")
    properties = {p.attrib["name"]: p.attrib["value"] for p in xml(gate_junit(report)).iter("property")}
    assert properties["profile"] == "ab&c\td"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_label_makes_valid_xml(label: str) -> None:
    report = gate([Candidate(run_of(predicted()), label)], NVL)
    root = xml(gate_junit(report))
    assert len(root.findall(".//testcase")) == len(report.rows) + 2
    assert root.attrib["failures"] == "0"


def test_junit_tells_drift_state_and_skipped_from_failures() -> None:
    runs = [
        run_of(predicted(), everything=2.0),
        run_of(predicted(compile_cache="cold"), says=CACHED),
        run_of(predicted(), {"model_init": 2.0}),
        run_of(predicted(), {"graph_compile": 0.3}),
    ]
    root = xml(gate_junit(gate(runs, NVL)))
    types = {failure.attrib["type"] for failure in root.iter("failure")}
    assert types == {"drift", "state"}
    passing = xml(gate_junit(gate(runs[2:], NVL)))
    assert [case.attrib["name"] for case in passing.iter("testcase") if case.find("skipped") is not None] == [
        "model_init"
    ]
    assert passing.attrib["skipped"] == "1"
    assert passing.attrib["failures"] == "0"


# --- comparison ---------------------------------------------------------------------------------------------------------


def slower_profile(factor: float = 1.3) -> Profile:
    """The reference of the H100 NVL host with a slower trace."""
    base = Profile.reference(NVL)
    terms = {term: dict(variants) for term, variants in base.coefficients.items()}
    terms["graph_trace"] = {
        variant: {name: entry.replace(value=entry.value * factor) for name, entry in entries.items()}
        for variant, entries in base.coefficients["graph_trace"].items()
    }
    return base.replace(name="slower", coefficients=terms)


def test_profiles_are_compared_by_what_they_predict(tmp_path: Path) -> None:
    slower_profile().save(tmp_path / "new.json")
    report = compare_files(NVL, tmp_path / "new.json")
    assert not report.passed
    assert report.kind == "profiles"
    assert report.most is not None
    assert report.most.phase == "graph_trace"
    assert report.most.ratio == pytest.approx(1.3)
    assert {row.phase for row in report.beyond} == {"graph_trace"}
    assert "moved most: graph_trace" in report.headline()
    assert compare_files(NVL, tmp_path / "new.json", 1.31).passed
    back = compare_files(tmp_path / "new.json", NVL)
    assert not back.passed  # both directions count
    assert "faster: graph_trace" in back.text()
    same = compare_profiles(NVL, NVL)
    assert same.passed
    assert same.most is None
    assert "nothing moved" in same.headline()


def test_profiles_are_asked_about_a_model_and_node() -> None:
    report = compare_profiles(
        NVL, slower_profile(), models=[MODELS[1]], hardware="l40s", engine="vllm serve x --enforce-eager"
    )
    assert report.passed  # nothing is traced
    assert all("Llama-3.2-3B on l40s" in row.case for row in report.rows)
    assert len({row.case for row in report.rows}) == 2  # warm and cold caches
    cold = compare_profiles(
        NVL, slower_profile(), models=[MODELS[1]], engine={"page_cache": "cold", "compile_cache": "warm"}
    )
    assert len({row.case for row in cold.rows}) == 1


def test_profiles_of_other_hosts_and_versions_say_so() -> None:
    report = compare_profiles(NVL, XEON)
    assert "processor: AMD EPYC 9354 -> Intel Xeon Platinum 8568Y+" in report.notes
    other = Profile.reference(NVL).replace(engine="sglang", generation="sglang")
    with pytest.raises(ConfigError, match="a profile of sglang, the old one of vllm"):
        compare_profiles(NVL, other)


def test_predictions_are_compared_phase_by_phase(tmp_path: Path) -> None:
    old, new = predicted().to_dict(), predicted().to_dict()
    new["phases"]["graph_capture"]["seconds"] *= 2.0
    new["phases"]["worker_spawn"]["seconds"] *= 0.5
    new["total_s"] += 0.01
    for name, value in (("old", old), ("new", new)):
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    report = compare_files(tmp_path / "old.json", tmp_path / "new.json")
    assert not report.passed
    assert report.most is not None
    moved = {row.phase: round(row.ratio or 0.0, 3) for row in report.beyond}
    assert moved == {"graph_capture": 2.0, "worker_spawn": 0.5}
    assert report.most.phase == max(report.beyond, key=lambda row: abs(row.moved_s)).phase
    assert compare_files(tmp_path / "old.json", tmp_path / "new.json", 2.01).passed
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["most"]["phase"] == report.most.phase
    root = xml(compare_junit(report))
    assert {failure.attrib["type"] for failure in root.iter("failure")} == {"slower", "faster"}


def test_tables_of_predictions_are_matched_by_model_and_node() -> None:
    old = [predicted(model=model).to_dict() for model in MODELS[:3]]
    new = [predicted(model=model).to_dict() for model in (MODELS[2], MODELS[0], MODELS[3])]
    report = compare_predictions(old, new)
    assert report.passed
    assert len({row.case for row in report.rows}) == 2
    assert f"only in the old table: {MODELS[1]} on h100-nvl" in report.notes
    assert f"only in the new table: {MODELS[3]} on h100-nvl" in report.notes
    twice = [predicted().to_dict(), predicted(page_cache="cold").to_dict()]
    assert compare_predictions(twice, twice).passed
    assert len(compare_predictions(twice, twice).rows) == 2 * (1 + len(predicted().phases))
    lone = compare_predictions(predicted(model=MODELS[0]).to_dict(), [predicted(model=MODELS[1]).to_dict()])
    assert f"model: {MODELS[0]} -> {MODELS[1]}" in lone.notes
    with pytest.raises(ConfigError, match="no start stands in both tables"):
        compare_predictions(old[:2], [new[0], new[2]])


def test_a_phase_that_is_new_counts_from_nothing() -> None:
    old = {"model": "m", "hardware": "h", "total_s": 5.0, "phases": {"a": {"seconds": 5.0}}}
    new = {"model": "m", "hardware": "h", "total_s": 8.0, "phases": {"a": {"seconds": 5.0}, "b": {"seconds": 3.0}}}
    report = compare_predictions(old, new)
    assert report.most is not None
    assert report.most.phase == "b"
    assert report.most.ratio is None
    assert "b 0.000 s -> 3.00 s (new, +3.00 s)" in report.headline()
    assert {row.phase for row in report.beyond} == {"b", "total"}
    assert compare_predictions(old, {**new, "phases": old["phases"], "total_s": 5.0}).passed
    lone = compare_predictions({**old, "phases": {}}, {**new, "phases": {}})
    assert "moved most: total" in lone.headline()


BAD_TABLES: dict[str, tuple[Any, str]] = {
    "empty list": ([], "must hold 1 to 10000 predictions, got 0"),
    "no phases": ({"total_s": 1.0}, "expected a prediction, got {'total_s': 1.0}"),
    "a text": (["x"], "expected a prediction, got 'x'"),
    "negative": ({"total_s": -1.0, "phases": {}}, "total_s = -1.0: "),
    "nan": ({"total_s": math.nan, "phases": {}}, "total_s = nan: "),
    "bool": ({"total_s": 1.0, "phases": {"a": {"seconds": True}}}, "phases.a = True: "),
    "text": ({"total_s": 1.0, "phases": {"a": {"seconds": "3"}}}, "phases.a = '3': "),
    "huge": ({"total_s": 1.0, "phases": {"a": 10**18}}, "phases.a"),
    "missing": ({"total_s": 1.0, "phases": {"a": {}}}, "phases.a = None"),
    "many phases": ({"total_s": 1.0, "phases": {str(i): 1.0 for i in range(200)}}, "phases = a dict of 200 items: "),
    "many": ([{"total_s": 1.0, "phases": {}}] * 10_001, "must hold 1 to 10000 predictions, got 10001"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_are_one_line(name: str) -> None:
    value, words = BAD_TABLES[name]
    with pytest.raises(InputFileError) as error:
        compare_predictions(value, predicted().to_dict())
    assert words in str(error.value)
    assert str(error.value).isprintable()


# --- files --------------------------------------------------------------------------------------------------------------


def test_runs_and_logs_are_told_apart_by_what_they_hold(tmp_path: Path) -> None:
    shuffled = {L40S_RUN: "base.log", LOGS / "base.log": "runs.yaml"}
    for source, name in shuffled.items():
        (tmp_path / name).write_bytes(source.read_bytes())
    write_runs([run_of(predicted()), run_of(predicted(model=MODELS[0]))], tmp_path / "two.txt")
    profile = Profile.reference(XEON)
    paths = [tmp_path / "base.log", tmp_path / "runs.yaml", tmp_path / "two.txt", EXAMPLES / "runs"]
    found = list(read_candidates(paths, profile))
    assert [candidate.label for candidate in found] == [
        "base.log: meta-llama/Llama-3.2-3B",
        "runs.yaml: meta-llama/Llama-3.1-8B-Instruct",
        f"two.txt: {MODELS[2]}",
        f"two.txt #2: {MODELS[0]}",
        "runs: meta-llama/Llama-3.2-3B",
    ]
    assert found[1].run is not None
    assert found[1].run.hardware == host_of(profile)
    assert found[1].notes == ("no hardware was given: the node is taken to be the host of the profile",)


def test_what_a_run_does_not_say_can_be_said(tmp_path: Path) -> None:
    unknown = {"page_cache": "unknown", "compile_cache": "unknown"}
    write_runs([run_of(predicted(), says=unknown), run_of(predicted(compile_cache="cold"))], tmp_path / "runs.jsonl")
    given = Given(page_cache="hot", compile_cache="warm")
    first, second = read_candidates([tmp_path / "runs.jsonl"], Profile.reference(NVL), given)
    assert first.run is not None
    assert (first.run.engine.page_cache, first.run.engine.compile_cache) == ("hot", "warm")
    assert second.run is not None
    assert second.run.engine.compile_cache == "cold"
    (log,) = read_candidates(
        [LOGS / "eager.log"], Profile.reference(XEON), given._replace(hardware="h100-sxm", process_start_s=2.0)
    )
    assert log.run is not None
    assert (log.run.engine.page_cache, log.run.measured_from) == ("hot", "process_start")


def test_ranks_of_a_log_get_a_node_with_as_many_devices(tmp_path: Path) -> None:
    text = (LOGS / "base.log").read_text(encoding="utf-8").replace("tensor_parallel_size=1", "tensor_parallel_size=4")
    (tmp_path / "tp4.log").write_text(text, encoding="utf-8")
    (found,) = read_candidates([tmp_path / "tp4.log"], Profile.reference(XEON))
    assert found.run is not None
    assert found.run.hardware.gpus == 4


def test_the_host_of_a_profile_is_a_preset_with_its_processor() -> None:
    for name, (preset, cpu) in HOSTS.items():
        node = host_of(Profile.reference(name))
        assert (node.name, node.cpu.model) == (preset, cpu)
    base = Profile.reference(NVL)
    with pytest.raises(ConfigError, match=r"no preset has the accelerator of the profile \(Home-made\)"):
        host_of(base.replace(host=base.host.replace(gpu="Home-made")))


BAD_FILES = {
    "empty": (b"", "empty; give a file of runs or a start-up log"),
    "blank": (b" \n\n", "no start-up log, and no runs that can be read: empty"),
    "prose": (b"It was a dark and stormy night\n" * 5, "no start-up log, and no runs that can be read: none of the known formats"),
    "binary": (bytes(range(256)) * 50, "no start-up log, and no runs that can be read: not a text file"),
    "a run that cannot be": (
        b'{"model": "meta-llama/Llama-3.2-3B", "hardware": "l40s", "phases": {"weight_lod": 3.0}}\n',
        "no start-up log, and no runs that can be read: line 1: phases = 'weight_lod'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_neither_are_one_line(name: str, tmp_path: Path) -> None:
    content, words = BAD_FILES[name]
    (tmp_path / "input").write_bytes(content)
    with pytest.raises(InputFileError) as error:
        list(read_candidates([tmp_path / "input"], Profile.reference(NVL)))
    assert words.split(": line 1")[0] in str(error.value)
    assert words.rsplit(": ", 1)[-1] in str(error.value)
    assert str(error.value).isprintable()


def test_places_that_are_no_files_are_one_line(tmp_path: Path) -> None:
    profile = Profile.reference(NVL)
    for place, words in (
        (tmp_path / "nowhere", "no such file"),
        (tmp_path, "the folder holds no run files"),
        (Path("/dev/null"), "not a regular file"),
    ):
        with pytest.raises(InputFileError, match=words):
            list(read_candidates([place], profile))


def test_a_log_of_a_model_that_is_not_known_asks_for_it(tmp_path: Path) -> None:
    text = (LOGS / "base.log").read_text(encoding="utf-8").replace("meta-llama/Llama-3.1-8B-Instruct", "our/secret-7b")
    (tmp_path / "own.log").write_text(text, encoding="utf-8")
    with pytest.raises(InputFileError, match=r"own.log: model = 'our/secret-7b': .*--model"):
        list(read_candidates([tmp_path / "own.log"], Profile.reference(XEON)))
    (found,) = read_candidates([tmp_path / "own.log"], Profile.reference(XEON), Given(model=MODELS[2]))
    assert found.run is not None
    assert found.run.model.name == MODELS[2]


# --- bad arguments ------------------------------------------------------------------------------------------------------

BAD_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "factor 1": ({"factor": 1}, "factor = 1: must be greater than 1"),
    "factor 0": ({"factor": 0.0}, "factor = 0.0"),
    "factor nan": ({"factor": math.nan}, "factor = nan"),
    "factor inf": ({"factor": math.inf}, "factor = inf"),
    "factor text": ({"factor": "1.5"}, "factor = '1.5'"),
    "factor bool": ({"factor": True}, "factor = True"),
    "phase factor": ({"phase_factor": 0.5}, "phase_factor = 0.5"),
    "floor": ({"floor_s": -1.0}, "floor_s = -1.0: must be greater than or equal to 0"),
    "floor nan": ({"floor_s": math.nan}, "floor_s = nan"),
    "floor bool": ({"floor_s": False}, "floor_s = False"),
    "level": ({"level": 1.5}, "level = 1.5"),
    "kind": ({"fail_on": ["regresion"]}, "fail_on = 'regresion': not a known name; did you mean 'regression'?"),
    "kinds as text": ({"fail_on": "regression"}, "fail_on = 'regression': must be a list of kinds"),
    "kinds as number": ({"fail_on": 3}, "fail_on = 3: must be a list of kinds"),
    "no runs": ({"runs": []}, "runs: missing, there is nothing to judge"),
    "one run": ({"runs": Candidate(None)}, "must be a list of run records"),
    "a text": ({"runs": "runs.jsonl"}, "runs = 'runs.jsonl': must be a list of run records"),
    "a number": ({"runs": 3}, "runs = 3: must be a list"),
    "texts": ({"runs": ["runs.jsonl"]}, "runs = 'runs.jsonl': must be a run record"),
    "ok without a record": ({"runs": [Candidate(None)]}, "a start that came up has no record"),
    "no profile": ({"profile": None}, "profile: missing, a gate needs one"),
    "other profile": ({"profile": 3}, "profile = 3: must be a Profile"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments_are_one_line(name: str) -> None:
    changes, words = BAD_ARGUMENTS[name]
    arguments: dict[str, Any] = {"runs": [run_of(predicted())], "profile": NVL} | changes
    with pytest.raises(StartupModelError) as error:
        gate(arguments.pop("runs"), arguments.pop("profile"), **arguments)
    assert words in str(error.value)
    assert str(error.value).isprintable()


def test_compare_refuses_bad_arguments() -> None:
    with pytest.raises(ConfigError, match=r"factor = 1\.0"):
        compare_profiles(NVL, NVL, 1.0)
    with pytest.raises(ConfigError, match="floor_s = -1"):
        compare_predictions({}, {}, floor_s=-1)
    with pytest.raises(UnknownNameError, match="hardware = 'l40x'"):
        compare_profiles(NVL, NVL, hardware="l40x")
    with pytest.raises(InputFileError, match="no such file"):
        compare_profiles(NVL, "nowhere.json")


def test_states_and_times_that_cannot_be_are_refused() -> None:
    profile = Profile.reference(NVL)
    for given_, words in (
        (Given(page_cache="warm"), "page_cache = 'warm'"),
        (Given(compile_cache="hot"), "compile_cache = 'hot'"),
        (Given(process_start_s=math.nan), "process_start_s = nan"),
    ):
        with pytest.raises(ConfigError, match=words):
            list(read_candidates([L40S_RUN], profile, given_))


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.dictionaries(st.sampled_from([phase.value for phase in Phase]), st.floats(0, 1e9), max_size=6),
    wall=st.none() | st.floats(1e-9, 1e9),
    stamp=st.floats(1e-6, 60),
    data=st.data(),
)
def test_whatever_a_run_says_there_is_a_verdict(
    seconds: dict[str, float], wall: float | None, stamp: float, data: st.DataObject
) -> None:
    """Nothing but errors of this library, and plain finite JSON."""
    base = run_of(predicted(model=MODELS[0]))
    names = st.lists(st.sampled_from([phase.value for phase in Phase]), min_size=1, max_size=4, unique=True)
    sums = data.draw(st.lists(st.tuples(names, st.floats(0, 1e9)), max_size=2))
    status = data.draw(st.sampled_from(["ok", "oom", "incomplete"]))
    fields = {
        "phases": seconds,
        "wall_s": wall,
        "stamp_resolution_s": stamp,
        "status": status,
        "sums": [{"phases": n, "seconds": s} for n, s in sums],
    }
    try:
        run = base.replace(**fields, measured_from=data.draw(st.sampled_from(["process_start", "first_line"])))
    except StartupModelError:
        return
    report = gate([run, base], NVL, data.draw(st.floats(1.001, 1000)))
    json.dumps(report.to_dict(), allow_nan=False)
    assert xml(gate_junit(report)).tag == "testsuites"
    assert all(row.verdict in {*KINDS, *NOT_COUNTED, "ok"} for row in report.rows)
    assert all(row.measured_s <= row.limit_s for row in report.rows if row.verdict == "ok")
    assert report.passed == (not any(finding.fails for finding in report.findings))


# --- the command --------------------------------------------------------------------------------------------------------


def test_the_command_passes_a_run_that_is_as_predicted(tmp_path: Path) -> None:
    out, junit = tmp_path / "gate.json", tmp_path / "junit.xml"
    done = command(str(L40S_RUN), "--profile", L40S, "--out", str(out), "--junit", str(junit))
    assert done.status == 0, done.err
    assert "gate passed: 1 run against profile l40s-epyc-9354 at factor 1.5" in done.out
    assert "graph_trace" in done.out
    assert json.loads(out.read_text(encoding="utf-8"))["passed"] is True
    assert xml(junit.read_text(encoding="utf-8")).attrib["failures"] == "0"


def test_the_command_fails_with_a_table(tmp_path: Path) -> None:
    (run,) = read_runs(L40S_RUN)
    assert run.wall_s is not None
    slow = run.replace(phases=run.phases | {"graph_trace": 12.0}, wall_s=run.wall_s + 7.2)
    write_runs([run, slow], tmp_path / "runs.jsonl")
    done = command(str(tmp_path / "runs.jsonl"), "--profile", L40S)
    assert done.status == 1
    assert "regression: graph_trace took 12.0 s, 2.47 times the predicted 4.85 s" in done.out
    assert "2 runs" in done.out
    assert command(str(tmp_path / "runs.jsonl"), "--profile", L40S, "--fail-on", "failed_start").status == 0
    data = json.loads(command(str(tmp_path / "runs.jsonl"), "--profile", L40S, "--json").out)
    assert data["runs_failed"] == 1
    assert data["runs"][1]["verdict"] == "regression"


def test_the_command_judges_logs(tmp_path: Path) -> None:
    run = parse_log(LOGS / "base.log").to_run("h100-sxm", page_cache="hot")
    profile = tmp_path / "host.json"
    fit_profile([run], name="host").save(profile)
    done = command(
        str(LOGS / "base.log"),
        str(LOGS / "dummy.log"),
        "--profile",
        str(profile),
        "--hardware",
        "h100-sxm",
        "--page-cache",
        "hot",
    )
    assert done.status == 0, done.out
    piped = (LOGS / "base.log").read_text(encoding="utf-8")
    assert command("-", "--profile", str(profile), "--page-cache", "hot", text=piped).status == 0
    slow = piped.replace("Dynamo bytecode transform time: 4.62 s", "Dynamo bytecode transform time: 44.62 s")
    done = command("-", "--profile", str(profile), "--page-cache", "hot", "--process-start", "3", text=slow)
    assert done.status == 1
    assert "graph_trace took 44.6 s" in done.out


def test_the_command_compares_profiles_and_predictions(tmp_path: Path) -> None:
    slower_profile().save(tmp_path / "new.json")
    Profile.reference(NVL).save(tmp_path / "old.json")
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    done = command("--compare", old, new, "--junit", str(tmp_path / "junit.xml"), "--out", str(tmp_path / "moved.json"))
    assert done.status == 1
    assert "moved most: graph_trace" in done.out
    assert json.loads((tmp_path / "moved.json").read_text(encoding="utf-8"))["most"]["phase"] == "graph_trace"
    assert xml((tmp_path / "junit.xml").read_text(encoding="utf-8")).attrib["failures"] != "0"
    asked = command("--compare", old, new, "--model", MODELS[1], "--hardware", "l40s", "--factor", "1.4", "--json")
    assert asked.status == 0
    assert "Llama-3.2-3B on l40s" in json.loads(asked.out)["most"]["case"]
    asked_for = ["--model", MODELS[1], "--hardware", "l40s", "--engine-version", "0.8.5", "--json"]
    printed = run("predict", *asked_for).out
    (tmp_path / "printed.json").write_text(printed, encoding="utf-8")
    made = predict(MODELS[1], "l40s", EngineConfig(version="0.10.1.1")).to_dict()
    (tmp_path / "made.json").write_text(json.dumps(made), encoding="utf-8")
    done = command("--compare", str(tmp_path / "made.json"), str(tmp_path / "printed.json"))
    assert done.status == 1
    assert "engine: vllm 0.10.1.1 -> vllm 0.8.5" in done.out


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["in.jsonl", "--out", "x.json", "--junit", "./x.json"], "--out = x.json: --junit is the same file"),
        (["in.jsonl", "--out", "in.jsonl"], "--out = in.jsonl: in.jsonl is the same file; give another one"),
        (["in.jsonl", "--junit", "link.jsonl"], "--junit = link.jsonl: in.jsonl is the same file"),
    ],
)
def test_no_output_replaces_what_is_read_or_another_output(
    names: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text("kept", encoding="utf-8")
    Path("link.jsonl").symlink_to("in.jsonl")
    assert words in message([*names, "--profile", L40S])
    assert Path("in.jsonl").read_text(encoding="utf-8") == "kept"


def test_a_verdict_is_the_status_though_nobody_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    report = gate([run_of(predicted(), {"graph_trace": 9.0})], NVL)
    assert not report.passed
    cli._show(report, as_json=True, junit=None, out=tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["passed"] is False


def test_kinds_that_are_no_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"fail_on = .*a.*: "):
        gate([run_of(predicted())], NVL, fail_on=[["a"]])  # type: ignore[list-item]


BAD_COMMANDS = {
    "missing file": (["nowhere.jsonl", "--profile", L40S], "nowhere.jsonl: no such file"),
    "no profile": ([str(L40S_RUN)], "--profile: missing, a gate needs one"),
    "a profile that is none": ([str(L40S_RUN), "--profile", str(L40S_RUN)], "not valid JSON"),
    "factor": ([str(L40S_RUN), "--profile", L40S, "--factor", "nan"], "factor = nan: "),
    "phase factor": ([str(L40S_RUN), "--profile", L40S, "--phase-factor", "1"], "phase_factor = 1.0"),
    "kind": ([str(L40S_RUN), "--profile", L40S, "--fail-on", "drfit"], "did you mean 'drift'?"),
    "out": ([str(L40S_RUN), "--profile", L40S, "--out", "no/such/x.json"], "--out = no/such/x.json: no such folder"),
    "junit": ([str(L40S_RUN), "--profile", L40S, "--junit", "."], "--junit = .: a folder"),
    "one to compare": (["--compare", str(L40S_RUN)], "--compare = 1: must be two files"),
    "compare with a profile": (["--compare", L40S, NVL, "--profile", L40S], "--profile = 'l40s-epyc-9354': contradicts --compare"),
    "compare with states": (["--compare", L40S, NVL, "--page-cache", "hot"], "--page-cache = 'hot': contradicts --compare"),
    "compare neither": (["--compare", str(EXAMPLES / "Qwen1.5-14B" / "config.json"), NVL], "neither a profile nor"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_what_cannot_be_done_is_one_line_and_status_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD_COMMANDS[name]
    assert words in message(arguments)
    assert list(tmp_path.iterdir()) == []


def test_one_profile_and_one_prediction_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "prediction.json"
    path.write_text(json.dumps(predicted().to_dict()), encoding="utf-8")
    with pytest.raises(ConfigError, match="it holds predictions, h100-nvl-epyc-9354 a profile; give two of a kind"):
        compare_files(NVL, path)
    with pytest.raises(ConfigError, match="model = 'x': predictions say it themselves"):
        compare_files(path, path, model="x")
    contents = {
        '[{"total_s": 1, "phases": {}}, 3]': "prediction 2: expected a prediction, got 3",
        '{"coefficients": {}, "schema_version": 2}': "prediction.json: ",
        "[1, 2": "not valid JSON",
        "[]": "neither a profile nor predictions",
        "": "empty",
    }
    for content, words in contents.items():
        path.write_text(content, encoding="utf-8")
        with pytest.raises((InputFileError, ProfileError), match=words):
            compare_files(path, path)
