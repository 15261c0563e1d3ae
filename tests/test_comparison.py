"""What-if tables and sensitivities: equal to single predictions, ranked, refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from startup_model import ConfigError, StartupPrediction, predict, sensitivity, what_if
from startup_model.hardware import NODE_NUMBERS

MODEL = "meta-llama/Llama-2-7b-hf"


@pytest.fixture
def base() -> StartupPrediction:
    return predict(MODEL, "h100-nvl", page_cache="cold", compile_cache="warm", include=["image_pull"])


def test_what_if_equals_predict(base: StartupPrediction) -> None:
    changes: dict[str, dict[str, Any]] = {
        "NVMe": {"hardware.storage.local_nvme": "6 GB/s"},
        "eager": {"engine.enforce_eager": True},
        "other card": {"hardware": "l40s", "engine.tp": 2},
    }
    found = what_if(base, changes)
    assert list(found.predictions) == ["base", "NVMe", "eager", "other card"]
    assert found.totals["base"] == base.total_s  # the segment that was asked for is in all of them
    assert (
        found.totals["eager"]
        == predict(MODEL, "h100-nvl", page_cache="cold", enforce_eager=True, include=["image_pull"]).total_s
    )
    assert found.saved_s["eager"] == pytest.approx(base.total_s - found.totals["eager"])
    assert found.phases["graph_capture"]["eager"] == 0.0
    for label, total in found.totals.items():
        assert sum(row[label] for row in found.phases.values()) == pytest.approx(total)
    assert found.predictions["other card"].context.start.hardware.gpus == 2  # as many as the ranks need
    lines = found.text().splitlines()
    assert lines[-1].split() == ["total", *(f"{total:.2f}" for total in found.totals.values())]
    json.dumps(found.to_dict())
    frame = pytest.importorskip("pandas") and found.to_pandas()
    assert frame.loc["total", "eager"] == found.totals["eager"]


def test_ways_to_say_base_and_changes(base: StartupPrediction) -> None:
    one = {"engine.enforce_eager": True}
    assert list(what_if(base, one).predictions) == ["base", "engine.enforce_eager=True"]
    assert list(what_if(base, [one, {"hardware": "l40s"}]).predictions) == [
        "base",
        "engine.enforce_eager=True",
        "hardware=l40s",
    ]
    assert what_if((MODEL, "h100-nvl"), one).totals == what_if({"model": MODEL, "hardware": "h100-nvl"}, one).totals
    whole = {"hardware": {"preset": "l40s", "gpus": 2}}
    assert what_if(base, whole).predictions["hardware=preset=l40s, gpus=2"].context.start.hardware.gpus == 2
    short = what_if((MODEL, "t4"), {"engine.dtype": "float32"})
    assert "does not start" in short.text()


def test_sensitivity_equals_predict(base: StartupPrediction) -> None:
    found = sensitivity(base, step=0.1)
    by_name = {(gain.name, gain.new): gain for gain in found.gains}
    assert abs(found.gains[0].saved_s) == max(abs(gain.saved_s) for gain in found.gains)
    eager = by_name["engine.enforce_eager", "True"]
    assert eager.saved_s == pytest.approx(
        base.total_s - what_if(base, {"engine.enforce_eager": True}).totals["engine.enforce_eager=True"]
    )
    load = base.phases["weight_load"].calls[0]  # type: ignore[index]
    read = (
        load.coefficients["storage_ratio"]
        * base.context.inputs["storage_bytes"]
        / base.context.inputs["storage_bandwidth"]
    )
    cold = next(gain for gain in found.gains if gain.name == "hardware.storage.cold_bandwidth")
    assert cold.saved_s == pytest.approx(read * (1 - 1 / 1.1))
    pull = next(gain for gain in found.gains if gain.name == "hardware.image_bytes")
    assert pull.saved_s == pytest.approx(base.segments["image_pull"] * (1 - 1 / 1.1))  # type: ignore[index]
    assert not any(gain.name == "hardware.provision_s" for gain in found.gains)  # not asked for
    assert all(gain.saved_s > 0 for gain in found.gains if gain.kind == "number")
    json.dumps(found.to_dict())
    assert found.text().splitlines()[1].split()[0] == f"{-found.gains[0].saved_s:+.2f}"


def test_every_number_of_a_node_is_asked_about() -> None:
    """Each number of the node that the start depends on has a row of its own; cold, so that the storage counts."""
    found = sensitivity(
        (
            MODEL,
            {"preset": "h100-nvl", "network_bandwidth": "1 Gbps", "storage": {"tier": "object_store"}},
            {"page_cache": "cold"},
        ),
        include=["provision", "image_pull", "container_start", "first_request"],
        step=9.0,
    )
    asked = {gain.name for gain in found.gains if gain.kind == "number"}
    hidden = {
        "hardware.storage.cold_bandwidth",
        "hardware.host_to_device_bandwidth",
    }  # network and page cache are slower
    assert {f"hardware.{row.field}" for row in NODE_NUMBERS.values() if row.better} - hidden <= asked


def test_the_network_bounds_a_disk() -> None:
    node = {
        "preset": "h100-nvl",
        "network_bandwidth": "10 Gbps",
        "storage": {"tier": "object_store", "object_store": "9 GB/s"},
    }
    names = [gain.name for gain in sensitivity((MODEL, node, {"page_cache": "cold"})).gains if gain.kind == "number"]
    assert "hardware.network_bandwidth" in names
    assert "hardware.storage.cold_bandwidth" not in names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "must map dotted names to values"),
        ([], "must map dotted names to values"),
        ("engine.tp=2", "must map dotted names to values"),
        ([{}], "must map dotted names to values"),
        ({"engine.tpx": 2}, "did you mean 'engine.tp'"),
        ({"a": {"engine.tpx": 2}}, "changes.a = 'engine.tpx'.*did you mean 'engine.tp'"),
        ({"base": {"engine.tp": 2}}, "'base' is reserved for the unchanged start"),
        ({"engine.tp": 3}, "must divide the attention heads"),
        ({"hardware.storage.local_nvme": "6 Gb"}, "hardware.storage.local_nvme"),
        ([{"engine.max_num_seqs": i} for i in range(1, 1500)], "use sweep"),
    ],
)
def test_bad_changes(base: StartupPrediction, changes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        what_if(base, changes)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (None, "must be a start"),
        ("h100", "must be a start"),
        ((MODEL,), "must be a start"),
        ({"model": MODEL}, "must hold model and hardware"),
        ({"model": MODEL, "hardware": "l40s", "node": 1}, "not node"),
        ((MODEL, "h1000"), "h1000"),
    ],
)
def test_bad_bases(bad: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        what_if(bad, {"engine.tp": 2})


@pytest.mark.parametrize("step", [0, -1, float("nan"), "10%", True, 100])
def test_bad_steps(base: StartupPrediction, step: Any) -> None:
    with pytest.raises(ConfigError, match="step"):
        sensitivity(base, step=step)


def test_a_disk_close_below_the_network_is_still_asked_about() -> None:
    """It was left out without a word where 10 % more would exceed the network."""

    def gains(network: str) -> dict[str, float]:
        storage = {"tier": "network_disk", "network_disk": "2 GB/s"}
        node = {"preset": "h100-sxm", "network_bandwidth": network, "storage": storage}
        return {
            g.name: g.saved_s for g in sensitivity((MODEL, node, {"page_cache": "cold"})).gains if g.kind == "number"
        }

    disk, net = "hardware.storage.cold_bandwidth", "hardware.network_bandwidth"
    assert gains("4 GB/s")[disk] > gains("2.1 GB/s")[disk] > 0
    assert gains("2.1 GB/s")[f"{disk} and {net}"] == pytest.approx(gains("4 GB/s")[disk])
    assert disk not in gains("2 GB/s")
    assert gains("2 GB/s")[f"{disk} and {net}"] == pytest.approx(gains("4 GB/s")[disk])


def test_no_start_is_lost(base: StartupPrediction) -> None:
    model = base.context.start.model
    with pytest.raises(ConfigError, match="duplicate label"):
        what_if(base, [{"model": model}, {"model": model.replace(vocab_size=32001)}])
    with pytest.raises(ConfigError, match="duplicate label"):
        what_if(base, {1: {"engine.tp": 1}, "1": {"engine.tp": 2}})  # type: ignore[dict-item]
    change = {"engine.enforce_eager": True}
    found = what_if(base, change)
    change["engine.enforce_eager"] = False
    assert found.changes["engine.enforce_eager=True"] == {"engine.enforce_eager": True}
