"""A million points against the same arithmetic written out in numpy, measured in one run; ratios only."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from startup_model import predict, sweep

MODELS = ["meta-llama/Llama-2-7b-hf", "Qwen/Qwen3-8B", "Qwen/Qwen3-4B", "meta-llama/Llama-2-13b-hf"]
NODE = "h100-nvl"


def axes_of(length: int) -> dict[str, Any]:
    return {
        "model": MODELS,
        "engine.page_cache": ["hot", "cold"],
        "engine.tp": [1, 2],
        "hardware.storage.cold_bandwidth": np.geomspace(1e8, 1e10, length),
        "hardware.cpu.single_thread_score": np.linspace(0.5, 2.0, length),
    }


def plain(axes: dict[str, Any]) -> tuple[np.ndarray[Any, Any], float]:
    """The same terms with every input as an array of all points, phase by phase: what one would write without ``sweep``; and its seconds."""
    shape = tuple(len(values) for values in axes.values())
    arrays: dict[Any, Any] = {}
    for i, model in enumerate(MODELS):
        for j, cache in enumerate(axes["engine.page_cache"]):
            for k, tp in enumerate(axes["engine.tp"]):
                one = predict(model, {"preset": NODE, "gpus": 2}, page_cache=cache, compile_cache="warm", tp=tp)
                for name, value in one.context.inputs.items():
                    arrays.setdefault(name, np.empty(shape))[i, j, k] = value
                for phase, entry in one.phases.items():
                    for call in entry.calls:
                        for name, value in (*call.coefficients.items(), ("scale", call.scale)):
                            arrays.setdefault((phase, name), np.empty(shape))[i, j, k] = value
    arrays["storage_bandwidth"] = np.broadcast_to(axes["hardware.storage.cold_bandwidth"][:, None], shape).copy()
    arrays["slowdown"] = np.broadcast_to(1.0 / axes["hardware.cpu.single_thread_score"], shape).copy()
    begin = time.perf_counter()
    total = np.zeros(shape)
    for phase, entry in one.phases.items():
        for call in entry.calls:
            coefficients = {name: arrays[phase, name] for name in call.coefficients}
            total += (
                call.term.function(*(arrays[name] for name in call.term.inputs), **coefficients)
                * arrays[phase, "scale"]
            )
    return total, time.perf_counter() - begin


def whole(axes: dict[str, Any]) -> Any:
    return sweep(MODELS[0], {"preset": NODE, "gpus": 2}, axes=axes, compile_cache="warm")


def best(function: Callable[[], Any], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


@pytest.mark.parametrize("length", [8, pytest.param(250, marks=pytest.mark.speed)])
def test_many_points(length: int, capsys: pytest.CaptureFixture[str]) -> None:
    axes = axes_of(length)
    found, (expected, for_plain) = whole(axes), plain(axes)
    assert found.size == 16 * length**2
    assert np.allclose(found.total_s, expected, rtol=1e-12)
    for_plain = min(for_plain, *(plain(axes)[1] for _ in range(2)))
    with capsys.disabled():
        print(
            f"\nsweep of {found.size:,} points: {best(lambda: whole(axes)) / for_plain:.2f} times the plain numpy evaluation (target for 1,000,000: 3)"
        )


def test_memory_is_linear_and_bounded() -> None:
    """Ten times the points take about ten times the bytes, a few arrays of the grid at most."""
    peaks = []
    for length in (30, 300):
        tracemalloc.start()
        sweep(
            MODELS[0],
            NODE,
            axes={
                "hardware.storage.cold_bandwidth": np.geomspace(1e8, 1e10, 1000),
                "hardware.cpu.single_thread_score": np.linspace(0.5, 2.0, length),
            },
            page_cache="cold",
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    points = 1000 * 300
    assert peaks[1] < 6 * 8 * points
    assert peaks[1] - peaks[0] < 12 * peaks[0] + 2**20
