"""Changes to a start by dotted names: ``hardware.storage.cold_bandwidth``, ``engine.tp``, ``model``; for sweeps and what-if questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from startup_model.engines.config import EngineConfig
from startup_model.errors import ConfigError, StartupModelError, UnknownNameError, shown
from startup_model.frozen import FrozenModel
from startup_model.hardware import Cpu, HardwareConfig, Storage, storage_changes
from startup_model.models.config import ModelConfig
from startup_model.predictor import as_engine, as_hardware, as_model, as_profile
from startup_model.recipe import Start
from startup_model.units import format_bandwidth, format_bytes, format_seconds

PARTS = ("model", "hardware", "engine", "profile")
"""What a start is made of; each can be changed as a whole, the first three field by field as well."""

_READERS = {"model": as_model, "hardware": as_hardware, "engine": as_engine, "profile": as_profile}
_CONFIGS: Mapping[str, type[FrozenModel]] = {
    "model": ModelConfig,
    "hardware": HardwareConfig,
    "hardware.storage": Storage,
    "hardware.cpu": Cpu,
    "engine": EngineConfig,
}
_MOST_SHOWN = 20
"""Items of a value that its label names."""

TIER_BANDWIDTH = "hardware.storage.cold_bandwidth"
"""The bandwidth of whatever tier the checkpoint lies on."""


@lru_cache(maxsize=1)
def field_names() -> tuple[str, ...]:
    """Every name that can be changed: the parts, their fields, and the fields of storage and processor."""
    fields = (f"{prefix}.{field}" for prefix, config in _CONFIGS.items() for field in config.model_fields)
    return (*PARTS, *fields, TIER_BANDWIDTH)


def check_name(name: object, where: str) -> str:
    """The name when it can be changed. Raises ConfigError, or UnknownNameError with the nearest known name."""
    if not isinstance(name, str):
        raise ConfigError(where, name, "must be a dotted name", "such as 'hardware.storage.cold_bandwidth'")
    if name not in field_names():
        alone = [known for known in field_names() if known.rsplit(".", 1)[-1] == name.strip().lower()]
        if len(alone) == 1:
            raise ConfigError(where, name, "no such field", f"did you mean {alone[0]!r}?")
        raise UnknownNameError(where, name, field_names())
    return name


def apply_changes(start: Start, changes: Mapping[str, Any]) -> Start:
    """The start with the named fields changed: whole parts first, then storage and processor, then all fields of a part at once, so that their order does not matter.

    Each value is checked like a new one. Raises ConfigError and its kinds.
    """
    parts: dict[str, Any] = dict(zip(PARTS, start, strict=True))
    for name, value in changes.items():
        if check_name(name, "changes") in PARTS:
            parts[name] = _READERS[name](value)
    for part in PARTS:
        inner = {name.removeprefix(f"{part}."): value for name, value in changes.items() if name.startswith(f"{part}.")}
        if inner:
            parts[part] = _replaced(parts[part], part, inner)
    return Start(**parts)


def changed_start(start: Start, changes: Mapping[str, Any]) -> Start:
    """``apply_changes``, and a node that does not say how many accelerators it has has as many as the engine needs."""
    changed = apply_changes(start, changes)
    return changed._replace(hardware=with_accelerators(changed.hardware, changed.engine))


def with_accelerators(node: HardwareConfig, engine: EngineConfig) -> HardwareConfig:
    """The node with as many accelerators as the engine's ranks need, where nobody said how many it has: a preset names the accelerator only."""
    needed = -(-engine.tp * engine.pp * engine.dp // node.nodes)
    said = "gpus" in node.model_fields_set or node.is_cpu_only
    return node if said or needed <= node.gpus else node.replace(gpus=needed)


def _replaced(config: Any, prefix: str, changes: Mapping[str, Any]) -> Any:
    """A configuration with fields changed, those of its inner ones first. Raises ConfigError that names the whole path."""
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        if "." not in name:
            is_text = f"{prefix}.{name}" == "hardware.storage" and isinstance(value, str)
            fields[name] = config.storage.replace(**storage_changes(value, f"{prefix}.{name}")) if is_text else value
    if prefix == "hardware.storage" and "cold_bandwidth" in fields:
        tier = fields.get("tier", config.tier)
        if tier in fields:
            problem = f"it sets the same number as {prefix}.{tier}"
            raise ConfigError(TIER_BANDWIDTH, fields["cold_bandwidth"], problem, "drop one of them")
        fields[tier] = fields.pop("cold_bandwidth")
    for head in dict.fromkeys(name.partition(".")[0] for name in changes if "." in name):
        inner = {name.partition(".")[2]: value for name, value in changes.items() if name.startswith(f"{head}.")}
        now = fields.get(head, getattr(config, head))
        if isinstance(now, Mapping):
            now = _CONFIGS[f"{prefix}.{head}"].model_validate(now)
        fields[head] = _replaced(now, f"{prefix}.{head}", inner)
    try:
        return config.replace(**fields)
    except ConfigError as error:
        field = error.field if error.field.startswith(f"{prefix}.") else f"{prefix}.{error.field}"
        raise ConfigError(field, error.value, error.problem, error.remedy) from None
    except StartupModelError as error:
        name, value = next(iter(fields.items()))
        raise ConfigError(f"{prefix}.{name}", value, str(error)) from None


_SHOWN: Mapping[str, Callable[[float], str]] = {
    **dict.fromkeys(("page_cache", "cold_bandwidth", "local_nvme", "network_disk", "object_store"), format_bandwidth),
    **dict.fromkeys(("host_memory", "image_bytes", "gpu_memory", "checkpoint_bytes", "tokenizer_bytes"), format_bytes),
    **dict.fromkeys(("provision_s", "container_start_s"), format_seconds),
}


def shown_number(name: str, value: Any) -> str:
    """The value of a field for people, numbers with their unit."""
    leaf = name.rsplit(".", 1)[-1]
    number = isinstance(value, float) and not isinstance(value, bool)
    formatted = format_bandwidth if leaf.endswith("bandwidth") else _SHOWN.get(leaf, "{:.4g}".format)
    return formatted(value) if number else str(value)


def label_of(value: Any, depth: int = 3) -> Any:
    """What stands for a value in tables and axes: itself when it is a text, a number or nothing, else its name."""
    if value is None or isinstance(value, str | int | float):
        return value
    if depth == 0:
        return shown(value)
    if isinstance(value, Storage):
        rate = value.cold_bandwidth
        return f"{value.tier}={format_bandwidth(rate)}" if rate else value.tier
    if isinstance(value, Mapping):
        name = value.get("name")
        pairs = (f"{key}={label_of(item, depth - 1)}" for key, item in islice(value.items(), _MOST_SHOWN))
        return name if isinstance(name, str) else ", ".join(pairs)
    if isinstance(value, EngineConfig):
        changed = {key: getattr(value, key) for key in sorted(value.model_fields_set) if key != "unused_flags"}
        return label_of(changed, depth - 1) if changed else value.engine
    if isinstance(value, list | tuple):
        return " ".join(str(label_of(item, depth - 1)) for item in value[:_MOST_SHOWN])
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else shown(value)
