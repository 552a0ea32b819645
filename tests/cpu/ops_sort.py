"""Sorting, selecting, scanning; gradients that are summed by sorted indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

Case = Callable[[torch.device], Sequence[torch.Tensor]]


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _integers(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def _sorted(values: torch.Tensor, descending: bool = False, dim: int = -1) -> Case:
    def case(device: torch.device) -> Sequence[torch.Tensor]:
        return torch.sort(values.to(device), dim=dim, descending=descending, stable=True)

    return case


def _special(n: int, kind: torch.dtype) -> torch.Tensor:
    values = _random(n).to(kind)
    values[::7], values[3::7], values[5::50], values[6::50] = 0.0, -0.0, float("inf"), float("nan")
    return values


def _put(device: torch.device) -> Sequence[torch.Tensor]:
    target = torch.zeros(50, 7, device=device)
    where = _integers(50, 300).to(device)
    target.index_put_((where,), _random(300, 7).to(device), accumulate=True)
    return [target]


def _index_backward(device: torch.device) -> Sequence[torch.Tensor]:
    x = _random(40, 30).to(device).requires_grad_()
    rows, columns = _integers(40, 500).to(device), _integers(30, 500, seed=1).to(device)
    (x[rows, columns] * _random(500).to(device)).sum().backward()
    assert x.grad is not None
    return [x.grad]


def _embedding_backward(count: int, padding: int | None = None, by_frequency: bool = False) -> Case:
    def case(device: torch.device) -> Sequence[torch.Tensor]:
        return [_gradient(device, count, torch.float32, padding, by_frequency)]

    return case


def _half_embedding_backward(device: torch.device) -> Sequence[torch.Tensor]:
    """The kernels sum in float32, the CPU does not."""
    kind = torch.float32 if device.type == "cpu" else torch.bfloat16
    return [_gradient(device, 4000, kind).bfloat16()]


def _gradient(
    device: torch.device,
    count: int,
    kind: torch.dtype,
    padding: int | None = None,
    by_frequency: bool = False,
) -> torch.Tensor:
    table = _random(100, 33).to(device, kind).requires_grad_()
    where = _integers(100, count).to(device)
    found = torch.nn.functional.embedding(
        where, table, padding_idx=padding, scale_grad_by_freq=by_frequency
    )
    found.backward(_random(count, 33, seed=2).bfloat16().to(device, kind))
    assert table.grad is not None
    return table.grad


def _bags(mode: str, padding: int | None = None, scaled: bool = False) -> Case:
    def case(device: torch.device) -> Sequence[torch.Tensor]:
        table = _random(60, 20).to(device).requires_grad_()
        factors = _random(900).to(device).requires_grad_() if scaled else None
        offsets = torch.tensor([0, 4, 4, 300, 301, 890], device=device)
        found = torch.nn.functional.embedding_bag(
            _integers(60, 900).to(device),
            table,
            offsets,
            mode=mode,
            per_sample_weights=factors,
            padding_idx=padding,
        )
        found.backward(_random(6, 20, seed=2).to(device))
        wanted = [table] if factors is None else [table, factors]
        return [found.detach(), *(x.grad for x in wanted if x.grad is not None)]

    return case


def _sorted_rows(*shape: int, dim: int = -1) -> Case:
    """Numbers without repetitions, so that every right result is the same."""

    def case(device: torch.device) -> Sequence[torch.Tensor]:
        count = torch.Size(shape).numel()
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
        values = order.view(shape).to(device)
        results = [*values.sort(dim), values.float().argsort(dim, descending=True)]
        if shape[dim] <= 3000:
            results += [*values.double().t().sort(0)]
        return results

    return case


def _top(kind: torch.dtype, *shape: int, k: int, dim: int = -1) -> Case:
    """Values only: which of equal elements is taken is left to the device."""

    def case(device: torch.device) -> Sequence[torch.Tensor]:
        values = (_random(*shape) * 100).to(kind)
        if kind.is_floating_point:
            values[..., 3] = float("nan")
        values = values.to(device)
        results = []
        for largest in (True, False):
            found, places = values.topk(k, dim, largest=largest)
            results += [
                found,
                values.gather(dim, places),
                places.sort(dim).values.diff(dim=dim) > 0,
            ]
        return results

    return case


def _middle(kind: torch.dtype, *shape: int) -> Case:
    def case(device: torch.device) -> Sequence[torch.Tensor]:
        values = (_random(*shape) * 100).to(kind).to(device)
        median, places = values.median(-1)
        third, third_places = values.kthvalue(3, 0)
        results = [median, values.gather(-1, places.unsqueeze(-1)), values.median(), third]
        results.append(values.gather(0, third_places.unsqueeze(0)))
        if kind.is_floating_point:
            values[0, ::2] = float("nan")
            results += [values.median(-1).values, values.nanmedian(-1).values, values.nanmedian()]
        return results

    return case


def _unique(kind: torch.dtype, high: int = 40) -> Case:
    def case(device: torch.device) -> Sequence[torch.Tensor]:
        results: list[torch.Tensor] = []
        for shape in ((7,), (20, 9), (30000,)):
            values = (_integers(high, *shape) - high // 2).to(kind).to(device)
            results += [values.unique(), *values.unique(return_inverse=True, return_counts=True)]
            results += [*values.unique_consecutive(return_inverse=True, return_counts=True)]
            results += [*values.unique(return_counts=True)]
        return results

    return case


def _unique_rows(kind: torch.dtype, *shape: int, dim: int = 0) -> Case:
    """Unique slices along a dimension, of many; and those of one kind of slice only."""

    def case(device: torch.device) -> Sequence[torch.Tensor]:
        results: list[torch.Tensor] = []
        for high in (2, 1):
            values = (_integers(high, *shape) * 3 - 2).to(kind).to(device)
            results += [torch.unique(values, dim=dim), torch.unique_consecutive(values, dim=dim)]
            for find in (torch.unique, torch.unique_consecutive):
                results += find(values, return_inverse=True, return_counts=True, dim=dim)
                results += find(values, return_inverse=True, dim=dim)
                results += find(values, return_counts=True, dim=dim)
        return results

    return case


def _shuffled(device: torch.device) -> Sequence[torch.Tensor]:
    """randperm draws other numbers on another device; but all of them."""
    sizes = [1, 10, 5000, 100000] * 20
    return [torch.randperm(n, device=device).sort().values for n in sizes]


def _histogram(device: torch.device) -> Sequence[torch.Tensor]:
    integers, numbers = _integers(50, 3000).to(device), _random(3000).to(device)
    return [
        integers.bincount(minlength=60),
        integers.int().bincount(weights=_integers(8, 3000).double().to(device)),
        _integers(100000, 3000).to(device).bincount(),
        numbers.histc(30),
        numbers.double().histc(7, -1, 1),
    ]


def _searched(device: torch.device) -> Sequence[torch.Tensor]:
    table, values = _random(6, 40).sort().values.to(device), _random(6, 9, seed=1).to(device)
    integers = _integers(50, 20).sort().values.to(device)
    backwards = torch.arange(40).flip(0).repeat(6, 1)
    return [
        torch.searchsorted(table, values),
        torch.searchsorted(table, values, right=True, out_int32=True),
        torch.searchsorted(table.flip(1), values, sorter=backwards.to(device)),
        torch.bucketize(values, table[0]),
        torch.bucketize(_integers(60, 3, 5).to(device), integers, right=True),
        torch.isin(_integers(60, 300).to(device), integers),
    ]


def _unfold_backward(dim: int, size: int, step: int, kind: torch.dtype = torch.float32) -> Case:
    def case(device: torch.device) -> Sequence[torch.Tensor]:
        x = _random(9, 30, 4).to(kind).to(device).requires_grad_()
        windows = x.unfold(dim, size, step)
        windows.backward(_random(*windows.shape).to(kind).to(device))
        assert x.grad is not None
        return [x.grad]

    return case


def _flags(device: torch.device) -> Sequence[torch.Tensor]:
    x = _random(20, 30).to(device)
    return [
        torch.nonzero_static(x > 1, size=20),
        torch.nonzero_static(x > 1, size=700),
        torch.nonzero_static((_random(40000).to(device) > 0).float(), size=30000, fill_value=7),
        torch.combinations(torch.arange(6, device=device)),
    ]


def _modes(device: torch.device) -> Sequence[torch.Tensor]:
    results = []
    for shape, dim in (((20, 30), 1), ((20, 30), 0), ((6, 1000), 1), ((3, 4, 5), 1)):
        values = _integers(6, *shape).to(device)
        found, places = values.mode(dim)
        results += [found, values.gather(dim, places.unsqueeze(dim)).squeeze(dim)]
        results.append(values.float().mode(dim, keepdim=True).values)
    return results


_KINDS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

CASES: dict[str, Case] = {
    **{
        f"sort {n} {kind} {'down' if down else 'up'}": _sorted(_special(n, kind), down)
        for kind in _FLOATS
        for n in (20, 5000)
        for down in (False, True)
    },
    **{
        f"sort {n} {kind} {'down' if down else 'up'}": _sorted(
            (_integers(300, n) - 100).to(kind), down
        )
        for kind in _KINDS
        for n in (20, 5000)
        for down in (False, True)
    },
    "index_put accumulate": _put,
    "index backward": _index_backward,
    "embedding backward 4000": _embedding_backward(4000),
    "embedding backward 40000": _embedding_backward(40000),
    "embedding backward 4000 padding": _embedding_backward(4000, padding=3),
    "embedding backward 4000 by frequency": _embedding_backward(4000, by_frequency=True),
    "embedding backward 4000 half": _half_embedding_backward,
    "sort rows": _sorted_rows(5, 7),
    "sort rows of 100": _sorted_rows(30, 100),
    "sort rows of 1500": _sorted_rows(6, 1500),
    "sort few long rows": _sorted_rows(6, 3000),
    "sort many long rows": _sorted_rows(200, 2500),
    "sort one long row": _sorted_rows(1, 200000),
    "sort along another dimension": _sorted_rows(40, 50, dim=0),
    "sort long columns": _sorted_rows(3000, 4, dim=0),
    **{f"topk {kind}": _top(kind, 6, 50, k=5) for kind in (*_FLOATS, *_KINDS[:5])},
    "topk one": _top(torch.float32, 6, 50, k=1),
    "topk none": _top(torch.float32, 3, 5000, k=0),
    "topk all": _top(torch.float32, 6, 50, k=50),
    "topk along another dimension": _top(torch.float32, 60, 5, k=7, dim=0),
    "topk of a long row": _top(torch.float32, 200000, k=300),
    "topk of long rows": _top(torch.int32, 3, 200000, k=5),
    "topk of rows of 9000": _top(torch.bfloat16, 20, 9000, k=2000),
    **{f"median {kind}": _middle(kind, 9, 31) for kind in (*_FLOATS, *_KINDS[:5])},
    **{f"unique {kind}": _unique(kind) for kind in (*_FLOATS[:3], *_KINDS)},
    "unique of one": _unique(torch.bool, 1),
    **{f"unique rows {kind}": _unique_rows(kind, 50, 3) for kind in (*_FLOATS, *_KINDS)},
    "unique columns": _unique_rows(torch.float32, 3, 40, 2, dim=1),
    "unique rows of many": _unique_rows(torch.int64, 30000, 4),
    "unique row": _unique_rows(torch.float32, 1, 5),
    "randperm": _shuffled,
    "histogram": _histogram,
    **{f"bags {mode}": _bags(mode) for mode in ("sum", "mean", "max")},
    **{f"bags {mode} with padding": _bags(mode, 7) for mode in ("sum", "mean", "max")},
    "bags with factors": _bags("sum", scaled=True),
    "searchsorted": _searched,
    "unfold backward": _unfold_backward(1, 5, 2),
    "unfold backward without overlap": _unfold_backward(1, 3, 4),
    "unfold backward of the last dimension": _unfold_backward(2, 4, 1),
    "unfold backward of the first dimension": _unfold_backward(0, 4, 3, torch.float64),
    "nonzero_static": _flags,
    "mode": _modes,
}
