"""The k greatest or least elements of rows.

How this works. The kernels for short rows do all at once. Those for long rows look for the k-th
value digit by digit, in many launches, before a last one collects the elements; here that last one
finds them itself, and the others do nothing. In long rows the elements beyond the k-th value come
first, then as many as needed that equal it, each in the order of their places, as on a GPU.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .sort import rows
from .structs import check_tensor_infos, read_tensor_info

_SHORT = 4096  # rows up to here are sorted


def _bind_gather(kernel: KernelInfo) -> Run:
    """gatherTopK.

    Arguments: in, row size, k, whether the greatest are wanted, rows, stride; values, their stride;
    indices, their stride; what the launches before have found.
    """
    kind, index, *_ = template_arguments(kernel.demangled, "gatherTopK")
    element, width = dtype(kind), dtype(index).itemsize
    unpack = unpacker(kernel, "snn?nnsnsn" + "s" * (len(kernel.params) - 10))
    source_at, values_at, indices_at = (
        check_tensor_infos(kernel, 1, width, first=n)[0] for n in (0, 6, 8)
    )

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        _, size, k, greatest, _, stride, _, step, _, index_step, *_ = unpack(args)
        source = rows(memory, read_tensor_info(args, source_at, width), element, size, stride)
        values, places = _top(source.reshape(-1, size), k, greatest)
        found = rows(memory, read_tensor_info(args, values_at, width), element, k, step)
        found.copy_(values.view(found.shape))
        info = read_tensor_info(args, indices_at, width)
        where = rows(memory, info, torch.int64, k, index_step)
        where.copy_(places.view(where.shape))

    return run


def _top(table: Tensor, k: int, greatest: bool) -> tuple[Tensor, Tensor]:
    """The values and places of the k first of each row."""
    if table.shape[1] <= _SHORT or k == 0:
        ordered = torch.sort(table, dim=1, descending=greatest, stable=True)
        return ordered.values[:, :k], ordered.indices[:, :k]
    places = torch.stack([_top_of_row(row, k, greatest) for row in table.unbind()])
    return table.gather(1, places), places


def _top_of_row(row: Tensor, k: int, greatest: bool) -> Tensor:
    """The places; NaN is above all numbers."""
    last = torch.topk(row, k, largest=greatest).values[-1]
    if row.is_floating_point() and bool(last.isnan()):
        same = row.isnan()
        beyond = torch.zeros_like(same) if greatest else ~same
    elif greatest:
        same = row == last
        beyond = ~(row <= last)
    else:
        same, beyond = row == last, row < last
    first = beyond.nonzero().flatten()
    return torch.cat((first, same.nonzero().flatten()[: k - len(first)]))


def _bind_nothing(kernel: KernelInfo) -> Run:
    """Looks for the k-th value."""

    def run(launch: Launch) -> None:
        return None

    return run


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"^void [\w:() ]*gatherTopK<", _bind_gather),
        (r"\bmbtopk::(fill|compute\w+)[<(]", _bind_nothing),
        (r"\bDeviceScanByKeyKernel<.*\bmbtopk::BlockIdxToKey\b", _bind_nothing),
    )
]
