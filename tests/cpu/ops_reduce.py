"""Reductions: each runs on a GPU's kernels and on the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SHAPES = ((7,), (5, 6), (3, 4, 5), (2, 3, 4, 5), (300, 40), (40, 300), (1, 9), (2, 70000))


def compare(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums are taken in another order than on the CPU."""
    close = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 1e-2)}
    floating = wanted.is_floating_point() or wanted.is_complex()
    rtol, atol = close.get(wanted.dtype, (2e-5, 1e-5)) if floating else (0, 0)
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)


def _values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    if not (kind.is_floating_point or kind.is_complex):
        return torch.randint(0, 2 if kind == torch.bool else 9, sizes, generator=generator).to(
            device, kind
        )
    return torch.randn(sizes, generator=generator).to(device, kind)


def _each_dim(function: Callable[..., torch.Tensor], kinds: Sequence[torch.dtype]) -> Case:
    """Over everything, over each dimension, kept and not, contiguous and not."""

    def case(device: torch.device) -> Tensors:
        results = []
        for kind in kinds:
            for shape in SHAPES:
                x = _values(device, *shape, kind=kind)
                results += [function(x, dim) for dim in range(x.dim())]
                results.append(function(x.transpose(0, -1), 0, keepdim=True))
                results.append(function(x.unsqueeze(0).expand(3, *shape), -1))
                results.append(function(x[..., ::2], -1))
        return results

    return case


def _several_dims(function: Callable[..., torch.Tensor], kinds: Sequence[torch.dtype]) -> Case:
    def case(device: torch.device) -> Tensors:
        results = []
        for kind in kinds:
            x = _values(device, 3, 4, 5, 6, kind=kind)
            pairs = ((0, 1), (0, 2), (1, 3), (0, 1, 3), (2, 3))
            results += [function(x, dims) for dims in pairs]
            results += [function(x.permute(2, 0, 3, 1), dims, keepdim=True) for dims in pairs]
        return results

    return case


def _whole(function: Callable[[torch.Tensor], torch.Tensor], kinds: Sequence[torch.dtype]) -> Case:
    def case(device: torch.device) -> Tensors:
        inputs = [_values(device, *shape, kind=kind) for kind in kinds for shape in SHAPES]
        return [function(x) for x in inputs] + [function(x.transpose(0, -1)) for x in inputs]

    return case


def _empty(device: torch.device) -> Tensors:
    x = torch.zeros(0, 3, device=device)
    return [x.sum(), x.sum(0), x.sum(1), x.any(0), x.all(0), x.mean(0)]


def _to_other_type(device: torch.device) -> Tensors:
    half = _values(device, 30, 20, kind=torch.float16)
    brain = _values(device, 30, 20, kind=torch.bfloat16)
    truth = _values(device, 30, 20, kind=torch.bool)
    return [
        half.sum(0, dtype=torch.float32),
        brain.sum(1, dtype=torch.float32),
        half.mean(dtype=torch.float32),
        truth.sum(),
        truth.sum(0),
        truth.float().mean(1),
        torch.linalg.vector_norm(half, 2, 1, dtype=torch.float32),
    ]


def _nan(device: torch.device) -> Tensors:
    x = _values(device, 6, 40)
    x = x.clone()
    x[1, 3] = torch.nan
    x[4, 39] = torch.inf
    pairs = [x.max(1), x.min(1), x.max(0), x.min(0)]
    results = [part for pair in pairs for part in pair]
    return [*results, x.amax(1), x.amin(0), x.nansum(1), x.argmax(1), x.argmin(0), x.sum(1)]


def _ties(device: torch.device) -> Tensors:
    x = _values(device, 40, 500, kind=torch.int64)
    return [x.argmax(0), x.argmax(1), x.argmin(1), *x.max(1), *x.min(0), x.argmax()]


