"""Parameter counts: exact against the model classes of `transformers`, and what must hold for any shape."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from startup_model.errors import ConfigError
from startup_model.files import package_text
from startup_model.models import decoders, recurrent
from startup_model.models.config import ModelConfig
from startup_model.models.families import GENERIC, find_family
from startup_model.models.layers import Attention, LatentAttention, MixtureOfExperts
from startup_model.models.parts import Family
from startup_model.models.vision import PROJECTORS, TOWERS, count_vision, vision_tables

REFERENCE = json.loads((Path(__file__).parent / "reference" / "parameter_counts.json").read_text(encoding="utf-8"))
"""Counted on the meta device by `python tests/reference/count_parameters.py`; the file's "origin" has the versions."""
FAMILIES = tuple(name for name in tomllib.loads(package_text("data/families.toml")) if name != GENERIC)
CONFIGS: Mapping[str, Any] = {record["id"]: record["config"] for record in REFERENCE["records"]}
COUNTS: Mapping[str, int] = {record["id"]: record["parameters"] for record in REFERENCE["records"]}


def small(**changes: Any) -> dict[str, Any]:
    """A small Llama config with some fields changed."""
    sizes = {"num_hidden_layers": 4, "hidden_size": 384, "intermediate_size": 1000, "num_attention_heads": 6}
    return {"model_type": "llama", **sizes, "num_key_value_heads": 2, "vocab_size": 1013, **changes}


# --- against transformers ---


def test_reference_says_where_it_comes_from() -> None:
    assert "count_parameters.py" in REFERENCE["origin"]
    assert "transformers" in REFERENCE["origin"]


@pytest.mark.parametrize("name", CONFIGS)
def test_count_is_that_of_the_model_class(name: str) -> None:
    model = ModelConfig.from_hf(CONFIGS[name])
    assert model.parameters == COUNTS[name]
    assert not [said for said in model.assumptions if "table of families" in said or "vision" in said]


def test_the_tables_are_covered_by_the_reference() -> None:
    seen = {config["model_type"] for config in CONFIGS.values()}
    seen |= {
        section.get("model_type") for config in CONFIGS.values() for section in config.values() if _is_section(section)
    }
    names = set(FAMILIES)
    counted = [find_family(name) for name in seen & names]
    # Types that transformers lacks: checked against published numbers below, or read from vLLM's source only.
    own_code = {"arctic", "bailing_moe", "bailing_moe_v2", "baichuan", "chatglm", "deepseek", "internlm", "internlm2"}
    own_code |= {"hunyuan", "longcat_flash", "mistral4", "orion", "qwen"}
    lacking = {name for name in names if not any(find_family(name) is one for one in counted)}
    assert lacking <= own_code | {"generic"}
    towers, projectors = vision_tables().towers, vision_tables().projectors
    assert {name for name in projectors if name not in seen} <= {"internvl_chat", "kimi_vl"}
    assert {projector.tower for projector in projectors.values()} <= towers.keys()
    assert {projector.count for projector in projectors.values()} == PROJECTORS.keys()
    assert {tower.count for tower in towers.values()} == TOWERS.keys()


def _is_section(value: Any) -> bool:
    return isinstance(value, dict)


# --- against published numbers ---

PUBLISHED_TOTALS = [
    # safetensors index of the repository on the Hub
    (
        "chatglm3-6b",
        6_243_584_000,
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "hidden_size": 4096,
            "ffn_hidden_size": 13696,
            "num_attention_heads": 32,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "add_qkv_bias": True,
            "padded_vocab_size": 65024,
            "kv_channels": 128,
        },
    ),
    (
        "Qwen-7B",
        7_721_324_544,
        {
            "model_type": "qwen",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "vocab_size": 151936,
            "no_bias": True,
        },
    ),
    (
        "Baichuan2-13B",
        13_896_668_160,
        {
            "model_type": "baichuan",
            "num_hidden_layers": 40,
            "hidden_size": 5120,
            "intermediate_size": 13696,
            "num_attention_heads": 40,
            "vocab_size": 125696,
        },
    ),
    (
        "internlm2-7b",
        7_737_708_544,
        {
            "model_type": "internlm2",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 92544,
            "bias": False,
        },
    ),
    (
        "deepseek-moe-16b",
        16_375_728_128,
        {
            "model_type": "deepseek",
            "num_hidden_layers": 28,
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": 102400,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
        },
    ),
]


