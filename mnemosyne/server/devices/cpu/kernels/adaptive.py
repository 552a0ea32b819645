"""Pooling to a given size, forward and backward."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .pooling import ACCUMULATORS, channels_last, planes, scatter_planes
from .raw import asserting


def _bind_average(kernel: KernelInfo) -> Run:
    """adaptive_average_pool: (in, out, h, w, pooled, strides); as many planes as blocks."""
    element = dtype(template_arguments(kernel.demangled, "adaptive_average_pool")[0])
    unpack = unpacker(kernel, "QQnnnnqqq")

    def run(launch: Launch) -> None:
        source, out, h, w, ph, pw, *strides = unpack(launch.args)
        view, number = launch.memory.view, launch.grid[0]
        operand = view(source, element, (1, number, h, w), (0, *strides))
        place = view(out, element, (1, number, ph, pw), planes(ph, pw))
        place.copy_(F.adaptive_avg_pool2d(operand, (ph, pw)))

    return run


def _bind_average_backward(kernel: KernelInfo) -> Run:
    """adaptive_average_gradinput, and atomic_..., which adds: (grad of in, grad, h, w, pooled)."""
    adds = "::atomic_adaptive_average_gradinput<" in kernel.demangled
    element = dtype(template_arguments(kernel.demangled, "adaptive_average_gradinput")[0])
    wide = ACCUMULATORS.get(element, element)
    unpack = unpacker(kernel, "QQnnnn")

    def run(launch: Launch) -> None:
        target, grad, h, w, ph, pw = unpack(launch.args)
        view, number = launch.memory.view, launch.grid[0]
        place = view(target, element, (1, number, h, w), planes(h, w))
        incoming = view(grad, element, (1, number, ph, pw), planes(ph, pw)).to(wide)
        result = torch.ops.aten._adaptive_avg_pool2d_backward(incoming, place.to(wide))
        place.copy_(place + result if adds else result)

    return run


def _bind_average_nhwc(kernel: KernelInfo) -> Run:
    """adaptive_average_pool_nhwc: (in, out, n, c, h, w, pooled, tiling, strides of the input)."""
    element = dtype(template_arguments(kernel.demangled, "adaptive_average_pool_nhwc")[1])
    unpack = unpacker(kernel, "QQ" + "i" * 8 + "nnnn")

    def run(launch: Launch) -> None:
        source, out, n, c, h, w, ph, pw, _, _, *strides = unpack(launch.args)
        operand = launch.memory.view(source, element, (n, c, h, w), strides)
        place = launch.memory.view(out, element, (n, c, ph, pw), channels_last(c, ph, pw))
        place.copy_(F.adaptive_avg_pool2d(operand, (ph, pw)))

    return run


def _bind_average_backward_nhwc(kernel: KernelInfo) -> Run:
    """adaptive_average_gradinput_nhwc: (grad of in, grad, n, c, h, w, pooled, tiling, strides)."""
    element = dtype(template_arguments(kernel.demangled, "adaptive_average_gradinput_nhwc")[1])
    wide = ACCUMULATORS.get(element, element)
    unpack = unpacker(kernel, "QQ" + "i" * 8 + "nnnn")

    def run(launch: Launch) -> None:
        target, grad, n, c, h, w, ph, pw, _, _, *strides = unpack(launch.args)
        place = launch.memory.view(target, element, (n, c, h, w), channels_last(c, h, w))
        incoming = launch.memory.view(grad, element, (n, c, ph, pw), strides).to(wide)
        place.copy_(torch.ops.aten._adaptive_avg_pool2d_backward(incoming, place.to(wide)))

    return run


def _bind_max(kernel: KernelInfo) -> Run:
    """adaptivemaxpool: (in, out, indices, h, w, pooled, strides); as many planes as blocks."""
    element = dtype(template_arguments(kernel.demangled, "adaptivemaxpool")[0])
    unpack = unpacker(kernel, "QQQiiiiqqq")

    def run(launch: Launch) -> None:
        source, out, indices, h, w, ph, pw, *strides = unpack(launch.args)
        view, number = launch.memory.view, launch.grid[0]
        operand = view(source, element, (1, number, h, w), (0, *strides))
        values, where = F.adaptive_max_pool2d_with_indices(operand, (ph, pw))
        sizes = (1, number, ph, pw)
        view(out, element, sizes, planes(ph, pw)).copy_(values)
        view(indices, torch.int64, sizes, planes(ph, pw)).copy_(where)

    return run


def _bind_max_backward(kernel: KernelInfo) -> Run:
    """adaptivemaxgradinput, atomicadaptive...: (grad of in, grad, indices, h, w, pooled); adds."""
    element = dtype(template_arguments(kernel.demangled, "adaptivemaxgradinput")[0])
    unpack = unpacker(kernel, "QQQiiii")

    def run(launch: Launch) -> None:
        target, grad, indices, h, w, ph, pw = unpack(launch.args)
        view, sizes = launch.memory.view, (1, launch.grid[0], ph, pw)
        place = view(target, element, (1, launch.grid[0], h, w), planes(h, w))
        incoming = view(grad, element, sizes, planes(ph, pw))
        sums = torch.empty_like(place)
        scatter_planes(sums, view(indices, torch.int64, sizes, planes(ph, pw)), incoming)
        place.add_(sums)

    return asserting(run)


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\badaptive_average_pool<", _bind_average),
        (r"\b(atomic_)?adaptive_average_gradinput<", _bind_average_backward),
        (r"\badaptive_average_pool_nhwc<", _bind_average_nhwc),
        (r"\badaptive_average_gradinput_nhwc<", _bind_average_backward_nhwc),
        (r"::adaptivemaxpool<", _bind_max),
        (r"::(atomic)?adaptivemaxgradinput<", _bind_max_backward),
    )
]
