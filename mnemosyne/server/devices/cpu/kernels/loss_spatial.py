"""Negative log-likelihood over images or sequences: input (N, classes, ...), target (N, ...)."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, pointed_types, unpacker
from .loss import accessed, accessor, chosen_weights, put, scalar, scale, targets
from .names import dtype, template_arguments


def _bind_forward(kernel: KernelInfo) -> Run:
    """(output, total_weight, input, target, weights, classes, places, blocks, ignore).

    Both results are added to what is there; a later kernel divides one by the other.
    """
    kind = pointed_types(kernel, "nll_loss2d_forward_kernel")[0]
    unpack, acc = unpacker(kernel, "QQQQQnnnq"), opmath(kind)

    def run(launch: Launch) -> None:
        out, total, source, target, weight, *sizes, blocks, ignore = unpack(launch.args)
        (classes, places), memory = sizes, launch.memory
        samples = launch.grid[0] // blocks
        shape, strides = (samples, classes, places), (classes * places, places, 1)
        labels = memory.view(target, torch.int64, (samples, places), (places, 1))
        counts, chosen = targets(labels, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts).to(acc)
        picked = memory.view(source, kind, shape, strides).gather(1, chosen.unsqueeze(1))[:, 0]
        loss = -(torch.where(counts, picked, 0).to(acc) * weights).sum()
        scalar(memory, total, kind).add_(weights.sum().to(kind))
        scalar(memory, out, kind).add_(loss.to(kind))

    return run


def _bind_average(kernel: KernelInfo) -> Run:
    """(output, total_weight): the sum becomes a mean."""
    kind = pointed_types(kernel, "nll_loss2d_forward_size_average_kernel")[0]
    unpack = unpacker(kernel, "QQ")

    def run(launch: Launch) -> None:
        out, total = unpack(launch.args)
        scalar(launch.memory, out, kind).div_(scalar(launch.memory, total, kind))

    return run


def _bind_backward(kernel: KernelInfo) -> Run:
    """(grad_input, grad, target, weights, total_weight, mean, classes, places, blocks, ignore)."""
    kind = pointed_types(kernel, "nll_loss2d_backward_kernel")[0]
    unpack = unpacker(kernel, "QQQQQ?nnnq")

    def run(launch: Launch) -> None:
        out, grad, target, weight, total, mean, *sizes, blocks, ignore = unpack(launch.args)
        (classes, places), memory = sizes, launch.memory
        samples = launch.grid[0] // blocks
        labels = memory.view(target, torch.int64, (samples, places), (places, 1))
        counts, chosen = targets(labels, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        shape, strides = (samples, classes, places), (classes * places, places, 1)
        values = weights * scale(memory, grad, total, kind, mean)
        put(memory.view(out, kind, shape, strides), chosen, values, counts)

    return run


def _bind_forward_each(kernel: KernelInfo) -> Run:
    """(count, input, target, output, weights, ignore), tensors as accessors: no reduction."""
    kind = dtype(template_arguments(kernel.demangled, "nll_loss2d_forward_no_reduce_kernel")[0])
    unpack, wide = unpacker(kernel, "qsssQq"), accessor(kernel, 1, 4)
    flat = accessor(kernel, 2, 3)

    def run(launch: Launch) -> None:
        _, source, target, out, weight, ignore = unpack(launch.args)
        memory = launch.memory
        values = accessed(memory, kind, wide, source)
        labels = accessed(memory, torch.int64, flat, target)
        classes = values.shape[1]
        counts, chosen = targets(labels, ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        picked = values.gather(1, chosen.unsqueeze(1))[:, 0]
        accessed(memory, kind, flat, out).copy_(torch.where(counts, -picked * weights, 0))

    return run


def _bind_backward_each(kernel: KernelInfo) -> Run:
    """(count, target, grad, grad_input, weights, ignore), tensors as accessors."""
    kind = dtype(template_arguments(kernel.demangled, "nll_loss2d_backward_no_reduce_kernel")[0])
    unpack, flat = unpacker(kernel, "qsssQq"), accessor(kernel, 1, 3)
    wide = accessor(kernel, 3, 4)

    def run(launch: Launch) -> None:
        _, target, grad, out, weight, ignore = unpack(launch.args)
        memory = launch.memory
        place = accessed(memory, kind, wide, out)
        classes = place.shape[1]
        counts, chosen = targets(accessed(memory, torch.int64, flat, target), ignore, classes)
        weights = chosen_weights(memory, weight, kind, classes, chosen, counts)
        put(place, chosen, -weights * accessed(memory, kind, flat, grad), counts)

    return run


FAMILY: Family = [
    (re.compile(rf"\bnll_loss2d_{name}<"), binder)
    for name, binder in (
        ("forward_kernel", _bind_forward),
        ("forward_size_average_kernel", _bind_average),
        ("forward_no_reduce_kernel", _bind_forward_each),
        ("backward_kernel", _bind_backward),
        ("backward_no_reduce_kernel", _bind_backward_each),
    )
]
