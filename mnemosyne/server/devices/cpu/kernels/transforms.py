"""thrust's transformations and loops as PyTorch launches them: numbers in order, picked elements.

How this works. A transformation writes what a functor gives of each element; thrust's copies of
other iterators than pointers are transformations by the identity.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker

_WORD = struct.Struct("<q")
_IDENTITY = r"\btransform_kernel<.*::__identity, "


def _bind_counting(kernel: KernelInfo) -> Run:
    """(n, elements of a thread, -, out, first number): consecutive numbers."""
    unpack = unpacker(kernel, "nixQs")

    def run(launch: Launch) -> None:
        count, _, target, first = unpack(launch.args)
        (start,) = _WORD.unpack_from(first)
        numbers = torch.arange(start, start + count)
        launch.memory.view(target, torch.int64, (count,), (1,)).copy_(numbers)

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (_IDENTITY + r"\S*device_ptr<long>, \S*counting_iterator<long,", _bind_counting),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
