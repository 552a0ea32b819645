"""`torch.multinomial` with replacement: rows made probabilities, and places drawn from them."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from . import Family, KernelInfo, Launch, Run
from .arguments import opmath, unpacker
from .names import dtype, template_arguments
from .philox import read_seed, uniform, words
from .raw import failed_assertion


def _bind_scale(kernel: KernelInfo) -> Run:
    """renormRowsL1: (rows, their number, their size): each is divided by its sum, unless that is 0.

    The failed assertion of a GPU for numbers below zero.
    """
    element = dtype(template_arguments(kernel.demangled, "renormRowsL1")[0])
    unpack = unpacker(kernel, "Qqq")

    def run(launch: Launch) -> None:
        pointer, count, size = unpack(launch.args)
        rows = launch.memory.view(pointer, element, (count, size), (size, 1))
        if bool((rows < 0).any()):
            raise failed_assertion("multinomial of a probability below zero")
        sums = rows.to(opmath(element)).sum(1, keepdim=True)
        rows.copy_(torch.where(sums > 0, rows / sums, rows))

    return run


def _bind_sample(kernel: KernelInfo) -> Run:
    """sampleMultinomialWithReplacement: (seed, samples, out, rows, places, running sums, rows)."""
    name = "sampleMultinomialWithReplacement"
    element = dtype(template_arguments(kernel.demangled, name)[0])
    unpack = unpacker(kernel, "siQqiQQ")

    def run(launch: Launch) -> None:
        state, samples, out, count, size, sums_at, rows_at = unpack(launch.args)
        sums, rows = (
            launch.memory.view(at, element, (count, size), (size, 1)) for at in (sums_at, rows_at)
        )
        if not bool((sums[:, -1] > 0).all()):
            raise failed_assertion("multinomial of probabilities that are all zero")
        drawn = _drawn(launch, state, count, samples).to(element)
        wide = opmath(element)
        found = torch.searchsorted(sums.to(wide), drawn.to(wide)).clamp(max=size - 1)
        target = launch.memory.view(out, torch.int64, (count, samples), (samples, 1))
        target.copy_(_possible(rows).gather(1, found))

    return run


def _drawn(launch: Launch, state: bytes, count: int, samples: int) -> Tensor:
    """A number in (0, 1] for each row and sample; a thread's later rows take its later calls."""
    across, (_, down, _) = launch.grid[0] * launch.block[0], launch.grid
    rounds, turns = -(-count // down), -(-samples // across)
    seed = read_seed(state, launch.memory)
    first = words(seed, across * down, rounds * turns)[..., 0]
    numbers = torch.from_numpy(uniform(first)).view(rounds, turns, down, across)
    return numbers.transpose(1, 2).reshape(rounds * down, turns * across)[:count, :samples]


def _possible(rows: Tensor) -> Tensor:
    """For each place the last one up to it whose probability is not zero, else the first."""
    places = torch.arange(rows.shape[1]).expand_as(rows)
    return torch.where(rows != 0, places, 0).cummax(1).values


FAMILY: Family = [
    (re.compile(r"\brenormRowsL1<"), _bind_scale),
    (re.compile(r"\bsampleMultinomialWithReplacement<"), _bind_sample),
]
