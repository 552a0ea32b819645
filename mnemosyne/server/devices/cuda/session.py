"""A session on the GPU: what the common session knows, and the driver's objects behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from cuda.bindings import driver

from mnemosyne import _native
from mnemosyne.server.devices.cuda.driver import check, check_code
from mnemosyne.server.devices.cuda.kernels import Function, Kernels, OwnModule
from mnemosyne.server.exports import Event
from mnemosyne.server.session import Deferred, Outputs, Session

_EVENT_FLAGS = 3  # blocking synchronisation, no timing


@dataclass(slots=True)
class SharedEvents:
    """The driver's events, which more than one session may use: the first makes one, the last
    destroys it. Sessions end in threads of their own."""

    _lock: Lock = field(default_factory=Lock)

    def open(self, event: Event) -> int:
        """The driver's event. Raises CallError."""
        with self._lock:
            if not event.users:
                event.handle = int(check(driver.cuEventCreate(event.flags & _EVENT_FLAGS)))
            event.users += 1
            return event.handle

    def close(self, event: Event) -> None:
        with self._lock:
            event.users -= 1
            if not event.users:
                check(driver.cuEventDestroy(event.handle))


@dataclass(kw_only=True)
class CudaSession(Session):
    """``kernels`` and ``shared_events`` are the device's, ``words`` its block of progress words;
    the rest is this client's own. Streams, events and functions themselves are in ``executor``, by
    number. ``pinned``: addresses of the host memory that the GPU reaches now."""

    executor: _native.CudaExecutor
    kernels: Kernels
    shared_events: SharedEvents
    words: int
    functions: dict[int, Function] = field(default_factory=dict)
    settings: dict[int, dict[int, int]] = field(default_factory=dict)  # of functions, by attribute
    modules: dict[int, OwnModule] = field(default_factory=dict)  # that the client had in memory
    last_function: int = 0
    pinned: set[int] = field(default_factory=set)


def when_idle(s: CudaSession, action: Callable[[], object]) -> Outputs:
    """Runs ``action`` when the GPU has done the session's work, as freeing does natively."""
    if s.executor.idle():
        action()
        return None

    def finish(code: int) -> None:
        check_code(code)
        action()

    return Deferred(s.executor.synchronize, finish)
