"""Pooling, padding, resizing and unfolding of images, on a GPU's kernels and on the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F

Tensors = Sequence[torch.Tensor]
Case = Callable[[torch.device], Tensors]
Operation = Callable[[torch.Tensor], torch.Tensor]


def _image(device: torch.device, *sizes: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(sizes, generator=generator).to(kind).to(device)


def _with_gradient(operation: Operation, image: torch.Tensor) -> Tensors:
    """The result, and the gradient of a weighted sum of it."""
    image = image.detach().requires_grad_()
    result = operation(image)
    generator = torch.Generator().manual_seed(result.numel())
    weight = torch.randn(result.shape, generator=generator).to(result.dtype).to(result.device)
    result.backward(weight)
    assert image.grad is not None
    return [result.detach(), image.grad]


def _run(
    device: torch.device, operations: Sequence[Operation], *sizes: int, small: bool = True
) -> Tensors:
    results: list[torch.Tensor] = []
    for operation in operations:
        for kind in (torch.float32, torch.float64):
            results += _with_gradient(operation, _image(device, *sizes, kind=kind))
        if small:  # gradients are summed in float32 on a GPU, unlike on the CPU
            results.append(operation(_image(device, *sizes, kind=torch.bfloat16)))
    return results


def _channels_last(device: torch.device, operations: Sequence[Operation], *sizes: int) -> Tensors:
    results: list[torch.Tensor] = []
    for operation in operations:
        image = _image(device, *sizes).contiguous(memory_format=torch.channels_last)
        results += _with_gradient(operation, image)
    return results


_MAX: list[Operation] = [
    lambda x: F.max_pool2d(x, 2),
    lambda x: F.max_pool2d(x, 3, 2, 1),
    lambda x: F.max_pool2d(x, (3, 2), (2, 3), (1, 0), ceil_mode=True),
    lambda x: F.max_pool2d(x, 2, 1, dilation=2),
]
_AVERAGE: list[Operation] = [
    lambda x: F.avg_pool2d(x, 2),
    lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
    lambda x: F.avg_pool2d(x, 2, divisor_override=3),
]
_ADAPTIVE: list[Operation] = [
    lambda x: F.adaptive_avg_pool2d(x, 3),
    lambda x: F.adaptive_avg_pool2d(x, (2, 5)),
    lambda x: F.adaptive_avg_pool2d(x, 1),
]
_ADAPTIVE_MAX: list[Operation] = [
    lambda x: F.adaptive_max_pool2d(x, 3),
    lambda x: F.adaptive_max_pool2d(x, (4, 2)),
]
_FOLDS: list[Operation] = [
    lambda x: F.unfold(x, 3, padding=1),
    lambda x: F.unfold(x, (2, 3), dilation=2, stride=2),
]
_PADS: list[Operation] = [
    lambda x: F.pad(x, (2, 3, 1, 0), mode="reflect"),
    lambda x: F.pad(x, (1, 8, 7, 2), mode="reflect"),
    lambda x: F.pad(x, (2, 3, 1, 20), mode="replicate"),
    lambda x: F.pad(x[0], (2, 3), mode="reflect"),
    lambda x: F.pad(x[0], (2, 3), mode="replicate"),
    lambda x: F.pad(x[None], (2, 3, 0, 1, 4, 2), mode="replicate"),
    lambda x: F.pad(x, (2, 3, 0, 1), mode="circular"),
    lambda x: F.pad(x, (2, -3, 0, 1), value=2.5),
]
_NEAREST: list[Operation] = [
    lambda x: F.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, size=(4, 23)),
    lambda x: F.interpolate(x, scale_factor=1.7, mode="nearest-exact"),
    lambda x: F.interpolate(x[0], scale_factor=1.7),
    lambda x: F.interpolate(x[0], size=4, mode="nearest-exact"),
]
_LINEAR: list[Operation] = [
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: F.interpolate(x, size=(4, 23), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x, scale_factor=0.6, mode="bilinear"),
    lambda x: F.interpolate(x, size=(9, 10), mode="bilinear"),
    lambda x: F.interpolate(x[0], scale_factor=1.7, mode="linear"),
    lambda x: F.interpolate(x[0], size=4, mode="linear", align_corners=True),
]
_SAMPLING = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")
_CUBIC: list[Operation] = [
    lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    lambda x: F.interpolate(x, size=(4, 23), mode="bicubic", align_corners=True),
    lambda x: F.interpolate(x[None], size=(2, 7, 23), mode="trilinear"),
    lambda x: F.interpolate(x[None], size=(5, 7, 3), mode="trilinear", align_corners=True),
]


_ANTIALIASED: list[Operation] = [
    partial(F.interpolate, size=size, mode=mode, antialias=True, align_corners=corners)
    for mode, size, corners in (
        ("bilinear", (4, 23), False), ("bicubic", (4, 23), False), ("bilinear", (2, 3), True),
        ("bicubic", (5, 7), True), ("bilinear", (9, 10), False), ("bicubic", (1, 4), False),
    )
]  # fmt: skip
_NEAREST_3D: list[Operation] = [
    partial(F.interpolate, scale_factor=scale, mode=mode)
    for scale, mode in product((2, 0.6, 1.7), ("nearest", "nearest-exact"))
]
_MAX_3D: list[Operation] = [
    lambda x: F.max_pool3d(x, 2),
    lambda x: F.max_pool3d(x, 3, 2, 1),
    lambda x: F.max_pool3d(x, (3, 2, 1), (2, 3, 1), (1, 0, 0), ceil_mode=True),
    lambda x: F.max_pool3d(x, 2, 1, dilation=(1, 2, 3)),
    lambda x: F.max_pool3d(x[0], 2),
]
_AVERAGE_3D: list[Operation] = [
    lambda x: F.avg_pool3d(x, 2),
    lambda x: F.avg_pool3d(x, 3, 2, 1),
    lambda x: F.avg_pool3d(x, (3, 2, 8), (2, 3, 1), (1, 0, 3), True, False),
    lambda x: F.avg_pool3d(x, 2, divisor_override=3),
    lambda x: F.avg_pool3d(x, (2, 3, 4), 1),
    lambda x: F.avg_pool3d(x, 3, 1, 1),
    lambda x: F.avg_pool3d(x[0], 2),
]
_ADAPTIVE_3D: list[Operation] = [
    lambda x: F.adaptive_avg_pool3d(x, (3, 2, 4)),
    lambda x: F.adaptive_avg_pool3d(x, (2, 4, 5)),
    lambda x: F.adaptive_avg_pool3d(x.transpose(3, 4), (2, 5, 4)),
    lambda x: F.adaptive_avg_pool3d(x[1], 1),
]
_ADAPTIVE_MAX_3D: list[Operation] = [
    lambda x: F.adaptive_max_pool3d(x, (3, 2, 4)),
    lambda x: F.adaptive_max_pool3d(x, (2, 4, 5)),
    lambda x: F.adaptive_max_pool3d(x[1], 1),
]
_REFLECT_3D: list[Operation] = [
    lambda x: F.pad(x, (2, 3, 0, 1, 3, 2), mode="reflect"),
    lambda x: F.pad(x[0], (1, 0, 2, 7, 0, 1), mode="reflect"),
]
_UNPOOL: list[Operation] = [
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(9, 10)),
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 3, return_indices=True), 3, output_size=(9, 10)),
    lambda x: F.max_unpool1d(*F.max_pool1d(x[0], 2, return_indices=True), 2, output_size=(10,)),
]


_UNPOOL_3D: list[Operation] = [
    lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2, output_size=(4, 7, 8)),
    lambda x: F.max_unpool3d(*F.max_pool3d(x[0], 2, return_indices=True), 2, output_size=(4, 7, 8)),
]


def _fractional(device: torch.device) -> Tensors:
    """Windows where given samples put them, which overlap; values, their places and gradients."""
    results: list[torch.Tensor] = []
    pools = (F.fractional_max_pool2d_with_indices, F.fractional_max_pool3d_with_indices)
    for dims, pool in zip((2, 3), pools, strict=True):
        samples = torch.rand(2, 3, dims, generator=torch.Generator().manual_seed(dims)).to(device)
        image, sizes = _image(device, 2, 3, *(9, 10, 8)[:dims]), (4, 5, 3)[:dims]
        call = partial(pool, kernel_size=3, output_size=sizes, _random_samples=samples)
        results += [*_with_gradient(lambda x, f=call: f(x)[0], image), call(image)[1]]
        one = partial(pool, kernel_size=2, output_size=sizes, _random_samples=samples[:1])
        results += one(image[0])
    return results


def _channels_last_3d(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for operation in _MAX_3D[:4]:
        image = _image(device, 2, 5, 6, 8, 10)
        image = image.contiguous(memory_format=torch.channels_last_3d)
        results += _with_gradient(operation, image)
    return results


def _grid_sample(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    for dims, (mode, padding) in product((2, 3), product(_SAMPLING, _BORDERS)):
        if (dims, mode) == (3, "bicubic"):
            continue
        image = _image(device, 2, 3, *(5, 6, 7)[:dims])
        grid = _image(device, 2, *(4, 5, 3)[:dims], dims) * 0.7
        options = {"mode": mode, "padding_mode": padding, "align_corners": dims == 3}
        results += _with_gradient(partial(F.grid_sample, grid=grid, **options), image)
        results += _with_gradient(partial(F.grid_sample, image, **options), grid)
    return results


_DEPTHWISE = (
    {"padding": 1},
    {"stride": 2, "padding": (1, 0)},
    {"dilation": 2},
    {"stride": (2, 3), "dilation": (1, 2), "padding": 2},
)
_FILTERS = ((3, 1, 3, 3), (6, 1, 5, 5), (3, 1, 1, 1), (3, 1, 2, 4))


def _depthwise(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    bias = _image(device, 6)
    with torch.backends.cudnn.flags(enabled=False):
        for options, sizes in product(_DEPTHWISE, _FILTERS):
            image, weight = _image(device, 2, 3, 9, 10), _image(device, *sizes)
            call = partial(F.conv2d, groups=3, bias=bias[: sizes[0]], **options)
            results += _with_gradient(partial(call, weight=weight), image)
            results += _with_gradient(partial(call, image), weight)
        results.append(F.conv2d(_image(device, 2, 3, 9, 10), _image(device, 3, 1, 3, 3), groups=3))
    return results


def _depthwise_3d(device: torch.device) -> Tensors:
    results: list[torch.Tensor] = []
    bias = _image(device, 6)
    options = ({"padding": 1}, {"stride": (1, 2, 3)}, {"dilation": (1, 2, 1), "padding": (0, 1, 2)})
    for moves, sizes in product(options, ((3, 1, 3, 3, 3), (6, 1, 1, 3, 2))):
        image, weight = _image(device, 2, 3, 5, 6, 7), _image(device, *sizes)
        call = partial(F.conv3d, groups=3, bias=bias[: sizes[0]], **moves)
        results += _with_gradient(partial(call, weight=weight), image)
        results += _with_gradient(partial(call, image), weight)
        results.append(F.conv3d(image, weight, groups=3, **moves))
    image, weight = (_image(device, *n).double() for n in ((1, 4, 5, 6, 7), (4, 1, 3, 3, 3)))
    return [*results, F.conv3d(image, weight, groups=4)]


def _fold(device: torch.device) -> Tensors:
    return [
        *_with_gradient(lambda x: F.fold(x, (5, 6), 3, padding=1), _image(device, 2, 27, 30)),
        *_with_gradient(lambda x: F.fold(x, (4, 4), 2, stride=2), _image(device, 3, 8, 4)),
    ]


def _pool1d(device: torch.device) -> Tensors:
    x = _image(device, 2, 3, 11)
    return [
        *_with_gradient(lambda t: F.max_pool1d(t, 3, 2), x),
        *_with_gradient(lambda t: F.avg_pool1d(t, 3, 2), x),
        *_with_gradient(lambda t: F.adaptive_avg_pool1d(t, 4), x),
    ]


CASES: dict[str, Case] = {
    "max_pool": lambda device: _run(device, _MAX, 2, 3, 9, 10),
    "max_pool_large": lambda device: _run(device, _MAX[:2], 2, 8, 64, 64),
    "max_pool_last": lambda device: _channels_last(device, _MAX, 2, 5, 9, 10),
    "avg_pool": lambda device: _run(device, _AVERAGE, 2, 3, 9, 10),
    "avg_pool_last": lambda device: _channels_last(device, _AVERAGE, 2, 5, 9, 10),
    "adaptive_pool": lambda device: _run(device, _ADAPTIVE, 2, 3, 9, 10),
    "adaptive_pool_divides": lambda device: _run(device, _ADAPTIVE, 2, 3, 12, 10),
    "adaptive_pool_last": lambda device: _channels_last(device, _ADAPTIVE, 2, 5, 9, 10),
    "adaptive_max": lambda device: _run(device, _ADAPTIVE_MAX, 2, 3, 9, 10),
    "unfold": lambda device: _run(device, _FOLDS, 2, 3, 9, 10),
    "fold": _fold,
    "pad": lambda device: _run(device, _PADS, 2, 3, 9, 10),
    "nearest": lambda device: _run(device, _NEAREST, 2, 3, 9, 10),
    "nearest_last": lambda device: _channels_last(device, _NEAREST[:3], 2, 5, 9, 10),
    "linear": lambda device: _run(device, _LINEAR, 2, 3, 9, 10, small=False),
    "linear_last": lambda device: _channels_last(device, _LINEAR[:4], 2, 5, 9, 10),
    "cubic": lambda device: _run(device, _CUBIC, 2, 3, 9, 10, small=False),
    "antialiased": lambda device: _run(device, _ANTIALIASED, 2, 3, 9, 10, small=False),
    "nearest_3d": lambda device: _run(device, _NEAREST_3D, 2, 3, 4, 5, 6),
    "max_pool_3d": lambda device: _run(device, _MAX_3D, 2, 3, 6, 8, 10),
    "max_pool_3d_last": _channels_last_3d,
    "avg_pool_3d": lambda device: _run(device, _AVERAGE_3D, 2, 3, 6, 8, 10, small=False),
    "adaptive_pool_3d": lambda device: _run(device, _ADAPTIVE_3D, 2, 3, 6, 8, 10, small=False),
    "adaptive_max_3d": lambda device: _run(device, _ADAPTIVE_MAX_3D, 2, 3, 6, 8, 10),
    "reflect_3d": lambda device: _run(device, _REFLECT_3D, 2, 3, 6, 8, 10),
    "unpool": lambda device: _run(device, _UNPOOL, 2, 3, 9, 10),
    "grid_sample": _grid_sample,
    "unpool_3d": lambda device: _run(device, _UNPOOL_3D, 2, 3, 5, 7, 8),
    "fractional": _fractional,
    "depthwise": _depthwise,
    "depthwise_3d": _depthwise_3d,
    "pool1d": _pool1d,
}
