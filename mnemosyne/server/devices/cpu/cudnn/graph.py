"""Operation graphs of cuDNN on the CPU device: read once into steps, then run on tensors.

How this works: an operation becomes a ``Step``, which takes the values of some tensors and gives
those of others. A tensor is memory of the session, a value that came with the call, or virtual: it
exists only between steps. All sizes are known when a graph is read, and checked there, so that what
cannot be computed is refused before a program relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

from mnemosyne.server.devices.cpu.cudnn.content import Descriptor
from mnemosyne.server.devices.cpu.memory import CpuMemory
from mnemosyne.server.errors import INVALID_VALUE, NOT_SUPPORTED, CallError

#: cudnnDataType_t.
DTYPES = {
    0: torch.float32, 1: torch.float64, 2: torch.float16, 3: torch.int8, 4: torch.int32,
    6: torch.uint8, 9: torch.bfloat16, 10: torch.int64, 11: torch.bool,
}  # fmt: skip

#: On a GPU a virtual tensor takes no memory; here it does, of the machine that clients share.
_MAX_VIRTUAL = 4 << 30  # bytes

_GRAPH, _TENSOR = 15, 17  # cudnnBackendDescriptorType_t
_HANDLE, _OPERATIONS = 800, 801
_ALIGNMENT, _DTYPE, _SIZES, _STRIDES = 900, 901, 902, 903
_ID, _VIRTUAL, _BY_VALUE, _REORDERING = 906, 907, 908, 909
_TENSOR_ATTRIBUTES = {
    _ALIGNMENT, _DTYPE, _SIZES, _STRIDES, _ID, _VIRTUAL, _BY_VALUE, _REORDERING,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a graph; sizes and strides in elements."""

    number: int  # its unique id
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    virtual: bool
    by_value: bool

    @classmethod
    def of(cls, d: Descriptor) -> Tensor:
        """Raises CallError."""
        if d.kind != _TENSOR:
            raise CallError(INVALID_VALUE, f"a cuDNN descriptor {d.kind} instead of a tensor")
        d.only(_TENSOR_ATTRIBUTES)
        sizes, strides = d.integers(_SIZES), d.integers(_STRIDES)
        if len(sizes) != len(strides) or any(n < 0 for n in (*sizes, *strides)):
            raise CallError(INVALID_VALUE, f"a cuDNN tensor of {sizes} with strides {strides}")
        if _REORDERING in d.attributes and d.enum(_REORDERING):
            raise CallError(NOT_SUPPORTED, "a reordered cuDNN tensor")
        return cls(
            d.integer(_ID), dtype_of(d.enum(_DTYPE)), sizes, strides, d.flag(_VIRTUAL),
            d.flag(_BY_VALUE),
        )  # fmt: skip

    @property
    def overlaps(self) -> bool:
        """Whether elements may share memory, so that it cannot be written to."""
        reach = 0
        for stride, size in sorted(zip(self.strides, self.sizes, strict=True)):
            if size > 1 and stride <= reach:
                return True
            reach += (size - 1) * stride
        return False


def dtype_of(kind: int) -> torch.dtype:
    """From cudnnDataType_t. Raises CallError."""
    found = DTYPES.get(kind)
    if found is None:
        raise CallError(NOT_SUPPORTED, f"cuDNN data type {kind}")
    return found


def compute_dtype(kind: int) -> torch.dtype:
    """What a computation keeps its sums in; less than float is float here."""
    return torch.float64 if dtype_of(kind) is torch.float64 else torch.float32


def check_fit(fits: bool, what: str) -> None:
    """Raises CallError, with what does not fit together."""
    if not fits:
        raise CallError(INVALID_VALUE, f"a cuDNN graph that does not fit: {what}")


def check_virtual(size: int) -> None:
    """Raises CallError for an intermediate result of too many bytes."""
    if size > _MAX_VIRTUAL:
        raise CallError(NOT_SUPPORTED, f"an intermediate result of {size} bytes")


