"""cuBLAS on one matrix or a few, on the CPU device: every routine, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from blas_device import (
    PLAIN,
    REAL,
    Device,
    Square,
    Steps,
    close,
    host,
    operate,
    sample,
)

from mnemosyne.server.errors import INVALID_VALUE, CallError

LETTERS = pytest.mark.parametrize("letter", PLAIN)
UPLO = pytest.mark.parametrize("uplo", [0, 1])
N = 6


@pytest.fixture
def device() -> Device:
    torch.manual_seed(0)
    return Device()


def matrix_of(triangle: torch.Tensor, uplo: int, hermitian: bool) -> torch.Tensor:
    """What a symmetric routine sees: one triangle, mirrored."""
    half = torch.triu(triangle, 1) if uplo else torch.tril(triangle, -1)
    diagonal = torch.diag(triangle.diagonal().real if hermitian else triangle.diagonal())
    return half + (half.mH if hermitian else half.mT) + diagonal.to(half.dtype)


def symmetric(name: str) -> list[tuple[str, str, bool]]:
    """(name of the call, letter, whether it is Hermitian)"""
    plain = [(f"cublas{letter}sy{name}", letter, False) for letter in "SDCZ"]
    return [*plain, *((f"cublas{letter}he{name}", letter, True) for letter in "CZ")]


@pytest.mark.parametrize(("call", "letter", "hermitian"), symmetric("mv_v2"))
@UPLO
def test_symmetric_matrix_by_vector(device: Device, call, letter, hermitian, uplo: int) -> None:
    dtype = PLAIN[letter]
    a, x, y = sample(N, N, dtype=dtype), sample(N, dtype=dtype), sample(N, dtype=dtype)
    out = Steps(device, y, -2)
    args = (*Square(device, a).args, *Steps(device, x, 2).args)
    device.call(call, 1, uplo, N, host(2, dtype), *args, host(3, dtype), *out.args)
    close(out.get(), 2 * matrix_of(a, uplo, hermitian) @ x + 3 * y)


@pytest.mark.parametrize(("call", "letter", "hermitian"), symmetric("mm_v2"))
@UPLO
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("beta", [0, 3])
def test_symmetric_matrix_by_matrix(
    device: Device, call, letter, hermitian, uplo: int, side: int, beta: int
) -> None:
    dtype, (m, n) = PLAIN[letter], (5, 4)
    size = n if side else m
    a, b = sample(size, size, dtype=dtype), sample(m, n, dtype=dtype)
    c = sample(m, n, dtype=dtype)
    out = Square(device, c if beta else c * float("nan"))
    args = (*Square(device, a).args, *Square(device, b).args)
    device.call(call, 1, side, uplo, m, n, host(2, dtype), *args, host(beta, dtype), *out.args)
    full = matrix_of(a, uplo, hermitian)
    close(out.get(), 2 * (b @ full if side else full @ b) + beta * c)


def updated(old: torch.Tensor, new: torch.Tensor, uplo: int) -> torch.Tensor:
    """The triangle is new, the rest old."""
    return torch.triu(new) + torch.tril(old, -1) if uplo else torch.tril(new) + torch.triu(old, 1)


def real_diagonal(matrix: torch.Tensor, wanted: bool) -> torch.Tensor:
    new = matrix.clone()
    if wanted:
        new.diagonal().copy_(matrix.diagonal().real)
    return new


RANKS = [*symmetric("r_v2"), *symmetric("r2_v2")]


@pytest.mark.parametrize(("call", "letter", "hermitian"), RANKS)
@UPLO
def test_updates_by_vectors(device: Device, call: str, letter: str, hermitian, uplo: int) -> None:
    dtype = PLAIN[letter]
    a, x, y = sample(N, N, dtype=dtype), sample(N, dtype=dtype), sample(N, dtype=dtype)
    out, two = Square(device, a), "r2" in call
    alpha = host(1.5, REAL[letter] if hermitian and not two else dtype)
    vectors = Steps(device, x, 2).args + (Steps(device, y, -1).args if two else ())
    device.call(call, 1, uplo, N, alpha, *vectors, *out.args)
    product = 1.5 * torch.outer(x, (y if two else x).conj() if hermitian else (y if two else x))
    product = product + (product.mH if hermitian else product.mT) if two else product
    close(out.get(), updated(a, real_diagonal(a + product, hermitian), uplo))


@pytest.mark.parametrize(
    ("call", "letter", "hermitian"), [*symmetric("rk_v2"), *symmetric("r2k_v2")]
)
@UPLO
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("beta", [0, 3])
def test_updates_by_matrices(
    device: Device, call: str, letter: str, hermitian, uplo: int, transposed: bool, beta: int
) -> None:
    dtype, (n, k), two = PLAIN[letter], (5, 3), "r2k" in call
    shape = (k, n) if transposed else (n, k)
    a, b, c = sample(*shape, dtype=dtype), sample(*shape, dtype=dtype), sample(n, n, dtype=dtype)
    out = Square(device, c if beta else c * float("nan"))
    alpha = host(1.5, REAL[letter] if hermitian and not two else dtype)
    matrices = Square(device, a).args + (Square(device, b).args if two else ())
    scale = host(beta, REAL[letter] if hermitian else dtype)
    op = (2 if hermitian else 1) if transposed else 0
    device.call(call, 1, uplo, op, n, k, alpha, *matrices, scale, *out.args)
    left, right = (a, b if two else a)
    if transposed:
        left, right = (x.mH if hermitian else x.mT for x in (left, right))
    product = 1.5 * left @ (right.mH if hermitian else right.mT)
    product = product + (product.mH if hermitian else product.mT) if two else product
    old = c if beta else c * float("nan")
    wanted = real_diagonal(product + (beta * c if beta else 0), hermitian)
    mask = torch.ones(n, n).triu().bool() if uplo else torch.ones(n, n).tril().bool()
    close(out.get(), torch.where(mask, wanted, old))


OUTER = [("S", "ger"), ("D", "ger"), ("C", "geru"), ("C", "gerc"), ("Z", "geru"), ("Z", "gerc")]


@pytest.mark.parametrize(("letter", "name"), OUTER)
def test_outer_product(device: Device, letter: str, name: str) -> None:
    dtype, (m, n) = PLAIN[letter], (5, 3)
    a, x, y = sample(m, n, dtype=dtype), sample(m, dtype=dtype), sample(n, dtype=dtype)
    out = Square(device, a)
    vectors = (*Steps(device, x, 2).args, *Steps(device, y, -1).args)
    device.call(f"cublas{letter}{name}_v2", 1, m, n, host(2, dtype), *vectors, *out.args)
    close(out.get(), a + 2 * torch.outer(x, y.conj() if name == "gerc" else y))


def triangular(a: torch.Tensor, uplo: int, trans: int, unit: int) -> torch.Tensor:
    half = a.triu() if uplo else a.tril()
    if unit:
        half = half - torch.diag(half.diagonal()) + torch.eye(len(a), dtype=a.dtype)
    return operate(half, trans)


@LETTERS
@UPLO
@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("unit", [0, 1])
def test_triangles(device: Device, letter: str, uplo: int, trans: int, unit: int) -> None:
    """Multiplication and solution, of a vector and of a matrix on either side."""
    dtype, (m, n) = PLAIN[letter], (5, 3)
    a = sample(m, m, dtype=dtype) / 4 + torch.eye(m, dtype=dtype)
    full, x = triangular(a, uplo, trans, unit), sample(m, dtype=dtype)
    stored, choices = Square(device, a), (uplo, trans, unit)
    vector = Steps(device, x, -2)
    device.call(f"cublas{letter}trmv_v2", 1, *choices, m, *stored.args, *vector.args)
    close(vector.get(), full @ x)
    device.call(f"cublas{letter}trsv_v2", 1, *choices, m, *stored.args, *vector.args)
    torch.testing.assert_close(vector.get(), x, rtol=1e-4, atol=1e-5)
    for side, b in enumerate((sample(m, n, dtype=dtype), sample(n, m, dtype=dtype))):
        given, out = Square(device, b), Square(device, torch.zeros_like(b))
        sizes, two = b.shape, host(2, dtype)
        device.call(
            f"cublas{letter}trmm_v2", 1, side, *choices, *sizes, two, *stored.args, *given.args,
            *out.args,
        )  # fmt: skip
        close(out.get(), 2 * (b @ full if side else full @ b))
        half = host(0.5, dtype)
        device.call(
            f"cublas{letter}trsm_v2", 1, side, *choices, *sizes, half, *stored.args, *out.args
        )
        torch.testing.assert_close(out.get(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cublasStrsm_v2", (2, 0, 0, 0, 1, 1)),
        ("cublasStrsm_v2", (0, 2, 0, 0, 1, 1)),
        ("cublasStrsm_v2", (0, 0, 3, 0, 1, 1)),
        ("cublasStrsm_v2", (0, 0, 0, 2, 1, 1)),
        ("cublasStrsm_v2", (0, 0, 0, 0, -1, 1)),
    ],
)
def test_choices_that_do_not_exist_are_refused(device: Device, name: str, values: Any) -> None:
    a = Square(device, sample(2, 2))
    with pytest.raises(CallError) as refused:
        device.call(name, 1, *values, host(1, torch.float32), *a.args, *a.args)
    assert refused.value.code == INVALID_VALUE
