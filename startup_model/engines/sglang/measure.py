"""What a measurement of SGLang needs: paths of its server, caches of compiled code, packages of a record."""

from __future__ import annotations

from startup_model.engines.engine import Caches, Http

PACKAGES = ("sglang",)
HTTP = Http(version_paths=("/server_info", "/get_server_info"))  # the second one before 0.5.6
CACHES = Caches(
    variables={"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}, off={"torch_compile": False}
)
