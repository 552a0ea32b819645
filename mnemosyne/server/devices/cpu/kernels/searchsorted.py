"""searchsorted and bucketize."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments


def _bind(kernel: KernelInfo) -> Run:
    """searchsorted_cuda_kernel.

    Arguments: out, values, boundaries, an order in which the boundaries ascend; sizes of the last
    dimensions of values and boundaries; number of values, whether to search from the right, whether
    all values share the boundaries.
    """
    kind, found_kind = template_arguments(kernel.demangled, "searchsorted_cuda_kernel")
    element, out = dtype(kind), dtype(found_kind)
    unpack = unpacker(kernel, "QQQQqqq??")

    def run(launch: Launch) -> None:
        target, source, bounds_at, order_at, row, size, count, right, shared = unpack(launch.args)
        rows = 1 if shared else count // row
        shape = (count,) if shared else (rows, row)
        limits = (size,) if shared else (rows, size)

        def view(at: int, kind: torch.dtype, sizes: tuple[int, ...]) -> torch.Tensor:
            return launch.memory.view(at, kind, sizes, (sizes[-1], 1)[-len(sizes) :])

        found = torch.searchsorted(
            view(bounds_at, element, limits),
            view(source, element, shape),
            right=right,
            sorter=view(order_at, torch.int64, limits) if order_at else None,
        )
        view(target, out, shape).copy_(found)

    return run


FAMILY: Family = [(re.compile(r"\bsearchsorted_cuda_kernel<"), _bind)]
