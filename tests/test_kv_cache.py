"""KV blocks of every kind of layer, by the engine's own rules."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model import EngineConfig, HardwareConfig, ModelConfig
from startup_model.sizes.kv_cache import KvPool, kv_pool, token_bytes
from startup_model.sizes.memory import MemoryBudget, find_remedies, longest_request, memory_budget
from startup_model.sizes.weights import weight_sizes

NODE = HardwareConfig.preset("h100-sxm", gpus=8)


def pool(name: str, **options: Any) -> KvPool:
    model = ModelConfig.from_catalogue(name)
    engine = EngineConfig(**{"version": "0.11.0"} | options)
    return kv_pool(model, engine, engine.resolve(model, NODE))


def budget(name: str, node: HardwareConfig = NODE, **options: Any) -> MemoryBudget:
    model = ModelConfig.from_catalogue(name)
    engine = EngineConfig(**{"version": "0.11.0"} | options)
    resolved = engine.resolve(model, node)
    return memory_budget(model, node, engine, resolved, weight_sizes(model, engine, node, resolved.dtype_bytes))


def test_uniform_layers_share_one_block_table() -> None:
    """Llama-3.1-8B: 32 layers x 16 tokens x 2 x 8 heads x 128 x 2 bytes = 2 MiB a block."""
    found = pool("meta-llama/Llama-3.1-8B-Instruct")
    assert (found.block_bytes, found.groups) == (2 * 2**20, 1)
    assert found.request_blocks == 131072 // 16


def test_sliding_and_full_layers_are_cut_into_groups_of_equal_size() -> None:
    """gpt-oss-20b: 12 full and 12 sliding layers, two groups of 12; a window of 128 holds ceil((127 + 8192) / 16) + 1 blocks."""
    found = pool("openai/gpt-oss-20b")
    assert found.groups == 2
    assert found.block_bytes == 12 * 16 * 2 * 8 * 64 * 2
    assert found.request_blocks == 131072 // 16 + math.ceil((127 + 8192) / 16) + 1


def test_five_sliding_layers_to_one_full() -> None:
    """gemma-3-27b: 62 layers, 10 full and 52 sliding: groups of 10 layers, 1 + 6 of them."""
    found = pool("google/gemma-3-27b-it")
    assert found.groups == 1 + 6
    assert found.block_bytes == 10 * 16 * 2 * 16 * 128 * 2


def test_nearly_equal_numbers_of_layers_are_padded_from_0_12_on() -> None:
    layers = ["full_attention"] * 10 + ["sliding_attention"] * 11
    config = {
        "model_type": "olmo3", "num_hidden_layers": 21, "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 8,
        "vocab_size": 32000, "layer_types": layers, "sliding_window": 1024, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = ModelConfig.from_hf(config)
    found = {}
    for version in ("0.11.0", "0.12.0"):
        engine = EngineConfig(version=version)
        found[version] = kv_pool(model, engine, engine.resolve(model, NODE)).groups
    assert found == {"0.11.0": 1 + 2, "0.12.0": 2}


def test_windowed_layers_kept_every_token_before_the_hybrid_pool() -> None:
    old, new = pool("google/gemma-3-27b-it", version="0.9.0"), pool("google/gemma-3-27b-it", version="0.9.1")
    assert (old.groups, new.groups) == (1, 7)
    assert old.block_bytes == 62 * 16 * 2 * 16 * 128 * 2


def test_chunked_layers_hold_a_chunk_and_the_batch() -> None:
    """Llama-4-Scout: 36 chunked layers (8192) and 12 full ones; a request holds ceil((8192 + 8192) / 16) blocks in each chunked group."""
    found = pool("meta-llama/Llama-4-Scout-17B-16E-Instruct", tp=8, max_model_len=131072)
    assert found.groups == 4
    assert found.request_blocks == 131072 // 16 + 3 * (16384 // 16)


def test_latent_attention_keeps_one_copy_whatever_the_ranks() -> None:
    one, eight = pool("deepseek-ai/DeepSeek-V2-Lite"), pool("deepseek-ai/DeepSeek-V2-Lite", tp=8)
    assert one.block_bytes == eight.block_bytes == 27 * 64 * 576 * 2  # FlashMLA blocks of 64 tokens
    assert pool("deepseek-ai/DeepSeek-V2-Lite", kv_cache_dtype="fp8").block_bytes == 27 * 64 * 576


def test_sparse_latent_attention_in_fp8_takes_656_bytes_and_the_index_key() -> None:
    model = ModelConfig.from_hf(
        {"model_type": "deepseek_v32", "num_hidden_layers": 2, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
         "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "num_attention_heads": 128,
         "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "vocab_size": 129280,
         "index_n_heads": 64, "index_head_dim": 128, "torch_dtype": "bfloat16"}
    )  # fmt: skip
    mixer = model.layers[0].mixer
    assert token_bytes(mixer, 8, 1) == 656 + 128
    assert token_bytes(mixer, 8, 2) == (576 + 128) * 2


def test_state_space_layers_enlarge_the_block_until_a_state_fits() -> None:
    """Granite 4.0 H Small: 36 Mamba-2 and 4 attention layers, in groups of 4; a state of 128 heads x 64 x 128 and a convolution."""
    found = pool("ibm-granite/granite-4.0-h-small")
    state = ((128 * 64 + 2 * 128) * 3 + 128 * 64 * 128) * 2
    one_token = 2 * 8 * 128 * 2
    assert found.block_size == 16 * math.ceil(state / (16 * one_token))
    assert found.groups == 1 + 9
    assert found.block_bytes == 4 * found.block_size * one_token
    assert found.request_blocks == math.ceil(131072 / found.block_size) + 9


def test_a_model_without_attention_keeps_one_state_a_request() -> None:
    config = {
        "model_type": "mamba",
        "num_hidden_layers": 64,
        "hidden_size": 2560,
        "vocab_size": 50280,
        "state_size": 16,
        "torch_dtype": "float16",
    }
    model = ModelConfig.from_hf(config)
    engine = EngineConfig(version="0.11.0")
    found = kv_pool(model, engine, engine.resolve(model, NODE))
    assert found.request_blocks == 1
    assert found.block_bytes == 64 * 5120 * (3 + 16) * 2


def test_kv_heads_are_replicated_once_there_are_more_ranks() -> None:
    four, eight = pool("Qwen/Qwen3-235B-A22B", tp=4), pool("Qwen/Qwen3-235B-A22B", tp=8)
    assert four.block_bytes == eight.block_bytes == 94 * 16 * 2 * 1 * 128 * 2


def test_newer_versions_report_tokens_as_concurrency_times_length() -> None:
    old, new = budget("openai/gpt-oss-20b", version="0.19.0"), budget("openai/gpt-oss-20b", version="0.21.0")
    assert old.kv_cache_tokens == old.num_gpu_blocks // 2 * 16
    assert new.kv_cache_tokens == int(new.max_concurrency * 131072)


def test_overrides_replace_what_profiling_found() -> None:
    assert budget("Qwen/Qwen3-8B", num_gpu_blocks_override=1000, max_model_len=8192).num_gpu_blocks == 1000
    given = budget("Qwen/Qwen3-8B", kv_cache_memory_bytes="10 GiB")
    assert given.available == 10 * 2**30
    assert given.num_gpu_blocks == 10 * 2**30 // given.block_bytes


@pytest.mark.parametrize(
    ("name", "tp", "activations_gib", "non_torch_gib", "kv_gib"),
    # vLLM 0.11.0 on an H100 (79.18 GiB): its own figures for activations and non-torch put in, the pool must come out.
    [
        ("openai/gpt-oss-20b", 1, 7.38, 0.13, 50.28),
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 4.76, 0.13, 51.38),
        ("Qwen/Qwen3-0.6B", 1, 5.56, 0.13, 64.45),
        ("Qwen/Qwen3-32B", 1, 5.64, 0.14, 4.45),
        ("Qwen/Qwen3-32B", 2, 5.64, 0.54, 34.49),
    ],
)
def test_the_measured_pool_comes_out_of_measured_peaks(
    name: str, tp: int, activations_gib: float, non_torch_gib: float, kv_gib: float
) -> None:
    gib = 2**30
    node = HardwareConfig.preset("h100-sxm", gpus=tp, gpu_memory=79.18 * gib)
    weights = budget(name, node, tp=tp).weights
    assert 0.9 * 79.18 - weights / gib - activations_gib - non_torch_gib == pytest.approx(kv_gib, abs=0.05)


def test_graph_memory_is_taken_off_from_0_20_on() -> None:
    assert budget("Qwen/Qwen3-8B", version="0.19.0").graphs == 0.0
    assert 0.3 * 2**30 < budget("Qwen/Qwen3-8B", version="0.21.0").graphs < 2**30
    assert budget("Qwen/Qwen3-8B", version="0.21.0", enforce_eager=True).graphs == 0.0


# --- remedies ----------------------------------------------------------------------------------------------------------


def test_remedies_are_ranked_and_do_what_they_say() -> None:
    model = ModelConfig.from_catalogue("Qwen/Qwen3-32B")
    node = HardwareConfig.preset("h100-sxm", gpus=1)
    engine = EngineConfig(version="0.11.0")
    now = budget("Qwen/Qwen3-32B", node)
    assert now.status == "kv_cache_too_small"
    remedies = find_remedies(model, node, engine)
    actions = " ".join(remedy.action for remedy in remedies)
    for word in ("tensor parallelism 2", "max_model_len", "gpu_memory_utilization", "max_num_seqs", "fp8"):
        assert word in actions
    assert [r.status != "ok" for r in remedies] == sorted(r.status != "ok" for r in remedies)
    for remedy in remedies:
        changes = dict(remedy.changes)
        changed_node = node.replace(gpus=changes.pop("gpus", 1))
        then = budget("Qwen/Qwen3-32B", changed_node, **changes)
        assert then.status == remedy.status
        assert (then.available - then.needed) - (now.available - now.needed) == pytest.approx(remedy.frees_bytes)


@given(length=st.integers(16, 131_072), blocks=st.integers(1, 40_000))
def test_the_longest_request_is_the_longest(length: int, blocks: int) -> None:
    model = ModelConfig.from_catalogue("openai/gpt-oss-20b")
    engine = EngineConfig(version="0.11.0", max_model_len=length, num_gpu_blocks_override=blocks)
    resolved = engine.resolve(model, NODE)
    now = memory_budget(model, NODE, engine, resolved, weight_sizes(model, engine, NODE, 2.0))
    found = longest_request(model, engine, resolved, now)

    def fits(tokens: int) -> bool:
        return kv_pool(model, engine, resolved._replace(max_model_len=tokens)).request_blocks <= blocks

    assert found == 0 or fits(found)
    if found + 16 <= length:
        assert not fits(found + 16)
