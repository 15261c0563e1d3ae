"""Pictures of predictions, sweeps and logs: axes in, axes out. matplotlib (extra ``notebook``) is imported when the first one is drawn.

Without axes each function makes a figure with room for all labels; axes of your own have it with ``plt.subplots(layout="constrained")``. Colours of text and
background are those of the axes, dark styles included; nothing is shown, and no setting of matplotlib is changed.
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from startup_model.comparison import Gain, Sensitivity
from startup_model.errors import MISSING, ConfigError, UnknownNameError, one_line, shown
from startup_model.files import write_atomically
from startup_model.formula import FloatArray
from startup_model.grid.result import Sweep
from startup_model.phases import BEFORE_ENGINE, Phase
from startup_model.pipelines import PIPELINES, Overlap
from startup_model.prediction import StartupPrediction
from startup_model.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "PHASE_LOOKS",
    "Look",
    "interval_fan",
    "predicted_against_measured",
    "save",
    "sweep_lines",
    "timeline",
    "tornado",
    "waterfall",
]

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

_LONGEST_TIME_S = 1e9


# --- colours --------------------------------------------------------------------------------------------------------------

_BLUE, _SKY, _GREEN, _YELLOW, _ORANGE, _VERMILLION, _PURPLE = (
    "#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#CC79A7",
)  # fmt: skip
"""The palette of Okabe and Ito, "Color Universal Design" (2008), also in B. Wong, Nature Methods 8, 441 (2011)."""
_GREY = "#808080"
"""In the place of the palette's black, which a dark notebook would swallow."""


class Look(NamedTuple):
    """How a phase is drawn."""

    colour: str
    hatch: str = ""


PHASE_LOOKS: Mapping[Phase, Look] = {
    Phase.PROVISION: Look(_BLUE, "///"),
    Phase.IMAGE_PULL: Look(_ORANGE, "///"),
    Phase.CONTAINER_START: Look(_GREEN, "///"),
    Phase.FRAMEWORK_BOOTSTRAP: Look(_BLUE),
    Phase.WORKER_SPAWN: Look(_SKY),
    Phase.TOKENIZER_LOAD: Look(_PURPLE, "///"),
    Phase.MODEL_INIT: Look(_YELLOW, "///"),
    Phase.WEIGHT_LOAD: Look(_ORANGE),
    Phase.GRAPH_TRACE: Look(_GREEN),
    Phase.GRAPH_COMPILE: Look(_YELLOW),
    Phase.MEMORY_PROFILING: Look(_VERMILLION),
    Phase.KV_CACHE_INIT: Look(_SKY, "///"),
    Phase.GRAPH_CAPTURE: Look(_PURPLE),
    Phase.API_READY: Look(_VERMILLION, "///"),
    Phase.UNATTRIBUTED: Look(_GREY),
    Phase.FIRST_REQUEST: Look(_GREY, "///"),
}
"""One look for each phase, the same in all pictures. Phases in a row differ in lightness or in hatch, so that a print in grey tells them apart."""

_OTHER = Look(_GREY, "...")
"""Of a span that is no phase."""
_LINES = (_BLUE, _VERMILLION, _GREEN, _ORANGE, _PURPLE, _SKY)
"""Colours of lines, before the colour of the figure's own text; yellow is too faint for a line."""
_ORGANISATION = re.compile(r"^[\w.-]+/(?=[\w.-])")
_MARKERS = "os^Dv*Ppdh<>"
"""One for each line, so that colours may come twice."""


def _look(name: str) -> Look:
    """The look of a phase, or of the first of several that are joined."""
    first = name.partition("+")[0].strip()
    return PHASE_LOOKS[Phase(first)] if first in list(Phase) else _OTHER


# --- axes ----------------------------------------------------------------------------------------------------------------


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or those of a new figure of this size in inches. Raises ConfigError.

    A notebook shows what pyplot knows and closes it, so there the figure is one of pyplot's. Elsewhere it is not: it goes away with its axes.
    """
    _check_matplotlib()
    if ax is not None:
        return _checked_axes(ax)
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    if not _in_notebook():
        return Figure(figsize=(width, height), layout=layout).add_subplot()
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout=layout).add_subplot()


def _check_matplotlib() -> None:
    """Raises ConfigError when matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        remedy = "pip install 'startup-model[notebook]'"
        raise ConfigError("matplotlib", MISSING, "it is not installed", remedy) from None


def _checked_axes(ax: object) -> Axes:
    """``ax`` when it is an Axes of a figure. Raises ConfigError."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes) or ax.figure is None:
        problem = "it is no Axes of a figure of matplotlib"
        raise ConfigError("ax", shown(ax), problem, "take one of plt.subplots(), or leave it out")
    return ax


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def _ink(ax: Axes) -> Any:
    """The colour of the text of these axes, whatever style they were made in."""
    return ax.xaxis.label.get_color()


def _size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes."""
    dpi = ax.figure.dpi
    return ax.bbox.width * 72.0 / dpi, ax.bbox.height * 72.0 / dpi


def _text_width(text: str, size: float) -> float:
    """About how many points a text takes."""
    return 0.6 * size * len(text)


def _longest_that_fits(texts: Sequence[str], width: float, size: float) -> str:
    return next((text for text in texts if _text_width(text, size) <= width), texts[-1])


def _usual_size(name: str = "medium") -> float:
    """A font size of the present style, in points."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=name).get_size_in_points())


def _label(text: object, longest: int = 36) -> str:
    """A name as one short line that matplotlib takes as it is: no dollar begins a formula."""
    return _shortened(text, longest).replace("$", r"\$")


def _shortened(text: object, longest: int) -> str:
    """A name as one short line: a long one loses the organisation before its slash, then its middle."""
    text = one_line(str(text), 400)
    if len(text) > longest:
        text = _ORGANISATION.sub("", text)
    return text if len(text) <= longest else f"{text[: (longest + 1) // 2 - 1]}…{text[len(text) - longest // 2 :]}"


def _set_title(ax: Axes, texts: Sequence[str], width: float, whole: float = 0.0) -> None:
    """A title of one line over axes of this width in points: the first text that fits, else the last without its middle. A long one is smaller, and in the
    middle of the axes and what stands at their left (``whole``: both together)."""
    usual = float(ax.title.get_fontsize())
    room = max(width, whole)
    text = _longest_that_fits(texts, room, 0.75 * usual)
    size = max(0.75 * usual, min(usual, room / _text_width(text or " ", 1.0)))
    text = _label(text, max(12, int(room / _text_width(" ", size))))
    ax.set_title(text, fontsize=size, loc="center")
    ax.title.set_x(0.5 - (0.5 * (room - width) / width if _text_width(text, size) > width else 0.0))


def _whole_width(ax: Axes) -> float:
    """How wide the axes are with what stands beside them, in points: a layout takes back the margins that an empty figure has."""
    width = _size_in_points(ax)[0]
    return width if ax.figure.get_layout_engine() is None else width / 0.775 - 12.0


def _width_beside_axis(ax: Axes) -> float:
    """How wide the axes are beside a vertical axis with numbers and a name, in points."""
    return _whole_width(ax) - (0.0 if ax.figure.get_layout_engine() is None else 4.0 * _usual_size())


def _set_frame(ax: Axes, along: str) -> None:
    """A quiet grid across the direction in which values are read, and no lines where nothing is read off."""
    ax.set_axisbelow(True)
    (ax.xaxis if along == "x" else ax.yaxis).grid(visible=True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def _set_legend(ax: Axes, handles: Sequence[Any], width: float, *, below: bool = False, under: float = 0.0) -> float:
    """A legend of a figure whose layout makes room for it: at the right of wide axes, else below, with ``under`` points for tick labels; in other figures
    where there is most room inside. The width that is left for the axes, in points."""
    size = _usual_size("small") * _text_scale(width)
    style: dict[str, Any] = {
        "handles": handles,
        "labelcolor": _ink(ax),
        "facecolor": ax.get_facecolor(),
        "fontsize": size,
    }
    if ax.figure.get_layout_engine() is None:
        ax.legend(loc="best", framealpha=0.8, **style)
        return width
    if below or width < 360.0:
        away = (max(under, _usual_size()) + 1.6 * _usual_size() + 10.0) / size
        columns = _legend_columns(handles, width, size)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=away, ncols=columns, frameon=False, **style
        )
        return width
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, **style)
    return width - _legend_width(handles, size) - 12.0


def _legend_width(handles: Sequence[Any], size: float) -> float:
    return max(_text_width(str(handle.get_label()), size) for handle in handles) + 4.5 * size


def _legend_columns(handles: Sequence[Any], width: float, size: float) -> int:
    return max(1, min(len(handles), int(width / _legend_width(handles, size)))) if handles else 1


def _text_scale(width: float) -> float:
    """How much smaller text has to be in narrow axes."""
    return max(0.6, min(1.0, width / 330.0))


def _small_size(ax: Axes) -> float:
    """Of small text in axes that may be one of several panels."""
    return _usual_size("small") * _text_scale(2.0 * _size_in_points(ax)[0])


def _is_wide(low: float, high: float) -> bool:
    """Whether values span more than a decade, and so ask for a logarithmic scale."""
    return low > 0.0 and high > 10.0 * low


def _set_scale(ax: Axes, which: str, low: float, high: float, unit: str = "", most: float = 8.0) -> bool:
    """A logarithmic scale with plain numbers where the values span more than a decade, else a linear one; about ``most`` ticks. Whether it is logarithmic."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    wide = _is_wide(low, high)
    getattr(ax, f"set_{which}scale")("log" if wide else "linear")
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_formatter(EngFormatter(unit) if unit else FuncFormatter(lambda value, _: f"{value:,g}"))
    if not wide:
        axis.set_major_locator(MaxNLocator(max(2, int(most)), steps=[1, 2, 2.5, 5, 10]))
        return False
    decades = math.log10(high / low)
    subs = next((s for s in ((1.0, 2.0, 5.0), (1.0, 3.0)) if len(s) * decades <= most), (1.0,))
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_formatter(NullFormatter())
    return True


