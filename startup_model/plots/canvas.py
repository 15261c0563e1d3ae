"""What all pictures share: styles, axes of a known size, texts that fit, scales, legends, checks, and files with the same bytes each time."""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from startup_model.errors import missing, one_line, out_of_range, wrong_type
from startup_model.files import write_atomically
from startup_model.phases import BLUE, GREEN, GREY, ORANGE, PHASES, PURPLE, SKY, VERMILLION, Style
from startup_model.prediction import StartupPrediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = Style
PHASE_LOOKS: Mapping[str, Look] = {name: row.style for name, row in PHASES.items()}
"""One look for each phase, the same in all pictures. Phases in a row differ in lightness or in hatch, so that a print in grey tells them apart."""

_LINES = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY)  # then the colour of the text; yellow is too faint for a line
MARKERS = "os^Dv*Ppdh<>"  # one for each line, so that colours may come twice


def style_of(name: str) -> Look:
    """The look of a phase, or of the first of several joined by +; else a neutral one."""
    row = PHASES.get(name.partition("+")[0].strip())
    return Look(GREY, "...") if row is None else row.style


def line_colour(i: int, ax: Axes) -> Any:
    return (*_LINES, text_color(ax))[i % (len(_LINES) + 1)]


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or those of a new figure: in a notebook, which shows and closes what pyplot knows, one of pyplot's."""
    if ax is not None:
        return _checked_axes(ax)
    check_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    make: Any = Figure
    if _in_notebook():
        from matplotlib.pyplot import figure as make
    figure: Figure = make(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    return figure.add_subplot()


def check_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise missing("matplotlib", "pictures need it", "pip install 'startup-model[notebook]'") from None


def _checked_axes(ax: object) -> Axes:
    check_matplotlib()
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes) or ax.figure is None:
        raise wrong_type("ax", ax, "an Axes of a figure of matplotlib", "take one of plt.subplots(), or omit it")
    return ax


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython() if ipython is not None else None, "kernel")


def text_color(ax: Axes) -> Any:
    """The colour of text in the style that the axes were made in."""
    return ax.xaxis.label.get_color()


def size_in_points(ax: Axes) -> tuple[float, float]:
    dpi = ax.figure.dpi
    return ax.bbox.width * 72.0 / dpi, ax.bbox.height * 72.0 / dpi


def has_layout(ax: Axes) -> bool:
    """Whether room is made for what stands beside the axes."""
    return ax.figure.get_layout_engine() is not None


def whole_width(ax: Axes) -> float:
    """Points of the axes with what stands beside them: a layout takes back the margins that an empty figure has."""
    width = size_in_points(ax)[0]
    return width / 0.775 - 12.0 if has_layout(ax) else width


def width_beside_axis(ax: Axes) -> float:
    """Points of the axes beside a vertical axis with numbers and a name."""
    return whole_width(ax) - (4.0 * usual_size() if has_layout(ax) else 0.0)


