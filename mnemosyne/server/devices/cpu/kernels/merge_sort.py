"""cub's merge sorts: by an order that is a functor, of keys alone or of keys with values.

How this works. The first launch sorts blocks; each launch after it merges what the one before
left, from one pair of buffers to the other. Here the first sorts all, stably, and the others move
it. `ping` tells in which buffers a launch finds or leaves its elements.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, pointed, template_arguments
from .unique_rows import ranks

#: Gives the order of keys, from the functor's bytes.
Order = Callable[[Memory, Tensor, bytes], Tensor]

_WORD = struct.Struct("<Q")


def _by_value(memory: Memory, keys: Tensor, functor: bytes) -> Tensor:
    return torch.argsort(keys, stable=True)


def _by_offset(memory: Memory, keys: Tensor, functor: bytes) -> Tensor:
    """The order of what the keys are places of, in the vector that the functor holds."""
    (at,) = _WORD.unpack(functor)
    offsets = memory.view(at, torch.int64, (int(keys.max()) + 1,), (1,))
    return torch.argsort(offsets[keys], stable=True)


def _by_rows(functor: str) -> Order:
    """The order of the rows that the keys are numbers of."""
    rank = ranks(functor)
    return lambda memory, keys, data: torch.argsort(rank(memory, keys, data), stable=True)


_LAMBDA = r"\(.*\{lambda\(long, long\)#1\}"
#: By the functor's name: what makes its order.
_ORDERS: tuple[tuple[str, Callable[[str], Order]], ...] = (
    (r"(?:[\w:]+::)?(?:LTOp|less)<[\w: ]+(?:, \w+)?>", lambda _: _by_value),
    (r".*\bcompute_pool_max<.*>" + _LAMBDA, lambda _: _by_offset),
    (r".*\bunique_dim_cuda_template<.*>" + _LAMBDA, _by_rows),
)


class _Pairs:
    """The types of a sort's keys and values, and their order."""

    def __init__(self, kernel: KernelInfo, name: str) -> None:
        arguments = template_arguments(kernel.demangled, name)
        *_, order, key, value = arguments
        self.key = dtype(key)
        self.value = None if value.endswith("NullType") else dtype(value)
        for iterator in arguments[1:5]:
            if not iterator.endswith("NullType*"):
                pointed(iterator)
        self.order = _order(order)

    def put(self, memory: Memory, sides: tuple[int, int], keys: Tensor, values: Tensor) -> None:
        """Writes keys and values; both must be copies, as the places may be where they are from."""
        shape = keys.shape
        memory.view(sides[0], self.key, shape, (1,)).copy_(keys)
        if self.value is not None:
            memory.view(sides[1], self.value, shape, (1,)).copy_(values)

    def read(self, memory: Memory, sides: tuple[int, int], count: int) -> tuple[Tensor, Tensor]:
        keys = memory.view(sides[0], self.key, (count,), (1,))
        if self.value is None:
            return keys, keys
        return keys, memory.view(sides[1], self.value, (count,), (1,))


def _order(functor: str) -> Order:
    for pattern, make in _ORDERS:
        if re.fullmatch(pattern, functor):
            return make(functor)
    raise UnsupportedKernel(f"a sort by {functor}")


def _bind_block_sort(kernel: KernelInfo) -> Run:
    """(ping, keys, values, sorted keys, values, n, scratch keys, values, order, -)."""
    pairs = _Pairs(kernel, "DeviceMergeSortBlockSortKernel")
    unpack = unpacker(kernel, "?QQQQnQQsx")

    def run(launch: Launch) -> None:
        ping, *sides, count, scratch, scratch_values, functor = unpack(launch.args)
        memory = launch.memory
        keys, values = pairs.read(memory, (sides[0], sides[1]), count)
        order = pairs.order(memory, keys, functor)
        target = (sides[2], sides[3]) if ping else (scratch, scratch_values)
        pairs.put(memory, target, keys[order], values[order])

    return run


def _bind_merge(kernel: KernelInfo) -> Run:
    """(ping, keys, values, n, scratch keys, values, order, parts, size of a part, -).

    From the keys to the scratch keys if ping, else back.
    """
    pairs = _Pairs(kernel, "DeviceMergeSortMergeKernel")
    unpack = unpacker(kernel, "?QQnQQsxxx")

    def run(launch: Launch) -> None:
        ping, keys, values, count, scratch, scratch_values, _ = unpack(launch.args)
        here, there = (keys, values), (scratch, scratch_values)
        source, target = (here, there) if ping else (there, here)
        pairs.put(launch.memory, target, *pairs.read(launch.memory, source, count))

    return run


def _bind_partition(kernel: KernelInfo) -> Run:
    """Finds where the merge that follows shall cut; here it does without."""

    def run(launch: Launch) -> None:
        return None

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bDeviceMergeSortBlockSortKernel<", _bind_block_sort),
    (r"\bDeviceMergeSortMergeKernel<", _bind_merge),
    (r"\bDeviceMergeSortPartitionKernel<", _bind_partition),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
