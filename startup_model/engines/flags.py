"""Flags and variables: how values are read into fields of EngineConfig, and how fields are written again. Engines choose from these in their tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from startup_model.engines import find
from startup_model.engines.engine import NEVER, NOTHING, Engine, Flag, Reader, Variable, Writer
from startup_model.errors import ConfigError, StartupModelError
from startup_model.secrets import without_credentials
from startup_model.units import GIB
from startup_model.versions import Version

_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_HUMAN_INTEGER = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([kKmMgGtT]?)")
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


# --- readers: the value (values, of a flag that takes several) -> that of the field, or a dict of fields --------------------
# They raise StartupModelError that says what the value must be.


model = without_credentials


def integer(value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        raise StartupModelError("a whole number")
    return int(value)


def human_integer(value: str) -> int | Mapping[str, Any]:
    """vLLM's spelling of large numbers: ``8k`` is 8000 and ``8K`` 8192; ``auto`` and -1 leave the default."""
    if value.lower() == "auto" or value == "-1":
        return NOTHING
    match = _HUMAN_INTEGER.fullmatch(value)
    if match is None:
        raise StartupModelError("a whole number such as 8192, 8k or 8K")
    return int(float(match.group(1)) * _FACTORS[match.group(2)]) if match.group(2) else integer(value)


def human_bytes(value: str) -> float | Mapping[str, Any]:
    number = human_integer(value)
    return float(number) if isinstance(number, int) else number


def positive(value: str) -> int | Mapping[str, Any]:
    """A whole number; 0 and below leave the default."""
    number = integer(value)
    return number if number > 0 else NOTHING


def number(value: str) -> float:
    if not _DECIMAL.fullmatch(value):
        raise StartupModelError("a number")
    return float(value)


def gib(value: str) -> float:
    """A number of GiB, in bytes."""
    return number(value) * GIB


def switch(value: str) -> bool:
    """True or false, in the words that command lines have for it."""
    if value.lower() in ("true", "1", "yes", "on"):
        return True
    if value.lower() in ("false", "0", "no", "off"):
        return False
    raise StartupModelError("true or false")


def inverted(value: str) -> bool:
    return not switch(value)


def sizes(values: list[str]) -> tuple[int, ...]:
    """Whole numbers, however they are separated."""
    return tuple(integer(part) for value in values for part in value.replace(",", " ").strip("[] ").split())


def when_set(value: Any) -> Reader:
    """Reader of a variable that means something only when it is set."""
    return lambda given: value if switch(given) else NOTHING


TORCH_VARIABLES: Mapping[str, Variable] = {
    "TORCH_COMPILE_DISABLE": Variable("torch_compile", when_set(False), {False: "1"}),
    "TORCHDYNAMO_DISABLE": Variable("torch_compile", when_set(False)),
}


def check_filled_in(field: str, value: str) -> None:
    """Raises ConfigError where a shell would have filled something in; JSON may hold its signs."""
    if re.search(r"\$[A-Za-z_{(]|`", value) and not value.lstrip().startswith(("{", "[")):
        problem = "a shell variable or substitution that the command does not set"
        raise ConfigError(field, value, problem, "replace it with its value")


def read_fields(name: str, reads: Flag | Variable, value: str | list[str], field: str = "") -> dict[str, Any]:
    """What a flag or variable fills. Raises ConfigError that names it (or ``field``), its value and what it must be."""
    given = " ".join(value) if isinstance(value, list) else value
    if isinstance(given, str):
        check_filled_in(field or name, given)
    try:
        found = reads.read(value)
    except ConfigError:
        raise
    except StartupModelError as expected:
        raise ConfigError(field or name, given, f"must be {expected}", "correct the command") from None
    return dict(found) if isinstance(found, Mapping) else {str(reads.field): found}


# --- writers: (flag, value, version) -> its words; none where the engine does it by itself --------------------------------


def with_value(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    """The flag and its value or values."""
    if isinstance(value, tuple):
        return (flag, *map(str, value))
    return (flag, str(int(value)) if isinstance(value, float) and value.is_integer() else str(value))


def with_gib(flag: str, value: Any, version: Version) -> tuple[str, ...]:
    """The flag and its value in GiB."""
    return with_value(flag, value / GIB, version)


def when(meant: bool) -> Writer:
    """Writer of a flag without a value that says one of the two; the other is what the engine does by itself."""
    return lambda flag, value, version: (flag,) if value is meant else ()


class Written(NamedTuple):
    """Fields as a command line says them."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    silent: frozenset[str]
    """Fields that need no word: the engine does so by itself."""


_REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(["page_cache", "compile_cache"], "a state that a start finds, not a flag: leave it unknown"),
    "lazy_experts": "omit it",
    "offline": "omit it: a command line starts a server",
}


def write_fields(engine: str, fields: Mapping[str, Any], version: Version | None) -> Written:
    """Flags and variables that set ``fields``, by the spelling of a version (None: the newest one).

    Raises ConfigError for a field that no flag or variable of the engine sets, or none that this version has.
    """
    found = find(engine)
    variables: dict[str, str] = {}
    silent, rest = set(), dict(fields)
    words = found.compose(rest, version)
    for field, value in rest.items():
        flag = _flag_words(found, field, value, version)
        setting = _assignment(found, field, value, version) if flag is None else {}
        if setting is None:
            remedy = _REMEDIES.get(field, "omit it, or give the command line itself")
            raise ConfigError(f"engine.{field}", value, f"no flag of {engine} sets it", remedy)
        words += flag or ()
        variables |= setting
        if not flag and not setting:
            silent.add(field)
    return Written(tuple(words), variables, frozenset(silent))


def not_in(engine: str, field: str, value: Any, version: Version, flags: Iterable[str]) -> ConfigError:
    """The error for a field whose flags a version does not have."""
    shown = ".".join(map(str, version))
    return ConfigError(f"engine.{field}", value, f"{engine} {shown} has no {' or '.join(flags)}", "omit it")


def _flag_words(engine: Engine, field: str, value: Any, version: Version | None) -> tuple[str, ...] | None:
    writers = [(name, flag, flag.write) for name, flag in engine.flags.items() if flag.field == field and flag.write]
    if not writers:
        return None
    if version is None:
        name, _, write = max(writers, key=lambda writer: writer[1].versions.before)
        return write(name, value, NEVER)
    for name, flag, write in writers:
        if version in flag.versions:
            return write(name, value, version)
    raise not_in(engine.name, field, value, version, [name for name, *_ in writers])


def _assignment(engine: Engine, field: str, value: Any, version: Version | None) -> dict[str, str] | None:
    for name, variable in engine.variables.items():
        if variable.field == field and value in variable.values:
            return {name: variable.values[value]} if version is None or version in variable.versions else {}
    return None
