"""What host this is: processor, memory, accelerators, kernel, file systems; and what its page cache holds of a checkpoint.

Read from the kernel's own files and from ``nvidia-smi``; nothing is measured here (see ``probe``). Limits of a container count: its cores and its
memory are those that a server in it can use.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from startup_model.errors import ConfigError, InputFileError, StartupModelError, UnknownNameError, one_line
from startup_model.hardware import Cpu, HardwareConfig

_QUERY_S = 20.0
_MAX_NAME, _MAX_FILE, _MAX_FILES = 100, 2**22, 10_000
_NETWORK = re.compile(r"nfs4?|cifs|smb3|smbfs|lustre|ceph|glusterfs|gpfs|beegfs|afs|9p|wekafs|efs|fsx")
_OBJECT_STORE = re.compile(r"s3fs|gcsfuse|goofys|blobfuse|mountpoint-s3|juicefs|rclone|geesefs")
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
_CHUNK = 2**23
_STEP = 2**30  # bytes of a file that are mapped at a time

Part = tuple[Path, int, int]
"""A piece of a file: its path, where the piece begins [B], its length [B]."""


class Gpu(NamedTuple):
    """Accelerators of one kind."""

    name: str  # as its driver calls it, ``NVIDIA H100 NVL``
    number: int  # how many of them this process sees
    memory_bytes: float  # of one of them
    compute_capability: str | None  # such as ``9.0``; None where the driver does not say
    driver: str  # its version


class FileSystem(NamedTuple):
    """The file system below a path."""

    kind: str  # as the kernel calls it: ext4, xfs, overlay, nfs4 ...
    device: str  # what is mounted: a device, or a share of another host
    tier: str  # local_nvme, network_disk or object_store: which storage of a HardwareConfig it is


class HostFacts(NamedTuple):
    """A host, as far as software can see it."""

    cpu: str  # model of the processor, without trade marks; ``unknown`` where the kernel does not say
    cores: int  # that this process may use
    memory_bytes: float  # that this process may use
    gpus: tuple[Gpu, ...]  # one entry a kind; empty without accelerators, or without ``nvidia-smi``
    kernel: str  # name and release of the operating system's kernel
    python: str  # version of the Python that this is read by; a server may run in another one (see ``server_versions``)


def host_facts() -> HostFacts:
    """The host that this runs on. Nothing is raised: what cannot be read is unknown."""
    return HostFacts(
        cpu=_cpu_name(),
        cores=_cores(),
        memory_bytes=usable_memory(),
        gpus=accelerators(),
        kernel=one_line(f"{platform.system()} {platform.release()}", _MAX_NAME),
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
        memory = {"gpu_memory": facts.memory_bytes, "host_memory": facts.memory_bytes}
        return HardwareConfig.preset("cpu", name="host", cpu=cpu, source="this host, preset cpu", **memory)
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
        remedy = "give the node with its numbers (hardware=, --hardware node.json)"
        raise ConfigError("hardware", gpu.name, "no preset has this accelerator", remedy) from None


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
    return words if folder is None else {**words, "file_system": file_system_of(folder).kind}


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    """Without trade marks and words that say nothing: ``AMD EPYC 9354``, ``Intel Xeon Platinum 8481C``."""
    listed = re.search(r"^(?:model name|Processor|cpu model)[ \t]*:[ \t]*(\S.*)", _read("/proc/cpuinfo"), re.MULTILINE)
    text = _output("sysctl", "-n", "machdep.cpu.brand_string") if sys.platform == "darwin" else ""
    text = (listed[1] if listed else text) or platform.processor() or platform.machine()
    words = re.sub(r"\((?:R|TM|r|tm)\)|CPU|Processor", " ", text).split("@")[0].split()
    return one_line(" ".join(word for word in words if not word.endswith(("-Core", "-core"))), _MAX_NAME) or "unknown"


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = _read("/sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        cores = min(cores, math.ceil(int(words[0]) / int(words[1])))
    return max(1, cores)


def usable_memory(unknown: float = 2.0**30) -> float:
    """Memory that this process may use [B]; ``unknown`` where nothing says so."""
    found = []
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found.append(float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES")))
    limits = map(_read, ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    found += [float(text) for text in limits if text.strip().isdigit() and int(text) > 0]
    return min(found, default=unknown)


def accelerators(timeout_s: float = _QUERY_S) -> tuple[Gpu, ...]:
    """Accelerators that ``nvidia-smi`` lists, equal ones together; none where it is not there, fails or takes longer than ``timeout_s``."""
    query = "--query-gpu=name,memory.total,compute_cap,driver_version"
    text = _output("nvidia-smi", query, "--format=csv,noheader,nounits", timeout_s=timeout_s)
    found: Counter[tuple[str, float, str | None, str]] = Counter()
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[1].replace(".", "", 1).isdigit():
            capability = fields[2] if fields[2].replace(".", "", 1).isdigit() else None
            name, driver = one_line(fields[0], _MAX_NAME), one_line(fields[3], 40)
            found[name, float(fields[1]) * 2**20, capability, driver] += 1
    return tuple(Gpu(name, count, *others) for (name, *others), count in found.items())  # type: ignore[arg-type]


def _read(path: str) -> str:
    """A file of the kernel; empty where it has none."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_FILE)
    except OSError:
        return ""


