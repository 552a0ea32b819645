"""Group norm, forward and backward, around the elementwise kernels that do its last steps.

Rows of the input are (sample, group); channels of a group are next to each other. `ds` and `db`
are the sums over one channel of one sample of gradient times input, and of the gradient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch

from . import Family, KernelInfo, Launch, Memory, Run
from .arguments import opmath, pointed_types, unpacker

Tensor = torch.Tensor


class _Sources:
    """Views of one launch's pointers in the accumulation type; a null pointer gives None."""

    __slots__ = ("_memory", "_pointers", "_types")

    def __init__(
        self, memory: Memory, pointers: Sequence[int], types: Sequence[torch.dtype]
    ) -> None:
        self._memory = memory
        self._pointers = pointers
        self._types = types

    def place(self, index: int, *sizes: int) -> Tensor | None:
        """A contiguous tensor as it lies there."""
        if not self._pointers[index]:
            return None
        flat = self._memory.view(
            self._pointers[index], self._types[index], (torch.Size(sizes).numel(),), (1,)
        )
        return flat.view(sizes)

    def read(self, index: int, *sizes: int) -> Tensor:
        found = self.place(index, *sizes)
        assert found is not None
        return found.to(opmath(found.dtype))

    def read_or(self, default: float, index: int, *sizes: int) -> Tensor:
        found = self.place(index, *sizes)
        if found is None:
            return torch.full((), default, dtype=opmath(self._types[index]))
        return found.to(opmath(found.dtype))

    def write(self, index: int, value: Tensor) -> None:
        """Store a result, unless nobody wants it."""
        place = self.place(index, *value.shape)
        if place is not None:
            place.copy_(value)


Compute = Callable[[tuple[int, ...], _Sources, Launch], None]


def _binder(name: str, counts: int, compute: Compute) -> Callable[[KernelInfo], Run]:
    """A binder for a kernel of some numbers, `counts` of them, and then pointers."""

    def bind(kernel: KernelInfo) -> Run:
        types = pointed_types(kernel, name)
        unpack = unpacker(kernel, "q" * counts + "Q" * len(types))

        def run(launch: Launch) -> None:
            values = unpack(launch.args)
            sources = _Sources(launch.memory, values[counts:], types)
            compute(values[:counts], sources, launch)

        return run

    return bind


def _fused_parameters(sizes: tuple[int, ...], of: _Sources, launch: Launch) -> None:
    """(N, C, groups; mean, rstd, gamma, beta, a, b): y = a * x + b for each channel."""
    samples, channels, groups = sizes
    shape = (samples, groups, channels // groups)
    mean, rstd = of.read(0, samples, groups, 1), of.read(1, samples, groups, 1)
    scale = (rstd * of.read_or(1.0, 2, *shape[1:])).expand(shape)
    of.write(4, scale)
    of.write(5, of.read_or(0.0, 3, *shape[1:]) - scale * mean)


def _internal_gradients(sizes: tuple[int, ...], of: _Sources, launch: Launch) -> None:
    """(HxW; dY, X, ds, db): a block for each channel of each sample."""
    (inner,), rows = sizes, launch.grid[0]
    grad, x = of.read(0, rows, inner), of.read(1, rows, inner)
    of.write(2, (grad * x).sum(1))
    of.write(3, grad.sum(1))


def _backward_parameters(sizes: tuple[int, ...], of: _Sources, launch: Launch) -> None:
    """(C, HxW, groups; mean, rstd, gamma, ds, db, c2, c3): dX = c1 * dY + c2 * X + c3."""
    channels, inner, groups = sizes
    samples, width = launch.grid[0], channels // groups
    shape, gamma = (samples, groups, width), of.read_or(1.0, 2, groups, width)
    sums = [(of.read(at, *shape) * gamma).sum(2) for at in (3, 4)]
    _write_parameters(of, (0, 1, 5, 6), sums, width * inner)


def _write_parameters(
    of: _Sources, places: tuple[int, int, int, int], sums: Sequence[Tensor], count: int
) -> None:
    """From the sums over each group of gamma * dY * X and gamma * dY."""
    shape = sums[0].shape
    mean, rstd = of.read(places[0], *shape), of.read(places[1], *shape)
    c2 = (sums[1] * mean - sums[0]) * rstd * rstd * rstd / count
    of.write(places[2], c2)
    of.write(places[3], -c2 * mean - sums[1] * rstd / count)


def _backward_parameters_1d(sizes: tuple[int, ...], of: _Sources, launch: Launch) -> None:
    """(C, groups; dY, X, mean, rstd, gamma, c2, c3), where a channel is one number."""
    channels, groups = sizes
    samples, width = launch.grid[0], channels // groups
    shape, gamma = (samples, groups, width), of.read_or(1.0, 4, groups, width)
    grad = of.read(0, *shape) * gamma
    sums = [(grad * of.read(1, *shape)).sum(2), grad.sum(2)]
    _write_parameters(of, (2, 3, 5, 6), sums, width)


def _weight_gradients(sizes: tuple[int, ...], of: _Sources, launch: Launch) -> None:
    """(N, C, groups; mean, rstd, ds, db, dgamma, dbeta)."""
    samples, channels, groups = sizes
    shape = (samples, groups, channels // groups)
    mean, rstd = of.read(0, samples, groups, 1), of.read(1, samples, groups, 1)
    ds, db = of.read(2, *shape), of.read(3, *shape)
    of.write(4, ((ds - db * mean) * rstd).sum(0))
    of.write(5, db.sum(0))


def _weight_gradients_1d(sizes: tuple[int, ...], of: _Sources, launch: Launch) -> None:
    """(N, C, groups; dY, X, mean, rstd, dgamma, dbeta), where a channel is one number."""
    samples, channels, groups = sizes
    shape = (samples, groups, channels // groups)
    grad, x = of.read(0, *shape), of.read(1, *shape)
    mean, rstd = of.read(2, samples, groups, 1), of.read(3, samples, groups, 1)
    of.write(4, ((grad * x - grad * mean) * rstd).sum(0))
    of.write(5, grad.sum(0))


FAMILY: Family = [
    (re.compile(rf"\b{name}<"), _binder(name, counts, compute))
    for name, counts, compute in (
        ("ComputeFusedParamsCUDAKernel", 3, _fused_parameters),
        ("ComputeInternalGradientsCUDAKernel", 1, _internal_gradients),
        ("ComputeBackwardFusedParamsCUDAKernel", 3, _backward_parameters),
        ("Compute1dBackwardFusedParamsCUDAKernel", 2, _backward_parameters_1d),
        ("GammaBetaBackwardCUDAKernel1", 3, _weight_gradients),
        ("GammaBetaBackwardCUDAKernel2", 3, _weight_gradients),
        ("GammaBeta1dBackwardCUDAKernel1", 3, _weight_gradients_1d),
        ("GammaBeta1dBackwardCUDAKernel2", 3, _weight_gradients_1d),
    )
]
