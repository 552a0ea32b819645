"""The lists of tensors that one `multi_tensor_apply_kernel` works on.

How this works (ATen/native/cuda/MultiTensorApply.cuh). The first argument is a structure of arrays:
the addresses of each list, the tensors' sizes, perhaps a scalar or a step count for each tensor,
and for each block which chunk of which tensor is its own. A launch covers only these chunks, of
65,536 elements each: a large tensor may need several. The arrays have room for what fits into
4 KB, or into 32 KB in builds for CUDA 13, so the size of the structure tells how they lie.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import KernelInfo, Memory, UnsupportedKernel
from .names import dtype, template_arguments

CHUNK = 65536

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Room:
    """Capacities of one generation of builds, by number of lists."""

    tensors: Numbers
    tensors_with_scalars: Numbers
    tensors_with_complex: Numbers
    blocks: int
    block_code: str


_ROOMS = (
    _Room((770, 448, 336, 252, 210), (672, 448, 336, 252, 210), (504, 420), 2240, "H"),
    _Room((110, 64, 48, 36, 30), (96, 64, 48, 36, 30), (72, 60), 320, "B"),
)
_NAME = re.compile(r"\b(TensorListMetadata|\w+ListMetadata|\w+OptimizerTensorListMetadata)<")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of elements of one tensor: `chunk` is the number of its first chunk."""

    tensor: int
    chunk: int
    count: int

    @property
    def start(self) -> int:
        return self.chunk * CHUNK


@dataclass(frozen=True, slots=True)
class ListLayout:
    """Where the arrays of a metadata structure begin, in bytes; -1 for those it lacks."""

    depth: int
    tensors: int
    block_code: str
    numels: int
    scalars: int
    scalar: torch.dtype | None
    steps: int
    block_tensors: int
    block_chunks: int
    start: int
    size: int

    def pieces(self, args: bytes, blocks: int) -> list[Piece]:
        """What a launch of so many blocks covers, neighbouring chunks taken together."""
        owners = struct.unpack_from(f"<{blocks}{self.block_code}", args, self.block_tensors)
        chunks = struct.unpack_from(f"<{blocks}i", args, self.block_chunks)
        numels = struct.unpack_from(f"<{max(owners) + 1}q", args, self.numels)
        pieces, first = [], 0
        for at in range(1, blocks + 1):
            if at < blocks and owners[at] == owners[first]:
                continue
            left = numels[owners[first]] - chunks[first] * CHUNK
            count = min(left, (chunks[at - 1] - chunks[first] + 1) * CHUNK)
            pieces.append(Piece(owners[first], chunks[first], count))
            first = at
        return pieces

    def addresses(self, args: bytes, index: int, pieces: Sequence[Piece]) -> Numbers:
        """Where the tensors of one list begin, one for each piece."""
        used = pieces[-1].tensor + 1
        all_of_them = struct.unpack_from(f"<{used}Q", args, index * 8 * self.tensors)
        return tuple(all_of_them[piece.tensor] for piece in pieces)

    def views(
        self,
        args: bytes,
        index: int,
        pieces: Sequence[Piece],
        kind: torch.dtype,
        memory: Memory,
    ) -> list[torch.Tensor]:
        """The pieces of one list as tensors of one dimension."""
        size = kind.itemsize
        return [
            memory.view(address + piece.start * size, kind, (piece.count,), (1,))
            for address, piece in zip(self.addresses(args, index, pieces), pieces, strict=True)
        ]

    def scalars_of(self, args: bytes, pieces: Sequence[Piece]) -> list[Any]:
        """The scalar of each piece's tensor."""
        if self.scalar is None:
            raise UnsupportedKernel("a list of tensors without scalars")
        count = pieces[-1].tensor + 1
        data = bytearray(args[self.scalars : self.scalars + count * self.scalar.itemsize])
        values = torch.frombuffer(data, dtype=self.scalar).tolist()
        return [values[piece.tensor] for piece in pieces]

    def steps_of(self, args: bytes, pieces: Sequence[Piece]) -> Numbers:
        """Where the step count of each piece's tensor lies."""
        used = struct.unpack_from(f"<{pieces[-1].tensor + 1}Q", args, self.steps)
        return tuple(used[piece.tensor] for piece in pieces)

    def first_tensor(self, args: bytes) -> int:
        """How many tensors earlier launches have finished."""
        return int(struct.unpack_from("<i", args, self.start)[0])


def list_layout(kernel: KernelInfo) -> ListLayout:
    """Find how the first argument lies; UnsupportedKernel when its size fits no known build."""
    found = _NAME.search(kernel.demangled)
    if found is None:
        raise UnsupportedKernel("an unknown list of tensors")
    args = template_arguments(kernel.demangled, found[1])
    depth, scalar = int(args[-1]), dtype(args[0]) if len(args) == 2 else None
    for room in _ROOMS:
        layout = _lay_out(room, depth, scalar, "Optimizer" in found[1])
        if layout is not None and kernel.params[0] == (0, layout.size):
            return layout
    raise UnsupportedKernel(f"{found[1]} of {kernel.params[0][1]} bytes")


def _lay_out(room: _Room, depth: int, scalar: torch.dtype | None, steps: bool) -> ListLayout | None:
    capacity = room.tensors if scalar is None else room.tensors_with_scalars
    if scalar == torch.complex128 and depth <= len(room.tensors_with_complex):
        capacity = room.tensors_with_complex
    if not 1 <= depth <= len(capacity):
        return None
    tensors = capacity[depth - 1]
    numels = depth * tensors * 8
    after = numels + tensors * 8
    extra = tensors * (scalar.itemsize if scalar else 8 if steps else 0)
    block_tensors = after + extra
    block_chunks = _align(block_tensors + room.blocks * struct.calcsize(room.block_code), 4)
    start = block_chunks + room.blocks * 4
    end = start if scalar else start + 4
    size = _align(end, 16 if scalar == torch.complex128 else 8)
    places = (after if scalar else -1, scalar, after if steps else -1)
    code = room.block_code
    return ListLayout(
        depth, tensors, code, numels, *places, block_tensors, block_chunks, start, size
    )


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
