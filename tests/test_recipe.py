"""One recipe: a prediction, a point of a sweep, and a row of a fit turn the same start into the same seconds, version and storage included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import RunRecord
from calibration.fit.rows import Figures, expected_seconds, parts_of
from calibration.fit.validate import judge
from startup_model import EngineConfig, HardwareConfig, ModelConfig, Profile, predict, sweep

MODELS = [
    ModelConfig.from_catalogue(name)
    for name in ("Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V2-Lite")
]
REFERENCE = Profile.reference("h100-nvl-epyc-9354").without_model_effects()
PROFILES = [REFERENCE, REFERENCE.replace(runs_version="0.18.0"), Profile.reference("l40s-epyc-9354")]
FLAGS: dict[str, st.SearchStrategy[Any]] = {
    "engine": st.sampled_from(["vllm", "vllm", "vllm", "sglang"]),
    "tp": st.sampled_from([1, 1, 2, 4]),
    "page_cache": st.sampled_from(["hot", "cold", "unknown"]),
    "compile_cache": st.sampled_from(["warm", "cold", "unknown"]),
    "enforce_eager": st.booleans(),
    "load_format": st.sampled_from(["auto", "auto", "runai_streamer"]),
    "max_num_seqs": st.sampled_from([None, 64, 256]),
}
VERSIONS = {"vllm": ["0.8.5", "0.10.1.1", "0.11.2", "0.18.0", "0.25.0"], "sglang": ["0.4.6", "0.5.5"]}


@st.composite
def starts(draw: st.DrawFn) -> tuple[ModelConfig, HardwareConfig, EngineConfig, Profile]:
    fields = {name: draw(values) for name, values in FLAGS.items()}
    version = draw(st.sampled_from([None, *VERSIONS[fields["engine"]]]))
    storage = draw(st.sampled_from([{}, {"local_nvme": "3 GB/s"}, {"tier": "network_disk", "network_disk": "1 GB/s"}]))
    preset = draw(st.sampled_from(["h100-nvl", "h100-sxm", "l40s"]))
    cpu = draw(st.sampled_from([{}, {"model": "AMD EPYC 9354"}, {"model": "other", "single_thread_score": 1.3}]))
    node = HardwareConfig.preset(preset, gpus=fields["tp"], storage=storage, cpu=cpu)
    return draw(st.sampled_from(MODELS)), node, EngineConfig(**fields, version=version), draw(st.sampled_from(PROFILES))


@settings(max_examples=300, deadline=None)
@given(start=starts())
def test_prediction_sweep_and_fit_have_the_same_seconds(
    start: tuple[ModelConfig, HardwareConfig, EngineConfig, Profile],
) -> None:
    model, node, engine, profile = start
    found = predict(model, node, engine, profile=profile)
    parts = parts_of(model, node, engine, profile, profile.host)
    assert {*parts} == {name for name, phase in found.phases.items() if phase.calls}
    for name, rows in parts.items():
        assert expected_seconds(rows, profile) == pytest.approx(found.phases[name].elapsed_s, rel=1e-6, abs=1e-9)
    point = sweep(model, node, engine, {"engine.page_cache": [engine.page_cache]}, profile=profile)
    assert float(point.total_s.ravel()[0]) == pytest.approx(found.total_s, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(start=starts())
def test_runs_and_their_judges_have_them_too(start: tuple[ModelConfig, HardwareConfig, EngineConfig, Profile]) -> None:
    model, node, engine, profile = start
    plain = profile.without_model_effects()
    seconds = predict(model, node, engine, profile=plain).total_s
    run = RunRecord(model=model, hardware=node, engine=engine.replace(page_cache="hot"), wall_s=30.0)
    assert judge([run], profile).rows[0].predicted_s == pytest.approx(
        predict(model, node, run.engine, profile=plain).total_s
    )
    shape = Figures([run.replace(engine=engine)], plain, plain.host).rows.shapes[0]
    if engine.engine == "vllm":  # whose phases all run one after the other
        assert shape.expected == pytest.approx(seconds, rel=1e-6)
