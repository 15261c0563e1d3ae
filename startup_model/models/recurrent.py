"""Makers of families with state spaces, linear attention or convolutions, alone or between attention: one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from startup_model.errors import wrong_type
from startup_model.models import layers, parts
from startup_model.models.fields import Fields
from startup_model.models.layers import FeedForward, GatedDeltaNet, LayerGroup, Mamba, Mamba2, Mixer
from startup_model.models.parts import Family, Skeleton, is_attention

# --- state spaces alone -----------------------------------------------------------------------------------------------


def _mamba(f: Fields, inner: int, names: str, *, inner_norms: bool = False) -> Mamba:
    """names: the fields with state size, kernel, rank of dt, bias of the convolution, bias of the projections."""
    state, kernel, rank, conv_bias, bias = names.split()
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


def _mamba2(f: Fields, head_dim: int, names: str, *, norm: bool = True) -> Mamba2:
    """names: the fields with heads, state size, groups, kernel, bias of the convolution, biases of the projections."""
    heads, state, groups, kernel, conv_bias, bias = names.split()
    return Mamba2(
        num_heads=f.integer(heads),
        head_dim=head_dim,
        state_size=f.integer(state),
        num_groups=f.integer(groups, 1),
        conv_kernel=f.integer(kernel, 4),
        conv_bias=f.flag(conv_bias, default=True),
        projection_bias=parts.is_on(f, bias),
        norm=norm,
    )


def mamba(f: Fields, family: Family) -> Skeleton:
    """Mamba and Falcon-Mamba: one mixer and one norm a layer."""
    inner = f.integer("intermediate_size", f.integer("expand", 2) * f.integer("hidden_size"))
    mixer = _mamba(f, inner, "state_size conv_kernel time_step_rank use_conv_bias use_bias")
    return parts.mixed(f, family, mixer, None)


def mamba2(f: Fields, family: Family) -> Skeleton:
    """Mamba-2: one mixer and one norm a layer."""
    names = "num_heads state_size n_groups conv_kernel use_conv_bias use_bias"
    return parts.mixed(f, family, _mamba2(f, f.integer("head_dim"), names), None)


def rwkv(f: Fields, family: Family) -> Skeleton:
    """RWKV-4: time mixing and channel mixing, biased norms, and one more norm before the first layer."""
    hidden = f.integer("hidden_size")
    mixer = layers.ReceptanceTimeMix(inner_size=f.integer("attention_hidden_size", hidden))
    feed_forward = layers.ReceptanceFeedForward(intermediate_size=f.integer("intermediate_size", 4 * hidden))
    return parts.mixed(f, family, mixer, feed_forward, {"norms": 2 * hidden})


# --- state spaces between attention -----------------------------------------------------------------------------------

_PREFIXED = "mamba_d_state mamba_d_conv mamba_dt_rank mamba_conv_bias mamba_proj_bias"


def _prefixed_mamba2(f: Fields, *, norm: bool = True) -> Mamba2:
    """Mamba-2 under the names of Bamba, Granite 4 and Falcon-H1; a head size of "auto" is the inner size / heads."""
    if f.get("mamba_d_head") in (None, "auto"):
        expanded = f.integer("mamba_expand", 2) * f.integer("hidden_size")
        head_dim = parts.share(f, f.integer("mamba_d_ssm", expanded), "mamba_n_heads")
    else:
        head_dim = f.integer("mamba_d_head")
    names = "mamba_n_heads mamba_d_state mamba_n_groups mamba_d_conv mamba_conv_bias mamba_proj_bias"
    return _mamba2(f, head_dim, names, norm=norm)


def granite_hybrid(f: Fields, family: Family) -> Skeleton:
    """Granite 4: Mamba-2 and some attention, each followed by experts and a shared part, or by the latter alone."""
    shared = f.integer("shared_intermediate_size", minimum=0)
    kinds = parts.layer_kinds(f, "layer_types", "layers_block_type") or ("mamba",) * f.integer("num_hidden_layers")
    attention = parts.attention(f, family)
    mamba: Mixer = attention if all(map(is_attention, kinds)) else _prefixed_mamba2(f)
    sparse = f.optional("num_experts", minimum=0)
    feed_forward: FeedForward = parts.experts(f, family) if sparse else parts.dense(f, family, shared)
    return parts.mixed(f, family, [attention if is_attention(kind) else mamba for kind in kinds], feed_forward)


def bamba(f: Fields, family: Family) -> Skeleton:
    """Bamba: Mamba-2, attention in the layers that ``attn_layer_indices`` names."""
    named, attention, mamba = f.indices("attn_layer_indices"), parts.attention(f, family), _prefixed_mamba2(f)
    mixers = [attention if i in named else mamba for i in range(f.integer("num_hidden_layers"))]
    return parts.mixed(f, family, mixers, parts.dense(f, family))


def falcon_h1(f: Fields, family: Family) -> Skeleton:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    mamba = _prefixed_mamba2(f, norm=f.flag("mamba_rms_norm"))
    return parts.mixed(f, family, parts.attention(f, family), parts.dense(f, family), other_mixers=(mamba,))


def jamba(f: Fields, family: Family) -> Skeleton:
    """Jamba: Mamba with norms inside, attention and experts at fixed periods."""
    number = f.integer("num_hidden_layers")
    attention_period, attention_offset = f.integer("attn_layer_period", 8), f.integer("attn_layer_offset", 4, minimum=0)
    expert_period, expert_offset = f.integer("expert_layer_period", 2), f.integer("expert_layer_offset", 1, minimum=0)
    mamba = _mamba(f, f.integer("mamba_expand", 2) * f.integer("hidden_size"), _PREFIXED, inner_norms=True)
    attention, dense = parts.attention(f, family), parts.dense(f, family)
    sparse: FeedForward = dense if f.integer("num_experts", 16) == 1 else parts.experts(f, family)
    mixers = [attention if i % attention_period == attention_offset else mamba for i in range(number)]
    feed_forwards = [sparse if i % expert_period == expert_offset else dense for i in range(number)]
    return parts.mixed(f, family, mixers, feed_forwards)


_NEMOTRON_KINDS = {
    "M": "mamba", "mamba": "mamba", "linear_attention": "mamba", "*": "attention", "attention": "attention",
    "full_attention": "attention", "-": "mlp", "mlp": "mlp", "E": "moe", "moe": "moe",
}  # fmt: skip


def nemotron_h(f: Fields, family: Family) -> Skeleton:
    """Nemotron-H: each layer is one thing only - Mamba-2, attention, a dense part or experts - with one norm."""
    names = "mamba_num_heads ssm_state_size n_groups conv_kernel use_conv_bias mamba_proj_bias|use_bias"
    makers: dict[str, Callable[[], tuple[Mixer | None, FeedForward | None]]] = {
        "mamba": lambda: (_mamba2(f, f.integer("mamba_head_dim"), names), None),
        "attention": lambda: (parts.attention(f, family, window=f.optional("sliding_window")), None),
        "mlp": lambda: (None, parts.dense(f, family)),
        "moe": lambda: (None, parts.experts(f, family, latent_size=f.optional("moe_latent_size"))),
    }
    kinds = _nemotron_kinds(f)
    made = {kind: makers[kind]() for kind in dict.fromkeys(kinds)}
    return parts.mixed(f, family, [made[kind][0] for kind in kinds], [made[kind][1] for kind in kinds])


def _nemotron_kinds(f: Fields) -> tuple[str, ...]:
    name, pattern = "hybrid_override_pattern", f.text("hybrid_override_pattern")
    named = parts.layer_kinds(f, "layers_block_type", "layer_types")
    named = named or f.but(**{name: list(pattern)}).kinds(name, f.integer("num_hidden_layers"))
    unknown = next((kind for kind in named or () if kind not in _NEMOTRON_KINDS), None)
    if not named or unknown is not None:
        expected = "one of M, *, - and E for each layer"
        raise wrong_type(f.label(name), unknown or pattern, expected, "check the config.json")
    return tuple(_NEMOTRON_KINDS[kind] for kind in named)


# --- one transformer block that many layers share ---------------------------------------------------------------------


def _shared_blocks(
    f: Fields, family: Family, kinds: Sequence[str], state_space: Mixer, blocks: int = 1, adapter_rank: int = 0
) -> Skeleton:
    """Zamba: hybrid layers run a shared transformer block on [hidden, embedding] and project it for the state space.

    Only the first layer with each block holds its matrices; adapters and the projection h x h are each layer's own. A
    shared block has a norm of width 2 h and one of width h.
    """
    hidden = f.integer("hidden_size")
    wide = f.integer("attention_hidden_size", 2 * hidden)
    head_dim = f.integer("attention_head_dim", wide // f.integer("num_attention_heads"))
    attention_rank = adapter_rank if f.flag("use_shared_attention_adapter") else 0
    attention = parts.attention(f, family, head_dim=head_dim, input_size=wide, adapter_rank=attention_rank)
    feed_forward = parts.dense(f, family, adapter_rank=adapter_rank)
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
    groups, seen = [], 0
    for kind in kinds:
        groups.append(plain if kind != "hybrid" else first if seen < blocks else again)
        seen += kind == "hybrid"
    return Skeleton(parts.grouped(groups), {"norms": hidden}, f.flag("tie_word_embeddings", family.tied))


def zamba(f: Fields, family: Family) -> Skeleton:
    """Zamba: Mamba with heads, one shared block."""
    number = f.integer("num_hidden_layers")
    period, offset = f.integer("attn_layer_period", 6), f.integer("attn_layer_offset", 4, minimum=0)
    kinds = parts.layer_kinds(f, "layers_block_type", "layer_types")
    if kinds is None:
        later = ("hybrid" if i % period == offset else "mamba" for i in range(max(number - 3, 0)))
        kinds = ("mamba", "mamba", "hybrid", *later)[:number]
    inner = f.integer("mamba_expand", 2) * f.integer("hidden_size")
    return _shared_blocks(f, family, kinds, _mamba(f, inner, _PREFIXED))


def zamba2(f: Fields, family: Family) -> Skeleton:
    """Zamba 2: Mamba-2, one or two shared blocks, low-rank adapters of each layer."""
    named, number = f.indices("hybrid_layer_ids"), f.integer("num_hidden_layers")
    kinds = parts.layer_kinds(f, "layers_block_type", "layer_types")
    kinds = kinds or tuple("hybrid" if i in named else "mamba" for i in range(number))
    head_dim = parts.share(f, f.integer("mamba_expand", 2) * f.integer("hidden_size"), "n_mamba_heads")
    names = "n_mamba_heads mamba_d_state mamba_ngroups mamba_d_conv use_conv_bias add_bias_linear"
    mamba = _mamba2(f, head_dim, names)
    return _shared_blocks(f, family, kinds, mamba, f.integer("num_mem_blocks", 1), f.integer("adapter_rank", 128))


# --- linear attention between attention -------------------------------------------------------------------------------


def _interleaved(f: Fields, attention: Mixer, linear: Mixer, is_full: Callable[[int], bool]) -> list[Mixer]:
    """One mixer a layer: as ``layer_types`` names them, else attention where ``is_full`` says so."""
    number = f.integer("num_hidden_layers")
    kinds = parts.layer_kinds(f, "layer_types")
    return [attention if (is_attention(kinds[i]) if kinds else is_full(i)) else linear for i in range(number)]


def _delta_net(f: Fields, *usual: int | None) -> GatedDeltaNet:
    """usual: numbers of key and value heads, sizes of both, kernel, where the config does not say."""
    key_heads, value_heads, key, value, kernel = usual or (None,) * 5
    return GatedDeltaNet(
        num_key_heads=f.integer("linear_num_key_heads", key_heads),
        num_value_heads=f.integer("linear_num_value_heads", value_heads),
        key_head_dim=f.integer("linear_key_head_dim", key),
        value_head_dim=f.integer("linear_value_head_dim", value),
        conv_kernel=f.integer("linear_conv_kernel_dim", kernel),
    )


def qwen3_next(f: Fields, family: Family) -> Skeleton:
    """Qwen3-Next and Qwen3.5: gated delta rule in three of four layers, gated attention, experts or a dense part."""
    every = f.integer("full_attention_interval", 4)
    mixers = _interleaved(f, parts.attention(f, family), _delta_net(f), lambda i: (i + 1) % every == 0)
    if f.optional("num_experts", minimum=0):
        return parts.with_experts(f, family, mixers, parts.experts(f, family))
    return parts.mixed(f, family, mixers, parts.dense(f, family))


def olmo_hybrid(f: Fields, family: Family) -> Skeleton:
    """OLMo Hybrid: OLMo 2's attention in every fourth layer, gated delta rule in the others."""
    heads, hidden = f.integer("num_attention_heads"), f.integer("hidden_size")
    key_heads = f.integer("linear_num_key_heads", heads)
    key_dim = f.integer("linear_key_head_dim", max(1, 3 * hidden // (4 * key_heads)))
    linear = _delta_net(f, key_heads, heads, key_dim, 2 * key_dim, 4)
    mixers = _interleaved(f, parts.attention(f, family), linear, lambda i: i % 4 == 3)
    return parts.mixed(f, family, mixers, parts.dense(f, family))


def minimax(f: Fields, family: Family) -> Skeleton:
    """MiniMax-01 and M1: lightning attention in seven of eight layers, experts in all."""
    softmax = f.integers("attn_type_list", f.integer("num_hidden_layers"))
    if softmax is not None:
        f = f.but(layer_types=["full_attention" if one else "linear_attention" for one in softmax])
    attention = parts.attention(f, family)
    linear = layers.LightningAttention(num_heads=attention.num_heads, head_dim=attention.head_dim)
    mixers = _interleaved(f, attention, linear, lambda i: i % 2 == 0)
    return parts.mixed(f, family, mixers, parts.experts(f, family))


def kimi_linear(f: Fields, family: Family) -> Skeleton:
    """Kimi Linear: delta rule with a gate for each channel, latent attention in every fourth layer, experts."""
    section = f.section("linear_attn_config") or Fields({})
    linear = layers.KimiDeltaAttention(
        num_heads=section.integer("num_heads", f.integer("linear_num_heads", 32)),
        head_dim=section.integer("head_dim", f.integer("linear_head_dim", 128)),
        conv_kernel=section.integer("short_conv_kernel_size", f.integer("linear_conv_kernel_dim", 4)),
    )
    full = section.indices("full_attn_layers") or range(5, 10**6, 4)  # they count from one
    mixers = _interleaved(f, parts.latent_attention(f), linear, lambda i: i + 1 in full)
    return parts.with_experts(f, family, mixers, parts.experts(f, family))


def recurrent_gemma(f: Fields, family: Family) -> Skeleton:
    """RecurrentGemma: linear recurrences, a window in every third layer; half of ``intermediate_size`` is the width."""
    blocks = f.get("block_types")
    if not isinstance(blocks, list | tuple) or not blocks:
        raise wrong_type(f.label("block_types"), blocks, "a list of kinds of layers", "check the config.json")
    attention = parts.attention(f, family, window=f.integer("attention_window_size"))
    width, kernel = f.integer("lru_width", f.integer("hidden_size")), f.integer("conv1d_width")
    recurrence = layers.GatedLinearRecurrence(inner_size=width, num_blocks=attention.num_heads, conv_kernel=kernel)
    kinds = [blocks[i % len(blocks)] for i in range(f.integer("num_hidden_layers"))]
    mixers = [recurrence if kind == "recurrent" else attention for kind in kinds]
    return parts.mixed(f, family, mixers, parts.dense(f, family))


# --- convolutions between attention -----------------------------------------------------------------------------------


def _lfm2_mixers(f: Fields, family: Family) -> list[Mixer]:
    named = f.indices("full_attn_idxs") or range(f.integer("num_hidden_layers"))
    width, kernel = f.integer("hidden_size"), f.integer("conv_L_cache")
    convolution = layers.ShortConvolution(channels=width, conv_kernel=kernel, bias=f.flag("conv_bias"))
    return _interleaved(f, parts.attention(f, family), convolution, lambda i: i in named)


def lfm2(f: Fields, family: Family) -> Skeleton:
    """LFM2: short convolutions and some attention; the feed-forward width is cut to 2/3 and rounded up."""
    width = f.integer("intermediate_size")
    if f.flag("block_auto_adjust_ff_dim"):
        multiple = f.integer("block_multiple_of", 256)
        width = multiple * -(-int(f.ratio("block_ffn_dim_multiplier") * int(2 * width / 3)) // multiple)
    return parts.mixed(f, family, _lfm2_mixers(f, family), parts.dense(f, family, width))


def lfm2_moe(f: Fields, family: Family) -> Skeleton:
    """LFM2 with experts after a few dense layers."""
    return parts.with_experts(f, family, _lfm2_mixers(f, family), parts.experts(f, family))
