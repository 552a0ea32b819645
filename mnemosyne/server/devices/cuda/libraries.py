"""cuFFT, cuSOLVER and cuSPARSE on the GPU: loading them, and what makes a handle, sets or ends it.

How this works: the executor calls the libraries' functions and holds what they make (see
csrc/lane/cuda/carried.h). What only runs is the lane's; the rest comes here, for the journal. Such
a call is made in another thread, because a library may wait for the GPU.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgpack
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

from mnemosyne import _native
from mnemosyne.protocol import carried
from mnemosyne.server import libraries
from mnemosyne.server.devices.cuda.driver import check_code
from mnemosyne.server.devices.cuda.session import CudaSession
from mnemosyne.server.errors import NOT_SUPPORTED, CallError, LibraryError
from mnemosyne.server.journal import Entries
from mnemosyne.server.libraries import LibraryCall
from mnemosyne.server.session import Deferred, Outputs


def path_of(library: str) -> str:
    """Loads it, too. Raises RuntimeError or DynamicLibNotFoundError."""
    path = load_nvidia_dynamic_lib(library).abs_path
    if path is None:
        raise RuntimeError(f"{library} is loaded from nowhere that can be named")
    return str(path)


def _defer(s: CudaSession, c: LibraryCall) -> Outputs:
    return Deferred(lambda: _run(s, c), lambda results: results)


HANDLERS = libraries.handlers(_defer)


def restore(s: CudaSession, entries: Entries) -> None:
    """Makes the session's handles again. Raises ValueError."""
    libraries.restore(s, entries, _run)


def _run(s: CudaSession, c: LibraryCall) -> tuple[Any, ...]:
    """Raises LibraryError with what the library returned."""
    _load(c.call.library)
    number, arguments = carried.NUMBER_OF[c.call.name], msgpack.packb(c.arguments)
    code, status, results = s.executor.call_library(number, c.stream, arguments)
    check_code(code)
    if status:
        raise LibraryError(status, f"{c.call.name}: status {status}")
    return tuple(msgpack.unpackb(results))


@cache
def _load(library: str) -> None:
    """When it is first called. Raises CallError when there is none."""
    try:
        _native.load_library(library, path_of(library))
    except (DynamicLibNotFoundError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise CallError(NOT_SUPPORTED, f"the server has no {library} ({why})") from None
