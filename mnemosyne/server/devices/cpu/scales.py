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

_BLOCK = 128


def _one(memory: CpuMemory, pointer: int, rows: int, k: int) -> torch.Tensor:
    return memory.view(pointer, torch.float32, (1, 1), (1, 1))


def _of_rows(memory: CpuMemory, pointer: int, rows: int, k: int) -> torch.Tensor:
    return memory.view(pointer, torch.float32, (rows, 1), (1, 1))


def _of_row_blocks(memory: CpuMemory, pointer: int, rows: int, k: int) -> torch.Tensor:
    """One for 128 elements of a row; those of one place in all rows lie side by side."""
    scales = memory.view(pointer, torch.float32, (rows, -(-k // _BLOCK)), (1, rows))
    return scales.repeat_interleave(_BLOCK, 1)[:, :k]


def _of_squares(memory: CpuMemory, pointer: int, rows: int, k: int) -> torch.Tensor:
    """One for 128 x 128 elements; those of 128 rows lie side by side, filled up to 16 bytes."""
    across = -(-k // _BLOCK)
    sizes, step = (-(-rows // _BLOCK), across), -(-across // 4) * 4
    scales = memory.view(pointer, torch.float32, sizes, (step, 1))
    return scales.repeat_interleave(_BLOCK, 0).repeat_interleave(_BLOCK, 1)[:rows, :k]


#: By cublasLtMatmulMatrixScale_t: the scales of a matrix of ``rows`` rows of ``k`` elements each,
#: over which a product adds up.
_MODES = {0: _one, 3: _of_rows, 4: _of_row_blocks, 5: _of_squares}


@dataclass(frozen=True, slots=True)
class Scales:
    """Device pointers, 0 for none, and the modes of A and B."""

    a: int
    b: int
    c: int
    d: int
    amax: int
    mode_a: int
    mode_b: int

    def __post_init__(self) -> None:
        """Raises CallError for modes that are not offered here."""
        for mode in (self.mode_a, self.mode_b):
            if mode not in _MODES:
                raise CallError(NOT_SUPPORTED, f"8-bit floats with scales of mode {mode}")

    def run(self, p: Product, epilogue: Epilogue, memory: CpuMemory, extra: Extra) -> None:
        """D = scale_d * epilogue(alpha * scale_a * A @ scale_b * B + beta * scale_c * C)."""
        wide = torch.empty(p.out.shape, dtype=torch.float32)
        left = _scaled(memory, p.a, self.a, self.mode_a)
        right = _scaled(memory, p.b.mT, self.b, self.mode_b).mT
        addend = _scaled(memory, p.c, self.c) if p.beta else wide
        epilogue.run(replace(p, a=left, b=right, c=addend, out=wide), memory, extra)
        if self.amax:
            largest = wide.abs().amax().reshape(1)
            memory.view(self.amax, torch.float32, (1,), (1,)).copy_(largest)
        p.out.copy_(_saturated(_scaled(memory, wide, self.d), p.out.dtype))


def _scaled(memory: CpuMemory, matrix: torch.Tensor, pointer: int, mode: int = 0) -> torch.Tensor:
    wide = matrix.float()
    return wide * _MODES[mode](memory, pointer, *matrix.shape[-2:]) if pointer else wide


def _saturated(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype not in FP8:
        return values
    most = torch.finfo(dtype).max
    return values.clamp(-most, most)
