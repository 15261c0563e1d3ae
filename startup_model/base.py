"""What every configuration and file model of the project shares: frozen, strict, and errors of one clear line."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from startup_model.errors import MISSING, ConfigError, StartupModelError, nearest_name, shown

__all__ = ["FrozenModel"]


class FrozenModel(BaseModel):
    """A frozen pydantic model: unknown fields are refused with the nearest known name, values are never coerced.

    Building one from bad input raises ConfigError with the first field that is wrong, its value and a remedy,
    whatever way it is built (keywords, ``model_validate``, a nested dict). Instances can be keys of a cache: the hash
    is computed once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _one_line(type(self), error) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Build from a dict (or an instance); raises ConfigError like the constructor."""
        if isinstance(obj, cls):
            return obj
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise _one_line(cls, error) from None

    def __hash__(self) -> int:
        cached = self.__dict__.get("_hash")
        if cached is None:
            cached = hash((type(self).__name__, self.model_dump_json()))
            self.__dict__["_hash"] = cached
        return int(cached)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, FrozenModel):
            return NotImplemented
        fields = type(self).model_fields
        return all(self.__dict__[name] == other.__dict__[name] for name in fields)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated like a new one.

        Raises ConfigError for an unknown field or a value that does not fit.
        """
        unknown = [name for name in changes if name not in type(self).model_fields]
        if unknown:
            raise _unknown_field(type(self), unknown[0], changes[unknown[0]])
        given = {name: self.__dict__[name] for name in self.model_fields_set}
        return type(self)(**(given | changes))


def _one_line(model: type[BaseModel], error: ValidationError) -> StartupModelError:
    """The first problem of a pydantic report as one line that names field, value and remedy."""
    report = error.errors(include_url=False)
    problem = report[0]
    path = ".".join(str(part) for part in problem["loc"]) or model.__name__
    more = f" (and {len(report) - 1} more)" if len(report) > 1 else ""
    kind = problem["type"]
    if kind == "extra_forbidden":
        return _unknown_field(model, path, problem["input"])
    if kind == "missing":
        return ConfigError(path, MISSING, f"{model.__name__} needs it and it is missing{more}", "give it")
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        prefix = ".".join(str(part) for part in problem["loc"])
        field = cause.field if not prefix or cause.field.startswith(prefix) else f"{prefix}.{cause.field}"
        return ConfigError(field, cause.value, cause.problem, cause.remedy)
    if isinstance(cause, StartupModelError):
        return ConfigError(path, MISSING, f"{cause}{more}")
    text = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    text = text[:1].lower() + text[1:] if text.startswith("It ") else text
    return ConfigError(path, problem["input"], f"{text}{more}")


def _unknown_field(model: type[BaseModel], path: str, value: object) -> ConfigError:
    name = path.rsplit(".", 1)[-1]
    owner = model
    for part in path.split(".")[:-1]:
        nested = owner.model_fields[part].annotation if part in owner.model_fields else None
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            owner = nested
    nearest = nearest_name(name, owner.model_fields)
    hint = f"did you mean {nearest!r}?" if nearest else f"the fields are {', '.join(owner.model_fields)}"
    return ConfigError(path, MISSING, f"unknown field of {owner.__name__} (value {shown(value)})", hint)