def _seconds_of(value: object, field: str) -> float:
    """A time as a plain number. Raises ConfigError."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not 0.0 <= plain <= _LONGEST_TIME_S:
        raise ConfigError(field, shown(plain), "it should be seconds from 0 to 1e9", "leave it out, or mend it")
    return float(plain)


# --- rows of spans over time ----------------------------------------------------------------------------------------------


class _Span(NamedTuple):
    """One bar over time."""

    name: str
    begin_s: float
    counted_s: float
    """What it adds to the total."""
    elapsed_s: float
    """How long it runs; more than ``counted_s`` where it runs beside something longer."""

    @property
    def end_s(self) -> float:
        return self.begin_s + max(self.counted_s, self.elapsed_s)


class _Row(NamedTuple):
    """A row of bars with a name at the left and a text behind the last bar."""

    label: str
    spans: tuple[_Span, ...]
    text: str = ""
    height: float = 0.8

    @property
    def end_s(self) -> float:
        return max((span.end_s for span in self.spans), default=0.0)


def _draw_rows(ax: Axes, rows: Sequence[_Row], size: float) -> None:
    """The rows from the top."""
    for place, row in enumerate(rows):
        for span in row.spans:
            if span.counted_s:
                _draw_bar(ax, place, span.begin_s, span.counted_s, _look(span.name), row.height)
            if span.elapsed_s > span.counted_s:
                rest = span.elapsed_s - span.counted_s
                _draw_bar(ax, place, span.begin_s + span.counted_s, rest, _look(span.name), row.height, hidden=True)
        _write_beside(ax, row.end_s, place, row.text, size)


def _draw_bar(
    ax: Axes, row: float, begin: float, length: float, look: Look, height: float, *, hidden: bool = False
) -> None:
    """One bar in the look of its phase; a hidden one is pale with a dashed edge. The edge of a very short one does not cover its colour."""
    style: dict[str, Any] = {"alpha": 0.4, "linestyle": "--"} if hidden else {}
    low, high = ax.get_xlim()
    is_short = abs(length) / (high - low) * _size_in_points(ax)[0] < 3.0
    edge = look.colour if is_short else _ink(ax)
    ax.barh(row, length, height, begin, color=look.colour, hatch=look.hatch, edgecolor=edge, linewidth=0.6, **style)


def _write_beside(ax: Axes, x: float, row: float, text: str, size: float, *, at_left: bool = False) -> None:
    ax.annotate(
        text, (x, row), (-4 if at_left else 4, 0), textcoords="offset points", ha="right" if at_left else "left",
        va="center", fontsize=size, color=_ink(ax), bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.5},
    )  # fmt: skip


def _set_rows(ax: Axes, labels: Sequence[str], size: float) -> float:
    """The names of the rows, the first at the top, in at most half the width; how wide the axes will be beside them, in points."""
    whole = _whole_width(ax)
    texts = [_label(label, max(12, min(46, int(0.5 * whole / (0.6 * size))))) for label in labels]
    ax.set_yticks(range(len(labels)), texts, fontsize=size)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    if ax.figure.get_layout_engine() is None:
        return whole
    return max(0.3 * whole, whole - max(_text_width(text, size) for text in texts) - 6.0)


def _row_font_size(ax: Axes, rows: int) -> float:
    """Of the text beside rows, so that lines do not touch."""
    return max(3.0, min(_usual_size(), 0.72 * _size_in_points(ax)[1] / max(rows, 1)))


def _right_edge(rows: Iterable[_Row], size: float, width: float) -> float:
    """The end of the axes, so that the text behind each row has room."""
    ends = [row.end_s / (1.0 - min(0.6, (_text_width(row.text, size) + 8.0) / width)) for row in rows]
    return max(ends, default=0.0) or 1.0


# --- waterfall ------------------------------------------------------------------------------------------------------------


def waterfall(prediction: StartupPrediction, ax: Axes | None = None) -> Axes:
    """The phases of a prediction one after the other: each bar begins where the last ended and is as long as its seconds; total and interval below.

    What runs beside a longer phase is pale, from where it begins: it takes ``elapsed_s``, and adds ``seconds`` to the total. Phases that flags switch
    off are left out. An interval that goes far beyond the total ends in an arrow. Raises ConfigError for what is no prediction.
    """
    if not isinstance(prediction, StartupPrediction):
        raise ConfigError("prediction", shown(prediction), "it is no prediction", "give what predict returns")
    total = prediction.total_s
    phases = _prediction_rows(prediction)
    rows = [*phases, _Row("total", (_Span("total", 0.0, total, total),), format_seconds(total))]
    labels = [*(row.label for row in rows), f"{100 * prediction.level:g} % interval"]
    ax = _axes(ax, 8.0, 1.3 + 0.27 * len(labels))
    size = _row_font_size(ax, len(labels))
    width = _set_rows(ax, labels, size)
    right = max(_right_edge(rows, size, width), 1.03 * min(prediction.interval[1], 1.6 * total))
    ax.set_xlim(0.0, right)
    _draw_rows(ax, phases, size)
    steps = np.arange(len(phases) - 1)
    ax.vlines([row.end_s for row in phases[:-1]], steps + 0.4, steps + 0.6, colors=_ink(ax), linewidth=0.6)
    ax.barh(len(phases), total, 0.8, color=_ink(ax), alpha=0.7)
    _write_beside(ax, total, len(phases), rows[-1].text, size)
    _draw_interval(ax, len(rows), prediction.interval, size, right / width)
    _set_frame(ax, "x")
    ax.set_xlabel("seconds")
    _set_title(ax, [_prediction_title(prediction)], width, _whole_width(ax))
    return ax


def _draw_interval(ax: Axes, row: float, interval: tuple[float, float], size: float, seconds_per_point: float) -> None:
    """A line from low to high, which ends in an arrow where high lies beyond the axes, and the numbers where there is room."""
    low, high = interval
    right = ax.get_xlim()[1]
    ink, end = _ink(ax), min(high, right)
    ax.plot([low, end], [row, row], color=ink, linewidth=2.0, solid_capstyle="butt")
    ax.plot([low], [row], marker="|", color=ink, markersize=size)
    if high <= right:
        ax.plot([end], [row], marker="|", color=ink, markersize=size)
    else:
        ax.plot([end], [row], marker=">", color=ink, markersize=0.8 * size, clip_on=False)
    text = f"{format_seconds(low).removesuffix(' s')} to {format_seconds(high)}"
    needed = (_text_width(text, size) + 8.0) * seconds_per_point
    at_left = right - end < needed <= low
    _write_beside(ax, end if right - end >= needed else low, row, text, size, at_left=at_left)


def _prediction_title(prediction: StartupPrediction) -> str:
    context = prediction.context
    end = "" if prediction.memory.fits else f", does not start ({prediction.memory.status})"
    return f"{context.model_name} on {context.hardware_name}, {context.engine_name}{end}"


def _prediction_rows(prediction: StartupPrediction) -> list[_Row]:
    """A row for each phase that takes time; branches that run at the same time begin together."""
    branch_of = _branches(prediction.context.pipeline_name)
    rows: list[_Row] = []
    counted = 0.0
    began: dict[int, float] = {}
    inside: dict[tuple[int, int], float] = {}
    for phase, entry in prediction.phases.items():
        branch = branch_of.get(phase)
        begin = counted
        if branch is not None:
            begin = began.setdefault(branch[0], counted) + inside.get(branch, 0.0)
            inside[branch] = inside.get(branch, 0.0) + entry.elapsed_s
        counted += entry.seconds
        if entry.elapsed_s > 0.0:
            span = _Span(phase.value, begin, entry.seconds, entry.elapsed_s)
            rows.append(_Row(phase.value, (span,), _seconds_text(span)))
    return rows


def _seconds_text(span: _Span) -> str:
    if span.counted_s >= span.elapsed_s:
        return format_seconds(span.counted_s)
    counted = f"{format_seconds(span.counted_s)} of " if span.counted_s else ""
    return f"{counted}{format_seconds(span.elapsed_s)}{'' if counted else ', hidden'}"


def _branches(pipeline_name: str) -> dict[Phase, tuple[int, int]]:
    """Phase -> which overlap of the pipeline it belongs to, and which branch of it."""
    pipeline = next((pipeline for pipeline in PIPELINES if pipeline.name == pipeline_name), None)
    return {
        step.phase: (i, j)
        for i, part in enumerate(pipeline.parts if pipeline is not None else ())
        if isinstance(part, Overlap)
        for j, branch in enumerate(part.branches)
        for step in branch
    }


# --- timeline -------------------------------------------------------------------------------------------------------------

_MOST_PHASES = 64
_MOST_RANKS = 16
"""Processes with a row of their own; of more the slowest."""
_MOST_MOMENTS = 10_000

_RANK_FIGURES: Mapping[str, Phase] = {
    "dist_init_s": Phase.WORKER_SPAWN,
    "tokenizer_init_s": Phase.TOKENIZER_LOAD,
    "model_init_s": Phase.MODEL_INIT,
    "load_weights_s": Phase.WEIGHT_LOAD,
    "dynamo_s": Phase.GRAPH_TRACE,
    "compile_s": Phase.GRAPH_COMPILE,
    "compiled_graph_load_s": Phase.GRAPH_COMPILE,
    "memory_profiling_s": Phase.MEMORY_PROFILING,
    "graph_capture_s": Phase.GRAPH_CAPTURE,
}
"""Figure that a process prints about itself -> the phase that it is the duration of."""


class _Stage(NamedTuple):
    """A phase of a log: how long it took, and when the line that ended it was stamped."""

    label: str
    seconds: float
    stamp_s: float | None
    is_derived: bool


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
        title, ready_word = _prediction_title(start), "total"
    else:
        stages, lost_s = _read_stages(start)
        rows = _logged_rows(start, stages, lost_s)
        ready, moments = _optional_seconds(start, "wall_s"), _moments(start)
        rows += _rank_rows(start, rows)
        since = _origin(start)
        title, ready_word = _start_title(start), "ready after"
    if not rows:
        raise ConfigError("phases", MISSING, "none of them took any time", "give a start with phases")
    labels = [row.label for row in rows] + (["lines that were read"] if moments else [])
    ax = _axes(ax, 8.0, 1.3 + 0.27 * len(labels))
    size = _row_font_size(ax, len(labels))
    width = _set_rows(ax, labels, size)
    right = max(_right_edge(rows, size, width), 1.02 * max([ready or 0.0, *moments.values()]))
    ax.set_xlim(0.0, right)
    _draw_rows(ax, rows, size)
    if moments:
        ax.plot(list(moments.values()), [len(rows)] * len(moments), "|", color=_ink(ax), markersize=size)
    if ready is not None:
        ax.axvline(ready, color=_ink(ax), linewidth=1.0, linestyle=":")
        title = f"{title}: {ready_word} {format_seconds(ready)}"
    _set_frame(ax, "x")
    derived = "; ~ from stamps" if any(row.text.startswith("~") for row in rows) else ""
    words = (f"seconds since {since}{derived}", f"seconds{derived}", "seconds")
    ax.set_xlabel(_longest_that_fits(words, width, _usual_size()))
    _set_title(ax, [title], width, _whole_width(ax))
    return ax


def _start_title(start: Any) -> str:
    parts = [getattr(start, name, None) for name in ("model", "engine", "engine_version")]
    names = [part if isinstance(part, str) else getattr(part, "name", getattr(part, "engine", None)) for part in parts]
    status = getattr(start, "status", "ok")
    return " ".join(str(name) for name in names if name) + ("" if status == "ok" else f", {status}") or "start"


def _origin(start: Any) -> str:
    """What the seconds of a log or a record count from."""
    measured_from = getattr(start, "measured_from", "first_line")
    from_process = getattr(start, "from_process_start", measured_from == "process_start")
    return "process start" if from_process is True else "the first line"


def _optional_seconds(start: Any, name: str) -> float | None:
    value = getattr(start, name, None)
    return None if value is None else _seconds_of(value, name)


def _part(start: Any, name: str, kind: type[Any]) -> Any:
    """An attribute of a parsed log, empty where it has none. Raises ConfigError when it is of another kind."""
    value = getattr(start, name, None)
    if value is not None and (not isinstance(value, kind) or isinstance(value, str)):
        raise ConfigError(name, shown(value), "it is not what a parsed log has there", "give what parse_log returns")
    return value or ()


def _moments(start: Any) -> dict[int, float]:
    """Line number -> its stamp, of the lines that say something."""
    moments = list(_part(start, "moments", Sequence))[:_MOST_MOMENTS]
    pairs = ((getattr(moment, "line_number", None), getattr(moment, "elapsed_s", None)) for moment in moments)
    return {line: _seconds_of(stamp, "moments") for line, stamp in pairs if isinstance(line, int)}


def _read_stages(start: Any) -> tuple[list[_Stage], float]:
    """The phases of a log in order, and the seconds that none of them holds. Raises ConfigError."""
    phases = getattr(start, "phases", None)
    if not isinstance(phases, Mapping):
        raise ConfigError("start", shown(start), "it has no phases", "give a prediction or what parse_log returns")
    if not 1 <= len(phases) <= _MOST_PHASES:
        problem = f"there are {len(phases)} of them" if phases else "the log gives none"
        raise ConfigError("phases", MISSING, problem, f"give a start with 1 to {_MOST_PHASES} phases")
    seconds = {str(name): _seconds_of(value, f"phases.{name}") for name, value in phases.items()}
    lost = seconds.pop(Phase.UNATTRIBUTED.value, 0.0)
    stamps, derived = _moments(start), _part(start, "derived", Collection)
    lines, joint, facts = (dict(_part(start, name, Mapping)) for name in ("phase_evidence", "joint", "facts"))
    stages = [
        _Stage(
            "+".join(map(str, joint[name])) if isinstance(joint.get(name), list | tuple) else name,
            value,
            stamps.get(getattr(lines.get(name), "line_number", -1)),
            name in derived,
        )
        for name, value in seconds.items()
    ]
    download = _seconds_of(facts.get("download_s", 0.0), "facts.download_s")
    if download:
        before = next((i for i, stage in enumerate(stages) if stage.label == Phase.WEIGHT_LOAD), len(stages))
        stages.insert(before, _Stage("download", download, None, is_derived=False))
    return stages, lost


def _logged_rows(start: Any, stages: Sequence[_Stage], lost_s: float) -> list[_Row]:
    """A row for each phase that took time, and one for the time between them that nothing is known of."""
    taken = sum(stage.seconds for stage in stages)
    stamps = [stage.stamp_s for stage in stages if stage.stamp_s is not None]
    wall = _optional_seconds(start, "wall_s")
    whole = taken + lost_s if wall is None else wall
    slack = (_optional_seconds(start, "stamp_resolution_s") or 1.0) * (len(stages) + 1)
    if stamps and wall is not None and taken > 1.01 * wall + slack:
        begins = [max(0.0, (wall if stage.stamp_s is None else stage.stamp_s) - stage.seconds) for stage in stages]
    else:
        gaps = _gaps(stages, max(0.0, (whole if wall is not None else max([whole, *stamps])) - taken))
        ends = np.cumsum([stage.seconds for stage in stages]) + gaps
        begins = [float(end) - stage.seconds for end, stage in zip(ends, stages, strict=True)]
    spans = [
        _Span(stage.label, begin, stage.seconds, stage.seconds) for begin, stage in zip(begins, stages, strict=True)
    ]
    rows = [
        _Row(
            stage.label.replace("+", " + "),
            (span,),
            ("~" if stage.is_derived else "") + format_seconds(stage.seconds),
        )
        for stage, span in zip(stages, spans, strict=True)
        if stage.seconds
    ]
    if lost_s:
        rows.append(_Row(Phase.UNATTRIBUTED.value, _holes(spans, whole), format_seconds(lost_s)))
    return rows


def _gaps(stages: Sequence[_Stage], most_s: float) -> FloatArray:
    """Seconds in which nothing is known to run, before the end of each stage: never less than before the stage before it, from 0 to ``most_s``, and as
    near to what the stamps say as that allows (least squares; the pool-adjacent-violators algorithm, Barlow et al. 1972)."""
    pools: list[tuple[float, int, int]] = []  # mean, stamps, stages
    elapsed = 0.0
    for stage in stages:
        elapsed += stage.seconds
        if stage.stamp_s is None:
            pools.append((pools[-1][0] if pools else 0.0, 0, 1))
        else:
            pools.append((stage.stamp_s - elapsed, 1, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (last, m, j), (before, n, i) = pools.pop(), pools.pop()
            pools.append(((before * n + last * m) / (n + m) if n + m else before, n + m, i + j))
    gaps: FloatArray = np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])
    return np.clip(gaps, 0.0, most_s)


def _holes(spans: Sequence[_Span], whole: float) -> tuple[_Span, ...]:
    """Where nothing runs."""
    begins = [span.begin_s for span in spans] + [whole]
    ends = [0.0, *(span.end_s for span in spans)]
    holes = ((end, begin - end) for end, begin in zip(ends, begins, strict=True))
    return tuple(_Span(Phase.UNATTRIBUTED.value, at, length, length) for at, length in holes if length > 1e-6)


def _rank_rows(start: Any, rows: Sequence[_Row]) -> list[_Row]:
    """A row for each process that printed figures of its own, where there are several."""
    begins = {span.name.partition("+")[0]: span.begin_s for row in rows for span in row.spans[:1]}
    found = []
    for name, figures in dict(_part(start, "ranks", Mapping)).items():
        spans: list[_Span] = []
        for figure, phase in _RANK_FIGURES.items():
            if isinstance(figures, Mapping) and figure in figures and phase in begins:
                seconds = _seconds_of(figures[figure], f"ranks.{figure}")
                begin = max([begins[phase], *(span.end_s for span in spans if span.name == phase)])
                spans.append(_Span(phase.value, begin, seconds, seconds))
        if spans:
            found.append(_Row(str(name) or "main process", tuple(spans), height=0.5))
    if len(found) <= 1:
        return []
    if len(found) <= _MOST_RANKS:
        return found
    slowest = sorted(found, key=lambda row: -sum(span.elapsed_s for span in row.spans))[:_MOST_RANKS]
    return [_Row(f"slowest of {len(found)} processes:", ()), *(row for row in found if row in slowest)]


# --- predicted against measured ---------------------------------------------------------------------------------------------

_MOST_POINTS = 10_000


class _Pair(NamedTuple):
    name: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1.0


def predicted_against_measured(
    predictions: Sequence[Any],
    measured: Sequence[float] | None = None,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    worst: int = 3,
    band: float = 0.1,
) -> Axes:
    """Points with interval bars about the diagonal, and a band of ± ``band``; the ``worst`` few, by |predicted / measured - 1|, are named.

    predictions: predictions, ``(predicted, low, high)`` in seconds, or rows that hold what was measured too, such as those of ``cross_validate(runs)``.
    measured: seconds, one for each. names: in the place of the models' names. The axes are logarithmic where the times span more than a decade.
    Raises ConfigError for lists of different lengths, none or more than 10 000 points, and times that are none.
    """
    pairs = _read_pairs(predictions, measured, names)
    if isinstance(worst, bool) or not isinstance(worst, int) or not 0 <= worst <= 11:
        raise ConfigError("worst", shown(worst), "it should be a number of names from 0 to 11", "3 is usual")
    if isinstance(band, bool) or not isinstance(band, int | float) or not 0.0 < band < 1.0:
        raise ConfigError("band", shown(band), "it should lie between 0 and 1", "0.1 is 10 %")
    ax = _axes(ax, 8.0, 5.0)
    width, ink = _width_beside_axis(ax), _ink(ax)
    x, y, low, high = (np.array([pair[i] for pair in pairs]) for i in (1, 2, 3, 4))
    bottom, top = float(min(x.min(), y.min(), low.min())), float(max(x.max(), y.max(), high.max()))
    if wide := _is_wide(bottom, top):
        edges = np.array([bottom / 1.15, top * 1.15])
    else:
        edges = np.array([max(0.0, bottom - 0.1 * (top - bottom)), top + 0.1 * (top - bottom or top)])
    least, most = (bottom, top) if wide else edges
    for which, room in zip("xy", _size_in_points(ax), strict=True):
        _set_scale(ax, which, least, most, most=room / 45.0)
    parts = 1.0 - band, 1.0 + band
    inside = ax.fill_between(edges, edges * parts[0], edges * parts[1], color=_SKY, alpha=0.3, linewidth=0.0)
    inside.set_label(f"within ±{100 * band:g} %")
    handles: list[Any] = [*ax.plot(edges, edges, color=ink, linewidth=1.0, label="predicted = measured"), inside]
    if (high > low).any():
        bars = np.vstack([np.maximum(y - low, 0.0), np.maximum(high - y, 0.0)])
        word = _interval_word(predictions)
        handles.append(ax.errorbar(x, y, bars, fmt="none", ecolor=_BLUE, elinewidth=1.2, capsize=2.0, label=word))
    style: dict[str, Any] = {"markeredgecolor": ax.get_facecolor(), "markeredgewidth": 0.6, "linestyle": "none"}
    ax.plot(x, y, "o", color=_BLUE, markersize=5.0, **style)
    for i, pair in enumerate(sorted(pairs, key=lambda pair: -abs(pair.error))[:worst], 1):
        label = _label(f"{_shortened(pair.name, 24)} {_percent(pair.error)}", 40)
        at = [pair.measured_s], [pair.predicted_s]
        handles += ax.plot(*at, _marker(i), color=_VERMILLION, markersize=8.0, label=label, **style)
    ax.set_xlim(*edges)
    ax.set_ylim(*edges)
    _set_frame(ax, "y")
    ax.xaxis.grid(visible=True, alpha=0.3)
    ax.set_xlabel("measured [seconds]")
    ax.set_ylabel("predicted [seconds]")
    width = _set_legend(ax, handles, width, under=_usual_size())
    errors = [pair.error for pair in pairs]
    title = f"mean error {100.0 * float(np.mean(np.abs(errors))):.1f} %, worst {_percent(max(errors, key=abs))}"
    _set_title(ax, [f"{title}, {len(pairs)} start{'s' if len(pairs) > 1 else ''}", title], width)
    return ax


def _percent(part: float) -> str:
    return f"{100.0 * part:+.1f} %".replace("-", "−")


def _interval_word(predictions: Sequence[Any]) -> str:
    levels = {one.level if isinstance(one, StartupPrediction) else None for one in predictions}
    level = levels.pop() if len(levels) == 1 else None
    return "interval" if level is None else f"{100 * level:g} % interval"


def _read_pairs(predictions: object, measured: object, names: object) -> list[_Pair]:
    """What is to be drawn, point by point. Raises ConfigError."""
    given = _as_list(predictions, "predictions")
    rows = [hasattr(one, "measured_s") and hasattr(one, "predicted_s") for one in given]
    if measured is None and not all(rows):
        raise ConfigError("measured", MISSING, "the predictions do not hold what was measured", "give the seconds")
    times = [one.measured_s for one in given] if measured is None else _as_list(measured, "measured")
    texts = [_name_of(one) for one in given] if names is None else _as_list(names, "names")
    for field, values in (("measured", times), ("names", texts)):
        if len(values) != len(given):
            problem = f"there are {len(values)} for {len(given)} predictions"
            raise ConfigError(field, MISSING, problem, "give one for each")
    pairs = []
    for i, (one, time, text) in enumerate(zip(given, times, texts, strict=True)):
        seconds = _seconds_of(time, f"measured[{i}]")
        if not seconds > 0.0:
            raise ConfigError(f"measured[{i}]", seconds, "no start takes no time", "leave it out")
        pairs.append(_Pair(str(text), seconds, *_read_interval(one, f"predictions[{i}]")))
    return pairs


def _as_list(values: object, field: str) -> list[Any]:
    """1 to ``_MOST_POINTS`` values: a list, an array, a column. Raises ConfigError."""
    if not isinstance(values, Collection | np.ndarray) or isinstance(values, str | bytes | Mapping | Set):
        raise ConfigError(field, shown(values), "it should be a list", "give one value for each start")
    if not 1 <= len(values) <= _MOST_POINTS:
        raise ConfigError(field, MISSING, f"{len(values)} values", f"give 1 to {_MOST_POINTS}")
    return list(values)


def _name_of(one: object) -> str:
    return one.context.model_name if isinstance(one, StartupPrediction) else str(getattr(one, "group", ""))


def _read_interval(one: Any, field: str) -> tuple[float, float, float]:
    """Predicted, low and high seconds. Raises ConfigError."""
    if isinstance(one, StartupPrediction):
        return one.total_s, *one.interval
    try:
        predicted, low, high = (one.predicted_s, *one.interval) if hasattr(one, "predicted_s") else one
    except (TypeError, ValueError):
        problem = "it is neither a prediction nor (predicted, low, high)"
        raise ConfigError(field, shown(one), problem, "give one of them") from None
    found = _seconds_of(predicted, field), _seconds_of(low, field), _seconds_of(high, field)
    if not found[1] <= found[0] <= found[2]:
        raise ConfigError(field, found, "the prediction does not lie in its interval", "give (predicted, low, high)")
    return found


# --- sweeps -----------------------------------------------------------------------------------------------------------------

_MOST_LINES = 12
_MOST_PANELS = 12
_MOST_CATEGORIES = 40
_MOST_ALONG = 2000
"""Points of one line that are drawn, evenly chosen from more."""
_FEW = 6
"""Lines or panels that are drawn, evenly chosen, of an axis of numbers that has too many."""

_BEST = "best"
"""In the place of an axis: no axis; the best value of each is taken."""

_TIMES: Mapping[str, str] = {
    "total_s": "time to ready",
    "slowest_s": "time to ready, unknown caches cold",
    "slo_bound_s": "time to promise",
}
"""What can be drawn besides phases -> its words."""

_UNITS: tuple[tuple[str, str], ...] = (
    ("_bandwidth", "B/s"),
    ("storage.page_cache", "B/s"),
    ("storage.local_nvme", "B/s"),
    ("storage.network_disk", "B/s"),
    ("storage.object_store", "B/s"),
    ("_flops", "FLOP/s"),
    ("_bytes", "B"),
    ("_memory", "B"),
    ("_s", "s"),
)
"""End of a field's name -> its unit."""


