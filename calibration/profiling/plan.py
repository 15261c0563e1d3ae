"""Which starts to measure: a few that say what is wanted, in an order, with the time that they will take.

A measured phase is linear in its coefficients: a start adds one row of factors for each of its terms. The fewest starts that identify all that a set of candidates can
identify are found greedily: next comes the start that raises the rank of these rows most, the shorter one of equals, until none raises it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from calibration.fit import part_of, start_inputs
from calibration.profiling.launch import Launch, checkpoint_folder
from calibration.profiling.starts import PageCache
from startup_model.config.engine import EngineConfig
from startup_model.config.hardware import HardwareConfig
from startup_model.config.model import ModelConfig
from startup_model.errors import ConfigError, StartupModelError
from startup_model.model import as_model, predict
from startup_model.phases import AFTER_READY, BEFORE_ENGINE
from startup_model.pipelines import find_pipeline, steps_of
from startup_model.profile import Profile, select_reference

__all__ = ["CompileCache", "Plan", "PlanKind", "Step", "compiles", "configuration", "make_plan"]

PlanKind = Literal["base", "differential", "quick", "full"]
CompileCache = Literal["warm", "fresh"]
_AROUND_S = 5.0
"""Seconds of a run that are no part of the start: the request, the end of the server, reading the checkpoint before it."""
_TERMS_APART = frozenset({*BEFORE_ENGINE, *AFTER_READY})


class Step(NamedTuple):
    """One kind of start that is to be measured."""

    name: str
    model: str | None
    """In the place of the command's own; None: that one."""
    page_cache: PageCache
    compile_cache: CompileCache
    eager: bool = False
    dummy: bool = False
    repetition: int = 1

    def key(self, launch: Launch) -> str:
        """What tells steps apart when a plan goes on: the command, and all of the above."""
        return f"{self.name} {hashlib.sha256(repr((launch.words, sorted(launch.environment.items()), *self)).encode()).hexdigest()[:12]}"

    def words(self) -> str:
        """The step in words."""
        caches = [f"page cache {self.page_cache.replace('_', ' ')}"] if not self.dummy else []
        caches += [f"compile cache {self.compile_cache}"] if not self.eager else []
        return ", ".join(
            [
                self.name,
                *([self.model] if self.model else []),
                *caches,
                *([f"repetition {self.repetition}"] if self.repetition > 1 else []),
            ]
        )


class Plan(NamedTuple):
    """Steps in order, and what each is expected to take."""

    steps: tuple[Step, ...]
    seconds: tuple[float, ...]
    """Expected, with what is around a start and a compiling start before the first warm one."""
    warnings: tuple[str, ...] = ()

    @property
    def total_s(self) -> float:
        """Seconds that all of it will take."""
        return sum(self.seconds)


class _Candidate(NamedTuple):
    step: Step
    seconds: float
    rows: Mapping[tuple[str, str], Mapping[str, float]]
    """(term, variant) -> factor of each coefficient."""


def make_plan(
    launch: Launch,
    hardware: HardwareConfig,
    *,
    kind: PlanKind = "base",
    models: Sequence[str] = (),
    repetitions: int = 1,
    page_cache: PageCache = "hot",
    compile_cache: CompileCache = "warm",
    prior: Profile | None = None,
) -> Plan:
    """The starts to measure.

    kind: ``base``, the command as it is; ``differential``, also eager and with dummy weights; ``quick``, one warm start of each model, which is what
    calibration needs at least; ``full``, the fewest starts that identify every coefficient that these models and states can tell apart. models: in the place
    of the command's own. Raises ConfigError for counts out of range.
    """
    if not 1 <= repetitions <= 100:
        raise ConfigError("repetitions", repetitions, "it should be from 1 to 100", "3 is plenty")
    if (models or kind != "base") and launch.engine is None:
        raise ConfigError(
            "plan", kind, "flags can only be added to the command of a known engine", "start vllm or sglang"
        )
    named: tuple[str | None, ...] = tuple(dict.fromkeys(models)) or (None,)
    base = [Step("base", model, page_cache, compile_cache) for model in named]
    warnings: list[str] = []
    if kind == "differential":
        variants = [("base", False, False), ("eager", True, False), ("dummy", False, True)]
        steps = [
            Step(name, model, page_cache, compile_cache, eager, dummy)
            for model in named
            for name, eager, dummy in variants
        ]
    elif kind == "full":
        steps, warnings = _fewest(launch, hardware, named, base, prior)
    else:
        steps = base
    repeated = [step._replace(repetition=count) for step in steps for count in range(1, repetitions + 1)]
    seconds, primed = [], set[tuple[str | None, bool]]()
    for step in repeated:
        needs = (
            step.compile_cache == "warm" and (step.model, step.eager) not in primed and compiles(launch, hardware, step)
        )
        primed.add((step.model, step.eager))
        starts = [step, *([step._replace(compile_cache="fresh")] if needs else [])]
        seconds.append(sum(_expected(launch, hardware, start, prior) for start in starts))
    return Plan(tuple(repeated), tuple(seconds), tuple(warnings))


