"""Reads the packed arguments of a kernel: one precompiled unpacker for the whole buffer."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import torch

from . import KernelInfo, UnsupportedKernel
from .names import dtype, parameters

Unpack = Callable[[bytes], tuple[Any, ...]]

_INTEGER = {4: "i", 8: "q"}
_ANY_SIZE = {"x": "{}x", "s": "{}s"}


def unpacker(kernel: KernelInfo, codes: str) -> Unpack:
    """Give what unpacks all of a kernel's arguments; one letter of `codes` for each argument.

    The letters are those of `struct`; besides, `n` is an integer of 4 or 8 bytes, `s` a structure
    as bytes, and `x` an argument that nobody needs, which is left out. UnsupportedKernel when the
    layout differs.
    """
    if len(codes) != len(kernel.params):
        raise UnsupportedKernel(f"{len(kernel.params)} arguments, not {len(codes)}")
    layout, end = "<", 0
    for code, (offset, size) in zip(codes, kernel.params, strict=True):
        layout += f"{offset - end}x" + _code(code, size)
        end = offset + size
    return struct.Struct(layout).unpack_from


def _code(code: str, size: int) -> str:
    if code in _ANY_SIZE:
        return _ANY_SIZE[code].format(size)
    code = _INTEGER.get(size, code) if code == "n" else code
    if code == "n" or struct.calcsize("<" + code) != size:
        raise UnsupportedKernel(f"an argument of {size} bytes where {code!r} was expected")
    return code


def pointed_types(kernel: KernelInfo, function: str) -> list[torch.dtype]:
    """The element types of the pointers among the parameters of `function`, in order."""
    types = parameters(kernel.demangled, function)
    return [_pointed(kind) for kind in types if kind.endswith("*")]


def _pointed(kind: str) -> torch.dtype:
    """An element type; `AccumulateType<T, true>::type` is what sums of T are kept in."""
    found = re.search(r"\bAccumulateType<(.*), true>::type", kind)
    return opmath(dtype(found[1])) if found else dtype(kind)


def opmath(kind: torch.dtype) -> torch.dtype:
    """What a kernel computes in: float for the half-sized types, else the type itself."""
    return torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
