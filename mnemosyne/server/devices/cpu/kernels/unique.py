"""What torch.unique does around cub's algorithms; truth values it only counts."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import template_arguments
from .runs import reader

_PAIR = 16  # a transform iterator: a pointer, and a functor without members
_WORD = struct.Struct("<Q")


def _bind_difference(kernel: KernelInfo) -> Run:
    """adjacent_difference_kernel: (n, keys, out): 1 where a run begins, but 0 at the first."""
    iterator = template_arguments(kernel.demangled, "adjacent_difference_kernel")[0]
    read = reader(kernel, iterator, 1)
    unpack = unpacker(kernel, "qsQ")

    def run(launch: Launch) -> None:
        count, source, target = unpack(launch.args)
        keys = read(launch.memory, source, count)
        changes = launch.memory.view(target, torch.int32, (count,), (1,))
        changes[:1] = 0
        changes[1:] = keys[1:] != keys[:-1]

    return run


def _bind_scatter(kernel: KernelInfo) -> Run:
    """scatter_kernel: (n, values, places, out)."""
    unpack = unpacker(kernel, "qQQQ")

    def run(launch: Launch) -> None:
        count, source, places, target = unpack(launch.args)
        views = (launch.memory.view(at, torch.int64, (count,), (1,)) for at in (source, places))
        values, which = views
        size = int(which.max()) + 1
        launch.memory.view(target, torch.int64, (size,), (1,)).index_copy_(0, which, values)

    return run


def _bind_true(kernel: KernelInfo) -> Run:
    """DeviceReduceSingleTileKernel: (bytes, out, n, operator, 0, ...): how many are not zero."""
    return _true(kernel, "sQnxix")


def _bind_true_in_blocks(kernel: KernelInfo) -> Run:
    """DeviceReduceKernel: (bytes, sums of blocks, n, shares, ...); the first block counts all."""
    return _true(kernel, "sQnxxx")


def _true(kernel: KernelInfo, codes: str) -> Run:
    if kernel.params[0][1] != _PAIR:
        raise UnsupportedKernel("bytes through another iterator")
    unpack = unpacker(kernel, codes)

    def run(launch: Launch) -> None:
        source, target, count, *initial = unpack(launch.args)
        view = launch.memory.view
        flags = view(_WORD.unpack_from(source)[0], torch.uint8, (count,), (1,))
        sums = view(target, torch.int32, (launch.grid[0],), (1,))
        sums.zero_()[0] = flags.count_nonzero() + sum(initial)

    return run


def _bind_bool_output(kernel: KernelInfo) -> Run:
    """unique_bool_write_output: (n, number of true elements, unique, counts)."""
    unpack = unpacker(kernel, "iQQQ")

    def run(launch: Launch) -> None:
        count, true_at, target, counts = unpack(launch.args)
        view = launch.memory.view
        true = int(view(true_at, torch.int32, (), ()))
        found = [(value, n) for value, n in ((False, count - true), (True, true)) if n]
        for at, kind, column in ((target, torch.bool, 0), (counts, torch.int64, 1)):
            values = torch.tensor([pair[column] for pair in found], dtype=kind)
            view(at, kind, values.shape, (1,)).copy_(values)

    return run


def _bind_bool_inverse(kernel: KernelInfo) -> Run:
    """unique_bool_write_inverse_indices: (n, number of true elements, elements, out)."""
    unpack = unpacker(kernel, "iQQQ")

    def run(launch: Launch) -> None:
        count, true_at, source, target = unpack(launch.args)
        view = launch.memory.view
        some_false = int(view(true_at, torch.int32, (), ())) < count
        flags = view(source, torch.uint8, (count,), (1,)) != 0
        view(target, torch.int64, (count,), (1,)).copy_(flags & some_false)

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\binternal::.*\badjacent_difference_kernel<", _bind_difference),
    (r"\binternal::.*\bscatter_kernel\(long, ", _bind_scatter),
    (r"\bDeviceReduceSingleTileKernel<.*\bMapNumberOfTrueValues\b", _bind_true),
    (r"\bDeviceReduceKernel<.*\bMapNumberOfTrueValues\b", _bind_true_in_blocks),
    (r"\bunique_bool_write_output\(", _bind_bool_output),
    (r"\bunique_bool_write_inverse_indices\(", _bind_bool_inverse),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
