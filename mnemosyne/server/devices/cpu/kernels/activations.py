"""What the functors of elementwise kernels compute: activations, their gradients, losses.

As in operations.py. Constants that a lambda captures are used as they come, so that the results
have the kernels' own rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .operations import Compute, Operation

_aten = torch.ops.aten


def _threshold(x: Tensor, other: Tensor, threshold: float, value: float, out: Tensor) -> Tensor:
    """The gradient of relu, where the value is 0, has a fast operation of its own."""
    if value == 0:
        result: Tensor = _aten.threshold_backward(other, x, threshold, grad_input=out)
        return result
    return out.copy_(torch.where(x <= threshold, value, other))


def _gelu_backward(approximate: str) -> Compute:
    return lambda grad, x: _aten.gelu_backward(grad, x, approximate=approximate)


def _elu(x: Tensor, negative: float, positive: float, inner: float) -> Tensor:
    return torch.where(x > 0, x * positive, torch.expm1(x * inner) * negative)


def _elu_backward(
    grad: Tensor, x: Tensor, negative: float, positive: float, inner: float, is_result: bool
) -> Tensor:
    slope = x + negative if is_result else negative * torch.exp(x * inner)
    return torch.where(x <= 0, grad * inner * slope, grad * positive)


def _softplus(x: Tensor, beta: float, threshold: float) -> Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


def _softplus_backward(grad: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    z = torch.exp(x * beta)
    return torch.where(x * beta > threshold, grad, grad * z / (z + 1))


def _inside(x: Tensor, bound: float) -> Tensor:
    return (x >= -bound) & (x <= bound)


def _softshrink(x: Tensor, bound: float) -> Tensor:
    return torch.where(x > bound, x - bound, torch.where(x < -bound, x + bound, x * 0))


def _hardtanh_backward(grad: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    return grad.masked_fill((x <= low) | (x >= high), 0)


def _hardsigmoid(x: Tensor, zero: float, sixth: float, three: float, six: float) -> Tensor:
    return (x + three).clamp(zero, six) * sixth


def _hardsigmoid_backward(
    grad: Tensor, x: Tensor, zero: float, three: float, minus_three: float, sixth: float
) -> Tensor:
    return (grad * sixth).masked_fill((x <= minus_three) | (x >= three), zero)


def _hardswish(x: Tensor, zero: float, sixth: float, three: float, six: float) -> Tensor:
    return x * (x + three).clamp(zero, six) * sixth


def _hardswish_backward(grad: Tensor, x: Tensor, *constants: float) -> Tensor:
    """PyTorch's own: which side the bounds belong to has changed between its versions."""
    result: Tensor = _aten.hardswish_backward(grad, x)
    return result


def _logit(x: Tensor) -> Tensor:
    return torch.log(x / (1 - x))


def _logit_clamped(x: Tensor, low: float, high: float) -> Tensor:
    """The lower bound counts if it is above the upper one, unlike in a clamp."""
    return _logit(torch.where(x < low, low, torch.where(x > high, high, x)))


def _logit_backward(grad: Tensor, x: Tensor) -> Tensor:
    return (grad / (x * (1 - x))).masked_fill((x < 0) | (x > 1), float("nan"))


def _logit_clamped_backward(grad: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    return (grad / (x * (1 - x))).masked_fill((x < low) | (x > high), 0)


def _smooth_l1(a: Tensor, b: Tensor, beta: float) -> Tensor:
    z = (a - b).abs()
    return torch.where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta)


def _smooth_l1_backward(a: Tensor, b: Tensor, grad: Tensor, norm: float, beta: float) -> Tensor:
    x = a - b
    return torch.where(x.abs() > beta, norm * x.sign() * grad, norm * x * grad / beta)


def _huber(a: Tensor, b: Tensor, delta: float) -> Tensor:
    z = (a - b).abs()
    return torch.where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))


def _huber_backward(a: Tensor, b: Tensor, grad: Tensor, norm: float, delta: float) -> Tensor:
    return norm * (a - b).clamp(-delta, delta) * grad


