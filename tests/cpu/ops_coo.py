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


def _added_to_dense(device: torch.device, kind: torch.dtype) -> Tensors:
    """As they are, and coalesced, which is another kernel."""
    found = []
    for dense in ((), (3,)):
        sparse = coo(device, 7, 9, dense=dense, kind=kind)
        whole = coo(device, 7, 9, dense=dense, kind=kind, seed=1).to_dense()
        factor = True if kind == torch.bool else 2
        found += [whole + sparse, torch.add(whole, sparse.coalesce(), alpha=factor)]
    return found


def _from_dense(device: torch.device) -> Tensors:
    """Sparse in all dimensions, and in the first alone."""
    values = coo(torch.device("cpu"), 30, 9).to_dense().to(device)
    return [*_parts(values.to_sparse()), *_parts(values.to_sparse(1))]


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


def _graph_layer(device: torch.device) -> Tensors:
    """Means over neighbours, then a linear layer, as in a graph network."""
    edges, weights = coo(device, 7, 7).coalesce(), matrix(device, 3, 9).requires_grad_()
    degrees = torch.sparse.sum(edges, 1).to_dense()[:, None].abs() + 1
    out = torch.relu(torch.sparse.mm(edges, matrix(device, 7, 9) @ weights.T) / degrees)
    out.square().sum().backward()
    assert weights.grad is not None
    return [out.detach(), weights.grad]


def _sum_gradients(device: torch.device) -> Tensors:
    """Of sums over some dimensions, and over all; the loss leaves some sums without a gradient."""
    found: list[Tensor] = []
    for dims in (0, 1, (0, 2), None):
        a = coo(device, 7, 9, dense=(3,)).coalesce().requires_grad_()
        total = torch.sparse.sum(a) if dims is None else torch.sparse.sum(a, dims)
        dense = total.to_dense() if total.is_sparse else total
        (dense[:, :2] if dense.dim() > 1 else dense).square().sum().backward()
        assert a.grad is not None
        found += [dense.detach(), *_parts(a.grad)]
    return found


def _softmax(device: torch.device, dim: int, logarithm: bool, kind: torch.dtype) -> Tensors:
    """Values, and the gradient of a loss in which only some elements are."""
    function = torch.sparse.log_softmax if logarithm else torch.sparse.softmax
    a = coo(device, 7, 9, dense=(3,), kind=kind).coalesce().requires_grad_()
    out = function(a, dim)
    weights = coo(device, 7, 9, dense=(3,), kind=kind, seed=1).coalesce()
    (out * weights).to_dense().square().sum().backward()
    assert a.grad is not None
    return [*_parts(out.detach()), *_parts(a.grad)]


def _softmax_of_many(device: torch.device) -> Tensors:
    """Enough for a sort of several launches."""
    return _parts(torch.sparse.softmax(coo(device, 300, 400, count=60_000), 1))


def _by_coo(device: torch.device, kind: torch.dtype) -> Tensors:
    a, b = coo(device, 7, 9, kind=kind), coo(device, 9, 5, kind=kind, seed=2)
    return _parts(torch.sparse.mm(a, b))


def _gradients_by_coo(device: torch.device) -> Tensors:
    a = coo(device, 7, 9).coalesce().requires_grad_()
    b = coo(device, 9, 5, seed=2).coalesce().requires_grad_()
    torch.sparse.mm(a, b).to_dense().square().sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    return [a.grad.to_dense(), b.grad.to_dense()]


def _batch_by_dense(device: torch.device) -> Tensors:
    """The matrix in the middle is empty."""
    a, b = coo(device, 3, 4, 5), matrix(device, 3, 5, 6)
    middle = a.coalesce().indices()[0] == 1
    kept = a.coalesce().indices()[:, ~middle], a.coalesce().values()[~middle]
    return [torch.bmm(a, b), torch.bmm(torch.sparse_coo_tensor(*kept, (3, 4, 5)), b)]


def _selected(device: torch.device) -> Tensors:
    a = coo(device, 30, 9, dense=(3,), count=100)
    rows, columns = torch.tensor([3, 1, 1, -1, 20]), torch.tensor([8, 0, 0, 2])
    return [*_parts(a.coalesce().index_select(0, rows.to(device))),
            *_parts(a.coalesce().index_select(1, columns.to(device))),
            *_parts(a.index_select(2, torch.tensor([2, 0], device=device)))]  # fmt: skip


def _by_element(device: torch.device, kind: torch.dtype) -> Tensors:
    """Numbers, rows of numbers. Which zeros are elements differs between the devices."""
    found = []
    for dense in ((), (3,)):
        a, b = (coo(device, 7, 9, dense=dense, kind=kind, seed=seed) for seed in (0, 1))
        found += [a * b, a.coalesce() * b, a.coalesce() * b.coalesce()]
    return [product.to_dense() for product in found]


def _masked(device: torch.device) -> Tensors:
    a, b = coo(device, 7, 9), coo(device, 7, 9, seed=1).coalesce()
    return [*_parts(a.sparse_mask(b)), *_parts(a.coalesce().sparse_mask(b)),
            *_parts(matrix(device, 7, 9).sparse_mask(b))]  # fmt: skip


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
    "from dense": _from_dense,
    "conversions": _conversions,
    **{f"added to dense {kind}": partial(_added_to_dense, kind=kind) for kind in KINDS},
    "sparse sums": _sparse_sums,
    "shapes": _shapes,
    "sums": _sums,
    "times dense": partial(_times_dense, joined=False),
    "coalesced times dense": partial(_times_dense, joined=True),
    "graph layer": _graph_layer,
    "gradients of sums": _sum_gradients,
    **{f"softmax dim={dim} logarithm={logarithm} {kind}": partial(
        _softmax, dim=dim, logarithm=logarithm, kind=kind)
       for dim in (0, 1, 2) for logarithm in (False, True) for kind in KINDS[:2]},
    "softmax of many": _softmax_of_many,
    **{f"by COO {kind}": partial(_by_coo, kind=kind) for kind in (*KINDS[:2], torch.complex64)},
    "gradients by COO": _gradients_by_coo,
    "batch by dense": _batch_by_dense,
    "selected": _selected,
    **{f"by element {kind}": partial(_by_element, kind=kind) for kind in KINDS[:-1]},
    "masked": _masked,
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
