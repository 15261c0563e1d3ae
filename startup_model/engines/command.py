"""Reading a pasted command line that starts an engine: nothing is executed or looked up, and the only variables that
are filled in are those that the paste itself sets.

Which flags exist and which take no, one or several values comes from a table extracted from the engines' own parsers;
which of them the prediction uses, and for which field, from ``engine_flags``. Everything else is listed by name, never by
value: values can be secrets.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

from startup_model.engines.flags import FLAGS, KEPT_VARIABLES, MODEL_FLAG, VARIABLES
from startup_model.errors import MISSING, ConfigError, StartupModelError
from startup_model.versions import parse_version

__all__ = [
    "EngineArgument",
    "EngineWords",
    "PastedWords",
    "argument_fields",
    "engine_words",
    "kept_variables",
    "known_flags",
    "known_switches",
    "pasted_words",
    "read_command",
    "read_words",
]

_LONGEST_COMMAND = 65536
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]{0,30}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})=(.*)", re.DOTALL)
_IMAGE = re.compile(
    r"(vllm|sglang)[a-z0-9_.-]{0,60}(?::([A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}))?(?:@sha256:[0-9a-f]{1,64})?"
)
_PINNED = re.compile(r"(?:vllm|sglang)(?:\[[a-z0-9,_-]{0,60}\])?==([0-9][0-9A-Za-z.+]{0,60})")
_SCRIPT = re.compile(r"(?:vllm|sglang)/[A-Za-z_/]{0,60}(?:api_server|launch_server)\.py")
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|SIGNATURE|COOKIE", re.IGNORECASE)
_LOOKS_SECRET = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|glpat-|xox[a-z]-|AKIA|ASIA|eyJ)[A-Za-z0-9_-]{6,}")
_ASSIGNED_SECRET = re.compile(
    r"([A-Za-z0-9_-]{0,40}(?:token|key|secret|pass|credential|auth)[A-Za-z0-9_-]{0,40}(?:=|:\s{0,2}|\s{1,4}))(?!-)\S{1,4096}",
    re.IGNORECASE,
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]{1,500}@")
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]{0,100})(?::?-([^{}$`]{0,300}))?\}|([A-Za-z_][A-Za-z0-9_]{0,100}))"
)
_ACCOUNT = re.compile(r"(?<![\w/.:@+-])[A-Za-z_][\w.+-]{0,63}:[^\s/@]{1,200}@(?=[\w\[])(?!sha256:)")
"""A user and a password in front of a host, without a scheme."""
_LONGEST_VARIABLE = 300
_LONGEST_KEPT = 200
_MOST_KEPT = 100
_MOST_UNUSED = 300
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_LOOK_ALIKES = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u201a": "'", "\r": "\n"}
    | dict.fromkeys(
        "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\f\v", " "
    )
    | dict.fromkeys("\u2028\u2029\u0085", "\n")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\0")
)
"""What word processors and web pages put in the place of plain quotes, spaces and line breaks, or between letters."""


# --- the command --------------------------------------------------------------------------------------------------------


class _Start(NamedTuple):
    """Where in the words the engine's own arguments begin."""

    engine: str
    position: int
    version: str | None
    positional_model: bool
    image: int | None = None
    """Position of the container image, when there is one: options of the container runtime stand before it."""


class _Shape(NamedTuple):
    """Spellings and arities of one engine's flags."""

    aliases: Mapping[str, str]
    boolean: frozenset[str]
    optional_value: frozenset[str]
    several: frozenset[str]
    names: tuple[str, ...]
    """All of them, in order."""
    known: frozenset[str]


def read_command(command: str) -> dict[str, Any]:
    """Fields of an EngineConfig from a command line, a script with one, or the container part of a manifest.

    Raises ConfigError for an empty or unbalanced command, one that starts no known engine, a flag without its value, or
    a value of the wrong kind.
    """
    if not isinstance(command, str) or not command.strip():
        raise ConfigError(
            "command", command, "empty", "paste a line such as 'vllm serve MODEL --tensor-parallel-size 2'"
        )
    _check_text(command)
    text = _plain_text(command)
    fields = _read_manifest(text) if _MANIFEST.search(text) else _read_script(text, {})
    if fields is None:
        raise ConfigError(
            "command", _redacted(command.strip()), "it starts no engine that is known here",
            "paste 'vllm serve ...', 'python -m vllm.entrypoints.openai.api_server ...' or 'python -m sglang.launch_server ...'",
        )  # fmt: skip
    return fields


