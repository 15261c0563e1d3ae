"""Families of dense decoders with attention: of what their layers are made, one small function a make."""

from __future__ import annotations

from collections import Counter

from startup_model.errors import ConfigError
from startup_model.models import parts
from startup_model.models.fields import Fields
from startup_model.models.layers import Attention, DenseFeedForward, LayerGroup
from startup_model.models.parts import Skeleton

# --- Llama and its kin ------------------------------------------------------------------------------------------------


def generic_decoder(f: Fields) -> Skeleton:
    """Llama-like decoder: grouped-query attention, gated feed-forward, two RMS norms; experts where there are some."""
    attention = parts.plain_attention(f)
    if (
        f.optional("sliding_window") is not None
        and f.get("layer_types") is None
        and f.flag("use_sliding_window", default=True)
    ):
        attention = attention.replace(window=f.integer("sliding_window"))
    if not f.optional("num_experts", minimum=0):
        return parts.uniform(f, attention, parts.dense(f, bias=f.flag("mlp_bias")))
    width = "moe_intermediate_size" if f.get("moe_intermediate_size") is not None else "intermediate_size"
    return parts.sparse_after_dense(f, attention, parts.experts(f, width=width, shared=parts.shared_width(f)))


def mistral(f: Fields) -> Skeleton:
    """Llama with a window in all layers, or in those that ``layer_types`` names."""
    return parts.stacked(f, parts.windowed(f, parts.attention(f)), parts.dense(f))


def cwm(f: Fields) -> Skeleton:
    """Llama with windows, every fourth layer (from the first) aside."""
    number = f.integer("num_hidden_layers")
    whole = parts.attention(f)
    local = whole.replace(window=f.integer("sliding_window"))
    kinds = f.kinds("layer_types", number) or tuple("full" if i % 4 == 0 else "sliding" for i in range(number))
    return parts.stacked(f, [whole if "full" in kind else local for kind in kinds], parts.dense(f))


def baichuan(f: Fields) -> Skeleton:
    """Llama with all heads."""
    return parts.uniform(f, parts.attention(f, kv_heads=f.integer("num_attention_heads")), parts.dense(f))


def internlm(f: Fields) -> Skeleton:
    """Llama with biases in attention only (InternLM, InternLM 2)."""
    bias = f.flag("bias")
    return parts.uniform(f, parts.attention(f, qkv_bias=bias, output_bias=bias), parts.dense(f))


def internlm3(f: Fields) -> Skeleton:
    """Llama with separate switches for the biases of q, k, v and of everything else."""
    bias = f.flag("bias")
    return parts.uniform(
        f, parts.attention(f, qkv_bias=f.flag("qkv_bias"), output_bias=bias), parts.dense(f, bias=bias)
    )


def orion(f: Fields) -> Skeleton:
    """Llama with biased norms."""
    return parts.uniform(f, parts.plain_attention(f), parts.dense(f), norm_bias=True)


def ernie(f: Fields) -> Skeleton:
    """Llama whose biases all follow ``use_bias``."""
    bias = f.flag("use_bias")
    return parts.uniform(f, parts.attention(f, qkv_bias=bias, output_bias=bias), parts.dense(f, bias=bias), tied=True)


def seed_oss(f: Fields) -> Skeleton:
    """Llama with biases of q, k and v."""
    attention = parts.attention(
        f, qkv_bias=f.flag("attention_bias", default=True), output_bias=f.flag("attention_out_bias")
    )
    return parts.uniform(f, attention, parts.dense(f, bias=f.flag("mlp_bias")))


def hunyuan(f: Fields) -> Skeleton:
    """Llama with norms of q and k."""
    return parts.uniform(f, parts.plain_attention(f, qk_norm="head"), parts.dense(f))


def arcee(f: Fields) -> Skeleton:
    """Llama with a plain feed-forward part."""
    return parts.uniform(f, parts.plain_attention(f), parts.dense(f, gated=False, bias=f.flag("mlp_bias")))


def apertus(f: Fields) -> Skeleton:
    """A plain feed-forward part whose activation learns two numbers, and norms of q and k."""
    feed_forward = parts.dense(f, gated=False, bias=f.flag("mlp_bias"))
    return parts.uniform(f, parts.plain_attention(f, qk_norm="head"), feed_forward, other_parameters=2)


