"""Pinned host memory of one session: pages of its host slot, behind the client's staging area."""

from __future__ import annotations

from collections.abc import Callable

from mnemosyne.server.errors import INVALID_VALUE, OUT_OF_MEMORY, CallError
from mnemosyne.server.ranges import FreeRanges

PAGE = 4096


class HostMemory:
    """Offsets in the host slot. ``release`` gives the pages of a freed range to the system."""

    def __init__(self, staging: int, size: int, release: Callable[[int, int], None]) -> None:
        self.size = size
        self._release = release
        self._free = FreeRanges()
        self._free.give(staging, size - staging)
        self._taken: dict[int, int] = {}

    def alloc(self, size: int) -> int:
        """The offset of ``size`` bytes. Raises CallError when the slot is full."""
        rounded = -(-max(size, 1) // PAGE) * PAGE
        offset = self._free.take(rounded)
        if offset is None:
            raise CallError(OUT_OF_MEMORY, f"no room for {size} bytes of pinned memory")
        self._taken[offset] = rounded
        return offset

    def free(self, offset: int) -> None:
        """Frees by offset. Raises CallError when nothing was allocated there."""
        size = self.size_of(offset)
        del self._taken[offset]
        self._release(offset, size)
        self._free.give(offset, size)

    def size_of(self, offset: int) -> int:
        """Bytes held by the allocation at this offset. Raises CallError when there is none."""
        size = self._taken.get(offset)
        if size is None:
            raise CallError(INVALID_VALUE, f"no pinned memory starts at offset {offset}")
        return size

    def offsets(self) -> list[int]:
        """Where allocations start."""
        return list(self._taken)

    def restore(self, allocations: dict[int, int]) -> None:
        """Takes over allocations (size by offset). Raises ValueError when they do not fit."""
        for offset, size in allocations.items():
            if not self._free.take_at(offset, size):
                raise ValueError("pinned memory overlaps")
            self._taken[offset] = size
