"""How many ranks a server has, which generation of the engine it is, and when its bootstrap ends: as configured, else as its processes tell."""

from __future__ import annotations

import re

from calibration.logs.start import Account, Start
from startup_model.versions import Version

__all__ = ["degrees", "end_of_bootstrap", "generation_of"]


def generation_of(own: Account, version: Version | None) -> str | None:
    """Of vLLM: v0 or v1, as most lines say, else by version; None where neither tells."""
    if own.generations:
        return max(own.generations, key=lambda name: own.generations[name])
    if version is None:
        return None
    return "v0" if version < (0, 8) else "v1" if version >= (0, 11) else None


_WAITS_FOR_COORDINATOR: Version = (0, 19)
"""From this version of vLLM on the coordinator of several engines must be up before theirs are started (0.18.1 goes on at once, 0.19.1 waits)."""


def end_of_bootstrap(own: Account, version: Version | None) -> str:
    """The event that ends the bootstrap of vLLM: the first process beside the server's is up.

    As a rule that is the engine's (``engine_started``). A server with several engines (dp > 1) brings up their coordinator first, which imports as much, and
    only then starts the engines: what they take comes on top of a start with one engine, and is time of spawning.
    """
    waits = version is not None and version >= _WAITS_FOR_COORDINATOR
    return "coordinator_started" if waits and "coordinator_started" in own.times else "engine_started"


_DEGREE = re.compile(r"(?<![A-Z])(TP|PP|DP)([0-9]{1,5})")
_DEGREE_SETTINGS = {
    "tp": ("tensor_parallel_size", "tp_size", "tp"),
    "pp": ("pipeline_parallel_size", "pp_size", "pp"),
    "dp": ("data_parallel_size", "dp_size", "dp"),
}


def degrees(start: Start, name: str, own: Account, generation: str | None) -> tuple[int | None, int | None, int | None]:
    """tp, pp and dp: as configured, else as the processes number themselves."""
    values = {**start.flags, **start.settings}
    found: dict[str, int | None] = {}
    for degree, keys in _DEGREE_SETTINGS.items():
        given = next(
            (values[key] for key in keys if isinstance(values.get(key), int) and not isinstance(values[key], bool)),
            None,
        )
        found[degree] = given if isinstance(given, int) and 0 < given < 10**6 else None
    seen = {"TP": 0, "PP": 0, "DP": 0}
    labels = [rank.label for rank in own.ranks.values()]
    for label in labels:
        for match in _DEGREE.finditer(label):
            seen[match.group(1)] = max(seen[match.group(1)], int(match.group(2)) + 1)
    for degree, key in (("tp", "tp_rank"), ("pp", "pp_rank"), ("dp", "dp_rank")):
        rank = start.topology.get(key)
        if rank is not None:
            seen[degree.upper()] = max(seen[degree.upper()], rank + 1)
    world = start.topology.get("world_size")
    found = {degree: count or seen[degree.upper()] or None for degree, count in found.items()}
    if name == "vllm" and start.flags and "arguments" in own.times:
        found = {degree: count or 1 for degree, count in found.items()}
    if world:
        others = (found["pp"] or 1) * (found["dp"] or 1)
        if found["tp"] is None or (found["tp"] * others < world and "tensor_parallel_size" not in values):
            found["tp"] = max(1, world // others)
        found["pp"] = found["pp"] or 1
    _count_processes(found, name, labels, generation)
    return found["tp"], found["pp"], found["dp"]


def _count_processes(found: dict[str, int | None], name: str, labels: list[str], generation: str | None) -> None:
    """Degrees that only the number of processes tells."""

    def some(*prefixes: str) -> bool:
        return any(label.startswith(prefixes) for label in labels)

    if name == "sglang" and labels:
        found.update({degree: count or 1 for degree, count in found.items()})
    if name != "vllm":
        return
    workers = sum(label.startswith("VllmWorkerProcess") for label in labels)
    alone = generation == "v1" and some("EngineCore") and not some("Worker", "VllmWorker", "RayWorker")
    if found["tp"] is None and workers:
        found["tp"] = workers + 1  # the driver prints without a prefix
    elif found["tp"] is None and alone:
        found["tp"] = found["pp"] = 1
    if found["dp"] is None and generation == "v1" and some("EngineCore"):
        found["dp"] = 1
