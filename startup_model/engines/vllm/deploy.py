"""vLLM in a container."""

from __future__ import annotations

from startup_model.engines.engine import Deploy, OlderServe, ReadyTimeout

DEPLOY = Deploy(
    title="vLLM",
    image="vllm/vllm-openai",
    port=8000,
    gauges=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    older_serve=OlderServe((0, 6), ("python3", "-m", "vllm.entrypoints.openai.api_server")),
    # vllm/envs.py from 0.14.0 on; the same seconds as a fixed number in v1/engine/core_client.py from 0.9.1 to 0.13.0
    ready_timeout=ReadyTimeout("VLLM_ENGINE_READY_TIMEOUT_S", since=(0, 14), seconds=600),
    secret_variables={"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"},
)
