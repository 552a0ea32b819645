"""Cross products of vectors that lie along any dimension."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .structs import OffsetCalculator

_CALCULATOR = OffsetCalculator(3)


def _bind(kernel: KernelInfo) -> Run:
    """cross_kernel: (n, out, a, b, where the vectors begin, steps from component to component)."""
    element = dtype(template_arguments(kernel.demangled, "cross_kernel")[0])
    unpack = unpacker(kernel, "iQQQxnnn")
    at, size = kernel.params[4]
    if size != _CALCULATOR.size:
        raise UnsupportedKernel(f"an offset calculator of {size} bytes")

    def run(launch: Launch) -> None:
        _, *pointers_and_steps = unpack(launch.args)
        sizes, strides = _CALCULATOR.read(launch.args, at)
        target, a, b = (
            launch.memory.view(pointer, element, (*sizes, 3), (*inner, step))
            for pointer, step, inner in zip(
                pointers_and_steps[:3], pointers_and_steps[3:], strides, strict=True
            )
        )
        torch.linalg.cross(a, b, out=target)

    return run


FAMILY: Family = [(re.compile(r"\bcross_kernel<"), _bind)]
