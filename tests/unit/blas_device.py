"""Routines of cuBLAS on memory of a test's own: what the tests of the CPU device share."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import torch

from mnemosyne.server.devices.cpu import blas, lt
from mnemosyne.server.devices.cpu.memory import CpuMemory

HANDLERS = {**blas.HANDLERS, **lt.HANDLERS}
REGION = 2 << 20
PLAIN = {"S": torch.float32, "D": torch.float64, "C": torch.complex64, "Z": torch.complex128}
REAL = {"S": torch.float32, "D": torch.float64, "C": torch.float32, "Z": torch.float64}
FORMS = {
    torch.float32: "f", torch.float64: "d", torch.complex64: "ff", torch.complex128: "dd",
    torch.float16: "e", torch.int32: "i",
}  # fmt: skip


class Device:
    """A session as far as these handlers look at it, with an allocator that never frees."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(REGION + 512)
        self.next = -(-ctypes.addressof(self.buffer) // 512) * 512
        self.memory = CpuMemory()
        self.memory.add(self.next, REGION)
        self.end = self.next + REGION
        self.session = SimpleNamespace(
            memory=self.memory, blas_handle=lambda handle: None, check_stream=lambda stream: None
        )

    def put(self, tensor: torch.Tensor) -> int:
        """The address of a copy of these elements, in storage order."""
        flat = tensor.contiguous().view(-1)
        pointer, self.next = self.next, self.next + -(-flat.nbytes // 512) * 512
        assert self.next <= self.end
        self.memory.view(pointer, flat.dtype, flat.shape, (1,)).copy_(flat)
        return pointer

    def get(self, pointer: int, like: torch.Tensor) -> torch.Tensor:
        sizes = like.shape
        return self.memory.view(pointer, like.dtype, sizes, like.contiguous().stride()).clone()

    def call(self, name: str, *values: Any) -> Any:
        return HANDLERS[name](self.session, *values)


def sample(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(-9, 9, sizes).to(dtype)
    return torch.randn(sizes, dtype=torch.complex128 if dtype.is_complex else None).to(dtype)


def column_major(matrix: torch.Tensor, leading: int) -> torch.Tensor:
    """(..., rows, columns) as stored: (..., columns, leading), padded with NaN or 77."""
    fill = float("nan") if matrix.dtype.is_floating_point or matrix.dtype.is_complex else 77
    stored = torch.full((*matrix.shape[:-2], matrix.shape[-1], leading), fill).to(matrix.dtype)
    stored[..., : matrix.shape[-2]] = matrix.mT
    return stored


def operate(matrix: torch.Tensor, op: int) -> torch.Tensor:
    return (matrix, matrix.mT, matrix.mH)[op]


def host(value: complex, dtype: torch.dtype) -> bytes:
    form = FORMS[dtype]
    parts = (complex(value).real, complex(value).imag)[: len(form)]
    return struct.pack("<" + form, *(int(p) if form == "i" else p for p in parts))


def close(got: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(got, wanted.resolve_conj(), equal_nan=True)


class Steps:
    """A vector with a step, in the middle of memory that must stay as it is."""

    def __init__(self, device: Device, values: torch.Tensor, step: int) -> None:
        self.device, self.step, self.n = device, step, len(values)
        self.stored = sample(self.n, abs(step), dtype=values.dtype)
        self.stored[:, 0] = values.flip(0) if step < 0 else values
        self.pointer = device.put(self.stored)

    @property
    def args(self) -> tuple[int, int]:
        return self.pointer, self.step

    def get(self) -> torch.Tensor:
        now = self.device.get(self.pointer, self.stored)
        close(now[:, 1:], self.stored[:, 1:])
        return now[:, 0].flip(0) if self.step < 0 else now[:, 0]


class Square:
    """A matrix with rows to spare, of which every element outside of it is NaN."""

    def __init__(self, device: Device, values: torch.Tensor) -> None:
        self.device, self.rows = device, values.shape[0]
        self.stored = column_major(values, self.rows + 2)
        self.pointer = device.put(self.stored)

    @property
    def args(self) -> tuple[int, int]:
        return self.pointer, self.rows + 2

    def get(self) -> torch.Tensor:
        now = self.device.get(self.pointer, self.stored)
        assert now[:, self.rows :].isnan().all()
        return now[:, : self.rows].mT
