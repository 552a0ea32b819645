"""Reads a functor's type: which operation, of which input and result types, with which state."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import UnsupportedKernel
from .names import dtype, enclosing_function, lambda_numbers, lambda_parameters, template_arguments
from .operations import BY_NUMBER, OPERATIONS, OPMATH, Compute, Operation
from .structs import scalar

Reader = Callable[[bytes], tuple[Any, ...]]

_SUFFIX = re.compile(r"(_kernel)?(_cuda)?(_kernel)?$")
_HOST_POINTER = 8  # an extended lambda that captures also holds a pointer for the host


@dataclass(frozen=True, slots=True)
class Functor:
    """``compute(*inputs, *state)``; ``size`` is that of the functor in bytes, ``read`` its state."""

    compute: Compute
    inputs: tuple[torch.dtype, ...]
    result: torch.dtype
    read: Reader | None
    size: int
    alignment: int
    out: bool


def parse_functor(text: str) -> Functor:
    """Raises UnsupportedKernel for a functor that the tables do not know."""
    name = enclosing_function(text)
    if name in _WRAPPERS:
        return _WRAPPERS[name](text, name)
    operation = find_operation(text, name)
    inputs, kind = _types(text, name)
    result = operation.result
    if isinstance(result, int):
        result = inputs[result] if inputs else kind
    fields = _fields(operation.state, text, kind)
    return _functor(operation, inputs, result, fields, "{lambda(" in text)


def find_operation(text: str, name: str) -> Operation:
    """The operation of a class or of the function that a lambda lies in."""
    if name in BY_NUMBER:
        which, choices = BY_NUMBER[name]
        found = choices.get(lambda_numbers(text)[which])
    else:
        found = OPERATIONS.get(name) or OPERATIONS.get(_SUFFIX.sub("", name))
    if found is None:
        raise UnsupportedKernel(f"the operation {name} is not implemented")
    return found


#: How many inputs a class of functor takes; lambdas say it themselves.
_ARITY = {
    "FillFunctor": 0, "AbsFunctor": 1, "CUDAFunctor_add": 2, "CUDAFunctorOnSelf_add": 1,
    "CUDAFunctorOnOther_add": 1, "CompareFunctor": 2,
}  # fmt: skip


def _types(text: str, name: str) -> tuple[tuple[torch.dtype, ...], torch.dtype]:
    """The inputs' types and the type of scalars."""
    if "{lambda(" in text:
        inputs = tuple(dtype(t) for t in lambda_parameters(text))
        return inputs, inputs[0]
    if name not in _ARITY:
        raise UnsupportedKernel(f"the operation {name} is not implemented")
    kind = dtype(template_arguments(text, name)[0])
    return (kind,) * _ARITY[name], kind


def _fields(state: str, text: str, kind: torch.dtype) -> list[torch.dtype]:
    """The types of the state's values."""
    types = {
        "m": OPMATH.get(kind, kind), "t": kind, "i": torch.int32, "q": torch.int64, "b": torch.bool,
    }  # fmt: skip
    if "a" in state:  # masked_scale_kernel<mask, scalar, accumulate>
        types["a"] = dtype(template_arguments(text, "masked_scale_kernel")[2])
    if "e" in state:  # pow_tensor_scalar_kernel_impl<scalar, exponent>
        types["e"] = dtype(template_arguments(text, "pow_tensor_scalar_kernel_impl")[1])
    return [types[letter] for letter in state]


def _functor(
    operation: Operation, inputs: tuple[torch.dtype, ...], result: torch.dtype,
    fields: list[torch.dtype], is_lambda: bool,
) -> Functor:  # fmt: skip
    offsets, end, alignment = place(fields)
    if is_lambda and fields:
        end, alignment = align(end, 8) + _HOST_POINTER, 8
    size = align(end, alignment) if fields else 1
    compute, out = _in_opmath(operation, inputs)
    return Functor(compute, inputs, result, _reader(fields, offsets), size, alignment, out)


def place(fields: list[torch.dtype]) -> tuple[list[int], int, int]:
    """Offsets of a structure's members, its end and its alignment, as C++ lays them out."""
    offsets, end, alignment = [], 0, 1
    for kind in fields:
        offsets.append(align(end, kind.itemsize))
        end = offsets[-1] + kind.itemsize
        alignment = max(alignment, kind.itemsize)
    return offsets, end, alignment


