"""What each operation of a ReduceOp does, with torch: the table behind `reduce.py`.

An operation keeps an accumulator of one or more values (`fields`), which lies in memory between
the launches of a split reduction. `direct` is the whole reduction in one step, the usual case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import UnsupportedKernel
from .names import dtype, split, template_arguments

Tensor = torch.Tensor
State = tuple[Tensor, ...]
Dims = tuple[int, ...]
Members = tuple[Any, ...]
Partial = Callable[[Tensor, Dims, Members], State]
Direct = Callable[[Tensor, Dims, Sequence[Tensor], Members], None]
Reduce = Callable[..., Tensor]
Combine = Callable[[Tensor, Tensor], Tensor]

_MEMBER = {torch.float32: "f", torch.float64: "d"}
_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Reduction:
    """One operation; `members` is the layout of its functor, as in `struct`.

    `partial` reduces an operand to an accumulator, `combine` joins two, `project` gives the
    results. When `indexed`, the second value is an index, counted from the start of the launch.
    """

    scalar: torch.dtype
    outputs: tuple[torch.dtype, ...]
    fields: tuple[torch.dtype, ...]
    members: str
    partial: Partial
    combine: Callable[[State, State], State]
    project: Callable[[State, Members], State]
    direct: Direct
    indexed: bool = False


@dataclass(frozen=True, slots=True)
class Functor:
    """The type of an operation: the template arguments of its class, and what its lambda takes."""

    args: tuple[str, ...]
    params: tuple[str, ...] = ()

    @property
    def accumulator(self) -> torch.dtype:
        """Of a wrapped function: the first parameter of the lambda or of the functor."""
        return dtype((self.params or self.args)[0])


Builder = Callable[[Functor, torch.dtype, torch.dtype], Reduction]


def find_reduction(ops: str, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    """Give the operation that a functor's type names; UnsupportedKernel when there is none."""
    wrapped = "::func_wrapper_t<" in ops
    text = template_arguments(ops, "func_wrapper_t")[1] if wrapped else ops
    found = next((match for match in re.finditer(r"::(\w+)", text) if match[1] in _TABLE), None)
    if found is None:
        raise UnsupportedKernel(f"a reduction with {text}")
    generic = text[found.end() : found.end() + 1] == "<"
    args = template_arguments(text, found[1]) if generic else []
    inner = re.search(r"\{lambda\(([^()]*)\)#\d+\}$", text)
    params = split(inner[1]) if inner else []
    return _TABLE[found[1]](Functor(tuple(args), tuple(params)), scalar, out)


