"""torch.segment_reduce: a maximum, mean, minimum, sum or product of each run of elements."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, parameters, template_arguments
from .raw import failed_assertion
from .structs import scalar

_REDUCTIONS = ("max", "mean", "min", "sum", "prod")  # at::native::ReductionType
_OPERATORS = {"CustomMax": "max", "CustomMin": "min", "CustomSum": "sum", "CustomProd": "prod"}
_aten: Any = torch.ops.aten


class _Shapes:
    """Elements as (outer, runs or elements, inner), from the sizes that come last.

    These are outer, inner, then stride and size of the elements' axis and of the results' one, and
    the stride of the places where runs begin.
    """

    def __init__(self, launch: Launch, kind: torch.dtype, runs: int, values: list[int]) -> None:
        self._view, self._kind, self._runs = launch.memory.view, kind, runs
        self._outer, self._inner, *self._sizes, self._step = values

    def elements(self, at: int) -> Tensor:
        stride, size = self._sizes[:2]
        shape = (self._outer, size, self._inner)
        return self._view(at, self._kind, shape, (stride * size, stride, 1))

    def results(self, at: int) -> Tensor:
        stride, size = self._sizes[2:]
        shape = (self._outer, self._runs, self._inner)
        return self._view(at, self._kind, shape, (stride * size, stride, 1))

    def starts(self, at: int, kind: torch.dtype) -> Tensor:
        """Where runs begin, and where the last one ends: (outer, runs + 1)."""
        count = self._runs + 1
        starts = self._view(at, kind, (self._outer, count), (self._step * count, 1))
        return _checked(starts, self._sizes[1])


def _checked(starts: Tensor, size: int) -> Tensor:
    """A copy of where runs begin, all of them among the elements: torch does not check that."""
    copied = starts.clone(memory_format=torch.contiguous_format)
    if bool((copied < 0).any() | (copied > size).any() | (copied.diff() < 0).any()):
        raise failed_assertion("a run of elements is out of bounds")
    return copied


def _bind_forward(kernel: KernelInfo) -> Run:
    """segment_reduce_forward_kernel: (which, out, in, -, starts, runs, -, is set, initial, ...)."""
    name = "segment_reduce_forward_kernel"
    element, index = (dtype(kind) for kind in template_arguments(kernel.demangled, name))
    unpack = unpacker(kernel, "iQQxQqx?x" + "q" * 7)
    initial_at = kernel.params[8][0]

    def run(launch: Launch) -> None:
        which, out, source, starts_at, runs, is_set, *sizes = unpack(launch.args)
        shapes = _Shapes(launch, element, runs, sizes)
        found = torch.segment_reduce(
            shapes.elements(source).contiguous(),
            _REDUCTIONS[which],
            offsets=shapes.starts(starts_at, index),
            axis=1,
            initial=scalar(launch.args, initial_at, element) if is_set else None,
        )
        shapes.results(out).copy_(found)

    return run


def _bind_backward(kernel: KernelInfo) -> Run:
    """segment_reduce_backward_kernel: (which, grad of in, grad, out, in, -, starts, runs, ...)."""
    name = "segment_reduce_backward_kernel"
    element, index = (dtype(kind) for kind in template_arguments(kernel.demangled, name))
    unpack = unpacker(kernel, "iQQQQxQqxx" + "q" * 7)
    initial_at = kernel.params[9][0]

    def run(launch: Launch) -> None:
        which, target, grad, out, source, starts_at, runs, *sizes = unpack(launch.args)
        shapes = _Shapes(launch, element, runs, sizes)
        found = _aten._segment_reduce_backward(
            shapes.results(grad).contiguous(),
            shapes.results(out).contiguous(),
            shapes.elements(source).contiguous(),
            _REDUCTIONS[which],
            offsets=shapes.starts(starts_at, index),
            axis=1,
            initial=scalar(launch.args, initial_at, element),
        )
        shapes.elements(target).copy_(found)

    return run


def _bind_vector(kernel: KernelInfo) -> Run:
    """DeviceSegmentedReduceKernel: (in, out, starts, ends, operator, what each run starts with).

    As many runs as blocks.
    """
    arguments = template_arguments(kernel.demangled, "DeviceSegmentedReduceKernel")
    kind = _OPERATORS.get(arguments[6].rpartition("::")[2])
    if kind is None:
        raise UnsupportedKernel(f"runs reduced with {arguments[6]}")
    element, index = dtype(arguments[1]), dtype(arguments[3])
    unpack = unpacker(kernel, "QQQQxx")
    initial_at = kernel.params[5][0]

    def run(launch: Launch) -> None:
        source, out, starts_at, ends_at = unpack(launch.args)
        if ends_at != starts_at + index.itemsize:
            raise UnsupportedKernel("runs that do not follow each other")
        view, runs = launch.memory.view, launch.grid[0]
        starts = view(starts_at, index, (runs + 1,), (1,))
        starts = _checked(starts, size := int(starts[-1]))
        values = view(source, element, (size,), (1,))
        initial = scalar(launch.args, initial_at, element)
        found = torch.segment_reduce(values, kind, offsets=starts, initial=initial, unsafe=True)
        view(out, element, (runs,), (1,)).copy_(found)

    return run


def _bind_means(kernel: KernelInfo) -> Run:
    """post_sum_div_kernel: (sums, lengths, runs, whether an empty run has a value, that value)."""
    element, index = (
        dtype(kind) for kind in parameters(kernel.demangled, "post_sum_div_kernel")[:2]
    )
    unpack = unpacker(kernel, "QQq?x")
    initial_at = kernel.params[4][0]

    def run(launch: Launch) -> None:
        sums_at, lengths_at, runs, is_set = unpack(launch.args)
        view = launch.memory.view
        sums, lengths = (
            view(sums_at, element, (runs,), (1,)),
            view(lengths_at, index, (runs,), (1,)),
        )
        empty = scalar(launch.args, initial_at, element) if is_set else float("nan")
        sums.copy_(torch.where(lengths == 0, empty, sums / lengths))

    return run


FAMILY: Family = [
    (re.compile(r"\bsegment_reduce_forward_kernel<"), _bind_forward),
    (re.compile(r"\bsegment_reduce_backward_kernel<"), _bind_backward),
    (re.compile(r"\bDeviceSegmentedReduceKernel<.*::Custom(Max|Min|Sum|Prod)\b"), _bind_vector),
    (re.compile(r"\bpost_sum_div_kernel<"), _bind_means),
]
