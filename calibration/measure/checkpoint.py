"""Where the weights of a served model lie on this host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from startup_model.files import is_file, is_folder

__all__ = ["checkpoint_folder", "home_folder"]

_COMMIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
_LONGEST_REFERENCE = 200


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
    home = _expanded(download_dir, variables) if download_dir else _hub_cache(variables)
    repository = home / f"models--{model.replace('/', '--')}"
    commit = _commit(repository, revision or "main") or revision
    if commit and _COMMIT.fullmatch(commit) and is_folder(repository / "snapshots" / commit):
        return repository / "snapshots" / commit
    return None if revision else _newest(repository / "snapshots")


def _hub_cache(variables: Mapping[str, str]) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if variables.get(name):
            return _expanded(variables[name], variables)
    if variables.get("HF_HOME"):
        return _expanded(variables["HF_HOME"], variables) / "hub"
    cache = variables.get("XDG_CACHE_HOME") or "~/.cache"
    return _expanded(cache, variables) / "huggingface" / "hub"


def _expanded(path: str, variables: Mapping[str, str]) -> Path:
    """With the home folder of the server's variables in the place of ``~``."""
    if path == "~" or path.startswith("~/"):
        return home_folder(variables) / path[2:]
    return Path(path)


def home_folder(variables: Mapping[str, str]) -> Path:
    """The home folder of a server with these variables; the root, where neither they nor the system name one."""
    try:
        return Path(variables.get("HOME") or Path.home())
    except RuntimeError:  # a user without a name
        return Path(os.sep)


def _commit(repository: Path, revision: str) -> str | None:
    """The commit that a branch or tag stands for."""
    if ".." in revision or revision.startswith("/") or "\0" in revision:
        return None
    path = repository / "refs" / revision
    if not is_file(path):
        return None
    try:
        with path.open(encoding="ascii") as file:
            return file.read(_LONGEST_REFERENCE).strip() or None
    except (OSError, ValueError):
        return None


def _newest(snapshots: Path) -> Path | None:
    try:
        found = sorted((path for path in snapshots.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    except (OSError, ValueError):
        return None
    return found[-1] if found else None
