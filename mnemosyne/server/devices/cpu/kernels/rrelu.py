"""Leaky ReLU with slopes drawn at random (RreluWithNoise.cu)."""

from __future__ import annotations

import re

import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import opmath, unpacker
from .dropout import spread
from .names import dtype, template_arguments
from .philox import read_seed


def _bind(kernel: KernelInfo) -> Run:
    """rrelu_with_noise_cuda_kernel: (n, PhiloxCudaState, out, in, slopes, lower, upper, draw)."""
    kind, width, *_ = template_arguments(kernel.demangled, "rrelu_with_noise_cuda_kernel")
    element = dtype(kind)
    if width != "4":
        raise UnsupportedKernel("slopes drawn as doubles")
    unpack = unpacker(kernel, "isQQQddx")

    def run(launch: Launch) -> None:
        count, state, out, source, slopes, lower, upper = unpack(launch.args)
        values, place, noise = (
            launch.memory.view(at, element, (count,), (1,)) for at in (source, out, slopes)
        )
        threads = launch.grid[0] * launch.block[0]
        drawn = torch.from_numpy(spread(read_seed(state, launch.memory), threads, count))
        slope = (drawn.to(element).double() * (upper - lower) + lower).to(element)
        slope = torch.where(values <= 0, slope, torch.ones_like(slope))
        noise.copy_(slope)
        place.copy_(values.to(opmath(element)) * slope)

    return run


FAMILY: Family = [(re.compile(r"\brrelu_with_noise_cuda_kernel<"), _bind)]
