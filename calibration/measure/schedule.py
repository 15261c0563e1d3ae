"""Schedules: a few cases (kinds of start) that say what is wanted, in an order, with the time that they will take."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from calibration.fit.rows import part_of
from calibration.measure.launch import Launch, engine_names
from calibration.measure.server import sees_listeners
from calibration.measure.states import CompileCache, Group, PageCache
from startup_model.engines import find
from startup_model.engines.config import LOAD_FORMATS, EngineConfig
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.predictor import as_model, predict
from startup_model.profile import Profile
from startup_model.recipe import Start, bind, prepare, recipe, version_of

ScheduleKind = Literal["base", "differential", "quick", "full"]
TorchCompile = Literal["on", "off"]
"""on: as the command has it."""
Seconds = float | None
"""None where nothing can be said."""
_AROUND_S = 5.0  # that a run takes beside its start: reading the checkpoint, the request, the end of the server


class Case(NamedTuple):
    """One kind of start that is to be measured."""

    model: str | None = None  # name or folder in the place of the command's own; None: that one
    page_cache: PageCache = "hot"  # where the checkpoint is when the server starts
    compile_cache: CompileCache = "warm"  # whether compiled graphs are there when the server starts
    eager: bool = False  # with the engine's flag for eager execution: no torch.compile, no graphs
    dummy: bool = False  # with weights that are made up: nothing is read
    torch_compile: TorchCompile = "on"  # off: with the flag that turns torch.compile off, where the engine would run it
    repetition: int = 1  # of this kind of start, from 1

    @property
    def name(self) -> str:
        """base, or what sets the case apart from the command as it is: eager, dummy, uncompiled."""
        flags = {"eager": self.eager, "dummy": self.dummy, "uncompiled": self.torch_compile == "off"}
        return " ".join(name for name, is_set in flags.items() if is_set) or "base"

    @property
    def group(self) -> Group:
        """Cases of one group share compiled graphs."""
        return (self.model, self.eager, self.torch_compile)

    def key(self, launch: Launch) -> str:
        """What tells cases apart when a schedule goes on: the command, and all of the above."""
        digest = hashlib.sha256(repr((launch.words, sorted(launch.environment.items()), *self)).encode()).hexdigest()
        return f"{self.name} {digest[:12]}"

    def words(self) -> str:
        """The case in words."""
        compiles = not self.eager and self.torch_compile == "on"
        parts = (
            self.name,
            self.model,
            "" if self.dummy else f"page cache {self.page_cache.replace('_', ' ')}",
            f"compile cache {self.compile_cache}" if compiles else "",
            f"repetition {self.repetition}" if self.repetition > 1 else "",
        )
        return ", ".join(filter(None, parts))


class ScheduleInputs(NamedTuple):
    """What a schedule is worked out from, and what its cases mean for command, model and engine."""

    launch: Launch  # the command
    hardware: HardwareConfig  # the node that it runs on
    model: ModelConfig | None = None  # what the command's model is, where its name is not known here
    prior: Profile | None = None  # the profile to expect times by; None: the nearest reference

    @property
    def keeps_graphs(self) -> bool:
        """Whether the server keeps compiled graphs for the next start: a variable may say that it does not."""
        return self.launch.engine is None or self.launch.engine.compile_cache != "cold"

    def fields(self, case: Case) -> dict[str, Any]:
        """Fields of the engine that a case sets."""
        fields: dict[str, Any] = {"enforce_eager": True} if case.eager else {}
        if case.dummy:
            fields["load_format"] = "dummy"
        if case.torch_compile == "off" and self.launch.engine is not None:
            fields |= find(self.launch.engine.engine).caches.off
        return fields

    def launch_of(self, case: Case) -> Launch:
        """The command with the flags of a case; its model is still the command's own. Raises ConfigError where they cannot be added."""
        return self.launch.changed(**self.fields(case))

    def engine(self, case: Case) -> EngineConfig | None:
        """The engine that a case starts; None for a program that is not known here."""
        if self.launch.engine is None:
            return None
        return self.launch.engine.replace(
            page_cache="unknown" if case.page_cache == "as_is" else case.page_cache,
            compile_cache="warm" if case.compile_cache == "warm" and self.keeps_graphs else "cold",
            **self.fields(case),
        )

    def reads_weights(self, case: Case) -> bool:
        """Whether a start of a case reads the checkpoint: with dummy weights none does."""
        engine = self.engine(case)
        return engine is None or LOAD_FORMATS[engine.load_format].reads_weights

    def configuration(self, case: Case) -> tuple[ModelConfig, EngineConfig]:
        """The model and the engine of a case. Raises ConfigError or InputFileError when one of them is not known here."""
        engine, command = self.engine(case), self.launch.redacted()
        if engine is None:
            raise ConfigError("command", command, "it starts no engine that is known here", f"start {engine_names()}")
        if self.model is not None:
            return self.model, engine
        name = case.model or engine.model
        if name is None:
            raise ConfigError("command", command, "it names no model", "name one in it, or give model=")
        try:
            return as_model(str(self.launch.checkpoint(case.model) or name)), engine
        except UnknownNameError:
            problem = "it is not in the catalogue, and not on this host: a record has to know its shape"
            remedy = "download it first, or name its folder (in Python: model=)"
            raise ConfigError("model", name, problem, remedy) from None

    def expected_s(self, case: Case) -> float:
        """Seconds from the start of the process to ready. Raises StartupModelError where nothing can be said."""
        model, engine = self.configuration(case)
        return predict(model, self.hardware, engine, profile=self.prior).total_s

    def compiles(self, case: Case) -> bool:
        """Whether a start of a case runs torch.compile; True where nothing can be said."""
        try:
            model, engine = self.configuration(case)
            return engine.resolve(model, self.hardware).compiles
        except StartupModelError:
            return True