class _Roles(NamedTuple):
    """Which axis of a sweep is drawn as what."""

    x: str
    lines: str | None
    panels: str | None
    best: tuple[str, ...]
    """Axes of which the best value is taken."""


class _Side(NamedTuple):
    """The labels of one axis as they are drawn."""

    name: str
    labels: tuple[Any, ...]
    places: np.ndarray[Any, Any]
    """Where they stand in the sweep."""
    is_number: bool
    whole: int
    """How many the axis has."""

    @property
    def word(self) -> str:
        return self.name.rsplit(".", 1)[-1]

    @property
    def unit(self) -> str:
        return next((unit for end, unit in _UNITS if self.name.endswith(end)), "")

    @property
    def heading(self) -> str:
        """Its name, and how many of its labels are drawn when these are not all."""
        few = f", {len(self.labels)} of {self.whole}" if len(self.labels) < self.whole else ""
        return f"{self.word}{few}"

    def text(self, i: int) -> str:
        """One label in words."""
        from matplotlib.ticker import EngFormatter

        label = self.labels[i]
        if label is None:
            return "default"
        if not self.is_number:
            return str(label)
        if self.unit:
            return EngFormatter(self.unit)(float(f"{label:.3g}"))
        return f"{label:,}" if isinstance(label, int) else f"{label:.3g}" if abs(label) < 1e3 else f"{label:,.0f}"

    def named(self, i: int) -> str:
        """One label that stands alone: a number or a flag with its name."""
        return self.text(i) if isinstance(self.labels[i], str) else f"{self.word}={self.text(i)}"


