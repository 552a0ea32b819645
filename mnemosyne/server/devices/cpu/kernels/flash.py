"""Flash attention, forward: `flash_fwd_kernel`, and its form that splits the keys.

How this works. A launch covers all sequences and heads. The kernel writes the output and, for the
gradient, the logarithm of every row's sum of exponentials: infinity where a row sees no key. With
few queries the keys are split; each part writes an output and a logarithm of its own, and a second
kernel combines them.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Memory, Run
from .flash_dropout import draw_seed, kept
from .flash_params import Sequences, element, logsumexp, operand, paged, reader, sequences
from .names import template_arguments


class Operands(NamedTuple):
    """(sequence, head, row, column) in float32; keys and values once for each head of queries."""

    query: Tensor
    key: Tensor
    value: Tensor
    logits: Tensor


def operands(p: Any, memory: Memory, kind: torch.dtype, group: Sequences) -> Operands:
    """What is multiplied, and the logits: minus infinity where a query must not look."""
    get = paged if p.block_table else operand
    query = operand(p, memory, kind, "q", group).float()
    key, value = (
        get(p, memory, kind, name, group).float().repeat_interleave(p.h_h_k_ratio, 1)
        for name in ("k", "v")
    )
    logits = query @ key.transpose(2, 3) * p.scale_softmax
    return Operands(query, key, value, _windowed(p, logits))


def _windowed(p: Any, logits: Tensor) -> Tensor:
    """Windows are aligned with the bottom right corner; a negative size is no limit."""
    queries, keys = logits.shape[2:]
    own = torch.arange(queries)[:, None] + (keys - queries)
    distance = torch.arange(keys) - own
    if p.window_size_right >= 0:
        logits = logits.masked_fill(distance > p.window_size_right, -math.inf)
    if p.window_size_left >= 0:
        logits = logits.masked_fill(distance < -p.window_size_left, -math.inf)
    return logits


def _bind_forward(kernel: KernelInfo) -> Run:
    kind, read = element(kernel), reader(kernel)

    def run(launch: Launch) -> None:
        p, memory = read(launch.args), launch.memory
        seed = draw_seed(p, memory)
        for group in sequences(p, memory):
            o = operands(p, memory, kind, group)
            weights, sums = _softmax(o.logits)
            keep = kept(p, seed, group)
            if keep is not None:
                weights = weights * keep * p.rp_dropout
            operand(p, memory, kind, "o", group).copy_(weights @ o.value)
            _put_sums(logsumexp(p, memory, group), sums)

    return run


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and logarithms of sums: zero and minus infinity in a row that sees no key."""
    sums = logits.logsumexp(-1)
    weights = (logits - sums[..., None]).exp()
    return weights.masked_fill((sums == -math.inf)[..., None], 0), sums


def _put_sums(place: Tensor, sums: Tensor) -> None:
    """Infinity where a row sees no key, so that the gradient finds weights of zero."""
    place.copy_(sums.masked_fill(sums == -math.inf, math.inf))


def _bind_split(kernel: KernelInfo) -> Run:
    """flash_fwd_splitkv_kernel: launches with one part write the result itself."""
    traits, *_, split, _ = template_arguments(kernel.demangled, "flash_fwd_splitkv_kernel")
    if split == "false":
        return _bind_forward(kernel)
    kind, read = element(kernel), reader(kernel)
    width = int(template_arguments(traits, "Flash_fwd_kernel_traits")[2])

    def run(launch: Launch) -> None:
        p, memory = read(launch.args), launch.memory
        parts, sums = _partial(p, memory)
        blocks = -(-p.seqlen_k // width)
        keys = -(-blocks // p.num_splits) * width
        for group in sequences(p, memory):
            o, place = operands(p, memory, kind, group), _place(group)
            for part in range(p.num_splits):
                seen = slice(part * keys, (part + 1) * keys)
                weights, sums[part][place] = _softmax(o.logits[..., seen])
                parts[part][place] = weights @ o.value[:, :, seen]

    return run


def _partial(p: Any, memory: Memory) -> tuple[Tensor, Tensor]:
    """Outputs and logarithms of the parts: (part, sequence, head, row) and columns."""
    shape = (p.num_splits, p.b, p.h, p.seqlen_q)
    sums = torch.empty(shape, device="meta").stride()
    strides = [n * p.d_rounded for n in sums]
    outputs = memory.view(p.oaccum_ptr, torch.float32, (*shape, p.d), (*strides, 1))
    return outputs, memory.view(p.softmax_lseaccum_ptr, torch.float32, shape, sums)


def _place(group: Sequences) -> tuple[slice, slice, slice]:
    """Where a group's rows lie among (sequence, head, row)."""
    return slice(group.first, group.first + group.size), slice(None), slice(group.queries)


def _bind_combine(kernel: KernelInfo) -> Run:
    """flash_fwd_splitkv_combine_kernel: each part counts as its sum of exponentials does."""
    kind, read = element(kernel), reader(kernel)

    def run(launch: Launch) -> None:
        p, memory = read(launch.args), launch.memory
        parts, sums = _partial(p, memory)
        total = sums.logsumexp(0)
        shares = (sums - total).exp().masked_fill(total == -math.inf, 0)
        for group in sequences(p, memory):
            place = _place(group)
            pairs = zip(shares, parts, strict=True)
            output = sum(share[place][..., None] * part[place] for share, part in pairs)
            operand(p, memory, kind, "o", group).copy_(output)
            _put_sums(logsumexp(p, memory, group), total[place])

    return run


FAMILY: Family = [
    (re.compile(r"\bflash_fwd_kernel<"), _bind_forward),
    (re.compile(r"\bflash_fwd_splitkv_kernel<"), _bind_split),
    (re.compile(r"\bflash_fwd_splitkv_combine_kernel<"), _bind_combine),
]
