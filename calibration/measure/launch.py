"""From what a user would type to what is run: words without a shell, an address of ours, the variables of a run, and the flags of its variants."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calibration.logs.secrets import HIDDEN
from calibration.measure.checkpoint import checkpoint_folder
from calibration.measure.command import PORT, hiding, shown_words, take_apart
from calibration.measure.environment import A_PATH
from calibration.measure.server import LOOPBACK, free_port, is_free
from startup_model.engines.arguments import EngineArgument, argument_fields
from startup_model.engines.command import EngineWords, engine_words, read_words
from startup_model.engines.config import EngineConfig
from startup_model.engines.flags import Written, write_fields
from startup_model.errors import ConfigError
from startup_model.versions import parse_version

__all__ = ["Launch", "launch_of"]

_ADDRESS_FLAGS = (
    *("--host", "--port", "--uds", "--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"),
    *("--ssl-ciphers", "--ssl-keyfile-password", "--enable-ssl-refresh"),
)
"""Flags that say where and how a server listens: on the loopback interface, without encryption, is chosen here."""
_SETTINGS_FLAG = "--compilation-config"
_TOGETHER = frozenset({"optimization_level", "capture_sizes", "cudagraph_mode"})
"""Fields that stand in that flag; a second one replaces the first."""
_LEVEL = re.compile(r"[0-3]")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "kubectl", "ssh", "sudo", "srun"})
"""Programs that have somebody else start a server, on another host or as another user: nothing ends it for certain but they."""


class Launch(NamedTuple):
    """A command that starts a server, and what can be said of it before it runs. Made by ``launch_of``."""

    words: tuple[str, ...]
    """The program and its arguments, as given: address and flags of variants are added by ``command``."""
    environment: Mapping[str, str]
    """Variables that stood in front of the command, or in the configuration; the server has those of this process as well."""
    engine: EngineConfig | None
    """What the command says; None where it starts no engine that is known here by its own words (a script may), or its flags cannot be read."""
    port: int | None
    """The port that the command names; None: a free one is chosen."""

    @property
    def variables(self) -> dict[str, str]:
        """All variables that the server gets."""
        return dict(os.environ) | dict(self.environment)

    def command(self, port: int, *, model: str | None = None, eager: bool = False, dummy: bool = False) -> list[str]:
        """The words for one start.

        port: where the server will listen. model: name or folder in the place of the command's own. eager: with the engine's flag for eager execution; dummy: with weights
        that are made up. Raises ConfigError where the command takes no flags, or names no model to be replaced.
        """
        changes = {**({"enforce_eager": True} if eager else {}), **({"load_format": "dummy"} if dummy else {})}
        changed = self.changed(**changes)
        words = list(changed.words) if model is None else changed._with_model(model)
        if _is_open(words):
            return [word.replace(PORT, str(port)) for word in words]
        parts = engine_words(words)
        if parts is not None:
            words = _without(words, [(item.begin, item.end) for flag in _ADDRESS_FLAGS for item in parts.of(flag)])
        return _with_flags(words, ["--host", LOOPBACK, "--port", str(port)])

    def changed(self, **fields: Any) -> Launch:
        """The same command with other values of some fields of its EngineConfig: flags are added or taken out, variables are set.

        Raises ConfigError where the command takes no flags, and for what no flag or variable of the engine says.
        """
        if not fields:
            return self
        parts = self._parts()
        assert self.engine is not None  # noqa: S101  _parts has looked
        engine = self.engine.replace(**fields)
        wanted = {name: value for name, value in fields.items() if getattr(self.engine, name) != value}
        settings = parts.of(_SETTINGS_FLAG)
        for name in sorted(wanted.keys() & _TOGETHER):
            if not all(_LEVEL.fullmatch(item.values[0]) for item in settings):
                raise ConfigError(
                    f"engine.{name}", wanted[name], f"{_SETTINGS_FLAG} holds more, a second one would replace it", "change it there"
                )  # fmt: skip
        written = _written(engine, wanted)
        places = [place for item in parts.arguments if (place := _place_of(parts.engine, item, wanted)) is not None]
        words = _with_flags(_without(self.words, places), written.words)
        found = _launch(words, {**self.environment, **written.variables})
        for name in sorted(wanted.keys() - written.silent):
            if found.engine is None or getattr(found.engine, name) != wanted[name]:
                raise ConfigError(
                    f"engine.{name}", wanted[name], "it cannot be set in this command", "give one that says it"
                )
        environment = engine.environment if found.engine is None else found.engine.environment
        return found._replace(engine=engine.replace(environment=environment))

    def checkpoint(self, model: str | None = None) -> Path | None:
        """The folder that the server reads the weights from; None when it is not on this host. model: in the place of the command's own.

        The server's variables and its flags ``--download-dir`` and ``--revision`` say where it is; the revision is that of the command's own model.
        """
        own = self.engine.model if self.engine is not None else None
        parts = engine_words(self.words)
        folder, revision = (
            (found[-1].values[0] if parts is not None and (found := parts.of(flag)) else None)
            for flag in ("--download-dir", "--revision")
        )
        name = model or own
        return checkpoint_folder(name, self.variables, download_dir=folder, revision=revision if name == own else None)

    def choose_port(self) -> int:
        """The port that the command names, when it is free, else a free one. Raises ConfigError for a taken one."""
        if self.port is None:
            return free_port()
        if not is_free(self.port):
            raise ConfigError(
                "--port", self.port, "another program listens there", "leave it out: a free port is chosen"
            )
        return self.port

    @property
    def out_of_reach(self) -> str | None:
        """The program that has somebody else start the server, which may then outlive this process; None where the server is started here."""
        program = Path(self.words[0]).name
        return program if program in _ELSEWHERE else None

    def label(self) -> str:
        """The command as it may be shown: without values of secrets."""
        return hiding(self.words, self.environment)(shown_words(self.words))

    def _parts(self) -> EngineWords:
        parts = engine_words(self.words) if self.engine is not None else None
        if parts is None:
            raise ConfigError(
                "command", self.label(), "no flags can be added to it", "start vllm or sglang by its own words"
            )
        return parts

    def _with_model(self, model: str) -> list[str]:
        """The words for another model: it takes the place of the first word that names one."""
        first, *others = self._parts().models() or (None,)
        if first is None:
            raise ConfigError(
                "--model", model, "the command has no model to put it in the place of", "name one in the command"
            )
        flag, sign, _ = self.words[first.begin].partition("=")
        named = [model] if not first.flag else [f"{flag}={model}"] if sign else [flag, model]
        words = _without(self.words, [(item.begin, item.end) for item in others])
        return [*words[: first.begin], *named, *words[first.end :]]


def launch_of(command: str | Sequence[str | os.PathLike[str]] | EngineConfig) -> Launch:
    """What a command line, its words, or a configuration asks to be run. Variables in front of the command are read; no shell is involved.

    An EngineConfig is started as ``EngineConfig.to_command`` writes it; its version says what is expected, the installed one is started. Raises ConfigError for what is no
    command, is empty or unbalanced, says what no server does, or starts an unknown program without ``{port}`` among its words.
    """
    if isinstance(command, EngineConfig):
        return _configured(command)
    variables, words = take_apart(command)
    if Path(words[0]).name in _SHELLS | _ELSEWHERE and not _is_open(words):
        raise ConfigError(
            "command", shown_words(words), f"{words[0]} starts the server, its flags and its end are out of reach",
            f"give the server's own words, or write {PORT} where its port belongs",
        )  # fmt: skip
    return _launch(words, variables)


def _configured(engine: EngineConfig) -> Launch:
    if engine.model is None:
        raise ConfigError("engine.model", "missing", "a server serves a model", "give EngineConfig(model=...)")
    for name, value in engine.environment.items():
        if A_PATH in value or HIDDEN in value:
            raise ConfigError(f"engine.environment.{name}", value, "a record does not keep it", "give its value")
    launch = launch_of(engine.to_command())
    assert launch.engine is not None  # noqa: S101  to_command has read it back
    return launch._replace(engine=launch.engine.replace(version=engine.version))


def _launch(words: Sequence[str], variables: Mapping[str, str]) -> Launch:
    is_open = _is_open(words)
    try:
        fields = read_words(words, variables) if engine_words(words) is not None else None
        engine = None if fields is None else EngineConfig(**fields)
    except ConfigError:
        if not is_open:
            raise
        engine = None  # a script of its own, with variables of its own
    if engine is None and not is_open:
        raise ConfigError(
            "command", shown_words(words), "it starts no engine that is known here",
            f"write {PORT} where the server's port belongs, or start vllm or sglang",
        )  # fmt: skip
    return Launch(tuple(words), dict(variables), engine, None if is_open else _port_of(words))


def _port_of(words: Sequence[str]) -> int | None:
    parts = engine_words(words)
    given = parts.of("--port") if parts is not None else ()
    if not given:
        return None
    value = given[-1].values[0]
    if not (value.isascii() and value.isdigit() and len(value) <= 5 and 0 < int(value) < 65536):
        raise ConfigError("--port", value, "no port", "leave it out: a free port is chosen")
    return int(value)


def _is_open(words: Sequence[str]) -> bool:
    """Whether the command says where its port belongs."""
    return any(PORT in word for word in words)


def _written(engine: EngineConfig, fields: Mapping[str, Any]) -> Written:
    """Flags and variables for those of the fields that are not what the engine does by itself."""
    defaults = EngineConfig(engine=engine.engine)
    version = None if engine.version is None else parse_version(engine.version)
    return write_fields(
        engine.engine, {name: value for name, value in fields.items() if value != getattr(defaults, name)}, version
    )


def _place_of(engine: str, argument: EngineArgument, fields: Mapping[str, Any]) -> tuple[int, int] | None:
    """Where an argument stands that sets nothing but fields that are to change."""
    found = argument_fields(engine, argument)
    return (argument.begin, argument.end) if found and found.keys() <= fields.keys() else None


def _without(words: Sequence[str], places: Sequence[tuple[int, int]]) -> list[str]:
    """The words less those from a place to another."""
    gone = {index for begin, end in places for index in range(begin, end)}
    return [word for index, word in enumerate(words) if index not in gone]


def _with_flags(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words with flags at their end; before ``--``, behind which nothing is a flag."""
    parts = engine_words(words)
    begin = parts.position if parts is not None else 0
    end = words.index("--", begin) if "--" in words[begin:] else len(words)
    return [*words[:end], *flags, *words[end:]]
