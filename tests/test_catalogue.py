"""The catalogue: no fact is remembered wrongly."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from startup_model import ModelConfig
from startup_model.models.config import catalogue_names

ENTRIES = json.loads(files("startup_model").joinpath("data/models.json").read_text(encoding="utf-8"))["models"]

PUBLISHED = {
    # Totals as the model pages and papers give them, in billions.
    "meta-llama/Llama-2-7b-hf": 6.738,
    "meta-llama/Llama-3.1-8B": 8.030,
    "meta-llama/Llama-3.1-70B": 70.55,
    "meta-llama/Llama-3.1-405B": 405.85,
    "mistralai/Mixtral-8x7B-v0.1": 46.70,
    "Qwen/Qwen2.5-72B": 72.71,
    "Qwen/Qwen3-235B-A22B": 235.09,
    "deepseek-ai/DeepSeek-V3": 671.03,
    "openai/gpt-oss-120b": 116.83,
    "google/gemma-2-27b": 27.23,
    "tiiuae/falcon-40b": 41.30,
    "bigscience/bloom": 176.25,
}


def test_the_catalogue_is_large_enough_to_be_useful() -> None:
    assert len(catalogue_names()) >= 40


@pytest.mark.parametrize("name", ENTRIES)
def test_the_computed_count_equals_the_counted_total(name: str) -> None:
    model = ModelConfig.from_catalogue(name)
    assert model.parameters == pytest.approx(ENTRIES[name]["parameters"], rel=0.002)
    assert not any("not in the table of families" in assumption for assumption in model.assumptions)


@pytest.mark.parametrize("name", PUBLISHED)
def test_well_known_totals(name: str) -> None:
    assert ModelConfig.from_catalogue(name).parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.002)


def test_names_are_found_in_any_letter_case_and_by_alias() -> None:
    base = ModelConfig.from_catalogue("meta-llama/Llama-3.1-8B-Instruct")
    assert ModelConfig.from_catalogue("META-LLAMA/llama-3.1-8b-instruct").parameters == base.parameters
    assert ModelConfig.from_catalogue("llama-3.1-8b-instruct").parameters == base.parameters


def test_aliases_lead_to_one_model_only() -> None:
    names = [name.lower() for name in ENTRIES]
    aliases = [alias.lower() for entry in ENTRIES.values() for alias in entry.get("aliases", ())]
    assert len({*names, *aliases}) == len(names) + len(aliases)
