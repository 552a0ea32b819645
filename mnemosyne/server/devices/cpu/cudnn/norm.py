"""cuDNN's batch normalisation on the CPU device.

Statistics are over the dimensions in which the parameters have one element: all but the channels,
or the batch alone (cudnnBatchNormMode_t). Source: cudnn_ops.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.cudnn.graph import dtype_of
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Handlers, Outputs


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor as its descriptor has it; an address makes it a tensor."""

    dtype: torch.dtype
    sizes: list[int]
    strides: list[int]

    @classmethod
    def of(cls, raw: list[Any]) -> Shape:
        """From [type, sizes, strides]. Raises ProtocolError and CallError."""
        if not raw:
            raise CallError(INVALID_VALUE, "a batch norm without a tensor descriptor")
        try:
            kind, sizes, strides = raw
            numbers = [*sizes, *strides]
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"a malformed tensor descriptor ({error})") from None
        if any(type(n) is not int for n in (kind, *numbers)) or len(sizes) != len(strides):
            raise ProtocolError("a tensor descriptor is not [type, sizes, strides]")
        if len(sizes) < 2 or any(n < 0 for n in numbers):
            raise CallError(INVALID_VALUE, f"a tensor of {sizes} with strides {strides}")
        return cls(dtype_of(kind), sizes, strides)

    def at(self, s: CpuSession, pointer: int) -> torch.Tensor:
        return s.memory.view(pointer, self.dtype, self.sizes, self.strides)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def _over(x: Shape, param: Shape) -> list[int]:
    """The dimensions that statistics are over. Raises CallError when the shapes do not fit."""
    pairs = list(enumerate(zip(x.sizes, param.sizes, strict=False)))
    if len(x.sizes) != len(param.sizes) or any(m not in (1, n) for _, (n, m) in pairs):
        raise CallError(INVALID_VALUE, f"a batch norm of {x.sizes} by {param.sizes}")
    return [at for at, (_, m) in pairs if m == 1 and at != 1]


def _blend(out: torch.Tensor, value: torch.Tensor, alpha: float, beta: float) -> None:
    out.copy_(alpha * value + beta * out if beta else alpha * value)


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
    values = _wide(shape.at(s, x))
    variance, mean = torch.var_mean(values, over, correction=0, keepdim=True)
    inverse = (variance + epsilon).rsqrt()
    result = (values - mean) * (inverse * param.at(s, scale)) + param.at(s, bias)
    _blend(Shape.of(y_desc).at(s, y), result, alpha, beta)
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
    result = (_wide(shape.at(s, x)) - param.at(s, mean)) * factor + param.at(s, bias)
    _blend(Shape.of(y_desc).at(s, y), result, alpha, beta)
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
    values, grad = _wide(shape.at(s, x)), _wide(Shape.of(dy_desc).at(s, dy))
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
    _blend(Shape.of(dx_desc).at(s, dx), result, alpha_data, beta_data)
    _blend(param.at(s, dbias), sums[0], alpha_param, beta_param)
    _blend(param.at(s, dscale), sums[1], alpha_param, beta_param)
    return None


HANDLERS: Handlers = {
    "cudnn_batch_norm_room": _room,
    "cudnn_batch_norm_training": _training,
    "cudnn_batch_norm_inference": _inference,
    "cudnn_batch_norm_backward": _backward,
}
