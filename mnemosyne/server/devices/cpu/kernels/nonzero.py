"""nonzero and what is built on it: counting, selecting and taking flat indices apart.

How this works. CUB counts the nonzero elements in one launch, or in two: each block leaves a
partial sum, which the second launch adds up. It then writes the flat indices of those elements, for
which its scan needs scratch memory that nothing else looks at. `write_indices` makes coordinates of
them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .structs import MAX_DIMS

_PAIR = 16  # a transform iterator: a pointer, and a functor without members
_COUNTER = {
    "int": torch.int32, "long": torch.int64, "unsigned int": torch.uint32,
    "unsigned long": torch.uint64,
}  # fmt: skip


def _bind_nothing(kernel: KernelInfo) -> Run:
    """A kernel that only prepares scratch memory, or does nothing at all."""

    def run(launch: Launch) -> None:
        return None

    return run


def _bind_clear_count(kernel: KernelInfo) -> Run:
    """DeviceCompactInitKernel<state, int*>(state, tiles, number selected): a count of zero."""
    counter = _counter(template_arguments(kernel.demangled, "DeviceCompactInitKernel")[1])
    unpack = unpacker(kernel, "QiQ")

    def run(launch: Launch) -> None:
        launch.memory.view(unpack(launch.args)[2], counter, (), ()).zero_()

    return run


def _bind_count(kernel: KernelInfo) -> Run:
    """DeviceReduceSingleTileKernel: (input, output, elements, operator, initial value, ...)."""
    arguments = template_arguments(kernel.demangled, "DeviceReduceSingleTileKernel")
    if not _adds(arguments[4]):
        raise UnsupportedKernel(f"a reduction with {arguments[4]}")
    element, counter = _counted(arguments[1]), _counter(arguments[2])
    _expect(kernel, (_PAIR if _is_nonzero(arguments[1]) else 8, 8))
    unpack = unpacker(kernel, "sQnsns")
    first = kernel.params[0][0]

    def run(launch: Launch) -> None:
        _, target, count, _, initial, _ = unpack(launch.args)
        (source,) = struct.unpack_from("<Q", launch.args, first)
        numbers = launch.memory.view(source, element, (count,), (1,))
        total = _amount(numbers, arguments[1]) + initial
        launch.memory.view(target, counter, (), ()).fill_(total)

    return run


def _bind_partial_counts(kernel: KernelInfo) -> Run:
    """DeviceReduceKernel: (input, sums of the blocks, elements, shares, operator, ...)."""
    arguments = template_arguments(kernel.demangled, "DeviceReduceKernel")
    if not _is_nonzero(arguments[1]) or not _adds(arguments[3]):
        raise UnsupportedKernel("a reduction of something else than nonzero elements")
    element, counter = _counted(arguments[1]), _counter(f"{arguments[4]}*")
    _expect(kernel, (_PAIR, 8))
    unpack = unpacker(kernel, "sQnsss")

    def run(launch: Launch) -> None:
        _, target, count, *_ = unpack(launch.args)
        (source,) = struct.unpack_from("<Q", launch.args)
        numbers = launch.memory.view(source, element, (count,), (1,))
        sums = launch.memory.view(target, counter, (launch.grid[0],), (1,))
        sums.zero_()[0] = _amount(numbers, arguments[1])

    return run


def _bind_select(kernel: KernelInfo) -> Run:
    """DeviceSelectSweepKernel: (first index, flags, selected, their number, ..., elements, ...)."""
    arguments = template_arguments(kernel.demangled, "DeviceSelectSweepKernel")
    if "counting_iterator<long" not in arguments[1].lower() or not _is_nonzero(arguments[2]):
        raise UnsupportedKernel("a selection of something else than nonzero elements")
    if arguments[3] != "long*":
        raise UnsupportedKernel(f"indices of nonzero elements as {arguments[3]}")
    _expect(kernel, (8, _PAIR, 8, 8, 8, 1, 1, 4))
    unpack = unpacker(kernel, "qsQQ" + "s" * 3 + "i" + "s" * (len(kernel.params) - 8))
    element, counter = _counted(arguments[2]), _counter(arguments[4])
    flags_at = kernel.params[1][0]

    def run(launch: Launch) -> None:
        first, _, target, number, _, _, _, count, *_ = unpack(launch.args)
        (source,) = struct.unpack_from("<Q", launch.args, flags_at)
        found = launch.memory.view(source, element, (count,), (1,)).nonzero().flatten() + first
        launch.memory.view(target, torch.int64, (len(found),), (1,)).copy_(found)
        launch.memory.view(number, counter, (), ()).fill_(len(found))

    return run


def _bind_write_indices(kernel: KernelInfo) -> Run:
    """write_indices<long>: (flat indices, 25 sizes, dimensions, how many, how many are real, fill).

    Coordinates of one dimension after the other replace the flat indices and follow them.
    """
    if template_arguments(kernel.demangled, "write_indices") != ["long"]:
        raise UnsupportedKernel("sizes that are not long")
    _expect(kernel, (8, 8 * MAX_DIMS))
    unpack = unpacker(kernel, "QsiqQq")

    def run(launch: Launch) -> None:
        pointer, sizes, dims, count, real_at, fill = unpack(launch.args)
        view = launch.memory.view
        real = count if not real_at else int(view(real_at, torch.int64, (), ()))
        shape = struct.unpack_from(f"<{dims}q", sizes)
        table = view(pointer, torch.int64, (dims, count), (count, 1))
        places = torch.unravel_index(table[0, :real].clone(), shape)
        table[1:, real:] = fill
        table[:, :real] = torch.stack(places)

    return run


def _is_nonzero(iterator: str) -> bool:
    return "NonZeroOp<" in iterator


def _counted(iterator: str) -> torch.dtype:
    """The type of the elements that an iterator goes over: NonZeroOp's, or what is pointed to."""
    if _is_nonzero(iterator):
        return dtype(template_arguments(iterator, "NonZeroOp")[0])
    return _counter(iterator)


def _counter(pointer: str) -> torch.dtype:
    found = _COUNTER.get(pointer.removesuffix("*")) if pointer.endswith("*") else None
    if found is None:
        raise UnsupportedKernel(f"a count through {pointer}")
    return found


def _adds(operator: str) -> bool:
    return "::plus<" in operator or operator.endswith("cub::Sum")


def _amount(numbers: Tensor, iterator: str) -> int:
    return int(numbers.count_nonzero() if _is_nonzero(iterator) else numbers.sum())


def _expect(kernel: KernelInfo, sizes: Sequence[int]) -> None:
    found = tuple(size for _, size in kernel.params[: len(sizes)])
    if found != tuple(sizes):
        raise UnsupportedKernel(f"arguments of {found} bytes, expected {tuple(sizes)}")


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bcub::(detail::)?EmptyKernel<", _bind_nothing),
        (r"\bDeviceCompactInitKernel<", _bind_clear_count),
        (r"\bDeviceReduceSingleTileKernel<", _bind_count),
        (r"\bDeviceReduceKernel<", _bind_partial_counts),
        (r"\bDeviceSelectSweepKernel<", _bind_select),
        (r"\bwrite_indices<", _bind_write_indices),
    )
]
