"""Reductions: `reduce_kernel<..., ReduceOp<...>>` as one torch reduction over the whole operand.

How this works. The only argument is the ReduceOp structure (ATen/native/cuda/Reduce.cuh). Its
offset calculators give the shape: the output dimensions, then the reduced ones, fastest first.
What its blocks and threads share among themselves is of no interest here. An operand too large
for 32-bit offsets comes as several launches: `accumulate` says that a partial result is there
already, in the output or in `acc_buf`, and `final_output` that this launch ends the reduction.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import Family, KernelInfo, Launch, Memory, Run, UnsupportedKernel
from .names import dtype, template_arguments
from .reduce_ops import Reduction, State, find_reduction, store

Members = tuple[Any, ...]

_CONFIG_BYTES = 64
_DIMS = 25
_INPUT_BYTES = 4 + _DIMS * (12 + 4)
_OUTPUT_BYTES = 4 + _DIMS * (12 + 8)
# src, dst[2], acc_buf, cta_buf, semaphores, base_idx, accumulate, final_output, noutputs
_TAIL = struct.Struct("<6Qq??2xi")
_SIZES = [struct.Struct("<" + "I8x" * n) for n in range(_DIMS + 1)]
_INPUT_STRIDES = [struct.Struct(f"<{n}I") for n in range(_DIMS + 1)]
_OUTPUT_STRIDES = [struct.Struct(f"<{2 * n}I") for n in range(_DIMS + 1)]
_DIM_COUNT = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the parts of one ReduceOp lie, in bytes."""

    input_calc: int
    output_calc: int
    tail: int
    total: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one launch: slowest dimension first, strides in bytes."""

    outputs: tuple[int, ...]
    reduced: tuple[int, ...]
    output_strides: tuple[int, ...]
    input_strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tail:
    """What follows the calculators: addresses, and which part of a split reduction this is."""

    src: int
    dst: Sequence[int]
    acc_buf: int
    base: int
    accumulate: bool
    final: bool


def _bind(kernel: KernelInfo) -> Run:
    scalar, ops, index, out, *_ = template_arguments(kernel.demangled, "ReduceOp")
    if index != "unsigned int":
        raise UnsupportedKernel(f"ReduceOp with {index} offsets")
    reduction = find_reduction(ops, dtype(scalar), dtype(out))
    offsets = _offsets(reduction)
    if kernel.params != ((0, offsets.total),) and reduction.fields == (torch.bool,):
        # PyTorch 2.11 keeps truths in the type of the operand.
        reduction = replace(reduction, fields=(reduction.scalar,))
        offsets = _offsets(reduction)
    if kernel.params != ((0, offsets.total),):
        raise UnsupportedKernel(f"ReduceOp of {offsets.total} bytes expected: {kernel.params}")
    members = struct.Struct("<" + reduction.members).unpack_from

    def run(launch: Launch) -> None:
        args = launch.args
        tail = _read_tail(args, offsets.tail)
        _reduce(reduction, members(args), _read_shape(args, offsets), tail, launch.memory)

    return run


FAMILY: Family = ((re.compile(r"at::native::reduce_kernel<.*\bReduceOp<"), _bind),)


def _offsets(reduction: Reduction) -> Offsets:
    """Lay a ReduceOp out as the compiler does: ops, ident, config, two calculators, the tail."""
    alignment = max(field.itemsize for field in reduction.fields)
    ident = _align(struct.calcsize("<" + reduction.members) or 1, alignment)
    config = _align(ident + _accumulator_bytes(reduction.fields), 4)
    input_calc = config + _CONFIG_BYTES
    output_calc = input_calc + _INPUT_BYTES
    tail = _align(output_calc + _OUTPUT_BYTES, 8)
    return Offsets(input_calc, output_calc, tail, _align(tail + _TAIL.size, max(8, alignment)))


def _accumulator_bytes(fields: Sequence[torch.dtype]) -> int:
    end = 0
    for field in fields:
        end = _align(end, field.itemsize) + field.itemsize
    return _align(end, max(field.itemsize for field in fields))


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _read_tail(args: bytes, offset: int) -> Tail:
    src, *dst, acc_buf, _, _, base, accumulate, final, count = _TAIL.unpack_from(args, offset)
    return Tail(src, dst[:count], acc_buf, base, accumulate, final)


def _read_shape(args: bytes, offsets: Offsets) -> Shape:
    reduced, inner = _read_calculator(args, offsets.input_calc, _INPUT_STRIDES)
    outputs, outer = _read_calculator(args, offsets.output_calc, _OUTPUT_STRIDES)
    if not reduced:  # torch takes an empty list of dimensions for all of them
        reduced, inner = (1,), (0,)
    return Shape(outputs, reduced, outer[-2::-2], outer[::-2] + inner[::-1])


def _read_calculator(
    args: bytes, offset: int, strides: Sequence[struct.Struct]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the sizes, slowest first, and the strides as they lie there."""
    dims = _DIM_COUNT.unpack_from(args, offset)[0]
    sizes = _SIZES[dims].unpack_from(args, offset + 4)
    return sizes[::-1], strides[dims].unpack_from(args, offset + 4 + 12 * _DIMS)


def _reduce(
    reduction: Reduction, members: Members, shape: Shape, tail: Tail, memory: Memory
) -> None:
    size = reduction.scalar.itemsize
    strides = [stride // size for stride in shape.input_strides]
    operand = memory.view(tail.src, reduction.scalar, shape.outputs + shape.reduced, strides)
    dims = tuple(range(len(shape.outputs), operand.dim()))
    places = [stride // reduction.outputs[0].itemsize for stride in shape.output_strides]
    outputs = [
        memory.view(pointer, kind, shape.outputs, places)
        for pointer, kind in zip(tail.dst, reduction.outputs, strict=False)
    ]
    if tail.final and not tail.accumulate:
        reduction.direct(operand, dims, outputs, members)
        return
    state = _state_views(reduction, shape, places, tail, memory)
    value = reduction.partial(operand, dims, members)
    _accumulate(reduction, members, state, value, tail, outputs)


def _accumulate(
    reduction: Reduction,
    members: Members,
    state: Sequence[torch.Tensor],
    value: State,
    tail: Tail,
    outputs: Sequence[torch.Tensor],
) -> None:
    """One part of a split reduction: join it to the parts before, keep it or give the result."""
    if tail.accumulate:
        if reduction.indexed:
            value = value[0], value[1] + tail.base
        value = reduction.combine(tuple(state), value)
    if tail.final:
        store(outputs, reduction.project(value, members))
    else:
        store(state, value)


def _state_views(
    reduction: Reduction, shape: Shape, places: Sequence[int], tail: Tail, memory: Memory
) -> list[torch.Tensor]:
    """The partial results: accumulators in a buffer, or else, converted, in the output."""
    if not tail.acc_buf:
        if len(reduction.fields) > 1:
            raise UnsupportedKernel("a partial result of several values kept in the output")
        return [memory.view(tail.dst[0], reduction.outputs[0], shape.outputs, places)]
    total, end, views = _accumulator_bytes(reduction.fields), 0, []
    for field in reduction.fields:
        start = _align(end, field.itemsize)
        strides = [place * total // field.itemsize for place in places]
        views.append(memory.view(tail.acc_buf + start, field, shape.outputs, strides))
        end = start + field.itemsize
    return views
