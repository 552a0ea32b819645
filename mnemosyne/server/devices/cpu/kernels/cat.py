"""torch.cat: the CatArrayBatchedCopy kernels, as one copy for each input.

A launch brings up to 128 inputs in one structure, as many as its grid is high. Their sizes are
those of the output but for the joined dimension; an input is contiguous or has its own strides.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import template_arguments
from .raw import raw, raw_type
from .structs import contiguous

_MAX_DIMS = 4
_SHAPE_BYTES = 2 * _MAX_DIMS * 4
_SIZES_AND_STRIDES = struct.Struct(f"<{2 * _MAX_DIMS}I")

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """CatArrInputTensorMetadata of one launch; each list has an entry for each input."""

    addresses: Ints
    starts: Ints
    lengths: Ints
    elements: Ints
    contiguous: tuple[bool, ...]


class Metadata:
    """Reads CatArrInputTensorMetadata<T, unsigned int, batch, shapes>."""

    def __init__(self, batch: int, shapes: int) -> None:
        self._head = struct.Struct(f"<{batch}Q{batch}I{batch}I{batch}I{batch}?")
        self._batch, self._count = batch, shapes
        self._shapes = -(-self._head.size // 4) * 4
        self.size = -(-(self._shapes + shapes * _SHAPE_BYTES) // 8) * 8

    def read(self, data: bytes, offset: int, count: int) -> Inputs:
        """The first `count` inputs."""
        values, n = self._head.unpack_from(data, offset), self._batch
        if not 0 < count <= n:
            raise UnsupportedKernel(f"{count} inputs where at most {n} fit")
        return Inputs(*(values[i * n : i * n + count] for i in range(5)))

    def strides(self, data: bytes, offset: int, number: int) -> Ints:
        """The strides of one input, in elements."""
        if number >= self._count:
            raise UnsupportedKernel("an input whose strides are not given")
        start = offset + self._shapes + number * _SHAPE_BYTES
        return _SIZES_AND_STRIDES.unpack_from(data, start)[_MAX_DIMS:]


def _bind_copy(kernel: KernelInfo) -> Run:
    """Bind CatArrayBatchedCopy, _contig and _alignedK_contig: all count in elements."""
    name = _name(kernel)
    kind, metadata, dims = _layout(kernel, name)
    may_be_strided = name == "CatArrayBatchedCopy"
    unpack = unpacker(kernel, "QssiI")
    start = kernel.params[1][0]

    def run(launch: Launch) -> None:
        output, _, shape, dim, step = unpack(launch.args)
        sizes, strides = _sizes_and_strides(shape, dims)
        inputs = metadata.read(launch.args, start, launch.grid[1])
        view = launch.memory.view
        for i, count in enumerate(inputs.elements):
            if not count:
                continue
            part = (*sizes[:dim], inputs.lengths[i], *sizes[dim + 1 :])
            _check(part, count)
            own = contiguous(part)
            if may_be_strided and not inputs.contiguous[i]:
                own = metadata.strides(launch.args, start, i)[:dims]
            place = output + inputs.starts[i] * step * kind.itemsize
            target = view(place, kind, part, strides)
            target.copy_(view(inputs.addresses[i], kind, part, own))

    return run


def _bind_vectorized(kernel: KernelInfo) -> Run:
    """CatArrayBatchedCopy_vectorized: the joined dimension is the last one, in whole vectors."""
    _, metadata, dims = _layout(kernel, "CatArrayBatchedCopy_vectorized")
    *_, alignment, per_vector = template_arguments(kernel.demangled, _name(kernel))
    kind, elements = raw(int(alignment)), int(per_vector)
    unpack = unpacker(kernel, "QssiI")
    start = kernel.params[1][0]

    def run(launch: Launch) -> None:
        output, _, shape, dim, trailing = unpack(launch.args)
        sizes, strides = _sizes_and_strides(shape, dims)
        if dim != dims - 1:
            raise UnsupportedKernel(f"dimension {dim} of {dims} joined in vectors")
        inputs = metadata.read(launch.args, start, launch.grid[1])
        view = launch.memory.view
        for i, count in enumerate(inputs.elements):
            if count:
                part = (*sizes[:dim], inputs.lengths[i] * trailing // elements)
                _check(part, count // elements)
                place = output + inputs.starts[i] * trailing // elements * kind.itemsize
                source = view(inputs.addresses[i], kind, part, contiguous(part))
                view(place, kind, part, strides).copy_(source)

    return run


def _name(kernel: KernelInfo) -> str:
    match = re.search(r"CatArrayBatchedCopy\w*", kernel.demangled)
    assert match is not None
    return match[0]


def _layout(kernel: KernelInfo, name: str) -> tuple[torch.dtype, Metadata, int]:
    """The elements, the reader of the inputs and the number of dimensions."""
    kind, index, dims, batch, shapes, *_ = template_arguments(kernel.demangled, name)
    if index != "unsigned int" or not 0 < int(dims) <= _MAX_DIMS:
        raise UnsupportedKernel(f"{dims} dimensions with {index} offsets")
    metadata = Metadata(int(batch), int(shapes))
    found = [size for _, size in kernel.params[1:3]]
    if found != [metadata.size, _SHAPE_BYTES]:
        raise UnsupportedKernel(f"inputs of {metadata.size} bytes expected, not {found}")
    return raw_type(kind), metadata, int(dims)


def _sizes_and_strides(shape: bytes, dims: int) -> tuple[Ints, Ints]:
    values = _SIZES_AND_STRIDES.unpack(shape)
    return values[:dims], values[_MAX_DIMS : _MAX_DIMS + dims]


def _check(sizes: Ints, elements: int) -> None:
    if prod(sizes) != elements:
        raise UnsupportedKernel(f"an input of {elements} elements, not {sizes}")


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bCatArrayBatchedCopy(_contig|_alignedK_contig|_aligned16_contig)?<", _bind_copy),
    (r"\bCatArrayBatchedCopy_vectorized<", _bind_vectorized),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
