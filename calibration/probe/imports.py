"""How long the engine's Python takes to start, and to import the engine."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from calibration.probe.budget import Budget
from calibration.probe.child import Answer, Interpreter, ask
from calibration.probe.results import Found, Measurement, spread_of

__all__ = ["ENGINES", "FIRST", "PACKAGES", "REPEATED", "START", "imported", "measure_imports"]

START = "python_start"
FIRST = "import_first"
REPEATED = "import_repeated"

PACKAGES = ("vllm", "sglang", "torch", "numpy")
"""The first of them that the Python has is imported."""
ENGINES = PACKAGES[:2]

_STARTS = 5
_IMPORTS = 3
_LONGEST_START_S = 10.0

_NOTHING = "print('{}')"
_FIND = f"""
import importlib.util, json
print(json.dumps({{'found': next((name for name in {PACKAGES!r} if getattr(importlib.util.find_spec(name), 'origin', None)), None)}}))
"""
"""Folders without an ``__init__.py`` have no origin: what happens to lie in the working folder is no engine."""
_IMPORT = """
import time
begin = time.perf_counter()
import {package}
seconds = time.perf_counter() - begin
import json
print("\\n" + json.dumps({{"seconds": seconds}}), flush=True)
import os
os._exit(0)
"""
"""Ends at once, so that taking the modules down costs no time of the probe."""


def measure_imports(python: Interpreter, budget: Budget) -> Found:
    """Wall seconds of a start of Python that does nothing, of the first import of the engine, and of further ones.

    The first import reads what no page cache holds; further ones are what a warm host takes.
    """
    begin = time.monotonic()
    starts, problem = _repeat([python.path, "-c", _NOTHING], _STARTS, budget.part(0.3, _LONGEST_START_S))
    measured, warnings = [], []
    if starts:
        seconds = [answer.seconds for answer in starts]
        words = f"Python {python.shown_version}, start to end, nothing to do"
        taken = time.monotonic() - begin
        measured.append(Measurement(START, median(seconds), "s", spread_of(seconds), len(seconds), None, words, taken))
    else:
        warnings.append(f"start of Python: not measured: {problem}")
    found = _package(python, budget)
    if found is None:
        warnings.append(
            f"import: not measured: this Python has none of {', '.join(PACKAGES)}; give the engine's (python=, --python)"
        )
        return Found(tuple(measured), tuple(warnings))
    return Found(tuple(measured), tuple(warnings)).joined(_imports(python, found, budget))


def imported(found: Found) -> str | None:
    """The package whose import was measured; None where none was."""
    entry = next((entry for entry in found.measurements if entry.name in (FIRST, REPEATED)), None)
    return None if entry is None else entry.command.split(maxsplit=2)[1]


def _package(python: Interpreter, budget: Budget) -> str | None:
    answer = ask([python.path, "-c", _FIND], max(1.0, budget.left))
    name = answer.data.get("found") if answer.data else None
    return name if name in PACKAGES else None


def _imports(python: Interpreter, package: str, budget: Budget) -> Found:
    """The first import and, as long as another one fits into what is left, further ones."""
    begin = time.monotonic()
    words = [python.path, "-c", _IMPORT.format(package=package)]
    first, problem = _repeat(words, 1, budget)
    seconds = _inside(first)
    if not seconds:
        return Found((), (f"import {package}: not measured: {problem or 'it printed no time'}",))
    shown = f"import {package} under Python {python.shown_version}"
    taken = time.monotonic() - begin
    measured = [Measurement(FIRST, seconds[0], "s", None, 1, None, f"{shown}, as the page cache was found", taken)]
    again: list[Answer] = []
    while len(again) < _IMPORTS - 1 and budget.left > 1.2 * first[0].seconds:
        more, _ = _repeat(words, 1, budget)
        if not more:
            break
        again += more
    if not (seconds := _inside(again)):
        return Found(tuple(measured), (f"import {package}: no time was left to repeat it",))
    taken = time.monotonic() - begin - taken
    measured.append(
        Measurement(REPEATED, median(seconds), "s", spread_of(seconds), len(seconds), None, f"{shown}, again", taken)
    )
    return Found(tuple(measured))


def _inside(answers: list[Answer]) -> list[float]:
    """Seconds as the children measured them."""
    values: list[Any] = [answer.data.get("seconds") for answer in answers if answer.data is not None]
    return [float(value) for value in values if isinstance(value, int | float) and value > 0]


def _repeat(words: list[str], most: int, budget: Budget) -> tuple[list[Answer], str]:
    """Children one after the other, until one fails or the time is up; why there are fewer."""
    answers: list[Answer] = []
    while len(answers) < most and not (answers and budget.is_spent):
        answer = ask(words, max(1.0, budget.left))
        if answer.data is None:
            return answers, answer.problem
        answers.append(answer)
    return answers, ""