_INTERNLM2 = next(config for name, _, config in PUBLISHED_TOTALS if name == "internlm2-7b")


@pytest.mark.parametrize(("name", "total", "config"), PUBLISHED_TOTALS, ids=[row[0] for row in PUBLISHED_TOTALS])
def test_total_is_the_published_one(name: str, total: int, config: dict[str, Any]) -> None:
    assert ModelConfig.from_hf(config, name=name).parameters == total


LONGCAT = {
    "model_type": "longcat_flash",
    "num_layers": 28,
    "hidden_size": 6144,
    "ffn_hidden_size": 12288,
    "vocab_size": 131072,
    "expert_ffn_hidden_size": 2048,
    "num_attention_heads": 64,
    "n_routed_experts": 512,
    "zero_expert_num": 256,
    "moe_topk": 12,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
ARCTIC = {
    "model_type": "arctic",
    "num_hidden_layers": 35,
    "hidden_size": 7168,
    "intermediate_size": 4864,
    "num_attention_heads": 56,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_local_experts": 128,
    "num_experts_per_tok": 2,
    "moe_layer_frequency": 1,
}
LING_FLASH = {
    "model_type": "bailing_moe_v2",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 9216,
    "vocab_size": 157184,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
}


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        (LONGCAT, 560, 27),
        (ARCTIC, 480, 17),
        (LING_FLASH, 103, 6.1),
        (CONFIGS["deepseek_v3/DeepSeek-V3"], 671, 37),
        (CONFIGS["kimi_k2/Kimi-K2-Instruct"], 1026, 32),
        (CONFIGS["glm4_moe/GLM-4.5"], 355, 32),
        (CONFIGS["gpt_oss/gpt-oss-20b"], 20.9, 3.6),
        (CONFIGS["llama4/Llama-4-Scout-17B-16E-Instruct"], 109, 17),
        (CONFIGS["llama4-interleaved/Llama-4-Maverick-17B-128E-Instruct"], 400, 17),
        (CONFIGS["mixtral/Mixtral-8x7B-v0.1"], 46.7, 12.9),
        (CONFIGS["qwen3_moe/Qwen3-30B-A3B"], 30.5, 3.3),
        (CONFIGS["dbrx/dbrx-instruct"], 132, 36),
        (CONFIGS["jamba/Jamba-v0.1"], 52, 12),
        (CONFIGS["nemotron_h-moe/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"], 31.6, 3.2),
        (CONFIGS["kimi_linear/48B-A3B"], 49, 3),
        (CONFIGS["hunyuan_v1_moe/A13B"], 80, 13),
        (CONFIGS["dots1/dots.llm1"], 142, 14),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_sizes_are_near_the_published_ones(config: dict[str, Any], billions: float, active: float) -> None:
    """Published active counts round, and some include the embedding, which is a look-up here: 10 %."""
    model = ModelConfig.from_hf(config)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.10)


# --- structure that others rely on ---


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nemotron_h/synthetic", {"mamba2": 3, "dense": 2, "attention": 1}),
        ("falcon_h1/synthetic", {"attention+mamba2+dense": 3}),
        ("zamba2/two blocks", {"mamba2": 4, "attention+mamba2+dense": 4}),
        ("minimax/synthetic", {"lightning_attention+moe": 2, "attention+moe": 1}),
        ("lfm2/synthetic", {"short_convolution+dense": 3, "attention+dense": 1}),
        (
            "kimi_linear/synthetic",
            {"kimi_delta_attention+moe": 4, "kimi_delta_attention+dense": 1, "latent_attention+moe": 1},
        ),
        ("qwen3_5_moe/synthetic", {"linear_attention+moe": 4, "attention+moe": 1}),
        ("gemma4_text/synthetic moe", {"attention+moe+dense": 8}),
    ],
)
def test_layers_by_kind(name: str, kinds: Mapping[str, int]) -> None:
    assert dict(ModelConfig.from_hf(CONFIGS[name]).layers_by_kind) == kinds


