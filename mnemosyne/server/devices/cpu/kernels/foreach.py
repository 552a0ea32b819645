"""Operations on lists of tensors: `multi_tensor_apply_kernel<lists, functor, operation, ...>`.

A functor `Functor<T, depth, inputs, result>` says which list is the result and where each operand
comes from: a list, a scalar for all, a scalar for each tensor, or a scalar in device memory. The
table at the end gives the operands of each functor, and the operations it is used with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import opmath, unpacker
from .foreach_lists import ListLayout, Piece, list_layout
from .foreach_ops import BINARY, FLOATING_ONLY, POINTWISE, TERNARY, UNARY, WITH_SCALAR, Function
from .names import dtype, template_arguments

_CODES = {
    torch.float32: "f",
    torch.float64: "d",
    torch.int64: "q",
    torch.int32: "i",
    torch.int16: "h",
    torch.int8: "b",
    torch.uint8: "B",
    torch.bool: "?",
}


@dataclass(frozen=True, slots=True)
class Functor:
    """One kernel: its functor's template arguments and its first argument's layout."""

    kernel: KernelInfo
    name: str
    args: tuple[str, ...]
    operation: str
    layout: ListLayout

    @property
    def kind(self) -> torch.dtype:
        return dtype(self.args[0])

    @property
    def scalar_code(self) -> str:
        """How a scalar is passed among the arguments."""
        code = _CODES.get(opmath(self.kind))
        if code is None:
            raise UnsupportedKernel(f"lists of tensors and a scalar of {self.kind}")
        return code


Column = Callable[[Launch, Sequence[Piece]], Sequence[Any]]
Operand = Callable[[Functor], Column]


def _bind(kernel: KernelInfo) -> Run:
    functor = _read_functor(kernel)
    if functor.name not in _FUNCTORS:
        raise UnsupportedKernel(f"lists of tensors under {functor.name}")
    operations, operands = _FUNCTORS[functor.name]
    function = operations.get(functor.operation)
    if function is None:
        raise UnsupportedKernel(f"lists of tensors under {functor.operation}")
    floating = functor.kind.is_floating_point or functor.kind.is_complex
    if functor.operation in FLOATING_ONLY and not floating:
        raise UnsupportedKernel(f"lists of {functor.kind} under {functor.operation}")
    return _runner(functor, function, [operand(functor) for operand in operands])


def _read_functor(kernel: KernelInfo) -> Functor:
    _, functor, *rest = template_arguments(kernel.demangled, "multi_tensor_apply_kernel")
    name, operation = _base(functor), _base(rest[0]) if rest else ""
    args = tuple(template_arguments(functor, name))
    return Functor(kernel, name, args, operation, list_layout(kernel))


def _base(text: str) -> str:
    """The last part of a path, without its template arguments."""
    return re.sub(r"<.*", "", text).rpartition("::")[2]


def _runner(functor: Functor, function: Function, operands: Sequence[Column]) -> Run:
    layout, kind = functor.layout, functor.kind
    result = _result_list(functor)

    def run(launch: Launch) -> None:
        args = launch.args
        pieces = layout.pieces(args, launch.grid[0])
        columns = [operand(launch, pieces) for operand in operands]
        results = layout.views(args, result, pieces, kind, launch.memory) if result else columns[0]
        for place, *row in zip(results, *columns, strict=True):
            function(*row, out=place)

    return run


def _result_list(functor: Functor) -> int:
    """`Functor<T, depth, inputs, result>`, or `Functor<T, depth>` with the last list as result."""
    numbers = [int(arg) for arg in functor.args if arg.isdigit()]
    return numbers[2] if len(numbers) == 3 else numbers[0] - 1


def _list(index: int) -> Operand:
    def operand(functor: Functor) -> Column:
        layout, kind = functor.layout, functor.kind
        return lambda launch, pieces: layout.views(launch.args, index, pieces, kind, launch.memory)

    return operand


def _zero_dim_list(index: int) -> Operand:
    """A list of tensors of one value each."""

    def operand(functor: Functor) -> Column:
        def column(launch: Launch, pieces: Sequence[Piece]) -> list[torch.Tensor]:
            places = functor.layout.addresses(launch.args, index, pieces)
            return [launch.memory.view(place, functor.kind, (), ()) for place in places]

        return column

    return operand


def _source_list(functor: Functor) -> Column:
    """List 0 of a `CopyFunctor<T, source type, ...>`."""
    kind = dtype(functor.args[1])
    return lambda launch, pieces: functor.layout.views(launch.args, 0, pieces, kind, launch.memory)


def _scalar(functor: Functor) -> Column:
    """The last argument: one scalar for all."""
    unpack = unpacker(functor.kernel, "xxx" + functor.scalar_code)
    return lambda launch, pieces: [unpack(launch.args)[-1]] * len(pieces)


def _scalar_list(functor: Functor) -> Column:
    layout = functor.layout
    return lambda launch, pieces: layout.scalars_of(launch.args, pieces)


def _scaled_list(functor: Functor) -> Column:
    """List 1 times alpha, the last argument."""
    unpack, acc = unpacker(functor.kernel, "xxx" + functor.scalar_code), opmath(functor.kind)
    views = _list(1)(functor)

    def column(launch: Launch, pieces: Sequence[Piece]) -> Sequence[torch.Tensor]:
        alpha = unpack(launch.args)[-1]
        others = views(launch, pieces)
        return others if alpha == 1 else [other.to(acc) * alpha for other in others]

    return column


def _scalar_tensor(functor: Functor) -> Column:
    """A scalar in device memory times alpha: the last two arguments."""
    unpack = unpacker(functor.kernel, "xxxQ" + functor.scalar_code)

    def column(launch: Launch, pieces: Sequence[Piece]) -> list[Any]:
        pointer, alpha = unpack(launch.args)[-2:]
        value = launch.memory.view(pointer, functor.kind, (), ()).item()
        return [value * alpha] * len(pieces)

    return column


def _zero(place: torch.Tensor, *, out: torch.Tensor) -> None:
    out.zero_()


_X, _Y, _Z = _list(0), _list(1), _list(2)

_FUNCTORS: Mapping[str, tuple[Mapping[str, Function], Sequence[Operand]]] = {
    "ZeroFunctor": ({"": _zero}, (_X,)),
    "CopyFunctor": (UNARY, (_source_list,)),
    "UnaryOpFunctor": (UNARY, (_X,)),
    "BinaryOpScalarFunctor": (WITH_SCALAR, (_X, _scalar)),
    "BinaryOpScalarListFunctor": (WITH_SCALAR, (_X, _scalar_list)),
    "BinaryOpScalarTensorFunctor": (WITH_SCALAR, (_X, _scalar_tensor)),
    "BinaryOpListAlphaFunctor": (BINARY, (_X, _scaled_list)),
    "PointwiseOpListFunctor": (BINARY, (_X, _Y)),
    "PointwiseOpScalarFunctor": (POINTWISE, (_X, _Y, _Z, _scalar)),
    "PointwiseOpScalarListFunctor": (POINTWISE, (_X, _Y, _Z, _scalar_list)),
    "PointwiseOpScalar0dTensorFunctor": (POINTWISE, (_X, _zero_dim_list(1), _Z, _scalar)),
    "TernaryOpListFunctor": (TERNARY, (_X, _Y, _Z)),
    "TernaryOpScalarFunctor": (TERNARY, (_X, _Y, _scalar)),
    "TernaryOpScalarListFunctor": (TERNARY, (_X, _Y, _scalar_list)),
}


def _bind_unscale(kernel: KernelInfo) -> Run:
    """Gradients times a factor; a flag is set when one of them is not finite."""
    functor, unpack = _read_functor(kernel), unpacker(kernel, "xxs")
    gradients = _X(functor)

    def run(launch: Launch) -> None:
        (captured,) = unpack(launch.args)
        found, factor = (int.from_bytes(captured[at : at + 8], "little") for at in (0, 8))
        view = launch.memory.view
        scale = view(factor, torch.float32, (), ()).item()
        for gradient in gradients(launch, functor.layout.pieces(launch.args, launch.grid[0])):
            if not bool(gradient.isfinite().all()):
                view(found, torch.float32, (), ()).fill_(1.0)
            if scale != 1.0:
                gradient.mul_(scale)

    return run


FAMILY: Family = [
    (re.compile(r"multi_tensor_apply_kernel<.*_amp_foreach_non_finite_check"), _bind_unscale),
    (re.compile(r"\bmulti_tensor_apply_kernel<(?!.*\b(Lp|Fused)\w+Functor\w*<)"), _bind),
]
