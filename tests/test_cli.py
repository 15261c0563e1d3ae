"""The command line as its users call it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import run

from calibration.runs.published import published_runs
from calibration.runs.write import write_runs
from startup_model import predict

EXAMPLES = Path(__file__).parent.parent / "examples"

QWEN_14B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "num_hidden_layers": 40,
    "hidden_size": 5120,
    "intermediate_size": 13696,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32768,
}


START = "--hardware --model --engine --profile --gpus --nodes --page-cache --compile-cache --storage --engine-version "
COMMANDS = {  # what users rely on: the arguments and options of each command
    "predict": START + "--level --safety-factor --no-model-effects --include --plot --json",
    "explain": START + "--level --safety-factor --no-model-effects --include --json",
    "memory": "--hardware --model --engine --gpus --nodes --engine-version models --json",
    "presets": "--json",
    "models": "contains --json",
    "sweep": START + "--include --axis --top --csv --plot --fan --json",
    "what-if": START + "--include --change --json",
    "sensitivity": START + "--include --step --plot --json",
    "plan": START
    + "--format --quantile --margin --period --detection --decision --headroom --cooldown --provision --image-size --image-pull --port --requests --name --namespace --image --volume-claim --replicas --rate --target --force --price --value --warm-request --from-zero --at-once --batch --json",
    "calibrate": "runs --out --name --hardware --prior --dataset --allow-mixed-hosts --json",
    "validate": "runs --profile --by --hardware --prior --dataset --json",
    "parse": "logs --plot --against --runs --hardware --model --page-cache --process-start --json --csv",
    "watch": "command --profile --hardware --model --page-cache --compile-cache --level --exit-when-ready --json",
    "profile": "command --out --plan --differential --model --repetitions --page-cache --compile-cache --torch-compile --no-warm-up --drop-caches --resume --hardware --dataset --profile --health-path --no-request --ready-timeout --grace --dry-run --json",
    "probe": "folder --python --seconds --tier --out --json",
    "gate": "inputs --profile --factor --phase-factor --floor --level --fail-on --hardware --model --page-cache --compile-cache --process-start --compare --json --junit --out",
}


def test_predict_prints_a_table_of_phases_and_an_interval() -> None:
    done = run("predict", "--model", "meta-llama/Llama-2-7b-hf", "--hardware", "h100-nvl")
    assert done.status == 0, done.err
    for word in (
        "framework_bootstrap",
        "weight_load",
        "graph_capture",
        "total",
        "90% interval",
        "not calibrated",
        "memory of one device",
    ):
        assert word in done.out
    assert done.err == ""


def test_predict_reads_a_config_and_prints_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_14B))
    done = run("predict", "--model", str(tmp_path), "--hardware", "h100-nvl", "--page-cache", "hot", "--json")
    data = json.loads(done.out)
    assert data["total_s"] == pytest.approx(30.57, rel=0.02)  # arXiv 2606.07362, h100nvl_hot
    assert data["phases"]["weight_load"]["seconds"] == pytest.approx(3.42, rel=0.05)


def test_predict_reads_a_command_line() -> None:
    command = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --enforce-eager --served-model-name llama"
    done = run("predict", "--hardware", "h100", "--engine", command, "--json")
    data = json.loads(done.out)
    assert data["model"] == "meta-llama/Llama-3.1-70B-Instruct"
    assert data["hardware"] == "4 x h100-sxm"
    assert data["phases"]["graph_capture"]["seconds"] == 0.0
    assert data["unused_flags"] == ["--served-model-name"]


def test_what_a_profile_remembers_of_a_model_can_be_left_out() -> None:
    known = ("predict", "--model", "meta-llama/Llama-2-7b-hf", "--hardware", "h100-nvl", "--json")
    left_out = json.loads(run(*known, "--no-model-effects").out)
    own = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", model_effects=False)
    assert left_out["total_s"] == pytest.approx(own.total_s)
    assert left_out["total_s"] != json.loads(run(*known).out)["total_s"]
    assert not any("this very model" in warning for warning in left_out["warnings"])


def test_explain_prints_formulas() -> None:
    done = run("explain", "--model", "meta-llama/Llama-2-7b-hf", "--hardware", "h100-nvl", "--page-cache", "cold")
    assert done.status == 0, done.err
    assert "(base_seconds + seconds_per_layer × trace_layers) × slowdown" in done.out
    assert "read = 1.026 × 1.3477e+10 / 6e+08" in done.out


def test_storage_can_be_named_with_its_bandwidth() -> None:
    options = (
        "predict",
        "--model",
        "meta-llama/Llama-2-7b-hf",
        "--hardware",
        "h100-nvl",
        "--page-cache",
        "cold",
        "--json",
    )
    slow = json.loads(run(*options, "--storage", "network_disk=250 MB/s").out)
    fast = json.loads(run(*options, "--storage", "object_store=20 Gbps").out)
    assert slow["inputs"]["storage_bandwidth"] == 250e6
    assert fast["inputs"]["storage_bandwidth"] == 2.5e9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "--model", "gpt2", "--hardware", "h101"), "did you mean 'h100'?"),
        (("predict", "--model", "meta-llama/Llama-3.1-7B", "--hardware", "h100"), "did you mean"),
        (("predict", "--hardware", "h100"), "--model"),
        (("predict", "--model", "gpt2"), "--hardware"),
        (("predict", "--model", "nowhere/config.json", "--hardware", "h100"), "no such file"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--page-cache", "warm"), "page_cache = 'warm'"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--level", "2"), "level = 2.0"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--safety-factor", "0.5"), "safety_factor = 0.5"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--engine", "vllm serve gpt2 -tp 5"), "tp = 5"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--engine", "echo hello"), "starts no engine"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--profile", "nothing.json"), "no such file"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--storage", "tape"), "--storage = 'tape'"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--storage", "local_nvme=3"), "no unit"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--gpus", "0"), "gpus = 0"),
        (
            ("predict", "--model", "gpt2", "--hardware", "h100", "--engine", "vllm serve gpt2 -q fpp8"),
            "did you mean 'fp8'",
        ),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--tp", "2"), "vllm serve MODEL -tp N"),
        (("predict", "--model", "gpt2", "--hardware", "h100", "--nonsense"), "--nonsense"),
        (("forecast",), "forecast"),
    ],
)
def test_bad_input_ends_with_one_line_and_exit_status_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_presets_and_models_are_listed() -> None:
    assert "h100-nvl" in run("presets").out
    assert "meta-llama/Llama-3.1-8B" in run("models").out


@pytest.mark.parametrize("arguments", [("--help",), ()], ids=["--help", "nothing"])
def test_help_names_the_commands(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.status == 0
    for command in ("predict", "explain", "memory", "presets", "models"):
        assert command in done.out


def test_a_server_that_does_not_start_is_said_first() -> None:
    done = run("predict", "--model", "meta-llama/Llama-3.1-70B", "--hardware", "h100")
    after_table = done.out.split("\n└", 1)[1].splitlines()[1]
    assert after_table.startswith("does not start (weights_do_not_fit, ")
    assert "note: DOES NOT START" in done.out
    data = json.loads(run("predict", "--model", "meta-llama/Llama-3.1-70B", "--hardware", "h100", "--json").out)
    assert data["starts"] is False


def test_memory_shows_one_model_and_compares_many() -> None:
    one = run("memory", "Qwen/Qwen3-32B")
    assert "KV cache" in one.out
    assert "what would help:" in one.out
    assert "tensor parallelism 2 on 2 accelerators" in one.out
    many = run("memory", "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "--hardware", "h200", "--json")
    assert [row["model"] for row in json.loads(many.out)] == ["Qwen/Qwen3-8B", "openai/gpt-oss-20b"]


def test_segments_that_are_included_are_shown_as_assumed_with_their_formula() -> None:
    options = ("--model", "gpt2", "--hardware", "h100", "--include", "image_pull", "--include", "provision")
    table = run("predict", *options).out
    assert next(line for line in table.splitlines() if "image_pull" in line).count("assumed") == 1
    assert "image_bytes / image_pull_bandwidth" in run("explain", *options).out


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_output_encoding_will_do(encoding: str) -> None:
    for command in ("predict",) if encoding != "ascii" else ("predict", "explain", "memory"):
        done = subprocess.run(
            [sys.executable, "-m", "startup_model", command, "--model", "gpt2", "--hardware", "l4"],
            capture_output=True, timeout=60, check=False, env=os.environ | {"PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_that_users_rely_on_is_lost_and_help_fits_80_columns(command: str) -> None:
    done = run(command, "--help")
    found = set(re.findall(r"--[a-z][a-z-]*", done.out.split("Options:")[1]))
    arguments = set(re.findall(r"[\[{]([a-z]+)[\]}]", done.out.split("\n")[0])) | {"command"}
    assert set(COMMANDS[command].split()) <= found | arguments
    assert max(map(len, done.out.splitlines())) <= 80
    assert done.out.replace("\n", "").isprintable()


# --- what a terminal would act upon -----------------------------------------------------------------------------------------

HOSTILE = "a[bold]b[/x] :fire: \x1b[31m\x9b32m\x07\u202eend"
SHOWN = "a[bold]b[/x] :fire: "


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a node, runs and a log with names that a terminal or a table maker would act upon."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / HOSTILE.replace("/", "")).mkdir()
    (folder / HOSTILE.replace("/", "") / "config.json").write_text(json.dumps(QWEN_14B))
    (folder / "node.json").write_text(json.dumps({"preset": "h100", "name": HOSTILE}))
    runs = [run for run in published_runs() if run.dataset == "l40s_hot"][:3]
    write_runs(
        [run.replace(dataset=HOSTILE, model=run.model.replace(name=HOSTILE)) for run in runs], folder / "runs.jsonl"
    )
    log = (EXAMPLES / "logs" / "base.log").read_text()
    fault = f"ERROR 10-08 20:00:39 [core.py:708] RuntimeError: {HOSTILE} out of memory\n"
    (folder / "start.log").write_text(log.replace("meta-llama/Llama-3.1-8B-Instruct", HOSTILE) + fault)
    return folder


MODEL = ("--model", "{model}", "--hardware", "{node}")
PRINTING = {
    "predict": ("predict", *MODEL),
    "predict --json": ("predict", *MODEL, "--json"),
    "explain": ("explain", *MODEL),
    "memory": ("memory", "{model}", "--hardware", "{node}"),
    "memory of two": ("memory", "{model}", "gpt2", "--hardware", "{node}"),
    "sweep": ("sweep", *MODEL, "--axis", "model={model},gpt2", "--axis", "engine.page_cache=hot,cold"),
    "sweep --json": ("sweep", *MODEL, "--axis", "model={model},gpt2", "--json"),
    "what-if": ("what-if", *MODEL, "--change", "model={model}"),
    "sensitivity": ("sensitivity", *MODEL),
    "plan": ("plan", *MODEL),
    "plan --json": ("plan", *MODEL, "--json"),
    "plan --format env": ("plan", *MODEL, "--format", "env"),
    "plan --format kubernetes": ("plan", *MODEL, "--format", "kubernetes", "--name", "x"),
    "presets": ("presets",),
    "models": ("models", "gpt"),
    "calibrate": ("calibrate", "{runs}", "--out", "{out}", "--name", HOSTILE),
    "validate": ("validate", "{runs}", "--prior", "l40s-epyc-9354"),
    "parse": ("parse", "{log}"),
    "parse --json": ("parse", "{log}", "--json"),
    "parse --against": ("parse", "{log}", "--against", "{log}"),
    "watch": ("watch", "-", "--hardware", "{node}", "--model", "{model}"),
    "gate": ("gate", "{log}", "--profile", "h100-nvl-epyc-9354", "--hardware", "{node}"),
    "gate of runs": ("gate", "{runs}", "--profile", "l40s-epyc-9354"),
    "profile --dry-run": ("profile", "--dry-run", "--hardware", "{node}", "--", "vllm", "serve", HOSTILE),
    "an error": ("predict", "--model", HOSTILE, "--hardware", HOSTILE),
    "an error of the parser": ("predict", f"--{HOSTILE}"),
}


@pytest.mark.parametrize("name", PRINTING)
def test_nothing_from_a_file_reaches_the_terminal_as_an_escape_sequence(name: str, hostile: Path) -> None:
    places = {
        "{model}": str(hostile / HOSTILE.replace("/", "")), "{node}": str(hostile / "node.json"), "{out}": str(hostile / "out.json"),
        "{runs}": str(hostile / "runs.jsonl"), "{log}": str(hostile / "start.log"),
    }  # fmt: skip
    arguments = []
    for text in PRINTING[name]:
        for mark, place in places.items():
            text = text.replace(mark, place)  # noqa: PLW2901
        arguments.append(text)
    done = run(*arguments, stdin=(hostile / "start.log").read_bytes())
    for text in (done.out, done.err):
        assert text.replace("\n", "").isprintable(), [c for c in text if not c.isprintable() and c != "\n"]
    assert done.status in (0, 1, 2)
    assert "🔥" not in done.out
    tables = [line for line in done.out.splitlines() if line[:1] in "┏┃┡│├└"]
    assert max(map(len, tables), default=0) <= 80
    assert not any("…" in line for line in tables)  # folded, never cut


def test_a_name_with_markup_is_shown_as_it_is(hostile: Path) -> None:
    done = run("predict", "--model", str(hostile / HOSTILE.replace("/", "")), "--hardware", str(hostile / "node.json"))
    assert done.status == 0, done.err
    assert f"{SHOWN.replace('/', '')}" in done.out
    assert f"on {SHOWN}" in done.out


def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "startup_model", "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
