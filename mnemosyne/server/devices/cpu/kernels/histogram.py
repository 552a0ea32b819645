"""Histograms: bincount and histc."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, template_arguments
from .structs import TensorInfo, check_tensor_infos, read_tensor_info, scalar, tensor_info_size

#: What bounds of bins are given in; of integers it is long.
_BOUNDS = {torch.float64: torch.float64, torch.float32: torch.float32, torch.float16: torch.float32,
           torch.bfloat16: torch.float32}  # fmt: skip


def _bind(kernel: KernelInfo) -> Run:
    """kernelHistogram1D: (out, -, in, bins, least, greatest, elements, weights).

    It adds ones, or what a closure with a TensorInfo gives. The last bin includes the greatest.
    """
    out_type, in_type, index, *_ = template_arguments(kernel.demangled, "kernelHistogram1D")
    out, element, width = dtype(out_type), dtype(in_type), dtype(index).itemsize
    bound = _BOUNDS.get(element, torch.int64)
    out_at, _, in_at = check_tensor_infos(kernel, 3, width)
    unpack = unpacker(kernel, "sssqssns")
    least_at, greatest_at = kernel.params[4][0], kernel.params[5][0]
    weights_at = _weights(kernel, width)
    if kernel.params[4][1] != bound.itemsize or kernel.params[5][1] != bound.itemsize:
        raise UnsupportedKernel(f"bounds of {kernel.params[4][1]} bytes")

    def run(launch: Launch) -> None:
        args, memory = launch.args, launch.memory
        bins, count = unpack(args)[3], unpack(args)[6]
        values = _elements(memory, read_tensor_info(args, in_at, width), element).to(bound)
        least, greatest = (_number(args, at, bound) for at in (least_at, greatest_at))
        kept = (values >= least) & (values <= greatest)
        place = _bins(values[kept], bins, least, greatest)
        if weights_at is None:
            added = torch.ones(len(place), dtype=out)
        else:
            info = read_tensor_info(args, weights_at, width)
            added = _elements(memory, info, out)[:count][kept]
        target = read_tensor_info(args, out_at, width)
        memory.view(target.data, out, target.sizes, target.strides).index_add_(0, place, added)

    return run


def _weights(kernel: KernelInfo, width: int) -> int | None:
    """Where the weights' TensorInfo is, if there are weights."""
    at, size = kernel.params[7]
    if size not in (1, tensor_info_size(width)):
        raise UnsupportedKernel(f"weights in a closure of {size} bytes")
    return None if size == 1 else at


def _elements(memory: Memory, info: TensorInfo, kind: torch.dtype) -> Tensor:
    return memory.view(info.data, kind, info.sizes, info.strides).reshape(-1)


def _number(args: bytes, at: int, kind: torch.dtype) -> Tensor:
    return torch.tensor(scalar(args, at, kind), dtype=kind)


def _bins(values: Tensor, bins: int, least: Tensor, greatest: Tensor) -> Tensor:
    """Computed in the bounds' type, step by step as the kernel does."""
    scaled = (values - least) * bins
    how = None if scaled.is_floating_point() else "floor"
    place = torch.div(scaled, greatest - least, rounding_mode=how).long()
    return torch.where(place == bins, bins - 1, place)


FAMILY: Family = [(re.compile(r"\bkernelHistogram1D<"), _bind)]
