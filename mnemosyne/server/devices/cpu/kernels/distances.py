"""Distances between rows: cdist and pdist, forward and backward (DistanceKernel.cu).

How this works. Backward, a kernel writes one difference for every pair into a buffer, which PyTorch
sums; where the differences of a pair lie in the buffer is part of the contract.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments

_EXACT = "donot_use_mm_for_euclid_dist"


def _power(diff: Tensor, grad: Tensor, dist: Tensor, p: float) -> Tensor:
    """The gradient of a distance; equal rows have none, nor equal columns below power one."""
    found = diff.sign() * diff.abs().pow(p - 1) * grad / dist.pow(p - 1)
    return found.masked_fill((dist == 0) | ((diff == 0) & (p < 1)), 0)


_GRADIENTS: dict[str, Callable[[Tensor, Tensor, Tensor, float], Tensor]] = {
    "one": lambda diff, grad, dist, p: grad * diff.sign(),
    "two": lambda diff, grad, dist, p: (grad * diff / dist).masked_fill(dist == 0, 0),
    "lt_two": _power,
    "p": _power,
    "inf": lambda diff, grad, dist, p: grad * diff.sign() * (diff.abs() == dist),
}


class _Kernel:
    """The elements of a kernel, their letter, and the gradient that its name asks for."""

    def __init__(self, kernel: KernelInfo, name: str) -> None:
        kind, norm = template_arguments(kernel.demangled, name)
        self.kind = dtype(kind)
        self.code = "d" if self.kind == torch.float64 else "f"
        self.gradient = _GRADIENTS.get(norm.rsplit("::", 1)[-1], _power)


def _bind_cdist(kernel: KernelInfo) -> Run:
    """cdist_kernel_cuda_impl: (out, first, second, p, rows of second, columns, pairs, sizes)."""
    k = _Kernel(kernel, "cdist_kernel_cuda_impl")
    unpack = unpacker(kernel, f"QQQ{k.code}qqqqq")

    def run(launch: Launch) -> None:
        out, first, second, p, rows, columns, pairs, *steps = unpack(launch.args)
        batches, others = launch.grid[0] // pairs, pairs // rows
        a, b = (
            launch.memory.view(at, k.kind, (batches, n, columns), (step, columns, 1))
            for at, n, step in ((first, others, steps[0]), (second, rows, steps[1]))
        )
        place = launch.memory.view(out, k.kind, (batches, others, rows), (pairs, rows, 1))
        place.copy_(torch.cdist(a, b, p, compute_mode=_EXACT))

    return run


def _bind_cdist_backward(kernel: KernelInfo) -> Run:
    """cdist_backward_kernel_cuda_impl: the buffer is (batch, second, first, column).

    Arguments: buffer, gradient, first, second, distances, p, rows of both, columns, distances in
    all, pairs, sizes.
    """
    k = _Kernel(kernel, "cdist_backward_kernel_cuda_impl")
    unpack = unpacker(kernel, f"QQQQQ{k.code}qqqqqqq")

    def run(launch: Launch) -> None:
        out, grad, first, second, dist, p, m, n, columns, count, pairs, *steps = unpack(launch.args)
        view, batches = launch.memory.view, count // pairs
        a = view(first, k.kind, (batches, 1, m, columns), (steps[0], 0, columns, 1))
        b = view(second, k.kind, (batches, n, 1, columns), (steps[1], columns, 0, 1))
        grads, distances = (
            view(at, k.kind, (batches, n, m, 1), (pairs, 1, n, 0)) for at in (grad, dist)
        )
        sizes, strides = (batches, n, m, columns), (pairs * columns, m * columns, columns, 1)
        view(out, k.kind, sizes, strides).copy_(k.gradient(a - b, grads, distances, p))

    return run


def _bind_pdist(kernel: KernelInfo) -> Run:
    """pdist_kernel_cuda_impl: (out, rows, their number, columns, p, what finds a pair)."""
    k = _Kernel(kernel, "pdist_kernel_cuda_impl")
    unpack = unpacker(kernel, f"QQqq{k.code}dd")

    def run(launch: Launch) -> None:
        out, source, n, columns, p, _, _ = unpack(launch.args)
        rows = launch.memory.view(source, k.kind, (n, columns), (columns, 1))
        launch.memory.view(out, k.kind, (n * (n - 1) // 2,), (1,)).copy_(torch.pdist(rows, p))

    return run


def _bind_pdist_backward(kernel: KernelInfo) -> Run:
    """pdist_backward_kernel_cuda_impl: the buffer is (n - 1, row, column).

    Arguments: buffer, gradient, rows, distances, stride of the gradient, number of rows, columns,
    pairs, p, what finds a pair. For rows i < j the difference is at (j - i - 1, i), and what row j
    gets at (n - 2 - i, j).
    """
    k = _Kernel(kernel, "pdist_backward_kernel_cuda_impl")
    unpack = unpacker(kernel, f"QQQQqqqq{k.code}dd")

    def run(launch: Launch) -> None:
        out, grad, source, dist, step, n, columns, pairs, p, _, _ = unpack(launch.args)
        view = launch.memory.view
        i, j = torch.triu_indices(n, n, 1)
        rows = view(source, k.kind, (n, columns), (columns, 1))
        grads = view(grad, k.kind, (pairs, 1), (step, 0))
        distances = view(dist, k.kind, (pairs, 1), (1, 0))
        found = k.gradient(rows[i] - rows[j], grads, distances, p)
        place = view(out, k.kind, (n - 1, n, columns), (n * columns, columns, 1))
        place[j - i - 1, i] = found
        place[n - 2 - i, j] = -found

    return run


FAMILY: Family = [
    (re.compile(r"\bcdist_kernel_cuda_impl<"), _bind_cdist),
    (re.compile(r"\bcdist_backward_kernel_cuda_impl<"), _bind_cdist_backward),
    (re.compile(r"\bpdist_kernel_cuda_impl<"), _bind_pdist),
    (re.compile(r"\bpdist_backward_kernel_cuda_impl<"), _bind_pdist_backward),
]
