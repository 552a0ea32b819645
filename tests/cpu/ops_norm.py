"""Softmax, normalisation, losses, with their gradients: on a GPU's kernels and on the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def compare(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums are taken in another order than on the CPU."""
    close = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 1e-2)}
    floating = wanted.is_floating_point() or wanted.is_complex()
    rtol, atol = close.get(wanted.dtype, (2e-5, 1e-5)) if floating else (0, 0)
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)


def _values(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return torch.randn(sizes, generator=generator).to(device, kind)


def _labels(device: torch.device, classes: int, *sizes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(classes)
    return torch.randint(0, classes, sizes, generator=generator).to(device)


def _with_gradients(
    function: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> list[torch.Tensor]:
    """The result, and the gradient of each input."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = function(*leaves)
    weight = torch.arange(1, result.numel() + 1).reshape(result.shape).to(result) / result.numel()
    gradients = torch.autograd.grad(result, leaves, weight)
    return [result.detach(), *gradients]


def _softmax(function: Callable[..., torch.Tensor]) -> Case:
    shapes = ((3,), (5, 7), (4, 1000), (3, 1025), (2, 5000), (2, 9001), (3, 40, 20))

    def case(device: torch.device) -> Tensors:
        results = []
        for kind in FLOATS:
            for shape in shapes:
                x = _values(device, *shape, kind=kind)
                for dim in range(x.dim()):
                    results += _with_gradients(lambda x, dim=dim: function(x, dim), x)
            results += _with_gradients(lambda x: function(x, 1), x.transpose(1, 2))
        half = _values(device, 6, 50, kind=torch.bfloat16)
        return [*results, function(half, 1, dtype=torch.float32)]

    return case


def _masked(device: torch.device) -> Tensors:
    x = _values(device, 4, 9, 9)
    x = x.masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1).to(device), -torch.inf)
    return [x.softmax(-1), x.log_softmax(-1).exp()]


def _layer_norm(device: torch.device) -> Tensors:
    results = []
    for kind in FLOATS[:2]:
        for shape, width in (((6, 128), 1), ((3, 5, 33), 1), ((2, 3, 4, 8), 2), ((300, 64), 1)):
            x = _values(device, *shape, kind=kind)
            part = shape[-width:]
            weight = _values(device, *part, kind=kind)
            bias = _values(device, *part, 1, kind=kind)[..., 0]
            norm = lambda x, w, b, part=part: F.layer_norm(x, part, w, b)  # noqa: E731
            results += _with_gradients(norm, x, weight, bias)
            results += _with_gradients(lambda x, part=part: F.layer_norm(x, part), x)
    for kind in FLOATS[2:]:  # the CPU sums gradients of weights in less than float
        x, weight = _values(device, 40, 32, kind=kind), _values(device, 32, kind=kind)
        results += _with_gradients(lambda x, w=weight: F.layer_norm(x, (32,), w, w), x)
    return results


def _rms_norm(device: torch.device) -> Tensors:
    results = []
    for kind in FLOATS[:2]:
        for shape in ((6, 128), (3, 5, 33), (300, 64)):
            x, weight = _values(device, *shape, kind=kind), _values(device, shape[-1], kind=kind)
            norm = lambda x, w, part=shape[-1:]: F.rms_norm(x, part, w, eps=1e-5)  # noqa: E731
            results += _with_gradients(norm, x, weight)
    return results


def _tall_layer_norm(device: torch.device) -> Tensors:
    x, weight, bias = _values(device, 66000, 8), _values(device, 8), _values(device, 8)
    results = _with_gradients(lambda x, w, b: F.layer_norm(x, (8,), w, b), x, weight, bias)
    return [results[0], results[1], results[2] / 1000, results[3] / 1000]


def _group_norm(device: torch.device) -> Tensors:
    results = []
    for shape in ((4, 6, 5, 5), (4, 6), (3, 6, 300)):
        x, weight, bias = _values(device, *shape), _values(device, 6), _values(device, 6, 1)[:, 0]
        norm = lambda x, w, b: F.group_norm(x, 3, w, b)  # noqa: E731
        results += _with_gradients(norm, x, weight, bias)
        results += _with_gradients(lambda x: F.group_norm(x, 2), x)
    return results


def _batch_norm(device: torch.device) -> Tensors:
    results = []
    for shape in ((8, 6), (8, 6, 5, 5), (8, 6, 9), (8, 5, 7, 6)):
        x = _values(device, *shape)
        x = x.permute(0, 3, 1, 2) if shape[-1] == 6 and len(shape) == 4 else x
        weight, bias = _values(device, 6), _values(device, 6, 1)[:, 0]
        mean, variance = torch.zeros(6, device=device), torch.ones(6, device=device)
        for training in (True, False):
            norm = lambda x, w, b, t=training, m=mean, v=variance: F.batch_norm(  # noqa: E731
                x, m, v, w, b, t
            )
            with torch.backends.cudnn.flags(enabled=False):
                results += _with_gradients(norm, x, weight, bias)
            results += [mean.clone(), variance.clone()]
    return results


def _narrow_batch_norm(device: torch.device) -> Tensors:
    """All of 16 bits, running statistics as well, as in a model that was converted."""
    results = []
    for kind in (torch.float16, torch.bfloat16):
        x = _values(device, 8, 6, 5, kind=kind)
        weight, bias, mean = (_values(device, 6, kind=kind) for _ in range(3))
        variance = torch.linspace(0.5, 2, 6, device=device).to(kind)
        for training in (True, False):
            results.append(F.batch_norm(x, mean, variance, weight, bias, training))
    return results


def _cross_entropy(device: torch.device) -> Tensors:
    results = []
    for kind in FLOATS:
        x, y = _values(device, 40, 11, kind=kind), _labels(device, 11, 40)
        y = torch.where(y == 3, -100, y)
        weight = _values(device, 11, kind=kind).abs()
        for reduction in ("mean", "sum", "none"):
            for options in ({}, {"weight": weight}, {"label_smoothing": 0.1}):
                loss = lambda x, r=reduction, o=options, y=y: F.cross_entropy(  # noqa: E731
                    x, y, reduction=r, **o
                )
                results += _with_gradients(loss, x)
        results += _with_gradients(lambda x, y=y: F.cross_entropy(x, y[0]), x[0])
    return results


def _spatial_cross_entropy(device: torch.device) -> Tensors:
    results = []
    x, y = _values(device, 4, 11, 6, 5), _labels(device, 11, 4, 6, 5)
    y = torch.where(y == 3, -100, y)
    weight = _values(device, 11).abs()
    for reduction in ("mean", "sum", "none"):
        for options in ({}, {"weight": weight}):
            loss = lambda x, r=reduction, o=options, y=y: F.cross_entropy(  # noqa: E731
                x, y, reduction=r, **o
            )
            results += _with_gradients(loss, x)
    flat = _values(device, 4, 30, 11).transpose(1, 2)
    return [*results, *_with_gradients(lambda x: F.cross_entropy(x, y.flatten(1)), flat)]


def _weight_norm(device: torch.device) -> Tensors:
    results = []
    for dim in (0, 2):
        v, g = _values(device, 5, 4, 7), _values(device, 5, 4, 7).norm(dim=(0, 1), keepdim=True)
        g = v.norm(dim=(1, 2), keepdim=True) if dim == 0 else g
        results += _with_gradients(lambda v, g, dim=dim: torch._weight_norm(v, g, dim), v, g)
    return results


CASES: dict[str, Case] = {
    "softmax": _softmax(F.softmax),
    "log_softmax": _softmax(F.log_softmax),
    "masked softmax": _masked,
    "layer_norm": _layer_norm,
    "tall layer_norm": _tall_layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "batch_norm of 16 bits": _narrow_batch_norm,
    "weight_norm": _weight_norm,
    "cross_entropy": _cross_entropy,
    "spatial cross_entropy": _spatial_cross_entropy,
}
