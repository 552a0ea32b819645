"""Operations on each element: every one runs on a GPU's kernels and on the CPU's.

How this works: a table per kind of operation gives the functions and the types they work on. A case
runs one function on operands of all layouts: contiguous, permuted, sliced, broadcast, of no
dimensions, empty. Values come from a seeded generator, within what the function is defined for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]
Types = tuple[torch.dtype, ...]

SINGLE = (torch.float32,)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# CUDA has constants of these functions in single precision even for doubles.
ROUNDED = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL = (*FLOATS, *INTEGERS)
LOGICAL = (*REAL, torch.bool)
WHOLE = (*INTEGERS, torch.bool)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*LOGICAL, *COMPLEX)


def values(kind: torch.dtype, *sizes: int, low: float = -3, high: float = 3) -> Tensor:
    """Random numbers; few distinct ones, so that ties and zeros occur."""
    generator = torch.Generator().manual_seed(sum(sizes) * 7 + len(sizes) + int(high * 8))
    if kind == torch.bool:
        return torch.randint(0, 2, sizes, generator=generator) > 0
    steps = torch.randint(0, 41, sizes, generator=generator, dtype=torch.float64) / 40
    if kind.is_complex:
        turned = torch.randint(0, 41, sizes, generator=generator, dtype=torch.float64) / 40
        return torch.complex(low + steps * (high - low), low + turned * (high - low)).to(kind)
    numbers = low + steps * (high - low)
    if kind.is_floating_point:
        return numbers.to(kind)
    lowest = max(math.ceil(low), 0) if kind == torch.uint8 else math.ceil(low)
    return (numbers.round().clamp(min=lowest) + 0).to(kind)


def layouts(kind: torch.dtype, device: torch.device, low: float, high: float) -> Iterator[Tensor]:
    """One tensor in each layout that the kernels tell apart."""

    def make(*sizes: int) -> Tensor:
        return values(kind, *sizes, low=low, high=high).to(device)

    yield make(7, 13)
    yield make(3000)
    yield make(4, 5, 6).permute(2, 0, 1)
    yield make(9, 10)[1::2, 3:]
    yield make(2, 3, 2, 3, 4, 2).permute(5, 0, 3, 1, 4, 2)[:, :, ::2]
    yield make(6, 1).expand(6, 5)
    yield make()
    yield make(0, 3)
    yield make(17)[3:]


def pairs(
    left: torch.dtype, right: torch.dtype, device: torch.device, low: float, high: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Two operands that broadcast, in each layout."""

    def make(kind: torch.dtype, *sizes: int) -> Tensor:
        return values(kind, *sizes, low=low, high=high).to(device)

    yield make(left, 8, 16), make(right, 8, 16).flip(0).contiguous()
    yield make(left, 8, 16), make(right, 16, 8).t()
    yield make(left, 5, 1, 4), make(right, 6, 1)
    yield make(left, 9), make(right)
    yield make(left), make(right, 4, 3).t()
    yield make(left, 2, 3, 4, 5, 3).permute(4, 1, 0, 3, 2), make(right, 3, 3, 2, 5, 4)
    yield make(left, 12)[::3], make(right, 4)
    yield make(left, 0, 4), make(right, 4)


class Range:
    """What a function is defined for."""

    ALL = (-3.0, 3.0)
    POSITIVE = (0.125, 3.0)
    UNIT = (-0.875, 0.875)
    PROBABILITY = (0.0625, 0.9375)
    ABOVE_ONE = (1.0, 3.0)
    SMALL = (0.0, 3.0)


Function = Callable[..., Tensor]
Row = tuple[Function, Types, tuple[float, float]]


def _unary(function: Function, kinds: Types, span: tuple[float, float]) -> Case:
    def case(device: torch.device) -> Tensors:
        return [function(x) for kind in kinds for x in layouts(kind, device, *span)]

    return case


def _binary(function: Function, kinds: Types, span: tuple[float, float]) -> Case:
    def case(device: torch.device) -> Tensors:
        return [function(x, y) for kind in kinds for x, y in pairs(kind, kind, device, *span)]

    return case


