"""Norms and maxima of lists of tensors, as `clip_grad_norm_` wants them.

The first kernel leaves one value for each chunk of each tensor, row by row; the second joins them
to one value for each tensor, in tensors of their own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import pointed_types, unpacker
from .foreach_lists import CHUNK, list_layout
from .names import dtype, parameters, template_arguments

Tensor = torch.Tensor
Reduce = Callable[[Tensor], Tensor]

_RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
_NORMS = {(2, 14): ("L0", "L1", "L2", "LInf"), (0, 0): ("L1", "L2", "LInf")}
"""Order of `NormType`, by the release from which it holds."""
_UNKNOWN_RELEASES = (12, 13)  # the order changed in one of these; 2.11 has three norms


def _norm(text: str) -> str:
    """Read `(at::native::NormType)2`, whose number means another norm in older releases."""
    if _RELEASE[0] == 2 and _RELEASE[1] in _UNKNOWN_RELEASES:
        raise UnsupportedKernel(f"{text} of PyTorch {torch.__version__}")
    names = next(names for since, names in _NORMS.items() if since <= _RELEASE)
    return names[int(text.rpartition(")")[2])]


_REDUCE: dict[str, Reduce] = {
    "L0": lambda rows: (rows != 0).sum(1),
    "L1": lambda rows: rows.abs().sum(1),
    "L2": lambda rows: rows.square().sum(1),
    "LInf": lambda rows: rows.abs().amax(1),
    "Max": lambda rows: rows.amax(1),
}
_JOIN: dict[str, Reduce] = {
    "L0": lambda rows: rows.sum(1),
    "L1": lambda rows: rows.sum(1),
    "L2": lambda rows: rows.sum(1),
    "LInf": lambda rows: rows.amax(1),
    "Max": lambda rows: rows.amax(1),
}


def _bind_chunks(kernel: KernelInfo) -> Run:
    """(lists, functor, results, chunks of the longest tensor)."""
    functor = template_arguments(kernel.demangled, "multi_tensor_apply_kernel")[1]
    base = "LpMaxFunctor" if "LpMaxFunctor<" in functor else "LpNormFunctor"
    args = template_arguments(functor, base)
    reduce = _REDUCE["Max" if base == "LpMaxFunctor" else _norm(args[1])]
    kind, layout, unpack = dtype(args[0]), list_layout(kernel), unpacker(kernel, "xxQi")
    out = dtype(parameters(kernel.demangled, "multi_tensor_apply_kernel")[2])

    def run(launch: Launch) -> None:
        results, stride = unpack(launch.args)
        pieces = layout.pieces(launch.args, launch.grid[0])
        first, size = layout.first_tensor(launch.args), out.itemsize
        tensors = layout.views(launch.args, 0, pieces, kind, launch.memory)
        for piece, tensor in zip(pieces, tensors, strict=True):
            values = _by_chunk(tensor if kind == out else tensor.to(out), reduce)
            at = results + ((first + piece.tensor) * stride + piece.chunk) * size
            launch.memory.view(at, out, values.shape, (1,)).copy_(values)

    return run


def _by_chunk(tensor: Tensor, reduce: Reduce) -> Tensor:
    whole = tensor.numel() // CHUNK
    if whole == 0:
        return reduce(tensor[None])
    parts = [reduce(tensor[: whole * CHUNK].view(whole, CHUNK))]
    if tensor.numel() % CHUNK:
        parts.append(reduce(tensor[None, whole * CHUNK :]))
    return torch.cat(parts)


def _bind_cleanup(kernel: KernelInfo) -> Run:
    """(chunk values, addresses of the results, chunks): a block for each tensor."""
    name = "lpmax_cleanup" if "lpmax_cleanup<" in kernel.demangled else "lpnorm_cleanup"
    args = template_arguments(kernel.demangled, name)
    norm = "Max" if name == "lpmax_cleanup" else _norm(args[1])
    out = dtype(args[2] if name == "lpnorm_cleanup" else args[0])
    rooted = norm == "L2" and "false" not in args
    join, unpack, kind = _JOIN[norm], unpacker(kernel, "Qsi"), pointed_types(kernel, name)[0]

    def run(launch: Launch) -> None:
        partial, addresses, chunks = unpack(launch.args)
        tensors = launch.grid[0]
        rows = launch.memory.view(partial, kind, (tensors, chunks), (chunks, 1))
        values = join(rows)
        values = values.sqrt_() if rooted else values
        places = struct.unpack_from(f"<{tensors}Q", addresses)
        for place, value in zip(places, values.unbind(), strict=True):
            launch.memory.view(place, out, (), ()).copy_(value)

    return run


FAMILY: Family = [
    (re.compile(r"\bmulti_tensor_apply_kernel<.*\bLp(Norm|Max)Functor<"), _bind_chunks),
    (re.compile(r"\blp(norm|max)_cleanup<"), _bind_cleanup),
]
