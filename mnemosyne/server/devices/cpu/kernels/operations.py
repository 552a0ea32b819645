"""What the functors of elementwise kernels compute.

A table from the functor's class, or from the function its lambda lies in, to an ``Operation``. 16-bit
floats are computed in float32, as the kernels do (at::opmath_type). The order of captured values is
that of the lambda's body or capture list in PyTorch's sources; their sizes are checked at bind time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Compute = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Operation:
    """``compute(*inputs, *state)`` gives the result.

    ``state`` says what the functor holds, one letter a value: m (opmath type of the scalars),
    t (their own type), i (int), q (long), b (bool). ``result`` is the dtype of the result, or the
    number of the input that has it. ``out``: compute takes the result's tensor as ``out=``.
    """

    compute: Compute
    state: str = ""
    result: torch.dtype | int = 0
    out: bool = False


def _truth(compute: Compute, state: str = "") -> Operation:
    return Operation(compute, state, torch.bool)


_UNARY = {
    "AbsFunctor": torch.abs, "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin,
    "asinh": torch.asinh, "atan": torch.atan, "atanh": torch.atanh, "bitwise_not": torch.bitwise_not,
    "ceil": torch.ceil, "cos": torch.cos, "cosh": torch.cosh, "digamma": torch.digamma,
    "erf": torch.erf, "erfc": torch.erfc, "erfinv": torch.erfinv, "exp": torch.exp,
    "exp2": torch.exp2, "expm1": torch.expm1, "floor": torch.floor, "frac": torch.frac,
    "lgamma": torch.lgamma, "log": torch.log, "log10": torch.log10, "log1p": torch.log1p,
    "log2": torch.log2, "neg": torch.neg, "reciprocal": torch.reciprocal, "round": torch.round,
    "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid, "sign": torch.sign, "sgn": torch.sgn,
    "sin": torch.sin, "sinh": torch.sinh, "sqrt": torch.sqrt, "tan": torch.tan, "tanh": torch.tanh,
    "trunc": torch.trunc,
}  # fmt: skip

_BINARY = {
    "MulFunctor": torch.mul, "atan2": torch.atan2, "copysign": torch.copysign, "fmax": torch.fmax,
    "fmin": torch.fmin, "fmod": torch.fmod, "gcd": torch.gcd, "lcm": torch.lcm,
    "heaviside": torch.heaviside, "hypot": torch.hypot, "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2, "maximum": torch.maximum, "minimum": torch.minimum,
    "nextafter": torch.nextafter, "remainder": torch.remainder, "xlogy": torch.xlogy,
    "BitwiseAndFunctor": torch.bitwise_and, "BitwiseOrFunctor": torch.bitwise_or,
    "BitwiseXorFunctor": torch.bitwise_xor, "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
}  # fmt: skip

_LOGICAL = {
    "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
    "signbit": torch.signbit, "isneginf": torch.isneginf, "isposinf": torch.isposinf,
    "isnan": torch.isnan,
}  # fmt: skip

_ORDER = (torch.ge, torch.gt, torch.le, torch.lt)  # OpType of CompareKernels.cu
_EQUALITY = (torch.eq, torch.ne)  # EqOpType of CompareEQKernel.cu
_CLAMP_MIN, _CLAMP_MAX = 0, 1  # ClampLimits


def _clamp_scalar(x: Tensor, limits: int, first: Any, second: Any) -> Tensor:
    if limits == _CLAMP_MIN:
        return x.clamp(min=first)
    return x.clamp(max=first) if limits == _CLAMP_MAX else x.clamp(first, second)


def _threshold(x: Tensor, other: Tensor, threshold: Any, value: Any) -> Tensor:
    return torch.where(x <= threshold, torch.as_tensor(value, dtype=other.dtype), other)


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


def _hardswish(x: Tensor, zero: float, sixth: float, three: float, six: float) -> Tensor:
    return x * (x + three).clamp(zero, six) * sixth


def _smooth_l1(a: Tensor, b: Tensor, beta: float) -> Tensor:
    z = (a - b).abs()
    return torch.where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta)


def _huber(a: Tensor, b: Tensor, delta: float) -> Tensor:
    z = (a - b).abs()
    return torch.where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))


def _log_sigmoid_backward(x: Tensor, grad: Tensor) -> Tensor:
    return grad * torch.sigmoid(-x)


def _bce(x: Tensor, target: Tensor) -> Tensor:
    low = torch.tensor(-100.0, dtype=x.dtype)
    return (target - 1) * torch.log1p(-x).maximum(low) - target * torch.log(x).maximum(low)


def _bce_backward(grad: Tensor, x: Tensor, target: Tensor) -> Tensor:
    return grad * (x - target) / ((1 - x) * x).clamp_min(1e-12)


def _sigmoid_backward(grad: Tensor, y: Tensor) -> Tensor:
    return torch.ops.aten.sigmoid_backward(grad, y)


def _gelu_backward(approximate: str) -> Compute:
    return lambda grad, x: torch.ops.aten.gelu_backward(grad, x, approximate=approximate)


def _square(x: Tensor) -> Tensor:
    return x * x


#: Operations by class or enclosing function, without the suffix of kernel functions.
OPERATIONS: dict[str, Operation] = {
    **{name: Operation(f, out=True) for name, f in _UNARY.items()},
    **{name: Operation(f, out=True) for name, f in _BINARY.items()},
    **{name: _truth(f) for name, f in _LOGICAL.items()},
    "DivFunctor": Operation(torch.true_divide, out=True),
    "CompareFunctor": _truth(lambda a, b, op: _ORDER[op](a, b), "i"),
    "CompareEqFunctor": _truth(lambda a, b, op: _EQUALITY[op](a, b), "i"),
    "compare_scalar": _truth(lambda a, op, b: _ORDER[op](a, b), "it"),
    "FillFunctor": Operation(lambda value: value, "t"),
    "CUDAFunctor_add": Operation(lambda a, b, alpha: torch.add(a, b, alpha=alpha), "m"),
    "CUDAFunctorOnSelf_add": Operation(lambda a, b, alpha: a + alpha * b, "mm"),
    "CUDAFunctorOnOther_add": Operation(lambda b, a, alpha: a + alpha * b, "mm"),
    "direct_copy": Operation(lambda x: x),
    "float16_copy": Operation(lambda x: x, result=torch.float16),
    "bfloat16_copy": Operation(lambda x: x, result=torch.bfloat16),
    "bfloat16tofloat32_copy": Operation(lambda x: x, result=torch.float32),
    "float16tofloat32_copy": Operation(lambda x: x, result=torch.float32),
    "conj": Operation(lambda x: x.conj().resolve_conj()),
    "div_trunc": Operation(lambda a, b: torch.div(a, b, rounding_mode="trunc")),
    "div_floor": Operation(lambda a, b: torch.div(a, b, rounding_mode="floor")),
    "xlog1py": Operation(torch.special.xlog1py),
    "where_kernel_impl": Operation(torch.where, result=1),
    "masked_fill": Operation(lambda x, mask, value: x.masked_fill(mask, value), "t"),
    "masked_scale": Operation(lambda x, mask, scale: x * mask * scale, "a"),
    "launch_clamp_scalar": Operation(_clamp_scalar, "imm"),
    "launch_clamp": Operation(lambda x, low, high: x.clamp(low, high)),
    "clamp_kernel_impl": Operation(lambda x, low, high: x.clamp(low, high)),
    "clamp_min": Operation(lambda x, low: x.clamp(min=low), "m"),
    "clamp_max": Operation(lambda x, high: x.clamp(max=high), "m"),
    "threshold_kernel_impl": Operation(_threshold, "tt"),
    "sigmoid_backward": Operation(_sigmoid_backward),
    "tanh_backward": Operation(lambda grad, y: grad * (1 - y * y)),
    "silu": Operation(lambda x: x * torch.sigmoid(x)),
    "silu_backward": Operation(torch.ops.aten.silu_backward),
    "mish": Operation(functional.mish),
    "mish_backward": Operation(torch.ops.aten.mish_backward),
    "leaky_relu": Operation(lambda x, slope: torch.where(x > 0, x, x * slope), "m"),
    "leaky_relu_backward": Operation(
        lambda x, grad, slope: torch.where(x > 0, grad, grad * slope), "m"
    ),
    "prelu": Operation(lambda x, weight: torch.where(x > 0, x, weight * x)),
    "elu": Operation(_elu, "mmm"),
    "elu_backward": Operation(_elu_backward, "mmmb"),
    "softplus": Operation(_softplus, "mm"),
    "softplus_backward": Operation(_softplus_backward, "mm"),
    "hardtanh_backward": Operation(
        lambda grad, x, low, high: grad.masked_fill((x <= low) | (x >= high), 0), "mm"
    ),
    "hardswish": Operation(_hardswish, "mmmm"),
    "hardsigmoid": Operation(
        lambda x, zero, sixth, three, six: (x + three).clamp(zero, six) * sixth, "mmmm"
    ),
    "launch_log_sigmoid_forward_kernel": Operation(functional.logsigmoid),
    "log_sigmoid_backward": Operation(_log_sigmoid_backward),
    "glu": Operation(lambda a, b: a * torch.sigmoid(b)),
    "lerp_scalar": Operation(lambda a, b, weight: torch.lerp(a, b, weight), "m"),
    "lerp_tensor": Operation(torch.lerp),
    "mse": Operation(lambda a, b: (a - b) * (a - b)),
    "mse_backward": Operation(lambda a, b, c, alpha: alpha * (a - b) * c, "t"),
    "smooth_l1": Operation(_smooth_l1, "t"),
    "huber": Operation(_huber, "t"),
    "binary_cross_entropy_out_cuda": Operation(_bce),
    "binary_cross_entropy_backward_out_kernel": Operation(_bce_backward),
    "addcmul": Operation(lambda a, b, c, alpha: a + alpha * b * c, "m"),
    "addcdiv": Operation(lambda a, b, c, alpha: a + alpha * (b / c), "m"),
    "pow_scalar_tensor_impl": Operation(lambda x, base: torch.pow(base, x), "t"),
    "pow_tensor_tensor": Operation(torch.pow),
}

#: Functions with several lambdas: which lambda's number decides (0 first, -1 last), and on what.
BY_NUMBER: dict[str, tuple[int, dict[int, Operation]]] = {
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
    "pow_tensor_scalar_kernel_impl": (
        -1,
        {
            1: Operation(_square),
            2: Operation(lambda x: x * x * x),
            3: Operation(lambda x: 1.0 / (x * x)),
            4: Operation(torch.pow, "e"),
        },
    ),
}

#: at::opmath_type of the types that have another one.
OPMATH = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
