"""Vision towers and their projectors: parameters from the sections of a multimodal config.json.

A tower is a function of its own section, found by the ``model_type`` of ``vision_config``; a projector, which joins it
to the language model, is a function of both, found by the ``model_type`` of the whole config. Both are tables. A tower
or projector that is not in them is estimated as a plain vision transformer, and ``Vision.exact`` says so.
Structures were read from the model classes of the `transformers` library (5.24).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from startup_model.errors import ConfigError
from startup_model.models.fields import Fields

__all__ = ["PROJECTORS", "TOWERS", "Projector", "Tower", "Vision", "count_vision"]


class Vision(NamedTuple):
    """What a model's eyes weigh."""

    parameters: int
    """Parameters of the tower and its projector; 0: no tower."""
    exact: bool
    """Tower and projector are in the tables; otherwise the count is the estimate of a plain vision transformer."""


@dataclass(frozen=True)
class Tower:
    """One make of vision tower: its count from ``vision_config``, and the defaults of its configuration class."""

    count: Callable[[Fields], int]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Projector:
    """What joins a tower to a language model: its count, the tower's usual type, and the defaults of the whole
    config."""

    count: Callable[[Fields, Fields, int], int]
    """Of the whole config, the vision section, and the hidden size of the language model."""
    tower: str
    """Type of the tower where ``vision_config`` names none that is in the table."""
    defaults: Mapping[str, Any] = field(default_factory=dict)


def count_vision(config: Mapping[str, Any], language_hidden_size: int) -> Vision:
    """Parameters of the vision tower and projector of a config.json, and whether they are exact; 0 and True without a
    tower.

    Raises ConfigError for a field of the tower that cannot be.
    """
    wrapper = _wrapper(Fields(config))
    raw = wrapper.section("vision_config")
    if raw is None:
        return Vision(0, exact=True)
    projector = PROJECTORS.get(wrapper.text("model_type"))
    if projector is None:
        return Vision(_plain_estimate(raw), exact=False)
    named = raw.text("model_type")
    tower = TOWERS[named if named in TOWERS else projector.tower]
    vision = Fields(raw.raw, tower.defaults, raw.path)
    whole = Fields(wrapper.raw, projector.defaults, wrapper.path)
    return Vision(tower.count(vision) + projector.count(whole, vision, language_hidden_size), exact=True)


def _wrapper(top: Fields) -> Fields:
    """The section that holds ``vision_config``: the top level, or ``thinker_config`` of an omni model."""
    return top.section("thinker_config") or top


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _side(f: Fields, name: str, default: int | None = None) -> int:
    """A length in pixels that may be written as one number or as a list of equal ones."""
    value = f.get(name)
    if isinstance(value, list | tuple):
        if not value or any(side != value[0] for side in value):
            raise ConfigError(f.label(name), value, "only square images and patches are understood", "give one number")
        return Fields({name: value[0]}, path=f.path).integer(name)
    return f.integer(name, default)


def _length(f: Fields, name: str) -> int:
    """Number of entries of a list; 0 where there is none."""
    value = f.get(name)
    if value is not None and not isinstance(value, list | tuple):
        raise ConfigError(f.label(name), value, "it should be a list", "check the config.json")
    return len(value or ())


