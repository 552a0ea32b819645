"""Sorts of rows in place, and what PyTorch does around cub's sorts of longer rows.

How this works. Keys and values of a sort are given by their rows' starts, a length and a stride.
NaN is above all numbers. Every sort here is stable, which not all of the kernels need to be.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import raw_type
from .structs import TensorInfo, check_tensor_infos, read_tensor_info, tensor_info_size

_DESCENDING = {"GTOp": True, "LTOp": False}


def rows(memory: Memory, info: TensorInfo, kind: torch.dtype, size: int, stride: int) -> Tensor:
    """Rows along a last dimension that the TensorInfo leaves out."""
    return memory.view(info.data, kind, (*info.sizes, size), (*info.strides, stride))


def _bind_in_place(kernel: KernelInfo) -> Run:
    """bitonicSort-, warpMergeSort-, radixSortKVInPlace.

    Arguments: keys, number of rows, their size, their stride; values, their stride; the comparison,
    which has no members, or whether to descend; of the merge sort the greatest key.
    """
    match = re.search(r"(bitonicSort|warpMergeSort|radixSort)KVInPlace", kernel.demangled)
    assert match is not None
    arguments = template_arguments(kernel.demangled, match[0])
    key_type, value_type = dtype(arguments[4]), dtype(arguments[5])
    by_flag = match[1] == "radixSort"
    width = dtype(arguments[6 if by_flag else 7]).itemsize
    key_at, value_at = _infos(kernel, width)
    greatest = "s" if match[1] == "warpMergeSort" else ""
    unpack = unpacker(kernel, "snnnsn" + ("?" if by_flag else "s") + greatest)
    order = None if by_flag else _DESCENDING.get(_class(arguments[6]))
    if order is None and not by_flag:
        raise UnsupportedKernel(f"a sort by {arguments[6]}")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        _, count, size, stride, _, value_stride, flag, *_ = unpack(args)
        keys = rows(memory, read_tensor_info(args, key_at, width), key_type, size, stride)
        info = read_tensor_info(args, value_at, width)
        values = rows(memory, info, value_type, size, value_stride)
        if keys.numel() != count * size or values.numel() != count * size:
            raise UnsupportedKernel("another number of rows")
        descending = flag if order is None else order
        ordered, which = torch.sort(keys, dim=-1, descending=descending, stable=True)
        moved = values.reshape(-1, size).gather(-1, which.reshape(-1, size))
        keys.copy_(ordered)
        values.copy_(moved.view(values.shape))

    return run


def _class(operator: str) -> str:
    """A comparison's name without namespaces, if NaN counts as the greatest."""
    match = re.fullmatch(r"(?:\w+::)*(\w+)<.*, true>", operator)
    return match[1] if match else ""


def _infos(kernel: KernelInfo, width: int) -> tuple[int, int]:
    """Where the keys' and the values' TensorInfo are: the first and the fifth argument."""
    size = tensor_info_size(width)
    places = [kernel.params[n] for n in (0, 4) if len(kernel.params) > n]
    if [found for _, found in places] != [size, size]:
        raise UnsupportedKernel(f"TensorInfos of {size} bytes expected: {kernel.params}")
    return places[0][0], places[1][0]


