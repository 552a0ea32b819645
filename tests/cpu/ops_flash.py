"""Flash attention: values, gradients, dropout, beside float64 and a Philox of the tests' own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

HALVES = (torch.float16, torch.bfloat16)
SEED = 0x123456789ABCDEF
OFFSET = (1 << 32) - 64  # of the generator: heads after the second one are beyond 32 bits
LOW = 0xFFFFFFFF
_UNLIMITED = (-1, -1)
_flash: Any = torch.ops.aten._flash_attention_forward


def compare(got: Tensor, wanted: Tensor) -> None:
    """Results are rounded to 16 bits once, which may go the other way: one unit in the last place.

    The gradient of logits subtracts the product of the gradient with the rounded output. Over all
    columns, times the scale, that is half a unit of a number of about one, times a key of up to
    four. What is kept is exact.
    """
    ulp = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 1e-5}
    unit = ulp.get(wanted.dtype, 0.0)
    torch.testing.assert_close(
        got, wanted, rtol=unit, atol=2 * unit, check_stride=False, equal_nan=True
    )


@cache
def _bytes(row: int, column: int, offset: int) -> bytes:
    """What a lane draws in one block: Philox4x32 of seven rounds (Salmon et al., 2011)."""
    counter = [offset & LOW, offset >> 32, row, column]
    key = [SEED & LOW, SEED >> 32]
    for _ in range(7):
        low, high = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            high >> 32 ^ counter[1] ^ key[0],
            high & LOW,
            low >> 32 ^ counter[3] ^ key[1],
            low & LOW,
        ]
        key = [key[0] + 0x9E3779B9 & LOW, key[1] + 0xBB67AE85 & LOW]
    return b"".join(word.to_bytes(4, "little") for word in counter)


def _byte(head: int, query: int, key: int, offset: int) -> int:
    """What decides on one weight; heads of all sequences are counted."""
    block, i, j = (query // 16, key // 32), query % 16, key % 32
    lane = i % 8 * 4 + j % 8 // 2
    return _bytes(*block, offset + 32 * head + lane)[j // 8 * 4 + i // 8 * 2 + j % 2]


def keep(
    first: int, heads: int, queries: int, keys: int, drop: float, offset: int = OFFSET
) -> Tensor:
    """What the kernel keeps of the weights of some heads."""
    chosen = [
        _byte(first + head, query, key, offset) <= math.floor(_float(1 - drop) * 255)
        for head in range(heads) for query in range(queries) for key in range(keys)
    ]  # fmt: skip
    return torch.tensor(chosen).view(heads, queries, keys)


def _float(x: float) -> float:
    return torch.tensor(x).item()


def values(device: torch.device, *sizes: int, kind: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator).to(kind).to(device)


def start() -> None:
    """Puts the GPU's generator where the reference has it."""
    torch.cuda.init()
    torch.cuda.manual_seed(SEED)
    torch.cuda.default_generators[0].set_offset(OFFSET)


def hidden(queries: int, keys: int, window: tuple[int, int]) -> Tensor:
    """What a query does not see: the window is aligned with the bottom right corner."""
    left, right = (n if n >= 0 else queries + keys for n in window)
    distance = torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)
    return (distance > right) | (distance < -left)