def _gradient(function: Function, kinds: Types, span: tuple[float, float]) -> Case:
    """The derivative, in the layouts of its input."""

    def case(device: torch.device) -> Tensors:
        results = []
        for kind in kinds:
            for x in layouts(kind, device, *span):
                leaf = x.detach().requires_grad_()
                y = function(leaf)
                weight = values(kind, *y.shape, low=-1, high=2).to(device)
                results.append(torch.autograd.grad(y, leaf, weight)[0])
        return results

    return case


_same = torch.broadcast_tensors

UNARY: dict[str, Row] = {
    "abs": (torch.abs, REAL, Range.ALL),
    "neg": (torch.neg, REAL, Range.ALL),
    "sqrt": (torch.sqrt, (*FLOATS, torch.int32), Range.POSITIVE),
    "rsqrt": (torch.rsqrt, FLOATS, Range.POSITIVE),
    "reciprocal": (torch.reciprocal, FLOATS, Range.POSITIVE),
    "exp": (torch.exp, FLOATS, Range.ALL),
    "expm1": (torch.expm1, FLOATS, Range.ALL),
    "exp of integers": (torch.exp, (torch.int64, torch.uint8, torch.bool), Range.ALL),
    "log": (torch.log, FLOATS, Range.POSITIVE),
    "log of zero": (torch.log, FLOATS, Range.SMALL),
    "log1p": (torch.log1p, FLOATS, Range.POSITIVE),
    "log2": (torch.log2, FLOATS, Range.POSITIVE),
    "log10": (torch.log10, FLOATS, Range.POSITIVE),
    "sin": (torch.sin, FLOATS, Range.ALL),
    "cos": (torch.cos, FLOATS, Range.ALL),
    "tan": (torch.tan, FLOATS, Range.UNIT),
    "asin": (torch.asin, FLOATS, Range.UNIT),
    "acos": (torch.acos, FLOATS, Range.UNIT),
    "atan": (torch.atan, FLOATS, Range.ALL),
    "sinh": (torch.sinh, FLOATS, Range.ALL),
    "cosh": (torch.cosh, FLOATS, Range.ALL),
    "tanh": (torch.tanh, FLOATS, Range.ALL),
    "asinh": (torch.asinh, FLOATS, Range.ALL),
    "acosh": (torch.acosh, FLOATS, Range.ABOVE_ONE),
    "atanh": (torch.atanh, FLOATS, Range.UNIT),
    "erf": (torch.erf, FLOATS, Range.ALL),
    "sigmoid": (torch.sigmoid, FLOATS, Range.ALL),
    "logit": (torch.logit, FLOATS, Range.PROBABILITY),
    "logit with eps": (lambda x: torch.logit(x, 0.2), FLOATS, Range.PROBABILITY),
    "logit with eps above a half": (lambda x: torch.logit(x, 0.7), FLOATS, Range.PROBABILITY),
    "floor": (torch.floor, FLOATS, Range.ALL),
    "ceil": (torch.ceil, FLOATS, Range.ALL),
    "round": (torch.round, FLOATS, Range.ALL),
    "round to decimals": (lambda x: torch.round(x, decimals=1), FLOATS, Range.ALL),
    "round to tens": (lambda x: torch.round(x * 40, decimals=-1), SINGLE, Range.ALL),
    "trunc": (torch.trunc, FLOATS, Range.ALL),
    "frac": (torch.frac, FLOATS, Range.ALL),
    "sign": (torch.sign, LOGICAL, Range.ALL),
    "signbit": (torch.signbit, REAL, Range.ALL),
    "angle": (torch.angle, SINGLE, Range.ALL),
    "square": (torch.square, REAL, Range.ALL),
    "cube": (lambda x: x**3, REAL, Range.ALL),
    "power 2.5": (lambda x: x**2.5, FLOATS, Range.POSITIVE),
    "power 4": (lambda x: x**4, REAL, Range.ALL),
    "power -1": (lambda x: x**-1, FLOATS, Range.POSITIVE),
    "power -2": (lambda x: x**-2, FLOATS, Range.POSITIVE),
    "power 0.5": (lambda x: x**0.5, FLOATS, Range.POSITIVE),
    "power -0.5": (lambda x: x**-0.5, FLOATS, Range.POSITIVE),
    "complex square": (torch.square, COMPLEX, Range.ALL),
    "complex power": (lambda x: x ** (1.5 - 0.5j), COMPLEX, Range.ALL),
    "scalar to a power": (lambda x: 1.5**x, FLOATS, Range.ALL),
    "two to a power": (lambda x: 2**x, (*FLOATS, torch.int64), Range.SMALL),
    "logical not": (torch.logical_not, LOGICAL, Range.ALL),
    "bitwise not": (torch.bitwise_not, WHOLE, Range.ALL),
    "isnan": (lambda x: torch.isnan(torch.log(x)), FLOATS, Range.ALL),
    "isfinite": (lambda x: torch.isfinite(1 / x), FLOATS, Range.SMALL),
    "isinf": (lambda x: torch.isinf(1 / x), FLOATS, Range.SMALL),
    "isposinf": (lambda x: torch.isposinf(1 / x), FLOATS, Range.SMALL),
    "isneginf": (lambda x: torch.isneginf(-1 / x), FLOATS, Range.SMALL),
    "nan_to_num": (lambda x: torch.nan_to_num(torch.log(x), 5.0, 7.0, -9.0), FLOATS, Range.ALL),
    "clone": (torch.clone, ALL, Range.ALL),
    "contiguous": (lambda x: x.contiguous(), ALL, Range.ALL),
    "conj": (lambda x: torch.conj(x).clone(), COMPLEX, Range.ALL),
    "zeros_like": (torch.zeros_like, ALL, Range.ALL),
    "full_like": (lambda x: torch.full_like(x, 1), ALL, Range.ALL),
    "full_like with a fraction": (lambda x: torch.full_like(x, 1.625), FLOATS, Range.ALL),
    "clamp": (lambda x: x.clamp(-1, 2), REAL, Range.ALL),
    "clamp to a minimum": (lambda x: x.clamp(min=1), REAL, Range.ALL),
    "clamp to a maximum": (lambda x: x.clamp(max=1), REAL, Range.ALL),
    "clamp of nan": (lambda x: torch.log(x).clamp(-1, 1), FLOATS, Range.ALL),
}