def diffllama(f: Fields) -> Skeleton:
    """Differential attention: Llama with four vectors of the head size in each layer."""
    attention = parts.plain_attention(f)
    return parts.uniform(f, attention, parts.dense(f), other_parameters=4 * attention.head_dim)


def bitnet(f: Fields) -> Skeleton:
    """Llama with a norm before each output projection."""
    other = f.integer("hidden_size") + f.integer("intermediate_size")
    return parts.uniform(f, parts.plain_attention(f), parts.dense(f), tied=True, other_parameters=other)


def minicpm3(f: Fields) -> Skeleton:
    """Latent attention and a dense feed-forward part (MiniCPM 3, Youtu)."""
    return parts.uniform(f, parts.latent_attention(f), parts.dense(f, bias=f.flag("mlp_bias")), tied=True)


# --- Qwen -------------------------------------------------------------------------------------------------------------


def qwen(f: Fields) -> Skeleton:
    """The first Qwen: all heads, biases of q, k and v; half of ``intermediate_size`` is the width."""
    attention = parts.attention(f, qkv_bias=True, kv_heads=f.integer("num_attention_heads"))
    bias = not f.flag("no_bias", default=True)
    return parts.uniform(
        f, attention.replace(output_bias=bias), parts.dense(f, bias=bias, width=f.integer("intermediate_size") // 2)
    )


def qwen_layers(f: Fields, attention: Attention) -> list[Attention]:
    """Qwen's attention a layer: windows, where they are switched on, from layer ``max_window_layers`` on."""
    number = f.integer("num_hidden_layers")
    if not f.flag("use_sliding_window") or f.optional("sliding_window") is None:
        return [attention] * number
    if f.get("layer_types") is not None:
        return parts.windowed(f, attention)
    local = attention.replace(window=f.integer("sliding_window"))
    first = f.integer("max_window_layers", number, minimum=0)
    return [local if i >= first else attention for i in range(number)]


def qwen2(f: Fields) -> Skeleton:
    """Llama with biases of q, k and v."""
    return parts.stacked(f, qwen_layers(f, parts.attention(f, qkv_bias=True)), parts.dense(f))


def qwen3(f: Fields) -> Skeleton:
    """Llama with norms of q and k."""
    return parts.stacked(f, qwen_layers(f, parts.plain_attention(f, qk_norm="head")), parts.dense(f))


# --- Gemma ------------------------------------------------------------------------------------------------------------


def gemma(f: Fields) -> Skeleton:
    """Llama with a tied head."""
    return parts.uniform(f, parts.plain_attention(f), parts.dense(f), tied=True)


def vaultgemma(f: Fields) -> Skeleton:
    """Gemma with windows in every other layer."""
    return parts.stacked(f, parts.windowed(f, parts.plain_attention(f), period=2), parts.dense(f), tied=True)


def gemma2(f: Fields) -> Skeleton:
    """Four norms a layer and windows in every other layer."""
    layers = parts.windowed(f, parts.plain_attention(f), period=2)
    return parts.stacked(f, layers, parts.dense(f), norms=4, tied=True)


def gemma3(f: Fields) -> Skeleton:
    """Gemma 2 with norms of q and k and windows in five of six layers."""
    layers = parts.windowed(f, parts.plain_attention(f, qk_norm="head"), period=f.integer("sliding_window_pattern", 6))
    return parts.stacked(f, layers, parts.dense(f), norms=4, tied=True)


def gemma3n(f: Fields) -> Skeleton:
    """Gemma 3 with embeddings for each layer, several streams (AltUp), low-rank residuals (Laurel), shared KV.

    other parameters a layer = 2 h p (layer embedding) + 2 h r (Laurel) + streams: n h + n^2 + n^3 + h; norms: 4 + 3 of
    width h.
    """
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    per_layer, streams = f.integer("hidden_size_per_layer_input"), f.integer("altup_num_inputs")
    layers = kv_shared(f, parts.windowed(f, parts.plain_attention(f, qk_norm="head"), period=5))
    widths = f.integers("intermediate_size", number) if isinstance(f.get("intermediate_size"), list | tuple) else None
    correction = hidden if f.flag("altup_correct_scale", default=True) else 0
    other = (
        2 * hidden * per_layer
        + 2 * hidden * f.integer("laurel_rank")
        + streams * hidden
        + streams**2
        + streams**3
        + correction
    )
    return parts.mixed(
        f,
        [(layer, parts.dense(f, width=widths[i] if widths else None)) for i, layer in enumerate(layers)],
        norms=7,
        tied=True,
        extra=layer_embeddings(f, per_layer) + Counter(attention=2 * (streams - 1) * hidden * hidden),
        other_parameters=other,
    )


def kv_shared(f: Fields, layers: list[Attention]) -> list[Attention]:
    """The last ``num_kv_shared_layers`` use keys and values of earlier ones: no projection, norm of k or cache."""
    own = len(layers) - f.integer("num_kv_shared_layers", 0, minimum=0)
    return [
        layer
        if i < own
        else layer.replace(shares_kv_of_another_layer=True, qk_norm_parameters=layer.qk_norm_parameters // 2)
        for i, layer in enumerate(layers)
    ]


def layer_embeddings(f: Fields, width: int) -> Counter[str]:
    """Embeddings that every layer looks up: vocabulary x layers x p, and their projection h x layers x p + p."""
    all_layers = f.integer("num_hidden_layers") * width
    table = f.integer("vocab_size_per_layer_input") * all_layers
    return Counter(embedding=table, attention=f.integer("hidden_size") * all_layers, norms=width)


# --- Phi, GLM, OLMo, Cohere, EXAONE -----------------------------------------------------------------------------------


def phi(f: Fields) -> Skeleton:
    """Parallel attention and feed-forward, biases everywhere, the head's too."""
    attention = parts.attention(f, qkv_bias=True, output_bias=True)
    if f.flag("qk_layernorm"):
        attention = attention.replace(qk_norm_parameters=4 * attention.head_dim)
    feed_forward = parts.dense(
        f, gated=False, bias=True, width=f.integer("intermediate_size", 4 * f.integer("hidden_size"))
    )
    return parts.uniform(
        f, attention, feed_forward, norms=1, norm_bias=True, parallel=True, extra={"head": f.integer("vocab_size")}
    )


def glm(f: Fields) -> Skeleton:
    """Llama with biases of q, k and v."""
    return parts.uniform(f, parts.attention(f, qkv_bias=f.flag("attention_bias")), parts.dense(f))


def glm4(f: Fields) -> Skeleton:
    """GLM with four norms a layer."""
    return parts.uniform(f, parts.attention(f, qkv_bias=f.flag("attention_bias")), parts.dense(f), norms=4)


def chatglm(f: Fields) -> Skeleton:
    """The first GLM: groups of heads only with ``multi_query_attention``."""
    kv_heads = f.integer("num_key_value_heads") if f.flag("multi_query_attention") else f.integer("num_attention_heads")
    return parts.uniform(f, parts.attention(f, qkv_bias=f.flag("attention_bias"), kv_heads=kv_heads), parts.dense(f))


def olmo(f: Fields) -> Skeleton:
    """Llama whose norms have no parameters."""
    skeleton = parts.uniform(f, parts.plain_attention(f), parts.dense(f), norms=0)
    return skeleton._replace(extra=Counter())


def nanochat(f: Fields) -> Skeleton:
    """Norms without parameters and a plain feed-forward part."""
    skeleton = parts.uniform(f, parts.plain_attention(f), parts.dense(f, gated=False), norms=0)
    return skeleton._replace(extra=Counter())


def olmo2(f: Fields) -> Skeleton:
    """Norms over all of q and of k; windows in three of four layers (OLMo 3)."""
    layers = parts.windowed(f, parts.plain_attention(f, qk_norm="full"), period=4)
    return parts.stacked(f, layers, parts.dense(f))


def cohere(f: Fields) -> Skeleton:
    """Parallel attention and feed-forward with one norm and a tied head."""
    attention = parts.plain_attention(f, qk_norm="full" if f.flag("use_qk_norm") else "none")
    return parts.uniform(f, attention, parts.dense(f), norms=1, parallel=True, tied=True)


def cohere2(f: Fields) -> Skeleton:
    """Cohere with windows in three of four layers."""
    layers = parts.windowed(f, parts.plain_attention(f), period=f.integer("sliding_window_pattern", 4))
    return parts.stacked(f, layers, parts.dense(f), norms=1, tied=True, parallel=True)


def exaone4_layers(f: Fields) -> list[Attention]:
    """Norms of q and k; windows as ``sliding_window_pattern`` has it, a period or a word such as LLLG."""
    pattern = f.get("sliding_window_pattern")
    period = len(pattern) if isinstance(pattern, str) else f.integer("sliding_window_pattern", 4)
    return parts.windowed(f, parts.attention(f, qk_norm="head"), period=period)


def exaone4(f: Fields) -> Skeleton:
    """Norms after attention and feed-forward, windows in three of four layers of the larger models."""
    return parts.stacked(f, exaone4_layers(f), parts.dense(f))


# --- GPT and its contemporaries ---------------------------------------------------------------------------------------


def _four_times(f: Fields, *, bias: bool = True) -> DenseFeedForward:
    """A plain feed-forward part, four times the hidden size unless the config says otherwise."""
    return parts.dense(f, gated=False, bias=bias, width=f.integer("intermediate_size", 4 * f.integer("hidden_size")))


def falcon(f: Fields) -> Skeleton:
    """Falcon's three makes: one KV head (7B), groups (40B, 180B), or all heads one after another (RW)."""
    new = f.flag("new_decoder_architecture")
    parallel = new or f.flag("parallel_attn", default=True)
    kv_heads = None if new or not f.flag("multi_query", default=True) else 1
    norms = (f.integer("num_ln_in_parallel_attn", 2) if new else 1) if parallel else 2
    bias = f.flag("bias")
    if not new and kv_heads is None:
        kv_heads = f.integer("num_attention_heads")
    attention = parts.attention(f, qkv_bias=bias, output_bias=bias, kv_heads=kv_heads)
    return parts.uniform(
        f, attention, _four_times(f, bias=bias), norms=norms, norm_bias=True, parallel=parallel, tied=True
    )


def opt(f: Fields) -> Skeleton:
    """OPT: learned positions (two more than they hold), biases everywhere; the 350M one projects its embedding."""
    hidden = f.integer("hidden_size")
    bias = f.flag("enable_bias", default=True)
    width = f.integer("word_embed_proj_dim", hidden)
    skeleton = parts.uniform(
        f,
        parts.attention(f, qkv_bias=bias, output_bias=bias),
        parts.dense(f, gated=False, bias=bias),
        norm_bias=f.flag("layer_norm_elementwise_affine", default=True),
        tied=True,
        extra={"embedding": (f.integer("max_position_embeddings") + 2) * hidden},
    )
    extra = skeleton.extra
    if not f.flag("do_layer_norm_before", default=True) or f.flag("_remove_final_layer_norm"):
        del extra["norms"]
    if width != hidden:
        extra["embedding"] += 2 * width * hidden
    return skeleton._replace(extra=extra, embedding_width=width)


def mpt(f: Fields) -> Skeleton:
    """MPT: no positions, no biases unless asked for."""
    attn = f.section("attn_config")
    kv_heads = attn.optional("kv_n_heads") if attn is not None else None
    bias = not f.flag("no_bias", default=True)
    width = int(f.integer("hidden_size") * f.integer("expansion_ratio", 4))
    attention = parts.attention(f, qkv_bias=bias, output_bias=bias, kv_heads=kv_heads)
    return parts.uniform(f, attention, parts.dense(f, gated=False, bias=bias, width=width), norm_bias=bias, tied=True)


def bloom(f: Fields) -> Skeleton:
    """BLOOM: a norm after the embedding, biases everywhere."""
    hidden = f.integer("hidden_size")
    attention = parts.attention(f, qkv_bias=True, output_bias=True)
    feed_forward = parts.dense(f, gated=False, bias=True, width=4 * hidden)
    return parts.uniform(f, attention, feed_forward, norm_bias=True, tied=True, extra={"embedding": 2 * hidden})


def gpt2(f: Fields) -> Skeleton:
    """GPT-2 and StarCoder: learned positions, biases everywhere, one KV head with ``multi_query``."""
    positions = f.integer("max_position_embeddings") * f.integer("hidden_size")
    attention = parts.attention(f, qkv_bias=True, output_bias=True, kv_heads=1 if f.flag("multi_query") else None)
    return parts.uniform(f, attention, _four_times(f), norm_bias=True, tied=True, extra={"embedding": positions})


def gpt_neo(f: Fields) -> Skeleton:
    """GPT-Neo: learned positions, windows in every other layer, no biases of q, k and v."""
    attention = parts.attention(f, output_bias=True)
    local = attention.replace(window=f.integer("window_size", 256))
    layers = [local if kind == "local" else attention for kind in _attention_types(f)]
    positions = f.integer("max_position_embeddings") * f.integer("hidden_size")
    feed_forward = _four_times(f)
    return parts.stacked(f, layers, feed_forward, norm_bias=True, tied=True, extra={"embedding": positions})


def _attention_types(f: Fields) -> tuple[str, ...]:
    """One kind a layer from ``attention_types``, a list of [kinds, how often]; else every other layer is local."""
    number = f.integer("num_hidden_layers")
    value = f.get("attention_types")
    if value is None:
        return tuple("local" if i % 2 else "global" for i in range(number))
    kinds: list[str] = []
    for item in value if isinstance(value, list | tuple) else ():
        if not (isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], list | tuple)):
            raise ConfigError(
                f.label("attention_types"), value, "it should list [[kinds], times]", "check the config.json"
            )
        kinds += list(item[0]) * min(Fields({"times": item[1]}).integer("times"), number)
    if len(kinds) != number:
        raise ConfigError(
            f.label("attention_types"),
            value,
            f"it names {len(kinds)} layers, num_hidden_layers = {number}",
            "make the two agree",
        )
    return tuple(kinds)


