"""Cells of recurrent layers without cuDNN: LSTM and GRU, forward and backward (RNN.cu).

How this works. The products with the weights are made before; a kernel adds them up and applies the
gates. Every tensor is a TensorInfo of (row, gate, hidden) or (row, hidden), all dimensions in one
when they are contiguous; a missing one has no address. What backward needs is kept in a workspace:
the gates after their activations, for the GRU also the hidden state and its part of the new one.
"""

from __future__ import annotations

import re
import struct

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, unpacker
from .names import dtype, template_arguments
from .structs import check_tensor_infos, read_tensor_info


class _Tensors:
    """The TensorInfos that a cell's kernel begins with, and the hidden size behind them."""

    def __init__(self, kernel: KernelInfo, name: str, count: int) -> None:
        kind, _, index, _ = template_arguments(kernel.demangled, name)
        self._kind, self._width = dtype(kind), dtype(index).itemsize
        self._starts = check_tensor_infos(kernel, count, self._width)
        self._unpack = unpacker(kernel, "x" * count + "nn")

    def place(self, launch: Launch, i: int, parts: int = 1) -> Tensor | None:
        """Tensor `i` as (row, part, hidden); None for a missing one."""
        start = self._starts[i]
        if not struct.unpack_from("<Q", launch.args, start)[0]:
            return None
        hidden, _ = self._unpack(launch.args)
        info = read_tensor_info(launch.args, start, self._width)
        whole = launch.memory.view(info.data, self._kind, info.sizes, info.strides)
        return whole.view(-1, parts, hidden)

    def read(self, launch: Launch, i: int, parts: int = 1) -> Tensor:
        """The values of tensor `i`, zero for a missing one: (part, row, hidden), one part alone."""
        found = self.place(launch, i, parts)
        if found is None:
            found = torch.zeros(1, parts, 1, dtype=self._kind)
        values = found.to(opmath(self._kind)).transpose(0, 1)
        return values if parts > 1 else values[0]

    def write(self, launch: Launch, i: int, *parts: Tensor) -> None:
        """Sets the parts of tensor `i`, each (row, hidden)."""
        place = self.place(launch, i, len(parts))
        if place is not None:
            place.copy_(torch.stack(parts, 1))


def _bind_lstm(kernel: KernelInfo) -> Run:
    """lstm_cell_forward: (input, hidden, biases, cell; new hidden, new cell, workspace)."""
    tensors = _Tensors(kernel, "lstm_cell_forward", 8)

    def run(launch: Launch) -> None:
        sums = sum(tensors.read(launch, i, 4) for i in range(4))
        assert isinstance(sums, Tensor)
        into, forget, out = sums[0].sigmoid(), sums[1].sigmoid(), sums[3].sigmoid()
        new = sums[2].tanh()
        cell = forget * tensors.read(launch, 4) + into * new
        tensors.write(launch, 5, out * cell.tanh())
        tensors.write(launch, 6, cell)
        tensors.write(launch, 7, into, forget, new, out)

    return run


def _bind_lstm_backward(kernel: KernelInfo) -> Run:
    """lstm_cell_backward: (workspace; of gates; cell, new cell, of state, of new cell; of cell)."""
    tensors = _Tensors(kernel, "lstm_cell_backward", 7)

    def run(launch: Launch) -> None:
        into, forget, new, out = tensors.read(launch, 0, 4)
        before, after, grad, grad_cell = (tensors.read(launch, i) for i in range(2, 6))
        shown = after.tanh()
        total = grad * out * (1 - shown * shown) + grad_cell
        gates = (
            total * new * (1 - into) * into,
            total * before * (1 - forget) * forget,
            total * into * (1 - new * new),
            grad * shown * (1 - out) * out,
        )
        tensors.write(launch, 1, *gates)
        tensors.write(launch, 6, total * forget)

    return run


def _bind_gru(kernel: KernelInfo) -> Run:
    """gru_cell_forward: (input, hidden, biases, state; new state, workspace)."""
    tensors = _Tensors(kernel, "gru_cell_forward", 7)

    def run(launch: Launch) -> None:
        given, recalled, bias, own_bias = (tensors.read(launch, i, 3) for i in range(4))
        given, recalled = given + bias, recalled + own_bias
        state = tensors.read(launch, 4)
        reset, update = ((given[i] + recalled[i]).sigmoid() for i in range(2))
        new = (given[2] + reset * recalled[2]).tanh()
        tensors.write(launch, 5, new + update * (state - new))
        tensors.write(launch, 6, reset, update, new, state, recalled[2])

    return run


def _bind_gru_backward(kernel: KernelInfo) -> Run:
    """gru_cell_backward: (of input, of hidden; of new state; of state; workspace)."""
    tensors = _Tensors(kernel, "gru_cell_backward", 5)

    def run(launch: Launch) -> None:
        reset, update, new, state, recalled = tensors.read(launch, 4, 5)
        grad = tensors.read(launch, 2)
        grad_update = grad * (state - new) * (1 - update) * update
        grad_new = grad * (1 - update) * (1 - new * new)
        grad_reset = grad_new * recalled * (1 - reset) * reset
        tensors.write(launch, 0, grad_reset, grad_update, grad_new)
        tensors.write(launch, 1, grad_reset, grad_update, grad_new * reset)
        tensors.write(launch, 3, grad * update)

    return run


FAMILY: Family = [
    (re.compile(r"\blstm_cell_forward<"), _bind_lstm),
    (re.compile(r"\blstm_cell_backward<"), _bind_lstm_backward),
    (re.compile(r"\bgru_cell_forward<"), _bind_gru),
    (re.compile(r"\bgru_cell_backward<"), _bind_gru_backward),
]
