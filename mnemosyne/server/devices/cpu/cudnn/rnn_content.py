"""Recurrent layers of cuDNN as they come by content, and how their weights lie in memory.

A stack of layers has ``layers * directions`` pseudo-layers, first those of the first layer. The
weight space of this device holds the matrices of all of them, then their biases; those of one kind
are in the order of torch's parameters, which is also cuDNN's order of gates. Source: cudnn_adv.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.cudnn.graph import dtype_of
from mnemosyne.server.devices.cpu.cudnn.shapes import Shape
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError

LSTM = 2  # cudnnRNNMode_t; the others: 0 relu, 1 tanh, 3 GRU
_GATES = {0: 1, 1: 1, LSTM: 4, 3: 3}
_ALGORITHMS = (0, 1, 3)  # all but the one that is compiled first
_DOUBLE_BIAS, _LINEAR_INPUT = 2, 0
_SEQUENCE_MAJOR, _PACKED, _BATCH_MAJOR = 0, 1, 2  # cudnnRNNDataLayout_t
_MAX_BYTES = 1 << 48
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def bounded(size: int) -> int:
    """Raises CallError for more bytes than any memory has."""
    if size > _MAX_BYTES:
        raise CallError(INVALID_VALUE, f"a cuDNN RNN that needs {size} bytes")
    return size


def _float_type(kind: int) -> torch.dtype:
    dtype = dtype_of(kind)
    if dtype not in _FLOATS:
        raise CallError(NOT_SUPPORTED, f"a cuDNN RNN of {dtype}")
    return dtype


@dataclass(frozen=True, slots=True)
class Part:
    """A matrix, or a column of biases, in the weight space; offset in elements."""

    offset: int
    rows: int
    columns: int

    @property
    def numel(self) -> int:
        return self.rows * self.columns

    def gate(self, number: int, rows: int) -> Part:
        """The rows of one gate."""
        return Part(self.offset + number * rows * self.columns, rows, self.columns)


@dataclass(frozen=True, slots=True)
class Network:
    """``output``: size of a direction's output, which is the hidden size unless projected."""

    mode: int
    dtype: torch.dtype
    input: int
    hidden: int
    output: int
    layers: int
    directions: int

    @classmethod
    def of(cls, raw: list[Any]) -> Network:
        """From the message's list. Raises ProtocolError, and CallError for what is refused."""
        if len(raw) != 13 or any(type(n) is not int for n in raw):
            raise ProtocolError("a cuDNN RNN is not described by 13 numbers")
        algorithm, mode, bias, direction, inputs, kind, _, _, *sizes, _ = raw
        _refuse_unless("algorithm", algorithm, _ALGORITHMS)
        _refuse_unless("mode", mode, _GATES)
        _refuse_unless("bias mode", bias, (_DOUBLE_BIAS,))
        _refuse_unless("direction mode", direction, (0, 1))
        _refuse_unless("input mode", inputs, (_LINEAR_INPUT,))
        size, hidden, projection, layers = sizes
        if min(size, hidden, layers) < 1 or not 0 <= projection <= hidden:
            raise CallError(INVALID_VALUE, f"a cuDNN RNN of sizes {sizes}")
        output = projection or hidden
        if output != hidden and mode != LSTM:
            raise CallError(NOT_SUPPORTED, f"a projection in a cuDNN RNN of mode {mode}")
        network = cls(mode, _float_type(kind), size, hidden, output, layers, direction + 1)
        bounded(network.weight_bytes)
        return network

    @property
    def pseudo_layers(self) -> int:
        return self.layers * self.directions

    @property
    def rows(self) -> int:
        """Of the gates together."""
        return _GATES[self.mode] * self.hidden

    @property
    def numel(self) -> int:
        """All weights."""
        return self._matrices_before(self.pseudo_layers) + self.pseudo_layers * 2 * self.rows

    @property
    def weight_bytes(self) -> int:
        return self.numel * self.dtype.itemsize

    @property
    def wide(self) -> torch.dtype:
        """What is computed in."""
        return torch.float64 if self.dtype is torch.float64 else torch.float32

    def parts(self, pseudo_layer: int) -> list[Part]:
        """In torch's order: both matrices, both biases, the projection if there is one."""
        at = self._matrices_before(pseudo_layer)
        biases = self._matrices_before(self.pseudo_layers) + pseudo_layer * 2 * self.rows
        inputs = self._inputs(pseudo_layer)
        first = Part(at, self.rows, inputs)
        second = Part(at + first.numel, self.rows, self.output)
        columns = [Part(biases + n * self.rows, self.rows, 1) for n in (0, 1)]
        projection = Part(second.offset + second.numel, self.output, self.hidden)
        return [first, second, *columns, *([projection] if self._projected else [])]

    def linear_layers(self, pseudo_layer: int) -> list[tuple[Part | None, Part | None]]:
        """Matrix and bias of each, in cuDNN's order; an LSTM's last is the projection."""
        inputs, recurrent, *biases = self.parts(pseudo_layer)
        pairs: list[tuple[Part | None, Part | None]] = [
            (matrix.gate(n, self.hidden), bias.gate(n, self.hidden))
            for matrix, bias in ((inputs, biases[0]), (recurrent, biases[1]))
            for n in range(_GATES[self.mode])
        ]
        if self.mode == LSTM:
            pairs.append((biases[2] if self._projected else None, None))
        return pairs

    @property
    def _projected(self) -> bool:
        return self.output != self.hidden

    def _inputs(self, pseudo_layer: int) -> int:
        return self.input if pseudo_layer < self.directions else self.output * self.directions

    def _matrices_before(self, pseudo_layer: int) -> int:
        """Elements of the matrices of earlier pseudo-layers."""
        first = min(pseudo_layer, self.directions)
        own = self.rows * self.output + self.output * self.hidden * self._projected
        inner = self.rows * self.output * self.directions
        return first * (self.rows * self.input + own) + (pseudo_layer - first) * (inner + own)

    def check_state(self, raw: list[Any], batch: int, size: int) -> None:
        """Raises CallError unless a state's tensor is a row of this size by layer and sequence."""
        found, wanted = Shape.of(raw), (self.pseudo_layers, batch, size)
        ones = len(found.sizes) - 3
        strides = [batch * size, size, 1]
        steps = zip(wanted, strides, found.strides, strict=False)
        close = all(n == 1 or step == stride for n, step, stride in steps)
        if found.dtype is not self.dtype or found.sizes != (*wanted, *[1] * ones) or not close:
            raise CallError(INVALID_VALUE, f"a cuDNN RNN's state of {found.sizes}, not {wanted}")


