"""What a gate says: rows of measured against predicted seconds, findings in words, and whether all of it passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from calibration.runs.record import RunRecord
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.units import format_seconds

__all__ = [
    "FAIL_ON",
    "KINDS",
    "NOT_COUNTED",
    "TOTALS",
    "Candidate",
    "Finding",
    "GateReport",
    "GateRow",
    "PhaseSummary",
    "RunVerdict",
    "check_factor",
    "check_floor",
    "check_kinds",
]

KINDS: Mapping[str, str] = {
    "failed_start": "the server did not come up",
    "regression": "slower than the profile allows",
    "drift": "the host, not the software, is in another state",
    "state": "a cache was not warm or hot, or in another state than the run says",
    "gain": "faster than the profile allows: it is stale",
    "domain": "the profile says less about this start than about its own runs",
}
"""Kinds of findings, the gravest first -> what each means."""

FAIL_ON = ("failed_start", "regression", "drift", "state")
"""Kinds that fail the gate unless asked otherwise: of drift what is slower than the limit, of state a fast one that the run says and its times do not show."""

NOT_COUNTED: Mapping[str, str] = {
    "minor": "beyond the limit, but too short to count",
    "unresolved": "beyond the limit by less than the stamps of the run resolve",
}
"""Verdicts of rows that are above their limit and fail nothing -> what each means."""

TOTALS = frozenset({"total", "measured phases", "from the first line"})
"""Rows that hold all or most of a start."""

LARGEST_FACTOR = 1000.0
LARGEST_FLOOR_S = 1e6


class Candidate(NamedTuple):
    """A start that is to be judged."""

    run: RunRecord | None
    """None: it failed before its log said what was started."""
    label: str = ""
    """What it is called in the report; empty: its place and its model."""
    status: str = "ok"
    """How it ended, where there is no record."""
    evidence: str = ""
    """The line that the status rests on."""
    notes: tuple[str, ...] = ()
    """What was assumed about it."""


class GateRow(NamedTuple):
    """One measured figure beside the prediction."""

    run: str
    phase: str
    """A phase, several joined by +, ``rest`` (wall time that no other figure holds), ``total``, ``measured phases`` (where there is no wall time) or ``from the first line``
    (of a log, which begins some seconds after its process: a part of the total)."""
    measured_s: float
    predicted_s: float
    """By the profile; where the state of a cache is unknown, with the slower one."""
    fastest_s: float
    """The same with the faster state."""
    limit_s: float
    """predicted_s × factor."""
    interval_s: tuple[float, float]
    """What the profile's own errors allow, at the report's level."""
    resolution_s: float
    """What the stamps of the run resolve of this figure."""
    verdict: str
    """ok, regression, drift, state (explained by the state of a cache), gain, or one of ``NOT_COUNTED``."""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where nothing was predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return self._asdict() | {"interval_s": list(self.interval_s), "ratio": self.ratio}


class Finding(NamedTuple):
    """Something that was noticed."""

    kind: str
    """One of ``KINDS``."""
    run: str
    """Label of the run; empty: over all runs."""
    phase: str
    """The phase or cache it is about; empty: the start as a whole."""
    text: str
    fails: bool = False
    """Whether it fails the gate."""
    excess_s: float = 0.0
    """Seconds measured beyond the prediction."""

    def line(self) -> str:
        """The finding in one line."""
        return f"{self.kind.replace('_', ' ')}: {self.text}"


class RunVerdict(NamedTuple):
    """What is made of one run."""

    label: str
    model: str
    hardware: str
    engine: str
    status: str
    verdict: str
    """The gravest kind of its findings (domain aside), or ok."""
    rows: tuple[GateRow, ...]
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing about the run fails the gate."""
        return not any(finding.fails for finding in self.findings)

    def told(self, *, alone: bool) -> Iterator[Finding]:
        """Findings to show; what a profile does not cover is said once for all runs where there are several."""
        return (finding for finding in self.findings if alone or finding.kind != "domain")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return self._asdict() | {
            "passed": self.passed,
            "rows": [row.to_dict() for row in self.rows],
            "findings": [finding._asdict() for finding in self.findings],
        }


class PhaseSummary(NamedTuple):
    """One phase over all runs."""

    runs: int
    median_ratio: float
    """Of measured over predicted, with the states that the runs show."""
    scatter: float
    """Standard deviation of the logarithm of that ratio, from the median absolute deviation."""
    beyond: int
    """Runs in which it is a regression."""


