"""Dropout: the mask and the masked input in one kernel."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import torch

from . import Family, KernelInfo, Launch, Run
from .arguments import unpacker
from .names import dtype, template_arguments
from .philox import Seed, read_seed, uniform, words
from .structs import TensorInfo, check_tensor_infos, read_tensor_info

Uniform = npt.NDArray[np.float32]

_INDEX_BYTES = {"unsigned int": 4, "unsigned long": 8}


def _bind_vectorized(kernel: KernelInfo) -> Run:
    """fused_dropout_kernel_vec: a thread takes `vector` neighbours, from whole calls."""
    args = template_arguments(kernel.demangled, "fused_dropout_kernel_vec")
    return _bind(kernel, args, int(args[4]))


def _bind_strided(kernel: KernelInfo) -> Run:
    """fused_dropout_kernel: a thread's four values go to places one grid apart."""
    return _bind(kernel, template_arguments(kernel.demangled, "fused_dropout_kernel"), 0)


def _bind(kernel: KernelInfo, args: list[str], vector: int) -> Run:
    """(input, output, mask: TensorInfo; elements, probability to keep, PhiloxCudaState)."""
    kinds = dtype(args[0]), dtype(args[0]), dtype(args[-1])
    acc, width = dtype(args[1]), _INDEX_BYTES[args[2]]
    places = check_tensor_infos(kernel, 3, width)
    unpack = unpacker(kernel, "xxxn" + ("d" if acc == torch.float64 else "f") + "s")

    def run(launch: Launch) -> None:
        count, keep, state = unpack(launch.args)
        threads = launch.grid[0] * launch.block[0]
        seed = read_seed(state, launch.memory)
        draw = _neighbours(seed, threads, count, vector) if vector else spread(seed, threads, count)
        chosen = torch.from_numpy(draw < np.float32(keep))
        infos = [read_tensor_info(launch.args, place, width) for place in places]
        source, target, mask = (
            _elements(launch, info, kind, count if vector else 0)
            for info, kind in zip((infos[0], infos[1], infos[2]), kinds, strict=True)
        )
        scale = torch.tensor(1.0 / keep, dtype=acc)
        chosen = chosen.view(target.shape)
        result = source.reshape(target.shape).to(acc) * chosen * scale
        target.copy_(result)
        mask.copy_(chosen.view(mask.shape))

    return run


def _neighbours(seed: Seed, threads: int, count: int, vector: int) -> Uniform:
    """Thread t's turn i is elements (i * threads + t) * vector onwards."""
    turns = -(-count // (threads * vector))
    busy = threads if turns > 1 else -(-count // vector)
    calls = max(vector // 4, 1)  # for two elements a call's other two words go unused
    found = words(seed, busy, turns * calls).reshape(turns, calls, busy, 4)
    lanes = found.transpose(0, 2, 1, 3).reshape(turns, busy, calls * 4)[..., :vector]
    return uniform(lanes.reshape(-1)[:count])


def spread(seed: Seed, threads: int, count: int) -> Uniform:
    """Word w of thread t's turn i is element (i * 4 + w) * threads + t."""
    turns = -(-count // (threads * 4))
    busy = min(threads, count)
    found = words(seed, busy, turns).transpose(0, 2, 1)
    if busy < threads:
        found = found[:1, :1]
    return uniform(found.reshape(-1)[:count])


def _elements(launch: Launch, info: TensorInfo, kind: torch.dtype, count: int) -> torch.Tensor:
    """The tensor; the vectorized kernel goes through memory whatever the strides say."""
    if count:
        return launch.memory.view(info.data, kind, (count,), (1,))
    return launch.memory.view(info.data, kind, info.sizes, info.strides)


FAMILY: Family = [
    (re.compile(r"\bfused_dropout_kernel_vec<"), _bind_vectorized),
    (re.compile(r"\bfused_dropout_kernel<"), _bind_strided),
]
