"""Old profile files: pure steps from one schema to the next, and what changed.

A step takes the dict of version n and returns that of version n + 1 without touching its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from startup_model.errors import ProfileError, shown

__all__ = ["CHANGES_SINCE", "SCHEMA_VERSION", "migrate"]

SCHEMA_VERSION: Literal[3] = 3

CHANGES_SINCE: Mapping[int, str] = {
    1: "schema 2 also holds how far formulas miss and what is peculiar to some models, which fits and intervals use; fit the profile again to have them",
    2: "schema 3 also says which numbers of its host nobody has measured; fit the profile again so that measuring them (probe) does not change its predictions",
}
"""Schema version of an old file -> what the owner should know about the changes since."""


def _from_1(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Schema 2 has deviations and effects of models that schema 1 did not know: they start empty."""
    empty: dict[str, Any] = {"shape_spread": {}, "misfit": {}, "model_effects": {}, "one_run_spread": 0.0}
    return empty | dict(data) | {"schema_version": 2, "written_as_schema": 1}


def _from_2(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Schema 3 has hosts without a single-thread score, and hosts with assumed numbers: in schema 2 a score that was left out was 1, and every number counted."""
    host = data.get("host")
    scored = {"host": {"single_thread_score": 1.0} | dict(host)} if isinstance(host, Mapping) else {}
    return {"written_as_schema": 2} | dict(data) | scored | {"schema_version": 3}


_STEPS: Mapping[int, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {1: _from_1, 2: _from_2}
"""Schema version -> the step to the next one."""


def migrate(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """``data`` in the current schema. Raises ProfileError for a newer or a missing schema version."""
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ProfileError(
            f"{name}: schema_version = {shown(version)}; a profile has a whole number from 1 to {SCHEMA_VERSION} there"
        )
    if version > SCHEMA_VERSION:
        raise ProfileError(
            f"{name}: schema_version = {version}, this release reads up to {SCHEMA_VERSION}; upgrade startup-model or fit the profile again"
        )
    for step in range(version, SCHEMA_VERSION):
        data = _STEPS[step](data)
    return data