def _moments(device: torch.device) -> Tensors:
    results = []
    for kind in FLOATS:
        x = _values(device, 30, 50, kind=kind)
        results += [x.var(), x.std(0), x.var(1, correction=0), x.std((0, 1), keepdim=True)]
        results += [*torch.var_mean(x, 1), *torch.std_mean(x, 0, correction=2)]
    return results


def _aminmax(device: torch.device) -> Tensors:
    inputs = [_values(device, 30, 50, kind=kind) for kind in (*FLOATS, *INTEGERS)]
    return [part for x in inputs for part in (*x.aminmax(), *x.aminmax(dim=1))]


def _norm(device: torch.device) -> Tensors:
    orders = (0, 0.5, 1, 2, 3, float("inf"), float("-inf"))
    results = []
    for kind in FLOATS:
        x = _values(device, 9, 31, kind=kind)
        results += [torch.linalg.vector_norm(x, order, 1) for order in orders]
        results += [torch.linalg.vector_norm(x, order) for order in orders]
    return [*results, _values(device, 9, 31).norm(), _values(device, 2, 3, 4).norm(dim=(0, 2))]


def _complex(device: torch.device) -> Tensors:
    results = []
    for kind in (torch.complex64, torch.complex128):
        x = torch.view_as_complex(_values(device, 9, 31, 2, kind=kind.to_real()))
        results += [x.sum(), x.sum(0), x.mean(1), torch.linalg.vector_norm(x, 2, 1), x.any(0)]
    return results


ALL = (*FLOATS, *INTEGERS)


def _segments(device: torch.device) -> Tensors:
    """Runs of elements, some of them empty, along the first and the second dimension."""
    results = []
    for kind in ("sum", "mean", "max", "min", "prod"):
        for initial in (None, 0.5):
            for sizes, axis in (((9,), 0), ((9, 4), 0), ((2, 9, 3), 1)):
                x = _values(device, *sizes).requires_grad_()
                lengths = torch.tensor([2, 0, 4, 3], device=device).expand(*sizes[:axis], 4)
                options = {"lengths": lengths.contiguous(), "axis": axis, "initial": initial}
                y = torch.segment_reduce(x, kind, **options)
                weight = torch.arange(y.numel(), device=device).view_as(y).float()
                results += [y.detach(), *torch.autograd.grad(y, x, weight)]
        starts = torch.tensor([0, 2, 2, 9], device=device, dtype=torch.int32)
        double = _values(device, 9, 2, kind=torch.float64)
        results.append(torch.segment_reduce(double, kind, offsets=starts, initial=1))
    return results


CASES: dict[str, Case] = {
    "segments": _segments,
    "sum": _whole(torch.sum, ALL),
    "sum of a dimension": _each_dim(torch.sum, (*FLOATS, torch.int64)),
    "sum of dimensions": _several_dims(torch.sum, FLOATS),
    "mean": _whole(torch.mean, FLOATS),
    "mean of a dimension": _each_dim(torch.mean, FLOATS),
    "mean of dimensions": _several_dims(torch.mean, FLOATS),
    "largest": _whole(torch.max, ALL),
    "smallest": _whole(torch.min, ALL),
    "amax": _several_dims(torch.amax, (*ALL, torch.bool)),
    "amin": _several_dims(torch.amin, (*ALL, torch.bool)),
    "largest of a dimension": _each_dim(lambda x, *a, **k: torch.max(x, *a, **k)[0], ALL),
    "argmax": _each_dim(torch.argmax, ALL),
    "argmin": _each_dim(torch.argmin, ALL),
    "any": _several_dims(torch.any, (*ALL, torch.bool)),
    "all": _several_dims(torch.all, (*ALL, torch.bool)),
    "aminmax": _aminmax,
    "moments": _moments,
    "norm": _norm,
    "complex": _complex,
    "not a number": _nan,
    "ties": _ties,
    "nothing": _empty,
    "another type": _to_other_type,
}