class _Block(NamedTuple):
    """What one panel shows: a row a line, a column a place along x."""

    seconds: FloatArray
    feasible: BoolArray

    @property
    def is_feasible(self) -> bool:
        """Whether everything that is drawn starts."""
        return bool((self.feasible | np.isnan(self.seconds)).all())


def sweep_lines(
    result: Sweep,
    x: str | None = None,
    lines: str | None = None,
    panels: str | None = None,
    ax: Axes | None = None,
    y: str = "total_s",
) -> Axes:
    """Seconds of a sweep along one axis, a line for each label of another, a panel for each of a third; of all other axes the best value is taken (the
    feasible minimum).

    x, lines, panels: names of axes, or ``"best"`` for none. Left out, x is the longest axis of numbers, else the longest; panels are the models where there
    are three axes and one of them is the model; lines are the longest that is left, then panels the next. y: total_s, slowest_s, slo_bound_s or a phase.
    Over numbers there are lines, logarithmic where they span more than a decade; over other labels points side by side. What does not start is hollow and
    dashed. Panels are drawn in the place of ``ax``, which keeps title and legend; they share their scales, and are the last of ``ax.figure.axes``.

    Raises ConfigError for axes that do not exist, that are taken twice, or have more labels than one can tell apart (12 lines, 12 panels, 40 places along
    x); of too many numbers six are drawn instead (2000 along x), and a long axis that nobody named is left to its best value. The title says so.
    """
    if not isinstance(result, Sweep):
        raise ConfigError("result", shown(result), "it is no sweep", "give what sweep returns")
    values, words = _sweep_values(result, y)
    roles = _roles(result, x, lines, panels)
    along = _side(result, roles.x, _MOST_ALONG)
    series, parts = (None if name is None else _side(result, name, _FEW) for name in (roles.lines, roles.panels))
    blocks = _blocks(result, values, along, series, parts)
    known = np.concatenate([block.seconds[np.isfinite(block.seconds)] for block in blocks])
    if not known.size:
        reason = next(iter(result.reasons), "no point is finite")
        raise ConfigError("result", MISSING, f"no point of the {result.size} can be ({reason})", "take other values")
    limits = float(known.min()), float(known.max())
    columns = min(4, math.ceil(math.sqrt(len(blocks))))
    size = (
        (9.0, 4.8) if parts is None else (max(6.5, 1.0 + 3.6 * columns), 1.5 + 2.5 * math.ceil(len(blocks) / columns))
    )
    ax = _axes(ax, *size)
    width = _width_beside_axis(ax)
    handles = _sweep_handles(ax, series, all_feasible=all(block.is_feasible for block in blocks))
    panel_axes = [ax] if parts is None else _panel_axes(ax, len(blocks), columns, handles)
    for i, (panel, block) in enumerate(zip(panel_axes, blocks, strict=True)):
        under = _draw_block(panel, along, block, limits)
        _name_axes(panel, along, words, at_left=i % columns == 0, at_bottom=i + columns >= len(blocks))
        if parts is not None:
            small = _small_size(panel)
            longest = max(12, int(_size_in_points(panel)[0] / _text_width(" ", small)))
            panel.set_title(_label(parts.named(i), longest), fontsize=small, loc="left")
    if parts is None and handles:
        width = _set_legend(ax, handles, width, under=under)
    names = ", ".join(side.heading for side in (along, series, parts) if side is not None)
    best = f", best of {', '.join(name.rsplit('.', 1)[-1] for name in roles.best)}" if roles.best else ""
    title = f"{words} by {names}{best}"
    _set_title(ax, [f"{_common_names(result)}{title}", title], width - max(0.0, 1.3 * under - 4.0 * _usual_size()))
    return ax


