"""Makers of families with attention: most follow their switches (``decoder``), the others have one small function each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from startup_model.errors import missing, wrong_type
from startup_model.models import parts
from startup_model.models.fields import Fields
from startup_model.models.layers import Attention, DenseFeedForward, LatentAttention, LayerGroup
from startup_model.models.parts import Family, Skeleton


def decoder(f: Fields, family: Family) -> Skeleton:
    """Attention and a dense part or experts in every layer, by the switches of the family."""
    mixers = _MIXERS[family.mixer](f, family)
    if family.experts == "none" or (family.experts == "if_any" and not f.optional("num_experts", minimum=0)):
        return parts.mixed(f, family, mixers, parts.dense(f, family))
    return parts.with_experts(f, family, mixers, parts.experts(f, family))


# --- attention --------------------------------------------------------------------------------------------------------


def _attentions(f: Fields, family: Family) -> list[Attention]:
    return parts.windowed(f, family, parts.attention(f, family))


def _indexed(f: Fields, family: Family) -> list[LatentAttention]:
    """DeepSeek-V3.2 and GLM-5: an indexer picks the tokens to attend to; some layers may share another's choice.

    Which: named, a word of F and S, or all but every ``index_topk_freq``-th after an offset.
    """
    number = f.integer("num_hidden_layers")
    indexer = {"index_num_heads": f.integer("index_n_heads"), "index_head_dim": f.integer("index_head_dim")}
    own, shared = parts.latent_attention(f, **indexer), parts.latent_attention(f)
    pattern = f.get("index_topk_pattern")
    kinds = f.kinds("indexer_types", number)
    if kinds is None and isinstance(pattern, str | list | tuple):
        kinds = f.but(index_topk_pattern=list(pattern)).kinds("index_topk_pattern", number)
    if kinds is not None:
        return [shared if kind in ("S", "shared") else own for kind in kinds]
    every, offset = f.integer("index_topk_freq", 1), f.integer("index_skip_topk_offset", 2, minimum=0)
    return [own if max(i - offset + 1, 0) % every == 0 else shared for i in range(number)]


def _mimo(f: Fields, family: Family) -> list[Attention]:
    """MiMo-V2: value heads narrower than keys; windowed layers have twice the KV heads, and sinks."""
    number = f.integer("num_hidden_layers")
    pattern, kinds = f.integers("hybrid_layer_pattern", number), f.kinds("layer_types", number)
    local = pattern or ["sliding" in kind for kind in kinds or ()] or [i % 6 != 5 and i != 0 for i in range(number)]
    sinks, width = f.flag("add_full_attention_sink_bias"), f.optional("v_head_dim")
    whole = parts.attention(f, family, value_head_dim=width, sinks=sinks)
    window = whole.replace(
        num_kv_heads=f.integer("swa_num_key_value_heads", 2 * whole.num_kv_heads),
        window=f.integer("sliding_window"),
        sinks=f.flag("add_swa_attention_sink_bias", default=True),
    )
    return [window if is_local else whole for is_local in local]


_MIXERS: Mapping[str, Callable[[Fields, Family], Any]] = {
    "attention": _attentions, "latent": lambda f, _: parts.latent_attention(f), "indexed": _indexed, "mimo": _mimo,
}  # fmt: skip


# --- dense ------------------------------------------------------------------------------------------------------------


def falcon(f: Fields, family: Family) -> Skeleton:
    """Falcon's three makes: one KV head (7B), groups (40B, 180B), or all heads one after another (RW)."""
    new = f.flag("new_decoder_architecture")
    kv_heads = None if new else 1 if f.flag("multi_query") else f.integer("num_attention_heads")
    parallel = new or f.flag("parallel_attn")
    norms = 2 if not parallel else f.integer("num_ln_in_parallel_attn", 2) if new else 1
    row = family._replace(norms=norms, parallel=parallel)
    return parts.mixed(f, row, parts.attention(f, family, kv_heads), parts.dense(f, family))


