"""What a training of recurrent layers keeps in the reserve space, from forward to backward.

First the gradients of the weights, then the input as torch takes it, then the masks of the dropout
after each layer but the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mnemosyne.server.devices.cpu.cudnn.rnn_content import Data, Network, bounded
from mnemosyne.server.devices.cpu.memory import CpuMemory


@dataclass(frozen=True, slots=True)
class Reserve:
    """``drops``: whether there are masks. ``start``: an address of the client's."""

    network: Network
    data: Data
    drops: bool

    @property
    def bytes(self) -> int:
        """Raises CallError when no memory is so large."""
        return bounded(self._masks_at + self._masks * self._mask_bytes)

    def gradients(self, memory: CpuMemory, start: int) -> torch.Tensor:
        """Of all weights, as they lie in the weight space."""
        return memory.view(start, self.network.wide, (self.network.numel,), (1,))

    def input(self, memory: CpuMemory, start: int) -> torch.Tensor:
        return self._view(memory, start + self._input_at, self.network.dtype, self.network.input)

    def masks(self, memory: CpuMemory, start: int) -> list[torch.Tensor]:
        first = start + self._masks_at
        places = [first + n * self._mask_bytes for n in range(self._masks)]
        return [self._view(memory, place, torch.bool, self._width) for place in places]

    def _view(self, memory: CpuMemory, at: int, dtype: torch.dtype, vector: int) -> torch.Tensor:
        steps = self.data.steps
        flat = memory.view(at, dtype, (steps, vector), (vector, 1))
        return flat.view(self.data.longest, self.data.batch, vector) if self.data.dense else flat

    @property
    def _width(self) -> int:
        return self.network.output * self.network.directions

    @property
    def _input_at(self) -> int:
        return self.network.numel * self.network.wide.itemsize

    @property
    def _masks_at(self) -> int:
        return self._input_at + self.data.steps * self.network.input * self.network.dtype.itemsize

    @property
    def _masks(self) -> int:
        return (self.network.layers - 1) * self.drops

    @property
    def _mask_bytes(self) -> int:
        return self.data.steps * self._width
