"""Images whose result takes, along each dimension, elements by an index: padding and resizing.

Forward is a selection along one dimension after another, backward the addition to the elements
selected. It also reads a PackedTensorAccessor: an address, then sizes and strides.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch

from . import Memory, UnsupportedKernel

Tensor = torch.Tensor

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def select(operand: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """Select along the last dimensions, one index for each."""
    for dim, index in enumerate(indices, operand.dim() - len(indices)):
        operand = operand.index_select(dim, index)
    return operand


def select_backward(grad: Tensor, indices: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The gradient of `select`'s operand, whose last dimensions have these sizes.

    An index outside of the operand drops its element. Small floats are summed in float32.
    """
    result = grad.to(_WIDE.get(grad.dtype, grad.dtype))
    for dim, (index, size) in enumerate(zip(indices, sizes, strict=True), grad.dim() - len(sizes)):
        shape = [*result.shape[:dim], size + 1, *result.shape[dim + 1 :]]
        sums = torch.zeros(shape, dtype=result.dtype)
        result = sums.index_add_(dim, index.clamp(max=size), result).narrow(dim, 0, size)
    return result


class Accessor:
    """Reads a PackedTensorAccessor of so many dimensions, with indices of 4 or 8 bytes."""

    def __init__(self, dims: int, index_bytes: int = 8) -> None:
        self._dims = dims
        self._struct = struct.Struct(f"<Q{2 * dims}{'i' if index_bytes == 4 else 'q'}")
        self.size = self._struct.size

    @staticmethod
    def of(size: int) -> Accessor:
        """The reader of a PackedTensorAccessor64 of so many bytes."""
        if size not in (24, 40, 56, 72, 88):
            raise UnsupportedKernel(f"an accessor of {size} bytes")
        return Accessor((size - 8) // 16)

    def view(self, data: bytes, offset: int, memory: Memory, kind: torch.dtype) -> Tensor:
        """The tensor that an accessor describes."""
        pointer, *values = self._struct.unpack_from(data, offset)
        return memory.view(pointer, kind, values[: self._dims], values[self._dims :])
