"""Starts side by side: what the difference between two of them isolates.

A start with ``--enforce-eager`` leaves out torch.compile and graph capture, one with ``--load-format dummy`` the reading of weights; the wall times' differences
are those phases, whatever the engine logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from calibration.logs.configuration import NAMES
from calibration.logs.startup import ParsedStartup
from startup_model.errors import ConfigError
from startup_model.phases import Phase

__all__ = ["Comparison", "Difference", "compare"]

_EAGER = (Phase.GRAPH_TRACE.value, Phase.GRAPH_COMPILE.value, Phase.GRAPH_CAPTURE.value)
_DUMMY = (Phase.WEIGHT_LOAD.value,)


class Difference(NamedTuple):
    """One start against the base."""

    label: str
    """eager, dummy, or what else differs."""
    isolates: tuple[str, ...]
    """Phases that one of the two leaves out; empty when they differ in anything else as well."""
    isolated_by_wall_s: float | None
    """Seconds of these phases: the difference of the wall times of the start that has them and the one that has not."""
    isolated_s: float | None
    """The same seconds as the log gives them that has them."""
    wall_s: float | None
    """Base less this start, first line to ready; the two stamps resolve it to ``resolution_s``."""
    resolution_s: float
    phases: dict[str, float]
    """Phase -> base less this start."""


class Comparison(NamedTuple):
    """A base and the starts against it."""

    base: ParsedStartup
    others: tuple[ParsedStartup, ...]
    differences: tuple[Difference, ...]


def compare(base: ParsedStartup, others: Sequence[ParsedStartup]) -> Comparison:
    """Differences of starts of one model to a base. Raises ConfigError for starts of different engines or models, and without any other start."""
    if not others:
        raise ConfigError("against", "none", "nothing to compare with", "give the log of another start")
    for other in others:
        for field in ("engine", "model"):
            mine, theirs = getattr(base, field), getattr(other, field)
            if mine is not None and theirs is not None and _name(mine) != _name(theirs):
                raise ConfigError(field, theirs, f"the base is of {mine}", "compare starts of one model and engine")
    return Comparison(base, tuple(others), tuple(_difference(base, other) for other in others))


def _name(text: str) -> str:
    return text.rstrip("/").rsplit("/", 1)[-1].lower()


def _difference(base: ParsedStartup, other: ParsedStartup) -> Difference:
    """What sets two starts apart. The base has the phases, or the other one has them: then the differences are negative."""
    left_out = {
        "eager": (_EAGER, is_eager(other) - is_eager(base)),
        "dummy": (_DUMMY, (other.load_format == "dummy") - (base.load_format == "dummy")),
    }
    signs = {sign for _, sign in left_out.values() if sign}
    changed = _changed(base, other)
    labels = [f"{'' if sign > 0 else 'not '}{label}" for label, (_, sign) in left_out.items() if sign] + changed[:3]
    isolates = (
        [phase for phases, sign in left_out.values() if sign for phase in phases]
        if len(signs) == 1 and not changed
        else []
    )
    names = [phase.value for phase in Phase if phase.value in base.phases or phase.value in other.phases]
    wall = None if base.wall_s is None or other.wall_s is None else base.wall_s - other.wall_s
    has_them = base if signs == {1} else other
    known = [has_them.phases[name] for name in isolates if name in has_them.phases]
    return Difference(
        label=" + ".join(labels) or "same settings",
        isolates=tuple(isolates),
        isolated_by_wall_s=None if wall is None or not isolates else wall * signs.pop(),
        wall_s=wall,
        isolated_s=sum(known) if known else None,
        resolution_s=max(base.stamp_resolution_s or 1.0, other.stamp_resolution_s or 1.0),
        phases={name: base.phases.get(name, 0.0) - other.phases.get(name, 0.0) for name in names},
    )


def is_eager(start: ParsedStartup) -> bool:
    """Whether a start ran without torch.compile and graphs."""
    return start.flags.get("enforce_eager") is True or start.settings.get("enforce_eager") is True


def _changed(base: ParsedStartup, other: ParsedStartup) -> list[str]:
    """What else differs: arguments, version, ranks, number formats; names and ports aside."""
    names = (base.flags.keys() | other.flags.keys()) - NAMES - {"enforce_eager", "load_format"}
    flags = sorted(name for name in names if base.flags.get(name) != other.flags.get(name))
    own = ("engine_version", "tp", "pp", "dp", "dtype", "quantization")
    return [name for name in own if _differs(getattr(base, name), getattr(other, name))] + flags


def _differs(mine: object, theirs: object) -> bool:
    return mine is not None and theirs is not None and mine != theirs
