"""Factors on top of the terms: what a layer costs by kind, MoE sparsity, cache state, shared storage, the safety
margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from startup_model.errors import ConfigError
from startup_model.formula import Values
from startup_model.models.config import ModelConfig

__all__ = [
    "LAYER_COSTS",
    "SAFETY_FACTOR",
    "LayerCost",
    "check_safety_factor",
    "moe_sparsity",
    "shared_bandwidth",
    "weighted_layers",
]


class LayerCost(NamedTuple):
    """Cost of one layer relative to a dense attention layer with a gated feed-forward part, by what is done with it."""

    trace: float
    compile: float
    capture: float
    profiling: float


LAYER_COSTS: Mapping[str, LayerCost] = {
    "attention": LayerCost(1.0, 1.0, 1.0, 1.0),
    "dense": LayerCost(1.0, 1.0, 1.0, 1.0),
    "moe": LayerCost(1.1, 1.1, 2.0, 1.2),
    "latent_attention": LayerCost(0.82, 0.91, 1.75, 1.75),
    "mamba": LayerCost(0.3, 0.45, 1.5, 0.5),
    "mamba2": LayerCost(0.3, 0.45, 1.5, 0.5),
    "linear_attention": LayerCost(0.3, 0.45, 1.5, 0.5),
    "kimi_delta_attention": LayerCost(0.3, 0.45, 1.5, 0.5),
    "lightning_attention": LayerCost(0.3, 0.45, 1.5, 0.5),
    "short_convolution": LayerCost(0.3, 0.45, 1.0, 0.5),
    "gated_linear_recurrence": LayerCost(0.3, 0.45, 1.5, 0.5),
    "time_mix": LayerCost(0.3, 0.45, 1.5, 0.5),
    "parallel": LayerCost(0.8, 0.9, 1.0, 1.0),
}
"""Part of a layer -> its factor; the factors of mixer, feed-forward part and wiring multiply.

From one H100 NVL host with vLLM 0.10.1.1 (arXiv 2606.07362: Qwen1.5-MoE, gpt-oss, DeepSeek-V2-Lite, Granite 4 hybrids,
Falcon): few models each, to be read as priors. Recurrent mixers that were not measured are taken to behave like a
state space.
"""

_SAME = LayerCost(1.0, 1.0, 1.0, 1.0)


def weighted_layers(model: ModelConfig) -> LayerCost:
    """Layers of a model in units of a dense attention layer, for tracing, compiling, capturing and profiling."""
    totals = [0.0, 0.0, 0.0, 0.0]
    for group in model.layers:
        wiring = LAYER_COSTS["parallel"] if group.parallel else _SAME
        # Mixers beside each other in one layer are each traced and captured; the layer as a whole counts once.
        mixers = [LAYER_COSTS.get(mixer.kind, _SAME) for mixer in group.mixers] or [_SAME]
        feed_forwards = [LAYER_COSTS.get(part.kind, _SAME) for part in group.feed_forwards] or [_SAME]
        for i in range(4):
            cost = wiring[i] * max(mixer[i] for mixer in mixers) * max(part[i] for part in feed_forwards)
            totals[i] += group.count * cost
    return LayerCost(*totals)


def moe_sparsity(model: ModelConfig) -> float:
    """Share of the parameters that one token uses, in (0, 1]; 1.0 for a dense model.

    It acts on compute (profiling, capture). It acts on bytes only where the user says that experts are loaded lazily or
    are spread over ranks: an engine loads ALL experts before it is ready.
    """
    return 1.0 - model.idle_expert_parameters / model.parameters


def shared_bandwidth(bandwidth: Values, concurrent_starts: Values) -> Values:
    """Bandwidth [B/s] that one of ``concurrent_starts`` starts gets from storage that they share evenly."""
    return bandwidth / concurrent_starts


SAFETY_FACTOR = 1.5
"""Policy factor between a predicted total and the time to promise; 1.3 to 1.5 is usual."""


def check_safety_factor(factor: float) -> float:
    """The factor when it is one. Raises ConfigError below 1 or above 10."""
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1.0 <= factor <= 10.0:
        raise ConfigError("safety_factor", factor, "it should be a number from 1 to 10", "1.3 to 1.5 is usual")
    return float(factor)