def opt(f: Fields, family: Family) -> Skeleton:
    """OPT: learned positions (two more than they hold), biases everywhere; the 350M one projects its embedding."""
    hidden = f.integer("hidden_size")
    width = f.integer("word_embed_proj_dim", hidden)
    rows = f.integer("max_position_embeddings") + 2 + (2 * width if width != hidden else 0)
    ends = {"embedding": rows * hidden}
    skeleton = parts.mixed(f, family, parts.attention(f, family), parts.dense(f, family), ends)
    if not f.flag("do_layer_norm_before") or f.flag("_remove_final_layer_norm"):
        del skeleton.extra["norms"]
    return skeleton._replace(embedding_width=width)


def mpt(f: Fields, family: Family) -> Skeleton:
    """MPT: no positions, no biases unless asked for."""
    attn = f.section("attn_config")
    width = int(f.integer("hidden_size") * f.integer("expansion_ratio", 4))
    attention = parts.attention(f, family, attn.optional("kv_n_heads") if attn else None)
    return parts.mixed(f, family, attention, parts.dense(f, family, width))


def gpt_neo(f: Fields, family: Family) -> Skeleton:
    """GPT-Neo: windows in every other layer, or as ``attention_types`` has it, a list of [kinds, how often]."""
    number, value = f.integer("num_hidden_layers"), f.get("attention_types")
    kinds = ["local" if i % 2 else "global" for i in range(number)] if value is None else []
    for item in value if isinstance(value, list | tuple) else ():
        if not (isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], list | tuple)):
            raise wrong_type(f.label("attention_types"), value, "a list of [[kinds], times]", "check the config.json")
        kinds += list(item[0]) * min(Fields({"times": item[1]}).integer("times"), number)
    if len(kinds) != number:
        expected = f"a list for num_hidden_layers = {number} layers, not {len(kinds)}"
        raise wrong_type(f.label("attention_types"), value, expected, "make the two agree")
    types = ["sliding" if kind == "local" else "full" for kind in kinds]
    return decoder(f.but(layer_types=types, sliding_window=f.integer("window_size", 256)), family)


def mllama(f: Fields, family: Family) -> Skeleton:
    """Llama 3.2 Vision: some layers attend to the image (two gates each); the embedding has eight rows of its own."""
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    named = f.indices("cross_attention_layers")
    looking = sum(i in named for i in range(number))
    image = parts.attention(f, family._replace(qk_norm="head"), attends_to_images=True)
    groups = [
        LayerGroup(count=count, mixer=mixer, feed_forward=parts.dense(f, family), norm_parameters=2 * hidden, other_parameters=gates)
        for count, mixer, gates in ((number - looking, parts.attention(f, family), 0), (looking, image, 2))
        if count
    ]  # fmt: skip
    return Skeleton(tuple(groups), {"norms": hidden, "embedding": 8 * hidden}, f.flag("tie_word_embeddings"))


# --- Gemma 3n and 4 ---------------------------------------------------------------------------------------------------


def gemma3n(f: Fields, family: Family) -> Skeleton:
    """Gemma 3 with embeddings for each layer, several streams (AltUp), low-rank residuals (Laurel), shared KV.

    other parameters a layer = 2 h p (layer embedding) + 2 h r (Laurel) + streams: n h + n^2 + n^3 + h; norms: 4 + 3 of
    width h.
    """
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    per_layer, streams = f.integer("hidden_size_per_layer_input"), f.integer("altup_num_inputs")
    widths = f.integers("intermediate_size", number) if isinstance(f.get("intermediate_size"), list | tuple) else None
    other = 2 * hidden * per_layer + 2 * hidden * f.integer("laurel_rank") + streams * hidden + streams**2 + streams**3
    made = {width: parts.dense(f, family, width) for width in dict.fromkeys(widths or (None,))}
    mixers = _kv_shared(f, _attentions(f, family))
    ends = _layer_embeddings(f, per_layer, attention=2 * (streams - 1) * hidden * hidden)
    other += hidden if f.flag("altup_correct_scale") else 0
    return parts.mixed(f, family, mixers, [made[width] for width in widths or [None] * number], ends, other)


