"""Products of COO tensors element by element, and one's values at the other's indices.

How this works. Each element of the one tensor has met its equals in the other's sorted indices
already: where they begin and how many they are. Each of its values now meets theirs, and the
results are added up. The kernel gives all addresses by an offset calculator and the steps from one
element's values to the next one's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import opmath
from .names import dtype, template_arguments
from .structs import OffsetCalculator, align

_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "MulOp": torch.mul,
    "LhsProjOp": lambda left, right: left,
    "RhsProjOp": lambda left, right: right,
}
#: Behind the offset calculator: results, values, elements, other values, first matches, numbers of
#: matches; the values' step, the others' order, whether all matches count or the first one alone,
#: the other values' step; a pointer for the host.
_CAPTURED = struct.Struct("<6QqQ?7xq8x")


def _bind_intersection(kernel: KernelInfo) -> Run:
    """apply_kernel with binary_op_intersection_kernel's lambda: (n, lambda)."""
    name, kind, index = template_arguments(kernel.demangled, "binary_op_intersection_kernel")
    operation, element = _OPERATIONS.get(name.rpartition("::")[2]), dtype(kind)
    calculator = OffsetCalculator(6)
    at, size = kernel.params[1]
    captured = at + align(calculator.size, 8)
    if operation is None or index != "long" or at + size != captured + _CAPTURED.size:
        raise UnsupportedKernel(f"an intersection by {name}, a lambda of {size} bytes")
    kinds = (element, element, torch.int64, element, torch.int64, torch.int64)

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        sizes, strides = calculator.read(args, at)
        steps = [[s // one.itemsize for s in of] for one, of in zip(kinds, strides, strict=True)]
        *places, step, order_at, every, other_step = _CAPTURED.unpack_from(args, captured)
        mine, firsts, counts = (
            memory.view(places[n], torch.int64, sizes, steps[n]).flatten() for n in (2, 4, 5)
        )
        pairs = _Pairs(memory, counts if every else counts.clamp(max=1), firsts, order_at)
        left = _offsets(sizes, steps[1]) + mine * step
        right = _offsets(sizes, steps[3])[pairs.which] + pairs.other * other_step
        values = operation(
            _read(memory, places[1], element, left[pairs.which]),
            _read(memory, places[3], element, right),
        )
        memory.view(places[0], element, sizes, steps[0]).copy_(pairs.sums(values).view(sizes))

    return run


class _Pairs:
    """All pairs of equals: ``which`` result a pair belongs to, and the ``other`` element in it."""

    def __init__(self, memory: Memory, counts: Tensor, firsts: Tensor, order_at: int) -> None:
        self._count = len(counts)
        self.which = torch.repeat_interleave(counts)
        begins = (counts.cumsum(0) - counts)[self.which]
        places = firsts[self.which] + torch.arange(len(self.which)) - begins
        self.other = _read(memory, order_at, torch.int64, places)

    def sums(self, values: Tensor) -> Tensor:
        """The sums of each result's pairs; of truth values, whether one is true."""
        return values.new_zeros(self._count).index_add_(0, self.which, values)


def _offsets(sizes: Sequence[int], steps: Sequence[int]) -> Tensor:
    """Of each element of a tensor, in order, its place behind the first."""
    offsets = torch.zeros(1, dtype=torch.int64)
    for size, step in zip(sizes, steps, strict=True):
        offsets = (offsets[:, None] + torch.arange(size) * step).flatten()
    return offsets


def _read(memory: Memory, at: int, kind: torch.dtype, places: Tensor) -> Tensor:
    """The numbers at some places, in the type that they are added up in."""
    count = int(places.max()) + 1 if len(places) else 0
    numbers = memory.view(at, kind, (count,), (1,))
    wide = kind if kind.is_floating_point or kind.is_complex else torch.int64
    return numbers.to(opmath(wide))[places]


FAMILY: Family = [
    (re.compile(r"\bapply_kernel<.*\bbinary_op_intersection_kernel<"), _bind_intersection)
]
