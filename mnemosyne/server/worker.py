"""The worker: owns the device and runs every session's calls. Started by the supervisor only.

How this works: the supervisor sends Open with a session's files, which are mapped at the session's
fixed addresses; a Runner then serves it until Close, or until its client breaks the protocol. All
address slots are reserved before anything else, so that nothing of the worker's own lies there.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvloop

from mnemosyne import _native
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.control import (
    Close,
    Closed,
    Control,
    Ending,
    Journal,
    Lost,
    Open,
    Opened,
    Ready,
    Refusal,
    Shutdown,
    Start,
    encode,
)
from mnemosyne.server import slots
from mnemosyne.server.chunks import Budget, HeldChunks
from mnemosyne.server.devices import Device, create
from mnemosyne.server.errors import CallError
from mnemosyne.server.exports import Exports
from mnemosyne.server.journal import Entries
from mnemosyne.server.process import (
    allow_many_files,
    die_with_parent,
    log_to_stderr,
    open_files,
)
from mnemosyne.server.runner import Runner
from mnemosyne.server.session import DeviceLost, Effects, Layout, Session
from mnemosyne.server.wire import Wire

log = logging.getLogger("mnemosyne")

_PROGRESS_SECONDS = 1.0
_CANNOT_SERVE = 3  # exit status


def main(arguments: Sequence[str]) -> int:
    """Runs until the supervisor says Shutdown or hangs up."""
    options = _options(arguments)
    log_to_stderr("mnemosyne worker", options.log_level)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent(options.parent)
    faulthandler.enable()
    allow_many_files()
    places = [slots.layout(slot, quota=0) for slot in range(options.slots)]
    for place in places:
        _native.reserve(place.host_base, place.host_bytes)
    sock = socket.socket(fileno=options.fd)
    try:
        device = create(options.device, options.threads)
        if not told_to_start(sock):
            return 0
        started = time.perf_counter()
        device.start()
        device.chunks.reserve(places)
        device.enter()
        ready = _ready(device, options.memory)
    except (OSError, RuntimeError, ValueError, CallError) as error:
        return _refuse(
            sock, f"device {options.device} cannot be used: {str(error).splitlines()[0]}"
        )
    log.debug("took hold of the device in %.3f s", time.perf_counter() - started)
    gc.freeze()  # what start-up made is never garbage
    uvloop.run(_serve(sock, device, ready))
    return 0


def _refuse(sock: socket.socket, reason: str) -> int:
    log.error("%s", reason)
    with suppress(OSError):  # there may be no supervisor any more
        sock.sendall(encode(Refusal(reason)))
    sock.detach()  # or the supervisor sees its end first, and kills a process that is ending
    return _CANNOT_SERVE


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mnemosyne.server.worker")
    for name in ("fd", "slots", "threads", "memory", "parent"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--log-level", required=True)
    return parser.parse_args(arguments)


def told_to_start(sock: socket.socket) -> bool:
    """Waits for Start, the first message, and takes no more; False when there will be none."""
    start = encode(Start())
    return sock.recv(len(start), socket.MSG_WAITALL) == start


def _ready(device: Device, memory: int) -> Ready:
    d = device.describe(memory)
    return Ready(
        d.device, d.memory, d.cuda, d.name, d.uuid, d.properties, d.attributes, d.libraries
    )


async def _serve(sock: socket.socket, device: Device, ready: Ready) -> None:
    worker = Worker(sock, device)
    worker.say(ready)
    await worker.ended.wait()


class Worker:
    """The sessions of this process. ``ended`` is set when the supervisor wants no more."""

    def __init__(self, sock: socket.socket, device: Device) -> None:
        self._device = device
        self._wire = Wire(sock, self._received, self._hung_up)
        self._journals: dict[int, Entries] = {}  # of sessions that are yet to be opened
        self._sessions: dict[int, _Served] = {}
        self._exports = Exports()
        self._budget = Budget(open_files())
        self._loop = asyncio.get_running_loop()
        # A thread for each session: none waits for another one's work on the device.
        self._deferred = ThreadPoolExecutor(slots.MAX_SLOTS, "deferred", device.enter)
        self._enders = ThreadPoolExecutor(slots.MAX_SLOTS, "enders", device.enter)
        self._ending: dict[int, asyncio.Task[None]] = {}
        self.ended = asyncio.Event()
        if device.fault_fd is not None:
            self._loop.add_reader(device.fault_fd, self._lost)

    def say(self, message: Control) -> None:
        """Sends without delay."""
        self._wire.send(message)
        self._wire.flush()

    def _hung_up(self, error: ProtocolError | None) -> None:
        if error:
            log.error("the supervisor's messages make no sense: %s", error)
        self.ended.set()

    def _received(self, message: Control, fds: list[int]) -> None:
        handler = _FROM_SUPERVISOR.get(type(message))
        if handler is None:
            raise ProtocolError(f"{type(message).__name__} from the supervisor")
        handler(self, message, fds)

    def _journal(self, message: Journal, fds: list[int]) -> None:
        self._journals.setdefault(message.session, []).extend(message.entries)

    def _open(self, message: Open, fds: list[int]) -> None:
        error = ""
        started = time.perf_counter()
        try:
            self._sessions[message.session] = self._start(message, *fds)
            log.debug("session %d open in %.3f s", message.session, time.perf_counter() - started)
        except (OSError, RuntimeError, ValueError, CallError) as reason:
            error = str(reason)
        except DeviceLost as lost:
            return self._device.lost(lost.code)  # another worker will be asked
        except Exception:
            log.exception("bug: session %d cannot be opened", message.session)
            error = "the server failed; its log has the details"
        for fd in [fds[0], *fds[2:], *(fds[1:2] if error else ())]:
            os.close(fd)
        self._wire.send(Opened(message.session, error))

    def _start(self, message: Open, channel: int, host: int, *chunks: int) -> _Served:
        """The channel and chunk files are the caller's; the host file is kept."""
        place = _layout(message)
        with ExitStack() as undo:
            _native.map_fixed(host, place.host_base, place.host_bytes, 0)
            undo.callback(_native.unmap_to_reserved, place.host_base, place.host_bytes)
            self._budget.take(message.session, len(chunks))
            undo.callback(self._budget.forget, message.session)
            for (offset, size), fd in zip(message.chunks, chunks, strict=True):
                self._device.chunks.adopt(fd, place.device_base + offset, size)
                undo.callback(self._device.chunks.drop, place.device_base + offset, size)
            served = self._serve(message, place, channel, host)
            undo.pop_all()
        return served

    def _serve(self, message: Open, place: Layout, channel: int, host: int) -> _Served:
        number = message.session
        effects = Effects(
            chunks=HeldChunks(
                number, place.device_base, self._device.chunks, self._budget, self.say_with
            ),
            release_host=partial(_native.release_memory, host),
            clock=time.perf_counter,
            exports=self._exports,
        )
        with ExitStack() as undo:
            session = self._device.open(number, place, effects)
            undo.callback(self._device.close, session)
            self._device.restore(session, message.chunks, self._journals.pop(number, []))
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, event)
            lane = _native.Lane(channel, event, self._device.executor(session))
            undo.pop_all()
        runner = Runner(
            session, self._device.handlers, lane, event, self._deferred,
            publish=lambda entries: self.say(Journal(number, entries)),
            broken=lambda text: self._break(number, text),
            lost=lambda error: self._device.lost(error.code),
        )  # fmt: skip
        return _Served(session, runner, place, host)

    def say_with(self, message: Control, fds: list[int]) -> None:
        """Sends a message that file descriptors ride along with; they may be closed afterwards."""
        self._wire.send(message, fds)
        self._wire.flush()

    def _break(self, number: int, text: str) -> None:
        log.error("session %d broke the protocol: %s", number, text)
        self._end(number, f"the server ended this session, {text}", text)

    def _close(self, message: Close, fds: list[int]) -> None:
        self._journals.pop(message.session, None)
        self._end(message.session, message.reason, "")

    def _end(self, number: int, reason: str, said: str) -> None:
        if number in self._ending:
            return  # it says Closed itself
        served = self._sessions.pop(number, None)
        if served is None:
            return self._wire.send(Closed(number, said))
        served.runner.stop()
        self._exports.remove_all(served.session)
        task = self._loop.create_task(self._finish(number, served, reason, said))
        self._ending[number] = task
        task.add_done_callback(lambda _: self._ending.pop(number))

    async def _finish(self, number: int, served: _Served, reason: str, said: str) -> None:
        """Ends a session whose frames are executed no more; its memory is free afterwards."""
        telling = self._loop.create_task(self._tell_progress(number, served))
        try:
            await self._loop.run_in_executor(self._enders, served.runner.close, reason)
            await served.runner.drain()
            await self._loop.run_in_executor(self._enders, self._give_back, served)
        except DeviceLost as error:
            return self._device.lost(error.code)  # nothing is left to give back
        except (
            Exception
        ):  # what it holds cannot be given to another one: the supervisor waits, then acts
            log.exception("bug: session %d did not end in order", number)
            return
        finally:
            telling.cancel()
        self._wire.send(Closed(number, said))

    async def _tell_progress(self, number: int, served: _Served) -> None:
        """What a dead client has queued may take long, and is no reason to take this for hung."""
        before = self._device.progress(served.session)
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            if (now := self._device.progress(served.session)) != before:
                self._wire.send(Ending(number))
            before = now

    def _give_back(self, served: _Served) -> None:
        """May take as long as the session's work on the device."""
        self._device.close(served.session)
        for address, size in served.session.arena.chunks():
            self._device.chunks.drop(address, size)
        self._budget.forget(served.session.number)
        _native.unmap_to_reserved(served.place.host_base, served.place.host_bytes)
        os.close(served.host)

    def _lost(self) -> None:
        """The supervisor starts another worker; this one only waits for its end."""
        assert self._device.fault_fd is not None
        self._loop.remove_reader(self._device.fault_fd)
        fault = self._device.fault()
        log.error("the device is lost: %s", fault.text)
        for served in self._sessions.values():  # or a frame may be half executed at our end
            served.runner.stop()
        self.say(Lost(fault.code, fault.text, fault.suspects))

    def _shutdown(self, message: Shutdown, fds: list[int]) -> None:
        for served in self._sessions.values():
            served.runner.stop()
            served.runner.close(message.reason)
        self._sessions.clear()
        self.ended.set()


@dataclass(frozen=True)
class _Served:
    """One session, its runner, its place and the file of its host slot."""

    session: Session
    runner: Runner
    place: Layout
    host: int


def _layout(message: Open) -> Layout:
    return Layout(
        message.device_base, message.device_bytes, message.host_base, message.host_bytes,
        message.staging_bytes, message.quota,
    )  # fmt: skip


_FROM_SUPERVISOR: dict[type[Any], Callable[..., None]] = {
    Journal: Worker._journal,
    Open: Worker._open,
    Close: Worker._close,
    Shutdown: Worker._shutdown,
}

if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread may still be waiting for the device
