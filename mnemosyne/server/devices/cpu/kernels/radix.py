"""cub's radix sorts: a launch sorts by some bits of the keys, stably, into another buffer.

How this works. A small sort is one launch over all wanted bits. A large one is a launch for each
digit of up to 8 bits; those before it count digits, which sorting here can do without. Keys become
unsigned integers of the same order, which a descending sort inverts. numpy sorts such integers of
8 and 16 bits by radix, several times faster than torch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import raw, raw_type

Bits = npt.NDArray[np.unsignedinteger]
Sides = tuple[int, int, int, int]

_UNSIGNED: dict[int, type[np.unsignedinteger]] = {
    1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64,
}  # fmt: skip
_OFFSET = struct.Struct("<ii")


class _Pairs:
    """Keys and values of a sorting kernel; how to sort keys by some of their bits."""

    def __init__(self, kernel: KernelInfo, name: str, order_at: int) -> None:
        arguments = template_arguments(kernel.demangled, name)
        order, key, value = arguments[order_at : order_at + 3]
        if not arguments[-1].endswith("identity_decomposer_t") or order[-2:] not in (")0", ")1"):
            raise UnsupportedKernel(f"a sort {order} of keys decomposed by {arguments[-1]}")
        self._kind = dtype(key)
        if self._kind.is_complex:
            raise UnsupportedKernel(f"a radix sort of {key}")
        self._key = raw(self._kind.itemsize)
        self._value = None if value.endswith("NullType") else raw_type(value)
        self._descending = order.endswith("1")

    def sort(
        self, memory: Memory, sides: Sides, shape: tuple[int, ...], begin: int, bits: int
    ) -> None:
        """Sorts the last dimension; sides are keys, sorted keys, values, sorted values."""
        keys_at, keys_out, values_at, values_out = sides
        steps = (shape[-1], 1)[-len(shape) :]
        keys = memory.view(keys_at, self._key, shape, steps)
        order = self._order(keys, begin, bits)
        moved = keys.gather(-1, order)
        if self._value is not None:
            values = memory.view(values_at, self._value, shape, steps).gather(-1, order)
            memory.view(values_out, self._value, shape, steps).copy_(values)
        memory.view(keys_out, self._key, shape, steps).copy_(moved)

    def _order(self, keys: Tensor, begin: int, bits: int) -> Tensor:
        digits = _ordered_bits(keys, self._kind)
        if self._descending:
            digits = ~digits
        if bits < 8 * self._kind.itemsize:
            kind = digits.dtype.type
            digits = np.bitwise_and(np.right_shift(digits, kind(begin)), kind((1 << bits) - 1))
        narrow = next(kind for size, kind in _UNSIGNED.items() if bits <= 8 * size)
        order = np.argsort(digits.astype(narrow, copy=False), axis=-1, kind="stable")
        return torch.from_numpy(order)


def _ordered_bits(keys: Tensor, kind: torch.dtype) -> Bits:
    """Keys of a kind, given as raw integers, as unsigned integers that compare like the keys.

    Zeros are equal; NaN is above all numbers, or with a sign below, as in cub.
    """
    numbers = keys.numpy()
    unsigned = _UNSIGNED[kind.itemsize]
    highest = unsigned(np.iinfo(unsigned).max // 2 + 1)
    if not kind.is_floating_point:
        bits: Bits = numbers.view(unsigned)
        if kind.is_signed:
            bits = np.bitwise_xor(bits, highest)
        return bits
    signed = numbers.view(f"i{kind.itemsize}")
    one, last = signed.dtype.type(1), signed.dtype.type(8 * kind.itemsize - 1)
    signed = np.where(signed << one == 0, signed.dtype.type(0), signed)
    flips = (signed >> last).view(unsigned)  # all bits of negative numbers
    ordered: Bits = np.bitwise_xor(signed.view(unsigned), np.bitwise_or(flips, highest))
    return ordered


def _bind_single_tile(kernel: KernelInfo) -> Run:
    """(keys, sorted keys, values, sorted values, n, first bit, end of bits, decomposer)."""
    pairs = _Pairs(kernel, "DeviceRadixSortSingleTileKernel", 1)
    unpack = unpacker(kernel, "QQQQniix")

    def run(launch: Launch) -> None:
        *sides, n, begin, end = unpack(launch.args)
        pairs.sort(launch.memory, _four(sides), (n,), begin, end - begin)

    return run


def _bind_onesweep(kernel: KernelInfo) -> Run:
    """(.., .., next bins, bins, sorted keys, keys, sorted values, values, n, first bit, bits, ..).

    There are next bins where the keys are too many for one launch.
    """
    pairs = _Pairs(kernel, "DeviceRadixSortOnesweepKernel", 1)
    unpack = unpacker(kernel, "QQQQQQQQiiix")

    def run(launch: Launch) -> None:
        _, _, more, _, keys_out, keys, values_out, values, n, begin, bits = unpack(launch.args)
        if more:
            raise UnsupportedKernel("a sort of more than 2**28 keys")
        pairs.sort(launch.memory, (keys, keys_out, values, values_out), (n,), begin, bits)

    return run


def _bind_downsweep(kernel: KernelInfo) -> Run:
    """(keys, sorted keys, values, sorted values, counts, n, first bit, bits, shares, ..)."""
    pairs = _Pairs(kernel, "DeviceRadixSortDownsweepKernel", 2)
    unpack = unpacker(kernel, "QQQQQniixx")

    def run(launch: Launch) -> None:
        *sides, _, n, begin, bits = unpack(launch.args)
        pairs.sort(launch.memory, _four(sides), (n,), begin, bits)

    return run


def _bind_segmented(kernel: KernelInfo) -> Run:
    """(keys, sorted keys, values, sorted values, starts, ends, first bit, bits, segments, ..).

    Starts and ends are an `offset_t`, stride and begin: of segment i it gives stride * (begin + i).
    """
    pairs = _Pairs(kernel, "DeviceSegmentedRadixSortKernel", 2)
    if kernel.demangled.count("::offset_t,") < 4:
        raise UnsupportedKernel("segments with other offsets")
    unpack = unpacker(kernel, "QQQQssiiix")

    def run(launch: Launch) -> None:
        *sides, starts, ends, begin, bits, count = unpack(launch.args)
        size, first = _OFFSET.unpack(starts)
        if first != 0 or _OFFSET.unpack(ends) != (size, 1) or count != launch.grid[0]:
            raise UnsupportedKernel("segments that are not the rows of a matrix")
        pairs.sort(launch.memory, _four(sides), (count, size), begin, bits)

    return run


def _four(sides: list[int]) -> Sides:
    keys, keys_out, values, values_out = sides
    return keys, keys_out, values, values_out


def _bind_scratch(kernel: KernelInfo) -> Run:
    """Counts digits for the launches that follow; here they do without."""

    def run(launch: Launch) -> None:
        return None

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bDeviceRadixSortSingleTileKernel<", _bind_single_tile),
    (r"\bDeviceRadixSortOnesweepKernel<", _bind_onesweep),
    (r"\bDeviceRadixSortDownsweepKernel<", _bind_downsweep),
    (r"\bDeviceSegmentedRadixSortKernel<", _bind_segmented),
    (r"\bDeviceRadixSort(Histogram|ExclusiveSum|Upsweep)Kernel<", _bind_scratch),
    (r"\bRadixSortScanBinsKernel<", _bind_scratch),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
