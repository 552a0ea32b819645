"""What the functors of elementwise kernels compute: the last steps of group and batch norm.

As in operations.py. Their other kernels, which make the moments and sums, are of other families.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .operations import Operation


def _standard(x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    return (x - mean) * rstd


def _scaled(x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor) -> Tensor:
    return (x - mean) * rstd * gamma


def _shifted(x: Tensor, mean: Tensor, rstd: Tensor, beta: Tensor) -> Tensor:
    return (x - mean) * rstd + beta


def _affine(x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return (x - mean) * rstd * gamma + beta


def _line(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return a * x + b


def _plane(grad: Tensor, x: Tensor, c1: Tensor, c2: Tensor, c3: Tensor) -> Tensor:
    return c1 * grad + c2 * x + c3


def _scaled_plane(
    grad: Tensor, x: Tensor, rstd: Tensor, gamma: Tensor, c2: Tensor, c3: Tensor
) -> Tensor:
    return rstd * gamma * grad + c2 * x + c3


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, invstd: Tensor) -> Tensor:
    return (x - mean) * weight * invstd + bias


def _batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, invstd: Tensor,
    sum_xmu: Tensor, sum_dy: Tensor, share: float,
) -> Tensor:  # fmt: skip
    """``share`` is one over the number of elements that a mean is of."""
    slope = invstd * invstd * sum_xmu * share
    return (grad - sum_dy * share - (x - mean) * slope) * (weight * invstd)


#: As MATH of operations.py.
NORMALIZED: dict[str, Operation | tuple[Operation, ...]] = {
    "batch_norm_elementwise": Operation(_batch_norm, takes=5),
    "batch_norm_elementwise_backward_train": Operation(_batch_norm_backward, "m", takes=7),
    "batch_norm_elementwise_backward_eval": (
        Operation(lambda grad, scale: grad * scale, takes=2),
        Operation(lambda grad, scale, weight: grad * scale * weight, takes=3),
    ),
    "batch_norm_calc_invstd": Operation(
        lambda x, epsilon: torch.rsqrt(x + epsilon), "m", result="wide"
    ),
}

#: As NUMBERED of operations.py; the number of inputs counts, too.
NUMBERED: dict[str, tuple[int, dict[int, Operation | tuple[Operation, ...]]]] = {
    "GroupNorm1dForward": (
        -1,
        {
            1: (
                Operation(_standard, takes=3),
                Operation(_scaled, takes=4),
                Operation(_affine, takes=5),
            ),
            2: Operation(_shifted, takes=4),
        },
    ),
    "GroupNormKernelImplInternal": (
        -1,
        {1: Operation(_standard, takes=3), 2: Operation(_line, takes=3)},
    ),
    "GroupNorm1dBackward": (
        -1,
        {
            1: (
                Operation(_line, takes=3),
                Operation(_plane, takes=5),
                Operation(_scaled_plane, takes=6),
            )
        },
    ),
    "GroupNormBackwardKernelImplInternal": (
        -1,
        {
            1: (
                Operation(lambda rstd, gamma: rstd * gamma, takes=2, result="wide"),
                Operation(_line, takes=3),
                Operation(_plane, takes=5),
            ),
            2: Operation(_plane, takes=5),
        },
    ),
}
