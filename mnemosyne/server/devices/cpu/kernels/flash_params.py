"""What flash attention's kernels are told: Flash_fwd_params and Flash_bwd_params.

How this works. A batch is either dense, or its sequences lie one behind another and `cu_seqlens`
says where each one begins. Both are read as groups of sequences of the same lengths: one group, or
one for each sequence. Strides are in elements. Members have the names of flash.h in
Dao-AILab/flash-attention, which PyTorch builds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import KernelInfo, Memory, UnsupportedKernel
from .structs import structure

#: Rows of room between the sequences of a batch whose lengths differ, in what gradients are
#: summed in.
_ROOM = 128

_PLACES = ("batch", "row", "head")


def _strides(*names: str) -> list[tuple[str, str]]:
    """Strides of several tensors: all batch strides, all row strides, all head strides."""
    return [(f"{name}_{place}_stride", "q") for place in _PLACES for name in names]


_FORWARD: Sequence[tuple[str, str]] = (
    *((f"{name}_ptr", "Q") for name in "qkv"), *_strides("q", "k", "v"),
    ("h", "i"), ("h_k", "i"), ("h_h_k_ratio", "i"),
    ("o_ptr", "Q"), ("oaccum_ptr", "Q"), *_strides("o"),
    *((f"{name}_ptr", "Q") for name in ("p", "softmax_lse", "softmax_lseaccum")),
    *((name, "i") for name in (
        "b", "seqlen_q", "seqlen_k", "seqlen_knew", "d", "seqlen_q_rounded", "seqlen_k_rounded",
        "d_rounded", "rotary_dim", "total_q")),
    ("scale_softmax", "f"), ("scale_softmax_log2", "f"),
    *((name, "Q") for name in (
        "cu_seqlens_q", "cu_seqlens_k", "leftpad_k", "seqused_k", "blockmask",
        "knew_ptr", "vnew_ptr")),
    *_strides("knew", "vnew"),
    *((name, "Q") for name in ("rotary_cos_ptr", "rotary_sin_ptr", "cache_batch_idx")),
    ("block_table", "Q"), ("block_table_batch_stride", "q"), ("page_block_size", "i"),
    ("p_dropout", "f"), ("p_dropout_in_uint8_t", "B"),
    ("rp_dropout", "f"), ("scale_softmax_rp_dropout", "f"),
    ("window_size_left", "i"), ("window_size_right", "i"), ("softcap", "f"),
    ("philox_args", "32s"), ("rng_state", "Q"),
    *((name, "?") for name in (
        "is_bf16", "is_causal", "is_seqlens_k_cumulative", "is_rotary_interleaved")),
    ("num_splits", "i"), ("alibi_slopes_ptr", "Q"), ("alibi_slopes_batch_stride", "q"),
    ("unpadded_lse", "?"), ("seqlenq_ngroups_swapped", "?"),
)  # fmt: skip

_BACKWARD: Sequence[tuple[str, str]] = (
    *_FORWARD,
    *((f"{name}_ptr", "Q") for name in (
        "do", "dq", "dk", "dv", "dq_accum", "dk_accum", "dv_accum")),
    *_strides("do"), *_strides("dq", "dk", "dv"),
    ("dsoftmax_sum", "Q"), ("deterministic", "?"), ("dq_accum_split_stride", "q"),
)  # fmt: skip

_REFUSED = {
    "alibi_slopes_ptr": "slopes (ALiBi)",
    "softcap": "capped logits",
    "p_ptr": "weights to return",
    "knew_ptr": "keys to append",
    "rotary_dim": "rotary embeddings",
    "cache_batch_idx": "a cache's indices",
    "leftpad_k": "padding on the left",
}


class Sequences(NamedTuple):
    """`size` sequences from the one of number `first` on; rows are None in a dense batch."""

    first: int
    size: int
    queries: int
    keys: int
    query_row: int | None
    key_row: int | None


def reader(kernel: KernelInfo, backward: bool = False) -> Callable[[bytes], Any]:
    """What reads the parameters; UnsupportedKernel for those of another version, or unknown use."""
    read = structure(kernel, _BACKWARD if backward else _FORWARD)

    def checked(args: bytes) -> Any:
        p = read(args)
        found = [what for name, what in _REFUSED.items() if getattr(p, name)]
        if found:
            raise UnsupportedKernel(f"flash attention with {', '.join(found)}")
        if p.h_k < 1 or p.h != p.h_k * p.h_h_k_ratio:
            raise UnsupportedKernel(f"{p.h} heads of queries, {p.h_k} of keys")
        return p

    return checked


def element(kernel: KernelInfo) -> torch.dtype:
    """What a kernel reads and writes."""
    return torch.bfloat16 if "cutlass::bfloat16_t" in kernel.demangled else torch.float16


def sequences(p: Any, memory: Memory) -> list[Sequences]:
    """The groups of a batch."""
    if not (p.cu_seqlens_q or p.cu_seqlens_k or p.seqused_k):
        return [Sequences(0, p.b, p.seqlen_q, p.seqlen_k, None, None)]
    if not p.is_seqlens_k_cumulative:
        raise UnsupportedKernel("flash attention with a cache's lengths")
    queries, keys = (_bounds(memory, at, p.b) for at in (p.cu_seqlens_q, p.cu_seqlens_k))
    used = memory.view(p.seqused_k, torch.int32, (p.b,), (1,)).tolist() if p.seqused_k else None
    found = []
    for i in range(p.b):
        q = queries[i + 1] - queries[i] if queries else p.seqlen_q
        k = keys[i + 1] - keys[i] if keys else p.seqlen_k
        starts = queries[i] if queries else None, keys[i] if keys else None
        found.append(Sequences(i, 1, max(q, 0), max(used[i] if used else k, 0), *starts))
    return found


def _bounds(memory: Memory, pointer: int, count: int) -> list[int]:
    """Where sequences begin and the last one ends; nothing if they have a dense batch's place."""
    if not pointer:
        return []
    bounds: list[int] = memory.view(pointer, torch.int32, (count + 1,), (1,)).tolist()
    return bounds


