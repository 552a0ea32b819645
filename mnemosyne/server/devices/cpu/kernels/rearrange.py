"""What else moves elements or checks them: roll, repeat_interleave, assertions."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import failed_assertion, raw_type


def _bind_roll(kernel: KernelInfo) -> Run:
    """roll_cuda_kernel: (in, out, elements, dim, start, size, stride, dims), all contiguous."""
    element = raw_type(template_arguments(kernel.demangled, "roll_cuda_kernel")[0])
    unpack = unpacker(kernel, "QQqqqqqq")

    def run(launch: Launch) -> None:
        source, target, count, _, start, size, stride, _ = unpack(launch.args)
        stride = stride if size > 1 else 1  # of a dimension of size 1 it may be anything
        if size == 1:  # its stride may be anything
            stride = 1
        sizes = (count // (size * stride), size, stride)
        strides = (size * stride, stride, 1)
        operand = launch.memory.view(source, element, sizes, strides)
        place = launch.memory.view(target, element, sizes, strides)
        place[:, : size - start] = operand[:, start:]
        place[:, size - start :] = operand[:, :start]

    return run


def _bind_repeat(kernel: KernelInfo) -> Run:
    """compute_cuda_kernel of repeat_interleave: (repeats, their running sum, out, size, total)."""
    element = dtype(template_arguments(kernel.demangled, "compute_cuda_kernel")[0])
    unpack = unpacker(kernel, "QQQqq")

    def run(launch: Launch) -> None:
        counts, sums, target, size, total = unpack(launch.args)
        view = launch.memory.view
        repeats = view(counts, element, (size,), (1,))
        if size and (int(view(sums, torch.int64, (size,), (1,))[-1]) != total or repeats.min() < 0):
            raise failed_assertion("repeats that are negative or do not add up to the output size")
        view(target, element, (total,), (1,)).copy_(torch.repeat_interleave(repeats))

    return run


def _bind_assert(kernel: KernelInfo) -> Run:
    """_assert_async_cuda_kernel: (value, message of 256 bytes)."""
    kind = (
        template_arguments(kernel.demangled, "_assert_async_cuda_kernel")[0]
        if "_assert_async_cuda_kernel<" in kernel.demangled
        else re.findall(r"\((.*?) const\*", kernel.demangled)[-1]
    )
    element = torch.uint8 if kind == "bool" else dtype(kind)
    unpack = unpacker(kernel, "Qs")

    def run(launch: Launch) -> None:
        value, message = unpack(launch.args)
        if not launch.memory.view(value, element, (), ()).ne(0):
            raise failed_assertion(message.partition(b"\0")[0].decode(errors="replace"))

    return run


def _bind_masked_scatter_check(kernel: KernelInfo) -> Run:
    """masked_scatter_size_check: (the mask's exclusive sum, the mask, number of elements)."""
    unpack = unpacker(kernel, "QQq")

    def run(launch: Launch) -> None:
        sums, mask, count = unpack(launch.args)
        view = launch.memory.view
        last = int(view(sums, torch.int64, (), ())) + int(view(mask, torch.bool, (), ()))
        if last > count:
            raise failed_assertion(f"a mask of {last} elements and a source of {count}")

    return run


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\broll_cuda_kernel<", _bind_roll),
        (r"\bcompute_cuda_kernel<", _bind_repeat),
        (r"\b_assert_async_cuda_kernel\b", _bind_assert),
        (r"\bmasked_scatter_size_check\b", _bind_masked_scatter_check),
    )
]
