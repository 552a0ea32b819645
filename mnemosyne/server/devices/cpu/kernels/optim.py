"""Fused optimizers: SGD, Adam, AdamW and Adagrad over lists of tensors.

torch's own fused optimizers for the CPU do the same to the same lists, in one pass. All kernels
take the learning rate by value or from device memory, perhaps a divisor of the gradients and a
flag that calls the whole step off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .arguments import unpacker
from .foreach_lists import ListLayout, Piece, list_layout
from .names import dtype, template_arguments

Tensor = torch.Tensor
Lists = list[list[Tensor]]
Step = Callable[[Lists, list[Tensor], dict[str, Any], tuple[Any, ...]], None]


def _bind(functor: str, codes: str, step: Callable[[Sequence[str]], Step]) -> _Binder:
    """A binder: `codes` of the arguments after lists and functor, of which the last are pointers.

    The learning rate is a pointer among them, `L`, and a value after it.
    """

    def bind(kernel: KernelInfo) -> Run:
        text = template_arguments(kernel.demangled, "multi_tensor_apply_kernel")[1]
        args = template_arguments(text, functor)
        layout, run = list_layout(kernel), step(args)
        kinds = _types(functor, args, layout)
        unpack = unpacker(kernel, "xx" + codes.replace("L", "Q") + "QQ")
        rate = codes.index("L")

        def launch_step(launch: Launch) -> None:
            *values, grad_scale, found_inf = unpack(launch.args)
            memory = launch.memory
            if found_inf and _value(memory, found_inf) == 1:
                return
            pointer = values.pop(rate)
            values[rate] = _value(memory, pointer) if pointer else values[rate]
            pieces = layout.pieces(launch.args, launch.grid[0])
            lists = [
                layout.views(launch.args, at, pieces, kind, memory) for at, kind in enumerate(kinds)
            ]
            scale = memory.view(grad_scale, torch.float32, (), ()) if grad_scale else None
            steps = _steps(layout, launch.args, pieces, memory)
            run(lists, steps, {"grad_scale": scale, "found_inf": None}, tuple(values))

        return launch_step

    return bind


_Binder = Callable[[KernelInfo], Run]


def _types(functor: str, args: Sequence[str], layout: ListLayout) -> list[torch.dtype]:
    """The element type of each list: one for all, or, in mixed precision, one for each."""
    if functor == "FusedAdamMathFunctorMP":
        return [dtype(kind) for kind in args[1 : 1 + layout.depth]]
    return [dtype(args[0])] * layout.depth


def _value(memory: Memory, pointer: int) -> float:
    return float(memory.view(pointer, torch.float32, (), ()).item())


def _steps(
    layout: ListLayout, args: bytes, pieces: Sequence[Piece], memory: Memory
) -> list[Tensor]:
    """The step counts, in optimizers that have them."""
    if layout.steps < 0:
        return []
    places = layout.steps_of(args, pieces)
    return [memory.view(place, torch.float32, (), ()) for place in places]


def _sgd(args: Sequence[str]) -> Step:
    def step(lists: Lists, steps: list[Tensor], amp: dict[str, Any], values: Any) -> None:
        weight_decay, momentum, lr, dampening, nesterov, maximize, first = values
        torch._fused_sgd_(
            lists[0],
            lists[1],
            lists[2] if len(lists) > 2 else [],
            weight_decay=weight_decay,
            momentum=momentum if len(lists) > 2 else 0.0,
            lr=lr,
            dampening=dampening,
            nesterov=nesterov,
            maximize=maximize,
            is_first_step=first,
            **amp,
        )

    return step


def _adam(args: Sequence[str]) -> Step:
    """`FusedAdamMathFunctor<..., mode, amsgrad>`: mode 0 is Adam, 1 is AdamW."""
    mode, amsgrad = args[-2].rpartition(")")[2], args[-1] == "true"
    if mode not in "01":
        raise UnsupportedKernel(f"Adam in mode {mode}")
    fused: Any = (torch._fused_adam_, torch._fused_adamw_)[int(mode)]

    def step(lists: Lists, steps: list[Tensor], amp: dict[str, Any], values: Any) -> None:
        lr, beta1, beta2, weight_decay, eps, maximize = values
        work = [_as(parts, lists[0]) for parts in lists]
        fused(
            *work[:4],
            work[4] if amsgrad else [],
            steps,
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=amsgrad,
            maximize=maximize,
            **amp,
        )
        _copy_back(lists, work)

    return step


def _as(parts: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """The tensors in another's type; the same tensors when they have it already."""
    return [part.to(other.dtype) for part, other in zip(parts, like, strict=True)]


def _copy_back(lists: Lists, work: Lists) -> None:
    for parts, results in zip(lists, work, strict=True):
        for part, result in zip(parts, results, strict=True):
            if part is not result:
                part.copy_(result)


def _adagrad(args: Sequence[str]) -> Step:
    def step(lists: Lists, steps: list[Tensor], amp: dict[str, Any], values: Any) -> None:
        lr, lr_decay, weight_decay, eps, maximize = values
        parameters, gradients, sums = lists
        torch._fused_adagrad_(
            parameters,
            gradients,
            sums,
            steps,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            eps=eps,
            maximize=maximize,
            **amp,
        )

    return step


_FUNCTORS = (
    ("FusedSgdMathFunctor", "ddLdd???", _sgd),
    ("FusedAdamMathFunctor", "Lddddd?", _adam),
    ("FusedAdamMathFunctorMP", "Lddddd?", _adam),
    ("FusedAdagradMathFunctor", "Ldddd?", _adagrad),
)

FAMILY: Family = [
    (re.compile(rf"\bmulti_tensor_apply_kernel<.*\b{functor}<"), _bind(functor, codes, step))
    for functor, codes, step in _FUNCTORS
]
