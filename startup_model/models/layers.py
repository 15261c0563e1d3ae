"""What a decoder layer is made of, and how many parameters each part holds.

A layer is a mixer (attention, latent attention, state space, linear attention, convolution or nothing), a feed-forward
part (dense, mixture of experts or nothing) and norms; a few families put several mixers or feed-forward parts into one
layer. A model is a tuple of groups of equal layers, whatever its family.

Every part answers ``parameters(hidden_size, tp=1, ep=1)``: parameters by kind that ONE rank holds when matrices are cut
over ``tp`` tensor-parallel ranks and experts over ``ep`` expert-parallel ranks. With the defaults that is the whole
part.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field

from startup_model.frozen import FrozenModel

Count = Annotated[int, Field(ge=1, le=10**9)]
_CountOrZero = Annotated[int, Field(ge=0, le=10**9)]


def split(size: int, ranks: int) -> int:
    """Largest share of ``size`` equal things that one of ``ranks`` holds: ceil(size / ranks)."""
    return -(-size // ranks)


class _Mixer(FrozenModel):
    """A mixer; its docstring says how many parameters it has."""

    def token_numbers(self, tp: int = 1) -> int:
        """Numbers that one rank caches for a token."""
        return 0

    def state_numbers(self, tp: int = 1) -> int:
        """Numbers that one rank keeps for a request."""
        return 0


class Attention(_Mixer):
    """Multi-head, grouped-query or multi-query attention.

    parameters = h x n x d x (1 + gate) + h x n_kv x (d + d_v) + n x d_v x h (+ biases, + norms of q and k, + sinks),
    d_v = d unless given; under tensor parallelism the KV heads are replicated once there are more ranks than KV heads.
    q, k and v read ``input_size`` instead of h where it is given; an adapter of rank r adds r x (2 x input + outputs).
    """

    kind: Literal["attention"] = "attention"
    num_heads: Count
    num_kv_heads: Count
    head_dim: Count
    window: Count | None = None
    """Tokens that a sliding-window or chunked layer can see; None: all."""
    chunked: bool = False
    """The window starts at multiples of its length instead of sliding (Llama 4)."""
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm_parameters: _CountOrZero = 0
    """Parameters of the norms of q and k, both together."""
    sinks: bool = False
    """One learned sink logit a head (gpt-oss)."""
    output_gate: bool = False
    """The query projection also yields a gate of the same width (Qwen3-Next)."""
    shares_kv_of_another_layer: bool = False
    """The layer projects no keys and values and keeps no cache of its own (cross-layer sharing)."""
    value_head_dim: Count | None = None
    """Width of a value head where it differs from ``head_dim``, which is that of queries and keys (MiMo-V2)."""
    keys_are_values: bool = False
    """One projection yields keys and values (full layers of the larger Gemma 4 models); both are cached."""
    attends_to_images: bool = False
    """Keys and values are those of the image, not of the text: no cache that grows with the text (Mllama)."""
    shares_weights_of_another_layer: bool = False
    """The matrices are those of another layer; the cache is the layer's own (Zamba)."""
    input_size: Count | None = None
    """Width of what q, k and v read, where it differs from the hidden size (Zamba reads twice the hidden size)."""
    adapter_rank: _CountOrZero = 0
    """Rank of the layer's own adapters of q, k and v beside shared matrices (Zamba 2); 0: none."""

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.value_head_dim or self.head_dim

    def token_numbers(self, tp: int = 1) -> int:
        """Numbers that one rank caches for a token: ceil(n_kv / tp) x (d + d_v); 0 where it caches none of its own."""
        if self.shares_kv_of_another_layer or self.attends_to_images:
            return 0
        return split(self.num_kv_heads, tp) * (self.head_dim + self.value_dim)

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        heads, kv_heads = split(self.num_heads, tp), split(self.num_kv_heads, tp)
        q_width = heads * self.head_dim * (2 if self.output_gate else 1)
        one_kv = self.head_dim + (0 if self.keys_are_values else self.value_dim)
        projected = q_width + (0 if self.shares_kv_of_another_layer else kv_heads * one_kv)
        width = self.input_size or hidden_size
        attention = width * projected + heads * self.value_dim * hidden_size
        attention += projected * self.qkv_bias + hidden_size * self.output_bias + heads * self.sinks
        attention *= not self.shares_weights_of_another_layer
        own = self.adapter_rank * (3 * width + projected)
        return Counter(attention=own + attention, norms=self.qk_norm_parameters)


