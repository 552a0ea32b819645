"""Operations that pick, place and move elements: each runs on a GPU's kernels and on the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool, torch.complex64)


def _values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    if kind == torch.bool or not (kind.is_floating_point or kind.is_complex):
        high = 2 if kind == torch.bool else 100
        return torch.randint(0, high, sizes, generator=generator).to(kind).to(device)
    return torch.randn(sizes, generator=generator).to(kind).to(device)


def _index(
    device: torch.device, bound: int, *sizes: int, low: int = 0, kind: torch.dtype = torch.int64
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(bound + sum(sizes))
    return torch.randint(low, bound, sizes, generator=generator).to(kind).to(device)


def _distinct(device: torch.device, bound: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(bound + count)
    return torch.randperm(bound, generator=generator)[:count].to(device)


def _embedding(device: torch.device) -> Tensors:
    table, few = _values(device, 50, 64), _values(device, 50, 3)
    return [
        F.embedding(_index(device, 50, 4, 7), table),
        F.embedding(_index(device, 50, 4, 7, kind=torch.int32), table),
        F.embedding(_index(device, 50, 9), few),
        F.embedding(_index(device, 50, 9), table.to(torch.bfloat16)),
        F.embedding(_index(device, 50, 0), table),
    ]


def _index_select(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 6, 4, kind=kind)
        for dim in range(3):
            results.append(x.index_select(dim, _index(device, x.size(dim), 7)))
        results.append(x.transpose(0, 2).index_select(1, _index(device, 6, 3, kind=torch.int32)))
    wide = _values(device, 40, 5, 3)
    results.append(wide.transpose(0, 1).index_select(1, _index(device, 40, 100)))
    results.append(wide.permute(2, 0, 1).index_select(2, _index(device, 5, 40)))
    results.append(_values(device, 9).index_select(0, _index(device, 9, 30)))
    results.append(_values(device, 2, 3, 4, 5, 2).index_select(3, _index(device, 5, 3)))
    return results


def _gather(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 6, 4, kind=kind)
        results.append(x.gather(0, _index(device, 5, 3, 6, 4)))
        results.append(x.gather(1, _index(device, 6, 5, 1, 4)))
        results.append(x.gather(2, _index(device, 4, 2, 3, 9)))
        results.append(x.gather(2, _index(device, 4, 1, 1, 1)))
    x = _values(device, 8, 6)
    results.append(x.t().gather(1, _index(device, 8, 6, 3)))
    results.append(x.gather(1, _index(device, 6, 8, 1)))
    results.append(x.expand(3, 8, 6).gather(1, _index(device, 8, 3, 4, 6)))
    results.append(x.gather(0, _index(device, 8, 6).expand(4, 6)))
    results.append(_values(device, 7).gather(0, _index(device, 7, 20)))
    results.append(_values(device, 2, 3, 2, 3, 4).gather(3, _index(device, 3, 2, 3, 2, 5, 4)))
    return results


def _scatter(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 6, 5, kind=kind)
        rows = torch.stack([_distinct(device, 6, 4)] * 5, 1)
        results.append(x.scatter(0, rows, _values(device, 4, 5, kind=kind)))
        results.append(x.scatter(0, rows, 1))
        results.append(x.t().scatter(1, rows.t(), _values(device, 5, 4, kind=kind)))
        columns = torch.stack([_distinct(device, 5, 1)] * 6)
        results.append(x.scatter(1, columns, 3))
    x = _values(device, 3, 6, 4)
    rows = _distinct(device, 6, 2).view(1, 2, 1).expand(3, 2, 4)
    results.append(x.scatter(1, rows, _values(device, 3, 2, 4)))
    results.append(_values(device, 9).scatter(0, _distinct(device, 9, 5), _values(device, 5)))
    return results


def _scatter_reduce(device: torch.device) -> Tensors:
    results = []
    for kind in (*FLOATS, torch.int64, torch.int32, torch.uint8):
        x, which = _values(device, 4, 6, kind=kind), _index(device, 4, 9, 6)
        values = _values(device, 9, 6, kind=kind)
        results.append(x.scatter_add(0, which, values))
        for how in ("sum", "prod", "amin", "amax", "mean"):
            results.append(x.scatter_reduce(0, which, values, how))
            results.append(x.scatter_reduce(0, which, values, how, include_self=False))
        results.append(x.scatter(0, which, 2, reduce="add"))
        results.append(x.scatter(0, which[:2], 2, reduce="multiply"))
    for kind in (torch.bool, torch.complex64):
        x, values = _values(device, 4, 6, kind=kind), _values(device, 9, 6, kind=kind)
        results.append(x.scatter_add(0, _index(device, 4, 9, 6), values))
        results.append(x.index_add(0, _index(device, 4, 9), values))
    wide, many = _values(device, 7, 64), _index(device, 7, 30)
    results.append(wide.scatter_add(0, many[:, None].expand(30, 64), _values(device, 30, 64)))
    return results


def _cat(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        parts = [_values(device, 2, n, 5, kind=kind) for n in (3, 1, 4)]
        results.append(torch.cat(parts, 1))
        results.append(torch.cat([parts[0]] * 3, 0))
        results.append(torch.cat([parts[0].transpose(0, 2), parts[2].transpose(0, 2)], 1))
        aligned = _values(device, 4, 64, kind=kind)
        results.append(torch.cat([aligned, aligned], 0))
        results.append(torch.cat([aligned, aligned, aligned], 1))
        results.append(torch.stack([aligned, aligned], -1))
    return results


def _cat_shapes(device: torch.device) -> Tensors:
    x = _values(device, 2, 3, 4, 5)
    last = x.contiguous(memory_format=torch.channels_last)
    out = torch.empty(4, 3, 4, 5, device=device).transpose(0, 1)
    return [
        *(torch.cat([x, x, x], dim) for dim in range(4)),
        *(torch.cat([last, last], dim) for dim in range(4)),
        torch.cat([x[:, :0], x], 1),
        torch.cat([torch.empty(0, device=device), x], 1),
        torch.cat([x.unsqueeze(0), x.unsqueeze(0)], 2),
        torch.cat([_values(device, n) for n in (3, 5, 1)]),
        torch.cat([_values(device, 1, n % 3 + 1) for n in range(300)], 1),
        torch.cat([x, x.transpose(2, 3).contiguous().transpose(2, 3)], 2),
        torch.cat([x[..., 1:], x[..., :2]], -1),
        torch.cat([x.permute(1, 0, 2, 3), x.permute(1, 0, 2, 3)], 1, out=out),
        torch.cat([x, x.double()], 0),
        torch.cat([x.transpose(1, 2)] * 150, 2),
        torch.cat([x, x.transpose(2, 3).contiguous().transpose(2, 3)] * 40, 1),
    ]


def _triangles(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 7, kind=kind)
        results += [x.tril(), x.triu(1), x.tril(-2), x.triu(-9), x.t().tril(1), x.clone().triu_(1)]
    batch = _values(device, 2, 3, 4, 4)
    results += [batch.tril(), batch.transpose(1, 3).triu(1), batch.expand(2, 2, 3, 4, 4).tril(-1)]
    strided = _values(device, 6, 9)
    strided.t()[::2].tril_()
    return [*results, strided]


def _index_get(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 6, 4, kind=kind)
        rows, columns = _index(device, 5, 3, 2, low=-5), _index(device, 6, 3, 2, low=-6)
        results += [x[rows], x[rows, columns], x[:, columns], x[:, :, rows.clamp(-4, 3)]]
        results += [
            x[rows, :, columns.clamp(-4, 3)],
            x.transpose(0, 2)[:, columns],
        ]
    x = _values(device, 5, 6, 4)
    results += [
        x[_index(device, 5, 7, kind=torch.int32)],
        x[_index(device, 5, 3, 1), _index(device, 6, 1, 4), _index(device, 4, 1)],
        x[torch.tensor(2, device=device)],
        x[_index(device, 5, 0)],
        x[None, :, _index(device, 6, 9)],
        x.expand(3, 5, 6, 4)[_index(device, 3, 7)],
        _values(device, 2, 3, 2, 3, 4)[:, _index(device, 3, 2), :, _index(device, 3, 2)],
        _values(device, 2, 3, 2, 3, 4)[:, _index(device, 3, 2), :, :, :3],
        _values(device, 9)[_index(device, 9, 2, 2, 2, low=-9)],
        _values(device, 9, 32)[_index(device, 9, 5, low=-9)],
    ]
    return results


def _index_put(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        rows = _distinct(device, 5, 3)
        for number in range(5):
            x = _values(device, 5, 6, 4, kind=kind)
            if number == 0:
                x[rows] = _values(device, 3, 6, 4, kind=kind)
            elif number == 1:
                x[rows, rows - 5] = _values(device, 3, 4, kind=kind)
            elif number == 2:
                x[:, rows] = 1
            elif number == 3:
                x.transpose(0, 1)[:, rows] = _values(device, 6, 3, 4, kind=kind)
            else:
                x[:, :, rows[:2].clamp(max=3)] = _values(device, 1, kind=kind)
            results.append(x)
    x = _values(device, 5, 6)
    x[x > 0] = 0
    x[torch.tensor(1, device=device)] = 7
    return [*results, x]


def _index_put_accumulate(device: torch.device) -> Tensors:
    results = []
    for kind in (*FLOATS, torch.int64, torch.int32):
        x = _values(device, 5, 6, 4, kind=kind)
        rows, columns = _index(device, 5, 9, low=-5), _index(device, 6, 9)
        results += [
            x.index_put((rows,), _values(device, 9, 6, 4, kind=kind), accumulate=True),
            x.index_put((rows, columns), _values(device, 9, 4, kind=kind), accumulate=True),
            x[:, :, 0].index_put((rows, columns), _values(device, 9, kind=kind), accumulate=True),
            x[:, 1]
            .t()
            .index_put((columns % 4,), _values(device, 9, 5, kind=kind), accumulate=True),
        ]
    wide = _values(device, 7, 100)
    results.append(wide.index_put((_index(device, 7, 30),), _values(device, 30, 100), True))
    return results


def _index_gradients(device: torch.device) -> Tensors:
    x = _values(device, 5, 6, 4).requires_grad_()
    which = _index(device, 5, 9)
    x[which].sum().backward()
    x.index_select(1, which).square().sum().backward()
    x.gather(0, _index(device, 5, 8, 6, 4)).square().sum().backward()
    assert x.grad is not None
    return [x.grad]


def _index_copy_fill(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 6, 4, kind=kind)
        rows = _distinct(device, 4, 3)
        results.append(x.index_copy(0, rows, _values(device, 3, 6, 4, kind=kind)))
        results.append(x.index_copy(2, rows, _values(device, 5, 6, 3, kind=kind)))
        results.append(x.transpose(0, 1).index_copy(1, rows, _values(device, 6, 3, 4, kind=kind)))
        results.append(x.index_copy(1, rows[:1], _values(device, 5, 1, 4, kind=kind)))
        results.append(x.index_fill(1, rows - 6, 1))
        results.append(x.index_fill(2, rows, 3 if kind != torch.bool else 1))
        results.append(x.index_fill(0, rows[:1], 0))
    results.append(_values(device, 9).index_fill(0, _distinct(device, 9, 4), 2.5))
    return results


def _index_add(device: torch.device) -> Tensors:
    results = []
    for kind in (*FLOATS, torch.int64, torch.int32, torch.uint8):
        x = _values(device, 5, 6, 4, kind=kind)
        for dim in range(3):
            sizes = [5, 6, 4]
            sizes[dim] = 9
            which = _index(device, x.size(dim), 9)
            values = _values(device, *sizes, kind=kind)
            results.append(x.index_add(dim, which, values, alpha=2))
            results.append(x.index_add(dim, which.to(torch.int32), values))
            for how in ("prod", "amin", "amax", "mean"):
                if how == "mean" and kind in FLOATS[2:]:
                    continue  # rounded in another order
                results.append(x.index_reduce(dim, which, values, how))
    x, many = _values(device, 6, 5, 8), _index(device, 6, 60)
    results.append(x.index_add(0, many, _values(device, 60, 5, 8)))
    results.append(x.transpose(0, 2).index_add(2, many, _values(device, 8, 5, 60)))
    results.append(x.transpose(1, 2).index_add(0, many, _values(device, 8, 5, 60).permute(2, 0, 1)))
    results.append(_values(device, 9).index_add(0, _index(device, 9, 20), _values(device, 20)))
    return results


def _take_put(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 6, kind=kind)
        which = _index(device, 30, 4, 3, low=-30)
        results += [x.take(which), x.t().take(which), x[:, ::2].take(which.clamp(-15, 14))]
        spots, values = _distinct(device, 30, 7), _values(device, 7, kind=kind)
        results += [x.put(spots - 30, values), x.clone().t().put_(spots, values)]
        if kind not in (torch.bool, torch.complex64):
            results.append(x.put(which, _values(device, 4, 3, kind=kind), accumulate=True))
    return results


def _moves(device: torch.device) -> Tensors:
    results = []
    for kind in TYPES:
        x = _values(device, 5, 6, 4, kind=kind)
        results += [x.flip(0), x.flip(1, 2), x.flip(0, 1, 2), x.transpose(0, 2).flip(1)]
        results += [x.roll(2), x.roll((1, -2), (0, 1)), x.transpose(0, 1).roll(7, 2), x.roll(0, 1)]
    return results


def _repeat_interleave(device: torch.device) -> Tensors:
    counts = _index(device, 4, 6)
    return [
        counts.repeat_interleave(counts),
        _values(device, 6, 2).repeat_interleave(counts, 0),
        _values(device, 6).repeat_interleave(3),
        torch.repeat_interleave(counts.int()),
    ]


def _triangle_indices(device: torch.device) -> Tensors:
    shapes = [(4, 4, 0), (5, 3, 1), (3, 7, -1), (6, 4, 2), (4, 6, -2), (8, 2, -3), (2, 9, 4)]
    return [
        make(*shape, device=device, dtype=kind)
        for shape in shapes
        for make in (torch.tril_indices, torch.triu_indices)
        for kind in (torch.int64, torch.int32)
    ]


def _single_elements(device: torch.device) -> Tensors:
    x, one, zero = _values(device, 3), _index(device, 3, 1), _index(device, 1, 1)
    row, square = _values(device, 1, 4), _values(device, 1, 1)
    results = [
        x[one],
        x[one - 3],
        _values(device, 3, 4)[one],
        _values(device, 3, 4)[:, one],
        square[zero, zero],
        square[zero[None]],
        x.gather(0, one),
        square.gather(1, zero[None]),
        row.gather(0, zero.expand(1, 4)),
        row.gather(1, zero[None]),
        x.scatter(0, one, x[:1]),
        x.scatter(0, one, 2.5),
        square.scatter_add(1, zero[None], square),
        row.scatter(1, zero[None], square),
        x.index_copy(0, one, x[:1]),
        square.index_copy(0, zero, square + 1),
        row.index_copy(1, zero, square),
        x.index_fill(0, one, 7),
        square.index_fill(1, zero, 7),
        row.index_fill(0, zero, 7),
        x.index_add(0, one, x[:1]),
        square.index_add(1, zero, square),
        x.index_select(0, one),
        row.index_select(0, zero),
        square.index_select(1, zero),
        x.take(one),
        x.put(one, x[:1]),
        torch.tensor(3.0, device=device).index_select(0, zero),
        torch.tensor(3.0, device=device).gather(0, zero[0]),
        torch.tensor(3.0, device=device).index_add(0, zero[0], x[0]),
        torch.tensor(3.0, device=device).take(zero),
        torch.cat([square, square]),
        square.flip(0, 1),
        square.tril(-1),
        square.roll(1, 0),
        _values(device, 3, 5, 2)[:, 1:2].roll(2, 1),
    ]
    y = x.clone()
    y[one] = 5
    return [*results, y]


def _masked(device: torch.device) -> Tensors:
    x, mask = _values(device, 5, 6), _values(device, 5, 6, kind=torch.bool)
    torch._assert_async(torch.ones(1, device=device))
    return [
        x.masked_select(mask),
        x[mask],
        _values(device, 5, 6, 4)[:, mask[0]],
        x.masked_scatter(mask, _values(device, 30)),
        x.t().masked_scatter(mask.t(), _values(device, 30)),
        F.one_hot(_index(device, 7, 3, 4), 7),
        mask.nonzero(),
    ]


CASES: dict[str, Case] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_reduce": _scatter_reduce,
    "cat": _cat,
    "cat_shapes": _cat_shapes,
    "triangles": _triangles,
    "triangle_indices": _triangle_indices,
    "index_get": _index_get,
    "index_put": _index_put,
    "index_put_accumulate": _index_put_accumulate,
    "index_gradients": _index_gradients,
    "index_copy_fill": _index_copy_fill,
    "index_add": _index_add,
    "take_put": _take_put,
    "moves": _moves,
    "repeat_interleave": _repeat_interleave,
    "single_elements": _single_elements,
    "masked": _masked,
}


def compare(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """The CPU rounds sums of 16-bit floats at each step, the kernels once."""
    close = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 2e-2)}
    rtol, atol = close.get(wanted.dtype, (None, None))
    torch.testing.assert_close(
        got, wanted, rtol=rtol, atol=atol, check_stride=False, equal_nan=True
    )
