"""Pooling over windows: max_pool2d and avg_pool2d, forward and backward, in both memory formats.

A kernel gets the size of its output and not how it was rounded; both ways are tried. Gradients of
small floats are summed in float32, as on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import asserting

Tensor = torch.Tensor
Pair = tuple[int, int]
Ints = tuple[int, ...]
Strides = tuple[int, int, int, int]

ACCUMULATORS = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves: everything is (height, width), or (depth, height, width)."""

    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints = (1, 1, 1)

    @staticmethod
    def of(values: Sequence[int], dims: int = 2) -> Window:
        """Kernel, stride, padding, dilation as they follow one another."""
        return Window(*(tuple(values[i : i + dims]) for i in range(0, len(values), dims)))

    def rounds_up(self, size: Ints, pooled: Ints) -> bool:
        """Whether the output's size was rounded up. Raises UnsupportedKernel for other sizes."""
        for ceil in (False, True):
            if all(self._pooled(n, i, ceil) == pooled[i] for i, n in enumerate(size)):
                return ceil
        raise UnsupportedKernel(f"{size} pooled to {pooled} by {self}")

    def _pooled(self, size: int, i: int, ceil: bool) -> int:
        stride = self.stride[i]
        room = size + 2 * self.padding[i] - self.dilation[i] * (self.kernel[i] - 1) - 1
        count = (room + (stride - 1 if ceil else 0)) // stride + 1
        if ceil and (count - 1) * stride >= size + self.padding[i]:
            count -= 1  # the last window must start inside the input or its left padding
        return count


def planes(height: int, width: int) -> Strides:
    """Strides of single planes, one after another: sizes (1, planes, height, width)."""
    return (0, height * width, width, 1)


def volumes(depth: int, height: int, width: int) -> Strides:
    """Strides of single volumes, one after another: sizes (volumes, depth, height, width)."""
    return (depth * height * width, height * width, width, 1)


def channels_last(channels: int, height: int, width: int) -> Strides:
    """Strides of (batch, channels, height, width) with the channels together."""
    return (channels * height * width, 1, channels * width, channels)


def _bind_max_nchw(kernel: KernelInfo) -> Run:
    """max_pool_forward_nchw: (elements, in, c, h, w, pooled, window, out, indices)."""
    element = dtype(template_arguments(kernel.demangled, "max_pool_forward_nchw")[0])
    unpack = unpacker(kernel, "nQqqq" + "i" * 10 + "QQ")

    def run(launch: Launch) -> None:
        count, source, _, h, w, ph, pw, *window, out, indices = unpack(launch.args)
        view, number = launch.memory.view, count // (ph * pw)
        operand = view(source, element, (1, number, h, w), planes(h, w))
        sizes, strides = (1, number, ph, pw), planes(ph, pw)
        place = view(out, element, sizes, strides)
        _max_pool(operand, Window.of(window), place, view(indices, torch.int64, sizes, strides))

    return run


def _bind_max_nhwc(kernel: KernelInfo) -> Run:
    """max_pool_forward_nhwc: (in, n, c, h, w, pooled, window, strides, tiling, out, indices)."""
    element = dtype(template_arguments(kernel.demangled, "max_pool_forward_nhwc")[0])
    unpack = unpacker(kernel, "Qinnnnn" + "i" * 8 + "nnnniiQQ")

    def run(launch: Launch) -> None:
        source, n, c, h, w, ph, pw, *rest, _, _, out, indices = unpack(launch.args)
        view = launch.memory.view
        operand = view(source, element, (n, c, h, w), rest[8:])
        sizes, strides = (n, c, ph, pw), channels_last(c, ph, pw)
        place = view(out, element, sizes, strides)
        _max_pool(operand, Window.of(rest[:8]), place, view(indices, torch.int64, sizes, strides))

    return run


def _max_pool(operand: Tensor, window: Window, out: Tensor, indices: Tensor) -> None:
    h, w = operand.shape[2:]
    ceil = window.rounds_up((h, w), (out.shape[2], out.shape[3]))
    values, where = F.max_pool2d_with_indices(
        operand, window.kernel, window.stride, window.padding, window.dilation, ceil
    )
    out.copy_(values)
    indices.copy_(where)


def _bind_max_backward_nchw(kernel: KernelInfo) -> Run:
    """max_pool_backward_nchw: (grad, indices, n, c, h, w, pooled, window, grad of the input)."""
    element = dtype(template_arguments(kernel.demangled, "max_pool_backward_nchw")[0])
    unpack = unpacker(kernel, "QQnnnnnn" + "i" * 8 + "Q")

    def run(launch: Launch) -> None:
        grad, indices, n, c, h, w, ph, pw, *_, target = unpack(launch.args)
        view, sizes, strides = launch.memory.view, (1, n * c, ph, pw), planes(ph, pw)
        scatter_planes(
            view(target, element, (1, n * c, h, w), planes(h, w)),
            view(indices, torch.int64, sizes, strides),
            view(grad, element, sizes, strides),
        )

    return asserting(run)