def align(offset: int, to: int) -> int:
    return -(-offset // to) * to


def _reader(fields: list[torch.dtype], offsets: list[int]) -> Reader | None:
    if not fields:
        return None
    if fields == [torch.float32]:
        return struct.Struct("<f").unpack_from
    pairs = list(zip(offsets, fields, strict=True))
    return lambda data: tuple(scalar(data, offset, kind) for offset, kind in pairs)


def _in_opmath(operation: Operation, inputs: tuple[torch.dtype, ...]) -> tuple[Compute, bool]:
    """The computation, in float32 where inputs are 16-bit floats."""
    if not any(kind in OPMATH for kind in inputs) or operation.result != 0:
        return operation.compute, operation.out
    compute = operation.compute

    def widened(*values: Any) -> Tensor:
        wide = [
            v.to(OPMATH.get(v.dtype, v.dtype)) if isinstance(v, Tensor) else v for v in values
        ]
        return compute(*wide)

    return widened, False


def _binary(text: str, name: str) -> Functor:
    """BinaryFunctor<A, B, Result, F>."""
    left, right, result, inner = template_arguments(text, name)
    operation = find_operation(inner, enclosing_function(inner))
    inputs = (dtype(left), dtype(right))
    fields = _fields(operation.state, inner, inputs[0])
    return _functor(operation, inputs, dtype(result), fields, "{lambda(" in inner)


def _unary(text: str, name: str) -> Functor:
    """AUnaryFunctor (the left operand is a scalar) and BUnaryFunctor (the right one)."""
    left, right, result, inner = template_arguments(text, name)
    operation = find_operation(inner, enclosing_function(inner))
    a, b = dtype(left), dtype(right)
    held, given = (a, b) if name == "AUnaryFunctor" else (b, a)
    functor = _functor(
        operation, (a, b), dtype(result), _fields(operation.state, inner, a), "{lambda(" in inner
    )
    return _with_scalar(functor, OPMATH.get(held, held), given, name == "AUnaryFunctor")


def _with_scalar(
    functor: Functor, kind: torch.dtype, given: torch.dtype, scalar_first: bool
) -> Functor:
    """The functor with one operand held behind its own state."""
    at = align(functor.size, kind.itemsize)
    inner, read = functor.compute, functor.read
    wide = OPMATH.get(given, given)

    def compute(x: Tensor, held: Tensor, *state: Any) -> Tensor:
        x = x.to(wide)
        return inner(held, x, *state) if scalar_first else inner(x, held, *state)

    def values(data: bytes) -> tuple[Any, ...]:
        held = torch.tensor(scalar(data, at, kind), dtype=kind)
        return (held, *(read(data) if read else ()))

    alignment = max(functor.alignment, kind.itemsize)
    size = align(at + kind.itemsize, alignment)
    return Functor(compute, (given,), functor.result, values, size, alignment, False)


def _div_by_scalar(text: str, name: str) -> Functor:
    """A lambda of one input that divides by a captured scalar and rounds."""
    if len(lambda_parameters(text)) == 2:
        return _plain(text, name)
    kind = dtype(lambda_parameters(text)[0])
    wide = OPMATH.get(kind, kind)
    trunc = "trunc" in name
    fields = [wide] if trunc else [wide, wide]  # the inverse alone, or divisor and inverse

    def compute(x: Tensor, first: Any, inverse: Any = None) -> Tensor:
        return torch.trunc(x * first) if trunc else torch.div(x, first, rounding_mode="floor")

    return _functor(Operation(compute), (kind,), kind, fields, True)


def _plain(text: str, name: str) -> Functor:
    operation = find_operation(text, name)
    inputs, kind = _types(text, name)
    return _functor(operation, inputs, kind, [], True)


_WRAPPERS: dict[str, Callable[[str, str], Functor]] = {
    "BinaryFunctor": _binary,
    "AUnaryFunctor": _unary,
    "BUnaryFunctor": _unary,
    "div_trunc_kernel_cuda": _div_by_scalar,
    "div_floor_kernel_cuda": _div_by_scalar,
}
