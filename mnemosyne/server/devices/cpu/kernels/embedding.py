"""The gradient of an embedding's weights, and rows cut to a longest norm before they are used."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .raw import failed_assertion


def _bind_feature_backward(kernel: KernelInfo) -> Run:
    """(indices[n], grad[n, stride], grad_weight[?, stride], int n, long stride, int padding)."""
    kind, _, index = (
        dtype(t) for t in template_arguments(kernel.demangled, "embedding_backward_feature_kernel")
    )
    unpack = unpacker(kernel, "QQQiqi")

    def run(launch: Launch) -> None:
        indices_at, grad_at, weight_at, n, stride, padding = unpack(launch.args)
        view = launch.memory.view
        indices = view(indices_at, index, (n,), (1,)).long()
        grad = view(grad_at, kind, (n, stride), (stride, 1))
        kept = indices != padding
        if not bool(kept.all()):
            indices, grad = indices[kept], grad[kept]
        if indices.numel() == 0:
            return
        rows = int(indices.max()) + 1
        view(weight_at, kind, (rows, stride), (stride, 1)).index_add_(0, indices, grad)

    return run


def _bind_wrap(kernel: KernelInfo) -> Run:
    """embedding_renorm_wrap_indices_kernel: (indices, out, n, rows); negative ones count back."""
    name = "embedding_renorm_wrap_indices_kernel"
    index = dtype(template_arguments(kernel.demangled, name)[0])
    unpack = unpacker(kernel, "QQqq")

    def run(launch: Launch) -> None:
        source, out, n, rows = unpack(launch.args)
        indices = launch.memory.view(source, index, (n,), (1,))
        if n and not (-rows <= int(indices.min()) and int(indices.max()) < rows):
            raise failed_assertion(f"an index beyond the {rows} rows of an embedding")
        wrapped = torch.where(indices < 0, indices + rows, indices)
        launch.memory.view(out, index, (n,), (1,)).copy_(wrapped)

    return run


def _bind_renorm(kernel: KernelInfo) -> Run:
    """renorm_kernel: (weights, which rows, longest, norm, columns, rows, strides, how many)."""
    kinds = template_arguments(kernel.demangled, "renorm_kernel")
    kind, wide, index = (dtype(t) for t in kinds)
    code = "d" if wide == torch.float64 else "f"
    unpack = unpacker(kernel, f"QQ{code}{code}qqqqQ")

    def run(launch: Launch) -> None:
        weights, rows, longest, power, columns, _, step, stride, count_at = unpack(launch.args)
        view = launch.memory.view
        count = int(view(count_at, torch.int64, (), ()).item())
        for row in view(rows, index, (count,), (1,)).tolist():
            at = weights + row * step * kind.itemsize
            place = view(at, kind, (columns,), (stride,))
            norm = place.to(wide).norm(power)
            if norm > longest:
                place.copy_(place.to(wide) * (longest / (norm + 1e-7)))

    return run


FAMILY: Family = [
    (re.compile(r"\bembedding_backward_feature_kernel<"), _bind_feature_backward),
    (re.compile(r"\bembedding_renorm_wrap_indices_kernel<"), _bind_wrap),
    (re.compile(r"\brenorm_kernel<"), _bind_renorm),
]