def _bind_positions(kernel: KernelInfo) -> Run:
    """fill_reverse_indices_kernel: (out, n, divider): the place of each element in its row."""
    unpack = unpacker(kernel, "Qis")

    def run(launch: Launch) -> None:
        target, count, divider = unpack(launch.args)
        (size,) = struct.unpack_from("<I", divider)
        places = torch.arange(size).repeat(-(-count // size))[:count]
        launch.memory.view(target, torch.int64, (count,), (1,)).copy_(places)

    return run


def _bind_rows_and_positions(kernel: KernelInfo) -> Run:
    """fill_index_and_segment_kernel: (out, n, divider): row and place in it of each element."""
    unpack = unpacker(kernel, "Qis")

    def run(launch: Launch) -> None:
        target, count, divider = unpack(launch.args)
        (size,) = struct.unpack_from("<I", divider)
        numbers = torch.arange(count)
        table = torch.stack((numbers // size, numbers % size), 1)
        launch.memory.view(target, torch.int32, (count, 2), (2, 1)).copy_(table)

    return run


def _bind_pick(kernel: KernelInfo) -> Run:
    """sort_postprocess_kernel: (in, out, indices, pairs of row and place, rows, row size)."""
    element = raw_type(template_arguments(kernel.demangled, "sort_postprocess_kernel")[0])
    unpack = unpacker(kernel, "QQQQii")

    def run(launch: Launch) -> None:
        source, target, indices, pairs, count, size = unpack(launch.args)
        view, shape, strides = launch.memory.view, (count, size), (size, 1)
        places = view(pairs, torch.int32, (count, size, 2), (2 * size, 2, 1))[..., 1].long()
        view(indices, torch.int64, shape, strides).copy_(places)
        found = view(source, element, shape, strides).gather(1, places)
        view(target, element, shape, strides).copy_(found)

    return run


def _bind_kth(kernel: KernelInfo) -> Run:
    """gatherKthValue: (in, row size, k from 1, rows, stride; values; indices)."""
    kind, index, _ = template_arguments(kernel.demangled, "gatherKthValue")
    element, width = dtype(kind), dtype(index).itemsize
    (source_at,) = check_tensor_infos(kernel, 1, width)
    places = check_tensor_infos(kernel, 2, width, first=5)
    unpack = unpacker(kernel, "snnnnss")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        _, size, k, _, stride, *_ = unpack(args)
        source = rows(memory, read_tensor_info(args, source_at, width), element, size, stride)
        found = torch.sort(source, dim=-1, stable=True)
        _put(launch, places, width, (found.values[..., k - 1], found.indices[..., k - 1]))

    return run


def _bind_median(kernel: KernelInfo) -> Run:
    """gatherMedian: (values; indices; in, row size, rows, stride, whether to leave out NaN)."""
    kind, index, _ = template_arguments(kernel.demangled, "gatherMedian")
    element, width = dtype(kind), dtype(index).itemsize
    *places, source_at = check_tensor_infos(kernel, 3, width)
    unpack = unpacker(kernel, "sssnnn?")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        *_, size, _, stride, without_nan = unpack(args)
        source = rows(memory, read_tensor_info(args, source_at, width), element, size, stride)
        find = torch.nanmedian if without_nan else torch.median
        _put(launch, (places[0], places[1]), width, find(source, dim=-1))

    return run


def _bind_mode(kernel: KernelInfo) -> Run:
    """compute_mode: (in, whose rows follow each other; values; indices; row size, rows)."""
    element = dtype(template_arguments(kernel.demangled, "compute_mode")[0])
    width = 4 if kernel.params[1][1] == tensor_info_size(4) else 8
    places = check_tensor_infos(kernel, 2, width, first=1)
    unpack = unpacker(kernel, "Qssqq")

    def run(launch: Launch) -> None:
        source, _, _, size, count = unpack(launch.args)
        table = launch.memory.view(source, element, (count, size), (size, 1))
        _put(launch, places, width, torch.mode(table, -1))

    return run


def _put(
    launch: Launch, places: tuple[int, ...], width: int, results: tuple[Tensor, Tensor]
) -> None:
    """Writes one value and one index for each row."""
    for place, result in zip(places, results, strict=True):
        info = read_tensor_info(launch.args, place, width)
        target = launch.memory.view(info.data, result.dtype, info.sizes, info.strides)
        target.copy_(result.reshape(target.shape))


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\b(bitonicSort|warpMergeSort|radixSort)KVInPlace<", _bind_in_place),
    (r"\bfill_reverse_indices_kernel\(", _bind_positions),
    (r"\bfill_index_and_segment_kernel\(", _bind_rows_and_positions),
    (r"\bsort_postprocess_kernel<", _bind_pick),
    (r"\bgatherKthValue<", _bind_kth),
    (r"\bgatherMedian<", _bind_median),
    (r"\bcompute_mode<", _bind_mode),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
