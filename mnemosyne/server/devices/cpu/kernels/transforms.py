"""thrust's transformations as PyTorch launches them: numbers in order, and numbers put at places.

How this works. A transformation writes what a functor gives of each element; thrust's copies of
other iterators than pointers are transformations by the identity.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker

_WORD = struct.Struct("<q")
_PAIR = struct.Struct("<QQ")
_IDENTITY = r"\btransform_kernel<.*::__identity, "


def _bind_counting(kernel: KernelInfo) -> Run:
    """(n, elements of a thread, -, out, first number): consecutive numbers."""
    unpack = unpacker(kernel, "nixQs")

    def run(launch: Launch) -> None:
        count, _, target, first = unpack(launch.args)
        (start,) = _WORD.unpack_from(first)
        numbers = launch.memory.view(target, torch.int64, (count,), (1,))
        torch.arange(start, start + count, out=numbers)

    return run


def _bind_scatter(kernel: KernelInfo) -> Run:
    """(n, elements of a thread, -, (places, out), in): numbers put at places."""
    unpack = unpacker(kernel, "nixss")
    if [size for _, size in kernel.params[3:]] != [_PAIR.size, _PAIR.size]:
        raise UnsupportedKernel("a scatter through other iterators")

    def run(launch: Launch) -> None:
        count, _, pair, source = unpack(launch.args)
        places_at, out = _PAIR.unpack(pair)
        view = launch.memory.view
        places = view(places_at, torch.int64, (count,), (1,))
        values = view(_PAIR.unpack(source)[0], torch.int64, (count,), (1,))
        target = view(out, torch.int64, (int(places.max()) + 1,), (1,))
        target.index_copy_(0, places, values)

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (_IDENTITY + r"\S*device_ptr<long>, \S*counting_iterator<long,", _bind_counting),
    (_IDENTITY + r"\S*permutation_iterator<long\*, long const\*>, long\*>", _bind_scatter),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
