"""Tensors filled with random numbers: `uniform_`, `normal_`, `random_`, `exponential_` and others.

A kernel `distribution_elementwise_grid_stride_kernel` gets the number of elements, the generator's
state, a lambda that draws, and a lambda that transforms a number and stores it. The last one holds
where the output lies and what the transformation captured.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import Family, KernelInfo, Launch, Run, UnsupportedKernel
from .arguments import opmath, unpacker
from .names import dtype, template_arguments
from .philox import (
    Words,
    long_words,
    normal,
    normal_double,
    read_seed,
    uniform,
    uniform_double,
    words,
)
from .structs import OffsetCalculator, align, scalar

Array = Any  # of numpy, of one of its number types
Transform = Callable[[Array, Sequence[Any], torch.dtype], torch.Tensor]

_OUTPUT = OffsetCalculator(1)


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a transformation captures, as types where `T` is the tensor's and `A` its opmath."""

    captures: str
    transform: Transform
    normal: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """What the storing lambda holds: the output's geometry and address, then the captures."""

    strided: bool
    captures: int

    def output(self, data: bytes, kind: torch.dtype, count: int, launch: Launch) -> torch.Tensor:
        view, size = launch.memory.view, kind.itemsize
        if not self.strided:
            pointer, stride = struct.unpack_from("<Qi", data)
            return view(pointer, kind, (count,), (stride // size,))
        geometry = _OUTPUT.read(data, 0)
        (pointer,) = struct.unpack_from("<Q", data, align(_OUTPUT.size, 8))
        return view(pointer, kind, geometry.sizes, [step // size for step in geometry.strides[0]])


def _bind(kernel: KernelInfo) -> Run:
    kind, draw = _drawing(kernel)
    distribution = _find_distribution(kernel)
    layout = _capture_layout(distribution.captures, kind)
    storage = _storage(kernel.params[-1][1], layout)
    places = [storage.captures + at for at, _ in layout]
    unpack = unpacker(kernel, "qsxs")

    def run(launch: Launch) -> None:
        count, state, data = unpack(launch.args)
        seed = read_seed(state, launch.memory)
        threads = launch.grid[0] * launch.block[0]
        values = _in_order(draw, lambda calls, busy: words(seed, busy, calls), threads, count)
        captured = [scalar(data, at, of) for at, (_, of) in zip(places, layout, strict=True)]
        result = distribution.transform(values, captured, kind)
        output = storage.output(data, kind, count, launch)
        output.copy_(result.view(output.shape))

    return run


Draw = Callable[[Words], Array]


def _drawing(kernel: KernelInfo) -> tuple[torch.dtype, Draw]:
    """The tensor's type, and how four words become numbers: `double2` is two doubles."""
    scalar_type, _, shape, *_ = template_arguments(kernel.demangled, "distribution_nullary_kernel")
    gaussian = "::normal_and_transform<" in kernel.demangled
    table: Mapping[str, Draw] = {
        "float4": normal if gaussian else uniform,
        "double2": normal_double if gaussian else uniform_double,
        "uint4": lambda found: found,
        "ulonglong2": long_words,
    }
    if shape not in table:
        raise UnsupportedKernel(f"random numbers as {shape}")
    return dtype(scalar_type), table[shape]


def _in_order(draw: Draw, source: Callable[[int, int], Words], threads: int, count: int) -> Array:
    """Number w of thread t's turn i is element (i * width + w) * threads + t."""
    width = draw(np.zeros((1, 1, 4), np.uint32)).shape[-1]
    turns, busy = -(-count // (threads * width)), min(threads, count)
    found = draw(source(turns, busy)).transpose(0, 2, 1)
    if busy < threads:
        found = found[:1, :1]
    return found.reshape(-1)[:count]


def _find_distribution(kernel: KernelInfo) -> Distribution:
    found = next((part for part in _NAME.findall(kernel.demangled) if part in _TABLE), None)
    if found is None:
        raise UnsupportedKernel("random numbers of an unknown distribution")
    return _TABLE[found]


def _capture_layout(captures: str, kind: torch.dtype) -> list[tuple[int, torch.dtype]]:
    """Offset and type of each captured value."""
    types = {"T": kind, "A": opmath(kind), "d": torch.float64, "q": torch.int64}
    end, layout = 0, []
    for code in captures:
        start = align(end, types[code].itemsize)
        layout.append((start, types[code]))
        end = start + types[code].itemsize
    return layout


def _storage(size: int, layout: Sequence[tuple[int, torch.dtype]]) -> Storage:
    """Tell by its size what the lambda holds: a pointer and a stride, or an offset calculator."""
    alignment = max((kind.itemsize for _, kind in layout), default=1)
    length = max((at + kind.itemsize for at, kind in layout), default=1)
    for strided, end in ((False, 12), (True, align(_OUTPUT.size, 8) + 8)):
        captures = align(end, alignment)
        if size == align(captures + length, 8):
            return Storage(strided, captures)
    raise UnsupportedKernel(f"random numbers into an output described in {size} bytes")


def _tensor(values: Array, kind: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(kind)


def _uniform(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    """rand * range + from; the upper bound, which the generator includes, becomes the lower."""
    span, low, high = captured
    wide = values.astype(np.float64) * span + low  # a fused multiply-add rounds once
    result = _tensor(wide.astype(values.dtype), kind)
    return result.masked_fill_(result == high, low)


def _normal(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    mean, deviation = captured
    return _tensor((values.astype(np.float64) * deviation + mean).astype(values.dtype), kind)


def _log_normal(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    mean, deviation = captured
    inner = (values.astype(np.float64) * deviation + mean).astype(values.dtype)
    return _tensor(np.exp(inner), kind)


def _bernoulli(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    return _tensor(values < values.dtype.type(captured[0]), kind)


def _exponential(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    """-log(u) / lambda, never zero."""
    real = values.dtype.type
    half = real(np.finfo(values.dtype).eps) / real(2)
    logs = np.where(values >= real(1) - half, -half, np.log(values))
    return _tensor(real(-1) / real(captured[0]) * logs, kind)


def _geometric(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    real = values.dtype.type
    return _tensor(np.ceil(np.log(values) / np.log1p(-real(captured[0]))), kind)


def _cauchy(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    real, (median, sigma) = values.dtype.type, captured
    if values.dtype == np.float32:
        limit = real(np.finfo(values.dtype).eps)
        values = np.clip(values, limit, real(1) - limit)
    angle = real(np.pi) * (values - real(0.5))
    return _tensor(real(median) + real(sigma) * np.tan(angle), kind)


def _from_to(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    """A number below a range, plus a base."""
    span, base = captured
    within = values.astype(np.uint64) % np.uint64(span % (1 << 64))
    return _tensor(within.view(np.int64) + np.int64(base), kind)


def _full_range(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    return _tensor(values.view(np.int64), kind)


def _any_integer(values: Array, captured: Sequence[Any], kind: torch.dtype) -> torch.Tensor:
    """All the integers that a type holds exactly."""
    if kind == torch.bool:
        return _tensor(values & 1, kind)
    if kind.is_floating_point:
        limit = (1 << round(1 - np.log2(torch.finfo(kind).eps))) + 1
    else:
        limit = torch.iinfo(kind).max + 1
    return _tensor((values.astype(np.uint64) % np.uint64(limit)).view(np.int64), kind)


_NAME = re.compile(r"\b(\w+_kernel)<")
_TABLE: Mapping[str, Distribution] = {
    "uniform_kernel": Distribution("ATT", _uniform),
    "normal_kernel": Distribution("AA", _normal),
    "log_normal_kernel": Distribution("AA", _log_normal),
    "bernoulli_kernel": Distribution("d", _bernoulli),
    "exponential_kernel": Distribution("A", _exponential),
    "geometric_kernel": Distribution("d", _geometric),
    "cauchy_kernel": Distribution("AA", _cauchy),
    "random_from_to_kernel": Distribution("qq", _from_to),
    "random_full_64_bits_range_kernel": Distribution("", _full_range),
    "random_kernel": Distribution("", _any_integer),
}


def _bind_unpack(kernel: KernelInfo) -> Run:
    """unpack_cudnn(state, seed, offset): the generator's state as two integers in memory."""
    unpack = unpacker(kernel, "sQQ")

    def run(launch: Launch) -> None:
        state, key, offset = unpack(launch.args)
        seed = read_seed(state, launch.memory)
        view = launch.memory.view
        view(key, torch.int64, (), ()).fill_(seed.key - (seed.key >> 63 << 64))
        view(offset, torch.int64, (), ()).fill_(seed.offset)

    return run


FAMILY: Family = [
    (re.compile(r"\bdistribution_elementwise_grid_stride_kernel<"), _bind),
    (re.compile(r"\bphilox::unpack_cudnn\("), _bind_unpack),
]
