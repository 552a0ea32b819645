"""Unpooling, and pooling of windows at random places, forward and backward."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .axes import Accessor
from .names import dtype, template_arguments
from .pooling import scatter_planes
from .raw import asserting, failed_assertion

_VOLUME = Accessor(4)
_aten: Any = torch.ops.aten
_POOLS = {2: _aten.fractional_max_pool2d, 3: _aten.fractional_max_pool3d}


def _element(kernel: KernelInfo, name: str) -> torch.dtype:
    return dtype(template_arguments(kernel.demangled, name)[0])


def _bind_unpool(kernel: KernelInfo) -> Run:
    """max_unpooling2d_forward_kernel, ..._backward_...: (n, in, indices, c, size, out size, ...).

    Backward, `in` is the gradient of the larger image and `out` that of the smaller one.
    """
    backward = "max_unpooling2d_backward_kernel<" in kernel.demangled
    element = _element(kernel, f"max_unpooling2d_{'back' if backward else 'for'}ward_kernel")
    unpack = unpacker(kernel, "qQQqqqqqQ")

    def run(launch: Launch) -> None:
        count, source, indices, _, h, w, oh, ow, out = unpack(launch.args)
        view, number = launch.memory.view, count // (h * w)
        small, large = (out, source) if backward else (source, out)
        values = view(small, element, (number, h * w), (h * w, 1))
        index = view(indices, torch.int64, (number, h * w), (h * w, 1))
        _move(values, index, _planes(launch.memory, large, element, number, oh * ow), backward)

    return asserting(run)


def _bind_unpool_volume(kernel: KernelInfo) -> Run:
    """max_unpooling3d_forward_kernel: (in, indices, out, out size, the part)."""
    element = _element(kernel, "max_unpooling3d_forward_kernel")
    return _unpool_volume(kernel, "ssQqqqq", element, (0, 1), 2, backward=False)


def _bind_unpool_volume_backward(kernel: KernelInfo) -> Run:
    """max_unpooling3d_backward_kernel: (grad, its size, indices, grad of in, the part)."""
    element = _element(kernel, "max_unpooling3d_backward_kernel")
    return _unpool_volume(kernel, "Qqqqssi", element, (5, 4), 0, backward=True)


def _unpool_volume(
    kernel: KernelInfo, codes: str, element: torch.dtype, places: tuple[int, int], whole: int,
    backward: bool,
) -> Run:  # fmt: skip
    """Arguments at `places` are the smaller volume and its indices, the one at `whole` the larger.

    A kernel that is launched in several parts is run whole with the first one.
    """
    unpack = unpacker(kernel, codes)
    values_at, index_at = (kernel.params[place][0] for place in places)

    def run(launch: Launch) -> None:
        arguments = unpack(launch.args)
        if arguments[-1]:
            return
        t, h, w = arguments[whole + 1 : whole + 4]
        values = _VOLUME.view(launch.args, values_at, launch.memory, element).flatten(1)
        index = _VOLUME.view(launch.args, index_at, launch.memory, torch.int64).flatten(1)
        large = _planes(launch.memory, arguments[whole], element, len(values), t * h * w)
        _move(values, index, large, backward)

    return asserting(run)


def _planes(memory: Memory, at: int, element: torch.dtype, number: int, size: int) -> Tensor:
    return memory.view(at, element, (number, size), (size, 1))


def _move(small: Tensor, index: Tensor, large: Tensor, backward: bool) -> None:
    if backward:
        small.copy_(large.gather(1, index))
    else:
        large.scatter_(1, index, small)


class _Fractional:
    """Reads the accessors that come first: images or volumes, then samples."""

    def __init__(self, kernel: KernelInfo, dims: int, end: str) -> None:
        self.dims = dims
        self.element = _element(kernel, f"fractional_max_pool{dims}d_{end}")
        self._accessor = Accessor(dims + 2)
        self.starts = [start for start, _ in kernel.params]
        if any(size != self._accessor.size for _, size in kernel.params[:3]):
            raise UnsupportedKernel(f"accessors of other sizes: {kernel.params[:3]}")

    def view(self, launch: Launch, number: int, kind: torch.dtype | None = None) -> Tensor:
        start = self.starts[number]
        return self._accessor.view(launch.args, start, launch.memory, kind or self.element)


def _bind_fractional(kernel: KernelInfo) -> Run:
    """fractional_max_pool2d_out_cuda_frame: (out, indices, in, samples, window)."""
    return _fractional(kernel, _Fractional(kernel, 2, "out_cuda_frame"), (2, 0, 1), "ssssii")


def _bind_fractional_volume(kernel: KernelInfo) -> Run:
    """fractional_max_pool3d_out_frame: (in, out, indices, samples, window)."""
    return _fractional(kernel, _Fractional(kernel, 3, "out_frame"), (0, 1, 2), "ssssqqq")


def _fractional(
    kernel: KernelInfo, read: _Fractional, order: tuple[int, int, int], codes: str
) -> Run:
    """`order`: which arguments are the input, the output and the indices."""
    unpack = unpacker(kernel, codes)
    pool = _POOLS[read.dims]

    def run(launch: Launch) -> None:
        window = unpack(launch.args)[4:]
        source, out = (read.view(launch, number) for number in order[:2])
        samples = Accessor(3).view(launch.args, read.starts[3], launch.memory, read.element)
        if not bool(((samples >= 0) & (samples <= 1)).all()):
            raise failed_assertion("a sample of fractional pooling is not between 0 and 1")
        values, places = pool(source, window, out.shape[2:], samples)
        out.copy_(values)
        read.view(launch, order[2], torch.int64).copy_(places)

    return run


def _bind_fractional_backward(kernel: KernelInfo) -> Run:
    """fractional_max_pool2d_backward_out_cuda_frame, ...3d_backward_out_frame.

    Arguments: (grad of in, grad, indices).
    """
    flat = "fractional_max_pool2d_" in kernel.demangled
    end = "backward_out_cuda_frame" if flat else "backward_out_frame"
    read = _Fractional(kernel, 2 if flat else 3, end)

    def run(launch: Launch) -> None:
        target, grad = read.view(launch, 0), read.view(launch, 1)
        sums = torch.empty_like(target)
        scatter_planes(sums, read.view(launch, 2, torch.int64), grad)
        target.add_(sums)

    return asserting(run)


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bmax_unpooling2d_(for|back)ward_kernel<", _bind_unpool),
        (r"\bmax_unpooling3d_forward_kernel<", _bind_unpool_volume),
        (r"\bmax_unpooling3d_backward_kernel<", _bind_unpool_volume_backward),
        (r"\bfractional_max_pool2d_out_cuda_frame<", _bind_fractional),
        (r"\bfractional_max_pool3d_out_frame<", _bind_fractional_volume),
        (r"\bfractional_max_pool[23]d_backward_out_\w*frame<", _bind_fractional_backward),
    )
]
