"""cuFFT, cuSOLVER and cuSPARSE on the CPU device: a table of routines for each.

How this works: a routine is a function of the session and of the call's arguments by name
(``Arguments``; a handle stands there as its object). A call without a routine answers "not
supported" and says its name. It must never import the server's transports.
"""

from __future__ import annotations

from types import SimpleNamespace

from mnemosyne.server import libraries
from mnemosyne.server.devices.cpu.libraries import fft, solver, sparse
from mnemosyne.server.devices.cpu.session import CpuSession
from mnemosyne.server.errors import NOT_SUPPORTED, CallError
from mnemosyne.server.journal import Entries
from mnemosyne.server.libraries import LibraryCall
from mnemosyne.server.session import Outputs

_ROUTINES = {**fft.ROUTINES, **solver.ROUTINES, **sparse.ROUTINES}


def _run(s: CpuSession, c: LibraryCall) -> Outputs:
    routine = _ROUTINES.get(c.call.name)
    if routine is None:
        raise CallError(NOT_SUPPORTED, f"{c.call.name} is not implemented on the CPU device")
    return routine(s, SimpleNamespace(**c.values))


HANDLERS = libraries.handlers(_run)


def restore(s: CpuSession, entries: Entries) -> None:
    """Makes the session's handles again. Raises ValueError."""
    libraries.restore(s, entries, _run)
