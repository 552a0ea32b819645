"""Triangles of matrices: tril and triu, in place or not, and the coordinates of their elements."""

from __future__ import annotations

import re

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


FAMILY: Family = ((re.compile(r"\btriu_tril_kernel<"), _bind_triangle),)
