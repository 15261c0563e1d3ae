"""A long fuzz of the log parser: ``python tests/benchmarks/fuzz_logs.py [LINES] [SEED]``, a million mutated lines by default.

Every line of the samples is mutated and fed among others; nothing may be raised, and no line may take long. Prints the slowest line and the lines a second.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from log_samples import SAMPLES

from calibration import StartupLogParser

LINES = [line.encode() for sample in SAMPLES.values() for line in sample.text.splitlines()]
TOKENS = [b"(", b")", b"{", b"[", b"'", b'"', b"\\", b"\x1b[", b"\r", b"\x00", b"\xff\xfe", b" took ", b"1e999", b"-0.0", b"9" * 400, b"INFO 01-01 00:00:00 [a.py:1] ",
          b'{"log":', b"2026-01-01T00:00:00Z ", b"(Worker_TP0 pid=1) ", b" | ", b"non-default args: {", b"a=", b"((((", b",,,,", b" " * 300, b"%|" * 100]  # fmt: skip
SLOW_S = 0.5


def mutate(line: bytes, rng: random.Random) -> bytes:
    raw = bytearray(line)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(raw) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            del raw[place : place + rng.randrange(30)]
        elif kind == 1:
            raw[place:place] = rng.choice(TOKENS)
        elif kind == 2:
            raw[place:place] = rng.choice(LINES)[: rng.randrange(200)]
        elif kind == 3:
            raw[place:place] = raw[: rng.randrange(200)] * rng.randrange(1, 20)
        else:
            raw[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(8)))
    return bytes(raw)


def main(count: int, seed: int) -> int:
    rng = random.Random(seed)  # noqa: S311  not for secrets
    parser, begin, slowest = StartupLogParser(), time.perf_counter(), (0.0, b"")
    for number in range(count):
        line = mutate(rng.choice(LINES), rng) + b"\n"
        before = time.perf_counter()
        parser.feed(line)
        slowest = max(slowest, (time.perf_counter() - before, line))
        if number % 2000 == 1999:
            for start in parser.finish():
                start.to_dict()
            parser = StartupLogParser()
    seconds = time.perf_counter() - begin
    print(
        f"{count} lines in {seconds:.0f} s, {count / seconds:.0f} a second; slowest {slowest[0]:.3f} s: {slowest[1][:200]!r}"
    )
    return int(slowest[0] > SLOW_S)


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in (sys.argv[1:] + ["1000000", "1"][len(sys.argv) - 1 :])[:2])))
