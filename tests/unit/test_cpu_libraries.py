"""cuFFT, cuSOLVER and cuSPARSE of the CPU device as other programs than PyTorch call them."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
import torch
from blas_device import PLAIN, Device, column_major, host, sample
from carried_calls import carried

from mnemosyne.server.devices.cpu.libraries import HANDLERS
from mnemosyne.server.errors import (
    ILLEGAL_ADDRESS,
    INVALID_RESOURCE_HANDLE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    CallError,
)
from mnemosyne.server.journal import Journal

N, T, C = 0, 1, 2
LOWER, UPPER = 0, 1
I32 = torch.int32


class Libraries(Device):
    """Handles are numbered in the order in which they are made, from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.session.objects = {}
        self.session.journal = Journal()
        self.numbers = itertools.count(1)

    def call(self, name: str, *arguments: Any) -> Any:
        message, *fields = carried(name, *arguments)
        return HANDLERS[message](self.session, *fields)

    def make(self, name: str, *arguments: Any) -> int:
        number = next(self.numbers)
        self.call(name, number, *arguments)
        return number

    def room(self, *sizes: int, dtype: torch.dtype = torch.float32) -> tuple[int, torch.Tensor]:
        """Device memory for a column-major matrix, and a view of it."""
        blank = torch.zeros(sizes[::-1], dtype=dtype)
        at = self.put(blank)
        steps = (1, sizes[0]) if len(sizes) == 2 else (1,)
        return at, self.memory.view(at, dtype, sizes, steps)

    def info(self) -> tuple[int, torch.Tensor]:
        return self.room(4, dtype=I32)


@pytest.fixture
def device() -> Libraries:
    torch.manual_seed(0)
    return Libraries()


