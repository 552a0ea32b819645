"""Elements picked by an index along one dimension: embedding rows, index_select, gather, scatter.

How gather and scatter work. Their kernels walk over the index, with an offset calculator for the
two tensors and the index. The tensor that is looked up has a stride of zero where the index
counts, so the index's own dimension is found again: it is one with stride zero, or of size one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import asserting, element_type, raw_type
from .structs import OffsetCalculator, TensorInfo, check_tensor_infos, read_tensor_info

Tensor = torch.Tensor
Ints = tuple[int, ...]
Put = Callable[[Tensor, int, Tensor, Tensor], object]


def _bind_rows(kernel: KernelInfo) -> Run:
    """vectorized_gather_kernel: whole rows, counted in bytes; their alignment is that of 16."""
    alignment, index = template_arguments(kernel.demangled, "vectorized_gather_kernel")
    if int(alignment) % 8:
        raise UnsupportedKernel(f"rows aligned to {alignment} bytes")
    index_type = dtype(index)
    unpack = unpacker(kernel, "QQQiqqqq?")

    def run(launch: Launch) -> None:
        out, source, indices, count, size, rows, step, out_step, negative = unpack(launch.args)
        view, columns = launch.memory.view, size // 8
        which = view(indices, index_type, (count,), (1,))
        table = view(source, torch.int64, (rows, columns), (step // 8, 1))
        target = view(out, torch.int64, (count, columns), (out_step // 8, 1))
        if negative:
            target.copy_(table[which])
        elif target.is_contiguous():
            torch.index_select(table, 0, which, out=target)
        else:
            target.copy_(table.index_select(0, which))

    return asserting(run)


def _bind_select(kernel: KernelInfo) -> Run:
    """indexSelectSmallIndex, ...LargeIndex: (dst, src, indices, dims..., sizes..., source size)."""
    name = "indexSelectSmallIndex" if "SmallIndex<" in kernel.demangled else "indexSelectLargeIndex"
    kind, index, offset_type, *_ = template_arguments(kernel.demangled, name)
    element, index_type = raw_type(kind), dtype(index)
    width = dtype(offset_type).itemsize
    offsets = check_tensor_infos(kernel, 3, width)
    unpack = unpacker(kernel, "sssii" + "n" * (len(kernel.params) - 6) + "q")

    def run(launch: Launch) -> None:
        _, _, _, target_dim, source_dim, *_, rows = unpack(launch.args)
        target, source, indices = (read_tensor_info(launch.args, at, width) for at in offsets)
        which = view_first(launch.memory, indices, index_type, 0, indices.sizes[0])
        found = view_first(launch.memory, source, element, source_dim, rows)
        place = view_first(launch.memory, target, element, target_dim, len(which))
        place.copy_(found.index_select(0, which).view(place.shape))

    return asserting(run)


def view_first(memory: Memory, info: TensorInfo, kind: torch.dtype, dim: int, size: int) -> Tensor:
    """View a tensor with one dimension in front, of another size than its TensorInfo says."""
    sizes = (size, *info.sizes[:dim], *info.sizes[dim + 1 :])
    strides = (info.strides[dim], *info.strides[:dim], *info.strides[dim + 1 :])
    return memory.view(info.data, kind, sizes, strides)


# Behind the offset calculator: the index, its bound, the operation (empty), the written tensor,
# the stride of the indexed dimension, the number of elements; then the source.
_CAPTURES = struct.Struct("<Qq8xQq8x")
_POINTER = struct.Struct("<Q")


def _bind_scatter_gather(kernel: KernelInfo) -> Run:
    """Bind gather and scatter between tensors: <is it scatter, T, index>."""
    inner = "_cuda_scatter_gather_internal_kernel"
    is_scatter, kind, index = template_arguments(kernel.demangled, inner)
    element, index_type = element_type(kind), dtype(index)
    calculator = OffsetCalculator(3)
    start, captures, end = _closure(kernel, calculator)
    if end != captures + _CAPTURES.size + _POINTER.size:
        raise UnsupportedKernel(f"a closure of another size: {kernel.params}")
    put, scatter = _operation(kernel), is_scatter == "true"

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        indices, bound, target, step = _CAPTURES.unpack_from(args, captures)
        (source,) = _POINTER.unpack_from(args, captures + _CAPTURES.size)
        geometry = calculator.read(args, start)
        written, read, places = geometry.strides
        walk = Walk(geometry.sizes, written if scatter else read, element.itemsize)
        looked_up = walk.looked_up(bound, step)
        which = view(indices, index_type, *walk.along(places, index_type.itemsize))
        if scatter:
            values = view(source, element, *walk.along(read, element.itemsize))
            put(view(target, element, *looked_up), walk.dim, which, values)
        else:
            found = torch.gather(view(source, element, *looked_up), walk.dim, which)
            view(target, element, *walk.along(written, element.itemsize)).copy_(found)

    return asserting(run)


def _bind_scatter_fill(kernel: KernelInfo) -> Run:
    """Bind scatter of one value: <T, index>; the value is the last thing captured."""
    kind, index = template_arguments(kernel.demangled, "_cuda_scatter_fill_internal_kernel")
    element, index_type = element_type(kind), dtype(index)
    calculator = OffsetCalculator(2)
    start, captures, end = _closure(kernel, calculator)
    place = -(-(captures + _CAPTURES.size - start) // element.itemsize) * element.itemsize + start
    if end != -(-(place + element.itemsize) // 8) * 8:
        raise UnsupportedKernel(f"a closure of another size: {kernel.params}")
    put = _operation(kernel)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        indices, bound, target, step = _CAPTURES.unpack_from(args, captures)
        geometry = calculator.read(args, start)
        walk = Walk(geometry.sizes, geometry.strides[0], element.itemsize)
        which = view(indices, index_type, *walk.along(geometry.strides[1], index_type.itemsize))
        value = value_at(args, place, element).expand(which.shape)
        put(view(target, element, *walk.looked_up(bound, step)), walk.dim, which, value)

    return asserting(run)


class Walk:
    """The walk over an index; ``dim`` is the dimension along which it looks up another tensor.

    That is a dimension where the other tensor does not move, or one of size 1 put at the end.
    """

    __slots__ = ("dim", "sizes", "strides", "whole")

    def __init__(self, sizes: Ints, strides: Ints, itemsize: int) -> None:
        self.strides = tuple(stride // itemsize for stride in strides)
        still = (d for d, size in enumerate(sizes) if size != 1 and not strides[d])
        self.sizes, self.dim = sizes, next(still, len(sizes))
        self.whole = self.dim < len(sizes)

    def along(self, strides: Ints, itemsize: int) -> tuple[Ints, Ints]:
        """Sizes and strides, in elements, of a tensor that the walk passes element by element."""
        steps = tuple(stride // itemsize for stride in strides)
        return (self.sizes, steps) if self.whole else ((*self.sizes, 1), (*steps, 1))

    def looked_up(self, bound: int, step: int) -> tuple[Ints, Ints]:
        """Sizes and strides of the tensor that is looked up."""
        d, end = self.dim, self.dim + 1
        sizes = (*self.sizes[:d], bound, *self.sizes[end:])
        return sizes, (*self.strides[:d], step, *self.strides[end:])


def _closure(kernel: KernelInfo, calculator: OffsetCalculator) -> tuple[int, int, int]:
    """Where the closure, what it captures behind the calculator, and its end are."""
    if len(kernel.params) != 2:
        raise UnsupportedKernel(f"{len(kernel.params)} arguments, not 2")
    start, size = kernel.params[1]
    return start, start + -(-calculator.size // 8) * 8, start + size


def value_at(args: bytes, place: int, element: torch.dtype) -> Tensor:
    """One element among the arguments, as a tensor without dimensions."""
    piece = bytearray(args[place : place + element.itemsize])
    return torch.frombuffer(piece, dtype=element)[0]


def _assign(target: Tensor, dim: int, which: Tensor, values: Tensor) -> object:
    return target.scatter_(dim, which, values)


def _add(target: Tensor, dim: int, which: Tensor, values: Tensor) -> object:
    return target.scatter_add_(dim, which, values)


def _reduce(how: str) -> Put:
    def put(target: Tensor, dim: int, which: Tensor, values: Tensor) -> object:
        return target.scatter_reduce_(dim, which, values, how)

    return put


_OPERATIONS: dict[str, Put] = {
    "TensorAssign": _assign,
    "ReduceAdd": _add,
    "ReduceMean": _add,  # the caller divides
    "ReduceMultiply": _reduce("prod"),
    "ReduceMinimum": _reduce("amin"),
    "ReduceMaximum": _reduce("amax"),
}


def _operation(kernel: KernelInfo) -> Put:
    found = re.search(r"operator\(\)<(?:at::native::)?(\w+)>", kernel.demangled)
    if found is None or found[1] not in _OPERATIONS:
        raise UnsupportedKernel("an unknown operation of scatter")
    return _OPERATIONS[found[1]]


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bvectorized_gather_kernel<", _bind_rows),
    (r"\bindexSelect(Small|Large)Index<", _bind_select),
    (r"\b_scatter_gather_elementwise_kernel<.*\b_cuda_scatter_gather_", _bind_scatter_gather),
    (r"\b_scatter_gather_elementwise_kernel<.*\b_cuda_scatter_fill_", _bind_scatter_fill),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
