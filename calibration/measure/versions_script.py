"""Run by a server's own Python: its version and those of the packages that are its arguments, as JSON. None of them is imported."""

import contextlib
import importlib.metadata
import importlib.util
import json
import re
import sys
from pathlib import Path

if __name__ == "__main__":
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in sys.argv[1:]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    spec, text = importlib.util.find_spec("torch"), ""
    if spec is not None and spec.origin:
        with contextlib.suppress(OSError):
            text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    for name in ("cuda", "hip"):
        match = re.search(rf"^{name}\b[^=\n]*=\s*'([^'\n]*)'", text, re.MULTILINE)
        if match:
            found[name] = match.group(1)
    print(json.dumps(found))
