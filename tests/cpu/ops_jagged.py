"""Jagged tensors: what makes them, pads them and computes with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

KINDS = (torch.float32, torch.float16, torch.bfloat16)
LENGTHS = (3, 5, 1)
OFFSETS = [0, 3, 8, 9]
_aten: Any = torch.ops.aten
_nested: Any = torch.nested


def _values(kind: torch.dtype, *sizes: int) -> Tensor:
    return torch.arange(1, 1 + torch.Size(sizes).numel()).remainder(251).view(sizes).to(kind)


def _jagged(device: torch.device, kind: torch.dtype) -> Any:
    rows = _values(kind, sum(LENGTHS), 4) / 8
    offsets = torch.tensor(OFFSETS, device=device)
    return _nested.nested_tensor_from_jagged(rows.to(device), offsets)


def _padded(device: torch.device) -> Tensors:
    """As long as the longest sequence, longer, and too short for it."""
    results = []
    for kind in (*KINDS, torch.float64, torch.int32, torch.int64):
        for index in (torch.int32, torch.int64):
            offsets = torch.tensor(OFFSETS, dtype=index, device=device)
            rows = _values(kind, sum(LENGTHS), 4).to(device)
            for length in (5, 7, 2):
                results.append(_aten._jagged_to_padded_dense_forward(rows, [offsets], [length], 7))
    return results


def _unpadded(device: torch.device) -> Tensors:
    """Rows of sizes for which there are kernels of their own, and of others."""
    results = []
    for kind in (*KINDS, torch.float64, torch.int64):
        for index in (torch.int32, torch.int64):
            for size in (4, 8, 16, 41):
                offsets = torch.tensor(OFFSETS, dtype=index, device=device)
                dense = _values(kind, len(LENGTHS), max(LENGTHS), size).to(device)
                results.append(_aten._padded_dense_to_jagged_forward(dense, [offsets], OFFSETS[-1]))
    return results


def _truncated(device: torch.device) -> Tensors:
    """What the padded tensor has no row for is zero; on the CPU PyTorch refuses this."""
    results = []
    for kind in KINDS:
        for size in (5, 16):
            dense = _values(kind, len(LENGTHS), 2, size).to(device)
            if device.type == "cpu":
                rows = [torch.zeros(n, size, dtype=kind) for n in LENGTHS]
                for sequence, given in zip(rows, dense, strict=True):
                    sequence[:2] = given[: len(sequence)]
                results.append(torch.cat(rows))
                continue
            offsets = torch.tensor(OFFSETS, device=device)
            results.append(_aten._padded_dense_to_jagged_forward(dense, [offsets], OFFSETS[-1]))
    return results


def _two_deep(device: torch.device) -> Tensors:
    """Two dimensions of different lengths; on the CPU PyTorch has one only."""
    rows, outer = _values(torch.float32, OFFSETS[-1], 4), [0, 2, 3]
    if device.type == "cpu":
        padded = torch.full((2, 2, 4, 4), 7.0)
        kept = torch.zeros(OFFSETS[-1], 4)
        for number, (start, length) in enumerate(zip(OFFSETS, LENGTHS, strict=False)):
            count = min(length, 4)
            padded[number // 2, number % 2, :count] = rows[start : start + count]
            kept[start : start + count] = rows[start : start + count]
        return [padded, kept]
    offsets = [torch.tensor(x, device=device) for x in (outer, OFFSETS)]
    padded = _aten._jagged_to_padded_dense_forward(rows.to(device), offsets, [2, 4], 7.0)
    return [padded, _aten._padded_dense_to_jagged_forward(padded, offsets, OFFSETS[-1])]


def _operations(device: torch.device) -> Tensors:
    results: list[Tensor] = []
    for kind in KINDS:
        x = _jagged(device, kind)
        row = _values(kind, len(LENGTHS), 1, 4).to(device) / 16
        for y in (x * 2, x + x, torch.relu(x), torch.softmax(x, -1), torch.softmax(x, 1), x * row):
            results += y.unbind()
        results += [x.to_padded_tensor(-2.5), x.sum(1), x.mean(1)]
    return results


def _gradient(device: torch.device) -> Tensors:
    rows = (_values(torch.float32, OFFSETS[-1], 4) / 8).to(device).requires_grad_()
    x = _nested.nested_tensor_from_jagged(rows, torch.tensor(OFFSETS, device=device))
    (x * x).to_padded_tensor(0.0).square().sum().backward()
    assert rows.grad is not None
    return [rows.grad]


CASES: dict[str, Case] = {
    "padded": _padded,
    "from padded": _unpadded,
    "from padded, too short": _truncated,
    "two deep": _two_deep,
    "operations": _operations,
    "gradient": _gradient,
}
