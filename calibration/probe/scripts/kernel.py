"""A fixed piece of work of the kind that importing and tracing consist of; a script of its own, for any Python from 3.9 on.

``python kernel.py REPETITIONS SECONDS`` repeats it at most so often, stops early when the wall seconds are used up (never before the second
repetition), and prints one JSON object: the checksum, CPU seconds of each repetition, and which Python it was.

One repetition: a source text of functions and classes is parsed, walked, compiled, marshalled and unmarshalled, executed (functions, classes,
decorators, data classes, enumerations, generic aliases); its objects are called through attributes, dicts, closures and exceptions; signatures
are inspected; bytecode is disassembled; regular expressions are compiled anew; JSON is written and read. Only the standard library, no file, no
thread, a few MiB of memory. The checksum depends on none of: interpreter, hash seed, platform.

CPU time of the process counts, not wall time: other jobs that take the core away lengthen only the latter. What is left (shared caches, a
sibling thread, clock) only ever slows a repetition down, so that the smallest time is the one to compare.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import enum
import gc
import inspect
import json
import marshal
import platform
import re
import sys
import sysconfig
import time
import zlib
from pathlib import Path
from typing import Any

CLASSES = 40
"""Classes in the source text."""
CALLS = 200
"""Rounds of calls of its objects."""

_TEMPLATE = '''
@register("kind{n}")
class Block{n}(Base):
    """Block {n}: fields, a property and methods, as a layer of a model has them."""

    width: int = {n} + 1
    names: Tuple[str, ...] = ("a{n}", "b{n}", "c{n}")
    table: Dict[str, int] = {{"alpha": {n}, "beta": {n} * 2, "gamma": {n} * 3}}

    def __init__(self, scale=1, **options):
        super().__init__(scale)
        self.options = dict(options, kind="kind{n}")
        self.shape = [self.width, self.scale, len(self.names)]

    @property
    def size(self):
        return self.shape[0] * self.shape[1] + self.shape[2]

    def forward(self, value, *, flag=True):
        total = 0
        for index, name in enumerate(self.names):
            if flag and index % 2 == 0:
                total += self.table.get(name, self.scale) * self.width
            elif isinstance(value, str):
                total -= len(value)
            else:
                try:
                    total += self.table[name]
                except KeyError:
                    total += value & 7
        return total + self.size

    def text(self):
        return f"{{self.options['kind']}}-{{self.size:05d}}-{{'/'.join(self.names)}}"


def build{n}(first, second={n}, *rest, key: Optional[int] = None) -> Block{n}:
    block = Block{n}(scale=second or 1, first=first, key=key)

    def inner(value):
        return block.forward(value + len(rest)) if value else block.text()

    block.inner = inner
    return block
'''


class Base:
    """Parent of the classes of the source text."""

    def __init__(self, scale: int) -> None:
        self.scale = scale


def source_text() -> str:
    """The source text: the same for ever."""
    return "".join(_TEMPLATE.format(n=n) for n in range(CLASSES))


def repetition() -> int:
    """The work once; its checksum."""
    text = source_text()
    counts, names = _walk(ast.parse(text)), _execute(text)
    found = [counts, _call(names), _classes(), _inspect(names), _patterns(), _json()]
    return zlib.crc32(repr(found).encode())


def _walk(tree: ast.AST) -> list[tuple[str, int]]:
    """Nodes of the tree by kind."""
    counts: dict[str, int] = {}
    for node in ast.walk(tree):
        kind = type(node).__name__
        counts[kind] = counts.get(kind, 0) + 1
    return sorted(counts.items())


def _execute(text: str) -> dict[str, Any]:
    """Compile the text, send its code through marshal as an import does, and run it."""
    code = compile(text, "<kernel>", "exec", dont_inherit=True)
    content = marshal.dumps(code)
    for _ in range(20):
        code = marshal.loads(content)  # noqa: S302  what was written in the line before
    registry: dict[str, type] = {}

    def register(name: str) -> Any:
        def decorate(kind: type) -> type:
            registry[name] = kind
            return kind

        return decorate

    import typing

    names: dict[str, Any] = {}
    for _ in range(6):
        names = {"Base": Base, "register": register, "__name__": "kernel_text"}
        names |= {name: getattr(typing, name) for name in ("Dict", "Optional", "Tuple")}
        exec(code, names)  # noqa: S102  the fixed text above
    names["registry"] = registry
    return names


def _call(names: dict[str, Any]) -> int:
    """Calls through attributes, closures, dicts and exceptions."""
    total = 0
    for turn in range(CALLS):
        for n in range(CLASSES):
            block = names[f"build{n}"](turn, (n + turn) % 5, "x", key=n)
            total += block.inner(turn % 3 and n) if turn % 3 and n else len(block.inner(0))
            total += block.forward("abc" if turn % 2 else turn, flag=bool(turn % 4))
            if names["registry"][block.options["kind"]] is type(block) and hasattr(block, "inner"):
                total ^= turn
    return total


def _classes() -> list[str]:
    """Classes whose methods are generated: data classes and enumerations."""
    made = []
    for n in range(12):
        fields = [(f"field{i}", int, dataclasses.field(default=i)) for i in range(8)]
        record = dataclasses.make_dataclass(f"Record{n}", fields, order=True)
        kind = enum.Enum(f"Kind{n}", [f"MEMBER{i}" for i in range(12)])  # type: ignore[misc]
        made.append(f"{record()!r} {len(kind)} {record(n) < record(n + 1)}")
    return made


def _inspect(names: dict[str, Any]) -> int:
    """Signatures and bytecode: what a tracer looks at."""
    total = 0
    for n in range(CLASSES):
        total += len(inspect.signature(names[f"build{n}"]).parameters)
        forward = names[f"Block{n}"].forward
        total += sum(item.opname == "NO_SUCH_OPERATION" for item in dis.get_instructions(forward))
    return total


def _patterns() -> int:
    """Regular expressions, compiled anew."""
    total = 0
    for n in range(40):
        re.purge()
        pattern = re.compile(
            rf"(?P<name>layer{n})\.(?:weight|bias|[a-z_]{{1,{n + 3}}})(?:\[(\d+)(?:,\s*(\d+))*\])?$", re.I
        )
        total += bool(pattern.match(f"layer{n}.weight[1, 2]"))
    return total


def _json() -> int:
    """A configuration, written and read."""
    data = {f"layer.{n}": {"shape": [n, n * 2, 4096], "dtype": "bfloat16", "offsets": [n * 1024, n * 2048], "share": n / 7} for n in range(300)}  # fmt: skip
    for _ in range(4):
        data = json.loads(json.dumps(data, indent=1))
    return len(json.dumps(data, sort_keys=True))


def main() -> None:
    """Repeat the work and print what it took."""
    most, seconds = int(sys.argv[1]), float(sys.argv[2])
    until = time.monotonic() + seconds
    times: list[float] = []
    checksum = repetition()  # not counted: caches fill
    gc.collect()
    while len(times) < most and (len(times) < 2 or time.monotonic() < until):
        before = time.process_time()
        if repetition() != checksum:
            raise SystemExit("the checksum changed")
        times.append(time.process_time() - before)
    about = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "plain": _is_plain(),
    }
    print(json.dumps({"checksum": checksum, "seconds": times, **about}))


def _is_plain() -> bool:
    """Whether this Python is a plain build: a shared library (Linux) that was configured without optimisations."""
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return False
    try:
        return "/libpython3" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


if __name__ == "__main__":
    main()