class Values:
    """The tensors of one run: where they are, and what steps have computed so far."""

    def __init__(self, memory: CpuMemory, data: Mapping[int, int | bytes]) -> None:
        self._memory = memory
        self._data = data
        self._made: dict[int, torch.Tensor] = {}

    def read(self, t: Tensor) -> torch.Tensor:
        made = self._made.get(t.number)
        return made if made is not None and t.virtual else self._real(t)

    def write(self, t: Tensor, value: torch.Tensor) -> None:
        if t.virtual:
            self._made[t.number] = value.to(t.dtype).expand(t.sizes)
        else:
            self._real(t).copy_(value)

    def _real(self, t: Tensor) -> torch.Tensor:
        where = self._data.get(t.number)
        if where is None:
            raise CallError(INVALID_VALUE, f"the cuDNN tensor {t.number} was given no data")
        if isinstance(where, int):
            return self._memory.view(where, t.dtype, t.sizes, t.strides)
        if len(where) != prod(t.sizes) * t.dtype.itemsize:
            raise CallError(INVALID_VALUE, f"the cuDNN tensor {t.number} has {len(where)} bytes")
        return torch.frombuffer(bytearray(where), dtype=t.dtype).view(t.sizes)


@dataclass(frozen=True, slots=True)
class Step:
    """``run`` reads and writes these tensors."""

    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    run: Callable[[Values], None]


#: Makes the step of an operation. Raises CallError.
Builder = Callable[[Descriptor], Step]


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps, each after those whose results it reads."""

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, d: Descriptor, builders: Mapping[int, Builder]) -> Graph:
        """Raises CallError for what cannot be computed."""
        if d.kind != _GRAPH:
            raise CallError(INVALID_VALUE, f"a cuDNN descriptor {d.kind} instead of a graph")
        d.only({_HANDLE, _OPERATIONS})
        steps = [_step(operation, builders) for operation in d.children(_OPERATIONS)]
        if not steps:
            raise CallError(INVALID_VALUE, "a cuDNN graph without operations")
        _check_virtual(steps)
        return cls(tuple(_ordered(steps)))

    def run(self, values: Values) -> None:
        for step in self.steps:
            step.run(values)


def _step(operation: Descriptor, builders: Mapping[int, Builder]) -> Step:
    builder = builders.get(operation.kind)
    if builder is None:
        raise CallError(
            NOT_SUPPORTED, f"cuDNN operation {operation.kind} ({_name(operation.kind)})"
        )
    step = builder(operation)
    for t in step.writes:
        if t.by_value or (not t.virtual and t.overlaps):
            raise CallError(NOT_SUPPORTED, f"a result in the cuDNN tensor {t.number} {t.strides}")
    return step


def _check_virtual(steps: Sequence[Step]) -> None:
    """What one step leaves for another has one shape and type, and is made by a step."""
    known: dict[int, Tensor] = {}
    for t in (t for step in steps for t in (*step.reads, *step.writes) if t.virtual):
        check_fit(known.setdefault(t.number, t) == t, f"tensor {t.number} has two descriptions")
        check_virtual(prod(t.sizes) * t.dtype.itemsize)


def _ordered(steps: Sequence[Step]) -> list[Step]:
    """cuDNN takes operations in any order."""
    waiting = {t.number for step in steps for t in step.writes}
    rest, ordered = list(steps), []
    while rest:
        ready = [s for s in rest if not any(t.number in waiting for t in s.reads)]
        if not ready:
            raise CallError(INVALID_VALUE, "a cuDNN graph that goes in circles")
        step = ready[0]
        rest.remove(step)
        ordered.append(step)
        waiting -= {t.number for t in step.writes}
    return ordered


#: cudnnBackendDescriptorType_t of operations that are not computed here, for messages.
_NAMES = {
    14: "GEN_STATS", 20: "BN_FINALIZE_STATISTICS", 23: "BN_BWD_WEIGHTS", 25: "RESAMPLE_FWD",
    26: "RESAMPLE_BWD", 27: "CONCAT", 28: "SIGNAL", 29: "NORM_FORWARD", 30: "NORM_BACKWARD",
    33: "RNG", 35: "PAGED_CACHE_LOAD", 36: "BLOCK_SCALE_QUANTIZE", 37: "BLOCK_SCALE_DEQUANTIZE",
    39: "EXPAND_BAND_MATRIX", 40: "CONTRACT_BAND_MATRIX", 42: "MOE_GROUPED_MATMUL", 43: "SDPA_BWD",
    45: "SOFTMAX", 46: "TRANSPOSE", 47: "SLICE", 48: "MOE_GROUPED_MATMUL_BWD", 49: "ROPE_FWD",
    50: "ROPE_BWD",
}  # fmt: skip


def _name(kind: int) -> str:
    return _NAMES.get(kind, "unknown")
