"""The phases of one start: a waterfall of a prediction, a timeline of a prediction or a log."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from startup_model.engines.logtable import log_tables
from startup_model.errors import missing, out_of_range, wrong_type
from startup_model.formula import FloatArray
from startup_model.phases import BEFORE_ENGINE, PHASES
from startup_model.plots import canvas
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNATTRIBUTED = "unattributed"
_MAX_PHASES, _MAX_MOMENTS = 64, 10_000
_MAX_RANKS = 16  # processes with a row of their own; of more the slowest


class Span(NamedTuple):
    """One bar over time."""

    name: str
    begin_s: float
    counted_s: float  # what it adds to the total
    elapsed_s: float  # how long it runs; more where it runs beside something longer

    @property
    def end_s(self) -> float:
        return self.begin_s + max(self.counted_s, self.elapsed_s)


class Row(NamedTuple):
    """A row of bars with a name at the left and a text behind the last bar."""

    label: str
    spans: tuple[Span, ...]
    text: str = ""
    height: float = 0.8

    @property
    def end_s(self) -> float:
        return max((span.end_s for span in self.spans), default=0.0)


class Stage(NamedTuple):
    """A phase of a log: how long it took, and when the line that ended it was stamped."""

    label: str
    seconds: float
    stamp_s: float | None
    is_derived: bool = False


def waterfall(prediction: StartupPrediction, ax: Axes | None = None) -> Axes:
    """The phases of a prediction one after the other: each bar begins where the last ended and is as long as its seconds; total and interval below.

    What runs beside a longer phase is pale, from where it begins: it takes ``elapsed_s``, and adds ``seconds`` to the total. Phases that flags switch
    off are left out. An interval that goes far beyond the total ends in an arrow. Raises ConfigError for what is no prediction.
    """
    total = canvas.prediction_of(prediction).total_s
    phases = _prediction_rows(prediction)
    rows = [*phases, Row("total", (Span("total", 0.0, total, total),), format_seconds(total))]
    ax, size, width = _row_axes(ax, [*(row.label for row in rows), f"{100 * prediction.level:g} % interval"])
    right = max(_right_edge(rows, size, width), 1.03 * min(prediction.interval[1], 1.6 * total))
    ax.set_xlim(0.0, right)
    _draw_rows(ax, phases, size)
    steps = np.arange(len(phases) - 1)
    ax.vlines([row.end_s for row in phases[:-1]], steps + 0.4, steps + 0.6, colors=canvas.text_color(ax), linewidth=0.6)
    ax.barh(len(phases), total, 0.8, color=canvas.text_color(ax), alpha=0.7)
    write_beside(ax, total, len(phases), rows[-1].text, size)
    _draw_interval(ax, len(rows), prediction.interval, size, right / width)
    finish_rows(ax, ["seconds"], [canvas.title_of(prediction)], width)
    return ax


def _draw_interval(ax: Axes, row: float, interval: tuple[float, float], size: float, seconds_per_point: float) -> None:
    low, high = interval
    right = ax.get_xlim()[1]
    ink, end = canvas.text_color(ax), min(high, right)
    ax.plot([low, end], [row, row], color=ink, linewidth=2.0, solid_capstyle="butt")
    ax.plot([low], [row], marker="|", color=ink, markersize=size)
    marker, length = ("|", size) if high <= right else (">", 0.8 * size)
    ax.plot([end], [row], marker=marker, color=ink, markersize=length, clip_on=high <= right)
    text = f"{format_seconds(low).removesuffix(' s')} to {format_seconds(high)}"
    needed = (canvas.text_width(text, size) + 8.0) * seconds_per_point
    at_left = right - end < needed <= low
    write_beside(ax, end if right - end >= needed else low, row, text, size, at_left=at_left)


def timeline(start: Any, ax: Axes | None = None) -> Axes:
    """When each phase of a start ran: of a parsed log over the seconds since its first line, of a prediction since its process began.

    start: a prediction, or anything with ``phases`` (name -> seconds; several names may be joined by +), such as a ParsedStartup. A bar is as long as
    its phase took. Bars of a log keep the order of the phases and do not overlap; each lies as near as that allows to the stamp of the line that ended it,
    and what is left between them is unattributed. Without stamps they lie end to end. If the phases take longer together than the start did, each ends at
    its stamp, and they overlap. ~ before a figure: no line prints it, it is the time between two stamps. Where several processes print figures
    of their own, each has a row, from when the phase begins. Raises ConfigError for what has no phases, or times that are none.
    """
    ready: float | None
    if isinstance(start, StartupPrediction):
        rows, ready, moments = _prediction_rows(start), start.total_s, {}
        since = "the start" if rows and rows[0].label in BEFORE_ENGINE else "process start"
        title, ready_word = canvas.title_of(start), "total"
    else:
        rows = _logged_rows(start)
        ready, moments = _optional_seconds(start, "wall_s"), _moments_of(start)
        rows += _rank_rows(start, rows)
        since, title, ready_word = _origin(start), _start_title(start), "ready after"
    if not rows:
        raise missing("phases", "none of them took any time", "give a start with phases")
    ax, size, width = _row_axes(ax, [row.label for row in rows] + (["lines that were read"] if moments else []))
    ax.set_xlim(0.0, max(_right_edge(rows, size, width), 1.02 * max([ready or 0.0, *moments.values()])))
    _draw_rows(ax, rows, size)
    if moments:
        ax.plot(list(moments.values()), [len(rows)] * len(moments), "|", color=canvas.text_color(ax), markersize=size)
    if ready is not None:
        ax.axvline(ready, color=canvas.text_color(ax), linewidth=1.0, linestyle=":")
        title = f"{title}: {ready_word} {format_seconds(ready)}"
    derived = "; ~ from stamps" if any(row.text.startswith("~") for row in rows) else ""
    words = (f"seconds since {since}{derived}", f"seconds{derived}", "seconds")
    finish_rows(ax, words, [title], width)
    return ax


def _prediction_rows(prediction: StartupPrediction) -> list[Row]:
    rows = []
    for name, begin in prediction.begins.items():
        counted, elapsed = prediction.phases[name].seconds, prediction.phases[name].elapsed_s
        text = format_seconds(counted)
        if counted < elapsed:
            text = f"{text} of {format_seconds(elapsed)}" if counted else f"{format_seconds(elapsed)}, hidden"
        if elapsed > 0.0:
            rows.append(Row(str(name), (Span(str(name), begin, counted, elapsed),), text))
    return rows


def _start_title(start: Any) -> str:
    parts = [getattr(start, name, None) for name in ("model", "engine", "engine_version")]
    names = [part if isinstance(part, str) else getattr(part, "name", getattr(part, "engine", None)) for part in parts]
    status = getattr(start, "status", "ok")
    return " ".join(str(name) for name in names if name) + ("" if status == "ok" else f", {status}") or "start"


def _origin(start: Any) -> str:
    of_record = getattr(start, "measured_from", "first_line") == "process_start"
    return "process start" if getattr(start, "from_process_start", of_record) is True else "the first line"


def _optional_seconds(start: Any, name: str) -> float | None:
    value = getattr(start, name, None)
    return None if value is None else canvas.seconds_of(value, name)


def _part(start: Any, name: str, kind: type[Any]) -> Any:
    """An attribute of a parsed log, empty where it has none."""
    value = getattr(start, name, None)
    if value is not None and (not isinstance(value, kind) or isinstance(value, str | bytes)):
        raise wrong_type(name, value, f"a {kind.__name__}, as a parsed log has there", "give what parse_log returns")
    return value or ()


def _moments_of(start: Any) -> dict[int, float]:
    moments = list(_part(start, "moments", Sequence))[:_MAX_MOMENTS]
    pairs = ((getattr(moment, "line_number", None), getattr(moment, "elapsed_s", None)) for moment in moments)
    return {line: canvas.seconds_of(stamp, "moments") for line, stamp in pairs if isinstance(line, int)}


def _read_stages(start: Any) -> tuple[list[Stage], float]:
    """The phases of a log in order, and the seconds that none of them holds."""
    phases = getattr(start, "phases", None)
    if not isinstance(phases, Mapping):
        raise wrong_type("start", start, "something with phases", "give a prediction or what parse_log returns")
    if not 1 <= len(phases) <= _MAX_PHASES:
        raise out_of_range("number of phases", len(phases), f"1 to {_MAX_PHASES}", "give a start with phases")
    seconds = {str(name): canvas.seconds_of(value, f"phases.{name}") for name, value in phases.items()}
    lost = seconds.pop(_UNATTRIBUTED, 0.0)
    stamps, derived = _moments_of(start), _part(start, "derived", Collection)
    lines, joint, facts = (dict(_part(start, name, Mapping)) for name in ("phase_evidence", "joint", "facts"))
    stages = []
    for name, value in seconds.items():
        label = "+".join(map(str, joint[name])) if isinstance(joint.get(name), list | tuple) else name
        stages.append(Stage(label, value, stamps.get(getattr(lines.get(name), "line_number", -1)), name in derived))
    if download := canvas.seconds_of(facts.get("download_s", 0.0), "facts.download_s"):
        before = next((i for i, stage in enumerate(stages) if stage.label == "weight_load"), len(stages))
        stages.insert(before, Stage("download", download, None))
    return stages, lost


def _logged_rows(start: Any) -> list[Row]:
    stages, lost_s = _read_stages(start)
    taken = sum(stage.seconds for stage in stages)
    stamps = [stage.stamp_s for stage in stages if stage.stamp_s is not None]
    wall = _optional_seconds(start, "wall_s")
    whole = taken + lost_s if wall is None else wall
    slack = (_optional_seconds(start, "stamp_resolution_s") or 1.0) * (len(stages) + 1)
    if stamps and wall is not None and taken > 1.01 * wall + slack:
        ends = [max(wall if stage.stamp_s is None else stage.stamp_s, stage.seconds) for stage in stages]
    else:
        gaps = _gaps(stages, max(0.0, (whole if wall is not None else max([whole, *stamps])) - taken))
        ends = list(np.cumsum([stage.seconds for stage in stages]) + gaps)
    spans = [Span(s.label, float(end) - s.seconds, s.seconds, s.seconds) for s, end in zip(stages, ends, strict=True)]
    rows = [
        Row(stage.label.replace("+", " + "), (span,), "~" * stage.is_derived + format_seconds(stage.seconds))
        for stage, span in zip(stages, spans, strict=True)
        if stage.seconds
    ]
    if lost_s:
        rows.append(Row(_UNATTRIBUTED, _holes(spans, whole), format_seconds(lost_s)))
    return rows


def _gaps(stages: Sequence[Stage], most_s: float) -> FloatArray:
    """Seconds in which nothing is known to run, before the end of each stage: never less than before the stage before it, from 0 to ``most_s``, and as
    near to what the stamps say as that allows (isotonic least squares, Barlow et al. 1972)."""
    from scipy.optimize import isotonic_regression

    ends, gaps = np.cumsum([stage.seconds for stage in stages]), np.zeros(len(stages))
    if stamped := [i for i, stage in enumerate(stages) if stage.stamp_s is not None]:
        free = np.array([stages[i].stamp_s for i in stamped], dtype=float) - ends[stamped]
        for i, gap in zip(stamped, isotonic_regression(free).x, strict=True):
            gaps[i:] = gap
    return np.clip(gaps, 0.0, most_s)


def _holes(spans: Sequence[Span], whole: float) -> tuple[Span, ...]:
    begins, ends = [*(span.begin_s for span in spans), whole], [0.0, *(span.end_s for span in spans)]
    holes = ((end, begin - end) for end, begin in zip(ends, begins, strict=True))
    return tuple(Span(_UNATTRIBUTED, at, length, length) for at, length in holes if length > 1e-6)


def _rank_rows(start: Any, rows: Sequence[Row]) -> list[Row]:
    begins = {span.name.partition("+")[0]: span.begin_s for row in rows for span in row.spans[:1]}
    found, ranks = [], dict(_part(start, "ranks", Mapping))
    alternatives = {phase: facts for phase, facts in _printed_facts().items() if phase in begins} if ranks else {}
    for name, figures in ranks.items():
        given = figures if isinstance(figures, Mapping) else {}
        spans: list[Span] = []
        for phase, sums in alternatives.items():
            end = begins[phase]
            for fact in next((facts for facts in sums if given.keys() & set(facts)), ()):
                if seconds := canvas.seconds_of(given.get(fact, 0.0), f"ranks.{fact}"):
                    spans.append(Span(phase, end, seconds, seconds))
                    end += seconds
        if spans:
            found.append(Row(str(name) or "main process", tuple(spans), height=0.5))
    if len(found) <= _MAX_RANKS:
        return found if len(found) > 1 else []
    slowest = sorted(found, key=lambda row: -sum(span.elapsed_s for span in row.spans))[:_MAX_RANKS]
    return [Row(f"slowest of {len(found)} processes:", ()), *(row for row in found if row in slowest)]


def _printed_facts() -> dict[str, list[tuple[str, ...]]]:
    """Phase -> sets of figures of logs; the first that is there is its duration."""
    figures = [figure for table in log_tables().values() for figure in table.seconds if not figure.less]
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in PHASES}
    for figure in figures:
        found.setdefault(figure.phase, []).append(figure.sum)
    for name, row in PHASES.items():
        found[name] += [(fact,) for fact in row.log_facts]
    return found


def _row_axes(ax: Axes | None, labels: Sequence[str]) -> tuple[Axes, float, float]:
    ax = canvas.axes_for(ax, 8.0, 1.3 + 0.27 * len(labels))
    size = row_font_size(ax, len(labels))
    return ax, size, set_rows(ax, labels, size)


def _draw_rows(ax: Axes, rows: Sequence[Row], size: float) -> None:
    for place, row in enumerate(rows):
        for span in row.spans:
            look, rest = canvas.style_of(span.name), span.elapsed_s - span.counted_s
            if span.counted_s:
                draw_bar(ax, place, span.begin_s, span.counted_s, look, row.height)
            if rest > 0.0:
                draw_bar(ax, place, span.begin_s + span.counted_s, rest, look, row.height, hidden=True)
        write_beside(ax, row.end_s, place, row.text, size)


def draw_bar(
    ax: Axes, row: float, begin: float, length: float, look: canvas.Look, height: float, *, hidden: bool = False
) -> None:
    """A hidden one is pale with a dashed edge; the edge of a very short one does not cover its colour."""
    style: dict[str, Any] = {"alpha": 0.4, "linestyle": "--"} if hidden else {}
    low, high = ax.get_xlim()
    is_short = abs(length) / (high - low) * canvas.size_in_points(ax)[0] < 3.0
    edge = look.colour if is_short else canvas.text_color(ax)
    ax.barh(row, length, height, begin, color=look.colour, hatch=look.hatch, edgecolor=edge, linewidth=0.6, **style)


def write_beside(ax: Axes, x: float, row: float, text: str, size: float, *, at_left: bool = False) -> None:
    ax.annotate(
        text, (x, row), (-4 if at_left else 4, 0), textcoords="offset points", ha="right" if at_left else "left",
        va="center", fontsize=size, color=canvas.text_color(ax), bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def set_rows(ax: Axes, labels: Sequence[str], size: float) -> float:
    """Names from the top, in at most half the width; the points that are left for the axes."""
    whole = canvas.whole_width(ax)
    texts = [canvas.short_label(label, max(12, min(46, int(0.5 * whole / (0.6 * size))))) for label in labels]
    ax.set_yticks(range(len(labels)), texts, fontsize=size)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    beside = whole - max(canvas.text_width(text, size) for text in texts) - 6.0
    return max(0.3 * whole, beside) if canvas.has_layout(ax) else whole


def finish_rows(ax: Axes, words: Sequence[str], titles: Sequence[str], width: float) -> None:
    canvas.set_frame(ax, "x")
    ax.set_xlabel(canvas.first_that_fits(words, width, canvas.usual_size()))
    canvas.set_title(ax, titles, width, canvas.whole_width(ax))


def row_font_size(ax: Axes, rows: int) -> float:
    return max(3.0, min(canvas.usual_size(), 0.72 * canvas.size_in_points(ax)[1] / max(rows, 1)))


def _right_edge(rows: Iterable[Row], size: float, width: float) -> float:
    ends = [row.end_s / (1.0 - min(0.6, (canvas.text_width(row.text, size) + 8.0) / width)) for row in rows]
    return max(ends, default=0.0) or 1.0
