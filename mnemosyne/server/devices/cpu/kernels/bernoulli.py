"""Truths with a probability for each element, `torch.bernoulli(p)`."""

from __future__ import annotations

import re

import numpy as np
import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .philox import read_seed, uniform, words
from .structs import check_tensor_infos, read_tensor_info

_STEP = 4  # elements of a thread at a time, one call
_INDEX_BYTES = {"unsigned int": 4, "unsigned long": 8}


def _bind(kernel: KernelInfo) -> Run:
    """kernelPointwiseApply2(output, probabilities: TensorInfo; elements, lambda with a seed).

    A thread that comes round again starts its sequence anew, and draws the same numbers.
    """
    args = template_arguments(kernel.demangled, "kernelPointwiseApply2")
    out, kind, width = dtype(args[1]), dtype(args[2]), _INDEX_BYTES[args[3]]
    places, unpack = check_tensor_infos(kernel, 2, width), unpacker(kernel, "xxns")

    def run(launch: Launch) -> None:
        count, state = unpack(launch.args)
        threads = launch.grid[0] * launch.block[0]
        lanes = -(-count // _STEP)
        drawn = words(read_seed(state, launch.memory), min(threads, lanes), 1)[0]
        if lanes > threads:
            drawn = drawn[np.arange(lanes) % threads]
        values = torch.from_numpy(uniform(drawn.reshape(-1)[:count]))
        target, chances = (
            launch.memory.view(info.data, of, info.sizes, info.strides)
            for info, of in zip(
                (read_tensor_info(launch.args, place, width) for place in places),
                (out, kind),
                strict=True,
            )
        )
        target.copy_((values <= chances.reshape(-1)).view(target.shape))

    return run


FAMILY: Family = [(re.compile(r"\bkernelPointwiseApply2<.*\bbernoulli_tensor_cuda_kernel<"), _bind)]