def _name_axes(ax: Axes, along: _Side, words: str, *, at_left: bool, at_bottom: bool) -> None:
    """What the axes of a panel are, where no other panel lies between them and the edge."""
    size = min(_usual_size(), 1.2 * _small_size(ax))
    if at_left:
        across, up = _size_in_points(ax)
        room = up if across > 300.0 else 0.6 * up  # a legend or slanted labels may take the rest
        ax.set_ylabel(_longest_that_fits((f"{words} [seconds]", "seconds"), room, size), fontsize=size)
    if at_bottom:
        unit = f" [{along.unit}]" if along.unit and along.is_number else ""
        ax.set_xlabel(f"{along.heading}{unit}", fontsize=size)
    ax.tick_params(labelleft=at_left, labelbottom=at_bottom)


def _sweep_values(result: Sweep, y: object) -> tuple[FloatArray, str]:
    """The times that are asked for, and what they are. Raises UnknownNameError."""
    if isinstance(y, str) and y in _TIMES:
        return getattr(result, y), _TIMES[y]
    if isinstance(y, str) and y in result.phases:
        return result.phases[y], str(y)
    raise UnknownNameError("y", str(y), [*_TIMES, *map(str, result.phases)])


def _roles(result: Sweep, x: str | None, lines: str | None, panels: str | None) -> _Roles:
    """Which axis is drawn as what, those that were not named included. Raises ConfigError."""
    sizes = {name: len(labels) for name, labels in result.axes.items()}
    given = {"x": x, "lines": lines, "panels": panels}
    taken: dict[str, str] = {}
    for role, name in given.items():
        if name is None or (name == _BEST and name not in sizes and role != "x"):
            continue
        if not isinstance(name, str) or name not in sizes:
            raise UnknownNameError(role, str(name), [*sizes, *((_BEST,) if role != "x" else ())])
        if name in taken:
            raise ConfigError(role, name, f"this axis is {taken[name]} already", "choose another")
        most = _MOST_CATEGORIES if role == "x" else _MOST_LINES if role == "lines" else _MOST_PANELS
        if sizes[name] > most and not _is_numbers(result.axes[name]):
            remedy = "take fewer values" + ("" if role == "x" else f", or {role}={_BEST!r}")
            raise ConfigError(role, name, f"its {sizes[name]} labels are too many to be told apart, more than {most}", remedy)  # fmt: skip
        taken[name] = role
    free = [name for name, size in sizes.items() if size > 1 and name not in taken]
    if x is None:
        x = _choose_x(result, free) or next(iter(sizes))
        free = [name for name in free if name != x]
    fitting = sorted(
        (name for name in free if sizes[name] <= _MOST_LINES or _is_numbers(result.axes[name])),
        key=lambda name: (sizes[name] > _MOST_LINES, -sizes[name]),
    )
    if panels is None and "model" in fitting and len(fitting) + (lines is not None) > 1:
        panels = "model"
        fitting.remove(panels)
    if lines is None and fitting:
        lines = fitting.pop(0)
    if panels is None and fitting:
        panels = fitting.pop(0)
    drawn = (x, lines, panels)
    best = tuple(name for name, size in sizes.items() if size > 1 and name not in drawn)
    return _Roles(x, None if lines == _BEST else lines, None if panels == _BEST else panels, best)


