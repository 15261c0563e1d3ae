"""Phases and their roll-ups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model.phases import AFTER_READY, BEFORE_ENGINE, ROLLUPS, Phase, roll_up

READY = [phase for phase in Phase if phase not in (*BEFORE_ENGINE, *AFTER_READY)]

GROUPS = {
    "five_stages": ["engine_init", "weight_load", "memory_profiling", "kv_cache_allocation", "graph_capture_and_warmup"],
    "six_steps": [
        "model_loading", "tokenizer_loading", "memory_allocation", "cache_engine_init", "worker_spawning", "api_readiness",
    ],
    "measured_six": [
        "framework_bootstrap", "tokenizer_init", "model_loading", "torch_compile", "kv_cache_profiling", "graph_capture",
    ],
    "four_segments": ["container_and_runtime", "weight_load", "framework_init", "first_request"],
}  # fmt: skip


@pytest.mark.parametrize("name", ROLLUPS)
def test_a_rollup_is_a_complete_partition_of_the_time_to_ready(name: str) -> None:
    groups = ROLLUPS[name]
    assert set(READY) <= set(groups)
    assert sorted(set(groups.values())) == sorted(GROUPS[name])


@pytest.mark.parametrize("name", ROLLUPS)
@given(seconds=st.dictionaries(st.sampled_from(list(Phase)), st.floats(0, 1e4)))
def test_a_rollup_sums_to_the_total_whatever_segments_are_included(name: str, seconds: dict[Phase, float]) -> None:
    rolled = roll_up(seconds, ROLLUPS[name])
    assert sum(rolled.values()) == pytest.approx(sum(seconds.values()))
    assert set(GROUPS[name]) <= set(rolled)


def test_phases_can_be_looked_up_by_plain_strings() -> None:
    assert {Phase.WEIGHT_LOAD: 1}["weight_load"] == 1  # type: ignore[index]
