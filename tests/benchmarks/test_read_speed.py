"""Speed of reading run records, printed; no assertion looks at the clock."""

from __future__ import annotations

import csv
import json
import time
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from calibration.runs.published import published_runs
from calibration.runs.read import read_runs
from calibration.runs.write import write_runs

if TYPE_CHECKING:
    from pathlib import Path

    from calibration.runs.record import RunRecord


def _runs(rows: int) -> list[RunRecord]:
    """The published runs again and again, each time in another session."""
    published = published_runs()
    return [published[i % len(published)].replace(dataset=f"session {i}") for i in range(rows)]


def _table(rows: int) -> str:
    """The same as a table."""
    published = files("calibration").joinpath("data/published_runs.csv").read_text(encoding="utf-8")
    cells = list(csv.DictReader(published.splitlines()))
    text = StringIO()
    writer = csv.DictWriter(text, cells[0])
    writer.writeheader()
    writer.writerows(cells[i % len(cells)] | {"dataset": f"session {i}"} for i in range(rows))
    return text.getvalue()


@pytest.mark.parametrize("rows", [1_000, pytest.param(20_000, marks=pytest.mark.speed)])
def test_many_rows(rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _runs(rows)
    lines, table = tmp_path / "lines", tmp_path / "table"
    start = time.perf_counter()
    write_runs(runs, lines)
    written = time.perf_counter()
    read = read_runs(lines)
    done = time.perf_counter()
    assert len(read) == rows
    table.write_text(_table(rows), encoding="utf-8")
    table_start = time.perf_counter()
    assert len(read_runs(table)) == rows
    table_done = time.perf_counter()
    parsed = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    plain = time.perf_counter() - table_done
    assert len(parsed) == rows
    with capsys.disabled():
        print(
            f"\n{rows:,} runs, times as long as json.loads of their lines: read {(done - written) / plain:.1f}, "
            f"written {(written - start) / plain:.1f}, read from CSV {(table_done - table_start) / plain:.1f}"
        )
