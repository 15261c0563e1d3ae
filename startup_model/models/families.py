"""Model families: from the facts of a config.json to layers, one row of one table a family.

A family is data (the defaults of its configuration class, which a config.json leaves out) and one small function that
says of what its layers are made; the functions stand in ``decoders``, ``sparse`` and ``recurrent``. ``FAMILIES`` maps
``model_type`` to it; an unknown type is read as a generic decoder, and that is said.
Structures were read from the model classes of the `transformers` library (4.57 to 5.24) and, for types that it lacks,
from vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping

from startup_model.models import decoders, recurrent, sparse
from startup_model.models.decoders import generic_decoder
from startup_model.models.parts import Family, Skeleton

__all__ = ["FAMILIES", "GENERIC", "Family", "Skeleton", "find_family", "generic_decoder"]

_QWEN3_NEXT_DEFAULTS = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "head_dim": 256,
}
_DEEPSEEK_DEFAULTS = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
_DEEPSEEK_V32_DEFAULTS = _DEEPSEEK_DEFAULTS | {
    "num_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "index_n_heads": 64, "index_head_dim": 128,
}  # fmt: skip
_GLM_DSA_DEFAULTS = _DEEPSEEK_V32_DEFAULTS | {
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "index_n_heads": 32,
}
_GEMMA_DEFAULTS = {
    "num_hidden_layers": 28,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_attention_heads": 16,
    "head_dim": 256,
}
_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "sliding_window": 4096,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "max_position_embeddings": 131_072,
}
_GEMMA3N_DEFAULTS = {
    "vocab_size": 262_400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35,
    "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768, "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256, "altup_num_inputs": 4,
    "num_kv_shared_layers": 15,
    "laurel_rank": 64,
}  # fmt: skip
_GEMMA4_DEFAULTS = {
    "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512, "max_position_embeddings": 131_072,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256,
}  # fmt: skip
_MIXTRAL_DEFAULTS = {"num_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8}
_LLAMA4_DEFAULTS = {"intermediate_size_mlp": 16384, "num_experts": 16, "num_experts_per_tok": 1}
_NEMOTRON_H_DEFAULTS = {
    "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 7688,
    "moe_shared_expert_intermediate_size": 7688, "intermediate_size": 21504,
}  # fmt: skip
_BAMBA_DEFAULTS = {"num_key_value_heads": 8, "mamba_n_heads": 128, "mamba_d_state": 256, "mamba_d_conv": 4}
_ERNIE_MOE_DEFAULTS = {
    "num_experts": 64, "num_experts_per_tok": 6, "moe_num_shared_experts": 2, "moe_intermediate_size": 1536,
    "num_key_value_heads": 4,
    "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1,
}  # fmt: skip
_MIMO_V2_DEFAULTS = {
    "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128,
    "first_k_dense_replace": 1,
}  # fmt: skip
_QWEN2_DEFAULTS = {"sliding_window": 4096}
_QWEN3_VL_DEFAULTS = {"head_dim": 128}
_ZAMBA2_DEFAULTS = {"mamba_d_state": 64, "mamba_ngroups": 1, "n_mamba_heads": 8}

_QWEN2 = Family(decoders.qwen2, _QWEN2_DEFAULTS)
_QWEN3 = Family(decoders.qwen3, {"head_dim": 128, "sliding_window": 4096})
_QWEN3_MOE = Family(sparse.qwen3_moe, {"decoder_sparse_step": 1, "sliding_window": 4096})
_QWEN3_VL = Family(decoders.qwen3, _QWEN3_VL_DEFAULTS)
_QWEN3_VL_MOE = Family(sparse.qwen3_moe, _QWEN3_VL_DEFAULTS | {"decoder_sparse_step": 1})
_QWEN3_5 = Family(recurrent.qwen3_next, _QWEN3_NEXT_DEFAULTS)
_QWEN3_5_MOE = Family(
    recurrent.qwen3_next,
    _QWEN3_NEXT_DEFAULTS
    | {
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
)
_DEEPSEEK = Family(sparse.deepseek, _DEEPSEEK_DEFAULTS)
_MIXTRAL = Family(sparse.mixtral, _MIXTRAL_DEFAULTS)
_MISTRAL = Family(decoders.mistral, {"num_key_value_heads": 8})
_GEMMA3 = Family(decoders.gemma3, _GEMMA3_DEFAULTS)
_GEMMA3N = Family(decoders.gemma3n, _GEMMA3N_DEFAULTS)
_GEMMA4 = Family(sparse.gemma4, _GEMMA4_DEFAULTS)
_LLAMA4 = Family(sparse.llama4, _LLAMA4_DEFAULTS)
_GLM4V = Family(decoders.glm4, {"attention_bias": True, "num_key_value_heads": 2})
_GLM4V_MOE = Family(sparse.glm4_moe, {"attention_bias": True, "first_k_dense_replace": 1, "n_shared_experts": 1})
_MINIMAX = Family(recurrent.minimax, _MIXTRAL_DEFAULTS)
_BAILING = Family(sparse.bailing_moe, {"first_k_dense_replace": 0})

GENERIC = Family(generic_decoder)
"""Used for explicit numbers and for architectures that are not in the table."""

FAMILIES: Mapping[str, Family] = {
    # Llama and its kin
    "llama": GENERIC,
    "granite": GENERIC,
    "smollm3": GENERIC,
    "exaone": GENERIC,
    "helium": GENERIC,
    "yi": GENERIC,
    "xverse": GENERIC,
    "aquila": GENERIC,
    "minicpm": GENERIC,
    "cwm": Family(decoders.cwm, {"num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192}),
    "mistral": _MISTRAL,
    "ministral": _MISTRAL,
    "ministral3": Family(decoders.mistral, {"num_key_value_heads": 8, "head_dim": 128}),
    "baichuan": Family(decoders.baichuan),
    "internlm": Family(decoders.internlm, {"bias": True}),
    "internlm2": Family(decoders.internlm, {"bias": False}),
    "internlm3": Family(decoders.internlm3),
    "orion": Family(decoders.orion),
    "seed_oss": Family(decoders.seed_oss, {"num_key_value_heads": 8, "head_dim": 128}),
    "ernie4_5": Family(decoders.ernie),
    "hunyuan_v1_dense": Family(decoders.hunyuan),
    "arcee": Family(decoders.arcee),
    "apertus": Family(decoders.apertus),
    "diffllama": Family(decoders.diffllama),
    "bitnet": Family(decoders.bitnet, {"num_key_value_heads": 5}),
    "minicpm3": Family(
        decoders.minicpm3,
        {"q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64},
    ),
    "youtu": Family(decoders.minicpm3, _DEEPSEEK_DEFAULTS),
    # Qwen
    "qwen": Family(decoders.qwen),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_5_omni_text": _QWEN2,
    "qwen2_moe": Family(
        sparse.qwen2_moe, {"shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1, "sliding_window": 4096}
    ),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_text": _QWEN3_VL,
    "qwen3_vl_moe": _QWEN3_VL_MOE,
    "qwen3_vl_moe_text": _QWEN3_VL_MOE,
    "qwen3_omni_moe_text": _QWEN3_VL_MOE,
    "qwen3_next": Family(recurrent.qwen3_next, _QWEN3_NEXT_DEFAULTS),
    "qwen3_5": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5_MOE,
    "qwen3_5_moe_text": _QWEN3_5_MOE,
    # Gemma
    "gemma": Family(decoders.gemma, _GEMMA_DEFAULTS),
    "gemma2": Family(decoders.gemma2, {"head_dim": 256, "sliding_window": 4096}),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma3n": _GEMMA3N,
    "gemma3n_text": _GEMMA3N,
    "gemma4": _GEMMA4,
    "gemma4_text": _GEMMA4,
    "vaultgemma": Family(decoders.vaultgemma, {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 512}),
    "recurrent_gemma": Family(
        recurrent.recurrent_gemma,
        {"block_types": ("recurrent", "recurrent", "attention"), "attention_window_size": 2048, "conv1d_width": 4},
    ),
    # Phi, GLM, OLMo, Cohere, EXAONE
    "phi": Family(decoders.phi),
    "phi3": Family(decoders.mistral),
    "glm": Family(decoders.glm, {"head_dim": 128, "attention_bias": True}),
    "glm4": Family(decoders.glm4, {"head_dim": 128}),
    "glm4v": _GLM4V,
    "glm4v_text": _GLM4V,
    "chatglm": Family(decoders.chatglm),
    "olmo": Family(decoders.olmo),
    "olmo2": Family(decoders.olmo2),
    "olmo3": Family(decoders.olmo2, {"sliding_window": 4096}),
    "olmo_hybrid": Family(recurrent.olmo_hybrid),
    "nanochat": Family(decoders.nanochat),
    "cohere": Family(decoders.cohere),
    "cohere2": Family(decoders.cohere2, {"sliding_window": 4096}),
    "exaone4": Family(decoders.exaone4, {"sliding_window": 4096}),
    # GPT and its contemporaries
    "falcon": Family(decoders.falcon),
    "opt": Family(decoders.opt, {"max_position_embeddings": 2048}),
    "mpt": Family(decoders.mpt),
    "bloom": Family(decoders.bloom),
    "gpt2": Family(decoders.gpt2, {"max_position_embeddings": 1024}),
    "gpt_bigcode": Family(decoders.gpt2, {"multi_query": True, "max_position_embeddings": 1024}),
    "gpt_neo": Family(decoders.gpt_neo, {"max_position_embeddings": 2048}),
    "gptj": Family(decoders.gptj),
    "codegen": Family(decoders.gptj),
    "gpt_neox": Family(decoders.gpt_neox),
    "persimmon": Family(decoders.persimmon),
    "starcoder2": Family(decoders.starcoder2),
    "stablelm": Family(decoders.stablelm),
    "nemotron": Family(decoders.nemotron),
    "mllama_text_model": Family(
        decoders.mllama, {"num_key_value_heads": 8, "cross_attention_layers": (3, 8, 13, 18, 23, 28, 33, 38)}
    ),
    # Experts
    "mixtral": _MIXTRAL,
    "phimoe": Family(sparse.phimoe, {"num_experts": 16, "num_experts_per_tok": 2}),
    "granitemoe": Family(sparse.granite_moe),
    "granitemoeshared": Family(sparse.granite_moe),
    "gpt_oss": Family(sparse.gpt_oss, {"sliding_window": 128, "head_dim": 64, "num_experts_per_tok": 4}),
    "olmoe": Family(sparse.olmoe, {"num_experts": 64, "num_experts_per_tok": 8}),
    "flex_olmo": Family(sparse.olmoe, {"num_experts": 7, "num_experts_per_tok": 5}),
    "minimax_m2": Family(sparse.minimax_m2, {"head_dim": 128}),
    "dbrx": Family(sparse.dbrx),
    "hunyuan_v1_moe": Family(sparse.hunyuan_moe),
    "hunyuan": Family(sparse.hunyuan_moe),
    "deepseek": Family(sparse.deepseek_moe),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "mistral4": Family(
        sparse.deepseek,
        {
            "q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "num_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_intermediate_size": 2048,
        },
    ),
    "deepseek_v32": Family(sparse.deepseek_sparse, _DEEPSEEK_V32_DEFAULTS),
    "glm_moe_dsa": Family(sparse.deepseek_sparse, _GLM_DSA_DEFAULTS),
    "glm4_moe": Family(sparse.glm4_moe),
    "glm4v_moe": _GLM4V_MOE,
    "glm4v_moe_text": _GLM4V_MOE,
    "glm4_moe_lite": Family(
        sparse.deepseek,
        {
            "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
            "num_experts": 64, "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_intermediate_size": 1536,
            "first_k_dense_replace": 1,
        },
    ),
    "dots1": Family(sparse.dots, {"head_dim": 128}),
    "solar_open": Family(
        sparse.deepseek_moe,
        {"head_dim": 128, "n_shared_experts": 1, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1280},
    ),
    "bailing_moe": _BAILING,
    "bailing_moe_v2": Family(sparse.bailing_moe, {"first_k_dense_replace": 1, "use_qk_norm": True}),
    "exaone_moe": Family(
        sparse.exaone_moe,
        {
            "sliding_window": 4096, "first_k_dense_replace": 1, "num_shared_experts": 1, "num_experts": 64,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1024,
        },
    ),
    "ernie4_5_moe": Family(sparse.ernie_moe, _ERNIE_MOE_DEFAULTS),
    "mimo_v2_flash": Family(sparse.mimo_v2, _MIMO_V2_DEFAULTS),
    "afmoe": Family(
        sparse.afmoe,
        {
            "head_dim": 128, "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2,
            "moe_intermediate_size": 1408,
            "sliding_window": 1024,
        },
    ),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "longcat_flash": Family(
        sparse.longcat,
        _DEEPSEEK_DEFAULTS
        | {"num_experts": 512, "num_experts_per_tok": 12, "zero_expert_num": 256, "moe_intermediate_size": 2048},
    ),
    "arctic": Family(sparse.arctic, {"num_experts": 8, "num_experts_per_tok": 1, "use_residual": True}),
    # State spaces, linear attention, convolutions
    "mamba": Family(recurrent.mamba),
    "falcon_mamba": Family(recurrent.mamba),
    "mamba2": Family(recurrent.mamba2, {"n_groups": 8, "state_size": 128, "num_heads": 128, "head_dim": 64}),
    "rwkv": Family(recurrent.rwkv),
    "granitemoehybrid": Family(recurrent.granite_hybrid, {"mamba_d_conv": 4}),
    "bamba": Family(recurrent.bamba, _BAMBA_DEFAULTS),
    "falcon_h1": Family(recurrent.falcon_h1, _BAMBA_DEFAULTS | {"mamba_d_ssm": 1024}),
    "jamba": Family(recurrent.jamba, {"num_experts": 16, "num_experts_per_tok": 2}),
    "nemotron_h": Family(recurrent.nemotron_h, _NEMOTRON_H_DEFAULTS),
    "zamba": Family(recurrent.zamba),
    "zamba2": Family(recurrent.zamba2, _ZAMBA2_DEFAULTS),
    "minimax": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "kimi_linear": Family(
        recurrent.kimi_linear,
        _DEEPSEEK_DEFAULTS
        | {"q_lora_rank": None, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 1024},
    ),
    "lfm2": Family(recurrent.lfm2, {"num_key_value_heads": 8, "conv_L_cache": 3}),
    "lfm2_moe": Family(
        recurrent.lfm2_moe,
        {
            "num_key_value_heads": 8, "conv_L_cache": 3, "num_experts": 32, "num_experts_per_tok": 4,
            "moe_intermediate_size": 1792,
            "intermediate_size": 7168,
        },
    ),
}  # fmt: skip
"""``model_type`` of a config.json -> family. One row a family."""


def find_family(model_type: str) -> Family | None:
    """The family of a ``model_type``, or None when the table has none."""
    return FAMILIES.get(model_type.lower())
