"""What the functors of elementwise kernels compute: numbers of a COO tensor's elements, searches.

As in operations.py. An element's number is the place that its indices, which are always int64,
have in a contiguous tensor: each index times its dimension's factor. Up to eight factors lie in
the functor, more in memory. A search finds, in sorted numbers, where those equal to one begin and
how many they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import Memory
from .operations import Operation
from .raw import failed_assertion

_MOST = 8  # factors in a functor


def _numbers(
    memory: Memory, at: int, columns: Tensor, steps: tuple[int, int], factors: Sequence[int]
) -> Tensor:
    """Of the elements in some columns of indices; steps: to the next column, to the next row."""
    shape = (len(factors), int(columns.max()) + 1)
    indices = memory.view(at, torch.int64, shape, steps[::-1]).index_select(1, columns.flatten())
    return (indices * torch.tensor(factors)[:, None]).sum(0).view(columns.shape)


def _flat(memory: Memory, columns: Tensor, at: int, step: int, dims: int, *rest: int) -> Tensor:
    *factors, row = rest
    return _numbers(memory, at, columns, (step, row), factors[:dims])


def _flat_by_memory(
    memory: Memory, columns: Tensor, at: int, step: int, dims: int, factors: int, row: int
) -> Tensor:
    return _numbers(memory, at, columns, (step, row), _read(memory, factors, dims))


def _read(memory: Memory, at: int, count: int) -> list[int]:
    numbers: list[int] = memory.view(at, torch.int64, (count,), (1,)).tolist()
    return numbers


_FLAT = (
    Operation(_flat, "q" * (_MOST + 4), memory=True),
    Operation(_flat_by_memory, "q" * 5, memory=True),
)


def _search(memory: Memory, at: int, count: int, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Of wanted numbers: the first place in sorted ones, and how many places."""
    numbers = memory.view(at, torch.int64, (count,), (1,))
    first = torch.searchsorted(numbers, wanted)
    return first, torch.searchsorted(numbers, wanted, right=True) - first


def _meet(memory: Memory, columns: Tensor, wanted: Tensor, search: Sequence[int]) -> Tensor:
    """Writes of each column how many of the sorted numbers equal its own, and the first place."""
    sorted_at, count, counts_at, firsts_at = search
    first, found = _search(memory, sorted_at, count, wanted)
    for target, results in ((counts_at, found), (firsts_at, first)):
        shape = (int(columns.max()) + 1,)
        memory.view(target, torch.int64, shape, (1,)).index_copy_(0, columns, results)
    return first


def _intersection(
    memory: Memory, columns: Tensor, known: int, dims: int, at: int, step: int, *rest: int
) -> Tensor:
    """``known``: where the columns' own numbers are, if they were computed before."""
    *factors, row = rest[: _MOST + 1]
    if known:
        wanted = memory.view(known, torch.int64, (int(columns.max()) + 1,), (1,))[columns]
    else:
        wanted = _numbers(memory, at, columns, (step, row), factors[:dims])
    return _meet(memory, columns, wanted, rest[_MOST + 1 :])


def _from_the_end(index: Tensor, size: int) -> Tensor:
    """Indices of which negative ones count from the end."""
    if bool(((index < -size) | (index >= size)).any()):
        raise failed_assertion("index_select(): index out of bounds")
    return torch.where(index < 0, index + size, index)


def _selected(
    memory: Memory, wanted: Tensor, columns: Tensor, counts_at: int, sorted_at: int, count: int
) -> Tensor:
    first, found = _search(memory, sorted_at, count, wanted.contiguous())
    shape = (int(columns.max()) + 1,)
    memory.view(counts_at, torch.int64, shape, (1,)).index_copy_(0, columns, found)
    return first


def _spread(
    memory: Memory, columns: Tensor, counts: Tensor, offsets: Tensor, firsts: Tensor,
    columns_at: int, elements_at: int, order_at: int,
) -> Tensor:  # fmt: skip
    """Of each column that many elements, from the first in sorted order on, behind the others."""
    total = int(counts.sum())
    targets = [memory.view(at, torch.int64, (total,), (1,)) for at in (columns_at, elements_at)]
    number = torch.arange(total) - offsets.repeat_interleave(counts)
    places = firsts.repeat_interleave(counts) + number
    order = memory.view(order_at, torch.int64, (int(places.max()) + 1,), (1,))
    targets[0].copy_(columns.repeat_interleave(counts))
    targets[1].copy_(order[places])
    return counts


#: As MATH of operations.py.
FLAT_INDICES: dict[str, Operation | tuple[Operation, ...]] = {"_flatten_indices_impl": _FLAT}

#: As NUMBERED of operations.py.
NUMBERED: dict[str, tuple[int, dict[int, Operation | tuple[Operation, ...]]]] = {
    "_sparse_binary_op_intersection_kernel_impl": (
        0,
        {
            3: _FLAT,
            5: Operation(_intersection, "q" * (_MOST + 9), memory=True, silent=True),
        },
    ),
    "index_select_sparse_cuda": (
        0,
        {
            1: Operation(_from_the_end, "q"),
            3: Operation(_selected, "qqq", memory=True),
            4: Operation(_spread, "qqq", memory=True, silent=True),
        },
    ),
}
