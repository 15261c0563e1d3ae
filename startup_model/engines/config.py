"""The engine: which one, which version, which flags; and what its version makes of the flags that were not given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from startup_model.engines import DEFAULT_ENGINE, all_engines, find
from startup_model.engines.engine import CaptureCount, LoadFormat, Resolved
from startup_model.engines.graphs import NO_CAPTURES, CaptureRequest, count_captures
from startup_model.errors import ConfigError, UnknownNameError
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.models.config import DTYPES, ModelConfig
from startup_model.models.layers import Attention, LatentAttention
from startup_model.units import GIB, Bytes
from startup_model.versions import Version, at_version, parse_version

Degree = Annotated[int, Field(ge=1, le=100_000)]

DEFAULT_VERSIONS: Mapping[str, str] = {"vllm": "0.10.1.1", "sglang": "0.5.4"}
"""Version that is assumed where none is given."""

FIRST_V1: Version = (0, 8)
"""First vLLM release whose default engine core is V1."""
LAST_V0: Version = (0, 10, 99)
"""Last vLLM release that still has the V0 core."""


LOAD_FORMATS: Mapping[str, LoadFormat] = {
    "auto": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "safetensors": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "pt": LoadFormat(reads_weights=True, overlap=0.0, passes=2.0),
    "npcache": LoadFormat(reads_weights=True, overlap=0.0, passes=2.0),
    "dummy": LoadFormat(reads_weights=False, overlap=0.0, passes=1.0),
    "tensorizer": LoadFormat(reads_weights=True, overlap=1.0, passes=1.0),
    "bitsandbytes": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "runai_streamer": LoadFormat(reads_weights=True, overlap=1.0, passes=1.0),
    "runai_streamer_sharded": LoadFormat(reads_weights=True, overlap=1.0, passes=1.0),
    "fastsafetensors": LoadFormat(reads_weights=True, overlap=1.0, passes=1.0),
    "sharded_state": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "instanttensor": LoadFormat(reads_weights=True, overlap=1.0, passes=1.0),
    "gguf": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "mistral": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "hf": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
    "layered": LoadFormat(reads_weights=True, overlap=0.0, passes=1.0),
}
"""``load_format`` -> how it reads. Default loaders map files and copy tensor by tensor; streamers read while they
copy."""

_KV_DTYPES: Mapping[str, float] = {**DTYPES, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "fp8_ds_mla": 1}


QUANTIZATION_METHODS = frozenset(
    [
        "aqlm",
        "auto-round",
        "awq",
        "awq_marlin",
        "bitblas",
        "bitsandbytes",
        "blockwise_int8",
        "compressed-tensors",
        "cpu_awq",
        "cpu_gptq",
        "deepspeedfp",
        "experts_int8",
        "fbgemm_fp8",
        "fp8",
        "fp8_e4m3",
        "fp_quant",
        "fpgemm",
        "gguf",
        "gptq",
        "gptq_bitblas",
        "gptq_marlin",
        "gptq_marlin_24",
        "hqq",
        "inc",
        "int8",
        "ipex",
        "ipex_quant",
        "marlin",
        "modelopt",
        "modelopt_fp4",
        "modelopt_fp8",
        "modelopt_mixed",
        "modelopt_mxfp8",
        "moe_wna16",
        "mxfp4",
        "mxfp8",
        "neuron_quant",
        "nvfp4",
        "online",
        "petit_nvfp4",
        "ptpc_fp8",
        "qoq",
        "quark",
        "qqq",
        "quip",
        "rtn",
        "squeezellm",
        "sscha",
        "torchao",
        "tpu_int8",
        "turboquant",
        "w4afp8",
        "w8a8_fp8",
        "w8a8_int8",
        "ascend",
    ]
)
"""Methods that vLLM 0.3-0.33 and SGLang 0.4-0.5 accept for ``--quantization``."""


def _method(name: str) -> str:
    """A method without the name of the kernel that runs it."""
    return name.removesuffix("_marlin").removesuffix("-marlin") if name not in ("gptq_marlin_24", "marlin") else name


class EngineConfig(FrozenModel):
    """An engine with its flags. None means: what the engine's version does by itself, given model and hardware.

    Raises ConfigError for values that cannot be; ``from_command`` reads a pasted command line.
    """

    engine: Annotated[str, Field(max_length=100)] = DEFAULT_ENGINE
    """Name of an engine of the registry, see ``startup_model.engines``."""
    version: str | None = None
    """Release, such as ``"0.10.1.1"``; None: that of the profile in use."""
    generation: Annotated[str, Field(max_length=100)] | None = None
    """Core of vLLM (``VLLM_USE_V1``); None: by version."""
    model: str | None = None
    """Model that a command line serves."""
    tp: Degree = 1
    pp: Degree = 1
    dp: Degree = 1
    expert_parallel: bool = False
    """Experts are spread over all ranks instead of being cut."""
    dtype: str = "auto"
    quantization: str | None = None
    """Method given to the engine; None: that of the checkpoint."""
    kv_cache_dtype: str = "auto"
    load_format: str = "auto"
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    max_model_len: Annotated[int, Field(ge=1, le=10**9)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None
    max_num_seqs: Annotated[int, Field(ge=1, le=10**7)] | None = None
    block_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    swap_space: Bytes | None = None
    """Bytes of host memory for swapped KV blocks, per GPU (V0)."""
    num_gpu_blocks_override: Annotated[int, Field(ge=1, le=10**10)] | None = None
    kv_cache_memory_bytes: Annotated[Bytes, Field(gt=0)] | None = None
    enforce_eager: bool = False
    capture_sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=10**6)], ...], Field(strict=False, max_length=10_000)] | None
    ) = None
    """Batch sizes to capture graphs for; None: the version's list."""
    max_capture_size: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Largest batch size of the version's own list."""
    max_seq_len_to_capture: Annotated[int, Field(ge=1, le=10**9)] = 8192
    """Longest context that V0 graphs cover; it does not change their number."""
    cudagraph_mode: Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"] | None = None
    optimization_level: Annotated[int, Field(ge=0, le=3)] | None = None
    """``-O``: compilation level before vLLM 0.12, optimisation level from then on."""
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    torch_compile: bool | None = None
    """None: on for vLLM V1, off for V0 and SGLang; eager execution turns it off."""
    compile_cache: Literal["warm", "cold", "unknown"] = "unknown"
    """warm: compiled artefacts of an earlier start are loaded; cold: everything is compiled."""
    page_cache: Literal["hot", "cold", "unknown"] = "unknown"
    """hot: the checkpoint is in the page cache of the host; cold: it is read from storage."""
    lazy_experts: bool = False
    """Only the experts that one token uses are loaded before the server is ready."""
    offline: bool = False
    """The ``LLM`` class instead of the server: larger default batches."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables that stood in front of the command, secrets left out."""
    unused_flags: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Flags of the command line that do not enter the prediction."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        engine = find(self.engine)
        if not engine.is_predicted:
            known = ", ".join(sorted(other.name for other in all_engines().values() if other.is_predicted))
            raise ConfigError("engine", self.engine, "its starts are only read from logs", f"predicted are {known}")
        version = None if self.version is None else parse_version(self.version)
        if self.generation is not None and engine.cores:
            if self.generation not in engine.cores:
                raise UnknownNameError("generation", self.generation, engine.cores)
            if version is not None and version not in engine.cores[self.generation]:
                problem = f"{self.engine} {self.version} has no such core"
                raise ConfigError("generation", self.generation, problem, "leave it out")
        if self.load_format not in LOAD_FORMATS:
            raise UnknownNameError("load_format", self.load_format, LOAD_FORMATS)
        if self.quantization is not None and _method(self.quantization) not in QUANTIZATION_METHODS:
            raise UnknownNameError("quantization", self.quantization, QUANTIZATION_METHODS)
        if self.dtype != "auto" and self.dtype not in DTYPES:
            raise UnknownNameError("dtype", self.dtype, [*DTYPES, "auto"])
        if self.kv_cache_dtype != "auto" and self.kv_cache_dtype not in _KV_DTYPES:
            raise UnknownNameError("kv_cache_dtype", self.kv_cache_dtype, [*_KV_DTYPES, "auto"])
        return self

    @classmethod
    def from_command(cls, command: str) -> Self:
        """From a pasted command line: ``vllm serve MODEL -tp 2 ...``, ``python -m vllm.entrypoints.openai.api_server
        ...``, ``python -m sglang.launch_server ...``, environment variables in front and line continuations included.

        Both spellings of a flag are read (``--max-model-len``, ``--max_model_len``), values after ``=`` or a space.
        Flags that the prediction does not use are listed in ``unused_flags``. Raises ConfigError for a command that
        starts no known engine or a value that does not fit.
        """
        from startup_model.engines.command import read_command

        return cls(**read_command(command))

    def to_command(self) -> str:
        """The command line that says the same, variables in front: ``from_command`` reads this configuration off it.

        ``version`` is not written, it chooses the spelling of flags that were renamed (None: the newest one). A field that says what the engine does by itself needs no
        flag, and is None when it is read again; variables that ``environment`` names are written, and those that set a field are added. Raises ConfigError
        for what no command line says: states (page_cache, a warm compile_cache), lazy_experts, offline, flags whose values were not kept, a flag that this engine or
        version does not have.
        """
        from startup_model.engines.command_writer import write_command

        fields = type(self).model_fields
        given = {name: getattr(self, name) for name in fields}
        defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        return write_command(self.engine, {name: value for name, value in given.items() if value != defaults[name]})

    def resolve(
        self, model: ModelConfig, hardware: HardwareConfig, default_version: str | None = None
    ) -> ResolvedEngine:
        """Every flag with a value: the one given, else what this version derives for this model on this node.

        Raises ConfigError when the parallel degrees do not fit the model or the node.
        """
        text = self.version or default_version or DEFAULT_VERSIONS[self.engine]
        version = parse_version(text)
        generation = self._generation(version, hardware)
        _check_degrees(self, model, hardware)
        if self.kv_cache_memory_bytes is not None and self.kv_cache_memory_bytes > hardware.gpu_memory:
            remedy = f"it should be below gpu_memory = {hardware.gpu_memory:.0f}"
            raise ConfigError("kv_cache_memory_bytes", self.kv_cache_memory_bytes, "more than the device has", remedy)
        request = _Request(self, model, hardware, generation, version)
        max_model_len = self.max_model_len or model.max_position_embeddings
        chunked = (
            _default_chunked_prefill(request, max_model_len) if self.chunked_prefill is None else self.chunked_prefill
        )
        tokens = self.max_num_batched_tokens or _default_batched_tokens(request, max_model_len, chunked=chunked)
        seqs = self.max_num_seqs or _default_max_num_seqs(request)
        if generation == "v1" and version >= (0, 10, 1):  # a defaulted value never exceeds what the other one allows
            tokens = (
                tokens if self.max_num_batched_tokens or version < (0, 11, 1) else min(seqs * max_model_len, tokens)
            )
            seqs = seqs if self.max_num_seqs else min(seqs, tokens)
        compiles, mode = self._compilation(generation, version)
        captures = NO_CAPTURES
        if not self.enforce_eager and not hardware.is_cpu_only:
            captures = count_captures(
                CaptureRequest(
                    engine=self.engine,
                    generation=generation,
                    version=version,
                    max_num_seqs=seqs,
                    max_num_batched_tokens=tokens,
                    tp=self.tp,
                    pp=self.pp,
                    gpu_memory=hardware.gpu_memory,
                    compute_capability=hardware.compute_capability,
                    capture_sizes=self.capture_sizes,
                    max_capture_size=self.max_capture_size,
                    mode=mode,
                )
            )
        dtype = (
            self.dtype if self.dtype != "auto" else "float16" if model.dtype in ("float32", "float") else model.dtype
        )
        return ResolvedEngine(
            engine=self.engine,
            version=version,
            version_text=text,
            generation=generation,
            dtype_bytes=DTYPES[dtype],
            kv_cache_dtype_bytes=DTYPES[dtype] if self.kv_cache_dtype == "auto" else _KV_DTYPES[self.kv_cache_dtype],
            gpu_memory_utilization=self.gpu_memory_utilization or _default_utilization(request),
            max_model_len=max_model_len,
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            block_size=self.block_size or _default_block_size(request),
            swap_space=(4 * GIB if self.swap_space is None else self.swap_space) if generation == "v0" else 0.0,
            compiles=compiles,
            captures=captures,
            estimate_captures=_estimate_captures(generation, version, captures),
            load_format=LOAD_FORMATS[self.load_format],
        )

    @property
    def packing(self) -> str | None:
        """The quantisation method that flags ask for: the one given, or the one that the load format implies."""
        return (
            _method(self.quantization)
            if self.quantization
            else "bitsandbytes"
            if self.load_format == "bitsandbytes"
            else None
        )

    def _generation(self, version: Version, hardware: HardwareConfig) -> str:
        """Core that runs: V1 from 0.8 on, but V0 on GPUs below compute capability 8.0 as long as it existed."""
        if self.engine == "sglang":
            return "sglang"
        if self.generation is not None:
            return self.generation
        capability = hardware.compute_capability
        old_gpu = capability is not None and parse_version(capability) < (8,)
        return "v1" if version >= FIRST_V1 and not (old_gpu and version <= LAST_V0) else "v0"

    def _compilation(self, generation: str, version: Version) -> tuple[bool, str | None]:
        """Whether torch.compile runs, and the graph mode where flags or the optimisation level fix one."""
        compiles, mode = generation == "v1", self.cudagraph_mode
        level = self.optimization_level
        if level is not None and generation == "v0":
            compiles = level == 3
        elif level is not None and version >= (0, 12):
            compiles = level > 0
            mode = mode or ("none" if level == 0 else "piecewise" if level == 1 else None)
        elif level is not None and version >= (0, 10, 1):
            compiles = level > 0
            mode = mode or ("none" if level < 3 else None)
        # Before 0.10.1 the V1 core overwrites the level.
        if self.torch_compile is not None:
            compiles = self.torch_compile
        return compiles and not self.enforce_eager, mode


