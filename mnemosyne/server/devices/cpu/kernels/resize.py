"""Images resized linearly or by cubics, forward and backward.

How this works. Along each dimension, an element of the result is a weighted sum of two or four
elements of the operand: taps. One dimension is done after another. Positions are computed in the
kernel's own precision (float32, but float64 for doubles), as on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .axes import Accessor
from .names import dtype, template_arguments
from .pooling import ACCUMULATORS, channels_last, planes

Tensor = torch.Tensor
#: For each element of the result: an element of the operand, and its weight.
Taps = Sequence[tuple[Tensor, Tensor]]
#: Of a scale, the sizes of operand and result, whether corners are aligned, the precision.
MakeTaps = Callable[[float, int, int, bool, torch.dtype], Taps]

_CUBIC = -0.75


def _positions(scale: float, out: int, corners: bool, wide: torch.dtype) -> Tensor:
    places = torch.arange(out, dtype=wide)
    return places * scale if corners else (places + 0.5) * scale - 0.5


def _linear(scale: float, size: int, out: int, corners: bool, wide: torch.dtype) -> Taps:
    position = _positions(scale, out, corners, wide).clamp(min=0)
    first = position.to(torch.int64)
    weight = position - first
    return (first, 1 - weight), ((first + 1).clamp(max=size - 1), weight)


def _cubic(scale: float, size: int, out: int, corners: bool, wide: torch.dtype) -> Taps:
    """Four neighbours, those beyond the border replaced by the border."""
    position = _positions(scale, out, corners, wide)
    first = position.floor()
    t = position - first
    weights = (_far(t + 1), _near(t), _near(1 - t), _far(2 - t))
    places = first.to(torch.int64)
    return [((places + i - 1).clamp(0, size - 1), weight) for i, weight in enumerate(weights)]


def _near(x: Tensor) -> Tensor:
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1


def _far(x: Tensor) -> Tensor:
    return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC


def _antialiased(width: int, weigh: Callable[[Tensor], Tensor]) -> MakeTaps:
    """Taps of a filter so many elements wide, which is stretched to shrink an image."""

    def make(scale: float, size: int, out: int, corners: bool, wide: torch.dtype) -> Taps:
        stretch = max(scale, 1.0)
        center = (torch.arange(out, dtype=wide) + 0.5) * scale
        first = (center - width / 2 * stretch + 0.5).to(torch.int64).clamp(min=0)
        last = (center + width / 2 * stretch + 0.5).to(torch.int64).clamp(max=size)
        places = first + torch.arange(int((last - first).max()))[:, None]
        weights = weigh((places - center + 0.5) / stretch).masked_fill(places >= last, 0)
        weights = weights / weights.sum(0)
        return list(zip(places.clamp(max=size - 1), weights, strict=True))

    return make


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic_filter(x: Tensor) -> Tensor:
    """Keys' cubic of -0.5, which only the antialiasing filter uses."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, far).masked_fill(x >= 2, 0)


_FILTERS = {
    "BilinearFilterFunctor": _antialiased(2, _triangle),
    "BicubicFilterFunctor": _antialiased(4, _cubic_filter),
}


def _mix(operand: Tensor, dim: int, taps: Taps) -> Tensor:
    """The weighted sums along one dimension."""
    parts = [operand.index_select(dim, at) * _shaped(w, operand, dim) for at, w in taps]
    return sum(parts[1:], parts[0])


def _unmix(grad: Tensor, dim: int, size: int, taps: Taps) -> Tensor:
    """Every gradient given to the elements it comes from."""
    sums = torch.zeros([*grad.shape[:dim], size, *grad.shape[dim + 1 :]], dtype=grad.dtype)
    for at, weight in taps:
        sums.index_add_(dim, at, grad * _shaped(weight, grad, dim))
    return sums


def _shaped(weight: Tensor, tensor: Tensor, dim: int) -> Tensor:
    return weight.view([-1] + [1] * (tensor.dim() - dim - 1))


def _resize(
    operand: Tensor, place: Tensor, scales: Sequence[float], corners: bool, make: MakeTaps
) -> None:
    """Resizes every dimension behind the first two."""
    if operand.shape == place.shape:
        place.copy_(operand)
        return
    value = operand.to(ACCUMULATORS.get(operand.dtype, operand.dtype))
    for dim, scale in reversed([*enumerate(scales, 2)]):
        taps = make(scale, value.shape[dim], place.shape[dim], corners, value.dtype)
        value = _mix(value, dim, taps)
    place.copy_(value)


def _resize_backward(
    grad: Tensor, place: Tensor, scales: Sequence[float], corners: bool, make: MakeTaps
) -> None:
    """Adds the gradient of `_resize` to a tensor."""
    value = grad.to(ACCUMULATORS.get(grad.dtype, grad.dtype))
    for dim, scale in enumerate(scales, 2) if grad.shape != place.shape else ():
        size = place.shape[dim]
        value = _unmix(value, dim, size, make(scale, size, value.shape[dim], corners, value.dtype))
    place.copy_(place + value)


