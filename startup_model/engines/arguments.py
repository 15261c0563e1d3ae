"""The arguments of an engine's server, taken apart as the engine itself does: flags in every spelling, with their values.

Which flags exist and which take no, one or several values comes from a table extracted from the engine's own parser; which of them the prediction uses,
from the flags of its ``ENGINE``. Everything else is listed by name, never by value: values can be secrets.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from startup_model.engines import find
from startup_model.engines.engine import Engine
from startup_model.engines.flags import inverted, read_fields, sizes, switch
from startup_model.errors import missing
from startup_model.secrets import holds_secret, is_secret_name

_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]{0,30}")


class EngineArgument(NamedTuple):
    """A flag with its values, or a word that belongs to no flag."""

    flag: str
    """Full name, whatever it was spelled as; empty for a word that belongs to no flag."""
    key: str
    """What follows its dot, as in ``-O.level``."""
    spelled: str
    """As it stands in the command, less its value."""
    values: tuple[str, ...]
    """``true`` or ``false`` for a switch; the word itself where there is no flag."""
    begin: int
    """Place of its first word."""
    end: int
    """Place behind its last word."""


class Shape(NamedTuple):
    """Spellings and arities of one engine's flags."""

    aliases: Mapping[str, str]
    boolean: frozenset[str]
    optional_value: frozenset[str]
    several: frozenset[str]
    names: tuple[str, ...]
    """All of them, in order."""
    known: frozenset[str]

    def canonical(self, spelled: str) -> tuple[str, str]:
        """The full name of a flag and the key after its dot, for instance ``-O.level`` -> (``--compilation-config``, ``level``)."""
        stem, _, key = spelled.partition(".")
        if stem.startswith("--"):
            stem = stem.replace("_", "-")
        stem = self.aliases.get(stem, stem)
        if stem not in self.known and stem.startswith("--"):
            first = bisect_left(self.names, stem)
            candidates = [name for name in self.names[first : first + 2] if name.startswith(stem)]
            if len(candidates) == 1 and len(stem) > 2 and not stem.startswith("--no-"):
                stem = candidates[0]
            elif stem.removeprefix("-") in self.aliases:  # --tp for -tp
                stem = self.aliases[stem.removeprefix("-")]
            elif f"{stem}-size" in self.known:  # SGLang's --tp for --tp-size, short of unique
                stem = f"{stem}-size"
        return stem, key

    def listed(self, argument: EngineArgument) -> str:
        """How an unused argument is listed: as it was spelled when it is a flag, since anything else may be a secret."""
        spelled, flag = argument.spelled, argument.flag
        if not flag:
            return "(a word that belongs to no flag)"
        if (flag in self.known or (flag.startswith("--no-") and f"--{flag[5:]}" in self.known)) and len(spelled) <= 80:
            return spelled
        if re.fullmatch(r"--[A-Za-z][A-Za-z0-9_.-]{0,78}", spelled) and not holds_secret(spelled):
            return spelled.split(".", 1)[0]
        return spelled if re.fullmatch(r"-[A-Za-z]{1,4}", spelled) else "(an unknown flag)"


_shapes: dict[str, tuple[Engine, Shape]] = {}


def shape_of(engine: Engine) -> Shape:
    """The flags of one engine, from the table in its folder and from those that it reads."""
    known, shape = _shapes.get(engine.name, (None, None))
    if shape is None or known is not engine:
        table: Mapping[str, Any] = json.loads(engine.text(engine.arity)) if engine.arity else {}
        kinds = ("list", "boolean", "optional_value", "value")
        several, boolean, optional, one = (frozenset(table.get(kind, ())) for kind in kinds)
        in_table = several | boolean | optional | one
        more = {name: flag.read for name, flag in engine.flags.items() if name not in in_table}
        boolean |= {name for name, read in more.items() if read in (switch, inverted)}
        several |= {name for name, read in more.items() if read is sizes}
        names = sorted(in_table | more.keys())
        shape = Shape(table.get("aliases", {}), boolean, optional, several, tuple(names), frozenset(names))
        _shapes[engine.name] = engine, shape
    return shape


def known_flags(engine: str) -> tuple[str, ...]:
    """All flags of an engine's server, over the versions that were read."""
    shape = shape_of(find(engine))
    return (*shape.names, *shape.aliases)


def known_switches(engine: Engine) -> frozenset[str]:
    """Flags without a value that the prediction does not use, and their negations."""
    plain = shape_of(engine).boolean - engine.flags.keys()
    return plain | {f"--no-{flag[2:]}" for flag in plain}


def split_command(engine: Engine, words: Sequence[str], position: int) -> Iterator[EngineArgument]:
    """The arguments that begin at a place. Raises ConfigError for a flag without its value."""
    shape = shape_of(engine)
    while position < len(words):
        begin, word = position, words[position]
        position += 1
        if word in ("-", "--"):
            continue
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            yield EngineArgument("", "", "", (word,), begin, position)
            continue
        spelled, sign, inline = word.partition("=")
        if re.fullmatch(r"-[A-Z][0-9]", word) and word[:2] in shape.aliases:  # -O3
            spelled, sign, inline = word[:2], "=", word[2:]
        flag, key = shape.canonical(spelled)
        positive = f"--{flag[5:]}"
        if flag.startswith("--no-") and flag not in shape.known and positive in shape.boolean | shape.optional_value:
            yield EngineArgument(positive, key, spelled, ("false",), begin, position)
            continue
        values, position = _values(flag, inline if sign else None, words, position, shape)
        yield EngineArgument(flag, key, spelled, tuple(values), begin, position)


def _values(flag: str, inline: str | None, words: Sequence[str], position: int, shape: Shape) -> tuple[list[str], int]:
    def is_value(index: int) -> bool:
        if index >= len(words):
            return False
        word = words[index]
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            return True
        # Keys and passwords may begin with a dash: the word behind their flag is not taken for another flag.
        is_flag = word.startswith("--") or word.partition("=")[0] in shape.aliases
        return not is_flag and flag not in shape.boolean and is_secret_name(flag)

    values = [] if inline is None else [inline]
    if flag in shape.boolean or (flag in shape.optional_value and re.match(r"--(?:enable|disable|multi)-", flag)):
        if not values and is_value(position) and words[position].lower() in ("true", "false"):
            return [words[position]], position + 1
        return values or ["true"], position
    most = len(words) if flag in shape.several else 1
    while len(values) < most and is_value(position):
        values.append(words[position])
        position += 1
    if not values and flag in shape.known and flag not in shape.optional_value:
        raise missing(flag, "the flag needs a value", "give it, or omit the flag")
    return values or ["true"], position


def argument_fields(engine: str, argument: EngineArgument) -> dict[str, Any] | None:
    """What an argument fills; None for one that the prediction does not use, and for a word without a flag. Raises ConfigError for a value of the wrong kind."""
    found = find(engine)
    flag = found.flags.get(argument.flag)
    if flag is None or (argument.key and not flag.has_keys):
        return None
    value: Any = list(argument.values) if argument.flag in shape_of(found).several else argument.values[0]
    if argument.key:
        value = {argument.key: _json_or_text(argument.values[0])}
    return read_fields(argument.spelled, flag, value)


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value[:200].strip("'\"")