def _kv_shared(f: Fields, layers: list[Attention]) -> list[Attention]:
    """The last ``num_kv_shared_layers`` use keys and values of earlier ones: no projection, norm of k or cache."""
    own = len(layers) - f.integer("num_kv_shared_layers", 0, minimum=0)
    made = {}
    for one in set(layers[max(own, 0) :]):
        made[one] = one.replace(shares_kv_of_another_layer=True, qk_norm_parameters=one.qk_norm_parameters // 2)
    return [layer if i < own else made[layer] for i, layer in enumerate(layers)]


def _layer_embeddings(f: Fields, width: int, norms: int = 0, attention: int = 0) -> dict[str, int]:
    """Embeddings that every layer looks up: vocabulary x layers x p, and their projection h x layers x p + p; beside what is given."""
    all_layers = f.integer("num_hidden_layers") * width
    table = f.integer("vocab_size_per_layer_input") * all_layers if width else 0
    projection = f.integer("hidden_size") * all_layers
    return {"embedding": table, "attention": attention + projection, "norms": norms + width}


def gemma4(f: Fields, family: Family) -> Skeleton:
    """Gemma 4: wider heads in full layers, embeddings for each layer, shared KV, experts beside the dense part.

    The layers that share keys and values may have a dense part twice as wide. With experts a layer has three more
    norms, a scale for the router's input and one for each expert.
    """
    number, hidden, width = f.integer("num_hidden_layers"), f.integer("hidden_size"), f.integer("intermediate_size")
    first_shared = number - f.integer("num_kv_shared_layers", 0, minimum=0)
    per_layer = f.optional("hidden_size_per_layer_input", minimum=0) or 0
    sparse = parts.experts(f, family) if f.flag("enable_moe_block") else None
    wide = width * (2 if f.flag("use_double_wide_mlp") else 1)
    norms = 4 + (1 if per_layer else 0) + (3 if sparse else 0)
    router_scales = hidden + sparse.num_experts if sparse else 0

    def layer(i: int, mixer: Attention) -> LayerGroup:
        plain = DenseFeedForward(intermediate_size=wide if i >= first_shared else width)
        return LayerGroup(
            count=1, mixer=mixer, feed_forward=sparse or plain, other_feed_forwards=(plain,) if sparse else (),
            norm_parameters=norms * hidden, other_parameters=2 * hidden * per_layer + router_scales,
        )  # fmt: skip

    mixers = _kv_shared(f, _gemma4_attention(f, family, number))
    groups = parts.grouped(layer(i, mixer) for i, mixer in enumerate(mixers))
    extra = {kind: number for kind, number in _layer_embeddings(f, per_layer, hidden).items() if number}
    return Skeleton(groups, extra, f.flag("tie_word_embeddings", family.tied))


def _gemma4_attention(f: Fields, family: Family, number: int) -> list[Attention]:
    """Windows in five of six layers, the last aside; full layers have wider heads and may project keys only."""
    kinds = f.kinds("layer_types", number) or tuple("sliding" if (i + 1) % 6 else "full" for i in range(number))
    one_projection = f.flag("attention_k_eq_v")
    kv_heads = f.optional("num_global_key_value_heads") if one_projection else None
    local = parts.attention(f, family, window=f.integer("sliding_window"))
    full = parts.attention(f, family, kv_heads, f.integer("global_head_dim"), keys_are_values=one_projection)
    return [full if "full" in kind else local for kind in (*kinds[:-1], "full")]


# --- experts ----------------------------------------------------------------------------------------------------------


def dbrx(f: Fields, family: Family) -> Skeleton:
    """Experts and heads in sections of their own."""
    ffn, attn = f.section("ffn_config"), f.section("attn_config")
    if ffn is None or attn is None:
        raise missing("ffn_config" if ffn is None else "attn_config", "a DBRX config has both", "give it")
    numbers = {"num_experts": ffn.integer("moe_num_experts", 16), "num_experts_per_tok": ffn.integer("moe_top_k", 4)}
    heads = {"num_key_value_heads": attn.integer("kv_n_heads"), "moe_intermediate_size": ffn.integer("ffn_hidden_size")}
    return decoder(f.but(**numbers, **heads), family)


def hunyuan_moe(f: Fields, family: Family) -> Skeleton:
    """One shared expert; per-layer lists of ``moe_topk`` and others are equal in all released models."""
    used, shared, width = f.get("moe_topk"), f.get("num_shared_expert"), f.get("moe_intermediate_size")
    changes = {"num_experts_per_tok": used[0] if used else None} if isinstance(used, list | tuple) else {}
    shared = shared[0] if isinstance(shared, list | tuple) and shared else 1 if shared is None else shared
    width = width if isinstance(width, int) else None
    return decoder(f.but(**changes, num_shared_expert=shared, moe_intermediate_size=width), family)


def llama4(f: Fields, family: Family) -> Skeleton:
    """Experts in every layer or every other one, a shared expert, chunks in the layers with rotary positions."""
    number, step = f.integer("num_hidden_layers"), f.integer("interleave_moe_layer_step", 1)
    sparse_layers = f.indices("moe_layers") or range(step - 1, number, step)
    experts, dense = parts.experts(f, family), parts.dense(f, family, f.integer("intermediate_size_mlp"))
    whole = parts.attention(f, family)
    chunked = whole.replace(window=f.integer("attention_chunk_size", 8192), chunked=True)
    every = f.integer("no_rope_layer_interval", 4)
    rope = f.integers("no_rope_layers", number) if f.get("no_rope_layers") else [(i + 1) % every for i in range(number)]
    feed_forwards = [experts if i in sparse_layers else dense for i in range(number)]
    return parts.mixed(f, family, [chunked if rotary else whole for rotary in rope or ()], feed_forwards)


def longcat(f: Fields, family: Family) -> Skeleton:
    """LongCat-Flash: two attentions and two dense parts a layer beside the experts, some of which return their input.

    Of the experts that a token chooses, used x E / (E + identity experts) have parameters on average; that is what is
    counted as used.
    """
    attention, plain = parts.latent_attention(f), parts.dense(f, family)
    experts = parts.experts(f, family, num_identity_experts=f.integer("zero_expert_num", 0, minimum=0))
    used = experts.num_experts_per_token * experts.num_experts // (experts.num_experts + experts.num_identity_experts)
    experts = experts.replace(num_experts_per_token=max(1, used))
    return parts.mixed(f, family, attention, experts, other_mixers=(attention,), other_feed_forwards=(plain, plain))


def arctic(f: Fields, family: Family) -> Skeleton:
    """Snowflake Arctic: a dense part as wide as the hidden size, with a norm of its own, beside the experts."""
    number, hidden, step = f.integer("num_hidden_layers"), f.integer("hidden_size"), f.integer("moe_layer_frequency", 2)
    residual = f.flag("parallel_attn_mlp_res") or f.flag("use_residual")
    sparse = LayerGroup(
        count=1, mixer=parts.attention(f, family), feed_forward=parts.experts(f, family),
        other_feed_forwards=(parts.dense(f, family, hidden),) * residual, norm_parameters=(2 + residual) * hidden,
    )  # fmt: skip
    plain = sparse.replace(feed_forward=parts.dense(f, family), other_feed_forwards=(), norm_parameters=2 * hidden)
    layers = [sparse if (i + 1) % step == 0 else plain for i in range(number)]
    return Skeleton(parts.grouped(layers), {"norms": hidden}, f.flag("tie_word_embeddings"))
