"""Families with experts: of what their layers are made, one small function a make."""

from __future__ import annotations

from collections import Counter

from startup_model.errors import ConfigError
from startup_model.models import parts
from startup_model.models.decoders import exaone4_layers, kv_shared, layer_embeddings, qwen_layers
from startup_model.models.fields import Fields
from startup_model.models.layers import Attention, DenseFeedForward, LayerGroup, MixtureOfExperts
from startup_model.models.parts import Skeleton

# --- experts in every layer -------------------------------------------------------------------------------------------


def mixtral(f: Fields) -> Skeleton:
    """Mistral with experts."""
    return parts.uniform(
        f, parts.attention(f, window=f.optional("sliding_window")), parts.experts(f, width="intermediate_size")
    )


def phimoe(f: Fields) -> Skeleton:
    """Mixtral with biased norms, and a bias of the head."""
    extra = {"head": f.integer("vocab_size")} if f.flag("lm_head_bias") else {}
    return parts.uniform(
        f, parts.plain_attention(f), parts.experts(f, width="intermediate_size"), norm_bias=True, extra=extra
    )


def granite_moe(f: Fields) -> Skeleton:
    """Experts, and a shared part where ``shared_intermediate_size`` gives one."""
    shared = f.optional("shared_intermediate_size", minimum=0) or 0
    return parts.uniform(f, parts.plain_attention(f), parts.experts(f, width="intermediate_size", shared=shared))


def gpt_oss(f: Fields) -> Skeleton:
    """Biases everywhere, a sink for each head, windows in every other layer."""
    bias = f.flag("attention_bias", default=True)
    layers = parts.windowed(f, parts.attention(f, qkv_bias=bias, output_bias=bias, sinks=True), period=2)
    experts = parts.experts(f, width="intermediate_size", bias=True, router_bias=True)
    return parts.stacked(f, layers, experts)


def olmoe(f: Fields) -> Skeleton:
    """Norms over all of q and of k (OLMoE, FlexOlmo)."""
    return parts.uniform(f, parts.plain_attention(f, qk_norm="full"), parts.experts(f, width="intermediate_size"))


def minimax_m2(f: Fields) -> Skeleton:
    """Norms over all of q and of k."""
    norm = "full" if f.flag("use_qk_norm", default=True) else "none"
    return parts.uniform(f, parts.attention(f, qk_norm=norm), parts.experts(f, width="intermediate_size"))


def dbrx(f: Fields) -> Skeleton:
    """Experts and heads in sections of their own."""
    ffn, attn = f.section("ffn_config"), f.section("attn_config")
    if ffn is None or attn is None:
        raise ConfigError("ffn_config", ffn, "a DBRX config needs ffn_config and attn_config", "give both")
    experts = MixtureOfExperts(
        num_experts=ffn.integer("moe_num_experts", 16),
        num_experts_per_token=ffn.integer("moe_top_k", 4),
        intermediate_size=ffn.integer("ffn_hidden_size"),
    )
    return parts.uniform(f, parts.attention(f, kv_heads=attn.integer("kv_n_heads")), experts)


def hunyuan_moe(f: Fields) -> Skeleton:
    """Norms of q and k, and one shared expert; per-layer lists of ``moe_topk`` are equal in all released models."""
    used = f.get("moe_topk")
    if isinstance(used, list | tuple):
        f = Fields(dict(f.raw) | {"num_experts_per_tok": used[0] if used else None}, f.defaults, f.path)
    shared = f.get("num_shared_expert")
    number = shared[0] if isinstance(shared, list | tuple) and shared else shared
    width = f.integer("intermediate_size") * Fields({"n": number}).integer("n", 1)
    field = "moe_intermediate_size" if isinstance(f.get("moe_intermediate_size"), int) else "intermediate_size"
    norm = "head" if f.flag("use_qk_norm", default=True) else "none"
    return parts.uniform(f, parts.plain_attention(f, qk_norm=norm), parts.experts(f, width=field, shared=width))


# --- dense layers first -----------------------------------------------------------------------------------------------


