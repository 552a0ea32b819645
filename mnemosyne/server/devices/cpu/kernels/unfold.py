"""The gradient of Tensor.unfold: what overlapping windows are given is added up."""

from __future__ import annotations

import re
import struct

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import opmath
from .names import dtype, template_arguments
from .structs import OffsetCalculator

_CALCULATOR = OffsetCalculator(3)
# Out, windows, places in the unfolded dimension; size and step of windows; number of windows, their
# stride, and the stride within a window.
_CAPTURED = struct.Struct("<QQQqqqqq")


def _bind(kernel: KernelInfo) -> Run:
    """A walk over out, windows (which do not move with the unfolded dimension) and places."""
    kind = template_arguments(kernel.demangled, "_unfold_backward_internal_kernel")[0]
    element = dtype(kind)
    captured = -(-_CALCULATOR.size // 8) * 8
    if [size for _, size in kernel.params] != [4, captured + _CAPTURED.size]:
        raise UnsupportedKernel(f"a closure of another size: {kernel.params}")
    start = kernel.params[1][0]

    def run(launch: Launch) -> None:
        args, view, item = launch.args, launch.memory.view, element.itemsize
        out, windows, places, size, step, count, stride, inner = _CAPTURED.unpack_from(
            args, start + captured
        )
        sizes, (out_steps, window_steps, place_steps) = _CALCULATOR.read(args, start)
        moved = [d for d, s in enumerate(place_steps) if s and sizes[d] != 1]
        if len(moved) > 1 or any(window_steps[d] for d in moved):
            raise UnsupportedKernel("an unfolded dimension in several")
        rest = [d for d in range(len(sizes)) if d not in moved]
        shape = tuple(sizes[d] for d in rest)
        length, along = (sizes[moved[0]], out_steps[moved[0]]) if moved else (1, item)
        (first,) = view(places, torch.int64, (1,), (1,)).tolist()
        if moved and place_steps[moved[0]] != 8:
            raise UnsupportedKernel("places that are not one after the other")
        target = view(
            out, element, (*shape, length), (*(out_steps[d] // item for d in rest), along // item)
        )
        given = view(
            windows,
            element,
            (*shape, count, size),
            (*(window_steps[d] // item for d in rest), stride, inner),
        )
        where = (torch.arange(count)[:, None] * step + torch.arange(size) - first).flatten()
        kept = (where >= 0) & (where < length)
        added = given.flatten(-2)[..., kept].to(opmath(element))
        sums = target.to(opmath(element)).index_add(-1, where[kept], added)
        target.copy_(sums)

    return run


FAMILY: Family = [(re.compile(r"\b_unfold_backward_elementwise_kernel<"), _bind)]
