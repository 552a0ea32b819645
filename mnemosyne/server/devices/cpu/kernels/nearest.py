"""Images resized to the nearest element, forward and backward.

Source positions are computed in float32, so that they are the same elements as on a GPU.
"""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .axes import select, select_backward
from .names import dtype, template_arguments
from .pooling import channels_last, planes, volumes
from .raw import raw_type

Tensor = torch.Tensor


def _nearest(exact: bool, scale: float, size: int, out: int) -> Tensor:
    """For each element of the result, the nearest of the operand."""
    position = torch.arange(out, dtype=torch.float32) + (0.5 if exact else 0)
    return (position * scale).floor().to(torch.int64).clamp(max=size - 1)


def _nearest_backward(exact: bool, scale: float, grads: int, size: int) -> Tensor:
    """For each gradient, the element that it goes to; `size` for none."""
    position = torch.arange(size + 1, dtype=torch.float32) * scale - (0.5 if exact else 0)
    starts = position.ceil().to(torch.int64).clamp(max=grads)
    places = torch.arange(grads)
    owners = torch.searchsorted(starts[:-1], places, right=True) - 1
    return torch.where((places < starts[-1]) & (owners >= 0), owners, size)


def _bind_nearest_1d(kernel: KernelInfo) -> Run:
    """upsample_nearest1d_out_frame: (in, n, c, width, width of out, out, scale)."""
    element = raw_type(template_arguments(kernel.demangled, "upsample_nearest1d_out_frame")[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "QQQQQQf")

    def run(launch: Launch) -> None:
        source, n, c, w, ow, out, scale = unpack(launch.args)
        operand = launch.memory.view(source, element, (n * c, w), (w, 1))
        place = launch.memory.view(out, element, (n * c, ow), (ow, 1))
        place.copy_(select(operand, [_nearest(exact, scale, w, ow)]))

    return run


def _bind_nearest_1d_backward(kernel: KernelInfo) -> Run:
    """upsample_nearest1d_backward_out_frame: (grad, n, c, its width, width, grad of in, scale)."""
    name = "upsample_nearest1d_backward_out_frame"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "QQQQQQf")

    def run(launch: Launch) -> None:
        grad, n, c, gw, w, target, scale = unpack(launch.args)
        incoming = launch.memory.view(grad, element, (n * c, gw), (gw, 1))
        place = launch.memory.view(target, element, (n * c, w), (w, 1))
        index = _nearest_backward(exact, scale, gw, w)
        place.copy_(select_backward(incoming, [index], (w,)))

    return run


def _bind_nearest_2d(kernel: KernelInfo) -> Run:
    """upsample_nearest2d_out_frame: (in, out, planes, h, w, size of out, scales)."""
    element = raw_type(template_arguments(kernel.demangled, "upsample_nearest2d_out_frame")[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "QQQQQQQff")

    def run(launch: Launch) -> None:
        source, out, count, h, w, oh, ow, scale_h, scale_w = unpack(launch.args)
        operand = launch.memory.view(source, element, (1, count, h, w), planes(h, w))
        place = launch.memory.view(out, element, (1, count, oh, ow), planes(oh, ow))
        place.copy_(_pick_nearest(operand, place, exact, scale_h, scale_w))

    return run


def _bind_nearest_nhwc(kernel: KernelInfo) -> Run:
    """upsample_nearest2d_nhwc_out_frame: (in, out, c, h, w, size of out, scales, elements)."""
    element = raw_type(template_arguments(kernel.demangled, "upsample_nearest2d_nhwc_out_frame")[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "QQQQQQQffQ")

    def run(launch: Launch) -> None:
        source, out, c, h, w, oh, ow, scale_h, scale_w, count = unpack(launch.args)
        n = count // (c * oh * ow)
        operand = launch.memory.view(source, element, (n, c, h, w), channels_last(c, h, w))
        place = launch.memory.view(out, element, (n, c, oh, ow), channels_last(c, oh, ow))
        place.copy_(_pick_nearest(operand, place, exact, scale_h, scale_w))

    return run


def _pick_nearest(
    operand: Tensor, place: Tensor, exact: bool, scale_h: float, scale_w: float
) -> Tensor:
    h, w, oh, ow = *operand.shape[2:], *place.shape[2:]
    return select(operand, [_nearest(exact, scale_h, h, oh), _nearest(exact, scale_w, w, ow)])


def _bind_nearest_2d_backward(kernel: KernelInfo) -> Run:
    """upsample_nearest2d_backward_out_frame: (grad, n, c, its size, size, grad of in, scales)."""
    name = "upsample_nearest2d_backward_out_frame"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "QQQQQQQQff")

    def run(launch: Launch) -> None:
        grad, n, c, gh, gw, h, w, target, scale_h, scale_w = unpack(launch.args)
        incoming = launch.memory.view(grad, element, (1, n * c, gh, gw), planes(gh, gw))
        place = launch.memory.view(target, element, (1, n * c, h, w), planes(h, w))
        place.copy_(_sum_nearest(incoming, place, exact, scale_h, scale_w))

    return run


def _bind_nearest_nhwc_backward(kernel: KernelInfo) -> Run:
    """upsample_nearest2d_backward_nhwc_out_frame: (grad, grad of in, its size, size, c, ...)."""
    name = "upsample_nearest2d_backward_nhwc_out_frame"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "QQQQQQQffQ")

    def run(launch: Launch) -> None:
        grad, target, gh, gw, h, w, c, scale_h, scale_w, count = unpack(launch.args)
        n = count // (c * h * w)
        incoming = launch.memory.view(grad, element, (n, c, gh, gw), channels_last(c, gh, gw))
        place = launch.memory.view(target, element, (n, c, h, w), channels_last(c, h, w))
        place.copy_(_sum_nearest(incoming, place, exact, scale_h, scale_w))

    return run


