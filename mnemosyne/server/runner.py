"""One session in the worker: frames from its lane, executed in order, a slice of time per turn.

How this works: the lane's thread writes to an eventfd when frames arrive, which starts turns on the
event loop. A turn executes frames until its slice is over, then lets other sessions have theirs.
A frame whose handler returns Deferred stops the turns of this session alone until it is done. The
journal's changes leave before a frame's reply, and the reply before the frame counts as done.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import monotonic

from mnemosyne import _native
from mnemosyne.api import SPEC, Message
from mnemosyne.protocol import ProtocolError
from mnemosyne.protocol.frames import decode, encode_reply
from mnemosyne.server.errors import (
    UNKNOWN,
    CallError,
    LibraryError,
    blas_status,
    cudnn_status,
    fft_status,
    solver_status,
    sparse_status,
)
from mnemosyne.server.journal import Entries
from mnemosyne.server.session import Deferred, DeviceLost, Handlers, Outputs, Session

log = logging.getLogger("mnemosyne")

_SLICE_SECONDS = 0.003
_TAKEN_AT_ONCE = 64
_MAX_TEXT = 400
_NO_REPLY = -1
#: What a failure is called in the reply, by how the message's name starts; else a cudaError_t.
_STATUS = {
    "cublas": blas_status, "blas_": blas_status, "lt_": blas_status, "cudnn": cudnn_status,
    "cufft": fft_status, "cusolver": solver_status, "cusparse": sparse_status,
}  # fmt: skip
#: By message.
_STATUS_OF = {
    message.name: status
    for message in SPEC.messages.values()
    for prefix, status in _STATUS.items()
    if message.name.startswith(prefix)
}


class Runner:
    """Owns ``lane`` and ``event``, the eventfd that it notifies.

    ``publish`` sends journal entries; ``broken`` is told when the client broke the protocol, and
    ``lost`` when the device is lost.
    """

    def __init__(
        self, session: Session, handlers: Handlers, lane: _native.Lane, event: int,
        executor: Executor, publish: Callable[[Entries], None], broken: Callable[[str], None],
        lost: Callable[[DeviceLost], None],
    ) -> None:  # fmt: skip
        self.session = session
        self._handlers = handlers
        self._executor = executor
        self._publish = publish
        self._broken = broken
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._event = event
        self._lane = lane
        self._frames: deque[tuple[int, bytes]] = deque()
        self._count = 0  # frames executed
        self._deferred: asyncio.Future[object] | None = None
        self._closed = False
        self._loop.add_reader(self._event, self._wake)

    def stop(self) -> None:
        """No frame is executed any more; ``close`` is to follow."""
        self._closed = True
        self._frames.clear()
        self._loop.remove_reader(self._event)

    def close(self, reason: str) -> None:
        """Ends the lane; the client sees its channel dead. May be called in another thread."""
        self._lane.close(reason)
        os.close(self._event)

    async def drain(self) -> None:
        """Returns when nothing of the session runs in another thread any more."""
        if self._deferred is not None:
            await asyncio.wait([self._deferred])

    def _wake(self) -> None:
        os.eventfd_read(self._event)
        self._turn()

    def _turn(self) -> None:
        end = monotonic() + _SLICE_SECONDS
        while self._deferred is None and not self._closed:
            if monotonic() >= end:
                self._loop.call_soon(self._turn)
                return
            if not self._frames and not self._refill():
                return
            self._next()

    def _refill(self) -> bool:
        try:
            self._frames.extend(self._lane.take(_TAKEN_AT_ONCE))
        except ValueError as error:
            self._broken(f"after frame {self._count}: {error}")
        return bool(self._frames)

    def _next(self) -> None:
        slot, frame = self._frames.popleft()
        self._count += 1
        try:
            message, values = decode(frame)
        except ProtocolError as error:
            return self._broken(f"frame {self._count}: {error}")
        handler = self._handlers[message.name]
        self._execute(message, slot, lambda: handler(self.session, *values))

    def _execute(self, message: Message, slot: int, call: Callable[[], Outputs]) -> None:
        try:
            outputs = call()
        except CallError as error:
            return self._finish(message, slot, error)
        except ProtocolError as error:
            return self._broken(f"frame {self._count}: {error}")
        except DeviceLost as error:
            self._closed = True  # the frame stays for another worker
            return self._lost(error)
        except Exception:
            log.exception(
                "bug: session %d, frame %d: %s", self.session.number, self._count, message.name
            )
            text = f"{message.name} failed inside the server; its log has the details"
            return self._finish(message, slot, CallError(UNKNOWN, text))
        if isinstance(outputs, Deferred):
            self._defer(message, slot, outputs)
        else:
            self._finish(message, slot, outputs)

    def _defer(self, message: Message, slot: int, deferred: Deferred) -> None:
        self._deferred = self._loop.run_in_executor(self._executor, deferred.work)
        self._deferred.add_done_callback(partial(self._resume, message, slot, deferred))

    def _resume(
        self, message: Message, slot: int, deferred: Deferred, work: asyncio.Future[object]
    ) -> None:
        self._deferred = None
        if self._closed:
            work.exception()
            return
        self._execute(message, slot, lambda: deferred.finish(work.result()))
        self._turn()

    def _finish(
        self, message: Message, slot: int, outcome: tuple[object, ...] | CallError | None
    ) -> None:
        if entries := self.session.journal.take():
            self._publish(entries)
        if slot != _NO_REPLY:
            self._lane.reply(slot, _reply(message, outcome))
        elif isinstance(outcome, CallError):
            self._lane.fail(outcome.code, _text(message, outcome))
        self._lane.done(1)


def _reply(message: Message, outcome: tuple[object, ...] | CallError | None) -> bytes:
    if isinstance(outcome, LibraryError):
        log.debug("%s: status %d: %s", message.name, outcome.status, outcome.text)
        return encode_reply(outcome.status, "", outcome.text[:_MAX_TEXT])
    if isinstance(outcome, CallError):
        status = _STATUS_OF.get(message.name, int)
        return encode_reply(status(outcome.code), _text(message, outcome))
    data = encode_reply(0, *outcome) if outcome else encode_reply(0)
    if len(data) > _native.REPLY_BYTES:
        return encode_reply(UNKNOWN, f"{message.name}: the reply is too long")
    return data


def _text(message: Message, error: CallError) -> str:
    return f"{message.name}: {error.text}"[:_MAX_TEXT]
