"""cuSPARSE's routines whose names say a type: matrices in blocks (BSR), and sums of CSR matrices.

A matrix in blocks becomes a dense one; ``dir`` says how the elements of a block lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from mnemosyne.api.cusparse import VARIANTS
from mnemosyne.server.devices.cpu.blas.operands import UPPER, operated, triangular
from mnemosyne.server.devices.cpu.libraries.descriptors import check_places, number, rows_of
from mnemosyne.server.devices.cpu.libraries.indices import pattern
from mnemosyne.server.devices.cpu.libraries.routines import Arguments, Routine, matrix, row
from mnemosyne.server.devices.cpu.matrices import check_op, check_sizes
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.session import Outputs

_ELEMENTS = {
    "S": torch.float32, "D": torch.float64, "C": torch.complex64, "Z": torch.complex128,
}  # fmt: skip
_COLUMNS_FIRST = 1  # CUSPARSE_DIRECTION_COLUMN
_UNIT = 1  # CUSPARSE_DIAG_TYPE_UNIT


def solve(matrix: torch.Tensor, given: torch.Tensor, upper: bool, diag: int) -> torch.Tensor:
    """The solution of a triangular system."""
    found: torch.Tensor = torch.linalg.solve_triangular(
        matrix, given, upper=upper, unitriangular=diag == _UNIT
    )
    return found


def _whole(s: CpuSession, t: torch.dtype, a: Arguments, height: int, width: int) -> torch.Tensor:
    """The dense matrix of ``height`` x ``width`` blocks."""
    size, base = a.blockDim, a.mat.value.base
    check_sizes(height, width, a.nnzb, size)
    rows = rows_of(row(s, a.rowPtr, torch.int32, height + 1), a.nnzb)
    columns = row(s, a.colInd, torch.int32, a.nnzb).long() - base
    check_places(rows, columns, height, width)
    found = row(s, a.values, t, a.nnzb * size * size).reshape(a.nnzb, size, size)
    blocks = torch.zeros(height, width, size, size, dtype=t)
    blocks[rows, columns] = found.mT if a.dir == _COLUMNS_FIRST else found
    return blocks.permute(0, 2, 1, 3).reshape(height * size, width * size)


def _add(out: torch.Tensor, product: torch.Tensor, alpha: Any, beta: Any) -> None:
    out.copy_(alpha * product if beta == 0 else alpha * product + beta * out)


def _bsrmm(s: CpuSession, t: torch.dtype, a: Arguments) -> None:
    check_op(a.transA, a.transB)
    left = operated(_whole(s, t, a, a.mb, a.kb), a.transA)
    inner = left.shape[1]
    rows, columns = (a.n, inner) if a.transB else (inner, a.n)
    right = operated(matrix(s, a.B, t, rows, columns, a.ldb), a.transB)
    out = matrix(s, a.C, t, left.shape[0], a.n, a.ldc)
    _add(out, left @ right, number(s, a.alpha, t), number(s, a.beta, t))


def _bsrmv(s: CpuSession, t: torch.dtype, a: Arguments) -> None:
    check_op(a.transA)
    left = operated(_whole(s, t, a, a.mb, a.nb), a.transA)
    out = row(s, a.y, t, left.shape[0])
    product = left @ row(s, a.x, t, left.shape[1])
    _add(out, product, number(s, a.alpha, t), number(s, a.beta, t))


def _bsrsv2(s: CpuSession, t: torch.dtype, a: Arguments) -> None:
    size = a.mb * a.blockDim
    given = row(s, a.f, t, size).unsqueeze(1)
    row(s, a.x, t, size).copy_(_solved(s, t, a, given).squeeze(1))


def _bsrsm2(s: CpuSession, t: torch.dtype, a: Arguments) -> None:
    """Transposed are both the right side and the solution."""
    check_op(a.transXY)
    size = a.mb * a.blockDim
    rows, columns = (a.n, size) if a.transXY else (size, a.n)
    given = operated(matrix(s, a.B, t, rows, columns, a.ldb), a.transXY)
    out = operated(matrix(s, a.X, t, rows, columns, a.ldx), 1 if a.transXY else 0)
    out.copy_(_solved(s, t, a, given))


def _solved(s: CpuSession, t: torch.dtype, a: Arguments, given: torch.Tensor) -> torch.Tensor:
    check_op(a.transA)
    d = a.mat.value
    whole = triangular(_whole(s, t, a, a.mb, a.mb), d.fillMode, a.transA, d.diagType)
    upper = (d.fillMode == UPPER) != bool(a.transA)
    return solve(whole, number(s, a.alpha, t) * given, upper, d.diagType)


def _csrgeam2(s: CpuSession, t: torch.dtype, a: Arguments) -> None:
    """C = alpha A + beta B, whose rows cusparseXcsrgeam2Nnz has found."""
    places = [pattern(s, a, which) for which in "AB"]
    values = [
        number(s, factor, t) * row(s, at, t, count)
        for factor, at, count in ((a.alpha, a.valuesA, a.nnzA), (a.beta, a.valuesB, a.nnzB))
    ]
    found = torch.sparse_coo_tensor(
        torch.cat(places, 1), torch.cat(values), (a.m, a.n), check_invariants=True
    ).coalesce()
    count = found.values().numel()
    row(s, a.colIndC, torch.int32, count).copy_(found.indices()[1] + a.descrC.value.base)
    row(s, a.valuesC, t, count).copy_(found.values())


_TYPED: dict[str, Callable[[CpuSession, torch.dtype, Arguments], None]] = {
    "bsrmm": _bsrmm, "bsrmv": _bsrmv, "bsrsv2_solve": _bsrsv2, "bsrsm2_solve": _bsrsm2,
    "csrgeam2": _csrgeam2,
}  # fmt: skip


def _run(routine: Callable[..., None], t: torch.dtype, s: CpuSession, a: Arguments) -> Outputs:
    routine(s, t, a)
    return None


ROUTINES: dict[str, Routine] = {
    name: partial(_run, _TYPED[stem], _ELEMENTS[letter])
    for name, (row_name, letter) in VARIANTS.items()
    if (stem := row_name.removeprefix("cusparse{}")) in _TYPED
}