class _Request(NamedTuple):
    """What a default depends on."""

    config: EngineConfig
    model: ModelConfig
    hardware: HardwareConfig
    generation: str
    version: Version


ResolvedEngine = Resolved


# --- checks -------------------------------------------------------------------------------------------------------------


def _check_degrees(engine: EngineConfig, model: ModelConfig, hardware: HardwareConfig) -> None:
    """Refuse parallel degrees that the engine would refuse."""
    heads = model.num_attention_heads
    if heads is not None and heads % engine.tp:
        problem = "more ranks than attention heads" if engine.tp > heads else "it does not divide the attention heads"
        raise ConfigError("tp", engine.tp, f"{problem} of {model.name}, {heads}", f"choose a divisor of {heads}")
    if engine.pp > model.num_hidden_layers:
        raise ConfigError(
            "pp", engine.pp, f"more stages than layers of {model.name}, {model.num_hidden_layers}", "lower it"
        )
    ranks, devices = engine.tp * engine.pp * engine.dp, hardware.gpus * hardware.nodes
    if not hardware.is_cpu_only and ranks > devices:
        raise ConfigError(
            "tp x pp x dp",
            ranks,
            f"more ranks than accelerators, {hardware.nodes} node(s) x {hardware.gpus} of {hardware.name}",
            f"lower the degrees or give gpus={-(-ranks // hardware.nodes)}",
        )


