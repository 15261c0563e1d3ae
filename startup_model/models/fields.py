"""Reading a Hugging Face config: many spellings of one fact, checked as they are read.

A config.json is data of unknown origin. Every number that is taken from it passes through here: it must be there (or
have a default that the model's own class has), be a whole number or a flag, and lie within bounds no real model leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from startup_model.errors import MISSING, ConfigError, out_of_range, wrong_type

# Canonical name of a fact -> other spellings found in config.json files.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layers", "n_layer", "num_layers"),
    "hidden_size": ("d_model", "n_embd", "n_embed", "dim"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "block_ff_dim"),
    "num_attention_heads": ("n_heads", "n_head", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups", "n_kv_heads"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_seq_len", "max_sequence_length", "seq_length", "n_ctx", "model_max_length"),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", "moe_top_k"),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "first_k_dense_replace": ("num_dense_layers",),
    "attention_bias": ("use_qkv_bias", "qkv_bias", "add_qkv_bias"),
    "mlp_bias": ("use_mlp_bias",),
    "tie_word_embeddings": ("tie_embedding",),
    "torch_dtype": ("dtype",),
}  # fmt: skip

_LIMITS = {  # largest value that is believed; anything above is a damaged or hostile file
    "num_hidden_layers": 10_000, "hidden_size": 10**6, "intermediate_size": 10**7, "moe_intermediate_size": 10**7, "num_attention_heads": 100_000,
    "num_key_value_heads": 100_000, "head_dim": 100_000, "vocab_size": 10**8, "num_experts": 100_000,
}  # fmt: skip
_CHECK = "check the config.json"
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

    def but(self, **changes: Any) -> Fields:
        """The same section with some facts changed."""
        return Fields({**self.raw, **changes}, self.defaults, self.path)

    def get(self, name: str) -> Any:
        """The raw value under ``name`` or one of its other spellings, else the default, else None.

        An explicit null stands: it means "none of this", not "the default of the class".
        """
        value = self.raw.get(name)
        if value is not None:
            return value
        others = ALIASES.get(name, ())
        if name not in self.raw and not any(other in self.raw for other in others):
            return self.defaults.get(name)
        return next((self.raw[other] for other in others if self.raw.get(other) is not None), None)

    def label(self, name: str) -> str:
        """The spelling of ``name`` that the file uses, with the section it stands in: what a message should show."""
        spelling = next((s for s in (name, *ALIASES.get(name, ())) if self.raw.get(s) is not None), name)
        return f"{self.path}{spelling}"

    def _wrong(self, name: str, expected: str, remedy: str = _CHECK) -> ConfigError:
        return wrong_type(self.label(name), self.get(name), expected, remedy)

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number within its limits; ``default`` where the file is silent.

        Raises ConfigError when it is missing without default, not a whole number, or out of bounds.
        """
        value = self.get(name)
        if value is None:
            value = default
        remedy = _REMEDIES.get(name, _CHECK)
        if value is None:
            raise ConfigError(self.label(name), MISSING, "missing", remedy)
        whole = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value.is_integer())
        if isinstance(value, bool) or not whole:
            raise wrong_type(self.label(name), value, "a whole number", remedy)
        limit = _LIMITS.get(name, 10**9)
        if not minimum <= value <= limit:
            raise out_of_range(self.label(name), value, f"between {minimum} and {limit}", remedy)
        return int(value)

    def optional(self, name: str, minimum: int = 1) -> int | None:
        """Like ``integer``, but None where neither the file nor the class gives a value."""
        return None if self.get(name) is None else self.integer(name, minimum=minimum)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """A true-or-false field; ``default``, else that of the class, where the file says nothing or null. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return bool(self.defaults.get(name) if default is None else default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A text field; ``default`` where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > 500:
            raise self._wrong(name, "a short text")
        return value

    def integers(self, name: str, length: int) -> tuple[int, ...] | None:
        """A list of ``length`` whole numbers, or None where the file is silent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != length:
            raise self._wrong(name, f"a list of num_hidden_layers = {length} numbers, not {_found(value)}", "check it")
        return tuple(self._item(name, item) for item in value)

    def indices(self, name: str) -> frozenset[int]:
        """A list of layer numbers, in any order; empty where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if not isinstance(value, list | tuple | None):
            raise self._wrong(name, "a list of layer numbers")
        return frozenset(self._item(name, item) for item in value or ())

    def _item(self, name: str, item: Any) -> int:
        return Fields({name: item}, path=self.path).integer(name, minimum=0)

    def ratio(self, name: str, default: float = 1.0) -> float:
        """A number above 0 and up to 1000; ``default`` where the file is silent. Raises ConfigError for anything else."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1000:
            raise self._wrong(name, "a number above 0")
        return float(value)

    def kinds(self, name: str, length: int) -> tuple[str, ...] | None:
        """A list of ``length`` names of layer kinds, or None where the file is silent."""
        value = self.get(name)
        if value is None:
            return None
        is_list = isinstance(value, list | tuple)
        if not is_list or len(value) != length or not all(isinstance(item, str) for item in value):
            expected = f"a list with one kind for each of the {length} layers, not {_found(value)}"
            raise self._wrong(name, expected, "make num_hidden_layers and the list agree")
        return tuple(value)

    def section(self, name: str) -> Fields | None:
        """A nested section (``text_config``, ``vision_config``, ``attn_config``), or None when absent."""
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise wrong_type(f"{self.path}{name}", value, "a section (an object)", _CHECK)
        return Fields(value, path=f"{self.path}{name}.")


def _found(value: Any) -> str:
    return f"{len(value)} entries" if isinstance(value, list | tuple) else type(value).__name__