ACTIVATIONS: dict[str, Row] = {
    "relu": (F.relu, FLOATS, Range.ALL),
    "relu6": (F.relu6, FLOATS, Range.ALL),
    "gelu": (F.gelu, FLOATS, Range.ALL),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), FLOATS, Range.ALL),
    "silu": (F.silu, FLOATS, Range.ALL),
    "mish": (F.mish, FLOATS, Range.ALL),
    "elu": (lambda x: F.elu(x, 1.5), FLOATS, Range.ALL),
    "selu": (F.selu, FLOATS, Range.ALL),
    "celu": (lambda x: F.celu(x, 0.75), FLOATS, Range.ALL),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.3), FLOATS, Range.ALL),
    "softplus": (lambda x: F.softplus(x, 2.0, 3.0), FLOATS, Range.ALL),
    "softsign": (F.softsign, FLOATS, Range.ALL),
    "softshrink": (lambda x: F.softshrink(x, 0.7), FLOATS, Range.ALL),
    "hardshrink": (lambda x: F.hardshrink(x, 0.7), FLOATS, Range.ALL),
    "tanhshrink": (F.tanhshrink, FLOATS, Range.ALL),
    "hardtanh": (lambda x: F.hardtanh(x, -0.5, 2.0), FLOATS, Range.ALL),
    "hardsigmoid": (F.hardsigmoid, ROUNDED, Range.ALL),
    "hardswish": (F.hardswish, ROUNDED, Range.ALL),
    "logsigmoid": (F.logsigmoid, FLOATS, Range.ALL),
    "threshold": (lambda x: F.threshold(x, 0.5, -7.0), FLOATS, Range.ALL),
    "sigmoid": (torch.sigmoid, FLOATS, Range.ALL),
    "tanh": (torch.tanh, FLOATS, Range.ALL),
}

