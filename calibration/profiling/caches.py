"""The state of a host before a start: what of the checkpoint is in the page cache (``calibration.page_cache``), and where compiled graphs are kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
def fresh_compile_cache(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Variables that send compiled graphs to a new folder, which is deleted afterwards.

    What the engine has noted about model classes is copied into it: that is no compiled graph, and working it out anew would add seconds to the bootstrap.
    Raises OSError when no temporary folder can be made.
    """
    folder = Path(tempfile.mkdtemp(prefix="startup-model-compile-"))
    try:
        notes = Path(environment.get("VLLM_CACHE_ROOT") or Path.home() / ".cache" / "vllm") / "modelinfos"
        if notes.is_dir():
            shutil.copytree(notes, folder / "vllm" / "modelinfos", dirs_exist_ok=True)
        yield {
            "VLLM_CACHE_ROOT": str(folder / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
