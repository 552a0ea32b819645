"""What the functors of elementwise kernels compute: numbers of a COO tensor's elements.

As in operations.py. An element's number is the place that its indices, which are always int64,
have in a contiguous tensor: each index times its dimension's factor. Up to eight factors lie in
the functor, more in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import Memory
from .operations import Operation

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

#: As MATH of operations.py.
FLAT_INDICES: dict[str, Operation | tuple[Operation, ...]] = {"_flatten_indices_impl": _FLAT}
