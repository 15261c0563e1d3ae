"""Vision towers and their projectors: parameters from the sections of a multimodal config.json.

A tower is a function of its own section, found by the ``model_type`` of ``vision_config``; a projector, which joins it
to the language model, is a function of both, found by the ``model_type`` of the whole config. Both are rows of ``data/vision.toml``.
A tower or projector that is not there is estimated as a plain vision transformer, and ``Vision.exact`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import Field

from startup_model.errors import wrong_type
from startup_model.files import package_text
from startup_model.frozen import FrozenModel
from startup_model.models.fields import Fields
from startup_model.models.parts import Switch, is_on


class Vision(NamedTuple):
    """What a model's eyes weigh."""

    parameters: int
    """Parameters of the tower and its projector; 0: no tower."""
    exact: bool
    """Tower and projector are in the tables; otherwise the count is the estimate of a plain vision transformer."""


class Tower(FrozenModel):
    """One make of tower: the function that counts it, its switches, and the defaults of its configuration class."""

    count: str = "transformer"
    positions: str = ""
    """Learned positions: none, ``patches`` of an image, ``patches+1``, or as many as a field says."""
    vectors: int = 0
    """Class tokens and norms around the layers, in hidden sizes."""
    patch_bias: bool = True
    plain: bool = False
    """Gated layers without biases."""
    head: bool = False
    """A pooling head, unless the config says otherwise."""
    defaults: dict[str, Any] = Field(default_factory=dict)


class Projector(FrozenModel):
    """One make of projector: inputs (several patches folded into one, perhaps) -> middle -> hidden size of the language model."""

    count: str = "layers"
    tower: str
    """Type of the tower where ``vision_config`` names none that is in the table."""
    inputs: str = "hidden_size"
    fold: str = ""
    norms: int = 0
    """Parameters of a norm over the inputs for each of them."""
    norms_if: Switch = True
    middle: str = ""
    """Width between two layers; "hidden_size" is that of the language model. Nothing: one layer."""
    halved: bool = False
    """The activation between the two layers is gated."""
    bias: Switch = True
    newline: bool = False
    """A learned end of a row of patches."""
    defaults: dict[str, Any] = Field(default_factory=dict)


class Tables(FrozenModel):
    """Towers and projectors by ``model_type``."""

    towers: dict[str, Tower]
    projectors: dict[str, Projector]


@lru_cache(maxsize=1)
def vision_tables() -> Tables:
    """The tables of towers and projectors."""
    import tomllib  # not before a model with a tower is built

    tables = tomllib.loads(package_text("data/vision.toml"))
    for rows in tables.values():
        rows |= {name: rows[row] for name, row in rows.items() if isinstance(row, str)}
    return Tables.model_validate(tables)


def count_vision(config: Mapping[str, Any], language_hidden_size: int) -> Vision:
    """What the tower and projector of a config.json weigh; 0, exactly, without a tower. Raises ConfigError for a field that cannot be."""
    top = Fields(config)
    wrapper = top.section("thinker_config") or top  # of an omni model
    raw = wrapper.section("vision_config")
    if raw is None:
        return Vision(0, exact=True)
    tables = vision_tables()
    projector = tables.projectors.get(wrapper.text("model_type"))
    if projector is None:
        return Vision(_plain_estimate(raw), exact=False)
    tower = tables.towers.get(raw.text("model_type")) or tables.towers[projector.tower]
    vision, whole = Fields(raw.raw, tower.defaults, raw.path), Fields(wrapper.raw, projector.defaults, wrapper.path)
    joined = PROJECTORS[projector.count](whole, vision, language_hidden_size, projector)
    return Vision(TOWERS[tower.count](vision, tower) + joined, exact=True)