def _choose_x(result: Sweep, free: Sequence[str]) -> str | None:
    """The longest axis of three or more numbers, else the longest that fits. Raises ConfigError."""
    numbers = [name for name in free if _is_numbers(result.axes[name]) and len(result.axes[name]) > 2]
    others = [name for name in free if len(result.axes[name]) <= _MOST_CATEGORIES]
    if free and not numbers and not others:
        problem = f"no axis has at most {_MOST_CATEGORIES} labels"
        raise ConfigError("x", MISSING, problem, "take fewer values, or one label a plot")
    return max(numbers or others, key=lambda name: len(result.axes[name]), default=None)


def _is_numbers(labels: Sequence[Any] | FloatArray) -> bool:
    if isinstance(labels, np.ndarray):
        return True
    return all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels)


def _side(result: Sweep, name: str, most: int) -> _Side:
    """One axis as it is drawn: numbers in ascending order, and of too many of them some."""
    labels = result.axes[name]
    places = np.arange(len(labels))
    numbers = _is_numbers(labels)
    if numbers:
        places = np.argsort(np.asarray(labels, dtype=float), kind="stable")
        if len(places) > max(most, _MOST_LINES):
            places = places[np.unique(np.linspace(0, len(places) - 1, most).round().astype(int))]
    plain = tuple(label.item() if isinstance(label, np.generic) else label for label in (labels[i] for i in places))
    return _Side(name, plain, places, numbers, len(labels))


def _blocks(result: Sweep, values: FloatArray, along: _Side, series: _Side | None, parts: _Side | None) -> list[_Block]:
    """The times of each panel; where other axes are left, the least of the starts that fit, and where none fits the least of all."""
    names = list(result.axes)
    sides = [side for side in (parts, series, along) if side is not None]
    order = [names.index(side.name) for side in sides]
    rest = tuple(i for i in range(len(names)) if i not in order)
    shape = tuple(1 if side is None else len(side.labels) for side in (parts, series, along))

    def drawn(array: Any) -> Any:
        """The axes that are drawn come first, the others last, as one."""
        moved = np.transpose(array, (*order, *rest))
        for axis, side in enumerate(sides):
            moved = np.take(moved, side.places, axis)
        return moved.reshape(*shape, -1)

    seconds, fits = drawn(values), drawn(result.feasible)
    seconds = np.where(np.isfinite(seconds), seconds, np.inf)
    possible = np.where(fits, seconds, np.inf).min(axis=-1)
    feasible = np.isfinite(possible)
    least = np.where(feasible, possible, seconds.min(axis=-1))
    least = np.where(np.isfinite(least), least, np.nan)
    return [_Block(least[i], feasible[i]) for i in range(shape[0])]


def _sweep_handles(ax: Axes, series: _Side | None, *, all_feasible: bool) -> list[Any]:
    """What a legend says of the lines."""
    from matplotlib.lines import Line2D

    texts = [] if series is None else [_label(series.named(i), 30) for i in range(len(series.labels))]
    handles = [Line2D([], [], color=_line_colour(i, ax), marker=_marker(i), label=text) for i, text in enumerate(texts)]
    if not all_feasible:
        style: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "linestyle": "--"}
        handles.append(Line2D([], [], color=_ink(ax), label="does not start", **style))
    return handles


