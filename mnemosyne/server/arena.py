"""Device memory of one session: allocations inside chunks inside its slot of the address space.

How this works: memory comes in chunks. An allocation that fills one, or that is BIG, gets one of
its own; the others share chunks of 2 to 16 MiB, an eighth of what the session has allocated in
them. A chunk that is wholly free again is given back. Pure: the owner is told of chunks through
``Chunks`` and does the mapping.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Container
from typing import Protocol

from mnemosyne.server.errors import OUT_OF_MEMORY, CallError
from mnemosyne.server.ranges import FreeRanges

ALIGNMENT = 512
MIN_CHUNK = 2 << 20
MAX_CHUNK = 16 << 20
BIG = 16 << 20
SHARE = 8  # what lies unused at the end of the last shared chunk is at most this part of the rest


class Chunks(Protocol):
    """Who makes the memory behind the arena. Offsets count from the start of the slot."""

    def make(self, offset: int, size: int) -> None: ...
    def drop(self, offset: int, size: int) -> None: ...
    def adopt(self, offset: int, size: int, source: int) -> None:
        """The memory at address ``source``, another session's chunk, is here, too."""

    def is_short(self) -> bool:
        """Whether there can be few more: they should be large."""


class Arena:
    """Hands out addresses from ``base`` on; ``quota`` bounds the sum of what it has handed out."""

    def __init__(self, base: int, slot_bytes: int, quota: int, chunks: Chunks) -> None:
        self.base = base
        self.quota = quota
        self.used = 0
        self._small = 0  # bytes of allocations that do not fill chunks
        self._held = 0  # bytes of all chunks but adopted ones
        self._chunks = chunks
        self._slot = FreeRanges()  # of whole chunks
        self._slot.give(base, slot_bytes)
        self._free = FreeRanges()  # inside chunks
        self._chunk_size: dict[int, int] = {}
        self._chunk_starts: list[int] = []  # sorted
        self._size: dict[int, int] = {}  # of allocations, by address
        self._starts: list[int] = []  # of allocations, sorted

    def malloc(self, size: int) -> int:
        """The address of ``size`` bytes. Raises CallError when the quota does not allow them."""
        rounded = _round_up(max(size, 1), ALIGNMENT)
        if self.used + rounded > self.quota:
            raise CallError(OUT_OF_MEMORY, self._refusal(size))
        pointer = self._free.take(rounded) if self._shares(rounded) else None
        if pointer is None:
            pointer = self._take_new(rounded)
        self._note(pointer, rounded)
        return pointer

    def free(self, pointer: int) -> bool:
        """Frees an allocation by its address; False when there is none."""
        size = self._size.pop(pointer, None)
        if size is None:
            return False
        del self._starts[bisect_right(self._starts, pointer) - 1]
        self._count(size, -1)
        chunk = self._chunk_of(pointer)
        length = self._chunk_size[chunk]
        if self._free.give(pointer, size, chunk, chunk + length) == (chunk, length):
            self._free.take_at(chunk, length)
            self._held -= length
            self._drop(chunk, length)
        return True

    def owns(self, pointer: int, size: int) -> bool:
        """Whether all these bytes lie inside one allocation."""
        at = bisect_right(self._starts, pointer) - 1
        if at < 0:
            return False
        start = self._starts[at]
        return pointer + size <= start + self._size[start]

    def size_of(self, pointer: int) -> int:
        """Bytes held by the allocation at this address."""
        return self._size[pointer]

    def is_allocation(self, pointer: int) -> bool:
        """Whether an allocation begins here."""
        return pointer in self._size

    def chunks(self) -> list[tuple[int, int]]:
        """(address, size) of every chunk."""
        return list(self._chunk_size.items())

    def chunk_at(self, pointer: int) -> tuple[int, int]:
        """(address, size) of the chunk around an allocation."""
        start = self._chunk_of(pointer)
        return start, self._chunk_size[start]

    def adopt(self, length: int, source: int) -> int:
        """Another session's chunk at ``source``: its address here. The quota counts it whole."""
        if self.used + length > self.quota:
            raise CallError(OUT_OF_MEMORY, self._refusal(length))
        start = self._place(length, lambda offset: self._chunks.adopt(offset, length, source))
        self._add_chunk(start, length)
        self.used += length
        return start

    def leave(self, start: int) -> None:
        """Gives an adopted chunk back."""
        self.used -= self._chunk_size[start]
        self._drop(start, self._chunk_size[start])

    def restore(
        self, chunks: list[list[int]], allocations: dict[int, int], adopted: Container[int] = ()
    ) -> None:
        """Takes over memory that exists: chunks as [offset, size], allocations by address.

        ``adopted``: addresses of the chunks that are another session's.

        Raises ValueError when the two do not fit together.
        """
        for offset, size in chunks:
            if not self._slot.take_at(self.base + offset, size):
                raise ValueError("a chunk overlaps another one")
            self._add_chunk(self.base + offset, size)
            if self.base + offset in adopted:
                self.used += size
            else:
                self._open(self.base + offset, size)
        for pointer, size in allocations.items():
            if not self._free.take_at(pointer, size):
                raise ValueError("an allocation lies in no chunk")
            self._note(pointer, size)

    def _take_new(self, size: int) -> int:
        length = _round_up(size, MIN_CHUNK)
        if self._shares(size):
            share = _round_up(self._small // SHARE, MIN_CHUNK)
            wanted = MAX_CHUNK if self._chunks.is_short() else min(share, MAX_CHUNK)
            length = max(length, min(wanted, self._room()))
        if self._held + length > 2 * self.quota + MAX_CHUNK:
            text = f"{size} bytes do not fit between the session's allocations ({self._fill()})"
            raise CallError(OUT_OF_MEMORY, text)
        start = self._place(length, lambda offset: self._chunks.make(offset, length))
        self._add_chunk(start, length)
        self._open(start, length)
        self._free.take_at(start, size)
        return start

    def _shares(self, size: int) -> bool:
        return _is_odd(size) or (size < BIG and self._chunks.is_short())

    def _place(self, length: int, fill: Callable[[int], None]) -> int:
        """Finds room for a chunk, which ``fill`` puts at its offset."""
        start = self._slot.take(length)
        if start is None:
            raise CallError(OUT_OF_MEMORY, f"no address range of {length} bytes is left")
        try:
            fill(start - self.base)
        except OSError as error:
            self._slot.give(start, length)
            text = f"the system has no memory for {length} bytes more ({error.strerror})"
            raise CallError(OUT_OF_MEMORY, text) from None
        except CallError:
            self._slot.give(start, length)
            raise
        return start

    def _room(self) -> int:
        return _round_up(self.quota - self.used, MIN_CHUNK)

    def _add_chunk(self, start: int, length: int) -> None:
        insort(self._chunk_starts, start)
        self._chunk_size[start] = length

    def _open(self, start: int, length: int) -> None:
        """Allocations may lie in this chunk."""
        self._held += length
        self._free.give(start, length, start, start + length)

    def _drop(self, start: int, length: int) -> None:
        del self._chunk_size[start]
        self._chunk_starts.remove(start)
        self._slot.give(start, length)
        self._chunks.drop(start - self.base, length)

    def _note(self, pointer: int, size: int) -> None:
        self._size[pointer] = size
        insort(self._starts, pointer)
        self._count(size, 1)

    def _count(self, size: int, times: int) -> None:
        self.used += times * size
        if _is_odd(size):
            self._small += times * size

    def _chunk_of(self, pointer: int) -> int:
        return self._chunk_starts[bisect_right(self._chunk_starts, pointer) - 1]

    def _refusal(self, size: int) -> str:
        return f"{size} bytes are more than is left of the quota ({self._fill()})"

    def _fill(self) -> str:
        return f"{self.used} of {self.quota} used"


def _is_odd(size: int) -> bool:
    """Whether it does not fill chunks; PyTorch's allocator asks for whole ones."""
    return size < BIG and size % MIN_CHUNK != 0


def _round_up(size: int, unit: int) -> int:
    return (size + unit - 1) // unit * unit
