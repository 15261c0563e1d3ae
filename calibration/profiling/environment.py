"""Which environment variables go into the record of a start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from calibration.logs.secrets import is_secret, without_secrets
from startup_model.config.engine_flags import KEPT_VARIABLES

__all__ = ["A_PATH", "environment_that_matters"]

A_PATH = "(a path)"
"""Stands in a record for a value that names a place on the machine."""
_LONGEST_VALUE = 200


def environment_that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change how an engine starts, for the record: without those that are or hold a secret, and without paths of this machine."""
    return {
        name: A_PATH if os.sep in value else value
        for name, value in sorted(environment.items())
        if name.startswith(KEPT_VARIABLES)
        and len(value) <= _LONGEST_VALUE
        and value.isprintable()
        and not _is_secret(name, value)
    }


def _is_secret(name: str, value: str) -> bool:
    assigned = f"{name}={value}"
    return is_secret(name, value) or without_secrets(value) != value or without_secrets(assigned) != assigned