def windows(config: Mapping[str, Any]) -> dict[int | None, int]:
    """Number of attention layers by window."""
    found: dict[int | None, int] = {}
    for group in ModelConfig.from_hf(config).layers:
        for mixer in group.mixers:
            if isinstance(mixer, Attention | LatentAttention):
                found[mixer.window] = found.get(mixer.window, 0) + group.count
    return found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CONFIGS["gemma3/gemma-3-4b-it"], {1024: 29, None: 5}),
        (CONFIGS["exaone4/synthetic"], {64: 3, None: 1}),
        (CONFIGS["qwen2/windows"], {None: 1, 64: 2}),
        (CONFIGS["gpt_neo/synthetic"], {None: 2, 256: 2}),
        (CONFIGS["mimo_v2_flash/MiMo-V2-Flash"], {None: 9, 128: 39}),
        (CONFIGS["qwen2/Qwen2.5-7B"], {None: 28}),
    ],
)
def test_windows(config: Mapping[str, Any], expected: Mapping[int | None, int]) -> None:
    assert windows(config) == expected


def test_what_a_token_and_a_request_keep() -> None:
    def kept(name: str) -> list[tuple[int, int, int]]:
        layers = ModelConfig.from_hf(CONFIGS[name]).layers
        return [
            (group.count, mixer.token_numbers(), mixer.state_numbers()) for group in layers for mixer in group.mixers
        ]

    assert kept("llama/Llama-3.1-8B") == [(32, 2 * 8 * 128, 0)]
    assert kept("deepseek_v3/synthetic")[0][1:] == (
        CONFIGS["deepseek_v3/synthetic"]["kv_lora_rank"] + CONFIGS["deepseek_v3/synthetic"]["qk_rope_head_dim"], 0,
    )  # fmt: skip
    assert kept("deepseek_v32/DeepSeek-V3.2")[0][1] == 512 + 64 + 128
    assert kept("falcon_h1/synthetic") == [(3, 2 * 2 * 64, 0), (3, 0, 664 * 3 + 600 * 32)]
    assert kept("gemma3n_text/E4B")[-1][1] == 0
    assert sum(count for count, token, _ in kept("gemma3n_text/E4B") if token) == 20
    assert sum(count for count, token, _ in kept("mllama/Llama-3.2-11B-Vision") if token) == 32
    assert sum(count for count, token, _ in kept("zamba2/2.7B") if token) == 9
    assert {token for _, token, _ in kept("mimo_v2_flash/MiMo-V2-Flash")} == {4 * (192 + 128), 8 * (192 + 128)}


def test_identity_experts_are_not_counted_as_used() -> None:
    moe = ModelConfig.from_hf(LONGCAT).moe
    assert moe is not None
    assert (moe.num_experts, moe.num_experts_per_token, moe.num_identity_experts) == (512, 8, 256)


# --- vision ---


def test_unknown_towers_are_estimated_and_that_is_said() -> None:
    tower = {"model_type": "new_tower", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 256}
    config = {"model_type": "new_wrapper", "text_config": small(), "vision_config": tower}
    model = ModelConfig.from_hf(config)
    assert model.extra_parameters["vision"] == 2 * (4 * 64 * 64 + 2 * 64 * 256) + 3 * 14 * 14 * 64
    assert any("vision tower is estimated" in said for said in model.assumptions)
    assert not count_vision(config, 384).exact


def test_a_tower_without_sizes_is_not_counted_and_that_is_said() -> None:
    model = ModelConfig.from_hf({"model_type": "new_wrapper", "text_config": small(), "vision_config": {"name": "x"}})
    assert "vision" not in model.extra_parameters
    assert any("vision tower is not counted" in said for said in model.assumptions)


