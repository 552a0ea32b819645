"""Softmax and log-softmax, forward and backward, over rows or over a middle dimension.

PyTorch picks among several kernels by the row's length; they differ only in how they are given
rows. The backward kernels of plain softmax get `grad * output` as the gradient, not `grad`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, parameters, template_arguments

Tensor = torch.Tensor
Forward = Callable[[Tensor, Tensor, int], None]
Backward = Callable[[Tensor, Tensor, Tensor, int], None]


def _pointer_types(kernel: KernelInfo, name: str, count: int) -> list[torch.dtype]:
    return [dtype(kind) for kind in parameters(kernel.demangled, name)[:count]]


def _forward(out: torch.dtype, log: bool) -> Forward:
    function: Any = torch.log_softmax if log else torch.softmax

    def run(target: Tensor, source: Tensor, dim: int) -> None:
        function(source, dim, dtype=out, out=target)

    return run


def _backward(kind: torch.dtype, acc: torch.dtype, log: bool) -> Backward:
    """Give grad - f(output) * sum(grad), f being exp for log-softmax."""

    def run(target: Tensor, output: Tensor, grad: Tensor, dim: int) -> None:
        output, grad = output.to(acc), grad.to(acc)
        total = grad.sum(dim, keepdim=True)
        weight = output.exp() if log else output
        if target.dtype == acc:
            torch.addcmul(grad, weight, total, value=-1, out=target)
        else:
            target.copy_(torch.addcmul(grad, weight, total, value=-1))

    return run


def _rows(memory: Memory, pointer: int, kind: torch.dtype, rows: int, columns: int) -> Tensor:
    return memory.view(pointer, kind, (rows, columns), (columns, 1))


def _bind_rows_forward(kernel: KernelInfo) -> Run:
    """cunn_SoftMaxForward, ...Reg, ...Smem: a block for each row; (output, input, classes)."""
    name = re.search(r"cunn_SoftMaxForward\w*", kernel.demangled)
    assert name is not None
    out, kind = _pointer_types(kernel, name[0], 2)
    unpack = unpacker(kernel, "QQn" + "x" * (len(kernel.params) - 3))
    run = _forward(out, "LogSoftMaxForwardEpilogue" in kernel.demangled)

    def launch_rows(launch: Launch) -> None:
        target, source, columns = unpack(launch.args)
        rows, memory = launch.grid[0], launch.memory
        run(
            _rows(memory, target, out, rows, columns),
            _rows(memory, source, kind, rows, columns),
            1,
        )

    return launch_rows


def _bind_rows_backward(kernel: KernelInfo) -> Run:
    """cunn_SoftMaxBackward, ...Smem: a block for each row; (grad_input, output, grad, classes)."""
    name = re.search(r"cunn_SoftMaxBackward\w*", kernel.demangled)
    assert name is not None
    kind, out, grad_kind = _pointer_types(kernel, name[0], 3)
    acc = dtype(template_arguments(kernel.demangled, name[0])[2])
    unpack = unpacker(kernel, "QQQn")
    run = _backward(kind, acc, "LogSoftMaxBackwardEpilogue" in kernel.demangled)

    def launch_rows(launch: Launch) -> None:
        target, output, grad, columns = unpack(launch.args)
        rows, memory = launch.grid[0], launch.memory
        run(
            _rows(memory, target, kind, rows, columns),
            _rows(memory, output, out, rows, columns),
            _rows(memory, grad, grad_kind, rows, columns),
            1,
        )

    return launch_rows


def _bind_spatial_forward(kernel: KernelInfo) -> Run:
    """cunn_SpatialSoftMaxForward: (output, input, outer, classes, inner)."""
    out, kind = _pointer_types(kernel, "cunn_SpatialSoftMaxForward", 2)
    unpack = unpacker(kernel, "QQnnn")
    run = _forward(out, "LogSoftMaxForwardEpilogue" in kernel.demangled)

    def launch_spatial(launch: Launch) -> None:
        target, source, *sizes = unpack(launch.args)
        strides, memory = (sizes[1] * sizes[2], sizes[2], 1), launch.memory
        run(memory.view(target, out, sizes, strides), memory.view(source, kind, sizes, strides), 1)

    return launch_spatial


def _bind_spatial_backward(kernel: KernelInfo) -> Run:
    """cunn_SpatialSoftMaxBackward: (grad_input, output, grad, outer, classes, inner)."""
    name = "cunn_SpatialSoftMaxBackward"
    kind, out, grad_kind = _pointer_types(kernel, name, 3)
    acc = dtype(template_arguments(kernel.demangled, name)[1])
    unpack = unpacker(kernel, "QQQnnn")
    run = _backward(kind, acc, "LogSoftMaxBackwardEpilogue" in kernel.demangled)

    def launch_spatial(launch: Launch) -> None:
        target, output, grad, *sizes = unpack(launch.args)
        strides, view = (sizes[1] * sizes[2], sizes[2], 1), launch.memory.view
        run(
            view(target, kind, sizes, strides),
            view(output, out, sizes, strides),
            view(grad, grad_kind, sizes, strides),
            1,
        )

    return launch_spatial


def _bind_warp_forward(kernel: KernelInfo) -> Run:
    """softmax_warp_forward: (dst, src, rows, stride, columns, mask, chunk, transformer_mask)."""
    kind, out, _, log2, log, masked, *_ = template_arguments(
        kernel.demangled, "softmax_warp_forward"
    )
    if masked == "true" and log == "true":
        raise UnsupportedKernel("log-softmax with a mask")
    unpack = unpacker(kernel, "QQiiiQi?")
    source_kind, target_kind = dtype(kind), dtype(out)
    run = _forward(target_kind, log == "true")
    together = 2 if int(log2) <= 7 else 1  # rows of one warp, which share a transformer mask

    def launch_warps(launch: Launch) -> None:
        target, source, rows, stride, columns, mask, chunk, shared = unpack(launch.args)
        _check_stride(stride, columns)
        memory = launch.memory
        place = _rows(memory, target, target_kind, rows, columns)
        operand = _rows(memory, source, source_kind, rows, columns)
        if masked == "true":
            operand = operand.masked_fill(
                _mask(memory, mask, rows, columns, chunk if shared else 0, together), -torch.inf
            )
        run(place, operand, 1)

    return launch_warps


def _mask(
    memory: Memory, pointer: int, rows: int, columns: int, chunk: int, together: int
) -> Tensor:
    """The mask of each row; with `chunk`, rows share one for each `chunk` elements of input."""
    if not chunk:
        return _rows(memory, pointer, torch.bool, rows, columns)
    first = torch.arange(rows).div(together, rounding_mode="floor") * together
    which = (first * columns).div(chunk, rounding_mode="floor")
    return _rows(memory, pointer, torch.bool, int(which[-1]) + 1, columns)[which]


def _check_stride(stride: int, columns: int) -> None:
    if stride != columns:
        raise UnsupportedKernel(f"softmax of rows of {columns} that lie {stride} apart")


def _bind_warp_backward(kernel: KernelInfo) -> Run:
    """softmax_warp_backward: (grad_input, grad, output, rows, stride, columns, mask)."""
    kind, out, acc, _, log, masked, *_ = template_arguments(
        kernel.demangled, "softmax_warp_backward"
    )
    unpack = unpacker(kernel, "QQQiiiQ")
    source_kind, target_kind = dtype(kind), dtype(out)
    run = _backward(target_kind, dtype(acc), log == "true")

    def launch_warps(launch: Launch) -> None:
        target, grad, output, rows, stride, columns, mask = unpack(launch.args)
        _check_stride(stride, columns)
        memory = launch.memory
        place = _rows(memory, target, target_kind, rows, columns)
        gradient = _rows(memory, grad, source_kind, rows, columns)
        hidden = _rows(memory, mask, torch.bool, rows, columns) if masked == "true" else None
        if hidden is not None:
            gradient = gradient.masked_fill(hidden, 0)
        run(place, _rows(memory, output, source_kind, rows, columns), gradient, 1)
        if hidden is not None:
            place.masked_fill_(hidden, 0)

    return launch_warps


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bsoftmax_warp_forward<", _bind_warp_forward),
        (r"\bsoftmax_warp_backward<", _bind_warp_backward),
        (r"\bcunn_SoftMaxForward(Reg|Smem|Gmem)?<", _bind_rows_forward),
        (r"\bcunn_SoftMaxBackward(Smem)?<", _bind_rows_backward),
        (r"\bcunn_SpatialSoftMaxForward<", _bind_spatial_forward),
        (r"\bcunn_SpatialSoftMaxBackward<", _bind_spatial_backward),
    )
]
