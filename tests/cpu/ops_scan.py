"""Scans, and what selects or sorts by them: on a GPU's kernels and on the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES = ((7,), (3000,), (5, 40), (4, 3, 6), (2, 1030), (1030, 2), (1,), (0, 3))


def _values(kind: torch.dtype, *sizes: int) -> Tensor:
    """Small numbers around zero, as halves and ones, so that sums are exact."""
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    numbers = torch.randint(0 if kind == torch.uint8 else -1, 2, sizes, generator=generator)
    return (numbers / 2 if kind.is_floating_point else numbers).to(kind)


def _scan(function: Callable[[Tensor, int], Tensors], *kinds: torch.dtype) -> Case:
    def case(device: torch.device) -> Tensors:
        results: list[Tensor] = []
        for kind in kinds:
            for shape in SHAPES:
                x = _values(kind, *shape).to(device)
                for dim in range(x.dim()):
                    results += function(x, dim)
            results += function(_values(kind, 9, 5).to(device).t(), 1)
        return results

    return case


def _product(x: Tensor, dim: int) -> Tensors:
    return [torch.cumprod(1 + x / 8 if x.is_floating_point() else x, dim)]


def _nonzero(device: torch.device) -> Tensors:
    results = []
    for kind in (*FLOATS, *INTEGERS, torch.bool, torch.complex64):
        for shape in ((5,), (3, 4), (2, 3, 4), (40000,), (70, 300), (0, 4), ()):
            x = _values(torch.float32, *shape).to(kind).to(device)
            results += [x.nonzero(), x.masked_select(x == 0)]
    x = _values(torch.float32, 8, 9).to(device)
    return [*results, x[x > 0], x.t()[x.t() < 0], *torch.where(x == 0)]


def _accumulated(device: torch.device) -> Tensors:
    """index_put with accumulation sorts the indices."""
    results = []
    generator = torch.Generator().manual_seed(4)
    for count in (5, 300, 20000):
        for kind in (torch.float32, torch.float64, torch.int64):
            index = torch.randint(-50, 50, (count,), generator=generator).to(device)
            x = torch.zeros(50, 4, dtype=kind, device=device)
            results.append(x.index_put((index,), _values(kind, count, 4).to(device), True))
    return results


def _printed(device: torch.device) -> Tensors:
    """The numbers of a printed tensor, as bytes."""
    tensors = [_values(kind, 30, 40).to(device) for kind in (*FLOATS, torch.int64, torch.bool)]
    texts = [repr(x) for x in (*tensors, tensors[0][0] / 3)]
    return [torch.tensor(list(text[: text.rindex("]")].encode())) for text in texts]


CASES: dict[str, Case] = {
    "cumsum": _scan(lambda x, dim: [torch.cumsum(x, dim)], *FLOATS, *INTEGERS),
    "cumsum of truth": _scan(lambda x, dim: [torch.cumsum(x > 0, dim)], torch.float32),
    "cumprod": _scan(_product, *FLOATS, torch.int64),
    "cummax": _scan(lambda x, dim: list(torch.cummax(x, dim)), *FLOATS, *INTEGERS),
    "cummin": _scan(lambda x, dim: list(torch.cummin(x, dim)), *FLOATS, *INTEGERS),
    "logcumsumexp": _scan(
        lambda x, dim: [torch.logcumsumexp(x, dim)], torch.float32, torch.float64
    ),
    "nonzero": _nonzero,
    "index_put with accumulation": _accumulated,
    "printed": _printed,
}


def compare(got: Tensor, wanted: Tensor) -> None:
    """The CPU rounds 16-bit floats after each step of a scan, the kernels at its end."""
    close = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (5e-2, 5e-2)}
    rtol, atol = close.get(wanted.dtype, (None, None))
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, check_stride=False)