class LatentAttention(_Mixer):
    """Multi-head latent attention (DeepSeek): keys and values are kept as one compressed vector a token.

    parameters = [h x r_q + r_q + r_q x n x (nope + rope)  or  h x n x (nope + rope)] + h x (r_kv + rope) + r_kv
    + r_kv x n x (nope + v) + n x v x h. The down-projections are replicated on every tensor-parallel rank, and so is
    the indexer of sparse attention (DeepSeek-V3.2): r_q x n_i x d_i + h x d_i + 2 d_i + h x n_i.
    """

    kind: Literal["latent_attention"] = "latent_attention"
    num_heads: Count
    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    bias: bool = False
    index_num_heads: _CountOrZero = 0
    """Heads of the indexer that picks the tokens to attend to; 0: all are, or another layer's choice is used."""
    index_head_dim: _CountOrZero = 0
    """Width of the indexer's keys, of which it caches one a token beside the compressed vector."""
    window: None = None

    @property
    def num_kv_heads(self) -> int:
        """The compressed cache is one copy, whatever the number of heads."""
        return 1

    @property
    def head_dim(self) -> int:
        """Width of a query head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def token_numbers(self, tp: int = 1) -> int:
        """Numbers that every rank caches for a token: r_kv + rope, and the indexer's key."""
        return self.kv_lora_rank + self.qk_rope_head_dim + self.index_head_dim

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        heads = split(self.num_heads, tp)
        down = hidden_size * (self.q_lora_rank or 0)
        query = down + (self.q_lora_rank or hidden_size) * heads * self.head_dim
        compressed = hidden_size * (self.kv_lora_rank + self.qk_rope_head_dim)
        expanded = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        output = heads * self.v_head_dim * hidden_size
        biases = ((self.q_lora_rank or 0) + self.kv_lora_rank + self.qk_rope_head_dim + hidden_size) * self.bias
        index_width = self.index_num_heads * self.index_head_dim
        indexer = (self.q_lora_rank or hidden_size) * index_width
        indexer += hidden_size * (self.index_head_dim + self.index_num_heads) if index_width else 0
        norms = (self.q_lora_rank or 0) + self.kv_lora_rank + (2 * self.index_head_dim if index_width else 0)
        return Counter(attention=query + compressed + expanded + output + biases + indexer, norms=norms)


class Mamba(_Mixer):
    """A Mamba-1 selective state space.

    parameters = h x 2i + i x k (+ i) + i x (r + 2s) + r x i + i + i x s + i + i x h (+ biases), i = inner size, k =
    kernel, r = rank of dt, s = state size (+ norms of dt, B and C in Jamba). Heads (Zamba) cut i into independent
    parts, each with its own selection, and leave the count as it is.
    """

    kind: Literal["mamba"] = "mamba"
    inner_size: Count
    state_size: Count
    conv_kernel: Count
    time_step_rank: Count
    conv_bias: bool = True
    projection_bias: bool = False
    inner_norms: bool = False
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """i x (k - 1) + i x s."""
        return split(self.inner_size, tp) * (self.conv_kernel - 1 + self.state_size)

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        inner = split(self.inner_size, tp)
        projections = hidden_size * 2 * inner + inner * hidden_size
        projections += (2 * inner + hidden_size) * self.projection_bias
        convolution = inner * self.conv_kernel + inner * self.conv_bias
        selection = inner * (self.time_step_rank + 2 * self.state_size) + self.time_step_rank * inner + inner
        state = inner * self.state_size + inner
        norms = (self.time_step_rank + 2 * self.state_size) * self.inner_norms
        return Counter(state_space=projections + convolution + selection + state, norms=norms)


