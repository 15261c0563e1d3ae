"""The states that starts are measured in: what of the checkpoint is in the page cache, which compiled graphs are there. They are made before a start, and
what is recorded is what they turned out to be."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from calibration.host import drop_all_caches, evict, read_into_cache, resident_fraction, usable_memory
from startup_model.engines import all_engines
from startup_model.engines.engine import Engine
from startup_model.errors import StartupModelError
from startup_model.files import is_file, is_folder
from startup_model.units import format_bytes

PageCache = Literal["hot", "cold", "as_is"]
"""hot: the checkpoint is read before the start; cold: its files are evicted; as_is: it is left as it is."""
CompileCache = Literal["warm", "fresh"]
"""warm: an earlier start has compiled the graphs; fresh: the cache is a new folder."""
PageState = Literal["hot", "cold", "unknown"]
CompileState = Literal["warm", "cold", "unknown"]
Group = tuple[str | None, bool, str]
"""What compiled graphs depend on: model, eager, torch.compile. Starts of one group share them."""

_HOT, _COLD = 0.9, 0.05  # share of the checkpoint in the page cache from which it is hot, and up to which it is cold
_COMMIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_MAX_REFERENCE = 200
_HUB = "huggingface/hub"
_HUBS = {"HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", "HF_HOME": "hub", "XDG_CACHE_HOME": _HUB}  # and what is below


def checkpoint_folder(
    model: str | None,
    environment: Mapping[str, str] | None = None,
    *,
    download_dir: str | None = None,
    revision: str | None = None,
) -> Path | None:
    """The folder that holds a model's weights: the one named, or the snapshot in the hub's cache; None when it is not on this host.

    environment: variables of the server (None: of this process), of which ``HF_HUB_CACHE``, ``HUGGINGFACE_HUB_CACHE``, ``HF_HOME``, ``XDG_CACHE_HOME`` and ``HOME`` say
    where the cache is. download_dir: the cache that a flag names instead. revision: branch, tag or commit; None: ``main``, else the newest snapshot there is. Nothing is
    raised and nothing is asked of the network.
    """
    if not model or "\0" in model:
        return None
    if is_folder(Path(model)):
        return Path(model)
    variables = os.environ if environment is None else environment
    places = [(download_dir, ""), *((variables.get(name), below) for name, below in _HUBS.items()), ("~/.cache", _HUB)]
    cache, below = next((place, below) for place, below in places if place)
    home = home_folder(variables) / cache[2:] if cache == "~" or cache.startswith("~/") else Path(cache)
    repository = home / below / f"models--{model.replace('/', '--')}"
    commit = _commit(repository, revision or "main") or revision
    if commit and _COMMIT.fullmatch(commit) and is_folder(repository / "snapshots" / commit):
        return repository / "snapshots" / commit
    newest = None
    with contextlib.suppress(OSError, ValueError):
        snapshots = filter(Path.is_dir, (repository / "snapshots").iterdir())
        newest = max(snapshots, key=lambda path: path.stat().st_mtime, default=None)
    return None if revision else newest


def _commit(repository: Path, revision: str) -> str:
    """The commit that a branch or tag stands for; empty where there is none of that name."""
    path = repository / "refs" / revision
    if ".." in revision or revision.startswith("/") or "\0" in revision or not is_file(path):
        return ""
    with contextlib.suppress(OSError, ValueError), path.open(encoding="ascii") as file:
        return file.read(_MAX_REFERENCE).strip()
    return ""


def home_folder(variables: Mapping[str, str]) -> Path:
    """The home folder of a server with these variables; the root, where neither they nor the system name one."""
    try:
        return Path(variables.get("HOME") or Path.home())
    except RuntimeError:  # a user without a name
        return Path(os.sep)


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
    with contextlib.suppress(StartupModelError, OSError, ValueError):
        if (held := resident_fraction(files)) is not None:
            return "hot" if held >= _HOT else "cold" if held <= _COLD else "unknown"
    return asked if asked != "as_is" else "unknown"


def _read(files: Sequence[Path], tell: Callable[[str], None]) -> None:
    """Read files into the page cache, unless they are larger than all memory: then none of them would be left in it."""
    if sum(file.stat().st_size for file in files if file.exists()) > usable_memory(math.inf):
        tell("the checkpoint is larger than the memory: it cannot be hot, and is not read")
        return
    for count, file in enumerate(files, start=1):
        words = f"reading the checkpoint, file {count} of {len(files)}"
        tell(words)
        read_into_cache([file], lambda done, words=words: tell(f"{words}, {format_bytes(done)}"))  # type: ignore[misc]


def compile_state(asked: CompileCache, logged: str, *, compiles: bool, is_filled: bool) -> CompileState:
    """The state of the compile cache that a start has found.

    What the log says counts (``logged``: warm, cold or unknown); where it says nothing, what was made of the cache. asked: by the case. compiles: whether the start
    runs torch.compile, as far as known. is_filled: whether an earlier start of this session had the same graphs.
    """
    if logged == "cold" or (logged != "warm" and asked == "fresh"):
        return "cold"
    return "warm" if logged == "warm" or is_filled or not compiles else "unknown"


class CompileCaches:
    """The compile caches of a schedule: a new folder for each fresh start, in which warm ones of its group find their graphs. All are deleted in the end."""

    def __init__(self, engines: Iterable[Engine] | None = None) -> None:
        """engines: whose caches; None: those of all that are known."""
        self.folder: Path | None = None
        """Holds all of them; None while there is none."""
        self._engines = tuple(all_engines().values() if engines is None else engines)
        self._fresh: dict[Group, tuple[Path, Mapping[str, str]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def variables(self, group: Group, asked: CompileCache, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Variables that send the graphs of a group where they belong; none: to the engine's own cache. environment: all variables of the server.

        What engines have noted beside compiled code is copied into a fresh cache; where the copy fails none of it is there. Raises StartupModelError when no folder can be made.
        """
        if asked == "fresh":
            self.forget(group)
            try:
                if self.folder is None:
                    self.folder = Path(tempfile.mkdtemp(prefix="startup-model-compile-")).absolute()
                root = Path(tempfile.mkdtemp(dir=self.folder))
            except OSError as error:
                remedy = "make room for temporary files, or choose warm"
                problem = f"no folder can be made ({error.strerror or error})"
                raise StartupModelError(f"compile_cache = 'fresh': {problem}; {remedy}") from None
            caches = [engine.caches for engine in self._engines]
            found = {name: str(root / place) for entry in caches for name, place in entry.variables.items()}
            for notes in (notes for entry in caches for notes in entry.notes):
                own = Path(environment.get(notes.variable) or home_folder(environment) / notes.default)
                _copy(own / notes.folder, Path(found[notes.variable]) / notes.folder)
            self._fresh[group] = root, found
        return self._fresh[group][1] if group in self._fresh else {}

    def forget(self, group: Group) -> None:
        """Delete the fresh cache of a group, if it has one."""
        if group in self._fresh:
            shutil.rmtree(self._fresh.pop(group)[0], ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """A copy of a folder, or none at all: half of a note would be worse."""
    try:
        if source.is_dir():
            shutil.copytree(source, target, ignore_dangling_symlinks=True)
    except (OSError, ValueError):  # a full disk, a file that may not be read
        shutil.rmtree(target, ignore_errors=True)
