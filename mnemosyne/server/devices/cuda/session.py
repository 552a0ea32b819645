"""A session on the GPU: what the common session knows, and the driver's objects behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cuda.bindings import driver

from mnemosyne import _native
from mnemosyne.server.devices.cuda.driver import check, check_code
from mnemosyne.server.devices.cuda.kernels import Function, Kernels, OwnModule
from mnemosyne.server.session import Deferred, Outputs, Session


@dataclass(slots=True)
class SharedEvents:
    """The driver's events that more than one session may use: the last one destroys them."""

    _others: Counter[int] = field(default_factory=Counter)

    def share(self, handle: int) -> None:
        self._others[handle] += 1

    def destroy(self, handle: int) -> None:
        if self._others[handle] > 0:
            self._others[handle] -= 1
            return
        del self._others[handle]
        check(driver.cuEventDestroy(handle))


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
