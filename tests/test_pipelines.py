"""Pipelines: steps in a row add up, branches beside each other take the longest, and the right one is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from startup_model.phases import Phase
from startup_model.pipelines import PIPELINES, Overlap, Pipeline, Step, find_pipeline, run_pipeline, steps_of
from startup_model.terms import TERMS

TOKENIZER = Step(Phase.TOKENIZER_LOAD, TERMS["tokenizer_load"])
LOAD = Step(Phase.WEIGHT_LOAD, TERMS["weight_load"])
CAPTURE = Step(Phase.GRAPH_CAPTURE, TERMS["graph_capture"])
SPAWN = Step(Phase.WORKER_SPAWN, TERMS["worker_spawn"])

SMALL = Pipeline("test", "test", "test", (0,), (SPAWN, Overlap(((TOKENIZER,), (LOAD, CAPTURE)))))


def test_branches_beside_each_other_take_the_longest() -> None:
    times = {SPAWN: 2.0, TOKENIZER: 3.0, LOAD: 5.0, CAPTURE: 1.0}
    timings = run_pipeline(SMALL, times.get)
    assert {phase.value: timing.seconds for phase, timing in timings.items()} == {
        "worker_spawn": 2.0,
        "tokenizer_load": 0.0,
        "weight_load": 5.0,
        "graph_capture": 1.0,
    }
    assert timings[Phase.TOKENIZER_LOAD].elapsed == 3.0
    slow = run_pipeline(SMALL, (times | {TOKENIZER: 9.0}).get)
    assert [timing.seconds for timing in slow.values()] == [2.0, 9.0, 0.0, 0.0]


def test_arrays_are_decided_point_by_point() -> None:
    times = {
        SPAWN: np.array([2.0, 2.0]),
        TOKENIZER: np.array([3.0, 9.0]),
        LOAD: np.array([5.0, 5.0]),
        CAPTURE: np.array([1.0, 1.0]),
    }
    timings = run_pipeline(SMALL, times.get)
    total = sum(timing.seconds for timing in timings.values())
    np.testing.assert_array_equal(total, [8.0, 11.0])
    np.testing.assert_array_equal(timings[Phase.TOKENIZER_LOAD].seconds, [0.0, 9.0])


@given(st.lists(st.floats(0, 100), min_size=4, max_size=4))
def test_the_sum_of_seconds_is_the_time_that_the_whole_takes(values: list[float]) -> None:
    spawn, tokenizer, load, capture = values
    times = dict(zip((SPAWN, TOKENIZER, LOAD, CAPTURE), values, strict=True))
    timings = run_pipeline(SMALL, times.get)
    assert sum(timing.seconds for timing in timings.values()) == pytest.approx(spawn + max(tokenizer, load + capture))


def test_steps_that_are_left_out_do_not_appear() -> None:
    assert Phase.TOKENIZER_LOAD not in run_pipeline(SMALL, {SPAWN: 1.0}.get)


@pytest.mark.parametrize(
    ("generation", "version", "name"),
    [
        ("v0", (0, 3, 1), "vLLM V0, five stages"),
        ("v0", (0, 10, 2), "vLLM V0, five stages"),
        ("v1", (0, 8, 5), "vLLM V1"),
        ("v1", (0, 10, 1, 1), "vLLM V1"),
        ("v1", (0, 11), "vLLM V1, full and piecewise graphs"),
        ("v1", (0, 21), "vLLM V1, graph memory estimated in profiling"),
        ("sglang", (0, 5, 4), "SGLang"),
    ],
)
def test_the_pipeline_of_a_version_is_found(generation: str, version: tuple[int, ...], name: str) -> None:
    assert find_pipeline(generation, version).name == name


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda p: p.name)
def test_every_pipeline_runs_from_provision_to_the_first_request(pipeline: Pipeline) -> None:
    phases = [step.phase for step in steps_of(pipeline)]
    assert phases[0] is Phase.PROVISION
    assert phases[-1] is Phase.FIRST_REQUEST
    assert {Phase.WEIGHT_LOAD, Phase.GRAPH_CAPTURE, Phase.API_READY, Phase.UNATTRIBUTED} <= set(phases)
