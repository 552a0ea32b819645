"""Elementwise kernels with several results: gradients of glu and prelu, frexp, statistics."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .names import dtype, enclosing_function, lambda_parameters, template_arguments
from .operations import OPMATH
from .structs import CODES, Geometry, OffsetCalculator, align

Results = tuple[Tensor, ...]
_LAMBDA_SIZES = (1, 8)  # without and with a capture clause, nothing captured
_HOST_POINTER = 8  # behind what a lambda captures


def _prelu_backward(x: Tensor, weight: Tensor, grad: Tensor) -> Results:
    positive = x > 0
    return torch.where(positive, grad, weight * grad), torch.where(positive, 0, x * grad)


def _frexp(x: Tensor) -> Results:
    return tuple(torch.frexp(x))


def _moved(
    mean: Tensor, variance: Tensor, old_mean: Tensor, old: Tensor, bessel: float, share: float
) -> Results:
    """Running statistics of batch norm after one more batch."""
    kept = 1 - share
    return mean * share + old_mean * kept, variance * bessel * share + old * kept


def _moved_and_inverted(
    mean: Tensor,
    variance: Tensor,
    old_mean: Tensor,
    old: Tensor,
    bessel: float,
    share: float,
    epsilon: float,
) -> Results:
    moved = _moved(mean, variance, old_mean, old, bessel, share)
    return *moved, torch.rsqrt(variance + epsilon)


#: By the function that the lambda lies in: what it computes, its results' types (a number: the
#: type of that input) and how many numbers of the first input's type it captures.
_LAMBDAS: dict[str, tuple[Callable[..., Results], tuple[torch.dtype | int, ...], int]] = {
    "prelu_backward_kernel": (_prelu_backward, (0, 0), 0),
    "frexp_kernel_cuda": (_frexp, (0, torch.int32), 0),
    "batch_norm_update_stats": (_moved, (2, 2), 2),
    "batch_norm_update_stats_and_invert": (_moved_and_inverted, (2, 2, 0), 3),
}


def _bind_outputs(kernel: KernelInfo) -> Run:
    """(int N, functor, pointers, calculators of the inputs and outputs), strides in elements."""
    template = "unrolled_elementwise_kernel_for_multi_outputs"
    arguments = template_arguments(kernel.demangled, template)
    name = enclosing_function(arguments[1])
    if name not in _LAMBDAS:
        raise UnsupportedKernel(f"the operation {name} is not implemented")
    compute, kinds, captures = _LAMBDAS[name]
    inputs = [dtype(kind) for kind in lambda_parameters(arguments[1])]
    outputs = [inputs[kind] if isinstance(kind, int) else kind for kind in kinds]
    count = len(inputs) + len(outputs)
    state = _captured(kernel, inputs[0], captures)
    if kernel.params[2][1] != 8 * count:
        raise UnsupportedKernel(f"pointers of another size: {kernel.params}")
    header = struct.Struct(f"<i{kernel.params[2][0] - 4}x{count}Q")
    shape_in = _geometry(kernel, 3, arguments[3], len(inputs))
    shape_out = _geometry(kernel, 4, arguments[4], len(outputs))

    def run(launch: Launch) -> None:
        n, *pointers = header.unpack_from(launch.args)
        results = _views(launch.memory, pointers, outputs, shape_out(launch.args, n))
        operands = _views(launch.memory, pointers[len(outputs) :], inputs, shape_in(launch.args, n))
        wide = [x.to(OPMATH.get(x.dtype, x.dtype)) for x in operands]
        for result, value in zip(results, compute(*wide, *state(launch.args)), strict=True):
            result.copy_(value)

    return run


def _captured(
    kernel: KernelInfo, kind: torch.dtype, count: int
) -> Callable[[bytes], tuple[float, ...]]:
    """What reads the numbers that the lambda captures, in front of a pointer for the host."""
    at, size = kernel.params[1]
    length = align(count * kind.itemsize, _HOST_POINTER) + _HOST_POINTER
    if size not in (_LAMBDA_SIZES if count == 0 else (length,)):
        raise UnsupportedKernel(f"a functor of another size: {kernel.params}")
    layout = struct.Struct(f"<{at}x{count}{CODES[kind]}") if count else struct.Struct("<")
    return layout.unpack_from


def _geometry(
    kernel: KernelInfo, parameter: int, name: str, tensors: int
) -> Callable[[bytes, int], Geometry]:
    """What reads the shape: of a trivial calculator it is N elements side by side."""
    if name.startswith("TrivialOffsetCalculator"):
        return lambda args, n: Geometry((n,), ((1,),) * tensors)
    at, size = kernel.params[parameter]
    calculator = OffsetCalculator(tensors)
    if calculator.size != size:
        raise UnsupportedKernel(f"an offset calculator of {size} bytes")
    return lambda args, n: calculator.read(args, at)


def _views(
    memory: Memory, pointers: Sequence[int], kinds: Sequence[torch.dtype], shape: Geometry
) -> list[Tensor]:
    return [
        memory.view(pointer, kind, shape.sizes, strides)
        for pointer, kind, strides in zip(pointers, kinds, shape.strides, strict=False)
    ]


def _bind_glu_backward(kernel: KernelInfo) -> Run:
    """(N, grad input, input, grad, calculator, bytes to the second halves of both inputs)."""
    kind = dtype(template_arguments(kernel.demangled, "glu_backward_kernel")[0])
    unpack, calculator = unpacker(kernel, "iQQQsqq"), OffsetCalculator(3)
    at, size = kernel.params[4]
    if calculator.size != size:
        raise UnsupportedKernel(f"an offset calculator of {size} bytes")
    wide = OPMATH.get(kind, kind)

    def run(launch: Launch) -> None:
        _, grad_input, source, grad, _, to_second_grad, to_second = unpack(launch.args)
        sizes, (left_strides, in_strides, out_strides) = calculator.read(launch.args, at)
        view = launch.memory.view
        a = view(source, kind, sizes, in_strides).to(wide)
        gate = torch.sigmoid(view(source + to_second, kind, sizes, in_strides).to(wide))
        upper = view(grad, kind, sizes, out_strides).to(wide)
        view(grad_input, kind, sizes, left_strides).copy_(gate * upper)
        second = view(grad_input + to_second_grad, kind, sizes, left_strides)
        second.copy_((1 - gate) * gate * upper * a)

    return run


FAMILY: Family = [
    (re.compile(r"\bunrolled_elementwise_kernel_for_multi_outputs<"), _bind_outputs),
    (re.compile(r"\bglu_backward_kernel<"), _bind_glu_backward),
]
