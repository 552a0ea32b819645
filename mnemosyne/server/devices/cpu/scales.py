"""Products of 8-bit floats: what A, B, C and D are multiplied by, and how large D became.

Sums are taken in 32 bits; D is rounded to its type once, and 8-bit floats saturate, as on a GPU.
Source: cublasLt.h (scale pointers and modes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from mnemosyne.server.devices.cpu.epilogues import Epilogue, Extra, Product
from mnemosyne.server.devices.cpu.matrices import FP8
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.errors import NOT_SUPPORTED, CallError

#: What C may be where D is of 8-bit floats.
WIDER = (torch.float16, torch.bfloat16, torch.float32)

_SCALAR, _OUTER_VECTOR = 0, 3  # cublasLtMatmulMatrixScale_t


@dataclass(frozen=True, slots=True)
class Scales:
    """Device pointers, 0 for none. ``vectors``: A and B have one scale for each row and column."""

    a: int
    b: int
    c: int
    d: int
    amax: int
    vectors: bool

    @classmethod
    def of(cls, a: int, b: int, c: int, d: int, amax: int, mode_a: int, mode_b: int) -> Scales:
        """Raises CallError for modes that are not offered here."""
        if mode_a != mode_b or mode_a not in (_SCALAR, _OUTER_VECTOR):
            raise CallError(NOT_SUPPORTED, f"8-bit floats with scales of modes {mode_a}, {mode_b}")
        return cls(a, b, c, d, amax, mode_a == _OUTER_VECTOR)

    def run(self, p: Product, epilogue: Epilogue, memory: CpuMemory, extra: Extra) -> None:
        """D = scale_d * epilogue(alpha * scale_a * A @ scale_b * B + beta * scale_c * C)."""
        rows, columns = p.out.shape[-2:]
        wide = torch.empty(p.out.shape, dtype=torch.float32)
        left = p.a.float() * _scale(memory, self.a, (rows, 1) if self.vectors else (1, 1))
        right = p.b.float() * _scale(memory, self.b, (1, columns) if self.vectors else (1, 1))
        addend = p.c.float() * _scale(memory, self.c, (1, 1)) if p.beta else wide
        epilogue.run(replace(p, a=left, b=right, c=addend, out=wide), memory, extra)
        if self.amax:
            largest = wide.abs().amax().reshape(1)
            memory.view(self.amax, torch.float32, (1,), (1,)).copy_(largest)
        p.out.copy_(_saturated(wide * _scale(memory, self.d, (1, 1)), p.out.dtype))


def _scale(memory: CpuMemory, pointer: int, shape: tuple[int, int]) -> torch.Tensor:
    if pointer == 0:
        return torch.ones(1, 1)
    return memory.view(pointer, torch.float32, shape, (1, 1))


def _saturated(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype not in FP8:
        return values
    most = torch.finfo(dtype).max
    return values.clamp(-most, most)
