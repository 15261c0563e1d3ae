"""Plots: the numbers that are drawn, the axes they are drawn into, what they leave unchanged, and files that are the same each time."""

from __future__ import annotations

import math
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.fit.calibrate import fit_profile
from calibration.logs.parser import parse_log
from calibration.runs.read import read_runs
from startup_model import (
    ConfigError,
    EngineConfig,
    HardwareConfig,
    InputFileError,
    Phase,
    StartupPrediction,
    Sweep,
    UnknownNameError,
    plots,
    predict,
    sensitivity,
    sweep,
)
from startup_model.compare import Gain
from startup_model.plots import canvas, starts
from startup_model.plots.canvas import short_label
from startup_model.plots.sweeps import roles_of

ROOT = Path(__file__).parent.parent
MODEL = "meta-llama/Llama-2-7b-hf"
MODELS = ["Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B-Instruct"]
COLD = "hardware.storage.cold_bandwidth"
TIER = "hardware.storage.tier"
STORES = {
    "NVMe": {TIER: "local_nvme", "hardware.storage.local_nvme": "6 GB/s", "engine.page_cache": "cold"},
    "SATA": {TIER: "local_nvme", "hardware.storage.local_nvme": "0.5 GB/s", "engine.page_cache": "cold"},
    "NFS": {TIER: "network_disk", "hardware.storage.network_disk": "1.2 GB/s", "engine.page_cache": "cold"},
    "objects": {TIER: "object_store", "hardware.storage.object_store": "200 MB/s", "engine.page_cache": "cold"},
    "page cache": {"engine.page_cache": "hot"},
}


