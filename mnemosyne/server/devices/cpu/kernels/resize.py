"""Images resized to the nearest element or linearly, forward and backward.

Source positions are computed in the kernel's own precision (float32, but float64 for doubles), so
that they fall on the same elements as on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .axes import Accessor, select, select_backward
from .names import dtype, template_arguments
from .pooling import ACCUMULATORS, channels_last, planes
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


def _is_exact(kernel: KernelInfo) -> bool:
    return "nearest_neighbor_exact_" in kernel.demangled


class _Line:
    """Along one dimension: the two neighbours of every element of the result, and their weights."""

    __slots__ = ("first", "second", "weight")

    def __init__(self, scale: float, size: int, out: int, corners: bool, wide: torch.dtype) -> None:
        places = torch.arange(out, dtype=wide)
        position = places * scale if corners else ((places + 0.5) * scale - 0.5).clamp(min=0)
        self.first = position.to(torch.int64)
        self.second = (self.first + 1).clamp(max=size - 1)
        self.weight = position - self.first

    def mix(self, operand: Tensor, dim: int) -> Tensor:
        """Interpolate along one dimension."""
        weight = self._shaped(operand, dim)
        first = operand.index_select(dim, self.first)
        return first * (1 - weight) + operand.index_select(dim, self.second) * weight

    def unmix(self, grad: Tensor, dim: int, size: int) -> Tensor:
        """Give every gradient to the two neighbours."""
        weight = self._shaped(grad, dim)
        sums = torch.zeros([*grad.shape[:dim], size, *grad.shape[dim + 1 :]], dtype=grad.dtype)
        sums.index_add_(dim, self.first, grad * (1 - weight))
        return sums.index_add_(dim, self.second, grad * weight)

    def _shaped(self, tensor: Tensor, dim: int) -> Tensor:
        return self.weight.view([-1] + [1] * (tensor.dim() - dim - 1))


def _resize(operand: Tensor, place: Tensor, scales: tuple[float, ...], corners: bool) -> None:
    """Linear in every dimension behind the first two."""
    if operand.shape == place.shape:
        place.copy_(operand)
        return
    value = operand.to(ACCUMULATORS.get(operand.dtype, operand.dtype))
    for dim, scale in reversed([*enumerate(scales, 2)]):
        value = _Line(scale, value.shape[dim], place.shape[dim], corners, value.dtype).mix(
            value, dim
        )
    place.copy_(value)


def _resize_backward(
    grad: Tensor, place: Tensor, scales: tuple[float, ...], corners: bool, adds: bool
) -> None:
    value = grad.to(ACCUMULATORS.get(grad.dtype, grad.dtype))
    for dim, scale in enumerate(scales, 2) if grad.shape != place.shape else ():
        size = place.shape[dim]
        line = _Line(scale, size, value.shape[dim], corners, value.dtype)
        value = line.unmix(value, dim, size)
    place.copy_(place + value if adds else value)


def _scale_code(kernel: KernelInfo, name: str) -> tuple[torch.dtype, str]:
    """The elements, and how scales are held."""
    kind, wide, *_ = template_arguments(kernel.demangled, name)
    return dtype(kind), "d" if wide == "double" else "f"


def _bind_linear(kernel: KernelInfo) -> Run:
    """upsample_linear1d_out_frame, upsample_bilinear2d_out_frame, and the first one backward.

    Arguments: number of places, a scale for each dimension, whether corners are aligned, accessors
    of in and out. The backward kernel adds to a gradient that is zero.
    """
    name = re.search(r"upsample_(bi)?linear\dd_out_frame(_backward)?", kernel.demangled)
    assert name is not None
    backward = bool(name[2])
    element, code = _scale_code(kernel, name[0])
    accessor = Accessor.of(kernel.params[-1][1])
    starts = [offset for offset, _ in kernel.params[-2:]]
    unpack = unpacker(kernel, "i" + code * (2 if name[1] else 1) + "?ss")

    def run(launch: Launch) -> None:
        _, *scales, corners, _, _ = unpack(launch.args)
        small, large = (accessor.view(launch.args, at, launch.memory, element) for at in starts)
        if backward:
            _resize_backward(large, small, tuple(scales), corners, adds=True)
        else:
            _resize(small, large, tuple(scales), corners)

    return run


def _bind_bilinear_nhwc(kernel: KernelInfo) -> Run:
    """upsample_bilinear2d_nhwc_out_frame: (scales, corners, c, h, w, size, in, out, elements)."""
    element, code = _scale_code(kernel, "upsample_bilinear2d_nhwc_out_frame")
    unpack = unpacker(kernel, code * 2 + "?iiiiiQQn")

    def run(launch: Launch) -> None:
        *scales, corners, c, h, w, oh, ow, source, out, count = unpack(launch.args)
        n, view = count // (c * oh * ow), launch.memory.view
        operand = view(source, element, (n, c, h, w), channels_last(c, h, w))
        place = view(out, element, (n, c, oh, ow), channels_last(c, oh, ow))
        _resize(operand, place, tuple(scales), corners)

    return run


def _bind_bilinear_backward(kernel: KernelInfo) -> Run:
    """upsample_bilinear2d_backward_out_frame: (planes, h, w, size, scales, corners, ...); adds."""
    element, code = _scale_code(kernel, "upsample_bilinear2d_backward_out_frame")
    unpack = unpacker(kernel, "Qiiii" + code * 2 + "?QQ")

    def run(launch: Launch) -> None:
        count, h, w, oh, ow, *scales, corners, target, grad = unpack(launch.args)
        incoming = launch.memory.view(grad, element, (1, count, oh, ow), planes(oh, ow))
        place = launch.memory.view(target, element, (1, count, h, w), planes(h, w))
        _resize_backward(incoming, place, tuple(scales), corners, adds=True)

    return run


def _bind_bilinear_backward_nhwc(kernel: KernelInfo) -> Run:
    """upsample_bilinear2d_backward_nhwc_out_frame: (h, w, size, scales, corners, ...); adds."""
    element, code = _scale_code(kernel, "upsample_bilinear2d_backward_nhwc_out_frame")
    unpack = unpacker(kernel, "iiii" + code * 2 + "?QQinn")

    def run(launch: Launch) -> None:
        h, w, oh, ow, *scales, corners, target, grad, c, count, _ = unpack(launch.args)
        n, view = count // (c * oh * ow), launch.memory.view
        incoming = view(grad, element, (n, c, oh, ow), channels_last(c, oh, ow))
        place = view(target, element, (n, c, h, w), channels_last(c, h, w))
        _resize_backward(incoming, place, tuple(scales), corners, adds=True)

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bupsample_nearest1d_out_frame<", _bind_nearest_1d),
    (r"\bupsample_nearest1d_backward_out_frame<", _bind_nearest_1d_backward),
    (r"\bupsample_nearest2d_out_frame<", _bind_nearest_2d),
    (r"\bupsample_nearest2d_nhwc_out_frame<", _bind_nearest_nhwc),
    (r"\bupsample_nearest2d_backward_out_frame<", _bind_nearest_2d_backward),
    (r"\bupsample_nearest2d_backward_nhwc_out_frame<", _bind_nearest_nhwc_backward),
    (r"\bupsample_linear1d_out_frame(_backward)?<", _bind_linear),
    (r"\bupsample_bilinear2d_out_frame<", _bind_linear),
    (r"\bupsample_bilinear2d_nhwc_out_frame<", _bind_bilinear_nhwc),
    (r"\bupsample_bilinear2d_backward_out_frame<", _bind_bilinear_backward),
    (r"\bupsample_bilinear2d_backward_nhwc_out_frame<", _bind_bilinear_backward_nhwc),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
