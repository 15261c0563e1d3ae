"""How checkpoints are packed, from their quantization_config and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from startup_model import ConfigError, EngineConfig, HardwareConfig, ModelConfig, predict
from startup_model.sizes.weights import packed_bits, weight_sizes

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
NODE = HardwareConfig.preset("h100-sxm")


def checkpoint_gb(quantization: dict[str, Any]) -> float:
    model = ModelConfig.from_hf(LLAMA | {"quantization_config": quantization})
    return weight_sizes(model, EngineConfig(), NODE, 2.0).checkpoint_bytes / 1e9


@pytest.mark.parametrize(
    ("quantization", "gigabytes"),
    [
        # Sizes of published checkpoints of Llama 3.1 8B.
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.73),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 5.73),
        ({"quant_method": "fp8"}, 9.08),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            9.08,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 6.03),
        ({"quant_method": "gguf", "type": "Q4_K_M"}, 4.92),
        ({"quant_method": "gguf", "type": "Q8_0"}, 8.54),
        ({"quant_method": "gguf", "type": "F16"}, 16.06),
    ],
)
def test_bytes_of_packed_checkpoints(quantization: dict[str, Any], gigabytes: float) -> None:
    assert checkpoint_gb(quantization) == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 16384),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "gptq_marlin", "bits": 4, "group_size": 64}, 4 + 16 / 64),
        ({"quant_method": "mxfp4"}, 4.25),
    ],
)
def test_bits_of_a_weight_as_the_config_gives_them(quantization: dict[str, Any], bits: float) -> None:
    model = ModelConfig.from_hf(LLAMA | {"quantization_config": quantization})
    assert model.quantization is not None
    assert packed_bits(model.quantization) == pytest.approx(bits, rel=0.01)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "gguf", "type": "Q4_K_L"}, "did you mean"),
        ({"quant_method": "newest"}, "the bits of 'newest' are not known"),
        ({"quant_method": "gptq", "bits": "four"}, "quantization_config.bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "big"}, "quantization_config.group_size"),
        ({"quant_method": "compressed-tensors"}, "it names no weights"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "quantization_config.weight_block_size"),
        ("awq", "quantization_config"),
    ],
)
def test_what_cannot_be_understood_is_one_line(quantization: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ModelConfig.from_hf(LLAMA | {"quantization_config": quantization})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_packing_on_the_way_reads_everything_and_keeps_less() -> None:
    model = ModelConfig.from_hf(LLAMA)
    full, packed = (weight_sizes(model, EngineConfig(quantization=method), NODE, 2.0) for method in (None, "fp8"))
    assert packed.node_bytes == full.node_bytes
    assert packed.rank_bytes == full.rank_bytes
    assert packed.resident_bytes < 0.6 * full.resident_bytes


def test_the_size_of_a_gguf_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model-Q4_K_M.gguf").write_bytes(b"GGUF" + bytes(996))
    assert ModelConfig.from_hf(tmp_path).checkpoint_bytes == 1000
    (tmp_path / "model-Q8_0.gguf").write_bytes(b"GGUF" + bytes(1996))
    assert ModelConfig.from_hf(tmp_path).checkpoint_bytes is None  # which of the two is not known


def test_experts_of_gpt_oss_are_padded_on_the_device() -> None:
    """13.47 GiB as loaded (H100, vLLM 0.11.0) of 12.8 GiB on disk."""
    found = predict("openai/gpt-oss-20b", NODE, version="0.11.0").memory
    assert found.weights / 2**30 == pytest.approx(13.47, rel=0.005)