def qwen2_moe(f: Fields) -> Skeleton:
    """Biases of q, k and v, and a shared expert with a gate."""
    experts = parts.experts(f, shared=f.integer("shared_expert_intermediate_size"), shared_gate=True)
    attention = parts.attention(f, qkv_bias=f.flag("qkv_bias", default=True))
    return parts.sparse_after_dense(f, qwen_layers(f, attention), experts)


def qwen3_moe(f: Fields) -> Skeleton:
    """Norms of q and k."""
    attention = parts.plain_attention(f, qk_norm="head")
    return parts.sparse_after_dense(f, qwen_layers(f, attention), parts.experts(f))


def _shared_experts(f: Fields, number: str = "n_shared_experts") -> int:
    return (f.optional(number, minimum=0) or 0) * f.integer("moe_intermediate_size")


def deepseek_moe(f: Fields) -> Skeleton:
    """The first DeepSeek with experts: plain attention, shared experts (also Solar Open)."""
    return parts.sparse_after_dense(f, parts.plain_attention(f), parts.experts(f, shared=_shared_experts(f)))


def deepseek(f: Fields) -> Skeleton:
    """Latent attention, shared experts; the first layers are dense."""
    return parts.sparse_after_dense(f, parts.latent_attention(f), parts.experts(f, shared=_shared_experts(f)))


def deepseek_sparse(f: Fields) -> Skeleton:
    """DeepSeek-V3.2 and GLM-5: an indexer picks the tokens to attend to; some layers may share another's choice."""
    number = f.integer("num_hidden_layers")
    with_indexer = parts.latent_attention(
        f, index_num_heads=f.integer("index_n_heads"), index_head_dim=f.integer("index_head_dim")
    )
    without = with_indexer.replace(index_num_heads=0, index_head_dim=0)
    mixers = [without if kind == "shared" else with_indexer for kind in _indexer_kinds(f, number)]
    return parts.sparse_after_dense(f, mixers, parts.experts(f, shared=_shared_experts(f)))


def _indexer_kinds(f: Fields, number: int) -> tuple[str, ...]:
    """Full or shared for each layer: named, a word of F and S, or every ``index_topk_freq``-th after an offset."""
    named = f.kinds("indexer_types", number)
    if named is not None:
        return named
    pattern = f.get("index_topk_pattern")
    if isinstance(pattern, str | list | tuple):
        kinds = Fields({"index_topk_pattern": list(pattern)}, path=f.path).kinds("index_topk_pattern", number) or ()
        return tuple("shared" if kind in ("S", "shared") else "full" for kind in kinds)
    every, offset = f.integer("index_topk_freq", 1), f.integer("index_skip_topk_offset", 2, minimum=0)
    return tuple("full" if max(i - offset + 1, 0) % every == 0 else "shared" for i in range(number))


def glm4_moe(f: Fields) -> Skeleton:
    """Biases of q, k and v, norms of q and k in the largest."""
    attention = parts.attention(
        f, qkv_bias=f.flag("attention_bias"), qk_norm="head" if f.flag("use_qk_norm") else "none"
    )
    return parts.sparse_after_dense(f, attention, parts.experts(f, shared=_shared_experts(f)))


def dots(f: Fields) -> Skeleton:
    """Norms of q and k, shared experts (dots.llm1)."""
    attention = parts.plain_attention(f, qk_norm="head")
    return parts.sparse_after_dense(f, attention, parts.experts(f, shared=_shared_experts(f)))


def bailing_moe(f: Fields) -> Skeleton:
    """Ling: biases follow ``use_bias`` and ``use_qkv_bias``, norms of q and k in the second generation."""
    bias = f.flag("use_bias")
    norm = "head" if f.flag("use_qk_norm") else "none"
    attention = parts.attention(f, qkv_bias=bias or f.flag("use_qkv_bias"), output_bias=bias, qk_norm=norm)
    one = f.optional("moe_shared_expert_intermediate_size") or f.integer("moe_intermediate_size")
    shared = (f.optional("num_shared_experts", minimum=0) or 0) * one
    return parts.sparse_after_dense(f, attention, parts.experts(f, shared=shared))


