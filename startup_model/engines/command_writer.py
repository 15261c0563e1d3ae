"""The way back from an engine's configuration to the command line that says the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from startup_model.engines.command import kept_variables, known_switches, read_command
from startup_model.engines.flags import VARIABLES, write_fields
from startup_model.errors import ConfigError, StartupModelError
from startup_model.versions import parse_version

__all__ = ["write_command"]

_HEADS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server"),
}
_MODEL_WORDS: Mapping[str, tuple[str, ...]] = {"vllm": (), "sglang": ("--model-path",)}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_APART = frozenset({"engine", "version", "model", "environment", "unused_flags"})
"""Fields that are no flag of their own."""


def write_command(engine: str, fields: Mapping[str, Any]) -> str:
    """The command line with these fields, variables in front.

    fields: of an EngineConfig, those that are not at their default; ``version`` chooses the spelling and is not written. Fields that ``environment`` fills already
    need no flag. The result has been read back. Raises ConfigError for what no command line says.
    """
    variables = dict(_checked(fields.get("environment", {})))
    from_variables: dict[str, Any] = {}
    for name, variable in VARIABLES[engine].items():
        if variables.get(name):
            from_variables |= _read(name, variable.read, variables[name])
    needed = {name: value for name, value in fields.items() if name not in _APART and from_variables.get(name) != value}
    version = fields.get("version")
    written = write_fields(engine, needed, None if version is None else parse_version(version))
    for name, value in written.variables.items():
        if variables.get(name, value) != value:
            raise ConfigError(
                f"engine.environment.{name}", variables[name], "it contradicts the configuration", f"write {value!r}"
            )
        variables[name] = value
    model = fields.get("model")
    words = [*_HEADS[engine], *((*_MODEL_WORDS[engine], model) if model is not None else ()), *written.words]
    words += _switches(engine, fields.get("unused_flags", ()))
    text = " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(words)])
    _check(text, engine, fields, variables, written.silent)
    return text


def _checked(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            raise ConfigError("engine.environment", name, "not the name of a variable", "leave it out")
        yield name, value


def _read(name: str, reader: Callable[[Any], dict[str, Any]], value: str) -> dict[str, Any]:
    try:
        return reader(value)
    except StartupModelError as expected:
        raise ConfigError(f"engine.environment.{name}", value, f"it should be {expected}", "correct it") from None


def _switches(engine: str, flags: Iterable[str]) -> Iterator[str]:
    """Flags that the prediction does not use, as far as they have no value: those were not kept."""
    known = known_switches(engine)
    for flag in flags:
        if flag not in known:
            raise ConfigError("engine.unused_flags", flag, "its value was not kept", "give the command line itself")
        yield flag


def _check(
    text: str, engine: str, fields: Mapping[str, Any], variables: Mapping[str, str], silent: frozenset[str]
) -> None:
    """Raises ConfigError when the command line is read as something else: for a model whose name looks like a flag, say."""
    remedy = "give the words of the command itself"
    try:
        found = read_command(text)
    except ConfigError as error:
        field = f"engine.{error.field}" if error.field in fields else error.field
        raise ConfigError(field, error.value, f"no command line says it ({error.problem})", remedy) from None
    expected = dict(fields) | {"engine": engine, "environment": kept_variables(variables)}
    for name in expected.keys() - silent - {"version"}:
        if found.get(name) != expected[name]:
            raise ConfigError(f"engine.{name}", expected[name], "no command line says it", remedy)
