"""cuFFT, cuSOLVER and cuSPARSE on the GPU: their own functions, called through ctypes.

How this works: a library is loaded when it is first called. A call's arguments follow from its
parameters in the specification: numbers and device pointers as they came, handles as the library's
own, whatever lies in host memory as a buffer of this process. Every call runs in another thread,
because a library may wait for the GPU. It works in the stream of the client's handle; what a
library does in the legacy stream (it sets itself up there) is waited for.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from cuda.bindings import driver
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

from mnemosyne.api import Call, Field, Kind
from mnemosyne.api.spec import Way
from mnemosyne.protocol import carried
from mnemosyne.server import libraries
from mnemosyne.server.devices.cuda.driver import SUCCESS, check, check_code
from mnemosyne.server.devices.cuda.session import CudaSession
from mnemosyne.server.errors import NOT_SUPPORTED, OUT_OF_MEMORY, CallError, LibraryError
from mnemosyne.server.journal import Entries
from mnemosyne.server.libraries import ENDS, LibraryCall, comes_back
from mnemosyne.server.session import Deferred, LibraryObject, Outputs

log = logging.getLogger("mnemosyne")

_LEGACY_STREAM = 1  # CU_STREAM_LEGACY
_MOST_HOST_MEMORY = 1 << 30  # bytes that one call may need here
_SMALLEST = 16  # bytes: a scalar of any type
_SET_STREAM = {
    "cufft": "cufftSetStream", "cusolver": "cusolverDnSetStream", "cusparse": "cusparseSetStream",
}  # fmt: skip
_SET_POINTER_MODE = "cusparseSetPointerMode"
_CTYPES: dict[str, Any] = {
    "int": ctypes.c_int, "long long": ctypes.c_longlong, "size_t": ctypes.c_size_t,
    "signed char": ctypes.c_byte, "double": ctypes.c_double, "void*": ctypes.c_void_p,
}  # fmt: skip


@dataclass(slots=True)
class _Real:
    """The library's handle, and the stream and pointer mode it was given last."""

    handle: int
    stream: int = 0
    pointer_mode: int = 0


def _defer(s: CudaSession, c: LibraryCall) -> Outputs:
    return Deferred(lambda: _run(s, c), lambda results: results)


HANDLERS = libraries.handlers(_defer)


def restore(s: CudaSession, entries: Entries) -> None:
    """Makes the session's handles again. Raises ValueError."""
    libraries.restore(s, entries, _run)


def release(s: CudaSession) -> None:
    """Ends the session's handles, once the GPU has done its work."""
    for found in s.objects.values():
        end = ENDS[found.of]
        if found.value is None:  # it could not be made again
            continue
        if status := _function(end)(found.value.handle):
            log.warning("session %d: %s: status %d", s.number, end.name, status)
    s.objects.clear()


def _run(s: CudaSession, c: LibraryCall) -> tuple[Any, ...]:
    """Raises LibraryError with what the library returned."""
    function, arguments = _function(c.call), _Arguments(c)
    if _works(c.call):
        status = _in_stream(s, c, lambda: function(*arguments.passed))
    else:
        status = function(*arguments.passed)
    check(driver.cuStreamSynchronize(_LEGACY_STREAM))
    if status:
        raise LibraryError(status, f"{c.call.name}: status {status}")
    arguments.keep_handles()
    return arguments.results()


def _works(call: Call) -> bool:
    """Whether it puts work into the stream of its handle; what makes or sets one does not."""
    return not call.journal and "Handle" in call.params[0].of


def _in_stream(s: CudaSession, c: LibraryCall, action: Callable[[], int]) -> int:
    code, stream = s.executor.begin_operation(c.stream)
    check_code(code)
    status = -1
    try:
        status = _set(c, stream) or action()
        if any(p.kind is Kind.SCRATCH and carried.room(p, c.values) for p in c.call.params):
            check(driver.cuStreamSynchronize(stream))  # the memory is given back now
    finally:
        code = s.executor.end_operation(c.stream, status != SUCCESS)
    check_code(code)
    return status


