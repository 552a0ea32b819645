"""Layer norm and RMS norm, forward and backward.

A template argument, absent from older builds, tells the two apart: RMS norm has neither a mean
nor a bias. Everything is computed in the accumulation type, as the kernels do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import pointed_types, unpacker
from .names import template_arguments

Tensor = torch.Tensor

_NAME = re.compile(
    r"\b(vectorized_layer_norm_kernel|RowwiseMomentsCUDAKernel|LayerNormForwardCUDAKernel"
    r"|layer_norm_grad_input_kernel(?:_vectorized)?|GammaBetaBackward\w*)<"
)
_COUNTS_WITH_FLAG = (3, 8)  # of template arguments, in builds that know RMS norm


class _Views:
    """Views of one launch; a null pointer gives None."""

    __slots__ = ("_memory", "_types")

    def __init__(self, memory: Memory, types: Sequence[torch.dtype]) -> None:
        self._memory = memory
        self._types = types

    def matrix(self, index: int, pointer: int, rows: int, columns: int) -> Tensor:
        return self._memory.view(pointer, self._types[index], (rows, columns), (columns, 1))

    def vector(self, index: int, pointer: int, size: int) -> Tensor | None:
        if not pointer:
            return None
        return self._memory.view(pointer, self._types[index], (size,), (1,))

    def column(self, index: int, pointer: int, rows: int) -> Tensor:
        return self._memory.view(pointer, self._types[index], (rows, 1), (1, 1))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a kernel's name says: its template arguments, the types it points to, which norm."""

    args: tuple[str, ...]
    types: tuple[torch.dtype, ...]
    rms: bool


def _kind(kernel: KernelInfo) -> _Kind:
    found = _NAME.search(kernel.demangled)
    if found is None:
        raise UnsupportedKernel("an unknown norm")
    args = template_arguments(kernel.demangled, found[1])
    rms = len(args) in _COUNTS_WITH_FLAG and args[-1] == "true"
    return _Kind(tuple(args), tuple(pointed_types(kernel, found[1])), rms)


def _bind_vectorized(kernel: KernelInfo) -> Run:
    """vectorized_layer_norm_kernel(N, eps, X, gamma, beta, mean, rstd, Y): a block for a row."""
    kind = _kind(kernel)
    types, rms = kind.types, kind.rms
    acc = types[3]
    unpack = unpacker(kernel, "n" + _real(acc) + "QQQQQQ")

    def launch_rows(launch: Launch) -> None:
        columns, eps, x, gamma, beta, mean, rstd, y = unpack(launch.args)
        views, rows = _Views(launch.memory, types), launch.grid[0]
        source = views.matrix(0, x, rows, columns).to(acc)
        weight, bias = views.vector(1, gamma, columns), views.vector(2, beta, columns)
        target, scale = views.matrix(5, y, rows, columns), views.column(4, rstd, rows)
        if rms:
            scale.copy_(_moments(source, eps, rms)[1])
            _normalise(target, source, source, scale, weight, bias, rms)
            return
        results = torch.native_layer_norm(source, (columns,), _in(acc, weight), _in(acc, bias), eps)
        places = target, views.column(3, mean, rows), scale
        for place, result in zip(places, results, strict=True):
            place.copy_(result)

    return launch_rows


def _in(kind: torch.dtype, x: Tensor | None) -> Tensor | None:
    return x if x is None else x.to(kind)


def _moments(x: Tensor, eps: float, rms: bool) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of each row; for RMS norm zero and 1 / RMS."""
    if rms:
        return x.new_zeros(()), x.square().mean(1, keepdim=True).add_(eps).rsqrt_()
    variance, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    return mean, variance.add_(eps).rsqrt_()


def _normalise(
    y: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    rms: bool,
) -> None:
    result = (x if rms else x - mean) * rstd
    if gamma is not None:
        result *= gamma
    if beta is not None and not rms:
        result += beta
    y.copy_(result)


def _bind_moments(kernel: KernelInfo) -> Run:
    """RowwiseMomentsCUDAKernel(N, eps, X, mean, rstd), newer ones with M in front."""
    if len(kernel.params) == 7:
        return _bind_group_moments(kernel)
    kind = _kind(kernel)
    types, rms = kind.types, kind.rms
    counts = len(kernel.params) - 4
    unpack = unpacker(kernel, "n" * counts + _real(types[1]) + "QQQ")

    def launch_rows(launch: Launch) -> None:
        *sizes, eps, x, mean, rstd = unpack(launch.args)
        rows, columns = (launch.grid[0], *sizes)[-2:]
        views = _Views(launch.memory, types)
        shift, scale = _moments(views.matrix(0, x, rows, columns).to(types[1]), eps, rms)
        views.column(2, rstd, rows).copy_(scale)
        if not rms:
            views.column(1, mean, rows).copy_(shift)

    return launch_rows


def _real(kind: torch.dtype) -> str:
    return "d" if kind == torch.float64 else "f"


def _bind_group_moments(kernel: KernelInfo) -> Run:
    """Group norm's RowwiseMomentsCUDAKernel(N, eps, X, mean, rstd, mean_acc, rstd_acc)."""
    types = pointed_types(kernel, "RowwiseMomentsCUDAKernel")
    codes = {8: "d", 4: "f", 2: "s"}
    unpack = unpacker(kernel, "q" + codes[kernel.params[1][1]] + "QQQQQ")
    kind, acc = types[0], types[3]

    def launch_rows(launch: Launch) -> None:
        columns, eps, x, *places = unpack(launch.args)
        if isinstance(eps, bytes):
            eps = torch.frombuffer(bytearray(eps), dtype=kind).item()
        views, rows = _Views(launch.memory, types), launch.grid[0]
        results = _moments(views.matrix(0, x, rows, columns).to(acc), eps, rms=False) * 2
        last = 4 if kind != acc else 2  # the accurate copies are written only when they differ
        for index, place in enumerate(places[:last]):
            views.column(1 + index, place, rows).copy_(results[index])

    return launch_rows


