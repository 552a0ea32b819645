"""cub's radix sorts: a launch sorts by some bits of the keys, stably, into another buffer.

How this works. A small sort is one launch over all wanted bits. A large one is a histogram, an
exclusive sum of it, and a launch for each digit of up to 8 bits; every one of these sorts by its
own digit and keeps the order of equal ones, so a stable sort by the digit is the same thing. Keys
are first turned into bits that compare as the keys do (CUB's `Traits::TwiddleIn`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import element_type

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool)
_PASS_BITS = 16
_ASCENDING = 0

Sort = Callable[[Memory, int, int, int, int, int, int, int], None]


def _bind_single(kernel: KernelInfo) -> Run:
    """(keys, sorted keys, values, sorted values, elements, first bit, end of bits, decomposer)."""
    sort = _sorter(kernel, "DeviceRadixSortSingleTileKernel")
    unpack = unpacker(kernel, "QQQQqiis")

    def run(launch: Launch) -> None:
        keys, sorted_keys, values, sorted_values, count, first, end, _ = unpack(launch.args)
        sort(launch.memory, keys, sorted_keys, values, sorted_values, count, first, end)

    return run


def _bind_pass(kernel: KernelInfo) -> Run:
    """(.. scratch .., sorted keys, keys, sorted values, values, elements, first bit, bits, ..)."""
    sort = _sorter(kernel, "DeviceRadixSortOnesweepKernel")
    unpack = unpacker(kernel, "QQQQQQQQiiis")

    def run(launch: Launch) -> None:
        _, _, _, _, sorted_keys, keys, sorted_values, values, count, first, bits, _ = unpack(
            launch.args
        )
        end = first + bits
        sort(launch.memory, keys, sorted_keys, values, sorted_values, count, first, end)

    return run


def _bind_scratch(kernel: KernelInfo) -> Run:
    """Counts digits for the launches that follow; here they count for themselves."""

    def run(launch: Launch) -> None:
        return None

    return run


def _sorter(kernel: KernelInfo, template: str) -> Sort:
    """What sorts by some bits; keys and values may be of types that only their size matters of."""
    arguments = template_arguments(kernel.demangled, template)
    descending = not arguments[1].endswith(f"{_ASCENDING}")
    key = dtype(arguments[2])
    value = None if arguments[3].endswith("NullType") else element_type(arguments[3])
    if key.itemsize not in _BITS or key.is_complex:
        raise UnsupportedKernel(f"a radix sort of {key}")

    def sort(
        memory: Memory, keys: int, to_keys: int, values: int, to_values: int,
        count: int, first: int, end: int,
    ) -> None:  # fmt: skip
        size, one = (count,), (1,)
        numbers = memory.view(keys, key, size, one)
        order = _order(numbers, first, end, descending)
        memory.view(to_keys, key, size, one).copy_(numbers[order])
        if value is not None:
            moved = memory.view(values, value, size, one)[order]
            memory.view(to_values, value, size, one).copy_(moved)

    return sort


def _order(keys: Tensor, first: int, end: int, descending: bool) -> Tensor:
    """The places of the keys in sorted order, equal ones as they were."""
    bits = _comparable(keys)
    order = torch.arange(len(keys))
    for low in range(first, end, _PASS_BITS):
        mask = (1 << min(_PASS_BITS, end - low)) - 1
        digits = (bits >> low) & mask
        digits = mask - digits if descending else digits
        order = order[torch.sort(digits[order], stable=True).indices]
    return order


def _comparable(keys: Tensor) -> Tensor:
    """64-bit numbers whose low bits, as many as a key has, compare as the keys do."""
    width = 8 * keys.dtype.itemsize
    sign = -(1 << 63) if width == 64 else 1 << (width - 1)
    if keys.dtype.is_floating_point:
        keys = torch.where(keys == 0, torch.zeros_like(keys), keys)  # -0 counts as 0
    bits = keys.view(_BITS[keys.dtype.itemsize]).to(torch.int64)
    if keys.dtype in _UNSIGNED:
        return bits
    if keys.dtype.is_floating_point:
        return torch.where(bits < 0, ~bits, bits ^ sign)
    return bits ^ sign


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bDeviceRadixSortSingleTileKernel<", _bind_single),
        (r"\bDeviceRadixSortOnesweepKernel<", _bind_pass),
        (r"\bDeviceRadixSortHistogramKernel<", _bind_scratch),
        (r"\bDeviceRadixSortExclusiveSumKernel<", _bind_scratch),
    )
]