def configuration(launch: Launch, step: Step) -> tuple[ModelConfig, EngineConfig]:
    """The model and the engine of a step. Raises StartupModelError when one of them is not known here."""
    if launch.engine is None:
        raise ConfigError("command", launch.label(), "it starts no engine that is known here", "give model and engine")
    name = step.model or launch.engine.model
    if name is None:
        raise ConfigError("command", launch.label(), "it names no model", "name one")
    folder = checkpoint_folder(name)
    engine = launch.engine.replace(
        page_cache="unknown" if step.page_cache == "as_is" else step.page_cache,
        compile_cache="cold" if step.compile_cache == "fresh" else "warm",
        **({"enforce_eager": True} if step.eager else {}),
        **({"load_format": "dummy"} if step.dummy else {}),
    )
    return as_model(str(folder) if folder is not None else name), engine


def compiles(launch: Launch, hardware: HardwareConfig, step: Step) -> bool:
    """Whether a start of a step runs torch.compile; True where nothing can be said."""
    try:
        model, engine = configuration(launch, step)
        return engine.resolve(model, hardware).compiles
    except StartupModelError:
        return True


def _expected(launch: Launch, hardware: HardwareConfig, step: Step, prior: Profile | None) -> float:
    """Seconds of one start of a step with what is around it; a minute where nothing can be said."""
    try:
        model, engine = configuration(launch, step)
        return predict(model, hardware, engine, profile=prior).total_s + _AROUND_S
    except StartupModelError:
        return 60.0


def _fewest(
    launch: Launch, hardware: HardwareConfig, models: Sequence[str | None], base: Sequence[Step], prior: Profile | None
) -> tuple[list[Step], list[str]]:
    """The base starts, and those that have to be added to identify what all candidates together would."""
    candidates = []
    for model, (page, compile_cache), (eager, dummy) in product(
        models, product(("hot", "cold"), ("warm", "fresh")), ((False, False), (True, False), (False, True))
    ):
        name = "eager" if eager else "dummy" if dummy else "base"
        parts = [name, *(["storage"] if page == "cold" else []), *(["compiling"] if compile_cache == "fresh" else [])]
        if (dummy and page == "cold") or (eager and compile_cache == "fresh"):
            continue  # nothing is read, nothing is compiled
        step = Step(" ".join(parts), model, page, compile_cache, eager, dummy)  # type: ignore[arg-type]
        try:
            candidates.append(
                _Candidate(step, _expected(launch, hardware, step, prior), _rows(launch, hardware, step, prior))
            )
        except StartupModelError:
            continue
    if not candidates:
        return list(base), [
            "the model is not known here: what a start would tell cannot be worked out, only the base is measured"
        ]
    chosen = [candidate for candidate in candidates if any(candidate.step == step for step in base)]
    rest = [candidate for candidate in candidates if candidate not in chosen]
    while rest:
        before = _rank(chosen)
        gains = [
            (_rank([*chosen, candidate]) - before, -candidate.seconds, -index) for index, candidate in enumerate(rest)
        ]
        best = max(gains)
        if best[0] <= 0:
            break
        chosen.append(rest.pop(-best[2]))
    return [candidate.step for candidate in chosen], []


def _rows(
    launch: Launch, hardware: HardwareConfig, step: Step, prior: Profile | None
) -> dict[tuple[str, str], dict[str, float]]:
    """What a start tells: for each of its terms the factor of each coefficient."""
    model, engine = configuration(launch, step)
    resolved = engine.resolve(model, hardware)
    known = prior or select_reference(engine.engine, resolved.generation, resolved.version, hardware).profile
    found = start_inputs(model, hardware, engine, known.host.numbers)
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for item in steps_of(find_pipeline(resolved.generation, resolved.version)):
        if item.phase not in _TERMS_APART and item.phase not in found.skipped:
            term, variant, factors = part_of(item.term, known, found, 1.0)
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
    total = 0
    for rows in tables.values():
        names = sorted({name for row in rows for name in row})
        matrix = np.array([[row.get(name, 0.0) for name in names] for row in rows])
        largest = np.abs(matrix).max(axis=0, initial=0.0)
        total += (
            int(np.linalg.matrix_rank(matrix / np.where(largest > 0, largest, 1.0), tol=1e-3)) if matrix.size else 0
        )
    return total
