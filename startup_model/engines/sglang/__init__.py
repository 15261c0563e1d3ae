"""SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from startup_model.engines import flags
from startup_model.engines.engine import Caches, Deploy, Engine, Flag, Http, Launch, Order
from startup_model.engines.sglang.defaults import resolve
from startup_model.versions import Version

_WITH = flags.with_value
# Read from SGLang 0.4.6 to 0.5.23: srt/server_args.py.
_FLAGS: Mapping[str, Flag] = {
    "--model-path": Flag("model", flags.model),
    "--tp-size": Flag("tp", flags.integer, _WITH),
    "--pp-size": Flag("pp", flags.integer, _WITH),
    "--dp-size": Flag("dp", flags.integer, _WITH),
    "--ep-size": Flag("expert_parallel", lambda value: flags.integer(value) > 1),
    "--dtype": Flag("dtype", str, _WITH),
    "--quantization": Flag("quantization", str, _WITH),
    "--kv-cache-dtype": Flag("kv_cache_dtype", str, _WITH),
    "--load-format": Flag("load_format", str, _WITH),
    "--mem-fraction-static": Flag("gpu_memory_utilization", flags.number, _WITH),
    "--context-length": Flag("max_model_len", flags.human_integer, _WITH),
    "--chunked-prefill-size": Flag("max_num_batched_tokens", flags.positive, _WITH),
    "--max-running-requests": Flag("max_num_seqs", flags.integer, _WITH),
    "--page-size": Flag("block_size", flags.integer, _WITH),
    "--disable-cuda-graph": Flag("enforce_eager", flags.switch, flags.when(True)),
    "--cuda-graph-max-bs": Flag("max_capture_size", flags.integer, _WITH),
    "--cuda-graph-bs": Flag("capture_sizes", flags.sizes, _WITH),
    "--enable-torch-compile": Flag("torch_compile", flags.switch, flags.when(True)),
    "--disable-radix-cache": Flag("prefix_caching", flags.inverted, flags.when(False)),
}
# There is no profile run; the main process builds the tokenizer while the scheduler processes load the model.
_ORDER = Order(
    left_out=frozenset({"memory_profiling"}),
    moved={"kv_cache_init": "weight_load"},
    after={"model_init": ("worker_spawn",), "api_ready": ("tokenizer_load", "graph_capture")},
)


def _compose(fields: dict[str, Any], version: Version | None) -> list[str]:
    if fields.get("expert_parallel") is True and (ranks := fields.get("tp", 1)) > 1:  # experts are spread over these
        del fields["expert_parallel"]
        return ["--ep-size", str(ranks)]
    return []


ENGINE = Engine(
    name="sglang",
    package=__name__,
    default_version="0.5.4",
    resolve=resolve,
    order=lambda resolved: _ORDER,
    launch=Launch(("python", "-m", "sglang.launch_server"), "--model-path", "sglang", "launch_server.py"),
    flags=_FLAGS,
    variables=flags.TORCH_VARIABLES,
    compose=_compose,
    arity="arity.json",
    deploy=Deploy(
        title="SGLang",
        image="lmsysorg/sglang",
        port=30000,
        gauges=("sglang:num_running_reqs", "sglang:num_queue_reqs"),  # with --enable-metrics
        probe_timeout_s=20,  # /health generates a token, for which it gives itself so long (entrypoints/http_server.py, HEALTH_CHECK_TIMEOUT)
        listens_everywhere=False,  # srt/server_args.py
    ),
    packages=("sglang",),
    http=Http(version_paths=("/server_info", "/get_server_info")),  # the second one before 0.5.6
    caches=Caches({"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}, off={"torch_compile": False}),
)
