"""Scaled dot-product attention in one kernel, with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]


def _values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return torch.randn(sizes, generator=generator).to(device, kind)


def _attend(
    device: torch.device, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None,
    causal: bool = False, scale: float | None = None,
) -> list[Tensor]:  # fmt: skip
    leaves = [x.detach().requires_grad_() for x in (q, k, v, *([] if bias is None else [bias]))]
    backends = [SDPBackend.MATH]
    if device.type == "cuda":
        backends = [SDPBackend.EFFICIENT_ATTENTION]
    with sdpa_kernel(backends):
        mask = leaves[3] if bias is not None else None
        y = F.scaled_dot_product_attention(*leaves[:3], mask, is_causal=causal, scale=scale)
    weight = torch.arange(1, y.numel() + 1).reshape(y.shape).to(y) / y.numel()
    return [y.detach(), *torch.autograd.grad(y, leaves, weight)]


def _plain(device: torch.device) -> Tensors:
    results = []
    for queries, keys, depth in ((5, 5, 8), (40, 70, 16), (64, 64, 64), (33, 65, 32), (1, 7, 8)):
        q = _values(device, 2, 3, queries, depth)
        k, v = _values(device, 2, 3, keys, depth), _values(device, 2, 3, keys, depth) + 1
        results += _attend(device, q, k, v)
        results += _attend(device, q, k, v, scale=0.3)
    return results


def _causal(device: torch.device) -> Tensors:
    results = []
    for length, depth in ((5, 8), (64, 16), (70, 32)):
        q, k, v = (_values(device, 2, 3, length, depth) + n for n in range(3))
        results += _attend(device, q, k, v, causal=True)
    return results


def _strided(device: torch.device) -> Tensors:
    """Queries, keys and values side by side, heads behind the sequence."""
    packed = _values(device, 2, 12, 3 * 4 * 8)
    q, k, v = (x.unflatten(-1, (4, 8)).transpose(1, 2) for x in packed.chunk(3, -1))
    return _attend(device, q, k, v)


def _biased(device: torch.device) -> Tensors:
    q, k, v = (_values(device, 2, 4, 16, 8) + n for n in range(3))
    mask = torch.ones(16, 16, dtype=torch.bool).tril().to(device)
    additive = torch.zeros(16, 16, device=device).masked_fill(~mask, -torch.inf)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION if device.type == "cuda" else SDPBackend.MATH):
        masked = F.scaled_dot_product_attention(q, k, v, mask)
        added = F.scaled_dot_product_attention(q, k, v, additive)
    return [*_attend(device, q, k, v, _values(device, 2, 4, 16, 16)), masked, added]


def _halves(device: torch.device) -> Tensors:
    results = []
    for kind in (torch.float16, torch.bfloat16):
        q, k, v = (_values(device, 2, 3, 20, 16, kind=kind) + n for n in range(3))
        results += _attend(device, q, k, v, causal=True)
    return results


def _dropped(device: torch.device) -> Tensors:
    """What is kept is random, but the same in the gradient, and of the right amount."""
    q, k = (torch.zeros(4, 4, 64, 64, device=device) for _ in range(2))
    v = torch.eye(64, device=device).expand(4, 4, 64, 64).clone().requires_grad_()
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION if device.type == "cuda" else SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    (grad,) = torch.autograd.grad(y, v, torch.eye(64, device=device).expand_as(y))
    weights = y.detach()
    share = (weights > 0).float().mean()
    return [
        torch.isclose(grad, weights.transpose(2, 3), atol=1e-6).all(),
        (share - 0.75).abs() < 0.02,
        weights.max() * 48,
    ]


def _layers(device: torch.device) -> Tensors:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).to(device)
    x = _values(device, 2, 10, 32).requires_grad_()
    y = layer(x)
    grads = torch.autograd.grad(y.square().mean(), [x, *layer.parameters()])
    return [y.detach(), *grads]


CASES: dict[str, Case] = {
    "plain": _plain,
    "causal": _causal,
    "strided": _strided,
    "biased": _biased,
    "halves": _halves,
    "dropout": _dropped,
    "layers": _layers,
}


def compare(got: Tensor, wanted: Tensor) -> None:
    """Sums are taken in other orders."""
    close = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (5e-2, 5e-2)}
    rtol, atol = close.get(wanted.dtype, (1e-4, 1e-4) if wanted.is_floating_point() else (0, 0))
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, check_stride=False)
