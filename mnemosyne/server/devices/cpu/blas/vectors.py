"""Routines of cuBLAS on vectors. What ``n`` or a step of 0 or less means is cublas_api.h's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mnemosyne.server.devices.cpu.blas.operands import Routine, Scalar, Type, give, read, vector
from mnemosyne.server.devices.cpu.matrices import DTYPES
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import NOT_SUPPORTED, CallError
from mnemosyne.server.session import Outputs


def _axpy(
    s: CpuSession, t: Type, n: int, alpha: Scalar, x: int, incx: int, y: int, incy: int
) -> Outputs:
    (factor,) = read(s, t.scale, alpha)
    if n > 0:
        out = vector(s, y, t.element, n, incy)
        out.put(out.get() + factor * vector(s, x, t.element, n, incx).get())
    return None


def _copy(s: CpuSession, t: Type, n: int, x: int, incx: int, y: int, incy: int) -> Outputs:
    if n > 0:
        vector(s, y, t.element, n, incy).put(vector(s, x, t.element, n, incx).get())
    return None


def _swap(s: CpuSession, t: Type, n: int, x: int, incx: int, y: int, incy: int) -> Outputs:
    if n > 0:
        first, second = vector(s, x, t.element, n, incx), vector(s, y, t.element, n, incy)
        kept = first.get().clone()
        first.put(second.get())
        second.put(kept)
    return None


def _scal(s: CpuSession, t: Type, n: int, alpha: Scalar, x: int, incx: int) -> Outputs:
    (factor,) = read(s, t.scale, alpha)
    if n > 0 and incx > 0:
        vector(s, x, t.element, n, incx).memory.mul_(factor)
    return None


def _dot(conjugated: bool) -> Routine:
    def routine(
        s: CpuSession, t: Type, n: int, x: int, incx: int, y: int, incy: int, result: int
    ) -> Outputs:
        if n <= 0:
            return give(s.memory, result, torch.zeros((), dtype=t.element))
        left, right = (vector(s, p, t.element, n, step).get() for p, step in ((x, incx), (y, incy)))
        return give(s.memory, result, (torch.vdot if conjugated else torch.dot)(left, right))

    return routine


def dot_ex(
    s: CpuSession, handle: int, n: int, x: int, x_type: int, incx: int, y: int, y_type: int,
    incy: int, result: int, result_type: int, execution: int,
) -> Outputs:  # fmt: skip
    """The dot product of types by cudaDataType, added up in the last of them."""
    s.blas_handle(handle)
    types = [DTYPES.get(kind) for kind in (x_type, y_type, result_type, execution)]
    first, second, out, wide = types
    if first is None or first is not second or out is not first or wide is None:
        raise CallError(NOT_SUPPORTED, f"a dot product of types {x_type}, {y_type}, {result_type}")
    a_number = first.is_complex or (first.is_floating_point and first.itemsize > 1)
    if not a_number or wide.is_complex != first.is_complex:
        raise CallError(NOT_SUPPORTED, f"a dot product of {first} in type {execution}")
    n = max(n, 0)
    left, right = vector(s, x, first, n, incx).get(), vector(s, y, first, n, incy).get()
    return give(s.memory, result, torch.dot(left.to(wide), right.to(wide)).to(out))


def _reduce(reduction: Callable[[torch.Tensor], torch.Tensor]) -> Routine:
    """The result is real, and 0 where there is nothing to reduce."""

    def routine(s: CpuSession, t: Type, n: int, x: int, incx: int, result: int) -> Outputs:
        n = n if incx > 0 else 0
        values = vector(s, x, t.element, max(n, 0), max(incx, 1)).get()
        return give(s.memory, result, reduction(values))

    return routine


def _parts(x: torch.Tensor) -> torch.Tensor:
    """|x|, for a complex number the sum of its parts' amounts, as cuBLAS has it."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def _asum(x: torch.Tensor) -> torch.Tensor:
    return _parts(x).sum()


def _nrm2(x: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x)
    return norm


def _amax(x: torch.Tensor) -> torch.Tensor:
    """Of the first one, counted from 1."""
    index = _parts(x).argmax() + 1 if x.numel() else torch.zeros(())
    return index.to(torch.int32)


def _amin(x: torch.Tensor) -> torch.Tensor:
    index = _parts(x).argmin() + 1 if x.numel() else torch.zeros(())
    return index.to(torch.int32)


ROUTINES: dict[str, Routine] = {
    "amax_v2": _reduce(_amax),
    "amin_v2": _reduce(_amin),
    "asum_v2": _reduce(_asum),
    "axpy_v2": _axpy,
    "copy_v2": _copy,
    "dot_v2": _dot(False),
    "dotc_v2": _dot(True),
    "dotu_v2": _dot(False),
    "nrm2_v2": _reduce(_nrm2),
    "scal_v2": _scal,
    "swap_v2": _swap,
}
