"""cuDNN's CTC loss on the CPU device.

The gradient is that of the activations before a softmax, whether the input is those or
probabilities already; it is zero after the end of an input. A sample whose labels do not fit into
its input costs infinitely much, and its gradient is zero or left as it was. Source: cudnn_adv.h and
cudnn_graph.h (cudnnCTCGradMode_t); the cost of such a sample as PyTorch's backward pass takes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import torch

from mnemosyne.protocol import ProtocolError
from mnemosyne.server.devices.cpu.cudnn.shapes import Shape, fields
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError
from mnemosyne.server.session import Handlers, Outputs

_FLOAT = 0  # cudnnDataType_t
_ALGORITHMS = (0, 1)  # cudnnCTCLossAlgo_t
_PROBABILITIES, _SOFTMAX = 0, 1  # cudnnLossNormalizationMode_t
_ZERO = 0  # cudnnCTCGradMode_t; otherwise gradients of what does not fit are left as they were
_LONGEST = 256  # of a label, where the descriptor does not say


@dataclass(frozen=True, slots=True)
class _Problem:
    """A batch, but for its labels: what both its size and its loss depend on."""

    softmax: bool
    zeroes: bool
    longest: int
    probs: Shape
    gradients: Shape | None

    @classmethod
    def of(cls, ctc: list[Any], algo: int, probs: list[Any], gradients: list[Any]) -> _Problem:
        """Raises ProtocolError and CallError."""
        kind, normalization, mode, longest = fields(ctc, "a CTC loss descriptor", [int] * 4)
        shape = Shape.of(probs)
        grad = Shape.of(gradients) if gradients else None
        if normalization not in (_PROBABILITIES, _SOFTMAX) or algo not in _ALGORITHMS:
            raise CallError(INVALID_VALUE, f"a CTC loss {normalization} by algorithm {algo}")
        if len(shape.sizes) != 3 or (grad and grad.sizes != shape.sizes):
            raise CallError(INVALID_VALUE, f"a CTC loss of {shape.sizes}, not (steps, batch, ...)")
        if kind != _FLOAT or shape.dtype is not torch.float32:
            raise CallError(NOT_SUPPORTED, "a CTC loss of other than 32-bit floats")
        most = longest if longest >= 0 else _LONGEST
        return cls(normalization == _SOFTMAX, mode == _ZERO, most, shape, grad)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of a batch, one sample's after the other's."""

    labels: list[int]
    label_lengths: list[int]
    input_lengths: list[int]

    def check(self, problem: _Problem) -> None:
        """Raises CallError."""
        steps, batch, letters = problem.probs.sizes
        counts = len(self.label_lengths), len(self.input_lengths)
        if counts != (batch, batch) or len(self.labels) != sum(self.label_lengths):
            raise CallError(INVALID_VALUE, f"a CTC loss of {batch} samples with labels of {counts}")
        if any(not 0 <= n <= problem.longest for n in self.label_lengths):
            raise CallError(INVALID_VALUE, f"a label longer than {problem.longest}")
        if any(not 0 <= n <= steps for n in self.input_lengths):
            raise CallError(INVALID_VALUE, f"an input longer than {steps} steps")
        if any(not 0 <= n < letters for n in self.labels):
            raise CallError(INVALID_VALUE, f"a label that is none of {letters} letters")


def _loss(
    s: CpuSession, handle: int, stream: int, ctc: list[Any], algo: int, probs_desc: list[Any],
    probs: int, labels: int, label_lengths: int, input_lengths: int, *rest: Any,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    batch = Shape.of(probs_desc).sizes[1]
    lengths = _read(s, label_lengths, batch)
    if any(n < 0 for n in lengths):
        raise CallError(INVALID_VALUE, "a label of negative length")
    found = _Labels(_read(s, labels, sum(lengths)), lengths, _read(s, input_lengths, batch))
    return _run(s, ctc, algo, probs_desc, probs, found, *rest)


def _read(s: CpuSession, pointer: int, count: int) -> list[int]:
    found: list[int] = s.memory.view(pointer, torch.int32, (count,), (1,)).tolist()
    return found


def _host_loss(
    s: CpuSession, handle: int, stream: int, ctc: list[Any], algo: int, probs_desc: list[Any],
    probs: int, labels: bytes, label_lengths: bytes, input_lengths: bytes, *rest: Any,
) -> Outputs:  # fmt: skip
    s.check_cudnn(handle, stream)
    found = _host_labels(labels, label_lengths, input_lengths)
    return _run(s, ctc, algo, probs_desc, probs, found, *rest)


def _host_labels(*arrays: bytes) -> _Labels:
    if any(len(array) % 4 for array in arrays):
        raise ProtocolError("CTC labels that are no 32-bit integers")
    return _Labels(*(list(struct.unpack(f"<{len(array) // 4}i", array)) for array in arrays))


def _run(
    s: CpuSession, ctc: list[Any], algo: int, probs_desc: list[Any], probs: int, labels: _Labels,
    costs: int, gradients_desc: list[Any], gradients: int, workspace: int, size: int,
) -> Outputs:  # fmt: skip
    problem = _Problem.of(ctc, algo, probs_desc, gradients_desc)
    labels.check(problem)
    values = problem.probs.at(s, probs)
    log = values.log_softmax(-1) if problem.softmax else values.log()
    where = torch.tensor(labels.labels, dtype=torch.int64)
    lengths = labels.input_lengths, labels.label_lengths
    loss, state = torch.ops.aten._ctc_loss(log, where, *lengths, 0, False)
    fits = loss.isfinite()
    s.memory.view(costs, torch.float32, (len(loss),), (1,)).copy_(loss)
    if problem.gradients is not None and gradients:
        found = torch.ops.aten._ctc_loss_backward(
            torch.ones_like(loss), log, where, *lengths, loss, state, 0, False
        )
        out = problem.gradients.at(s, gradients)
        out.copy_(found.where(fits[:, None], torch.zeros(()) if problem.zeroes else out))
    return None


def _room(
    s: CpuSession, handle: int, stream: int, ctc: list[Any], algo: int, probs: list[Any],
    gradients: list[Any], *labels: bytes,
) -> Outputs:  # fmt: skip
    """No scratch memory is needed."""
    s.check_cudnn(handle, stream)
    problem = _Problem.of(ctc, algo, probs, gradients)
    if labels:
        _host_labels(*labels).check(problem)
    return (0,)


HANDLERS: Handlers = {
    "cudnn_ctc": _loss,
    "cudnn_ctc_host": _host_loss,
    "cudnn_ctc_room": _room,
    "cudnn_ctc_host_room": _room,
}