def exaone_moe(f: Fields) -> Skeleton:
    """EXAONE 4 with experts and a shared one."""
    shared = _shared_experts(f, "num_shared_experts")
    return parts.sparse_after_dense(f, exaone4_layers(f), parts.experts(f, shared=shared))


def ernie_moe(f: Fields) -> Skeleton:
    """Ernie with experts from one layer to another, and a correction for each expert that counts as a parameter."""
    number = f.integer("num_hidden_layers")
    bias = f.flag("use_bias")
    attention = parts.attention(f, qkv_bias=bias, output_bias=bias)
    shared = (f.optional("moe_num_shared_experts", minimum=0) or 0) * f.integer("moe_intermediate_size")
    experts = parts.experts(f, shared=shared, router_bias=True)
    first, last = f.integer("moe_layer_start_index", minimum=0), f.integer("moe_layer_end_index", minimum=-1)
    last = number - 1 if last == -1 else last
    step = f.integer("moe_layer_interval")
    plain = parts.dense(f, bias=bias)
    return parts.mixed(
        f,
        [(attention, experts if (i + 1) % step == 0 and first <= i <= last else plain) for i in range(number)],
        tied=True,
    )


def mimo_v2(f: Fields) -> Skeleton:
    """MiMo-V2-Flash: value heads narrower than keys; windowed layers have twice the KV heads, and sinks."""
    number = f.integer("num_hidden_layers")
    pattern = f.integers("hybrid_layer_pattern", number)
    kinds = f.kinds("layer_types", number)
    local = (
        [bool(i) for i in pattern]
        if pattern
        else ["sliding" in kind for kind in kinds]
        if kinds
        else _mimo_layers(number)
    )
    value_dim = f.optional("v_head_dim")
    whole = parts.attention(f, value_head_dim=value_dim, sinks=f.flag("add_full_attention_sink_bias"))
    window = whole.replace(
        num_kv_heads=f.integer("swa_num_key_value_heads", 2 * whole.num_kv_heads), window=f.integer("sliding_window"),
        sinks=f.flag("add_swa_attention_sink_bias", default=True),
    )  # fmt: skip
    layers = [window if is_local else whole for is_local in local]
    return parts.sparse_after_dense(f, layers, parts.experts(f, shared=0))


def _mimo_layers(number: int) -> list[bool]:
    return [i % 6 != 5 and i != 0 for i in range(number)]


def afmoe(f: Fields) -> Skeleton:
    """Trinity: a gate as wide as the heads, norms of q and k, four norms a layer, a correction for each expert."""
    period = f.integer("global_attn_every_n_layers", 4)
    layers = parts.windowed(f, parts.attention(f, qk_norm="head", output_gate=True), period=period)
    number, first = f.integer("num_hidden_layers"), f.integer("num_dense_layers", 1, minimum=0)
    shared = _shared_experts(f, "num_shared_experts")
    experts, plain = parts.experts(f, shared=shared, router_bias=True), parts.dense(f)
    return parts.mixed(f, [(layers[i], experts if i >= first else plain) for i in range(number)], norms=4)


# --- experts beside something else ------------------------------------------------------------------------------------


def llama4(f: Fields) -> Skeleton:
    """Experts in every layer or every other one, a shared expert, chunks in the layers with rotary positions."""
    number = f.integer("num_hidden_layers")
    step = f.integer("interleave_moe_layer_step", 1)
    sparse_layers = f.indices("moe_layers") or range(step - 1, number, step)
    experts = parts.experts(f, width="intermediate_size", shared=f.integer("intermediate_size"))
    dense = parts.dense(f, width=f.integer("intermediate_size_mlp"))
    attention = parts.plain_attention(f)
    chunked = attention.replace(window=f.integer("attention_chunk_size", 8192), chunked=True)
    rope = f.integers("no_rope_layers", number) if f.get("no_rope_layers") else None
    uses_rope = rope or tuple(int((i + 1) % f.integer("no_rope_layer_interval", 4) != 0) for i in range(number))
    return parts.mixed(
        f, [(chunked if uses_rope[i] else attention, experts if i in sparse_layers else dense) for i in range(number)]
    )


