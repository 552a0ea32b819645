"""Recurrent layers computed with torch, and the order in which torch wants sequences.

torch takes sequences of one length as (time, sequence, vector), others as rows of vectors: all
first steps, longest sequence first, then all second ones, and so on, with how many there are each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.server.devices.cpu.cudnn.rnn_content import LSTM, Data, Network

# torch says so for every process that computes one; it is not the server's users' concern.
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")

#: By cudnnRNNMode_t.
_LAYERS: dict[int, Callable[..., Any]] = {
    0: torch.rnn_relu, 1: torch.rnn_tanh, LSTM: torch.lstm, 3: torch.gru,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Order:
    """Of sequences of several lengths. ``times`` and ``sequences``: where rows are when padded."""

    sizes: torch.Tensor  # how many sequences have each step
    sorted: torch.Tensor  # the sequences, longest first
    times: torch.Tensor | None
    sequences: torch.Tensor | None

    @classmethod
    def of(cls, data: Data) -> Order | None:
        """None: they are of one length."""
        if data.dense:
            return None
        lengths = torch.tensor(data.lengths)
        order = lengths.argsort(descending=True, stable=True)
        sizes = data.batch - lengths.bincount().cumsum(0)[:-1]
        if data.packed:
            return cls(sizes, order, None, None)
        times, ranks = (torch.arange(data.batch) < sizes[:, None]).nonzero(as_tuple=True)
        return cls(sizes, order, times, order[ranks])

    def rows(self, data: torch.Tensor) -> torch.Tensor:
        """From memory to rows."""
        return data if self.times is None else data[self.times, self.sequences]


def read(data: torch.Tensor, order: Order | None) -> torch.Tensor:
    """A network's input as torch takes it."""
    return data if order is None else order.rows(data)


def write(out: torch.Tensor, values: torch.Tensor, order: Order | None, fill: bytes) -> None:
    """Sets memory from what torch gives; padding becomes ``fill``, or 0."""
    if order is None or order.times is None:
        out.copy_(values)
        return
    blank = torch.frombuffer(bytearray(fill), dtype=out.dtype) if fill else 0
    out.copy_(torch.as_tensor(blank))
    out[order.times, order.sequences] = values.to(out.dtype)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Masks between layers, and the factor for what is kept; no masks: nothing is dropped."""

    masks: Sequence[torch.Tensor] = ()
    scale: float = 1

    def apply(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        return x * self.masks[layer - 1] * self.scale if layer and self.masks else x


@dataclass(frozen=True, slots=True)
class Stack:
    """A network on sequences of these lengths, in one order for states, too."""

    network: Network
    order: Order | None

    def run(
        self, x: torch.Tensor, states: Sequence[torch.Tensor], weights: list[list[torch.Tensor]],
        dropped: Dropped,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:  # fmt: skip
        """The output and last states. ``states``: h, and c of an LSTM, by pseudo-layer."""
        count = self.network.directions
        last = []
        for layer in range(self.network.layers):
            own = slice(layer * count, (layer + 1) * count)
            params = [w for pseudo in weights[own] for w in pseudo]
            x = dropped.apply(x, layer)
            x, *after = self._layer(x, [self._sorted(state[own]) for state in states], params)
            last.append([self._restored(state) for state in after])
        return x, [torch.cat(parts) for parts in zip(*last, strict=True)]

    def _layer(
        self, x: torch.Tensor, states: list[torch.Tensor], params: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        start = states if self.network.mode == LSTM else states[0]
        both, training = self.network.directions == 2, torch.is_grad_enabled()
        layer = _LAYERS[self.network.mode]
        result: tuple[torch.Tensor, ...]
        if self.order is None:
            result = layer(x, start, params, True, 1, 0.0, training, both, False)
        else:
            result = layer(x, self.order.sizes, start, params, True, 1, 0.0, training, both)
        return result

    def _sorted(self, state: torch.Tensor) -> torch.Tensor:
        return state if self.order is None else state[:, self.order.sorted]

    def _restored(self, state: torch.Tensor) -> torch.Tensor:
        if self.order is None:
            return state
        return state[:, self.order.sorted.argsort()]
