"""What shards parameters: chunks of many tensors joined, and splits written to given tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Case = Callable[[torch.device], Tensors]

KINDS = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
#: The first dimensions before the one that is cut are the same.
SHAPES = {0: ((5, 3), (4, 2, 3), (7,), (1, 2)), 1: ((2, 5, 3), (2, 1), (2, 7, 2), (2, 300))}
_chunk_cat: Any = torch._chunk_cat
_split_copy: Any = torch.split_with_sizes_copy


def _values(kind: torch.dtype, *sizes: int) -> Tensor:
    return torch.arange(1, 1 + torch.Size(sizes).numel()).remainder(251).view(sizes).to(kind)


def _joined(given: torch.dtype, result: torch.dtype) -> Case:
    """In more chunks than some tensors have rows: the rest is zero."""

    def case(device: torch.device) -> Tensors:
        results = []
        for dim, shapes in SHAPES.items():
            tensors = [_values(given, *sizes).to(device) for sizes in shapes]
            for chunks in (1, 2, 3, 8):
                if given == result:
                    results.append(_chunk_cat(tensors, dim, chunks))
                elif device.type == "cpu":
                    results.append(_chunk_cat(tensors, dim, chunks).to(result))
                else:
                    shape = _chunk_cat(tensors, dim, chunks).shape
                    out = torch.full(shape, torch.nan, dtype=result, device=device)
                    results.append(_chunk_cat(tensors, dim, chunks, out=out))
        return results

    return case


def _split(kind: torch.dtype) -> Case:
    def case(device: torch.device) -> Tensors:
        results: list[Tensor] = []
        source = _values(kind, 3, 600, 2).to(device)
        for dim, sizes in ((0, (1, 2)), (1, (3, 0, 590, 7)), (2, (1, 1))):
            shapes = [part.shape for part in source.split(sizes, dim)]
            outs = [torch.empty(shape, dtype=kind, device=device) for shape in shapes]
            _split_copy(source, sizes, dim, out=outs)
            results += outs
        return results

    return case


CASES: dict[str, Case] = {
    **{f"joined {kind}": _joined(kind, kind) for kind in KINDS},
    "joined, wider": _joined(torch.bfloat16, torch.float32),
    **{f"split {kind}": _split(kind) for kind in KINDS},
}
