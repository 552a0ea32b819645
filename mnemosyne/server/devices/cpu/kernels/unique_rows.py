"""What torch.unique does along a dimension: it sorts, compares and selects numbers of rows.

How this works. Thrust's algorithms work on the numbers; the comparison holds how long a row is and
where the rows lie. A sort is done whole by its first kernel: what merges sorted parts after that
only moves numbers between the two places it works in. Stable, as a merge sort is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import asserting

_ROWS = struct.Struct("<qQ")  # what a comparison holds: elements of a row, the first row's address
_PAIR = struct.Struct("<QQ")
_COUNTERS = {
    "int*": torch.int32, "long*": torch.int64, "unsigned int*": torch.uint32,
    "unsigned long*": torch.uint64,
}  # fmt: skip
_LESS, _EQUAL, _DIFFERENT = "#1", "#2", "#3"  # the comparisons' lambdas


class _Comparison:
    """One of the lambdas of unique_dim_cuda_template, an argument of the kernel."""

    def __init__(self, kernel: KernelInfo, text: str, number: str, place: int) -> None:
        if f"{{lambda(long, long){number}}}" not in text or kernel.params[place][1] != _ROWS.size:
            raise UnsupportedKernel(f"a comparison {text}")
        self._element = dtype(template_arguments(text, "unique_dim_cuda_template")[0])

    def rows(self, held: bytes, count: int, memory: Memory) -> Tensor:
        """The rows as they lie in memory: (count, elements of a row)."""
        size, pointer = _ROWS.unpack(held)
        return memory.view(pointer, self._element, (count, size), (size, 1))


def _counts(pointer: str) -> torch.dtype:
    if pointer not in _COUNTERS:
        raise UnsupportedKernel(f"a count through {pointer}")
    return _COUNTERS[pointer]


def _differences(rows: Tensor, numbers: Tensor) -> Tensor:
    """Whether a row differs from the one before it, for all but the first: (count - 1)."""
    ordered = rows[numbers]
    return (ordered[1:] != ordered[:-1]).any(1)


def _starts(rows: Tensor, numbers: Tensor) -> Tensor:
    """The places where runs of equal rows begin."""
    first = torch.ones(min(1, len(numbers)), dtype=torch.bool)
    return torch.cat((first, _differences(rows, numbers))).nonzero().flatten()


def _bind_sort(kernel: KernelInfo) -> Run:
    """DeviceMergeSortBlockSortKernel: (in place or not, in, -, out, -, n, other place, -, less)."""
    less = template_arguments(kernel.demangled, "DeviceMergeSortBlockSortKernel")[6]
    comparison = _Comparison(kernel, less, _LESS, 8)
    unpack = unpacker(kernel, "?QxQxnQxsx")

    def run(launch: Launch) -> None:
        last, source, out, count, other, held = unpack(launch.args)
        view = launch.memory.view
        numbers = view(source, torch.int64, (count,), (1,))
        rows = comparison.rows(held, count, launch.memory)
        ranks = torch.unique(rows, dim=0, return_inverse=True)[1]
        order = ranks[numbers].argsort(stable=True)
        view(out if last else other, torch.int64, (count,), (1,)).copy_(numbers[order])

    return asserting(run)


def _bind_merge(kernel: KernelInfo) -> Run:
    """DeviceMergeSortMergeKernel: (whether `out` is read, out, -, n, other place, -, less, ...)."""
    less = template_arguments(kernel.demangled, "DeviceMergeSortMergeKernel")[6]
    _Comparison(kernel, less, _LESS, 6)
    unpack = unpacker(kernel, "?QxnQxxxxx")

    def run(launch: Launch) -> None:
        forth, out, count, other = unpack(launch.args)
        places = (other, out) if forth else (out, other)
        target, source = (launch.memory.view(at, torch.int64, (count,), (1,)) for at in places)
        target.copy_(source)

    return run


def _bind_nothing(kernel: KernelInfo) -> Run:
    """Prepares scratch memory that nothing else looks at."""

    def run(launch: Launch) -> None:
        return None

    return run


def _bind_differences(kernel: KernelInfo) -> Run:
    """DeviceAdjacentDifferenceDifferenceKernel: (in, -, out, operator, n): the first one stays."""
    operator = template_arguments(kernel.demangled, "DeviceAdjacentDifferenceDifferenceKernel")[3]
    difference = _difference(kernel, operator)
    unpack = unpacker(kernel, "QxQsn")

    def run(launch: Launch) -> None:
        source, out, held, count = unpack(launch.args)
        numbers = launch.memory.view(source, torch.int64, (count,), (1,))
        target = launch.memory.view(out, torch.int64, (count,), (1,))
        found = difference(numbers, held, launch.memory)
        target[:1], target[1:] = numbers[:1].clone(), found

    return asserting(run)


def _difference(kernel: KernelInfo, operator: str) -> Callable[[Tensor, bytes, Memory], Tensor]:
    """What an operator gives of each number and the one before it."""
    if "::minus<long>" in operator:
        return lambda numbers, held, memory: numbers.diff()
    comparison = _Comparison(kernel, operator, _DIFFERENT, 3)
    return lambda numbers, held, memory: _differences(
        comparison.rows(held, len(numbers), memory), numbers
    )


def _bind_scatter(kernel: KernelInfo) -> Run:
    """transform_kernel: (n, -, identity, where to and the places there, from where)."""
    unpack = unpacker(kernel, "nxxss")

    def run(launch: Launch) -> None:
        count, out, values = unpack(launch.args)
        (places_at, target), (source, _) = _PAIR.unpack(out), _PAIR.unpack(values)
        view = launch.memory.view
        places = view(places_at, torch.int64, (count,), (1,))
        found = view(target, torch.int64, (int(places.max()) + 1,), (1,))
        found[places] = view(source, torch.int64, (count,), (1,))

    return asserting(run)


def _bind_unique(kernel: KernelInfo) -> Run:
    """UniqueAgent: (in, out, equal, how many there are, n, ...)."""
    equal, _, counter = template_arguments(kernel.demangled, "UniqueAgent")[2:5]
    comparison = _Comparison(kernel, equal, _EQUAL, 2)
    counts = _counts(counter)
    unpack = unpacker(kernel, "QQsQnxx")

    def run(launch: Launch) -> None:
        source, out, held, number, count = unpack(launch.args)
        view = launch.memory.view
        numbers = view(source, torch.int64, (count,), (1,))
        found = numbers[_starts(comparison.rows(held, count, launch.memory), numbers)]
        view(out, torch.int64, found.shape, (1,)).copy_(found)
        view(number, counts, (), ()).fill_(len(found))

    return asserting(run)


def _bind_unique_by_key(kernel: KernelInfo) -> Run:
    """DeviceUniqueByKeySweepKernel: (keys, values, unique keys, first values, number, -, equal, n).

    Keys are numbers of rows.
    """
    arguments = template_arguments(kernel.demangled, "DeviceUniqueByKeySweepKernel")
    comparison = _Comparison(kernel, arguments[7], _EQUAL, 6)
    if arguments[1:5] != ["long*"] * 4:
        raise UnsupportedKernel(f"keys and values as {arguments[1:5]}")
    counter = _counts(arguments[5])
    unpack = unpacker(kernel, "QQQQQxsnxx")

    def run(launch: Launch) -> None:
        keys, values, keys_out, values_out, number, held, count = unpack(launch.args)
        view = launch.memory.view
        numbers = view(keys, torch.int64, (count,), (1,))
        starts = _starts(comparison.rows(held, count, launch.memory), numbers)
        for source, out in ((keys, keys_out), (values, values_out)):
            found = view(source, torch.int64, (count,), (1,))[starts]
            view(out, torch.int64, found.shape, (1,)).copy_(found)
        view(number, counter, (), ()).fill_(len(starts))

    return asserting(run)


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bDeviceMergeSortBlockSortKernel<.*\bunique_dim_cuda_template<", _bind_sort),
    (r"\bDeviceMergeSortMergeKernel<.*\bunique_dim_cuda_template<", _bind_merge),
    (r"\bDeviceMergeSortPartitionKernel<.*\bunique_dim_cuda_template<", _bind_nothing),
    (r"\bDeviceAdjacentDifferenceInitKernel<", _bind_nothing),
    (r"\bDeviceAdjacentDifferenceDifferenceKernel<", _bind_differences),
    (r"\btransform_kernel<.*\bpermutation_iterator<long\*, long const\*>, long\*>", _bind_scatter),
    (r"\b__unique::InitAgent<", _bind_nothing),
    (r"\b__unique::UniqueAgent<.*\bunique_dim_cuda_template<", _bind_unique),
    (r"\bDeviceUniqueByKeySweepKernel<.*\bunique_dim_cuda_template<", _bind_unique_by_key),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
