"""Layers under bfloat16 autocast, and operations on bfloat16, against the CPU's autocast."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]


def compare(got: Tensor, wanted: Tensor) -> None:
    """Results are rounded to 8 bits at every layer: by two units of the largest, at most."""
    if not wanted.is_floating_point():
        return torch.testing.assert_close(got, wanted)
    atol = 2 * torch.finfo(torch.bfloat16).eps * wanted.float().abs().max().item()
    torch.testing.assert_close(got, wanted, rtol=0, atol=atol)


def _values(*sizes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes) + seed)
    return torch.randn(sizes, generator=generator)


def layer(make: Callable[[], nn.Module], *inputs: Tensor) -> Case:
    """Output and gradients of a module that computes under autocast."""

    def case(device: torch.device) -> Tensors:
        torch.manual_seed(0)
        module = make().to(device)
        there = [x.to(device) for x in inputs]
        leaves = [x.requires_grad_() for x in there if x.is_floating_point()]
        with torch.autocast(device.type, torch.bfloat16):
            y = module(*there)
        leaves += list(module.parameters())
        grads = torch.autograd.grad(y, leaves, _values(*y.shape, seed=1).to(y))
        return [y.detach(), *grads]

    return case


def function(compute: Callable[..., Tensor], *inputs: Tensor) -> Case:
    """As ``layer``."""

    class Module(nn.Module):
        def forward(self, *values: Tensor) -> Tensor:
            return compute(*values)

    return layer(Module, *inputs)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))


class _Attention(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, **self.options)[0]


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


def exact(compute: Callable[[Tensor], Sequence[Tensor]], *sizes: int) -> Case:
    """An operation on bfloat16 values that are all different along the last dimension."""

    def case(device: torch.device) -> Tensors:
        order = torch.argsort(_values(*sizes), -1)
        return compute((order.float() / 4 - 10).to(device, torch.bfloat16))

    return case


def _padding(device: torch.device) -> Tensor:
    """To be added to the scores of 12 keys, in each of two sequences."""
    lengths = torch.tensor([9, 7], device=device).view(2, 1, 1, 1)
    there = torch.arange(12, device=device) < lengths
    return torch.zeros(there.shape, device=device).masked_fill(~there, -torch.inf).bfloat16()


_IMAGE = _values(2, 4, 8, 9)
_QKV = [_values(2, 4, n, 16) for n in (10, 12, 12)]

CASES: dict[str, Case] = {
    "linear": layer(lambda: nn.Linear(16, 8), _values(4, 16)),
    "mlp": layer(_mlp, _values(4, 16)),
    "embedding": layer(lambda: nn.Sequential(nn.Embedding(11, 16), _mlp()), torch.arange(11)),
    "conv1d": layer(lambda: nn.Conv1d(4, 6, 3), _values(2, 4, 9)),
    "conv2d": layer(lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), _IMAGE),
    "conv3d": layer(lambda: nn.Conv3d(4, 6, 2), _values(2, 4, 4, 5, 6)),
    "transposed conv2d": layer(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), _IMAGE),
    "conv and batch norm": layer(
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU()), _IMAGE
    ),
    "batch norm": layer(lambda: nn.BatchNorm2d(4), _IMAGE),
    "batch norm in evaluation": layer(lambda: nn.BatchNorm2d(4).eval(), _IMAGE),
    "layer norm": layer(lambda: nn.LayerNorm(9), _IMAGE),
    "max_pool2d": layer(lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.MaxPool2d(2)), _IMAGE),
    "avg_pool2d": layer(lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.AvgPool2d(2)), _IMAGE),
    "adaptive_avg_pool2d": layer(
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.AdaptiveAvgPool2d((2, 3))), _IMAGE
    ),
    "attention": function(F.scaled_dot_product_attention, *_QKV),
    "attention, causal": function(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *_QKV
    ),
    "attention, masked": function(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, torch.ones(10, 12, device=q.device, dtype=torch.bool).tril(1)
        ),
        *_QKV,
    ),
    "attention, padded": function(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, _padding(q.device).expand(2, 4, 10, 12)
        ),
        *_QKV,
    ),
    "attention, padded, square": function(
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, _padding(q.device).expand(2, 4, 12, 12)
        ),
        _QKV[1], _QKV[1] + 1, _QKV[2],
    ),
    "attention, heads behind the sequence": function(
        lambda x: F.scaled_dot_product_attention(
            *(part.unflatten(-1, (4, 16)).transpose(1, 2) for part in x.chunk(3, -1)),
            _values(2, 10, 4, 10).to(x).transpose(1, 2),
        ),
        _values(2, 10, 192),
    ),
    "attention, biased": function(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, _values(2, 1, 10, 12).to(q)), *_QKV
    ),
    "attention, scaled": function(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5), *_QKV
    ),
    "attention, shared heads": function(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        _QKV[0], _QKV[1][:, :2], _QKV[2][:, :2],
    ),
    "multi-head attention": layer(_Attention, _values(2, 10, 32)),
    "multi-head attention without weights": layer(
        lambda: _Attention(need_weights=False), _values(2, 10, 32)
    ),
    "transformer layer": layer(_encoder, _values(2, 10, 32)),
    "cross entropy": function(
        lambda x: F.cross_entropy(x @ x.mT, torch.arange(6, device=x.device))[None], _values(6, 8)
    ),
    "sort": exact(lambda x: x.sort(-1), 4, 100),
    "sort, descending": exact(lambda x: x.sort(-1, descending=True), 3, 5, 40),
    "topk": exact(lambda x: x.topk(7), 4, 100),
    "topk, smallest": exact(lambda x: x.topk(7, largest=False), 3, 5, 40),
    "cumsum": exact(lambda x: [x.cumsum(-1), x.cumsum(0)], 4, 20),
    "argmax": exact(lambda x: [x.argmax(-1), x.max(-1).values, x.median(-1).values], 4, 99),
}  # fmt: skip
