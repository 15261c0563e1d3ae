"""Engines: a folder each, with all that start-up knows of it. The registry finds the folders, and engines of other installed packages.

Another package brings an engine with an entry point of the group ``startup_model.engines`` that leads to its ``ENGINE``; the name of the entry point
is that of the engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules

from startup_model.engines.engine import Engine, Order
from startup_model.errors import ConfigError, UnknownNameError, one_line

__all__ = ["DEFAULT_ENGINE", "GROUP", "Engine", "Order", "all_engines", "built_in", "find", "register", "unregister"]

DEFAULT_ENGINE = "vllm"
"""Engine of a start that names none."""
GROUP = "startup_model.engines"
"""Entry points of this group are engines of other packages."""

_known: dict[str, Engine] = {}


def find(name: str) -> Engine:
    """The engine of a name. Raises UnknownNameError where there is none, ConfigError for an installed one that cannot be loaded."""
    engine = _known.get(name) or _folder(name)
    if engine is None and (found := _installed().get(name)) is not None:
        engine = _load(found)
    if engine is None:
        raise UnknownNameError("engine", name, all_engines())
    _known[name] = engine
    return engine


def all_engines() -> Mapping[str, Engine]:
    """Every engine by its name; an installed one that cannot be loaded is left out, with a warning."""
    engines = dict(built_in())
    for name, entry in _installed().items():
        if name not in engines:
            try:
                engines[name] = find(name)
            except ConfigError as error:
                warnings.warn(f"{error} ({entry.value} is left out)", RuntimeWarning, stacklevel=2)
    return engines | _known


def built_in() -> Mapping[str, Engine]:
    """The engines that need no look at the installed packages."""
    folders = (module.name for module in iter_modules(__path__) if module.ispkg)
    engines = (import_module(f"{__name__}.{folder}").ENGINE for folder in folders)
    return {engine.name: engine for engine in engines} | _known


def register(engine: Engine) -> Engine:
    """Make an engine known in this process, in the place of one of the same name."""
    _known[engine.name] = engine
    return engine


def unregister(name: str) -> None:
    """Forget an engine that ``register`` has made known."""
    _known.pop(name, None)


def _folder(name: str) -> Engine | None:
    """The engine whose folder has this name; nothing else is imported."""
    folder = name.replace(".", "_").replace("-", "_")
    if folder.isidentifier() and any(module.ispkg and module.name == folder for module in iter_modules(__path__)):
        engine: Engine = import_module(f"{__name__}.{folder}").ENGINE
        return engine if engine.name == name else None
    return None


@lru_cache(maxsize=1)
def _installed() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(entry: EntryPoint) -> Engine:
    remedy = f"update or remove the package of {entry.value}"
    try:
        engine = entry.load()
    except Exception as error:  # whatever the import of a foreign package raises
        raise ConfigError("engine", entry.name, one_line(f"cannot be loaded: {error!r}", 200), remedy) from error
    if not isinstance(engine, Engine) or engine.name != entry.name:
        raise ConfigError("engine", entry.name, "must lead to a startup_model.engines.Engine of this name", remedy)
    return engine
