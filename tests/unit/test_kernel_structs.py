"""Structures that kernels take by value, built here as the headers declare them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
import torch

from mnemosyne.server.devices.cpu.kernels import UnsupportedKernel
from mnemosyne.server.devices.cpu.kernels.structs import (
    MAX_DIMS,
    OffsetCalculator,
    align,
    read_tensor_info,
    scalar,
    scalar_type,
    tensor_info_size,
)

JUNK = 0xA5A5A5A5
"""What lies in dimensions that are not in use: the kernels do not initialise them."""


def offset_calculator(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> bytes:
    """``sizes`` and each tensor's ``strides``, fastest dimension first as in the structure."""
    unused = MAX_DIMS - len(sizes)
    dividers = [word for size in sizes for word in (size, 1, 2)] + [JUNK] * (3 * unused)
    columns = [s[d] for d in range(len(sizes)) for s in strides] + [JUNK] * (unused * len(strides))
    return struct.pack(f"<i{len(dividers)}I{len(columns)}I", len(sizes), *dividers, *columns)


@pytest.mark.parametrize(("tensors", "size"), [(0, 404), (1, 404), (2, 504), (3, 604), (4, 704)])
def test_size_of_an_offset_calculator(tensors: int, size: int) -> None:
    assert OffsetCalculator(tensors).size == size
    assert len(offset_calculator([2], [[4]] * max(tensors, 1))) == size


def test_offset_calculator_comes_out_slowest_first() -> None:
    data = b"head" + offset_calculator([3, 5], [[4, 12], [20, 4]])
    sizes, strides = OffsetCalculator(2).read(data, 4)
    assert sizes == (5, 3)
    assert strides == ((12, 4), (4, 20))


def test_offset_calculator_without_dimensions() -> None:
    geometry = OffsetCalculator(2).read(offset_calculator([], [[], []]), 0)
    assert geometry == ((), ((), ()))


def test_offset_calculator_with_all_dimensions() -> None:
    data = offset_calculator(list(range(1, 26)), [list(range(25))])
    sizes, (strides,) = OffsetCalculator(1).read(data, 0)
    assert sizes == tuple(range(25, 0, -1))
    assert strides == tuple(range(24, -1, -1))


def test_impossible_dimensions() -> None:
    with pytest.raises(UnsupportedKernel, match="26 dimensions"):
        OffsetCalculator(1).read(struct.pack("<i", 26) + bytes(400), 0)


@pytest.mark.parametrize(("width", "code", "size"), [(4, "I", 216), (8, "Q", 416)])
def test_tensor_info(width: int, code: str, size: int) -> None:
    numbers = [2, 3, *[7] * 23, 30, 1, *[9] * 23]
    packed = struct.pack(f"<Q50{code}i", 0x7000, *numbers, 2)
    data = packed.ljust(size, b"\xff")
    assert tensor_info_size(width) == size
    assert read_tensor_info(data, 0, width) == read_tensor_info(b"12345678" + data, 8, width)
    info = read_tensor_info(data, 0, width)
    assert (info.data, info.sizes, info.strides) == (0x7000, (2, 3), (30, 1))


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (torch.float32, struct.pack("<f", 1.5), 1.5),
        (torch.float16, struct.pack("<e", -2.5), -2.5),
        (torch.bfloat16, b"\xc0\x3f", 1.5),
        (torch.int64, struct.pack("<q", -7), -7),
        (torch.uint8, b"\xff", 255),
        (torch.bool, b"\x01", True),
        (torch.complex64, struct.pack("<ff", 1, -2), 1 - 2j),
    ],
)
def test_one_value(kind: torch.dtype, data: bytes, value: complex) -> None:
    assert scalar(b"abc" + data, 3, kind) == value


def test_scalar_types() -> None:
    assert scalar_type(6) == torch.float32
    assert scalar_type(15) == torch.bfloat16
    with pytest.raises(UnsupportedKernel, match="99"):
        scalar_type(99)


def test_align() -> None:
    assert [align(n, 8) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
