"""A command as its words: taken apart without a shell, shown without its secrets, its program found on PATH."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

from calibration.logs.secrets import HIDDEN, is_secret, without_secrets
from calibration.measure.environment import holds_secret
from startup_model.engines.command import engine_words
from startup_model.errors import ConfigError, StartupModelError, one_line

__all__ = ["PORT", "api_key", "hiding", "program_of", "secret_values", "shown_words", "take_apart"]

PORT = "{port}"
"""Stands in the command of an unknown program where its port belongs."""
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LONGEST = 2**17
"""Characters; Linux takes no longer word."""
_LONGEST_SHOWN = 400
_LONGEST_BEGINNING = 2000
_SHORTEST_SECRET, _LONGEST_SECRET = 4, 4096
"""Characters of a value that is looked for in what a server prints: a shorter one stands in any text."""
_KEY_FLAG = "--api-key"
_KEY_VARIABLE = "VLLM_API_KEY"


def take_apart(command: object) -> tuple[dict[str, str], list[str]]:
    """The variables in front of a command (``A=b``, ``env A=b``), and its words.

    command: a text, or words (texts or paths). Raises ConfigError for anything else, for unbalanced quotes, and where no program is named.
    """
    given = _words(command)
    variables: dict[str, str] = {}
    begin = 0
    for word, following in pairwise([*given, ""]):
        match = _ASSIGNMENT.fullmatch(word)
        if match is not None:
            variables[match.group(1)] = match.group(2)
        elif Path(word).name != "env" or not _ASSIGNMENT.fullmatch(following):
            break
        begin += 1
    words = given[begin:]
    remedy = "give a command such as: vllm serve MODEL"
    if not words or not words[0] or words[0].startswith("-"):
        raise ConfigError("command", shown_words(given), "there is no program in it", remedy)
    if any("\0" in word for word in (*words, *variables.values())):
        raise ConfigError("command", shown_words(words), "it holds a null byte", remedy)
    return variables, words


def _words(command: object) -> list[str]:
    if isinstance(command, str):
        _check_length(command, [command])
        try:
            return shlex.split(re.sub(r"\\\r?\n", " ", command))
        except ValueError as error:
            raise ConfigError(
                "command", _shown_text(command), f"it cannot be split into words ({error})", "check its quotes"
            ) from None
    remedy = "give a text such as 'vllm serve MODEL', its words, or an EngineConfig"
    if not isinstance(command, Sequence) or isinstance(command, bytes | bytearray | memoryview):
        raise ConfigError("command", command, "it is no command", remedy)
    words = [os.fspath(word) if isinstance(word, str | os.PathLike) else word for word in islice(command, _LONGEST + 1)]
    for word in words:
        if not isinstance(word, str):
            raise ConfigError("command", word, "a word of it is no text", remedy)
    _check_length(" ".join(words[:20]), words)
    return words


def _check_length(beginning: str, words: Sequence[str]) -> None:
    if sum(len(word) + 1 for word in words) > _LONGEST:
        shown = _shown_text(beginning[:_LONGEST_BEGINNING])
        raise ConfigError("command", shown, f"longer than {_LONGEST} characters", "give the server's command alone")


def _shown_text(command: str) -> str:
    """A text that has no words, up to its first secret: where that ends is not known."""
    parts = _masked(command.split())
    hidden = next((place for place, part in enumerate(parts) if HIDDEN in part), len(parts))
    return one_line(without_secrets(" ".join(parts[: hidden + 1])), _LONGEST_SHOWN)


def shown_words(words: Iterable[str]) -> str:
    """A command as it may be shown: one line, ``***`` in the place of keys, tokens and passwords."""
    text = shlex.join(_masked(list(words))).replace(f"'{HIDDEN}'", HIDDEN)
    return one_line(without_secrets(text), _LONGEST_SHOWN)


def _masked(words: Sequence[str]) -> list[str]:
    """Words without the values that a name before them makes secret; a flag may have several, and a key may begin with a dash."""
    shown: list[str] = []
    hides, may_begin_with_dash = False, False
    for place, word in enumerate(words):
        if hides and not word.startswith("--" if may_begin_with_dash else "-"):
            shown.append(HIDDEN)
            may_begin_with_dash = False
            continue
        name, sign, value = word.partition("=")
        bare = name.strip("-'\"")
        if not sign:
            following = words[place + 1] if place + 1 < len(words) else ""
            hides = may_begin_with_dash = word.startswith("-") and is_secret(bare, following)
            shown.append(word)
            continue
        inner, inner_sign, inner_value = value.partition("=")
        hides, may_begin_with_dash = word.startswith("-") and is_secret(bare, value), False
        if is_secret(bare, value):
            shown.append(f"{name}={HIDDEN}")
        elif inner_sign and is_secret(inner, inner_value):
            shown.append(f"{name}={inner}={HIDDEN}")
        else:
            shown.append(word)
    return shown


def secret_values(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of a command's secret flags and variables, the longest first: what may not be shown, wherever it stands."""
    found = {value for name, value in environment.items() if holds_secret(name, value) and not _is_place(value)}
    for word, shown in zip(words, _masked(words), strict=True):
        if word != shown:
            found.add(word[len(shown) - len(HIDDEN) :])
    usable = (value for value in found if len(value.strip()) >= _SHORTEST_SECRET and len(value) <= _LONGEST_SECRET)
    return tuple(sorted(usable, key=lambda value: (-len(value), value)))


def _is_place(value: str) -> bool:
    """Whether a value is a path of this host: one to a secret is none."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False


def hiding(words: Sequence[str], environment: Mapping[str, str]) -> Callable[[str], str]:
    """A function that hides, in what a server says, the secrets that it was given, and what looks like one."""
    values = secret_values(words, environment)
    given = re.compile("|".join(map(re.escape, values))) if values else None

    def hide(text: str) -> str:
        return without_secrets(text if given is None else given.sub(HIDDEN, text))

    return hide


def api_key(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The key that a server will ask for: of ``--api-key`` (the first of several), else of the variable that vLLM reads, in the command or in the environment."""
    try:
        parts = engine_words(words)
    except StartupModelError:
        parts = None
    if parts is not None and (given := parts.of(_KEY_FLAG)):
        return given[-1].values[0]
    for place, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name.replace("_", "-") == _KEY_FLAG and (sign or place + 1 < len(words)):
            return value if sign else words[place + 1]
    if parts is not None and parts.engine != "vllm":
        return None
    for word in words:  # what a container runtime sets
        found = re.fullmatch(rf"(?:--env=|-e=?)?{_KEY_VARIABLE}=(.+)", word)
        if found:
            return found.group(1)
    return environment.get(_KEY_VARIABLE)


def program_of(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The program of a command, found on the PATH of ``environment`` (None: of this process). Raises ConfigError when it is not there."""
    path = None if environment is None else environment.get("PATH")
    try:
        found = shutil.which(words[0], path=path)
        is_there, is_folder = Path(words[0]).exists(), Path(words[0]).is_dir()
    except (OSError, ValueError):
        found, is_there, is_folder = None, False, False
    if found is None:
        problem = "it is a folder" if is_folder else "it cannot be executed" if is_there else "no such program"
        raise ConfigError("command", words[0], problem, "give its path, or install it")
    return found
