"""masked_scatter: elements of a source, in order, written where a mask is set.

It is an elementwise kernel of (self, mask, how many of the mask were set before), whose lambda
captures the source's address.
"""

from __future__ import annotations

import re
import struct

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .names import lambda_parameters
from .raw import raw_type
from .structs import OffsetCalculator

_FUNCTOR_BYTES = 16  # the source's address and a pointer for the host
_TENSORS = 4
_POINTERS = struct.Struct("<4Q")
_POINTER = struct.Struct("<Q")


def _bind_contiguous(kernel: KernelInfo) -> Run:
    """Arguments: number of elements, lambda, addresses, and what an unrolled kernel needs more."""
    if "LoadWithCast" in kernel.demangled:
        raise UnsupportedKernel("masked_scatter between types")
    sizes = [size for _, size in kernel.params[:3]]
    if sizes != [4, _FUNCTOR_BYTES, _POINTERS.size]:
        raise UnsupportedKernel(f"arguments of {sizes} bytes")
    element = raw_type(lambda_parameters(_inner(kernel))[0])
    source_at, data_at = kernel.params[1][0], kernel.params[2][0]

    def run(launch: Launch) -> None:
        (count,) = struct.unpack_from("<i", launch.args)
        pointers = _POINTERS.unpack_from(launch.args, data_at)
        tensors = [
            launch.memory.view(pointer, kind, (count,), (1,))
            for pointer, kind in zip(pointers, _types(element), strict=True)
        ]
        _scatter(launch.memory, _POINTER.unpack_from(launch.args, source_at)[0], *tensors)

    return run


def _bind_strided(kernel: KernelInfo) -> Run:
    """Arguments: number of elements, and a closure: offset calculator, addresses, lambda."""
    calculator = OffsetCalculator(_TENSORS)
    start, size = kernel.params[-1]
    data_at = start + calculator.size
    source_at = data_at + _POINTERS.size
    if start + size != source_at + _FUNCTOR_BYTES + 8 or "_nocast<" not in kernel.demangled:
        raise UnsupportedKernel(f"a closure of {size} bytes")
    element = raw_type(lambda_parameters(_inner(kernel))[0])

    def run(launch: Launch) -> None:
        geometry = calculator.read(launch.args, start)
        pointers = _POINTERS.unpack_from(launch.args, data_at)
        tensors = [
            launch.memory.view(
                pointer, kind, geometry.sizes, [stride // kind.itemsize for stride in strides]
            )
            for pointer, kind, strides in zip(
                pointers, _types(element), geometry.strides, strict=True
            )
        ]
        _scatter(launch.memory, _POINTER.unpack_from(launch.args, source_at)[0], *tensors)

    return run


def _types(element: torch.dtype) -> tuple[torch.dtype, ...]:
    return element, element, torch.bool, torch.int64


def _inner(kernel: KernelInfo) -> str:
    """The name up to the lambda that works on elements."""
    match = re.search(r".*?\{lambda\([^()]*, bool, long\)#\d+\}", kernel.demangled)
    if match is None:
        raise UnsupportedKernel("an unknown lambda of masked_scatter")
    return match[0]


def _scatter(
    memory: Memory, source: int, out: Tensor, own: Tensor, mask: Tensor, before: Tensor
) -> None:
    out.copy_(own)
    which = before[mask]
    if which.numel():
        values = memory.view(source, out.dtype, (int(which.max()) + 1,), (1,))
        out[mask] = values[which]


FAMILY: Family = [
    (re.compile(pattern + r".*\blaunch_masked_scatter_kernel\("), binder)
    for pattern, binder in (
        (r"\b(vectorized|unrolled)_elementwise_kernel<", _bind_contiguous),
        (r"\belementwise_kernel<", _bind_strided),
    )
]
