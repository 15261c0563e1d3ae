"""The commands ``sweep``, ``what-if``, ``sensitivity`` and ``plan``: what they print, write, and refuse."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import command
import pytest
import yaml

from calibration import fit_profile, read_runs
from startup_model import planning, predict
from startup_model.manifests import FORMATS

MODEL = ("--model", "Qwen/Qwen3-8B")
NODE = ("--hardware", "h100-sxm")
EXAMPLES = Path(__file__).parent.parent / "examples"
LLAMA = ("--engine", "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4", "--storage", "network_disk=1 GB/s")


@pytest.fixture
def run() -> Any:
    return command.run


def test_sweep_as_table_json_and_csv(run: Any, tmp_path: Path) -> None:
    axes = (
        "--axis",
        "hardware=h100-sxm,l40s",
        "--axis",
        "engine.tp=1",
        "--axis",
        "engine.tp=2",
        "--axis",
        "hardware.storage.cold_bandwidth=0.5 GB/s..2 GB/s:3",
    )
    status, out, err = run("sweep", *MODEL, *NODE, *axes, "--page-cache", "cold")
    assert (status, err) == (0, "")
    assert "12 starts, 12 of them possible" in out
    file = tmp_path / "points.csv"
    status, out, err = run("sweep", *MODEL, *NODE, *axes, "--page-cache", "cold", "--json", "--csv", str(file))
    found = json.loads(out)
    assert found["axes"]["hardware.storage.cold_bandwidth"] == pytest.approx([0.5e9, 1e9, 2e9])
    assert found["axes"]["engine.tp"] == [1, 2]
    node = {"preset": "l40s", "gpus": 2, "storage": {"local_nvme": "1 GB/s"}}
    one = predict("Qwen/Qwen3-8B", node, tp=2, page_cache="cold")
    point = next(
        p
        for p in found["points"]
        if (p["hardware"], p["engine.tp"]) == ("l40s", 2) and p["hardware.storage.cold_bandwidth"] == pytest.approx(1e9)
    )
    assert point["total_s"] == pytest.approx(one.total_s)
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [float(row["total_s"]) for row in rows] == pytest.approx([p["total_s"] for p in found["points"]])


def test_sweep_over_models_needs_no_model(run: Any) -> None:
    status, out, _ = run("sweep", *NODE, "--axis", "model=Qwen/Qwen3-4B,Qwen/Qwen3-8B", "--axis", "engine.tp=1,3")
    assert status == 0
    assert "1 of 4 points: tp = 3: must divide the attention heads of Qwen/Qwen3-8B" in out


def test_what_if_and_sensitivity(run: Any) -> None:
    status, out, _ = run(
        "what-if",
        *MODEL,
        *NODE,
        "--change",
        "engine.enforce_eager=true",
        "--change",
        "hardware=l40s; engine.tp=2",
        "--json",
    )
    found = json.loads(out)
    assert status == 0
    assert found["base"]["total_s"] == pytest.approx(predict("Qwen/Qwen3-8B", "h100-sxm").total_s)
    assert found["engine.enforce_eager=true"]["changes"] == {"engine.enforce_eager": True}
    assert found["hardware=l40s; engine.tp=2"]["total_s"] == pytest.approx(
        predict("Qwen/Qwen3-8B", {"preset": "l40s", "gpus": 2}, tp=2).total_s
    )
    assert "saved" in run("what-if", *MODEL, *NODE, "--change", "engine.enforce_eager=true")[1]
    status, out, _ = run("sensitivity", *MODEL, *NODE, "--page-cache", "cold", "--json")
    gains = json.loads(out)["gains"]
    assert [abs(gain["saved_s"]) for gain in gains] == sorted((abs(gain["saved_s"]) for gain in gains), reverse=True)
    assert "enforce_eager" in run("sensitivity", *MODEL, *NODE)[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict",),
        ("sweep", "--axis", "hardware.cpu.single_thread_score=0.5..2:3"),
        ("sweep", "--axis", "hardware.cpu.single_thread_score=0.5..2:3", "--fan"),
        ("sensitivity",),
    ],
    ids=["predict", "sweep", "sweep --fan", "sensitivity"],
)
def test_pictures(run: Any, arguments: tuple[str, ...], tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    status, out, err = run(*arguments, *MODEL, *NODE, "--plot", picture)
    assert (status, err) == (0, "")
    assert out
    assert picture.read_bytes().startswith(b"<?xml")
    status, _, err = run(*arguments, *MODEL, *NODE, "--plot", tmp_path / "picture.bmp")
    assert status == 2
    assert "let it end in one of .png, .svg, .pdf" in err


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_of_a_plan(run: Any, name: str, tmp_path: Path) -> None:
    profile = ("--profile", str(tmp_path / "host.json"))
    fit_profile(read_runs(EXAMPLES / "runs" / "l40s.yaml"), held_out=False).save(profile[1])
    status, out, err = run("plan", "--hardware", "h100", *LLAMA, *profile, "--format", name)
    assert (status, err) == (0, "")
    if FORMATS[name].kind == "yaml":
        assert list(yaml.safe_load_all(out))
    if FORMATS[name].kind == "json":
        assert json.loads(out)


def test_plan_in_words(run: Any) -> None:
    status, out, _ = run(
        "plan", "--hardware", "h100", *LLAMA, "--page-cache", "hot", "--compile-cache", "warm", "--rate", "6/h"
    )
    assert status == 0
    assert "warm replicas" in out
    numbers = json.loads(run("plan", "--hardware", "h100", *LLAMA, "--page-cache", "hot", "--json")[1])
    assert numbers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", *MODEL, *NODE), "axes = {}: must map names to values"),
        (("sweep", *NODE, "--axis", "engine.tp=1"), "--model: missing"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp"), "must be NAME=VALUE,VALUE"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp="), "must be NAME=VALUE,VALUE"),
        (("sweep", *MODEL, *NODE, "--axis", "tp=1"), "did you mean 'engine.tp'"),
        (("sweep", *MODEL, *NODE, "--axis", "hardware.gpu_flops=1..2"), "must be LOW..HIGH:COUNT with a count from 2"),
        (("sweep", *MODEL, *NODE, "--axis", "hardware.gpu_flops=1..2:99999999"), "must be LOW..HIGH:COUNT with a count from 2"),
        (("sweep", *MODEL, *NODE, "--axis", "hardware.gpu_flops=fast..2:3"), "must be a quantity"),
        (("sweep", *MODEL, *NODE, "--axis", "hardware.gpu_flops=2.5..1.5:3"), "from a smaller to a larger"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.max_num_seqs=1..300000:300000"), "more than 50,000"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp=1", "--csv", "/nowhere/at/all.csv"), "cannot be written"),
        (("sweep", *MODEL, *NODE, "--axis", "hardware.cpu.single_thread_score=0.5 ..1.5:1000", "--axis", "hardware.gpu_flops=1e14..1.5e15:1000", "--profile", "l40s-epyc-9354", "--json"), "must be at most 200000; take fewer values"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp=1,2", "--fan"), "--plot: missing"),
        (("what-if", *MODEL, *NODE), "must map dotted names to values"),
        (("what-if", *MODEL, *NODE, "--change", "engine.tp=2; engine.tp=4"), "duplicate; give it once"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp=1..1e400:5"), "must be a quantity"),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp=1..2:2", "--axis", "hardware.gpu_flops=1e14..2e14:2", "--axis", "hardware.gpu_flops=3e14"), "cannot be joined"),
        (("what-if", *MODEL, *NODE, "--change", "eager"), "must be NAME=VALUE"),
        (("what-if", *MODEL, *NODE, "--change", "engine.eager=true"), "did you mean"),
        (("sensitivity", *MODEL, *NODE, "--step", "0"), "step = 0.0"),
        (("plan", "--hardware", "h100", *LLAMA, "--format", "helm"), "format = 'helm'"),
        (("plan", "--hardware", "h100", *LLAMA, "--quantile", "1"), "quantile"),
        (("plan", "--hardware", "h100", *LLAMA, "--margin", "0.5"), "margin_factor"),
        (("plan", "--hardware", "h100", *LLAMA, "--period", "0"), "period_s"),
        (("plan", "--hardware", "h100", *LLAMA, "--replicas", "many"), "must be LEAST:MOST"),
        (("plan", "--hardware", "h100", *LLAMA, "--replicas", "4:2"), "must be at least replicas_min"),
        (("plan", "--hardware", "h100", *LLAMA, "--rate", "often"), "demands for a replica per time"),
        (("plan", "--hardware", "h100", *LLAMA, "--rate", "6/h", "--target", "2"), "target"),
        (("plan", *NODE, *MODEL, "--price", "4"), "--rate: missing, --price needs it; such as --rate 6/h"),
        (("plan", *NODE, *MODEL, "--rate", "6/h", "--value", "1"), "--price: missing, --value needs it"),
        (("plan", *NODE, *MODEL, "--warm-request", "1 s"), "--rate: missing, --warm-request needs it"),
        (("plan", *NODE, *MODEL, "--rate", "6/h", "--price", "-4"), "money_per_replica_hour"),
        (("plan", *NODE, *MODEL, "--from-zero", "lasy"), "did you mean 'lazy'?"),
        (("plan", *NODE, *MODEL, "--at-once", "2,x"), "--at-once = '2,x': must be numbers of starts"),
        (("plan", *NODE, *MODEL, "--batch", "0"), "batch = 0"),
        (("plan", "--hardware", "h100", *LLAMA, "--name", "Not A Label", "--format", "kubernetes"), "name"),
        (("plan", *NODE, "--model", "Qwen/Qwen3-235B-A22B"), "does not start"),
    ],
)  # fmt: skip
def test_bad_requests(run: Any, arguments: tuple[str, ...], message: str) -> None:
    status, out, err = run(*arguments)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    """A file opened later would take the number of a closed stream: the CSV would hold what is printed."""
    file = tmp_path / "points.csv"
    command = f'"{sys.executable}" -m startup_model sweep --model Qwen/Qwen3-8B --hardware l40s --axis engine.tp=1,2 --csv "{file}" {closed}'
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert file.read_text().splitlines()[0].startswith("engine.tp,total_s,")
    assert len(file.read_text().splitlines()) == 3


def test_the_command_says_what_is_served(run: Any) -> None:
    """``--model`` may be a folder with the config of the model that the command names."""
    folder = ("--model", str(EXAMPLES / "Llama-2-7b-hf"))
    _, out, _ = run(
        "plan", *NODE, *folder, "--engine", "vllm serve ORG/LLAMA --max-model-len 2048", "--format", "kubernetes"
    )
    (container,) = yaml.safe_load(out)["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "ORG/LLAMA"
    _, out, _ = run("plan", *NODE, "--model", "Qwen/Qwen3-8B", "--format", "kubernetes")
    assert yaml.safe_load(out)["metadata"]["name"] == "qwen3-8b"


QUESTIONS = (
    "--rate",
    "6/h",
    "--price",
    "12",
    "--value",
    "0.01",
    "--warm-request",
    "0.4 s",
    "--from-zero",
    "lazy",
    "--at-once",
    "2,8",
    "--batch",
    "2",
)


def test_a_plan_answers_what_is_asked_beside_the_budgets(run: Any) -> None:
    arguments = ("plan", "--hardware", "h100", *LLAMA, "--page-cache", "cold", "--replicas", "1:5", *QUESTIONS)
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    for words in (
        "warm replicas",
        "cost of an hour",
        "best pool",
        "first request",
        "from zero",
        "2 at once",
        "8 at once",
        "update",
    ):
        assert f"│ {words} " in out
    numbers = json.loads(run(*arguments, "--json")[1])
    prediction = predict("meta-llama/Llama-3.1-70B-Instruct", {"preset": "h100", "gpus": 4, "storage": {"tier": "network_disk", "network_disk": "1 GB/s"}}, LLAMA[1], page_cache="cold")  # fmt: skip
    found, size, lead_s = numbers["decisions"], numbers["warm_replicas"], numbers["timings"]["lead_time_s"]
    cost = planning.warm_cost(size, lead_s, 6 / 3600, money_per_replica_hour=12)
    assert found["warm_cost"] == pytest.approx(cost._asdict())
    worth = {"money_per_replica_hour": 12, "value_per_second": 0.01}
    assert found["best_pool_size"] == planning.best_pool_size(lead_s, 6 / 3600, **worth)
    assert found["break_even_rate_per_s"] == pytest.approx(planning.break_even_rate(size, lead_s, **worth))
    latency = planning.first_request_latency(size, lead_s, 6 / 3600, warm_s=0.4)
    assert found["first_request_latency"] == {"p50_s": latency.p50_s, "p90_s": latency.p90_s, "p99_s": latency.p99_s}
    assert found["from_zero"]["typical_s"] == pytest.approx(planning.from_zero(prediction, "lazy").typical_s)
    events = planning.concurrent_starts(prediction, (2, 8))
    assert [event["each_s"] for event in found["concurrent_starts"]] == pytest.approx(
        [event.each_s for event in events]
    )
    assert found["rolling_update_s"] == pytest.approx(planning.rolling_update(prediction, replicas=5, batch=2))
    assert "decisions" not in json.loads(run(*arguments[:5], "--json")[1])


def test_the_help_names_every_format() -> None:
    from startup_model.cli import plan

    assert set(FORMATS) | {"text"} == set(plan.FORMAT_NAMES.replace(" or ", ", ").split(", "))


def test_a_unit_on_one_side_of_a_range_is_that_of_both(run: Any) -> None:
    axis = ("--axis", "hardware.storage.cold_bandwidth=0.1..10 GB/s:3")
    _, out, _ = run("sweep", *MODEL, *NODE, *axis, "--page-cache", "cold", "--json")
    assert json.loads(out)["axes"]["hardware.storage.cold_bandwidth"] == pytest.approx([1e8, 1e9, 1e10])
    table = run("sweep", *MODEL, *NODE, *axis, "--page-cache", "cold")[1]
    assert "100 MB/s" in table
    assert "an assumed bandwidth" not in table


def test_a_node_named_by_its_preset_grows_with_the_ranks(run: Any) -> None:
    status, out, _ = run("what-if", *MODEL, "--hardware", "l40s", "--change", "engine.tp=2", "--json")
    assert status == 0
    assert json.loads(out)["engine.tp=2"]["starts"]
    assert "engine.tp" in run("sensitivity", *MODEL, "--hardware", "l40s", "--json")[1]
    status, _, err = run("what-if", *MODEL, "--hardware", "l40s", "--gpus", "1", "--change", "engine.tp=2")
    assert status == 2
    assert "more ranks than accelerators" in err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("predict", *MODEL, *NODE), 0),
        (("predict", *MODEL, *NODE, "--json"), 0),
        (("models",), 0),
        (("sweep", *MODEL, *NODE, "--axis", "engine.tp=1,2"), 0),
        (("gate", str(EXAMPLES / "logs" / "base.log"), "--profile", "h100-nvl-epyc-9354", "--hardware", "h100-nvl"), 1),
    ],
)
def test_an_output_that_nobody_reads_keeps_the_status(arguments: tuple[str, ...], status: int) -> None:
    """A gate that passed once ended with 1, as if it had failed, where its output was cut off."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "startup_model", *arguments]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (status, "")


