"""What the supervisor knows and holds of one session: enough to give it to another worker."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum

from mnemosyne import _native
from mnemosyne.protocol.control import Control, Journal, Open, Ready, Welcome
from mnemosyne.server.journal import KeptJournal
from mnemosyne.server.listener import Peer
from mnemosyne.server.session import Layout
from mnemosyne.server.slots import layout


class State(Enum):
    """The life of a session, as the supervisor sees it."""

    OPENING = "opening"  # the worker has been asked to serve it
    RUNNING = "running"
    CLOSING = "closing"  # the client is gone; the worker has been asked to end it
    LATE = "closing late"  # the worker is slow to end it; its place is free for another client
    ENDED = "ended"  # its files are closed


@dataclass(eq=False)
class Client:
    """One session. File descriptors in here are owned, and closed by ``release``."""

    number: int
    slot: int
    peer: Peer
    layout: Layout
    started: float
    channel: int
    host: int
    pidfd: int
    state: State = State.OPENING
    chunks: dict[int, tuple[int, int]] = field(default_factory=dict)  # offset: (size, fd)
    journal: KeptJournal = field(default_factory=KeptJournal)
    hung: asyncio.TimerHandle | None = None  # its worker is taken for hung then
    strikes: int = 0  # workers that died while they opened it

    def __str__(self) -> str:
        return (
            f"session {self.number} (pid {self.peer.pid}, {self.peer.hello.program.strip() or '?'})"
        )

    @property
    def counts(self) -> bool:
        """Whether it takes one of the places for clients."""
        return self.state is not State.LATE

    def messages(self) -> Iterator[tuple[Control, tuple[int, ...]]]:
        """What a worker needs to serve it, with the fds that ride along."""
        for entries in self.journal.parts():
            yield Journal(self.number, entries), ()
        at, chunks = self.layout, sorted(self.chunks.items())
        message = Open(
            self.number, self.slot, at.device_base, at.device_bytes, at.host_base, at.host_bytes,
            at.staging_bytes, at.quota, self.peer.hello.priority,
            [[offset, size] for offset, (size, _) in chunks],
        )  # fmt: skip
        yield message, (self.channel, self.host, *(fd for _, (_, fd) in chunks))

    def status_row(self, now: float) -> list[object]:
        """One row of the Status control message."""
        hello, seconds = self.peer.hello, round(now - self.started, 1)
        used = self._memory_used()
        return [self.number, self.peer.pid, hello.program, used, self.layout.quota, seconds]

    def _memory_used(self) -> int:
        """Bytes that count against its quota: allocations, and chunks of others that are open."""
        opened = {chunk - self.layout.device_base for _, chunk, *_ in self.journal.values("import")}
        sizes = [size for offset, (size, _) in self.chunks.items() if offset in opened]
        return sum(sizes, start=sum(map(int, self.journal.values("malloc"))))

    def hold_chunk(self, offset: int, size: int, fd: int) -> None:
        self.chunks[offset] = (size, fd)

    def drop_chunk(self, offset: int) -> None:
        _, fd = self.chunks.pop(offset)
        os.close(fd)

    def release(self) -> None:
        """Closes everything; what nobody else holds is given back to the system."""
        self.state = State.ENDED
        if self.hung:
            self.hung.cancel()
        self.peer.wire.close()
        for fd in (self.channel, self.host, self.pidfd, *(fd for _, fd in self.chunks.values())):
            os.close(fd)
        self.chunks.clear()


def new_client(number: int, slot: int, peer: Peer, quota: int) -> Client:
    """A session with files of its own. Raises OSError or RuntimeError, and leaves none."""
    place = layout(slot, quota)
    with ExitStack() as undo:
        files = []
        for make in (
            _native.create_channel,
            lambda: _native.create_memory("mnemosyne-host", place.host_bytes),
            lambda: os.pidfd_open(peer.pid),
        ):
            files.append(make())
            undo.callback(os.close, files[-1])
        undo.pop_all()
    channel, host, pidfd = files
    return Client(number, slot, peer, place, time.monotonic(), channel, host, pidfd)


def welcome(ready: Ready, client: Client | None, quota: int) -> Welcome:
    """The answer to Hello. With ``client`` None it is to a probe, which takes no slot."""
    at = client.layout if client else None
    place = (
        (at.device_base, at.device_bytes, at.host_base, at.host_bytes, at.staging_bytes)
        if at
        else (0, 0, 0, 0, 0)
    )
    return Welcome(
        client.number if client else 0, *place, quota,
        ready.cuda, ready.name, ready.uuid, ready.properties, ready.attributes,
    )  # fmt: skip
