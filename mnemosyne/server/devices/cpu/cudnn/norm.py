"""cuDNN's batch normalisation on the CPU device.

Statistics are over the dimensions in which the parameters have one element: all but the channels,
or the batch alone (cudnnBatchNormMode_t). Source: cudnn_ops.h.
"""

from __future__ import annotations

from typing import Any

import torch

from mnemosyne.server.devices.cpu.cudnn.shapes import Shape, blend, wide
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Handlers, Outputs


def _over(x: Shape, param: Shape) -> list[int]:
    """The dimensions that statistics are over. Raises CallError when the shapes do not fit."""
    pairs = list(enumerate(zip(x.sizes, param.sizes, strict=False)))
    if len(x.sizes) != len(param.sizes) or any(m not in (1, n) for _, (n, m) in pairs):
        raise CallError(INVALID_VALUE, f"a batch norm of {x.sizes} by {param.sizes}")
    return [at for at, (_, m) in pairs if m == 1 and at != 1]


def _room(s: CpuSession, handle: int, stream: int, room: int, mode: int, x: list[Any]) -> Outputs:
    """Nothing is kept between forward and backward, and no scratch memory is needed."""
    s.check_cudnn(handle, stream)
    Shape.of(x)
    return (0,)


def _training(
    s: CpuSession, handle: int, stream: int, mode: int, alpha: float, beta: float,
    x_desc: list[Any], x: int, y_desc: list[Any], y: int, param_desc: list[Any], scale: int,
    bias: int, factor: float, running_mean: int, running_variance: int, epsilon: float,
    saved_mean: int, saved_inverse: int, *rooms: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    shape, param = Shape.of(x_desc), Shape.of(param_desc)
    over = _over(shape, param)
    values = wide(shape.at(s, x))
    variance, mean = torch.var_mean(values, over, correction=0, keepdim=True)
    inverse = (variance + epsilon).rsqrt()
    result = (values - mean) * (inverse * param.at(s, scale)) + param.at(s, bias)
    blend(Shape.of(y_desc).at(s, y), result, alpha, beta)
    count = values.numel() // max(1, mean.numel())
    unbiased = variance * (count / max(1, count - 1))
    for pointer, new in ((running_mean, mean), (running_variance, unbiased)):
        if pointer:
            old = param.at(s, pointer)
            old.copy_(old * (1 - factor) + new * factor)
    for pointer, value in ((saved_mean, mean), (saved_inverse, inverse)):
        if pointer:
            param.at(s, pointer).copy_(value)
    return None


def _inference(
    s: CpuSession, handle: int, stream: int, mode: int, alpha: float, beta: float,
    x_desc: list[Any], x: int, y_desc: list[Any], y: int, param_desc: list[Any], scale: int,
    bias: int, mean: int, variance: int, epsilon: float,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    shape, param = Shape.of(x_desc), Shape.of(param_desc)
    _over(shape, param)
    factor = (param.at(s, variance) + epsilon).rsqrt() * param.at(s, scale)
    result = (wide(shape.at(s, x)) - param.at(s, mean)) * factor + param.at(s, bias)
    blend(Shape.of(y_desc).at(s, y), result, alpha, beta)
    return None


def _backward(
    s: CpuSession, handle: int, stream: int, mode: int, alpha_data: float, beta_data: float,
    alpha_param: float, beta_param: float, x_desc: list[Any], x: int, dy_desc: list[Any], dy: int,
    dx_desc: list[Any], dx: int, param_desc: list[Any], scale: int, dscale: int, dbias: int,
    epsilon: float, saved_mean: int, saved_inverse: int, *rooms: int,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    shape, param = Shape.of(x_desc), Shape.of(param_desc)
    over = _over(shape, param)
    values, grad = wide(shape.at(s, x)), wide(Shape.of(dy_desc).at(s, dy))
    if saved_mean and saved_inverse:
        mean, inverse = param.at(s, saved_mean), param.at(s, saved_inverse)
    else:
        variance, mean = torch.var_mean(values, over, correction=0, keepdim=True)
        inverse = (variance + epsilon).rsqrt()
    normal = (values - mean) * inverse
    sums = grad.sum(over, keepdim=True), (grad * normal).sum(over, keepdim=True)
    count = values.numel() // max(1, sums[0].numel())
    centred = grad - (sums[0] + normal * sums[1]) / max(1, count)
    result = centred * (inverse * param.at(s, scale))
    blend(Shape.of(dx_desc).at(s, dx), result, alpha_data, beta_data)
    blend(param.at(s, dbias), sums[0], alpha_param, beta_param)
    blend(param.at(s, dscale), sums[1], alpha_param, beta_param)
    return None


HANDLERS: Handlers = {
    "cudnn_batch_norm_room": _room,
    "cudnn_batch_norm_training": _training,
    "cudnn_batch_norm_inference": _inference,
    "cudnn_batch_norm_backward": _backward,
}
