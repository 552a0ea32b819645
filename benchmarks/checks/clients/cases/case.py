"""What the modules of cases share: their table, inputs that are equal on every device, and steps.

A case is a function that returns tensors, or that prepares a step: a function that returns tensors
whenever it is called. The modules beside this file are what users of PyTorch write: they know
nothing of Mnemosyne and must never import it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Tensors = Sequence[Tensor]
Step = Callable[[], Tensors]
Case = Callable[..., "Tensors | Step"]
CASES: dict[str, Callable[[], Tensors | Step]] = {}


class Skip(Exception):
    """The case cannot be tried here, for the reason that is its text."""


class Setting:
    """What the program was started for. ``tiny``: sizes for a machine without a GPU."""

    device = "cuda"
    tiny = False


def case(name: str) -> Callable[[Case], Case]:
    return cases({name: ()})


def cases(table: Mapping[str, tuple[Any, ...]]) -> Callable[[Case], Case]:
    """Several cases of one function: their names, each with its arguments."""

    def register(function: Case) -> Case:
        for name, arguments in table.items():
            assert name not in CASES
            CASES[name] = lambda arguments=arguments: function(*arguments)
        return function

    return register


def pick(full: Any, tiny: Any) -> Any:
    return tiny if Setting.tiny else full


def gpu_only(what: str) -> None:
    if Setting.device == "cpu":
        raise Skip(f"the CPU has no {what}")


def need(name: str) -> Any:
    """A module of a package that is not PyTorch's."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == package:
            raise Skip(f"{package} is not installed") from None
        raise


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Drawn on the CPU, so that every device gets the same numbers."""
    return torch.randn(shape).to(Setting.device, dtype)


def randint(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape).to(Setting.device)


def autocast(dtype: torch.dtype | None) -> torch.autocast:
    return torch.autocast(Setting.device, dtype or torch.bfloat16, enabled=dtype is not None)


def with_grads(
    function: Callable[..., Tensor], *inputs: Tensor, parameters: Sequence[Tensor] = ()
) -> list[Tensor]:
    """The output, and the gradients of all inputs and parameters."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves)
    weight = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape).to(out.dtype)
    gradients = torch.autograd.grad(out, [*leaves, *parameters], weight, allow_unused=True)
    return [out, *(gradient for gradient in gradients if gradient is not None)]


def training(
    model: nn.Module, loss_of: Callable[[nn.Module], Tensor], amp: torch.dtype | None = None
) -> Step:
    """A step that returns its loss; float16 with a GradScaler."""
    rate = pick(1e-2, 1e-6)  # a tiny batch multiplies what another device rounds differently
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    scaler = torch.amp.GradScaler(Setting.device, enabled=amp is torch.float16)

    def step() -> Tensors:
        optimizer.zero_grad(set_to_none=True)
        with autocast(amp):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss]

    return step