def _bce(x: Tensor, target: Tensor) -> Tensor:
    low = torch.tensor(-100.0, dtype=x.dtype)
    return (target - 1) * torch.log1p(-x).maximum(low) - target * torch.log(x).maximum(low)


def _bce_backward(grad: Tensor, x: Tensor, target: Tensor) -> Tensor:
    return grad * (x - target) / ((1 - x) * x).clamp_min(1e-12)


#: As MATH of operations.py.
ACTIVATIONS: dict[str, Operation | tuple[Operation, ...]] = {
    "threshold_kernel_impl": Operation(_threshold, "tt", out=True, exact=True),
    "sigmoid_backward": Operation(_aten.sigmoid_backward),
    "tanh_backward": Operation(lambda grad, y: grad * (1 - y * y)),
    "silu": Operation(lambda x: x * torch.sigmoid(x)),
    "silu_backward": Operation(_aten.silu_backward),
    "mish": Operation(functional.mish),
    "mish_backward": Operation(_aten.mish_backward),
    "leaky_relu": Operation(lambda x, slope: torch.where(x > 0, x, x * slope), "m"),
    "leaky_relu_backward": Operation(
        lambda x, grad, slope: torch.where(x > 0, grad, grad * slope), "m"
    ),
    "prelu": Operation(lambda x, weight: torch.where(x > 0, x, weight * x)),
    "elu": Operation(_elu, "mmm"),
    "elu_backward": Operation(_elu_backward, "mmmb"),
    "softplus": Operation(_softplus, "mm"),
    "softplus_backward": Operation(_softplus_backward, "mm"),
    "softshrink": Operation(_softshrink, "t"),
    "hardshrink": Operation(lambda x, bound: x.masked_fill(_inside(x, bound), 0), "t", exact=True),
    "shrink_backward": Operation(
        lambda grad, x, bound: grad.masked_fill(_inside(x, bound), 0), "t", exact=True
    ),
    "hardtanh_backward": Operation(_hardtanh_backward, "mm"),
    "hardsigmoid": Operation(_hardsigmoid, "mmmm"),
    "hardsigmoid_backward": Operation(_hardsigmoid_backward, "mmmm"),
    "hardswish": Operation(_hardswish, "mmmm"),
    "hardswish_backward": Operation(_hardswish_backward, "mmmm"),
    "launch_log_sigmoid_forward_kernel": Operation(functional.logsigmoid),
    "log_sigmoid_backward": Operation(lambda x, grad: grad * torch.sigmoid(-x)),
    "logit": (Operation(_logit), Operation(_logit_clamped, "mm")),
    "logit_backward": (Operation(_logit_backward), Operation(_logit_clamped_backward, "mm")),
    "glu": Operation(lambda a, b: a * torch.sigmoid(b)),
    "mse": Operation(lambda a, b: (a - b) * (a - b)),
    "mse_backward": Operation(lambda a, b, c, alpha: alpha * (a - b) * c, "t"),
    "smooth_l1": Operation(_smooth_l1, "t"),
    "smooth_l1_backward": Operation(_smooth_l1_backward, "tt"),
    "huber": Operation(_huber, "t"),
    "huber_backward": Operation(_huber_backward, "tt"),
    "binary_cross_entropy_out_cuda": Operation(_bce),
    "binary_cross_entropy_backward_out_kernel": Operation(_bce_backward),
}

#: As NUMBERED of operations.py.
NUMBERED: dict[str, tuple[int, dict[int, Operation]]] = {
    "GeluCUDAKernelImpl": (
        0,
        {
            1: Operation(lambda x: functional.gelu(x, approximate="tanh")),
            2: Operation(functional.gelu),
        },
    ),
    "GeluBackwardCUDAKernelImpl": (
        0,
        {1: Operation(_gelu_backward("tanh")), 2: Operation(_gelu_backward("none"))},
    ),
}
