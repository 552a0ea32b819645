"""Triangles of matrices: tril and triu, in place or not, and the coordinates of their elements."""

from __future__ import annotations

import re
from math import isqrt

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import raw_type
from .structs import check_tensor_infos, read_tensor_info


def _bind_triangle(kernel: KernelInfo) -> Run:
    """triu_tril_kernel<T, index, upper, elements, inplace>(result, self, k, size, row size)."""
    kind, index, upper, *_ = template_arguments(kernel.demangled, "triu_tril_kernel")
    element, index_bytes = raw_type(kind), dtype(index).itemsize
    second = check_tensor_infos(kernel, 2, index_bytes)[1]
    unpack = unpacker(kernel, "ssqqn")
    function = torch.triu if upper == "true" else torch.tril

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        _, _, diagonal, _, _ = unpack(args)
        target = read_tensor_info(args, 0, index_bytes)
        source = read_tensor_info(args, second, index_bytes)
        operand = memory.view(source.data, element, source.sizes, source.strides)
        place = memory.view(target.data, element, target.sizes, target.strides)
        if source == target or place.is_contiguous():
            function(operand, diagonal, out=place)
        else:
            place.copy_(function(operand, diagonal))

    return run


def _bind_lower(kernel: KernelInfo) -> Run:
    """tril_indices_kernel: (out, first row, its length, columns, growing part, all elements)."""
    element = dtype(template_arguments(kernel.demangled, "tril_indices_kernel")[0])
    unpack = unpacker(kernel, "Qqqqqq")

    def run(launch: Launch) -> None:
        out, first, length, columns, growing, total = unpack(launch.args)
        twice = 2 * length - 1  # rows of length, length + 1, ...
        rows = (isqrt(twice * twice + 8 * growing) - twice) // 2 + (total - growing) // columns
        found = torch.tril_indices(rows, columns, length - 1, dtype=element)
        found[0] += first
        launch.memory.view(out, element, (2, total), (total, 1)).copy_(found)

    return run


def _bind_upper(kernel: KernelInfo) -> Run:
    """triu_indices_kernel: (out, first column, length of a row, columns, full rows, all)."""
    element = dtype(template_arguments(kernel.demangled, "triu_indices_kernel")[0])
    unpack = unpacker(kernel, "Qqqqqq")

    def run(launch: Launch) -> None:
        out, first, length, columns, full, total = unpack(launch.args)
        twice = 2 * length + 1  # rows of length, length - 1, ...
        rows = (twice - isqrt(twice * twice - 8 * (total - full))) // 2 + full // columns
        found = torch.triu_indices(rows, length, -(full // columns), dtype=element)
        found[1] += first
        launch.memory.view(out, element, (2, total), (total, 1)).copy_(found)

    return run


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\btriu_tril_kernel<", _bind_triangle),
        (r"\btril_indices_kernel<", _bind_lower),
        (r"\btriu_indices_kernel<", _bind_upper),
    )
]
