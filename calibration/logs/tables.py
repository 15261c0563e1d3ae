"""The tables: what each engine prints while it starts. A new wording is a row; a new engine is an ``Engine`` in ``ENGINES``.

Wordings and versions were read from the engines' own packages (vLLM 0.2.7-0.33, vllm-ascend 0.7-0.30, tpu-inference 0.12-0.32, SGLang 0.3.6-0.5.23, TGI
0.9-3.3, llama.cpp b1696 to late 2026, LMDeploy 0.6-0.16) and from logs; what is known of TensorRT-LLM comes from few logs. A version range names the first and
last package that was read, so a wording may be older or younger.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from calibration.logs.events import Engine, Failure, Milestone, Row
from startup_model.phases import Phase

__all__ = ["ADDITIVE", "COMMON_FAILURES", "ENGINES", "SETTING_FACTS", "SHARED_ROWS"]

# fmt: off
# One row a line, however long: the tables are read as tables.

ADDITIVE = frozenset(
    {
        "load_weights_s", "dynamo_s", "compile_s", "compiled_graph_load_s", "torch_compile_total_s", "profiling_warmup_s",
        "download_s", "model_init_s", "precompile_s", "graph_capture_part_s", "draft_graph_capture_s", "model_buffer_gib",
    }
)
"""Facts that one process may print several times, for parts of one start (model and drafter, several ranges of shapes): they add up, and the parts are
kept under ``<name>_parts_s``. The same figure printed by several ranks does not add up."""

SETTING_FACTS = frozenset(
    {
        "max_num_batched_tokens", "max_model_len", "world_size", "dp_rank", "pp_rank", "tp_rank", "overridden_blocks", "block_tokens",
        "done", "total", "k_gib", "v_gib", "model_buffer_gib",
    }
)
"""Figures of log lines that are settings or parts of something, no facts of their own."""

_BOOT, _SPAWN, _TOKENIZER = Phase.FRAMEWORK_BOOTSTRAP, Phase.WORKER_SPAWN, Phase.TOKENIZER_LOAD
_INIT, _LOAD, _TRACE, _COMPILE = Phase.MODEL_INIT, Phase.WEIGHT_LOAD, Phase.GRAPH_TRACE, Phase.GRAPH_COMPILE
_PROFILE, _POOL, _CAPTURE, _READY = Phase.MEMORY_PROFILING, Phase.KV_CACHE_INIT, Phase.GRAPH_CAPTURE, Phase.API_READY

SHARED_ROWS = (
    # uvicorn, which most engines run
    Row("server_process", "Started server process ["),
    Row("application_ready", "Application startup complete.", _READY, mark="ready"),
    Row("port_open", "Uvicorn running on "),
    Row("stopped", "Application shutdown complete.", mark="over"),
    # the loader of shards that vLLM, SGLang and others have in common
    Row("loading", "shards: {*}% Completed | {done}/{total} [", _LOAD, mark="progress"),
    # Triton, around any backend; its own stamp is none of the engine's
    Row("triton_ready", "Started GRPCInferenceService at"),
)

COMMON_FAILURES = (
    Failure("CUDA out of memory", "oom", 4),
    Failure("CUDA error: out of memory", "oom", 4),
    Failure("cudaMalloc failed: out of memory", "oom", 4),
    Failure("HIP out of memory", "oom", 4),
    Failure("HIP error: out of memory", "oom", 4),
    Failure("XPU out of memory", "oom", 4),
    Failure("NPU out of memory", "oom", 4),
    Failure("OutOfMemoryError", "oom", 4),
    Failure("RESOURCE_EXHAUSTED: ", "oom", 4),
    Failure("can't allocate memory", "oom", 4),
    Failure("std::bad_alloc", "oom", 4),
    Failure("Out of memory: Killed process", "oom", 4),
    Failure("OOMKilled", "oom", 4),
    Failure("Segmentation fault", "crashed", 3),
    Failure("(core dumped)", "crashed", 3),
    Failure("Address already in use", "crashed", 3),
    Failure("address already in use", "crashed", 3),
    Failure("SafetensorError", "load_failed", 4),
    Failure("GatedRepoError", "load_failed", 4),
    Failure("RepositoryNotFoundError", "load_failed", 4),
    Failure("trying to access a gated repo", "load_failed", 4),
    Failure("is not a local folder and is not a valid model identifier", "load_failed", 4),
    Failure("No space left on device", "crashed", 3),
    Failure("CUDA runtime error: out of memory", "oom", 4),
    Failure("Cuda failure 2 'out of memory'", "oom", 4),
    Failure("CUBLAS_STATUS_ALLOC_FAILED", "oom", 4),
    Failure("Segfault encountered", "crashed", 3),
    Failure(" Killed  ", "crashed", 3),
    Failure("Killed{end}", "crashed", 3),
    Failure("Found no NVIDIA driver", "crashed", 3),
    Failure("Failed to infer device type", "crashed", 3),
    Failure("Invalid repository ID or local directory specified", "load_failed", 4),
    Failure("LocalEntryNotFoundError", "load_failed", 4),
    Failure("We couldn't connect to ", "load_failed", 4),
    Failure("does not recognize this architecture", "load_failed", 4),
    Failure("contains custom code which must be executed", "load_failed", 4),
    Failure(": error: unrecognized arguments", "crashed", 4),
    Failure(": error: argument ", "crashed", 4),
    Failure(": error: the following arguments are required", "crashed", 4),
    Failure("attempting to bind on address", "crashed", 7, even_when_ready=True),
    Failure("Traceback (most recent call last)", "crashed", 1),
    # the line of a traceback that tells the cause
    Failure("Error: ", "crashed", 0, names_cause=True),
    Failure("Exception: ", "crashed", 0, names_cause=True),
    Failure("Value error, ", "crashed", 0, names_cause=True),
    # lines of a traceback that tell the phase
    Failure(", in load_model", "load_failed", 0),
    Failure(", in load_weights", "load_failed", 0),
    Failure(", in get_model", "load_failed", 0),
    Failure(", in download_weights_from_hf", "load_failed", 0),
    Failure(", in determine_available_memory", "profiling_failed", 0),
    Failure(", in determine_num_available_blocks", "profiling_failed", 0),
    Failure(", in profile_run", "profiling_failed", 0),
    Failure(", in profile_max_num_token", "profiling_failed", 0),
    Failure(", in capture_model", "capture_failed", 0),
    Failure(", in init_device_graphs", "capture_failed", 0),
    Failure(", in init_cuda_graphs", "capture_failed", 0),
    Failure(", in cuda_graph_warmup", "capture_failed", 0),
)

# --- vLLM, on every platform --------------------------------------------------------------------------------------------

_VLLM = Engine(
    name="vllm",
    clock="vllm",
    loading_from_stamps=frozenset({"vllm-tpu"}),
    ready_events=frozenset({"application_ready"}),
    printed={
        "tokenizer_init_s": _TOKENIZER,
        "model_init_s": _INIT,
        "model_class_init_s": _INIT,
        "load_weights_s": _LOAD,
        "dynamo_s": _TRACE,
        "memory_profiling_s": _PROFILE,
        "graph_capture_s": _CAPTURE,
        "warmup_s": _CAPTURE,
        "precompile_s": _COMPILE,
    },
    rows=(
        Row("process_up", "Automatically detected platform {=platform}", mark="opens", versions="0.7-"),
        Row("process_up", "Available plugins for group vllm.", mark="opens"),
        Row("process_up", "No plugins for group vllm.", mark="opens"),
        Row("process_up", "Triton not installed or not compatible", mark="opens"),
        Row("process_up", "Triton is installed, but doesn't include", mark="opens"),
        Row("server_begun", "vLLM API server version {=engine_version}", versions="0.4.3-0.14", mark="begins"),
        Row("server_begun", "vLLM server version {=engine_version}, serving model {=model}", versions="0.16-", mark="begins"),
        Row("server_begun", "█  version {=engine_version}", versions="0.16-", mark="begins"),
        Row("server_begun", "vLLM gRPC server version {=engine_version}", versions="0.14-", mark="begins"),
        Row("server_begun", "starting vLLM server model={=model}", versions="0.22-, Rust front end", mark="begins"),
        Row("model_named", "█  model   {=model}", versions="0.16-"),
        Row("arguments", "non-default args: ", versions="0.9-", mark="settings"),
        Row("arguments", "args: Namespace(", versions="0.2-0.8", mark="settings"),
        Row("resolved", "Resolved architecture: ", versions="0.10.2-"),
        Row("resolved", "Using max model len {max_model_len}", versions="0.9.2-"),
        Row("resolved", "Chunked prefill is enabled with max_num_batched_tokens={max_num_batched_tokens}", versions="0.5.5-"),
        Row("resolved", "This model supports multiple tasks: "),
        Row("eager", "Enforce eager set, disabling torch.compile"),
        # the engine's own process
        Row("engine_process", "Started engine process with PID ", versions="0.5.5-0.10", generation="v0"),
        Row("engine_started", "Waiting for init message from front-end.", versions="0.9-", generation="v1"),
        Row("engine_started", "Initializing an LLM engine (v{=engine_version}) with config: ", _BOOT, "0.4.3-0.6", mark="settings"),
        Row("engine_started", "Initializing an LLM engine with config: ", _BOOT, "0.2-0.3", mark="settings", generation="v0"),
        Row("engine_started", "Initializing a V0 LLM engine (v{=engine_version}) with config: ", _BOOT, "0.7.3-0.10", mark="settings", generation="v0"),
        Row("engine_started", "Initializing a V1 LLM engine (v{=engine_version}) with config: ", _BOOT, "0.7.3-", mark="settings", generation="v1"),
        Row("tokenizer_ready", "Init Tokenizer took {tokenizer_init_s}", _TOKENIZER),
        Row("worker_up", "Worker ready; awaiting tasks", versions="0.4.3-0.10", generation="v0"),
        Row("worker_up", "DP group leader: node_rank=", versions="0.17-", generation="v1"),
        Row("ranks_assigned", "in world size {world_size} is assigned as DP rank {dp_rank}, PP rank {pp_rank}, {*}TP rank {tp_rank}", versions="0.8-"),
        Row("backend_chosen", " on V1 engine.", generation="v1"),
        Row("fallback", "Falling back to V0 Engine", generation="v0"),
        # weights
        Row("load_begun", "Starting to load model {=model}", _SPAWN, "0.5.5-"),
        Row("load_begun", "Loading model with MODEL_IMPL_TYPE=", _SPAWN, variant="vllm-tpu"),
        Row("checkpoint_found", "Checkpoint size: {checkpoint_gib}", versions="0.20-"),
        Row("downloaded", "Time spent downloading weights for {*}: {download_s}", versions="0.7.3-"),
        Row("modules_built", "Initializing model took {model_init_s}", _INIT, "0.32-"),
        Row("modules_built", "Initializing Model took {model_class_init_s}", _INIT),
        Row("weights_loaded", "Loading weights took {load_weights_s}", _LOAD, "0.8-"),
        Row("weights_loaded", "Loading dummy weights took {load_weights_s}", _LOAD, "tpu-inference 0.19-"),
        Row("weights_loaded", "Loading model weights took {load_weights_s} seconds", _LOAD, "vllm-ascend, rfork"),
        Row("weights_loaded", "Overall time to stream {*}: {load_weights_s}, ", _LOAD, "Run:ai streamer"),
        Row("weights_loaded", "Deserialized {*} in {load_weights_s}, ", _LOAD, "0.4.3-"),
        Row("drafter_load_begun", "Loading drafter model..."),
        Row("model_loaded", "Model loading took {weights_gib} memory and {model_loading_s}", _INIT, "0.11.2-"),
        Row("model_loaded", "Model loading took {weights_gib} and {model_loading_s}", _INIT, "0.8-0.27"),
        Row("model_loaded", "Loading model weights took {weights_gib}", _LOAD, "0.4.3-0.9; vllm-ascend"),
        Row("model_loaded", "Loading model weights took in total {weights_gib}", _LOAD, "0.5-0.9, Gaudi"),
        Row("model_loaded", "Init model | hbm=[({weights_gib}, ", _INIT, "tpu-inference 0.12-", variant="vllm-tpu"),
        # torch.compile
        Row("compile_begun", "Warming up model for the compilation...", versions="0.9.2-, CPU"),
        Row("graphs_stale", "Compiling model again due to a load failure", versions="0.16-"),
        Row("traced", "Dynamo bytecode transform time: {dynamo_s}", _TRACE, "0.6.6-"),
        Row("graph_to_cache", "Cache the graph ", versions="0.6.6-"),
        Row("graph_compiled", "Compiling a graph for {*} takes {compile_s}", _COMPILE, "0.6.6-"),
        Row("graphs_from_cache", "Directly load the compiled graph(s) for {*} from the cache, took {compiled_graph_load_s}", _COMPILE, "0.8.5-"),
        Row("graphs_from_cache", "Directly load the compiled graph for shape ", _COMPILE, "0.7.3-0.8.2"),
        Row("graphs_from_cache", "Directly load AOT compilation from path ", _COMPILE, "0.11.2-"),
        Row("graph_to_cache", "saved AOT compiled function to ", _COMPILE, "0.16-"),
        Row("compiled", "torch.compile takes {torch_compile_total_s} in total", _COMPILE, "0.6.6-0.17"),
        Row("compiled", "torch.compile took {torch_compile_total_s} in total", _COMPILE, "0.18-"),
        Row("compiled", "torch.compile and initial profiling/warmup run together took {compile_and_profiling_s} in total", _COMPILE, "0.18-"),
        Row("profiling_run_done", "Initial profiling/warmup run took {profiling_warmup_s}", _PROFILE, "0.18-"),
        Row("warmed_up", "Warming up done.", versions="0.9.2-, CPU"),
        # memory and the pool
        Row("encoder_profiling", "Encoder cache will be initialized with a budget of", versions="0.7.3-"),
        Row("pool_sized", "Memory profiling takes {memory_profiling_s}", _PROFILE, "0.6.6-0.10", generation="v0"),
        Row("pool_sized", "Memory profiling results: {*}kv_cache_size={kv_memory_gib}", _PROFILE, "0.6.4-0.6.5", generation="v0"),
        Row("pool_sized", "Memory profiling results: ", _PROFILE, "0.6.4-0.6.5", generation="v0"),
        Row("pool_sized", "Available KV cache memory: {available_kv_gib}", _PROFILE, "0.9.2-", generation="v1"),
        Row("pool_sized", "({kv_memory_gib}/{*}) GiB for KV cache on node", _PROFILE, "0.20-, CPU", generation="v1"),
        Row("pool_sized", "reserved {kv_memory_gib} memory for KV Cache as specified by", _PROFILE, "0.10.2-", generation="v1"),
        Row("pool_sized", "total_hbm_avail_gb={available_kv_gib}", _PROFILE, "tpu-inference", variant="vllm-tpu", generation="v1"),
        Row("pool_sized", "Available memory: {available_kv_gib}, total memory: ", _PROFILE, "0.7.3-0.11", variant="vllm-ascend", generation="v1"),
        Row("pool_sized", "VLLM_GRAPH_RESERVED_MEM={*}, {kv_memory_gib} reserved for KV cache", _PROFILE, "0.6-0.9, Gaudi"),
        Row("pool_part", "the rest of the memory reserved for KV Cache is {kv_memory_gib}", versions="0.6.6-0.10"),
        Row("graph_memory_estimated", "Estimated CUDA graph memory: {estimated_graph_gib}", _PROFILE, "0.18-"),
        Row("pool_laid_out", "KV cache size: {kv_cache_tokens} tokens", _POOL, "0.8-", generation="v1"),
        Row("pool_laid_out", " blocks: {num_gpu_blocks}, # CPU blocks: {num_cpu_blocks}", _POOL, "0.2-0.11", generation="v0"),
        Row("pool_laid_out", "# GPU blocks: {num_gpu_blocks}", _POOL, "0.6.6-0.7.3", generation="v1"),
        Row("concurrency", "Maximum concurrency for {*} tokens per request: {max_concurrency_x}x", versions="0.6.3-"),
        Row("blocks_counted", "num_gpu_blocks is: {num_gpu_blocks}", versions="0.9-"),
        Row("blocks_counted", "kv_cache_config.num_blocks={num_gpu_blocks}", variant="vllm-tpu"),
        Row("blocks_overridden", "Overriding num_gpu_blocks={overridden_blocks} with num_gpu_blocks_override={num_gpu_blocks}"),
        Row("pool_too_small", "({kv_needed_gib} KV cache is needed", versions="0.7.3-"),
        Row("pool_too_small", "estimated maximum model length is {max_model_len_fit}", versions="0.8.5-"),
        # graphs and warm-up
        Row("capture_begun", "Capturing the model for CUDA graphs. ", versions="0.2-0.6"),
        Row("capture_begun", "Capturing cudagraphs for decoding. ", versions="0.6.6-0.10"),
        Row("capturing", "Capturing CUDA graph{*}| {done}/{total} [", _CAPTURE, mark="progress"),
        Row("graphs_captured", "Graph capturing finished in {graph_capture_s}, took {graph_capture_gib}", _CAPTURE, "0.6.6-"),
        Row("graphs_captured", "Graph capturing finished in {graph_capture_s}", _CAPTURE, "0.2-0.6.5"),
        Row("encoder_graphs_captured", "Encoder graph capturing finished in {encoder_graph_capture_s}", _CAPTURE, "0.31-"),
        Row("precompiled", "Compilation of {*} finished in {precompile_s}", _COMPILE, "tpu-inference 0.32-", variant="vllm-tpu"),
        Row("precompiled", "Compilation finished in {precompile_s}", _COMPILE, "tpu-inference 0.12-0.19", variant="vllm-tpu"),
        Row("graphs_captured", "Warmup finished in {warmup_s}", _CAPTURE, "0.6.6-0.9, Gaudi"),
        Row("kernels_warmed_up", "JIT kernel warmup finished in {jit_warmup_s}", versions="0.29-"),
        # the end
        Row("engine_up", "init engine (profile, create kv cache, warmup model) took {init_engine_s}", None, "0.6.6-", mark="up"),
        Row("engine_up", "initialize_engine took {initialize_engine_total_s}", None, mark="up"),
        Row("engine_up", "init_cache_engine took {*} of device memory", None, "0.6-, Gaudi", mark="up"),
        Row("engine_up", "Processed prompts: ", None, "offline", mark="up", is_weak=True),
        Row("engine_up", "Core engine process {*} ready.", None, "0.8.5"),
        Row("listening", "Starting vLLM API server", versions="0.7.3-0.17"),
        Row("listening", "Starting vLLM server on ", versions="0.18-"),
        Row("ready", "vLLM gRPC server started on ", _READY, "0.14-", mark="ready"),
        Row("ready", "OpenAI server is ready to accept requests", _READY, "0.22-, Rust front end", mark="ready"),
        Row("stopped", "[shutdown] API server: shutdown triggered", versions="0.23-", mark="over"),
        Row("stopped", "Shutting down FastAPI HTTP server.", versions="0.6-0.22", mark="over", is_weak=True),
        # flavours
        Row("flavour", "vllm_ascend", variant="vllm-ascend"),
        Row("flavour", "Platform plugin ascend is activated", variant="vllm-ascend"),
        Row("flavour", "tpu_inference", variant="vllm-tpu"),
        Row("flavour", "Enabling JAX compile cache", variant="vllm-tpu"),
        Row("flavour", "Init mesh | mesh=", variant="vllm-tpu"),
    ),
    milestones=(
        Milestone("engine_started", (_BOOT, _TOKENIZER), (_BOOT,)),
        Milestone("load_begun", (_SPAWN,), (_SPAWN,)),
        Milestone("model_loaded", (_LOAD, _INIT), (_LOAD, _INIT)),
        Milestone("compile_begun", (), (), optional=True),
        Milestone("warmed_up", (_TRACE, _COMPILE), (_COMPILE, _TRACE), less="profiling_warmup_s", optional=True),
        Milestone("pool_sized", (_TRACE, _COMPILE, _PROFILE), (_PROFILE,)),
        Milestone("pool_laid_out", (_POOL,), (_POOL,)),
        Milestone("graphs_captured", (_CAPTURE,)),
        Milestone("engine_up"),
        Milestone("ready", (_READY,), (_READY,)),
    ),
    failures=(
        Failure("Error in memory profiling", "profiling_failed", 6),
        Failure("No available memory for the cache blocks", "kv_cache_too_small", 6),
        Failure("is larger than the maximum number of tokens that can be stored in KV cache", "kv_cache_too_small", 6),
        Failure("larger than the available KV cache memory", "kv_cache_too_small", 6),
        Failure("Cannot auto-fit max_model_len", "kv_cache_too_small", 6),
        Failure("is less than desired GPU memory utilization", "oom", 5),
        Failure("is less than desired CPU memory utilization", "oom", 5),
        Failure("exceed the desired GPU memory utilization", "oom", 5),
        Failure("Cannot find any model weights", "load_failed", 5),
        Failure("No supported config format found", "load_failed", 5),
        Failure("Failed to load the model config", "load_failed", 5),
        Failure("are not supported for now. Supported architectures", "load_failed", 5),
        Failure("ACLgraph sizes capture fail", "capture_failed", 5),
        Failure("Timed out waiting for engine core processes to start", "crashed", 3),
        Failure("vllm serve: error: ", "crashed", 4),
        Failure("vllm: error: ", "crashed", 4),
        Failure("api_server.py: error: ", "crashed", 4),
        Failure("managed Python headless engine exited", "crashed", 2),
        Failure("process failed with error: ", "crashed", 2),
        Failure("EngineCore failed to start", "crashed", 2),
        Failure("Engine core initialization failed", "crashed", 2),
        Failure("EngineCoreProc failed to start", "crashed", 2),
        Failure("Engine process failed to start", "crashed", 2),
        Failure("EngineCore encountered a fatal error", "crashed", 2),
        Failure("WorkerProc hit an exception", "crashed", 2),
        Failure("WorkerProc failed to start", "crashed", 2),
        Failure("WorkerProc initialization failed", "crashed", 2),
        Failure("died unexpectedly", "crashed", 2),
        Failure("EngineDeadError", "crashed", 2),
    ),
)

# --- SGLang -------------------------------------------------------------------------------------------------------------

_SGLANG = Engine(
    name="sglang",
    clock="sglang",
    printed={"load_weights_s": _LOAD, "graph_capture_s": _CAPTURE, "dist_init_s": _SPAWN},
    rows=(
        Row("server_begun", "server_args=ServerArgs(", versions="0.3.6-0.5.16", mark="settings"),
        Row("server_begun", "server_args={", versions="0.5.20-", mark="settings"),
        Row("process_up", "Attention backend not specified.", mark="opens"),
        Row("template_chosen", "Using default HuggingFace chat template"),
        Row("spawn_begun", "Init torch distributed begin.", _BOOT),
        Row("spawned", "Init torch distributed ends. elapsed={dist_init_s}, ", _SPAWN, "0.5.9-"),
        Row("spawned", "Init torch distributed ends. mem usage=", _SPAWN, "0.4.3-0.5.6"),
        Row("load_begun", "Load weight begin. avail mem=", _SPAWN),
        Row("snapshot_found", "Found local HF snapshot for {=model} at "),
        Row("weights_loaded", "Load weight end. elapsed={load_weights_s}, type={*}mem usage={weights_gib}", _LOAD, "0.5.9-"),
        Row("weights_loaded", "Load weight end. type={*}mem usage={weights_gib}", _LOAD, "0.4.3-0.5.6"),
        Row("weights_loaded", "Load weight end. type=", _LOAD, "0.3.6-0.4.1"),
        Row("pool_laid_out", "KV Cache is allocated. {*}#tokens: {kv_cache_tokens}, K size: {k_gib}, V size: {v_gib}", _POOL, "0.4.3-"),
        Row("pool_laid_out", "KV Cache is allocated. {*}#tokens: {kv_cache_tokens}, KV size: {kv_memory_gib}", _POOL, "0.4.6-, MLA"),
        Row("pool_laid_out", "KV sizing: KV cache allocated. {*}#tokens: {kv_cache_tokens}, KV size: {kv_memory_gib}", _POOL, "0.5.20-"),
        Row("memory_pool_ready", "Memory pool end. avail mem=", _POOL),
        Row("capture_begun", "apture cuda graph begin."),
        Row("capture_begun", "apture npu graph begin."),
        Row("capture_begun", "apture cpu graph begin."),
        Row("capture_begun", "CUDA graph begin. backend="),
        Row("capturing", "Capturing batches{*}| {done}/{total} [", _CAPTURE, mark="progress"),
        Row("graphs_captured", "apture cuda graph end. Time elapsed: {graph_capture_s}{*}mem usage={graph_capture_gib}", _CAPTURE, "0.4.3-0.5.12"),
        Row("graphs_captured", "apture npu graph end. Time elapsed: {graph_capture_s}{*}mem usage={graph_capture_gib}", _CAPTURE, "0.5.2-0.5.12, Ascend"),
        Row("graphs_captured", "apture cpu graph end. Time elapsed: {graph_capture_s}{*}mem usage={graph_capture_gib}", _CAPTURE, "0.5.4-0.5.12, CPU"),
        Row("graphs_captured", "apture cuda graph end. Time elapsed: {graph_capture_s}", _CAPTURE, "0.4.1"),
        Row("graphs_captured", " graph end. elapsed={graph_capture_part_s}, mem usage={graph_capture_gib}", _CAPTURE, "0.5.16-0.5.20"),
        Row("graphs_captured", " graph end. bs={*}elapsed={graph_capture_part_s}, mem usage={graph_capture_gib}", _CAPTURE, "0.5.23-"),
        Row("draft_graphs_captured", "draft cuda graph end. Time elapsed: {draft_graph_capture_s}", _CAPTURE, "0.4.8-0.5.12"),
        Row("draft_graphs_captured", "draft extend cuda graph end. Time elapsed: {draft_graph_capture_s}", _CAPTURE, "0.4.8-0.5.12"),
        Row("piecewise_graphs_captured", "piecewise CUDA graph end. Time elapsed: {piecewise_graph_capture_s}", _CAPTURE, "0.5.6-0.5.12"),
        Row("no_graphs", "CUDA graph because ", is_weak=True),
        Row("limits", "max_total_num_tokens={kv_cache_tokens}, "),
        Row("autotuned", "FlashInfer autotune completed."),
        Row("engine_up", "max_running_requests=", mark="up", is_weak=True),
        Row("ready", "The server is fired up and ready to roll!", _READY, mark="ready"),
    ),
    milestones=(
        Milestone("spawn_begun", (_BOOT, _TOKENIZER), (_BOOT,)),
        Milestone("load_begun", (_SPAWN,), (_SPAWN,)),
        Milestone("weights_loaded", (_LOAD,), (_LOAD,)),
        Milestone("memory_pool_ready", (_POOL,), (_POOL,)),
        Milestone("graphs_captured", (_CAPTURE,), (), optional=True),
        Milestone("draft_graphs_captured", (), (), optional=True),
        Milestone("engine_up", (_CAPTURE,), (_CAPTURE,), needs="capture_begun", optional=True),
        Milestone("ready", (_READY,), (_READY,)),
    ),
    failures=(
        Failure("Not enough memory. Please try to increase --mem-fraction-static", "kv_cache_too_small", 6),
        Failure("apture cuda graph failed", "capture_failed", 3),
        Failure("apture npu graph failed", "capture_failed", 3),
        Failure("apture cpu graph failed", "capture_failed", 3),
        Failure("Fail when using backend: ", "capture_failed", 3),
        Failure("launch_server.py: error: ", "crashed", 4),
        Failure("Scheduler hit an exception", "crashed", 2),
        Failure("hit an exception: ", "crashed", 2),
        Failure("Received sigquit from a child process", "crashed", 2),
        Failure("SIGQUIT received", "crashed", 2),
        Failure("scheduler is dead. Please check if there are relevant logs", "crashed", 2),
        Failure("Initialization failed. ", "crashed", 2),
        Failure("The memory capacity is unbalanced", "oom", 5),
    ),
)

# --- Text Generation Inference ------------------------------------------------------------------------------------------

_TGI = Engine(
    name="tgi",
    clock="rust",
    printed={},
    rows=(
        Row("server_begun", "text_generation_launcher: Args {", versions="3-", mark="settings"),
        Row("server_begun", "Args { model_id: ", versions="0.9-1.4", mark="settings"),
        Row("arguments", 'model_id: "{=model}"'),
        Row("sharded", "Sharding model on {world_size} processes"),
        Row("attention_chosen", "Using attention ", is_weak=True),
        Row("download_begun", "Starting check and download process for {=model}"),
        Row("download_begun", "Starting download process."),
        Row("downloaded", "Successfully downloaded weights"),
        Row("shard_begun", "Starting shard rank={tp_rank}", _BOOT),
        Row("shard_begun", "Starting shard {tp_rank}", _BOOT),
        Row("shard_serving", "Server started at unix://"),
        Row("model_loaded", "Shard ready in {shard_ready_s}", _LOAD, "0.9-"),
        Row("model_loaded", "Shard {tp_rank} ready in {shard_ready_s}", _LOAD, "0.7-0.8"),
        Row("waiting", "Waiting for shard to be ready..."),
        Row("waiting", "Waiting for shard {tp_rank} to be ready..."),
        Row("webserver_begun", "Starting Webserver", _SPAWN, is_weak=True),
        Row("warmup_begun", "Warming up model", is_weak=True),
        Row("pool_laid_out", "KV-cache blocks: {num_gpu_blocks}, size: {block_tokens}", _POOL, "3-"),
        Row("limit_as_configured", "Model does not support automatic max batch total tokens"),
        Row("warmed_up", "Setting max batch total tokens to {max_num_batched_tokens}", _PROFILE),
        Row("engine_up", "Using backend V", mark="up"),
        Row("model_named", "of model {=model}"),
        Row("ready", "Connected{end}", _READY, mark="ready", is_weak=True),
        Row("flavour", "text_generation_launcher"),
        Row("flavour", "text_generation_router"),
    ),
    milestones=(
        Milestone("shard_begun", (_BOOT,), (_BOOT,)),
        Milestone("model_loaded", (_LOAD,), (_LOAD, _INIT, _SPAWN)),
        Milestone("warmup_begun"),
        Milestone("warmed_up", (_PROFILE, _POOL, _CAPTURE), (_PROFILE, _POOL, _CAPTURE)),
        Milestone("ready", (_READY,), (_READY, _TOKENIZER)),
    ),
    failures=(
        Failure("Not enough memory to handle {*} prefill tokens", "oom", 6),
        Failure("Not enough memory to handle ", "kv_cache_too_small", 6),
        Failure("Unable to warmup the Python model shards", "profiling_failed", 3),
        Failure("ShardCannotStart", "crashed", 2),
        Failure("Shard cannot start", "crashed", 2),
        Failure("Shard {*} failed to start", "crashed", 2),
        Failure("Shard complete standard error output", "crashed", 2),
        Failure("Shard process was signaled to shutdown with signal 9", "oom", 4),
        Failure("DownloadError", "load_failed", 4),
        Failure("Download encountered an error", "load_failed", 4),
        Failure("WebserverCannotStart", "crashed", 2),
        Failure("NotEnoughCUDADevices", "crashed", 3),
        Failure("ArgumentValidation(", "crashed", 3),
    ),
)

# --- llama.cpp ----------------------------------------------------------------------------------------------------------

_LLAMA_CPP = Engine(
    name="llama.cpp",
    clock="llama.cpp",
    clock_from_process_start=True,
    loading_from_stamps=frozenset({"llama.cpp"}),
    printed={},
    rows=(
        Row("server_begun", "common_params_print_info: ", mark="begins"),
        Row("server_begun", "build: {build} (", mark="begins", is_weak=True),
        Row("load_begun", "load_model: loading model '{=model}'", _BOOT),
        Row("load_begun", "main: loading model", _BOOT, is_weak=True),
        Row("load_begun", "loaded meta data with {*} tensors from {=model} (version", _BOOT),
        Row("weights_part", " model buffer size = {*}{model_buffer_gib}"),
        Row("weights_part", "llm_load_tensors: {*} buffer size = {*}{model_buffer_gib}", versions="b2000-b3900"),
        Row("pool_laid_out", "KV self size  = {*}{kv_memory_gib}, K ("),
        Row("pool_laid_out", ": size = {*}{kv_memory_gib} ({*}{kv_cache_tokens} cells, "),
        Row("model_loaded", "initializing, n_slots = ", _LOAD),
        Row("model_loaded", "initializing slots, n_slots = ", _LOAD),
        Row("engine_up", ": model loaded", _LOAD, mark="up", is_weak=True),
        Row("ready", "listening on http", _READY, mark="ready", is_weak=True),
        Row("ready", "llama server listening at http", _READY, "-b1700", mark="ready"),
        Row("ready", "all slots are idle", _READY, mark="ready"),
    ),
    milestones=(
        Milestone("load_begun", (_BOOT,), (_BOOT,)),
        Milestone("model_loaded", (_LOAD,), (_LOAD, _INIT, _POOL)),
        Milestone("ready", (_READY,), (_READY,)),
    ),
    failures=(
        Failure("failed to load model", "load_failed", 3),
        Failure("error loading model", "load_failed", 3),
        Failure("exiting due to model loading error", "load_failed", 3),
        Failure("failed to allocate buffer for kv cache", "kv_cache_too_small", 6),
        Failure("llama_kv_cache_init() failed for self-attention cache", "kv_cache_too_small", 6),
        Failure("failed to allocate compute buffers", "oom", 4),
        Failure("failed to allocate compute pp buffers", "oom", 4),
        Failure("couldn't bind HTTP server socket", "crashed", 3),
    ),
)

# --- TensorRT-LLM -------------------------------------------------------------------------------------------------------

_TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    clock="tensorrt-llm",
    ready_events=frozenset({"application_ready", "triton_ready"}),
    printed={"model_init_total_s": _LOAD},
    rows=(
        Row("server_begun", "TensorRT-LLM version: {=engine_version}", mark="opens"),
        Row("flavour", "[TensorRT-LLM]["),
        Row("flavour", "[TRT-LLM] ["),
        Row("weights_loaded", "Model init total -- {model_init_total_s}", _LOAD),
        Row("weights_loaded", "Engine load time {load_weights_s}", _LOAD),
        Row("engine_size", "Loaded engine size: {weights_gib}"),
        Row("pool_laid_out", "Allocated {kv_memory_gib} for max tokens in paged KV cache ({kv_cache_tokens})", _POOL),
        Row("pool_laid_out", "Max tokens in paged KV cache: {kv_cache_tokens}. Allocating {kv_memory_gib}", _POOL, "-0.10"),
        Row("pool_laid_out", "Using {kv_cache_tokens} total tokens in paged KV cache", _POOL, "-0.7"),
        Row("pool_laid_out", "Using {kv_cache_tokens} tokens in paged KV cache", _POOL, "-0.8"),
        Row("pool_allocated", "Allocate {kv_memory_gib} for k/v cache", versions="-0.7"),
        Row("blocks_counted", "Number of blocks in KV cache primary pool: {num_gpu_blocks}"),
        Row("captured", "Creating CUDA graph instances for ", _CAPTURE),
        Row("ready", "Engine loaded and ready to serve", _READY, mark="ready"),
    ),
    milestones=(
        Milestone("weights_loaded", (_LOAD,)),
        Milestone("pool_laid_out", (_POOL,)),
        Milestone("ready", (_READY,), (_READY,)),
    ),
    failures=(
        Failure("Failed to deserialize cuda engine", "load_failed", 4),
        Failure("engine plan file is not compatible", "load_failed", 4),
        Failure("Executor worker returned error", "crashed", 2),
        Failure("Failed to initialize executor", "crashed", 2),
        Failure("[TensorRT-LLM][ERROR] Assertion failed", "crashed", 2),
    ),
)

# --- LMDeploy -----------------------------------------------------------------------------------------------------------

_LMDEPLOY = Engine(
    name="lmdeploy",
    clock="lmdeploy",
    ready_events=frozenset({"application_ready"}),
    printed={"engine_warmup_s": _CAPTURE},
    rows=(
        Row("server_begun", "input backend=", mark="begins", is_weak=True),
        Row("arguments", "updated backend_config=", mark="settings"),
        Row("flavour", "[TM][INFO]"),
        Row("flavour", "[TM][WARNING]"),
        Row("flavour", " - lmdeploy - "),
        Row("spawned", "Build <{*}> executor.", _SPAWN),
        Row("load_begun", "Building Model.", _SPAWN, is_weak=True),
        Row("weights_loaded", "Updating configs.", _LOAD, is_weak=True),
        Row("pool_laid_out", "Building CacheEngine with config: ", _POOL),
        Row("blocks_counted", "num_gpu_blocks={num_gpu_blocks}", is_weak=True),
        Row("pool_laid_out", "[BlockManager] max_block_count = {num_gpu_blocks}", _POOL, "-0.9"),
        Row("warmup_begun", "Warming up model.", is_weak=True),
        Row("warmed_up", "Engine warmup completed in {engine_warmup_s}", _CAPTURE, "0.16-"),
        Row("warmed_up", "Warm-up finished in {engine_warmup_s}", _CAPTURE, "0.16-"),
        Row("warmed_up", "Tuning finished in {engine_warmup_s}", _CAPTURE, "-0.9"),
        Row("engine_up", "HINT:    Please open ", mark="up", is_weak=True),
    ),
    milestones=(
        Milestone("load_begun", (_BOOT, _SPAWN), (_BOOT, _SPAWN)),
        Milestone("weights_loaded", (_LOAD,), (_LOAD, _INIT)),
        Milestone("pool_laid_out", (_PROFILE, _POOL), (_PROFILE, _POOL)),
        Milestone("warmed_up", (_CAPTURE,), (_CAPTURE,)),
        Milestone("ready", (_READY,), (_READY,)),
    ),
    failures=(
        Failure("No enough gpu memory for kv cache", "kv_cache_too_small", 6),
        Failure("No enough gpu memory for state cache", "kv_cache_too_small", 6),
        Failure("No enough gpu memory for runtime", "oom", 5),
        Failure("[TM][FATAL]", "crashed", 3),
    ),
)

ENGINES: Mapping[str, Engine] = MappingProxyType(
    {engine.name: engine for engine in (_VLLM, _SGLANG, _TGI, _LLAMA_CPP, _TENSORRT_LLM, _LMDEPLOY)}
)
"""Name -> table. Flavours of vLLM (vllm-ascend, vllm-tpu) are rows of its table."""