class Mamba2(_Mixer):
    """A Mamba-2 state space.

    parameters = h x (2i + 2gs + n) + (i + 2gs) x (k + 1) + 3n + i + i x h (+ biases), i = inner size = n x head size, g
    = groups, s = state size, n = heads, k = kernel.
    """

    kind: Literal["mamba2"] = "mamba2"
    num_heads: Count
    head_dim: Count
    state_size: Count
    num_groups: Count
    conv_kernel: Count
    conv_bias: bool = True
    projection_bias: bool = False
    norm: bool = True
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """(i + 2gs) x (k - 1) + i x s."""
        heads = split(self.num_heads, tp)
        channels = heads * self.head_dim + 2 * split(self.num_groups, tp) * self.state_size
        return channels * (self.conv_kernel - 1) + heads * self.head_dim * self.state_size

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        heads = split(self.num_heads, tp)
        inner = heads * self.head_dim
        convolution = inner + 2 * split(self.num_groups, tp) * self.state_size
        projection = hidden_size * (inner + convolution + heads) + inner * hidden_size
        projection += (inner + convolution + heads + hidden_size) * self.projection_bias
        state = convolution * self.conv_kernel + convolution * self.conv_bias + 3 * heads
        return Counter(state_space=projection + state, norms=inner * self.norm)


class GatedDeltaNet(_Mixer):
    """Linear attention by the gated delta rule (Qwen3-Next).

    parameters = h x (2 n_k d_k + 2 n_v d_v) + h x 2 n_v + (2 n_k d_k + n_v d_v) x kernel + 2 n_v + d_v + n_v d_v x h.
    """

    kind: Literal["linear_attention"] = "linear_attention"
    num_key_heads: Count
    num_value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    conv_kernel: Count
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """channels x (k - 1) + n_v x d_k x d_v."""
        state = split(self.num_value_heads, tp) * self.key_head_dim * self.value_head_dim
        channels = 2 * self.num_key_heads * self.key_head_dim + self.num_value_heads * self.value_head_dim
        return split(channels, tp) * (self.conv_kernel - 1) + state

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        keys = split(self.num_key_heads, tp) * self.key_head_dim
        value_heads = split(self.num_value_heads, tp)
        values = value_heads * self.value_head_dim
        projections = hidden_size * (2 * keys + 2 * values + 2 * value_heads) + values * hidden_size
        convolution = (2 * keys + values) * self.conv_kernel
        return Counter(state_space=projections + convolution + 2 * value_heads, norms=self.value_head_dim)


class KimiDeltaAttention(_Mixer):
    """Linear attention by the delta rule with a forget gate for each channel (Kimi Linear).

    parameters = 3 x h x n d + 3 n d x kernel + n d + n + 2 x (h x d + d x n d) + h x n + d + n d x h, n = heads, d =
    head size.
    """

    kind: Literal["kimi_delta_attention"] = "kimi_delta_attention"
    num_heads: Count
    head_dim: Count
    conv_kernel: Count
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """3 n d x (k - 1) + n x d x d."""
        heads = split(self.num_heads, tp)
        return 3 * heads * self.head_dim * (self.conv_kernel - 1) + heads * self.head_dim**2

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        heads = split(self.num_heads, tp)
        inner = heads * self.head_dim
        projections = 4 * hidden_size * inner + 3 * inner * self.conv_kernel
        gates = 2 * self.head_dim * (hidden_size + inner) + inner + heads + hidden_size * heads
        return Counter(state_space=projections + gates, norms=self.head_dim)


