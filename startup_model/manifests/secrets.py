"""What in a pasted command may be a secret: told by the name of its flag or variable, and by its own look."""

from __future__ import annotations

import re

__all__ = ["looks_secret", "names_secret", "public_address"]

_SECRET_WORDS = frozenset(
    [
        "apikey", "authorization", "bearer", "cookie", "credential", "credentials", "key", "keys", "passphrase", "passwd",
        "password", "passwords", "pat", "secret", "secrets", "signature", "token",
    ]
)  # fmt: skip
_HARMLESS = re.compile(r"-?[0-9.,]{1,40}|true|false|none|null|auto", re.IGNORECASE)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TEXT_TOKENS = frozenset(
    ["audio", "bos", "decode", "draft", "end", "eos", "image", "mask", "pad", "per", "prefill", "prompt", "spec", "start", "stop", "unk", "video"]
)  # fmt: skip
"""Words beside ``token`` that make it one of a text."""

_TOKENS = re.compile(
    r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|nvapi-|xox[a-z]-|AKIA|ASIA|AIza|eyJ)[A-Za-z0-9_-]{6,}|-----BEGIN"
)
_HOLDS = re.compile(
    r"""://[^/\s@]{1,500}@
    | [?&][^=&\s]{0,60}(?:sig|signature|token|key|secret|credential)=
    | ["'][A-Za-z0-9_-]{0,60}(?:(?:api_?key|access_?key|secret|passwd|password|credential)[A-Za-z0-9_-]{0,20}|(?<![a-z])token)["']\s{0,3}:\s{0,3}["'][^"']
    | \b(?:authorization|bearer)\b\s{0,3}[:=\s]\s{0,3}\S
    """,
    re.IGNORECASE | re.VERBOSE,
)


def names_secret(name: str, value: str = "") -> bool:
    """Whether a flag or variable of this name holds a secret; a number, a switch or a word about the tokens of a text is none."""
    if _HARMLESS.fullmatch(value.strip()):
        return False
    words = [word for word in re.split(r"[-_.]+", _HUMPS.sub("_", name[:200]).lower()) if word]
    found = [word for word in words if word in _SECRET_WORDS]
    if not found:
        return False
    return found != ["token"] or (words[-1] == "token" and not _TEXT_TOKENS.intersection(words))


def looks_secret(value: str) -> bool:
    """Whether a value looks like a token, holds one under a telling name, or carries a user and a password."""
    return bool(_TOKENS.search(value) or _HOLDS.search(value))


def public_address(name: str) -> str:
    """A model's name or address without user, password, query and fragment, and with ``hidden`` for what looks like a token."""
    if "://" in name:
        name = re.sub(r"(?<=://)[^/\s@]{1,500}@", "", re.split(r"[?#]", name, maxsplit=1)[0])
    return _TOKENS.sub("hidden", name)
