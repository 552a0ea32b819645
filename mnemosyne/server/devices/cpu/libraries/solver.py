"""The dense part of cuSOLVER, as torch's LAPACK routines on column-major views.

How this works: a routine is written once, for whatever type its matrices have, and returns how
LAPACK ended: that goes to ``info`` in device memory, one number for each matrix. The table at the
end has an entry for each call: of those whose names say the type, and of those that are told it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch

from mnemosyne.api import SPEC
from mnemosyne.api.cusolver import VARIANTS
from mnemosyne.server.devices.cpu.blas.batches import factorize, pointers, solved
from mnemosyne.server.devices.cpu.blas.operands import UPPER, put_triangle, triangle
from mnemosyne.server.devices.cpu.libraries import spectra
from mnemosyne.server.devices.cpu.libraries.routines import (
    Arguments,
    Routine,
    Solve,
    matrix,
    nothing,
    row,
    sizes,
)
from mnemosyne.server.devices.cpu.matrices import DTYPES, N, check_op, check_sizes
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Outputs

_ELEMENTS = {
    "S": torch.float32, "D": torch.float64, "C": torch.complex64, "Z": torch.complex128,
}  # fmt: skip
_LEFT = 0  # cublasSideMode_t


def _geqrf(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.m, a.n)
    if min(a.m, a.n) == 0:
        return 0
    view = matrix(s, a.A, t, a.m, a.n, a.lda)
    factors, tau = torch.geqrf(view)
    view.copy_(factors)
    row(s, a.tau, t, len(tau)).copy_(tau)
    return 0


def _getrf(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    """Without ``ipiv`` no rows are exchanged."""
    check_sizes(a.m, a.n)
    view = matrix(s, a.A, t, a.m, a.n, a.lda)
    if a.ipiv == 0:
        if a.m != a.n:
            raise CallError(NOT_SUPPORTED, "LU of an oblong matrix without exchanging rows")
        return factorize(view)
    factors, exchanged, info = torch.linalg.lu_factor_ex(view)
    view.copy_(factors)
    row(s, a.ipiv, torch.int32, len(exchanged)).copy_(exchanged)
    return int(info)


def _getrs(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.n, a.nrhs)
    check_op(a.trans)
    if a.n == 0 or a.nrhs == 0:
        return 0
    straight = torch.arange(1, a.n + 1, dtype=torch.int32)
    exchanged = row(s, a.ipiv, torch.int32, a.n) if a.ipiv else straight
    if ((exchanged < 1) | (exchanged > a.n)).any():
        raise CallError(INVALID_VALUE, f"pivots that are no rows of a matrix of {a.n} rows")
    out = matrix(s, a.B, t, a.n, a.nrhs, a.ldb)
    out.copy_(solved(matrix(s, a.A, t, a.n, a.n, a.lda), exchanged, out, a.trans))
    return 0


def _cholesky(s: CpuSession, t: torch.dtype, a: Arguments, pointer: int) -> int:
    check_sizes(a.n)
    view = matrix(s, pointer, t, a.n, a.n, a.lda)
    factor, info = torch.linalg.cholesky_ex(triangle(view, a.uplo), upper=a.uplo == UPPER)
    put_triangle(view, a.uplo, factor)
    return int(info)


def _cholesky_solve(s: CpuSession, t: torch.dtype, a: Arguments, factor: int, given: int) -> None:
    check_sizes(a.n, a.nrhs)
    out = matrix(s, given, t, a.n, a.nrhs, a.ldb)
    view = triangle(matrix(s, factor, t, a.n, a.n, a.lda), a.uplo)
    out.copy_(torch.cholesky_solve(out, view, upper=a.uplo == UPPER))


def _potrf(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    return _cholesky(s, t, a, a.A)


def _potrs(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    _cholesky_solve(s, t, a, a.A, a.B)
    return 0


def _potrf_batched(s: CpuSession, t: torch.dtype, a: Arguments) -> list[int]:
    check_sizes(a.batchSize)
    return [_cholesky(s, t, a, pointer) for pointer in pointers(s, a.Aarray, a.batchSize)]


def _potrs_batched(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    """``info`` is one number, of the arguments."""
    check_sizes(a.batchSize)
    arrays = (pointers(s, array, a.batchSize) for array in (a.Aarray, a.Barray))
    for factor, given in zip(*arrays, strict=True):
        _cholesky_solve(s, t, a, factor, given)
    return 0


def _sytrf(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.n)
    _check_lower(a.uplo)
    view = matrix(s, a.A, t, a.n, a.n, a.lda)
    factors, exchanged, info = torch.linalg.ldl_factor_ex(triangle(view, a.uplo))
    put_triangle(view, a.uplo, factors)
    row(s, a.ipiv, torch.int32, a.n).copy_(exchanged)
    return int(info)


def _sytrs(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.n, a.nrhs)
    _check_lower(a.uplo)
    exchanged = row(s, a.ipiv, torch.int64, a.n).int()
    out = matrix(s, a.B, t, a.n, a.nrhs, a.ldb)
    out.copy_(torch.linalg.ldl_solve(matrix(s, a.A, t, a.n, a.n, a.lda), exchanged, out))
    return 0


def _check_lower(uplo: int) -> None:
    if uplo == UPPER:
        raise CallError(NOT_SUPPORTED, "a symmetric factorisation of the upper triangle")


def _orgqr(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.m, a.n, a.k)
    view = matrix(s, a.A, t, a.m, a.n, a.lda)
    view.copy_(torch.linalg.householder_product(view, row(s, a.tau, t, a.k)))
    return 0


def _ormqr(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.m, a.n, a.k)
    check_op(a.trans)
    left = a.side == _LEFT
    reflectors = matrix(s, a.A, t, a.m if left else a.n, a.k, a.lda)
    out = matrix(s, a.C, t, a.m, a.n, a.ldc)
    tau = row(s, a.tau, t, a.k)
    out.copy_(torch.ormqr(reflectors, tau, out, left=left, transpose=a.trans != N))
    return 0


def _answered(solve: Solve, t: torch.dtype, s: CpuSession, a: Arguments) -> Outputs:
    """A call whose name says the type."""
    try:
        info = solve(s, t, a)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # it did not converge
        info = 1
    infos = list(info) if isinstance(info, Iterable) else [info]
    row(s, a.info, torch.int32, len(infos)).copy_(torch.tensor(infos, dtype=torch.int32))
    residuals = getattr(a, "residuals", None)
    return None if residuals is None else (residuals,)


def _told(solve: Solve, s: CpuSession, a: Arguments) -> Outputs:
    """A call that is told the type."""
    t = DTYPES.get(a.typeA)
    if t not in _ELEMENTS.values():
        raise CallError(NOT_SUPPORTED, f"matrices of type {a.typeA}")
    assert t is not None
    return _answered(solve, t, s, a)


_SOLVES: dict[str, Solve] = {
    "geqrf": _geqrf, "getrf": _getrf, "getrs": _getrs, "potrf": _potrf, "potrs": _potrs,
    "potrfBatched": _potrf_batched, "potrsBatched": _potrs_batched, "sytrf": _sytrf,
    "orgqr": _orgqr, "ungqr": _orgqr, "ormqr": _ormqr, "unmqr": _ormqr, **spectra.SOLVES,
}  # fmt: skip
_TOLD: dict[str, Solve] = {
    "geqrf": _geqrf, "potrf": _potrf, "potrs": _potrs, "sytrs": _sytrs, **spectra.TOLD,
}  # fmt: skip

_CALLS = {**SPEC.carried["cusolver_call"], **SPEC.carried["cusolver_run"]}

ROUTINES: dict[str, Routine] = {
    **{name: nothing for name, call in _CALLS.items() if call.journal},
    **{name: sizes for name in _CALLS if name.endswith("_bufferSize")},
    **{
        name: partial(_answered, _SOLVES[stem], _ELEMENTS[letter])
        for name, (pattern, letter) in VARIANTS.items()
        if (stem := pattern.removeprefix("cusolverDn{}")) in _SOLVES
    },
    **{f"cusolverDnX{stem}": partial(_told, solve) for stem, solve in _TOLD.items()},
}
