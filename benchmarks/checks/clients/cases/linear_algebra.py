"""Linear algebra of PyTorch: cuSOLVER, cuBLAS and MAGMA."""

from __future__ import annotations

from collections.abc import Callable

import torch
from case import Setting, Step, Tensors, case, cases, gpu_only, randn, with_grads
from torch import Tensor, linalg

SHAPES = {"": (24, 24), " batched": (5, 8, 8)}
Shape = tuple[int, ...]


def square(shape: Shape, dtype: torch.dtype = torch.float32) -> Tensor:
    """Well conditioned."""
    unit = torch.eye(shape[-1], device=Setting.device, dtype=dtype)
    return randn(*shape, dtype=dtype) + 2 * shape[-1] ** 0.5 * unit


def positive(shape: Shape, dtype: torch.dtype = torch.float32) -> Tensor:
    x = square(shape, dtype)
    return x @ x.mH


def other(shape: Shape, dtype: torch.dtype) -> Tensor:
    return randn(*shape, dtype=dtype)


FUNCTIONS: dict[str, Callable[[Shape, torch.dtype], Tensors]] = {
    "solve": lambda s, t: [linalg.solve(square(s, t), other(s, t))],
    "inv": lambda s, t: [linalg.inv(square(s, t))],
    "det": lambda s, t: [linalg.det(square(s, t)), *linalg.slogdet(square(s, t))],
    "lu": lambda s, t: linalg.lu(square(s, t)),
    "lu_solve": lambda s, t: [linalg.lu_solve(*linalg.lu_factor(square(s, t)), other(s, t))],
    "qr": lambda s, t: linalg.qr(square(s, t)),
    "svd": lambda s, t: linalg.svd(square(s, t)),
    "svdvals": lambda s, t: [linalg.svdvals(square(s, t))],
    "eigh": lambda s, t: linalg.eigh(positive(s, t)),
    "eigvalsh": lambda s, t: [linalg.eigvalsh(positive(s, t))],
    "eig": lambda s, t: linalg.eig(square(s, t)),
    "lstsq": lambda s, t: [linalg.lstsq(square(s, t), other(s, t)).solution],
    "cholesky": lambda s, t: [linalg.cholesky(positive(s, t))],
    "cholesky_solve": lambda s, t: [
        torch.cholesky_solve(other(s, t), linalg.cholesky(positive(s, t)))
    ],
    "cholesky_inverse": lambda s, t: [torch.cholesky_inverse(linalg.cholesky(positive(s, t)))],
    "solve_triangular": lambda s, t: [
        linalg.solve_triangular(square(s, t).triu(), other(s, t), upper=True)
    ],
    "pinv": lambda s, t: [linalg.pinv(square(s, t))],
    "matrix_exp": lambda s, t: [linalg.matrix_exp(square(s, t) / 16)],
    "matrix_norm": lambda s, t: [linalg.matrix_norm(square(s, t), 2)],
    "ldl_factor": lambda s, t: linalg.ldl_factor(positive(s, t)),
    "householder_product": lambda s, t: [linalg.householder_product(*torch.geqrf(square(s, t)))],
}
MAIN = ("solve", "inv", "qr", "svd", "eigh", "cholesky")
TYPES = {"fp64": torch.float64, "complex": torch.complex64}


@cases({
    **{f"linalg.{name}{word}": (name, shape, torch.float32)
       for name in FUNCTIONS for word, shape in SHAPES.items()},
    **{f"linalg.{name} {word}": (name, (24, 24), dtype)
       for name in MAIN for word, dtype in TYPES.items()},
    **{f"linalg.{name} large": (name, (300, 300), torch.float32) for name in MAIN},
})  # fmt: skip
def function(name: str, shape: Shape, dtype: torch.dtype) -> Step:
    return lambda: FUNCTIONS[name](shape, dtype)


@cases({f"linalg.{name} with {library}": (name, library)
        for name in MAIN for library in ("magma", "cusolver")})  # fmt: skip
def preferring(name: str, library: str) -> Tensors:
    gpu_only("choice of libraries")
    torch.backends.cuda.preferred_linalg_library(library)
    try:
        return FUNCTIONS[name]((24, 24), torch.float32)
    finally:
        torch.backends.cuda.preferred_linalg_library("default")


@case("linalg gradients")
def gradients() -> Tensors:
    shape = SHAPES[""]
    found = with_grads(linalg.solve, square(shape), randn(*shape))
    found += with_grads(linalg.cholesky, positive(shape))
    return found + with_grads(linalg.inv, square(SHAPES[" batched"]))
