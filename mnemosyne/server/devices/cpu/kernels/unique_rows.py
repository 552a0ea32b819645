"""torch.unique along a dimension: thrust's algorithms on numbers of rows, which compare the rows.

How this works. The functors hold a matrix, by its row size and its address. Here rows get ranks:
equal rows have the same, a lesser row a lesser one; then the ranks are sorted or compared.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run
from .arguments import unpacker
from .names import dtype, pointed, template_arguments
from .runs import run_starts

#: Gives the ranks of rows by their numbers, from the functor's bytes.
Ranks = Callable[[Memory, Tensor, bytes], Tensor]

_ROWS = struct.Struct("<qQ")
_ROWS_BY = r"<.*\bunique_dim_cuda_template<"


def ranks(functor: str) -> Ranks:
    """What ranks rows for a functor written in `unique_dim_cuda_template<T>`."""
    kind = dtype(template_arguments(functor, "unique_dim_cuda_template")[0])

    def rank(memory: Memory, numbers: Tensor, data: bytes) -> Tensor:
        size, at = _ROWS.unpack(data)
        matrix = memory.view(at, kind, (int(numbers.max()) + 1, size), (size, 1))
        places: Tensor = torch.unique(matrix[numbers], dim=0, return_inverse=True)[1]
        return places

    return rank


def _bind_unique(kernel: KernelInfo) -> Run:
    """UniqueAgent: (rows, unique rows, (row size, matrix), their number, n, ...)."""
    arguments = template_arguments(kernel.demangled, "UniqueAgent")
    rank, counter = ranks(arguments[2]), pointed(arguments[4])
    unpack = unpacker(kernel, "QQsQnxx")

    def run(launch: Launch) -> None:
        source, target, functor, number, count = unpack(launch.args)
        rows, starts = _distinct(launch.memory, rank, source, functor, count)
        view = launch.memory.view
        view(target, torch.int64, starts.shape, (1,)).copy_(rows[starts])
        view(number, counter, (), ()).fill_(len(starts))

    return run


def _bind_unique_by_key(kernel: KernelInfo) -> Run:
    """DeviceUniqueByKeySweepKernel: (rows, values, unique rows, first values, number, ...)."""
    arguments = template_arguments(kernel.demangled, "DeviceUniqueByKeySweepKernel")
    rank, value, counter = ranks(arguments[7]), pointed(arguments[2]), pointed(arguments[5])
    unpack = unpacker(kernel, "QQQQQxsnxx")

    def run(launch: Launch) -> None:
        source, values_at, target, values_out, number, functor, count = unpack(launch.args)
        rows, starts = _distinct(launch.memory, rank, source, functor, count)
        view = launch.memory.view
        values = view(values_at, value, (count,), (1,))[starts]
        view(target, torch.int64, starts.shape, (1,)).copy_(rows[starts])
        view(values_out, value, starts.shape, (1,)).copy_(values)
        view(number, counter, (), ()).fill_(len(starts))

    return run


def _distinct(
    memory: Memory, rank: Ranks, source: int, functor: bytes, count: int
) -> tuple[Tensor, Tensor]:
    """The rows' numbers, and the places where others than before begin."""
    rows = memory.view(source, torch.int64, (count,), (1,))
    return rows, run_starts(rank(memory, rows, functor))


def _bind_changes(kernel: KernelInfo) -> Run:
    """DeviceAdjacentDifferenceDifferenceKernel: (rows, -, out, (row size, matrix), n).

    1 where a row differs from the one before; the first number stays as it is.
    """
    name = "DeviceAdjacentDifferenceDifferenceKernel"
    rank = ranks(template_arguments(kernel.demangled, name)[3])
    unpack = unpacker(kernel, "QxQsn")

    def run(launch: Launch) -> None:
        source, target, functor, count = unpack(launch.args)
        rows = launch.memory.view(source, torch.int64, (count,), (1,))
        places = rank(launch.memory, rows, functor)
        changes = torch.cat((rows[:1], (places[1:] != places[:-1]).long()))
        launch.memory.view(target, torch.int64, (count,), (1,)).copy_(changes)

    return run


def _bind_differences(kernel: KernelInfo) -> Run:
    """The same by minus: (numbers, -, out, -, n): each less the one before."""
    unpack = unpacker(kernel, "QxQxn")

    def run(launch: Launch) -> None:
        source, target, count = unpack(launch.args)
        numbers = launch.memory.view(source, torch.int64, (count,), (1,))
        differences = torch.diff(numbers, prepend=numbers.new_zeros(1))
        launch.memory.view(target, torch.int64, (count,), (1,)).copy_(differences)

    return run


def _bind_scratch(kernel: KernelInfo) -> Run:
    """Prepares scratch memory, or keeps what a block in place would overwrite."""

    def run(launch: Launch) -> None:
        return None

    return run


_DIFFERENCE = r"\bDeviceAdjacentDifferenceDifferenceKernel<"
_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bUniqueAgent" + _ROWS_BY, _bind_unique),
    (r"\bDeviceUniqueByKeySweepKernel" + _ROWS_BY, _bind_unique_by_key),
    (_DIFFERENCE + r".*\bunique_dim_cuda_template<", _bind_changes),
    (_DIFFERENCE + r".* long\*, long\*, \S*minus<long>", _bind_differences),
    (r"\bDeviceAdjacentDifferenceInitKernel<", _bind_scratch),
    (r"\b__unique::InitAgent<", _bind_scratch),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
