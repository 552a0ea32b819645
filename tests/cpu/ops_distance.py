"""Distances, margin losses, cut embeddings and powers of matrices, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from ops_layers import function
from torch import Tensor

Case = Callable[[torch.device], Sequence[Tensor]]


def compare(got: Tensor, wanted: Tensor) -> None:
    """Sums are taken in another order than on the CPU."""
    tolerance = 1e-9 if wanted.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _equal_rows() -> Tensor:
    """Rows of which two are equal, and some columns of others."""
    rows = _numbers(5, 4)
    rows[3] = rows[1]
    rows[4, 2] = rows[0, 2]
    return rows


_POWERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))
_LABELS = torch.tensor([3, 0, 4, 1])
_MARKS = torch.tensor([[0, 2, -1, 1, 1], [4, -1, 0, 0, 0], [-1, 0, 0, 0, 0], [3, 1, 0, 2, -1]])


def _distances(p: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist")


def _pairs(p: float) -> Callable[[Tensor], Tensor]:
    return lambda a: F.pdist(a, p)


def classes(reduction: str, **options: object) -> Callable[[Tensor], Tensor]:
    def loss(x: Tensor) -> Tensor:
        weight = torch.linspace(0.5, 2, 5).to(x) if options.get("weighted") else None
        rest = {k: v for k, v in options.items() if k != "weighted"}
        return F.multi_margin_loss(
            x, _LABELS.to(x.device), weight=weight, reduction=reduction, **rest
        )

    return loss


def labels(reduction: str) -> Callable[[Tensor], Tensor]:
    return lambda x: F.multilabel_margin_loss(x, _MARKS.to(x.device), reduction=reduction)


def _embedded(device: torch.device) -> list[Tensor]:
    results = []
    for power in (1.0, 2.0, 3.0):
        weight = _numbers(9, 4).to(device)
        which = torch.tensor([[1, 2, 8], [2, 2, 0]], device=device)
        results += [F.embedding(which, weight, max_norm=0.8, norm_type=power), weight]
    return results


_REDUCTIONS = ("mean", "sum", "none")

CASES: dict[str, Case] = {
    **{f"cdist, power {p}": function(_distances(p), _numbers(3, 5, 4), _numbers(3, 6, 4, seed=1))
       for p in _POWERS},
    **{f"cdist of equal rows, power {p}": function(_distances(p), _equal_rows(), _equal_rows())
       for p in _POWERS},
    "cdist by products": function(torch.cdist, _numbers(40, 4), _numbers(30, 4, seed=1)),
    "cdist, float64": function(_distances(2.0), _numbers(5, 4).double(), _numbers(3, 4).double()),
    **{f"pdist, power {p}": function(_pairs(p), _numbers(6, 4)) for p in _POWERS},
    **{f"pdist of equal rows, power {p}": function(_pairs(p), _equal_rows()) for p in _POWERS},
    **{f"classes, {r}": function(classes(r), _numbers(4, 5)) for r in _REDUCTIONS},
    **{f"classes, squared, {r}": function(
        classes(r, p=2, margin=0.7, weighted=True), _numbers(4, 5)
    ) for r in _REDUCTIONS},
    "classes, float64": function(classes("mean", margin=0.3), _numbers(4, 5).double()),
    **{f"labels, {r}": function(labels(r), _numbers(4, 5)) for r in _REDUCTIONS},
    "embedding of a longest norm": _embedded,
    "exponential of a matrix": function(torch.matrix_exp, _numbers(3, 4, 4)),
    "exponential of small and large matrices": function(
        torch.matrix_exp, _numbers(5, 4, 4) * torch.tensor([1e-4, 1e-2, 0.1, 1, 4])[:, None, None]
    ),
    "exponential, float64": function(torch.matrix_exp, _numbers(3, 4, 4).double()),
}  # fmt: skip
