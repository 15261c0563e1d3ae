"""Which axis of a sweep is drawn as x, as lines and as panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from startup_model.errors import MISSING, ConfigError, UnknownNameError
from startup_model.grid.result import Sweep
from startup_model.plots.sides import MOST_CATEGORIES, MOST_LINES, is_numbers

__all__ = ["Roles", "roles_of"]

_MOST_PANELS = 12

_BEST = "best"
"""In the place of an axis: no axis; the best value of each is taken."""


class Roles(NamedTuple):
    """Which axis of a sweep is drawn as what."""

    x: str
    lines: str | None
    panels: str | None
    best: tuple[str, ...]
    """Axes of which the best value is taken."""


def roles_of(result: Sweep, x: str | None, lines: str | None, panels: str | None) -> Roles:
    """Which axis is drawn as what, those that were not named included. Raises ConfigError."""
    sizes = {name: len(labels) for name, labels in result.axes.items()}
    given = {"x": x, "lines": lines, "panels": panels}
    taken: dict[str, str] = {}
    for role, name in given.items():
        if name is None or (name == _BEST and name not in sizes and role != "x"):
            continue
        if not isinstance(name, str) or name not in sizes:
            raise UnknownNameError(role, str(name), [*sizes, *((_BEST,) if role != "x" else ())])
        if name in taken:
            raise ConfigError(role, name, f"this axis is {taken[name]} already", "choose another")
        most = MOST_CATEGORIES if role == "x" else MOST_LINES if role == "lines" else _MOST_PANELS
        if sizes[name] > most and not is_numbers(result.axes[name]):
            remedy = "take fewer values" + ("" if role == "x" else f", or {role}={_BEST!r}")
            raise ConfigError(role, name, f"its {sizes[name]} labels are too many to be told apart, more than {most}", remedy)  # fmt: skip
        taken[name] = role
    free = [name for name, size in sizes.items() if size > 1 and name not in taken]
    if x is None:
        x = _choose_x(result, free) or next(iter(sizes))
        free = [name for name in free if name != x]
    fitting = sorted(
        (name for name in free if sizes[name] <= MOST_LINES or is_numbers(result.axes[name])),
        key=lambda name: (sizes[name] > MOST_LINES, -sizes[name]),
    )
    if panels is None and "model" in fitting and len(fitting) + (lines is not None) > 1:
        panels = "model"
        fitting.remove(panels)
    if lines is None and fitting:
        lines = fitting.pop(0)
    if panels is None and fitting:
        panels = fitting.pop(0)
    drawn = (x, lines, panels)
    best = tuple(name for name, size in sizes.items() if size > 1 and name not in drawn)
    return Roles(x, None if lines == _BEST else lines, None if panels == _BEST else panels, best)


def _choose_x(result: Sweep, free: Sequence[str]) -> str | None:
    """The longest axis of three or more numbers, else the longest that fits. Raises ConfigError."""
    numbers = [name for name in free if is_numbers(result.axes[name]) and len(result.axes[name]) > 2]
    others = [name for name in free if len(result.axes[name]) <= MOST_CATEGORIES]
    if free and not numbers and not others:
        problem = f"no axis has at most {MOST_CATEGORIES} labels"
        raise ConfigError("x", MISSING, problem, "take fewer values, or one label a plot")
    return max(numbers or others, key=lambda name: len(result.axes[name]), default=None)
