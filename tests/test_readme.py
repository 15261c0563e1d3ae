"""README and pages keep their word: every command and every block of Python in them runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from command import run

from calibration import calibrate, read_runs
from calibration.fit.reference import DONOR, profile_of, shared_by_all
from calibration.runs.published import published_runs
from startup_model import Profile, predict

ROOT = Path(__file__).parent.parent
PAGES = {
    path.name: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
TEXT = PAGES["README.md"]
LEFT_OUT, MEASURED_S = "meta-llama/Llama-2-7b-hf", 24.5486
"""The model of the front page, and the wall time of its start on the L40S host (arXiv 2606.07362, mean of five)."""


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if "```python" in text])
def test_python_blocks_run(page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    for block in re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL):
        exec(compile(block, page, "exec"), {"__name__": "page"})  # noqa: S102  our own text


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if "```sh\nstartup-model" in text])
def test_commands_run_one_after_the_other(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own: files that they write are read by later ones, and do not belong to the project."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("startup-model ")]
    assert commands
    for line in commands:
        for command in re.split(r""";(?=(?:[^"]*"[^"]*")*[^"]*$)""", line):  # not within quotes
            done = run(*shlex.split(command)[1:])
            assert done.status == 0, f"{command}: {done.err}"


def test_the_first_two_commands_set_up_what_they_need() -> None:
    first, second = re.findall(r"```sh\n(python3 -m venv .*?)\n```", TEXT)[:2]
    assert "pip install -q '.[cli]'" in first
    assert "pip install -q -e '.[test]'" in second
    assert second in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert len(TEXT) <= 8000


def front_page_command() -> list[str]:
    first = re.findall(r"```sh\n(python3 -m venv .*?)\n```", TEXT)[0]
    return shlex.split(first.split("startup-model ")[1])


def test_the_table_that_is_shown_is_the_one_that_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = run(*front_page_command())
    shown = re.search(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    printed = {line.rstrip() for line in done.out.splitlines()}
    for line in shown.group(1).splitlines():
        assert line in printed or "..." in line, line


def test_the_front_page_shows_a_model_that_was_left_out_and_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile is made of one start of another model; its prior has never seen this one, on any host."""
    runs = tuple(run for run in published_runs() if run.model.name != LEFT_OUT)
    known = Profile.reference(DONOR)
    shared = shared_by_all(runs)
    shared.fields.update(misfit=known.misfit, one_run_spread=known.one_run_spread)
    fitted = calibrate(
        read_runs(ROOT / "examples/runs/l40s.yaml"), profile_of(DONOR, shared), name="l40s-one-run", held_out=False
    ).profile
    shipped = Profile.load(ROOT / "examples/hosts/l40s.json")
    assert {run.model.name for run in read_runs(ROOT / "examples/runs/l40s.yaml")} == {"meta-llama/Llama-3.2-3B"}
    monkeypatch.chdir(ROOT)
    node = {"page_cache": "hot", "compile_cache": "warm"}
    totals = [predict("examples/Llama-2-7b-hf", "l40s", node, profile=profile).total_s for profile in (fitted, shipped)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)
    assert totals[1] / MEASURED_S - 1 == pytest.approx(0.005, abs=0.001)
    assert "0.5 % above it" in TEXT


def test_the_picture_of_the_front_page_is_the_one_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert run(*front_page_command(), "--plot", str(tmp_path / "l40s.svg")).status == 0
    texts = [
        set(re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8")))
        for path in (tmp_path / "l40s.svg", ROOT / "docs/images/l40s.svg")
    ]
    assert texts[0] == texts[1]


def test_pages_are_made_from_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every marker of a page is filled, and every phase has its formula on a page."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import generate

    made = {name: generate.on_page_markdown(text) for name, text in PAGES.items()}
    assert not any("{{" in text.replace("{{capture", "") for text in made.values())
    for name in ("weight_load", "graph_memory_estimate"):
        assert name in made["formulas.md"] or "estimate_captures ×" in made["formulas.md"]
    assert "| `held_out` |" in made["files.md"]
    json.dumps(made)
