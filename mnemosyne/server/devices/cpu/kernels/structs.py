"""Readers of the structures PyTorch's kernels take by value.

Layouts are those of the headers in the wheel: ATen/cuda/detail/OffsetCalculator.cuh,
IntegerDivider.cuh, TensorInfo.cuh. Sizes are checked against the kernel's parameter layout before
anything is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import SimpleNamespace
from typing import NamedTuple

import torch

from . import KernelInfo, UnsupportedKernel

MAX_DIMS = 25  # of OffsetCalculator and TensorInfo
_DIVIDER = 12  # IntDivider<unsigned int>: divisor, magic, shift

#: c10::ScalarType, as LoadWithCast and StoreWithCast hold it.
SCALAR_TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64,
    5: torch.float16, 6: torch.float32, 7: torch.float64, 8: torch.complex32,
    9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
    23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 25: torch.float8_e5m2fnuz,
    26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32, 29: torch.uint64,
    44: torch.float8_e8m0fnu,
}  # fmt: skip

#: struct codes by dtype; 16-bit floats that struct lacks are read by ``scalar``.
CODES = {
    torch.float32: "f", torch.float64: "d", torch.float16: "e", torch.bool: "?",
    torch.uint8: "B", torch.int8: "b", torch.int16: "h", torch.int32: "i", torch.int64: "q",
    torch.uint16: "H", torch.uint32: "I", torch.uint64: "Q",
}  # fmt: skip


def align(offset: int, to: int) -> int:
    """The next offset that is a multiple of ``to``."""
    return -(-offset // to) * to


def contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor of these sizes whose elements lie one behind the other."""
    return tuple(prod(sizes[dim + 1 :]) for dim in range(len(sizes)))


def structure(
    kernel: KernelInfo, members: Sequence[tuple[str, str]]
) -> Callable[[bytes], SimpleNamespace]:
    """What reads a structure that is the kernel's first argument.

    `members` are names and their letters of `struct`; the compiler's alignment is added.
    UnsupportedKernel unless the structure has the size that these members need.
    """
    layout = struct.Struct("@" + "".join(code for _, code in members))
    names = [name for name, _ in members]
    at, size = kernel.params[0]
    if align(layout.size, 8) != size:
        raise UnsupportedKernel(f"parameters of {size} bytes, expected {align(layout.size, 8)}")
    return lambda args: SimpleNamespace(
        **dict(zip(names, layout.unpack_from(args, at), strict=True))
    )


def scalar(data: bytes, offset: int, dtype: torch.dtype) -> float | int | bool | complex:
    """One value of ``dtype`` at a byte offset."""
    code = CODES.get(dtype)
    if code:
        value: float | int | bool = struct.unpack_from("<" + code, data, offset)[0]
        return value
    piece = bytearray(data[offset : offset + dtype.itemsize])
    return torch.frombuffer(piece, dtype=dtype).item()


def scalar_type(code: int) -> torch.dtype:
    """The dtype of a c10::ScalarType."""
    found = SCALAR_TYPES.get(code)
    if found is None:
        raise UnsupportedKernel(f"tensors of scalar type {code}")
    return found


class Geometry(NamedTuple):
    """Sizes, slowest dimension first, and for each tensor its strides in bytes."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


class OffsetCalculator:
    """Reads ``OffsetCalculator<tensors, unsigned int>``: dims, dividers, strides.

    Strides come as they are, in bytes or elements as the kernel has it. What lies behind the
    dimensions in use is not initialised and never read.
    """

    def __init__(self, tensors: int) -> None:
        self.tensors = max(tensors, 1)
        self.size = 4 + MAX_DIMS * _DIVIDER + MAX_DIMS * 4 * self.tensors
        self._formats = _formats(self.tensors)

    def read(self, data: bytes, offset: int) -> Geometry:
        """The geometry at a byte offset. Raises UnsupportedKernel for impossible dimensions."""
        if data[offset] > MAX_DIMS:
            raise UnsupportedKernel(f"an offset calculator of {data[offset]} dimensions")
        dims, *numbers = self._formats[data[offset]](data, offset)
        n, flat = self.tensors, numbers[dims:]
        sizes = tuple(numbers[dims - 1 :: -1]) if dims else ()
        return Geometry(sizes, tuple(tuple(flat[t::n][::-1]) for t in range(n)))


@lru_cache
def _formats(tensors: int) -> list[Callable[[bytes, int], tuple[int, ...]]]:
    """What reads a calculator of 0, 1, 2 ... dimensions."""
    return [
        struct.Struct(
            f"<i{'I8x' * dims}{(MAX_DIMS - dims) * _DIVIDER}x{dims * tensors}i"
        ).unpack_from
        for dims in range(MAX_DIMS + 1)
    ]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """``TensorInfo<T, IndexType>``: address, sizes and strides in elements."""

    data: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def tensor_info_size(index_bytes: int) -> int:
    """sizeof(TensorInfo) for an index type of 4 or 8 bytes."""
    return 8 + 2 * MAX_DIMS * index_bytes + 8


def read_tensor_info(data: bytes, offset: int, index_bytes: int) -> TensorInfo:
    """The TensorInfo at a byte offset. Raises UnsupportedKernel for impossible dimensions."""
    code = "I" if index_bytes == 4 else "Q"
    (pointer,) = struct.unpack_from("<Q", data, offset)
    (dims,) = struct.unpack_from("<i", data, offset + 8 + 2 * MAX_DIMS * index_bytes)
    if not 0 <= dims <= MAX_DIMS:
        raise UnsupportedKernel(f"a tensor of {dims} dimensions")
    sizes = struct.unpack_from(f"<{dims}{code}", data, offset + 8)
    strides = struct.unpack_from(f"<{dims}{code}", data, offset + 8 + MAX_DIMS * index_bytes)
    return TensorInfo(pointer, sizes, strides)


def check_tensor_infos(
    kernel: KernelInfo, count: int, index_bytes: int, first: int = 0
) -> tuple[int, ...]:
    """The offsets of arguments from the first on, which must all have the size of a TensorInfo."""
    size, params = tensor_info_size(index_bytes), kernel.params[first : first + count]
    if len(params) != count or any(found != size for _, found in params):
        raise UnsupportedKernel(f"{count} TensorInfos of {size} bytes expected: {params}")
    return tuple(offset for offset, _ in params)
