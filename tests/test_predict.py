"""predict(): what the switches do, what adds up, and the figures that issue and publications name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model import ConfigError, EngineConfig, HardwareConfig, ModelConfig, Phase, predict
from startup_model.config.hardware import preset_names
from startup_model.config.model import catalogue_names
from startup_model.phases import ROLLUPS
from startup_model.prediction import StartupPrediction

LLAMA_7B = "meta-llama/Llama-2-7b-hf"
LLAMA_13B = "meta-llama/Llama-2-13b-hf"


def seconds(prediction: StartupPrediction) -> dict[str, float]:
    return {phase.value: entry.seconds for phase, entry in prediction.phases.items()}


# --- figures ---------------------------------------------------------------------------------------------------------


def test_cold_storage_against_the_page_cache_on_the_published_node() -> None:
    """arXiv 2606.07362, H100 NVL and SATA SSD: Llama-2-13B 29.68 s hot, 74.51 s cold."""
    hot = predict(LLAMA_13B, "h100-nvl", page_cache="hot")
    cold = predict(LLAMA_13B, "h100-nvl", page_cache="cold")
    assert hot.total_s == pytest.approx(29.68, rel=0.015)
    assert cold.total_s == pytest.approx(74.51, rel=0.015)


def test_one_model_through_the_engine_versions() -> None:
    """arXiv 2606.07362: OPT-6.7B takes 10.0 s at 0.3.1, 44.3 s at 0.9.0 and 21.3 s at 0.11.0 on one host."""
    for version, measured in (("0.3.1", 10.0), ("0.5.0", 13.0), ("0.6.0", 21.6), ("0.7.0", 19.06)):
        found = predict("facebook/opt-6.7b", "h100-nvl", version=version, page_cache="hot", max_num_seqs=256)
        assert found.total_s == pytest.approx(measured, rel=0.15), version
    slow = predict("facebook/opt-6.7b", "h100-nvl", version="0.9.0", page_cache="hot", compile_cache="cold")
    fast = predict("facebook/opt-6.7b", "h100-nvl", version="0.11.0", page_cache="hot", max_num_seqs=256)
    assert slow.phases["graph_capture"].seconds == pytest.approx(16.0, rel=0.2)
    assert slow.total_s > 1.8 * fast.total_s


# --- switches --------------------------------------------------------------------------------------------------------


def test_eager_execution_removes_compile_and_capture() -> None:
    eager = predict(LLAMA_7B, "h100-nvl", EngineConfig(enforce_eager=True))
    for phase in ("graph_trace", "graph_compile", "graph_capture"):
        assert eager.phases[phase].seconds == 0.0
        assert eager.phases[phase].source == "off"


def test_dummy_weights_remove_reading() -> None:
    dummy = predict(LLAMA_7B, "h100-nvl", EngineConfig(load_format="dummy", page_cache="cold"))
    assert dummy.phases["weight_load"].seconds == 0.0
    assert dummy.phases["graph_capture"].seconds == predict(LLAMA_7B, "h100-nvl").phases["graph_capture"].seconds


def test_torch_compile_off_removes_trace_and_compile_but_not_capture() -> None:
    off = predict(LLAMA_7B, "h100-nvl", torch_compile=False)
    assert off.phases["graph_trace"].seconds == off.phases["graph_compile"].seconds == 0.0
    assert off.phases["graph_capture"].seconds > 0.0


def test_a_cold_compile_cache_takes_what_was_published() -> None:
    """arXiv 2606.07362: 32 layers compile in about 13.5 s, cached graphs load in about 4.5 s."""
    warm = predict(LLAMA_7B, "h100-nvl", compile_cache="warm").phases["graph_compile"].seconds
    cold = predict(LLAMA_7B, "h100-nvl", compile_cache="cold").phases["graph_compile"].seconds
    assert warm == pytest.approx(4.5, rel=0.1)
    assert cold == pytest.approx(13.5, rel=0.1)


def test_streaming_load_formats_overlap_reading_and_copying() -> None:
    node = HardwareConfig.preset("h100-nvl", storage={"local_nvme": "8 GB/s"})
    plain = predict(LLAMA_13B, node, page_cache="cold").phases["weight_load"].seconds
    streamed = predict(LLAMA_13B, node, page_cache="cold", load_format="runai_streamer").phases["weight_load"].seconds
    assert streamed < 0.8 * plain


def test_starts_that_share_storage_are_slower() -> None:
    alone = predict(LLAMA_7B, HardwareConfig.preset("h100-nvl"), page_cache="cold")
    together = predict(LLAMA_7B, HardwareConfig.preset("h100-nvl", storage={"concurrent_starts": 4}), page_cache="cold")
    hot = predict(LLAMA_7B, HardwareConfig.preset("h100-nvl"), page_cache="hot")
    read_alone = alone.phases["weight_load"].seconds - hot.phases["weight_load"].seconds
    read_together = together.phases["weight_load"].seconds - hot.phases["weight_load"].seconds
    assert read_together == pytest.approx(4 * read_alone)


def test_moe_sparsity_acts_on_compute_and_on_bytes_only_when_experts_are_lazy() -> None:
    model = ModelConfig.from_catalogue("Qwen/Qwen3-30B-A3B")
    assert model.active_parameters / model.parameters < 0.15
    plain = predict(model, "h100-sxm", page_cache="hot")
    lazy = predict(model, "h100-sxm", page_cache="hot", lazy_experts=True)
    assert plain.context.inputs["rank_bytes"] == pytest.approx(2 * model.parameters)
    assert plain.context.inputs["active_bytes"] < 0.15 * 2 * model.parameters
    assert lazy.phases["weight_load"].seconds < 0.2 * plain.phases["weight_load"].seconds
    assert lazy.phases["graph_capture"].seconds == plain.phases["graph_capture"].seconds


def test_parallel_ranks_cost_spawn_and_save_copying() -> None:
    node = HardwareConfig.preset("h100-sxm", gpus=8)
    one, four = (predict("meta-llama/Llama-3.1-8B-Instruct", node, tp=tp, page_cache="hot") for tp in (1, 4))
    assert four.phases["worker_spawn"].seconds > one.phases["worker_spawn"].seconds + 10
    assert four.phases["weight_load"].seconds < 0.3 * one.phases["weight_load"].seconds


def test_sglang_loads_the_tokenizer_beside_the_model_and_profiles_nothing() -> None:
    found = predict("Qwen/Qwen3-8B", "h100-sxm", "python -m sglang.launch_server --model-path Qwen/Qwen3-8B")
    assert found.phases["tokenizer_load"].seconds == 0.0
    assert found.phases["tokenizer_load"].elapsed_s > 0.1
    assert "memory_profiling" not in found.phases
    assert any("sglang" in warning for warning in found.warnings)


def test_newer_versions_estimate_graph_memory_within_profiling() -> None:
    before = predict(LLAMA_7B, "h100-nvl", version="0.17.0").phases["memory_profiling"]
    after = predict(LLAMA_7B, "h100-nvl", version="0.21.0").phases["memory_profiling"]
    assert [call.term.name for call in before.calls] == ["memory_profiling"]
    assert [call.term.name for call in after.calls] == ["memory_profiling", "graph_memory_estimate"]


# --- what adds up ----------------------------------------------------------------------------------------------------


CASES: list[dict[str, Any]] = [
    {},
    {"page_cache": "cold"},
    {"enforce_eager": True},
    {"version": "0.6.3"},
    {"version": "0.32.0", "compile_cache": "cold"},
    {"engine": "sglang"},
    {"load_format": "dummy", "torch_compile": False},
]


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize(
    "include", [(), ("provision", "image_pull", "container_start", "first_request")], ids=["ready", "all"]
)
def test_phases_and_every_rollup_sum_to_the_total(options: dict[str, Any], include: tuple[str, ...]) -> None:
    found = predict(LLAMA_7B, "h100-nvl", include=include, **options)
    assert sum(seconds(found).values()) == pytest.approx(found.total_s)
    for name in ROLLUPS:
        assert sum(found.rollup(name).values()) == pytest.approx(found.total_s), name
    assert (
        list(found.phases) == [phase for phase in Phase if phase in found.phases]
        or options.get("engine")
        or "0.6" in str(options)
    )


def test_segments_are_reported_apart_and_added_on_request() -> None:
    node = HardwareConfig.preset("h100-nvl", provision_s=200.0, image_bytes="10 GB", image_pull_bandwidth="0.5 GB/s")
    ready = predict(LLAMA_7B, node)
    assert ready.segments[Phase.PROVISION] == 200.0
    assert ready.segments[Phase.IMAGE_PULL] == pytest.approx(20.0)
    assert "provision" not in ready.phases
    whole = predict(LLAMA_7B, node, include=["provision", "image_pull"])
    assert whole.total_s == pytest.approx(ready.total_s + 220.0)
    assert whole.rollup("four_segments")["container_and_runtime"] > 220.0
    with pytest.raises(ConfigError, match=r"include = 'image_pul': .*did you mean 'image_pull'"):
        predict(LLAMA_7B, node, include=["image_pul"])


def test_the_bound_is_a_factor_on_the_prediction_and_apart_from_the_interval() -> None:
    found = predict(LLAMA_7B, "h100-nvl", page_cache="hot")
    assert found.slo_bound_s == pytest.approx(1.5 * found.total_s)
    tighter = predict(LLAMA_7B, "h100-nvl", page_cache="hot", safety_factor=1.3)
    assert tighter.slo_bound_s == pytest.approx(1.3 * found.total_s)
    assert tighter.interval == found.interval


def test_an_unknown_page_cache_widens_the_interval_and_raises_the_bound() -> None:
    unknown = predict(LLAMA_7B, "h100-nvl")
    hot, cold = (predict(LLAMA_7B, "h100-nvl", page_cache=state) for state in ("hot", "cold"))
    assert unknown.total_s == pytest.approx(hot.total_s)
    assert unknown.interval[0] == pytest.approx(hot.interval[0])
    assert unknown.interval[1] > cold.total_s
    assert unknown.slo_bound_s == pytest.approx(1.5 * cold.total_s)
    assert any("page cache is unknown" in warning for warning in unknown.warnings)


@given(level=st.floats(0.01, 0.999))
def test_intervals_hold_the_prediction_and_grow_with_the_level(level: float) -> None:
    narrow = predict(LLAMA_7B, "h100-nvl", page_cache="hot", level=level * 0.9)
    wide = predict(LLAMA_7B, "h100-nvl", page_cache="hot", level=level)
    assert 0 < wide.interval[0] <= narrow.interval[0] <= wide.total_s <= narrow.interval[1] <= wide.interval[1]


def test_intervals_are_wider_the_further_the_start_is_from_what_was_measured() -> None:
    def width(**options: Any) -> float:
        cpu = options.pop("cpu", {"model": "AMD EPYC 9354"})
        low, high = predict(LLAMA_7B, HardwareConfig.preset("h100-nvl", cpu=cpu), page_cache="hot", **options).interval
        return high / low

    assert width() < width(cpu={"model": "unknown"}) < width(cpu={"model": "unknown"}, version="0.30.0")
    assert width(cpu={"model": "unknown"}) < width(cpu={"model": "unknown"}, engine="sglang")


def test_a_slower_processor_slows_what_runs_on_it() -> None:
    base = predict(LLAMA_7B, HardwareConfig.preset("h100-nvl", cpu={"model": "AMD EPYC 9354"}))
    slow = predict(LLAMA_7B, HardwareConfig.preset("h100-nvl", cpu={"single_thread_score": 0.5}))
    assert slow.phases["graph_trace"].seconds == pytest.approx(2 * base.phases["graph_trace"].seconds, rel=1e-6)
    assert slow.phases["weight_load"].seconds == base.phases["weight_load"].seconds


# --- the profile that is taken ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "cpu", "profile"),
    [
        ("h100-nvl", "unknown", "h100-nvl-epyc-9354"),
        ("h100-sxm", "unknown", "h100-sxm-xeon-8568y"),
        ("l40s", "unknown", "l40s-epyc-9354"),
        ("h100-sxm", "AMD EPYC 9354", "h100-nvl-epyc-9354"),  # the processor counts more than the accelerator
        ("l4", "unknown", "l40s-epyc-9354"),  # nearest memory bandwidth
        ("b200", "unknown", "h100-nvl-epyc-9354"),
        ("a100-80gb", "Intel Xeon Platinum 8568Y+", "h100-sxm-xeon-8568y"),
    ],
)
def test_the_nearest_reference_is_taken_by_rule(gpu: str, cpu: str, profile: str) -> None:
    found = predict(LLAMA_7B, HardwareConfig.preset(gpu, cpu={"model": cpu}))
    assert found.context.profile_name == profile
    assert not found.calibrated
    assert "0.10.1.1" in found.context.profile_reason


def test_inputs_outside_the_profiles_runs_are_named() -> None:
    node = HardwareConfig.preset("h100-sxm", gpus=8)
    found = predict("meta-llama/Llama-3.1-70B-Instruct", node, tp=8)
    assert any(warning.startswith("layers = 80 lies outside") for warning in found.warnings)
    assert any(warning.startswith("workers = 8 lies outside") for warning in found.warnings)
    inside = predict(LLAMA_7B, "h100-nvl", page_cache="hot", compile_cache="warm", max_num_seqs=256)
    assert inside.warnings == ()


def test_versions_that_were_not_measured_are_named() -> None:
    assert any("0.9.2 was not measured" in w for w in predict(LLAMA_7B, "h100-nvl", version="0.9.2").warnings)
    assert any("0.30.0 was not measured" in w for w in predict(LLAMA_7B, "h100-nvl", version="0.30.0").warnings)


# --- words and data ---------------------------------------------------------------------------------------------------


def test_explain_shows_each_formula_with_numbers_that_come_to_the_phase() -> None:
    found = predict(LLAMA_7B, "h100-nvl", page_cache="cold")
    text = found.explain()
    for phase, entry in found.phases.items():
        assert f"{phase.value} = " in text
        for call in entry.calls:
            assert call.formula() in text
            assert f"= {call.seconds():.4g} s" in text
            main, *parts = call.numbers().split(", ")
            names = {"min": min, "max": max}
            for part in parts:
                if " = " in part:
                    name, expression = part.split(" = ")
                    whole = (
                        ", ".join([expression, *parts[parts.index(part) + 1 :]])
                        if expression.count("(") > expression.count(")")
                        else expression
                    )
                    names[name] = eval(whole.replace("×", "*"), {}, names)  # noqa: S307  our own text
            if "read" not in main:
                assert eval(main.replace("×", "*"), {}, names) == pytest.approx(call.seconds(), rel=1e-3, abs=1e-3)  # noqa: S307


def test_to_dict_is_plain_json_under_the_names_of_the_attributes() -> None:
    found = predict(LLAMA_7B, "h100-nvl")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["total_s"] == found.total_s
    assert data["interval"] == list(found.interval)
    assert data["phases"]["weight_load"]["seconds"] == found.phases["weight_load"].seconds
    assert data["slo_bound_s"] == found.slo_bound_s
    assert data["memory"]["num_gpu_blocks"] == found.memory.num_gpu_blocks
    assert data["calibrated"] is False
    assert data["bottleneck"] == found.bottleneck
    assert data["rollups"]["six_steps"] == found.rollup("six_steps")


def test_models_hardware_and_engines_are_taken_in_every_form(tmp_path: Any) -> None:
    numbers = {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    config = numbers | {"model_type": "llama", "torch_dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    node = tmp_path / "node.json"
    node.write_text(json.dumps({"preset": "h100-nvl", "gpus": 2, "storage": {"local_nvme": "0.6 GB/s"}}))
    models = [
        LLAMA_7B,
        LLAMA_7B.upper(),
        "llama-2-7b-hf",
        config,
        numbers,
        tmp_path,
        str(tmp_path / "config.json"),
        ModelConfig(**numbers),
        ModelConfig.from_hf(tmp_path),
    ]
    nodes = ["h100-nvl", "H100 NVL", HardwareConfig.preset("h100-nvl"), {"preset": "h100-nvl"}, node, str(node)]
    engines = [None, EngineConfig(), {}, "vllm", f"vllm serve {LLAMA_7B}"]
    loads = {predict(model, "h100-nvl").phases["weight_load"].seconds for model in models}
    loads |= {predict(LLAMA_7B, hardware).phases["weight_load"].seconds for hardware in nodes}
    loads |= {predict(LLAMA_7B, "h100-nvl", engine).phases["weight_load"].seconds for engine in engines}
    assert len(loads) == 1


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_predicts(name: str) -> None:
    found = predict("Qwen/Qwen3-0.6B", name)
    assert 1 < found.total_s < 300


@pytest.mark.parametrize("name", catalogue_names())
def test_every_catalogue_model_predicts(name: str) -> None:
    node = HardwareConfig.preset("b200", gpus=8)
    found = predict(name, node, page_cache="hot")
    assert 5 < found.total_s < 600
    assert found.memory.gpu_memory == node.gpu_memory
