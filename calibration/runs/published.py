"""The published measurements that the reference profiles are fitted on, as run records.

Source: the start-up measurements of "Breaking the Ice: Analyzing Cold Start Latency in vLLM" (arXiv 2606.07362, MLSys
2026), means of five repetitions, here in columns of our own: one column per canonical phase, empty where the stage was
not logged.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from calibration.runs.record import RunRecord
from startup_model.engines.config import EngineConfig
from startup_model.hardware import Cpu, HardwareConfig, Storage
from startup_model.models.config import ModelConfig
from startup_model.models.quantization import Quantization
from startup_model.phases import PHASES

CITATION = "arXiv 2606.07362, Breaking the Ice: Analyzing Cold Start Latency in vLLM (MLSys 2026); means of five starts"

_PAGE_CACHE = 8.3e9  # bytes per second from the page cache: what the EPYC 9354 host reaches; ratios of other hosts are relative to it
_SATA_SSD = 0.6e9  # nominal bytes per second of a SATA III link; the cold runs reach 0.58 GB/s of it


class PublishedHost(NamedTuple):
    """One host of the measurements."""

    hardware: HardwareConfig
    main_dataset: str
    """The session that the coefficients stand for: hot page cache, warm compile cache."""


HOSTS: Mapping[str, PublishedHost] = {
    "h100-nvl-epyc-9354": PublishedHost(
        HardwareConfig.preset(
            "h100-nvl",
            cpu=Cpu(model="AMD EPYC 9354", cores=32, single_thread_score=1.0),
            storage=Storage(page_cache=_PAGE_CACHE, local_nvme=_SATA_SSD),
        ),
        "h100nvl_hot",
    ),
    "l40s-epyc-9354": PublishedHost(
        HardwareConfig.preset(
            "l40s",
            cpu=Cpu(model="AMD EPYC 9354", cores=32, single_thread_score=1.0),
            storage=Storage(page_cache=_PAGE_CACHE),
        ),
        "l40s_hot",
    ),
    "h100-sxm-xeon-8568y": PublishedHost(
        HardwareConfig.preset(
            "h100-sxm",
            cpu=Cpu(model="Intel Xeon Platinum 8568Y+", cores=48, single_thread_score=1.0),
            storage=Storage(page_cache=_PAGE_CACHE),
        ),
        "h100sxm_hot",
    ),
}
"""Name of a host (and of its reference profile) -> what it is. The first one is the host of all special data sets."""

_MIXED_STORAGE = frozenset({"h100nvl_no_torch_compile", "h100nvl_quantization"})
"""Data sets labelled hot of which some rows read from disk (13 GB in 5 s beside 16 GB in 2.4 s): their states are unknown."""

MAX_NUM_SEQS = 256
"""``max_num_seqs`` of the published starts, which have no column for it."""
CAPTURE_SIZES = (1, 2, 4, *range(8, 513, 8))
"""Batch sizes of vLLM's V1 core before 0.11.2, of which a run captures the first ones."""
PACKED = {
    "awq": Quantization(method="awq", bits=4, group_size=128),
    "gptq": Quantization(method="gptq", bits=4, group_size=128),
}
"""Methods whose checkpoints are packed in advance, where the model that was named is not."""


@lru_cache(maxsize=1)
def _graph_counts() -> Mapping[str, float]:
    """Model -> compiled graphs, which a first start with vLLM 0.10.1.1 reveals (same source)."""
    text = files("calibration").joinpath("data/graph_counts.csv").read_text(encoding="utf-8")
    return {row["model"]: float(row["compiled_graph_count"]) for row in csv.DictReader(text.splitlines())}


@lru_cache(maxsize=1)
def published_runs() -> tuple[RunRecord, ...]:
    """All published runs, in the order of the table."""
    return tuple(_record(row) for row in csv.DictReader(_table().splitlines()))


def records_digest() -> str:
    """SHA-256 of the table of runs."""
    return hashlib.sha256(_table().encode()).hexdigest()


def _table() -> str:
    return files("calibration").joinpath("data/published_runs.csv").read_text(encoding="utf-8")


def _record(row: Mapping[str, str]) -> RunRecord:
    model = ModelConfig.from_catalogue(row["model"])
    packed = PACKED.get(row["quantization"])
    if packed is not None:
        model = model.replace(quantization=packed)
    captures = int(row["captures"]) if row["captures"] else None
    compile_state = row["torch_compile"]
    hot = row["page_cache"] == "hot" and row["dataset"] not in _MIXED_STORAGE
    engine = EngineConfig(
        engine="vllm",
        version=row["engine_version"],
        quantization=row["quantization"] or None,
        load_format=row["load_format"],
        page_cache="hot" if hot else "cold" if row["page_cache"] == "cold" else "unknown",
        torch_compile=False if compile_state == "off" else None,
        compile_cache="cold" if compile_state == "cold" else "warm",
        max_num_seqs=MAX_NUM_SEQS,
        capture_sizes=None if captures is None else CAPTURE_SIZES[:captures],
    )
    return RunRecord(
        model=model,
        hardware=HOSTS[row["host"]].hardware,
        engine=engine,
        phases={str(name): float(row[name]) for name in PHASES if row.get(name)},
        wall_s=float(row["wall_s"]),
        facts={"compiled_graph_count": count} if (count := _graph_counts().get(row["model"])) else {},
        dataset=row["dataset"],
        repetitions=int(row["repetitions"]),
        stamp_resolution_s=float(row["stamp_resolution_s"]),
    )
