"""Advanced indexing: reading and writing by index tensors, index_copy, index_fill, take, put, flip.

How this works. `index_elementwise_kernel` runs a lambda for each element of a walk; what the lambda
captures lies in its closure in the order of first use, the offset calculator first. The tensor
that is looked up moves with the dimensions that have no index, and only with these.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .gather import Walk, value_at
from .names import dtype, template_arguments
from .raw import asserting, raw_type
from .structs import MAX_DIMS, Geometry, OffsetCalculator

Tensor = torch.Tensor
Ints = tuple[int, ...]

# Of gpu_index_kernel: out, in, count; then 25 each of index addresses, sizes, strides; the functor.
_INDEX = struct.Struct(f"<QQQ{MAX_DIMS}Q{MAX_DIMS}q{MAX_DIMS}q8x")
# Of index_copy and index_fill: self, index; then the source; size and stride of the dimension.
_COPY = struct.Struct("<QQQqq")
_FILL = struct.Struct("<QQqq")
_TAKE = struct.Struct("<QQq?")
_PAIR = struct.Struct("<QQ")
_POINTER = struct.Struct("<Q")


def _bind_index(kernel: KernelInfo) -> Run:
    """x[i, j, ...] read or written; an index may be negative."""
    match = re.search(
        r"gpu_index_kernel<[\w:]*index_(put_)?kernel_impl<(.*?>) ?>", kernel.demangled
    )
    if match is None:
        raise UnsupportedKernel("an unknown use of indices")
    put, element = bool(match[1]), raw_type(match[2])
    calculator = OffsetCalculator(3)
    start, captures = _closure(kernel, calculator, _INDEX.size)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        out, source, count, *rest = _INDEX.unpack_from(args, captures)
        plan = _Plan(calculator.read(args, start), 0 if put else 1)
        sizes = rest[MAX_DIMS : MAX_DIMS + count]
        strides = rest[2 * MAX_DIMS : 2 * MAX_DIMS + count]
        which = tuple(view(at, torch.int64, *plan.index()) for at in rest[:count])
        table = view(out if put else source, element, *plan.table(sizes, strides, element.itemsize))
        other = view(source if put else out, element, *plan.other(element.itemsize))
        if put:
            table[which] = other
        else:
            other.copy_(table[which])

    return asserting(run)


class _Plan:
    """A walk over indices as torch sees it: dimensions of the index first, then those of slices."""

    __slots__ = ("_geometry", "_inner", "_other", "_outer", "_table")

    def __init__(self, geometry: Geometry, table: int) -> None:
        self._geometry = geometry
        self._table, self._other = geometry.strides[table], geometry.strides[1 - table]
        # The stride of a dimension of size 1 may be anything.
        moves = [s != 0 and n != 1 for s, n in zip(self._table, geometry.sizes, strict=True)]
        self._outer = [d for d, moved in enumerate(moves) if not moved]
        self._inner = [d for d, moved in enumerate(moves) if moved]
        if any(geometry.strides[2][d] for d in self._inner):
            raise UnsupportedKernel("an index that differs within a slice")

    def index(self) -> tuple[Ints, Ints]:
        """Sizes and strides, in elements, of every index."""
        sizes, strides = self._geometry.sizes, self._geometry.strides[2]
        return _pick(sizes, self._outer), tuple(strides[d] // 8 for d in self._outer)

    def table(
        self, sizes: Sequence[int], strides: Sequence[int], itemsize: int
    ) -> tuple[Ints, Ints]:
        """Of the tensor that is looked up: the indexed dimensions, then those of a slice."""
        inner = (*strides, *_pick(self._table, self._inner))
        return (*sizes, *_pick(self._geometry.sizes, self._inner)), _divided(inner, itemsize)

    def other(self, itemsize: int) -> tuple[Ints, Ints]:
        """Of the tensor that the walk passes element by element."""
        order = self._outer + self._inner
        return _pick(self._geometry.sizes, order), _divided(_pick(self._other, order), itemsize)


def _pick(values: Ints, dims: Sequence[int]) -> Ints:
    return tuple(values[d] for d in dims)


def _divided(strides: Ints, itemsize: int) -> Ints:
    return tuple(stride // itemsize for stride in strides)


def _closure(kernel: KernelInfo, calculator: OffsetCalculator, size: int) -> tuple[int, int]:
    """Where the closure and what it captures behind the calculator are; this has `size` bytes."""
    if len(kernel.params) != 2:
        raise UnsupportedKernel(f"{len(kernel.params)} arguments, not 2")
    start, found = kernel.params[1]
    captures = start + -(-calculator.size // 8) * 8
    if found != captures - start + size:
        raise UnsupportedKernel(f"a closure of {found} bytes, not {captures - start + size}")
    return start, captures


def _bind_copy(kernel: KernelInfo) -> Run:
    """index_copy: slices of a source written where the index says."""
    element = raw_type(template_arguments(kernel.demangled, "index_copy_kernel_impl")[0])
    calculator = OffsetCalculator(3)
    start, captures = _closure(kernel, calculator, _COPY.size)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        target, index, source, bound, step = _COPY.unpack_from(args, captures)
        geometry = calculator.read(args, start)
        walk = Walk(geometry.sizes, geometry.strides[0], element.itemsize)
        which = view(index, torch.int64, *_vector(walk, geometry.strides[1]))
        values = view(source, element, *walk.along(geometry.strides[2], element.itemsize))
        view(target, element, *walk.looked_up(bound, step)).index_copy_(walk.dim, which, values)

    return asserting(run)


def _bind_fill(kernel: KernelInfo) -> Run:
    """index_fill: one value, captured last, written to slices."""
    element = raw_type(template_arguments(kernel.demangled, "index_fill_kernel_impl")[0])
    calculator = OffsetCalculator(2)
    size = _FILL.size + -(-element.itemsize // 8) * 8
    start, captures = _closure(kernel, calculator, size)
    if element.itemsize > 8 and (captures + _FILL.size) % element.itemsize:
        raise UnsupportedKernel("a value that is not aligned")

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        target, index, bound, step = _FILL.unpack_from(args, captures)
        geometry = calculator.read(args, start)
        walk = Walk(geometry.sizes, geometry.strides[0], element.itemsize)
        which = view(index, torch.int64, *_vector(walk, geometry.strides[1]))
        value = value_at(args, captures + _FILL.size, element)
        view(target, element, *walk.looked_up(bound, step)).index_fill_(walk.dim, which, value)

    return asserting(run)


def _vector(walk: Walk, strides: Ints) -> tuple[Ints, Ints]:
    """Of an index that moves along the walk's dimension only."""
    moves = [d for d, stride in enumerate(strides) if stride and walk.sizes[d] != 1]
    if moves not in ([], [walk.dim]):
        raise UnsupportedKernel("an index of several dimensions")
    if walk.whole:
        return (walk.sizes[walk.dim],), (strides[walk.dim] // 8,)
    return (1,), (1,)


def _bind_take_put(kernel: KernelInfo) -> Run:
    """take and put: an index counts the elements of a whole tensor, which may be strided.

    Captured: values, index, number of elements, whether contiguous; its shape; the functor, which
    for an accumulating put begins with the number of elements and ends with the tensor's address.
    """
    kind, index_type, *_ = template_arguments(kernel.demangled, "cuda_take_put_kernel")
    wide = dtype(index_type) == torch.int64
    calculator, shape = OffsetCalculator(2), OffsetCalculator(1)
    start, captures = kernel.params[1][0], kernel.params[1][0] + calculator.size
    shape_at = captures + (32 if wide else 28)
    functor = shape_at + (408 if wide else shape.size)
    end = sum(kernel.params[-1])
    accumulate = end == functor + 16 and "put_kernel" in kernel.demangled
    if captures % 8 or (end != functor + 8 and not accumulate):
        raise UnsupportedKernel(f"a closure of another size: {kernel.params}")
    element = dtype(kind) if accumulate else raw_type(kind)
    take = "::take_kernel(" in kernel.demangled

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        values, index, count, contiguous = _TAKE.unpack_from(args, captures)
        (address,) = _POINTER.unpack_from(args, end - 8)
        geometry = calculator.read(args, start)
        which = view(index, torch.int64, geometry.sizes, _divided(geometry.strides[1], 8))
        steps = _divided(geometry.strides[0], element.itemsize)
        passed = view(values, element, geometry.sizes, steps)
        if contiguous:
            whole = view(address, element, (count,), (1,))
        elif wide:
            raise UnsupportedKernel("a strided tensor too large for 32-bit offsets")
        else:
            own = shape.read(args, shape_at)
            whole = view(address, element, own.sizes, own.strides[0])
        if take:
            passed.copy_(whole.take(which))
        else:
            whole.put_(which, passed, accumulate)

    return asserting(run)


def _bind_flip(kernel: KernelInfo) -> Run:
    """flip: a copy between walks, of which one may go backwards."""
    element = raw_type(template_arguments(kernel.demangled, "flip_kernel_impl")[0])
    calculator = OffsetCalculator(2)
    start, captures = _closure(kernel, calculator, _PAIR.size)

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        geometry = calculator.read(args, start)
        sides = []
        pointers = _PAIR.unpack_from(args, captures)
        for pointer, strides in zip(pointers, geometry.strides, strict=True):
            back = [d for d, stride in enumerate(strides) if stride < 0]
            first = pointer + sum(strides[d] * (geometry.sizes[d] - 1) for d in back)
            steps = tuple(abs(stride) // element.itemsize for stride in strides)
            sides.append((view(first, element, geometry.sizes, steps), back))
        (target, target_back), (source, source_back) = sides
        target.copy_(source.flip(sorted({*target_back} ^ {*source_back})))

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bgpu_index_kernel<", _bind_index),
    (r"\bindex_copy_kernel_impl<", _bind_copy),
    (r"\bindex_fill_kernel_impl<", _bind_fill),
    (r"\bcuda_take_put_kernel<", _bind_take_put),
    (r"\bflip_kernel_impl<", _bind_flip),
)
FAMILY: Family = [
    (re.compile(r"\bindex_elementwise_kernel<.*" + pattern), binder) for pattern, binder in _BINDERS
]