def longcat(f: Fields) -> Skeleton:
    """LongCat-Flash: two attentions and two dense parts a layer beside the experts, some of which return their input.

    Of the experts that a token chooses, used x E / (E + identity experts) have parameters on average; that is what is
    counted as used.
    """
    attention, plain = parts.latent_attention(f), parts.dense(f)
    identity = f.integer("zero_expert_num", 0, minimum=0)
    experts = parts.experts(f, num_identity_experts=identity, router_bias=f.flag("router_bias"))
    used = experts.num_experts_per_token * experts.num_experts // (experts.num_experts + identity)
    experts = experts.replace(num_experts_per_token=max(1, used))
    return parts.uniform(f, attention, experts, norms=4, other_mixers=(attention,), other_feed_forwards=(plain, plain))


def arctic(f: Fields) -> Skeleton:
    """Snowflake Arctic: a dense part as wide as the hidden size, with a norm of its own, beside the experts."""
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    step = f.integer("moe_layer_frequency", 2)
    residual = f.flag("parallel_attn_mlp_res") or f.flag("use_residual")
    beside = (parts.dense(f, width=hidden),) if residual else ()
    with_experts = LayerGroup(
        count=1, mixer=parts.attention(f), feed_forward=parts.experts(f, width="intermediate_size"),
        other_feed_forwards=beside,
        norm_parameters=(3 if residual else 2) * hidden,
    )  # fmt: skip
    without = with_experts.replace(feed_forward=parts.dense(f), other_feed_forwards=(), norm_parameters=2 * hidden)
    layers = [with_experts if (i + 1) % step == 0 else without for i in range(number)]
    return Skeleton(parts.grouped(layers), Counter(norms=hidden), f.flag("tie_word_embeddings"))


def gemma4(f: Fields) -> Skeleton:
    """Gemma 4: wider heads in full layers, embeddings for each layer, shared KV, experts beside the dense part.

    The layers that share keys and values may have a dense part twice as wide. With experts a layer has three more
    norms, a scale for the router's input and one for each expert.
    """
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    layers = kv_shared(f, _gemma4_attention(f, number))
    shared = f.integer("num_kv_shared_layers", 0, minimum=0)
    per_layer = f.optional("hidden_size_per_layer_input", minimum=0) or 0
    sparse = parts.experts(f) if f.flag("enable_moe_block") else None
    double = 2 if f.flag("use_double_wide_mlp") else 1
    width = f.integer("intermediate_size")
    norms = 4 + (1 if per_layer else 0) + (3 if sparse else 0)
    router_scales = hidden + sparse.num_experts if sparse else 0

    def layer(i: int, mixer: Attention) -> LayerGroup:
        plain = DenseFeedForward(intermediate_size=width * (double if i >= number - shared else 1))
        return LayerGroup(
            count=1, mixer=mixer, feed_forward=sparse or plain, other_feed_forwards=(plain,) if sparse else (),
            norm_parameters=norms * hidden, other_parameters=2 * hidden * per_layer + router_scales,
        )  # fmt: skip

    groups = parts.grouped(layer(i, mixer) for i, mixer in enumerate(layers))
    extra = Counter(norms=hidden) + (layer_embeddings(f, per_layer) if per_layer else Counter[str]())
    return Skeleton(groups, extra, f.flag("tie_word_embeddings", default=True))


def _gemma4_attention(f: Fields, number: int) -> list[Attention]:
    """Windows in five of six layers, the last aside; full layers have wider heads and may project keys only."""
    kinds = f.kinds("layer_types", number) or tuple("sliding" if (i + 1) % 6 else "full" for i in range(number))
    kinds = (*kinds[:-1], "full")
    local = parts.attention(f, qk_norm="head", window=f.integer("sliding_window"))
    one_projection = f.flag("attention_k_eq_v")
    kv_heads = f.optional("num_global_key_value_heads") if one_projection else None
    full = parts.attention(
        f, qk_norm="head", head_dim=f.integer("global_head_dim"), kv_heads=kv_heads, keys_are_values=one_projection
    )
    return [full if "full" in kind else local for kind in kinds]