GRADIENTS: dict[str, Row] = {
    **ACTIVATIONS,
    "exp": (torch.exp, FLOATS, Range.ALL),
    "log": (torch.log, FLOATS, Range.POSITIVE),
    "sqrt": (torch.sqrt, FLOATS, Range.POSITIVE),
    "rsqrt": (torch.rsqrt, FLOATS, Range.POSITIVE),
    "reciprocal": (torch.reciprocal, FLOATS, Range.POSITIVE),
    "abs": (torch.abs, FLOATS, Range.ALL),
    "power 3": (lambda x: x**3, FLOATS, Range.ALL),
    "logit": (torch.logit, FLOATS, Range.PROBABILITY),
    "logit with eps": (lambda x: torch.logit(x, 0.2), FLOATS, Range.PROBABILITY),
    "clamp": (lambda x: x.clamp(-1, 2), FLOATS, Range.ALL),
    "erf": (torch.erf, FLOATS, Range.ALL),
    "sin": (torch.sin, FLOATS, Range.ALL),
    "tan": (torch.tan, SINGLE, Range.UNIT),
    "division": (lambda x: 2 / x, FLOATS, Range.POSITIVE),
}

BINARY: dict[str, Row] = {
    "add": (torch.add, ALL, Range.ALL),
    "add with alpha": (lambda x, y: torch.add(x, y, alpha=2), (*REAL, *COMPLEX), Range.ALL),
    "sub": (torch.sub, (*REAL, *COMPLEX), Range.ALL),
    "rsub": (lambda x, y: torch.rsub(x, y, alpha=2), REAL, Range.ALL),
    "mul": (torch.mul, ALL, Range.ALL),
    "div": (torch.div, (*FLOATS, *COMPLEX), Range.POSITIVE),
    "div of integers": (torch.div, WHOLE, Range.ABOVE_ONE),
    "div floor": (lambda x, y: torch.div(x, y + 4, rounding_mode="floor"), REAL, Range.ALL),
    "div trunc": (lambda x, y: torch.div(x, y + 4, rounding_mode="trunc"), REAL, Range.ALL),
    "div trunc near whole numbers": (
        lambda x, y: torch.div(x * 50, y, rounding_mode="trunc"), FLOATS, Range.POSITIVE),
    "floor of negatives": (lambda x, y: (x - 7) // y, REAL, Range.ABOVE_ONE),
    "remainder": (lambda x, y: torch.remainder(x - 7, y), REAL, Range.ABOVE_ONE),
    "fmod": (lambda x, y: torch.fmod(x - 7, y), REAL, Range.ABOVE_ONE),
    "pow": (torch.pow, (*FLOATS, torch.int64), Range.POSITIVE),
    "maximum": (torch.maximum, LOGICAL, Range.ALL),
    "minimum": (torch.minimum, LOGICAL, Range.ALL),
    "maximum of nan": (lambda x, y: torch.maximum(torch.log(x), y), FLOATS, Range.ALL),
    "fmax": (lambda x, y: torch.fmax(torch.log(x), y), FLOATS, Range.ALL),
    "fmin": (torch.fmin, FLOATS, Range.ALL),
    "atan2": (torch.atan2, FLOATS, Range.ALL),
    "hypot": (torch.hypot, FLOATS, Range.ALL),
    "copysign": (torch.copysign, FLOATS, Range.ALL),
    "nextafter": (torch.nextafter, (torch.float32, torch.float64), Range.ALL),
    "heaviside": (torch.heaviside, REAL, Range.ALL),
    "logaddexp": (torch.logaddexp, FLOATS, Range.ALL),
    "logaddexp2": (torch.logaddexp2, FLOATS, Range.ALL),
    "xlogy": (torch.xlogy, FLOATS, Range.POSITIVE),
    "xlog1py": (torch.special.xlog1py, FLOATS, Range.POSITIVE),
    "gammainc": (torch.special.gammainc, (torch.float32, torch.float64), Range.POSITIVE),
    "gammaincc": (torch.special.gammaincc, (torch.float32, torch.float64), Range.POSITIVE),
    "eq": (torch.eq, ALL, Range.ALL),
    "ne": (torch.ne, ALL, Range.ALL),
    "lt": (torch.lt, LOGICAL, Range.ALL),
    "le": (torch.le, LOGICAL, Range.ALL),
    "gt": (torch.gt, LOGICAL, Range.ALL),
    "ge": (torch.ge, LOGICAL, Range.ALL),
    "logical and": (torch.logical_and, LOGICAL, Range.ALL),
    "logical or": (torch.logical_or, LOGICAL, Range.ALL),
    "logical xor": (torch.logical_xor, LOGICAL, Range.ALL),
    "bitwise and": (torch.bitwise_and, WHOLE, Range.ALL),
    "bitwise or": (torch.bitwise_or, WHOLE, Range.ALL),
    "bitwise xor": (torch.bitwise_xor, WHOLE, Range.ALL),
    "left shift": (torch.bitwise_left_shift, INTEGERS, Range.SMALL),
    "right shift": (lambda x, y: (x * 16) >> y, INTEGERS, Range.SMALL),
    "ldexp": (lambda x, y: torch.ldexp(*_same(x, y.int())), FLOATS, Range.ALL),
    "where": (lambda x, y: torch.where(x > 0, x, y), ALL[:-2], Range.ALL),
    "where with a scalar": (lambda x, y: torch.where(x > y, x, 2), FLOATS, Range.ALL),
    "masked_fill": (lambda x, y: x.masked_fill(y > 0, 1), LOGICAL, Range.ALL),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), FLOATS, Range.ALL),
    "lerp with a tensor": (lambda x, y: torch.lerp(x, y, y), FLOATS, Range.ALL),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y + 1, value=0.5), FLOATS, Range.ALL),
    "addcdiv": (lambda x, y: torch.addcdiv(x, y, y + 1, value=0.5), FLOATS, Range.POSITIVE),
    "clamp by tensors": (lambda x, y: x.clamp(y - 1, y + 1), REAL, Range.ALL),
    "mse": (lambda x, y: F.mse_loss(*_same(x, y), reduction="none"), FLOATS, Range.ALL),
    "smooth_l1": (
        lambda x, y: F.smooth_l1_loss(*_same(x, y), reduction="none", beta=0.7), FLOATS, Range.ALL),
    "huber": (
        lambda x, y: F.huber_loss(*_same(x, y), reduction="none", delta=0.7), FLOATS, Range.ALL),
    "binary cross entropy": (
        lambda x, y: F.binary_cross_entropy(*_same(x, y), reduction="none"),
        FLOATS, Range.PROBABILITY),
}  # fmt: skip

