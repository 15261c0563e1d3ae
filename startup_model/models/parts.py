"""What families are made of: parts of layers from the usual fields of a config.json and the switches of a family, and models from layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

from startup_model.errors import out_of_range
from startup_model.models import layers
from startup_model.models.fields import Fields
from startup_model.models.layers import Attention, FeedForward, LatentAttention, LayerGroup, Mixer

Switch = bool | str
"""On, off, or as flags of the config say: ``"a|b"`` is on with either of the two, ``"!a"`` without it."""


class Family(NamedTuple):
    """One make of models, a row of ``data/families.toml``: the function that builds its layers, and its switches."""

    build: str = "decoder"
    """Function of ``decoders`` or ``recurrent``."""
    defaults: Mapping[str, Any] = {}
    """Those of the model's configuration class: a config.json leaves out what equals them."""
    mixer: Literal["attention", "latent", "indexed", "mimo"] = "attention"
    bias: Switch = False
    """Biases of attention, where the next two say nothing else."""
    qkv_bias: Switch | None = None
    output_bias: Switch | None = None
    kv_heads: Literal["given", "one", "all"] = "given"
    kv_heads_if: Switch = True
    qk_norm: Literal["none", "head", "full", "biased"] = "none"
    """Norms of q and k: of the head size, over all heads, of the head size with biases."""
    qk_norm_if: Switch = True
    output_gate: bool = False
    sinks: bool = False
    windows: Literal["none", "plain", "typed", "last"] = "none"
    """Which layers see ``sliding_window`` tokens: all; those that ``layer_types`` names, else all but each ``period``-th; from ``max_window_layers`` on."""
    windows_if: Switch = True
    period: int | str = 0
    """A number, or the field that has it; 0: no layer sees everything."""
    first_whole: int | None = None
    """Index of the first layer that sees everything; None: the last of the first period."""
    gated: bool = True
    mlp_bias: Switch = False
    width: Literal["given", "four", "half"] = "given"
    """Width of the dense part: ``intermediate_size``, four times the hidden size where it is not given, half of it."""
    experts: Literal["none", "if_any", "always"] = "none"
    expert_width: str = "moe_intermediate_size"
    """Field (``a|b``: the first that is given) with the width of one expert."""
    shared: str = ""
    """Width of all shared experts together as a product of fields (``a|b*c``: the first that is given)."""
    shared_gate: bool = False
    expert_bias: Switch = False
    router_bias: Switch = False
    norms: int = 2
    """Norms a layer; 0: norms have no parameters."""
    norm_bias: Switch = False
    parallel: Switch = False
    """Attention and feed-forward part read the same input ..."""
    parallel_norms: int | None = None
    """... and a layer then has this many norms."""
    other: Mapping[str, int] = {}
    """Further parameters of a layer: field -> factor; ``head_dim`` is that of the attention, ``one`` is 1."""
    tied: bool = False
    """The head is the embedding unless the config says otherwise."""
    head_bias: Switch = False
    positions: bool = False
    """Learned positions."""
    embedding_norm: bool = False


class Skeleton(NamedTuple):
    """A model's structure, names and files aside."""

    layers: tuple[LayerGroup, ...]
    extra: dict[str, int]
    """Parameters outside the layers by kind, those of the embedding and of the head aside."""
    tied: bool
    """The head is the embedding."""
    embedding_width: int | None = None
    """Width of the embedding where it differs from the hidden size."""


def is_on(f: Fields, switch: Switch) -> bool:
    """What a switch of a family says for one config."""
    if isinstance(switch, bool):
        return switch
    return any(f.flag(name.removeprefix("!")) != name.startswith("!") for name in switch.split("|"))


# --- parts of a layer -------------------------------------------------------------------------------------------------


def attention(
    f: Fields, family: Family, kv_heads: int | None = None, head_dim: int | None = None, **more: Any
) -> Attention:
    """Attention from the usual fields; ``more`` are further fields of Attention."""
    heads = f.integer("num_attention_heads")
    if kv_heads is None and family.kv_heads != "given" and is_on(f, family.kv_heads_if):
        kv_heads = heads if family.kv_heads == "all" else 1
    kv = kv_heads or f.integer("num_key_value_heads", heads)
    if kv > heads or heads % kv:
        bounds = f"a divisor of num_attention_heads = {heads}"
        raise out_of_range(f.label("num_key_value_heads"), kv, bounds, "correct one of the two")
    head_dim = head_dim or f.optional("head_dim")
    head_dim = head_dim or share(f, f.integer("hidden_size"), "num_attention_heads", "hidden_size")
    norms = {"none": 0, "head": 2 * head_dim, "full": (heads + kv) * head_dim, "biased": 4 * head_dim}[family.qk_norm]
    return Attention(
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=head_dim,
        qkv_bias=is_on(f, family.bias if family.qkv_bias is None else family.qkv_bias),
        output_bias=is_on(f, family.bias if family.output_bias is None else family.output_bias),
        qk_norm_parameters=norms if norms and is_on(f, family.qk_norm_if) else 0,
        **{name: True for name in ("sinks", "output_gate") if getattr(family, name)} | more,
    )


