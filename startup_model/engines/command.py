"""Reading a pasted command line that starts an engine, and writing one.

Nothing is executed or looked up, and the only variables that are filled in are those that the paste itself sets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple

from startup_model.engines import DEFAULT_ENGINE, all_engines, built_in, find
from startup_model.engines.arguments import EngineArgument, argument_fields, known_switches, shape_of, split_command
from startup_model.engines.engine import NOTHING, Engine
from startup_model.engines.flags import read_fields, write_fields
from startup_model.errors import MISSING, ConfigError, conflict
from startup_model.secrets import redact_command, redact_environment, without_credentials
from startup_model.versions import parse_version

# Beginnings of the variables that change how any engine starts.
_KEPT_VARIABLES = (
    "CUDA_", "NCCL_", "GLOO_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_HUB_", "HF_HOME", "OMP_", "MKL_", "HIP_", "ROCR_",
    "ASCEND_", "LD_PRELOAD", "TOKENIZERS_",
)  # fmt: skip

_MAX_COMMAND, _MAX_VARIABLE, _MAX_KEPT_VALUE, _MAX_KEPT, _MAX_UNUSED = 65536, 300, 200, 100, 300
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,100}"
_ASSIGNMENT = re.compile(rf"({_NAME})=(.*)", re.DOTALL)
_VARIABLE = re.compile(rf"\$(?:\{{({_NAME})(?::?-([^{{}}$`]{{0,300}}))?\}}|({_NAME}))")
_BEFORE_A_COMMAND = frozenset({"env", "export", "set", "$", "sudo", "nohup", "exec", "time"})
_SCRIPT = re.compile(r"-[a-z]{0,4}c")
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_END, _REDIRECTION = "\ue000", "\ue001"
# What word processors and web pages put in the place of plain quotes, spaces and line breaks, or between letters.
_LOOK_ALIKES = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'", "\u201a": "'", "\r": "\n"}
    | dict.fromkeys("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000\f\v", " ")
    | dict.fromkeys("\u2028\u2029\u0085", "\n")
    | dict.fromkeys(f"\u200b\u200c\u200d\u2060\ufeff\u00ad\0{_END}{_REDIRECTION}")
)  # fmt: skip


# --- the words of a paste -------------------------------------------------------------------------------------------------


class EngineWords(NamedTuple):
    """The words of a command that starts an engine, and where the engine's own arguments begin."""

    engine: str
    words: Sequence[str]
    position: int
    """Place of the first argument of the engine itself."""
    version: str | None
    positional_model: bool
    """Whether its first word without a flag is the model."""
    image_at: int | None = None
    """Place of the container image, where there is one: options of the container runtime stand before it."""
    environment: Mapping[str, str] = NOTHING
    """What a paste sets for it."""

    @property
    def image(self) -> str | None:
        """The container image, where a container runtime starts it."""
        return None if self.image_at is None else self.words[self.image_at].removeprefix("--image=")

    @property
    def arguments(self) -> tuple[EngineArgument, ...]:
        """Places count from the first word of the command. Raises ConfigError for a flag without its value."""
        return tuple(split_command(find(self.engine), self.words, self.position))

    def of(self, flag: str) -> tuple[EngineArgument, ...]:
        """The arguments of one flag, in order; the last one counts."""
        return tuple(argument for argument in self.arguments if argument.flag == flag)

    def models(self) -> tuple[EngineArgument, ...]:
        """Those that name the model."""
        launch, arguments = find(self.engine).launch, self.arguments
        bare = [item for item in arguments if not item.flag and not item.values[0].startswith("-")]
        named = [item for item in arguments if launch and item.flag == launch.model_flag]
        return (*(bare[:1] if self.positional_model else ()), *named)


def read_command(command: str) -> dict[str, Any]:
    """Fields of an EngineConfig from a command line, a script with one, or the container part of a manifest.

    Raises ConfigError for an empty or unbalanced command, one that starts no known engine, a flag without its value, or a value of the wrong kind.
    """
    if not isinstance(command, str) or not command.strip():
        remedy = "paste a line such as 'vllm serve MODEL --tensor-parallel-size 2'"
        raise ConfigError("command", command, "empty", remedy)
    text = _plain_text(command)
    is_manifest = _MANIFEST.search(text) is not None
    call = _in_manifest(text) if is_manifest else _in_script(text, {})
    if call is None:
        value = MISSING if is_manifest else redact_command(command.strip())  # its names and values stand apart
        starts = sorted(" ".join(engine.launch.words) for engine in built_in().values() if engine.launch)
        remedy = f"paste a command such as {', '.join(map(repr, starts))}"
        raise ConfigError("command", value, "it starts no engine that is known here", remedy)
    return _fields(call)


