"""Engines: a folder each, with all that start-up knows of it. The registry finds the folders, and engines of other installed packages.

Another package brings an engine with an entry point of the group ``startup_model.engines`` that leads to its ``ENGINE``; the name of the entry point
is that of the engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from startup_model.engines.engine import Engine, Order
from startup_model.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "DEFAULT_ENGINE", "GROUP", "Engine", "Order", "all_engines", "built_in", "find", "forget_installed", "register", "unregister",
]  # fmt: skip

DEFAULT_ENGINE = "vllm"
"""Engine of a start that names none."""
GROUP = "startup_model.engines"
"""Entry points of this group are engines of other packages."""

ON_CHANGE: list[Callable[[], None]] = []
"""Called when an engine has been registered or removed: they clear the caches that depend on it."""

_known: dict[str, Engine] = {}
_broken: set[str] = set()


def find(name: str) -> Engine:
    """The engine of a name. Raises UnknownNameError where there is none, ConfigError for an installed one that cannot be loaded."""
    engine = _known.get(name)
    if engine is None:
        folder = name.replace(".", "_").replace("-", "_")
        if folder in _folders():
            found: Engine = import_module(f"{__name__}.{folder}").ENGINE
            engine = found if found.name == name else None
        elif name in _installed():
            engine = _load(_installed()[name])
        if engine is None:
            raise UnknownNameError("engine", name, all_engines())
        _known[name] = engine
    return engine


def built_in() -> Mapping[str, Engine]:
    """The engines that need no look at the installed packages, by their name."""
    return {**_own(), **_known}


def all_engines() -> Mapping[str, Engine]:
    """Every engine by its name; an installed one that cannot be loaded is left out, with one warning."""
    engines = dict(built_in())
    for name, entry in _installed().items():
        if name not in engines and name not in _broken:
            try:
                engines[name] = find(name)
            except ConfigError as error:
                _broken.add(name)
                warnings.warn(f"{error} ({entry.value} is left out)", RuntimeWarning, stacklevel=2)
    return engines


def register(engine: Engine) -> Engine:
    """Make an engine known in this process, in the place of one of the same name."""
    _known[engine.name] = engine
    _changed()
    return engine


def unregister(name: str) -> None:
    """Take back what ``register`` has made known."""
    _known.pop(name, None)
    _changed()


def forget_installed() -> None:
    """Look at the installed packages again, when they are asked for next."""
    _installed.cache_clear()
    _broken.clear()
    _changed()


def _changed() -> None:
    for clear in ON_CHANGE:
        clear()


@lru_cache(maxsize=1)
def _folders() -> tuple[str, ...]:
    return tuple(module.name for module in iter_modules(__path__) if module.ispkg)


@lru_cache(maxsize=1)
def _own() -> Mapping[str, Engine]:
    engines = (import_module(f"{__name__}.{folder}").ENGINE for folder in _folders())
    return {engine.name: engine for engine in engines}


@lru_cache(maxsize=1)
def _installed() -> Mapping[str, EntryPoint]:
    from importlib import metadata

    return {entry.name: entry for entry in metadata.entry_points(group=GROUP)}


def _load(entry: EntryPoint) -> Engine:
    remedy = f"update or remove the package of {entry.value}"
    try:
        engine = entry.load()
    except Exception as error:  # whatever the import of a foreign package raises
        raise ConfigError("engine", entry.name, f"cannot be loaded: {error!r}", remedy) from error
    if not isinstance(engine, Engine) or engine.name != entry.name:
        raise ConfigError("engine", entry.name, "must lead to a startup_model.engines.Engine of this name", remedy)
    return engine