def _single(
    acc: torch.dtype,
    scalar: torch.dtype,
    out: torch.dtype,
    partial: Callable[[Tensor, Dims, Members], Tensor],
    combine: Combine,
    project: Callable[[Tensor, Members], Tensor] = lambda value, members: value,
    direct: Direct | None = None,
    members: str = "",
) -> Reduction:
    """An operation with one value as accumulator and one result."""

    def in_steps(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
        outs[0].copy_(project(partial(x, dims, members), members))

    return Reduction(
        scalar,
        (out,),
        (acc,),
        members,
        lambda x, dims, members: (partial(x, dims, members),),
        lambda a, b: (combine(a[0], b[0]),),
        lambda state, members: (project(state[0], members),),
        direct or in_steps,
    )


def _sum(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    if out == torch.bool:  # a sum of truths is true when one of them is
        return _truth(torch.any, torch.logical_or, scalar)
    acc = functor.accumulator

    def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
        torch.sum(x, dims, dtype=out, out=outs[0])

    def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
        return torch.sum(x, dims, dtype=acc)

    return _single(acc, scalar, out, partial, torch.add, direct=direct)


def _nansum(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    acc = dtype(functor.args[0])

    def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
        return torch.nansum(x, dims, dtype=acc)

    return _single(acc, scalar, out, partial, torch.add)


def _product(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    if out == torch.bool:
        return _truth(torch.all, torch.logical_and, scalar)
    acc = functor.accumulator

    def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
        return torch.prod(x.flatten(dims[0]), -1, dtype=acc)

    return _single(acc, scalar, out, partial, torch.mul)


def _mean(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    acc, factor = dtype(functor.args[1]), dtype(functor.args[2])
    if factor not in _MEMBER:
        raise UnsupportedKernel(f"mean with a factor of {factor}")

    def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
        torch.sum(x, dims, dtype=out, out=outs[0]).mul_(members[0])

    def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
        return torch.sum(x, dims, dtype=acc)

    def project(value: Tensor, members: Members) -> Tensor:
        return value.mul(members[0])

    whole = direct if acc == out else None
    return _single(acc, scalar, out, partial, torch.add, project, whole, _MEMBER[factor])


def _extremum(reduce: Reduce, combine: Combine) -> Builder:
    def build(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
        def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
            reduce(x, dims, out=outs[0])

        def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
            value: Tensor = reduce(x, dims)
            return value

        whole = direct if scalar == out else None
        return _single(functor.accumulator, scalar, out, partial, combine, direct=whole)

    return build


def _truths(reduce: Reduce, combine: Combine) -> Builder:
    def build(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
        if out != torch.bool:
            raise UnsupportedKernel(f"a truth as {out}")
        return _truth(reduce, combine, scalar)

    return build


def _truth(reduce: Reduce, combine: Combine, scalar: torch.dtype) -> Reduction:
    def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
        outs[0].copy_(reduce(x, dims))  # of bytes the result is a byte, so no `out=`

    def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
        return reduce(x, dims).bool()

    return _single(torch.bool, scalar, torch.bool, partial, combine, direct=direct)


def _norm(power: float | None, combine: Combine = torch.add) -> Builder:
    """A vector norm; `power` is None when it is a member of the functor."""

    def build(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
        acc = dtype(functor.args[1])
        rooted = functor.args[3:] != ("false",)

        def partial(x: Tensor, dims: Dims, members: Members) -> Tensor:
            return _power_sum(x, dims, members[0] if power is None else power, acc)

        def project(value: Tensor, members: Members) -> Tensor:
            return _root(value, members[0] if power is None else power) if rooted else value

        def two_norm(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
            torch.linalg.vector_norm(x, 2, dims, out=outs[0])

        whole = two_norm if power == 2 and rooted and scalar == out == acc else None
        members = _MEMBER[acc] if power is None else ""
        return _single(acc, scalar, out, partial, combine, project, whole, members)

    return build


def _power_sum(x: Tensor, dims: Dims, power: float, acc: torch.dtype) -> Tensor:
    """What a norm adds up, |x|^power; of an infinite norm the extremum itself."""
    size = x.abs().to(acc) if x.is_complex() else x.to(acc).abs()
    if power == 0:
        return torch.count_nonzero(x, dims).to(acc)
    if abs(power) == _INFINITY:
        return torch.amax(size, dims) if power > 0 else torch.amin(size, dims)
    return torch.sum(size if power == 1 else size.pow(power), dims)


def _root(value: Tensor, power: float) -> Tensor:
    if power in (0, 1) or abs(power) == _INFINITY:
        return value
    return value.sqrt() if power == 2 else value.pow(1.0 / power)


def _indexed(largest: bool, with_value: bool) -> Builder:
    """The extremum with its index; the first one when there are several."""
    find: Callable[..., Any] = torch.max if largest else torch.min

    def build(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
        kind = dtype(functor.args[0])

        def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
            results = tuple(find(x.flatten(dims[0]), -1))
            store(outs, results if with_value else results[1:])

        def partial(x: Tensor, dims: Dims, members: Members) -> State:
            value, index = find(x.flatten(dims[0]), -1)
            return value.to(kind), index

        return Reduction(
            scalar,
            (out, torch.int64) if with_value else (out,),
            (kind, torch.int64),
            "",
            partial,
            lambda a, b: _better(a, b, largest),
            lambda state, members: state if with_value else state[1:],
            direct,
            indexed=True,
        )

    return build


def store(outs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Copy the results that the launch has room for."""
    for place, result in zip(outs, results, strict=False):
        place.copy_(result)


def _better(a: State, b: State, largest: bool) -> State:
    """Choose element by element; NaN wins, and of equal ones the lower index."""
    wins = a[0] > b[0] if largest else a[0] < b[0]
    a_nan, b_nan = a[0].isnan(), b[0].isnan()
    same = (a[0] == b[0]) | (a_nan & b_nan)
    keep = torch.where(same, a[1] < b[1], (wins | a_nan) & ~(b_nan & ~a_nan))
    return torch.where(keep, a[0], b[0]), torch.where(keep, a[1], b[1])


def _min_max(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    def partial(x: Tensor, dims: Dims, members: Members) -> State:
        return torch.amin(x, dims), torch.amax(x, dims)

    def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
        store(outs, partial(x, dims, members))

    return Reduction(
        scalar,
        (out, out),
        (dtype(functor.args[1]),) * 2,
        "",
        partial,
        lambda a, b: (torch.minimum(a[0], b[0]), torch.maximum(a[1], b[1])),
        lambda state, members: state,
        direct,
    )


def _welford(functor: Functor, scalar: torch.dtype, out: torch.dtype) -> Reduction:
    """Variance or standard deviation, and the mean; members: correction, take_sqrt."""
    acc, index = dtype(functor.args[1]), dtype(functor.args[2])

    def partial(x: Tensor, dims: Dims, members: Members) -> State:
        variance, mean = torch.var_mean(x.to(acc), dims, correction=0)
        count = torch.full_like(mean, x.shape[dims[0] :].numel())
        return mean, variance * count, count.to(index), count

    def project(state: State, members: Members) -> State:
        variance = state[1] / (state[3] - members[0]).clamp(min=0)
        return variance.sqrt() if members[1] else variance, state[0]

    def direct(x: Tensor, dims: Dims, outs: Sequence[Tensor], members: Members) -> None:
        both = torch.std_mean if members[1] else torch.var_mean
        store(outs, both(x.to(acc), dims, correction=members[0]))

    layout = f"{_MEMBER[acc]}?{acc.itemsize - 1}x"
    fields = (acc, acc, index, acc)
    return Reduction(scalar, (out, out), fields, layout, partial, _merge, project, direct)


def _merge(a: State, b: State) -> State:
    """Join the moments of two parts; the count as an integer is given up, as in WelfordOps."""
    delta, count = b[0] - a[0], a[3] + b[3]
    share = b[3] / count
    moment = a[1] + b[1] + delta * delta * a[3] * share
    return a[0] + delta * share, moment, torch.full_like(a[2], -1), count


_TABLE: Mapping[str, Builder] = {
    "sum_functor": _sum,
    "ReductionAddOp": _sum,
    "prod_functor": _product,
    "ReductionMulOp": _product,
    "NanSumOps": _nansum,
    "MeanOps": _mean,
    "MaxNanFunctor": _extremum(torch.amax, torch.maximum),
    "MinNanFunctor": _extremum(torch.amin, torch.minimum),
    "or_kernel_cuda": _truths(torch.any, torch.logical_or),
    "and_kernel_cuda": _truths(torch.all, torch.logical_and),
    "MaxOps": _indexed(largest=True, with_value=True),
    "MinOps": _indexed(largest=False, with_value=True),
    "ArgMaxOps": _indexed(largest=True, with_value=False),
    "ArgMinOps": _indexed(largest=False, with_value=False),
    "MinMaxOps": _min_max,
    "WelfordOps": _welford,
    "NormTwoOps": _norm(2),
    "NormOneOps": _norm(1),
    "NormZeroOps": _norm(0),
    "NormOps": _norm(None),
    "AbsMaxOps": _norm(_INFINITY, torch.maximum),
    "AbsMinOps": _norm(-_INFINITY, torch.minimum),
}
