"""Sums of matrices with coefficients, which torch.matrix_exp is made of (LinearAlgebra.cu)."""

from __future__ import annotations

import re
import struct

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .names import dtype, template_arguments
from .structs import OffsetCalculator, align

_OFFSETS = OffsetCalculator(3)
_REST = struct.Struct("<QQQiii4x")


def _bind(kernel: KernelInfo) -> Run:
    """_elemwise_kernel: (elements, functor); adds.

    The functor: offsets of out, in and coefficients in bytes, their addresses, how many terms,
    the strides of terms in elements.
    """
    name = "_compute_linear_combination_internal_kernel"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    at, size = kernel.params[1]
    rest = at + align(_OFFSETS.size, 8)
    if rest + _REST.size != at + size:
        raise UnsupportedKernel(f"a functor of {size} bytes")
    width = torch.empty((), dtype=element).real.dtype

    def run(launch: Launch) -> None:
        sizes, strides = _OFFSETS.read(launch.args, at)
        out, source, factors, terms, *steps = _REST.unpack_from(launch.args, rest)
        operands = ((out, element, 0), (source, element, steps[0]), (factors, width, steps[1]))
        place, values, weights = (
            launch.memory.view(
                pointer, kind, (*sizes, terms), (*(s // kind.itemsize for s in own), step)
            )
            for (pointer, kind, step), own in zip(operands, strides, strict=True)
        )
        place[..., 0].add_((values * weights).sum(-1))

    return run


FAMILY: Family = [(re.compile(r"\b_compute_linear_combination_internal_kernel<"), _bind)]
