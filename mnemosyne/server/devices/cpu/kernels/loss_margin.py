"""Margin losses of several classes or labels, forward and backward; a row for each block."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, unpacker
from .names import dtype, template_arguments
from .raw import asserting
from .structs import scalar

_NONE = 0  # at::Reduction::None
_aten: Any = torch.ops.aten


class _Rows:
    """Reads what a launch points to; one row for each block."""

    def __init__(self, launch: Launch, kind: torch.dtype, columns: int) -> None:
        self._launch, self._kind, self._columns = launch, kind, columns
        self.count = launch.grid[0]

    def place(self, pointer: int, kind: torch.dtype | None = None) -> Tensor:
        """(row, column)."""
        sizes = (self.count, self._columns)
        return self._launch.memory.view(pointer, kind or self._kind, sizes, (self._columns, 1))

    def read(self, pointer: int) -> Tensor:
        return self.place(pointer).to(opmath(self._kind))

    def column(self, pointer: int, kind: torch.dtype | None = None, step: int = 1) -> Tensor:
        """(row); with a step of 0, one value for all."""
        return self._launch.memory.view(pointer, kind or self._kind, (self.count,), (step,))

    def weights(self, pointer: int) -> Tensor | None:
        """(column)."""
        if not pointer:
            return None
        found = self._launch.memory.view(pointer, self._kind, (self._columns,), (1,))
        return found.to(opmath(self._kind))


def _bind_classes(kernel: KernelInfo) -> Run:
    """MultiMarginLoss_forward_kernel: (out, in, target, weights, rows, columns, mean, margin)."""
    power, kind = _power_and_type(kernel, "MultiMarginLoss_forward_kernel")
    unpack = unpacker(kernel, "QQQQii?x")

    def run(launch: Launch) -> None:
        out, source, target, weights, count, columns, mean = unpack(launch.args)
        rows = _Rows(launch, kind, columns)
        labels, margin = rows.column(target, torch.int64), _margin(launch, 7, kind)
        loss = _aten.multi_margin_loss(
            rows.read(source), labels, power, margin, rows.weights(weights), _NONE
        )
        rows.column(out).copy_(loss / count if mean else loss)

    return asserting(run)


def _bind_classes_backward(kernel: KernelInfo) -> Run:
    """MultiMarginLoss_backward_kernel.

    Arguments: gradient of in, gradient, in, target, weights, rows, columns, mean, margin, whether
    all rows share the gradient.
    """
    power, kind = _power_and_type(kernel, "MultiMarginLoss_backward_kernel")
    unpack = unpacker(kernel, "QQQQQii?x?")

    def run(launch: Launch) -> None:
        place, grad, source, target, weights, count, columns, mean, shared = unpack(launch.args)
        rows = _Rows(launch, kind, columns)
        incoming = rows.column(grad, step=0 if shared else 1).to(opmath(kind))
        result = _aten.multi_margin_loss_backward(
            incoming / count if mean and shared else incoming.contiguous(), rows.read(source),
            rows.column(target, torch.int64), power, _margin(launch, 8, kind),
            rows.weights(weights), _NONE,
        )  # fmt: skip
        rows.place(place).copy_(result)

    return asserting(run)


def _power_and_type(kernel: KernelInfo, name: str) -> tuple[int, torch.dtype]:
    power, kind = template_arguments(kernel.demangled, name)
    return int(power), dtype(kind)


def _margin(launch: Launch, argument: int, kind: torch.dtype) -> float:
    """A margin, which has the type of the elements."""
    value = scalar(launch.args, launch.kernel.params[argument][0], kind)
    assert isinstance(value, float)
    return value


def _bind_labels(kernel: KernelInfo) -> Run:
    """multilabel_margin_loss_forward_kernel: (out, in, targets, which are, rows, columns, mean)."""
    kind = dtype(template_arguments(kernel.demangled, "multilabel_margin_loss_forward_kernel")[0])
    unpack = unpacker(kernel, "QQQQii?")

    def run(launch: Launch) -> None:
        out, source, target, marks, count, columns, mean = unpack(launch.args)
        rows = _Rows(launch, kind, columns)
        loss, found = _aten.multilabel_margin_loss_forward(
            rows.read(source), rows.place(target, torch.int64), _NONE
        )
        rows.place(marks).copy_(found)
        rows.column(out).copy_(loss / count if mean else loss)

    return asserting(run)


def _bind_labels_backward(kernel: KernelInfo) -> Run:
    """multilabel_margin_loss_backward_kernel.

    Arguments: gradient of in, gradient, in, targets, which are, rows, columns, mean, whether all
    rows share the gradient.
    """
    kind = dtype(template_arguments(kernel.demangled, "multilabel_margin_loss_backward_kernel")[0])
    unpack = unpacker(kernel, "QQQQQii??")

    def run(launch: Launch) -> None:
        place, grad, source, target, marks, count, columns, mean, shared = unpack(launch.args)
        rows = _Rows(launch, kind, columns)
        incoming = rows.column(grad, step=0 if shared else 1).to(opmath(kind))
        result = _aten.multilabel_margin_loss_backward(
            incoming / count if mean and shared else incoming.contiguous(),
            rows.read(source), rows.place(target, torch.int64), _NONE, rows.read(marks),
        )  # fmt: skip
        rows.place(place).copy_(result)

    return asserting(run)


FAMILY: Family = [
    (re.compile(r"\bMultiMarginLoss_forward_kernel<"), _bind_classes),
    (re.compile(r"\bMultiMarginLoss_backward_kernel<"), _bind_classes_backward),
    (re.compile(r"\bmultilabel_margin_loss_forward_kernel<"), _bind_labels),
    (re.compile(r"\bmultilabel_margin_loss_backward_kernel<"), _bind_labels_backward),
]
