"""Linear algebra that PyTorch gives to cuSOLVER, against LAPACK on the CPU.

Vectors of a decomposition are determined up to a factor: what is compared is their product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

L = torch.linalg
LARGE = 65
#: Or PyTorch solves some with kernels of MAGMA, which the CPU device has not.
torch.backends.cuda.preferred_linalg_library("cusolver")
KINDS = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def compare(got: Tensor, wanted: Tensor) -> None:
    """Both may add up in another order: a few roundings, for matrices as sound as these."""
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4, check_stride=False)


def values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(sizes) + sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=kind).to(device)


def sound(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    """Matrices that are far from singular."""
    return values(device, *sizes, kind=kind) + 5 * torch.eye(*sizes[-2:], dtype=kind, device=device)


def large(device: torch.device, kind: torch.dtype) -> Tensor:
    a = values(device, LARGE, LARGE, kind=kind)
    return a + 30 * torch.eye(LARGE, dtype=kind, device=device)


def positive(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    a = values(device, *sizes, kind=kind)
    return a @ a.mH + 5 * torch.eye(sizes[-1], dtype=kind, device=device)


def hermitian(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    a = values(device, *sizes, kind=kind)
    return a + a.mH


def _lu(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = large(device, kind), values(device, LARGE, 3, kind=kind)
    factors = L.lu_factor(a)
    solved = [
        L.lu_solve(*factors, b if left else b.mT, left=left, adjoint=adjoint)
        for left in (True, False) for adjoint in (True, False)
    ]  # fmt: skip
    return [*factors, *L.lu(values(device, 5, 7, kind=kind)), *solved]


def _solve(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = large(device, kind), values(device, LARGE, 3, kind=kind)
    return [L.solve(a, b), L.solve(a, b[:, 0]), L.inv(a), L.inv_ex(a).info]


def _cholesky(*batch: int, upper: bool) -> Callable[[torch.device, torch.dtype], Tensors]:
    def case(device: torch.device, kind: torch.dtype) -> Tensors:
        a = positive(device, *batch, 5, 5, kind=kind)
        factor = L.cholesky(a, upper=upper)
        one, many = values(device, *batch, 5, 1, kind=kind), values(device, *batch, 5, 3, kind=kind)
        solved = [torch.cholesky_solve(b, factor, upper=upper) for b in (one, many)]
        return [factor, *solved, torch.cholesky_inverse(factor, upper=upper)]

    return case


def _not_positive(device: torch.device) -> Tensors:
    a = positive(device, 2, 4, 4)
    a[1, 2, 2] = -9
    return [L.cholesky_ex(a).info, L.cholesky_ex(a[1]).info]


def _qr(device: torch.device, kind: torch.dtype) -> Tensors:
    a = values(device, 8, 3, kind=kind)
    q, r = L.qr(a)
    whole, _ = L.qr(a, mode="complete")
    factors, tau = torch.geqrf(a)
    c = values(device, 8, 2, kind=kind)
    turned = [
        torch.ormqr(factors, tau, c if left else c.mT, left=left, transpose=transpose)
        for left in (True, False) for transpose in (True, False)
    ]  # fmt: skip
    return [q, r, whole, factors, tau, *turned, L.householder_product(factors, tau)]


def _eigh(*batch: int) -> Callable[[torch.device, torch.dtype], Tensors]:
    def case(device: torch.device, kind: torch.dtype) -> Tensors:
        a = hermitian(device, *batch, 6, 6, kind=kind)
        found = []
        for uplo in "LU":
            w, v = L.eigh(a, UPLO=uplo)
            found += [w, v * w.unsqueeze(-2) @ v.mH, L.eigvalsh(a, UPLO=uplo)]
        return found

    return case


def _eig(device: torch.device, kind: torch.dtype) -> Tensors:
    a = values(device, 5, 5, kind=kind)
    w, v = L.eig(a)
    return [w, v * w @ L.inv(v), L.eigvals(a)]


def _svd(*sizes: int, driver: str | None) -> Callable[[torch.device, torch.dtype], Tensors]:
    def case(device: torch.device, kind: torch.dtype) -> Tensors:
        a = values(device, *sizes, kind=kind)
        chosen = driver if device.type == "cuda" else None
        found = []
        for full in (False, True)[: 1 if driver == "gesvda" else 2]:  # it finds no others
            u, s, v = L.svd(a, full_matrices=full, driver=chosen)
            few = s.shape[-1]
            found += [s, u[..., :few] * s.unsqueeze(-2) @ v[..., :few, :], u.mH @ u, v @ v.mH]
        return [*found, L.svdvals(a, driver=chosen)]

    return case


def _ldl(device: torch.device, kind: torch.dtype) -> Tensors:
    a = hermitian(device, 5, 5, kind=kind)
    a = a.real.to(kind) + 1j * a.real if kind.is_complex else a
    factors, exchanged = L.ldl_factor(a)
    return [factors, exchanged, L.ldl_solve(factors, exchanged, values(device, 5, 2, kind=kind))]


def _derived(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = values(device, 8, 3, kind=kind), values(device, 8, 2, kind=kind)
    return [L.lstsq(a, b).solution, L.pinv(a), L.matrix_rank(a), L.cond(a), L.matrix_norm(a, 2)]


def _gradients(device: torch.device) -> Tensors:
    a = positive(device, 4, 4).requires_grad_()
    (L.cholesky(a).sum() + L.eigvalsh(a).sum() + L.inv(a).sum()).backward()
    return [a.grad]


_OF_ALL_KINDS = {
    "LU": _lu, "solve and inverse": _solve, "QR": _qr, "LDL": _ldl, "eig": _eig,
    "least squares, rank and norms": _derived,
    **{f"Cholesky {batch} upper={upper}": _cholesky(*batch, upper=upper)
       for batch in ((), (3,)) for upper in (True, False)},
    **{f"eigh {batch}": _eigh(*batch) for batch in ((), (3,))},
    **{f"svd {sizes} {driver}": _svd(*sizes, driver=driver)
       for sizes in ((6, 4), (4, 6), (3, 5, 5)) for driver in (None, "gesvd", "gesvdj", "gesvda")},
}  # fmt: skip

CASES: dict[str, Case] = {
    **{
        f"{name} {kind}": lambda device, case=case, kind=kind: case(device, kind)
        for name, case in _OF_ALL_KINDS.items() for kind in KINDS
    },
    "a matrix that is not positive definite": _not_positive,
    "gradients": _gradients,
    "of nothing": lambda d: [L.eigvalsh(values(d, 0, 0)), L.inv(values(d, 0, 0)),
                             L.svdvals(values(d, 0, 3))],
}  # fmt: skip
