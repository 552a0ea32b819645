"""Sparse matrices: what PyTorch gives to cuSPARSE, against PyTorch on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

KINDS = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def compare(got: Tensor, wanted: Tensor) -> None:
    """Both may add up in another order: a few roundings."""
    torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-5, check_stride=False)


def values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(len(sizes) + sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=kind).to(device)


def holes(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    """A matrix that is zero in most places, in a pattern without a rule."""
    generator = torch.Generator().manual_seed(sum(sizes))
    kept = torch.rand(sizes, generator=generator) < 0.4
    return values(device, *sizes, kind=kind) * kept.to(device)


def csr(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    return holes(torch.device("cpu"), *sizes, kind=kind).to_sparse_csr().to(device)


def _parts(found: Tensor) -> Tensors:
    return [found.crow_indices().long(), found.col_indices().long(), found.values()]


def _products(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = csr(device, 6, 5, kind=kind), values(device, 5, 3, kind=kind)
    c = values(device, 6, 3, kind=kind)
    return [a @ b, a @ b.T.contiguous().T, torch.addmm(c, a, b, beta=2, alpha=3), a @ b[:, 0]]


def _sampled(device: torch.device, kind: torch.dtype) -> Tensors:
    pattern = csr(device, 6, 4, kind=kind)
    left, right = values(device, 6, 5, kind=kind), values(device, 5, 4, kind=kind)
    if device.type == "cpu":  # which lacks it
        wanted = 3 * (left @ right) + 2 * pattern.to_dense()
        rows = torch.repeat_interleave(torch.arange(6), pattern.crow_indices().diff())
        return [wanted[rows, pattern.col_indices()]]
    return [torch.sparse.sampled_addmm(pattern, left, right, beta=2, alpha=3).values()]


def _sparse_products(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = csr(device, 6, 5, kind=kind), csr(device, 5, 7, kind=kind)
    return [(a @ b).to_dense()]


def _sums(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = csr(device, 6, 7, kind=kind), csr(device, 7, 6, kind=kind).to_dense().T.to_sparse_csr()
    return [*_parts(a + b), *_parts(torch.add(a, b, alpha=3))]


def _triangular(upper: bool, unit: bool, transpose: bool) -> Callable[..., Tensors]:
    def case(device: torch.device, kind: torch.dtype) -> Tensors:
        whole = holes(torch.device("cpu"), 6, 6, kind=kind) / 4 + 2 * torch.eye(6, dtype=kind)
        part = whole.triu() if upper else whole.tril()
        options = {"upper": upper, "unitriangular": unit, "transpose": transpose}
        found = []
        for columns in (1, 3):
            b = values(device, 6, columns, kind=kind)
            if device.type == "cpu":
                found.append(torch.triangular_solve(b, part, **options).solution)
            else:
                a = part.to_sparse_csr().to(device)
                found.append(torch.triangular_solve(b, a, **options).solution)
        return found

    return case


def _blocks(device: torch.device, kind: torch.dtype) -> Tensors:
    a = holes(torch.device("cpu"), 6, 8, kind=kind)
    b, x = values(device, 8, 3, kind=kind), values(device, 8, kind=kind)
    if device.type == "cpu":
        return [a @ b, a @ x]
    found = a.to_sparse_bsr((2, 2)).to(device)
    return [found @ b, found @ x]


def _conversions(device: torch.device) -> Tensors:
    found = csr(device, 6, 5)
    return [*_parts(holes(device, 6, 5).to_sparse_csr()), found.to_dense()]


_OF_ALL_KINDS = {
    "CSR times dense": _products, "sampled": _sampled,
    "sparse times sparse": _sparse_products, "sums": _sums, "blocks": _blocks,
    **{f"triangular upper={upper} unit={unit} transpose={transpose}":
       _triangular(upper, unit, transpose)
       for upper in (True, False) for unit in (True, False) for transpose in (True, False)},
}  # fmt: skip

CASES: dict[str, Case] = {
    **{
        f"{name} {kind}": lambda device, case=case, kind=kind: case(device, kind)
        for name, case in _OF_ALL_KINDS.items() for kind in KINDS
    },
    "conversions": _conversions,
}  # fmt: skip
