"""Eigenvalues and singular values of cuSOLVER, as torch.linalg on column-major views.

What a routine gets as ``jobz`` says whether vectors are wanted. Batches lie one behind the other,
with the steps that a call names or, of ``syevjBatched`` and ``gesvdjBatched``, without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import torch

from mnemosyne.server.devices.cpu.blas.operands import UPPER
from mnemosyne.server.devices.cpu.libraries.routines import Arguments, Solve, matrix, row
from mnemosyne.server.devices.cpu.matrices import DTYPES, check_sizes
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import NOT_SUPPORTED, CallError

_VECTORS = 1  # CUSOLVER_EIG_MODE_VECTOR


def _one_behind_the_other(a: Arguments, **steps: int) -> Iterator[Arguments]:
    """The arguments for each matrix of a batch; ``steps`` in bytes, by pointer."""
    check_sizes(a.batchSize)
    for i in range(a.batchSize):
        moved = {name: getattr(a, name) + i * step for name, step in steps.items()}
        yield SimpleNamespace(**{**vars(a), **moved})


def _syevd(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.n)
    view = matrix(s, a.A, t, a.n, a.n, a.lda)
    found, vectors = torch.linalg.eigh(view, UPLO="U" if a.uplo == UPPER else "L")
    row(s, a.W, t.to_real(), a.n).copy_(found)
    if a.jobz == _VECTORS:
        view.copy_(vectors)
    return 0


def _syevd_batched(s: CpuSession, t: torch.dtype, a: Arguments) -> list[int]:
    steps = {"A": a.lda * a.n * t.itemsize, "W": a.n * t.to_real().itemsize}
    return [_syevd(s, t, one) for one in _one_behind_the_other(a, **steps)]


def _geev(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    check_sizes(a.n)
    if a.jobvl == _VECTORS:
        raise CallError(NOT_SUPPORTED, "left eigenvectors")
    found, vectors = torch.linalg.eig(matrix(s, a.A, t, a.n, a.n, a.lda))
    if DTYPES[a.typeW].is_complex:
        row(s, a.W, found.dtype, a.n).copy_(found)
    else:  # all real parts, then all imaginary ones
        row(s, a.W, t, 2 * a.n).copy_(torch.cat([found.real, found.imag]))
    if a.jobvr == _VECTORS:
        packed = vectors if DTYPES[a.typeVR].is_complex else _packed(found, vectors)
        matrix(s, a.VR, packed.dtype, a.n, a.n, a.ldvr).copy_(packed)
    return 0


def _packed(found: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Of a conjugate pair the real parts of the first and its imaginary parts, as LAPACK does."""
    return torch.where(found.imag < 0, vectors.imag.roll(1, dims=1), vectors.real)


def _svd(
    s: CpuSession, t: torch.dtype, a: Arguments, full: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """U and V^H; the values are stored."""
    check_sizes(a.m, a.n)
    view = matrix(s, a.A, t, a.m, a.n, a.lda)
    left, found, right = torch.linalg.svd(view, full_matrices=full)
    row(s, a.S, t.to_real(), len(found)).copy_(found)
    return left, right


def _gesvd(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    """Which vectors are wanted is a letter: All, Some, Overwrite A (not offered) or None."""
    wanted = chr(a.jobu), chr(a.jobvt)
    if "O" in wanted:
        raise CallError(NOT_SUPPORTED, "singular vectors in place of the matrix")
    left, right = _svd(s, t, a, "A" in wanted)
    few = min(a.m, a.n)
    if wanted[0] != "N":
        left = left if wanted[0] == "A" else left[:, :few]
        _put(s, a.U, a.ldu, left)
    if wanted[1] != "N":
        right = right if wanted[1] == "A" else right[:few]
        _put(s, a.VT, a.ldvt, right)
    return 0


def _store(s: CpuSession, a: Arguments, left: torch.Tensor, right: torch.Tensor) -> None:
    """U and V, of V^H."""
    if a.jobz == _VECTORS:
        _put(s, a.U, a.ldu, left)
        _put(s, a.V, a.ldv, right.mH)


def _put(s: CpuSession, pointer: int, leading: int, found: torch.Tensor) -> None:
    rows, columns = found.shape
    matrix(s, pointer, found.dtype, rows, columns, leading).copy_(found)


def _gesvdj(s: CpuSession, t: torch.dtype, a: Arguments) -> int:
    _store(s, a, *_svd(s, t, a, full=not a.econ))
    return 0


def _gesvdj_batched(s: CpuSession, t: torch.dtype, a: Arguments) -> list[int]:
    a.econ, size = 0, t.itemsize
    steps = {
        "A": a.lda * a.n * size, "U": a.ldu * a.m * size, "V": a.ldv * a.n * size,
        "S": min(a.m, a.n) * t.to_real().itemsize,
    }  # fmt: skip
    return [_gesvdj(s, t, one) for one in _one_behind_the_other(a, **steps)]


def _gesvda_batched(s: CpuSession, t: torch.dtype, a: Arguments) -> list[int]:
    """The ``rank`` largest values; ``residuals`` are those of an exact decomposition."""
    size = t.itemsize
    steps = {
        "A": a.strideA * size, "U": a.strideU * size, "V": a.strideV * size,
        "S": a.strideS * t.to_real().itemsize,
    }  # fmt: skip
    for one in _one_behind_the_other(a, **steps):
        left, right = _svd(s, t, one, full=False)
        _store(s, one, left[:, : a.rank], right[: a.rank])
    a.residuals = bytes(8 * a.batchSize)
    return [0] * a.batchSize


SOLVES: dict[str, Solve] = {
    "syevd": _syevd, "heevd": _syevd, "syevj": _syevd, "heevj": _syevd,
    "syevjBatched": _syevd_batched, "heevjBatched": _syevd_batched, "gesvd": _gesvd,
    "gesvdj": _gesvdj, "gesvdjBatched": _gesvdj_batched, "gesvdaStridedBatched": _gesvda_batched,
}  # fmt: skip
TOLD: dict[str, Solve] = {"syevd": _syevd, "syevBatched": _syevd_batched, "geev": _geev}