SCALARS: dict[str, Row] = {
    "add": (lambda x: x + 3, ALL, Range.ALL),
    "add a fraction": (lambda x: x + 0.3, (*FLOATS, *COMPLEX), Range.ALL),
    "add to a scalar": (lambda x: torch.add(x, 2, alpha=3), REAL, Range.ALL),
    "add a fraction to integers": (lambda x: x + 0.5, WHOLE, Range.ALL),
    "sub": (lambda x: x - 2, (*REAL, *COMPLEX), Range.ALL),
    "sub from a scalar": (lambda x: 2 - x, REAL, Range.ALL),
    "mul": (lambda x: x * 3, ALL, Range.ALL),
    "mul by a fraction": (lambda x: 0.3 * x, (*FLOATS, *COMPLEX), Range.ALL),
    "mul integers by a fraction": (lambda x: 0.3 * x, WHOLE, Range.ALL),
    "div": (lambda x: x / 3, (*LOGICAL, *COMPLEX), Range.ALL),
    "div a scalar": (lambda x: 3 / x, (*LOGICAL, *COMPLEX), Range.ABOVE_ONE),
    "floor division": (lambda x: x // 2, REAL, Range.ALL),
    "floor division by a fraction": (lambda x: x // 0.7, FLOATS, Range.ALL),
    "floor division by a negative": (lambda x: x // -0.7, FLOATS, Range.ALL),
    "floor division of a scalar": (lambda x: 7 // x, REAL, Range.ABOVE_ONE),
    "trunc division": (lambda x: torch.div(x, 2, rounding_mode="trunc"), REAL, Range.ALL),
    "trunc by a fraction": (
        lambda x: torch.div(x, -0.7, rounding_mode="trunc"), FLOATS, Range.ALL),
    "remainder": (lambda x: x % 2, REAL, Range.ALL),
    "remainder of a scalar": (lambda x: torch.remainder(7, x), REAL, Range.ABOVE_ONE),
    "fmod": (lambda x: torch.fmod(x, 2), REAL, Range.ALL),
    "maximum": (lambda x: torch.maximum(x, torch.tensor(1).to(x.dtype)), REAL, Range.ALL),
    "minimum": (lambda x: torch.minimum(torch.tensor(1).to(x.dtype), x), REAL, Range.ALL),
    "atan2": (lambda x: torch.atan2(x, torch.tensor(1.5, dtype=x.dtype)), FLOATS, Range.ALL),
    "xlogy": (lambda x: torch.xlogy(x, 2.5), FLOATS, Range.POSITIVE),
    "xlogy of a scalar": (lambda x: torch.xlogy(2.5, x), FLOATS, Range.POSITIVE),
    "copysign": (lambda x: torch.copysign(x, -1.0), FLOATS, Range.ALL),
    "eq": (lambda x: x == 1, ALL, Range.ALL),
    "ne": (lambda x: x != 1, ALL, Range.ALL),
    "lt": (lambda x: x < 1, LOGICAL, Range.ALL),
    "le": (lambda x: x <= 1, LOGICAL, Range.ALL),
    "gt": (lambda x: x > 1, LOGICAL, Range.ALL),
    "ge": (lambda x: x >= 1, LOGICAL, Range.ALL),
    "gt a fraction": (lambda x: x > 0.5, REAL, Range.ALL),
    "bitwise and": (lambda x: x & 1, WHOLE, Range.ALL),
    "bitwise or": (lambda x: x | 1, WHOLE, Range.ALL),
    "bitwise xor": (lambda x: x ^ 1, WHOLE, Range.ALL),
    "shift left": (lambda x: x << 2, INTEGERS, Range.SMALL),
    "shift right": (lambda x: x >> 1, INTEGERS, Range.SMALL),
}  # fmt: skip


def _casts(device: torch.device) -> Tensors:
    """Between all types, within what each can hold."""
    return [
        x.to(target)
        for source in LOGICAL
        for target in LOGICAL
        for x in layouts(source, device, 0, 3)
    ] + [x.to(target) for target in COMPLEX for x in layouts(torch.float32, device, -3, 3)]


def _promotions(device: torch.device) -> Tensors:
    """Operands of different types, which are cast while they are loaded."""
    functions = (torch.add, torch.mul, torch.lt, torch.eq, torch.maximum)
    return [
        function(x, y)
        for function in functions
        for left in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool)
        for right in (torch.float64, torch.bfloat16, torch.int32, torch.bool)
        for x, y in pairs(left, right, device, 0, 3)
    ]


def _in_place(device: torch.device) -> Tensors:
    """Results that go where an operand is, among them into a part of a tensor."""
    results = []
    for kind in REAL:
        x = values(kind, 8, 6).to(device)
        x[:, 1:3] += 2
        x[::2].mul_(2)
        x.t()[2:4].sub_(1)
        x[:, 0].fill_(3)
        x[1] = x[2]
        x[:, 4].copy_(x[:, 5])
        x.add_(x)
        x.diagonal().zero_()
        x[3:5].clamp_(0, 2)
        results.append(x)
    return results


def _copies(device: torch.device) -> Tensors:
    """Into tensors of another layout and type."""
    results = []
    for source in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for target in (torch.float16, torch.float64, torch.int32, torch.uint8):
            y = torch.zeros(6, 5, dtype=target, device=device)
            y.copy_(values(source, 5, 6, low=0).to(device).t())
            y[:, 1:4] = values(source, 3, low=0).to(device)
            results.append(y)
    return results


def _spans(device: torch.device) -> Tensors:
    """arange, linspace, logspace, eye and the like."""
    return [
        torch.arange(10, device=device),
        torch.arange(3, 40, 4, device=device),
        torch.arange(10, -5, -3, device=device),
        torch.arange(0.5, 4, 0.3, device=device),
        torch.arange(7, device=device, dtype=torch.float16),
        torch.arange(7, device=device, dtype=torch.bfloat16),
        torch.arange(7, device=device, dtype=torch.float64),
        torch.arange(9, device=device, dtype=torch.int32),
        torch.arange(9, device=device, dtype=torch.uint8),
        torch.arange(0, device=device),
        torch.arange(12, out=torch.zeros(24, dtype=torch.int64, device=device)[::2]),
        torch.linspace(-1, 2, 17, device=device),
        torch.linspace(3, 1, 4, device=device, dtype=torch.float64),
        torch.linspace(0, 10, 5, device=device, dtype=torch.int64),
        torch.linspace(0, 1, 1, device=device),
        torch.logspace(-1, 2, 7, device=device),
        torch.logspace(0, 5, 6, base=2, device=device, dtype=torch.int32),
        torch.linspace(-3, 9, 7, device=device, dtype=torch.int32),
        torch.linspace(-1, 2, 7, device=device, dtype=torch.bfloat16),
        torch.logspace(0, 2, 5, base=3, device=device, dtype=torch.float64),
        torch.eye(4, 6, device=device),
        torch.full((3, 4), 2.5, device=device),
        torch.ones(5, device=device, dtype=torch.bool),
    ]


def _losses(device: torch.device) -> Tensors:
    """Gradients of the losses on each element."""
    functions = (
        F.mse_loss,
        lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.7),
        lambda x, y, reduction: F.huber_loss(x, y, reduction=reduction, delta=0.7),
        lambda x, y, reduction: F.binary_cross_entropy(x, y, reduction=reduction),
        lambda x, y, reduction: F.binary_cross_entropy_with_logits(x, y, reduction=reduction),
        F.l1_loss,
    )
    results = []
    for function in functions:
        for kind in FLOATS:
            x = values(kind, 6, 5, low=0.0625, high=0.9375).to(device).requires_grad_()
            target = values(kind, 5, 6, low=0, high=1).t().to(device)
            loss = function(x, target, reduction="none")
            results.append(torch.autograd.grad(loss, x, loss.detach() + 1)[0])
    return results


def _glu(device: torch.device) -> Tensors:
    results = []
    for kind in FLOATS:
        x = values(kind, 6, 8).to(device).requires_grad_()
        y = F.glu(x, 1)
        results.extend([y.detach(), *torch.autograd.grad(y, x, y.detach() + 1)])
    return results


def _prelu(device: torch.device) -> Tensors:
    results = []
    for kind in FLOATS:
        x = values(kind, 6, 8).to(device).requires_grad_()
        y = F.prelu(x, values(kind, 8).to(device))
        results.extend([y.detach(), *torch.autograd.grad(y, x, y.detach() + 1)])
    return results


def _mixed(device: torch.device) -> Tensors:
    """What fits no table: several results, complex numbers from parts, rank-one updates."""
    x, y = values(torch.float32, 6, 5).to(device), values(torch.float32, 5, 6).to(device).t()
    mantissa, exponent = torch.frexp(y)
    update = [
        torch.addr(x.to(kind), x[:, 0].to(kind), x[0].to(kind), beta=beta, alpha=3)
        for kind in (*FLOATS, torch.int64)
        for beta in (0, 2)
    ]
    return [
        *(torch.renorm(y.to(kind), 2, 0, 2.5) for kind in FLOATS),
        *(mantissa, exponent, *torch.frexp(x)),
        *(torch.polar(x.abs(), y), torch.complex(x, y), torch.complex(x, y).real.clone()),
        *(torch.view_as_real(torch.complex(x, y) * torch.polar(x.abs(), y)),),
        *(torch.addcmul(x, y, torch.tensor(1.5), value=3), *update),
    ]


def _loss_scaling(device: torch.device) -> Tensors:
    """GradScaler's kernels on a gradient that is finite and one that is not."""
    results = []
    for worst in (1.0, math.inf):
        grads = [values(torch.float32, 7).to(device), values(torch.float16, 3, 4).to(device).t()]
        grads[0][2] = worst
        found, scale = torch.zeros(1, device=device), torch.full((1,), 0.25, device=device)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        growth = torch.zeros(1, dtype=torch.int32, device=device)
        torch._amp_update_scale_(scale, growth, found, 2.0, 0.5, 1)
        results.extend([*grads, found, scale, growth])
    return results


def compare(got: Tensor, wanted: Tensor) -> None:
    """16-bit types may be rounded in other places; all else is as usual."""
    rtol, atol = {torch.float16: (4e-3, 1e-3), torch.bfloat16: (2e-2, 4e-3)}.get(
        wanted.dtype, (None, None)
    )
    torch.testing.assert_close(
        got, wanted, rtol=rtol, atol=atol, check_stride=False, equal_nan=True
    )


def _optimizers(device: torch.device) -> Tensors:
    """One tensor at a time; the fused and foreach kernels are cases of their own."""
    makers: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
        "sgd": lambda p: torch.optim.SGD(p, 0.1, foreach=False),
        "momentum": lambda p: torch.optim.SGD(
            p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True, foreach=False
        ),
        "adam": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1, foreach=False),
        "amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, foreach=False),
        "adamw": lambda p: torch.optim.AdamW(p, 0.01, foreach=False),
        "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5, foreach=False),
        "adagrad": lambda p: torch.optim.Adagrad(p, 0.01, foreach=False),
    }
    results = []
    for make in makers.values():
        leaf = values(torch.float32, 5, 7).to(device).requires_grad_()
        optimizer = make([leaf])
        for _ in range(3):
            leaf.grad = leaf.detach() * 2 + 1
            optimizer.step()
        results.append(leaf.detach())
    return results


