"""Depthwise convolutions, which PyTorch does without cuDNN: a filter for every channel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch.nn.grad

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import unpacker
from .axes import Accessor
from .names import dtype, template_arguments
from .pooling import ACCUMULATORS

Tensor = torch.Tensor
Pair = tuple[int, int]

_conv2d_input: Any = torch.nn.grad.conv2d_input
_conv2d_weight: Any = torch.nn.grad.conv2d_weight
_conv3d_input: Any = torch.nn.grad.conv3d_input
_conv3d_weight: Any = torch.nn.grad.conv3d_weight
_IMAGE, _VOLUME, _BIAS = Accessor(4, 4), Accessor(5, 4), Accessor(1, 4)


def _bind_forward(kernel: KernelInfo) -> Run:
    """conv_depthwise2d_forward_kernel, ..._generic: (in, out, weight, bias, has bias, sizes)."""
    read = _Images(kernel, "conv_depthwise2d_forward_kernel")
    unpack = unpacker(kernel, "ssss?" + "i" * 15)
    bias_at, bias_size = kernel.params[3]
    if bias_size != _BIAS.size:
        raise UnsupportedKernel(f"a bias of {bias_size} bytes")

    def run(launch: Launch) -> None:
        *_, has_bias = (values := unpack(launch.args))[:5]
        stride, padding, dilation = _movement(values)
        operand, place, weight = read(launch)
        bias = _BIAS.view(launch.args, bias_at, launch.memory, read.element) if has_bias else None
        wide_bias = bias if bias is None else bias.to(read.wide)
        channels = operand.shape[1]
        place.copy_(
            F.conv2d(
                operand.to(read.wide), weight.to(read.wide), wide_bias, stride, padding, dilation,
                channels,
            )
        )  # fmt: skip

    return run


def _bind_input(kernel: KernelInfo) -> Run:
    """conv_depthwise2d_backward_kernel: (grad, grad of in, weight, sizes)."""
    read = _Images(kernel, "conv_depthwise2d_backward_kernel")
    unpack = unpacker(kernel, "sss" + "i" * 16)

    def run(launch: Launch) -> None:
        moves = _movement(unpack(launch.args))
        grad, place, weight = read(launch)
        wide, size = read.wide, place.shape
        place.copy_(_conv2d_input(size, weight.to(wide), grad.to(wide), *moves, groups=size[1]))

    return run


def _bind_weight(kernel: KernelInfo) -> Run:
    """conv_depthwise2d_grad_weight_kernel: (grad, in, grad of weight, sizes)."""
    read = _Images(kernel, "conv_depthwise2d_grad_weight_kernel")
    unpack = unpacker(kernel, "sss" + "i" * 16)

    def run(launch: Launch) -> None:
        moves = _movement(unpack(launch.args))
        grad, operand, place = read(launch)
        wide, size, groups = read.wide, place.shape, operand.shape[1]
        place.copy_(_conv2d_weight(operand.to(wide), size, grad.to(wide), *moves, groups=groups))

    return run


class _Images:
    """Reads the three accessors that come first; ``wide`` is what sums are kept in."""

    def __init__(self, kernel: KernelInfo, name: str, accessor: Accessor = _IMAGE) -> None:
        match = re.search(name + r"\w*", kernel.demangled)
        assert match is not None
        kinds = template_arguments(kernel.demangled, match[0])
        self.element = dtype(kinds[0 if accessor is _VOLUME else -2])
        self._accessor = accessor
        self.wide = ACCUMULATORS.get(self.element, self.element)
        self._starts = [start for start, _ in kernel.params[:3]]
        if any(size != accessor.size for _, size in kernel.params[:3]):
            raise UnsupportedKernel(f"accessors of other sizes: {kernel.params[:3]}")

    def __call__(self, launch: Launch) -> list[Tensor]:
        view, memory = self._accessor.view, launch.memory
        return [view(launch.args, start, memory, self.element) for start in self._starts]


def _movement(values: Sequence[int]) -> tuple[Pair, Pair, Pair]:
    """Stride, padding and dilation, which come last; each is given as width, height."""
    sw, sh, pw, ph, dw, dh = values[-6:]
    return (sh, sw), (ph, pw), (dh, dw)


def _bind_volume_forward(kernel: KernelInfo) -> Run:
    """conv_depthwise3d_cuda_kernel: (in, out, weight, bias or 0, stride, padding, dilation)."""
    read = _Images(kernel, "conv_depthwise3d_cuda_kernel", _VOLUME)
    unpack = unpacker(kernel, "xxxQ" + "i" * 9)

    def run(launch: Launch) -> None:
        bias_at, *moves = unpack(launch.args)
        operand, place, weight = read(launch)
        filters, wide = (len(weight),), read.wide
        bias = (
            launch.memory.view(bias_at, read.element, filters, (1,)).to(wide) if bias_at else None
        )
        result = F.conv3d(
            operand.to(wide), weight.to(wide), bias, *_triples(moves), groups=operand.shape[1]
        )
        place.copy_(result)

    return run


def _bind_volume_input(kernel: KernelInfo) -> Run:
    """conv_depthwise3d_cuda_backward_input_kernel: (grad, grad of in, weight, moves)."""
    read = _Images(kernel, "conv_depthwise3d_cuda_backward_input_kernel", _VOLUME)
    unpack = unpacker(kernel, "xxx" + "i" * 9)

    def run(launch: Launch) -> None:
        moves = _triples(unpack(launch.args))
        grad, place, weight = read(launch)
        wide, size = read.wide, place.shape
        place.copy_(_conv3d_input(size, weight.to(wide), grad.to(wide), *moves, groups=size[1]))

    return run


def _bind_volume_weight(kernel: KernelInfo) -> Run:
    """conv_depthwise3d_cuda_backward_weight_kernel: (grad, in, grad of weight, moves)."""
    read = _Images(kernel, "conv_depthwise3d_cuda_backward_weight_kernel", _VOLUME)
    unpack = unpacker(kernel, "xxx" + "i" * 9)

    def run(launch: Launch) -> None:
        moves = _triples(unpack(launch.args))
        grad, operand, place = read(launch)
        wide, size, groups = read.wide, place.shape, operand.shape[1]
        place.copy_(_conv3d_weight(operand.to(wide), size, grad.to(wide), *moves, groups=groups))

    return run


def _triples(moves: Sequence[int]) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Stride, padding and dilation."""
    return moves[:3], moves[3:6], moves[6:]


FAMILY: Family = [
    (re.compile(r"\bconv_depthwise2d_forward_kernel(_generic)?<"), _bind_forward),
    (re.compile(r"\bconv_depthwise2d_backward_kernel<"), _bind_input),
    (re.compile(r"\bconv_depthwise2d_grad_weight_kernel<"), _bind_weight),
    (re.compile(r"\bconv_depthwise3d_cuda_kernel<"), _bind_volume_forward),
    (re.compile(r"\bconv_depthwise3d_cuda_backward_input_kernel<"), _bind_volume_input),
    (re.compile(r"\bconv_depthwise3d_cuda_backward_weight_kernel<"), _bind_volume_weight),
]
