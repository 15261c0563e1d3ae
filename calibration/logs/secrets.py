"""Tokens, keys and passwords that find their way into logs: told by the names before them, by their own look, by their place in an address.

Everything that is kept of a log passes through ``without_secrets`` before it is cut to length.
"""

from __future__ import annotations

import re

__all__ = ["HIDDEN", "is_secret", "without_secrets"]

HIDDEN = "***"
_MOST_HITS = 200
_LONGEST_NAME = 100

_STRONG = re.compile(
    r"api_?key|access_?key|secret|passw(?:or)?d|passphrase|passwd|credential|authorization|private_?key|bearer|ssl_?key|cookie",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(?:^|_)(?:[a-z]{0,20})tokens?$|(?:^|_)sig(?:nature)?$|signature$", re.IGNORECASE)
_COUNTED = re.compile(
    r"max|min|num|batched|chunk|special|pad|eos|bos|unk|mask|per|draft|spec|total|prefill|decode|new|cached|input|output|image|audio|video|"
    r"mm|stop|start|end|reasoning|think|skip|ignore|prompt|budget",
    re.IGNORECASE,
)
"""Words beside ``token`` that make it one of a text."""
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"[-+]?[0-9.,]{1,30}")

_KEYWORD = re.compile(
    r"api[_-]?key|access[_-]?key|secret|passw|passphrase|credential|authorization|private[_-]?key|bearer|token|ssl[_-]?key|signature|cookie|(?<=[?&])sig(?==)",
    re.IGNORECASE,
)
_LEFT = re.compile(r"[\w.-]*\Z")
_RIGHT = re.compile(r"[\w.-]*")
_VALUE = re.compile(
    r"""(?:(?:\\{0,4}['"])?\s{0,3}(?P<sign>[:=]|,(?=\s{0,3}['"]))|(?P<flag>['"]?\s{1,3}))\s{0,3}(?P<open>(?:Some\(\s{0,3}|[\[({]{0,3}))(?P<quote>b?(?:\\{0,4}['"])?)(?P<scheme>(?:Basic|Bearer|Token)\s{1,3})?"""
)
_BARE_END = re.compile(r"[\s,;)}\]'\"&]|\Z")
_LOOKS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,80}|sk-[A-Za-z0-9_-]{8,120}|gh[pousr]_[A-Za-z0-9]{8,80}|github_pat_[A-Za-z0-9_]{8,120}|glpat-[A-Za-z0-9_-]{8,60}|"
    r"nvapi-[A-Za-z0-9_-]{8,120}|A[KS]IA[A-Z0-9]{12,20}|AIza[A-Za-z0-9_-]{20,60}|xox[abps]-[A-Za-z0-9-]{8,80}|"
    r"eyJ[A-Za-z0-9_-]{8,400}\.[A-Za-z0-9_-]{8,400}(?:\.[A-Za-z0-9_-]{4,400})?)\b"
)
_ACCOUNT = re.compile(r"(?<![\w/.:@+-])[A-Za-z_][\w.+-]{0,63}:[^\s/@'\"<>]{1,200}@(?=[\w\[])(?!sha256:)")
"""A user and a password in front of a host, without a scheme."""
_ADDRESS = re.compile(r"://(?=[^\s'\"<>]{0,600}@)[^\s'\"<>]{1,600}@")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting of this name holds a secret. A number is none where the name may mean the tokens of a text."""
    name = _HUMPS.sub("_", name[-_LONGEST_NAME:]).replace("-", "_").replace(".", "_")
    if value.strip("'\" ") in ("", "None", "null", "True", "False", "true", "false", "auto"):
        return False
    if _STRONG.search(name):
        return True
    return bool(_TOKEN.search(name)) and not _COUNTED.search(name) and not _NUMBER.fullmatch(value.strip())


def without_secrets(text: str) -> str:
    """``text`` with ``***`` in the place of what looks like a token, key or password. Linear in its length."""
    if "://" in text:
        text = _ADDRESS.sub(f"://{HIDDEN}@", text)
    if "@" in text:
        text = _ACCOUNT.sub(f"{HIDDEN}@", text)
    text = _LOOKS.sub(HIDDEN, text)
    pieces: list[str] = []
    kept = 0
    for count, hit in enumerate(_KEYWORD.finditer(text)):
        if hit.start() < kept:
            continue
        if count >= _MOST_HITS:
            pieces.append(f"{text[kept : hit.start()]}{HIDDEN}")
            return "".join(pieces)
        span = _secret_after(text, hit)
        if span is not None:
            pieces += [text[kept : span[0]], HIDDEN]
            kept = span[1]
    return "".join([*pieces, text[kept:]]) if pieces else text


def _secret_after(text: str, hit: re.Match[str]) -> tuple[int, int] | None:
    """Where the value of the name around a keyword stands, when it is a secret."""
    left = _LEFT.search(text, max(0, hit.start() - _LONGEST_NAME), hit.start())
    begin = left.start() if left else hit.start()
    right = _RIGHT.match(text, hit.end(), hit.end() + _LONGEST_NAME)
    end = right.end() if right else hit.end()
    name = text[begin:end]
    match = _VALUE.match(text, end)
    if match is None:
        return None
    is_flag = name.startswith("-") or name.lower() in ("bearer", "authorization")
    if match.group("sign") is None and not is_flag:
        return None  # prose
    start = match.end()
    quote = match.group("quote").lstrip("b")
    stop = text.find(quote, start) if quote else -1
    if stop < 0:
        bare = _BARE_END.search(text, start)
        stop = bare.start() if bare else len(text)
    value = text[start:stop]
    return (start, stop) if stop > start and is_secret(name.strip("-"), value) else None