def _patches(f: Fields) -> int:
    """Patches of a whole image: (image / patch)^2."""
    return (_side(f, "image_size") // _side(f, "patch_size")) ** 2


def _patch_embedding(f: Fields, hidden: int, *, bias: bool = True, frames: int = 1) -> int:
    channels = f.integer("num_channels", f.integer("in_channels", f.integer("in_chans", 3)))
    return _linear(channels * frames * _side(f, "patch_size") ** 2, hidden, bias)


def _encoder(
    layers: int, hidden: int, width: int, *, qkv_bias: bool = True, output_bias: bool = True, mlp_bias: bool = True,
    norm_bias: bool = True, gated: bool = False, other: int = 0,
) -> int:  # fmt: skip
    """Layers of a vision transformer: layers x (4 h^2 + (2 or 3) h f + 2 norms + biases + other)."""
    heads = 3 * _linear(hidden, hidden, qkv_bias) + _linear(hidden, hidden, output_bias)
    mlp = (2 if gated else 1) * _linear(hidden, width, mlp_bias) + _linear(width, hidden, mlp_bias)
    return layers * (heads + mlp + 2 * hidden * (2 if norm_bias else 1) + other)


def _plain_encoder(f: Fields, **more: Any) -> int:
    return _encoder(f.integer("num_hidden_layers"), f.integer("hidden_size"), f.integer("intermediate_size"), **more)


def _plain_estimate(section: Fields) -> int:
    """A plain vision transformer: layers x (4 h^2 + 2 h f) + patch embedding; 0 where the section does not say its
    size."""
    layers = section.optional("num_hidden_layers") or section.optional("depth")
    hidden = section.optional("hidden_size") or section.optional("embed_dim")
    if layers is None or hidden is None:
        return 0
    width = section.optional("intermediate_size") or 4 * hidden
    patch = _side(section, "patch_size", 14)
    return layers * (4 * hidden * hidden + 2 * hidden * width) + 3 * patch * patch * hidden


# --- towers -----------------------------------------------------------------------------------------------------------


def _siglip(f: Fields) -> int:
    """SigLIP: patches, learned positions, layers, a norm, and a pooling head where it is used."""
    return _siglip_body(f, _patches(f)) + _siglip_head(f)


def _siglip2(f: Fields) -> int:
    return _siglip_body(f, f.integer("num_patches")) + _siglip_head(f)


def _siglip_headless(f: Fields) -> int:
    return _siglip_body(f, _patches(f))


def _siglip_body(f: Fields, positions: int) -> int:
    hidden = f.integer("hidden_size")
    return _patch_embedding(f, hidden) + positions * hidden + _plain_encoder(f) + 2 * hidden


def _siglip_head(f: Fields) -> int:
    """A probe that attends to all patches, a norm and a feed-forward part."""
    if not f.flag("vision_use_head", default=True):
        return 0
    hidden, width = f.integer("hidden_size"), f.integer("intermediate_size")
    return hidden + 4 * _linear(hidden, hidden) + 2 * hidden + _linear(hidden, width) + _linear(width, hidden)


def _clip(f: Fields) -> int:
    """CLIP: a class token, positions for it and the patches, and a norm before and after the layers."""
    hidden = f.integer("hidden_size")
    return (
        hidden + _patch_embedding(f, hidden, bias=False) + (_patches(f) + 1) * hidden + _plain_encoder(f) + 4 * hidden
    )


def _pixtral(f: Fields) -> int:
    """Pixtral: gated layers without biases; positions are rotary."""
    hidden = f.integer("hidden_size")
    layers = _plain_encoder(f, qkv_bias=False, output_bias=False, mlp_bias=False, norm_bias=False, gated=True)
    return _patch_embedding(f, hidden, bias=False) + hidden + layers


def _internvl(f: Fields) -> int:
    """InternViT: layers scaled by two learned vectors."""
    hidden = f.integer("hidden_size")
    norm_bias = f.text("norm_type", "layer_norm") == "layer_norm"
    norms_of_heads = 2 * hidden if f.flag("use_qk_norm") else 0
    layers = _plain_encoder(
        f, qkv_bias=f.flag("attention_bias"), norm_bias=norm_bias, other=2 * hidden + norms_of_heads
    )
    positions = (_patches(f) + 1) * hidden if f.flag("use_absolute_position_embeddings", default=True) else 0
    last = 0 if f.flag("use_mean_pooling", default=True) else 2 * hidden
    mask = hidden if f.flag("use_mask_token") else 0
    return hidden + mask + positions + _patch_embedding(f, hidden) + layers + last


def _internvl_chat(f: Fields) -> int:
    """InternViT as the models' own code has it: the same parts under other names, and no norm at the end."""
    names = {"attention_bias": f.flag("qkv_bias"), "use_qk_norm": f.flag("qk_normalization", default=True)}
    kind = {"norm_type": f.text("norm_type", "rms_norm"), "use_mean_pooling": True}
    return _internvl(Fields(dict(f.raw) | names | kind, f.defaults, f.path))


def _llama4(f: Fields) -> int:
    """Llama 4: like CLIP, and an adapter that folds patches together before its two matrices."""
    hidden, wide = f.integer("hidden_size"), f.integer("projector_output_dim")
    tower = (
        hidden + (_patches(f) + 1) * hidden + _patch_embedding(f, hidden, bias=False) + 4 * hidden + _plain_encoder(f)
    )
    adapter = (
        f.integer("intermediate_size") * f.integer("projector_input_dim") + f.integer("projector_input_dim") * wide
    )
    return tower + adapter


def _qwen2_vl(f: Fields) -> int:
    """Qwen2-VL: ``embed_dim`` wide inside, ``hidden_size`` is that of the language model."""
    inner, depth = f.integer("embed_dim"), f.integer("depth")
    layers = _encoder(depth, inner, inner * f.integer("mlp_ratio"))
    return _qwen_patches(f, inner, bias=False) + layers + _qwen_merger(f, inner, f.integer("hidden_size"), 2 * inner)


def _qwen2_5_vl(f: Fields) -> int:
    """Qwen2.5-VL: gated layers with RMS norms."""
    inner = f.integer("hidden_size")
    layers = _encoder(f.integer("depth"), inner, f.integer("intermediate_size"), norm_bias=False, gated=True)
    return _qwen_patches(f, inner, bias=False) + layers + _qwen_merger(f, inner, f.integer("out_hidden_size"), inner)


def _qwen3_vl(f: Fields) -> int:
    """Qwen3-VL and 3.5: learned positions, and one more merger for each layer that feeds the language model
    directly."""
    inner, outputs = f.integer("hidden_size"), f.integer("out_hidden_size")
    layers = _encoder(f.integer("depth"), inner, f.integer("intermediate_size"))
    merged = inner * f.integer("spatial_merge_size") ** 2
    deep = _length(f, "deepstack_visual_indexes")
    mergers = _qwen_merger(f, inner, outputs, 2 * inner) + deep * _qwen_merger(f, inner, outputs, 2 * merged)
    return _qwen_patches(f, inner, bias=True) + f.integer("num_position_embeddings") * inner + layers + mergers


def _qwen_patches(f: Fields, inner: int, *, bias: bool) -> int:
    return _patch_embedding(f, inner, bias=bias, frames=f.integer("temporal_patch_size"))


def _qwen_merger(f: Fields, inner: int, outputs: int, norm: int) -> int:
    merged = inner * f.integer("spatial_merge_size") ** 2
    return norm + _linear(merged, merged) + _linear(merged, outputs)


def _glm4v(f: Fields) -> int:
    """GLM-4.1V: gated layers, a convolution that merges patches, and a gated part of its own."""
    inner, outputs, width = f.integer("hidden_size"), f.integer("out_hidden_size"), f.integer("intermediate_size")
    bias = f.flag("attention_bias")
    layers = _encoder(
        f.integer("depth"),
        inner,
        outputs,
        qkv_bias=bias,
        output_bias=False,
        mlp_bias=False,
        norm_bias=False,
        gated=True,
    )
    merger = outputs * outputs + 2 * outputs + 3 * outputs * width
    merge = _linear(inner * f.integer("spatial_merge_size") ** 2, outputs)
    return _qwen_patches(f, inner, bias=True) + _patches(f) * inner + layers + 2 * inner + merge + merger


def _mllama(f: Fields) -> int:
    """Llama 3.2 Vision: layers over each tile, gated layers over all, and embeddings of tiles and aspect ratios."""
    hidden, tiles = f.integer("hidden_size"), f.integer("max_num_tiles")
    positions = _patches(f) + 1
    ratios = _length(f, "supported_aspect_ratios") + 1
    tile_embeddings = 1 + positions * hidden + ratios * tiles * positions * hidden + 2 * (1 + ratios * tiles * hidden)
    width = f.integer("intermediate_size")
    local = _encoder(f.integer("num_hidden_layers"), hidden, width, qkv_bias=False, output_bias=False)
    overall = _encoder(f.integer("num_global_layers"), hidden, width, qkv_bias=False, output_bias=False, other=2)
    return hidden + _patch_embedding(f, hidden, bias=False) + tile_embeddings + 4 * hidden + local + overall


def _moonvit(f: Fields) -> int:
    """MoonViT (Kimi): learned positions that are stretched to the image, and a norm after the layers."""
    hidden = f.integer("hidden_size")
    positions = f.integer("init_pos_emb_height", f.integer("pos_emb_height", 64)) * f.integer(
        "init_pos_emb_width", f.integer("pos_emb_width", 64)
    )
    return _patch_embedding(f, hidden) + positions * hidden + _plain_encoder(f) + 2 * hidden


# --- projectors -------------------------------------------------------------------------------------------------------


def _inside_the_tower(whole: Fields, vision: Fields, hidden: int) -> int:
    return 0


def _two_layers(whole: Fields, vision: Fields, hidden: int) -> int:
    """LLaVA: (features of the chosen tower layers) -> h -> h."""
    chosen = whole.get("vision_feature_layer")
    inputs = vision.integer("hidden_size") * (len(chosen) if isinstance(chosen, list | tuple) else 1)
    bias = whole.flag("multimodal_projector_bias", default=True)
    return _linear(inputs, hidden, bias) + _linear(hidden, hidden, bias)


def _two_layers_and_newline(whole: Fields, vision: Fields, hidden: int) -> int:
    return _two_layers(whole, vision, hidden) + hidden


def _mistral3(whole: Fields, vision: Fields, hidden: int) -> int:
    """A norm, a matrix that merges patches, and LLaVA's two layers."""
    inner = vision.integer("hidden_size")
    return inner + inner * inner * whole.integer("spatial_merge_size") ** 2 + _two_layers(whole, vision, hidden)


def _gemma3(whole: Fields, vision: Fields, hidden: int) -> int:
    inner = vision.integer("hidden_size")
    return inner * hidden + inner


def _one_layer(whole: Fields, vision: Fields, hidden: int) -> int:
    return _linear(vision.integer("hidden_size"), hidden)


def _idefics2(whole: Fields, vision: Fields, hidden: int) -> int:
    """A gated part, then learned latents that attend to the image in a few layers."""
    resampler = whole.section("perceiver_config") or Fields({})
    latents, depth = resampler.integer("resampler_n_latents", 64), resampler.integer("resampler_depth", 3)
    head_dim = resampler.integer("resampler_head_dim", 96)
    heads, kv_heads = resampler.integer("resampler_n_heads", 16), resampler.integer("num_key_value_heads", 4)
    text = whole.section("text_config") or Fields({})
    width = text.integer("intermediate_size", 14336)
    layer = 2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * 4 * hidden + 3 * hidden
    return width * (2 * vision.integer("hidden_size") + hidden) + latents * hidden + depth * layer + hidden


def _pixel_shuffle(whole: Fields, vision: Fields, hidden: int) -> int:
    return vision.integer("hidden_size") * whole.integer("scale_factor") ** 2 * hidden


def _folded(whole: Fields, vision: Fields) -> int:
    """Width of several patches folded into one: hidden size / ratio^2."""
    return vision.integer("hidden_size") * max(1, round(1 / whole.ratio("downsample_ratio"))) ** 2


def _internvl_projector(whole: Fields, vision: Fields, hidden: int) -> int:
    folded = _folded(whole, vision)
    return 2 * folded + _linear(folded, hidden) + _linear(hidden, hidden)


def _cohere2_vision(whole: Fields, vision: Fields, hidden: int) -> int:
    folded = vision.integer("hidden_size") * whole.integer("downsample_factor") ** 2
    middle = whole.integer("alignment_intermediate_size")
    return _linear(folded, middle) + _linear(middle // 2, hidden)


def _aya_vision(whole: Fields, vision: Fields, hidden: int) -> int:
    folded = vision.integer("hidden_size") * whole.integer("downsample_factor") ** 2
    middle = whole.integer("alignment_intermediate_size", hidden)
    return 2 * folded + _linear(folded, middle) + _linear(middle // 2, hidden)


def _lfm2_vl(whole: Fields, vision: Fields, hidden: int) -> int:
    folded = vision.integer("hidden_size") * whole.integer("downsample_factor") ** 2
    middle, bias = whole.integer("projector_hidden_size"), whole.flag("projector_bias", default=True)
    norm = 2 * folded if whole.flag("projector_use_layernorm", default=True) else 0
    return norm + _linear(folded, middle, bias) + _linear(middle, hidden, bias)


def _llama4_projector(whole: Fields, vision: Fields, hidden: int) -> int:
    return vision.integer("vision_output_dim") * hidden


def _mllama_projector(whole: Fields, vision: Fields, hidden: int) -> int:
    return _linear(vision.integer("vision_output_dim"), hidden)


def _kimi(whole: Fields, vision: Fields, hidden: int) -> int:
    """A norm, then merged patches -> merged -> h."""
    inner = vision.integer("hidden_size")
    merge = vision.get("merge_kernel_size")
    kernel = merge if isinstance(merge, list | tuple) and len(merge) == 2 else (2, 2)
    merged = inner * Fields({"height": kernel[0]}).integer("height") * Fields({"width": kernel[1]}).integer("width")
    return 2 * inner + _linear(merged, merged) + _linear(merged, hidden)


# --- tables -----------------------------------------------------------------------------------------------------------

_SIGLIP_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "image_size": 224,
    "patch_size": 16,
}
_QWEN2_VL_DEFAULTS = {
    "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "patch_size": 14, "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}  # fmt: skip
_QWEN2_5_VL_DEFAULTS = {
    "depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "out_hidden_size": 3584, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
_QWEN3_5_DEFAULTS = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "out_hidden_size": 3584, "patch_size": 16,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
}  # fmt: skip
_QWEN3_VL_DEFAULTS = _QWEN3_5_DEFAULTS | {"deepstack_visual_indexes": (8, 16, 24)}
_GLM4V_DEFAULTS = {
    "depth": 24, "hidden_size": 1536, "image_size": 336, "patch_size": 14, "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 4096, "intermediate_size": 13696,
}  # fmt: skip

TOWERS: Mapping[str, Tower] = {
    "siglip_vision_model": Tower(_siglip, _SIGLIP_DEFAULTS),
    "siglip2_vision_model": Tower(_siglip2, _SIGLIP_DEFAULTS | {"num_patches": 256}),
    "idefics2_vision": Tower(_siglip_headless, _SIGLIP_DEFAULTS | {"patch_size": 32}),
    "idefics3_vision": Tower(_siglip_headless, _SIGLIP_DEFAULTS | {"hidden_size": 1152, "patch_size": 32}),
    "clip_vision_model": Tower(_clip, _SIGLIP_DEFAULTS | {"patch_size": 32}),
    "pixtral": Tower(
        _pixtral, {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 1024,
        "patch_size": 16}
    ),
    "internvl_vision": Tower(
        _internvl, {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 448,
        "patch_size": 14}
    ),
    "intern_vit_6b": Tower(
        _internvl_chat,
        {"hidden_size": 3200, "intermediate_size": 12800, "num_hidden_layers": 48, "image_size": 224, "patch_size": 14},
    ),
    "llama4_vision_model": Tower(
        _llama4,
        {
            "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448, "patch_size": 14,
            "vision_output_dim": 7680, "projector_input_dim": 4096, "projector_output_dim": 4096,
        },
    ),
    "qwen2_vl": Tower(_qwen2_vl, _QWEN2_VL_DEFAULTS),
    "qwen2_5_vl": Tower(_qwen2_5_vl, _QWEN2_5_VL_DEFAULTS),
    "qwen3_vl": Tower(_qwen3_vl, _QWEN3_VL_DEFAULTS),
    "qwen3_5": Tower(_qwen3_vl, _QWEN3_5_DEFAULTS),
    "glm4v_vision": Tower(_glm4v, _GLM4V_DEFAULTS),
    "mllama_vision_model": Tower(
        _mllama,
        {
            "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8,
            "image_size": 448,
            "patch_size": 14, "max_num_tiles": 4, "vision_output_dim": 7680, "supported_aspect_ratios": (None,) * 8,
        },
    ),
    "moonvit": Tower(_moonvit, {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "patch_size": 14}),
}  # fmt: skip
"""``model_type`` of a vision_config -> tower. One row a make."""

PROJECTORS: Mapping[str, Projector] = {
    "llava": Projector(_two_layers, "clip_vision_model"),
    "llava_next": Projector(_two_layers_and_newline, "clip_vision_model"),
    "llava_onevision": Projector(_two_layers_and_newline, "siglip_vision_model"),
    "mistral3": Projector(_mistral3, "pixtral", {"spatial_merge_size": 2, "multimodal_projector_bias": False}),
    "gemma3": Projector(_gemma3, "siglip_vision_model"),
    "paligemma": Projector(_one_layer, "siglip_vision_model"),
    "idefics2": Projector(_idefics2, "idefics2_vision"),
    "idefics3": Projector(_pixel_shuffle, "idefics3_vision", {"scale_factor": 2}),
    "smolvlm": Projector(_pixel_shuffle, "idefics3_vision", {"scale_factor": 2}),
    "internvl": Projector(_internvl_projector, "internvl_vision", {"downsample_ratio": 0.5}),
    "internvl_chat": Projector(_internvl_projector, "intern_vit_6b", {"downsample_ratio": 0.5}),
    "cohere2_vision": Projector(
        _cohere2_vision, "siglip_vision_model", {"downsample_factor": 2, "alignment_intermediate_size": 36864}
    ),
    "aya_vision": Projector(_aya_vision, "siglip_vision_model", {"downsample_factor": 2}),
    "deepseek_vl": Projector(_two_layers, "siglip_vision_model"),
    "lfm2_vl": Projector(_lfm2_vl, "siglip2_vision_model", {"downsample_factor": 2, "projector_hidden_size": 2560}),
    "llama4": Projector(_llama4_projector, "llama4_vision_model"),
    "mllama": Projector(_mllama_projector, "mllama_vision_model"),
    "kimi_vl": Projector(_kimi, "moonvit"),
    "kimi_k25": Projector(_kimi, "moonvit"),
    "qwen2_vl": Projector(_inside_the_tower, "qwen2_vl"),
    "qwen2_5_vl": Projector(_inside_the_tower, "qwen2_5_vl"),
    "qwen3_vl": Projector(_inside_the_tower, "qwen3_vl"),
    "qwen3_vl_moe": Projector(_inside_the_tower, "qwen3_vl"),
    "qwen3_5": Projector(_inside_the_tower, "qwen3_5"),
    "qwen3_5_moe": Projector(_inside_the_tower, "qwen3_5"),
    "glm4v": Projector(_inside_the_tower, "glm4v_vision"),
    "glm4v_moe": Projector(_inside_the_tower, "glm4v_vision"),
    "glm46v": Projector(_inside_the_tower, "glm4v_vision"),
}
"""``model_type`` of a multimodal config.json -> projector. One row a make."""
