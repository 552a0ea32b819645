"""Kernels that apply a functor to every element: add, copy, compare, activate ...

PyTorch launches one of a few kernel templates with a functor (see functors.py). They differ in
how they find elements: contiguous memory (vectorized), contiguous memory of other dtypes
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

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .functors import Functor, candidates, choose
from .names import template_arguments
from .operations import OPMATH
from .structs import OffsetCalculator, align, scalar_type

Dtypes = Sequence[torch.dtype]
#: Computes the first tensor from the others and from the functor at an offset of the arguments.
Apply = Callable[[Sequence[Tensor], Launch, int], object]

_HOST_POINTER = 8  # closes a lambda that has a capture clause


def _bind_vectorized(kernel: KernelInfo) -> Run:
    """(int N, functor, array of pointers): contiguous, of the functor's dtypes."""
    name = template_arguments(kernel.demangled, "vectorized_elementwise_kernel")[1]
    functor, functor_at, unpack = _contiguous(kernel, name, 3)
    dtypes = (functor.result, *functor.inputs)
    apply = _applier(functor)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        n, *pointers = unpack(args)
        size = (n,)
        tensors = [view(p, d, size, _ONE) for p, d in zip(pointers, dtypes, strict=True)]
        apply(tensors, launch, functor_at)

    return run


def _bind_unrolled(kernel: KernelInfo) -> Run:
    """(N, functor, pointers, input and output offset calculators, loader, storer)."""
    arguments = template_arguments(kernel.demangled, "unrolled_elementwise_kernel")
    if not all("TrivialOffsetCalculator" in a for a in arguments if "OffsetCalculator" in a):
        raise UnsupportedKernel("an unrolled kernel with strides")
    functor, functor_at, unpack = _contiguous(kernel, arguments[0], 7)
    dtypes = _cast_types(functor, kernel)
    apply = _casting_applier(functor)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        n, *pointers = unpack(args)
        kinds, size = dtypes(args), (n,)
        tensors = [view(p, d, size, _ONE) for p, d in zip(pointers, kinds, strict=True)]
        apply(tensors, launch, functor_at)

    return run


_ONE = (1,)


def _contiguous(
    kernel: KernelInfo, name: str, count: int
) -> tuple[Functor, int, Callable[[bytes], tuple[int, ...]]]:
    """The functor, where it lies, and what reads N and the pointers."""
    params = _checked(kernel, count)
    (functor_at, functor_size), (data_at, data_size) = params[1], params[2]
    functor = choose(candidates(name), functor_size, lambda f: f.size)
    tensors = 1 + len(functor.inputs)
    if data_size != 8 * tensors:
        raise UnsupportedKernel(f"{data_size // 8} tensors, expected {tensors}")
    return functor, functor_at, struct.Struct(f"<i{data_at - 4}x{tensors}Q").unpack_from


def _cast_types(functor: Functor, kernel: KernelInfo) -> Callable[[bytes], Dtypes]:
    """What gives the dtypes in memory: LoadWithCast and StoreWithCast hold them, others do not."""
    (load_at, load_size), (store_at, store_size) = kernel.params[5], kernel.params[6]
    own = (functor.result, *functor.inputs)
    if "LoadWithoutCast" in kernel.demangled and "StoreWithoutCast" in kernel.demangled:
        return lambda args: own
    inputs = len(functor.inputs)
    most = max(inputs, 1)
    if load_size != align(most, 4) + 4 * most or store_size != 8:
        raise UnsupportedKernel("an unknown loader or storer")

    def read(args: bytes) -> Dtypes:
        loaded = [scalar_type(code) for code in args[load_at : load_at + inputs]]
        return (scalar_type(args[store_at]), *loaded)

    return read


