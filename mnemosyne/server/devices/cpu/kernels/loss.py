"""Negative log-likelihood, forward and backward: cross-entropy is this after log-softmax.

Targets equal to `ignore_index` take no part. A target outside the classes is a device assertion
in CUDA, which ends the context; here the launch fails.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import opmath, pointed_types, unpacker
from .names import dtype, template_arguments

Tensor = torch.Tensor


class TargetOutOfRange(UnsupportedKernel):
    """A class number that the input has no column for: an assertion of the kernel."""


def vector(memory: Memory, pointer: int, kind: torch.dtype, size: int) -> Tensor:
    return memory.view(pointer, kind, (size,), (1,))


def scalar(memory: Memory, pointer: int, kind: torch.dtype) -> Tensor:
    return memory.view(pointer, kind, (), ())


def targets(target: Tensor, ignore: int, classes: int) -> tuple[Tensor, Tensor]:
    """Which targets count, and class numbers fit for indexing for all of them."""
    counts = target != ignore
    safe = torch.where(counts, target, 0)
    if safe.numel() and (int(safe.min()) < 0 or int(safe.max()) >= classes):
        raise TargetOutOfRange(f"a target outside the {classes} classes (device-side assertion)")
    return counts, safe


def chosen_weights(
    memory: Memory, pointer: int, kind: torch.dtype, classes: int, chosen: Tensor, counts: Tensor
) -> Tensor:
    """The weight of each target; 0 for those that do not count."""
    if not pointer:
        return counts.to(kind)
    return torch.where(counts, vector(memory, pointer, kind, classes)[chosen], 0)


def _bind_forward_2d(kernel: KernelInfo) -> Run:
    """(output, total_weight, input, target, weights, mean, rows, columns, classes, ignore)."""
    types = pointed_types(kernel, "nll_loss_forward_reduce_cuda_kernel_2d")
    kind, index = types[2], types[3]
    unpack, acc = unpacker(kernel, "QQQQQ?nnnq"), opmath(kind)

    def run(launch: Launch) -> None:
        out, total, source, target, *rest = unpack(launch.args)
        weight, mean, rows, columns, classes, ignore = rest
        memory = launch.memory
        values = memory.view(source, kind, (rows, columns), (columns, 1)).to(acc)
        labels = vector(memory, target, index, rows).to(torch.int64)
        weights = vector(memory, weight, kind, classes).to(acc) if weight else None
        results = _checked(
            torch.ops.aten.nll_loss_forward, values, labels, weights, 1 if mean else 2, ignore
        )
        for place, result in zip((out, total), results, strict=True):
            scalar(memory, place, kind).copy_(result)

    return run


def _checked(function: Any, *args: Any) -> Any:
    """Call a loss of torch, which tells of a target outside the classes as the kernel does."""
    try:
        return function(*args)
    except IndexError as error:
        raise TargetOutOfRange(f"{error} (device-side assertion)") from None


def _bind_forward_1d(kernel: KernelInfo) -> Run:
    """(output, total_weight, input, target, weights, mean, classes, ignore): one sample."""
    types = pointed_types(kernel, "nll_loss_forward_reduce_cuda_kernel_1d")
    kind, index = types[2], types[3]
    unpack = unpacker(kernel, "QQQQQ?nq")

    def run(launch: Launch) -> None:
        out, total, source, target, weight, mean, classes, ignore = unpack(launch.args)
        memory = launch.memory
        label = vector(memory, target, index, 1).to(torch.int64)
        counts, chosen = targets(label, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        value = torch.where(counts, -vector(memory, source, kind, classes)[chosen], 0)
        if mean:  # of a weight of zero the mean is NaN
            value = torch.where(counts & (weights == 0), torch.nan, value)
        vector(memory, total, kind, 1).copy_(weights)
        vector(memory, out, kind, 1).copy_(value if mean else value * weights)

    return run


def scale(memory: Memory, grad: int, total: int, kind: torch.dtype, mean: bool) -> Tensor:
    """Minus the gradient of the loss, shared out when the loss is a mean."""
    value = scalar(memory, grad, kind)
    return -(value / scalar(memory, total, kind) if mean else value)


def _bind_backward_2d(kernel: KernelInfo) -> Run:
    """(grad_input, grad, target, weights, total_weight, mean, rows, columns, classes, ignore)."""
    types = pointed_types(kernel, "nll_loss_backward_reduce_cuda_kernel_2d")
    kind, index = types[0], types[2]
    unpack = unpacker(kernel, "QQQQQ?nnnq")

    def run(launch: Launch) -> None:
        out, grad, target, weight, total, *rest = unpack(launch.args)
        mean, rows, columns, classes, ignore = rest
        memory = launch.memory
        labels = vector(memory, target, index, rows).to(torch.int64)
        counts, chosen = targets(labels, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        values = weights * scale(memory, grad, total, kind, mean)
        place = memory.view(out, kind, (rows, columns), (columns, 1))
        put(place, chosen, values, counts)

    return run


def put(place: Tensor, chosen: Tensor, values: Tensor, counts: Tensor) -> None:
    """Write each value that counts into its row, at its class (the second dimension)."""
    chosen, counts = chosen.unsqueeze(1), counts.unsqueeze(1)
    kept = torch.where(counts, values.unsqueeze(1), place.gather(1, chosen))
    place.scatter_(1, chosen, kept)


def _bind_backward_1d(kernel: KernelInfo) -> Run:
    """(grad_input, grad, weights, target, total_weight, mean, classes, ignore): one sample."""
    types = pointed_types(kernel, "nll_loss_backward_reduce_cuda_kernel_1d")
    kind, index = types[0], types[3]
    unpack = unpacker(kernel, "QQQQQ?nq")

    def run(launch: Launch) -> None:
        out, grad, weight, target, total, mean, classes, ignore = unpack(launch.args)
        memory = launch.memory
        counts, chosen = targets(vector(memory, target, index, 1).to(torch.int64), ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        place = memory.view(out, kind, (1, classes), (classes, 1))
        put(place, chosen, weights * scale(memory, grad, total, kind, mean), counts)

    return run


def accessor(kernel: KernelInfo, position: int, dims: int) -> struct.Struct:
    """A PackedTensorAccessor64 among the arguments: address, sizes, strides."""
    if kernel.params[position][1] != 8 + 16 * dims:
        raise UnsupportedKernel(f"an accessor of {kernel.params[position][1]} bytes")
    return struct.Struct(f"<Q{2 * dims}q")


def accessed(memory: Memory, kind: torch.dtype, layout: struct.Struct, data: bytes) -> Tensor:
    pointer, *numbers = layout.unpack(data)
    half = len(numbers) // 2
    return memory.view(pointer, kind, numbers[:half], numbers[half:])


def _bind_forward_each(kernel: KernelInfo) -> Run:
    """(rows, input accessor, target, output, weights, classes, ignore): no reduction."""
    kind, index = _element_types(kernel, "nll_loss_forward_no_reduce_cuda_kernel")
    unpack, layout = unpacker(kernel, "nsQQQnq"), accessor(kernel, 1, 2)

    def run(launch: Launch) -> None:
        rows, source, target, out, weight, classes, ignore = unpack(launch.args)
        memory = launch.memory
        labels = vector(memory, target, index, rows).to(torch.int64)
        counts, chosen = targets(labels, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        picked = accessed(memory, kind, layout, source).gather(1, chosen[:, None])[:, 0]
        result = torch.where(counts, -weights * picked, 0)
        vector(memory, out, kind, rows).copy_(result)

    return run


def _element_types(kernel: KernelInfo, function: str) -> Sequence[torch.dtype]:
    return [dtype(kind) for kind in template_arguments(kernel.demangled, function)[:2]]


def _bind_backward_each(kernel: KernelInfo) -> Run:
    """(rows, target, grad accessor, grad_input accessor, weights, classes, ignore)."""
    kind, index = _element_types(kernel, "nll_loss_backward_no_reduce_cuda_kernel")
    unpack = unpacker(kernel, "nQssQnq")
    grad_layout, layout = accessor(kernel, 2, 1), accessor(kernel, 3, 2)

    def run(launch: Launch) -> None:
        rows, target, grad, out, weight, classes, ignore = unpack(launch.args)
        memory = launch.memory
        labels = vector(memory, target, index, rows).to(torch.int64)
        counts, chosen = targets(labels, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        values = -weights * accessed(memory, kind, grad_layout, grad)
        put(accessed(memory, kind, layout, out), chosen, values, counts)

    return run


FAMILY: Family = [
    (re.compile(rf"\bnll_loss_{name}<"), binder)
    for name, binder in (
        ("forward_reduce_cuda_kernel_2d", _bind_forward_2d),
        ("forward_reduce_cuda_kernel_1d", _bind_forward_1d),
        ("forward_no_reduce_cuda_kernel", _bind_forward_each),
        ("backward_reduce_cuda_kernel_2d", _bind_backward_2d),
        ("backward_reduce_cuda_kernel_1d", _bind_backward_1d),
        ("backward_no_reduce_cuda_kernel", _bind_backward_each),
    )
]
