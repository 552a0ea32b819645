"""cuSPARSE's generic routines: products and triangular systems of what descriptors describe.

Nothing has to be analysed here and no room is needed: such calls answer and do nothing. A product
of two sparse matrices waits in its descriptor from ``compute`` until ``copy`` knows where it goes.
"""

from __future__ import annotations

from typing import Any

import torch

from mnemosyne.api import SPEC
from mnemosyne.server.devices.cpu.blas.operands import UPPER, operated, triangular
from mnemosyne.server.devices.cpu.libraries import blocks, indices
from mnemosyne.server.devices.cpu.libraries.descriptors import (
    computed,
    dense,
    describes,
    element,
    number,
    set_attribute,
    sparse,
    vector,
)
from mnemosyne.server.devices.cpu.libraries.routines import Arguments, Routine, nothing, row, sizes
from mnemosyne.server.devices.cpu.matrices import check_op
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Outputs


def _scalars(s: CpuSession, a: Arguments) -> tuple[Any, Any]:
    kind = element(a.computeType)
    return number(s, a.alpha, kind), number(s, a.beta, kind)


def store(out: torch.Tensor, product: torch.Tensor, alpha: Any, beta: Any) -> None:
    """out = alpha * product + beta * out, where ``out`` is not read when beta is 0."""
    found = alpha * product
    out.copy_(found if beta == 0 else found + beta * computed(out))


def _spmm(s: CpuSession, a: Arguments) -> Outputs:
    check_op(a.opA, a.opB)
    alpha, beta = _scalars(s, a)
    for i in range(a.C.value.batchCount):
        left = sparse(s, a.A, i if a.A.value.batchCount > 1 else 0).operated(a.opA)
        right = operated(computed(dense(s, a.B, i)), a.opB)
        store(dense(s, a.C, i), torch.sparse.mm(left, right), alpha, beta)
    return None


def _spmv(s: CpuSession, a: Arguments) -> Outputs:
    check_op(a.opA)
    left, right = sparse(s, a.A).operated(a.opA), computed(vector(s, a.X))
    product = torch.sparse.mm(left, right.unsqueeze(1)).squeeze(1)
    store(vector(s, a.Y), product, *_scalars(s, a))
    return None


def _sddmm(s: CpuSession, a: Arguments) -> Outputs:
    """The elements of a dense product where C has some."""
    check_op(a.opA, a.opB)
    alpha, beta = _scalars(s, a)
    for i in range(a.C.value.batchCount):
        left = operated(computed(dense(s, a.A, i)), a.opA)
        right = operated(computed(dense(s, a.B, i)), a.opB)
        out = sparse(s, a.C, i)
        product = (left[out.rows] * right.mT[out.columns]).sum(1)
        store(out.values, product, alpha, beta)
    return None


def _spgemm_compute(s: CpuSession, a: Arguments) -> Outputs:
    check_op(a.opA, a.opB)
    if a.buffer == 0:
        return sizes(s, Arguments())
    alpha, beta = _scalars(s, a)
    found = alpha * torch.sparse.mm(sparse(s, a.A).operated(a.opA), sparse(s, a.B).operated(a.opB))
    if beta != 0 and a.C.value.nnz:
        found = found + beta * sparse(s, a.C).operated(0)
    a.descr.value = found.coalesce()
    a.C.value.nnz = a.descr.value.values().numel()
    return (a.bufferSize,)


def _spgemm_copy(s: CpuSession, a: Arguments) -> Outputs:
    found, c = a.descr.value, a.C.value
    if found is None or found.values().numel() != c.nnz:
        raise CallError(INVALID_VALUE, "a product that has not been computed")
    offsets = row(s, c.rowOffsets, torch.int32 if c.offsetsType == 2 else torch.int64, c.rows + 1)
    rows, columns = found.indices()
    offsets.copy_(indices.offsets_of(rows, c.rows) + c.idxBase)
    kind = torch.int32 if c.idxType == 2 else torch.int64
    row(s, c.colInd, kind, c.nnz).copy_(columns + c.idxBase)
    row(s, c.values, element(c.valueType), c.nnz).copy_(found.values())
    return None


def _spsv(s: CpuSession, a: Arguments) -> Outputs:
    out = vector(s, a.Y)
    out.copy_(_solved(s, a, vector(s, a.X).unsqueeze(1)).squeeze(1))
    return None


def _spsm(s: CpuSession, a: Arguments) -> Outputs:
    check_op(a.opB)
    dense(s, a.C).copy_(_solved(s, a, operated(dense(s, a.B), a.opB)))
    return None


def _solved(s: CpuSession, a: Arguments, given: torch.Tensor) -> torch.Tensor:
    check_op(a.opA)
    d, alpha = a.A.value, number(s, a.alpha, element(a.computeType))
    whole = sparse(s, a.A).operated(0).to_dense()
    matrix = triangular(whole, d.fillMode, a.opA, d.diagType)
    return blocks.solve(matrix, alpha * given, (d.fillMode == UPPER) != bool(a.opA), d.diagType)


def _size(s: CpuSession, a: Arguments) -> Outputs:
    d = a.sp.value
    return d.rows, d.cols, d.nnz


def _no_room(s: CpuSession, a: Arguments) -> Outputs:
    return sizes(s, Arguments())


_CALLS = {**SPEC.carried["cusparse_call"], **SPEC.carried["cusparse_run"]}
_MADE = {"Coo": "sp", "Csr": "sp", "DnMat": "dn", "DnVec": "vec", "MatDescr": "mat"}

ROUTINES: dict[str, Routine] = {
    **{name: nothing for name, call in _CALLS.items() if call.journal},
    **{name: nothing for name in _CALLS if name.endswith(("_analysis", "_preprocess"))},
    **{name: _no_room for name in _CALLS if "bufferSize" in name},
    **{f"cusparseCreate{name}": describes(kind) for name, kind in _MADE.items()},
    **{name: describes("mat") for name in _CALLS if name.startswith("cusparseSetMat")},
    "cusparseCsrSetPointers": describes("sp"),
    "cusparseCsrSetStridedBatch": describes("sp"),
    "cusparseDnMatSetStridedBatch": describes("dn"),
    "cusparseSpMatSetAttribute": set_attribute,
    "cusparseSpMatGetSize": _size,
    "cusparseSpMM": _spmm,
    "cusparseSpMV": _spmv,
    "cusparseSDDMM": _sddmm,
    "cusparseSpGEMM_workEstimation": _no_room,
    "cusparseSpGEMM_compute": _spgemm_compute,
    "cusparseSpGEMM_copy": _spgemm_copy,
    "cusparseSpSV_solve": _spsv,
    "cusparseSpSM_solve": _spsm,
    **indices.ROUTINES,
    **blocks.ROUTINES,
}
