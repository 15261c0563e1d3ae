"""Speed of reading run records, printed; no assertion looks at the clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from calibration.runs.published import published_runs
from calibration.runs.read import read_runs, runs_to_csv, write_runs

if TYPE_CHECKING:
    from pathlib import Path

    from calibration.runs.record import RunRecord

ROWS = 100_000


def _runs() -> list[RunRecord]:
    """The published runs again and again, each time in another session."""
    published = published_runs()
    return [published[i % len(published)].replace(dataset=f"session {i}") for i in range(ROWS)]


@pytest.mark.benchmark(group="read")
def test_a_hundred_thousand_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = _runs()
    lines, table = tmp_path / "lines", tmp_path / "table"
    start = time.perf_counter()
    write_runs(runs, lines)
    written = time.perf_counter()
    read = read_runs(lines)
    done = time.perf_counter()
    assert len(read) == ROWS
    table.write_text(runs_to_csv(runs), encoding="utf-8")
    table_start = time.perf_counter()
    assert len(read_runs(table)) == ROWS
    table_done = time.perf_counter()
    with capsys.disabled():
        print(
            f"\nJSON lines: {ROWS / (done - written):,.0f} rows/s read ({done - written:.1f} s for {ROWS:,}; target 20 s), "
            f"{ROWS / (written - start):,.0f} rows/s written; CSV: {ROWS / (table_done - table_start):,.0f} rows/s read"
        )