def _sum_nearest(
    grad: Tensor, place: Tensor, exact: bool, scale_h: float, scale_w: float
) -> Tensor:
    gh, gw, h, w = *grad.shape[2:], *place.shape[2:]
    rows = _nearest_backward(exact, scale_h, gh, h)
    return select_backward(grad, [rows, _nearest_backward(exact, scale_w, gw, w)], (h, w))


def _bind_nearest_3d(kernel: KernelInfo) -> Run:
    """upsample_nearest3d_out_frame: (in, n, c, its size, size of out, out, scales)."""
    element = raw_type(template_arguments(kernel.demangled, "upsample_nearest3d_out_frame")[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "Q" * 10 + "fff")

    def run(launch: Launch) -> None:
        source, n, c, *sizes, out, a, b, d = unpack(launch.args)
        operand, place = (
            launch.memory.view(at, element, (n * c, *size), volumes(*size))
            for at, size in ((source, sizes[:3]), (out, sizes[3:]))
        )
        spans = zip((a, b, d), sizes[:3], sizes[3:], strict=True)
        place.copy_(select(operand, [_nearest(exact, *span) for span in spans]))

    return run


def _bind_nearest_3d_backward(kernel: KernelInfo) -> Run:
    """upsample_nearest3d_backward_out_frame: (grad, n, c, its size, size, grad of in, scales)."""
    name = "upsample_nearest3d_backward_out_frame"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    exact, unpack = _is_exact(kernel), unpacker(kernel, "Q" * 10 + "fff")

    def run(launch: Launch) -> None:
        grad, n, c, *sizes, target, a, b, d = unpack(launch.args)
        incoming, place = (
            launch.memory.view(at, element, (n * c, *size), volumes(*size))
            for at, size in ((grad, sizes[:3]), (target, sizes[3:]))
        )
        spans = zip((a, b, d), sizes[:3], sizes[3:], strict=True)
        indices = [_nearest_backward(exact, *span) for span in spans]
        place.copy_(select_backward(incoming, indices, sizes[3:]))

    return run


def _is_exact(kernel: KernelInfo) -> bool:
    return "nearest_neighbor_exact_" in kernel.demangled


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bupsample_nearest1d_out_frame<", _bind_nearest_1d),
        (r"\bupsample_nearest1d_backward_out_frame<", _bind_nearest_1d_backward),
        (r"\bupsample_nearest2d_out_frame<", _bind_nearest_2d),
        (r"\bupsample_nearest2d_nhwc_out_frame<", _bind_nearest_nhwc),
        (r"\bupsample_nearest2d_backward_out_frame<", _bind_nearest_2d_backward),
        (r"\bupsample_nearest2d_backward_nhwc_out_frame<", _bind_nearest_nhwc_backward),
        (r"\bupsample_nearest3d_out_frame<", _bind_nearest_3d),
        (r"\bupsample_nearest3d_backward_out_frame<", _bind_nearest_3d_backward),
    )
]
