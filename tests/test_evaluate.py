"""One evaluator: phases in a row add up, phases side by side take the longest way, for numbers, arrays and rows of a fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model import engines, predict
from startup_model.engines.engine import Order
from startup_model.evaluate import begins_of, design, times
from startup_model.phases import PHASES, TERMS
from startup_model.predictor import as_start
from startup_model.profile import Profile
from startup_model.recipe import Call, Start, order_of, prepare, version_of

WAITS = {
    "spawn": (),
    "tokenizer": ("spawn",),
    "load": ("spawn",),
    "capture": ("load",),
    "ready": ("tokenizer", "capture"),
}
NAMES = tuple(WAITS)


def calls(*seconds: object) -> dict[str, tuple[Call, ...]]:
    """A start whose phases take these times."""
    return {name: (Call(TERMS["provision"], (value,), {}),) for name, value in zip(NAMES, seconds, strict=True)}


def test_phases_side_by_side_take_the_longest_way() -> None:
    found = times(calls(2.0, 3.0, 5.0, 1.0, 0.5), WAITS)
    assert {name: time.seconds for name, time in found.items()} == {
        "spawn": 2.0, "tokenizer": 0.0, "load": 5.0, "capture": 1.0, "ready": 0.5,
    }  # fmt: skip
    assert found["tokenizer"].elapsed == 3.0
    slow = times(calls(2.0, 9.0, 5.0, 1.0, 0.5), WAITS)
    assert [time.seconds for time in slow.values()] == [2.0, 9.0, 0.0, 0.0, 0.5]


def test_arrays_are_decided_point_by_point() -> None:
    found = times(
        calls(np.array([2.0, 2.0]), np.array([3.0, 9.0]), np.array([5.0, 5.0]), np.ones(2), np.zeros(2)), WAITS
    )
    np.testing.assert_array_equal(sum(time.seconds for time in found.values()), [8.0, 11.0])
    np.testing.assert_array_equal(found["tokenizer"].seconds, [0.0, 9.0])


@given(st.lists(st.floats(0, 100), min_size=5, max_size=5))
def test_the_sum_of_seconds_is_the_time_that_the_whole_takes(values: list[float]) -> None:
    spawn, tokenizer, load, capture, ready = values
    found = times(calls(*values), WAITS)
    whole = spawn + max(tokenizer, load + capture) + ready
    assert sum(time.seconds for time in found.values()) == pytest.approx(whole)
    begins = begins_of({name: time.elapsed for name, time in found.items()}, WAITS)
    assert begins["ready"] + ready == pytest.approx(whole)
    assert begins["tokenizer"] == begins["load"] == spawn


@pytest.mark.parametrize(
    ("command", "first", "then"),
    [
        ("vllm serve m --version-is 0.6.3", "tokenizer_load", "worker_spawn"),
        ("vllm serve m --version-is 0.10.1.1", "worker_spawn", "tokenizer_load"),
    ],
)
def test_the_order_of_phases_is_that_of_the_core(command: str, first: str, then: str) -> None:
    start = as_start("Llama-2-7b-hf", "h100-nvl", {"version": command.rsplit(maxsplit=1)[-1]})
    phases = prepare(start).recipe.phases
    assert phases.index(first) < phases.index(then)


def test_a_core_without_profile_run_has_no_such_phase_and_overlaps_the_tokenizer() -> None:
    found = prepare(as_start("Qwen3-8B", "h100-nvl", "sglang")).recipe
    assert "memory_profiling" not in found.phases
    assert found.phases.index("kv_cache_init") == found.phases.index("weight_load") + 1
    assert found.waits["model_init"] == ("worker_spawn",)
    assert set(found.waits["api_ready"]) == {"tokenizer_load", "graph_capture"}


def test_a_phase_that_nobody_waits_for_is_waited_for_by_the_next_join() -> None:
    order = Order(after={"weight_load": ("worker_spawn",), "api_ready": ("tokenizer_load", "memory_profiling")})
    _, waits = order_of(order, "vllm", (0, 10))
    assert "graph_capture" in waits["api_ready"]
    assert "model_init" in waits["api_ready"]


@pytest.mark.parametrize("name", [engine.name for engine in engines.built_in().values() if engine.is_predicted])
def test_every_order_holds_each_phase_once_and_ends_with_what_is_unattributed(name: str) -> None:
    found = prepare(as_start("Llama-2-7b-hf", "h100-nvl", {"engine": name})).recipe
    assert len(set(found.phases)) == len(found.phases)
    assert found.phases[-1] == "unattributed"
    assert {"weight_load", "graph_capture", "api_ready"} <= set(found.phases)


def test_the_graph_memory_estimate_is_part_of_profiling_from_the_version_that_has_it() -> None:
    def terms(version: str) -> list[str]:
        return [
            call.term.name for call in predict("Qwen3-8B", "h100-nvl", version=version).phases["memory_profiling"].calls
        ]

    assert terms("0.17.1") == ["memory_profiling"]
    assert terms("0.18.1") == ["memory_profiling", "graph_memory_estimate"]


@pytest.mark.parametrize("load_format", ["auto", "runai_streamer"])
@pytest.mark.parametrize("page_cache", ["hot", "cold"])
def test_a_row_of_a_fit_gives_the_seconds_of_the_prediction(load_format: str, page_cache: str) -> None:
    """Also where reading and copying overlap, and the term is no sum of what each coefficient gives."""
    found = predict("Qwen3-8B", "h100-nvl", load_format=load_format, page_cache=page_cache)
    for entry in found.phases.values():
        seconds = sum(factor * call.coefficients[name] for call in entry.calls for name, factor in design(call).items())
        assert seconds == pytest.approx(entry.elapsed_s, rel=1e-9)


def test_the_version_is_that_of_the_profiles_runs_where_the_start_names_none() -> None:
    profile = Profile.reference("h100-nvl-epyc-9354").replace(runs_version="0.18.1")
    start = Start(*as_start("Qwen3-8B", "h100-nvl")[:3], profile)
    assert version_of(start.engine, profile) == "0.18.1"
    assert prepare(start).recipe.resolved.version == (0, 18, 1)


def test_all_phases_of_the_file_have_a_term_of_their_name() -> None:
    assert all(row.terms[0].name == name for name, row in PHASES.items())


@pytest.mark.parametrize(
    ("node", "engine", "phase", "source"),
    [
        ("h100-nvl", "vllm", "graph_capture", "fitted"),
        ("h100-nvl", "sglang", "graph_capture", "borrowed"),
        ("mi300x", "vllm", "graph_capture", "borrowed"),
        ("h100-nvl", {"version": "0.18.1"}, "memory_profiling", "fitted + borrowed"),
    ],
)
def test_what_was_fitted_on_runs_of_something_else_is_told_as_borrowed(
    node: str, engine: str | dict[str, str], phase: str, source: str
) -> None:
    """Another engine, another kind of device, another term: the graph memory estimate reads the coefficients of the capture."""
    assert predict("Qwen3-8B", node, engine).phases[phase].source == source
