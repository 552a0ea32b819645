"""Descriptors of cuDNN's older API, as they come by content, and what its calls have in common.

A frame that is no descriptor at all breaks the protocol; one that makes no sense fails the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.cudnn.graph import dtype_of
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor as its descriptor has it; an address makes it a tensor."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, raw: list[Any]) -> Shape:
        """From [type, sizes, strides]. Raises ProtocolError and CallError."""
        kind, sizes, strides = fields(raw, "a tensor descriptor", [int, list, list])
        if len(sizes) != len(strides):
            raise ProtocolError("a tensor descriptor is not [type, sizes, strides]")
        if len(sizes) < 2 or any(n < 0 for n in (*sizes, *strides)):
            raise CallError(INVALID_VALUE, f"a tensor of {sizes} with strides {strides}")
        return cls(dtype_of(kind), tuple(sizes), tuple(strides))

    def at(self, s: CpuSession, pointer: int) -> torch.Tensor:
        return s.memory.view(pointer, self.dtype, self.sizes, self.strides)


#: cudnnTensorFormat_t: which dimensions of a filter are next to each other in memory, last first.
_NCHW, _NHWC = 0, 1


def filter_shape(raw: list[Any]) -> Shape:
    """From [type, format, sizes]. Raises ProtocolError and CallError."""
    kind, form, sizes = fields(raw, "a filter descriptor", [int, int, list])
    if len(sizes) < 2 or any(n < 0 for n in sizes):
        raise CallError(INVALID_VALUE, f"a filter of {sizes}")
    if form not in (_NCHW, _NHWC):
        raise CallError(NOT_SUPPORTED, f"a filter in cuDNN's tensor format {form}")
    inner = range(len(sizes) - 1, 0, -1) if form == _NCHW else [1, *range(len(sizes) - 1, 1, -1)]
    strides, step = [0] * len(sizes), 1
    for dimension in (*inner, 0):
        strides[dimension] = step
        step *= sizes[dimension]
    return Shape(dtype_of(kind), tuple(sizes), tuple(strides))


def fields(raw: list[Any], what: str, kinds: Sequence[type]) -> list[Any]:
    """The elements of a descriptor: each of a type, and lists of integers.

    Raises CallError when there is no descriptor, ProtocolError when it is another.
    """
    if not raw:
        raise CallError(INVALID_VALUE, f"{what} is missing")
    lists = [value for value in raw if type(value) is list]
    if [type(value) for value in raw] != list(kinds):
        raise ProtocolError(f"{what} is malformed")
    if any(type(n) is not int for one in lists for n in one):
        raise ProtocolError(f"{what} is malformed")
    return raw


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the type that is computed in."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def blend(out: torch.Tensor, value: torch.Tensor, alpha: float, beta: float) -> None:
    """out = alpha * value + beta * out; ``out`` is not read when beta is 0."""
    out.copy_(alpha * value + beta * out if beta else alpha * value)
