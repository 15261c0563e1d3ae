"""Which environment variables go into the record of a start."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from calibration.logs.secrets import is_secret, without_secrets
from startup_model.engines.command import is_kept

__all__ = ["A_PATH", "environment_that_matters", "holds_secret"]

A_PATH = "(a path)"
"""Stands in a record for a value that names a place on the machine."""
_LONGEST_VALUE = 200
_SHORT_NAMES = re.compile(r"(?:^|_)(?:KEYS?|PASS|PASSWD|PW|PWD|AUTH|CREDS?)(?:_|$)", re.IGNORECASE)
"""Parts of names that mean a secret in a variable, not in running text."""
_SWITCHES = frozenset({"", "0", "1", "true", "false", "none", "auto"})


def environment_that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how an engine starts, for the record: without those that are or hold a secret, and without paths of this machine."""
    return {
        name: A_PATH if os.sep in value else value
        for name, value in sorted(environment.items())
        if is_kept(name) and len(value) <= _LONGEST_VALUE and value.isprintable() and not holds_secret(name, value)
    }


def holds_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret by its name, or holds one that is told by its look or by a name within it."""
    assigned = f"{name}={value}"
    is_named = _SHORT_NAMES.search(name) is not None and value.strip().lower() not in _SWITCHES
    return (
        is_named or is_secret(name, value) or without_secrets(value) != value or without_secrets(assigned) != assigned
    )
