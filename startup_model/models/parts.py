"""What family functions are made of: parts of layers from the usual fields of a config.json, models from layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from startup_model.errors import ConfigError
from startup_model.models.fields import Fields
from startup_model.models.layers import (
    Attention,
    DenseFeedForward,
    FeedForward,
    LatentAttention,
    LayerGroup,
    Mamba2,
    Mixer,
    MixtureOfExperts,
)

__all__ = [
    "Builder",
    "Family",
    "Skeleton",
    "attention",
    "dense",
    "experts",
    "grouped",
    "latent_attention",
    "layer_kinds",
    "mamba2",
    "mixed",
    "plain_attention",
    "shared_width",
    "sparse_after_dense",
    "stacked",
    "uniform",
    "windowed",
]


class Skeleton(NamedTuple):
    """A model's structure, names and files aside."""

    layers: tuple[LayerGroup, ...]
    extra: Counter[str]
    """Parameters outside the layers by kind, those of the embedding and of the head aside."""
    tied: bool
    """The head is the embedding."""
    embedding_width: int | None = None
    """Width of the embedding where it differs from the hidden size."""


Builder = Callable[[Fields], Skeleton]


@dataclass(frozen=True)
class Family:
    """One make of models: the function that builds its layers, and the defaults of its configuration class."""

    build: Builder
    defaults: Mapping[str, Any] = field(default_factory=dict)


# --- parts of a layer -------------------------------------------------------------------------------------------------


def attention(
    f: Fields,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "none",
    kv_heads: int | None = None,
    head_dim: int | None = None,
    **more: Any,
) -> Attention:
    """Attention from the usual fields; ``qk_norm`` is none, head (one norm a head size) or full (over all heads)."""
    heads = f.integer("num_attention_heads")
    kv = kv_heads or f.integer("num_key_value_heads", heads)
    if kv > heads or heads % kv:
        raise ConfigError(
            f.label("num_key_value_heads"),
            kv,
            f"it should divide num_attention_heads = {heads}",
            "correct one of the two",
        )
    head_dim = head_dim or f.optional("head_dim")
    if head_dim is None:
        hidden = f.integer("hidden_size")
        if hidden % heads:
            raise ConfigError(
                f.label("num_attention_heads"),
                heads,
                f"it does not divide hidden_size = {hidden}",
                "correct it or give head_dim",
            )
        head_dim = hidden // heads
    norms = {"none": 0, "head": 2 * head_dim, "full": (heads + kv) * head_dim}[qk_norm]
    return Attention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm_parameters=norms,
        **more,
    )


def plain_attention(f: Fields, **more: Any) -> Attention:
    """Attention whose projections all follow ``attention_bias``."""
    bias = f.flag("attention_bias")
    return attention(f, qkv_bias=bias, output_bias=bias, **more)


def latent_attention(f: Fields, **more: Any) -> LatentAttention:
    """Latent attention from DeepSeek's fields."""
    return LatentAttention(
        num_heads=f.integer("num_attention_heads"),
        q_lora_rank=f.optional("q_lora_rank"),
        kv_lora_rank=f.integer("kv_lora_rank"),
        qk_nope_head_dim=f.integer("qk_nope_head_dim"),
        qk_rope_head_dim=f.integer("qk_rope_head_dim"),
        v_head_dim=f.integer("v_head_dim"),
        bias=f.flag("attention_bias"),
        **more,
    )


def dense(
    f: Fields, *, gated: bool = True, bias: bool = False, width: int | None = None, **more: Any
) -> DenseFeedForward:
    """A dense feed-forward part of ``intermediate_size``, or of ``width``."""
    return DenseFeedForward(intermediate_size=width or f.integer("intermediate_size"), gated=gated, bias=bias, **more)


def experts(f: Fields, *, width: str = "moe_intermediate_size", shared: int = 0, **more: Any) -> MixtureOfExperts:
    """Experts from the usual fields; ``width`` names the field with the width of one expert."""
    number = f.integer("num_experts")
    used = f.integer("num_experts_per_tok")
    if used > number:
        raise ConfigError(
            f.label("num_experts_per_tok"),
            used,
            f"it exceeds the number of experts, {number}",
            "correct one of the two",
        )
    return MixtureOfExperts(
        num_experts=number,
        num_experts_per_token=used,
        intermediate_size=f.integer(width),
        shared_intermediate_size=shared,
        **more,
    )


def shared_width(f: Fields) -> int:
    """Width of all shared experts together, however the config says it."""
    explicit = f.optional("shared_expert_intermediate_size", minimum=0)
    if explicit is None:
        explicit = f.optional("shared_intermediate_size", minimum=0)
    if explicit is not None:
        return explicit
    shared = f.optional("n_shared_experts", minimum=0) or 0
    return shared * f.integer("moe_intermediate_size") if shared else 0


def mamba2(f: Fields, heads: str, head_dim: str | int, state: str, groups: str, kernel: str, **more: Any) -> Mamba2:
    """A Mamba-2 mixer; the arguments name the fields, or give the head size itself."""
    return Mamba2(
        num_heads=f.integer(heads),
        head_dim=head_dim if isinstance(head_dim, int) else f.integer(head_dim),
        state_size=f.integer(state),
        num_groups=f.integer(groups, 1),
        conv_kernel=f.integer(kernel, 4),
        **more,
    )