def read_words(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Fields of an EngineConfig from the words of a command as a program gets them, and the variables that are set for it; None when it starts no engine.

    Nothing is put in the place of variables, since no shell would. Raises ConfigError as ``read_command``.
    """
    _check_text(" ".join(words))
    return _read_words(list(words), dict(environment), fills_in=False)


def _check_text(command: str) -> None:
    if len(command) > _LONGEST_COMMAND:
        raise ConfigError(
            "command", _redacted(command), f"longer than {_LONGEST_COMMAND} characters", "paste the command only"
        )
    if not command.isascii() and any("\ud800" <= character <= "\udfff" for character in command):
        raise ConfigError("command", _redacted(command), "not UTF-8 text", "paste it again as plain text")


class PastedWords(NamedTuple):
    """The command of a paste that starts an engine."""

    words: tuple[str, ...]
    """As ``engine_words`` takes them, variables that the paste sets filled in."""
    environment: Mapping[str, str]
    """What the paste sets for it."""
    image: str | None
    """The container image, where a container runtime starts it."""


def pasted_words(command: str) -> PastedWords | None:
    """The words of the first command in a paste that starts an engine; None where it starts none, and for a manifest, which is no command line.

    Raises ConfigError for text that cannot be read and for a quote that is not closed.
    """
    _check_text(command)
    text = _plain_text(command)
    environment: dict[str, str] = {}
    found = None if _MANIFEST.search(text) else _find_in_script(text, environment)
    if found is None:
        return None
    start, words = found
    image = None if start.image is None else words[start.image].removeprefix("--image=")
    return PastedWords(tuple(words), environment, image)


def _plain_text(command: str) -> str:
    """A paste with plain quotes, spaces and line breaks."""
    return command.replace("\r\n", "\n").translate(_LOOK_ALIKES)


_Found = tuple[_Start, list[str]]


def _find_in_script(text: str, environment: dict[str, str], depth: int = 0) -> _Found | None:
    """The first command of a script that starts an engine, and its words, or None; assignments go into ``environment``."""
    for tokens in _simple_commands(re.sub(r"\A\s*[>$%]\s+", "", text)):
        found = _find_in_words(_take_environment(tokens, environment), environment, depth)
        if found is not None:
            return found
    return None


def _find_in_words(
    words: list[str], environment: dict[str, str], depth: int = 0, *, fills_in: bool = True
) -> _Found | None:
    """The same in the words of one command; scripts of ``bash -c`` are read too."""
    start = _find_engine(words)
    if start is not None:
        if start.image is not None:
            _take_container_environment(words[: start.image], environment)
        own = words[start.position :]
        filled = [_plain_dashes(_filled_in(word, environment)) for word in own] if fills_in else own
        return start, [*words[: start.position], *filled]
    for option, script in pairwise(words):
        if re.fullmatch(r"-[a-z]{0,4}c", option) and depth < 2:
            return _find_in_script(script, environment, depth + 1)
    return None


def _read_script(text: str, environment: dict[str, str]) -> dict[str, Any] | None:
    """The fields of the first command that starts an engine, or None; assignments go into ``environment``."""
    return _read_found(_find_in_script(text, environment), environment)


def _read_words(words: list[str], environment: dict[str, str], *, fills_in: bool = True) -> dict[str, Any] | None:
    """The fields of one command, or None when it starts no engine."""
    return _read_found(_find_in_words(words, environment, fills_in=fills_in), environment)


def _read_found(found: _Found | None, environment: Mapping[str, str]) -> dict[str, Any] | None:
    if found is None:
        return None
    start, words = found
    return _read_arguments(start, words[start.position :], environment)


def _redacted(command: str) -> str:
    """The beginning of a command for a message, without what may be a secret."""
    text = _ASSIGNED_SECRET.sub(r"\1***", command[:400])
    return _ACCOUNT.sub("***@", _URL_CREDENTIALS.sub("***@", _LOOKS_SECRET.sub("***", text)))


_PIECE = re.compile(
    r"""
    (?P<blank>  (?:[ \t]|[\\^`][ \t]*(?:\n|\Z)|\n[ \t\n]*(?=[-DASHES#]))+ )
  | (?P<end>    \n[ \t\n]* | &&? | \|[|&]? | ;+ )(?!>)
  | (?P<single> '[^']*' )
  | (?P<double> "(?:[^"\\]|\\.)*" )
  | (?P<escape> \\. )
  | (?P<redirection> &?(?:>>?|<<?<?)[&|]?-? )
  | (?P<bare>   [^\s'"\\|&;<>^`]+ )
  | (?P<other>  . )
    """.replace("DASHES", _DASHES),
    re.VERBOSE | re.DOTALL,
)


def _simple_commands(text: str) -> Iterator[list[str]]:  # noqa: PLR0912  one branch for each kind of piece
    """The simple commands of a script, as words: lines joined where they continue, comments and redirections left out.

    A line that begins with a dash continues the one before it, with or without a backslash. Raises ConfigError for a
    quote that is not closed.
    """
    words: list[str] = []
    word: str | None = None
    redirected = False  # the next word is the file of a redirection
    position = 0
    while position < len(text):
        piece = _PIECE.match(text, position)
        if piece is None:  # pragma: no cover - the last alternative takes any character
            break
        kind, content, position = piece.lastgroup, piece.group(), piece.end()
        if kind == "bare" and word is None and content.startswith("#"):
            line_end = text.find("\n", position)
            position = len(text) if line_end < 0 else line_end
        elif kind in ("bare", "single", "double", "escape", "other"):
            if kind == "other" and content in "'\"":
                raise ConfigError(
                    "command",
                    _redacted(text),
                    "unbalanced quotes (No closing quotation)",
                    "close them",
                )
            if kind == "double":
                content = re.sub(r"\\(\n|[\"\\$`])", lambda m: m.group(1).strip("\n"), content[1:-1])
            word = (word or "") + (content[1:-1] if kind == "single" else content[1:] if kind == "escape" else content)
        else:
            if kind == "redirection" and word is not None and word.isdigit():
                word = None  # 2>&1
            if word is not None and not redirected:
                words.append(word)
            if word is not None or kind == "end":
                redirected = False
            word = None
            if kind == "redirection":
                redirected = True
            elif kind == "end" and words:
                yield words
                words = []
    if word is not None and not redirected:
        words.append(word)
    if words:
        yield words


def _take_environment(tokens: list[str], environment: dict[str, str]) -> list[str]:
    """Words after the assignments in front (``A=b``, ``env A=b``, ``export A=b``); the assignments go into
    ``environment``."""
    for position, word in enumerate(tokens):
        match = _ASSIGNMENT.fullmatch(word)
        if match:
            environment[match.group(1)] = match.group(2)
        elif word not in ("env", "export", "set", "$", "sudo", "nohup", "exec", "time"):
            return tokens[position:]
    return []


def _take_container_environment(words: list[str], environment: dict[str, str]) -> None:
    """Put what ``-e A=b``, ``--env A=b`` and ``--env=A=b`` of a container runtime set into ``environment``."""
    for i, word in enumerate(words):
        option, _, inline = word.partition("=")
        if option in ("-e", "--env"):
            match = _ASSIGNMENT.fullmatch(inline or (words[i + 1] if i + 1 < len(words) else ""))
            if match:
                environment[match.group(1)] = match.group(2)


def _find_engine(words: list[str]) -> _Start | None:
    """The engine that the words start, and where its arguments begin; None when they start none."""
    image: tuple[int, str, str | None] | None = None
    pinned: str | None = None
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        base = word.rsplit("/", 1)[-1].removesuffix(".exe")
        found: tuple[str, int, bool] | None = None
        if base in ("vllm", "sglang") and following == "serve":
            found = (base, i + 2, base == "vllm")
        elif word == "-m" and following.split(".")[0] in ("vllm", "sglang") and "." in following:
            found = (following.split(".")[0], i + 2, False)
        elif word.endswith("_server.py") and _SCRIPT.search(word[-200:]):
            found = ("vllm" if word.endswith("api_server.py") else "sglang", i + 1, False)
        if found:
            engine, position, positional = found
            if words[position : position + 1] == ["serve"]:  # python -m vllm.entrypoints.cli.main serve
                position, positional = position + 1, True
            version = image[2] if image else pinned
            return _Start(engine, position, version, positional, image[0] if image else None)
        pin = _PINNED.fullmatch(word.removeprefix("--with=").removeprefix("--from="))
        pinned = pin.group(1) if pin else pinned
        named = _IMAGE.fullmatch(base) if "/" in word and image is None else None
        previous = words[i - 1] if i else ""
        if named and (word.startswith("--image=") or previous == "--image" or _may_be_image(words, i)):
            image = (i, named.group(1), _release(named.group(2)))
    if image is not None:  # its own entry point starts the engine
        position = image[0] + 1
        while words[position : position + 1] in (["--"], ["serve"]):
            position += 1
        return _Start(image[1], position, image[2], positional_model=True, image=image[0])
    if words and words[0].startswith("-"):
        names = {word.split("=")[0].replace("_", "-") for word in words}
        if words[0].startswith("--") or words[0] in _shape("vllm").aliases:
            return _Start("sglang" if "--model-path" in names else "vllm", 0, None, positional_model=False)
    return None


def _may_be_image(words: list[str], position: int) -> bool:
    """Whether the word at ``position`` can be the image of a container runtime: the runtime comes before it and it is
    no value of an option, or flags of an engine follow."""
    runs = any(word.rsplit("/", 1)[-1] in ("docker", "podman", "nerdctl") for word in words[: min(position, 10)])
    previous = words[position - 1] if position else ""
    takes_value = previous.startswith("-") and "=" not in previous and previous not in _SWITCHES
    return runs and (not takes_value or previous == "--")


_SWITCHES = frozenset({"--rm", "-it", "-ti", "-i", "-t", "-d", "-dit", "-itd", "-td", "--detach", "--interactive", "--tty", "--privileged", "--init", "--no-healthcheck", "--read-only"})  # fmt: skip
"""Options of container runtimes that take no value."""


def _release(tag: str | None) -> str | None:
    """The engine's release that an image tag names, or None: ``latest`` and tags made of dates name none."""
    if tag is None:
        return None
    inner = re.search(r"(?:vllm|sglang)[_-]v?([0-9]{1,3}(?:\.[0-9]{1,4}){1,3})", tag)  # rocm6.4_vllm_0.9.1_...
    text = inner.group(1) if inner else tag.removeprefix("v")
    try:
        return text if parse_version(text) < (20,) else None
    except ConfigError:
        return None


# --- manifests ----------------------------------------------------------------------------------------------------------

_MANIFEST = re.compile(
    r"\A\s*\[|\A[ \t\n]*-[ \t]|^[ \t]*(?:-[ \t]+)?\"?(?:args|command|entrypoint|image|containers|services)\"?:(?:\s|$)",
    re.MULTILINE,
)
_ENTRY = re.compile(r"(?:-[ \t]+)?[\"']?([A-Za-z_][A-Za-z0-9_.-]{0,100})[\"']?:(?:[ \t]+(.*))?")
_ITEM = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s,\[\]\"'][^,\[\]]*)")


def _read_manifest(text: str) -> dict[str, Any] | None:  # noqa: PLR0912, PLR0915  one branch for each kind of line
    """The fields from ``image``, ``command``, ``args`` and ``env`` of a container in YAML or JSON (Kubernetes,
    Compose), or from a bare list of arguments. The lists and texts that such parts hold are read, not all of YAML."""
    lists: dict[str, list[str]] = {"entrypoint": [], "command": [], "args": []}
    environment: dict[str, str] = {}
    image = variable = ""
    key = "args" if re.match(r"\s*(?:\[|-[ \t])", text) else ""
    flow = block = False
    lines: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        entry = None if flow else _ENTRY.fullmatch(stripped)
        if entry and not (block and entry.group(1) not in (*lists, "image", "env", "resources", "ports", "name")):
            if key == "environment" and entry.group(1).isupper():
                environment[entry.group(1)] = _unquoted(entry.group(2) or "")
                continue
            if block:
                lists[key].append("\n".join(lines))
            key, value, block = entry.group(1), entry.group(2) or "", False
            if key == "image":
                image = _unquoted(value)
            elif key == "name":
                variable = _unquoted(value)
            elif key == "value" and _ASSIGNMENT.fullmatch(f"{variable}="):
                environment[variable] = _unquoted(value)
            stripped = value
            if key in lists and value and not value.startswith(("[", "|", ">", "&", "*")):
                lists[key] += [word for words in _simple_commands(value) for word in words]
        if key not in (*lists, "environment") or not stripped:
            continue
        if block:
            lines.append(stripped)
        elif flow or stripped.startswith("["):
            if key in lists:
                lists[key] += [_item(match) for match in _ITEM.finditer(stripped)]
            flow = not re.search(r"\][ \t]*,?$", stripped)
        elif re.fullmatch(r"(?:-[ \t]+)?[|>][-+0-9]{0,2}", stripped):
            block, lines = True, []
        elif stripped.startswith("-") and stripped[1:2] in (" ", "\t"):
            item = _unquoted(stripped[1:])
            match = _ASSIGNMENT.fullmatch(item)
            if key in lists:
                lists[key].append(item)
            elif match:
                environment[match.group(1)] = match.group(2)
    if block and key in lists:
        lists[key].append("\n".join(lines))
    words = [*lists["entrypoint"], *lists["command"], *lists["args"]]
    if image and _find_engine(words) is None and not any(re.fullmatch(r"-[a-z]{0,4}c", word) for word in words):
        words = ["docker", image, *words]
    elif image:
        named = _IMAGE.fullmatch(image.rsplit("/", 1)[-1])
        fields = _read_first(words, environment)
        return fields and fields | {"version": fields["version"] or (_release(named.group(2)) if named else None)}
    return _read_first(words, environment)


def _read_first(words: list[str], environment: dict[str, str]) -> dict[str, Any] | None:
    """The fields of the words as one command, else of a script among them."""
    fields = _read_words(words, environment)
    if fields is None:
        scripts = (word for word in words[:50] if len(word.split()) > 1)
        fields = next(filter(None, (_read_script(script, environment) for script in scripts)), None)
    return fields


def _item(match: re.Match[str]) -> str:
    """One entry of a list in brackets."""
    double, single, plain = match.groups()
    if double is not None:
        return _unquoted(f'"{double}"')
    return single if single is not None else plain.strip()


def _unquoted(value: str) -> str:
    """A scalar of YAML or JSON without its quotes."""
    value = value.strip().removesuffix(",").rstrip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            return str(json.loads(value, strict=False))
        except (ValueError, RecursionError):
            return value[1:-1]
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return re.sub(r"[ \t]#.*", "", value).rstrip()


# --- the arguments ------------------------------------------------------------------------------------------------------


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


class EngineWords(NamedTuple):
    """The words of a command that starts an engine."""

    engine: str
    position: int
    """Place of the first argument of the engine itself."""
    positional_model: bool
    """Whether its first word without a flag is the model."""
    in_container: bool
    """Whether a container runtime starts it."""
    arguments: tuple[EngineArgument, ...]
    """Places count from the first word of the command."""

    def of(self, flag: str) -> tuple[EngineArgument, ...]:
        """The arguments of one flag, in order; the last one counts."""
        return tuple(argument for argument in self.arguments if argument.flag == flag)

    def models(self) -> tuple[EngineArgument, ...]:
        """Those that name the model."""
        named = self.of(MODEL_FLAG[self.engine])
        bare = [argument for argument in self.of("") if not argument.values[0].startswith("-")]
        return (*(bare[:1] if self.positional_model else ()), *named)


def engine_words(words: Sequence[str]) -> EngineWords | None:
    """The engine that a command starts by itself, with its arguments; None where it starts none, or a script does.

    Raises ConfigError for a flag without its value.
    """
    start = _find_engine(list(words))
    if start is None:
        return None
    arguments = tuple(_arguments(start.engine, words, start.position))
    return EngineWords(start.engine, start.position, start.positional_model, start.image is not None, arguments)


def _arguments(engine: str, words: Sequence[str], position: int) -> Iterator[EngineArgument]:
    """The words from a place on, taken apart as the engine does."""
    shape = _shape(engine)
    while position < len(words):
        begin, word = position, words[position]
        position += 1
        if word in ("-", "--"):
            continue
        if not word.startswith("-") or _NUMBER.fullmatch(word):
            yield EngineArgument("", "", "", (word,), begin, position)
            continue
        spelled, has_value, inline = word.partition("=")
        if not has_value and re.fullmatch(r"-O[0-3]", word):
            spelled, has_value, inline = "-O", "=", word[2:]
        flag, dotted = _canonical(spelled, shape)
        negated = (
            flag.startswith("--no-")
            and flag not in shape.names
            and "--" + flag[5:] in shape.boolean | shape.optional_value
        )
        if negated:
            flag = "--" + flag[5:]
        values, position = _values(flag, inline if has_value else None, words, position, shape, negated=negated)
        yield EngineArgument(flag, dotted, spelled, tuple(values), begin, position)


def argument_fields(engine: str, argument: EngineArgument) -> dict[str, Any] | None:
    """What a flag fills; None for one that the prediction does not use, and for a word without one. Raises ConfigError for a value of the wrong kind."""
    flag = FLAGS[engine].get(argument.flag)
    if flag is None or (argument.key and argument.flag != "--compilation-config"):
        return None
    value: Any = list(argument.values) if argument.flag in _shape(engine).several else argument.values[0]
    if argument.key:
        value = {argument.key: _json_or_text(argument.values[0])}
    return _converted(argument.spelled, flag.read, value)


def _read_arguments(start: _Start, words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    shape = _shape(start.engine)
    fields: dict[str, Any] = {"engine": start.engine}
    unused: dict[str, None] = {}
    for name, variable in VARIABLES[start.engine].items():
        if environment.get(name):
            fields |= _converted(name, variable.read, environment[name])
    for argument in _arguments(start.engine, words, 0):
        found = argument_fields(start.engine, argument)
        if found is not None:
            fields |= found
        elif argument.flag:
            unused[_name_only(argument.spelled, argument.flag, shape)] = None
        elif start.positional_model and "model" not in fields and not argument.values[0].startswith("-"):
            fields |= _converted("model", FLAGS[start.engine][MODEL_FLAG[start.engine]].read, argument.values[0])
        else:
            unused["(a word that belongs to no flag)"] = None
    return fields | {
        "version": start.version,
        "environment": kept_variables(environment),
        "unused_flags": tuple(unused)[:_MOST_UNUSED],
    }


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how an engine starts, less those that are or hold a secret, and long ones."""
    kept = {}
    for name, value in environment.items():
        if name.startswith(KEPT_VARIABLES) and not _SECRET.search(name) and len(value) <= _LONGEST_KEPT:
            plain = _URL_CREDENTIALS.sub("", value)
            if not (_LOOKS_SECRET.search(plain) or _ASSIGNED_SECRET.search(plain) or _ACCOUNT.search(plain)):
                kept[name] = plain
    return dict(list(kept.items())[:_MOST_KEPT])


def _filled_in(word: str, environment: Mapping[str, str]) -> str:
    """``word`` with the variables that the paste itself sets, and the defaults that it gives, in their places."""

    def value(match: re.Match[str]) -> str:
        braced, default, plain = match.groups()
        given = environment.get(braced or plain, default)
        return match.group() if given is None or len(given) > _LONGEST_VARIABLE else given

    return _VARIABLE.sub(value, word) if "$" in word else word


def _plain_dashes(word: str) -> str:
    """``word`` with ``--`` in the place of the dashes that word processors put in front of a flag."""
    bare = word.lstrip("-" + _DASHES)
    front = word[: len(word) - len(bare)]
    return word if front.strip("-") == "" else f"--{bare}"


def _name_only(spelled: str, flag: str, shape: _Shape) -> str:
    """How an unused flag is listed: as it was spelled when it is a flag, since anything else may be a secret."""
    known = flag in shape.names or (flag.startswith("--no-") and f"--{flag[5:]}" in shape.names)
    looks_like_one = re.fullmatch(r"--?[A-Za-z][A-Za-z0-9_.-]{0,79}|-[A-Za-z]{1,4}", spelled)
    if (known and len(spelled) <= 80) or (
        looks_like_one and spelled.startswith("--") and not _LOOKS_SECRET.search(spelled)
    ):
        return spelled.split(".", 1)[0] if not known else spelled
    return spelled if re.fullmatch(r"-[A-Za-z]{1,4}", spelled) else "(an unknown flag)"


def _canonical(spelled: str, shape: _Shape) -> tuple[str, str]:
    """The full name of a flag and the key after its dot, for instance ``-O.level`` -> (``--compilation-config``,
    ``level``)."""
    stem, _, dotted = spelled.partition(".")
    if stem.startswith("--"):
        stem = stem.replace("_", "-")
    stem = shape.aliases.get(stem, stem)
    if stem not in shape.known and stem.startswith("--"):
        first = bisect_left(shape.names, stem)
        candidates = [name for name in shape.names[first : first + 2] if name.startswith(stem)]
        if len(candidates) == 1 and len(stem) > 2 and not stem.startswith("--no-"):
            stem = candidates[0]
        elif stem.removeprefix("-") in shape.aliases:  # --tp for -tp
            stem = shape.aliases[stem.removeprefix("-")]
        elif f"{stem}-size" in shape.known:  # SGLang's --tp for --tp-size, short of unique
            stem = f"{stem}-size"
    return stem, dotted


def _values(
    flag: str, inline: str | None, words: Sequence[str], position: int, shape: _Shape, *, negated: bool
) -> tuple[list[str], int]:
    """The values of a flag and the position after them. Raises ConfigError when one is missing."""
    if negated:
        return ["false"], position

    def is_value(index: int) -> bool:
        if index >= len(words):
            return False
        if not words[index].startswith("-") or _NUMBER.fullmatch(words[index]):
            return True
        # Keys and passwords may begin with a dash: the word behind their flag is not taken for another flag.
        is_flag = words[index].startswith("--") or words[index].partition("=")[0] in shape.aliases
        return bool(_SECRET.search(flag)) and flag not in shape.boolean and not is_flag

    if flag in shape.boolean or (flag in shape.optional_value and re.match(r"--(?:enable|disable|multi)-", flag)):
        if inline is not None:
            return [inline], position
        if is_value(position) and words[position].lower() in ("true", "false"):
            return [words[position]], position + 1
        return ["true"], position
    values = [] if inline is None else [inline]
    if flag in shape.several:
        while is_value(position):
            values.append(words[position])
            position += 1
    elif inline is None and is_value(position):
        values, position = [words[position]], position + 1
    if not values:
        if flag in shape.known and flag not in shape.optional_value:
            raise ConfigError(flag, MISSING, "the flag needs a value", "give it, or leave the flag out")
        values = ["true"]
    return values, position


def _converted(name: str, reader: Callable[[Any], dict[str, Any]], value: Any) -> dict[str, Any]:
    given = " ".join(value) if isinstance(value, list) else value
    if isinstance(given, str) and re.search(r"\$[A-Za-z_{(]|`", given) and not given.lstrip().startswith("{"):
        raise ConfigError(
            name, given, "a shell variable or substitution that the command does not set", "put its value in its place"
        )
    try:
        return reader(value)
    except ConfigError:
        raise
    except StartupModelError as expected:
        raise ConfigError(name, given, f"it should be {expected}", "correct the command") from None


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value[:200].strip("'\"")


def known_flags(engine: str) -> tuple[str, ...]:
    """All flags of an engine's server, over the versions that were read."""
    shape = _shape(engine)
    return (*shape.names, *shape.aliases)


@lru_cache(maxsize=4)
def known_switches(engine: str) -> frozenset[str]:
    """Flags without a value that the prediction does not use, and their negations."""
    plain = _shape(engine).boolean - FLAGS[engine].keys()
    return plain | {f"--no-{flag[2:]}" for flag in plain}


@lru_cache(maxsize=4)
def _shape(engine: str) -> _Shape:
    """The flags of one engine, from the table that comes with the package."""
    table = json.loads(files("startup_model").joinpath("data/flags.json").read_text(encoding="utf-8"))[engine]
    several, boolean, optional = (frozenset(table[kind]) for kind in ("list", "boolean", "optional_value"))
    names = sorted({*several, *boolean, *optional, *table["value"]})
    return _Shape(table["aliases"], boolean, optional, several, tuple(names), frozenset(names))
