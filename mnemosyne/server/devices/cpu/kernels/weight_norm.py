"""Weight norm: w = g * v / |v|, the norm over all but the first or over all but the last dimension.

Both are brought to rows: a row is what one norm is taken of.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, pointed_types, unpacker

Tensor = torch.Tensor
Compute = Callable[[list[Tensor]], None]


def _forward(parts: list[Tensor]) -> None:
    """(w, norms, v, g)."""
    w, norms, v, g = parts
    wide = v.to(opmath(v.dtype))
    norm = wide.square().sum(1, keepdim=True).sqrt_()
    norms.copy_(norm)
    w.copy_(wide * (g.to(norm.dtype) / norm))


def _backward(parts: list[Tensor]) -> None:
    """(grad_v, grad_g, grad_w, v, g, norms)."""
    grad_v, grad_g, *rest, norms = parts
    grad_w, v, g = (x.to(opmath(x.dtype)) for x in rest)
    inverse, dot = 1 / norms, (grad_w * v).sum(1, keepdim=True)
    grad_g.copy_(dot * inverse)
    grad_v.copy_(g * (inverse * grad_w - inverse.pow(3) * v * dot))


def _binder(name: str, order: str, compute: Compute) -> Callable[[KernelInfo], Run]:
    """`order` says of each pointer whether it is a matrix, `m`, or one value a row, `r`."""
    last = "last_dim" in name

    def bind(kernel: KernelInfo) -> Run:
        types = pointed_types(kernel, name)
        unpack = unpacker(kernel, "Q" * len(order) + ("ii" if last else "i"))

        def run(launch: Launch) -> None:
            values = unpack(launch.args)
            sizes = values[len(order) :]
            rows, columns = sizes if last else (launch.grid[0], sizes[0])
            shapes = {
                "m": ((rows, columns), (1, rows) if last else (columns, 1)),
                "r": ((rows, 1), (1, 1)),
            }
            parts = zip(values, types, order, strict=False)
            compute([launch.memory.view(at, kind, *shapes[what]) for at, kind, what in parts])

        return run

    return bind


FAMILY: Family = [
    (re.compile(rf"\b{name}<"), _binder(name, order, compute))
    for name, order, compute in (
        ("weight_norm_fwd_first_dim_kernel", "mrmr", _forward),
        ("weight_norm_fwd_last_dim_kernel", "mrmr", _forward),
        ("weight_norm_bwd_first_dim_kernel", "mrmmrr", _backward),
        ("weight_norm_bwd_last_dim_kernel", "mrmmrr", _backward),
    )
]