class Schedule(NamedTuple):
    """Cases in order, and what each is expected to take."""

    cases: tuple[Case, ...]
    seconds: tuple[Seconds, ...]
    """Expected of the start of each case, with what is around it."""
    compiling_s: tuple[Seconds, ...] = ()
    """Of a start before that of the case, excluded as warm-up: 0.0 where none has to compile first."""
    warm_up: bool = True
    """Whether the first start of a session is excluded as warm-up, whatever it is: the files that it imports may come from storage."""
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Case, ...]:
        """Older name of ``cases``."""
        return self.cases

    @property
    def total_s(self) -> Seconds:
        """Seconds that all of it will take."""
        return self.remaining_s(())

    def remaining_s(self, done: Collection[int]) -> Seconds:
        """Seconds that the cases will take that are not among ``done`` (places, from 0)."""
        return _sum(seconds for _, seconds in self.ahead(done))

    def ahead(self, done: Collection[int]) -> list[tuple[int, Seconds]]:
        """Place and expected seconds of each start that is to come."""
        pending = [place for place in range(len(self.cases)) if place not in done]
        return [(at, seconds) for at in pending for seconds in self.starts_s(at, is_first=at == pending[0])]

    def starts_s(self, place: int, *, is_first: bool) -> tuple[Seconds, ...]:
        """Expected seconds of the starts of a case: one, or one that is excluded as warm-up and another one."""
        own = self.seconds[place]
        compiling = self.compiling_s[place] if place < len(self.compiling_s) else 0.0
        if compiling is None or compiling > 0:
            return (compiling, own)
        return (own, own) if is_first and self.warm_up else (own,)


