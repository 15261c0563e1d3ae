"""Speed of reading run records, printed; no assertion looks at the clock."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from calibration.runs.published import published_runs
from calibration.runs.read import read_runs, runs_to_csv, write_runs

if TYPE_CHECKING:
    from pathlib import Path

    from calibration.runs.record import RunRecord


def _runs(rows: int) -> list[RunRecord]:
    """The published runs again and again, each time in another session."""
    published = published_runs()
    return [published[i % len(published)].replace(dataset=f"session {i}") for i in range(rows)]


@pytest.mark.parametrize("rows", [1_000, pytest.param(100_000, marks=pytest.mark.speed)])
def test_many_rows(rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _runs(rows)
    lines, table = tmp_path / "lines", tmp_path / "table"
    start = time.perf_counter()
    write_runs(runs, lines)
    written = time.perf_counter()
    read = read_runs(lines)
    done = time.perf_counter()
    assert len(read) == rows
    table.write_text(runs_to_csv(runs), encoding="utf-8")
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
