"""One run on trial: its figures beside the prediction, and what those beyond the limit mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from calibration.gate.figures import CACHES, Expectation, Figure, Forecast, Piece, figures_of, log_ratio, not_judged
from calibration.gate.report import TOTALS, Finding, GateRow
from calibration.gate.shift import Point, Shift, common_shift
from calibration.gate.states import find_states
from calibration.runs.record import RunRecord
from startup_model.phases import Phase
from startup_model.profile import Profile
from startup_model.units import format_seconds

__all__ = ["TELLING", "Rules", "Trial", "processor_words"]

LEAST_SHARE = 0.02
"""Share of the predicted total below which a phase does not count."""

TELLING = 0.2
"""A figure tells a common factor when the logarithm of its seconds is known to this."""

_SCATTER_S = 0.02
"""Scatter of a short phase between repeated starts, in seconds."""

_FARTHEST = 6.0
"""Largest logarithm of a ratio that a common factor is made of."""


class Rules(NamedTuple):
    """What counts as beyond, and what fails the gate."""

    profile: Profile
    factor: float
    phase_factor: float
    floor_s: float
    level: float
    fail_on: tuple[str, ...]

    def factor_of(self, figure: Figure) -> float:
        """Totals have a factor of their own."""
        return self.factor if figure.kind == "total" else self.phase_factor


class Line(NamedTuple):
    """One figure beside what is expected of it."""

    figure: Figure
    slow: Piece
    """With the slower of the states that are judged."""
    fast: Piece
    seen: Piece
    """With the states that the run shows."""

    @property
    def is_untouched(self) -> bool:
        """Whether it is the same in all states of the caches that are judged."""
        return self.slow.seconds <= 1.1 * self.fast.seconds

    @property
    def is_told(self) -> bool:
        """Whether it is known what to expect of it: it is the one that tells the state of a cache, or no cache touches it."""
        return self.figure.kind in ("phase", "sum") or self.is_untouched


def _lines(figures: Sequence[Figure], slow: Forecast, fast: Forecast, seen: Forecast) -> list[Line]:
    lines = []
    for figure in figures:
        one, other = slow.of(figure), fast.of(figure)
        if one.seconds < other.seconds:
            one, other = other, one
        lines.append(Line(figure, one, other, seen.of(figure)))
    return lines


class Trial:
    """One run, its figures, and what they mean."""

    def __init__(self, run: RunRecord, label: str, expectation: Expectation, rules: Rules) -> None:
        self.run, self.label, self._expectation, self._rules = run, label, expectation, rules
        slowest = expectation.forecast(tuple(cache.slow for cache in CACHES))
        fastest = expectation.forecast(tuple(cache.fast for cache in CACHES))
        self._known = slowest.adds
        figures = figures_of(run, slowest.adds)
        open_lines = _lines(figures, slowest, fastest, fastest)
        before = common_shift([*_points(line for line in open_lines if line.is_untouched)])
        self.states = find_states(figures, expectation, rules.phase_factor, before.factor if before.is_common else 1.0)
        self._states_seen = tuple(state.seen for state in self.states)
        slow = expectation.forecast(tuple(state.judged[-1] for state in self.states))
        fast = expectation.forecast(tuple(state.judged[0] for state in self.states))
        self.lines = _lines(figures, slow, fast, expectation.forecast(self._states_seen))
        self._least_s = max(rules.floor_s, LEAST_SHARE * slow.total.seconds)
        self.points = [*_points(line for line in self.lines if line.is_told)]
        self.shift = common_shift(self.points)
        self._processor_factor = self.shift.factor if self.shift.is_common else 1.0
        self.storage_factor = 1.0
        self.storage_factor = self._find_storage_factor()
        self._said = self._forecast_as_said()
        self.rows = tuple(map(self._row, self.lines))

    # --- the host -------------------------------------------------------------------------------------------------------

    def _find_storage_factor(self) -> float:
        """How much longer storage took for the bytes, where the load alone is beyond its limit; else 1."""
        parts = [line for line in self.lines if line.figure.kind != "total"]
        loads = [line for line in parts if Phase.WEIGHT_LOAD.value in line.figure.phases and line.figure.kind != "rest"]
        if len(loads) != 1 or len(self.points) < 2 or loads[0].slow.storage_s < 0.5 * loads[0].slow.seconds:
            return 1.0
        (load,) = loads
        is_steady = self.shift.is_common or abs(math.log(self.shift.factor)) <= math.log(1.1)
        if not is_steady or not self._beyond(load) or any(self._beyond(line) for line in parts if line is not load):
            return 1.0
        others_s = load.slow.shifted(self._processor_factor).seconds - load.slow.storage_s
        return max(0.01, (load.figure.measured_s - others_s) / load.slow.storage_s)

    # --- rows -----------------------------------------------------------------------------------------------------------

    def _counts(self, line: Line) -> bool:
        figure = line.figure
        if figure.kind == "total" and (figure.is_partial or figure.name == "total"):
            return True
        least_s = self._rules.floor_s if figure.kind == "total" else self._least_s
        return max(figure.measured_s, line.slow.seconds) >= least_s

    def _beyond(self, line: Line, *, as_drifted: bool = True) -> int:
        """1: slower than the limit; -1: faster; 0: within, or too short to count. ``as_drifted``: beyond what the host in the state that it shows would take as well."""
        if not self._counts(line):
            return 0
        figure = line.figure
        factor = self._rules.factor_of(figure)
        most, least = line.slow.seconds, line.fast.seconds
        if as_drifted and (self._processor_factor != 1.0 or self.storage_factor != 1.0):
            factors = (self._processor_factor, self.storage_factor)
            most, least = (
                max(most, line.slow.shifted(*factors).seconds),
                min(least, line.fast.shifted(*factors).seconds),
            )
        if figure.measured_s - figure.resolution_s > most * factor:
            return 1
        may_gain = self.run.status == "ok" and not figure.is_partial
        return -1 if may_gain and figure.measured_s + figure.resolution_s < least / factor else 0

    def _row(self, line: Line) -> GateRow:
        figure, slow, fast, _ = line
        return GateRow(
            run=self.label,
            phase=figure.name,
            measured_s=figure.measured_s,
            predicted_s=slow.seconds,
            fastest_s=fast.seconds,
            limit_s=slow.seconds * self._rules.factor_of(figure),
            interval_s=(fast.low_s, slow.high_s),
            resolution_s=figure.resolution_s,
            verdict=self._row_verdict(line),
        )

    def _row_verdict(self, line: Line) -> str:
        left = self._beyond(line)
        if left:
            return "regression" if left > 0 else "gain"
        if self._beyond(line, as_drifted=False):
            return "drift"
        figure = line.figure
        factor = self._rules.factor_of(figure)
        longest, shortest = figure.measured_s - figure.resolution_s, figure.measured_s + figure.resolution_s
        if self._said is not None and self._counts(line):
            said, shown = self._said.of(figure).seconds, line.seen.seconds
            if abs(said - shown) > 0.01 * shown and (longest > said * factor or shortest < said / factor):
                return "state"
        if figure.measured_s <= line.slow.seconds * factor:
            return "ok"
        return "unresolved" if self._counts(line) else "minor"

    def _forecast_as_said(self) -> Forecast | None:
        """The prediction with the states that the run says, where its times show others."""
        if not any(state.is_other for state in self.states):
            return None
        pairs = zip(self._expectation.said, self.states, strict=True)
        return self._expectation.forecast(tuple(said if state.is_other else state.judged[-1] for said, state in pairs))

    def verdict(self) -> str:
        """The gravest of what the rows say."""
        found = {row.verdict for row in self.rows}
        if any(state.is_other for state in self.states):
            found.add("state")
        return next((kind for kind in ("regression", "drift", "state", "gain") if kind in found), "ok")

    # --- words ----------------------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[Finding]:
        """What there is to say, the gravest first."""
        by_excess = sorted(self.rows, key=lambda row: row.predicted_s - row.measured_s)
        for row in by_excess:
            if row.verdict == "regression":
                yield self._finding("regression", row, self._regression_words(row))
        yield from self._drift()
        for state in self.states:
            if state.text:
                fails = "state" in self._rules.fail_on and state.is_other and state.seen == state.cache.slow
                yield Finding("state", self.label, state.cache.field, state.text, fails)
        for row in reversed(by_excess):
            if row.verdict == "gain":
                yield self._finding("gain", row, self._gain_words(row))
        for text in (
            *self._expectation.notes(self._states_seen),
            *not_judged(self.run, self._known, self._expectation.off),
        ):
            yield Finding("domain", self.label, "", text)

    def _finding(self, kind: str, row: GateRow, text: str) -> Finding:
        return Finding(kind, self.label, row.phase, text, kind in self._rules.fail_on, row.measured_s - row.predicted_s)

    def _regression_words(self, row: GateRow) -> str:
        times = f", {row.ratio:.2f} times the predicted {format_seconds(row.predicted_s)}" if row.ratio else ""
        text = f"{row.phase} took {format_seconds(row.measured_s)}{times} (limit {format_seconds(row.limit_s)}), {self._interval_words(row)}"
        is_total = row.phase in TOTALS
        return text + (self._cause_words() if is_total else self._hint(row.phase))

    def _interval_words(self, row: GateRow) -> str:
        high = row.interval_s[1]
        name = f"the {self._rules.level:.0%} interval of the profile (to {format_seconds(high)})"
        if row.measured_s > high:
            return f"{format_seconds(row.measured_s - high)} beyond {name}"
        return f"within {name}: its own error may be as large, more runs would narrow it"

    def _cause_words(self) -> str:
        """The phase that adds most to a total."""
        parts = [row for row in self.rows if row.phase not in TOTALS]
        worst = max(parts, key=lambda row: row.measured_s - row.predicted_s, default=None)
        if worst is not None and worst.measured_s > worst.predicted_s:
            return f"; mostly {worst.phase} ({worst.measured_s - worst.predicted_s:+.2f} s)"
        slower = [state.cache for state in self.states if state.judged == (state.cache.fast,)]
        hints = [f"{cache.field}: {cache.slow}" for cache in slower if cache.phase in self._known]
        return f"; no phase tells which. If {' or '.join(hints)} was so, say it" if hints else "; no phase tells which"

    def _hint(self, name: str) -> str:
        """What state of a cache might be behind a phase."""
        for state in self.states:
            if state.cache.phase in name.split(" + ") and state.judged == (state.cache.fast,):
                return f"; if the start {state.cache.slow_words}, say {state.cache.field}: {state.cache.slow}"
        return ""

    def _gain_words(self, row: GateRow) -> str:
        ratio = row.measured_s / row.fastest_s if row.fastest_s > 0 else 0.0
        return (
            f"{row.phase} took {format_seconds(row.measured_s)}, {ratio:.2f} times the predicted {format_seconds(row.fastest_s)}: "
            "the profile is stale, calibrate it again"
        )

    def _drift(self) -> Iterator[Finding]:
        moved = [row for row in self.rows if row.verdict == "drift"]
        slower = [row for row in moved if row.measured_s > row.limit_s]
        fails = bool(slower) and "drift" in self._rules.fail_on
        excess = max((row.measured_s - row.predicted_s for row in moved if row.phase == "total"), default=0.0)
        if self.shift.is_common:
            other = "" if self._expectation.stands_for_host else "; the node is not the profile's host"
            within = "" if moved else "; within the factor"
            yield Finding("drift", self.label, "", processor_words(self.shift, "") + other + within, fails, excess)
        if self.storage_factor != 1.0:
            row = next(row for row in self.rows if Phase.WEIGHT_LOAD.value in row.phase.split(" + "))
            text = (
                f"the load alone moved: {row.phase} took {format_seconds(row.measured_s)}, predicted {format_seconds(row.predicted_s)}, as if storage gave "
                f"{1.0 / self.storage_factor:.2f} times its bandwidth; all else is as predicted: same software, another state of the storage"
            )
            yield Finding("drift", self.label, row.phase, text, fails, row.measured_s - row.predicted_s)


def _points(lines: Iterable[Line]) -> Iterator[Point]:
    """How far the processor's part of each figure has moved, where the stamps tell."""
    for line in lines:
        figure, piece = line.figure, line.seen
        if figure.kind == "total" or not figure.is_apart or figure.is_partial:
            continue
        if piece.seconds <= 0 or piece.processor_s < 0.5 * piece.seconds:
            continue
        shortest = min(figure.measured_s, piece.seconds)
        resolution = (figure.resolution_s / math.sqrt(12.0) + _SCATTER_S) / max(shortest, 1e-9)
        if resolution <= TELLING:
            other = piece.seconds - piece.processor_s
            moved = log_ratio(max(figure.measured_s - other, 1e-3 * piece.processor_s), piece.processor_s)
            yield Point(figure.name, max(-_FARTHEST, min(_FARTHEST, moved)), 2.0 * resolution)


def processor_words(shift: Shift, where: str) -> str:
    """A common factor in words; ``where``: in front of it."""
    moved = shift.points - len(shift.apart)
    apart = f" (not {', '.join(shift.apart)})" if shift.apart else ""
    which = f"all {shift.points}" if not shift.apart else f"{moved} of {shift.points}"
    cause = (
        "another state of the host (clock, neighbours, power), or another host"
        if shift.factor > 1.0
        else "the host is faster than the profile's, calibrate it again"
    )
    return (
        f"{where}{which} processor-bound figures{apart} took about {shift.factor:.2f} times the predicted seconds (scatter {shift.scatter:.0%}): "
        f"same software, {cause}"
    )
