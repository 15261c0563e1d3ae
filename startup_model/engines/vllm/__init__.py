"""vLLM."""

from startup_model.engines.engine import Engine, Launch, Order, Resolved, Span
from startup_model.engines.vllm.defaults import CORES, FIRST_V1, resolve
from startup_model.engines.vllm.deploy import DEPLOY
from startup_model.engines.vllm.flags import FLAGS, VARIABLES, compose
from startup_model.engines.vllm.measure import CACHES, HTTP, JOINT_FLAG, PACKAGES

# The V0 core builds the tokenizer before it starts its workers.
_V0, _V1 = Order(moved={"tokenizer_load": "framework_bootstrap"}), Order()


def _order(resolved: Resolved) -> Order:
    return _V0 if resolved.generation == "v0" else _V1


ENGINE = Engine(
    name="vllm",
    package=__name__,
    default_version="0.10.1.1",  # that of the reference profiles
    cores=CORES,
    resolve=resolve,
    order=_order,
    listed_by_count=Span(since=FIRST_V1),
    deploy=DEPLOY,
    launch=Launch(("vllm", "serve"), "--model", "vllm", "api_server.py", positional_model=True),
    flags=FLAGS,
    variables=VARIABLES,
    compose=compose,
    arity="arity.json",
    packages=PACKAGES,
    http=HTTP,
    caches=CACHES,
    joint_flag=JOINT_FLAG,
    imports_in_a_row=2,  # by the server, then by the process of the engine
)
