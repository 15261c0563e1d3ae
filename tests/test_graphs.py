"""Captured graphs by version and flags, against lists made by the engines' own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from startup_model import EngineConfig, HardwareConfig, ModelConfig

ROWS = json.loads((Path(__file__).parent / "reference" / "captures.json").read_text(encoding="utf-8"))["rows"]
MODEL = ModelConfig.from_catalogue("meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_capture_lists_equal_those_of_the_engines(engine: str) -> None:
    rows = [row for row in ROWS if row["engine"] == engine]
    assert len(rows) > 100
    for row in rows:
        config = EngineConfig(
            engine=engine,
            version=row["version"],
            generation=row.get("generation"),
            tp=row["tp"],
            max_num_seqs=row.get("max_num_seqs") or 256,
            max_num_batched_tokens=row.get("max_num_batched_tokens") or (8192 if engine == "vllm" else None),
            max_capture_size=row.get("max_capture_size"),
        )
        memory = row.get("gpu_memory_mib", 81920) * 2.0**20
        capability = row.get("compute_capability")
        node = HardwareConfig.preset("h100-sxm", gpus=8, gpu_memory=memory, compute_capability=capability)
        count = config.resolve(MODEL, node).captures
        found = (len(count.sizes), count.total, list(count.sizes[:6]), list(count.sizes[-3:]))
        assert found == (row["sizes"], row["graphs"], row["first"], row["last"]), row


@pytest.mark.parametrize(
    ("options", "graphs"),
    [
        ({"version": "0.6.3"}, 35),  # V0
        ({"version": "0.6.3", "max_num_seqs": 64}, 11),
        ({"version": "0.6.3", "pp": 2}, 70),  # once per virtual engine
        ({"version": "0.9.2"}, 67),
        ({"version": "0.10.1.1"}, 67),
        ({"version": "0.10.1.1", "max_num_seqs": 128}, 35),
        ({"version": "0.10.1.1", "max_num_seqs": 128, "enforce_eager": True}, 0),
        ({"version": "0.10.1.1", "optimization_level": 0}, 0),
        ({"version": "0.9.2", "optimization_level": 0}, 67),  # overwritten by the V1 core before 0.10.1
        ({"version": "0.10.1.1", "torch_compile": False}, 67),
        ({"version": "0.11.0", "max_num_seqs": 256}, 102),  # 67 piecewise + 35 full
        ({"version": "0.11.0"}, 134),  # 1024 sequences on an H100
        ({"version": "0.12.0", "max_num_seqs": 256}, 86),  # 51 + 35
        ({"version": "0.12.0", "optimization_level": 1}, 51),
        ({"version": "0.12.0", "cudagraph_mode": "full_decode_only"}, 51),
        ({"version": "0.12.0", "cudagraph_mode": "none"}, 0),
        ({"version": "0.12.0", "capture_sizes": (1, 2, 4, 8)}, 8),
        ({"engine": "sglang", "version": "0.5.4"}, 36),
    ],
)
def test_flags_change_the_number_of_graphs(options: dict[str, Any], graphs: int) -> None:
    node = HardwareConfig.preset("h100-sxm", gpus=2)
    assert EngineConfig(**options).resolve(MODEL, node).captures.total == graphs


@pytest.mark.parametrize(
    ("gpu", "options", "tokens", "seqs"),
    [
        # vLLM config.SchedulerConfig and arg_utils, as read from the published packages.
        ("h100-sxm", {"version": "0.3.1"}, 131072, 256),
        ("h100-sxm", {"version": "0.6.3"}, 512, 256),  # chunked prefill by itself above 32K tokens
        ("h100-sxm", {"version": "0.6.6"}, 2048, 256),
        ("h100-sxm", {"version": "0.6.6", "chunked_prefill": False}, 131072, 256),
        ("h100-sxm", {"version": "0.6.6", "max_model_len": 1024}, 2048, 256),
        ("h100-sxm", {"version": "0.10.1.1"}, 8192, 1024),
        ("h100-sxm", {"version": "0.10.1.1", "offline": True}, 16384, 1024),
        ("a100-80gb", {"version": "0.10.1.1"}, 2048, 256),
        ("a100-80gb", {"version": "0.8.5"}, 8192, 1024),
        ("l40s", {"version": "0.10.1.1"}, 2048, 256),
        ("b200", {"version": "0.28.0"}, 16384, 1024),
        ("b200", {"version": "0.27.0"}, 8192, 1024),
        ("cpu", {"version": "0.32.0"}, 2048, 128),
        ("h100-sxm", {"engine": "sglang", "version": "0.5.4"}, 8192, 256),
        ("l4", {"engine": "sglang", "version": "0.5.4"}, 2048, 256),
    ],
)
def test_default_batches_are_those_of_the_version(gpu: str, options: dict[str, Any], tokens: int, seqs: int) -> None:
    resolved = EngineConfig(**options).resolve(MODEL, HardwareConfig.preset(gpu))
    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (tokens, seqs)


def test_defaults_that_changed_with_the_version() -> None:
    node = HardwareConfig.preset("h100-sxm")
    at = {version: EngineConfig(version=version).resolve(MODEL, node) for version in ("0.7.0", "0.10.1.1", "0.32.0")}
    assert [r.generation for r in at.values()] == ["v0", "v1", "v1"]
    assert [r.gpu_memory_utilization for r in at.values()] == [0.9, 0.9, 0.92]
    assert [r.compiles for r in at.values()] == [False, True, True]
    assert [r.swap_space for r in at.values()] == [4 * 2**30, 0.0, 0.0]
    # V1 does not run below compute capability 8.0, and V0 was removed in 0.11.
    turing = HardwareConfig.preset("t4")
    assert EngineConfig(version="0.10.1.1").resolve(MODEL, turing).generation == "v0"
    assert EngineConfig(version="0.11.0").resolve(MODEL, turing).generation == "v1"
