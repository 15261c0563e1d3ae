"""Profiles on disk: whole or not at all, data only, and clear about what does not fit."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from startup_model import HardwareConfig, InputFileError, Profile, ProfileError, UnknownNameError, predict
from startup_model.prediction import StartupPrediction
from startup_model.profile import CHANGES_SINCE, SCHEMA_VERSION, HeldOut, migrate

REFERENCE = Profile.reference("h100-nvl-epyc-9354")

OLD = Path(__file__).parent / "data" / "profiles"
"""Profiles as earlier releases (and a later one) wrote them: never regenerated."""


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    REFERENCE.save(path)
    loaded = Profile.load(path)
    assert loaded == REFERENCE
    assert loaded.to_json() == REFERENCE.to_json()
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_profile_file_holds_no_path_and_no_time_stamp() -> None:
    text = REFERENCE.to_json()
    assert '"/' not in text
    assert "\\\\" not in text
    assert not re.search(r"\b20[0-9]{2}-[0-9]{2}", text)


def test_saving_into_a_missing_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be written"):
        REFERENCE.save(tmp_path / "missing" / "host.json")


def test_a_profile_given_by_file_or_name_is_used(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    REFERENCE.replace(name="mine", kind="calibrated").save(path)
    states = {"page_cache": "hot", "compile_cache": "warm"}
    mine = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=path, **states)
    named = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile="h100-nvl-epyc-9354", **states)
    assert mine.calibrated
    assert not named.calibrated
    assert mine.total_s == named.total_s
    assert mine.interval[1] - mine.interval[0] < named.interval[1] - named.interval[0]


def broken(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(REFERENCE.to_json())
    for key, value in changes.items():
        if value is None:
            del data[key]
        else:
            data[key] = value
    return data


def with_nan() -> dict[str, Any]:
    data = broken()
    data["coefficients"]["weight_load"]["default"]["copy_ratio"]["value"] = float("nan")
    return data


def negative() -> dict[str, Any]:
    data = broken()
    data["coefficients"]["weight_load"]["default"]["copy_ratio"]["value"] = -1.0
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (broken(schema_version=SCHEMA_VERSION + 1), "upgrade startup-model"),
        (broken(schema_version=None), "schema_version = None"),
        (broken(schema_version="1"), "schema_version = '1'"),
        (broken(host=None), "host: Profile needs it"),
        (broken(coefficients={}), "holds none of the terms that are known here; fit the profile again"),
        (with_nan(), "copy_ratio.value = nan"),
        (negative(), "copy_ratio.value = -1.0"),
        (broken(engine_version="latest"), "version = 'latest': not a version"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError) as error:
        Profile.from_dict(data)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "\x80"])
def test_damaged_files_are_said_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputFileError) as error:
        Profile.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_migration_leaves_its_argument_alone() -> None:
    data = {"schema_version": 1, "name": "x"}
    new = migrate(data, "file")
    assert data == {"schema_version": 1, "name": "x"}
    assert new["schema_version"] == SCHEMA_VERSION
    assert migrate(new, "file") == new


def test_a_file_of_the_first_schema_still_gives_the_same_phases() -> None:
    """A profile as the first schema wrote it: the numbers are the same; what it does not know widens the interval."""
    old = Profile.load(OLD / "schema_1.json")
    assert old.schema_version == SCHEMA_VERSION
    assert old.values["weight_load"]["default"]["copy_ratio"] == 1.00093
    assert set(CHANGES_SINCE) == set(range(1, SCHEMA_VERSION))
    found = predict("meta-llama/Llama-2-7b-hf", "l40s", profile=old, **STATES)
    assert found.total_s == pytest.approx(24.0, abs=3.0)
    assert any("schema 1" in warning for warning in found.warnings)


def test_unknown_reference_names_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'l40s-epyc-9354'"):
        Profile.reference("l40s-epyc-9345")


# --- a profile where it does not belong ------------------------------------------------------------------------------


STATES = {"page_cache": "hot", "compile_cache": "warm"}


def spread(found: StartupPrediction) -> float:
    return found.interval[1] / found.interval[0]


def test_a_calibrated_profile_is_only_calibrated_for_its_own_kind_of_host() -> None:
    mine = REFERENCE.replace(name="mine", kind="calibrated")
    own = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=mine, **STATES)
    assert own.calibrated
    elsewhere = [
        predict("meta-llama/Llama-2-7b-hf", "mi300x", profile=mine, **STATES),
        predict("meta-llama/Llama-2-7b-hf", "cpu", profile=mine, **STATES),
        predict("meta-llama/Llama-2-7b-hf", "l40s", profile=mine, **STATES),
        predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=mine, engine="sglang", **STATES),
    ]
    for found in elsewhere:
        assert not found.calibrated
        assert spread(found) > 1.5 * spread(own)
    assert spread(
        predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=mine, version="0.30.0", **STATES)
    ) > 1.5 * spread(own)


def test_a_profile_without_held_out_errors_has_a_wide_interval_all_the_same() -> None:
    mine = REFERENCE.replace(kind="calibrated", held_out=HeldOut(by="model", errors={}))
    own = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=mine, **STATES)
    unknown = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=mine.replace(one_run_spread=0.0), **STATES)
    assert spread(own) > spread(
        predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=REFERENCE.replace(kind="calibrated"), **STATES)
    )
    assert spread(unknown) > 1.5


def test_the_core_counts_beside_the_version() -> None:
    """vLLM 0.10.1.1 was measured with the V1 core; its V0 core was not."""
    found = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", version="0.10.1.1", generation="v0", **STATES)
    assert any("0.10.1.1 (v0) was not measured: phases are scaled as measured at 0.7.0" in w for w in found.warnings)


def test_results_cannot_be_changed_through_what_they_share() -> None:
    found = predict("meta-llama/Llama-2-7b-hf", "h100-nvl")
    for shared in (found.segments, found.context.inputs, found.phases):
        with pytest.raises(TypeError):
            shared[next(iter(shared))] = -1000.0  # type: ignore[index]


def test_a_file_of_the_second_schema_gives_the_same_predictions() -> None:
    """A profile as the second schema wrote it: every number of its host counts, as it did, and a score that was left out is 1."""
    path = OLD / "schema_2.json"
    old = Profile.load(path)
    assert (old.schema_version, old.written_as_schema) == (SCHEMA_VERSION, 2)
    assert (old.host.single_thread_score, old.host.assumed) == (1.0, ())
    assert old.values["worker_spawn"]["default"]["base_seconds"] == 1.96243
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["host"]["single_thread_score"]
    assert Profile.from_dict(data) == old
    found = predict("meta-llama/Llama-2-7b-hf", "l40s", profile=old, **STATES)
    assert found.total_s == pytest.approx(24.4214, abs=1e-4)  # of the release that wrote it
    assert any("written as schema 2: schema 3 also says which numbers" in warning for warning in found.warnings)


def test_a_host_without_a_score_makes_no_node_slower() -> None:
    host = REFERENCE.host.replace(single_thread_score=None)
    mine = Profile.from_dict(json.loads(REFERENCE.replace(host=host).to_json()))
    assert mine.host.single_thread_score is None
    slow, usual = ({"model": "AMD EPYC 9354", "single_thread_score": score} for score in (0.5, 1.0))
    for profile, factor in ((REFERENCE, 2.0), (mine, 1.0)):
        found = [
            predict("meta-llama/Llama-2-7b-hf", HardwareConfig.preset("h100-nvl", cpu=cpu), profile=profile, **STATES)
            for cpu in (slow, usual)
        ]
        boots = [p.phases["framework_bootstrap"].seconds for p in found]  # type: ignore[index]
        assert boots[0] == pytest.approx(factor * boots[1])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("assumed", ["colour"], "host.assumed"),
        ("assumed", "page_cache_bandwidth", "host.assumed"),
        ("single_thread_score", 0.0, "host.single_thread_score = 0.0"),
        ("single_thread_score", "fast", "host.single_thread_score = 'fast'"),
    ],
)
def test_a_host_that_does_not_fit_is_said_in_one_line(field: str, value: object, message: str) -> None:
    data = broken()
    data["host"][field] = value
    with pytest.raises(ProfileError) as error:
        Profile.from_dict(data)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# --- files outlive releases ---------------------------------------------------------------------------------------------

SECONDS = json.loads((OLD / "seconds.json").read_text(encoding="utf-8"))
"""Seconds by phase as the release that wrote the files predicted them on their own host."""


def on_its_own_host(profile: Profile, case: str) -> dict[str, float]:
    """Seconds by phase of a case such as ``Qwen1.5-14B cold``."""
    model, page_cache = case.split()
    host = profile.host
    node = {
        "gpu": host.gpu, "gpu_memory": "94 GB", "gpu_memory_bandwidth": host.gpu_memory_bandwidth, "cpu": {"model": host.cpu},
    }  # fmt: skip
    found = predict(model, node, {"page_cache": page_cache, "compile_cache": "warm"}, profile=profile)
    return {str(phase): entry.seconds for phase, entry in found.phases.items()}


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("case", SECONDS["schema_3"])
def test_profiles_of_every_released_schema_predict_the_same_seconds(name: str, case: str) -> None:
    assert on_its_own_host(Profile.load(OLD / f"{name}.json"), case) == pytest.approx(SECONDS[name][case], rel=1e-12)


@pytest.mark.parametrize("case", SECONDS["schema_3"])
@pytest.mark.parametrize(
    ("name", "without"), [("newer", ()), ("term_less", ("kv_cache_init",)), ("coefficient_less", ("unattributed",))]
)
def test_what_a_profile_has_more_or_less_changes_nothing_else(name: str, without: tuple[str, ...], case: str) -> None:
    found = on_its_own_host(Profile.load(OLD / f"{name}.json"), case)
    expected = SECONDS["schema_3"][case]
    assert {n: s for n, s in found.items() if n not in without} == pytest.approx(
        {n: s for n, s in expected.items() if n not in without}, rel=1e-12
    )
    assert all(0 <= found[n] < expected[n] for n in without)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("term_less", "is older than kv_cache_init, which"),
        ("coefficient_less", "is older than unattributed.seconds_per_byte, which"),
        ("newer", "is of a newer release: field_of_a_newer_release, host.numa_nodes"),
    ],
)
def test_what_a_profile_has_more_or_less_is_told_in_one_warning(name: str, words: str) -> None:
    found = predict("Llama-2-7b-hf", "h100-nvl", profile=Profile.load(OLD / f"{name}.json"))
    assert len([warning for warning in found.warnings if words in warning]) == 1


def test_what_a_newer_release_wrote_is_written_back(tmp_path: Path) -> None:
    Profile.load(OLD / "newer.json").replace(name="copy").save(tmp_path / "copy.json")
    written = json.loads((tmp_path / "copy.json").read_text(encoding="utf-8"))
    original = json.loads((OLD / "newer.json").read_text(encoding="utf-8"))
    del original["covariance"]  # which nothing reads
    assert written == original | {"name": "copy"}


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (("held_out",), "held_out.sessions"),
        (("provenance",), "provenance.sessions"),
        (("version_effects", 0), "version_effects.0.sessions"),
        (("coefficients", "weight_load", "default", "copy_ratio"), "weight_load.copy_ratio.sessions"),
    ],
)
def test_fields_of_a_newer_release_are_kept_wherever_they_stand(place: tuple[str | int, ...], name: str) -> None:
    data = json.loads((OLD / "schema_3.json").read_text(encoding="utf-8"))
    part = data
    for key in place:
        part = part[key]
    part["sessions"] = {"a": 0.5}
    profile = Profile.from_dict(data)
    assert profile.unknown == (name,)
    part = json.loads(profile.to_json())
    for key in place:
        part = part[key]
    assert part["sessions"] == {"a": 0.5}
