"""Bytes of weights: on storage, read per node, copied to one device, resident there, and read by one forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from startup_model.engines.config import EngineConfig
from startup_model.hardware import HardwareConfig
from startup_model.models.config import DTYPES, ModelConfig
from startup_model.models.layers import split
from startup_model.models.quantization import Quantization

PACKED_KINDS = frozenset({"attention", "state_space", "mlp", "experts", "shared_experts"})
"""Kinds of parameters that quantisation packs; embeddings, head, norms, router and vision tower keep their type."""

PACKED_EVERYWHERE: Mapping[str, frozenset[str]] = {"gguf": PACKED_KINDS | {"embedding", "head"}}
"""Methods that pack more than the usual kinds."""

SCALE_BITS: Mapping[str, float] = {
    **dict.fromkeys(("gptq", "awq", "auto-round"), 20.0),
    **dict.fromkeys(("fp8", "bitsandbytes"), 32.0),
    **dict.fromkeys(("modelopt", "modelopt-fp4", "mxfp4"), 8.0),
}
"""Method -> bits of scale (and zero point) for each group of packed weights: GPTQ and AWQ a 16-bit scale and a 4-bit zero, MXFP4 and NVFP4 an 8-bit scale,
block FP8 and bitsandbytes a 32-bit one; others 16."""

ON_THE_FLY: Mapping[str, Mapping[str, float | bool]] = {
    "fp8": {"bits": 8.0},
    "bitsandbytes": {"bits": 4.0, "group_size": 64},
    "experts_int8": {"bits": 8.0, "experts_only": True},
}
"""Methods that take an unquantised checkpoint, read all of it and pack it on the way -> fields of the Quantization on the device."""

_SHARD_BYTES = 5e9
"""Size at which checkpoints are cut into files (the default of transformers' ``save_pretrained``)."""


class WeightSizes(NamedTuple):
    """Weights of one start, in bytes."""

    checkpoint_bytes: float
    """All tensors on storage."""
    node_bytes: float
    """Read on one node: what its ranks need, each byte once."""
    rank_bytes: float
    """Copied from host to one device."""
    resident_bytes: float
    """On the device with the most weights, once loaded."""
    active_bytes: float
    """Read by the forward pass of one token on one rank."""
    files: int
    """Files of the checkpoint."""


def packed_bits(quantization: Quantization) -> float:
    """Bits per packed weight, scales included: bits + scale bits / group size."""
    scale = SCALE_BITS.get(quantization.method, 16.0)
    return quantization.bits + (scale / quantization.group_size if quantization.group_size else 0.0)


def engine_quantization(model: ModelConfig, engine: EngineConfig) -> Quantization | None:
    """How the weights lie on the device: as in the checkpoint, or as the engine packs them on the way."""
    method = engine.packing
    if model.quantization is not None or method is None:
        return model.quantization
    packing = ON_THE_FLY.get(method)
    return None if packing is None else Quantization.model_validate({"method": method, **packing})


def parameter_bytes(counts: Mapping[str, float], quantization: Quantization | None, dtype_bytes: float) -> float:
    """Bytes of parameters by kind: packed kinds at their packed width, all others at ``dtype_bytes``."""
    if quantization is None:
        return sum(counts.values()) * dtype_bytes
    kinds = {"experts"} if quantization.experts_only else PACKED_EVERYWHERE.get(quantization.method, PACKED_KINDS)
    packed = packed_bits(quantization) / 8
    return sum(number * (packed if kind in kinds else dtype_bytes) for kind, number in counts.items())


@lru_cache(maxsize=4096)
def weight_sizes(model: ModelConfig, engine: EngineConfig, hardware: HardwareConfig, dtype_bytes: float) -> WeightSizes:
    """Bytes of weights of one start.

    checkpoint = known bytes, else sum over kinds of parameters x bytes per parameter; one rank holds attention,
    feed-forward and vocabulary / tp, layers / pp, experts / ep; a node reads the share of the checkpoint of the
    pipeline stages that run on it.
    """
    stored = DTYPES[model.dtype]
    computed = parameter_bytes(model.parameters_by_kind, model.quantization, stored)
    checkpoint = float(model.checkpoint_bytes or computed)
    resident_quantization = engine_quantization(model, engine)
    share = -(-model.num_hidden_layers // engine.pp) / model.num_hidden_layers
    ranks = engine.tp * engine.dp if engine.expert_parallel else 1
    rank = dict(model.rank_parameters(engine.tp, ranks))
    ends = {kind: rank.pop(kind) for kind in ("embedding", "head", "vision") if kind in rank}
    layers = {kind: number * share for kind, number in rank.items()}
    padded = layers | {"experts": layers.get("experts", 0) * _expert_padding(model, engine, resident_quantization)}
    last = max(ends.get("embedding", 0) + ends.get("vision", 0), ends.get("head", 0))
    kept = ends if engine.pp == 1 else {"embedding": last}
    resident = parameter_bytes(padded | kept, resident_quantization, dtype_bytes)
    # What is copied is what is stored; packing on the way happens on the device.
    rank_bytes = parameter_bytes(layers | kept, model.quantization, stored) * (checkpoint / computed)

    world = engine.tp * engine.pp * engine.dp
    local = min(hardware.gpus or world, world)
    stages_on_node = min(engine.pp, -(-local // engine.tp))
    # Spread experts: a node needs those of its own ranks only.
    absent = 0.0
    if engine.expert_parallel and local < world:
        experts = parameter_bytes({"experts": model.parameters_by_kind.get("experts", 0)}, model.quantization, stored)
        absent = experts * (checkpoint / computed) * (1.0 - local / world)
    return WeightSizes(
        checkpoint_bytes=checkpoint,
        node_bytes=(checkpoint - absent) * stages_on_node / engine.pp,
        rank_bytes=rank_bytes,
        resident_bytes=resident,
        active_bytes=_active_bytes(model, resident_quantization, dtype_bytes) / engine.tp / engine.pp,
        files=model.checkpoint_files or max(1, round(checkpoint / _SHARD_BYTES + 0.5)),
    )


MXFP4_PADDING = 256
"""Width of an MXFP4 expert on one rank is padded to a multiple of this on the device (gpt-oss-20b: 2880 -> 3072, 13.47 GiB as
loaded; vLLM's quantization/mxfp4.py)."""


def _expert_padding(model: ModelConfig, engine: EngineConfig, quantization: Quantization | None) -> float:
    """Padded over real width of an expert on one rank; 1.0 for packings that pad nothing."""
    if quantization is None or quantization.method != "mxfp4" or model.moe is None:
        return 1.0
    width = split(model.moe.intermediate_size, 1 if engine.expert_parallel else engine.tp)
    return split(width, MXFP4_PADDING) * MXFP4_PADDING / width


def _active_bytes(model: ModelConfig, quantization: Quantization | None, dtype_bytes: float) -> float:
    counts = dict(model.parameters_by_kind)
    counts.pop("vision", None)
    table = counts.pop("embedding", 0)
    if model.tie_word_embeddings:  # the head reads the table
        counts["head"] = table - model.extra_parameters.get("embedding", 0)
    counts["experts"] = counts.get("experts", 0) - model.idle_expert_parameters
    return parameter_bytes(counts, quantization, dtype_bytes)
