"""COO tensors: values of equal indices added up."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .embedding_sorted import add_parts
from .names import dtype, template_arguments


def _bind_coalesce(kernel: KernelInfo) -> Run:
    """coalesceValuesKernel: (runs' starts, order, values, sums, n, runs, row size).

    Truth values are not added but joined.
    """
    kind, wide = map(dtype, template_arguments(kernel.demangled, "coalesceValuesKernel"))
    wide = torch.uint8 if wide == torch.bool else wide
    unpack = unpacker(kernel, "QQQQqqq")

    def run(launch: Launch) -> None:
        starts_at, order_at, source, target, count, runs, size = unpack(launch.args)
        view = launch.memory.view
        starts = view(starts_at, torch.int64, (runs,), (1,))
        order = view(order_at, torch.int64, (count,), (1,))
        rows = view(source, kind, (count, size), (size, 1)).to(wide)[order]
        sums = add_parts(rows, starts)
        view(target, kind, sums.shape, (size, 1)).copy_(sums)

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bcoalesceValuesKernel<", _bind_coalesce),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
