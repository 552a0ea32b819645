"""randperm: sorts numbers by random keys; what has equal keys is then shuffled."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .philox import read_seed, words
from .raw import raw_type
from .runs import run_starts


def _bind(kernel: KernelInfo) -> Run:
    """randperm_handle_duplicate_keys_kernel: (sorted keys, data, mask of the keys, n, seed)."""
    name = "randperm_handle_duplicate_keys_kernel"
    kind, value = template_arguments(kernel.demangled, name)
    key, element = dtype(kind), raw_type(value)
    unpack = unpacker(kernel, "QQnis")

    def run(launch: Launch) -> None:
        keys_at, data_at, mask, count, state = unpack(launch.args)
        keys = launch.memory.view(keys_at, key, (count,), (1,)) & mask
        starts = run_starts(keys)
        sizes = torch.diff(starts, append=starts.new_tensor([count]))
        several = sizes > 1
        if not bool(several.any()):
            return
        data = launch.memory.view(data_at, element, (count,), (1,))
        # The thread where a run begins shuffles it; a call of its generator gives four words.
        starts, sizes = starts[several], sizes[several]
        drawn = words(
            read_seed(state, launch.memory), int(starts[-1]) + 1, -(-int(sizes.max()) // 4)
        )
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            _shuffle(data[start : start + size], drawn[:, start].reshape(-1).tolist())

    return run


def _shuffle(values: Tensor, numbers: list[int]) -> None:
    """From the last place to the second, each value changes places with one up to there."""
    order = list(range(len(values)))
    for last, number in zip(range(len(values) - 1, 0, -1), numbers, strict=False):
        other = number % (last + 1)
        order[last], order[other] = order[other], order[last]
    values.copy_(values[order])


FAMILY: Family = [(re.compile(r"\brandperm_handle_duplicate_keys_kernel<"), _bind)]
