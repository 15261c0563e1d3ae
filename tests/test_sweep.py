"""Sweeps: equal to ``predict`` at every point, whatever the axes; bounded; refused in one line where they cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import fit_profile, read_runs
from startup_model import ConfigError, EngineConfig, HardwareConfig, Profile, Sweep, UnknownNameError, predict, sweep
from startup_model.axes import MAX_POINTS, NUMBERS
from startup_model.changes import field_names

MODEL = "meta-llama/Llama-2-7b-hf"
ROOT = Path(__file__).parent.parent
COLD = "hardware.storage.cold_bandwidth"


def check_against_predict(found: Sweep, **options: Any) -> None:
    """Every point that can be has the numbers that ``predict`` gives for it."""
    for place in np.ndindex(*found.shape):
        if found.status[place] == "invalid":
            assert np.isnan(found.total_s[place])
            with pytest.raises(ConfigError):
                found.point(place)
            continue
        point = found.point(place)
        one = predict(*point.start[:3], profile=point.start.profile, **options)
        assert point.total_s == pytest.approx(one.total_s, rel=1e-12)
        expected = dict.fromkeys(point.phases, 0.0) | {p.value: e.seconds for p, e in one.phases.items()}
        assert dict(point.phases) == pytest.approx(expected, rel=1e-12)
        assert sum(point.phases.values()) == pytest.approx(point.total_s, rel=1e-12)
        assert found.slowest_s[place] == pytest.approx(one.slowest_s, rel=1e-12)
        assert found.slo_bound_s[place] == pytest.approx(one.slo_bound_s, rel=1e-12)
        assert (found.interval[0][place], found.interval[1][place]) == pytest.approx(one.interval, rel=1e-9)
        assert found.quantile(0.99)[place] == pytest.approx(one.quantile(0.99), rel=1e-9)
        assert (point.status, bool(found.feasible[place])) == (one.memory.status, one.memory.fits)
        assert point.extrapolated == bool(one.context.extrapolated)
        assert one.phases[found.bottleneck[place]].seconds == pytest.approx(one.phases[one.bottleneck].seconds)  # type: ignore[index]


def test_models_nodes_flags_and_numbers() -> None:
    axes = {
        "model": [MODEL, "Qwen/Qwen3-30B-A3B"],
        "hardware": ["h100-nvl", "l40s"],
        "engine.tp": [1, 2, 3],
        COLD: ["500 MB/s", 2e9],
        "engine.page_cache": ["hot", "cold", "unknown"],
    }
    found = sweep(MODEL, "h100-nvl", axes=axes)
    assert found.shape == (2, 2, 3, 2, 3)
    assert set(found.status.flat) == {
        "ok",
        "weights_do_not_fit",
        "invalid",
    }  # 3 does not divide the heads; 57 GiB do not fit 44
    check_against_predict(found)


def test_engines_and_versions() -> None:
    """Other pipelines, one of them with branches that run at the same time."""
    engines = [
        "vllm serve M --enforce-eager",
        "python -m sglang.launch_server --model-path M",
        EngineConfig(version="0.20.0"),
    ]
    found = sweep(
        MODEL, "h100-sxm", axes={"engine": engines, COLD: [5e8, 1e11], "engine.page_cache": ["cold", "unknown"]}
    )
    check_against_predict(found)
    versions = sweep(
        MODEL,
        "h100-sxm",
        axes={"engine.version": ["0.6.0", "0.9.2", "0.11.0", "0.30.0"], "engine.dtype": ["auto", "float32"]},
    )
    check_against_predict(versions)


def test_segments_level_and_bound() -> None:
    options: dict[str, Any] = {
        "include": ["image_pull", "first_request", "provision"],
        "level": 0.5,
        "safety_factor": 2.0,
    }
    axes = {
        "hardware.image_pull_bandwidth": ["0.05 GB/s", "0.5 GB/s"],
        "hardware.provision_s": [0.0, 400.0],
        "hardware.container_start_s": [1.0, 9.0],
    }
    found = sweep(MODEL, "h100-nvl", axes=axes, **options)
    check_against_predict(found, **options)
    assert {"image_pull", "provision", "first_request"} <= set(found.phases)
    assert found.total_s[0, 1, 0] - found.total_s[0, 0, 0] == pytest.approx(400.0)
    assert (found.total_s[..., 0] == found.total_s[..., 1]).all()  # container_start was not asked for


def test_a_calibrated_host() -> None:
    """Coefficients that no run has touched widen the interval by their share of each point."""
    runs = read_runs(ROOT / "examples" / "runs" / "l40s.yaml")
    profile = fit_profile(runs[:1])
    axes = {
        "hardware.cpu.single_thread_score": [0.7, 1.0, 1.6],
        "engine.compile_cache": ["warm", "cold", "unknown"],
        "engine.load_format": ["auto", "runai_streamer"],
    }
    check_against_predict(sweep(MODEL, runs[0].hardware, axes=axes, profile=profile))
    profiles = sweep(MODEL, runs[0].hardware, axes={"profile": [profile, "l40s-epyc-9354"], COLD: [1e9, 2e9]})
    check_against_predict(profiles)
    assert profiles.axes["profile"] == (profile.name, "l40s-epyc-9354")


def test_memory_bandwidth_chooses_the_reference() -> None:
    found = sweep(
        MODEL,
        HardwareConfig.preset("h100-nvl", name="x", gpu="unknown"),
        axes={"hardware.gpu_memory_bandwidth": np.geomspace(5e11, 8e12, 9)},
    )
    check_against_predict(found)
    pinned = sweep(
        MODEL, "h100-nvl", axes={"hardware.gpu_memory_bandwidth": np.geomspace(5e11, 8e12, 9)}, profile="l40s-epyc-9354"
    )
    check_against_predict(pinned)


def test_the_tier_decides_which_bandwidth_counts() -> None:
    axes = {
        "hardware.storage.tier": ["local_nvme", "network_disk"],
        "hardware.storage.network_disk": ["100 MB/s", "3 GB/s"],
        "hardware.network_bandwidth": ["10 Gbps", "100 Gbps"],
    }
    found = sweep(MODEL, "h100-nvl", axes=axes, page_cache="cold")
    assert (found.total_s[0] == found.total_s[0, 0, 0]).all()
    assert found.total_s[1, 1, 0] > found.total_s[1, 1, 1]  # 3 GB/s through 10 Gbps: the network bounds the disk
    check_against_predict(found)


def test_all_number_axes_are_what_predict_says() -> None:
    """Each field that terms take as an array, on a node that gives it and on one that does not."""
    values = {name: [1.5e9, 3e9] for name in NUMBERS}
    values |= {"hardware.cpu.single_thread_score": [0.5, 2.0], "hardware.storage.concurrent_starts": [1, 7]}
    values |= {
        "hardware.gpu_flops": [1e14, "1 PFLOPS"],
        "hardware.provision_s": ["2 min", 7.0],
        "hardware.container_start_s": [0.0, 3.0],
    }
    for name, given_values in values.items():
        for tier in ("local_nvme", "object_store"):
            node = HardwareConfig.preset("h100-nvl", storage={"tier": tier})
            found = sweep(
                MODEL,
                node,
                axes={name: given_values},
                page_cache="cold",
                profile="h100-nvl-epyc-9354",
                include=["provision", "image_pull", "container_start"],
            )
            check_against_predict(found, include=["provision", "image_pull", "container_start"])


@settings(max_examples=25, deadline=None)
@given(
    numbers=st.dictionaries(
        st.sampled_from(sorted(set(NUMBERS) - {"hardware.storage.concurrent_starts", "hardware.storage.local_nvme"})),
        st.lists(st.floats(1e6, 1e12), min_size=1, max_size=3, unique=True),
        max_size=2,
    ),
    flags=st.fixed_dictionaries(
        {},
        optional={
            "engine.tp": st.just([1, 2]),
            "engine.enforce_eager": st.just([True, False]),
            "engine.load_format": st.just(["auto", "fastsafetensors"]),
            "engine.version": st.just(["0.8.0", "0.12.0"]),
        },
    ),
    state=st.sampled_from(["hot", "cold", "unknown"]),
)
def test_a_grid_equals_its_points(numbers: dict[str, list[float]], flags: dict[str, list[Any]], state: str) -> None:
    numbers = {name: [v / 1e11 for v in vs] if name.endswith(("score", "_s")) else vs for name, vs in numbers.items()}
    if any(name.rsplit(".", 1)[-1] in ("network_disk", "object_store") for name in numbers):
        numbers.pop(COLD, None)
    axes = numbers | flags
    if axes:
        check_against_predict(sweep(MODEL, "h100-nvl", axes=axes, page_cache=state))


def test_large_grids_in_blocks_equal_small_ones() -> None:
    """Above 2^16 elements terms are called in pieces."""
    bandwidths, scores = np.geomspace(1e8, 1e10, 700), np.linspace(0.5, 2.0, 300)
    axes = {"hardware.cpu.single_thread_score": scores, COLD: bandwidths, "engine.page_cache": ["cold"]}
    found = sweep(MODEL, "h100-nvl", axes=axes)
    assert found.shape == (300, 700, 1)
    for place in ((0, 0, 0), (299, 699, 0), (123, 456, 0)):
        point = found.point(place)
        assert predict(*point.start[:3]).total_s == pytest.approx(found.total_s[place], rel=1e-12)
    assert (np.diff(found.total_s[..., 0], axis=1) < 0).all()  # more bandwidth is never slower
    assert (np.diff(found.total_s[..., 0], axis=0) < 0).all()


# --- results ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid() -> Sweep:
    axes = {
        "hardware": ["h100-sxm", "a100-80gb", "l40s"],
        "store": {
            "NFS": {"hardware.storage": "network_disk=0.5 GB/s"},
            "NVMe": {"hardware.storage": "local_nvme=6 GB/s"},
            "hot": {"engine.page_cache": "hot"},
        },
        "model": {"small": "Qwen/Qwen3-4B", "large": "Qwen/Qwen3-32B"},
    }
    return sweep("Qwen/Qwen3-4B", "h100-sxm", axes=axes, page_cache="cold", max_model_len=8192)


def test_scenarios_and_labels(grid: Sweep) -> None:
    assert dict(grid.axes) == {
        "hardware": ("h100-sxm", "a100-80gb", "l40s"),
        "store": ("NFS", "NVMe", "hot"),
        "model": ("small", "large"),
    }
    check_against_predict(grid)
    assert not grid.feasible[2, :, 1].any()  # 61 GiB of weights do not fit 44 GiB
    assert grid.feasible[:2].all()
    assert "18 points" in repr(grid)


def test_best(grid: Sweep) -> None:
    best = grid.best()
    assert best.total_s == np.nanmin(np.where(grid.feasible, grid.total_s, np.inf))
    by_model = grid.best(per="model")
    assert by_model["large"].coordinates["store"] == "hot"
    assert grid.best("weight_load").phases["weight_load"] == grid.phases["weight_load"].min()
    price = np.array([8.0, 4.0, 1.0])[:, None, None]
    assert grid.best(price * grid.total_s).coordinates["hardware"] == "l40s"
    assert grid.select(hardware="l40s", store="NFS", model="small").place == (2, 0, 0)
    none = sweep("Qwen/Qwen3-32B", "l40s", axes={"engine.page_cache": ["hot", "cold"]})
    with pytest.raises(ConfigError, match=r"no feasible point of 2 .*weights_do_not_fit"):
        none.best()
    assert none.best(per="engine.page_cache") == {"hot": None, "cold": None}


def test_tables(grid: Sweep) -> None:
    rows = list(grid.rows())
    assert len(rows) == grid.size
    assert rows[0] | {"hardware": "h100-sxm", "store": "NFS", "model": "small", "status": "ok"} == rows[0]
    json.dumps(rows)
    frame = pytest.importorskip("pandas").DataFrame(grid.columns())
    assert grid.to_pandas().equals(frame)
    assert frame.groupby("hardware").total_s.min()["l40s"] == grid.total_s[2].min()


def test_reasons_are_counted() -> None:
    found = sweep(MODEL, "h100-nvl", axes={"engine.tp": [1, 3, 64], "hardware.storage.local_nvme": [1e9, 2e9]})
    assert sum(count for why, count in found.reasons.items() if "must divide" in why) == 2
    assert any("more ranks than attention heads" in why for why in found.reasons)


# --- bad input ----------------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[Any, Any] | None, str]] = [
    (None, "axes = None: must map names to values"),
    ({}, "must map names to values"),
    ({"engine.tpp": [1]}, "did you mean 'engine.tp'"),
    ({"tp": [1, 2]}, "did you mean 'engine.tp'"),
    ({"hardware.storage.bandwith": [1]}, "did you mean 'hardware.storage.cold_bandwidth'"),
    ({7: [1]}, "axes = 7: must be a dotted name"),
    ({"engine.tp": []}, "axes.engine.tp = .*must have at least one value"),
    ({"engine.tp": {}}, "must have at least one value"),
    ({"engine.tp": 4}, "axes.engine.tp = 4: must be a list of values"),
    ({"engine.tp": "1,2"}, "must be a list of values"),
    ({"engine.tp": (i for i in (1, 2))}, "must be a list of values"),
    ({COLD: np.ones((2, 2))}, "must be a list of values"),
    ({"engine.tp": [1, 1]}, "axes.engine.tp = 1: duplicate"),
    ({COLD: ["1 GB/s", 1e9]}, "duplicate"),
    ({COLD: [1e9, -1.0]}, "axes.hardware.storage.cold_bandwidth = -1.0"),
    ({COLD: [1e9, float("nan")]}, "cold_bandwidth = nan"),
    ({COLD: ["fast"]}, "'fast' is not a bandwidth"),
    ({COLD: [None]}, "must be a number"),
    ({COLD: np.full(2000, np.nan)}, "must be finite"),
    ({COLD: np.linspace(-1.0, 1e9, 2000)}, "cold_bandwidth = -1.0"),
    ({COLD: np.ones(2000)}, "duplicate value"),
    ({"hardware.storage.concurrent_starts": [1.5]}, "concurrent_starts"),
    ({"hardware.storage.concurrent_starts": np.linspace(1, 9, 1500)}, "all values must be whole numbers"),
    ({COLD: range(10**12)}, r"1000000000000 = 1e\+12 points, more than 10,000,000"),
    ({COLD: range(10**6), "engine.tp": range(10**6)}, r"1000000 x 1000000 = 1e\+12 points"),
    ({COLD: range(10**30)}, "countable length"),
    ({"engine.max_num_seqs": range(1, 100_001)}, "100,000 combinations of engine.max_num_seqs, more than 50,000"),
    ({COLD: [1e9], "hardware.storage.local_nvme": [1e9]}, "duplicate: two axes change this field"),
    ({"engine.tp": [1], "case": {"a": {"engine.tp": 2}}}, "axes = 'engine.tp': duplicate: two axes change this field"),
    ({"case": {"a": {"engine.tpx": 2}}}, "did you mean 'engine.tp'"),
    ({"case": {"a": 3}}, "axes = 'case'"),
    ({"hardware": ["h1000"]}, "no point of the grid is valid.*hardware = 'h1000'"),
    ({"engine.tp": [3, 5]}, "no point of the grid is valid: tp = 3"),
    ({"engine.tp": [1.5]}, "engine.tp"),
    ({"model": [object()]}, "must be a ModelConfig"),
    ({"hardware.cpu": ["EPYC"]}, "hardware.cpu"),
    ({"hardware.storage": ["tape=1 GB/s"]}, "hardware.storage = 'tape'"),
    ({"hardware.storage": ["local_nvme=3"]}, "the bandwidth has no unit"),
    ({"profile": ["nobody"]}, "nobody"),
]


@pytest.mark.parametrize(("axes", "message"), BAD, ids=range(len(BAD)))
def test_bad_axes(axes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        sweep(MODEL, "h100-nvl", axes=axes)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ConfigError) or "nobody" in message


def test_bad_questions(grid: Sweep) -> None:
    for ask, message in (
        (lambda: grid.best("speed"), "by = 'speed'"),
        (lambda: grid.best(np.zeros(5)), "must have the grid's shape"),
        (lambda: grid.best(per="engine.tp"), "per = 'engine.tp'"),
        (lambda: grid.phases["loading"], "phase = 'loading'"),
        (lambda: grid.quantile(1.0), "probability"),
        (lambda: grid.point((0, 0)), "one number for each axis"),
        (lambda: grid.point((0, 0, 9)), "no place in a grid"),
        (lambda: grid.point("abc"), "no place in a grid"),
        (lambda: grid.select(gpu=1), "axis = 'gpu'"),
        (lambda: grid.select(hardware="l40s"), "store: the axis has several values"),
        (lambda: grid.select(hardware="l4", store="NFS", model="small"), "must be a value of the axis"),
        (lambda: sweep(MODEL, "h100-nvl", axes={"engine.tp": [1]}, level=2.0), "level"),
        (lambda: sweep(MODEL, "h100-nvl", axes={"engine.tp": [1]}, safety_factor=0.5), "safety_factor"),
        (lambda: sweep(MODEL, "h100-nvl", axes={"engine.tp": [1]}, include=["lunch"]), "include = 'lunch'"),
        (lambda: sweep(MODEL, "h100-nvl", axes={"engine.tp": [1]}, tpx=3), "tpx"),
    ):
        with pytest.raises((ConfigError, UnknownNameError), match=message):
            ask()  # type: ignore[no-untyped-call]


def test_the_largest_grid_is_taken() -> None:
    """Ten million points: 80 MB of totals, and phases that stay small where they do not depend on an axis."""
    found = sweep(
        MODEL,
        "h100-nvl",
        axes={
            COLD: np.geomspace(1e8, 1e10, MAX_POINTS // 1000),
            "hardware.cpu.single_thread_score": np.linspace(0.5, 2.0, 1000),
        },
        page_cache="cold",
    )
    assert found.size == MAX_POINTS
    assert found.phases["framework_bootstrap"].strides[0] == 0


def test_names() -> None:
    assert {
        "model",
        "hardware",
        "engine",
        "profile",
        "engine.tp",
        "hardware.cpu.model",
        COLD,
        "model.vocab_size",
    } <= set(field_names())
    assert set(NUMBERS) <= set(field_names())
    assert isinstance(Profile.reference("h100-nvl-epyc-9354"), Profile)


def test_a_number_of_accelerators_that_is_given_is_kept() -> None:
    """A preset alone grows with the ranks; ``hardware.gpus`` as an axis, or in a scenario, is what it says."""
    found = sweep(MODEL, "h100-sxm", axes={"hardware.gpus": [1, 4], "engine.tp": [1, 4]})
    assert found.status.tolist() == [["ok", "invalid"], ["ok", "ok"]]
    assert found.point((1, 0)).start.hardware.gpus == 4
    free = sweep(MODEL, "h100-sxm", axes={"engine.tp": [1, 4]})
    assert [free.point((i,)).start.hardware.gpus for i in range(2)] == [1, 4]
    case = {
        "one": {"hardware": "l40s", "hardware.gpus": 1, "engine.tp": 2},
        "as many": {"hardware": "l40s", "engine.tp": 2},
    }
    assert sweep(MODEL, "h100-sxm", axes={"case": case}).status.tolist() == ["invalid", "ok"]


def test_warnings_are_counted() -> None:
    found = sweep(MODEL, "h100-sxm", axes={"engine.page_cache": ["hot", "cold"], "hardware": ["h100-sxm", "l40s"]})
    assert any("the processor is not named" in word and points == 2 for word, points in found.warnings.items())
    assert any("an assumed bandwidth" in word for word in found.warnings)
    given = sweep(MODEL, "h100-sxm", axes={"engine.page_cache": ["cold"], COLD: [1e9, 2e9]})
    assert not any("assumed bandwidth" in word for word in given.warnings)


# --- bugs ---------------------------------------------------------------------------------------------------------------


def test_a_profile_axis_may_leave_the_choice_of_reference_to_each_point() -> None:
    """``gpu_memory_bandwidth`` was an array there although it chooses the reference where the profile is None."""
    axes = {"profile": ["h100-sxm-xeon-8568y", None], "hardware.gpu_memory_bandwidth": [1e11, 3.35e12]}
    check_against_predict(sweep(MODEL, "t4", axes=axes, profile="l40s-epyc-9354"))


def test_the_order_of_changes_does_not_matter() -> None:
    """``cold_bandwidth`` is that of the tier after all changes."""
    one = {"hardware.storage.cold_bandwidth": 2e8, "hardware.storage.tier": "network_disk"}
    two = dict(reversed(one.items()))
    found = sweep(MODEL, "h100-sxm", axes={"case": {"one": one, "two": two}}, page_cache="cold")
    assert found.total_s[0] == found.total_s[1]
    check_against_predict(found)
    with pytest.raises(ConfigError, match=r"it sets the same number as hardware.storage.local_nvme"):
        sweep(MODEL, "h100-sxm", axes={"case": {"a": {COLD: 1e9, "hardware.storage.local_nvme": 2e9}}})
    apart = {"a": {COLD: 1e9}, "b": {"hardware.storage.local_nvme": 1e9}}
    found = sweep(MODEL, "h100-sxm", axes={"case": apart}, page_cache="cold")
    assert found.total_s[0] == found.total_s[1]


def test_changes_that_only_hold_together() -> None:
    to_cpu = {"hardware.platform": "cpu", "hardware.gpus": 0}
    assert sweep(MODEL, "h100-sxm", axes={"case": {"cpu": to_cpu}}).status.tolist() != ["invalid"]
    node = HardwareConfig.preset(
        "h100-sxm", network_bandwidth=3e9, storage={"tier": "network_disk", "network_disk": 2e9}
    )
    both = {"hardware.network_bandwidth": 1e9, "hardware.storage.network_disk": 5e8}
    check_against_predict(sweep(MODEL, node, axes={"case": {"slow": both}}, page_cache="cold"))


def test_labelled_numbers_are_numbers() -> None:
    """With labels a network slower than the disk bounds it, as without."""
    node = HardwareConfig.preset(
        "h100-sxm", network_bandwidth=3e9, storage={"tier": "network_disk", "network_disk": 2e9}
    )
    plain = sweep(MODEL, node, axes={"hardware.network_bandwidth": [1e9, 4e9]}, page_cache="cold")
    labelled = sweep(MODEL, node, axes={"hardware.network_bandwidth": {"slow": 1e9, "fast": 4e9}}, page_cache="cold")
    assert labelled.axes["hardware.network_bandwidth"] == ("slow", "fast")
    assert (labelled.total_s == plain.total_s).all()
    check_against_predict(labelled)


def test_a_price_with_a_gap_is_not_the_best() -> None:
    found = sweep(MODEL, "h100-sxm", axes={"engine.tp": [1, 2, 4]})
    assert found.best(np.array([np.nan, 3.0, 1.0])).coordinates == {"engine.tp": 4}
    assert found.best(np.array([np.nan, 3.0, 1.0]), per="engine.tp")[1] is None
    for bad in (np.array([1j, 2, 3]), [10**400, 1, 2], ["a", "b", "c"]):
        with pytest.raises(ConfigError, match="by = "):
            found.best(bad)  # type: ignore[arg-type]


def test_results_belong_to_nobody() -> None:
    values = np.geomspace(1e8, 1e10, 1500)
    found = sweep(MODEL, "h100-sxm", axes={COLD: values, "engine.tp": [1, 3]}, page_cache="cold")
    values[0] = 7.0
    assert found.axes[COLD][0] == 1e8
    for array in (
        found.axes[COLD],
        found.total_s,
        found.slowest_s,
        found.interval[0],
        found.bottleneck,
        found.status,
        found.phases["weight_load"],
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


@pytest.mark.parametrize(
    "axes",
    [
        {"engine.tp": [[[[[[[1]]]]]]]},
        {1: {"a": {}}, "1": {"b": {}}},
        {"engine.tp": {(1, [2]): 1} if False else {frozenset([1]): 1, frozenset([2]): 2}},
    ],
)
def test_odd_axes(axes: Any) -> None:
    with pytest.raises(ConfigError):
        sweep(MODEL, "h100-sxm", axes=axes).best(per=axes)


def test_values_that_hold_themselves_or_cannot_be_walked() -> None:
    loop: list[Any] = []
    loop.append(loop)

    class Sized:
        def __len__(self) -> int:
            return 2

    class Broken(Sized):
        def __iter__(self) -> Any:
            raise RuntimeError

    for values in ([loop], Sized(), Broken()):
        with pytest.raises(ConfigError):
            sweep(MODEL, "h100-sxm", axes={"engine.tp": values}).best(per=values)  # type: ignore[arg-type]
    grid = sweep(MODEL, "h100-sxm", axes={"engine.tp": [1, 2]})
    with pytest.raises(UnknownNameError):
        grid.phases[["weight_load"]]  # type: ignore[index]
    assert ["a"] not in grid.phases
    with pytest.raises(ConfigError, match="must be a value of the axis"):
        grid.select(**{"engine.tp": np.array([1, 2])})
