"""Plain data to YAML text: quoted so that every YAML parser reads the same, with reasons as comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from startup_model.errors import one_line

if TYPE_CHECKING:
    import yaml

__all__ = ["Document", "yaml_text"]

Place = tuple[str | int, ...]
"""Keys and positions that lead to a value."""

WIDEST_LINE = 120
LONGEST_NOTE = 300

_PLAIN = re.compile(r"(?:--?)?[A-Za-z/][A-Za-z0-9_./@-]*(?::[A-Za-z0-9_./@-]+)*")
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])
"""What YAML 1.1 or 1.2 takes for something else than text; numbers never start with a letter."""


class Document(NamedTuple):
    """One YAML document and the reasons for its values."""

    content: Mapping[str, Any]
    notes: Mapping[Place, str] = {}
    """Where -> the comment beside it."""


def yaml_text(head: Iterable[str], documents: Sequence[Document]) -> str:
    """The documents as YAML text, ``head`` as comments in front. Reading it back gives the same data."""
    comments = "".join(f"{_comment(line)}\n" for line in head)
    return comments + "---\n".join(_document_text(document) for document in documents)


def _document_text(document: Document) -> str:
    import yaml

    text = yaml.dump(
        dict(document.content),
        Dumper=_dumper(),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=float("inf"),
    )
    if not document.notes:
        return text
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    lines = text.split("\n")
    placed = [(*_line_of(root, place), note) for place, note in document.notes.items()]
    for line, ends, note in sorted(placed, reverse=True):
        beside = f"{lines[line]}  {_comment(note)}"
        if ends and len(beside) <= WIDEST_LINE:
            lines[line] = beside
        else:
            indentation = lines[line][: len(lines[line]) - len(lines[line].lstrip(" "))]
            lines.insert(line, f"{indentation}{_comment(note)}")
    return "\n".join(lines)


def _comment(text: str) -> str:
    return f"# {one_line(text, LONGEST_NOTE)}".rstrip()


def _line_of(node: Any, place: Place) -> tuple[int, bool]:
    """The line where the value at ``place`` is written, and whether it ends there."""
    line = 0
    for part in place:
        if isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line
        else:
            key, node = next((key, value) for key, value in node.value if key.value == part)
            line = key.start_mark.line
    return line, isinstance(node.value, str) and node.end_mark.line == line


@lru_cache(maxsize=1)
def _dumper() -> type[yaml.SafeDumper]:
    import yaml

    class Dumper(yaml.SafeDumper):
        """PyYAML's safe dumper: no anchors, lists indented below their key, texts quoted wherever one parser could doubt them."""

        def ignore_aliases(self, data: object) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represent)
    return Dumper


def _style(text: str) -> str | None:
    """How a text is written: plain, in quotes, or as a block of lines."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return None
    if text.isprintable():
        return "'"
    lines = text.split("\n")
    return "|" if len(lines) > 1 and not text[0].isspace() and all(line.isprintable() for line in lines) else '"'
