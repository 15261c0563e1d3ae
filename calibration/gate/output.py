"""How the gate shows what it found: tables for people, JUnit XML for build servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from calibration.gate.compare import CompareReport
from calibration.gate.report import NOT_COUNTED, GateReport, GateRow, RunVerdict
from startup_model.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["compare_junit", "gate_junit", "print_compare", "print_gate"]

_MOST_TABLES = 5
"""Runs that are shown phase by phase."""
_MOST_ROWS = 50
_MOST_FINDINGS = 20
_LONGEST_NAME = 300

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold (section 2.2, Char)."""


# --- tables -------------------------------------------------------------------------------------------------------------


def print_gate(console: Console, report: GateReport) -> None:
    """The outcome, what was found over all runs, and the runs that matter phase by phase."""
    if report.runs_total > 1:
        console.print(_overview(report))
    shown = [run for run in report.runs if not run.passed] or list(report.runs)
    for run in shown[:_MOST_TABLES] if report.runs_total > 1 else shown:
        console.print(_run_table(run))
        for line in _legend(run):
            console.print(line, soft_wrap=True)
        for finding in [*run.told(alone=report.runs_total == 1)][:_MOST_FINDINGS]:
            console.print(finding.line(), soft_wrap=True)
    for finding in report.overall[:_MOST_FINDINGS]:
        console.print(f"over all runs, {finding.line()}", soft_wrap=True)
    console.print(report.headline(), soft_wrap=True)


