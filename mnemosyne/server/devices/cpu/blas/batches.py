"""Routines of cuBLAS on batches of matrices that arrays of pointers in device memory name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mnemosyne.server.devices.cpu.blas.matrices import ROUTINES as SINGLE
from mnemosyne.server.devices.cpu.blas.operands import Routine, Scalar, Type
from mnemosyne.server.devices.cpu.blas.products import ROUTINES as PRODUCTS
from mnemosyne.server.devices.cpu.matrices import Matrix, N, T, check_op, check_sizes
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError, blas_status
from mnemosyne.server.session import Outputs


def pointers(s: CpuSession, array: int, count: int) -> list[int]:
    found: list[int] = s.memory.view(array, torch.int64, (count,), (1,)).tolist()
    return found


def _numbers(s: CpuSession, array: int, *sizes: int) -> torch.Tensor:
    """32-bit integers, the last size innermost."""
    strides = (sizes[-1], 1) if len(sizes) == 2 else (1,)
    return s.memory.view(array, torch.int32, sizes, strides)


def _gemm(
    s: CpuSession, t: Type, transa: int, transb: int, m: int, n: int, k: int, alpha: Scalar, a: int,
    lda: int, b: int, ldb: int, beta: Scalar, c: int, ldc: int, count: int,
) -> Outputs:  # fmt: skip
    check_sizes(m, n, k, count)
    lists = (pointers(s, array, count) for array in (a, b, c))
    for left, right, out in zip(*lists, strict=True):
        PRODUCTS["gemm_v2"](
            s, t, transa, transb, m, n, k, alpha, left, lda, right, ldb, beta, out, ldc
        )
    return None


def _trsm(
    s: CpuSession, t: Type, side: int, uplo: int, trans: int, diag: int, m: int, n: int,
    alpha: Scalar, a: int, lda: int, b: int, ldb: int, count: int,
) -> Outputs:  # fmt: skip
    check_sizes(m, n, count)
    if m == 0 or n == 0:  # PyTorch has no array for such matrices
        return None
    pairs = zip(pointers(s, a, count), pointers(s, b, count), strict=True)
    for matrix, given in pairs:
        SINGLE["trsm_v2"](s, t, side, uplo, trans, diag, m, n, alpha, matrix, lda, given, ldb)
    return None


def _getrf(
    s: CpuSession, t: Type, n: int, a: int, lda: int, pivots: int, infos: int, count: int
) -> Outputs:
    """L and U in place of A; without ``pivots`` no rows are exchanged."""
    check_sizes(n, count)
    info = _numbers(s, infos, count)
    order = _numbers(s, pivots, count, n) if pivots else None
    for i, pointer in enumerate(pointers(s, a, count)):
        matrix = Matrix(pointer, t.element, lda).view(s.memory, n, n)
        if order is None:
            info[i] = factorize(matrix)
            continue
        factors, exchanged, found = torch.linalg.lu_factor_ex(matrix)
        matrix.copy_(factors)
        order[i].copy_(exchanged)
        info[i] = int(found)
    return None


def factorize(matrix: torch.Tensor) -> int:
    """L and U in place, rows in their order; returns the first pivot that is 0, from 1, or 0."""
    first_zero = 0
    for k in range(matrix.shape[0]):
        if matrix[k, k] == 0:
            first_zero = first_zero or k + 1
            continue
        matrix[k + 1 :, k] /= matrix[k, k]
        matrix[k + 1 :, k + 1 :] -= torch.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return first_zero


def _getrs(
    s: CpuSession, t: Type, trans: int, n: int, nrhs: int, a: int, lda: int, pivots: int, b: int,
    ldb: int, count: int,
) -> Outputs:  # fmt: skip
    check_op(trans)
    check_sizes(n, nrhs, count)
    if n == 0 or nrhs == 0:
        return None
    straight = torch.arange(1, n + 1, dtype=torch.int32).expand(count, n)
    order = _numbers(s, pivots, count, n) if pivots else straight
    if ((order < 1) | (order > n)).any():
        raise CallError(INVALID_VALUE, f"pivots that are no rows of a matrix of {n} rows")
    pairs = zip(pointers(s, a, count), pointers(s, b, count), order, strict=True)
    for factors, given, exchanged in pairs:
        matrix = Matrix(factors, t.element, lda).view(s.memory, n, n)
        out = Matrix(given, t.element, ldb).view(s.memory, n, nrhs)
        out.copy_(solved(matrix, exchanged, out, trans))
    return None


def solved(
    factors: torch.Tensor, exchanged: torch.Tensor, given: torch.Tensor, trans: int
) -> torch.Tensor:
    right = given.conj() if trans == T else given
    found: torch.Tensor = torch.linalg.lu_solve(factors, exchanged, right, adjoint=trans != N)
    return found.conj() if trans == T else found


def _geqrf(
    s: CpuSession, t: Type, m: int, n: int, a: int, lda: int, tau: int, count: int
) -> Outputs:
    check_sizes(m, n, count)
    rank = min(m, n)
    if rank == 0:
        return None
    for pointer, scales in zip(pointers(s, a, count), pointers(s, tau, count), strict=True):
        matrix = Matrix(pointer, t.element, lda).view(s.memory, m, n)
        factors, found = torch.geqrf(matrix)
        matrix.copy_(factors)
        s.memory.view(scales, t.element, (rank,), (1,)).copy_(found)
    return None


def _gels(
    s: CpuSession, t: Type, trans: int, m: int, n: int, nrhs: int, a: int, lda: int, c: int,
    ldc: int, infos: int, count: int,
) -> Outputs:  # fmt: skip
    """Least squares by QR, which stays in A; X is the first n rows of C."""
    check_sizes(m, n, nrhs, count)
    if trans or m < n:
        raise CallError(NOT_SUPPORTED, "least squares with more columns than rows, or transposed")
    info = _numbers(s, infos, count) if infos else torch.zeros(count, dtype=torch.int32)
    pairs = zip(pointers(s, a, count), pointers(s, c, count), strict=True)
    for i, (pointer, given) in enumerate(pairs):
        matrix = Matrix(pointer, t.element, lda).view(s.memory, m, n)
        out = Matrix(given, t.element, ldc).view(s.memory, m, nrhs)
        info[i] = _least_squares(matrix, out)
    return None


def _least_squares(matrix: torch.Tensor, out: torch.Tensor) -> int:
    """Returns where the diagonal of R is 0, from 1; else 0, and ``out`` has the solution."""
    n = matrix.shape[1]
    factors, tau = torch.geqrf(matrix)
    matrix.copy_(factors)
    zeros = (factors.diagonal()[:n] == 0).nonzero()
    if len(zeros):
        return int(zeros[0]) + 1
    turned = torch.ormqr(factors, tau, out, transpose=True)
    solved = torch.linalg.solve_triangular(factors[:n].triu(), turned[:n], upper=True)
    out.copy_(torch.cat([solved, turned[n:]]))
    return 0


def _with_info(routine: Callable[..., Outputs]) -> Routine:
    """Says of the arguments what the library's own ``info`` says, and the status beside it."""

    def answered(s: CpuSession, t: Type, *values: int) -> Outputs:
        try:
            routine(s, t, *values)
        except CallError as error:
            if error.code != INVALID_VALUE:
                raise
            return -1, blas_status(error.code)
        return 0, 0

    return answered


ROUTINES: dict[str, Routine] = {
    "gemmBatched": _gemm,
    "trsmBatched": _trsm,
    "getrfBatched": _getrf,
    "getrsBatched": _with_info(_getrs),
    "geqrfBatched": _with_info(_geqrf),
    "gelsBatched": _with_info(_gels),
}
