"""Pooling over three dimensions, forward and backward.

A kernel that is launched in several parts is run whole with the first one.
"""

from __future__ import annotations

import re
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .axes import Accessor
from .names import dtype, template_arguments
from .pooling import ACCUMULATORS, Window, scatter_planes
from .raw import asserting
from .structs import contiguous

_MOST_BLOCKS = 65535
_aten: Any = torch.ops.aten


def _element(kernel: KernelInfo, name: str) -> torch.dtype:
    """The first template argument that is a type."""
    kinds = template_arguments(kernel.demangled, name)
    return dtype(kinds[1] if kinds[0].isdigit() else kinds[0])


def _volume(
    launch: Launch, pointer: int, element: torch.dtype, sizes: tuple[int, ...], last: bool
) -> Tensor:
    """(batch, channel, depth, height, width); with `last`, channels lie together."""
    n, c, *inner = sizes
    if last:
        return launch.memory.view(
            pointer, element, (n, *inner, c), contiguous((n, *inner, c))
        ).permute(0, 4, 1, 2, 3)
    return launch.memory.view(pointer, element, sizes, contiguous(sizes))


def _bind_max(kernel: KernelInfo) -> Run:
    """max_pool3d_with_indices_single_out_frame.

    Arguments: in, out, indices, channels, size, batch, pooled size, window, the part, whether
    channels lie together.
    """
    element = _element(kernel, "max_pool3d_with_indices_single_out_frame")
    unpack = unpacker(kernel, "QQQ" + "i" * 21 + "?")

    def run(launch: Launch) -> None:
        source, out, indices, c, *size, n, pt, ph, pw = (values := unpack(launch.args))[:11]
        *window, part, last = values[11:]
        if part:
            return
        operand = _volume(launch, source, element, (n, c, *size), last)
        moves, pooled = Window.of(window, 3), (pt, ph, pw)
        result = F.max_pool3d_with_indices(
            operand, moves.kernel, moves.stride, moves.padding, moves.dilation,
            moves.rounds_up(tuple(size), pooled),
        )  # fmt: skip
        _volume(launch, out, element, (n, c, *pooled), last).copy_(result[0])
        _volume(launch, indices, torch.int64, (n, c, *pooled), last).copy_(result[1])

    return run


def _bind_max_backward(kernel: KernelInfo) -> Run:
    """max_pool3d_with_indices_backward_single_out_frame: (grad of in, grad, indices, as above)."""
    element = _element(kernel, "max_pool3d_with_indices_backward_single_out_frame")
    unpack = unpacker(kernel, "QQQ" + "i" * 9 + "?")

    def run(launch: Launch) -> None:
        target, grad, indices, c, t, h, w, n, *pooled, part, last = unpack(launch.args)
        if part:
            return
        sizes = (n, c, *pooled)
        scatter_planes(
            _volume(launch, target, element, (n, c, t, h, w), last),
            _volume(launch, indices, torch.int64, sizes, last),
            _volume(launch, grad, element, sizes, last),
        )

    return asserting(run)


class _Average:
    """Reads the accessors and the window of a kernel; a width of the window may be in its name."""

    def __init__(self, kernel: KernelInfo, name: str, more: str = "") -> None:
        first = template_arguments(kernel.demangled, name)[0]
        self._width = [int(first)] if first.isdigit() else []
        self._element = _element(kernel, name)
        self.wide = ACCUMULATORS.get(self._element, self._element)
        self._unpack = unpacker(kernel, "ss" + "i" * (9 - len(self._width)) + "?ii" + more)
        self._starts = [offset for offset, _ in kernel.params[:2]]

    def read(self, launch: Launch) -> tuple[Tensor, Tensor, Window, bool, int | None, int]:
        """First and second tensor, window, whether padding counts, the divisor, the part."""
        _, _, *values = self._unpack(launch.args)
        window = values[:2] + self._width + values[2:] if self._width else values
        first, second = (
            Accessor(4).view(launch.args, at, launch.memory, self._element) for at in self._starts
        )
        padded, part, divisor = window[9:12]
        return first, second, Window.of(window[:9], 3), padded, divisor or None, part


def _bind_average(kernel: KernelInfo) -> Run:
    """avg_pool3d_cuda_update_output: (in, out, window, counts padding, the part, divisor)."""
    arguments = _Average(kernel, "avg_pool3d_cuda_update_output")

    def run(launch: Launch) -> None:
        operand, place, window, padded, divisor, part = arguments.read(launch)
        if part:
            return
        ceil = window.rounds_up(tuple(operand.shape[1:]), tuple(place.shape[1:]))
        moves = window.kernel, window.stride, window.padding
        place.copy_(F.avg_pool3d(operand.to(arguments.wide), *moves, ceil, padded, divisor))

    return run


def _bind_average_backward(kernel: KernelInfo) -> Run:
    """avg_pool3d_cuda_update_grad_input, ..._atomic: the same with gradients."""
    atomic = "_grad_input_atomic<" in kernel.demangled
    name = "avg_pool3d_cuda_update_grad_input" + "_atomic" * atomic
    arguments = _Average(kernel, name, "q" * atomic)

    def run(launch: Launch) -> None:
        grad, place, window, padded, divisor, part = arguments.read(launch)
        if part:
            return
        ceil = window.rounds_up(tuple(place.shape[1:]), tuple(grad.shape[1:]))
        moves = window.kernel, window.stride, window.padding
        wide = grad.to(arguments.wide), place.to(arguments.wide)
        place.copy_(_aten.avg_pool3d_backward(*wide, *moves, ceil, padded, divisor))

    return run


