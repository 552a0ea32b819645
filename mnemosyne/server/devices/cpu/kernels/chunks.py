"""Sharding many tensors at once: _chunk_cat, which joins chunks, and split_with_sizes_copy.

Both launch columns of blocks, and a list in device memory says which tensor each column is for.
All their sizes and strides are in bytes; their lists are of 64-bit integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments


def _rows(launch: Launch, columns_at: int, *lists_at: int) -> Iterator[tuple[int, ...]]:
    """For each tensor that has a column of blocks, its entries of the lists."""
    view = launch.memory.view
    numbers = sorted(set(view(columns_at, torch.int64, (launch.grid[0],), (1,)).tolist()))
    count = numbers[-1] + 1
    lists = [view(at, torch.int64, (count,), (1,))[numbers].tolist() for at in lists_at]
    return zip(*lists, strict=True)


@dataclass(frozen=True, slots=True)
class _Target:
    address: int
    slices: int
    slice_bytes: int
    chunks: int
    chunk_bytes: int


def _bind_chunk_cat(kernel: KernelInfo) -> Run:
    """chunk_cat_cuda_kernel: a slice for each grid.z, a chunk for each grid.y.

    Arguments: tensors, out, the columns' tensors; by tensor: where its part of a chunk begins, its
    first column, bytes of a slice, bytes in a chunk with padding, columns; bytes of a slice and of
    a chunk of out, how many times wider than the tensors' the elements of out are.
    """
    kinds = template_arguments(kernel.demangled, "chunk_cat_cuda_kernel")
    out, element = (dtype(kind) for kind in kinds)
    unpack = unpacker(kernel, "QQQQxQQxqqx")

    def run(launch: Launch) -> None:
        tensors, address, columns, starts, sizes, rooms, *steps = unpack(launch.args)
        slice_bytes, chunk_bytes = steps
        target = _Target(address, launch.grid[2], slice_bytes, launch.grid[1], chunk_bytes)
        for source, start, size, room in _rows(launch, columns, tensors, starts, sizes, rooms):
            _put_chunks(launch, (element, out), (source, size), (start, room), target)

    return run


def _put_chunks(
    launch: Launch, kinds: tuple[torch.dtype, torch.dtype], source: tuple[int, int],
    place: tuple[int, int], target: _Target,
) -> None:  # fmt: skip
    """One tensor's part of every chunk; what it does not fill is zero."""
    (element, out), (address, size), (start, room) = kinds, source, place
    view, slices, places = launch.memory.view, target.slices, room // out.itemsize
    strides = (target.slice_bytes // out.itemsize, 1)
    width, length = places * element.itemsize, size // element.itemsize
    for chunk in range(target.chunks):
        count = max(0, min(places, length - chunk * places))
        at = target.address + chunk * target.chunk_bytes + start
        part = view(at, out, (slices, places), strides)
        part[:, count:] = 0
        if count:
            given = view(address + chunk * width, element, (slices, count), (length, 1))
            part[:, :count] = given


def _bind_split(kernel: KernelInfo) -> Run:
    """split_with_sizes_copy_out_contiguous_no_cast_kernel.

    Arguments: by part: address of out, address in the tensor, bytes of a chunk; the columns' parts,
    their first columns, bytes from chunk to chunk of the tensor, number of chunks.
    """
    unpack = unpacker(kernel, "QQQQxqq")

    def run(launch: Launch) -> None:
        outs, sources, sizes, columns, step, chunks = unpack(launch.args)
        view = launch.memory.view
        for out, source, size in _rows(launch, columns, outs, sources, sizes):
            part = view(source, torch.uint8, (chunks, size), (step, 1))
            view(out, torch.uint8, (chunks, size), (size, 1)).copy_(part)

    return run


FAMILY: Family = [
    (re.compile(r"\bchunk_cat_cuda_kernel<"), _bind_chunk_cat),
    (re.compile(r"\bsplit_with_sizes_copy_out_contiguous_no_cast_kernel\b"), _bind_split),
]
