"""The notebooks run from top to bottom in a clone, print what they were saved with, and end with a decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SLOW = ("validation_report",)  # nested cross-validation


def printed(notebook: Any) -> list[str]:
    """What the cells print, cell by cell; pictures and warnings left out."""
    return [
        "".join(out["text"] for out in cell.outputs if out.output_type == "stream" and out.name == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_there_are_four() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "autoscaler_budget",
        "calibrate_from_logs",
        "procurement_what_if",
        "validation_report",
    ]


@pytest.mark.filterwarnings("ignore")  # those of the notebook machinery
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.speed] if path.stem in SLOW else [], id=path.stem) for path in NOTEBOOKS],
)
def test_runs_and_says_what_it_says(path: Path) -> None:
    saved = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert printed(fresh) == printed(saved)
    pictures = [out for cell in fresh.cells for out in cell.get("outputs", ()) if "image/png" in out.get("data", {})]
    assert pictures


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_begins_with_a_question_and_ends_with_a_decision(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert cells[0].cell_type == "markdown"
    assert "?" in cells[0].source
    headings = [
        line
        for cell in cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("## ")
    ]
    assert headings[-1] == "## Decision"
    assert printed(nbformat.v4.new_notebook(cells=cells))[-1].strip()
    assert all(cell.outputs for cell in cells if cell.cell_type == "code" and "print(" in cell.source)
    assert not any(out.output_type == "error" for cell in cells for out in cell.get("outputs", ()))