def _bind_strided(kernel: KernelInfo) -> Run:
    """(int N, lambda): the lambda captures calculator, pointers, functor and maybe dtypes."""
    closure = template_arguments(kernel.demangled, "elementwise_kernel")[2]
    casts = "gpu_kernel_impl<" in closure
    inner = template_arguments(closure, "gpu_kernel_impl" if casts else "gpu_kernel_impl_nocast")
    (_, (at, size)) = _checked(kernel, 2)
    functor = choose(candidates(inner[0]), size, lambda f: _Closure(f, casts).size)
    place = _Closure(functor, casts)
    pointers_of = struct.Struct(f"<{place.count}Q").unpack_from
    calculator, data_at, functor_at = place.calculator, at + place.data_at, at + place.functor_at
    types_at, types_end = at + place.types_at, at + place.types_at + place.count
    own = (functor.result, *functor.inputs)
    apply = _casting_applier(functor) if casts else _applier(functor)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        kinds = [scalar_type(c) for c in args[types_at:types_end]] if casts else own
        sizes, all_strides = calculator.read(args, at)
        tensors = [
            view(pointer, kind, sizes, [stride // kind.itemsize for stride in strides])
            for pointer, kind, strides in zip(
                pointers_of(args, data_at), kinds, all_strides, strict=True
            )
        ]
        apply(tensors, launch, functor_at)

    return run


class _Closure:
    """Where the parts of a strided kernel's lambda lie, in bytes from its start."""

    def __init__(self, functor: Functor, casts: bool) -> None:
        self.count = 1 + len(functor.inputs)
        self.calculator = OffsetCalculator(self.count)
        self.data_at = align(self.calculator.size, 8)
        self.functor_at = align(self.data_at + 8 * self.count, functor.alignment)
        self.types_at = self.functor_at + functor.size
        end = align(self.types_at + (self.count if casts else 0), 8) + _HOST_POINTER
        self.size = align(end, max(functor.alignment, 8))


def _checked(kernel: KernelInfo, count: int) -> tuple[tuple[int, int], ...]:
    if len(kernel.params) != count or kernel.params[0] != (0, 4):
        raise UnsupportedKernel(f"{len(kernel.params)} parameters, expected {count}")
    return kernel.params


def _casting_applier(functor: Functor) -> Apply:
    """As `_applier`, for tensors of any dtypes: they are converted, as the kernel's loads do."""
    apply, inputs, result = _applier(functor), functor.inputs, functor.result
    copies = functor.operation.copies

    def run(tensors: Sequence[Tensor], launch: Launch, at: int) -> object:
        out, *values = tensors
        if copies and inputs[0] == out.dtype:
            return out.copy_(values[0])
        values = [v if v.dtype == d else v.to(d) for v, d in zip(values, inputs, strict=True)]
        if out.dtype == result:
            return apply([out, *values], launch, at)
        converted = torch.empty(out.shape, dtype=result)
        apply([converted, *values], launch, at)
        return out.copy_(converted)

    return run


def _applier(functor: Functor) -> Apply:
    """For tensors of the functor's own dtypes."""
    compute, read, operation = functor.compute, functor.read, functor.operation
    state: Callable[[bytes, int], tuple[Any, ...]] = read or _no_state
    widens = not operation.exact and any(kind in OPMATH for kind in functor.inputs)

    def fill(tensors: Sequence[Tensor], launch: Launch, at: int) -> object:
        return tensors[0].fill_(state(launch.args, at)[0])

    def widened(tensors: Sequence[Tensor], launch: Launch, at: int) -> object:
        values = [v.to(OPMATH.get(v.dtype, v.dtype)) for v in tensors[1:]]
        return tensors[0].copy_(compute(*values, *state(launch.args, at)))

    def direct(tensors: Sequence[Tensor], launch: Launch, at: int) -> object:
        return compute(*tensors[1:], *state(launch.args, at), out=tensors[0])

    def general(tensors: Sequence[Tensor], launch: Launch, at: int) -> object:
        return tensors[0].copy_(compute(*tensors[1:], *state(launch.args, at)))

    def with_memory(tensors: Sequence[Tensor], launch: Launch, at: int) -> object:
        values = compute(launch.memory, *tensors[1:], *state(launch.args, at))
        return None if operation.silent else tensors[0].copy_(values)

    if operation.memory:
        return with_memory
    if not functor.inputs:
        return fill
    if widens:
        return widened
    return direct if operation.out else general


def _no_state(args: bytes, at: int) -> tuple[Any, ...]:
    return ()


FAMILY: Family = [
    (re.compile(r"\bvectorized_elementwise_kernel<"), _bind_vectorized),
    (re.compile(r"\bunrolled_elementwise_kernel<"), _bind_unrolled),
    (re.compile(r"^void at::native::elementwise_kernel<"), _bind_strided),
]
