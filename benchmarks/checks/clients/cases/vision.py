"""Convolutional networks and their parts."""

import torch
import torch.nn.functional as F
from case import Setting, case, need, pick, randint, randn, training, with_grads
from torch import nn

BF16, FP16 = torch.bfloat16, torch.float16


@case("resnet50 fp32 channels_last", None, False)
@case("resnet50 bf16 channels_last", BF16, False)
@case("resnet50 fp16 GradScaler channels_last", FP16, False)
@case("resnet50 bf16 cudnn.benchmark", BF16, True)
def resnet50(amp, benchmark):
    return classifier(need("torchvision.models").resnet50, amp, benchmark)


@case("mobilenet_v2 fp32", None)
@case("mobilenet_v2 bf16", BF16)
def mobilenet(amp):
    return classifier(need("torchvision.models").mobilenet_v2, amp, False, dropout=pick(0.2, 0.0))


def classifier(make, amp, benchmark, **settings):
    torch.backends.cudnn.benchmark = benchmark
    layout = torch.channels_last
    model = make(weights=None, num_classes=10, **settings).to(Setting.device, memory_format=layout)
    batch, size = pick((8, 64), (2, 32))
    x = randn(batch, 3, size, size).to(memory_format=layout)
    y = randint(10, batch)
    return training(model, lambda model: F.cross_entropy(model(x), y), amp)


class UNet(nn.Module):
    """Two levels down and up again, with skips."""

    def __init__(self, width):
        super().__init__()
        self.first = self.block(3, width)
        self.second = self.block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = self.block(2 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        )

    def forward(self, x):
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        return self.out(self.last(torch.cat([self.up(second), first], 1)))


@case("unet fp32", None)
@case("unet bf16", BF16)
@case("unet fp16", FP16)
def unet(amp):
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


def convolution(name, amp):
    make, space = CONVOLUTIONS[name]
    layer = make(8, 16, 3, stride=2, padding=1).to(Setting.device)
    x = randn(4, 8, *space)

    def step():
        with torch.autocast(Setting.device, amp or BF16, enabled=amp is not None):
            return with_grads(layer, x, params=tuple(layer.parameters()))

    return step


for one in CONVOLUTIONS:
    case(f"{one} fp32", one, None)(convolution)
    case(f"{one} bf16", one, BF16)(convolution)
case("conv3d fp16", "conv3d", FP16)(convolution)


@case("conv2d variants fp32", None)
@case("conv2d variants fp16", FP16)
def variants(amp):
    """Grouped, depthwise, dilated, one by one, large kernel, no padding."""
    layers = [
        nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 8, 3, padding=2, dilation=2), nn.Conv2d(16, 32, 1),
        nn.Conv2d(16, 4, 7, padding="same", padding_mode="reflect"), nn.Conv2d(16, 4, 5, stride=3),
    ]
    x = randn(4, 16, 16, 16)

    def step():
        found = []
        for layer in layers:
            layer.to(Setting.device)
            with torch.autocast(Setting.device, amp or BF16, enabled=amp is not None):
                found += with_grads(layer, x, params=tuple(layer.parameters()))
        return found

    return step


@case("grid_sample", torch.float32)
@case("grid_sample fp16", FP16)
def grid_sample(dtype):
    x, theta = randn(2, 4, 16, 16), randn(2, 2, 3)
    grid = F.affine_grid(theta, [2, 4, 16, 16], align_corners=False).to(dtype)
    x = x.to(dtype)
    found = [grid]
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            found += with_grads(
                lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=False), x, grid  # noqa
            )
    volume, theta = randn(1, 2, 4, 8, 8).to(dtype), randn(1, 3, 4)
    grid = F.affine_grid(theta, [1, 2, 4, 8, 8], align_corners=True).to(dtype)
    return found + with_grads(lambda x, g: F.grid_sample(x, g, align_corners=True), volume, grid)


@case("interpolate every mode", torch.float32)
@case("interpolate every mode fp16", FP16)
def interpolate(dtype):
    spaces = {
        "nearest": 2, "nearest-exact": 2, "bilinear": 2, "bicubic": 2, "area": 2,
        "linear": 1, "trilinear": 3,
    }
    found = []
    for mode, dimensions in spaces.items():
        x = randn(2, 3, *[9] * dimensions, dtype=dtype)
        for scale in (2.0, 0.6):
            found += with_grads(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), x)  # noqa
    x = randn(2, 3, 9, 9, dtype=dtype)
    for mode in ("bilinear", "bicubic"):
        found += with_grads(lambda x: F.interpolate(x, size=5, mode=mode, antialias=True), x)  # noqa
    return found


@case("affine_grid")
def affine_grid():
    found = with_grads(lambda t: F.affine_grid(t, [2, 3, 8, 8], align_corners=True), randn(2, 2, 3))
    return found + with_grads(
        lambda t: F.affine_grid(t, [2, 3, 4, 4, 4], align_corners=False), randn(2, 3, 4)
    )


@case("pooling", torch.float32)
@case("pooling fp16", FP16)
def pooling(dtype):
    pools = {
        1: [F.max_pool1d, F.avg_pool1d], 2: [F.max_pool2d, F.avg_pool2d],
        3: [F.max_pool3d, F.avg_pool3d],
    }
    found = []
    for dimensions, functions in pools.items():
        x = randn(2, 4, *[10] * dimensions, dtype=dtype)
        for function in functions:
            found += with_grads(lambda x: function(x, 3, stride=2, padding=1), x)  # noqa: B023
    x = randn(2, 4, 11, 11, dtype=dtype)
    for function in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        found += with_grads(lambda x: function(x, (4, 3)), x)  # noqa: B023
    found += with_grads(lambda x: F.lp_pool2d(x.abs() + 1, 2, 3), x)
    even = x[:, :, :10, :10]
    pooled, where = F.max_pool2d(even, 2, return_indices=True)
    return [*found, F.max_unpool2d(pooled, where, 2)]


@case("norms fp32", torch.float32)
@case("norms fp16", FP16)
@case("norms bf16", BF16)
def norms(dtype):
    """Batch norm in training and evaluation, group, instance, layer and local response norm."""
    layers = [nn.BatchNorm2d(8), nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True)]
    x = randn(4, 8, 12, 12)
    found = []
    for layer in [*layers, nn.LayerNorm([8, 12, 12]), nn.BatchNorm2d(8).eval()]:
        layer.to(Setting.device, dtype)
        for layout in (torch.contiguous_format, torch.channels_last):
            given = x.to(dtype, memory_format=layout)
            found += with_grads(layer, given, params=tuple(layer.parameters()))
        found += [buffer for buffer in layer.buffers()]
    line, volume = randn(4, 8, dtype=dtype), randn(2, 4, 3, 5, 5, dtype=dtype)
    found += with_grads(nn.BatchNorm1d(8).to(Setting.device, dtype), line)
    found += with_grads(nn.BatchNorm3d(4).to(Setting.device, dtype), volume)
    return found + with_grads(nn.LocalResponseNorm(2), x.to(dtype))