class LightningAttention(_Mixer):
    """Linear attention with a fixed decay for each head and an output gate (MiniMax-01).

    parameters = 3 x h x n d + h x n d + n d x h + n d (norm), n = heads, d = head size; its state is n x d x d numbers.
    """

    kind: Literal["lightning_attention"] = "lightning_attention"
    num_heads: Count
    head_dim: Count
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """n x d x d."""
        return split(self.num_heads, tp) * self.head_dim**2

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        inner = split(self.num_heads, tp) * self.head_dim
        return Counter(state_space=5 * hidden_size * inner, norms=inner)


class ShortConvolution(_Mixer):
    """A gated convolution over a few tokens (LFM2): h x 3c + c x k + c x h (+ biases 3c + c + h), c = channels."""

    kind: Literal["short_convolution"] = "short_convolution"
    channels: Count
    conv_kernel: Count
    bias: bool = False
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """c x (k - 1)."""
        return split(self.channels, tp) * (self.conv_kernel - 1)

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        channels = split(self.channels, tp)
        projections = 4 * hidden_size * channels + channels * self.conv_kernel
        return Counter(state_space=projections + (4 * channels + hidden_size) * self.bias)


class GatedLinearRecurrence(_Mixer):
    """A real-gated linear recurrent unit between projections (RecurrentGemma).

    parameters = 2 x (h x i + i) + i x h + h + i x k + i + i + 2 x (i^2 / n + i), i = width, n = blocks of the gates, k
    = kernel.
    """

    kind: Literal["gated_linear_recurrence"] = "gated_linear_recurrence"
    inner_size: Count
    num_blocks: Count
    conv_kernel: Count
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """i x (k - 1) + i."""
        return split(self.inner_size, tp) * self.conv_kernel

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        inner = split(self.inner_size, tp)
        projections = 3 * hidden_size * inner + 2 * inner + hidden_size
        convolution = inner * (self.conv_kernel + 1)
        gates = 2 * inner * (self.inner_size // self.num_blocks) + 3 * inner
        return Counter(state_space=projections + convolution + gates)


class ReceptanceTimeMix(_Mixer):
    """The time mixing of RWKV-4: 4 x h x i + 2 i + 3 h, i = width of the recurrence."""

    kind: Literal["time_mix"] = "time_mix"
    inner_size: Count
    window: None = None

    def state_numbers(self, tp: int = 1) -> int:
        """three of the recurrence and the last input, 4 i."""
        return 4 * split(self.inner_size, tp)

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        inner = split(self.inner_size, tp)
        return Counter(state_space=4 * hidden_size * inner + 2 * inner + 3 * hidden_size)


class DenseFeedForward(FrozenModel):
    """A dense feed-forward part: gated 3 x h x f, plain 2 x h x f (+ biases, + r x (h + 2 f) for an adapter of rank r)."""

    kind: Literal["dense"] = "dense"
    intermediate_size: Count
    gated: bool = True
    bias: bool = False
    shares_weights_of_another_layer: bool = False
    """The matrices are those of another layer (Zamba)."""
    adapter_rank: _CountOrZero = 0
    """Rank of the layer's own adapter of the up-projection beside shared matrices (Zamba 2); 0: none."""

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        width = split(self.intermediate_size, tp)
        up = 2 if self.gated else 1
        whole = (up + 1) * hidden_size * width + (up * width + hidden_size) * self.bias
        own = self.adapter_rank * (hidden_size + up * width)
        return Counter(mlp=own + whole * (not self.shares_weights_of_another_layer))


class ReceptanceFeedForward(FrozenModel):
    """The channel mixing of RWKV-4: 2 x h x f + h x h + 2 h (key, value, receptance, mixes)."""

    kind: Literal["channel_mix"] = "channel_mix"
    intermediate_size: Count

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        width = split(self.intermediate_size, tp)
        return Counter(mlp=2 * hidden_size * width + hidden_size * hidden_size + 2 * hidden_size)


class MixtureOfExperts(FrozenModel):
    """A router and experts, of which each token uses a few, beside experts that every token uses.

    parameters = h x E (+ E) + E x (3 or 2) x h x f_moe (+ biases) + (3 or 2) x h x f_shared (+ h for the gate of the
    shared part). Experts that return their input (LongCat) have a row in the router and nothing else; experts that work
    at a smaller width l read a projection h x l and are followed by one l x h, both counted with the shared experts.
    """

    kind: Literal["moe"] = "moe"
    num_experts: Count
    num_experts_per_token: Count
    intermediate_size: Count
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_intermediate_size: _CountOrZero = 0
    """Width of all shared experts together; 0: none."""
    shared_gate: bool = False
    """The shared part is weighted by a gate of its own (h parameters)."""
    num_identity_experts: _CountOrZero = 0
    """Experts that return their input and hold no parameters, beside ``num_experts``."""
    latent_size: Count | None = None
    """Width at which the experts work, where it is not the hidden size (Nemotron 3 Super)."""

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        # Expert parallelism spreads whole experts; without it each expert is cut over the tensor-parallel ranks.
        experts = split(self.num_experts, ep)
        width = self.intermediate_size if ep > 1 else split(self.intermediate_size, tp)
        up = 2 if self.gated else 1
        inner = self.latent_size or hidden_size
        one = (up + 1) * inner * width + (up * width + inner) * self.bias
        shared = (up + 1) * hidden_size * split(self.shared_intermediate_size, tp)
        projections = 2 * hidden_size * self.latent_size if self.latent_size else 0
        return Counter(
            router=(hidden_size + self.router_bias) * (self.num_experts + self.num_identity_experts),
            experts=experts * one,
            shared_experts=shared + projections + hidden_size * self.shared_gate,
        )


Mixer = Annotated[
    Attention | LatentAttention | Mamba | Mamba2 | GatedDeltaNet | KimiDeltaAttention | LightningAttention | ShortConvolution | GatedLinearRecurrence | ReceptanceTimeMix,
    Field(discriminator="kind"),
]  # fmt: skip
FeedForward = Annotated[DenseFeedForward | MixtureOfExperts | ReceptanceFeedForward, Field(discriminator="kind")]


class LayerGroup(FrozenModel):
    """``count`` layers of one make: a mixer, a feed-forward part (either may be absent), further ones, and norms."""

    count: Count
    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None
    norm_parameters: _CountOrZero = 0
    """Parameters of the norms of ONE layer, those inside the mixer aside."""
    parallel: bool = False
    """Attention and feed-forward read the same input (Falcon, GPT-J, Phi-2)."""
    other_mixers: Annotated[tuple[Mixer, ...], Field(strict=False)] = ()
    """Further mixers: a state space beside the attention (Falcon-H1, Zamba), a second attention (LongCat)."""
    other_feed_forwards: Annotated[tuple[FeedForward, ...], Field(strict=False)] = ()
    """Further feed-forward parts: dense ones beside the experts (LongCat, Arctic, Gemma 4)."""
    other_parameters: _CountOrZero = 0
    """What else ONE layer has (projections of Zamba, AltUp of Gemma 3n), whole on every rank; counted as attention."""

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """All mixers of one layer, the main one first."""
        return (*(() if self.mixer is None else (self.mixer,)), *self.other_mixers)

    @property
    def feed_forwards(self) -> tuple[FeedForward, ...]:
        """All feed-forward parts of one layer, the main one first."""
        return (*(() if self.feed_forward is None else (self.feed_forward,)), *self.other_feed_forwards)

    @property
    def kind(self) -> str:
        """Mixers and feed-forward parts in words, for instance ``"attention+moe"``."""
        return "+".join(part.kind for part in (*self.mixers, *self.feed_forwards)) or "empty"

    def parameters(self, hidden_size: int, tp: int = 1, ep: int = 1) -> Counter[str]:
        """Parameters by kind of ONE layer of the group, on one rank."""
        counts: Counter[str] = Counter(norms=self.norm_parameters, attention=self.other_parameters)
        for part in (*self.mixers, *self.feed_forwards):
            counts.update(part.parameters(hidden_size, tp, ep))
        return counts