def _refuse_unless(what: str, value: int, known: Any) -> None:
    if value not in known:
        raise CallError(NOT_SUPPORTED, f"cuDNN RNN {what} {value}")


@dataclass(frozen=True, slots=True)
class Data:
    """The input or output of a network: a vector for each step of each sequence."""

    dtype: torch.dtype
    layout: int
    longest: int
    batch: int
    vector: int
    lengths: tuple[int, ...]
    fill: bytes

    @classmethod
    def of(cls, raw: list[Any]) -> Data:
        """From the message's list. Raises ProtocolError, and CallError for what is refused."""
        try:
            kind, layout, longest, batch, vector, lengths, fill = raw
            steps = tuple(memoryview(lengths).cast("i"))
        except (TypeError, ValueError) as error:
            raise ProtocolError(f"malformed cuDNN RNN data ({error})") from None
        numbers = (kind, layout, longest, batch, vector)
        if any(type(n) is not int for n in numbers) or type(fill) is not bytes:
            raise ProtocolError("malformed cuDNN RNN data (its fields are of other types)")
        _refuse_unless("data layout", layout, (_SEQUENCE_MAJOR, _PACKED, _BATCH_MAJOR))
        dtype = _float_type(kind)
        data = cls(dtype, layout, longest, batch, vector, steps, fill)
        data._check()
        return data

    def _check(self) -> None:
        if min(self.longest, self.batch, self.vector) < 1 or len(self.lengths) != self.batch:
            raise CallError(INVALID_VALUE, f"cuDNN RNN data of {self.batch} sequences")
        if any(not 0 <= n <= self.longest for n in self.lengths):
            raise CallError(INVALID_VALUE, f"a sequence that is longer than {self.longest}")
        if 0 in self.lengths:
            raise CallError(NOT_SUPPORTED, "an empty sequence in a cuDNN RNN")
        if self.layout == _PACKED and list(self.lengths) != sorted(self.lengths, reverse=True):
            raise CallError(INVALID_VALUE, "packed sequences that are not sorted by length")
        if len(self.fill) not in (0, self.dtype.itemsize):
            raise CallError(INVALID_VALUE, f"a fill of {len(self.fill)} bytes")

    @property
    def dense(self) -> bool:
        """Whether all sequences are of one length."""
        return min(self.lengths) == self.longest

    @property
    def packed(self) -> bool:
        return self.layout == _PACKED

    @property
    def steps(self) -> int:
        """Of all sequences together."""
        return sum(self.lengths)

    def at(self, memory: CpuMemory, pointer: int) -> torch.Tensor:
        """The memory: (step, vector) if packed, else (time, sequence, vector)."""
        time, batch, vector = self.longest, self.batch, self.vector
        if self.packed and not self.dense:
            return memory.view(pointer, self.dtype, (self.steps, vector), (vector, 1))
        batch_major = self.layout == _BATCH_MAJOR
        strides = (vector, time * vector, 1) if batch_major else (batch * vector, vector, 1)
        return memory.view(pointer, self.dtype, (time, batch, vector), strides)

    def check_goes_with(self, other: Data) -> None:
        """Raises CallError when input and output differ in more than their vectors."""
        if (self.dtype, self.batch, self.lengths) != (other.dtype, other.batch, other.lengths):
            raise CallError(INVALID_VALUE, "input and output of a cuDNN RNN do not go together")
