"""cublasLt products of 8-bit floats on the CPU device: scales, the largest result, saturation."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
from blas_device import Device

from mnemosyne.server.errors import NOT_SUPPORTED, CallError

CODE = {
    torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28,
    torch.float8_e5m2: 29,
}  # fmt: skip
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
M, K, N = 16, 32, 8
A_SCALE, B_SCALE, C_SCALE, D_SCALE, AMAX, A_MODE = 17, 18, 19, 20, 21, 31


@pytest.fixture
def device() -> Device:
    torch.manual_seed(0)
    return Device()


class Product:
    """D of (N, M) in memory, which is M x N in columns: A transposed, by B."""

    def __init__(self, device: Device, a: torch.dtype, b: torch.dtype, c: torch.dtype, d) -> None:
        self.device = device
        self.a, self.b = torch.randn(M, K).to(a), torch.randn(N, K).to(b)
        self.c, self.d = torch.randn(N, M).to(c), torch.zeros(N, M).to(d)
        self.places = [device.put(x) for x in (self.a, self.b, self.c, self.d)]
        shapes = ((a, K, M, K), (b, K, N, K), (c, M, N, M), (d, M, N, M))
        self.layouts = [[CODE[kind], *sizes, []] for kind, *sizes in shapes]
        self.wanted = self.a.float() @ self.b.float().t()

    def run(self, attributes: dict[int, int], beta: float = 0) -> torch.Tensor:
        desc = [68, 0, [[3, struct.pack("<i", 1)], *map(_packed, attributes.items())]]
        self.device.call("lt_heuristic", desc, *self.layouts, [], 1)
        given = [x for pair in zip(self.places, self.layouts, strict=True) for x in pair]
        scalars = struct.pack("<f", 1), struct.pack("<f", beta)
        values = [scalars[0], *given[:4], scalars[1], *given[4:]]
        self.device.call("lt_matmul", 0, desc, *values, bytes(64), 0, 0)
        return self.device.get(self.places[3], self.d)

    def scale(self, value: float) -> int:
        return self.device.put(torch.tensor([float(value)]))


def _packed(attribute: tuple[int, int]) -> list[Any]:
    number, value = attribute
    return [number, struct.pack("<q" if number < A_MODE else "<i", value)]


def test_every_matrix_has_a_scale_of_its_own(device: Device) -> None:
    p = Product(device, E4M3, E5M2, torch.bfloat16, E4M3)
    scales = {A_SCALE: p.scale(0.5), B_SCALE: p.scale(3), D_SCALE: p.scale(0.25)}
    largest = p.scale(0)
    got = p.run({**scales, C_SCALE: p.scale(2), AMAX: largest}, beta=1)
    before = (p.wanted * 0.5 * 3).t() + 2 * p.c.float()
    assert torch.equal(got.float(), (before * 0.25).to(E4M3).float())
    torch.testing.assert_close(device.get(largest, torch.zeros(1))[0], before.abs().max())


@pytest.mark.parametrize("kind", [E4M3, E5M2])
def test_results_saturate(device: Device, kind: torch.dtype) -> None:
    p = Product(device, E4M3, E5M2, torch.float16, kind)
    got = p.run({D_SCALE: p.scale(1e9)}).float()
    assert torch.equal(got, p.wanted.t().sign() * torch.finfo(kind).max)


@pytest.mark.parametrize(
    ("types", "attributes"),
    [
        ((E5M2, E5M2, torch.bfloat16, torch.bfloat16), {}),
        ((E4M3, E4M3, torch.bfloat16, E5M2), {}),
        ((E4M3, E4M3, torch.float32, torch.bfloat16), {}),
        ((E4M3, E4M3, torch.bfloat16, torch.bfloat16), {A_MODE: 2}),
        ((torch.float16, torch.float16, torch.float16, torch.float16), {A_SCALE: 512}),
        ((torch.float16, torch.float16, torch.float16, torch.float16), {A_MODE: 3}),
    ],
)
def test_what_cublaslt_does_not_multiply_is_refused(device: Device, types, attributes) -> None:
    with pytest.raises(CallError) as refused:
        Product(device, *types).run(attributes)
    assert refused.value.code == NOT_SUPPORTED
