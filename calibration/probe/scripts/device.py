"""Copies from pinned memory to a GPU; a script of its own, for a Python with torch.

Prints one JSON object: the name of the device and B/s of each copy to it (``to_device``) and, reads and writes counted, on it
(``on_device``); or ``absent`` and why.
"""

from __future__ import annotations

import importlib
import json
import time
from typing import Any

SIZE = 256 * 2**20
COPIES = 8


def main() -> None:
    """Measure, and print what was found."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        print(json.dumps({"absent": f"no torch ({error})"}))
        return
    if not torch.cuda.is_available():
        print(json.dumps({"absent": "torch sees no GPU"}))
        return
    host = torch.ones(SIZE, dtype=torch.uint8).pin_memory()
    device = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(device)

    def rates(target: Any, source: Any, passes: int) -> list[float]:
        found = []
        for _ in range(COPIES + 1):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            found.append(passes * SIZE / (time.perf_counter() - begin))
        return found[1:]  # the first one warms up

    result = {"to_device": rates(device, host, 1), "on_device": rates(other, device, 2)}
    print(json.dumps({"device": torch.cuda.get_device_name(), "size": SIZE, **result}))


if __name__ == "__main__":
    main()
