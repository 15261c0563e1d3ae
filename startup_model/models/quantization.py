"""How the weights of a checkpoint are packed, from the ``quantization_config`` of a config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from startup_model.errors import UnknownNameError, missing, wrong_type
from startup_model.frozen import FrozenModel
from startup_model.models.fields import Fields
from startup_model.models.layers import Count

GGUF_BITS: Mapping[str, float] = {
    "F32": 32.0, "F16": 16.0, "BF16": 16.0, "Q8_0": 8.5, "Q6_K": 6.5633, "Q5_1": 6.0, "Q5_0": 5.5, "Q5_K_M": 5.7036, "Q5_K_S": 5.5704, "Q4_1": 5.0, "Q4_0": 4.5,
    "Q4_K_M": 4.8944, "Q4_K_S": 4.6672, "IQ4_NL": 4.6818, "IQ4_XS": 4.4597, "Q3_K_L": 4.2979, "Q3_K_M": 3.9960, "Q3_K_S": 3.6429, "IQ3_M": 3.7628, "IQ3_S": 3.6606,
    "IQ3_XS": 3.4977, "IQ3_XXS": 3.2548, "Q2_K": 3.1593, "Q2_K_S": 2.9697, "IQ2_M": 2.9294, "IQ2_S": 2.7403, "IQ2_XS": 2.5882, "IQ2_XXS": 2.3824, "IQ1_M": 2.1460,
    "IQ1_S": 2.0042,
}  # fmt: skip
"""Type of a GGUF file -> bits per weight over all tensors: block sizes for the plain types, for the mixed ones the figures that llama.cpp
publishes for Llama 3.1 8B."""

_FOUR_BITS = frozenset({"gptq", "awq", "gptq-marlin", "awq-marlin", "auto-round"})  # where the config does not say
_Packing = tuple[float, int | None]  # bits and group size


class Quantization(FrozenModel):
    """How the weights of a checkpoint are packed."""

    method: str
    """Name of the method as engines spell it: gptq, awq, fp8, compressed-tensors, mxfp4, bitsandbytes, modelopt ..."""
    bits: Annotated[float, Field(gt=0, le=32)]
    """Bits of one packed weight, scales aside."""
    group_size: Count | None = None
    """Weights that share one scale; None: one scale for a channel or a tensor."""
    experts_only: bool = False
    """Only the experts are packed (MXFP4 of gpt-oss)."""


def read_quantization(raw: Any) -> Quantization:
    """The packing that a ``quantization_config`` describes. Raises ConfigError when it cannot be understood."""
    if not isinstance(raw, Mapping):
        raise wrong_type("quantization_config", raw, "a section (an object)", "check the config.json")
    fields = Fields(raw, path="quantization_config.")
    method = (fields.text("quant_method") or fields.text("quant_algo") or "unknown").lower().replace("_", "-")
    reader = next((reader for prefix, reader in _READERS.items() if method.startswith(prefix)), _plain)
    bits, group_size = reader(fields, method)
    return Quantization(method=method, bits=bits, group_size=group_size, experts_only=method == "mxfp4")


def _plain(fields: Fields, method: str) -> _Packing:
    """GPTQ, AWQ and most others: ``bits`` and ``group_size`` under one of their usual names."""
    given = (name for name in ("bits", "w_bit", "nbits", "weight_bits") if fields.raw.get(name) is not None)
    name = next(given, None)
    if name is None and method not in _FOUR_BITS:
        raise missing("quantization_config.bits", f"the bits of {method!r} are not known", "give bits there")
    return fields.integer(name) if name else 4, _group_size(fields)


def _group_size(fields: Fields) -> int | None:
    """``group_size``; -1 and nothing mean one scale a channel."""
    return None if fields.get("group_size") in (None, -1) else fields.integer("group_size")


def _block_float(fields: Fields, method: str) -> _Packing:
    """FP8 with one scale a tensor, a channel or a block; NVFP4 with a scale for 16 weights."""
    if "fp4" in (fields.text("quant_algo") or method).lower():
        return 4, 16
    rows, columns = fields.integers("weight_block_size", 2) or (0, 0)
    return 8, None if fields.get("weight_block_size") is None else max(1, rows * columns)


def _gguf(fields: Fields, method: str) -> _Packing:
    name = (fields.text("type") or fields.text("file_type")).upper()
    if name not in GGUF_BITS:
        raise UnknownNameError("quantization_config.type", name, GGUF_BITS)
    return GGUF_BITS[name], None


def _bitsandbytes(fields: Fields, method: str) -> _Packing:
    return (4, 64) if fields.flag("load_in_4bit") or fields.flag("_load_in_4bit") else (8, None)


def _compressed_tensors(fields: Fields, method: str) -> _Packing:
    groups = fields.section("config_groups")
    first = groups.section(next(iter(groups.raw))) if groups and groups.raw else None
    weights = first.section("weights") if first else None
    if weights is None:
        raise missing("quantization_config.config_groups", "it names no weights", "check the config.json")
    return weights.integer("num_bits"), _group_size(weights)


_READERS: Mapping[str, Callable[[Fields, str], _Packing]] = {  # by the beginning of the method's name
    "compressed-tensors": _compressed_tensors, "bitsandbytes": _bitsandbytes, "mxfp4": lambda fields, method: (4, 32), "gguf": _gguf,
    "modelopt": _block_float, "nvfp4": _block_float, "fp8": _block_float, "fbgemm-fp8": _block_float,
}  # fmt: skip
