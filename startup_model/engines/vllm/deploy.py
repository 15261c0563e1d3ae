"""vLLM in a container."""

from __future__ import annotations

from startup_model.engines.engine import FIRST, Deploy, ReadyTimeout, Serve

DEPLOY = Deploy(
    title="vLLM",
    image="vllm/vllm-openai",
    port=8000,
    gauges=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    serve=(
        Serve(FIRST, ("python3", "-m", "vllm.entrypoints.openai.api_server"), ("--model",)),
        Serve((0, 6), ("vllm", "serve")),  # there for certain from here on
    ),
    # vllm/envs.py from 0.14.0 on; the same seconds as a fixed number in v1/engine/core_client.py from 0.9.1 to 0.13.0
    ready_timeout=ReadyTimeout("VLLM_ENGINE_READY_TIMEOUT_S", since=(0, 14), seconds=600),
    secret_variables={"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"},
)
