"""cuBLAS on batches that arrays of pointers name, on the CPU device, against torch."""

from __future__ import annotations

import pytest
import torch
from blas_device import (
    PLAIN,
    Device,
    Square,
    close,
    host,
    operate,
    sample,
)

from mnemosyne.server.errors import NOT_SUPPORTED, CallError

LETTERS = pytest.mark.parametrize("letter", PLAIN)


@pytest.fixture
def device() -> Device:
    torch.manual_seed(0)
    return Device()


class Batch:
    """Matrices in places of their own, and where their addresses stand."""

    def __init__(self, device: Device, matrices: list[torch.Tensor]) -> None:
        self.each = [Square(device, matrix) for matrix in matrices]
        self.array = device.put(torch.tensor([one.pointer for one in self.each]))

    @property
    def args(self) -> tuple[int, int]:
        return self.array, self.each[0].args[1]

    def get(self) -> torch.Tensor:
        return torch.stack([one.get() for one in self.each])


def several(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    """Three square matrices that are far from singular."""
    return sample(3, *sizes, dtype=dtype) + 4 * torch.eye(*sizes, dtype=dtype)


@LETTERS
def test_batch_of_products(device: Device, letter: str) -> None:
    dtype = PLAIN[letter]
    a, b, c = (sample(3, *s, dtype=dtype) for s in ((4, 5), (2, 4), (5, 2)))
    left, right, out = (Batch(device, list(x)) for x in (a, b, c))
    device.call(
        f"cublas{letter}gemmBatched", 1, 1, 2, 5, 2, 4, host(2, dtype), *left.args, *right.args,
        host(-1, dtype), *out.args, 3,
    )  # fmt: skip
    close(out.get(), 2 * a.mT @ b.mH - c)


@LETTERS
def test_batch_of_triangles(device: Device, letter: str) -> None:
    dtype = PLAIN[letter]
    a, b = several(4, 4, dtype=dtype), sample(3, 4, 2, dtype=dtype)
    out = Batch(device, list(b))
    device.call(
        f"cublas{letter}trsmBatched", 1, 0, 1, 1, 0, 4, 2, host(3, dtype),
        *Batch(device, list(a)).args, *out.args, 3,
    )  # fmt: skip
    torch.testing.assert_close(a.triu().mT @ out.get(), 3 * b)


@LETTERS
@pytest.mark.parametrize("pivoted", [False, True])
@pytest.mark.parametrize("trans", [0, 1, 2])
def test_batch_of_factors_and_solutions(device: Device, letter: str, pivoted, trans: int) -> None:
    dtype, n = PLAIN[letter], 4
    a, b = several(n, n, dtype=dtype), sample(3, n, 2, dtype=dtype)
    factors, out = Batch(device, list(a)), Batch(device, list(b))
    info = device.put(torch.full((3,), 9, dtype=torch.int32))
    pivots = device.put(torch.zeros(3, n, dtype=torch.int32)) if pivoted else 0
    device.call(f"cublas{letter}getrfBatched", 1, n, *factors.args, pivots, info, 3)
    assert device.get(info, torch.zeros(3, dtype=torch.int32)).tolist() == [0, 0, 0]
    stored = factors.get()
    if not pivoted:
        product = (stored.tril(-1) + torch.eye(n, dtype=dtype)) @ stored.triu()
        torch.testing.assert_close(product, a)
    said = device.call(
        f"cublas{letter}getrsBatched", 1, trans, n, 2, *factors.args, pivots, *out.args, 3
    )
    assert said == (0, 0)
    full = torch.stack([operate(one, trans) for one in a])
    torch.testing.assert_close(full @ out.get(), b)


def test_a_singular_matrix_of_a_batch_is_named(device: Device) -> None:
    a = several(3, 3, dtype=torch.float32)
    a[1, :, 1] = 0
    for pivots in (0, device.put(torch.zeros(3, 3, dtype=torch.int32))):
        info = device.put(torch.zeros(3, dtype=torch.int32))
        device.call("cublasSgetrfBatched", 1, 3, *Batch(device, list(a)).args, pivots, info, 3)
        assert device.get(info, torch.zeros(3, dtype=torch.int32)).tolist() == [0, 2, 0]


@LETTERS
def test_batch_of_least_squares(device: Device, letter: str) -> None:
    dtype, (m, n) = PLAIN[letter], (7, 3)
    a, c = sample(3, m, n, dtype=dtype), sample(3, m, 2, dtype=dtype)
    factors, out = Batch(device, list(a)), Batch(device, list(c))
    info = device.put(torch.full((3,), 9, dtype=torch.int32))
    args = (1, 0, m, n, 2, *factors.args, *out.args)
    assert device.call(f"cublas{letter}gelsBatched", *args, info, 3) == (0, 0)
    torch.testing.assert_close(out.get()[:, :n], torch.linalg.lstsq(a, c).solution)
    torch.testing.assert_close(factors.get(), torch.geqrf(a)[0])
    assert device.get(info, torch.zeros(3, dtype=torch.int32)).tolist() == [0, 0, 0]
    with pytest.raises(CallError) as refused:
        device.call(f"cublas{letter}gelsBatched", 1, 1, *args[2:], 0, 3)
    assert refused.value.code == NOT_SUPPORTED


@LETTERS
def test_batch_of_orthogonal_factors(device: Device, letter: str) -> None:
    dtype, (m, n) = PLAIN[letter], (3, 5)
    a = sample(3, m, n, dtype=dtype)
    factors = Batch(device, list(a))
    taus = [device.put(torch.zeros(m, dtype=dtype)) for _ in range(3)]
    array = device.put(torch.tensor(taus))
    assert device.call(f"cublas{letter}geqrfBatched", 1, m, n, *factors.args, array, 3) == (0, 0)
    wanted, scales = torch.geqrf(a)
    torch.testing.assert_close(factors.get(), wanted)
    for place, scale in zip(taus, scales, strict=True):
        torch.testing.assert_close(device.get(place, scale), scale)


def test_arguments_that_the_library_complains_of_come_with_its_info(device: Device) -> None:
    out = Batch(device, [sample(2, 1)])
    bad = device.call("cublasSgetrsBatched", 1, 0, -1, 1, *out.args, 0, *out.args, 1)
    assert bad == (-1, 7)
    wrong = device.put(torch.tensor([3, 1], dtype=torch.int32))
    matrix = Batch(device, [sample(2, 2)])
    bad = device.call("cublasSgetrsBatched", 1, 0, 2, 1, *matrix.args, wrong, *out.args, 1)
    assert bad == (-1, 7)
