"""The node: accelerators, links, storage, processor, and the cluster around it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from startup_model.errors import ConfigError, UnknownNameError, conflict, out_of_range, wrong_type
from startup_model.files import package_text, read_json_object
from startup_model.frozen import FrozenModel
from startup_model.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds

StorageTier = Literal["local_nvme", "network_disk", "object_store"]
Platform = Literal["cuda", "rocm", "hpu", "npu", "cpu"]

STORAGE_TIERS: tuple[StorageTier, ...] = ("local_nvme", "network_disk", "object_store")

STORAGE_DEFAULTS: Mapping[str, float] = {
    "page_cache": 8.3e9,
    "local_nvme": 4.7e9,
    "network_disk": 0.5e9,
    "object_store": 0.8e9,
}
"""Read bandwidth in bytes per second where neither the node nor the profile's host gives one.

page_cache: a file in RAM copied to the device by one process (arXiv 2606.07362: 8.3 GB/s on an EPYC 9354). local_nvme: one
sequential reader on a data-centre drive, which gives 3.0 GB/s end to end once the copy to the device is added
(ServerlessLLM's H100 benchmarks: 3.2-3.6 GB/s with safetensors). network_disk: between the 125 MB/s that a gp3 volume has by
default and the 1-2 GB/s it can be given. object_store: about ten parallel range requests of 80 MB/s each, as cloud
guides advise.
"""

CLUSTER_DEFAULTS: Mapping[str, float] = {
    "provision_s": 120.0,
    "image_bytes": 10e9,
    "image_pull_bandwidth": 0.05e9,
    "container_start_s": 2.0,
}
"""Segments before the engine where they are asked for and the node does not give them.

Provisioning of GPU nodes takes 45-410 s; an engine image is about 10 GB compressed and is pulled and unpacked at
0.02-0.1 GB/s plainly, 0.3-0.75 GB/s with lazy or parallel pulling; the container runtime needs one to a few seconds.
"""


class NodeNumber(NamedTuple):
    """A number of a node that terms take, and where it comes from."""

    name: str
    """Of the input, as terms and ``startup_model.recipe`` call it."""
    field: str
    """Field of HardwareConfig that gives it."""
    unit: str
    better: int
    """+1: more is faster; -1: less is; 0: it is no property of the node alone."""
    host_field: str | None = None
    """Field of a profile's host that stands in where the node does not give it."""
    default: float | None = None
    """Stands in where neither gives it."""
    tiers: frozenset[str] = frozenset(STORAGE_TIERS)
    """Tiers of storage with which it has an effect."""
    may_be_assumed: bool = False
    """On a host without accelerators, where nobody may have measured it: see ``Host.assumed``."""


NODE_NUMBERS: Mapping[str, NodeNumber] = {
    number.name: number
    for number in (
        NodeNumber("single_thread_score", "cpu.single_thread_score", "1", +1, "single_thread_score", 1.0),
        NodeNumber("storage_bandwidth", "storage.cold_bandwidth", "B/s", +1),  # host field and default by tier
        NodeNumber("network_bandwidth", "network_bandwidth", "B/s", +1, None, math.inf, frozenset(STORAGE_TIERS[1:])),
        NodeNumber("concurrent_starts", "storage.concurrent_starts", "1", 0),
        NodeNumber("page_cache_bandwidth", "storage.page_cache", "B/s", +1, "page_cache_bandwidth", may_be_assumed=True),
        NodeNumber("host_to_device_bandwidth", "host_to_device_bandwidth", "B/s", +1, "host_to_device_bandwidth"),
        NodeNumber("memory_bandwidth", "gpu_memory_bandwidth", "B/s", +1, "gpu_memory_bandwidth", may_be_assumed=True),
        NodeNumber("device_flops", "gpu_flops", "FLOP/s", +1, "device_flops", may_be_assumed=True),
        NodeNumber("provision_seconds", "provision_s", "s", -1, None, CLUSTER_DEFAULTS["provision_s"]),
        NodeNumber("image_bytes", "image_bytes", "B", -1, None, CLUSTER_DEFAULTS["image_bytes"]),
        NodeNumber("image_pull_bandwidth", "image_pull_bandwidth", "B/s", +1, None, CLUSTER_DEFAULTS["image_pull_bandwidth"]),
        NodeNumber("container_start_seconds", "container_start_s", "s", -1, None, CLUSTER_DEFAULTS["container_start_s"]),
    )
}  # fmt: skip
"""Every number of a node that a term depends on, by the name of the input; nothing else of a start depends on these."""

UNKNOWN_CPU = "unknown"
"""Name of a processor that was not given."""


class Storage(FrozenModel):
    """Where weights are read from, and how fast: bytes per second of one sequential reader. None: as on the profile's
    host."""

    page_cache: BytesPerSecond | None = None
    """From the page cache to the device, by one process."""
    local_nvme: BytesPerSecond | None = None
    """A local drive (NVMe or SATA)."""
    network_disk: BytesPerSecond | None = None
    """Block storage or a file system over the network."""
    object_store: BytesPerSecond | None = None
    """An object store, or a hub."""
    tier: StorageTier = "local_nvme"
    """Where the checkpoint lies when it is not in the page cache."""
    concurrent_starts: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Starts that read from the same storage at the same time and share its bandwidth."""

    @property
    def cold_bandwidth(self) -> float | None:
        """Bandwidth of the tier where the checkpoint lies; None when the node does not give it."""
        value: float | None = getattr(self, self.tier)
        return value


class Cpu(FrozenModel):
    """The host processor. CPU-bound phases are scaled by single-thread speed."""

    model: Annotated[str, Field(max_length=200)] = UNKNOWN_CPU
    cores: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Kept for the record: start-up is bound by one thread, no term uses it."""
    single_thread_score: Annotated[float, Field(gt=0, le=100)] | None = None
    """Single-thread speed relative to an AMD EPYC 9354 (= 1.0); None: looked up by ``model``, else as on the profile's
    host."""

    @property
    def score(self) -> float | None:
        """The given score, else that of the table for ``model``, else None."""
        given = self.single_thread_score
        return given if given is not None else _tables().cpu_scores.get(self.model.lower())


class HardwareConfig(FrozenModel):
    """A node (or several equal ones) with its accelerators, links, storage and processor.

    Sizes are bytes, bandwidths bytes per second; texts such as ``"94 GB"``, ``"3.9 TB/s"`` or ``"100 Gbps"`` are read.
    A number that is None is taken from the host of the profile in use. Raises ConfigError for values that cannot be.
    """

    name: Annotated[str, Field(max_length=200)] = "node"
    gpu: Annotated[str, Field(max_length=200)] = "unknown"
    platform: Platform = "cuda"
    """What the engine runs on: cuda, rocm, hpu (Gaudi), npu (Ascend), or cpu."""
    gpus: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Accelerators per node; 0: CPU only."""
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    gpu_memory: Annotated[Bytes, Field(gt=0)]
    """Memory of one accelerator as its driver reports it (of the host, for CPU-only nodes)."""
    gpu_memory_bandwidth: BytesPerSecond
    gpu_flops: FlopPerSecond | None = None
    """Dense bfloat16 (or float16) FLOP per second of one accelerator."""
    host_to_device_bandwidth: BytesPerSecond | None = None
    """Pinned-memory copies to one accelerator."""
    interconnect_bandwidth: BytesPerSecond | None = None
    """Between accelerators of one node, one direction; kept for the record, no term uses it yet."""
    network_bandwidth: BytesPerSecond | None = None
    """Of one node; bounds what network disks and object stores can give."""
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")] | None = None
    """Of NVIDIA devices, such as 9.0."""
    storage: Storage = Field(default_factory=Storage)
    cpu: Cpu = Field(default_factory=Cpu)
    host_memory: Annotated[Bytes, Field(gt=0)] | None = None
    provision_s: Seconds | None = None
    """Until a new node has joined the cluster."""
    image_bytes: Bytes | None = None
    """Compressed container image."""
    image_pull_bandwidth: BytesPerSecond | None = None
    """Pulling and unpacking together."""
    container_start_s: Seconds | None = None
    source: Annotated[str, Field(max_length=1000)] = "given by the user"
    """Where the numbers come from."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        disk, network = self.storage.network_disk, self.network_bandwidth
        if disk and network and disk > network:
            raise out_of_range(
                "storage.network_disk", disk, f"at most network_bandwidth = {network}", "correct one of the two"
            )
        if (self.gpus == 0) != (self.platform == "cpu"):
            remedy = "0 accelerators are platform 'cpu', all others have some"
            raise conflict("gpus", self.gpus, f"platform = {self.platform!r}", remedy)
        return self

    @property
    def is_cpu_only(self) -> bool:
        """True when the engine computes on the host processor."""
        return self.gpus == 0

    @classmethod
    def preset(cls, name: str, /, **changes: Any) -> Self:
        """A node by the name of its accelerator, with some fields changed: ``preset("h100-sxm", gpus=8)``.

        ``storage`` and ``cpu`` may be dicts. Raises UnknownNameError for a name that is not in the table, ConfigError
        for bad changes.
        """
        if not isinstance(name, str):
            raise wrong_type("hardware", name, "the name of a preset", f"such as {', '.join(preset_names()[:3])}")
        table = _tables()
        identity = table.aliases.get(name.strip().lower().replace("_", "-").replace(" ", "-"))
        if identity is None:
            remedy = "Otherwise give a JSON file or the numbers (gpu_memory, gpu_memory_bandwidth, ...)."
            raise UnknownNameError("hardware", name, table.presets, remedy, aliases=table.aliases)
        return cls(**({"name": identity} | table.presets[identity] | changes))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """From a JSON file with the fields of this class; ``preset`` names a preset that the other fields change.

        Raises InputFileError or ConfigError.
        """
        return cls.from_mapping(read_json_object(Path(path), 2**20, "a hardware description"))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """From a dict with the fields of this class, or with ``preset`` and the fields that differ from it."""
        fields = dict(data)
        name = fields.pop("preset", None)
        if name is None:
            return cls.model_validate(fields)
        if not isinstance(name, str):
            raise wrong_type("preset", name, "the name of a preset", f"known: {', '.join(preset_names())}")
        return cls.preset(name, **{str(key): value for key, value in fields.items()})


def storage_changes(text: str, where: str = "storage") -> dict[str, Any]:
    """``network_disk`` or ``network_disk=1.2 GB/s`` as fields of Storage. Raises ConfigError for another store or rate."""
    tier, given, bandwidth = (part.strip() for part in text.partition("="))
    if tier not in STORAGE_TIERS:
        raise UnknownNameError(where, tier, STORAGE_TIERS)
    if not given:
        return {"tier": tier}
    if bandwidth.replace(".", "").isdigit():
        raise ConfigError(where, text, "the bandwidth has no unit", f"write {tier}={bandwidth} GB/s, say")
    return {"tier": tier, tier: bandwidth}


def preset_names() -> tuple[str, ...]:
    """Names of all hardware presets."""
    return tuple(_tables().presets)


class _Tables(NamedTuple):
    presets: dict[str, dict[str, Any]]
    aliases: dict[str, str]
    """Every name that leads to a preset, its own among them."""
    cpu_scores: dict[str, float]
    """Folded processor name -> single-thread speed relative to an EPYC 9354."""


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    table = json.loads(package_text("data/hardware.json"))
    aliases = {alias: name for name, entry in table["presets"].items() for alias in (*entry.pop("aliases"), name)}
    scores = {name.lower(): float(entry["single_thread_score"]) for name, entry in table["cpus"].items()}
    return _Tables(table["presets"], aliases, scores)
