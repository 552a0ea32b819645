"""Matrix products on the CPU: which types go together, and column-major operands as tensors.

A product that is not in the table here is refused with "not supported", never computed wrongly.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError

#: cudaDataType of library_types.h.
DTYPES = {
    0: torch.float32, 1: torch.float64, 2: torch.float16, 14: torch.bfloat16,
    3: torch.int8, 10: torch.int32, 4: torch.complex64, 5: torch.complex128,
    28: torch.float8_e4m3fn, 29: torch.float8_e5m2,
}  # fmt: skip

_ONE = {
    torch.float16: struct.Struct("<e"),
    torch.float32: struct.Struct("<f"),
    torch.float64: struct.Struct("<d"),
    torch.int32: struct.Struct("<i"),
    torch.complex64: struct.Struct("<ff"),
    torch.complex128: struct.Struct("<dd"),
}
_F32, _F64, _I32 = torch.float32, torch.float64, torch.int32
_C64, _C128, _F16, _BF16 = torch.complex64, torch.complex128, torch.float16, torch.bfloat16

#: cublasComputeType_t of cublas_api.h: the real type that accumulates.
COMPUTE = {
    64: _F16, 65: _F16, 68: _F32, 69: _F32, 74: _F32, 75: _F32, 77: _F32, 78: _F32,
    70: _F64, 71: _F64, 79: _F64, 72: _I32, 73: _I32,
}  # fmt: skip

#: (type of A and B, type of C and D, accumulator). Operands are multiplied in the result's type;
#: torch accumulates products of 16-bit floats in 32 bits.
PRODUCTS = {
    (_F32, _F32, _F32), (_F64, _F64, _F64), (_C64, _C64, _F32), (_C128, _C128, _F64),
    (_F16, _F16, _F32), (_F16, _F16, _F16), (_F16, _F32, _F32),
    (_BF16, _BF16, _F32), (_BF16, _F32, _F32),
    (torch.int8, _I32, _I32), (torch.int8, _F32, _F32),
}  # fmt: skip
_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FP8 = (_E4M3, _E5M2)
#: Pairs of A and B in 8-bit floats, by what C and D can be (the table of cublasLtMatmul); their
#: products are added up in 32 bits.
_FP8_PRODUCTS = {
    (_E4M3, _E4M3): (_F32, _F16, _BF16, _E4M3),
    (_E4M3, _E5M2): (_F32, _F16, _BF16, _E4M3, _E5M2),
    (_E5M2, _E4M3): (_F32, _F16, _BF16, _E4M3, _E5M2),
}
_COMPLEX_OF = {_F32: _C64, _F64: _C128}

N, T, C = 0, 1, 2  # cublasOperation_t


@dataclass(frozen=True, slots=True)
class Types:
    """The types of one product: of A (and of B, if not 8-bit floats), of D, of alpha and beta."""

    operand: torch.dtype
    result: torch.dtype
    scale: torch.dtype


def types_of(a: int, b: int, c: int, compute: int) -> Types:
    """From cudaDataType and cublasComputeType_t. Raises CallError for what is not in the table."""
    operand, result, accumulator = DTYPES.get(a), DTYPES.get(c), COMPUTE.get(compute)
    if operand is None or result is None or accumulator is None or a != b:
        raise CallError(NOT_SUPPORTED, f"a product of types {a} and {b} to {c} by {compute}")
    if (operand, result, accumulator) not in PRODUCTS:
        raise CallError(NOT_SUPPORTED, f"a product of {operand} to {result} by {accumulator}")
    return Types(operand, result, _COMPLEX_OF[accumulator] if operand.is_complex else accumulator)


def eight_bit_types_of(a: int, b: int, c: int, compute: int) -> Types | None:
    """The types of a product of 8-bit floats; None where it is none that cublasLt computes."""
    operand, other, result = DTYPES.get(a), DTYPES.get(b), DTYPES.get(c)
    if operand is None or other is None or result is None or COMPUTE.get(compute) is not _F32:
        return None
    offered = result in _FP8_PRODUCTS.get((operand, other), ())
    return Types(operand, result, _F32) if offered else None


def scalar(memory: CpuMemory, value: bytes | int, dtype: torch.dtype) -> Any:
    """alpha or beta: bytes from the host, or a pointer to device memory."""
    form = _ONE[dtype]
    parts = form.unpack(_bytes_of(memory, value, form.size))
    return parts[0] if len(parts) == 1 else complex(*parts)


def read_scalars(
    memory: CpuMemory, value: bytes | int, dtype: torch.dtype, count: int
) -> tuple[float, ...]:
    """Several real ones in a row."""
    form = _ONE[dtype]
    data = _bytes_of(memory, value, form.size * count)
    return tuple(number for (number,) in form.iter_unpack(data))


def pack_scalar(value: Any, dtype: torch.dtype) -> bytes:
    """The bytes of a number, or of several real ones in a row."""
    form = _ONE[dtype]
    if isinstance(value, tuple):
        return b"".join(form.pack(number) for number in value)
    return form.pack(value.real, value.imag) if dtype.is_complex else form.pack(value)


def _bytes_of(memory: CpuMemory, value: bytes | int, size: int) -> bytes:
    data = memory.read(value, size) if isinstance(value, int) else value
    if len(data) != size:
        raise CallError(INVALID_VALUE, f"a scalar of {len(data)} bytes, not {size}")
    return data


@dataclass(frozen=True, slots=True)
class Matrix:
    """A column-major matrix in device memory, or ``batch`` of them ``stride`` elements apart."""

    pointer: int
    dtype: torch.dtype
    leading: int
    stride: int = 0
    batch: int | None = None

    def view(self, memory: CpuMemory, rows: int, columns: int, op: int = N) -> torch.Tensor:
        """As (rows, columns) *after* ``op``, with the batch in front if there is one."""
        if self.leading < max(1, columns if op else rows):
            raise CallError(INVALID_VALUE, f"a leading dimension of {self.leading}")
        steps = (self.leading, 1) if op else (1, self.leading)
        sizes: Sequence[int] = (rows, columns)
        if self.batch is not None:
            sizes, steps = (self.batch, *sizes), (self.stride, *steps)  # type: ignore[assignment]
        tensor = memory.view(self.pointer, self.dtype, sizes, steps)
        return tensor.conj() if op == C and self.dtype.is_complex else tensor


def multiply(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, out: torch.Tensor, alpha: Any, beta: Any
) -> None:
    """out = alpha * a @ b + beta * c, where ``c`` is not read when beta is 0."""
    if a.dtype is not out.dtype:
        a, b = a.to(out.dtype), b.to(out.dtype)
    plain = alpha == 1 and beta == 0
    if a.dim() == 2:
        if plain:
            torch.mm(a, b, out=out)
        else:
            torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)
    elif plain:
        torch.bmm(a, b, out=out)
    else:
        torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=out)


def check_sizes(*sizes: int) -> None:
    """Raises CallError for a negative size."""
    if min(sizes) < 0:
        raise CallError(INVALID_VALUE, f"a negative size among {sizes}")


def check_op(*ops: int) -> None:
    """Raises CallError for what is none of N, T and C."""
    if any(op not in (N, T, C) for op in ops):
        raise CallError(INVALID_VALUE, f"a transposition among {ops} that does not exist")
