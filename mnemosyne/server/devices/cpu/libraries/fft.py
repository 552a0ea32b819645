"""cuFFT: plans with advanced layouts (cufftXtMakePlanMany) as torch.fft on strided views."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from mnemosyne.server.devices.cpu.libraries.routines import Arguments, Routine, nothing
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_RESOURCE_HANDLE, INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Outputs

_MAX_RANK = 3
_FORWARD, _INVERSE = -1, 1  # CUFFT_FORWARD, CUFFT_INVERSE

#: Pairs of cudaDataType that cuFFT transforms; half precision is computed in single.
_DTYPES = {
    0: torch.float32, 1: torch.float64, 2: torch.float16,
    4: torch.complex64, 5: torch.complex128, 6: torch.complex32,
}  # fmt: skip
_COMPLEX_OF = {0: 4, 1: 5, 2: 6}
_PAIRS = {
    *_COMPLEX_OF.items(),
    *((c, r) for r, c in _COMPLEX_OF.items()),
    *((c, c) for c in _COMPLEX_OF.values()),
}
_COMPUTED_IN = {torch.float16: torch.float32, torch.complex32: torch.complex64}


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where one side's elements lie, in elements: sizes and steps, the batch first."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    steps: tuple[int, ...]

    def view(self, memory: CpuMemory, pointer: int) -> torch.Tensor:
        return memory.view(pointer, self.dtype, self.sizes, self.steps)


@dataclass(frozen=True, slots=True)
class _Plan:
    sizes: tuple[int, ...]
    source: _Layout
    target: _Layout

    def transformed(self, x: torch.Tensor, direction: int) -> torch.Tensor:
        """Not normalised, either way, as cuFFT does it."""
        axes = tuple(range(1, len(self.sizes) + 1))
        found: torch.Tensor
        if not x.is_complex():
            found = torch.fft.rfftn(x, dim=axes)
        elif not self.target.dtype.is_complex:
            found = torch.fft.irfftn(x, s=self.sizes, dim=axes, norm="forward")
        elif direction == _FORWARD:
            found = torch.fft.fftn(x, dim=axes)
        else:
            found = torch.fft.ifftn(x, dim=axes, norm="forward")
        return found


def _make_plan(s: CpuSession, a: Arguments) -> Outputs:
    if not 1 <= a.rank <= _MAX_RANK or (a.inputtype, a.outputtype) not in _PAIRS:
        raise CallError(
            NOT_SUPPORTED, f"a transform of rank {a.rank}, types {a.inputtype} to {a.outputtype}"
        )
    sizes = struct.unpack(f"<{a.rank}q", a.n)
    if min(sizes) < 1 or a.batch < 1:
        raise CallError(INVALID_VALUE, f"a transform of {sizes}, {a.batch} times")
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    source, target = _DTYPES[a.inputtype], _DTYPES[a.outputtype]
    read = half if not target.is_complex else sizes
    written = half if not source.is_complex else sizes
    a.plan.value = _Plan(
        sizes,
        _layout(source, a.batch, read, a.inembed, a.istride, a.idist),
        _layout(target, a.batch, written, a.onembed, a.ostride, a.odist),
    )
    return (0,)


def _layout(
    dtype: torch.dtype, batch: int, sizes: Sequence[int], embed: bytes, stride: int, dist: int
) -> _Layout:
    """Without ``embed`` the elements lie one behind the other, whatever the steps say."""
    room = struct.unpack(f"<{len(sizes)}q", embed) if embed else sizes
    if not embed:
        stride, dist = 1, prod(sizes)
    steps = tuple(stride * prod(room[axis + 1 :]) for axis in range(len(sizes)))
    return _Layout(dtype, (batch, *sizes), (dist, *steps))


def _execute(s: CpuSession, a: Arguments) -> Outputs:
    plan = a.plan.value
    if plan is None:
        raise CallError(INVALID_RESOURCE_HANDLE, "the cuFFT plan has not been made")
    if a.direction not in (_FORWARD, _INVERSE):
        raise CallError(INVALID_VALUE, f"a transform in direction {a.direction}")
    x = plan.source.view(s.memory, a.input)
    out = plan.target.view(s.memory, a.output)
    out.copy_(plan.transformed(x.to(_COMPUTED_IN.get(x.dtype, x.dtype)), a.direction))
    return None


ROUTINES: dict[str, Routine] = {
    "cufftCreate": nothing,
    "cufftDestroy": nothing,
    "cufftSetAutoAllocation": nothing,
    "cufftXtMakePlanMany": _make_plan,
    "cufftXtExec": _execute,
}