def _dropout_backward(device: torch.device) -> Tensors:
    """masked_scale, by way of a dropout that keeps everything."""
    grad, mask = values(torch.float32, 6, 4).to(device), values(torch.bool, 6, 4).to(device)
    return [
        torch.ops.aten.native_dropout_backward(g, m, 1.25)
        for kind in FLOATS
        for g, m in ((grad.to(kind), mask), (grad.t().to(kind), mask.t()))
    ]


def _cases(prefix: str, make: Callable[..., Case], rows: dict[str, Row]) -> dict[str, Case]:
    return {f"{prefix}: {name}": make(*row) for name, row in rows.items()}


CASES: dict[str, Case] = {
    **_cases("unary", _unary, UNARY),
    **_cases("activation", _unary, ACTIVATIONS),
    **_cases("gradient", _gradient, GRADIENTS),
    **_cases("binary", _binary, BINARY),
    **_cases("scalar", _unary, SCALARS),
    "casts": _casts,
    "promotions": _promotions,
    "in place": _in_place,
    "copies": _copies,
    "spans": _spans,
    "losses": _losses,
    "glu": _glu,
    "prelu": _prelu,
    "mixed": _mixed,
    "loss scaling": _loss_scaling,
    "optimizers": _optimizers,
    "dropout backward": _dropout_backward,
}
