"""The result of a prediction: seconds by phase, an interval, memory, and the words that explain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from startup_model.errors import UnknownNameError, out_of_range
from startup_model.evaluate import begins_of, check_probability, spread_factor, student_quantile
from startup_model.phases import INPUT_MEANINGS, ROLLUPS, roll_up
from startup_model.recipe import Call, Start
from startup_model.sizes.memory import MemoryBudget
from startup_model.units import format_bytes, format_seconds

SAFETY_FACTOR = 1.5
"""Policy factor between a predicted total and the SLO bound; 1.3 to 1.5 is usual."""


def check_safety_factor(factor: float) -> float:
    """The factor when it is one. Raises ConfigError below 1 or above 10."""
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1.0 <= factor <= 10.0:
        raise out_of_range("safety_factor", factor, "a number from 1 to 10", "1.3 to 1.5 is usual")
    return float(factor)


PHASE_SCATTER = 0.15
"""Standard deviation of the logarithm of one phase around its formula: the errors of single phases on held-out models lie between 2 and 15 % (tests of the
estimator), those of totals around 1 %."""


class PhasePrediction(NamedTuple):
    """One phase of a prediction."""

    phase: str
    seconds: float
    """What it adds to the total."""
    elapsed_s: float
    """How long it runs; more than ``seconds`` where it runs beside a longer phase."""
    calls: tuple[Call, ...]
    """The terms behind it; empty when flags switch the phase off."""
    spread: float = 0.0
    """Standard deviation of its logarithm, from what the host and the profile's host may have apart."""

    @property
    def source(self) -> str:
        """Where the coefficients come from: fitted, fixed, borrowed, or off when flags switch the phase off."""
        found = (source for call in self.calls for source in call.source.split(" + "))
        return " + ".join(dict.fromkeys(found)) or "off"

    @property
    def variant(self) -> str:
        """Which set of coefficients was used."""
        return self.calls[0].variant if self.calls else "off"


class Spread(NamedTuple):
    """How the logarithm of a total scatters."""

    host: float
    """Standard deviation that all phases share: the host is not quite that of the profile."""
    degrees: int
    """Degrees of freedom behind ``host``."""
    own: float
    """Standard deviation of what is independent of the host."""

    def factor(self, probability: float) -> float:
        """exp of the quantile of the logarithm."""
        host = student_quantile(probability, self.degrees) * self.host
        return float(spread_factor(host, student_quantile(probability, 0) * self.own, probability))


class Context(NamedTuple):
    """What all predictions of one start share."""

    start: Start
    model_name: str
    hardware_name: str
    engine_name: str
    pipeline_name: str
    """Engine and core whose order of phases the start takes."""
    waits: Mapping[str, tuple[str, ...]]
    """Phase -> the phases that it waits for, where phases overlap; empty where each waits for the one before it."""
    memory: MemoryBudget
    calibrated: bool
    interval_source: str
    warnings: tuple[str, ...]
    extrapolated: tuple[str, ...]
    """Of these, what lies outside the runs of the profile."""
    segments: Mapping[str, float]
    profile_name: str
    profile_reason: str
    inputs: Mapping[str, float]


