"""Speed, printed as ratios measured in one run; no assertion looks at the clock."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from startup_model import EngineConfig, HardwareConfig, ModelConfig, predict
from startup_model.models.checkpoint import measure_checkpoint
from startup_model.phases import TERMS
from startup_model.sizes.weights import weight_sizes

if TYPE_CHECKING:
    from collections.abc import Callable


MODEL = ModelConfig.from_catalogue("Qwen/Qwen3-8B")
NODE = HardwareConfig.preset("h100-sxm")
ENGINE = EngineConfig()


def best(function: Callable[[], object], rounds: int = 5) -> float:
    """Shortest of some timings, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.speed
def test_predict(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [NODE.replace(host_memory=float(2**40 + i)) for i in range(1000)]
    text = json.dumps(predict(MODEL, NODE, ENGINE).to_dict())
    plain = best(lambda: [json.loads(text) for _ in range(500)]) / 500
    again = best(lambda: [predict(MODEL, NODE, ENGINE) for _ in range(500)]) / 500
    new = best(lambda: [predict(MODEL, node, ENGINE) for node in nodes], 1) / len(nodes)
    with capsys.disabled():
        print(
            f"\npredict, in json.loads of its answer: same configurations {again / plain:.2f} ({again * 1e6:.1f} microseconds, ",
            end="",
        )
        print(f"target 30), configurations never seen {new / plain:.2f}")


@pytest.mark.speed
def test_import_time(capsys: pytest.CaptureFixture[str]) -> None:
    def run(statement: str) -> float:
        return best(lambda: subprocess.run([sys.executable, "-c", statement], check=True))

    bare, base = run("pass"), run("import numpy, pydantic")
    own, first = run("import startup_model"), run("import startup_model; startup_model.predict")
    with capsys.disabled():
        print(f"\nimport startup_model / import numpy, pydantic: {own / base:.2f} (target 2)")
        print(f"the same once predict is used, interpreter start taken off: {(first - bare) / (base - bare):.2f}")


def test_importing_predict_needs_no_heavy_library() -> None:
    heavy = ("scipy", "sklearn", "pandas", "matplotlib", "typer", "rich", "yaml")
    code = f"import sys, startup_model; startup_model.predict; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("points", [1_000, pytest.param(1_000_000, marks=pytest.mark.speed)])
@pytest.mark.parametrize("name", [name for name, term in TERMS.items() if term.coefficients])
def test_terms_on_many_points(name: str, points: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a plain numpy loop of twelve multiply-adds on arrays of the same length."""
    term = TERMS[name]
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(1.0, 2.0, points) for _ in term.inputs]
    coefficients = dict.fromkeys(term.coefficients, 0.5)

    def plain() -> np.ndarray:
        total = arrays[0]
        for _ in range(12):
            total = total * 0.5 + arrays[0]
        return total

    value = term.function(*arrays, **coefficients)
    assert np.shape(value) == (points,)
    ratio = best(lambda: term.function(*arrays, **coefficients), 3) / best(plain, 3)
    with capsys.disabled():
        print(f"\n{name}: {ratio:.2f} of twelve multiply-adds (target 3)", end="")


def test_headers_of_a_terabyte_cost_a_hundred_small_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred sparse shards of 10 GB: only the headers are read, whatever the tensors weigh."""
    header = json.dumps(
        {"w": {"dtype": "BF16", "shape": [5_000_000_000], "data_offsets": [0, 10_000_000_000]}}
    ).encode()
    names = [f"model-{i:05d}-of-00100.safetensors" for i in range(1, 101)]
    for name in names:
        with (tmp_path / name).open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + 10_000_000_000)
    index = {"metadata": {}, "weight_map": {f"w{i}": name for i, name in enumerate(names)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    measured = measure_checkpoint(tmp_path)
    assert measured is not None
    assert (measured.tensor_bytes, measured.files) == (10**12, 100)
    small = tmp_path / "small"
    small.mkdir()
    for name in names:
        (small / name).write_bytes((len(header)).to_bytes(8, "little") + header)
    read = best(lambda: [(small / name).read_bytes() for name in names])
    with capsys.disabled():
        print(
            f"\nheaders of 100 shards, 1 TB / reading 100 small files: {best(lambda: measure_checkpoint(tmp_path)) / read:.1f}"
        )


@pytest.mark.speed
@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3", "google/gemma-3-27b-it"]
)
def test_sizes_of_one_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Once per configuration; cached on it afterwards."""
    models = iter([ModelConfig.from_catalogue(name).replace(tokenizer_bytes=i) for i in range(1, 12)])
    node = NODE.replace(gpus=8)

    def sizes(model: ModelConfig) -> None:
        assert model.active_parameters > 0
        weight_sizes(model, ENGINE, node, 2.0)

    first = best(lambda: sizes(next(models)), 10)
    model = next(models)
    sizes(model)
    again = best(lambda: [sizes(model) for _ in range(100)]) / 100
    with capsys.disabled():
        print(
            f"\nsizes of {name}: {first * 1e6:.0f} microseconds at first (target 100), {again * 1e6:.1f} afterwards",
            end="",
        )
