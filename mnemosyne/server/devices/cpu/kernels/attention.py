"""Memory-efficient attention (`fmha_cutlassF`, `fmha_cutlassB`) as plain matrix products.

How this works. The only argument is a structure, AttentionKernel::Params or that of the backward
kernel (kernel_forward.h, kernel_backward.h in ATen/native/transformers/cuda/mem_eff_attention); one
launch covers all batches and heads; where sequences have lengths of their own, each one is a batch
by itself. What dropout keeps follows from the generator's seed and offset, so the gradient meets
the same choice again; it is not the choice that a GPU would make.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .structs import align, structure

_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_NO_MASK, _FROM_TOP_LEFT, _FROM_BOTTOM_RIGHT = 0, 1, 2
_LSE_ALIGNMENT, _LSE_BYTES = 32, 4
#: What has a row for each query, and what has one for each key.
_ROWS = (("query", "output", "grad", "grad_query"), ("key", "value", "grad_key", "grad_value"))

_PHILOX = (("seed", "Q"), ("offset", "Q"), ("offset_intragraph", "Q"), ("captured", "?7x"))

_FORWARD: tuple[tuple[str, str], ...] = (
    *((f"{name}_ptr", "Q") for name in ("query", "key", "value", "bias")),
    *((name, "Q") for name in ("seqstart_q", "seqstart_k", "seqlen_k")),
    ("diagonal", "I"),
    *((f"{name}_ptr", "Q") for name in ("output", "accumulator", "logsumexp")),
    ("window", "i"), ("scale", "f"),
    *((name, "i") for name in ("depth", "value_depth", "queries", "keys", "keys_absolute")),
    ("mask", "B"),
    *((f"{name}_m", "i") for name in ("query", "key", "value", "bias", "output")),
    *((f"{name}_h", "i") for name in ("query", "key", "value")), ("bias_h", "q"),
    *((f"{name}_b", "q") for name in ("query", "key", "value", "bias")),
    ("batches", "i"), ("heads", "i"), ("heads_per_key", "i"),
    ("drops", "?"), ("drop_offset", "Q"), ("drop", "f"), *_PHILOX,
    ("extragraph_offset", "Q"), ("seed_ptr", "Q"),
)  # fmt: skip

_BACKWARD: tuple[tuple[str, str], ...] = (
    *((f"{name}_ptr", "Q") for name in (
        "query", "key", "value", "bias", "logsumexp", "output", "grad", "delta")),
    ("seqstart_q", "Q"), ("seqstart_k", "Q"),
    *((f"grad_{name}_ptr", "Q") for name in ("query", "key", "value", "bias")),
    *((name, "Q") for name in ("workspace", "workspace_gv", "workspace_gq")),
    ("window", "i"), ("scale", "f"),
    *((name, "i") for name in (
        "depth", "value_depth", "queries", "keys", "heads", "heads_per_key")),
    ("mask", "B"),
    *((f"{name}_m", "q") for name in ("query", "key", "value", "bias", "grad", "grad_bias")),
    ("packed", "b"), *_PHILOX, ("drop_offset", "Q"), ("drop", "f"),
    ("output_h", "q"), *((f"{name}_h", "i") for name in ("query", "key", "value")),
    ("bias_h", "q"),
    *((f"{name}_b", "q") for name in ("output", "query", "key", "value", "bias")),
    *((name, "q") for name in ("lse_b", "lse_h", "delta_b", "delta_h")),
    ("batches", "i"), ("splits", "h"),
    *((f"{name}_b", "q") for name in (
        "grad", "grad_query", "grad_key", "grad_value", "grad_bias")),
    *((f"{name}_h", "q") for name in (
        "grad", "grad_query", "grad_key", "grad_value", "grad_bias")),
)  # fmt: skip


class _Operands(NamedTuple):
    """(batch, head, row, column) each, in the type that is computed with."""

    query: Tensor
    key: Tensor
    value: Tensor
    logits: Tensor
    keep: Tensor | None


def _bind_forward(kernel: KernelInfo) -> Run:
    kind, read = _kind(kernel), structure(kernel, _FORWARD)

    def run(launch: Launch) -> None:
        p = read(launch.args)
        if p.drops != (p.drop > 0):
            raise UnsupportedKernel("attention with parameters of another PyTorch")
        p.logsumexp_h = align(p.queries, _LSE_ALIGNMENT)
        p.logsumexp_b = p.heads * p.logsumexp_h
        for part in _sequences(p, launch.memory, kind):
            _attend(part, launch.memory, kind)

    return run


def _attend(p: Any, memory: Memory, kind: torch.dtype) -> None:
    operands = _operands(p, memory, kind)
    weights = _dropped(_softmax(operands.logits), operands.keep, p.drop)
    shape = (p.batches, p.heads, p.queries, p.value_depth)
    strides = (p.queries * p.output_m, p.value_depth, p.output_m, 1)
    memory.view(p.output_ptr, kind, shape, strides).copy_(weights @ operands.value)
    if p.logsumexp_ptr:
        _write_logsumexp(p, memory, operands.logits)


def _write_logsumexp(p: Any, memory: Memory, logits: Tensor) -> None:
    """Rows are padded to a multiple of 32 with infinities."""
    shape = (p.batches, p.heads, align(p.queries, _LSE_ALIGNMENT))
    strides = (p.logsumexp_b, p.logsumexp_h, 1)
    place = memory.view(p.logsumexp_ptr, torch.float32, shape, strides)
    place[..., : p.queries] = logits.logsumexp(-1)
    place[..., p.queries :] = math.inf


def _bind_backward(kernel: KernelInfo) -> Run:
    kind, read = _kind(kernel), structure(kernel, _BACKWARD)

    def run(launch: Launch) -> None:
        p = read(launch.args)
        p.output_m = p.value_depth * p.heads
        for name, depth in (("query", p.depth), ("key", p.depth), ("value", p.value_depth)):
            setattr(p, f"grad_{name}_m", p.packed * p.heads * depth)
        for part in _sequences(p, launch.memory, kind):
            _attend_backward(part, launch.memory, kind)

    return run


def _attend_backward(p: Any, memory: Memory, kind: torch.dtype) -> None:
    o = _operands(p, memory, kind)
    rows = (p.batches, p.heads, p.queries, p.value_depth)
    grad = memory.view(p.grad_ptr, kind, rows, (p.grad_b, p.grad_h, p.grad_m, 1)).float()
    strides = (p.output_b, p.output_h, p.output_m, 1)
    output = memory.view(p.output_ptr, kind, rows, strides).float()
    weights = _softmax(o.logits)
    grad_weights = _dropped(grad @ o.value.transpose(2, 3), o.keep, p.drop)
    grad_logits = weights * (grad_weights - (grad * output).sum(-1, keepdim=True))
    kept = _dropped(weights, o.keep, p.drop)
    _put(p, memory, kind, "query", grad_logits @ o.key * p.scale)
    _put(p, memory, kind, "key", grad_logits.transpose(2, 3) @ o.query * p.scale)
    _put(p, memory, kind, "value", kept.transpose(2, 3) @ grad)
    if p.grad_bias_ptr:
        strides = (p.grad_bias_b, p.grad_bias_h, p.grad_bias_m, 1)
        shape = (p.batches, p.heads, p.queries, p.keys)
        memory.view(p.grad_bias_ptr, kind, shape, strides).copy_(grad_logits)


def _put(p: Any, memory: Memory, kind: torch.dtype, name: str, gradient: Tensor) -> None:
    """Writes the gradient of an operand; its rows hold all heads, or all three operands."""
    parts = ("_ptr", "_b", "_h", "_m")
    pointer, batch, head, row = (getattr(p, f"grad_{name}{part}") for part in parts)
    memory.view(pointer, kind, gradient.shape, (batch, head, row, 1)).copy_(gradient)


def _sequences(p: Any, memory: Memory, kind: torch.dtype) -> Iterator[Any]:
    """The parameters of each sequence, a batch of one; those of a dense batch as they are."""
    if not p.seqstart_q:
        yield SimpleNamespace(**vars(p), number=0)
        return
    starts = [
        memory.view(at, torch.int32, (p.batches + 1,), (1,)) for at in (p.seqstart_q, p.seqstart_k)
    ]
    queries, keys = (start.diff() for start in starts)
    if vars(p).get("seqlen_k"):
        keys = memory.view(p.seqlen_k, torch.int32, (p.batches,), (1,))
    columns = (starts[0], starts[1], queries, keys)
    for number in range(p.batches):
        first, first_key, *sizes = (int(column[number]) for column in columns)
        yield _sequence(p, number, kind.itemsize, (first, first_key), sizes)


def _sequence(
    p: Any, number: int, itemsize: int, firsts: tuple[int, int], sizes: Sequence[int]
) -> Any:
    """One sequence: how many queries and keys it has, and where their rows begin."""
    fields = vars(p) | {"number": number, "batches": 1, "queries": sizes[0], "keys": sizes[1]}
    for names, first in zip(_ROWS, firsts, strict=True):
        for name in names:
            if f"{name}_ptr" in fields:
                fields[f"{name}_ptr"] += first * fields[f"{name}_m"] * itemsize
    if fields["bias_ptr"]:
        fields["bias_ptr"] += number * p.bias_b * itemsize
    if "logsumexp_b" in fields and fields["logsumexp_ptr"]:
        fields["logsumexp_ptr"] += number * p.logsumexp_b * _LSE_BYTES
    return SimpleNamespace(**fields)


def _kind(kernel: KernelInfo) -> torch.dtype:
    found = re.search(r"fmha_cutlass[FB]_(\w+?)_", kernel.demangled)
    if found is None or found[1] not in _TYPES:
        raise UnsupportedKernel("attention of an unknown type")
    return _TYPES[found[1]]


def _operands(p: Any, memory: Memory, kind: torch.dtype) -> _Operands:
    if p.window or p.captured:
        raise UnsupportedKernel("attention with windows or graphs")
    if p.heads_per_key < 1 or p.heads % p.heads_per_key:
        raise UnsupportedKernel(f"{p.heads_per_key} heads of queries for each of keys")
    query = _read(p, memory, kind, "query", p.heads, p.queries, p.depth)
    shared = p.heads // p.heads_per_key
    key = _read(p, memory, kind, "key", shared, p.keys, p.depth)
    value = _read(p, memory, kind, "value", shared, p.keys, p.value_depth)
    key, value = (x.repeat_interleave(p.heads_per_key, 1) for x in (key, value))
    logits = _masked(p, query @ key.transpose(2, 3) * p.scale + _bias(p, memory, kind))
    return _Operands(query, key, value, logits, _kept(p))


def _read(
    p: Any, memory: Memory, kind: torch.dtype, name: str, heads: int, rows: int, columns: int
) -> Tensor:
    pointer, batch, head, row = (getattr(p, name + part) for part in ("_ptr", "_b", "_h", "_m"))
    shape = (p.batches, heads, rows, columns)
    return memory.view(pointer, kind, shape, (batch, head, row, 1)).float()


def _bias(p: Any, memory: Memory, kind: torch.dtype) -> Tensor | float:
    if not p.bias_ptr:
        return 0.0
    return _read(p, memory, kind, "bias", p.heads, p.queries, p.keys)


def _masked(p: Any, logits: Tensor) -> Tensor:
    """Causal masks run from the top left or from the bottom right corner."""
    if p.mask == _NO_MASK:
        return logits
    if p.mask not in (_FROM_TOP_LEFT, _FROM_BOTTOM_RIGHT):
        raise UnsupportedKernel(f"an attention mask of kind {p.mask}")
    diagonal = p.keys - p.queries if p.mask == _FROM_BOTTOM_RIGHT else 0
    hidden = torch.ones(p.queries, p.keys, dtype=torch.bool).triu(1 + diagonal)
    return logits.masked_fill(hidden, -math.inf)


def _softmax(logits: Tensor) -> Tensor:
    """A row with nothing to look at gets weights of zero."""
    empty = (logits == -math.inf).all(-1, keepdim=True)
    return logits.softmax(-1).masked_fill(empty, 0)


def _kept(p: Any) -> Tensor | None:
    """Which weights dropout keeps: the same for the same state of the client's generator."""
    if not p.drop:
        return None
    generator = torch.Generator().manual_seed(hash((p.seed, p.offset, p.number)) & (1 << 63) - 1)
    shape = (p.batches, p.heads, p.queries, p.keys)
    return torch.rand(shape, generator=generator).gt(p.drop)


def _dropped(weights: Tensor, keep: Tensor | None, probability: float) -> Tensor:
    return weights if keep is None else weights * keep / (1 - probability)


FAMILY: Family = [
    (re.compile(r"\bfmha_cutlassF_"), _bind_forward),
    (re.compile(r"\bfmha_cutlassB_"), _bind_backward),
]