@pytest.fixture(autouse=True)
def unchanged(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a setting of matplotlib changed, or a figure of pyplot open."""
    if "without_matplotlib" in request.node.name:
        yield
        return
    matplotlib = pytest.importorskip("matplotlib")
    before = {name: value for name, value in matplotlib.rcParams.items() if not name.startswith("backend")}
    yield
    assert {name: value for name, value in matplotlib.rcParams.items() if not name.startswith("backend")} == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def new_axes(width: float = 8.0, height: float = 5.0) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").add_subplot()


@cache
def warm() -> StartupPrediction:
    """A start of the example run, with its profile: a narrow interval."""
    run = read_runs(ROOT / "examples" / "runs" / "l40s.yaml")[0]
    return predict(run.model, run.hardware, run.engine, profile=fit_profile([run]))


@cache
def both() -> StartupPrediction:
    """SGLang builds the tokenizer beside the load of the model."""
    return predict(MODEL, "h100-sxm", EngineConfig(engine="sglang"), page_cache="cold", include=["image_pull"])


@cache
def base() -> StartupPrediction:
    return predict(MODEL, "h100-nvl")


@cache
def log() -> Any:
    return parse_log(ROOT / "examples" / "logs" / "base.log")


@cache
def gains() -> Any:
    return sensitivity(warm())


BANDWIDTHS = np.geomspace(1e8, 1e10, 9)


@cache
def curve() -> Sweep:
    return sweep(MODEL, "h100-sxm", axes={COLD: BANDWIDTHS}, page_cache="cold")


@cache
def two() -> Sweep:
    return sweep(MODEL, "h100-sxm", axes={"hardware": ["h100-sxm", "l40s"], COLD: BANDWIDTHS}, page_cache="cold")


@cache
def buyer() -> Sweep:
    axes = {"hardware": ["h100-sxm", "a100-80gb", "l40s"], "store": STORES, "model": MODELS}
    return sweep(MODEL, "h100-sxm", axes=axes)


@cache
def ranked() -> Sweep:
    axes = {"model": MODELS[1:3], "engine.tp": [1, 2, 4], "engine.enforce_eager": [False, True]}
    return sweep(MODELS[1], "l40s", axes=axes)


@cache
def many() -> Sweep:
    return sweep(MODEL, "l40s", axes={"engine.version": [f"0.10.{i}" for i in range(41)]})


DRAWN: dict[str, Callable[[Any], Any]] = {
    "waterfall": lambda ax: plots.waterfall(base(), ax),
    "waterfall of overlapping phases": lambda ax: plots.waterfall(both(), ax),
    "timeline of a log": lambda ax: plots.timeline(log(), ax),
    "timeline of a prediction": lambda ax: plots.timeline(both(), ax),
    "predicted against measured": lambda ax: plots.predicted_against_measured([base(), warm()], [25.0, 22.0], ax),
    "lines": lambda ax: plots.sweep_lines(two(), ax=ax),
    "panels": lambda ax: plots.sweep_lines(buyer(), ax=ax),
    "tornado": lambda ax: plots.tornado(gains(), ax),
    "fan": lambda ax: plots.interval_fan(curve(), ax=ax),
}


def bars(ax: Any) -> list[tuple[float, float, float]]:
    """Row, begin and length of each bar, from the top."""
    from matplotlib.patches import Rectangle

    found = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    return sorted((p.get_y() + p.get_height() / 2, p.get_x(), p.get_width()) for p in found)


def rows(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def points(ax: Any, *, hollow: bool = False) -> list[tuple[float, float]]:
    """The markers of lines, filled or hollow."""
    lines = [line for line in ax.lines if line.get_linestyle() == "None" and line.get_marker() != "_"]
    lines = [line for line in lines if (line.get_markerfacecolor() == "none") == hollow]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


# --- axes in, axes out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_draws_into_the_axes_that_it_is_given_or_a_figure_of_its_own(draw: Callable[[Any], Any]) -> None:
    ax = new_axes()
    assert draw(ax) is ax
    own = draw(None)
    assert own.figure is not ax.figure
    assert own.get_title()
    for axes in own.figure.axes:
        assert axes is own or axes.lines or axes.collections or axes.patches


def test_axes_without_a_place_in_a_grid_hold_panels_too() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6))
    ax = plots.sweep_lines(buyer(), ax=figure.add_axes((0.1, 0.2, 0.5, 0.6)))
    edges = [axes.get_position().extents for axes in figure.axes]
    assert ax.figure is figure
    assert np.min(edges, axis=0)[:2] == pytest.approx([0.1, 0.2])
    assert np.max(edges, axis=0)[2:] == pytest.approx([0.6, 0.8])


def test_a_subfigure_will_do() -> None:
    from matplotlib.figure import Figure

    part = Figure(figsize=(9, 4), layout="constrained").subfigures(1, 2)[0]
    assert plots.waterfall(base(), part.add_subplot()).figure is part


def test_in_a_notebook_pyplot_shows_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    plots.waterfall(base())
    assert plt.get_fignums() == []
    monkeypatch.setattr(canvas, "_in_notebook", lambda: True)
    ax = plots.waterfall(base())
    assert plt.get_fignums() == [ax.figure.number]
    plt.close(ax.figure)


def test_a_notebook_is_told_by_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    for shell, expected in ((SimpleNamespace(kernel=None), True), (SimpleNamespace(), False), (None, False)):
        ipython.get_ipython = lambda shell=shell: shell  # type: ignore[attr-defined]
        assert canvas._in_notebook() == expected
    monkeypatch.delitem(sys.modules, "IPython")
    assert not canvas._in_notebook()


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_text_follows_a_dark_style(draw: Callable[[Any], Any]) -> None:
    """Also where the axes were made in the style and are drawn into outside it."""
    from matplotlib import style
    from matplotlib.colors import to_rgb

    with style.context("dark_background"):
        ax = new_axes()
    draw(ax)
    for axes in ax.figure.axes:
        written = [*axes.texts, *(axes.get_legend().get_texts() if axes.get_legend() else ())]
        if axes is ax:
            written += [axes.title, axes.xaxis.label]
        assert all(sum(to_rgb(text.get_color())) > 2.5 for text in written)
        assert to_rgb(ax.get_facecolor()) == (0, 0, 0)


@pytest.mark.parametrize("size", [(8.0, 5.0), (4.0, 3.0)], ids=["usual", "small"])
@pytest.mark.parametrize("name", ["waterfall", "timeline of a log", "tornado", "lines", "predicted against measured"])
def test_labels_do_not_overlap_and_lie_in_the_figure(name: str, size: tuple[float, float]) -> None:
    ax = DRAWN[name](new_axes(*size))
    figure = ax.figure
    figure.get_layout_engine().execute(figure)
    ticks = [
        tick for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())) for tick in axis.get_major_ticks()
        if min(limits) <= tick.get_loc() <= max(limits)
    ]  # fmt: skip
    boxes = [text.get_window_extent() for text in (*(tick.label1 for tick in ticks), *ax.texts) if text.get_text()]
    assert not [1 for i, one in enumerate(boxes) for two in boxes[:i] if overlap(one, two) > 1.0]
    for text in (ax.title, *ax.texts, ax.xaxis.label, ax.yaxis.label):
        if text.get_text():
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, text  # noqa: PT018


def overlap(one: Any, two: Any) -> float:
    """How far two boxes reach into each other, in pixels."""
    return float(min(min(one.x1, two.x1) - max(one.x0, two.x0), min(one.y1, two.y1) - max(one.y0, two.y0)))


# --- colours --------------------------------------------------------------------------------------------------------------


def test_every_phase_has_a_look_of_its_own_that_differs_in_grey_from_the_next() -> None:
    from matplotlib.colors import to_rgb

    def lightness(colour: str) -> float:
        """L* of CIELAB (CIE 15:2018), of sRGB."""
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        return float(116.0 * np.cbrt(np.dot((0.2126, 0.7152, 0.0722), linear)) - 16.0)

    assert list(plots.PHASE_LOOKS) == list(Phase)
    assert len(set(plots.PHASE_LOOKS.values())) == len(Phase)
    looks = list(plots.PHASE_LOOKS.values())
    for one, two in pairwise(looks):
        assert abs(lightness(one.colour) - lightness(two.colour)) > 10.0 or one.hatch != two.hatch


def test_a_phase_has_its_colour_in_every_picture() -> None:
    from matplotlib.colors import to_rgb

    for ax in (plots.waterfall(base()), plots.timeline(log()), plots.timeline(base())):
        row = rows(ax).index("weight_load")
        bar = next(patch for patch in ax.patches if round(patch.get_y() + patch.get_height() / 2) == row)
        assert bar.get_facecolor()[:3] == to_rgb(plots.PHASE_LOOKS[Phase.WEIGHT_LOAD].colour)


def test_a_phase_that_is_not_known_here_is_drawn_neutrally() -> None:
    assert canvas.style_of("kernel_heating") not in plots.PHASE_LOOKS.values()
    assert canvas.style_of("weight_load + kernel_heating") == plots.PHASE_LOOKS[Phase.WEIGHT_LOAD]
    ax = plots.timeline(SimpleNamespace(phases={"weight_load": 3.0, "kernel_heating": 4.0}))
    assert rows(ax) == ["weight_load", "kernel_heating"]


# --- waterfall ------------------------------------------------------------------------------------------------------------


def test_waterfall_bars_are_the_seconds_one_after_the_other() -> None:
    ax = plots.waterfall(warm())
    *phases, total = bars(ax)
    expected = {phase.value: entry.seconds for phase, entry in warm().phases.items() if entry.seconds}
    assert [length for _, _, length in phases] == pytest.approx(list(expected.values()))
    assert [begin for _, begin, _ in phases] == pytest.approx(np.cumsum([0.0, *list(expected.values())[:-1]]))
    assert phases[-1][1] + phases[-1][2] == pytest.approx(warm().total_s)
    assert total[1:] == pytest.approx((0.0, warm().total_s))
    assert rows(ax) == [*expected, "total", "90 % interval"]
    assert ax.get_xlim()[0] == 0.0
    assert ax.get_xlabel() == "seconds"
    low, high = warm().interval
    assert f"{low:.1f} to {high:.1f} s" in texts(ax)
    assert f"{warm().total_s:.1f} s" in texts(ax)
    assert ax.get_title() == "meta-llama/Llama-3.2-3B on l40s, vllm 0.10.1.1"


def test_waterfall_shows_time_that_is_hidden_beside_a_longer_branch() -> None:
    ax = plots.waterfall(both())
    by_row = {rows(ax)[round(row)]: (begin, length) for row, begin, length in bars(ax)}
    hidden = both().phases[Phase.TOKENIZER_LOAD]
    assert hidden.seconds == 0.0 < hidden.elapsed_s
    assert by_row["tokenizer_load"] == pytest.approx((by_row["model_init"][0], hidden.elapsed_s))
    pale = next(patch for patch in ax.patches if patch.get_width() == pytest.approx(hidden.elapsed_s))
    assert pale.get_alpha() < 0.5
    counted = [length for name, (_, length) in by_row.items() if name not in ("tokenizer_load", "total")]
    assert sum(counted) == pytest.approx(both().total_s)
    assert by_row["unattributed"][0] + by_row["unattributed"][1] == pytest.approx(both().total_s)
    assert any(text.endswith(", hidden") for text in texts(ax))


def test_waterfall_of_a_longer_tokenizer_hides_the_load_in_its_order() -> None:
    model = both().context.start.model.replace(tokenizer_bytes=4_000_000_000)
    slow = predict(model, "h100-sxm", EngineConfig(engine="sglang"), page_cache="hot")
    assert slow.phases[Phase.WEIGHT_LOAD].seconds == 0.0
    ax = plots.waterfall(slow)
    by_row = {rows(ax)[round(row)]: (begin, length) for row, begin, length in bars(ax)}
    assert by_row["model_init"][0] == pytest.approx(by_row["tokenizer_load"][0])
    assert by_row["weight_load"][0] == pytest.approx(sum(by_row["model_init"]))


def test_waterfall_ends_a_wide_interval_in_an_arrow() -> None:
    ax = plots.waterfall(base())
    assert base().interval[1] > 3 * base().total_s
    right = ax.get_xlim()[1]
    assert right < 2 * base().total_s
    assert [line.get_xdata()[0] for line in ax.lines if line.get_marker() == ">"] == [right]
    assert f"{base().interval[0]:.1f} to {base().interval[1]:.1f} s" in texts(ax)


def test_waterfall_leaves_out_what_is_switched_off_and_says_what_does_not_start() -> None:
    eager = predict(MODEL, "h100-nvl", enforce_eager=True)
    assert not {"graph_trace", "graph_compile", "graph_capture"} & set(rows(plots.waterfall(eager)))
    large = predict("meta-llama/Llama-3.1-70B-Instruct", "l40s")
    assert plots.waterfall(large).get_title().endswith("does not start (weights_do_not_fit)")


# --- timeline -------------------------------------------------------------------------------------------------------------


def test_timeline_of_a_log_lays_phases_by_their_stamps() -> None:
    ax = plots.timeline(log())
    by_row: dict[str, list[tuple[float, float]]] = {}
    for row, begin, length in bars(ax):
        by_row.setdefault(rows(ax)[round(row)], []).append((begin, length))
    holes = by_row.pop("unattributed")
    assert sum(length for _, length in holes) == pytest.approx(log().phases["unattributed"])
    lengths = {name: length for name, [(_, length)] in by_row.items()}
    assert lengths == pytest.approx({n: s for n, s in log().phases.items() if s and n != "unattributed"})
    spans = [(begin, begin + length) for [(begin, length)] in by_row.values()]
    assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(spans))
    assert by_row["framework_bootstrap"] == [pytest.approx((0.0, 13.0))]  # "Initializing a V1 LLM engine" at 20:00:13
    assert spans[-1][1] == pytest.approx(34.0)  # "Application startup complete." follows a line of 20:00:34
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [34.0]
    assert ax.get_title() == "meta-llama/Llama-3.1-8B-Instruct vllm 0.10.2: ready after 34.0 s"
    assert ax.get_xlabel() == "seconds since the first line; ~ from stamps"
    assert {"~13.0 s", "4.62 s"} <= set(texts(ax))
    assert rows(ax)[-1] == "lines that were read"


def test_timeline_of_a_prediction_has_the_bars_of_the_waterfall() -> None:
    assert bars(plots.timeline(both())) == bars(plots.waterfall(both()))[:-1]
    assert plots.timeline(base()).get_xlabel() == "seconds since process start"
    assert plots.timeline(both()).get_xlabel() == "seconds since the start"


def test_timeline_of_a_run_without_stamps_lies_end_to_end() -> None:
    run = read_runs(ROOT / "examples" / "runs" / "l40s.yaml")[0]
    ax = plots.timeline(run)
    found = bars(ax)
    assert [length for _, _, length in found] == pytest.approx(list(run.phases.values()))
    assert [begin for _, begin, _ in found] == pytest.approx(np.cumsum([0.0, *list(run.phases.values())[:-1]]))
    assert ax.get_title() == "meta-llama/Llama-3.2-3B vllm: ready after 22.5 s"
    assert ax.get_xlabel() == "seconds since process start"


def test_timeline_with_one_phase_joined_phases_downloads_and_a_failure() -> None:
    assert bars(plots.timeline(SimpleNamespace(phases={"weight_load": 3.0}))) == [pytest.approx((0.0, 0.0, 3.0))]
    start = SimpleNamespace(
        phases={"framework_bootstrap+worker_spawn": 5.0, "weight_load": 2.0, "graph_trace": 4.0},
        joint={"graph_trace": ("graph_trace", "graph_compile")},
        facts={"download_s": 20.0},
        status="incomplete",
    )
    ax = plots.timeline(start)
    assert rows(ax) == [
        "framework_bootstrap + worker_spawn",
        "download",
        "weight_load",
        "graph_trace + graph_compile",
    ]
    assert [begin for _, begin, _ in bars(ax)] == pytest.approx([0.0, 5.0, 25.0, 27.0])
    assert ax.get_title() == ", incomplete"


def test_phases_that_take_longer_than_the_start_end_at_their_stamps() -> None:
    ends = {"framework_bootstrap": 15.0, "weight_load": 38.0, "graph_capture": 40.0}
    start = SimpleNamespace(
        phases={"framework_bootstrap": 15.0, "weight_load": 30.0, "graph_capture": 30.0},
        wall_s=40.0,
        moments=[SimpleNamespace(elapsed_s=at, line_number=i) for i, at in enumerate(ends.values())],
        phase_evidence={name: SimpleNamespace(line_number=i) for i, name in enumerate(ends)},
    )
    assert [begin + length for _, begin, length in bars(plots.timeline(start))] == pytest.approx([15.0, 38.0, 40.0])


def test_processes_have_rows_of_their_own_and_of_many_the_slowest() -> None:
    ranks = {f"TP{i}": {"load_weights_s": 3.0 + i, "dynamo_s": 4.0} for i in range(40)}
    start = SimpleNamespace(phases={"framework_bootstrap": 5.0, "weight_load": 42.0, "graph_trace": 4.0}, ranks=ranks)
    ax = plots.timeline(start)
    assert rows(ax)[3:] == ["slowest of 40 processes:", *(f"TP{i}" for i in range(24, 40))]
    last = [(begin, length) for row, begin, length in bars(ax) if round(row) == len(rows(ax)) - 1]
    assert last == [pytest.approx((5.0, 42.0)), pytest.approx((47.0, 4.0))]
    start.ranks = {"": ranks["TP0"], "TP1": ranks["TP1"]}
    assert rows(plots.timeline(start))[3:] == ["main process", "TP1"]
    start.ranks = {"TP0": ranks["TP0"], "TP1": {"weights_gib": 3.0}}
    assert len(rows(plots.timeline(start))) == 3


def test_figures_of_processes_mean_the_phases_that_log_tables_take_them_for() -> None:
    figures = {"tokenizer_init_s": 1.0, "load_weights_s": 2.0, "compile_s": 3.0, "compiled_graph_load_s": 0.5, "dynamo_s": 4.0, "torch_compile_total_s": 7.5}  # fmt: skip
    phases = {"tokenizer_load": 1.0, "weight_load": 2.0, "graph_trace": 4.0, "graph_compile": 3.5}
    start = SimpleNamespace(phases=phases, ranks={"TP0": figures, "TP1": figures | {"dynamo_s": 5.0}})
    drawn = [(begin, length) for row, begin, length in bars(plots.timeline(start)) if round(row) == 4]
    assert drawn == [pytest.approx(bar) for bar in ((0.0, 1.0), (1.0, 2.0), (3.0, 4.0), (7.0, 3.0), (10.0, 0.5))]


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 500)), min_size=1, max_size=8),
    st.floats(0, 200),
)
@settings(max_examples=40, deadline=None)
def test_gaps_are_the_isotonic_regression_of_the_stamps(stages: list[tuple[float, float]], most: float) -> None:
    """Reference: the max-min formula of isotonic regression (Robertson, Wright and Dykstra 1988, theorem 1.4.4)."""
    free = np.array([stamp for _, stamp in stages]) - np.cumsum([seconds for seconds, _ in stages])
    n = len(free)
    expected = [max(min(free[j : k + 1].mean() for k in range(i, n)) for j in range(i + 1)) for i in range(n)]
    found = starts._gaps([starts.Stage("x", seconds, stamp, False) for seconds, stamp in stages], most)
    assert found == pytest.approx(np.clip(expected, 0.0, most), abs=1e-6)
    without = starts._gaps([starts.Stage("x", seconds, None, False) for seconds, _ in stages], most)
    assert without == pytest.approx(np.zeros(n))


# --- predicted against measured -------------------------------------------------------------------------------------------


def test_points_intervals_band_and_the_worst() -> None:
    given = [(10.0, 9.0, 11.0), (20.0, 18.0, 25.0), (33.0, 30.0, 40.0), (40.0, 39.0, 41.0)]
    ax = plots.predicted_against_measured(given, [10.0, 22.0, 30.0, 40.0], names=["a", "b", "c", "d"], worst=2)
    assert points(ax)[:4] == [(10.0, 10.0), (22.0, 20.0), (30.0, 33.0), (40.0, 40.0)]
    assert points(ax)[4:] == [(30.0, 33.0), (22.0, 20.0)]
    (segments,) = [c.get_segments() for c in ax.collections if hasattr(c, "get_segments")]
    assert [tuple(map(tuple, segment)) for segment in segments][1] == ((22.0, 18.0), (22.0, 25.0))
    band = next(c for c in ax.collections if not hasattr(c, "get_segments")).get_paths()[0].vertices
    assert set(np.round(band[:, 1] / band[:, 0], 6)) <= {0.9, 1.1}
    assert legend(ax) == ["predicted = measured", "within ±10 %", "interval", "c +10.0 %", "b −9.1 %"]
    assert ax.get_title() == "mean error 4.8 %, worst +10.0 %, 4 starts"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("measured [seconds]", "predicted [seconds]")
    assert ax.get_xlim() == ax.get_ylim()
    assert ax.get_xscale() == "linear"


def test_scales_are_logarithmic_over_more_than_a_decade() -> None:
    ax = plots.predicted_against_measured([base(), warm()], [24.0, 22.0])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")  # the interval of a reference host is wide
    assert legend(ax)[2:] == ["90 % interval", f"{MODEL} +3.3 %", "meta-llama/Llama-3.2-3B +2.1 %"]


def test_rows_of_a_validation_bring_what_was_measured() -> None:
    row = SimpleNamespace(measured_s=20.0, predicted_s=21.0, interval=(19.0, 22.0), group="org/some-$model$")
    ax = plots.predicted_against_measured([row] * 3)
    assert points(ax)[0] == (20.0, 21.0)
    assert legend(ax)[-1] == r"org/some-\$model\$ +5.0 %"
    arrays = plots.predicted_against_measured(np.array([[21.0, 19.0, 22.0]]), np.array([20.0]))
    assert points(arrays)[0] == (20.0, 21.0)


# --- sweeps ---------------------------------------------------------------------------------------------------------------


def test_lines_over_numbers() -> None:
    ax = plots.sweep_lines(two())
    lines = [line for line in ax.lines if line.get_linestyle() == "-"]
    for i, line in enumerate(lines):
        assert line.get_xdata() == pytest.approx(BANDWIDTHS)
        assert line.get_ydata() == pytest.approx(two().total_s[i])
    assert len(lines) == 2
    assert legend(ax) == ["h100-sxm", "l40s"]
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == (
        "log",
        "cold_bandwidth [B/s]",
        "time to ready [seconds]",
    )
    assert ax.get_title() == f"{MODEL}: time to ready by cold_bandwidth, hardware"
    one = plots.sweep_lines(curve(), y="weight_load")
    assert one.lines[0].get_ydata() == pytest.approx(curve().phases["weight_load"])
    assert one.get_legend() is None
    assert one.get_ylabel() == "weight_load [seconds]"


def test_a_buyers_sweep_is_one_call_and_one_plot() -> None:
    """3 GPUs x 5 storage tiers x 4 models."""
    ax = plots.sweep_lines(buyer())
    panels = ax.figure.axes[1:]
    assert [panel.get_title(loc="left") for panel in panels] == MODELS
    assert legend(ax) == ["h100-sxm", "a100-80gb", "l40s", "does not start"]
    assert ax.get_title() == "time to ready by store, hardware, model"
    for k, panel in enumerate(panels):
        for hollow in (False, True):
            wanted = buyer().feasible[:, :, k] != hollow
            assert sorted(y for _, y in points(panel, hollow=hollow)) == pytest.approx(
                sorted(buyer().total_s[:, :, k][wanted])
            )
        assert panel.get_ylim() == panels[0].get_ylim()
    assert [label.get_text() for label in panels[2].get_xticklabels()] == list(STORES)
    places = sorted(x for x, _ in points(panels[0]))
    assert [round(x) for x in places] == [i for i in range(5) for _ in range(3)]
    assert len({round(x, 6) for x in places}) == 15  # side by side


def test_what_does_not_start_is_hollow_and_dashed() -> None:
    ax = plots.sweep_lines(ranked(), x="engine.tp", lines="model", panels="best")
    assert not ranked().feasible[1, 0].any()
    assert [x for x, _ in points(ax, hollow=True)] == [1.0]
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1
    assert "does not start" in legend(ax)


def test_other_axes_are_at_their_best() -> None:
    ax = plots.sweep_lines(ranked(), x="engine.tp", lines="best", panels="best")
    best = ranked().best(per="engine.tp")
    assert points(ax) == [pytest.approx((tp, point.total_s)) for tp, point in best.items()]
    assert ax.get_title() == "l40s: time to ready by tp, best of model, enforce_eager"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4"]


def test_axes_are_chosen() -> None:
    def roles(result: Sweep, **given: str) -> tuple[str | None, ...]:
        return roles_of(result, **({"x": None, "lines": None, "panels": None} | given))[:3]

    assert roles(two()) == (COLD, "hardware", None)
    assert roles(curve()) == (COLD, None, None)
    assert roles(buyer()) == ("store", "hardware", "model")
    assert roles(buyer(), x="model") == ("model", "store", "hardware")
    assert roles(buyer(), lines="model") == ("store", "model", "hardware")
    assert roles(buyer(), panels="best") == ("store", "model", None)
    assert roles(buyer(), lines="best") == ("store", None, "model")
    assert roles(buyer(), lines="best", panels="best") == ("store", None, None)
    assert roles(ranked()) == ("engine.tp", "engine.enforce_eager", "model")
    single = sweep(MODEL, "l40s", axes={"engine.tp": [1]})
    assert roles(single) == ("engine.tp", None, None)
    assert points(plots.sweep_lines(single)) == [pytest.approx((1.0, float(single.total_s[0])))]


def test_of_too_many_numbers_some_are_drawn() -> None:
    axes = {COLD: np.geomspace(1e8, 1e10, 5000), "hardware.cpu.single_thread_score": np.linspace(0.5, 2, 50)}
    ax = plots.sweep_lines(sweep(MODEL, "h100-sxm", axes=axes, page_cache="cold"))
    assert len([line for line in ax.lines if line.get_linestyle() == "-"]) == 6
    assert len(ax.lines[0].get_xdata()) == 2000
    assert legend(ax)[0] == "single_thread_score=0.5"
    assert "6 of 50" in ax.get_title()
    assert ax.get_xlabel() == "cold_bandwidth, 2000 of 5000 [B/s]"


def test_points_that_cannot_be_are_gaps_and_labels_may_be_anything() -> None:
    found = sweep(MODEL, "l40s", axes={"engine.tp": [1, 3, 2], "engine.max_num_seqs": [None, 64]})
    ax = plots.sweep_lines(found)
    assert sorted({x for x, _ in points(ax)}) == [1.0, 2.0]  # 3 does not divide the heads
    assert legend(ax) == ["max_num_seqs=default", "max_num_seqs=64"]


# --- tornado --------------------------------------------------------------------------------------------------------------


def test_tornado_bars_are_seconds_saved_to_the_left_and_added_to_the_right() -> None:
    ax = plots.tornado(gains(), most=5)
    assert [length for _, _, length in bars(ax)] == pytest.approx([-gain.saved_s for gain in gains().gains[:5]])
    assert [begin for _, begin, _ in bars(ax)] == [0.0] * 5
    assert ax.get_title().endswith(f"22.5 s, the 5 largest of {len(gains().gains)} changes")
    saves = Gain("engine.enforce_eager", "flag", "False", "True", 10.98, True)
    both_ways = (saves, saves._replace(name="hardware.cpu.single_thread_score", kind="number", saved_s=-7.5))
    ax = plots.tornado(gains()._replace(gains=both_ways))
    assert rows(ax) == ["enforce_eager: False → True", "single_thread_score: False → True"]
    assert texts(ax) == ["−11.0 s", "+7.50 s"]
    assert [patch.get_hatch() for patch in ax.patches] == ["///", ""]
    assert legend(ax) == ["number of the node, 10 % better", "another setting"]
    assert ax.get_xlim()[0] < -10.98
    assert ax.get_xlim()[1] > 7.5


def test_tornado_shows_settings_that_do_not_start() -> None:
    node = HardwareConfig.preset("h100-sxm", gpus=4)
    found = sensitivity(predict(MODELS[3], node, tp=4, page_cache="cold"))
    ax = plots.tornado(found, most=100)
    pale = [patch.get_alpha() is not None for patch in ax.patches]
    assert pale == [not gain.fits for gain in found.gains]
    assert any(pale)
    assert legend(ax)[-1] == "does not start"


# --- interval fan ---------------------------------------------------------------------------------------------------------


def test_fan_bands_lie_between_quantiles() -> None:
    ax = plots.interval_fan(curve())
    (median,) = [line for line in ax.lines if len(line.get_xdata()) == len(BANDWIDTHS)]
    assert median.get_ydata() == pytest.approx(curve().quantile(0.5))
    for band, (low, high) in zip(ax.collections, ((0.05, 0.95), (0.1, 0.9), (0.25, 0.75)), strict=True):
        y = band.get_paths()[0].vertices[:, 1]
        assert (y.min(), y.max()) == pytest.approx((curve().quantile(low).min(), curve().quantile(high).max()))
    assert legend(ax) == ["median", "25 to 75 %", "10 to 90 %", "5 to 95 %"]
    assert (ax.get_xscale(), ax.get_xlabel()) == ("log", "cold_bandwidth [B/s]")


def test_fan_of_predictions_is_that_of_the_sweep() -> None:
    order = [4, 0, 8]
    given = [predict(*curve().point((i,)).start[:3]) for i in order]
    ax = plots.interval_fan([float(BANDWIDTHS[i]) for i in order], given, name="storage [B/s]")
    (median,) = [line for line in ax.lines if len(line.get_xdata()) == 3]
    assert median.get_xdata() == pytest.approx(BANDWIDTHS[[0, 4, 8]])
    assert median.get_ydata() == pytest.approx(curve().quantile(0.5)[[0, 4, 8]])
    assert ax.get_xlabel() == "storage [B/s]"


# --- names ----------------------------------------------------------------------------------------------------------------


def test_long_and_strange_names_are_one_line() -> None:
    name = "an-organisation/" + "a-very-long-name-" * 9 + "$x^2_$\nInstruct"
    start = SimpleNamespace(phases={"weight_load": 2.0, "x" * 90: 1.0}, model=name, engine="vllm")
    ax = plots.timeline(start)
    assert "\n" not in ax.get_title()
    assert ax.get_title().startswith("a-very-long-name-")
    assert "…" in ax.get_title()
    assert len(rows(ax)[1]) <= 46
    ax.figure.draw_without_rendering()
    assert r"\$x^2_\$" in short_label(name[-20:])


# --- bad input ------------------------------------------------------------------------------------------------------------

BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: plots.waterfall("x"), "prediction = 'x': must be a prediction; give what predict returns"),
    (lambda: plots.waterfall(base(), "ax"), "ax = 'ax': must be an Axes of a figure of matplotlib; take one of plt.subplots()"),
    (lambda: plots.timeline(3), "start = 3: must be something with phases; give a prediction or what parse_log returns"),
    (lambda: plots.timeline(SimpleNamespace(phases={})), "number of phases = 0: must be 1 to 64; give a start with phases"),
    (lambda: plots.timeline(SimpleNamespace(phases=dict.fromkeys(map(str, range(65)), 1.0))), "number of phases = 65: must be 1 to 64"),
    (lambda: plots.timeline(SimpleNamespace(phases={"a": 0.0})), "none of them took any time"),
    (lambda: plots.timeline(SimpleNamespace(phases={"a": math.nan})), "must be seconds from 0 to 1e9"),
    (lambda: plots.timeline(SimpleNamespace(phases={"a": True})), "phases.a = True: must be seconds"),
    (lambda: plots.timeline(SimpleNamespace(phases={"a": 10**18})), "must be seconds from 0 to 1e9"),
    (lambda: plots.timeline(SimpleNamespace(phases={"a": 1.0}, wall_s=-1.0)), "wall_s = -1.0: must be seconds from 0 to 1e9; correct it or omit it"),
    (lambda: plots.timeline(SimpleNamespace(phases={"a": 1.0}, moments=3)), "moments = 3: must be a Sequence, as a parsed log has there"),
    (lambda: plots.predicted_against_measured([], []), "values of predictions = 0: must be 1 to 10000"),
    (lambda: plots.predicted_against_measured("ab", [1.0]), "must be a list"),
    (lambda: plots.predicted_against_measured([base()]), "measured: missing, the predictions do not hold what was measured"),
    (lambda: plots.predicted_against_measured([base()], [1.0, 2.0]), "number of measured = 2: contradicts 1 predictions; give one for each"),
    (lambda: plots.predicted_against_measured([base()], [1.0], names=["a", "b"]), "number of names = 2: contradicts 1 predictions; give one for each"),
    (lambda: plots.predicted_against_measured([base()], [0.0]), "measured[0] = 0.0: must be above 0; omit it"),
    (lambda: plots.predicted_against_measured([base()], ["x"]), "measured[0] = 'x': must be seconds"),
    (lambda: plots.predicted_against_measured([3.0], [1.0]), "must be a prediction or (predicted, low, high)"),
    (lambda: plots.predicted_against_measured([(3.0, 4.0, 5.0)], [1.0]), "must be in its interval"),
    (lambda: plots.predicted_against_measured([base()], [1.0], worst=-1), "must be a number of names from 0 to 11"),
    (lambda: plots.predicted_against_measured([base()], [1.0], band=1.0), "band = 1.0: must be between 0 and 1"),
    (lambda: plots.sweep_lines([1]), "must be a sweep; give what sweep returns"),
    (lambda: plots.sweep_lines(buyer(), x="stores"), "x = 'stores': not a known name; did you mean 'store'?"),
    (lambda: plots.sweep_lines(buyer(), x="best"), "x = 'best': not a known name"),
    (lambda: plots.sweep_lines(buyer(), lines=["store"]), "not a known name"),
    (lambda: plots.sweep_lines(buyer(), x="store", lines="store"), "lines = 'store': contradicts x, which is this axis already; choose another"),
    (lambda: plots.sweep_lines(buyer(), y="total"), "y = 'total': not a known name; did you mean 'total_s'?"),
    (lambda: plots.sweep_lines(many()), "labels of x = 41: must be at most 40; take fewer values"),
    (lambda: plots.sweep_lines(many(), lines="engine.version"), "labels of lines = 41: must be at most 12; take fewer values, or lines='best'"),
    (lambda: plots.tornado(base()), "must be a sensitivity; give what sensitivity returns"),
    (lambda: plots.tornado(gains(), most=0), "must be a number of bars from 1 to 100"),
    (lambda: plots.tornado(gains()._replace(gains=())), "no change does anything to this start"),
    (lambda: plots.interval_fan([1.0], [base()]), "x: missing, at least two valid points are needed"),
    (lambda: plots.interval_fan([1.0, 2.0], [base()]), "number of predictions = 1: contradicts 2 numbers; give one for each"),
    (lambda: plots.interval_fan([1.0, 2.0], [base(), 3]), "predictions[1] = 3: must be a prediction"),
    (lambda: plots.interval_fan([1.0, math.inf], [base(), base()]), "x[1] = inf: must be a finite number"),
    (lambda: plots.interval_fan(["a", "b"], [base(), base()]), "must be a finite number; give the number that varies"),
    (lambda: plots.interval_fan(buyer()), "axes = ['hardware', 'store', 'model']: must be one axis of numbers"),
    (lambda: plots.interval_fan(curve(), [base()]), "contradicts x, a sweep that holds its own; omit them"),
    (lambda: plots.save(3, "x.png"), "must be an Axes of a figure of matplotlib"),
    (lambda: plots.save(plots.waterfall(base()), "x.gif"), "must be the name of a picture; let it end in one of .png, .svg, .pdf"),
    (lambda: plots.save(plots.waterfall(base()), "x"), "must be the name of a picture"),
    (lambda: plots.save(plots.waterfall(base()), 3), "path = 3: must be the name of a file"),
    (lambda: plots.save(plots.waterfall(base()), "x.png", dpi=1), "must be dots per inch from 10 to 1200"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_bad_input_is_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_axis_that_does_not_exist_is_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError):
        plots.sweep_lines(buyer(), panels="gpu")


# --- files ----------------------------------------------------------------------------------------------------------------

HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", HEADS)
def test_the_same_picture_has_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    draw = {"svg": lambda: plots.sweep_lines(two())}.get(suffix, lambda: plots.tornado(gains(), most=3))
    ax = draw()
    first = ax.get_position().bounds
    for name in ("one", "two"):
        plots.save(ax, tmp_path / f"{name}.{suffix}", dpi=60)
    assert ax.get_position().bounds == first
    assert ax.figure.get_layout_engine() is not None
    plots.save(draw(), str(tmp_path / f"three.{suffix.upper()}"), dpi=60)
    content = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(content) == 1
    assert content.pop().startswith(HEADS[suffix])


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    ax = new_axes(2, 2)
    with pytest.raises(InputFileError, match="choose another folder"):
        plots.save(ax, tmp_path / "missing" / "x.png")
    (tmp_path / "x.png").mkdir()
    with pytest.raises(InputFileError, match="not a regular file"):
        plots.save(ax, tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: plots.waterfall(base()),
        lambda: plots.sweep_lines(buyer()),
        lambda: plots.save(None, "x.png"),
    ):  # type: ignore[arg-type]
        with pytest.raises(ConfigError) as caught:
            draw()
        assert str(caught.value) == "matplotlib: missing, pictures need it; pip install 'startup-model[notebook]'"


def test_without_matplotlib_the_module_can_be_imported() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import startup_model.plots"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