def test_ranges(run: Any) -> None:
    def labels(axis: str) -> list[Any]:
        name = axis.partition("=")[0]
        return json.loads(run("sweep", *MODEL, *NODE, "--axis", axis, "--json")[1])["axes"][name]  # type: ignore[no-any-return]

    assert labels("hardware.cpu.single_thread_score=1..2:5") == [1.0, 1.25, 1.5, 1.75, 2.0]
    assert labels("engine.tp=1..4:4") == [1, 2, 3, 4]
    assert labels("engine.gpu_memory_utilization=0.5..0.9:3") == pytest.approx([0.5, 0.7, 0.9])
    assert labels("hardware.storage.concurrent_starts=1..9:3") == [1, 5, 9]
    assert labels("hardware.gpu_memory=40 GiB..80 GiB:2") == pytest.approx([40 * 2**30, 80 * 2**30])
    many = ("--axis", "hardware.storage.cold_bandwidth=0.1 GB/s..10 GB/s:100000")
    assert "100000 starts" in run("sweep", *MODEL, *NODE, *many)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("what-if", "--change", "hardware.storage.local_nvme=6"),
            "must be a quantity with a unit; such as hardware.storage.local_nvme=6 GB/s",
        ),
        (("what-if", "--change", "hardware.gpu_memory=80"), "such as hardware.gpu_memory=80 GiB"),
        (("sweep", "--axis", "hardware.storage.cold_bandwidth=0.1..10:5"), "must be a quantity with a unit"),
        (("sweep", "--axis", "hardware.gpu_flops=400,500"), "such as hardware.gpu_flops=400 TFLOP/s"),
        (("plan", "--rate", "6"), "such as 6/h or 0.1/min"),
    ],
)
def test_where_a_unit_decides_a_bare_number_is_refused(run: Any, arguments: tuple[str, ...], message: str) -> None:
    """Six bytes per second gave a start of 89 years, six demands per second 6998 warm replicas."""
    command, *rest = arguments
    status, _, err = run(command, "--model", "Qwen/Qwen3-8B", "--hardware", "l40s", *rest)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1
