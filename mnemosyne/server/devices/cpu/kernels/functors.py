"""Reads a functor's type: which operation, of which input and result types, with which state.

How this works. A functor is a class (`CUDAFunctor_add<float>`) or a lambda, which is known by the
function it is written in. `BinaryFunctor`, `AUnaryFunctor` and `BUnaryFunctor` wrap another one;
the last two hold one operand, a scalar, behind it. State lies in a functor as C++ aligns it. nvcc
wraps a lambda with a capture clause: what it captures comes first, a pointer for the host last.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import UnsupportedKernel, activations, flat_indices, float8, normalized, operations
from .names import dtype, enclosing_function, lambda_numbers, lambda_parameters, template_arguments
from .operations import MATH, OPMATH, Compute, Operation
from .structs import CODES, align, scalar

Types = tuple[torch.dtype, ...]
#: Reads the state of a functor that lies at a byte offset.
Reader = Callable[[bytes, int], tuple[Any, ...]]

_HOST_POINTER = 8
_SUFFIX = re.compile(r"(_kernel)?(_cuda)?(_kernel)?$")
_Choice = Operation | tuple[Operation, ...]
_LAMBDAS: dict[str, _Choice] = {
    **MATH,
    **activations.ACTIVATIONS,
    **normalized.NORMALIZED,
    **flat_indices.FLAT_INDICES,
}
_NUMBERED: dict[str, tuple[int, Mapping[int, _Choice]]] = {
    **operations.NUMBERED,
    **activations.NUMBERED,
    **normalized.NUMBERED,
    **float8.NUMBERED,
    **flat_indices.NUMBERED,
}
_CLASSES = {**operations.CLASSES, **float8.CLASSES}
_COMPLEX = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}


@dataclass(frozen=True, slots=True)
class Functor:
    """``operation.compute(*inputs, *state)``; ``size`` is that of the functor in bytes.

    ``scalars`` are the types of the operands as the functor itself takes them: wrappers convert.
    """

    operation: Operation
    compute: Compute
    inputs: Types
    scalars: Types
    result: torch.dtype
    read: Reader | None
    size: int
    alignment: int


def candidates(text: str) -> list[Functor]:
    """The functors that may have this name: they differ in state, so in size, and in nothing else.

    Raises UnsupportedKernel for a functor that the tables do not know.
    """
    name = enclosing_function(text)
    if name in _WRAPPERS:
        inner = template_arguments(text, name)
        return [_WRAPPERS[name](functor, inner) for functor in candidates(inner[3])]
    if text.endswith("}"):
        return list(_lambdas(text, name))
    return [_class(text, name)]


def choose(found: Sequence[Functor], size: int, whole: Callable[[Functor], int]) -> Functor:
    """The functor with which the ``whole`` structure has this size. Raises UnsupportedKernel."""
    fitting = [functor for functor in found if whole(functor) == size]
    if not fitting:
        expected = sorted({whole(functor) for functor in found})
        raise UnsupportedKernel(f"a functor or closure of {size} bytes, expected {expected}")
    return fitting[0]


def _class(text: str, name: str) -> Functor:
    """A named functor, of the one type it works on, or the type is its first template argument."""
    if name not in _CLASSES:
        raise UnsupportedKernel(f"the operation {name} is not implemented")
    arity, operation = _CLASSES[name]
    kind = operation.of[0] if operation.of else dtype(template_arguments(text, name)[0])
    inputs = (kind,) * arity
    fields = _fields(operation.state, text, kind)
    offsets, end, alignment = place(fields)
    size = max(align(end, alignment), 1)
    return Functor(operation, operation.compute, inputs, inputs, _result(operation, inputs, kind),
                   _reader(fields, offsets), size, alignment)  # fmt: skip


def _lambdas(text: str, name: str) -> Iterator[Functor]:
    """A lambda, in each of the forms that it may have in memory."""
    inputs = tuple(dtype(t) for t in lambda_parameters(text))
    for operation in _operations(text, name, inputs):
        fields = _fields(operation.state, text, inputs[operation.scalar])
        offsets, end, alignment = place(fields)
        bound = max(alignment, _HOST_POINTER)
        size = align(align(end, _HOST_POINTER) + _HOST_POINTER, bound)
        functor = Functor(operation, operation.compute, inputs, inputs,
                          _result(operation, inputs, inputs[0]), _reader(fields, offsets), size,
                          bound)  # fmt: skip
        if not fields:
            yield replace(functor, size=1, alignment=1)
        yield functor


def _operations(text: str, name: str, inputs: Types) -> tuple[Operation, ...]:
    """The operations of the function that a lambda lies in, by the lambda's number if it counts."""
    which, choices = _NUMBERED.get(name, (0, {}))
    some = choices.get(lambda_numbers(text)[which]) if choices else _by_function(name)
    if some is None:
        raise UnsupportedKernel(f"the operation {name} is not implemented")
    found = some if isinstance(some, tuple) else (some,)
    return tuple(
        operation
        for operation in found
        if operation.takes in (0, len(inputs)) and (not operation.of or inputs[0] in operation.of)
    )


