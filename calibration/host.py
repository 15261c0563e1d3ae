"""What host this is: processor, memory, accelerators, kernel, file systems; as facts, as a HardwareConfig, as a fingerprint.

Read from the kernel's own files and from ``nvidia-smi``; nothing is measured here (see ``probe``). Limits of a container count: its cores and its
memory are those that a server in it can use.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from startup_model.errors import ConfigError, UnknownNameError, one_line
from startup_model.hardware import Cpu, HardwareConfig

__all__ = [
    "FileSystem",
    "Gpu",
    "HostFacts",
    "describe_host",
    "facts_in_words",
    "file_system_of",
    "fingerprint",
    "host_facts",
]

_QUERY_S = 20.0
_LONGEST_NAME = 100
_LONGEST_FILE = 2**22
_NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "glusterfs", "gpfs", "beegfs", "afs", "9p", "wekafs", "efs", "fsx"]
)  # fmt: skip
_OBJECT_STORES = ("s3fs", "gcsfuse", "goofys", "blobfuse", "mountpoint-s3", "juicefs", "rclone", "geesefs")


class Gpu(NamedTuple):
    """Accelerators of one kind."""

    name: str
    """As its driver calls it, ``NVIDIA H100 NVL``."""
    number: int
    """How many of them this process sees."""
    memory_bytes: float
    """Of one of them."""
    compute_capability: str | None
    """Such as ``9.0``; None where the driver does not say."""
    driver: str
    """Version of the driver."""


class FileSystem(NamedTuple):
    """The file system below a path."""

    kind: str
    """As the kernel calls it: ext4, xfs, overlay, nfs4 ..."""
    device: str
    """What is mounted: a device, or a share of another host."""
    tier: str
    """local_nvme, network_disk or object_store: which storage of a HardwareConfig it is."""


class HostFacts(NamedTuple):
    """A host, as far as software can see it."""

    cpu: str
    """Model of the processor, without trade marks; ``unknown`` where the kernel does not say."""
    cores: int
    """That this process may use."""
    memory_bytes: float
    """That this process may use."""
    gpus: tuple[Gpu, ...]
    """One entry a kind; empty without accelerators, or without ``nvidia-smi``."""
    kernel: str
    """Name and release of the operating system's kernel."""
    python: str
    """Version of the Python that this is read by; a server may run in another one (see ``profiling.versions``)."""


def host_facts() -> HostFacts:
    """The host that this runs on. Nothing is raised: what cannot be read is unknown."""
    return HostFacts(
        cpu=_cpu_name(),
        cores=_cores(),
        memory_bytes=_memory(),
        gpus=_nvidia(),
        kernel=one_line(f"{platform.system()} {platform.release()}", _LONGEST_NAME),
        python=platform.python_version(),
    )


def fingerprint(facts: HostFacts) -> str:
    """A short name that is the same for the same hardware: 12 hexadecimal digits of a hash of processor, cores, memory and accelerators."""
    gib = round(facts.memory_bytes / 2**30)
    gpus = [(gpu.name, gpu.number, round(gpu.memory_bytes / 2**30)) for gpu in facts.gpus]
    return hashlib.sha256(repr((facts.cpu, facts.cores, gib, gpus)).encode()).hexdigest()[:12]


def describe_host(facts: HostFacts) -> HardwareConfig:
    """The host as a node for predictions: the preset of its accelerators (or of a processor alone) with what is known of this host.

    Raises ConfigError for accelerators of several kinds, or of a kind that no preset has: give the hardware then.
    """
    cpu = Cpu(model=facts.cpu, cores=facts.cores)
    if not facts.gpus:
        return HardwareConfig.preset(
            "cpu", name="host", gpu_memory=facts.memory_bytes, host_memory=facts.memory_bytes, cpu=cpu, source="this host, preset cpu"
        )  # fmt: skip
    if len(facts.gpus) > 1:
        kinds = ", ".join(gpu.name for gpu in facts.gpus)
        raise ConfigError("hardware", kinds, "accelerators of several kinds", "give the node (hardware=, --hardware)")
    (gpu,) = facts.gpus
    changes = {"gpus": gpu.number, "gpu_memory": gpu.memory_bytes, "host_memory": facts.memory_bytes, "cpu": cpu}
    if gpu.compute_capability is not None:
        changes["compute_capability"] = gpu.compute_capability
    try:
        return HardwareConfig.preset(gpu.name, **changes)
    except UnknownNameError:
        raise ConfigError(
            "hardware", gpu.name, "no preset has this accelerator", "give the node with its numbers (hardware=, --hardware node.json)"
        ) from None  # fmt: skip


