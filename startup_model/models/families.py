"""Model families: ``model_type`` of a config.json -> of what its layers are made, one row of ``data/families.toml`` each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from startup_model.files import package_text
from startup_model.models import decoders, recurrent
from startup_model.models.fields import Fields
from startup_model.models.parts import Family, Skeleton

GENERIC = "generic"
"""Used for explicit numbers and for architectures that are not in the table."""


@lru_cache(maxsize=1)
def _table() -> str:
    return package_text("data/families.toml")


def _row(name: str) -> Any:
    """A row is a line: reading the whole table takes a hundred times as long."""
    import tomllib  # not before a model is built

    line = re.search(rf"^{name} = .*$", _table(), re.MULTILINE) if name.isidentifier() else None
    return tomllib.loads(line[0])[name] if line else None


@lru_cache(maxsize=512)
def find_family(model_type: str) -> Family | None:
    """The family of a ``model_type``, or None when the table has none."""
    row = _row(model_type.lower())
    if isinstance(row, str):
        return find_family(row)
    return None if row is None else Family(**_whole(row))


def _whole(row: Mapping[str, Any]) -> dict[str, Any]:
    other = _whole(_row(row["like"])) if "like" in row else {}
    own = {name: value for name, value in row.items() if name != "like"}
    return other | own | {"defaults": other.get("defaults", {}) | own.get("defaults", {})}


def build_layers(fields: Fields, family: Family) -> Skeleton:
    """The layers of a model. Raises ConfigError for a field that is missing or cannot be."""
    build = getattr(decoders, family.build, None) or getattr(recurrent, family.build)
    skeleton: Skeleton = build(fields, family)
    return skeleton
