"""Batch norm without cuDNN: statistics, normalisation, gradients.

Each kernel comes in two forms: for a tensor (batch, channels, places) given by accessors, and for
one with the channels last, given by addresses and two counts. Both are brought to channels last.
Kernels of several processes' statistics (SyncBatchNorm) take the number of elements from memory.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import opmath, unpacker
from .names import dtype, parameters, template_arguments

Tensor = torch.Tensor
Maybe = Tensor | None
Values = Sequence[Any]

_ACCESSOR = "GenericPackedTensorAccessor"
_INDEX = {"int": "i", "long": "q"}
_NUMBERS = {"int": "i", "long": "q", "bool": "?", "float": "f", "double": "d"}


@dataclass(frozen=True, slots=True)
class Accessor:
    """A tensor as an argument: address, sizes, strides; without elements it stands for none."""

    kind: torch.dtype
    dims: int
    layout: struct.Struct

    def view(self, memory: Memory, data: bytes) -> Maybe:
        pointer, *numbers = self.layout.unpack(data)
        sizes, strides = numbers[: self.dims], numbers[self.dims :]
        if not pointer or 0 in sizes:
            return None
        found = memory.view(pointer, self.kind, sizes, strides)
        return found.movedim(1, -1) if self.dims == 3 else found


def _accessor(text: str) -> Accessor:
    *_, kind, dims, _, index = template_arguments(text, _ACCESSOR)
    count = int(dims.rstrip("ul"))
    return Accessor(dtype(_chosen(kind)), count, struct.Struct(f"<Q{2 * count}{_INDEX[index]}"))


def _chosen(kind: str) -> str:
    """Read `std::conditional<true, A, B>::type`."""
    if "std::conditional<" not in kind:
        return kind
    condition, first, second = template_arguments(kind, "conditional")
    return first if condition == "true" else second


Compute = Callable[..., None]


def _planar(name: str, compute: Compute) -> Callable[[KernelInfo], Run]:
    """A kernel of accessors and numbers, which `compute` gets as tensors and numbers."""

    def bind(kernel: KernelInfo) -> Run:
        types = parameters(kernel.demangled, name)
        if any(kind.endswith("*") for kind in types):
            raise UnsupportedKernel("batch norm over several processes")
        accessors = [_accessor(kind) if _ACCESSOR in kind else None for kind in types]
        codes = [_NUMBERS.get(kind, "s") for kind in types]
        unpack, args = unpacker(kernel, "".join(codes)), template_arguments(kernel.demangled, name)

        def run(launch: Launch) -> None:
            values = unpack(launch.args)
            compute(
                args,
                *(
                    value if accessor is None else accessor.view(launch.memory, value)
                    for accessor, value in zip(accessors, values, strict=True)
                ),
            )

        return run

    return bind


def _flat(name: str, order: str, compute: Compute) -> Callable[[KernelInfo], Run]:
    """A kernel with the channels last; `order` says what each pointer is.

    `x` is a tensor of all elements, `c` one of a value for each channel, `_` scratch memory.
    The numbers behind the pointers, up to the two counts, come last for `compute`.
    """

    def bind(kernel: KernelInfo) -> Run:
        types = _pointed_types(kernel, name)
        params = parameters(kernel.demangled, name)
        if len(types) != len(order):
            raise UnsupportedKernel("batch norm over several processes")
        numbers = [_NUMBERS[kind] for kind in params[len(order) :]]
        unpack = unpacker(kernel, "Q" * len(order) + "".join(numbers))
        args = template_arguments(kernel.demangled, name)
        first = numbers.index("i")

        def run(launch: Launch) -> None:
            values = unpack(launch.args)
            rest = list(values[len(order) :])
            rows, channels = rest.pop(first), rest.pop(first)
            view = launch.memory.view
            shapes = {"x": ((rows, channels), (channels, 1)), "c": ((channels,), (1,))}
            tensors = [
                view(pointer, kind, *shapes[what]) if pointer else None
                for pointer, kind, what in zip(values, types, order, strict=False)
                if what != "_"
            ]
            compute(args, *tensors, *rest)

        return run

    return bind


def _pointed_types(kernel: KernelInfo, name: str) -> list[torch.dtype]:
    """Types of the pointers; `volatile` scratch memory counts as well."""
    return [
        dtype(kind.replace(" volatile", ""))
        for kind in parameters(kernel.demangled, name)
        if kind.endswith("*")
    ]


def _wide(x: Tensor) -> Tensor:
    return x.to(opmath(x.dtype))


def _all_but_last(x: Tensor) -> tuple[int, ...]:
    return tuple(range(x.dim() - 1))


def _store(place: Maybe, value: Tensor) -> None:
    if place is not None:
        place.copy_(value)


def _statistics(args: Values, x: Tensor, mean: Maybe, spread: Maybe, epsilon: float) -> None:
    """Mean, and variance or 1 / standard deviation, as the first template argument says."""
    variance, average = torch.var_mean(_wide(x), _all_but_last(x), correction=0)
    if args[0].endswith("InvStd"):
        exists = (variance != 0) | (epsilon != 0)
        variance = torch.where(exists, (variance + epsilon).rsqrt(), 0)
    elif not args[0].endswith("Var"):
        raise UnsupportedKernel(f"batch norm with {args[0]}")
    _store(mean, average)
    _store(spread, variance)


def _planar_statistics(
    args: Values, x: Tensor, epsilon: float, _: float, mean: Maybe, spread: Maybe
) -> None:
    _statistics(args, x, mean, spread, epsilon)


def _normalise(
    args: Values,
    x: Tensor,
    out: Tensor,
    mean: Tensor,
    spread: Tensor,
    weight: Maybe,
    bias: Maybe,
    epsilon: float,
) -> None:
    """In training `spread` is 1 / standard deviation, else the variance."""
    training = args[3] == "true"
    rstd = _wide(spread) if training else 1 / (_wide(spread) + epsilon).sqrt()
    out.copy_(_affine(x, mean, rstd, weight, bias))


def _affine(x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, bias: Maybe) -> Tensor:
    result = _wide(x) - mean
    result = result * rstd if weight is None else result * weight * rstd
    return result if bias is None else result + bias


def _flat_normalise(
    args: Values,
    x: Tensor,
    z: Maybe,
    mean: Tensor,
    rstd: Tensor,
    weight: Maybe,
    bias: Maybe,
    out: Tensor,
    relu: bool,
) -> None:
    result = _affine(x, mean, rstd, weight, bias)
    result = result if z is None else result + z
    out.copy_(result.clamp_min(0) if relu else result)


def _sums(x: Tensor, grad: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """For each channel the sums of the gradient and of gradient * (x - mean)."""
    dims, wide = _all_but_last(x), _wide(grad)
    return wide.sum(dims), (wide * (_wide(x) - mean)).sum(dims)


def _backward_sums(
    args: Values,
    x: Tensor,
    grad: Tensor,
    mean: Tensor,
    rstd: Tensor,
    sum_dy: Maybe,
    sum_dy_xmu: Maybe,
    grad_weight: Maybe,
    grad_bias: Maybe,
) -> None:
    total, dot = _sums(x, grad, mean)
    _store(grad_weight, dot * rstd)
    _store(grad_bias, total)
    _store(sum_dy, total)
    _store(sum_dy_xmu, dot)


def _backward_elements(
    args: Values,
    x: Tensor,
    grad: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Maybe,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    grad_x: Tensor,
    share: float,
) -> None:
    """The gradient of the input from the sums; `share` is 1 / elements of a channel."""
    projection = rstd * rstd * sum_dy_xmu * share
    scale = rstd if weight is None else rstd * weight
    grad_x.copy_((_wide(grad) - sum_dy * share - (_wide(x) - mean) * projection) * scale)


def _flat_backward_elements(args: Values, grad: Tensor, x: Tensor, *rest: Any) -> None:
    _backward_elements(args, x, grad, *rest)


def _backward(
    args: Values,
    x: Tensor,
    grad: Tensor,
    grad_x: Maybe,
    grad_weight: Maybe,
    grad_bias: Maybe,
    weight: Maybe,
    running_mean: Tensor,
    running_variance: Tensor,
    saved_mean: Tensor,
    saved_rstd: Tensor,
    training: bool,
    epsilon: float,
) -> None:
    """All gradients at once; in evaluation the statistics are constants."""
    mean = saved_mean if training else _wide(running_mean)
    rstd = saved_rstd if training else 1 / (_wide(running_variance) + epsilon).sqrt()
    total, dot = _sums(x, grad, mean)
    share = x.shape[-1] / x.numel()
    if grad_x is not None and training:
        _backward_elements(args, x, grad, mean, rstd, weight, total, dot, grad_x, share)
    elif grad_x is not None:
        grad_x.copy_(_wide(grad) * (rstd if weight is None else rstd * weight))
    _store(grad_weight, dot * rstd)
    _store(grad_bias, total)


_PLANAR = (
    ("batch_norm_collect_statistics_kernel", _planar_statistics),
    ("batch_norm_transform_input_kernel", _normalise),
    ("batch_norm_backward_reduce_kernel", _backward_sums),
    ("batch_norm_backward_elemt_kernel", _backward_elements),
    ("batch_norm_backward_kernel", _backward),
)
_FLAT = (
    ("batch_norm_collect_statistics_channels_last_kernel", "xcc__", _statistics),
    ("batch_norm_transform_input_channels_last_kernel", "xxccccx", _flat_normalise),
    ("batch_norm_backward_reduce_channels_last_kernel", "xxcccccc__", _backward_sums),
    ("batch_norm_backward_elemt_channels_last_kernel", "xxcccccx", _flat_backward_elements),
)

FAMILY: Family = [
    *((re.compile(rf"\b{name}<"), _planar(name, compute)) for name, compute in _PLANAR),
    *((re.compile(rf"\b{name}<"), _flat(name, order, compute)) for name, order, compute in _FLAT),
]