def close(got: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def hermitian(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    a = sample(*sizes, dtype=dtype)
    return a + a.mH


def positive(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    a = sample(*sizes, dtype=dtype)
    return a @ a.mH + 2 * torch.eye(sizes[-1], dtype=dtype)


# cuFFT


def plan(device: Libraries, n: int, kinds: tuple[int, int], batch: int = 1, rank: int = 1) -> int:
    made = device.make("cufftCreate")
    sizes = struct.pack(f"<{rank}q", *[n] * rank)
    source, target = kinds
    rest = [1, n, source, b"", 1, n, target, batch, target]
    assert device.call("cufftXtMakePlanMany", made, rank, sizes, b"", *rest) == (0,)
    return made


def test_half_precision_is_computed_in_single(device: Libraries) -> None:
    x = sample(3, 8).half()
    out, found = device.room(5, 3, dtype=torch.complex32)
    device.call("cufftXtExec", plan(device, 8, (2, 6), 3), device.put(x), out, -1)
    torch.testing.assert_close(
        found.mT.to(torch.complex64), torch.fft.rfft(x.float()), rtol=2e-3, atol=1e-2
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [({1: 4}, NOT_SUPPORTED), ({6: 3}, NOT_SUPPORTED), ({6: 0, 10: 0}, NOT_SUPPORTED),
     ({2: bytes(8)}, INVALID_VALUE), ({11: 0}, INVALID_VALUE)],
)  # fmt: skip
def test_an_impossible_plan_is_refused(
    device: Libraries, change: dict[int, Any], code: int
) -> None:
    values = [0, 1, struct.pack("<q", 8), b"", 1, 8, 4, b"", 1, 8, 4, 1, 4]
    values[0] = device.make("cufftCreate")
    for at, value in change.items():
        values[at] = value
    values[2] = values[2] * values[1]
    with pytest.raises(CallError) as caught:
        device.call("cufftXtMakePlanMany", *values)
    assert caught.value.code == code


def test_a_transform_needs_a_plan_a_direction_and_memory(device: Libraries) -> None:
    made, x = plan(device, 8, (4, 4)), device.put(sample(8, dtype=torch.complex64))
    for arguments, code in (
        ((device.make("cufftCreate"), x, x, 1), INVALID_RESOURCE_HANDLE),
        ((made, x, x, 0), INVALID_VALUE),
        ((made, x, device.end - 8, 1), ILLEGAL_ADDRESS),
    ):
        with pytest.raises(CallError) as caught:
            device.call("cufftXtExec", *arguments)
        assert caught.value.code == code


# cuSOLVER


@pytest.mark.parametrize("letter", PLAIN)
def test_qr(device: Libraries, letter: str) -> None:
    a = sample(5, 3, dtype=PLAIN[letter])
    h, at, (info, _) = (
        device.make("cusolverDnCreate"),
        device.put(column_major(a, 6)),
        device.info(),
    )
    tau, scales = device.room(3, dtype=a.dtype)
    assert device.call(f"cusolverDn{letter}geqrf_bufferSize", h, 5, 3, at, 6) == (256,)
    device.call(f"cusolverDn{letter}geqrf", h, 5, 3, at, 6, tau, 0, 256, info)
    wanted, expected = torch.geqrf(a)
    close(device.memory.view(at, a.dtype, (5, 3), (1, 6)), wanted)
    close(scales, expected)


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize("uplo", [LOWER, UPPER])
def test_cholesky(device: Libraries, letter: str, uplo: int) -> None:
    a, b = positive(4, 4, dtype=PLAIN[letter]), sample(4, 2, dtype=PLAIN[letter])
    given_half = torch.ones(4, 4, dtype=torch.bool)
    given_half = given_half.triu() if uplo else given_half.tril()
    stored = torch.where(given_half, a, float("nan"))
    h, (info, infos) = device.make("cusolverDnCreate"), device.info()
    factor, given = device.put(column_major(stored, 4)), device.put(column_major(b, 4))
    device.call(f"cusolverDn{letter}potrf", h, uplo, 4, factor, 4, 0, 256, info)
    device.call(f"cusolverDn{letter}potrs", h, uplo, 4, 2, factor, 4, given, 4, info)
    wanted = torch.linalg.solve(a, b)
    close(device.memory.view(given, b.dtype, (4, 2), (1, 4)), wanted)
    again = device.put(column_major(b, 4))
    lists = [device.put(torch.tensor([pointer])) for pointer in (factor, again)]
    device.call(f"cusolverDn{letter}potrsBatched", h, uplo, 4, 2, lists[0], 4, lists[1], 4, info, 1)
    close(device.memory.view(again, b.dtype, (4, 2), (1, 4)), wanted)
    assert infos.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize("uplo", [LOWER, UPPER])
@pytest.mark.parametrize("routine", ["evd", "evj", "evjBatched"])
def test_eigenvalues(device: Libraries, letter: str, uplo: int, routine: str) -> None:
    batch = 2 if routine == "evjBatched" else 1
    a = hermitian(batch, 4, 4, dtype=PLAIN[letter])
    name = f"cusolverDn{letter}{'he' if a.is_complex() else 'sy'}{routine}"
    h, (info, infos), at = device.make("cusolverDnCreate"), device.info(), device.put(a.mT)
    infos.fill_(9)
    values, found = device.room(4 * batch, dtype=a.real.dtype)
    options = [device.make("cusolverDnCreateSyevjInfo")] if "evj" in routine else []
    for option in options:
        device.call("cusolverDnXsyevjSetTolerance", option, struct.pack("<d", 1e-7))
        device.call("cusolverDnXsyevjSetMaxSweeps", option, 15)
        device.call("cusolverDnXsyevjSetSortEig", option, 1)
    rest = options + [batch] * (batch > 1)
    assert device.call(f"{name}_bufferSize", h, 1, uplo, 4, at, 4, values, *rest) == (256,)
    device.call(name, h, 1, uplo, 4, at, 4, values, 0, 256, info, *rest)
    vectors = device.memory.view(at, a.dtype, (batch, 4, 4), (16, 1, 4))
    found = found.reshape(batch, 4)
    close(found, torch.linalg.eigvalsh(a))
    close(vectors * found.unsqueeze(1) @ vectors.mH, a)
    assert infos.tolist() == [0] * batch + [9] * (4 - batch)


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize("econ", [0, 1])
def test_singular_values(device: Libraries, letter: str, econ: int) -> None:
    a = sample(5, 3, dtype=PLAIN[letter])
    h, (info, _), at = (
        device.make("cusolverDnCreate"),
        device.info(),
        device.put(column_major(a, 5)),
    )
    option = device.make("cusolverDnCreateGesvdjInfo")
    left, u = device.room(5, 3 if econ else 5, dtype=a.dtype)
    right, v = device.room(3, 3, dtype=a.dtype)
    values, found = device.room(3, dtype=a.real.dtype)
    given = (h, 1, econ, 5, 3, at, 5, values, left, 5, right, 3)
    assert device.call(f"cusolverDn{letter}gesvdj_bufferSize", *given, option) == (256,)
    device.call(f"cusolverDn{letter}gesvdj", *given, 0, 256, info, option)
    close(found, torch.linalg.svdvals(a))
    close(u[:, :3] * found @ v.mH, a)
    close(u.mH @ u, torch.eye(u.shape[1], dtype=a.dtype))


def test_eigenvalues_of_a_type_that_is_told(device: Libraries) -> None:
    a = hermitian(3, 3, dtype=torch.float64)
    h, params = device.make("cusolverDnCreate"), device.make("cusolverDnCreateParams")
    at, (info, _), (values, found) = device.put(a), device.info(), device.room(3, dtype=a.dtype)
    given = (h, params, 0, LOWER, 3, 1, at, 3, 1, values, 1)
    assert device.call("cusolverDnXsyevd_bufferSize", *given) == (256, 0)
    device.call("cusolverDnXsyevd", *given, 0, 256, 0, info)
    close(found, torch.linalg.eigvalsh(a))
    with pytest.raises(CallError, match="matrices of type 3"):
        device.call("cusolverDnXsyevd", *given[:5], 3, *given[6:], 0, 256, 0, info)


def test_what_is_not_computed_is_said(device: Libraries) -> None:
    h = device.make("cusolverDnCreate")
    with pytest.raises(CallError, match="of the upper triangle") as caught:
        device.call("cusolverDnSsytrf", h, UPPER, 3, 0, 3, 0, 0, 0, 0)
    assert caught.value.code == NOT_SUPPORTED


# cuSPARSE


def csr(device: Libraries, a: torch.Tensor, base: int = 0) -> list[int]:
    """[elements, offsets, columns, values] with 32-bit indices."""
    found = a.to_sparse_csr()
    indices = (found.crow_indices() + base, found.col_indices() + base)
    places = [device.put(index.int()) for index in indices]
    return [found.values().numel(), *places, device.put(found.values())]


def test_products_of_a_batch_with_counting_from_one(device: Libraries) -> None:
    a, b = torch.tensor([[0, 2.0], [3, 0], [1, 4]]), sample(2, 2, 3)
    h, (count, offsets, columns, values) = device.make("cusparseCreate"), csr(device, a, base=1)
    sp = device.make("cusparseCreateCsr", 3, 2, count, offsets, columns, values, 2, 2, 1, 0)
    out, _ = device.room(3, 6)
    dense = [
        device.make("cusparseCreateDnMat", 2, 3, 3, device.put(b), 0, 2),
        device.make("cusparseCreateDnMat", 3, 3, 3, out, 0, 1),
    ]
    for descriptor, step in zip(dense, (6, 9), strict=True):
        device.call("cusparseDnMatSetStridedBatch", descriptor, 2, step)
    one, zero = host(1, torch.float32), host(0, torch.float32)
    device.call("cusparseSpMM", h, N, N, one, sp, dense[0], zero, dense[1], 0, 0, 0)
    close(device.memory.view(out, torch.float32, (2, 3, 3), (9, 1, 3)), a @ b)
    assert device.call("cusparseSpMatGetSize", sp) == (3, 2, count)


def test_a_matrix_with_coordinates_and_its_transpose(device: Libraries) -> None:
    a, x = (
        torch.tensor([[0, 2.0], [3, 0], [1, 4]], dtype=torch.float64),
        sample(3, dtype=torch.float64),
    )
    rows, columns = a.to_sparse().indices()
    places = [device.put(tensor) for tensor in (rows, columns, a.to_sparse().values())]
    h = device.make("cusparseCreate")
    sp = device.make("cusparseCreateCoo", 3, 2, 4, *places, 3, 0, 1)
    y, found = device.room(2, dtype=torch.float64)
    found.fill_(1)
    vectors = [
        device.make("cusparseCreateDnVec", n, at, 1) for n, at in ((3, device.put(x)), (2, y))
    ]
    scalars = host(2, torch.float64), host(3, torch.float64)
    device.call("cusparseSpMV", h, T, scalars[0], sp, vectors[0], scalars[1], vectors[1], 1, 0, 0)
    close(found, 2 * (a.mT @ x) + 3)


@pytest.mark.parametrize(
    ("offsets", "columns"), [([0, 1, 4], [0, 1]), ([0, 2, 1], [0, 1]), ([0, 1, 2], [0, 7])]
)
def test_impossible_indices_are_refused(
    device: Libraries, offsets: list[int], columns: list[int]
) -> None:
    places = [device.put(torch.tensor(values, dtype=I32)) for values in (offsets, columns)]
    sp = device.make("cusparseCreateCsr", 2, 2, 2, *places, device.put(torch.ones(2)), 2, 2, 0, 0)
    x = device.make("cusparseCreateDnVec", 2, device.put(torch.ones(2)), 0)
    one = host(1, torch.float32)
    with pytest.raises(CallError) as caught:
        device.call("cusparseSpMV", device.make("cusparseCreate"), N, one, sp, x, one, x, 0, 0, 0)
    assert caught.value.code == INVALID_VALUE


def test_indices_are_sorted_and_compressed(device: Libraries) -> None:
    rows, columns = torch.tensor([2, 0, 2, 1], dtype=I32), torch.tensor([1, 3, 0, 2], dtype=I32)
    h, at = device.make("cusparseCreate"), [device.put(rows), device.put(columns)]
    order, found = device.room(4, dtype=I32)
    assert device.call("cusparseXcoosort_bufferSizeExt", h, 3, 4, 4, *at) == (256,)
    device.call("cusparseCreateIdentityPermutation", h, 4, order)
    device.call("cusparseXcoosortByRow", h, 3, 4, 4, *at, order, 0)
    assert device.get(at[0], rows).tolist() == [0, 1, 2, 2]
    assert device.get(at[1], columns).tolist() == [3, 2, 0, 1]
    assert found.tolist() == [1, 3, 2, 0]
    offsets, compressed = device.room(4, dtype=I32)
    device.call("cusparseXcoo2csr", h, at[0], 4, 3, offsets, 0)
    assert compressed.tolist() == [0, 1, 2, 4]
    mat = device.make("cusparseCreateMatDescr")
    device.memory.view(at[1], I32, (4,), (1,)).copy_(torch.tensor([3, 2, 1, 0]))
    device.call("cusparseCreateIdentityPermutation", h, 4, order)
    device.call("cusparseXcsrsort", h, 3, 4, 4, mat, offsets, at[1], order, 0)
    assert device.get(at[1], columns).tolist() == [3, 2, 0, 1]
    assert found.tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize("letter", PLAIN)
@pytest.mark.parametrize("uplo", [LOWER, UPPER])
@pytest.mark.parametrize("op", [N, T, C])
@pytest.mark.parametrize("transposed", [N, T])
def test_triangular_systems_in_blocks(
    device: Libraries, letter: str, uplo: int, op: int, transposed: int
) -> None:
    dtype = PLAIN[letter]
    whole = sample(6, 6, dtype=dtype) / 4 + 2 * torch.eye(6, dtype=dtype)
    blocks = whole.to_sparse_bsr((2, 2))
    part = whole.triu() if uplo else whole.tril()
    part = (part, part.mT, part.mH)[op]
    b = sample(6, 2, dtype=dtype)
    h, mat = device.make("cusparseCreate"), device.make("cusparseCreateMatDescr")
    device.call("cusparseSetMatFillMode", mat, uplo)
    device.call("cusparseSetMatDiagType", mat, 0)
    device.call("cusparseSetMatType", mat, 0)
    device.call("cusparseSetMatIndexBase", mat, 0)
    bsr = [device.put(blocks.values()), *(
        device.put(index.int()) for index in (blocks.crow_indices(), blocks.col_indices())
    ), 2]  # fmt: skip
    wanted = torch.linalg.solve(part, 3 * b)
    alpha, shape = host(3, dtype), (2, 6) if transposed else (6, 2)
    out, found = device.room(*shape, dtype=dtype)
    info = device.make("cusparseCreateBsrsm2Info")
    given = device.put(column_major(b.mT if transposed else b, shape[0]))
    head = (h, 0, op, transposed, 3, 2, 9)
    assert device.call(f"cusparse{letter}bsrsm2_bufferSize", *head, mat, *bsr, info) == (256,)
    device.call(f"cusparse{letter}bsrsm2_analysis", *head, mat, *bsr, info, 0, 0)
    device.call(f"cusparse{letter}bsrsm2_solve", *head, alpha, mat, *bsr, info, given, shape[0],
                out, shape[0], 0, 0)  # fmt: skip
    close(found.mT if transposed else found, wanted)
    info, (x, solution) = device.make("cusparseCreateBsrsv2Info"), device.room(6, dtype=dtype)
    head = (h, 0, op, 3, 9)
    assert device.call(f"cusparse{letter}bsrsv2_bufferSize", *head, mat, *bsr, info) == (256,)
    device.call(f"cusparse{letter}bsrsv2_analysis", *head, mat, *bsr, info, 0, 0)
    right = device.put(b[:, 0].clone())
    device.call(f"cusparse{letter}bsrsv2_solve", *head, alpha, mat, *bsr, info, right, x, 0, 0)
    close(solution, wanted[:, 0])
    assert device.call("cusparseXbsrsv2_zeroPivot", h, info, 0) == (struct.pack("<i", -1),)
