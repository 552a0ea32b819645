"""thrust's loops over numbers, as PyTorch launches them: sequences, searches, a CSR matrix as COO.

How this works. The functor of a loop comes behind the iterator that gives its arguments; here that
counts from a number, or walks through vectors.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker

_ACCESSOR = struct.Struct("<5q")  # PackedTensorAccessor64 of two dimensions: data, sizes, strides
_VECTOR = struct.Struct("<3q")  # ... of one dimension


def accessor(memory: Memory, kind: torch.dtype, data: bytes, at: int) -> Tensor:
    """The tensor of a PackedTensorAccessor64 of two dimensions at a byte offset."""
    pointer, rows, columns, *strides = _ACCESSOR.unpack_from(data, at)
    return memory.view(pointer, kind, (rows, columns), strides)


def functor_reader(kernel: KernelInfo, size: int) -> Callable[[bytes], tuple[int, bytes]]:
    """What reads the number of steps and the functor, which must have so many bytes."""
    unpack = unpacker(kernel, "qs")
    if kernel.params[1][1] != size:
        raise UnsupportedKernel(f"a loop's functor of {kernel.params[1][1]} bytes, not {size}")
    return unpack


def _bind_sequence(kernel: KernelInfo) -> Run:
    """__tabulate of compute_sequence_value: (n, (out, first, step)): evenly spaced numbers."""
    layout = struct.Struct("<Qqq" if "value<long" in kernel.demangled else "<Qii")
    read = functor_reader(kernel, layout.size)

    def run(launch: Launch) -> None:
        count, functor = read(launch.args)
        target, first, step = layout.unpack(functor)
        numbers = launch.memory.view(target, torch.int64, (count,), (1,))
        torch.arange(count, out=numbers).mul_(step).add_(first)

    return run


def _bind_lower_bound(kernel: KernelInfo) -> Run:
    """binary_search_functor with lbf: (n, ((wanted, out), sorted numbers, their end, -))."""
    layout = struct.Struct("<4Q8x")
    read = functor_reader(kernel, layout.size)

    def run(launch: Launch) -> None:
        count, functor = read(launch.args)
        wanted_at, target, begin, end = layout.unpack(functor)
        view = launch.memory.view
        numbers = view(begin, torch.int64, ((end - begin) // 8,), (1,))
        wanted = view(wanted_at, torch.int64, (count,), (1,))
        view(target, torch.int64, (count,), (1,)).copy_(torch.searchsorted(numbers, wanted))

    return run


def _bind_rows(kernel: KernelInfo) -> Run:
    """sparse_sparse_matmul_cuda_kernel's first loop: (rows, (first, COO indices, row starts, ..)).

    The row of each element of a CSR matrix.
    """
    read = functor_reader(kernel, 88)

    def run(launch: Launch) -> None:
        count, functor = read(launch.args)
        starts_at, _, _ = _VECTOR.unpack_from(functor, 48)
        starts = launch.memory.view(starts_at, torch.int32, (count + 1,), (1,)).long()
        rows = accessor(launch.memory, torch.int64, functor, 8)[0]
        elements = torch.arange(min(len(rows), int(starts[-1])))
        rows[: len(elements)] = torch.searchsorted(starts[1:], elements, right=True)

    return run


def _bind_columns(kernel: KernelInfo) -> Run:
    """Its second loop: (n, (first, COO indices, row starts, columns, ..)): int becomes long."""
    read = functor_reader(kernel, 112)

    def run(launch: Launch) -> None:
        count, functor = read(launch.args)
        source, _, step = _VECTOR.unpack_from(functor, 72)
        columns = launch.memory.view(source, torch.int32, (count,), (step,))
        accessor(launch.memory, torch.int64, functor, 8)[1, :count] = columns

    return run


_LOOP = r"\bfor_each::static_kernel<.*"
_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (_LOOP + r"\b__tabulate::functor<\S*device_ptr<long>, \S*compute_sequence_value<",
     _bind_sequence),
    (_LOOP + r"\bbinary_search_functor<\S*device_ptr<long>, \S*binary_search_less, \S*lbf>",
     _bind_lower_bound),
    (_LOOP + r"\bsparse_sparse_matmul_cuda_kernel<.*\{lambda\(long\)#1\}", _bind_rows),
    (_LOOP + r"\bsparse_sparse_matmul_cuda_kernel<.*\{lambda\(long\)#2\}", _bind_columns),
)  # fmt: skip
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
