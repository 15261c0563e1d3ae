"""What a gate says: rows of measured against predicted seconds, findings in words, tables for people, JSON, and JUnit XML for build servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from pydantic import Field

from calibration.runs.record import RunRecord
from startup_model.errors import one_line
from startup_model.frozen import FrozenModel
from startup_model.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from calibration.gate.compare import CompareReport

KINDS: Mapping[str, str] = {
    "failed_start": "the server did not come up",
    "regression": "slower than the profile allows",
    "drift": "the host, not the software, is in another state",
    "state": "a cache was not warm or hot, or in another state than the run says",
    "gain": "faster than the profile allows: it is stale",
    "domain": "the profile says less about this start than about its own runs",
}
"""Kinds of findings, the most severe first -> what each means."""

FAIL_ON = ("failed_start", "regression", "drift", "state")
"""Kinds that fail the gate unless asked otherwise: of drift what is slower than the limit, of state a fast one that the run says and its times do not show."""

NOT_COUNTED: Mapping[str, str] = {
    "minor": "beyond the limit, but too short to count",
    "unresolved": "beyond the limit by less than the stamps of the run resolve",
}
"""Verdicts of rows that are above their limit and fail nothing -> what each means."""

TOTALS = frozenset({"total", "measured phases", "from the first line"})
"""Rows that hold all or most of a start."""

_MAX_TABLES, _MAX_ROWS, _MAX_FINDINGS = 5, 50, 20  # runs that are shown phase by phase, their rows and findings
_MAX_NAME = 300
_WRITTEN_ALONG = ("ratio", "moved_s", "passed")  # properties
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2, Char


def plain(value: Any) -> Any:
    """Plain JSON data of a value; of an object, under the names of its fields and of the properties that are written along."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    names = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    if names:
        along = [name for name in _WRITTEN_ALONG if isinstance(getattr(type(value), name, None), property)]
        return {name: plain(getattr(value, name)) for name in (*names, *along)}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


Factor = Annotated[float, Field(gt=1.0, le=1000.0)]


class Limits(FrozenModel):
    """How far two times may be apart."""

    factor: Factor  # 1.5 lets half as much again pass
    floor_s: Annotated[float, Field(ge=0.0, le=1e6)]  # what is shorter does not count


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
    predicted_s: float  # by the profile; where the state of a cache is unknown, with the slower one
    fastest_s: float  # the same with the faster state
    limit_s: float  # predicted_s × factor
    interval_s: tuple[float, float]  # what the profile's own errors allow, at the report's level
    resolution_s: float  # what the stamps of the run resolve of this figure
    verdict: str  # ok, regression, drift, state (explained by the state of a cache), gain, or one of ``NOT_COUNTED``

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where nothing was predicted."""
        return self.measured_s / self.predicted_s if self.predicted_s > 0 else None

    @property
    def excess_s(self) -> float:
        return self.measured_s - self.predicted_s


class Finding(NamedTuple):
    kind: str  # one of ``KINDS``
    run: str  # label of the run; empty: over all runs
    phase: str  # the phase or cache it is about; empty: the start as a whole
    text: str
    fails: bool = False  # whether it fails the gate
    excess_s: float = 0.0  # seconds measured beyond the prediction

    def line(self) -> str:
        return f"{self.kind.replace('_', ' ')}: {self.text}"


class RunVerdict(NamedTuple):
    label: str
    model: str
    hardware: str
    engine: str
    status: str
    verdict: str  # the most severe kind of its findings (domain aside), or ok
    rows: tuple[GateRow, ...]
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing about the run fails the gate."""
        return not any(finding.fails for finding in self.findings)

    @property
    def total(self) -> GateRow | None:
        """The row of the whole start, else of all phases that were measured."""
        return next((row for row in self.rows if row.phase in ("total", "measured phases")), None)

    def shown(self, *, alone: bool) -> Iterator[str]:
        """Lines of the findings to show; what a profile does not cover is said once for all runs where there are several."""
        return (finding.line() for finding in self.findings if alone or finding.kind != "domain")

    def outcome(self) -> str:
        if self.status != "ok" or self.total is None:
            return self.verdict if self.status == "ok" else f"status {self.status}"
        total = self.total
        which = "" if total.phase == "total" else f" for the {total.phase}"
        return f"{self.verdict}, {format_seconds(total.measured_s)}{which} against {format_seconds(total.predicted_s)} predicted"


