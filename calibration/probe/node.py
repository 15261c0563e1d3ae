"""From measurements to a node for predictions, and to the factors by which it differs from the host of the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from calibration.host import Gpu, HostFacts, describe_host, file_system_of
from calibration.probe.device import LINK, ON_DEVICE
from calibration.probe.imports import REPEATED, imported
from calibration.probe.memory import MEMORY
from calibration.probe.results import Found
from calibration.probe.sample import default_folder
from calibration.probe.score import SCORE
from calibration.probe.storage import cold_name, hot_name
from startup_model.engines.config import DEFAULT_VERSIONS
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.hardware import STORAGE_DEFAULTS, STORAGE_TIERS, Cpu, HardwareConfig, Storage, StorageTier
from startup_model.phases import Phase
from startup_model.predictor import predict
from startup_model.profile import Host, select_reference
from startup_model.units import format_seconds
from startup_model.versions import parse_version

__all__ = ["Factors", "bootstrap_note", "check_tier", "make_node", "scale_factors", "tier_of"]

_LARGEST_SCORE = 100.0
_IMPORTS_IN_A_ROW = 2
"""Times that vLLM is imported one after the other in a start: by the server, then by the process of the engine."""
_FAR = 1.15
_ANY_MODEL = "Qwen/Qwen3-0.6B"
"""The bootstrap does not depend on it."""


class Factors(NamedTuple):
    """What predictions of a node use without any run."""

    values: Mapping[str, float]
    reference: str
    """Name of the profile whose host they are relative to."""


def check_tier(tier: str | None) -> StorageTier | None:
    """The tier, when it is one. Raises UnknownNameError."""
    if tier is None:
        return None
    found = next((known for known in STORAGE_TIERS if known == tier), None)
    if found is None:
        raise UnknownNameError("tier", str(tier), STORAGE_TIERS)
    return found


def tier_of(folder: Path | None) -> StorageTier:
    """Which storage of a node the file system of a folder is (of the temporary files', where there is none)."""
    found = file_system_of(folder or default_folder()).tier
    return next((known for known in STORAGE_TIERS if known == found), "local_nvme")


def make_node(
    facts: HostFacts, found: Found, tier: StorageTier, measured: StorageTier | None = None
) -> tuple[HardwareConfig, tuple[str, ...]]:
    """The node with every number that was measured, the rest from its preset; and what to know about it.

    ``storage.<measured>`` (default: that of ``tier``, where the checkpoint lies) is one cold reader, ``storage.page_cache`` one hot reader; ``gpu_memory_bandwidth``
    of a node without accelerators is that of its memory.
    """
    node, warnings = _base(facts, found)
    storage: dict[str, float | str] = {"tier": tier}
    if cold := found.value(cold_name(1)):
        storage[measured or tier] = cold
    if hot := found.value(hot_name(1)):
        storage["page_cache"] = hot
    changes: dict[str, object] = {"storage": Storage.model_validate(storage), "source": _source(node)}
    if score := found.value(SCORE):
        changes["cpu"] = Cpu(model=facts.cpu, cores=facts.cores, single_thread_score=min(_LARGEST_SCORE, score))
    if link := found.value(LINK):
        changes["host_to_device_bandwidth"] = link
    if node.is_cpu_only and (memory := found.value(MEMORY)):
        changes["gpu_memory_bandwidth"] = memory
    if node.is_cpu_only:
        warnings = (
            *warnings,
            "gpu_flops is that of the preset 'cpu', not measured: the profile run of a large model may take longer",
        )
    fields = {name: getattr(node, name) for name in node.model_fields_set} | changes
    return HardwareConfig(**fields), warnings


def _source(node: HardwareConfig) -> str:
    return f"probe of this host; not measured: {node.source}"[:1000]


def _base(facts: HostFacts, found: Found) -> tuple[HardwareConfig, tuple[str, ...]]:
    """The node as its preset has it; where no preset has its accelerator, with the bandwidth of device memory that was measured."""
    try:
        return describe_host(facts), ()
    except ConfigError as error:
        gpu = max(facts.gpus, key=lambda entry: entry.memory_bytes)
        bandwidth = found.value(ON_DEVICE)
        if bandwidth is not None:
            return _unknown_gpu(gpu, facts, bandwidth), (
                f"{error.field} = {gpu.name}: {error.problem}; its numbers are as measured",
            )
        warning = f"{error.field} = {gpu.name}: {error.problem}, and nothing was measured on it: the node has the processor alone; add the accelerator's numbers"  # fmt: skip
        return describe_host(facts._replace(gpus=())), (warning,)


def _unknown_gpu(gpu: Gpu, facts: HostFacts, bandwidth: float) -> HardwareConfig:
    return HardwareConfig(
        name="host",
        gpu=gpu.name,
        gpus=gpu.number,
        gpu_memory=gpu.memory_bytes,
        gpu_memory_bandwidth=bandwidth,
        compute_capability=gpu.compute_capability,
        host_memory=facts.memory_bytes,
        cpu=Cpu(model=facts.cpu, cores=facts.cores),
        source="this host",
    )


def scale_factors(node: HardwareConfig, found: Found) -> Factors:
    """Single-thread time and bandwidths that were measured on a node, relative to the host of the reference that is nearest to it.

    Equation: slowdown = score of the reference's host / score of the node; else number of the node / number of that host, or of the table of defaults where it
    has none. Numbers that were not measured are left out.
    """
    profile = select_reference("vllm", "v1", parse_version(DEFAULT_VERSIONS["vllm"]), node).profile
    values = {}
    if found.value(SCORE) is not None and (score := node.cpu.score):
        values["single_thread_score"] = score
        values["slowdown"] = (profile.host.single_thread_score or score) / score
    for name, (own, theirs) in _pairs(node, profile.host, found).items():
        if own and theirs:
            values[name] = own / theirs
    return Factors({name: value for name, value in values.items() if math.isfinite(value)}, profile.name)


def _pairs(node: HardwareConfig, host: Host, found: Found) -> dict[str, tuple[float | None, float | None]]:
    """By field of the node: its number where it was measured, and that of the reference's host."""
    storage, link = node.storage, found.value(LINK) is not None
    memory = found.value(MEMORY if node.is_cpu_only else ON_DEVICE) == node.gpu_memory_bandwidth
    tiers = {
        f"storage.{tier}": (getattr(storage, tier), getattr(host, f"{tier}_bandwidth") or STORAGE_DEFAULTS[tier])
        for tier in STORAGE_TIERS
    }
    return {
        "storage.page_cache": (storage.page_cache, host.page_cache_bandwidth),
        **tiers,
        "host_to_device_bandwidth": (node.host_to_device_bandwidth if link else None, host.host_to_device_bandwidth),
        "gpu_memory_bandwidth": (node.gpu_memory_bandwidth if memory else None, host.gpu_memory_bandwidth),
    }


def bootstrap_note(node: HardwareConfig, found: Found) -> tuple[str, ...]:
    """What the measured import says of predictions for the node: that their bootstrap is too short to hold the imports of a start.

    A start of vLLM imports it twice in a row, so that ``framework_bootstrap`` takes 2 × the import at least. No term takes that number: the reference's hosts were
    not probed, so nothing relates their bootstrap to it.
    """
    seconds = found.value(REPEATED)
    if seconds is None or imported(found) != "vllm":
        return ()
    least = _IMPORTS_IN_A_ROW * seconds
    predicted = predict(_ANY_MODEL, node).phases[Phase.FRAMEWORK_BOOTSTRAP].seconds
    if least <= _FAR * predicted:
        return ()
    words = f"import of vllm: {format_seconds(seconds)}, twice in a row in a start: framework_bootstrap takes {format_seconds(least)} at least"
    return (
        f"{words}, predictions of this node without a profile have {format_seconds(predicted)}; profile one start (startup-model profile)",
    )
