"""Kernels that apply a functor to every element: add, copy, compare, activate ...

How this works: PyTorch launches one of a few kernel templates with a functor (see functors.py). They
differ in how they find elements: contiguous memory (vectorized), contiguous memory of other dtypes
than the functor's (unrolled, with casts), or any strides (elementwise_kernel, whose lambda captures
an OffsetCalculator, the data pointers and the functor, and dtypes when it casts).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .functors import Functor, align, parse_functor
from .names import template_arguments
from .structs import OffsetCalculator, scalar_type

#: Reads the packed arguments: data pointers, and the dtypes in memory where they are dynamic.
Dtypes = Sequence[torch.dtype]


def _bind_vectorized(kernel: KernelInfo) -> Run:
    """(int N, functor, array of pointers): contiguous, of the functor's dtypes."""
    functor = parse_functor(template_arguments(kernel.demangled, "vectorized_elementwise_kernel")[1])
    (_, (f_at, f_size), (data_at, data_size)) = _checked(kernel, 3)
    count = _checked_counts(functor, f_size, data_size)
    header = struct.Struct(f"<i{data_at - 4}x{count}Q")
    dtypes = (functor.result, *functor.inputs)
    apply = _applier(functor)

    def run(launch: Launch) -> None:
        n, *pointers = header.unpack_from(launch.args)
        view = launch.memory.view
        tensors = [view(p, d, (n,), (1,)) for p, d in zip(pointers, dtypes, strict=True)]
        apply(tensors, launch.args[f_at : f_at + f_size])

    return run


def _bind_unrolled(kernel: KernelInfo) -> Run:
    """(N, functor, pointers, input and output offset calculators, loader, storer)."""
    arguments = template_arguments(kernel.demangled, "unrolled_elementwise_kernel")
    functor = parse_functor(arguments[0])
    if not all("TrivialOffsetCalculator" in a for a in arguments if "OffsetCalculator" in a):
        raise UnsupportedKernel("an unrolled kernel with strides")
    params = _checked(kernel, 7)
    (f_at, f_size), (data_at, data_size) = params[1], params[2]
    count = _checked_counts(functor, f_size, data_size)
    dtypes = _cast_types(functor, kernel, count)
    header = struct.Struct(f"<i{data_at - 4}x{count}Q")
    apply = _applier(functor)

    def run(launch: Launch) -> None:
        n, *pointers = header.unpack_from(launch.args)
        kinds = dtypes(launch.args)
        view = launch.memory.view
        tensors = [view(p, d, (n,), (1,)) for p, d in zip(pointers, kinds, strict=True)]
        apply(tensors, launch.args[f_at : f_at + f_size])

    return run


def _cast_types(functor: Functor, kernel: KernelInfo, count: int) -> Callable[[bytes], Dtypes]:
    """What gives the dtypes in memory: LoadWithCast and StoreWithCast hold them, others do not."""
    (load_at, load_size), (store_at, _) = kernel.params[5], kernel.params[6]
    own = (functor.result, *functor.inputs)
    if "LoadWithoutCast" in kernel.demangled:
        return lambda args: own
    inputs = count - 1
    if inputs and load_size != align(inputs, 4) + 4 * inputs:
        raise UnsupportedKernel("an unknown loader")

    def read(args: bytes) -> Dtypes:
        loaded = [scalar_type(code) for code in args[load_at : load_at + inputs]]
        return (scalar_type(args[store_at]), *loaded)

    return read


def _bind_strided(kernel: KernelInfo) -> Run:
    """(int N, lambda): the lambda captures calculator, pointers, functor and maybe dtypes."""
    closure = template_arguments(kernel.demangled, "elementwise_kernel")[2]
    casts = "gpu_kernel_impl<" in closure
    functor = parse_functor(
        template_arguments(closure, "gpu_kernel_impl" if casts else "gpu_kernel_impl_nocast")[0]
    )
    (_, (at, size)) = _checked(kernel, 2)
    count = 1 + len(functor.inputs)
    calculator = OffsetCalculator(count)
    data_at = align(calculator.size, 8)
    f_at = align(data_at + 8 * count, functor.alignment)
    types_at = f_at + functor.size
    end = types_at + (count if casts else 0)
    if align(end, 8) + 8 != size:  # 8: the lambda's pointer for the host
        raise UnsupportedKernel(f"a closure of {size} bytes, expected {align(end, 8) + 8}")
    pointers_of = struct.Struct(f"<{count}Q")
    own = (functor.result, *functor.inputs)
    apply = _applier(functor)

    def run(launch: Launch) -> None:
        closure = launch.args[at : at + size]
        pointers = pointers_of.unpack_from(closure, data_at)
        kinds = [scalar_type(c) for c in closure[types_at:end]] if casts else own
        geometry = calculator.read(closure, 0)
        tensors = [
            _strided(launch.memory, p, kind, geometry.sizes, strides)
            for p, kind, strides in zip(pointers, kinds, geometry.strides, strict=True)
        ]
        apply(tensors, closure[f_at : f_at + functor.size])

    return run


def _strided(
    memory: Memory, pointer: int, kind: torch.dtype, sizes: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """A view whose strides are in bytes."""
    size = kind.itemsize
    return memory.view(pointer, kind, sizes, [stride // size for stride in strides])


def _checked(kernel: KernelInfo, count: int) -> tuple[tuple[int, int], ...]:
    if len(kernel.params) != count or kernel.params[0] != (0, 4):
        raise UnsupportedKernel(f"{len(kernel.params)} parameters, expected {count}")
    return kernel.params


def _checked_counts(functor: Functor, f_size: int, data_size: int) -> int:
    """The number of tensors; functor and pointer array must have the sizes we expect."""
    count = 1 + len(functor.inputs)
    if data_size != 8 * count:
        raise UnsupportedKernel(f"{data_size // 8} tensors, expected {count}")
    # Lambdas declared with a capture clause hold the host pointer even if they capture nothing.
    if f_size != functor.size and not (functor.read is None and f_size == 8):
        raise UnsupportedKernel(f"a functor of {f_size} bytes, expected {functor.size}")
    return count


Apply = Callable[[Sequence[Tensor], bytes], None]


def _applier(functor: Functor) -> Apply:
    """What computes the first tensor from the others and the functor's bytes."""
    compute, read, inputs, result = functor.compute, functor.read, functor.inputs, functor.result

    def state(data: bytes) -> tuple[Any, ...]:
        return read(data) if read else ()

    def fill(tensors: Sequence[Tensor], data: bytes) -> None:
        tensors[0].fill_(state(data)[0])

    def general(tensors: Sequence[Tensor], data: bytes) -> None:
        values = [t if t.dtype == d else t.to(d) for t, d in zip(tensors[1:], inputs, strict=True)]
        value = compute(*values, *state(data))
        tensors[0].copy_(value if value.dtype == result else value.to(result))

    def direct(tensors: Sequence[Tensor], data: bytes) -> None:
        out, *values = tensors
        if all(t.dtype == result for t in tensors):
            compute(*values, *state(data), out=out)
        else:
            general(tensors, data)

    if not inputs:
        return fill
    return direct if functor.out else general


FAMILY: Family = [
    (re.compile(r"\bvectorized_elementwise_kernel<"), _bind_vectorized),
    (re.compile(r"\bunrolled_elementwise_kernel<"), _bind_unrolled),
    (re.compile(r"^void at::native::elementwise_kernel<"), _bind_strided),
]