def gptj(f: Fields) -> Skeleton:
    """GPT-J and CodeGen: parallel attention and feed-forward, biases in the latter and in the head only."""
    head = {"head": f.integer("vocab_size")}
    return parts.uniform(f, parts.attention(f), _four_times(f), norms=1, norm_bias=True, parallel=True, extra=head)


def gpt_neox(f: Fields) -> Skeleton:
    """GPT-NeoX and Pythia: biases everywhere."""
    bias = f.flag("attention_bias", default=True)
    attention = parts.attention(f, qkv_bias=bias, output_bias=bias)
    parallel = f.flag("use_parallel_residual", default=True)
    return parts.uniform(f, attention, parts.dense(f, gated=False, bias=True), norm_bias=True, parallel=parallel)


def persimmon(f: Fields) -> Skeleton:
    """Persimmon: all heads, biases everywhere, biased norms of q and k."""
    attention = parts.attention(f, qkv_bias=True, output_bias=True, kv_heads=f.integer("num_attention_heads"))
    if f.flag("qk_layernorm", default=True):
        attention = attention.replace(qk_norm_parameters=4 * attention.head_dim)
    return parts.uniform(f, attention, parts.dense(f, gated=False, bias=True), norm_bias=True)


def starcoder2(f: Fields) -> Skeleton:
    """StarCoder 2: a plain feed-forward part, biases everywhere."""
    bias = f.flag("use_bias", default=True)
    attention = parts.attention(f, qkv_bias=bias, output_bias=bias, window=f.optional("sliding_window"))
    return parts.uniform(f, attention, parts.dense(f, gated=False, bias=bias), norm_bias=True, tied=True)


