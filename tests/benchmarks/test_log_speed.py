"""Speed and memory of the log parser, printed; no assertion looks at the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from log_samples import SAMPLES

from calibration import StartupLogParser

START = SAMPLES["vllm 0.25, model and drafter"].text.encode()
SERVING = (
    b"(APIServer pid=2) INFO 08-01 21:24:47 [loggers.py:123] Engine 000: Avg prompt throughput: 123.4 tokens/s, Avg generation throughput: 456.7 tokens/s, "
    b"Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 45.2%, Prefix cache hit rate: 12.3%\n"
) + b'(APIServer pid=2) INFO:     10.1.2.3:37402 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 5
MEBIBYTE = 2**20
STAMP = re.compile(rb"INFO (\d\d-\d\d \d\d:\d\d:\d\d) \[")


def repeated(piece: bytes, size: int) -> Iterator[bytes]:
    block = piece * (MEBIBYTE // len(piece) + 1)
    for _ in range(size // len(block) + 1):
        yield block


LOADS = {
    "a start and a gigabyte of serving": (START, SERVING, 2**30),
    "serving alone": (b"", SERVING, 64 * MEBIBYTE),
    "the log of another program": (
        b"",
        b"10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] GET /index.html 200 612\n",
        64 * MEBIBYTE,
    ),
    "one line": (b"", b"x" * MEBIBYTE, 128 * MEBIBYTE),
    "nothing but starts": (b"", START, 8 * MEBIBYTE),
}


@pytest.mark.parametrize("share", [0.0, pytest.param(1.0, marks=pytest.mark.speed)], ids=["a megabyte", "whole"])
@pytest.mark.parametrize("name", LOADS)
def test_speed_of_reading(name: str, share: float, capsys: pytest.CaptureFixture[str]) -> None:
    resource = pytest.importorskip("resource")
    head, piece, whole = LOADS[name]
    size = int(share * whole)
    parser = StartupLogParser(events=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    parser.feed(head)
    for chunk in repeated(piece, size):
        parser.feed(chunk)
    starts = parser.finish()
    seconds = time.process_time() - begin
    begin = time.process_time()
    for chunk in repeated(piece, size):
        chunk.splitlines()
    split = time.process_time() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    with capsys.disabled():
        print(
            f"\n{name}: {seconds / split:.1f} times as long as splitting into lines, {grown:.0f} MiB more, {len(starts)} start(s)"
        )
    assert grown < 256


@pytest.mark.parametrize("count", [200, pytest.param(20_000, marks=pytest.mark.speed)])
def test_speed_of_reading_line_by_line(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    parser = StartupLogParser()
    lines = (START + SERVING * count).splitlines(keepends=True)
    begin = time.process_time()
    for line in lines:
        parser.feed(line)
    seconds = time.process_time() - begin
    begin = time.process_time()
    for line in lines:
        STAMP.search(line)
    searched = time.process_time() - begin
    with capsys.disabled():
        print(f"\nserving, a line at a time: {seconds / searched:.1f} times as long as one regular expression on each")
    assert len(parser.finish()) == 1
