"""The state of a host before a start: what of the checkpoint is in the page cache (``calibration.page_cache``), and where compiled graphs are kept."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from calibration.measure.checkpoint import home_folder
from calibration.page_cache import checkpoint_files, drop_all_caches, evict, read_into_cache, resident_fraction

__all__ = [
    "checkpoint_files",
    "drop_all_caches",
    "evict",
    "fresh_compile_cache",
    "read_into_cache",
    "resident_fraction",
]


@contextmanager
def fresh_compile_cache(environment: Mapping[str, str], parent: Path | None = None) -> Iterator[dict[str, str]]:
    """Variables that send compiled graphs to a new folder, which is deleted afterwards; ``parent``: where it is made, None: among temporary files.

    What the engine has noted about model classes is copied into it: that is no compiled graph, and working it out anew would add seconds to the bootstrap. Where the
    copy fails none of it is there.
    Raises OSError when no temporary folder can be made.
    """
    folder = Path(tempfile.mkdtemp(prefix="startup-model-compile-", dir=parent))
    try:
        notes = Path(environment.get("VLLM_CACHE_ROOT") or home_folder(environment) / ".cache" / "vllm") / "modelinfos"
        _copy(notes, folder / "vllm" / "modelinfos")
        yield {
            "VLLM_CACHE_ROOT": str(folder / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """A copy of a folder, or none at all: half of a note would be worse."""
    try:
        if source.is_dir():
            shutil.copytree(source, target, ignore_dangling_symlinks=True)
    except (OSError, ValueError):  # a full disk, a file that may not be read
        with contextlib.suppress(OSError):
            shutil.rmtree(target)
