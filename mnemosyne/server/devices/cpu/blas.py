"""cuBLAS calls on the CPU device: matrix and vector products as torch operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mnemosyne.server.devices.cpu.matrices import (
    DTYPES,
    Matrix,
    Types,
    check_op,
    check_sizes,
    multiply,
    scalar,
    types_of,
)
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs

_Scalar = bytes | int
_PLAIN = {
    "S": Types(*[torch.float32] * 3),
    "D": Types(*[torch.float64] * 3),
    "C": Types(*[torch.complex64] * 3),
    "Z": Types(*[torch.complex128] * 3),
}


def _product(
    s: CpuSession, types: Types, ops: tuple[int, int], shape: tuple[int, int, int],
    alpha: _Scalar, a: Matrix, b: Matrix, beta: _Scalar, c: Matrix,
) -> Outputs:  # fmt: skip
    """C = alpha * op(A) @ op(B) + beta * C."""
    (m, n, k), memory = shape, s.memory
    check_op(*ops)
    check_sizes(m, n, k, 1 if c.batch is None else c.batch)
    if m == 0 or n == 0 or c.batch == 0:
        return None
    if c.batch is not None and c.batch > 1 and abs(c.stride) < c.leading * (n - 1) + m:
        raise CallError(NOT_SUPPORTED, "the results of a batch overlap")
    factors = scalar(memory, alpha, types.scale), scalar(memory, beta, types.scale)
    left, right = a.view(memory, m, k, ops[0]), b.view(memory, k, n, ops[1])
    out = c.view(memory, m, n)
    multiply(left, right, out, out, *factors)
    return None


def _gemm(letter: str) -> Callable[..., Outputs]:
    types = _PLAIN[letter]
    dtype = types.operand

    def handler(
        s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int,
        alpha: _Scalar, a: int, lda: int, b: int, ldb: int, beta: _Scalar, c: int, ldc: int,
    ) -> Outputs:  # fmt: skip
        s.blas_handle(handle)
        at = Matrix(a, dtype, lda), Matrix(b, dtype, ldb), Matrix(c, dtype, ldc)
        return _product(s, types, (transa, transb), (m, n, k), alpha, *at[:2], beta, at[2])

    return handler


def _gemm_strided(letter: str) -> Callable[..., Outputs]:
    types = _PLAIN[letter]
    dtype = types.operand

    def handler(
        s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int,
        alpha: _Scalar, a: int, lda: int, stride_a: int, b: int, ldb: int, stride_b: int,
        beta: _Scalar, c: int, ldc: int, stride_c: int, batch: int,
    ) -> Outputs:  # fmt: skip
        s.blas_handle(handle)
        left = Matrix(a, dtype, lda, stride_a, batch)
        right = Matrix(b, dtype, ldb, stride_b, batch)
        out = Matrix(c, dtype, ldc, stride_c, batch)
        return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)

    return handler


def _sgemm_ex(
    s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: _Scalar,
    a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: _Scalar, c: int,
    c_type: int, ldc: int,
) -> Outputs:  # fmt: skip
    return _gemm_ex(
        s, handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
        c_type, ldc, 68, 0,
    )  # fmt: skip


def _gemm_ex(
    s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: _Scalar,
    a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: _Scalar, c: int,
    c_type: int, ldc: int, compute: int, algo: int,
) -> Outputs:  # fmt: skip
    s.blas_handle(handle)
    types = types_of(a_type, b_type, c_type, compute)
    left, right = Matrix(a, types.operand, lda), Matrix(b, types.operand, ldb)
    out = Matrix(c, types.result, ldc)
    return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)


def _gemm_strided_ex(
    s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: _Scalar,
    a: int, a_type: int, lda: int, stride_a: int, b: int, b_type: int, ldb: int, stride_b: int,
    beta: _Scalar, c: int, c_type: int, ldc: int, stride_c: int, batch: int, compute: int,
    algo: int,
) -> Outputs:  # fmt: skip
    s.blas_handle(handle)
    types = types_of(a_type, b_type, c_type, compute)
    left = Matrix(a, types.operand, lda, stride_a, batch)
    right = Matrix(b, types.operand, ldb, stride_b, batch)
    out = Matrix(c, types.result, ldc, stride_c, batch)
    return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)


def _gemv(letter: str) -> Callable[..., Outputs]:
    dtype = _PLAIN[letter].operand

    def handler(
        s: CpuSession, handle: int, trans: int, m: int, n: int, alpha: _Scalar, a: int, lda: int,
        x: int, incx: int, beta: _Scalar, y: int, incy: int,
    ) -> Outputs:  # fmt: skip
        s.blas_handle(handle)
        check_op(trans)
        check_sizes(m, n)
        rows, columns = (n, m) if trans else (m, n)
        factors = scalar(s.memory, alpha, dtype), scalar(s.memory, beta, dtype)
        matrix = Matrix(a, dtype, lda).view(s.memory, rows, columns, trans)
        vector = _vector(s, x, dtype, columns, incx)
        out = _vector(s, y, dtype, rows, incy)
        torch.addmv(out, matrix, vector, alpha=factors[0], beta=factors[1], out=out)
        return None

    return handler


def _vector(s: CpuSession, pointer: int, dtype: torch.dtype, n: int, step: int) -> torch.Tensor:
    if step == 0:
        raise CallError(INVALID_VALUE, "a vector with a step of 0")
    if step < 0:
        raise CallError(NOT_SUPPORTED, "a vector that runs backwards")
    return s.memory.view(pointer, dtype, (n,), (step,))


def _dot(
    s: CpuSession, handle: int, kind: int, n: int, x: int, incx: int, y: int, incy: int, result: int
) -> Outputs:
    """The real dot product; to device memory, or as bytes in the reply when ``result`` is 0."""
    s.blas_handle(handle)
    dtype = DTYPES.get(kind)
    if dtype not in (torch.float32, torch.float64):
        raise CallError(NOT_SUPPORTED, f"a dot product of type {kind}")
    check_sizes(n)
    value = torch.dot(_vector(s, x, dtype, n, incx), _vector(s, y, dtype, n, incy))
    data: Any = value.numpy().tobytes()
    if result == 0:
        return (data,)
    s.memory.write(result, data)
    return (b"",)


HANDLERS: Handlers = {
    **{f"cublas{letter}gemm_v2": _gemm(letter) for letter in _PLAIN},
    **{f"cublas{letter}gemmStridedBatched": _gemm_strided(letter) for letter in _PLAIN},
    **{f"cublas{letter}gemv_v2": _gemv(letter) for letter in _PLAIN},
    "cublasSgemmEx": _sgemm_ex,
    "cublasGemmEx": _gemm_ex,
    "cublasGemmStridedBatchedEx": _gemm_strided_ex,
    "blas_dot": _dot,
}