def test_internvl_chat_has_the_published_count() -> None:
    """InternVL2-8B: InternLM2.5-7B with nine more tokens, InternViT-300M and the projector; total of its safetensors
    index."""
    vision = {
        "model_type": "intern_vit_6b",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "image_size": 448,
        "patch_size": 14,
        "qkv_bias": True,
        "qk_normalization": False,
        "norm_type": "layer_norm",
        "num_attention_heads": 16,
    }
    text = _INTERNLM2 | {"vocab_size": 92553}
    model = ModelConfig.from_hf(
        {"model_type": "internvl_chat", "llm_config": text, "vision_config": vision, "downsample_ratio": 0.5}
    )
    assert model.parameters == 8_075_365_376


# --- what holds for any shape ---

shapes = st.sampled_from(sorted(CONFIGS))


@given(name=shapes)
def test_one_rank_holds_the_whole_model(name: str) -> None:
    model = ModelConfig.from_hf(CONFIGS[name])
    assert dict(model.rank_parameters(1)) == dict(model.parameters_by_kind)
    assert sum(model.parameters_by_kind.values()) == model.parameters
    assert all(number > 0 for number in model.parameters_by_kind.values())


@given(name=shapes, tp=st.sampled_from([2, 3, 4, 8, 16]))
def test_all_ranks_together_hold_at_least_the_model(name: str, tp: int) -> None:
    model = ModelConfig.from_hf(CONFIGS[name])
    rank = model.rank_parameters(tp)
    assert tp * sum(rank.values()) >= model.parameters
    assert all(rank[kind] * tp >= whole for kind, whole in model.parameters_by_kind.items())


@given(name=shapes, ep=st.sampled_from([2, 4, 8]))
def test_expert_parallel_ranks_hold_all_experts(name: str, ep: int) -> None:
    model = ModelConfig.from_hf(CONFIGS[name])
    assert ep * model.rank_parameters(1, ep).get("experts", 0) >= model.parameters_by_kind.get("experts", 0)


@given(name=shapes)
def test_active_parameters_are_part_of_all(name: str) -> None:
    model = ModelConfig.from_hf(CONFIGS[name])
    assert 0 < model.active_parameters <= model.parameters
    sparse = any(isinstance(part, MixtureOfExperts) for group in model.layers for part in group.feed_forwards)
    assert sparse == ("experts" in model.parameters_by_kind)


@given(name=shapes)
def test_a_model_survives_its_own_dump(name: str) -> None:
    model = ModelConfig.from_hf(CONFIGS[name])
    assert ModelConfig.model_validate(json.loads(model.model_dump_json())) == model


@given(
    layers=st.integers(1, 60), hidden=st.integers(1, 40), heads=st.sampled_from([1, 2, 4, 8]), width=st.integers(1,
    5000),
    vocabulary=st.integers(1, 200_000), tied=st.booleans(),
)  # fmt: skip
def test_llama_is_the_formula(layers: int, hidden: int, heads: int, width: int, vocabulary: int, tied: bool) -> None:
    h = hidden * heads
    config = small(num_hidden_layers=layers, hidden_size=h, num_attention_heads=heads, num_key_value_heads=1,
    intermediate_size=width,
                   vocab_size=vocabulary, tie_word_embeddings=tied)  # fmt: skip
    layer = 2 * h * h + 2 * h * hidden + 3 * h * width + 2 * h
    assert ModelConfig.from_hf(config).parameters == layers * layer + h + (1 if tied else 2) * vocabulary * h


UNIFORM = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "opt",
    "gpt2",
    "gpt_neox",
    "phi",
    "cohere2",
    "stablelm",
)


@given(family=st.sampled_from(UNIFORM), layers=st.integers(1, 40), more=st.integers(1, 40))
def test_more_layers_are_never_fewer_parameters(family: str, layers: int, more: int) -> None:
    few = ModelConfig.from_hf(small(model_type=family, num_hidden_layers=layers))
    many = ModelConfig.from_hf(small(model_type=family, num_hidden_layers=layers + more))
    assert many.parameters > few.parameters
    assert many.num_hidden_layers == layers + more


