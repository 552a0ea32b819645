"""nonzero_static: places of nonzero elements, as many as are asked for.

How this works. The first kernel counts by blocks, the second adds the counts up; the third needs no
counts here. Nobody else looks at single counts, so the first block's is that of all.
"""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments


def _bind_counts(kernel: KernelInfo) -> Run:
    """calc_block_sums: (elements, counts of blocks, n, rounds)."""
    *_, nonzero, kind, counter = template_arguments(kernel.demangled, "calc_block_sums")
    if nonzero != "true":
        raise UnsupportedKernel("sums of blocks")
    element, count_type = dtype(kind), dtype(counter)
    unpack = unpacker(kernel, "QQqi")

    def run(launch: Launch) -> None:
        source, target, count, _ = unpack(launch.args)
        view = launch.memory.view
        counts = view(target, count_type, (launch.grid[0],), (1,)).zero_()
        counts[0] = view(source, element, (count,), (1,)).count_nonzero()

    return run


def _bind_add_up(kernel: KernelInfo) -> Run:
    """compute_agg: (counts, running sums, number of blocks)."""
    unpack = unpacker(kernel, "QQI")

    def run(launch: Launch) -> None:
        source, target, count = unpack(launch.args)
        view = launch.memory.view
        sums = view(source, torch.int32, (count,), (1,)).long().cumsum(0)
        view(target, torch.int64, (count,), (1,)).copy_(sums)

    return run


def _bind_places(kernel: KernelInfo) -> Run:
    """flag_kernel: (elements, places, running sums, n, number of places, rounds)."""
    element = dtype(template_arguments(kernel.demangled, "flag_kernel")[-1])
    unpack = unpacker(kernel, "QQQqqi")

    def run(launch: Launch) -> None:
        source, target, _, count, wanted, _ = unpack(launch.args)
        view = launch.memory.view
        places = view(source, element, (count,), (1,)).nonzero().flatten()[:wanted]
        view(target, torch.int64, places.shape, (1,)).copy_(places)

    return run


def _bind_fill(kernel: KernelInfo) -> Run:
    """write_fill_value: (places, how many are real, value of the others, number of places)."""
    unpack = unpacker(kernel, "QQqq")

    def run(launch: Launch) -> None:
        target, real_at, value, count = unpack(launch.args)
        view = launch.memory.view
        real = int(view(real_at, torch.int64, (), ()))
        view(target, torch.int64, (count,), (1,))[real:] = value

    return run


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bcalc_block_sums<", _bind_counts),
        (r"\bcompute_agg<", _bind_add_up),
        (r"\bflag_kernel<", _bind_places),
        (r"\bwrite_fill_value\(", _bind_fill),
    )
]
