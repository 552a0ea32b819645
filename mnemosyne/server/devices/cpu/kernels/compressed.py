"""Row indices of sparse matrices, compressed and expanded again (SparseCsrTensor.cu)."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import pointed_types, unpacker


def _bind_expand(kernel: KernelInfo) -> Run:
    """convert_indices_from_csr_to_coo_cuda_kernel: (out, offsets, rows, elements, batches)."""
    out_kind, kind = pointed_types(kernel, "convert_indices_from_csr_to_coo_cuda_kernel")
    unpack = unpacker(kernel, "QQqqq")

    def run(launch: Launch) -> None:
        out, source, rows, count, batches = unpack(launch.args)
        view = launch.memory.view
        offsets = view(source, kind, (batches, rows + 1), (rows + 1, 1)).long()
        numbers = torch.arange(rows).repeat(batches)
        found = torch.repeat_interleave(numbers, offsets.diff(dim=1).flatten())
        view(out, out_kind, (batches * count,), (1,)).copy_(found)

    return run


def _bind_compress(kernel: KernelInfo) -> Run:
    """convert_indices_from_coo_to_csr_cuda_kernel: (out, row indices, rows, elements)."""
    out_kind, kind = pointed_types(kernel, "convert_indices_from_coo_to_csr_cuda_kernel")
    unpack = unpacker(kernel, "QQqq")

    def run(launch: Launch) -> None:
        out, source, rows, count = unpack(launch.args)
        view = launch.memory.view
        lengths = torch.bincount(view(source, kind, (count,), (1,)).long(), minlength=rows)
        place = view(out, out_kind, (rows + 1,), (1,))
        place[0] = 0
        place[1:] = lengths.cumsum(0)

    return run


FAMILY: Family = [
    (re.compile(r"convert_indices_from_csr_to_coo_cuda_kernel<"), _bind_expand),
    (re.compile(r"convert_indices_from_coo_to_csr_cuda_kernel<"), _bind_compress),
]