def _estimate_captures(generation: str, version: Version, captures: CaptureCount) -> int:
    """Graphs that are captured once more to measure their memory: two of each mode from vLLM 0.18 on, the whole piecewise set and two full ones from 0.29 on."""
    if generation != "v1" or version < (0, 18) or captures.total == 0:
        return 0
    piecewise = captures.total - captures.full
    return min(2, captures.full) + (piecewise if version >= (0, 29) else min(2, piecewise))


# --- defaults by version ------------------------------------------------------------------------------------------------
# Read from the published source packages, vLLM 0.3.1 to 0.33.0: config, engine/arg_utils.py (_set_default_args*,
# get_batch_defaults), platforms/cpu.py; SGLang 0.4.6 to 0.5.23: srt/server_args.py.

_MEMORY_UTILIZATION: list[tuple[Version, float]] = [((0,), 0.90), ((0, 20), 0.92)]
_BIG_GPU = 70 * GIB
_HUGE_GPU = 160 * GIB


def _default_utilization(request: _Request) -> float:
    """gpu_memory_utilization of vLLM; for SGLang the share mem_fraction_static that its reserve leaves."""
    if request.generation != "sglang":
        return at_version(_MEMORY_UTILIZATION, request.version)
    chunk = _default_batched_tokens(request, 0, chunked=True)
    largest_batch = 256 if request.hardware.gpu_memory >= 60 * GIB else 32
    reserved_mib = 512 + 1.5 * max(chunk, 2048) + 2 * largest_batch + 128 * request.config.tp * request.config.pp
    if request.hardware.gpu_memory > 60 * GIB:
        reserved_mib = max(reserved_mib, 10240)
    return max(0.05, round(1 - reserved_mib * 2**20 / request.hardware.gpu_memory, 3))


