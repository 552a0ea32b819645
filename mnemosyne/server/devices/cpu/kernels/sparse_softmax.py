"""Softmax of COO tensors along a sparse dimension, and its gradient.

How this works. Elements that differ in that dimension alone make a pool: they have the same
offset, a number that leaves the dimension out. Elements are sorted by offset, pools are counted and
their greatest values found; then each pool is a softmax of its own, and each column of its values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .loops import accessor, functor_reader
from .names import dtype, pointed, template_arguments
from .runs import run_starts

_OFFSETS = struct.Struct("<40x3q")
_POOLS = struct.Struct("<48x5q")
_WORD = struct.Struct("<q")


def _bind_offsets(kernel: KernelInfo) -> Run:
    """get_offsets: (n, -, (indices, factors, the dimension left out, dimensions), out, first).

    The dimension is -1 where none is left out.
    """
    unpack = unpacker(kernel, "nisQs")
    if kernel.params[2][1] != _OFFSETS.size:
        raise UnsupportedKernel(f"a functor of {kernel.params[2][1]} bytes, not {_OFFSETS.size}")

    def run(launch: Launch) -> None:
        count, _, functor, target, _ = unpack(launch.args)
        factors_at, left_out, dims = _OFFSETS.unpack(functor)
        indices = accessor(launch.memory, torch.int64, functor, 0)
        factors = launch.memory.view(factors_at, torch.int64, (dims,), (1,)).clone()
        if left_out >= 0:
            factors[left_out] = 0
        offsets = (indices * factors[:, None]).sum(0)
        launch.memory.view(target, torch.int64, (count,), (1,)).copy_(offsets)

    return run


def _bind_pool_sizes(kernel: KernelInfo) -> Run:
    """ReduceByKeyAgent: (elements, one, -, sizes, number of pools, -, offsets, -, n, -)."""
    counter = pointed(template_arguments(kernel.demangled, "ReduceByKeyAgent")[6])
    unpack = unpacker(kernel, "QsxQQxsxnx")

    def run(launch: Launch) -> None:
        order_at, one, target, number, functor, count = unpack(launch.args)
        view = launch.memory.view
        order = view(order_at, torch.int64, (count,), (1,))
        offsets = view(_WORD.unpack(functor)[0], torch.int64, (count,), (1,))
        starts = run_starts(offsets[order])
        sizes = torch.diff(starts, append=starts.new_tensor([count])) * _WORD.unpack_from(one, 8)[0]
        view(target, torch.int64, sizes.shape, (1,)).copy_(sizes)
        view(number, counter, (), ()).fill_(len(sizes))

    return run


def _bind_scratch(kernel: KernelInfo) -> Run:
    """Prepares scratch memory."""

    def run(launch: Launch) -> None:
        return None

    return run


class _Pools:
    """The elements in order of their pools, and the pool of each."""

    def __init__(self, memory: Memory, order_at: int, sizes_at: int, count: int) -> None:
        sizes = memory.view(sizes_at, torch.int64, (count,), (1,))
        self.order = memory.view(order_at, torch.int64, (int(sizes.sum()),), (1,))
        self.pool = torch.repeat_interleave(sizes)

    def sums(self, rows: Tensor, count: int) -> Tensor:
        """Of each element the sum of its pool."""
        return rows.new_zeros((count, rows.shape[1])).index_add_(0, self.pool, rows)[self.pool]


def _bind_greatest(kernel: KernelInfo) -> Run:
    """compute_pool_max's loop: (pools, (first, values, elements, sizes, starts, out, row size))."""
    kind = dtype(template_arguments(kernel.demangled, "compute_pool_max")[0])
    read = functor_reader(kernel, _POOLS.size)

    def run(launch: Launch) -> None:
        count, functor = read(launch.args)
        order_at, sizes_at, _, target, size = _POOLS.unpack(functor)
        pools = _Pools(launch.memory, order_at, sizes_at, count)
        values = accessor(launch.memory, kind, functor, 8)[pools.order]
        which = pools.pool[:, None].expand_as(values)
        greatest = launch.memory.view(target, kind, (count, size), (size, 1))
        greatest.scatter_reduce_(0, which, values, "amax")

    return run


def _bind_softmax(kernel: KernelInfo) -> Run:
    """(elements, pools, sizes, starts, row size, greatest values, values, out)."""
    kind, logarithm = template_arguments(kernel.demangled, "cuda_sparse_coo_softmax_kernel")
    element, inputs = dtype(kind), kernel.params[6:]
    unpack = unpacker(kernel, "QqQQqQss")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        order_at, count, sizes_at, _, size, greatest_at, *_ = unpack(args)
        pools = _Pools(memory, order_at, sizes_at, count)
        values, target = (accessor(memory, element, args, at) for at, _ in inputs)
        greatest = memory.view(greatest_at, element, (count, size), (size, 1))
        shifted = values[pools.order] - greatest[pools.pool]
        sums = pools.sums(shifted.exp(), count)
        target[pools.order] = shifted - sums.log() if logarithm == "true" else shifted.exp() / sums

    return run


def _bind_backward(kernel: KernelInfo) -> Run:
    """(elements, pools, sizes, starts, row size; gradients, their offsets, offsets, the gradient
    of each element; the result, softmax, gradients' values).

    An element may have no gradient.
    """  # fmt: skip
    name = "cuda_sparse_coo_softmax_backward_kernel"
    kind, logarithm = template_arguments(kernel.demangled, name)
    element, tensors = dtype(kind), kernel.params[9:]
    unpack = unpacker(kernel, "QqQQqqQQQsss")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        order_at, count, sizes_at, _, _, _, *places, _, _, _ = unpack(args)
        pools = _Pools(memory, order_at, sizes_at, count)
        result, out, grad = (accessor(memory, element, args, at) for at, _ in tensors)
        out = out[pools.order]
        own = _gradients(memory, grad, places, len(result))[pools.order]
        total = pools.sums(own if logarithm == "true" else out * own, count)
        result[pools.order] = (
            own - out.exp() * total if logarithm == "true" else out * (own - total)
        )

    return run


def _gradients(memory: Memory, grad: Tensor, places: list[int], count: int) -> Tensor:
    """Of each element its gradient, or zero."""
    offsets_at, own_at, which_at = places
    own, which = (memory.view(at, torch.int64, (count,), (1,)) for at in (own_at, which_at))
    which = which.clamp(max=len(grad) - 1)
    same = memory.view(offsets_at, torch.int64, (len(grad),), (1,))[which] == own
    return torch.where(same[:, None], grad[which], grad.new_zeros(()))


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\btransform_kernel<.*\bget_offsets\(", _bind_offsets),
    (r"\bReduceByKeyAgent<.*\bcompute_pool_max<.*\{lambda\(long, long\)#2\}", _bind_pool_sizes),
    (r"\b__reduce_by_key::InitAgent<", _bind_scratch),
    (r"\bfor_each::static_kernel<.*\bcompute_pool_max<", _bind_greatest),
    (r"\bcuda_sparse_coo_softmax_kernel<", _bind_softmax),
    (r"\bcuda_sparse_coo_softmax_backward_kernel<", _bind_backward),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
