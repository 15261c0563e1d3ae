"""vLLM."""

from __future__ import annotations

from startup_model.engines.engine import Engine, Order, Resolved, Span
from startup_model.engines.vllm.deploy import DEPLOY


def _order(resolved: Resolved) -> Order:
    """The V0 core builds the tokenizer before it starts its workers."""
    return Order(moved={"tokenizer_load": "framework_bootstrap"}) if resolved.generation == "v0" else Order()


ENGINE = Engine(
    name="vllm",
    package=__name__,
    default_version="0.10.1.1",  # that of the reference profiles
    cores={"v0": Span(before=(0, 10, 100)), "v1": Span(since=(0, 6))},
    order=_order,
    deploy=DEPLOY,
)
