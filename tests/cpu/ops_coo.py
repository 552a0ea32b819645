"""COO tensors: what PyTorch does with kernels of its own and with thrust, against the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
         torch.int64, torch.int32, torch.uint8, torch.bool)  # fmt: skip


def compare(got: Tensor, wanted: Tensor) -> None:
    """Both may add up in another order: a few roundings."""
    rtol, atol = (1e-2, 1e-2) if got.dtype.itemsize == 2 else (2e-5, 2e-5)
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, check_stride=False)


def coo(
    device: torch.device, *sizes: int, dense: Sequence[int] = (), count: int = 40, seed: int = 0,
    kind: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """`count` elements at places of which some are the same, in no order."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in sizes])
    values = _values((count, *dense), kind, generator)
    return torch.sparse_coo_tensor(places.to(device), values.to(device), (*sizes, *dense))


def _values(shape: Sequence[int], kind: torch.dtype, generator: torch.Generator) -> Tensor:
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(shape, generator=generator, dtype=kind)
    most = 2 if kind == torch.bool else 100
    return torch.randint(0, most, shape, generator=generator).to(kind)


def matrix(device: torch.device, *sizes: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator).to(device)


def _parts(found: Tensor) -> Tensors:
    found = found.coalesce()
    return [found.indices(), found.values()]


def _transposed_values(device: torch.device) -> Tensors:
    values = matrix(device, 5, 6).T
    places = torch.tensor([[3, 0, 3, 1, 0, 3]], device=device)
    return _parts(torch.sparse_coo_tensor(places, values, (4, 5)))


def _nine_dimensions(device: torch.device) -> Tensors:
    """More than the kernel that flattens indices takes factors of."""
    return _parts(coo(device, *[2] * 9, count=700))


def _added_to_dense(device: torch.device) -> Tensors:
    return [matrix(device, 7, 9) + coo(device, 7, 9),
            torch.add(matrix(device, 7, 9, 3), coo(device, 7, 9, dense=(3,)), alpha=2)]  # fmt: skip


def _conversions(device: torch.device) -> Tensors:
    found = coo(device, 7, 9)
    csr, csc = found.to_sparse_csr(), found.to_sparse_csc()
    return [csr.crow_indices(), csr.col_indices(), csr.values(), csc.ccol_indices(),
            csc.row_indices(), csc.values(), *_parts(csr.to_sparse_coo())]  # fmt: skip


def _sparse_sums(device: torch.device) -> Tensors:
    a, b = coo(device, 7, 9), coo(device, 7, 9, seed=1)
    return [*_parts(a + b), *_parts(torch.add(a, b, alpha=3)), *_parts(torch.cat([a, b]))]


def _shapes(device: torch.device) -> Tensors:
    a = coo(device, 7, 9)
    return [*_parts(a.t()), *_parts(a.narrow_copy(1, 2, 4)), *_parts(a.coalesce().select(0, 2))]


def _sums(device: torch.device) -> Tensors:
    a, b = coo(device, 7, 9), coo(device, 7, 9, dense=(3,))
    return [torch.sparse.sum(a), *_parts(torch.sparse.sum(a, 0)), *_parts(torch.sparse.sum(a, 1)),
            *_parts(torch.sparse.sum(b, 2)), torch.sparse.sum(b, (0, 1))]  # fmt: skip


def _times_dense(device: torch.device, joined: bool) -> Tensors:
    """A product, and the gradient of both."""
    a, b = coo(device, 7, 9), matrix(device, 9, 4).requires_grad_()
    a = (a.coalesce() if joined else a).requires_grad_()
    product = torch.sparse.mm(a, b)
    product.square().sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    return [product.detach(), *_parts(a.grad), b.grad]


def _trained(
    device: torch.device, layer: Callable[..., torch.nn.Module],
    optimizer: Callable[..., torch.optim.Optimizer], rows: int = 20,
) -> Tensors:  # fmt: skip
    """The weights after three steps; each meets some rows more than once."""
    torch.manual_seed(0)
    model = layer(rows, 6, sparse=True)
    words = torch.randint(0, rows, (3, 40, 30)).to(device)
    model.to(device)
    steps = optimizer(model.parameters(), lr=0.05)
    for batch in words:
        steps.zero_grad()
        model(batch).square().sum().backward()
        steps.step()
    return [p.detach() for p in model.parameters()]


_EMBEDDING = torch.nn.Embedding
_BAG = partial(torch.nn.EmbeddingBag, mode="sum")

CASES: dict[str, Case] = {
    **{f"coalesced matrix {kind}": lambda d, kind=kind: _parts(coo(d, 7, 9, kind=kind))
       for kind in KINDS},
    **{f"coalesced rows of {size}": lambda d, size=size: _parts(coo(d, 7, 9, dense=(size,)))
       for size in (3, 200)},
    "coalesced vector": lambda d: _parts(coo(d, 9)),
    "coalesced many": lambda d: _parts(coo(d, 300, 400, count=300_000, kind=torch.float64)),
    "coalesced transposed values": _transposed_values,
    "coalesced nine dimensions": _nine_dimensions,
    "coalesced nothing": lambda d: _parts(torch.sparse_coo_tensor(size=(3, 4), device=d)),
    "to dense": lambda d: [coo(d, 7, 9).to_dense(), coo(d, 7, 9, dense=(3,)).to_dense()],
    "from dense": lambda d: _parts(coo(torch.device("cpu"), 7, 9).to_dense().to(d).to_sparse()),
    "conversions": _conversions,
    "added to dense": _added_to_dense,
    "sparse sums": _sparse_sums,
    "shapes": _shapes,
    "sums": _sums,
    "times dense": partial(_times_dense, joined=False),
    "coalesced times dense": partial(_times_dense, joined=True),
    "embedding, SparseAdam": partial(
        _trained, layer=_EMBEDDING, optimizer=torch.optim.SparseAdam),
    "embedding, Adagrad": partial(_trained, layer=_EMBEDDING, optimizer=torch.optim.Adagrad),
    "embedding, momentum": partial(
        _trained, layer=_EMBEDDING, optimizer=partial(torch.optim.SGD, momentum=0.9)),
    "bag of embeddings, SparseAdam": partial(
        _trained, layer=_BAG, optimizer=torch.optim.SparseAdam),
    "large embedding, SparseAdam": partial(
        _trained, layer=_EMBEDDING, optimizer=torch.optim.SparseAdam, rows=3000),
}  # fmt: skip