def read_words(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Fields of an EngineConfig from the words of a command as a program gets them, and the variables that are set for it; None when it starts no engine.

    Nothing is put in the place of variables, since no shell would. Raises ConfigError as ``read_command``.
    """
    _plain_text(" ".join(words))
    call = _in_words(list(words), environment, fills_in=False)
    return None if call is None else _fields(call)


def pasted_words(command: str) -> EngineWords | None:
    """The first command of a paste that starts an engine, variables that the paste sets filled in; None where there is none, and for a manifest, which is no command line.

    Raises ConfigError for text that cannot be read and for a quote that is not closed.
    """
    text = _plain_text(command)
    return None if _MANIFEST.search(text) else _in_script(text, {})


def engine_words(words: Sequence[str]) -> EngineWords | None:
    """The engine that a command starts by itself, with its arguments; None where it starts none, or a script does.

    Raises ConfigError for a flag without its value.
    """
    call = _engine_call(words)
    if call is not None:
        call.arguments  # noqa: B018  it raises
    return call


def _plain_text(command: str) -> str:
    """A paste with plain quotes, spaces and line breaks. Raises ConfigError where it is too long, or no text."""
    if len(command) > _MAX_COMMAND:
        problem = f"must be at most {_MAX_COMMAND} characters long"
        raise ConfigError("command", redact_command(command), problem, "paste the command only")
    if not command.isascii() and any("\ud800" <= character <= "\udfff" for character in command):
        raise ConfigError("command", redact_command(command), "not UTF-8 text", "paste it again as plain text")
    return command.replace("\r\n", "\n").translate(_LOOK_ALIKES)


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_IN_QUOTES = {"\n": "", "$": "$", "`": "`"}
_MARKS = {"file": f" {_REDIRECTION} ", "end": f" {_END} ", "comment": ""}
_SYNTAX = re.compile(
    r"""
    (?P<kept>    '[^']*' | "(?:[^"\\]|\\.)*" )
  | (?P<comment> (?<![^\s|&;<>]) \# [^\n]* )
  | (?P<blank>   [\\^`][ \t]*(?:\n|\Z) | \n[ \t\n]*(?=[-DASHES\#]) )
  | (?P<escaped> \\.\#* )
  | (?P<file>    (?:(?<![^\s|&;<>])[0-9]+)? &? (?:>>?|<<?<?) [&|]? -? )
  | (?P<end>     \n[ \t\n]* | &&? | \|[|&]? | ;+ )
    """.replace("DASHES", _DASHES),
    re.VERBOSE | re.DOTALL,
)


def _commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, as words: lines joined where they continue, comments and redirections left out.

    A line that begins with a dash continues the one before it, with or without a backslash. Raises ConfigError for a quote that is not closed.
    """

    def marked(found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind == "kept" and found.group()[0] == '"':  # shlex takes a backslash there for one before " and \ only
            return _ESCAPE.sub(lambda escape: _IN_QUOTES.get(escape.group(1), escape.group()), found.group())
        return found.group() if kind in ("kept", "escaped") else _MARKS.get(kind or "", " ")

    lexer = shlex.shlex(_SYNTAX.sub(marked, text), posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    is_file = False
    try:
        for word in chain(lexer, [_END]):
            if word == _END:
                if words:
                    yield words
                words = []
            elif word != _REDIRECTION and not is_file:
                words.append(word)
            is_file = word == _REDIRECTION
    except ValueError as error:
        problem = f"unbalanced quotes ({error})"
        raise ConfigError("command", redact_command(text), problem, "close them") from None


# --- the command that starts an engine ------------------------------------------------------------------------------------


def _in_script(text: str, environment: Mapping[str, str], depth: int = 0) -> EngineWords | None:
    """Assignments before a command count: ``A=b``, ``env A=b``, ``export A=b``."""
    variables = dict(environment)
    for words in _commands(re.sub(r"\A\s*[>$%]\s+", "", text)):
        begin = 0
        for begin, word in enumerate([*words, ""]):  # noqa: B007  the first word of the command itself
            if found := _ASSIGNMENT.fullmatch(word):
                variables[found.group(1)] = found.group(2)
            elif word not in _BEFORE_A_COMMAND:
                break
        if (call := _in_words(words[begin:], variables, depth)) is not None:
            return call
    return None


def _in_words(
    words: list[str], environment: Mapping[str, str], depth: int = 0, *, fills_in: bool = True
) -> EngineWords | None:
    if (call := _engine_call(words)) is not None:
        variables = dict(environment)
        for option, following in pairwise([*words[: call.image_at or 0], ""]):  # what a container runtime sets
            name, _, inline = option.partition("=")
            if name in ("-e", "--env") and (found := _ASSIGNMENT.fullmatch(inline or following)):
                variables[found.group(1)] = found.group(2)
        own = words[call.position :]
        filled = [_plain_dashes(_filled_in(word, variables)) for word in own] if fills_in else own
        return call._replace(words=(*words[: call.position], *filled), environment=variables)
    for option, script in pairwise(words):
        if _SCRIPT.fullmatch(option) and depth < 2:
            return _in_script(script, environment, depth + 1)
    return None


def _engine_call(words: Sequence[str]) -> EngineWords | None:
    known = built_in()
    found = _among(words, known)
    return _among(words, all_engines()) if found is None and len(all_engines()) > len(known) else found


def _among(words: Sequence[str], engines: Mapping[str, Engine]) -> EngineWords | None:
    launches = {engine.launch.program: (name, engine.launch) for name, engine in engines.items() if engine.launch}
    programs = "|".join(map(re.escape, launches))
    pinned = rf"(?:--(?:with|from)=)?(?:{programs})(?:\[[a-z0-9,_-]{{0,60}}\])?==([0-9][0-9A-Za-z.+]{{0,60}})"
    in_folder = re.compile(rf"({programs})/[A-Za-z_/]{{0,60}}$")
    image: tuple[int, str] | None = None
    version: str | None = None
    for i, (word, following) in enumerate(pairwise([*words, ""])):
        base, module = word.rsplit("/", 1)[-1].removesuffix(".exe"), following.partition(".")
        program, position, positional = None, i + 2, False
        if following == "serve" and base in launches:
            program, positional = base, launches[base][1].positional_model
        elif word == "-m" and module[1]:
            program = module[0]
        elif word.endswith(".py") and (file := in_folder.search(word[: -len(base)][-80:])):
            program, position = file.group(1) if base.endswith(launches[file.group(1)][1].script) else None, i + 1
        if program in launches:
            if words[position : position + 1] == ["serve"]:  # python -m vllm.entrypoints.cli.main serve
                position, positional = position + 1, True
            return EngineWords(launches[program][0], words, position, version, positional, image and image[0])
        if image is None and (pin := re.fullmatch(pinned, word)):
            version = pin.group(1)
        if image is None and (named := _image(words, i, programs)):
            version = _release(named.group(2), programs)
            image = (i, launches[named.group(1)][0])
    if image is not None:  # its own entry point starts the engine
        position = image[0] + 1
        while words[position : position + 1] in (["--"], ["serve"]):
            position += 1
        return EngineWords(image[1], words, position, version, positional_model=True, image_at=image[0])
    return _of_flags(words, engines)


def _of_flags(words: Sequence[str], engines: Mapping[str, Engine]) -> EngineWords | None:
    """Flags without a program: the engine that alone names its model so, else the default one."""
    default = engines[DEFAULT_ENGINE]
    if not words or not (words[0].startswith("--") or words[0] in shape_of(default).aliases):
        return None
    names = {word.split("=")[0].replace("_", "-") for word in words} - default.flags.keys()
    own = (engine.name for engine in engines.values() if engine.launch and engine.launch.model_flag in names)
    return EngineWords(next(own, DEFAULT_ENGINE), words, 0, None, positional_model=False)


# Options of container runtimes that take no value.
_RUNTIME_SWITCHES = frozenset({"--rm", "-it", "-ti", "-i", "-t", "-d", "-dit", "-itd", "-td", "--detach", "--interactive", "--tty", "--privileged", "--init", "--no-healthcheck", "--read-only"})  # fmt: skip


def _image(words: Sequence[str], position: int, programs: str) -> re.Match[str] | None:
    """The program and the tag of a container image, where the runtime stands before it and it is no value of another option."""
    word, previous = words[position], words[position - 1] if position else ""
    if "/" not in word:
        return None
    if not word.startswith("--image=") and previous != "--image":
        runs = any(other.rsplit("/", 1)[-1] in ("docker", "podman", "nerdctl") for other in words[: min(position, 10)])
        takes_value = previous.startswith("-") and "=" not in previous and previous not in _RUNTIME_SWITCHES
        if not runs or (takes_value and previous != "--"):
            return None
    tag = r"(?::([A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}))?(?:@sha256:[0-9a-f]{1,64})?"
    return re.fullmatch(rf"({programs})[a-z0-9_.-]{{0,60}}{tag}", word.rsplit("/", 1)[-1])


def _release(tag: str | None, programs: str) -> str | None:
    """The engine's release that an image tag names, or None: ``latest`` and tags made of dates name none."""
    if tag is None:
        return None
    inner = re.search(rf"(?:{programs})[_-]v?([0-9]{{1,3}}(?:\.[0-9]{{1,4}}){{1,3}})", tag)  # rocm6.4_vllm_0.9.1_...
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
_ARGUMENTS = ("entrypoint", "command", "args")


def _in_manifest(text: str) -> EngineWords | None:
    """The first container in YAML or JSON (Kubernetes, Compose) that starts an engine, or a bare list of arguments."""
    for container in _containers(_documents(text)):
        variables = dict(_variables(container))
        words = [word for key in _ARGUMENTS for word in _words_of(container.get(key))]
        in_image = ["docker", f"/{container.get('image')}"]
        of_image = _engine_call(in_image)
        is_plain = of_image is not None and not any(_SCRIPT.fullmatch(word) for word in words)
        call = _in_words([*in_image, *words], variables) if is_plain else None
        scripts = (_in_script(word, variables) for word in words[:50] if len(word.split()) > 1)
        call = call or _in_words(words, variables) or next(filter(None, scripts), None)
        if call is not None:
            return call if of_image is None else call._replace(version=call.version or of_image.version)
    return None


def _documents(text: str) -> list[Any]:
    """The documents of a manifest, or of a part of one. Raises ConfigError for a template and for what is neither YAML nor JSON."""
    if "{{" in text:
        raise ConfigError("command", MISSING, "a template, not a manifest", "render it first")
    try:
        import yaml
    except ImportError:
        remedy = "pip install 'startup-model[cli]', or paste the command line alone"
        raise ConfigError("command", MISSING, "PyYAML is needed to read a manifest", remedy) from None
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # all scalars are texts, nothing is constructed
    text = text.replace("\t", "    ").strip("\n").rstrip(" ,\n")
    first, _, rest = text.partition("\n")
    indent = min((len(line) - len(line.lstrip()) for line in rest.split("\n") if line.strip()), default=0)
    problem: Exception | None = None
    # As it is, copied without the blanks in front of its first line, or as members of a JSON object.
    for part in (text, f"{' ' * indent}{first.lstrip()}\n{rest}", f"{{{text}}}"):
        try:
            return list(yaml.load_all(part, Loader=loader))
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            problem = problem or error
    mark = getattr(problem, "problem_mark", None)
    where = f" (line {mark.line + 1})" if mark else ""
    raise ConfigError("command", MISSING, f"neither YAML nor JSON{where}", "paste the whole container")


def _containers(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Every part that may be one, in order; each once, however often aliases name it."""
    pending, seen = documents[::-1], set[int]()
    while pending:
        part = pending.pop()
        if not isinstance(part, dict | list) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            if not part.keys().isdisjoint((*_ARGUMENTS, "image")):
                yield part
            pending += list(part.values())[::-1]
        elif part and all(isinstance(item, str) for item in part):
            yield {"args": part}
        else:
            pending += part[::-1]


def _words_of(value: Any) -> list[str]:
    """The words of ``command`` or ``args``: a list, a line, or a script as one word."""
    if isinstance(value, str):
        line = value.strip()
        return [line] if "\n" in line else [word for words in _commands(line) for word in words]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _variables(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for given in (container.get("env"), container.get("environment")):
        items = given if isinstance(given, list) else list(given.items()) if isinstance(given, dict) else []
        for item in items:
            pair = (item.get("name"), item.get("value")) if isinstance(item, dict) else item
            text = pair if isinstance(pair, str) else "=".join(map(str, pair)) if isinstance(pair, tuple) else ""
            if match := _ASSIGNMENT.fullmatch(text):
                yield match.group(1), match.group(2)


# --- the fields ---------------------------------------------------------------------------------------------------------


def _fields(call: EngineWords) -> dict[str, Any]:
    engine = find(call.engine)
    shape = shape_of(engine)
    fields: dict[str, Any] = {"engine": engine.name}
    unused: dict[str, None] = {}
    for name, variable in engine.variables.items():
        if value := call.environment.get(name):
            fields |= read_fields(name, variable, value)
    for argument in call.arguments:
        found = argument_fields(engine.name, argument)
        names_model = not argument.flag and call.positional_model and "model" not in fields
        if found is not None:
            fields |= found
        elif names_model and engine.launch and not argument.values[0].startswith("-"):
            fields |= read_fields("model", engine.flags[engine.launch.model_flag], argument.values[0])
        else:
            unused[shape.listed(argument)] = None
    return fields | {
        "version": call.version,
        "environment": kept_variables(call.environment),
        "unused_flags": tuple(unused)[:_MAX_UNUSED],
    }


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how an engine starts, less those that are or hold a secret, and long ones."""
    known = {name: value for name, value in environment.items() if is_kept(name)}
    short = {name: without_credentials(value) for name, value in known.items() if len(value) <= _MAX_KEPT_VALUE}
    return dict(islice(redact_environment(short).items(), _MAX_KEPT))


def is_kept(name: str) -> bool:
    """Whether a variable changes how an engine starts: by its beginning, which is also the name of an engine's program."""
    own = (f"{engine.launch.program.upper()}_" for engine in built_in().values() if engine.launch)
    return name.startswith((*_KEPT_VARIABLES, *own))


def _filled_in(word: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        braced, default, plain = match.groups()
        given = environment.get(braced or plain, default)
        return match.group() if given is None or len(given) > _MAX_VARIABLE else given

    return _VARIABLE.sub(value, word) if "$" in word else word


def _plain_dashes(word: str) -> str:
    """Word processors put other dashes in front of a flag."""
    bare = word.lstrip("-" + _DASHES)
    front = word[: len(word) - len(bare)]
    return word if front.strip("-") == "" else f"--{bare}"


# --- the way back -------------------------------------------------------------------------------------------------------

# Fields that are no flag of their own.
_APART = frozenset({"engine", "version", "model", "environment", "unused_flags"})


def write_command(engine: str, fields: Mapping[str, Any]) -> str:
    """The command line with these fields, variables in front.

    fields: of an EngineConfig, those that are not at their default; ``version`` chooses the spelling and is not written. Fields that ``environment`` fills already
    need no flag. The result has been read back. Raises ConfigError for what no command line says.
    """
    found = find(engine)
    if found.launch is None:
        raise ConfigError("engine", engine, "no command line is known for it")
    variables = dict(fields.get("environment", {}))
    set_by_variables: dict[str, Any] = {}
    for name, value in variables.items():
        if not re.fullmatch(_NAME, name):
            raise ConfigError("engine.environment", name, "not the name of a variable", "omit it")
        if name in found.variables and value:
            set_by_variables |= read_fields(name, found.variables[name], value, f"engine.environment.{name}")
    needed = {key: value for key, value in fields.items() if key not in _APART and set_by_variables.get(key) != value}
    version = fields.get("version")
    written = write_fields(engine, needed, None if version is None else parse_version(version))
    for name, value in written.variables.items():
        if variables.setdefault(name, value) != value:
            raise conflict(f"engine.environment.{name}", variables[name], "the configuration", f"write {value!r}")
    flag = () if found.launch.positional_model else (found.launch.model_flag,)
    model = (*flag, fields["model"]) if fields.get("model") is not None else ()
    switches = known_switches(found)
    for unused in fields.get("unused_flags", ()):
        if unused not in switches:
            raise ConfigError("engine.unused_flags", unused, "its value was not kept", "give the command line itself")
    words = [*found.launch.words, *model, *written.words, *fields.get("unused_flags", ())]
    text = " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(words)])
    _check_reading(text, {**fields, "engine": engine, "environment": kept_variables(variables)}, written.silent)
    return text


def _check_reading(text: str, fields: Mapping[str, Any], silent: frozenset[str]) -> None:
    """Raises ConfigError when the command line is read as something else: for a model whose name looks like a flag, say."""
    remedy = "give the words of the command itself"
    try:
        found = read_command(text)
    except ConfigError as error:
        field = f"engine.{error.field}" if error.field in fields else error.field
        raise ConfigError(field, error.value, f"no command line says it ({error.problem})", remedy) from None
    for name in fields.keys() - silent - {"version"}:
        if found.get(name) != fields[name]:
            raise ConfigError(f"engine.{name}", fields[name], "no command line says it", remedy)
