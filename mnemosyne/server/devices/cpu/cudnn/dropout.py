"""cuDNN's dropout on the CPU device: random numbers by a seed and a count in the client's memory.

What is dropped is not what a GPU drops for the same seed, for cuDNN does not say how it draws.
Source: cudnn_ops.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, CallError
from mnemosyne.server.session import Handlers, Outputs

_STATES = struct.Struct("<QQ")  # seed, masks drawn so far
_STEP = 0x9E3779B97F4A7C15  # odd, so that all counts of a seed differ
_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Dropout:
    """Four fields of a message: the share to drop, and where the states lie."""

    share: float
    states: int
    states_bytes: int
    seed: int

    def check(self, memory: CpuMemory) -> None:
        """Raises CallError."""
        if not 0 <= self.share <= 1:
            raise CallError(INVALID_VALUE, f"a cuDNN dropout of {self.share}")
        if self.share and self.states_bytes < _STATES.size:
            raise CallError(INVALID_VALUE, f"{self.states_bytes} bytes of cuDNN dropout states")
        if self.share:
            memory.check(self.states, self.states_bytes)

    @property
    def scale(self) -> float:
        """What is kept is multiplied by this."""
        return 1 / (1 - self.share) if self.share < 1 else 0.0

    def draw(self, memory: CpuMemory, sizes: Sequence[int]) -> torch.Tensor:
        """A new mask, True where something is kept; the states move on."""
        seed, count = _STATES.unpack(memory.read(self.states, _STATES.size))
        memory.write(self.states, _STATES.pack(seed, (count + 1) & _WORD))
        generator = torch.Generator().manual_seed((seed + count * _STEP) & _WORD)
        return torch.rand(sizes, generator=generator) >= self.share


def _states_size(s: CpuSession, handle: int, stream: int) -> Outputs:
    s.check_cudnn(handle, stream)
    return (_STATES.size,)


def _init(
    s: CpuSession, handle: int, stream: int, share: float, states: int, size: int, seed: int
) -> Outputs:
    s.check_cudnn(handle, stream)
    Dropout(share, states, size, seed).check(s.memory)
    s.memory.write(states, _STATES.pack(seed, 0))
    return None


HANDLERS: Handlers = {"cudnn_dropout_states": _states_size, "cudnn_dropout_init": _init}
