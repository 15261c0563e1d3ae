"""What a secret looks like: the one place that knows it.

A secret is told by the name before it (of a flag, variable, setting or header), by its own shape (tokens of known services, private keys), or by its place in
an address (user and password, signed queries). What is kept, shown or logged passes through here before it is cut to length: half a secret is no longer told.
All functions take time linear in their text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from startup_model.errors import one_line

HIDDEN = "***"

_ANY = re.compile(r"key|secret|pass|pw|phrase|cred|auth|bearer|cookie|token|sig|pat", re.IGNORECASE)
_STRONG = re.compile(
    r"api_?key|access_?key|private_?key|ssl_?key(?!file)|secret|passw|passphrase|credential|authorization|bearer|cookie"
)
_SHORT = re.compile(r"(?:^|_)(?:keys?|(?<!forward_)pass|pw|pwd|auth|creds?|pat)(?:_|$)")  # in flags and variables alone
_TOKEN = re.compile(r"tokens?$|signature$|(?:^|_)sig$")
_TEXT_TOKEN = re.compile(  # words beside "token" that make it one of a text
    r"(?:^|_)(?:added|allowed|audio|bad|batched|bos|budget|cached|chunk|chunked|decode|draft|end|eos|extra|first|generated|graph|ignore|image|input|mask|max|min|mm|new|num|"
    r"output|pad|per|prefill|prompt|reasoning|skip|spec|special|speculative|start|stop|think|thinking|total|unk|video|vision)(?:_|tokens?$)"
)
_NOTHING = frozenset(["", "none", "null", "true", "false", "auto"])
_SWITCHES = _NOTHING | {"0", "1", "yes", "no", "on", "off"}
_NUMBER = re.compile(r"[-+]?[0-9.,]{1,40}")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MAX_NAME = 200

_TOKENS = re.compile(  # a short lower-case word behind hf_ is an identifier, such as hf_transfer
    r"\b(?:hf_(?![a-z]{1,10}(?![A-Za-z0-9]))[A-Za-z0-9]{6,}|(?:sk-|gh[pousr]_|github_pat_|glpat-|nvapi-|dckr_pat_|xox[a-z]-|AIza)[A-Za-z0-9_-]{6,}|"
    r"A[KS]IA[A-Z0-9]{12,}|eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]+){0,2})|-----BEGIN(?: [A-Z0-9]+){1,5}-----[A-Za-z0-9+/=\s\\]*"
)
_ADDRESS = re.compile(r"""(?<=://)(?:[^\s'"<>/@:]{0,200}:[^\s'"<>]{1,600}|[^\s'"<>/@]{1,600})@(?!sha256:)""")
_ACCOUNT = re.compile(r"""(?<![\w/.:@+-])[A-Za-z_][\w.+-]{0,63}:[^\s/@'"<>]{1,200}@(?=[\w\[])(?!sha256:)""")
_QUERY = re.compile(
    r"""(?<=[?&])([^=&?\s]{0,60}(?:sig|signature|token|key|secret|credential|password)=)[^&\s'"#]+""", re.IGNORECASE
)
_NAMED = re.compile(  # a name and what may stand between it and its value; blanks alone do behind flags and words of headers
    r"""(?<![\w.-])(?:(?P<dash>(?=-))|(?P<header>(?=(?i:bearer|authorization)(?![\w.-])))|)(?P<name>[\w.-]++)"""
    r"""(?=(?P<sign>(?:\\{0,4}['"])?\s{0,3}(?:[:=]|,(?=\s{0,3}['"]))|(?(dash)|(?(header)|(?!)))['"]?\s{1,3})"""
    r"""\s{0,3}(?:Some\(\s{0,3}|[\[({]{0,3})b?(?P<quote>(?:\\{0,4}['"])?)(?:(?:Basic|Bearer|Token)\s{1,3})?(?P<value>))"""
)
_BARE_END, _LINE_END = re.compile(r"[\s,;)}\]'\"&]"), re.compile(r"[\r\n]")
_MIN_SOUGHT, _MAX_SOUGHT = 4, 4096  # characters of a value that is looked for elsewhere


def is_secret_name(name: str, value: str | None = None, *, short: bool = True) -> bool:
    """Whether a flag, variable, header or setting of this name holds a secret.

    value: what it is set to, if known: nothing, a switch, or a number behind ``token`` is no secret. short: whether names count that mean a secret only in a
    flag or a variable (``key``, ``auth``, ``pass`` ...); leave them out for running text.
    """
    if not _ANY.search(name[-_MAX_NAME:]):
        return False
    plain = re.sub(r"[-.\s_]+", "_", _HUMPS.sub("_", name[-_MAX_NAME:])).strip("_").lower()
    given = "text" if value is None else value.strip("'\" ").lower()
    if given in _NOTHING:
        return False
    if _STRONG.search(plain) or (short and _SHORT.search(plain) and given not in _SWITCHES and plain != "pwd"):
        return True
    return bool(_TOKEN.search(plain)) and not _TEXT_TOKEN.search(plain) and not _NUMBER.fullmatch(given)


def holds_secret(text: str) -> bool:
    """Whether a text is or contains a secret: what ``redact_text`` would change."""
    return redact_text(text) != text


def redact_text(text: str) -> str:
    """``text`` with ``***`` in the place of every secret."""
    if "@" in text:
        text = _ACCOUNT.sub(f"{HIDDEN}@", _ADDRESS.sub(f"{HIDDEN}@", text))
    text = _QUERY.sub(rf"\1{HIDDEN}", _TOKENS.sub(HIDDEN, text))
    pieces: list[str] = []
    kept = 0
    unclosed = {""}  # quotes that the rest of the text does not close
    for found in _NAMED.finditer(text):
        name, quote, start = found["name"], found["quote"], found.end("value")
        short = name.startswith("-") or (name.isupper() and found["sign"] == "=")
        if found.start() < kept or not is_secret_name(name, short=short):
            continue
        stop = -1 if quote in unclosed else text.find(quote, start)
        if stop < 0:
            unclosed.add(quote)
            end = (_LINE_END if quote else _BARE_END).search(text, start)
            stop = end.start() if end else len(text)
        if stop > start and is_secret_name(name, text[start:stop], short=short):
            pieces += [text[kept:start], HIDDEN]
            kept = stop
    return "".join([*pieces, text[kept:]]) if pieces else text


def redact_words(words: Sequence[str]) -> list[str]:
    """The words of a command without secrets. A secret flag may have several values, and a key may begin with a dash."""
    return [redact_text(word if at < 0 else word[:at] + HIDDEN) for word, at in _with_secrets(words)]


def redact_command(command: str, longest: int = 400) -> str:
    """A command that cannot be split into words, as one line up to its first secret: where that ends is not known."""
    begin, hidden, _ = redact_text(" ".join(redact_words(command[: 8 * longest].split()))).partition(HIDDEN)
    return one_line((begin + hidden)[:longest], longest)


def _with_secrets(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Each word, and where in it a secret begins that a name makes one; -1: nowhere."""
    hides = is_first = False
    for word, following in pairwise([*words, ""]):
        if hides and not word.startswith("--" if is_first else "-"):
            is_first = False
            yield word, 0
            continue
        name, sign, value = word.partition("=")
        inner, inner_sign, inner_value = value.partition("=")  # --env=NAME=value
        hides = word.startswith("-") and is_secret_name(name, value if sign else following)
        is_first = hides and not sign
        if sign and is_secret_name(name, value):
            yield word, len(name) + 1
        else:
            yield word, len(name) + len(inner) + 2 if inner_sign and is_secret_name(inner, inner_value) else -1


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that neither are nor hold a secret."""
    return {name: text for name, text in environment.items() if not (is_secret_name(name, text) or holds_secret(text))}


def secret_values(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of a command's secret flags and variables, the longest first: what may not be shown, wherever it stands."""
    shown = redact_environment(environment)
    found = {value for name, value in environment.items() if name not in shown and not _is_place(value)}
    found |= {word[at:] for word, at in _with_secrets(words) if at >= 0}
    usable = (value for value in found if len(value.strip()) >= _MIN_SOUGHT and len(value) <= _MAX_SOUGHT)
    return tuple(sorted(usable, key=lambda value: (-len(value), value)))


def redactor(words: Sequence[str], environment: Mapping[str, str]) -> Callable[[str], str]:
    """``redact_text`` that also hides the secrets which a command was given, wherever a server prints them."""
    values = secret_values(words, environment)
    given = re.compile("|".join(map(re.escape, values))) if values else None
    return redact_text if given is None else lambda text: redact_text(given.sub(HIDDEN, text))


def _is_place(value: str) -> bool:
    """A path of this host, even one to a secret, is none."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False


def without_credentials(address: str) -> str:
    """A model's name or address without user, password, query and fragment of a URL."""
    return (
        re.sub(r"(?<=://)[^/\s@]{1,500}@", "", re.split(r"[?#]", address, maxsplit=1)[0])
        if "://" in address
        else address
    )


def public_address(address: str) -> str:
    """The same with ``hidden``, which may stand in a label, in the place of what looks like a token."""
    return _TOKENS.sub("hidden", without_credentials(address))
