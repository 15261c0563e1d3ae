"""Reading a Hugging Face config: many spellings of one fact, checked as they are read.

A config.json is data of unknown origin. Every number that is taken from it passes through here: it must be there (or
have a default that the model's own class has), be a whole number or a flag, and lie within bounds no real model leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from startup_model.errors import MISSING, ConfigError

__all__ = ["ALIASES", "Fields"]

ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layers", "n_layer", "num_layers"),
    "hidden_size": ("d_model", "n_embd", "n_embed", "dim"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "block_ff_dim"),
    "num_attention_heads": ("n_heads", "n_head", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups", "n_kv_heads"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": (
        "n_positions",
        "max_seq_len",
        "max_sequence_length",
        "seq_length",
        "n_ctx",
        "model_max_length",
    ),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", "moe_top_k"),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "attention_bias": ("use_qkv_bias", "qkv_bias", "add_qkv_bias"),
    "mlp_bias": ("use_mlp_bias",),
    "torch_dtype": ("dtype",),
}
"""Canonical name of a fact -> other spellings found in config.json files."""

_LIMITS = {
    "num_hidden_layers": 10_000,
    "hidden_size": 10**6,
    "intermediate_size": 10**7,
    "moe_intermediate_size": 10**7,
    "num_attention_heads": 100_000,
    "num_key_value_heads": 100_000,
    "head_dim": 100_000,
    "vocab_size": 10**8,
    "num_experts": 100_000,
}
"""Largest value that is believed; anything above is a damaged or hostile file."""

_REMEDIES = {
    "num_hidden_layers": "give the number of decoder layers",
    "hidden_size": "give the width of the residual stream",
    "num_attention_heads": "give the number of attention heads",
    "vocab_size": "give the number of rows of the embedding",
    "intermediate_size": "give the width of the feed-forward part",
}


class Fields:
    """The facts of one config section, by canonical name.

    ``defaults`` are those of the model's own configuration class: a config.json leaves out what equals them.
    """

    def __init__(self, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, path: str = "") -> None:
        self.raw = raw
        self.defaults = defaults or {}
        self.path = path

    def get(self, name: str) -> Any:
        """The raw value under ``name`` or one of its other spellings, else the default, else None.

        An explicit null stands: it means "none of this", not "the default of the class".
        """
        spellings = [spelling for spelling in (name, *ALIASES.get(name, ())) if spelling in self.raw]
        if not spellings:
            return self.defaults.get(name)
        return next((self.raw[spelling] for spelling in spellings if self.raw[spelling] is not None), None)

    def label(self, name: str) -> str:
        """The spelling of ``name`` that the file uses, with the section it stands in: what a message should show."""
        spelling = next((s for s in (name, *ALIASES.get(name, ())) if self.raw.get(s) is not None), name)
        return f"{self.path}{spelling}"

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number within its limits; ``default`` where the file is silent.

        Raises ConfigError when it is missing without default, not a whole number, or out of bounds.
        """
        value = self.get(name)
        if value is None:
            value = default
        remedy = _REMEDIES.get(name, "check the config.json")
        if value is None:
            raise ConfigError(self.label(name), MISSING, "missing", remedy)
        whole = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value.is_integer())
        if isinstance(value, bool) or not whole:
            raise ConfigError(self.label(name), value, "it should be a whole number", remedy)
        limit = _LIMITS.get(name, 10**9)
        if not minimum <= value <= limit:
            raise ConfigError(self.label(name), value, f"it should lie between {minimum} and {limit}", remedy)
        return int(value)

    def optional(self, name: str, minimum: int = 1) -> int | None:
        """Like ``integer``, but None where neither the file nor the class gives a value."""
        return None if self.get(name) is None else self.integer(name, minimum=minimum)

    def flag(self, name: str, default: bool = False) -> bool:
        """A true-or-false field; ``default`` where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(self.label(name), value, "it should be true or false", "check the config.json")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A text field; ``default`` where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 500:
            raise ConfigError(self.label(name), value, "it should be a short text", "check the config.json")
        return value

    def integers(self, name: str, length: int) -> tuple[int, ...] | None:
        """A list of ``length`` whole numbers, or None where the file is silent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != length:
            found = f"{len(value)} entries" if isinstance(value, list | tuple) else type(value).__name__
            raise ConfigError(
                self.label(name),
                value,
                f"it should be a list of num_hidden_layers = {length} numbers, not {found}",
                "check it",
            )
        return tuple(Fields({name: item}, path=self.path).integer(name, minimum=0) for item in value)

    def indices(self, name: str) -> frozenset[int]:
        """A list of layer numbers, in any order; empty where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return frozenset()
        if not isinstance(value, list | tuple):
            raise ConfigError(self.label(name), value, "it should be a list of layer numbers", "check the config.json")
        return frozenset(Fields({name: item}, path=self.path).integer(name, minimum=0) for item in value)

    def ratio(self, name: str, default: float = 1.0) -> float:
        """A number above 0 and up to 1000; ``default`` where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1000:
            raise ConfigError(self.label(name), value, "it should be a number above 0", "check the config.json")
        return float(value)

    def kinds(self, name: str, length: int) -> tuple[str, ...] | None:
        """A list of ``length`` names of layer kinds, or None where the file is silent."""
        value = self.get(name)
        if value is None:
            return None
        if (
            not isinstance(value, list | tuple)
            or len(value) != length
            or not all(isinstance(item, str) for item in value)
        ):
            found = f"{len(value)} entries" if isinstance(value, list | tuple) else type(value).__name__
            raise ConfigError(
                self.label(name), value, f"it should name one kind for each of the {length} layers, not {found}",
                "make num_hidden_layers and the list agree",
            )  # fmt: skip
        return tuple(value)

    def section(self, name: str) -> Fields | None:
        """A nested section (``text_config``, ``vision_config``, ``attn_config``), or None when absent."""
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{self.path}{name}", value, "it should be a section (an object)", "check the config.json"
            )
        return Fields(value, path=f"{self.path}{name}.")