class RemainingTime:
    """How long the rest of a schedule takes: what was expected of its starts, times how those that are over compare with what was expected of them.

    Times are seconds of one clock, given by the caller.
    """

    def __init__(self, schedule: Schedule, done: Collection[int], now: float) -> None:
        """done: places of the cases, from 0, that need no start."""
        self._ahead = schedule.ahead(done)
        self._spent = self._expected = 0.0  # of the starts of which something was expected
        self._taken: list[float] = []
        self._began = now

    def begin(self, now: float) -> None:
        """A start begins."""
        self._began = now

    def end(self, place: int, now: float, *, is_warm_up: bool) -> None:
        """A start of the case at ``place`` is over; ``is_warm_up``: another one of the same case follows."""
        of_case = [seconds for at, seconds in self._ahead if at == place]
        if not of_case:
            return
        following = [(place, of_case[-1])] if is_warm_up else []
        self._ahead = following + [start for start in self._ahead if start[0] != place]
        expected, taken = of_case[0 if is_warm_up else -1], now - self._began
        self._taken.append(taken)
        if expected is not None:
            self._spent, self._expected = self._spent + taken, self._expected + expected
        self._began = now

    def left_s(self, now: float) -> Seconds:
        """Seconds until the schedule is done, at the pace so far; where nothing was expected, a start takes as long as those before on average."""
        pace = self._spent / self._expected if self._expected > 0 else 1.0
        mean = sum(self._taken) / len(self._taken) if self._taken else None
        this, *others = [mean if seconds is None else seconds * pace for _, seconds in self._ahead] or [0.0]
        return None if this is None else _sum([max(0.0, this - (now - self._began)), *others])


def _sum(seconds: Iterable[Seconds]) -> Seconds:
    found = list(seconds)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


_ModelName = Annotated[str, Field(pattern=r"^\s*[^-\s\x00][^\x00]*$")]


class ScheduleOptions(FrozenModel):
    """What is to be measured."""

    plan: ScheduleKind = "base"
    """``base``, the command as it is; ``differential``, also eager and with dummy weights (what the command does already is not started twice); ``quick``, one warm
    start of each model, which is what calibration needs at least; ``full``, the fewest starts that identify every coefficient that these models and states can tell apart."""
    models: Annotated[tuple[_ModelName, ...], Field(strict=False, max_length=1000)] = ()
    """Names or folders in the place of the command's own."""
    repetitions: Annotated[int, Field(ge=1, le=100)] = 1
    """Starts of each kind."""
    page_cache: PageCache = "hot"
    compile_cache: CompileCache = "warm"
    torch_compile: TorchCompile = "on"
    """The state of the base, as of ``Case``."""
    warm_up: bool = True
    """Whether the first start of a session is excluded as warm-up."""


def make_schedule(inputs: ScheduleInputs, options: ScheduleOptions) -> Schedule:
    """The starts to measure. Raises ConfigError for variants of a program that is not known here."""
    launch, kind = inputs.launch, options.plan
    is_plain = not options.models and kind == "base" and options.torch_compile == "on"
    if launch.engine is None and not is_plain:
        problem = "flags can only be added to the command of a known engine"
        raise ConfigError("command", launch.redacted(), problem, f"start {engine_names()}, or choose --plan base")
    base = [
        Case(name, options.page_cache, options.compile_cache, torch_compile=options.torch_compile)
        for name in dict.fromkeys(options.models) or (None,)
    ]
    warnings: list[str] = []
    if (program := launch.external_launcher) is not None:
        end = f"it ends only as far as {program} ends it, look whether it is gone"
        warnings.append(f"{program} starts the server elsewhere: {end}")
    if not sees_listeners():
        unchecked = "whether another program answers in the place of the server is not checked"
        warnings.append(f"psutil is not installed: {unchecked}; pip install 'startup-model[profile]'")
    cases = base
    if kind == "differential":
        variants = ((case, case._replace(eager=True), case._replace(dummy=True)) for case in base)
        cases = _distinct(inputs, chain.from_iterable(variants))
    elif kind == "full":
        try:
            cases = fewest_cases(base, inputs)
        except StartupModelError as error:
            warnings.append(f"only the base is measured, other starts cannot be worked out: {error}")
    repeated = tuple(case._replace(repetition=count) for case in cases for count in range(1, options.repetitions + 1))
    seconds = tuple(_seconds(inputs, case, warnings) for case in repeated)
    compiling = tuple(_compiling(inputs, repeated))
    return Schedule(repeated, seconds, compiling, options.warm_up, tuple(dict.fromkeys(warnings)))


def _distinct(inputs: ScheduleInputs, cases: Iterable[Case]) -> list[Case]:
    """Without those that would start the same engine as one before."""
    found: dict[tuple[str | None, object], Case] = {}
    for case in cases:
        found.setdefault((case.model, inputs.engine(case)), case)
    return list(found.values())


