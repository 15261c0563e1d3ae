"""SGLang."""

from __future__ import annotations

from startup_model.engines.engine import Engine, Order
from startup_model.engines.sglang.deploy import DEPLOY

# There is no profile run; the main process builds the tokenizer while the scheduler processes load the model.
_ORDER = Order(
    left_out=frozenset({"memory_profiling"}),
    moved={"kv_cache_init": "weight_load"},
    after={"model_init": ("worker_spawn",), "api_ready": ("tokenizer_load", "graph_capture")},
)

ENGINE = Engine(name="sglang", package=__name__, default_version="0.5.4", order=lambda resolved: _ORDER, deploy=DEPLOY)