@dataclass(frozen=True, slots=True, repr=False)
class StartupPrediction:
    """What ``predict`` returns. All times are seconds, all sizes bytes."""

    total_s: float
    """Process start to ready, and the segments that were asked for."""
    phases: Mapping[str, PhasePrediction]
    """By phase, in order; the ``seconds`` sum to ``total_s``. Keys may be plain strings."""
    interval: tuple[float, float]
    """(low, high) at ``level``."""
    level: float
    slo_bound_s: float
    """Safety factor x slowest prediction. A policy, kept apart from the interval."""
    safety_factor: float
    slowest_s: float
    """``total_s`` with caches of unknown state taken as cold: what ``slo_bound_s`` is a factor on."""
    spread: Spread
    context: Context

    def quantile(self, probability: float) -> float:
        """Seconds below which the start stays with this probability: 0.5 is the prediction, 0.9 and 0.99 are for autoscalers.

        Caches of unknown state count as cold above one half and as hot below. Raises ConfigError unless 0 < probability < 1 within what the
        spreads can say (0.0005 to 0.9995).
        """
        check_probability(probability)
        base = self.slowest_s if probability > 0.5 else self.total_s
        return base * self.spread.factor(probability)

    def phase_quantile(self, phase: str, probability: float) -> float:
        """Seconds [s] below which one phase stays with this probability: seconds × exp(z), z the quantile of host and own scatter together.

        A phase scatters more than the total, where errors make up for each other: its own standard deviation is at least ``PHASE_SCATTER`` [1].
        Raises UnknownNameError for a phase that the prediction does not have, ConfigError for a probability outside 0.0005 to 0.9995.
        """
        entry = next((entry for name, entry in self.phases.items() if name == phase), None)
        if entry is None:
            raise UnknownNameError("phase", str(phase), list(self.phases))
        check_probability(probability)
        if entry.phase in self.segments:  # scatters by itself, whatever the host
            return entry.elapsed_s * Spread(0.0, 1, entry.spread).factor(probability)
        own = max(self.spread.own, PHASE_SCATTER)
        return entry.elapsed_s * Spread(entry.spread, self.spread.degrees, own).factor(probability)

    @property
    def memory(self) -> MemoryBudget:
        """The memory of the device with the most weights, and the KV pool."""
        return self.context.memory

    @property
    def calibrated(self) -> bool:
        """False: the coefficients are those of a reference host."""
        return self.context.calibrated

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was assumed, what does not fit, and what lies outside the profile's runs."""
        return self.context.warnings

    @property
    def segments(self) -> Mapping[str, float]:
        """Segments outside the time to ready (provision, image_pull, container_start, first_request), whether added or
        not."""
        return self.context.segments

    @property
    def begins(self) -> Mapping[str, float]:
        """Phase -> when it begins [s]; phases that run side by side may begin together."""
        return begins_of({name: entry.elapsed_s for name, entry in self.phases.items()}, self.context.waits)

    @property
    def bottleneck(self) -> str:
        """Name of the phase that adds most."""
        return str(max(self.phases.values(), key=lambda entry: entry.seconds).phase)

    def rollup(self, name: str) -> dict[str, float]:
        """The same seconds by another cut: five_stages, six_steps, measured_six or four_segments; they sum to
        ``total_s``.

        Raises UnknownNameError for another name.
        """
        groups = ROLLUPS.get(name)
        if groups is None:
            raise UnknownNameError("rollup", name, ROLLUPS)
        return roll_up({phase: entry.seconds for phase, entry in self.phases.items()}, groups)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        total = self.total_s or 1.0
        return {
            "model": self.context.model_name,
            "hardware": self.context.hardware_name,
            "engine": self.context.engine_name,
            "pipeline": self.context.pipeline_name,
            "total_s": self.total_s,
            "interval": list(self.interval),
            "level": self.level,
            "interval_source": self.context.interval_source,
            "quantiles": {f"p{round(100 * p)}": self.quantile(p) for p in (0.5, 0.9, 0.99)},
            "slo_bound_s": self.slo_bound_s,
            "safety_factor": self.safety_factor,
            "slowest_s": self.slowest_s,
            "starts": self.memory.fits,
            "bottleneck": self.bottleneck,
            "phases": {
                str(phase): {
                    "seconds": entry.seconds,
                    "elapsed_s": entry.elapsed_s,
                    "share": entry.seconds / total,
                    "source": entry.source,
                    "variant": entry.variant,
                    "terms": [
                        {"formula": call.formula(), "numbers": call.numbers(), "seconds": call.seconds()}
                        for call in entry.calls
                    ],
                }
                for phase, entry in self.phases.items()
            },
            "rollups": {name: self.rollup(name) for name in ROLLUPS},
            "segments": {str(phase): seconds for phase, seconds in self.segments.items()},
            "memory": self.memory._asdict() | {"remedies": [remedy._asdict() for remedy in self.memory.remedies]},
            "inputs": dict(self.context.inputs),
            "calibrated": self.calibrated,
            "profile": self.context.profile_name,
            "profile_reason": self.context.profile_reason,
            "warnings": list(self.warnings),
        }

    def explain(self) -> str:
        """The prediction in words: each phase's formula, the same with its numbers, and what they come to."""
        low, high = self.interval
        context = self.context
        lines = [
            f"{context.model_name} on {context.hardware_name} with {context.engine_name}",
            self.headline(),
            f"{self.level:.0%} interval {format_seconds(low)} to {format_seconds(high)} ({context.interval_source})",
            self.slo_text(),
            f"profile {context.profile_name}: {context.profile_reason}",
            "",
        ]
        used = dict.fromkeys(
            name for entry in self.phases.values() for call in entry.calls for name in call.term.inputs
        )
        for entry in self.phases.values():
            lines += _explain_phase(entry)
        lines += [
            "",
            "inputs",
            *(
                f"    {name} = {context.inputs[name]:.6g}  ({INPUT_MEANINGS.get(name, 'input of a term')})"
                for name in used
            ),
        ]
        lines += ["", *_explain_memory(self.memory)]
        if self.warnings:
            lines += ["", "notes", *(f"  - {warning}" for warning in self.warnings)]
        return "\n".join(lines)

    def headline(self) -> str:
        """Whether and when the server is ready, in one line."""
        if not self.memory.fits:
            return f"does not start ({self.memory.status}, {format_bytes(self.memory.missing)} missing); it would take {format_seconds(self.total_s)}"
        return f"ready after {format_seconds(self.total_s)}, mostly {self.bottleneck}"

    def slo_text(self) -> str:
        """The SLO bound and what it is a factor on, in one line."""
        basis = "prediction" if self.slowest_s == self.total_s else f"{format_seconds(self.slowest_s)} with cold caches"
        return f"SLO bound {format_seconds(self.slo_bound_s)} = {self.safety_factor:g} × {basis} (a policy, not a quantile)"

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.context.model_name} on {self.context.hardware_name}: {self.headline()} "
            f"({self.level:.0%} interval {format_seconds(low)} to {format_seconds(high)})"
        )

    __repr__ = __str__


