"""Formulas that print themselves: call a term with symbols instead of numbers and read off what it computes.

A term is plain arithmetic, so the text that ``explain()`` shows is made by running the term itself; there is no second
copy of a formula that could drift from the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

Values = float | FloatArray
"""A number, or an array of numbers that broadcasts with the others."""

_SUM, _PRODUCT, _ATOM = 1, 2, 3


class Expression:
    """A piece of a formula as text, with what is needed to set brackets right and the parts that were given a name."""

    __array_ufunc__ = None

    def __init__(self, text: str, rank: int = _ATOM, parts: Mapping[str, str] | None = None) -> None:
        self.text = text
        self.rank = rank
        self.parts: Mapping[str, str] = parts or {}

    def __str__(self) -> str:
        return self.text + "".join(f", {name} = {text}" for name, text in self.parts.items())

    def _bracketed(self, rank: int) -> str:
        return self.text if self.rank >= rank else f"({self.text})"

    def _joined(self, sign: str, other: Any, rank: int, least: int, least_right: int) -> Expression:
        right = _expression(other)
        text = f"{self._bracketed(least)} {sign} {right._bracketed(least_right)}"
        return Expression(text, rank, {**self.parts, **right.parts})

    def __add__(self, other: Any) -> Expression:
        return self._joined("+", other, _SUM, _SUM, _SUM)

    def __radd__(self, other: Any) -> Expression:
        return _expression(other) + self

    def __sub__(self, other: Any) -> Expression:
        return self._joined("-", other, _SUM, _SUM, _PRODUCT)

    def __rsub__(self, other: Any) -> Expression:
        return _expression(other) - self

    def __mul__(self, other: Any) -> Expression:
        return self._joined("×", other, _PRODUCT, _PRODUCT, _PRODUCT)

    def __rmul__(self, other: Any) -> Expression:
        return _expression(other) * self

    def __truediv__(self, other: Any) -> Expression:
        return self._joined("/", other, _PRODUCT, _PRODUCT, _ATOM)

    def __rtruediv__(self, other: Any) -> Expression:
        return _expression(other) / self

    def _called(self, name: str, other: Any) -> Expression:
        right = _expression(other)
        return Expression(f"{name}({self.text}, {right.text})", _ATOM, {**self.parts, **right.parts})


def _expression(value: Any) -> Expression:
    return value if isinstance(value, Expression) else Expression(f"{value:g}")


_Value = TypeVar("_Value")


def let(name: str, value: _Value) -> _Value:
    """``value`` itself; in a formula, a part that is shown by its name and written out behind it."""
    if isinstance(value, Expression):
        return Expression(name, _ATOM, {**value.parts, name: value.text})  # type: ignore[return-value]
    return value


@overload
def minimum(a: float, b: float) -> float: ...
@overload
def minimum(a: Values, b: Values) -> Values: ...
def minimum(a: Any, b: Any) -> Any:
    """The smaller of two values: numbers, arrays (element by element) or formulas."""
    if isinstance(a, Expression) or isinstance(b, Expression):
        return _expression(a)._called("min", b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.minimum(a, b)
    return min(b, a)


@overload
def maximum(a: float, b: float) -> float: ...
@overload
def maximum(a: Values, b: Values) -> Values: ...
def maximum(a: Any, b: Any) -> Any:
    """The larger of two values: numbers, arrays (element by element) or formulas."""
    if isinstance(a, Expression) or isinstance(b, Expression):
        return _expression(a)._called("max", b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.maximum(a, b)
    return max(b, a)
