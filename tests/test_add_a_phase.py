"""A phase is declared once: one formula with its row, in a module of its own, reaches every part of the product.

This file is such a module: ``kernel_heating`` is declared below, and nothing else in the project knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from log_samples import SAMPLES

from calibration import calibrate, cross_validate, diagnose, diff_profiles, parse_log, read_runs, write_runs
from calibration.gate import gate
from calibration.logs.watch import StartupWatch
from calibration.runs.record import RunRecord
from startup_model import EngineConfig, Profile, plots, predict, sensitivity, sweep, what_if
from startup_model.engines.engine import Engine
from startup_model.formula import Values
from startup_model.manifests import FORMATS, DeploymentRequest, render
from startup_model.phases import PHASES, ROLLUPS, Groups, Seconds, Style, phase, temporary_phases

OLD = Profile.reference("h100-nvl-epyc-9354")
MODELS = ("Llama-2-7b-hf", "Qwen1.5-4B", "Qwen1.5-14B", "Yi-6B")
NODE = {"preset": "h100-nvl", "cpu": {"model": "AMD EPYC 9354"}}
STATES = {"page_cache": "hot", "compile_cache": "warm"}


@pytest.fixture(autouse=True)
def _declared() -> Iterator[None]:
    with temporary_phases():

        @phase(
            Groups("graph_capture_and_warmup", "cache_engine_init", "graph_capture", "framework_init"),
            Style("#009E73", "xx"),
            runs_on={"vllm": (0, 10)},
            is_off=lambda resolved: resolved.captures.total == 0,
            log_facts=("kernel_heating_s",),
            part_of="unattributed",
            after="graph_capture",
        )
        def kernel_heating(captures: Values, slowdown: Values, *, base_seconds: Seconds) -> Values:
            """Kernels are built before the first request.

            Equation: t = base_seconds × captures × slowdown

            captures [1]; slowdown [1]; base_seconds [s].
            Source: this test.
            """
            return base_seconds * captures * slowdown

        yield


@pytest.fixture
def measured(tmp_path: Path) -> list[RunRecord]:
    """Runs of a host where the phase takes 0.1 s a graph; written and read again."""
    runs = []
    for model in MODELS:
        found = predict(model, NODE, STATES, profile=OLD)
        phases = {str(name): entry.seconds for name, entry in found.phases.items()}
        phases |= {"kernel_heating": 0.1 * found.context.inputs["captures"]}
        wall = sum(phases.values())
        del phases["unattributed"]
        start = found.context.start
        runs.append(
            RunRecord(model=start.model, hardware=start.hardware, engine=start.engine, phases=phases, wall_s=wall)
        )
    write_runs(runs, tmp_path / "runs.jsonl")
    return read_runs(tmp_path / "runs.jsonl")


@pytest.fixture
def fitted(measured: list[RunRecord]) -> Profile:
    return calibrate(measured, OLD, held_out=False).profile


def test_an_older_profile_predicts_what_it_did_and_says_so() -> None:
    found = predict("Llama-2-7b-hf", NODE, STATES, profile=OLD)
    assert found.phases["kernel_heating"].seconds == 0.0
    assert found.phases["kernel_heating"].source == "absent"
    assert sum("kernel_heating" in warning for warning in found.warnings) == 1


def test_a_run_keeps_the_phase(measured: list[RunRecord]) -> None:
    assert measured[0].phases["kernel_heating"] == pytest.approx(6.7)
    assert not measured[0].unknown_phases


def test_a_fit_learns_the_phase_from_runs_though_the_prior_has_none(fitted: Profile) -> None:
    entry = fitted.coefficients["kernel_heating"]["default"]["base_seconds"]
    assert entry.source == "fitted"
    assert entry.value == pytest.approx(0.1, rel=0.05)
    found = predict("Yi-9B", NODE, STATES, profile=fitted)
    assert found.phases["kernel_heating"].seconds == pytest.approx(6.7, rel=0.05)
    assert list(found.phases).index("kernel_heating") == list(found.phases).index("graph_capture") + 1
    assert "base_seconds × captures × slowdown" in found.explain()
    assert diff_profiles(OLD, fitted, *found.context.start[:3])["kernel_heating"][0] == 0.0


def test_models_that_are_left_out_are_predicted_with_it(measured: list[RunRecord]) -> None:
    report = cross_validate(measured, by="model", prior=OLD)
    assert report.mape < 0.05
    assert "kernel_heating" in report.per_phase


def test_groups_switches_and_versions_follow_from_the_declaration(fitted: Profile) -> None:
    on = predict("Yi-9B", NODE, STATES, profile=fitted)
    for name in ROLLUPS:
        assert sum(on.rollup(name).values()) == pytest.approx(on.total_s)
        assert "kernel_heating" not in on.rollup(name)
    assert (
        predict("Yi-9B", NODE, {**STATES, "enforce_eager": True}, profile=fitted).phases["kernel_heating"].calls == ()
    )
    assert "kernel_heating" not in predict("Yi-9B", NODE, {**STATES, "version": "0.9.2"}, profile=fitted).phases
    assert "kernel_heating" not in predict("Yi-9B", NODE, {"engine": "sglang"}, profile=fitted).phases


def test_sweeps_comparisons_and_sensitivities_have_it(fitted: Profile) -> None:
    grid = sweep("Yi-9B", NODE, STATES, {"hardware.cpu.single_thread_score": np.array([0.5, 1.0])}, profile=fitted)
    np.testing.assert_allclose(grid.phases["kernel_heating"], [13.4, 6.7], rtol=0.05)
    one = predict("Yi-9B", NODE, STATES, profile=fitted)
    assert what_if(one, {"engine.enforce_eager": True}).phases["kernel_heating"]["base"] > 6
    gains = {gain.name: gain.saved_s for gain in sensitivity(one).gains}
    assert gains["engine.enforce_eager"] > 6


def test_a_gate_judges_it(fitted: Profile, measured: list[RunRecord], tmp_path: Path) -> None:
    slow = measured[0].replace(phases={**measured[0].phases, "kernel_heating": 40.0}, wall_s=measured[0].wall_s + 33.3)
    write_runs([slow], tmp_path / "slow.jsonl")
    report = gate(read_runs(tmp_path / "slow.jsonl"), fitted)
    assert not report.passed
    assert "kernel_heating" in report.text()


WARM = SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"].text
WORDING = "INFO 07-01 20:00:48 [x.py:1] Kernels were built in 0.50 s\n"
LOG = WARM.replace("INFO 07-01 20:00:48 [core", f"{WORDING}INFO 07-01 20:00:48 [core")


@pytest.fixture
def _wording(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a release prints when the phase is over, as a row of its engine's table."""
    original = Engine.text
    row = 'rows = [\n    ["kernels_built", "Kernels were built in {kernel_heating_s}", {phase = "kernel_heating"}],'
    monkeypatch.setattr(Engine, "text", lambda engine, name: original(engine, name).replace("rows = [", row, 1))


