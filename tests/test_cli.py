"""The command line as its users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "startup_model.cli", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_predict_prints_a_table_of_phases_and_an_interval() -> None:
    done = run("predict", "--model", "meta-llama/Llama-2-7b-hf", "--hardware", "h100-nvl")
    assert done.returncode == 0, done.stderr
    for word in (
        "framework_bootstrap",
        "weight_load",
        "graph_capture",
        "total",
        "90% interval",
        "not calibrated",
        "memory of one device",
    ):
        assert word in done.stdout
    assert done.stderr == ""


def test_predict_reads_a_config_and_prints_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_14B))
    done = run("predict", "--model", str(tmp_path), "--hardware", "h100-nvl", "--page-cache", "hot", "--json")
    data = json.loads(done.stdout)
    assert data["total_s"] == pytest.approx(30.57, rel=0.02)  # arXiv 2606.07362, h100nvl_hot
    assert data["phases"]["weight_load"]["seconds"] == pytest.approx(3.42, rel=0.05)


def test_predict_reads_a_command_line() -> None:
    command = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --enforce-eager --served-model-name llama"
    done = run("predict", "--hardware", "h100", "--engine", command, "--json")
    data = json.loads(done.stdout)
    assert data["model"] == "meta-llama/Llama-3.1-70B-Instruct"
    assert data["hardware"] == "4 x h100-sxm"
    assert data["phases"]["graph_capture"]["seconds"] == 0.0
    assert data["unused_flags"] == ["--served-model-name"]


def test_explain_prints_formulas() -> None:
    done = run("explain", "--model", "meta-llama/Llama-2-7b-hf", "--hardware", "h100-nvl", "--page-cache", "cold")
    assert done.returncode == 0, done.stderr
    assert "(base_seconds + seconds_per_layer × trace_layers) × slowdown" in done.stdout
    assert "read = 1.026 × 1.3477e+10 / 6e+08" in done.stdout


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
    slow = json.loads(run(*options, "--storage", "network_disk=250 MB/s").stdout)
    fast = json.loads(run(*options, "--storage", "object_store=20 Gbps").stdout)
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
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_presets_and_models_are_listed() -> None:
    assert "h100-nvl" in run("presets").stdout
    assert "meta-llama/Llama-3.1-8B" in run("models").stdout


@pytest.mark.parametrize("arguments", [("--help",), ()], ids=["--help", "nothing"])
def test_help_names_the_commands(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    for command in ("predict", "explain", "memory", "presets", "models"):
        assert command in done.stdout


def test_a_server_that_does_not_start_is_said_first() -> None:
    done = run("predict", "--model", "meta-llama/Llama-3.1-70B", "--hardware", "h100")
    after_table = done.stdout.split("\n└", 1)[1].splitlines()[1]
    assert after_table.startswith("does not start (weights_do_not_fit, ")
    assert "note: DOES NOT START" in done.stdout
    data = json.loads(run("predict", "--model", "meta-llama/Llama-3.1-70B", "--hardware", "h100", "--json").stdout)
    assert data["starts"] is False


def test_memory_shows_one_model_and_compares_many() -> None:
    one = run("memory", "Qwen/Qwen3-32B")
    assert "KV cache" in one.stdout
    assert "what would help:" in one.stdout
    assert "tensor parallelism 2 on 2 accelerators" in one.stdout
    many = run("memory", "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "--hardware", "h200", "--json")
    assert [row["model"] for row in json.loads(many.stdout)] == ["Qwen/Qwen3-8B", "openai/gpt-oss-20b"]


def test_segments_that_are_included_are_shown_as_assumed_with_their_formula() -> None:
    options = ("--model", "gpt2", "--hardware", "h100", "--include", "image_pull", "--include", "provision")
    table = run("predict", *options).stdout
    assert next(line for line in table.splitlines() if "image_pull" in line).count("assumed") == 1
    assert "image_bytes / image_pull_bandwidth" in run("explain", *options).stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_any_output_encoding_will_do(encoding: str) -> None:
    for command in ("predict", "explain", "memory"):
        done = subprocess.run(
            [sys.executable, "-m", "startup_model", command, "--model", "gpt2", "--hardware", "l4"],
            capture_output=True, timeout=60, check=False, env=os.environ | {"PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout


def test_a_name_with_markup_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "a[bold]b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN_14B))
    node = tmp_path / "node.json"
    node.write_text(json.dumps({"preset": "h100", "name": "[/x]\u001b[31m"}))
    done = run("predict", "--model", str(folder), "--hardware", str(node))
    assert done.returncode == 0, done.stderr
    assert "a[bold]b on [/x]" in done.stdout
    assert "\u001b[31m" not in done.stdout


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
