"""Pages that are made from the code: a marker such as ``{{ phases }}`` in a page stands for a table."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from startup_model import engines
from startup_model.hardware import NODE_NUMBERS
from startup_model.phases import INPUT_MEANINGS, PHASES, ROLLUPS

MARKER = re.compile(r"^\{\{ (\w+)(?: ([\w.]+))? \}\}$", re.MULTILINE)


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(
        lines
        + ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    )


def phases(_: str) -> str:
    """Every phase: its formulas from their docstrings, and its row."""
    parts = []
    for name, row in PHASES.items():
        parts.append(f"### {name}\n\n{row.title}\n")
        for term in row.terms:
            body = inspect.getdoc(term.function) or ""
            equation = body.split("Equation: ")[1].split("\n\n")[0]
            rest = body.split("Equation: ")[1].split("\n\n", 1)[1]
            since = (
                ""
                if term.runs_on is None
                else " Only " + ", ".join(f"{e} from {'.'.join(map(str, v))}" for e, v in term.runs_on.items()) + "."
            )
            parts.append(f"```text\n{equation}\n```\n\n{rest}{since}\n")
        facts = [f"{roll_up}: {groups[name]}" for roll_up, groups in ROLLUPS.items() if name in groups]
        facts += [f"cache: {row.cache.name} (unknown counts as {row.cache.taken})"] if row.cache else []
        facts += [f"part of {row.part_of} in older files"] if row.part_of else []
        parts.append("Groups: " + "; ".join(facts) + ".\n")
    return "\n".join(parts)


def inputs(_: str) -> str:
    """Every input of a term."""
    return table(("input", "meaning"), [(f"`{name}`", meaning) for name, meaning in INPUT_MEANINGS.items()])


def coefficients(_: str) -> str:
    """Every coefficient, from the annotations of the formulas."""
    rows = [
        (f"`{term.name}.{name}`", meta.unit, meta.scale or term.name)
        for row in PHASES.values()
        for term in row.terms
        for name, meta in term.coefficients.items()
    ]
    return table(("coefficient", "unit", "moves with"), rows)


def node_numbers(_: str) -> str:
    """Every number of a node."""
    words = {1: "more is faster", -1: "less is faster", 0: ""}
    return table(
        ("number", "field", "unit", ""),
        [(f"`{row.name}`", f"`hardware.{row.field}`", row.unit, words[row.better]) for row in NODE_NUMBERS.values()],
    )


def known_engines(_: str) -> str:
    """Every engine of the registry."""
    rows = [
        (f"`{engine.name}`", engine.default_version or "read from logs only", ", ".join(engine.cores) or "one")
        for engine in sorted(
            engines.built_in().values(), key=lambda engine: (engine.default_version is None, engine.name)
        )
    ]
    return table(("engine", "version that is assumed", "cores"), rows)


def fields(path: str) -> str:
    """The fields of a class with the notes below them, read from its source."""
    module, _, name = path.rpartition(".")
    source = inspect.getsource(getattr(import_module(module), name))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    rows = []
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and not statement.target.id.startswith("_")
        ):
            is_note = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            note = following.value.value if is_note else ""  # type: ignore[union-attr]
            default = "required" if statement.value is None else ast.unparse(statement.value)
            default = {"Field(default_factory=dict)": "{}"}.get(default, default)
            rows.append(
                (f"`{statement.target.id}`", f"`{default}`" if len(default) < 40 else "", " ".join(str(note).split()))
            )
    return table(("field", "default", "meaning"), rows)


MAKERS: dict[str, Callable[[str], str]] = {
    maker.__name__: maker for maker in (phases, inputs, coefficients, node_numbers, known_engines, fields)
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill the markers of a page; the call that mkdocs makes for each."""
    return MARKER.sub(lambda match: MAKERS[match.group(1)](match.group(2) or ""), markdown)
