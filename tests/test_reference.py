"""The reference profiles: rebuilt bit for bit, and right about models that their fit has not seen."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import numpy as np
import pytest

from calibration.fit.calibrate import calibrate, total_error
from calibration.fit.reference import DONOR, Shared, build_profiles, profile_of, shared_by_all, usable
from calibration.fit.validate import leave_one_out
from calibration.fit.without_prior import fit_host, observe
from calibration.runs.published import HOSTS, published_runs
from startup_model import EngineConfig, Profile, predict
from startup_model.formula import Values
from startup_model.phases import Coefficient, Groups, Style, phase, temporary_phases


@pytest.fixture(scope="module")
def shared() -> Shared:
    return shared_by_all(published_runs())


def _unreadable() -> dict[str, Profile]:
    raise AssertionError("a shipped profile was read")


def test_the_shipped_profiles_are_what_the_code_builds_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, and without a look at the shipped ones."""
    folder = files("startup_model").joinpath("data/profiles")
    monkeypatch.setattr("startup_model.profile._references", _unreadable)
    built = {f"{profile.name}.json": profile.to_json() for profile in build_profiles()}
    assert built == {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}


def test_profiles_are_built_anew_after_a_phase_and_a_coefficient_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no published run has stays absent, and changes no prediction."""
    shipped = Profile.reference(DONOR)
    start = ("Qwen/Qwen3-8B", "h100-nvl", EngineConfig(page_cache="hot", compile_cache="warm"))
    before = predict(*start, profile=shipped).total_s
    monkeypatch.setattr("startup_model.profile._references", _unreadable)
    with temporary_phases():

        @phase(Groups("engine_init", "api_readiness", "framework_bootstrap", "framework_init"), Style("#009E73"))
        def kernel_heating(
            slowdown: Values,
            *,
            base_seconds: Annotated[float, Coefficient("s")],
            seconds_more: Annotated[float, Coefficient("s")],
        ) -> Values:
            """Kernels are built before the first request.

            Equation: t = (base_seconds + seconds_more) × slowdown

            slowdown [1]: single-thread time relative to the profile's host.
            Source: none.
            """
            return (base_seconds + seconds_more) * slowdown

        shared = shared_by_all(published_runs())
        profile = profile_of(DONOR, shared)
        assert profile.absent == ("kernel_heating",)
        assert profile.values.keys() == shipped.values.keys()
        assert predict(*start, profile=profile).total_s == pytest.approx(before, rel=1e-12)
        run = published_runs()[0]
        assert abs(total_error(run, calibrate([run], profile, held_out=False).profile) or 1.0) < 0.02
        run = run.replace(phases=run.phases | {"kernel_heating": 4.0}, wall_s=(run.wall_s or 0.0) + 4.0)
        done = calibrate([run], profile, held_out=False)
        assert not done.report.skipped
        found = predict(run.model, run.hardware, run.engine, profile=done.profile)
        assert found.phases["kernel_heating"].seconds == pytest.approx(4.0, rel=0.05)
        assert found.total_s == pytest.approx(run.wall_s, rel=0.02)


@pytest.mark.parametrize(
    ("host", "limit"),
    # The first is the target of the project (1.5 % of wall time); the other two are what was measured, kept from growing.
    [("h100-nvl-epyc-9354", 0.015), ("l40s-epyc-9354", 0.010), ("h100-sxm-xeon-8568y", 0.018)],
)
def test_models_that_the_fit_has_not_seen(
    host: str, limit: float, shared: Shared, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run for run in usable(host, published_runs()) if run.dataset == HOSTS[host].main_dataset]
    report = leave_one_out(runs, lambda model: profile_of(host, shared, without_model=model))
    with capsys.disabled():
        print(f"\n{HOSTS[host].main_dataset}, each model left out of the fit\n{report.table()}")
    assert len(report.rows) == 11
    assert report.mape <= limit
    assert abs(report.worst.error) <= 0.07


def test_cold_starts_of_models_that_the_fit_has_not_seen(shared: Shared, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run for run in usable(DONOR, published_runs()) if run.dataset == "h100nvl_cold_ssd"]
    report = leave_one_out(runs, lambda model: profile_of(DONOR, shared, without_model=model))
    with capsys.disabled():
        print(f"\nh100nvl_cold_ssd, each model left out of the fit\n{report.table()}")
    assert report.mape <= 0.015


def test_held_out_errors_in_a_profile_are_those_of_the_report() -> None:
    profile = Profile.reference(DONOR)
    assert len(profile.held_out.errors) == 11
    assert 0.005 < float(np.mean([abs(error) for error in profile.held_out.errors.values()])) <= 0.015


def test_a_fit_returns_the_coefficients_that_made_the_runs() -> None:
    """Round trip: runs made by a profile give the profile's coefficients back."""
    profile = Profile.reference(DONOR).replace(model_effects={})
    runs = [run for run in usable(DONOR, published_runs()) if run.dataset in ("h100nvl_hot", "h100nvl_cold_ssd")]
    made = []
    for run in runs:
        found = predict(run.model, run.hardware, run.engine, profile=profile)
        phases = {name: found.phases[name].seconds for name in (*run.phases, "unattributed")}
        made.append(run.replace(phases=phases, wall_s=sum(phases.values())))
    observations = [o for run in made for o in observe(run, profile.host, {})]
    fit = fit_host(observations, frozenset({"h100nvl_hot", "h100nvl_cold_ssd"}))
    for term in (
        "framework_bootstrap",
        "graph_trace",
        "graph_compile",
        "weight_load",
        "tokenizer_load",
        "memory_profiling",
    ):
        expected = profile.values[term]["default"]
        for name, value in fit.sets[term, "default"].values.items():
            assert value == pytest.approx(expected[name], rel=1e-3, abs=1e-3 * max(expected.values())), (term, name)


def test_every_published_run_is_read() -> None:
    runs = published_runs()
    assert len(runs) == 142
    assert {run.dataset for run in runs} >= {"h100nvl_hot", "l40s_hot", "h100sxm_hot", "h100nvl_vllm_versions"}
    for run in runs:
        assert run.wall_s is not None
        assert run.unattributed_s is not None
        assert run.unattributed_s > -0.1
