"""Kernels of index families with arguments packed by hand, over one buffer as memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from mnemosyne.server.devices.cpu.kernels import Launch
from mnemosyne.server.devices.cpu.kernels.table import bind
from mnemosyne.server.errors import DEVICE_ASSERT, CallError

BASE = 1 << 40
MASKED = (
    "at::native::launch_masked_scatter_kernel(at::TensorBase const&)::{lambda()#1}"
    "::operator()() const::{lambda(float, bool, long)#1}"
)


class Buffer:
    """Memory of 4 KiB; ``put`` copies a tensor there and gives its address."""

    def __init__(self) -> None:
        self._bytes = torch.zeros(4096, dtype=torch.uint8)
        self._used = 0

    def put(self, tensor: torch.Tensor) -> int:
        pointer = BASE + self._used
        self.view(pointer, tensor.dtype, tensor.shape, tensor.contiguous().stride()).copy_(tensor)
        self._used += -(-tensor.nbytes // 16) * 16
        return pointer

    def view(
        self, ptr: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]
    ) -> torch.Tensor:
        whole = self._bytes.view(dtype)
        return whole.as_strided(list(sizes), list(strides), (ptr - BASE) // dtype.itemsize)

    def get(self, pointer: int, like: torch.Tensor) -> torch.Tensor:
        return self.view(pointer, like.dtype, like.shape, like.contiguous().stride())


@dataclass(frozen=True)
class Kernel:
    demangled: str
    params: tuple[tuple[int, int], ...]
    name: str = "k"


def _layout(*sizes: int) -> tuple[tuple[int, int], ...]:
    """Arguments one after another, each aligned to its size, at most to 8."""
    params, end = [], 0
    for size in sizes:
        step = min(size, 8)
        start = -(-end // step) * step
        params.append((start, size))
        end = start + size
    return tuple(params)


def _run(name: str, sizes: Sequence[int], args: bytes, memory: Buffer) -> None:
    kernel = Kernel(name, _layout(*sizes))
    bind(kernel)(Launch(kernel, (1, 1, 1), (32, 1, 1), 0, args, memory))


def _accumulate(kind: str, table: torch.Tensor, slices: torch.Tensor, add: bool) -> torch.Tensor:
    memory = Buffer()
    where = torch.tensor([0, 2, 2, 2, 3])
    order = torch.tensor([4, 0, 1, 3, 2])
    pointers = [memory.put(tensor) for tensor in (where, order, slices, table)]
    args = struct.pack("<4Q4q?", *pointers, 5, table.shape[1], 0, 1, add)
    name = f"void at::native::indexing_backward_kernel<{kind}, 4>(long const*)"
    _run(name, [8] * 8 + [1], args, memory)
    return memory.get(pointers[3], table)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float", torch.float32), ("c10::BFloat16", torch.bfloat16)]
)
def test_slices_are_added_where_their_sorted_index_says(kind: str, dtype: torch.dtype) -> None:
    table, slices = torch.ones(4, 3, dtype=dtype), torch.arange(15.0).view(5, 3).to(dtype)
    expected = table.clone()
    expected[0] += slices[4]
    expected[2] += slices[0] + slices[1] + slices[3]
    expected[3] += slices[2]
    assert torch.equal(_accumulate(kind, table, slices, add=True), expected)


def test_the_last_of_several_slices_stays() -> None:
    table, slices = torch.ones(4, 3), torch.arange(15.0).view(5, 3)
    expected = table.clone()
    expected[0], expected[2], expected[3] = slices[4], slices[3], slices[2]
    assert torch.equal(_accumulate("float", table, slices, add=False), expected)


def _masked_tensors(memory: Buffer) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    own, mask = torch.zeros(2, 3), torch.tensor([[True, False, True], [False, True, True]])
    before = (mask.flatten().cumsum(0) - mask.flatten().long()).view(2, 3)
    source = memory.put(torch.arange(1.0, 6.0))
    pointers = [memory.put(tensor) for tensor in (own, own, mask, before)]
    expected = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]])
    return [source, *pointers], own, expected


def test_masked_scatter_of_contiguous_memory() -> None:
    memory = Buffer()
    (source, *pointers), own, expected = _masked_tensors(memory)
    args = struct.pack("<i4xQ8x4Q", 6, source, *pointers)
    name = f"void at::native::vectorized_elementwise_kernel<4, {MASKED}, std::array<char*, 4ul> >()"
    _run(name, [4, 16, 32], args, memory)
    assert torch.equal(memory.get(pointers[0], own), expected)


def test_masked_scatter_of_strided_memory() -> None:
    memory = Buffer()
    (source, *pointers), own, expected = _masked_tensors(memory)
    calculator = struct.pack("<i", 2) + struct.pack("<I8xI8x", 3, 2).ljust(300, b"\0")
    calculator += struct.pack("<8I", 4, 4, 1, 8, 12, 12, 3, 24).ljust(400, b"\0")
    args = struct.pack("<i4x", 6) + calculator + struct.pack("<4QQ16x", *pointers, source)
    lambda_ = f"at::native::gpu_kernel_impl_nocast<{MASKED}>(int)::{{lambda(int)#1}}"
    _run(f"void at::native::elementwise_kernel<128, 2, {lambda_}>(int)", [4, 760], args, memory)
    assert torch.equal(memory.get(pointers[0], own), expected)


@pytest.mark.parametrize("index", [5, -1])
def test_an_index_out_of_bounds_is_a_failed_assertion(index: int) -> None:
    memory = Buffer()
    pointers = [memory.put(torch.zeros(5, 2)), memory.put(torch.zeros(5, 2))]
    where = memory.put(torch.tensor([index]))
    args = struct.pack("<QQQi4xqqqq?", *pointers, where, 1, 8, 5, 8, 8, False)
    name = "void at::native::vectorized_gather_kernel<16, long>(char*)"
    with pytest.raises(CallError) as caught:
        _run(name, [8, 8, 8, 4, 8, 8, 8, 8, 1], args, memory)
    assert caught.value.code == DEVICE_ASSERT


def _segment_sums(starts: Sequence[int]) -> torch.Tensor:
    """Of the numbers 1 to 4."""
    memory, sums = Buffer(), torch.zeros(2)
    out, source = memory.put(sums), memory.put(torch.arange(1.0, 5.0))
    pointers = out, source, 0, memory.put(torch.tensor(starts))
    args = struct.pack("<i4x4Q2q?3xf7q", 3, *pointers, 2, 1, False, 0.0, 1, 1, 1, 4, 1, 2, 1)
    name = "void at::native::segment_reduce_forward_kernel<float, long>(int)"
    _run(name, [4, *[8] * 6, 1, 4, *[8] * 7], args, memory)
    return memory.get(out, sums)


def test_segments_are_added_up() -> None:
    assert _segment_sums([0, 3, 4]).tolist() == [6, 4]


@pytest.mark.parametrize("starts", [[0, 3, 5], [-1, 3, 4], [3, 0, 4]])
def test_segments_out_of_bounds_are_a_failed_assertion(starts: Sequence[int]) -> None:
    with pytest.raises(CallError) as caught:
        _segment_sums(starts)
    assert caught.value.code == DEVICE_ASSERT


@pytest.mark.parametrize("index", [5, -6])
def test_selecting_from_sparse_out_of_bounds_is_a_failed_assertion(index: int) -> None:
    memory = Buffer()
    pointers = [memory.put(torch.zeros(1, dtype=torch.int64)), memory.put(torch.tensor([index]))]
    args = struct.pack("<i4xq8xQQ", 1, 5, *pointers)
    lambda_ = "at::native::index_select_sparse_cuda(long)::{lambda()#1}::{lambda(long)#1}"
    name = f"void at::native::vectorized_elementwise_kernel<4, {lambda_}, x>(int)"
    with pytest.raises(CallError) as caught:
        _run(name, [4, 16, 16], args, memory)
    assert caught.value.code == DEVICE_ASSERT
