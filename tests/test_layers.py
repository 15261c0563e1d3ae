"""The import direction: data flows one way, and the library never imports its calibration."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import startup_model

ROOT = Path(startup_model.__file__).parent.parent

LAYERS = (
    ("errors",),
    ("units", "formula", "phases", "files", "base", "uncertainty", "frames"),
    ("architecture",),
    ("config",),
    ("sizes",),
    ("terms", "factors"),
    ("inputs",),
    ("pipelines",),
    ("migrations",),
    ("profile",),
    ("prediction", "warnings"),
    ("plan",),
    ("model",),
    ("changes",),
    ("comparison", "grid"),
    ("planning",),
    ("manifests",),
    ("plots",),
    ("cli",),
    ("__main__",),
)
"""Lowest first; a module imports from its own layer or below."""

CALIBRATION = (
    ("records", "host", "page_cache"),
    ("published", "fit", "readers", "solver"),
    ("estimator",),
    ("validate",),
    ("logs",),
    ("profiling", "probe", "gate"),
    ("build_reference", "cli"),
)

LOGS = (
    ("patterns", "secrets", "lines"),
    ("fields",),
    ("events", "configuration"),
    ("tables", "startup"),
    ("start",),
    ("topology",),
    ("assembly",),
    ("parser",),
    ("diagnosis", "compare", "watch"),
    ("watch_cli",),
    ("cli",),
)

PROFILING = (
    ("supervisor", "sockets"),
    ("server", "journal", "caches", "checkpoint", "command", "environment", "versions"),
    ("endpoint", "launch"),
    ("follower", "steps"),
    ("starts", "states", "fewest"),
    ("plan",),
    ("pace", "record", "difference"),
    ("session",),
    ("measuring",),
    ("run",),
    ("view",),
    ("cli",),
)

PROBE = (
    (
        "budget",
        "child",
        "device_script",
        "kernel",
        "results",
    ),
    (
        "device",
        "imports",
        "memory",
        "score",
    ),
    ("readers",),
    ("sample",),
    ("storage",),
    ("node",),
    ("probe",),
    ("cli",),
)

GATE = (
    ("report", "shift", "figures"),
    ("states",),
    ("trial",),
    ("judge",),
    ("inputs",),
    ("compare",),
    ("output",),
    ("cli",),
)

INNER = {"gate": GATE, "logs": LOGS, "probe": PROBE, "profiling": PROFILING}
"""Layers within a package."""


def imported(path: Path) -> set[str]:
    """Names of all project modules that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("startup_model", "calibration")}


def rank(layers: tuple[tuple[str, ...], ...], part: str) -> int:
    return next(i for i, names in enumerate(layers) if part in names)


def module_files(package: str) -> list[Path]:
    return sorted(
        path for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py" or path.parent.name != package
    )


@pytest.mark.parametrize("path", module_files("startup_model"), ids=lambda p: str(p.relative_to(ROOT)))
def test_library_modules_import_only_downwards(path: Path) -> None:
    own = path.relative_to(ROOT / "startup_model").parts[0].removesuffix(".py")
    for name in imported(path):
        package, *rest = name.split(".")
        assert package == "startup_model", f"{path.name} imports {name}: the library never imports its calibration"
        target = rest[0] if rest else ""
        if any(target in names for names in LAYERS):
            assert rank(LAYERS, target) <= rank(LAYERS, own), f"{own} imports {name} from a higher layer"


def test_every_module_has_a_layer() -> None:
    modules = {
        path.relative_to(ROOT / "startup_model").parts[0].removesuffix(".py") for path in module_files("startup_model")
    }
    assert modules == {name for names in LAYERS for name in names}


@pytest.mark.parametrize("path", module_files("calibration"), ids=lambda p: str(p.relative_to(ROOT)))
def test_calibration_modules_import_only_downwards(path: Path) -> None:
    own = path.relative_to(ROOT / "calibration").parts[0].removesuffix(".py")
    for name in imported(path):
        package, *rest = name.split(".")
        if package != "calibration" or not any(rest and rest[0] in names for names in CALIBRATION):
            continue
        assert rank(CALIBRATION, rest[0]) <= rank(CALIBRATION, own), f"{own} imports {name} from a higher layer"
        layers = INNER.get(own)
        if rest[0] == own and layers and path.stem != "__init__" and any(rest[1:2] == [n] for ns in layers for n in ns):
            assert rank(layers, rest[1]) <= rank(layers, path.stem), f"{path.stem} imports {name} from a higher layer"


def test_every_module_of_calibration_has_a_layer() -> None:
    modules = {
        path.relative_to(ROOT / "calibration").parts[0].removesuffix(".py") for path in module_files("calibration")
    }
    assert modules == {name for names in CALIBRATION for name in names}
    for package, layers in INNER.items():
        parts = {path.stem for path in (ROOT / "calibration" / package).glob("*.py")} - {"__init__"}
        assert parts == {name for names in layers for name in names}