def stablelm(f: Fields) -> Skeleton:
    """StableLM: Llama with biased norms; the 12B one has a norm for each head and a parallel feed-forward part."""
    attention = parts.attention(f, qkv_bias=f.flag("use_qkv_bias"))
    if f.flag("qk_layernorm"):
        attention = attention.replace(
            qk_norm_parameters=(attention.num_heads + attention.num_kv_heads) * attention.head_dim
        )
    parallel = f.flag("use_parallel_residual")
    return parts.uniform(f, attention, parts.dense(f), norms=1 if parallel else 2, norm_bias=True, parallel=parallel)


def nemotron(f: Fields) -> Skeleton:
    """Nemotron and Minitron: a plain feed-forward part and biased norms."""
    feed_forward = parts.dense(f, gated=False, bias=f.flag("mlp_bias"))
    return parts.uniform(f, parts.plain_attention(f), feed_forward, norm_bias=True)


# --- decoders that look at images through their layers ----------------------------------------------------------------


def mllama(f: Fields) -> Skeleton:
    """Llama 3.2 Vision: some layers attend to the image (two gates each); the embedding has eight rows of its own."""
    number = f.integer("num_hidden_layers")
    named = f.indices("cross_attention_layers")
    hidden = f.integer("hidden_size")
    text = parts.attention(f)
    image = parts.attention(f, qk_norm="head", attends_to_images=True)
    looking = sum(i in named for i in range(number))
    groups = [
        LayerGroup(
            count=count, mixer=mixer, feed_forward=parts.dense(f), norm_parameters=2 * hidden, other_parameters=gates
        )
        for count, mixer, gates in ((number - looking, text, 0), (looking, image, 2))
        if count
    ]
    return Skeleton(tuple(groups), Counter(norms=hidden, embedding=8 * hidden), f.flag("tie_word_embeddings"))
