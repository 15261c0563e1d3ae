"""Sizes and the KV pool, against figures read off logs and measurements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model import EngineConfig, HardwareConfig, ModelConfig, predict
from startup_model.models.quantization import Quantization
from startup_model.sizes.kv_cache import token_bytes
from startup_model.sizes.memory import BYTES_PER_LOGIT, MemoryBudget
from startup_model.sizes.weights import packed_bits, weight_sizes
from startup_model.units import GIB

H100 = HardwareConfig.preset("h100-sxm", gpu_memory=79.18 * GIB)


def memory(name: str, hardware: HardwareConfig = H100, **options: object) -> MemoryBudget:
    return predict(name, hardware, {"version": "0.11.0", **options}).memory


@pytest.mark.parametrize(
    ("name", "tp", "bytes_per_token"),
    [
        ("meta-llama/Meta-Llama-3-70B", 4, 81_920),  # start-up log, TP 4
        ("Qwen/Qwen3-235B-A22B", 8, 48_128),  # start-up log, TP 8; 4 KV heads on 8 ranks are replicated
        ("deepseek-ai/DeepSeek-V3", 8, 61 * 576 * 2),  # one compressed copy whatever TP is
    ],
)
def test_kv_bytes_per_token(name: str, tp: int, bytes_per_token: int) -> None:
    model = ModelConfig.from_catalogue(name)
    assert sum(group.count * token_bytes(group.mixer, tp, 2) for group in model.layers) == bytes_per_token


def test_a_pool_that_a_log_shows() -> None:
    """Llama-3-70B on four GPUs: 468,752 tokens = 35.76 GiB of KV cache."""
    node = HardwareConfig.preset("h100-sxm", gpus=4)
    pool = memory("meta-llama/Meta-Llama-3-70B", node, tp=4, num_gpu_blocks_override=468_752 // 16)
    assert pool.kv_cache_tokens == 468_752
    assert pool.kv_cache / GIB == pytest.approx(35.76, abs=0.01)


@pytest.mark.parametrize(
    ("name", "tp", "gib"),
    [
        ("meta-llama/Meta-Llama-3-70B", 4, 32.86),
        ("Qwen/Qwen3-235B-A22B", 8, 54.92),
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 14.99),
        ("Qwen/Qwen3-32B", 1, 61.03),
        ("Qwen/Qwen3-32B", 2, 30.59),
        ("Qwen/Qwen3-0.6B", 1, 1.12),
    ],
)
def test_weights_per_device_as_engines_log_them(name: str, tp: int, gib: float) -> None:
    node = HardwareConfig.preset("h100-sxm", gpus=tp)
    assert memory(name, node, tp=tp).weights / GIB == pytest.approx(gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "tp", "activations_gib", "kv_gib"),
    # vLLM 0.11.0 on an H100 (79.18 GiB) with its defaults.
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 4.76, 51.38),
        ("Qwen/Qwen3-0.6B", 1, 5.56, 64.45),
        ("Qwen/Qwen3-32B", 1, 5.64, 4.45),
        ("Qwen/Qwen3-32B", 2, 5.64, 34.49),
    ],
)
def test_the_measured_budget_of_an_h100(name: str, tp: int, activations_gib: float, kv_gib: float) -> None:
    budget = memory(name, H100.replace(gpus=tp), tp=tp)
    assert budget.activations / GIB == pytest.approx(activations_gib, abs=0.1)
    assert budget.kv_cache / GIB == pytest.approx(kv_gib, abs=0.2)


def test_the_sampler_sets_the_activation_peak() -> None:
    """The measured peaks are one figure per logit, whatever the model's size."""
    for vocabulary, peak in ((151_936, 5.56), (128_256, 4.76), (201_088, 7.38)):
        assert peak * GIB / (1024 * vocabulary) == pytest.approx(BYTES_PER_LOGIT, rel=0.02)


@given(
    utilization=st.floats(0.2, 1.0),
    length=st.integers(1, 131_072),
    seqs=st.integers(1, 2048),
    tp=st.sampled_from([1, 2, 4, 8]),
    version=st.sampled_from(["0.6.3", "0.9.2", "0.11.0", "0.21.0"]),
)
def test_the_budget_adds_up_to_the_devices_memory(
    utilization: float, length: int, seqs: int, tp: int, version: str
) -> None:
    node = HardwareConfig.preset("h100-sxm", gpus=8)
    budget = predict(
        "meta-llama/Llama-3.1-8B-Instruct", node,
        EngineConfig(gpu_memory_utilization=utilization, max_model_len=length, max_num_seqs=seqs, tp=tp, version=version),
    ).memory  # fmt: skip
    parts = budget.weights + budget.activations + budget.non_torch + budget.graphs + budget.kv_cache
    assert parts + budget.outside_budget + budget.rounding == pytest.approx(budget.gpu_memory)
    assert budget.kv_cache == budget.num_gpu_blocks * budget.block_bytes
    if budget.status == "ok":
        assert 0 <= budget.rounding < budget.block_bytes * 1.0001
        assert budget.kv_cache_tokens >= length
    if budget.status == "kv_cache_too_small":
        assert budget.kv_cache_tokens < length
        assert budget.missing > 0


def test_status_says_what_does_not_fit() -> None:
    assert memory("meta-llama/Llama-3.1-8B-Instruct").status == "ok"
    assert memory("meta-llama/Meta-Llama-3-70B").status == "weights_do_not_fit"
    assert memory("Qwen/Qwen3-32B", max_model_len=32_768).status == "kv_cache_too_small"
    assert memory("Qwen/Qwen3-32B", max_model_len=8_192).status == "ok"


def test_cpu_blocks_come_from_swap_space_in_v0_only() -> None:
    v0 = memory("meta-llama/Llama-2-7b-hf", version="0.6.3", swap_space="4 GiB")
    assert v0.num_cpu_blocks == 4 * 2**30 // (16 * 524_288)
    assert memory("meta-llama/Llama-2-7b-hf", version="0.10.1.1").num_cpu_blocks == 0


def test_an_fp8_cache_holds_twice_the_tokens() -> None:
    full = memory("meta-llama/Llama-3.1-8B-Instruct")
    half = memory("meta-llama/Llama-3.1-8B-Instruct", kv_cache_dtype="fp8")
    assert half.num_gpu_blocks == pytest.approx(2 * full.num_gpu_blocks, abs=1)


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        (Quantization(method="awq", bits=4, group_size=128), 4.15625),
        (Quantization(method="fp8", bits=8), 8.0),
        (Quantization(method="mxfp4", bits=4, group_size=32, experts_only=True), 4.25),
        (Quantization(method="fp8", bits=8, group_size=128 * 128), 8 + 32 / 16384),
    ],
)
def test_bits_of_a_packed_weight(quantization: Quantization, bits: float) -> None:
    assert packed_bits(quantization) == pytest.approx(bits)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("TheBloke/Llama-2-7B-AWQ", 3.89), ("openai/gpt-oss-20b", 13.761), ("Qwen/Qwen3-8B", 16.38)],
)
def test_checkpoint_bytes_of_quantised_models(name: str, gigabytes: float) -> None:
    model = ModelConfig.from_catalogue(name)
    sizes = weight_sizes(model, EngineConfig(), H100, 2.0)
    assert sizes.checkpoint_bytes / 1e9 == pytest.approx(gigabytes, rel=0.002)
