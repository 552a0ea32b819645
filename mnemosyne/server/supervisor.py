"""The supervisor: gives clients their slots, holds what must outlive a worker, restarts the worker.

It never touches CUDA and never imports torch. How this works: a client that attaches becomes a
``Client``; its state says who is to act next (see ``State``). Messages of the worker are looked up
in a table. A client ends when its process dies or its control socket closes; the worker then ends
the session and says Closed. Should the worker die instead, sessions with nothing in flight are
opened again in the next one, the others are marked dead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mnemosyne import _native
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.control import (
    Chunk,
    ChunkGone,
    Close,
    Closed,
    Control,
    Ending,
    Journal,
    Lost,
    Opened,
    Ready,
    Refusal,
    Shutdown,
    Status,
)
from mnemosyne.server import versions
from mnemosyne.server.client import Client, State, new_client, welcome
from mnemosyne.server.listener import Peer
from mnemosyne.server.opening import Opening
from mnemosyne.server.slots import why_no_quota
from mnemosyne.server.workerprocess import Plan, WorkerProcess

log = logging.getLogger("mnemosyne")

_CLOSE_SECONDS = 1.5  # until a session that ends slowly gives up its place
_HUNG_SECONDS = 10.0  # without progress, until its worker is taken for hung
_MAX_DEATHS, _DEATHS_SECONDS = 3, 10.0
_SHUTDOWN_SECONDS = 1.0
_LAST_WORDS_SECONDS = 0.01  # until a frozen worker certainly says no more
_BURIAL_SECONDS = 0.5  # after the next one is ready
_KEEPS_SPARE = ("cuda",)  # devices that another worker can take over quickly


class Supervisor:
    """Serves until ``finished`` is set; its result is the exit code."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._clients: dict[int, Client] = {}  # by session number
        self._next_number = 1
        self._waiting: list[Peer] = []  # until the worker is ready
        self._ready: Ready | None = None
        self._deaths: deque[float] = deque(maxlen=_MAX_DEATHS + 1)
        self._stopping = False
        self._device_lost = False
        self._refusal = ""  # of a worker that cannot serve; its log has it
        self._serving = asyncio.Event()
        self.finished: asyncio.Future[int] = self._loop.create_future()
        self._memory = 0  # bytes for clients
        self._spare: WorkerProcess | None = None  # has done all it can without the device
        self._frozen: list[WorkerProcess] = []  # have lost the device
        self._worker = self._start_worker()
        self._opening = Opening(lambda message, fds: self._worker.send(message, fds), self._abandon)

    # Clients

    def greeted(self, peer: Peer) -> None:
        """A peer has said Hello."""
        if self._ready is None:
            peer.ended = lambda: self._waiting.remove(peer)
            return self._waiting.append(peer)
        purpose = _PURPOSES.get(peer.hello.purpose)
        if purpose is None:
            return peer.refuse(f"no purpose of a connection is called {peer.hello.purpose!r}")
        if reason := versions.mismatch(peer.hello.libraries, self._ready.libraries):
            log.warning("refused pid %d (%s): %s", peer.pid, peer.hello.program, reason)
            return peer.refuse(reason)
        purpose(self, peer, self._ready)

    def _probe(self, peer: Peer, ready: Ready) -> None:
        peer.answer(welcome(ready, None, self._quota()))

    def _status(self, peer: Peer, ready: Ready) -> None:
        rows = [client.status_row(time.monotonic()) for client in self._clients.values()]
        peer.answer(Status(ready.device, self._plan.clients, rows))

    def _attach(self, peer: Peer, ready: Ready) -> None:
        reason = self._why_not(peer)
        try:
            client = None if reason else self._new_client(peer)
        except (OSError, RuntimeError) as error:
            reason = f"the server cannot make a session's memory: {error}"
            client = None
        if client is None:
            log.warning("refused pid %d (%s): %s", peer.pid, peer.hello.program, reason)
            return peer.refuse(reason)
        self._clients[client.number] = client
        self._loop.add_reader(client.pidfd, self._end, client, "its process has ended")
        peer.ended = lambda: self._end(client, "it closed its connection")
        self._opening.add(client)

    def _why_not(self, peer: Peer) -> str:
        counted = [client for client in self._clients.values() if client.counts]
        if len(counted) >= self._plan.clients:
            pids = ", ".join(str(client.peer.pid) for client in counted)
            return (
                f"all {self._plan.clients} client slots are in use (pids {pids}); "
                "start the server with a larger --clients"
            )
        if reason := why_no_quota(peer.hello.memory, self._quota()):
            return reason
        return "" if self._free_slot() is not None else "every address slot is still in use"

    def _quota(self) -> int:
        return self._plan.quota or self._memory // self._plan.clients

    def _free_slot(self) -> int | None:
        taken = {client.slot for client in self._clients.values()}
        return next((s for s in range(self._plan.worker.slots) if s not in taken), None)

    def _new_client(self, peer: Peer) -> Client:
        slot = self._free_slot()
        assert slot is not None
        number, self._next_number = self._next_number, self._next_number + 1
        return new_client(number, slot, peer, peer.hello.memory or self._quota())

    def _end(self, client: Client, reason: str) -> None:
        """The client is gone; the worker is to end its session.

        It may have ended meanwhile, and the numbers of its files may be another client's by now.
        """
        if client.state not in (State.OPENING, State.RUNNING):
            return
        client.state = State.CLOSING
        log.info("%s ends: %s", client, reason)
        self._loop.remove_reader(client.pidfd)
        _native.mark_dead(client.channel, f"the session has ended: {reason}")
        self._worker.send(Close(client.number, reason))
        self._loop.call_later(_CLOSE_SECONDS, self._closes_late, client)
        self._expect_end(client)

    def _closes_late(self, client: Client) -> None:
        if self._clients.get(client.number) is client and client.state is State.CLOSING:
            client.state = State.LATE
            log.warning("the worker is slow to end %s; its place is free already", client)

    def _expect_end(self, client: Client) -> None:
        if client.hung:
            client.hung.cancel()
        client.hung = self._loop.call_later(_HUNG_SECONDS, self._never_closes, client)

    def _never_closes(self, client: Client) -> None:
        log.error("the worker does not end %s; restarting the worker", client)
        self._worker.kill()

    def _release(self, client: Client) -> None:
        del self._clients[client.number]
        self._loop.remove_reader(client.pidfd)
        client.release()

    def _abandon(self, client: Client, reason: str, code: int = 0) -> None:
        """Ends a session that no worker has: the client gets the reason as an error."""
        _native.mark_dead(client.channel, reason, code)
        if client.state is State.OPENING:
            client.peer.refuse(reason)
        log.error("%s is lost: %s", client, reason)
        self._release(client)

    # The worker

    def _start_worker(self) -> WorkerProcess:
        """The spare one, if there is one."""
        worker, self._spare = self._spare or self._new_worker(), None
        worker.start()
        return worker

    def _new_worker(self) -> WorkerProcess:
        """The first one sees to it that the promised memory is there."""
        options = replace(self._plan.worker, memory=0) if self._memory else self._plan.worker
        return WorkerProcess(options, self._received, self._worker_died)

    def _received(self, message: Control, fds: list[int]) -> None:
        handler = _FROM_WORKER.get(type(message))
        if handler is None:
            raise ProtocolError(f"{type(message).__name__} from the worker")
        handler(self, message, *fds)

    def _worker_ready(self, ready: Ready) -> None:
        if self._stopping:
            return
        if self._serving.is_set():
            log.info("another worker is ready; %d sessions go on", len(self._clients))
        self._ready = ready
        self._memory = self._memory or ready.memory  # later ones find what clients have missing
        for client in list(self._clients.values()):
            self._opening.add(client)
        waiting, self._waiting = self._waiting, []
        for peer in waiting:
            peer.ended = lambda: None
            self.greeted(peer)
        self._serving.set()
        self._loop.call_later(_BURIAL_SECONDS, self._bury)
        if self._plan.device in _KEEPS_SPARE:
            self._loop.call_later(_BURIAL_SECONDS, self._make_spare)

    def _refused(self, message: Refusal) -> None:
        self._refusal = message.reason

    def _make_spare(self) -> None:
        if not self._stopping and self._spare is None:
            self._spare = self._new_worker()

    async def serves(self) -> bool:
        """Waits for the worker; False when it could not start."""
        serving: asyncio.Future[Any] = self._loop.create_task(self._serving.wait())
        finished: asyncio.Future[Any] = self.finished
        await asyncio.wait([serving, finished], return_when=asyncio.FIRST_COMPLETED)
        return not self.finished.done() and serving.done()

    @property
    def device(self) -> str:
        """What is served, for people; empty without a worker."""
        return self._ready.device if self._ready else ""

    def _opened(self, message: Opened) -> None:
        self._opening.opened(message.session)
        client = self._clients.get(message.session)
        if client is None:
            return
        if message.error:
            return self._abandon(client, f"the session cannot be served: {message.error}")
        if client.state is not State.OPENING:
            return
        client.state = State.RUNNING
        assert self._ready is not None
        answer = welcome(self._ready, client, client.layout.quota)
        client.peer.wire.send(answer, (client.channel, client.host))
        log.info("%s attached, %d MiB", client, client.layout.quota >> 20)

    def _ending(self, message: Ending) -> None:
        if client := self._clients.get(message.session):
            self._expect_end(client)

    def _closed(self, message: Closed) -> None:
        client = self._clients.get(message.session)
        if client is None:
            return
        if message.reason:
            log.warning("%s was ended: %s", client, message.reason)
        else:
            log.info("%s has ended", client)
        self._release(client)

    def _chunk(self, message: Chunk, fd: int) -> None:
        if client := self._clients.get(message.session):
            client.hold_chunk(message.offset, message.size, fd)
        else:
            os.close(fd)

    def _chunk_gone(self, message: ChunkGone) -> None:
        if client := self._clients.get(message.session):
            client.drop_chunk(message.offset)

    def _journal(self, message: Journal) -> None:
        if client := self._clients.get(message.session):
            client.journal.apply(message.entries)

    def _lost(self, message: Lost) -> None:
        """The device is lost with all that was at work on it; only another worker gets it back."""
        suspects = [c for n in message.suspects if (c := self._clients.get(n))]
        for client in suspects:
            reason = f"the GPU reported {message.text} while it executed this program's work"
            if len(suspects) > 1:
                reason += " and others', so it is not known whose fault it is"
            self._abandon(client, reason, message.code)
        self._device_lost = True
        # The driver takes its time to bury a process, and others wait: that comes afterwards.
        self._worker.freeze()
        self._frozen.append(self._worker)
        self._loop.call_later(_LAST_WORDS_SECONDS, self._replace, self._worker)

    def _bury(self) -> None:
        while self._frozen:
            self._frozen.pop().kill()

    def _worker_died(self, worker: WorkerProcess, status: int) -> None:
        if worker is self._spare:
            self._spare = None
        if worker is not self._worker or self._stopping:
            return
        if not self._serving.is_set():
            return self._give_up(self._refusal or f"the worker could not start (status {status})")
        log.error("the worker (pid %d) died with status %d", worker.pid, status)
        self._replace(worker)

    def _replace(self, worker: WorkerProcess) -> None:
        """Gives the sessions that can go on to another worker."""
        if worker is not self._worker or self._stopping:
            return
        self._ready = None
        worker.drain()
        self._opening.stop(culprit=not self._device_lost)
        for client in list(self._clients.values()):
            self._survive(client)
        if not self._device_lost:
            self._deaths.append(time.monotonic())
        self._device_lost = False
        if len(self._deaths) > _MAX_DEATHS and self._deaths[-1] - self._deaths[0] < _DEATHS_SECONDS:
            return self._give_up(f"the worker died {_MAX_DEATHS + 1} times in a row")
        log.warning("starting another worker for %d sessions", len(self._clients))
        try:
            self._worker = self._start_worker()
        except OSError as error:
            self._give_up(f"no worker can be started: {error.strerror}")

    def _survive(self, client: Client) -> None:
        """Keeps a session for the next worker, if its last one left nothing half done."""
        if client.state in (State.CLOSING, State.LATE):
            return self._release(client)
        if not _native.is_settled(client.channel, self._device_lost):
            self._abandon(client, "the server's worker died while it executed this program's work")

    # The end

    def _give_up(self, reason: str) -> None:
        if reason != self._refusal:
            log.error("giving up: %s", reason)
        self._drop_all(reason)
        if not self.finished.done():
            self.finished.set_result(1)

    def _drop_all(self, reason: str) -> None:
        self._stopping = True
        for peer in self._waiting:
            peer.refuse(reason)
        for client in list(self._clients.values()):
            _native.mark_dead(client.channel, reason)
            if client.state is State.OPENING:
                client.peer.refuse(reason)
            self._release(client)

    async def stop(self, reason: str) -> None:
        """Ends every session with an error for its client, then the worker."""
        log.info("stopping: %s", reason)
        self._drop_all(reason)
        self._bury()
        if self._spare:
            self._spare.kill()
        self._worker.send(Shutdown(reason))
        try:
            await asyncio.wait_for(self._worker.gone.wait(), _SHUTDOWN_SECONDS)
        except asyncio.TimeoutError:
            self.kill_worker()
        if not self.finished.done():
            self.finished.set_result(0)

    def kill_worker(self) -> None:
        """The last resort of a shutdown."""
        self._worker.kill()


_PURPOSES: dict[str, Callable[[Supervisor, Peer, Ready], None]] = {
    "probe": Supervisor._probe,
    "attach": Supervisor._attach,
    "status": Supervisor._status,
}
_FROM_WORKER: dict[type[Any], Callable[..., None]] = {
    Ready: Supervisor._worker_ready,
    Refusal: Supervisor._refused,
    Opened: Supervisor._opened,
    Closed: Supervisor._closed,
    Ending: Supervisor._ending,
    Chunk: Supervisor._chunk,
    ChunkGone: Supervisor._chunk_gone,
    Journal: Supervisor._journal,
    Lost: Supervisor._lost,
}