def _bind_max_backward_nhwc(kernel: KernelInfo) -> Run:
    """max_pool_backward_nhwc: (grad, indices, n, c, h, w, pooled, window, tiling, grad of in)."""
    element = dtype(template_arguments(kernel.demangled, "max_pool_backward_nhwc")[0])
    unpack = unpacker(kernel, "QQinnn" + "i" * 15 + "Q")

    def run(launch: Launch) -> None:
        grad, indices, n, c, h, w, ph, pw, *_, target = unpack(launch.args)
        view, sizes, strides = launch.memory.view, (n, c, ph, pw), channels_last(c, ph, pw)
        scatter_planes(
            view(target, element, (n, c, h, w), channels_last(c, h, w)),
            view(indices, torch.int64, sizes, strides),
            view(grad, element, sizes, strides),
        )

    return asserting(run)


def scatter_planes(target: Tensor, indices: Tensor, values: Tensor) -> None:
    """Sets every plane of the target to the sum of the values whose index is there."""
    wide = ACCUMULATORS.get(values.dtype, values.dtype)
    sums = torch.zeros(target.shape, dtype=wide).flatten(2)
    sums.scatter_add_(2, indices.flatten(2), values.to(wide).flatten(2))
    target.copy_(sums.view(target.shape))


def _bind_average(kernel: KernelInfo) -> Run:
    """avg_pool2d_out_cuda_frame, ..._nhwc: (elements, in, c, h, w, pooled, window, out, ...)."""
    nhwc = "_frame_nhwc<" in kernel.demangled
    name = "avg_pool2d_out_cuda_frame" + "_nhwc" * nhwc
    element = dtype(template_arguments(kernel.demangled, name)[0])
    unpack = unpacker(kernel, "iQqqqniiiiiiiQi??")

    def run(launch: Launch) -> None:
        count, source, c, h, w, ph, pw, *window, out, divisor, padded, fixed = unpack(launch.args)
        n, view = count // (c * ph * pw), launch.memory.view
        layout, shape = _layout(nhwc, n, c)
        operand = view(source, element, (*shape, h, w), layout(h, w))
        moves = Window.of(window)
        ceil = moves.rounds_up((h, w), (ph, pw))
        result = F.avg_pool2d(
            operand, moves.kernel, moves.stride, moves.padding, ceil, padded,
            divisor if fixed else None,
        )  # fmt: skip
        view(out, element, (*shape, ph, pw), layout(ph, pw)).copy_(result)

    return run


class _Layout:
    """Strides of an image: planes one after another, or channels together."""

    __slots__ = ("_channels", "_nhwc")

    def __init__(self, nhwc: bool, channels: int) -> None:
        self._nhwc, self._channels = nhwc, channels

    def __call__(self, height: int, width: int) -> Strides:
        if self._nhwc:
            return channels_last(self._channels, height, width)
        return planes(height, width)


def _layout(nhwc: bool, batch: int, channels: int) -> tuple[_Layout, Pair]:
    return _Layout(nhwc, channels), (batch, channels) if nhwc else (1, batch * channels)


def _bind_average_backward(kernel: KernelInfo) -> Run:
    """avg_pool2d_backward_out_cuda_frame, ..._nhwc: the same with gradients."""
    nhwc = "_frame_nhwc<" in kernel.demangled
    name = "avg_pool2d_backward_out_cuda_frame" + "_nhwc" * nhwc
    element = dtype(template_arguments(kernel.demangled, name)[0])
    wide = ACCUMULATORS.get(element, element)
    unpack = unpacker(kernel, "nQqqqnniiiiiiQi??")

    def run(launch: Launch) -> None:
        count, grad, c, h, w, ph, pw, *window, target, divisor, padded, fixed = unpack(launch.args)
        n, view = count // (c * h * w), launch.memory.view
        layout, shape = _layout(nhwc, n, c)
        incoming = view(grad, element, (*shape, ph, pw), layout(ph, pw)).to(wide)
        place = view(target, element, (*shape, h, w), layout(h, w))
        moves = Window.of(window)
        ceil = moves.rounds_up((h, w), (ph, pw))
        place.copy_(
            torch.ops.aten.avg_pool2d_backward(
                incoming, place.to(wide), moves.kernel, moves.stride, moves.padding, ceil, padded,
                divisor if fixed else None,
            )
        )  # fmt: skip

    return run


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bmax_pool_forward_nchw<", _bind_max_nchw),
        (r"\bmax_pool_forward_nhwc<", _bind_max_nhwc),
        (r"\bmax_pool_backward_nchw<", _bind_max_backward_nchw),
        (r"\bmax_pool_backward_nhwc<", _bind_max_backward_nhwc),
        (r"\bavg_pool2d_out_cuda_frame(_nhwc)?<", _bind_average),
        (r"\bavg_pool2d_backward_out_cuda_frame(_nhwc)?<", _bind_average_backward),
    )
]
