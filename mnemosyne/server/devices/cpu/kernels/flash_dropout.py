"""Which weights flash attention keeps: the choice of the kernels themselves.

How this works. The weights of one head are covered by blocks of 16 queries and 32 keys. In each,
every lane of a warp draws 16 bytes from Philox with seven rounds: the block's place is the
sequence's number, and the offset counts sequences, heads and lanes. A byte decides on the element
that the lane holds in the products of 16 by 8: lane 4 * g + t has rows g and g + 8, columns 2 * t
and 2 * t + 1 (dropout.h and philox.cuh in Dao-AILab/flash-attention; the layout is that of the
instruction mma.m16n8k16 in PTX).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import Memory
from .flash_params import Sequences
from .philox import Lanes, Seed, halves, mix, read_seed

Bytes = npt.NDArray[np.uint8]

_ROUNDS = 7
_ROWS, _COLUMNS, _LANES = 16, 32, 32
_SEED = (2,), (1,)


def draw_seed(p: Any, memory: Memory) -> Seed | None:
    """What the forward kernel begins with; leaves it where the backward kernel finds it."""
    if p.p_dropout >= 1:
        return None
    seed = read_seed(p.philox_args, memory)
    state = torch.from_numpy(np.array([seed.key, seed.offset], np.uint64).view(np.int64))
    memory.view(p.rng_state, torch.int64, *_SEED).copy_(state)
    return seed


def drawn_seed(p: Any, memory: Memory) -> Seed | None:
    """What the forward kernel began with."""
    if p.p_dropout >= 1:
        return None
    key, offset = memory.view(p.rng_state, torch.int64, *_SEED).numpy().view(np.uint64).tolist()
    return Seed(key, offset)


def kept(p: Any, seed: Seed | None, group: Sequences) -> Tensor | None:
    """What is kept, (sequence, head, query, key); None without dropout."""
    if seed is None:
        return None
    heads = np.arange(group.first * p.h, (group.first + group.size) * p.h, dtype=np.uint64)
    draws = _draws(seed, heads, -(-group.queries // _ROWS), -(-group.keys // _COLUMNS))
    found = draws[:, : group.queries, : group.keys] <= p.p_dropout_in_uint8_t
    return torch.from_numpy(found).view(group.size, p.h, group.queries, group.keys)


def _draws(seed: Seed, heads: Lanes, rows: int, columns: int) -> Bytes:
    """The bytes of whole blocks: (head, 16 * rows, 32 * columns)."""
    lanes = np.arange(_LANES, dtype=np.uint64)
    offsets = np.uint64(seed.offset) + heads[:, None] * np.uint64(_LANES) + lanes
    low, high = (part[:, None, None, :] for part in halves(offsets))
    row, column = np.ogrid[:rows, :columns]
    down, right = (x.astype(np.uint64)[None, :, :, None] for x in (row, column))
    mixed = mix(seed.key, (low, high, down, right), _ROUNDS)
    words = np.stack(np.broadcast_arrays(*mixed), -1)
    # A lane's bytes: two pairs of products, products of a pair, upper and lower row, two columns.
    shape = (len(heads), rows, columns, 8, 4, 2, 2, 2, 2)
    each = words.astype("<u4").view(np.uint8).reshape(shape)
    order = (0, 1, 7, 3, 2, 5, 6, 4, 8)
    found: Bytes = each.transpose(order).reshape(len(heads), _ROWS * rows, _COLUMNS * columns)
    return found
