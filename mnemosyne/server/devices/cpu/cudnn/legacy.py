"""cuDNN's older convolutions and pooling on the CPU device.

There is one algorithm for each direction, without a workspace. Source: cudnn_cnn.h, cudnn_ops.h.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from mnemosyne.server.devices.cpu.cudnn.convolution import (
    Compute,
    Movement,
    check_sizes,
    filter_gradient,
    forward,
    image_gradient,
)
from mnemosyne.server.devices.cpu.cudnn.graph import compute_dtype
from mnemosyne.server.devices.cpu.cudnn.shapes import Shape, blend, fields, filter_shape, wide
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs

_FORWARD = 0
#: By direction: what is computed, and which of x, w and y it is.
_DIRECTIONS: dict[int, tuple[Compute, int]] = {
    _FORWARD: (forward, 2), 1: (image_gradient, 0), 2: (filter_gradient, 1),
}  # fmt: skip

_ALGORITHM = 1  # of every direction: PyTorch's own choice
_DETERMINISTIC = 1  # cudnnDeterminism_t
_NOT_MEASURED = -1.0  # milliseconds

_FLIPPED = 0  # cudnnConvolutionMode_t: CUDNN_CONVOLUTION
#: cudnnActivationMode_t; what follows a convolution.
_ACTIVATIONS = {1: torch.relu, 5: torch.clone}

_Shapes = tuple[Shape, Shape, Shape]


def _read(
    convolution: list[Any], x: list[Any], w: list[Any], y: list[Any]
) -> tuple[Movement, _Shapes]:
    """Raises ProtocolError, and CallError unless image, filter and output fit together."""
    kinds = [int, int, int, int, list, list, list]
    mode, kind, groups, _, pads, strides, dilations = fields(
        convolution, "a convolution descriptor", kinds
    )
    padding = tuple(pads)
    movement = Movement(
        compute_dtype(kind), mode == _FLIPPED, tuple(strides), tuple(dilations), padding, padding
    )
    shapes = Shape.of(x), filter_shape(w), Shape.of(y)
    if len({len(pads), len(strides), len(dilations)}) != 1:
        raise CallError(INVALID_VALUE, "a convolution whose lists differ in length")
    check_sizes(movement, *shapes)
    if shapes[0].sizes[1] != groups * shapes[1].sizes[1]:
        raise CallError(INVALID_VALUE, f"a convolution of {groups} groups")
    return movement, shapes


def _direction(number: int) -> tuple[Compute, int]:
    found = _DIRECTIONS.get(number)
    if found is None:
        raise CallError(INVALID_VALUE, f"a convolution in direction {number}")
    return found


def _algorithms(
    s: CpuSession, handle: int, stream: int, direction: int, requested: int,
    convolution: list[Any], *operands: list[Any],
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    _direction(direction)
    _read(convolution, *operands)
    math = convolution[3]
    return ([[_ALGORITHM, 0, _NOT_MEASURED, 0, _DETERMINISTIC, math]],)


def _room(
    s: CpuSession, handle: int, stream: int, direction: int, algorithm: int,
    convolution: list[Any], *operands: list[Any],
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    _direction(direction)
    _read(convolution, *operands)
    return (0,)


def _convolve(
    s: CpuSession, handle: int, stream: int, direction: int, algorithm: int, alpha: float,
    beta: float, convolution: list[Any], x_desc: list[Any], x: int, w_desc: list[Any], w: int,
    y_desc: list[Any], y: int, *room: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    compute, result = _direction(direction)
    movement, shapes = _read(convolution, x_desc, w_desc, y_desc)
    tensors = [shape.at(s, at) for shape, at in zip(shapes, (x, w, y), strict=True)]
    found = compute(movement, *(tensor.to(movement.compute) for tensor in tensors))
    blend(tensors[result], found, alpha, beta)
    return None


def _fused(
    s: CpuSession, handle: int, stream: int, algorithm: int, alpha: float, alpha_z: float,
    convolution: list[Any], x_desc: list[Any], x: int, w_desc: list[Any], w: int,
    z_desc: list[Any], z: int, bias_desc: list[Any], bias: int, activation: list[Any],
    coefficient: float, y_desc: list[Any], y: int, *room: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    movement, shapes = _read(convolution, x_desc, w_desc, y_desc)
    mode, *_ = fields(activation, "an activation descriptor", [int, int])
    then = _ACTIVATIONS.get(mode)
    if then is None:
        raise CallError(NOT_SUPPORTED, f"a convolution with cuDNN's activation {mode}")
    tensors = [shape.at(s, at) for shape, at in zip(shapes, (x, w, y), strict=True)]
    found = forward(movement, *(tensor.to(movement.compute) for tensor in tensors)) * alpha
    if alpha_z:
        found += alpha_z * Shape.of(z_desc).at(s, z)
    tensors[2].copy_(then(found + Shape.of(bias_desc).at(s, bias)))
    return None


#: cudnnPoolingMode_t, but for maxima: whether zeros of the padding count.
_AVERAGES = {1: True, 2: False}
_MAXIMA = (0, 3)


def _pool(
    s: CpuSession, handle: int, stream: int, pooling: list[Any], alpha: float, beta: float,
    x_desc: list[Any], x: int, y_desc: list[Any], y: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    mode, _, *moves = fields(pooling, "a pooling descriptor", [int] * 8)
    window, pads, strides = moves[:2], moves[2:4], moves[4:]
    image, out = Shape.of(x_desc), Shape.of(y_desc)
    if len(image.sizes) != 4 or min(*window, *strides) < 1 or min(pads) < 0:
        raise CallError(INVALID_VALUE, f"pooling of {image.sizes} by {moves}")
    values = wide(image.at(s, x))
    if mode in _MAXIMA:
        padded = F.pad(values, (pads[1], pads[1], pads[0], pads[0]), value=-torch.inf)
        found = F.max_pool2d(padded, window, strides)
    elif mode in _AVERAGES:
        found = F.avg_pool2d(values, window, strides, pads, False, _AVERAGES[mode])
    else:
        raise CallError(INVALID_VALUE, f"cuDNN's pooling mode {mode}")
    if tuple(found.shape) != out.sizes:
        raise CallError(INVALID_VALUE, f"pooling of {image.sizes} by {moves} to {out.sizes}")
    blend(out.at(s, y), found, alpha, beta)
    return None


HANDLERS: Handlers = {
    "cudnn_convolution_algorithms": _algorithms,
    "cudnn_convolution_room": _room,
    "cudnn_convolution": _convolve,
    "cudnn_convolution_fused": _fused,
    "cudnn_pooling": _pool,
}