def _panel_axes(ax: Axes, count: int, columns: int, handles: Sequence[Any]) -> list[Axes]:
    """Axes for panels in the place of ``ax``, which becomes a strip above them with title and legend."""
    figure, spec = ax.figure, ax.get_subplotspec()
    width, high = _width_beside_axis(ax), _size_in_points(ax)[1]
    size = _usual_size("small") * _text_scale(width)
    across = _legend_columns(handles, width, size)
    strip = 1.5 * size * math.ceil(len(handles) / across) + 4.0 if handles else 1.0
    rows = math.ceil(count / columns)
    if spec is None:
        box = ax.get_position()
        spec = figure.add_gridspec(1, 1, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1)[0]
    share = min(0.4, strip / high)
    grid = spec.subgridspec(rows + 1, columns, height_ratios=[share / (1.0 - share) * rows, *([1.0] * rows)])
    ax.set_subplotspec(grid[0, :])
    ax.set_axis_off()
    if handles:
        style: dict[str, Any] = {"frameon": False, "labelcolor": _ink(ax), "borderaxespad": 0.0, "borderpad": 0.0}
        ax.legend(handles=handles, loc="upper left", ncols=across, fontsize=size, **style)
    first = figure.add_subplot(grid[1, 0])
    others = [(1 + i // columns, i % columns) for i in range(1, count)]
    return [first, *(figure.add_subplot(grid[row, column], sharex=first, sharey=first) for row, column in others)]


def _draw_block(ax: Axes, along: _Side, block: _Block, limits: tuple[float, float]) -> float:
    """The lines of one panel: over numbers joined, over other labels side by side; the height in points of what stands under it."""
    across, up = _size_in_points(ax)
    if _set_scale(ax, "y", *limits, most=up / 22.0):
        ax.set_ylim(limits[0] / 1.2, limits[1] * 1.2)
    else:
        ax.set_ylim(0.0, 1.08 * limits[1] or 1.0)
    _set_frame(ax, "y")
    size = _small_size(ax)
    ax.tick_params(labelsize=size)
    count = len(along.labels)
    texts = [_label(along.text(i), 24) for i in range(count)] if count <= _MOST_CATEGORIES else []
    widths = [_text_width(text, size) + 6.0 for text in texts]
    if along.is_number:
        numbers = np.array(along.labels, dtype=float)
        is_log = _set_scale(ax, "x", numbers[0], numbers[-1], along.unit, most=across / (7.0 * size))
        scaled = np.log(numbers) if is_log else numbers
        if texts and max(widths) * np.ptp(scaled) <= across * np.diff(scaled).min(initial=np.inf):
            ax.set_xticks(numbers, texts)
            ax.set_xticks([], minor=True)
        for i in range(len(block.seconds)):
            _draw_line(ax, numbers, block, i)
        return size
    places = np.arange(count, dtype=float)
    tilt: dict[str, Any] = {"rotation": 35, "ha": "right"} if sum(widths) > across else {"rotation": 0, "ha": "center"}
    ax.set_xticks(places, texts, rotation_mode="anchor", **tilt)
    ax.set_xlim(-0.5, count - 0.5)
    for place in places[1::2]:
        ax.axvspan(place - 0.5, place + 0.5, color=_ink(ax), alpha=0.06, linewidth=0.0)
    lines = len(block.seconds)
    for i in range(lines):
        _draw_points(ax, places + 0.7 * ((i + 0.5) / lines - 0.5), block, i)
    return size + (0.57 * max(widths) if tilt["rotation"] else 0.0)


def _draw_line(ax: Axes, x: FloatArray, block: _Block, i: int) -> None:
    """One line over numbers: dashed and hollow where nothing starts."""
    colour, marker, size = _line_colour(i, ax), _marker(i), 5.0 * _text_scale(2.0 * _size_in_points(ax)[0])
    seconds, fits = block.seconds[i], block.feasible[i]
    shown_at = np.zeros(len(x), dtype=bool)
    shown_at[np.unique(np.linspace(0, len(x) - 1, min(len(x), 12)).round().astype(int))] = True
    ax.plot(x, np.where(fits, seconds, np.nan), color=colour, linewidth=1.6)
    if (missing := ~fits & np.isfinite(seconds)).any():
        near = missing | np.roll(missing, 1) | np.roll(missing, -1)
        ax.plot(x, np.where(near, seconds, np.nan), color=colour, linewidth=1.2, linestyle="--")
    for part, fill in ((fits, colour), (missing, "none")):
        at = part & shown_at
        ax.plot(x[at], seconds[at], marker, color=colour, markerfacecolor=fill, markersize=size)


def _draw_points(ax: Axes, x: FloatArray, block: _Block, i: int) -> None:
    """One point for each label: hollow where nothing starts."""
    colour, marker, size = _line_colour(i, ax), _marker(i), 6.0 * _text_scale(2.0 * _size_in_points(ax)[0])
    for part, fill in ((block.feasible[i], colour), (~block.feasible[i], "none")):
        ax.plot(x[part], block.seconds[i][part], marker, color=colour, markerfacecolor=fill, markersize=size)


def _line_colour(i: int, ax: Axes) -> Any:
    colours = (*_LINES, _ink(ax))
    return colours[i % len(colours)]


def _marker(i: int) -> str:
    return _MARKERS[i % len(_MARKERS)]


def _common_names(result: Sweep) -> str:
    """Model and node, where they are the same at both ends of the sweep."""
    valid = np.flatnonzero(result.status.ravel() != "invalid")
    ends = [result.point(np.unravel_index(int(i), result.shape)).start for i in valid[[0, -1]]]
    names = [
        next(iter(one))
        for one in ({end.model.name for end in ends}, {end.hardware.name for end in ends})
        if len(one) == 1
    ]
    return f"{' on '.join(names)}: " if names else ""


# --- tornado ----------------------------------------------------------------------------------------------------------------

_KINDS: Mapping[str, tuple[Look, str]] = {
    "number": (Look(_BLUE), "number of the node, {step:g} % better"),
    "flag": (Look(_ORANGE, "///"), "another setting"),
}


def tornado(sensitivity: Sensitivity, ax: Axes | None = None, most: int = 12) -> Axes:
    """What each change does to a start, the largest first: bars to the left save seconds, bars to the right add some.

    Numbers of the node and settings differ in colour and hatch; a setting with which the server does not start is pale with a dashed edge. Only the ``most``
    largest are drawn. Raises ConfigError for what is no sensitivity, and where nothing changes the start.
    """
    if not isinstance(sensitivity, Sensitivity):
        raise ConfigError("sensitivity", shown(sensitivity), "it is none", "give what sensitivity returns")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 100:
        raise ConfigError("most", shown(most), "it should be a number of bars from 1 to 100", "12 is usual")
    gains = sensitivity.gains[:most]
    if not gains:
        raise ConfigError("sensitivity", MISSING, "no change does anything to this start", "take a larger step")
    ax = _axes(ax, 8.5, 1.9 + 0.3 * len(gains))
    size = max(3.0, min(_row_font_size(ax, len(gains)), _whole_width(ax) / 45.0))
    bars = [
        (-gain.saved_s, f"{'−' if gain.saved_s > 0.0 else '+'}{format_seconds(abs(gain.saved_s))}") for gain in gains
    ]
    width = _set_rows(ax, [_gain_label(gain) for gain in gains], size)
    ax.set_xlim(*_both_edges(bars, size, width))
    for row, (gain, (end, text)) in enumerate(zip(gains, bars, strict=True)):
        _draw_bar(ax, row, 0.0, end, _KINDS[gain.kind][0], 0.75, hidden=not gain.fits)
        _write_beside(ax, end, row, text, size, at_left=end < 0.0)
    ax.axvline(0.0, color=_ink(ax), linewidth=1.0)
    _set_frame(ax, "x")
    words = ("seconds saved (left) or added (right)", "seconds saved or added", "seconds")
    ax.set_xlabel(_longest_that_fits(words, width, _usual_size()))
    _set_kind_legend(ax, gains, sensitivity.step, width)
    context, count = sensitivity.base.context, len(sensitivity.gains)
    title = f"{context.model_name} on {context.hardware_name}: {format_seconds(sensitivity.base.total_s)}"
    more = f", the {len(gains)} largest of {count} changes" if count > len(gains) else ""
    _set_title(ax, [f"{title}{more}", title], width, _whole_width(ax))
    return ax


def _gain_label(gain: Gain) -> str:
    return f"{gain.name.rpartition('.')[2]}: {gain.old} → {gain.new}"


def _both_edges(bars: Sequence[tuple[float, str]], size: float, width: float) -> tuple[float, float]:
    """The ends of the axes, so that the text at the end of each bar has room."""
    low, high = min(0.0, *(end for end, _ in bars)), max(0.0, *(end for end, _ in bars))
    left = max([_text_width(text, size) + 8.0 for end, text in bars if end < 0.0], default=0.0) / width
    right = max([_text_width(text, size) + 8.0 for end, text in bars if end >= 0.0], default=0.0) / width
    span = (high - low) / max(0.2, 1.0 - left - right) or 1.0
    return low - left * span, high + right * span


def _set_kind_legend(ax: Axes, gains: Sequence[Gain], step: float, width: float) -> None:
    """What the bars are."""
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=_ink(ax), label=words.format(step=100 * step))
        for kind, (look, words) in _KINDS.items()
        if any(gain.kind == kind for gain in gains)
    ]
    if not all(gain.fits for gain in gains):
        handles.append(Patch(facecolor="none", edgecolor=_ink(ax), linestyle="--", label="does not start"))
    _set_legend(ax, handles, width, below=True)


