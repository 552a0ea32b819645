"""Convolutional networks and their parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from case import (
    Setting,
    Step,
    Tensors,
    autocast,
    case,
    cases,
    need,
    pick,
    randint,
    randn,
    training,
    with_grads,
)
from torch import Tensor, nn

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


@cases({
    "resnet50 fp32 channels_last": (None, False),
    "resnet50 fp32 cudnn.benchmark": (None, True),
    "resnet50 bf16 channels_last": (BF16, False),
    "resnet50 bf16 cudnn.benchmark": (BF16, True),
    "resnet50 fp16 GradScaler": (FP16, False),
    "resnet50 fp16 GradScaler cudnn.benchmark": (FP16, True),
})  # fmt: skip
def resnet50(amp: torch.dtype | None, benchmark: bool) -> Step:
    return classifier(need("torchvision.models").resnet50, amp, benchmark)


@cases({"mobilenet_v2 fp32": (None,), "mobilenet_v2 bf16": (BF16,), "mobilenet_v2 fp16": (FP16,)})
def mobilenet(amp: torch.dtype | None) -> Step:
    make = need("torchvision.models").mobilenet_v2
    return classifier(make, amp, False, dropout=pick(0.2, 0.0))


def classifier(
    make: Callable[..., nn.Module], amp: torch.dtype | None, benchmark: bool, **settings: float
) -> Step:
    torch.backends.cudnn.benchmark = benchmark
    layout = torch.channels_last
    model = make(weights=None, num_classes=10, **settings).to(Setting.device, memory_format=layout)
    batch, size = pick((8, 64), (4, 64))
    x = randn(batch, 3, size, size).to(memory_format=layout)
    y = randint(10, batch)
    return training(model, lambda model: F.cross_entropy(model(x), y), amp)


class UNet(nn.Module):
    """Two levels down and up again; the upper one's features go past the lower one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = self.block(3, width)
        self.second = self.block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = self.block(2 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        first, second = (nn.Conv2d(i, outputs, 3, padding=1) for i in (inputs, outputs))
        norms = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        return nn.Sequential(first, norms[0], nn.ReLU(), second, norms[1], nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        return self.out(self.last(torch.cat([self.up(second), first], 1)))


@cases({"unet fp32": (None,), "unet bf16": (BF16,), "unet fp16": (FP16,)})
def unet(amp: torch.dtype | None) -> Step:
    model = UNet(pick(32, 4)).to(Setting.device)
    size = pick(64, 16)
    x, y = randn(4, 3, size, size), randint(2, 4, size, size)
    return training(model, lambda model: F.cross_entropy(model(x), y), amp)


CONVOLUTIONS = {
    "conv1d": (nn.Conv1d, (32,)),
    "conv3d": (nn.Conv3d, (8, 8, 8)),
    "conv_transpose1d": (nn.ConvTranspose1d, (32,)),
    "conv_transpose2d": (nn.ConvTranspose2d, (16, 16)),
    "conv_transpose3d": (nn.ConvTranspose3d, (8, 8, 8)),
}
AMP = {"fp32": None, "bf16": BF16, "fp16": FP16}


@cases({f"{name} {word}": (name, amp) for name in CONVOLUTIONS for word, amp in AMP.items()})
def convolution(name: str, amp: torch.dtype | None) -> Step:
    make, space = CONVOLUTIONS[name]
    layer = make(8, 16, 3, stride=2, padding=1).to(Setting.device)
    x = randn(4, 8, *space)

    def step() -> Tensors:
        with autocast(amp):
            return with_grads(layer, x, parameters=tuple(layer.parameters()))

    return step


@cases({f"conv2d variants {word}": (amp,) for word, amp in AMP.items()})
def variants(amp: torch.dtype | None) -> Step:
    """Grouped, depthwise, dilated, one by one, padded by reflection, without padding."""
    layers = nn.ModuleList([
        nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 8, 3, padding=2, dilation=2), nn.Conv2d(16, 32, 1),
        nn.Conv2d(16, 4, 7, padding="same", padding_mode="reflect"), nn.Conv2d(16, 4, 5, stride=3),
    ]).to(Setting.device)  # fmt: skip
    x = randn(4, 16, 16, 16)

    def step() -> Tensors:
        found: list[Tensor] = []
        for layer in layers:
            with autocast(amp):
                found += with_grads(layer, x, parameters=tuple(layer.parameters()))
        return found

    return step


@cases({"grid_sample fp32": (FP32,), "grid_sample fp16": (FP16,)})
def grid_sample(dtype: torch.dtype) -> Tensors:
    x, theta = randn(2, 4, 16, 16, dtype=dtype), randn(2, 2, 3)
    grid = F.affine_grid(theta, [2, 4, 16, 16], align_corners=False).to(dtype)
    found = [grid]
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            settings = {"mode": mode, "padding_mode": padding, "align_corners": False}
            found += with_grads(lambda x, grid: F.grid_sample(x, grid, **settings), x, grid)  # noqa: B023
    volume, theta = randn(1, 2, 4, 8, 8, dtype=dtype), randn(1, 3, 4)
    grid = F.affine_grid(theta, [1, 2, 4, 8, 8], align_corners=True).to(dtype)
    return found + with_grads(lambda x, g: F.grid_sample(x, g, align_corners=True), volume, grid)


@case("affine_grid")
def affine_grid() -> Tensors:
    plane = with_grads(lambda t: F.affine_grid(t, [2, 3, 8, 8], align_corners=True), randn(2, 2, 3))
    return plane + with_grads(
        lambda t: F.affine_grid(t, [2, 3, 4, 4, 4], align_corners=False), randn(2, 3, 4)
    )


MODES = {  # and how many dimensions each is for
    "nearest": 2, "nearest-exact": 2, "bilinear": 2, "bicubic": 2, "area": 2, "linear": 1,
    "trilinear": 3,
}  # fmt: skip


@cases({
    f"interpolate {mode} {word}": (mode, dtype)
    for mode in MODES for word, dtype in (("fp32", FP32), ("fp16", FP16))
})  # fmt: skip
def interpolate(mode: str, dtype: torch.dtype) -> Tensors:
    x = randn(2, 3, *[9] * MODES[mode], dtype=dtype)
    found = with_grads(lambda x: F.interpolate(x, scale_factor=2.0, mode=mode), x)
    found += with_grads(lambda x: F.interpolate(x, scale_factor=0.6, mode=mode), x)
    if mode in ("bilinear", "bicubic"):
        found += with_grads(lambda x: F.interpolate(x, size=5, mode=mode, antialias=True), x)
    return found


@cases({"pooling fp32": (FP32,), "pooling fp16": (FP16,)})
def pooling(dtype: torch.dtype) -> Tensors:
    found: list[Tensor] = []
    windows = {1: (F.max_pool1d, F.avg_pool1d), 2: (F.max_pool2d, F.avg_pool2d)}
    windows[3] = F.max_pool3d, F.avg_pool3d
    for dimensions, functions in windows.items():
        x = randn(2, 4, *[10] * dimensions, dtype=dtype)
        for function in functions:
            found += with_grads(lambda x: function(x, 3, stride=2, padding=1), x)  # noqa: B023
    x = randn(2, 4, 10, 10, dtype=dtype)
    for function in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        found += with_grads(lambda x: function(x, (4, 3)), x)  # noqa: B023
    found += with_grads(lambda x: F.lp_pool2d(x.abs() + 1, 2, 3), x)
    pooled, where = F.max_pool2d(x, 2, return_indices=True)
    return [*found, F.max_unpool2d(pooled, where, 2)]


@cases({"norms fp32": (FP32,), "norms fp16": (FP16,), "norms bf16": (BF16,)})
def norms(dtype: torch.dtype) -> Tensors:
    """Batch norm in training and evaluation, group, instance and layer norm, in both layouts."""
    layers = [nn.BatchNorm2d(8), nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True)]
    x = randn(4, 8, 12, 12, dtype=dtype)
    found: list[Tensor] = []
    for layer in [*layers, nn.LayerNorm([8, 12, 12]), nn.BatchNorm2d(8).eval()]:
        layer.to(Setting.device, dtype)
        for layout in (torch.contiguous_format, torch.channels_last):
            given = x.to(memory_format=layout)
            found += with_grads(layer, given, parameters=tuple(layer.parameters()))
        found += layer.buffers()
    line, volume = randn(4, 8, dtype=dtype), randn(2, 4, 3, 5, 5, dtype=dtype)
    found += with_grads(nn.BatchNorm1d(8).to(Setting.device, dtype), line)
    return found + with_grads(nn.BatchNorm3d(4).to(Setting.device, dtype), volume)


@case("local response norm")
def local_response_norm() -> Tensors:
    return with_grads(nn.LocalResponseNorm(2), randn(4, 8, 12, 12))