def _set(c: LibraryCall, stream: int) -> int:
    """Gives the library's handle its stream and pointer mode; the library's status."""
    real: _Real = c.values[c.call.params[0].name].value
    status: int = SUCCESS
    if real.stream != stream:
        status = _setter(c.call.library, _SET_STREAM[c.call.library])(real.handle, stream)
        real.stream = stream
    mode = _pointer_mode(c)
    if not status and mode not in (None, real.pointer_mode) and c.call.library == "cusparse":
        status = _setter(c.call.library, _SET_POINTER_MODE)(real.handle, mode)
        real.pointer_mode = mode or 0
    return status


def _pointer_mode(c: LibraryCall) -> int | None:
    """1 with scalars in device memory, 0 in host memory, None without any."""
    values = [c.values[p.name] for p in c.call.params if p.kind in (Kind.SCALAR, Kind.RESULT)]
    return int(any(type(value) is int and value for value in values)) if values else None


class _Arguments:
    """A call's arguments as ctypes takes them, and the places where something comes back."""

    def __init__(self, c: LibraryCall) -> None:
        self._params, self._values = c.call.params, c.values
        self._places: dict[str, Any] = {}
        self.passed = [self._passed(p) for p in self._params]

    def _passed(self, p: Field) -> Any:
        value = self._values.get(p.name)
        if p.way is Way.NEW or (p.kind is Kind.INT and p.way is not Way.IN):
            made = _CTYPES[p.ctype.removesuffix("*")]
            return self._place(p, made(value if p.way is Way.INOUT else 0))
        if p.kind is Kind.HANDLE:
            return value.value.handle if value else None
        if p.kind in (Kind.BYTES, Kind.SCALAR, Kind.RESULT, Kind.SCRATCH):
            return self._memory(p, value)
        return value

    def _place(self, p: Field, place: Any) -> Any:
        self._places[p.name] = place
        return ctypes.byref(place)

    def _memory(self, p: Field, value: Any) -> Any:
        """Host memory; a scalar may be in device memory, and bytes may be none."""
        if type(value) is int and value:
            return value
        if value == b"":
            return None
        size = len(value) if type(value) is bytes else carried.room(p, self._values)
        if size > _MOST_HOST_MEMORY:
            raise CallError(OUT_OF_MEMORY, f"{size} bytes of host memory for {p.name}")
        buffer = ctypes.create_string_buffer(max(size, _SMALLEST))
        if type(value) is bytes:
            ctypes.memmove(buffer, value, size)
        return self._place(p, buffer)

    def keep_handles(self) -> None:
        """The library has made them."""
        for p in self._params:
            if p.way is Way.NEW:
                made: LibraryObject = self._values[p.name]
                made.value = _Real(self._places[p.name].value or 0)

    def results(self) -> tuple[Any, ...]:
        return tuple(self._result(p) for p in self._params if comes_back(p, self._values))

    def _result(self, p: Field) -> Any:
        place = self._places[p.name]
        return place.value if p.kind is Kind.INT else place.raw[: carried.room(p, self._values)]


def _function(call: Call) -> Any:
    return _found(call.library, call.name, tuple(_ctype(p) for p in call.params))


def _ctype(p: Field) -> Any:
    by_value = p.way in (Way.IN, Way.GONE) and p.kind in (Kind.INT, Kind.REAL, Kind.HANDLE)
    return _CTYPES[p.ctype] if by_value else ctypes.c_void_p


def _setter(library: str, name: str) -> Any:
    handle = ctypes.c_int if library == "cufft" else ctypes.c_void_p
    value = ctypes.c_int if name == _SET_POINTER_MODE else ctypes.c_void_p
    return _found(library, name, (handle, value))


@cache
def _found(library: str, name: str, parameters: tuple[Any, ...]) -> Any:
    """A library's function. Raises CallError when there is none."""
    try:
        function = getattr(_loaded(library), name)
    except (DynamicLibNotFoundError, AttributeError, OSError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise CallError(NOT_SUPPORTED, f"the server has no {name} ({why})") from None
    function.argtypes = parameters
    function.restype = ctypes.c_int
    return function


@cache
def _loaded(library: str) -> ctypes.CDLL:
    return ctypes.CDLL(load_nvidia_dynamic_lib(library).abs_path)
