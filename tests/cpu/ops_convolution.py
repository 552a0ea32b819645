"""Convolutions and batch norm as PyTorch does them by default, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]
Place = Callable[[Tensor], Tensor]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def compare(got: Tensor, wanted: Tensor) -> None:
    """Sums are taken in another order; halves are rounded where they are stored."""
    close = {
        torch.float16: (2e-3, 4e-3),
        torch.bfloat16: (1.6e-2, 4e-2),
        torch.float64: (1e-9, 1e-9),
    }
    rtol, atol = close.get(wanted.dtype, (1e-4, 1e-4))
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, check_stride=False)


def _values(*sizes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes) + seed)
    return torch.randn(sizes, generator=generator)


def _with_gradients(
    device: torch.device, function: Callable[..., Tensor], inputs: Sequence[Tensor],
    kind: torch.dtype = torch.float32, place: Place = Tensor.contiguous,
) -> list[Tensor]:  # fmt: skip
    """The result, and the gradient of each input; small whole numbers are exact in halves."""
    exact = kind in (torch.float16, torch.bfloat16)
    inputs = [(x * 2).round() / 4 if exact else x for x in inputs]
    leaves = [place(x.to(device, kind)).requires_grad_() for x in inputs]
    result = function(*leaves)
    weight = _values(*result.shape, seed=1)
    weight = (weight * 2).round() / 4 if exact else weight
    return [result.detach(), *torch.autograd.grad(result, leaves, weight.to(result))]


def _convolution(
    function: Callable[..., Tensor], image: tuple[int, ...], weight: tuple[int, ...], bias: int,
    **options: object,
) -> Case:  # fmt: skip
    inputs = _values(*image), _values(*weight), _values(bias)

    def case(device: torch.device) -> Tensors:
        results = []
        for kind in FLOATS:
            results += _with_gradients(device, lambda *x: function(*x, **options), inputs, kind)
        results += _with_gradients(device, lambda *x: function(*x, **options), inputs[:2])
        return results

    return case


def _channels_last(device: torch.device) -> Tensors:
    results = []
    for dims, layout in ((2, torch.channels_last), (3, torch.channels_last_3d)):
        inputs = _values(2, 4, 7, 8, 9)[..., : 9 if dims == 3 else 1], _values(6, 4, 3, 2, 1)
        if dims == 2:
            inputs = inputs[0][..., 0], inputs[1][..., 0]
        for kind in FLOATS[:1] + FLOATS[3:]:
            function = getattr(F, f"conv{dims}d")
            results += _with_gradients(
                device, lambda x, w, f=function: f(x, w, padding=1), inputs, kind,
                lambda x, layout=layout: x.contiguous(memory_format=layout),
            )  # fmt: skip
    return results


def _strided(device: torch.device) -> Tensors:
    """Views of larger tensors, and an image with nothing in it."""
    x, w = _values(4, 6, 9, 10), _values(5, 3, 3, 3)
    results = _with_gradients(device, lambda x, w: F.conv2d(x[::2, ::2, 1:, :-1], w), (x, w))
    results += _with_gradients(device, lambda x, w: F.conv2d(x[:, :3].transpose(2, 3), w), (x, w))
    return [*results, F.conv2d(x[:0, :3].to(device), w.to(device))]


def _uneven(device: torch.device) -> Tensors:
    """Padding that is larger on one side."""
    x, w = _values(2, 3, 8, 9), _values(4, 3, 2, 4)
    return _with_gradients(device, lambda x, w: F.conv2d(x, w, padding="same"), (x, w))


def _benchmark(device: torch.device) -> Tensors:
    results = []
    with torch.backends.cudnn.flags(benchmark=True):
        for size in (8, 8, 9):
            inputs = _values(2, 3, size, 8), _values(4, 3, 3, 3)
            results += _with_gradients(device, lambda x, w: F.conv2d(x, w), inputs)
    return results


def _deterministic(device: torch.device) -> Tensors:
    inputs = _values(2, 3, 8, 8), _values(4, 3, 3, 3)
    with torch.backends.cudnn.flags(deterministic=True, allow_tf32=False):
        return _with_gradients(device, lambda x, w: F.conv2d(x, w), inputs)


def _fused(device: torch.device) -> Tensors:
    """Convolution, bias, sum and ReLU as one graph; the CPU has no name for it."""
    x, w, b, z = _values(2, 3, 8, 8), _values(4, 3, 3, 3), _values(4), _values(2, 4, 6, 6)
    if device.type == "cpu":
        plain = F.conv2d(x, w, b)
        return [plain.relu(), (plain + 0.5 * z).relu()]
    x, w, b, z = (t.to(device) for t in (x, w, b, z))
    moves = (1, 1), (0, 0), (1, 1), 1
    return [
        torch.cudnn_convolution_relu(x, w, b, *moves),
        torch.cudnn_convolution_add_relu(x, w, z, 0.5, b, *moves),
    ]


def _many_shapes(device: torch.device) -> Tensors:
    """Each has a plan of its own."""
    w = _values(4, 3, 3, 3).to(device)
    return [F.conv2d(_values(1, 3, 5, n).to(device), w) for n in range(3, 30)]


_SHAPES = ((8, 6), (8, 6, 5), (8, 6, 5, 4), (2, 6, 3, 4, 5))


def _batch_norm(device: torch.device) -> Tensors:
    results = []
    for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for shape in _SHAPES:
            results += _normalised(device, _values(*shape) * 3 + 1, kind)
    return results


def _batch_norm_channels_last(device: torch.device) -> Tensors:
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    results = []
    for shape in _SHAPES[2:]:
        x = (_values(*shape) * 3 + 1).contiguous(memory_format=layouts[len(shape)])
        results += _normalised(device, x, torch.float32, lambda x: x)
    return results


def _normalised(
    device: torch.device, x: Tensor, kind: torch.dtype, place: Place = Tensor.contiguous
) -> list[Tensor]:
    """In training and not; with the running statistics, which stay wide for halves."""
    wide = kind if kind is torch.float64 else torch.float32
    weight, bias = (_values(6, n)[:, 0].to(device, wide).requires_grad_() for n in (1, 2))
    mean = torch.zeros(6, device=device, dtype=wide)
    variance = torch.ones(6, device=device, dtype=wide)
    results = []
    for training in (True, False):
        leaf = place(x.to(device, kind)).requires_grad_()
        y = F.batch_norm(leaf, mean, variance, weight, bias, training, momentum=0.3)
        grads = torch.autograd.grad(y, [leaf, weight, bias], _values(*y.shape, seed=1).to(y))
        halved = kind in (torch.float16, torch.bfloat16)  # the CPU sums their gradients in halves
        results += [y.detach(), *(() if halved else grads), mean.clone(), variance.clone()]
    return results


def _batch_norm_alone(device: torch.device) -> Tensors:
    """Without running statistics or parameters."""
    x = _values(8, 6, 5, 4)
    weight, bias = _values(6), _values(6)
    return [
        *_with_gradients(device, lambda x: F.batch_norm(x, None, None, training=True), [x]),
        *_with_gradients(
            device, lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=0.1),
            [x, weight, bias],
        ),
    ]  # fmt: skip


CASES: dict[str, Case] = {
    "conv1d": _convolution(F.conv1d, (2, 4, 9), (6, 4, 3), 6, padding=1),
    "conv2d": _convolution(F.conv2d, (2, 3, 8, 9), (4, 3, 3, 2), 4),
    "conv3d": _convolution(F.conv3d, (2, 3, 4, 5, 6), (4, 3, 2, 3, 1), 4, padding=(1, 0, 1)),
    "one by one": _convolution(F.conv2d, (2, 3, 5, 5), (4, 3, 1, 1), 4),
    "stride": _convolution(F.conv2d, (2, 3, 9, 10), (4, 3, 3, 3), 4, stride=(2, 3)),
    "padding": _convolution(F.conv2d, (2, 3, 5, 6), (4, 3, 3, 3), 4, padding=(2, 1)),
    "dilation": _convolution(F.conv2d, (2, 3, 9, 10), (4, 3, 3, 3), 4, dilation=(2, 3)),
    "groups": _convolution(F.conv2d, (2, 6, 7, 8), (9, 2, 3, 3), 9, groups=3),
    "depthwise": _convolution(F.conv2d, (2, 4, 7, 8), (8, 1, 3, 3), 8, groups=4, padding=1),
    "all at once": _convolution(
        F.conv2d, (2, 4, 11, 12), (6, 2, 3, 3), 6,
        stride=2, padding=(1, 2), dilation=(2, 1), groups=2,
    ),
    "transposed 1d": _convolution(F.conv_transpose1d, (2, 4, 6), (4, 3, 3), 3, stride=2),
    "transposed 2d": _convolution(
        F.conv_transpose2d, (2, 4, 5, 6), (4, 3, 3, 3), 3, stride=2, padding=1, output_padding=1
    ),
    "transposed 3d": _convolution(
        F.conv_transpose3d, (2, 4, 3, 4, 3), (4, 3, 2, 3, 2), 3, stride=2
    ),
    "transposed, groups": _convolution(
        F.conv_transpose2d, (2, 4, 5, 6), (4, 3, 3, 3), 6, groups=2, dilation=2
    ),
    "transposed, larger than its windows": _convolution(
        F.conv_transpose2d, (2, 2, 4, 4), (2, 2, 4, 5), 4,
        stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=4,
    ),
    "transposed 3d, larger than its windows": _convolution(
        F.conv_transpose3d, (2, 2, 4, 4, 4), (2, 2, 4, 5, 6), 4,
        stride=(3, 2, 1), padding=(1, 2, 3), output_padding=(2, 3, 1), groups=2, dilation=4,
    ),
    "channels last": _channels_last,
    "strided": _strided,
    "uneven padding": _uneven,
    "benchmark": _benchmark,
    "deterministic": _deterministic,
    "fused with a bias and a relu": _fused,
    "many shapes": _many_shapes,
    "batch norm": _batch_norm,
    "batch norm, channels last": _batch_norm_channels_last,
    "batch norm alone": _batch_norm_alone,
}  # fmt: skip
