"""The rooms of the house: data flows one way, and the library never imports its calibration."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import startup_model

ROOT = Path(startup_model.__file__).parent.parent

ROOMS = (
    "startup_model: errors", "startup_model: units files frozen formula frames secrets versions", "startup_model: models hardware", "startup_model: engines",
    "startup_model: sizes", "startup_model: phases", "startup_model: profile", "startup_model: recipe", "startup_model: evaluate",
    "startup_model: prediction", "startup_model: warnings", "startup_model: predict predictor", "startup_model: changes", "startup_model: axes",
    "startup_model: sweep sweeps compare", "startup_model: planning", "startup_model: manifests plots", "startup_model: cli", "startup_model: __main__",
    "calibration: runs host page_cache", "calibration: logs", "calibration: fit", "calibration: measure", "calibration: probe gate", "calibration: cli",
)  # fmt: skip
"""Lowest first: a room imports itself and rooms on lines above its own. Rooms of one line do not import each other, those of the second aside."""
RANKS = {
    f"{line.split(': ')[0]}.{name}": rank for rank, line in enumerate(ROOMS) for name in line.split(": ")[1].split()
}
MODULES = sorted(path for package in ("startup_model", "calibration") for path in (ROOT / package).rglob("*.py"))


def room(parts: tuple[str, ...]) -> str:
    return ".".join(parts[:2]).removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {room(tuple(name.split("."))) for name in names} & RANKS.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_import_only_downwards(path: Path) -> None:
    own = room(path.relative_to(ROOT).parts)
    if own.endswith(".__init__"):  # the public names
        return
    assert own in RANKS, "give it a room"
    for other in imported(path):
        assert other == own or RANKS[other] < RANKS[own] or (RANKS[other] == RANKS[own] == 1), f"{own} imports {other}"
