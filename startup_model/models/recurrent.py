"""Families with state spaces, linear attention or convolutions, alone or between attention: one function a make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from startup_model.errors import ConfigError
from startup_model.models import parts
from startup_model.models.fields import Fields
from startup_model.models.layers import (
    DenseFeedForward,
    FeedForward,
    GatedDeltaNet,
    GatedLinearRecurrence,
    KimiDeltaAttention,
    LayerGroup,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    ReceptanceFeedForward,
    ReceptanceTimeMix,
    ShortConvolution,
)
from startup_model.models.parts import Skeleton

# --- state spaces alone -----------------------------------------------------------------------------------------------

_MAMBA_NAMES = ("state_size", "conv_kernel", "time_step_rank", "use_conv_bias", "use_bias")
_PREFIXED_NAMES = ("mamba_d_state", "mamba_d_conv", "mamba_dt_rank", "mamba_conv_bias", "mamba_proj_bias")


def _mamba_mixer(f: Fields, inner: int, names: tuple[str, str, str, str, str], *, inner_norms: bool = False) -> Mamba:
    state, kernel, rank, conv_bias, bias = names
    automatic = f.get(rank) in (None, "auto")
    return Mamba(
        inner_size=inner,
        state_size=f.integer(state, 16),
        conv_kernel=f.integer(kernel, 4),
        time_step_rank=-(-f.integer("hidden_size") // 16) if automatic else f.integer(rank),
        conv_bias=f.flag(conv_bias, default=True),
        projection_bias=f.flag(bias),
        inner_norms=inner_norms,
    )


def mamba(f: Fields) -> Skeleton:
    """Mamba and Falcon-Mamba: one mixer and one norm a layer."""
    inner = f.integer("intermediate_size", f.integer("expand", 2) * f.integer("hidden_size"))
    return parts.uniform(f, _mamba_mixer(f, inner, _MAMBA_NAMES), None, norms=1, tied=True)


def mamba2(f: Fields) -> Skeleton:
    """Mamba-2: one mixer and one norm a layer."""
    mixer = parts.mamba2(
        f, "num_heads", "head_dim", "state_size", "n_groups", "conv_kernel",
        conv_bias=f.flag("use_conv_bias", default=True), projection_bias=f.flag("use_bias"),
    )  # fmt: skip
    return parts.uniform(f, mixer, None, norms=1)


def rwkv(f: Fields) -> Skeleton:
    """RWKV-4: time mixing and channel mixing, biased norms, and one more norm before the first layer."""
    hidden = f.integer("hidden_size")
    mixer = ReceptanceTimeMix(inner_size=f.integer("attention_hidden_size", hidden))
    feed_forward = ReceptanceFeedForward(intermediate_size=f.integer("intermediate_size", 4 * hidden))
    return parts.uniform(f, mixer, feed_forward, norm_bias=True, extra={"norms": 2 * hidden})


# --- state spaces between attention -----------------------------------------------------------------------------------


def _prefixed_mamba2(f: Fields, head_dim: str | int = "mamba_d_head", *, norm: bool = True) -> Mamba2:
    """Mamba-2 under the names of Bamba, Granite 4 and Falcon-H1; a head size of "auto" is the inner size / heads."""
    if head_dim == "mamba_d_head" and f.get("mamba_d_head") in (None, "auto"):
        expanded = f.integer("mamba_expand", 2) * f.integer("hidden_size")
        head_dim = _share(f, f.integer("mamba_d_ssm", expanded), "mamba_n_heads")
    return parts.mamba2(
        f, "mamba_n_heads", head_dim, "mamba_d_state", "mamba_n_groups", "mamba_d_conv",
        conv_bias=f.flag("mamba_conv_bias", default=True), projection_bias=f.flag("mamba_proj_bias"), norm=norm,
    )  # fmt: skip


def _share(f: Fields, size: int, heads: str) -> int:
    """``size`` / heads, which has to be whole."""
    number = f.integer(heads)
    if size % number:
        raise ConfigError(
            f.label(heads), number, f"it does not divide the inner size {size}", "correct the number of heads"
        )
    return size // number


def granite_hybrid(f: Fields) -> Skeleton:
    """Granite 4: Mamba-2 and some attention, each followed by experts and a shared part, or by the latter alone."""
    number = f.integer("num_hidden_layers")
    kinds = parts.layer_kinds(f, "layer_types", "layers_block_type") or ("mamba",) * number
    attention = parts.plain_attention(f)
    mamba: Mixer = attention if all(_is_attention(kind) for kind in kinds) else _prefixed_mamba2(f)
    shared = f.integer("shared_intermediate_size", minimum=0)
    feed_forward: FeedForward = (
        parts.experts(f, width="intermediate_size", shared=shared)
        if f.optional("num_experts", minimum=0)
        else parts.dense(f, width=shared)
    )
    return parts.mixed(f, [(attention if _is_attention(kind) else mamba, feed_forward) for kind in kinds])


def _is_attention(kind: str) -> bool:
    return kind in ("attention", "full_attention")


def bamba(f: Fields) -> Skeleton:
    """Bamba: Mamba-2, attention in the layers that ``attn_layer_indices`` names."""
    named = f.indices("attn_layer_indices")
    attention, state_space, feed_forward = (
        parts.plain_attention(f),
        _prefixed_mamba2(f),
        parts.dense(f, bias=f.flag("mlp_bias")),
    )
    number = f.integer("num_hidden_layers")
    return parts.mixed(f, [(attention if i in named else state_space, feed_forward) for i in range(number)])


def falcon_h1(f: Fields) -> Skeleton:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    state_space = _prefixed_mamba2(f, norm=f.flag("mamba_rms_norm"))
    attention, feed_forward = parts.plain_attention(f), parts.dense(f, bias=f.flag("mlp_bias"))
    return parts.uniform(f, attention, feed_forward, other_mixers=(state_space,))


def jamba(f: Fields) -> Skeleton:
    """Jamba: Mamba with norms inside, attention and experts at fixed periods."""
    number = f.integer("num_hidden_layers")
    attention_period, attention_offset = f.integer("attn_layer_period", 8), f.integer("attn_layer_offset", 4, minimum=0)
    expert_period, expert_offset = f.integer("expert_layer_period", 2), f.integer("expert_layer_offset", 1, minimum=0)
    inner = f.integer("mamba_expand", 2) * f.integer("hidden_size")
    state_space = _mamba_mixer(f, inner, _PREFIXED_NAMES, inner_norms=True)
    attention, dense = parts.attention(f), parts.dense(f)
    sparse: FeedForward = dense if f.integer("num_experts", 16) == 1 else parts.experts(f, width="intermediate_size")
    return parts.mixed(
        f,
        [
            (
                attention if i % attention_period == attention_offset else state_space,
                sparse if i % expert_period == expert_offset else dense,
            )
            for i in range(number)
        ],
    )


_NEMOTRON_KINDS = {
    "M": "mamba", "mamba": "mamba", "linear_attention": "mamba", "*": "attention", "attention": "attention",
    "full_attention": "attention", "-": "mlp", "mlp": "mlp", "E": "moe", "moe": "moe",
}  # fmt: skip


def nemotron_h(f: Fields) -> Skeleton:
    """Nemotron-H: each layer is one thing only - Mamba-2, attention, a dense part or experts - with one norm."""
    kinds = _nemotron_kinds(f)
    makers: dict[str, Callable[[], tuple[Mixer | None, FeedForward | None]]] = {
        "mamba": lambda: (_nemotron_mamba(f), None),
        "attention": lambda: (parts.plain_attention(f, window=f.optional("sliding_window")), None),
        "mlp": lambda: (None, parts.dense(f, gated=False, bias=f.flag("mlp_bias"))),
        "moe": lambda: (None, _nemotron_experts(f)),
    }
    layers = {kind: makers[kind]() for kind in dict.fromkeys(kinds)}
    return parts.mixed(f, [layers[kind] for kind in kinds], norms=1)


def _nemotron_kinds(f: Fields) -> tuple[str, ...]:
    number = f.integer("num_hidden_layers")
    pattern = f.text("hybrid_override_pattern")
    named = parts.layer_kinds(f, "layers_block_type", "layer_types")
    if named is None:
        named = Fields({"hybrid_override_pattern": list(pattern)}, path=f.path).kinds("hybrid_override_pattern", number)
    unknown = next((kind for kind in named or () if kind not in _NEMOTRON_KINDS), None)
    if not named or unknown is not None:
        raise ConfigError(
            f.label("hybrid_override_pattern"), unknown or pattern, "it should have one of M, *, - and E a layer",
            "check the config.json",
        )  # fmt: skip
    return tuple(_NEMOTRON_KINDS[kind] for kind in named)


def _nemotron_mamba(f: Fields) -> Mamba2:
    return parts.mamba2(
        f, "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel",
        conv_bias=f.flag("use_conv_bias", default=True),
        projection_bias=f.flag("mamba_proj_bias") or f.flag("use_bias"),
    )  # fmt: skip


def _nemotron_experts(f: Fields) -> FeedForward:
    shared = f.integer("n_shared_experts", 1, minimum=0) * f.integer("moe_shared_expert_intermediate_size")
    return parts.experts(
        f, gated=False, shared=shared,
        latent_size=f.optional("moe_latent_size"), bias=f.flag("mlp_bias"),
    )  # fmt: skip


# --- one transformer block that many layers share ---------------------------------------------------------------------


def _shared_blocks(
    f: Fields, kinds: tuple[str, ...], state_space: Mixer, blocks: int, adapter_rank: int = 0
) -> Skeleton:
    """Zamba: hybrid layers run a shared transformer block on [hidden, embedding] and project it for the state space.

    Only the first layer with each block holds its matrices; adapters and the projection h x h are each layer's own. A
    shared block has a norm of width 2 h and one of width h.
    """
    hidden = f.integer("hidden_size")
    wide = f.integer("attention_hidden_size", 2 * hidden)
    head_dim = f.integer("attention_head_dim", wide // f.integer("num_attention_heads"))
    attention = parts.attention(f, head_dim=head_dim, input_size=wide)
    feed_forward = DenseFeedForward(intermediate_size=f.integer("intermediate_size", 4 * hidden))
    if adapter_rank:
        feed_forward = feed_forward.replace(adapter_rank=adapter_rank)
    if adapter_rank and f.flag("use_shared_attention_adapter"):
        attention = attention.replace(adapter_rank=adapter_rank)
    plain = LayerGroup(count=1, mixer=state_space, norm_parameters=hidden)
    first = LayerGroup(
        count=1, mixer=attention, feed_forward=feed_forward, other_mixers=(state_space,),
        norm_parameters=2 * hidden + wide, other_parameters=hidden * hidden,
    )  # fmt: skip
    again = first.replace(
        mixer=attention.replace(shares_weights_of_another_layer=True),
        feed_forward=feed_forward.replace(shares_weights_of_another_layer=True),
        norm_parameters=hidden,
    )
    layers, seen = [], 0
    for kind in kinds:
        layers.append(plain if kind != "hybrid" else first if seen < blocks else again)
        seen += kind == "hybrid"
    return Skeleton(parts.grouped(layers), Counter(norms=hidden), f.flag("tie_word_embeddings", default=True))


def zamba(f: Fields) -> Skeleton:
    """Zamba: Mamba with heads, one shared block."""
    number = f.integer("num_hidden_layers")
    period, offset = f.integer("attn_layer_period", 6), f.integer("attn_layer_offset", 4, minimum=0)
    kinds = parts.layer_kinds(f, "layers_block_type", "layer_types")
    if kinds is None:
        later = ("hybrid" if i % period == offset else "mamba" for i in range(max(number - 3, 0)))
        kinds = ("mamba", "mamba", "hybrid", *later)[:number]
    state_space = _mamba_mixer(f, f.integer("mamba_expand", 2) * f.integer("hidden_size"), _PREFIXED_NAMES)
    return _shared_blocks(f, kinds, state_space, blocks=1)


def zamba2(f: Fields) -> Skeleton:
    """Zamba 2: Mamba-2, one or two shared blocks, low-rank adapters of each layer."""
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    kinds = parts.layer_kinds(f, "layers_block_type", "layer_types")
    if kinds is None:
        named = f.indices("hybrid_layer_ids")
        kinds = tuple("hybrid" if i in named else "mamba" for i in range(number))
    state_space = parts.mamba2(
        f, "n_mamba_heads", _share(f, f.integer("mamba_expand", 2) * hidden, "n_mamba_heads"), "mamba_d_state",
        "mamba_ngroups",
        "mamba_d_conv", conv_bias=f.flag("use_conv_bias", default=True), projection_bias=f.flag("add_bias_linear"),
    )  # fmt: skip
    return _shared_blocks(f, kinds, state_space, f.integer("num_mem_blocks", 1), f.integer("adapter_rank", 128))


# --- linear attention between attention -------------------------------------------------------------------------------


def _interleaved(f: Fields, every: int) -> tuple[str, ...]:
    """Kind of every layer: named, or attention in every ``every``-th."""
    number = f.integer("num_hidden_layers")
    named = parts.layer_kinds(f, "layer_types")
    return named or tuple("full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(number))


def _delta_net(f: Fields) -> GatedDeltaNet:
    return GatedDeltaNet(
        num_key_heads=f.integer("linear_num_key_heads"),
        num_value_heads=f.integer("linear_num_value_heads"),
        key_head_dim=f.integer("linear_key_head_dim"),
        value_head_dim=f.integer("linear_value_head_dim"),
        conv_kernel=f.integer("linear_conv_kernel_dim"),
    )


def qwen3_next(f: Fields) -> Skeleton:
    """Qwen3-Next and Qwen3.5: gated delta rule in three of four layers, gated attention, experts or a dense part."""
    attention, linear = parts.plain_attention(f, qk_norm="head", output_gate=True), _delta_net(f)
    mixers = [
        attention if _is_attention(kind) else linear
        for kind in _interleaved(f, f.integer("full_attention_interval", 4))
    ]
    if not f.optional("num_experts", minimum=0):
        return parts.stacked(f, mixers, parts.dense(f))
    named, step = f.indices("mlp_only_layers"), f.integer("decoder_sparse_step", 1)
    experts = parts.experts(f, shared=f.integer("shared_expert_intermediate_size"), shared_gate=True)
    sparse = [i not in named and (i + 1) % step == 0 for i in range(len(mixers))]
    plain = None if all(sparse) else parts.dense(f)
    return parts.mixed(
        f, [(mixer, experts if is_sparse else plain) for mixer, is_sparse in zip(mixers, sparse, strict=True)]
    )


def olmo_hybrid(f: Fields) -> Skeleton:
    """OLMo Hybrid: OLMo 2's attention in every fourth layer, gated delta rule in the others."""
    heads, hidden = f.integer("num_attention_heads"), f.integer("hidden_size")
    key_heads = f.integer("linear_num_key_heads", heads)
    key_dim = f.integer("linear_key_head_dim", max(1, 3 * hidden // (4 * key_heads)))
    linear = GatedDeltaNet(
        num_key_heads=key_heads,
        num_value_heads=f.integer("linear_num_value_heads", heads),
        key_head_dim=key_dim,
        value_head_dim=f.integer("linear_value_head_dim", 2 * key_dim),
        conv_kernel=f.integer("linear_conv_kernel_dim", 4),
    )
    attention = parts.plain_attention(f, qk_norm="full")
    mixers = [attention if _is_attention(kind) else linear for kind in _interleaved(f, 4)]
    return parts.stacked(f, mixers, parts.dense(f))


def minimax(f: Fields) -> Skeleton:
    """MiniMax-01 and M1: lightning attention in seven of eight layers, experts in all."""
    number = f.integer("num_hidden_layers")
    softmax = f.integers("attn_type_list", number)
    kinds = (
        tuple("full_attention" if one else "linear_attention" for one in softmax)
        if softmax is not None
        else parts.layer_kinds(f, "layer_types")
        or tuple("linear_attention" if i % 2 else "full_attention" for i in range(number))
    )
    attention = parts.attention(f)
    linear = LightningAttention(num_heads=attention.num_heads, head_dim=attention.head_dim)
    experts = parts.experts(f, width="intermediate_size")
    return parts.mixed(f, [(attention if _is_attention(kind) else linear, experts) for kind in kinds])


def kimi_linear(f: Fields) -> Skeleton:
    """Kimi Linear: delta rule with a gate for each channel, latent attention in every fourth layer, experts."""
    number = f.integer("num_hidden_layers")
    section = f.section("linear_attn_config") or Fields({})
    linear = KimiDeltaAttention(
        num_heads=section.integer("num_heads", f.integer("linear_num_heads", 32)),
        head_dim=section.integer("head_dim", f.integer("linear_head_dim", 128)),
        conv_kernel=section.integer("short_conv_kernel_size", f.integer("linear_conv_kernel_dim", 4)),
    )
    attention = parts.latent_attention(f)
    experts = parts.experts(f, shared=f.integer("n_shared_experts", 1, minimum=0) * f.integer("moe_intermediate_size"))
    kinds, first = _kimi_kinds(f, section, number), f.integer("first_k_dense_replace", 1, minimum=0)
    sparse = [kind == "sparse" for kind in parts.layer_kinds(f, "mlp_layer_types") or ()] or [
        i >= first for i in range(number)
    ]
    layers = zip(kinds, sparse, strict=True)
    return parts.mixed(
        f,
        [
            (attention if _is_attention(kind) else linear, experts if is_sparse else parts.dense(f))
            for kind, is_sparse in layers
        ],
    )


def _kimi_kinds(f: Fields, section: Fields, number: int) -> tuple[str, ...]:
    """Named layer by layer, or as lists that count from one, or attention in every fourth layer after the first."""
    named = parts.layer_kinds(f, "layer_types")
    if named is not None:
        return named
    full = section.indices("full_attn_layers")
    chosen = {i for i in range(number) if (i + 1 in full if full else i and i % 4 == 0)}
    return tuple("full_attention" if i in chosen else "linear_attention" for i in range(number))


def recurrent_gemma(f: Fields) -> Skeleton:
    """RecurrentGemma: linear recurrences, a window in every third layer; half of ``intermediate_size`` is the width."""
    number, hidden = f.integer("num_hidden_layers"), f.integer("hidden_size")
    blocks = f.get("block_types")
    if not isinstance(blocks, list | tuple) or not blocks:
        raise ConfigError(f.label("block_types"), blocks, "it should list kinds of layers", "check the config.json")
    bias = f.flag("attention_bias")
    attention = parts.attention(f, qkv_bias=bias, output_bias=True, window=f.integer("attention_window_size"))
    recurrence = GatedLinearRecurrence(
        inner_size=f.integer("lru_width", hidden), num_blocks=attention.num_heads, conv_kernel=f.integer("conv1d_width")
    )
    feed_forward = parts.dense(f, bias=True, width=max(1, f.integer("intermediate_size") // 2))
    kinds = [blocks[i % len(blocks)] for i in range(number)]
    return parts.mixed(
        f, [(recurrence if kind == "recurrent" else attention, feed_forward) for kind in kinds], tied=True
    )


# --- convolutions between attention -----------------------------------------------------------------------------------


def _lfm2_mixers(f: Fields) -> list[Mixer]:
    number = f.integer("num_hidden_layers")
    named = f.indices("full_attn_idxs") or range(number)
    kinds = parts.layer_kinds(f, "layer_types") or tuple(
        "full_attention" if i in named else "conv" for i in range(number)
    )
    attention = parts.attention(f, qk_norm="head")
    convolution = ShortConvolution(
        channels=f.integer("hidden_size"), conv_kernel=f.integer("conv_L_cache"), bias=f.flag("conv_bias")
    )
    return [attention if _is_attention(kind) else convolution for kind in kinds]


def lfm2(f: Fields) -> Skeleton:
    """LFM2: short convolutions and some attention; the feed-forward width is cut to 2/3 and rounded up."""
    width = f.integer("intermediate_size")
    if f.flag("block_auto_adjust_ff_dim", default=True):
        factor = f.ratio("block_ffn_dim_multiplier")
        multiple = f.integer("block_multiple_of", 256)
        width = multiple * -(-int(factor * int(2 * width / 3)) // multiple)
    return parts.mixed(f, [(mixer, parts.dense(f, width=width)) for mixer in _lfm2_mixers(f)], tied=_lfm2_tied(f))


def lfm2_moe(f: Fields) -> Skeleton:
    """LFM2 with experts after a few dense layers."""
    dense, experts, first = parts.dense(f), parts.experts(f), f.integer("num_dense_layers", 2, minimum=0)
    layers = [(mixer, experts if i >= first else dense) for i, mixer in enumerate(_lfm2_mixers(f))]
    return parts.mixed(f, layers, tied=_lfm2_tied(f))


def _lfm2_tied(f: Fields) -> bool:
    return f.flag("tie_embedding", default=True)
