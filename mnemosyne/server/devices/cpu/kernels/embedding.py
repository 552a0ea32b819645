"""The gradient of an embedding's weights."""

from __future__ import annotations

import re

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments


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


FAMILY: Family = [(re.compile(r"\bembedding_backward_feature_kernel<"), _bind_feature_backward)]