def _bind_forward(kernel: KernelInfo) -> Run:
    """LayerNormForwardCUDAKernel(N, X, mean, rstd, gamma, beta, Y), newer ones with M in front."""
    kind = _kind(kernel)
    types, rms = kind.types, kind.rms
    unpack = unpacker(kernel, "n" * (len(kernel.params) - 6) + "QQQQQQ")

    def launch_rows(launch: Launch) -> None:
        *sizes, x, mean, rstd, gamma, beta, y = unpack(launch.args)
        rows, columns = (launch.grid[0], *sizes)[-2:]
        views = _Views(launch.memory, types)
        source = views.matrix(0, x, rows, columns).to(types[2])
        shift = source if rms else views.column(1, mean, rows)
        scale = views.column(2, rstd, rows)
        weight, bias = views.vector(3, gamma, columns), views.vector(4, beta, columns)
        _normalise(views.matrix(5, y, rows, columns), source, shift, scale, weight, bias, rms)

    return launch_rows


def _bind_input_gradient(kernel: KernelInfo) -> Run:
    """layer_norm_grad_input_kernel(dY, X, mean, rstd, gamma, dX, N): a block for a row."""
    kind = _kind(kernel)
    types, rms = kind.types, kind.rms
    unpack = unpacker(kernel, "QQQQQQn")
    acc = types[3]

    def launch_rows(launch: Launch) -> None:
        dy, x, mean, rstd, gamma, dx, columns = unpack(launch.args)
        views, rows = _Views(launch.memory, types), launch.grid[0]
        grad, source = (
            views.matrix(at, place, rows, columns).to(acc) for at, place in enumerate((dy, x))
        )
        weight, scale = _in(acc, views.vector(4, gamma, columns)), views.column(3, rstd, rows)
        target = views.matrix(5, dx, rows, columns)
        if rms:
            target.copy_(_rms_input_gradient(grad, source, scale, weight))
            return
        shift, wanted = views.column(2, mean, rows), [True, False, False]
        results = torch.ops.aten.native_layer_norm_backward(
            grad, source, (columns,), shift, scale, weight, None, wanted
        )
        target.copy_(results[0])

    return launch_rows


def _rms_input_gradient(grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    normal = x * rstd
    grad = grad if weight is None else grad * weight
    dot = (grad * normal).mean(1, keepdim=True)
    return torch.addcmul(grad, normal, dot, value=-1).mul_(rstd)


def _bind_weight_gradient(kernel: KernelInfo) -> Run:
    """GammaBetaBackward...(M, N, dY, X, mean, rstd, dgamma, dbeta): a sum for each column.

    With many rows the grid has several layers of blocks, and each writes its own partial sum.
    """
    kind = _kind(kernel)
    types, rms = kind.types, kind.rms
    unpack = unpacker(kernel, "nnQQQQQQ")
    acc = types[3]
    partial = kind.args[5:6] == ("true",)
    stripe = int(kind.args[4].rstrip("u")) if len(kind.args) > 4 else 0  # rows of a block at a time

    def launch_columns(launch: Launch) -> None:
        rows, columns, dy, x, mean, rstd, dgamma, dbeta = unpack(launch.args)
        if (launch.block if partial else launch.grid)[1] > 1:
            raise UnsupportedKernel("partial sums of layer norm by threads")
        views, layers = _Views(launch.memory, types), launch.grid[1]
        grad = views.matrix(0, dy, rows, columns).to(acc)
        if dgamma:
            source = views.matrix(1, x, rows, columns).to(acc)
            normal = (source if rms else source - views.column(2, mean, rows)) * views.column(
                3, rstd, rows
            )
            _sum_layers(views.matrix(4, dgamma, layers, columns), normal * grad, stripe)
        if dbeta and not rms:
            _sum_layers(views.matrix(5, dbeta, layers, columns), grad, stripe)

    return launch_columns


def _sum_layers(place: Tensor, terms: Tensor, stripe: int) -> None:
    """Sum the rows; layer i of several takes stripe i, i + layers, ... of the rows."""
    layers = place.shape[0]
    if layers == 1:
        place.copy_(terms.sum(0, keepdim=True))
        return
    which = torch.arange(terms.shape[0]).div(stripe, rounding_mode="floor") % layers
    place.copy_(torch.zeros_like(place, dtype=terms.dtype).index_add_(0, which, terms))


FAMILY: Family = [
    (re.compile(pattern), binder)
    for pattern, binder in (
        (r"\bvectorized_layer_norm_kernel<", _bind_vectorized),
        (r"\bRowwiseMomentsCUDAKernel<", _bind_moments),
        (r"\bLayerNormForwardCUDAKernel<", _bind_forward),
        (r"\blayer_norm_grad_input_kernel(_vectorized)?<", _bind_input_gradient),
        (r"\bGammaBetaBackwardCUDAKernelTemplate<", _bind_weight_gradient),
        (r"\bGammaBetaBackward(Simple)?CUDAKernel(_32x32)?<", _bind_weight_gradient),
    )
]