# --- processor and memory -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Processor", "cpu model") and value.strip():
            return _plain_name(value)
    if sys.platform == "darwin":
        text = _output("sysctl", "-n", "machdep.cpu.brand_string")
        if text:
            return _plain_name(text)
    return _plain_name(platform.processor() or platform.machine() or "unknown")


def _plain_name(text: str) -> str:
    """A processor without trade marks and the words that say nothing: ``AMD EPYC 9354``, ``Intel Xeon Platinum 8481C``."""
    for mark in ("(R)", "(TM)", "(r)", "(tm)", "CPU", "Processor"):
        text = text.replace(mark, " ")
    words = [word for word in text.split("@")[0].split() if not word.endswith(("-Core", "-core"))]
    return one_line(" ".join(words), _LONGEST_NAME) or "unknown"


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = (_read("/sys/fs/cgroup/cpu.max") or "max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        cores = min(cores, max(1, math.ceil(int(words[0]) / int(words[1]))))
    return max(1, cores)


def _memory() -> float:
    found = []
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found.append(float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES")))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = (_read(path) or "").strip()
        if text.isdigit() and int(text) > 0:
            found.append(float(text))
    return min(found, default=2.0**30)


def _read(path: str) -> str | None:
    """A file of the kernel; None where it has none."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_FILE)
    except OSError:
        return None


# --- accelerators -------------------------------------------------------------------------------------------------------


def _nvidia() -> tuple[Gpu, ...]:
    """Accelerators that nvidia-smi lists, equal ones together."""
    text = _output(
        "nvidia-smi", "--query-gpu=name,memory.total,compute_cap,driver_version", "--format=csv,noheader,nounits"
    )
    counts: dict[tuple[str, float, str | None, str], int] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[1].replace(".", "", 1).isdigit():
            capability = fields[2] if fields[2].replace(".", "", 1).isdigit() else None
            key = (one_line(fields[0], _LONGEST_NAME), float(fields[1]) * 2**20, capability, one_line(fields[3], 40))
            counts[key] = counts.get(key, 0) + 1
    return tuple(
        Gpu(name, count, memory, capability, driver) for (name, memory, capability, driver), count in counts.items()
    )


def _output(*words: str) -> str:
    """What a program prints; empty when it is not there, fails or hangs."""
    program = shutil.which(words[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603  fixed words
            [program, *words[1:]], capture_output=True, timeout=_QUERY_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")[: 2**16] if done.returncode == 0 else ""


# --- storage ------------------------------------------------------------------------------------------------------------


def file_system_of(path: Path) -> FileSystem:
    """The file system that ``path`` lies on; unknown where the kernel does not list mounts."""
    try:
        target = str(path.resolve())
    except OSError:
        target = str(path)
    best, found = "", FileSystem("unknown", "", "local_nvme")
    for mount, kind, device in _mounts():
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, FileSystem(kind, device, _tier(kind, device))
    return found


def _mounts() -> Iterator[tuple[str, str, str]]:
    for line in (_read("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) >= 5 and len(kinds) >= 2:
            yield fields[4].replace("\\040", " "), kinds[0], kinds[1]


def _tier(kind: str, device: str) -> str:
    name = kind.removeprefix("fuse.").lower()
    if name in _OBJECT_STORES or device.split(":", maxsplit=1)[0] in _OBJECT_STORES:
        return "object_store"
    return "network_disk" if name in _NETWORK_FILE_SYSTEMS else "local_nvme"


def facts_in_words(facts: HostFacts, folder: Path | None = None) -> dict[str, str]:
    """The facts as words, for the record of a run; with the file system of a folder."""
    words = {
        "cpu": facts.cpu,
        "cores": str(facts.cores),
        "memory": f"{facts.memory_bytes / 2**30:.1f} GiB",
        "kernel": facts.kernel,
        "profiled_by": f"Python {facts.python}",
        "gpus": ", ".join(f"{gpu.number} x {gpu.name}, driver {gpu.driver}" for gpu in facts.gpus) or "none",
    }
    if folder is not None:
        words["file_system"] = file_system_of(folder).kind
    return words
