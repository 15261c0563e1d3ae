"""The fewest starts that tell coefficients apart.

A measured phase is linear in its coefficients: a start adds one row of factors for each of its terms. The fewest starts that identify all that a set of candidates can
identify are found greedily: next comes the start that raises the rank of these rows most, the shorter one of equals, until none raises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from calibration.fit.rows import part_of
from calibration.measure.launch import Launch
from calibration.measure.steps import Basis, Step, configuration, engine_of, expected_s
from startup_model.recipe import Start, bind, prepare, recipe, version_of

__all__ = ["fewest_steps"]

Rows = Mapping[tuple[str, str], Mapping[str, float]]
"""(term, variant) -> factor of each coefficient."""


class _Candidate(NamedTuple):
    step: Step
    seconds: float
    """That it adds to the plan."""
    rows: Rows


def fewest_steps(base: Sequence[Step], basis: Basis) -> tuple[Step, ...]:
    """The base steps, and those that have to be added to identify what all their variants together would.

    Of a model, eager starts come first, the shortest, since the first start of a session may be made twice; then those that fill a fresh compile cache: later ones
    find their graphs there. Raises StartupModelError where the model or the engine is not known here.
    """
    chosen = [_Candidate(step, 0.0, _rows(basis, step)) for step in base]
    rest = [
        _Candidate(step, expected_s(basis, step) if costs else 0.0, _rows(basis, step))
        for step, costs in _variants(basis.launch, base)
    ]
    while rest:
        before = _rank(chosen)
        gains = [
            (_rank([*chosen, candidate]) - before, -candidate.seconds, -index) for index, candidate in enumerate(rest)
        ]
        best = max(gains)
        if best[0] <= 0:
            break
        chosen.append(rest.pop(-best[2]))
    models = list(dict.fromkeys(step.model for step in base))
    steps = [candidate.step for candidate in chosen]
    return tuple(
        sorted(steps, key=lambda step: (models.index(step.model), not step.eager, step.compile_cache != "fresh"))
    )


def _variants(launch: Launch, base: Sequence[Step]) -> Iterator[tuple[Step, bool]]:
    """Starts that differ from the base, and whether they cost a start of their own: one of the graphs of a warm start has to compile anyway."""
    seen = [(step.model, engine_of(launch, step)) for step in base]
    for step, page, cache, (eager, dummy) in product(
        base, dict.fromkeys((base[0].page_cache, "hot", "cold")), ("fresh", "warm"), ((False, False), (True, False), (False, True))
    ):  # fmt: skip
        if (dummy and page == "cold") or (eager and cache == "fresh"):
            continue  # nothing is read, nothing is compiled
        variant = step._replace(page_cache=page, compile_cache=cache, eager=eager, dummy=dummy)
        engine = (variant.model, engine_of(launch, variant))
        if engine not in seen:
            seen.append(engine)
            is_twin = variant == step._replace(compile_cache="fresh")
            yield variant, not is_twin


def _rows(basis: Basis, step: Step) -> Rows:
    """What a start tells: for each of its terms the factor of each coefficient."""
    hardware = basis.hardware
    model, engine = configuration(basis.launch, step, basis.model)
    profile = basis.prior or prepare(Start(model, hardware, engine)).profile
    found = recipe(model, hardware, engine, profile.host, version_of(engine, profile))
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for calls in bind(found, profile).phases.values():
        for call in calls:
            term, variant, factors = part_of(call)
            row = rows.setdefault((term, variant), {})
            for name, factor in factors:
                row[name] = row.get(name, 0.0) + factor
    return rows


def _rank(candidates: Iterable[_Candidate]) -> int:
    """How many coefficients the starts tell apart, term by term."""
    tables: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for candidate in candidates:
        for key, row in candidate.rows.items():
            tables.setdefault(key, []).append(row)
    return sum(_rank_of(rows) for rows in tables.values())


def _rank_of(rows: Sequence[Mapping[str, float]]) -> int:
    names = sorted({name for row in rows for name in row})
    matrix = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    if not matrix.size:
        return 0
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    return int(np.linalg.matrix_rank(matrix / np.where(largest > 0, largest, 1.0), tol=1e-3))
