"""The README keeps its word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from command import run

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("startup-model ")
]


def test_the_python_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102  our own text


def test_the_commands_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own: files that they write are read by later ones, and do not belong to the project."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    assert COMMANDS
    for line in COMMANDS:
        for command in re.split(r""";(?=(?:[^"]*"[^"]*")*[^"]*$)""", line):  # not within quotes
            done = run(*shlex.split(command)[1:])
            assert done.status == 0, f"{command}: {done.err}"


def test_the_first_two_commands_set_up_what_they_need() -> None:
    first, second = re.findall(r"```sh\n(python3 -m venv .*?)\n```", TEXT)[:2]
    assert "pip install -q '.[cli]'" in first
    assert first.endswith("startup-model predict --model examples/Llama-2-7b-hf --hardware h100-nvl")
    assert "pip install -q -e '.[test]'" in second
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_table_that_is_shown_is_the_one_that_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = run("predict", "--model", "examples/Llama-2-7b-hf", "--hardware", "h100-nvl")
    shown = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    printed = {line.rstrip() for line in done.out.splitlines()}
    for line in shown.group(1).splitlines():
        assert line in printed or "..." in line, line
