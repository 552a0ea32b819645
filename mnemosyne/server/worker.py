"""The worker: owns the device and runs every session's calls. Started by the supervisor only.

How this works: the supervisor sends Open with a session's files, which are mapped at the session's
fixed addresses; a Runner then serves it until Close, or until its client breaks the protocol. All
address slots are reserved before anything else, so that nothing of the worker's own lies there.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvloop

from mnemosyne import _native
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.control import (
    Chunk,
    ChunkGone,
    Close,
    Closed,
    Control,
    Journal,
    Open,
    Opened,
    Ready,
    Shutdown,
)
from mnemosyne.server import slots
from mnemosyne.server.devices import Device, create
from mnemosyne.server.journal import Entries
from mnemosyne.server.process import allow_many_files, die_with_parent, log_to_stderr
from mnemosyne.server.runner import Runner
from mnemosyne.server.session import Effects, Layout
from mnemosyne.server.wire import Wire

log = logging.getLogger("mnemosyne")

_RESOLVERS = 4  # threads that read modules


def main(arguments: Sequence[str]) -> int:
    """Runs until the supervisor says Shutdown or hangs up."""
    options = _options(arguments)
    log_to_stderr("mnemosyne worker", options.log_level)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent(options.parent)
    allow_many_files()
    for slot in range(options.slots):
        _reserve(slots.layout(slot, quota=0))
    device = create(options.device, options.threads)
    gc.freeze()  # what start-up made is never garbage
    with device.active():
        uvloop.run(_serve(socket.socket(fileno=options.fd), device, options.memory))
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mnemosyne.server.worker")
    for name in ("fd", "slots", "threads", "memory", "parent"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--log-level", required=True)
    return parser.parse_args(arguments)


def _reserve(place: Layout) -> None:
    _native.reserve(place.device_base, place.device_bytes)
    _native.reserve(place.host_base, place.host_bytes)


async def _serve(sock: socket.socket, device: Device, memory: int) -> None:
    worker = Worker(sock, device)
    worker.say_ready(memory)
    await worker.ended.wait()


class Worker:
    """The sessions of this process. ``ended`` is set when the supervisor wants no more."""

    def __init__(self, sock: socket.socket, device: Device) -> None:
        self._device = device
        self._wire = Wire(sock, self._received, lambda error: self.ended.set())
        self._sessions: dict[int, _Served] = {}
        self._executor = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="modules")
        self.ended = asyncio.Event()

    def say_ready(self, memory: int) -> None:
        d = self._device.describe(memory)
        self._wire.send(
            Ready(d.device, d.memory, d.cuda, d.name, d.uuid, d.properties, d.attributes, [])
        )

    def _received(self, message: Control, fds: list[int]) -> None:
        handler = _FROM_SUPERVISOR.get(type(message))
        if handler is None:
            raise ProtocolError(f"{type(message).__name__} from the supervisor")
        handler(self, message, fds)

    def _open(self, message: Open, fds: list[int]) -> None:
        error = ""
        try:
            self._sessions[message.session] = self._serve(message, *fds)
        except (OSError, ValueError) as reason:
            error = str(reason)
            _unmap(_layout(message))
        for fd in [fds[0], *fds[2:], *(fds[1:2] if error else ())]:
            os.close(fd)
        self._wire.send(Opened(message.session, error))

    def _serve(self, message: Open, channel: int, host: int, *chunks: int) -> _Served:
        """The channel and chunk files are the caller's; the host file is kept."""
        number, place = message.session, _layout(message)
        _native.map_fixed(host, place.host_base, place.host_bytes, 0)
        for (offset, size), fd in zip(message.chunks, chunks, strict=True):
            _native.map_fixed(fd, place.device_base + offset, size, 0)
        effects = Effects(
            chunks=_MappedChunks(number, place.device_base, self._wire),
            release_host=partial(_native.release_memory, host),
            clock=time.perf_counter,
        )
        session = self._device.open(number, place, effects)
        self._device.restore(session, message.chunks, message.journal)
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        lane = _native.Lane(channel, event, self._device.executor(session))
        runner = Runner(
            session, self._device.handlers, lane, event, self._executor,
            publish=lambda entries: self._publish(number, entries),
            broken=lambda text: self._break(number, text),
        )  # fmt: skip
        return _Served(runner, place, host)

    def _publish(self, number: int, entries: Entries) -> None:
        self._wire.send(Journal(number, entries))
        self._wire.flush()

    def _break(self, number: int, text: str) -> None:
        log.error("session %d broke the protocol: %s", number, text)
        reason = f"the server ended this session, {text}"
        self._sessions.pop(number).end(reason)
        self._wire.send(Closed(number, text))

    def _close(self, message: Close, fds: list[int]) -> None:
        if served := self._sessions.pop(message.session, None):
            served.end(message.reason)
        self._wire.send(Closed(message.session, ""))

    def _shutdown(self, message: Shutdown, fds: list[int]) -> None:
        for served in self._sessions.values():
            served.end(message.reason)
        self._sessions.clear()
        self.ended.set()


@dataclass(frozen=True)
class _Served:
    """One session's runner, its place and the file of its host slot."""

    runner: Runner
    place: Layout
    host: int

    def end(self, reason: str) -> None:
        self.runner.close(reason)
        _unmap(self.place)
        os.close(self.host)


def _layout(message: Open) -> Layout:
    return Layout(
        message.device_base, message.device_bytes, message.host_base, message.host_bytes,
        message.staging_bytes, message.quota,
    )  # fmt: skip


def _unmap(place: Layout) -> None:
    _native.unmap_to_reserved(place.device_base, place.device_bytes)
    _native.unmap_to_reserved(place.host_base, place.host_bytes)


@dataclass(frozen=True)
class _MappedChunks:
    """Chunks as files, mapped here and held by the supervisor; implements ``Chunks``."""

    session: int
    base: int
    wire: Wire

    def make(self, offset: int, size: int) -> None:
        fd = _native.create_memory("mnemosyne-chunk", size)
        try:
            _native.map_fixed(fd, self.base + offset, size, 0)
            self.wire.send(Chunk(self.session, offset, size), [fd])
            self.wire.flush()
        finally:
            os.close(fd)

    def drop(self, offset: int, size: int) -> None:
        _native.unmap_to_reserved(self.base + offset, size)
        self.wire.send(ChunkGone(self.session, offset))


_FROM_SUPERVISOR: dict[type[Any], Callable[..., None]] = {
    Open: Worker._open,
    Close: Worker._close,
    Shutdown: Worker._shutdown,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
