"""SGLang in a container."""

from __future__ import annotations

from startup_model.engines.engine import Deploy

DEPLOY = Deploy(
    title="SGLang",
    image="lmsysorg/sglang",
    port=30000,
    gauges=("sglang:num_running_reqs", "sglang:num_queue_reqs"),  # with --enable-metrics
    probe_timeout_s=20,  # /health generates a token, for which it gives itself so long (entrypoints/http_server.py, HEALTH_CHECK_TIMEOUT)
    listens_everywhere=False,  # srt/server_args.py
)
