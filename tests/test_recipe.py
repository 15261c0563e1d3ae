"""One recipe: whatever asks about a start, the same inputs come out, version and storage included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.fit.rows import expected_seconds, parts_of, recipe_of
from calibration.gate.figures import Expectation
from calibration.runs.record import RunRecord
from startup_model import EngineConfig, HardwareConfig, Profile, predict, sweep
from startup_model.errors import ConfigError
from startup_model.predictor import as_model, as_start
from startup_model.recipe import Start

MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "Llama-2-7b-hf", "gpt2", "google/gemma-3-4b-it")
NVL = Profile.reference("h100-nvl-epyc-9354").without_model_effects()
PROFILES = (NVL, NVL.replace(runs_version="0.18.0"), Profile.reference("l40s-epyc-9354").without_model_effects())
NODES = (
    {"preset": "h100-nvl", "cpu": {"model": "AMD EPYC 9354"}},
    {"preset": "l40s"},
    {"preset": "h100-sxm", "cpu": {"model": "AMD EPYC 9354", "single_thread_score": 0.7}},
    {"preset": "h100-nvl", "storage": {"tier": "object_store", "object_store": "2 GB/s", "concurrent_starts": 3}},
    {"preset": "cpu"},
)
ENGINES = st.fixed_dictionaries(
    {"engine": st.sampled_from(["vllm", "vllm", "sglang"])},
    optional={
        "version": st.sampled_from([None, "0.6.3", "0.10.2", "0.18.1", "0.29.0"]),
        "tp": st.sampled_from([1, 2, 4]),
        "page_cache": st.sampled_from(["hot", "cold", "unknown"]),
        "compile_cache": st.sampled_from(["warm", "cold", "unknown"]),
        "enforce_eager": st.booleans(),
        "load_format": st.sampled_from(["auto", "dummy", "runai_streamer"]),
        "max_num_seqs": st.sampled_from([None, 64, 512]),
    },
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(model=st.sampled_from(MODELS), node=st.sampled_from(NODES), asked=ENGINES, profile=st.sampled_from(PROFILES))
def test_all_turn_a_start_into_the_same_inputs(
    model: str, node: dict[str, Any], asked: dict[str, Any], profile: Profile
) -> None:
    """Predict, sweep, fit and gate; the fit also with the seconds that its prior expects."""
    try:
        hardware = HardwareConfig.from_mapping(node | ({} if node["preset"] == "cpu" else {"gpus": 4}))
        start = Start(as_model(model), hardware, EngineConfig(**asked), profile)
        found = predict(*start[:3], profile=profile)
    except ConfigError:  # an engine that does not know such a start refuses it
        return
    inputs = dict(found.context.inputs)
    run = RunRecord(model=start.model, hardware=hardware, engine=start.engine, wall_s=10.0)
    assert dict(recipe_of(run, profile.host, profile).inputs) == inputs
    expectation = Expectation(*start[:3], profile, 0.9)
    assert dict(expectation.forecast(expectation.said).prediction.context.inputs) == inputs
    grid = sweep(*start[:3], {"engine.page_cache": [start.engine.page_cache]}, profile=profile)
    np.testing.assert_allclose(grid.total_s, found.total_s, rtol=1e-12)
    parts = parts_of(*start[:3], profile, profile.host)
    for name, entry in found.phases.items():
        assert expected_seconds(parts.get(name, ()), profile) == pytest.approx(entry.elapsed_s, rel=1e-9, abs=1e-12)


def test_a_fit_counts_the_graphs_of_the_version_of_its_prior() -> None:
    """Runs of 0.18 that name no version: 102 graphs, and four that are captured to estimate their memory."""
    profile = NVL.replace(runs_version="0.18.0")
    start = as_start("Qwen/Qwen3-8B", NODES[0], EngineConfig(), profile)
    run = RunRecord(model=start.model, hardware=start.hardware, engine=start.engine, wall_s=10.0)
    for inputs in (predict(*start[:3], profile=profile).context.inputs, recipe_of(run, profile.host, profile).inputs):
        assert (inputs["captures"], inputs["estimate_captures"]) == (102, 4)