def reference(
    q: Tensor, k: Tensor, v: Tensor, window: tuple[int, int], drop: float = 0.0,
    scale: float | None = None, first: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and logarithms of sums of (row, head, column); heads of keys may be fewer."""
    ratio = q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = k.repeat_interleave(ratio, 0), v.repeat_interleave(ratio, 0)
    mask = hidden(q.shape[1], k.shape[1], window)
    logits = (q @ k.mT * (scale or q.shape[-1] ** -0.5)).masked_fill(mask, -math.inf)
    empty = mask.all(-1)[:, None]
    weights = logits.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    if drop:
        weights = weights * keep(first, q.shape[0], q.shape[1], k.shape[1], drop) / (1 - drop)
    sums = logits.logsumexp(-1)
    return (weights @ v).transpose(0, 1), sums.masked_fill(empty[:, 0], math.inf)


def attend(
    device: torch.device, q: Tensor, k: Tensor, v: Tensor, *,
    window: tuple[int, int] = _UNLIMITED, drop: float = 0.0, scale: float | None = None,
    lengths: tuple[list[int], list[int]] | None = None,
) -> list[Tensor]:  # fmt: skip
    """Output, logarithms of sums and gradients of (sequence, row, head, column).

    With `lengths`, sequences lie one behind another: (row, head, column).
    """
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    run = _on_device if device.type == "cuda" else _by_hand
    y, sums = run(*leaves, window, drop, scale, lengths)
    weight = torch.linspace(-1, 1, y.numel()).view(y.shape).to(q)
    grads = torch.autograd.grad(y, leaves, weight)
    return [y.detach().to(q.dtype), sums.detach().float(), *grads]


def _on_device(
    q: Tensor, k: Tensor, v: Tensor, window: tuple[int, int], drop: float, scale: float | None,
    lengths: tuple[list[int], list[int]] | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    start()
    bounds, most = [None, None], [q.shape[1], k.shape[1]]
    if lengths is not None:
        bounds = [_bounds(some).to(q.device) for some in lengths]
        most = [max(some) for some in lengths]
    causal = window == (-1, 0)
    left, right = (None, None) if causal else window
    y, sums, state, *_ = _flash(
        q, k, v, *bounds, *most, drop, causal, False,
        scale=scale, window_size_left=left, window_size_right=right,
    )  # fmt: skip
    assert not drop or state.view(torch.int64).tolist() == [SEED, OFFSET]
    return y, sums


def _bounds(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def _by_hand(
    q: Tensor, k: Tensor, v: Tensor, window: tuple[int, int], drop: float, scale: float | None,
    lengths: tuple[list[int], list[int]] | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    parts = zip(q, k, v, strict=True)
    if lengths is not None:
        parts = zip(q.split(lengths[0]), k.split(lengths[1]), v.split(lengths[1]), strict=True)
    heads = q.shape[-2]
    found = [
        reference(*part, window, drop, scale, number * heads) for number, part in enumerate(parts)
    ]
    join = (torch.stack, torch.stack) if lengths is None else (torch.cat, lambda x: torch.cat(x, 1))
    outputs, sums = (f(x) for f, x in zip(join, zip(*found, strict=True), strict=True))
    return outputs.to(q.dtype), sums


def dense(*cases: tuple[int, int, int], **options: Any) -> Case:
    """Attention of two sequences with three heads; a case is (queries, keys, columns)."""

    def case(device: torch.device) -> list[Tensor]:
        results = []
        for kind in HALVES:
            for queries, keys, depth in cases:
                q = values(device, 2, queries, 3, depth, kind=kind)
                k, v = (values(device, 2, keys, 3, depth, kind=kind, seed=n) for n in (1, 2))
                results += attend(device, q, k, v, **options)
        return results

    return case


def grouped(**options: Any) -> Case:
    """Six heads of queries for two of keys and values."""

    def case(device: torch.device) -> list[Tensor]:
        q = values(device, 2, 20, 6, 16, kind=torch.bfloat16)
        k, v = (values(device, 2, 20, 2, 16, kind=torch.bfloat16, seed=n) for n in (1, 2))
        return attend(device, q, k, v, **options)

    return case


def uneven(queries: list[int], keys: list[int], heads: int = 2, **options: Any) -> Case:
    """Sequences of these lengths, one behind another."""

    def case(device: torch.device) -> list[Tensor]:
        results = []
        for kind in HALVES:
            q = values(device, sum(queries), 4, 16, kind=kind)
            k, v = (values(device, sum(keys), heads, 16, kind=kind, seed=n) for n in (1, 2))
            results += attend(device, q, k, v, lengths=(queries, keys), **options)
        return results

    return case


def _chosen(device: torch.device) -> Tensors:
    """The choice itself: all logits are zero, and the values tell the keys apart."""
    results = []
    for kind in HALVES:
        for queries, keys, drop in ((5, 5, 0.1), (70, 40, 0.25), (33, 129, 0.9), (17, 256, 0.5)):
            if device.type == "cpu":
                results.append(keep(0, 6, queries, keys, drop).view(2, 3, queries, keys))
                continue
            q = torch.zeros(2, 3, queries, keys, device=device, dtype=kind)
            k = torch.zeros(2, 3, keys, keys, device=device, dtype=kind)
            v = torch.eye(keys, device=device, dtype=kind).expand(2, 3, keys, keys)
            start()
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                y = F.scaled_dot_product_attention(q, k, v, dropout_p=drop)
            results.append(y != 0)
    return results


def _one_after_another(device: torch.device) -> Tensors:
    """Every call moves the generator on: two calls drop differently, and a seed repeats both."""
    if device.type == "cpu":
        return [torch.tensor([True, False])]
    q = torch.ones(1, 2, 64, 8, device=device, dtype=torch.bfloat16)
    runs = []
    for _ in range(2):
        start()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            runs.append([F.scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(2)])
    (a, b), (c, d) = runs
    return [torch.tensor([torch.equal(a, c) and torch.equal(b, d), torch.equal(a, b)])]


def _odd_columns(device: torch.device) -> Tensors:
    """Columns are padded to a multiple of eight, keys shared, both through the usual function."""
    results = []
    for kind in HALVES:
        leaves = [
            values(device, 2, heads, 12, 9, kind=kind, seed=n).requires_grad_()
            for n, heads in enumerate((4, 2, 2))
        ]
        if device.type == "cuda":
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                y = F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
        else:
            y = _heads_first(*leaves)
        weight = torch.linspace(-1, 1, y.numel()).view(y.shape).to(y)
        results += [y.detach(), *torch.autograd.grad(y, leaves, weight)]
    return results


def _heads_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = zip(*(x.transpose(1, 2) for x in (q, k, v)), strict=True)
    found = [reference(*one, (-1, 0))[0] for one in rows]
    return torch.stack(found).transpose(1, 2).to(q.dtype)


def _nested(device: torch.device) -> Tensors:
    """Sequences of their own lengths, as a nested tensor."""
    lengths = [3, 17, 8]
    parts = [values(device, n, 2, 16, kind=torch.bfloat16, seed=n) for n in lengths]
    if device.type == "cpu":
        return [torch.cat([reference(x, x, x, _UNLIMITED)[0] for x in parts]).bfloat16()]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        y = F.scaled_dot_product_attention(x, x, x)
    return [y.transpose(1, 2).values()]


def _reproducible(device: torch.device) -> Tensors:
    """Deterministic algorithms sum the gradient of queries in several places."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return dense((40, 300, 32), drop=0.2, window=(-1, 0))(device)
    finally:
        torch.use_deterministic_algorithms(False)


def _pages(device: torch.device) -> Tensors:
    """Keys and values in pages that a table puts in order."""
    kind, lengths, size = torch.bfloat16, [300, 20], 256
    q = values(device, 5, 4, 16, kind=kind)
    k, v = (values(device, 3, size, 2, 16, kind=kind, seed=n) for n in (1, 2))
    order = [[2, 0], [1, 1]]
    if device.type == "cpu":
        found = [
            reference(a, *(x[table].flatten(0, 1)[:n] for x in (k, v)), _UNLIMITED)[0]
            for a, table, n in zip(q.split([2, 3]), order, lengths, strict=True)
        ]
        return [torch.cat(found).to(kind)]
    ends, used = _bounds([2, 3]).to(device), torch.tensor(lengths, device=device).int()
    table = torch.tensor(order, device=device).int()
    y, *_ = _flash(
        q, k, v, ends, _bounds([512, 512]).to(device), 3, 512, 0.0, False, False,
        seqused_k=used, block_table=table,
    )  # fmt: skip
    return [y]


_DIMENSIONS = ((5, 5, 8), (40, 70, 40), (64, 64, 64), (33, 65, 96), (20, 30, 256))

CASES: dict[str, Case] = {
    "what is kept": _chosen,
    "one after another": _one_after_another,
    "plain": dense(*_DIMENSIONS),
    "scaled": dense((40, 70, 16), scale=0.3),
    "dropped": dense(*_DIMENSIONS, drop=0.1),
    "dropped, mostly": dense((70, 70, 32), drop=0.75),
    "causal": dense((5, 5, 8), (70, 70, 32), window=(-1, 0)),
    "causal, fewer queries than keys": dense((20, 50, 16), window=(-1, 0)),
    "causal, rows that see nothing": dense((50, 20, 16), window=(-1, 0)),
    "causal, dropped": dense((70, 70, 32), (20, 50, 16), window=(-1, 0), drop=0.1),
    "windows": dense((70, 70, 32), (20, 50, 16), window=(9, 3)),
    "windows to the left": dense((70, 70, 32), window=(9, 0), drop=0.1),
    "windows to the right": dense((70, 70, 32), window=(-1, 4)),
    "heads that share keys": grouped(),
    "heads that share keys, dropped": grouped(drop=0.25),
    "odd columns": _odd_columns,
    "one query, many keys": dense((1, 3000, 64), (1, 513, 128)),
    "few queries, many keys": dense((7, 1500, 64), window=(-1, 0)),
    "one query, heads that share keys": lambda device: attend(
        device,
        values(device, 2, 1, 6, 64, kind=torch.bfloat16),
        *(values(device, 2, 900, 2, 64, kind=torch.bfloat16, seed=n) for n in (1, 2)),
    ),
    "lengths": uneven([5, 40, 17], [5, 40, 17]),
    "lengths, dropped": uneven([5, 40, 17], [9, 70, 20], drop=0.1),
    "lengths, causal": uneven([5, 40, 17], [9, 70, 20], window=(-1, 0), drop=0.1),
    "lengths, none of some": uneven([5, 0, 17], [9, 4, 0]),
    "lengths, windows": uneven([70, 5], [70, 5], window=(6, 2)),
    "lengths, one query each": uneven([1, 1, 1], [30, 9, 200], heads=1),
    "nested": _nested,
    "pages": _pages,
    "deterministic": _reproducible,
}  # fmt: skip