# --- layers of a model ------------------------------------------------------------------------------------------------


def layer_kinds(f: Fields, *names: str) -> tuple[str, ...] | None:
    """The kind of every layer, from the first of ``names`` that the config has; None where it has none."""
    number = f.integer("num_hidden_layers")
    return next((kinds for kinds in (f.kinds(name, number) for name in names) if kinds is not None), None)


def windowed(f: Fields, whole: Attention, period: int = 0, *, key: str = "sliding_window") -> list[Attention]:
    """One attention a layer: by ``layer_types``, else every ``period``-th sees everything and the others a window."""
    n = f.integer("num_hidden_layers")
    window = f.optional(key)
    local = whole if window is None else whole.replace(window=window)
    kinds = f.kinds("layer_types", n)
    if kinds is None:
        return [whole if period and (i + 1) % period == 0 else local for i in range(n)]
    return [whole if "full" in kind or kind == "attention" else local for kind in kinds]


def grouped(layers: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Equal layers counted together, in order of first appearance."""
    counts: Counter[LayerGroup] = Counter()
    for layer in layers:
        counts[layer] += layer.count
    return tuple(layer if layer.count == count else layer.replace(count=count) for layer, count in counts.items())


def uniform(
    f: Fields,
    mixer: Mixer | None,
    feed_forward: FeedForward | None,
    *,
    norms: int = 2,
    norm_bias: bool = False,
    tied: bool = False,
    extra: Mapping[str, int] | None = None,
    **more: Any,
) -> Skeleton:
    """A model of equal layers: ``norms`` norms a layer and one at the end, each h (RMS) or 2 h (with bias)."""
    one = f.integer("hidden_size") * (2 if norm_bias else 1)
    group = LayerGroup(
        count=f.integer("num_hidden_layers"),
        mixer=mixer,
        feed_forward=feed_forward,
        norm_parameters=norms * one,
        **more,
    )
    return Skeleton((group,), Counter({"norms": one}) + Counter(extra), f.flag("tie_word_embeddings", tied))


def mixed(
    f: Fields,
    layers: Iterable[tuple[Mixer | None, FeedForward | None]],
    *,
    norms: int = 2,
    norm_bias: bool = False,
    tied: bool = False,
    extra: Mapping[str, int] | None = None,
    **more: Any,
) -> Skeleton:
    """A model of unequal layers, each with ``norms`` norms."""
    one = f.integer("hidden_size") * (2 if norm_bias else 1)
    counts = Counter(layers)
    groups = tuple(
        LayerGroup(count=count, mixer=mixer, feed_forward=feed_forward, norm_parameters=norms * one, **more)
        for (mixer, feed_forward), count in counts.items()
    )
    return Skeleton(groups, Counter({"norms": one}) + Counter(extra), f.flag("tie_word_embeddings", tied))


def stacked(f: Fields, mixers: Iterable[Mixer | None], feed_forward: FeedForward | None, **more: Any) -> Skeleton:
    """A model whose layers differ in their mixers only; ``more`` as for ``mixed``."""
    return mixed(f, [(mixer, feed_forward) for mixer in mixers], **more)


def sparse_after_dense(
    f: Fields,
    mixer: Mixer | Sequence[Mixer],
    sparse: MixtureOfExperts,
    *,
    feed_forward: DenseFeedForward | None = None,
    **more: Any,
) -> Skeleton:
    """Some dense layers first (or named as such), experts in the others.

    Experts may stand in every ``moe_layer_freq``-th or ``decoder_sparse_step``-th layer only; ``moe_layer_freq`` may be a
    list with 1 for each layer with experts, and ``mlp_layer_types`` or ``is_moe_layer`` may name them.
    """
    number = f.integer("num_hidden_layers")
    mixers = mixer if isinstance(mixer, Sequence) else [mixer] * number
    has_experts = _layers_with_experts(f, number)
    plain = None if all(has_experts) else feed_forward or dense(f)
    return mixed(
        f, [(one, sparse if is_sparse else plain) for one, is_sparse in zip(mixers, has_experts, strict=True)], **more
    )


def _layers_with_experts(f: Fields, number: int) -> list[bool]:
    kinds = f.kinds("mlp_layer_types", number)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    for name in ("is_moe_layer", "moe_layer_freq"):
        value = f.get(name)
        if isinstance(value, list | tuple):
            flags = Fields({name: [int(item) if isinstance(item, bool) else item for item in value]}, path=f.path)
            return [bool(item) for item in flags.integers(name, number) or ()]
    first = f.optional("first_k_dense_replace", minimum=0) or 0
    named = f.indices("mlp_only_layers")
    step = f.integer("decoder_sparse_step", f.integer("moe_layer_freq", 1))
    offset = 1 if f.get("decoder_sparse_step") is not None else 0
    return [i >= first and i not in named and (i + offset) % step == 0 for i in range(number)]