def share(f: Fields, size: int, heads: str, name: str = "the inner size") -> int:
    """``size`` / heads, which has to be whole."""
    number = f.integer(heads)
    if size % number:
        raise out_of_range(f.label(heads), number, f"a divisor of {name} = {size}", "correct it, or give the head size")
    return size // number


def latent_attention(f: Fields, **more: Any) -> LatentAttention:
    """Latent attention from DeepSeek's fields."""
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    numbers: dict[str, Any] = {name: f.integer(name) for name in names}
    heads, rank = f.integer("num_attention_heads"), f.optional("q_lora_rank")
    return LatentAttention(num_heads=heads, q_lora_rank=rank, **numbers, bias=f.flag("attention_bias"), **more)


def dense(f: Fields, family: Family, width: int | None = None, **more: Any) -> layers.DenseFeedForward:
    """A dense feed-forward part of ``intermediate_size``, or of ``width``."""
    if width is None:
        four = 4 * f.integer("hidden_size") if family.width == "four" else None
        width = max(1, f.integer("intermediate_size", four) // (2 if family.width == "half" else 1))
    return layers.DenseFeedForward(intermediate_size=width, gated=family.gated, bias=is_on(f, family.mlp_bias), **more)


def experts(f: Fields, family: Family, **more: Any) -> layers.MixtureOfExperts:
    """Experts from the usual fields; ``more`` are further fields of MixtureOfExperts."""
    number, used = f.integer("num_experts"), f.integer("num_experts_per_tok")
    if used > number:
        bounds = f"at most the number of experts, {number}"
        raise out_of_range(f.label("num_experts_per_tok"), used, bounds, "correct one of the two")
    widths = family.expert_width.split("|")
    return layers.MixtureOfExperts(
        num_experts=number,
        num_experts_per_token=used,
        intermediate_size=f.integer(next((name for name in widths if f.get(name) is not None), widths[-1])),
        gated=family.gated,
        bias=is_on(f, family.expert_bias),
        router_bias=is_on(f, family.router_bias),
        shared_intermediate_size=_shared_width(f, family.shared),
        shared_gate=family.shared_gate,
        **more,
    )


def _shared_width(f: Fields, fields: str) -> int:
    for names in (product.split("*") for product in fields.split("|")):
        if all(f.get(name) is not None for name in names):
            return prod(f.integer(name, minimum=0) for name in names)
    return 0


# --- layers of a model ------------------------------------------------------------------------------------------------


def layer_kinds(f: Fields, *names: str) -> tuple[str, ...] | None:
    """The kind of every layer, from the first of ``names`` that the config has; None where it has none."""
    number = f.integer("num_hidden_layers")
    return next((kinds for kinds in (f.kinds(name, number) for name in names) if kinds is not None), None)


def is_attention(kind: str) -> bool:
    """Whether the name of a kind of layer means attention to everything."""
    return kind == "attention" or "full" in kind


def windowed(f: Fields, family: Family, whole: Attention) -> list[Attention]:
    """One attention a layer: which see a window, and which everything."""
    number = f.integer("num_hidden_layers")
    if family.windows == "none" or not is_on(f, family.windows_if):
        return [whole] * number
    window = f.optional("sliding_window")
    local = whole if window is None else whole.replace(window=window)
    if family.windows == "plain":
        return [local if f.get("layer_types") is None else whole] * number
    kinds = None if window is None and family.windows == "last" else f.kinds("layer_types", number)
    if kinds is not None:
        return [whole if is_attention(kind) else local for kind in kinds]
    if family.windows == "last":
        first = f.integer("max_window_layers", number, minimum=0)
        return [local if i >= first else whole for i in range(number)]
    period = _period(f, family.period)
    at = (period - 1 if family.first_whole is None else family.first_whole) if period else -1
    return [whole if period and i % period == at else local for i in range(number)]


def _period(f: Fields, period: int | str) -> int:
    if isinstance(period, int):
        return period
    word = f.get(period)  # a number, or a word such as LLLG
    return len(word) if isinstance(word, str) and word else f.integer(period, f.defaults.get(period))


def grouped(groups: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Equal layers counted together, in order of first appearance."""
    counts: Counter[LayerGroup] = Counter()
    for group in groups:
        counts[group] += group.count
    return tuple(group if group.count == count else group.replace(count=count) for group, count in counts.items())


def mixed(
    f: Fields,
    family: Family,
    mixers: Sequence[Mixer | None] | Mixer | None,
    feed_forwards: Sequence[FeedForward | None] | FeedForward | None,
    extra: Mapping[str, int] | None = None,
    other_parameters: int = 0,
    **more: Any,
) -> Skeleton:
    """A model of layers with a mixer and a feed-forward part each, one for all or a list; norms, ends and ties as the family has them."""
    hidden, parallel = f.integer("hidden_size"), is_on(f, family.parallel)
    one = hidden * (2 if is_on(f, family.norm_bias) else 1)
    norms = family.norms if not parallel or family.parallel_norms is None else family.parallel_norms
    number = f.integer("num_hidden_layers")
    each = (part if isinstance(part, Sequence) else [part] * number for part in (mixers, feed_forwards))
    pairs = list(zip(*each, strict=True))
    keys = [(id(mixer), id(feed_forward)) for mixer, feed_forward in pairs]  # hashing each layer is slow
    unique = dict(zip(keys, pairs, strict=True))
    counts: Counter[Any] = Counter()
    for key, count in Counter(keys).items():
        counts[unique[key]] += count
    groups = []
    for (mixer, feed_forward), count in counts.items():
        other = other_parameters + sum(factor * _number(f, mixer, name) for name, factor in family.other.items())
        made = {"mixer": mixer, "feed_forward": feed_forward, "norm_parameters": norms * one, "other_parameters": other}
        groups.append(LayerGroup(count=count, parallel=parallel, **made, **more))
    ends = {"norms": one if norms else 0, "embedding": 2 * hidden if family.embedding_norm else 0}
    if family.positions:
        ends["embedding"] += f.integer("max_position_embeddings") * hidden
    if is_on(f, family.head_bias):
        ends["head"] = f.integer("vocab_size")
    for kind, number in (extra or {}).items():
        ends[kind] = ends.get(kind, 0) + number
    ends = {kind: number for kind, number in ends.items() if number}
    return Skeleton(tuple(groups), ends, f.flag("tie_word_embeddings", family.tied))


def _number(f: Fields, mixer: Mixer | None, name: str) -> int:
    if name == "head_dim" and isinstance(mixer, Attention):
        return mixer.head_dim
    return 1 if name == "one" else f.integer(name)


def with_experts(f: Fields, family: Family, mixers: Sequence[Mixer] | Mixer, sparse: FeedForward) -> Skeleton:
    """Experts in some layers, dense parts in the others.

    Where: as ``mlp_layer_types``, ``is_moe_layer`` or a list ``moe_layer_freq`` name them, between two layers at an interval, or from
    ``first_k_dense_replace`` on in every ``moe_layer_freq``-th or ``decoder_sparse_step``-th layer that ``mlp_only_layers`` does not name.
    """
    has_experts = _layers_with_experts(f, f.integer("num_hidden_layers"))
    plain = None if all(has_experts) else dense(f, family)
    return mixed(f, family, mixers, [sparse if one else plain for one in has_experts])


def _layers_with_experts(f: Fields, number: int) -> list[bool]:
    kinds = f.kinds("mlp_layer_types", number)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    for name in ("is_moe_layer", "moe_layer_freq"):
        value = f.get(name)
        if isinstance(value, list | tuple):
            flags = f.but(**{name: [int(item) if isinstance(item, bool) else item for item in value]})
            return [bool(item) for item in flags.integers(name, number) or ()]
    if f.get("moe_layer_interval") is not None:
        first, last = f.integer("moe_layer_start_index", minimum=0), f.integer("moe_layer_end_index", minimum=-1)
        step, last = f.integer("moe_layer_interval"), number - 1 if last == -1 else last
        return [(i + 1) % step == 0 and first <= i <= last for i in range(number)]
    first, named = f.optional("first_k_dense_replace", minimum=0) or 0, f.indices("mlp_only_layers")
    step = f.integer("decoder_sparse_step", f.integer("moe_layer_freq", 1))
    offset = 1 if f.get("decoder_sparse_step") is not None else 0
    return [i >= first and i not in named and (i + offset) % step == 0 for i in range(number)]