def operand(p: Any, memory: Memory, kind: torch.dtype, name: str, group: Sequences) -> Tensor:
    """A tensor of one group, (sequence, head, row, column): q, k, v, o, do, dq, dk or dv."""
    keys, shared = name[-1] in "kv", name in ("k", "v")
    rows, start = (group.keys, group.key_row) if keys else (group.queries, group.query_row)
    batch, row, head = (getattr(p, f"{name}_{place}_stride") for place in _PLACES)
    at = group.first * batch if start is None else start * row
    shape = (group.size, p.h_k if shared else p.h, rows, p.d)
    pointer = getattr(p, f"{name}_ptr") + at * kind.itemsize
    return memory.view(pointer, kind, shape, (batch, head, row, 1))


def paged(p: Any, memory: Memory, kind: torch.dtype, name: str, group: Sequences) -> Tensor:
    """Keys or values of one sequence that lie in pages, which a table names in order."""
    size, pointer = p.page_block_size, getattr(p, f"{name}_ptr")
    page, row, head = (getattr(p, f"{name}_{place}_stride") for place in _PLACES)
    table = p.block_table + 4 * group.first * p.block_table_batch_stride
    numbers = memory.view(table, torch.int32, (-(-group.keys // size),), (1,)).tolist()
    parts = [torch.empty(1, p.h_k, 0, p.d, dtype=kind)]
    for turn, number in enumerate(numbers):
        shape = (1, p.h_k, min(size, group.keys - turn * size), p.d)
        at = pointer + number * page * kind.itemsize
        parts.append(memory.view(at, kind, shape, (0, head, row, 1)))
    return torch.cat(parts, 2)


def logsumexp(p: Any, memory: Memory, group: Sequences) -> Tensor:
    """The place of the logarithms of sums, (sequence, head, row)."""
    batch, head, row = p.h * p.seqlen_q, p.seqlen_q, 1
    if p.seqlenq_ngroups_swapped:
        batch, head, row = 1, p.seqlen_q * p.b, p.b
    elif p.unpadded_lse:
        batch, head = p.seqlen_q, p.total_q
    start = group.query_row if p.unpadded_lse else None
    at = group.first * batch if start is None else start
    shape = (group.size, p.h, group.queries)
    return memory.view(p.softmax_lse_ptr + 4 * at, torch.float32, shape, (batch, head, row))


def row_sums(p: Any, memory: Memory, group: Sequences) -> Tensor:
    """The place of the products of output and gradient, (sequence, head, row)."""
    batch, head = p.h * p.seqlen_q_rounded, p.seqlen_q_rounded
    at = group.first * batch
    if p.unpadded_lse:
        head = p.total_q + _ROOM * p.b
        at = (group.query_row or 0) + _ROOM * group.first
    shape = (group.size, p.h, group.queries)
    return memory.view(p.dsoftmax_sum + 4 * at, torch.float32, shape, (batch, head, 1))


def query_sums(p: Any, memory: Memory, group: Sequences, split: int = 0) -> Tensor:
    """The place where the gradient of queries is summed, (sequence, head, row, column)."""
    row = p.h * p.d_rounded
    batch = p.seqlen_q_rounded * row
    at = group.first * batch
    if group.query_row is not None:
        at = (group.query_row + _ROOM * group.first) * row
    at += split * p.dq_accum_split_stride
    shape = (group.size, p.h, group.queries, p.d)
    strides = (batch, p.d_rounded, row, 1)
    return memory.view(p.dq_accum_ptr + 4 * at, torch.float32, shape, strides)
