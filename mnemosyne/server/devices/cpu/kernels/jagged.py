"""Jagged tensors, whose rows of all sequences lie one behind the other, to and from padded ones.

How this works. A jagged tensor has up to five dimensions of different lengths; for each one a list
of offsets says where the parts begin in the next dimension, and for the last one among the rows.
The kernels apply a function of a row and a padded row, but PyTorch has only two of them: the one
that makes a padded tensor gives the row, the one that makes a jagged tensor gives the padded row.
"""

from __future__ import annotations

import re
import struct
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .axes import Accessor
from .names import dtype, template_arguments
from .raw import asserting
from .structs import scalar

_LIST, _ROWS, _PADDED = Accessor(1, 4), Accessor(2, 4), Accessor(3, 4)
_STACK = struct.Struct("<5qQ")  # StackArray: up to five values, and how many


class _Jagged(NamedTuple):
    """How a jagged tensor is laid out."""

    offsets: tuple[int, ...]  # addresses
    lengths: tuple[int, ...]  # of the padded dimensions
    kind: torch.dtype  # of the offsets


def _stack(data: bytes, count: int) -> tuple[int, ...]:
    return _STACK.unpack(data)[:count]


def _places(memory: Memory, layout: _Jagged, padded: Tensor) -> tuple[Tensor, Tensor]:
    """Of each padded row, the row; and whether there is one: (outer, product of lengths)."""
    outer, inner, _ = padded.shape
    if prod(layout.lengths) != inner:
        raise UnsupportedKernel(f"{inner} padded rows of lengths {layout.lengths}")
    place = torch.arange(outer)[:, None]
    there = torch.ones_like(place, dtype=torch.bool)
    size = outer
    for address, length in zip(layout.offsets, layout.lengths, strict=True):
        offsets = memory.view(address, layout.kind, (size + 1,), (1,)).long()
        position = torch.arange(length)
        begin, end = offsets[place][..., None], offsets[place + 1][..., None]
        there = (there[..., None] & (position < end - begin)).flatten(1)
        place = (begin + position).flatten(1).masked_fill(~there, 0)
        size = int(offsets[-1])
    return place, there


def _bind_to_padded(kernel: KernelInfo) -> Run:
    """jagged_dense_elementwise_dense_output_kernel_.

    Arguments: rows, stack of offsets, padded operand, padded result, stack of lengths, functor,
    what pads.
    """
    name = "jagged_dense_elementwise_dense_output_kernel_"
    count, index, kind, functor = template_arguments(kernel.demangled, name)
    _check(functor, "_fbgemm_jagged_to_padded_dense_forward")
    unpack, element, dims = unpacker(kernel, "ssssssx"), dtype(kind), int(count)
    rows_at, _, _, out_at, _, _, padding_at = (offset for offset, _ in kernel.params)

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        _, offsets, _, _, lengths, _ = unpack(args)
        layout = _Jagged(_stack(offsets, dims), _stack(lengths, dims), dtype(index))
        out = _PADDED.view(args, out_at, memory, element)
        place, there = _places(memory, layout, out)
        out.fill_(scalar(args, padding_at, element))
        out[there] = _ROWS.view(args, rows_at, memory, element)[place[there]]

    return asserting(run)


def _bind_to_jagged(kernel: KernelInfo) -> Run:
    """jagged_dense_dense_elementwise_jagged_output_kernel_: a row without a padded one is zero.

    Arguments: rows, stacks of offsets and of their numbers, padded operand, twice, rows of the
    result, stack of lengths, functor.
    """
    name = "jagged_dense_dense_elementwise_jagged_output_kernel_"
    count, index, kind, functor = template_arguments(kernel.demangled, name)
    _check(functor, "_fbgemm_dense_to_jagged_forward")
    unpack, element, dims = unpacker(kernel, "ssxsssss"), dtype(kind), int(count)
    padded_at, out_at = kernel.params[3][0], kernel.params[5][0]

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        _, offsets, _, _, _, lengths, _ = unpack(args)
        layout = _Jagged(_stack(offsets, dims), _stack(lengths, dims), dtype(index))
        padded = _PADDED.view(args, padded_at, memory, element)
        out = _ROWS.view(args, out_at, memory, element).zero_()
        place, there = _places(memory, layout, padded)
        there &= place < len(out)
        out[place[there]] = padded[there]

    return asserting(run)


def _bind_search(kernel: KernelInfo) -> Run:
    """..._opt_search_kernel_: (offsets, sequence of each row, place in it, rows, sequences)."""
    name = "jagged_dense_dense_elementwise_jagged_output_opt_search_kernel_"
    index = dtype(template_arguments(kernel.demangled, name)[0])
    unpack = unpacker(kernel, "sssii")
    starts = [offset for offset, _ in kernel.params[:3]]

    def run(launch: Launch) -> None:
        *_, rows, count = unpack(launch.args)
        offsets, sequences, columns = (
            _LIST.view(launch.args, at, launch.memory, kind)
            for at, kind in zip(starts, (index, torch.int32, torch.int32), strict=True)
        )
        row = torch.arange(rows, dtype=index)
        found = torch.searchsorted(offsets[1:count].contiguous(), row, right=True)
        sequences[:rows] = found
        columns[:rows] = row - offsets[found]

    return asserting(run)


def _bind_gather(kernel: KernelInfo) -> Run:
    """..._opt_gather_kernel_, of fp16: a row without a padded one is zero.

    Arguments: rows of the result, rows, padded operand, twice, sequence of each row, place in it,
    number of rows, their size, functor.
    """
    name = "jagged_dense_dense_elementwise_jagged_output_opt_gather_kernel_"
    _check(template_arguments(kernel.demangled, name)[1], "_fbgemm_dense_to_jagged_forward")
    unpack = unpacker(kernel, "ssssssiis")
    out_at, _, padded_at, _, sequences_at, columns_at, *_ = (at for at, _ in kernel.params)

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        *_, rows, _, _ = unpack(args)
        out = _ROWS.view(args, out_at, memory, torch.float16)
        padded = _PADDED.view(args, padded_at, memory, torch.float16)
        sequence = _LIST.view(args, sequences_at, memory, torch.int32)[:rows].long()
        column = _LIST.view(args, columns_at, memory, torch.int32)[:rows].long()
        inside = (sequence < padded.shape[0]) & (column < padded.shape[1])
        inside &= (sequence >= 0) & (column >= 0)
        out[:rows] = 0
        out[:rows][inside] = padded[sequence[inside], column[inside]]

    return run


def _check(functor: str, function: str) -> None:
    if function not in functor:
        raise UnsupportedKernel("a function of jagged tensors that is not implemented")


FAMILY: Family = [
    (re.compile(r"\bjagged_dense_elementwise_dense_output_kernel_<"), _bind_to_padded),
    (re.compile(r"\bjagged_dense_dense_elementwise_jagged_output_kernel_<"), _bind_to_jagged),
    (re.compile(r"\bjagged_dense_dense_elementwise_jagged_output_opt_search_"), _bind_search),
    (re.compile(r"\bjagged_dense_dense_elementwise_jagged_output_opt_gather_"), _bind_gather),
]
