"""Profiles on disk: whole or not at all, data only, and clear about what does not fit."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from startup_model import InputFileError, Profile, ProfileError, UnknownNameError, predict
from startup_model.migrations import SCHEMA_VERSION, migrate

REFERENCE = Profile.reference("h100-nvl-epyc-9354")


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
    mine = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile=path, page_cache="hot")
    named = predict("meta-llama/Llama-2-7b-hf", "h100-nvl", profile="h100-nvl-epyc-9354", page_cache="hot")
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


def without_term() -> dict[str, Any]:
    data = broken()
    del data["coefficients"]["weight_load"]
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
        (broken(colour="red"), "colour: unknown field"),
        (broken(coefficients={}), "missing; fit the profile again"),
        (without_term(), "coefficients.weight_load.default: missing"),
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
    assert migrate(data, "file") == data == {"schema_version": 1, "name": "x"}


def test_unknown_reference_names_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'l40s-epyc-9354'"):
        Profile.reference("l40s-epyc-9345")
