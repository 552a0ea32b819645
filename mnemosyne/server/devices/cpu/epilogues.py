"""What cublasLt does to a product before it stores it: bias, activation, their gradients.

Each epilogue of cublasLtEpilogue_t is a row of a table: what happens to the product, in order.
``x`` is the product of shape (m, n); bias has m elements and is packed. GELU is the tanh form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.server.devices.cpu.matrices import Matrix, multiply
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.errors import INVALID_VALUE, CallError


@dataclass(frozen=True, slots=True)
class Product:
    """out = alpha * a @ b + beta * c, in place of ``out``."""

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    out: torch.Tensor
    alpha: Any
    beta: Any


@dataclass(frozen=True, slots=True)
class Extra:
    """The further matrices of an epilogue. Pointers are device pointers, 0 for none."""

    bias: int
    bias_type: torch.dtype
    aux: int
    aux_leading: int
    aux_type: torch.dtype


Step = Callable[[Product, CpuMemory, Extra], None]


@dataclass(frozen=True, slots=True)
class Epilogue:
    """``steps`` run in order; the first computes the product. ``extras``: uses ``Extra``."""

    steps: tuple[Step, ...]
    extras: bool = True

    def run(self, product: Product, memory: CpuMemory, extra: Extra) -> None:
        for step in self.steps:
            step(product, memory, extra)


def _product(p: Product, memory: CpuMemory, extra: Extra) -> None:
    multiply(p.a, p.b, p.c, p.out, p.alpha, p.beta)


def _product_bias(p: Product, memory: CpuMemory, extra: Extra) -> None:
    bias = _column(memory, extra, p.out.shape[0])
    if p.beta == 0 and bias.dtype is p.out.dtype:
        multiply(p.a, p.b, bias, p.out, p.alpha, 1)
    else:
        multiply(p.a, p.b, p.c, p.out, p.alpha, p.beta)
        p.out.add_(bias)


def _relu(p: Product, memory: CpuMemory, extra: Extra) -> None:
    p.out.relu_()


def _gelu(p: Product, memory: CpuMemory, extra: Extra) -> None:
    p.out.copy_(torch.nn.functional.gelu(p.out, approximate="tanh"))


def _keep_input(p: Product, memory: CpuMemory, extra: Extra) -> None:
    _aux(p, memory, extra).copy_(p.out)


def _keep_mask(p: Product, memory: CpuMemory, extra: Extra) -> None:
    """One bit an element, columns ``aux_leading`` bits apart, lowest bit first."""
    bits = _mask(p, memory, extra)
    rows, columns = p.out.shape
    set_bits = torch.zeros((columns, extra.aux_leading), dtype=torch.uint8)
    set_bits[:, :rows] = (p.out > 0).t()
    bits.copy_((set_bits.view(columns, -1, 8) << _BIT).sum(2, dtype=torch.uint8))


def _relu_gradient(p: Product, memory: CpuMemory, extra: Extra) -> None:
    bits = _mask(p, memory, extra)
    rows, columns = p.out.shape
    kept = ((bits.unsqueeze(2) >> _BIT) & 1).view(columns, -1)[:, :rows].t()
    p.out.masked_fill_(kept == 0, 0)


def _gelu_gradient(p: Product, memory: CpuMemory, extra: Extra) -> None:
    before = _aux(p, memory, extra).to(p.out.dtype)
    p.out.copy_(torch.ops.aten.gelu_backward(p.out, before, approximate="tanh"))


def _bias_gradient(p: Product, memory: CpuMemory, extra: Extra) -> None:
    _column(memory, extra, p.out.shape[0]).copy_(p.out.sum(1, keepdim=True))


def _a_gradient(p: Product, memory: CpuMemory, extra: Extra) -> None:
    _column(memory, extra, p.a.shape[0]).copy_(p.a.sum(1, keepdim=True))


def _b_gradient(p: Product, memory: CpuMemory, extra: Extra) -> None:
    _column(memory, extra, p.b.shape[1]).copy_(p.b.sum(0).unsqueeze(1))


_BIT = torch.arange(8, dtype=torch.uint8)


def _column(memory: CpuMemory, extra: Extra, length: int) -> torch.Tensor:
    if extra.bias == 0:
        raise CallError(INVALID_VALUE, "the epilogue has no bias pointer")
    return memory.view(extra.bias, extra.bias_type, (length, 1), (1, 1))


def _aux(p: Product, memory: CpuMemory, extra: Extra) -> torch.Tensor:
    if extra.aux == 0:
        raise CallError(INVALID_VALUE, "the epilogue has no auxiliary pointer")
    rows, columns = p.out.shape
    return Matrix(extra.aux, extra.aux_type, extra.aux_leading).view(memory, rows, columns)


def _mask(p: Product, memory: CpuMemory, extra: Extra) -> torch.Tensor:
    rows, columns = p.out.shape
    if extra.aux == 0 or extra.aux_leading % 8 or extra.aux_leading < rows:
        raise CallError(INVALID_VALUE, f"a mask with columns {extra.aux_leading} bits apart")
    width = extra.aux_leading // 8
    return memory.view(extra.aux, torch.uint8, (columns, width), (width, 1))


_RELU, _BIAS, _DRELU, _BGRAD, _GELU, _DGELU, _AUX = 2, 4, 8, 16, 32, 64, 128
_BGRADA, _BGRADB = 256, 512

#: cublasLtEpilogue_t of cublasLt.h.
EPILOGUES = {
    1: Epilogue((_product,), extras=False),
    _RELU: Epilogue((_product, _relu), extras=False),
    _GELU: Epilogue((_product, _gelu), extras=False),
    _BIAS: Epilogue((_product_bias,)),
    _RELU | _BIAS: Epilogue((_product_bias, _relu)),
    _GELU | _BIAS: Epilogue((_product_bias, _gelu)),
    _RELU | _AUX: Epilogue((_product, _keep_mask, _relu)),
    _RELU | _AUX | _BIAS: Epilogue((_product_bias, _keep_mask, _relu)),
    _GELU | _AUX: Epilogue((_product, _keep_input, _gelu)),
    _GELU | _AUX | _BIAS: Epilogue((_product_bias, _keep_input, _gelu)),
    _DRELU | _AUX: Epilogue((_product, _relu_gradient)),
    _DGELU | _AUX: Epilogue((_product, _gelu_gradient)),
    _DRELU | _AUX | _BGRAD: Epilogue((_product, _relu_gradient, _bias_gradient)),
    _DGELU | _AUX | _BGRAD: Epilogue((_product, _gelu_gradient, _bias_gradient)),
    _BGRADA: Epilogue((_product, _a_gradient)),
    _BGRADB: Epilogue((_product, _b_gradient)),
}
