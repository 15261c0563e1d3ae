"""Plans: a few starts that say what is wanted, in an order, with the time that they will take."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

from calibration.measure.fewest import fewest_steps
from calibration.measure.launch import Launch
from calibration.measure.steps import (
    Basis,
    CompileCache,
    Group,
    PageCache,
    Step,
    TorchCompile,
    engine_of,
    expected_s,
    keeps_graphs,
    runs_torch_compile,
)
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError
from startup_model.hardware import HardwareConfig
from startup_model.models.config import ModelConfig
from startup_model.profile import Profile

__all__ = ["Plan", "PlanKind", "make_plan"]

PlanKind = Literal["base", "differential", "quick", "full"]
_AROUND_S = 5.0
"""Seconds of a run that are no part of the start: the request, the end of the server, reading the checkpoint before it."""
_MOST_REPETITIONS = 100
_MOST_MODELS = 1000


class Plan(NamedTuple):
    """Steps in order, and what each is expected to take."""

    steps: tuple[Step, ...]
    seconds: tuple[float | None, ...]
    """Expected of the start of each step, with what is around it; None where nothing can be said."""
    compiling_s: tuple[float | None, ...] = ()
    """Of a start that comes before that of the step and is kept apart: 0.0 where none has to compile first."""
    warm_up: bool = True
    """Whether the first start of a session is kept apart, whatever it is: the files that it imports may come from storage."""
    warnings: tuple[str, ...] = ()

    @property
    def total_s(self) -> float | None:
        """Seconds that all of it will take; None where nothing can be said."""
        return self.remaining_s(())

    def remaining_s(self, done: Collection[int]) -> float | None:
        """Seconds that the steps will take that are not among ``done`` (places, from 0); None where nothing can be said."""
        pending = [place for place in range(len(self.steps)) if place not in done]
        known = [seconds for place in pending for seconds in self.starts_s(place, is_first=place == pending[0])]
        return None if None in known else sum(seconds for seconds in known if seconds is not None)

    def starts_s(self, place: int, *, is_first: bool) -> tuple[float | None, ...]:
        """Expected seconds of the starts of a step: one, or one that is kept apart and another one."""
        own = self.seconds[place]
        compiling = self.compiling_s[place] if place < len(self.compiling_s) else 0.0
        if compiling is None or compiling > 0:
            return (compiling, own)
        return (own, own) if is_first and self.warm_up else (own,)


def make_plan(
    launch: Launch,
    hardware: HardwareConfig,
    *,
    kind: PlanKind = "base",
    models: Sequence[str] = (),
    repetitions: int = 1,
    page_cache: PageCache = "hot",
    compile_cache: CompileCache = "warm",
    torch_compile: TorchCompile = "on",
    warm_up: bool = True,
    model: ModelConfig | None = None,
    prior: Profile | None = None,
) -> Plan:
    """The starts to measure.

    launch: the command; hardware: the node that it runs on. kind: ``base``, the command as it is; ``differential``, also eager and with dummy weights (what the
    command does already is not started twice); ``quick``, one warm start of each model, which is what calibration needs at least; ``full``, the fewest starts that
    identify every coefficient that these models and states can tell apart. models: names or folders in the place of the command's own. repetitions: starts of
    each kind, 1 to 100. page_cache (hot, cold, as_is), compile_cache (warm, fresh), torch_compile (on, off): the state of the base, see ``Step``. warm_up:
    whether the first start of a session is kept apart. model: what the command's model is, where its name is not known here. prior: the profile to expect times
    by; None: the nearest reference. Raises ConfigError for a word that is none, counts out of range, and variants of a program that is not known here.
    """
    _check(kind, models, repetitions, page_cache, compile_cache, torch_compile, warm_up)
    is_plain = not models and kind == "base" and torch_compile == "on"
    if launch.engine is None and not is_plain:
        raise ConfigError(
            "command", launch.label(), "flags can only be added to the command of a known engine", "start vllm or sglang, or choose --plan base"
        )  # fmt: skip
    named: tuple[str | None, ...] = tuple(dict.fromkeys(models)) or (None,)
    base = [Step(name, page_cache, compile_cache, torch_compile=torch_compile) for name in named]
    basis = Basis(launch, hardware, model, prior)
    warnings: list[str] = []
    if launch.out_of_reach is not None:
        warnings.append(
            f"{launch.out_of_reach} starts the server elsewhere: it ends only as far as {launch.out_of_reach} ends it, look whether it is gone"
        )
    steps = base
    if kind == "differential":
        steps = _differential(launch, base)
    elif kind == "full":
        try:
            steps = list(fewest_steps(base, basis))
        except StartupModelError as error:
            warnings.append(f"only the base is measured, what other starts would tell cannot be worked out: {error}")
    repeated = tuple(step._replace(repetition=count) for step in steps for count in range(1, repetitions + 1))
    seconds = tuple(_seconds(basis, step, warnings) for step in repeated)
    return Plan(repeated, seconds, tuple(_compiling(basis, repeated)), warm_up, tuple(dict.fromkeys(warnings)))


def _check(
    kind: object, models: Any, repetitions: object, page_cache: object, compile_cache: object, torch_compile: object, warm_up: object
) -> None:  # fmt: skip
    _check_word("plan", kind, get_args(PlanKind))
    _check_word("page_cache", page_cache, get_args(PageCache))
    _check_word("compile_cache", compile_cache, get_args(CompileCache))
    _check_word("torch_compile", torch_compile, get_args(TorchCompile))
    if isinstance(repetitions, bool) or not isinstance(repetitions, int) or not 1 <= repetitions <= _MOST_REPETITIONS:
        raise ConfigError(
            "repetitions", repetitions, f"it should be a whole number from 1 to {_MOST_REPETITIONS}", "3 is plenty"
        )
    if isinstance(models, str) or not isinstance(models, Sequence) or len(models) > _MOST_MODELS:
        raise ConfigError("models", models, f"it should be a list of up to {_MOST_MODELS} names", "give ['NAME', ...]")
    for name in models:
        if not isinstance(name, str) or not name.strip() or "\0" in name or name.startswith("-"):
            raise ConfigError("models", name, "it is no name of a model", "give names or folders")
    if not isinstance(warm_up, bool):
        raise ConfigError("warm_up", warm_up, "it should be True or False", "leave it out")


def _check_word(field: str, value: object, known: Sequence[str]) -> None:
    if not isinstance(value, str):
        raise ConfigError(field, value, "it should be a word", f"give {', '.join(known)}")
    if value not in known:
        raise UnknownNameError(field, value, known)


def _differential(launch: Launch, base: Sequence[Step]) -> list[Step]:
    """Base, eager and dummy weights of each model, without those that would start the same engine as one before."""
    found: dict[tuple[str | None, object], Step] = {}
    for step in base:
        for variant in (step, step._replace(eager=True), step._replace(dummy=True)):
            found.setdefault((variant.model, engine_of(launch, variant)), variant)
    return list(found.values())


def _seconds(basis: Basis, step: Step, warnings: list[str]) -> float | None:
    """Seconds of one start of a step with what is around it; None, and a warning, where nothing can be said."""
    try:
        return expected_s(basis, step) + _AROUND_S
    except StartupModelError as error:
        warnings.append(f"how long a start takes cannot be said: {error}")
        return None


def _compiling(basis: Basis, steps: Sequence[Step]) -> Iterator[float | None]:
    """Seconds of the start that has to compile before the first warm one of a group; 0.0 where none has to."""
    filled: set[Group] = set()
    for step in steps:
        is_first = step.group not in filled
        filled.add(step.group)
        needs_graphs = step.compile_cache == "warm" and keeps_graphs(basis.launch)
        if is_first and needs_graphs and runs_torch_compile(basis, step):
            yield _seconds(basis, step._replace(compile_cache="fresh"), [])
        else:
            yield 0.0