# --- interval fan -------------------------------------------------------------------------------------------------------------

_BANDS = ((0.05, 0.95), (0.1, 0.9), (0.25, 0.75))
"""Quantiles between which a band lies, the widest first."""
_BAND_ALPHA = 0.3


def interval_fan(
    x: Sequence[float] | Sweep,
    predictions: Sequence[StartupPrediction] | None = None,
    ax: Axes | None = None,
    *,
    name: str = "",
) -> Axes:
    """How far a start may be off, along a number: the median, and bands between the quantiles 0.25 and 0.75, 0.1 and 0.9, 0.05 and 0.95.

    x: numbers, with a prediction for each, and ``name``, what they are; or a sweep alone, with one axis of numbers and no other of more than one value.
    Raises ConfigError for anything else, and for fewer than two numbers.
    """
    probabilities = sorted({edge for band in _BANDS for edge in band} | {0.5})
    title = unit = ""
    if isinstance(x, Sweep):
        if predictions is not None:
            raise ConfigError("predictions", MISSING, "a sweep holds its own", "leave them out")
        side = _only_numbers(x)
        numbers, unit = np.array(side.labels, dtype=float), side.unit
        name = name or side.heading + (f" [{unit}]" if unit else "")
        curves = {p: x.quantile(p).ravel()[side.places] for p in probabilities}
        title = _common_names(x)
    else:
        numbers, given = _read_fan(x, predictions)
        curves = {p: np.array([one.quantile(p) for one in given]) for p in probabilities}
        models = {_prediction_title(one) for one in given}
        title = f"{models.pop()}: " if len(models) == 1 else ""
    finite = np.concatenate([curve[np.isfinite(curve)] for curve in curves.values()])
    if len(numbers) < 2 or not finite.size:
        raise ConfigError("x", MISSING, "fewer than two points that can be", "give more, or draw a waterfall")
    ax = _axes(ax, 8.0, 4.8)
    across, up = _size_in_points(ax)
    _set_scale(ax, "x", float(numbers[0]), float(numbers[-1]), unit, most=across / 55.0)
    if not _set_scale(ax, "y", float(finite.min()), float(finite.max()), most=up / 22.0):
        ax.set_ylim(0.0, 1.05 * float(finite.max()))
    handles = []
    for depth, (low, high) in enumerate(_BANDS, 1):
        ax.fill_between(numbers, curves[low], curves[high], color=_SKY, alpha=_BAND_ALPHA, linewidth=0.0)
        handles.append(_band_patch(1.0 - (1.0 - _BAND_ALPHA) ** depth, f"{100 * low:g} to {100 * high:g} %"))
    handles += ax.plot(numbers, curves[0.5], color=_ink(ax), linewidth=1.8, label="median")
    width = _set_legend(ax, handles[::-1], _width_beside_axis(ax))
    ax.set_xlim(numbers[0], numbers[-1])
    _set_frame(ax, "y")
    ax.set_xlabel(_label(name, 60))
    ax.set_ylabel("time to ready [seconds]")
    _set_title(ax, [f"{title}quantiles of the time to ready", "quantiles of the time to ready"], width)
    return ax


def _band_patch(alpha: float, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(facecolor=_SKY, alpha=alpha, label=label)


def _only_numbers(result: Sweep) -> _Side:
    """The one axis of numbers of a sweep. Raises ConfigError."""
    free = [name for name, labels in result.axes.items() if len(labels) > 1]
    if len(free) != 1 or not _is_numbers(result.axes[free[0]]):
        problem = f"it has {', '.join(free) or 'one point'}, not one axis of numbers"
        raise ConfigError("x", MISSING, problem, "sweep one number alone, or draw sweep_lines")
    return _side(result, free[0], _MOST_ALONG)


def _read_fan(x: object, predictions: object) -> tuple[FloatArray, list[StartupPrediction]]:
    """Numbers in ascending order and the prediction of each. Raises ConfigError."""
    numbers, given = _as_list(x, "x"), _as_list(predictions, "predictions")
    if len(numbers) != len(given):
        raise ConfigError(
            "predictions", MISSING, f"there are {len(given)} for {len(numbers)} numbers", "give one for each"
        )
    for i, (number, one) in enumerate(zip(numbers, given, strict=True)):
        plain = number.item() if isinstance(number, np.generic) else number
        if isinstance(plain, bool) or not isinstance(plain, int | float) or not abs(plain) <= 1e30:
            raise ConfigError(f"x[{i}]", shown(plain), "it is no finite number", "give the number that varies")
        if not isinstance(one, StartupPrediction):
            raise ConfigError(f"predictions[{i}]", shown(one), "it is no prediction", "give what predict returns")
    order = sorted(range(len(numbers)), key=lambda i: float(numbers[i]))
    return np.array([float(numbers[i]) for i in order]), [given[i] for i in order]


# --- files --------------------------------------------------------------------------------------------------------------------

_FORMATS: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Suffix -> what is left out of the file's own description, so that the same picture has the same bytes."""
_LAYOUT_ROUNDS = 2


def save(ax: Axes, path: str | Path, *, dpi: int = 150) -> None:
    """Write the figure of these axes as PNG (``dpi`` dots an inch), SVG or PDF, by the suffix: whole or not at all, the same picture with the same bytes.

    Raises ConfigError for another suffix, InputFileError where the file cannot be written.
    """
    if not isinstance(path, str | Path):
        raise ConfigError("path", shown(path), "it should be the name of a file", "such as sweep.png")
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(
            "path", str(path), "its suffix names no kind of picture", f"take one of {', '.join(_FORMATS)}"
        )
    if isinstance(dpi, bool) or not isinstance(dpi, int) or not 10 <= dpi <= 1200:
        raise ConfigError("dpi", shown(dpi), "it should be dots per inch from 10 to 1200", "150 is usual")
    _check_matplotlib()
    figure = _checked_axes(ax).figure.figure
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "startup_model"}), _settled(figure):
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=dict(_FORMATS[suffix]))
    write_atomically(Path(path), [content.getvalue()])


@contextmanager
def _settled(figure: Figure) -> Iterator[None]:
    """The figure with its layout worked out to a ten-thousandth and held: what a layout engine finds depends a little on where it starts."""
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    before = [(ax, ax.get_position(original=True), ax.get_position(), ax.get_in_layout()) for ax in figure.axes]
    try:
        for _ in range(_LAYOUT_ROUNDS):
            engine.execute(figure)
        for ax in figure.axes:
            left, bottom, width, height = (round(edge, 4) for edge in ax.get_position().bounds)
            ax.set_position((left, bottom, width, height))
        figure.set_layout_engine("none")
        yield
    finally:
        figure.set_layout_engine(engine)
        for ax, original, active, is_in_layout in before:
            ax.set_position(original, which="original")
            ax.set_position(active, which="active")
            ax.set_in_layout(is_in_layout)