class PhaseSummary(NamedTuple):
    runs: int
    median_ratio: float  # of measured over predicted, with the states that the runs show
    scatter: float  # standard deviation of the logarithm of that ratio, from the median absolute deviation
    beyond: int  # runs in which it is a regression


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
    runs_total: int
    runs_failed: int
    """Runs that do not pass."""
    counts: Mapping[str, int]
    """Kind -> runs with such a finding."""
    phases: Mapping[str, PhaseSummary]
    """Figure -> what all runs together say of it."""
    overall: tuple[Finding, ...]
    """Over all runs; empty for a single one."""
    runs: tuple[RunVerdict, ...]
    """Those that are listed: all, or the first thousand, the ones that fail before the others."""

    @property
    def rows(self) -> tuple[GateRow, ...]:
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
        lines = [self.headline(), *(finding.line() for finding in self.overall)]
        for run in self.runs:
            lines.append(f"{run.label}: {run.outcome()}")
            lines += [f"  {line}" for line in run.shown(alone=self.runs_total == 1)]
        if len(self.runs) < self.runs_total:
            lines.append(f"{self.runs_total - len(self.runs)} more runs are not listed")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data under the names of the attributes."""
        return plain(self)  # type: ignore[no-any-return]


def print_gate(console: Console, report: GateReport) -> None:
    """The outcome, what was found over all runs, and the runs that matter phase by phase."""
    from startup_model.cli.terminal import table_of

    alone = report.runs_total == 1
    if not alone:
        table = table_of(f"{report.runs_total} runs", "run", ">measured", ">predicted", ">ratio", "|verdict")
        runs = sorted(report.runs, key=lambda run: run.passed) if report.runs_total > _MAX_ROWS else report.runs
        for run in runs[:_MAX_ROWS]:
            cells = _numbers(run.total)[:3] if run.total else ("", "", "")
            table.add_row(run.label, *cells, run.verdict if run.status == "ok" else run.status)
        if report.runs_total > _MAX_ROWS:
            table.caption = f"{report.runs_total - min(len(runs), _MAX_ROWS)} more"
        console.print(table)
    for run in ([run for run in report.runs if not run.passed] or report.runs)[:_MAX_TABLES]:
        where = ", ".join(filter(None, (run.hardware, run.engine)))
        title = f"{run.label} ({where}), seconds" if where else run.label
        table = table_of(title, "phase", ">measured", ">predicted", ">ratio", ">limit", "|verdict")
        for row in run.rows[:_MAX_ROWS]:
            if row.phase == "total":
                table.add_section()
            table.add_row(row.phase, *_numbers(row), row.verdict)
        console.print(table)
        verdicts = {row.verdict for row in run.rows[:_MAX_ROWS]}
        legend = [f"{name}: {meaning}" for name, meaning in NOT_COUNTED.items() if name in verdicts]
        for line in [*legend, *[*run.shown(alone=alone)][:_MAX_FINDINGS]]:
            console.print(line, soft_wrap=True)
    for finding in report.overall[:_MAX_FINDINGS]:
        console.print(f"over all runs, {finding.line()}", soft_wrap=True)
    console.print(report.headline(), soft_wrap=True)


def print_compare(console: Console, report: CompareReport) -> None:
    """What moved, and the outcome."""
    from startup_model.cli.terminal import table_of

    title = f"{report.kind}: {report.old} -> {report.new}"
    table = table_of(title, "start", "phase", ">old s", ">new s", ">ratio", "|moved")
    before = ""
    for row in report.beyond[:_MAX_ROWS] or report.rows[:_MAX_ROWS]:
        case = "" if row.case == before else row.case  # said once
        table.add_row(case, row.phase, f"{row.old_s:.3f}", f"{row.new_s:.3f}", _ratio(row.ratio), row.direction)
        before = row.case
    console.print(table)
    for line in [*(f"note: {note}" for note in report.notes), report.headline()]:
        console.print(line, soft_wrap=True)


def _numbers(row: GateRow) -> list[str]:
    """Measured, predicted, ratio and limit."""
    digits = 3 if row.resolution_s < 0.1 else 2
    measured, predicted, limit = (f"{s:.{digits}f}" for s in (row.measured_s, row.predicted_s, row.limit_s))
    return [measured, predicted, _ratio(row.ratio), limit]


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


class _Case(NamedTuple):
    group: str
    name: str
    seconds: float
    lines: Iterable[str]
    failure: str = ""  # kind; empty where it passed
    is_skipped: bool = False


def gate_junit(report: GateReport) -> str:
    """JUnit XML of a report: one suite, one case for each figure of each listed run, one for each start, one for all runs together."""
    limits = {name: f"{getattr(report, name):g}" for name in ("factor", "phase_factor", "floor_s")}
    unlisted = report.runs_total - len(report.runs)
    numbers = {"runs": str(report.runs_total), "runs_not_listed": str(unlisted)}
    cases = [case for run in report.runs for case in _cases(run)]
    fails = [finding.kind for finding in report.overall if finding.fails]
    if report.passed or fails or unlisted:  # else the cases of the runs say it
        lines = [report.headline(), *(finding.line() for finding in report.overall)]
        cases.append(_Case("all runs", "gate", 0.0, lines, "" if report.passed else [*fails, "regression"][0]))
    return _junit("startup-model gate", {"profile": report.profile} | limits | numbers, cases)


def _cases(run: RunVerdict) -> Iterator[_Case]:
    """A case fails by a finding about its figure; those about the start as a whole fail the case of the start."""
    failing = [finding for finding in run.findings if finding.fails]
    told = set()
    for row in run.rows:
        words = [finding.line() for finding in run.findings if finding.phase == row.phase]
        is_explained = row.excess_s > 0 or row.verdict in ("state", "gain")
        kind = row.verdict if is_explained and row.verdict in {finding.kind for finding in failing} else ""
        told.add(kind)
        ratio = "nothing predicted" if row.ratio is None else f"{row.ratio:.2f} times the prediction"
        reason = f"{NOT_COUNTED[row.verdict]}: " if row.verdict in NOT_COUNTED else ""
        numbers = f"{reason}measured {row.measured_s:.3f} s, predicted {row.predicted_s:.3f} s, limit {row.limit_s:.3f} s: {ratio}"
        lines = [*words, numbers] if kind else [numbers, *words]
        yield _Case(run.label, row.phase, row.measured_s, lines, kind, is_skipped=bool(reason))
    left = [finding.kind for finding in failing if finding.kind not in told or not finding.phase]
    yield _Case(run.label, "start", 0.0, run.shown(alone=True), left[0] if left else "")


def compare_junit(report: CompareReport) -> str:
    """JUnit XML of a comparison: one case for each phase of each start."""
    properties = {"kind": report.kind, "old": report.old, "new": report.new, "factor": f"{report.factor:g}"}
    cases = [_Case(row.case, row.phase, row.new_s, [row.words()], row.direction) for row in report.rows]
    return _junit("startup-model gate --compare", properties, cases)


def _junit(title: str, properties: Mapping[str, str], cases: Iterable[_Case]) -> str:
    """One suite. Names are what they are, less what XML cannot hold."""
    suite = Element("testsuite")
    holder = SubElement(suite, "properties")
    for key, value in properties.items():
        SubElement(holder, "property", {"name": key, "value": _NO_XML.sub("", value)})
    counts, seconds = Counter[str](), 0.0
    for case in cases:
        group, name = (one_line(_NO_XML.sub("", text), _MAX_NAME) or "unnamed" for text in case[:2])
        element = SubElement(suite, "testcase", {"classname": group, "name": name, "time": f"{case.seconds:.3f}"})
        text = _NO_XML.sub("", "\n".join(case.lines))
        message = text.split("\n", 1)[0]
        if case.failure:
            SubElement(element, "failure", {"type": case.failure, "message": message}).text = text
        elif case.is_skipped:
            SubElement(element, "skipped", {"message": message})
        elif text:
            SubElement(element, "system-out").text = text
        counts.update(["tests"], failures=bool(case.failure), skipped=case.is_skipped and not case.failure)
        seconds += round(case.seconds, 3)
    numbers = {name: str(counts[name]) for name in ("tests", "failures", "errors", "skipped")}
    suite.attrib.update({"name": title, **numbers, "time": f"{seconds:.3f}"})
    root = Element("testsuites", dict(suite.attrib))
    root.append(suite)
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'