def set_frame(ax: Axes, along: str) -> None:
    ax.set_axisbelow(True)
    (ax.xaxis if along == "x" else ax.yaxis).grid(visible=True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def is_wide(low: float, high: float) -> bool:
    return low > 0.0 and high > 10.0 * low


def set_scale(ax: Axes, which: str, low: float, high: float, unit: str = "", most: float = 8.0) -> bool:
    """A logarithmic scale with plain numbers where the values span more than a decade, else a linear one; about ``most`` ticks. Whether it is logarithmic."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    wide = is_wide(low, high)
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


def text_width(text: str, size: float) -> float:
    return 0.6 * size * len(text)  # about so many points


def first_that_fits(texts: Sequence[str], width: float, size: float) -> str:
    return next((text for text in texts if text_width(text, size) <= width), texts[-1])


def usual_size(name: str = "medium") -> float:
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=name).get_size_in_points())


def text_scale(width: float) -> float:
    return max(0.6, min(1.0, width / 330.0))


def small_size(ax: Axes) -> float:
    return usual_size("small") * text_scale(2.0 * size_in_points(ax)[0])


def short_label(text: object, longest: int = 36) -> str:
    """``shortened``, and no dollar begins a formula."""
    return shortened(text, longest).replace("$", r"\$")


def shortened(text: object, longest: int) -> str:
    """A name as one short line: a long one loses the organisation before its slash, then its middle."""
    text = one_line(str(text), 400)
    if len(text) > longest:
        text = re.sub(r"^[\w.-]+/(?=[\w.-])", "", text)
    return text if len(text) <= longest else f"{text[: (longest + 1) // 2 - 1]}…{text[len(text) - longest // 2 :]}"


def set_title(ax: Axes, texts: Sequence[str], width: float, whole: float = 0.0) -> None:
    """The first text that fits over axes of this width, else the last without its middle; a long one is smaller, in the middle of the ``whole`` width."""
    usual = float(ax.title.get_fontsize())
    room = max(width, whole)
    text = first_that_fits(texts, room, 0.75 * usual)
    size = max(0.75 * usual, min(usual, room / text_width(text or " ", 1.0)))
    text = short_label(text, max(12, int(room / text_width(" ", size))))
    ax.set_title(text, fontsize=size, loc="center")
    ax.title.set_x(0.5 - (0.5 * (room - width) / width if text_width(text, size) > width else 0.0))


def title_of(prediction: StartupPrediction) -> str:
    context = prediction.context
    end = "" if prediction.memory.fits else f", does not start ({prediction.memory.status})"
    return f"{context.model_name} on {context.hardware_name}, {context.engine_name}{end}"


def set_legend(ax: Axes, handles: Sequence[Any], width: float, *, below: bool = False, under: float = 0.0) -> float:
    """Where a layout makes room: at the right of wide axes, else below, with ``under`` points for tick labels; else inside. The width left for the axes."""
    size = usual_size("small") * text_scale(width)
    style: dict[str, Any] = {"labelcolor": text_color(ax), "facecolor": ax.get_facecolor(), "fontsize": size}
    if not has_layout(ax):
        ax.legend(handles=handles, loc="best", framealpha=0.8, **style)
    elif below or width < 360.0:
        away = (max(under, usual_size()) + 1.6 * usual_size() + 10.0) / size
        style |= {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": away}
        ax.legend(handles=handles, ncols=legend_columns(handles, width, size), frameon=False, **style)
    else:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, **style)
        return width - _legend_width(handles, size) - 12.0
    return width


def _legend_width(handles: Sequence[Any], size: float) -> float:
    return max(text_width(str(handle.get_label()), size) for handle in handles) + 4.5 * size


def legend_columns(handles: Sequence[Any], width: float, size: float) -> int:
    return max(1, min(len(handles), int(width / _legend_width(handles, size)))) if handles else 1


# --- checks ---------------------------------------------------------------------------------------------------------------

_MAX_POINTS = 10_000


def number_of(field: str, value: object, low: float, high: float, expected: str, remedy: str = "") -> float:
    """A number from ``low`` to ``high``, a whole one where these are."""
    plain = value.item() if isinstance(value, np.generic) else value
    kinds = int if isinstance(low, int) else int | float
    if isinstance(plain, bool) or not isinstance(plain, kinds) or not low <= plain <= high:
        raise out_of_range(field, plain, expected, remedy)
    return plain


def seconds_of(value: object, field: str) -> float:
    return float(number_of(field, value, 0.0, 1e9, "seconds from 0 to 1e9", "correct it or omit it"))


def list_of(values: object, field: str) -> list[Any]:
    if not isinstance(values, Collection | np.ndarray) or isinstance(values, str | bytes | Mapping | Set):
        raise wrong_type(field, values, "a list", "give one value for each start")
    if not 1 <= len(values) <= _MAX_POINTS:
        raise out_of_range(f"values of {field}", len(values), f"1 to {_MAX_POINTS}")
    return list(values)


def prediction_of(value: object, field: str = "prediction") -> StartupPrediction:
    if not isinstance(value, StartupPrediction):
        raise wrong_type(field, value, "a prediction", "give what predict returns")
    return value


# --- files ----------------------------------------------------------------------------------------------------------------

_LEFT_OUT = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # so that the same picture has the same bytes


def save(ax: Axes, path: str | Path, *, dpi: int = 150) -> None:
    """Write the figure of these axes as PNG (``dpi`` dots an inch), SVG or PDF, by the suffix: whole or not at all, the same picture with the same bytes.

    Raises ConfigError for another suffix, InputFileError where the file cannot be written.
    """
    if not isinstance(path, str | Path):
        raise wrong_type("path", path, "the name of a file", "such as sweep.png")
    suffix = Path(path).suffix.lower()
    if suffix not in _LEFT_OUT:
        raise wrong_type("path", str(path), "the name of a picture", f"let it end in one of {', '.join(_LEFT_OUT)}")
    number_of("dpi", dpi, 10, 1200, "dots per inch from 10 to 1200", "150 is usual")
    figure = _checked_axes(ax).figure.figure
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "startup_model"}), _settled(figure):
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata={_LEFT_OUT[suffix]: None})
    write_atomically(Path(path), [content.getvalue()])


@contextmanager
def _settled(figure: Figure) -> Iterator[None]:
    """The layout is held to a ten-thousandth: what an engine finds depends a little on where it starts."""
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    before = [(ax, ax.get_position(original=True), ax.get_position(), ax.get_in_layout()) for ax in figure.axes]
    try:
        for _ in range(2):
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