def _default_block_size(request: _Request) -> int:
    """Tokens per KV block: 16; 64 under latent attention (FlashMLA) and 128 on data-centre Blackwell (CUTLASS); 1 for
    SGLang."""
    latent = isinstance(request.model.attention, LatentAttention)
    if request.hardware.is_cpu_only:
        return 128 if request.version >= (0, 13) else 16
    if latent and request.version >= (0, 8):
        return 128 if (request.hardware.compute_capability or "").startswith("10.") else 64
    return 1 if request.generation == "sglang" else 16


def _is_big_gpu(request: _Request) -> bool:
    """Whether the version counts the accelerator among the large ones, which get larger default batches."""
    gpu = request.hardware.gpu.lower()
    if request.version < (0, 8, 5):
        return "h100" in gpu or "h200" in gpu
    return request.hardware.gpu_memory >= _BIG_GPU and ("a100" not in gpu or request.version < (0, 9))


def _default_max_num_seqs(request: _Request) -> int:
    if request.generation != "v1":
        return 256
    if request.hardware.is_cpu_only:
        ranks = request.config.tp * request.config.pp if request.version >= (0, 10) else 1
        server = (128 if request.version >= (0, 10) else 32) * ranks
        return 2 * server if request.config.offline else server
    if request.version < (0, 8, 4):
        return 1024
    return 1024 if _is_big_gpu(request) else 256


