"""What the operations on lists of tensors do to one tensor: `f(operands..., out=result)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = torch.Tensor
Function = Callable[..., Any]


def _reverse_power(x: Tensor, base: Any, *, out: Tensor) -> None:
    torch.pow(base, x, out=out)


def _copy(x: Tensor, *, out: Tensor) -> None:
    out.copy_(x)


def _lerp(x: Tensor, end: Tensor, weight: Any, *, out: Tensor) -> None:
    torch.lerp(x, end, weight, out=out)


def _addcmul(x: Tensor, a: Tensor, b: Tensor, value: Any, *, out: Tensor) -> None:
    torch.addcmul(x, a, b, value=value, out=out)


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Any, *, out: Tensor) -> None:
    torch.addcdiv(x, a, b, value=value, out=out)


UNARY: Mapping[str, Function] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Asin": torch.asin,
    "Atan": torch.atan,
    "Ceil": torch.ceil,
    "Copy": _copy,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Erfc": torch.erfc,
    "Exp": torch.exp,
    "Expm1": torch.expm1,
    "Floor": torch.floor,
    "Lgamma": torch.lgamma,
    "Log": torch.log,
    "Log10": torch.log10,
    "Log1p": torch.log1p,
    "Log2": torch.log2,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,
    "Rsqrt": torch.rsqrt,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
    "Trunc": torch.trunc,
    "Truncf": torch.trunc,
    "negate": torch.neg,
}

BINARY: Mapping[str, Function] = {
    "divides": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "minus": torch.sub,
    "multiplies": torch.mul,
    "plus": torch.add,
    "power_functor": torch.pow,
    "reverse_power_functor": _reverse_power,
}

WITH_SCALAR: Mapping[str, Function] = {
    **BINARY,
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
}

POINTWISE: Mapping[str, Function] = {"divides": _addcdiv, "multiplies": _addcmul}

TERNARY: Mapping[str, Function] = {"LerpFunctor": _lerp}

FLOATING_ONLY = frozenset({"divides", "power_functor", "reverse_power_functor", "Reciprocal"})
"""Operations that C++ and torch define differently for integers."""
