"""Linear algebra: what PyTorch gives to cuBLAS, above all in batches of small matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

L = torch.linalg
KINDS = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def compare(got: Tensor, wanted: Tensor) -> None:
    """Both may add up in another order: a few roundings, for matrices as sound as these."""
    torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-5, check_stride=False)


def values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(sizes) + sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=kind).to(device)


def sound(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    """Matrices that are far from singular."""
    return values(device, *sizes, kind=kind) + 5 * torch.eye(*sizes[-2:], dtype=kind, device=device)


def _factors(device: torch.device, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    return L.lu_factor(sound(device, 4, 6, 6, kind=kind))


def _lu_solve(kind: torch.dtype, left: bool, adjoint: bool) -> Case:
    def case(device: torch.device) -> Tensors:
        given = values(device, 4, *((6, 2) if left else (2, 6)), kind=kind)
        return [L.lu_solve(*_factors(device, kind), given, left=left, adjoint=adjoint)]

    return case


def _triangular(kind: torch.dtype, batch: tuple[int, ...], upper: bool, left: bool) -> Case:
    def case(device: torch.device) -> Tensors:
        a = sound(device, *batch, 6, 6, kind=kind)
        b = values(device, *batch, *((6, 3) if left else (3, 6)), kind=kind)
        plain = L.solve_triangular(a, b, upper=upper, left=left)
        unit = L.solve_triangular(a / 8, b, upper=upper, left=left, unitriangular=True)
        return [plain, unit, L.solve_triangular(a.mH, b, upper=not upper, left=left)]

    return case


def _solve_gradient(device: torch.device) -> Tensors:
    a = sound(device, 3, 5, 5).requires_grad_()
    b = values(device, 3, 5, 2).requires_grad_()
    x = L.solve(a, b)
    x.square().sum().backward()
    return [x.detach(), a.grad, b.grad]


def _cross(device: torch.device) -> Tensors:
    """Vectors along each dimension, broadcast and strided; their gradients."""
    results = []
    for kind in (*KINDS, torch.float16, torch.bfloat16):
        a, b = (values(device, *sizes).to(kind) for sizes in ((5, 3, 4), (1, 3, 1)))
        results += [L.cross(a, b, dim=1), L.cross(a.transpose(0, 1), b.transpose(0, 1), dim=0)]
        results.append(L.cross(a[:, :, ::2].permute(2, 0, 1), a[:, :, 1::2].permute(2, 0, 1)))
    x, y = values(device, 6, 3).requires_grad_(), values(device, 1, 3).requires_grad_()
    L.cross(x, y).square().sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    whole = torch.arange(12, device=device).view(4, 3)
    return [*results, x.grad, y.grad, L.cross(whole, whole.flip(1))]


CASES: dict[str, Case] = {
    "cross products": _cross,
    "triangular, empty": lambda d: [
        L.solve_triangular(values(d, *a), values(d, *b), upper=True)
        for a, b in (((2, 0, 0), (2, 0, 3)), ((2, 3, 3), (2, 3, 0)), ((0, 3, 3), (0, 3, 2)))
    ],
    **{f"lu {k}": lambda d, k=k: _factors(d, k) for k in KINDS},
    **{
        f"lu solve {k} left={left} adjoint={adjoint}": _lu_solve(k, left, adjoint)
        for k in KINDS for left in (True, False) for adjoint in (True, False)
    },
    **{f"solve {k}": lambda d, k=k: [L.solve(sound(d, 4, 6, 6, kind=k), values(d, 4, 6, 3, kind=k))]
       for k in KINDS},
    "solve vectors": lambda d: [L.solve(sound(d, 4, 6, 6), values(d, 4, 6))],
    "solve, gradients": _solve_gradient,
    **{f"inverse {k}": lambda d, k=k: [L.inv(sound(d, 4, 6, 6, kind=k))] for k in KINDS},
    **{
        f"triangular {k} {batch} upper={upper} left={left}": _triangular(k, batch, upper, left)
        for k in KINDS for batch in ((), (4,)) for upper in (True, False) for left in (True, False)
    },
    **{
        f"least squares {k}": lambda d, k=k: [
            L.lstsq(values(d, 4, 8, 3, kind=k), values(d, 4, 8, 2, kind=k)).solution
        ]
        for k in KINDS
    },
    **{f"QR {k}": lambda d, k=k: torch.geqrf(values(d, 4, 8, 3, kind=k)) for k in KINDS},
    "vector products": lambda d: [
        product(values(d, 9, kind=k), values(d, 9, kind=k).flip(0))
        for product in (torch.dot, torch.vdot) for k in KINDS
    ],
    "vector products, 16 bit": lambda d: [
        torch.dot(values(d, 9).to(k), values(d, 9).to(k).flip(0)).float()
        for k in (torch.float16, torch.bfloat16)
    ],
}  # fmt: skip