def _default_batched_tokens(request: _Request, max_model_len: int, *, chunked: bool) -> int:
    version, memory = request.version, request.hardware.gpu_memory
    if request.generation == "sglang":
        rows = ((20 if version >= (0, 5, 16) else 35, 2048), (60, 4096), (160, 8192), (10**9, 16384))
        return next(tokens for below, tokens in rows if memory < below * GIB)
    if request.generation == "v0":
        return (2048 if version >= (0, 6, 5) else 512) if chunked else max(max_model_len, 2048)
    if request.hardware.is_cpu_only:
        server, offline = 2048, 4096
    elif version >= (0, 28) and memory >= _HUGE_GPU:
        server, offline = 16384, 16384
    else:
        server, offline = (8192, 16384) if _is_big_gpu(request) else (2048, 8192)
    tokens = offline if request.config.offline else server
    return tokens if chunked else max(max_model_len, tokens)


def _default_chunked_prefill(request: _Request, max_model_len: int) -> bool:
    """V1 always chunks; V0 from 0.5.3 on by itself for long contexts of models without a sliding window or latent
    attention."""
    if request.generation != "v0":
        return True
    attention = request.model.attention
    plain = isinstance(attention, Attention) and attention.window is None
    return request.version >= (0, 5, 3) and max_model_len > 32768 and plain and not request.hardware.is_cpu_only
