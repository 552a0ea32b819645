"""COO tensors: equal indices added up, sums with dense tensors, sums' gradients.

How this works. An element is a row of values: a number, or a dense tensor. Indices are int64.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .embedding_sorted import add_parts
from .names import dtype, template_arguments
from .structs import TensorInfo, check_tensor_infos, read_tensor_info, scalar

_WIDTH = 8  # bytes of the index type of TensorInfo, everywhere in this file


def _bind_coalesce(kernel: KernelInfo) -> Run:
    """coalesceValuesKernel: (runs' starts, order, values, sums, n, runs, row size).

    Truth values are not added but joined.
    """
    kind, wide = map(dtype, template_arguments(kernel.demangled, "coalesceValuesKernel"))
    wide = torch.uint8 if wide == torch.bool else wide
    unpack = unpacker(kernel, "QQQQqqq")

    def run(launch: Launch) -> None:
        starts_at, order_at, source, target, count, runs, size = unpack(launch.args)
        view = launch.memory.view
        starts = view(starts_at, torch.int64, (runs,), (1,))
        order = view(order_at, torch.int64, (count,), (1,))
        rows = view(source, kind, (count, size), (size, 1)).to(wide)[order]
        sums = _joined(rows, starts) if kind == torch.bool else add_parts(rows, starts)
        view(target, kind, sums.shape, (size, 1)).copy_(sums)

    return run


def _joined(rows: Tensor, starts: Tensor) -> Tensor:
    return add_parts(rows.long(), starts) != 0


def _bind_add_to_dense(kernel: KernelInfo) -> Run:
    """sparseElementwiseKernel...: (factor; dense; indices; values; n): dense += factor * values.

    Of the kernel that ends with Scalar, a row is one number.
    """
    match = re.search(r"sparseElementwiseKernel(Scalar)?", kernel.demangled)
    assert match is not None
    operator, _, kind = template_arguments(kernel.demangled, match[0])
    if "TensorCAddOp<" not in operator:
        raise UnsupportedKernel(f"a sum of dense and sparse by {operator}")
    element, infos = dtype(kind), check_tensor_infos(kernel, 3, _WIDTH, first=1)
    unpacker(kernel, "ssssn")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        dense, indices, values = (read_tensor_info(args, at, _WIDTH) for at in infos)
        count, step = indices.sizes[1], values.strides[0]
        size = 1 if match[1] else step
        shape = dense.sizes[: indices.sizes[0]]
        rows = _flat(memory, indices, shape)
        source = memory.view(values.data, element, (count, size), (step, 1))
        target = memory.view(dense.data, element, (int(rows.max()) + 1, size), (size, 1))
        target[rows] = _plus(target[rows], source, scalar(args, 0, element))

    return run


def _flat(memory: Memory, indices: TensorInfo, shape: tuple[int, ...]) -> Tensor:
    """The place of each element in a contiguous tensor."""
    table = memory.view(indices.data, torch.int64, indices.sizes, indices.strides)
    flat = torch.zeros(indices.sizes[1], dtype=torch.int64)
    for size, row in zip(shape, table, strict=True):
        flat = flat * size + row
    return flat


def _plus(target: Tensor, source: Tensor, factor: complex) -> Tensor:
    if target.dtype == torch.bool:
        return target | source if factor else target
    return target + factor * source


def _bind_sum_backward(kernel: KernelInfo) -> Run:
    """_sparse_sum_backward_cuda_kernel: what was added up gets its sum's gradient, or zero.

    Arguments: n; the gradient's numbers; the input's; the place of each in the first; values of the
    gradient; those of the input's gradient.
    """
    kind = dtype(template_arguments(kernel.demangled, "_sparse_sum_backward_cuda_kernel")[0])
    infos = check_tensor_infos(kernel, 5, _WIDTH, first=1)
    unpack = unpacker(kernel, "qsssss")

    def run(launch: Launch) -> None:
        args, view = launch.args, launch.memory.view
        grad, own, places, source, target = (read_tensor_info(args, at, _WIDTH) for at in infos)
        count, most, size = unpack(args)[0], grad.sizes[0], target.strides[0]
        numbers = view(own.data, torch.int64, (count,), (1,))
        where = view(places.data, torch.int64, (count,), (1,)).clamp(max=most - 1)
        same = view(grad.data, torch.int64, (most,), (1,))[where] == numbers
        values = view(source.data, kind, (most, size), (source.strides[0], 1))[where]
        result = torch.where(same[:, None], values, values.new_zeros(()))
        view(target.data, kind, (count, size), (size, 1)).copy_(result)

    return run


def _bind_matrix_ends(kernel: KernelInfo) -> Run:
    """search_end_matrix_indices_cuda_kernel: (out, matrices, sorted numbers, n): their ends."""
    unpack = unpacker(kernel, "QqQq")

    def run(launch: Launch) -> None:
        target, matrices, source, count = unpack(launch.args)
        numbers = launch.memory.view(source, torch.int64, (count,), (1,))
        ends = launch.memory.view(target, torch.int64, (matrices,), (1,))
        ends.copy_(torch.searchsorted(numbers, torch.arange(matrices), right=True))

    return run


_BINDERS: tuple[tuple[str, Callable[[KernelInfo], Run]], ...] = (
    (r"\bcoalesceValuesKernel<", _bind_coalesce),
    (r"\bsparseElementwiseKernel(Scalar)?<", _bind_add_to_dense),
    (r"\b_sparse_sum_backward_cuda_kernel<", _bind_sum_backward),
    (r"\bsearch_end_matrix_indices_cuda_kernel\(", _bind_matrix_ends),
)
FAMILY: Family = [(re.compile(pattern), binder) for pattern, binder in _BINDERS]