def _explain_phase(entry: PhasePrediction) -> Iterable[str]:
    if not entry.calls:
        yield f"{entry.phase} = 0 s (switched off by the flags)"
        return
    hidden = "" if entry.seconds == entry.elapsed_s else f"; {format_seconds(entry.elapsed_s)} beside a longer branch"
    yield f"{entry.phase} = {format_seconds(entry.seconds)} ({entry.source}, {entry.variant}{hidden})"
    for call in entry.calls:
        yield f"    {call.formula()}"
        yield f"    = {call.numbers()} = {call.seconds():.4g} s"


def _explain_memory(memory: MemoryBudget) -> Iterable[str]:
    yield f"memory of one device: {format_bytes(memory.gpu_memory)}"
    parts = {
        "weights": memory.weights,
        "activations": memory.activations,
        "non-torch": memory.non_torch,
        "graphs": memory.graphs,
        "KV cache": memory.kv_cache,
        "outside gpu_memory_utilization": memory.outside_budget,
        "left over" if memory.rounding >= 0 else "missing": memory.rounding,
    }
    yield "    " + " + ".join(f"{name} {format_bytes(value)}" for name, value in parts.items() if value)
    yield (
        f"    {memory.num_gpu_blocks} blocks of {format_bytes(memory.block_bytes)}, {memory.kv_cache_tokens} tokens, "
        f"{memory.max_concurrency:.2f} requests of full length at once: {memory.status}"
    )
    for remedy in memory.remedies:
        yield f"    {remedy.action} -> {remedy.status}"
