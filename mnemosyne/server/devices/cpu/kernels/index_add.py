"""Slices added at indices: index_add and index_reduce, and index_put that accumulates."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .gather import value_at, view_first
from .names import dtype, template_arguments
from .raw import asserting
from .structs import check_tensor_infos, read_tensor_info

Tensor = torch.Tensor
Put = Callable[[Tensor, Tensor, Tensor, Tensor], object]


def _bind_function(kernel: KernelInfo) -> Run:
    """indexFuncSmallIndex, ...LargeIndex.

    Arguments: three TensorInfos of destination, source and index; two dimensions, sizes, the
    destination's size and number of elements, the operation (empty), the factor of the source.
    """
    name = "indexFuncSmallIndex" if "SmallIndex<" in kernel.demangled else "indexFuncLargeIndex"
    kind, index, offset_type, *_, operation = template_arguments(kernel.demangled, name)
    element, index_type = dtype(kind), dtype(index)
    width = dtype(offset_type).itemsize
    offsets = check_tensor_infos(kernel, 3, width)
    unpack = unpacker(kernel, "sssii" + "n" * (len(kernel.params) - 9) + "qqxs")
    put = _OPERATIONS.get(operation.rpartition("::")[2])
    factor_at = kernel.params[-1][0]
    if put is None or kernel.params[-1][1] != element.itemsize:
        raise UnsupportedKernel(f"index_add with {operation}")

    def run(launch: Launch) -> None:
        _, _, _, target_dim, source_dim, *_, rows, _, _ = unpack(launch.args)
        args, memory = launch.args, launch.memory
        target, source, indices = (read_tensor_info(args, at, width) for at in offsets)
        which = view_first(memory, indices, index_type, 0, indices.sizes[0])
        values = view_first(memory, source, element, source_dim, len(which))
        place = view_first(memory, target, element, target_dim, rows)
        shape = (len(which), *place.shape[1:])
        put(place, which, values.reshape(shape), value_at(args, factor_at, element))

    return asserting(run)


def _add(target: Tensor, which: Tensor, values: Tensor, factor: Tensor) -> object:
    return target.index_add_(0, which, values, alpha=factor.item())


def _reduce(how: str) -> Put:
    def put(target: Tensor, which: Tensor, values: Tensor, factor: Tensor) -> object:
        return target.index_reduce_(0, which, values, how)

    return put


_OPERATIONS: dict[str, Put] = {
    "ReduceAdd": _add,
    "ReduceMultiply": _reduce("prod"),
    "ReduceMinimum": _reduce("amin"),
    "ReduceMaximum": _reduce("amax"),
}


def _bind_rows(kernel: KernelInfo) -> Run:
    """tma_scatter_add_kernel, vectorized_scatter_add_kernel: whole rows of floats added.

    Arguments: destination, source, index, number of rows, a row's size, the destination's number
    of rows, strides; the first kernel counts in elements, the second in bytes.
    """
    in_bytes = "vectorized_scatter_add_kernel<" in kernel.demangled
    name = "vectorized_scatter_add_kernel" if in_bytes else "tma_scatter_add_kernel"
    *_, kind, index = template_arguments(kernel.demangled, name)
    element, index_type = dtype(kind), dtype(index)
    unit = element.itemsize if in_bytes else 1
    unpack = unpacker(kernel, "QQQinqqqxx")

    def run(launch: Launch) -> None:
        target, source, indices, count, size, rows, step, source_step = unpack(launch.args)[:8]
        view, columns = launch.memory.view, size // unit
        which = view(indices, index_type, (count,), (1,))
        values = view(source, element, (count, columns), (source_step // unit, 1))
        view(target, element, (rows, columns), (step // unit, 1)).index_add_(0, which, values)

    return asserting(run)


_OPMATH = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def _bind_accumulate(kernel: KernelInfo) -> Run:
    """indexing_backward_kernel: slices, sorted by where they go, added there or put there.

    Arguments: where, which slice, slices, destination; number of indices, elements of a slice, and
    for the dimensions before the indexed one: their stride and their number; whether to add.
    """
    match = re.search(r"indexing_backward_kernel\w*", kernel.demangled)
    assert match is not None
    element = dtype(template_arguments(kernel.demangled, match[0])[0])
    unpack = unpacker(kernel, "QQQQqqqq?")

    def run(launch: Launch) -> None:
        rows_at, order_at, source, target, count, size, step, outer, add = unpack(launch.args)
        view = launch.memory.view
        rows = view(rows_at, torch.int64, (count,), (1,))
        order = view(order_at, torch.int64, (count,), (1,))
        slices = view(source, element, (outer, count, size), (count * size, size, 1))
        shape = (outer, int(rows[-1]) + 1, size)
        place = view(target, element, shape, (step, size, 1))
        if add:
            _accumulate(place, rows, slices.index_select(1, order))
        else:
            last = torch.cat((rows[1:] != rows[:-1], rows.new_ones(1, dtype=torch.bool)))
            place.index_copy_(1, rows[last], slices.index_select(1, order[last]))

    return asserting(run)


def _accumulate(place: Tensor, rows: Tensor, slices: Tensor) -> None:
    """Adds slices to rows; of small floats the sum of each row is rounded only once."""
    wide = _OPMATH.get(place.dtype)
    if wide is None:
        place.index_add_(1, rows, slices)
        return
    distinct, which = torch.unique_consecutive(rows, return_inverse=True)
    sums = place.index_select(1, distinct).to(wide).index_add_(1, which, slices.to(wide))
    place.index_copy_(1, distinct, sums.to(place.dtype))


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bindexFunc(Small|Large)Index<", _bind_function),
        (r"\b(tma|vectorized)_scatter_add_kernel<", _bind_rows),
        (r"\bindexing_backward_kernel(_stride_1|_small_stride)?<", _bind_accumulate),
    )
]
