"""The memory of one session on the CPU device, as tensors and as bytes.

How this works: every chunk, and the host slot, is a mapped file at its fixed address. One base
tensor per region and type covers all of it; a view is a strided window of that tensor, so that
torch's own bounds check keeps it inside the region. Regions belong to one session.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence

import torch

from mnemosyne.server.errors import ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, CallError

_INT64 = 1 << 63


class IllegalAddress(CallError):
    """A pointer, or memory reached from it, is not the session's."""

    def __init__(self, pointer: int, size: int = 0) -> None:
        reach = f" ({size} bytes)" if size else ""
        super().__init__(ILLEGAL_ADDRESS, f"illegal memory access at {pointer:#x}{reach}")


class _Region:
    """Mapped memory from ``start`` to ``end``."""

    __slots__ = ("bases", "end", "raw", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start = start
        self.end = start + size
        buffer = (ctypes.c_char * size).from_address(start)
        self.raw = torch.frombuffer(buffer, dtype=torch.uint8)
        self.bases: dict[torch.dtype, tuple[torch.Tensor, int]] = {}

    def base(self, dtype: torch.dtype) -> tuple[torch.Tensor, int]:
        """The whole region as ``dtype``, and the size of an element."""
        found = self.raw.view(dtype), dtype.itemsize
        self.bases[dtype] = found
        return found


class CpuMemory:
    """Implements ``Memory`` of the kernel families, and checked access to bytes."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[_Region] = []
        self._last: _Region | None = None

    def add(self, start: int, size: int) -> None:
        """A range was mapped; it is a multiple of 2 MiB."""
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._regions.insert(at, _Region(start, size))

    def remove(self, start: int) -> None:
        """The range is about to be unmapped."""
        at = self._starts.index(start)
        del self._starts[at], self._regions[at]
        self._last = None

    def view(
        self, ptr: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int]
    ) -> torch.Tensor:
        """A tensor over memory at ``ptr``; ``sizes`` and ``strides`` in elements."""
        region = self._last
        if region is None or not region.start <= ptr < region.end:
            region = self._find(ptr)
            if region is None:
                return _nowhere(ptr, dtype, sizes)
        base, itemsize = region.bases.get(dtype) or region.base(dtype)
        offset, odd = divmod(ptr - region.start, itemsize)
        if odd:
            raise CallError(MISALIGNED_ADDRESS, f"{ptr:#x} is not aligned to {itemsize} bytes")
        try:
            return torch.as_strided(base, sizes, strides, offset)
        except (RuntimeError, ValueError):
            raise IllegalAddress(ptr) from None
        except TypeError:
            if max(map(abs, (*sizes, *strides))) < _INT64:
                raise
            raise IllegalAddress(ptr) from None

    def check(self, ptr: int, size: int) -> None:
        """Raises IllegalAddress unless all these bytes are mapped memory of the session."""
        region = self._last
        if region is None or not region.start <= ptr < region.end:
            region = self._find(ptr)
        if region is None or ptr + size > region.end:
            raise IllegalAddress(ptr, size)

    def read(self, ptr: int, size: int) -> bytes:
        """The bytes at an address."""
        self.check(ptr, size)
        return ctypes.string_at(ptr, size)

    def write(self, ptr: int, data: bytes) -> None:
        """Sets the bytes at an address."""
        self.check(ptr, len(data))
        ctypes.memmove(ptr, data, len(data))

    def copy(self, dst: int, src: int, size: int) -> None:
        """Copies bytes; the ranges may overlap."""
        self.check(dst, size)
        self.check(src, size)
        ctypes.memmove(dst, src, size)

    def fill(self, ptr: int, value: int, size: int) -> None:
        """Sets bytes to the low byte of ``value``."""
        self.check(ptr, size)
        ctypes.memset(ptr, value & 0xFF, size)

    def _find(self, ptr: int) -> _Region | None:
        at = bisect_right(self._starts, ptr) - 1
        if at < 0 or ptr >= self._regions[at].end:
            return None
        self._last = self._regions[at]
        return self._last


def _nowhere(ptr: int, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
    """An empty tensor may point anywhere; nothing else may point outside all regions."""
    if 0 in sizes and max(sizes) < _INT64:
        return torch.empty(tuple(sizes), dtype=dtype)
    raise IllegalAddress(ptr)
