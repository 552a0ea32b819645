"""Matrix products of cuBLAS on the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mnemosyne.server.devices.cpu.blas.operands import Routine, Scalar, Type
from mnemosyne.server.devices.cpu.matrices import (
    Matrix,
    Types,
    check_op,
    check_sizes,
    multiply,
    scalar,
    types_of,
)
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs


def _product(
    s: CpuSession, types: Types, ops: tuple[int, int], shape: tuple[int, int, int],
    alpha: Scalar, a: Matrix, b: Matrix, beta: Scalar, c: Matrix,
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


def _gemm(
    s: CpuSession, t: Type, transa: int, transb: int, m: int, n: int, k: int, alpha: Scalar, a: int,
    lda: int, b: int, ldb: int, beta: Scalar, c: int, ldc: int,
) -> Outputs:  # fmt: skip
    left, right = Matrix(a, t.element, lda), Matrix(b, t.element, ldb)
    types, out = _types(t.element), Matrix(c, t.element, ldc)
    return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)


def _types(dtype: torch.dtype) -> Types:
    return Types(dtype, dtype, dtype)


def _gemm_strided(letter: str) -> Callable[..., Outputs]:
    dtype = Type.of(letter, letter).element
    types = _types(dtype)

    def handler(
        s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int,
        alpha: Scalar, a: int, lda: int, stride_a: int, b: int, ldb: int, stride_b: int,
        beta: Scalar, c: int, ldc: int, stride_c: int, batch: int,
    ) -> Outputs:  # fmt: skip
        s.blas_handle(handle)
        left = Matrix(a, dtype, lda, stride_a, batch)
        right = Matrix(b, dtype, ldb, stride_b, batch)
        out = Matrix(c, dtype, ldc, stride_c, batch)
        return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)

    return handler


def _sgemm_ex(
    s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: Scalar,
    a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: Scalar, c: int,
    c_type: int, ldc: int,
) -> Outputs:  # fmt: skip
    return _gemm_ex(
        s, handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
        c_type, ldc, 68, 0,
    )  # fmt: skip


def _gemm_ex(
    s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: Scalar,
    a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: Scalar, c: int,
    c_type: int, ldc: int, compute: int, algo: int,
) -> Outputs:  # fmt: skip
    s.blas_handle(handle)
    types = types_of(a_type, b_type, c_type, compute)
    left, right = Matrix(a, types.operand, lda), Matrix(b, types.operand, ldb)
    out = Matrix(c, types.result, ldc)
    return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)


def _gemm_strided_ex(
    s: CpuSession, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: Scalar,
    a: int, a_type: int, lda: int, stride_a: int, b: int, b_type: int, ldb: int, stride_b: int,
    beta: Scalar, c: int, c_type: int, ldc: int, stride_c: int, batch: int, compute: int,
    algo: int,
) -> Outputs:  # fmt: skip
    s.blas_handle(handle)
    types = types_of(a_type, b_type, c_type, compute)
    left = Matrix(a, types.operand, lda, stride_a, batch)
    right = Matrix(b, types.operand, ldb, stride_b, batch)
    out = Matrix(c, types.result, ldc, stride_c, batch)
    return _product(s, types, (transa, transb), (m, n, k), alpha, left, right, beta, out)


ROUTINES: dict[str, Routine] = {"gemm_v2": _gemm}
HANDLERS: Handlers = {
    **{f"cublas{letter}gemmStridedBatched": _gemm_strided(letter) for letter in "SDCZ"},
    "cublasSgemmEx": _sgemm_ex,
    "cublasGemmEx": _gemm_ex,
    "cublasGemmStridedBatchedEx": _gemm_strided_ex,
}
