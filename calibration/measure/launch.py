"""From what a user would type to what is run: words without a shell, an address of ours, the variables of a run, and the flags of its variants."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from calibration.measure.server import LOOPBACK, free_port, is_free
from calibration.measure.states import checkpoint_folder
from startup_model.engines import all_engines, find
from startup_model.engines.arguments import EngineArgument, argument_fields
from startup_model.engines.command import EngineWords, engine_words, is_kept, read_words
from startup_model.engines.config import EngineConfig
from startup_model.engines.flags import write_fields
from startup_model.errors import ConfigError, StartupModelError, missing, one_line, out_of_range, wrong_type
from startup_model.files import is_file, is_folder
from startup_model.secrets import HIDDEN, redact_command, redact_environment, redact_words, redactor
from startup_model.versions import parse_version

PORT = "{port}"  # stands in the command of an unknown program where its port belongs
A_PATH = "(a path)"  # stands in a record for a value that names a place on the machine
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
# Programs that have somebody else start a server, on another host or as another user: nothing ends it for certain but they.
_EXTERNAL = frozenset({"docker", "podman", "nerdctl", "kubectl", "ssh", "sudo", "srun"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_MAX_COMMAND = 2**17  # characters; Linux takes no longer word
_MAX_SHOWN, _MAX_VALUE = 400, 200


class Launch(NamedTuple):
    """A command that starts a server, and what can be said of it before it runs. Made by ``launch_of``."""

    words: tuple[str, ...]  # the program and its arguments, as given
    environment: Mapping[str, str]  # that stood in front of them; the server has the variables of this process as well
    engine: EngineConfig | None  # None where it starts none that is known here by its own words (a script may)
    port: int | None  # that the command names; None: a free one is chosen

    @property
    def variables(self) -> dict[str, str]:
        """All variables that the server gets."""
        return dict(os.environ) | dict(self.environment)

    def command(self, port: int, *, model: str | None = None) -> list[str]:
        """The words for one start, where the server listens on ``port``. model: name or folder in the place of the command's own.

        Raises ConfigError where the command takes no flags, or names no model to be replaced.
        """
        words = list(self.words) if model is None else self._with_model(model)
        if _is_open(words):
            return [word.replace(PORT, str(port)) for word in words]
        if (parts := engine_words(words)) is not None:
            flags = find(parts.engine).http.address_flags
            words = _without(words, (item for flag in flags for item in parts.of(flag)))
        return _with_flags(words, ["--host", LOOPBACK, "--port", str(port)])

    def changed(self, **fields: Any) -> Launch:
        """The same command with other values of some fields of its EngineConfig: flags are added or taken out, variables are set.

        Raises ConfigError where the command takes no flags, and for what no flag or variable of the engine says.
        """
        if not fields:
            return self
        parts, own = self._parts()
        engine = own.replace(**fields)
        wanted = {name: value for name, value in fields.items() if getattr(own, name) != value}
        joint = find(parts.engine).joint_flag
        for name in sorted(wanted.keys() & joint.fields):
            if not all(re.fullmatch(joint.alone, item.values[0]) for item in parts.of(joint.flag)):
                problem = f"{joint.flag} holds more, a second one would replace it"
                raise ConfigError(f"engine.{name}", wanted[name], problem, "change it there")
        defaults = EngineConfig(engine=engine.engine)
        needed = {name: value for name, value in wanted.items() if value != getattr(defaults, name)}
        version = None if engine.version is None else parse_version(engine.version)
        written = write_fields(engine.engine, needed, version)
        said = ((item, argument_fields(parts.engine, item)) for item in parts.arguments)
        gone = (item for item, fills in said if fills and fills.keys() <= wanted.keys())
        words = _with_flags(_without(self.words, gone), written.words)
        found = _launch(words, {**self.environment, **written.variables})
        for name in sorted(wanted.keys() - written.silent):
            if found.engine is None or getattr(found.engine, name) != wanted[name]:
                problem = "it cannot be set in this command"
                raise ConfigError(f"engine.{name}", wanted[name], problem, "give one that says it")
        environment = engine.environment if found.engine is None else found.engine.environment
        return found._replace(engine=engine.replace(environment=environment))

    def checkpoint(self, model: str | None = None) -> Path | None:
        """The folder that the server reads the weights from; None when it is not on this host. model: in the place of the command's own.

        The server's variables and its flags ``--download-dir`` and ``--revision`` say where it is; the revision is that of the command's own model.
        """
        own = self.engine.model if self.engine is not None else None
        parts, name = engine_words(self.words), model or own
        folder, revision = (
            next((item.values[0] for item in reversed(parts.of(flag) if parts is not None else ())), None)
            for flag in ("--download-dir", "--revision")
        )
        return checkpoint_folder(name, self.variables, download_dir=folder, revision=revision if name == own else None)

    def choose_port(self) -> int:
        """The port that the command names, when it is free, else a free one. Raises ConfigError for a taken one."""
        if self.port is None:
            return free_port()
        if not is_free(self.port):
            remedy = "leave it out: a free port is chosen"
            raise ConfigError("--port", self.port, "another program listens there", remedy)
        return self.port

    @property
    def external_launcher(self) -> str | None:
        """The program that has somebody else start the server, which may then outlive this process; None where the server is started here."""
        program = Path(self.words[0]).name
        return program if program in _EXTERNAL else None

    def redacted(self) -> str:
        """The command as it may be shown: without values of secrets."""
        return redactor(self.words, self.environment)(shown_words(self.words))

    def _parts(self) -> tuple[EngineWords, EngineConfig]:
        parts = engine_words(self.words) if self.engine is not None else None
        if parts is None or self.engine is None:
            remedy = f"start {engine_names()} by its own words"
            raise ConfigError("command", self.redacted(), "no flags can be added to it", remedy)
        return parts, self.engine

    def _with_model(self, model: str) -> list[str]:
        first, *others = self._parts()[0].models() or (None,)
        if first is None:
            problem = "the command has no model to put it in the place of"
            raise ConfigError("--model", model, problem, "name one in the command")
        flag, sign, _ = self.words[first.begin].partition("=")
        named = [model] if not first.flag else [f"{flag}={model}"] if sign else [flag, model]
        words = _without(self.words, others)
        return [*words[: first.begin], *named, *words[first.end :]]


def launch_of(command: str | Sequence[str | os.PathLike[str]] | EngineConfig) -> Launch:
    """What a command line, its words, or a configuration asks to be run. Variables in front of the command are read; no shell is involved.

    An EngineConfig is started as ``EngineConfig.to_command`` writes it; its version says what is expected, the installed one is started. Raises ConfigError for what is no
    command, is empty or unbalanced, says what no server does, or starts an unknown program without ``{port}`` among its words.
    """
    if isinstance(command, EngineConfig):
        if command.model is None:
            raise missing("engine.model", "a server serves a model", "give EngineConfig(model=...)")
        for name, value in command.environment.items():
            if A_PATH in value or HIDDEN in value:
                raise ConfigError(f"engine.environment.{name}", value, "a record does not keep it", "give its value")
        launch = launch_of(command.to_command())
        assert launch.engine is not None  # noqa: S101  to_command has read it back
        return launch._replace(engine=launch.engine.replace(version=command.version))
    variables, words = split_command(command)
    if Path(words[0]).name in _SHELLS | _EXTERNAL and not _is_open(words):
        problem = f"{words[0]} starts the server: flags cannot be added and the server cannot be stopped"
        remedy = f"give the server's own words, or write {PORT} where its port belongs"
        raise ConfigError("command", shown_words(words), problem, remedy)
    return _launch(words, variables)


def split_command(command: object) -> tuple[dict[str, str], list[str]]:
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
    remedy = "give a text such as 'vllm serve MODEL', its words, or an EngineConfig"
    if not isinstance(command, Sequence) or isinstance(command, bytes | bytearray | memoryview):
        raise wrong_type("command", command, "a command", remedy)
    given = [command] if isinstance(command, str) else islice(command, _MAX_COMMAND + 1)
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in given]
    for word in words:
        if not isinstance(word, str):
            raise wrong_type("command", word, "made of words (texts)", remedy)
    if sum(len(word) + 1 for word in words) > _MAX_COMMAND:
        bound = f"at most {_MAX_COMMAND} characters"
        raise out_of_range("command", redact_command(" ".join(words[:20])), bound, "give the server's command alone")
    if not isinstance(command, str):
        return words
    try:
        return shlex.split(re.sub(r"\\\r?\n", " ", command))
    except ValueError as error:
        problem = f"it cannot be split into words ({error})"
        raise ConfigError("command", redact_command(command), problem, "check its quotes") from None


def _launch(words: Sequence[str], variables: Mapping[str, str]) -> Launch:
    is_open, parts, engine = _is_open(words), None, None
    try:
        parts = engine_words(words)
        fields = read_words(words, variables) if parts is not None else None
        engine = None if fields is None else EngineConfig(**fields)
    except ConfigError:
        if not is_open:  # else a script of its own, with variables of its own
            raise
    if is_open:
        return Launch(tuple(words), dict(variables), engine, None)
    if engine is None or parts is None:
        remedy = f"write {PORT} where the server's port belongs, or start {engine_names()}"
        raise ConfigError("command", shown_words(words), "it starts no engine that is known here", remedy)
    port = next((item.values[0] for item in reversed(parts.of("--port"))), None)
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65536):
        raise out_of_range("--port", port, "a number from 1 to 65535", "leave it out: a free port is chosen")
    return Launch(tuple(words), dict(variables), engine, None if port is None else int(port))


def _is_open(words: Sequence[str]) -> bool:
    return any(PORT in word for word in words)


def _without(words: Sequence[str], arguments: Iterable[EngineArgument]) -> list[str]:
    gone = {index for item in arguments for index in range(item.begin, item.end)}
    return [word for index, word in enumerate(words) if index not in gone]


def _with_flags(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words with flags at their end; before ``--``, behind which nothing is a flag."""
    parts = engine_words(words)
    begin = parts.position if parts is not None else 0
    end = words.index("--", begin) if "--" in words[begin:] else len(words)
    return [*words[:end], *flags, *words[end:]]


