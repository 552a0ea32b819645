"""The gradient of an embedding's weights for many indices: segments of sorted indices are summed.

How this works. Equal indices, once sorted, make a segment. Segments are cut into parts of ten rows
that are summed for themselves; then each row of the weights gets the sum of its parts. How many
segments and parts there are is known on the device only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run
from .arguments import opmath, unpacker
from .names import dtype, template_arguments

_PART = 10  # rows of a part


class Vectors:
    """Reads vectors of a kernel's index type, and counts."""

    def __init__(self, index: torch.dtype) -> None:
        self.index = index

    def __call__(self, memory: Memory, at: int, count: int) -> Tensor:
        return memory.view(at, self.index, (count,), (1,))

    def count(self, memory: Memory, at: int) -> int:
        return int(memory.view(at, torch.int64, (), ()))


def _bounds(starts: Tensor, end: int) -> Tensor:
    """Sizes of pieces that follow each other, the last one up to the end."""
    return torch.diff(starts, append=starts.new_tensor([end]))


def _bind_parts_per_segment(kernel: KernelInfo) -> Run:
    """(out, segments' starts, their number, rows)."""
    vector = Vectors(_only_type(kernel, "krn_partials_per_segment"))
    unpack = unpacker(kernel, "QQQq")

    def run(launch: Launch) -> None:
        target, starts_at, count_at, rows = unpack(launch.args)
        memory = launch.memory
        count = vector.count(memory, count_at)
        sizes = _bounds(vector(memory, starts_at, count), rows)
        vector(memory, target, count).copy_((sizes + _PART - 1) // _PART)

    return run


def _bind_number_of_parts(kernel: KernelInfo) -> Run:
    """(parts per segment, their exclusive sums, number of segments, out)."""
    vector = Vectors(_only_type(kernel, "compute_num_of_partial_segments"))
    unpack = unpacker(kernel, "QQQQ")

    def run(launch: Launch) -> None:
        parts, firsts, count_at, target = unpack(launch.args)
        memory = launch.memory
        count = vector.count(memory, count_at)
        last = vector(memory, parts, count)[-1] + vector(memory, firsts, count)[-1]
        memory.view(target, torch.int64, (), ()).copy_(last)

    return run


def _bind_part_starts(kernel: KernelInfo) -> Run:
    """(out, parts per segment, their exclusive sums, segments' starts, number of segments)."""
    vector = Vectors(_only_type(kernel, "krn_partial_segment_offset"))
    unpack = unpacker(kernel, "QQQQQ")

    def run(launch: Launch) -> None:
        target, parts_at, firsts_at, starts_at, count_at = unpack(launch.args)
        memory = launch.memory
        count = vector.count(memory, count_at)
        parts, firsts = vector(memory, parts_at, count), vector(memory, firsts_at, count)
        segment = torch.repeat_interleave(parts)
        number = torch.arange(len(segment)) - firsts[segment]
        starts = vector(memory, starts_at, count)[segment] + number * _PART
        vector(memory, target, len(starts)).copy_(starts)

    return run


def _bind_part_segments(kernel: KernelInfo) -> Run:
    """(out, parts per segment, their exclusive sums, number of segments)."""
    vector = Vectors(_only_type(kernel, "krn_partial_to_segment_idx"))
    unpack = unpacker(kernel, "QQQQ")

    def run(launch: Launch) -> None:
        target, parts_at, _, count_at = unpack(launch.args)
        memory = launch.memory
        count = vector.count(memory, count_at)
        segment = torch.repeat_interleave(vector(memory, parts_at, count))
        vector(memory, target, len(segment)).copy_(segment)

    return run


def _only_type(kernel: KernelInfo, name: str) -> torch.dtype:
    return dtype(template_arguments(kernel.demangled, name)[0])


class _Rows:
    """Rows of the gradient in sorted order, each over its index's frequency if that is given."""

    def __init__(self, kind: torch.dtype, vector: Vectors) -> None:
        self._kind, self._vector = kind, vector

    def read(
        self, memory: Memory, order_at: int, grad_at: int, counts_at: int, rows: int, size: int
    ) -> Tensor:
        order = self._vector(memory, order_at, rows).long()
        last = int(order.max()) + 1
        grad = memory.view(grad_at, self._kind, (last, size), (size, 1))
        values = grad.index_select(0, order).to(opmath(self._kind))
        if counts_at:
            values /= self._vector(memory, counts_at, rows)[:, None]
        return values


def add_parts(rows: Tensor, starts: Tensor) -> Tensor:
    """The sums of rows that follow each other, a part from each start to the next."""
    part = torch.repeat_interleave(_bounds(starts, len(rows)))
    return rows.new_zeros((len(starts), rows.shape[1])).index_add_(0, part, rows)


def _bind_sums(kernel: KernelInfo) -> Run:
    """compute_grad_weight: (order, gradient, counts, rows, row size, starts, parts, out)."""
    kind, index = template_arguments(kernel.demangled, "compute_grad_weight")
    vector = Vectors(dtype(index))
    gradient, accumulated = _Rows(dtype(kind), vector), opmath(dtype(kind))
    unpack = unpacker(kernel, "QQQqqQQQx")

    def run(launch: Launch) -> None:
        order, grad, counts, rows, size, starts_at, number_at, target = unpack(launch.args)
        memory = launch.memory
        starts = vector(memory, starts_at, vector.count(memory, number_at))
        sums = add_parts(gradient.read(memory, order, grad, counts, rows, size), starts)
        memory.view(target, accumulated, sums.shape, (size, 1)).copy_(sums)

    return run


def _bind_scatter(kernel: KernelInfo) -> Run:
    """sum_and_scatter: parts added up to rows of the weights, except the padding's.

    Arguments: sorted indices, weights, row size, segments' starts, their number, sums of parts, the
    segments' first parts, the number of parts, the padding's index.
    """
    kind, index = template_arguments(kernel.demangled, "sum_and_scatter")
    element, vector = dtype(kind), Vectors(dtype(index))
    unpack = unpacker(kernel, "QQqQQQQQqx")

    def run(launch: Launch) -> None:
        (indices_at, weights, size, starts_at, count_at, sums_at, firsts_at, parts_at, padding) = (
            unpack(launch.args)
        )
        memory = launch.memory
        count, parts = vector.count(memory, count_at), vector.count(memory, parts_at)
        segment = torch.repeat_interleave(_bounds(vector(memory, firsts_at, count), parts))
        sums = memory.view(sums_at, opmath(element), (parts, size), (size, 1))
        totals = sums.new_zeros((count, size)).index_add_(0, segment, sums)
        starts = vector(memory, starts_at, count).long()
        rows = vector(memory, indices_at, int(starts[-1]) + 1)[starts].long()
        kept = rows != padding
        shape = (int(rows[-1]) + 1, size)
        table = memory.view(weights, element, shape, (size, 1))
        table.index_copy_(0, rows[kept], totals[kept].to(element))

    return run


def _bind_accumulate(kernel: KernelInfo) -> Run:
    """compute_grad_weight_atomic_accumulate: both at once; it adds to the weights.

    Arguments: order, gradient, counts, rows, row size, parts' starts, their number, sorted indices,
    the parts' segments, segments' starts, weights, the padding's index.
    """
    name = "compute_grad_weight_atomic_accumulate"
    kind, out, index = template_arguments(kernel.demangled, name)
    element, vector = dtype(out), Vectors(dtype(index))
    gradient = _Rows(dtype(kind), vector)
    unpack = unpacker(kernel, "QQQqqQQQQQQqx")

    def run(launch: Launch) -> None:
        (
            order,
            grad,
            counts,
            rows,
            size,
            starts_at,
            number_at,
            indices_at,
            _,
            _,
            weights,
            padding,
        ) = unpack(launch.args)
        memory = launch.memory
        starts = vector(memory, starts_at, vector.count(memory, number_at))
        sums = add_parts(gradient.read(memory, order, grad, counts, rows, size), starts)
        indices = vector(memory, indices_at, rows)[starts.long()].long()
        kept = indices != padding
        table = memory.view(weights, element, (int(indices[-1]) + 1, size), (size, 1))
        table.index_add_(0, indices[kept], sums[kept].to(element))

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    ("krn_partials_per_segment", _bind_parts_per_segment),
    ("compute_num_of_partial_segments", _bind_number_of_parts),
    ("krn_partial_segment_offset", _bind_part_starts),
    ("krn_partial_to_segment_idx", _bind_part_segments),
    ("compute_grad_weight", _bind_sums),
    ("sum_and_scatter", _bind_scatter),
    ("compute_grad_weight_atomic_accumulate", _bind_accumulate),
)
FAMILY: Family = [(re.compile(rf"\b{name}<"), binder) for name, binder in _BINDERS]
