"""Kernels that compute elements from their index: arange, linspace, logspace.

The result's dtype is not part of the name; it follows from which branch of PyTorch's dispatch the
lambda lies in (AT_DISPATCH_ALL_TYPES_AND2 and its like list types in a fixed order), and the size
of the captured values must agree.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .functors import place
from .names import enclosing_function, lambda_numbers, template_arguments
from .structs import align, scalar

_INTEGRAL = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.int16)
_HALVES = (torch.float16, torch.bfloat16)
_ALL_TYPES = (*_INTEGRAL, torch.float64, torch.float32, *_HALVES)
_FLOATING = (
    torch.float64, torch.float32, torch.complex128, torch.complex64, *_HALVES,
)  # fmt: skip


def _accumulate_type(kind: torch.dtype) -> torch.dtype:
    """at::acc_type on CUDA."""
    if kind in _INTEGRAL:
        return torch.int64
    return torch.float32 if kind in _HALVES else kind


def _bind(kernel: KernelInfo) -> Run:
    functor = template_arguments(kernel.demangled, "elementwise_kernel_with_index")[1]
    bind = _RANGES.get(enclosing_function(functor))
    if bind is None or len(kernel.params) != 3:
        raise UnsupportedKernel(f"the range {enclosing_function(functor)} is not implemented")
    return bind(kernel, functor)


def _count_and_pointer(kernel: KernelInfo) -> struct.Struct:
    (_, n_size), _, (out_at, _) = kernel.params
    return struct.Struct(f"<{'i' if n_size == 4 else 'q'}{out_at - n_size}xQ")


def _captured(kernel: KernelInfo, kinds: list[torch.dtype]) -> list[tuple[int, torch.dtype]]:
    """Where the captured values are; their size with the host pointer must be the functor's."""
    at, size = kernel.params[1]
    offsets, end, _ = place(kinds)
    if align(end, 8) + 8 != size:
        raise UnsupportedKernel(f"a functor of {size} bytes, expected {align(end, 8) + 8}")
    return [(at + offset, kind) for offset, kind in zip(offsets, kinds, strict=True)]


def _arange(kernel: KernelInfo, functor: str) -> Run:
    """[xstart, xstep]: start + step * index."""
    kind = _dispatched(functor, _ALL_TYPES)
    fields = _captured(kernel, [_accumulate_type(kind)] * 2)
    header = _count_and_pointer(kernel)
    wide = _accumulate_type(kind)

    def run(launch: Launch) -> None:
        n, pointer = header.unpack_from(launch.args)
        start, step = (scalar(launch.args, *field) for field in fields)
        values = torch.arange(n, dtype=wide).mul_(step).add_(start)
        launch.memory.view(pointer, kind, (n,), (1,)).copy_(values)

    return run


def _linspace(kernel: KernelInfo, functor: str) -> Run:
    """[start, end, steps, step, halfway]: from the start up to halfway, then from the end."""
    kind, step = _spaced(functor)
    fields = _captured(kernel, [kind, kind, torch.int64, step, torch.int64])
    header = _count_and_pointer(kernel)

    def run(launch: Launch) -> None:
        n, pointer = header.unpack_from(launch.args)
        values = _spread(n, _wide(kind), *(scalar(launch.args, *field) for field in fields))
        launch.memory.view(pointer, kind, (n,), (1,)).copy_(values)

    return run


def _logspace(kernel: KernelInfo, functor: str) -> Run:
    """[start, end, base, steps, step, halfway]: powers of the base."""
    kind, step = _spaced(functor)
    fields = _captured(kernel, [kind, kind, step, torch.int64, step, torch.int64])
    header = _count_and_pointer(kernel)

    def run(launch: Launch) -> None:
        n, pointer = header.unpack_from(launch.args)
        start, end, base, *rest = (scalar(launch.args, *field) for field in fields)
        values = torch.pow(base, _spread(n, _wide(kind), start, end, *rest))
        launch.memory.view(pointer, kind, (n,), (1,)).copy_(values)

    return run


def _spaced(functor: str) -> tuple[torch.dtype, torch.dtype]:
    """The types of elements and of the step, which is a float between integers."""
    if lambda_numbers(functor)[0] == 1:
        return _dispatched(functor, _INTEGRAL), torch.float32
    kind = _dispatched(functor, _FLOATING)
    if kind.is_complex:
        raise UnsupportedKernel(f"a range of {kind} is not implemented")
    return kind, kind


def _wide(kind: torch.dtype) -> torch.dtype:
    return torch.float64 if kind == torch.float64 else torch.float32


def _spread(n: int, kind: torch.dtype, *captured: Any) -> torch.Tensor:
    start, end, steps, step, halfway = captured
    index = torch.arange(n, dtype=kind)
    rising = index.mul(step).add_(start)
    falling = end - (steps - 1 - index) * step
    return torch.where(torch.arange(n) < halfway, rising, falling)


def _dispatched(functor: str, kinds: tuple[torch.dtype, ...]) -> torch.dtype:
    """The type of the innermost dispatch lambda."""
    number = lambda_numbers(functor)[-2]
    if not 1 <= number <= len(kinds):
        raise UnsupportedKernel(f"a range of an unknown type (number {number})")
    return kinds[number - 1]


_RANGES = {
    "arange_cuda_out": _arange,
    "range_cuda_out": _arange,
    "linspace_cuda_out": _linspace,
    "logspace_cuda_out": _logspace,
}

FAMILY: Family = [(re.compile(r"\belementwise_kernel_with_index<"), _bind)]
