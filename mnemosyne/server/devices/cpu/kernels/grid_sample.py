"""Images sampled at the positions of a grid, in two and three dimensions, forward and backward."""

from __future__ import annotations

import re
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .structs import check_tensor_infos, read_tensor_info

Tensor = torch.Tensor

_FORWARD: dict[str, Any] = {"2": torch.grid_sampler_2d, "3": torch.grid_sampler_3d}
_BACKWARD: dict[str, Any] = {
    "2": torch.ops.aten.grid_sampler_2d_backward,
    "3": torch.ops.aten.grid_sampler_3d_backward,
}


def _bind_forward(kernel: KernelInfo) -> Run:
    """grid_sampler_2d_kernel, 3d: (n, in, grid, out, interpolation, padding, corners)."""
    tensors = _Tensors(kernel, 3)
    unpack = unpacker(kernel, "nsssii?")
    sample = _FORWARD[tensors.dims]

    def run(launch: Launch) -> None:
        *_, interpolation, padding, corners = unpack(launch.args)
        operand, grid = tensors.view(launch, 0), tensors.view(launch, 1)
        tensors.view(launch, 2).copy_(sample(operand, grid, interpolation, padding, corners))

    return run


def _bind_backward(kernel: KernelInfo) -> Run:
    """grid_sampler_2d_backward_kernel, 3d; adds to the input's gradient if it is wanted.

    Arguments: n, grad, in, grid, grad of in, grad of grid, interpolation, padding, corners, the
    extent of the input's gradient, whether that is wanted.
    """
    tensors = _Tensors(kernel, 5)
    unpack = unpacker(kernel, "nsssssii?n?")
    backward = _BACKWARD[tensors.dims]

    def run(launch: Launch) -> None:
        *_, interpolation, padding, corners, _, wanted = unpack(launch.args)
        operands = [tensors.view(launch, i) for i in range(3)]
        found = backward(*operands, interpolation, padding, corners, [wanted, True])
        if wanted:
            tensors.view(launch, 3).add_(found[0])
        tensors.view(launch, 4).copy_(found[1])

    return run


class _Tensors:
    """The TensorInfos behind the first argument; ``dims`` is how many dimensions are sampled."""

    def __init__(self, kernel: KernelInfo, count: int) -> None:
        match = re.search(r"grid_sampler_(\d)d_\w+", kernel.demangled)
        assert match is not None
        kind, index, *_ = template_arguments(kernel.demangled, match[0])
        self.dims = match[1]
        self._element, self._width = dtype(kind), dtype(index).itemsize
        self._starts = check_tensor_infos(kernel, count, self._width, first=1)

    def view(self, launch: Launch, i: int) -> Tensor:
        info = read_tensor_info(launch.args, self._starts[i], self._width)
        return launch.memory.view(info.data, self._element, info.sizes, info.strides)


FAMILY: Family = [
    (re.compile(r"\bgrid_sampler_[23]d_kernel<"), _bind_forward),
    (re.compile(r"\bgrid_sampler_[23]d_backward_kernel<"), _bind_backward),
]
