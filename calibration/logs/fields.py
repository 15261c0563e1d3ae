"""Settings that engines print in one line: dicts, ``name=value`` lists, ``Args { name: value, }`` blocks.

They are read by one scan over the text, never evaluated; what is no simple value stays the text that stands there. Secrets are
taken out before anything is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from startup_model.errors import one_line
from startup_model.secrets import HIDDEN, is_secret_name, redact_text

Setting = str | int | float | bool | None | tuple["Setting", ...] | dict[str, "Setting"]

_MAX_FIELDS, _MAX_DEPTH, _MAX_TEXT, _MAX_VALUE = 300, 4, 2**15, 400
_NAME = re.compile(r"['\"]?([A-Za-z_][A-Za-z0-9_.-]{0,80})['\"]?\s{0,4}(?:=|:)\s{0,4}")
_WORD = re.compile(r"[\w.-]+")
_STOP = re.compile(r"['\"()\[\]{},\n ]")
_NEXT_NAME = re.compile(r" [A-Za-z_][A-Za-z0-9_]{0,60}=")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: Mapping[str, Setting] = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_PAIRS = {"'": "'", '"': '"', "(": ")", "[": "]", "{": "}"}


def read_fields(text: str) -> dict[str, Setting]:
    """The settings in ``text``, from its first ``name=``, ``name:`` or ``'name':`` on; the value of a secret is ``"***"``.

    Linear in the length of the text, which is cut at 32 KiB. What cannot be read is skipped; nothing is raised.
    """
    return _dict(redact_text(text[:_MAX_TEXT]), depth=0)


def _dict(text: str, depth: int) -> dict[str, Setting]:
    fields: dict[str, Setting] = {}
    position = 0
    while position < len(text) and len(fields) < _MAX_FIELDS:
        match = _NAME.match(text, position)
        if match is None:
            word = _WORD.match(text, position)
            position = word.end() if word else position + 1
            continue
        stop = _value_end(text, match.end())
        name, value = match[1], _value(text[match.end() : stop], depth)
        position = stop + 1
        if name not in fields:
            may_be_secret = value is not None and not isinstance(value, bool)
            is_secret = may_be_secret and is_secret_name(name, str(value)[:_MAX_VALUE], short=False)
            fields[name] = HIDDEN if is_secret else value
    return fields


def _items(text: str, depth: int) -> Iterator[Setting]:
    position, count, hides = 0, 0, False
    while position < len(text) and count < _MAX_FIELDS:
        stop = _value_end(text, position)
        if text[position:stop].strip():
            value = _value(text[position:stop], depth)
            yield HIDDEN if hides and not isinstance(value, bool) else value
            # A list of words: the one after the name of a secret is the secret.
            hides = isinstance(value, str) and is_secret_name(value.lstrip("-"), short=False)
            count += 1
        position = stop + 1


def _value_end(text: str, position: int) -> int:
    """Where the value that begins at ``position`` ends: at a comma, line break or closing bracket outside quotes and brackets, or at
    the blank before the next ``name=``."""
    depth, index = 0, position
    while (match := _STOP.search(text, index)) is not None:
        index = match.start()
        character = text[index]
        if character in "'\"":
            if index == position or not text[index - 1].isalnum():
                index = _quote_end(text, index + 1, character)
        elif character in "([{":
            depth += 1
        elif depth == 0 and (character in ")]},\n" or (index > position and _NEXT_NAME.match(text, index))):
            return index
        elif character in ")]}":
            depth -= 1
        index += 1
    return len(text)


def _quote_end(text: str, index: int, quote: str) -> int:
    """The closing quote, or the end of the text."""
    while (index := text.find(quote, index)) >= 0:
        backslashes = index - len(text[:index].rstrip("\\")) if text[index - 1] == "\\" else 0
        if backslashes % 2 == 0:
            return index
        index += 1
    return len(text)


def _value(raw: str, depth: int) -> Setting:
    raw = raw.strip()
    if raw in _WORDS:
        return _WORDS[raw]
    if _INTEGER.fullmatch(raw):
        return int(raw)
    if _FLOAT.fullmatch(raw) and math.isfinite(float(raw)):
        return float(raw)
    if len(raw) >= 2 and _PAIRS.get(raw[0]) == raw[-1]:
        if raw[0] in "'\"":
            raw = raw[1:-1]
        elif depth < _MAX_DEPTH:
            return _dict(raw[1:-1], depth + 1) if raw[0] == "{" else tuple(_items(raw[1:-1], depth + 1))
    return one_line(redact_text(raw[: 4 * _MAX_VALUE]), _MAX_VALUE)