def _bind_average_dense(kernel: KernelInfo) -> Run:
    """avg_pool3d_single_backward_out_frame_stride1: (grad, grad of in, kernel, factor, part)."""
    name = "avg_pool3d_single_backward_out_frame_stride1"
    element, wide = (dtype(t) for t in template_arguments(kernel.demangled, name))
    unpack = unpacker(kernel, "ssiii" + ("d" if wide == torch.float64 else "f") + "i")
    starts = [offset for offset, _ in kernel.params[:2]]

    def run(launch: Launch) -> None:
        _, _, *size, factor, part = unpack(launch.args)
        if part:
            return
        grad, place = (
            Accessor(4).view(launch.args, at, launch.memory, element).to(wide) for at in starts
        )
        moves = size, (1, 1, 1), (0, 0, 0)
        result = _aten.avg_pool3d_backward(grad, place, *moves, False, True, 1) * factor
        Accessor(4).view(launch.args, starts[1], launch.memory, element).copy_(result)

    return run


def _slices(launch: Launch, part: int, frames: int) -> int:
    """How many volumes a launch of one block for each of their frames covers."""
    if part or launch.grid[0] == _MOST_BLOCKS:
        raise UnsupportedKernel(f"adaptive pooling of {_MOST_BLOCKS} frames or more")
    return launch.grid[0] // frames


def _bind_adaptive_average(kernel: KernelInfo) -> Run:
    """adaptiveaveragepool: (in, out, size, pooled size, channels, strides, the part)."""
    element = _element(kernel, "adaptiveaveragepool")
    wide = ACCUMULATORS.get(element, element)
    unpack = unpacker(kernel, "QQ" + "i" * 6 + "q" * 7)

    def run(launch: Launch) -> None:
        source, out, *sizes, channels, step, stride, st, sh, sw, part = unpack(launch.args)
        count = _slices(launch, part, sizes[3])
        shape, inner = (count // channels, channels, *sizes[:3]), (stride, st, sh, sw)
        operand = launch.memory.view(source, element, shape, (step, *inner))
        place = _volume(launch, out, element, (*shape[:2], *sizes[3:]), False)
        place.copy_(F.adaptive_avg_pool3d(operand.to(wide), tuple(sizes[3:])))

    return run


def _bind_adaptive_average_backward(kernel: KernelInfo) -> Run:
    """adaptiveaveragegradinput, atomic...: (grad of in, grad, size, pooled size, the part)."""
    atomic = "atomicadaptiveaveragegradinput<" in kernel.demangled
    element = _element(kernel, "adaptiveaveragegradinput")
    wide = ACCUMULATORS.get(element, element)
    unpack = unpacker(kernel, "QQ" + "i" * 6 + "q")

    def run(launch: Launch) -> None:
        target, grad, *sizes, part = unpack(launch.args)
        count = _slices(launch, part, sizes[3 if atomic else 0])
        place = _volume(launch, target, element, (1, count, *sizes[:3]), False)
        incoming = _volume(launch, grad, element, (1, count, *sizes[3:]), False)
        place.copy_(_aten._adaptive_avg_pool3d_backward(incoming.to(wide), place.to(wide)))

    return run


def _bind_adaptive_max(kernel: KernelInfo) -> Run:
    """adaptivemaxpool: (in, out, indices, size, pooled size, strides, the part)."""
    element = _element(kernel, "adaptivemaxpool")
    unpack = unpacker(kernel, "QQQ" + "i" * 6 + "q" * 5)

    def run(launch: Launch) -> None:
        source, out, indices, *sizes, stride, st, sh, sw, part = unpack(launch.args)
        count = _slices(launch, part, sizes[3])
        shape, pooled = (1, count, *sizes[:3]), (1, count, *sizes[3:])
        operand = launch.memory.view(source, element, shape, (0, stride, st, sh, sw))
        values, where = F.adaptive_max_pool3d_with_indices(operand, tuple(sizes[3:]))
        _volume(launch, out, element, pooled, False).copy_(values)
        _volume(launch, indices, torch.int64, pooled, False).copy_(where)

    return run


def _bind_adaptive_max_backward(kernel: KernelInfo) -> Run:
    """adaptivemaxgradinput, atomic...: (grad of in, grad, indices, size, pooled size, the part)."""
    element = _element(kernel, "adaptivemaxgradinput")
    unpack = unpacker(kernel, "QQQ" + "i" * 6 + "q")

    def run(launch: Launch) -> None:
        target, grad, indices, *sizes, part = unpack(launch.args)
        count = _slices(launch, part, sizes[3])
        pooled = (1, count, *sizes[3:])
        scatter_planes(
            _volume(launch, target, element, (1, count, *sizes[:3]), False),
            _volume(launch, indices, torch.int64, pooled, False),
            _volume(launch, grad, element, pooled, False),
        )

    return asserting(run)


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bmax_pool3d_with_indices_single_out_frame<", _bind_max),
        (r"\bmax_pool3d_with_indices_backward_single_out_frame<", _bind_max_backward),
        (r"\bavg_pool3d_cuda_update_output<", _bind_average),
        (r"\bavg_pool3d_cuda_update_grad_input(_atomic)?<", _bind_average_backward),
        (r"\bavg_pool3d_single_backward_out_frame_stride1<", _bind_average_dense),
        (r"\badaptiveaveragepool<", _bind_adaptive_average),
        (r"\b(atomic)?adaptiveaveragegradinput<", _bind_adaptive_average_backward),
        (r"\badaptivemaxpool<", _bind_adaptive_max),
        (r"\b(atomic)?adaptivemaxgradinput<", _bind_adaptive_max_backward),
    )
]