# --- bad input ---


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        (small(model_type="qwen3_next", layer_types=["full_attention"] * 3), "layer_types", "4 layers"),
        (small(model_type="nemotron_h", hybrid_override_pattern="M*"), "hybrid_override_pattern", "4 layers"),
        (small(model_type="nemotron_h", hybrid_override_pattern="M*XE"), "hybrid_override_pattern", "one of M"),
        (small(num_attention_heads=5, num_key_value_heads=5), "num_attention_heads", "must be a divisor of hidden_size"),
        (small(num_key_value_heads=4), "num_key_value_heads", "must be a divisor of num_attention_heads"),
        (small(model_type="mixtral", num_local_experts=2, num_experts_per_tok=3), "num_experts_per_tok", "must be at most the number of experts, 2"),
        (small(model_type="mimo_v2_flash", num_experts=4, num_experts_per_tok=2, hybrid_layer_pattern=[0, 1],
        head_dim=8),
         "hybrid_layer_pattern", "num_hidden_layers = 4"),
        (small(model_type="bamba", attn_layer_indices=2), "attn_layer_indices", "list of layer numbers"),
        (small(model_type="bamba", mamba_n_heads=7), "mamba_n_heads", "must be a divisor of the inner size"),
        (small(model_type="gpt_neo", attention_types=[[["global"], 3]]), "attention_types", "must be a list for num_hidden_layers = 4 layers, not 3"),
        (small(model_type="gpt_neo", attention_types=[3]), "attention_types", "[[kinds], times]"),
        (small(model_type="lfm2", block_ffn_dim_multiplier=float("nan")), "block_ffn_dim_multiplier", "above 0"),
        (small(model_type="gemma3n_text", intermediate_size=[1000]), "intermediate_size", "num_hidden_layers = 4"),
        (small(model_type="glm_moe_dsa", indexer_types=["full"], kv_lora_rank=8), "indexer_types", "4 layers"),
        (CONFIGS["gemma3/synthetic"] | {"vision_config": {"image_size": [224, 112]}}, "vision_config.image_size",
        "square"),
        (CONFIGS["gemma3/synthetic"] | {"vision_config": {"hidden_size": -1}}, "vision_config.hidden_size", "between"),
        (CONFIGS["qwen3_vl/synthetic"] | {"vision_config": {"deepstack_visual_indexes": 3}},
         "vision_config.deepstack_visual_indexes", "list"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(config: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_hf(config)
    message = str(caught.value)
    assert caught.value.field == field
    assert words in message
    assert "\n" not in message


JUNK: tuple[Any, ...] = (
    None,
    -1,
    0,
    1,
    3,
    1.5,
    "x",
    "",
    True,
    [],
    [1],
    {},
    {"a": 1},
    10**30,
    float("nan"),
    [None],
    ["a", "b"],
    [[1, 2]],
)


@given(name=shapes, data=st.data())
def test_a_damaged_config_is_refused_or_read_never_a_crash(name: str, data: st.DataObject) -> None:
    config = json.loads(json.dumps(CONFIGS[name]))
    sections = [config, *(value for value in config.values() if _is_section(value))]
    section = data.draw(st.sampled_from(sections))
    section[data.draw(st.sampled_from(sorted(section) or ["x"]))] = data.draw(st.sampled_from(JUNK))
    try:
        model = ModelConfig.from_hf(config)
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017  either outcome is right
    else:
        assert model.parameters > 0


def test_the_table_is_found_in_any_case() -> None:
    assert find_family("LLaMA") is find_family("llama") is not None
    assert find_family("no such type") is None


def test_every_row_is_a_line_that_can_be_built() -> None:
    assert len(FAMILIES) >= 138
    for name in FAMILIES:
        family = find_family(name)
        assert family is not None
        assert TypeAdapter(Family).validate_python(family, strict=True) == family
        assert hasattr(decoders, family.build) or hasattr(recurrent, family.build)
    assert find_family("generic") is not None
    for name in ("# Qwen", "", "llama = 'generic'\ngranite", "llama|qwen", ".*", "l" * 500):
        assert find_family(name) is None