def _seconds(inputs: ScheduleInputs, case: Case, warnings: list[str]) -> Seconds:
    """Of one start with what is around it; None, and a warning, where nothing can be said."""
    try:
        return inputs.expected_s(case) + _AROUND_S
    except StartupModelError as error:
        warnings.append(f"the start-up time cannot be estimated: {error}")
        return None


def _compiling(inputs: ScheduleInputs, cases: Sequence[Case]) -> Iterator[Seconds]:
    """Of the start that has to compile before the first warm one of a group; 0.0 where none has to."""
    filled: set[Group] = set()
    for case in cases:
        is_first = case.group not in filled
        filled.add(case.group)
        has_to = is_first and case.compile_cache == "warm" and inputs.keeps_graphs and inputs.compiles(case)
        yield _seconds(inputs, case._replace(compile_cache="fresh"), []) if has_to else 0.0


_Rows = Mapping[tuple[str, str], Mapping[str, float]]  # (term, variant) -> factor of each coefficient


def fewest_cases(base: Sequence[Case], inputs: ScheduleInputs) -> list[Case]:
    """The base, and the cases that have to be added to identify what all its variants together would.

    A measured phase is linear in its coefficients: a start adds one row of factors for each of its terms. Next comes the start that raises the rank of these rows most, the
    shorter one of equals, until none raises it. Of a model, eager starts come first, the shortest, since the first start of a session may be made twice; then those that fill
    a fresh compile cache: later ones find their graphs there. Raises StartupModelError where the model or the engine is not known here.
    """
    cases, known = list(base), [_rows(inputs, case) for case in base]
    free = {case._replace(compile_cache="fresh") for case in base}  # one of the graphs of a warm start compiles anyway
    pages = dict.fromkeys((base[0].page_cache, "hot", "cold"))
    variants = (
        case._replace(page_cache=page, compile_cache=cache, eager=flag == "eager", dummy=flag == "dummy")
        for case, page, cache, flag in product(base, pages, ("fresh", "warm"), ("", "eager", "dummy"))
        if (flag, page) != ("dummy", "cold") and (flag, cache) != ("eager", "fresh")  # nothing is read, nor compiled
    )
    rest = [
        (case, 0.0 if case in free else inputs.expected_s(case), _rows(inputs, case))
        for case in _distinct(inputs, [*base, *variants])[len(base) :]
    ]
    while rest:
        before = _rank(known)
        gain, _, i = max((_rank([*known, rows]) - before, -seconds, -i) for i, (_, seconds, rows) in enumerate(rest))
        if gain <= 0:
            break
        case, _, rows = rest.pop(-i)
        cases.append(case)
        known.append(rows)
    models = [case.model for case in base]
    return sorted(cases, key=lambda case: (models.index(case.model), not case.eager, case.compile_cache != "fresh"))


def _rows(inputs: ScheduleInputs, case: Case) -> _Rows:
    """What a start tells: for each of its terms the factor of each coefficient."""
    model, engine = inputs.configuration(case)
    profile = inputs.prior or prepare(Start(model, inputs.hardware, engine)).profile
    found = recipe(model, inputs.hardware, engine, profile.host, version_of(engine, profile))
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for call in chain.from_iterable(bind(found, profile).phases.values()):
        term, variant, factors = part_of(call)
        row = rows.setdefault((term, variant), {})
        for name, factor in factors:
            row[name] = row.get(name, 0.0) + factor
    return rows


def _rank(starts: Iterable[_Rows]) -> int:
    """How many coefficients the starts tell apart, term by term."""
    tables: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for key, row in chain.from_iterable(rows.items() for rows in starts):
        tables.setdefault(key, []).append(row)
    rank = 0
    for rows in tables.values():
        names = sorted(set().union(*rows))
        matrix = np.array([[row.get(name, 0.0) for name in names] for row in rows])
        if matrix.size:
            largest = np.abs(matrix).max(axis=0)
            rank += int(np.linalg.matrix_rank(matrix / np.where(largest > 0, largest, 1.0), tol=1e-3))
    return rank


Plan = Schedule
"""Older name."""
