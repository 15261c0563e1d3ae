"""What every configuration and file model of the project shares: frozen, strict, and errors of one clear line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from startup_model.errors import MISSING, ConfigError, StartupModelError, nearest_name, one_line, shown

OTHER_NAMES: Mapping[str, str] = {
    "tensor_parallel": "tp", "tensor_parallel_size": "tp", "tp_size": "tp", "pipeline_parallel": "pp", "pipeline_parallel_size": "pp", "pp_size": "pp",
    "data_parallel": "dp", "data_parallel_size": "dp", "dp_size": "dp", "enable_expert_parallel": "expert_parallel", "eager": "enforce_eager",
    "quant": "quantization", "context_length": "max_model_len", "mem_fraction_static": "gpu_memory_utilization", "engine_version": "version",
    "enable_prefix_caching": "prefix_caching", "enable_chunked_prefill": "chunked_prefill", "cudagraph_capture_sizes": "capture_sizes",
    "max_cudagraph_capture_size": "max_capture_size", "gpu_count": "gpus", "num_gpus": "gpus", "gpu_name": "gpu", "vram": "gpu_memory",
    "hbm_bandwidth": "gpu_memory_bandwidth", "pcie_bandwidth": "host_to_device_bandwidth", "nvlink_bandwidth": "interconnect_bandwidth", "ram": "host_memory",
    "nvme": "local_nvme", "ssd": "local_nvme", "s3": "object_store", "cpu_cores": "cores",
}  # fmt: skip
"""What engines and people call a field, where that does not look like its name here -> the field."""


class FrozenModel(BaseModel):
    """A frozen pydantic model: unknown fields are refused with the nearest known name, values are never coerced.

    Building one from bad input raises ConfigError with the first field that is wrong, its value and a remedy,
    whatever way it is built (keywords, ``model_validate``, a nested dict). Instances can be keys of a cache: the hash
    is computed once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _one_line(type(self), error) from None

    # Nested dicts are then validated in place, with the whole path of what is wrong, instead of through __init__.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Build from a dict (or an instance); raises ConfigError like the constructor."""
        if isinstance(obj, cls):
            return obj
        if isinstance(obj, Mapping):
            obj = dict(obj)
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise _one_line(cls, error) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Build from JSON text; raises ConfigError like the constructor."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise _one_line(cls, error) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy; with ``update`` it is validated, as by ``replace``."""
        return self.replace(**update) if update else super().model_copy(deep=deep)

    if not TYPE_CHECKING:  # type checkers know the fields as read-only

        def __setattr__(self, name: str, value: object) -> NoReturn:
            raise ConfigError(
                f"{type(self).__name__}.{name}", value, "it cannot be assigned", "make a copy with replace(...)"
            )

        def __delattr__(self, name: str) -> NoReturn:
            raise ConfigError(f"{type(self).__name__}.{name}", MISSING, "it cannot be deleted")

    def __getstate__(self) -> dict[Any, Any]:
        """State without what is only valid in this process: texts hash differently in another one."""
        state = super().__getstate__()
        fields = type(self).model_fields
        return state | {"__dict__": {name: value for name, value in state["__dict__"].items() if name in fields}}

    def __hash__(self) -> int:
        cached = self.__dict__.get("_hash")
        if cached is None:
            values = (self.__dict__[name] for name in type(self).model_fields)
            cached = hash((type(self).__name__, *(_hashable(value) for value in values)))
            self.__dict__["_hash"] = cached
        return int(cached)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, FrozenModel):
            return NotImplemented
        fields = type(self).model_fields
        same = all(self.__dict__[name] == other.__dict__[name] for name in fields)
        return same and (self.model_extra or {}) == (other.model_extra or {})

    def replace(self, /, **changes: Any) -> Self:
        """A copy with some fields changed, validated like a new one.

        Raises ConfigError for an unknown field or a value that does not fit.
        """
        unknown = [name for name in changes if name not in type(self).model_fields]
        if unknown:
            raise _unknown_field(type(self), unknown[0], changes[unknown[0]])
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**(given | changes))


def _hashable(value: object) -> object:
    """``value`` such that equal values hash alike: the order of a dict does not count."""
    if isinstance(value, dict):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _one_line(model: type[BaseModel], error: ValidationError) -> StartupModelError:
    """The first problem of a pydantic report as one line that names field, value and remedy."""
    report = error.errors(include_url=False)
    problem = report[0]
    path = ".".join(str(part)[:100] for part in problem["loc"]) or model.__name__
    more = f" (and {len(report) - 1} more)" if len(report) > 1 else ""
    kind = problem["type"]
    if kind == "extra_forbidden":
        return _unknown_field(model, path, problem["input"])
    if kind == "missing":
        owner = next(_owners(model, path), model)
        return ConfigError(path, MISSING, f"{owner.__name__} needs it and it is missing{more}", "give it")
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        prefix = ".".join(str(part) for part in problem["loc"])
        field = cause.field if not prefix or cause.field.startswith(prefix) else f"{prefix}.{cause.field}"
        return ConfigError(field, cause.value, cause.problem, cause.remedy)
    if isinstance(cause, StartupModelError):
        return ConfigError(path, MISSING, f"{cause}{more}")
    text = problem["msg"].removeprefix("Value error, ").replace("Input should", "must").removeprefix("Should")
    if kind == "literal_error" and isinstance(problem["input"], str):
        known = problem["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        nearest = nearest_name(problem["input"], known)
        return ConfigError(path, problem["input"], f"{text}{more}", f"did you mean {nearest!r}?" if nearest else "")
    text = f"must{text}" if text.startswith(" ") else text[:1].lower() + text[1:]
    return ConfigError(path, problem["input"], f"{text}{more}")


def _unknown_field(model: type[BaseModel], path: str, value: object) -> ConfigError:
    """The error for a field that the model (or the part of it that ``path`` leads to) does not have."""
    name = path.rsplit(".", 1)[-1]
    owners = list(_owners(model, path))[:20] or [model]
    fields = dict.fromkeys(field for owner in owners for field in owner.model_fields)
    others = {other: field for other, field in OTHER_NAMES.items() if field in fields}
    nearest = others.get(name.lower().replace("-", "_")) or nearest_name(name, [*fields, *others])
    nearest = others.get(nearest, nearest) if nearest else None
    hint = f"did you mean {nearest!r}?" if nearest else f"the fields are {one_line(', '.join(fields), 300)}"
    return ConfigError(path, MISSING, f"unknown field of {owners[0].__name__} (value {shown(value)})", hint)


def _owners(model: type[BaseModel], path: str) -> Iterator[type[BaseModel]]:
    """The models that may hold the last part of ``path``: one, or several where a field is a union."""
    owners = [model]
    for part in path.split(".")[:-1]:
        inner = [found for owner in owners if part in owner.model_fields for found in _models_in(owner, part)]
        owners = inner or owners  # the place in a list, or the tag of a union: still in the same models
    yield from owners


def _models_in(owner: type[BaseModel], field: str) -> Iterator[type[BaseModel]]:
    """The models that the annotation of a field names, at any depth."""
    pending: list[Any] = [owner.model_fields[field].annotation]
    while pending:
        annotation = pending.pop(0)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        pending += get_args(annotation)
