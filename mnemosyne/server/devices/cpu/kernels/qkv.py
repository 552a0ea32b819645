"""The start of attention's fast path: a bias added to queries, keys and values, heads split off.

`transform_bias_rescale_qkv_kernel` takes (batch, row, 3 x heads x width) and gives
(3, batch, heads, row, width), queries scaled. Its sibling with padding takes batches of different
lengths, one behind the other, and gives zeros where a batch has no row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, unpacker
from .axes import Accessor
from .names import dtype, template_arguments
from .structs import scalar


class _Operands(NamedTuple):
    rows: Tensor  # the last dimension holds queries, keys and values of all heads
    bias: Tensor
    out: Tensor
    scale: Tensor  # by which queries, keys and values are multiplied: (3, 1, 1, 1)


def _bind_dense(kernel: KernelInfo) -> Run:
    """transform_bias_rescale_qkv_kernel: rows, bias, result, scale."""
    read = _reader(kernel, "transform_bias_rescale_qkv_kernel", "ssss", out=2)

    def run(launch: Launch) -> None:
        rows, bias, out, scale = read(launch)
        out.copy_(_split(rows, bias, out).mul_(scale.unsqueeze(1)))

    return run


def _bind_padding(kernel: KernelInfo) -> Run:
    """transform_bias_rescale_qkv_add_padding_kernel: the batches' starts and sizes behind bias."""
    unpack = unpacker(kernel, "ssQQss")
    read = _reader(kernel, "transform_bias_rescale_qkv_add_padding_kernel", "ssQQss", out=4)

    def run(launch: Launch) -> None:
        flat, bias, out, scale = read(launch)
        _, _, starts_at, sizes_at, _, _ = unpack(launch.args)
        batches, width = out.shape[1], bias.shape[0]
        starts, sizes = (
            launch.memory.view(at, torch.int32, (batches,), (1,)).tolist()
            for at in (starts_at, sizes_at)
        )
        out.zero_()
        for place, start, size in zip(out.unbind(1), starts, sizes, strict=True):
            rows = flat[start : start + size].view(-1, width)[: out.shape[3]]
            place[:, :, : len(rows)] = _split(rows, bias, out).mul_(scale)

    return run


def _reader(kernel: KernelInfo, name: str, codes: str, out: int) -> Callable[[Launch], _Operands]:
    """What reads the tensors; the result is argument number `out`, the scale is the last one."""
    kind = dtype(template_arguments(kernel.demangled, name)[0])
    unpacker(kernel, codes)
    accessors = [(Accessor.of(kernel.params[i][1]), kernel.params[i][0]) for i in (0, 1, out)]
    scale_at = kernel.params[-1][0]

    def read(launch: Launch) -> _Operands:
        tensors = [a.view(launch.args, at, launch.memory, kind) for a, at in accessors]
        scale = torch.tensor([scalar(launch.args, scale_at, kind), 1, 1], dtype=opmath(kind))
        rows, bias, result = tensors
        return _Operands(rows, bias, result, scale.view(3, 1, 1, 1))

    return read


def _split(rows: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """Rows with bias, (..., row, 3 x heads x width) as (3, ..., heads, row, width); wide."""
    wide = opmath(rows.dtype)
    added = rows.to(wide) + bias.to(wide)
    heads = added.view(*rows.shape[:-1], 3, out.shape[2], out.shape[4])
    return heads.movedim(-3, 0).transpose(-3, -2)


FAMILY: Family = [
    (re.compile(r"\btransform_bias_rescale_qkv_kernel<"), _bind_dense),
    (re.compile(r"\btransform_bias_rescale_qkv_add_padding_kernel<"), _bind_padding),
]