def _plain_estimate(f: Fields) -> int:
    """Layers x (4 h^2 + 2 h f) + patch embedding; 0 where the section does not say its size."""
    layers = f.optional("num_hidden_layers") or f.optional("depth")
    hidden = f.optional("hidden_size") or f.optional("embed_dim")
    if layers is None or hidden is None:
        return 0
    width, patch = f.optional("intermediate_size") or 4 * hidden, _side(f, "patch_size", 14)
    return layers * (4 * hidden * hidden + 2 * hidden * width) + 3 * patch * patch * hidden


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _side(f: Fields, name: str, default: int | None = None) -> int:
    """A length in pixels that may be written as one number or as a list of equal ones."""
    value = f.get(name)
    if isinstance(value, list | tuple):
        if not value or any(side != value[0] for side in value):
            raise wrong_type(f.label(name), value, "square: one number or equal ones", "give one number")
        return Fields({name: value[0]}, path=f.path).integer(name)
    return f.integer(name, default)


def _length(f: Fields, name: str) -> int:
    value = f.get(name)
    if value is not None and not isinstance(value, list | tuple):
        raise wrong_type(f.label(name), value, "a list", "check the config.json")
    return len(value or ())


def _patches(f: Fields) -> int:
    """Patches of a whole image: (image / patch)^2."""
    return (_side(f, "image_size") // _side(f, "patch_size")) ** 2


def _embedding(f: Fields, hidden: int, *, bias: bool = True, frames: str = "") -> int:
    channels = f.integer("num_channels", f.integer("in_channels", f.integer("in_chans", 3)))
    return _linear(channels * (f.integer(frames) if frames else 1) * _side(f, "patch_size") ** 2, hidden, bias)


def _encoder(
    layers: int, hidden: int, width: int, *, qkv_bias: bool = True, output_bias: bool = True, mlp_bias: bool = True,
    norm_bias: bool = True, gated: bool = False, other: int = 0,
) -> int:  # fmt: skip
    """Layers of a vision transformer: layers x (4 h^2 + (2 or 3) h f + 2 norms + biases + other)."""
    heads = 3 * _linear(hidden, hidden, qkv_bias) + _linear(hidden, hidden, output_bias)
    mlp = (2 if gated else 1) * _linear(hidden, width, mlp_bias) + _linear(width, hidden, mlp_bias)
    return layers * (heads + mlp + 2 * hidden * (2 if norm_bias else 1) + other)


def _plain(f: Fields, **more: Any) -> int:
    return _encoder(f.integer("num_hidden_layers"), f.integer("hidden_size"), f.integer("intermediate_size"), **more)


# --- towers -----------------------------------------------------------------------------------------------------------


def _transformer(f: Fields, row: Tower) -> int:
    """Patches, learned positions, layers, norms and tokens around them; the head has a probe that attends to all patches, a norm, a feed-forward part."""
    hidden, width = f.integer("hidden_size"), f.integer("intermediate_size")
    positions = f.integer(row.positions) if row.positions and not row.positions.startswith("patches") else 0
    if row.positions.startswith("patches"):
        positions = _patches(f) + row.positions.count("+1")
    biased = not row.plain
    layers = _plain(f, qkv_bias=biased, output_bias=biased, mlp_bias=biased, norm_bias=biased, gated=row.plain)
    head = hidden + 4 * _linear(hidden, hidden) + 2 * hidden + _linear(hidden, width) + _linear(width, hidden)
    has_head = row.head and f.flag("vision_use_head", default=True)
    vectors = (positions + row.vectors) * hidden
    return _embedding(f, hidden, bias=row.patch_bias) + vectors + layers + (head if has_head else 0)


def _internvl(f: Fields, row: Tower) -> int:
    """InternViT: layers scaled by two learned vectors."""
    hidden = f.integer("hidden_size")
    other = 2 * hidden + (2 * hidden if f.flag("use_qk_norm") else 0)
    norm_bias = f.text("norm_type", "layer_norm") == "layer_norm"
    layers = _plain(f, qkv_bias=f.flag("attention_bias"), norm_bias=norm_bias, other=other)
    positions = (_patches(f) + 1) * hidden if f.flag("use_absolute_position_embeddings", default=True) else 0
    last = 0 if f.flag("use_mean_pooling", default=True) else 2 * hidden
    return hidden + (hidden if f.flag("use_mask_token") else 0) + positions + _embedding(f, hidden) + layers + last


def _internvl_chat(f: Fields, row: Tower) -> int:
    """InternViT as the models' own code has it: the same parts under other names, and no norm at the end."""
    names = {"attention_bias": f.flag("qkv_bias"), "use_qk_norm": f.flag("qk_normalization", default=True)}
    return _internvl(f.but(**names, norm_type=f.text("norm_type", "rms_norm"), use_mean_pooling=True), row)


def _llama4(f: Fields, row: Tower) -> int:
    """Llama 4: like CLIP, and an adapter that folds patches together before its two matrices."""
    widths = f.integer("intermediate_size") + f.integer("projector_output_dim")
    return _transformer(f, row) + f.integer("projector_input_dim") * widths


def _qwen2_vl(f: Fields, row: Tower) -> int:
    """Qwen2-VL: ``embed_dim`` wide inside, ``hidden_size`` is that of the language model."""
    inner = f.integer("embed_dim")
    layers = _encoder(f.integer("depth"), inner, inner * f.integer("mlp_ratio"))
    patches = _embedding(f, inner, bias=False, frames="temporal_patch_size")
    return patches + layers + _qwen_merger(f, inner, f.integer("hidden_size"), 2 * inner)


def _qwen2_5_vl(f: Fields, row: Tower) -> int:
    """Qwen2.5-VL: gated layers with RMS norms."""
    inner = f.integer("hidden_size")
    layers = _encoder(f.integer("depth"), inner, f.integer("intermediate_size"), norm_bias=False, gated=True)
    patches = _embedding(f, inner, bias=False, frames="temporal_patch_size")
    return patches + layers + _qwen_merger(f, inner, f.integer("out_hidden_size"), inner)


def _qwen3_vl(f: Fields, row: Tower) -> int:
    """Qwen3-VL and 3.5: learned positions, and one more merger for each layer that feeds the language model directly."""
    inner, outputs = f.integer("hidden_size"), f.integer("out_hidden_size")
    layers = _encoder(f.integer("depth"), inner, f.integer("intermediate_size"))
    deep = _qwen_merger(f, inner, outputs, 2 * inner * f.integer("spatial_merge_size") ** 2)
    mergers = _qwen_merger(f, inner, outputs, 2 * inner) + _length(f, "deepstack_visual_indexes") * deep
    patches = _embedding(f, inner, frames="temporal_patch_size")
    return patches + f.integer("num_position_embeddings") * inner + layers + mergers


def _qwen_merger(f: Fields, inner: int, outputs: int, norm: int) -> int:
    merged = inner * f.integer("spatial_merge_size") ** 2
    return norm + _linear(merged, merged) + _linear(merged, outputs)


def _glm4v(f: Fields, row: Tower) -> int:
    """GLM-4.1V: gated layers, a convolution that merges patches, and a gated part of its own."""
    inner, outputs, width = f.integer("hidden_size"), f.integer("out_hidden_size"), f.integer("intermediate_size")
    biases = {"qkv_bias": f.flag("attention_bias"), "output_bias": False, "mlp_bias": False, "norm_bias": False}
    layers = _encoder(f.integer("depth"), inner, outputs, **biases, gated=True)
    merger = outputs * outputs + 2 * outputs + 3 * outputs * width
    merge = _linear(inner * f.integer("spatial_merge_size") ** 2, outputs)
    patches = _embedding(f, inner, frames="temporal_patch_size") + _patches(f) * inner
    return patches + layers + 2 * inner + merge + merger


def _mllama(f: Fields, row: Tower) -> int:
    """Llama 3.2 Vision: layers over each tile, gated layers over all, and embeddings of tiles and aspect ratios."""
    hidden, width, tiles = f.integer("hidden_size"), f.integer("intermediate_size"), f.integer("max_num_tiles")
    positions, ratios = _patches(f) + 1, _length(f, "supported_aspect_ratios") + 1
    tile_embeddings = 1 + positions * hidden + ratios * tiles * positions * hidden + 2 * (1 + ratios * tiles * hidden)
    local = _encoder(f.integer("num_hidden_layers"), hidden, width, qkv_bias=False, output_bias=False)
    overall = _encoder(f.integer("num_global_layers"), hidden, width, qkv_bias=False, output_bias=False, other=2)
    return hidden + _embedding(f, hidden, bias=False) + tile_embeddings + 4 * hidden + local + overall


def _moonvit(f: Fields, row: Tower) -> int:
    """MoonViT (Kimi): learned positions that are stretched to the image, and a norm after the layers."""
    hidden = f.integer("hidden_size")
    height = f.integer("init_pos_emb_height", f.integer("pos_emb_height", 64))
    positions = height * f.integer("init_pos_emb_width", f.integer("pos_emb_width", 64))
    return _embedding(f, hidden) + positions * hidden + _plain(f) + 2 * hidden


TOWERS: Mapping[str, Callable[[Fields, Tower], int]] = {
    "transformer": _transformer, "internvl": _internvl, "internvl_chat": _internvl_chat, "llama4": _llama4, "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl, "qwen3_vl": _qwen3_vl, "glm4v": _glm4v, "mllama": _mllama, "moonvit": _moonvit,
}  # fmt: skip


# --- projectors: of the whole config, the vision section and the hidden size of the language model ------------------------


def _layers(whole: Fields, vision: Fields, hidden: int, row: Projector) -> int:
    """Norm, one or two layers; LLaVA reads several layers of the tower at once."""
    chosen = whole.get("vision_feature_layer")
    inputs = vision.integer(row.inputs) * (len(chosen) if isinstance(chosen, list | tuple) else 1)
    if row.fold:
        is_ratio = row.fold.endswith("_ratio")
        inputs *= (max(1, round(1 / whole.ratio(row.fold))) if is_ratio else whole.integer(row.fold)) ** 2
    total = inputs * row.norms * is_on(whole, row.norms_if) + hidden * row.newline
    bias = is_on(whole, row.bias)
    if row.middle:
        middle = hidden if row.middle == "hidden_size" else whole.integer(row.middle, hidden)
        total += _linear(inputs, middle, bias)
        inputs = middle // 2 if row.halved else middle
    return total + _linear(inputs, hidden, bias)


def _mistral3(whole: Fields, vision: Fields, hidden: int, row: Projector) -> int:
    """A norm, a matrix that merges patches, and LLaVA's two layers."""
    inner = vision.integer("hidden_size")
    return inner + inner * inner * whole.integer("spatial_merge_size") ** 2 + _layers(whole, vision, hidden, row)


def _idefics2(whole: Fields, vision: Fields, hidden: int, row: Projector) -> int:
    """A gated part, then learned latents that attend to the image in a few layers."""
    own, text = whole.section("perceiver_config") or Fields({}), whole.section("text_config") or Fields({})
    latents, depth = own.integer("resampler_n_latents", 64), own.integer("resampler_depth", 3)
    heads = own.integer("resampler_n_heads", 16) + own.integer("num_key_value_heads", 4)
    layer = 2 * hidden * own.integer("resampler_head_dim", 96) * heads + 3 * hidden * 4 * hidden + 3 * hidden
    gated = text.integer("intermediate_size", 14336) * (2 * vision.integer("hidden_size") + hidden)
    return gated + latents * hidden + depth * layer + hidden


def _kimi(whole: Fields, vision: Fields, hidden: int, row: Projector) -> int:
    """A norm, then merged patches -> merged -> h."""
    inner, merge = vision.integer("hidden_size"), vision.get("merge_kernel_size")
    height, width = merge if isinstance(merge, list | tuple) and len(merge) == 2 else (2, 2)
    merged = inner * Fields({"height": height}).integer("height") * Fields({"width": width}).integer("width")
    return 2 * inner + _linear(merged, merged) + _linear(merged, hidden)


PROJECTORS: Mapping[str, Callable[[Fields, Fields, int, Projector], int]] = {
    "none": lambda *_: 0, "layers": _layers, "mistral3": _mistral3, "idefics2": _idefics2, "kimi": _kimi,
}  # fmt: skip
