"""Nested tensors: sequences one behind the other, to and from a padded tensor.

A launch has a column of blocks for each sequence. Where the sequences start, and their sizes, lie
in device memory as 32-bit integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run
from .arguments import unpacker
from .names import dtype, lambda_numbers, template_arguments
from .structs import CODES, contiguous

Ints = Sequence[int]


def _same(sizes: Ints, padded: Ints) -> tuple[Ints, Ints]:
    return sizes, contiguous(padded[1:])


def _behind_heads(sizes: Ints, padded: Ints) -> tuple[Ints, Ints]:
    """A sequence of (row, heads x width) in a padded tensor of (batch, heads, row, width)."""
    _, heads, rows, width = padded
    return (sizes[0], heads, width), (width, rows * width, 1)


#: The kernels that take padding away: dimensions of a sequence and of the padded tensor, and how a
#: sequence lies in the padded tensor: its sizes and strides.
_REMOVING: dict[str, tuple[int, int, Callable[[Ints, Ints], tuple[Ints, Ints]]]] = {
    "remove_padding": (3, 4, _same),
    "remove_padding_2": (2, 3, _same),
    "remove_padding_transform0213_2": (2, 4, _behind_heads),
}


def _bind_remove(kernel: KernelInfo) -> Run:
    """(padded, out, starts, sizes of padded, sizes of the sequences, their dimensions, batch)."""
    found = re.search(r"\bremove_padding\w*", kernel.demangled)
    assert found is not None
    dims, padded_dims, place_in = _REMOVING[found[0]]
    element = dtype(template_arguments(kernel.demangled, found[0])[0])
    unpack = unpacker(kernel, "QQQQQxx")

    def run(launch: Launch) -> None:
        source, target, starts_at, padded_at, sizes_at = unpack(launch.args)
        memory, view = launch.memory, launch.memory.view
        padded = view(padded_at, torch.int32, (padded_dims,), (1,)).tolist()
        step = prod(padded[1:])
        found = _sequences(memory, starts_at, sizes_at, launch.grid[0], dims)
        for number, (start, sizes) in enumerate(found):
            shape, strides = place_in(sizes, padded)
            sequence = view(source + number * step * element.itemsize, element, shape, strides)
            place = target + start * element.itemsize
            view(place, element, shape, contiguous(shape)).copy_(sequence)

    return run


def _bind_add(kernel: KernelInfo) -> Run:
    """add_padding_1, _2, _3: sequences of so many dimensions become a padded tensor.

    Arguments: sequences, out, what pads, starts, sizes, dimensions of a sequence, sizes of out
    behind the first, number of sequences. There may be more blocks than sequences.
    """
    found = re.search(r"\badd_padding_(\d)<", kernel.demangled)
    assert found is not None
    dims, element = int(found[1]), dtype(template_arguments(kernel.demangled, found[0][:-1])[0])
    unpack = unpacker(kernel, f"QQ{CODES[element]}QQx{'i' * dims}i")

    def run(launch: Launch) -> None:
        source, target, padding, starts_at, sizes_at, *inner, count = unpack(launch.args)
        memory, shape = launch.memory, (launch.grid[0], *inner)
        out = memory.view(target, element, shape, contiguous(shape)).fill_(padding)
        found = _sequences(memory, starts_at, sizes_at, min(count, launch.grid[0]), dims)
        for place, (start, sizes) in zip(out, found, strict=False):
            kept = [min(pair) for pair in zip(sizes, inner, strict=True)]
            at = source + start * element.itemsize
            sequence = memory.view(at, element, kept, contiguous(sizes))
            place[tuple(slice(size) for size in kept)] = sequence

    return run


def _sequences(
    memory: Memory, starts_at: int, sizes_at: int, count: int, dims: int
) -> Iterator[tuple[int, list[int]]]:
    """Of each sequence, where it starts (in elements) and its sizes."""
    starts = memory.view(starts_at, torch.int32, (count,), (1,)).tolist()
    sizes = memory.view(sizes_at, torch.int32, (count, dims), (dims, 1)).tolist()
    return zip(starts, sizes, strict=True)


#: By the lambda's number.
_COMPUTE: dict[int, Callable[..., Tensor]] = {1: torch.add, 2: torch.mul}


def _bind_dense(kernel: KernelInfo) -> Run:
    """op_dense_esuhm: all rows of a sequence and one dense row, added or multiplied.

    Arguments: sequences, dense rows, out, size of a row, where sequences start and the last one
    ends, the functor.
    """
    kind, functor = template_arguments(kernel.demangled, "op_dense_esuhm")
    element = dtype(kind)
    compute = _COMPUTE[lambda_numbers(functor)[-1]]
    unpack = unpacker(kernel, "QQQqQx")

    def run(launch: Launch) -> None:
        source, dense_at, target, size, starts_at = unpack(launch.args)
        count, view = launch.grid[0], launch.memory.view
        starts = view(starts_at, torch.int64, (count + 1,), (1,)).tolist()
        dense = view(dense_at, element, (count, size), (size, 1))
        for row, start, end in zip(dense, starts, starts[1:], strict=False):
            shape, strides = ((end - start) // max(size, 1), size), (size, 1)
            sequence = view(source + start * element.itemsize, element, shape, strides)
            out = view(target + start * element.itemsize, element, shape, strides)
            compute(sequence, row, out=out)

    return run


FAMILY: Family = [
    (re.compile(r"\bremove_padding(_2|_transform0213_2)?<"), _bind_remove),
    (re.compile(r"\badd_padding_[123]<"), _bind_add),
    (re.compile(r"\bop_dense_esuhm<"), _bind_dense),
]
