"""Lines of source, the longest file and the longest function: ``python .ci/size.py [--strict]``; strict, it ends with status 1 above the limits."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

LIMITS = {
    "lines": 29_900,
    "longest file": 700,
    "longest function": 80,
}  # lines: what is there; to be lowered, 22,000 is the aim
ROOT = Path(__file__).parent.parent
FILES = sorted(path for room in ("startup_model", "calibration") for path in (ROOT / room).rglob("*.py"))


def main(*, strict: bool) -> int:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
    files = {name: len(text.splitlines()) for name, text in texts.items()}
    functions = {
        f"{name}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    sizes = {
        "lines": {f"{len(files)} files": sum(files.values())},
        "longest file": files,
        "longest function": functions,
    }
    failed = 0
    for what, by_name in sizes.items():
        over = {name: size for name, size in by_name.items() if size > LIMITS[what]}
        failed += len(over)
        name = max(by_name, key=by_name.__getitem__)
        sys.stdout.write(f"{what}: {by_name[name]:,} of at most {LIMITS[what]:,} ({name}); {len(over)} above\n")
        for name in sorted(over, key=over.__getitem__, reverse=True)[: 20 if what != "lines" else 0]:
            sys.stdout.write(f"  {over[name]:,}  {name}\n")
    return int(strict and failed > 0)


if __name__ == "__main__":
    sys.exit(main(strict="--strict" in sys.argv[1:]))
