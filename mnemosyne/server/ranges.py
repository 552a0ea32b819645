"""Free ranges of an address space: best fit, with neighbours merged on return.

How this works: a free range is found by its start, by its end (to merge) and in a list sorted by
size (to fit). Ranges never merge across the bounds given with them, the borders of a chunk.
"""

from __future__ import annotations

from bisect import bisect_left, insort

NO_BOUND = 1 << 64


class FreeRanges:
    """Free ranges in bytes; starts empty, ``give`` adds to it."""

    def __init__(self) -> None:
        self._size: dict[int, int] = {}  # by start
        self._start: dict[int, int] = {}  # by end
        self._fits: list[tuple[int, int]] = []  # (size, start), sorted

    def take(self, size: int) -> int | None:
        """The start of ``size`` bytes that are free no more; None when no range is long enough."""
        at = bisect_left(self._fits, (size, 0))
        if at == len(self._fits):
            return None
        start = self._fits[at][1]
        self._cut(start, start, size)
        return start

    def take_at(self, start: int, size: int) -> bool:
        """Takes exactly this range; False when any of it is not free."""
        if self._size.get(start, 0) >= size:
            self._cut(start, start, size)
            return True
        for whole, length in self._size.items():
            if whole <= start and start + size <= whole + length:
                self._cut(whole, start, size)
                return True
        return False

    def give(self, start: int, size: int, low: int = 0, high: int = NO_BOUND) -> tuple[int, int]:
        """Makes a range free; returns (start, size) of the free range it is now part of."""
        end = start + size
        if start > low and start in self._start:
            start = self._start[start]
            self._remove(start)
        if end < high and end in self._size:
            end += self._remove(end)
        self._add(start, end - start)
        return start, end - start

    def _cut(self, whole: int, start: int, size: int) -> None:
        end = whole + self._remove(whole)
        if whole < start:
            self._add(whole, start - whole)
        if start + size < end:
            self._add(start + size, end - start - size)

    def _add(self, start: int, size: int) -> None:
        self._size[start] = size
        self._start[start + size] = start
        insort(self._fits, (size, start))

    def _remove(self, start: int) -> int:
        size = self._size.pop(start)
        del self._start[start + size]
        del self._fits[bisect_left(self._fits, (size, start))]
        return size
