"""Products of matrices of 8-bit integers and floats, as cublasLt computes them, and casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

M, K, N = 32, 64, 48
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
#: The types of eight bits; the last one has exponents only, and no sign.
EIGHT = (E4M3, E5M2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu)
OTHERS = (F32, F16, BF16, torch.float64, torch.int32, torch.uint8, torch.bool)


def compare(got: Tensor, wanted: Tensor) -> None:
    """Integers exactly; floats are added up in 32 bits and rounded once, at times the other way."""
    if not wanted.is_floating_point():
        return torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    rounding = torch.finfo(wanted.dtype).eps
    torch.testing.assert_close(got.float(), wanted.float(), rtol=rounding, atol=1e-4)


def integers(device: torch.device, *sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randint(-128, 128, sizes, generator=generator).to(torch.int8).to(device)


def floats(*sizes: int, kind: torch.dtype = F32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, generator=generator).to(kind)


def _int_mm(device: torch.device) -> Tensors:
    a, b = integers(device, M, K), integers(device, N, K)
    return [torch._int_mm(a, b.t()), torch._int_mm(a, b.t().contiguous())]


def _scaled(
    a: torch.dtype, b: torch.dtype, out: torch.dtype, rows: bool = False,
    bias: torch.dtype | None = None, fast: bool = False,
) -> Case:  # fmt: skip
    """A of (M, K) by B of (K, N); with ``rows``, every row of A and column of B has a scale."""

    def case(device: torch.device) -> Tensors:
        left, right = floats(M, K, kind=a), floats(N, K, kind=b).t()
        scale_a = floats(M, 1).abs() + 0.1 if rows else torch.tensor(0.75)
        scale_b = floats(1, N).abs() + 0.2 if rows else torch.tensor(1.25)
        added = floats(N).to(bias) if bias else None
        if device.type == "cpu":
            product = (left.float() * scale_a) @ (right.float() * scale_b)
            return [(product + (0 if added is None else added.float())).to(out)]
        given = [x.to(device) for x in (left, right, scale_a, scale_b)]
        added = added.to(device) if added is not None else None
        return [torch._scaled_mm(*given, bias=added, out_dtype=out, use_fast_accum=fast)]

    return case


def _blocks(square: bool) -> Case:
    """A has a scale for 128 elements of a row; B too, or one for 128 x 128 elements."""
    m, k, n = 48, 512, 256

    def case(device: torch.device) -> Tensors:
        left, right = floats(m, k, kind=E4M3), floats(n, k, kind=E4M3)
        scale_a = floats(k // 128, m).abs().t() + 0.1
        scale_b = floats(n // 128, k // 128).abs() if square else floats(k // 128, n).abs().t()
        if device.type == "cpu":
            wide_a = left.float() * scale_a.repeat_interleave(128, 1)
            whole = scale_b.repeat_interleave(128, 0) if square else scale_b
            wide_b = right.float() * whole.repeat_interleave(128, 1)
            return [(wide_a @ wide_b.t()).to(BF16)]
        given = [x.to(device) for x in (left, right.t(), scale_a, scale_b.t())]
        return [torch._scaled_mm(*given, out_dtype=BF16)]

    return case


def _to_eight(kind: torch.dtype) -> Case:
    """From all types, in order and across: the bits."""

    def case(device: torch.device) -> Tensors:
        special = [0, -1.5, 3.14159, 448, 500, 60000, 1e-3, 2.0**-17, 1e6, torch.inf, torch.nan, 17]
        x = torch.tensor(special, dtype=torch.float64)
        x = x.abs() if kind == EIGHT[-1] else x
        given = [x.to(wide) for wide in OTHERS if wide.is_floating_point]
        given += [torch.arange(12).to(whole) for whole in OTHERS if not whole.is_floating_point]
        results = []
        for y in (y.to(device) for y in given):
            results += [y.to(kind), y.view(3, 4).t().to(kind).contiguous()]
        return [y.cpu().view(torch.uint8) for y in results]

    return case


def _from_eight(kind: torch.dtype) -> Case:
    """To all types that hold every value; bits, for NaN equals nothing."""

    def case(device: torch.device) -> Tensors:
        x = torch.arange(256, dtype=torch.uint8).to(device).view(kind)
        wide = [x.to(F32), x.view(16, 16).t().to(F32).contiguous(), x.to(BF16).to(F32)]
        eight = [x.to(other) for other in EIGHT[:-1]] if kind != EIGHT[-1] else []
        copied = torch.empty(16, 16, device=device, dtype=kind).copy_(x.view(16, 16).t())
        return [
            *(y.cpu().view(torch.int32) for y in wide),
            *(y.cpu().view(torch.uint8) for y in (*eight, copied)),
        ]

    return case


CASES: dict[str, Case] = {
    **{f"to {kind}": _to_eight(kind) for kind in EIGHT},
    **{f"from {kind}": _from_eight(kind) for kind in EIGHT},
    "integers": _int_mm,
    **{f"floats to {out}": _scaled(E4M3, E4M3, out) for out in (BF16, F16, F32)},
    **{f"floats and a bias to {out}": _scaled(E4M3, E4M3, out, bias=out) for out in (BF16, F16)},
    "floats of two kinds": _scaled(E4M3, E5M2, BF16),
    "floats of two kinds, fast": _scaled(E5M2, E4M3, BF16, fast=True),
    "floats to 8 bits": _scaled(E4M3, E4M3, E4M3, bias=BF16),
    "scales of blocks in a row": _blocks(square=False),
    "scales of square blocks": _blocks(square=True),
    "scales of rows": _scaled(E4M3, E4M3, BF16, rows=True),
    "scales of rows, a bias, fast": _scaled(E4M3, E4M3, BF16, rows=True, bias=BF16, fast=True),
}