_SCALES = {"linear1d": 1, "bilinear2d": 2, "trilinear3d": 3, "bicubic2d": 2}


def _bind_accessors(kernel: KernelInfo) -> Run:
    """Bind kernels with accessors of in and out, forward, or of grad of in and grad, backward.

    Arguments: number of places, a scale for each dimension, whether corners are aligned, the
    accessors; trilinear backward adds the address of the first one.
    """
    match = re.search(r"upsample_(\w+\dd)_(backward_)?out_frame(_\w+)?", kernel.demangled)
    assert match is not None
    backward = bool(match[2]) or match[3] == "_backward"
    element, code = _scale_code(kernel, match[0])
    make: MakeTaps = _cubic if match[1] == "bicubic2d" else _linear
    count = _SCALES[match[1]]
    starts = [offset for offset, _ in kernel.params[count + 2 : count + 4]]
    accessor = Accessor.of(kernel.params[count + 2][1])
    unpack = unpacker(kernel, "i" + code * count + "?ss" + "Q" * (len(kernel.params) - count - 4))

    def run(launch: Launch) -> None:
        scales, corners = (values := unpack(launch.args))[1 : count + 1], values[count + 1]
        small, large = (accessor.view(launch.args, at, launch.memory, element) for at in starts)
        if backward:
            _resize_backward(large, small, scales, corners, make)
        else:
            _resize(small, large, scales, corners, make)

    return run


def _bind_antialiased(kernel: KernelInfo) -> Run:
    """upsample_gen2d_aa_out_frame, ..._backward_...: (scales, accessors as above, filter)."""
    backward = "_aa_backward_out_frame<" in kernel.demangled
    name = f"upsample_gen2d_aa_{'backward_' * backward}out_frame"
    element, code = _scale_code(kernel, name)
    make = _FILTERS[template_arguments(kernel.demangled, name)[2].split("::")[-1]]
    starts = [offset for offset, _ in kernel.params[2:4]]
    accessor = Accessor.of(kernel.params[2][1])
    unpack, resize = unpacker(kernel, code * 2 + "ssx"), _resize_backward if backward else _resize

    def run(launch: Launch) -> None:
        scales = unpack(launch.args)[:2]
        ends = [accessor.view(launch.args, at, launch.memory, element) for at in starts]
        source, place = reversed(ends) if backward else ends
        resize(source, place, scales, False, make)

    return run


def _scale_code(kernel: KernelInfo, name: str) -> tuple[torch.dtype, str]:
    """The elements, and how scales are held."""
    kind, wide, *_ = template_arguments(kernel.demangled, name)
    return dtype(kind), "d" if wide == "double" else "f"


def _bind_bilinear_nhwc(kernel: KernelInfo) -> Run:
    """upsample_bilinear2d_nhwc_out_frame: (scales, corners, c, h, w, size, in, out, elements)."""
    element, code = _scale_code(kernel, "upsample_bilinear2d_nhwc_out_frame")
    unpack = unpacker(kernel, code * 2 + "?iiiiiQQn")

    def run(launch: Launch) -> None:
        *scales, corners, c, h, w, oh, ow, source, out, count = unpack(launch.args)
        n, view = count // (c * oh * ow), launch.memory.view
        operand = view(source, element, (n, c, h, w), channels_last(c, h, w))
        place = view(out, element, (n, c, oh, ow), channels_last(c, oh, ow))
        _resize(operand, place, scales, corners, _linear)

    return run


def _bind_bilinear_backward(kernel: KernelInfo) -> Run:
    """upsample_bilinear2d_backward_out_frame: (planes, h, w, size, scales, corners, ...); adds."""
    element, code = _scale_code(kernel, "upsample_bilinear2d_backward_out_frame")
    unpack = unpacker(kernel, "Qiiii" + code * 2 + "?QQ")

    def run(launch: Launch) -> None:
        count, h, w, oh, ow, *scales, corners, target, grad = unpack(launch.args)
        incoming = launch.memory.view(grad, element, (1, count, oh, ow), planes(oh, ow))
        place = launch.memory.view(target, element, (1, count, h, w), planes(h, w))
        _resize_backward(incoming, place, scales, corners, _linear)

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
        _resize_backward(incoming, place, scales, corners, _linear)

    return run


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bupsample_linear1d_out_frame(_backward)?<", _bind_accessors),
        (r"\bupsample_(bilinear2d|trilinear3d)_out_frame<", _bind_accessors),
        (r"\bupsample_trilinear3d_backward_out_frame<", _bind_accessors),
        (r"\bupsample_bicubic2d_(backward_)?out_frame(_parallel)?<", _bind_accessors),
        (r"\bupsample_gen2d_aa_(backward_)?out_frame<", _bind_antialiased),
        (r"\bupsample_bilinear2d_nhwc_out_frame<", _bind_bilinear_nhwc),
        (r"\bupsample_bilinear2d_backward_out_frame<", _bind_bilinear_backward),
        (r"\bupsample_bilinear2d_backward_nhwc_out_frame<", _bind_bilinear_backward_nhwc),
    )
]