@dataclass(frozen=True, slots=True)
class GateReport:
    """Measured starts against a profile. ``passed`` is what an exit status is made of."""

    passed: bool
    profile: str
    factor: float
    phase_factor: float
    floor_s: float
    level: float
    fail_on: tuple[str, ...]
    runs: tuple[RunVerdict, ...]
    """Those that are listed: all, or the first thousand, the ones that fail before the others."""
    runs_total: int
    runs_failed: int
    """Runs that do not pass."""
    overall: tuple[Finding, ...]
    """Over all runs; empty for a single one."""
    phases: Mapping[str, PhaseSummary]
    """Figure -> what all runs together say of it."""
    counts: Mapping[str, int]
    """Kind -> runs with such a finding."""

    @property
    def rows(self) -> tuple[GateRow, ...]:
        """The rows of all listed runs."""
        return tuple(row for run in self.runs for row in run.rows)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was noticed over all runs, then run by run."""
        return (*self.overall, *(finding for run in self.runs for finding in run.findings))

    def headline(self) -> str:
        """The outcome in one line."""
        outcome = "passed" if self.passed else "FAILED"
        runs = f"{self.runs_total} run{'s' if self.runs_total != 1 else ''}"
        failed = "" if self.passed else f"; {self.runs_failed} did not pass"
        phases = "" if self.phase_factor == self.factor else f" (phases {self.phase_factor:g})"
        return f"gate {outcome}: {runs} against profile {self.profile} at factor {self.factor:g}{phases}{failed}"

    def text(self) -> str:
        """The report in words, one line a finding."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The lines of ``text``."""
        yield self.headline()
        yield from (finding.line() for finding in self.overall)
        for run in self.runs:
            yield f"{run.label}: {_run_words(run)}"
            yield from (f"  {finding.line()}" for finding in run.told(alone=self.runs_total == 1))
        if len(self.runs) < self.runs_total:
            yield f"{self.runs_total - len(self.runs)} more runs are not listed"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        return {
            "passed": self.passed,
            "profile": self.profile,
            "factor": self.factor,
            "phase_factor": self.phase_factor,
            "floor_s": self.floor_s,
            "level": self.level,
            "fail_on": list(self.fail_on),
            "runs_total": self.runs_total,
            "runs_failed": self.runs_failed,
            "counts": dict(self.counts),
            "phases": {name: summary._asdict() for name, summary in self.phases.items()},
            "overall": [finding._asdict() for finding in self.overall],
            "runs": [run.to_dict() for run in self.runs],
        }


def _run_words(run: RunVerdict) -> str:
    """One line about a run: its total, or how it ended."""
    if run.status != "ok":
        return f"status {run.status}"
    total = next((row for row in run.rows if row.phase in ("total", "measured phases")), None)
    if total is None:
        return run.verdict
    which = "" if total.phase == "total" else f" for the {total.phase}"
    return f"{run.verdict}, {format_seconds(total.measured_s)}{which} against {format_seconds(total.predicted_s)} predicted"


# --- what callers may ask for -------------------------------------------------------------------------------------------


def check_factor(name: str, value: float) -> float:
    """``value`` when it is a factor that something may exceed. Raises ConfigError unless 1 < value <= 1000."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1.0 < value <= LARGEST_FACTOR:
        raise ConfigError(
            name, value, f"it should be a number above 1, up to {LARGEST_FACTOR:g}", "1.5 lets half as much again pass"
        )
    return float(value)


def check_floor(name: str, value: float) -> float:
    """``value`` when it is a floor in seconds. Raises ConfigError unless 0 <= value <= 10^6."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= LARGEST_FLOOR_S:
        raise ConfigError(name, value, f"it should be seconds from 0 to {LARGEST_FLOOR_S:g}", "0.5 is usual")
    return float(value)


def check_kinds(name: str, kinds: Iterable[str]) -> tuple[str, ...]:
    """``kinds`` when all are kinds of findings, in their order. Raises UnknownNameError or ConfigError."""
    if isinstance(kinds, str) or not isinstance(kinds, Iterable):
        raise ConfigError(name, kinds, "it should be a list of kinds", f"known: {', '.join(KINDS)}")
    given = set()
    for kind in kinds:
        if not isinstance(kind, str) or kind not in KINDS:
            raise UnknownNameError(name, str(kind), KINDS)
        given.add(kind)
    return tuple(kind for kind in KINDS if kind in given)
