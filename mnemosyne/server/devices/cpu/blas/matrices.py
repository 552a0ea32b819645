"""Routines of cuBLAS on one matrix, with vectors or further matrices; see cublas_api.h."""

from __future__ import annotations

from typing import Any

import torch

from mnemosyne.server.devices.cpu.blas.operands import (
    Routine,
    Scalar,
    Type,
    check_choices,
    put_triangle,
    read,
    triangular,
    vector,
    whole,
)
from mnemosyne.server.devices.cpu.matrices import Matrix, check_op, check_sizes
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.session import Outputs

_LEFT = 0  # cublasSideMode_t


def _view(
    s: CpuSession, t: Type, pointer: int, leading: int, rows: int, columns: int
) -> torch.Tensor:
    return Matrix(pointer, t.element, leading).view(s.memory, rows, columns)


def _plus(product: torch.Tensor, beta: Any, old: torch.Tensor) -> torch.Tensor:
    """product + beta * old, where ``old`` is not read when beta is 0."""
    return product + beta * old if beta else product


def _gemv(
    s: CpuSession, t: Type, trans: int, m: int, n: int, alpha: Scalar, a: int, lda: int, x: int,
    incx: int, beta: Scalar, y: int, incy: int,
) -> Outputs:  # fmt: skip
    check_op(trans)
    check_sizes(m, n)
    if m == 0 or n == 0:
        return None
    rows, columns = (n, m) if trans else (m, n)
    factors = read(s, t.element, alpha, beta)
    matrix = Matrix(a, t.element, lda).view(s.memory, rows, columns, trans)
    given, out = vector(s, x, t.element, columns, incx), vector(s, y, t.element, rows, incy)
    old = out.get()
    out.put(torch.addmv(old, matrix, given.get(), alpha=factors[0], beta=factors[1]))
    return None


def _ger(conjugated: bool) -> Routine:
    def routine(
        s: CpuSession, t: Type, m: int, n: int, alpha: Scalar, x: int, incx: int, y: int,
        incy: int, a: int, lda: int,
    ) -> Outputs:  # fmt: skip
        check_sizes(m, n)
        (factor,) = read(s, t.element, alpha)
        column, row = (
            vector(s, x, t.element, m, incx).get(),
            vector(s, y, t.element, n, incy).get(),
        )
        matrix = _view(s, t, a, lda, m, n)
        matrix.add_(torch.outer(column, row.conj() if conjugated else row), alpha=factor)
        return None

    return routine


def _symv(hermitian: bool) -> Routine:
    def routine(
        s: CpuSession, t: Type, uplo: int, n: int, alpha: Scalar, a: int, lda: int, x: int,
        incx: int, beta: Scalar, y: int, incy: int,
    ) -> Outputs:  # fmt: skip
        check_choices(uplo=uplo)
        check_sizes(n)
        factors = read(s, t.element, alpha, beta)
        matrix = whole(_view(s, t, a, lda, n, n), uplo, hermitian)
        out = vector(s, y, t.element, n, incy)
        product = factors[0] * (matrix @ vector(s, x, t.element, n, incx).get())
        out.put(_plus(product, factors[1], out.get()))
        return None

    return routine


def _update(matrix: torch.Tensor, uplo: int, new: torch.Tensor, hermitian: bool) -> None:
    """Stores a triangle; the diagonal of a Hermitian matrix is real."""
    if hermitian:
        new.diagonal().copy_(new.diagonal().real.clone())
    put_triangle(matrix, uplo, new)


def _syr(hermitian: bool) -> Routine:
    def routine(
        s: CpuSession, t: Type, uplo: int, n: int, alpha: Scalar, x: int, incx: int, a: int,
        lda: int,
    ) -> Outputs:  # fmt: skip
        check_choices(uplo=uplo)
        check_sizes(n)
        (factor,) = read(s, _scale(t, hermitian), alpha)
        matrix, column = _view(s, t, a, lda, n, n), vector(s, x, t.element, n, incx).get()
        other = column.conj() if hermitian else column
        _update(matrix, uplo, matrix + factor * torch.outer(column, other), hermitian)
        return None

    return routine


def _syr2(hermitian: bool) -> Routine:
    def routine(
        s: CpuSession, t: Type, uplo: int, n: int, alpha: Scalar, x: int, incx: int, y: int,
        incy: int, a: int, lda: int,
    ) -> Outputs:  # fmt: skip
        check_choices(uplo=uplo)
        check_sizes(n)
        (factor,) = read(s, t.element, alpha)
        left, right = vector(s, x, t.element, n, incx).get(), vector(s, y, t.element, n, incy).get()
        matrix = _view(s, t, a, lda, n, n)
        product = factor * torch.outer(left, right.conj() if hermitian else right)
        both = product + (product.mH if hermitian else product.mT)
        _update(matrix, uplo, matrix + both, hermitian)
        return None

    return routine


def _trmv(solve: bool) -> Routine:
    """x = op(A) x, or the x that solves op(A) x = b, in place of b."""

    def routine(
        s: CpuSession, t: Type, uplo: int, trans: int, diag: int, n: int, a: int, lda: int, x: int,
        incx: int,
    ) -> Outputs:  # fmt: skip
        _check_triangle(uplo, trans, diag, n)
        matrix = _view(s, t, a, lda, n, n)
        given = vector(s, x, t.element, n, incx)
        factor = triangular(matrix, uplo, trans, diag)
        if solve:
            given.put(_solved(factor, given.get().unsqueeze(1), uplo, trans).squeeze(1))
        else:
            given.put(factor @ given.get())
        return None

    return routine


def _check_triangle(uplo: int, trans: int, diag: int, *sizes: int) -> None:
    check_choices(uplo=uplo, diag=diag)
    check_op(trans)
    check_sizes(*sizes)


