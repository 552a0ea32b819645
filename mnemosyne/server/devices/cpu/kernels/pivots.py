"""The permutation that the exchanges of rows of an LU come to: unpack_pivots_cuda_kernel.

The functor holds an offset calculator, addresses of permutations and pivots, and how many pivots
there are; an element of the loop is one matrix.
"""

from __future__ import annotations

import re
import struct
from itertools import product

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .structs import OffsetCalculator

_PLACES = OffsetCalculator(2)
_REST = struct.Struct("<QQq")


def _bind(kernel: KernelInfo) -> Run:
    at, size = kernel.params[1]
    if size != _PLACES.size + _REST.size:
        raise UnsupportedKernel(f"a functor of {size} bytes")

    def run(launch: Launch) -> None:
        sizes, (orders, pivots) = _PLACES.read(launch.args, at)
        order, pivot, count = _REST.unpack_from(launch.args, at + _PLACES.size)
        view = launch.memory.view
        exchanges = view(pivot, torch.int32, (*sizes, count), (*(n // 4 for n in pivots), 1))
        rows = int(exchanges.max()) if exchanges.numel() else count  # as far as they reach
        found = view(order, torch.int64, (*sizes, rows), (*(n // 8 for n in orders), 1))
        for place in product(*map(range, sizes)):
            _exchange(found[place], exchanges[place].tolist())

    return run


def _exchange(order: torch.Tensor, others: list[int]) -> None:
    """Exchanges elements 0, 1 ... with others, which count from 1, one after the other."""
    numbers = order.tolist()
    for i, other in enumerate(others):
        numbers[i], numbers[other - 1] = numbers[other - 1], numbers[i]
    order.copy_(torch.tensor(numbers))


FAMILY: Family = [(re.compile(r"unpack_pivots_cuda_kernel"), _bind)]
