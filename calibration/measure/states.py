"""The states that starts are measured in: what of the checkpoint is in the page cache, which compiled graphs are there. They are made before a start, and
what is recorded is what they turned out to be."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self

from calibration.measure.caches import fresh_compile_cache
from calibration.measure.steps import CompileCache, Group, PageCache, Step
from calibration.page_cache import checkpoint_files, drop_all_caches, evict, read_into_cache, resident_fraction
from startup_model.errors import ConfigError, StartupModelError
from startup_model.units import format_bytes

__all__ = ["CompileCaches", "CompileState", "PageState", "compile_state", "files_to_prepare", "prepare_page_cache"]

PageState = Literal["hot", "cold", "unknown"]
CompileState = Literal["warm", "cold", "unknown"]

_TOLD: Mapping[str, CompileState] = {"warm": "warm", "cold": "cold"}
_HOT, _COLD = 0.9, 0.05
"""Share of the checkpoint in the page cache from which it counts as hot, and up to which as cold."""


def files_to_prepare(folder: Path | None, step: Step, *, reads_weights: bool) -> list[Path]:
    """The checkpoint's files, as far as the step is about them; none where they are not on this host, or not read.

    folder: where they are; None: not on this host. Raises ConfigError for a cold start without them, InputFileError for a folder that holds none.
    """
    if not reads_weights:
        return []
    if folder is not None:
        return checkpoint_files(folder)
    if step.page_cache == "cold":
        raise ConfigError(
            "page_cache", "cold", "the checkpoint is not a folder on this host, nor in the hub's cache", "choose as_is, or give its folder"
        )  # fmt: skip
    return []


def prepare_page_cache(
    files: Sequence[Path],
    asked: PageCache,
    *,
    drop: bool = False,
    tell: Callable[[str], None] = lambda words: None,
) -> PageState:
    """Make files hot or cold, or leave them; the state that they are in then.

    drop: whether cold empties the whole page cache, too. tell: is told what is done. Raises InputFileError where files cannot be read, StartupModelError without the
    privilege to drop caches.
    """
    if asked == "hot":
        _read(files, tell)
    elif asked == "cold":
        tell("evicting the checkpoint")
        evict(files)
        if drop:
            drop_all_caches()
    held = None
    with contextlib.suppress(StartupModelError, OSError, ValueError):
        held = resident_fraction(files)
    if held is None:
        return asked if asked != "as_is" else "unknown"
    return "hot" if held >= _HOT else "cold" if held <= _COLD else "unknown"


def _read(files: Sequence[Path], tell: Callable[[str], None]) -> None:
    """Read files into the page cache, unless they are larger than all memory: then none of them would be left in it."""
    size = sum(file.stat().st_size for file in files if file.exists())
    if size > _memory_bytes():
        tell("the checkpoint is larger than the memory: it cannot be hot, and is not read")
        return
    for count, file in enumerate(files, start=1):
        words = f"reading the checkpoint, file {count} of {len(files)}"
        tell(words)
        read_into_cache([file], lambda done, words=words: tell(f"{words}, {format_bytes(done)}"))  # type: ignore[misc]


def _memory_bytes() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        return math.inf


def compile_state(asked: CompileCache, logged: str, *, compiles: bool, is_filled: bool) -> CompileState:
    """The state of the compile cache that a start has found.

    What the log says counts (``logged``: warm, cold or unknown); where it says nothing, what was made of the cache. asked: by the step. compiles: whether the start
    runs torch.compile, as far as known. is_filled: whether an earlier start of this session had the same graphs.
    """
    told = _TOLD.get(logged)
    if told is not None:
        return told
    if asked == "fresh":
        return "cold"
    return "warm" if is_filled or not compiles else "unknown"


class CompileCaches:
    """The compile caches of a plan: a new folder for each fresh start, in which warm ones of its group find their graphs. All are deleted in the end."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        """Holds all of them; None while there is none."""
        self._folders: dict[Group, ExitStack] = {}
        self._variables: dict[Group, Mapping[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for group in list(self._folders):
            self.forget(group)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def variables(self, step: Step, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Variables that send the graphs of a step where they belong; none: to the engine's own cache. Raises StartupModelError when no folder can be made."""
        if step.compile_cache == "fresh":
            self.forget(step.group)
            folder = ExitStack()
            try:
                if self.folder is None:
                    self.folder = Path(tempfile.mkdtemp(prefix="startup-model-compile-")).absolute()
                self._variables[step.group] = folder.enter_context(fresh_compile_cache(environment, self.folder))
            except OSError as error:
                raise StartupModelError(
                    f"compile_cache = 'fresh': no folder can be made ({error.strerror or error}); make room for temporary files, or choose warm"
                ) from None
            self._folders[step.group] = folder
        return self._variables.get(step.group, {})

    def forget(self, group: Group) -> None:
        """Delete the folder of a group, if it has one."""
        self._variables.pop(group, None)
        folder = self._folders.pop(group, None)
        if folder is not None:
            folder.close()
