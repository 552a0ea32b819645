"""Elementwise operations, products, reductions and reshapes of cuDNN graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import torch
import torch.nn.functional as F

from mnemosyne.server.devices.cpu.cudnn.content import Descriptor
from mnemosyne.server.devices.cpu.cudnn.graph import (
    Step,
    Tensor,
    Values,
    check_fit,
    compute_dtype,
)
from mnemosyne.server.errors import NOT_SUPPORTED, CallError

Operation = Callable[..., torch.Tensor]

_MODE, _COMPUTE, _NAN, _LOWER, _UPPER, _SLOPE, _AXIS = 0, 1, 2, 3, 4, 5, 9
_DESC, _X, _B, _Y, _ALPHA1, _ALPHA2, _T = 750, 751, 752, 753, 754, 755, 758

#: cudnnPointwiseMode_t, by how many tensors they take.
_UNARY: dict[int, Operation] = {
    10: torch.abs, 11: torch.ceil, 12: torch.cos, 13: torch.exp, 14: torch.floor, 15: torch.log,
    16: torch.neg, 17: torch.rsqrt, 18: torch.sin, 4: torch.sqrt, 19: torch.tan, 20: torch.erf,
    21: torch.clone, 22: torch.reciprocal, 101: torch.tanh, 102: torch.sigmoid, 104: F.gelu,
    107: partial(F.gelu, approximate="tanh"), 402: torch.logical_not,
}  # fmt: skip
_BINARY: dict[int, Operation] = {
    0: torch.add, 6: torch.div, 3: torch.maximum, 2: torch.minimum, 1: torch.mul, 8: torch.pow,
    9: torch.sub, 300: torch.eq, 301: torch.ne, 302: torch.gt, 303: torch.ge, 304: torch.lt,
    305: torch.le, 400: torch.logical_and, 401: torch.logical_or,
}  # fmt: skip
_RELU, _INDEX, _SELECT = 100, 501, 601
_TAKES = {**dict.fromkeys(_BINARY, 2), _SELECT: 3}  # tensors; else one
#: cudnnReduceTensorOp_t.
_REDUCTIONS: dict[int, Operation] = {
    0: torch.sum, 2: torch.amin, 3: torch.amax, 5: torch.mean,
    4: lambda x, dims, keepdim: x.abs().amax(dims, keepdim),
    6: lambda x, dims, keepdim: x.abs().sum(dims, keepdim),
    7: lambda x, dims, keepdim: x.square().sum(dims, keepdim).sqrt(),
}  # fmt: skip


def compare(mode: int) -> Operation:
    """The comparison of a cudnnPointwiseMode_t. Raises CallError."""
    if not 300 <= mode <= 305:
        raise CallError(NOT_SUPPORTED, f"cuDNN comparison {mode}")
    return _BINARY[mode]


def _pointwise(d: Descriptor) -> Step:
    d.only({_DESC, _X, _B, _Y, _ALPHA1, _ALPHA2, _T})
    how = d.child(_DESC)
    how.only({_MODE, _COMPUTE, _NAN, _LOWER, _UPPER, _SLOPE, _AXIS})
    operation = _operation(how)
    compute = compute_dtype(how.enum(_COMPUTE))
    tensors = [Tensor.of(found) for name in (_X, _B, _T) if (found := d.optional(name))]
    scales = [d.real(_ALPHA1, 1.0), d.real(_ALPHA2, 1.0), 1.0][: len(tensors)]
    out = Tensor.of(d.child(_Y))
    _check_operands(how, tensors, out)

    def run(values: Values) -> None:
        operands = [_operand(values.read(t), compute) for t in tensors]
        scaled = [x if a == 1 else x * a for x, a in zip(operands, scales, strict=True)]
        values.write(out, operation(*scaled))

    return Step(tuple(tensors), (out,), run)


def _check_operands(how: Descriptor, tensors: list[Tensor], out: Tensor) -> None:
    mode = how.enum(_MODE)
    count, dimensions = len(tensors), len(out.sizes)
    check_fit(count == _TAKES.get(mode, 1), f"pointwise mode {mode} of {count} tensors")
    check_fit(mode != _INDEX or 0 <= how.integer(_AXIS) < dimensions, "an index without an axis")
    for t in tensors:
        pairs = zip(t.sizes, out.sizes, strict=False)
        fits = len(t.sizes) == len(out.sizes) and all(n in (1, m) for n, m in pairs)
        check_fit(fits, f"{t.sizes} does not spread to {out.sizes}")


def _operand(x: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    return x.to(compute) if x.is_floating_point() else x


def _operation(how: Descriptor) -> Operation:
    mode = how.enum(_MODE)
    if mode == _RELU:
        if how.real(_SLOPE, 0.0):
            raise CallError(NOT_SUPPORTED, "a cuDNN ReLU with a slope")
        return partial(torch.clamp, min=how.real(_LOWER, 0.0), max=how.real(_UPPER, float("inf")))
    if mode == _INDEX:
        return partial(_index, axis=how.integer(_AXIS))
    if mode == _SELECT:
        return lambda x, b, t: torch.where(t != 0, x, b)
    found = _UNARY.get(mode) or _BINARY.get(mode)
    if found is None:
        raise CallError(NOT_SUPPORTED, f"cuDNN pointwise mode {mode}")
    return found


def _index(x: torch.Tensor, *, axis: int) -> torch.Tensor:
    """Each element's own index along an axis."""
    numbers = torch.arange(x.shape[axis], device=x.device, dtype=torch.int32)
    return numbers.view([-1 if at == axis % x.dim() else 1 for at in range(x.dim())]).expand(
        x.shape
    )