def _output(*words: str, timeout_s: float = _QUERY_S) -> str:
    """What a program prints; empty when it is not there, fails or hangs."""
    try:
        done = subprocess.run(  # noqa: S603  fixed words
            [shutil.which(words[0]) or "", *words[1:]], capture_output=True, timeout=timeout_s, check=True, stdin=subprocess.DEVNULL
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")[: 2**16]


def file_system_of(path: Path) -> FileSystem:
    """The file system that ``path`` lies on; unknown where the kernel does not list mounts."""
    with contextlib.suppress(OSError):
        path = path.resolve()
    best, kind, device = "", "unknown", ""
    for line in _read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if len(fields) >= 5 and len(kinds) >= 2:
            mount = fields[4].replace("\\040", " ")
            if path.is_relative_to(mount) and len(mount) >= len(best):
                best, (kind, device) = mount, kinds[:2]
    name = kind.removeprefix("fuse.").lower()
    if any(map(_OBJECT_STORE.fullmatch, (name, device.split(":", maxsplit=1)[0]))):
        return FileSystem(kind, device, "object_store")
    return FileSystem(kind, device, "network_disk" if _NETWORK.fullmatch(name) else "local_nvme")


def checkpoint_files(folder: Path) -> list[Path]:
    """Files of a checkpoint: all weights in its folder, safetensors alone where there are any, as engines load them.

    Raises InputFileError when the folder is not there, or holds none.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())[:_MAX_FILES]
    except OSError as error:
        raise InputFileError(f"{folder}: {error.strerror or error}; give the folder of a checkpoint") from None
    if not files:
        raise InputFileError(f"{folder}: no weights in it; give the folder of a checkpoint")
    return [path for path in files if path.suffix == ".safetensors"] or files


def read_into_cache(files: Iterable[Path], tell: Callable[[int], object] = lambda done: None) -> int:
    """Read every file to its end, so that the page cache holds what it can; returns the bytes read [B]. ``tell`` hears how many, once in a GiB.

    Files larger than the free memory push each other out: see ``resident_fraction``. Raises InputFileError for a file that is not there or cannot be read.
    """
    total = 0
    buffer = bytearray(_CHUNK)
    for path in files:
        with _opened(path) as descriptor:
            while count := os.readv(descriptor, [buffer]):
                if total // _STEP != (total + count) // _STEP:
                    tell(total + count)
                total += count
    return total


def evict(files: Iterable[Path | Part]) -> None:
    """Take files, or pieces of them, out of the page cache (``posix_fadvise`` DONTNEED), what was written to them on disk first.

    It needs no privilege beyond reading them. It is advice: pages that another process maps or reads at the moment stay, and nothing says so; see ``resident_fraction``.
    Raises StartupModelError on a platform without ``posix_fadvise``, InputFileError for a file that is not there or cannot be read.
    """
    if not hasattr(os, "posix_fadvise"):
        raise StartupModelError(
            "this platform cannot take files out of the page cache: choose page_cache='hot' or 'as_is'"
        )
    for path, begin, length in map(_part, files):
        with _opened(path) as descriptor:
            with contextlib.suppress(OSError):
                os.fdatasync(descriptor)  # dirty pages would stay
            os.posix_fadvise(descriptor, begin, length or 0, os.POSIX_FADV_DONTNEED)


def drop_all_caches() -> None:
    """Empty the page cache of the whole host. Raises StartupModelError without the privilege."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
    except OSError as error:
        raise StartupModelError(
            f"drop_caches: {error.strerror or error}: root is needed; leave it out, the checkpoint's own files are evicted without it"
        ) from None


def may_be_seen(path: Path) -> bool:
    """Whether the kernel tells this process which pages of a file are in memory: it owns the file, or may write it.

    For other files Linux (since 5.2) says that all of them are, so that nobody can watch what others read. False for a file that is not there.
    """
    try:
        owner = path.stat().st_uid
    except OSError:
        return False
    return owner == os.geteuid() or os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def resident_fraction(files: Iterable[Path | Part]) -> float | None:
    """Share [1] of the pages of some files, or pieces of them, that the page cache holds (``mincore``): 0 none, 1 all.

    None where nothing says so: a platform without ``mincore``, a file that this process neither owns nor may write (see ``may_be_seen``), or files without a byte.
    Raises InputFileError for a file that is not there or cannot be read.
    """
    import numpy as np

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "mincore"):
        return None
    page, held, total = mmap.PAGESIZE, 0, 0
    rights = mmap.PROT_READ | mmap.PROT_WRITE  # never written to: only such a mapping gives ctypes its address
    for path, begin, piece in map(_part, files):
        with _opened(path) as descriptor:
            if not may_be_seen(path):
                return None
            size = os.fstat(descriptor).st_size
            end = size if piece is None else min(size, begin + piece)
            for offset in range(begin // page * page, end, _STEP):
                length = min(_STEP, end - offset)
                present = np.zeros(-(-length // page), np.uint8)
                with mmap.mmap(descriptor, length, flags=mmap.MAP_PRIVATE, prot=rights, offset=offset) as mapped:
                    view = ctypes.c_char.from_buffer(mapped)
                    where, pages = ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_void_p(present.ctypes.data)
                    failed = library.mincore(where, ctypes.c_size_t(length), pages)
                    del view
                if failed:
                    return None
                held += int(np.count_nonzero(present & 1))
                total += len(present)
    return held / total if total else None


def _part(entry: Path | Part) -> tuple[Path, int, int | None]:
    """Path, begin and length [B]; None: to the end of the file."""
    return (entry[0], entry[1], entry[2]) if isinstance(entry, tuple) else (entry, 0, None)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        with path.open("rb", buffering=0) as file:
            yield file.fileno()
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; is the checkpoint still there?") from None