@pytest.mark.usefixtures("_wording")
def test_logs_are_parsed_with_it() -> None:
    found, before = parse_log(LOG), parse_log(WARM)
    assert found.phases["kernel_heating"] == 0.5
    assert list(found.phases)[-3:] == ["kernel_heating", "api_ready", "unattributed"]
    assert {**found.phases, "kernel_heating": 0.0, "unattributed": 0.0} == {
        **before.phases,
        "kernel_heating": 0.0,
        "unattributed": 0.0,
    }
    assert "kernel_heating" not in found.derived
    assert found.phase_evidence["kernel_heating"].text.endswith("Kernels were built in 0.50 s")
    assert found.to_run(NODE, model=MODELS[0]).phases["kernel_heating"] == 0.5
    late = (
        LOG.replace("0.50 s", "70.0 s")
        .replace("20:00:48 [x", "20:01:58 [x")
        .replace("20:00:48 [core", "20:01:58 [core")
    )
    slow = parse_log(late.replace("20:00:49", "20:02:00"))
    assert diagnose(slow)[0].kind == "kernel_heating_bound"


@pytest.mark.usefixtures("_wording")
def test_a_watch_shows_it(fitted: Profile) -> None:
    watch = StartupWatch(
        hardware="h100-nvl",
        model=MODELS[0],
        engine=EngineConfig(**STATES),
        profile=fitted,
        page_cache="hot",
        compile_cache="warm",
    )  # type: ignore[arg-type]
    begin, _ = LOG.replace("0.9.2", "0.10.2").split(WORDING)
    watch.feed(begin, 0.0)
    assert watch.outlook(0.1).phase == "kernel_heating"
    watch.feed(WORDING, 5.0)
    assert watch.outlook(5.0).phase == "api_ready"
    assert watch.outlook(5.0).finished[-1][0] == "kernel_heating"


def test_manifests_are_planned_with_it(fitted: Profile) -> None:
    with_it = predict("Yi-9B", NODE, STATES, profile=fitted)
    without = predict("Yi-9B", NODE, STATES, profile=OLD)
    assert with_it.slo_bound_s > without.slo_bound_s + 6
    assert all(render(name, DeploymentRequest(prediction=with_it)) for name in FORMATS)


def test_every_plot_draws_it(fitted: Profile, measured: list[RunRecord], tmp_path: Path) -> None:
    assert PHASES["kernel_heating"].style == Style("#009E73", "xx")
    found = predict("Yi-9B", NODE, STATES, profile=fitted)
    grid = sweep("Yi-9B", NODE, STATES, {"hardware.cpu.single_thread_score": [0.5, 1.0]}, profile=fitted)
    drawn = {
        "waterfall": plots.waterfall(found),
        "timeline": plots.timeline(found),
        "lines": plots.sweep_lines(grid, y="kernel_heating"),
        "fan": plots.interval_fan(grid),
        "tornado": plots.tornado(sensitivity(found)),
        "checks": plots.predicted_against_measured([found], [found.total_s]),
    }
    for name, axes in drawn.items():
        plots.save(axes, tmp_path / f"{name}.svg")
    texts = {t.get_text() for t in drawn["waterfall"].get_yticklabels()}
    assert "kernel_heating" in texts


def test_a_segment_is_declared_likewise() -> None:
    @phase(
        Groups(None, None, None, "container_and_runtime"), Style("#009E73", "xx"), segment="before", after="image_pull"
    )
    def volume_attach(image_bytes: Values) -> Values:
        """The volume of the checkpoint is attached.

        Equation: t = image_bytes / 10^9

        image_bytes [B].
        Source: this test.
        """
        return image_bytes / 1e9

    plain = predict("Yi-9B", {**NODE, "image_bytes": 4e9}, STATES, profile=OLD)
    assert plain.segments["volume_attach"] == 4.0
    whole = predict("Yi-9B", {**NODE, "image_bytes": 4e9}, STATES, profile=OLD, include=("volume_attach",))
    assert whole.total_s == pytest.approx(plain.total_s + 4.0)
    assert next(iter(whole.phases)) == "volume_attach"