def _matmul(d: Descriptor) -> Step:
    """Matrices are the last two dimensions; in the others an operand may have fewer."""
    d.only({1520, 1521, 1522, 1523})
    how = d.child(1523)
    how.only({1500})
    compute = compute_dtype(how.enum(1500))
    a, b, c = (Tensor.of(d.child(name)) for name in (1520, 1521, 1522))
    batch = c.sizes[:-2]
    what = f"a product of {a.sizes} and {b.sizes} to {c.sizes}"
    check_fit(len(a.sizes) == len(b.sizes) == len(c.sizes) >= 2, what)
    check_fit(a.sizes[-1] == b.sizes[-2], what)
    check_fit(c.sizes[-2:] == (a.sizes[-2], b.sizes[-1]), what)
    check_fit(all(_divides(t.sizes[:-2], batch) for t in (a, b)), what)

    def run(values: Values) -> None:
        left, right = (repeat(values.read(t).to(compute), batch) for t in (a, b))
        values.write(c, left @ right)

    return Step((a, b), (c,), run)


def _divides(few: Sequence[int], many: Sequence[int]) -> bool:
    return all(n and m % n == 0 for n, m in zip(few, many, strict=True))


def repeat(x: torch.Tensor, batch: Sequence[int]) -> torch.Tensor:
    """As many matrices as the batch has; neighbours share one."""
    for at, size in enumerate(batch):
        if x.shape[at] != size:
            x = x.repeat_interleave(size // x.shape[at], at)
    return x


def _reduction(d: Descriptor) -> Step:
    """Over the dimensions in which the result has fewer elements: neighbours become one."""
    d.only({1610, 1611, 1612})
    how = d.child(1612)
    how.only({1600, 1601, 1602})
    operation = _REDUCTIONS.get(how.enum(1600))
    if operation is None:
        raise CallError(NOT_SUPPORTED, f"cuDNN reduction {how.enum(1600)}")
    compute = compute_dtype(how.enum(1601))
    x, y = Tensor.of(d.child(1610)), Tensor.of(d.child(1611))
    what = f"a reduction of {x.sizes} to {y.sizes}"
    check_fit(len(x.sizes) == len(y.sizes) and _divides(y.sizes, x.sizes), what)
    pairs = [(m, n // m) for n, m in zip(x.sizes, y.sizes, strict=True)]
    dims = [2 * at + 1 for at in range(len(pairs))]

    def run(values: Values) -> None:
        parts = values.read(x).to(compute).reshape([n for pair in pairs for n in pair])
        values.write(y, operation(parts, dims, keepdim=False).reshape(y.sizes))

    return Step((x,), (y,), run)


def _reshape(d: Descriptor) -> Step:
    """The same memory seen with other sizes and strides, so elements keep their order there.

    A virtual tensor has no memory, and its strides come from whatever it was computed with: from a
    mask that repeats, for instance. Its elements are in the order of its dimensions.
    """
    d.only({2200, 2201, 2202})
    if 2202 in d.attributes and d.enum(2202):
        raise CallError(NOT_SUPPORTED, f"cuDNN reshape mode {d.enum(2202)}")
    x, y = Tensor.of(d.child(2200)), Tensor.of(d.child(2201))
    check_fit(prod(x.sizes) == prod(y.sizes), f"a reshape of {x.sizes} to {y.sizes}")
    outer = list(range(len(x.sizes))) if x.virtual else _by_stride(x)
    inner = _by_stride(y)
    back = [inner.index(at) for at in range(len(inner))]

    def run(values: Values) -> None:
        flat = values.read(x).permute(outer)
        values.write(y, flat.reshape([y.sizes[at] for at in inner]).permute(back))

    return Step((x,), (y,), run)


def _by_stride(t: Tensor) -> list[int]:
    """Dimensions, outermost in memory first."""
    return sorted(range(len(t.sizes)), key=lambda at: -t.strides[at])


BUILDERS = {13: _pointwise, 19: _matmul, 22: _reduction, 31: _reshape}
