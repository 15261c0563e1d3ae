"""The README keeps its word."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("startup-model ")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, one after the other: files that they write do not belong to the project."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def test_the_python_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102  our own text


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_run(line: str, folder: Path) -> None:
    for command in re.split(r""";(?=(?:[^"]*"[^"]*")*[^"]*$)""", line):  # not within quotes
        arguments = shlex.split(command)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "startup_model", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_first_two_commands_set_up_what_they_need() -> None:
    first, second = re.findall(r"```sh\n(python3 -m venv .*?)\n```", TEXT)[:2]
    assert "pip install -q '.[cli]'" in first
    assert first.endswith("startup-model predict --model examples/Llama-2-7b-hf --hardware h100-nvl")
    assert "pip install -q -e '.[test]'" in second
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_table_that_is_shown_is_the_one_that_comes_out() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "startup_model", "predict", "--model", "examples/Llama-2-7b-hf", "--hardware", "h100-nvl"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    shown = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    printed = {line.rstrip() for line in done.stdout.splitlines()}
    for line in shown.group(1).splitlines():
        assert line in printed or "..." in line, line