def _overview(report: GateReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{report.runs_total} runs", title_justify="left")
    table.add_column("run", overflow="fold")
    for heading in ("measured", "predicted", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    failed_first = sorted(report.runs, key=lambda run: run.passed) if len(report.runs) > _MOST_ROWS else report.runs
    for run in failed_first[:_MOST_ROWS]:
        total = next((row for row in run.rows if row.phase in ("total", "measured phases")), None)
        cells = ("", "", "") if total is None else _numbers(total)[:3]
        verdict = run.verdict if run.status == "ok" else run.status
        table.add_row(Text(run.label), *cells, verdict)
    if report.runs_total > _MOST_ROWS:
        table.caption = f"{report.runs_total - min(len(report.runs), _MOST_ROWS)} more"
        table.caption_justify = "left"
    return table


def _run_table(run: RunVerdict) -> Table:
    from rich.table import Table
    from rich.text import Text

    where = ", ".join(filter(None, (run.hardware, run.engine)))
    table = Table(title=Text(f"{run.label} ({where}), seconds" if where else run.label), title_justify="left")
    table.add_column("phase", overflow="fold")
    for heading in ("measured", "predicted", "ratio", "limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in run.rows[:_MOST_ROWS]:
        if row.phase == "total":
            table.add_section()
        table.add_row(Text(row.phase), *_numbers(row), row.verdict)
    return table


def _legend(run: RunVerdict) -> Iterator[str]:
    """What the verdicts of a table mean that are no kinds of findings."""
    shown = {row.verdict for row in run.rows[:_MOST_ROWS]}
    return (f"{verdict}: {meaning}" for verdict, meaning in NOT_COUNTED.items() if verdict in shown)


def _numbers(row: GateRow) -> tuple[str, str, str, str]:
    digits = 3 if row.resolution_s < 0.1 else 2
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return f"{row.measured_s:.{digits}f}", f"{row.predicted_s:.{digits}f}", ratio, f"{row.limit_s:.{digits}f}"


def print_compare(console: Console, report: CompareReport) -> None:
    """What moved, and the outcome."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{report.kind}: {report.old} -> {report.new}"), title_justify="left")
    for heading in ("start", "phase"):
        table.add_column(heading, overflow="fold")
    for heading in ("old s", "new s", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("moved", no_wrap=True)
    shown = report.beyond[:_MOST_ROWS] or report.rows[:_MOST_ROWS]
    for i, row in enumerate(shown):
        case = "" if i and shown[i - 1].case == row.case else row.case  # said once
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        moved = "" if not row.is_beyond else "slower" if row.moved_s > 0 else "faster"
        table.add_row(Text(case), Text(row.phase), f"{row.old_s:.3f}", f"{row.new_s:.3f}", ratio, moved)
    console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)
    console.print(report.headline(), soft_wrap=True)


# --- JUnit --------------------------------------------------------------------------------------------------------------


class _Case(NamedTuple):
    """One test case."""

    group: str
    name: str
    seconds: float
    failure: str
    """Kind; empty: it passed."""
    text: str
    """Why it failed, or what there is to say about it."""
    is_skipped: bool = False


def gate_junit(report: GateReport) -> str:
    """JUnit XML of a report: one suite, one case for each figure of each listed run, one for each start, one for all runs together."""
    properties = {
        "profile": report.profile,
        "factor": f"{report.factor:g}",
        "phase_factor": f"{report.phase_factor:g}",
        "floor_s": f"{report.floor_s:g}",
        "runs": str(report.runs_total),
        "runs_not_listed": str(report.runs_total - len(report.runs)),
    }
    return _document("startup-model gate", _gate_cases(report), properties)


def _gate_cases(report: GateReport) -> Iterator[_Case]:
    for run in report.runs:
        yield from _run_cases(run)
    fails = [finding for finding in report.overall if finding.fails]
    text = "\n".join([report.headline(), *(finding.line() for finding in report.overall)])
    if report.passed:
        yield _Case("all runs", "gate", 0.0, "", text)
    elif fails or len(report.runs) < report.runs_total:  # else the cases of the runs say it
        yield _Case("all runs", "gate", 0.0, fails[0].kind if fails else "regression", text)


def _run_cases(run: RunVerdict) -> Iterator[_Case]:
    """A case fails by a finding about its figure; those about the start as a whole fail the case of the start."""
    failing = [finding for finding in run.findings if finding.fails]
    by_verdict = {finding.kind for finding in failing}
    told: set[str] = set()
    for row in run.rows:
        words = [finding.line() for finding in run.findings if finding.phase == row.phase]
        is_slow = row.measured_s > row.predicted_s or row.verdict == "state"
        kind = row.verdict if row.verdict in by_verdict and (is_slow or row.verdict == "gain") else ""
        told.add(kind)
        ratio = "nothing predicted" if row.ratio is None else f"{row.ratio:.2f} times the prediction"
        numbers = (
            f"measured {row.measured_s:.3f} s, predicted {row.predicted_s:.3f} s, limit {row.limit_s:.3f} s: {ratio}"
        )
        reason = f"{NOT_COUNTED[row.verdict]}: " if row.verdict in NOT_COUNTED else ""
        lines = [*words, f"{reason}{numbers}"] if kind else [f"{reason}{numbers}", *words]
        text = "\n".join(lines)
        yield _Case(run.label, row.phase, row.measured_s, kind, text, row.verdict in NOT_COUNTED)
    left = [finding for finding in failing if finding.kind not in told or not finding.phase]
    others = "\n".join(finding.line() for finding in run.findings)
    yield _Case(run.label, "start", 0.0, left[0].kind if left else "", others)


def compare_junit(report: CompareReport) -> str:
    """JUnit XML of a comparison: one case for each phase of each start."""
    cases = (
        _Case(
            row.case,
            row.phase,
            row.new_s,
            ("slower" if row.moved_s > 0 else "faster") if row.is_beyond else "",
            row.words(),
        )
        for row in report.rows
    )
    properties = {"kind": report.kind, "old": report.old, "new": report.new, "factor": f"{report.factor:g}"}
    return _document("startup-model gate --compare", cases, properties)


def _document(name: str, cases: Iterable[_Case], properties: dict[str, str]) -> str:
    """The suite as XML text; names are what they are, less what XML cannot hold."""
    suite = Element("testsuite", {"name": name})
    holder = SubElement(suite, "properties")
    for key, value in properties.items():
        SubElement(holder, "property", {"name": key, "value": _clean(value)})
    tests = failures = skipped = 0
    seconds = 0.0
    for case in cases:
        tests += 1
        seconds += case.seconds
        attributes = {"classname": _name(case.group), "name": _name(case.name), "time": f"{case.seconds:.3f}"}
        entry = SubElement(suite, "testcase", attributes)
        text = _clean(case.text)
        if case.failure:
            failures += 1
            message = text.split("\n", 1)[0]
            SubElement(entry, "failure", {"type": case.failure, "message": message}).text = text
        elif case.is_skipped:
            skipped += 1
            SubElement(entry, "skipped", {"message": text.split("\n", 1)[0]})
        elif text:
            SubElement(entry, "system-out").text = text
    counts = {"tests": tests, "failures": failures, "errors": 0, "skipped": skipped}
    suite.attrib.update({key: str(value) for key, value in counts.items()} | {"time": f"{seconds:.3f}"})
    root = Element("testsuites", dict(suite.attrib))
    root.append(suite)
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _clean(text: str) -> str:
    return _NO_XML.sub("", text)


def _name(text: str) -> str:
    return one_line(_clean(text), _LONGEST_NAME) or "unnamed"
