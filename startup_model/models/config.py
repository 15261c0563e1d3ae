"""The model: what a config.json says about it, in one shape for every family."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from startup_model.errors import ConfigError, InputFileError, StartupModelError, UnknownNameError, too_many
from startup_model.files import package_text, read_json_object
from startup_model.frozen import FrozenModel
from startup_model.models.fields import Fields
from startup_model.models.layers import Attention, Count, LatentAttention, LayerGroup, MixtureOfExperts, split
from startup_model.models.quantization import Quantization, read_quantization

if TYPE_CHECKING:
    from startup_model.models.parts import Family

_MAX_LAYERS = 10_000
_MAX_PARAMETERS = 10**15

DTYPES: Mapping[str, float] = {
    "float64": 8, "float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1,
}  # fmt: skip
"""Bytes of one number, by the name of its type in PyTorch."""


class ModelConfig(FrozenModel):
    """A model to be served: its layers by kind, widths, vocabulary, number formats and files.

    Build it with ``from_hf`` (a config.json, its folder, or its content as a dict), with ``from_catalogue`` (a name),
    or from explicit numbers under the names that config.json uses: ``ModelConfig(num_hidden_layers=32,
    hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336, vocab_size=128256)``.
    Raises ConfigError for a field that is missing, impossible or unknown.
    """

    name: str = "model"
    architecture: str = "generic decoder"
    """The model class, as ``architectures`` of a config.json names it."""
    hidden_size: Count
    vocab_size: Count
    layers: Annotated[tuple[LayerGroup, ...], Field(min_length=1, strict=False)]
    """Groups of equal layers; the order within the model is not kept."""
    tie_word_embeddings: bool = False
    embedding_width: Count | None = None
    """Width of the embedding where it differs from ``hidden_size``."""
    extra_parameters: dict[str, Annotated[int, Field(ge=0, le=10**15)]] = Field(default_factory=dict)
    """Parameters outside the layers by kind (final norm, learned positions, vision tower), embedding and head aside."""
    max_position_embeddings: Count = 2048
    """Longest sequence that the model was made for, in tokens."""
    dtype: str = "bfloat16"
    """Type of the unquantised weights in the checkpoint."""
    quantization: Quantization | None = None
    tokenizer_bytes: Annotated[int, Field(ge=0, le=10**10)] | None = None
    """Size of tokenizer.json in bytes; None: estimated from the vocabulary."""
    checkpoint_bytes: Annotated[int, Field(gt=0, le=10**16)] | None = None
    """Bytes of all tensors on disk, where a file says so; None: computed from the parameters."""
    checkpoint_files: Count | None = None
    """Files that hold the tensors; None: estimated from the bytes."""
    assumptions: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What had to be assumed in reading the config, in words."""

    @model_validator(mode="before")
    @classmethod
    def _accept_explicit_numbers(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "layers" in data:
            return data
        for name in data:
            if name not in cls.model_fields and name not in _FLAT_NAMES:
                known = UnknownNameError("field", str(name), {*_FLAT_NAMES, *cls.model_fields})
                raise ConfigError(str(name), data[name], "unknown field of ModelConfig", known.remedy)
        flat = {name: value for name, value in data.items() if name in _FLAT_NAMES}
        kept = {name: value for name, value in data.items() if name in cls.model_fields}
        return kept | _layers(Fields(flat, _generic().defaults), _generic())

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.dtype not in DTYPES:
            raise UnknownNameError("dtype", self.dtype, DTYPES)
        if self.num_hidden_layers > _MAX_LAYERS:
            raise too_many("num_hidden_layers", self.num_hidden_layers, _MAX_LAYERS, "check the config.json")
        if self.parameters > _MAX_PARAMETERS:
            raise too_many("parameters", self.parameters, _MAX_PARAMETERS, "check the sizes in the config.json")
        return self

    # --- builders ---

    @classmethod
    def from_hf(cls, source: str | Path | Mapping[str, Any], *, name: str | None = None) -> Self:
        """From a Hugging Face config.json: its path, the folder that holds it, or its content.

        A folder also gives what the config does not: the bytes of the checkpoint (safetensors headers, else index) and
        of the tokenizer. Nested ``text_config`` sections are followed. An unknown architecture is read as a generic
        decoder and named in ``assumptions``. Raises InputFileError for a file that is no config.json, ConfigError for a
        field that cannot be.
        """
        if isinstance(source, Mapping):
            return cls._from_mapping(source, name or str(source.get("_name_or_path") or "model"), {})
        from startup_model.models.checkpoint import MAX_CONFIG, measure_checkpoint, measure_tokenizer

        path = Path(source)
        folder = path if path.is_dir() else path.parent
        config = read_json_object(path / "config.json" if path.is_dir() else path, MAX_CONFIG, "a model's config.json")
        size, number, _ = measure_checkpoint(folder) or (None, None, None)
        found = {"checkpoint_bytes": size, "checkpoint_files": number, "tokenizer_bytes": measure_tokenizer(folder)}
        return cls._from_mapping(config, name or folder.resolve().name, found)

    @classmethod
    def from_hub(cls, repository: str, *, revision: str | None = None, endpoint: str | None = None) -> Self:
        """From a hub: its config.json and the headers of its files, never its weights; needs the extra ``hub``.

        Raises ConfigError when the extra is missing, InputFileError when the model cannot be read.
        """
        from startup_model.models.checkpoint import read_hub

        found = read_hub(repository, revision, endpoint)._asdict()
        return cls._from_mapping(found.pop("config"), repository, found)

    @classmethod
    def from_catalogue(cls, name: str) -> Self:
        """A model of the built-in catalogue by its id, letter case aside, or by an alias.

        Raises UnknownNameError with the nearest name when there is none.
        """
        model = _from_catalogue(name)
        return model if cls is ModelConfig else cls.model_validate(model.model_dump())  # type: ignore[return-value]

    @classmethod
    def _from_mapping(cls, config: Mapping[str, Any], name: str, found: Mapping[str, Any]) -> Self:
        # Families and towers are a third of what an import takes; a model of the catalogue needs neither.
        from startup_model.models.families import find_family
        from startup_model.models.vision import count_vision

        language = _language_section(config)
        model_type, architectures = Fields(language.raw).text("model_type"), config.get("architectures")
        architecture = str(architectures[0])[:200] if isinstance(architectures, list) and architectures else model_type
        family, assumptions = find_family(model_type), []
        if family is None:
            label = architecture or model_type or "no architecture named"
            assumptions.append(
                f"architecture {label!r} is not in the table of families: read as a Llama-like decoder; check "
                "parameters against the published total, or give explicit numbers"
            )
        family = family or _generic()
        fields = Fields(language.raw, family.defaults, language.path)
        data = _layers(fields, family)
        dtype = Fields(config).text("torch_dtype") or fields.text("torch_dtype")
        if not dtype:
            assumptions.append("the config names no dtype: bfloat16 assumed")
        vision = count_vision(config, fields.integer("hidden_size"))
        if vision.parameters:
            data["extra_parameters"]["vision"] = vision.parameters
        if not vision.exact:
            estimate = f"estimated at {vision.parameters / 1e9:.2f} billion parameters from vision_config"
            nothing = "not counted: vision_config names neither its layers nor its width"
            assumptions.append(f"the vision tower is {estimate if vision.parameters else nothing}")
        quantization = config.get("quantization_config") or language.raw.get("quantization_config")
        return cls(
            name=name[:200],
            architecture=architecture or "generic decoder",
            hidden_size=fields.integer("hidden_size"),
            vocab_size=fields.integer("vocab_size"),
            max_position_embeddings=fields.integer("max_position_embeddings", 2048),
            dtype=dtype.removeprefix("torch.") or "bfloat16",
            quantization=read_quantization(quantization) if quantization else None,
            assumptions=tuple(assumptions),
            **data,
            **{fact: value for fact, value in found.items() if value is not None},
        )

    # --- derived facts ---

    @cached_property
    def parameters_by_kind(self) -> Mapping[str, int]:
        """Parameters by kind: embedding, attention, state_space, mlp, experts, shared_experts, router, norms, head, vision."""
        return self.rank_parameters()

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, tied weights counted once."""
        return sum(self.parameters_by_kind.values())

    @cached_property
    def idle_expert_parameters(self) -> int:
        """Parameters of the experts that one token does not use."""
        idle = 0
        for group in self.layers:
            moe = group.feed_forward
            if isinstance(moe, MixtureOfExperts):
                experts = moe.parameters(self.hidden_size)["experts"]
                idle += group.count * (experts * (moe.num_experts - moe.num_experts_per_token) // moe.num_experts)
        return idle

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that the forward pass of one token reads: idle experts, vision tower and embedding look-up aside."""
        table = 0 if self.tie_word_embeddings else self.vocab_size * (self.embedding_width or self.hidden_size)
        looked_up = self.extra_parameters.get("embedding", 0) + self.extra_parameters.get("vision", 0)
        return self.parameters - self.idle_expert_parameters - table - looked_up

    def rank_parameters(self, tp: int = 1, ep: int = 1) -> Mapping[str, int]:
        """Parameters by kind on one of ``tp`` tensor-parallel and ``ep`` expert-parallel ranks.

        The vocabulary is padded to a multiple of 64 and cut when ``tp`` > 1.
        """
        counts: Counter[str] = Counter(self.extra_parameters)
        for group in self.layers:
            for kind, number in group.parameters(self.hidden_size, tp, ep).items():
                counts[kind] += group.count * number
        rows = self.vocab_size if tp == 1 else split(split(self.vocab_size, 64) * 64, tp)
        counts["embedding"] += rows * (self.embedding_width or self.hidden_size)
        if not self.tie_word_embeddings:
            counts["head"] += rows * self.hidden_size
        return +counts

    @cached_property
    def structure(self) -> str:
        """Digest of what the model is made of, its name and files aside: equal for tunings of one base."""
        groups = sorted(group.model_dump_json() for group in self.layers)
        parts = (self.hidden_size, self.vocab_size, self.tie_word_embeddings, groups)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    @cached_property
    def num_hidden_layers(self) -> int:
        """Number of decoder layers of all kinds."""
        return sum(group.count for group in self.layers)

    @cached_property
    def layers_by_kind(self) -> Mapping[str, int]:
        """Number of layers by kind, for instance ``{"attention+dense": 32}``."""
        counts: Counter[str] = Counter()
        for group in self.layers:
            counts[group.kind] += group.count
        return counts

    @cached_property
    def attention(self) -> Attention | LatentAttention | None:
        """The attention of the largest group that has one; None for a model without attention."""
        mixers = [(g.count, g.mixer) for g in self.layers if isinstance(g.mixer, Attention | LatentAttention)]
        return max(mixers, key=lambda pair: pair[0])[1] if mixers else None

    @cached_property
    def moe(self) -> MixtureOfExperts | None:
        """The experts of the first group that has some; None for a dense model."""
        return next((g.feed_forward for g in self.layers if isinstance(g.feed_forward, MixtureOfExperts)), None)

    @property
    def intermediate_size(self) -> int | None:
        """Width of the dense feed-forward part, or of one expert where every layer has experts."""
        dense = (part for group in self.layers if (part := group.feed_forward) and part.kind == "dense")
        widest = next(dense, self.moe)
        return widest.intermediate_size if widest else None

    @property
    def num_attention_heads(self) -> int | None:
        """Query heads; None for a model without attention."""
        return self.attention.num_heads if self.attention else None

    @property
    def num_key_value_heads(self) -> int | None:
        """Key-value heads (1 where latent attention keeps one copy); None for a model without attention."""
        return self.attention.num_kv_heads if self.attention else None

    @property
    def head_dim(self) -> int | None:
        """Width of a query head; None for a model without attention."""
        return self.attention.head_dim if self.attention else None


# --- reading ------------------------------------------------------------------------------------------------------------

_FLAT_NAMES = frozenset([  # explicit numbers that a generic decoder understands
        "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings",
        "tie_word_embeddings", "attention_bias", "mlp_bias", "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
        "n_shared_experts", "shared_expert_intermediate_size", "first_k_dense_replace", "moe_layer_freq", "sliding_window",
])  # fmt: skip


def _generic() -> Family:
    from startup_model.models.families import GENERIC, find_family

    family = find_family(GENERIC)
    assert family is not None  # noqa: S101  it is in the table
    return family


def _layers(fields: Fields, family: Family) -> dict[str, Any]:
    from startup_model.models.families import build_layers

    fields.integer("num_hidden_layers")
    fields.integer("vocab_size")
    layers, extra, tied, width = build_layers(fields, family)
    return {"layers": layers, "tie_word_embeddings": tied, "extra_parameters": extra, "embedding_width": width}


def _language_section(config: Mapping[str, Any]) -> Fields:
    """The section that describes the language model: the top level, or a nested one of a multimodal config."""
    top = Fields(config)
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        section = top.section(name)
        if section is None or ("num_hidden_layers" in config and "num_hidden_layers" not in section.raw):
            continue
        if name == "thinker_config":
            return _language_section(section.raw)
        # A multimodal config may keep some facts of the language model outside its section.
        inherited = {key: config[key] for key in ("tie_word_embeddings", "torch_dtype", "dtype") if key in config}
        return Fields(inherited | dict(section.raw), path=section.path)
    return top


# --- catalogue ----------------------------------------------------------------------------------------------------------


_TUNINGS = ("-instruct", "-chat", "-it", "-base", "-pt", "-hf")  # how a model was tuned or packed, not how it is built


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, Mapping[str, Any]]:
    entries: Mapping[str, Mapping[str, Any]] = json.loads(package_text("data/models.json"))["models"]
    return entries


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Folded name or alias -> (id, entry)."""
    table = {
        alias.lower(): (alias if "/" in alias else identity, entry)
        for identity, entry in _entries().items()
        for alias in entry.get("aliases", ())
    }
    return table | {identity.lower(): (identity, entry) for identity, entry in _entries().items()}


def catalogue_names() -> tuple[str, ...]:
    """Ids of all models in the catalogue."""
    return tuple(_entries())


def _untuned(name: str) -> str:
    for ending in _TUNINGS:
        name = name.removesuffix(ending)
    return name


@lru_cache(maxsize=512)
def _from_catalogue(name: str) -> ModelConfig:
    table, key = _catalogue(), name.strip().lower()
    known = key in table
    if not known:  # the organisation may be left out, the tuning may differ
        organised = {full: full if "/" in key else full.rsplit("/", 1)[-1] for full in table}
        key = next((full for full, short in organised.items() if _untuned(short) == _untuned(key)), key)
    if key not in table:
        remedy = "Otherwise give its folder or config.json (no such file here), explicit numbers (num_hidden_layers, hidden_size, ...) or hub:ORG/NAME."
        aliases = [identity for identity, _ in table.values()]
        raise UnknownNameError("model", name, catalogue_names(), remedy, aliases=aliases)
    identity, entry = table[key]
    found = {fact: entry.get(fact) or None for fact in ("tokenizer_bytes", "checkpoint_bytes", "checkpoint_files")}
    try:
        return ModelConfig._from_mapping(entry["config"], identity if known else name.strip(), found)
    except StartupModelError as error:  # pragma: no cover - the catalogue is tested entry by entry
        raise InputFileError(f"catalogue entry {identity}: {error}") from error