def _by_function(name: str) -> _Choice | None:
    return _LAMBDAS.get(name) or _LAMBDAS.get(_SUFFIX.sub("", name))


def _result(operation: Operation, inputs: Types, kind: torch.dtype) -> torch.dtype:
    if isinstance(operation.result, torch.dtype):
        return operation.result
    if operation.result == "complex":
        return _COMPLEX[kind]
    if operation.result == "wide":
        return OPMATH.get(kind, kind)
    return inputs[operation.result] if inputs and isinstance(operation.result, int) else kind


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


def place(fields: Sequence[torch.dtype]) -> tuple[list[int], int, int]:
    """Offsets of a structure's members, its end and its alignment, as C++ lays them out."""
    offsets, end, alignment = [], 0, 1
    for kind in fields:
        offsets.append(align(end, kind.itemsize))
        end = offsets[-1] + kind.itemsize
        alignment = max(alignment, kind.itemsize)
    return offsets, end, alignment


def _reader(fields: Sequence[torch.dtype], offsets: Sequence[int]) -> Reader | None:
    """One precompiled unpacker where `struct` knows all types."""
    if not fields:
        return None
    pairs = list(zip(offsets, fields, strict=True))
    if not all(kind in CODES for kind in fields):
        return lambda data, at: tuple(scalar(data, at + offset, kind) for offset, kind in pairs)
    layout, end = "<", 0
    for offset, kind in pairs:
        layout += f"{offset - end}x{CODES[kind]}"
        end = offset + kind.itemsize
    return struct.Struct(layout).unpack_from


def _binary(inner: Functor, arguments: Sequence[str]) -> Functor:
    """BinaryFunctor<A, B, Result, F>: F as it is, its operands and result converted."""
    left, right, result, _ = arguments
    return replace(inner, inputs=(dtype(left), dtype(right)), result=dtype(result))


def _unary(holds: int) -> Callable[[Functor, Sequence[str]], Functor]:
    """AUnaryFunctor holds operand 0, a scalar of the type that F takes; BUnaryFunctor operand 1."""

    def wrap(inner: Functor, arguments: Sequence[str]) -> Functor:
        kind, given = inner.scalars[holds], dtype(arguments[1 - holds])
        at = align(inner.size, kind.itemsize)
        alignment = max(inner.alignment, kind.itemsize)
        return replace(
            inner,
            compute=_with_scalar(inner.compute, holds, OPMATH.get(kind, kind)),
            inputs=(given,),
            result=dtype(arguments[2]),
            read=_joined(_reader([kind], [at]), inner.read),
            size=align(at + kind.itemsize, alignment),
            alignment=alignment,
        )

    return wrap


def _with_scalar(compute: Compute, holds: int, kind: torch.dtype) -> Compute:
    """A function of the other operand, then the scalar, then the state."""

    def left(x: Tensor, held: Any, *state: Any, **out: Tensor) -> Tensor:
        return compute(torch.scalar_tensor(held, dtype=kind), x, *state, **out)

    def right(x: Tensor, held: Any, *state: Any, **out: Tensor) -> Tensor:
        return compute(x, torch.scalar_tensor(held, dtype=kind), *state, **out)

    return right if holds else left


def _joined(first: Reader | None, second: Reader | None) -> Reader | None:
    if first is None or second is None:
        return first or second
    return lambda data, at: first(data, at) + second(data, at)


_WRAPPERS: dict[str, Callable[[Functor, Sequence[str]], Functor]] = {
    "BinaryFunctor": _binary,
    "AUnaryFunctor": _unary(0),
    "BUnaryFunctor": _unary(1),
}
