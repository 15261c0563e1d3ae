"""The commands that calibrate and validate, as a user types them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

import command
import pytest

from calibration.runs.published import published_runs
from calibration.runs.write import write_runs
from startup_model import Profile, predict

RUNS = Path(__file__).parent.parent / "examples" / "runs"
TABLE = str(files("calibration").joinpath("data/published_runs.csv"))


def run(arguments: Sequence[str], code: int = 0) -> str:
    with patch.dict(os.environ, {"COLUMNS": "120"}):
        done = command.run(*arguments)
    assert done.status == code, done.err
    return done.err if code else done.out


def test_one_run_gives_a_profile_that_predicts(tmp_path: Path) -> None:
    own = [run for run in published_runs() if run.dataset == "l40s_hot"]
    write_runs(own[2:3], tmp_path / "one.jsonl")
    text = run(["calibrate", str(tmp_path / "one.jsonl"), "--out", str(tmp_path / "host.json"), "--name", "mine"])
    for part in ("graph_trace.seconds_per_layer", "borrowed", "fitted", "to profile next", "page cache cold"):
        assert part in text
    profile = Profile.load(tmp_path / "host.json")
    assert profile.name == "mine"
    found = predict(own[0].model, own[0].hardware, own[0].engine, profile=tmp_path / "host.json")
    assert found.calibrated
    assert found.interval[0] < (own[0].wall_s or 0.0) < found.interval[1]


def test_the_table_shows_errors_of_models_left_out(tmp_path: Path) -> None:
    text = run(["calibrate", TABLE, "--dataset", "l40s_hot", "--out", str(tmp_path / "host.json")])
    assert "models left out of the fit: mean absolute error" in text
    data = json.loads(
        run(["calibrate", TABLE, "--dataset", "l40s_hot", "--out", str(tmp_path / "again.json"), "--json"])
    )
    assert data["report"]["converged"] is True
    assert len(data["held_out"]) == 11
    assert (tmp_path / "host.json").read_bytes() == (tmp_path / "again.json").read_bytes()


def test_validate_fits_anew_or_judges_a_profile(tmp_path: Path) -> None:
    text = run(["validate", TABLE, "--dataset", "l40s_hot", "--prior", "none"])
    assert "bytes / bandwidth + constant" in text
    assert "graph_trace" in text
    picture = tmp_path / "errors.svg"
    judged = ["validate", TABLE, "--dataset", "l40s_hot", "--profile", "l40s-epyc-9354"]
    data = json.loads(run([*judged, "--json", "--plot", str(picture)]))
    assert 0 < data["mape"] < 0.02
    assert data["runs"] == 11
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert "without what profiles remember of models" in run(judged)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calibrate", "nowhere.csv", "--out", "x.json"], "nowhere.csv: no such file"),
        (["calibrate", TABLE, "--out", "x.json"], "3 hosts"),
        (["calibrate", TABLE, "--dataset", "l40s_hat", "--out", "x.json"], "known: h100nvl_capture_sweep"),
        (["calibrate", TABLE, "--dataset", "l40s_hot", "--out", "x.json", "--prior", "nearby"], "nearby"),
        (["calibrate", TABLE, "--dataset", "l40s_hot", "--out", "no/such/x.json"], "cannot be written"),
        (["validate", TABLE, "--by", "modle"], "did you mean 'model'"),
        (
            ["validate", TABLE, "--dataset", "l40s_hot", "--profile", "none"],
            "must be a file or the name of a reference profile",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = run(arguments, code=2)
    assert words in text
    assert len(text.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_hosts_are_mixed_on_request(tmp_path: Path) -> None:
    own = [run for run in published_runs() if run.dataset in ("l40s_hot", "h100nvl_hot")][::5]
    write_runs(own, tmp_path / "two.jsonl")
    out = str(tmp_path / "host.json")
    run(["calibrate", str(tmp_path / "two.jsonl"), "--out", out], code=2)
    run(["calibrate", str(tmp_path / "two.jsonl"), "--out", out, "--allow-mixed-hosts"])


def test_a_run_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    own = [run for run in published_runs() if run.dataset == "l40s_hot"][:2]
    write_runs(own, tmp_path / "a.jsonl")
    out = tmp_path / "host.json"
    text = run(["calibrate", str(tmp_path / "a.jsonl"), str(tmp_path / "a.jsonl"), "--out", str(out)])
    once = run(["calibrate", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "once.json")])
    assert "every figure is that of run 0: it counts once" in text
    assert "counts once" not in once
    assert Profile.load(out).values == Profile.load(tmp_path / "once.json").values


def test_what_is_no_number_is_null_in_json() -> None:
    text = run(["validate", str(RUNS / "l40s.yaml"), "--profile", "l40s-epyc-9354", "--json"])
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert data["r2"] is None
