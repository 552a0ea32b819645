"""What the functors of elementwise kernels compute: arithmetic, comparisons, copies.

A table from the functor's class, or from the function its lambda lies in, to an ``Operation``;
activations.py has the rest of them. 16-bit floats are computed in float32, as the kernels do
(at::opmath_type). The order of captured values is that of the lambda's capture list, or without
one that of their use in its body; whether it is right, tests on real kernels show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from . import Memory

Compute = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Operation:
    """``compute(*inputs, *state)`` gives the result.

    ``state`` says what the functor holds, one letter a value: m (opmath type of the scalars),
    t (their own type), i (int), q (long, pointer), b (bool). ``result`` is the dtype of the result,
    or the number of the input that has it, or the complex type of such parts, or their opmath type
    (wide). ``out``: compute takes the result's tensor as ``out=``. ``exact``: it moves or compares
    values, so that 16-bit floats need no wider type. ``copies``: the result is the input.
    ``takes``: only lambdas of so many inputs; ``of``: only of these first inputs. ``scalar``: the
    input whose type the state's letters mean. ``memory``: the state has pointers; compute takes the
    session's memory first. ``silent``: compute writes through those pointers alone; nobody reads
    the result.
    """

    compute: Compute
    state: str = ""
    result: torch.dtype | int | Literal["complex", "wide"] = 0
    out: bool = False
    exact: bool = False
    copies: bool = False
    takes: int = 0
    of: tuple[torch.dtype, ...] = ()
    scalar: int = 0
    memory: bool = False
    silent: bool = False


#: at::opmath_type of the types that have another one.
OPMATH = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}


def _math(compute: Compute) -> Operation:
    return Operation(compute, out=True)


def _exact(compute: Compute) -> Operation:
    return Operation(compute, out=True, exact=True)


def _truth(compute: Compute, state: str = "") -> Operation:
    return Operation(compute, state, torch.bool, out=True, exact=True)


def copy(result: torch.dtype | int = 0, of: tuple[torch.dtype, ...] = ()) -> Operation:
    """A copy, or a conversion to a type; `of` as that of an Operation."""
    return Operation(lambda x: x, result=result, exact=True, copies=True, of=of)


_UNARY = {
    "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh,
    "atan": torch.atan, "atanh": torch.atanh, "cos": torch.cos, "cosh": torch.cosh,
    "digamma": torch.digamma, "erf": torch.erf, "erfc": torch.erfc, "erfinv": torch.erfinv,
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "lgamma": torch.lgamma,
    "log": torch.log, "log10": torch.log10, "log1p": torch.log1p, "log2": torch.log2,
    "reciprocal": torch.reciprocal, "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid,
    "sin": torch.sin, "sinh": torch.sinh, "sqrt": torch.sqrt, "tan": torch.tan, "tanh": torch.tanh,
}  # fmt: skip

_EXACT_UNARY = {
    "bitwise_not": torch.bitwise_not, "ceil": torch.ceil, "floor": torch.floor,
    "frac": torch.frac, "neg": torch.neg, "round": torch.round, "sign": torch.sign,
    "trunc": torch.trunc,
}  # fmt: skip

_BINARY = {
    "atan2": torch.atan2, "hypot": torch.hypot, "logaddexp": torch.logaddexp,
    "nextafter": torch.nextafter, "xlogy": torch.xlogy, "xlog1py": torch.special.xlog1py,
    "ldexp": torch.ldexp,
}  # fmt: skip

_EXACT_BINARY = {
    "copysign": torch.copysign, "fmax": torch.fmax, "fmin": torch.fmin, "gcd": torch.gcd,
    "lcm": torch.lcm, "heaviside": torch.heaviside, "maximum": torch.maximum,
    "minimum": torch.minimum, "lshift": torch.bitwise_left_shift,
    "rshift": torch.bitwise_right_shift,
}  # fmt: skip

_TRUTH: dict[str, Compute] = {
    "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "logical_not": torch.logical_not,
    "signbit": torch.signbit, "isneginf_kernel_impl": torch.isneginf,
    "isposinf_kernel_impl": torch.isposinf, "isnan": torch.isnan,
}  # fmt: skip

_ORDER = (torch.ge, torch.gt, torch.le, torch.lt)  # OpType of CompareKernels.cu
_EQUALITY = (torch.eq, torch.ne)  # EqOpType of CompareEQKernel.cu
_CLAMP_MIN, _CLAMP_MAX = 0, 1  # ClampLimits


def _compare(a: Tensor, b: Tensor, op: int, out: Tensor) -> Tensor:
    return _ORDER[op](a, b, out=out)


def _equal(a: Tensor, b: Tensor, op: int, out: Tensor) -> Tensor:
    return _EQUALITY[op](a, b, out=out)


def _compare_scalar(a: Tensor, op: int, b: Any, out: Tensor) -> Tensor:
    return _ORDER[op](a, b, out=out)


def _clamp_scalar(x: Tensor, limits: int, first: Any, second: Any, out: Tensor) -> Tensor:
    if limits == _CLAMP_MIN:
        return torch.clamp_min(x, first, out=out)
    if limits == _CLAMP_MAX:
        return torch.clamp_max(x, first, out=out)
    return torch.clamp(x, first, second, out=out)


def _add(a: Tensor, b: Tensor, alpha: Any, **out: Tensor) -> Tensor:
    return torch.add(a, b, alpha=alpha, **out)


def _rounded(x: Tensor, power: float, negative: bool) -> Tensor:
    """round() to decimals: ``power`` is 10 to their absolute value."""
    return torch.round(x / power) * power if negative else torch.round(x * power) / power


def _dividing(compute: Compute, exact: bool = False) -> Operation:
    """A quotient or remainder: that of integers by zero is anything on a GPU, but no error."""

    def divide(a: Tensor, b: Tensor) -> Tensor:
        if b.dtype.is_floating_point or bool(b.all()):
            return compute(a, b)
        return torch.where(b == 0, -1, compute(a, torch.where(b == 0, 1, b)))

    return Operation(divide, takes=2, exact=exact)


def _floor_quotient(x: Tensor, divisor: float, inverse: float) -> Tensor:
    """Floor division by a scalar, which multiplies by its inverse and then repairs the result."""
    remainder = torch.fmod(x, divisor)
    quotient = (x - remainder) * inverse
    quotient = quotient - ((remainder != 0) & ((remainder < 0) != (divisor < 0))).to(x.dtype)
    floor = torch.floor(quotient)
    floor = floor + (quotient - floor > 0.5).to(x.dtype)
    return torch.where(quotient != 0, floor, torch.copysign(torch.zeros_like(x), x * inverse))


def _masked_scatter(memory: Memory, x: Tensor, mask: Tensor, before: Tensor, source: int) -> Tensor:
    """``before``: how many elements of the source go to earlier places."""
    which = before[mask]
    if not len(which):
        return x
    elements = memory.view(source, x.dtype, (int(which.max()) + 1,), (1,))
    return x.masked_scatter(mask, elements[which])


def _unscale(memory: Memory, x: Tensor, found_infinite: int, inverse_scale: int) -> Tensor:
    """Multiplies gradients, and says in ``found_infinite`` that one of them is not finite."""
    if not bool(x.isfinite().all()):
        memory.view(found_infinite, torch.float32, (1,), (1,)).fill_(1)
    inverse = memory.view(inverse_scale, torch.float32, (1,), (1,)).item()
    return x if inverse == 1 else x.to(OPMATH.get(x.dtype, x.dtype)) * inverse


def _renorm_scale(norm: Tensor, most: float) -> Tensor:
    return torch.where(norm > most, most / (norm + 1e-7), 1.0)


def _incomplete_gamma(a: Tensor, x: Tensor, upper: bool, out: Tensor) -> Tensor:
    compute: Compute = torch.special.gammaincc if upper else torch.special.gammainc
    return compute(a, x, out=out)


def _angle(x: Tensor) -> Tensor:
    turned = torch.where(x < 0, math.pi, 0.0).to(x.dtype)
    return torch.where(x.isnan(), x, turned)


def _square(x: Tensor) -> Tensor:
    return x * x


#: Classes of functors: how many inputs they take, and what they compute.
CLASSES: dict[str, tuple[int, Operation]] = {
    "FillFunctor": (0, Operation(lambda value: value, "t", exact=True)),
    "AbsFunctor": (1, _exact(torch.abs)),
    "CUDAFunctor_add": (2, Operation(_add, "m", out=True)),
    "CUDAFunctorOnSelf_add": (1, Operation(lambda a, b, alpha: a + alpha * b, "mm")),
    "CUDAFunctorOnOther_add": (1, Operation(lambda b, a, alpha: a + alpha * b, "mm")),
    "MulFunctor": (2, _math(torch.mul)),
    "DivFunctor": (2, _math(torch.true_divide)),
    "BitwiseAndFunctor": (2, _exact(torch.bitwise_and)),
    "BitwiseOrFunctor": (2, _exact(torch.bitwise_or)),
    "BitwiseXorFunctor": (2, _exact(torch.bitwise_xor)),
    "CalcIgamma": (2, Operation(_incomplete_gamma, "b", out=True)),
    "CompareFunctor": (2, _truth(_compare, "i")),
    "CompareEqFunctor": (2, _truth(_equal, "i")),
}

#: Lambdas by the function they lie in, without the suffixes `_kernel` and `_cuda`. Where several
#: operations are given, their numbers of inputs or their sizes tell them apart.
MATH: dict[str, Operation | tuple[Operation, ...]] = {
    **{name: _math(f) for name, f in _UNARY.items()},
    **{name: _math(f) for name, f in _BINARY.items()},
    **{name: _exact(f) for name, f in _EXACT_UNARY.items()},
    **{name: _exact(f) for name, f in _EXACT_BINARY.items()},
    **{name: _truth(f) for name, f in _TRUTH.items()},
    "compare_scalar": _truth(_compare_scalar, "it"),
    "direct_copy": copy(),
    "float16_copy": copy(torch.float16),
    "bfloat16_copy": copy(torch.bfloat16),
    "float16tofloat32_copy": copy(torch.float32),
    "bfloat16tofloat32_copy": copy(torch.float32),
    "conj": Operation(lambda x: x.conj().resolve_conj(), exact=True),
    "neg_conj": Operation(lambda x: -x.conj().resolve_conj(), exact=True),
    "angle": Operation(_angle),
    "polar": Operation(torch.polar, result="complex"),
    "complex": Operation(torch.complex, result="complex"),
    "fmod": _dividing(torch.fmod),
    "remainder": _dividing(torch.remainder),
    "div_trunc": (
        _dividing(lambda a, b: torch.div(a, b, rounding_mode="trunc"), exact=True),
        Operation(lambda x, inverse: torch.trunc(x * inverse), "m", takes=1),
    ),
    "div_floor": (
        _dividing(lambda a, b: torch.div(a, b, rounding_mode="floor")),
        Operation(_floor_quotient, "mm", takes=1),
    ),
    "logaddexp2": Operation(lambda a, b, inverse: torch.logaddexp2(a, b), "m"),
    "round_decimals": Operation(_rounded, "tb"),
    "nan_to_num": Operation(torch.nan_to_num, "ttt", out=True, exact=True),
    "where_kernel_impl": Operation(torch.where, result=1, out=True, exact=True),
    "masked_fill": Operation(lambda x, mask, value: x.masked_fill(mask, value), "t", exact=True),
    "masked_scale": Operation(lambda x, mask, scale: x * mask * scale, "a"),
    "launch_clamp_scalar": Operation(_clamp_scalar, "imm", out=True, exact=True),
    "clamp_kernel_impl": Operation(torch.clamp, out=True, exact=True),
    "clamp": Operation(torch.clamp, "tt", out=True, exact=True),
    "clamp_min": Operation(torch.clamp_min, "t", out=True, exact=True),
    "clamp_max": Operation(torch.clamp_max, "t", out=True, exact=True),
    "launch_masked_scatter_kernel": Operation(_masked_scatter, "q", memory=True),
    "_amp_non_finite_check_and_unscale_cuda_": Operation(_unscale, "qq", memory=True),
    "renorm_scale_factor_impl": Operation(_renorm_scale, "t"),
    "lerp_scalar": Operation(torch.lerp, "m", out=True),
    "lerp_tensor": Operation(torch.lerp, out=True),
    "addcmul": Operation(lambda a, b, c, alpha: a + alpha * (b * c), "m"),
    "addcmul_cuda_scalar_tensor2_kernel": Operation(
        lambda a, b, alpha, c: a + alpha * (b * c), "mm"
    ),
    "addcdiv": Operation(lambda a, b, c, alpha: a + alpha * (b / c), "m"),
    "pow_scalar_tensor_impl": Operation(lambda x, base: torch.pow(base, x), "t"),
    "pow_tensor_scalar": (Operation(_square), Operation(torch.pow, "t")),  # of complex numbers
    "pow_tensor_tensor": Operation(torch.pow, out=True),
}

#: Functions with several lambdas: which lambda's number decides (0 first, -1 last), and on what.
NUMBERED: dict[str, tuple[int, dict[int, Operation]]] = {
    "pow_tensor_scalar_kernel_impl": (
        -1,
        {
            1: Operation(_square),
            2: Operation(lambda x: x * x * x),
            3: Operation(lambda x: 1.0 / (x * x)),
            4: Operation(torch.pow, "e"),
        },
    ),
    "addr_kernel_cuda": (
        -1,
        {
            1: Operation(lambda x, a, b, alpha: alpha * a * b, "t"),
            2: Operation(lambda x, a, b, beta, alpha: beta * x + alpha * a * b, "tt"),
        },
    ),
}