def _solved(
    factor: torch.Tensor, given: torch.Tensor, uplo: int, trans: int, left: bool = True
) -> torch.Tensor:
    """``factor`` has been transposed already, so that its triangle may be the other one."""
    upper = bool(uplo) != bool(trans)
    found: torch.Tensor = torch.linalg.solve_triangular(factor, given, upper=upper, left=left)
    return found


def _symm(hermitian: bool) -> Routine:
    def routine(
        s: CpuSession, t: Type, side: int, uplo: int, m: int, n: int, alpha: Scalar, a: int,
        lda: int, b: int, ldb: int, beta: Scalar, c: int, ldc: int,
    ) -> Outputs:  # fmt: skip
        check_choices(side=side, uplo=uplo)
        check_sizes(m, n)
        factors, size = read(s, t.element, alpha, beta), m if side == _LEFT else n
        matrix = whole(_view(s, t, a, lda, size, size), uplo, hermitian)
        other, out = _view(s, t, b, ldb, m, n), _view(s, t, c, ldc, m, n)
        product = factors[0] * (matrix @ other if side == _LEFT else other @ matrix)
        out.copy_(_plus(product, factors[1], out))
        return None

    return routine


def _rank_k(hermitian: bool) -> Routine:
    """C = alpha op(A) op(A)^T + beta C, or with the adjoint."""

    def routine(
        s: CpuSession, t: Type, uplo: int, trans: int, n: int, k: int, alpha: Scalar, a: int,
        lda: int, beta: Scalar, c: int, ldc: int,
    ) -> Outputs:  # fmt: skip
        _check_triangle(uplo, trans, 0, n, k)
        factors = read(s, t.real if hermitian else t.element, alpha, beta)
        left, right = _factors(
            _view(s, t, a, lda, *((k, n) if trans else (n, k))), trans, hermitian
        )
        out = _view(s, t, c, ldc, n, n)
        _update(out, uplo, _plus(factors[0] * (left @ right), factors[1], out), hermitian)
        return None

    return routine


def _factors(
    matrix: torch.Tensor, trans: int, hermitian: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    other = matrix.mH if hermitian else matrix.mT
    return (other, matrix) if trans else (matrix, other)


def _rank_2k(hermitian: bool) -> Routine:
    """C = alpha op(A) op(B)^T + alpha op(B) op(A)^T + beta C, or with adjoints."""

    def routine(
        s: CpuSession, t: Type, uplo: int, trans: int, n: int, k: int, alpha: Scalar, a: int,
        lda: int, b: int, ldb: int, beta: Scalar, c: int, ldc: int,
    ) -> Outputs:  # fmt: skip
        _check_triangle(uplo, trans, 0, n, k)
        (factor,), (old,) = read(s, t.element, alpha), read(s, _scale(t, hermitian), beta)
        shape = (k, n) if trans else (n, k)
        first, second = _view(s, t, a, lda, *shape), _view(s, t, b, ldb, *shape)
        left, _ = _factors(first, trans, hermitian)
        _, right = _factors(second, trans, hermitian)
        product = factor * (left @ right)
        both = product + (product.mH if hermitian else product.mT)
        out = _view(s, t, c, ldc, n, n)
        _update(out, uplo, _plus(both, old, out), hermitian)
        return None

    return routine


def _scale(t: Type, hermitian: bool) -> torch.dtype:
    return t.real if hermitian else t.element


def _trmm(
    s: CpuSession, t: Type, side: int, uplo: int, trans: int, diag: int, m: int, n: int,
    alpha: Scalar, a: int, lda: int, b: int, ldb: int, c: int, ldc: int,
) -> Outputs:  # fmt: skip
    _check_triangle(uplo, trans, diag, m, n)
    check_choices(side=side)
    (factor,), size = read(s, t.element, alpha), m if side == _LEFT else n
    matrix = triangular(_view(s, t, a, lda, size, size), uplo, trans, diag)
    other = _view(s, t, b, ldb, m, n)
    product = matrix @ other if side == _LEFT else other @ matrix
    _view(s, t, c, ldc, m, n).copy_(factor * product)
    return None


def _trsm(
    s: CpuSession, t: Type, side: int, uplo: int, trans: int, diag: int, m: int, n: int,
    alpha: Scalar, a: int, lda: int, b: int, ldb: int,
) -> Outputs:  # fmt: skip
    _check_triangle(uplo, trans, diag, m, n)
    check_choices(side=side)
    (factor,), size = read(s, t.element, alpha), m if side == _LEFT else n
    out = _view(s, t, b, ldb, m, n)
    if m == 0 or n == 0:
        return None
    matrix = triangular(_view(s, t, a, lda, size, size), uplo, trans, diag)
    out.copy_(_solved(matrix, factor * out, uplo, trans, side == _LEFT))
    return None


ROUTINES: dict[str, Routine] = {
    "gemv_v2": _gemv,
    "ger_v2": _ger(False),
    "gerc_v2": _ger(True),
    "geru_v2": _ger(False),
    "hemm_v2": _symm(True),
    "hemv_v2": _symv(True),
    "her_v2": _syr(True),
    "her2_v2": _syr2(True),
    "her2k_v2": _rank_2k(True),
    "herk_v2": _rank_k(True),
    "symm_v2": _symm(False),
    "symv_v2": _symv(False),
    "syr_v2": _syr(False),
    "syr2_v2": _syr2(False),
    "syr2k_v2": _rank_2k(False),
    "syrk_v2": _rank_k(False),
    "trmm_v2": _trmm,
    "trmv_v2": _trmv(False),
    "trsm_v2": _trsm,
    "trsv_v2": _trmv(True),
}