def engine_names() -> str:
    """The engines that can be started by flags, for messages."""
    return " or ".join(name for name, engine in all_engines().items() if engine.is_predicted)


def shown_words(words: Iterable[str]) -> str:
    """A command as it may be shown: one line, ``***`` in the place of keys, tokens and passwords."""
    return one_line(shlex.join(redact_words(list(words))).replace(f"'{HIDDEN}'", HIDDEN), _MAX_SHOWN)


def api_key(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The key that a server will ask for: of its flag (the first of several values), else of the variable that the engine reads, in the command or in the environment."""
    parts = None
    with suppress(StartupModelError):
        parts = engine_words(words)
    engines = [find(parts.engine)] if parts is not None else list(all_engines().values())
    for flag in dict.fromkeys(engine.http.key_flag for engine in engines):
        if parts is not None and (given := parts.of(flag)):
            return given[-1].values[0]
        for word, following in pairwise([*words, None]):
            name, sign, value = (word or "").partition("=")
            if name.replace("_", "-") == flag and (sign or following is not None):
                return value if sign else following
    keys = (engine.deploy.secret_variables.get(engine.http.key_flag) for engine in engines if engine.deploy)
    for variable in dict.fromkeys(filter(None, keys)):
        for word in words:  # what a container runtime sets
            if found := re.fullmatch(rf"(?:--env=|-e=?)?{variable}=(.+)", word):
                return found.group(1)
        if variable in environment:
            return environment[variable]
    return None


def environment_that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how an engine starts, for the record: without those that are or hold a secret, and without paths of this machine."""
    return {
        name: A_PATH if os.sep in value else value
        for name, value in sorted(redact_environment(environment).items())
        if is_kept(name) and len(value) <= _MAX_VALUE and value.isprintable()
    }


def program_of(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The program of a command, found on the PATH of ``environment`` (None: of this process). Raises ConfigError when it is not there."""
    with suppress(OSError, ValueError):
        if found := shutil.which(words[0], path=None if environment is None else environment.get("PATH")):
            return found
    place = Path(words[0])
    problem = "it is a folder" if is_folder(place) else "it cannot be executed" if is_file(place) else "no such program"
    raise ConfigError("command", words[0], problem, "give its path, or install it")


_ANSWER_S = 20.0
_MAX_VERSION = 100
_HEAD = 4096
_COMMON_PACKAGES = ("torch", "triton", "transformers")
_PYTHON = re.compile(r"python[0-9.]{0,10}")
_INTERPRETER = re.compile(  # of a script: on its first line, or on the second where the path is too long for it
    rb"(?:\A#!\s{0,4}|^'''exec'\s+\"?)(/[^\s\"]{1,1000})(?:[ \t]+(python[0-9.]{0,10}))?", re.MULTILINE
)


def server_versions(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of Python, the engine, torch and what torch was built for (``cuda``, ``hip``), by name, for the record of a run.

    words: the server's command; environment: its variables. The server's own Python is asked, and nothing of the engine is imported. Empty where the command names no Python
    and no script of one (a container, say). Nothing is raised; it takes at most 20 seconds, and a program is asked once.
    """
    python = _python_of(words, environment)
    variables = tuple((name, environment[name]) for name in ("PYTHONHOME", "PYTHONPATH") if environment.get(name))
    return {} if python is None else dict(_versions(python, variables))


def _python_of(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The Python that runs the server: the one before ``-m``, or that of the engine's script."""
    path = environment.get("PATH")
    for word in words:
        name = word.rsplit("/", 1)[-1]
        is_script = name in all_engines()
        if is_script or _PYTHON.fullmatch(name):
            with suppress(OSError, ValueError):
                found = shutil.which(word, path=path)
                return shutil.which(_interpreter(Path(found)), path=path) if is_script and found else found
            return None
    return None


def _interpreter(script: Path) -> str:
    """Path or name of the Python that a script says it is run by; empty for another program."""
    with script.open("rb") as file:
        head = file.read(_HEAD)
    for match in _INTERPRETER.finditer(head):
        first, second = (os.fsdecode(part or b"") for part in match.groups())
        name = second if first.endswith("/env") else first
        if _PYTHON.fullmatch(name.rsplit("/", 1)[-1]):
            return name
    return ""


@lru_cache(maxsize=16)
def _versions(python: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    script = Path(__file__).with_name("versions_script.py").read_text(encoding="utf-8")
    packages = [name for engine in all_engines().values() for name in engine.packages]
    names = dict.fromkeys([*packages, *_COMMON_PACKAGES])
    try:
        done = subprocess.run(  # noqa: S603  the server's own Python, fixed words
            [python, "-c", script, *names], capture_output=True, timeout=_ANSWER_S, check=False, stdin=subprocess.DEVNULL, env={**os.environ, **dict(variables)}
        )  # fmt: skip
        found = dict(json.loads(done.stdout[-_HEAD:].splitlines()[-1]))
    except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError):
        return ()
    wanted = {"python", "cuda", "hip", *names}
    return tuple((name, one_line(str(value), _MAX_VERSION)) for name, value in found.items() if name in wanted)
