"""The words of a server's command: as they were pasted, or from the fields of an engine's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from startup_model.engines.command import engine_words, pasted_words
from startup_model.engines.config import EngineConfig
from startup_model.engines.flags import write_fields
from startup_model.versions import Version

__all__ = ["COMMANDS", "Argument", "Command", "engine_arguments", "pasted_arguments"]

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python3", "-m", "sglang.launch_server"),
}
"""Engine -> what starts its server."""

_NO_FLAGS = frozenset(
    ["engine", "version", "model", "environment", "unused_flags", "page_cache", "compile_cache", "lazy_experts", "offline"]
)  # fmt: skip
"""Fields of EngineConfig that no flag of a server sets: what it is, and states that a start finds."""


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
    found = pasted_words(command)
    if found is None:
        return None
    model, arguments = _taken_apart(found.words)
    return Command(model, arguments, found.environment, found.image)


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
    _, arguments = _taken_apart([*COMMANDS[engine.engine], *written.words])
    return Command(engine.model, arguments, {**written.variables, **engine.environment})


def _taken_apart(words: Sequence[str]) -> tuple[str | None, tuple[Argument, ...]]:
    """The model and the flags of a command, each with its values; words that belong to no flag are left out."""
    parts = engine_words(words)
    if parts is None:
        return None, ()
    models = parts.models()
    flags = (argument for argument in parts.arguments if argument.flag and argument not in models)
    arguments = tuple(Argument(flag.flag, tuple(words[flag.begin : flag.end])) for flag in flags)
    return models[-1].values[-1] if models else None, arguments
