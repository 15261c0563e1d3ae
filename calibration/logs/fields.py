"""Settings that engines print in one line: dicts, ``name=value`` lists, ``Args { name: value, }`` blocks.

They are read by one scan over the text, never evaluated; what is no simple value stays the text that stands there. Secrets are
taken out before anything is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["Setting", "read_fields", "without_secrets"]

Setting = str | int | float | bool | None | tuple["Setting", ...] | dict[str, "Setting"]

_MOST_FIELDS = 1000
_DEEPEST = 8
_LONGEST = 2**17
_HIDDEN = "***"

_NAME = re.compile(r"['\"]?([A-Za-z_][A-Za-z0-9_.-]{0,80})['\"]?\s{0,4}(?:=|:)\s{0,4}")
_SECRET = re.compile(
    r"(?:^|[_-])(?:api[_-]?keys?|(?:hf|auth|access|hub|bearer)?[_-]?tokens?|secrets?|passw(?:or)?d|passphrase|credentials?|"
    r"ssl[_-]?keyfile|private[_-]?key)$",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(r"max|num|batched|chunk|special|pad|eos|bos", re.IGNORECASE)
_IN_TEXT = re.compile(
    r"(?P<name>--?(?:api-key|hf-token|token|password|secret)[ =]|(?i:authorization: ?bearer )|(?:HF_TOKEN|API_KEY|[A-Z_]{0,40}(?:TOKEN|SECRET|PASSWORD|API_KEY))=)"
    r"(?P<value>[^\s'\",]{1,400})|\bhf_[A-Za-z0-9]{20,60}\b|\bsk-[A-Za-z0-9_-]{16,100}\b|(?<=://)[^\s/@:]{1,100}:[^\s/@]{1,200}(?=@)"
)
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: Mapping[str, Setting] = {
    "True": True, "true": True, "False": False, "false": False, "None": None, "null": None,
}  # fmt: skip
_CLOSES = {"(": ")", "[": "]", "{": "}"}


def without_secrets(text: str) -> str:
    """``text`` with what looks like a token, key or password replaced."""
    return _IN_TEXT.sub(lambda match: f"{match.group('name') or ''}{_HIDDEN}", text)


def read_fields(text: str) -> dict[str, Setting]:
    """The settings in ``text``, from its first ``name=``, ``name:`` or ``'name':`` on; the value of a secret is ``"***"``.

    Linear in the length of the text, which is cut at 128 KiB. What cannot be read is skipped; nothing is raised.
    """
    fields: dict[str, Setting] = {}
    for name, value in _pairs(text[:_LONGEST], depth=0):
        if name not in fields:
            fields[name] = _HIDDEN if _is_secret(name) and value is not None else value
        if len(fields) >= _MOST_FIELDS:
            break
    return fields


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _NO_SECRET.search(name)


def _pairs(text: str, depth: int) -> Iterator[tuple[str, Setting]]:
    position, end = 0, len(text)
    while position < end:
        match = _NAME.match(text, position)
        if match is None:
            position = _next_name(text, position)
            continue
        stop = _value_end(text, match.end())
        raw = text[match.end() : stop]
        yield match.group(1), _value(raw, depth)
        position = stop + 1


def _next_name(text: str, position: int) -> int:
    """The next place where a name may begin: after the run of letters, or the one character, at ``position``."""
    end = len(text)
    if not (text[position].isalnum() or text[position] in "_.-"):
        return position + 1
    while position < end and (text[position].isalnum() or text[position] in "_.-"):
        position += 1
    return position


def _value_end(text: str, position: int) -> int:
    """Where the value that begins at ``position`` ends: at a comma, line break or closing bracket outside quotes and brackets, or at
    the blank before the next ``name=``."""
    depth, quote, index, end = 0, "", position, len(text)
    while index < end:
        character = text[index]
        if quote:
            if character == "\\":
                index += 1
            elif character == quote:
                quote = ""
        elif character in "'\"" and (index == position or not text[index - 1].isalnum()):
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            if depth == 0:
                return index
            depth -= 1
        elif (depth == 0 and character in ",\n") or (
            depth == 0 and character == " " and index > position and _NAME_EQUALS.match(text, index + 1)
        ):
            return index
        index += 1
    return end


_NAME_EQUALS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}=")


def _value(raw: str, depth: int) -> Setting:
    raw = raw.strip()
    if raw in _WORDS:
        return _WORDS[raw]
    if _INTEGER.fullmatch(raw):
        return int(raw)
    if _FLOAT.fullmatch(raw):
        return float(raw)
    if len(raw) >= 2 and raw[0] in "'\"" and raw[-1] == raw[0]:
        return without_secrets(raw[1:-1])
    if len(raw) >= 2 and raw[0] in _CLOSES and raw[-1] == _CLOSES[raw[0]] and depth < _DEEPEST:
        inner = raw[1:-1]
        if raw[0] == "{":
            found: dict[str, Setting] = {}
            for name, value in _pairs(inner, depth + 1):
                found.setdefault(name, _HIDDEN if _is_secret(name) and value is not None else value)
                if len(found) >= _MOST_FIELDS:
                    break
            return found
        return tuple(_items(inner, depth + 1))
    return without_secrets(raw[:1000])


def _items(text: str, depth: int) -> Iterator[Setting]:
    position, count = 0, 0
    while position < len(text) and count < _MOST_FIELDS:
        stop = _value_end(text, position)
        if text[position:stop].strip():
            yield _value(text[position:stop], depth)
            count += 1
        position = stop + 1
