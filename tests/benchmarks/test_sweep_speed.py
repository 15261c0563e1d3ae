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
AXES: dict[str, Any] = {
    "model": MODELS,
    "engine.page_cache": ["hot", "cold"],
    "engine.tp": [1, 2],
    "hardware.storage.cold_bandwidth": np.geomspace(1e8, 1e10, 250),
    "hardware.cpu.single_thread_score": np.linspace(0.5, 2.0, 250),
}
NODE = "h100-nvl"


def plain() -> np.ndarray[Any, Any]:
    """The same terms with every input as an array of all points, phase by phase: what one would write without ``sweep``."""
    shape = tuple(len(values) for values in AXES.values())
    arrays: dict[Any, Any] = {}
    for i, model in enumerate(MODELS):
        for j, cache in enumerate(AXES["engine.page_cache"]):
            for k, tp in enumerate(AXES["engine.tp"]):
                one = predict(model, {"preset": NODE, "gpus": 2}, page_cache=cache, compile_cache="warm", tp=tp)
                for name, value in one.context.inputs.items():
                    arrays.setdefault(name, np.empty(shape))[i, j, k] = value
                for phase, entry in one.phases.items():
                    for call in entry.calls:
                        for name, value in (*call.coefficients.items(), ("scale", call.scale)):
                            arrays.setdefault((phase, name), np.empty(shape))[i, j, k] = value
    arrays["storage_bandwidth"] = np.broadcast_to(AXES["hardware.storage.cold_bandwidth"][:, None], shape).copy()
    arrays["slowdown"] = np.broadcast_to(1.0 / AXES["hardware.cpu.single_thread_score"], shape).copy()
    begin = time.perf_counter()
    total = np.zeros(shape)
    for phase, entry in one.phases.items():
        for call in entry.calls:
            coefficients = {name: arrays[phase, name] for name in call.coefficients}
            total += (
                call.function(*(arrays[name] for name in call.term.inputs), **coefficients) * arrays[phase, "scale"]
            )
    plain.seconds = time.perf_counter() - begin  # type: ignore[attr-defined]
    return total


def whole() -> Any:
    return sweep(MODELS[0], {"preset": NODE, "gpus": 2}, axes=AXES, compile_cache="warm")


def best(function: Callable[[], Any], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


@pytest.mark.benchmark(group="sweep")
def test_a_million_points(benchmark: Any) -> None:
    found = benchmark.pedantic(whole, rounds=3)
    assert found.size == 1_000_000
    expected = plain()
    assert np.allclose(found.total_s, expected, rtol=1e-12)
    if benchmark.disabled:
        return
    for_plain = min(plain.seconds for _ in range(3) if plain() is not None)  # type: ignore[attr-defined]
    print(f"\nsweep of 10^6 points: {best(whole) / for_plain:.2f} times the plain numpy evaluation (target 3)")


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
