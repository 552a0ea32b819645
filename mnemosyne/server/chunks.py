"""The chunks of device memory that sessions have: made by the worker, held by the supervisor.

The file of each is open in the supervisor, and while a session moves to another worker its files
are twice as many. So chunks are counted, here in the worker.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from mnemosyne.protocol.control import Chunk, ChunkGone, Control
from mnemosyne.server.devices import ChunkMemory
from mnemosyne.server.errors import OUT_OF_MEMORY, CallError

_OTHER_FILES = 512  # that the supervisor has open
_FEWEST = 64


class Budget:
    """``files``: how many this process, and so the supervisor, may have open."""

    def __init__(self, files: int) -> None:
        self._files = files
        spare = max(files - _OTHER_FILES, _FEWEST)
        self._most_each = spare // 4
        self._most = spare - self._most_each
        self._counts: Counter[int] = Counter()  # by session

    def take(self, session: int, count: int = 1) -> None:
        """Raises CallError when there would be too many."""
        here, all_ = self._counts[session] + count, self._counts.total() + count
        if here > self._most_each or all_ > self._most:
            text = f"the memory of the clients is in {all_ - count} pieces, {here - count} of them"
            limit = (
                f"the limit of open files, {self._files}, allows no more; raise it for the server"
            )
            raise CallError(OUT_OF_MEMORY, f"{text} this client's, and {limit} (ulimit -Hn)")
        self._counts[session] = here

    def give_back(self, session: int) -> None:
        self._counts[session] -= 1

    def forget(self, session: int) -> None:
        """It has none any more."""
        del self._counts[session]

    def is_short(self, session: int) -> bool:
        """Whether it should rather have few large ones."""
        return self._counts[session] > self._most_each // 2


@dataclass(frozen=True)
class HeldChunks:
    """Those of one session, from ``base`` on; implements ``Chunks``."""

    session: int
    base: int
    memory: ChunkMemory
    budget: Budget
    say: Callable[[Control, list[int]], None]

    def is_short(self) -> bool:
        return self.budget.is_short(self.session)

    def make(self, offset: int, size: int) -> None:
        self._hold(offset, size, lambda: self.memory.make(self.base + offset, size))

    def adopt(self, offset: int, size: int, source: int) -> None:
        def share() -> int:
            fd = self.memory.share(source)
            try:
                self.memory.adopt(fd, self.base + offset, size)
            except BaseException:
                os.close(fd)
                raise
            return fd

        self._hold(offset, size, share)

    def drop(self, offset: int, size: int) -> None:
        self.memory.drop(self.base + offset, size)
        self.budget.give_back(self.session)
        self.say(ChunkGone(self.session, offset), [])

    def _hold(self, offset: int, size: int, file_of: Callable[[], int]) -> None:
        self.budget.take(self.session)
        try:
            fd = file_of()
        except BaseException:
            self.budget.give_back(self.session)
            raise
        try:
            self.say(Chunk(self.session, offset, size), [fd])
        finally:
            os.close(fd)
