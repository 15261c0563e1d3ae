"""The words of a server's command: as they were pasted, or from the fields of an engine's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from startup_model.config.command_line import (
    _LOOK_ALIKES,
    _MANIFEST,
    _filled_in,
    _find_engine,
    _plain_dashes,
    _simple_commands,
    _Start,
    _take_container_environment,
    _take_environment,
    engine_words,
)
from startup_model.config.engine import EngineConfig
from startup_model.config.engine_flags import write_fields
from startup_model.config.versions import Version

__all__ = ["Argument", "Command", "engine_arguments", "pasted_arguments"]


class Argument(NamedTuple):
    """A flag with its values."""

    flag: str
    """Full name, whatever it was spelled as."""
    words: tuple[str, ...]
    """As in the command; the first is the flag, perhaps with ``=`` and its value."""

    @property
    def values(self) -> tuple[str, ...]:
        """The values alone."""
        _, has_value, inline = self.words[0].partition("=")
        return ((inline,) if has_value else ()) + self.words[1:]


class Command(NamedTuple):
    """What starts a server: the model, its flags, and what stands around them."""

    model: str | None
    arguments: tuple[Argument, ...]
    environment: Mapping[str, str]
    image: str | None = None

    @property
    def flags(self) -> Mapping[str, Argument]:
        """The last of each flag, by its full name."""
        return {argument.flag: argument for argument in self.arguments}


def pasted_arguments(command: str) -> Command | None:
    """The words of a pasted command, every flag with its values; None where it is no command line (a manifest, say).

    ``EngineConfig.from_command`` says what is wrong with a command; here it is taken as right. Raises ConfigError for a flag without its value.
    """
    text = command.replace("\r\n", "\n").translate(_LOOK_ALIKES)
    environment: dict[str, str] = {}
    found = None if _MANIFEST.search(text) else _find(text, environment)
    if found is None:
        return None
    start, words = found
    image = None if start.image is None else words[start.image].removeprefix("--image=")
    filled = [_plain_dashes(_filled_in(word, environment)) for word in words[start.position :]]
    model, arguments = _split([*words[: start.position], *filled])
    return Command(model, arguments, environment, image)


def _find(text: str, environment: dict[str, str], depth: int = 0) -> tuple[_Start, list[str]] | None:
    """The first command of a script that starts an engine, and its words; assignments go into ``environment``."""
    for tokens in _simple_commands(re.sub(r"\A\s*[>$%]\s+", "", text)):
        words = _take_environment(tokens, environment)
        start = _find_engine(words)
        if start is not None:
            if start.image is not None:
                _take_container_environment(words[: start.image], environment)
            return start, words
        for option, script in pairwise(words):
            if re.fullmatch(r"-[a-z]{0,4}c", option) and depth < 2:
                return _find(script, environment, depth + 1)
    return None


def _split(words: Sequence[str]) -> tuple[str | None, tuple[Argument, ...]]:
    """The model and the flags of a command, each with its values; words that belong to no flag are left out."""
    parts = engine_words(words)
    if parts is None:
        return None, ()
    models = parts.models()
    flags = (argument for argument in parts.arguments if argument.flag and argument not in models)
    arguments = tuple(Argument(flag.flag, tuple(words[flag.begin : flag.end])) for flag in flags)
    return models[-1].values[-1] if models else None, arguments


_HEADS: Mapping[str, tuple[str, ...]] = {"vllm": ("vllm", "serve"), "sglang": ("python", "-m", "sglang.launch_server")}

_NO_FLAGS = frozenset(
    ["engine", "version", "model", "environment", "unused_flags", "page_cache", "compile_cache", "lazy_experts", "offline"]
)  # fmt: skip
"""Fields of EngineConfig that no flag of a server sets: what it is, and states that a start finds."""


def engine_arguments(engine: EngineConfig, version: Version) -> Command:
    """The flags of an engine's configuration that are not at their default, as the command line of a version spells them.

    Raises ConfigError for a field that this version has no flag for.
    """
    fields = {
        name: value
        for name, field in EngineConfig.model_fields.items()
        if name not in _NO_FLAGS and (value := getattr(engine, name)) != field.default
    }
    written = write_fields(engine.engine, fields, version)
    _, arguments = _split([*_HEADS[engine.engine], *written.words])
    return Command(engine.model, arguments, {**written.variables, **engine.environment})
