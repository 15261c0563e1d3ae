"""The engine: which one, which version, which flags; and what its version makes of the flags that were not given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from startup_model.engines import DEFAULT_ENGINE, all_engines, find
from startup_model.engines.engine import ONLY_LOGS, LoadFormat, Resolved
from startup_model.errors import ConfigError, UnknownNameError, out_of_range
from startup_model.frozen import FrozenModel
from startup_model.hardware import HardwareConfig
from startup_model.models.config import DTYPES, ModelConfig
from startup_model.units import Bytes
from startup_model.versions import Version, parse_version

Degree = Annotated[int, Field(ge=1, le=100_000)]
_Name = Annotated[str, Field(max_length=100)]
_Size = Annotated[int, Field(ge=1, le=10**6)]

_MAPPED, _STREAMED, _PICKLED = LoadFormat(), LoadFormat(overlap=1.0), LoadFormat(passes=2.0)
LOAD_FORMATS: Mapping[str, LoadFormat] = {
    **dict.fromkeys(("auto", "safetensors", "bitsandbytes", "sharded_state", "gguf", "mistral", "hf", "layered"), _MAPPED),
    **dict.fromkeys(("tensorizer", "runai_streamer", "runai_streamer_sharded", "fastsafetensors", "instanttensor"), _STREAMED),
    **dict.fromkeys(("pt", "npcache"), _PICKLED),
    "dummy": LoadFormat(reads_weights=False),
}  # fmt: skip
"""``load_format`` -> how it reads. Default loaders map files and copy tensor by tensor; streamers read while they copy."""

_FP8 = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla")
_KV_DTYPES: Mapping[str, float] = {**DTYPES, **dict.fromkeys(_FP8, 1)}

# fmt: off
QUANTIZATION_METHODS = frozenset([
    "aqlm", "ascend", "auto-round", "awq", "awq_marlin", "bitblas", "bitsandbytes", "blockwise_int8", "compressed-tensors", "cpu_awq", "cpu_gptq",
    "deepspeedfp", "experts_int8", "fbgemm_fp8", "fp8", "fp8_e4m3", "fp_quant", "fpgemm", "gguf", "gptq", "gptq_bitblas", "gptq_marlin",
    "gptq_marlin_24", "hqq", "inc", "int8", "ipex", "ipex_quant", "marlin", "modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed",
    "modelopt_mxfp8", "moe_wna16", "mxfp4", "mxfp8", "neuron_quant", "nvfp4", "online", "petit_nvfp4", "ptpc_fp8", "qoq", "qqq", "quark", "quip",
    "rtn", "squeezellm", "sscha", "torchao", "tpu_int8", "turboquant", "w4afp8", "w8a8_fp8", "w8a8_int8",
])
# fmt: on
"""Methods that vLLM 0.3-0.33 and SGLang 0.4-0.5 accept for ``--quantization``."""


_KNOWN_NAMES: Mapping[str, Collection[str]] = {
    "load_format": LOAD_FORMATS,
    "quantization": QUANTIZATION_METHODS,
    "dtype": frozenset([*DTYPES, "auto"]),
    "kv_cache_dtype": frozenset([*_KV_DTYPES, "auto"]),
}


def _method(name: str) -> str:  # without the name of the kernel that runs it
    return name.removesuffix("_marlin").removesuffix("-marlin") if name not in ("gptq_marlin_24", "marlin") else name


class EngineConfig(FrozenModel):
    """An engine with its flags. None means: what the engine's version does by itself, given model and hardware.

    Raises ConfigError for values that cannot be; ``from_command`` reads a pasted command line.
    """

    engine: _Name = DEFAULT_ENGINE
    """Name of an engine of the registry, see ``startup_model.engines``."""
    version: str | None = None
    """Release, such as ``"0.10.1.1"``; None: that of the profile in use."""
    generation: _Name | None = None
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
    capture_sizes: Annotated[tuple[_Size, ...], Field(strict=False, max_length=10_000)] | None = None
    """Batch sizes to capture graphs for; None: the version's list."""
    max_capture_size: _Size | None = None
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
            raise ConfigError("engine", self.engine, ONLY_LOGS, f"known: {known}")
        version = None if self.version is None else parse_version(self.version)
        if self.generation is not None and engine.cores:
            if self.generation not in engine.cores:
                raise UnknownNameError("generation", self.generation, engine.cores)
            if version is not None and version not in engine.cores[self.generation]:
                problem = f"{self.engine} {self.version} has no such core"
                raise ConfigError("generation", self.generation, problem, "omit it")
        for field, names in _KNOWN_NAMES.items():
            value = getattr(self, field)
            if value is not None and (_method(value) if field == "quantization" else value) not in names:
                raise UnknownNameError(field, value, names)
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
        from startup_model.engines.command import write_command

        return write_command(self.engine, self.model_dump(exclude_defaults=True))

    def resolve(self, model: ModelConfig, hardware: HardwareConfig, default_version: str | None = None) -> Resolved:
        """Every flag with a value: the one given, else what this version derives for this model on this node.

        Raises ConfigError when the parallel degrees do not fit the model or the node.
        """
        engine = find(self.engine)
        text = self.version or default_version or str(engine.default_version)
        _check_degrees(self, model, hardware)
        if self.kv_cache_memory_bytes is not None and self.kv_cache_memory_bytes > hardware.gpu_memory:
            bound = f"at most gpu_memory = {hardware.gpu_memory:.0f}"
            raise out_of_range("kv_cache_memory_bytes", self.kv_cache_memory_bytes, bound)
        return engine.resolve(self, model, hardware, parse_version(text))._replace(version_text=text)

    def with_defaults(self, model: ModelConfig, version: Version, generation: str, **defaults: Any) -> Resolved:
        """What an engine's ``resolve`` gives: fields of Resolved, from flags where they say more than ``defaults``; types of model and cache."""
        half = "float16" if model.dtype in ("float32", "float") else model.dtype
        dtype_bytes = DTYPES[half if self.dtype == "auto" else self.dtype]
        given = {name: value for name in _NUMBERS if (value := getattr(self, name)) is not None}
        return Resolved(
            engine=self.engine,
            version=version,
            version_text=".".join(map(str, version)),
            generation=generation,
            dtype_bytes=dtype_bytes,
            kv_cache_dtype_bytes=dtype_bytes if self.kv_cache_dtype == "auto" else _KV_DTYPES[self.kv_cache_dtype],
            load_format=LOAD_FORMATS[self.load_format],
            **{"max_model_len": model.max_position_embeddings, **defaults, **given},
        )

    @property
    def packing(self) -> str | None:
        """The quantisation method that flags ask for: the one given, or the one that the load format implies."""
        method = self.quantization or (self.load_format if self.load_format == "bitsandbytes" else None)
        return method and _method(method)


_NUMBERS = ("gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "block_size")


def _check_degrees(engine: EngineConfig, model: ModelConfig, hardware: HardwareConfig) -> None:
    heads, layers = model.num_attention_heads, model.num_hidden_layers
    if heads is not None and heads % engine.tp:
        problem = "more ranks than attention heads" if engine.tp > heads else "must divide the attention heads"
        raise ConfigError("tp", engine.tp, f"{problem} of {model.name}, {heads}", f"choose a divisor of {heads}")
    if engine.pp > layers:
        raise ConfigError("pp", engine.pp, f"more stages than layers of {model.name}, {layers}", "lower it")
    ranks, devices = engine.tp * engine.pp * engine.dp, hardware.gpus * hardware.nodes
    if not hardware.is_cpu_only and ranks > devices:
        problem = f"more ranks than accelerators, {hardware.nodes} node(s) x {hardware.gpus} of {hardware.name}"
        remedy = f"lower the degrees or give gpus={-(-ranks // hardware.nodes)}"
        raise ConfigError("tp x pp x dp", ranks, problem, remedy)
