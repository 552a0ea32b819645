"""cuSPARSE's routines on 32-bit indices: sorting, compressing, and the pattern of a sum."""

from __future__ import annotations

import torch

from mnemosyne.server.devices.cpu.blas.operands import give
from mnemosyne.server.devices.cpu.libraries.descriptors import check_places, rows_of
from mnemosyne.server.devices.cpu.libraries.routines import Arguments, Routine, row
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.session import Outputs

_I32 = torch.int32


def offsets_of(rows: torch.Tensor, height: int) -> torch.Tensor:
    """Where each row begins, and the end, of sorted rows."""
    counts = torch.bincount(rows, minlength=height)
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])


def _identity(s: CpuSession, a: Arguments) -> Outputs:
    row(s, a.p, _I32, a.n).copy_(torch.arange(a.n))
    return None


def _compress(s: CpuSession, a: Arguments) -> Outputs:
    rows = row(s, a.rowInd, _I32, a.nnz).long() - a.idxBase
    check_places(rows, rows, a.m, a.m)
    row(s, a.rowPtr, _I32, a.m + 1).copy_(offsets_of(rows, a.m) + a.idxBase)
    return None


def _sort_coo(s: CpuSession, a: Arguments) -> Outputs:
    rows, columns, order = (row(s, at, _I32, a.nnz) for at in (a.rows, a.cols, a.P))
    _sort(rows.clone(), [rows, columns, order], columns)
    return None


def _sort_csr(s: CpuSession, a: Arguments) -> Outputs:
    rows = rows_of(row(s, a.rowPtr, _I32, a.m + 1), a.nnz)
    columns, order = (row(s, at, _I32, a.nnz) for at in (a.colInd, a.P))
    _sort(rows, [columns, order], columns)
    return None


def _sort(rows: torch.Tensor, moved: list[torch.Tensor], columns: torch.Tensor) -> None:
    """Moves all as rows, and columns within them, come in order."""
    by_column = columns.argsort(stable=True)
    order = by_column[rows[by_column].argsort(stable=True)]
    for tensor in moved:
        tensor.copy_(tensor[order])


def pattern(s: CpuSession, a: Arguments, which: str) -> torch.Tensor:
    """Where a CSR matrix A or B has elements, as rows and columns from 0."""
    count, pointers, columns = (getattr(a, f"{n}{which}") for n in ("nnz", "rowPtr", "colInd"))
    base = getattr(a, f"descr{which}").value.base
    rows = rows_of(row(s, pointers, _I32, a.m + 1), count)
    found = row(s, columns, _I32, count).long() - base
    check_places(rows, found, a.m, a.n)
    return torch.stack([rows, found])


def _sum_pattern(s: CpuSession, a: Arguments) -> Outputs:
    places = torch.cat([pattern(s, a, "A"), pattern(s, a, "B")], 1)
    rows = torch.unique(places[0] * a.n + places[1]) // a.n  # sorted, too
    base = a.descrC.value.base
    row(s, a.rowPtrC, _I32, a.m + 1).copy_(offsets_of(rows, a.m) + base)
    return give(s.memory, a.nnz, torch.tensor(len(rows), dtype=_I32))


def _no_zero_pivot(s: CpuSession, a: Arguments) -> Outputs:
    return give(s.memory, a.position, torch.tensor(-1, dtype=_I32))


ROUTINES: dict[str, Routine] = {
    "cusparseCreateIdentityPermutation": _identity,
    "cusparseXcoo2csr": _compress,
    "cusparseXcoosortByRow": _sort_coo,
    "cusparseXcsrsort": _sort_csr,
    "cusparseXcsrgeam2Nnz": _sum_pattern,
    "cusparseXbsrsv2_zeroPivot": _no_zero_pivot,
    "cusparseXbsrsm2_zeroPivot": _no_zero_pivot,
}
